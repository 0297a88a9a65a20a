"""What Chapter 7 builds in front of the reader: settings that she may try, and the bar of a long run."""

import numpy as np
import pytest

from tests.exercises import CHAPTERS
from zoolib import SessionSimulator, ZooplusSimulator
from zoolib.sessions.shop import COMPANIONS


@pytest.fixture(scope="module")
def page():
    """What the page defines, with the first lines of its session by hand."""
    given = {
        "likes": {"Dog Food": 0.4, "Dog Toy": 0.5},
        "goes_with": {"Dog Food": "Dog Toy", "Dog Toy": "Dog Food"},
    }
    return CHAPTERS["sessions"].names(**given)


def network(page, **given):
    return page["DQN"](page["see_state"], 14, **given)


@pytest.mark.parametrize(
    "given", [{"K": 0}, {"batch": 0}, {"beta": 1.5}, {"copy_every": 0}]
)
def test_its_network_refuses_settings_in_words(page, given):
    with pytest.raises(ValueError, match="DQN needs sizes of 1 or more"):
        network(page, **given)


def test_who_clicks_bait_only_loses_patience(page):
    """A glossy session has four steps, and a plain one four misses."""
    for seed in range(20):
        luck = np.random.default_rng(seed).random(1_000)
        assert len(page["session"](True, luck)) == 4
        assert (page["session"](False, luck)["click?"] == "").sum() == 4


def test_sweeps_end_at_the_solution(page):
    process = SessionSimulator(seed=3).process()
    found = page["solve"](process.transition, process.reward, sweeps=200)
    np.testing.assert_allclose(found, process.optimal_q(), atol=1e-9)


def test_targets_of_an_ended_session_are_its_reward(page):
    agent = network(page)
    seen, ended = np.array([[0, 2, 4], [1, 0, 1]]), np.array([False, True])
    z = page["targets"](agent, np.array([1, 1]), seen, ended).numpy()
    ahead = agent.q(seen, agent.old).max(dim=1).values.detach().numpy()
    np.testing.assert_allclose(z, [1 + ahead[0], 1])


def test_one_network_names_the_product_and_the_other_values_it(page):
    agent = network(page, double=True)
    agent.old = network(page, seed=1).net
    seen = np.array([[0, 2, 4], [1, 0, 1]])
    z = page["targets"](agent, np.zeros(2), seen, np.array([False, False])).numpy()
    named = agent.q(seen).argmax(dim=1, keepdim=True)
    valued = agent.q(seen, agent.old).gather(1, named)[:, 0].detach().numpy()
    np.testing.assert_allclose(z, valued)
    assert (z < agent.q(seen, agent.old).max(dim=1).values.detach().numpy()).any()


def test_the_copy_is_renewed_and_the_oldest_note_is_overwritten(page):
    agent = network(page, room=500, copy_every=2)
    seen, one = np.tile([0, 2, 4], (8, 1)), np.ones(8, int)
    for _ in range(64):
        agent.update(seen, one, one, seen, one == 0)
    assert len(agent.notes) == 500
    assert agent.n_trained == 2
    pairs = zip(agent.net.parameters(), agent.old.parameters(), strict=True)
    assert all((new == old).all() for new, old in pairs)


def test_an_agent_serves_from_its_shelf_only(page):
    shelf = np.array([7, 8, 0, 1, 2])
    eyes = page["see_items"]
    network = page["DQN"](eyes, 64, K=5)
    agent, clicks = page["learn"](page["Shelf"](network, shelf), n=20, hidden=True)
    assert 0 < clicks < 10
    shown = {
        int(after[1]) - 1
        for _, _, _, after, ended in network.notes.values()
        if not ended
    }
    assert shown <= set(shelf)
    assert {int(a) for _, a, *_ in network.notes.values()} <= set(range(5))
    assert 0 < page["judge"](agent, n=50, hidden=True) < 100


def test_keepers_are_those_whose_clicks_are_followed_by_clicks(page):
    category = np.repeat(np.arange(5), 2)
    product = np.tile(np.arange(10), (40, 1))
    clicked = np.ones((40, 10), int)
    kept = page["keepers"](product, clicked, category)
    assert list(kept) == [0, 2, 4, 6, 8]  # what comes first is followed by more


def test_a_lead_is_the_keepers_mean_minus_that_of_all_others(page):
    """Of three equal products of a category none leads, in the mean over logs."""
    rng = np.random.default_rng(0)
    category = np.repeat(np.arange(5), 3)
    leads = []
    for _ in range(200):
        product = rng.integers(15, size=(400, 6))
        clicked = rng.integers(2, size=(400, 6))
        leads.append(page["believable"](product, clicked, category)[1])
    assert abs(np.mean(leads)) < 4 / np.sqrt(200)
    assert 0.8 < np.std(leads) < 1.2


def test_what_a_log_of_the_plan_itself_says_is_its_mean(page):
    shop = SessionSimulator(seed=0)
    by_chance = np.full((80, 10), 0.1)
    state, product, clicked = shop.play(by_chance, 20_000, 1)
    found = page["fitted_q"](state, product, clicked, by_chance, 5)
    assert abs(found - shop.process().value(by_chance, horizon=5)) < 0.02


def test_rows_of_the_definition_are_the_libraries(page):
    shop = SessionSimulator(seed=0)
    pets = ZooplusSimulator(n_products=10, seed=0)
    page |= {"shop": shop, "T": pets.click_table, "CATEGORIES": list(pets.categories)}
    page["companion"] = dict(COMPANIONS)
    process = shop.process()
    for (g, y, m), s in zip(np.ndindex(4, 5, 4), range(80), strict=True):
        for a in range(10):
            click, row = page["row_of_P"](g, y, m + 1, a)
            np.testing.assert_allclose(click, process.reward[s, a])
            np.testing.assert_allclose(row, process.transition[s, a], atol=1e-12)
