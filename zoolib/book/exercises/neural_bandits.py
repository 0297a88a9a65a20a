"""Judges of the exercises of Chapter 3, "Neural bandits: sharing what is learnt"."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from zoolib.agents import Agent, NeuralLinearAgent
from zoolib.book.exercises.judging import (
    Function,
    answer,
    exercise,
    expect,
    expect_close,
    numbers,
)
from zoolib.experiments.arena import run_experiment
from zoolib.world.simulator import ZooplusSimulator, true_ctr_matrix

SEEDS = (3, 8)
NOT_JOINED = "The features are not joined."
SETTINGS = {
    "alpha": 0.7,
    "joined": True,
    "rebuild": True,
    "window": 3_000,
    "n_worlds": 2,
}
SETTINGS |= {"discount": 0.999, "train_every": 100, "n_batches": 8}
RECOMMENDED = partial(NeuralLinearAgent, 50, **SETTINGS)  # wants the number of features


@exercise(
    "ex-sigmoid",
    wanted="a function of q that returns the factor, the q for which it is largest, and how many times as "
    "large the bonus at 0.5 is as that at 0.02",
)
def _sigmoid(factor: Function, q_of_largest: float, times: float) -> None:
    """Take the slope of the sigmoid where its value is q by central differences."""

    def slope(q: NDArray[np.float64]) -> NDArray[np.float64]:
        f, step = np.log(q / (1 - q)), 1e-5
        return (expit(f + step) - expit(f - step)) / (2 * step)

    q = np.array([0.02, 0.3, 0.5, 0.9])
    mistakes = {"The gradient stands twice under the root.": np.sqrt(slope(q))}
    hint = "The chain rule multiplies the gradient by the slope of the sigmoid. Express it by q."
    found = [answer(factor, float(one)) for one in q]
    expect_close(found, slope(q), hint, within=1e-6, mistakes=mistakes)
    grid = np.linspace(0.01, 0.99, 99)
    largest = grid[np.argmax(slope(grid))]
    expect_close(q_of_largest, largest, "Draw your factor against q.", within=5e-3)
    ratio = slope(0.5) / slope(0.02)
    hint = "Divide the factor of the one arm by that of the other."
    expect_close(times, ratio, hint, within=0.05)


@exercise(
    "ex-diagonal",
    wanted="a function of n that returns squared widths in two rows, for (1, 1) and for (1, -1), and two "
    "columns, with the full A and with its diagonal",
)
def _diagonal(squared_widths: Function) -> None:
    """Add up A visit by visit, and solve."""
    directions, A = np.array([[1.0, 1.0], [1.0, -1.0]]), np.eye(2)
    for n in range(501):
        if n in (0, 3, 500):
            kept, A_inv = (A, np.diag(np.diag(A))), np.linalg.inv(A)
            right = [[x @ np.linalg.solve(k, x) for k in kept] for x in directions]
            cut = [[x @ A_inv @ x, A_inv.trace()] for x in directions]
            mistakes = {
                "A row is wanted for each direction: transpose.": np.transpose(right),
                "Take the diagonal of A and invert it, not the diagonal of A⁻¹.": cut,
            }
            hint = f"Write A down for n = {n}, with the ridge, and invert it."
            expect_close(answer(squared_widths, n), right, hint, mistakes=mistakes)
        A += np.outer(directions[0], directions[0])


@exercise(
    "ex-untrained",
    wanted="a function of seeds and n_visits that returns the percentage of the oracle's clicks in each world",
)
def _untrained(untrained_shares: Function) -> None:
    """Play an agent whose training does nothing, so that only the rebuild is left of it."""
    play = partial(_shares, n_visits=600)
    never = partial(_Untaught, 50, 9)
    mistakes = {
        "This network was trained.": lambda: play(RECOMMENDED(9)),
        "Your agent is not rebuilt: that happens after a training only.": lambda: play(
            never(**SETTINGS | {"rebuild": False, "window": None})
        ),
        NOT_JOINED: lambda: play(never(**SETTINGS | {"joined": False})),
        "Where is the discount?": lambda: play(never(**SETTINGS | {"discount": 1.0})),
    }
    hint = "Except for the training, the agent is the recommended one, in calm worlds."
    found, right = answer(untrained_shares, SEEDS, 600), play(never(**SETTINGS))
    expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


class _Untaught(NeuralLinearAgent):
    """An agent whose network stays as it was drawn."""

    def _descend(self, columns: Sequence[NDArray], batch_size: int) -> None:
        """Take no step."""


@exercise(
    "ex-hill",
    wanted="a class like FeatureEngineer, made from a list of worlds, with 20 features, and their 20 weights",
)
def _hill(features: Function, weights: ArrayLike) -> None:
    """Ask least squares whether any weights give the true click probabilities."""
    worlds = [ZooplusSimulator(seed=seed, rich=True) for seed in SEEDS]
    users = np.arange(200).reshape(2, 100)
    made = answer(features, worlds)
    rows = np.array([answer(made.transform, visit) for visit in users.T])
    hint = "transform takes one user per world and returns shape (W, 50, 20)."
    expect(rows.shape == (100, 2, 50, 20), hint)
    truth = [true_ctr_matrix(w)[of] for w, of in zip(worlds, users, strict=True)]
    truth = np.swapaxes(truth, 0, 1)
    best = np.linalg.lstsq(rows.reshape(-1, 20), truth.ravel())[0]
    hint = "No weights make your features exact. Is each the appeal of this product to this user, in its pair?"
    expect(np.allclose(rows @ best, truth), hint)
    theirs = numbers(weights, (20,), "20 weights are wanted, in one row.")
    hint = "The features are right. In which order do they stand?"
    expect_close(rows @ theirs, truth, hint)


def _shares(agent: Agent, *, n_visits: int) -> NDArray[np.float64]:
    """Return the percentage of the oracle's clicks that an agent earns in calm worlds."""
    history = run_experiment([agent], SEEDS, n_visits, progress=False)
    earned, best = history.expected_reward[0], history.optimal_reward[0]
    return 100 * earned.sum(axis=-1) / best.sum(axis=-1)
