"""Sphinx extension: the page that lists every claim, for readers who doubt.

The directive ``{claims}`` makes the table: sentence, value, interval, the bound that it had to keep and
the room that was left, worlds and seeds, and a link to the cell that checked it. The table is whole
without scripts; `scripts/claims.js` adds a filter.

Why our own: no extension knows claims (see `claims`).
"""

from __future__ import annotations

from claims import anchor, worlds
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

WIDTHS = {"Claim": 46, "Found": 20, "Must be": 20, "Worlds": 14}


class PendingTable(nodes.General, nodes.Element):
    """A placeholder for the table of claims, until all pages are read."""


class ClaimsDirective(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return [PendingTable()]


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the placeholders with the tables."""
    for pending in list(doctree.findall(PendingTable)):
        claims = app.env.claims
        wide = sum(bool(record["interval"]) for record in claims.values())
        many = sum(len(record["seeds"]) > 1 for record in claims.values())
        summary = (
            f"There are {len(claims)} claims. {wide} of them kept their bound with a whole interval, and "
            f"{many} speak about several worlds."
        )
        # The place for the filter, so that nothing moves when a script fills it.
        controls = nodes.raw("", '<div class="claims-controls"></div>', format="html")
        rows = [_row(app, docname, key, claims[key]) for key in claims]
        pending.replace_self([nodes.paragraph("", summary), controls, _table(rows)])


def _row(app: Sphinx, docname: str, key: str, record: dict) -> nodes.row:
    """Lay out a claim: what is claimed and where, what was found, the bound, the worlds."""
    page, text = record["page"], nodes.paragraph
    where = nodes.reference(
        "",
        app.env.titles[page].astext(),
        refuri=f"{app.builder.get_relative_uri(docname, page)}#{anchor(key)}",
        internal=True,
        classes=["checked-in"],
    )
    cells = (
        [text("", record["sentence"]), text("", "", where)],
        [
            text("", "", nodes.strong("", record["value"])),
            text("", record["interval"] or "no interval"),
        ],
        [text("", record["held"]), nodes.raw("", strip(record), format="html")],
        [text("", worlds(record["seeds"]) if record["seeds"] else "none")],
    )
    row_id = f"claim-{nodes.make_id(key)}"
    return nodes.row("", *(nodes.entry("", *cell) for cell in cells), ids=[row_id])


def room(record: dict) -> float:
    """Return the distance from the interval to the nearer bound, in half-widths of the interval."""
    low, value, high = record["range"]
    sides = []
    if record["above"] is not None:
        sides.append(low - record["above"])
    if record["below"] is not None:
        sides.append(record["below"] - high)
    return min(sides) / ((high - low) / 2 or abs(value) or 1.0)


def strip(record: dict) -> str:
    """Draw the interval beside its bounds; the table says the same in words."""
    low, value, high = record["range"]
    walls = [record[side] for side in ("above", "below") if record[side] is not None]
    if not walls or None in record["range"]:
        return ""
    least, most = min(low, *walls), max(high, *walls)
    pad = 0.08 * (most - least) or 1.0

    def at(number: float) -> float:
        return round(100 * (number - least + pad) / (most - least + 2 * pad), 1)

    left = 0 if record["above"] is None else at(record["above"])
    right = 100 if record["below"] is None else at(record["below"])
    shapes = [
        f'<rect class="kept" x="{left}" y="2" width="{round(right - left, 1)}" height="12"/>',
        *(f'<path class="bound" d="M{at(wall)} 0V16"/>' for wall in walls),
        f'<path class="interval" d="M{at(low)} 8H{at(high)}"/>',
        f'<circle cx="{at(value)}" cy="8" r="2.5"/>',
    ]
    head = f'<svg class="strip" aria-hidden="true" data-room="{room(record):.2f}" '
    box = 'viewBox="0 0 100 16" preserveAspectRatio="xMinYMid">'
    return head + box + "".join(shapes) + "</svg>"


def _table(rows: list[nodes.row]) -> nodes.table:
    heads = (nodes.entry("", nodes.paragraph("", name)) for name in WIDTHS)
    columns = [nodes.colspec(colwidth=width) for width in WIDTHS.values()]
    head = nodes.thead("", nodes.row("", *heads))
    group = nodes.tgroup("", *columns, head, nodes.tbody("", *rows), cols=len(WIDTHS))
    return nodes.table("", group, classes=["claims"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("claims")
    app.add_node(PendingTable)
    app.add_directive("claims", ClaimsDirective)
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
