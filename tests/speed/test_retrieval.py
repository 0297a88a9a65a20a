"""Decisions among a hundred thousand products, and among a million."""

import pytest

from benchmarks.contest import measure
from benchmarks.retrieval import Shop, exact_row, two_stage_row


@pytest.mark.parametrize(
    ("make_row", "n_products"), [(exact_row, 100_000), (two_stage_row, 1_000_000)]
)
def test_a_decision_keeps_its_budget(make_row, n_products):
    """Computing time of the thread: what else the machine does is not the index's."""
    promises = measure(make_row(Shop(n_products)), 6)["promises"]
    assert promises
    assert not [one for one in promises if not one["kept"]]
