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
