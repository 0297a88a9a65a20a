"""Recorded experiments: what agents showed is read from a file, and the visits are played again.

A record holds choices and nothing else. Visitors, clicks and rewards are those of the library as it is.
"""

from __future__ import annotations

import lzma
import os
import subprocess
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_one_of
from zoolib._support.files import write_whole
from zoolib._support.state import from_bytes, to_bytes
from zoolib.agents import Agent, Context
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
    live: Mapping[str, Agent] | None = None,
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
    live : mapping of str to Agent, optional
        Agents of which there is no record: they play along, and come first in the history.

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
    made = {"make_world": make_world, "make_features": make_features}
    for name, make in made.items():
        if not hasattr(make, "__qualname__"):
            raise TypeError(f"{name} must be a function or class: got {make!r}")
    play = partial(
        run_experiment, seeds=seeds, n_steps=n_steps, shocks=shocks, churn=churn, **made
    )
    experiment = {
        "agents": {name: repr(agent) for name, agent in agents.items()},
        "seeds": list(seeds),
        "n_steps": n_steps,
        "shocks": {str(step): repr(shock) for step, shock in (shocks or {}).items()},
        "churn": churn and repr(churn),
        "made": [make.__qualname__ for make in made.values()],
        "by": by,
    }
    worlds = [make_world(seed=seed) for seed in seeds]
    personas = np.stack([world.persona_of_user for world in worlds])
    catalogues = _catalogues(worlds, n_steps, churn, by)
    if not path.exists():
        history = play(agents)
        if history.n_steps < n_steps:
            raise KeyboardInterrupt("half an experiment is no record")
        shown = np.empty_like(history.arm)
        for start, codes in catalogues.items():  # each from its step on
            shown[..., start:] = _each(codes, history.arm[..., start:])
        changes = _changes(shown, history.persona)
        blob = to_bytes({"commit": _commit(), **experiment, "changes": changes})
        write_whole(path, lambda file: file.write(lzma.compress(blob)))
    changes = _read(path, experiment)
    recorded = (_Again(one, personas, catalogues) for one in changes)
    return play({**(live or {}), **dict(zip(agents, recorded, strict=True))})


def _read(path: Path, experiment: dict[str, object]) -> NDArray:
    """Return the choices in a record of this experiment."""
    try:
        record = from_bytes(lzma.decompress(path.read_bytes()))
        changes = record["changes"]
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
    return changes


def _catalogues(
    worlds: list[ZooplusSimulator], n_steps: int, churn: Churn | None, by: str
) -> dict[int, NDArray]:
    """Return what is recorded of each product, shape (W, n_products), by the step from which it holds."""
    found = {}
    for start in range(0, n_steps, churn.every if churn else n_steps):
        for world in worlds if start else ():
            world.restock(churn.share)
        categories = np.stack([world.category_of_product for world in worlds])
        arms = np.broadcast_to(np.arange(categories.shape[1]), categories.shape)
        found[start] = arms if by == "arm" else categories
    return found


def _each(values: NDArray, index: NDArray) -> NDArray:
    """Look up (agent, W, step) indices in (W, n) values, world by world."""
    return np.take_along_axis(values[None], index, axis=-1)


def _changes(shown: NDArray, persona: NDArray) -> NDArray:
    """Return what was shown plus one, or zero where the persona was shown the same before: zeros pack well."""
    order = np.argsort(persona, axis=-1, kind="stable")
    came, shown = np.take_along_axis(persona, order, -1), _each_in(shown, order)
    changes = (shown + 1).astype(np.min_scalar_type(shown.max() + 1))
    as_before = came[:, 1:] == came[:, :-1]
    changes[..., 1:][as_before & (shown[..., 1:] == shown[..., :-1])] = 0
    return _each_in(changes, np.argsort(order, axis=-1))


def _each_in(shown: NDArray, order: NDArray) -> NDArray:
    """Put the steps of all agents into an order, shape (W, step)."""
    return np.take_along_axis(shown, order[None], axis=-1)


class _Again:
    """Show what was shown, and learn nothing."""

    def __init__(
        self, changes: NDArray, personas: NDArray, catalogues: dict[int, NDArray]
    ) -> None:
        self.n_worlds = len(changes)
        self._changes, self._personas, self._step = changes.T, personas, 0
        self._catalogues, self._worlds = catalogues, np.arange(self.n_worlds)
        self._last = np.zeros((self.n_worlds, personas.max() + 1), int)

    def select(self, context: Context) -> NDArray:
        """Return the first product that is recorded as what was shown."""
        if self._step in self._catalogues:
            catalogue = self._catalogues[self._step]
            codes = np.arange(catalogue.max() + 1)
            self._firsts = (catalogue[..., None] == codes).argmax(axis=1)
        place = self._worlds, self._personas[self._worlds, context.user_id]
        change = self._changes[self._step]
        self._last[place] = np.where(change, change - 1, self._last[place])
        return self._firsts[self._worlds, self._last[place]]

    def update(self, context: Context, arm: NDArray, reward: NDArray) -> None:
        self._step += 1


def _commit() -> str:
    """Return the commit at which a record is made, with a mark if files differ from it."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return told.stdout.strip()
