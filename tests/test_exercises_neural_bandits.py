"""The judges of Chapter 3: the book's solutions pass, its stubs and typical mistakes do not."""

import ast

import numpy as np
import pytest
import torch
from scipy.special import expit

import zoolib
from tests.exercises import (
    CHAPTERS,
    NO_FUNCTION,
    RAISED,
    assert_says,
    assigned,
    is_definition,
    nothing,
    raises,
    run,
    said,
    statements,
    verdicts,
)
from zoolib import (
    Churn,
    FeatureEngineer,
    LinUCBAgent,
    NeuralLinearAgent,
    NeuralUCBAgent,
    ZooplusSimulator,
    click_rate,
    run_experiment,
    share_of_oracle,
)

CHAPTER = CHAPTERS["neural-bandits"]
# Their solutions play for minutes: only what they define is run, and the check itself.
PLAYED = {
    "ex-untrained",
    "ex-calm-price",
    "ex-thompson",
    "ex-lift",
    "ex-pairs",
    "ex-hill",
    "ex-rope",
}
GENERATOR = np.random.default_rng(0)  # one that does not start again
VERDICTS = {}


def handed_over(cells):
    """What a solution that plays for minutes defines, and its check with what that is handed."""

    checks = statements(cells, lambda n: ast.unparse(n).startswith("check("))
    used = {n.id for n in ast.walk(ast.parse(checks)) if isinstance(n, ast.Name)}
    kept = statements(cells, lambda n: is_definition(n) or assigned(n) & used)
    return [kept, checks]


@pytest.fixture(scope="module")
def names():
    return CHAPTER.names("SEEDS", "settings", "world", "features", "replay")


@pytest.mark.parametrize("label", CHAPTER.stubs)
def test_the_books_solution_is_right(label, names):
    cells = CHAPTER.solutions[label]
    cells = handed_over(cells) if label in PLAYED else cells
    assert run(cells, names)[1] == f"{label}: right."


OTHERS = {
    "ex-special-case": (),
    "ex-sigmoid": (0.5, 10),
    "ex-row-sums": (raises,),
    "ex-diagonal": (),
    "ex-untrained": (),
    "ex-calm-price": (),
    "ex-thompson": (),
    "ex-lift": (),
    "ex-one-seed": (),
    "ex-pairs": (),
    "ex-hill": (range(20),),
    "ex-rope": (0.02,),
}


@pytest.mark.parametrize(("label", "others"), OTHERS.items())
def test_what_is_no_answer_is_said(label, others):
    assert_says(label, raises, *others, RAISED)
    assert_says(label, 1.0, *others, NO_FUNCTION)
    assert said(label, nothing, *others).startswith("not answered yet.")


def posterior_width(played, asked, ridge=1.0, ones=1):
    played, asked = (np.hstack((x, np.ones((len(x), ones)))) for x in (played, asked))
    A_inv = np.linalg.pinv(ridge * np.eye(played.shape[1]) + played.T @ played)
    return np.sqrt(np.diag(asked @ A_inv @ asked.T))


def width_of_agent(played, asked):
    agent = NeuralUCBAgent(len(played), 9, alpha=1, hidden=(), seed=5, dtype=np.float64)
    for row in range(len(played)):
        agent.update(zoolib.Context(0, played), row, 7.0)
    gradients = torch.from_numpy(agent.jacobian_of(asked))
    return agent.uncertainty.squares(gradients).sqrt().numpy()


VERDICTS["ex-special-case"] = [
    (width_of_agent, "right."),
    (lambda played, asked: posterior_width(played, asked) ** 2, "take the root"),
    (lambda played, asked: posterior_width(played, asked, ones=0), "bias"),
    (lambda played, asked: posterior_width(played, asked, ridge=0), "ridge"),
    (lambda played, asked: posterior_width(asked, asked), "gradient"),
    (lambda played, asked: posterior_width(played, asked)[:, None], "shape"),
]


def slope(q):
    return expit(np.log(q / (1 - q))) * (1 - q)


VERDICTS["ex-sigmoid"] = [
    (lambda q: 1 / slope(q), 0.5, 12.76, "fraction"),
    (lambda q: np.sqrt(slope(q)), 0.5, 12.76, "twice"),
    (lambda q: slope(q) ** 2, 0.5, 12.76, "take the root"),
    (lambda q: q, 0.5, 12.76, "chain rule"),
    (slope, 1.0, 12.76, "Draw"),
    (slope, 0.5, 1 / 12.755, "other way round"),
    (slope, 0.5, 25.0, "Divide"),
]
VERDICTS["ex-gigabyte"] = [
    (int(16_384 / 11), 22_727_272, "more than a thousand million"),  # 2³⁰ bytes
    (1_581, 22_727_272, "more than a thousand million"),  # no biases
    (1_437, 25_000_000, "With the diagonal: more than"),
    (1_436, 22_727_272, "all of A⁻¹: there is room"),
    (1_437, 22_727_271, "the diagonal: there is room"),
    (1_437.3, 22_727_272, "whole number"),
    (1_437, np.nan, "whole number"),
    (1_437, [1, 2], "whole number"),
    (-3, 22_727_272, "whole number"),
    (np.inf, 22_727_272, "more than"),
]


def counts(k, p):
    return k * p**2 + k**2 * p, k * p**2 + k * p


def squared(j, A_inv):
    return np.einsum("ai,ij,aj->a", j, A_inv, j)


VERDICTS["ex-row-sums"] = [
    (counts, squared, "right."),
    (lambda k, p: counts(k, p)[::-1], squared, "comes first"),
    (lambda k, p: (k**2 * p, k * p), squared, "J times A⁻¹ first"),
    (lambda k, p: (k * p**2, k * p**2), squared, "second factor"),
    (lambda k, p: (k * p**2 + k**2, k * p**2 + k), squared, "each term"),
    (lambda k, p: k * p**2, squared, "shape"),
    (counts, lambda j, A_inv: np.sqrt(squared(j, A_inv)), "roots"),
    (counts, lambda j, A_inv: j @ A_inv @ j.T, "K numbers"),
    (counts, lambda j, A_inv: ((j @ A_inv) * j).sum(axis=0), "K numbers"),
]


def solved(n, diagonal_of=lambda A: np.linalg.inv(np.diag(np.diag(A)))):
    A = np.eye(2) + n * np.ones((2, 2))
    inverses = np.linalg.inv(A), diagonal_of(A)
    return np.array(
        [[x @ A_inv @ x for A_inv in inverses] for x in np.array([[1, 1], [1, -1]])]
    )


def cut(n):
    return solved(n, lambda A: np.diag(np.diag(np.linalg.inv(A))))


VERDICTS["ex-diagonal"] = [
    (solved, "right."),
    (lambda n: np.sqrt(solved(n)), "roots"),
    (lambda n: solved(n).T, "row is wanted for each direction"),
    (cut, "diagonal of A and invert"),
    (lambda n: [[2 / (2 * n + 1), 2 / (n + 2)], [2, 2 / (n + 2)]], "ridge"),
    (lambda n: solved(n)[0], "shape"),
]

SETTINGS = {"alpha": 0.7, "joined": True, "rebuild": True, "window": 3_000}
SETTINGS |= {"discount": 0.999, "train_every": 100, "n_batches": 8}
NEVER = {"train_every": 10**9}


def played(changes, make_features=FeatureEngineer, n_features=9, scale=100):
    """A function that plays the recommended agent with changes."""

    def shares(seeds, n_visits):
        settings = SETTINGS | changes
        agent = NeuralLinearAgent(50, n_features, n_worlds=len(seeds), **settings)
        options = {"make_features": make_features, "progress": False}
        history = run_experiment([agent], seeds, n_visits, **options)
        return scale * share_of_oracle(history, "NeuralLinearAgent")

    return shares


def told(worlds):
    return FeatureEngineer(worlds, interactions=True)


VERDICTS["ex-untrained"] = [
    (played(NEVER), "right."),  # also with a rebuild
    (played(NEVER, scale=1), "Percentages are wanted"),
    (played({}), "trained"),
    (played(NEVER | {"joined": False}), "not joined"),
    (played(NEVER | {"discount": 1.0}), "discount"),
    (played(NEVER | {"alpha": 0.3}), "recommended"),
    (lambda seeds, n: played(NEVER)(seeds, n).mean(), "shape"),
]
VERDICTS["ex-pairs"] = [
    (played({}, told, 29, scale=1), "Percentages are wanted"),
    (played({}), "not told"),
    (played({"joined": False}, told, 29), "not joined"),
    (played({"rebuild": False, "window": None}, told, 29), "recommended"),
    (played({}, told, 9), "raised ValueError"),
]


def table_price(alphas=(0.5, 0.5), discount=0.9995, scale=100):
    def price(seeds, n_visits):
        options = {"make_features": told, "progress": False}
        earned = []
        for alpha, gamma in zip(alphas, (1.0, discount), strict=True):
            # A copy for each world.
            agent = LinUCBAgent(50, 29, alpha, shared=True, discount=gamma)
            history = run_experiment({"a": agent}, seeds, n_visits, **options)
            earned.append(share_of_oracle(history, "a"))
        return scale * (earned[0] - earned[1])

    return price


VERDICTS["ex-calm-price"] = [
    (table_price(), "right."),
    (table_price(scale=1), "Percentages are wanted"),
    (table_price(scale=-100), "sign"),
    (table_price(alphas=(1.0, 0.5)), "differ in α"),
    (table_price(discount=0.999), "α = 0.5"),
]


def by_cholesky(z, A, b, alpha, rng):
    # Solving with the factor's transpose gives the covariance A⁻¹.
    v = np.linalg.solve(np.linalg.cholesky(A).T, rng.standard_normal(len(b)))
    return z @ (np.linalg.solve(A, b) + alpha * v)


def moved(change, of=lambda A, b: np.linalg.inv(A) @ b):
    """A draw whose covariance is something else, or its mean."""

    def scores(z, A, b, alpha, rng):
        cov = change(A, np.linalg.inv(A), alpha)
        return z @ rng.multivariate_normal(of(A, b), cov)

    return scores


def each_arm_its_own(z, A, b, alpha, rng):
    return np.array([row @ by_cholesky(np.eye(2), A, b, alpha, rng) for row in z])


def own_seed(*args):
    return by_cholesky(*args[:-1], np.random.default_rng(0))


VERDICTS["ex-thompson"] = [
    (by_cholesky, "right."),
    (moved(lambda A, A_inv, alpha: alpha**2 * A), "covariance of A"),
    (moved(lambda A, A_inv, alpha: alpha * A_inv), "standard deviation"),
    (moved(lambda A, A_inv, alpha: A_inv), "depend on α"),
    (moved(lambda A, A_inv, alpha: alpha**2 * np.diag(np.diag(A_inv))), "M Mᵀ"),
    (moved(lambda A, A_inv, alpha: alpha**2 * A_inv, of=lambda A, b: b), "mean of"),
    (each_arm_its_own, "One draw"),
    (lambda z, A, b, alpha, rng: z @ np.linalg.solve(A, b), "same at each draw"),
    (own_seed, "same at each draw"),
    (lambda *args: by_cholesky(*args[:-1], GENERATOR), "generator"),
    (lambda *args: by_cholesky(*args).max(), "score for each arm"),
]
AFTER_SHOCK = slice(10_000, 20_000)


def lift(span=AFTER_SHOCK, change=lambda ratio: 100 * (ratio - 1), rate=click_rate):
    def lifts(history, agent, other, rival):
        return change(rate(history, agent, span) / rate(other, rival, span))

    return lifts


def expected_rate(history, agent, span):
    return history.expected_reward[history.index(agent)][:, span].mean(axis=-1)


def first_agent(history, agent, span):
    return history.reward[0][:, span].mean(axis=-1)


VERDICTS["ex-lift"] = [
    (lift(change=lambda ratio: ratio - 1), "Percentages are wanted"),
    (lift(change=lambda ratio: 100 * ratio), "lift is zero"),
    (lift(change=lambda ratio: 100 / ratio - 100), "second over the first"),
    (lift(slice(20_000)), "before the shock"),
    (lift(slice(10_000, None)), "second shock"),
    (lift(slice(10_000, 25_000)), "Only 10,000"),
    (lift(rate=expected_rate), "Clicks"),
    (lift(rate=first_agent), "more clicks"),
    (lift(change=lambda ratio: 100 * ratio.mean() - 100), "shape"),
]


def phases_from(first, second, n_users=1000):
    """Two phases from the seeds of two generators, made of the seed handed in."""
    return lambda seed, n: [
        np.random.default_rng(of(seed)).integers(n_users, size=n)
        for of in (first, second)
    ]


def in_turn(seed, n):
    return np.random.default_rng(seed).integers(1000, size=(2, n))


def shuffled(seed, n):
    rng = np.random.default_rng(seed)
    users = rng.integers(1000, size=n)
    return users, rng.permutation(users)


def same(seed):
    return seed


def other(seed):
    return [seed, 1]


VERDICTS["ex-one-seed"] = [
    (in_turn, "right."),
    (phases_from(same, same), "same order"),
    (phases_from(same, lambda seed: seed + 1), "next seed"),
    (phases_from(lambda seed: 1, other), "bring other visitors."),
    (phases_from(same, lambda seed: 1), "in phase two"),
    (phases_from(same, other, n_users=500), "1,000 users"),
    (phases_from(same, other, n_users=1001), "0 to 999"),
    (shuffled, "another order"),
    (lambda seed, n: GENERATOR.integers(1000, size=(2, n)), "each time"),
    (lambda seed, n: np.random.default_rng(seed).random((2, n)), "1,000 users"),
    (lambda seed, n: in_turn(seed, n)[0], "Two rows"),
]


def hills(appeal=zoolib.world.simulator.appeal, order=lambda cells: cells):
    """A class of features, written otherwise than the book's: an outer product and an appeal."""

    class Hills:
        def __init__(self, worlds):
            self.worlds = worlds

        def transform(self, users):
            pairs = zip(self.worlds, users, strict=True)
            return np.stack([self.of(world, user) for world, user in pairs])

        def of(self, world, user):
            cell = np.zeros((world.n_products, 4, 5))
            category = world.category_of_product
            cell[np.arange(len(cell)), world.persona_of_user[user], category] = 1
            wish = world.users.loc[user, ["budget", "curiosity"]]
            qualities = world.products[["price", "freshness"]].to_numpy()
            pull = appeal(wish.to_numpy(float), qualities)
            return order(cell).reshape(len(cell), 20) * pull[:, None]

    return Hills


def turned(wish, quality):
    return zoolib.world.simulator.appeal(wish, quality)[::-1]


TABLE = ZooplusSimulator().click_table
BY_PERSONA, BY_CATEGORY = TABLE.ravel(), TABLE.T.ravel()
VERDICTS["ex-hill"] = [
    (hills(), BY_PERSONA, "right."),
    (hills(order=lambda cell: cell.swapaxes(1, 2)), BY_CATEGORY, "right."),
    (hills(), BY_CATEGORY, "order"),
    (hills(), np.ones(20), "order"),
    (hills(), TABLE, "20 weights"),
    (hills(appeal=lambda wish, quality: quality[:, 0]), BY_PERSONA, "appeal"),
    (hills(appeal=turned), BY_PERSONA, "this product to this user"),
    (told, BY_PERSONA, "(W, 50, 20)"),
]


def newcomers(change=lambda share: share, length=500, again=True, place=False):
    def shares(history, name):
        result = []
        for w, seed in enumerate(history.seeds):
            shop = ZooplusSimulator(seed=w if place else seed)
            arm = history.arm[history.index(name), w]
            new, parts = shop.restock(1 / 50), []
            for step in (2_500, 5_000, 7_500):
                parts.append((arm[step : step + length] == new).mean())
                new = shop.restock(1 / 50) if again else new
            result.append(change(np.mean(parts)))
        return np.array(result)

    return shares


VERDICTS["ex-rope"] = [
    (newcomers(), 1 / 50, "right."),
    (newcomers(lambda share: 100 * share), 1 / 50, "percentages"),
    (newcomers(lambda share: 3 * share), 1 / 50, "added"),
    (newcomers(again=False), 1 / 50, "another newcomer"),
    (newcomers(length=2_500), 1 / 50, "500 visits"),
    (newcomers(place=True), 1 / 50, "same seed"),
    (lambda history, name: newcomers()(history, "shy"), 1 / 50, "500 visits"),
    (newcomers(), 1 / 5, "equally"),
    (newcomers(), 2, "not percentages"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)


def test_an_agent_in_the_arena_has_the_shares_that_its_newcomers_get():
    class ShowsNewcomers:
        n_arms, n_worlds, arms, age = 50, 2, np.zeros((2, 1), int), 0

        def restock(self, arms):
            self.arms, self.age = arms, 0

        def select(self, context):
            self.age += 1
            newcomer = self.arms[:, 0]
            return np.where(self.age <= 125, newcomer, (newcomer + 1) % 50)

        def update(self, context, arm, reward):
            pass

    churn = Churn(every=2_500, share=1 / 50)
    agents = {"new": ShowsNewcomers()}
    history = run_experiment(agents, (3, 8), 8_000, churn=churn, progress=False)
    assert newcomers()(history, "new") == pytest.approx([0.25, 0.25])
