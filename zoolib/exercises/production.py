"""Judges of the exercises of Chapter 5, "A bandit behind the counter"."""

from __future__ import annotations

from collections.abc import Callable
from itertools import product
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from zoolib.exercises.judging import exercise, expect, expect_close
from zoolib.monitoring import Monitor, at_least, counts
from zoolib.service import BanditService
from zoolib.simulator import ZooplusSimulator

Function = Callable[..., Any]


@exercise("ex-plus-one")
def plus_one(growth: Function) -> None:
    """a function of the importance weights (n,) that returns four numbers: by how much IPS, SNIPS, DM and DR
    grow.
    """
    rng, row = np.random.default_rng(0), np.arange(40)
    arm, clicked = rng.integers(3, size=40), rng.integers(2, size=40)
    target, model = rng.dirichlet(np.ones(3), size=40), rng.random((40, 3))
    weights = target[row, arm] / rng.uniform(0.1, 0.9, size=40)

    def estimates(reward: NDArray, model: NDArray) -> NDArray:
        weighted = weights * reward
        promised = (target * model).sum(axis=1)
        corrected = promised + weights * (reward - model[row, arm])
        terms = (weighted, weighted / weights.mean(), promised, corrected)
        return np.mean(terms, axis=1)

    wanted = estimates(clicked + 1, model + 1) - estimates(clicked, model)
    found = growth(weights)
    hint = "Hand over one number for each of IPS, SNIPS, DM and DR, in this order."
    expect_close(found, wanted, hint, within=np.inf)
    hint = "IPS: put r + 1 for r into the sum. What multiplies the one?"
    mistakes = {"IPS: the mean weight is one on average only, not in a given log.": 1}
    expect_close(found[0], wanted[0], hint, mistakes=mistakes)
    hint = "SNIPS: the sum grows by what it is divided by."
    expect_close(found[1], wanted[1], hint)
    hint = "DM and DR: a row of the target sums to one, and residuals stay the same."
    expect_close(found[2:], wanted[2:], hint)


@exercise("ex-no-draw")
def no_draw(expected_weight: Function) -> None:
    """a function of q, M and the floor ε (two arms) that returns the expected weight."""
    for q, n_draws, floor in product((0.02, 0.3), (20, 3), (0.0, 0.05)):
        wins = np.arange(n_draws + 1)
        served = (1 - floor) * wins / n_draws + floor / 2
        # A visit shows the arm with the probability served, and weighs one over it: one in all, if it can.
        weight = stats.binom.pmf(wins, n_draws, q)[served > 0].sum()
        mistakes = {
            "With a floor the arm can be shown in every visit.": 1 - (1 - q) ** n_draws,
            "That is the chance that the arm wins no draw.": (1 - q) ** n_draws,
            "That is the chance that the arm wins all draws, not one.": q**n_draws,
            "Draws that are won do not add up: the arm may win several.": n_draws * q,
        }
        hint = "A visit weighs one, on average, if the arm can be shown in it, else nothing."
        found = expected_weight(q, n_draws, floor)
        expect_close(found, weight, hint, mistakes=mistakes)


@exercise("ex-floor-price")
def floor_price(price: Function) -> None:
    """a function of ε, the share s and the loss that returns two numbers: the visits, and the clicks that
    they cost.
    """

    def needed(share: float, of_best: float, of_rest: float) -> float:
        return 200 * (share / of_best + (1 - share) / of_rest)

    for epsilon, share, loss in ((0.3, 0.25, 0.1), (0.02, 0.5, 0.2), (0.6, 0.25, 0.3)):
        propensity = np.full(5, epsilon / 5)
        propensity[0] += 1 - epsilon
        favourite = np.array([share, 1 - share, 0, 0, 0])
        visits = 200 * np.sum(favourite / propensity)  # E ρ² = Σ s π²/μ
        found = price(epsilon, share, loss)
        hint = "Two numbers are wanted: visits and clicks."
        expect_close(found, (visits, visits), hint, within=np.inf)
        best, rest = propensity[:2]
        hint = "Visits: 200 is n / E ρ², and a favourite has its weight 1/μ with probability μ."
        mistakes = {
            "Visits: five products share the floor.": needed(share, best, epsilon),
            "Visits: the best seller is drawn by the floor, too.": needed(
                share, 1 - epsilon, rest
            ),
            "Visits: s is the share whose favourite is the best seller.": needed(
                1 - share, best, rest
            ),
        }
        expect_close(found[0], visits, hint, within=1.0, mistakes=mistakes)
        hint = "Clicks: how many visits see a random product, and what does each lose?"
        clicks = visits * epsilon * loss
        mistakes = {
            "Clicks: that is what one visit costs.": epsilon * loss,
            "Clicks: only a part ε of the visits gets a random product.": visits * loss,
        }
        within = min(1.0, 0.01 * clicks)
        expect_close(found[1], clicks, hint, within=within, mistakes=mistakes)


@exercise("ex-retry")
def retry(service: BanditService, sent: ArrayLike) -> None:
    """the service after its 100 visits, and how many times the client sent."""
    events = service.store.events()
    hint = f"The log has {len(events)} events; 100 visits are wanted, in a new service."
    expect(len(events) == 100, hint)
    rewarded = sum(event[-1] is not None for event in events)
    hint = f"Only {rewarded} of 100 events have a reward: the client must send until it hears an answer."
    expect(rewarded == 100, hint)
    refused = service.store.counters().get("rejected: duplicate reward", 0)
    hint = "Every sending counts, the one that is accepted and those that are refused."
    expect_close(sent, 100 + refused, hint)
    deviation = np.sqrt(100 * 0.3) / 0.7  # a negative binomial number of sendings
    hint = "Three answers in ten get lost, and the next sending may lose its own, too."
    expect(abs(100 + refused - 100 / 0.7) < 4.5 * deviation, hint)


@exercise("ex-one-draw")
def one_draw(weight_moments: Function, weights: ArrayLike) -> None:
    """a function of the probabilities served and of the target's, both (K,), that returns mean and variance of
    the weight; and the weights of 300 visits with M = 1 and with M = 100, shape (2, 300).
    """
    rng = np.random.default_rng(0)
    for _ in range(3):
        served, target = rng.dirichlet(np.ones(7), size=2)
        served = 0.8 * served + 0.2 / 7
        ratio = target / served
        mean = served @ ratio
        variance = served @ (ratio - mean) ** 2
        hint = (
            "The arm comes from what is served: weigh π'/π, and the square of its distance from the mean, by "
            "π. The order is mean, variance."
        )
        expect_close(weight_moments(served, target), (mean, variance), hint)
    hint = "Hand over one row of 300 weights for each M."
    expect_close(weights, np.ones((2, 300)), hint, within=np.inf)
    single, hundred = np.asarray(weights, float)
    hint = (
        "With a single draw and a floor of 0.2 an arm has won, or has its floor of 0.2/50 only: a weight is "
        "1/50 over the propensity, so 5 or at most 1. Is the floor 0.2, and M = 1 in the first row?"
    )
    lost = np.isclose(single, 5)
    expect(bool(np.all(lost | ((single > 0) & (single <= 1)))), hint)
    for one in (single, hundred):
        hint = "Weights are one on average; these are not. The uniform policy shows each of 50 arms with 1/50."
        expect(abs(one.mean() - 1) < 5 * one.std() / np.sqrt(300), hint)
    hint = "A hundred draws must make the weights less scattered than a single one."
    expect(hundred.std() < single.std(), hint)


@exercise("ex-peeking")
def peeking(alarms: Function, careful: ArrayLike, curious: ArrayLike) -> None:
    """a function of a seed and a list of looks that returns whether an alarm rings, and how many of 200
    rollouts the careful and the curious operator stop.
    """
    walks = np.random.default_rng(0).normal(size=(20_000, 10)).cumsum(axis=1)
    z = walks / np.sqrt(np.arange(1, 11))
    below = z < stats.norm.ppf(0.05)
    hint = (
        "count the rollouts of 200 that are stopped. The versions are equal; the test is one-sided, at level "
        "0.05, on all visits so far."
    )
    apart = {"The ten looks of a rollout are not independent.": 200 * (1 - 0.95**10)}
    for name, found, rang, mistakes in (
        ("Careful", careful, below[:, -1], None),
        ("Curious", curious, below.any(axis=1), apart),
    ):
        stopped = 200 * rang.mean()
        within = 4.5 * np.sqrt(stopped * (1 - rang.mean()))
        one_hint = f"{name}: {hint}"
        expect_close(found, stopped, one_hint, within=within, mistakes=mistakes)
    looks = (200, 600, 1_000)
    rings = np.array([[_rings(alarms, seed, [n]) for n in looks] for seed in range(40)])
    at_any = np.array([_rings(alarms, seed, looks) for seed in range(40)])
    hint = (
        "Who looks at several times stops if one of the looks rings. Does a seed always give the same 1,000 "
        "visits a side, also where the looks end earlier?"
    )
    expect(np.array_equal(at_any, rings.any(axis=1)), hint)
    hint = "Some rollouts must ring and most not; another seed is another rollout."
    expect(bool(rings.any() and rings.mean() < 0.3), hint)


def _rings(alarms: Function, seed: int, looks: ArrayLike) -> bool:
    """Ask the reader's function, which must say yes or no."""
    rings = alarms(seed, looks)
    expect_close(rings, 0.5, "An alarm rings or does not: return a bool.", within=0.5)
    return bool(rings)


@exercise("ex-every-product")
def every_product(of_products: ArrayLike, of_categories: ArrayLike) -> None:
    """two numbers of visits: the smallest window for 50 products, and for 5 categories."""
    for found, n_cells, what in (
        (of_products, 50, "products"),
        (of_categories, 5, "categories"),
    ):
        hint = (
            f"{what.capitalize()}: one whole number of visits is wanted, below 10,000."
        )
        expect_close(found, 5_001, hint, within=4_999)
        window = int(np.asarray(found))
        hint = (
            f"With {n_cells} {what} this window is too short for an alarm. The smallest of {n_cells} p-values "
            f"counts {n_cells} times, and the level of a window of n visits is only φ n / 10,000."
        )
        expect(window == found and _starved(window, n_cells), hint)
        hint = (
            f"With {n_cells} {what} a shorter window is enough. The promise to each is 0.1/{n_cells}, and the "
            "level of a window grows with it."
        )
        expect(not _starved(window - 1, n_cells), hint)


def _starved(window: int, n_cells: int) -> bool:
    """Tell whether a monitor rings if all but the last are shown in turn for one window."""
    promise = at_least(0.1 / n_cells)
    options = {"window": window, "false_alarms": 0.1}
    monitor = Monitor("coverage", counts(n_cells), promise, **options)
    return bool(monitor.update(np.arange(window) % (n_cells - 1)))


@exercise("ex-again")
def again(independent: ArrayLike, simulated: ArrayLike, promised: ArrayLike) -> None:
    """three shares of shops: computed as if windows were independent, simulated with 200 shops, and the most
    that the equation allows.
    """
    hint = "A shop is quiet if every look is. How many looks are there?"
    mistakes = {
        "The first ten windows are the reference, and not judged.": 1 - 0.95**60,
        "That is the share of shops that hear nothing.": 0.95**50,
    }
    right = 1 - 0.95**50
    expect_close(independent, right, hint, within=0.005, mistakes=mistakes)
    rng = np.random.default_rng(5)
    mix = rng.multinomial(500, np.full(4, 0.25), size=(1_000, 60))
    reference, now = mix[:, None, :10].sum(axis=2), mix[:, 10:]
    table = np.stack(np.broadcast_arrays(now, reference))
    expected = table.sum(axis=-1, keepdims=True) * table.sum(axis=0) / 5_500
    statistic = ((table - expected) ** 2 / expected).sum(axis=(0, -1))  # Pearson's
    rang = (stats.chi2.sf(statistic, 3) < 0.05).any(axis=1).mean()
    hint = "Count the shops that heard an alarm at least once, of 200, with a level of 0.05 in each window."
    expect_close(simulated, rang, hint, within=4.5 * np.sqrt(rang * (1 - rang) / 200))
    hint = "φ N / 10,000 alarms are expected in N visits, and no more shops than that ring."
    mistakes = {
        "The visits of the reference are not judged.": 0.3,
        "The equation does not suppose independent windows: expectations add up.": 1
        - (1 - 0.005) ** 50,
        "That is the level of one window.": 0.1 * 500 / 10_000,
    }
    expect_close(promised, 0.1 * 25_000 / 10_000, hint, mistakes=mistakes)


@exercise("ex-private")
def private(kept: Function, halving: ArrayLike) -> None:
    """a function of n, s and the seed of a shop that returns what is left of the lead, and the s that halves
    it with 2,000 visits.
    """
    for seed in range(3):
        hint = (
            "Without noise 20,000 visits tell the best category of each persona: all of the lead is left. It "
            "is the greedy policy's value less chance, over the oracle's less chance."
        )
        expect_close(kept(20_000, 0, seed), 1, hint, within=0.05)
    drowned = [kept(2_000, 1e6, seed) for seed in range(16)]
    hint = (
        "So much noise leaves nothing to choose by: the policy is no better than chance, and the share of the "
        "lead near 0. Is the noise in A and in b, and is chance taken off?"
    )
    expect_close(np.mean(drowned), 0, hint, within=0.36)
    expect(len(set(map(float, drowned))) > 1, "Another seed must be another shop.")
    hint = "Of 2,000 visits with this noise too much is left, or too little, to call it a half."
    expect_close(halving, 5_000, "A standard deviation is wanted.", within=5_000)
    s = float(np.asarray(halving))
    expect(abs(_lead_left(2_000, s) - 0.5) < 0.15, hint)
    some = [kept(2_000, s, seed) for seed in range(16)]
    expect_close(np.mean(some), 0.5, f"Your function: {hint}", within=0.4)


def _lead_left(n: int, s: float, n_shops: int = 200) -> float:
    """Return what noise leaves of the lead, by counts of the twenty cells."""
    rng = np.random.default_rng(6)
    table = ZooplusSimulator().click_table
    persona, category = np.repeat(np.eye(4), 5, 0), np.tile(np.eye(5), (4, 1))
    pairs = np.eye(20)  # a row of persona and category has its own one
    x = np.concatenate((persona, category, pairs), axis=1)
    visits = rng.multinomial(n, np.full(20, 1 / 20), size=n_shops)
    clicks = rng.binomial(visits, table.ravel())
    A = np.einsum("wc,ci,cj->wij", visits, x, x)
    noise = s * rng.normal(size=A.shape)
    A = A + (noise + noise.mT) / np.sqrt(2)
    least = np.linalg.eigvalsh(A)[:, 0]
    A += (1 + np.maximum(0, -least))[:, None, None] * np.eye(29)
    b = clicks @ x + s * rng.normal(size=(n_shops, 29))
    scores = np.linalg.solve(A, b[..., None])[..., 0] @ x.T
    chosen = scores.reshape(-1, 4, 5).argmax(axis=-1)
    earned = np.take_along_axis(table, chosen.T, axis=1).mean()
    chance = table.mean()
    return float((earned - chance) / (table.max(axis=1).mean() - chance))
