"""Judges of the exercises of Chapter 6, "A bandit in production"."""

from __future__ import annotations

from math import comb

import numpy as np
import pandas as pd
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


@exercise("ex-plan")
def _plan(size_of: Function, visits_for: Function) -> None:
    for n, epsilon, k, s in ((2_000, 0.3, 5, 0.4), (9_000, 0.05, 20, 0.75)):
        rest = epsilon / k
        most = 1 - epsilon + rest
        unseen = 1 - s
        mistakes = {
            "Size: the floor draws the best seller, too.": n / (s / (1 - epsilon) + (1 - s) / rest),
            "Size: the floor is shared by K products.": n / (s / most + (1 - s) / epsilon),
            "Size: s is the share that sees the best seller.": n / ((1 - s) / most + s / rest),
            "Size: a square counts with the propensity once.": n / (s / most**2 + unseen / rest**2),
        }  # fmt: skip
        hint = "Size: n over the mean squared weight, which is 1 over the propensity of what is shown."
        right = n / (s / most + (1 - s) / rest)
        found = answer(size_of, n, epsilon, k, s)
        expect_close(found, right, hint, within=1e-6 * right, mistakes=mistakes)
    for clicks, rate, epsilon, k, s in (
        (27, 0.02, 0.1, 5, 0.5),
        (40, 0.1, 0.3, 8, 0.2),
    ):
        squared = s / (1 - epsilon + epsilon / k) + (1 - s) * k / epsilon
        right = clicks / rate * squared
        mistakes = {
            "Visits: one click comes in 1 / rate effective visits.": clicks * squared,
            "Visits: that is the effective size that is needed.": clicks / rate,
            "Visits: an effective visit takes more than one of the log's, not less.": clicks / rate / squared,
        }  # fmt: skip
        hint = "Visits: how many effective visits bring the clicks, and how many visits bring one of these?"
        found = answer(visits_for, clicks, rate, epsilon, k, s)
        expect_close(
            found, right, hint, within=max(1.0, 1e-6 * right), mistakes=mistakes
        )


@exercise("ex-twice")
def _twice(holds: Function, repair: Function) -> None:
    below, edge = stats.norm.cdf, stats.norm.ppf(0.975)
    for copies in (2, 5, 9):
        right = 2 * below(edge / np.sqrt(copies)) - 1
        mistakes = {
            "Holds: copies are no new visits, so the interval is too narrow.": 0.95,
            "Holds: it is narrower by the root of the copies.": 2 * below(edge / copies) - 1,
            "Holds: it may miss the truth on both sides.": below(edge / np.sqrt(copies)),
            "Holds: that is how often it misses.": 1 - right,
        }  # fmt: skip
        hint = "Holds: how many standard errors of the estimate does this interval reach to each side?"
        expect_close(answer(holds, copies), right, hint, within=2e-3, mistakes=mistakes)
    log = pd.DataFrame({"event": [4, 7, 4, 9, 7, 7], "arm": [1, 2, 1, 2, 2, 2]})
    found = answer(repair, log.copy())
    hint = "Repair: a table with the column `event` is wanted."
    expect(isinstance(found, pd.DataFrame) and "event" in found, hint)
    hint = "Repair: two visits may look alike, and both must stay."
    expect(set(found["event"]) == {4, 7, 9}, hint)
    expect(len(found) == 3, "Repair: each event must be left once.")


@exercise("ex-gate")
def _gate(rejects: Function, needed: Function) -> None:
    below = stats.norm.cdf
    quantile = stats.norm.ppf
    edge = quantile(0.975)
    for n_eff, loss, sigma in ((100, 0.1, 0.5), (400, 0.03, 0.4)):
        shift = loss * np.sqrt(n_eff) / sigma  # in standard errors
        mistakes = {
            "Rejects: that is how often the candidate passes.": below(edge - shift),
            "Rejects: 1.96 standard errors are wanted on each side.": below(shift - quantile(0.95)),
            "Rejects: the upper end must lie below, not the estimate.": below(shift),
        }  # fmt: skip
        hint = "Rejects: how far below the candidate's value must the estimate lie, in standard errors?"
        found = answer(rejects, n_eff, loss, sigma)
        right = below(shift - edge)
        expect_close(found, right, hint, within=2e-3, mistakes=mistakes)
    for loss, sigma, power in ((0.1, 0.5, 0.9), (0.03, 0.4, 0.7)):
        unit = (sigma / loss) ** 2
        right = unit * (edge + quantile(power)) ** 2
        mistakes = {
            "Needed: that rejects the candidate in half of the cases only.": unit * edge**2,
            "Needed: the power is one-sided.": unit * (edge + quantile((1 + power) / 2)) ** 2,
        }  # fmt: skip
        hint = "Needed: solve your first function for n_eff."
        found = answer(needed, loss, sigma, power)
        expect_close(found, right, hint, within=0.01 * right, mistakes=mistakes)


@exercise("ex-peeking")
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


@exercise("ex-bets")
def _bets(growth: Function, best_bet: Function, pairs_to_stop: Function) -> None:
    for q, eta in ((0.55, 0.1), (0.6, 0.4), (0.5, 0.2)):
        won = np.log(1 + eta)
        lost = np.log(1 - eta)
        mistakes = {
            "Growth: that is how the money grows on average, not its logarithm.": (2 * q - 1) * eta,
            "Growth: that is the logarithm of the mean, not its mean.": np.log(1 + (2 * q - 1) * eta),
            "Growth: the old version's visitor clicks in a share q.": q * lost + (1 - q) * won,
        }  # fmt: skip
        hint = "Growth: with probability q the money is multiplied by 1 + η, else by 1 - η."
        found = answer(growth, q, eta)
        expect_close(
            found, q * won + (1 - q) * lost, hint, within=1e-6, mistakes=mistakes
        )
    for q in (0.55, 0.7):
        mistakes = {
            "Best bet: that is how often you win.": q,
            "Best bet: half of what a derivative gives.": q - 0.5,
        }
        hint = "Best bet: where does the derivative of your first function vanish?"
        expect_close(
            answer(best_bet, q), 2 * q - 1, hint, within=1e-3, mistakes=mistakes
        )
    for q, eta, level in ((0.55, 0.1, 0.02), (0.7, 0.3, 0.05)):
        grows = q * np.log(1 + eta) + (1 - q) * np.log(1 - eta)
        right = -np.log(level) / grows
        mistakes = {
            "Pairs: the logarithm of the money must reach that of 1 / level.": 1
            / level
            / grows
        }
        hint = "Pairs: how many steps of this length lead from 0 to the logarithm of 1 / level?"
        found = answer(pairs_to_stop, q, eta, level)
        expect_close(found, right, hint, within=1 + 1e-6 * right, mistakes=mistakes)
    never = answer(pairs_to_stop, 0.55, 0.5, 0.02)
    expect(
        np.isinf(never),
        "Pairs: with this bet the money shrinks, and never gets there: infinite.",
    )


@exercise("ex-window")
def _window(errors: Function) -> None:
    for n, nu, failing in ((200, 0.1, 0.05), (500, 0.2, 0.03), (60, 2.0, 0.2)):
        hint = "Two numbers are wanted: failures and a probability."
        found = numbers(answer(errors, n, nu, failing), (2,), hint)
        promised = _at_least(n, 0.01)
        broken = _at_least(n, failing)

        def rings(level: float, tail: NDArray[np.float64] = promised) -> int:
            return int((tail >= level).sum())

        least = rings(nu * n / 10_000)
        mistakes = {
            "Failures: the p-value counts as many failures, or more.": least - 1,
            "Failures: ν is a rate in 10,000 visits, not the level of a window.": rings(nu),
            "Failures: a window has n visits, and its level grows with them.": rings(nu / 10_000),
            "Failures: compare with what was promised, one in a hundred.": rings(nu * n / 10_000, broken),
        }  # fmt: skip
        hint = "Failures: the least number with a p-value below the level ℓ is wanted."
        expect_close(found[0], least, hint, mistakes=mistakes)
        mistakes = {
            "Probability: that is how often a quiet window rings.": promised[least],
            "Probability: that is how often the window keeps silent.": 1 - broken[least],
            "Probability: more failures than needed ring, too.": broken[least] - broken[least + 1],
            "Probability: the least number that rings counts, too.": broken[least + 1],
        }  # fmt: skip
        hint = "Probability: how often do so many visits fail, or more, if this share fails?"
        expect_close(found[1], broken[least], hint, within=1e-6, mistakes=mistakes)


def _at_least(n: int, p: float) -> NDArray[np.float64]:
    """Return the probabilities of at least 0, 1, ..., n of n failures, added up one by one."""
    exactly = [comb(n, k) * p**k * (1 - p) ** (n - k) for k in range(n + 1)]
    return np.cumsum(exactly[::-1])[::-1]


@exercise("ex-private")
def _private(noise: Function) -> None:
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
