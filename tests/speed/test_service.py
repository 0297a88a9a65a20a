"""The production loop and its limits."""

from benchmarks.service import (
    within_limits,
)


def test_the_service_keeps_its_budget():
    assert max(within_limits(n_visits=1000).values()) < 1
