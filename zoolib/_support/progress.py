"""Progress bars on the terminal; one setting silences them all."""

from __future__ import annotations

import os
from typing import Any

from tqdm import tqdm


def progress_bar(wanted: bool, **options: Any) -> tqdm:
    """Return a bar that is silent if it is not wanted, or the environment sets ``TQDM_DISABLE=1``."""
    silent = not wanted or os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    return tqdm(**options, disable=silent)
