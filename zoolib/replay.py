"""A memory of what was played, from which networks are trained again and again.

Trained on the newest row alone, a network forgets what it knew of other customers: this is
*catastrophic forgetting*. Rows drawn from a buffer are as mixed as the traffic of the past (Lin 1992).
See Chapter 3, "A memory to train from".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from zoolib._checks import as_seeds, as_size
from zoolib._random import stream


class ReplayBuffer:
    """The newest `capacity` rows with their rewards; in many worlds, one buffer a world, in step.

    Parameters
    ----------
    capacity : int
        Number of rows kept.
    n_features : int
        Length d of a row.
    n_worlds : int, optional
        Number of worlds W; without it there is no worlds axis.
    seed : int or sequence of int, default 0
        Seed of what `sample` draws; with worlds, one number for all or one each.
    dtype : float32 or float64, default float32
        Type of the rows and rewards.

    Examples
    --------
    >>> buffer = ReplayBuffer(capacity=2, n_features=1)
    >>> for number in range(3):
    ...     undo = buffer.add([number], reward=0)
    >>> buffer.newest(2)[0].ravel()
    array([1., 2.], dtype=float32)
    """

    def __init__(
        self,
        capacity: int,
        n_features: int,
        n_worlds: int | None = None,
        seed: int | Sequence[int] = 0,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.capacity = as_size("capacity", capacity)
        self.n_worlds = None if n_worlds is None else as_size("n_worlds", n_worlds)
        worlds = () if n_worlds is None else (self.n_worlds,)
        self._x = np.zeros((*worlds, self.capacity, n_features), dtype)
        self._reward = np.zeros((*worlds, self.capacity), dtype)
        self._added = 0
        self.reseed(seed)

    def reseed(self, seed: int | Sequence[int]) -> None:
        """Give `sample` new luck."""
        seeds = as_seeds("seed", seed, self.n_worlds)
        self._generators = [stream(one, "replay") for one in seeds]

    def __len__(self) -> int:
        """Return the number of rows held."""
        return min(self._added, self.capacity)

    def add(self, x: ArrayLike, reward: ArrayLike) -> Callable[[], None]:
        """Remember one row a world, (d,) or (W, d), and its reward; the oldest makes room.

        Returns
        -------
        callable
            Undoes this, as long as nothing else was added.
        """
        place = self._added % self.capacity
        lost = self._x[..., place, :].copy(), self._reward[..., place].copy()

        def write(row: ArrayLike, reward: ArrayLike, step: int) -> None:
            self._x[..., place, :], self._reward[..., place] = row, reward
            self._added += step

        write(x, reward, 1)
        return lambda: write(*lost, -1)

    def sample(self, n: int) -> tuple[NDArray, NDArray]:
        """Draw n rows a world, uniformly and with replacement.

        Returns
        -------
        x : ndarray, shape (n, d) or (W, n, d)
        reward : ndarray, shape (n,) or (W, n)
        """
        held, width = len(self), self._x.shape[-1]
        draws = [generator.integers(held, size=n) for generator in self._generators]
        if self.n_worlds is None:
            return self._x.take(draws[0], axis=0), self._reward.take(draws[0])
        # One long table: world w owns rows w capacity … (w + 1) capacity - 1.
        places = np.array(draws) + self.capacity * np.arange(len(draws))[:, None]
        rows = self._x.reshape(-1, width).take(places, axis=0)
        return rows, self._reward.reshape(-1).take(places)

    def newest(self, n: int) -> tuple[NDArray, NDArray]:
        """Return the last n rows, the newest last; fewer if fewer are held. Shapes as of `sample`."""
        n = min(n, len(self))
        places = np.arange(self._added - n, self._added) % self.capacity
        return self._x[..., places, :], self._reward[..., places]
