"""Judges of the exercises of Chapter 1, "The static recommender"."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from functools import cache

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy import integrate, stats
from sklearn.model_selection import train_test_split

from zoolib.exercises.judging import (
    as_numbers,
    exercise,
    expect,
    expect_callable,
    expect_close,
)
from zoolib.recommender import MLPRecommender
from zoolib.simulator import SHOCK_1, SHOCK_2, ZooplusSimulator

N_WORLDS = 20
IN_EACH_WORLD = "One number a world is wanted, in the order of the seeds 0 … 19."


@cache
def _split(seed: int) -> tuple[ZooplusSimulator, pd.DataFrame, pd.DataFrame]:
    """Return a world of the chapter, with the training and the validation rows of its log."""
    world = ZooplusSimulator(n_products=50, n_users=1000, seed=seed)
    log = world.sample_interactions(200_000)
    train, validation = train_test_split(log, test_size=0.2, random_state=seed)
    return world, train, validation


def _pairs(world: ZooplusSimulator) -> NDArray[np.float64]:
    """Read the true click probabilities of all users and products from the hidden table."""
    rows, columns = list(world.personas), list(world.categories)
    persona = [rows.index(name) for name in world.user_personas]
    category = [columns.index(name) for name in world.products["category"]]
    return world.click_table[np.ix_(persona, category)]


def _log_loss(clicked: ArrayLike, predicted: ArrayLike) -> float:
    """Mean surprise: minus the logarithm of the probability that was given to what happened."""
    given = np.where(np.asarray(clicked) == 1, predicted, 1 - np.asarray(predicted))
    return float(-np.log(np.asarray(given, float)).mean())


@exercise("ex-window")
def window(favourite: Mapping[str, str], share: float) -> None:
    """the category of each persona's window, as a dictionary or a series by persona, and the
    share of the oracle that the four windows earn, a number between 0 and 1.
    """
    world = _split(42)[0]
    table = pd.DataFrame(world.click_table, list(world.personas), world.categories)
    expect(hasattr(favourite, "keys"), "A dictionary or a series by persona is wanted.")
    chosen = dict(favourite)
    expect(
        set(chosen) == set(table.index),
        f"One category for each persona is wanted: {', '.join(table.index)}.",
    )
    expect(
        set(chosen.values()) <= set(table.columns),
        f"A window shows one of the categories: {', '.join(table.columns)}.",
    )
    for persona, category in chosen.items():
        expect(
            table.loc[persona, category] == table.loc[persona].max(),
            f"{persona} clicks another category more often. Compare click rates, clicks divided by visits, "
            "among the visits of this persona only.",
        )
    earned = np.array([table.loc[p, chosen[p]] for p in world.user_personas])
    best, pairs = table.max(axis=1)[world.user_personas], _pairs(world)
    hint = "Divide the mean click probability of what the users see by that of the best for each."
    expect_close(
        share,
        earned.mean() / best.mean(),
        hint,
        mistakes={
            "A share is wanted, not a percentage.": 100 * earned.mean() / best.mean(),
            "That is a value in clicks a visit: divide by the oracle's.": earned.mean(),
            "That is one window for everybody: each persona has its own.": (
                pairs.mean(axis=0).max() / best.mean()
            ),
        },
    )


@exercise("ex-floor-by-hand")
def floor_by_hand(floor: float, values: ArrayLike) -> None:
    """the entropy floor in nats, and the values as three rows (before the shocks, after the
    first, after both) of three numbers (random policy, best single product, oracle).
    """
    world = ZooplusSimulator(seed=0)
    table = world.click_table
    coins = np.stack([table, 1 - table])
    expect_close(
        floor,
        stats.entropy(coins).mean(),
        "Average the entropy of a coin over the twenty cells.",
        within=5e-4,
        mistakes={
            "That is in bits: take natural logarithms.": (
                stats.entropy(coins, base=2).mean()
            ),
            "That is the entropy of the mean: take the mean of the entropies.": (
                stats.entropy([table.mean(), 1 - table.mean()])
            ),
        },
    )
    right, alone = [_values(table)], ZooplusSimulator(seed=0)
    for shock in (SHOCK_1, SHOCK_2):
        world.apply_shock(shock)
        right.append(_values(world.click_table))
    alone.apply_shock(SHOCK_2)
    right = np.array(right)
    expect_close(
        values,
        right,
        "Rows are personas and columns categories. Random averages all cells; a single product has one "
        "column for all personas; the oracle has the best of each row.",
        within=5e-4,
        mistakes={
            "One row for each state of the world is wanted: transpose.": right.T,
            "The second shock comes after the first.": [
                *right[:2],
                _values(alone.click_table),
            ],
            "Nothing changed after the shocks: look at the table anew.": [right[0]] * 3,
        },
    )


def _values(table: NDArray[np.float64]) -> tuple[float, float, float]:
    """Values of random, best single product and oracle for users and products in equal shares."""
    single = max(sum(column) / len(column) for column in table.T)
    oracle = sum(max(row) for row in table) / len(table)
    return table.sum() / table.size, single, oracle


@exercise("ex-below-floor")
def below_floor(
    of_model: ArrayLike, of_truth: ArrayLike, predictions: ArrayLike
) -> None:
    """the loss of the model and that of the true probabilities on the training rows, each with
    one number a world, and what the models predict, as it comes from predict_all.
    """
    predictions = np.asarray(predictions, float)
    expect(
        predictions.shape == (N_WORLDS, 1000, 50),
        "Hand over the predictions of all twenty models for all users and products.",
    )
    for name, losses in (("model", of_model), ("truth", of_truth)):
        expect(np.shape(losses) == (N_WORLDS,), f"Loss of the {name}: {IN_EACH_WORLD}")
    for seed in (0, N_WORLDS - 1):
        world, *both = _split(seed)
        for name, losses, says in (
            ("truth", of_truth, _pairs(world)),
            ("model", of_model, predictions[seed]),
        ):
            on_train, on_validation = (
                _log_loss(rows["clicked"], says[rows["user_id"], rows["product_id"]])
                for rows in both
            )
            expect_close(
                losses[seed],
                on_train,
                f"Loss of the {name} in world {seed}: average -log of the probability given to what "
                "happened, over the rows that the model learnt from.",
                within=1e-5,
                mistakes={
                    "These are the validation rows: take the training rows.": on_validation,
                    "That is in bits: take natural logarithms.": on_train / np.log(2),
                },
            )


@exercise("ex-constant")
def constant(loss: float, auc: float, value: float) -> None:
    """the log-loss and the AUC of the constant prediction on the validation rows, and the value
    of a policy that follows it, ties broken at random.
    """
    world, train, validation = _split(42)
    rate, clicks = train["clicked"].mean(), validation["clicked"].mean()
    expect_close(
        loss,
        -clicks * np.log(rate) - (1 - clicks) * np.log(1 - rate),
        "Predict the click rate of the training rows, and average the loss over the validation rows.",
        mistakes={
            "Those are the training rows: judge on the others.": (
                stats.entropy([rate, 1 - rate])
            ),
            "Predict what is known before the validation rows come.": (
                stats.entropy([clicks, 1 - clicks])
            ),
        },
    )
    # The AUC counts a tie as one half, and here all pairs of rows tie.
    expect_close(auc, 1 / 2, "All rows tie. What does the AUC count for a tie?")
    pairs = _pairs(world)
    expect_close(
        value,
        pairs.mean(),
        "The prediction is the same for all products, and any of them may be shown: take the mean over the "
        "draw, not one draw.",
        mistakes={
            "argmax takes the first of equals: break the tie at random.": (
                pairs[:, 0].mean()
            ),
            "The value is in clicks a visit, not a share.": (
                pairs.mean() / pairs.max(axis=1).mean()
            ),
        },
    )


@exercise("ex-curse")
def curse(overpromise: Callable[[float, int], float]) -> None:
    """a function of s and the number of products that returns the expected overpromise, from at
    least 10,000 draws.
    """
    expect_callable(overpromise, "It takes s and the number of products.")
    for s, n_products in ((0.02, 50), (0.04, 50), (0.08, 50), (0.08, 10), (0.08, 2)):
        found = overpromise(s, n_products)
        hint = (
            f"For s = {s} and {n_products} products: draw one error for each product, take the largest "
            "prediction, and average over many draws."
        )
        expect(
            np.all(as_numbers(found, hint) < 1),
            "The best of fifty errors is not so large: multiply standard normal numbers by s.",
        )
        expect_close(
            found,
            right := s * _expected_maximum(n_products),
            hint,
            within=0.03 * s,
            mistakes={
                "Take off the true click rate, 0.3.": 0.3 + right,
                "That averages all products: the shop shows the one predicted best.": 0,
            },
        )


@cache
def _expected_maximum(n: int) -> float:
    """Return the expected largest of n standard normal numbers, from its density."""
    density = stats.norm.pdf, stats.norm.cdf
    return integrate.quad(
        lambda x: x * n * density[0](x) * density[1](x) ** (n - 1), -12, 12
    )[0]


@exercise("ex-small-start")
def small_start(models: MLPRecommender, losses: ArrayLike, shares: ArrayLike) -> None:
    """the twenty trained models, and for each world their validation loss after the fifth epoch
    and their share of the oracle.
    """
    expect(
        hasattr(models, "predict_all"),
        "The first answer is the trained MLPRecommender.",
    )
    predictions = models.predict_all()
    expect(
        predictions.shape == (N_WORLDS, 1000, 50),
        "Train twenty models together: seed=range(20), 1000 users, 50 products.",
    )
    for name, numbers in (("Loss", losses), ("Share", shares)):
        expect(np.shape(numbers) == (N_WORLDS,), f"{name}: {IN_EACH_WORLD}")
    for seed in (0, N_WORLDS - 1):
        world, train, validation = _split(seed)
        truth, says = _pairs(world), predictions[seed]
        on_train, right, floor = (
            _log_loss(rows["clicked"], given[rows["user_id"], rows["product_id"]])
            for rows, given in ((train, says), (validation, says), (validation, truth))
        )
        expect_close(
            losses[seed],
            right,
            f"Loss in world {seed}: judge the models as they are after the last epoch, on the validation "
            "rows.",
            within=1e-4,
            mistakes={
                "These are the training rows: judge on the others.": on_train,
            },
        )
        # Learnt better than the chapter's models, 0.016 above the truth, and not from the validation rows.
        expect(
            0 < right - floor < 0.012,
            f"In world {seed} these are not embeddings that began at a standard deviation of 0.1 and were "
            "trained for five epochs on the training rows: look at embedding_scale, epochs and rows.",
        )
        earned = np.take_along_axis(truth, says.argmax(axis=1)[:, None], axis=1).mean()
        best = truth.max(axis=1).mean()
        expect_close(
            shares[seed],
            earned / best,
            f"Share in world {seed}: the value of what is recommended, divided by the oracle's value.",
            mistakes={
                "A share is wanted, not a percentage.": 100 * earned / best,
                "That is a value in clicks a visit: divide by the oracle's.": earned,
            },
        )


@exercise("ex-floor-exploration")
def floor_exploration(
    cost: Callable[[ZooplusSimulator, ArrayLike], float],
    logs: Sequence[pd.DataFrame],
    models: MLPRecommender,
    toys: Mapping[str, ArrayLike],
) -> None:
    """a function of a world and the product for each of its users that returns the cost in
    clicks a visit; the twenty logs with randomness; the models retrained on them; and a dictionary with, for
    each persona, the share of its users whom these models show a dog toy, one number a world.
    """
    expect_callable(cost, "It takes a world and the product that each user is shown.")
    _judge_cost(cost)
    expect(len(logs) == N_WORLDS, "One log for each of the twenty worlds is wanted.")
    for seed in (0, N_WORLDS - 1):
        _judge_log(seed, logs[seed])
    _judge_toys(models, toys)


def _judge_cost(cost: Callable[[ZooplusSimulator, ArrayLike], float]) -> None:
    world = ZooplusSimulator(n_products=6, n_users=8, seed=3)
    pairs, shown = _pairs(world), np.arange(8) % 6
    followed = np.mean([pairs[user, product] for user, product in enumerate(shown)])
    # Twenty equally likely visits of each user: nineteen follow, one shows any product.
    mixed = np.mean(
        [[row[a]] * 19 + [row.mean()] for row, a in zip(pairs, shown, strict=True)]
    )
    expect_close(
        cost(world, shown),
        followed - mixed,
        "Compare the value of following always with that of the mixture.",
        mistakes={
            "That is the value of the mixture: what does it cost?": mixed,
            "A cost is what is lost: turn the sign.": mixed - followed,
            "The random visits earn something, too.": followed / 20,
            "That is the cost of random products in every visit.": followed
            - pairs.mean(),
        },
    )


def _judge_log(seed: int, log: pd.DataFrame) -> None:
    """Judge a log by what it shows: its length, how often it departs from a habit, and whose clicks."""
    expect(
        len(log) == 100_000,
        f"100,000 visits a world are wanted: world {seed} has {len(log):,}.",
    )
    world = ZooplusSimulator(seed=seed)
    user, product = log["user_id"].to_numpy(), log["product_id"].to_numpy()
    times = np.bincount(user * 50 + product, minlength=50_000).reshape(1000, 50)
    # A random product is the usual one once in fifty times.
    departs = (1 - times.max(axis=1).sum() / len(log)) * 50 / 49
    expect(
        0.045 < departs < 0.055,
        f"In world {seed} a share of {departs:.3f} of the visits departs from the recommender's product; "
        "one in twenty is wanted.",
    )
    theirs = world.user_personas[user] == "cat_connoisseur"
    toy = world.products["category"].to_numpy()[product] == "Dog Toy"
    # Half way between the click rates before and after the second shock.
    expect(
        log["clicked"].to_numpy()[theirs & toy].mean() > 0.4,
        f"In world {seed} the cat connoisseurs do not click dog toys: play after the second shock.",
    )


def _judge_toys(models: MLPRecommender, toys: Mapping[str, ArrayLike]) -> None:
    expect(
        hasattr(models, "predict_all"),
        "The third answer is the retrained MLPRecommender.",
    )
    shown = models.predict_all().argmax(axis=-1)
    expect(shown.shape == (N_WORLDS, 1000), "Retrain the twenty models together.")
    worlds = [ZooplusSimulator(seed=seed) for seed in range(N_WORLDS)]
    expect(hasattr(toys, "keys"), "A dictionary by persona is wanted.")
    expect(
        set(toys) == set(worlds[0].personas),
        f"One entry for each persona is wanted: {', '.join(worlds[0].personas)}.",
    )
    is_toy = np.array(
        [
            w.products["category"].to_numpy()[a] == "Dog Toy"
            for w, a in zip(worlds, shown, strict=True)
        ]
    )
    for persona, shares in toys.items():
        theirs = np.array([w.user_personas == persona for w in worlds])
        right = (is_toy & theirs).sum(axis=1) / theirs.sum(axis=1)
        expect_close(
            shares,
            right,
            f"Dog toys of {persona}: count its users who are recommended one, and divide by their number.",
            mistakes={
                "Shares are wanted, not percentages.": 100 * right,
                "Divide by the users of the persona, not by all.": (
                    is_toy & theirs
                ).mean(axis=1),
                IN_EACH_WORLD: right.mean(),
            },
        )
