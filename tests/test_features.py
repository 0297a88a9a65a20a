import numpy as np
import pytest

from zoolib import FeatureEngineer, ZooplusSimulator


@pytest.mark.parametrize(("interactions", "d"), [(False, 9), (True, 29)])
def test_each_entry_is_what_its_name_says(interactions, d):
    world = ZooplusSimulator(seed=42)
    features = FeatureEngineer(world, interactions=interactions)
    assert features.n_features == len(features.names) == d
    for user in (0, 1, 999):
        table = features.transform(user)
        assert table.shape == (50, d)
        for product in range(50):
            persona, category = (
                world.user_personas[user],
                world.products.loc[product, "category"],
            )
            on = {f"persona={persona}", f"category={category}"}
            on |= (
                {f"persona={persona} x category={category}"} if interactions else set()
            )
            assert {
                name
                for name, x in zip(features.names, table[product], strict=True)
                if x == 1
            } == on
            assert set(table[product]) == {0.0, 1.0}


def test_many_users_at_once():
    features = FeatureEngineer(ZooplusSimulator(seed=1), interactions=True)
    users = np.array([[0, 5, 7], [9, 9, 2]])
    stacked = features.transform(users)
    assert stacked.shape == (2, 3, 50, 29)
    assert all(
        (stacked[i, j] == features.transform(users[i, j])).all()
        for i in range(2)
        for j in range(3)
    )


@pytest.mark.parametrize(
    ("user", "error"), [(1000, ValueError), (-1, ValueError), (1.0, TypeError)]
)
def test_users_are_checked(user, error):
    with pytest.raises(error, match="user_id"):
        FeatureEngineer(ZooplusSimulator()).transform(user)


@pytest.mark.parametrize("rich", [False, True])
@pytest.mark.parametrize("arguments", [{}, {"interactions": True}, {"personas": False}])
def test_worlds_are_described_as_if_alone(arguments, rich):
    worlds = [ZooplusSimulator(12, 30, seed, rich) for seed in (1, 2, 3)]
    together = FeatureEngineer(worlds, **arguments)
    alone = [FeatureEngineer(world, **arguments) for world in worlds]
    assert together.names == alone[0].names
    d = together.n_features
    assert len({one.transform(4).tobytes() for one in alone}) == 3
    for shape in ((3,), (3, 1), (3, 4), (3, 2, 5), (3, 0)):
        users = np.random.default_rng(0).integers(30, size=shape)
        tables = together.transform(users)
        assert tables.shape == (*shape, 12, d)
        for w, one in enumerate(alone):
            assert (tables[w] == one.transform(users[w])).all()
    assert FeatureEngineer(worlds[:1], **arguments).transform([7]).shape == (1, 12, d)


def test_without_personas_all_users_look_alike():
    world = ZooplusSimulator(seed=42)
    features = FeatureEngineer(world, personas=False)
    assert features.names == [f"category={name}" for name in world.categories]
    assert features.n_features == 5
    tables = features.transform(np.arange(1000))
    assert (tables == tables[0]).all()
    columns = [features.names.index(f"category={c}") for c in world.products.category]
    assert (tables[0] == np.eye(5)[columns]).all()


@pytest.mark.parametrize(
    ("users", "error", "words"),
    [
        (0, ValueError, ["2 rows", "()"]),
        ([0, 1, 2], ValueError, ["2 rows", "(3,)"]),
        ([[0, 1]], ValueError, ["2 rows", "(1, 2)"]),
        ([0, 30], ValueError, ["0 … 29", "30"]),
        ([0, -1], ValueError, ["-1"]),
        ([0.0, 1.0], TypeError, ["float64"]),
    ],
)
def test_users_of_worlds_are_checked(users, error, words):
    features = FeatureEngineer([ZooplusSimulator(12, 30, seed) for seed in (1, 2)])
    with pytest.raises(error, match="user_id") as refusal:
        features.transform(users)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


@pytest.mark.parametrize(
    ("sizes", "words"),
    [
        ([], ["world", "[]"]),
        ([(12, 30), (12, 31)], ["world", "equal size"]),
        ([(13, 30), (12, 30)], ["world", "equal size"]),
        ([(12, 30), (12, 30, 42, True)], ["world", "False", "True"]),
    ],
)
def test_worlds_are_of_one_size(sizes, words):
    with pytest.raises(ValueError, match="world") as refusal:
        FeatureEngineer([ZooplusSimulator(*size) for size in sizes])
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_interactions_need_personas():
    with pytest.raises(ValueError, match="interactions need personas"):
        FeatureEngineer(ZooplusSimulator(), interactions=True, personas=False)


def test_the_names_of_pairs_tell_both():
    world = ZooplusSimulator()
    personas, categories = list(world.personas), list(world.categories)
    names = FeatureEngineer(world, interactions=True).names
    assert names == [
        *(f"persona={p}" for p in personas),
        *(f"category={c}" for c in categories),
        *(f"persona={p} x category={c}" for p in personas for c in categories),
    ]


@pytest.mark.parametrize(
    ("arguments", "d"),
    [({}, 13), ({"interactions": True}, 55), ({"personas": False}, 9)],
)
def test_a_rich_shop_adds_its_numbers(arguments, d):
    world = ZooplusSimulator(12, 30, seed=4, rich=True)
    features = FeatureEngineer(world, **arguments)
    assert features.n_features == len(features.names) == len(set(features.names)) == d
    told = list(world.personas) if arguments.get("personas", True) else []
    for user in range(30):
        table = features.transform(user)
        assert table.shape == (12, d)
        who = world.users.loc[user]
        of_user = {f"persona={name}": float(name == who.persona) for name in told}
        of_user |= {"budget": who.budget, "curiosity": who.curiosity}
        for product in range(12):
            what = world.products.loc[product]
            of_product = {
                f"category={name}": float(name == what.category)
                for name in world.categories
            }
            of_product |= {"price": what.price, "freshness": what.freshness}
            expected = of_user | of_product
            if "interactions" in arguments:
                expected |= {
                    f"{u} x {p}": x * y
                    for u, x in of_user.items()
                    for p, y in of_product.items()
                }
            assert features.names == list(expected)
            assert table[product].tolist() == list(expected.values())


def test_features_made_after_a_change_of_the_catalogue_tell_of_it():
    world = ZooplusSimulator(12, 30, seed=4, rich=True)
    before = FeatureEngineer(world)
    table = before.transform(0)
    shelves = world.restock(0.25)
    after = FeatureEngineer(world).transform(0)
    assert (before.transform(0) == table).all()
    assert np.flatnonzero((after != table).any(axis=1)).tolist() == shelves.tolist()


def test_features_tell_their_settings():
    world = ZooplusSimulator(10, 20)
    plain, blind = FeatureEngineer(world), FeatureEngineer([world] * 3, personas=False)
    assert (
        repr(plain) == "FeatureEngineer(one world, interactions=False, personas=True)"
    )
    assert (
        repr(blind) == "FeatureEngineer(3 worlds, interactions=False, personas=False)"
    )
