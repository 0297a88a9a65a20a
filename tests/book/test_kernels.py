"""Kernels that are forked from one process must be as those that start afresh."""

import sys

import nbformat
import psutil
import pytest
from kernels import imported_by_several

from tests.book.building import build


def notebook(*cells):
    return nbformat.v4.new_notebook(cells=list(map(nbformat.v4.new_code_cell, cells)))


def test_what_several_pages_import_is_found():
    here = notebook("import numpy as np\nimport torch.nn", "from zoolib import a, b")
    there = notebook("def f(:", "import numpy", "from zoolib import b as c, d\nx = 1")
    there.cells.append(nbformat.v4.new_markdown_cell("import torch.nn"))
    assert imported_by_several([here]) == []
    assert imported_by_several([here, there]) == [("numpy", ""), ("zoolib", "b")]


# pandas and Matplotlib ask, when they are imported, what will show their tables and figures.
CELLS = [
    """import os
import sys
was_there = "pandas" in sys.modules
import matplotlib.pyplot as plt
import pandas as pd
from zoolib import LinUCBAgent""",
    "print(pd.DataFrame([range(10**9, 10**9 + 20)]))",
    "print(sys.path, sys.flags, sorted(os.environ), os.path.basename(os.getcwd()))",
    "print(os.getsid(0) == os.getpid(), [sys.stdin.read(), os.read(0, 1)])",
    ":tags: [remove-output]\n\nplt.subplots();",
    "was_there",
    "os.getpid()",
]


def shown(folder, *names):
    """Build a book that has one page under several names; return what its cells but the first showed."""
    folder.mkdir()
    pages = {
        name: "".join(
            f"```{{code-cell}} python\n{cell}\n```\n\n"
            for cell in [*CELLS, f"# {name}"]
        )
        for name in names
    }
    status, said = build(folder, "A first page.", **pages)
    assert status == 0, said
    found = []
    for file in folder.glob("_build/execution-*/executed/*/base.ipynb"):
        cells = [cell for cell in nbformat.read(file, 4).cells if "outputs" in cell]
        found.append(["".join(map(_text, cell.outputs)) for cell in cells[1:-1]])
    return found


def _text(output):
    return output["text"] if "text" in output else output["data"]["text/plain"]


@pytest.mark.skipif(sys.platform != "linux", reason="all kernels start afresh")
def test_a_page_shows_the_same_in_a_kernel_that_was_forked(tmp_path):
    ((*expected, was_there, _),) = shown(tmp_path / "alone", "here")
    assert was_there == "False"
    assert "Figure" in expected[-1]
    pages = shown(tmp_path / "several", "here", "there")
    for *forked, was_there, pid in pages:
        assert was_there == "True"
        assert forked == expected
        assert not psutil.pid_exists(int(pid))
