"""Monitors on the service's log: what each reads of an event, and how far it has read."""

from __future__ import annotations

import json
from collections.abc import Callable

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib.monitoring import Alert, Monitor
from zoolib.service.health import FALLBACK
from zoolib.service.store import EventLog, Store


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
    It reads events in their own order, up to the first whose fate is open: see `Store.visits`.
    """

    def __init__(
        self, monitor: Monitor, columns: Callable[[EventLog], tuple[ArrayLike, ...]]
    ) -> None:
        self.monitor, self.columns = monitor, columns
        self.fact, self.event = f"monitor: {monitor.name}", 0

    def state(self) -> str:
        """Return what `restore` reads."""
        return json.dumps({"event": self.event, "monitor": self.monitor.state()})

    def restore(self, state: str) -> None:
        """Continue where a watch on the same monitor was when its `state` was taken."""
        kept = json.loads(state)
        self.monitor.restore(kept["monitor"])
        self.event = kept["event"]

    def update(self, store: Store) -> list[Alert]:
        """Read on, and return the alerts."""
        log = store.visits(after=self.event)
        if len(log) == 0:
            return []
        alerts = self.monitor.update(*self.columns(log))
        self.event = int(log.event[-1])
        return alerts


def fallbacks(log: EventLog) -> tuple[NDArray[np.int64]]:
    """Return for n events 1 where a fallback chose, else 0, as the one column (n,) that `rates` takes."""
    return ((log.version == FALLBACK).astype(np.int64),)
