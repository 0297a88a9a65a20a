"""The judges of Chapter 6: the book's solutions are right, and typical mistakes are named."""

import numpy as np
import pytest

from tests.exercises import CHAPTERS, RAISED, assert_says, raises, run, verdicts
from zoolib import ZooplusSimulator, true_ctr_matrix

CHAPTER = CHAPTERS["production"]
NAMES = CHAPTER.names()


def defined(label, name):
    """What a solution defines."""
    return CHAPTER.define(label, NAMES)[name]


RAISING = {
    "ex-no-draw": (raises,),
    "ex-floor-price": (raises,),
    "ex-peeking": (raises, 10, 40),
    "ex-private": (raises, raises),
}


@pytest.mark.parametrize("label", RAISING)
def test_what_raises_is_reported(label):
    assert_says(label, *RAISING[label], RAISED)


def test_every_exercise_of_the_chapter_is_tried_here():
    assert set(CHAPTER.stubs) == set(RAISING)


def test_the_books_solution_is_right():
    label = "ex-no-draw"
    assert run(CHAPTER.solutions[label], NAMES)[1] == f"{label}: right."


VERDICTS = {}
VERDICTS["ex-no-draw"] = [
    (lambda q, n, e: 1 - (1 - q) ** n, "With a floor"),
    (lambda q, n, e: 1 if e else (1 - q) ** n, "wins no draw"),
    (lambda q, n, e: 1 if e else 1 - q**n, "weighs one, on average"),
    (lambda q, n, e: 1 if e else q**n, "wins all draws"),
    (lambda q, n, e: 1 if e else n * q, "add up"),
    (lambda q, n, e: 1, "weighs one, on average"),
]


def visits(e, s):
    return 200 * (s / (1 - e + e / 5) + (1 - s) / (e / 5))


def no_floor_for_the_best(e, s):
    return 200 * (s / (1 - e) + (1 - s) * 5 / e)


VERDICTS["ex-floor-price"] = [
    (defined("ex-floor-price", "price"), "right."),
    (lambda e, s, loss: visits(e, s), "(2,) is wanted"),
    (lambda e, s, loss: (visits(e, s), e * loss), "one visit costs"),
    (lambda e, s, loss: (visits(e, s), visits(e, s) * loss), "only a part ε"),
    (lambda e, s, loss: (visits(e, s), visits(e, s) * e), "what does each lose"),
    (lambda e, s, loss: (visits(e, 1 - s), 0), "whose favourite"),
    (lambda e, s, loss: (visits(e, s) / 200, 0), "200 is n / E ρ²"),
    (lambda e, s, loss: (no_floor_for_the_best(e, s), 0), "drawn by the floor, too"),
    (
        lambda e, s, loss: (200 * (s / (1 - 0.8 * e) + (1 - s) / e), 0),
        "five products share",
    ),
]


alarms = defined("ex-peeking", "alarms")
VERDICTS["ex-peeking"] = [
    (alarms, 9, 38, "right."),
    (alarms, 80, 38, "Careful"),
    (alarms, 9, 9, "Curious"),
    (alarms, 9, 80, "not independent"),
    (lambda seed, looks: alarms(seed + len(looks), looks), 9, 38, "give the same 1,000"),
    (lambda seed, looks: alarms(seed, looks[-1:]), 9, 38, "one of the looks"),
    (lambda seed, looks: False, 9, 38, "Some rollouts must ring"),
    (lambda seed, looks: True, 9, 38, "most not"),
    (lambda seed, looks: len(looks) + 1, 9, 38, "return a bool"),
]  # fmt: skip

noise, kept = (defined("ex-private", name) for name in ("noise", "lead_left"))


def value(n_users, tau, seed):
    """The greedy policy's value itself, chance included, over the oracle's."""
    table = true_ctr_matrix(ZooplusSimulator(n_products=5, seed=seed))
    chance = table.mean() / table.max(axis=1).mean()
    return chance + (1 - chance) * kept(n_users, tau, seed)


def unit(epsilon, delta):
    return np.sqrt(2 * np.log(1.25 / delta)) / epsilon


VERDICTS["ex-private"] = [
    (noise, kept, "right."),
    (lambda k, e, d: 3 * unit(e, d), kept, "k visits"),
    (lambda k, e, d: 9 * k * unit(e, d), kept, "root of its squares"),
    (lambda k, e, d: 12**0.5 * k * unit(e, d), kept, "above its diagonal"),
    (lambda k, e, d: 3**0.5 * k * unit(e, d), kept, "A changes, too"),
    (lambda k, e, d: 6**0.5 * k * unit(e, d), kept, "b changes, too"),
    (lambda k, e, d: k * unit(e, d), kept, "six of A"),
    (noise, value, "chance taken off"),
    (noise, lambda n, tau, seed: kept(n, 0, seed), "Is it in A and in b"),
    (noise, lambda n, tau, seed: 100 * kept(n, tau, seed), "Shares are wanted"),
    (noise, lambda n, tau, seed: 2 * kept(n, tau, seed), "Without noise"),
    (noise, lambda n, tau, seed: kept(n, tau, 1), "Another seed"),
    (
        noise,
        lambda n, tau, seed: kept(n, 1e6 * (tau > 0), seed),
        "too much is left, or too little",
    ),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
