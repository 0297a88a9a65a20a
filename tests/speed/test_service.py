"""The production loop and its limits."""

from benchmarks.contest import measure
from benchmarks.service import rows


def test_the_service_keeps_its_budget():
    (row,) = rows(n_visits=1000)
    broken = [one for one in measure(row, 6)["promises"] if not one["kept"]]
    assert not broken
