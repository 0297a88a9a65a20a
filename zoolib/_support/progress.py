"""Progress bars on the terminal and in notebooks; one setting silences them all."""

from __future__ import annotations

import os
import sys
from typing import Any

from tqdm import tqdm

from zoolib._support.checks import as_flag


def progress_bar(wanted: bool, **options: Any) -> tqdm:
    """Return a bar that is silent if it is not wanted, or the environment sets ``TQDM_DISABLE=1``."""
    disabled = os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    silent = not as_flag("progress", wanted) or disabled
    # A notebook shows what goes to stderr as an error.
    stream = sys.stdout if in_notebook() else sys.stderr
    return tqdm(**options, file=stream, disable=silent)


def in_notebook() -> bool:
    """Return whether this code runs in an IPython shell, such as a kernel, without importing IPython."""
    ipython = sys.modules.get("IPython")
    return ipython is not None and ipython.get_ipython() is not None
