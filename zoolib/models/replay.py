"""A memory of what was played, from which networks are trained again and again.

Trained on the newest row alone, a network forgets what it knew of other customers: this is
*catastrophic forgetting*. Rows drawn from a buffer are as mixed as the traffic of the past (Lin 1992).
See Chapter 3, "Experience replay".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from zoolib._support.checks import Seed, as_seeds, as_size
from zoolib._support.generators import stream
from zoolib._support.state import Learner


class ReplayBuffer(Learner):
    """The newest `capacity` rows of a table; in many worlds one table per world, each at its own pace.

    Parameters
    ----------
    capacity : int
        Number of rows kept.
    columns : sequence of (shape, dtype)
        What a row holds.
    n_worlds : int, optional
        Number of worlds W; without it there is no worlds axis.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of what `sample` draws; with worlds, one for all or one for each.

    Examples
    --------
    >>> buffer = ReplayBuffer(capacity=2, columns=[((1,), float), ((), bool)])
    >>> for number in range(3):
    ...     undo = buffer.add([number], number > 1)
    >>> x, large = buffer.newest(2)
    >>> x.ravel(), large
    (array([1., 2.]), array([False,  True]))
    """

    _learns = ("_added", "_held", "_generators")  # how much is held comes first

    def __init__(
        self,
        capacity: int,
        columns: Sequence[tuple[tuple[int, ...], DTypeLike]],
        n_worlds: int | None = None,
        seed: Seed | Sequence[Seed] = 0,
    ) -> None:
        self.capacity = as_size("capacity", capacity)
        self.n_worlds = None if n_worlds is None else as_size("n_worlds", n_worlds)
        lead = () if n_worlds is None else (n_worlds,)
        # World w owns rows w capacity … of one long table: to take them by one index is quickest.
        self._first = self.capacity * np.arange(n_worlds or 1).reshape(lead)
        n_rows = self._first.size * self.capacity
        self._columns = [np.zeros((n_rows, *shape), dtype) for shape, dtype in columns]
        self._added = np.zeros(lead, int).tolist()  # rows of each world, ever
        self.reseed(seed)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Seed what `sample` draws anew."""
        seeds = as_seeds("seed", seed, self.n_worlds)
        self._generators = [stream(one, "replay") for one in seeds]

    def __len__(self) -> int:
        """Return the number of rows held: in every world, if some hold more."""
        return int(self._n_held.min())

    def add(
        self, *row: ArrayLike, played: NDArray[np.bool_] | None = None
    ) -> Callable[[], None]:
        """Remember one row per world, or one where something was `played`; the oldest makes room.

        A row has one entry per column, (...) or (W, ...), checked before. Return what undoes this, as long as
        nothing else was added.
        """
        before, step = np.array(self._added), 1
        at = before % self.capacity + self._first
        if played is not None and not played.all():
            step, at, row = played, at[played], [value[played] for value in row]
        lost = [column[at].copy() for column in self._columns]

        def write(row: Sequence[ArrayLike], added: NDArray) -> None:
            for column, value in zip(self._columns, row, strict=True):
                column[at] = value
            self._added = added.tolist()

        write(row, before + step)
        return lambda: write(lost, before)

    def sample(self, n: int) -> list[NDArray]:
        """Draw n rows per world, uniformly and with replacement; columns (n, ...) or (W, n, ...)."""
        return self.rows(self.draw(n))

    def newest(self, n: int) -> list[NDArray]:
        """Return the last n rows, the newest last; fewer if a world holds fewer. Shapes as of `sample`."""
        return self.rows(self.last(n))

    def draw(self, n: int) -> NDArray[np.int64]:
        """Draw the places of n rows per world, (n,) or (W, n): a row follows that of the place before."""
        held = self._n_held.reshape(-1).tolist()
        pairs = zip(self._generators, held, strict=True)
        drawn = [generator.integers(m, size=n) for generator, m in pairs]
        return np.reshape(drawn, (*self._first.shape, n))

    def last(self, n: int) -> NDArray[np.int64]:
        """Return the places of the rows of `newest`."""
        last = np.array(self._added)[..., None] + np.arange(-min(n, len(self)), 0)
        return last % self.capacity

    def newer(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many rows of its world are newer than that of each place."""
        return (np.array(self._added)[..., None] - 1 - places) % self.capacity

    def rows(self, places: NDArray[np.int64]) -> list[NDArray]:
        """Return the columns of rows at places."""
        at = places + self._first[..., None]
        return [column.take(at, axis=0) for column in self._columns]

    @property
    def _n_held(self) -> NDArray[np.int64]:
        """Number of rows held, shape () or (W,)."""
        return np.minimum(self._added, self.capacity)

    @property
    def _held(self) -> list[NDArray]:
        """The parts of the columns that hold rows, in the order of their places."""
        n, shape = int(self._n_held.max()), (*self._first.shape, self.capacity)
        tables = [column.reshape(*shape, *column.shape[1:]) for column in self._columns]
        return [table[:, :n] if self.n_worlds else table[:n] for table in tables]
