import numpy as np
import pytest
from scipy import stats

from zoolib import (
    Estimate,
    bootstrap_interval,
    mean_interval,
    median_interval,
    proportion_interval,
)
from zoolib.experiments.estimates import half_width


def test_mean_interval_is_students():
    samples = np.random.default_rng(0).normal(3, 2, size=12)
    estimate = mean_interval(samples, level=0.9)
    reference = stats.ttest_1samp(samples, 0).confidence_interval(0.9)
    assert (estimate.low, estimate.high) == pytest.approx(
        (reference.low, reference.high)
    )
    assert (estimate.mean, estimate.n, estimate.level) == (
        pytest.approx(samples.mean()),
        12,
        0.9,
    )


@pytest.mark.no_cover
def test_intervals_cover_as_often_as_they_say():
    rng = np.random.default_rng(1)
    means = [mean_interval(row) for row in rng.normal(size=(4000, 8))]
    assert np.mean([e.low < 0 < e.high for e in means]) == pytest.approx(
        0.95, abs=0.015
    )
    clicks = rng.binomial(100, 0.3, size=2000)
    rates = [proportion_interval(int(k), 100) for k in clicks]
    assert np.mean([e.low < 0.3 < e.high for e in rates]) == pytest.approx(
        0.95, abs=0.02
    )


def test_proportion_interval_is_wilsons():
    k, n, z = 3, 5, stats.norm.ppf(0.975)
    centre, half = (
        (k + z**2 / 2) / (n + z**2),
        z / (n + z**2) * np.sqrt(k * (n - k) / n + z**2 / 4),
    )
    estimate = proportion_interval(k, n)
    assert (estimate.low, estimate.high) == pytest.approx(
        (centre - half, centre + half)
    )
    assert proportion_interval(0, 5).low == 0
    assert proportion_interval(np.int64(5), np.int64(5)).high == 1


def test_estimates_print_all_three_numbers():
    assert f"{Estimate(0.5, 0.25, 0.75, 4):.1%}" == "50.0% [25.0%, 75.0%]"


@pytest.mark.parametrize("interval", [mean_interval, bootstrap_interval])
@pytest.mark.parametrize(
    "samples", [[], [1.0], [1.0, np.nan], [1.0, np.inf], [[1.0, 2.0], [3.0, 4.0]]]
)
def test_samples_are_checked(samples, interval):
    with pytest.raises(ValueError, match="samples must be two or more finite"):
        interval(samples)


@pytest.mark.parametrize(
    ("k", "n", "error", "word"),
    [
        (1, 0, ValueError, "trials"),
        (-1, 5, ValueError, "successes"),
        (6, 5, ValueError, "at most"),
        (1.0, 5, TypeError, "successes"),
    ],
)
def test_counts_are_checked(k, n, error, word):
    with pytest.raises(error, match=word):
        proportion_interval(k, n)


def heads(low, high, n):
    """Probability that of n tossed coins from low to high show heads."""
    return stats.binom.cdf(high, n, 0.5) - stats.binom.cdf(low - 1, n, 0.5)


def test_the_median_of_twenty_lies_between_the_6th_and_the_15th():
    samples = np.random.default_rng(0).permutation(20) + 1
    assert median_interval(samples) == Estimate(10.5, 6, 15, 20, 0.95)
    assert heads(6, 14, 20) > 0.95 > heads(7, 13, 20)


@pytest.mark.parametrize(("level", "least"), [(0.9, 5), (0.95, 6), (0.99, 8)])
def test_ranks_are_the_nearest_that_keep_the_level(level, least):
    for n in range(least, 60):
        estimate = median_interval(np.arange(n)[::-1] + 1, level)
        low, high = int(estimate.low), int(estimate.high)
        assert low + high == n + 1
        assert heads(low, high - 1, n) >= level > heads(low + 1, high - 2, n)
        assert (estimate.mean, estimate.n, estimate.level) == ((n + 1) / 2, n, level)
    with pytest.raises(ValueError, match=f"must be more.*{level}: got {least - 1}"):
        median_interval(range(least - 1), level)


def test_intervals_of_a_skewed_median_cover_as_often_as_they_say():
    samples = np.random.default_rng(2).exponential(size=(1000, 20))
    estimates = [median_interval(row) for row in samples]
    covered = np.mean([e.low < np.log(2) < e.high for e in estimates])
    assert covered == pytest.approx(heads(6, 14, 20), abs=0.02)
    assert covered > 0.93


@pytest.mark.parametrize(
    ("n_infinite", "expected"),
    [
        (0, (10.5, 6, 15)),
        (5, (10.5, 6, 15)),
        (6, (10.5, 6, np.inf)),
        (10, (np.inf, 6, np.inf)),
        (15, (np.inf, np.inf, np.inf)),
    ],
)
def test_what_never_happened_counts_as_late(n_infinite, expected):
    samples = np.arange(20) + 1.0
    samples[20 - n_infinite :] = np.inf
    estimate = median_interval(np.random.default_rng(0).permutation(samples))
    assert (estimate.mean, estimate.low, estimate.high) == expected


@pytest.mark.parametrize(
    "samples", [[], [1.0] * 5, [1.0] * 9 + [np.nan], [[1.0] * 9, [2.0] * 9], 3.0]
)
def test_samples_of_a_median_are_checked(samples):
    with pytest.raises(ValueError, match="samples"):
        median_interval(samples)


def test_the_bootstrap_takes_any_statistic_and_repeats_itself():
    samples = np.random.default_rng(3).exponential(size=101)
    estimate = bootstrap_interval(samples, np.median)
    ranks = median_interval(samples)
    assert estimate.mean == np.median(samples)
    assert estimate.low == pytest.approx(ranks.low, abs=0.1)
    assert estimate.high == pytest.approx(ranks.high, abs=0.1)
    assert estimate == bootstrap_interval(samples, np.median, seed=0)
    assert bootstrap_interval(samples) != bootstrap_interval(samples, seed=1)
    one, other = (
        bootstrap_interval(samples, seed=np.random.SeedSequence(5)) for _ in range(2)
    )
    assert one == other
    with pytest.raises(TypeError, match="seed must be a whole number: got None"):
        bootstrap_interval(samples, seed=None)


@pytest.mark.parametrize("level", [0.95, 0.5])
def test_the_bootstrap_is_bca_with_9999_resamples(level):
    samples = np.random.default_rng(4).exponential(size=20)
    reference = stats.bootstrap(
        (samples,),
        np.mean,
        n_resamples=9999,
        confidence_level=level,
        method="BCa",
        rng=np.random.default_rng(7),
    ).confidence_interval
    estimate = bootstrap_interval(samples, level=level, seed=7)
    assert (estimate.low, estimate.high) == (reference.low, reference.high)
    assert estimate.mean == pytest.approx(samples.mean())
    assert (estimate.n, estimate.level) == (20, level)


def test_samples_that_are_all_alike_have_an_interval_without_width():
    same = bootstrap_interval([0.3, 0.3, 0.3])
    assert (same.mean, same.low, same.high) == pytest.approx((0.3, 0.3, 0.3))


@pytest.mark.parametrize(
    "interval",
    [
        lambda level: mean_interval([1.0, 2.0], level),
        lambda level: proportion_interval(1, 2, level),
        lambda level: median_interval(range(20), level),
        lambda level: bootstrap_interval([1.0, 2.0], level=level),
        lambda level: bootstrap_interval([1.0, 1.0], level=level),
        lambda level: half_width(np.array([1.0, 2.0]), level),
    ],
    ids=["mean", "proportion", "median", "bootstrap", "all alike", "half width"],
)
def test_levels_are_checked(interval):
    for wrong in (0, 1, -0.5, 95, np.nan, np.inf):
        said = f"level must lie strictly between 0 and 1: got {wrong}"
        with pytest.raises(ValueError, match=said):
            interval(wrong)
    for strange in ("0.95", None, True):
        with pytest.raises(TypeError, match=f"level must be a number: got {strange!r}"):
            interval(strange)
    interval(np.float32(0.9))
