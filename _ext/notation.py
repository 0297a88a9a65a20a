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
from notation_source import Chapter, Entry, Source, Use, faults, introductions
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOG = logging.getLogger(__name__)
NAME = "notation.yml"


class PendingLink(nodes.Inline, nodes.TextElement):
    """What is to lead to where an entry is introduced, while pages are still being read."""


class NotationDirective(SphinxDirective):
    """For each chapter a table of its symbols, and a paragraph on letters of single passages."""

    def run(self) -> list[nodes.Node]:
        self.env.metadata[self.env.docname]["lists_notation"] = True
        self.env.note_dependency("".join(self.env.docname.rpartition("/")[:2]) + NAME)
        source = source_of(self.env, self.env.docname)
        self.numbers = {entry: n for n, entry in enumerate(source.entries)}
        sections = [self._chapter(chapter) for chapter in source.chapters]
        axes = "; ".join(f"`{name}` {text}" for name, text in source.axes.items())
        names = self._section("Axes that have a name and no symbol")
        names += nodes.paragraph("", "", *self._text(axes + "."), classes=["passages"])
        return [*sections, names]

    def _section(self, title: str) -> nodes.section:
        section = nodes.section("", nodes.title("", title))
        section["names"].append(nodes.fully_normalize_name(title))
        self.state.document.note_implicit_target(section, section)
        return section

    def _chapter(self, chapter: Chapter) -> nodes.section:
        section = self._section(chapter.title)
        if chapter.symbols:
            rows = [self._row(entry) for entry in chapter.symbols]
            columns = [nodes.colspec(colwidth=width) for width in (16, 48, 36)]
            heads = [nodes.paragraph("", t) for t in ("Symbol", "Meaning", "In code")]
            head = nodes.row("", *(nodes.entry("", text) for text in heads))
            parts = [*columns, nodes.thead("", head), nodes.tbody("", *rows)]
            section += nodes.table(
                "", nodes.tgroup("", *parts, cols=3), classes=["notation"]
            )
        if chapter.passages:
            section += self._passages(chapter.passages)
        return section

    def _row(self, entry: Entry) -> nodes.row:
        axes = r" \times ".join(entry.shape or [])
        facts = [entry.means, f"shape ${axes}$" if axes else "", entry.range]
        # A letter with another meaning elsewhere in its chapter says where it has this one.
        only = [nodes.Text("; in "), self._link(entry)] if entry.at else []
        cells = (
            [self._link(entry, self._symbols(entry))],
            [*self._text("; ".join(filter(None, facts))), *only],
            self._text(", ".join(f"`{code}`" for code in entry.code)),
        )
        return nodes.row(
            "", *(nodes.entry("", nodes.paragraph("", "", *cell)) for cell in cells)
        )

    def _passages(self, entries: list[Entry]) -> nodes.paragraph:
        """Explain letters that serve one passage each: the link to it, which gets its title, and they."""
        line = nodes.paragraph("", "In single passages: ", classes=["passages"])
        for _, group in groupby(entries, key=lambda entry: entry.at[0]):
            said = list(group)
            line += [nodes.Text("; " if len(line) > 1 else ""), self._link(said[0])]
            for entry in said:
                line += [nodes.Text(" "), *self._text(self._symbols(entry))]
                line += [nodes.Text(" "), *self._text(entry.means)]
                line += nodes.Text("," if entry is not said[-1] else "")
        line += nodes.Text(".")
        return line

    def _symbols(self, entry: Entry) -> str:
        return ", ".join(f"${tex}$" for tex in entry.symbol)

    def _link(self, entry: Entry, text: str = "") -> PendingLink:
        return PendingLink("", "", *self._text(text), entry=self.numbers[entry])

    def _text(self, text: str) -> list[nodes.Node]:
        if not text:
            return []
        box = nodes.Element()
        self.state.nested_parse(StringList([text], NAME), self.content_offset, box)
        return box[0].children


def source_of(env: BuildEnvironment, page: str) -> Source:
    """Read the source that stands beside the page which lists it."""
    path = Path(env.doc2path(page)).with_name(NAME)
    return Source(path.read_text(encoding="utf-8"), "".join(page.rpartition("/")[:2]))


def note_uses(app: Sphinx, doctree: nodes.document) -> None:
    """Remember the mathematics of a page that was read."""
    page = app.env.docname
    if app.env.metadata[page].get("lists_notation"):
        return
    titles = _titles(doctree)
    formulas = doctree.findall(lambda n: isinstance(n, nodes.math | nodes.math_block))
    _uses(app.env)[page] = [
        Use(page, node.astext(), _line(node), (*_inside(node, titles),)[::-1])
        for node in formulas
    ]


def _uses(env: BuildEnvironment) -> dict[str, list[Use]]:
    if not hasattr(env, "notation_uses"):
        env.notation_uses = {}
    return env.notation_uses


def _line(node: nodes.Node | None) -> int | None:
    while node is not None and not node.line:
        node = node.parent
    return node.line if node is not None else None


def _inside(node: nodes.Node, titles: dict[str, str]) -> Iterator[tuple[str, str]]:
    """Walk outward through what has an id, a solution under that of its exercise."""
    while node.parent is not None:
        node = node.parent
        for one in filter(None, (*node.get("ids", ()), node.get("target_label"))):
            yield one, titles.get(one, "")


def _titles(doctree: nodes.document) -> dict[str, str]:
    """Map ids to titles; an exercise has its own, in brackets, as a subtitle."""
    return {
        one: next(title.findall(nodes.subtitle), title).astext().strip(" ()")
        for title in doctree.findall(nodes.Titular)
        for one in title.parent.get("ids", ())
        if "target_label" not in title.parent
    }


def update(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Check what was read, and have the page's links written again."""
    known = [page for page in pages(env) if page in _uses(env)]
    uses = [use for page in known for use in _uses(env)[page]]
    listing = [p for p, about in env.metadata.items() if about.get("lists_notation")]
    for page in listing:
        source = source_of(env, page)
        for message, where, line in faults(source, uses):
            LOG.warning("%s: %s", NAME, message, location=(where or page, line))
        found = introductions(source, uses)
        env.notation_links = [(e.page, *found.get(e, ("", ""))) for e in source.entries]
    return listing


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the links where they belong; one without a text gets the title of its place."""
    for pending in list(doctree.findall(PendingLink)):
        page, place, title = app.env.notation_links[pending["entry"]]
        title = title or app.env.titles[page].astext()
        link = nodes.reference("", "", *(pending.children or [nodes.Text(title)]))
        link["internal"] = True
        link["refuri"] = f"{app.builder.get_relative_uri(docname, page)}#{place}"
        link["reftitle"] = title  # the name of a link whose text is a formula
        pending.replace_self(link)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(PendingLink)
    app.add_directive("notation", NotationDirective)
    app.connect("doctree-read", note_uses)
    app.connect("env-updated", update)
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
