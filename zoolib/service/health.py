"""When a model fails: a breaker that leaves it alone for a while, and a fallback that stands in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zoolib.agents.policies import greedy, with_floor
from zoolib.service.store import Store

FALLBACK = "fallback: epsilon-greedy"
FALLBACK_FLOOR = 0.1  # share of its choices that are uniform
FALLBACK_REWARDS = 10_000  # the newest rewards, from which it takes click rates


@dataclass(frozen=True)
class Health:
    """What a look at the service found.

    Attributes
    ----------
    problems : dict of str
        The last trouble of each part that has one; empty if all is well.
    counters : dict of int
        What was counted since the database was made: rejections, steps backwards of the clock.
    alerts : tuple of str
        What the monitors reported last.
    """

    problems: dict[str, str]
    counters: dict[str, int]
    alerts: tuple[str, ...]


class Breaker:
    """Counts a model's failures in a row; from `patience` of them on, the model rests until a check passes.

    Checks are `pause` seconds apart, whether the model serves or rests. A model that rested then has one
    try.
    """

    def __init__(self, patience: int, pause: float) -> None:
        self.patience, self.pause = patience, pause
        self.failures, self.reason = 0, ""
        self._checked: float | None = None

    @property
    def open(self) -> bool:
        """Whether the model is left alone."""
        return self.failures >= self.patience

    def check_is_due(self, now: float) -> bool:
        """Whether it is time for a health check."""
        # A clock that went backwards is no reason to wait until it has caught up.
        return self._checked is None or not 0 <= now - self._checked < self.pause

    def checked(self, reason: str, now: float) -> None:
        """Take in a health check: passed if there is no reason why not."""
        self.failures = (
            self.patience if reason else min(self.failures, self.patience - 1)
        )
        self.reason, self._checked = reason, now

    def tried(self, reason: str, now: float) -> None:
        """Take in an attempt to serve: a success if there is no reason why not."""
        self.failures = self.failures + 1 if reason else 0
        self.reason = reason
        if self.failures == self.patience:  # it rests from now on
            self._checked = now


def fallback_probabilities(store: Store) -> NDArray[np.float64]:
    """Return a policy (K,) that needs no model: mostly the products with the best click rate of late."""
    visits, rewards = store.arm_totals(FALLBACK_REWARDS)
    return with_floor(greedy(rewards / np.maximum(visits, 1)), FALLBACK_FLOOR)
