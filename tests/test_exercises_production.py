"""The judges of Chapter 5: the book's solutions are right, and typical mistakes are named."""

import ast
import re
import tempfile
from contextlib import suppress
from functools import partial
from itertools import count

import numpy as np
import pytest

from tests.notebooks import ROOT
from tests.test_exercises import CELL, SOLUTIONS, hint, raises, run, said
from zoolib import FeatureEngineer, ZooplusSimulator, true_ctr_matrix
from zoolib.service import BanditService, DuplicateRewardError

PAGE = (ROOT / "chapters/production.md").read_text()
LABELS = re.findall(r":label: (ex-[\w-]+)", PAGE)


def definitions(cells, *names):
    """The functions of cells, all or those of these names, as code."""
    for cell in cells:
        for node in ast.parse(cell).body:
            is_function = isinstance(node, ast.FunctionDef)
            if is_function and (not names or node.name in names):
                yield ast.unparse(node)


@pytest.fixture(scope="module")
def chapter():
    """What solutions use of the chapter, with claims that claim nothing."""
    cells = [c for c in CELL.findall(PAGE) if not c.startswith("---")]
    names, _ = run([cells[0], *definitions(cells, "mended")], {})
    names |= {"claim": lambda *_, **__: None, "FLOOR": 0.1}
    names["features"] = FeatureEngineer(ZooplusSimulator(seed=42))
    with tempfile.TemporaryDirectory() as folder:
        place = type("Folder", (), {"name": folder})
        yield names | {"folder": place}


def defined(label, chapter):
    """What a solution defines."""
    return run(definitions(SOLUTIONS[label]), chapter)[0]


class Broken:
    store = property(raises)


RAISING = {
    "ex-plus-one": (raises,),
    "ex-no-draw": (raises,),
    "ex-floor-price": (raises,),
    "ex-retry": (Broken(), 140),
    "ex-one-draw": (raises, np.ones((2, 300))),
    "ex-peeking": (raises, 10, 40),
    "ex-private": (raises, 10),
}
NUMBERS = {"ex-every-product", "ex-again"}


@pytest.mark.parametrize("label", RAISING)
def test_what_raises_is_reported(label):
    assert "your code raised RuntimeError: my mistake" in hint(label, *RAISING[label])


def test_every_exercise_of_the_chapter_is_tried_here():
    assert set(LABELS) == set(RAISING) | NUMBERS
    assert len(LABELS) == 9


WHOLE = ["ex-no-draw", "ex-retry", "ex-every-product", "ex-again"]


@pytest.mark.parametrize("label", WHOLE)
def test_a_solution_of_the_book_is_right(label, chapter):
    assert run(SOLUTIONS[label], chapter)[1] == f"{label}: right."


# ---- One more for everybody


def test_the_books_growth_is_right(chapter):
    growth = defined("ex-plus-one", chapter)["growth"]
    assert said("ex-plus-one", growth) == "ex-plus-one: right."


@pytest.mark.parametrize(
    ("growth", "words"),
    [
        (lambda w: (1, 1, 1, 1), "one on average only"),
        (lambda w: (w.sum(), 1, 1, 1), "IPS: put r + 1"),
        (lambda w: (w.mean(), w.mean(), 1, 1), "SNIPS"),
        (lambda w: (w.mean(), 1, 1, w.mean()), "residuals stay the same"),
        (lambda w: (w.mean(), 1, 2, 1), "sums to one"),
        (lambda w: w.mean(), "one number for each"),
    ],
)
def test_slips_in_the_growth_are_named(growth, words):
    assert words in hint("ex-plus-one", growth)


# ---- An arm that wins no draw


@pytest.mark.parametrize(
    ("expected_weight", "words"),
    [
        (lambda q, n, e: 1 - (1 - q) ** n, "With a floor"),
        (lambda q, n, e: 1 if e else (1 - q) ** n, "wins no draw"),
        (lambda q, n, e: 1 if e else 1 - q**n, "weighs one, on average"),
        (lambda q, n, e: 1 if e else q**n, "wins all draws"),
        (lambda q, n, e: 1 if e else n * q, "add up"),
        (lambda q, n, e: 1, "weighs one, on average"),
    ],
)
def test_slips_with_draws_are_named(expected_weight, words):
    assert words in hint("ex-no-draw", expected_weight)


# ---- What a floor costs and yields


def visits(e, s):
    return 200 * (s / (1 - e + e / 5) + (1 - s) / (e / 5))


def test_the_books_price_is_right(chapter):
    price = defined("ex-floor-price", chapter)["price"]
    assert said("ex-floor-price", price) == "ex-floor-price: right."


@pytest.mark.parametrize(
    ("n", "clicks", "words"),
    [
        (
            lambda e, s: 200 * (s / (1 - 0.8 * e) + (1 - s) / e),
            None,
            "five products share",
        ),
        (
            lambda e, s: 200 * (s / (1 - e) + (1 - s) * 5 / e),
            None,
            "drawn by the floor, too",
        ),
        (lambda e, s: visits(e, 1 - s), None, "whose favourite"),
        (lambda e, s: visits(e, s) / 200, None, "200 is n / E ρ²"),
        (visits, lambda n, e, loss: e * loss, "one visit costs"),
        (visits, lambda n, e, loss: n * loss, "only a part ε"),
        (visits, lambda n, e, loss: n * e, "what does each lose"),
    ],
)
def test_slips_in_the_price_are_named(n, clicks, words):
    def price(e, s, loss):
        return n(e, s), (clicks or np.multiply.reduce)(n(e, s), e, loss)

    def only_visits(e, s, loss):
        return n(e, s), 0

    assert words in hint("ex-floor-price", price if clicks else only_visits)


def test_a_price_has_two_parts():
    assert "Two numbers" in hint("ex-floor-price", lambda e, s, loss: visits(e, s))


# ---- Send again


@pytest.fixture
def serve(chapter, tmp_path):
    """Serve visits in a new service, with a client that sends each reward so many times."""

    def serve(n_visits, n_sendings):
        service = BanditService(
            tmp_path / "shop.db",
            chapter["features"].transform,
            50,
            9,
            key=b"a key of sixteen",
        )
        sent = 0
        for visit, n in zip(range(n_visits), n_sendings, strict=False):
            event = service.select(visit).event_id
            for _ in range(n):
                sent += 1
                with suppress(DuplicateRewardError):
                    service.reward(event, 1)
        return service, sent

    return serve


def sendings():
    """One to three sendings for each reward, 1.4 on average."""
    return (3 if visit % 5 == 0 else 1 for visit in count())


def test_another_client_is_right_unless_its_count_is_wrong(serve):
    service, sent = serve(100, sendings())
    assert said("ex-retry", service, sent) == "ex-retry: right."
    for count_of in (100, sent - 100, sent + 1):
        assert "Every sending counts" in hint("ex-retry", service, count_of)


@pytest.mark.parametrize(
    ("n_visits", "n_sendings", "words"),
    [
        (9, sendings(), "log has 9 events"),
        (100, (visit % 10 for visit in count()), "Only 90 of 100"),
        (100, (1 for _ in count()), "answers in ten get lost"),
        (100, (2 for _ in count()), "answers in ten get lost"),
    ],
)
def test_slips_of_the_client_are_named(serve, n_visits, n_sendings, words):
    assert words in hint("ex-retry", *serve(n_visits, n_sendings))


# ---- A single draw


def served_weights(n_draws, seed, floor=0.2, n_arms=50):
    """Weights of the uniform policy if ten equal arms of fifty win a draw."""
    rng = np.random.default_rng(seed)
    wins = rng.multinomial(n_draws, [0.6, 0.2, 0.1, 0.1, 0.0], size=300)
    served = (1 - floor) * np.repeat(wins / n_draws / 10, 10, axis=1) + floor / n_arms
    chosen = (rng.random((300, 1)) < served.cumsum(axis=1)).argmax(axis=1)
    return 1 / (n_arms * served[np.arange(300), chosen])


def weight_moments(served, target):
    return 1, np.sum(target**2 / served) - 1


SINGLE, HUNDRED = served_weights(1, 0), served_weights(100, 1)


def test_the_books_moments_are_right(chapter):
    moments = defined("ex-one-draw", chapter)["weight_moments"]
    for function in (moments, weight_moments):
        verdict = said("ex-one-draw", function, [SINGLE, HUNDRED])
        assert verdict == "ex-one-draw: right."


@pytest.mark.parametrize(
    ("function", "weights", "words"),
    [
        (lambda p, t: (np.mean(t / p), np.var(t / p)), [SINGLE, HUNDRED], "by π"),
        (lambda p, t: (1, np.sum(t**2 / p)), [SINGLE, HUNDRED], "mean, variance"),
        (weight_moments, [HUNDRED, SINGLE], "M = 1 in the first row"),
        (weight_moments, [served_weights(1, 0, floor=0.1), HUNDRED], "Is the floor 0.2"),
        (weight_moments, [50 * SINGLE, HUNDRED], "1/50 over the propensity"),
        (weight_moments, [SINGLE, 50 * HUNDRED], "one on average"),
        (weight_moments, [SINGLE, served_weights(1, 3)[::-1] + 0.0], "less scattered"),
        (weight_moments, [SINGLE, HUNDRED[:100]], "numbers are wanted"),
        (weight_moments, SINGLE, "(2, 300) is wanted"),
    ],
)  # fmt: skip
def test_slips_with_draws_served_are_named(function, weights, words):
    assert words in hint("ex-one-draw", function, weights)


# ---- Looking too often


@pytest.fixture(scope="module")
def alarms(chapter):
    """The book's operator."""
    return defined("ex-peeking", chapter)["alarms"]


def test_the_books_operators_are_right(alarms):
    assert said("ex-peeking", alarms, 9, 38) == "ex-peeking: right."


@pytest.mark.parametrize(
    ("change", "careful", "curious", "words"),
    [
        (None, 80, 38, "Careful"),
        (None, 9, 9, "Curious"),
        (None, 9, 80, "not independent"),
        (
            lambda rings, seed, looks: rings(seed + len(looks), looks),
            9,
            38,
            "give the same 1,000",
        ),
        (lambda rings, seed, looks: rings(seed, looks[-1:]), 9, 38, "one of the looks"),
        (lambda rings, seed, looks: False, 9, 38, "Some rollouts must ring"),
        (lambda rings, seed, looks: True, 9, 38, "most not"),
        (lambda rings, seed, looks: len(looks) + 1, 9, 38, "return a bool"),
    ],
)
def test_slips_of_the_operators_are_named(alarms, change, careful, curious, words):
    rings = partial(change, alarms) if change else alarms
    assert words in hint("ex-peeking", rings, careful, curious)


# ---- Every product


@pytest.mark.parametrize(
    ("products", "categories", "words"),
    [
        (3_612, 359, "50 products this window is too short"),
        (3_614, 359, "50 products a shorter window"),
        (3_613, 358, "5 categories this window is too short"),
        (3_613, 500, "5 categories a shorter window"),
        (3_613.5, 359, "too short"),
        (100_000, 359, "Products: one whole number"),
        ([3_613], 359, "one whole number"),
    ],
)
def test_windows_of_another_length_are_told(products, categories, words):
    assert words in hint("ex-every-product", products, categories)


# ---- Again and again


@pytest.mark.parametrize(
    ("independent", "simulated", "promised", "words"),
    [
        (1 - 0.95**60, 0.9, 0.25, "not judged"),
        (0.95**50, 0.9, 0.25, "hear nothing"),
        (0.05, 0.9, 0.25, "How many looks"),
        (0.92, 180, 0.25, "of 200"),
        (0.92, 0.24, 0.25, "at least once"),
        (0.92, 0.9, 0.3, "visits of the reference"),
        (0.92, 0.9, 0.005, "level of one window"),
        (0.92, 0.9, 2.5, "φ N / 10,000"),
    ],
)
def test_slips_with_many_looks_are_named(independent, simulated, promised, words):
    assert words in hint("ex-again", independent, simulated, promised)


# ---- Noise for privacy


@pytest.fixture(scope="module")
def kept(chapter):
    """The book's function."""
    return defined("ex-private", chapter)["lead_left"]


def test_the_books_noise_is_right(kept):
    assert said("ex-private", kept, 10) == "ex-private: right."


def value(kept, n, s, seed):
    """The greedy policy's value itself, chance included, over the oracle's."""
    table = true_ctr_matrix(ZooplusSimulator(seed=seed))
    chance = table.mean() / table.max(axis=1).mean()
    return chance + (1 - chance) * kept(n, s, seed)


@pytest.mark.parametrize(
    ("change", "halving", "words"),
    [
        (value, 10, "chance taken off"),
        (lambda kept, n, s, seed: kept(n, 0, seed), 10, "noise in A and in b"),
        (lambda kept, n, s, seed: 100 * kept(n, s, seed), 10, "Without noise"),
        (lambda kept, n, s, seed: kept(n, s, 0), 10, "Another seed"),
        (lambda kept, n, s, seed: kept(n, 1e6 * (s > 0), seed), 10, "Your function"),
        (lambda kept, *a: kept(*a), 1, "too much is left, or too little"),
        (lambda kept, *a: kept(*a), 100, "too much is left, or too little"),
        (lambda kept, *a: kept(*a), [10], "standard deviation"),
    ],
)
def test_slips_with_noise_are_named(kept, change, halving, words):
    assert words in hint("ex-private", partial(change, kept), halving)
