"""What Chapter 3 builds on its page: settings that she may try, and a race that a command plays, too."""

import json
from collections import deque

import numpy as np
import pytest
import torch

from tests.book.taught import cells
from tests.exercises import CHAPTERS
from tests.notebooks import ROOT
from zoolib import (
    Context,
    FeatureEngineer,
    MarketShock,
    NeuralUCBAgent,
    gauntlet,
    share_of_oracle,
)
from zoolib.__main__ import main

PAGE = (ROOT / "chapters/neural-bandits.md").read_text()


@pytest.fixture(scope="module")
def page():
    """What the page defines, and the little that its functions read."""
    wanted = ("world", "nine", "as_row", "pair_rows", "table", "FISH", "NAMES")
    return CHAPTERS["neural-bandits"].names(*wanted, "SHOCKS", "VISITS", "K")


@pytest.mark.parametrize(
    ("name", "settings", "named"),
    [
        ("NeuralUCB", {"alpha": -0.1}, "alpha.*-0.1"),
        ("NeuralUCB", {"ridge": 0}, "ridge.*0"),
        ("NeuralUCB", {"units": 0}, "units.*0"),
        ("FastNeuralUCB", {"n_features": 0}, "n_features.*0"),
        ("NeuralLinear", {"alpha": -0.1}, "alpha.*-0.1"),
        ("NeuralLinear", {"ridge": 0}, "ridge.*0"),
        ("SteadyNeuralLinear", {"d_emb": 0}, "d_emb.*0"),
        ("NeuralLinear", {"n_features": 0}, "n_features.*0"),
    ],
)
def test_its_agents_refuse_settings_in_words(page, name, settings, named):
    with pytest.raises(ValueError, match=named):
        page[name](**{"n_features": 9} | settings)


def test_a_run_has_a_visit_or_more(page):
    with pytest.raises(ValueError, match="n_visits must be 1 or more: got 0"):
        page["draw_visits"](0)


def test_a_shock_to_an_unknown_category_is_refused_in_words(page):
    shock = MarketShock("cat_connoisseur", {"Hamster Wheel": 0.9})
    with pytest.raises(ValueError, match=r"category.*Hamster Wheel"):
        page["shop"]().apply_shock(shock)


def test_a_long_run_says_on_the_page_how_long_it_will_take(page, bars_of, capsys):
    bars_of(page)
    agent = page["NeuralLinear"](9)
    page["play"](agent, page["shop"](), page["draw_visits"](120))
    assert "120/120" in capsys.readouterr().out


def test_the_fast_form_scores_as_the_literal_one(page):
    """After 120 visits, two of them with a training."""
    both = [page["NeuralUCB"](9), page["FastNeuralUCB"](9)]
    for i, (user, luck) in enumerate(page["draw_visits"](120)):
        context, arm = Context(user, page["nine"].transform(user)), 7 * i % 50
        for agent in both:
            agent.update(context, arm, int(luck < page["world"].true_ctr(user, arm)))
    literal, fast = (agent.scores(context) for agent in both)
    assert np.allclose(literal, fast, atol=1e-3)


@pytest.mark.parametrize("deaf", [False, True])
def test_the_comparison_of_scores_hears_clicks(page, deaf):
    """An agent that takes every click for none is not the library's."""

    class Deaf(page["NeuralUCB"]):
        def update(self, context, arm, reward):
            super().update(context, arm, 0 if deaf else reward)

    ours, theirs = Deaf(9), NeuralUCBAgent(50, 9, alpha=1.0, n_batches=2)
    page["hand_over"](ours.net, theirs.network.layers)
    assert page["same_scores"](ours, theirs, 120) is not deaf


def test_neural_ucb_studies_at_every_fiftieth_visit_when_its_memory_is_full(
    page, monkeypatch
):
    studied = []
    study = page["NeuralUCB"].update.__globals__
    monkeypatch.setitem(study, "study", lambda *_: studied.append(agent.visits))
    agent = page["NeuralUCB"](3, units=2)
    agent.rows, agent.clicks = deque(maxlen=100), deque(maxlen=100)
    for _ in range(220):
        agent.update(Context(0, np.eye(3)), 0, 1.0)
    assert len(agent.rows) == 100
    assert studied == [100, 150, 200]


def test_statistics_are_rebuilt_as_they_are_learnt_row_by_row(page):
    """As long as the body stands still, a rebuild changes nothing but the ridge that has faded."""
    agent = page["SteadyNeuralLinear"](9, alpha=0.7)
    agent.gamma = 0.9
    page["play"](agent, page["shop"](), page["draw_visits"](60))
    A, b = agent.A.copy(), agent.b.copy()
    agent.rebuild()
    assert np.allclose(A + (1 - 0.9**60) * agent.prior, agent.A, atol=1e-5)
    assert np.allclose(b, agent.b, atol=1e-5)


def test_the_same_seed_makes_the_same_network_and_leaves_other_draws_alone(page):
    before = torch.random.get_rng_state()
    one, other = (page["network"](9, 4, 1, seed=3) for _ in range(2))
    assert torch.equal(one[0].weight, other[0].weight)
    assert torch.equal(before, torch.random.get_rng_state())


def test_its_pairs_are_those_of_the_library(page):
    library = FeatureEngineer(page["world"], interactions=True)
    assert np.array_equal(
        page["pair_up"](page["nine"].transform(78)), library.transform(78)
    )


def test_page_and_command_agree_on_the_challenge(page, tmp_path, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")
    assert page["SHOCKS"] == gauntlet.SHOCKS
    makes = ("agents = {name: gauntlet.make_agent(", "race = run_experiment(agents")
    agents, race = (one for one in cells(PAGE) if any(m in one.code for m in makes))
    names = page | {"VISITS": 2_000, "SEED": 42}
    exec(agents.code, names)
    exec(race.code, names)
    path, few = tmp_path / "result.json", ["--worlds", "1", "--first-seed", "42"]
    options = [*few, "--steps", "2000", "--json", str(path)]
    assert main(["gauntlet", "--agents", *page["NAMES"], *options]) == 0
    said = json.loads(path.read_text())["agents"]
    assert list(said) == page["NAMES"]
    for name, figures in said.items():
        (share,) = share_of_oracle(names["race"], name)
        assert figures["share_of_oracle"]["mean"] == pytest.approx(100 * share)


def test_the_command_that_the_page_prints_is_that_of_its_agents(page):
    assert f"python -m zoolib gauntlet --agents {' '.join(page['NAMES'])}" in PAGE
