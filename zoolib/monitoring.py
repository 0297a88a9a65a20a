r"""Monitors of a running recommender: windows of its log, and alarms with a stated rate of false ones.

A monitor cuts a stream of events into windows that do not overlap, adds each window up to a few sums,
and judges the sums, against the windows of a quiet time or against a promise. It looks once at each
window. See Chapter 5, "Watching it run".

What is added up is a *tally* (`rates`, `counts`, `moments`); how it is judged is a *statistic*. Either
the statistic is a p-value and the monitor gets `false_alarms`, or it is any number and the monitor gets
a `threshold`. All arrays may have a leading axis over worlds that are watched side by side.

===================== ================= ===============================================================
statistic             tally             what it is
===================== ================= ===============================================================
`same_rates`          `rates`           p-values: is a segment's share of clicks that of the reference?
`same_mix`            `counts`          p-value: are the values as frequent as in the reference?
`at_least`, `at_most` `rates`, `counts` p-values: are promised shares kept?
`not_below_usual`     any               p-value: has another statistic fallen out of its usual range?
`quantile_shift`      `rates`           relative change of the 5th and 95th percentile of rewards
`kl_divergence`       `counts`          Kullback-Leibler divergence from the reference, in nats
`normalised_entropy`  `counts`          entropy as a share of the largest possible
`shares`              `rates`, `counts` share of successes, or of each value
`correlation`         `moments`         Pearson's r
`fisher_z`            `moments`         its transform that is nearly normal
===================== ================= ===============================================================
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats
from scipy.special import entr, rel_entr

from zoolib._checks import (
    as_finite,
    as_ids,
    as_level,
    as_positive,
    as_probability,
    as_rate,
    as_size,
)

# Takes the sums of a window, and those of the reference windows stacked on a first axis; returns one
# number a cell.
Statistic = Callable[[NDArray, NDArray], NDArray[np.float64]]

PER_EVENTS = 10_000  # false alarms are counted in so many events
_LONGEST = 1_000_000  # no window is sought beyond


@dataclass(frozen=True)
class Alert:
    """One alarm.

    Attributes
    ----------
    monitor : str
        Name of the monitor.
    step : int
        Number of events it had seen when it raised the alarm.
    statistic, threshold : float
        What was found, and the number that it had to keep.
    message : str
        The same in words.
    cell : int
        Which segment, value or arm gave the alarm.
    world : int or None
        Which of several worlds.
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
    """What a monitor read off the windows that it has judged.

    Attributes
    ----------
    step : ndarray of int, shape (n,)
        Number of events seen at the end of each window.
    statistic : ndarray of float, shape (..., n)
        The worst cell's statistic; a p-value is multiplied by the number of cells.
    cell : ndarray of int, shape (..., n)
        Which cell that is.
    alarm : ndarray of bool, shape (..., n)
        Whether the monitor raised an alarm.
    """

    step: NDArray[np.int64]
    statistic: NDArray[np.float64]
    cell: NDArray[np.int64]
    alarm: NDArray[np.bool_]

    def delay(self, fault: int) -> NDArray[np.float64]:
        """Return the events from a fault to the first alarm after it, infinity without one; shape (...)."""
        fault = as_size("fault", fault, least=0)
        late = np.where(self.alarm & (self.step > fault), self.step - fault, np.inf)
        return late.min(axis=-1, initial=np.inf)


class Monitor:
    r"""Judge a stream window by window.

    The first `skip` events are passed over, the next `reference` windows become the reference, and each
    window after them is judged once, at its end. A p-value that is multiplied by the number of cells
    (Bonferroni) and compared with

    .. math:: \text{false alarms} \cdot \text{window} / 10{,}000

    gives, while nothing has changed, at most `false_alarms` alarms in 10,000 events on average, however
    long the monitor runs: the windows share out the rate in proportion to their lengths, and expected
    numbers add up whether or not the windows depend on each other through their common reference.

    Parameters
    ----------
    name : str
        For alerts.
    tally : callable
        Adds up events: takes columns of shape (..., n), returns sums of shape (..., *cells).
    statistic : callable
        Takes the sums of a window and those of the reference windows, stacked on a first axis, and
        returns one number a cell, shape (..., n_cells).
    window : int
        Events in a window.
    reference : int, default 0
        Number of windows to compare with.
    rolling : bool, default False
        Compare with the latest `reference` windows instead of the first, as "week on week" does.
    skip : int, default 0
        Events passed over at the start, while an agent learns.
    false_alarms : float, optional
        Expected number of false alarms in 10,000 events; for statistics that are p-values.
    threshold : float, optional
        For other statistics: raise an alarm where they lie below this number.
    above : bool, default False
        Raise the alarm above the threshold instead.
    labels : sequence of str, optional
        Names of the cells, for messages.
    n_worlds : int, optional
        Number of worlds W watched side by side; all columns then have shape (W, n).

    Attributes
    ----------
    step : int
        Events seen so far.
    delay : int
        If a fault shows in any full window of faulty events, then at most so many events after the
        fault there is an alarm: in the worst case it begins with the second event of a window. How
        large a window must be to show a fault with a stated probability is computed by `window_for`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what is described here.

    Examples
    --------
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
        rolling: bool = False,
        skip: int = 0,
        false_alarms: float | None = None,
        threshold: float | None = None,
        above: bool = False,
        labels: Sequence[str] | None = None,
        n_worlds: int | None = None,
    ) -> None:
        self.name, self.tally, self.statistic = str(name), tally, statistic
        self.window = as_size("window", window)
        least = max(getattr(statistic, "least_reference", 0), int(bool(rolling)))
        self.reference = as_size("reference", reference, least=least)
        self.rolling, self.above = bool(rolling), bool(above)
        self.skip = as_size("skip", skip, least=0)
        self.n_worlds = None if n_worlds is None else as_size("n_worlds", n_worlds)
        self.labels = None if labels is None else list(labels)
        if (false_alarms is None) == (threshold is None):
            raise ValueError(
                "choose one of false_alarms, for a p-value, and threshold: "
                f"got {false_alarms} and {threshold}"
            )
        self.is_p_value = threshold is None
        if self.is_p_value:
            rate = as_positive("false_alarms", false_alarms)
            threshold = as_level(
                "false_alarms * window / 10,000", rate * self.window / PER_EVENTS
            )
        self.threshold = as_finite("threshold", threshold)
        if self.is_p_value and self.above:
            raise ValueError("above must be False for a p-value: got True")
        self.delay = 2 * self.window - 1
        self.step, self._begin = 0, self.skip
        self._sums: NDArray | None = None  # of the window that is being filled
        self._past: list[NDArray] = []  # of the reference windows

    def reset(self) -> None:
        """Take what comes next as the new normal: it makes the reference, after it windows are judged."""
        self._begin, self._sums, self._past = max(self.step, self.skip), None, []

    def update(self, *columns: ArrayLike) -> list[Alert]:
        """Take the next events, and return the alarms they give.

        Parameters
        ----------
        *columns : array_like, shape (n,) or (W, n)
            What the tally adds up. It does not matter how the stream is cut into calls.

        Returns
        -------
        list of Alert

        Raises
        ------
        TypeError, ValueError
            If the columns are not what the tally takes. The monitor is then as it was.
        """
        readings = self.watch(*columns)
        rows = np.argwhere(readings.alarm.T)  # windows first: alerts come in order
        return [self._alert(readings, int(at), tuple(world)) for at, *world in rows]

    def watch(self, *columns: ArrayLike) -> Readings:
        """Take the next events as `update` does, and return all readings, for example to draw them."""
        pieces = self._cut(self._as_columns(columns))
        before = self.step, self._sums, self._past
        try:
            taken = [self._take(stop, self.tally(*piece)) for stop, piece in pieces]
        except Exception:
            self.step, self._sums, self._past = before
            raise
        judged = [one for one in taken if one is not None]
        step, statistic, cell = zip(*judged, strict=True) if judged else ((),) * 3
        statistic = np.asarray(statistic, float).reshape(-1, *self._worlds)
        beyond = (
            statistic > self.threshold if self.above else statistic < self.threshold
        )
        return Readings(
            np.asarray(step, np.int64),
            statistic.T,
            np.asarray(cell, np.int64).reshape(statistic.shape).T,
            beyond.T,
        )

    def state(self) -> dict[str, Any]:
        """Return what the monitor remembers as plain numbers and lists, for example for JSON."""
        return {
            "step": self.step,
            "begin": self._begin,
            "sums": None if self._sums is None else self._sums.tolist(),
            "past": [sums.tolist() for sums in self._past],
        }

    def restore(self, state: Mapping[str, Any]) -> None:
        """Continue from what `state` returned, in a monitor of the same settings.

        Raises
        ------
        TypeError, ValueError
            If that is not what was given. The monitor is then as it was.
        """
        known = {"step", "begin", "sums", "past"}
        if not isinstance(state, Mapping) or set(state) != known:
            raise ValueError(f"state must come from Monitor.state: got {state!r}")
        step, begin = (as_size(key, state[key], least=0) for key in ("step", "begin"))
        windows, filling = divmod(max(0, step - begin), self.window)
        past = [_as_sums(one) for one in state["past"]]
        sums = None if state["sums"] is None else _as_sums(state["sums"])
        shapes = {one.shape for one in past}
        shapes |= set() if sums is None else {sums.shape}
        if (
            len(past) != min(self.reference, windows)
            or (sums is None) != (filling == 0)
            or len(shapes) > 1
            or any(shape[: len(self._worlds)] != self._worlds for shape in shapes)
        ):
            raise ValueError(
                f"state must come from a monitor with the same window, reference and worlds: got {state!r}"
            )
        self.step, self._begin, self._sums, self._past = step, begin, sums, past

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

    def _cut(self, columns: list[NDArray]) -> list[tuple[int, list[NDArray]]]:
        """Cut columns where windows end; return the pieces with the number of the event after each."""
        first, last = self.step, self.step + columns[0].shape[-1]
        full = max(0, first - self._begin) // self.window
        ends = range(self._begin + full * self.window, last, self.window)
        cuts = sorted({first, last, *(end for end in ends if end > first)})
        return [
            (stop, [column[..., start - first : stop - first] for column in columns])
            for start, stop in pairwise(cuts)
        ]

    def _take(self, stop: int, new: NDArray) -> tuple[int, NDArray, NDArray] | None:
        """Add the sums of events that end before `stop`; at the end of a window to be judged, judge it."""
        self.step = stop
        if stop <= self._begin:
            return None
        self._sums = new if self._sums is None else self._sums + new
        if (stop - self._begin) % self.window:
            return None
        now, self._sums = self._sums, None
        ready = len(self._past) == self.reference
        judged = self._judge(stop, now) if ready else None
        if self.rolling or not ready:
            self._past = [*self._past, now][-self.reference :]
        return judged

    def _judge(self, stop: int, now: NDArray) -> tuple[int, NDArray, NDArray]:
        """Return the worst cell of a window, and its statistic."""
        past = np.stack(self._past) if self._past else now[None][:0]
        found = self.statistic(now, past)
        if self.labels is not None and len(self.labels) != found.shape[-1]:
            raise ValueError(
                f"labels must name {found.shape[-1]} cells: got {len(self.labels)}"
            )
        cell = found.argmax(axis=-1) if self.above else found.argmin(axis=-1)
        worst = np.take_along_axis(found, cell[..., None], axis=-1)[..., 0]
        if self.is_p_value:
            worst = np.minimum(1, worst * found.shape[-1])
        return stop, worst, cell

    def _alert(self, readings: Readings, at: int, world: tuple[int, ...]) -> Alert:
        step, cell = int(readings.step[at]), int(readings.cell[(*world, at)])
        statistic = float(readings.statistic[(*world, at)])
        what = self.name if self.labels is None else f"{self.name}, {self.labels[cell]}"
        found = f"p = {statistic:.2g}" if self.is_p_value else f"{statistic:.3g}"
        side = "above" if self.above else "below"
        message = (
            f"{what}: {found} is {side} {self.threshold:.3g} "
            f"in events {step - self.window} to {step - 1}"
        )
        where = int(world[0]) if world else None
        return Alert(self.name, step, statistic, self.threshold, message, cell, where)


# ---- tallies: what is added up ----


def rates(n_segments: int | None = None) -> Callable[..., NDArray[np.int64]]:
    """Count events and successes, such as visits and clicks, requests and errors.

    Parameters
    ----------
    n_segments : int, optional
        Number of segments S that are counted apart, such as personas.

    Returns
    -------
    callable
        Takes ``(success,)``, or ``(segment, success)`` with segments from 0 to S - 1 and success 0 or 1;
        returns (..., S, 2): events and successes of each segment.
    """
    if n_segments is None:
        return lambda success: _rates(np.zeros(success.shape, int), success, 1)
    size = as_size("n_segments", n_segments)
    return lambda segment, success: _rates(segment, success, size)


def counts(n_values: int) -> Callable[[NDArray], NDArray[np.int64]]:
    """Count how often each value comes, such as a persona, an arm or a category.

    Parameters
    ----------
    n_values : int
        Number of values K.

    Returns
    -------
    callable
        Takes ``(value,)`` with values from 0 to K - 1; returns (..., K, 2): all events, and those with
        each value.
    """
    size = as_size("n_values", n_values)
    return lambda value: _counts(as_ids("value", value, size), size)


def moments(
    x: NDArray, y: NDArray, weight: NDArray | None = None
) -> NDArray[np.float64]:
    """Add up what a correlation needs; a tally as it stands.

    Parameters
    ----------
    x, y : ndarray, shape (..., n)
        Finite numbers.
    weight : ndarray, shape (..., n), optional
        How much each event counts, 0 or more: 1 for explored traffic and 0 for the rest, for example,
        or one over the propensity. All count once if omitted.

    Returns
    -------
    ndarray, shape (..., 6)
        Sums of the weights, and of x, y, x², y² and x y times the weights.
    """
    weight = np.ones(x.shape) if weight is None else weight
    for name, column in (("x", x), ("y", y), ("weight", weight)):
        if column.dtype.kind not in "fiub" or not np.isfinite(column).all():
            raise ValueError(f"{name} must hold finite numbers: got {column}")
    if (weight < 0).any():
        raise ValueError(f"weight must be 0 or more: got {weight.min()}")
    x, y = x.astype(float), y.astype(float)
    terms = np.stack([np.ones(x.shape), x, y, x * x, y * y, x * y], axis=-1)
    return (weight[..., None] * terms).sum(axis=-2)


def _rates(segment: NDArray, success: NDArray, size: int) -> NDArray[np.int64]:
    known = np.isin(success, [0, 1])  # NaN is neither
    if not known.all():
        raise ValueError(f"success must be 0 or 1: got {success[~known].flat[0]}")
    pairs = 2 * as_ids("segment", segment, size) + success.astype(np.int64)
    table = _histogram(pairs, 2 * size).reshape(*segment.shape[:-1], size, 2)
    return np.stack([table.sum(axis=-1), table[..., 1]], axis=-1)


def _counts(value: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    counted = _histogram(value, size)
    return np.stack([np.full_like(counted, value.shape[-1]), counted], axis=-1)


def _histogram(value: NDArray[np.int64], size: int) -> NDArray[np.int64]:
    """Count the values 0 to size - 1 along the last axis."""
    rows = value.reshape(-1, value.shape[-1])
    offset = size * np.arange(len(rows))[:, None]
    counted = np.bincount((rows + offset).ravel(), minlength=size * len(rows))
    return counted.reshape(*value.shape[:-1], size)


# ---- statistics that are p-values ----


def _needs(n: int) -> Callable[[Statistic], Statistic]:
    """Note on a statistic how many reference windows it cannot do without."""

    def note(statistic: Statistic) -> Statistic:
        statistic.least_reference = n
        return statistic

    return note


@_needs(1)
def same_rates(now: NDArray, reference: NDArray) -> NDArray[np.float64]:
    """Test for each cell whether its share of successes is still that of the reference.

    Fisher's exact test, two-sided by doubling the smaller tail. It holds for any number of events, none
    included; its level is at most what it says, since counts come in steps.

    Parameters
    ----------
    now, reference : ndarray of int, shapes (..., S, 2) and (m, ..., S, 2)
        From `rates`, or from `counts` to test each value on its own.

    Returns
    -------
    ndarray, shape (..., S)
        p-values.
    """
    (n, k), (m, j) = (np.moveaxis(sums, -1, 0) for sums in (now, reference.sum(axis=0)))
    tails = stats.hypergeom(n + m, k + j, n)
    p = 2 * np.minimum(tails.cdf(k), tails.sf(k - 1))
    return np.where((n == 0) | (m == 0), 1, np.minimum(p, 1))


@_needs(1)
def same_mix(now: NDArray, reference: NDArray) -> NDArray[np.float64]:
    r"""Test whether values are as frequent as in the reference.

    The G test of two samples. Twice the size of each sample times its Kullback-Leibler divergence from
    their common mix, added up, is nearly :math:`\chi^2_{K - 1}` when nothing has changed (Wilks 1938),
    if each value is expected five times or more. Values that neither sample holds do not count in K.

    Parameters
    ----------
    now, reference : ndarray of int, shapes (..., K, 2) and (m, ..., K, 2)
        From `counts`.

    Returns
    -------
    ndarray, shape (..., 1)
        p-values.
    """
    both = np.stack([now, reference.sum(axis=0)])[..., 1]
    mix = both.sum(axis=0)
    expected = both.sum(axis=-1, keepdims=True) * mix / mix.sum(axis=-1, keepdims=True)
    g = 2 * rel_entr(both, expected).sum(axis=(0, -1))
    degrees = np.maximum((mix > 0).sum(axis=-1) - 1, 1)
    return stats.chi2.sf(g, degrees)[..., None]


def at_least(share: ArrayLike) -> Statistic:
    """Test a promise from below: shares are at least as large as promised.

    The exact one-sided binomial test; its level is at most what it says.

    Parameters
    ----------
    share : float or array_like, shape (n_cells,)
        What was promised, in [0, 1].

    Returns
    -------
    callable
        A statistic for sums of shape (..., n_cells, 2), from `rates` or `counts`.
    """
    promised = _as_shares(share)
    return lambda now, _: stats.binom.cdf(*_kept(now, promised), promised)


def at_most(share: ArrayLike) -> Statistic:
    """Test a promise from above, as `at_least` does from below."""
    promised = _as_shares(share)

    def p_value(now: NDArray, _: NDArray) -> NDArray[np.float64]:
        successes, events = _kept(now, promised)
        return stats.binom.sf(successes - 1, events, promised)

    return p_value


def _kept(now: NDArray, promised: NDArray) -> tuple[NDArray, NDArray]:
    """Return successes and events, if there is a promise for each cell."""
    n_cells = now.shape[-2]
    if promised.ndim and len(promised) != n_cells:
        raise ValueError(
            f"share must be one number, or one for each of {n_cells} cells: got {len(promised)}"
        )
    return now[..., 1], now[..., 0]


def not_below_usual(statistic: Statistic) -> Statistic:
    r"""Test whether another statistic has fallen below its range in the reference windows.

    The limit of prediction of one more number x after m from the same normal distribution: with their
    mean :math:`\bar x` and standard deviation :math:`s`, :math:`(x - \bar x) / (s \sqrt{1 + 1/m})` has
    Student's distribution with m - 1 degrees of freedom. The spread is the agent's own, its wandering from
    window to window included.

    Parameters
    ----------
    statistic : callable
        A statistic that needs no reference, such as `normalised_entropy` or `fisher_z`.

    Returns
    -------
    callable
        A statistic that needs a reference of two windows or more, better ten.
    """

    @_needs(2)
    def p_value(now: NDArray, reference: NDArray) -> NDArray[np.float64]:
        none = reference[:0]
        usual = np.stack([statistic(one, none) for one in reference])
        m, spread = len(usual), usual.std(axis=0, ddof=1)
        fall = statistic(now, none) - usual.mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = fall / (spread * np.sqrt(1 + 1 / m))
        # Without any spread, what is as ever is no reason for an alarm.
        return stats.t.cdf(np.nan_to_num(t, nan=0, neginf=-np.inf), m - 1)

    return p_value


def _as_sums(sums: ArrayLike) -> NDArray:
    array = np.asarray(sums)
    if array.dtype.kind not in "fiu" or not np.isfinite(array).all():
        raise ValueError(f"sums must hold finite numbers: got {sums}")
    return array


def _as_shares(share: ArrayLike) -> NDArray[np.float64]:
    shares = np.asarray(share)
    if shares.ndim > 1:
        raise ValueError(
            f"share must be a number or a row of them: got shape {shares.shape}"
        )
    checked = [as_probability("share", one) for one in np.atleast_1d(shares).tolist()]
    return np.array(checked).reshape(shares.shape)


# ---- statistics to compare with a threshold ----


@_needs(1)
def quantile_shift(now: NDArray, reference: NDArray) -> NDArray[np.float64]:
    """Relative change of the 5th and the 95th percentile of rewards of 0 and 1; the larger of the two.

    A percentile of such rewards is 0 or 1. From 0 to 1 the change is infinite, from 0 to 0 it is none.

    Parameters
    ----------
    now, reference : ndarray of int, shapes (..., S, 2) and (m, ..., S, 2)
        From `rates`.

    Returns
    -------
    ndarray, shape (..., S)
    """
    new, old = (
        np.stack([_quantile(sums, q) for q in (0.05, 0.95)])
        for sums in (now, reference.sum(axis=0))
    )
    change = np.where(new == old, 0.0, np.where(old == 0, np.inf, abs(new - old)))
    return change.max(axis=0)


def _quantile(sums: NDArray, q: float) -> NDArray[np.float64]:
    """Smallest reward with at least a share q of all rewards at or below it."""
    events, ones = sums[..., 0], sums[..., 1]
    return (events - ones < q * events).astype(float)


@_needs(1)
def kl_divergence(now: NDArray, reference: NDArray) -> NDArray[np.float64]:
    r"""Kullback-Leibler divergence of the window's mix from the reference's, in nats.

    Infinite if the window holds a value that the reference does not.

    Parameters
    ----------
    now, reference : ndarray of int, shapes (..., K, 2) and (m, ..., K, 2)
        From `counts`.

    Returns
    -------
    ndarray, shape (..., 1)
    """
    p, q = (shares(sums, reference) for sums in (now, reference.sum(axis=0)))
    return rel_entr(p, q).sum(axis=-1, keepdims=True)


def normalised_entropy(now: NDArray, _: NDArray) -> NDArray[np.float64]:
    """Entropy of a mix as a share of the largest possible, ln K.

    Parameters
    ----------
    now : ndarray of int, shape (..., K, 2)
        From `counts`.

    Returns
    -------
    ndarray, shape (..., 1)
        Between 0, for a single value, and 1.
    """
    entropy = entr(shares(now, _)).sum(axis=-1, keepdims=True)
    return entropy / np.log(max(2, now.shape[-2]))


def shares(now: NDArray, _: NDArray) -> NDArray[np.float64]:
    """Share of successes in each cell; shapes (..., S, 2), from `rates` or `counts`, and (..., S).

    A cell without events has share 1, so that it is under no threshold.
    """
    events, ones = now[..., 0], now[..., 1]
    return np.where(events == 0, 1.0, ones / np.maximum(events, 1))


def fisher_z(now: NDArray, _: NDArray) -> NDArray[np.float64]:
    """Fisher's transform artanh r of `correlation`: nearly normal, where r is skewed."""
    return np.arctanh(np.clip(correlation(now, _), -1 + 1e-12, 1 - 1e-12))


def correlation(now: NDArray, _: NDArray) -> NDArray[np.float64]:
    """Pearson's correlation; 0 if x or y is constant.

    Parameters
    ----------
    now : ndarray, shape (..., 6)
        From `moments`.

    Returns
    -------
    ndarray, shape (..., 1)
    """
    n, x, y, xx, yy, xy = np.moveaxis(now, -1, 0)
    of_x, of_y = n * xx - x * x, n * yy - y * y
    # What rounding leaves of a constant's spread is not a spread.
    constant = (of_x <= 1e-12 * n * xx) | (of_y <= 1e-12 * n * yy)
    r = (n * xy - x * y) / np.sqrt(np.where(constant, 1, of_x * of_y))
    return np.where(constant, 0, np.clip(r, -1, 1))[..., None]


# ---- how long a window must be ----


def window_for(
    before: float,
    after: float,
    false_alarms: float,
    *,
    share: float = 1.0,
    n_cells: int = 1,
    two_sided: bool = False,
    reference: int | None = None,
    power: float = 0.95,
) -> int:
    r"""Compute how many events a window needs to show a change of a rate.

    In the normal approximation, a cell with :math:`n` events of a window shows a change from
    :math:`p` to :math:`q` with probability :math:`\beta`, the `power`, if

    .. math:: |p - q| \sqrt n = z_\alpha \sqrt{p (1 - p) (1 + 1/m)} + z_\beta \sqrt{q (1 - q) + p (1 - p) / m}

    where a standard normal variable exceeds :math:`z_\alpha` with probability :math:`\alpha`, the level
    that the window gets, divided by the number of cells, stays below :math:`z_\beta` with probability
    :math:`\beta`, and :math:`m` is the number of reference windows. Larger windows get a larger level.

    Parameters
    ----------
    before, after : float
        Rates of successes, in [0, 1], not equal.
    false_alarms : float
        Of the monitor, in 10,000 events.
    share : float, default 1
        Share of the events that fall into the cell, in (0, 1].
    n_cells : int, default 1
        Number of cells of the monitor.
    two_sided : bool, default False
        Whether the test looks to both sides, as `same_rates` does.
    reference : int, optional
        Number of reference windows; omit it for a promise.
    power : float, default 0.95
        Probability to show the change.

    Returns
    -------
    int
        The smallest window of those from 1 to the largest that `false_alarms` allows.

    Raises
    ------
    TypeError, ValueError
        If an argument is out of range, or no window is long enough.

    Examples
    --------
    Budget shoppers, a quarter of the visitors, click .15 where they clicked .40:

    >>> window_for(0.40, 0.15, 0.1, share=0.25, n_cells=4, two_sided=True, reference=10)
    354
    """
    p, q = as_probability("before", before), as_probability("after", after)
    if p == q:
        raise ValueError(f"after must differ from before = {before}: got {after}")
    rate, share = as_positive("false_alarms", false_alarms), as_rate("share", share)
    cells = as_size("n_cells", n_cells) * (2 if two_sided else 1)
    per_m = 0 if reference is None else 1 / as_size("reference", reference)
    beta = stats.norm.ppf(as_level("power", power))
    window = np.arange(1, min(int(PER_EVENTS / rate), _LONGEST) + 1)
    alpha = stats.norm.isf(np.minimum(rate * window / PER_EVENTS / cells, 0.5))
    v, w = p * (1 - p), q * (1 - q)
    needed = alpha * np.sqrt(v * (1 + per_m)) + beta * np.sqrt(w + v * per_m)
    enough = abs(p - q) * np.sqrt(share * window) >= needed
    if not enough.any():
        raise ValueError(
            f"after must be farther from before = {before} for a window of at most {window[-1]} events: "
            f"got {after}"
        )
    return int(window[enough.argmax()])
