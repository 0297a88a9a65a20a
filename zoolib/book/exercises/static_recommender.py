"""Judges of the exercises of Chapter 1, "The static recommender"."""

from __future__ import annotations

from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import integrate, stats
from sklearn.model_selection import train_test_split

from zoolib.book.exercises.judging import (
    Function,
    answer,
    exercise,
    expect,
    expect_close,
    numbers,
)
from zoolib.world.simulator import SHOCK_1, SHOCK_2, ZooplusSimulator

SEED = 42  # of the world of the page
IN_BITS = "That is in bits: take natural logarithms."


@cache
def _split(seed: int) -> tuple[ZooplusSimulator, pd.DataFrame, pd.DataFrame]:
    """Return a world of the chapter, with the training and the validation rows of its log."""
    world = ZooplusSimulator(n_products=50, n_users=1000, seed=seed)
    log = world.sample_interactions(200_000)
    train, validation = train_test_split(log, test_size=0.2, random_state=seed)
    return world, train, validation


def _table(world: ZooplusSimulator) -> pd.DataFrame:
    """Name the rows and columns of the hidden table."""
    return pd.DataFrame(world.click_table, list(world.personas), world.categories)


def _pairs(world: ZooplusSimulator) -> NDArray[np.float64]:
    """Read the true click probabilities of all users and products from the hidden table."""
    return _table(world).loc[world.user_personas, world.products["category"]].to_numpy()


def _losses(seed: int, predicted: NDArray[np.float64]) -> list[float]:
    """Return minus the mean logarithm of what was promised to what happened, on training and validation."""
    found = []
    for rows in _split(seed)[1:]:
        promised = predicted[rows["user_id"], rows["product_id"]]
        happened = np.where(rows["clicked"] == 1, promised, 1 - promised)
        found.append(-np.log(happened).mean())
    return found


@exercise("ex-floor-by-hand")
def _floor_by_hand(floor: float, values: ArrayLike) -> None:
    world = ZooplusSimulator(seed=0)
    alone = ZooplusSimulator(seed=0)
    table = world.click_table
    right = stats.entropy([table, 1 - table]).mean()
    of_mean = stats.entropy([table.mean(), 1 - table.mean()])
    of_mean_hint = "That is the entropy of the mean: take the mean of the entropies."
    mistakes = {IN_BITS: right / np.log(2), of_mean_hint: of_mean}
    hint = "Average the entropy of a coin over the twenty cells."
    expect_close(floor, right, hint, within=5e-4, mistakes=mistakes)

    alone.apply_shock(SHOCK_2)
    right = [_values(table)]
    late = _values(alone.click_table)
    for shock in (SHOCK_1, SHOCK_2):
        world.apply_shock(shock)
        right.append(_values(world.click_table))
    mistakes = {
        "Rows are states of the world: transpose.": np.transpose(right),
        "The second shock comes after the first.": [*right[:2], late],
        "Nothing changed after the shocks: look at the table anew.": [right[0]] * 3,
    }
    hint = (
        "Rows are personas and columns categories. Random averages all cells; a single product has one "
        "column for all personas; the oracle has the best of each row."
    )
    expect_close(values, right, hint, within=5e-4, mistakes=mistakes)


def _values(table: NDArray[np.float64]) -> tuple[float, float, float]:
    """Values of random, best single product and oracle for users and products in equal shares."""
    single = max(sum(column) / len(column) for column in table.T)
    return table.sum() / table.size, single, sum(map(max, table)) / len(table)


@exercise("ex-below-floor")
def _below_floor(of_model: float, of_truth: float, predictions: ArrayLike) -> None:
    hint = "Hand over the predictions for all users and products."
    predictions = numbers(predictions, (1000, 50), hint)
    truth = _pairs(_split(SEED)[0])
    for name, loss, says in (
        ("truth", of_truth, truth),
        ("model", of_model, predictions),
    ):
        right, unseen = _losses(SEED, says)
        other_rows = "These are the validation rows: take the training rows."
        mistakes = {other_rows: unseen, IN_BITS: right / np.log(2)}
        hint = (
            f"Loss of the {name}: average -log p of what happened in the training rows."
        )
        expect_close(loss, right, hint, within=1e-5, mistakes=mistakes)


@exercise("ex-curse")
def _curse(overpromise: Function) -> None:
    for s, n_products in ((0.02, 50), (0.04, 50), (0.08, 50), (0.08, 10), (0.08, 2)):
        right = s * _expected_maximum(n_products)
        mistakes = {
            "Take off the true click rate, 0.3.": 0.3 + right,
            "That averages all products: the shop shows the one predicted best.": 0,
        }
        hint = "The best of fifty errors is not so large: multiply standard normal numbers by s."
        found = numbers(answer(overpromise, s, n_products), (), hint)
        expect(found < 1, hint)
        hint = f"For s = {s} and {n_products} products: draw one error each, take the largest, average many."
        expect_close(found, right, hint, within=0.03 * s, mistakes=mistakes)


@cache
def _expected_maximum(n: int) -> float:
    """Return the expected largest of n standard normal numbers, from its density."""
    pdf = stats.norm.pdf
    cdf = stats.norm.cdf
    return integrate.quad(lambda x: x * n * pdf(x) * cdf(x) ** (n - 1), -12, 12)[0]


@exercise("ex-check-promise")
def _check_promise(checked: Function, visits_needed: Function) -> None:
    rng = np.random.default_rng(3)
    columns = {"user_id": 20, "product_id": 6, "clicked": 2}
    names = {name: rng.integers(n, size=3_000) for name, n in columns.items()}
    rows = pd.DataFrame(names)
    predicted = rng.random((20, 6))
    rows.index = rng.permutation(len(rows))  # as train_test_split leaves them
    agree = rows[rows["product_id"].to_numpy() == predicted.argmax(1)[rows["user_id"]]]
    promise = predicted.max(axis=1)[agree["user_id"]].mean()

    def both(of: pd.DataFrame, promised: float) -> tuple[float, float]:
        """Return the excess over the click rate of these rows, and the deviation of the latter."""
        rate = of["clicked"].mean()
        return promised - rate, np.sqrt(rate * (1 - rate) / len(of))

    right = both(agree, promise)
    excess, deviation = right
    everywhere = predicted[rows["user_id"], rows["product_id"]].mean()
    all_visits = both(rows, everywhere)
    all_users = both(agree, predicted.max(axis=1).mean())
    of_coin = excess, deviation * np.sqrt(len(agree))
    of_log = excess, deviation * np.sqrt(len(agree) / len(rows))
    mistakes = {
        "These are all visits: keep those that saw the user's best product.": all_visits,
        "Take the predictions of the visits that agree: a user counts as often as she came.": all_users,
        "That is one coin's deviation: divide by the root of the number that agree.": of_coin,
        "Divide by the number of visits that agree, not of all.": of_log,
    }
    hint = "Keep the visits whose product has the user's highest prediction, and return two numbers for these."
    expect_close(answer(checked, rows, predicted), right, hint, mistakes=mistakes)

    for excess, rate, n_products in ((0.03, 0.5, 50), (0.05, 0.2, 7)):
        variance = rate * (1 - rate)
        needed = n_products * variance * (2 / excess) ** 2
        mistakes = {
            "Only one random visit in n_products agrees.": needed / n_products,
            "The overpromise is to be twice the deviation: the variance is a quarter of its square.": needed
            / 4,
            "Use the variance of a coin, rate (1 - rate).": needed / variance,
        }
        hint = "Solve overpromise = 2 √(rate (1 - rate) / n) for n; then one in n_products agrees."
        found = answer(visits_needed, excess, rate, n_products)
        expect_close(found, needed, hint, within=1, mistakes=mistakes)


@exercise("ex-heard")
def _heard(heard: Function) -> None:
    for seed in range(3):
        shown, before, after = _drawn(seed)
        right = earned, missed = _change(shown, before, after)
        mistakes = {
            "The order is: change of what the shop earns, growth of the gap.": (
                missed,
                earned,
            ),
            "The second is the oracle's change: the gap grows by this minus the shop's.": (
                earned,
                missed + earned,
            ),
            "That is what is earned and missed after the change: take off what it was before.": (
                earned + _of(shown, before),
                missed + before.max(axis=1).mean() - _of(shown, before),
            ),
            "Average over all users: these are sums.": np.multiply(len(shown), right),
        }
        hint = "Return V after minus V before, of `shown`; and the oracle's V after minus before, minus that."
        expect_close(
            answer(heard, shown, before, after), right, hint, mistakes=mistakes
        )


def _drawn(
    seed: int,
) -> tuple[NDArray[np.intp], NDArray[np.float64], NDArray[np.float64]]:
    """Return a policy for a few users, and their click probabilities before and after a change."""
    rng = np.random.default_rng(seed)
    before, after = rng.uniform(0.1, 0.9, (2, 12, 5))
    return rng.integers(5, size=12), before, after


def _of(shown: NDArray[np.intp], p: NDArray[np.float64]) -> float:
    """Return the value of a policy."""
    return np.take_along_axis(p, shown[:, None], axis=1).mean()


def _change(
    shown: NDArray[np.intp], before: NDArray[np.float64], after: NDArray[np.float64]
) -> tuple[float, float]:
    """Return by how much a policy earns more, and the oracle more than that."""
    earned = _of(shown, after) - _of(shown, before)
    return earned, (after.max(axis=1) - before.max(axis=1)).mean() - earned


@exercise("ex-random-share")
def _random_share(cost: Function, pays_after: Function) -> None:
    for seed, share, n_visits in ((0, 0.2, 1_000), (1, 0.05, 300)):
        shown, p, _ = _drawn(seed)
        best, worst = p.argmax(axis=1), p.argmin(axis=1)
        lost = _of(best, p) - p.sum() / p.size
        right = share * lost
        mistakes = {
            "Only a share of the visits is random.": lost,
            "Per visit of the log is wanted.": n_visits * right,
            "Random products earn something, too: their mean click probability.": share
            * _of(best, p),
        }
        hint = "A random visit earns the mean of p, not the value of `shown`; a share of the visits is random."
        expect_close(answer(cost, best, p, share), right, hint, mistakes=mistakes)

        gain = _of(best, p) - _of(shown, p)
        price = share * (_of(shown, p) - p.sum() / p.size)
        mistakes = {
            "The log has n_visits, each of which costs that.": price / gain,
            "The gain is that over `shown`, not that over random products.": n_visits
            * price
            / lost,
        }
        hint = "Divide the cost of the whole log by what a later visit gains: V of `better` minus V of `shown`."
        found = answer(pays_after, shown, best, p, share, n_visits)
        expect_close(
            found, n_visits * price / gain, hint, within=1e-6, mistakes=mistakes
        )

        hint = "Where `better` gains nothing, the log never pays: return np.inf."
        found = numbers(answer(pays_after, best, worst, p, share, n_visits), (), hint)
        expect(found == np.inf, hint)
