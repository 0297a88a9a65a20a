"""When a model fails: a breaker that leaves it alone for a while, and a fallback that stands in."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray


@dataclass(frozen=True)
class Health:
    """What a look at the service found.

    Attributes
    ----------
    ok : bool
        Whether every version that should serve does.
    problems : dict of str
        The last trouble of each part that has one.
    latency : dict of float
        The 99th percentile of the last calls, in milliseconds.
    counters : dict of int
        What was counted since the database was made: rejections, steps backwards of the clock.
    alerts : tuple of str
        What the monitors reported last.
    """

    ok: bool
    problems: dict[str, str]
    latency: dict[str, float]
    counters: dict[str, int]
    alerts: tuple[str, ...]


class Breaker:
    """Counts a model's failures in a row, and leaves it alone from `patience` of them to the next check.

    Parameters
    ----------
    patience : int
        Failures in a row that open it.
    pause : float
        Seconds between two health checks.
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

    def failed(self, reason: str, now: float) -> None:
        """Take in a failure."""
        self.failures, self.reason = self.failures + 1, reason
        if self.failures >= self.patience and not self.open:
            self.open, self._checked = True, now

    def succeeded(self) -> None:
        """Take in a success."""
        self.failures, self.reason = 0, ""


class Fallback:
    """A choice that needs no model and no features: at random, or mostly the most clicked products.

    Parameters
    ----------
    kind : {"epsilon-greedy", "random"}
        Which of the two.
    floor : float
        Share of uniform choices.
    visits, rewards : ndarray, shape (K,)
        What the log knows of each arm.
    seq : int
        Sequence number of the last reward among them.
    """

    def __init__(
        self,
        kind: str,
        floor: float,
        seq: int,
        visits: NDArray[np.float64],
        rewards: NDArray[np.float64],
    ) -> None:
        self.name = f"fallback: {kind}"
        self.floor = 1.0 if kind == "random" else floor
        self.seq, self.visits, self.rewards = seq, visits, rewards

    def probabilities(self) -> NDArray[np.float64]:
        """Return the probabilities to draw an arm with, shape (K,)."""
        rates = self.rewards / np.maximum(self.visits, 1)
        best = rates == rates.max()
        return (1 - self.floor) * best / best.sum() + self.floor / len(best)

    def learn(self, seq: int, x: NDArray[np.float32], arm: int, reward: float) -> None:
        """Count the reward of an arm."""
        self.visits[arm] += 1
        self.rewards[arm] += reward
        self.seq = seq
