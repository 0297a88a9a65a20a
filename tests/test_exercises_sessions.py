"""The judges of the chapter on sessions: the book's solutions are right, and typical mistakes are named."""

from functools import cache

import numpy as np
import pytest

from tests.exercises import CHAPTERS, assert_says, raises, run, verdicts
from zoolib import SessionSimulator

CHAPTER = CHAPTERS["sessions"]
SHOP = SessionSimulator(seed=range(20), carry_over=1.0)
TRUTH = SHOP.process()
OPTIMUM = TRUTH.value(TRUTH.optimal_q().argmax(axis=-1))
NAMES = CHAPTER.names(truth=TRUTH, first_a=np.arange(9), first_b=np.arange(9) ** 2)
SOME = np.full((2, 20), 50.0)


@cache
def solved(label):
    """What a solution leaves behind, and what `check` says of it."""
    return run(CHAPTER.solutions[label], NAMES)


@pytest.mark.parametrize("label", CHAPTER.stubs)
def test_the_books_solution_is_right(label):
    assert solved(label)[1] == f"{label}: right."


VERDICTS = {}
VALUES = (3 / 4, 7 / 8)
VERDICTS["ex-two-steps"] = [
    (VALUES, lambda gloss: gloss < 7 / 12, "right."),
    (VALUES, lambda gloss: float(gloss < 7 / 12), "right."),
    (VALUES, lambda gloss: gloss < 1 / 2, "With two products, yes"),
    (VALUES, lambda gloss: gloss >= 7 / 12, "compare it with v_food"),
    (VALUES, lambda gloss: "plain", "numbers are wanted"),
    ((13 / 20, 5 / 8), raises, "no limit of two"),
    ((2 / 5, 1 / 2), raises, "After a click she stays"),
    ((7 / 8, 3 / 4), raises, "order is the other way round"),
    ((3 / 4, 3 / 4), raises, "one more than the other"),
]


def summed(user, clicks):
    return np.array([clicks[user == one].sum() for one in np.unique(user)])


def needed(quantile, spread=None, power=2):
    """Users a side, with parts to be chosen."""

    def visitors(a, b, wanted):
        scatter = a.var() + b.var() if spread is None else spread(a, b)
        lead = abs(a.mean() - b.mean()) ** power
        return (1.645 + quantile(wanted)) ** 2 * scatter / lead

    return visitors


def of_power(wanted):
    return {0.5: 0, 0.8: 0.8416}[wanted]


VERDICTS["ex-visitors"] = [
    (summed, needed(of_power), "right."),
    (
        lambda user, clicks: summed(user, clicks) / summed(user, 1 + 0 * clicks),
        raises,
        "add up",
    ),
    (lambda user, clicks: summed(user, 1 + 0 * clicks), raises, "counts her sessions"),
    (lambda user, clicks: np.bincount(user, clicks), raises, "is wanted"),
    (lambda user, clicks: summed(user, clicks) + 1, raises, "Add up all sessions"),
    (summed, needed(lambda wanted: 0), "half of the time"),
    (summed, needed(of_power, lambda a, b: b.var()), "Both sides scatter"),
    (summed, needed(of_power, power=1), "Square the lead"),
    (summed, needed(lambda wanted: 3), "two quantiles together"),
]


def lasting(ratio, over=1, left_out=0):
    """Effective sessions by the mean square from each state on, with parts to be chosen."""

    def effective(transition, start, logging, target, n, horizon):
        square, ends = np.ones(len(start)), over * (1 - transition.sum(axis=-1))
        for _ in range(horizon - left_out):
            square = np.vecdot(ratio(logging, target), ends + transition @ square)
        return n / (start @ square)

    return effective


VERDICTS["ex-effective"] = [
    (lasting(lambda log, target: target**2 / log), "right."),
    (lasting(lambda log, target: target**2 / log, over=0), "keeps its weight"),
    (lasting(lambda log, target: target**3 / log**2), "under the log's policy"),
    (lasting(lambda log, target: target), "mean of the weights is one"),
    (lasting(lambda log, target: target**2 / log, left_out=1), "One step too few"),
    (lasting(lambda log, target: (target / log) ** 2), "mean of the squared ratio"),
    (lambda p, start, *rest: start, "shape () is wanted"),
]


def sarsa(after, part=True):
    """An update with another value of what comes after."""

    def update(q, s, a, r, s_next, a_next, ended, step, beta):
        delta = r + beta * after(q[s_next], a_next, ended) - q[s, a]
        q[s, a] += (step if part else 1) * delta
        return q

    return update


right = sarsa(lambda q, a, ended: 0 if ended else q[a])
AROUND = 0.8 * np.eye(10)[TRUTH.optimal_q().argmax(axis=-1)] + 0.02
PROMISED = np.array(solved("ex-sarsa")[0]["worth"])
VERDICTS["ex-sarsa"] = [
    (right, PROMISED, "right."),
    (sarsa(lambda q, a, ended: 0 if ended else q.max()), SOME, "That is Q-learning"),
    (sarsa(lambda q, a, ended: q[a]), SOME, "Nothing comes after"),
    (sarsa(lambda q, a, ended: 0), SOME, "One entry moves"),
    (sarsa(lambda q, a, e: 0 if e else q[a], part=False), SOME, "One entry moves"),
    (lambda q, *step: q[0, 0], SOME, "(3, 4) is wanted"),
    (right, [OPTIMUM, OPTIMUM], "knows that the shop explores"),
    (right, [OPTIMUM, TRUTH.value(AROUND)], "its own plan"),
    (right, [0 * OPTIMUM, PROMISED[1]], "Enough sweeps"),
    (right, OPTIMUM, "(2, 20) is wanted"),
]


def carried(stays, kept, share=np.subtract):
    """An estimate from how often patience stays, by two conditions on a log."""

    def estimate(state, product, clicked, glossy):
        before, after, played = state[:, :-1], state[:, 1:], state[:, :-1] < 80
        found = played & kept(clicked == 1, glossy[product])
        stay = stays(before, after)
        return share(stay[found].mean(), stay[played & ~found].mean())

    return estimate


def stays(before, after):
    return (before % 4 == after % 4) & (after < 80)


def plain(click, gloss):
    return click & ~gloss


VERDICTS["ex-carry-over"] = [
    (carried(stays, plain), "right."),
    (carried(stays, plain, lambda kept, rest: 2 * kept - 1), "right."),
    (carried(stays, plain, lambda kept, rest: kept), "half of the steps"),
    (carried(stays, plain, lambda kept, rest: rest), "share after the rest"),
    (carried(stays, lambda click, gloss: click), "glossy click costs"),
    (carried(lambda m, n: m % 4 == n % 4, plain), "80 is the end"),
    (carried(stays, lambda click, gloss: ~gloss), "Compare how often"),
    (lambda *log: log[1], "shape () is wanted"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)


def test_every_exercise_of_the_chapter_is_tried_here():
    assert set(CHAPTER.stubs) == set(VERDICTS)
