import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoolib import SHOCK_1, SHOCK_2, MarketShock, ZooplusSimulator

sizes = st.integers(1, 120)
seeds = st.integers(0, 2**32 - 1)


def drafts_world(seed, n_products=50, n_users=1000):
    """The draws of the drafts' world, one at a time in their order."""
    rng = np.random.default_rng(seed)
    categories = ["Fish Supplies", "Cat Food", "Dog Food", "Dog Toy", "Cat Toy"]
    names = [c for c in categories for _ in range(n_products // 5)]
    names += list(rng.choice(categories, n_products - len(names)))
    catalogue = rng.permutation(names)
    personas = [
        "new_puppy_parent",
        "cat_connoisseur",
        "budget_shopper",
        "fish_hobbyist",
    ]
    return list(catalogue), [str(rng.choice(personas)) for _ in range(n_users)]


def test_world_42_is_the_drafts_world():
    world = ZooplusSimulator(seed=42)
    assert world.products.loc[4, "category"] == "Dog Toy"
    assert world.products.loc[3, "category"] == "Cat Toy"
    assert world.products.index.name == "product_id"
    assert world.user_personas[0] == "new_puppy_parent"
    shares = [np.mean(world.user_personas == name) for name in world.personas]
    assert shares == [0.255, 0.237, 0.258, 0.250]


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n_products=sizes, n_users=sizes)
def test_every_world_is_drawn_in_the_drafts_order(seed, n_products, n_users):
    world = ZooplusSimulator(n_products, n_users, seed)
    catalogue, personas = drafts_world(seed, n_products, n_users)
    assert list(world.products["category"]) == catalogue
    assert list(world.user_personas) == personas


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n_products=sizes, n_users=sizes, data=st.data())
def test_arrays_agree_with_single_look_ups(seed, n_products, n_users, data):
    world = ZooplusSimulator(n_products, n_users, seed)
    users = data.draw(st.lists(st.integers(0, n_users - 1), min_size=1, max_size=6))
    products = data.draw(
        st.lists(st.integers(0, n_products - 1), min_size=1, max_size=6)
    )
    grid = world.true_ctr(np.array(users)[:, None], products)
    assert grid.shape == (len(users), len(products))
    for i, user in enumerate(users):
        for j, product in enumerate(products):
            tastes = world.personas[world.user_personas[user]]
            single = world.true_ctr(user, product)
            assert isinstance(single, float)
            assert (
                grid[i, j] == single == tastes[world.products.loc[product, "category"]]
            )


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n=st.integers(1, 500))
def test_logs_are_complete_and_repeatable(seed, n):
    log = ZooplusSimulator(10, 20, seed).sample_interactions(n)
    assert list(log.columns) == ["user_id", "product_id", "clicked", "category"]
    assert len(log) == n
    assert log["user_id"].between(0, 19).all()
    assert log["product_id"].between(0, 9).all()
    assert log["clicked"].isin([0, 1]).all()
    world = ZooplusSimulator(10, 20, seed)
    assert (
        log["category"].to_numpy()
        == world.products["category"].to_numpy()[log["product_id"]]
    ).all()
    assert log.equals(world.sample_interactions(n))


def test_click_rate_of_the_log_is_the_truth_of_the_world():
    world = ZooplusSimulator(seed=42)
    truth = world.true_ctr(np.arange(1000)[:, None], np.arange(50)).mean()
    log = world.sample_interactions(200_000)
    assert abs(log["clicked"].mean() - truth) < 3 * np.sqrt(
        truth * (1 - truth) / len(log)
    )
    by_pair = log.assign(p=world.true_ctr(log["user_id"], log["product_id"]))
    cells = by_pair.groupby("p")["clicked"].agg(["mean", "size"]).reset_index()
    deviations = (cells["mean"] - cells["p"]) / np.sqrt(
        cells["p"] * (1 - cells["p"]) / cells["size"]
    )
    assert deviations.abs().max() < 4


def test_rewards_are_bernoulli_draws_of_the_right_kind():
    world = ZooplusSimulator(seed=42)
    assert type(world.reward(0, 4)) is int
    clicks = world.reward(0, np.full(20_000, 4))
    assert clicks.dtype == np.int64
    assert abs(clicks.mean() - 0.5) < 4 * 0.5 / np.sqrt(20_000)
    assert world.reward([0, 1], [[3], [4], [5]]).shape == (3, 2)


def test_random_user_covers_all_users_evenly():
    world = ZooplusSimulator(n_users=5, seed=1)
    draws = [world.random_user() for _ in range(5000)]
    assert type(draws[0]) is int
    assert np.bincount(draws, minlength=5).min() > 880


def test_log_visits_shows_what_it_was_told():
    world = ZooplusSimulator(seed=3)
    log = world.log_visits([5, 6, 7], 4)
    assert list(log["user_id"]) == [5, 6, 7]
    assert list(log["product_id"]) == [4, 4, 4]
    assert len(world.log_visits(5, 4)) == 1


def test_shocks_change_one_persona_and_nothing_else():
    world, before = ZooplusSimulator(seed=42), ZooplusSimulator(seed=42)
    world.apply_shock(SHOCK_1)
    world.apply_shock(SHOCK_2)
    expected = copy.deepcopy(before.personas)
    expected["budget_shopper"] |= {
        "Fish Supplies": 0.80,
        "Dog Food": 0.10,
        "Cat Food": 0.15,
    }
    expected["cat_connoisseur"]["Dog Toy"] = 0.75
    assert world.personas == expected
    assert ZooplusSimulator(seed=42).personas == before.personas, (
        "worlds share their tastes"
    )
    budget = int(np.flatnonzero(world.user_personas == "budget_shopper")[0])
    fish = int(world.products.index[world.products["category"] == "Fish Supplies"][0])
    assert world.true_ctr(budget, fish) == 0.80


@pytest.mark.parametrize(
    ("table", "random", "window", "oracle"),
    [
        ((), 0.2105, 0.2875, 0.5125),
        ((SHOCK_1,), 0.2205, 0.3675, 0.6125),
        ((SHOCK_1, SHOCK_2), 0.257, 0.3675, 0.6625),
    ],
)
def test_values_with_equal_personas(table, random, window, oracle):
    world = ZooplusSimulator()
    for shock in table:
        world.apply_shock(shock)
    truth = world.click_table
    assert truth.mean() == pytest.approx(random)
    assert truth.mean(axis=0).max() == pytest.approx(window)
    assert truth.max(axis=1).mean() == pytest.approx(oracle)


@pytest.mark.parametrize(
    ("shock", "error", "words"),
    [
        (
            MarketShock("dog_person", {"Dog Toy": 0.5}),
            ValueError,
            ["persona", "dog_person", "budget_shopper"],
        ),
        (
            MarketShock("budget_shopper", {"Fish Supplies": 0.9, "Birds": 0.5}),
            ValueError,
            ["category", "Birds"],
        ),
        (
            MarketShock("budget_shopper", {"Fish Supplies": 0.9, "Dog Toy": 1.2}),
            ValueError,
            ["Dog Toy", "[0, 1]", "1.2"],
        ),
        (
            MarketShock("budget_shopper", {"Fish Supplies": 0.9, "Dog Toy": -0.1}),
            ValueError,
            ["Dog Toy", "-0.1"],
        ),
        (
            MarketShock("budget_shopper", {"Fish Supplies": 0.9, "Dog Toy": np.nan}),
            ValueError,
            ["Dog Toy", "nan"],
        ),
        (
            MarketShock("budget_shopper", {"Fish Supplies": 0.9, "Dog Toy": "0.4"}),
            TypeError,
            ["Dog Toy", "'0.4'"],
        ),
        ({"Dog Toy": 0.4}, TypeError, ["shock", "MarketShock", "dict"]),
    ],
)
def test_a_refused_shock_changes_nothing(shock, error, words):
    world = ZooplusSimulator()
    before = copy.deepcopy(world.personas)
    with pytest.raises(error) as refusal:
        world.apply_shock(shock)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert world.personas == before


@pytest.mark.parametrize("method", ["true_ctr", "reward"])
@pytest.mark.parametrize(
    ("user", "product", "error", "words"),
    [
        (1000, 0, ValueError, ["user_id", "0 … 999", "1000"]),
        (-1, 0, ValueError, ["user_id", "-1"]),
        (0, 50, ValueError, ["product_id", "0 … 49", "50"]),
        ([0, 5], [3, 99], ValueError, ["product_id", "99"]),
        (0.0, 0, TypeError, ["user_id", "float64"]),
        ("0", 0, TypeError, ["user_id", "<U1"]),
        (0, True, TypeError, ["product_id", "bool"]),
        (0, None, TypeError, ["product_id", "object"]),
        ([0, 1, 2], [0, 1], ValueError, ["user_id", "product_id", "(3,)", "(2,)"]),
    ],
)
def test_ids_are_checked(method, user, product, error, words):
    world = ZooplusSimulator()
    state = world.rng.bit_generator.state
    with pytest.raises(error) as refusal:
        getattr(world, method)(user, product)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert world.rng.bit_generator.state == state


@pytest.mark.parametrize("name", ["n_products", "n_users"])
@pytest.mark.parametrize(
    ("value", "error"),
    [(0, ValueError), (-3, ValueError), (2.0, TypeError), (True, TypeError)],
)
def test_sizes_are_checked(name, value, error):
    with pytest.raises(error, match=name):
        ZooplusSimulator(**{name: value})


@pytest.mark.parametrize(
    ("n", "error"),
    [(0, ValueError), (-1, ValueError), (1.5, TypeError), ("9", TypeError)],
)
def test_log_length_is_checked(n, error):
    with pytest.raises(error, match="n must be"):
        ZooplusSimulator().sample_interactions(n)
