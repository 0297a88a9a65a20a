"""Contests: several ways of doing the same work, timed in turn, so that a disturbance hits them all.

A `Row` names the work and the contestants: zoolib, the plain textbook form, other libraries, and the
machine itself, which only reads the bytes or multiplies the numbers that the work cannot do without.
`measure` lets them run round by round. What counts is the ratio to zoolib's time in the same round.
"""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from typing import Any

from zoolib import Estimate, median_interval
from zoolib._support.threads import one_thread

FASTEST_PEER = "fastest peer"
LEAST_SECONDS = 0.08  # of a run


@dataclass(frozen=True)
class Contestant:
    """One way of doing the work.

    Attributes
    ----------
    run : callable
        Does the work for a while and returns the number of units done.
    kind : {"zoolib", "variant", "naive", "peer", "limit"}
        A variant is zoolib with another option; a peer is another library; a limit only moves the bytes,
        or only multiplies the numbers, of one unit.
    difference : float, optional
        Largest difference of a score from zoolib's after the same data, relative to 1 + |score|;
        None where scores are not compared.
    note : str, default ""
        How it is driven, and what the reader should know.
    """

    run: Callable[[], float]
    kind: str
    difference: float | None = None
    note: str = ""


@dataclass(frozen=True)
class Absent:
    """A peer that does not run here, and why."""

    reason: str


@dataclass(frozen=True)
class Promise:
    """What a row should reach.

    Attributes
    ----------
    figure : str
        A contestant's name, `FASTEST_PEER`, or a name in the row's figures.
    at_least, below : float, optional
        Bound of the ratio, or of the figure.
    """

    figure: str
    at_least: float | None = None
    below: float | None = None

    def kept(self, found: float) -> bool:
        """Return whether a figure lies within the bound."""
        return (self.at_least is None or found >= self.at_least) and (
            self.below is None or found < self.below
        )


@dataclass(frozen=True)
class Row:
    """One work, and who does it.

    Attributes
    ----------
    name : str
        Unique, for example ``"disjoint 50 × 9"``.
    unit : str
        What is timed, for example ``"a decision and its update"``.
    contestants : dict of str to Contestant or Absent
        By name; one of them is ``"zoolib"``.
    sizes : dict of str to int
        For example ``{"K": 50, "d": 9}``.
    seed : int
        Of everything drawn.
    series : str, default ""
        Rows of one series show how the cost grows with one size.
    promises : tuple of Promise, default ()
        What the row should reach: reported, and no gate.
    figures : dict of str to float
        What was measured besides the ratios, for example ``{"p99_ms": 3.2}``.
    """

    name: str
    unit: str
    contestants: Mapping[str, Contestant | Absent]
    sizes: Mapping[str, int]
    seed: int = 0
    series: str = ""
    promises: tuple[Promise, ...] = ()
    figures: Mapping[str, float] = field(default_factory=dict)


def for_a_while(step: Callable[[], object], units: float = 1) -> Callable[[], float]:
    """Return a contestant's run: steps of `units` each until `LEAST_SECONDS` are over."""

    def run() -> float:
        done, stop = 0, time.perf_counter() + LEAST_SECONDS
        while done == 0 or time.perf_counter() < stop:
            step()
            done += units
        return done

    return run


@one_thread()
def measure(row: Row, rounds: int = 11) -> dict[str, Any]:
    """Let all contestants run in turn, after a round that warms up; return what JSON can hold.

    Returns
    -------
    dict
        The row's labels and, for each contestant, its seconds per unit, in each round and in the median,
        and the ratio of its seconds to zoolib's in the same round: median and 95 % interval.
    """
    contestants = row.contestants.items()
    present = {name: one for name, one in contestants if isinstance(one, Contestant)}
    times: dict[str, list[float]] = {name: [] for name in present}
    turns = list(present)
    for _ in range(1 + rounds):
        for name in turns:
            start = time.perf_counter()
            done = present[name].run()
            times[name].append((time.perf_counter() - start) / done)
        turns.append(turns.pop(0))  # each comes first now and then
    found = {
        name: _contestant(one, times[name][1:], times["zoolib"][1:])
        for name, one in present.items()
    }
    absent = {
        name: {"kind": "peer", "absent": one.reason}
        for name, one in contestants
        if isinstance(one, Absent)
    }
    result = {
        "name": row.name,
        "series": row.series,
        "unit": row.unit,
        "sizes": dict(row.sizes),
        "seed": row.seed,
        "rounds": rounds,
        "contestants": found | absent,
        "figures": dict(row.figures),
    }
    result["promises"] = [_judged(promise, result) for promise in row.promises]
    return result


def _contestant(
    one: Contestant, own: list[float], reference: list[float]
) -> dict[str, Any]:
    ratios = [mine / ours for mine, ours in zip(own, reference, strict=True)]
    middle: Estimate = median_interval(ratios)
    return {
        "kind": one.kind,
        "seconds": statistics.median(own),
        "ratio": {"median": middle.mean, "low": middle.low, "high": middle.high},
        "rounds": own,
        "difference": one.difference,
        "note": one.note,
    }


def ratio(result: Mapping[str, Any], figure: str) -> float | None:
    """Return the figure of a measured row that a promise names; None if no peer ran."""
    if figure in result["figures"]:
        return result["figures"][figure]
    contestants = result["contestants"]
    if figure == FASTEST_PEER:
        ran = [c for c in contestants.values() if c["kind"] == "peer" and "ratio" in c]
        return min((one["ratio"]["median"] for one in ran), default=None)
    return contestants[figure]["ratio"]["median"]


def _judged(promise: Promise, result: Mapping[str, Any]) -> dict[str, Any]:
    found = ratio(result, promise.figure)
    kept = None if found is None else promise.kept(found)
    return asdict(promise) | {"found": found, "kept": kept}
