"""Tables as they are: columns of pandas, polars and their like, read by name, and never by position instead.

Labels are the names of columns and, in pandas, of rows. The default ones, 0, 1, … as pandas counts, or
``column_0``, … in polars, say nothing. Nothing here loads pandas or polars.
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from numbers import Integral, Real
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray


def is_table(value: object) -> bool:
    """Return whether a value is a column or a frame of pandas or polars, or one that looks alike."""
    return hasattr(value, "to_numpy")


def row_labels(value: object) -> Any:
    """Return the pandas index of a frame, of a column, or of what was made from one; None if there is none."""
    return value.index if hasattr(value, "iloc") else getattr(value, "row_labels", None)


def column_labels(value: object) -> tuple[Hashable, ...] | None:
    """Return the names along the last axis of a frame, or of a single row; None if they say nothing."""
    labels = getattr(value, "columns", None)
    if labels is None:
        labels = row_labels(value)
    if labels is None or is_default(labels):
        return None
    return tuple(labels)


def is_default(labels: Any) -> bool:
    """Return whether labels of rows or columns are those that a table gets by itself."""
    counted = getattr(labels, "start", None) == 0 and labels.step == 1
    return counted or list(labels) == [f"column_{i}" for i in range(len(labels))]


def same_rows(**values: object) -> Any:
    """Refuse columns and frames whose rows are labelled in different orders; return the labels that they have.

    Default labels agree with all others except the same ones in another order.
    """
    first = wanted = None
    for name, value in values.items():
        labels = row_labels(value)
        if wanted is None:
            first = name
            wanted = labels
        else:
            check_rows(name, labels, first, wanted)
    return wanted


def check_rows(name: str, labels: Any, other: str, wanted: Any) -> None:
    """Refuse labels of rows in another order than those of something else with as many rows."""
    if labels is None or labels is wanted or len(labels) != len(wanted):
        return
    got = list(labels)
    wanted_ones = list(wanted)
    default = is_default(labels) or is_default(wanted)
    if got == wanted_ones or (default and set(got) != set(wanted_ones)):
        return
    row = next(i for i, one in enumerate(got) if one != wanted_ones[i])
    raise ValueError(
        f"{name} must have the rows of {other}, in their order: got the label {got[row]!r} for "
        f"{wanted_ones[row]!r} in row {row}"
    )


def in_order(
    name: str,
    labels: Sequence[Hashable] | None,
    wanted: Sequence[Hashable] | None,
) -> list[int] | slice:
    """Return where the wanted labels stand among those of a table; all if one of the two has none."""
    if labels is None or wanted is None or tuple(labels) == tuple(wanted):
        return slice(None)
    places = {label: place for place, label in enumerate(labels)}
    missing = [label for label in wanted if label not in places]
    if missing or len(labels) != len(wanted):
        what = f"lacks {missing[0]!r}" if missing else f"{len(labels)} of them"
        raise ValueError(
            f"{name} must have each of the labels {list(wanted)!r:.200} once: got {list(labels)!r:.200}, {what}"
        )
    return [places[label] for label in wanted]


def rows_in_order(
    name: str, labels: Any, wanted: Sequence[Hashable]
) -> list[int] | slice:
    """Return the same for labels of rows, of which the default ones say nothing."""
    if labels is None or is_default(labels):
        return slice(None)
    return in_order(f"rows of {name}", tuple(labels), wanted)


def column(name: str, frame: Any, key: Hashable) -> list:
    """Return a column of a frame, under its name, as a list without gaps."""
    if key not in list(frame.columns):
        raise ValueError(
            f"{name} must have a column {key!r}: got {list(map(str, frame.columns))}"
        )
    values = frame[key].to_list()
    gaps = [row for row, value in enumerate(values) if is_missing(value)]
    if gaps:
        raise ValueError(f"column {key!r} must have no gaps: got one in row {gaps[0]}")
    return values


def unmasked(name: str, value: ArrayLike) -> ArrayLike:
    """Return a value unless a mask hides some of it: what lies behind a mask says nothing."""
    for part in value if isinstance(value, list | tuple) else [value]:
        if isinstance(part, np.ma.MaskedArray) and np.ma.is_masked(part):
            raise ValueError(f"{name} must have no masked values")
    return value


def numbers(name: str, value: ArrayLike) -> NDArray:
    """Return a table, or an array of objects, as an array of numbers; gaps become NaN, flags 0 and 1.

    Columns without numbers are refused by name and row.
    """
    array = np.asarray(unmasked(name, value))
    if array.dtype != object:
        return array
    missing = np.array([is_missing(one) for one in array.flat], bool)
    missing = missing.reshape(array.shape)
    for at, one in np.ndenumerate(array):
        # A table may have gaps; a single value that is missing is no number.
        if (not missing[at] or at == ()) and not isinstance(one, Real | np.bool_):
            raise TypeError(
                f"{name} must hold real numbers: got {one!r}{where(value, at)}"
            )
    if missing.any():
        return np.where(missing, np.nan, array).astype(float)
    whole = all(isinstance(one, Integral) for one in array.flat)
    return array.astype(np.int64 if whole and array.size else float)


def where(table: object, at: tuple[int, ...]) -> str:
    """Return, for errors, the row and the column of an entry of a table; nothing for other things."""
    if not is_table(table):
        return ""
    labels = column_labels(table)
    if len(at) == 2:
        return f" in column {labels[at[1]] if labels else at[1]!r}, row {at[0]}"
    label = labels[at[0]] if labels else at[0]
    return f" at {label!r}" if isinstance(label, str) else f" in row {at[0]}"


def is_missing(value: object) -> bool:
    """Return whether a value is None, pandas' NA, or another that does not equal itself, as NaN."""
    return value is None or type(value).__name__ == "NAType" or bool(value != value)
