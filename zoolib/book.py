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
from collections.abc import Callable, Sequence
from numbers import Integral
from typing import TYPE_CHECKING, Any

from zoolib._notebook import in_notebook
from zoolib.estimates import Estimate

if TYPE_CHECKING:
    from IPython.display import Markdown


# Before a claim's key, among the names that a notebook glues.
RECORD_PREFIX = "claim:"


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
    """Leave the claim in the notebook, where the book's build finds it. Outside one, do nothing."""
    if not in_notebook():
        return
    try:
        from myst_nb import glue
    except ImportError:  # a notebook without the book's tooling still checks its claims
        return
    seeds = [] if seeds is None else [int(seed) for seed in seeds]
    record = {
        "sentence": sentence,
        "value": value,
        "interval": interval,
        "held": held,
        "seeds": seeds,
    }
    glue(f"{RECORD_PREFIX}{key}", json.dumps(record), display=False)


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
