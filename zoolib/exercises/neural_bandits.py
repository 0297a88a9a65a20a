"""Judges of the exercises of Chapter 3, "Neural bandits: sharing what is learnt"."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from zoolib.agents import (
    Agent,
    Context,
    LinUCBAgent,
    NeuralLinearAgent,
    NeuralUCBAgent,
)
from zoolib.exercises.judging import (
    UnansweredError,
    exercise,
    expect,
    expect_callable,
    expect_close,
    unanswered,
)
from zoolib.experiment import History, run_experiment
from zoolib.features import FeatureEngineer
from zoolib.simulator import (
    SHOCK_1,
    SHOCK_2,
    Churn,
    ZooplusSimulator,
    true_ctr_matrix,
)

SEEDS = (3, 8)
Function = Callable[..., Any]  # the reader's, so it may return anything
IN_PER_CENT = "These are parts: percentages of the oracle's clicks are wanted."


@exercise("ex-special-case")
def special_case(widths: Function) -> None:
    """a function of the rows played and the rows asked about, each of shape (n, 9), that returns a width
    for each row asked about.
    """
    rng = np.random.default_rng(3)
    played, asked = rng.normal(size=(12, 9)), rng.normal(size=(12, 9))
    found = _answer(widths, played, asked)
    agent = NeuralUCBAgent(12, 9, alpha=1.0, hidden=(), train_every=5, dtype=np.float64)
    for arm in range(12):
        agent.update(Context(0, played), arm, rng.random())
    context = Context(0, asked)
    with_bonus, agent.alpha = agent.scores(context), 0.0
    wanted = with_bonus - agent.scores(context)
    expect_close(
        found,
        wanted,
        "What is the gradient of a network without hidden layer, entry by entry?",
        mistakes={
            "A width is a root: these are its squares.": wanted**2,
            "The network has a bias, and so has its gradient.": _widths(played, asked),
            "Where is the ridge, λ = 1?": _widths(
                _with_one(played), _with_one(asked), ridge=0
            ),
        },
    )


@exercise("ex-sigmoid")
def sigmoid(factor: Function, q_of_largest: float, times: float) -> None:
    """a function of q that returns the factor, the q for which it is largest, and how many times as large
    the bonus at 0.5 is as that at 0.02.
    """
    q = np.array([0.02, 0.3, 0.5, 0.9])
    found = [_answer(factor, float(one)) for one in q]
    slope = _slope(q)
    expect_close(
        found,
        slope,
        "The chain rule multiplies the gradient by the slope of the sigmoid. Express it by q.",
        within=1e-6,
        mistakes={
            "That divides the bonus: what multiplies it is wanted.": 1 / slope,
            "The gradient stands twice under the root of the bonus.": np.sqrt(slope),
            "That is the factor of the squared bonus.": slope**2,
        },
    )
    grid = np.linspace(0.01, 0.99, 99)
    hint = "Draw your factor against q."
    expect_close(q_of_largest, grid[np.argmax(_slope(grid))], hint, within=5e-3)
    expect_close(
        times,
        slope[2] / slope[0],
        "Divide the factor of the one arm by that of the other.",
        within=0.05,
        mistakes={"That is the other way round.": slope[0] / slope[2]},
    )


def _slope(q: NDArray[np.float64]) -> NDArray[np.float64]:
    """Return the slope of the sigmoid where its value is q, by central differences."""
    f, step = np.log(q / (1 - q)), 1e-5
    return (expit(f + step) - expit(f - step)) / (2 * step)


@exercise("ex-gigabyte")
def gigabyte(full: int, diagonal: int) -> None:
    """two whole numbers of units: one if all of A⁻¹ is kept, and one if its diagonal is."""
    for kept, m, power in (("all of A⁻¹", full, 2), ("the diagonal", diagonal, 1)):
        expect(
            np.ndim(m) == 0 and m > 0 and bool(np.floor(m) == m),
            f"With {kept}: a whole number of units is wanted.",
        )
        fits, next_fits = (
            4 * _n_parameters(float(units)) ** power <= 1e9 for units in (m, m + 1)
        )
        expect(
            fits,
            f"With {kept}: so many units take more than a thousand million bytes. A number takes four "
            "bytes, and each unit has a bias.",
        )
        expect(not next_fits, f"With {kept}: there is room for more units.")


def _n_parameters(m: float) -> float:
    """Count the weights and biases of a 9-m-1 network, layer by layer."""
    return (9 * m + m) + (m * 1 + 1)


@exercise("ex-row-sums")
def row_sums(multiplications: Function, bonuses: Function) -> None:
    """a function of K and p that returns the two numbers of multiplications, the whole product's first,
    and a function of J and A⁻¹ that returns the K squared bonuses by row sums.
    """
    for n_arms, p in ((2, 3), (5, 2), (4, 7)):
        found = _answer(multiplications, n_arms, p)
        first = _counted(np.matmul, n_arms, p)
        whole = _counted(lambda J, A_inv: J @ A_inv @ J.T, n_arms, p)  # noqa: N803
        sums = _counted(_by_row_sums, n_arms, p)
        expect_close(
            found,
            [whole, sums],
            "An entry of a product of matrices takes a multiplication for each term of its sum.",
            mistakes={
                "The count of the whole product comes first.": [sums, whole],
                "Both need J times A⁻¹ first: count that, too.": [
                    whole - first,
                    sums - first,
                ],
                "The second factor has a cost, too.": [first, first],
            },
        )
    rng = np.random.default_rng(1)
    jacobian, root = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    A_inv = np.linalg.inv(np.eye(3) + root @ root.T)
    wanted = np.array([g @ A_inv @ g for g in jacobian])
    expect_close(
        _answer(bonuses, jacobian, A_inv),
        wanted,
        "An arm's squared bonus needs its own row of J only, twice: K numbers in all.",
        mistakes={"These are roots: squared bonuses are wanted.": np.sqrt(wanted)},
    )


@exercise("ex-diagonal")
def diagonal(squared_widths: Function) -> None:
    """a function of n that returns squared widths in two rows, for (1, 1) and for (1, -1), and two columns,
    with the full A and with its diagonal.
    """
    seen, other = np.array([1.0, 1.0]), np.array([1.0, -1.0])
    for n in (0, 3, 500):
        A = np.eye(2)
        for _ in range(n):
            A += np.outer(seen, seen)
        kept = (A, np.diag(np.diag(A)))
        wanted = np.array(
            [[x @ np.linalg.solve(k, x) for k in kept] for x in (seen, other)]
        )
        A_inv = np.linalg.inv(A)
        cut = np.array(
            [[x @ A_inv @ x, (x**2) @ np.diag(A_inv)] for x in (seen, other)]
        )
        expect_close(
            _answer(squared_widths, n),
            wanted,
            f"Write A down for n = {n}, with the ridge, and invert it.",
            mistakes={
                "These are roots: squared widths are wanted.": np.sqrt(wanted),
                "A row is wanted for each direction, and a column for each form.": wanted.T,
                "Take the diagonal of A and invert that, not the diagonal of A⁻¹.": cut,
            },
        )


@exercise("ex-untrained")
def untrained(untrained_shares: Function) -> None:
    """a function of seeds and n_visits that returns the percentage of the oracle's clicks in each world."""
    found = _answer(untrained_shares, SEEDS, 600)
    play = partial(_played, n_visits=600)
    # Fixed features of x, joined with x, and a ridge posterior: a linear agent.
    linear = LinUCBAgent(50, 41, alpha=0.7, discount=0.999, shared=True, n_worlds=2)
    wanted = play(linear, make_features=_RandomFeatures)
    never = {"train_every": 10**9, "rebuild": False, "window": None}
    expect_close(
        found,
        wanted,
        "But for the training the agent is the recommended one, in calm worlds.",
        within=1e-6,
        mistakes={
            IN_PER_CENT: wanted / 100,
            "This network was trained.": lambda: play(_recommended()),
            "The features are not joined.": lambda: play(
                _recommended(joined=False, **never)
            ),
            "Where is the discount?": lambda: play(_recommended(discount=1.0, **never)),
        },
    )


@exercise("ex-calm-price")
def calm_price(price: Function) -> None:
    """a function of seeds and n_visits that returns the points that the discount costs in each world."""
    found = _answer(price, SEEDS, 1_000)
    forgets, plain = _table(discount=0.9995), _table()
    wanted = plain - forgets
    expect_close(
        found,
        wanted,
        "Two shared tables with α = 0.5, one with the discount and one without, in calm worlds.",
        within=1e-6,
        mistakes={
            IN_PER_CENT: wanted / 100,
            "A cost is what is lost: yours has the other sign.": -wanted,
            "Your tables differ in α, too.": lambda: _table(alpha=1.0) - forgets,
        },
    )


@exercise("ex-thompson")
def thompson(draw_scores: Function) -> None:
    """a function of Z (a row for each arm), A, b, alpha and a generator that returns each arm's score."""
    Z = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # noqa: N806
    A, b, alpha = np.array([[2.0, 1.2], [1.2, 1.5]]), np.array([1.0, -2.0]), 0.8
    draw, rng = partial(_answer, draw_scores, Z, A, b, alpha), np.random.default_rng(11)
    first = draw(rng)
    expect(np.shape(first) == (3,), "A score for each arm is wanted, in one row.")
    scores = np.array([draw(rng) for _ in range(4_000)])
    expect(np.ptp(scores, axis=0).min() > 0, "Your scores are the same at each draw.")
    hint = "Draw from the generator that is handed in, and nothing else."
    expect_close(draw(np.random.default_rng(11)), first, hint)
    hint = "One draw of θ is for all arms: an arm whose row is a sum scores the sum."
    expect_close(scores[:, 2], scores[:, 0] + scores[:, 1], hint)
    theta, A_inv = scores[:, :2], np.linalg.inv(A)
    largest, n = alpha**2 * A_inv.max(), len(scores)
    expect_close(
        theta.mean(axis=0),
        A_inv @ b,
        "The mean of many draws of θ should be that of the posterior.",
        within=5 * math.sqrt(largest / n),  # five standard errors, here and below
    )
    expect_close(
        np.cov(theta.T),
        alpha**2 * A_inv,
        "Many draws of θ do not have the covariance that is wanted. If the entries of v are independent, "
        "then M v has the covariance M Mᵀ.",
        within=5 * largest * math.sqrt(2 / n),
        mistakes={
            "The draws have the covariance of A, not of its inverse.": alpha**2 * A,
            "α is a standard deviation: its square is in the covariance.": alpha
            * A_inv,
            "Your draws do not depend on α.": A_inv,
        },
    )


@exercise("ex-lift")
def lift(lifts: Function) -> None:
    """a function of a history and an agent's name, and of another history and name, that returns the lift
    of the first agent over the second in each world, in percent.
    """
    rates = np.array([[0.20, 0.30, 0.25], [0.36, 0.20, 0.30], [0.50, 0.45, 0.60]])
    rivals = np.array([[0.30, 0.30, 0.20], [0.30, 0.25, 0.24], [0.20, 0.65, 0.30]])
    ours = _history_of({"someone": rates[::-1], "ours": rates}, seed=1)
    theirs = _history_of({"theirs": rivals}, seed=2)

    def ratio(start: int, stop: int, values: str = "reward") -> NDArray[np.float64]:
        clicks, others = (getattr(h, values)[-1, :, start:stop] for h in (ours, theirs))
        return 100 * clicks.sum(axis=-1, dtype=float) / others.sum(axis=-1)

    wanted = ratio(10_000, 20_000) - 100
    expect_close(
        _answer(lifts, ours, "ours", theirs, "theirs"),
        wanted,
        "By how many percent does the first agent get more clicks than the second, in each world?",
        mistakes={
            "These are parts: percent are wanted.": wanted / 100,
            "If both get the same, the lift is zero.": wanted + 100,
            "That is the lift of the second over the first.": 1e4 / (wanted + 100)
            - 100,
            "Visits before the shock do not count.": ratio(0, 20_000) - 100,
            "Only 10,000 visits after the shock count.": ratio(10_000, 25_000) - 100,
            "Visits after the second shock do not count.": ratio(10_000, 40_000) - 100,
            "Clicks are wanted, not their probabilities.": ratio(
                10_000, 20_000, "expected_reward"
            )
            - 100,
        },
    )


@exercise("ex-one-seed")
def one_seed(two_phases: Function) -> None:
    """a function of a seed and n that returns the visitors of both phases, n users of 1,000 for each."""
    n = 5_000
    visitors = {seed: np.asarray(_answer(two_phases, seed, n)) for seed in (42, 43)}
    first, second = visitors[42], visitors[43]
    expect(
        first.shape == second.shape == (2, n),
        f"Two rows of n visitors are wanted: n = {n:,} was asked for.",
    )
    # A user stays away from 5,000 visits with probability exp(-5): about seven do.
    expect(
        first.dtype.kind in "iu" and all(len(np.unique(row)) > 960 for row in first),
        "Nearly all of the 1,000 users should come in 5,000 visits.",
    )
    expect(first.min() >= 0 and first.max() < 1000, "Users are numbered from 0 to 999.")
    expect(
        bool(np.all(_answer(two_phases, 42, n) == first)),
        "One seed must bring the same visitors each time.",
    )
    expect(
        not np.array_equal(*np.sort(first)) or _alike(*first),
        "The second phase has the visitors of the first in another order.",
    )
    for one, other, hint in (
        (*first, "Both phases still have the same visitors in the same order."),
        (first[0], second[0], "Another seed must bring other visitors."),
        (first[1], second[1], "Another seed must bring other visitors, in phase two."),
        (first[1], second[0], "The next seed begins with this seed's second phase."),
    ):
        expect(not _alike(one, other), hint)


def _alike(one: NDArray[np.int64], other: NDArray[np.int64]) -> bool:
    """Return whether two rows of users agree far more often than in one place of a thousand."""
    return bool(np.mean(one == other) > 0.01)


@exercise("ex-pairs")
def pairs(told_shares: Function) -> None:
    """a function of seeds and n_visits that returns the percentage of the oracle's clicks in each world."""
    found = _answer(told_shares, SEEDS, 400)
    play = partial(_played, n_visits=400)
    wanted = play(_recommended(29), make_features=_pairs)
    expect_close(
        found,
        wanted,
        "The agent is the recommended one, in calm worlds; only its features are more.",
        within=1e-6,
        mistakes={
            IN_PER_CENT: wanted / 100,
            "This agent was not told the pairs.": lambda: play(_recommended()),
            "The features are not joined.": lambda: play(
                _recommended(29, joined=False), make_features=_pairs
            ),
        },
    )


@exercise("ex-hill")
def hill(features: Callable[..., Any], weights: ArrayLike) -> None:
    """a class like FeatureEngineer, made from a list of worlds, with 20 features, and their 20 weights."""
    worlds = [ZooplusSimulator(seed=seed, rich=True) for seed in SEEDS]
    users = np.arange(200).reshape(2, 100)
    made = _answer(features, worlds)
    rows = np.array([_answer(made.transform, visit) for visit in users.T])
    expect(
        rows.shape == (100, 2, 50, 20),
        "transform takes one user for each of W worlds and returns shape (W, 50, 20).",
    )
    truth = [true_ctr_matrix(w)[of] for w, of in zip(worlds, users, strict=True)]
    truth = np.swapaxes(truth, 0, 1)
    best = np.linalg.lstsq(rows.reshape(-1, 20), truth.ravel())[0]
    expect(
        np.allclose(rows @ best, truth),
        "No weights make your features exact. Does each feature belong to one pair, and is it the appeal "
        "of this product to this user?",
    )
    expect(np.shape(weights) == (20,), "20 weights are wanted, in one row.")
    hint = "The features are right. In which order do they stand?"
    expect_close(rows @ np.asarray(weights), truth, hint)


@exercise("ex-rope")
def rope(newcomer_shares: Function, fair: float) -> None:
    """a function of a history and an agent's name that returns, for each world, the part of visits between 0
    and 1, and the fair part.
    """
    shown = np.array([[10, 400], [0, 130], [85, 250]])  # by arrival and world
    greeters = {"shy": _Greeter(shown // 2), "keen": _Greeter(shown)}
    churn = Churn(every=2_500, share=1 / 50)
    history = run_experiment(greeters, SEEDS, 8_000, churn=churn, progress=False)
    wanted = shown.mean(axis=0) / 500
    expect_close(
        _answer(newcomer_shares, history, "keen"),
        wanted,
        "In which part of 500 visits was the newcomer's arm shown, averaged over the arrivals? Which arm "
        "that is, a world of the same seed can tell.",
        mistakes={
            "These are percentages: parts of one are wanted.": 100 * wanted,
            "Average over the arrivals: you have added them.": 3 * wanted,
            "Each arrival brings another newcomer.": _first_shown(history, "keen"),
        },
    )
    hint = "What if fifty products shared the visits equally?"
    expect_close(fair, 1 / 50, hint, within=1e-6)


class _Greeter:
    """An agent for two worlds that shows each newcomer in so many visits, and again when it is older.

    Parameters
    ----------
    shown : ndarray of int, shape (3, 2)
        Visits out of the first 500, for each arrival and world.
    """

    n_arms, n_worlds = 50, 2

    def __init__(self, shown: NDArray[np.int64]) -> None:
        self.coming, self.now = list(shown), np.zeros(2, int)
        self.newcomer, self.age = np.zeros(2, int), 0

    def restock(self, arms: NDArray[np.int64]) -> None:
        """Note which arm is new in each world."""
        (self.newcomer,) = arms.T
        self.now, self.age = self.coming.pop(0), 0

    def select(self, context: Context) -> NDArray[np.int64]:
        """Show the newcomer while it is its turn, and else its neighbour."""
        greets = (self.age < self.now) | (self.age >= 500)
        return np.where(greets, self.newcomer, (self.newcomer + 1) % self.n_arms)

    def update(
        self, context: Context, arm: NDArray[np.int64], reward: NDArray[np.int8]
    ) -> None:
        """Learn nothing, and get older."""
        self.age += 1


def _first_shown(history: History, agent: str) -> NDArray[np.float64]:
    """Return the part of visits of the arm that was the first newcomer, after each arrival."""
    arm = history.arm[history.index(agent)]
    parts = []
    for seed, of_world in zip(history.seeds, arm, strict=True):
        (first,) = ZooplusSimulator(seed=seed).restock(1 / 50)
        spans = [of_world[start : start + 500] for start in (2_500, 5_000, 7_500)]
        parts.append(np.mean(np.array(spans) == first))
    return np.array(parts)


def _history_of(rates: Mapping[str, NDArray[np.float64]], seed: int) -> History:
    """Invent a gauntlet of three worlds, from click rates by phase and world, shape (3, 3), of agents."""
    lengths = np.array([10_000, 15_000, 15_000])
    expected = np.stack([of.repeat(lengths, axis=0).T for of in rates.values()])
    rng = np.random.default_rng(seed)
    visits = np.zeros(expected.shape[1:], np.int32)
    return History(
        agents=tuple(rates),
        seeds=(0, 1, 2),
        shocks={10_000: SHOCK_1, 25_000: SHOCK_2},
        churn=None,
        personas=tuple(ZooplusSimulator().personas),
        planned=40_000,
        user=visits,
        persona=visits.astype(np.int8),
        arm=np.zeros(expected.shape, np.int32),
        reward=(rng.random(expected.shape) < expected).astype(np.int8),
        expected_reward=expected,
        optimal_reward=np.ones(expected.shape),
    )


class _RandomFeatures(FeatureEngineer):
    """What an untrained network makes of the features, joined with them."""

    def __init__(self, worlds: Sequence[ZooplusSimulator]) -> None:
        super().__init__(worlds)
        n_worlds = len(worlds)
        self.network = NeuralLinearAgent(
            50, 9, joined=True, n_worlds=n_worlds, seed=SEEDS
        )

    def transform(self, user_id: ArrayLike) -> NDArray[np.float64]:
        """Embed the rows of users, one in each world."""
        return self.network.embed(super().transform(user_id).astype(np.float32))


def _pairs(worlds: Sequence[ZooplusSimulator]) -> FeatureEngineer:
    """Describe worlds with the interactions of persona and category."""
    return FeatureEngineer(worlds, interactions=True)


def _recommended(n_features: int = 9, **changes: object) -> NeuralLinearAgent:
    """Make the recommended agent of Chapter 3 for two worlds, with changes."""
    settings = {"alpha": 0.7, "joined": True, "rebuild": True, "window": 3_000}
    settings |= {"discount": 0.999, "train_every": 100, "n_batches": 8, "n_worlds": 2}
    return NeuralLinearAgent(50, n_features, **settings | changes)


def _played(
    agent: Agent, n_visits: int, **options: Callable[..., FeatureEngineer]
) -> NDArray[np.float64]:
    """Return the percentage of the oracle's clicks that an agent earns in calm worlds."""
    history = run_experiment([agent], SEEDS, n_visits, progress=False, **options)
    earned, best = history.expected_reward[0], history.optimal_reward[0]
    return 100 * earned.sum(axis=-1) / best.sum(axis=-1)


def _table(alpha: float = 0.5, discount: float = 1.0) -> NDArray[np.float64]:
    """Return what a table of twenty cells earns in 1,000 calm visits."""
    agent = LinUCBAgent(50, 29, alpha, shared=True, discount=discount, n_worlds=2)
    return _played(agent, 1_000, make_features=_pairs)


def _with_one(x: NDArray[np.float64]) -> NDArray[np.float64]:
    """Append a column of ones."""
    return np.column_stack((x, np.ones(len(x))))


def _widths(
    played: NDArray[np.float64], asked: NDArray[np.float64], ridge: float = 1.0
) -> NDArray[np.float64]:
    """Return the widths of rows in a ridge posterior of others; without a ridge, by the pseudo-inverse."""
    A_inv = np.linalg.pinv(ridge * np.eye(played.shape[1]) + played.T @ played)
    return np.sqrt([x @ A_inv @ x for x in asked])


class _Tally:
    """A number that counts the multiplications it takes part in."""

    def __init__(self) -> None:
        self.products = 0

    def __mul__(self, other: _Tally) -> _Tally:
        self.products += 1
        return self

    def __add__(self, other: _Tally) -> _Tally:
        return self


def _by_row_sums(jacobian: NDArray, A_inv: NDArray) -> NDArray:
    """Return the squared bonuses without the other entries of the whole product."""
    return (jacobian @ A_inv * jacobian).sum(axis=1)


def _counted(
    product: Callable[[NDArray, NDArray], NDArray], n_arms: int, p: int
) -> int:
    """Count the multiplications of something made of J (n_arms, p) and A⁻¹ (p, p)."""
    tally = _Tally()
    product(np.full((n_arms, p), tally, object), np.full((p, p), tally, object))
    return tally.products


def _answer(function: Function, *arguments: object) -> Any:
    """Call what the reader handed over; nothing, or an ellipsis, is no answer yet."""
    expect_callable(function, "Hand over the function itself.")
    answer = function(*arguments)
    if unanswered(answer):
        raise UnansweredError
    return answer
