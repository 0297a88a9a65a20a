"""Every chapter's notebook, as a reader takes it along, against the outputs of the built book.

Run as ``python -m tests.notebooks`` after the book is built. The notebooks that the book offers for
download run afresh by nbval, side by side, each in a folder of its own outside the repository, with the
library installed from the book's wheel. The outputs that the book shows, taken from its execution cache,
are the reference; so one run proves that the book is what its code prints, and that a notebook needs
nothing but the wheel. The pair ``chapters/NAME.ipynb`` of each ``chapters/NAME.md`` is written on the way.
"""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from pathlib import Path

import jupytext
import nbformat
import yaml
from jupyter_cache import get_cache

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT / "_ext"))

from downloads import ASKED, WHEEL, download  # noqa: E402
from execution import AT_ONCE, ONE_THREAD, cache_folder  # noqa: E402  (the extensions are no package)

HTML = ROOT / "_build" / "html"
TIMEOUT_S = 900
# The last cell of each run, whose reference is the installed wheel.
WHERE = "import zoolib\nprint(zoolib.__file__)"


def chapters(root: Path = ROOT, numbered: bool = False) -> list[Path]:
    """List the pages of the table of contents that are notebooks, or only the numbered ones."""
    toc = yaml.safe_load((root / "_toc.yml").read_text())
    parts = [part for part in toc["parts"] if part.get("numbered") or not numbered]
    entries = [entry["file"] for part in parts for entry in part["chapters"]]
    front = [] if numbered else [toc["root"]]
    pages = [root / f"{name}.md" for name in front + entries]
    return [page for page in pages if "{code-cell}" in page.read_text()]


def name_of(page: Path) -> str:
    """Return the path of a page below ``chapters``: several pages may have one name, each in its folder."""
    parts = page.with_suffix("").parts
    return "/".join(parts[len(parts) - parts[::-1].index("chapters") :])


def flat(page: Path) -> str:
    """Return the name of a page as one of a file."""
    return name_of(page).replace("/", "-")


def with_outputs(page: Path) -> Path:
    """Write the notebook of a page, with the outputs that the book shows, beside it."""
    notebook = jupytext.read(page)
    _, executed = get_cache(cache_folder()).merge_match_into_notebook(notebook)
    target = page.with_suffix(".ipynb")
    nbformat.write(executed, target)
    # As old as its page: JupyterLab refuses a pair whose notebook is newer than its source.
    os.utime(target, (page.stat().st_atime, page.stat().st_mtime))
    return target


def install(wheel: Path, folder: Path) -> Path:
    """Install a wheel into a folder of its own, which is to come first on the path."""
    pip = [
        sys.executable,
        "-m",
        "pip",
        "install",
        "--quiet",
        "--disable-pip-version-check",
    ]
    target = ["--no-deps", "--no-index", f"--target={folder}", str(wheel)]
    subprocess.run([*pip, *target], check=True)
    return folder


def taken_along(offered: Path, executed: Path, folder: Path, library: Path) -> Path:
    """Write a notebook that the book offers, with the outputs of an executed one, into a folder.

    Solutions lose the line that keeps them from running. One cell is added: it prints where the library came
    from, which must be `library`.
    """
    notebook = nbformat.read(offered, as_version=4)
    (set_up, *cells), shown = (
        [cell for cell in one.cells if cell.cell_type == "code"]
        for one in (notebook, nbformat.read(executed, as_version=4))
    )
    set_up.execution_count = 0
    for cell in cells:
        cell.source = cell.source.removeprefix(ASKED)
    if [cell.source for cell in cells] != [cell.source for cell in shown]:
        raise ValueError(
            f"{offered.name} must hold the code of the book: build it anew"
        )
    for cell, reference in zip(cells, shown, strict=True):
        cell.update(
            outputs=reference.outputs, execution_count=reference.execution_count
        )
    where = nbformat.v4.new_code_cell(WHERE, execution_count=len(cells) + 1)
    printed = f"{library / 'zoolib' / '__init__.py'}\n"
    where.outputs = [nbformat.v4.new_output("stream", name="stdout", text=printed)]
    notebook.cells.append(where)
    folder.mkdir()
    nbformat.write(notebook, folder / offered.name)
    return folder / offered.name


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


def check(
    notebook: Path, timeout_s: int = TIMEOUT_S, library: Path | None = None
) -> int:
    """Run a notebook afresh in its folder, compare every output, and say so; return 0 if all agree.

    With `library`, a folder, the notebook imports what is installed there before anything else.
    """
    if unproven := unproven_cells(notebook):
        print(f"{notebook.name}: cells {unproven} have no stored run to compare with")
        return 1
    options = [
        "--nbval",
        "--nbval-current-env",
        f"--nbval-cell-timeout={timeout_s}",
        "-p",
        "no:cacheprovider",
        "-Wignore::pytest.PytestAssertRewriteWarning",  # nbval is imported before pytest asks for it
    ]
    command = [
        sys.executable,
        str(Path(__file__).with_name("nbval_watching.py")),
        "-q",
        "-c",
        os.devnull,
        f"--rootdir={notebook.parent}",
        *options,
    ]
    path = {"PYTHONPATH": str(library)} if library else {}
    result = subprocess.run(
        [*command, str(notebook)],
        cwd=notebook.parent,
        env=os.environ
        | ONE_THREAD
        | path
        | {"TQDM_DISABLE": "1", "ZOOLIB_LENIENT": "0"},
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    print(f"{notebook.parent.name}/{notebook.name}:\n{result.stdout}", flush=True)
    return result.returncode


def check_all(notebooks: Iterable[Path], library: Path | None = None) -> int:
    """Check notebooks side by side; return 0 if all hold."""
    with ThreadPoolExecutor(AT_ONCE) as pool:
        codes = list(
            pool.map(partial(check, library=library), notebooks)
        )  # whichever fails
    return int(any(codes))


def main(names: list[str]) -> int:
    """Check the chapters of these names, or every chapter; return 0 if all hold."""
    pages = [page for page in chapters() if not names or name_of(page) in names]
    assert pages, "no chapter found: nothing would be checked"
    with tempfile.TemporaryDirectory() as folder:
        outside = Path(folder).resolve()
        library = install(HTML / "_downloads" / WHEEL, outside / "library")
        notebooks = [
            taken_along(
                HTML / download(page.relative_to(ROOT).with_suffix("").as_posix()),
                with_outputs(page),
                outside / flat(page),
                library,
            )
            for page in pages
        ]
        return check_all(notebooks, library)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
