import numpy as np
import pytest
from sklearn.metrics import log_loss

import zoolib
from zoolib import SHOCK_1, ZooplusSimulator


@pytest.fixture
def world():
    return ZooplusSimulator(seed=7)


def test_values_are_averages_of_the_truth(world):
    truth = [[world.true_ctr(u, a) for a in range(50)] for u in range(1000)]
    assert (zoolib.true_ctr_matrix(world) == truth).all()
    assert zoolib.random_value(world) == pytest.approx(np.mean(truth))
    assert zoolib.oracle_value(world) == pytest.approx(
        np.mean([max(row) for row in truth])
    )
    assert zoolib.best_product_value(world) == pytest.approx(
        max(np.mean([row[a] for row in truth]) for a in range(50))
    )


def test_policies_lie_between_their_yardsticks(world):
    oracle = zoolib.true_ctr_matrix(world).argmax(axis=1)
    assert zoolib.policy_value(world, oracle) == pytest.approx(
        zoolib.oracle_value(world)
    )
    single = [zoolib.policy_value(world, a) for a in range(50)]
    assert max(single) == pytest.approx(zoolib.best_product_value(world))
    assert np.mean(single) == pytest.approx(zoolib.random_value(world))


def test_values_follow_the_world_through_a_shock(world):
    before = zoolib.oracle_value(world)
    world.apply_shock(SHOCK_1)
    share = np.mean(world.user_personas == "budget_shopper")
    assert zoolib.oracle_value(world) - before == pytest.approx(share * (0.80 - 0.40))


def test_entropy_floor_is_what_the_truth_attains(world):
    floor = zoolib.entropy_floor(world)
    log = world.sample_interactions(200_000)
    truth = world.true_ctr(log["user_id"], log["product_id"])
    assert log_loss(log["clicked"], truth) == pytest.approx(floor, abs=0.003)
    worse = np.clip(truth + 0.05, 0, 0.95)
    assert log_loss(log["clicked"], worse) > log_loss(log["clicked"], truth)


def test_entropy_floor_with_equal_personas():
    p = ZooplusSimulator().click_table
    assert -(p * np.log(p) + (1 - p) * np.log(1 - p)).mean() == pytest.approx(
        0.3995, abs=5e-5
    )
    world = ZooplusSimulator(n_products=5, n_users=100_000, seed=0)
    assert zoolib.entropy_floor(world) == pytest.approx(0.3995, abs=1e-3)


def test_certain_clicks_have_no_entropy(world):
    for tastes in world.personas.values():
        tastes.update(dict.fromkeys(tastes, 1.0))
    assert zoolib.entropy_floor(world) == 0
