"""Neural agents beside their plain forms."""

import pytest

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
