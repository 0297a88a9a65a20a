"""Monitors on the service's log: what each reads of an event, and how far it has read."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib.monitoring import Alert, Monitor
from zoolib.service.health import FALLBACK
from zoolib.service.log import EventLog
from zoolib.service.model import words
from zoolib.service.store import Store


class Watch:
    """A monitor, and the columns of the log that it is fed with.

    Its state is kept in the database, so that a restart neither loses the quiet time that it compares
    with nor shows it an event twice.

    Parameters
    ----------
    monitor : Monitor
        Judges. Its name is the key of its state.
    columns : callable
        Maps an `EventLog` of n events to the columns (n,) that the monitor's tally takes.

    Notes
    -----
    It reads events in their own order, up to the first whose fate is open: see `Store.log`.
    """

    def __init__(
        self, monitor: Monitor, columns: Callable[[EventLog], tuple[ArrayLike, ...]]
    ) -> None:
        self.monitor = monitor
        self.columns = columns
        self.fact = f"monitor: {monitor.name}"
        self.event = 0
        self.set_aside = 0
        self.trouble = ""

    def state(self) -> str:
        """Return what `restore` reads."""
        kept = {"event": self.event, "monitor": self.monitor.state()}
        return json.dumps(kept | {"aside": [self.set_aside, self.trouble]})

    def restore(self, state: str) -> None:
        """Continue where a watch on the same monitor was when its `state` was taken."""
        kept = json.loads(state)
        self.monitor.restore(kept["monitor"])
        self.event = kept["event"]
        self.set_aside, self.trouble = kept["aside"]

    def update(self, store: Store) -> list[Alert]:
        """Read on, and return the alerts; events that the monitor cannot take are set aside, and counted."""
        log = store.log(after=self.event)
        self.event = int(log.event.max(initial=self.event))
        return self._read(log) if len(log) else []

    def _read(self, log: EventLog) -> list[Alert]:
        try:
            return self.monitor.update(*self.columns(log))
        except Exception as error:
            if len(log) == 1:
                self.set_aside += 1
                self.trouble = f"{self.set_aside} events were set aside, the last for: {words(error)}"
                return []
        half = len(log) // 2
        pieces = log.where(slice(half)), log.where(slice(half, None))
        return [alert for piece in pieces for alert in self._read(piece)]


def fallbacks(log: EventLog) -> tuple[NDArray[np.int64]]:
    """Return for n events 1 where a fallback chose, else 0, as the one column (n,) that `rates` takes."""
    return ((log.version == FALLBACK).astype(np.int64),)
