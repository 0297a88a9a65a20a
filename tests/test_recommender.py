import os
import pickle
from functools import cache

import jupytext
import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.model_selection import train_test_split

import zoolib
from tests.notebooks import ROOT
from zoolib import (
    MLPRecommender,
    ZooplusSimulator,
    static_choices,
    static_recommenders,
    train_recommender,
)
from zoolib.book import static
from zoolib.models import recommender


def small_log(seed=0, n=600):
    return ZooplusSimulator(n_products=10, n_users=20, seed=seed).sample_interactions(n)


def weights_of(model):
    return [p.detach().clone() for p in model.parameters()]


def same(a, b):
    return all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_size_of_the_books_model():
    assert sum(p.numel() for p in MLPRecommender(1000, 50).parameters()) == 39_873


def test_predictions_are_probabilities_of_the_logits():
    model = MLPRecommender(20, 10, seed=3)
    table = model.predict_all()
    assert table.shape == (20, 10)
    assert ((table > 0) & (table < 1)).all()
    logits = model(torch.tensor([4, 19]), torch.tensor([9, 0])).detach()
    assert np.allclose(model.predict([4, 19], [9, 0]), torch.sigmoid(logits))
    assert table[4, 9] == pytest.approx(model.predict(4, 9), abs=1e-6)
    assert (model.recommend() == table.argmax(axis=1)).all()
    assert model.predict(4, np.arange(10)).shape == (10,)


def test_training_repeats_exactly_and_the_seed_matters():
    runs = []
    for seed in (0, 0, 1):
        model = MLPRecommender(20, 10, seed=0)
        history = train_recommender(
            model,
            small_log(),
            small_log(1),
            epochs=2,
            batch_size=64,
            seed=seed,
            device="cpu",
        )
        runs.append((weights_of(model), history))
    assert same(runs[0][0], runs[1][0])
    assert (runs[0][1].validation_loss == runs[1][1].validation_loss).all()
    assert not same(runs[0][0], runs[2][0])


def test_worlds_train_as_if_alone():
    logs, held_out = [small_log(s) for s in (5, 6)], [small_log(s, 100) for s in (7, 8)]
    together = MLPRecommender(20, 10, seed=[5, 6])
    history = train_recommender(
        together, logs, held_out, epochs=3, batch_size=100, seed=[5, 6], device="cpu"
    )
    assert history.train_loss.shape == history.validation_loss.shape == (2, 3)
    assert together.predict_all().shape == (2, 20, 10)
    assert together.predict([1, 2], 3).shape == (2, 2)
    for world, seed in enumerate((5, 6)):
        alone = MLPRecommender(20, 10, seed=seed)
        single = train_recommender(
            alone,
            logs[world],
            held_out[world],
            epochs=3,
            batch_size=100,
            seed=seed,
            device="cpu",
        )
        assert np.allclose(single.train_loss, history.train_loss[world], atol=1e-5)
        assert np.allclose(
            single.validation_loss, history.validation_loss[world], atol=1e-5
        )
        assert np.allclose(
            alone.predict_all(), together.predict_all()[world], atol=1e-4
        )


def test_losses_are_means_over_rows_also_with_a_short_last_batch():
    log = small_log(n=130)
    model = MLPRecommender(20, 10)
    table = model.predict_all().astype(float)
    # A step so small that the model does not move: both losses are those of the initial model.
    history = train_recommender(
        model, log, log, epochs=1, batch_size=64, learning_rate=1e-12, device="cpu"
    )
    p = table[log["user_id"], log["product_id"]]
    expected = -(
        log["clicked"] * np.log(p) + (1 - log["clicked"]) * np.log(1 - p)
    ).mean()
    assert history.train_loss[0] == pytest.approx(expected, abs=1e-5)
    assert history.validation_loss[0] == pytest.approx(expected, abs=1e-5)


def test_training_learns_what_the_world_says():
    world = ZooplusSimulator(n_products=10, n_users=40, seed=0)
    log = world.sample_interactions(40_000)
    model = MLPRecommender(40, 10, embedding_scale=0.1)
    history = train_recommender(
        model, log, epochs=8, learning_rate=3e-3, progress=False
    )
    assert np.isnan(history.validation_loss).all()
    assert np.isnan(
        train_recommender(
            MLPRecommender(20, 10, seed=[0]), [small_log()], epochs=1, seed=[0]
        ).validation_loss
    ).all()
    assert zoolib.policy_value(world, model.recommend()) > 0.95 * zoolib.oracle_value(
        world
    )


def test_training_goes_to_the_gpu_if_there_is_one(monkeypatch):
    # "meta" stands for a GPU: it computes nothing, and remembers what it was given.
    gpu = torch.device("meta")
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda **_: gpu)
    moved = []
    monkeypatch.setattr(
        MLPRecommender, "to", lambda model, device: moved.append(device)
    )
    train_recommender(MLPRecommender(20, 10), small_log(), epochs=1, device="cpu")
    with pytest.raises((NotImplementedError, RuntimeError)):
        train_recommender(MLPRecommender(20, 10), small_log(), epochs=1)
    assert moved == [torch.device("cpu"), gpu]


@pytest.mark.parametrize(
    ("progress", "variable", "shown"),
    [(True, "", True), (True, "0", True), (True, "1", False), (False, "", False)],
)
def test_the_progress_bar_can_be_silenced(
    progress, variable, shown, capsys, monkeypatch
):
    monkeypatch.setenv("TQDM_DISABLE", variable)
    train_recommender(MLPRecommender(20, 10), small_log(), epochs=1, progress=progress)
    assert ("training" in capsys.readouterr().err) == shown


LOG = small_log()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"epochs": 0}, ValueError, ["epochs", "at least 1"]),
        ({"epochs": 1.5}, TypeError, ["epochs", "1.5"]),
        ({"batch_size": -4}, ValueError, ["batch_size", "-4"]),
        ({"learning_rate": 0.0}, ValueError, ["learning_rate", "positive"]),
        ({"learning_rate": float("nan")}, ValueError, ["learning_rate", "nan"]),
        ({"learning_rate": "fast"}, TypeError, ["learning_rate", "fast"]),
        ({"seed": [0, 1]}, ValueError, ["seed", "one seed", "[0, 1]"]),
        ({"train": [LOG, LOG]}, ValueError, ["train", "one table", "list of 2"]),
        ({"train": LOG.iloc[:0]}, ValueError, ["train", "rows"]),
        ({"validation": LOG.iloc[:0]}, ValueError, ["validation", "rows"]),
        ({"train": LOG.drop(columns="clicked")}, ValueError, ["train", "clicked"]),
        (
            {"train": LOG.assign(user_id=20)},
            ValueError,
            ["train.user_id", "0 … 19", "20"],
        ),
        ({"train": LOG.assign(product_id=-1)}, ValueError, ["train.product_id", "-1"]),
        ({"train": LOG.assign(clicked=2)}, ValueError, ["train.clicked", "0 … 1"]),
        ({"train": LOG.assign(clicked=0.5)}, TypeError, ["train.clicked", "float64"]),
    ],
)
def test_a_refused_training_leaves_the_model_alone(arguments, error, words):
    model = MLPRecommender(20, 10)
    before = weights_of(model)
    with pytest.raises(error) as refusal:
        train_recommender(model, **({"train": LOG} | arguments))
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert same(before, weights_of(model))


def test_worlds_are_counted():
    model = MLPRecommender(20, 10, seed=[0, 1])
    with pytest.raises(ValueError, match="a list of 2, one a world"):
        train_recommender(model, [LOG], seed=[0, 1])
    with pytest.raises(ValueError, match="equally many"):
        train_recommender(model, [LOG, LOG[:5]], seed=[0, 1])
    with pytest.raises(ValueError, match="a list of 2, one a world"):
        train_recommender(model, LOG, seed=[0, 1])


def test_a_diverging_loss_is_said():
    with pytest.raises(FloatingPointError, match="learning_rate"):
        train_recommender(MLPRecommender(20, 10), LOG, epochs=20, learning_rate=1e30)


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ({"n_users": 0}, ValueError, "n_users"),
        ({"n_products": 2.5}, TypeError, "n_products"),
        ({"embedding_dim": -1}, ValueError, "embedding_dim"),
        ({"embedding_scale": 0.0}, ValueError, "embedding_scale"),
    ],
)
def test_sizes_are_checked(arguments, error, word):
    with pytest.raises(error, match=word):
        MLPRecommender(**({"n_users": 20, "n_products": 10} | arguments))


@pytest.mark.parametrize(
    ("user", "product", "word"),
    [(20, 0, "user_id"), (0, 10, "product_id"), (0, [0, -1], "product_id")],
)
def test_unknown_ids_have_no_prediction(user, product, word):
    with pytest.raises(ValueError, match=word):
        MLPRecommender(20, 10).predict(user, product)


@pytest.mark.parametrize(("seed", "worlds"), [(3, ()), ([3, 4], (2,))])
def test_predictions_broadcast_like_the_truth(seed, worlds):
    model = MLPRecommender(20, 10, seed=seed)
    table = model.predict_all()
    assert table.shape == (*worlds, 20, 10)
    assert model.predict(4, 9).shape == worlds
    users, products = np.array([[1], [2], [19]]), np.array([[0, 9]])
    grid = model.predict(users, products)
    assert np.allclose(grid, table[..., users, products], atol=1e-6)
    with pytest.raises(ValueError, match=r"user_id and product_id.*\(3,\).*\(2,\)"):
        model.predict([0, 1, 2], [0, 1])


@pytest.mark.parametrize("seed", [0, [0, 1, 2], range(2), np.random.SeedSequence(5)])
def test_save_and_load_return_the_same_model(tmp_path, seed):
    model = MLPRecommender(20, 10, embedding_dim=8, seed=seed, embedding_scale=0.1)
    train_recommender(model, [LOG] * len(seed) if np.ndim(seed) else LOG, seed=seed)
    model.save(tmp_path / "model")
    loaded = MLPRecommender.load(tmp_path / "model")
    assert repr(loaded) == repr(model)
    assert same(weights_of(model), weights_of(loaded))
    assert (model.predict_all() == loaded.predict_all()).all()
    assert os.listdir(tmp_path) == ["model"]
    train_recommender(loaded, [LOG] * len(seed) if np.ndim(seed) else LOG, seed=seed)
    assert not same(weights_of(model), weights_of(loaded))


def foreign_weights(name, weights):
    def change(state):
        state["learned"]["weights"][name] = weights

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.update({"class": "RidgePosterior"}), "MLPRecommender"),
        (lambda s: s["settings"].update(n_users=21), r"\(21, 32\).*\(20, 32\)"),
        (lambda s: s["settings"].update(seed=[0]), r"\(1, 20, 32\)"),
        (lambda s: s["learned"]["weights"].pop("mlp.biases.0"), r"mlp\.biases\.0"),
        (foreign_weights("mlp.biases.2", np.zeros((1, 1))), "float32"),
        (foreign_weights("mlp.biases.2", np.full((1, 1), np.nan, "f")), "finite"),
        (foreign_weights("mlp.biases.2", "no weights"), r"mlp\.biases\.2"),
    ],
)
def test_states_of_no_such_model_are_refused(change, words):
    state = MLPRecommender(20, 10).state()
    change(state)
    with pytest.raises(ValueError, match=words):
        MLPRecommender.from_state(state)


class Bomb:
    def __reduce__(self):
        return os.mkdir, ("exploded",)


def test_files_with_code_are_refused(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with open("pickled", "wb") as file:
        pickle.dump(Bomb(), file)
    np.savez("arrays.npz", state=np.array([Bomb()], object))
    torch.save({"weights": Bomb()}, "torch")
    for name in ("pickled", "arrays.npz", "torch"):
        with pytest.raises(ValueError, match="bytes of a state"):
            MLPRecommender.load(name)
    assert not os.path.exists("exploded")


def test_a_table_without_rows_or_columns_is_not_a_log():
    with pytest.raises(ValueError, match="train"):
        train_recommender(MLPRecommender(20, 10), pd.DataFrame())


def cell_with(page, words):
    """Return the first code cell of a chapter that holds these words."""
    cells = jupytext.read(ROOT / "chapters" / f"{page}.md").cells
    code = (cell.source for cell in cells if cell.cell_type == "code")
    return next(source for source in code if words in source)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    "epochs", [1, pytest.param(recommender.EPOCHS, marks=pytest.mark.weekly)]
)
def test_chapter_1_trains_the_recommenders_that_chapter_2_asks_for(epochs, monkeypatch):
    # The cells of the chapters leave the number of epochs to the function.
    monkeypatch.setitem(train_recommender.__kwdefaults__, "epochs", epochs)
    shown = cell_with("evidence/static-recommender", "def train_in(")
    names = vars(zoolib) | {"np": np, "cache": cache, "N_USERS": 1000, "N_PRODUCTS": 50}
    names["train_test_split"] = train_test_split
    exec(shown, names)
    models, _ = names["train_in"](range(1), range(1))
    assert (models.recommend() == static_choices(range(1))).all()


@pytest.mark.parametrize("rate", [None, 0.03])
def test_static_recommenders_learn_as_chapter_1_does(rate, monkeypatch):
    calls = []

    def note(model, train, **settings):
        calls.append((model, train, settings))

    monkeypatch.setattr(static, "train_recommender", note)
    trained = static_recommenders([7, 3], click_rate=rate)
    ((model, train, settings),) = calls
    assert trained is model
    assert same(weights_of(model), weights_of(MLPRecommender(1000, 50, seed=[7, 3])))
    # Nothing but the seed: the other settings are those that a call without them has.
    assert settings == {"seed": [7, 3]}
    for seed, rows in zip((7, 3), train, strict=True):
        world = ZooplusSimulator(seed=seed, click_rate=rate)
        log = world.sample_interactions(200_000)
        expected, _ = train_test_split(log, test_size=0.2, random_state=seed)
        assert len(rows) == 160_000
        pd.testing.assert_frame_equal(rows, expected)


def test_what_they_show_is_what_they_recommend_in_a_shop_of_any_size(monkeypatch):
    monkeypatch.setattr(static, "train_recommender", lambda *_, **__: None)
    untrained = MLPRecommender(1000, 7, seed=[5, 2])
    shown = static_choices((5, 2), n_products=7)
    assert (shown == untrained.predict_all().argmax(axis=-1)).all()
    assert shown.shape == (2, 1000)
