"""Every chapter's notebook, with the outputs of the built book, against a fresh run by nbval.

Run as ``python -m tests.notebooks`` after the book is built. One execution serves both: the outputs
that the book shows, taken from its execution cache, are the reference for the fresh run. The fresh runs
go side by side, as the book's do. The pair ``chapters/NAME.ipynb`` of each ``chapters/NAME.md`` is
written on the way.
"""

from __future__ import annotations

import os
import subprocess
import sys
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import jupytext
import nbformat
import yaml
from jupyter_cache import get_cache

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "_ext"))

from fresh_execution import cache_folder  # noqa: E402  (the extensions are no package)
from parallel_execution import AT_ONCE, ONE_THREAD  # noqa: E402

TIMEOUT_S = 900


def chapters(root: Path = ROOT, numbered: bool = False) -> list[Path]:
    """List the pages of the table of contents that are notebooks, or only the numbered ones."""
    toc = yaml.safe_load((root / "_toc.yml").read_text())
    parts = [part for part in toc["parts"] if part.get("numbered") or not numbered]
    entries = [entry["file"] for part in parts for entry in part["chapters"]]
    pages = [root / f"{name}.md" for name in (toc["root"], *entries)]
    return [page for page in pages if "{code-cell}" in page.read_text()]


def with_outputs(page: Path) -> Path:
    """Write the notebook of a page, with the outputs that the book shows, beside it."""
    notebook = jupytext.read(page)
    _, executed = get_cache(cache_folder()).merge_match_into_notebook(notebook)
    target = page.with_suffix(".ipynb")
    nbformat.write(executed, target)
    # As old as its page: JupyterLab refuses a pair whose notebook is newer than its source.
    os.utime(target, (page.stat().st_atime, page.stat().st_mtime))
    return target


def unproven_cells(notebook: Path) -> list[int]:
    """List code cells that never ran: nbval would pass them without looking."""
    cells = [
        c for c in nbformat.read(notebook, as_version=4).cells if c.cell_type == "code"
    ]
    return (
        [number for number, cell in enumerate(cells, 1) if cell.execution_count is None]
        if cells
        else [0]
    )


def check(notebook: Path, timeout_s: int = TIMEOUT_S) -> int:
    """Run a notebook afresh, compare every output, and say so; return 0 if all agree."""
    if unproven := unproven_cells(notebook):
        print(f"{notebook.name}: cells {unproven} have no stored run to compare with")
        return 1
    options = [
        "--nbval",
        "--nbval-current-env",
        f"--nbval-cell-timeout={timeout_s}",
        "-p",
        "no:cacheprovider",
    ]
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-q",
        "-c",
        os.devnull,
        f"--rootdir={notebook.parent}",
        *options,
    ]
    result = subprocess.run(
        [*command, str(notebook)],
        env=os.environ | ONE_THREAD | {"TQDM_DISABLE": "1"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(f"{notebook.name}:\n{result.stdout}", flush=True)
    return result.returncode


def check_all(notebooks: Iterable[Path]) -> int:
    """Check notebooks side by side; return 0 if all hold."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        codes = list(pool.map(check, notebooks))  # all of them, whichever fails
    return int(any(codes))


def main() -> int:
    """Check every chapter; return 0 if all hold."""
    pages = chapters()
    assert pages, "no chapter found: nothing would be checked"
    return check_all([with_outputs(page) for page in pages])


if __name__ == "__main__":
    sys.exit(main())
