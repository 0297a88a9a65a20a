"""The judges of Chapter 3: the book's solutions pass, its stubs and typical mistakes do not."""

import ast

import numpy as np
import pytest
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
    FeatureEngineer,
    NeuralLinearAgent,
    ZooplusSimulator,
    run_experiment,
    share_of_oracle,
)

CHAPTER = CHAPTERS["neural-bandits"]
# Their solutions play for minutes: only what they define is run, and the check itself.
PLAYED = {
    "ex-untrained",
    "ex-hill",
}
VERDICTS = {}


def handed_over(cells):
    """What a solution that plays for minutes defines, and its check with what that is handed."""

    checks = statements(cells, lambda n: ast.unparse(n).startswith("check("))
    used = {n.id for n in ast.walk(ast.parse(checks)) if isinstance(n, ast.Name)}
    kept = statements(cells, lambda n: is_definition(n) or assigned(n) & used)
    return [kept, checks]


@pytest.fixture(scope="module")
def names():
    return CHAPTER.names("SEEDS", "settings", "world")


@pytest.mark.parametrize("label", CHAPTER.stubs)
def test_the_books_solution_is_right(label, names):
    cells = CHAPTER.solutions[label]
    cells = handed_over(cells) if label in PLAYED else cells
    assert run(cells, names)[1] == f"{label}: right."


OTHERS = {
    "ex-sigmoid": (0.5, 10),
    "ex-diagonal": (),
    "ex-untrained": (),
    "ex-hill": (range(20),),
}


@pytest.mark.parametrize(("label", "others"), OTHERS.items())
def test_what_is_no_answer_is_said(label, others):
    assert_says(label, raises, *others, RAISED)
    assert_says(label, 1.0, *others, NO_FUNCTION)
    assert said(label, nothing, *others).startswith("not answered yet.")


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
NEVER = {"learning_rate": 1e-30}  # too little to change a weight


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
    (played(NEVER), "right."),
    (played({"train_every": 10**9}), "not rebuilt"),
    (played(NEVER, scale=1), "Percentages are wanted"),
    (played({}), "trained"),
    (played(NEVER | {"joined": False}), "not joined"),
    (played(NEVER | {"discount": 1.0}), "discount"),
    (played(NEVER | {"alpha": 0.3}), "recommended"),
    (lambda seeds, n: played(NEVER)(seeds, n).mean(), "shape"),
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


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
