"""Sweeps that are killed; they live in children of the fork server, see `tests.service_crash`."""

from __future__ import annotations

import os
import signal
import uuid
from functools import partial
from pathlib import Path

import joblib

from zoolib import LinUCBAgent, ZooplusSimulator, share_of_oracle, sweep
from zoolib.experiment import ledger, sweeps


class Noting(LinUCBAgent):
    """LinUCB that leaves a file in a folder whenever a task of it begins."""

    folder: Path

    def __init__(self, *args, alpha, discount, n_worlds):
        self.name = f"{alpha}-{discount}"
        super().__init__(*args, alpha=alpha, discount=discount, n_worlds=n_worlds)

    def reseed(self, seeds):
        super().reseed(seeds)
        if seeds != 0:  # as the arena does it
            (self.folder / f"{self.name}-{seeds}-{uuid.uuid4()}").touch()


def begun(folder) -> dict[str, int]:
    """Count how often each task began."""
    counts = {}
    for path in Path(folder).iterdir():
        task = path.name[:-37]
        counts[task] = counts.get(task, 0) + 1
    return counts


def play(path, folder, n_seeds=10, **options):
    """Sweep 20 settings in worlds of which each is a task."""
    Noting.folder = folder
    return sweep(
        {"LinUCB": partial(Noting, 10, 9)},
        {"alpha": (0.1, 0.2, 0.3, 0.5, 1.0), "discount": (1.0, 0.99, 0.9, 0.8)},
        range(n_seeds),
        15,
        measures={"share": share_of_oracle},
        make_world=partial(ZooplusSimulator, 10, 20),
        path=path,
        progress=False,
        **options,
    )


def die(*_):
    """End this process as `kill -9` does."""
    os.kill(os.getpid(), signal.SIGKILL)


def live(path, folder, backend, say):
    """Play until killed."""
    with joblib.parallel_config(backend=backend):
        play(path, folder, n_jobs=2 if backend == "threading" else 1)


def die_at(path, folder, moment, say):
    """Play and die at a moment that chance would seldom hit."""
    append, write, outcomes = ledger.append_line, ledger.write_whole, sweeps._outcomes
    appended = []

    def append_once(path, line):
        appended.append(line)
        if len(appended) == 7:
            if moment == "in a line":
                with open(path, "ab") as file:
                    file.write(line[: len(line) // 2])
                die()
            if moment == "before the end of a line":
                with open(path, "ab") as file:
                    file.write(line)
                die()
        append(path, line)
        if moment == "after a line" and len(appended) == 7:
            die()

    def write_once(path, put):
        if moment == "in the header" or (moment == "in the merge" and appended):
            write(path, lambda file: (put(file), file.flush(), die()))
        if moment == "before the merge" and appended:
            die()
        write(path, put)
        if moment == "after the header" or (moment == "after the merge" and appended):
            die()

    ledger.append_line, ledger.write_whole = append_once, write_once
    # As if the last had ended first: there is something to merge.
    sweeps._outcomes = lambda tasks, *others: outcomes(tasks[::-1], *others)
    play(path, folder, n_seeds=1, n_jobs=1)


MOMENTS = [
    "in the header",
    "after the header",
    "in a line",
    "before the end of a line",
    "after a line",
    "before the merge",
    "in the merge",
    "after the merge",
]
