"""The session world as a Gymnasium environment, for use with agents from other libraries."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import gymnasium
    from gymnasium.spaces import Discrete, MultiDiscrete

from zoolib._support.checks import Seed
from zoolib.world import sessions


class SessionEnv(gymnasium.Env):
    """One session world with Gymnasium's interface; visitors and clicks are those of `SessionSimulator`.

    Parameters
    ----------
    seed, **options
        As for `SessionSimulator`, with a single seed.

    Examples
    --------
    >>> env = SessionEnv(seed=42)
    >>> observation, info = env.reset(seed=1)
    >>> observation, reward, terminated, truncated, info = env.step(0)
    """

    def __init__(self, seed: Seed = 42, **options: Any) -> None:
        if np.ndim(seed) > 0:
            raise ValueError(f"seed must be one seed, of one world: got {seed!r}")
        self.shop = sessions.SessionSimulator(seed=seed, **options)
        n = self.shop.n_products
        self.action_space = Discrete(n)
        seen = [sessions.N_INTENTS, sessions.PATIENCE + 1]
        items = [n + 1] * sessions.LAST + [2] * sessions.LAST
        last = items if self.shop.hidden else seen
        self.observation_space = MultiDiscrete([sessions.N_PERSONAS, *last])

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[NDArray[np.int64], dict]:
        """Start the session of the next visitor; a seed restarts the random numbers."""
        super().reset(seed=seed)
        if seed is not None:
            self.shop.reseed(seed)
        return self.shop.reset(), {}

    def step(self, action: int) -> tuple[NDArray[np.int64], float, bool, bool, dict]:
        """Show a product: see `SessionSimulator.step`. Sessions are never truncated."""
        observation, reward, ended = self.shop.step(action)
        return observation, float(reward), ended, False, {}
