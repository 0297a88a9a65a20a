"""What Chapter 6 builds in front of the reader: a loop that keeps what it says, and settings to try."""

import sqlite3

import numpy as np
import pytest

from tests.exercises import CHAPTERS
from zoolib import mean_interval

PERSONAS = np.arange(1000) % 4


@pytest.fixture(scope="module")
def page():
    """What the page defines, with four kinds of visitors for the names that functions read."""
    names = CHAPTERS["production"].names("TABLES", "REPLAY")
    return names | {"persona": PERSONAS, "likes": np.full((4, 5), 0.4)}


def look_up(user):
    return np.eye(5) * (1 + user % 2)


@pytest.fixture
def loop(page, tmp_path):
    def opened(agent=None, floor=0.1, **options):
        agent = agent or page["Thompson"](5)
        return page["LogThenShow"](
            tmp_path / "shop.db", look_up, agent, floor, **options
        )

    return opened


def test_an_agent_comes_back_without_the_rows_of_another_version(loop):
    desk = loop()
    trial = loop(name="v2")
    for user in range(30):
        for side in (desk, trial):
            event, arm = side.select(user)
            side.reward(event, int(arm == 2))
    assert np.array_equal(loop(without=["v2"]).agent.A, desk.agent.A)
    assert not np.array_equal(loop().agent.A, desk.agent.A)


def test_an_agent_comes_back_as_its_log(loop):
    desk = loop()
    for user in range(30):
        event, arm = desk.select(user)
        desk.reward(event, int(arm == 2))
    risen = loop()
    assert np.array_equal(risen.agent.A, desk.agent.A)
    assert np.array_equal(risen.agent.b, desk.agent.b)


def test_a_reward_counts_once_and_for_events_that_were(loop):
    desk = loop()
    event, _ = desk.select(3)
    desk.reward(event, 1)
    before = desk.agent.A.copy()
    for known in (event, 77):
        with pytest.raises(sqlite3.IntegrityError):
            desk.reward(known, 1)
    assert np.array_equal(desk.agent.A, before)


@pytest.mark.parametrize("part", ["A", "b"])
def test_a_fallback_answers_and_is_logged(loop, page, part):
    agent = page["Thompson"](5)
    getattr(agent, part).flat[0] = np.nan
    desk = loop(agent, floor=0.5)
    desk.select(1)
    row = desk.db.execute("select propensity, chosen_by from decisions").fetchone()
    assert row == (pytest.approx(0.2), "fallback")


@pytest.mark.parametrize(
    ("seen", "by"),
    [
        (np.eye(5, dtype=np.float32), "v1"),
        (np.ones((5, 4)), "fallback"),
        (np.full((5, 5), np.nan), "fallback"),
    ],
)
def test_features_of_any_kind_leave_a_log_that_opens(loop, seen, by):
    desk = loop()
    desk.look_up = lambda user: seen
    event, _ = desk.select(1)
    desk.reward(event, 1)
    (chosen_by,) = desk.db.execute("select chosen_by from decisions").fetchone()
    assert chosen_by == by
    assert np.isfinite(desk.agent.A).all()
    assert np.array_equal(loop().agent.A, desk.agent.A)


@pytest.mark.parametrize(
    "own", [[0.5, 0.5], [np.nan] * 5, [1.2, -0.2, 0, 0, 0], [0.3] * 5]
)
def test_what_is_no_probability_leaves_the_choice_to_the_fallback(loop, page, own):
    agent = page["Thompson"](5)
    agent.propensities = lambda x, rng: own
    desk = loop(agent, floor=0.5)
    desk.select(1)
    row = desk.db.execute("select propensity, chosen_by from decisions").fetchone()
    assert row == (pytest.approx(0.2), "fallback")


def test_a_user_keeps_her_side_and_each_version_has_its_own(page):
    places = {
        version: np.array([page["bucket"](user, version) for user in range(2_000)])
        for version in ("v2", "v3")
    }
    assert page["bucket"](78, "v2") == places["v2"][78]
    for place in places.values():
        assert np.mean(place < 20) == pytest.approx(0.2, abs=0.03)
    both = np.mean((places["v2"] < 20) & (places["v3"] < 20))
    assert both == pytest.approx(0.04, abs=0.02)


@pytest.mark.parametrize("floor", [0, -0.1, 1.5])
def test_a_floor_is_refused_in_words(loop, floor):
    with pytest.raises(ValueError, match=f"at most 1: got {floor}"):
        loop(floor=floor)


@pytest.mark.parametrize("bet", [0, 1, -0.2])
def test_a_bet_is_refused_in_words(page, bet):
    with pytest.raises(ValueError, match=f"between 0 and 1: got {bet}"):
        page["money"](np.ones(2), np.zeros(2), bet)


def test_a_day_has_a_visit_or_more(page):
    with pytest.raises(ValueError, match="n_visits must be 1 or more: got 0"):
        page["serve"](None, 0, seed=0)


def test_nothing_is_won_where_both_click_or_neither(page):
    money = page["money"](np.array([1, 0, 1, 0]), np.array([1, 0, 0, 1]))
    assert money == pytest.approx([1, 1, 1.1, 0.99])


def test_terms_have_the_estimates_as_their_means(page):
    rng = np.random.default_rng(0)
    rho, r = rng.exponential(size=50), rng.integers(2, size=50)
    terms = page["snips"](rho, r)
    assert mean_interval(terms).mean == pytest.approx((rho * r).sum() / rho.sum())
    assert page["dr"](rho, r, 0, 0) == pytest.approx(page["ips"](rho, r))


def test_a_monitor_is_quiet_while_nothing_changes(page):
    cell = np.tile(np.arange(20), 100)
    clicked = np.tile(np.repeat([0, 1], 20), 50)
    quiet = page["drift"](cell, clicked, window=200, reference=5)
    assert list(quiet["end"]) == [1200, 1400, 1600, 1800, 2000]
    assert not quiet["rings"].any()
    clicked[1_400:] = cell[1_400:] == 7
    loud = page["drift"](cell, clicked, window=200, reference=5, rate=5)
    assert loud["rings"].tolist() == [False, False, True, True, True]
