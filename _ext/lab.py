"""The book as the reader's own notebooks: ``python -m lab [ROOT]`` lays them into ``notebooks/``.

They are those that the book offers for download, numbered in its order, and ``make lab`` opens them. What a
reader has written or run stays: a newer build replaces only a notebook that is as it was laid out.
"""

from __future__ import annotations

import hashlib
import json
import sys
from pathlib import Path

import nbformat
from downloads import download
from nbformat import NotebookNode
from printing.assemble import Book

FOLDER = "notebooks"
# Where a notebook keeps the sum of its cells as they were laid out.
MARK = "laid_out"


def checksum(notebook: NotebookNode) -> str:
    """Return a checksum of what a reader may change: the cells and their outputs."""
    cells = [
        (cell.cell_type, cell.source, cell.get("outputs", []))
        for cell in notebook.cells
    ]
    return hashlib.sha256(json.dumps(cells, sort_keys=True).encode()).hexdigest()


def lay_out(root: Path) -> list[Path]:
    """Lay out the notebooks of a built book; return those that are kept although newer ones exist."""
    folder, html, kept = root / FOLDER, root / "_build/html", []
    folder.mkdir(exist_ok=True)
    pages = [html / download(page) for page in Book.read(root).pages]
    for number, offered in enumerate(page for page in pages if page.exists()):
        target = folder / f"{number:02}-{offered.name}"
        notebook = nbformat.read(offered, as_version=4)
        notebook.metadata[MARK] = checksum(notebook)
        before, is_untouched = _before(target)
        if before == notebook.metadata[MARK]:
            continue
        if is_untouched:
            nbformat.write(notebook, target)
        else:
            kept.append(target)
    return kept


def _before(target: Path) -> tuple[str, bool]:
    """Return the mark of an existing notebook, and whether it may be replaced."""
    if not target.exists():
        return "", True
    try:
        notebook = nbformat.read(target, as_version=4)
        mark = notebook.metadata.get(MARK, "")
        return mark, checksum(notebook) == mark
    except Exception:  # whatever it is, it is the reader's
        return "", False


def main(arguments: list[str]) -> None:
    """Lay the notebooks out, and say which were kept."""
    root = Path(*arguments or ["."]).resolve()
    kept = lay_out(root)
    if kept:
        names = ", ".join(path.name for path in kept)
        print(
            f"You have worked in {names}: kept as they are, though the book has newer versions. "
            f"To get these, rename or delete yours in {FOLDER}/ and run make lab again."
        )


if __name__ == "__main__":
    main(sys.argv[1:])
