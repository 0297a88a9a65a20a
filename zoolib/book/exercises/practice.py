"""Judges of the exercises of Chapter 4, "Contextual bandits in practice"."""

from __future__ import annotations

from math import comb
from typing import Any

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from scipy.special import ndtr

from zoolib.agents import Context, EnsembleAgent
from zoolib.book.exercises.judging import (
    Function,
    answer,
    exercise,
    expect,
    expect_callable,
    expect_close,
    numbers,
)
from zoolib.experiments.evaluation import best_product_value, oracle_value
from zoolib.models.posterior import RidgePosterior
from zoolib.world.simulator import ZooplusSimulator, true_ctr_matrix

ROWS = np.tile(np.eye(4, dtype=np.float32), (2, 1, 1))  # for a small ensemble


@exercise(
    "ex-trap-bonus",
    wanted="two functions: of A⁻¹ (9, 9), u (4,) and p (5,), returning the term; and of a table of counts "
    "(4, 5), one row per persona, returning the disagreement",
)
def _trap_bonus(mixed_term: Function, disagreement: Function) -> None:
    """Take the squared widths of u and of p alone off that of both; solve for the widths of a table."""
    rng = np.random.default_rng(0)
    root, u, p = rng.normal(size=(9, 9)), rng.normal(size=4), rng.normal(size=5)
    A_inv, x = root @ root.T, np.zeros((3, 9))
    x[[0, 1], :4], x[[0, 2], 4:] = u, p
    both, of_u, of_p = np.vecdot(x, x @ A_inv)
    mixed = both - of_u - of_p
    mistakes = {"Two of the four blocks join u and p.": mixed / 2}
    hint = "Multiply x = (u, p) out with the four blocks of A⁻¹. Which of them join u and p?"
    expect_close(answer(mixed_term, A_inv, u, p), mixed, hint, mistakes=mistakes)

    even, one_persona = np.full((4, 5), 20), np.repeat([20, 0, 0, 0], 5).reshape(4, 5)
    hint = "Where all cells are equally full, personas do not disagree at all."
    expect_close(answer(disagreement, even), 0, hint)
    hint = "If one persona alone has come, its widths are smaller, all by the same. Take each mean width off."
    expect_close(answer(disagreement, one_persona), 0, hint)
    uneven = rng.integers(1, 40, size=(4, 5))
    x = np.hstack((np.repeat(np.eye(4), 5, axis=0), np.tile(np.eye(5), (4, 1))))
    A = np.eye(9) + (x.T * uneven.ravel()) @ x
    squared = np.vecdot(x, np.linalg.solve(A, x.T).T).reshape(4, 5)

    def gaps(width: NDArray, axis: int = 0) -> NDArray:
        return np.ptp(width - width.mean(axis=1, keepdims=True), axis=axis)

    between, across = gaps(np.sqrt(squared)), gaps(np.sqrt(squared), axis=1)
    mistakes = {
        "A width is the root of xᵀA⁻¹x.": gaps(squared).max(),
        "Compare two personas in one category, not two categories.": across.max(),
        "The largest gap of the five is wanted, not their mean.": between.mean(),
    }
    hint = "Is the ridge of 1 in A, and are the rows of the table personas?"
    found = answer(disagreement, uneven)
    expect_close(found, between.max(), hint, mistakes=mistakes)


@exercise(
    "ex-batch-draws",
    wanted="two functions of two means and two standard deviations: the probability that a visit sees the "
    "second product; and, with the number of visits as third argument, that it is never seen in the batch",
)
def _batch_draws(share: Function, never: Function) -> None:
    """Integrate over the first product's draw on a fine grid."""
    z = np.linspace(-9, 9, 20_001)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    for mean, deviation in (((0.5, 0.4), (0.1, 0.1)), ((0.2, 0.5), (0.3, 0.4))):
        above = ndtr((mean[1] - mean[0] - deviation[0] * z) / deviation[1])
        second, gap = density @ above, mean[1] - mean[0]
        mistakes = {
            "That is the probability of the first product.": 1 - second,
            "The variances add up, not the deviations.": ndtr(gap / sum(deviation)),
            "Divide by the deviation of the difference, the root of its variance.": ndtr(
                gap / np.sum(np.square(deviation))
            ),
        }
        hint = "When is the second draw above the first? Their difference is normal."
        found = answer(share, mean, deviation)
        expect_close(found, second, hint, within=1e-6, mistakes=mistakes)
        for n_visits in (1, 20):
            missed = (1 - second) ** n_visits
            mistakes = {"That is the chance that it is seen at least once.": 1 - missed}
            hint = "Draws of different visits are independent: multiply."
            found = answer(never, mean, deviation, n_visits)
            expect_close(found, missed, hint, within=1e-6, mistakes=mistakes)


@exercise(
    "ex-random-features",
    wanted="a function of rank and seed that returns the predicted share of the variance of one trial",
)
def _random_features(predicted_share: Function) -> None:
    found = []
    for rank, low, high, hint in (
        (20, 0.9, 1, "Fifty directions see all of 20. Are rows and rewards paired?"),
        (100, 0.3, 0.8, "Fifty directions see about half of 100, in which rows vary."),
        (500, -0.1, 0.3, "Fifty directions see little of 500: learn on short rows."),
    ):
        for seed in range(3):
            share = answer(predicted_share, rank, seed)
            found.append(float(numbers(share, (), hint, low=low, high=high)))
    expect(len(set(found)) == len(found), "Another seed must be another trial.")


@exercise(
    "ex-firm",
    wanted="a function of the click probability that returns λ, and an array (3, 20): the share of visits in "
    "which newcomers are shown, in twenty worlds, without a prior, with the λ for 0.4, and with 50",
)
def _firm(firmness: Function, newcomers: ArrayLike) -> None:
    """Take the variances of a click and of a uniform factor's product by its quantiles."""
    factor = (np.arange(100_000) + 0.5) / 100_000 + 0.5

    for c in (0.4, 0.2):
        of_click, spread = 2 * c * (1 - c), (c * factor).var()
        mistakes = {
            "‖x‖² counts the ones of a row, persona and category.": of_click / spread / 2,
            "τ belongs to click probabilities, not to factors.": of_click / factor.var(),
            "In the rule τ is squared.": of_click / np.sqrt(spread),
        }  # fmt: skip
        hint = "σ² is the variance of a click, τ the standard deviation of the factor times c."
        right, found = of_click / spread, answer(firmness, c)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)
    hint = "Hand over shares of the visits, between 0 and 1, one row for each prior."
    shares = numbers(newcomers, (3, 20), hint, low=0, high=1)
    none, fitting, firmer = shares.mean(axis=1)
    hint = (
        "The firmer the prior, the narrower the bonus of a newcomer and the more seldom it is shown. Are "
        "the rows in order, and does each begin with the agent as it was when the newcomers came?"
    )
    expect(none > fitting >= firmer, hint)


@exercise(
    "ex-cap-price",
    wanted="a function of a table of click rates (4, 5) and of the cap: the lost part of the best clicks",
)
def _cap_price(price: Function) -> None:
    """Place the visits by linear programming."""
    rng = np.random.default_rng(0)
    for cap in (1, 0.5, 0.45, 0.25, 0.2):
        table = rng.random((4, 5))
        best = table.max(axis=1).sum()
        clicks = sum(
            -linprog(-row, A_eq=np.ones((1, 5)), b_eq=[1], bounds=(0, cap)).fun
            for row in table
        )
        of_two = np.sort(table, axis=1)[:, -2:].mean(axis=1).sum()
        mistakes = {
            "That is what is left, not what is lost.": clicks / best,
            "The cap may be another than one half.": 1 - of_two / best,
            "Visits beyond the cap go to the next best category; they are not lost.": 1
            - cap,
            "The loss is a part of the best clicks of all personas.": best - clicks,
            "Caps hold for each persona, not for all of them together.": 1
            - clicks / (4 * table.max()),
        }
        hint = "Fill each persona's best category up to the cap, then the second best, until all are placed."
        lost = 1 - clicks / best
        found = answer(price, table, cap)
        expect_close(found, lost, hint, within=1e-6, mistakes=mistakes)


@exercise(
    "ex-frozen-body",
    wanted="the body, made for the worlds of seeds 0 to 19, and twenty shares of the oracle in percent",
)
def _frozen_body(body: Any, share: ArrayLike) -> None:
    """Expect that the directions in which rows vary most tell much of the click probabilities."""
    worlds, users = [ZooplusSimulator(seed=seed) for seed in range(20)], np.arange(20)
    hint = "`transform` makes 32 units and a one for each of 50 products: (20, 50, 33)."
    rows = numbers(np.array(body.transform(users)), (20, 50, 33), hint)
    hint = "One feature must be a one: the head needs a constant."
    expect((np.ptp(rows, axis=(0, 1)) < 1e-9).any(), hint)
    hint = "A hidden unit puts out what is left after `max(…, 0)`, never a negative number."
    expect((rows >= 0).all(), hint)
    kept = np.array_equal(rows, body.transform(users))
    expect(kept, "A frozen body gives the same visitor the same rows, whenever asked.")

    users, explained = np.arange(40), []
    seen = np.array([body.transform(np.full(20, user)) for user in users], float)
    for w, world in enumerate(worlds):
        x = seen[:, w].reshape(-1, 33)
        clicks = true_ctr_matrix(world)[users].ravel()
        directions = np.linalg.svd(x - x.mean(axis=0), full_matrices=False)[0][:, :4]
        clicks = clicks - clicks.mean()
        explained.append(np.sum((directions.T @ clicks) ** 2) / np.sum(clicks**2))
    hint = "The units do not tell what is clicked from what is not: is the body trained on the log?"
    expect(np.mean(explained) > 0.6, hint)

    hint = "Hand over percentages of the oracle's clicks, one per world."
    mean = numbers(share, (20,), hint, low=0, high=100).mean()
    expect(mean > 1, hint)
    single = [100 * best_product_value(w) / oracle_value(w) for w in worlds]
    hint = "This is no better than the best single product. Does the head see the units, and does it discount?"
    expect(mean > np.mean(single), hint)


@exercise(
    "ex-random-candidates",
    wanted="two functions of the number of products in the line: the chance that one is among 25 random "
    "ones, and the number of visitors, on average, until one is",
)
def _random_candidates(chance: Function, visitors: Function) -> None:
    for size in (50, 5, 500):
        missed = comb(5_000 - size, 25) / comb(5_000, 25)  # the lists without the line
        on_list, until = 1 - missed, 1 / (1 - missed)
        mistakes = {
            "That is the chance that the line is not on the list.": missed,
            "Half of the 50 places are filled at random.": 1 - missed**2,
            "Chances of places do not add up: two may hold the line.": size / 200,
        }
        hint = "What is the chance that a random place misses the line, and that 25 do?"
        found = answer(chance, size)
        expect_close(found, on_list, hint, within=0.004, mistakes=mistakes)
        mistakes = {"The visitor who sees the line counts, too.": until - 1}
        hint = "Trials are independent: what is the mean of the geometric distribution? It need not be whole."
        found, within = answer(visitors, size), 0.005 * until
        expect_close(found, until, hint, within=within, mistakes=mistakes)


@exercise(
    "ex-hopeful-weights",
    wanted="a function of a posterior, the visitor's u and the embedding of the full choice that returns the "
    "query, for α = 1",
)
def _hopeful_weights(query: Function) -> None:
    """Of all weights in the ellipsoid, only the most hopeful ones reach the bound."""
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
        asked = answer(query, posterior, u, embeddings[best])
        asked = numbers(asked, (6,), "A query has one entry per feature.")
        move = np.linalg.solve(A, x[best])
        hopeful = posterior.mean + move / width[best]
        mistakes = {
            "The query is u∘θ̃, and these are θ̃.": embeddings[best] @ hopeful,
            "A⁻¹x must be divided by the width.": x[best] @ (posterior.mean + move),
            "That asks for the best prediction only.": x[best] @ posterior.mean,
        }
        hint = "The query times the embedding must be the bound. Is x = u∘e in it?"
        found = embeddings[best] @ asked
        expect_close(found, bound[best], hint, within=1e-6, mistakes=mistakes)
        off = asked / u - posterior.mean
        hint = "These weights lie outside the ellipsoid of radius 1: move along A⁻¹x, not along x."
        expect(off @ A @ off < 1 + 1e-6, hint)


@exercise(
    "ex-practice-first-weights",
    wanted="the class of the agent, a subclass of `EnsembleAgent`, and its final coverage in twenty worlds",
)
def _first_weights(agent: type[EnsembleAgent], coverage: ArrayLike) -> None:
    """Give all members the same weights: then nothing else may part them."""
    members = _members(agent)
    hint = "The members start alike: their data are to be the same, not their weights."
    expect(members.members(ROWS).std(axis=1).min() > 1e-6, hint)
    with torch.no_grad():
        for weights in members.network.parameters():
            weights.copy_(weights[:, :1].expand_as(weights))
    before = members.members(ROWS)
    _learn(members, np.random.default_rng(0).integers(2, size=120))
    after = members.members(ROWS)
    expect(np.abs(after - before).max() > 1e-3, "The members do not learn.")
    hint = "Members with the same weights part again: each still has its own counts of the rows in its errors."
    expect(after.std(axis=1).max() < 1e-5, hint)
    hint = "Coverage is a share of the rows, between 0 and 1, one number per world."
    numbers(coverage, (20,), hint, low=0, high=1)


@exercise(
    "ex-practice-masks",
    wanted="the number of masks for a relative error of a tenth, and a function of the number of masks that "
    "returns the relative error of the width in each of twenty worlds",
)
def _masks(n_masks: ArrayLike, relative_error: Function) -> None:
    """Rows of a world share their masks, so a single world's error is uncertain, and the mean is judged."""
    hint = "Set the rule 1/√(2T) equal to a tenth and solve for T."
    mistakes = {"Mind the root of the rule.": 5, "Mind the two under the root.": 100}
    expect_close(n_masks, 50, hint, mistakes=mistakes)
    hint = (
        "The rule says otherwise for this number of masks. Compare the standard deviation over masks, not the "
        "variance, with the root of the proposition's formula; is p that of the agent?"
    )
    for few in (8, 32):
        shape_hint = "Hand over one relative error per world, none negative."
        found = answer(relative_error, few)
        mean = numbers(found, (20,), shape_hint, low=0, high=2).mean()
        rule = 1 / np.sqrt(2 * few)
        expect(abs(mean - rule) < 0.35 * rule, hint)


@exercise(
    "ex-practice-prior",
    wanted="the class of the agent, a subclass of `EnsembleAgent` whose `members` and scores are of the sums",
)
def _prior_for_members(agent: type[EnsembleAgent]) -> None:
    """Tell the networks g by what the members say more than the library's."""
    members = _members(agent)
    untrained, trained = members.members(ROWS), EnsembleAgent.members(members, ROWS)
    prior = untrained - trained
    hint = "`members` returns f alone. Decisions must see the sum, as training does."
    expect(np.abs(prior).max() > 1e-6, hint)
    hint = "Each member needs a prior like its own first weights, three times. Is the factor 3 there, once?"
    expect(2 < prior.std(axis=1).mean() / trained.std(axis=1).mean() < 4.5, hint)

    clicks = [1, 0, 1]
    _learn(members, np.tile(clicks, 40))
    prior_now = members.members(ROWS) - EnsembleAgent.members(members, ROWS)
    hint = "The networks g have changed: copy them, and keep them out of the training."
    expect(np.abs(prior_now - prior).max() < 1e-5, hint)
    sums = members.members(ROWS)[:, :, :3]
    hint = "After training the sums do not fit the clicks: descend on the errors of the sum f + 3g."
    expect(np.abs(sums - clicks).mean() < 0.2, hint)
    scores = members.scores(_context())
    apart = np.abs(sums - scores[:, None]).max(axis=-1).min(axis=-1)
    hint = "A decision must score the arms by the sum of one member, drawn at random."
    expect(apart.max() < 1e-5, hint)


def _members(agent: type[EnsembleAgent]) -> EnsembleAgent:
    """Make a small ensemble: three arms, four features, two worlds, twenty members."""
    expect_callable(agent, "Hand over the class, not an agent.")
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
