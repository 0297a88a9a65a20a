"""Checks of arguments, shared by all packages. Each names the argument, what came and what was wanted."""

from __future__ import annotations

import math
import sys
import warnings
from collections.abc import Callable, Iterable, Sequence
from numbers import Integral, Real

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from zoolib._support.tables import numbers, unmasked, where

# What may seed a generator. All of them are reduced to whole numbers: see `as_seed`.
Seed = int | np.random.SeedSequence | np.random.Generator
# What needs no look for columns, gaps or masks.
PLAIN = (np.ndarray, float, int)
# A shape wanted: a name stands for any number, and ``...`` in front for any axes.
Shape = tuple[object, ...]
# Products of numbers below this are finite, in single precision too.
LARGEST = np.float32(1e15)


def as_size(name: str, value: int, least: int = 1, most: float = math.inf) -> int:
    """Return `value` as an int of at least `least` and at most `most`."""
    if isinstance(value, bool) or not isinstance(value, Integral):
        raise TypeError(
            f"{name} must be a whole number: got {value!r} of type {type(value).__name__}"
        )
    if value < least:
        raise ValueError(f"{name} must be at least {least}: got {value}")
    if value > most:
        raise ValueError(f"{name} must be at most {most}: got {value}")
    return int(value)


def as_flag(name: str, value: bool) -> bool:
    """Return `value` if it is a boolean: other values are true or false by accident."""
    if not isinstance(value, bool | np.bool_):
        raise TypeError(
            f"{name} must be True or False: got {value!r} of type {type(value).__name__}"
        )
    return bool(value)


def as_probability(name: str, value: float) -> float:
    """Return `value` as a float in [0, 1]."""
    return _number(name, value, lambda n: 0 <= n <= 1, "lie in [0, 1]")


def as_rate(name: str, value: float) -> float:
    """Return `value` as a float in (0, 1]."""
    return _number(name, value, lambda n: 0 < n <= 1, "lie in (0, 1]")


def as_share(name: str, value: float) -> float:
    """Return `value` as a float of at least 0 and below 1."""
    return _number(name, value, lambda n: 0 <= n < 1, "lie in [0, 1)")


def as_level(name: str, value: float) -> float:
    """Return `value` as a float strictly between 0 and 1."""
    return _number(name, value, lambda n: 0 < n < 1, "lie strictly between 0 and 1")


def as_finite(name: str, value: float) -> float:
    """Return `value` as a finite float."""
    return _number(name, value, math.isfinite, "be finite")


def as_positive(name: str, value: float) -> float:
    """Return `value` as a finite float above 0."""
    return _number(name, value, lambda n: 0 < n < np.inf, "be positive and finite")


def as_not_negative(name: str, value: float) -> float:
    """Return `value` as a finite float of at least 0."""
    return _number(name, value, lambda n: 0 <= n < np.inf, "be 0 or more and finite")


def _number(
    name: str, value: float, holds: Callable[[float], bool], wanted: str
) -> float:
    """Return `value` as a float for which `holds` is true: no condition holds for NaN."""
    if isinstance(value, bool) or not isinstance(value, Real):
        raise TypeError(
            f"{name} must be a number: got {value!r} of type {type(value).__name__}"
        )
    if not holds(float(value)):
        raise ValueError(f"{name} must {wanted}: got {value}")
    return float(value)


def as_seed(name: str, value: Seed) -> int:
    """Return a seed as a number: an int as it is, else 64 bits of the sequence or generator given."""
    if isinstance(value, np.random.SeedSequence):
        value = value.generate_state(1, np.uint64)[0]
    elif isinstance(value, np.random.Generator):
        value = value.integers(2**64, dtype=np.uint64)
    return as_size(name, value, least=0)


def as_seeds(
    name: str, value: Seed | Sequence[Seed], n_worlds: int | None
) -> list[int]:
    """Return one seed for each world; a single one serves them all."""
    n = n_worlds or 1
    if np.ndim(value) == 0:
        return [as_seed(name, value)] * n
    seeds = [as_seed(name, one) for one in value]
    if len(seeds) != n:
        raise ValueError(
            f"{name} must be one seed, or one for each of {n} worlds: got {len(seeds)}"
        )
    return seeds


def as_one_of(name: str, value: str, known: Iterable[str]) -> str:
    """Return `value` if it is one of the known names."""
    if value not in known:
        raise ValueError(f"{name} must be one of {list(known)}: got {value!r}")
    return value


def as_ids(
    name: str, value: ArrayLike, n: int, shape: Shape | None = None
) -> NDArray[np.int64]:
    """Return `value` as an integer array of the shape wanted, with every entry in 0 … n - 1."""
    ids = _numbers(name, value, "iu", "whole", shape).astype(np.int64, copy=False)
    # Read without a sign, negative numbers are huge: one comparison finds all that are wrong.
    wrong = ids.view(np.uint64) >= n
    if some(wrong):
        raise ValueError(f"{name} must lie in 0 … {n - 1}: got {ids[wrong][0]}")
    return ids


def as_pairs(
    user_id: ArrayLike, n_users: int, product_id: ArrayLike, n_products: int
) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
    """Return ids of users and products, checked and broadcast against each other."""
    users = as_ids("user_id", user_id, n_users)
    products = as_ids("product_id", product_id, n_products)
    try:
        users, products = np.broadcast_arrays(users, products)
    except ValueError:
        raise ValueError(
            f"user_id and product_id must broadcast: got shapes {users.shape} and {products.shape}"
        ) from None
    return users, products


def as_array(
    name: str,
    value: ArrayLike,
    shape: Shape | None = None,
    dtype: DTypeLike | None = None,
) -> NDArray:
    """Return finite real numbers of the shape wanted, converted if a type is given; not copied."""
    array = _numbers(name, value, "fiub", "real", shape)
    wrong = ~(np.abs(array) < LARGEST)  # true for NaN, too
    if some(wrong):
        at = tuple(map(int, np.argwhere(wrong)[0]))
        raise ValueError(
            f"{name} must be finite and below {LARGEST:.0e} in size: got {array[at]}{where(value, at)}"
        )
    return array if dtype is None else array.astype(dtype, copy=False)


def as_flags(name: str, value: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.bool_]:
    """Return booleans of the shape wanted; a single one, or one last axis, serves all."""
    flags = np.asarray(unmasked(name, value))
    flags = flags if flags.size else flags.astype(bool)
    if flags.dtype != bool or flags.shape not in ((), shape[-1:], shape):
        raise ValueError(
            f"{name} must hold booleans of shape {shape}: got {flags.dtype} of shape {flags.shape}"
        )
    return flags if flags.shape == shape else np.full(shape, flags)


def as_real(name: str, value: ArrayLike, shape: Shape | None) -> NDArray[np.float64]:
    """Return a copy in double precision, NaN included, if it has the shape wanted."""
    return _numbers(name, value, "fiub", "real", shape).astype(np.float64)


def _numbers(
    name: str, value: ArrayLike, kinds: str, what: str, shape: Shape | None
) -> NDArray:
    """Return an array of one of these kinds of numbers and of the shape wanted."""
    array = np.asarray(value) if type(value) in PLAIN else numbers(name, value)
    if array.dtype == object:
        array = numbers(name, array)
    if array.size == 0:
        array = _of_nothing(array, kinds, shape)
    if array.dtype.kind not in kinds:
        got = f"dtype {array.dtype}"
        if array.dtype.kind == "f" and (gaps := np.argwhere(np.isnan(array))).size:
            got = f"a gap{where(value, tuple(map(int, gaps[0])))}"
        raise TypeError(f"{name} must hold {what} numbers: got {got}")
    if shape is not None and not _fits(array.shape, shape):
        wanted = str(shape).replace("'", "").replace("Ellipsis", "...")
        raise ValueError(f"{name} must have shape {wanted}: got {array.shape}")
    return array


def _of_nothing(array: NDArray, kinds: str, shape: Shape | None) -> NDArray:
    """Return an array without entries in a type and shape wanted: a list of nothing says neither."""
    array = array if array.dtype.kind in kinds else array.astype(np.int64)
    if array.ndim == 1 and shape is not None and len(shape) > 1 and shape[0] != ...:
        return array.reshape(0, *(0 if isinstance(n, str) else n for n in shape[1:]))
    return array


def _fits(shape: tuple[int, ...], wanted: Shape) -> bool:
    if shape == wanted:  # as a rule, and quickly
        return True
    if wanted[:1] == (...,):
        wanted = (*shape[: max(0, len(shape) - len(wanted) + 1)], *wanted[1:])
    return len(shape) == len(wanted) and all(
        n == m or isinstance(m, str) for n, m in zip(shape, wanted, strict=True)
    )


def some(flags: NDArray[np.bool_]) -> bool:
    """Return whether any flag is true; for a single one NumPy's functions take ten times as long."""
    return bool(np.count_nonzero(flags) if flags.ndim else flags)


def every_row(
    name: str,
    values: NDArray,
    held: NDArray[np.bool_],
    wanted: str,
    error: type[Exception] = ValueError,
) -> None:
    """Raise if a condition fails in any row, and name the first such row."""
    if not np.all(held):
        at = tuple(np.argwhere(~np.atleast_1d(held))[0])
        row = ", ".join(map(str, at))
        raise error(
            f"{name} must {wanted}: got {np.atleast_1d(values)[at]} in row {row}"
        )


def warn(message: str) -> None:
    """Warn, and say that it was where code outside this library called it."""
    level = 1
    while sys._getframe(level).f_globals["__name__"].startswith("zoolib."):
        level += 1
    warnings.warn(message, stacklevel=level + 1)
