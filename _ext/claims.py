"""Sphinx extension: numbers in the prose, and the claims behind them.

``zoolib.claim`` leaves a record in the notebook that checked the claim. The role ``{claim}`key```
prints its value and links to its row on the page of claims (see `claims_page`), ``{claim}`key interval```
prints the interval. An unknown key is a warning: it breaks the build. The cell that checked a claim gets
an anchor, to which the page of claims leads back.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

from zoolib.book import RECORD_PREFIX

LOG = logging.getLogger(__name__)
# A claim prints a line like this one below its cell.
PRINTED = re.compile(r"^(\w+): .*, claimed ", re.M)


class PendingNumber(nodes.Inline, nodes.TextElement):
    """A number of a claim, while its page is read and the claim is not known yet."""


class ClaimRole(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        key, _, part = self.text.partition(" ")
        number = PendingNumber(self.rawtext, key=key, part=part or "value")
        self.set_source_info(number)
        return [number], []


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
        for key, record in records(app, env, page, RECORD_PREFIX).items():
            _add(env.claims, key, record, page)
    return listing_pages(env)


def records(
    app: Sphinx, env: BuildEnvironment, page: str, prefix: str
) -> dict[str, dict]:
    """Read what a page's notebook glued under names with a prefix; the keys are without it."""
    glued = Path(app.outdir).parent / "jupyter_execute" / f"{page}.glue.json"
    names = getattr(env, "nb_metadata", {}).get(page, {}).get("glue", [])
    data = json.loads(glued.read_text(encoding="utf-8")) if names else {}
    texts = {name: data[name]["data"]["text/plain"] for name in names}
    return {
        name.removeprefix(prefix): json.loads(ast.literal_eval(text))
        for name, text in texts.items()
        if name.startswith(prefix)
    }


def _add(claims: dict[str, dict], key: str, record: dict, page: str) -> None:
    if key in claims:
        LOG.warning(
            "claim %r is made on two pages: %s and %s", key, claims[key]["page"], page
        )
    claims[key] = record | {"page": page}


def anchor(key: str) -> str:
    """Name the place where a claim was checked."""
    return f"checked-{nodes.make_id(key)}"


def mark_cells(app: Sphinx, doctree: nodes.document) -> None:
    """Put an anchor before each cell that checked claims."""
    for cell in list(doctree.findall(nodes.container)):
        if cell.get("nb_element") == "cell_code":
            printed = "\n".join(
                text.astext() for text in cell.findall(nodes.literal_block)
            )
            if keys := PRINTED.findall(printed):
                place = nodes.target("", "", ids=[anchor(key) for key in keys])
                cell.parent.insert(cell.parent.index(cell), place)


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put numbers where they were asked for."""
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


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(PendingNumber)
    app.add_role("claim", ClaimRole())
    app.connect("doctree-read", mark_cells)
    app.connect("env-updated", collect)
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
