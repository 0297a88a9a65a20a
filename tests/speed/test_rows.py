"""What is faster stays faster, and computes the same: ratios in a few short rounds, with wide margins.

Promises about time, and about shares of what a machine can do, are reported by `make bench`.
"""

import time

import pytest

from benchmarks import (
    contest,
    linear_agents,
    neural_agents,
    retrieval,
    service,
    session_agents,
    static_recommender,
)
from benchmarks.contest import measure

ROUNDS = 6  # fewer have no interval
EXACT = 1e-9
# A row, who is slower in it, by what factor at least, and how far scores may differ.
ROWS = {
    "sampling": (static_recommender.sampling_row, {"naive": 10}, EXACT),
    "training": (static_recommender.training_row, {"naive": 1.3}, EXACT),
    "disjoint": (
        linear_agents.disjoint,
        {"naive": 5, "naive, all arms at once": 1.5},
        EXACT,
    ),
    "shared": (
        lambda: linear_agents.linucb(50, 29, 200, shared=True),
        {"naive": 2},
        EXACT,
    ),
    "log": (lambda: linear_agents.log(50, 29, 10_000), {"visit by visit": 7}, EXACT),
    "propensities": (
        lambda: linear_agents.propensities(50, 29),
        {"a choice": 0.12},
        EXACT,
    ),
    "lockstep": (
        lambda: linear_agents.lockstep(20),
        {"one world at a time": 2},
        EXACT,
    ),
    "NeuralUCB": (
        lambda: neural_agents.neural_ucb(64),
        {"naive, PyTorch float32": 4},
        1e-5,
    ),
    "neural-linear": (neural_agents.neural_linear, {"naive": 5}, 1e-5),
    "stacked training": (
        lambda: neural_agents.stacked_training(20),
        {"naive": 2, "zoolib, one network": 2},
        EXACT,
    ),
    "sessions": (
        lambda: session_agents.sessions_in_step(20),
        {"zoolib, one world": 5},
        EXACT,
    ),
    "exact choice": (
        lambda: retrieval.exact_row(retrieval.Shop(100_000)),
        {"naive, all arms at once": 1.3},
        1e-5,
    ),
    "two-stage choice": (
        lambda: retrieval.two_stage_row(retrieval.Shop(100_000)),
        {"no shortlist": 2},
        EXACT,
    ),
}


@pytest.mark.parametrize("name", ROWS)
def test_a_row_computes_the_same_and_faster(name, monkeypatch):
    monkeypatch.setattr(contest, "LEAST_SECONDS", 0.02)
    # What else the machine does decides over time on the wall, and hardly over the processor's.
    monkeypatch.setattr(contest.time, "perf_counter", time.process_time)
    monkeypatch.setattr(retrieval, "N_VISITORS", 20)
    make, factors, tolerance = ROWS[name]
    result = measure(make(), ROUNDS)
    # The quickest round of each is the one that was disturbed least.
    best = {
        name: min(result["contestants"][name]["rounds"])
        for name in ("zoolib", *factors)
    }
    found = {slower: best[slower] / best["zoolib"] for slower in factors}
    assert {slower: n for slower, n in found.items() if n < factors[slower]} == {}
    for one in result["contestants"].values():
        assert one.get("difference") is None or one["difference"] < tolerance


def test_every_part_of_the_service_is_timed(monkeypatch):
    monkeypatch.setattr(service, "RUNS", 1)
    (row,) = service.rows(n_visits=20)
    assert {f"{name}_p99_ms" for name in service.LIMITS} <= set(row.figures)
    assert min(row.figures.values()) > 0
