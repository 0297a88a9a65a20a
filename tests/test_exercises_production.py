"""The judges of Chapter 6: the book's solutions are right, and typical mistakes are named."""

import numpy as np
from scipy import stats

from tests.exercises import CHAPTERS, assert_says, run, verdicts

CHAPTER, EVIDENCE = CHAPTERS["production"], CHAPTERS["evidence/production"]
NAMES = CHAPTER.names()


def defined(label, name):
    """What a solution defines, on the chapter's page or on that of its evidence."""
    if label in CHAPTER.solutions:
        return CHAPTER.define(label, NAMES)[name]
    return EVIDENCE.define(label, {"np": np})[name]


def test_the_books_solution_is_right():
    label = "ex-gate"
    assert run(CHAPTER.solutions[label], NAMES)[1] == f"{label}: right."


VERDICTS = {}


size_of, visits_for = (defined("ex-plan", name) for name in ("size_of", "visits_for"))


def size_with(squared):
    """The effective size by a mean squared weight, a function of the two propensities and s."""
    return lambda n, e, k, s: n / squared(1 - e + e / k, e / k, s, e)


VERDICTS["ex-plan"] = [
    (size_of, visits_for, "right."),
    (
        size_with(lambda p, q, s, e: s / (1 - e) + (1 - s) / q),
        visits_for,
        "draws the best",
    ),
    (size_with(lambda p, q, s, e: s / p + (1 - s) / e), visits_for, "shared by K"),
    (size_with(lambda p, q, s, e: (1 - s) / p + s / q), visits_for, "s is the share"),
    (size_with(lambda p, q, s, e: s / p**2 + (1 - s) / q**2), visits_for, "once"),
    (size_with(lambda p, q, s, e: 1), visits_for, "n over the mean"),
    (size_of, lambda c, r, *log: c * r * visits_for(1, r, *log), "in 1 / rate"),
    (size_of, lambda c, r, *log: c / r, "size that is needed"),
    (size_of, lambda c, r, *log: size_of(c / r, *log), "not less"),
    (size_of, lambda c, r, *log: 2 * visits_for(c, r, *log), "how many effective"),
]


growth, best_bet, pairs_to_stop = (
    defined("ex-bets", name) for name in ("growth", "best_bet", "pairs_to_stop")
)


def pairs(steps):
    """Pairs by what is divided by the growth; infinite where it does not grow."""
    return lambda q, eta, level: (
        steps(level) / growth(q, eta) if growth(q, eta) > 0 else np.inf
    )


VERDICTS["ex-bets"] = [
    (growth, best_bet, pairs_to_stop, "right."),
    (lambda q, e: (2 * q - 1) * e, best_bet, pairs_to_stop, "on average, not"),
    (lambda q, e: np.log(1 + (2 * q - 1) * e), best_bet, pairs_to_stop, "of the mean"),
    (lambda q, e: growth(1 - q, e), best_bet, pairs_to_stop, "in a share q"),
    (lambda q, e: q + e, best_bet, pairs_to_stop, "with probability q"),
    (growth, lambda q: q, pairs_to_stop, "how often you win"),
    (growth, lambda q: q - 0.5, pairs_to_stop, "half of what"),
    (growth, lambda q: 0.1, pairs_to_stop, "derivative of your"),
    (growth, best_bet, pairs(lambda level: 1 / level), "must reach that of"),
    (growth, best_bet, pairs(lambda level: 1), "how many steps"),
    (growth, best_bet, lambda *a: -np.log(a[2]) / growth(*a[:2]), "shrinks"),
]


rejects, needed = (defined("ex-gate", name) for name in ("rejects", "needed"))
normal = stats.norm.cdf


def shift(n, loss, sigma):
    return loss * np.sqrt(n) / sigma


VERDICTS["ex-gate"] = [
    (lambda n, d, s: normal(shift(n, d, s) - 1.96), needed, "right."),
    (lambda n, d, s: normal(1.96 - shift(n, d, s)), needed, "candidate passes"),
    (lambda n, d, s: normal(shift(n, d, s) - 1.645), needed, "on each side"),
    (lambda n, d, s: normal(shift(n, d, s)), needed, "not the estimate"),
    (lambda n, d, s: normal(d / s - 1.96), needed, "in standard errors"),
    (rejects, lambda d, s, p: (1.96 * s / d) ** 2, "in half"),
    (rejects, lambda d, s, p: needed(d, s, (1 + p) / 2), "one-sided"),
    (rejects, lambda d, s, p: needed(d, s, p) / 2, "solve"),
]


holds, repair = (defined("ex-twice", name) for name in ("holds", "repair"))
VERDICTS["ex-twice"] = [
    (holds, repair, "right."),
    (lambda copies: 0.95, repair, "too narrow"),
    (lambda copies: holds(copies**2), repair, "the root of the copies"),
    (lambda copies: (1 + holds(copies)) / 2, repair, "on both sides"),
    (lambda copies: 1 - holds(copies), repair, "it misses"),
    (lambda copies: 0.5, repair, "how many standard errors"),
    (holds, len, "a table"),
    (holds, lambda log: log.drop_duplicates("arm"), "may look alike"),
    (holds, lambda log: log, "left once"),
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


errors = defined("ex-window", "errors")


def tail(k, n, p):
    return stats.binom.sf(k - 1, n, p)


def least(n, level, p=0.01):
    return np.argmax(tail(np.arange(n + 1), n, p) < level)


def window(probability):
    """The right number of failures, with a probability by a function of it, n and the share."""
    return lambda n, nu, q: (k := errors(n, nu, q)[0], probability(k, n, q))


VERDICTS["ex-window"] = [
    (errors, "right."),
    (lambda n, nu, q: errors(n, nu, q)[0], "(2,) is wanted"),
    (lambda n, nu, q: (errors(n, nu, q)[0] - 1, 0), "or more"),
    (lambda n, nu, q: (errors(n, nu, q)[0] + 1, 0), "the least number with"),
    (lambda n, nu, q: (least(n, nu), 0), "in 10,000 visits"),
    (lambda n, nu, q: (least(n, nu / 10_000), 0), "grows with them"),
    (lambda n, nu, q: (least(n, nu * n / 10_000, q), 0), "what was promised"),
    (window(lambda k, n, q: tail(k, n, 0.01)), "a quiet window"),
    (window(lambda k, n, q: 1 - tail(k, n, q)), "keeps silent"),
    (window(stats.binom.pmf), "more failures than needed"),
    (window(stats.binom.sf), "counts, too"),
    (window(lambda k, n, q: 0.5), "so many visits fail"),
]


noise = defined("ex-private", "noise")


def unit(epsilon, delta):
    return np.sqrt(2 * np.log(1.25 / delta)) / epsilon


VERDICTS["ex-private"] = [
    (noise, "right."),
    (lambda k, e, d: 3 * unit(e, d), "k visits"),
    (lambda k, e, d: 9 * k * unit(e, d), "root of its squares"),
    (lambda k, e, d: 12**0.5 * k * unit(e, d), "above its diagonal"),
    (lambda k, e, d: 3**0.5 * k * unit(e, d), "A changes, too"),
    (lambda k, e, d: 6**0.5 * k * unit(e, d), "b changes, too"),
    (lambda k, e, d: k * unit(e, d), "six of A"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)


def test_every_exercise_of_the_chapter_is_tried_here():
    assert {*CHAPTER.stubs, *EVIDENCE.stubs} == set(VERDICTS)
