"""The monitor: it tests the windows of a stream one by one, with a stated rate of false alarms."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import as_array, as_level, as_positive, as_size
from zoolib.monitoring.statistics import Statistic

PER_EVENTS = 10_000  # the number of events in which false alarms are counted


@dataclass(frozen=True)
class Alert:
    """One alarm.

    Attributes
    ----------
    monitor : str
        Name of the monitor.
    step : int
        Number of events seen when the alarm was raised.
    statistic, threshold : float
        The p-value, and the level that it fell below.
    message : str
        The alarm in words.
    cell : int
        The segment, value or arm that gave the alarm.
    world : int or None
        The world, if there are several.
    """

    monitor: str
    step: int
    statistic: float
    threshold: float
    message: str
    cell: int = 0
    world: int | None = None


@dataclass(frozen=True)
class Readings:
    """The results of the windows that a monitor has tested.

    Attributes
    ----------
    step : ndarray of int, shape (n,)
        Number of events seen at the end of each window.
    statistic : ndarray of float, shape (..., n)
        The worst cell's p-value, multiplied by the number of cells.
    cell : ndarray of int, shape (..., n)
        The cell with this statistic.
    alarm : ndarray of bool, shape (..., n)
        Whether the monitor raised an alarm.
    """

    step: NDArray[np.int64]
    statistic: NDArray[np.float64]
    cell: NDArray[np.int64]
    alarm: NDArray[np.bool_]

    def delay(self, fault: int) -> NDArray[np.float64]:
        """Return the number of events between a fault and the first alarm after it.

        `fault` is the number of events seen before the fault. The result has shape (...), and is infinite
        where no alarm followed.
        """
        fault = as_size("fault", fault, least=0)
        late = np.where(self.alarm & (self.step > fault), self.step - fault, np.inf)
        return late.min(axis=-1, initial=np.inf)


class Monitor:
    r"""Judge a stream window by window.

    The first `skip` events are ignored, the next `reference` windows become the reference, and each
    window after them is tested once, at its end. A p-value that is multiplied by the number of cells
    (Bonferroni) and compared with

    .. math:: \text{false alarms} \cdot \text{window} / 10{,}000

    gives, while nothing has changed, at most `false_alarms` alarms in 10,000 events on average, however
    long the monitor runs: each window gets a share of the rate in proportion to its length, and expected
    numbers of alarms add up even if the windows depend on each other through their common reference. That
    holds for *independent* events. Visits of one session are not: five alike visits in a row count as five
    witnesses where there is one, and alarms may be a hundred times as frequent. Then feed one event of
    each session, or of each user and day.

    Parameters
    ----------
    name : str
        Name used in alerts.
    tally : callable
        Adds up events: takes columns of shape (..., n), returns sums of shape ``(..., *cells)``.
    statistic : callable
        Takes the sums of a window and those of the reference windows, stacked on a first axis, and
        returns one p-value per cell, shape (..., n_cells).
    window : int
        Number of events in a window.
    reference : int, default 0
        Number of reference windows.
    skip : int, default 0
        Number of events ignored at the start, while an agent learns.
    false_alarms : float
        Expected number of false alarms in 10,000 events.
    n_worlds : int, optional
        Number of worlds W watched side by side; all columns then have shape (W, n).

    Attributes
    ----------
    step : int
        Number of events seen so far.
    delay : int
        Largest number of events between a fault and its alarm, if every full window of faulty events
        shows the fault; in the worst case the fault begins with the second event of a window.
        The evidence behind Chapter 6 computes the window size that shows a fault with a stated probability.

    Examples
    --------
    >>> from zoolib.monitoring import at_most, rates
    >>> monitor = Monitor("errors", rates(), at_most(0.01), window=100, false_alarms=0.1)
    >>> failed = np.zeros(250, int)
    >>> failed[130:170] = 1
    >>> for alert in monitor.update(failed):
    ...     print(alert.step, alert.message)
    200 errors: p = 7.6e-53 is below 0.001 in events 100 to 199
    """

    def __init__(
        self,
        name: str,
        tally: Callable[..., NDArray],
        statistic: Statistic,
        *,
        window: int,
        reference: int = 0,
        skip: int = 0,
        false_alarms: float,
        n_worlds: int | None = None,
    ) -> None:
        self.name = str(name)
        self.tally = tally
        self.statistic = statistic
        self.window = as_size("window", window)
        least = getattr(statistic, "least_reference", 0)
        self.reference = as_size("reference", reference, least=least)
        self.skip = as_size("skip", skip, least=0)
        self.n_worlds = None if n_worlds is None else as_size("n_worlds", n_worlds)
        rate = as_positive("false_alarms", false_alarms)
        self.threshold = as_level(
            "false_alarms * window / 10,000", rate * self.window / PER_EVENTS
        )
        self.delay = 2 * self.window - 1
        self.step = 0
        self._sums: NDArray | None = None  # sums of the current, incomplete window
        self._past: list[NDArray] = []  # sums of the reference windows

    def update(self, *columns: ArrayLike) -> list[Alert]:
        """Process the next events, and return the alarms that they raise.

        Parameters
        ----------
        *columns : array_like, shape (n,) or (W, n)
            The inputs of the tally. The result does not depend on how the stream is split into calls.

        Returns
        -------
        list of Alert
        """
        readings = self.watch(*columns)
        rows = np.argwhere(readings.alarm.T)  # windows first: alerts come in order
        return [self._alert(readings, int(at), tuple(world)) for at, *world in rows]

    def watch(self, *columns: ArrayLike) -> Readings:
        """Process the next events like `update`, and return all readings, for example for a plot."""
        columns = self._as_columns(columns)
        before = vars(self).copy()
        first = self.step
        last = first + columns[0].shape[-1]
        end = first + self.window - (first - self.skip) % self.window
        cuts = sorted({first, *range(end, last, self.window), last})
        judged = []
        try:
            for start, stop in pairwise(cuts):
                piece = (
                    column[..., start - first : stop - first] for column in columns
                )
                judged += self._take(stop, self.tally(*piece))
        except Exception:
            vars(self).update(before)
            raise
        step = np.array([stop for stop, _ in judged], np.int64)
        found = [of_cells for _, of_cells in judged]
        found = np.array(found or np.empty((0, *self._worlds, 1)))
        cell = found.argmin(axis=-1)
        worst = np.minimum(1, found.min(axis=-1) * found.shape[-1])
        return Readings(step, worst.T, cell.T, (worst < self.threshold).T)

    def state(self) -> dict[str, Any]:
        """Return the monitor's state as plain numbers and lists, for example for JSON."""
        filling = [] if self._sums is None else [self._sums]
        sums = [one.tolist() for one in (*self._past, *filling)]
        return {"step": self.step, "sums": sums}

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from the `state` of another monitor with the same settings."""
        # Older states also say where the first window began.
        if (
            not isinstance(state, Mapping)
            or set(state) - {"begin"} != {"step", "sums"}
            or state.get("begin", self.skip) != self.skip
        ):
            raise ValueError(f"state must come from Monitor.state: got {state!r}")
        step = as_size("step", state["step"], least=0)
        windows, filling = divmod(max(0, step - self.skip), self.window)
        n_past = min(self.reference, windows)
        worlds = self._worlds
        sums = [as_array("sums", one) for one in state["sums"]]
        shapes = {one.shape for one in sums}
        if (
            len(sums) != n_past + (filling > 0)
            or len(shapes) > 1
            or any(shape[: len(worlds)] != worlds for shape in shapes)
        ):
            raise ValueError(
                f"state must come from a monitor with the same window, reference and worlds: got {state!r}"
            )
        self.step = step
        self._past = sums[:n_past]
        self._sums = sums[-1] if filling else None

    @property
    def _worlds(self) -> tuple[int, ...]:
        """Shape of the worlds axis, if there is one."""
        return () if self.n_worlds is None else (self.n_worlds,)

    def _as_columns(self, columns: tuple[ArrayLike, ...]) -> list[NDArray]:
        arrays = [np.asarray(column) for column in columns]
        shapes = {array.shape for array in arrays}
        same = len(shapes) == 1 and arrays[0].ndim > 0
        if not same or arrays[0].shape[:-1] != self._worlds:
            wanted = "(n,)" if self.n_worlds is None else f"({self.n_worlds}, n)"
            raise ValueError(
                f"columns must all have one shape {wanted}: got {[a.shape for a in arrays]}"
            )
        return arrays

    def _take(self, stop: int, new: NDArray) -> list[tuple[int, NDArray]]:
        """Add the sums of events that end before `stop`; return the result of a window that ends there."""
        self.step = stop
        if stop <= self.skip:
            return []
        self._sums = new if self._sums is None else self._sums + new
        if (stop - self.skip) % self.window:
            return []
        now = self._sums
        self._sums = None
        if len(self._past) < self.reference:
            self._past = [*self._past, now]
            return []
        past = np.stack(self._past) if self._past else now[None][:0]
        return [(stop, self.statistic(now, past))]

    def _alert(self, readings: Readings, at: int, world: tuple[int, ...]) -> Alert:
        step = int(readings.step[at])
        cell = int(readings.cell[(*world, at)])
        statistic = float(readings.statistic[(*world, at)])
        message = (
            f"{self.name}: p = {statistic:.2g} is below {self.threshold:.3g} "
            f"in events {step - self.window} to {step - 1}"
        )
        where = int(world[0]) if world else None
        return Alert(self.name, step, statistic, self.threshold, message, cell, where)
