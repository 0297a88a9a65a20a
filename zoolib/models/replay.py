"""A memory of past visits, from which networks are trained repeatedly.

A network that is trained on the newest row alone forgets what it learnt about other customers, which is
called *catastrophic forgetting*. Rows drawn from a buffer are as mixed as past traffic (Lin 1992).
See Chapter 3, "The student and her notes".
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from contextlib import contextmanager

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from zoolib._support.checks import Seed, as_seeds, as_size
from zoolib._support.generators import stream
from zoolib._support.state import Learner


class ReplayBuffer(Learner):
    """The newest `capacity` rows of a table; with worlds one table per world, which may differ in length.

    Parameters
    ----------
    capacity : int
        Number of rows kept.
    columns : sequence of (shape, dtype)
        Shape and type of each entry of a row.
    n_worlds : int, optional
        Number of worlds W; if omitted, there is no worlds axis.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of the draws of `sample`; with worlds, one for all or one for each.

    Examples
    --------
    >>> buffer = ReplayBuffer(capacity=2, columns=[((1,), float), ((), bool)])
    >>> for number in range(3):
    ...     buffer.add([number], number > 1)
    >>> x, large = buffer.newest(2)
    >>> x.ravel(), large
    (array([1., 2.]), array([False,  True]))
    """

    _learns = ("_added", "_held", "generators")  # the number of rows comes first

    def __init__(
        self,
        capacity: int,
        columns: Sequence[tuple[tuple[int, ...], DTypeLike]],
        n_worlds: int | None = None,
        seed: Seed | Sequence[Seed] = 0,
    ) -> None:
        self.capacity = as_size("capacity", capacity)
        self.n_worlds = None if n_worlds is None else as_size("n_worlds", n_worlds)
        lead = () if n_worlds is None else (self.n_worlds,)
        # World w owns rows w capacity … of one long table, because a single index is fastest.
        self._first = self.capacity * np.arange(n_worlds or 1).reshape(lead)
        n_rows = self._first.size * self.capacity
        self._columns = [np.zeros((n_rows, *shape), dtype) for shape, dtype in columns]
        # Rows ever added to each world: plain numbers, as a state holds them, and checks that none is below 0.
        self._added = np.zeros(lead, int).tolist()
        self._lost: list[tuple] | None = None  # rows overwritten, if they may come back
        self.reseed(seed)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Restart the random numbers of `sample` from a new seed."""
        seeds = as_seeds("seed", seed, self.n_worlds)
        self.generators = [stream(one, "replay") for one in seeds]

    def __len__(self) -> int:
        """Return the number of rows held; with worlds, the smallest number in any world."""
        return int(self._n_held.min())

    def add(self, *row: ArrayLike, played: NDArray[np.bool_] | None = None) -> None:
        """Store one row per world, or only in the worlds `played`; the oldest row is overwritten.

        A row has one entry per column, (...) or (W, ...), already checked.
        """
        before = np.array(self._added)
        step = 1
        at = before % self.capacity + self._first
        if played is not None and not played.all():
            step = played
            at = at[played]
            row = [value[played] for value in row]
        if self._lost is not None:
            self._lost.append((at, [column[at].copy() for column in self._columns]))
        self._write(at, row)
        self._added = (before + step).tolist()

    def _write(self, at: NDArray[np.int64], row: Sequence[ArrayLike]) -> None:
        for column, value in zip(self._columns, row, strict=True):
            column[at] = value

    @contextmanager
    def _unchanged_on_failure(self) -> Iterator[None]:
        """Undo what is added and drawn: instead of a copy of all rows, keep those that are overwritten."""
        before = self._added
        outer = self._lost
        luck = [generator.bit_generator.state for generator in self.generators]
        self._lost = []
        try:
            yield
        except BaseException:
            for at, row in reversed(self._lost):
                self._write(at, row)
            self._added = before
            for generator, state in zip(self.generators, luck, strict=True):
                generator.bit_generator.state = state
            raise
        finally:
            if outer is not None:
                outer.extend(self._lost)
            self._lost = outer

    def sample(self, n: int) -> list[NDArray]:
        """Draw n rows per world, uniformly and with replacement; columns (n, ...) or (W, n, ...)."""
        return self._rows(self.draw(n))

    def newest(self, n: int) -> list[NDArray]:
        """Return the last n rows, the newest last; fewer if a world holds fewer. Shapes as for `sample`."""
        last = np.array(self._added)[..., None] + np.arange(-min(n, len(self)), 0)
        return self._rows(last % self.capacity)

    def draw(self, n: int) -> NDArray[np.int64]:
        """Draw the positions of n rows per world, (n,) or (W, n)."""
        held = self._n_held.reshape(-1).tolist()
        if not all(held):
            raise ValueError("memory must hold rows to draw from: got a world without")
        pairs = zip(self.generators, held, strict=True)
        drawn = [generator.integers(m, size=n) for generator, m in pairs]
        return np.reshape(drawn, (*self._first.shape, n))

    def _rows(self, places: NDArray[np.int64]) -> list[NDArray]:
        """Return the columns of the rows at these positions, (n,) or (W, n)."""
        at = places + self._first[..., None]
        return [column.take(at, axis=0) for column in self._columns]

    @property
    def _n_held(self) -> NDArray[np.int64]:
        """Number of rows held, shape () or (W,)."""
        return np.minimum(self._added, self.capacity)

    @property
    def _held(self) -> list[NDArray]:
        """The filled parts of the columns, in the order of their positions."""
        n = int(self._n_held.max())
        shape = (*self._first.shape, self.capacity)
        tables = [column.reshape(*shape, *column.shape[1:]) for column in self._columns]
        return [table[:, :n] if self.n_worlds else table[:n] for table in tables]
