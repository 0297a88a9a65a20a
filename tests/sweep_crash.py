"""Sweeps that are killed; they live in children of the fork server, see `tests.service_crash`."""

from __future__ import annotations

import os
import signal
import uuid
from functools import partial
from pathlib import Path

import joblib

from zoolib import LinUCBAgent, ZooplusSimulator, share_of_oracle, sweep
from zoolib.book import sweeps


class Noting(LinUCBAgent):
    """LinUCB that leaves a file in a folder whenever a task of it begins."""

    def __init__(self, *args, alpha, discount, n_worlds):
        self.name = f"{alpha}-{discount}"
        super().__init__(*args, alpha=alpha, discount=discount, n_worlds=n_worlds)

    def reseed(self, seeds):
        super().reseed(seeds)
        if seeds != 0:  # as the arena does it
            (Path(os.environ["NOTES"]) / f"{self.name}-{seeds}-{uuid.uuid4()}").touch()


def begun(folder) -> dict[str, int]:
    """Count how often each task began."""
    counts = {}
    for path in Path(folder).iterdir():
        task = path.name[:-37]
        counts[task] = counts.get(task, 0) + 1
    return counts


def play(path, folder, n_seeds=10, **options):
    """Sweep 20 settings in worlds of which each is a task."""
    os.environ["NOTES"] = str(folder)
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
    add, added = sweeps._add, []

    def add_and_die(path, task):
        added.append(task)
        add(path, task)
        if len(added) == 7:
            if moment == "in a task":
                os.truncate(path, path.stat().st_size - 9)
            die()

    sweeps._add = add_and_die
    play(path, folder, n_seeds=1, n_jobs=1)


MOMENTS = ["in a task", "after a task"]
