"""Linear agents beside the plain textbook form, other libraries, and what the machine allows.

    python -m benchmarks --only linear_agents

A unit is a decision and its update. Contexts exist beforehand; rewards do not depend on the arm, which no
cost does either. Libraries that know one row of features for all arms get one, and zoolib's agent gets that
row as the features of each arm.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from typing import Protocol

import numpy as np
from numpy.typing import DTypeLike, NDArray

from benchmarks.contest import (
    FASTEST_PEER,
    Absent,
    Contestant,
    Promise,
    Row,
    for_a_while,
    seconds,
)
from benchmarks.machine import multiplies, reads
from benchmarks.peers import BatchAdapter, Peer, available
from zoolib import (
    Context,
    EpsilonGreedyAgent,
    LinTSAgent,
    LinUCBAgent,
    run_experiment,
)
from zoolib.posterior import frozen

SEED, ALPHA = 0, 1.0
MOST_SECONDS = 2.5  # that a peer's decision may take
Visit = tuple[Context, float]


class Player(Protocol):
    """What is timed: a decision and an update."""

    def select(self, context: Context) -> int:
        """Choose an arm."""

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""


class NaiveLinUCB:
    """LinUCB as its definition reads: one inverse for each model and decision."""

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        alpha: float = ALPHA,
        shared: bool = False,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.alpha, self.shared = alpha, shared
        self.A = np.stack([np.eye(n_features, dtype=dtype)] * (1 if shared else n_arms))
        self.b = np.zeros(self.A.shape[:-1], dtype)

    def scores(self, context: Context) -> NDArray:
        """Return the upper confidence bounds."""
        rows = context.features
        if self.shared:
            A_inv = np.linalg.inv(self.A[0])
            theta = A_inv @ self.b[0]
            return np.array(
                [x @ theta + self.alpha * np.sqrt(x @ A_inv @ x) for x in rows]
            )
        scores = np.empty(len(rows))
        for arm, x in enumerate(rows):
            A_inv = np.linalg.inv(self.A[arm])
            theta = A_inv @ self.b[arm]
            scores[arm] = x @ theta + self.alpha * np.sqrt(x @ A_inv @ x)
        return scores

    def select(self, context: Context) -> int:
        """Choose the arm of the highest bound."""
        return int(self.scores(context).argmax())

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        x, model = context.features[arm], 0 if self.shared else arm
        self.A[model] += np.outer(x, x)
        self.b[model] += reward * x


class BatchedLinUCB(NaiveLinUCB):
    """LinUCB with the same inverses at each decision, but for all arms at once."""

    def scores(self, context: Context) -> NDArray:
        """Return the upper confidence bounds."""
        rows, A_inv = context.features, np.linalg.inv(self.A)
        theta = np.matvec(A_inv, self.b)
        if self.shared:
            squares = np.vecdot(rows @ A_inv[0], rows)
            return rows @ theta[0] + self.alpha * np.sqrt(squares)
        squares = np.vecdot(np.vecmat(rows, A_inv), rows)
        return np.vecdot(rows, theta) + self.alpha * np.sqrt(squares)


def visits(
    n_arms: int, d: int, n: int, rows: str, dtype: DTypeLike = np.float64
) -> list[Visit]:
    """Draw n visits.

    Parameters
    ----------
    rows : {"one", "own", "fixed"}
        One row of features for all arms, a row for each arm, or rows that stay from visit to visit.
    """
    rng = np.random.default_rng(SEED)
    rewards = rng.integers(2, size=n).astype(float).tolist()
    if rows == "fixed":
        fixed = Context(0, frozen(rng.standard_normal((n_arms, d)).astype(dtype)))
        return [(fixed, reward) for reward in rewards]
    own = (1, d) if rows == "one" else (n_arms, d)
    drawn = (rng.standard_normal(own).astype(dtype) for _ in range(n))
    return [
        (Context(0, np.broadcast_to(x, (n_arms, d))), reward)
        for x, reward in zip(drawn, rewards, strict=True)
    ]


def decides(agents: Sequence[Player], seen: Sequence[Visit]) -> Callable[[], int]:
    """Let agents meet visits in turn, each the next one."""
    turns = zip(cycle(agents), cycle(seen), strict=False)

    def step() -> None:
        agent, (context, reward) = next(turns)
        agent.update(context, agent.select(context), reward)

    return for_a_while(step)


class BatchOfOurs:
    """Decide for many visits by one call of the posterior, then learn them one by one."""

    def __init__(self, n_arms: int, n_features: int, shared: bool) -> None:
        self.shared = shared
        self.posterior = LinUCBAgent(n_arms, n_features, shared=shared).posterior

    def select_batch(self, features: NDArray) -> NDArray[np.int64]:
        """Choose an arm for each of B visits."""
        d = features.shape[-1]
        prediction, width = self.posterior.predict_rows(features.reshape(-1, d))
        scores = prediction + ALPHA * width
        if self.shared:  # rows of the visits' arms; else (K, B)
            return scores.reshape(features.shape[:-1]).argmax(axis=-1)
        return scores.argmax(axis=0)

    def update_batch(
        self, features: NDArray, arms: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> None:
        """Learn from the arms played."""
        for x, arm, reward in zip(features, arms.tolist(), rewards, strict=True):
            if self.shared:
                self.posterior.update(x[arm], reward, checked=True)
            else:
                self.posterior.update(x, reward, (arm,), checked=True)


def batches(n_arms: int, d: int, n: int, shared: bool) -> Row:
    """Return the row of n visits at a time: all are chosen for before one is learnt."""
    kind = "shared linear" if shared else "disjoint linear"
    seen = visits(n_arms, d, n, "own" if shared else "one")
    features = np.array([context.features for context, _ in seen])
    rewards = np.array([reward for _, reward in seen])
    if not shared:
        features = features[:, 0].copy()

    def decides_at_once(one: BatchAdapter | BatchOfOurs) -> Callable[[], int]:
        def step() -> None:
            one.update_batch(features, one.select_batch(features), rewards)

        return for_a_while(step, n)

    ours = decides_at_once(BatchOfOurs(n_arms, d, shared))
    agent = LinUCBAgent(n_arms, d, ALPHA, shared=shared)
    contestants: dict[str, Contestant | Absent] = {
        "zoolib": Contestant(ours, "zoolib", note=BatchOfOurs.__doc__),
        "zoolib, one by one": Contestant(decides([agent], seen), "variant"),
    }
    for name, one in available(kind).items():
        if isinstance(one, Absent):
            contestants[name] = one
        elif isinstance(adapter := one.make(n_arms, d), BatchAdapter):
            run = decides_at_once(adapter)
            contestants[name] = Contestant(run, "peer", note=one.note)
        else:
            contestants[name] = Absent("it takes one visit at a time")
    name = f"{kind.split()[0]} {n_arms:,} × {d}, {n} visits at a time"
    return _row(name, contestants, n_arms, d)


def difference(ours: Player, other: Player, seen: Sequence[Visit]) -> float:
    """Return the largest difference of a score, as a part of 1 + |score|, after both learnt the same."""
    for context, reward in seen:
        arm = ours.select(context)
        for agent in (ours, other):
            agent.update(context, arm, reward)
    expected = ours.scores(context)
    return float(np.max(abs(other.scores(context) - expected) / (1 + abs(expected))))


NAIVE = {"naive": NaiveLinUCB, "naive, all arms at once": BatchedLinUCB}


def plain(
    make: Callable[[], LinUCBAgent], seen: Sequence[Visit], few: Sequence[Visit]
) -> dict[str, Contestant]:
    """Return the plain forms of an agent of ours."""
    ours = make()
    shape = ours.n_arms, ours.n_features, ours.alpha, ours.shared, ours.posterior.dtype
    return {
        name: Contestant(
            decides([form(*shape)], seen),
            "naive",
            difference(make(), form(*shape), few),
            form.__doc__,
        )
        for name, form in NAIVE.items()
    }


def peers(
    kind: str,
    make_ours: Callable[[], LinUCBAgent],
    seen: Sequence[Visit],
    fits: Callable[[str, Peer], str],
) -> Iterator[tuple[str, Contestant | Absent]]:
    """Yield all peers of a kind of work.

    Parameters
    ----------
    fits : callable
        Why a peer is not among the contestants of this row; empty if it is.
    """
    context, reward = seen[0]
    n_arms, d = context.features.shape
    for name, one in available(kind).items():
        if isinstance(one, Absent):
            yield name, one
            continue
        if reason := fits(name, one):
            yield name, Absent(reason)
            continue
        theirs = partial(one.make, n_arms, d)
        if name == "contextualbandits":  # it can compute in single precision, too
            theirs = partial(theirs, dtype=context.features.dtype.type)
        adapter = theirs()
        adapter.update(context, adapter.select(context), reward)
        took = seconds(partial(adapter.select, context))
        if took > MOST_SECONDS:
            yield name, Absent(f"one decision takes {took:.1f} s: too long to repeat")
            continue
        differs = None
        if one.same_scores:
            few = seen[:30] if took < MOST_SECONDS / 30 else seen[:1]
            differs = difference(make_ours(), theirs(), few)
        yield name, Contestant(decides([adapter], seen), "peer", differs, one.note)


def plays_linucb(name: str, one: Peer) -> str:
    """Tell why a peer is no match for LinUCB."""
    if one.same_policy or name in ("river", "bayesianbandits, UCB"):
        return ""
    return "it plays another policy: see the rows of Thompson sampling and ε-greedy"


def only(*names: str) -> Callable[[str, Peer], str]:
    """Take the peers so named, and say of others where they are."""
    return lambda name, _: "" if name in names else "see the row of LinUCB"


def disjoint(
    n_arms: int,
    d: int,
    dtype: DTypeLike = np.float64,
    rows: str = "one",
    promises: tuple[Promise, ...] = (),
) -> Row:
    """One model an arm."""
    dtype = np.dtype(dtype)
    seen = visits(n_arms, d, 1000 if n_arms < 1000 else 50, rows, dtype)
    make = partial(LinUCBAgent, n_arms, d, ALPHA, dtype=dtype)
    few = seen[: 200 if n_arms < 1000 else 2]
    n_bytes = n_arms * d * (d + 2) * dtype.itemsize
    per_arm = rows == "own"

    def fits(name: str, one: Peer) -> str:
        return (
            "it knows no features of single arms"
            if per_arm
            else plays_linucb(name, one)
        )

    contestants = {
        "zoolib": Contestant(decides([make()], seen), "zoolib"),
        **plain(make, seen, few),
        "limit: memory": reads(
            n_bytes,
            "Each arm's inverse and mean, and its features, read once from memory. An agent whose numbers "
            "stay in the cache may be faster.",
        ),
        "limit: matmul": multiplies(
            n_arms * d * (d + 3) / 2,
            dtype,
            "Each predicted reward takes d multiplications, each width d (d + 1) / 2 of them.",
        ),
    } | dict(peers("disjoint linear", make, seen, fits))
    name = f"disjoint {n_arms:,} × {d}" + (", float32" if dtype.itemsize == 4 else "")
    name += ", a row for each arm" if per_arm else ""
    return _row(name, contestants, n_arms, d, promises)


def cold(n_arms: int = 1000, d: int = 32, n_agents: int = 64) -> Row:
    """Agents take turns, so that nothing of an agent is in the cache any more when its turn comes."""
    dtype = np.dtype(np.float32)
    agents = [LinUCBAgent(n_arms, d, ALPHA, dtype=dtype) for _ in range(n_agents)]
    seen = visits(n_arms, d, n_agents, "own", dtype)
    # An agent measures its drift every thousand updates: their turns to do so are spread evenly.
    rng = np.random.default_rng(SEED)
    for i, (agent, (context, reward)) in enumerate(zip(agents, seen, strict=True)):
        for arm in rng.integers(n_arms, size=i * 1000 // n_agents):
            agent.update(context, int(arm), reward)
    contestants = {
        "zoolib": Contestant(decides(agents, seen), "zoolib"),
        "limit: memory": reads(
            n_arms * d * (d + 2) * dtype.itemsize,
            "The same bytes in one dot product.",
        ),
    }
    name = f"disjoint {n_arms:,} × {d}, float32, cold caches"
    return _row(name, contestants, n_arms, d)


def shared(
    n_arms: int,
    d: int,
    dtype: DTypeLike = np.float64,
    rows: str = "own",
    promises: tuple[Promise, ...] = (),
) -> Row:
    """One model for all arms."""
    dtype = np.dtype(dtype)
    seen = visits(n_arms, d, 200 if n_arms < 1000 else 16, rows, dtype)
    make = partial(LinUCBAgent, n_arms, d, ALPHA, shared=True, dtype=dtype)
    single = dtype.itemsize == 4

    def fits(name: str, one: Peer) -> str:
        reason = plays_linucb(name, one)
        if reason or name == "contextualbandits":  # which computes in both precisions
            return reason
        if name.startswith("calvera") != single:
            return f"it computes in {'double' if single else 'single'} precision"
        return ""

    contestants = {
        "zoolib": Contestant(decides([make()], seen), "zoolib"),
        **plain(make, seen, seen[:2]),
        "limit: memory": reads(
            n_arms * d * dtype.itemsize,
            "The features, read once from memory.",
        ),
        "limit: matmul": multiplies(
            n_arms * d * (d + 3) / 2,
            dtype,
            "Each predicted reward takes d multiplications, each width d (d + 1) / 2 of them.",
        ),
    } | dict(peers("shared linear", make, seen, fits))
    name = f"shared {n_arms:,} × {d}" + (", float32" if single else "")
    name += ", features that stay" if rows == "fixed" else ""
    return _row(name, contestants, n_arms, d, promises)


def other_policies(n_arms: int = 50, d: int = 9) -> Iterator[Row]:
    """Peers that play another policy than LinUCB, beside the agent of ours that plays it, too."""
    seen = visits(n_arms, d, 1000, "one")
    zoolib = decides([LinTSAgent(n_arms, d, ALPHA)], seen)
    contestants = {"zoolib": Contestant(zoolib, "zoolib")}
    make = partial(LinUCBAgent, n_arms, d, ALPHA)
    theirs = peers("disjoint linear", make, seen, only("bayesianbandits"))
    name = f"disjoint {n_arms} × {d}, Thompson sampling"
    yield _row(name, contestants | dict(theirs), n_arms, d)

    zoolib = decides([EpsilonGreedyAgent(n_arms, d)], seen)
    contestants = {"zoolib": Contestant(zoolib, "zoolib")}
    theirs = peers("disjoint linear", make, seen, only("vowpalwabbit"))
    name = f"disjoint {n_arms} × {d}, ε-greedy"
    yield _row(name, contestants | dict(theirs), n_arms, d)

    n_arms, d = 10_000, 64
    seen = visits(n_arms, d, 16, "own")
    zoolib = decides([LinTSAgent(n_arms, d, ALPHA, shared=True)], seen)
    contestants = {"zoolib": Contestant(zoolib, "zoolib")}
    make = partial(LinUCBAgent, n_arms, d, ALPHA, shared=True)
    theirs = peers("shared linear", make, seen, only("bayesianbandits"))
    name = f"shared {n_arms:,} × {d}, Thompson sampling"
    yield _row(name, contestants | dict(theirs), n_arms, d)


def series() -> Iterator[Row]:
    """How the cost of LinUCB grows with the number of arms, and with that of features."""
    sizes = [("K", n_arms, 9) for n_arms in (10, 100, 1000, 10_000)]
    sizes += [("d", 50, d) for d in (4, 8, 16, 32, 64, 128)]
    for size, n_arms, d in sizes:
        seen = visits(n_arms, d, 50, "one")
        contestants = {
            "zoolib": Contestant(decides([LinUCBAgent(n_arms, d)], seen), "zoolib"),
            "naive": Contestant(decides([NaiveLinUCB(n_arms, d)], seen), "naive"),
        }
        name = f"disjoint {n_arms:,} × {d}, cost against {size}"
        yield _row(name, contestants, n_arms, d, series=f"disjoint linear: {size}")


def lockstep(n_worlds: int, promises: tuple[Promise, ...] = ()) -> Row:
    """Worlds that step together, beside one world at a time."""
    n_arms, d, n_steps = 50, 9, 1000

    def plays(n_worlds: int | None) -> Callable[[], int]:
        agent = LinUCBAgent(n_arms, d, ALPHA, n_worlds=n_worlds)

        def run() -> int:
            seeds = range(n_worlds or 1)
            run_experiment({"linucb": agent}, seeds, n_steps, progress=False)
            return n_steps * len(seeds)

        return run

    contestants = {
        "zoolib": Contestant(plays(n_worlds), "zoolib"),
        "one world at a time": Contestant(plays(None), "variant"),
    }
    name = f"lockstep, {n_worlds} worlds" if n_worlds > 1 else "lockstep, 1 world"
    return Row(
        name,
        "a step of one world",
        contestants,
        {"W": n_worlds, "K": n_arms, "d": d},
        SEED,
        "lockstep: W",
        promises,
    )


def _row(
    name: str,
    contestants: dict[str, Contestant | Absent],
    n_arms: int,
    d: int,
    promises: tuple[Promise, ...] = (),
    series: str = "",
) -> Row:
    unit, sizes = "a decision and its update", {"K": n_arms, "d": d}
    return Row(name, unit, contestants, sizes, SEED, series, promises)


def small(n_arms: int = 50, d: int = 9) -> Row:
    """Return the row of the shop's size, and what it must reach."""
    promises = Promise(FASTEST_PEER, at_least=15), Promise("naive", at_least=20)
    return disjoint(n_arms, d, promises=promises)


def large() -> Row:
    """Return a thousand arms, and how near to the memory's bandwidth they must come."""
    promises = (Promise("limit: memory", at_least=0.7),)
    return disjoint(1000, 32, np.float32, "own", promises)


def changing(dtype: DTypeLike = np.float64) -> Row:
    """Return a shared model of ten thousand arms, with other features at each visit."""
    promises = (Promise(FASTEST_PEER, at_least=1.2),)
    return shared(10_000, 64, dtype, promises=promises)


def unchanging() -> Row:
    """Return the same with features that stay."""
    promises = (Promise(FASTEST_PEER, at_least=8),)
    return shared(10_000, 64, rows="fixed", promises=promises)


def rows() -> Iterator[Row]:
    """Yield all rows, each when the one before has been measured: they need much memory."""
    yield small()
    yield batches(50, 9, 200, shared=False)
    yield disjoint(1000, 32)
    yield large()
    yield cold()
    yield disjoint(10_000, 64)
    yield shared(50, 29)
    yield batches(50, 29, 200, shared=True)
    yield changing()
    yield changing(np.float32)
    yield unchanging()
    yield from other_policies()
    yield from series()
    for n_worlds in (1, 5, 20, 100):
        promises = (Promise("one world at a time", at_least=5),)
        yield lockstep(n_worlds, promises if n_worlds == 20 else ())
