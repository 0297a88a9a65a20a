"""Judges of the exercises of Chapter 3, "Neural bandits: sharing what is learnt"."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial

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
from zoolib.book.exercises.judging import (
    Function,
    answer,
    exercise,
    expect,
    expect_close,
    numbers,
)
from zoolib.experiments.arena import run_experiment
from zoolib.experiments.history import History
from zoolib.world.features import FeatureEngineer
from zoolib.world.simulator import (
    SHOCK_1,
    SHOCK_2,
    Churn,
    ZooplusSimulator,
    true_ctr_matrix,
)

SEEDS = (3, 8)
NOT_JOINED = "The features are not joined."
SETTINGS = {
    "alpha": 0.7,
    "joined": True,
    "rebuild": True,
    "window": 3_000,
    "n_worlds": 2,
}
SETTINGS |= {"discount": 0.999, "train_every": 100, "n_batches": 8}
RECOMMENDED = partial(NeuralLinearAgent, 50, **SETTINGS)  # wants the number of features


@exercise(
    "ex-special-case",
    wanted="a function of the rows played and the rows asked about, each of shape (n, 9), that returns a "
    "width for each row asked about",
)
def _special_case(widths: Function) -> None:
    """Read the widths off the scores of NeuralUCB itself, with α = 1 and with α = 0."""
    played, asked = rows = np.random.default_rng(3).normal(size=(2, 12, 9))
    scores = []
    for alpha in (1.0, 0.0):
        agent = NeuralUCBAgent(12, 9, alpha=alpha, hidden=(), dtype=np.float64)
        for arm in range(12):
            agent.update(Context(0, played), arm, arm % 2)
        scores.append(agent.scores(Context(0, asked)))
    right = scores[0] - scores[1]

    def without(played: NDArray, asked: NDArray, ridge: int) -> NDArray:
        A_inv = np.linalg.pinv(ridge * np.eye(played.shape[1]) + played.T @ played)
        return np.sqrt([x @ A_inv @ x for x in asked])

    with_ones = np.concatenate((rows, np.ones((2, 12, 1))), axis=-1)
    mistakes = {
        "The network has a bias, and so has its gradient.": without(*rows, ridge=1),
        "Where is the ridge, λ = 1?": without(*with_ones, ridge=0),
    }
    hint = "What is the gradient of a network without hidden layer, entry by entry?"
    expect_close(answer(widths, played, asked), right, hint, mistakes=mistakes)


@exercise(
    "ex-sigmoid",
    wanted="a function of q that returns the factor, the q for which it is largest, and how many times as "
    "large the bonus at 0.5 is as that at 0.02",
)
def _sigmoid(factor: Function, q_of_largest: float, times: float) -> None:
    """Take the slope of the sigmoid where its value is q by central differences."""

    def slope(q: NDArray[np.float64]) -> NDArray[np.float64]:
        f, step = np.log(q / (1 - q)), 1e-5
        return (expit(f + step) - expit(f - step)) / (2 * step)

    q = np.array([0.02, 0.3, 0.5, 0.9])
    mistakes = {"The gradient stands twice under the root.": np.sqrt(slope(q))}
    hint = "The chain rule multiplies the gradient by the slope of the sigmoid. Express it by q."
    found = [answer(factor, float(one)) for one in q]
    expect_close(found, slope(q), hint, within=1e-6, mistakes=mistakes)
    grid = np.linspace(0.01, 0.99, 99)
    largest = grid[np.argmax(slope(grid))]
    expect_close(q_of_largest, largest, "Draw your factor against q.", within=5e-3)
    ratio = slope(0.5) / slope(0.02)
    hint = "Divide the factor of the one arm by that of the other."
    expect_close(times, ratio, hint, within=0.05)


@exercise(
    "ex-gigabyte",
    wanted="two whole numbers of units: one if all of A⁻¹ is kept, and one if its diagonal is",
)
def _gigabyte(full: int, diagonal: int) -> None:
    """Count layer by layer whether a number of units fits, and whether one more does."""

    def fits(units: float, power: int) -> bool:
        n_parameters = (9 * units + units) + (units + 1)
        return 4 * n_parameters**power <= 1e9

    for kept, m, power in (("all of A⁻¹", full, 2), ("the diagonal", diagonal, 1)):
        hint = f"With {kept}: a whole number of units is wanted."
        units = float(numbers(m, (), hint, low=1))
        expect(np.floor(units) == units, hint)
        hint = f"With {kept}: more than a thousand million bytes. A number takes four, and units have biases."
        expect(fits(units, power), hint)
        hint = f"With {kept}: there is room for more units."
        expect(not fits(units + 1, power), hint)


@exercise(
    "ex-row-sums",
    wanted="a function of K and p that returns the two numbers of multiplications, the whole product's first, "
    "and a function of J and A⁻¹ that returns the K squared bonuses by row sums",
)
def _row_sums(multiplications: Function, bonuses: Function) -> None:
    """Let numbers that count their multiplications take part in both products."""

    def counted(product: Function, n_arms: int, p: int) -> int:
        tally = _Tally()
        product(np.full((n_arms, p), tally), np.full((p, p), tally))
        return tally.products

    for case in ((2, 3), (5, 2), (4, 7)):
        first = counted(np.matmul, *case)
        whole = counted(lambda j, A_inv: j @ A_inv @ j.T, *case)
        sums = counted(lambda j, A_inv: (j @ A_inv * j).sum(axis=1), *case)
        mistakes = {
            "The count of the whole product comes first.": [sums, whole],
            "Both need J times A⁻¹ first: count that, too.": [whole - first, sums - first],
            "The second factor has a cost, too.": first,
        }  # fmt: skip
        hint = "An entry of a product of matrices takes a multiplication for each term of its sum."
        found = answer(multiplications, *case)
        expect_close(found, [whole, sums], hint, mistakes=mistakes)
    rng = np.random.default_rng(1)
    jacobian, root = rng.normal(size=(4, 3)), rng.normal(size=(3, 3))
    A_inv = np.linalg.inv(np.eye(3) + root @ root.T)
    right = np.array([g @ A_inv @ g for g in jacobian])
    hint = "A squared bonus needs its arm's row of J only, twice: K numbers in all."
    expect_close(answer(bonuses, jacobian, A_inv), right, hint)


class _Tally:
    """A number that counts the multiplications it takes part in."""

    products = 0

    def __mul__(self, other: _Tally) -> _Tally:
        self.products += 1
        return self

    def __add__(self, other: _Tally) -> _Tally:
        return self


@exercise(
    "ex-diagonal",
    wanted="a function of n that returns squared widths in two rows, for (1, 1) and for (1, -1), and two "
    "columns, with the full A and with its diagonal",
)
def _diagonal(squared_widths: Function) -> None:
    """Add up A visit by visit, and solve."""
    directions, A = np.array([[1.0, 1.0], [1.0, -1.0]]), np.eye(2)
    for n in range(501):
        if n in (0, 3, 500):
            kept, A_inv = (A, np.diag(np.diag(A))), np.linalg.inv(A)
            right = [[x @ np.linalg.solve(k, x) for k in kept] for x in directions]
            cut = [[x @ A_inv @ x, A_inv.trace()] for x in directions]
            mistakes = {
                "A row is wanted for each direction: transpose.": np.transpose(right),
                "Take the diagonal of A and invert it, not the diagonal of A⁻¹.": cut,
            }
            hint = f"Write A down for n = {n}, with the ridge, and invert it."
            expect_close(answer(squared_widths, n), right, hint, mistakes=mistakes)
        A += np.outer(directions[0], directions[0])


@exercise(
    "ex-untrained",
    wanted="a function of seeds and n_visits that returns the percentage of the oracle's clicks in each world",
)
def _untrained(untrained_shares: Function) -> None:
    """Play a linear agent on fixed features of x, joined with x."""
    play = partial(_shares, n_visits=600)
    linear = LinUCBAgent(50, 41, alpha=0.7, discount=0.999, shared=True, n_worlds=2)
    never = partial(RECOMMENDED, 9, train_every=10**9, rebuild=False, window=None)
    mistakes = {
        "This network was trained.": lambda: play(RECOMMENDED(9)),
        NOT_JOINED: lambda: play(never(joined=False)),
        "Where is the discount?": lambda: play(never(discount=1.0)),
    }
    hint = "Except for the training, the agent is the recommended one, in calm worlds."
    found, right = answer(untrained_shares, SEEDS, 600), play(linear, _RandomFeatures)
    expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


@exercise(
    "ex-calm-price",
    wanted="a function of seeds and n_visits that returns the points that the discount costs in each world",
)
def _calm_price(price: Function) -> None:
    def play(alpha: float, discount: float) -> NDArray[np.float64]:
        table = LinUCBAgent(50, 29, alpha, shared=True, discount=discount, n_worlds=2)
        return _shares(table, _pairs, n_visits=1_000)

    right = play(0.5, 1.0) - play(0.5, 0.9995)
    differ = "Your tables differ in α, too."
    mistakes = {differ: lambda: play(1.0, 1.0) - play(0.5, 0.9995)}
    hint = "Two shared tables with α = 0.5, one with the discount and one without, in calm worlds."
    found = answer(price, SEEDS, 1_000)
    expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


@exercise(
    "ex-thompson",
    wanted="a function of Z (a row for each arm), A, b, alpha and a generator that returns each arm's score",
)
def _thompson(draw_scores: Function) -> None:
    """Compare the moments of many draws with those of the posterior, within five standard errors."""
    Z = np.array([[1.0, 0.0], [0.0, 1.0], [1.0, 1.0]])  # noqa: N806
    A, b, alpha = np.array([[2.0, 1.2], [1.2, 1.5]]), np.array([1.0, -2.0]), 0.8
    draws, n = (np.random.default_rng(seed) for seed in range(4_000)), 4_000
    hint = "A score for each arm is wanted, in one row."
    scores = np.array(
        [numbers(answer(draw_scores, Z, A, b, alpha, rng), (3,), hint) for rng in draws]
    )
    expect(np.ptp(scores, axis=0).min() > 0, "Your scores are the same at each draw.")
    hint = "Draw from the generator that is handed in, and nothing else."
    again = answer(draw_scores, Z, A, b, alpha, np.random.default_rng(0))
    expect_close(again, scores[0], hint)
    hint = "One draw of θ is for all arms: an arm whose row is a sum scores the sum."
    expect_close(scores[:, 2], scores[:, 0] + scores[:, 1], hint)
    theta, A_inv = scores[:, :2], np.linalg.inv(A)
    largest = alpha**2 * A_inv.max()
    hint = "The mean of many draws of θ should be that of the posterior."
    within = 5 * np.sqrt(largest / n)
    expect_close(theta.mean(axis=0), A_inv @ b, hint, within=within)
    hint = "Many draws of θ have another covariance. If the entries of v are independent, M v has M Mᵀ."
    mistakes = {
        "The draws have the covariance of A, not of its inverse.": alpha**2 * A,
        "α is a standard deviation: its square is in the covariance.": alpha * A_inv,
        "Your draws do not depend on α.": A_inv,
    }
    right, within = alpha**2 * A_inv, 5 * largest * np.sqrt(2 / n)
    expect_close(np.cov(theta.T), right, hint, within=within, mistakes=mistakes)


@exercise(
    "ex-lift",
    wanted="a function of a history and an agent's name, and of another history and name, that returns the "
    "lift of the first agent over the second in each world, in percent",
)
def _lift(lifts: Function) -> None:
    """Count the clicks of invented histories."""
    rates = np.array([[0.20, 0.30, 0.25], [0.36, 0.20, 0.30], [0.50, 0.45, 0.60]])
    rivals = np.array([[0.30, 0.30, 0.20], [0.30, 0.25, 0.24], [0.20, 0.65, 0.30]])
    ours = _history_of({"someone": rates[::-1], "ours": rates}, seed=1)
    theirs = _history_of({"theirs": rivals}, seed=2)

    def over(start: int, stop: int, values: str = "reward") -> NDArray[np.float64]:
        clicks, others = (
            getattr(history, values)[-1, :, start:stop].sum(axis=-1, dtype=float)
            for history in (ours, theirs)
        )
        return 100 * clicks / others - 100

    right = over(10_000, 20_000)
    hint = "By how many percent does the first agent get more clicks than the second, in each world?"
    second_first = "That is the lift of the second over the first."
    expected = over(10_000, 20_000, "expected_reward")
    mistakes = {
        "If both get the same, the lift is zero.": right + 100,
        second_first: 1e4 / (right + 100) - 100,
        "Visits before the shock do not count.": over(0, 20_000),
        "Only 10,000 visits after the shock count.": over(10_000, 25_000),
        "Visits after the second shock do not count.": over(10_000, 40_000),
        "Clicks are wanted, not their probabilities.": expected,
    }
    found = answer(lifts, ours, "ours", theirs, "theirs")
    expect_close(found, right, hint, mistakes=mistakes)


@exercise(
    "ex-one-seed",
    wanted="a function of a seed and n that returns the visitors of both phases, n users of 1,000 for each",
)
def _one_seed(two_phases: Function) -> None:
    """Expect of the visitors what holds for independent ones."""
    n = 5_000
    hint = f"Two rows of n visitors are wanted, users from 0 to 999: n = {n:,} was asked for."
    first, second, again = (
        numbers(answer(two_phases, seed, n), (2, n), hint, low=0, high=999)
        for seed in (42, 43, 42)
    )
    # A user stays away from 5,000 visits with probability exp(-5): about seven do.
    hint = "Nearly all of the 1,000 users, whole numbers, should come in 5,000 visits."
    whole = np.all(first == np.floor(first))
    expect(whole and all(len(np.unique(row)) > 960 for row in first), hint)
    hint = "One seed must bring the same visitors each time."
    expect(np.array_equal(again, first), hint)
    hint = "The second phase has the visitors of the first in another order."
    expect(not np.array_equal(*np.sort(first)) or _alike(*first), hint)
    for one, other, hint in (
        (*first, "Both phases still have the same visitors in the same order."),
        (first[0], second[0], "Another seed must bring other visitors."),
        (first[1], second[1], "Another seed must bring other visitors, in phase two."),
        (first[1], second[0], "The next seed begins with this seed's second phase."),
    ):
        expect(not _alike(one, other), hint)


def _alike(one: NDArray[np.float64], other: NDArray[np.float64]) -> bool:
    """Return whether two rows of users agree far more often than in one place of a thousand."""
    return bool(np.mean(one == other) > 0.01)


@exercise(
    "ex-pairs",
    wanted="a function of seeds and n_visits that returns the percentage of the oracle's clicks in each world",
)
def _told_pairs(told_shares: Function) -> None:
    play = partial(_shares, n_visits=400)
    mistakes = {
        "This agent was not told the pairs.": lambda: play(RECOMMENDED(9)),
        NOT_JOINED: lambda: play(RECOMMENDED(29, joined=False), _pairs),
    }
    hint = "This is the recommended agent in calm worlds, with more features."
    found, right = answer(told_shares, SEEDS, 400), play(RECOMMENDED(29), _pairs)
    expect_close(found, right, hint, within=1e-6, mistakes=mistakes)


@exercise(
    "ex-hill",
    wanted="a class like FeatureEngineer, made from a list of worlds, with 20 features, and their 20 weights",
)
def _hill(features: Function, weights: ArrayLike) -> None:
    """Ask least squares whether any weights give the true click probabilities."""
    worlds = [ZooplusSimulator(seed=seed, rich=True) for seed in SEEDS]
    users = np.arange(200).reshape(2, 100)
    made = answer(features, worlds)
    rows = np.array([answer(made.transform, visit) for visit in users.T])
    hint = "transform takes one user per world and returns shape (W, 50, 20)."
    expect(rows.shape == (100, 2, 50, 20), hint)
    truth = [true_ctr_matrix(w)[of] for w, of in zip(worlds, users, strict=True)]
    truth = np.swapaxes(truth, 0, 1)
    best = np.linalg.lstsq(rows.reshape(-1, 20), truth.ravel())[0]
    hint = "No weights make your features exact. Is each the appeal of this product to this user, in its pair?"
    expect(np.allclose(rows @ best, truth), hint)
    theirs = numbers(weights, (20,), "20 weights are wanted, in one row.")
    hint = "The features are right. In which order do they stand?"
    expect_close(rows @ theirs, truth, hint)


@exercise(
    "ex-rope",
    wanted="a function of a history and an agent's name that returns, for each world, the share of visits "
    "between 0 and 1, and the fair share",
)
def _rope(newcomer_shares: Function, fair: float) -> None:
    """Ask about an agent who shows each newcomer a given number of times."""
    shown = np.array([[10, 400], [0, 130], [85, 250]])  # by arrival and world
    greeters = {"shy": _Greeter(shown // 2), "keen": _Greeter(shown)}
    churn = Churn(every=2_500, share=1 / 50)
    history = run_experiment(greeters, SEEDS, 8_000, churn=churn, progress=False)
    arms, right = history.arm[1], shown.mean(axis=0) / 500
    first = [ZooplusSimulator(seed=seed).restock(1 / 50) for seed in SEEDS]
    spans = [arms[:, start : start + 500] for start in (2_500, 5_000, 7_500)]
    hint = "Average the share over 500 visits per arrival; a world of the same seed knows which arm is new."
    mistakes = {
        "Average over the arrivals: you have added them.": 3 * right,
        "Each arrival brings another newcomer.": np.mean(
            np.array(spans) == first, axis=(0, 2)
        ),
    }
    found = answer(newcomer_shares, history, "keen")
    expect_close(found, right, hint, mistakes=mistakes)
    hint = "What if fifty products shared the visits equally?"
    expect_close(fair, 1 / 50, hint, within=1e-6)


class _Greeter:
    """An agent for two worlds that shows each newcomer in some visits, and again when it is older.

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

    def update(self, context: Context, arm: NDArray, reward: NDArray) -> None:
        """Learn nothing, and get older."""
        self.age += 1


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
        self.network = NeuralLinearAgent(50, 9, joined=True, n_worlds=2, seed=SEEDS)

    def transform(self, user_id: ArrayLike) -> NDArray[np.float64]:
        """Embed the rows of users, one in each world."""
        return self.network.embed(super().transform(user_id).astype(np.float32))


_pairs = partial(FeatureEngineer, interactions=True)


def _shares(
    agent: Agent, make_features: Function = FeatureEngineer, *, n_visits: int
) -> NDArray[np.float64]:
    """Return the percentage of the oracle's clicks that an agent earns in calm worlds."""
    history = run_experiment(
        [agent], SEEDS, n_visits, make_features=make_features, progress=False
    )
    earned, best = history.expected_reward[0], history.optimal_reward[0]
    return 100 * earned.sum(axis=-1) / best.sum(axis=-1)
