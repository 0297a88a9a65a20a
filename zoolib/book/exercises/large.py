"""Judges of the exercises of Chapter 5, "Large catalogues and large networks"."""

from __future__ import annotations

import numpy as np
import torch
from scipy import stats
from torch import nn

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


@exercise("ex-cells")
def _cells(comparisons: Function, looks: Function) -> None:
    for n, cells, m in ((10_000, 200, 10), (500_000, 1_000, 5)):
        right = cells + m * n / cells
        mistakes = {
            "The query is compared with the signs, too.": right - cells,
            "Each of the m shelves holds K / C products.": cells + n / cells,
            "Only the products of m shelves are compared.": n,
        }
        hint = "With how many signs and how many products is the query compared?"
        found = answer(comparisons, n, cells, m)
        expect_close(found, right, hint, within=0.01 * right, mistakes=mistakes)
        for allowed in (right, right + 0.5 * n / cells):
            mistakes = {
                "The signs use up C of the comparisons.": allowed * cells // n,
                "One shelf more takes more comparisons than are allowed.": m + 1,
                "Whole shelves only: round down.": m + 0.5,
            }
            hint = "Which m solves C + m K / C = allowed?"
            found = answer(looks, n, cells, allowed)
            expect_close(found, m, hint, within=1e-6, mistakes=mistakes)


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
    for products, n, s, width, nu in (
        (1_000_000, 250, 0.19, 0.22, 1),
        (100_000, 50, 0.3, 0.2, 0.5),
        (20_000, 100, 0.1, 0.5, 2),
    ):
        times = stats.norm.isf(n / products)
        begins = times * np.sqrt(s**2 + nu**2 * width**2)
        right = stats.norm.sf(begins / nu)
        mistakes = {
            "That is the probability that the list leaves them out.": 1 - right,
            "That is where a list by the mean begins: drawn weights are longer.": stats.norm.sf(
                times * s / nu
            ),
            "The draw's scale ν widens the predictions, too.": stats.norm.sf(
                times * np.hypot(s, width) / nu
            ),
            "The glow's weight has the standard deviation ν.": stats.norm.sf(begins),
            "Variances add up, not standard deviations.": stats.norm.sf(
                times * (s + nu * width) / nu
            ),
        }
        hint = "Where do the best n begin, and which standard normal number must be exceeded?"
        found = answer(by_draw, products, n, s, width, nu)
        expect_close(found, right, hint, within=0.005 * right, mistakes=mistakes)


@exercise("ex-deadlock")
def _deadlock(refuses_from: Function) -> None:
    """Find when the ball's bound has fallen to the mouse's rate."""
    for ball, mouse in ((0.1, 0.3), (0.05, 0.5), (0.2, 0.25)):
        right = _refused_from(ball, mouse)
        mistakes = {
            "The width is a root: 1 / √(1 + n).": _refused_from(ball, mouse, power=1),
            "The ridge shrinks the ball's mean to n/(1 + n) of its rate.": _refused_from(
                ball, mouse, shrunk=False
            ),
            "That is the last n with which it is shown.": right - 1,
            "The ball's mean is a part of its bound, too.": _refused_from(0, mouse),
        }
        hint = "From which n on is the ball's bound no larger than the mouse's rate?"
        found = answer(refuses_from, ball, mouse)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


def _refused_from(
    ball: float, mouse: float, shrunk: bool = True, power: float = 0.5
) -> int:
    """Count the looks after which the ball's bound is no larger than the mouse's rate."""
    n = 0
    while True:
        mean = ball * n / (1 + n) if shrunk else ball
        if mean + (1 + n) ** -power <= mouse:
            return n
        n += 1


@exercise("ex-two-clocks")
def _two_clocks(news: Function) -> None:
    """Ask a head that listens and one that waits, before and after the window has filled."""
    for t, shock, every, newest in (
        (3_500, 2_500, 1_000, 3_000),
        (4_700, 2_500, 1_000, 1_000),
        (800, 300, 1_000, 3_000),
        (5_200, 2_500, 500, 2_000),
    ):
        rebuilt = t // every * every
        begins = max(0, rebuilt - newest)
        for waits in (False, True):
            ends = rebuilt if waits else t
            slid = max(0, ends - newest)
            mistakes = {
                "A head that listens has learnt the clicks since the rebuild, too; one that waits has "
                "not.": _younger(shock, begins, t if waits else rebuilt),
                "The window stands still from one rebuild to the next.": _younger(
                    shock, slid, ends
                ),
                "A rebuild forgets all but the newest notes.": _younger(shock, 0, ends),
                "That is the share of old notes.": 1 - _younger(shock, begins, ends),
            }
            hint = f"With waits={waits}: from which visit to which are the notes that it has learnt?"
            found = answer(news, t, shock, every, newest, waits)
            right = _younger(shock, begins, ends)
            expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


def _younger(shock: int, begins: int, ends: int) -> float:
    """Return which share of the notes from one visit to another is younger than a shock."""
    return max(0, ends - max(begins, shock)) / max(1, ends - begins)


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
def _prior_for_members(member: type[nn.Module]) -> None:
    """Zero all that training moves: three times the first network must be left."""
    expect_callable(member, "Hand over the class, not a network.")
    one, other = member(seed=1), member(seed=2)
    rows = torch.eye(9)
    first = one(rows)
    expect(
        isinstance(first, torch.Tensor) and first.shape == (9, 1),
        "For rows (n, 9) a member returns predictions (n, 1).",
    )
    hint = "Members with different seeds must begin differently."
    expect(bool((first - other(rows)).abs().max() > 1e-6), hint)
    first.sum().backward()
    moved = [part for part in one.parameters() if part.grad is not None]
    expect(bool(moved), "The network f must be trained.")
    with torch.no_grad():
        for part in moved:
            part.zero_()
        prior = one(rows)
    hint = "The network g is trained as well: keep its weights out of the training."
    expect(bool(prior.abs().max() > 1e-6), hint)
    hint = "g must be a copy of f's first weights, not f itself or another network, and come in three times."
    expect(bool((prior - 0.75 * first).abs().max() < 1e-4), hint)
