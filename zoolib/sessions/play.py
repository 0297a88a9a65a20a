"""Agents in the session world, with the same worlds and random numbers for all, and their policies' values.

See the chapter on sessions, "Bandits and deep Q-networks compared".
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from tqdm import tqdm

from zoolib._support.checks import Seed, as_flags, as_size
from zoolib._support.progress import progress_bar
from zoolib._support.threads import one_thread
from zoolib.agents import Context, LinearAgent
from zoolib.experiments.arena import check_seeds
from zoolib.sessions.mdp import DecisionProcess
from zoolib.sessions.shop import (
    LAST,
    N_INTENTS,
    N_PERSONAS,
    PATIENCE,
    SessionSimulator,
)

# Says what an agent's greedy policy is worth in each world, shape (W,).
Judge = Callable[[Any], NDArray[np.float64]]


@dataclass(frozen=True)
class SessionHistory:
    """Values of agents' policies after some of their sessions: A agents, W worlds and C checkpoints.

    Attributes
    ----------
    agents : tuple of str
    checkpoints : ndarray of int, shape (C,)
        Numbers of sessions.
    value : ndarray, shape (A, W, C)
        Clicks per session of each agent's greedy policy at that checkpoint: exact if the agent sees the
        state, otherwise a mean over sessions played.
    optimum : ndarray, shape (W,)
        Clicks per session of the best policy that sees the state; exact.
    learnt : tuple
        The agents after the last session.
    """

    agents: tuple[str, ...]
    checkpoints: NDArray[np.int64]
    value: NDArray[np.float64]
    optimum: NDArray[np.float64]
    learnt: tuple[Any, ...]

    def share(self, agent: str) -> NDArray[np.float64]:
        """Return an agent's values as shares of the optimum, shape (W, C)."""
        return self.value[self.agents.index(agent)] / self.optimum[:, None]


def play_sessions(
    agents: Mapping[str, Any],
    seeds: Sequence[int],
    n_sessions: int,
    carry_over: float = 1.0,
    hidden: bool = False,
    *,
    checkpoints: Sequence[int] = (),
    n_judged: int = 200,
    progress: bool = True,
) -> SessionHistory:
    """Let agents learn from sessions, each in worlds of its own that have the same seeds.

    Parameters
    ----------
    agents : mapping of str to agent
        They select, update and are greedy as `QLearningAgent` does, in ``len(seeds)`` worlds. Copies play.
        An agent with `n_states` sees numbers of states, the others see observations.
    seeds : sequence of int
        One world each.
    n_sessions : int
        Number of sessions in each world. A finished world waits for the others; nothing is learnt in it.
    carry_over, hidden
        As for `SessionSimulator`.
    checkpoints : sequence of int, optional
        Numbers of sessions after which greedy policies are judged, in addition to the last session.
    n_judged : int, default 200
        Number of sessions played to judge a policy that does not see the state.
    progress : bool, default True
        Show a progress bar, unless the environment sets ``TQDM_DISABLE=1``.
    """
    seeds = check_seeds(seeds)
    n_sessions = as_size("n_sessions", n_sessions)
    marks = [as_size("checkpoint", n, most=n_sessions) for n in checkpoints]
    marks = np.unique([*marks, n_sessions])
    if not agents:
        raise ValueError("agents must hold at least one agent: got none")
    for name, agent in agents.items():
        if agent.n_worlds != len(seeds):
            raise ValueError(
                f"agent {name!r} plays n_worlds={agent.n_worlds}: wanted {len(seeds)}, one a seed"
            )
    shop = SessionSimulator(seed=seeds, carry_over=carry_over, hidden=hidden)
    process = shop.process()
    judge = _by_play(shop, seeds, n_judged) if hidden else _exactly(shop, process)
    learnt = tuple(map(copy.deepcopy, agents.values()))
    values = []
    total = len(agents) * n_sessions
    with one_thread(), progress_bar(progress, total=total, unit="session") as bar:
        for agent in learnt:
            agent.reseed(seeds)
            values.append(_learn(agent, copy.deepcopy(shop), marks, judge, bar))
    optimum = process.value(process.optimal_q().argmax(axis=-1))
    return SessionHistory(tuple(agents), marks, np.stack(values), optimum, learnt)


def _learn(
    agent: Any, shop: SessionSimulator, marks: NDArray, judge: Judge, bar: tqdm
) -> NDArray[np.float64]:
    """Let an agent play and learn; return its values at the marks, (W, C)."""
    value = np.empty((shop.n_worlds, len(marks)))
    through = np.zeros(shop.n_worlds, np.int64)  # number of sessions
    seen = _seen(agent, shop.observation(), shop)
    least = 0
    while least < marks[-1]:
        played = ~shop.over & (through < marks[-1])
        action = agent.select(seen)
        observation, reward, ended = shop.step(action)
        before = seen
        seen = _seen(agent, observation, shop)
        agent.update(before, action, reward, seen, ended, played=played)
        ended &= played
        through += ended
        due = ended[:, None] & (through[:, None] == marks)
        if due.any():
            value[due] = np.broadcast_to(judge(agent)[:, None], due.shape)[due]
        bar.update(through.min() - least)
        least = through.min()
    return value


def _seen(agent: Any, observation: NDArray, shop: SessionSimulator) -> NDArray:
    """Return what an agent sees: numbers of states, if it counts them."""
    return shop.state(observation) if hasattr(agent, "n_states") else observation


def _exactly(shop: SessionSimulator, process: DecisionProcess) -> Judge:
    """Return what computes the value of a greedy policy that sees states, shape (W,)."""
    states = list(np.ndindex(N_PERSONAS, N_INTENTS, PATIENCE))
    every = np.array([states] * shop.n_worlds) + np.array([0, 0, 1])
    return lambda agent: process.value(agent.greedy(_seen(agent, every, shop)))


def _by_play(shop: SessionSimulator, seeds: list[int], n: int) -> Judge:
    """Return what lets an agent play n sessions without exploring, for their mean clicks, shape (W,)."""
    shop = shop.copies(n)
    seeds = [np.random.SeedSequence([seed, 1]) for seed in seeds]  # of other visitors

    def judge(agent: Any) -> NDArray[np.float64]:
        shop.reseed(seeds)
        observation = shop.reset()
        clicks = 0
        alive = True
        while np.any(alive):
            seen = observation.reshape(-1, n, observation.shape[-1])
            observation, reward, ended = shop.step(agent.greedy(seen).reshape(-1))
            clicks = clicks + alive * reward
            alive = alive & ~ended
        return clicks.reshape(-1, n).mean(axis=1)

    return judge


class VisitAgent:
    """A bandit that plays sessions: it treats each step as a separate visit and looks only at its click.

    Parameters
    ----------
    agent : LinearAgent
        With one model per product, and the number of features of `visit_features`. It must not forget,
        because a reset is passed to it as a row of zeros.
    """

    def __init__(self, agent: LinearAgent) -> None:
        if agent.shared or agent.discount < 1 or agent.window is not None:
            raise ValueError(
                f"agent must have a model for each arm, and forget nothing: got {agent!r}"
            )
        self.agent = agent
        self.n_worlds = agent.n_worlds

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Restart the random numbers: one seed, or one for each world."""
        self.agent.reseed(seed)

    def select(self, observation: ArrayLike) -> NDArray[np.int64]:
        """Choose a product for each world's visitor, as the bandit does; shape (W,)."""
        x = visit_features(observation)
        return self.agent.select(Context(np.arange(len(x)), x))

    def greedy(self, observation: ArrayLike) -> NDArray[np.int64]:
        """Return the products predicted best, for observations (W, ..., 3) or (W, ..., 11); shape (W, ...)."""
        x = visit_features(observation)
        score = x.reshape(len(x), -1, x.shape[-1]) @ self.agent.posterior.mean.mT
        return score.argmax(axis=-1).reshape(x.shape[:-1])

    def update(
        self,
        observation: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        *_: ArrayLike,
        played: ArrayLike = True,
    ) -> None:
        """Learn the click of each step that was played, and ignore the next state."""
        played = as_flags("played", played, np.shape(action))
        x = visit_features(observation) * played[..., None]
        self.agent.update(Context(np.arange(len(x)), x), action, reward * played)


def visit_features(observation: ArrayLike) -> NDArray[np.float64]:
    """Return one-hot features of an observation, (..., 3) or (..., 11), for a linear model.

    If the intent is observed, they encode persona and intent together, and patience: d = 25. If it is hidden,
    they encode the persona, and each of the last items of a shop of ten together with its click: d = 114.
    """
    first, *rest = np.moveaxis(np.asarray(observation), -1, 0)
    if len(rest) == 2:
        places = first * N_INTENTS + rest[0], rest[1]
        sizes = N_PERSONAS * N_INTENTS, PATIENCE + 1
    else:
        items = rest[:LAST]
        clicks = rest[LAST:]
        places = first, *(2 * np.array(items) + clicks)
        sizes = N_PERSONAS, *[2 * 11] * LAST
    ones = [np.eye(n)[place] for place, n in zip(places, sizes, strict=True)]
    return np.concatenate(ones, axis=-1)
