"""The judges of Chapter 3: the book's solutions pass, its stubs and typical mistakes do not."""

import ast
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

import zoolib
from tests.exercises import (
    CHAPTERS,
    RAISED,
    assert_says,
    assigned,
    is_definition,
    raises,
    run,
    statements,
    verdicts,
)
from zoolib import FeatureEngineer, RidgePosterior, ZooplusSimulator

CHAPTER, EVIDENCE = CHAPTERS["neural-bandits"], CHAPTERS["evidence/neural-bandits"]
# Their solutions play for minutes or read trained models: only what they define is run, and the check.
PLAYED = {"ex-sharing", "ex-hill", "ex-residuals"}
VERDICTS = {}


def handed_over(cells):
    """What a solution that plays for minutes defines, and its check with what that is handed."""

    checks = statements(cells, lambda n: ast.unparse(n).startswith("check("))
    used = {n.id for n in ast.walk(ast.parse(checks)) if isinstance(n, ast.Name)}
    kept = statements(cells, lambda n: is_definition(n) or assigned(n) & used)
    return [kept, checks]


@pytest.fixture(scope="module")
def names():
    read = ("world", "as_row", "pair_rows")
    return {of: of.names(*read) for of in (CHAPTER, EVIDENCE)}


LABELS = [(of, label) for of in (CHAPTER, EVIDENCE) for label in of.stubs]


@pytest.mark.parametrize(("page", "label"), LABELS, ids=[label for _, label in LABELS])
def test_the_books_solution_is_right(page, label, names):
    cells = page.solutions[label]
    cells = handed_over(cells) if label in PLAYED else cells
    assert run(cells, names[page])[1] == f"{label}: right."


def width(x, n, w, v, slopes=(True, True), ridge=1.0):
    """The width by a formula, of some of the slopes in w and v."""
    square = np.array([v, w])[list(slopes)] @ np.array([v, w])[list(slopes)]
    return max(x, 0) * np.sqrt(square / (ridge + n * square))


def solved_width(x, n, w, v):
    """The width with a matrix, the gradients written down."""
    A = np.eye(2) + n * w**2 * np.outer([v / w, 1], [v / w, 1])
    g = np.array([v * x, w * x]) * (x > 0)
    return np.sqrt(g @ np.linalg.inv(A) @ g)


VERDICTS["ex-width"] = [
    (width, "right."),
    (solved_width, "right."),
    (lambda *at: width(*at) ** 2, "take the root"),
    (lambda x, n, w, v: abs(v * w) / np.sqrt(1 + n * (v * w) ** 2), "slope in x"),
    (partial(width, slopes=(False, True)), "w is a parameter, too"),
    (partial(width, slopes=(True, False)), "v is a parameter, too"),
    (partial(width, ridge=0.0), "Where is the ridge"),
    (lambda x, n, w, v: width(x, n + 1, w, v), "one by one"),
    (lambda x, n, w, v: width(abs(x), n, w, v), "as if it were on"),
    (lambda x, n, w, v: width(x, n, w, v) or 1.0, "how does the output change"),
    (lambda x, n, w, v: [width(x, n, w, v)] * 2, "shape"),
]


def rebuild(z, rewards, ridge, gamma, newer=lambda n: np.arange(n)[::-1]):
    """A and b as sums, where each row has a number of newer ones."""
    weights = gamma ** newer(len(z))
    return ridge * np.eye(z.shape[1]) + (weights * z.T) @ z, (weights * rewards) @ z


def learnt(z, rewards, ridge, gamma):
    """A and b as the library's posterior learns them."""
    posterior = RidgePosterior(z.shape[1], ridge)
    for row, reward in zip(z, rewards, strict=True):
        posterior.update(row, reward, discount=gamma)
    faded = 1 - gamma ** len(z)
    return posterior.A + faded * ridge * np.eye(z.shape[1]), posterior.b


def faded(z, rewards, ridge, gamma):
    A, b = rebuild(z, rewards, ridge, gamma)
    return A - (1 - gamma ** len(z)) * ridge * np.eye(len(A)), b


def least(gamma):
    return 1 / np.sqrt(1 + 1 / (1 - gamma))


NEWER = {
    "that is the last one": np.arange,
    "is 1, not γ": lambda n: np.arange(n, 0, -1),
    "Where is the discount": np.zeros,
}
WRONG = [(partial(rebuild, newer=newer), words) for words, newer in NEWER.items()]


def only_b(wrong):
    """A is right, and b is not."""
    return lambda *given: (rebuild(*given)[0], wrong(*given)[1])


VERDICTS["ex-rebuild"] = [
    (rebuild, least, "right."),
    (learnt, least, "right."),
    *((wrong, least, words) for wrong, words in WRONG),
    *((only_b(wrong), least, words) for wrong, words in WRONG),
    (faded, least, "ridge does not fade"),
    (lambda z, r, *others: rebuild(z, r, 1.0, others[1]), least, "A begins with λ"),
    (only_b(lambda z, r, *others: rebuild(z, 1 - r, *others)), least, "in b as in A"),
    (lambda *given: rebuild(*given)[::-1], least, "shape (3, 3) is wanted"),
    (lambda *given: rebuild(*given)[0], least, "two things, A and b"),
    (lambda *given: rebuild(*given) * 2, least, "two things, A and b"),
    (rebuild, lambda gamma: least(gamma) ** 2, "take the root"),
    (rebuild, lambda gamma: np.sqrt(1 - gamma), "Where is the ridge"),
    (rebuild, lambda gamma: 0.0, "sum of the weights"),
    (rebuild, raises, RAISED),
]


def features(of):
    """A class like FeatureEngineer, from a function of a world and a user that returns all rows."""

    class Features:
        def __init__(self, worlds):
            self.worlds = worlds

        def transform(self, users):
            return np.stack(
                [of(*pair) for pair in zip(self.worlds, users, strict=True)]
            )

    return Features


def table(*shares, scale=1.0):
    """Rows with a one for the visitor's persona, the product's category, their pair, or persona and product."""

    def of(world, user):
        persona = np.full(50, world.persona_of_user[user])
        category = world.category_of_product
        cells = {
            "persona": persona,
            "category": category,
            "pair": 5 * persona + category,
            "product": 50 * persona + np.arange(50),
        }
        return scale * np.hstack([np.eye(200)[cells[name]] for name in shares])

    return features(of)


def flat(worlds):
    return SimpleNamespace(transform=lambda users: np.ones((len(worlds), 50)))


VERDICTS["ex-sharing"] = [
    (table("persona"), table("pair"), "right."),
    (table("pair", scale=2.0), table("pair", scale=2.0), "right."),
    (table("pair"), table("persona"), "this cell only"),
    (table("persona"), table("pair", scale=2.0), "score alike"),
    (table("persona", "category"), table("pair"), "this persona only"),
    (table("persona"), table("persona", "category", "pair"), "this cell only"),
    (table("persona"), table("product"), "this cell only"),
    (table("persona", scale=0.0), table("pair"), "this persona only"),
    (table("persona"), FeatureEngineer, "this cell only"),
    (flat, table("pair"), "(W, 50, d)"),
]


def hills(appeal=zoolib.world.simulator.appeal, order=lambda cells: cells):
    """Features written otherwise than the book's: an outer product and an appeal."""

    def of(world, user):
        cell = np.zeros((world.n_products, 4, 5))
        category = world.category_of_product
        cell[np.arange(len(cell)), world.persona_of_user[user], category] = 1
        wish = world.users.loc[user, ["budget", "curiosity"]]
        qualities = world.products[["price", "freshness"]].to_numpy()
        pull = appeal(wish.to_numpy(float), qualities)
        return order(cell).reshape(len(cell), 20) * pull[:, None]

    return features(of)


def turned(wish, quality):
    return zoolib.world.simulator.appeal(wish, quality)[::-1]


def told(worlds):
    return FeatureEngineer(worlds, interactions=True)


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


def left_over(
    residuals, by, edges, mean=np.mean, error=lambda part: part.std() / len(part) ** 0.5
):
    """Means and standard errors, by the bin that each lies in."""
    at = np.searchsorted(edges, by, side="right") - 1
    parts = [residuals[at == i] for i in range(len(edges) - 1)]
    return [mean(part) for part in parts], [error(part) for part in parts]


VERDICTS["ex-residuals"] = [
    (left_over, "right."),
    (partial(left_over, mean=np.sum), "These are sums"),
    (partial(left_over, mean=lambda part: np.abs(part).mean()), "Keep the signs"),
    (lambda r, *others: left_over(-r, *others), "sign is the other way round"),
    (partial(left_over, mean=np.median), "between its two edges"),
    (partial(left_over, error=np.std), "not how their mean does"),
    (
        lambda r, *others: left_over(
            r, *others, error=lambda p: p.std() / len(r) ** 0.5
        ),
        "in this bin",
    ),
    (partial(left_over, error=lambda part: part.var() / len(part)), "take the root"),
    (lambda *given: left_over(*given)[0], "two things"),
]


def projected(asked, seen, mix, ridge):
    asked, seen = asked @ mix.T, seen @ mix.T
    A = ridge * np.eye(len(mix)) + seen.T @ seen
    return np.sqrt(np.vecdot(asked @ np.linalg.inv(A), asked))


def of_all(asked, seen, mix, ridge):
    return projected(asked, seen, np.eye(asked.shape[1]), ridge)


VERDICTS["ex-projection"] = [
    (projected, "right."),
    (of_all, "all p parameters"),
    (lambda *given: projected(*given[:3], 1e-9), "the ridge in A"),
    (lambda *given: projected(*given) ** 2, "is the root"),
    (lambda *given: projected(*given) + 1e-5, "Turn every gradient"),
]


class Plain:
    """A neural-linear agent without a network of PyTorch: its body is a matrix that "training" replaces."""

    d_emb, every, rebuilds, ridge = 6, 50, True, 1.0

    def __init__(self, n_features, alpha):
        self.alpha, self.rng, self.rows, self.r = (
            alpha,
            np.random.default_rng(0),
            [],
            [],
        )
        self.body = self.rng.normal(size=(n_features, self.d_emb))
        self.A, self.b = self.ridge * np.eye(self.d_emb), np.zeros(self.d_emb)

    def embed(self, rows):
        return rows @ self.body

    def scores(self, z):
        width = np.sqrt(np.vecdot(z @ np.linalg.inv(self.A), z))
        return z @ np.linalg.solve(self.A, self.b) + self.alpha * width

    def select(self, context):
        return int(self.scores(self.embed(context.features)).argmax())

    def update(self, context, arm, reward):
        self.rows.append(context.features[arm])
        self.r.append(reward)
        z = self.embed(self.rows[-1])
        self.A, self.b = self.A + np.outer(z, z), self.b + reward * z
        if self.every and len(self.rows) % self.every == 0:
            self.body = self.rng.normal(size=self.body.shape)
            if self.rebuilds:
                z = self.embed(np.array(self.rows))
                self.A = self.ridge * np.eye(self.d_emb) + z.T @ z
                self.b = z.T @ np.array(self.r)


class Greedy(Plain):
    def scores(self, z):
        return z @ np.linalg.solve(self.A, self.b)


class Random(Plain):
    def select(self, context):
        return int(self.rng.integers(len(context.features)))


class Squared(Plain):
    def scores(self, z):
        return z @ np.linalg.solve(self.A, self.b) + self.alpha * np.vecdot(
            z @ np.linalg.inv(self.A), z
        )


class Unnamed:
    def __init__(self, n_features, alpha):
        pass


def variant(**settings):
    """A class of its own, with a method: one without any is a stub."""
    return type("Variant", (Plain,), {"select": Plain.select} | settings)


VERDICTS["ex-neural-linear"] = [
    (Plain, "right."),
    (variant(d_emb=3, every=70), "right."),
    (variant(rebuilds=False), "present body makes"),
    (variant(every=None), "train it"),
    (variant(ridge=2.0), "present body makes"),
    (Greedy, "highest score"),
    (Random, "highest score"),
    (Squared, "highest score"),
    (Unnamed, "a method embed"),
    (variant(embed=lambda self, rows: (rows @ self.body).T), "returns an array"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
