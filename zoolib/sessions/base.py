"""The interface of agents that look ahead in a session: they observe, act and learn from steps."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import Seed, as_array, as_flags, as_ids, as_seeds
from zoolib._support.generators import Uniforms
from zoolib._support.state import Stateful


class SessionAgent(Stateful):
    """Base class of agents that look ahead: it checks settings and steps, and returns the best action so far.

    A subclass is a ``dataclass`` with settings `n_actions`, `n_worlds` and `seed`. It adds `select` and
    `learn`; `_q_of`, which returns Q (..., K) of observations; and `_observed`, which checks observations.
    """

    _learns = ("_uniforms",)

    def __post_init__(self) -> None:
        super().__post_init__()
        self._lead = () if self.n_worlds is None else (self.n_worlds,)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Restart the random numbers: one seed, or one for each world."""
        seeds = as_seeds("seed", seed, self.n_worlds)
        self.seed = seeds[0] if np.ndim(seed) == 0 else seeds
        self._seeds = seeds
        self._uniforms = Uniforms(seeds, self.n_worlds)

    def greedy(self, observation: ArrayLike) -> int | NDArray[np.int64]:
        """Return the action with the highest current estimate, the first in a tie, without exploring.

        Takes one observation per world, or several along an axis after the worlds axis.
        """
        best = self._q_of(observation).argmax(axis=-1)
        return best if best.ndim else int(best)

    def update(
        self,
        observation: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        next_observation: ArrayLike,
        ended: ArrayLike,
        played: ArrayLike = True,
    ) -> None:
        """Learn from one step in each world. If this fails, nothing is learnt.

        Parameters
        ----------
        observation, action, reward, next_observation : array_like, one for each world
            The step: what was observed and done, the reward, and the next observation.
        ended : bool, or array_like of bool, shape (W,)
            Whether the step ended the session.
        played : bool, or array_like of bool, shape (W,), default True
            False if the step was a reset; resets are not learnt from.
        """
        self.learn(
            self._observed("observation", observation, self._lead),
            as_ids("action", action, self.n_actions, self._lead),
            as_array("reward", reward, self._lead),
            self._observed("next_observation", next_observation, self._lead),
            as_flags("ended", ended, self._lead),
            as_flags("played", played, self._lead),
        )

    def select(self, observation: ArrayLike) -> int | NDArray[np.int64]:
        """Return an action for an observation of each world."""
        raise NotImplementedError

    def learn(self, *step: NDArray) -> None:
        """Learn from a checked step, in the order of `update`."""
        raise NotImplementedError

    def _q_of(self, observation: ArrayLike) -> NDArray:
        raise NotImplementedError

    def _observed(self, name: str, value: ArrayLike, lead: tuple) -> NDArray:
        raise NotImplementedError
