"""The judges of Chapter 1 against the book's solutions, typical mistakes, and answers that nearly hold."""

from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import log_loss

import zoolib
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
NAMES = CHAPTER.names()


@pytest.fixture(scope="module")
def first():
    """World 42 with its log, as the chapter splits it, and what stands in for its model."""
    world, train, validation = _split(42)
    return {
        "world": world,
        "p": true_ctr_matrix(world),
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


def models_of():
    """What a trained model of each of the first two worlds would be."""
    worlds, train, validation = zip(*map(_split, range(2)), strict=True)
    return {
        "worlds": worlds,
        "train_logs": train,
        "validation_logs": validation,
        "trained_again": np.array([smoothed(*_split(seed)[:2]) for seed in range(2)]),
    }


def losses(both, rows, predictions):
    pairs = zip(both[rows], predictions, strict=True)
    return np.array(
        [log_loss(log["clicked"], p[log["user_id"], log["product_id"]]) for log, p in pairs]
    )  # fmt: skip


@pytest.mark.parametrize(
    "label",
    ["ex-floor-by-hand", "ex-below-floor", "ex-curse", "ex-check-promise"],
)
def test_the_books_solution_is_right(label, first):
    names = CHAPTER.names(**first)
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


DRAWS = np.random.default_rng(1).normal(size=(20_000, 50))
# Expected maxima of 2, 10 and 50 standard normal numbers: David and Nagaraja, Order Statistics.
KNOWN = {2: 0.56419, 10: 1.53875, 50: 2.24907}
CURSES = [
    (lambda s, k: s * (KNOWN[k] + 0.029), "right."),
    (lambda s, k: s * (KNOWN[k] - 0.031), "not right"),
    (lambda s, k: (0.3 + s * DRAWS[:, :k]).max(axis=1).mean(), "true click rate"),
    (lambda s, k: (s * DRAWS[:, :k]).mean(), "averages all products"),
    (lambda s, k: DRAWS[:, :k].max(axis=1).mean(), "multiply standard"),
    (lambda s, k: np.abs(s * DRAWS[:, :k]).max(axis=1).mean(), "the largest"),
    (lambda s, k: (s * DRAWS).max(axis=1).mean(), "s = 0.08 and 10 products"),
    (lambda s, k: s * DRAWS[:, :k], "shape () is wanted"),
    (raises, RAISED),
    (0.18, NO_FUNCTION),
]


@verdicts({"ex-curse": CURSES})
def test_curse(case):
    assert_says(*case)


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


PROMISES = [
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
    (raises, needed, RAISED),
    (excess, raises, RAISED),
    (excess, 55_556.0, NO_FUNCTION),
]


@verdicts({"ex-check-promise": PROMISES})
def test_check_promise(case):
    assert_says(*case)


def standing_in(predictions):
    """What a judge needs of models that were trained."""
    return SimpleNamespace(predict_all=lambda: predictions)


def test_usual_start():
    two = models_of()
    better, worlds = two["trained_again"], two["worlds"]
    says = 0.7 * better + 0.3 * better.mean()
    oracle = np.array(list(map(zoolib.oracle_value, worlds)))
    value = np.array(list(map(zoolib.policy_value, worlds, says.argmax(axis=-1))))
    loss, share = losses(two, "validation_logs", says), value / oracle
    seen, models = losses(two, "train_logs", says), standing_in(says)
    # A model that learnt far less, one that learnt as much as the chapter's, and one that knows the answers.
    less = 0.4 * better + 0.6 * better.mean()
    pairs = zip(worlds, two["validation_logs"], strict=True)
    knows = np.array([smoothed(world, rows) for world, rows in pairs])
    less_loss, better_loss, knows_loss = (
        losses(two, "validation_logs", p) for p in (less, better, knows)
    )
    for case in (
        (models, loss + 9e-5, share, "right."),
        (models, seen, share, "judge on the others"),
        (models, loss + 2e-4, share, "as they are after the last epoch"),
        (models, loss, 100 * share, "not percentages"),
        (models, loss, value, "divide by the oracle's"),
        (models, loss, share + 2e-9, "Share in world 0"),
        (models, loss.mean(), share, "Loss: One number per world"),
        (models, loss, share.mean(), "Share: One number per world"),
        (standing_in(says[0]), loss, share, "two models together"),
        (says, loss, share, "trained MLPRecommender"),
        (SimpleNamespace(predict_all=raises), loss, share, RAISED),
        (standing_in(less), less_loss, share, "look at embedding_scale"),
        (standing_in(better), better_loss, share, "look at embedding_scale"),
        (standing_in(knows), knows_loss, share, "epochs and rows"),
    ):  # fmt: skip
        assert_says("ex-usual-start", *case)
