"""Judges of the exercises of the chapter "Sessions, and when a bandit is not enough"."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib.book.exercises import judging
from zoolib.book.exercises.judging import Function, answer, exercise
from zoolib.sessions.mdp import DecisionProcess
from zoolib.sessions.shop import SessionSimulator


def _best(process: DecisionProcess) -> NDArray[np.int64]:
    return process.optimal_q().argmax(axis=-1)


def _expect(found: ArrayLike, hints: dict, within: ArrayLike = 1e-9) -> None:
    """Expect the first numbers; the others come from known mistakes, each with its hint."""
    (hint, right), *mistakes = hints.items()
    judging.expect_close(found, right, hint, within=within, mistakes=dict(mistakes))


@exercise("ex-two-steps")
def _two_steps(values: ArrayLike, plain_first: Function) -> None:
    def first(gloss: float, n_products: int = 1_000) -> NDArray[np.float64]:
        """Count back: values of (plain, glossy) first, by food and toy."""
        click = np.array([2 / 5, 1 / 2])
        value = np.zeros(2)
        for _ in range(n_products):
            first = np.stack([click * (1 + value[::-1]), click + gloss * (1 - click)])
            value = first.max(axis=0)
        return first

    _expect(values, {
        "Each value is a click probability times one more than the other.": first(1 / 4).max(axis=0),
        "There is no limit of two products now.": [13 / 20, 5 / 8],
        "After a click she stays, and wants what goes with it.": [2 / 5, 1 / 2]})  # fmt: skip
    tried = (0, 0.1, 0.25, 0.45, 0.55, 0.58, 0.59, 0.7, 1)
    right, two = (1 - np.argmax([first(g, n)[:, 0] for g in tried], axis=1) for n in (1_000, 2))  # fmt: skip
    _expect([answer(plain_first, gloss) for gloss in tried], {
        "After the click on glossy food she leaves: compare it with v_food.": right,
        "With two products, yes. But she may stay longer.": two})  # fmt: skip


@exercise("ex-visitors")
def _visitors(per_user: Function, visitors: Function) -> None:
    rng = np.random.default_rng(0)
    user = rng.integers(0, 12, 40) * 3
    clicks = rng.integers(0, 5, 40)
    came = np.unique(user)
    by = [clicks[user == one] for one in came]
    _expect(answer(per_user, user, clicks), {
        "Add up all sessions of a user: one number for each who came, by id.": [x.sum() for x in by],
        "A mean forgets how often she came: add up.": [x.mean() for x in by],
        "That counts her sessions, not her clicks.": [len(x) for x in by]})  # fmt: skip
    a = rng.poisson(2, 300)
    b = rng.geometric(0.25, 200)
    for power, z in ((0.8, 2.486475), (0.5, 1.644854)):
        spread = a.var() + b.var()
        lead = a.mean() - b.mean()
        _expect(answer(visitors, a, b, power) / (z**2 * spread / lead**2), within=0.03, hints={
            "The lead must be as many standard errors as the two quantiles together.": 1,
            "That finds it half of the time: the power has a quantile of its own.": (1.644854 / z) ** 2,
            "Both sides scatter: add their variances.": b.var() / spread,
            "Square the lead, too.": abs(lead)})  # fmt: skip


@exercise("ex-effective")
def _effective(effective: Function) -> None:
    """Add up sessions by the step in which they end, with powers of one matrix for each step's factors."""
    rng = np.random.default_rng(0)
    moves = rng.dirichlet(np.ones(6), (5, 3))[..., :5]
    start = rng.dirichlet(np.ones(5))
    log, target = rng.dirichlet(np.ones(3), (2, 5)) * 0.7 + 0.1

    def sessions(factor: NDArray, ending: bool = True, steps: int = 4) -> float:
        to = np.einsum("sk,skt->st", factor, moves)
        reached = [start @ np.linalg.matrix_power(to, t) for t in range(steps + 1)]
        ended = factor * (1 - moves.sum(axis=-1))
        return 1_000 / (reached[-1].sum() + ending * sum((p @ ended).sum() for p in reached[:-1]))  # fmt: skip

    ratio = target / log
    _expect(answer(effective, moves, start, log, target, 1_000, 4), {
        "Each step multiplies by the mean of the squared ratio, and leads on.": sessions(log * ratio**2),
        "A session that has ended keeps its weight.": sessions(log * ratio**2, ending=False),
        "The mean is taken under the log's policy.": sessions(target * ratio**2),
        "The mean of the weights is one: it is their square that counts.": 1_000,
        "One step too few.": sessions(log * ratio**2, steps=3)})  # fmt: skip


@exercise("ex-sarsa")
def _sarsa(sarsa: Function, promised: ArrayLike) -> None:
    """Make exploration part of the world: in that world SARSA's policy is the best one."""
    q = np.random.default_rng(0).random((3, 4))
    at = np.eye(3, 4) * [0, 1, 0, 0]
    for ended in (False, True):
        after = {
            "One entry moves, by η times δ. Return the whole table.": q[2, 0] * (not ended),
            "That is Q-learning: take the product that is shown next.": q[2].max(),
            "Nothing comes after the end.": q[2, 0]}  # fmt: skip
        tables = {hint: q + 0.3 * at * (1 + 0.9 * v - q) for hint, v in after.items()}
        _expect(answer(sarsa, q, 1, 1, 1, 2, 0, ended, 0.3, 0.9), tables)
    worlds = SessionSimulator(seed=range(20), carry_over=1.0)  # the chapter's
    truth = worlds.process()
    moves = 0.8 * truth.transition + 0.2 * truth.transition.mean(axis=-2, keepdims=True)
    click = 0.8 * truth.reward + 0.2 * truth.reward.mean(axis=-1, keepdims=True)
    exploring = replace(truth, transition=moves, reward=click)
    best, other = (world.value(_best(truth)) for world in (truth, exploring))
    _expect(promised, within=1e-4, hints={
        "By SARSA's table: the mean that its targets take. Enough sweeps?": [
            best, exploring.value(_best(exploring))],
        "SARSA's table knows that the shop explores.": [best, best],
        "SARSA explores around its own plan, not Q-learning's.": [best, other]})  # fmt: skip


@exercise("ex-carry-over")
def _carry_over(carried_over: Function) -> None:
    for chi in (0.2, 0.7):
        shop = SessionSimulator(seed=3, carry_over=chi)
        log = shop.play(np.full((80, 10), 0.1), n_sessions=20_000, seed=3)
        state = np.column_stack([log[0], np.full(len(log[0]), 80)])
        found = answer(carried_over, state, *log[1:], shop.glossy)
        _expect(found, within=0.03, hints={
            "Compare how often patience stays after a click on a plain product and after the rest.": chi,
            "Without carry-over patience stays in half of the steps, too.": (1 + chi) / 2,
            "That is the share after the rest.": (1 - chi) / 2,
            **_careless(chi, state, *log[1:], shop.glossy)})  # fmt: skip


def _careless(
    chi: float, state: NDArray, product: NDArray, clicked: NDArray, glossy: NDArray
) -> dict[str, float]:
    """Return what an estimate is with one condition forgotten, by hint."""
    before = state[:, :-1]
    after = state[:, 1:]
    played = before < 80
    same = before % 4 == after % 4
    click = clicked == 1

    def difference(stays: NDArray, kept: NDArray) -> float:
        return stays[played & kept].mean() - stays[played & ~kept].mean()

    plain = click & ~glossy[product]
    return {"80 is the end, no state in which patience stays.": difference(same, plain),
            "A glossy click costs patience.": difference(same & (after < 80), click)}  # fmt: skip
