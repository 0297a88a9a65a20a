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
from zoolib.models.recommender import MLPRecommender
from zoolib.world.simulator import SHOCK_1, SHOCK_2, ZooplusSimulator

SEED = 42  # of the world of the page
N_WORLDS = 2  # in which an exercise trains models
PER_WORLD = "One number per world is wanted, in the order of the seeds 0 and 1."
IN_CLICKS = "That is a value in clicks per visit: divide by the oracle's."
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


@exercise("ex-usual-start")
def _usual_start(models: MLPRecommender, losses: ArrayLike, shares: ArrayLike) -> None:
    hint = "The first answer is the trained MLPRecommender."
    predictions = _predictions(models, hint)
    losses = numbers(losses, (N_WORLDS,), f"Loss: {PER_WORLD}")
    shares = numbers(shares, (N_WORLDS,), f"Share: {PER_WORLD}")
    for seed in range(N_WORLDS):
        truth = _pairs(_split(seed)[0])
        says = predictions[seed]
        on_train, right = _losses(seed, says)
        floor = _losses(seed, truth)[1]
        mistakes = {"These are the training rows: judge on the others.": on_train}
        hint = f"Loss in world {seed}: judge the models as they are after the last epoch, on validation rows."
        expect_close(losses[seed], right, hint, within=1e-4, mistakes=mistakes)
        hint = (
            f"In world {seed} these are not embeddings that began at a standard deviation of 1 and were "
            "trained for ten epochs on the training rows: look at embedding_scale, epochs and rows."
        )
        # Learnt less than the chapter's models, which are 0.007 above the truth.
        expect(0.01 < right - floor < 0.03, hint)
        earned = np.take_along_axis(truth, says.argmax(axis=1)[:, None], axis=1).mean()
        share = earned / truth.max(axis=1).mean()
        hint = f"Share in world {seed}: the value of what is recommended, divided by the oracle's value."
        expect_close(shares[seed], share, hint, mistakes={IN_CLICKS: earned})


def _predictions(models: MLPRecommender, hint: str) -> NDArray[np.float64]:
    """Return what the models of the first two worlds predict."""
    expect(hasattr(models, "predict_all"), hint)
    hint = "Train two models together: seed=range(2), 1000 users, 50 products."
    return numbers(models.predict_all(), (N_WORLDS, 1000, 50), hint)
