"""Sphinx extension: notebooks are executed side by side, before the first page is read.

MyST-NB executes a page when it comes to read it, one after the other. Here all that its cache lacks are
executed ahead, two at a time, and stored where it looks, with the versions that they ran with. A notebook
that fails is not stored: MyST-NB is handed the outcome in place of a second execution, and reports it.
"""

from __future__ import annotations

import asyncio
import os
import platform
import re
import time
import traceback
from datetime import UTC, datetime
from functools import partial
from importlib import metadata
from pathlib import Path

from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn, JupyterCacheAbstract
from jupyter_cache.executors.utils import ExecutionResult, single_nb_execution
from myst_nb.core.execute import cache as myst_nb_cache
from myst_nb.core.read import create_nb_reader
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError, CellTimeoutError, DeadKernelError
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

LOG = logging.getLogger(__name__)
LIBRARY = "zoolib"
AT_ONCE = min(2, os.cpu_count() or 1)
# With more threads, notebooks side by side would fight for the cores and spoil each other's timings.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
Outcomes = dict[tuple[str, ...], ExecutionResult]  # by the sources of all cells


def execute_ahead(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Execute all notebooks that the cache lacks, and have MyST-NB know of those that failed."""
    config = env.mystnb_config
    if config.execution_mode != "cache":
        return
    cache = get_cache(config.execution_cache_path)
    # In the order of the book: the last chapter is the shortest, and does not hold up the end.
    order = {name: place for place, name in enumerate(env.external_site_map)}
    docnames = sorted(docnames, key=lambda name: order.get(name, len(order)))
    pages = [Path(env.doc2path(name)) for name in docnames]
    notebooks = {page: nb for page in pages if (nb := read_notebook(page, env))}
    lacking = {page: nb for page, nb in notebooks.items() if not _known(nb, cache)}
    if lacking:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            failed = runner.run(_execute_all(lacking, config.execution_timeout, cache))
        myst_nb_cache.single_nb_execution = partial(recall_or_execute, failed)


def recall_or_execute(
    failed: Outcomes, notebook: NotebookNode, **settings: object
) -> ExecutionResult:
    """Stand in for the function by which MyST-NB executes: what has failed is not run again."""
    if (outcome := failed.get(_sources(notebook))) is None:
        return single_nb_execution(notebook, **settings)
    notebook.update(outcome.nb)
    return outcome


def _sources(notebook: NotebookNode) -> tuple[str, ...]:
    return tuple(cell.source for cell in notebook.cells)


def read_notebook(page: Path, env: BuildEnvironment) -> NotebookNode | None:
    """Read a page as MyST-NB does; a page with settings of its own is left to MyST-NB."""
    text = page.read_text(encoding="utf-8")
    reader = create_nb_reader(str(page), env.myst_config, env.mystnb_config, text)
    notebook = reader and reader.read(text)
    own = {env.mystnb_config.metadata_key, "execution"}
    return None if notebook is None or own & notebook.metadata.keys() else notebook


def _known(notebook: NotebookNode, cache: JupyterCacheAbstract) -> bool:
    try:
        return bool(cache.match_cache_notebook(notebook))
    except KeyError:
        return False


async def _execute_all(
    notebooks: dict[Path, NotebookNode], timeout: int, cache: JupyterCacheAbstract
) -> Outcomes:
    """Execute notebooks, store each that succeeds at once, and return the outcomes of the others."""
    turns, failed = asyncio.Semaphore(AT_ONCE), {}

    async def execute(page: Path, notebook: NotebookNode) -> None:
        async with turns:
            outcome = await _execute(page, notebook, timeout)
        ended = "failed" if outcome.err else "done"
        LOG.info("%s: %s after %.0f s", page.name, ended, outcome.time)
        if outcome.err:
            failed[_sources(notebook)] = outcome
        else:
            data = {"execution_seconds": outcome.time, **surroundings()}
            bundle = CacheBundleIn(notebook, str(page), data=data)
            cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)

    names = ", ".join(page.name for page in notebooks)
    LOG.info("executing notebooks, at most %d at a time: %s", AT_ONCE, names)
    tasks = [asyncio.create_task(execute(*item)) for item in notebooks.items()]
    try:
        await asyncio.gather(*tasks)
    except BaseException:
        # The first to be cancelled ends the gathering. The others are still ending their kernels.
        for task in tasks:
            if not task.cancelling():  # a second time would break off the ending
                task.cancel()
        await asyncio.wait(tasks)
        raise
    return failed


async def _execute(page: Path, notebook: NotebookNode, timeout: int) -> ExecutionResult:
    """Do what MyST-NB's own `single_nb_execution` does, without blocking."""
    folder, start = str(page.parent), time.perf_counter()
    client = NotebookClient(
        notebook,
        timeout=timeout,
        record_timing=False,
        shutdown_kernel="immediate",  # no complaints of a kernel that is stopped at work
        resources={"metadata": {"path": folder}},
    )
    error = trace = None
    try:
        await client.async_execute()
    except (CellExecutionError, CellTimeoutError) as caught:
        error, trace = caught, traceback.format_exc()
    except DeadKernelError:
        if asyncio.current_task().cancelling():  # nbclient takes Ctrl-C for a death
            raise asyncio.CancelledError from None
        raise RuntimeError(f"the kernel of {page.name} died") from None
    seconds = time.perf_counter() - start
    return ExecutionResult(notebook, folder, seconds, error, trace)


def surroundings() -> dict[str, object]:
    """Describe an execution that ends now: when, where, and the versions that the library asks for."""
    asked = metadata.requires(LIBRARY) or []
    names = [re.match(r"[\w.-]+", line)[0] for line in asked if "extra ==" not in line]
    versions = {
        "Python": platform.python_version(),
        LIBRARY: metadata.version(LIBRARY),
        **{name: metadata.version(name) for name in names},
        "operating system": platform.platform(),
        "cores": str(os.cpu_count()),
    }
    ended = datetime.now(UTC).isoformat(" ", "minutes").removesuffix("+00:00")
    return {"ended": ended, "versions": versions}


class _Loop(asyncio.SelectorEventLoop):
    """A loop where Ctrl-C cancels every task: nbclient's own handler would end one kernel only."""

    def add_signal_handler(self, *args: object) -> None:
        raise RuntimeError("asyncio.Runner handles signals")  # nbclient accepts that


def setup(app: Sphinx) -> dict[str, bool]:
    os.environ.update(
        ONE_THREAD
    )  # here, so that kernels started by MyST-NB have it too
    app.connect("env-before-read-docs", execute_ahead)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
