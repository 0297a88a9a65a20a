r"""Monitors of a running recommender: windows of its log, and alarms with a stated rate of false alarms.

A `Monitor` cuts a stream of events into windows that do not overlap, sums each window with a *tally*
(`rates`, `counts`, `moments`), and tests the sums once with a *statistic*, against reference windows
or against a promised value. A statistic is a p-value; `not_below_usual` makes one of `normalised_entropy` or
`fisher_z`. All arrays may have a leading axis over worlds that are watched side by side. See Chapter 6,
"A monitor: has anything changed?".

===================== ================= ===============================================================
statistic             tally             what it is
===================== ================= ===============================================================
`same_rates`          `rates`           p-values: is a segment's share of clicks that of the reference?
`same_mix`            `counts`          p-value: are the values as frequent as in the reference?
`at_least`, `at_most` `rates`, `counts` p-values: are promised shares kept?
`not_below_usual`     any               p-value: has another statistic fallen out of its usual range?
`normalised_entropy`  `counts`          entropy as a share of the largest possible
`fisher_z`            `moments`         Pearson's r, transformed to be nearly normal
===================== ================= ===============================================================
"""

from zoolib.monitoring.monitor import Alert, Monitor, Readings
from zoolib.monitoring.statistics import (
    at_least,
    at_most,
    fisher_z,
    normalised_entropy,
    not_below_usual,
    same_mix,
    same_rates,
)
from zoolib.monitoring.tallies import counts, moments, rates

__all__ = [
    "Alert",
    "Monitor",
    "Readings",
    "at_least",
    "at_most",
    "counts",
    "fisher_z",
    "moments",
    "normalised_entropy",
    "not_below_usual",
    "rates",
    "same_mix",
    "same_rates",
]
