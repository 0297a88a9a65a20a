"""Records that a page leaves in its notebook, for the book to collect."""

from __future__ import annotations

import json
from typing import Any

from zoolib._support.progress import in_notebook


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
