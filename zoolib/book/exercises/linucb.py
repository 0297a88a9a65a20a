"""Judges of the exercises of Chapter 2, "LinUCB: learning while serving"."""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from zoolib.agents import Context, LinUCBAgent
from zoolib.book.exercises.judging import (
    Function,
    answer,
    exercise,
    expect,
    expect_callable,
    expect_close,
    numbers,
)
from zoolib.experiments.arena import run_experiment
from zoolib.world.simulator import CLICK_PROBABILITIES

N_PERSONAS = 4
N_CATEGORIES = 5
N_WORLDS = 20


@exercise("ex-greedy-trap")
def _greedy_trap(start: float, zero_scores: Function) -> None:
    food = 0.40
    toy = 0.50
    hint = "Multiply: the food is clicked, and the toy is not."
    mistakes = {
        "That is the start that favours the toy.": (1 - food) * toy,
        "And the toy is not clicked.": food,
    }
    expect_close(start, food * (1 - toy), hint, mistakes=mistakes)
    for visits, clicks in (
        ([3, 0, 5, 1], [1, 0, 2, 0]),
        ([1, 0, 0, 0], [1, 0, 0, 0]),
        ([7, 2, 0, 4], [0, 0, 0, 0]),
    ):
        n = np.array(visits)
        k = np.array(clicks)
        *persona, category = _ridge_weights(n, k)
        mistakes = {
            "The category has a weight, too.": k / (1 + n),
            "The ridge is missing.": k / np.maximum(n, 1),
            "That is the weight of the persona alone.": persona,
        }
        hint = f"For visits {visits} and clicks {clicks}: the category's weight is in each score, too."
        found = answer(zero_scores, n, k)
        right = np.array(persona) + category
        expect_close(found, right, hint, mistakes=mistakes)


def _ridge_weights(visits: NDArray[np.int64], clicks: NDArray[np.int64]) -> NDArray:
    """Solve the normal equations of one product: a weight for each persona, and one for the category."""
    x = np.column_stack((np.eye(N_PERSONAS), np.ones(N_PERSONAS)))
    rows = x.repeat(visits, axis=0)
    A = np.eye(N_PERSONAS + 1) + rows.T @ rows
    return np.linalg.solve(A, x.T @ clicks)


@exercise("ex-read-state")
def _read_state(read: Function) -> None:
    rng = np.random.default_rng(6)
    for ridge, category in ((1.0, 3), (0.5, 0), (10.0, 4)):
        shown = rng.integers(1, 40, size=N_PERSONAS)
        clicks = rng.binomial(shown, 0.4)
        x = np.zeros((N_PERSONAS, N_PERSONAS + N_CATEGORIES))
        x[:, :N_PERSONAS] = np.eye(N_PERSONAS)
        x[:, N_PERSONAS + category] = 1
        A = ridge * np.eye(x.shape[1]) + x.T @ (shown[:, None] * x)
        b = x.T @ clicks
        mistakes = {
            "The ridge lies on the diagonal of A, too: take it off.": [
                shown + ridge,
                clicks,
            ],
            "The first row is how often it was shown, the second how often clicked.": [
                clicks,
                shown,
            ],
            "The estimate is no number of clicks: b holds them.": [
                shown,
                np.linalg.solve(A, b)[:N_PERSONAS],
            ],
        }
        hint = (
            f"With a ridge of {ridge:g}: evidence on the diagonal, success in b. Two rows are wanted, with "
            "a column for each persona."
        )
        found = answer(read, A, b, ridge)
        expect_close(found, [shown, clicks], hint, mistakes=mistakes)


@exercise("ex-prior")
def _prior(start: Function, same_hope: float) -> None:
    for q, ridge in ((0.21, 1.0), (0.5, 4.0), (0.03, 0.1)):
        mistakes = {
            "That is the mean of the belief: b is the ridge times as large.": np.full(
                9, q / 2
            ),
            "Rows hold two ones, so each entry gives half of the prediction.": np.full(
                9, ridge * q
            ),
            "Of nine entries a row reads two.": np.full(9, ridge * q / 9),
            "The inverse of A divides by the ridge: multiply with it.": np.full(
                9, q / 2 / ridge
            ),
        }
        hint = f"For q = {q} and a ridge of {ridge:g} the inverse of A times b must give q for any two ones."
        found = answer(start, q, ridge)
        expect_close(found, np.full(9, ridge * q / 2), hint, mistakes=mistakes)
    hint = "Set the two first scores equal: the prior's with the new α, and that of α = 0.5 without."
    mistakes = {
        "The width of an untried product is the root of two.": 0.5 - 0.21,
        "The prior adds 0.21 to the score: less hope is needed, not more.": 0.5
        + 0.21 / np.sqrt(2),
        "That is the bonus: divide by the width.": 0.5 * np.sqrt(2) - 0.21,
    }
    right = 0.5 - 0.21 / np.sqrt(2)
    expect_close(same_hope, right, hint, within=0.005, mistakes=mistakes)


@exercise("ex-alpha-edge")
def _alpha_edge(least_alpha: Function, edges: float) -> None:
    hers, theirs = (np.eye(9)[persona] + np.eye(9)[7] for persona in (0, 1))
    for q, n in ((0.55, 0), (0.55, 1), (0.2, 7), (0.08, 200)):
        A = np.eye(9) + n * np.outer(theirs, theirs)
        width = np.sqrt(hers @ np.linalg.inv(A) @ hers)
        mistakes = {
            "The others' looks shrink her width, too: they share the category.": q
            / np.sqrt(2),
            "Those were not her looks: the rows share one of their two ones.": q
            / np.sqrt(2 / (1 + 2 * n)),
            "The width is the root of what A gives.": q / width**2,
            "That is the width: which α lifts it to q?": width,
            "That is the score of α = q.": q * width,
        }
        hint = f"For q = {q} and n = {n}: her prediction is zero, so α times her width must reach q."
        expect_close(answer(least_alpha, q, n), q / width, hint, mistakes=mistakes)
    sigma = np.sqrt(0.005 * 0.995)
    edge = 0.02 / np.sqrt(2)
    mistakes = {
        "σ comes from the click rate of random products.": np.sqrt(0.02 * 0.98) / edge,
        "The edge is where the best known product lies.": sigma * np.sqrt(2) / 0.005,
        "σ is the root of p (1 - p).": sigma**2 / edge,
        "An untried product scores α times the root of two.": sigma / 0.02,
    }
    hint = "Divide σ of a random product's click by the least α for n = 0."
    expect_close(edges, sigma / edge, hint, within=0.05, mistakes=mistakes)


@exercise("ex-mean-update")
def _mean_update(moved_mean: Function) -> None:
    rng = np.random.default_rng(4)
    for d in (2, 6):
        rows = rng.normal(size=(11, d))
        A = np.eye(d) + rows.T @ rows
        b = rng.normal(size=d)
        A_inv = np.linalg.inv(A)
        x = rng.normal(size=d)
        r = rng.normal()
        mean = A_inv @ b
        u = A_inv @ x
        step = r - x @ mean
        width = x @ u
        mistakes = {
            "Subtract what was predicted.": mean + r / (1 + width) * u,
            "The denominator is missing.": mean + step * u,
            "The denominator is 1 plus the squared width.": mean + step / width * u,
            "The direction is u, not x.": mean + step / (1 + width) * x,
            "The sign of the surprise is turned.": mean - step / (1 + width) * u,
            "That is the step alone: add it to the old mean.": step / (1 + width) * u,
            "You divide twice.": mean + step / (1 + width) ** 2 * u,
        }
        hint = "Compare with the theorem, factor by factor: the direction, the surprise, the denominator."
        right = np.linalg.solve(A + np.outer(x, x), b + r * x)
        found = answer(moved_mean, A_inv, mean, x, r)
        expect_close(found, right, hint, within=1e-8, mistakes=mistakes)


@exercise("ex-coverage")
def _coverage(found: Function) -> None:
    cases = [(n, p) for p in (0.05, 0.5) for n in (5, 20, 200)]
    hint = f"x holds two ones, λ is 1, and the interval reaches two σ w(x) to each side. Compared: {cases}."

    def exact(**mistake: float) -> list[float]:
        return [_exact_coverage(n, p, **mistake) for n, p in cases]

    mistakes = {
        "One width to each side is too short: take two.": exact(widths=1),
        "Fewer than 10,000 runs, or the ridge is missing.": exact(ridge=1e-9),
        "The root of the squared width is missing.": exact(power=1),
        "σ is the root of p (1 - p).": exact(noise_power=1),
        "The width is in units of σ: multiply.": exact(noise_power=0),
        "x holds two ones.": exact(ones=1),
    }
    shares = [numbers(answer(found, n, p), (), hint) for n, p in cases]
    expect_close(shares, exact(), hint, within=0.02, mistakes=mistakes)


def _exact_coverage(
    n: int, p: float, widths=2, ridge=1, power=0.5, noise_power=0.5, ones=2
) -> float:
    """Add up the probabilities of the numbers of clicks for which the interval contains p."""
    clicks = np.arange(n + 1)
    squared_width = np.linalg.inv(ridge * np.eye(ones) + n).sum()  # x holds ones only
    sigma = (p * (1 - p)) ** noise_power
    inside = np.abs(clicks * squared_width - p) <= widths * sigma * squared_width**power
    return float(stats.binom.pmf(clicks, n, p)[inside].sum())


@exercise("ex-own-agent")
def _own_agent(agent: Function, regrets: ArrayLike) -> None:
    expect_callable(agent, "Hand over the class, not an object of it.")
    n_explore = 1_000
    played = agent(n_explore)
    for method in ("select", "update"):
        expect(hasattr(played, method), f"The agent needs a method {method}.")
    arms = [_play(played, step % N_PERSONAS, step) for step in range(n_explore)]
    least, most = np.sort(np.bincount(arms, minlength=N_ARMS))[[0, -1]]
    hint = f"In {n_explore} visits all products are equally likely; yours were shown {least} to {most} times."
    # Each of 50 products is expected 20 times; five standard deviations more are not.
    expect(least > 0 and most < 20 + 5 * np.sqrt(20), hint)
    for persona in range(N_PERSONAS):
        categories = {_CATEGORY[_play(played, persona, step)] for step in range(200)}
        hint = "Then show each persona the category with most clicks per visit of this persona."
        if categories == {_OFTEN}:
            hint = "That is the category with the most clicks: divide by the visits."
        elif len(categories) > 1:
            hint = f"After {n_explore} visits commit: a persona was shown several categories."
        expect(categories == {_BEST[persona]}, hint)
    _judge_regrets(regrets)


# A shop without chance: for each persona, a category of four products is always clicked, and another one,
# of 22, every third time, so that it has more clicks per category and fewer per visit.
N_ARMS = 50
_CATEGORY = np.repeat(np.arange(N_CATEGORIES), [4, 22, 4, 4, 16])
_BEST = (0, 2, 3, 0)
_OFTEN = 1


def _play(agent: Any, persona: int, step: int) -> int:
    """Let an agent choose for a persona, and learn what this shop answers."""
    is_persona = np.tile(np.eye(N_PERSONAS)[persona], (N_ARMS, 1))
    features = np.hstack((is_persona, np.eye(N_CATEGORIES)[_CATEGORY]))
    context = Context(persona, features)
    arm = int(agent.select(context))
    often = _CATEGORY[arm] == _OFTEN and step // N_PERSONAS % 3 == 0
    agent.update(context, arm, int(_CATEGORY[arm] == _BEST[persona] or often))
    return arm


def _judge_regrets(regrets: ArrayLike) -> None:
    """Bound mean regrets from below by what random visits give up, less ten standard errors."""
    hint = "Two rows are wanted, 2,000 random visits and 200, of one number per world."
    means = numbers(regrets, (2, N_WORLDS), hint).mean(axis=1)
    table = np.array([list(taste.values()) for taste in CLICK_PROBABILITIES.values()])
    gaps = table.max(axis=1, keepdims=True) - table
    for mean, n_random in zip(means, (2_000, 200), strict=True):
        least = n_random * gaps.mean() - 10 * gaps.std() * np.sqrt(n_random / N_WORLDS)
        hint = (
            f"With {n_random} random visits a mean regret of {mean:.0f} cannot be: add up the expected clicks "
            "given up over 10,000 steps, and hand over the 2,000 visits first."
        )
        expect(least < mean < 10_000 * gaps.mean(), hint)


@exercise("ex-tooth")
def _tooth(tooth: Function, price: float) -> None:
    for alpha, gamma, s in ((0.35, 0.997, 0.58), (0.5, 0.99, 0.8), (1.0, 0.999, 0.4)):
        fades = np.log(1 / gamma)
        left = (alpha / s) ** 2
        right = np.log((1 + left) / left) / fades
        mistakes = {
            "The look is added to what was left of the others.": np.log(1 / left)
            / fades,
            "The score falls with the root of n.": np.log(1 + s / alpha) / fades,
            "γ fades n itself; the width grows by its root.": 2 * right,
            "The width grows by one over the root of γ only.": right / 2,
        }
        hint = f"For α = {alpha}, γ = {gamma}, s = {s}: how large is n before the look, and how large after it?"
        found = answer(tooth, alpha, gamma, s)
        # A whole number of plays will do.
        expect_close(found, right, hint, within=1, mistakes=mistakes)
    hint = (
        "Multiply: what one look gives up, and how many looks fall into 1,000 visits."
    )
    mistakes = {
        "That is what one look gives up.": 0.53,
        "That is the price of one visit.": 0.53 / 1_760,
        "A look gives up the difference of the two chances.": 550 / 1_760,
    }
    expect_close(price, 530 / 1_760, hint, within=0.005, mistakes=mistakes)


@exercise("ex-price-forgetting")
def _price_forgetting(late_share: Function) -> None:
    seeds = [3, 1]
    n_steps = 120

    def shares(discount: float, start: int = 60, alpha: float = 0.35) -> NDArray:
        """Play the worlds one by one, and add up the clicks."""
        found = []
        for seed in seeds:
            agent = LinUCBAgent(50, 9, alpha=alpha, discount=discount, n_worlds=1)
            history = run_experiment([agent], [seed], n_steps, progress=False)
            earned = history.expected_reward[0, 0]
            best = history.optimal_reward[0, 0]
            found.append(sum(earned[start:]) / sum(best[start:]))
        return np.array(found)

    for discount in (1.0, 0.9):
        right = shares(discount)
        mistakes = {
            "Take the second half of the steps.": partial(shares, discount, start=0),
            "No discount: hand it to the agent.": partial(shares, 1.0),
            "That is another α: 0.35 is wanted.": partial(shares, discount, alpha=1.0),
            "The numbers come in the order of the seeds.": right[::-1],
        }
        hint = f"With discount {discount}: α = 0.35 in calm worlds, clicks over the oracle's, second half only."
        found = answer(late_share, discount, seeds, n_steps)
        expect_close(found, right, hint, mistakes=mistakes)
