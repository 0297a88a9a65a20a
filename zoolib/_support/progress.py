"""Progress bars on the terminal and in notebooks; one setting silences them all."""

from __future__ import annotations

import os
import sys
from typing import Any

from tqdm import tqdm

from zoolib._support.notebook import in_notebook


def progress_bar(wanted: bool, **options: Any) -> tqdm:
    """Return a bar that is silent if it is not wanted, or the environment sets ``TQDM_DISABLE=1``."""
    silent = not wanted or os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    # A notebook shows what goes to stderr as an error.
    stream = sys.stdout if in_notebook() else sys.stderr
    return tqdm(**options, file=stream, disable=silent)
