"""The judges of Chapter 5: the book's solutions are right, and typical mistakes are named."""

from functools import cache, partial

import numpy as np
import pytest
import torch
from scipy import stats

from tests.exercises import CHAPTERS, RAISED, assert_says, raises, run, verdicts
from zoolib import EnsembleAgent

CHAPTER = CHAPTERS["large"]
NAMES = CHAPTER.names()


def defined(label, name):
    """What a solution defines."""
    return CHAPTER.define(label, NAMES)[name]


RAISING = {
    "ex-cells": (raises, raises),
    "ex-hopeful-weights": (raises,),
    "ex-chance": (raises, raises),
    "ex-members": (raises, raises),
    "ex-practice-prior": (raises,),
}


@pytest.mark.parametrize("label", CHAPTER.stubs)
def test_what_raises_is_reported(label):
    assert_says(label, *RAISING[label], RAISED)


@pytest.mark.parametrize("label", ["ex-cells", "ex-chance", "ex-members"])
def test_the_books_solution_is_right(label):
    assert run(CHAPTER.solutions[label], NAMES)[1] == f"{label}: right."


VERDICTS = {}


def work(n, cells, probes, d):
    return (cells + probes * n / cells) * d


def best(n, probes):
    return np.sqrt(probes * n)


VERDICTS["ex-cells"] = [
    (work, best, "right."),
    (work, lambda n, probes: round(best(n, probes)), "right."),
    (lambda n, c, m, d: m * n / c * d, best, "the centres, too"),
    (lambda n, c, m, d: (c + n / c) * d, best, "Each of the m cells"),
    (lambda n, c, m, d: c + m * n / c, best, "Each comparison"),
    (lambda n, c, m, d: n * d, best, "of m cells are"),
    (lambda n, c, m, d: c * d, best, "With how many"),
    (work, lambda n, probes: np.sqrt(n), "one probe only"),
    (work, lambda n, probes: 2 * best(n, probes), "derivative"),
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


def chance(products, glowing, places):
    return 1 - (1 - glowing / products) ** places


def drawn(begins, nu, ridge):
    return stats.norm.sf(begins * np.sqrt(ridge) / nu)


VERDICTS["ex-chance"] = [
    (chance, drawn, "right."),
    (lambda k, g, n: stats.hypergeom.sf(0, k, g, n), drawn, "right."),
    (lambda *a: 1 - chance(*a), drawn, "nothing on the list glows"),
    (lambda k, g, n: n * g / k, drawn, "on average"),
    (lambda k, g, n: g / k, drawn, "of a single place"),
    (lambda k, g, n: 0.5, drawn, "all places miss"),
    (chance, lambda *a: 1 - drawn(*a), "leaves them out"),
    (chance, lambda c, nu, ridge: stats.norm.sf(c * ridge / nu**2), "by its root"),
    (chance, lambda c, nu, ridge: stats.norm.sf(c), "count, too"),
    (chance, lambda c, nu, ridge: 0.5, "must be exceeded"),
]


def coverage(n, freedom=-1, factor=lambda n: np.sqrt((n + 1) / (n - 1))):
    return 1 - 2 * stats.t.sf(1.96 / factor(n), n + freedom)


def multiple(n, freedom=-1, factor=lambda n: np.sqrt((n + 1) / (n - 1))):
    return factor(n) * stats.t.isf(0.025, n + freedom)


@cache
def distances(n):
    """How many widths truths lie from the mean of n members, drawn many times."""
    rng, parts = np.random.default_rng(0), []
    for _ in range(50):  # to save memory
        truth, *members = rng.standard_normal((n + 1, 100_000), np.float32)
        parts.append((truth - np.mean(members, axis=0)) / np.std(members, axis=0))
    return np.abs(np.concatenate(parts))


FREEDOM = {"take Student's t": np.inf, "one degree of freedom": 0}
FACTORS = {
    "mean of the members is uncertain": lambda n: np.sqrt(n / (n - 1)),
    "not by M - 1": lambda n: np.sqrt((n + 1) / n),
    "other way round": lambda n: np.sqrt((n - 1) / (n + 1)),
}
WRONG = [(words, {"freedom": freedom}) for words, freedom in FREEDOM.items()]
WRONG += [(words, {"factor": factor}) for words, factor in FACTORS.items()]
VERDICTS["ex-members"] = [
    (coverage, multiple, "right."),
    (
        lambda n: (distances(n) < 1.96).mean(),
        lambda n: np.quantile(distances(n), 0.95),
        "right.",
    ),
    *((partial(coverage, **wrong), multiple, words) for words, wrong in WRONG),
    *((coverage, partial(multiple, **wrong), words) for words, wrong in WRONG),
    (lambda n: 0.95, multiple, "how do the truth minus"),
    (lambda n: 100 * coverage(n), multiple, "not percentages"),
    (coverage, lambda n: 1.96, "2.5 percent on each side"),
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


class OnlyInStep(PriorEnsemble):
    """Scores a single world by the mean of its members."""

    def score_rows(self, x):
        return super().score_rows(x) if x.ndim == 3 else self.members(x).mean(axis=0)


VERDICTS["ex-practice-prior"] = [
    (PriorEnsemble, "right."),
    (EnsembleAgent(3, 4), "class, not an agent"),
    (left_out("members"), "f alone"),
    (factor(1), "factor 3"),
    (factor(9), "factor 3"),
    (Thawed, "have changed"),
    (TrainedAlone, "do not fit"),
    (left_out("score_rows"), "sum of one member"),
    (OnlyInStep, "no worlds axis"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
