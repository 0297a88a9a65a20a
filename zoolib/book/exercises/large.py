"""Judges of the exercises of Chapter 5, "Large catalogues and large networks"."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray
from scipy import stats

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
from zoolib.models.posterior import RidgePosterior

ROWS = np.tile(np.eye(4, dtype=np.float32), (2, 1, 1))  # for a small ensemble


@exercise("ex-cells")
def _cells(multiplications: Function, fewest: Function) -> None:
    for n, cells, probes, d in ((10_000, 200, 10, 8), (500_000, 1_000, 5, 64)):
        vectors = cells + probes * n / cells
        mistakes = {
            "The query is compared with the centres, too.": (vectors - cells) * d,
            "Each of the m cells holds K / C products.": (cells + n / cells) * d,
            "Each comparison takes d multiplications.": vectors,
            "Only the products of m cells are compared.": n * d,
        }
        hint = "With how many vectors of length d is the query compared?"
        found = answer(multiplications, n, cells, probes, d)
        right = vectors * d
        expect_close(found, right, hint, within=0.01 * right, mistakes=mistakes)
        mistakes = {"That is right for one probe only.": np.sqrt(n)}
        hint = "Where does the derivative by C vanish?"
        found = answer(fewest, n, probes)
        expect_close(found, np.sqrt(probes * n), hint, within=1, mistakes=mistakes)


@exercise("ex-hopeful-weights")
def _hopeful_weights(query: Function) -> None:
    """Of all weights in the ellipsoid, only the most hopeful ones reach the bound."""
    rng = np.random.default_rng(1)
    for n in (3, 20, 200):
        embeddings = rng.normal(size=(500, 6))
        u = rng.normal(size=6)
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


@exercise("ex-chance")
def _chance(by_chance: Function, by_draw: Function) -> None:
    for products, glowing, places in (
        (1_000_000, 5, 250),
        (5_000, 50, 25),
        (90, 40, 3),
    ):
        none = (1 - glowing / products) ** places
        mistakes = {
            "That is the probability that nothing on the list glows.": none,
            "That is how many glow on average.": places * glowing / products,
            "That is the probability of a single place.": glowing / products,
        }
        hint = "With which probability do all places miss?"
        found = answer(by_chance, products, glowing, places)
        expect_close(found, 1 - none, hint, within=0.03 * (1 - none), mistakes=mistakes)
    for begins, nu, ridge in ((0.75, 1, 1), (0.6, 0.5, 1), (0.5, 1, 4), (0.3, 2, 0.5)):
        right = stats.norm.sf(begins * np.sqrt(ridge) / nu)
        mistakes = {
            "That is the probability that the list leaves them out.": 1 - right,
            "The weight's variance is ν²/λ: divide by its root.": stats.norm.sf(
                begins * ridge / nu**2
            ),
            "The draw's scale ν and λ count, too.": stats.norm.sf(begins),
        }
        hint = "Which standard normal number must be exceeded?"
        found = answer(by_draw, begins, nu, ridge)
        expect_close(found, right, hint, within=0.01 * right, mistakes=mistakes)


@exercise("ex-members")
def _one_draw_more(coverage: Function, multiple: Function) -> None:
    """Divide the truth's distance from the members' mean by its spread: that is Student's t."""
    for n in (5, 10, 30):
        # Of each answer: the degrees of freedom, and how many widths a t of one is.
        right = n - 1, np.sqrt((n + 1) / (n - 1))
        mistakes = {
            "The width is itself estimated, from few members: take Student's t, not the normal "
            "distribution.": (np.inf, right[1]),
            "The mean of the members is uncertain, too.": (n - 1, np.sqrt(n / (n - 1))),
            "The width divides by M, not by M - 1.": (n - 1, np.sqrt(1 + 1 / n)),
            "The mean takes one degree of freedom.": (n, right[1]),
            "The factor is the other way round.": (n - 1, 1 / right[1]),
        }
        hint = f"For M = {n}: how do the truth minus the members' mean, and the width, vary?"
        wrong = {its_hint: _covered(*one) for its_hint, one in mistakes.items()}
        found = answer(coverage, n)
        expect_close(found, _covered(*right), hint, within=1e-3, mistakes=wrong)
        hint = f"For M = {n}: which t leaves 2.5 percent on each side, and how many widths is it?"
        wrong = {its_hint: _reach(*one) for its_hint, one in mistakes.items()}
        found = answer(multiple, n)
        expect_close(found, _reach(*right), hint, within=5e-3, mistakes=wrong)


def _covered(freedom: float, factor: float) -> float:
    """Return how often a draw from Student's t, times a factor, lies within 1.96."""
    return 1 - 2 * stats.t.sf(1.96 / factor, freedom)


def _reach(freedom: float, factor: float) -> float:
    """Return within what a draw from Student's t, times a factor, lies in 95 of 100 cases."""
    return factor * stats.t.isf(0.025, freedom)


@exercise("ex-practice-prior")
def _prior_for_members(agent: type[EnsembleAgent]) -> None:
    """Tell the networks g by what the members say more than the library's."""
    members = _members(agent)
    untrained = members.members(ROWS)
    trained = EnsembleAgent.members(members, ROWS)
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

    alone = agent(3, 4, n_members=4, policy="thompson", seed=0)
    scores = alone.scores(Context(0, np.eye(4)[:3]))
    apart = np.abs(alone.members(ROWS[0])[:, :3] - scores).max(axis=-1)
    hint = "A single world has no worlds axis: there, too, a decision scores by one member."
    expect(apart.min() < 1e-5, hint)


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
