"""The judges of Chapter 2 against the book's solutions, typical mistakes, and answers that nearly hold."""

import ast
from types import SimpleNamespace

import numpy as np
import pytest

from tests.notebooks import ROOT
from tests.test_exercises import (
    hint,
    imports_of,
    raises,
    run,
    said,
    solutions,
    statements,
)
from zoolib import LinUCBAgent, ZooplusSimulator, run_experiment
from zoolib.exercises import linucb

PAGE = ROOT / "chapters" / "linucb.md"
NAMES = imports_of(PAGE) | {"SEEDS": range(20)}
SOLUTIONS = solutions(PAGE)
DEFINITIONS = ast.FunctionDef, ast.ClassDef


def solved(label, **names):
    """Run a whole solution, and return its names and the last line that it prints."""
    return run(SOLUTIONS[label], NAMES | names)


def defined(label, name):
    """A function or class of a solution, without what the solution does with it."""
    cell = statements("\n".join(SOLUTIONS[label]), *DEFINITIONS)
    return run([cell], NAMES)[0][name]


@pytest.mark.parametrize("label", sorted(SOLUTIONS))
def test_what_a_function_raises_is_said(label):
    """Every first answer that is called may raise; numbers and classes of another kind are refused."""
    answers = {
        "ex-greedy-trap": (0.2, raises),
        "ex-own-agent": (raises, np.zeros((2, 20))),
        "ex-mean-update": (raises,),
        "ex-coverage": (raises,),
        "ex-theory-alpha": (raises,),
        "ex-price-forgetting": (raises,),
    }
    if label in answers:
        line = "not yet: your code raised RuntimeError: my mistake"
        assert said(label, *answers[label]) == f"{label}: {line}"
        assert "function or class is wanted" in hint(
            label, *(0.2 if answer is raises else answer for answer in answers[label])
        )
    elif label in ("ex-clock", "ex-ties"):
        assert "LinUCBAgent" in hint(label, raises, 0)
        assert "LinUCBAgent" in hint(label, int, 0)
    else:
        assert "numbers are wanted" in hint(label, *["x"] * len(ANSWERS[label]))


ANSWERS = {
    "ex-ridge-fractions": "ab",
    "ex-projection": "ab",
    "ex-logistic": "abc",
}


# The greedy trap


def zero_scores():
    return defined("ex-greedy-trap", "zero_scores")


def test_greedy_trap_is_solved():
    arms = np.zeros((2, 3, 1_001), int)
    calm = SimpleNamespace(arm=arms, index=lambda name: 1)
    assert solved("ex-greedy-trap", calm=calm)[1] == "ex-greedy-trap: right."


def test_greedy_trap_mistakes():
    scores = zero_scores()
    assert "favours the toy" in hint("ex-greedy-trap", 0.3, scores)
    assert "toy is not clicked" in hint("ex-greedy-trap", 0.4, scores)
    assert "Multiply" in hint("ex-greedy-trap", 0.9, scores)

    def without_category(n, k):
        return k / (1 + n)

    def without_ridge(n, k):
        return k / np.maximum(n, 1)

    def persona_alone(n, k):
        return scores(n, k) - (k / (1 + n)).sum() / (1 + (n / (1 + n)).sum())

    def nearly(n, k):
        return scores(n, k) + 2e-9

    assert "category has a weight" in hint("ex-greedy-trap", 0.2, without_category)
    assert "ridge is missing" in hint("ex-greedy-trap", 0.2, without_ridge)
    assert "persona alone" in hint("ex-greedy-trap", 0.2, persona_alone)
    assert "visits [3, 0, 5, 1]" in hint("ex-greedy-trap", 0.2, nearly)
    assert "shape (4,) is wanted" in hint("ex-greedy-trap", 0.2, lambda n, k: 0.0)


# How much doubt


def weights(ridge):
    return (20 * (1 + ridge) - 1, 80 + ridge) / (99 + 101 * ridge + ridge**2)


def test_ridge_fractions_is_solved():
    line = solved("ex-ridge-fractions", exact_weights=weights)[1]
    assert line == "ex-ridge-fractions: right."


def test_ridge_fractions_mistakes():
    roots = np.sort(np.roots([1, 91, -701]))
    right, dog = roots[1], weights(roots[1])[0]
    label = "ex-ridge-fractions"
    assert said(label, right + 4.9e-3, dog + 9e-5) == f"{label}: right."
    assert "two equations" in hint(label, right + 5.1e-3, dog)
    assert "dog owner's weight" in hint(label, right, dog + 1.1e-4)
    assert "a ridge is positive" in hint(label, roots[0], dog)
    assert "both entries" in hint(label, 7.01, dog)  # 80 / (99 + 100 λ) = 0.1
    assert "Does the ridge leave it alone?" in hint(label, right, 0.2)
    assert "without a ridge" in hint(label, right, 19 / 99)
    assert "the banner's weight" in hint(label, right, 0.1)


# The mean moves by its surprise


def test_mean_update_is_solved():
    assert solved("ex-mean-update")[1] == "ex-mean-update: right."


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda u, m, x, r, p, w: m + r * u / (1 + w), "subtract what was predicted"),
        (lambda u, m, x, r, p, w: m + (r - p) * u, "denominator is missing"),
        (lambda u, m, x, r, p, w: m + (r - p) * u / w, "1 plus the squared width"),
        (lambda u, m, x, r, p, w: m + (r - p) * x / (1 + w), "u, not x"),
        (lambda u, m, x, r, p, w: m - (r - p) * u / (1 + w), "sign"),
        (lambda u, m, x, r, p, w: (r - p) * u / (1 + w), "the step alone"),
        (lambda u, m, x, r, p, w: m + (r - p) * u / (1 + w) ** 2, "divide twice"),
        (lambda u, m, x, r, p, w: m + (r - p) * u / (1 + w) + 2e-8, "each factor"),
    ],
)
def test_mean_update_mistakes(wrong, says):
    def moved(inverse, mean, x, r):
        u = inverse @ x
        return wrong(u, mean, x, r, x @ mean, x @ u)

    assert says in hint("ex-mean-update", moved)


# Is the width a standard error?


def test_coverage_is_solved():
    assert solved("ex-coverage")[1] == "ex-coverage: right."


def simulated(prediction, half):
    """A coverage with the reader's prediction and half-width, from many runs."""

    def coverage(n, p):
        k = np.random.default_rng(1).binomial(n, p, size=20_000)
        return np.mean(np.abs(prediction(n, k) - p) <= half(n, p))

    return coverage


def ridged(n, k):
    return 2 * k / (1 + 2 * n)


@pytest.mark.parametrize(
    ("prediction", "half", "says"),
    [
        (ridged, lambda n, p: np.sqrt(p * (1 - p) * 2 / (1 + 2 * n)), "take two"),
        (
            lambda n, k: k / n,
            lambda n, p: 2 * np.sqrt(p * (1 - p) / n),
            "ridge is missing",
        ),
        (
            ridged,
            lambda n, p: 2 * np.sqrt(p * (1 - p)) * 2 / (1 + 2 * n),
            "squared width",
        ),
        (ridged, lambda n, p: 2 * p * (1 - p) * np.sqrt(2 / (1 + 2 * n)), "root of p"),
        (ridged, lambda n, p: 2 * np.sqrt(2 / (1 + 2 * n)), "in units of σ"),
        (
            lambda n, k: k / (1 + n),
            lambda n, p: 2 * np.sqrt(p * (1 - p) / (1 + n)),
            "x holds two ones",
        ),
        (ridged, lambda n, p: 1e-9, "the interval reaches two"),
    ],
)
def test_coverage_mistakes(prediction, half, says):
    assert says in hint("ex-coverage", simulated(prediction, half))


def test_coverage_may_have_the_luck_of_many_runs():
    exact = linucb._coverage
    assert (
        said("ex-coverage", lambda n, p: exact(n, p) + 0.019) == "ex-coverage: right."
    )
    assert "not right" in hint("ex-coverage", lambda n, p: exact(n, p) - 0.021)


# What the theory asks for


def test_theory_alpha_is_solved():
    world = ZooplusSimulator(seed=42)
    dog_toy = world.categories.index("Dog Toy")
    line = solved("ex-theory-alpha", world=world, dog_toy=dog_toy)[1]
    assert line == "ex-theory-alpha: right."


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda c, d, norm: np.sqrt(c + d) / 2, "norm of the weights is missing"),
        (lambda c, d, norm: np.sqrt(c + d) + norm, "σ is one half"),
        (lambda c, d, norm: np.sqrt(c + d) / 2 + norm**2, "root of the sum"),
        (lambda c, d, norm: np.sqrt(c / 2 + d) / 2 + norm, "stands twice"),
        (lambda c, d, norm: np.sqrt(c) / 2 + norm, "determinant's logarithm"),
        (lambda c, d, norm: np.sqrt(c + d) / 2 + norm + 2e-6, "one by one"),
    ],
)
def test_theory_alpha_mistakes(wrong, says):
    norm = np.linalg.norm([0.50, 0.02, 0.15, 0.02])

    def alpha(n):
        rows = np.eye(9)[:4] + np.eye(9)[7]
        A = np.eye(9) + n * rows.T @ rows
        return wrong(2 * np.log(20), np.linalg.slogdet(A)[1], norm)

    assert says in hint("ex-theory-alpha", alpha)


@pytest.mark.parametrize(
    ("personas", "times", "says"),
    [([0], 1, "Each of the four"), ([0, 1, 2, 3], 0.25, "n visits in all")],
)
def test_theory_alpha_takes_the_visits_of_all_personas(personas, times, says):
    norm = np.linalg.norm([0.50, 0.02, 0.15, 0.02])

    def alpha(n):
        rows = np.eye(9)[personas] + np.eye(9)[7]
        A = np.eye(9) + times * n * rows.T @ rows
        return np.sqrt(2 * np.log(20) + np.linalg.slogdet(A)[1]) / 2 + norm

    assert says in hint("ex-theory-alpha", alpha)


# Your own agent

REGRETS = np.array([np.full(20, 640.0), np.full(20, 300.0)])


def explore_first():
    return defined("ex-own-agent", "ExploreFirst")


def test_own_agent_is_solved():
    label = "ex-own-agent"
    assert said(label, explore_first(), REGRETS) == f"{label}: right."


def test_own_agent_plays_in_the_arena_of_the_solution():
    cell = SOLUTIONS["ex-own-agent"][0].replace("10_000", "40").replace("9_999", "39")
    names, _ = run([cell], NAMES)
    assert np.shape(names["both_regrets"]) == (2, 20)


def variant(**methods):
    return type("Variant", (explore_first(),), methods)


def counts(self, context):
    if self.seen < self.explore:
        return int(self.rng.integers(50))
    best = self.clicks[context.features[0, :4].argmax()].argmax()
    return int(context.features[:, 4 + best].argmax())


def forgets_personas(self, context):
    if self.seen < self.explore:
        return int(self.rng.integers(50))
    best = (self.clicks.sum(axis=0) / self.shown.sum(axis=0)).argmax()
    return int(context.features[:, 4 + best].argmax())


def always_random(self, context):
    return int(self.rng.integers(50))


def always_first(self, context):
    return 0


@pytest.mark.parametrize(
    ("select", "says"),
    [
        (counts, "the most clicks: divide by the visits"),
        (forgets_personas, "of this persona"),
        (always_random, "several categories"),
        (always_first, "all products are equally likely"),
    ],
)
def test_own_agent_mistakes(select, says):
    assert says in hint("ex-own-agent", variant(select=select), REGRETS)


def test_own_agent_needs_its_methods_and_both_regrets():
    agent, label = explore_first(), "ex-own-agent"
    assert "a method select" in hint(label, lambda explore: 0, REGRETS)
    assert "a method update" in hint(
        label, lambda explore: SimpleNamespace(select=0), REGRETS
    )
    assert "shape (20,)" in hint(label, agent, REGRETS[0])
    assert "the 2,000 visits first" in hint(label, agent, REGRETS[::-1])
    assert "With 200 random visits" in hint(label, agent, [REGRETS[0], REGRETS[1] / 10])
    assert "cannot be" in hint(label, agent, REGRETS * 5)


# Which clock


@pytest.fixture(scope="module")
def arms():
    agent = defined("ex-clock", "StepClock")(50, 9, alpha=0.3, n_worlds=2)
    played = run_experiment([agent], [0, 1], n_steps=300, progress=False).arm[0]
    found = np.zeros((20, 20_000), int)
    found[:2, :300] = played
    return found


def test_clock_is_solved(arms):
    assert (
        said("ex-clock", defined("ex-clock", "StepClock"), arms) == "ex-clock: right."
    )


class NoClock(LinUCBAgent):
    def learn(self, context, at, reward):
        super().learn(context, at, reward)


class ArmsClock(LinUCBAgent):
    def __init__(self, *args, **options):
        super().__init__(*args, discount=0.9998, **options)

    def select(self, context):
        return super().select(context)


class LateClock(LinUCBAgent):
    def learn(self, context, at, reward):
        super().learn(context, at, reward)
        self.posterior.decay(0.9998)


class OtherClock(LinUCBAgent):
    def learn(self, context, at, reward):
        self.posterior.decay(0.998)
        super().learn(context, at, reward)


class ClickClock(LinUCBAgent):
    def learn(self, context, at, reward):
        self.posterior.decay(0.9998)
        super().learn(context, at, 2 * reward)


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        (NoClock, "Nothing is forgotten"),
        (ArmsClock, "the arm's clock ticks"),
        (LateClock, "Decay first"),
        (OtherClock, "γ = 0.9998"),
        (ClickClock, "learn each reward once"),
    ],
)
def test_clock_mistakes(arms, agent, says):
    assert says in hint("ex-clock", agent, arms)


def test_clock_judges_what_was_shown(arms):
    agent = defined("ex-clock", "StepClock")
    assert "shape (300,)" in hint("ex-clock", agent, arms[0, :300])
    assert "seeds 0 … 19" in hint("ex-clock", agent, arms[::-1])


# The price of forgetting


def test_price_forgetting_is_solved():
    late_share = defined("ex-price-forgetting", "late_share")
    assert said("ex-price-forgetting", late_share) == "ex-price-forgetting: right."


def shares(discount, seeds, n_steps, *, start=None, alpha=0.35):
    agent = LinUCBAgent(50, 9, alpha=alpha, discount=discount, n_worlds=len(seeds))
    history = run_experiment([agent], seeds, n_steps, progress=False)
    steps = slice(n_steps // 2 if start is None else start, None)
    earned = history.expected_reward[0][:, steps].sum(axis=1)
    return earned / history.optimal_reward[0][:, steps].sum(axis=1)


@pytest.mark.parametrize(
    ("wrong", "says"),
    [
        (lambda d, s, n: 100 * shares(d, s, n), "percentages"),
        (lambda d, s, n: shares(d, s, n, start=0), "take the second half"),
        (lambda d, s, n: shares(1.0, s, n), "hand it to the agent"),
        (lambda d, s, n: shares(d, s, n, alpha=1.0), "another α"),
        (lambda d, s, n: shares(d, sorted(s), n), "order of the seeds"),
        (lambda d, s, n: shares(d, s, n) + 2e-9, "calm worlds"),
        (lambda d, s, n: shares(d, s, n).mean(), "shape (2,) is wanted"),
    ],
)
def test_price_forgetting_mistakes(wrong, says):
    assert says in hint("ex-price-forgetting", wrong)


# When rounding decides

AGREE = np.linspace(0.04, 0.07, 20)


def rounded():
    return defined("ex-ties", "Rounded")


def test_ties_is_solved():
    assert said("ex-ties", rounded(), AGREE) == "ex-ties: right."


class Argmax(LinUCBAgent):
    def select(self, context):
        return self.scores(context).argmax(axis=-1)


class OneWorld(LinUCBAgent):
    def select(self, context):
        return self.scores(context).argmax()


def noisy(size, *, in_scores=False, shared=False):
    class Noisy(LinUCBAgent):
        rng = np.random.default_rng(1)

        def scores(self, context):
            found = super().scores(context)
            return found + 1e-3 * self.rng.normal(size=found.shape) * in_scores

        def select(self, context):
            found = self.scores(context)
            shape = found.shape[-1:] if shared else found.shape
            return (found + size * self.rng.normal(size=shape)).argmax(axis=-1)

    return Noisy


@pytest.mark.parametrize(
    ("agent", "says"),
    [
        (Argmax, "draw new noise at each choice"),
        (OneWorld, "last axis"),
        (noisy(1e-12, shared=True), "same noise"),
        (noisy(1e-12, in_scores=True), "belongs into select"),
        (noisy(1e-3), "noise is too large"),
    ],
)
def test_ties_mistakes(agent, says):
    assert says in hint("ex-ties", agent, AGREE)


@pytest.mark.parametrize(
    ("agree", "says"),
    [
        (AGREE.mean(), "shape ()"),
        (5_000 * AGREE, "between 0 and 1"),
        (0 * AGREE, "between 0 and 1"),
        (np.full(20, np.nan), "between 0 and 1"),
        (np.ones(20), "one agent twice"),
    ],
)
def test_ties_judges_the_shares(agree, says):
    assert says in hint("ex-ties", rounded(), agree)


# Random combinations

M = np.array([50, 200, 800])
SAVED = np.array([1e6 / 52_500, 1e6 / 240_000, 1e6 / 1_440_000])


def projected_errors(scale):
    """Errors when the entries of P have a standard deviation that is some function of m."""
    rng, errors = np.random.default_rng(8), []
    x = rng.normal(size=(60, 1000))
    x /= np.linalg.norm(x, axis=1, keepdims=True)
    pairs = np.triu_indices(60, k=1)
    for m in M:
        z = x @ rng.normal(size=(1000, m)) * scale(m)
        errors.append(np.sqrt(np.mean((z @ z.T - x @ x.T)[pairs] ** 2)))
    return np.array(errors)


def test_projection_is_solved():
    assert solved("ex-projection")[1] == "ex-projection: right."


def test_projection_mistakes():
    label = "ex-projection"
    right = projected_errors(lambda m: m**-0.5)
    assert said(label, right, SAVED) == f"{label}: right."
    assert "variance 1/m" in hint(label, projected_errors(lambda m: 1), SAVED)
    shrunk = projected_errors(lambda m: 1 / m)
    assert "with a smaller one all is shrunk" in hint(label, shrunk, SAVED)
    assert "root of the mean square" in hint(label, right**2, SAVED)
    assert "compare all pairs" in hint(label, 1.2 * right, SAVED)
    assert "shape (3,)" in hint(label, right[:2], SAVED)
    assert "m d operations" in hint(label, right, 1e6 / M**2)
    assert "square of the dimension" in hint(label, right, 1000 / M)
    assert "turn the fraction over" in hint(label, right, 1 / SAVED)
    assert "Divide the operations" in hint(label, right, SAVED + 0.07)


# A link for clicks


def test_logistic_is_solved():
    assert solved("ex-logistic")[1] == "ex-logistic: right."


def test_logistic_mistakes():
    label = "ex-logistic"
    rng = np.random.default_rng(2)
    price = rng.random(2_000)
    truth = 1 / (1 + np.exp(8 * price - 4))
    clicked = rng.random(2_000) < truth
    line = np.polyval(np.polyfit(price, clicked, 1), price)
    of_line = np.sqrt(np.mean((line - truth) ** 2))
    outside = np.mean((line < 0) | (line > 1))
    assert said(label, of_line, 0.01, outside) == f"{label}: right."
    with_clicks = np.sqrt(np.mean((line - clicked) ** 2))
    assert "not with the click" in hint(label, with_clicks, 0.01, outside)
    assert "the order, ridge first" in hint(label, 0.01, of_line, outside)
    assert "root of the mean square" in hint(label, of_line**2, 0.01, outside)
    assert "The linear model" in hint(label, 0.2, 0.01, outside)
    assert "The logistic model" in hint(label, of_line, 0.2, outside)
    assert "cannot be learnt" in hint(label, of_line, 0.0, outside)
    assert "not a number of visits" in hint(label, of_line, 0.01, 2000 * outside)
    assert "below zero and above one" in hint(label, of_line, 0.01, np.mean(line < 0))
