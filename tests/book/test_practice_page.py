"""What Chapter 4 builds in front of the reader: settings that she may try, and what its agents promise."""

import numpy as np
import pytest

from tests.exercises import CELL, CHAPTERS
from zoolib import LinTSAgent, ZooplusSimulator


@pytest.fixture(scope="module")
def page():
    """What the page defines, and the little that its functions read."""
    wanted = ("READER", "LABEL", "labels", "stories", "kinds", "phone_at_two")
    chapter = CHAPTERS["practice"]
    names = chapter.names(*wanted)
    (taste,) = (cell for cell in CELL.findall(chapter.text) if "taste.loc[" in cell)
    exec(taste, names)  # `names` runs single assignments, and a table is filled in
    return names


@pytest.mark.parametrize(
    ("agent", "settings", "named"),
    [
        ("SharedLinUCB", {"alpha": -0.1}, "alpha.*-0.1"),
        ("SharedLinUCB", {"ridge": 0}, "ridge.*0"),
        ("SharedLinUCB", {"n_features": 0}, "n_features.*0"),
        ("LinTS", {"alpha": -0.1}, "alpha.*-0.1"),
        ("LinTS", {"n_arms": 0}, "n_arms.*0"),
        ("LinTS", {"ridge": 0}, "ridge.*0"),
        ("Floor", {"floor": 1.5}, "floor.*1.5"),
        ("Floor", {"floor": -0.1}, "floor.*-0.1"),
        ("Floor", {"arms": np.zeros(2, bool)}, "arms.*got none"),
        ("Cap", {"cap": 0.4}, "cap must be from 0.5 to 1: got 0.4"),
        ("Cap", {"cap": 1.5}, "cap.*1.5"),
    ],
)
def test_its_agents_refuse_settings_in_words(page, agent, settings, named):
    needs = {
        "SharedLinUCB": {"join": page["pairs"], "n_features": 16},
        "LinTS": {"join": page["side_by_side"], "n_arms": 50, "n_features": 9},
        "Floor": {"agent": LinTSAgent(2, 3), "floor": 0.1, "arms": np.ones(2)},
        "Cap": {"agent": LinTSAgent(2, 3), "cap": 0.5, "group": [0, 1]},
    }
    with pytest.raises(ValueError, match=named):
        page[agent](**needs[agent] | settings)


def test_a_shelf_has_a_story(page):
    agent = page["SharedLinUCB"](page["pairs"], 16)
    with pytest.raises(ValueError, match="one arm or more: got none"):
        agent.select(page["phone_at_two"], np.zeros((0, 4)))


def test_a_run_has_a_visit_or_more(page):
    with pytest.raises(ValueError, match="n_visits must be 1 or more: got 0"):
        page["draw_readers"](0)


def test_shops_learn_for_a_visit_or_more(page):
    k, n = np.zeros((2, 3, 4))
    with pytest.raises(ValueError, match="visits must be 1 or more: got 0"):
        page["learn"](k, n, np.full((3, 4), 0.5), visits=0)


def test_a_shop_has_products():
    with pytest.raises(ValueError, match="n_products"):
        ZooplusSimulator(n_products=0)


def test_a_long_run_says_on_the_page_how_long_it_will_take(page, bars_of, capsys):
    bars_of(page)
    agent = page["SharedLinUCB"](page["pairs"], 16)
    page["serve"](agent, *page["draw_readers"](300))
    assert "300/300" in capsys.readouterr().out


def separate(page, kind, **settings):
    """One of the page's agents with a model for each story."""
    return page[kind](page["side_by_side"], 3, 8, **settings)


def test_draws_do_not_change_what_is_learnt(page):
    """Agents that draw narrowly and widely learn the same from the same visits."""
    narrow, wide = (separate(page, "LinTS", alpha=alpha) for alpha in (0, 2))
    for visit, u in enumerate(page["draw_readers"](40)[0]):
        arm = wide.select(u, page["labels"])
        for agent in (narrow, wide):
            agent.update(u, page["labels"], arm, visit % 2)
    assert np.array_equal(narrow.A_inv, wide.A_inv)
    assert np.array_equal(narrow.b, wide.b)


def test_a_nightly_linucb_repeats_itself_unless_it_counts_at_once(page):
    visit = page["phone_at_two"], page["labels"]
    shown = {}
    for kind in ("LinUCB", "CountsAtOnce"):
        agent = separate(page, kind, alpha=0.5)
        agent.update(*visit, 1, 1)
        nightly = page["Nightly"](agent)
        shown[kind] = set()
        for _ in range(60):
            arm = nightly.select(*visit)
            nightly.update(*visit, arm, 0)
            shown[kind].add(arm)
    assert len(shown["LinUCB"]) == 1
    assert shown["CountsAtOnce"] == {0, 1, 2}


def test_told_of_all_at_once_counting_at_once_changes_nothing(page):
    visit = page["phone_at_two"], page["labels"]
    plain, counts = (separate(page, k, alpha=0.5) for k in ("LinUCB", "CountsAtOnce"))
    for clicked in (1, 0, 0, 1, 0):
        arm = counts.select(*visit)
        counts.look(*visit, arm)
        for agent in (plain, counts):
            agent.update(*visit, arm, clicked)
        assert np.allclose(plain.scores(*visit), counts.scores(*visit), atol=1e-8)


def test_a_floor_gives_to_its_arms_and_keeps_what_is_to_be_logged(page):
    agent = page["MondaysAgent"](page["pairs"], 16, alpha=0.5)
    visit = page["phone_at_two"], page["labels"]
    floor = page["Floor"](agent, 0.3, np.array([False, False, True]))
    own, under_floor = agent.propensities(*visit), floor.propensities(*visit)
    assert np.allclose(under_floor, 0.7 * own + [0, 0, 0.3])
    arms = np.array([floor.select(*visit) for _ in range(4_000)])
    assert floor.propensity == under_floor[arms[-1]]
    shares = np.bincount(arms, minlength=3) / len(arms)
    assert np.allclose(shares, under_floor, atol=0.03)


def test_a_cap_lets_a_group_wait_for_those_who_have_had_it(page):
    shelf, group = page["labels"], np.array([0, 1, 1])
    cap = page["Cap"](page["SharedLinUCB"](page["pairs"], 16), 0.5, group)
    for _ in range(40):
        for u in page["kinds"].values():
            propensities = cap.propensities(u, shelf)
            assert np.isclose(propensities.sum(), 1)
            arm = int(propensities.argmax())
            cap.update(u, shelf, arm, int(arm == 0))
    for u in page["kinds"].values():
        assert np.array_equal(cap.had[tuple(u)], [20, 20])


def test_mondays_agent_learns_its_file_at_night(page):
    """With nothing forgotten, a night leaves what as many updates leave."""
    nightly = page["MondaysAgent"](page["pairs"], 16, keep=1)
    at_once = page["SharedLinUCB"](page["pairs"], 16)
    visit, arms = (page["phone_at_two"], page["labels"]), np.array([0, 1, 2, 1])
    for arm in arms:
        nightly.update(*visit, arm, arm % 2)
        at_once.update(*visit, arm, arm % 2)
    assert not nightly.b.any()  # what the day brings waits for the night
    nightly.night()
    assert np.allclose(np.linalg.inv(nightly.A), at_once.A_inv)
    assert np.array_equal(nightly.b, at_once.b)
    assert nightly.file == []


def test_mondays_agent_serves_by_its_propensities(page):
    agent = page["MondaysAgent"](page["pairs"], 16, alpha=0.5)
    visit = page["phone_at_two"], page["labels"]
    arms = [agent.select(*visit) for _ in range(4_000)]
    shares = np.bincount(arms, minlength=3) / len(arms)
    assert np.allclose(shares, agent.propensities(*visit), atol=0.03)


@pytest.mark.parametrize("kind", ["SharedLinUCB", "LinTS", "LinUCB", "MondaysAgent"])
def test_who_waits_under_a_cap_is_not_shown(page, kind):
    shape = (3, 16) if kind.startswith("Lin") else (16,)
    agent = page[kind](page["pairs"], *shape)
    visit = page["phone_at_two"], page["labels"]
    propensities = agent.propensities(*visit, np.array([True, False, True]))
    assert propensities[1] == 0
    assert np.isclose(propensities.sum(), 1)


def test_a_floor_over_what_waits_for_its_file_asks_it_for_its_propensities(page):
    nightly = page["Nightly"](page["SharedLinUCB"](page["pairs"], 16))
    floor = page["Floor"](nightly, 0.3, np.array([False, False, True]))
    visit = page["phone_at_two"], page["labels"]
    assert np.isclose(floor.propensities(*visit).sum(), 1)
    floor.update(*visit, floor.select(*visit), 1)
    assert len(nightly.file) == 1


def test_a_floor_over_what_counts_at_once_counts_its_looks(page):
    counts = separate(page, "CountsAtOnce", alpha=0.5)
    floor = page["Floor"](page["Nightly"](counts), 0.3, np.ones(3))
    visit = page["phone_at_two"], page["labels"]
    for _ in range(5):
        floor.update(*visit, floor.select(*visit), 0)
    looks = [np.trace(np.linalg.inv(one) - np.eye(8)) for one in counts.looks.A_inv]
    assert sum(looks) == pytest.approx(5 * 4)  # a row holds four ones


def test_equal_arms_share_mondays_visits(page):
    agent = page["MondaysAgent"](page["pairs"], 16)
    twins = page["labels"][[0, 1, 1]]
    propensities = agent.propensities(page["phone_at_two"], twins)
    assert propensities[1] == pytest.approx(propensities[2])
    assert propensities[1] > 0


def test_the_pooled_mean_is_what_one_model_would_have_learnt(page):
    rng = np.random.default_rng(0)
    many, one = (page["LinUCB"](page["pairs"], arms, 16) for arms in (4, 1))
    labels = np.tile(page["labels"][:1], (4, 1))
    for arm in rng.integers(4, size=50):
        u, clicked = rng.normal(size=4), int(rng.random() < 0.5)
        many.update(u, labels, arm, clicked)
        if arm > 1:
            one.update(u, labels, 0, clicked)
    pooled = page["pooled_mean"](many, np.array([False, False, True, True]))
    assert np.allclose(pooled, one.A_inv[0] @ one.b[0])
