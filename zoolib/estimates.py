"""A number with its interval, and how to get one from many worlds or many draws."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from zoolib._checks import as_size


@dataclass(frozen=True)
class Estimate:
    """A point estimate with the ends of its confidence interval.

    Attributes
    ----------
    mean, low, high : float
        The estimate and its interval.
    n : int
        Number of independent observations behind it.
    level : float
        Confidence level of the interval.
    """

    mean: float
    low: float
    high: float
    n: int
    level: float = 0.95

    def __format__(self, spec: str) -> str:
        """Format all three numbers: ``f"{estimate:.3f}"`` gives ``0.412 [0.409, 0.415]``."""
        return f"{self.mean:{spec}} [{self.low:{spec}}, {self.high:{spec}}]"


def half_width(samples: NDArray[np.float64], level: float) -> NDArray[np.float64]:
    """Half the width of Student's interval for the mean over the first axis."""
    return stats.t.ppf((1 + level) / 2, df=len(samples) - 1) * stats.sem(
        samples, axis=0
    )


def mean_interval(samples: ArrayLike, level: float = 0.95) -> Estimate:
    """Estimate a mean from independent samples, one a world, by Student's t.

    Parameters
    ----------
    samples : array_like, shape (n,)
        At least two finite numbers. For a paired comparison, the differences.
    level : float, default 0.95
        Confidence level.

    Returns
    -------
    Estimate

    Raises
    ------
    ValueError
        If there are fewer than two samples, or one is not finite.

    Examples
    --------
    >>> print(f"{mean_interval([1.0, 2.0, 3.0]):.2f}")
    2.00 [-0.48, 4.48]
    """
    samples = np.asarray(samples, dtype=float)
    if samples.ndim != 1 or len(samples) < 2 or not np.isfinite(samples).all():
        raise ValueError(
            f"samples must be two or more finite numbers in one row: got {samples}"
        )
    n, mean, half = len(samples), samples.mean(), half_width(samples, level)
    return Estimate(float(mean), float(mean - half), float(mean + half), n, level)


def proportion_interval(successes: int, trials: int, level: float = 0.95) -> Estimate:
    """Estimate a probability from independent trials by Wilson's interval.

    Parameters
    ----------
    successes, trials : int
        Counts, for example clicks and visits.
    level : float, default 0.95
        Confidence level.

    Returns
    -------
    Estimate

    Raises
    ------
    TypeError, ValueError
        If the counts are not whole numbers with 0 <= successes <= trials and trials >= 1.

    Examples
    --------
    >>> print(f"{proportion_interval(53, 100):.3f}")
    0.530 [0.433, 0.625]
    """
    trials, successes = (
        as_size("trials", trials),
        as_size("successes", successes, least=0),
    )
    if successes > trials:
        raise ValueError(
            f"successes must be at most trials = {trials}: got {successes}"
        )
    interval = stats.binomtest(successes, trials).proportion_ci(level, method="wilson")
    return Estimate(
        successes / trials, float(interval.low), float(interval.high), trials, level
    )
