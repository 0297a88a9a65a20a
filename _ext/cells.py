"""Sphinx extension: folds code cells behind small marks.

A cell with the tag ``hide-input`` shows its output in a frame, in whose corner a mark opens its code. A cell
that shows nothing is a mark alone: set-up, checks, or code. Marks that would stand under one another share a
line. With ``hide-output`` the code is open, and the mark opens what it prints.

Why our own: MyST-NB opens code by a bar across the page, and leaves a bar where a cell shows nothing.
"""

from __future__ import annotations

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.writers.html5 import HTML5Translator


class Fold(nodes.General, nodes.Element):
    """The folded part of a cell; its mark is the word that opens it."""


def element(node: nodes.Node) -> str | None:
    """Return which part of a notebook a node is, if it is one."""
    return node.get("nb_element") if isinstance(node, nodes.container) else None


def fold(app: Sphinx, doctree: nodes.document) -> None:
    """Fold what is tagged; a cell that shows nothing joins the row of the fold before it."""
    for cell in list(doctree.findall(lambda node: element(node) == "cell_code")):
        mode = cell.attributes.pop("hide_mode", "")
        shows = element(cell[-1]) == "cell_code_output"
        if mode not in ("input", "output") or (mode == "output" and not shows):
            continue
        part = cell[0] if mode == "input" else cell[-1]
        mark = "output" if mode == "output" else mark_of(cell)
        cell.remove(part)
        cell += Fold("", part, mark=mark)
        row = cell.previous_sibling() if len(cell) == 1 else None
        if not (isinstance(row, nodes.container) and "folds" in row["classes"]):
            framed = ["framed"] if shows and mode == "input" else []
            row = nodes.container(classes=["folds", *framed])
            cell.parent.insert(cell.parent.index(cell), row)
        cell.parent.remove(cell)
        row += cell


def mark_of(cell: nodes.Element) -> str:
    """Say what a fold of code holds; that of an output needs no name."""
    source = cell[0]
    if len(cell) > 1:
        return "code"
    if any(source.findall(nodes.target)):  # which claims leave
        return "checks"
    imports = source.astext().lstrip().startswith(("import ", "from "))
    return "set-up" if imports else "code"


def visit_fold(writer: HTML5Translator, node: Fold) -> None:
    opened = f'<details class="fold">\n<summary>{node["mark"]}</summary>\n'
    writer.body.append(opened)


def depart_fold(writer: HTML5Translator, node: Fold) -> None:
    writer.body.append("</details>\n")


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Fold, html=(visit_fold, depart_fold))
    app.connect("doctree-read", fold, priority=600)  # after claims, at 500
    return {"parallel_read_safe": True, "parallel_write_safe": True}
