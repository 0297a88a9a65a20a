"""Notebooks: detect one without importing IPython, which the library does not need, and leave records in it."""

from __future__ import annotations

import json
import sys
from typing import Any


def in_notebook() -> bool:
    """Return whether this code runs in an IPython shell, such as a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None


def leave(name: str, record: dict[str, Any]) -> None:
    """Leave a record in the notebook. Outside one, do nothing."""
    if not in_notebook():
        return
    try:
        from myst_nb import glue
    except ImportError:  # a notebook without the book's tooling still runs
        return
    text = json.dumps(record, separators=(",", ":"), allow_nan=False)
    glue(name, text, display=False)


def leave_doubt(sentence: str, found: str) -> None:
    """Leave for the page of claims that a record is not what it should be, with what was found."""
    leave(f"doubt:{found}", {"sentence": sentence, "found": found})
