"""The judges of Chapter 4: the book's solutions are right, and typical mistakes are named."""

import numpy as np
import pytest
from scipy.stats import norm

from tests.exercises import CHAPTERS, assert_says, run, verdicts

CHAPTER, EVIDENCE = CHAPTERS["practice"], CHAPTERS["evidence/practice"]
NAMES = CHAPTER.names(labels=None)
ONE_PERCENT = np.ones(20)


def defined(label, name):
    """What a solution of the evidence page defines."""
    names = EVIDENCE.names("RENEWED_ALPHAS", "EIGHTY", "TUNING", SEEDS=range(2))
    return EVIDENCE.define(label, names)[name]


@pytest.mark.parametrize("label", CHAPTER.stubs)
def test_the_books_solution_is_right(label):
    *given, _ = CHAPTER.stubs[label]
    assert run(given + CHAPTER.solutions[label], NAMES)[1] == f"{label}: right."


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


def second(mean, deviation):
    """Share of draws in which the second product is above the first."""
    return norm.sf(0, mean[1] - mean[0], np.sqrt(np.square(deviation).sum()))


def never(mean, deviation, n_visits):
    return (1 - second(mean, deviation)) ** n_visits


def by_sum(mean, deviation):
    return norm.cdf((mean[1] - mean[0]) / sum(deviation))


def by_variance(mean, deviation):
    return norm.cdf((mean[1] - mean[0]) / np.square(deviation).sum())


VERDICTS["ex-batch-draws"] = [
    (second, never, "right."),
    (lambda *both: 1 - second(*both), never, "probability of the first"),
    (by_sum, never, "variances add up"),
    (by_variance, never, "root of its variance"),
    (lambda *both: 0.5, never, "difference is normal"),
    (second, lambda *all_three: 1 - never(*all_three), "at least once"),
    (second, lambda mean, deviation, n: 1 - n * second(mean, deviation), "independent"),
]


def lost(table, cap):
    """Lost part of the best clicks: the best categories get the cap, one the rest."""
    n_full = int(1 / cap)
    rest = 1 - n_full * cap
    shares = np.r_[np.full(n_full, cap), rest, np.zeros(5)][:5]
    ordered = np.sort(table, axis=1)[:, ::-1]
    return 1 - (ordered @ shares).sum() / ordered[:, 0].sum()


def lost_clicks(table, cap):
    return lost(table, cap) * np.max(table, axis=1).sum()


def lost_of_one(table, cap):
    best = np.max(table, axis=1).sum()
    return 1 - (1 - lost(table, cap)) * best / (4 * np.max(table))


VERDICTS["ex-cap-price"] = [
    (lost, "right."),
    (lambda table, cap: 1 - lost(table, cap), "what is left"),
    (lambda table, cap: lost(table, 0.5) if cap < 1 else 0, "another than one half"),
    (lambda table, cap: 1 - cap, "go to the next best"),
    (lambda table, cap: lost_clicks(table, cap), "of all personas"),
    (lambda table, cap: lost_of_one(table, cap), "for each persona"),
    (lambda table, cap: 0.1, "until all are placed"),
]


def drawn(A_inv, b, alpha, x, xi, root=np.linalg.cholesky):
    """Scores by one draw of weights, with a matrix that should be a root of A⁻¹."""
    return x @ (A_inv @ b + alpha * root(A_inv) @ xi)


def symmetric_root(A_inv):
    values, vectors = np.linalg.eigh(A_inv)
    return vectors * np.sqrt(values) @ vectors.T


def turned(A_inv):
    return np.linalg.cholesky(A_inv).T


ONE, TEN = 1 / 2, 1 - 1 / 2**10
VERDICTS["ex-shared-draw"] = [
    (drawn, ONE, TEN, "right."),
    (lambda *all_five: drawn(*all_five, root=symmetric_root), ONE, TEN, "right."),
    (lambda A, b, a, x, xi: drawn(A, b, a, x, xi) + 1, ONE, TEN, "draw of zeros"),
    (lambda A, b, a, x, xi: drawn(A, b, a**0.5, x, xi), ONE, TEN, "not a variance"),
    (lambda *all_five: drawn(*all_five, root=lambda A: A), ONE, TEN, "not A⁻¹ itself"),
    (lambda *all_five: drawn(*all_five, root=turned), ONE, TEN, "times its transpose"),
    (lambda A, b, a, x, xi: drawn(A, b, 2 * a, x, xi), ONE, TEN, "one draw of weights"),
    (drawn, 1.0, TEN, "ten equal rows"),
    (drawn, ONE, 1 / 2**10, "none is above"),
    (drawn, ONE, 0.5, "half of the time"),
]


def squared(w, n, sigma, tau, k, own=True):
    """Squared error of a prediction, by its weights of noise and of departures."""
    weights = np.full(k, (1 - w) / k) + w * np.eye(k)[0]
    apart = weights - np.eye(k)[0]
    return sigma**2 / n * weights @ weights + tau**2 * apart @ apart


def best(n, sigma, tau):
    return 1 / (1 + sigma**2 / n / tau**2)


def no_noise_of_the_label(w, n, sigma, tau, k):
    return w**2 * sigma**2 / n + (1 - w) ** 2 * tau**2


def independent(w, n, sigma, tau, k):
    return no_noise_of_the_label(w, n, sigma, tau, k) + (1 - w) ** 2 * sigma**2 / n / k


VERDICTS["ex-which-model"] = [
    (squared, best, "right."),
    (no_noise_of_the_label, best, "mean is uncertain"),
    (independent, best, "own clicks are in the label's mean"),
    (lambda w, n, *rest: squared(w, 1, *rest), best, "that of a mean"),
    (lambda *five: 0.1, best, "sum of noise"),
    (squared, lambda *three: 1 - best(*three), "weight of the label"),
    (squared, lambda n, s, t: t / (t + s / n**0.5), "not deviations"),
    (squared, lambda *three: 0.5, "derivative"),
]


def looks(promised, lam, rival, alpha, norm=2):
    n = np.arange(2_000)
    width = np.sqrt(norm / (lam + norm * n))
    return (lam * promised / (lam + norm * n) + alpha * width < rival).argmax()


VERDICTS["ex-first-misses"] = [
    (looks, "right."),
    (lambda *four: looks(*four, norm=1), "one for persona"),
    (lambda *four: 7, "first below"),
]


def turn(hour, hours=24):
    angle = 2 * np.pi * hour / hours
    return np.stack([np.ones(len(hour)), np.cos(angle), np.sin(angle)], axis=1)


def left(x, clicked, hour, fit=slice(1_000), asked=slice(1_000, None), ridge=1.0):
    A = x[fit].T @ x[fit] + ridge * np.eye(x.shape[1])
    residual = clicked - x @ np.linalg.inv(A) @ x[fit].T @ clicked[fit]
    return [residual[asked][hour[asked] == h].mean() for h in range(24)]


VERDICTS["ex-hours"] = [
    (turn, left, "right."),
    (lambda hour: turn(hour // 2), left, "one turn"),
    (lambda hour: turn(hour, 12), left, "The columns are"),
    (turn, lambda *log: left(*log, asked=slice(1_000)), "was not fitted"),
    (turn, lambda *log: left(*log, fit=slice(None)), "first half alone"),
    (turn, lambda *log: left(*log, ridge=0), "ridge of 1"),
    (turn, lambda *log: np.negative(left(*log)), "click minus its prediction"),
    (turn, lambda *log: np.zeros(24), "hour by hour"),
]


def firmness(c):
    return 24 * (1 - c) / c


FIRMER = [n * ONE_PERCENT for n in (80, 83, 84, 85)]
VERDICTS["ex-firm"] = [
    (defined("ex-firm", "firmness"), FIRMER, "right."),
    (lambda c: firmness(c) / 2, 0, "counts the ones of a row"),
    (lambda c: 24 * c * (1 - c), 0, "not to factors"),
    (lambda c: 2 * (1 - c) * np.sqrt(12), 0, "τ is squared"),
    (lambda c: 50, 0, "σ² is the variance of a click"),
    (firmness, ONE_PERCENT, "the shape (4, 20) is wanted"),
    (firmness, 0.8 * np.ones((4, 20)), "percentages of the best clicks"),
    (firmness, 101 * np.ones((4, 20)), "percentages of the best clicks"),
    (firmness, FIRMER[::-1], "rows in order"),
    (firmness, [FIRMER[i] for i in (1, 0, 2, 3)], "rows in order"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
