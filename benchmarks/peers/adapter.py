"""The calls that the benchmarks make, which each adapter translates for its library."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from zoolib import Context


class Adapter(ABC):
    """Another library behind the calls of an agent."""

    @abstractmethod
    def select(self, context: Context) -> int:
        """Choose an arm."""

    @abstractmethod
    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return LinUCB's scores by the library's own posterior, shape (n_arms,)."""
        raise NotImplementedError(f"{type(self).__name__} has no scores")


class BatchAdapter(Adapter):
    """A library that also takes many visits in one call, as `zoolib.LinUCBAgent` does."""

    @abstractmethod
    def select_many(self, features: NDArray) -> NDArray[np.int64]:
        """Choose an arm for each of n visits (n, K, d); returns shape (n,)."""

    @abstractmethod
    def update_many(
        self, features: NDArray, arms: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> None:
        """Learn from the arms played, (n,), and their rewards, (n,)."""


def bounds(
    rows: NDArray, mean: NDArray, A: NDArray, alpha: float
) -> NDArray[np.float64]:
    """Return upper confidence bounds of rows (n, d) by a posterior that shows its precision A."""
    widths = np.sqrt(np.einsum("ij,ji->i", rows, np.linalg.solve(A, rows.T)))
    return rows @ mean + alpha * widths
