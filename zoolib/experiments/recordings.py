"""Recorded experiments: what agents showed is read from a file, and the visits are played again.

A record holds choices and nothing else. Visitors, clicks and rewards are those of the library as it is.
"""

from __future__ import annotations

import lzma
import os
import subprocess
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_one_of
from zoolib._support.files import write_whole
from zoolib._support.state import from_bytes, to_bytes
from zoolib.agents import Agent
from zoolib.experiments.arena import run_experiment
from zoolib.experiments.history import History
from zoolib.world.features import FeatureEngineer
from zoolib.world.simulator import Churn, MarketShock, ZooplusSimulator


def recorded_experiment(
    path: str | os.PathLike[str],
    agents: Mapping[str, Agent],
    seeds: Sequence[int],
    n_steps: int,
    shocks: Mapping[int, MarketShock] | None = None,
    *,
    churn: Churn | None = None,
    by: str = "arm",
    make_world: Callable[..., ZooplusSimulator] = ZooplusSimulator,
    make_features: Callable[..., FeatureEngineer] = FeatureEngineer,
) -> History:
    """Play an experiment again as it was recorded; where there is no record, let the agents make it.

    A record knows agents by their settings. After a change of what one does, delete the file: the next
    call makes it anew. See "Recorded runs" in the back matter.

    Parameters
    ----------
    path : path-like
        The record. It also says of which commit it is.
    agents : mapping of str to Agent
        Each for ``len(seeds)`` worlds.
    seeds, n_steps, shocks, churn, make_world, make_features
        As for `run_experiment`.
    by : {"arm", "category"}
        What is recorded of a choice. Categories make a smaller file and the same clicks if, as in the
        pet shop, products of one category are alike; the history then names the first of each.

    Returns
    -------
    History

    Raises
    ------
    ValueError
        Also if the record is damaged, or one of another experiment.
    """
    as_one_of("by", by, ("arm", "category"))
    path = Path(path)
    arena = {"shocks": shocks, "churn": churn, "make_world": make_world}
    experiment = {
        "agents": {name: repr(agent) for name, agent in agents.items()},
        "seeds": list(seeds),
        "n_steps": n_steps,
        "shocks": {str(step): repr(shock) for step, shock in (shocks or {}).items()},
        "churn": churn and repr(churn),
        "made": [make_world.__qualname__, make_features.__qualname__],
        "by": by,
    }
    worlds = [make_world(seed=seed) for seed in seeds]
    times = list(_catalogues(worlds, n_steps, churn)) if by == "category" else []
    if not path.exists():
        history = run_experiment(
            agents, seeds, n_steps, make_features=make_features, **arena
        )
        if history.n_steps < n_steps:
            raise KeyboardInterrupt("half an experiment is no record")
        shown = history.arm.astype(np.uint8)
        for steps, categories in times:
            shown[..., steps] = _each(categories, shown[..., steps])
        record = {"commit": _commit(), **experiment, "shown": shown}
        blob = lzma.compress(to_bytes(record))
        write_whole(path, lambda file: file.write(blob))
    try:
        record = from_bytes(lzma.decompress(path.read_bytes()))
        shown = record.pop("shown")
    except (lzma.LZMAError, EOFError, ValueError, KeyError) as error:
        raise ValueError(
            f"path must name a record: got {str(path)!r} ({error})"
        ) from error
    for name, ours in experiment.items():
        if record.get(name) != ours:
            raise ValueError(
                f"path must name a record of this experiment: {name} of {str(path)!r} is "
                f"{record.get(name)!r}, not {ours!r}"
            )
    for steps, categories in times:
        codes = np.arange(categories.max() + 1)
        firsts = (categories[..., None] == codes).argmax(axis=1)  # of each category
        shown[..., steps] = _each(firsts, shown[..., steps])
    players = {name: _Again(arms) for name, arms in zip(agents, shown, strict=True)}
    return run_experiment(players, seeds, n_steps, **arena)


def _catalogues(
    worlds: list[ZooplusSimulator], n_steps: int, churn: Churn | None
) -> Iterator[tuple[slice, NDArray]]:
    """Give the categories of all products, shape (W, n_products), and the steps in which they are on offer."""
    every = churn.every if churn else n_steps
    for start in range(0, n_steps, every):
        for world in worlds if start else ():
            world.restock(churn.share)
        categories = np.stack([world.category_of_product for world in worlds])
        yield slice(start, start + every), categories


def _each(values: NDArray, index: NDArray) -> NDArray:
    """Look up (agent, W, step) indices in (W, n) values, world by world."""
    return np.take_along_axis(values[None], index, axis=-1)


class _Again:
    """Show what was shown, shape (W, n_steps), and learn nothing."""

    def __init__(self, shown: NDArray) -> None:
        self.n_worlds, self._shown, self._step = len(shown), shown, 0

    def select(self, context: object) -> NDArray:
        return self._shown[:, self._step]

    def update(self, context: object, arm: object, reward: object) -> None:
        self._step += 1


def _commit() -> str:
    """Return the commit at which a record is made, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return told.stdout.strip()
