"""What Chapter 2 builds in front of the reader: settings that she may try, and the bar of a long run."""

import numpy as np
import pytest

from tests.book.taught import cells
from tests.notebooks import ROOT
from zoolib import MarketShock, ZooplusSimulator


@pytest.fixture(scope="module")
def page():
    """The names that the page has defined once its loop stands."""
    known = {}
    for cell in cells((ROOT / "chapters/linucb.md").read_text()):
        if cell.kind in ("set-up", "open") and not cell.aside:
            exec(compile(cell.code, "linucb.md", "exec"), known)
        if "def play(" in cell.code:
            return known
    raise AssertionError("the page has no loop")


@pytest.mark.parametrize(
    ("settings", "named"),
    [
        ({"alpha": -0.1}, "alpha.*-0.1"),
        ({"n_arms": 0}, "n_arms.*0"),
        ({"ridge": 0}, "ridge.*0"),
    ],
)
def test_its_agent_refuses_settings_in_words(page, settings, named):
    with pytest.raises(ValueError, match=named):
        page["LinUCB"](**{"n_arms": 50, "n_features": 9, "alpha": 1} | settings)


def test_a_run_has_a_visit_or_more(page):
    with pytest.raises(ValueError, match="n_visits must be 1 or more: got 0"):
        page["draw_visits"](0)


def test_a_shop_has_products():
    with pytest.raises(ValueError, match="n_products"):
        ZooplusSimulator(n_products=0)


def test_a_shock_to_an_unknown_category_is_refused_in_words(page):
    shock = MarketShock("cat_connoisseur", {"Hamster Wheel": 0.9})
    with pytest.raises(ValueError, match=r"category.*Hamster Wheel"):
        page["shop"]().apply_shock(shock)


def test_a_long_run_says_on_the_page_how_long_it_will_take(page, bars_of, capsys):
    bars_of(page)
    agent = page["LinUCB"](page["K"], page["d"], alpha=1)
    page["play"](agent, page["shop"](), page["draw_visits"](300))
    assert "300/300" in capsys.readouterr().out


def test_scores_do_not_change_what_is_learnt(page, teach_alike):
    """`update` looks at no score: agents that hope differently learn the same from the same visits."""
    timid, bold = (page["LinUCB"](50, 9, alpha=alpha) for alpha in (0, 2))
    teach_alike(page, page["features"], timid, bold)
    assert np.array_equal(timid.A, bold.A)
    assert np.array_equal(timid.b, bold.b)
