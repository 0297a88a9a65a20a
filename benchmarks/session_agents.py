"""How fast Chapter 7's deep Q-network plays and learns."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence

import gymnasium
import numpy as np
import torch
from torch import Tensor

from benchmarks.contest import (
    FASTEST_PEER,
    Absent,
    Contestant,
    Promise,
    Row,
    for_a_while,
)
from benchmarks.peers import available
from zoolib import DQNAgent, LastItems
from zoolib.sessions import Encoder
from zoolib.sessions.shop import SessionSimulator

POLE = "CartPole-v1"


class Scaled(Encoder):
    """Real numbers, each divided by its scale: a network learns faster from numbers of similar size."""

    def __init__(self, scale: Sequence[float]) -> None:
        super().__init__(len(scale), len(scale))
        self.scale, self._factor = scale, 1 / torch.tensor(scale)

    def forward(self, observation: Tensor) -> Tensor:
        return observation * self._factor


BEFORE = 1000  # steps before the clock runs: by then all learn
SEED = 0


def rows() -> Iterator[Row]:
    """Yield one network beside another library's, and many worlds beside one."""
    yield beside_peers()
    for batch_size in (32, 128):
        yield sessions_in_step(20, batch_size)


def beside_peers() -> Row:
    """Return the row of the balanced pole, with the settings that Stable-Baselines3 has by default."""
    agent = DQNAgent(
        2,
        Scaled([1.0] * 4),
        double=False,
        target_every=10_000,
        buffer_size=1_000_000,
        learning_rate=1e-4,
        epsilon_steps=BEFORE // 10,  # its share of the first `learn`
    )
    ours = balances(agent)
    ours(BEFORE)
    contestants: dict[str, Contestant | Absent] = {
        "zoolib": Contestant(for_a_while(lambda: ours(100), 100), "zoolib")
    }
    for name, one in available("deep Q-network").items():
        if not isinstance(one, Absent):
            theirs = one(POLE)
            theirs.play(BEFORE)
            run = for_a_while(lambda play=theirs.play: play(1000), 1000)
            one = Contestant(run, "peer", note=one.note())
        contestants[name] = one
    return Row(
        "DQN, CartPole-v1",
        "a step of the environment, its choice and its training",
        contestants,
        {"d": 4, "K": 2},
        SEED,
        promises=(Promise(FASTEST_PEER, at_least=1.5),),
    )


def balances(agent: DQNAgent) -> Callable[[int], None]:
    """Let an agent play and learn from so many steps of Gymnasium's pole, going on where it was."""
    env = gymnasium.make(POLE)
    observation, _ = env.reset(seed=SEED)

    def play(n: int) -> None:
        nonlocal observation
        for _ in range(n):
            action = agent.select(observation)
            after, reward, ended, cut, _ = env.step(action)
            agent.update(observation, action, reward, after, ended)
            observation = env.reset()[0] if ended or cut else after

    return play


def sessions_in_step(n_worlds: int, batch_size: int = 32) -> Row:
    """Return the row of the shop of sessions, intent hidden, in many worlds and in one.

    Worlds in step share the cost of calls and not that of arithmetic: with large batches there is less to gain
    and nothing is promised.
    """
    promised = [Promise("zoolib, one world", at_least=8)] if batch_size == 32 else []
    alone, together = shop(None, batch_size), shop(n_worlds, batch_size)
    return Row(
        f"DQN, sessions, W = {n_worlds}, batches of {batch_size}",
        "a step of one world, its choice and its training",
        {
            "zoolib": Contestant(
                for_a_while(lambda: together(20), 20 * n_worlds), "zoolib"
            ),
            "zoolib, one world": Contestant(
                for_a_while(lambda: alone(100), 100), "variant"
            ),
        },
        {"worlds": n_worlds, "batch": batch_size},
        SEED,
        promises=tuple(promised),
    )


def shop(n_worlds: int | None, batch_size: int) -> Callable[[int], None]:
    """Return what plays and learns from so many steps of sessions, with a memory that is no longer empty."""
    seed = SEED if n_worlds is None else range(n_worlds)
    world = SessionSimulator(seed=seed, hidden=True)
    agent = DQNAgent(
        10,
        LastItems(),
        n_worlds,
        hidden=(32, 32),
        batch_size=batch_size,
        seed=seed,
    )
    observation = world.reset()

    def play(n: int) -> None:
        nonlocal observation
        for _ in range(n):
            begins = world.over
            action = agent.select(observation)
            after, reward, ended = world.step(action)
            agent.update(
                observation, action, reward, after, ended, played=~np.asarray(begins)
            )
            observation = world.reset() if n_worlds is None and ended else after

    play(BEFORE)
    return play
