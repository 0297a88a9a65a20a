"""Linear agents beside their plain form, peers and the machine: what `make bench` promises, in few rounds."""

import numpy as np
import pytest

from benchmarks.contest import Promise, measure
from benchmarks.linear_agents import (
    changing,
    large,
    lockstep,
    small,
    unchanging,
)


@pytest.mark.parametrize(
    ("make", "rounds"),
    [
        (small, 15),
        (large, 9),
        (changing, 7),
        (lambda: changing(np.float32), 7),
        (unchanging, 7),
        (lambda: lockstep(20, (Promise("one world at a time", at_least=5),)), 7),
    ],
    ids=["small", "large", "changing", "changing, single", "unchanging", "lockstep"],
)
def test_a_row_keeps_its_promises_and_its_scores(make, rounds):
    row = make()
    result = measure(row, rounds)
    assert row.promises
    broken = [promise for promise in result["promises"] if promise["kept"] is False]
    assert not broken
    for one in result["contestants"].values():
        exact = 1e-4 if "float32" in row.name else 1e-9
        assert one.get("difference") is None or one["difference"] < exact
