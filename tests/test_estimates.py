import numpy as np
import pytest
from scipy import stats

from zoolib import Estimate, mean_interval, proportion_interval


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


@pytest.mark.parametrize(
    "samples", [[], [1.0], [1.0, np.nan], [1.0, np.inf], [[1.0, 2.0], [3.0, 4.0]]]
)
def test_samples_are_checked(samples):
    with pytest.raises(ValueError, match="samples"):
        mean_interval(samples)


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
