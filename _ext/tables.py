"""Sphinx extension: numbers and captions the table that a code cell prints.

A cell says ``table: {name: tab-…, caption: …}`` in its options. Its data frame, which MyST-NB would show as raw
HTML, becomes a table of the page like those in the text: numbered, captioned, and a target of ``{numref}``.

A cell ``**98.8**`` is bold: the best of its column.

Why our own: MyST-NB gives names and captions to the pictures of a cell only.
"""

from __future__ import annotations

import re

from bs4 import BeautifulSoup
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms import SphinxTransform
from sphinx.util import logging

LOG = logging.getLogger(__name__)


def paragraph(text: str) -> nodes.paragraph:
    """Make the content of a cell; a text between two pairs of asterisks is bold, as in Markdown."""
    if found := re.fullmatch(r"\*\*(.+)\*\*", text):
        return nodes.paragraph("", "", nodes.strong("", found[1]))
    return nodes.paragraph(text, text)


def table_of(html: str) -> nodes.table:
    """Make a table of the page from that of a data frame, whose index becomes the heads of its rows."""
    rows = BeautifulSoup(html, "html.parser").find("table").find_all("tr")
    width = len(rows[0].find_all(("th", "td")))
    group = nodes.tgroup(cols=width)
    group += [nodes.colspec(colwidth=1, stub=int(at == 0)) for at in range(width)]
    parts = {"thead": nodes.thead(), "tbody": nodes.tbody()}
    for row in rows:
        texts = [cell.get_text(strip=True) for cell in row.find_all(("th", "td"))]
        entries = [nodes.entry("", paragraph(text)) for text in texts]
        parts[row.parent.name] += nodes.row("", *entries)
    group += list(parts.values())
    return nodes.table("", group)


class CaptionTables(SphinxTransform):
    """Replace the outputs of cells that name and caption a table."""

    default_priority = 400  # before Sphinx collects the labels, at 850

    def apply(self, **kwargs: object) -> None:
        for cell in list(self.document.findall(nodes.container)):
            if not (wanted := cell.get("cell_metadata", {}).get("table")):
                continue
            shown = [
                (bundle, form)
                for bundle in cell.findall(nodes.container)
                if bundle.get("nb_element") == "mime_bundle"
                for form in bundle.children
                if form.get("mime_type") == "text/html"
            ]
            if len(shown) != 1:
                said = "a cell with a captioned table must print one table: got %d"
                LOG.warning(said, len(shown), location=cell)
                continue
            ((bundle, form),) = shown
            table = table_of(next(form.findall(nodes.raw)).astext())
            table.insert(0, nodes.title("", wanted["caption"]))
            table["names"].append(wanted["name"])
            self.document.note_explicit_target(table)
            bundle.replace_self(table)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_transform(CaptionTables)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
