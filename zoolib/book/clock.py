"""A bar that follows the clock, for what tells nothing of its progress."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from threading import Event, Thread

from zoolib._support.progress import progress_bar


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
