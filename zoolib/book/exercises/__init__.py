"""Exercises that check themselves: hand an answer to `check`, and it says whether it is right.

A judge knows its exercise by another way than the solution in the book: a closed form, a brute force,
or properties that only a right answer has. It never shows the answer.
"""

from __future__ import annotations

import inspect
from collections.abc import Callable
from importlib import import_module
from pkgutil import iter_modules

from zoolib._support.extras import needed_by
from zoolib.book.exercises.judging import (
    EXERCISES,
    Function,
    NotYetError,
    UnansweredError,
    unanswered,
)

# Told each exercise that is checked and its verdict. The grader listens here, and not to what is printed.
LISTENERS: list[Callable[[str, str], None]] = []


def check(exercise: str, *answers: object) -> None:
    """Print whether the answers to an exercise are right and, if not, what to look at.

    Parameters
    ----------
    exercise : str
        Label of the exercise, as it stands in its stub, for example ``"ex-coverage"``.
    *answers : object
        Numbers, arrays, functions or classes: what the stub asks for.

    Raises
    ------
    ValueError
        If there is no such exercise.

    Notes
    -----
    A wrong answer raises nothing, so that a notebook runs to its end with exercises unsolved.

    Examples
    --------
    >>> check("ex-mean-update", ...)
    ex-mean-update: not answered yet.
    """
    known = judged()
    if exercise not in known:
        labels = ", ".join(sorted(known))
        raise ValueError(f"exercise must be one of {labels}: got {exercise!r}")
    verdict = _verdict(known[exercise], answers)
    for told in LISTENERS:
        told(exercise, verdict)
    print(f"{exercise}: {verdict}")


def judged() -> dict[str, Function]:
    """Return the judges of all exercises by label.

    They, one module a chapter, are loaded here and not with the library: they need all of it.
    """
    with needed_by("zoolib.check"):
        for module in iter_modules(__path__):
            import_module(f"{__name__}.{module.name}")
    return EXERCISES


def _verdict(judge: Function, answers: tuple[object, ...]) -> str:
    """Judge the answers, and put the outcome in words."""
    if not answers or any(map(unanswered, answers)):
        return "not answered yet."
    try:
        inspect.signature(judge).bind(*answers)
    except TypeError:
        wanted = len(inspect.signature(judge).parameters)
        return f"not yet: answers wanted {wanted}, answers that came {len(answers)}."
    try:
        judge(*answers)
    except UnansweredError:
        return "not answered yet."
    except NotYetError as hint:
        return f"not yet: {hint}"
    except Exception as error:  # the reader's own code may raise anything
        return f"not yet: your code raised {type(error).__name__}: {error}"
    return "right."
