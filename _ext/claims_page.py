"""Sphinx extension: the page that lists every claim, for readers who doubt.

The directive ``{claims}`` makes the table: sentence, value, interval, the bound that it had to keep and
the room that was left, worlds and seeds, and a link to the cell that checked it. Its content, a YAML
mapping from keys of claims to sentences, says where the drafts of the book claimed something else; a key
that no claim has is a warning. The table is whole without scripts; `scripts/claims.js` adds a filter.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Iterable
from dataclasses import dataclass

import yaml
from claims import anchor
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOG = logging.getLogger(__name__)
WIDTHS = {"Claim": 46, "Found": 20, "Must be": 20, "Worlds": 14}


class PendingTable(nodes.General, nodes.Element):
    """The table of claims, while pages are still being read."""


class ClaimsDirective(SphinxDirective):
    has_content = True

    def run(self) -> list[nodes.Node]:
        self.env.metadata[self.env.docname]["lists_claims"] = True
        drafts = yaml.safe_load("\n".join(self.content)) or {}
        pending = PendingTable(drafts=drafts)
        self.set_source_info(pending)
        return [pending]


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the tables where they were asked for."""
    for pending in list(doctree.findall(PendingTable)):
        claims, drafts = app.env.claims, pending["drafts"]
        for key in sorted(drafts.keys() - claims.keys()):
            LOG.warning("the drafts contradict no claim %r", key, location=pending)
        uri = _uris(app, docname)
        rows = [_row(app, key, claims[key], drafts.get(key), uri) for key in claims]
        pending.replace_self([_summary(claims, drafts), _controls(), _table(rows)])


def _uris(app: Sphinx, docname: str) -> Callable[[str], str]:
    return lambda page: app.builder.get_relative_uri(docname, page)


def _summary(claims: dict[str, dict], drafts: dict[str, str]) -> nodes.paragraph:
    """Say how many claims there are, and of what kind."""
    wide = sum(bool(record["interval"]) for record in claims.values())
    many = sum(len(record["seeds"]) > 1 for record in claims.values())
    text = (
        f"There are {len(claims)} claims. {wide} of them kept their bound with a whole interval, {many} "
        f"speak about several worlds, and {len(drafts)} differ from what drafts of this book had said."
    )
    return nodes.paragraph("", text)


def _controls() -> nodes.raw:
    """Leave the place for the filter, so that nothing moves when a script fills it."""
    return nodes.raw("", '<div class="claims-controls"></div>\n', format="html")


def _row(
    app: Sphinx, key: str, record: dict, draft: str | None, uri: Callable[[str], str]
) -> nodes.row:
    """Lay out a claim: what is claimed and where, what was found, the bound, the worlds."""
    page, seeds = record["page"], record["seeds"]
    where = nodes.reference(
        "",
        app.env.titles[page].astext(),
        refuri=f"{uri(page)}#{anchor(key)}",
        internal=True,
        classes=["checked-in"],
    )
    claim = _entry(record["sentence"])
    if draft:
        claim += nodes.paragraph("", f"The drafts: {draft}", classes=["drafts"])
    claim += nodes.paragraph("", "", where)
    found = nodes.entry("", nodes.paragraph("", "", nodes.strong("", record["value"])))
    found += nodes.paragraph("", record["interval"] or "no interval")
    bound = nodes.entry("", nodes.paragraph("", record["held"]), strip(record))
    worlds = _entry(str(len(seeds)) if seeds else "none")
    if seeds:
        worlds += nodes.paragraph(
            "", f"seeds {_span(seeds)}" if len(seeds) > 1 else f"seed {seeds[0]}"
        )
    row_id = f"claim-{nodes.make_id(key)}"
    return nodes.row("", claim, found, bound, worlds, ids=[row_id])


def _entry(text: str) -> nodes.entry:
    return nodes.entry("", nodes.paragraph("", text))


def _span(seeds: list[int]) -> str:
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}–{seeds[-1]}"
    return ", ".join(map(str, seeds))


@dataclass(frozen=True)
class Strip:
    """A claim as numbers: its interval, its value, and the bounds that it had to keep."""

    low: float
    value: float
    high: float
    above: float | None = None
    below: float | None = None

    @property
    def room(self) -> float:
        """Distance from the interval to the nearer bound, in half-widths of the interval."""
        lower = self.low - self.above if self.above is not None else float("inf")
        upper = self.below - self.high if self.below is not None else float("inf")
        half = (self.high - self.low) / 2 or abs(self.value) or 1.0
        return min(lower, upper) / half


def numbers(record: dict) -> Strip | None:
    """Read a claim's numbers from its texts; what had to be equal to something has no room."""
    bounds = dict(re.findall(r"(above|below) (\S+)", record["held"]))
    if not bounds:
        return None
    interval = (
        record["interval"].split(" to ")
        if record["interval"]
        else [record["value"]] * 2
    )
    low, value, high = map(_number, (interval[0], record["value"], interval[1]))
    return Strip(
        low, value, high, **{name: _number(text) for name, text in bounds.items()}
    )


def _number(text: str) -> float:
    return float(text.replace(",", "").rstrip("%"))


def strip(record: dict) -> nodes.raw:
    """Draw the interval beside its bounds; the table says the same in words."""
    if (drawn := numbers(record)) is None or abs(drawn.high) == float("inf"):
        return nodes.raw("", "", format="html")
    ends = [drawn.low, drawn.high, drawn.above, drawn.below]
    known = [end for end in ends if end is not None]
    least, most = min(known), max(known)
    pad = 0.08 * (most - least) or 1.0

    def at(number: float) -> float:
        return round(100 * (number - least + pad) / (most - least + 2 * pad), 1)

    walls = [b for b in (drawn.above, drawn.below) if b is not None]
    left = 0 if drawn.above is None else at(drawn.above)
    right = 100 if drawn.below is None else at(drawn.below)
    shapes = [
        f'<rect class="kept" x="{left}" y="2" width="{round(right - left, 1)}" height="12"/>',
        *(f'<path class="bound" d="M{at(wall)} 0V16"/>' for wall in walls),
        f'<path class="interval" d="M{at(drawn.low)} 8H{at(drawn.high)}"/>',
        f'<circle cx="{at(drawn.value)}" cy="8" r="2.5"/>',
    ]
    box = 'viewBox="0 0 100 16" preserveAspectRatio="xMinYMid"'
    head = f'<svg class="strip" aria-hidden="true" data-room="{drawn.room:.2f}" {box}>'
    return nodes.raw("", head + "".join(shapes) + "</svg>", format="html")


def _table(rows: Iterable[nodes.row]) -> nodes.table:
    columns = [nodes.colspec(colwidth=width) for width in WIDTHS.values()]
    head = nodes.thead("", nodes.row("", *map(_entry, WIDTHS)))
    group = nodes.tgroup("", *columns, head, nodes.tbody("", *rows), cols=len(WIDTHS))
    return nodes.table("", group, classes=["claims"])


def add_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Add the filter to the page that lists the claims."""
    if app.env.metadata.get(pagename, {}).get("lists_claims"):
        app.add_js_file("claims.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("interactive")  # which brings the folder of scripts
    app.add_node(PendingTable)
    app.add_directive("claims", ClaimsDirective)
    app.connect("doctree-resolved", resolve)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
