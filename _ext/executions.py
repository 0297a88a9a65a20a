"""Sphinx extension: when each page last ran, how long it took, and with which versions.

What surrounded an execution is noted in the cache, beside its outputs (see `parallel_execution`). The
directive ``{executions}`` makes tables of these notes. A page that was not executed is a warning.
"""

from __future__ import annotations

from collections.abc import Iterable
from pathlib import Path

from docutils import nodes
from jupyter_cache import get_cache
from parallel_execution import read_notebook
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOG = logging.getLogger(__name__)
RUNS = ("Page", "Ended (UTC)", "Seconds", "Cells", "Claims")
VERSIONS = ("What", "Version")


class PendingExecutions(nodes.General, nodes.Element):
    """The tables of executions, while pages are still being read."""


class ExecutionsDirective(SphinxDirective):
    def run(self) -> list[nodes.Node]:
        return [PendingExecutions()]


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the tables where they were asked for."""
    for pending in list(doctree.findall(PendingExecutions)):
        notes = _notes(app.env)
        rows = [_row(app, docname, page, note) for page, note in notes.items()]
        tables = [table(RUNS, rows, "executions")]
        versions = [note["versions"] for note in notes.values()]
        for different in [v for i, v in enumerate(versions) if v not in versions[:i]]:
            pages = [
                app.env.titles[page]
                for page in notes
                if notes[page]["versions"] == different
            ]
            names = "; ".join(title.astext() for title in pages)
            tables.append(nodes.paragraph("", f"Versions behind {names}:"))
            tables.append(table(VERSIONS, list(different.items()), "versions"))
        pending.replace_self(tables)


def _notes(env: BuildEnvironment) -> dict[str, dict]:
    """Read the notes of all executed pages, in the order of the book."""
    cache = get_cache(env.mystnb_config.execution_cache_path)
    found = {}
    for page in env.external_site_map:
        if (notebook := read_notebook(Path(env.doc2path(page)), env)) is None:
            continue
        cells = sum(cell.cell_type == "code" for cell in notebook.cells)
        try:
            record = cache.match_cache_notebook(notebook)
            found[page] = {**record.data, "cells": cells}
        except KeyError:
            LOG.warning("the page was not executed", location=page)
    return found


def _row(app: Sphinx, docname: str, page: str, note: dict) -> list[nodes.Node | str]:
    uri = app.builder.get_relative_uri(docname, page)
    link = nodes.reference("", app.env.titles[page].astext(), refuri=uri, internal=True)
    claims = [record for record in app.env.claims.values() if record["page"] == page]
    seconds = f"{note['execution_seconds']:.0f}"
    return [link, note["ended"], seconds, str(note["cells"]), str(len(claims))]


def table(
    heads: Iterable[str], rows: Iterable[Iterable[nodes.Node | str]], name: str
) -> nodes.table:
    """Make a table of texts and inline nodes."""
    columns = [nodes.colspec(colwidth=1) for _ in heads]
    head, body = nodes.thead("", _cells(heads)), nodes.tbody("", *map(_cells, rows))
    group = nodes.tgroup("", *columns, head, body, cols=len(columns))
    return nodes.table("", group, classes=[name])


def _cells(contents: Iterable[nodes.Node | str]) -> nodes.row:
    texts = (nodes.Text(c) if isinstance(c, str) else c for c in contents)
    return nodes.row("", *(nodes.entry("", nodes.paragraph("", "", t)) for t in texts))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(PendingExecutions)
    app.add_directive("executions", ExecutionsDirective)
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
