"""Judges of the exercises of Chapter 3, "Neural bandits: sharing what is learnt"."""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial
from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib.agents import Context
from zoolib.book.exercises.judging import (
    Function,
    answer,
    exercise,
    expect,
    expect_callable,
    expect_close,
    numbers,
)
from zoolib.world.features import FeatureEngineer
from zoolib.world.simulator import ZooplusSimulator, true_ctr_matrix

SEEDS = (3, 8)


@exercise("ex-width")
def _width(width: Function) -> None:
    """Ask first where the unit is on, then where it is off."""
    on = np.array([1.0, 2.5])
    off = np.array([-1.0, -0.4])
    for n, w, v in ((3, 0.5, 2.0), (50, 1.5, -0.8), (3, 1.5, -0.8)):
        right = partial(_widths, n, np.array([w, v]))
        mistakes = {
            "That is the slope in x: take those in the parameters.": right(on, by=[2]),
            "v is a parameter, too: its slope is missing.": right(on, by=[0]),
            "w is a parameter, too: its slope is missing.": right(on, by=[1]),
            "Where is the ridge in A?": right(on, ridge=1e-9),
        }
        case = f"For n = {n}, w = {w:g} and v = {v:g}"
        hint = f"{case}: compute both slopes, A and the squared width, one by one."
        found = [answer(width, float(x), n, w, v) for x in on]
        expect_close(found, right(on), hint, within=1e-6, mistakes=mistakes)
        mistakes = {"Left of zero the unit is off, and this is as if it were on.": right(-off)}  # fmt: skip
        hint = f"{case}: left of zero, how does the output change with w and v?"
        found = [answer(width, float(x), n, w, v) for x in off]
        expect_close(found, right(off), hint, within=1e-6, mistakes=mistakes)


def _widths(
    n: int,
    weights: NDArray[np.float64],
    xs: NDArray[np.float64],
    by: Sequence[int] = (0, 1),
    ridge: float = 1.0,
) -> NDArray[np.float64]:
    """Add up A visit by visit, for a gradient of some of the slopes in w, v and x."""
    g, *asked = (_slopes(*weights, x)[list(by)] for x in (1.0, *xs))
    return _root_of_squares(np.array(asked), np.array([g] * n), ridge)


def _slopes(*at: float) -> NDArray[np.float64]:
    """Take the slopes of a unit in w, v and x by central differences."""

    def f(w: float, v: float, x: float) -> float:
        return v * max(w * x, 0.0)

    steps = 1e-5 * np.eye(3)
    return np.array([f(*(at + step)) - f(*(at - step)) for step in steps]) / 2e-5


@exercise("ex-residuals")
def _residuals(left_over: Function) -> None:
    """Sort noise around a hollow, wider on its right, into bins of unlike sizes."""
    rng = np.random.default_rng(7)
    for n, edges in ((400, (-1, -0.2, 0.3, 1)), (900, (-1, 0, 0.2, 0.6, 1))):
        by = rng.uniform(-1, 1, size=n)
        residuals = rng.normal(by**2, 1 + (by > 0))
        bins = [residuals[(low <= by) & (by < high)] for low, high in pairwise(edges)]
        found = answer(left_over, residuals, by, np.array(edges))
        pair = isinstance(found, tuple | list) and len(found) == 2
        expect(pair, "Return two things, means and standard errors.")
        means = np.array([part.mean() for part in bins])
        mistakes = {
            "These are sums: means are wanted.": [part.sum() for part in bins],
            "Keep the signs of the residuals.": [np.abs(part).mean() for part in bins],
        }
        hint = "A bin's number is the mean of the residuals whose `by` lies between its two edges."
        expect_close(found[0], means, hint, within=1e-8, mistakes=mistakes)
        spread = np.array([part.std(ddof=1) for part in bins])
        right = spread / np.sqrt([len(part) for part in bins])
        mistakes = {
            "That is how residuals scatter, not how their mean does.": spread,
            "How many residuals are in this bin?": spread / np.sqrt(n),
        }
        hint = "The standard error of a mean of n numbers is their standard deviation divided by √n."
        expect_close(found[1], right, hint, within=0.1 * right, mistakes=mistakes)


@exercise("ex-projection")
def _projection(widths: Function) -> None:
    """Take the widths of a linear model whose features are the combinations."""
    rng = np.random.default_rng(6)
    for n, p, m, ridge in ((5, 8, 3, 1.0), (30, 12, 6, 0.5)):
        asked, seen, mix = (rng.normal(size=(rows, p)) for rows in (4, n, m))
        mixed = asked @ mix.T, seen @ mix.T
        right = _root_of_squares(*mixed, ridge)
        of_all = _root_of_squares(asked, seen, ridge)
        mistakes = {
            "That is the doubt about all p parameters.": of_all,
            "Where is the ridge in A?": _root_of_squares(*mixed, 1e-9),
            "The width is the root.": right**2,
        }
        hint = "Turn every gradient g into R g, m numbers, and do with them what A and w did with g."
        found = answer(widths, asked, seen, mix, ridge)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


def _root_of_squares(
    asked: NDArray[np.float64], seen: NDArray[np.float64], ridge: float
) -> NDArray[np.float64]:
    A = ridge * np.eye(seen.shape[1]) + seen.T @ seen
    return np.sqrt([z @ np.linalg.solve(A, z) for z in asked])


@exercise("ex-sharing")
def _sharing(apart: Function, together: Function) -> None:
    """Ask of every two visits how far the row of one lies along that of the other."""
    worlds = [ZooplusSimulator(seed=seed) for seed in SEEDS]
    users = np.arange(60).reshape(2, 30)
    persona = np.stack(
        [w.persona_of_user[of] for w, of in zip(worlds, users, strict=True)]
    )
    category = np.stack([w.category_of_product for w in worlds])
    of_fifty, of_one = (
        _rows(features, worlds, users) for features in (apart, together)
    )
    along = np.einsum("wuad, wvad -> wauv", of_fifty, of_fifty)
    own = persona[:, None, :, None] == persona[:, None, None, :]
    hint = "Of the fifty models each should learn from a persona for this persona only, and as much for each."
    expect(_is_multiple(along, own), hint)
    along = np.einsum("wuad, wvbd -> wuavb", of_one, of_one)
    own_cell = (
        own[:, 0, :, None, :, None]
        & (category[:, :, None] == category[:, None])[:, None, :, None]
    )
    hint = "The one model should learn from a cell for this cell only, and as much for each."
    expect(_is_multiple(along, own_cell), hint)
    hint = "Before the first visit the two do not score alike: how long are their rows?"
    expect(np.isclose(along.max(), (of_fifty**2).sum(axis=-1).max()), hint)


def _rows(
    features: Function,
    worlds: Sequence[ZooplusSimulator],
    users: NDArray[np.int_],
    d: int | None = None,
) -> NDArray[np.float64]:
    """Return the rows of a reader's features, shape (W, n, 50, d) for n users, with any d or one wanted."""
    made = answer(features, worlds)
    rows = np.stack([answer(made.transform, visit) for visit in users.T], axis=1)
    hint = f"transform takes one user per world and returns shape (W, 50, {d or 'd'})."
    expect(rows.shape[:-1] == (len(worlds), users.shape[1], 50), hint)
    expect(d in (None, rows.shape[-1]), hint)
    return rows


def _is_multiple(along: NDArray[np.float64], own: NDArray[np.bool_]) -> bool:
    return along.max() > 0 and np.allclose(along, along.max() * own)


@exercise("ex-rebuild")
def _rebuild(rebuild: Function, least_width: Function) -> None:
    """Learn row after row: what was learnt fades, and the ridge does not."""
    rng = np.random.default_rng(5)
    for n, d, ridge, gamma in ((7, 3, 0.5, 0.9), (40, 5, 2.0, 0.99)):
        z = rng.normal(size=(n, d))
        rewards = rng.integers(2, size=n).astype(float)
        A, b = _learnt(z, rewards, gamma)
        first = _learnt(z[::-1], rewards[::-1], gamma)
        all_alike = _learnt(z, rewards)
        found = answer(rebuild, z, rewards, ridge, gamma)
        pair = isinstance(found, tuple | list) and len(found) == 2
        expect(pair, "Return two things, A and b.")
        prior = ridge * np.eye(d)
        reversed_hint = "The newest row has weight 1, and that is the last one."
        early_hint = "The newest row has no newer one: its weight is 1, not γ."
        alike_hint = "Where is the discount?"
        mistakes = {
            reversed_hint: prior + first[0],
            early_hint: prior + gamma * A,
            alike_hint: prior + all_alike[0],
            "The ridge does not fade.": gamma**n * prior + A,
        }
        hint = "A begins with λ on its diagonal, and row j, counted from the newest, adds γʲ z zᵀ."
        expect_close(found[0], prior + A, hint, within=1e-8, mistakes=mistakes)
        mistakes = {
            reversed_hint: first[1],
            early_hint: gamma * b,
            alike_hint: all_alike[1],
        }
        hint = "The rows have the same weights in b as in A, times their rewards."
        expect_close(found[1], b, hint, within=1e-8, mistakes=mistakes)
    for gamma in (0.5, 0.9, 0.999):
        rows = np.ones((round(40 / (1 - gamma)), 1))  # what is older has faded
        weight = _learnt(rows, rows[:, 0], gamma)[1].item()
        mistakes = {"Where is the ridge? It does not fade.": 1 / np.sqrt(weight)}
        hint = f"For γ = {gamma}: what is the sum of the weights of all visits, and what is A along z?"
        found = answer(least_width, gamma)
        right = 1 / np.sqrt(1 + weight)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


def _learnt(
    z: NDArray[np.float64], rewards: NDArray[np.float64], gamma: float = 1.0
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what rows add to A and to b, the oldest first."""
    A = np.zeros((z.shape[1], z.shape[1]))
    b = np.zeros(z.shape[1])
    for row, reward in zip(z, rewards, strict=True):
        A = gamma * A + np.outer(row, row)
        b = gamma * b + reward * row
    return A, b


@exercise("ex-hill")
def _hill(features: Function, weights: ArrayLike) -> None:
    """Ask least squares whether any weights give the true click probabilities."""
    worlds = [ZooplusSimulator(seed=seed, rich=True) for seed in SEEDS]
    users = np.arange(200).reshape(2, 100)
    rows = _rows(features, worlds, users, 20)
    truth = np.array(
        [true_ctr_matrix(w)[of] for w, of in zip(worlds, users, strict=True)]
    )
    best = np.linalg.lstsq(rows.reshape(-1, 20), truth.ravel())[0]
    hint = "No weights make your features exact. Is each the appeal of this product to this user, in its pair?"
    expect(np.allclose(rows @ best, truth), hint)
    theirs = numbers(weights, (20,), "20 weights are wanted, in one row.")
    hint = "The features are right. In which order do they stand?"
    expect_close(rows @ theirs, truth, hint)


@exercise("ex-neural-linear")
def _neural_linear(make: Function) -> None:
    """Let it play 220 visits; then its statistics must be those that its body gives of all rows."""
    expect_callable(make, "Hand over the class, not an object of it.")
    alpha = 0.5
    n_visits = 220
    agent = answer(partial(make, alpha=alpha), 9)
    for name in ("embed", "select", "update"):
        expect(hasattr(agent, name), f"The agent needs a method {name}.")
    world = ZooplusSimulator(seed=SEEDS[0])
    rng = np.random.default_rng(4)
    features = FeatureEngineer(world)
    truth = true_ctr_matrix(world)
    first = _embedded(agent, np.eye(9))
    rows = []
    rewards = []
    for user in rng.integers(world.n_users, size=n_visits):
        context = Context(int(user), features.transform(int(user)))
        arm = int(agent.select(context))
        if len(rows) in (1, 60, n_visits - 1):
            _expect_best(agent, context.features, arm, len(rows), alpha)
        reward = int(rng.random() < truth[user, arm])
        agent.update(context, arm, reward)
        rows.append(context.features[arm])
        rewards.append(reward)
    hint = f"After {n_visits} visits the body makes the same of each row as before the first: train it."
    expect(not np.allclose(first, _embedded(agent, np.eye(9))), hint)
    z = _embedded(agent, np.array(rows))
    A = np.eye(z.shape[1]) + z.T @ z
    b = z.T @ np.array(rewards)
    for name, right in (("A", A), ("b", b)):
        expect(hasattr(agent, name), f"The agent needs {name}, an attribute.")
        found = numbers(
            getattr(agent, name), right.shape, f"That is the agent's {name}."
        )
        hint = (
            f"{name} is not what the present body makes of all rows: after each training rebuild it, "
            "with the newest row in it, once, and without a discount."
        )
        mistakes = {"Where is the ridge in A?": right - np.eye(len(z[0]))} if name == "A" else {}  # fmt: skip
        expect_close(found, right, hint, within=1e-3, mistakes=mistakes)


def _embedded(agent: object, rows: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return what the agent's body makes of rows."""
    z = np.asarray(answer(agent.embed, rows), float)
    hint = "embed takes rows (n, 9), an array, and returns an array (n, d_emb)."
    expect(z.ndim == 2 and len(z) == len(rows), hint)
    return z


def _expect_best(
    agent: object,
    offered: NDArray[np.float64],
    arm: int,
    visit: int,
    alpha: float,
) -> None:
    """Give a hint unless the arm has the highest score that the agent's own statistics allow."""
    z = _embedded(agent, offered)
    A = np.asarray(agent.A, float)
    b = np.asarray(agent.b, float)
    width = np.sqrt(np.einsum("ki,ij,kj->k", z, np.linalg.inv(A), z))
    scores = z @ np.linalg.solve(A, b) + alpha * width
    hint = (
        f"At visit {visit} select shows an arm that does not have the highest score: prediction from A and "
        "b, plus alpha times the width, both of the embeddings."
    )
    expect(scores[arm] > scores.max() - 1e-3, hint)
