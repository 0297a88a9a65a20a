"""What Chapter 5 builds in front of the reader: settings that she may try, and the bar of a long run."""

import copy

import numpy as np
import pytest
import torch
from torch import nn

from tests.exercises import CHAPTERS
from zoolib import Context, FeatureEngineer, NeuralLinearAgent, ZooplusSimulator

FEW = np.random.default_rng(0).normal(size=(60, 32)).astype(np.float32)


@pytest.fixture(scope="module")
def page():
    """What the page defines."""
    return CHAPTERS["large"].names()


@pytest.mark.parametrize(
    ("built", "given", "named"),
    [
        ("Shelves", {"n_shelves": 61}, "m, n_shelves|61"),
        ("Shelves", {"n_shelves": 10, "m": 11}, "11"),
        ("Shelves", {"n_shelves": 10, "m": 0}, "0"),
        ("Funnel", {"index": None, "fill": "chance"}, "chance"),
        ("Funnel", {"index": None, "alpha": -0.1}, "-0.1"),
        ("Funnel", {"index": None, "nu": -0.2}, "-0.2"),
        ("Funnel", {"index": None, "n": 1}, "n of 2 or more"),
        ("Funnel", {"index": None, "other": 500}, "other from 1 to n - 1"),
    ],
)
def test_what_it_builds_refuses_settings_in_words(page, built, given, named):
    with pytest.raises(ValueError, match=named):
        page[built](FEW, **given)


@pytest.mark.parametrize("given", [{"d": 0}, {"d": 9, "nu": -1}, {"d": 9, "every": 0}])
def test_its_network_refuses_settings_in_words(page, given):
    with pytest.raises(ValueError, match="TwoSpeeds needs sizes of 1 or more"):
        page["TwoSpeeds"](**given)


def test_a_run_has_a_visit_or_more(page):
    with pytest.raises(ValueError, match="n_visits must be 1 or more: got 0"):
        page["draw_visitors"](0)


def test_all_shelves_find_what_a_search_of_all_products_finds(page):
    shelves = page["Shelves"](FEW, n_shelves=8, m=8)
    assert set(shelves.search(FEW[3], 5)) == set(page["search_all"](FEW, FEW[3], 5))
    assert sorted(shelves.ids) == list(range(60))


def test_newcomers_are_found_wherever_they_are_filed(page):
    index = page["Shelves"](FEW, n_shelves=30, m=1)
    found = page["WithNewcomers"](index, FEW, [7]).search(10 * FEW[7], 1)
    assert list(found) == [7]


@pytest.mark.parametrize("fill", ["mean", "draw", "random"])
def test_a_long_run_says_on_the_page_how_long_it_will_take(page, bars_of, capsys, fill):
    bars_of(page)
    visitors, noise = page["draw_visitors"](300)
    agent = page["Funnel"](FEW, page["Shelves"](FEW, n_shelves=8, m=8), fill, n=10)
    shop = page["Shop"](FEW, np.ones(32), np.array([0, 1]))
    shown, *_ = page["serve"](agent, shop, visitors, noise)
    assert shown.shape == (300,)
    assert "300/300" in capsys.readouterr().out


def test_a_list_has_as_many_places_by_the_mean_as_it_is_told(page):
    index = page["Shelves"](FEW, n_shelves=8, m=8)
    agent = page["Funnel"](FEW, index, "random", n=10, other=1)
    listed = agent.shortlist(FEW[3], np.ones(32), np.eye(32))
    assert set(page["search_all"](FEW, FEW[3], 9)) <= set(listed)
    assert len(listed) in (9, 10)


def test_joined_towers_add_what_the_features_say_to_what_they_say(page):
    visitor, product = nn.Linear(32, 4), nn.Linear(32, 4)
    towers = nn.ModuleList(map(page["Join"], (visitor, product)))
    log = page["Log"](FEW[:20], np.arange(20), np.ones(20))
    version = page["version_of"](towers, log, np.tile(FEW, (20, 1)))
    said = [page["outputs"](of, FEW[:20]) for of in (visitor, product)]
    rows = np.concatenate([said[0] * said[1], FEW[:20] ** 2], axis=1)
    assert version.b == pytest.approx(rows.sum(axis=0), abs=1e-4)
    assert pytest.approx(np.eye(36) + rows.T @ rows, abs=1e-3) == version.A


@pytest.mark.parametrize("n_visits", [1, 7, 45])
def test_any_number_of_visitors_has_best_rewards(page, n_visits):
    visitors, _ = page["draw_visitors"](n_visits)
    shop = page["Shop"](FEW, np.ones(32), np.array([0, 1]))
    best = page["best_rewards"](shop, visitors)
    assert best == pytest.approx((visitors @ FEW.T).max(axis=1), rel=1e-5)


def test_toys_that_glow_leave_the_catalogue_as_it_was(page):
    before = FEW.copy()
    shop = page["with_glow"](FEW, np.ones(32), 2, rest=1)
    assert (before == FEW).all()
    others = shop.E[shop.glows, :-1]
    assert (others == FEW[shop.glows, :-1]).all()


def test_places_are_reserved_for_newcomers_whatever_the_search_says(page):
    index = page["Shelves"](FEW, n_shelves=8, m=8)
    found = page["Reserved"](index, [7, 8]).search(-FEW[7], 10)
    assert {7, 8} <= set(found)
    assert len(found) <= 10


def test_more_newcomers_than_places_are_refused_in_words(page):
    index = page["Shelves"](FEW, n_shelves=8, m=8)
    with pytest.raises(ValueError, match="2 places are too few for 2 newcomers"):
        page["Reserved"](index, [7, 8]).search(FEW[7], 2)


def test_fewer_products_than_places_are_all_found(page):
    index = page["Shelves"](FEW, n_shelves=30, m=1)
    found = page["WithNewcomers"](index, FEW, [7]).search(FEW[7], 60)
    assert 7 in found
    assert len(found) < 60


def test_its_network_predicts_what_the_library_s_predicts(page):
    """Hand our weights over, let both see the same visits, with two trainings among them."""
    pets = ZooplusSimulator(n_products=50, seed=42)
    rows = FeatureEngineer(pets).transform(np.arange(1_000))
    ours = page["TwoSpeeds"](9, every=100, n_batches=8)
    theirs = NeuralLinearAgent(
        50,
        9,
        alpha=0.35,
        policy="thompson",
        joined=True,
        rebuild=True,
        window=3_000,
        train_every=100,
        n_batches=8,
    )
    hand_over(ours.body, theirs.network.body.layers)
    hand_over(ours.net[1:], theirs.network.head.layers)
    batches = copy.deepcopy(ours.rng)
    theirs.memory.draw = lambda n: batches.integers(len(theirs.memory), size=n)
    for user, arm, luck in np.random.default_rng(0).random((250, 3)):
        user, arm = int(1_000 * user), int(50 * arm)
        reward = int(luck < pets.true_ctr(user, arm))
        ours.update(rows[user, arm], reward)
        theirs.update(Context(user, rows[user]), arm, reward)
    z = ours.embed(rows[78])
    mean, width = theirs.predict_with_width(rows[78].astype(np.float32))
    assert z @ np.linalg.solve(ours.A, ours.b) == pytest.approx(mean, abs=1e-3)
    ours_wide = np.sqrt(np.vecdot(z, np.linalg.solve(ours.A, z.T).T))
    assert ours_wide == pytest.approx(width, abs=1e-3)


def hand_over(net, layers):
    """Give the library's weights ours."""
    linear = [part for part in net.modules() if isinstance(part, nn.Linear)]
    with torch.no_grad():
        for part, (weight, bias) in zip(linear, layers, strict=True):
            weight.copy_(part.weight.T)
            bias.copy_(part.bias[None])
