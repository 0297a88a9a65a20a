"""A memory of what was played, from which networks are trained again and again.

Trained on the newest row alone, a network forgets what it knew of other customers: this is
*catastrophic forgetting*. Rows drawn from a buffer are as mixed as the traffic of the past (Lin 1992).
See Chapter 3, "Experience replay".
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from zoolib._support.checks import Seed, as_array, as_seeds, as_size
from zoolib._support.generators import stream
from zoolib._support.state import Learner


class Memory(Learner):
    """The newest `capacity` rows of a table; in many worlds one table per world.

    Worlds may add rows at different paces. A row's *place*, 0 … capacity - 1, is that of the row it
    replaced, so that the rows of a world follow one another, and place 0 follows the last.

    Parameters
    ----------
    capacity : int
        Number of rows kept.
    columns : dict of str to tuple of shape and dtype
        What a row holds.
    n_worlds : int, optional
        Number of worlds W; without it there is no worlds axis.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of what `draw` draws; with worlds, one for all or one for each.

    Attributes
    ----------
    columns : dict of str to ndarray, shape (capacity, ...) or (W capacity, ...)
        The table, those of the worlds one after the other.
    """

    _learns = ("_added", "_held", "_generators")  # how much is held comes first

    def __init__(
        self,
        capacity: int,
        columns: Mapping[str, tuple[tuple[int, ...], DTypeLike]],
        n_worlds: int | None = None,
        seed: Seed | Sequence[Seed] = 0,
    ) -> None:
        self.capacity = as_size("capacity", capacity)
        self.n_worlds = None if n_worlds is None else as_size("n_worlds", n_worlds)
        lead = () if n_worlds is None else (n_worlds,)
        # World w owns rows w capacity … of one long table: to take them by one index is quickest.
        self._first = self.capacity * np.arange(n_worlds or 1).reshape(lead)
        self.columns = {
            name: np.zeros((self._first.size * self.capacity, *shape), dtype)
            for name, (shape, dtype) in columns.items()
        }
        self._added = np.zeros(lead, int).tolist()  # rows of each world, ever
        self.reseed(seed)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Seed what `draw` draws anew."""
        seeds = as_seeds("seed", seed, self.n_worlds)
        self._generators = [stream(one, "replay") for one in seeds]

    def __len__(self) -> int:
        """Return the number of rows held: in every world, if some hold more."""
        return int(self.held.min())

    @property
    def held(self) -> NDArray[np.int64]:
        """Number of rows held, shape () or (W,)."""
        return np.minimum(self._added, self.capacity)

    def put(
        self, row: Sequence[NDArray], played: NDArray[np.bool_] | None = None
    ) -> Callable[[], None]:
        """Remember one row per world, or one where something was played; the oldest makes room.

        A row has one entry per column, (...) or (W, ...), which was checked before. What is returned undoes
        this, as long as nothing else was added.
        """
        before, step = np.array(self._added), 1
        at = before % self.capacity + self._first
        if played is not None and not played.all():
            step, at, row = played, at[played], [value[played] for value in row]
        lost = [column[at].copy() for column in self.columns.values()]

        def write(row: Sequence[NDArray], added: NDArray) -> None:
            for column, value in zip(self.columns.values(), row, strict=True):
                column[at] = value
            self._added = added.tolist()

        write(row, before + step)
        return lambda: write(lost, before)

    def draw(self, n: int) -> NDArray[np.int64]:
        """Draw places of n rows per world, uniformly and with replacement; shape (n,) or (W, n)."""
        held = self.held.reshape(-1).tolist()
        drawn = [
            g.integers(m, size=n) for g, m in zip(self._generators, held, strict=True)
        ]
        return np.reshape(drawn, (*self._first.shape, n))

    def last(self, n: int) -> NDArray[np.int64]:
        """Return the places of the last n rows, the newest last; fewer if a world holds fewer."""
        n = min(n, len(self))
        return (np.array(self._added)[..., None] + np.arange(-n, 0)) % self.capacity

    def newer(self, places: NDArray[np.int64]) -> NDArray[np.int64]:
        """Return how many rows of its world are newer than each of these places, (n,) or (W, n)."""
        return (np.array(self._added)[..., None] - 1 - places) % self.capacity

    def rows(self, places: NDArray[np.int64], *names: str) -> list[NDArray]:
        """Return columns of the rows at places (n,) or (W, n), all if none are named; shapes (..., n, ...)."""
        at = places + self._first[..., None]
        return [self.columns[name].take(at, axis=0) for name in names or self.columns]

    def sample(self, n: int) -> list[NDArray]:
        """Draw n rows per world, uniformly and with replacement; shapes as of `rows`."""
        return self.rows(self.draw(n))

    def newest(self, n: int) -> list[NDArray]:
        """Return the last n rows, the newest last; fewer if fewer are held. Shapes as of `rows`."""
        return self.rows(self.last(n))

    @property
    def _held(self) -> list[NDArray]:
        """The parts of the columns that hold rows, in the order of their places."""
        shape, n = (*self._first.shape, self.capacity), int(self.held.max())
        every = (slice(None),) * self._first.ndim
        return [
            column.reshape(*shape, *column.shape[1:])[(*every, slice(n))]
            for column in self.columns.values()
        ]


class ReplayBuffer(Memory):
    """The newest `capacity` rows of features with their rewards; worlds add theirs in step.

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

    def __init__(
        self,
        capacity: int,
        n_features: int,
        n_worlds: int | None = None,
        seed: Seed | Sequence[Seed] = 0,
        dtype: DTypeLike = np.float32,
        n_weights: int | None = None,
    ) -> None:
        columns = {"x": ((n_features,), dtype), "reward": ((), dtype)}
        if n_weights is not None:
            columns["weight"] = ((as_size("n_weights", n_weights),), dtype)
        super().__init__(capacity, columns, n_worlds, seed)

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
        given = (x, reward) if weight is None else (x, reward, weight)
        row = [
            as_array(name, value, (*self._first.shape, *column.shape[1:]), column.dtype)
            for value, (name, column) in zip(given, self.columns.items(), strict=True)
        ]
        return self.put(row)
