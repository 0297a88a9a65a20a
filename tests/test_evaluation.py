import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.metrics import log_loss

import zoolib
from zoolib import (
    SHOCK_1,
    SHOCK_2,
    History,
    OracleAgent,
    StaticAgent,
    ZooplusSimulator,
    recent_share,
    recovery_time,
    rolling_mean,
    run_experiment,
    share_of_oracle,
    true_ctr_matrix,
)

INF = float("inf")
PERSONAS = ("cat_connoisseur", "budget_shopper")


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


def made(expected, optimal, persona=None, shocks=None, reward=None):
    """A history of agents a, b, … with these expected rewards (agent, world, step)."""
    expected = np.array(expected, float)
    optimal = np.broadcast_to(np.array(optimal, float), expected.shape[1:])
    n_agents, n_worlds, n_steps = expected.shape
    return History(
        agents=tuple("abc"[:n_agents]),
        seeds=tuple(range(n_worlds)),
        shocks=shocks or {},
        churn=None,
        personas=PERSONAS,
        planned=n_steps,
        user=np.zeros(optimal.shape, np.int32),
        persona=np.zeros(optimal.shape, np.int8) if persona is None else persona,
        arm=np.zeros(expected.shape, np.int32),
        reward=np.zeros(expected.shape, np.int8) if reward is None else reward,
        expected_reward=expected,
        optimal_reward=np.broadcast_to(optimal, expected.shape),
    )


@pytest.fixture
def small():
    """Two agents, two worlds, four steps."""
    return made(
        expected=[
            [[0.25, 0.5, 0.5, 0.25], [0, 0, 0.5, 1]],
            [[0.5, 0.5, 0.5, 1], [0.25, 1, 0.25, 0.5]],
        ],
        optimal=[[0.5, 0.5, 1, 1], [0.25, 1, 0.75, 1]],
        reward=np.array([[[0, 1, 1, 0], [0, 0, 0, 1]], [[1, 1, 1, 1], [0, 1, 0, 0]]]),
        shocks={1: SHOCK_1},
    )


def test_regret_adds_up_what_the_oracle_would_have_earned_more(small):
    first, second = (zoolib.regret(small, name) for name in "ab")
    assert first.tolist() == [[0.25, 0.25, 0.75, 1.5], [0.25, 1.25, 1.5, 1.5]]
    assert second.tolist() == [[0, 0, 0.5, 0.5], [0, 0, 0.5, 1]]


def test_a_lead_is_the_difference_of_two_regrets(small):
    lead = zoolib.lead(small, "b", over="a")
    assert lead.tolist() == [[0.25, 0.25, 0.25, 1], [0.25, 1.25, 1, 0.5]]
    assert (zoolib.lead(small, "a", over="b") == -lead).all()
    assert (lead == zoolib.regret(small, "a") - zoolib.regret(small, "b")).all()


def test_shares_of_the_oracle_are_of_sums_in_each_world(small):
    assert share_of_oracle(small, "a").tolist() == [1.5 / 3, 1.5 / 3]
    assert share_of_oracle(small, "b").tolist() == [2.5 / 3, 2 / 3]
    assert share_of_oracle(small, "b", slice(2, 4)).tolist() == [0.75, 0.75 / 1.75]


def test_recent_shares_are_shares_of_the_last_steps(small):
    recent = recent_share(small, "b", 2)
    n = small.n_steps
    assert recent.shape == (2, n - 1)
    for step in range(n - 1):
        of_two = share_of_oracle(small, "b", slice(step, step + 2))
        assert np.allclose(recent[:, step], of_two, rtol=0, atol=1e-12)


def test_click_rates_count_real_clicks(small):
    assert zoolib.click_rate(small, "a").tolist() == [0.5, 0.25]
    assert zoolib.click_rate(small, "b").tolist() == [1, 0.25]
    assert zoolib.click_rate(small, "b", slice(2, 4)).tolist() == [1, 0]


@pytest.mark.parametrize(
    "ask",
    [
        zoolib.regret,
        share_of_oracle,
        lambda history, name: recent_share(history, name, 1),
        zoolib.click_rate,
        lambda history, name: zoolib.lead(history, "a", name),
        lambda history, name: zoolib.lead(history, name, "a"),
        lambda history, name: recovery_time(history, name, 1),
    ],
)
def test_unknown_agents_have_no_figures(ask, small):
    with pytest.raises(ValueError, match=r"agent must be one of \['a', 'b'\].*'c'"):
        ask(small, "c")


@pytest.mark.parametrize(
    ("shocks", "ends"),
    [
        ([], [(0, 9)]),
        ([4], [(0, 4), (4, 9)]),
        ([1, 8], [(0, 1), (1, 8), (8, 9)]),
        ([0, 5], [(0, 5), (5, 9)]),
    ],
)
def test_phases_are_cut_at_the_shocks(shocks, ends):
    history = made(np.ones((1, 1, 9)), 1, shocks=dict.fromkeys(shocks, SHOCK_1))
    assert [(one.start, one.stop) for one in zoolib.phases(history)] == ends


@settings(max_examples=50, deadline=None)
@given(values=st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=40), data=st.data())
def test_a_rolling_mean_is_a_convolution(values, data):
    window = data.draw(st.integers(1, len(values)))
    expected = np.convolve(values, np.full(window, 1 / window), mode="valid")
    rolled = rolling_mean(values, window)
    assert np.allclose(rolled, expected, rtol=0, atol=1e-9)
    rows = rolling_mean([[values, values[::-1]]], window)
    assert rows.shape == (1, 2, len(expected))
    assert np.allclose(rows[0, 1], expected[::-1], rtol=0, atol=1e-9)


@pytest.mark.parametrize(
    ("window", "error", "words"),
    [
        (0, ValueError, "window must be at least 1: got 0"),
        (-2, ValueError, "window must be at least 1: got -2"),
        (1.5, TypeError, "window must be a whole number: got 1.5"),
        (4, ValueError, "window must be at most the 3 values: got 4"),
    ],
)
def test_windows_are_checked(window, error, words):
    with pytest.raises(error, match=words):
        rolling_mean([[1, 2, 3], [4, 5, 6]], window)


def recoveries(earned, persona, shocks, **options):
    """Times of an agent to recover from the first shock, the oracle earning 1 a visit."""
    earned, persona = np.atleast_2d(earned), np.atleast_2d(persona)
    # The agent asked about is not the first, and the first is never good.
    history = made([np.zeros(earned.shape), earned], 1, persona, shocks)
    return recovery_time(history, "b", next(iter(shocks)), **options).tolist()


CAT, BUDGET = 0, 1


def test_recovery_looks_at_the_visits_of_the_persona_since_the_shock():
    #          before the shock | since
    persona = [1, 1, 1, 1, 1, 0, 0, 1, 0, 0, 1, 1, 0, 1, 1, 0]
    earned_ = [1, 1, 1, 1, 1, 1, 1, 0, 1, 1, 1, 0, 1, 1, 1, 1]
    shocks = {5: SHOCK_1}
    # Visits of the budget shopper since the shock: steps 7, 10, 11, 13, 14.
    at = partial_recoveries(earned_, persona, shocks)
    assert at(visits=2, share=1.0) == [14 - 5 + 1]
    assert at(visits=2, share=0.5) == [10 - 5 + 1]
    assert at(visits=4, share=0.75) == [14 - 5 + 1]
    assert at(visits=4, share=0.5) == [13 - 5 + 1]
    assert at(visits=4, share=0.8) == [INF]
    assert at(visits=5, share=0.6) == [14 - 5 + 1]
    assert at(visits=6, share=0.0) == [INF]
    assert at(visits=1, share=1.0) == [10 - 5 + 1]


def partial_recoveries(earned, persona, shocks):
    def at(**options):
        return recoveries(earned, persona, shocks, **options)

    return at


def test_recovery_is_measured_against_the_oracle_of_the_moment():
    earned = [[[0.25, 0.25, 0.25, 0.25, 0.25]]]
    optimal = [[1, 1, 0.5, 0.5, 0.25]]
    persona = np.full((1, 5), BUDGET)
    history = made(earned, optimal, persona, {0: SHOCK_1})
    assert recovery_time(history, "a", 0, visits=2, share=0.5).tolist() == [4]
    assert recovery_time(history, "a", 0, visits=2, share=0.625).tolist() == [5]


def test_worlds_recover_each_on_their_own():
    persona = np.array([[1, 1, 1, 1, 1], [1, 0, 1, 1, 1], [1, 0, 0, 0, 1]])
    earned = np.array([[0, 1, 1, 1, 1], [1, 0, 0, 1, 1], [1, 1, 1, 1, 1]])
    at = partial_recoveries(earned, persona, {1: SHOCK_1})
    assert at(visits=2, share=1.0) == [2, 4, INF]


def test_the_next_shock_ends_the_time_to_recover():
    earned = np.r_[np.zeros(10), np.ones(10)]
    persona = np.full(20, BUDGET)
    options = {"visits": 3, "share": 0.9}
    for second, time in ((12, [INF]), (13, [8]), (14, [8])):
        shocks = {5: SHOCK_1, second: SHOCK_2}
        assert recoveries(earned, persona, shocks, **options) == time
    history = made([[earned]], 1, persona[None], {5: SHOCK_1, 12: SHOCK_1})
    assert recovery_time(history, "a", 12, **options).tolist() == [3]


@pytest.mark.parametrize(
    ("earned", "n_steps", "time"),
    [(0.902, 100, 50), (0.902, 49, INF), (0.898, 100, INF)],
)
def test_fifty_visits_at_nine_tenths_are_a_recovery(earned, n_steps, time):
    shocks = {0: SHOCK_1}
    assert recoveries(np.full(n_steps, earned), [BUDGET] * n_steps, shocks) == [time]


def test_who_ignores_a_shock_never_recovers_however_good_the_other_traffic():
    seeds = range(2)
    before_shock_2 = []
    for seed in seeds:
        world = ZooplusSimulator(seed=seed)
        world.apply_shock(SHOCK_1)
        before_shock_2.append(true_ctr_matrix(world))
    agents = {
        "ignores": StaticAgent(np.stack(before_shock_2)),
        "oracle": OracleAgent(50, n_worlds=2),
    }
    shocks = {0: SHOCK_1, 400: SHOCK_2}
    history = run_experiment(agents, seeds, 1500, shocks, progress=False)
    assert (share_of_oracle(history, "ignores", slice(400, None)) > 0.9).all()
    assert recovery_time(history, "ignores", 400).tolist() == [INF, INF]
    cat = history.personas.index("cat_connoisseur")
    for w, time in enumerate(recovery_time(history, "oracle", 400)):
        assert time == np.flatnonzero(history.persona[w, 400:] == cat)[49] + 1
    assert (recovery_time(history, "ignores", 0) < 400).all()


def test_recovery_is_from_a_shock_that_came(small):
    with pytest.raises(ValueError, match=r"shock_step must be one of \[1\]: got 2"):
        recovery_time(small, "a", 2)
