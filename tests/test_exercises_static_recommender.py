"""The judges of Chapter 1 against the book's solutions, typical mistakes, and answers that nearly hold."""

import ast
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.metrics import log_loss

import zoolib
from tests.notebooks import ROOT
from tests.test_exercises import (
    CELL,
    hint,
    imports_of,
    raises,
    run,
    said,
    solutions,
    statements,
)
from zoolib import SHOCK_2, ZooplusSimulator, true_ctr_matrix
from zoolib.exercises import static_recommender as judges

PAGE = ROOT / "chapters" / "static-recommender.md"
NAMES = imports_of(PAGE) | {"SEEDS": range(20)}
SOLUTIONS = solutions(PAGE)
CATEGORY_OF = ("Dog Toy", "Cat Food", "Cat Food", "Fish Supplies")  # best by persona


def solved(label, **names):
    """Run a whole solution, and return its names and the last line that it prints."""
    return run(SOLUTIONS[label], NAMES | names)


def chapters_own(name):
    """The cell of the chapter that defines a function, without what else it does."""
    (cell,) = (c for c in CELL.findall(PAGE.read_text()) if f"def {name}(" in c)
    return statements(cell, ast.FunctionDef)


@pytest.fixture(scope="module")
def first():
    """World 42 with its log, as the chapter splits it."""
    world = ZooplusSimulator(n_products=50, n_users=1000, seed=42)
    log = world.sample_interactions(200_000)
    train, validation = NAMES["train_test_split"](log, test_size=0.2, random_state=42)
    return {"world": world, "log": log, "train": train, "validation": validation}


def smoothed(world, rows):
    """Click rates of pairs, held to the truth by twenty imaginary visits: a model that learnt some luck."""
    truth = true_ctr_matrix(world)
    shown, clicks = np.zeros_like(truth), np.zeros_like(truth)
    np.add.at(shown, (rows["user_id"], rows["product_id"]), 1)
    np.add.at(clicks, (rows["user_id"], rows["product_id"]), rows["clicked"])
    return (clicks + 20 * truth) / (shown + 20)


@pytest.fixture(scope="module")
def twenty():
    """What a trained model of each world would be; those between the first and the last are the first's."""
    splits = {seed: judges._split(seed) for seed in (0, 19)}
    worlds, train, validation = zip(*[splits[0]] * 19, splits[19], strict=True)
    ends = [smoothed(*splits[seed][:2]) for seed in (0, 19)]
    return {
        "worlds": worlds,
        "train_logs": train,
        "validation_logs": validation,
        "predictions": np.array([ends[0]] * 19 + [ends[1]]),
    }


# The right window


def test_window_is_solved(first):
    assert solved("ex-window", **first)[1] == "ex-window: right."


def test_window_mistakes(first):
    label, world = "ex-window", first["world"]
    right = dict(zip(world.personas, CATEGORY_OF, strict=True))
    assert said(label, right, 1 - 5e-10) == f"{label}: right."
    assert "Divide the mean click" in hint(label, right, 1 - 2e-9)
    assert "not a percentage" in hint(label, right, 100.0)
    assert "divide by the oracle's" in hint(label, right, zoolib.oracle_value(world))
    one = zoolib.best_product_value(world) / zoolib.oracle_value(world)
    assert "one window for everybody" in hint(label, right, one)
    wrong = right | {"fish_hobbyist": "Cat Food"}
    assert "fish_hobbyist clicks another category" in hint(label, wrong, 1.0)
    assert "A window shows one" in hint(label, right | {"fish_hobbyist": 7}, 1.0)
    assert "One category for each" in hint(label, {"fish_hobbyist": "Cat Food"}, 1.0)
    assert "A dictionary or a series" in hint(label, 3, 1.0)
    assert "A dictionary or a series" in hint(label, list(right.values()), 1.0)


# The yardsticks from the table


def test_floor_by_hand_is_solved():
    assert solved("ex-floor-by-hand")[1] == "ex-floor-by-hand: right."


def test_floor_by_hand_mistakes():
    label = "ex-floor-by-hand"
    names = solved(label)[0]
    floor, values = names["balanced_floor"], np.array(names["three_by_three"])
    assert said(label, floor + 4.9e-4, values - 4.9e-4) == f"{label}: right."
    assert "Average the entropy" in hint(label, floor + 5.1e-4, values)
    assert "in bits" in hint(label, floor / np.log(2), values)
    of_mean = names["coin_entropy"](values[0, 0])
    assert "entropy of the mean" in hint(label, of_mean, values)
    assert "transpose" in hint(label, floor, values.T)
    assert "Nothing changed" in hint(label, floor, [values[0]] * 3)
    alone = ZooplusSimulator(seed=0)
    alone.apply_shock(SHOCK_2)
    last = names["three_values"](alone.click_table)
    assert "comes after the first" in hint(label, floor, [*values[:2], last])
    assert "one column for all" in hint(label, floor, values[:, [0, 2, 2]])
    assert "shape (3, 3) is wanted" in hint(label, floor, values[0])


# Below the floor


def test_below_floor_is_solved(twenty):
    cells = [chapters_own("on_rows"), *SOLUTIONS["ex-below-floor"]]
    assert run(cells, NAMES | twenty)[1] == "ex-below-floor: right."


def losses(twenty, rows, predictions):
    return np.array(
        [
            log_loss(log["clicked"], says[log["user_id"], log["product_id"]])
            for log, says in zip(twenty[rows], predictions, strict=True)
        ]
    )


def test_below_floor_mistakes(twenty):
    label, says = "ex-below-floor", twenty["predictions"]
    truth = np.array([true_ctr_matrix(world) for world in twenty["worlds"]])
    model, true = (losses(twenty, "train_logs", given) for given in (says, truth))
    assert said(label, model + 9e-6, true - 9e-6, says) == f"{label}: right."
    assert "Loss of the model in world 0" in hint(label, model + 1.1e-5, true, says)
    assert "Loss of the truth in world 0" in hint(label, model, true + 1.1e-5, says)
    unseen = losses(twenty, "validation_logs", says)
    assert "validation rows: take the training" in hint(label, unseen, true, says)
    unseen = losses(twenty, "validation_logs", truth)
    assert "validation rows: take the training" in hint(label, model, unseen, says)
    assert "in bits" in hint(label, model / np.log(2), true, says)
    assert "One number a world" in hint(label, model.mean(), true, says)
    assert "Loss of the truth: One number" in hint(label, model, true[:3], says)
    assert "all twenty models" in hint(label, model, true, says[0])
    last = np.arange(20) == 19
    assert "in world 19" in hint(label, model + last, true, says)


# Calibrated and useless


def test_constant_is_solved(first):
    assert solved("ex-constant", **first)[1] == "ex-constant: right."


def test_constant_mistakes(first):
    label = "ex-constant"
    world, train, validation = (
        first[name] for name in ("world", "train", "validation")
    )
    rates = train["clicked"].mean(), validation["clicked"].mean()

    def loss(rows, rate):
        return log_loss(rows["clicked"], np.full(len(rows), rate))

    right = loss(validation, rates[0])
    value = zoolib.random_value(world)
    assert said(label, right, 0.5, value) == f"{label}: right."
    assert "average the loss over" in hint(label, right + 2e-9, 0.5, value)
    assert "judge on the others" in hint(label, loss(train, rates[0]), 0.5, value)
    known_later = loss(validation, rates[1])
    assert "known before" in hint(label, known_later, 0.5, value)
    assert "count for a tie" in hint(label, right, 0.0, value)
    always_first = zoolib.policy_value(world, 0)
    assert "argmax takes the first" in hint(label, right, 0.5, always_first)
    share = value / zoolib.oracle_value(world)
    assert "not a share" in hint(label, right, 0.5, share)
    assert "any of them" in hint(label, right, 0.5, value + 2e-9)


# The optimizer's curse


def test_curse_is_solved():
    assert solved("ex-curse")[1] == "ex-curse: right."


DRAWS = np.random.default_rng(1).normal(size=(20_000, 50))


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda s, k: (0.3 + s * DRAWS[:, :k]).max(axis=1).mean(), "true click rate"),
        (lambda s, k: (s * DRAWS[:, :k]).mean(), "averages all products"),
        (lambda s, k: DRAWS[:, :k].max(axis=1).mean(), "multiply standard"),
        (lambda s, k: np.abs(s * DRAWS[:, :k]).max(axis=1).mean(), "the largest"),
        (lambda s, k: (s * DRAWS).max(axis=1).mean(), "s = 0.08 and 10 products"),
        (lambda s, k: s * DRAWS[:, :k], "shape () is wanted"),
    ],
)
def test_curse_mistakes(wrong, says):
    assert says in hint("ex-curse", wrong)


def test_curse_may_have_the_luck_of_the_draws():
    label = "ex-curse"
    # Expected maxima of 2, 10 and 50 standard normal numbers: David and Nagaraja, Order Statistics.
    known = {2: 0.56419, 10: 1.53875, 50: 2.24907}
    assert said(label, lambda s, k: s * (known[k] + 0.029)) == f"{label}: right."
    assert "not right" in hint(label, lambda s, k: s * (known[k] - 0.031))
    assert "my mistake" in hint(label, raises)
    assert "It takes s" in hint(label, 0.18)


# A better start


def standing_in(predictions):
    """What a judge needs of models that were trained."""
    return SimpleNamespace(predict_all=lambda: predictions)


@pytest.fixture
def started_small(twenty):
    """Models, validation losses and shares of the oracle."""
    says = twenty["predictions"]
    best = [true_ctr_matrix(world).max(axis=1).mean() for world in twenty["worlds"]]
    shown = says.argmax(axis=-1)
    earned = list(map(zoolib.policy_value, twenty["worlds"], shown))
    share = np.array(earned) / best
    return says, losses(twenty, "validation_logs", says), share


def test_small_start_is_answered(started_small):
    says, loss, share = started_small
    label = "ex-small-start"
    assert said(label, standing_in(says), loss + 9e-5, share) == f"{label}: right."


def test_small_start_mistakes(twenty, started_small):
    says, loss, share = started_small
    label, models = "ex-small-start", standing_in(says)
    seen = losses(twenty, "train_logs", says)
    assert "judge on the others" in hint(label, models, seen, share)
    assert "as they are after the last epoch" in hint(label, models, loss + 2e-4, share)
    assert "not a percentage" in hint(label, models, loss, 100 * share)
    value = [zoolib.oracle_value(world) for world in twenty["worlds"]] * share
    assert "divide by the oracle's" in hint(label, models, loss, value)
    assert "Share in world 0" in hint(label, models, loss, share + 2e-9)
    assert "Loss: One number a world" in hint(label, models, loss.mean(), share)
    assert "Share: One number a world" in hint(label, models, loss, share.mean())
    assert "twenty models together" in hint(label, standing_in(says[0]), loss, share)
    assert "trained MLPRecommender" in hint(label, says, loss, share)
    assert "my mistake" in hint(label, SimpleNamespace(predict_all=raises), loss, share)
    # A model that learnt less than the chapter's, and one that knows the answers.
    less = 0.7 * says + 0.3 * says.mean()
    less_loss = losses(twenty, "validation_logs", less)
    assert "look at embedding_scale" in hint(label, standing_in(less), less_loss, share)
    pairs = zip(twenty["worlds"], twenty["validation_logs"], strict=True)
    knows = np.array([smoothed(world, rows) for world, rows in pairs])
    knows_loss = losses(twenty, "validation_logs", knows)
    assert "epochs and rows" in hint(label, standing_in(knows), knows_loss, share)


# A little randomness


def logs_of(random_share, shock=True, n=100_000):
    """Logs of a shop that follows the oracle of old: of worlds 0 and 19, and the first's in between."""
    visit = run([chapters_own("visit")], NAMES)[0]["visit"]
    ends = []
    for seed in (0, 19):
        world = ZooplusSimulator(seed=seed)
        shown = true_ctr_matrix(world).argmax(axis=1)
        if shock:
            world.apply_shock(SHOCK_2)
        ends.append(visit(world, seed, shown, random_share, n))
    return [ends[0]] * 19 + [ends[1]]


@pytest.fixture(scope="module")
def mixed():
    """A right answer: cost, logs, models, and the shares of users who are shown a dog toy."""
    shown = np.random.default_rng(5).integers(50, size=(20, 1000))
    cost = run(
        [statements(SOLUTIONS["ex-floor-exploration"][0], ast.FunctionDef)], NAMES
    )
    toys = {persona: np.zeros(20) for persona in ZooplusSimulator(seed=0).personas}
    for seed, row in enumerate(shown):
        world = ZooplusSimulator(seed=seed)
        for persona, shares in toys.items():
            theirs = world.products["category"].to_numpy()[row][
                world.user_personas == persona
            ]
            shares[seed] = np.mean(theirs == "Dog Toy")
    models = standing_in(np.eye(50)[shown])
    return [cost[0]["mixing_cost"], logs_of(1 / 20), models, toys]


def test_floor_exploration_is_answered(mixed):
    assert said("ex-floor-exploration", *mixed) == "ex-floor-exploration: right."


@pytest.mark.parametrize(
    ("cost", "says"),
    [
        (lambda v, random: 0.95 * v + 0.05 * random, "what does it cost"),
        (lambda v, random: (random - v) / 20, "turn the sign"),
        (lambda v, random: v / 20, "earn something, too"),
        (lambda v, random: v - random, "in every visit"),
        (lambda v, random: (v - random) / 19, "following always"),
        (lambda v, random: (v - random) / 20 + 2e-9, "following always"),
    ],
)
def test_floor_exploration_judges_the_cost(mixed, cost, says):
    def wrong(world, shown):
        return cost(zoolib.policy_value(world, shown), zoolib.random_value(world))

    assert says in hint("ex-floor-exploration", wrong, *mixed[1:])


def test_floor_exploration_calls_the_cost(mixed):
    label = "ex-floor-exploration"
    assert "my mistake" in hint(label, raises, *mixed[1:])
    assert "a world and the product" in hint(label, 0.0145, *mixed[1:])


@pytest.mark.parametrize(
    ("logs", "says"),
    [
        ({"random_share": 0.0}, "one in twenty is wanted"),
        ({"random_share": 1.0}, "one in twenty is wanted"),
        ({"random_share": 0.04}, "one in twenty is wanted"),
        ({"random_share": 1 / 20, "shock": False}, "play after the second shock"),
        ({"random_share": 1 / 20, "n": 50_000}, "100,000 visits a world"),
    ],
    ids=str,
)
def test_floor_exploration_judges_the_logs(mixed, logs, says):
    cost, _, *rest = mixed
    assert says in hint("ex-floor-exploration", cost, logs_of(**logs), *rest)


def test_floor_exploration_wants_all_logs(mixed):
    cost, logs, *rest = mixed
    label = "ex-floor-exploration"
    assert "One log for each" in hint(label, cost, logs[:3], *rest)
    short = [*logs[:19], logs[19][:100]]
    assert "world 19 has 100" in hint(label, cost, short, *rest)


def test_floor_exploration_judges_the_breakdown(mixed):
    *given, models, toys = mixed
    label, persona = "ex-floor-exploration", "cat_connoisseur"

    def wrong(shares):
        return hint(label, *given, models, toys | {persona: shares})

    right = toys[persona]
    assert said(label, *given, models, toys | {persona: right + 9e-10}).endswith(
        "right."
    )
    assert "count its users" in wrong(right + 2e-9)
    assert "not percentages" in wrong(100 * right)
    theirs = [
        (ZooplusSimulator(seed=s).user_personas == persona).mean() for s in range(20)
    ]
    assert "not by all" in wrong(right * theirs)
    assert "shape (20,) is wanted" in wrong(right.mean())
    assert "One number a world" in wrong(np.full(20, right.mean()))
    one = {persona: right}
    assert "One entry for each persona" in hint(label, *given, models, one)
    assert "retrained MLPRecommender" in hint(label, *given, toys, toys)
    assert "twenty models together" in hint(
        label, *given, standing_in(np.eye(50)), toys
    )
