"""Sphinx extension: what MyST-NB's table of executions lacks: titles of pages, and versions.

It exists because that table names pages by their files, repeats in two columns what is the same for all, and
knows no versions. The table ``{{ versions }}`` serves all pages: the execution cache begins anew with
another lock or Python (see `fresh_execution`).
"""

from __future__ import annotations

import os
import platform
import re
from importlib.metadata import requires, version

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.config import Config

LIBRARY = "zoolib"


def tell(app: Sphinx, config: Config) -> None:
    """Hand the table to the pages, as Markdown."""
    asked = [line for line in requires(LIBRARY) or [] if "extra ==" not in line]
    names = [LIBRARY, *(re.match(r"[\w.-]+", line)[0] for line in asked)]
    rows = {
        "Python": platform.python_version(),
        **{name: version(name) for name in names},
        "operating system": platform.platform(),
        "cores": str(os.cpu_count()),
    }
    lines = ["| What | Version |", "| --- | --- |"]
    lines += [f"| {name} | {which} |" for name, which in rows.items()]
    config.myst_substitutions["versions"] = "\n".join(lines)


def tidy(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Name pages by their titles, and leave out by which method they ran, and that they did."""
    for table in doctree.findall(nodes.table):
        if table.next_node(nodes.entry).astext() != "Document":
            continue
        for row in [table.next_node(nodes.tgroup), *table.findall(nodes.row)]:
            del row[4], row[2]  # of the group, the columns' specifications
        table.next_node(nodes.tgroup)["cols"] = 3
        for link in table.findall(nodes.reference):
            link[:] = [nodes.Text(app.env.titles[link.astext()].astext())]


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", tell)
    app.connect("doctree-resolved", tidy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
