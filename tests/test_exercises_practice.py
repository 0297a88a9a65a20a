"""The judges of Chapter 4: the book's solutions are right, and typical mistakes are named."""

import numpy as np
import pytest

from tests.exercises import CHAPTERS, RAISED, assert_says, raises, run, verdicts

CHAPTER = CHAPTERS["practice"]
NAMES = CHAPTER.names(SEEDS=range(2))
SELDOM, HALF = np.full(20, 0.01), np.full(20, 0.5)


def defined(label, name):
    """What a solution defines."""
    return CHAPTER.define(label, NAMES)[name]


RAISING = {
    "ex-trap-bonus": (raises, raises),
    "ex-random-features": (raises,),
    "ex-firm": (raises, HALF),
}


@pytest.mark.parametrize("label", CHAPTER.stubs)
def test_what_raises_is_reported(label):
    assert_says(label, *RAISING[label], RAISED)


@pytest.mark.parametrize("label", ["ex-trap-bonus", "ex-random-features"])
def test_the_books_solution_is_right(label):
    assert run(CHAPTER.solutions[label], NAMES)[1] == f"{label}: right."


VERDICTS = {}


def widths(counts, ridge=1.0):
    """Widths of the side-by-side model, by the inverse of A."""
    x = np.array(
        [np.r_[np.eye(4)[p], np.eye(5)[c]] for p in range(4) for c in range(5)]
    )
    A_inv = np.linalg.inv(ridge * np.eye(9) + x.T @ np.diag(np.ravel(counts)) @ x)
    return np.sqrt(np.diag(x @ A_inv @ x.T)).reshape(4, 5)


def gaps(width, axis=0):
    return np.ptp(width - width.mean(axis=1, keepdims=True), axis=axis)


def gap(width):
    return gaps(width).max()


def term(A_inv, u, p):
    return u @ A_inv[:4, 4:] @ p + p @ A_inv[4:, :4] @ u


VERDICTS["ex-trap-bonus"] = [
    (term, lambda counts: gap(widths(counts)), "right."),
    (lambda A, u, p: term(A, u, p) / 2, gap, "Two of the four blocks"),
    (lambda A, u, p: u @ A[:4, :4] @ u, gap, "Which of them join"),
    (lambda A, u, p: u * p[:4], gap, "shape () is wanted"),
    (term, lambda n: np.ptp(widths(n)), "mean width off"),
    (term, lambda n: 1.0 + gap(widths(n)), "do not disagree at all"),
    (term, lambda n: gap(widths(n) ** 2), "root of xᵀA⁻¹x"),
    (term, lambda n: gap(widths(n, ridge=0.1)), "ridge of 1"),
    (term, lambda n: gaps(widths(n), 1).max(), "two personas in one category"),
    (term, lambda n: gaps(widths(n)).mean(), "largest gap"),
]


def trial(rank, seed, m=50, d=500, n=1_000):
    """Learn by least squares on projected rows, and return the predicted share."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, rank)))[0]
    theta = basis @ rng.normal(size=rank) / np.sqrt(rank)
    rows = rng.normal(size=(2 * n, rank)) @ basis.T
    x = rows @ rng.normal(size=(d, m)) / np.sqrt(m) if m else rows
    reward = rows @ theta + 0.1 * rng.normal(size=2 * n)
    weights = np.linalg.lstsq(x[:n], reward[:n], rcond=None)[0]
    truth = rows[n:] @ theta
    return 1 - np.var(truth - x[n:] @ weights) / np.var(truth)


def sees_all_of_500(rank, seed):
    return trial(rank, seed, m=None if rank == 500 else 50)


VERDICTS["ex-random-features"] = [
    (trial, "right."),
    (lambda rank, seed: trial(rank, seed, m=None), "about half of 100"),
    (lambda rank, seed: trial(rank, seed, m=5), "all of 20"),
    (sees_all_of_500, "little of 500"),
    (lambda rank, seed: trial(rank, seed=0), "Another seed"),
    (lambda rank, seed: 100 * trial(rank, seed), "is not right"),
]


def firmness(c):
    return 24 * (1 - c) / c


FIRMER = [10 * SELDOM, SELDOM, 0 * SELDOM]
VERDICTS["ex-firm"] = [
    (defined("ex-firm", "firmness"), FIRMER, "right."),
    (lambda c: firmness(c) / 2, 0, "counts the ones of a row"),
    (lambda c: 24 * c * (1 - c), 0, "not to factors"),
    (lambda c: 2 * (1 - c) * np.sqrt(12), 0, "τ is squared"),
    (lambda c: 50, 0, "σ² is the variance of a click"),
    (firmness, np.ones(20), "the shape (3, 20) is wanted"),
    (firmness, 100 * np.ones((3, 20)), "between 0 and 1"),
    (firmness, [SELDOM, 10 * SELDOM, 0 * SELDOM], "rows in order"),
    (firmness, [10 * SELDOM, SELDOM, 2 * SELDOM], "rows in order"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
