"""Judges of the exercises of Chapter 4, "Contextual bandits in practice"."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib.book.exercises.judging import (
    Function,
    answer,
    exercise,
    expect,
    expect_close,
    numbers,
)


@exercise(
    "ex-trap-bonus",
    wanted="two functions: of A⁻¹ (9, 9), u (4,) and p (5,), returning the term; and of a table of counts "
    "(4, 5), one row per persona, returning the disagreement",
)
def _trap_bonus(mixed_term: Function, disagreement: Function) -> None:
    """Take the squared widths of u and of p alone off that of both; solve for the widths of a table."""
    rng = np.random.default_rng(0)
    root, u, p = rng.normal(size=(9, 9)), rng.normal(size=4), rng.normal(size=5)
    A_inv, x = root @ root.T, np.zeros((3, 9))
    x[[0, 1], :4], x[[0, 2], 4:] = u, p
    both, of_u, of_p = np.vecdot(x, x @ A_inv)
    mixed = both - of_u - of_p
    mistakes = {"Two of the four blocks join u and p.": mixed / 2}
    hint = "Multiply x = (u, p) out with the four blocks of A⁻¹. Which of them join u and p?"
    expect_close(answer(mixed_term, A_inv, u, p), mixed, hint, mistakes=mistakes)

    even, one_persona = np.full((4, 5), 20), np.repeat([20, 0, 0, 0], 5).reshape(4, 5)
    hint = "Where all cells are equally full, personas do not disagree at all."
    expect_close(answer(disagreement, even), 0, hint)
    hint = "If one persona alone has come, its widths are smaller, all by the same. Take each mean width off."
    expect_close(answer(disagreement, one_persona), 0, hint)
    uneven = rng.integers(1, 40, size=(4, 5))
    x = np.hstack((np.repeat(np.eye(4), 5, axis=0), np.tile(np.eye(5), (4, 1))))
    A = np.eye(9) + (x.T * uneven.ravel()) @ x
    squared = np.vecdot(x, np.linalg.solve(A, x.T).T).reshape(4, 5)

    def gaps(width: NDArray, axis: int = 0) -> NDArray:
        return np.ptp(width - width.mean(axis=1, keepdims=True), axis=axis)

    between, across = gaps(np.sqrt(squared)), gaps(np.sqrt(squared), axis=1)
    mistakes = {
        "A width is the root of xᵀA⁻¹x.": gaps(squared).max(),
        "Compare two personas in one category, not two categories.": across.max(),
        "The largest gap of the five is wanted, not their mean.": between.mean(),
    }
    hint = "Is the ridge of 1 in A, and are the rows of the table personas?"
    found = answer(disagreement, uneven)
    expect_close(found, between.max(), hint, mistakes=mistakes)


@exercise(
    "ex-random-features",
    wanted="a function of rank and seed that returns the predicted share of the variance of one trial",
)
def _random_features(predicted_share: Function) -> None:
    found = []
    for rank, low, high, hint in (
        (20, 0.9, 1, "Fifty directions see all of 20. Are rows and rewards paired?"),
        (100, 0.3, 0.8, "Fifty directions see about half of 100, in which rows vary."),
        (500, -0.1, 0.3, "Fifty directions see little of 500: learn on short rows."),
    ):
        for seed in range(3):
            share = answer(predicted_share, rank, seed)
            found.append(float(numbers(share, (), hint, low=low, high=high)))
    expect(len(set(found)) == len(found), "Another seed must be another trial.")


@exercise(
    "ex-firm",
    wanted="a function of the click probability that returns λ, and an array (3, 20): the share of visits in "
    "which newcomers are shown, in twenty worlds, without a prior, with the λ for 0.4, and with 50",
)
def _firm(firmness: Function, newcomers: ArrayLike) -> None:
    """Take the variances of a click and of a uniform factor's product by its quantiles."""
    factor = (np.arange(100_000) + 0.5) / 100_000 + 0.5

    for c in (0.4, 0.2):
        of_click, spread = 2 * c * (1 - c), (c * factor).var()
        mistakes = {
            "‖x‖² counts the ones of a row, persona and category.": of_click / spread / 2,
            "τ belongs to click probabilities, not to factors.": of_click / factor.var(),
            "In the rule τ is squared.": of_click / np.sqrt(spread),
        }  # fmt: skip
        hint = "σ² is the variance of a click, τ the standard deviation of the factor times c."
        right, found = of_click / spread, answer(firmness, c)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)
    hint = "Hand over shares of the visits, between 0 and 1, one row for each prior."
    shares = numbers(newcomers, (3, 20), hint, low=0, high=1)
    none, fitting, firmer = shares.mean(axis=1)
    hint = (
        "The firmer the prior, the narrower the bonus of a newcomer and the more seldom it is shown. Are "
        "the rows in order, and does each begin with the agent as it was when the newcomers came?"
    )
    expect(none > fitting >= firmer, hint)
