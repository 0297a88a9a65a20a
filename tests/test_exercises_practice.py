"""The judges of Chapter 4: the book's solutions are right, and typical mistakes are named."""

import ast
import re
from functools import partial
from math import comb

import numpy as np
import pytest
import torch

from tests.notebooks import ROOT
from tests.test_exercises import CELL, SOLUTIONS, hint, raises, run, said
from zoolib import EnsembleAgent, MCDropoutAgent, ZooplusSimulator

PAGE = (ROOT / "chapters/practice.md").read_text()
LABELS = re.findall(r":label: (ex-[\w-]+)", PAGE)
WORLDS = [ZooplusSimulator(seed=seed) for seed in range(20)]
SELDOM = np.full(20, 0.01)
HALF = np.full(20, 0.5)


def definitions(cells, *names):
    """The functions and classes of cells, all or those of these names, as code."""
    for cell in cells:
        for node in ast.parse(cell).body:
            is_definition = isinstance(node, ast.FunctionDef | ast.ClassDef)
            if is_definition and (not names or node.name in names):
                yield ast.unparse(node)


@pytest.fixture(scope="module")
def chapter():
    """What solutions use of the chapter, with claims that claim nothing."""
    cells = [c for c in CELL.findall(PAGE) if not c.startswith("---")]
    needed = definitions(cells, "logged", "train", "root_mean_square")
    names, _ = run([cells[0], *needed], {})
    return names | {"claim": lambda *_, **__: None, "worlds": WORLDS}


def defined(label, chapter, **names):
    """What a solution defines."""
    return run(definitions(SOLUTIONS[label]), chapter | names)[0]


class Broken:
    transform = staticmethod(raises)


RAISING = {
    "ex-trap-bonus": (raises, raises),
    "ex-random-features": (raises,),
    "ex-firm": (raises, HALF),
    "ex-frozen-body": (Broken(), HALF),
    "ex-random-candidates": (raises, raises),
    "ex-hopeful-weights": (raises,),
    "ex-practice-first-weights": (raises, HALF),
    "ex-practice-masks": (50, raises),
    "ex-practice-prior": (raises,),
}


@pytest.mark.parametrize("label", LABELS)
def test_what_raises_is_reported(label):
    assert "your code raised RuntimeError: my mistake" in hint(label, *RAISING[label])


# ---- A bonus that sees the visitor


@pytest.mark.parametrize("label", ["ex-trap-bonus", "ex-random-features"])
def test_a_solution_of_the_book_is_right(label, chapter):
    names = chapter | {"SEEDS": range(2)}
    assert run(SOLUTIONS[label], names)[1] == f"{label}: right."


def widths(counts, ridge=1.0):
    """Widths of the side-by-side model, by the inverse of A."""
    x = np.array(
        [np.r_[np.eye(4)[p], np.eye(5)[c]] for p in range(4) for c in range(5)]
    )
    A_inv = np.linalg.inv(ridge * np.eye(9) + x.T @ np.diag(np.ravel(counts)) @ x)
    return np.sqrt(np.diag(x @ A_inv @ x.T)).reshape(4, 5)


def gap(width):
    return np.ptp(width - width.mean(axis=1, keepdims=True), axis=0).max()


def term(A_inv, u, p):
    return u @ A_inv[:4, 4:] @ p + p @ A_inv[4:, :4] @ u


@pytest.mark.parametrize(
    ("mixed_term", "disagreement", "words"),
    [
        (lambda A, u, p: term(A, u, p) / 2, None, "Two of the four blocks"),
        (lambda A, u, p: u @ A[:4, :4] @ u, None, "Which of them join"),
        (lambda A, u, p: u * p[:4], None, r"shape \(\) is wanted"),
        (term, lambda n: np.ptp(widths(n)), "mean width off"),
        (term, lambda n: 1.0 + gap(widths(n)), "do not disagree at all"),
        (term, lambda n: gap(widths(n) ** 2), "root of xᵀA⁻¹x"),
        (term, lambda n: gap(widths(n, ridge=0.1)), "ridge of 1"),
        (term, lambda n: np.ptp(gaps(n), axis=1).max(), "two personas in one category"),
        (term, lambda n: np.ptp(gaps(n), axis=0).mean(), "largest gap"),
    ],
)
def test_slips_in_the_bonus_are_named(mixed_term, disagreement, words):
    assert re.search(words, hint("ex-trap-bonus", mixed_term, disagreement or gap))


def gaps(counts):
    width = widths(counts)
    return width - width.mean(axis=1, keepdims=True)


def test_another_way_to_the_disagreement_is_right():
    verdict = said("ex-trap-bonus", term, lambda counts: gap(widths(counts)))
    assert verdict == "ex-trap-bonus: right."


# ---- Five hundred features


def trial(rank, seed, m=50, d=500, n=1_000):
    """Learn by least squares on projected rows, and return the predicted share."""
    rng = np.random.default_rng(seed)
    basis = np.linalg.qr(rng.normal(size=(d, rank)))[0]
    theta = basis @ rng.normal(size=rank) / np.sqrt(rank)
    rows = rng.normal(size=(2 * n, rank)) @ basis.T
    x = rows @ rng.normal(size=(d, m)) / np.sqrt(m) if m else rows
    reward = rows @ theta + 0.1 * rng.normal(size=2 * n)
    weights = np.linalg.lstsq(x[:n], reward[:n], rcond=None)[0]
    truth = rows[n:] @ theta
    return 1 - np.var(truth - x[n:] @ weights) / np.var(truth)


def test_an_own_trial_of_short_rows_is_right():
    assert said("ex-random-features", trial) == "ex-random-features: right."


@pytest.mark.parametrize(
    ("predicted_share", "words"),
    [
        (lambda rank, seed: trial(rank, seed, m=None), "about half of 100"),
        (lambda rank, seed: trial(rank, seed, m=5), "all of 20"),
        (lambda rank, seed: trial(rank, seed, m=None if rank == 500 else 50),
         "little of 500"),
        (lambda rank, seed: trial(rank, seed=0), "Another seed"),
        (lambda rank, seed: 100 * trial(rank, seed), "is not right"),
    ],
)  # fmt: skip
def test_slips_with_short_rows_are_named(predicted_share, words):
    assert words in hint("ex-random-features", predicted_share)


# ---- How firm a prior


def test_the_books_firmness_is_right(chapter):
    firmness = defined("ex-firm", chapter)["firmness"]
    shown = [10 * SELDOM, SELDOM, 0 * SELDOM]
    assert said("ex-firm", firmness, shown) == "ex-firm: right."


def firmness(c):
    return 24 * (1 - c) / c


@pytest.mark.parametrize(
    ("function", "newcomers", "words"),
    [
        (lambda c: firmness(c) / 2, 0, "counts the ones of a row"),
        (lambda c: 24 * c * (1 - c), 0, "not to factors"),
        (lambda c: 2 * (1 - c) * np.sqrt(12), 0, "τ is squared"),
        (lambda c: 50, 0, "σ² is the variance of a click"),
        (firmness, np.ones(20), r"the shape (3, 20) is wanted"),
        (firmness, 100 * np.ones((3, 20)), "between 0 and 1"),
        (firmness, [SELDOM, 10 * SELDOM, 0 * SELDOM], "rows in order"),
        (firmness, [10 * SELDOM, SELDOM, 2 * SELDOM], "rows in order"),
    ],
)
def test_slips_with_the_prior_are_named(function, newcomers, words):
    assert words in hint("ex-firm", function, newcomers)


# ---- A body that was trained before


class Body:
    """Rows of a table of units, one row a persona and category, and a one."""

    def __init__(self, units, constant=1.0):
        self.units, self.constant = units, constant

    def transform(self, users):
        users = np.asarray(users)
        persona = np.stack(
            [w.persona_of_user[u] for w, u in zip(WORLDS, users, strict=True)]
        )
        category = np.stack([world.category_of_product for world in WORLDS])
        rows = self.units[persona[:, None], category]
        last = np.broadcast_to(self.constant, rows[..., :1].shape)
        return np.concatenate((rows, last), axis=-1)


class Restless(Body):
    """A body that goes on learning."""

    asked = 0

    def transform(self, users):
        self.asked += 1
        return super().transform(users) + self.asked


CLICKS = WORLDS[0].click_table[..., None]
NOISE = np.random.default_rng(0).random((4, 5, 32))
TRAINED = Body(np.maximum(CLICKS * (1 + NOISE / 10), 0))
SHARES = np.full(20, 93.0)


def test_the_books_body_is_right(chapter):
    brief = {
        "SEEDS": range(20),
        "logged": partial(chapter["logged"], n=1_000),
        "train": partial(chapter["train"], n_steps=100),
    }
    body = defined("ex-frozen-body", chapter, **brief)["FrozenBody"](WORLDS)
    assert said("ex-frozen-body", body, SHARES) == "ex-frozen-body: right."


def test_a_body_of_click_rates_is_right():
    assert said("ex-frozen-body", TRAINED, SHARES) == "ex-frozen-body: right."


@pytest.mark.parametrize(
    ("body", "percentages", "words"),
    [
        (Body(NOISE[..., :31]), SHARES, "(20, 50, 33)"),
        (
            Body(NOISE, NOISE[0, 0, 0] + np.arange(50.0)[:, None]),
            SHARES,
            "must be a one",
        ),
        (Body(CLICKS * (NOISE - 0.5)), SHARES, "never a negative"),
        (Restless(CLICKS * NOISE), SHARES, "whenever asked"),
        (Body(NOISE), SHARES, "trained on the log"),
        (TRAINED, 93.0, "(20,) is wanted"),
        (TRAINED, SHARES / 100, "percentages"),
        (TRAINED, 100 * SHARES, "percentages"),
        (TRAINED, SHARES / 2, "best single product"),
    ],
)
def test_slips_with_the_body_are_named(body, percentages, words):
    assert words in hint("ex-frozen-body", body, percentages)


# ---- Candidates at random


def on_list(size, places=25):
    return 1 - comb(5_000 - size, places) / comb(5_000, places)


def until(size):
    return 1 / on_list(size)


def test_the_books_chances_are_right(chapter):
    verdict = run(SOLUTIONS["ex-random-candidates"], chapter)[1]
    assert verdict == "ex-random-candidates: right."
    assert said("ex-random-candidates", on_list, until) == verdict


@pytest.mark.parametrize(
    ("chance", "visitors", "words"),
    [
        (lambda size: on_list(size, places=50), until, "Half of the 50 places"),
        (lambda size: 25 * size / 5_000, until, "do not add up"),
        (lambda size: 1 - on_list(size), until, "not on the list"),
        (lambda size: size / 5_000, until, "a random place"),
        (on_list, lambda size: until(size) - 1, "counts, too"),
        (on_list, lambda size: 200 / size, "geometric"),
        (on_list, lambda size: round(until(size)), "need not be whole"),
    ],
)
def test_slips_with_chances_are_named(chance, visitors, words):
    assert words in hint("ex-random-candidates", chance, visitors)


# ---- The question to which the full choice is the answer


def answer(change):
    """The query, with one of its parts changed."""

    def query(posterior, u, embedding):
        x = u * embedding
        move = posterior.A_inv @ x
        return change(u, posterior.mean, move, np.sqrt(x @ move), x, posterior.A)

    return query


def test_the_books_query_is_right(chapter):
    query = defined("ex-hopeful-weights", chapter)["hopeful_query"]
    assert said("ex-hopeful-weights", query) == "ex-hopeful-weights: right."
    listed = answer(lambda u, mean, move, width, *_: list(u * (mean + move / width)))
    assert said("ex-hopeful-weights", listed) == "ex-hopeful-weights: right."


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda u, mean, move, width, *_: mean + move / width, "u∘θ̃"),
        (lambda u, mean, move, *_: u * (mean + move), "divided by the width"),
        (lambda u, mean, *_: u * mean, "best prediction only"),
        (lambda u, mean, move, width, *_: u * (mean - move / width), "must be the bound"),
        (lambda u, mean, move, width, x, A: u * (mean + x * width / (x @ x)),
         "along A⁻¹x"),
        (lambda u, mean, move, width, *_: width, "shape (6,) is wanted"),
    ],
)  # fmt: skip
def test_slips_in_the_query_are_named(change, words):
    assert words in hint("ex-hopeful-weights", answer(change))


# ---- The first weights alone


class SameStart(EnsembleAgent):
    """Members whose first weights are the same."""

    def begin(self, seed):
        super().begin(seed)
        with torch.no_grad():
            for weights in self.network.parameters():
                weights.copy_(weights[:1].expand_as(weights))


class AllRows(EnsembleAgent):
    """Members whose counts are all one."""

    def train(self):
        counts = self.memory._rows if hasattr(self.memory, "_rows") else None
        assert counts is None
        super().train()

    def losses(self, x, reward):
        rows = x[..., : self.n_features]
        return super().losses(
            torch.cat((rows, torch.ones_like(x[..., rows.shape[-1] :])), -1), reward
        )


class NoTraining(EnsembleAgent):
    """Members that keep their first weights."""

    def train(self):
        """Do nothing."""


def test_the_books_members_are_right(chapter):
    label = "ex-practice-first-weights"
    members = defined(label, chapter)["SameData"]
    assert said(label, members, HALF) == f"{label}: right."
    assert said(label, AllRows, HALF) == f"{label}: right."


@pytest.mark.parametrize(
    ("agent", "coverage", "words"),
    [
        (EnsembleAgent(3, 4), HALF, "class, not an agent"),
        (EnsembleAgent, HALF, "counts of the rows"),
        (SameStart, HALF, "start alike"),
        (NoTraining, HALF, "do not learn"),
        (AllRows, 100 * HALF, "between 0 and 1"),
        (AllRows, 0.5, "(20,) is wanted"),
    ],
)
def test_slips_with_the_first_weights_are_named(agent, coverage, words):
    assert words in hint("ex-practice-first-weights", agent, coverage)


# ---- How many masks


@pytest.fixture(scope="module")
def errors(chapter):
    """The book's relative errors, of an agent that has learnt nothing, on twenty rows a world."""
    agent = MCDropoutAgent(50, 9, dropout=0.5, n_worlds=20, seed=range(20))
    x = np.random.default_rng(0).random((20, 20, 9), dtype=np.float32)
    names = chapter | {"doubters": {"dropout 0.5": agent}, "rows": x}
    names, verdict = run(SOLUTIONS["ex-practice-masks"], names)
    assert verdict == "ex-practice-masks: right."
    return names["relative_error"]


@pytest.mark.parametrize(
    ("n_masks", "change", "words"),
    [
        (5, lambda error, n: error(n), "Mind the root"),
        (100, lambda error, n: error(n), "Mind the two"),
        (10, lambda error, n: error(n), "solve for T"),
        (50, lambda error, n: error(n) ** 2, "rule says otherwise"),
        (50, lambda error, n: error(2), "rule says otherwise"),
        (50, lambda error, n: error(n).mean(), "(20,) is wanted"),
    ],
)
def test_slips_with_masks_are_named(errors, n_masks, change, words):
    assert words in hint("ex-practice-masks", n_masks, partial(change, errors))


# ---- A prior for every member


@pytest.fixture(scope="module")
def prior(chapter):
    """The book's class."""
    return defined("ex-practice-prior", chapter)["PriorEnsemble"]


def test_the_books_prior_is_right(prior):
    assert said("ex-practice-prior", prior) == "ex-practice-prior: right."


def changed(prior, **methods):
    """A class like the book's, but for some methods."""
    return type("Changed", (prior,), methods)


def f_alone(self, x):
    return EnsembleAgent.members(self, x)


def thawed(self, seed):
    type(self).__mro__[1].begin(self, seed)
    self.fixed = self.network


def f_in_training(self, x):
    if torch.is_grad_enabled():
        return EnsembleAgent.predict(self, x)
    return type(self).__mro__[1].predict(self, x)


def factor(times):
    def predict(self, x):
        return (
            EnsembleAgent.predict(self, x) + times * self.fixed(self.repeat(x))[..., 0]
        )

    return predict


def f_decides(self, x):
    return EnsembleAgent.score_rows(self, x)


@pytest.mark.parametrize(
    ("methods", "words"),
    [
        ({"members": f_alone}, "f alone"),
        ({"predict": factor(1)}, "factor 3"),
        ({"predict": factor(9)}, "factor 3"),
        ({"begin": thawed}, "have changed"),
        ({"predict": f_in_training}, "do not fit"),
        ({"score_rows": f_decides}, "sum of one member"),
    ],
)
def test_slips_with_the_prior_networks_are_named(prior, methods, words):
    assert words in hint("ex-practice-prior", changed(prior, **methods))


def test_an_agent_is_no_class_of_agents():
    assert "class, not an agent" in hint("ex-practice-prior", EnsembleAgent(3, 4))
