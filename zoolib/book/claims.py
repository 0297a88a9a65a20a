"""Checked claims, and listings of library code, for use in chapters.

A claim is a sentence of the book with a number in it. `claim` checks the number against the bound
that the sentence states and leaves a record. From the records the book takes the numbers that it prints and
makes the page that lists every claim. A claim that does not hold raises, or, if the environment sets
``ZOOLIB_LENIENT=1``, says so and is marked in the book.
"""

from __future__ import annotations

import ast
import inspect
import json
import math
import textwrap
from collections.abc import Callable, Mapping, Sequence
from numbers import Integral
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

from zoolib._support.extras import needed_by
from zoolib.book.notebook import leave
from zoolib.book.strictness import is_lenient
from zoolib.experiments.estimates import Estimate

if TYPE_CHECKING:
    from IPython.display import Markdown


# Where sweeps and timings are kept that take longer than a page may.
RECORDS = Path(__file__).parent / "records"
# How the line begins that a claim prints; the book's pages leave these lines out.
PRINTED = "claim "
# How it ends if the claim does not hold and the run goes on; the pages show such a line.
FAILED = ": it does not hold with these settings"
# Before a claim's key and a figure's name, among the names that a notebook glues.
RECORD_PREFIX = "claim:"
FIGURE_PREFIX = "figure:"


def claim(
    key: str,
    sentence: str,
    value: float | Estimate,
    *,
    above: float | None = None,
    below: float | None = None,
    equals: float | None = None,
    fmt: str = ".3f",
    seeds: Sequence[int] | None = None,
) -> None:
    """Check a claim, print it, and record it for the page of claims.

    In the prose, ``{claim}`key``` prints the value, ``{claim}`key interval``` its interval.

    Parameters
    ----------
    key : str
        Short name, unique in the book.
    sentence : str
        What is claimed, in words that stand alone. The book's build warns if its words of comparison do not
        fit the bound: "ahead by so many points" needs an amount above zero, "differs by" one on either side.
    value : float or Estimate
        The number. With an `Estimate` the whole interval must keep the bound, not only its mean.
    above, below, equals : float, optional
        The bound: at least one, or the claim could not fail.
    fmt : str, default ".3f"
        Format of the value, for example ``".1%"``.
    seeds : sequence of int, optional
        Seeds of the worlds behind the value; omitted for results that do not depend on chance.

    Raises
    ------
    AssertionError
        If the claim does not hold, unless the environment sets ``ZOOLIB_LENIENT=1``.
    ValueError
        If no bound is given.
    """
    bounds = {"above": above, "below": below, "equal to": equals}
    bounds = {name: bound for name, bound in bounds.items() if bound is not None}
    if not bounds:
        raise ValueError(f"claim {key!r} needs a bound: above, below or equals")
    if not isinstance(value, Integral):
        fmt = f"z{fmt}"  # what rounds to zero is printed without a sign
    mean = value
    low = value
    high = value
    interval = ""
    if isinstance(value, Estimate):
        mean = value.mean
        low = value.low
        high = value.high
    fmt = _apart(fmt, (low, above), (high, below))
    if isinstance(value, Estimate):
        interval = f"{low:{fmt}} to {high:{fmt}}".replace("inf", "∞")
    held = " and ".join(f"{name} {bound:{fmt}}" for name, bound in bounds.items())
    seeds = [] if seeds is None else [int(seed) for seed in seeds]
    line = f"{key}: {value:{fmt}}"
    if seeds:
        line += f", {len(seeds)} worlds" if len(seeds) > 1 else f", seed {seeds[0]}"
    # Comparisons with NaN are false, so it keeps no bound.
    kept = [
        above is None or low > above,
        below is None or high < below,
        equals is None or math.isclose(low, equals, rel_tol=1e-9, abs_tol=1e-12),
    ]
    holds = all(kept)
    if not holds and not is_lenient():
        raise AssertionError(
            f"the claim does not hold: {sentence} Found {line}; wanted {held}"
        )
    print(f"{PRINTED}{line}, must be {held}{'' if holds else FAILED}")
    record = {
        "sentence": sentence,
        "holds": holds,
        "value": f"{mean:{fmt}}",
        "interval": interval,
        "held": held,
        "seeds": seeds,
        # For the drawing beside it; an interval may have an open end.
        "range": [float(x) if math.isfinite(x) else None for x in (low, mean, high)],
        "above": None if above is None else float(above),
        "below": None if below is None else float(below),
    }
    leave(f"{RECORD_PREFIX}{key}", record)


def _apart(fmt: str, *ends: tuple[float, float | None]) -> str:
    """Add digits to a format until no bound reads like the number that must keep it."""
    head, point, tail = fmt.partition(".")
    more = range(int(tail[:-1]), 9) if point else ()
    for longer in (fmt, *(f"{head}.{digits}{tail[-1]}" for digits in more)):
        if all(end is None or f"{x:{longer}}" != f"{end:{longer}}" for x, end in ends):
            return longer
    return fmt


def publish(name: str, data: Mapping[str, Any]) -> None:
    """Hand data to an interactive figure of the page, which the directive ``{interactive}`` places.

    Parameters
    ----------
    name : str
        Name of the figure, which is that of its script.
    data : mapping
        Plain data: numbers, strings, None, NumPy arrays, and lists and mappings of these.
        Numbers are finite and kept to six digits, so that the page stays small.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"name must be a string that is not empty: got {name!r}")
    if not isinstance(data, Mapping):
        raise TypeError(f"data must be a mapping: got {type(data).__name__}")
    try:
        text = json.dumps(data, default=_json, allow_nan=False)
    except (TypeError, ValueError) as error:
        wanted = "finite numbers, strings, None, arrays, lists or mappings"
        raise type(error)(f"data must hold {wanted}: {error}") from None
    short = json.loads(text, parse_float=lambda number: float(f"{float(number):.6g}"))
    leave(f"{FIGURE_PREFIX}{name}", short)


def _json(value: object) -> object:
    """Convert a value that JSON does not support to one that it supports."""
    if isinstance(value, Mapping):
        return dict(value)
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    raise TypeError(f"got {type(value).__name__}")


def listing(*things: Callable[..., Any] | type) -> Markdown:
    """Show the source of library code as it is, without its docstrings.

    Parameters
    ----------
    *things : function, method or class
        What to show, in order.

    Returns
    -------
    IPython.display.Markdown
        A fenced listing: the book and JupyterLab both render it.
    """
    with needed_by("zoolib.listing"):
        from IPython.display import Markdown

    sources = [textwrap.dedent(inspect.getsource(thing)) for thing in things]
    listings = "\n\n".join(map(_without_docstrings, sources))
    return Markdown(f"```python\n{listings}\n```")


def _without_docstrings(source: str) -> str:
    """Drop the docstrings, keep everything else, comments included, as it stands."""
    lines = dict(enumerate(source.splitlines(), 1))
    for node in ast.walk(ast.parse(source)):
        if isinstance(node, ast.FunctionDef | ast.ClassDef) and ast.get_docstring(node):
            docstring = node.body[0]
            for number in range(docstring.lineno, docstring.end_lineno + 1):
                del lines[number]
    return "\n".join(lines.values()).strip("\n")
