"""The window size that is needed to detect a change of a given size."""

from __future__ import annotations

import numpy as np
from scipy import stats

from zoolib._support.checks import (
    as_flag,
    as_level,
    as_positive,
    as_probability,
    as_rate,
    as_size,
)
from zoolib.monitoring.monitor import PER_EVENTS

_LONGEST = 1_000_000  # the largest window considered


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
        The monitor's expected number of false alarms in 10,000 events.
    share : float, default 1
        Share of the events that fall into the cell, in (0, 1].
    n_cells : int, default 1
        Number of cells of the monitor.
    two_sided : bool, default False
        Whether the test is two-sided, like `same_rates`.
    reference : int, optional
        Number of reference windows; omit it for a promise.
    power : float, default 0.95
        Probability of detecting the change.

    Returns
    -------
    int
        The smallest window of those from 1 to the largest that `false_alarms` allows.

    Raises
    ------
    ValueError
        If no window that `false_alarms` allows is long enough.

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
    cells = as_size("n_cells", n_cells) * (2 if as_flag("two_sided", two_sided) else 1)
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
