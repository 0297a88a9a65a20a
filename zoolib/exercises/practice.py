"""Judges of the exercises of Chapter 4, "Contextual bandits in practice"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from math import comb
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from zoolib.agents import Context, EnsembleAgent
from zoolib.evaluation import best_product_value, oracle_value
from zoolib.exercises.judging import exercise, expect, expect_callable, expect_close
from zoolib.posterior import RidgePosterior
from zoolib.simulator import ZooplusSimulator, true_ctr_matrix

Function = Callable[..., Any]


@exercise("ex-trap-bonus")
def trap_bonus(mixed_term: Function, disagreement: Function) -> None:
    """two functions: of A⁻¹ (9, 9), u (4,) and p (5,), returning the term; and of a table of counts
    (4, 5), one row a persona, returning the disagreement.
    """
    rng = np.random.default_rng(0)
    root, u, p = rng.normal(size=(9, 9)), rng.normal(size=4), rng.normal(size=5)
    A_inv = root @ root.T

    def squared_width(u: NDArray, p: NDArray) -> float:
        x = np.concatenate((u, p))
        return x @ A_inv @ x

    both = squared_width(u, p) - squared_width(u, 0 * p) - squared_width(0 * u, p)
    hint = "Multiply x = (u, p) out with the four blocks of A⁻¹. Which of them join u and p?"
    mistakes = {"Two of the four blocks join u and p.": both / 2}
    expect_close(mixed_term(A_inv, u, p), both, hint, mistakes=mistakes)

    even, one_persona = np.full((4, 5), 20), np.zeros((4, 5), int)
    one_persona[0] = 20
    hint = "Where all cells are equally full, personas do not disagree at all."
    expect_close(disagreement(even), 0, hint)
    hint = (
        "If one persona alone has come, to all categories alike, its widths are smaller, all by the same: "
        "that is no disagreement. Take each persona's mean width off."
    )
    expect_close(disagreement(one_persona), 0, hint)
    uneven = rng.integers(1, 40, size=(4, 5))
    x = np.concatenate((np.repeat(np.eye(4), 5, 0), np.tile(np.eye(5), (4, 1))), axis=1)
    A = np.eye(9) + (x.T * uneven.ravel()) @ x
    squared = np.vecdot(x, np.linalg.solve(A, x.T).T).reshape(4, 5)

    def gaps(width: NDArray, axis: int = 0) -> NDArray:
        return np.ptp(width - width.mean(axis=1, keepdims=True), axis=axis)

    between = gaps(np.sqrt(squared))
    across = gaps(np.sqrt(squared), axis=1)
    mistakes = {
        "A width is the root of xᵀA⁻¹x.": gaps(squared).max(),
        "Compare two personas in one category, not two categories.": across.max(),
        "The largest gap of the five is wanted, not their mean.": between.mean(),
    }
    hint = "Is the ridge of 1 in A, and are the rows of the table personas?"
    expect_close(disagreement(uneven), between.max(), hint, mistakes=mistakes)


@exercise("ex-random-features")
def random_features(predicted_share: Function) -> None:
    """a function of rank and seed that returns the predicted share of the variance of one trial."""
    found = []
    for rank, low, high, hint in (
        (20, 0.9, 1, "Fifty directions see all of 20. Are rows and rewards paired?"),
        (100, 0.3, 0.8, "Fifty directions see about half of 100, in which rows vary."),
        (500, -0.1, 0.3, "Fifty directions see little of 500: learn on short rows."),
    ):
        for seed in range(3):
            one = predicted_share(rank, seed)
            within = (high - low) / 2
            expect_close(one, (low + high) / 2, hint, within=within)
            found.append(float(one))
    expect(len(set(found)) == len(found), "Another seed must be another trial.")


@exercise("ex-firm")
def firm(firmness: Function, newcomers: ArrayLike) -> None:
    """a function of the click probability that returns λ, and an array (3, 20): the share of visits in
    which newcomers are shown, in twenty worlds, without a prior, with the λ for 0.4, and with 50.
    """
    hint = (
        "σ² is the variance of a click, and τ the factor's standard deviation times c."
    )
    factor = (np.arange(100_000) + 0.5) / 100_000 + 0.5  # uniform, by its quantiles
    for c in (0.4, 0.2):
        of_click, spread = 2 * c * (1 - c), (c * factor).var()
        mistakes = {
            "‖x‖² counts the ones of a row, persona and category.": of_click
            / 2
            / spread,
            "τ belongs to click probabilities, not to factors.": of_click
            / factor.var(),
            "In the rule τ is squared.": of_click / np.sqrt(spread),
        }
        right = of_click / spread
        expect_close(firmness(c), right, hint, within=1e-6, mistakes=mistakes)
    hint = "Hand over shares of the visits, between 0 and 1, one row for each prior."
    expect_close(newcomers, np.full((3, 20), 0.5), hint, within=0.5)
    none, fitting, firmer = np.asarray(newcomers, float).mean(axis=1)
    expect(
        none > fitting >= firmer,
        "The firmer the prior, the narrower the bonus of a newcomer and the more seldom it is shown. Are "
        "the rows in order, and does each begin with the agent as it was when the newcomers came?",
    )


@exercise("ex-frozen-body")
def frozen_body(body: Any, share: ArrayLike) -> None:
    """the body, made for the worlds of seeds 0 to 19, and twenty shares of the oracle in percent."""
    worlds = [ZooplusSimulator(seed=seed) for seed in range(20)]
    users = np.arange(20)
    rows = body.transform(users)
    hint = "`transform` makes 32 units and a one for each of 50 products: (20, 50, 33)."
    expect(np.shape(rows) == (20, 50, 33), hint)
    rows = np.array(rows, float)
    hint = "One feature must be a one: the head needs a constant."
    expect(bool((np.ptp(rows, axis=(0, 1)) < 1e-9).any()), hint)
    hint = "A hidden unit puts out what is left after `max(…, 0)`, never a negative number."
    expect(bool((rows >= 0).all()), hint)
    kept = np.array_equal(rows, body.transform(users))
    expect(kept, "A frozen body gives the same visitor the same rows, whenever asked.")
    _expect_trained(body, worlds)
    hint = "Hand over percentages of the oracle's clicks, one a world."
    expect_close(share, np.full(20, 50), hint, within=50)
    single = [100 * best_product_value(w) / oracle_value(w) for w in worlds]
    mean = np.mean(np.asarray(share, float))
    expect(mean > 1, hint)
    expect(
        mean > np.mean(single),
        "That is no more than the best single product earns. Does the head see the units' outputs, and "
        "does it discount?",
    )


def _expect_trained(body: Any, worlds: Sequence[ZooplusSimulator]) -> None:
    """Expect that the directions in which rows vary most tell much of the click probabilities."""
    hint = "The units do not tell what is clicked from what is not: is the body trained on the log?"
    users = np.arange(40)
    seen = np.array([body.transform(np.full(20, user)) for user in users], float)
    explained = []
    for w, world in enumerate(worlds):
        x = seen[:, w].reshape(-1, 33)
        clicks = true_ctr_matrix(world)[users].ravel()
        directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[0][:, :4]
        clicks = clicks - clicks.mean()
        explained.append(np.sum((directions.T @ clicks) ** 2) / np.sum(clicks**2))
    expect(np.mean(explained) > 0.6, hint)


@exercise("ex-random-candidates")
def random_candidates(chance: Function, visitors: Function) -> None:
    """two functions of the number of products in the line: the chance that one of them is among 25 random
    ones, and the number of visitors, on average, until one is.
    """
    for size in (50, 5, 500):
        missed = comb(5_000 - size, 25) / comb(5_000, 25)
        hint = "What is the chance that a random place misses the line, and that 25 do?"
        mistakes = {
            "That is the chance that the line is not on the list.": missed,
            "Half of the 50 places are filled at random.": 1 - missed**2,
            "Chances of places do not add up: two may hold the line.": size / 200,
        }
        found = 1 - missed
        expect_close(chance(size), found, hint, within=0.004, mistakes=mistakes)
        hint = "Trials are independent: what is the mean of the geometric distribution? It need not be whole."
        mistakes = {"The visitor who sees the line counts, too.": missed / found}
        until, within = visitors(size), 0.005 / found
        expect_close(until, 1 / found, hint, within=within, mistakes=mistakes)


@exercise("ex-hopeful-weights")
def hopeful_weights(query: Function) -> None:
    """a function of a posterior, the visitor's u and the embedding of the full choice that returns the
    query, for α = 1.
    """
    rng = np.random.default_rng(1)
    for n in (3, 20, 200):
        embeddings, u = rng.normal(size=(500, 6)), rng.normal(size=6)
        rows = rng.normal(size=(n, 6))
        posterior = RidgePosterior(6)
        posterior.rebuild(rows, rows @ rng.normal(size=6))
        A = np.eye(6) + rows.T @ rows
        x = u * embeddings
        width = np.sqrt(np.vecdot(x, np.linalg.solve(A, x.T).T))
        bound = x @ posterior.mean + width
        best = bound.argmax()
        asked = query(posterior, u, embeddings[best])
        expect_close(asked, np.zeros(6), "A query has one entry a feature.", within=1e9)
        hint = "The query times the embedding must be the bound. Is x = u∘e in it?"
        move = np.linalg.solve(A, x[best])
        hopeful = posterior.mean + move / width[best]
        mistakes = {
            "The query is u∘θ̃, and these are θ̃.": embeddings[best] @ hopeful,
            "A⁻¹x must be divided by the width.": x[best] @ (posterior.mean + move),
            "That asks for the best prediction only.": x[best] @ posterior.mean,
        }
        found = embeddings[best] @ np.asarray(asked, float)
        expect_close(found, bound[best], hint, within=1e-6, mistakes=mistakes)
        off = np.asarray(asked, float) / u - posterior.mean
        hint = "These weights lie outside the ellipsoid of radius 1: move along A⁻¹x, not along x."
        expect(off @ A @ off < 1 + 1e-6, hint)
        # All of it: within the ellipsoid only the most hopeful weights reach the bound.


@exercise("ex-practice-first-weights")
def first_weights(agent: type[EnsembleAgent], coverage: ArrayLike) -> None:
    """the class of the agent, a subclass of `EnsembleAgent`, and its coverage at the end in twenty worlds."""
    expect_callable(agent, "Hand over the class, not an agent.")
    members = _members(agent)
    rows = np.tile(np.eye(4, dtype=np.float32), (2, 1, 1))
    hint = "The members start alike: their data are to be the same, not their weights."
    expect(members.members(rows).std(axis=1).min() > 1e-6, hint)
    with torch.no_grad():  # now take that difference away: nothing else may part them
        for weights in members.network.parameters():
            of_world = weights.reshape(2, 20, *weights.shape[1:])
            weights.copy_(of_world[:, :1].expand_as(of_world).reshape_as(weights))
    before = members.members(rows)
    _learn(members, np.random.default_rng(0).integers(2, size=120))
    after = members.members(rows)
    expect(np.abs(after - before).max() > 1e-3, "The members do not learn.")
    hint = (
        "Members with the same weights part again while they learn: each still has its own counts of the "
        "rows. Look at what weighs their errors."
    )
    expect(after.std(axis=1).max() < 1e-5, hint)
    hint = "Coverage is a share of the rows, between 0 and 1, one number a world."
    expect_close(coverage, np.full(20, 0.5), hint, within=0.5)


@exercise("ex-practice-masks")
def masks(n_masks: ArrayLike, relative_error: Function) -> None:
    """the number of masks for a relative error of a tenth, and a function of the number of masks that
    returns the relative error of the width in each of twenty worlds.
    """
    hint = "Set the rule 1/√(2T) equal to a tenth and solve for T."
    mistakes = {"Mind the root of the rule.": 5, "Mind the two under the root.": 100}
    expect_close(n_masks, 1 / (2 * 0.1**2), hint, mistakes=mistakes)
    hint = (
        "The rule says otherwise for this number of masks. Compare the standard deviation over masks, not the "
        "variance, with the root of the proposition's formula; is p that of the agent?"
    )
    for few in (8, 32):
        found = relative_error(few)
        shape_hint = "Hand over one relative error a world, none negative."
        expect_close(found, np.full(20, 1.0), shape_hint, within=1.0)
        # Rows of a world share their masks, so a single world's error is itself uncertain.
        rule = 1 / np.sqrt(2 * few)
        expect_close(np.mean(found), rule, hint, within=0.35 * rule)


@exercise("ex-practice-prior")
def prior_for_members(agent: type[EnsembleAgent]) -> None:
    """the class of the agent, a subclass of `EnsembleAgent` whose `members` and scores are of the sums."""
    expect_callable(agent, "Hand over the class, not an agent.")
    members, rows = _members(agent), np.tile(np.eye(4, dtype=np.float32), (2, 1, 1))
    untrained, trained = members.members(rows), EnsembleAgent.members(members, rows)
    prior = untrained - trained
    hint = "`members` returns f alone. Decisions must see the sum, as training does."
    expect(np.abs(prior).max() > 1e-6, hint)
    hint = (
        "Each member needs a prior of its own, three times a network with first weights like its own. Is the "
        "factor 3 there, once?"
    )
    ratio = prior.std(axis=1).mean() / trained.std(axis=1).mean()
    expect(2 < ratio < 4.5, hint)

    clicks = [1, 0, 1]
    _learn(members, np.tile(clicks, 40))
    prior_now = members.members(rows) - EnsembleAgent.members(members, rows)
    hint = "The networks g have changed: copy them, and keep them out of the training."
    expect(np.abs(prior_now - prior).max() < 1e-5, hint)
    hint = (
        "After training the sums do not fit the clicks. The errors that are descended on must be those of "
        "the sum f + 3g."
    )
    sums = members.members(rows)
    expect(np.abs(sums[:, :, :3] - clicks).mean() < 0.2, hint)
    scores = members.scores(_context())
    apart = np.abs(sums[:, :, :3] - scores[:, None]).max(axis=-1).min(axis=-1)
    hint = "A decision must score the arms by the sum of one member, drawn at random."
    expect(apart.max() < 1e-5, hint)


def _members(agent: type[EnsembleAgent]) -> EnsembleAgent:
    """Make a small ensemble: three arms, four features, two worlds, twenty members."""
    shape = {"n_worlds": 2, "n_members": 20, "policy": "thompson", "seed": [0, 1]}
    training = {"train_every": 8, "n_batches": 10, "batch_size": 32}
    return agent(3, 4, learning_rate=0.02, **shape, **training)


def _context() -> Context:
    """Describe three arms by a feature each; the fourth feature is never seen."""
    return Context(np.zeros(2, int), np.broadcast_to(np.eye(4)[:3], (2, 3, 4)))


def _learn(agent: EnsembleAgent, clicks: NDArray) -> None:
    """Show an agent the three arms in turn, with these clicks."""
    for visit, clicked in enumerate(clicks):
        agent.update(_context(), np.full(2, visit % 3), np.full(2, clicked))
