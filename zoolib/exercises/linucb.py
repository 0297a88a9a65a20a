"""Judges of the exercises of Chapter 2, "LinUCB: learning while serving"."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import integrate, optimize, stats

from zoolib.agents import Context, LinUCBAgent
from zoolib.exercises.judging import (
    as_numbers,
    exercise,
    expect,
    expect_callable,
    expect_close,
)
from zoolib.experiment import run_experiment
from zoolib.simulator import CLICK_PROBABILITIES

N_PERSONAS, N_CATEGORIES = 4, 5
N_FEATURES = N_PERSONAS + N_CATEGORIES
N_WORLDS = 20


@exercise("ex-greedy-trap")
def greedy_trap(
    start: float, zero_scores: Callable[[NDArray, NDArray], ArrayLike]
) -> None:
    """the probability of the start, and a function of two arrays, the visits and the clicks of one product
    by persona, that returns its four scores for α = 0 and λ = 1
    """
    food, toy = 0.40, 0.50
    expect_close(
        start,
        food * (1 - toy),
        "Multiply: the food is clicked, and the toy is not.",
        mistakes={
            "That is the start that favours the toy.": (1 - food) * toy,
            "And the toy is not clicked.": food,
        },
    )
    expect_callable(zero_scores, "It takes visits and clicks by persona.")
    for shown, clicks in (
        ([3, 0, 5, 1], [1, 0, 2, 0]),
        ([1, 0, 0, 0], [1, 0, 0, 0]),
        ([7, 2, 0, 4], [0, 0, 0, 0]),
    ):
        n, k = np.array(shown), np.array(clicks)
        expect_close(
            zero_scores(n.copy(), k.copy()),
            _ridge_predictions(shown, clicks),
            f"For visits {shown} and clicks {clicks}: every vector holds two ones, so the category's "
            "weight, which all personas share, is in each score.",
            mistakes={
                "The category has a weight, too.": k / (1 + n),
                "The ridge is missing.": lambda n=n, k=k: k / np.maximum(n, 1),
                "That is the weight of the persona alone.": lambda n=n, k=k: (
                    _ridge_predictions(n.astype(int), k.astype(int), only_persona=True)
                ),
            },
        )


def _ridge_predictions(
    shown: Sequence[int], clicks: Sequence[int], only_persona: bool = False
) -> NDArray[np.float64]:
    """Solve the normal equations of one product, visit by visit, for its four personas."""
    personas = np.eye(N_PERSONAS, N_PERSONAS + 1)
    x = personas.copy()
    x[:, -1] = 1  # the product's category
    A, b = np.eye(N_PERSONAS + 1), np.zeros(N_PERSONAS + 1)
    for row, n, k in zip(x, shown, clicks, strict=True):
        for visit in range(n):
            A += np.outer(row, row)
            b += (visit < k) * row
    return (personas if only_persona else x) @ np.linalg.solve(A, b)


@exercise("ex-ridge-fractions")
def ridge_fractions(ridge: float, dog: float) -> None:
    """the ridge λ for which the banner has its true weight, and the dog owner's weight for it"""

    def weights(of: float) -> NDArray[np.float64]:
        """Stack the 100 visits, and under them the ridge as imaginary ones; then least squares."""
        visits = np.column_stack([np.ones(100), np.arange(100) == 0])
        rows = np.vstack([visits, np.sqrt(of) * np.eye(2)])
        clicks = np.concatenate([np.arange(100) < 20, [0, 0]])
        return np.linalg.lstsq(rows, clicks, rcond=None)[0]

    right = optimize.brentq(lambda of: weights(of)[1] - 0.1, 1e-6, 100, xtol=1e-12)
    expect_close(
        ridge,
        right,
        "Solve the two equations of the ridge for the banner's weight, and set it to its truth.",
        within=5e-3,
        mistakes={
            "The quadratic equation has two solutions, and a ridge is positive.": (
                -91 - right
            ),
            "The ridge stands in both entries of the diagonal.": (80 - 9.9) / 10,
        },
    )
    expect_close(
        dog,
        weights(right)[0],
        "Put your ridge into the dog owner's weight.",
        within=1e-4,
        mistakes={
            "That is the truth. Does the ridge leave it alone?": 0.2,
            "That is the weight without a ridge.": weights(0)[0],
            "That is the banner's weight.": 0.1,
        },
    )


@exercise("ex-mean-update")
def mean_update(moved_mean: Callable[..., ArrayLike]) -> None:
    """a function of the old inverse of A, the old mean, x and r that returns the new mean"""
    expect_callable(moved_mean, "It takes the old inverse of A, the old mean, x and r.")
    rng = np.random.default_rng(4)
    for d in (2, 6):
        rows, rewards = rng.normal(size=(12, d)), rng.normal(size=12)
        means = []
        for n in (11, 12):  # before and after the last row
            A = np.eye(d) + sum(np.outer(x, x) for x in rows[:n])
            b = sum(r * x for r, x in zip(rewards[:n], rows[:n], strict=True))
            means.append((A, np.linalg.solve(A, b)))
        (before, mean), (after, right) = means
        inverse, x, r = np.linalg.inv(before), rows[-1], rewards[-1]
        u, surprise = inverse @ x, r - x @ mean
        expect_close(
            moved_mean(inverse.copy(), mean.copy(), x.copy(), r),
            right,
            "Compare each factor of your formula with the theorem: the direction, the surprise, the "
            "denominator.",
            within=1e-8,
            mistakes={
                "The mean moves by its surprise: subtract what was predicted.": (
                    mean + r / (1 + x @ u) * u
                ),
                "The denominator is missing.": mean + surprise * u,
                "The denominator is 1 plus the squared width.": (
                    mean + surprise / (x @ u) * u
                ),
                "The direction is u, not x.": mean + surprise / (1 + x @ u) * x,
                "The sign of the surprise is turned.": (
                    mean - surprise / (1 + x @ u) * u
                ),
                "That is the step alone: add it to the old mean.": right - mean,
                "You divide twice: the new inverse has the denominator already.": (
                    mean + surprise / (1 + x @ u) * np.linalg.solve(after, x)
                ),
            },
        )


@exercise("ex-coverage")
def coverage(found: Callable[[int, float], float]) -> None:
    """a function of n and p that returns the share of 10,000 runs or more whose interval contains p"""
    expect_callable(found, "It takes the visits n and the click probability p.")
    cases = [(n, p) for p in (0.05, 0.5) for n in (5, 20, 200)]
    hint = (
        "x holds two ones, the ridge is 1, and the interval reaches two standard deviations σ w(x) to each "
        f"side of the prediction. Compared are n and p of {cases}."
    )

    def exact(**mistake: float) -> list[float]:
        return [_coverage(n, p, **mistake) for n, p in cases]

    expect_close(
        [as_numbers(found(n, p), hint) for n, p in cases],
        exact(),
        hint,
        within=0.02,
        mistakes={
            "One width to each side is too short: take two.": exact(widths=1),
            "Fewer than 10,000 runs, or the ridge is missing.": exact(ridge=1e-9),
            "The root of the squared width is missing.": exact(power=1),
            "σ is the root of p (1 - p).": exact(noise_power=1),
            "The width is in units of σ: multiply.": exact(noise_power=0),
            "x holds two ones.": exact(ones=1),
        },
    )


def _coverage(
    n: int,
    p: float,
    *,
    widths: float = 2,
    ridge: float = 1,
    power: float = 0.5,
    noise_power: float = 0.5,
    ones: int = 2,
) -> float:
    """Add up the probabilities of the numbers of clicks for which the interval contains p."""
    clicks = np.arange(n + 1)
    x = np.repeat([1.0, 0.0], [ones, N_FEATURES - ones])
    inverse = np.linalg.inv(ridge * np.eye(N_FEATURES) + n * np.outer(x, x))
    prediction = clicks * (x @ inverse @ x)
    sigma = (p * (1 - p)) ** noise_power
    inside = np.abs(prediction - p) <= widths * sigma * (x @ inverse @ x) ** power
    return float(stats.binom.pmf(clicks, n, p)[inside].sum())


@exercise("ex-theory-alpha")
def theory_alpha(alpha: Callable[[int], float]) -> None:
    """a function of n that returns the α of the theory, for n visits of each persona"""
    expect_callable(alpha, "It takes the visits n of each persona.")
    norm = np.linalg.norm([taste["Dog Toy"] for taste in CLICK_PROBABILITIES.values()])
    confidence = 2 * np.log(1 / 0.05)
    for n in (10, 100, 1000):
        # DᵀD is n times a matrix with eigenvalues 1, 1, 1, 5 and zeros.
        log_det = 3 * np.log(1 + n) + np.log(1 + 5 * n)
        root = np.sqrt(confidence + log_det)
        expect_close(
            alpha(n),
            root / 2 + norm,
            f"For n = {n}: compute σ, the two terms under the root, and the norm of the weights one by one.",
            within=1e-6,
            mistakes={
                "The norm of the weights is missing.": root / 2,
                "σ is one half.": root + norm,
                "The norm is the root of the sum of squares.": root / 2 + norm**2,
                "Under the root, log(1/δ) stands twice.": (
                    np.sqrt(confidence / 2 + log_det) / 2 + norm
                ),
                "The determinant's logarithm is missing.": np.sqrt(confidence) / 2
                + norm,
                "Each of the four personas was shown the product n times.": (
                    np.sqrt(confidence + np.log(1 + 2 * n)) / 2 + norm
                ),
                "That is n visits in all: each of the four personas has n.": (
                    np.sqrt(confidence + 3 * np.log(1 + n / 4) + np.log(1 + 5 * n / 4))
                    / 2
                    + norm
                ),
            },
        )


@exercise("ex-own-agent")
def own_agent(agent: Callable[..., Any], regrets: ArrayLike) -> None:
    """a class whose objects are made with the number of random visits, and the regrets after 10,000 steps
    with 2,000 of them and with 200, two rows of one number a world
    """
    expect_callable(agent, "Hand over the class, not an object of it.")
    n_explore = 1_000
    played = agent(n_explore)
    for method in ("select", "update"):
        expect(hasattr(played, method), f"The agent needs a method {method}.")
    contexts = [_context(persona) for persona in range(N_PERSONAS)]
    arms = [
        _play(played, contexts[step % N_PERSONAS], step) for step in range(n_explore)
    ]
    times = np.bincount(arms, minlength=N_ARMS)
    # Each of 50 products is expected 20 times; five deviations are not to be expected.
    expect(
        times.min() > 0 and times.max() < 20 + 5 * np.sqrt(20),
        f"In the first {n_explore} visits all products are equally likely, whatever was clicked: yours were "
        f"shown between {times.min()} and {times.max()} times.",
    )
    for persona, context in enumerate(contexts):
        shown = [_play(played, context, step) for step in range(200)]
        categories = context.features[shown, N_PERSONAS:].argmax(axis=1)
        hint = (
            "After the random visits show each persona the category with the best record, clicks divided by "
            "visits, of this persona."
        )
        if np.all(categories == _OFTEN[persona]):
            hint = "That is the category with the most clicks: divide by the visits."
        elif len(set(categories)) > 1:
            hint = f"After {n_explore} visits commit: a persona was shown several categories."
        expect(bool(np.all(categories == _BEST[persona])), hint)
    _judge_regrets(regrets)


# A shop in which nothing is luck: for each persona, a category of four products is always clicked, and one
# of 22 every third time, so that it has more clicks and the worse record.
N_ARMS = 50
_CATEGORY = np.repeat(np.arange(N_CATEGORIES), [4, 22, 4, 4, 16])
_BEST, _OFTEN = (0, 2, 3, 0), (1, 1, 1, 1)


def _context(persona: int) -> Context:
    """Return what an agent sees when a persona comes to this shop."""
    features = np.zeros((N_ARMS, N_FEATURES))
    features[:, persona] = 1
    features[np.arange(N_ARMS), N_PERSONAS + _CATEGORY] = 1
    return Context(persona, features)


def _play(agent: Any, context: Context, step: int) -> int:
    """Let an agent choose, and learn what this shop answers."""
    arm = int(agent.select(context))
    persona, category = int(context.user_id), _CATEGORY[arm]
    often = category == _OFTEN[persona] and step // N_PERSONAS % 3 == 0
    agent.update(context, arm, int(category == _BEST[persona] or often))
    return arm


def _judge_regrets(regrets: ArrayLike) -> None:
    found = as_numbers(regrets, "Two rows of one number a world are wanted.")
    expect(
        found.shape == (2, N_WORLDS),
        f"The regrets have shape {found.shape}; two rows are wanted, 2,000 random visits and 200, of one "
        f"number for each of {N_WORLDS} worlds.",
    )
    # A random visit forgoes the oracle's value less the random one's; ten deviations to each side.
    table = np.array([list(taste.values()) for taste in CLICK_PROBABILITIES.values()])
    gaps = table.max(axis=1, keepdims=True) - table
    for mean, n_random in zip(found.mean(axis=1), (2_000, 200), strict=True):
        least = n_random * gaps.mean() - 10 * gaps.std() * np.sqrt(n_random / N_WORLDS)
        expect(
            least < mean < 10_000 * gaps.mean(),
            f"With {n_random} random visits a mean regret of {mean:.0f} cannot be: add up what was forgone "
            "in expected clicks over 10,000 steps, and hand over the 2,000 visits first.",
        )


@exercise("ex-clock")
def clock(agent: Callable[..., LinUCBAgent], arms: ArrayLike) -> None:
    """a subclass of LinUCBAgent, and what it showed, of shape (20, 20,000)"""
    expect(
        isinstance(agent, type) and issubclass(agent, LinUCBAgent),
        "Derive your class from LinUCBAgent.",
    )
    _judge_clock(agent)
    found = np.asarray(arms)
    expect(
        found.shape == (N_WORLDS, 20_000),
        f"The arms have shape {found.shape}; twenty worlds and 20,000 steps are wanted: history.arm[0].",
    )
    again = agent(50, N_FEATURES, alpha=0.3, n_worlds=1)
    replayed = run_experiment([again], [0], n_steps=300, progress=False)
    expect(
        np.array_equal(found[0, :300], replayed.arm[0, 0]),
        "In the world of seed 0 your class shows other products with α = 0.3: play the seeds 0 … 19 with it.",
    )


def _judge_clock(agent: Callable[..., LinUCBAgent]) -> None:
    """Compare the posterior with sums in which each row counts γ to the power of the steps since."""
    gamma, n_steps = 0.9998, 40
    context = Context(0, np.random.default_rng(2).normal(size=(3, 4)))
    own = agent(3, 4, alpha=0.3)
    x = context.features
    for step in range(n_steps):
        own.update(context, step % 2, step % 3 == 0)

    def precision(
        gamma: float = gamma, since: int = 1, clock_of_arm: bool = False
    ) -> NDArray[np.float64]:
        """Add up what each row, and the ridge, counts by one clock or another."""
        found = np.empty((3, 4, 4))
        for a in range(3):
            played = [step for step in range(n_steps) if step % 2 == a]
            ticks = len(played) if clock_of_arm else n_steps
            found[a] = gamma**ticks * np.eye(4)
            for i, step in enumerate(played):
                passed = len(played) - i if clock_of_arm else n_steps - step
                found[a] += gamma ** (passed - since) * np.outer(x[a], x[a])
        return found

    expect_close(
        own.posterior.A,
        precision(),
        "At each step all arms forget by the factor γ = 0.9998, and then the arm that was played learns.",
        mistakes={
            "Nothing is forgotten. Is the method called learn, and does it call posterior.decay?": (
                precision(gamma=1.0)
            ),
            "Here the arm's clock ticks: all arms forget at every step.": (
                precision(clock_of_arm=True)
            ),
            "Decay first and learn then: the newest row has not aged.": precision(
                since=0
            ),
        },
    )
    clicks = np.zeros((3, 4))
    for step in range(n_steps):
        clicks[step % 2] += (
            gamma ** (n_steps - step - 1) * (step % 3 == 0) * x[step % 2]
        )
    expect_close(
        own.posterior.b,
        clicks,
        "Rewards are forgotten as rows are: does the agent learn each reward once?",
    )


@exercise("ex-price-forgetting")
def price_forgetting(late_share: Callable[..., ArrayLike]) -> None:
    """a function of the discount, the seeds and the number of steps that returns the share of the oracle
    over the second half of the steps, one number a seed
    """
    expect_callable(late_share, "It takes a discount, seeds and a number of steps.")
    seeds, n_steps = [3, 1], 120

    def shares(
        discount: float, start: int = n_steps // 2, alpha: float = 0.35
    ) -> NDArray[np.float64]:
        """Play the worlds one by one, and add up the clicks."""
        found = []
        for seed in seeds:
            agent = LinUCBAgent(
                50, N_FEATURES, alpha=alpha, discount=discount, n_worlds=1
            )
            history = run_experiment([agent], [seed], n_steps, progress=False)
            earned, best = history.expected_reward[0, 0], history.optimal_reward[0, 0]
            found.append(sum(earned[start:]) / sum(best[start:]))
        return np.array(found)

    for discount in (1.0, 0.9):
        right = shares(discount)
        expect_close(
            late_share(discount, seeds, n_steps),
            right,
            f"With a discount of {discount}: play LinUCB with α = 0.35 in calm worlds, and divide its "
            "expected clicks by the oracle's, steps of the second half only.",
            mistakes={
                "Shares are wanted, not percentages.": 100 * right,
                "That is the share over all steps: take the second half.": (
                    lambda discount=discount: shares(discount, start=0)
                ),
                "The discount makes no difference: hand it to the agent.": (
                    lambda: shares(1.0)
                ),
                "That is another α: 0.35 is wanted.": (
                    lambda discount=discount: shares(discount, alpha=1.0)
                ),
                "The numbers come in the order of the seeds.": right[::-1],
            },
        )


@exercise("ex-ties")
def ties(agent: Callable[..., LinUCBAgent], agree: ArrayLike) -> None:
    """a class that is made as LinUCBAgent is, and for each world the share of the choices that agree"""
    expect(
        isinstance(agent, type) and issubclass(agent, LinUCBAgent),
        "Derive your class from LinUCBAgent.",
    )
    noisy = agent(4, 4, alpha=1.5, n_worlds=2)
    library = LinUCBAgent(4, 4, alpha=1.5, n_worlds=2)
    context = Context([0, 0], np.broadcast_to(np.eye(4), (2, 4, 4)))
    tied = np.array([noisy.select(context) for _ in range(200)])
    expect(
        tied.shape == (200, 2),
        f"select returns one arm for each of two worlds: got shape {tied.shape[1:]}. Take the argmax over "
        "the last axis.",
    )
    times = np.array([np.bincount(world, minlength=4) for world in tied.T])
    expect(
        bool(np.all(times > 20)),
        "Four arms tie, and each should be shown about as often: draw new noise at each choice.",
    )
    expect(
        bool(np.any(tied[:, 0] != tied[:, 1])),
        "Both worlds get the same noise: draw one number for each score.",
    )
    # Arm 0 comes ahead of those never shown by a millionth, arm 2 falls behind by much.
    ahead = 2 * (1.5 - 1.5 / np.sqrt(2) + 1e-6)
    for learner in (noisy, library):
        learner.update(context, [0, 0], [ahead, ahead])
        learner.update(context, [2, 2], [0.0, 0.0])
    expect_close(
        noisy.scores(context),
        library.scores(context),
        "The noise belongs into select: the scores stay those of the library.",
    )
    chosen = np.array([noisy.select(context) for _ in range(50)])
    expect(
        bool(np.all(chosen == 0)),
        "An arm was shown whose score is not the highest: the noise is too large.",
    )
    _judge_agreement(agree)


def _judge_agreement(agree: ArrayLike) -> None:
    found = np.asarray(agree, float)
    expect(
        found.shape == (N_WORLDS,),
        f"The shares have shape {found.shape}; one for each of {N_WORLDS} worlds is wanted.",
    )
    expect(
        bool(np.all((found > 0) & (found <= 1))),
        "Shares lie between 0 and 1: divide the choices that agree by the 5,000 steps.",
    )
    expect(
        bool(np.all(found < 1)),
        "The two agree in everything. Is it one agent twice?",
    )


@exercise("ex-projection")
def projection(errors: ArrayLike, savings: ArrayLike) -> None:
    """for m = 50, 200 and 800 the root mean square error of an inner product, and the factor saved in an
    update, two arrays of three numbers
    """
    m, d = np.array([50, 200, 800]), 1000
    expect(
        np.shape(errors) != (3,) or bool(np.all(np.array(errors) < 1)),
        "These errors are large beside inner products of unit vectors. The entries of P have variance 1/m.",
    )
    # Of independent unit vectors, the projected inner product has a variance of 1/m, and hardly more.
    right = 1 / np.sqrt(m)
    expect_close(
        errors,
        right,
        "Draw at least 50 unit vectors, and compare all pairs before and after the projection.",
        within=0.15 * right,
        mistakes={
            "Take the root of the mean square.": right**2,
            "The entries of P have standard deviation 1/√m; with a smaller one all is shrunk.": (
                np.full(3, 1 / np.sqrt(d))
            ),
        },
    )
    expect_close(
        savings,
        d**2 / (m**2 + m * d),
        "Divide the operations of an update in d dimensions by those in m dimensions.",
        within=0.06,
        mistakes={
            "The projection costs something, too: m d operations.": d**2 / m**2,
            "An update takes the square of the dimension.": d / m,
            "That is the part that is left: turn the fraction over.": (
                (m**2 + m * d) / d**2
            ),
        },
    )


@exercise("ex-logistic")
def logistic(linear_error: float, logistic_error: float, outside: float) -> None:
    """the root mean square errors of the ridge and of the logistic regression against the true
    probabilities, and the share of the linear predictions that are no probabilities
    """
    truth = _price_to_clicks
    # The line that least squares finds from endless data, by its moments over uniform prices.
    mean = integrate.quad(truth, 0, 1)[0]
    slope = 12 * integrate.quad(lambda s: (s - 0.5) * truth(s), 0, 1)[0]
    line = np.poly1d([slope, mean - slope / 2])
    of_line = np.sqrt(integrate.quad(lambda s: (line(s) - truth(s)) ** 2, 0, 1)[0])
    luck = np.sqrt(integrate.quad(lambda s: truth(s) * (1 - truth(s)), 0, 1)[0])
    for name, found, right, other in (
        ("linear", linear_error, of_line, 0.02),
        ("logistic", logistic_error, 0.02, of_line),
    ):
        expect_close(
            found,
            right,
            f"The {name} model: give it an intercept, and take the root of the mean squared difference of "
            "prediction and truth.",
            within=0.02,
            mistakes={
                "Compare with the true probability, not with the click.": luck,
                "Is it the order, ridge first, and the root of the mean square?": other,
            },
        )
    expect(
        logistic_error > 0,
        "An error of zero cannot be learnt from 2,000 visits: predict with the fitted model.",
    )
    expect(outside <= 1, "A share is wanted, not a number of visits.")
    prices = np.linspace(0, 1, 100_001)
    share = np.mean((line(prices) < 0) | (line(prices) > 1))
    expect_close(
        outside,
        share,
        "Count the linear predictions below zero and those above one, and divide by 2,000.",
        within=0.05,
        mistakes={
            "Those are one side only: below zero and above one.": share / 2,
        },
    )


def _price_to_clicks(price: float) -> float:
    """Return the true click probability at a price."""
    return 1 / (1 + np.exp(-(4 - 8 * price)))
