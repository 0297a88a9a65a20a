"""What the judges share: the list of exercises, and ways to say what is not right yet."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from copy import deepcopy
from itertools import chain
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib.experiments.estimates import Estimate

Function = Callable[..., Any]  # a reader's, which may return anything

# Slips that any numbers may show, each with what would undo it.
SLIPS: dict[str, Callable[[NDArray], NDArray]] = {
    "Shares are wanted, not percentages.": lambda found: found / 100,
    "Percentages are wanted, not shares.": lambda found: 100 * found,
    "The sign is the other way round.": np.negative,
    "The fraction is the other way round.": np.reciprocal,
    "These are squares: take the root.": np.sqrt,
    "These are roots: squares are wanted.": np.square,
    "The order is the other way round.": np.flip,
}


class NotYetError(Exception):
    """An answer is not right yet; the message says what to look at."""


class UnansweredError(Exception):
    """There is no answer yet: the stub was handed over as it stands."""


# The judges, by the labels of their exercises.
EXERCISES: dict[str, Function] = {}


def exercise(label: str) -> Callable[[Function], Function]:
    """Enter a judge, which takes the answers and raises `NotYetError` where they are wrong, under a label."""

    def enter(judge: Function) -> Function:
        if label in EXERCISES:
            raise ValueError(f"label must be new: got {label!r} a second time")
        EXERCISES[label] = judge
        return judge

    return enter


def unanswered(value: object) -> bool:
    """Return whether a value is what a stub leaves: nothing, an ellipsis, or an empty function or class."""
    if isinstance(value, FunctionType):
        code = value.__code__
        empty = _empty.__code__
        return (code.co_code, code.co_consts) == (empty.co_code, empty.co_consts)
    if isinstance(value, type):
        return not any(map(callable, vars(value).values()))
    return value is None or value is Ellipsis


# fmt: off
def _empty() -> None: ...  # what a stub compiles to
# fmt: on


def expect(holds: object, hint: str) -> None:
    """Give the hint unless a condition holds."""
    if not holds:
        raise NotYetError(hint)


def expect_callable(found: object, hint: str) -> None:
    """Give the hint unless a value is a function or a class."""
    kind = type(found).__name__
    expect(callable(found), f"a function or class is wanted, and {kind} came. {hint}")


def answer(function: Function, *arguments: object) -> Any:
    """Call the reader's function with copies of the arguments; nothing, or an ellipsis, is no answer yet."""
    expect_callable(function, "Hand over the function itself.")
    found = function(*deepcopy(arguments))
    if unanswered(found):
        raise UnansweredError
    return found


def numbers(
    found: ArrayLike | Estimate,
    shape: tuple[int, ...],
    hint: str,
    *,
    low: float = -np.inf,
    high: float = np.inf,
) -> NDArray[np.float64]:
    """Return the reader's numbers as an array, or say the hint unless they have this shape and these bounds.

    An estimate counts as its mean; nothing, or an ellipsis, is no answer yet; NaN lies within no bounds.
    """
    if any(map(unanswered, found if isinstance(found, list | tuple) else [found])):
        raise UnansweredError
    try:
        array = np.asarray(found.mean if isinstance(found, Estimate) else found, float)
    except (TypeError, ValueError):
        kind = type(found).__name__
        raise NotYetError(f"numbers are wanted, and {kind} came. {hint}") from None
    came = f"the shape {shape} is wanted, and {array.shape} came. {hint}"
    expect(array.shape == shape, came)
    _expect_all((low <= array) & (array <= high), array, hint)
    return array


def expect_close(
    found: ArrayLike | Estimate,
    right: ArrayLike,
    hint: str,
    *,
    within: ArrayLike = 1e-9,
    mistakes: Mapping[str, ArrayLike | Callable[[], ArrayLike]] | None = None,
) -> None:
    """Say the hint, and a number that was found, unless all numbers agree.

    Parameters
    ----------
    found : array_like or Estimate
        The reader's numbers, as in `numbers`, which says what is raised.
    right : array_like
        The right ones. They are compared and never shown.
    hint : str
        What to look at.
    within : array_like, default 1e-9
        Largest absolute difference that is still right, for all numbers or for each.
    mistakes : mapping of str to array_like or callable, optional
        Hints for typical mistakes, each with the numbers to which it leads, or a function that computes
        them. The first that fits is said, or else the first of `SLIPS`.
    """
    right = np.asarray(right, float)
    came = numbers(found, right.shape, hint)

    def agree(came: ArrayLike, right: ArrayLike) -> NDArray[np.bool_]:
        return np.abs(np.subtract(came, right)) <= within  # false for NaN

    close = agree(came, right)
    named = (
        its_hint
        for its_hint, wrong in (mistakes or {}).items()
        if agree(came, wrong() if callable(wrong) else wrong).all()
    )
    slips = (
        its_hint
        for its_hint, undone in SLIPS.items()
        if np.all(agree(undone(came), right) & (within < np.abs(right) / 2))
    )
    if not close.all():
        with np.errstate(all="ignore"):  # no fraction of zero, no root of less
            hint = next(chain(named, slips), hint)
    _expect_all(close, came, hint)


def _expect_all(holds: NDArray[np.bool_], found: NDArray[Any], hint: str) -> None:
    """Say the hint, the first number for which something does not hold, and its place."""
    for at in map(tuple, np.argwhere(~holds)):
        place = f" at [{', '.join(map(str, at))}]" if at else ""
        raise NotYetError(f"{found[at]:.6g}{place} is not right. {hint}")
