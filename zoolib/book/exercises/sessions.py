"""Judges of the exercises of the chapter "Sessions, and when a bandit is not enough"."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib.book.exercises import judging
from zoolib.book.exercises.judging import Function, answer, exercise
from zoolib.world.mdp import DecisionProcess
from zoolib.world.sessions import SessionSimulator


def _best(process: DecisionProcess) -> NDArray[np.int64]:
    return process.optimal_q().argmax(axis=-1)


def _expect(found: ArrayLike, hints: dict, within: ArrayLike = 1e-9) -> None:
    """Expect the first numbers; the others come from known mistakes, each with its hint."""
    (hint, right), *mistakes = hints.items()
    judging.expect_close(found, right, hint, within=within, mistakes=dict(mistakes))


@exercise("ex-two-steps", "(v_food, v_toy), and a function that returns True for plain")
def _two_steps(values: ArrayLike, plain_first: Function) -> None:
    def first(gloss: float, n_products: int = 1_000) -> NDArray[np.float64]:
        """Count back: values of (plain, glossy) first, by food and toy."""
        click, value = np.array([2 / 5, 1 / 2]), np.zeros(2)
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


@exercise("ex-policy-value", "a function of the three arrays that returns V, (S,)")
def _policy_value(policy_value: Function) -> None:
    """Add up the rewards of many steps."""
    rng, states, policy = np.random.default_rng(0), np.arange(5), [0, 1, 1, 0, 1]
    moves, reward = rng.dirichlet(np.ones(6), (5, 2))[..., :5], rng.random((5, 2))
    now, to = reward[states, policy], moves[states, policy]
    right, back = (sum(np.linalg.matrix_power(p, t) @ now for t in range(500)) for p in (to, to.T))  # fmt: skip
    _expect(answer(policy_value, moves, reward, np.array(policy)), within=1e-6, hints={
        "Take the rows of the policy's actions out of both arrays, and solve (I - P) V = p.": right,
        "That is the next reward alone.": now,
        "Rows say where a state leads: do not transpose.": back})  # fmt: skip


@exercise(
    "ex-sarsa",
    "a function that returns the new table, and what a session is worth by each",
)
def _sarsa(sarsa: Function, promised: ArrayLike) -> None:
    """Make exploration part of the world: in that world SARSA's policy is the best one."""
    q, at = np.random.default_rng(0).random((3, 4)), np.eye(3, 4) * [0, 1, 0, 0]
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


@exercise("ex-targets", "a function that returns the targets, (B,)")
def _targets(targets: Function) -> None:
    online, target = np.random.default_rng(0).random((2, 40, 6))
    reward, ended, rows = online[:, 0], online[:, 1] < 1 / 3, np.arange(40)
    named = target[rows, online.argmax(axis=1)]
    after = {
        "Look at the formula with the double estimator, row by row.": ~ended * named,
        "Nothing comes after the end.": named,
        "The trained network names the product, not the copy.": ~ended * target.max(axis=1),
        "The copy says what the product is worth.": ~ended * online.max(axis=1)}  # fmt: skip
    found = answer(targets, online, target, reward, ended, 0.9)
    _expect(found, {hint: reward + 0.9 * value for hint, value in after.items()})
