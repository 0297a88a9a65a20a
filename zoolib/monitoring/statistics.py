r"""Statistics, which a monitor computes from the sums of a window, p-values first.

A statistic takes `now`, the sums of a window, and `reference`, those of m reference windows, and returns one
number per cell, shape (..., n_cells). Sums from `rates` and `counts` have shapes (..., S, 2) and
(m, ..., S, 2) and hold whole numbers, with S segments or values; those from `moments` have (..., 6). A
statistic that judges each segment or value on its own has S cells, any other has one. Its attribute
``least_reference`` says how many reference windows it needs.
"""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray
from scipy import stats
from scipy.special import entr, rel_entr

from zoolib._support.checks import as_probability

Statistic = Callable[[NDArray, NDArray], NDArray[np.float64]]


def same_rates(now: NDArray, reference: NDArray) -> NDArray[np.float64]:
    """Test for each cell whether its share of successes is still that of the reference.

    Fisher's exact test, two-sided by doubling the smaller tail, on sums from `rates` or `counts`. It is
    valid for any number of events, including zero; its true level is at most the stated level.
    """
    (n, k), (m, j) = (np.moveaxis(sums, -1, 0) for sums in (now, reference.sum(axis=0)))
    tails = stats.hypergeom(n + m, k + j, n)
    p = 2 * np.minimum(tails.cdf(k), tails.sf(k - 1))
    return np.where((n == 0) | (m == 0), 1, np.minimum(p, 1))


def same_mix(now: NDArray, reference: NDArray) -> NDArray[np.float64]:
    r"""Test whether values are as frequent as in the reference.

    The G test of two samples. Twice the size of each sample times its Kullback-Leibler divergence from
    their common mix, added up, is nearly :math:`\chi^2_{K - 1}` when nothing has changed (Wilks 1938),
    if each value is expected five times or more. Values that neither sample holds do not count in K. The
    sums come from `counts`.
    """
    both = np.stack([now, reference.sum(axis=0)])[..., 1]
    mix = both.sum(axis=0)
    expected = both.sum(axis=-1, keepdims=True) * mix / mix.sum(axis=-1, keepdims=True)
    g = 2 * rel_entr(both, expected).sum(axis=(0, -1))
    degrees = np.maximum((mix > 0).sum(axis=-1) - 1, 1)
    return stats.chi2.sf(g, degrees)[..., None]


def at_least(share: float) -> Statistic:
    """Return a test of a promise from below: shares are at least as large as promised, in each cell.

    The exact one-sided binomial test on sums from `rates` or `counts`; its level is at most the stated one.
    The promise `share` lies in [0, 1].
    """
    p = as_probability("share", share)
    return lambda now, _: stats.binom.cdf(now[..., 1], now[..., 0], p)


def at_most(share: float) -> Statistic:
    """Return a test of a promise from above, as `at_least` does: shares are at most as large as promised."""
    p = as_probability("share", share)
    return lambda now, _: stats.binom.sf(now[..., 1] - 1, now[..., 0], p)


def not_below_usual(statistic: Statistic) -> Statistic:
    r"""Return a test of whether another statistic has fallen below its range in the reference windows.

    It uses the prediction limit for one more number x after m from the same normal distribution: with their
    mean :math:`\bar x` and standard deviation :math:`s`, :math:`(x - \bar x) / (s \sqrt{1 + 1/m})` has
    Student's distribution with m - 1 degrees of freedom. The spread includes the agent's variation from
    window to window. The other statistic must not need a reference, like `normalised_entropy` or
    `fisher_z`; this test needs at least two reference windows, preferably ten.
    """

    def p_value(now: NDArray, reference: NDArray) -> NDArray[np.float64]:
        none = reference[:0]
        usual = np.stack([statistic(one, none) for one in reference])
        m = len(usual)
        spread = usual.std(axis=0, ddof=1)
        fall = statistic(now, none) - usual.mean(axis=0)
        with np.errstate(divide="ignore", invalid="ignore"):
            t = fall / (spread * np.sqrt(1 + 1 / m))
        # If the spread is zero, an unchanged value must not raise an alarm.
        return stats.t.cdf(np.nan_to_num(t, nan=0, neginf=-np.inf), m - 1)

    p_value.least_reference = 2
    return p_value


def normalised_entropy(now: NDArray, _: NDArray) -> NDArray[np.float64]:
    """Entropy of a mix of K values as a share of the largest possible, ln K; from `counts`.

    It lies between 0, for a single value, and 1.
    """
    events = now[..., 0]
    ones = now[..., 1]
    entropy = entr(ones / np.maximum(events, 1)).sum(axis=-1, keepdims=True)
    return entropy / np.log(max(2, now.shape[-2]))


def fisher_z(now: NDArray, _: NDArray) -> NDArray[np.float64]:
    """Fisher's transform artanh r of Pearson's correlation r, from `moments`: nearly normal, where r is skewed.

    r is 0 if x or y is constant.
    """
    n, x, y, xx, yy, xy = np.moveaxis(now, -1, 0)
    of_x = n * xx - x * x
    of_y = n * yy - y * y
    # The spread of a constant may be positive by rounding; treat it as zero.
    constant = (of_x <= 1e-12 * n * xx) | (of_y <= 1e-12 * n * yy)
    r = (n * xy - x * y) / np.sqrt(np.where(constant, 1, of_x * of_y))
    return np.arctanh(np.where(constant, 0, r).clip(-1 + 1e-12, 1 - 1e-12))[..., None]


# Statistics that compare with a reference need at least one reference window.
for _one in (same_rates, same_mix):
    _one.least_reference = 1
