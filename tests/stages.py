"""The stages of ``make test``, one after another, each in processes of its own and with a limit of time.

Browsers run in greenlets, kernels bring event loops of their own, and coverage traces every line: a process
that did all three once broke its own memory. So they are kept apart, and lines are counted only where the
library is tested. A worker that dies is not replaced, since pytest-xdist may wait for its successor for ever:
its stage ends, red, with the name of the test. So does a test that runs too long (``faulthandler_timeout`` in
pyproject.toml). Names pick stages: ``python -m tests.stages library pages``.
"""

from __future__ import annotations

import argparse
import os
import resource
import shutil
import signal
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import NamedTuple

import psutil

from tests.notebooks import ONE_THREAD

ROOT = Path(__file__).resolve().parent.parent
BIN = Path(sys.executable).parent
# Files go to workers in their own order, so that what is fetched for one is there for the next.
TWO_WORKERS = ["-n", "2", "--dist", "loadfile", "--no-loadscope-reorder"]
ONE_WORKER = ["-n", "1"]  # dies in place of the session, which then names the test
BOOK = ["--no-print-directory", "book", "STRICT=1"]
# A processor of 2010, as far as NumPy, SciPy and PyTorch can be told: other instructions round otherwise.
OLD_PROCESSOR = {
    "NPY_DISABLE_CPU_FEATURES": "X86_V3",
    "OPENBLAS_CORETYPE": "Nehalem",
    "ATEN_CPU_CAPABILITY": "default",
    "ONEDNN_MAX_CPU_ISA": "SSE41",
    "MKL_ENABLE_INSTRUCTIONS": "SSE4_2",
}


class Stage(NamedTuple):
    """Commands that run one after another, and the minutes after which they are stopped."""

    commands: list[list[str]]
    limit_min: float
    one_thread: bool = False  # where two workers share two cores


def pytest(*arguments: str) -> list[str]:
    """Return a call of pytest whose workers are not replaced when they die."""
    options = ["-q", "--max-worker-restart=0"]
    return [sys.executable, "-m", "pytest", *options, *arguments]


def side_by_side(*arguments: str, limit_min: float) -> Stage:
    """Return a stage of two workers of a thread each: more threads would wait for one another, busily."""
    return Stage([pytest(*arguments, *TWO_WORKERS)], limit_min, one_thread=True)


def make(*arguments: str) -> list[str]:
    """Return a call of the make that called, or of the one on the path."""
    return [os.environ.get("MAKE") or "make", *arguments]


def stages(weekly: bool = False) -> dict[str, Stage]:
    """Name the stages in their order; the limits are eight times or more what two busy cores took."""
    lengthy = ["-m", "", "-o", "faulthandler_timeout=3600"]
    chosen = lengthy if weekly else ["-m", "not weekly"]
    elsewhere = [f"--ignore=tests/{name}" for name in ("book", "site", "speed")]
    found = {
        "style": Stage(
            [
                [str(BIN / "ruff"), "check", "."],
                [str(BIN / "ruff"), "format", "--check", "."],
                [str(BIN / "lint-imports"), "--no-cache"],
            ],
            10,
        ),
        "book": Stage([make(*BOOK)], 90),
        "library": side_by_side(
            *("tests", "zoolib", "--cov"), *chosen, *elsewhere, limit_min=60
        ),
        "pages": side_by_side("tests/book", *chosen, limit_min=60),
        "browser": side_by_side("tests/site", *chosen, limit_min=60),
        "speed": Stage([pytest("tests/speed", *ONE_WORKER)], 20),
        "notebooks": Stage([[sys.executable, "-m", "tests.notebooks"]], 90),
    }
    if weekly:
        found["older processor"] = Stage(
            [[sys.executable, "-m", "tests.stages", "--older-processor"]], 240
        )
    return found


def stop(process: subprocess.Popen) -> None:
    """End a process with all that it started, also what has left its group, as kernels do."""
    started = psutil.Process(process.pid).children(recursive=True)
    os.killpg(process.pid, signal.SIGKILL)
    for child in started:
        if child.is_running():
            child.kill()
    process.wait()


def run(command: list[str], limit_s: float, one_thread: bool) -> int | None:
    """Run a command from the project's folder; return its status, or None if it ran too long."""
    environment = os.environ | {"ZOOLIB_LENIENT": "0"}
    environment |= ONE_THREAD if one_thread else {}
    process = subprocess.Popen(
        command, cwd=ROOT, env=environment, start_new_session=True
    )
    try:
        return process.wait(limit_s)
    except subprocess.TimeoutExpired:
        stop(process)
        return None
    except BaseException:  # Ctrl-C reaches only this process
        stop(process)
        raise


def processor_s() -> float:
    """Return the processor time of all that this process has started and that has ended."""
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def run_stage(name: str, stage: Stage) -> bool:
    """Run the commands of a stage until one fails; say what it took, and return whether all held."""
    start, before = time.monotonic(), processor_s()
    print(f"== {name}", flush=True)
    status = 0
    for command in stage.commands:
        left_s = stage.limit_min * 60 - (time.monotonic() - start)
        if status := run(command, left_s, stage.one_thread):
            break
    took = f"{time.monotonic() - start:.0f} s, {processor_s() - before:.0f} s of processor time"
    if status is None:
        said = f"stopped after {stage.limit_min:g} minutes, its limit of time"
    else:
        said = "holds" if status == 0 else f"failed with status {status}"
    print(f"== {name} {said}: {took}", flush=True)
    return status == 0


def build_as_older_processor() -> int:
    """Build the book strictly as an older processor would, in a folder of its own; return the status.

    Executions are kept by what they ran, not by the processor that they ran on: the main cache must not be
    filled with these.
    """
    outside = shutil.ignore_patterns(".*", "_build", "__pycache__", "notebooks")
    with tempfile.TemporaryDirectory() as folder:
        copy = Path(folder) / "book"
        shutil.copytree(ROOT, copy, ignore=outside)
        (copy / ".venv").symlink_to(BIN.parent)
        command = make("-C", str(copy), *BOOK)
        return subprocess.run(
            command, env=os.environ | OLD_PROCESSOR, check=False
        ).returncode


def main(arguments: list[str]) -> int:
    """Run the stages that are named, or all, until one does not hold; return 0 if all hold."""
    parser = argparse.ArgumentParser(prog="python -m tests.stages")
    parser.add_argument("names", nargs="*", help="stages; all if none is named")
    parser.add_argument("--weekly", action="store_true", help="with lengthy runs")
    parser.add_argument("--older-processor", action="store_true")
    options = parser.parse_args(arguments)
    if options.older_processor:
        return build_as_older_processor()
    known = stages(options.weekly)
    if unknown := set(options.names) - set(known):
        parser.error(f"no stage {', '.join(sorted(unknown))}: {', '.join(known)}")
    chosen = options.names or list(known)
    print(f"{len(chosen)} stages: {', '.join(chosen)}", flush=True)
    return int(not all(run_stage(name, known[name]) for name in chosen))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
