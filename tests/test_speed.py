"""Ratios of the library's work to its plain forms, to peers and to the machine's limits, in one run."""

import pytest

from benchmarks.linear_agents import (
    PEERS,
    D,
    K,
    NaiveLinUCB,
    difference_from_naive,
    lockstep_ratio,
    other_choices,
    ratio_to_naive,
    ratio_to_peers,
    share_of_bandwidth,
    visits,
    visits_of_shared_rows,
)
from benchmarks.neural_agents import (
    NAIVE_NEURAL_LINEAR,
    NAIVE_NEURAL_UCB,
    cost_by_part,
    difference,
    neural_linear,
    neural_linear_ratio,
    neural_ucb,
    neural_ucb_ratio,
    stacking_ratio,
)
from benchmarks.retrieval import million
from benchmarks.service import within_limits
from benchmarks.static_recommender import sampling_ratio, training_ratio


def test_whole_arrays_beat_a_loop_of_single_draws():
    assert sampling_ratio(repeats=5) >= 50


def test_whole_tensors_beat_a_loader_of_single_rows():
    ratio, ours, theirs = training_ratio(repeats=3)
    assert ratio >= 4
    assert ours <= 0.42
    assert abs(ours - theirs) < 0.01


def test_inverses_that_are_kept_beat_inverses_at_every_decision():
    assert ratio_to_naive(repeats=15) >= 20


def test_naive_scores_and_choices_are_the_same():
    assert difference_from_naive(300) < 1e-9
    clear, different = other_choices(NaiveLinUCB(K, D), *visits(300))
    assert clear > 100
    assert different == 0


@pytest.mark.parametrize("peer", PEERS)
def test_peers_choose_the_same_and_take_longer(peer):
    pytest.importorskip(peer)
    clear, different = other_choices(PEERS[peer](K, D), *visits_of_shared_rows(300))
    assert clear > 100
    assert different == 0
    assert ratio_to_peers([peer])[peer] >= 10


def test_decisions_run_at_the_speed_of_memory():
    assert share_of_bandwidth() >= 0.6


def test_worlds_in_lockstep_beat_one_world_at_a_time():
    assert lockstep_ratio() >= 5


def test_gradients_of_all_arms_at_once_beat_a_pass_an_arm_and_an_inverse():
    assert neural_ucb_ratio("numpy, float64") >= 25


@pytest.mark.parametrize("plain", NAIVE_NEURAL_UCB)
def test_plain_neural_ucb_has_the_same_scores(plain):
    ours = neural_ucb()
    assert difference(ours, NAIVE_NEURAL_UCB[plain](ours), 20) < 1e-5


def test_all_embeddings_at_once_beat_one_arm_at_a_time():
    assert neural_linear_ratio("one arm at a time") >= 20


@pytest.mark.parametrize("plain", NAIVE_NEURAL_LINEAR)
def test_plain_neural_linear_has_the_same_scores(plain):
    ours = neural_linear()
    assert difference(ours, NAIVE_NEURAL_LINEAR[plain](ours), 100) < 1e-5


def test_stacked_networks_train_faster_than_one_after_the_other():
    assert stacking_ratio() >= 8


def test_the_inverse_is_what_costs():
    cost = cost_by_part([50], [64], repeats=3).loc[(50, 705)]
    assert cost["gradients, closed"] < cost["gradients, vmap"]
    assert cost["gradients, vmap"] < cost["gradients, backward"]
    assert cost["inverse"] > 5 * (cost["products"] + cost["update"])


def test_a_decision_among_a_million_products_keeps_its_budget():
    """Computing time of the thread: what else the machine does is not the index's."""
    figures = million("clusters")
    assert figures["busy_p99"] < 5
    assert figures["recall"] >= 0.9
    assert figures["build_seconds"] < 120


def test_the_service_keeps_its_budget():
    assert max(within_limits(n_visits=1000).values()) < 1
