"""The judges of Chapter 1 against the book's solutions, typical mistakes, and answers that nearly hold."""

import numpy as np
import pytest
from sklearn.metrics import log_loss

from tests.exercises import (
    CHAPTERS,
    NO_FUNCTION,
    RAISED,
    assert_says,
    raises,
    run,
    verdicts,
)
from zoolib import SHOCK_2, ZooplusSimulator, true_ctr_matrix
from zoolib.book.exercises.static_recommender import _split

CHAPTER = CHAPTERS["static-recommender"]
# The truth of the shop and its two shocks, as the chapter writes them.
TRUTH = "K", "categories", "taste", "T", "shop", "everyone", "FIRST", "SECOND"
NAMES = CHAPTER.names(*TRUTH)


@pytest.fixture(scope="module")
def first():
    """World 42 with its log, as the chapter splits it, and what stands in for its model."""
    world, train, validation = _split(42)
    return {
        "world": world,
        "p": true_ctr_matrix(world),
        "shown": smoothed(world, train).argmax(axis=1),
        "p_hat": smoothed(world, train),
        "train_rows": train,
        "validation": validation,
    }


def smoothed(world, rows):
    """Click rates of pairs, held to the truth by twenty imaginary visits: a model that learnt some noise."""
    truth = true_ctr_matrix(world)
    shown, clicks = np.zeros_like(truth), np.zeros_like(truth)
    np.add.at(shown, (rows["user_id"], rows["product_id"]), 1)
    np.add.at(clicks, (rows["user_id"], rows["product_id"]), rows["clicked"])
    return (clicks + 20 * truth) / (shown + 20)


@pytest.mark.parametrize(
    "label",
    ["ex-floor-by-hand", "ex-below-floor", "ex-curse", "ex-check-promise", "ex-heard"],
)
def test_the_books_solution_is_right(label, first):
    names = CHAPTER.names(*TRUTH, **first)
    assert run(CHAPTER.solutions[label], names)[1] == f"{label}: right."


def test_floor_by_hand():
    names = run(CHAPTER.solutions["ex-floor-by-hand"], NAMES)[0]
    floor, values = names["balanced_floor"], np.array(names["three_by_three"])
    alone = ZooplusSimulator(seed=0)
    alone.apply_shock(SHOCK_2)
    last = names["three_values"](alone.click_table)
    for case in (
        (floor + 4.9e-4, values - 4.9e-4, "right."),
        (floor + 5.1e-4, values, "Average the entropy"),
        (floor / np.log(2), values, "in bits"),
        (names["coin_entropy"](values[0, 0]), values, "entropy of the mean"),
        (floor, values.T, "transpose"),
        (floor, [values[0]] * 3, "Nothing changed"),
        (floor, [*values[:2], last], "comes after the first"),
        (floor, values[:, [0, 2, 2]], "one column for all"),
        (floor, values[0], "shape (3, 3) is wanted"),
    ):
        assert_says("ex-floor-by-hand", *case)


def test_below_floor(first):
    truth, says = true_ctr_matrix(first["world"]), first["p_hat"]
    found = {}
    for rows in ("train_rows", "validation"):
        log = first[rows]
        for name, table in (("model", says), ("truth", truth)):
            said = table[log["user_id"], log["product_id"]]
            found[rows, name] = log_loss(log["clicked"], said)
    model, true = found["train_rows", "model"], found["train_rows", "truth"]
    unseen, true_unseen = found["validation", "model"], found["validation", "truth"]
    for case in (
        (model + 9e-6, true - 9e-6, says, "right."),
        (model + 1.1e-5, true, says, "Loss of the model"),
        (model, true + 1.1e-5, says, "Loss of the truth"),
        (unseen, true, says, "validation rows: take the training"),
        (model, true_unseen, says, "validation rows: take the training"),
        (model / np.log(2), true, says, "in bits"),
        (model, true, says[0], "all users and products"),
    ):
        assert_says("ex-below-floor", *case)


VERDICTS = {}
DRAWS = np.random.default_rng(1).normal(size=(20_000, 50))
# Expected maxima of 2, 10 and 50 standard normal numbers: David and Nagaraja, Order Statistics.
KNOWN = {2: 0.56419, 10: 1.53875, 50: 2.24907}
VERDICTS["ex-curse"] = [
    (lambda s, k: s * (KNOWN[k] + 0.029), "right."),
    (lambda s, k: s * (KNOWN[k] - 0.031), "not right"),
    (lambda s, k: (0.3 + s * DRAWS[:, :k]).max(axis=1).mean(), "true click rate"),
    (lambda s, k: (s * DRAWS[:, :k]).mean(), "averages all products"),
    (lambda s, k: DRAWS[:, :k].max(axis=1).mean(), "multiply standard"),
    (lambda s, k: np.abs(s * DRAWS[:, :k]).max(axis=1).mean(), "the largest"),
    (lambda s, k: (s * DRAWS).max(axis=1).mean(), "s = 0.08 and 10 products"),
    (lambda s, k: s * DRAWS[:, :k], "shape () is wanted"),
]


def excess(rows, predicted, all_visits=False, by_user=False, of=None):
    """What the exercise asks of a log, with the mistakes that its judge knows."""
    user, product = rows["user_id"].to_numpy(), rows["product_id"].to_numpy()
    agrees = (product == predicted.argmax(axis=1)[user]) | all_visits
    rate = rows["clicked"].to_numpy()[agrees].mean()
    promised = predicted[user, product][agrees]
    promised = predicted.max(axis=1) if by_user else promised
    n = agrees.sum() if of is None else of
    return promised.mean() - rate, np.sqrt(rate * (1 - rate) / n)


def needed(overpromise, rate, n_products, deviations=2):
    return n_products * rate * (1 - rate) * (deviations / overpromise) ** 2


VERDICTS["ex-check-promise"] = [
    (excess, needed, "right."),
    (excess, lambda *these: np.ceil(needed(*these)), "right."),
    (lambda *these: excess(*these, all_visits=True), needed, "These are all visits"),
    (lambda *these: excess(*these, by_user=True), needed, "as often as she came"),
    (lambda *these: excess(*these, of=1), needed, "one coin's deviation"),
    (lambda *these: excess(*these, of=3_000), needed, "not of all"),
    (lambda rows, p: np.multiply([-1, 1], excess(rows, p)), needed, "Keep the visits"),
    (lambda *these: excess(*these)[0], needed, "shape (2,) is wanted"),
    (excess, lambda d, r, k: needed(d, r, 1), "one random visit in n_products"),
    (excess, lambda *these: needed(*these, deviations=1), "twice the deviation"),
    (excess, lambda d, r, k: k * 4 / d**2, "variance of a coin"),
    (excess, lambda d, r, k: needed(d, r, k, 1.96), "Solve overpromise"),
    (excess, raises, RAISED),
    (excess, 55_556.0, NO_FUNCTION),
]


def value(shown, p):
    return p[np.arange(len(p)), shown].mean()


def heard(shown, before, after):
    earned = value(shown, after) - value(shown, before)
    return earned, after.max(axis=1).mean() - before.max(axis=1).mean() - earned


def oracles_change(shown, before, after):
    earned, missed = heard(shown, before, after)
    return earned, earned + missed


def as_they_are(shown, before, after):
    return value(shown, after), after.max(axis=1).mean() - value(shown, after)


VERDICTS["ex-heard"] = [
    (heard, "right."),
    (lambda *these: heard(*these)[::-1], "order is"),
    (oracles_change, "the oracle's change"),
    (as_they_are, "what it was before"),
    (lambda *these: np.multiply(12, heard(*these)), "these are sums"),
    (lambda *these: np.negative(heard(*these)), "sign is the other way round"),
    (lambda *these: np.add(1e-6, heard(*these)), "V after minus V before"),
    (lambda *these: heard(*these)[0], "shape (2,) is wanted"),
]


def cost(shown, p, share):
    return share * (value(shown, p) - p.mean())


def pays_after(shown, better, p, share, n_visits, of=value):
    gain = value(better, p) - of(shown, p)
    return n_visits * cost(shown, p, share) / gain if gain > 0 else np.inf


VERDICTS["ex-random-share"] = [
    (cost, pays_after, "right."),
    (lambda shown, p, share: cost(shown, p, 1), pays_after, "Only a share"),
    (lambda shown, p, share: share * value(shown, p), pays_after, "earn something"),
    (lambda *these: 1_000 * cost(*these), pays_after, "Per visit of the log"),
    (lambda *these: 1e-6 + cost(*these), pays_after, "A random visit earns"),
    (cost, lambda *these: pays_after(*these[:4], 1), "The log has n_visits"),
    (cost, lambda *these: pays_after(*these, of=lambda _, p: p.mean()), "The gain is that over"),
    (cost, lambda *these: 1 + pays_after(*these), "Divide the cost"),
    (cost, lambda *these: min(pays_after(*these), 1e9), "return np.inf"),
    (cost, raises, RAISED),
]  # fmt: skip


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
