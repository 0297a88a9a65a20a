"""The judges of the chapter on sessions: the book's solutions are right, and typical mistakes are named."""

from functools import cache

import numpy as np
import pytest

from tests.exercises import CHAPTERS, RAISED, assert_says, raises, run, verdicts
from zoolib import DecisionProcess, SessionSimulator

CHAPTER = CHAPTERS["sessions"]
SHOP = SessionSimulator(seed=range(20), carry_over=1.0)
ONE = SessionSimulator(seed=0, carry_over=1.0)
TRUTH = SHOP.process()
OPTIMUM = TRUTH.value(TRUTH.optimal_q().argmax(axis=-1))
NAMES = CHAPTER.names(SEEDS=range(20), truth=TRUTH, exact=ONE.process())
SOME = np.full((2, 20), 50.0)


@cache
def solved(label):
    """What a solution leaves behind, and what `check` says of it."""
    return run(CHAPTER.solutions[label], NAMES)


RAISING = {
    "ex-two-steps": ((3 / 4, 7 / 8), raises),
    "ex-policy-value": (raises,),
    "ex-sarsa": (raises, SOME),
    "ex-targets": (raises,),
}


@pytest.mark.parametrize("label", RAISING)
def test_what_raises_is_reported(label):
    assert_says(label, *RAISING[label], RAISED)


def test_every_exercise_of_the_chapter_is_tried_here():
    assert set(CHAPTER.stubs) == set(RAISING)


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


def value(transition, reward, policy):
    """The value by repeated look-aheads."""
    found, states = np.zeros(len(policy)), range(len(policy))
    for _ in range(1_000):
        found = (reward + transition @ found)[states, policy]
    return found


def transposed(transition, reward, policy):
    states = range(len(policy))
    moves = np.eye(len(policy)) - transition[states, policy].T
    return np.linalg.solve(moves, reward[states, policy])


def best_value(transition, reward, policy):
    process = DecisionProcess(transition, reward, np.eye(len(policy))[0])
    return process.optimal_q().max(axis=-1)


VERDICTS["ex-policy-value"] = [
    (value, "right."),
    (transposed, "do not transpose"),
    (lambda p, r, policy: r[range(len(policy)), policy], "next reward alone"),
    (best_value, "rows of the policy's actions"),
    (lambda p, r, policy: r, "shape (5,) is wanted"),
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


def targets(named_by, judged_by, masked=True):
    """Double targets with roles to be chosen: 0 is the trained network, 1 the copy."""

    def double(*given):
        reward, ended, beta = given[2:]
        named = given[named_by].argmax(axis=1)
        worth = given[judged_by][range(len(named)), named]
        return reward + beta * worth * ~(ended & masked)

    return double


VERDICTS["ex-targets"] = [
    (targets(0, 1), "right."),
    (targets(0, 1, masked=False), "Nothing comes after"),
    (targets(1, 1), "names the product"),
    (targets(0, 0), "says what the product is worth"),
    (targets(1, 0), "row by row"),
    (lambda online, target, r, ended, beta: r.mean(), "(40,) is wanted"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
