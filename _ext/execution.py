"""Sphinx extension: runs notebooks in parallel, and again whenever anything that they use has changed.

Why our own: MyST-NB's cache knows a page by the code of its cells alone, and executes one page after another.
Here the cache's folder carries a hash of library, lock and Python, and the cache is filled before the first
page is read, by two threads: jupyter-cache's own parallel executor takes every core and cannot be interrupted.
A page that fails is left to MyST-NB, which runs it again and says why. Its table of executions gets titles in
place of file names, and ``{{ versions }}`` lists the versions.
"""

from __future__ import annotations

import gc
import hashlib
import logging
import os
import platform
import re
import shutil
import sys
from collections.abc import Iterable
from importlib.metadata import requires, version
from multiprocessing.pool import ThreadPool
from pathlib import Path

from docutils import nodes
from jupyter_cache import get_cache
from jupyter_cache.base import ProjectNb
from jupyter_cache.executors.basic import (
    ExecutionWorkerLocalSerial,
    JupyterExecutorLocalSerial,
    ProcessData,
)
from jupyter_cache.executors.utils import ExecutionResult, single_nb_execution
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment

LOG = logging.getLogger(__name__)
LOG.addHandler(logging.NullHandler())  # MyST-NB says again what fails
ROOT = Path(__file__).resolve().parent.parent
PREFIX = "execution-"
# Of the library, what the pages' code needs beside its core.
EXTRAS = ("neural", "plots", "retrieval", "sweeps")
AT_ONCE = min(2, os.cpu_count() or 1)
# With more threads, notebooks side by side would fight for the cores and spoil each other's timings.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
KEEPER = "static-recommender"  # trains and keeps the recommenders that others load
MYST_NOTEBOOK = {"name": "myst_nb_md", "type": "plugin"}


def cache_folder(root: Path = ROOT) -> Path:
    """Name the cache folder for the present state of the library, the lock and Python."""
    library = (
        f for f in root.glob("zoolib/**/*") if f.is_file() and f.suffix != ".pyc"
    )
    digest = hashlib.sha256(sys.version.encode())
    for file in [root / "requirements.txt", *sorted(library)]:
        digest.update(f"{file.relative_to(root).as_posix()}\0".encode())
        digest.update(file.read_bytes())
    return root / "_build" / (PREFIX + digest.hexdigest()[:16])


def use_fresh_cache(app: Sphinx, config: Config) -> None:
    """Point MyST-NB at that folder and drop the folders of earlier states."""
    folder = cache_folder()
    for stale in set(folder.parent.glob(PREFIX + "*")) - {folder}:
        shutil.rmtree(stale)
    config.nb_execution_cache_path = str(folder)


def has_cells(env: BuildEnvironment, docname: str) -> bool:
    """Return whether a page has code cells."""
    if docname not in env.found_docs:  # the search page and the like
        return False
    return "{code-cell}" in Path(env.doc2path(docname)).read_text(encoding="utf-8")


class Worker(ExecutionWorkerLocalSerial):
    """Executes a notebook in its folder, and asks its kernel to stop only once."""

    @staticmethod
    def execute(project_nb: ProjectNb, data: ProcessData) -> ExecutionResult:
        folder = str(Path(project_nb.uri).parent)
        settings = {"allow_errors": False, "shutdown_kernel": "immediate"}
        return single_nb_execution(project_nb.nb, folder, data.timeout, **settings)


class Executor(JupyterExecutorLocalSerial):
    _EXECUTION_WORKER = Worker


def longest_first(pages: Iterable[str]) -> list[str]:
    """Sort pages by length: long ones tend to run long, and short ones then fill the end of both threads.

    Chapter 1 comes before all, so that what it keeps is there when another page would train it again.
    """
    return sorted(
        pages,
        key=lambda page: (Path(page).stem == KEEPER, Path(page).stat().st_size),
        reverse=True,
    )


def execute_ahead(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Execute in parallel all notebooks that the cache lacks; MyST-NB then finds them there."""
    config = app.config
    if config.nb_execution_mode != "cache":
        return
    cache = get_cache(config.nb_execution_cache_path)
    pages = longest_first(
        env.doc2path(name) for name in docnames if has_cells(env, name)
    )
    for page in pages:
        cache.add_nb_to_project(page, read_data=MYST_NOTEBOOK)

    def execute(page: str) -> None:
        timeout = config.nb_execution_timeout
        Executor(cache, LOG).run_and_cache(filter_uris=[page], timeout=timeout)

    # Threads are daemons: an interrupted build does not wait for them, and nbclient ends their kernels.
    with ThreadPool(AT_ONCE) as pool:
        pool.map(execute, pages, chunksize=1)


def name_versions(app: Sphinx, config: Config) -> None:
    """Hand a table of versions to the pages, as Markdown."""
    names = ["zoolib"]
    for line in requires("zoolib") or []:
        extra = re.search(r'extra == "(.*)"', line)
        if extra is None or extra[1] in EXTRAS:
            names.append(re.match(r"[\w.-]+", line)[0])
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
    """Name pages by their titles, and drop the columns on how they ran."""
    for table in doctree.findall(nodes.table):
        if table.next_node(nodes.entry).astext() != "Document":
            continue
        for row in [table.next_node(nodes.tgroup), *table.findall(nodes.row)]:
            del row[4], row[2]  # of the group, the columns' specifications
        table.next_node(nodes.tgroup)["cols"] = 3
        for link in table.findall(nodes.reference):
            link[:] = [nodes.Text(app.env.titles[link.astext()].astext())]


def setup(app: Sphinx) -> dict[str, bool]:
    os.environ.update(ONE_THREAD)  # kernels inherit it
    # Trees of pages have cycles and stay; by default, searching them takes a quarter of what executions leave.
    gc.set_threshold(100_000)
    app.connect("config-inited", use_fresh_cache)
    app.connect("config-inited", name_versions)
    app.connect("env-before-read-docs", execute_ahead)
    app.connect("doctree-resolved", tidy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
