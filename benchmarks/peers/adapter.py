"""The calls that the benchmarks make, which each adapter translates for its library."""

from __future__ import annotations

from abc import ABC, abstractmethod

import numpy as np
from numpy.typing import NDArray

from zoolib import Context

Numbers = NDArray[np.float64]
Arms = NDArray[np.int64]


class Adapter(ABC):
    """Another program behind the calls of an agent; what its docstring says is shown beside its times.

    A library that also takes many visits in one call has `select_many` and `update_many`, as
    `zoolib.LinUCBAgent` does: features (n, K, d), arms (n,) and rewards (n,).

    Attributes
    ----------
    distribution, module : str
        Of a library: what pip installs, and what Python imports.
    same_scores : bool
        Whether `scores` returns LinUCB's scores by the program's own posterior, which should be ours.
    """

    distribution: str
    module: str
    same_scores = True

    def select(self, context: Context) -> int:
        """Choose an arm."""
        return int(self.scores(context).argmax())

    @abstractmethod
    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""

    def scores(self, context: Context) -> Numbers:
        """Return LinUCB's scores by the program's own posterior, shape (n_arms,)."""
        raise NotImplementedError(f"{type(self).__name__} has no scores")

    @classmethod
    def note(cls) -> str:
        """Return how it is driven, and what it does otherwise."""
        return " ".join(cls.__doc__.split())


def bounds(rows: NDArray, mean: NDArray, A: NDArray, alpha: float) -> Numbers:
    """Return upper confidence bounds of rows (n, d) by a posterior that shows its precision A."""
    widths = np.sqrt(np.einsum("ij,ji->i", rows, np.linalg.solve(A, rows.T)))
    return rows @ mean + alpha * widths
