"""Linear agents beside the plain textbook form, other libraries, and what the machine allows.

    python -m benchmarks --only linear_agents

A unit is a decision and its update. Contexts exist beforehand; rewards do not depend on the arm, and no
cost depends on them. Libraries that know one row of features for all arms get one, and zoolib's agent gets
that row as the features of each arm.
"""

from __future__ import annotations

from collections import ChainMap
from collections.abc import Callable, Iterator, Sequence
from functools import partial
from itertools import cycle
from timeit import timeit

import numpy as np
from numpy.typing import NDArray

from benchmarks.contest import (
    FASTEST_PEER,
    Absent,
    Contestant,
    Promise,
    Row,
    for_a_while,
)
from benchmarks.machine import multiplies, reads
from benchmarks.peers import Adapter, available
from zoolib import (
    Context,
    EpsilonGreedyAgent,
    LinTSAgent,
    LinUCBAgent,
    run_experiment,
)
from zoolib.agents import Agent
from zoolib.agents.linear import LinearAgent

SEED, ALPHA = 0, 1.0
MOST_SECONDS = 0.25  # that a peer's decision may take
Visit = tuple[Context, float]
Player = Agent | Adapter


class NaiveLinUCB(Adapter):
    """LinUCB as its definition reads: one inverse for each model and decision, one arm after the other."""

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        alpha: float = ALPHA,
        shared: bool = False,
        embed: Callable[[NDArray], NDArray] = np.asarray,
    ) -> None:
        self.alpha, self.shared, self.embed = alpha, shared, embed
        self.A = np.stack([np.eye(n_features)] * (1 if shared else n_arms))
        self.b = np.zeros(self.A.shape[:-1])

    def scores(self, context: Context) -> NDArray:
        scores = np.empty(len(context.features))
        inverses = [np.linalg.inv(A) for A in self.A]
        means = [A_inv @ b for A_inv, b in zip(inverses, self.b, strict=True)]
        for arm, row in enumerate(context.features):
            x, model = self.embed(row[None])[0], 0 if self.shared else arm
            width = np.sqrt(x @ inverses[model] @ x)
            scores[arm] = x @ means[model] + self.alpha * width
        return scores

    def update(self, context: Context, arm: int, reward: float) -> None:
        x = self.embed(context.features[arm][None])[0]
        model = 0 if self.shared else arm
        self.A[model] += np.outer(x, x)
        self.b[model] += reward * x


class BatchedLinUCB(NaiveLinUCB):
    """LinUCB with the same inverses at each decision, but for all arms at once."""

    def scores(self, context: Context) -> NDArray:
        rows, A_inv = self.embed(context.features), np.linalg.inv(self.A)
        theta = np.matvec(A_inv, self.b)
        if self.shared:
            squares = np.vecdot(rows @ A_inv[0], rows)
            return rows @ theta[0] + self.alpha * np.sqrt(squares)
        squares = np.vecdot(np.vecmat(rows, A_inv), rows)
        return np.vecdot(rows, theta) + self.alpha * np.sqrt(squares)


def visits(n_arms: int, d: int, n: int, own: bool) -> list[Visit]:
    """Draw n visits; the arms share one row of features, or each has its `own`."""
    rng = np.random.default_rng(SEED)
    rewards = rng.integers(2, size=n).astype(float).tolist()
    rows = n_arms if own else 1
    drawn = (rng.standard_normal((rows, d)) for _ in range(n))
    return [
        (Context(0, np.broadcast_to(x, (n_arms, d))), reward)
        for x, reward in zip(drawn, rewards, strict=True)
    ]


def decides(agent: Player, seen: Sequence[Visit]) -> Callable[[], float]:
    """Let an agent meet visits in turn, for a while."""
    turns = cycle(seen)

    def step() -> None:
        context, reward = next(turns)
        agent.update(context, agent.select(context), reward)

    return for_a_while(step)


def batches(n_arms: int, d: int, n: int, shared: bool) -> Row:
    """Return the row of n visits at a time: all are decided on before one is learnt from."""
    seen = visits(n_arms, d, n, own=shared)
    features = np.array([context.features for context, _ in seen])
    rewards = np.array([reward for _, reward in seen])

    def decides_at_once(one: Player) -> Callable[[], float]:
        def step() -> None:
            if isinstance(one, LinearAgent):
                visitors = Context(None, features)
                one.update(visitors, one.select(visitors), rewards)
            else:
                one.update_many(features, one.select_many(features), rewards)

        return for_a_while(step, n)

    def ours(kind: type[LinearAgent]) -> LinearAgent:
        return kind(n_arms, d, alpha=ALPHA, shared=shared)

    contestants: dict[str, Contestant | Absent] = {
        "zoolib": Contestant(decides_at_once(ours(LinUCBAgent)), "zoolib"),
        "zoolib, one by one": Contestant(decides(ours(LinUCBAgent), seen), "variant"),
        "zoolib, Thompson sampling": Contestant(
            decides_at_once(ours(LinTSAgent)), "variant"
        ),
    }
    prefix = "shared " if shared else ""
    kinds = (prefix + policy for policy in ("LinUCB", "Thompson sampling"))
    for name, one in ChainMap(*map(available, kinds)).items():
        if isinstance(one, Absent):
            contestants[name] = one
        elif hasattr(one, "select_many"):
            run = decides_at_once(one(n_arms, d))
            contestants[name] = Contestant(run, "peer", note=one.note())
        else:
            contestants[name] = Absent("it takes one visit at a time")
    model = "shared" if shared else "disjoint"
    name = f"{model} {n_arms:,} × {d}, {n} visits at a time"
    return _row(name, contestants, n_arms, d)


def log(n_arms: int, d: int, n: int) -> Row:
    """Return the row of learning a log of n visits: in one call, or visit by visit."""
    rng = np.random.default_rng(SEED)
    rows, rewards = rng.normal(size=(n, d)), rng.integers(2, size=n).astype(float)
    arms = rng.integers(n_arms, size=n)
    at_once, in_turn = (LinUCBAgent(n_arms, d, ALPHA) for _ in range(2))
    visits = cycle(zip(rows, arms.tolist(), rewards.tolist(), strict=True))

    def learns_all() -> None:
        at_once.update_many(rows, arms, rewards)

    def learns_one() -> None:
        row, arm, reward = next(visits)
        in_turn.update(Context(None, row), arm, reward)

    contestants: dict[str, Contestant | Absent] = {
        "zoolib": Contestant(for_a_while(learns_all, n), "zoolib"),
        "visit by visit": Contestant(for_a_while(learns_one), "variant"),
    }
    promises = (Promise("visit by visit", at_least=20),)
    name = f"a log of {n:,} visits, {n_arms:,} × {d}"
    return Row(name, "a visit learnt", contestants, {"n": n}, SEED, promises=promises)


def propensities(n_arms: int, d: int) -> Row:
    """Return the row of what a log needs beside the choice: how probable each arm was."""
    agent = LinTSAgent(n_arms, d, ALPHA)
    seen = visits(n_arms, d, 500, own=True)
    for context, reward in seen:
        agent.update(context, agent.select(context), reward)

    def asks(what: Callable[[Context], object]) -> Callable[[], float]:
        contexts = cycle(context for context, _ in seen)
        return for_a_while(lambda: what(next(contexts)))

    contestants: dict[str, Contestant | Absent] = {
        "zoolib": Contestant(asks(agent.propensities), "zoolib"),
        "a choice": Contestant(asks(agent.select), "variant"),
    }
    promises = (Promise("a choice", at_least=1 / 5),)
    name = f"propensities of Thompson sampling, {n_arms:,} × {d}"
    sizes = {"K": n_arms, "d": d}
    return Row(name, "a context", contestants, sizes, SEED, promises=promises)


def difference(ours: Player, other: Player, seen: Sequence[Visit]) -> float:
    """Return the largest difference of a score, relative to 1 + |score|, after both learnt the same."""
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
    shape = ours.n_arms, ours.n_features, ours.alpha, ours.shared
    return {
        name: Contestant(
            decides(form(*shape), seen),
            "naive",
            difference(make(), form(*shape), few),
            form.note(),
        )
        for name, form in NAIVE.items()
    }


def peers(
    kind: str, make_ours: Callable[[], LinUCBAgent], seen: Sequence[Visit]
) -> dict[str, Contestant | Absent]:
    """Return the peers at one kind of work by name, their scores compared with LinUCB's by ours."""
    found: dict[str, Contestant | Absent] = {}
    context, reward = seen[0]
    for name, one in available(kind).items():
        if isinstance(one, Absent):
            found[name] = one
            continue
        theirs = partial(one, *context.features.shape)
        adapter = theirs()
        adapter.update(context, adapter.select(context), reward)
        took = timeit(partial(adapter.select, context), number=1)
        if took > MOST_SECONDS:
            found[name] = Absent(f"one decision takes {took:.1f} s: too long to repeat")
            continue
        differs = None
        if one.same_scores:
            few = seen[:30] if took < MOST_SECONDS / 10 else seen[:1]
            differs = difference(make_ours(), theirs(), few)
        found[name] = Contestant(decides(adapter, seen), "peer", differs, one.note())
    return found


def linucb(
    n_arms: int,
    d: int,
    n_visits: int,
    *,
    shared: bool = False,
    n_compared: int = 2,
    promises: tuple[Promise, ...] = (),
) -> Row:
    """Return the row of LinUCB beside its plain forms, the limits of the machine, and the peers."""
    seen = visits(n_arms, d, n_visits, own=shared)  # peers know one row for all arms
    make = partial(LinUCBAgent, n_arms, d, ALPHA, shared=shared)
    n_read = n_arms * d * (1 if shared else d + 2)
    contestants = {
        "zoolib": Contestant(decides(make(), seen), "zoolib"),
        **plain(make, seen, seen[:n_compared]),
        "limit: memory": reads(
            n_read * np.dtype(float).itemsize,
            "Inverses, means and features, read once from memory. An agent whose numbers stay in the "
            "cache may be faster.",
        ),
        "limit: matmul": multiplies(
            n_arms * d * (d + 3) / 2,
            float,
            "Each predicted reward takes d multiplications, each width d (d + 1) / 2 of them.",
        ),
    }
    name = f"{'shared' if shared else 'disjoint'} {n_arms:,} × {d}"
    contestants |= peers("shared LinUCB" if shared else "LinUCB", make, seen)
    return _row(name, contestants, n_arms, d, promises)


def disjoint() -> Row:
    """Return the row of one model per arm, at the size of the shop."""
    promises = Promise("naive", at_least=15), Promise(FASTEST_PEER, at_least=7)
    return linucb(50, 9, 1000, n_compared=200, promises=promises)


def other_policies(n_arms: int = 50, d: int = 9) -> Iterator[Row]:
    """Yield rows of agents that play another policy, beside the peers that play it, too."""
    seen = visits(n_arms, d, 1000, own=False)
    make = partial(LinUCBAgent, n_arms, d, ALPHA)
    agents = {
        "Thompson sampling": LinTSAgent(n_arms, d, ALPHA),
        "ε-greedy": EpsilonGreedyAgent(n_arms, d),
    }
    for policy, agent in agents.items():
        contestants = {
            "zoolib": Contestant(decides(agent, seen), "zoolib"),
            **peers(policy, make, seen),
        }
        yield _row(f"disjoint {n_arms} × {d}, {policy}", contestants, n_arms, d)


def series() -> Iterator[Row]:
    """Yield how the cost of LinUCB grows with the number of arms, and with the number of features."""
    sizes = [("K", n_arms, 9) for n_arms in (10, 100, 1000, 10_000)]
    sizes += [("d", 50, d) for d in (8, 16, 32, 64, 128)]
    for size, n_arms, d in sizes:
        seen = visits(n_arms, d, 50, own=False)
        contestants = {
            "zoolib": Contestant(decides(LinUCBAgent(n_arms, d), seen), "zoolib"),
            "naive": Contestant(decides(NaiveLinUCB(n_arms, d), seen), "naive"),
        }
        name = f"disjoint {n_arms:,} × {d}, cost against {size}"
        yield _row(name, contestants, n_arms, d, series=f"disjoint linear: {size}")


def lockstep(n_worlds: int) -> Row:
    """Return the row of worlds that step together, beside one world at a time."""
    n_arms, d, n_steps = 50, 9, 1000

    def plays(n_worlds: int | None) -> Callable[[], float]:
        agents = {"linucb": LinUCBAgent(n_arms, d, ALPHA, n_worlds=n_worlds)}
        seeds = range(n_worlds or 1)
        run = partial(run_experiment, agents, seeds, n_steps, progress=False)
        return for_a_while(run, n_steps * len(seeds))

    return Row(
        f"lockstep, {n_worlds} worlds" if n_worlds > 1 else "lockstep, 1 world",
        "a step of one world",
        {
            "zoolib": Contestant(plays(n_worlds), "zoolib"),
            "one world at a time": Contestant(plays(None), "variant"),
        },
        {"W": n_worlds, "K": n_arms, "d": d},
        SEED,
        "lockstep: W",
        (Promise("one world at a time", at_least=5),) if n_worlds == 20 else (),
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


def rows() -> Iterator[Row]:
    """Yield all rows, each when the one before has been measured: they need much memory."""
    yield disjoint()
    yield batches(50, 9, 200, shared=False)
    yield linucb(50, 29, 200, shared=True)
    yield batches(50, 29, 200, shared=True)
    yield log(50, 29, 100_000)
    yield propensities(50, 29)
    yield linucb(10_000, 64, 16, shared=True)
    yield from other_policies()
    yield from series()
    for n_worlds in (1, 5, 20, 100):
        yield lockstep(n_worlds)
