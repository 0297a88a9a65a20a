"""Tallies: the sums that a monitor keeps of a window of events."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_array, as_ids, as_size


def rates(n_segments: int | None = None) -> Callable[..., NDArray[np.int64]]:
    """Count events and successes, such as visits and clicks, requests and errors.

    With `n_segments`, the number S of segments such as personas, each is counted apart. The tally takes
    ``(success,)``, or ``(segment, success)`` with segments from 0 to S - 1 and success 0 or 1; it returns
    (..., S, 2): events and successes of each segment.
    """
    if n_segments is None:
        one = rates(1)
        return lambda success: one(np.zeros(success.shape, int), success)
    size = as_size("n_segments", n_segments)

    def tally(segment: NDArray, success: NDArray) -> NDArray[np.int64]:
        known = np.isin(success, [0, 1])  # NaN is neither
        if not known.all():
            raise ValueError(f"success must be 0 or 1: got {success[~known].flat[0]}")
        pairs = 2 * as_ids("segment", segment, size) + success.astype(np.int64)
        table = _histogram(pairs, 2 * size).reshape(*segment.shape[:-1], size, 2)
        return np.stack([table.sum(axis=-1), table[..., 1]], axis=-1)

    return tally


def counts(n_values: int) -> Callable[[NDArray], NDArray[np.int64]]:
    """Count how often each value comes, such as a persona, an arm or a category.

    With K = `n_values` the tally takes ``(value,)`` with values from 0 to K - 1, and returns (..., K, 2):
    all events, and those with each value.
    """
    size = as_size("n_values", n_values)

    def tally(value: NDArray) -> NDArray[np.int64]:
        counted = _histogram(as_ids("value", value, size), size)
        return np.stack([np.full_like(counted, value.shape[-1]), counted], axis=-1)

    return tally


def moments(
    x: NDArray, y: NDArray, weight: NDArray | None = None
) -> NDArray[np.float64]:
    """Sum the moments for a correlation; this function is itself a tally.

    Parameters
    ----------
    x, y : ndarray, shape (..., n)
        Finite numbers.
    weight : ndarray, shape (..., n), optional
        Weight of each event, 0 or more, for example 1 for explored traffic and 0 for the rest,
        or one over the propensity; 1 if omitted.

    Returns
    -------
    ndarray, shape (..., 6)
        Sums of the weights, and of x, y, x², y² and x y times the weights.
    """
    weight = np.ones(x.shape) if weight is None else as_array("weight", weight)
    if (weight < 0).any():
        raise ValueError(f"weight must be 0 or more: got {weight.min()}")
    x, y = (as_array(*one).astype(float) for one in (("x", x), ("y", y)))
    terms = np.stack([np.ones(x.shape), x, y, x * x, y * y, x * y], axis=-1)
    return (weight[..., None] * terms).sum(axis=-2)


def _histogram(value: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Count the values 0 to size - 1 along the last axis."""
    return np.apply_along_axis(np.bincount, -1, value, minlength=size)
