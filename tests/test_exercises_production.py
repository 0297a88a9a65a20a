"""The judges of Chapter 6: the book's solutions are right, and typical mistakes are named."""

import tempfile
from contextlib import suppress
from itertools import count
from types import SimpleNamespace

import numpy as np
import pytest

from tests.exercises import CHAPTERS, RAISED, assert_says, raises, run, verdicts
from zoolib import FeatureEngineer, ZooplusSimulator, true_ctr_matrix
from zoolib.service import BanditService, DuplicateRewardError

CHAPTER = CHAPTERS["production"]
FEATURES = FeatureEngineer(ZooplusSimulator(seed=42))
NAMES = CHAPTER.names("FAULT", FLOOR=0.1, features=FEATURES)


def defined(label, name):
    """What a solution defines."""
    return CHAPTER.define(label, NAMES)[name]


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
    assert_says(label, *RAISING[label], RAISED)


def test_every_exercise_of_the_chapter_is_tried_here():
    assert set(CHAPTER.stubs) == set(RAISING) | NUMBERS


@pytest.mark.parametrize(
    "label", ["ex-no-draw", "ex-retry", "ex-every-product", "ex-again"]
)
def test_the_books_solution_is_right(label):
    with tempfile.TemporaryDirectory() as folder:
        names = NAMES | {"folder": SimpleNamespace(name=folder)}
        assert run(CHAPTER.solutions[label], names)[1] == f"{label}: right."


VERDICTS = {}
VERDICTS["ex-plus-one"] = [
    (defined("ex-plus-one", "growth"), "right."),
    (lambda w: (1, 1, 1, 1), "one on average only"),
    (lambda w: (w.sum(), 1, 1, 1), "IPS: put r + 1"),
    (lambda w: (w.mean(), w.mean(), 1, 1), "SNIPS"),
    (lambda w: (w.mean(), 1, 1, w.mean()), "residuals stay the same"),
    (lambda w: (w.mean(), 1, 2, 1), "sums to one"),
    (lambda w: w.mean(), "one number for each"),
]
VERDICTS["ex-no-draw"] = [
    (lambda q, n, e: 1 - (1 - q) ** n, "With a floor"),
    (lambda q, n, e: 1 if e else (1 - q) ** n, "wins no draw"),
    (lambda q, n, e: 1 if e else 1 - q**n, "weighs one, on average"),
    (lambda q, n, e: 1 if e else q**n, "wins all draws"),
    (lambda q, n, e: 1 if e else n * q, "add up"),
    (lambda q, n, e: 1, "weighs one, on average"),
]


def visits(e, s):
    return 200 * (s / (1 - e + e / 5) + (1 - s) / (e / 5))


def no_floor_for_the_best(e, s):
    return 200 * (s / (1 - e) + (1 - s) * 5 / e)


VERDICTS["ex-floor-price"] = [
    (defined("ex-floor-price", "price"), "right."),
    (lambda e, s, loss: visits(e, s), "(2,) is wanted"),
    (lambda e, s, loss: (visits(e, s), e * loss), "one visit costs"),
    (lambda e, s, loss: (visits(e, s), visits(e, s) * loss), "only a part ε"),
    (lambda e, s, loss: (visits(e, s), visits(e, s) * e), "what does each lose"),
    (lambda e, s, loss: (visits(e, 1 - s), 0), "whose favourite"),
    (lambda e, s, loss: (visits(e, s) / 200, 0), "200 is n / E ρ²"),
    (lambda e, s, loss: (no_floor_for_the_best(e, s), 0), "drawn by the floor, too"),
    (
        lambda e, s, loss: (200 * (s / (1 - 0.8 * e) + (1 - s) / e), 0),
        "five products share",
    ),
]


@pytest.fixture
def serve(tmp_path):
    """Serve visits in a new service, with a client that sends each reward a given number of times."""

    def serve(n_visits, n_sendings):
        service = BanditService(
            tmp_path / "shop.db", FEATURES.transform, 50, 9, key=b"a key of sixteen"
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
    assert_says("ex-retry", service, sent, "right.")
    for count_of in (100, sent - 100, sent + 1):
        assert_says("ex-retry", service, count_of, "Every sending counts")


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
    assert_says("ex-retry", *serve(n_visits, n_sendings), words)


def served_weights(n_draws, seed, floor=0.2, n_arms=50):
    """Weights of the uniform policy if ten equal arms of fifty win a draw."""
    rng = np.random.default_rng(seed)
    wins = rng.multinomial(n_draws, [0.6, 0.2, 0.1, 0.1, 0.0], size=300)
    served = (1 - floor) * np.repeat(wins / n_draws / 10, 10, axis=1) + floor / n_arms
    chosen = (rng.random((300, 1)) < served.cumsum(axis=1)).argmax(axis=1)
    return 1 / (n_arms * served[np.arange(300), chosen])


def moments(served, target):
    return 1, np.sum(target**2 / served) - 1


ONE, MANY = served_weights(1, 0), served_weights(100, 1)
OTHER_FLOOR, OTHER_ONE = served_weights(1, 0, floor=0.1), served_weights(1, 3)[::-1]
VERDICTS["ex-one-draw"] = [
    (defined("ex-one-draw", "weight_moments"), [ONE, MANY], "right."),
    (moments, [ONE, MANY], "right."),
    (lambda p, t: (np.mean(t / p), np.var(t / p)), [ONE, MANY], "by π"),
    (lambda p, t: (1, np.sum(t**2 / p)), [ONE, MANY], "mean, variance"),
    (moments, [MANY, ONE], "M = 1 in the first row"),
    (moments, [OTHER_FLOOR, MANY], "Is the floor 0.2"),
    (moments, [50 * ONE, MANY], "1/50 over the propensity"),
    (moments, [ONE, 50 * MANY], "one on average"),
    (moments, [ONE, OTHER_ONE], "less scattered"),
    (moments, [ONE, MANY[:100]], "numbers are wanted"),
    (moments, ONE, "(2, 300) is wanted"),
]

alarms = defined("ex-peeking", "alarms")
VERDICTS["ex-peeking"] = [
    (alarms, 9, 38, "right."),
    (alarms, 80, 38, "Careful"),
    (alarms, 9, 9, "Curious"),
    (alarms, 9, 80, "not independent"),
    (lambda seed, looks: alarms(seed + len(looks), looks), 9, 38, "give the same 1,000"),
    (lambda seed, looks: alarms(seed, looks[-1:]), 9, 38, "one of the looks"),
    (lambda seed, looks: False, 9, 38, "Some rollouts must ring"),
    (lambda seed, looks: True, 9, 38, "most not"),
    (lambda seed, looks: len(looks) + 1, 9, 38, "return a bool"),
]  # fmt: skip
VERDICTS["ex-every-product"] = [
    (3_612, 359, "50 products this window is too short"),
    (3_614, 359, "50 products a shorter window"),
    (3_613, 358, "5 categories this window is too short"),
    (3_613, 500, "5 categories a shorter window"),
    (3_613.5, 359, "too short"),
    (100_000, 359, "50 products: one whole number"),
    ([3_613], 359, "one whole number"),
]
VERDICTS["ex-again"] = [
    (1 - 0.95**60, 0.9, 0.25, "not judged"),
    (0.95**50, 0.9, 0.25, "hear nothing"),
    (0.05, 0.9, 0.25, "How many looks"),
    (0.92, 180, 0.25, "of 200"),
    (0.92, 0.24, 0.25, "at least once"),
    (0.92, 0.9, 0.3, "visits of the reference"),
    (0.92, 0.9, 0.005, "level of one window"),
    (0.92, 0.9, 2.5, "φ N / 10,000"),
]

kept = defined("ex-private", "lead_left")


def value(n, s, seed):
    """The greedy policy's value itself, chance included, over the oracle's."""
    table = true_ctr_matrix(ZooplusSimulator(seed=seed))
    chance = table.mean() / table.max(axis=1).mean()
    return chance + (1 - chance) * kept(n, s, seed)


VERDICTS["ex-private"] = [
    (kept, 10, "right."),
    (value, 10, "chance taken off"),
    (lambda n, s, seed: kept(n, 0, seed), 10, "Is it in A and in b"),
    (lambda n, s, seed: 100 * kept(n, s, seed), 10, "Shares are wanted"),
    (lambda n, s, seed: 2 * kept(n, s, seed), 10, "Without noise"),
    (lambda n, s, seed: kept(n, s, 0), 10, "Another seed"),
    (lambda n, s, seed: kept(n, 1e6 * (s > 0), seed), 10, "Your function"),
    (kept, 1, "too much is left, or too little"),
    (kept, 100, "too much is left, or too little"),
    (kept, [10], "standard deviation"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
