"""The judges of Chapter 2 against the book's solutions, typical mistakes, and answers that nearly hold."""

from types import SimpleNamespace

import numpy as np
import pytest

from tests.exercises import (
    CHAPTERS,
    assert_says,
    run,
    verdicts,
)
from zoolib import LinUCBAgent, run_experiment
from zoolib.book.exercises.linucb import _exact_coverage

CHAPTER = CHAPTERS["linucb"]
NAMES = CHAPTER.names(SEEDS=range(20))


def defined(label, name):
    """A function or class of a solution, without what the solution does with it."""
    return CHAPTER.define(label, NAMES)[name]


@pytest.mark.parametrize(
    "label",
    [
        "ex-greedy-trap",
        "ex-prior",
        "ex-mean-update",
        "ex-coverage",
        "ex-alpha-edge",
        "ex-tooth",
    ],
)
def test_the_books_solution_is_right(label):
    assert run(CHAPTER.solutions[label], NAMES)[1] == f"{label}: right."


VERDICTS = {}


ZERO_SCORES = defined("ex-greedy-trap", "zero_scores")


def persona_alone(n, k):
    return ZERO_SCORES(n, k) - (k / (1 + n)).sum() / (1 + (n / (1 + n)).sum())


VERDICTS["ex-greedy-trap"] = [
    (0.3, ZERO_SCORES, "favours the toy"),
    (0.4, ZERO_SCORES, "toy is not clicked"),
    (0.9, ZERO_SCORES, "Multiply"),
    (0.2, lambda n, k: k / (1 + n), "category has a weight"),
    (0.2, lambda n, k: k / np.maximum(n, 1), "ridge is missing"),
    (0.2, persona_alone, "persona alone"),
    (0.2, lambda n, k: ZERO_SCORES(n, k) + 2e-9, "visits [3, 0, 5, 1]"),
    (0.2, lambda n, k: 0.0, "shape (4,) is wanted"),
]


READ = defined("ex-read-state", "read")


def estimated(A, b, ridge):
    return [READ(A, b, ridge)[0], np.linalg.solve(A, b)[:4]]


VERDICTS["ex-read-state"] = [
    (lambda A, b, ridge: READ(A, b, ridge).tolist(), "right."),
    (lambda A, b, ridge: READ(A, b, 0), "take it off"),
    (lambda A, b, ridge: READ(A, b, ridge)[::-1], "the second how often clicked"),
    (estimated, "b holds them"),
    (lambda A, b, ridge: READ(A, b, ridge) + 2e-9, "evidence on the diagonal"),
    (lambda A, b, ridge: READ(A, b, ridge).T, "shape (2, 4) is wanted"),
]

HOPE = 0.5 - 0.21 / np.sqrt(2)


def entries(value):
    """A start of nine equal entries, by another formula."""
    return lambda q, ridge: np.full(9, value(q, ridge))


VERDICTS["ex-prior"] = [
    (entries(lambda q, r: r * q / 2), 0.35, "right."),
    (entries(lambda q, r: q / 2), HOPE, "the ridge times as large"),
    (entries(lambda q, r: r * q), HOPE, "half of the prediction"),
    (entries(lambda q, r: r * q / 9), HOPE, "a row reads two"),
    (entries(lambda q, r: q / 2 / r), HOPE, "multiply with it"),
    (entries(lambda q, r: r * q / 2 + 2e-9), HOPE, "for any two ones"),
    (lambda q, r: r * q / 2, HOPE, "shape (9,) is wanted"),
    (entries(lambda q, r: r * q / 2), 0.29, "root of two"),
    (entries(lambda q, r: r * q / 2), 1 - HOPE, "less hope is needed"),
    (entries(lambda q, r: r * q / 2), 0.4971, "divide by the width"),
    (entries(lambda q, r: r * q / 2), 0.36, "Set the two first scores equal"),
]

LEAST, EDGES = defined("ex-alpha-edge", "least_alpha"), 4.9875

VERDICTS["ex-alpha-edge"] = [
    (LEAST, 5, "right."),
    (lambda q, n: q / np.sqrt(2), EDGES, "they share the category"),
    (lambda q, n: q / np.sqrt(2 / (1 + 2 * n)), EDGES, "share one of their two ones"),
    (lambda q, n: LEAST(q, n) ** 2 / q, EDGES, "root of what A gives"),
    (lambda q, n: q / LEAST(q, n), EDGES, "That is the width"),
    (lambda q, n: q**2 / LEAST(q, n), EDGES, "score of α = q"),
    (lambda q, n: LEAST(q, n) + 2e-9, EDGES, "must reach q"),
    (LEAST, 9.9, "random products"),
    (LEAST, 19.95, "best known product"),
    (LEAST, 0.352, "root of p"),
    (LEAST, 3.527, "root of two"),
    (LEAST, 5.1, "Divide σ"),
]


def moved(wrong):
    """A mean that is moved by another formula."""

    def mean_update(inverse, mean, x, r):
        u = inverse @ x
        return wrong(u, mean, x, r, x @ mean, x @ u)

    return mean_update


VERDICTS["ex-mean-update"] = [
    (moved(formula), words)
    for formula, words in (
        (lambda u, m, x, r, p, w: m + r * u / (1 + w), "Subtract what was predicted"),
        (lambda u, m, x, r, p, w: m + (r - p) * u, "denominator is missing"),
        (lambda u, m, x, r, p, w: m + (r - p) * u / w, "1 plus the squared width"),
        (lambda u, m, x, r, p, w: m + (r - p) * x / (1 + w), "u, not x"),
        (lambda u, m, x, r, p, w: m - (r - p) * u / (1 + w), "sign"),
        (lambda u, m, x, r, p, w: (r - p) * u / (1 + w), "the step alone"),
        (lambda u, m, x, r, p, w: m + (r - p) * u / (1 + w) ** 2, "divide twice"),
        (lambda u, m, x, r, p, w: m + (r - p) * u / (1 + w) + 2e-8, "by factor"),
    )
]


def simulated(prediction, half):
    """A coverage with the reader's prediction and half-width, from many runs."""

    def coverage(n, p):
        k = np.random.default_rng(1).binomial(n, p, size=20_000)
        return np.mean(np.abs(prediction(n, k) - p) <= half(n, p * (1 - p)))

    return coverage


def ridged(n, k):
    return 2 * k / (1 + 2 * n)


VERDICTS["ex-coverage"] = [
    (lambda n, p: _exact_coverage(n, p) + 0.019, "right."),
    (lambda n, p: _exact_coverage(n, p) - 0.021, "not right"),
] + [
    (simulated(prediction, half), words)
    for prediction, half, words in (
        (ridged, lambda n, v: np.sqrt(v * 2 / (1 + 2 * n)), "take two"),
        (lambda n, k: k / n, lambda n, v: 2 * np.sqrt(v / n), "ridge is missing"),
        (ridged, lambda n, v: 2 * np.sqrt(v) * 2 / (1 + 2 * n), "squared width"),
        (ridged, lambda n, v: 2 * v * np.sqrt(2 / (1 + 2 * n)), "root of p"),
        (ridged, lambda n, v: 2 * np.sqrt(2 / (1 + 2 * n)), "in units of σ"),
        (
            lambda n, k: k / (1 + n),
            lambda n, v: 2 * np.sqrt(v / (1 + n)),
            "x holds two ones",
        ),
        (ridged, lambda n, v: 1e-9, "the interval reaches two"),
    )
]

TOOTH, PRICE = defined("ex-tooth", "tooth"), 0.53 / 1.76

VERDICTS["ex-tooth"] = [
    (lambda a, g, s: np.ceil(TOOTH(a, g, s)), PRICE, "right."),
    (lambda a, g, s: 2 * np.log(s / a) / -np.log(g), PRICE, "look is added"),
    (lambda a, g, s: np.log(1 + s / a) / -np.log(g), PRICE, "root of n"),
    (lambda a, g, s: 2 * TOOTH(a, g, s), PRICE, "γ fades n itself"),
    (lambda a, g, s: TOOTH(a, g, s) / 2, PRICE, "root of γ only"),
    (lambda a, g, s: TOOTH(a, g, s) + 1.1, PRICE, "how large is n"),
    (TOOTH, 0.53, "one look gives up"),
    (TOOTH, 0.53 / 1_760, "price of one visit"),
    (TOOTH, 0.55 / 1.76, "difference of the two"),
    (TOOTH, PRICE + 0.006, "Multiply"),
]

REGRETS = np.array([np.full(20, 640.0), np.full(20, 300.0)])
ExploreFirst = defined("ex-own-agent", "ExploreFirst")


def commits_by(record):
    """A choice that explores as the book's and commits to the best category by another record."""

    def select(self, context):
        if self.seen < self.explore:
            return int(self.rng.integers(50))
        best = record(self, context.features[0, :4].argmax()).argmax()
        return int(context.features[:, 4 + best].argmax())

    return type("Variant", (ExploreFirst,), {"select": select})


def chooses(select):
    return type("Variant", (ExploreFirst,), {"select": select})


def without_persona(self, persona):
    return self.clicks.sum(axis=0) / self.shown.sum(axis=0)


VERDICTS["ex-own-agent"] = [
    (ExploreFirst, REGRETS, "right."),
    (commits_by(lambda self, p: self.clicks[p]), REGRETS, "divide by the visits"),
    (commits_by(without_persona), REGRETS, "of this persona"),
    (chooses(lambda self, _: int(self.rng.integers(50))), REGRETS, "several categories"),
    (chooses(lambda self, _: 0), REGRETS, "all products are equally likely"),
    (lambda explore: 0, REGRETS, "a method select"),
    (lambda explore: SimpleNamespace(select=0), REGRETS, "a method update"),
    (ExploreFirst, REGRETS[0], "(20,) came"),
    (ExploreFirst, REGRETS[::-1], "the 2,000 visits first"),
    (ExploreFirst, [REGRETS[0], REGRETS[1] / 10], "With 200 random visits"),
    (ExploreFirst, REGRETS * 5, "cannot be"),
]  # fmt: skip


def test_own_agent_plays_in_the_arena_of_the_solution():
    cell = CHAPTER.solutions["ex-own-agent"][0]
    names, _ = run([cell.replace("10_000", "40").replace("9_999", "39")], NAMES)
    assert np.shape(names["both_regrets"]) == (2, 20)


def shares(discount, seeds, n_steps, *, start=None, alpha=0.35):
    agent = LinUCBAgent(50, 9, alpha=alpha, discount=discount, n_worlds=len(seeds))
    history = run_experiment([agent], seeds, n_steps, progress=False)
    steps = slice(n_steps // 2 if start is None else start, None)
    earned = history.expected_reward[0][:, steps].sum(axis=1)
    return earned / history.optimal_reward[0][:, steps].sum(axis=1)


VERDICTS["ex-price-forgetting"] = [
    (defined("ex-price-forgetting", "late_share"), "right."),
    (lambda d, s, n: 100 * shares(d, s, n), "percentages"),
    (lambda d, s, n: shares(d, s, n, start=0), "the second half"),
    (lambda d, s, n: shares(1.0, s, n), "hand it to the agent"),
    (lambda d, s, n: shares(d, s, n, alpha=1.0), "another α"),
    (lambda d, s, n: shares(d, sorted(s), n), "order of the seeds"),
    (lambda d, s, n: shares(d, s, n) + 2e-9, "calm worlds"),
    (lambda d, s, n: shares(d, s, n).mean(), "shape (2,) is wanted"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
