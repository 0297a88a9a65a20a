"""Sphinx extension: notebooks are executed side by side.

It exists because MyST-NB executes a page when it comes to read it, one page after another, and the parallel
executor of jupyter-cache 1.0.1 takes every core and forgets what failed, which would then run again. Here
all that the cache lacks is handed to two threads before the first page is read, and MyST-NB waits for the
outcome of a page where it would have executed it. What it does with an outcome is left to it.
"""

from __future__ import annotations

import os
from multiprocessing.pool import ThreadPool
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.executors.utils import ExecutionResult, single_nb_execution
from myst_nb.core.execute import cache as myst_nb_cache
from myst_nb.core.read import create_nb_reader
from nbclient.exceptions import DeadKernelError
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

AT_ONCE = min(2, os.cpu_count() or 1)
# With more threads, notebooks side by side would fight for the cores and spoil each other's timings.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}


def execute_ahead(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Begin to execute all notebooks that the cache lacks, and have MyST-NB wait for them."""
    config = env.mystnb_config
    if config.execution_mode != "cache":
        return
    pages = [Path(env.doc2path(name)) for name in docnames]
    found = {page: lacking_notebook(page, env) for page in pages}
    lacking = {page: notebook for page, notebook in found.items() if notebook}
    if not lacking:
        return
    # Its threads are daemons: an interrupted build does not wait for them, and nbclient ends their kernels.
    pool = ThreadPool(AT_ONCE)
    begun = {
        _sources(notebook): pool.apply_async(
            execute, (page, notebook, config.execution_timeout)
        )
        for page, notebook in lacking.items()
    }
    pool.close()

    def outcome(notebook: NotebookNode, **settings: object) -> ExecutionResult:
        if (key := _sources(notebook)) not in begun:
            return single_nb_execution(notebook, **settings)
        ended = begun[key].get()
        notebook.update(ended.nb)
        return ended

    myst_nb_cache.single_nb_execution = outcome


def execute(page: Path, notebook: NotebookNode, timeout: int) -> ExecutionResult:
    """Execute the notebook of a page in its folder."""
    settings = {"allow_errors": False, "shutdown_kernel": "immediate"}
    try:
        return single_nb_execution(notebook, str(page.parent), timeout, **settings)
    except DeadKernelError:
        raise RuntimeError(f"the kernel of {page.name} died") from None


def lacking_notebook(page: Path, env: BuildEnvironment) -> NotebookNode | None:
    """Read a page as MyST-NB does; return its notebook if the cache does not hold its outputs.

    A page with settings of its own is left to MyST-NB.
    """
    config, text = env.mystnb_config, page.read_text(encoding="utf-8")
    reader = create_nb_reader(str(page), env.myst_config, config, text)
    notebook = reader and reader.read(text)
    if not notebook or {config.metadata_key, "execution"} & notebook.metadata.keys():
        return None
    try:
        get_cache(config.execution_cache_path).match_cache_notebook(notebook)
    except KeyError:
        return notebook
    return None


def _sources(notebook: NotebookNode) -> tuple[str, ...]:
    return tuple(cell.source for cell in notebook.cells)


def setup(app: Sphinx) -> dict[str, bool]:
    # Here, so that kernels started by MyST-NB have it too.
    os.environ.update(ONE_THREAD)
    app.connect("env-before-read-docs", execute_ahead)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
