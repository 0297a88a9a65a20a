"""Progress bars on the terminal and in notebooks; one setting silences them all."""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread
from typing import Any

from tqdm import tqdm

from zoolib._support.checks import as_flag
from zoolib._support.notebook import in_notebook


def progress_bar(wanted: bool, **options: Any) -> tqdm:
    """Return a bar that is silent if it is not wanted, or the environment sets ``TQDM_DISABLE=1``."""
    disabled = os.environ.get("TQDM_DISABLE", "0") not in ("", "0")
    silent = not as_flag("progress", wanted) or disabled
    # A notebook shows what goes to stderr as an error.
    stream = sys.stdout if in_notebook() else sys.stderr
    return tqdm(**options, file=stream, disable=silent)


@contextmanager
def clock_bar(wanted: bool, seconds: float | None) -> Iterator[None]:
    """Show for how long something has been going on, against the seconds that it may take, if known."""
    over = Event()
    total = seconds and max(1, round(seconds))
    with progress_bar(wanted, total=total, unit="s") as bar:

        def tick() -> None:
            while not over.wait(1):
                bar.update()

        clock = Thread(target=tick, daemon=True)
        if not bar.disable:
            clock.start()
        try:
            yield
        finally:
            over.set()
            if clock.is_alive():
                clock.join()
