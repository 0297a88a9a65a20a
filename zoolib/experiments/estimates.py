"""Estimates with confidence intervals, from many worlds or many draws.

Confidence levels lie strictly between 0 and 1.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import numpy as np
import scipy  # which loads scipy.stats where it is first used
from numpy.typing import ArrayLike, NDArray
from scipy import special

from zoolib._support.checks import Seed, as_level, as_seed, as_size


@dataclass(frozen=True)
class Estimate:
    """A point estimate, the ends of its confidence interval, and the number of observations behind it.

    A `note` says what is wanting, if anything is: see `zoolib.offpolicy`.
    """

    mean: float
    low: float
    high: float
    n: int
    level: float = 0.95
    note: str = ""

    def __format__(self, spec: str) -> str:
        """Format all three numbers: ``f"{estimate:.3f}"`` gives ``0.412 [0.409, 0.415]``; then the note."""
        note = f" ({self.note})" if self.note else ""
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]{note}"


def half_width(samples: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Half the width of Student's interval for the mean over the first axis."""
    level = as_level("level", level)
    n = len(samples)
    # What scipy.stats computes, without its checks, which take far longer.
    t = special.stdtrit(n - 1, (1 + level) / 2)
    return t * samples.std(axis=0, ddof=1) / math.sqrt(n)


def mean_interval(samples: ArrayLike, level: float = 0.95) -> Estimate:
    """Estimate a mean from independent samples, one per world, by Student's t.

    Parameters
    ----------
    samples : array_like, shape (n,)
        At least two finite numbers. For a paired comparison, the differences.
    level : float, default 0.95
        Confidence level.

    Examples
    --------
    >>> print(f"{mean_interval([1.0, 2.0, 3.0]):.2f}")
    2.00 [-0.48, 4.48]
    """
    samples = _finite_row(samples)
    level = as_level("level", level)
    # A power of two as the unit, so that squares neither overflow nor vanish and nothing is rounded.
    unit = np.frexp(np.abs(samples).max())[1]
    samples = np.ldexp(samples, -unit)
    mean = samples.mean()
    half = half_width(samples, level)
    ends = (float(np.ldexp(x, unit)) for x in (mean, mean - half, mean + half))
    return Estimate(*ends, len(samples), level)


def proportion_interval(successes: int, trials: int, level: float = 0.95) -> Estimate:
    """Estimate a probability from independent trials by Wilson's interval.

    Parameters
    ----------
    successes, trials : int
        Counts, for example clicks and visits; at least one trial.
    level : float, default 0.95

    Examples
    --------
    >>> print(f"{proportion_interval(53, 100):.3f}")
    0.530 [0.433, 0.625]
    """
    trials = as_size("trials", trials)
    successes = as_size("successes", successes, least=0)
    if successes > trials:
        raise ValueError(
            f"successes must be at most trials = {trials}: got {successes}"
        )
    level = as_level("level", level)
    interval = scipy.stats.binomtest(successes, trials).proportion_ci(
        level, method="wilson"
    )
    low, high = map(float, interval)
    return Estimate(successes / trials, low, high, trials, level)


def median_interval(samples: ArrayLike, level: float = 0.95) -> Estimate:
    """Estimate a median from independent samples, some of which may be infinite.

    The interval lies between two of the ordered samples, so it makes no assumption about the distribution,
    and a run that never recovers counts as infinite. Its true level is at least `level`.

    Parameters
    ----------
    samples : array_like, shape (n,)
        Times, one per world; infinity for events that did not happen. A level of 0.95 needs at least
        six, since with fewer no two samples are far enough apart in rank.
    level : float, default 0.95

    Examples
    --------
    >>> print(f"{median_interval([3, 1, 4, 1, 5, 9, 2, 6, np.inf]):.0f}")
    4 [1, 9]
    """
    samples = np.asarray(samples, dtype=float)
    level = as_level("level", level)
    if samples.ndim != 1 or np.isnan(samples).any():
        raise ValueError(f"samples must be numbers in one row: got {samples}")
    n = len(samples)
    # The k-th smallest lies below the median unless fewer than k of n tossed coins come up heads.
    k = int(scipy.stats.binom.ppf((1 - level) / 2, n, 0.5)) if n else 0
    if k < 1:
        raise ValueError(
            f"samples must be more for an interval of level {level}: got {n}"
        )
    ordered = np.sort(samples)
    low = float(ordered[k - 1])
    high = float(ordered[n - k])
    return Estimate(float(np.median(samples)), low, high, n, level)


def bootstrap_interval(
    samples: ArrayLike,
    statistic: Callable[..., NDArray] = np.mean,
    level: float = 0.95,
    seed: Seed = 0,
) -> Estimate:
    """Estimate any statistic from independent samples by the bootstrap (BCa, 9,999 resamples).

    Suited to means of skewed samples, for which the symmetric interval of Student is wrong.

    Parameters
    ----------
    samples, level
        As for `mean_interval`.
    statistic : callable, default numpy.mean
        Called with an array and ``axis=``.
    seed : int, SeedSequence or Generator, default 0
        Seed of the resampling.
    """
    samples = _finite_row(samples)
    level = as_level("level", level)
    value = float(statistic(samples, axis=0))
    if np.ptp(samples) == 0:  # nothing to resample: every draw is the same
        return Estimate(value, value, value, len(samples), level)
    result = scipy.stats.bootstrap(
        (samples,),
        statistic,
        confidence_level=level,
        rng=np.random.default_rng(as_seed("seed", seed)),
    )
    low, high = map(float, result.confidence_interval)
    return Estimate(value, low, high, len(samples), level)


def _finite_row(samples: ArrayLike) -> NDArray[np.float64]:
    samples = np.asarray(samples, dtype=float)
    if samples.ndim != 1 or len(samples) < 2 or not np.isfinite(samples).all():
        raise ValueError(
            f"samples must be two or more finite numbers in one row: got {samples}"
        )
    return samples
