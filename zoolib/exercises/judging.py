"""What every check of an exercise uses: the list of exercises, and ways to say what is not yet right."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from types import FunctionType
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib.estimates import Estimate


class NotYetError(Exception):
    """An answer is not right yet; the message says what to look at."""


class UnansweredError(Exception):
    """There is no answer yet: the stub was handed over as it stands."""


@dataclass(frozen=True)
class Exercise:
    """An exercise of the book.

    Parameters
    ----------
    wanted : str
        What to hand over, in words that follow "hand over".
    judge : callable
        Takes the answers and raises `NotYetError` where they are wrong.
    """

    wanted: str
    judge: Callable[..., None]


EXERCISES: dict[str, Exercise] = {}


def exercise(label: str) -> Callable[[Callable[..., None]], Callable[..., None]]:
    """Enter a judge under the label of its exercise; its docstring says what to hand over."""

    def enter(judge: Callable[..., None]) -> Callable[..., None]:
        if label in EXERCISES:
            raise ValueError(f"label must be new: got {label!r} a second time")
        words = " ".join((judge.__doc__ or "").split()).rstrip(".")
        EXERCISES[label] = Exercise(words, judge)
        return judge

    return enter


def unanswered(value: object) -> bool:
    """Return whether a value is what a stub leaves: nothing, an ellipsis, or an empty function or class."""
    if isinstance(value, FunctionType):
        code, empty = value.__code__, _empty.__code__
        return (code.co_code, code.co_consts) == (empty.co_code, empty.co_consts)
    if isinstance(value, type):
        return not any(map(callable, vars(value).values()))
    return value is None or value is Ellipsis


# fmt: off
def _empty() -> None: ...  # what a stub compiles to
# fmt: on


def expect(holds: bool, hint: str) -> None:
    """Say the hint unless something holds."""
    if not holds:
        raise NotYetError(hint)


def expect_callable(found: object, hint: str) -> None:
    """Say the hint unless something is a function or a class."""
    kind = type(found).__name__
    expect(callable(found), f"a function or class is wanted, and {kind} came. {hint}")


def expect_close(
    found: ArrayLike | Estimate,
    wanted: ArrayLike,
    hint: str,
    *,
    within: ArrayLike = 1e-9,
    mistakes: Mapping[str, ArrayLike | Callable[[], ArrayLike]] | None = None,
) -> None:
    """Say the hint, and what was found, unless all numbers agree.

    Parameters
    ----------
    found : array_like or Estimate
        The reader's numbers. Nothing, or an ellipsis, is no answer yet; an estimate counts as its mean.
    wanted : array_like
        The right ones. They are compared and never shown.
    hint : str
        What to look at.
    within : array_like, default 1e-9
        Largest absolute difference that is still right, for all numbers or for each.
    mistakes : mapping of str to array_like or callable, optional
        Hints for typical mistakes, each with the numbers to which it leads, or a function that computes
        them. The first that fits is said.

    Raises
    ------
    UnansweredError
        If there is no answer.
    NotYetError
        If the answer has another shape, is no number, or is too far off.
    """
    numbers, right = as_numbers(found, hint), np.asarray(wanted, float)
    if numbers.shape != right.shape:
        raise NotYetError(
            f"the shape {right.shape} is wanted, and {numbers.shape} came. {hint}"
        )
    if np.all(_agree(numbers, right, within)):
        return
    for its_hint, wrong in (mistakes or {}).items():
        wrong = np.asarray(wrong() if callable(wrong) else wrong, float)
        if np.all(_agree(numbers, wrong, within)):
            hint = its_hint
            break
    raise NotYetError(f"{_shown(numbers, _agree(numbers, right, within))} {hint}")


def _agree(numbers: NDArray, right: NDArray, within: ArrayLike) -> NDArray[np.bool_]:
    """Compare so that NaN, whose comparisons are false, is never right."""
    return np.abs(numbers - right) <= within


def as_numbers(found: ArrayLike | Estimate, hint: str) -> NDArray[np.float64]:
    """Return the reader's numbers as an array, or say the hint; raise as `expect_close` does."""
    parts = found if isinstance(found, list | tuple) else [found]
    if any(map(unanswered, parts)):
        raise UnansweredError
    if isinstance(found, Estimate):
        found = found.mean
    try:
        return np.asarray(found, float)
    except (TypeError, ValueError):
        kind = type(found).__name__
        raise NotYetError(f"numbers are wanted, and {kind} came. {hint}") from None


def _shown(numbers: NDArray[Any], agree: NDArray[np.bool_]) -> str:
    """Name a wrong number, and its place."""
    if numbers.ndim == 0:
        return f"{numbers:.6g} is not right."
    at = tuple(int(i) for i in np.argwhere(~agree)[0])
    place = ", ".join(map(str, at))
    return f"{numbers[at]:.6g} at [{place}] is not right."
