"""Judges of the exercises of Chapter 6, "A bandit behind the counter"."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import stats

from zoolib.book.exercises.judging import (
    Function,
    answer,
    exercise,
    expect,
    expect_close,
    numbers,
)
from zoolib.monitoring import Monitor, at_least, counts
from zoolib.service import BanditService
from zoolib.world.simulator import ZooplusSimulator


@exercise(
    "ex-plus-one",
    wanted="a function of the importance weights (n,) that returns by how much IPS, SNIPS, DM and DR grow",
)
def _plus_one(growth: Function) -> None:
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
    hint = "Hand over one number for each of IPS, SNIPS, DM and DR, in this order."
    found = numbers(answer(growth, weights), (4,), hint)
    hint = "IPS: put r + 1 for r into the sum. What multiplies the one?"
    mistakes = {"IPS: the mean weight is one on average only, not in a given log.": 1}
    expect_close(found[0], wanted[0], hint, mistakes=mistakes)
    hint = "SNIPS: the sum grows by what it is divided by."
    expect_close(found[1], wanted[1], hint)
    hint = "DM and DR: a row of the target sums to one, and residuals stay the same."
    expect_close(found[2:], wanted[2:], hint)


@exercise(
    "ex-no-draw",
    wanted="a function of q, M and the floor ε (two arms) that returns the expected weight",
)
def _no_draw(expected_weight: Function) -> None:
    for q, n_draws, floor in product((0.02, 0.3), (20, 3), (0.0, 0.05)):
        wins = np.arange(n_draws + 1)
        served = (1 - floor) * wins / n_draws + floor / 2
        # A visit shows the arm with the probability served, and weighs one over it: one in all, if it can.
        right = stats.binom.pmf(wins, n_draws, q)[served > 0].sum()
        mistakes = {
            "With a floor the arm can be shown in every visit.": 1 - (1 - q) ** n_draws,
            "That is the chance that the arm wins no draw.": (1 - q) ** n_draws,
            "That is the chance that the arm wins all draws, not one.": q**n_draws,
            "Draws that are won do not add up: the arm may win several.": n_draws * q,
        }
        hint = "A visit weighs one, on average, if the arm can be shown in it, else nothing."
        found = answer(expected_weight, q, n_draws, floor)
        expect_close(found, right, hint, mistakes=mistakes)


@exercise(
    "ex-floor-price",
    wanted="a function of ε, the share s and the loss that returns the visits, and the clicks that they cost",
)
def _floor_price(price: Function) -> None:
    for epsilon, share, loss in ((0.3, 0.25, 0.1), (0.02, 0.5, 0.2), (0.6, 0.25, 0.3)):
        hint = "Two numbers are wanted: visits and clicks."
        found = numbers(answer(price, epsilon, share, loss), (2,), hint)
        best, rest = 1 - epsilon + epsilon / 5, epsilon / 5

        def needed(best: float, rest: float, share: float = share) -> float:
            return 200 * (share / best + (1 - share) / rest)

        visits = needed(best, rest)  # 200 E ρ², where E ρ² = Σ s π²/μ
        mistakes = {
            "Visits: five products share the floor.": needed(best, epsilon),
            "Visits: the best seller is drawn by the floor, too.": needed(1 - epsilon, rest),
            "Visits: s is the share whose favourite is the best seller.": needed(best, rest, 1 - share),
        }  # fmt: skip
        hint = "Visits: 200 is n / E ρ², and a favourite has its weight 1/μ with probability μ."
        expect_close(found[0], visits, hint, within=1.0, mistakes=mistakes)
        clicks = visits * epsilon * loss
        mistakes = {
            "Clicks: that is what one visit costs.": epsilon * loss,
            "Clicks: only a part ε of the visits gets a random product.": visits * loss,
        }
        hint = "Clicks: how many visits see a random product, and what does each lose?"
        within = min(1.0, 0.01 * clicks)
        expect_close(found[1], clicks, hint, within=within, mistakes=mistakes)


@exercise(
    "ex-retry",
    wanted="the service after its 100 visits, and how many times the client sent",
)
def _retry(service: BanditService, sent: ArrayLike) -> None:
    events = service.store.events()
    hint = f"The log has {len(events)} events; 100 visits are wanted, in a new service."
    expect(len(events) == 100, hint)
    rewarded = sum(event[-1] is not None for event in events)
    hint = f"Only {rewarded} of 100 events have a reward: the client must send until it hears an answer."
    expect(rewarded == 100, hint)
    refused = service.store.counters().get("rejected: duplicate reward", 0)
    hint = "Every sending counts, the one that is accepted and those that are refused."
    expect_close(sent, 100 + refused, hint)
    deviation = np.sqrt(100 * 0.3) / 0.7  # of a negative binomial number of sendings
    hint = "Three answers in ten get lost, and the next sending may lose its own, too."
    expect(abs(100 + refused - 100 / 0.7) < 4.5 * deviation, hint)


@exercise(
    "ex-one-draw",
    wanted="a function of the probabilities served and of the target's, both (K,), that returns mean and "
    "variance of the weight; and the weights of 300 visits with M = 1 and with M = 100, shape (2, 300)",
)
def _one_draw(weight_moments: Function, weights: ArrayLike) -> None:
    rng = np.random.default_rng(0)
    for _ in range(3):
        served, target = rng.dirichlet(np.ones(7), size=2)
        served = 0.8 * served + 0.2 / 7
        ratio = target / served
        mean = served @ ratio
        right = mean, served @ (ratio - mean) ** 2
        hint = "Weigh π'/π, and its squared distance from the mean, by π. The order is mean, variance."
        expect_close(answer(weight_moments, served, target), right, hint)
    hint = "Hand over one row of 300 weights for each M."
    single, hundred = numbers(weights, (2, 300), hint)
    hint = (
        "With a single draw and a floor of 0.2 an arm has won, or has its floor of 0.2/50 only: a weight is "
        "1/50 over the propensity, so 5 or at most 1. Is the floor 0.2, and M = 1 in the first row?"
    )
    expect(np.all(np.isclose(single, 5) | ((single > 0) & (single <= 1))), hint)
    hint = "Weights are one on average; these are not. The uniform policy shows each of 50 arms with 1/50."
    for one in (single, hundred):
        expect(abs(one.mean() - 1) < 5 * one.std() / np.sqrt(300), hint)
    hint = "A hundred draws must make the weights less scattered than a single one."
    expect(hundred.std() < single.std(), hint)


@exercise(
    "ex-peeking",
    wanted="a function of a seed and a list of looks that returns whether an alarm rings, and how many of 200 "
    "rollouts the careful and the curious operator stop",
)
def _peeking(alarms: Function, careful: ArrayLike, curious: ArrayLike) -> None:
    """Simulate the operators by random walks; ask for several looks at once, and for each alone."""
    walks = np.random.default_rng(0).normal(size=(20_000, 10)).cumsum(axis=1)
    below = walks / np.sqrt(np.arange(1, 11)) < stats.norm.ppf(0.05)
    apart = {"The ten looks of a rollout are not independent.": 200 * (1 - 0.95**10)}
    for name, found, rang, mistakes in (
        ("Careful", careful, below[:, -1].mean(), None),
        ("Curious", curious, below.any(axis=1).mean(), apart),
    ):
        hint = f"{name}: count the rollouts of 200 that stop, by a one-sided test at 0.05 on all visits so far."
        within = 4.5 * np.sqrt(200 * rang * (1 - rang))
        expect_close(found, 200 * rang, hint, within=within, mistakes=mistakes)

    def rings(seed: int, looks: list[int]) -> bool:
        hint = "An alarm rings or does not: return a bool."
        return bool(numbers(answer(alarms, seed, looks), (), hint, low=0, high=1))

    looks = [200, 600, 1_000]
    alone = np.array([[rings(seed, [look]) for look in looks] for seed in range(40)])
    together = [rings(seed, looks) for seed in range(40)]
    hint = (
        "Anyone who looks several times stops if one of the looks rings. Does a seed always give the same "
        "1,000 visits per side, also where the looks end earlier?"
    )
    expect(np.array_equal(together, alone.any(axis=1)), hint)
    hint = "Some rollouts must ring and most not; another seed is another rollout."
    expect(alone.any() and alone.mean() < 0.3, hint)


@exercise(
    "ex-every-product",
    wanted="two numbers of visits: the smallest window for 50 products, and for 5 categories",
)
def _every_product(of_products: ArrayLike, of_categories: ArrayLike) -> None:
    """Starve one cell for the length of a window, and for one visit less."""

    def rings(window: int, n_cells: int) -> bool:
        promise = at_least(0.1 / n_cells)
        monitor = Monitor(
            "coverage", counts(n_cells), promise, window=window, false_alarms=0.1
        )
        return bool(monitor.update(np.arange(window) % (n_cells - 1)))

    for found, n_cells, cells in (
        (of_products, 50, "50 products"),
        (of_categories, 5, "5 categories"),
    ):
        hint = f"{cells}: one whole number of visits is wanted, below 10,000."
        window = int(numbers(found, (), hint, low=2, high=10_000))
        hint = (
            f"With {cells} this window is too short for an alarm. The smallest of {n_cells} p-values counts "
            f"{n_cells} times, and the level of a window of n visits is only φ n / 10,000."
        )
        expect(window == found and rings(window, n_cells), hint)
        hint = (
            f"With {cells} a shorter window is enough. The promise to each is 0.1/{n_cells}, and the level of "
            "a window grows with it."
        )
        expect(not rings(window - 1, n_cells), hint)


@exercise(
    "ex-again",
    wanted="three shares of shops: computed as if windows were independent, simulated with 200 shops, and the "
    "most that the equation allows",
)
def _again(independent: ArrayLike, simulated: ArrayLike, promised: ArrayLike) -> None:
    right = 1 - 0.95**50
    mistakes = {
        "The first ten windows are the reference, and not judged.": 1 - 0.95**60,
        "That is the share of shops that hear nothing.": 0.95**50,
    }
    hint = "A shop is quiet if every look is. How many looks are there?"
    expect_close(independent, right, hint, within=0.005, mistakes=mistakes)
    mix = np.random.default_rng(5).multinomial(500, np.full(4, 0.25), size=(1_000, 60))
    reference, now = mix[:, None, :10].sum(axis=2), mix[:, 10:]
    table = np.stack(np.broadcast_arrays(now, reference))
    expected = table.sum(axis=-1, keepdims=True) * table.sum(axis=0) / 5_500
    statistic = ((table - expected) ** 2 / expected).sum(axis=(0, -1))  # Pearson's
    rang = (stats.chi2.sf(statistic, 3) < 0.05).any(axis=1).mean()
    hint = "Count the shops that heard an alarm at least once, of 200, with a level of 0.05 in each window."
    expect_close(simulated, rang, hint, within=4.5 * np.sqrt(rang * (1 - rang) / 200))
    mistakes = {
        "The visits of the reference are not judged.": 0.3,
        "The windows need not be independent: expectations add up.": 1 - 0.995**50,
        "That is the level of one window.": 0.1 * 500 / 10_000,
    }
    hint = "φ N / 10,000 alarms are expected in N visits, and no more shops than that ring."
    expect_close(promised, 0.1 * 25_000 / 10_000, hint, mistakes=mistakes)


@exercise(
    "ex-private",
    wanted="a function of n, s and the seed of a shop that returns what is left of the lead, and the s that "
    "halves it with 2,000 visits",
)
def _private(kept: Function, halving: ArrayLike) -> None:
    hint = (
        "Without noise 20,000 visits show the best categories: all of the lead is left, the value of the "
        "greedy policy less chance over that of the oracle less chance."
    )
    for seed in range(3):
        expect_close(answer(kept, 20_000, 0, seed), 1, hint, within=0.05)
    drowned = [answer(kept, 2_000, 1e6, seed) for seed in range(16)]
    hint = "This much noise leaves nothing of the lead. Is it in A and in b, and is chance taken off?"
    expect_close(np.mean(drowned), 0, hint, within=0.36)
    expect(len(set(map(float, drowned))) > 1, "Another seed must be another shop.")
    hint = "A standard deviation is wanted."
    s = float(numbers(halving, (), hint, low=0, high=10_000))
    hint = "Of 2,000 visits with this noise too much is left, or too little, to call it a half."
    expect(abs(_lead_left(2_000, s) - 0.5) < 0.15, hint)
    some = [answer(kept, 2_000, s, seed) for seed in range(16)]
    expect_close(np.mean(some), 0.5, f"Your function: {hint}", within=0.4)


def _lead_left(n: int, s: float, n_shops: int = 200) -> float:
    """Return what noise leaves of the lead, by counts of the twenty cells."""
    rng = np.random.default_rng(6)
    table = ZooplusSimulator().click_table
    persona, category = np.repeat(np.eye(4), 5, 0), np.tile(np.eye(5), (4, 1))
    x = np.hstack((persona, category, np.eye(20)))  # a pair has its own one, too
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
    earned, chance = np.take_along_axis(table, chosen.T, axis=1).mean(), table.mean()
    return float((earned - chance) / (table.max(axis=1).mean() - chance))
