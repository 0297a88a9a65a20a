"""The session world as a Gymnasium environment, for whoever brings an agent from elsewhere."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import gymnasium
    from gymnasium.spaces import Discrete, MultiDiscrete

from zoolib._support.checks import Seed
from zoolib.world.sessions import (
    LAST,
    N_INTENTS,
    N_PERSONAS,
    PATIENCE,
    SessionSimulator,
)


class SessionEnv(gymnasium.Env):
    """One session world behind Gymnasium's interface: the same visitors and luck as `SessionSimulator`.

    Parameters
    ----------
    n_products, n_users, seed, carry_over, hidden
        As for `SessionSimulator`, with a single seed.

    Examples
    --------
    >>> env = SessionEnv(seed=42)
    >>> observation, info = env.reset(seed=1)
    >>> observation, reward, terminated, truncated, info = env.step(0)
    """

    def __init__(
        self,
        n_products: int = 10,
        n_users: int = 1000,
        seed: Seed = 42,
        carry_over: float = 1.0,
        hidden: bool = False,
    ) -> None:
        if np.ndim(seed) > 0:
            raise ValueError(f"seed must be one seed, of one world: got {seed!r}")
        self.shop = SessionSimulator(n_products, n_users, seed, carry_over, hidden)
        self.action_space = Discrete(self.shop.n_products)
        seen = (N_PERSONAS, N_INTENTS, PATIENCE + 1)
        if hidden:
            seen = (N_PERSONAS, *[self.shop.n_products + 1] * LAST, *[2] * LAST)
        self.observation_space = MultiDiscrete(seen)

    def reset(
        self, *, seed: int | None = None, options: dict | None = None
    ) -> tuple[NDArray[np.int64], dict]:
        """Let the next visitor come; with a seed, the first one of a new stream of luck."""
        super().reset(seed=seed)
        if seed is not None:
            self.shop.reseed(seed)
        return self.shop.reset(), {}

    def step(self, action: int) -> tuple[NDArray[np.int64], float, bool, bool, dict]:
        """Show a product: see `SessionSimulator.step`. Sessions are never cut short."""
        observation, reward, ended = self.shop.step(action)
        return observation, float(reward), ended, False, {}
