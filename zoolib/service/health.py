"""When a model fails: a breaker that leaves it alone for a while, and a fallback that stands in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zoolib.agents.policies import greedy, with_floor
from zoolib.service.store.registry import Store

FALLBACK = "fallback: epsilon-greedy"
FALLBACK_FLOOR = 0.1  # share of its choices that are uniform


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
    """Counts a model's failures in a row; from `patience` of them on, the model rests until the next check.

    Checks are `pause` seconds apart, whether the model serves or rests.
    """

    def __init__(self, patience: int, pause: float) -> None:
        self.patience, self.pause = patience, pause
        self.failures, self.open = 0, False
        self.reason = ""
        self._checked: float | None = None

    def check_is_due(self, now: float) -> bool:
        """Whether it is time for a health check."""
        # A clock that went backwards is no reason to wait until it has caught up.
        return self._checked is None or not 0 <= now - self._checked < self.pause

    def checked(self, reason: str, now: float) -> None:
        """Take in a health check: healthy if there is no reason why not."""
        self.failures, self.open = 0, bool(reason)
        self.reason, self._checked = reason, now

    def tried(self, reason: str, now: float) -> None:
        """Take in an attempt to serve: a success if there is no reason why not."""
        self.failures = self.failures + 1 if reason else 0
        self.reason = reason
        if self.failures >= self.patience and not self.open:
            self.open, self._checked = True, now


class Fallback:
    """A choice that needs no model and no features: mostly the products with the best click rate.

    What is new in the store's log is counted before each choice.
    """

    def __init__(self, store: Store) -> None:
        self.store, self.seq = store, 0
        self.visits, self.rewards = np.zeros((2, store.n_arms))

    def probabilities(self) -> NDArray[np.float64]:
        """Return the probabilities to draw an arm with, shape (K,)."""
        for arm, n, total, last in self.store.arm_totals(after=self.seq):
            self.visits[arm] += n
            self.rewards[arm] += total
            self.seq = max(self.seq, last)
        rates = self.rewards / np.maximum(self.visits, 1)
        return with_floor(greedy(rates), FALLBACK_FLOOR)
