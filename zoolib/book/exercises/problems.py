"""Judges of the problems for a class, whose solutions are not in the book."""

from __future__ import annotations

from itertools import product

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import integrate, stats
from scipy.optimize import brentq

from zoolib.book.exercises.judging import (
    Function,
    answer,
    exercise,
    expect_close,
    numbers,
)


@exercise("ex-wrong-promise")
def _wrong_promise(excess: Function) -> None:
    for p, q in ((0.3, 0.6), (0.3, 0.15), (0.02, 0.04), (0.5, 0.5)):
        happens = np.array([p, 1 - p])
        right = stats.entropy(happens, [q, 1 - q])
        mistakes = {
            "Take off what the best model pays: the entropy.": right
            + stats.entropy(happens),
            "That expects clicks with q: they come with p.": stats.entropy(
                [q, 1 - q], happens
            ),
            "A visit without a click has a loss, too.": p * np.log(p / q),
            "That is in bits: take natural logarithms.": right / np.log(2),
        }
        hint = f"For p = {p} and q = {q}: which loss does q have, and which p itself?"
        found = answer(excess, p, q)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


@exercise("ex-fossil")
def _fossil(share: Function) -> None:
    rng = np.random.default_rng(1)
    for n_personas, n_categories in ((2, 2), (4, 5), (3, 7)):
        before, after = rng.uniform(size=(2, n_personas, n_categories))
        shares = rng.dirichlet(np.ones(n_personas))
        shown = [max(range(n_categories), key=row.__getitem__) for row in before]
        earned = np.array([row[k] for row, k in zip(after, shown, strict=True)])
        best = np.array([max(row) for row in after])
        mistakes = {
            "Weigh the personas by their shares.": earned.sum() / best.sum(),
            "That is in clicks per visit: divide by the oracle's.": shares @ earned,
            "The oracle looks at the new table.": (shares @ earned)
            / (shares @ before.max(axis=1)),
            "A share of means is wanted, not a mean of shares.": shares
            @ (earned / best),
        }
        hint = "What does each persona see, and what is that worth after the change?"
        right = (shares @ earned) / (shares @ best)
        found = answer(share, before, after, shares)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


@exercise("ex-looks")
def _looks(looks: Function) -> None:
    for width, length, ridge in ((0.1, 2, 1), (0.5, 2, 1), (0.3, 5, 0.1), (2, 2, 1)):
        right = 0.0
        if length / ridge > width**2:
            right = brentq(
                lambda n: length / (ridge + n * length) - width**2,  # noqa: B023
                0,
                1e6,
            )
        mistakes = {
            "The width is a root: square it.": max(0, 1 / width - ridge / length),
            "The ridge counts like looks that need not be taken.": 1 / width**2,
            "A look adds the squared length, and not one.": max(
                0, length / width**2 - ridge
            ),
        }
        if width**2 * ridge > length:
            mistakes = {
                "Without a look it is narrower: none is needed.": 1 / width**2
                - ridge / length
            }
        hint = f"For a width of {width}, a squared length of {length} and a ridge of {ridge}: what is A?"
        found = answer(looks, width, length, ridge)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


@exercise("ex-fading")
def _fading(fading: Function, half_life: float) -> None:
    for gamma, part in ((0.9, 0.5), (0.997, 0.5), (0.999, 0.01), (0.99, 0.9)):
        right = brentq(lambda visits: gamma**visits - part, 0, 1e6)  # noqa: B023
        mistakes = {
            "New clicks weigh in, too: the memory stays full.": np.log(
                part / (1 + part)
            )
            / np.log(gamma),
            "That is when the new ones make up this part.": np.log(1 - part)
            / np.log(gamma),
            "That is for the roots of the weights.": 2 * right,
        }
        if part == 0.5:
            mistakes.pop("That is when the new ones make up this part.")
        hint = f"For γ = {gamma} and a part of {part}: add up the weights of old and new visits."
        found = answer(fading, gamma, part)
        expect_close(found, right, hint, within=1e-4, mistakes=mistakes)
    hint = "Solve your formula for the discount."
    mistakes = {"That is what a visit loses.": 1 - 0.5 ** (1 / 1_000)}
    expect_close(half_life, 0.5 ** (1 / 1_000), hint, within=1e-6, mistakes=mistakes)


@exercise("ex-diagonal-width")
def _diagonal_width(ratio: Function) -> None:
    rng = np.random.default_rng(2)
    alike = np.tile(rng.normal(size=4), (30, 1))
    for rows, ridge in ((rng.normal(size=(9, 4)), 1.0), (alike, 0.5), (alike, 3.0)):
        x = rng.normal(size=4)
        A = ridge * np.eye(4) + rows.T @ rows
        full = x @ np.linalg.solve(A, x)
        cheap = np.sum(x**2 / np.diagonal(A))
        mistakes = {
            "Widths are roots.": cheap / full,
            "That is the full one by the other.": np.sqrt(full / cheap),
            "That inverts first and takes the diagonal then.": np.sqrt(
                x**2 @ np.diagonal(np.linalg.inv(A)) / full
            ),
        }
        hint = f"With {len(rows)} rows and a ridge of {ridge:g}: which matrix does each width use?"
        found = answer(ratio, rows, x, ridge)
        expect_close(found, np.sqrt(cheap / full), hint, within=1e-6, mistakes=mistakes)


@exercise("ex-price-of-doubt")
def _price_of_doubt(kept: Function) -> None:
    for d, m in ((9, 32), (29, 100), (3, 2)):
        parameters = sum(array.size for array in _layers(d, m))
        last = (m + 1) ** 2
        right = parameters**2, parameters, last
        bare = d * m + m
        mistakes = {
            "Biases are parameters, too.": (bare**2, bare, last),
            "The posterior reads a one that is always on.": (*right[:2], m**2),
            "A posterior of many features is a matrix.": (*right[:2], m + 1),
        }
        hint = f"For d = {d} and m = {m}: the gradient has an entry for each parameter."
        expect_close(answer(kept, d, m), right, hint, mistakes=mistakes)


def _layers(d: int, m: int) -> tuple[NDArray[np.float64], ...]:
    return np.zeros((m, d)), np.zeros(m), np.zeros((1, m)), np.zeros(1)


@exercise("ex-two-draws")
def _two_draws(shows: Function) -> None:
    for first, second in (
        ((0.5, 0.1), (0.4, 0.1)),
        ((0.5, 0.02), (0.3, 0.4)),
        ((0.1, 0.3), (0.2, 0.05)),
    ):
        right = _beats(first, second)
        gap = second[0] - first[0]
        spread = np.array([first[1], second[1]])
        mistakes = {
            "That is how often it shows the first.": 1 - right,
            "Variances add up, and not standard deviations.": stats.norm.cdf(
                gap / spread.sum()
            ),
            "The difference varies, too: take the root of the sum of squares.": stats.norm.cdf(
                gap / np.square(spread).sum()
            ),
            "The first is drawn, too.": stats.norm.cdf(gap / second[1]),
        }
        hint = (
            f"For {first} and {second}: how is the difference of two draws distributed?"
        )
        found = answer(shows, first, second)
        expect_close(found, right, hint, within=1e-4, mistakes=mistakes)


def _beats(first: tuple[float, float], second: tuple[float, float]) -> float:
    """Integrate over the first draw the probability that the second exceeds it."""

    def at(z: float) -> float:
        return stats.norm.pdf(z) * stats.norm.sf(first[0] + first[1] * z, *second)

    return integrate.quad(at, -8, 8, limit=200)[0]


@exercise("ex-floor-price")
def _floor_price(price: Function) -> None:
    for rates, epsilon in (([0.1, 0.5, 0.3], 0.3), ([0.9, 0.2], 0.05), ([0.4] * 5, 1)):
        n = len(rates)
        best = int(np.argmax(rates))
        shown = (1 - epsilon) * np.eye(n)[best] + epsilon * np.full(n, 1 / n)
        lost = max(rates) - shown @ rates
        right = shown[best], epsilon / n, lost
        others = [one for place, one in enumerate(rates) if place != best]
        mistakes = {
            "The even draw may show the best, too.": (
                1 - epsilon,
                epsilon / (n - 1),
                epsilon * (max(rates) - np.mean(others)),
            ),
            "The best is also shown by the even draw.": (1 - epsilon, *right[1:]),
            "That is what a visit earns: what does it lose?": (
                *right[:2],
                shown @ rates,
            ),
            "That is lost at a visit with an even draw.": (
                *right[:2],
                max(rates) - np.mean(rates),
            ),
        }
        hint = f"For {rates} and ε = {epsilon}: write down with which probability each is shown."
        found = answer(price, np.array(rates), epsilon)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


@exercise("ex-shortest-list")
def _shortest_list(shortest: Function) -> None:
    rng = np.random.default_rng(5)
    for n in (40, 300, 5, 2):
        quick = rng.permutation(n) / n
        careful = (
            0.3 * quick + 0.7 * rng.permutation(n) / n + 1e-6 * rng.uniform(size=n)
        )
        ordered = sorted(range(n), key=lambda k: -quick[k])
        best = max(range(n), key=careful.__getitem__)
        right = next(k for k in range(1, n + 1) if best in ordered[:k])
        mistakes = {
            "A place counted from 0 is one less than the length.": right - 1,
            "The list holds the highest quick scores.": n - right + 1,
            "That takes the best quick product and its careful rank.": 1
            + np.sum(careful > careful[ordered[0]]),
        }
        hint = f"Of {n} products: where does the best by the careful scores stand on the quick list?"
        expect_close(answer(shortest, quick, careful), right, hint, mistakes=mistakes)


@exercise("ex-doubt-used")
def _doubt_used(total: Function) -> None:
    rng = np.random.default_rng(4)
    for n, d, ridge in ((3, 4, 1.0), (50, 4, 0.5), (400, 6, 10.0)):
        rows = rng.normal(size=(n, d))
        A = ridge * np.eye(d) + sum(np.outer(x, x) for x in rows)
        right = sum(x @ np.linalg.solve(A, x) for x in rows)
        widths = sum(np.sqrt(x @ np.linalg.solve(A, x)) for x in rows)
        mistakes = {
            "Squared widths are wanted.": widths,
            "That is their mean.": right / n,
            "The ridge is missing.": min(n, d),
        }
        hint = f"With {n} rows of {d} features and a ridge of {ridge:g}: A holds all these rows."
        found = answer(total, rows, ridge)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


@exercise("ex-ips-by-hand")
def _ips_by_hand(by_hand: Function) -> None:
    rng = np.random.default_rng(5)
    for n, k in ((60, 3), (400, 5)):
        served, policy = (rng.dirichlet(np.ones(k), size=n) for _ in range(2))
        shown = np.array([rng.choice(k, p=one) for one in served])
        clicks = rng.binomial(1, 0.4, size=n)
        propensities = served[np.arange(n), shown]
        weights = np.array([one[a] for one, a in zip(policy, shown, strict=True)])
        terms = weights / propensities * clicks
        right = terms.mean(), stats.sem(terms)
        mistakes = {
            "That is the spread of a visit: divide by the root of their number.": (
                right[0],
                terms.std(ddof=1),
            ),
            "Divide by the propensity with which it was shown.": (
                (weights * clicks).mean(),
                stats.sem(weights * clicks),
            ),
            "Weigh by the new policy's probability of what was shown.": (
                (clicks / propensities).mean(),
                stats.sem(clicks / propensities),
            ),
            "That divides by the sum of the weights: the plain mean is wanted.": (
                terms.sum() / (weights / propensities).sum(),
                right[1],
            ),
        }
        hint = f"In a log of {n} visits each has a weight: probability now by probability then."
        found = numbers(
            answer(by_hand, shown, clicks, propensities, policy), (2,), hint
        )
        within = [1e-6, 0.02 * right[1]]  # n or n - 1
        expect_close(found, right, hint, within=within, mistakes=mistakes)


@exercise("ex-alarm-line")
def _alarm_line(line: Function) -> None:
    for n, allowed, level in ((1_000, 0.002, 1e-4), (200, 0.05, 0.01), (50, 0.2, 0.05)):
        tail = np.cumsum(stats.binom.pmf(np.arange(n + 1), n, allowed)[::-1])[::-1]
        right = int(np.argmax(tail <= level))
        usual = n * allowed + stats.norm.isf(level) * np.sqrt(
            n * allowed * (1 - allowed)
        )
        mistakes = {
            "With this count it rings already, and one more is not needed.": right + 1,
            "This count comes too often: which probability lies at it and above?": right
            - 1,
            "Counts are not normal where so few are expected.": np.ceil(usual),
        }
        hint = f"For {n} visits, {allowed} allowed and the level {level}: add up the probabilities of the tail."
        expect_close(answer(line, n, allowed, level), right, hint, mistakes=mistakes)


@exercise("ex-value-iteration")
def _value_iteration(best_values: Function) -> None:
    rng = np.random.default_rng(6)
    for n_states, n_actions, gamma in ((3, 2, 0.9), (4, 3, 0.5), (2, 4, 0.99)):
        moves = rng.dirichlet(np.full(n_states, 0.5), size=(n_actions, n_states))
        r = rng.uniform(size=(n_actions, n_states))
        policies = list(product(range(n_actions), repeat=n_states))
        values = np.array([_values(moves, r, gamma, one) for one in policies])
        mistakes = {
            "That is the best first reward alone.": r.max(axis=0),
            "Those are the worst values.": values.min(axis=0),
            "Too few rounds: go on until nothing changes.": _iterated(
                moves, r, gamma, 20
            ),
            "One action is not best in all states.": max(
                (_values(moves, r, gamma, (a,) * n_states) for a in range(n_actions)),
                key=np.sum,
            ),
        }
        hint = f"With {n_states} states and γ = {gamma}: reward plus the discounted value of what follows."
        found = answer(best_values, moves, r, gamma)
        right = values.max(axis=0)
        expect_close(found, right, hint, within=1e-5, mistakes=mistakes)


def _values(
    moves: NDArray, r: NDArray, gamma: float, policy: tuple[int, ...]
) -> NDArray[np.float64]:
    """Solve the equations of one policy."""
    states = np.arange(len(policy))
    step = moves[policy, states]
    earned = r[policy, states]
    return np.linalg.solve(np.eye(len(policy)) - gamma * step, earned)


def _iterated(moves: NDArray, r: NDArray, gamma: float, rounds: int) -> NDArray:
    values: ArrayLike = np.zeros(r.shape[1])
    for _ in range(rounds):
        values = (r + gamma * moves @ values).max(axis=0)
    return values


@exercise("ex-patience")
def _patience(patience: Function) -> None:
    for lurid, honest in (
        ((0.6, 0.5), (0.4, 0.9)),
        ((0.5, 0.2), (0.45, 0.95)),
        ((0.9, 0.1), (0.5, 0.8)),
    ):
        c, leaves = lurid
        h, stays = honest
        right = brentq(lambda g: _played(*lurid, g) - _played(*honest, g), 0, 1)  # noqa: B023
        mistakes = {
            "The lurid one goes on earning, too.": (c - h) / c / stays,
            "Each sum has its own clicks: multiply crosswise.": (c - h)
            / (stays - leaves),
        }
        hint = f"For {lurid} and {honest}: what is each worth, added up over all steps?"
        found = answer(patience, lurid, honest)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


def _played(click: float, stay: float, gamma: float) -> float:
    """Add up the discounted clicks of a session, step by step."""
    return click * np.sum((gamma * stay) ** np.arange(1_000))
