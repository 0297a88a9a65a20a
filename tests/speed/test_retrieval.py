"""Decisions among a hundred thousand products, and among a million."""

import time

import pytest

from benchmarks.contest import measure
from benchmarks.retrieval import Shop, exact_row, two_stage_row


@pytest.mark.parametrize(
    ("make_row", "n_products"), [(exact_row, 100_000), (two_stage_row, 1_000_000)]
)
def test_a_decision_keeps_its_budget(make_row, n_products):
    """Computing time of the thread, and a slow phase of the machine is waited for: twice, a little while."""
    row = make_row(Shop(n_products))
    for pause_s in (0, 20, 40):
        time.sleep(pause_s)
        promises = measure(row, 6)["promises"]
        assert promises
        if missed := [one for one in promises if not one["kept"]]:
            continue
        break
    assert not missed
