"""Recorded experiments: results that took minutes to compute are read from a file and partly checked.

A record of the arena holds only choices: visitors, clicks and rewards are computed by the present library.
A record of any other experiment holds its results.
"""

from __future__ import annotations

import json
import lzma
import os
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import replace
from functools import partial
from hashlib import sha256
from pathlib import Path
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_one_of, as_probability, as_size
from zoolib._support.files import write_whole
from zoolib._support.state import from_bytes, to_bytes
from zoolib.agents import Agent
from zoolib.book.clock import clock_bar
from zoolib.book.described import MARK, described
from zoolib.book.notebook import leave_doubt
from zoolib.book.strictness import is_lenient
from zoolib.experiments.arena import Arena, run_experiment
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
    begin: int = 500,
    may_differ: float = 0.0,
    repeats: bool = False,
    live: Mapping[str, Agent] | None = None,
    make_world: Callable[..., ZooplusSimulator] = ZooplusSimulator,
    make_features: Callable[..., FeatureEngineer] = FeatureEngineer,
) -> History:
    """Replay an experiment from its record; what it lacks, the agents play; without one, they write it.

    A record identifies agents by their settings, but code may change. So the agents play the first visits again
    at each call, and a mismatch raises. See "Recorded runs" in the part "Evidence".

    If the environment sets ``ZOOLIB_LENIENT=1``, a record need not fit: agents that it lacks are played, of
    another experiment all, and a line says which; first visits that differ are a line, too. Nothing that is
    played then enters the library's own records.

    Parameters
    ----------
    path : path-like
        The record, which includes the commit at which it was made.
    agents : mapping of str to Agent
        Each for ``len(seeds)`` worlds.
    seeds, n_steps, shocks, churn, repeats, make_world, make_features
        As for `run_experiment`.
    by : {"arm", "category"}
        How a choice is recorded. Categories make a smaller file and give the same clicks if, as in the pet
        shop, products of one category are alike; the history then names the first product of each.
    begin : int, default 500
        Visits that the agents play again.
    may_differ : float, default 0.0
        Largest share of these visits in which an agent may show another arm. A network's rounding depends
        on the machine, and a single different choice changes later ones.
    live : mapping of str to Agent, optional
        Agents without a record: they play all visits, and come first in the history.

    Returns
    -------
    History

    Raises
    ------
    ValueError
        Also if the record is damaged or belongs to another experiment, or if agents begin differently.
    """
    as_one_of("by", by, ("arm", "category"))
    begin = min(as_size("begin", begin, least=0), as_size("n_steps", n_steps))
    may_differ = as_probability("may_differ", may_differ)
    path = Path(path)
    shocks = dict(shocks or {})
    made = {"make_world": make_world, "make_features": make_features}
    experiment = {
        "agents": {name: described(f"agent {name!r}", a) for name, a in agents.items()},
        "seeds": list(seeds),
        "n_steps": n_steps,
        "shocks": {str(step): repr(shock) for step, shock in shocks.items()},
        "churn": churn and repr(churn),
        "made": [described(name, make) for name, make in made.items()],
        "by": by,
    }
    play = partial(run_experiment, seeds=seeds, churn=churn, repeats=repeats, **made)

    def arena(n_steps: int = n_steps) -> Arena:
        worlds = [make_world(seed=seed) for seed in seeds]
        events = {step: shock for step, shock in shocks.items() if step < n_steps}
        return Arena(list(agents), worlds, list(seeds), n_steps, events, churn)

    again = arena()
    read = _read(path, experiment, again.persona) if path.exists() else {}
    codes = dict(read)
    if here := {name: agent for name, agent in agents.items() if name not in read}:
        if is_lenient():
            known = ", ".join(read) or "nothing"
            played = ", ".join(here)
            said = f"read {known}; played here, with these settings: {played}"
            tell_reader(path, said)
        history = play(here, n_steps=n_steps, shocks=shocks)
        if history.n_steps < n_steps:
            raise KeyboardInterrupt("half an experiment is no record")
        codes |= zip(here, _codes(arena(), history.arm, by), strict=True)
    shown = np.stack([codes[name] for name in agents])
    if may_write(path) and not path.exists():
        changes = {"changes": _changes(shown, again.persona)}
        blob = to_bytes({"commit": current_commit()} | experiment | changes)
        write_whole(path, lambda file: file.write(lzma.compress(blob)))
    if begin and read:
        first = arena(begin)
        begun = {name: agents[name] for name in read}
        begun = play(begun, n_steps=begin, shocks=first.shocks, progress=False)
        recorded = np.stack([*read.values()])[..., :begin]
        differs = _codes(first, begun.arm, by) != recorded
        _check_beginning(path, list(read), differs, may_differ)
    history = _play_again(again, shown, by)
    if live:
        history = _beside(play(live, n_steps=n_steps, shocks=shocks), history)
    return history


# The library's own records, to which what a reader plays is not added.
OURS = Path(__file__).resolve().parent / "records"
SHORT = (",", ":")  # JSON without blanks


class RecordedRuns:
    """A file of results of functions; missing results are computed and written to it.

    A result is known by what was asked, the function's name and its settings, and by what the function does:
    its code and what it reads from the page around it, other functions of the page and data. A result may be
    anything that JSON can hold: numbers, lists, dictionaries; arrays become lists. The file stores each with
    the commit at which it was made and the seconds of processor time that it took. Nothing verifies it here:
    pages rerun a part and compare.

    Parameters
    ----------
    path : path-like
        The file, compressed if its name ends in ``.xz``.

    Examples
    --------
    >>> from tempfile import mkdtemp
    >>> recorded = RecordedRuns(Path(mkdtemp()) / "squares.json")
    >>> def squares(n):
    ...     return np.arange(n) ** 2
    >>> recorded(squares, n=3)
    [0, 1, 4]
    """

    def __init__(self, path: str | os.PathLike[str]) -> None:
        self.path = Path(path)
        self._runs = {}
        self._packed = self.path.suffix == ".xz"
        if self.path.exists():
            self._runs = self._read()

    def __call__(self, make: Callable[..., object], /, **settings: object) -> Any:
        """Return what a function returns for these settings, as JSON holds it; call it if that is not recorded.

        Parameters
        ----------
        make : function
            Of a page or of the library, with a name. What it reads from the page must be modules,
            functions and plain data; anything else is passed as a setting.
        **settings
            Its arguments: what JSON can hold, tuples, ranges, arrays, functions, and objects such as
            agents, whose repr says everything.

        Raises
        ------
        TypeError
            If a setting, or something that the function reads, cannot be described.
        ValueError
            If the result on record is that of a function that did something else, unless the environment
            sets ``ZOOLIB_LENIENT=1``: then it is called, and the library's own records stay as they are.
        """
        key, does = _asked(make, settings)
        run = self._runs.get(key)
        if run and run["does"] == does:
            return run["result"]
        if run and not is_lenient():
            raise ValueError(
                f"path must name a record of what {make.__name__} does: in {str(self.path)!r} {key} was "
                "made by other code or other data that it reads; delete it to make it anew"
            )
        if is_lenient():
            tell_reader(self.path, f"{key} is played here")
        begun = time.process_time()
        with clock_bar(is_lenient(), self._duration(make)):
            result = make(**settings)
        took = round(time.process_time() - begun, 1)
        run = {"commit": current_commit(), "seconds": took, "does": does}
        text = json.dumps(run | {"result": result}, default=np.ndarray.tolist)
        self._runs[key] = json.loads(text)
        if may_write(self.path):
            self._write()
        return self._runs[key]["result"]

    def _duration(self, make: Callable[..., object]) -> float | None:
        """Return how long the function took before, in seconds, if that is known of most of its runs."""
        ours = f"{make.__name__}("
        runs = [
            run["seconds"] for key, run in self._runs.items() if key.startswith(ours)
        ]
        known = [seconds for seconds in runs if seconds is not None]
        return float(np.median(known)) if 2 * len(known) > len(runs) else None

    def _read(self) -> dict[str, dict[str, Any]]:
        try:
            blob = self.path.read_bytes()
            return json.loads(lzma.decompress(blob) if self._packed else blob)
        except (lzma.LZMAError, EOFError, ValueError) as error:
            raise damaged(self.path, error) from error

    def _write(self) -> None:
        lines = (
            f"{json.dumps(key)}:{json.dumps(run, separators=SHORT)}"
            for key, run in self._runs.items()
        )
        blob = ("{\n" + ",\n".join(lines) + "\n}\n").encode()
        blob = lzma.compress(blob) if self._packed else blob
        write_whole(self.path, lambda file: file.write(blob))


def _asked(make: Callable[..., object], settings: dict[str, object]) -> tuple[str, str]:
    """Return what is asked for, as one reads it, and a digest of all that the answer depends on."""
    if not isinstance(make, FunctionType) or make.__name__ == "<lambda>":
        raise TypeError(
            f"make must be a function with a name, from a def: got {make!r}"
        )
    names = sorted(settings)
    texts = [f"{one}={described(f'setting {one!r}', settings[one])}" for one in names]
    key = f"{make.__name__}({', '.join(texts)})"
    depends_on = f"{described('make', make)} {key}"
    return MARK.sub("", key), sha256(depends_on.encode()).hexdigest()[:12]


def may_write(path: Path) -> bool:
    """Return whether what is played now may enter a record."""
    return not (is_lenient() and path.resolve().parent == OURS)


def tell_reader(
    path: Path, said: str, sentence: str = "A record has all that its page asks for."
) -> None:
    """Say in what a record does not fit; of the book's own, leave a doubt for strict builds."""
    said = f"{path.name}: {said}"
    print(said)
    if not may_write(path):
        leave_doubt(sentence, said)


def damaged(path: Path, error: Exception, what: str = "a record") -> ValueError:
    """Return the error for a file that is no record, or only a part of one."""
    return ValueError(
        f"path must name {what}: got {str(path)!r}, which is damaged ({error}); restore it, or delete it "
        "to make it anew (for the book's own: make sweeps)"
    )


def differing(
    path: Path, theirs: Mapping[str, object], ours: Mapping[str, object]
) -> list[str]:
    """Return in which settings a record is of another experiment; if it may not be, raise."""
    differs = [name for name in ours if theirs.get(name) != ours[name]]
    if differs and not is_lenient():
        name = differs[0]
        raise ValueError(
            f"path must name a record of this experiment: {name} of {str(path)!r} is "
            f"{theirs.get(name)!r}, not {ours[name]!r}"
        )
    return differs


def current_commit() -> str:
    """Return the commit at which a record is made, "-dirty" if files differ from it, or "unknown"."""
    command = ["git", "describe", "--always", "--dirty", "--abbrev=12"]
    try:
        told = subprocess.run(command, capture_output=True, text=True, check=True)
    except (OSError, subprocess.CalledProcessError):
        return "unknown"
    return told.stdout.strip()


def _check_beginning(
    path: Path, agents: Sequence[str], differs: NDArray, may_differ: float
) -> None:
    """Refuse a record if agents that begin again show something else, (agent, W, step), too often."""
    shares = differs.mean(axis=(1, 2))
    if (worst := shares.max()) <= may_differ:
        return
    found = f"{agents[shares.argmax()]!r} shows something else in {worst:.1%} of its first {differs.shape[-1]} "
    if not is_lenient():
        raise ValueError(
            f"path must name a record of what these agents do: {found}visits than {str(path)!r} says; "
            "delete it to make it anew"
        )
    tell_reader(
        path, f"{found}visits than it says.", "Agents begin as their record says."
    )


def _read(
    path: Path, experiment: dict[str, object], persona: NDArray
) -> dict[str, NDArray]:
    """Return what is recorded of the agents that a record shares with this experiment: all, or it raises."""
    try:
        record = from_bytes(lzma.decompress(path.read_bytes()))
        theirs = record["agents"]
        changes = record["changes"]
    except (lzma.LZMAError, EOFError, ValueError, KeyError) as error:
        raise damaged(path, error) from error
    differs = differing(path, record, experiment)
    ours = {} if {*differs} - {"agents"} else experiment["agents"]
    same = [name for name, text in theirs.items() if text == ours.get(name)]
    rows = [[*theirs].index(name) for name in same]
    return dict(zip(same, _unchanged(changes[rows], persona), strict=True))


def _codes(arena: Arena, arm: NDArray, by: str) -> NDArray:
    """Return what is recorded of arms (agent, W, step): the arms, or the categories that they then had."""
    codes = arm.copy()
    if by == "category":
        for steps in arena.stretches():
            shown = arm[..., steps]
            codes[..., steps] = np.take_along_axis(arena.category[None], shown, -1)
    return codes


def _play_again(arena: Arena, codes: NDArray, by: str) -> History:
    """Show what was shown, (agent, W, step); of a category, the first product."""
    for steps in arena.stretches():
        arm = codes[..., steps]
        if by == "category":
            known = np.arange(1 + arena.category.max())
            first = (arena.category[..., None] == known).argmax(axis=1)
            arm = np.take_along_axis(first[None], arm, -1)
        arena.judge(steps, arm)
    return arena.history(arena.n_steps)


def _changes(codes: NDArray, persona: NDArray) -> NDArray:
    """Return what was shown plus one, or zero where the persona was shown the same before: zeros pack well."""
    order = np.argsort(persona, axis=-1, kind="stable")
    came = np.take_along_axis(persona, order, -1)
    codes = np.take_along_axis(codes, order[None], -1)
    changes = (codes + 1).astype(np.min_scalar_type(codes.max() + 1))
    as_before = came[:, 1:] == came[:, :-1]
    changes[..., 1:][as_before & (codes[..., 1:] == codes[..., :-1])] = 0
    return np.take_along_axis(changes, np.argsort(order, axis=-1)[None], -1)


def _unchanged(changes: NDArray, persona: NDArray) -> NDArray:
    """Return what was shown, (agent, W, step): undo `_changes`."""
    order = np.argsort(persona, axis=-1, kind="stable")
    changes = np.take_along_axis(changes, order[None], -1)
    last = np.where(changes, np.arange(changes.shape[-1]), 0)
    codes = np.take_along_axis(changes, np.maximum.accumulate(last, axis=-1), -1)
    codes = codes.astype(np.int64) - 1
    return np.take_along_axis(codes, np.argsort(order, axis=-1)[None], -1)


def _beside(one: History, other: History) -> History:
    """Return one history of both, which are of the same visits."""
    both = {
        name: np.concatenate((getattr(one, name), getattr(other, name)))
        for name in ("arm", "reward", "expected_reward", "optimal_reward")
    }
    return replace(one, agents=one.agents + other.agents, **both)
