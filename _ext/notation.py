"""Sphinx extension: one source for the symbols of the book, its tables, and checks against it.

``chapters/notation.yml`` says of every symbol what it means, where, in which shape, and what holds it in
code; `notation_source` reads it. The directive ``{notation}`` on the page of the same name makes the
tables. Whenever pages are read, each symbol in their mathematics is looked up: one that the source does
not know in this place, two meanings, another shape, or an entry that is no longer used is a warning and
breaks the build. What concerns the library, its attributes and docstrings, is checked in
``tests/book/test_notation.py``, since no page shows it.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from claims import pages
from docutils import nodes
from docutils.statemachine import StringList
from notation_source import Entry, Source, Use, faults, introductions
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOG = logging.getLogger(__name__)
NAME = "notation.yml"


class PendingPlaces(nodes.Inline, nodes.TextElement):
    """Links to where the symbols of an entry are introduced, while pages are still being read."""


class NotationDirective(SphinxDirective):
    """One table for each page that introduces symbols, one for single passages, one for axes."""

    def run(self) -> list[nodes.Node]:
        self.env.metadata[self.env.docname]["lists_notation"] = True
        self.env.note_dependency("".join(self.env.docname.rpartition("/")[:2]) + NAME)
        source = source_of(self.env, self.env.docname)
        sections = []
        for home, title in source.headings.items():
            entries = [
                (n, entry)
                for n, entry in enumerate(source.entries)
                if source.home(entry) == home
            ]
            rows = [self._row(entry, n) for n, entry in entries]
            if home == "axes":
                rows = [
                    self._cells(f"`{name}`", text) for name, text in source.axes.items()
                ]
            sections.append(self._section(home, title, rows))
        return sections

    def _section(self, home: str, title: str, rows: list[nodes.row]) -> nodes.section:
        section = nodes.section("", nodes.title("", title))
        section["names"].append(f"notation-{home}")
        self.state.document.note_explicit_target(section, section)
        section += _table(rows)
        return section

    def _row(self, entry: Entry, number: int) -> nodes.row:
        row = self._cells(
            ", ".join(f"${tex}$" for tex in entry.symbol),
            entry.means + (f" ({entry.apart})" if entry.apart else ""),
            ", ".join(f"`{code}`" for code in entry.code),
        )
        axes = r" \times ".join(entry.shape or [])
        facts = [f"shape ${axes}$" if axes else "", entry.range]
        for fact in self._cells("; ".join(filter(None, facts)))[0].children:
            fact["classes"].append("shape")
            row[1] += fact
        row[1] += nodes.paragraph(
            "", "", PendingPlaces(entry=number), classes=["places"]
        )
        return row

    def _cells(self, *texts: str) -> nodes.row:
        row = nodes.row()
        for text in texts:
            row += nodes.entry()
            self.state.nested_parse(
                StringList([text], NAME), self.content_offset, row[-1]
            )
        return row


def _table(rows: list[nodes.row]) -> nodes.table:
    heads = (
        ("Symbol", "Meaning", "In code") if len(rows[0]) == 3 else ("Name", "Meaning")
    )
    head = nodes.row(
        "", *(nodes.entry("", nodes.paragraph("", text)) for text in heads)
    )
    columns = [nodes.colspec(colwidth=width) for width in (20, 44, 36)[: len(heads)]]
    group = nodes.tgroup(
        "", *columns, nodes.thead("", head), nodes.tbody("", *rows), cols=len(heads)
    )
    return nodes.table("", group, classes=["notation"])


def source_of(env: BuildEnvironment, page: str) -> Source:
    """Read the source that stands beside the page which lists it."""
    path = Path(env.doc2path(page)).with_name(NAME)
    return Source(path.read_text(encoding="utf-8"), "".join(page.rpartition("/")[:2]))


def listing_pages(env: BuildEnvironment) -> list[str]:
    """Name the pages that have the tables."""
    return [page for page, known in env.metadata.items() if known.get("lists_notation")]


def note_uses(app: Sphinx, doctree: nodes.document) -> None:
    """Remember the mathematics of a page that was read."""
    page = app.env.docname
    if app.env.metadata[page].get("lists_notation"):
        return
    titles = _titles(doctree)
    _uses(app.env)[page] = [
        Use(page, node.astext(), _line(node), (*_inside(node, titles),)[::-1])
        for node in doctree.findall(
            lambda n: isinstance(n, nodes.math | nodes.math_block)
        )
    ]


def forget_uses(app: Sphinx, env: BuildEnvironment, page: str) -> None:
    _uses(env).pop(page, None)


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
    """Check what was read, and have the tables' links written again."""
    uses = [use for page in pages(env) for use in _uses(env).get(page, [])]
    for page in listing_pages(env):
        source = source_of(env, page)
        for message, where, line in faults(source, uses):
            LOG.warning("%s: %s", NAME, message, location=(where or page, line))
        env.notation_links = introductions(source, uses)
    return listing_pages(env)


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the links where they belong."""
    for pending in list(doctree.findall(PendingPlaces)):
        links = []
        for place, (target, title) in app.env.notation_links[pending["entry"]].items():
            page, _, inner = place.partition("#")
            text = title if inner or not links else _name(app.env, page)
            uri = f"{app.builder.get_relative_uri(docname, page)}#{inner or target}"
            links += [nodes.Text(", ")] * bool(links)
            links.append(nodes.reference("", text, refuri=uri, internal=True))
        pending.replace_self(links)


def _name(env: BuildEnvironment, page: str) -> str:
    number = env.toc_secnumbers.get(page, {}).get("")
    return f"Chapter {number[0]}" if number else env.titles[page].astext()


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(PendingPlaces)
    app.add_directive("notation", NotationDirective)
    app.connect("doctree-read", note_uses)
    app.connect("env-purge-doc", forget_uses)
    app.connect("env-updated", update)
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
