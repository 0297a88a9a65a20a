"""Sphinx extension: runs notebooks in parallel, says how far it is, and runs them again when they must.

Why our own: MyST-NB's cache knows a page by the code of its cells alone, and executes one page after another
in silence. Here the cache's folder carries a hash of library, lock and Python, and the cache is filled before
the first page is read, by two threads: jupyter-cache's own parallel executor takes every core and cannot be
interrupted. What several pages import is imported once (see `kernels`). A page that fails is a warning; MyST-NB
gets from the cache what it printed until then, and at the end of the build it is forgotten. MyST-NB's table of
executions gets titles in place of file names, and ``{{ versions }}`` lists the versions.
"""

from __future__ import annotations

import gc
import hashlib
import os
import platform
import re
import shutil
import sys
import traceback
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from functools import partial
from importlib import import_module
from importlib.metadata import requires, version
from math import ceil
from multiprocessing.pool import ThreadPool
from pathlib import Path
from threading import Lock
from time import perf_counter
from typing import NamedTuple

import nbclient
from docutils import nodes
from jupyter_cache import get_cache
from jupyter_cache.base import CacheBundleIn, JupyterCacheAbstract
from kernels import forked_kernels
from nbclient.exceptions import CellExecutionError
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

LOG = logging.getLogger(__name__)
ROOT = Path(__file__).resolve().parent.parent
PREFIX = "execution-"
# Of the library, the extras that the pages' code needs.
EXTRAS = ("neural", "plots", "retrieval", "sweeps")
AT_ONCE = min(2, os.cpu_count() or 1)
# With more threads, notebooks side by side would fight for the cores and spoil each other's timings.
ONE_THREAD = {
    "OMP_NUM_THREADS": "1",
    "OPENBLAS_NUM_THREADS": "1",
    "MKL_NUM_THREADS": "1",
    "VECLIB_MAXIMUM_THREADS": "1",
}
MYST_NOTEBOOK = {"name": "myst_nb_md", "type": "plugin"}
# What is kept of an execution: its seconds, and the mark of one that failed.
SECONDS, FAILED = "execution_seconds", "failed"
# Pages of the same code share a place in the cache: one thread would remove what the other is writing.
WRITING = Lock()
# Of a page that was never executed, only a guess: two cores took so long for a thousand characters of code.
SECONDS_PER_THOUSAND = 0.8


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
    """Point MyST-NB at that folder, unless it has one."""
    if not config.nb_execution_cache_path:
        config.nb_execution_cache_path = str(cache_folder())


@contextmanager
def opened_cache(folder: Path | str) -> Iterator[JupyterCacheAbstract]:
    """Open a cache of executions, and close its database: Python warns of one that is left open."""
    cache = get_cache(folder)
    try:
        yield cache
    finally:
        cache.db.dispose()


def has_cells(env: BuildEnvironment, docname: str) -> bool:
    """Return whether a page has code cells."""
    if docname not in env.found_docs:  # the search page and the like
        return False
    return "{code-cell}" in Path(env.doc2path(docname)).read_text(encoding="utf-8")


def longest_first(pages: Iterable[str]) -> list[str]:
    """Sort pages by length: long ones tend to run long, and short ones then fill the end of both threads."""
    return sorted(pages, key=lambda page: Path(page).stat().st_size, reverse=True)


class Execution(NamedTuple):
    """How long a page took, what failed in a line, and all that was said of it."""

    page: str
    seconds: float
    failure: str = ""
    report: str = ""


def execute(page: str, cache: JupyterCacheAbstract, timeout: int) -> Execution:
    """Execute a page in its folder and keep its outputs; of one that fails, those until then."""
    notebook = cache.get_project_notebook(page).nb
    started: list[NotebookNode] = []

    def note(cell: NotebookNode, cell_index: int) -> None:
        if cell.cell_type == "code":
            started.append(cell)

    begun, failure, report = perf_counter(), "", ""
    settings = {"timeout": timeout, "shutdown_kernel": "immediate"}
    settings["record_timing"] = False  # what is timed is no longer found in the cache
    try:
        folder = str(Path(page).parent)
        nbclient.execute(notebook, cwd=folder, on_cell_start=note, **settings)
    except Exception as error:  # whatever it is, the other pages go on
        failure = f"{_place(started)}: {_line(error)}"
        report = re.sub(r"\x1b\[[0-9;]*m", "", traceback.format_exc())
    seconds = perf_counter() - begun
    kept = {SECONDS: seconds, FAILED: bool(failure)}
    bundle = CacheBundleIn(notebook, page, data=kept)
    with WRITING:
        cache.cache_notebook_bundle(bundle, check_validity=False, overwrite=True)
    return Execution(page, seconds, failure, report)


def _place(started: list[NotebookNode]) -> str:
    """Name the last of the cells that were started, by its number and its first line."""
    if not started:
        return "before the first cell"
    return f"cell {len(started)} ({first_line(started[-1].source)})"


def _line(error: Exception) -> str:
    """Say in a line what went wrong."""
    text, name = str(error), type(error).__name__
    if isinstance(error, CellExecutionError):  # whose text is the whole traceback
        text, name = error.evalue, error.ename
    return ": ".join(filter(None, (name, first_line(text))))


def first_line(text: str) -> str:
    """Return the first line of a text that is not blank."""
    return next(filter(None, map(str.strip, text.splitlines())), "")


def expected_seconds(pages: Iterable[str], folders: Iterable[Path]) -> dict[str, float]:
    """Tell how long each page will take: as the last time, by the caches in `folders`, or by its code."""
    known = {}
    for folder in sorted(folders, key=lambda folder: folder.stat().st_mtime):
        with opened_cache(folder) as cache:
            records = cache.list_cache_records()
            known |= {record.uri: record.data[SECONDS] for record in records}
    return {page: known.get(page) or _guessed_seconds(Path(page)) for page in pages}


def _guessed_seconds(page: Path) -> float:
    cells = re.findall(
        r"^```\{code-cell\}.*?^```", page.read_text(encoding="utf-8"), re.M | re.S
    )
    return SECONDS_PER_THOUSAND * sum(map(len, cells)) / 1000


def announcement(seconds: Iterable[float]) -> str:
    """Say how many pages are executed and about how long that takes."""
    seconds = list(seconds)
    pages = f"{len(seconds)} page{'s' if len(seconds) > 1 else ''} to execute"
    minutes = ceil(max(max(seconds), sum(seconds) / AT_ONCE) / 60)
    return f"{pages}, about {minutes} minute{'s' if minutes > 1 else ''}"


def title(page: Path) -> str:
    """Return the title of a page, which Sphinx has not read yet."""
    found = re.search(r"^# (.*)$", page.read_text(encoding="utf-8"), re.M)
    return found[1] if found else page.stem


def execute_ahead(app: Sphinx, env: BuildEnvironment, docnames: list[str]) -> None:
    """Execute in parallel all notebooks that the cache lacks; MyST-NB then finds them there."""
    config = app.config
    if config.nb_execution_mode != "cache":
        return
    folder = Path(config.nb_execution_cache_path)
    cache = get_cache(folder)
    forget_failures(app)
    pages = [env.doc2path(name) for name in docnames if has_cells(env, name)]
    for page in pages:
        cache.add_nb_to_project(page, read_data=MYST_NOTEBOOK)
    missing = longest_first(record.uri for record in cache.list_unexecuted(pages))
    folders = set(folder.parent.glob(PREFIX + "*")) | {folder}
    if missing:
        # In a new home Matplotlib first lists the fonts, and tells the error stream if that takes long.
        import_module("matplotlib.font_manager")
        say(announcement(expected_seconds(missing, folders).values()))
    for stale in folders - {folder}:
        shutil.rmtree(stale)
    run = partial(execute, cache=cache, timeout=config.nb_execution_timeout)
    failed = []
    notebooks = [cache.get_project_notebook(page).nb for page in missing]
    # Threads are daemons: an interrupted build does not wait for them, and nbclient ends their kernels.
    with forked_kernels(notebooks), ThreadPool(AT_ONCE) as pool:
        for count, done in enumerate(pool.imap_unordered(run, missing), 1):
            end = "  FAILED" if done.failure else ""
            name = title(Path(done.page))
            say(f"{count} of {len(missing)}  {name}  {done.seconds:.0f} s{end}")
            failed += [done] if done.failure else []
    for done in failed:
        _report(app, done)
    say(f"reading and writing {len(docnames)} pages")


def say(line: str) -> None:
    """Print a line at once, also where nobody sees it being printed."""
    print(line, flush=True)


def _report(app: Sphinx, failed: Execution) -> None:
    """Warn of an execution that failed, and say where the whole of it is."""
    name = app.env.path2doc(failed.page)
    file = Path(app.outdir) / "reports" / f"{name}.err.log"
    file.parent.mkdir(parents=True, exist_ok=True)
    file.write_text(failed.report, encoding="utf-8")
    whole = os.path.relpath(file)
    message = "Executing notebook failed: %s; the whole is in %s"
    LOG.warning(message, failed.failure, whole, location=name)


def forget_failures(app: Sphinx, error: Exception | None = None) -> None:
    """Take executions that failed out of the cache."""
    if app.config.nb_execution_mode != "cache":
        return
    with opened_cache(app.config.nb_execution_cache_path) as cache:
        for record in cache.list_cache_records():
            if record.data.get(FAILED):
                cache.remove_cache(record.pk)


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
    app.connect("build-finished", forget_failures)
    app.connect("doctree-resolved", tidy)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
