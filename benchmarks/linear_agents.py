"""How fast Chapter 2's agents decide and learn: beside a plain form, beside peers, beside the memory.

    python -m benchmarks.linear_agents [--json FILE]

Prints medians of repeated pairs as ratios, on one core and one BLAS thread; absolute times depend on
the machine. Peers are timed where they are installed: obp (`pip install sb-obp`) and mabwiser.
"""

from __future__ import annotations

import argparse
import importlib.util
import json
import platform
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Protocol

import numpy as np
from numpy.typing import NDArray

from benchmarks.contest import median_ratio
from zoolib import (
    Context,
    FeatureEngineer,
    LinUCBAgent,
    RidgePosterior,
    ZooplusSimulator,
    run_experiment,
    true_ctr_matrix,
)
from zoolib._threads import one_thread

K, D = 50, 9
# Every thousand updates the posterior measures its drift: no fewer steps would be the whole price.
STEPS = 1000
PEER_STEPS = 200  # a peer's step costs the same at any time


class Player(Protocol):
    """What is timed: a decision and an update."""

    def select(self, context: Context) -> int:
        """Choose an arm."""

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""


class NaiveLinUCB:
    """LinUCB as its definition reads: one inverse for each arm and decision."""

    def __init__(self, n_arms: int, n_features: int, alpha: float = 1.0) -> None:
        self.alpha = alpha
        self.A = np.stack([np.eye(n_features)] * n_arms)
        self.b = np.zeros((n_arms, n_features))

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return the upper confidence bounds."""
        scores = np.empty(len(self.A))
        for arm, x in enumerate(context.features):
            A_inv = np.linalg.inv(self.A[arm])
            theta = A_inv @ self.b[arm]
            scores[arm] = x @ theta + self.alpha * np.sqrt(x @ A_inv @ x)
        return scores

    def select(self, context: Context) -> int:
        """Choose the arm of the highest bound."""
        return int(self.scores(context).argmax())

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        x = context.features[arm]
        self.A[arm] += np.outer(x, x)
        self.b[arm] += reward * x


class ObpLinUCB:
    """LinUCB of Open Bandit Pipeline, which keeps inverses; all arms share one row of features."""

    def __init__(self, n_arms: int, n_features: int, alpha: float = 1.0) -> None:
        from obp.policy.linear import LinUCB

        self.policy = LinUCB(dim=n_features, n_actions=n_arms, epsilon=alpha)

    def select(self, context: Context) -> int:
        """Choose an arm."""
        return int(self.policy.select_action(context.features[:1])[0])

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        self.policy.update_params(arm, reward, context.features[:1])


class MabwiserLinUCB:
    """LinUCB of MABWiser; all arms share one row of features."""

    def __init__(self, n_arms: int, n_features: int, alpha: float = 1.0) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        self.mab = MAB(list(range(n_arms)), LearningPolicy.LinUCB(alpha, l2_lambda=1.0))
        # It wants a first fit; a row of zeros teaches nothing.
        self.mab.fit([0], [0], np.zeros((1, n_features)))

    def select(self, context: Context) -> int:
        """Choose an arm."""
        return self.mab.predict(context.features[:1])

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        self.mab.partial_fit([arm], [reward], context.features[:1])


PEERS: dict[str, Callable[..., Player]] = {"obp": ObpLinUCB, "mabwiser": MabwiserLinUCB}


def visits(n_steps: int) -> tuple[list[Context], list[list[float]]]:
    """Draw visitors of the pet shop, and what each arm would earn from them."""
    world = ZooplusSimulator(seed=42)
    rng = np.random.default_rng(0)
    users = rng.integers(world.n_users, size=n_steps)
    features = FeatureEngineer(world).transform(users)
    clicks = rng.random((n_steps, K)) < true_ctr_matrix(world)[users]
    contexts = [Context(*visit) for visit in zip(users, features, strict=True)]
    return contexts, clicks.astype(float).tolist()


def visits_of_shared_rows(n_steps: int) -> tuple[list[Context], list[list[float]]]:
    """Draw dense rows of features that all arms share, and what each arm would earn."""
    rng = np.random.default_rng(0)
    rows = rng.normal(size=(n_steps, 1, D))
    clicks = rng.random((n_steps, K)) < 0.3
    contexts = [Context(0, row) for row in rows.repeat(K, axis=1)]
    return contexts, clicks.astype(float).tolist()


def play(
    agent: Player, contexts: Sequence[Context], rewards: Sequence[list[float]]
) -> None:
    for context, reward in zip(contexts, rewards, strict=True):
        arm = agent.select(context)
        agent.update(context, arm, reward[arm])


@one_thread()
def ratio_to_naive(repeats: int = 5) -> float:
    """Seconds a step of one inverse for each arm and decision, over ours."""
    contexts, rewards = visits(STEPS)
    return median_ratio(
        lambda: play(NaiveLinUCB(K, D), contexts, rewards),
        lambda: play(LinUCBAgent(K, D), contexts, rewards),
        repeats,
    )


@one_thread()
def difference_from_naive(n_steps: int = 300) -> float:
    """Return the largest difference of a score, both having seen what we showed."""
    ours, naive = LinUCBAgent(K, D), NaiveLinUCB(K, D)
    largest = 0.0
    for context, reward in zip(*visits(n_steps), strict=True):
        difference = abs(ours.scores(context) - naive.scores(context)).max()
        largest = max(largest, float(difference))
        arm = ours.select(context)
        for agent in (ours, naive):
            agent.update(context, arm, reward[arm])
    return largest


@one_thread()
def other_choices(
    other: Player, contexts: Sequence[Context], rewards: Sequence[list[float]]
) -> tuple[int, int]:
    """Count decisions without a tie, and those that differ, both having seen what we showed."""
    ours = LinUCBAgent(K, D)
    clear = different = 0
    for context, reward in zip(contexts, rewards, strict=True):
        second, best = np.sort(ours.scores(context))[-2:]
        arm, theirs = ours.select(context), other.select(context)
        if best - second > 1e-9:
            clear += 1
            different += arm != theirs
        for agent in (ours, other):
            agent.update(context, arm, reward[arm])
    return clear, different


@one_thread()
def ratio_to_peers(
    peers: Sequence[str] = tuple(PEERS), repeats: int = 9
) -> dict[str, float | None]:
    """Seconds a step of each peer over ours, None for a peer that is not installed."""
    contexts, rewards = visits_of_shared_rows(STEPS)
    some = contexts[:PEER_STEPS], rewards[:PEER_STEPS]
    return {
        name: STEPS
        / PEER_STEPS
        * median_ratio(
            lambda name=name: play(PEERS[name](K, D), *some),
            lambda: play(LinUCBAgent(K, D), contexts, rewards),
            repeats,
        )
        if importlib.util.find_spec(name)
        else None
        for name in peers
    }


@one_thread()
def share_of_bandwidth(
    cold: bool = False, from_memory: bool = True, repeats: int = 5
) -> float:
    """Seconds that reading takes over seconds of a decision and its update; 1,000 arms, d = 32.

    A decision must read each arm's inverse and mean, and its features: 4 MB. As many bytes are read by
    a dot product of two halves of one array: from memory, an array of 256 MB that no cache holds; else
    one of 4 MB. A single agent keeps its 4 MB in the cache if the machine has one so large. Cold, 64
    agents take turns, so that nothing is in the cache any more when its turn comes.
    """
    n_arms, d, n_agents = 1000, 32, 64 if cold else 1
    rng = np.random.default_rng(0)
    agents = [LinUCBAgent(n_arms, d, dtype=np.float32) for _ in range(n_agents)]
    contexts = [
        Context(0, rng.standard_normal((n_arms, d), np.float32)) for _ in agents
    ]
    # Each agent measures its drift every thousand updates: their turns to do so are spread evenly.
    for i, (agent, context) in enumerate(zip(agents, contexts, strict=True)):
        for _ in range(i * STEPS // n_agents):
            agent.update(context, int(rng.integers(n_arms)), float(rng.integers(2)))
    rounds = -(-STEPS // n_agents)
    rewards = rng.integers(2, size=(rounds, n_agents)).astype(float).tolist()
    n_copies = 64 if from_memory else 1
    memory = np.ones((2, n_copies * n_arms * d * (d + 1 + 1) // 2), np.float32)

    def read() -> None:
        for _ in range(-(-rounds * n_agents // n_copies)):
            np.dot(memory[0], memory[1])

    def decide_and_learn() -> None:
        for round_ in rewards:
            for agent, context, reward in zip(agents, contexts, round_, strict=True):
                agent.update(context, agent.select(context), reward)

    return median_ratio(read, decide_and_learn, repeats)


@one_thread()
def lockstep_ratio(n_worlds: int = 20, n_steps: int = STEPS, repeats: int = 5) -> float:
    """World-steps a second of worlds in lockstep over those of a single world."""
    together = LinUCBAgent(K, D, alpha=1.0, n_worlds=n_worlds)
    alone = LinUCBAgent(K, D, alpha=1.0)
    return n_worlds * median_ratio(
        lambda: run_experiment({"linucb": alone}, [0], n_steps, progress=False),
        lambda: run_experiment(
            {"linucb": together}, range(n_worlds), n_steps, progress=False
        ),
        repeats,
    )


@one_thread()
def inverse_ratios(
    sizes: Sequence[int] = (9, 32, 128), repeats: int = 5
) -> dict[int, float]:
    """Seconds of a fresh inverse over those of one update of a posterior, by number of features."""
    ratios = {}
    for d in sizes:
        rows = np.random.default_rng(0).normal(size=(STEPS, d))
        A = np.eye(d) + rows.T @ rows

        def invert(A: NDArray = A) -> None:
            for _ in range(STEPS):
                np.linalg.inv(A)

        def update(rows: NDArray = rows, d: int = d) -> None:
            posterior = RidgePosterior(d)
            for x in rows:
                posterior.update(x, 1.0)

        ratios[d] = median_ratio(invert, update, repeats)
    return ratios


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    naive = ratio_to_naive()
    clear, different = other_choices(NaiveLinUCB(K, D), *visits(300))
    difference = difference_from_naive()
    print(
        f"LinUCB, {K} arms, d = {D}: {naive:.0f} times as fast as one inverse for each arm and decision\n"
        f"  scores differ by {difference:.0e} at most; "
        f"of {clear} choices without a tie {different} differ"
    )
    peers = ratio_to_peers()
    for name, ratio in peers.items():
        said = "not installed" if ratio is None else f"{ratio:.0f} times as fast"
        print(f"  beside {name}: {said}")
    usual = share_of_bandwidth()
    cold = share_of_bandwidth(cold=True)
    cached = share_of_bandwidth(from_memory=False)
    print(
        "1,000 arms, d = 32, float32: a decision and its update run at "
        f"{usual:.0%} of what the memory's bandwidth allows, {cold:.0%} with cold caches, "
        f"{cached:.0%} of what the cache's allows"
    )
    lockstep = lockstep_ratio()
    print(
        f"20 worlds in lockstep: {lockstep:.1f} times the world-steps a second of one"
    )
    inverses = inverse_ratios()
    for d, ratio in inverses.items():
        print(f"d = {d}: a fresh inverse takes {ratio:.1f} times an update")
    if arguments.json:
        figures = {
            "ratio_to_naive": naive,
            "difference_from_naive": difference,
            "ratio_to_peers": peers,
            "share_of_bandwidth": {"memory": usual, "cold": cold, "cache": cached},
            "lockstep_ratio": lockstep,
            "inverse_ratios": inverses,
        }
        arguments.json.write_text(
            json.dumps(figures | {"machine": platform.machine()}, indent=1)
        )


if __name__ == "__main__":
    main()
