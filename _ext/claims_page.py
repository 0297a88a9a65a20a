"""Sphinx extension: the page that lists every claim, for readers who doubt.

The directive ``{claims}`` makes a table for each page: sentence, value, interval, the bound that it had to keep
and the room that was left, worlds and seeds, and a link to the cell that checked it. What does not hold in this
build comes before all else on the page. The tables are whole without scripts; with them each is closed, and
`scripts/claims.js` adds filters.

Why our own: no extension knows claims (see `claims`).
"""

from __future__ import annotations

from html import escape

from claims import anchor, failed, worlds
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

WIDTHS = {"Claim": 46, "Found": 20, "Must be": 20, "Worlds": 14}
# Open without scripts; with them closed at once, before anything is drawn.
SECTION = (
    '<details class="claims-of" open><summary><span>{title}</span> {count}</summary>'
    "<script>document.currentScript.parentNode.open = false</script>"
)
# Below this a bound is a tolerance, and an exact zero keeps it as an equation would.
TOLERANCE = 1


class PendingTable(nodes.General, nodes.Element):
    """A placeholder for the table of claims, until all pages are read."""


class ClaimsDirective(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return [PendingTable()]


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the placeholders with the tables."""
    for pending in list(doctree.findall(PendingTable)):
        claims, wrong = app.env.claims, failed(app.env)
        sound = [key for key in claims if key not in wrong]
        wide = sum(bool(claims[key]["interval"]) for key in sound)
        many = sum(len(record["seeds"]) > 1 for record in claims.values())
        summary = (
            f"There are {len(claims)} claims. {wide} of them kept their bound with a whole interval, and "
            f"{many} speak about several worlds."
        )
        # The place for the filters, so that nothing moves when a script fills it.
        controls = nodes.raw("", '<div class="claims-controls"></div>', format="html")
        rows = {key: _row(app, docname, key, claims[key]) for key in claims}
        doubts = [_doubt(app, docname, doubt) for doubt in app.env.doubts]
        if first := [rows[key] for key in wrong] + doubts:
            pending.parent.insert(1, _warning(first))
        by_page: dict[str, list[nodes.row]] = {}
        for key in sound:
            by_page.setdefault(claims[key]["page"], []).append(rows[key])
        sections = []
        for page, its_rows in by_page.items():
            sections += _section(app.env.titles[page].astext(), its_rows)
        pending.replace_self([nodes.paragraph("", summary), controls, *sections])


def _warning(rows: list[nodes.row]) -> nodes.Element:
    """Lay out what does not hold."""
    words = (
        "The book was built on a machine or with settings that give other results than the authors'. "
        "What follows does not hold here; wherever its number stands in the text, it says so."
    )
    title = nodes.title("", "Does not hold in this build")
    box = nodes.admonition("", title, nodes.paragraph("", words), _table(rows))
    box["classes"] += ["warning", "claims-wrong"]
    return box


def _section(title: str, rows: list[nodes.row]) -> list[nodes.Element]:
    """Lay out the claims of a page, which open and close."""
    count = f"{len(rows)} claim{'s' if len(rows) > 1 else ''}"
    opened = SECTION.format(title=escape(title), count=count)
    around = [nodes.raw("", tag, format="html") for tag in (opened, "</details>")]
    return [around[0], _table(rows), around[1]]


def _doubt(app: Sphinx, docname: str, doubt: dict) -> nodes.row:
    """Lay out that a record differs from what was played here."""
    text = nodes.paragraph
    cells = (
        [text("", doubt["sentence"]), text("", "", _link(app, docname, doubt["page"]))],
        [text("", doubt["found"])],
        [text("", "as recorded"), text("", "", nodes.strong("", "does not hold here"))],
        [text("", "none")],
    )
    return nodes.row("", *(nodes.entry("", *cell) for cell in cells))


def _link(app: Sphinx, docname: str, page: str, place: str = "") -> nodes.reference:
    """Link to a place on a page, by the page's title."""
    return nodes.reference(
        "",
        app.env.titles[page].astext(),
        refuri=f"{app.builder.get_relative_uri(docname, page)}{place}",
        internal=True,
        classes=["checked-in"],
    )


def _row(app: Sphinx, docname: str, key: str, record: dict) -> nodes.row:
    """Lay out a claim: what is claimed and where, what was found, the bound, the worlds."""
    text = nodes.paragraph
    where = _link(app, docname, record["page"], f"#{anchor(key)}")
    verdict = [] if record["holds"] else [nodes.strong("", "does not hold here")]
    cells = (
        [text("", record["sentence"]), text("", "", where)],
        [
            text("", "", nodes.strong("", record["value"])),
            text("", record["interval"] or "no interval"),
        ],
        [
            text("", record["held"]),
            *(text("", "", words) for words in verdict),
            nodes.raw("", strip(record), format="html"),
        ],
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


def is_identity(record: dict) -> bool:
    """Whether a claim says that two things are the same: they have no room, and are not close."""
    bounds = [record[side] for side in ("above", "below")]
    is_zero = set(record["range"]) == {0}
    return bounds == [None, None] or (
        is_zero and bounds[0] is None and bounds[1] < TOLERANCE
    )


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
    sorts = "" if is_identity(record) else f'data-room="{room(record):.2f}" '
    head = f'<svg class="strip" aria-hidden="true" {sorts}'
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
