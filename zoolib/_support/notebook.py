"""Detect a notebook without importing IPython, which the library does not need."""

from __future__ import annotations

import sys


def in_notebook() -> bool:
    """Return whether this code runs in an IPython shell, such as a Jupyter kernel."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
