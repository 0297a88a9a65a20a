import numpy as np
import pytest

from zoolib import SessionSimulator, best_on_last_category
from zoolib.sessions import shop as place
from zoolib.sessions.shop import (
    COMPANIONS,
    FADE,
    GLOSS,
    LAST,
    OFF_INTENT,
    PATIENCE,
    STAY,
)
from zoolib.world.simulator import CATEGORIES

CARRY_OVERS = (0.0, 0.5, 1.0)


def standardised_differences(n_worlds, n_sessions):
    """How far simulated sessions are from the computed values, in standard errors: (worlds, 3, 3)."""
    found = []
    for seed in range(n_worlds):
        for carry_over in CARRY_OVERS:
            shop = SessionSimulator(seed=seed, carry_over=carry_over)
            process = shop.process()
            best, myopic = process.optimal_q(), process.reward
            uniform = np.full((place.N_STATES, 10), 0.1)
            for policy in (best.argmax(axis=1), myopic.argmax(axis=1), uniform):
                _, _, reward = shop.play(policy, n_sessions, seed)
                earned = reward.sum(axis=1)
                gap = earned.mean() - process.value(policy)
                found.append(gap / (earned.std() / np.sqrt(n_sessions)))
    return np.abs(found)


def test_simulated_sessions_earn_what_is_computed():
    assert standardised_differences(4, 4_000).max() < 4


@pytest.mark.weekly
def test_a_hundred_thousand_sessions_earn_what_is_computed():
    assert standardised_differences(20, 100_000).max() < 4


def counted(shop, product, persona, intent, patience, n=40_000):
    """Let n visitors in one state be shown a product: clicks, next intents, patience lost."""
    place = np.zeros(n, int)
    luck = np.random.default_rng(0).random((n, 5))
    visitor = np.array([[persona], [intent], [patience]]) + place
    clicked, (_, after, left) = shop._follow(place, visitor, place + product, luck)
    return clicked, after, patience - left


@pytest.mark.parametrize("carry_over", CARRY_OVERS)
@pytest.mark.parametrize("glossy", [False, True])
@pytest.mark.parametrize("wanted", [False, True])
def test_a_step_goes_as_the_text_says(carry_over, glossy, wanted):
    shop = SessionSimulator(seed=3, carry_over=carry_over)
    food, toy = CATEGORIES.index("Dog Food"), CATEGORIES.index("Dog Toy")
    of_kind = (shop.category_of_product == food) & (shop.glossy == glossy)
    (product,) = np.flatnonzero(of_kind)
    intent = food if wanted else CATEGORIES.index("Cat Toy")
    clicked, after, lost = counted(shop, product, 0, intent, 3)
    q = 0.4 if wanted else 0.4 * OFF_INTENT
    q = q + GLOSS * (1 - q) if glossy else q
    own = STAY * np.eye(5)[intent] + (1 - STAY) * shop._drift[0, 0]
    found = 0 if glossy else q
    moved = found * np.eye(5)[toy] + (1 - found) * np.eye(5)[intent]
    intents = (1 - carry_over) * own + carry_over * moved
    falls = (1 - carry_over) * FADE + carry_over * (1 - found)
    assert clicked.mean() == pytest.approx(q, abs=0.01)
    assert np.bincount(after, minlength=5) / len(after) == pytest.approx(
        intents, abs=0.012
    )
    assert lost.mean() == pytest.approx(falls, abs=0.01)
    assert set(np.unique(lost)) <= {0, 1}


def test_without_carry_over_nothing_depends_on_what_is_shown():
    process = SessionSimulator(seed=1, carry_over=0).process()
    assert np.ptp(process.transition, axis=1).max() < 1e-12
    q = process.optimal_q()
    gain = np.take_along_axis(q, process.reward.argmax(axis=1)[:, None], 1)[:, 0]
    assert gain == pytest.approx(q.max(axis=1))


def test_with_carry_over_the_best_next_click_is_not_the_best_session():
    process = SessionSimulator(seed=1, carry_over=1).process()
    best = process.value(process.optimal_q().argmax(axis=1))
    assert process.value(process.reward.argmax(axis=1)) < 0.7 * best


@pytest.mark.parametrize("hidden", [False, True])
def test_worlds_in_step_equal_each_world_alone(hidden):
    seeds, rng = [5, 6, 7], np.random.default_rng(0)
    together = SessionSimulator(seed=seeds, hidden=hidden, carry_over=0.7)
    alone = [SessionSimulator(seed=s, hidden=hidden, carry_over=0.7) for s in seeds]
    first = together.reset()
    assert np.array_equal(first, [shop.reset() for shop in alone])
    for _ in range(200):
        product = rng.integers(10, size=3)
        before = together.over
        observation, reward, ended = together.step(product)
        for w, shop in enumerate(alone):
            # Next-step reset: no transition.
            one = (shop.reset(), 0, False) if before[w] else shop.step(product[w])
            assert np.array_equal(observation[w], one[0])
            assert (reward[w], ended[w]) == one[1:]
        assert np.array_equal(together.over, [shop.over for shop in alone])
    assert together.process().optimal_q() == pytest.approx(
        np.stack([shop.process().optimal_q() for shop in alone])
    )


def test_the_shop_remembers_the_last_five_items():
    shop = SessionSimulator(seed=11, hidden=True, carry_over=0.5)
    for _ in range(30):
        items, clicks = [], []
        observation = shop.reset()
        ended = False
        while not ended:
            assert observation[1 : 1 + LAST].tolist() == (items + [0] * LAST)[:LAST]
            assert observation[1 + LAST :].tolist() == (clicks + [0] * LAST)[:LAST]
            product = len(items) % 10
            observation, reward, ended = shop.step(product)
            items, clicks = [product + 1, *items], [reward, *clicks]


def test_a_session_lasts_until_patience_is_used_up():
    shop = SessionSimulator(seed=2)
    assert shop.reset()[2] == PATIENCE
    before, ended = PATIENCE, False
    while not ended:
        observation, _, ended = shop.step(0)
        assert before - observation[2] in (0, 1)
        before = observation[2]
    assert before == 0
    assert bool(shop.over)


def test_the_last_step_is_no_state():
    shop = SessionSimulator()
    assert shop.state([[0, 0, 1], [3, 4, PATIENCE], [2, 2, 0]]).tolist() == [0, 79, 80]


def test_the_catalogue_is_the_pet_shops():
    from zoolib import ZooplusSimulator

    shop, usual = SessionSimulator(50, seed=42), ZooplusSimulator(seed=42)
    assert np.array_equal(shop.category_of_product, usual.category_of_product)
    for category in range(5):
        assert shop.glossy[shop.category_of_product == category].sum() == 5
    assert {COMPANIONS[COMPANIONS[c]] for c in CATEGORIES} == set(CATEGORIES)
    shares = np.bincount(usual.persona_of_user, minlength=4) / usual.n_users
    start = shop.process().start.reshape(4, 5, PATIENCE)
    assert start[..., -1].sum(axis=1) == pytest.approx(shares)


def test_played_sessions_are_whole():
    shop = SessionSimulator(seed=0)
    state, product, reward = shop.play(np.zeros(80, int), 500, seed=1)
    ends = (state == 80).argmax(axis=1)
    lasts = np.where((state == 80).any(axis=1), ends, state.shape[1])
    behind = np.arange(state.shape[1]) >= lasts[:, None]
    assert np.array_equal(state == 80, behind)
    assert not reward[behind].any()
    assert not product.any()
    assert (state[:, 0] % PATIENCE == PATIENCE - 1).all()


def test_a_programme_is_worth_what_its_own_process_says():
    """A policy that sees persona and last category, as a policy of states that hold that category."""
    shop = SessionSimulator(seed=4, carry_over=0.5)
    kinds = np.lexsort((shop.glossy, shop.category_of_product))
    process = shop.process()
    moves = process.transition.reshape(4, 20, 10, 4, 20)[2, :, kinds, 2]
    reward = process.reward.reshape(4, 20, 10)[2][:, kinds].T
    start = process.start.reshape(4, 20)[2]
    of_intent = np.arange(5) * PATIENCE + 1  # with patience 2: it stays, or falls to 1
    level = moves[:, of_intent]
    parts = reward[:, of_intent], level[..., of_intent], level[..., of_intent - 1]
    for shown in np.random.default_rng(0).integers(10, size=(6, 5)):
        found = place._best_start(shown[None], *parts, start[PATIENCE - 1 :: PATIENCE])
        after = np.zeros((5, 20, 5, 20))
        for last, kind in enumerate(shown):
            after[last, :, kind // 2] = moves[kind]
        earned = reward[shown].ravel()
        value = np.linalg.solve(np.eye(100) - after.reshape(100, 100), earned)
        first = [reward[k] + moves[k] @ value.reshape(5, 20)[k // 2] for k in range(10)]
        assert found == pytest.approx((np.array(first) @ start).max())


def test_every_programme_of_each_persona_is_tried_and_the_best_ones_add_up(monkeypatch):
    tried, shares = [], []

    def best_start(shown, reward, stays, falls, start):
        tried.append(shown)
        shares.append(start.sum())
        return start.sum() * shown.max()

    monkeypatch.setattr(place, "_best_start", best_start)
    shop = SessionSimulator(seed=4)
    assert best_on_last_category(shop) == pytest.approx(9)  # personas' shares, times 9
    policies = np.concatenate(tried[: len(tried) // 4])
    assert len(np.unique(policies, axis=0)) == len(policies) == 10**5
    assert sum(set(shares)) == pytest.approx(1)


def test_climbing_ends_at_the_best_programme_if_each_product_counts_by_itself(
    monkeypatch,
):
    worth, tried = np.random.default_rng(0).random((5, 10)), []

    def best_start(shown, *world):
        tried.append(len(shown))
        return worth[np.arange(5), shown].sum(axis=1)

    monkeypatch.setattr(place, "_best_start", best_start)
    shop, best = SessionSimulator(seed=4), 4 * worth.max(axis=1).sum()
    assert best_on_last_category(shop, climb=True) == pytest.approx(best)
    assert sum(tried) < 20_000
    assert best_on_last_category(shop) == pytest.approx(best)


@pytest.mark.weekly
def test_the_best_programme_lies_between_the_best_click_and_the_best_session():
    process = SessionSimulator(seed=4, carry_over=1).process()
    best = best_on_last_category(SessionSimulator(seed=4, carry_over=1))
    assert process.value(process.reward.argmax(axis=1)) < best
    assert best < process.value(process.optimal_q().argmax(axis=1))


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: SessionSimulator(12), "n_products must be a multiple of 10: got 12"),
        (lambda: SessionSimulator(carry_over=1.2), r"carry_over must lie in \[0, 1\]"),
        (lambda: SessionSimulator().step(10), "product must lie in 0 … 9: got 10"),
        (
            lambda: SessionSimulator(seed=[1, 2]).step(0),
            r"product must have shape \(2,\)",
        ),
        (
            lambda: SessionSimulator(seed=[1]).play([0] * 80, 3),
            "one world plays sessions",
        ),
        (
            lambda: SessionSimulator().state([[0, 0, 99]]),
            "observation must lie in 0 … 79",
        ),
    ],
)
def test_bad_input_is_refused(make, words):
    with pytest.raises(ValueError, match=words):
        make()


def test_what_is_refused_changes_nothing():
    shop, undisturbed = SessionSimulator(), SessionSimulator()
    for wrong in (10, -1, 0.5):
        with pytest.raises((TypeError, ValueError), match="product must"):
            shop.step(wrong)
    for _ in range(5):
        mine, other = shop.step(1), undisturbed.step(1)
        assert np.array_equal(mine[0], other[0])
        if mine[2]:
            break
    while not shop.over:
        shop.step(1)
    seen = shop.observation()
    with pytest.raises(RuntimeError, match="the session is over: call reset"):
        shop.step(1)
    assert np.array_equal(shop.observation(), seen)
