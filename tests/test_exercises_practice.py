"""The judges of Chapter 4: the book's solutions are right, and typical mistakes are named."""

from functools import cache, partial
from math import comb

import numpy as np
import pytest
import torch
from scipy.stats import norm

from tests.exercises import CHAPTERS, RAISED, assert_says, raises, run, verdicts
from zoolib import EnsembleAgent, MCDropoutAgent, ZooplusSimulator

CHAPTER = CHAPTERS["practice"]
WORLDS = [ZooplusSimulator(seed=seed) for seed in range(20)]
NAMES = CHAPTER.names(worlds=WORLDS, SEEDS=range(2))
SELDOM, HALF, SHARES = np.full(20, 0.01), np.full(20, 0.5), np.full(20, 93.0)


def defined(label, name):
    """What a solution defines."""
    return CHAPTER.define(label, NAMES)[name]


class Broken:
    transform = staticmethod(raises)


RAISING = {
    "ex-trap-bonus": (raises, raises),
    "ex-batch-draws": (raises, raises),
    "ex-cap-price": (raises,),
    "ex-random-features": (raises,),
    "ex-firm": (raises, HALF),
    "ex-frozen-body": (Broken(), HALF),
    "ex-random-candidates": (raises, raises),
    "ex-hopeful-weights": (raises,),
    "ex-practice-first-weights": (raises, HALF),
    "ex-practice-masks": (50, raises),
    "ex-practice-prior": (raises,),
}


@pytest.mark.parametrize("label", CHAPTER.stubs)
def test_what_raises_is_reported(label):
    assert_says(label, *RAISING[label], RAISED)


@pytest.mark.parametrize("label", ["ex-trap-bonus", "ex-batch-draws", "ex-cap-price"])
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


class Body:
    """Rows of a table of units, one row for each persona and category, and a one."""

    def __init__(self, units, constant=1.0):
        self.units, self.constant = units, constant

    def transform(self, users):
        users = zip(WORLDS, np.asarray(users), strict=True)
        persona = np.stack([world.persona_of_user[user] for world, user in users])
        category = np.stack([world.category_of_product for world in WORLDS])
        rows = self.units[persona[:, None], category]
        last = np.broadcast_to(self.constant, rows[..., :1].shape)
        return np.concatenate((rows, last), axis=-1)


class Restless(Body):
    """A body that goes on learning."""

    asked = 0

    def transform(self, users):
        self.asked += 1
        return super().transform(users) + self.asked


CLICKS = WORLDS[0].click_table[..., None]
NOISE = np.random.default_rng(0).random((4, 5, 32))
TRAINED = Body(np.maximum(CLICKS * (1 + NOISE / 10), 0))
NO_ONE = Body(NOISE, NOISE[0, 0, 0] + np.arange(50.0)[:, None])
VERDICTS["ex-frozen-body"] = [
    (TRAINED, SHARES, "right."),
    (Body(NOISE[..., :31]), SHARES, "(20, 50, 33)"),
    (NO_ONE, SHARES, "must be a one"),
    (Body(CLICKS * (NOISE - 0.5)), SHARES, "never a negative"),
    (Restless(CLICKS * NOISE), SHARES, "whenever asked"),
    (Body(NOISE), SHARES, "trained on the log"),
    (TRAINED, 93.0, "(20,) is wanted"),
    (TRAINED, SHARES / 100, "percentages"),
    (TRAINED, 100 * SHARES, "percentages"),
    (TRAINED, SHARES / 2, "best single product"),
]


@pytest.mark.no_cover
def test_the_books_body_is_right():
    names = CHAPTER.names(SEEDS=range(20), worlds=WORLDS)
    names["logged"] = partial(names["logged"], n=1_000)
    names["train"] = partial(names["train"], n_steps=100)
    body = CHAPTER.define("ex-frozen-body", names)["FrozenBody"](WORLDS)
    assert_says("ex-frozen-body", body, SHARES, "right.")


def on_list(size, places=25):
    return 1 - comb(5_000 - size, places) / comb(5_000, places)


def until(size):
    return 1 / on_list(size)


VERDICTS["ex-random-candidates"] = [
    (on_list, until, "right."),
    (lambda size: on_list(size, places=50), until, "Half of the 50 places"),
    (lambda size: 25 * size / 5_000, until, "do not add up"),
    (lambda size: 1 - on_list(size), until, "not on the list"),
    (lambda size: size / 5_000, until, "a random place"),
    (on_list, lambda size: until(size) - 1, "counts, too"),
    (on_list, lambda size: 200 / size, "geometric"),
    (on_list, lambda size: round(until(size)), "need not be whole"),
]


def query(change):
    """The query, with one of its parts changed."""

    def changed(posterior, u, embedding):
        x = u * embedding
        move = np.linalg.solve(posterior.A, x)
        return change(u, posterior.mean, move, np.sqrt(x @ move), x)

    return changed


VERDICTS["ex-hopeful-weights"] = [
    (defined("ex-hopeful-weights", "hopeful_query"), "right."),
    (query(lambda u, m, move, width, x: list(u * (m + move / width))), "right."),
    (query(lambda u, m, move, width, x: m + move / width), "u∘θ̃"),
    (query(lambda u, m, move, width, x: u * (m + move)), "divided by the width"),
    (query(lambda u, m, move, width, x: u * m), "best prediction only"),
    (query(lambda u, m, move, width, x: u * (m - move / width)), "must be the bound"),
    (query(lambda u, m, move, width, x: u * (m + x * width / (x @ x))), "along A⁻¹x"),
    (query(lambda u, m, move, width, x: width), "shape (6,) is wanted"),
]


class SameStart(EnsembleAgent):
    """Members whose first weights are the same."""

    def begin(self, seed):
        super().begin(seed)
        with torch.no_grad():
            for weights in self.network.parameters():
                weights.copy_(weights[:, :1].expand_as(weights))


class AllRows(EnsembleAgent):
    """Members whose counts are all one."""

    def losses(self, x, reward, counts):
        return super().losses(x, reward, torch.ones_like(counts))


class NoTraining(EnsembleAgent):
    """Members that keep their first weights."""

    def train(self):
        """Do nothing."""


SameData = defined("ex-practice-first-weights", "SameData")
VERDICTS["ex-practice-first-weights"] = [
    (SameData, HALF, "right."),
    (AllRows, HALF, "right."),
    (EnsembleAgent(3, 4), HALF, "class, not an agent"),
    (EnsembleAgent, HALF, "counts of the rows"),
    (SameStart, HALF, "start alike"),
    (NoTraining, HALF, "do not learn"),
    (SameData, 100 * HALF, "between 0 and 1"),
    (SameData, 0.5, "(20,) is wanted"),
]


@cache
def solved_masks():
    """The book's relative errors, of an agent that has learnt nothing, on twenty rows in each world."""
    agent = MCDropoutAgent(50, 9, dropout=0.5, n_worlds=20, seed=range(20))
    rows = np.random.default_rng(0).random((20, 20, 9), dtype=np.float32)
    names = NAMES | {"doubters": {"dropout 0.5": agent}, "rows": rows}
    names, line = run(CHAPTER.solutions["ex-practice-masks"], names)
    assert line == "ex-practice-masks: right."
    return names["relative_error"]


def errors(n_masks):
    return solved_masks()(n_masks)


VERDICTS["ex-practice-masks"] = [
    (50, errors, "right."),
    (5, errors, "Mind the root"),
    (100, errors, "Mind the two"),
    (10, errors, "solve for T"),
    (50, lambda n: errors(n) ** 2, "rule says otherwise"),
    (50, lambda n: errors(2), "rule says otherwise"),
    (50, lambda n: errors(n).mean(), "(20,) is wanted"),
]

PriorEnsemble = defined("ex-practice-prior", "PriorEnsemble")


class Thawed(PriorEnsemble):
    def begin(self, seed):
        super().begin(seed)
        self.fixed = self.network


class TrainedAlone(PriorEnsemble):
    def predict(self, x):
        if torch.is_grad_enabled():
            return EnsembleAgent.predict(self, x)
        return super().predict(x)


def factor(times):
    class OtherFactor(PriorEnsemble):
        def predict(self, x):
            alone = EnsembleAgent.predict(self, x)
            return alone + times / 3 * (super().predict(x) - alone)

    return OtherFactor


def left_out(method):
    """The book's class, but for a method of the library's."""
    return type("Changed", (PriorEnsemble,), {method: getattr(EnsembleAgent, method)})


VERDICTS["ex-practice-prior"] = [
    (PriorEnsemble, "right."),
    (EnsembleAgent(3, 4), "class, not an agent"),
    (left_out("members"), "f alone"),
    (factor(1), "factor 3"),
    (factor(9), "factor 3"),
    (Thawed, "have changed"),
    (TrainedAlone, "do not fit"),
    (left_out("score_rows"), "sum of one member"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
