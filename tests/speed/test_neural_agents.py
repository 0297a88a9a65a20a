"""Neural agents beside their plain forms, peers and one world alone."""

import functools

import pytest

from benchmarks.contest import measure, ratio
from benchmarks.neural_agents import (
    ALONE,
    diagonal_neural_ucb,
    neural_linear,
    neural_ucb,
    stacked_training,
    trained_neural_linear,
)

ROUNDS = 6  # fewer have no interval
ROWS = {
    "NeuralUCB": lambda: neural_ucb(64),
    "diagonal": diagonal_neural_ucb,
    "neural-linear": lambda: neural_linear(in_batches=False),
    "trained": lambda: trained_neural_linear(in_batches=False),
}


@functools.cache
def measured(name):
    return measure(ROWS[name](), ROUNDS)


@pytest.mark.parametrize("name", ROWS)
def test_a_row_keeps_its_promises_and_its_contestants_compute_the_same(name):
    result = measured(name)
    assert not [one for one in result["promises"] if one["kept"] is False]
    differences = [one.get("difference") for one in result["contestants"].values()]
    assert all(one is None or one < 1e-5 for one in differences)


def test_stacked_networks_train_faster_than_one_after_the_other():
    # The row promises 10, which a machine with nothing else to do keeps by little: where others use its
    # caches, twenty networks lose more than one.
    assert ratio(measure(stacked_training(20), ROUNDS), ALONE) >= 8


def test_what_each_part_of_neural_ucb_saves():
    one = measured("NeuralUCB")["contestants"]
    vmap, backward, recomputed = (
        one[f"zoolib, {part}"]["ratio"]["median"]
        for part in (
            "gradients by vmap",
            "gradients by backward",
            "inverse recomputed",
        )
    )
    assert 1 < vmap < backward
    assert recomputed > 5
