"""Judges of the exercises of Chapter 6, "A bandit in production"."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import ArrayLike
from scipy import stats

from zoolib.book.exercises.judging import (
    Function,
    answer,
    exercise,
    expect,
    expect_close,
    numbers,
)
from zoolib.world.simulator import ZooplusSimulator


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
    "ex-private",
    wanted="a function of k, ε and δ that returns τ; and a function of the number of users, τ and the seed of "
    "a shop that returns what is left of the lead",
)
def _private(noise: Function, kept: Function) -> None:
    for k, epsilon, delta in ((2, 1.0, 1e-5), (5, 0.5, 1e-6)):
        unit = np.sqrt(2 * np.log(1.25 / delta)) / epsilon
        mistakes = {
            "A user has k visits, and all of them may be alike.": 3 * unit,
            "The length of a vector is the root of its squares' sum.": 9 * k * unit,
            "Count the entries of A on and above its diagonal only.": k * np.sqrt(12) * unit,
            "That hides what a user changes in b; A changes, too.": k * np.sqrt(3) * unit,
            "That hides what a user changes in A; b changes, too.": k * np.sqrt(6) * unit,
        }  # fmt: skip
        hint = "Δ is the length of what k visits change: three entries of b, six of A, by one each."
        found = answer(noise, k, epsilon, delta)
        expect_close(found, 3 * k * unit, hint, mistakes=mistakes)
    hint = (
        "Without noise 10,000 users show the best categories: all of the lead is left, the value of the "
        "greedy policy less chance over that of the oracle less chance."
    )
    for seed in range(3):
        expect_close(answer(kept, 10_000, 0, seed), 1, hint, within=0.05)
    drowned = [answer(kept, 1_000, 1e6, seed) for seed in range(16)]
    hint = "This much noise leaves nothing of the lead. Is it in A and in b, and is chance taken off?"
    expect_close(np.mean(drowned), 0, hint, within=0.36)
    expect(len(set(map(float, drowned))) > 1, "Another seed must be another shop.")
    some = [answer(kept, 10_000, 30, seed) for seed in range(16)]
    hint = "With 10,000 users of two visits and noise of 30 too much is left, or too little."
    expect_close(np.mean(some), _lead_left(20_000, 30), hint, within=0.35)


def _lead_left(n: int, noise: float, n_shops: int = 200) -> float:
    """Return what noise leaves of the lead after n visits, by counts of the twenty cells."""
    rng = np.random.default_rng(6)
    table = ZooplusSimulator().click_table
    persona, category = np.repeat(np.eye(4), 5, 0), np.tile(np.eye(5), (4, 1))
    x = np.hstack((persona, category, np.eye(20)))  # a pair has its own one, too
    visits = rng.multinomial(n, np.full(20, 1 / 20), size=n_shops)
    clicks = rng.binomial(visits, table.ravel())
    A = np.einsum("wc,ci,cj->wij", visits, x, x)
    upper = np.triu(noise * rng.normal(size=A.shape))
    A = A + upper + np.triu(upper, 1).mT
    least = np.linalg.eigvalsh(A)[:, 0]
    A += (1 + np.maximum(0, -least))[:, None, None] * np.eye(29)
    b = clicks @ x + noise * rng.normal(size=(n_shops, 29))
    scores = np.linalg.solve(A, b[..., None])[..., 0] @ x.T
    chosen = scores.reshape(-1, 4, 5).argmax(axis=-1)
    earned, chance = np.take_along_axis(table, chosen.T, axis=1).mean(), table.mean()
    return float((earned - chance) / (table.max(axis=1).mean() - chance))
