import copy

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import special, stats

from zoolib import SHOCK_1, SHOCK_2, MarketShock, ZooplusSimulator, true_ctr_matrix
from zoolib.world.simulator import SPREADS, Churn, appeal

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


def half_wrong(tastes):
    """A shock of which one part is right."""
    return MarketShock("budget_shopper", {"Fish Supplies": 0.9} | tastes)


@pytest.mark.parametrize(
    ("shock", "error", "words"),
    [
        (
            MarketShock("dog_person", {"Dog Toy": 0.5}),
            ValueError,
            ["persona", "dog_person", "budget_shopper"],
        ),
        (half_wrong({"Birds": 0.5}), ValueError, ["category", "Birds"]),
        (half_wrong({"Dog Toy": 1.2}), ValueError, ["Dog Toy", "[0, 1]", "1.2"]),
        (half_wrong({"Dog Toy": -0.1}), ValueError, ["Dog Toy", "-0.1"]),
        (half_wrong({"Dog Toy": np.nan}), ValueError, ["Dog Toy", "nan"]),
        (half_wrong({"Dog Toy": "0.4"}), TypeError, ["Dog Toy", "'0.4'"]),
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
        (0, None, TypeError, ["product_id", "None"]),
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


@pytest.mark.parametrize(
    ("name", "make"),
    [
        ("n_products", lambda n: ZooplusSimulator(n_products=n)),
        ("n_users", lambda n: ZooplusSimulator(n_users=n)),
        ("n", lambda n: ZooplusSimulator().sample_interactions(n)),
    ],
)
@pytest.mark.parametrize(
    ("size", "error"),
    [
        (0, ValueError),
        (-3, ValueError),
        (2.0, TypeError),
        (True, TypeError),
        ("9", TypeError),
    ],
)
def test_sizes_are_checked(name, make, size, error):
    with pytest.raises(error, match=f"^{name} must be"):
        make(size)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n_products=sizes, n_users=sizes)
def test_a_rich_shop_is_the_plain_shop_and_more(seed, n_products, n_users):
    plain = ZooplusSimulator(n_products, n_users, seed)
    rich = ZooplusSimulator(n_products, n_users, seed, rich=True)
    assert (plain.rich, rich.rich) == (False, True)
    assert list(plain.products) == ["category"]
    assert list(plain.users) == ["persona"]
    assert list(rich.products) == ["category", "price", "freshness"]
    assert list(rich.users) == ["persona", "budget", "curiosity"]
    assert rich.products[["category"]].equals(plain.products)
    assert rich.users[["persona"]].equals(plain.users)
    assert (plain.users["persona"] == plain.user_personas).all()
    assert (rich.user_personas == plain.user_personas).all()
    again = ZooplusSimulator(n_products, n_users, seed, rich=True)
    assert again.products.equals(rich.products)
    assert again.users.equals(rich.users)


rates = st.floats(1e-6, 1 - 1e-6)


@settings(max_examples=25, deadline=None)
@given(seed=seeds, n_products=sizes, n_users=sizes, rate=rates)
def test_drawn_tastes_have_the_wanted_mean_and_leave_the_rest(
    seed, n_products, n_users, rate
):
    usual = ZooplusSimulator(n_products, n_users, seed, rich=True)
    drawn = ZooplusSimulator(n_products, n_users, seed, rich=True, click_rate=rate)
    assert (usual.click_rate, drawn.click_rate) == (None, rate)
    assert drawn.click_table.mean() == pytest.approx(rate)
    assert 0 < drawn.click_table.min() < drawn.click_table.max() < 1
    assert drawn.products.equals(usual.products)
    assert drawn.users.equals(usual.users)
    assert (ZooplusSimulator(seed=seed).click_table == usual.click_table).all()
    again = eval(repr(drawn))
    assert (again.click_table == drawn.click_table).all()


def test_drawn_tastes_differ_by_seed_and_keep_their_order_at_all_rates():
    orders = []
    for seed in range(20):
        tables = [
            ZooplusSimulator(seed=seed, click_rate=rate).click_table
            for rate in (0.5, 0.03, 0.005)
        ]
        assert len({tuple(table.argsort(axis=None)) for table in tables}) == 1
        orders.append(tuple(tables[0].argsort(axis=None)))
    assert len(set(orders)) == 20


def test_drawn_log_odds_are_spread_as_in_the_usual_table():
    usual = special.logit(ZooplusSimulator().click_table)
    shops = [ZooplusSimulator(5, 1, seed, click_rate=0.2) for seed in range(400)]
    odds = special.logit([shop.click_table for shop in shops])
    spread = np.sqrt(np.square([*SPREADS.values()]).sum())
    assert usual.std(ddof=1) == pytest.approx(spread, rel=0.05)
    # Between shops, where the level is the same on average, each part shows in a difference.
    across, down = odds[:, :, 0] - odds[:, :, 1], odds[:, 0] - odds[:, 1]
    for difference, other in ((across, "category"), (down, "persona")):
        expected = 2 * (SPREADS[other] ** 2 + SPREADS["pair"] ** 2)
        assert np.square(difference).mean() == pytest.approx(expected, rel=0.12)
    pair = across[:, 0] - across[:, 1]
    assert np.square(pair).mean() == pytest.approx(4 * SPREADS["pair"] ** 2, rel=0.2)


@pytest.mark.parametrize(
    ("rate", "error"),
    [(0, ValueError), (1.0, ValueError), (-0.1, ValueError), ("0.5", TypeError)],
)
def test_a_click_rate_is_checked(rate, error):
    with pytest.raises(error, match="click_rate must"):
        ZooplusSimulator(click_rate=rate)


def test_prices_freshness_budgets_and_curiosity_are_uniform_and_independent():
    world = ZooplusSimulator(3000, 3000, seed=1, rich=True)
    numbers = np.column_stack(
        [world.products[["price", "freshness"]], world.users[["budget", "curiosity"]]]
    )
    for column in numbers.T:
        assert stats.kstest(column, "uniform").pvalue > 0.001
    assert abs(np.corrcoef(numbers.T) - np.eye(4)).max() < 4 / np.sqrt(3000)


@pytest.mark.parametrize(
    ("wishes", "qualities", "expected"),
    [
        # Budget and curiosity, price and freshness: a perfect price, and a sigmoid of zero.
        ((0.5, 0.3), (0.5, 0.3), 1.0 * 0.8),
        # One standard deviation too dear, or too cheap.
        ((0.5, 0.3), (0.65, 0.3), (0.1 + 0.9 * np.exp(-0.5)) * 0.8),
        ((0.65, 0.3), (0.5, 0.3), (0.1 + 0.9 * np.exp(-0.5)) * 0.8),
        # A tenth fresher, or staler, than the customer asks for.
        ((0.5, 0.3), (0.5, 0.4), 0.6 + 0.4 / (1 + np.exp(-1))),
        ((0.5, 0.4), (0.5, 0.3), 0.6 + 0.4 / (1 + np.exp(1))),
        # The worst fit: what is left is a tenth of three fifths.
        ((0.0, 1.0), (1.0, 0.0), 0.1 * 0.6),
    ],
)
def test_appeal_by_hand(wishes, qualities, expected):
    assert appeal(wishes, qualities) == pytest.approx(expected, rel=1e-3)
    if expected > 0.1:
        assert appeal(wishes, qualities) == pytest.approx(expected)


numbers = st.floats(0, 1)


@given(numbers, numbers, numbers, numbers)
def test_appeal_lies_above_zero_and_never_above_one(budget, curiosity, price, fresh):
    assert 0 < appeal((budget, curiosity), (price, fresh)) <= 1


def test_appeal_broadcasts():
    wishes, qualities = np.random.default_rng(0).random((2, 4, 2))
    table = appeal(wishes[:, None], qualities)
    assert table.shape == (4, 4)
    assert table[1, 3] == appeal(wishes[1], qualities[3])


def test_in_a_rich_shop_the_truth_is_the_table_times_the_appeal():
    world = ZooplusSimulator(12, 30, seed=4, rich=True)
    world.apply_shock(SHOCK_1)
    truth = true_ctr_matrix(world)
    assert truth.shape == (30, 12)
    for user in range(30):
        for product in range(12):
            what, who = world.products.loc[product], world.users.loc[user]
            fit = appeal((who.budget, who.curiosity), (what.price, what.freshness))
            expected = world.personas[who.persona][what.category] * fit
            single = world.true_ctr(user, product)
            assert type(single) is float
            assert single == truth[user, product] == pytest.approx(expected)
    assert type(world.reward(3, 4)) is int
    log = world.sample_interactions(40_000)
    p = world.true_ctr(log["user_id"], log["product_id"])
    assert abs((log["clicked"] - p).sum()) < 4 * np.sqrt((p * (1 - p)).sum())


@pytest.mark.parametrize("rich", [False, True])
@pytest.mark.parametrize(
    ("n_products", "share", "n"),
    [
        (50, 0.2, 10),
        (50, 1.0, 50),
        (50, 1e-9, 1),
        (10, 0.34, 3),
        (10, 0.36, 4),
        (1, 0.5, 1),
    ],
)
def test_restocking_replaces_its_share_and_leaves_the_rest(n_products, share, n, rich):
    world = ZooplusSimulator(n_products, 20, seed=5, rich=rich)
    handed_out, before = world.products, world.products.copy()
    codes, users = world.category_of_product.copy(), world.users.copy()
    shelves = world.restock(share)
    assert shelves.dtype == np.int64
    assert len(set(shelves.tolist())) == len(shelves) == n
    assert set(shelves.tolist()) <= set(range(n_products))
    assert handed_out.equals(before)
    assert world.users.equals(users)
    assert world.products.index.equals(before.index)
    assert (world.products.dtypes == before.dtypes).all()
    assert world.products["category"].isin(world.categories).all()
    kept = np.setdiff1d(np.arange(n_products), shelves)
    assert world.products.loc[kept].equals(before.loc[kept])
    assert (world.category_of_product[kept] == codes[kept]).all()
    if rich:
        new = world.products.loc[shelves, ["price", "freshness"]].to_numpy()
        assert (new != before.loc[shelves, ["price", "freshness"]].to_numpy()).all()
        assert len(np.unique(new)) == new.size
        assert ((new >= 0) & (new <= 1)).all()


@pytest.mark.parametrize("rich", [False, True])
def test_the_truth_follows_the_catalogue(rich):
    world = ZooplusSimulator(10, 20, seed=5, rich=rich)
    before = true_ctr_matrix(world)
    shelves = world.restock(0.5)
    now = true_ctr_matrix(world)
    assert (now != before).any(axis=0)[shelves].any()
    for product in range(10):
        what = world.products.loc[product]
        assert (
            world.categories[world.category_of_product[product]]
            == what["category"]
            == world.log_visits(0, product)["category"].item()
        )
        for user in range(20):
            p = world.personas[world.user_personas[user]][what["category"]]
            if rich:
                who = world.users.loc[user]
                p *= appeal((who.budget, who.curiosity), (what.price, what.freshness))
            assert now[user, product] == pytest.approx(p)


def test_every_shelf_and_every_category_has_the_same_chance():
    world = ZooplusSimulator(10, 1, seed=6)
    shelves, names = [], []
    for _ in range(1500):
        changed = world.restock(0.3)
        shelves += changed.tolist()
        names += world.category_of_product[changed].tolist()
    assert stats.chisquare(np.bincount(shelves)).pvalue > 0.001
    assert stats.chisquare(np.bincount(names)).pvalue > 0.001
    pairs = np.bincount(np.array(shelves) * 5 + names, minlength=50)
    assert stats.chisquare(pairs).pvalue > 0.001


def test_the_seed_decides_what_is_restocked():
    one, same, other = (ZooplusSimulator(seed=seed, rich=True) for seed in (1, 1, 2))
    ours, theirs, others = (
        [w.restock(0.2) for _ in range(3)] for w in (one, same, other)
    )
    assert np.array_equal(ours, theirs)
    assert one.products.equals(same.products)
    assert not np.array_equal(ours, others)
    assert not np.array_equal(ours[0], ours[1])


@pytest.mark.parametrize(
    ("share", "error"),
    [
        (0, ValueError),
        (-0.1, ValueError),
        (1.1, ValueError),
        (np.nan, ValueError),
        ("0.2", TypeError),
        (True, TypeError),
        (None, TypeError),
    ],
)
def test_shares_are_checked(share, error):
    world = ZooplusSimulator()
    before, state = world.products.copy(), world.rng.bit_generator.state
    with pytest.raises(error, match="share"):
        world.restock(share)
    assert world.products.equals(before)
    assert world.rng.bit_generator.state == state


def test_churn_holds_pythons_own_numbers_for_good():
    churn = Churn(np.int64(7), np.float32(0.5))
    assert (type(churn.every), type(churn.share)) == (int, float)
    assert churn == Churn(7, 0.5)
    assert Churn(7) == Churn(7, 0.2)
    with pytest.raises(AttributeError, match="every"):
        churn.every = 8


def test_a_world_takes_any_seed_and_tells_its_settings():
    world = ZooplusSimulator(10, 20, seed=np.random.SeedSequence(3), rich=True)
    again = ZooplusSimulator(10, 20, seed=np.random.SeedSequence(3), rich=True)
    other = ZooplusSimulator(10, 20, seed=np.random.default_rng(3), rich=True)
    assert world.products.equals(again.products)
    assert not world.products.equals(other.products)
    shown = f"ZooplusSimulator(n_products=10, n_users=20, seed={world.seed}, rich=True)"
    assert repr(world) == shown
    assert eval(shown).products.equals(world.products)
    for seed in (None, 1.5, "one"):
        with pytest.raises(TypeError, match="seed must be a whole number"):
            ZooplusSimulator(seed=seed)
