"""The judges of Chapter 5: the book's solutions are right, and typical mistakes are named."""

from functools import cache, partial

import numpy as np
import pytest
import torch
from scipy import stats

from tests.exercises import CHAPTERS, assert_says, run, verdicts

CHAPTER = CHAPTERS["large"]
NAMES = CHAPTER.names()


def defined(label, name):
    """What a solution defines."""
    return CHAPTER.define(label, NAMES)[name]


@pytest.mark.parametrize("label", ["ex-chance", "ex-two-clocks", "ex-members"])
def test_the_books_solution_is_right(label):
    assert run(CHAPTER.solutions[label], NAMES)[1] == f"{label}: right."


VERDICTS = {}


def work(n, cells, m):
    return cells + m * n / cells


def looks(n, cells, allowed):
    return int((allowed - cells) * cells / n)


VERDICTS["ex-cells"] = [
    (work, looks, "right."),
    (work, lambda n, c, allowed: (allowed - c) * c // n, "right."),
    (lambda n, c, m: m * n / c, looks, "the signs, too"),
    (lambda n, c, m: c + n / c, looks, "Each of the m shelves"),
    (lambda n, c, m: n, looks, "of m shelves are"),
    (lambda n, c, m: 3, looks, "how many signs"),
    (work, lambda n, c, allowed: allowed * c // n, "use up C"),
    (work, lambda n, c, allowed: looks(n, c, allowed) + 1, "One shelf more"),
    (work, lambda n, c, allowed: (allowed - c) * c / n, "round down"),
    (work, lambda n, c, allowed: 3, "Which m solves"),
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


def drawn(products, n, s, w, nu, wide=lambda s, w, nu: np.hypot(s, nu * w)):
    return stats.norm.sf(stats.norm.isf(n / products) * wide(s, w, nu) / nu)


def drawn_with(wide):
    return partial(drawn, wide=wide)


VERDICTS["ex-chance"] = [
    (chance, drawn, "right."),
    (lambda k, g, n: stats.hypergeom.sf(0, k, g, n), drawn, "right."),
    (lambda *a: 1 - chance(*a), drawn, "nothing on the list glows"),
    (lambda k, g, n: n * g / k, drawn, "on average"),
    (lambda k, g, n: g / k, drawn, "of a single place"),
    (lambda k, g, n: 0.5, drawn, "all places miss"),
    (chance, lambda *a: 1 - drawn(*a), "leaves them out"),
    (chance, drawn_with(lambda s, w, nu: s), "by the mean begins"),
    (chance, drawn_with(lambda s, w, nu: np.hypot(s, w)), "widens the predictions"),
    (chance, drawn_with(lambda s, w, nu: nu * np.hypot(s, nu * w)), "deviation ν"),
    (chance, drawn_with(lambda s, w, nu: s + nu * w), "Variances add up"),
    (chance, lambda *a: 0.5, "must be exceeded"),
]


refuses_from = defined("ex-deadlock", "refuses_from")


def ball_until(limit, mean, width):
    return next(n for n in range(10_000) if mean(n) + width(n) <= limit)


VERDICTS["ex-deadlock"] = [
    (refuses_from, "right."),
    (
        lambda b, m: ball_until(
            m, lambda n: b * n / (1 + n), lambda n: (1 + n) ** -0.5
        ),
        "right.",
    ),
    (
        lambda b, m: ball_until(m, lambda n: b * n / (1 + n), lambda n: 1 / (1 + n)),
        "is a root",
    ),
    (lambda b, m: ball_until(m, lambda n: b, lambda n: (1 + n) ** -0.5), "ridge"),
    (lambda b, m: ball_until(m, lambda n: 0, lambda n: (1 + n) ** -0.5), "a part of"),
    (lambda b, m: refuses_from(b, m) - 1, "the last n"),
    (lambda b, m: 7, "no larger than"),
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


news = defined("ex-two-clocks", "news")


def counted(t, shock, every, newest, waits):
    """The same by playing: notes are learnt one by one, and forgotten at a rebuild."""
    learnt, written = [], []
    for visit in range(1, t + 1):
        written.append(visit)
        if not waits:
            learnt.append(visit)
        if visit % every == 0:
            learnt = written[-newest:]
    return np.mean([visit > shock for visit in learnt]) if learnt else 0


VERDICTS["ex-two-clocks"] = [
    (news, "right."),
    (counted, "right."),
    (lambda t, s, e, n, waits: news(t, s, e, n, not waits), "since the rebuild, too"),
    (lambda t, s, e, n, waits: news(t, s, 1, n, False), "window stands still"),
    (lambda t, s, e, n, waits: news(t, s, e, t, waits), "all but the newest"),
    (lambda t, s, e, n, waits: 1 - news(t, s, e, n, waits), "share of old notes"),
    (lambda t, s, e, n, waits: 0.5, "from which visit to which"),
]


WithPrior = defined("ex-practice-prior", "WithPrior")
network = NAMES["network"]


class Thawed(WithPrior):
    def __init__(self, seed=0):
        super().__init__(seed)
        self.f_0.requires_grad_(True)


class Unheld(WithPrior):
    """Keeps g out of the gradient by other means."""

    def __init__(self, seed=0):
        super().__init__(seed)
        self.f_0.requires_grad_(True)

    def forward(self, x):
        with torch.no_grad():
            prior = self.f_0(x)
        return self.f(x) + 3 * prior


class Once(WithPrior):
    def forward(self, x):
        return self.f(x) + self.f_0(x)


class Stranger(WithPrior):
    def __init__(self, seed=0):
        super().__init__(seed)
        self.f_0 = network(9, 64, 1, seed=seed + 1).requires_grad_(False)


class Frozen(WithPrior):
    def forward(self, x):
        return 0 * self.f(x).detach().requires_grad_() + 3 * self.f_0(x)


class Flat(WithPrior):
    def forward(self, x):
        return super().forward(x)[:, 0]


class Twins(WithPrior):
    def __init__(self, seed=0):
        super().__init__(0)


VERDICTS["ex-practice-prior"] = [
    (WithPrior, "right."),
    (Unheld, "right."),
    (3, "a function or class is wanted"),
    (Thawed, "trained as well"),
    (Once, "three times"),
    (Stranger, "three times"),
    (Frozen, "f must be trained"),
    (Flat, "predictions (n, 1)"),
    (Twins, "different seeds"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
