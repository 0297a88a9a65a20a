"""What a chapter needs to speak to its reader: claims that are checked, and listings that are true.

A claim is a sentence of the book with a number in it. `claim` checks the number against the bound
that the sentence states, stops the build when it does not hold, and leaves a record from which the
book takes the number that it prints and the page that lists every claim.
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

from zoolib._checks import as_finite
from zoolib._notebook import in_notebook
from zoolib.estimates import Estimate

if TYPE_CHECKING:
    from IPython.display import Markdown


# Where sweeps and timings are kept that take longer than a page may.
RECORDS = Path(__file__).parent / "records"
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
        What is claimed, in words that stand alone.
    value : float or Estimate
        The number. With an `Estimate` the whole interval must keep the bound, not only its mean.
    above, below, equals : float, optional
        The bound: at least one, or the claim could not fail.
    fmt : str, default ".3f"
        Format of the value, for example ``".1%"``.
    seeds : sequence of int, optional
        Seeds of the worlds behind the value; omitted for what holds without chance.

    Raises
    ------
    AssertionError
        If the claim does not hold.
    ValueError
        If no bound is given.
    """
    if above is None and below is None and equals is None:
        raise ValueError(f"claim {key!r} needs a bound: above, below or equals")
    if not isinstance(value, Integral):
        fmt = f"z{fmt}"  # what rounds to zero is printed without a sign
    low, high = (value.low, value.high) if isinstance(value, Estimate) else (value,) * 2
    bounds = {"above": above, "below": below, "equal to": equals}
    stated = [
        f"{name} {bound:{fmt}}" for name, bound in bounds.items() if bound is not None
    ]
    held, line = " and ".join(stated), f"{key}: {value:{fmt}}{_worlds(seeds)}"
    # Comparisons with NaN are false, so it keeps no bound.
    kept = [
        above is None or low > above,
        below is None or high < below,
        equals is None or math.isclose(low, equals, rel_tol=1e-9, abs_tol=1e-12),
    ]
    if not all(kept):
        raise AssertionError(
            f"the claim does not hold: {sentence} Found {line}; wanted {held}"
        )
    print(f"{line}, claimed {held}")
    mean = value.mean if isinstance(value, Estimate) else value
    interval = f"{low:{fmt}} to {high:{fmt}}" if isinstance(value, Estimate) else ""
    _record(key, sentence, f"{mean:{fmt}}", interval, held, seeds)


def _worlds(seeds: Sequence[int] | None) -> str:
    if seeds is None:
        return ""
    return f", {len(seeds)} worlds" if len(seeds) > 1 else f", seed {seeds[0]}"


def _record(
    key: str,
    sentence: str,
    value: str,
    interval: str,
    held: str,
    seeds: Sequence[int] | None,
) -> None:
    """Leave the claim in the notebook, where the book's build finds it."""
    seeds = [] if seeds is None else [int(seed) for seed in seeds]
    record = {
        "sentence": sentence,
        "value": value,
        "interval": interval,
        "held": held,
        "seeds": seeds,
    }
    _glue(f"{RECORD_PREFIX}{key}", record)


def _glue(name: str, record: dict[str, Any]) -> None:
    """Leave a record in the notebook. Outside one, do nothing."""
    if not in_notebook():
        return
    try:
        from myst_nb import glue
    except ImportError:  # a notebook without the book's tooling still runs
        return
    text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    glue(name, text, display=False)


def publish(name: str, data: Mapping[str, Any]) -> None:
    """Hand data to an interactive figure of the page, which the directive ``{interactive}`` places.

    Parameters
    ----------
    name : str
        Name of the figure, which is that of its script.
    data : mapping
        Strings to plain data: numbers, strings, None, NumPy arrays, and lists and mappings of
        these. Numbers are kept to six digits, so that the page stays small.

    Raises
    ------
    TypeError
        If something in it is not plain data.
    ValueError
        If a number is not finite, or the name is empty.
    """
    if not isinstance(name, str) or not name:
        raise ValueError(f"name must be a string that is not empty: got {name!r}")
    if not isinstance(data, Mapping):
        raise TypeError(f"data must be a mapping: got {type(data).__name__}")
    _glue(f"{FIGURE_PREFIX}{name}", _plain("data", data))


def _plain(where: str, value: Any) -> Any:
    """Return plain JSON data; `where` names the place in errors."""
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, Mapping):
        for key in value:
            if not isinstance(key, str):
                raise TypeError(f"{where} must have strings as keys: got {key!r}")
        return {key: _plain(f"{where}[{key!r}]", item) for key, item in value.items()}
    if isinstance(value, list | tuple):
        return [_plain(f"{where}[{at}]", item) for at, item in enumerate(value)]
    if isinstance(value, float):
        return float(f"{as_finite(where, value):.6g}")
    if value is None or isinstance(value, str | int):
        return value
    raise TypeError(
        f"{where} must be numbers, strings, None, arrays, lists or mappings: "
        f"got {type(value).__name__}"
    )


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
    from IPython.display import Markdown

    sources = [
        _without_docstrings(textwrap.dedent(inspect.getsource(thing)))
        for thing in things
    ]
    return Markdown("```python\n" + "\n\n".join(sources) + "\n```")


def _without_docstrings(source: str) -> str:
    """Drop the docstrings, keep everything else, comments included, as it stands."""
    drop: set[int] = set()
    for node in ast.walk(ast.parse(source)):
        if (
            isinstance(node, ast.FunctionDef | ast.ClassDef)
            and ast.get_docstring(node) is not None
        ):
            docstring = node.body[0]
            drop |= set(
                range(docstring.lineno, (docstring.end_lineno or docstring.lineno) + 1)
            )
    lines = [
        line for number, line in enumerate(source.splitlines(), 1) if number not in drop
    ]
    return "\n".join(lines).strip("\n")
