"""Sphinx extension: numbers in the prose, and the page that lists every claim.

``zoolib.claim`` leaves a record in the notebook that checked the claim. The role ``{claim}`key```
prints its value and links to its row on the page of claims, ``{claim}`key interval``` prints the
interval; the directive ``{claims}`` is the table. An unknown key is a warning: it breaks the build.
"""

from __future__ import annotations

import ast
import json
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective, SphinxRole

from zoolib.book import RECORD_PREFIX

LOG = logging.getLogger(__name__)
HEADS = ("Claim", "Value", "95% interval", "Must be", "Worlds and seeds", "Checked in")


class PendingNumber(nodes.Inline, nodes.TextElement):
    """A number of a claim, while its page is read and the claim is not known yet."""


class PendingTable(nodes.General, nodes.Element):
    """The table of claims, while pages are still being read."""


class ClaimRole(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        key, _, part = self.text.partition(" ")
        number = PendingNumber(self.rawtext, key=key, part=part or "value")
        self.set_source_info(number)
        return [number], []


class ClaimsDirective(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        self.env.metadata[self.env.docname]["lists_claims"] = True
        return [PendingTable()]


def pages(env: BuildEnvironment) -> Iterator[str]:
    """Walk the pages in reading order."""
    waiting = [env.config.root_doc]
    while waiting:
        page = waiting.pop()
        yield page
        waiting += reversed(env.toctree_includes.get(page, []))


def listing_pages(env: BuildEnvironment) -> list[str]:
    """Name the pages with a table of claims."""
    return [page for page, known in env.metadata.items() if known.get("lists_claims")]


def collect(app: Sphinx, env: BuildEnvironment) -> list[str]:
    """Gather the records of all pages, and have the pages that show them written again."""
    env.claims = {}
    for page in pages(env):
        glued = Path(app.outdir).parent / "jupyter_execute" / f"{page}.glue.json"
        names = getattr(env, "nb_metadata", {}).get(page, {}).get("glue", [])
        data = json.loads(glued.read_text(encoding="utf-8")) if names else {}
        for name in (name for name in names if name.startswith(RECORD_PREFIX)):
            text = data[name]["data"]["text/plain"]
            _add(env.claims, name.removeprefix(RECORD_PREFIX), text, page)
    return listing_pages(env)


def _add(claims: dict[str, dict], key: str, text: str, page: str) -> None:
    if key in claims:
        LOG.warning(
            "claim %r is made on two pages: %s and %s", key, claims[key]["page"], page
        )
    claims[key] = json.loads(ast.literal_eval(text)) | {"page": page}


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put numbers and the table where they were asked for."""
    claims = app.env.claims
    home = next(iter(listing_pages(app.env)), docname)
    for number in list(doctree.findall(PendingNumber)):
        key, part = number["key"], number["part"]
        text = claims.get(key, {}).get(part) if part in ("value", "interval") else None
        if not text:
            LOG.warning("no claim gives %r of %r", part, key, location=number)
            text = "?"
        uri = (
            f"{app.builder.get_relative_uri(docname, home)}#claim-{nodes.make_id(key)}"
        )
        number.replace_self(
            nodes.reference("", text, refuri=uri, classes=["claim"], internal=True)
        )
    for table in list(doctree.findall(PendingTable)):
        rows = [_row(app, docname, key, record) for key, record in claims.items()]
        table.replace_self(_table(rows))


def _row(app: Sphinx, docname: str, key: str, record: dict) -> nodes.row:
    where = nodes.reference(
        "",
        app.env.titles[record["page"]].astext(),
        refuri=app.builder.get_relative_uri(docname, record["page"]),
        internal=True,
    )
    seeds = record["seeds"]
    worlds = f"{len(seeds)}: {_span(seeds)}" if seeds else "no chance in it"
    cells = [
        record["sentence"],
        record["value"],
        record["interval"] or ("one world" if seeds else "exact"),
        record["held"],
        worlds,
        where,
    ]
    row = nodes.row(ids=[f"claim-{nodes.make_id(key)}"])
    for cell in cells:
        content = cell if isinstance(cell, nodes.Node) else nodes.Text(cell)
        row += nodes.entry("", nodes.paragraph("", "", content))
    return row


def _span(seeds: list[int]) -> str:
    if len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1)):
        return f"{seeds[0]}–{seeds[-1]}"
    return ", ".join(map(str, seeds))


def _table(rows: list[nodes.row]) -> nodes.table:
    head = nodes.row()
    for title in HEADS:
        head += nodes.entry("", nodes.paragraph("", title))
    columns = [nodes.colspec(colwidth=width) for width in (40, 10, 20, 20, 15, 15)]
    group = nodes.tgroup(
        "", *columns, nodes.thead("", head), nodes.tbody("", *rows), cols=len(HEADS)
    )
    return nodes.table("", group, classes=["claims"])


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(PendingNumber)
    app.add_node(PendingTable)
    app.add_role("claim", ClaimRole())
    app.add_directive("claims", ClaimsDirective)
    app.connect("env-updated", collect)
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
