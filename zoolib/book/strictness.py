"""What to do about a result that is not the book's: stop, which is the default, or say so and go on."""

from __future__ import annotations

import os

# Set to 1 in a reader's build and notebooks, so that another processor or a changed setting stops nothing.
SWITCH = "ZOOLIB_LENIENT"


def is_lenient() -> bool:
    """Return whether the environment sets ``ZOOLIB_LENIENT=1``."""
    return os.environ.get(SWITCH, "0") not in ("", "0")
