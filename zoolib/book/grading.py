"""The command ``python -m zoolib grade FOLDER``: run students' notebooks, and tell which exercises hold.

Each notebook runs in a fresh kernel and a folder of its own. What `check` decides comes in a file, and what is
printed is not read. That keeps out accidents and no fraud: students' code may do all that the teacher may.
"""

from __future__ import annotations

import json
import os
import re
import signal
import subprocess
import sys
from argparse import ArgumentParser, Namespace
from concurrent.futures import ThreadPoolExecutor, as_completed
from contextlib import closing, suppress
from functools import partial
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Event
from time import monotonic, strftime

import pandas as pd

from zoolib._support.checks import as_positive, as_size
from zoolib._support.extras import needed_by
from zoolib._support.files import write_whole
from zoolib._support.progress import progress_bar
from zoolib.book import exercises

with needed_by("python -m zoolib grade"):
    import ipykernel  # noqa: F401  (what the kernels run)
    import psutil
    import zmq
    from IPython import get_ipython
    from jupyter_client.connect import write_connection_file
    from jupyter_client.session import Session

WARNING = """This runs the code of {} notebooks with your rights: whatever you may do, it may do.
Who does not trust it grades in a container, or as a user, with nothing to lose. Results: {}"""
LIMITS = {"seconds": 120, "gigabytes": 4, "megabytes": 10}  # a cell, memory, output
LARGEST_FILE_MB, LARGEST_REPLY_MB, LONGEST_TEXT = 100, 10, 160
# How often a kernel is looked at; how long it may take to start and, once interrupted, to stop.
LOOK_MS, START_S, GRACE_S = 200, 60, 5
TALKED = 73  # the status of a kernel that has printed too much
# Kernels side by side have a thread each, and a claim that does not hold stops nothing.
SETTINGS = {"OMP_NUM_THREADS": "1", "ZOOLIB_LENIENT": "1", "TQDM_DISABLE": "1"}
ASKED = re.compile(r"""(?<!\w)check\(\s*["'](ex-[\w-]+)["']""")
MADE_FOR = re.compile(r"version ([\w.]+), as a notebook")
COPY = re.compile(r"( ?\(\d+\)|[ _-]copy ?\d*)$", re.IGNORECASE)
CONTROL = re.compile(r"[\x00-\x1f\x7f-\x9f]+")  # what a terminal would obey
SAID = {"right.": "passed", "not answered yet.": "missing: not answered"}


class Kernel:
    """A fresh kernel in a folder of its own, with limits."""

    def __init__(self, base: Path, limits: Namespace, stop: Event) -> None:
        self._limits, self._stop, self.verdicts = limits, stop, base / "verdicts"
        work, connection = base / "work", str(base / "kernel.json")
        work.mkdir()
        self.verdicts.touch()
        # Sockets in a folder that nobody else may enter; of a kernel's five, not those for what is printed.
        write_connection_file(connection, transport="ipc", ip=str(base / "at"))
        self._session, self._context = Session(key=b""), zmq.Context()
        self._socket = self._context.socket(zmq.DEALER)
        self._socket.maxmsgsize = LARGEST_REPLY_MB * 1_000_000
        self._socket.connect(f"ipc://{base / 'at'}-1")
        # With its parent's number a kernel ends after one that was killed; Ctrl-C reaches the grader alone.
        own = {"IPYTHONDIR": str(base / "ipython"), "JPY_PARENT_PID": str(os.getpid())}
        given = dict.fromkeys(("stdin", "stdout", "stderr"), subprocess.DEVNULL)
        given |= {"env": os.environ | SETTINGS | own, "start_new_session": True}
        kernel = [sys.executable, "-m", "ipykernel_launcher", "-f", connection]
        self._process = psutil.Popen(kernel, cwd=work, **given)

    def close(self) -> None:
        """End the kernel, and whatever it has started."""
        for one in self._processes():
            with suppress(psutil.NoSuchProcess):
                one.kill()
        self._process.wait()
        self._context.destroy(linger=0)

    def _processes(self) -> list[psutil.Process]:
        with suppress(psutil.NoSuchProcess):
            return [*self._process.children(recursive=True), self._process]
        return []

    def run(self, code: str, limit_s: float) -> str:
        """Run a cell; return its error in words, or nothing. A RuntimeError says why no other can run."""
        cell = {"code": code, "allow_stdin": False, "stop_on_error": False}
        self._session.send(self._socket, "execute_request", cell)
        start, late = monotonic(), ""
        while not self._socket.poll(LOOK_MS):
            if self._stop.is_set():
                raise RuntimeError("the grading was stopped")
            if (status := self._process.poll()) is not None:
                much = f"printed over {self._limits.megabytes:g} MB"
                raise RuntimeError(much if status == TALKED else "the kernel died")
            with suppress(psutil.NoSuchProcess):  # one that has just ended
                used = sum(one.memory_info().rss for one in self._processes())
                if used > (most := self._limits.gigabytes) * 1e9:
                    raise RuntimeError(f"took over {most:g} GB of memory")
            passed_s = monotonic() - start
            if passed_s > limit_s + GRACE_S:
                raise RuntimeError(f"ran for {limit_s:g} s, and on when it was stopped")
            if passed_s > limit_s and not late:
                late = f"stopped after {limit_s:g} s"
                self._process.send_signal(signal.SIGINT)
        said = self._session.recv(self._socket)[1]["content"]
        return late or (f"{said['ename']}: {said['evalue']}" if "ename" in said else "")


def watch(file: str, left: float) -> None:
    """In a kernel, write what `check` decides to a file, and end after so many characters of output."""

    def note(*said: str) -> None:
        with open(file, "a") as verdicts:
            print(json.dumps(said), file=verdicts)

    def limited(write, text: str) -> int:
        nonlocal left
        left -= len(text)
        return write(text) if left >= 0 else os._exit(TALKED)

    def limit(*_: object) -> None:  # IPython replaces `write` for each cell
        for stream in (sys.stdout, sys.stderr):
            if not isinstance(stream.write, partial):
                stream.write = partial(limited, stream.write)

    exercises.LISTENERS.append(note)
    get_ipython().events.register("pre_run_cell", limit)


def read(file: Path) -> tuple[list[str], str]:
    """Return the code of a notebook by cell, and a note if it was made for another version."""
    if (size_mb := file.stat().st_size / 1e6) > LARGEST_FILE_MB:
        raise RuntimeError(f"the file has {size_mb:.0f} MB: clear its outputs")
    notebook = json.loads(file.read_bytes())
    if (found := notebook["nbformat"]) != 4:
        raise RuntimeError(f"format {found} is not read: Jupyter converts it to 4")
    cells = [(c["cell_type"], "".join(c["source"])) for c in notebook["cells"]]
    ours, made = version("zoolib"), MADE_FOR.findall("".join(cells[0]) if cells else "")
    note = "" if made in ([], [ours]) else f"made for version {made[0]}, not {ours}"
    return [source for kind, source in cells if kind == "code"], note


def run(file: Path, limits: Namespace, stop: Event) -> tuple[dict, list[str]]:
    """Run a notebook but the book's solutions; return results by exercise, and notes on other cells."""
    cells, note = read(file)
    asked = [[] if c.startswith("%%solution") else ASKED.findall(c) for c in cells]
    results = {label: "missing: not reached" for here in asked for label in here}
    notes, folder = [], TemporaryDirectory(ignore_cleanup_errors=True)
    with folder as base, closing(Kernel(Path(base), limits, stop)) as kernel:
        arguments = str(kernel.verdicts), limits.megabytes * 1e6
        watching = f"__import__('{__name__}', fromlist=['watch']).watch{arguments}"
        if error := kernel.run(watching, START_S):
            raise RuntimeError(f"the kernel did not start: {error}")
        for number, (cell, here) in enumerate(zip(cells, asked, strict=True), 1):
            try:
                error = kernel.run(cell, limits.seconds)
            except RuntimeError as why:
                results |= dict.fromkeys(here, f"failed: {why}")
                notes = [f"ended in code cell {number}: {why}"]
                break
            silent = f"failed: {error}" if error else "missing: its check did not run"
            results |= dict.fromkeys(here, silent)
            if error and not here:
                notes = notes or [f"code cell {number}: {error}"]
        for line in kernel.verdicts.read_text().splitlines():
            exercise, verdict = json.loads(line)
            new = SAID.get(verdict, verdict.replace("not yet", "failed", 1))
            old = results.get(exercise, new)
            results[exercise] = max(new, old, key=lambda one: "mfp".index(one[0]))
    return results, [note, *notes, "" if results else "no exercise"]


def graded(folder: Path, row: dict, limits: Namespace, stop: Event) -> dict:
    """Complete the row of a notebook; whatever is wrong with it becomes a note."""
    try:
        results, notes = run(folder / row["file"], limits, stop)
    except Exception as error:  # one student's file is no reason to stop for others
        why = str(error) if isinstance(error, RuntimeError) else repr(error)
        results, notes = {}, [why]
    row = row | results | {"note": "; ".join(filter(None, [row["note"], *notes]))}
    return {key: CONTROL.sub(" ", text)[:LONGEST_TEXT] for key, text in row.items()}


def found_in(folder: Path) -> list[dict[str, str]]:
    """Begin a row for each notebook: the name of its folder, or else of the file, is the student's."""
    files = [f for f in sorted(folder.rglob("*.ipynb")) if f.parent.name[:1] != "."]
    ways = [file.relative_to(folder) for file in files]
    names = [way.parts[0] if way.parts[1:] else COPY.sub("", way.stem) for way in ways]
    notes = [f"one of {n} files" * (n > 1) for n in map(names.count, names)]
    rows = zip(names, map(str, ways), notes, strict=True)
    return [{"student": name, "file": way, "note": note} for name, way, note in rows]


def table(rows: list[dict[str, str]], wanted: list[str] | None) -> pd.DataFrame:
    """Return a row for each notebook, and a column for each exercise: those wanted, or all."""
    frame = pd.DataFrame(rows).set_index(["student", "file"]).sort_index()
    labels = wanted or [name for name in frame if name != "note"]
    return frame.reindex(columns=[*labels, "note"]).fillna("missing: not found")


def report(frame: pd.DataFrame) -> None:
    """Print a table with a word for each exercise, and below it what failed, and the notes."""
    frame = frame.droplevel("file")
    print(frame.drop(columns="note").replace(":.*", "", regex=True).to_string())
    for name in frame:
        for student, text in frame[name].items():
            if text.startswith("failed") or (name == "note" and text):
                print(f"{student}, {name}: {text}")


def add_arguments(parser: ArgumentParser) -> None:
    """Describe the command line of the grader."""
    add = parser.add_argument
    add("folder", type=Path, help="holds notebooks, or a folder for each student")
    add("--exercises", nargs="+", metavar="LABEL", help="columns; default: all found")
    add("--jobs", type=int, default=2, help="notebooks at a time; default: 2")
    for name, most in LIMITS.items():
        add(f"--{name}", type=float, default=most, help=f"limit; default: {most}")


def main(arguments: Namespace) -> int:
    """Grade a folder: write the table to a new file after each notebook, and print it in the end."""
    for name in LIMITS:
        as_positive(f"--{name}", getattr(arguments, name))
    jobs, folder = as_size("--jobs", arguments.jobs), arguments.folder
    if not (found := found_in(folder)):
        raise ValueError(f"folder must hold notebooks: got none in {folder}")
    file = folder / strftime("grades-%Y%m%d-%H%M%S.csv")
    print(WARNING.format(len(found), file), flush=True)
    rows, stop = [], Event()
    # Not an exception, which may be lost, in a callback for example.
    before = signal.signal(signal.SIGINT, lambda *_: stop.set())
    pool = ThreadPoolExecutor(jobs)
    tasks = [pool.submit(graded, folder, row, arguments, stop) for row in found]
    try:
        for task in progress_bar(True, iterable=as_completed(tasks), total=len(found)):
            if stop.is_set():
                break
            rows.append(task.result())
            text = table(rows, arguments.exercises).to_csv().encode()
            write_whole(file, lambda to, text=text: to.write(text))
        status = 130 if stop.is_set() else 0
    finally:
        stop.set()
        pool.shutdown(cancel_futures=True)
        signal.signal(signal.SIGINT, before)
    if rows:
        report(table(rows, arguments.exercises))
    return status
