"""Sphinx extension: opens a page's notebook in Colab or on Binder, by the theme's own buttons.

Where the environment names a repository on GitHub (``SOURCE_URL``) and the address of the published book
(``BOOK_URL``), each page with code has the buttons. They lead to the repository's branch ``notebooks``, which
the workflow fills with the folder ``_build/notebooks`` that is written here: the notebooks that the book offers
for download (see `downloads`), with the outputs of this build, and with a first cell of code that installs the
library from the book's address.

Why our own: the theme leads to the source of a page, which is no notebook.
"""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path

import jupytext
import nbformat
from about import source_url
from downloads import ASKED, download, library
from execution import has_cells, opened_cache
from sphinx.application import Sphinx
from sphinx.config import Config

BRANCH = "notebooks"
SERVICES = {
    "colab_url": "https://colab.research.google.com",
    "binderhub_url": "https://mybinder.org",
    "notebook_interface": "jupyterlab",
}
INSTALL = '# The library of this book; without it, no other cell runs.\n%pip install --quiet "{}"'


def repository(config: Config) -> str:
    """Return the address of the repository whose notebooks can be opened, or nothing."""
    source = source_url()
    on_github = re.fullmatch(r"https://github\.com/[^/]+/[^/]+", source)
    return source if on_github and config.html_baseurl else ""


def use_repository(app: Sphinx, config: Config) -> None:
    """Tell the theme where the notebooks are."""
    if source := repository(config):
        config.html_theme_options |= {
            "repository_url": source,
            "repository_branch": BRANCH,
            "launch_buttons": SERVICES,
        }


def lead_to_notebooks(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Let the theme's buttons lead to notebooks, not to sources, and offer no second download."""
    for group in context.get("header_buttons", []):
        if group.get("label") == "launch-buttons":
            for button in group["buttons"]:
                button["url"] = button["url"].removesuffix(".md") + ".ipynb"
                button["icon"] = "fas fa-rocket"  # the services' own are pictures
        if group.get("label") == "download-buttons":
            group["buttons"] = [b for b in group["buttons"] if b["text"] != ".ipynb"]


def write_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Write the branch: a notebook for each page with code cells, and what Binder installs."""
    if exception or app.builder.name != "html" or not repository(app.config):
        return
    env, out = app.env, Path(app.outdir)
    folder, needed = out.parent / BRANCH, library(app.config.html_baseurl)
    with opened_cache(app.config.nb_execution_cache_path) as cache:
        for docname in sorted(name for name in env.all_docs if has_cells(env, name)):
            made = nbformat.read(out / download(docname), as_version=4)
            with suppress(KeyError):  # of a page whose execution has failed
                page = jupytext.read(env.doc2path(docname))
                put_outputs(made, cache.merge_match_into_notebook(page)[1])
            code = INSTALL.format(needed)
            made.cells.insert(1, nbformat.v4.new_code_cell(code, id="cell-install"))
            target = folder / f"{docname}.ipynb"
            target.parent.mkdir(parents=True, exist_ok=True)
            nbformat.write(made, target)
            # The theme has copied the other one among the sources, for a button that is not there.
            (out / "_sources" / f"{docname}.ipynb").unlink(missing_ok=True)
    (folder / "requirements.txt").write_text(f"{needed}\n", encoding="utf-8")


def put_outputs(made: nbformat.NotebookNode, ran: nbformat.NotebookNode) -> None:
    """Give the cells of a page's notebook what they printed in the book; solutions keep it to themselves."""
    codes = [cell for cell in made.cells if cell.cell_type == "code"]
    executed = [cell for cell in ran.cells if cell.cell_type == "code"]
    for cell, done in zip(codes[1:], executed, strict=True):  # behind the set-up
        if not cell.source.startswith(ASKED):
            cell.outputs = done.outputs


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("previews")  # which knows the address of the book
    app.setup_extension("downloads")  # whose notebooks are written first
    app.connect("config-inited", use_repository, priority=900)
    # Behind the theme's buttons, at 501, and before the downloads', at 900.
    app.connect("html-page-context", lead_to_notebooks, priority=850)
    app.connect("build-finished", write_notebooks, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
