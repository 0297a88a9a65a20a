"""Sphinx extension: one source for the symbols of the book, its page, and checks against it.

``chapters/notation.yml`` says of every symbol what it means, where, in which shape, and what holds it in
code; `notation_source` reads it. The directive ``{notation}`` on the page of the same name lists them by
chapter. Whenever pages are read, each symbol in their mathematics is looked up: one that the source does
not know in this place, two meanings, another shape, or an entry that is no longer used is a warning and
breaks the build. What concerns the library, its attributes and docstrings, is checked in
``tests/book/test_notation.py``, since no page shows it.

Why our own: Sphinx's glossaries define words and check none; no extension reads mathematics.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import groupby
from pathlib import Path

from claims import pages
from docutils import nodes
from docutils.statemachine import StringList
from notation_source import Entry, Source, Use, faults, introductions
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

LOG = logging.getLogger(__name__)
NAME = "notation.yml"
TABLE = """
````{list-table}
:class: notation
:header-rows: 1
* - Symbol
  - Meaning
  - In code
"""


class PendingLink(nodes.Inline, nodes.TextElement):
    """A placeholder for a link to where an entry is introduced, until all pages are read."""


class LinkRole(SphinxRole):
    """``{introduced}`3 text``` links to where entry 3 is introduced, by default with its title."""

    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        entry, _, text = self.text.partition(" ")
        link = PendingLink(self.rawtext, entry=int(entry))
        parsed, messages = self.inliner.parse(text, self.lineno, None, link)
        link.extend(parsed)
        return [link], messages


class NotationDirective(SphinxDirective):
    """A table of symbols for each chapter, and a paragraph on letters used in single passages."""

    def run(self) -> list[nodes.Node]:
        self.env.metadata[self.env.docname]["lists_notation"] = True
        self.env.note_dependency("".join(self.env.docname.rpartition("/")[:2]) + NAME)
        lines = StringList(listing(source_of(self.env, self.env.docname)), NAME)
        box = nodes.Element()
        self.state.nested_parse(lines, self.content_offset, box, match_titles=True)
        return box.children


def listing(source: Source) -> list[str]:
    """Write what the source says, in MyST."""
    number = {entry: n for n, entry in enumerate(source.entries)}

    def row(entry: Entry) -> str:
        axes = r" \times ".join(entry.shape or [])
        facts = [entry.means, f"shape ${axes}$" if axes else "", entry.range]
        # A letter with another meaning elsewhere in its chapter says where it has this one.
        facts += [f"in {{introduced}}`{number[entry]}`"] if entry.at else []
        code = ", ".join(f"`{code}`" for code in entry.code)
        symbol = f"{{introduced}}`{number[entry]} {entry.tex}`"
        return f"* - {symbol}\n  - {'; '.join(filter(None, facts))}\n  - {code}\n"

    text = ""
    for chapter in source.chapters:
        text += f"\n## {chapter.title}\n"
        if chapter.symbols:
            text += TABLE + "".join(map(row, chapter.symbols)) + "````\n"
        passages = []
        for _, group in groupby(chapter.passages, key=lambda entry: entry.at[0]):
            said = list(group)
            letters = ", ".join(f"{entry.tex} {entry.means}" for entry in said)
            passages.append(f"{{introduced}}`{number[said[0]]}` {letters}")
        if passages:
            text += paragraph("In single passages: " + "; ".join(passages))
    axes = "; ".join(f"`{name}` {text}" for name, text in source.axes.items())
    text += "\n## Axes that have a name and no symbol\n" + paragraph(axes)
    return text.splitlines()


def paragraph(text: str) -> str:
    return f"\n````{{rst-class}} passages\n{text}.\n````\n"


def source_of(env: BuildEnvironment, page: str) -> Source:
    """Read the source that stands beside the page which lists it."""
    path = Path(env.doc2path(page)).with_name(NAME)
    return Source(path.read_text(encoding="utf-8"), "".join(page.rpartition("/")[:2]))


def note_uses(app: Sphinx, doctree: nodes.document) -> None:
    """Remember the mathematics of a page and the titles of its sections."""
    page = app.env.docname
    if app.env.metadata[page].get("lists_notation"):
        return
    if not hasattr(app.env, "notation"):
        app.env.notation = {}
    titles = {
        # An exercise has its own title, in brackets, as a subtitle.
        f"{page}#{one}": next(title.findall(nodes.subtitle), title)
        .astext()
        .strip(" ()")
        for title in doctree.findall(nodes.Titular)
        for one in title.parent.get("ids", ())
        if "target_label" not in title.parent
    }
    uses = [
        Use(page, node.astext(), _line(node), [page, *list(_places(node, page))[::-1]])
        for node in doctree.findall(
            lambda n: isinstance(n, nodes.math | nodes.math_block)
        )
    ]
    app.env.notation[page] = uses, titles


def _line(node: nodes.Node | None) -> int | None:
    while node is not None and not node.line:
        node = node.parent
    return node.line if node is not None else None


def _places(node: nodes.Node, page: str) -> Iterator[str]:
    """Walk outward through what has an id, a solution under that of its exercise."""
    while (node := node.parent) is not None:
        for one in filter(None, (*node.get("ids", ()), node.get("target_label"))):
            yield f"{page}#{one}"


def update(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Check the mathematics of all pages, and have the links of the page rewritten."""
    uses, titles = [], {}
    for page in filter(env.notation.__contains__, pages(env)):
        uses += env.notation[page][0]
        titles |= env.notation[page][1]
    listing = [p for p, about in env.metadata.items() if about.get("lists_notation")]
    for page in listing:
        source = source_of(env, page)
        for message, where, line in faults(source, uses):
            LOG.warning("%s: %s", NAME, message, location=(where or page, line))
        found = introductions(source, uses, titles)
        places = [found.get(entry, entry.page) for entry in source.entries]
        env.notation_links = [(place, titles.get(place)) for place in places]
    return listing


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the placeholders with links."""
    for pending in list(doctree.findall(PendingLink)):
        place, title = app.env.notation_links[pending["entry"]]
        page, _, anchor = place.partition("#")
        title = title or app.env.titles[page].astext()
        link = nodes.reference("", "", *(pending.children or [nodes.Text(title)]))
        link["internal"] = True
        link["refuri"] = f"{app.builder.get_relative_uri(docname, page)}#{anchor}"
        link["reftitle"] = title  # the name of a link whose text is a formula
        pending.replace_self(link)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(PendingLink)
    app.add_role("introduced", LinkRole())
    app.add_directive("notation", NotationDirective)
    app.connect("doctree-read", note_uses)
    app.connect("env-updated", update)
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
