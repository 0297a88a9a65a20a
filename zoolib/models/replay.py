"""A memory of what was played, from which networks are trained again and again.

Trained on the newest row alone, a network forgets what it knew of other customers: this is
*catastrophic forgetting*. Rows drawn from a buffer are as mixed as the traffic of the past (Lin 1992).
See Chapter 3, "A memory to train from".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from zoolib._support.checks import Seed, as_array, as_seeds, as_size
from zoolib._support.generators import stream
from zoolib._support.state import Learner


class ReplayBuffer(Learner):
    """The newest `capacity` rows with their rewards; in many worlds, one buffer per world, in step.

    Parameters
    ----------
    capacity, n_features : int
        Number of rows kept, and length d of a row.
    n_worlds : int, optional
        Number of worlds W; without it there is no worlds axis.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of what `sample` draws; with worlds, one for all or one for each.
    dtype : float32 or float64, default float32
        Type of the rows, rewards and weights.
    n_weights : int, optional
        Number M of weights kept beside each row, such as how often each member of an ensemble has it;
        without it there are none.

    Examples
    --------
    >>> buffer = ReplayBuffer(capacity=2, n_features=1)
    >>> for number in range(3):
    ...     undo = buffer.add([number], reward=0)
    >>> x, reward = buffer.newest(2)
    >>> x.ravel()
    array([1., 2.], dtype=float32)
    """

    _learns = ("_added", "_held", "_generators")  # how much is held comes first

    def __init__(
        self,
        capacity: int,
        n_features: int,
        n_worlds: int | None = None,
        seed: Seed | Sequence[Seed] = 0,
        dtype: DTypeLike = np.float32,
        n_weights: int | None = None,
    ) -> None:
        self.capacity = as_size("capacity", capacity)
        self.n_worlds = None if n_worlds is None else as_size("n_worlds", n_worlds)
        shape = (self.capacity,) if n_worlds is None else (n_worlds, self.capacity)
        self._every = (slice(None),) * (len(shape) - 1)  # the index of all worlds
        # Rows, rewards and weights: columns of one table, with the rows along the same axis.
        self._columns = [np.zeros((*shape, n_features), dtype), np.zeros(shape, dtype)]
        if n_weights is not None:
            n_weights = as_size("n_weights", n_weights)
            self._columns.append(np.zeros((*shape, n_weights), dtype))
        self._added = 0
        self.reseed(seed)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Seed what `sample` draws anew."""
        seeds = as_seeds("seed", seed, self.n_worlds)
        self._generators = [stream(one, "replay") for one in seeds]

    def __len__(self) -> int:
        """Return the number of rows held."""
        return min(self._added, self.capacity)

    def add(
        self, x: ArrayLike, reward: ArrayLike, weight: ArrayLike | None = None
    ) -> Callable[[], None]:
        """Remember one row per world; the oldest makes room.

        Parameters
        ----------
        x, reward : array_like, shapes (d,) and (), or (W, d) and (W,)
            Features, and what they earned.
        weight : array_like, shape (M,) or (W, M), optional
            Weights of the row, where they are kept.

        Returns
        -------
        callable
            Undoes this, as long as nothing else was added.
        """
        at = (*self._every, self._added % self.capacity)
        lost = [column[at].copy() for column in self._columns]
        given = {"x": x, "reward": reward}
        if weight is not None:
            given["weight"] = weight
        row = [
            as_array(name, value, old.shape, old.dtype)
            for (name, value), old in zip(given.items(), lost, strict=True)
        ]

        def write(row: Sequence[NDArray], step: int) -> None:
            for column, value in zip(self._columns, row, strict=True):
                column[at] = value
            self._added += step

        write(row, 1)
        return lambda: write(lost, -1)

    def sample(self, n: int) -> list[NDArray]:
        """Draw n rows per world, uniformly and with replacement.

        Returns
        -------
        x, reward, weight : ndarray, shapes (n, d), (n,) and (n, M), behind an axis W with worlds
            Weights only if they are kept.
        """
        held = len(self)
        places = np.array([g.integers(held, size=n) for g in self._generators])
        worlds = np.arange(len(places))[:, None]
        at = places[0] if self.n_worlds is None else (worlds, places)
        return [column[at] for column in self._columns]

    def newest(self, n: int) -> list[NDArray]:
        """Return the last n rows, the newest last; fewer if fewer are held. Shapes as of `sample`."""
        n = min(n, len(self))
        places = np.arange(self._added - n, self._added) % self.capacity
        return [column[(*self._every, places)] for column in self._columns]

    @property
    def _held(self) -> list[NDArray]:
        """The parts of the columns that hold rows, in the order of their places."""
        at = (*self._every, slice(len(self)))
        return [column[at] for column in self._columns]
