"""Decisions among a hundred thousand products, and among a million."""

import json
import statistics
import time

import pytest

from benchmarks.contest import Promise, measure
from benchmarks.retrieval import Shop, exact_row, two_stage_row
from zoolib import RECORDS
from zoolib._threads import one_thread

RECORDED = {
    row["name"]: row
    for row in json.loads((RECORDS / "benchmarks.json").read_text())["rows"]
}


@one_thread()
def pace(row):
    """How many times as long as on the recorded machine the row's own limit computes here and now.

    Of several limits it is the one that binds there. A machine that works for others, too, may be slow for
    minutes; what it takes to read or multiply the same numbers tells by how much.
    """
    recorded = RECORDED[row.name]["contestants"]
    limits = [name for name, one in row.contestants.items() if one.kind == "limit"]
    binding = max(limits, key=lambda name: recorded[name]["seconds"])
    return statistics.median(
        computing(row.contestants[binding].run) / recorded[binding]["seconds"]
        for _ in range(9)
    )


def computing(run):
    """Seconds that this thread computes for a unit."""
    start = time.thread_time()
    done = run()
    return (time.thread_time() - start) / done


@pytest.mark.parametrize(
    ("make_row", "n_products"), [(exact_row, 100_000), (two_stage_row, 1_000_000)]
)
def test_a_decision_keeps_its_budget(make_row, n_products):
    """Computing time of the thread, in milliseconds of the machine whose run the book shows."""
    row = make_row(Shop(n_products))
    slower, promises = pace(row), measure(row, 6)["promises"]
    assert promises
    for one in promises:
        promise = Promise(one["figure"], one["at_least"], one["below"])
        timed = promise.figure.endswith(("_ms", "_seconds"))
        assert promise.kept(one["found"] / (slower if timed else 1)), (one, slower)
