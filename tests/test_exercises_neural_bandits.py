"""The judges of Chapter 3: the book's solutions pass, its stubs and typical mistakes do not."""

import ast
import re

import numpy as np
import pytest
import torch
from scipy.special import expit

import zoolib
from tests.notebooks import ROOT
from zoolib import (
    Churn,
    FeatureEngineer,
    LinUCBAgent,
    NeuralLinearAgent,
    NeuralUCBAgent,
    ZooplusSimulator,
    check,
    click_rate,
    run_experiment,
    share_of_oracle,
)
from zoolib.exercises import neural_bandits as judges
from zoolib.exercises.judging import EXERCISES

PAGE = (ROOT / "chapters/neural-bandits.md").read_text()
CELL = r"```\{code-cell\} python\n(?:---\n.*?\n---\n|:tags:[^\n]*\n\n)?(.*?)\n```"
LABELS = re.findall(r":label: (ex-[\w-]+)", PAGE)
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
AFTER_SHOCK = slice(10_000, 20_000)
SETTINGS = {"alpha": 0.7, "joined": True, "rebuild": True, "window": 3_000}
SETTINGS |= {"discount": 0.999, "train_every": 100, "n_batches": 8}


def cells(text):
    return [ast.parse(code) for code in re.findall(CELL, text, re.S)]


def block(kind, label):
    """The text of an exercise or of its solution."""
    start = (
        rf":label: {label}\n" if kind == "exercise" else rf"solution-start}} {label}\n"
    )
    return re.search(rf"{start}(.*?)\{{{kind}-end}}", PAGE, re.S).group(1)


def definitions(nodes):
    return [n for n in nodes if isinstance(n, ast.FunctionDef | ast.ClassDef)]


def targets(node):
    """Names that an assignment sets."""
    return {t.id for t in getattr(node, "targets", []) if isinstance(t, ast.Name)}


def handed_over(nodes):
    """The check of a solution that plays for minutes, and what it hands over."""
    calls = [n for n in nodes if ast.unparse(n).startswith("check(")]
    used = {n.id for call in calls for n in ast.walk(call) if isinstance(n, ast.Name)}
    return [*definitions(nodes), *(n for n in nodes if targets(n) & used), *calls]


def run(nodes, names):
    exec(compile(ast.Module(list(nodes), []), "neural-bandits", "exec"), names)


@pytest.fixture(scope="module")
def chapter():
    """What solutions use of the chapter: its imports, functions, classes and a few names."""
    names, wanted = {}, {"SEEDS", "settings", "world", "features", "replay"}
    for cell in cells(PAGE[: PAGE.index("\n## Exercises")]):
        for node in cell.body:
            if isinstance(node, ast.Import | ast.ImportFrom) or targets(node) & wanted:
                run([node], names)
        run([n for n in definitions(cell.body) if not n.decorator_list], names)
    return names | {"claim": lambda *args, **options: None}


def verdict(capsys, label, *answers):
    capsys.readouterr()
    check(label, *answers)
    told, said = capsys.readouterr().out.strip().split(": ", 1)
    assert told == label
    return said


def test_every_exercise_of_the_chapter_has_a_judge_and_no_other():
    ours = {
        name
        for name, one in EXERCISES.items()
        if one.judge.__module__ == judges.__name__
    }
    assert ours == set(LABELS)
    assert len(LABELS) == 13


@pytest.mark.parametrize("label", LABELS)
def test_the_solution_of_the_book_is_right(label, chapter, capsys):
    names = dict(chapter)
    for cell in cells(block("solution", label)):
        run(handed_over(cell.body) if label in PLAYED else cell.body, names)
    assert capsys.readouterr().out.endswith(f"{label}: right.\n")


@pytest.mark.parametrize("label", LABELS)
def test_the_stub_of_the_book_is_not_answered(label, capsys):
    (cell,) = cells(block("exercise", label))
    run(cell.body, {"check": check})
    said = capsys.readouterr().out
    assert said.startswith(f"{label}: not answered yet. Hand over ")
    assert said.endswith(".\n")
    assert "\n" not in said[:-1]


def nothing(*answers):
    assert answers


def broken(*_):
    raise ZeroDivisionError("by nothing")


FUNCTIONS = {
    "ex-special-case": (),
    "ex-sigmoid": (0.5, 10),
    "ex-row-sums": (broken,),
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


@pytest.mark.parametrize(("label", "others"), FUNCTIONS.items())
def test_what_the_reader_s_function_raises_is_said(label, others, capsys):
    said = verdict(capsys, label, broken, *others)
    assert said == "not yet: your code raised ZeroDivisionError: by nothing"


@pytest.mark.parametrize(("label", "others"), FUNCTIONS.items())
def test_a_number_in_the_place_of_a_function_is_said(label, others, capsys):
    said = verdict(capsys, label, 1.0, *others)
    assert said.startswith("not yet: a function or class is wanted, and float came.")


@pytest.mark.parametrize(("label", "others"), FUNCTIONS.items())
def test_a_function_that_returns_nothing_is_no_answer(label, others, capsys):
    said = verdict(capsys, label, nothing, *others)
    assert said.startswith("not answered yet.")


def posterior_width(played, asked, ridge=1.0, ones=1):
    played, asked = (np.hstack((x, np.ones((len(x), ones)))) for x in (played, asked))
    A_inv = np.linalg.pinv(ridge * np.eye(played.shape[1]) + played.T @ played)
    return np.sqrt(np.diag(asked @ A_inv @ asked.T))


@pytest.mark.parametrize(
    ("widths", "hint"),
    [
        (lambda played, asked: posterior_width(played, asked) ** 2, "a root"),
        (lambda played, asked: posterior_width(played, asked, ones=0), "bias"),
        (lambda played, asked: posterior_width(played, asked, ridge=0), "ridge"),
        (lambda played, asked: posterior_width(asked, asked), "gradient"),
        (lambda played, asked: posterior_width(played, asked)[:, None], "shape"),
    ],
)
def test_widths_of_the_flat_network(widths, hint, capsys):
    said = verdict(capsys, "ex-special-case", widths)
    assert said.startswith("not yet:")
    assert hint in said


def test_widths_of_the_flat_network_agree_with_the_agent_itself(capsys):
    def of_the_agent(played, asked):
        n = len(played)
        agent = NeuralUCBAgent(n, 9, alpha=1, hidden=(), seed=5, dtype=np.float64)
        for row in range(n):
            agent.update(zoolib.Context(0, played), row, 7.0)
        gradients = torch.from_numpy(agent.jacobian_of(asked))
        return agent.uncertainty.squares([gradients]).sqrt().numpy()

    assert verdict(capsys, "ex-special-case", of_the_agent) == "right."


def slope(q):
    return expit(np.log(q / (1 - q))) * (1 - q)


@pytest.mark.parametrize(
    ("answers", "hint"),
    [
        ((lambda q: 1 / slope(q), 0.5, 12.76), "divides"),
        ((lambda q: np.sqrt(slope(q)), 0.5, 12.76), "twice"),
        ((lambda q: slope(q) ** 2, 0.5, 12.76), "squared"),
        ((lambda q: q, 0.5, 12.76), "chain rule"),
        ((slope, 1.0, 12.76), "Draw"),
        ((slope, 0.5, 1 / 12.755), "other way round"),
        ((slope, 0.5, 25.0), "Divide"),
    ],
)
def test_the_factor_of_the_sigmoid(answers, hint, capsys):
    said = verdict(capsys, "ex-sigmoid", *answers)
    assert said.startswith("not yet:")
    assert hint in said


@pytest.mark.parametrize(
    ("answers", "hint"),
    [
        ((int(16_384 / 11), 22_727_272), "more than a thousand million"),  # 2³⁰ bytes
        ((1_581, 22_727_272), "more than a thousand million"),  # no biases
        ((1_437, 25_000_000), "the diagonal: so many"),
        ((1_436, 22_727_272), "all of A⁻¹: there is room"),
        ((1_437, 22_727_271), "the diagonal: there is room"),
        ((1_437.3, 22_727_272), "whole number"),
        ((1_437, np.nan), "whole number"),
        ((1_437, [1, 2]), "whole number"),
        ((-3, 22_727_272), "whole number"),
        ((np.inf, 22_727_272), "more than"),
    ],
)
def test_units_in_a_gigabyte(answers, hint, capsys):
    said = verdict(capsys, "ex-gigabyte", *answers)
    assert said.startswith("not yet:")
    assert hint in said


def counts(k, p):
    return k * p**2 + k**2 * p, k * p**2 + k * p


def squared(j, A_inv):
    return np.einsum("ai,ij,aj->a", j, A_inv, j)


@pytest.mark.parametrize(
    ("answers", "hint"),
    [
        ((lambda k, p: counts(k, p)[::-1], squared), "comes first"),
        ((lambda k, p: (k**2 * p, k * p), squared), "J times A⁻¹ first"),
        ((lambda k, p: (k * p**2, k * p**2), squared), "second factor"),
        ((lambda k, p: (k * p**2 + k**2, k * p**2 + k), squared), "each term"),
        ((lambda k, p: k * p**2, squared), "shape"),
        ((counts, lambda j, A_inv: np.sqrt(squared(j, A_inv))), "roots"),
        ((counts, lambda j, A_inv: j @ A_inv @ j.T), "K numbers"),
        ((counts, lambda j, A_inv: ((j @ A_inv) * j).sum(axis=0)), "K numbers"),
    ],
)
def test_multiplications_and_row_sums(answers, hint, capsys):
    said = verdict(capsys, "ex-row-sums", *answers)
    assert said.startswith("not yet:")
    assert hint in said


def test_other_ways_to_the_row_sums_are_right(capsys):
    assert verdict(capsys, "ex-row-sums", counts, squared) == "right."


def with_matrices(n, diagonal_of=lambda A: np.linalg.inv(np.diag(np.diag(A)))):
    A = np.eye(2) + n * np.ones((2, 2))
    return np.array(
        [
            [x @ np.linalg.inv(A) @ x, x @ diagonal_of(A) @ x]
            for x in np.array([[1, 1], [1, -1]])
        ]
    )


@pytest.mark.parametrize(
    ("squared_widths", "hint"),
    [
        (lambda n: np.sqrt(with_matrices(n)), "roots"),
        (lambda n: with_matrices(n).T, "row is wanted for each direction"),
        (
            lambda n: with_matrices(n, lambda A: np.diag(np.diag(np.linalg.inv(A)))),
            "diagonal of A and invert",
        ),
        (lambda n: [[2 / (2 * n + 1), 2 / (n + 2)], [2, 2 / (n + 2)]], "ridge"),
        (lambda n: with_matrices(n)[0], "shape"),
    ],
)
def test_what_the_diagonal_says(squared_widths, hint, capsys):
    assert verdict(capsys, "ex-diagonal", with_matrices) == "right."
    said = verdict(capsys, "ex-diagonal", squared_widths)
    assert said.startswith("not yet:")
    assert hint in said


def played(changes, make_features=FeatureEngineer, n_features=9, scale=100):
    """A function that plays the recommended agent with changes."""

    def shares(seeds, n_visits):
        agent = NeuralLinearAgent(
            50, n_features, n_worlds=len(seeds), **SETTINGS | changes
        )
        history = run_experiment(
            [agent], seeds, n_visits, make_features=make_features, progress=False
        )
        return scale * share_of_oracle(history, "NeuralLinearAgent")

    return shares


def told(worlds):
    return FeatureEngineer(worlds, interactions=True)


NEVER = {"train_every": 10**9}


def test_an_agent_that_is_never_trained_may_have_a_rebuild(capsys):
    assert verdict(capsys, "ex-untrained", played(NEVER)) == "right."


@pytest.mark.parametrize(
    ("shares", "hint"),
    [
        (played(NEVER, scale=1), "percent"),
        (played({}), "trained"),
        (played(NEVER | {"joined": False}), "not joined"),
        (played(NEVER | {"discount": 1.0}), "discount"),
        (played(NEVER | {"alpha": 0.3}), "recommended"),
        (lambda seeds, n: played(NEVER)(seeds, n).mean(), "shape"),
    ],
)
def test_shares_without_training(shares, hint, capsys):
    said = verdict(capsys, "ex-untrained", shares)
    assert said.startswith("not yet:")
    assert hint in said


@pytest.mark.parametrize(
    ("shares", "hint"),
    [
        (played({}, told, 29, scale=1), "percent"),
        (played({}), "not told"),
        (played({"joined": False}, told, 29), "not joined"),
        (played({"rebuild": False, "window": None}, told, 29), "recommended"),
        (played({}, told, 9), "raised ValueError"),
    ],
)
def test_shares_of_an_agent_that_is_told_the_pairs(shares, hint, capsys):
    said = verdict(capsys, "ex-pairs", shares)
    assert said.startswith("not yet:")
    assert hint in said


def table_price(alphas=(0.5, 0.5), discount=0.9995, scale=100):
    def price(seeds, n_visits):
        earned = []
        for alpha, gamma in zip(alphas, (1.0, discount), strict=True):
            agent = LinUCBAgent(
                50, 29, alpha, shared=True, discount=gamma
            )  # a copy a world
            history = run_experiment(
                {"a": agent}, seeds, n_visits, make_features=told, progress=False
            )
            earned.append(share_of_oracle(history, "a"))
        return scale * (earned[0] - earned[1])

    return price


@pytest.mark.parametrize(
    ("price", "hint"),
    [
        (table_price(scale=1), "percent"),
        (table_price(scale=-100), "sign"),
        (table_price(alphas=(1.0, 0.5)), "differ in α"),
        (table_price(discount=0.999), "α = 0.5"),
    ],
)
def test_the_price_of_forgetting(price, hint, capsys):
    said = verdict(capsys, "ex-calm-price", price)
    assert said.startswith("not yet:")
    assert hint in said


def test_the_price_of_forgetting_may_be_found_world_by_world(capsys):
    assert verdict(capsys, "ex-calm-price", table_price()) == "right."


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


@pytest.mark.parametrize(
    ("draw_scores", "hint"),
    [
        (moved(lambda A, A_inv, alpha: alpha**2 * A), "covariance of A"),
        (moved(lambda A, A_inv, alpha: alpha * A_inv), "standard deviation"),
        (moved(lambda A, A_inv, alpha: A_inv), "depend on α"),
        (
            moved(lambda A, A_inv, alpha: alpha**2 * np.diag(np.diag(A_inv))),
            "M Mᵀ",
        ),
        (moved(lambda A, A_inv, alpha: alpha**2 * A_inv, of=lambda A, b: b), "mean of"),
        (each_arm_its_own, "One draw"),
        (lambda z, A, b, alpha, rng: z @ np.linalg.solve(A, b), "same at each draw"),
        (
            lambda z, A, b, alpha, rng: by_cholesky(
                z, A, b, alpha, np.random.default_rng(0)
            ),
            "same at each draw",
        ),
        (
            lambda z, A, b, alpha, rng: by_cholesky(z, A, b, alpha, GENERATOR),
            "generator",
        ),
        (
            lambda z, A, b, alpha, rng: by_cholesky(z, A, b, alpha, rng).max(),
            "score for each arm",
        ),
    ],
)
def test_drawn_scores(draw_scores, hint, capsys):
    said = verdict(capsys, "ex-thompson", draw_scores)
    assert said.startswith("not yet:")
    assert hint in said


def test_a_draw_by_cholesky_is_right(capsys):
    assert verdict(capsys, "ex-thompson", by_cholesky) == "right."


def lift(span=AFTER_SHOCK, change=lambda ratio: 100 * (ratio - 1), rate=click_rate):
    def lifts(history, agent, other, rival):
        return change(rate(history, agent, span) / rate(other, rival, span))

    return lifts


def expected_rate(history, agent, span):
    return history.expected_reward[history.index(agent)][:, span].mean(axis=-1)


def first_agent(history, agent, span):
    return history.reward[0][:, span].mean(axis=-1)


@pytest.mark.parametrize(
    ("lifts", "hint"),
    [
        (lift(change=lambda ratio: ratio - 1), "parts"),
        (lift(change=lambda ratio: 100 * ratio), "lift is zero"),
        (lift(change=lambda ratio: 100 / ratio - 100), "second over the first"),
        (lift(slice(20_000)), "before the shock"),
        (lift(slice(10_000, None)), "second shock"),
        (lift(slice(10_000, 25_000)), "Only 10,000"),
        (lift(rate=expected_rate), "Clicks"),
        (lift(rate=first_agent), "more clicks"),
        (lift(change=lambda ratio: 100 * ratio.mean() - 100), "shape"),
    ],
)
def test_lifts(lifts, hint, capsys):
    said = verdict(capsys, "ex-lift", lifts)
    assert said.startswith("not yet:")
    assert hint in said


def phases_from(first, second, n_users=1000):
    """Two phases from the seeds of two generators, made of the seed handed in."""
    return lambda seed, n: [
        np.random.default_rng(of(seed)).integers(n_users, size=n)
        for of in (first, second)
    ]


def shuffled(seed, n):
    rng = np.random.default_rng(seed)
    users = rng.integers(1000, size=n)
    return users, rng.permutation(users)


def unseeded(seed, n):
    return GENERATOR.integers(1000, size=(2, n))


@pytest.mark.parametrize(
    ("two_phases", "hint"),
    [
        (phases_from(lambda s: s, lambda s: s), "same order"),
        (phases_from(lambda s: s, lambda s: s + 1), "next seed"),
        (phases_from(lambda s: 1, lambda s: [s, 1]), "bring other visitors."),
        (phases_from(lambda s: s, lambda s: 1), "in phase two"),
        (phases_from(lambda s: s, lambda s: [s, 1], n_users=500), "1,000 users"),
        (phases_from(lambda s: s, lambda s: [s, 1], n_users=1001), "0 to 999"),
        (shuffled, "another order"),
        (unseeded, "each time"),
        (lambda seed, n: np.random.default_rng(seed).random((2, n)), "1,000 users"),
        (
            lambda seed, n: np.random.default_rng(seed).integers(1000, size=n),
            "Two rows",
        ),
    ],
)
def test_visitors_of_two_phases(two_phases, hint, capsys):
    said = verdict(capsys, "ex-one-seed", two_phases)
    assert said.startswith("not yet:")
    assert hint in said


def test_one_generator_for_both_phases_is_right(capsys):
    def in_turn(seed, n):
        return np.random.default_rng(seed).integers(1000, size=(2, n))

    assert verdict(capsys, "ex-one-seed", in_turn) == "right."


def hills(appeal=zoolib.simulator.appeal, order=lambda cells: cells):
    """A class of features, written otherwise than the book's: an outer product and an appeal."""

    class Hills:
        def __init__(self, worlds):
            self.worlds = worlds

        def transform(self, users):
            return np.stack(
                [self.of(*one) for one in zip(self.worlds, users, strict=True)]
            )

        def of(self, world, user):
            cell = np.zeros((world.n_products, 4, 5))
            category = world.category_of_product
            cell[np.arange(len(cell)), world.persona_of_user[user], category] = 1
            wish = world.users.loc[user, ["budget", "curiosity"]]
            qualities = world.products[["price", "freshness"]].to_numpy()
            pull = appeal(wish.to_numpy(float), qualities)
            return order(cell).reshape(len(cell), 20) * pull[:, None]

    return Hills


TABLE = ZooplusSimulator().click_table


def test_features_in_any_order_are_right_with_weights_in_that_order(capsys):
    columns_first = hills(order=lambda cell: cell.swapaxes(1, 2))
    assert verdict(capsys, "ex-hill", columns_first, TABLE.T.ravel()) == "right."
    assert verdict(capsys, "ex-hill", hills(), TABLE.ravel()) == "right."


@pytest.mark.parametrize(
    ("features", "weights", "hint"),
    [
        (hills(), TABLE.T.ravel(), "order"),
        (hills(), np.ones(20), "order"),
        (hills(), TABLE, "20 weights"),
        (hills(appeal=lambda wish, quality: quality[:, 0]), TABLE.ravel(), "appeal"),
        (
            hills(
                appeal=lambda wish, quality: zoolib.simulator.appeal(wish, quality)[
                    ::-1
                ]
            ),
            TABLE.ravel(),
            "this product to this user",
        ),
        (told, TABLE.ravel(), "(W, 50, 20)"),
    ],
)
def test_features_of_the_hill(features, weights, hint, capsys):
    said = verdict(capsys, "ex-hill", features, weights)
    assert said.startswith("not yet:")
    assert hint in said


def newcomers(change=lambda part: part, length=500, again=True, place=False):
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


@pytest.mark.parametrize(
    ("answers", "hint"),
    [
        ((newcomers(lambda part: 100 * part), 1 / 50), "percentages"),
        ((newcomers(lambda part: 3 * part), 1 / 50), "added"),
        ((newcomers(again=False), 1 / 50), "another newcomer"),
        ((newcomers(length=2_500), 1 / 50), "500 visits"),
        ((newcomers(place=True), 1 / 50), "same seed"),
        ((lambda history, name: newcomers()(history, "shy"), 1 / 50), "500 visits"),
        ((newcomers(), 1 / 5), "equally"),
        ((newcomers(), 2), "equally"),
    ],
)
def test_parts_of_newcomers(answers, hint, capsys):
    said = verdict(capsys, "ex-rope", *answers)
    assert said.startswith("not yet:")
    assert hint in said


def test_an_agent_in_the_arena_has_the_parts_that_its_newcomers_get(capsys):
    assert verdict(capsys, "ex-rope", newcomers(), 1 / 50) == "right."

    class ShowsNewcomers:
        n_arms, n_worlds, arms, age = 50, 2, np.zeros((2, 1), int), 0

        def restock(self, arms):
            self.arms, self.age = arms, 0

        def select(self, context):
            self.age += 1
            return np.where(
                self.age <= 125, self.arms[:, 0], (self.arms[:, 0] + 1) % 50
            )

        def update(self, context, arm, reward):
            pass

    churn = Churn(every=2_500, share=1 / 50)
    agents = {"new": ShowsNewcomers()}
    history = run_experiment(agents, (3, 8), 8_000, churn=churn, progress=False)
    assert newcomers()(history, "new") == pytest.approx([0.25, 0.25])
