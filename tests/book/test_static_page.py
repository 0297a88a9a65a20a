"""What Chapter 1 builds in front of the reader, with settings that she may try and beside the library."""

import numpy as np
import pytest
import torch

from tests.book.taught import cells
from tests.notebooks import ROOT
from zoolib import SHOCK_1, MLPRecommender, ZooplusSimulator, true_ctr_matrix

# How the cells begin that make what is tried here: the shop, the log, the network and its training.
MADE = ("K = 50", "categories =", "def must_be_known", "class Shop")
MADE += ("shop = Shop(", "everyone =")
MADE += ("class Recommender", "torch.manual_seed(0)", "found = torch")
MADE += ("def batches", "def train_epoch", "@torch.no_grad()\ndef loss_on")
MADE += ("FIRST =", "def log_of")


@pytest.fixture(scope="module")
def page():
    """The names that these cells of the page define."""
    known, found = {}, set()
    for cell in cells((ROOT / "chapters/static-recommender.md").read_text()):
        begins = [words for words in MADE if cell.code.strip().startswith(words)]
        if not cell.aside and (begins or cell.kind == "set-up"):
            exec(compile(cell.code, "static-recommender.md", "exec"), known)
            found.update(begins)
    assert found == set(MADE)
    return known


def few(page):
    return [column[:2_000] for column in page["data"]]


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"n_products": 0}, "n_products.*0"), ({"n_products": 7}, "n_products.*7"),
     ({"n_users": 0}, "n_users.*0")],
)  # fmt: skip
def test_its_shop_refuses_settings_in_words(page, settings, named):
    with pytest.raises(ValueError, match=named):
        page["Shop"](**settings)


@pytest.mark.parametrize(
    ("user", "product", "named"),
    [(1000, 0, "user.*999.*1000"), (-1, 0, "user.*-1"), (0, [3, 50], "product.*49.*50")],
)  # fmt: skip
def test_its_shop_knows_its_visitors_and_products(page, user, product, named):
    for of in (page["shop"].chance, page["shop"].click):
        with pytest.raises(ValueError, match=named):
            of(user, product)


@pytest.mark.parametrize("seed", [0, 1])
def test_its_shop_is_that_of_the_library(page, seed):
    shop, world = page["Shop"](20, 30, seed), ZooplusSimulator(20, 30, seed)
    chances = shop.chance(np.arange(30)[:, None], np.arange(20))
    assert np.array_equal(chances, true_ctr_matrix(world))


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"n_users": 0}, "n_users.*got 0"), ({"n_products": 0}, "n_products.*got 5, 0"),
     ({"dim": 0}, "dim.*got 5, 4, 0"), ({"scale": -1}, "scale.*, -1")],
)  # fmt: skip
def test_its_network_refuses_settings_in_words(page, settings, named):
    with pytest.raises(ValueError, match=named):
        page["Recommender"](**{"n_users": 5, "n_products": 4} | settings)


def test_its_network_says_which_ids_it_knows(page):
    network = page["Recommender"](5, 4)
    one, none = torch.tensor([0]), torch.tensor([-1])
    with pytest.raises(ValueError, match=r"product must lie between 0 and 3: got .*4"):
        network(one, torch.tensor([4]))
    with pytest.raises(ValueError, match=r"user must lie between 0 and 4: got .*-1"):
        network(none, one)


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"epochs": 0}, "epochs.*got 0"), ({"learning_rate": 0}, "learning_rate.*and 0")],
)
def test_its_training_refuses_settings_in_words(page, settings, named):
    with pytest.raises(ValueError, match=named):
        page["train"](page["model"], few(page), **settings)


def test_its_training_lowers_the_loss_and_is_the_same_each_time(page):
    found = []
    for _ in range(2):
        torch.manual_seed(1)
        network = page["Recommender"](1000, 50)
        found.append(page["train"](network, few(page), epochs=3, learning_rate=0.01))
    assert found[0].equals(found[1])
    assert found[0]["training"].is_monotonic_decreasing


def test_a_long_training_says_how_long_it_will_take(page, bars_of, capsys):
    bars_of(page)
    page["train"](page["Recommender"](1000, 50), few(page), epochs=3)
    assert "3/3" in capsys.readouterr().out


def test_its_network_is_that_of_the_library(page):
    network, library = page["Recommender"](5, 4), MLPRecommender(5, 4)
    with torch.no_grad():
        library.user_embedding.weight.copy_(network.user_embedding.weight)
        library.product_embedding.weight.copy_(network.product_embedding.weight)
        for at, layer in enumerate((network.layer_1, network.layer_2, network.output)):
            library.mlp.weights[at].copy_(layer.weight.T)
            library.mlp.biases[at].copy_(layer.bias)
        users, products = torch.meshgrid(*map(torch.arange, (5, 4)), indexing="ij")
        found = torch.sigmoid(network(users, products)).numpy()
    assert np.allclose(found, library.predict_all(), atol=1e-6)


@pytest.mark.parametrize(
    ("settings", "named"),
    [({"n_visits": 0}, "n_visits.*got 0"), ({"at_random": 1.5}, "at_random.*and 1.5"),
     ({"at_random": -0.1}, "at_random.*and -0.1")],
)  # fmt: skip
def test_a_log_refuses_settings_in_words(page, settings, named):
    with pytest.raises(ValueError, match=named):
        page["log_of"](np.zeros(1000, int), page["p"], **settings)


def test_a_share_of_a_log_is_random(page):
    shown = np.full(1000, 7)
    own, mixed = (page["log_of"](shown, page["p"], at_random=part) for part in (0, 0.2))
    assert (own["product_id"] == 7).all()
    assert abs((mixed["product_id"] != 7).mean() - 0.2 * 49 / 50) < 0.01
    assert mixed["product_id"].nunique() == 50


@pytest.mark.parametrize(
    ("persona", "tastes", "named"),
    [
        ("cat_connoisseur", {"Hamster Wheel": 0.9}, r"category.*Hamster Wheel"),
        ("hamster_owner", {"Dog Toy": 0.9}, r"persona.*hamster_owner"),
        ("cat_connoisseur", {"Dog Toy": 1.5}, r"probabilities.*1\.5"),
    ],
)
def test_a_shock_is_of_the_table_or_refused_in_words(page, persona, tastes, named):
    with pytest.raises(ValueError, match=named):
        page["after"](persona, tastes)


def test_a_shock_changes_a_shop_of_its_own(page):
    world = ZooplusSimulator(50, 1000, seed=42)
    assert page["FIRST"] == (SHOCK_1.persona, SHOCK_1.click_probabilities)
    assert np.allclose(page["p"], true_ctr_matrix(world))
    world.apply_shock(SHOCK_1)
    assert np.allclose(page["after"](*page["FIRST"]), true_ctr_matrix(world))
    assert page["shop"].taste.equals(page["T"])


def test_half_a_shock_goes_half_of_the_way(page):
    whole, half = (page["after"](*page["FIRST"], part) for part in (1, 0.5))
    assert np.allclose(half, (page["p"] + whole) / 2)
