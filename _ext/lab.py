"""The chapters as the reader's own notebooks: ``python -m lab [ROOT]`` lays them into ``notebooks/``.

They are those that the book offers for download, numbered in its order, with links that lead from one to the
other, and ``make lab`` opens them. They need no built book: the pages are read as for the book, but nothing is
executed. What the book's cache of executions holds gives the numbers; a dash stands for each of the others.

What a reader has written or run stays: newer notebooks replace only those that are as they were laid out.
"""

from __future__ import annotations

import hashlib
import json
import re
import shutil
import sys
from collections.abc import Iterable
from pathlib import Path
from urllib.parse import urljoin

import jupytext
import nbformat
from downloads import introduction, notebook
from execution import FAILED, cache_folder
from ipykernel.ipkernel import IPythonKernel
from ipykernel.kernelspec import KERNEL_NAME, get_kernel_dict
from jupyter_book.config import get_final_config
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn
from nbformat import NotebookNode
from printing.assemble import Book
from sphinx.application import Sphinx
from sphinx.builders.html import StandaloneHTMLBuilder
from sphinx.util.docutils import docutils_namespace, patch_docutils

FOLDER = "notebooks"
# Where the newest notebooks and what they are made from lie.
WORK = "_build/lab"
# Where a notebook keeps the sum of its cells as they were laid out.
MARK = "laid_out"
UNBUILT = """

The book has not been built yet: a dash (—) stands for each number that its build computes. After `make book`, \
`make lab` brings these numbers into all notebooks in which you have not worked."""
# A link within the book, until all notebooks are made, in characters that Unicode leaves to private use.
LINK = "\ue010{}\ue011{}\ue012"
# What a cell will show: it gets the numbers and captions that are said in the cell's options.
DRAWING = {"image/svg+xml": '<svg xmlns="http://www.w3.org/2000/svg"/>'}
TABLE = {"text/html": "<table><thead><tr><th></th></tr></thead></table>"}


class TextBuilder(StandaloneHTMLBuilder):
    """Writes the text of each page as the book's pages have it, and nothing around it."""

    search = False

    def handle_page(
        self, pagename: str, addctx: dict, *args: object, **_: object
    ) -> None:
        page = Path(self.get_outfilename(pagename))
        page.parent.mkdir(parents=True, exist_ok=True)
        text = f'<article class="bd-article">{addctx["body"]}</article>'
        page.write_text(text, encoding="utf-8")

    def copy_assets(self) -> None:
        """Copy nothing: notebooks have no styles, scripts or pictures."""

    finish = copy_assets


def setup(app: Sphinx) -> None:
    app.add_builder(TextBuilder, override=True)


def write_texts(root: Path, work: Path) -> dict[str, str]:
    """Write the texts of all pages, with the outputs in the cache of `work`; return the pages' titles."""
    overrides = {
        "external_toc_path": str(root / "_toc.yml"),
        "latex_individualpages": False,
        "nb_execution_cache_path": str(work / "cache"),
    }
    config, _ = get_final_config(
        user_yaml=root / "_config.yml", sourcedir=root, cli_config=overrides
    )
    config["extensions"].append("lab")
    # The reference of the library takes the longest to read, and no notebook needs it.
    config["exclude_patterns"].append("chapters/api")
    folders = {"outdir": work / "html", "doctreedir": work / "doctrees"}
    with patch_docutils(None), docutils_namespace():
        app = Sphinx(
            root,
            None,
            **folders,
            buildername="html",
            confoverrides=config,
            status=None,
            warning=None,
        )
        app.builder.build_all()
    return {page: title.astext() for page, title in app.env.titles.items()}


def placeholder(cell: NotebookNode) -> list[NotebookNode]:
    """Return what a cell will show if it has a number and a caption, which its options give to an output."""
    if "figure" in cell.metadata.get("mystnb", {}):
        shown = DRAWING
    elif "table" in cell.metadata:
        shown = TABLE
    else:
        return []
    return [nbformat.v4.new_output("display_data", shown)]


def fill(cache: Path, sources: Iterable[Path], known: Path) -> None:
    """Fill a cache with the outputs of all pages, so that none is executed: known ones, or placeholders."""
    ours, executed = get_cache(cache), get_cache(known) if known.exists() else None
    for source in sources:
        page, data = jupytext.read(source), {}
        try:
            record = executed.match_cache_notebook(page) if executed else None
            if not record or record.data.get(FAILED):
                raise KeyError(source)
            page, data = executed.get_cache_bundle(record.pk).nb, record.data
        except KeyError:
            for cell in page.cells:
                if cell.cell_type == "code":
                    cell.outputs = placeholder(cell)
        bundle = CacheBundleIn(page, source, data=data)
        ours.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)


def numbered(root: Path) -> dict[str, str]:
    """Name the notebooks of all pages with code, by page, in the order of the book."""
    files = {page: root / f"{page}.md" for page in Book.read(root).pages}
    pages = [
        page
        for page, file in files.items()
        if file.exists() and "{code-cell}" in file.read_text(encoding="utf-8")
    ]
    return {
        page: f"{number:02}-{'-'.join(Path(page).parts[1:])}.ipynb"
        for number, page in enumerate(pages)
    }


def make(root: Path, work: Path) -> dict[str, NotebookNode]:
    """Make the notebooks of all pages with code, by the names of their files; `work` holds what that needs."""
    names = numbered(root)
    sources = {page: root / f"{page}.md" for page in names}
    shutil.rmtree(work, ignore_errors=True)
    fill(work / "cache", sources.values(), cache_folder(root))
    titles = write_texts(root, work)
    made, places = {}, {}
    for page, source in sources.items():
        text = work / "html" / f"{page}.html"
        about = introduction(titles[page], Book.read(root).title)
        if 'class="unbuilt"' in text.read_text(encoding="utf-8"):
            about += UNBUILT

        def link(words: str, target: str, page: str = page) -> str:
            return LINK.format(words, urljoin(page, target))

        made[page], places[page] = notebook(text, source, about, link)
    for page, one in made.items():
        for cell in one.cells:
            cell.source = led(cell.source, page, names, places)
    return {names[page]: one for page, one in made.items()}


def led(
    text: str, here: str, names: dict[str, str], places: dict[str, dict[str, str]]
) -> str:
    """Let the links of a page lead to cells of notebooks; what has no notebook is plain text."""

    def lead(found: re.Match) -> str:
        words, target = found.groups()
        file, _, part = target.partition("#")
        page = file.removesuffix(".html")
        cell = places.get(page, {}).get(part)
        # A number that was checked on its own page leads nowhere.
        if page not in names or (
            page == here and (not cell or part.startswith("checked-"))
        ):
            return words
        return f"[{words}]({names[page]}{f'#cell-id={cell}' if cell else ''})"

    return re.sub(LINK.format("(.*?)", "(.*?)"), lead, text, flags=re.S)


def checksum(notebook: NotebookNode) -> str:
    """Return a checksum of what a reader may change: the cells and their outputs."""
    cells = [
        (cell.cell_type, cell.source, cell.get("outputs", []))
        for cell in notebook.cells
    ]
    return hashlib.sha256(json.dumps(cells, sort_keys=True).encode()).hexdigest()


def metadata() -> dict[str, dict]:
    """Return what JupyterLab notes in a notebook when its kernel starts; new notes would mark it unsaved."""
    name = get_kernel_dict()["display_name"]
    kernel = {"display_name": name, "language": "python", "name": KERNEL_NAME}
    return {"kernelspec": kernel, "language_info": IPythonKernel.language_info}


def offered(root: Path, work: Path) -> Path:
    """Return the folder of the newest notebooks, which are made if there are none."""
    folder = work / FOLDER
    if not folder.exists():
        made = make(root, work)
        unfinished = work / "unfinished"
        unfinished.mkdir()
        for name, newest in made.items():
            newest.metadata |= metadata() | {MARK: checksum(newest)}
            nbformat.write(newest, unfinished / name)
        unfinished.rename(folder)
    return folder


def lay_out(root: Path) -> list[Path]:
    """Lay out the notebooks of a book; return those that are kept although newer ones exist."""
    folder, kept = root / FOLDER, []
    folder.mkdir(exist_ok=True)
    for newest in sorted(offered(root, root / WORK).iterdir()):
        target = folder / newest.name
        before, is_untouched = _before(target)
        if before == nbformat.read(newest, as_version=4).metadata[MARK]:
            continue
        if is_untouched:
            shutil.copyfile(newest, target)
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
