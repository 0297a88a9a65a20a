r"""Monitors of a running recommender: windows of its log, and alarms with a stated rate of false alarms.

A `Monitor` cuts a stream of events into windows that do not overlap, sums each window with a *tally*
(`rates`, `counts`, `moments`), and tests the sums once with a *statistic*, against reference windows
or against a promised value. A monitor whose statistic is a p-value takes `false_alarms`; with any other
statistic it takes a `threshold`. All arrays may have a leading axis over worlds that are watched side by
side. See Chapter 6, "Monitoring".

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

from zoolib.monitoring.monitor import Alert, Monitor, Readings
from zoolib.monitoring.power import window_for
from zoolib.monitoring.statistics import (
    at_least,
    at_most,
    correlation,
    fisher_z,
    kl_divergence,
    normalised_entropy,
    not_below_usual,
    quantile_shift,
    same_mix,
    same_rates,
    shares,
)
from zoolib.monitoring.tallies import counts, moments, rates

__all__ = [
    "Alert",
    "Monitor",
    "Readings",
    "at_least",
    "at_most",
    "correlation",
    "counts",
    "fisher_z",
    "kl_divergence",
    "moments",
    "normalised_entropy",
    "not_below_usual",
    "quantile_shift",
    "rates",
    "same_mix",
    "same_rates",
    "shares",
    "window_for",
]
