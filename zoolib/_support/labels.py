"""Labels: the names that a shop gives its arms, and their places in arrays."""

from __future__ import annotations

from collections.abc import Hashable, Iterable, Iterator, Sequence
from numbers import Integral

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import as_ids, as_size
from zoolib._support.tables import is_missing

# Sets have no order of their own, and a text or bytes are a single label.
UNORDERED = set | frozenset | str | bytes


class Labels:
    """Labels of arms in their order, no two alike: `names`, or 0, 1, … if only their number is given.

    Errors call the arms by the `name` under which they came.
    """

    def __init__(self, name: str, arms: int | Sequence[Hashable] | Labels) -> None:
        self.names = None
        self._places = {}
        if isinstance(arms, Labels):
            arms = arms.setting()
        if isinstance(arms, Integral):
            self._n = as_size(name, arms)
            return
        one_axis = isinstance(arms, Iterable) and getattr(arms, "ndim", 1) == 1
        if not one_axis or isinstance(arms, UNORDERED):
            raise TypeError(
                f"{name} must be a whole number or a sequence of labels: got {arms!r:.100}"
            )
        self.names = tuple(_label(name, one) for one in arms)
        self._n = as_size(f"number of {name}", len(self.names))
        for place, label in enumerate(self.names):
            if self._places.setdefault(label, place) != place:
                raise ValueError(f"{name} must differ: got {label!r} more than once")

    def __len__(self) -> int:
        return self._n

    def __getitem__(self, place: int | slice) -> Hashable:
        """Return the label at a place, or those of a slice."""
        return (range(self._n) if self.names is None else self.names)[place]

    def __iter__(self) -> Iterator[Hashable]:
        return iter(self[:])

    def __repr__(self) -> str:
        return repr(self[:])

    def setting(self) -> int | list[Hashable]:
        """Return the argument that makes the same labels again."""
        return self._n if self.names is None else list(self.names)

    def places(
        self, name: str, labels: ArrayLike, shape: tuple[int, ...] | None = None
    ) -> NDArray[np.int64]:
        """Return the places of labels, a list or array of them or, with ``shape=()``, of a single one."""
        if self.names is None:
            return as_ids(name, labels, self._n, shape)
        if shape != () and isinstance(labels, UNORDERED):
            raise TypeError(f"{name} must be a sequence of labels: got {labels!r:.100}")
        given = [labels] if shape == () else list(labels)
        if shape not in (None, (), (len(given),)):
            raise ValueError(f"{name} must have shape {shape}: got {(len(given),)}")
        try:
            found = [self._places[_label(name, one)] for one in given]
        except KeyError as unknown:
            known = ", ".join(map(repr, self.names[:5]))
            more = f" and {self._n - 5} more" if self._n > 5 else ""
            raise ValueError(
                f"{name} must be one of {known}{more}: got {unknown.args[0]!r}"
            ) from None
        return np.array(found, np.int64).reshape(len(found) if shape is None else shape)

    def of(self, places: int | NDArray[np.int64]) -> Hashable | NDArray:
        """Return the labels at places: one for a single place, else an array of them."""
        if self.names is None:
            return places
        if np.ndim(places) == 0:
            return self.names[int(places)]
        return as_objects([self.names[place] for place in np.asarray(places).tolist()])

    def and_more(self, arms: int | Sequence[Hashable]) -> Labels:
        """Return these labels, followed by others."""
        more = Labels("arms", arms)
        if (self.names is None) != (more.names is None):
            raise TypeError(
                "arms must be labels for an agent that has labels, and a number for one that has none: "
                f"got {arms!r}"
            )
        return Labels("arms", self.setting() + more.setting())


def as_objects(things: Iterable[Hashable]) -> NDArray[np.object_]:
    """Return objects, which may be tuples, as an array with one axis."""
    things = list(things)
    return np.fromiter(things, object, len(things))


def _label(name: str, value: object) -> Hashable:
    """Return a label: Python's own instead of NumPy's, and a tuple for the list that a file makes of it."""
    if isinstance(value, np.datetime64 | np.timedelta64):
        raise TypeError(f"{name} must hold times as texts: got {value!r}")
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return tuple(_label(name, one) for one in value)
    try:
        hash(value)
    except TypeError:
        raise TypeError(f"{name} must hold hashable labels: got {value!r}") from None
    if value is not None and is_missing(value):
        raise ValueError(f"{name} must hold labels without gaps: got {value!r}")
    return value
