import copy

import numpy as np
import pytest
from scipy import stats

from tests.states import learnt
from zoolib import FeatureEngineer, ZooplusSimulator, greedy
from zoolib._support.generators import Uniforms, stream
from zoolib._support.state import from_bytes, to_bytes
from zoolib.agents import (
    Agent,
    Context,
    EpsilonGreedyAgent,
    HybridLinUCBAgent,
    LinearAgent,
    LinTSAgent,
    LinUCBAgent,
    NeuralLinearAgent,
    OracleAgent,
    RandomAgent,
    RevealedContext,
    StaticAgent,
)

NAN, INF = float("nan"), float("inf")
ALPHA, RIDGE = 0.7, 2.5


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def bare(*shape):
    """A context in which features say nothing."""
    return Context(np.zeros(shape[:-1], int), np.zeros((*shape, 1)))


def bounds_from_scratch(agent, rows, features):
    """Upper confidence bounds by one solve for each arm, from the rows it was shown."""
    scores = []
    for arm, x in enumerate(features):
        mine = [row for row in rows if row[0] == arm]
        seen = np.array([row[1] for row in mine]).reshape(-1, len(x))
        reward = np.array([row[2] for row in mine])
        weight = agent.discount ** np.arange(len(mine))[::-1]
        prior = agent.posterior.prior[arm] if agent.discount < 1 else RIDGE
        A = prior * np.eye(len(x)) + (weight[:, None] * seen).T @ seen
        mean, spread = np.linalg.solve(A, np.stack([(weight * reward) @ seen, x]).T).T
        scores.append(x @ mean + ALPHA * np.sqrt(x @ spread))
    return np.array(scores)


@pytest.mark.no_cover
@pytest.mark.parametrize("forget", [{}, {"discount": 0.997}, {"window": 500}])
def test_linucb_equals_one_solve_for_each_arm(forget):
    rng = np.random.default_rng(0)
    agent = LinUCBAgent(5, 4, alpha=ALPHA, ridge=RIDGE, **forget)
    rows = []
    for step in range(10_000):
        features = rng.normal(size=(5, 4))
        # The fourth arm is seldom shown, the fifth never.
        arm = 3 if step % 400 == 0 else int(rng.integers(3))
        reward = features[arm].sum() + rng.normal()
        agent.update(Context(0, features), arm, reward)
        rows.append((arm, features[arm], reward))
        if step in (0, 30, 499, 500, 501, 5000, 9999):
            remembered = rows[-500:] if "window" in forget else rows
            features = rng.normal(size=(5, 4))
            expected = bounds_from_scratch(agent, remembered, features)
            context = Context(0, features)
            assert np.allclose(agent.scores(context), expected, rtol=0, atol=1e-9)
            assert agent.select(context) == expected.argmax()
    assert agent.posterior.prior[4] == RIDGE


def test_linucb_equals_the_contextualbandits_package():
    online = pytest.importorskip("contextualbandits.online")
    rng = np.random.default_rng(0)
    ours = LinUCBAgent(5, 4, alpha=ALPHA, ridge=RIDGE)
    theirs = online.LinUCB(
        nchoices=5,
        alpha=ALPHA,
        lambda_=RIDGE,
        fit_intercept=False,
        use_float=False,
        method="sm",
        ucb_from_empty=True,
    )
    for _ in range(20):
        x, arm = rng.normal(size=(500, 4)), rng.integers(4, size=500)
        reward = (rng.random(500) < 0.3).astype(float)
        theirs.partial_fit(x, arm, reward)
        for row, a, r in zip(x, arm, reward, strict=True):
            ours.update(Context(0, np.tile(row, (5, 1))), int(a), r)
        for row, scores in zip(x[:5], theirs.decision_function(x[:5]), strict=True):
            context = Context(0, np.tile(row, (5, 1)))
            assert np.allclose(ours.scores(context), scores, rtol=0, atol=1e-9)


def test_a_greedy_agent_predicts_what_linucb_adds_its_bonus_to():
    context = Context(0, normal(0, 3, 2))
    greedy, bold = LinearAgent(3, 2), LinUCBAgent(3, 2, alpha=ALPHA)
    timid = LinUCBAgent(3, 2, alpha=0)
    for agent in (greedy, bold, timid):
        for step in range(20):
            agent.update(Context(0, normal(step, 3, 2)), step % 2, 1.0 + step)
    prediction = greedy.posterior.predict(context.features)
    width = greedy.posterior.width(context.features)
    assert (greedy.scores(context) == prediction).all()
    assert np.allclose(timid.scores(context), prediction)
    assert np.allclose(bold.scores(context), prediction + ALPHA * width)


def test_only_the_last_steps_count_in_a_window_whichever_arms_they_showed():
    contexts = [Context([0, 0], normal(n, 2, 3, 2)) for n in range(40)]
    arms, rewards = np.random.default_rng(0).integers(3, size=(40, 2)), normal(1, 40, 2)
    long, short = (LinUCBAgent(3, 2, n_worlds=2, window=7) for _ in range(2))
    for n, played in enumerate(zip(contexts, arms, rewards, strict=True)):
        long.update(*played)
        if n >= 33:
            short.update(*played)
    assert np.allclose(long.scores(contexts[0]), short.scores(contexts[0]), atol=1e-9)
    assert len(long._recent["x"]) == 7


def test_a_discount_ticks_only_for_the_arm_shown():
    agent = LinUCBAgent(2, 1, discount=0.5)
    context = Context(0, np.ones((2, 1)))
    for arm, reward in ((0, 1.0), (0, 3.0), (1, 5.0)):
        agent.update(context, arm, reward)
    assert agent.posterior.A.ravel() == pytest.approx([0.25 + 0.5 + 1, 0.5 + 1])
    assert agent.posterior.b.ravel() == pytest.approx([0.5 + 3.0, 5.0])


def test_a_discount_of_a_shared_model_ticks_at_each_step():
    agent = LinUCBAgent(2, 1, discount=0.5, shared=True)
    context = Context(0, np.ones((2, 1)))
    for arm, reward in ((0, 1.0), (0, 3.0), (1, 5.0)):
        agent.update(context, arm, reward)
    # The prior fades with the rows.
    assert agent.posterior.A.item() == pytest.approx(0.125 + 0.25 + 0.5 + 1)
    assert agent.posterior.b.item() == pytest.approx(0.25 + 1.5 + 5)


@pytest.mark.parametrize("n_worlds", [None, 2])
@pytest.mark.parametrize("forget", [{}, {"discount": 0.97}, {"window": 40}])
def test_a_shared_model_is_one_ridge_regression_on_the_rows_of_all_arms(
    forget, n_worlds
):
    rng = np.random.default_rng(0)
    options = {"ridge": RIDGE, "n_worlds": n_worlds, "shared": True, **forget}
    bold = LinUCBAgent(5, 4, alpha=ALPHA, **options)
    greedy = LinearAgent(5, 4, **options)
    worlds = () if n_worlds is None else (n_worlds,)
    assert bold.posterior.shape == greedy.posterior.shape == worlds
    rows, rewards = [], []
    for step in range(120):
        context = Context(np.zeros(worlds, int), rng.normal(size=(*worlds, 5, 4)))
        remembered = slice(-40, None) if "window" in forget else slice(None)
        x = np.array(rows[remembered]).reshape(-1, *worlds, 4)
        r = np.array(rewards[remembered]).reshape(-1, *worlds)
        weight = bold.discount ** np.arange(len(x))[::-1]
        prior = RIDGE * bold.discount**step * np.eye(4)
        for w in np.ndindex(worlds):
            mine, reward = x[(slice(None), *w)], r[(slice(None), *w)]
            A = prior + (weight[:, None] * mine).T @ mine
            features = context.features[w]
            mean = features @ np.linalg.solve(A, (weight * reward) @ mine)
            spread = np.linalg.solve(A, features.T).T
            width = np.sqrt((features * spread).sum(axis=1))
            near = {"rtol": 0, "atol": 1e-8}
            assert np.allclose(greedy.scores(context)[w], mean, **near)
            assert np.allclose(bold.scores(context)[w], mean + ALPHA * width, **near)
        arm = rng.integers(5, size=worlds)
        x = np.take_along_axis(context.features, arm[..., None, None], axis=-2)
        rows.append(x[..., 0, :])
        rewards.append(rows[-1].sum(axis=-1) + rng.normal(size=worlds))
        played = (arm, rewards[-1]) if worlds else (int(arm), float(rewards[-1]))
        for agent in (bold, greedy):
            agent.update(context, *played)


@pytest.mark.parametrize("forget", [{}, {"discount": 0.9}, {"window": 7}])
def test_an_arm_restocked_begins_again_and_the_others_go_on(forget):
    rng = np.random.default_rng(0)
    together = LinUCBAgent(5, 3, ALPHA, RIDGE, n_worlds=2, **forget)
    alone = [LinUCBAgent(5, 3, ALPHA, RIDGE, **forget) for _ in range(2)]
    rows = [[], []]
    for step in range(120):
        if step % 9 in (4, 6):  # twice within a window
            arms = np.array([rng.permutation(5)[:2] for _ in range(2)])
            together.restock(arms)
            for w, agent in enumerate(alone):
                agent.restock(arms[w])
                rows[w] = [row for row in rows[w] if row[0] not in arms[w]]
                assert (agent.posterior.prior[arms[w]] == RIDGE).all()
                assert (agent.posterior.A[arms[w]] == RIDGE * np.eye(3)).all()
                assert not agent.posterior.b[arms[w]].any()
        context = Context([0, 0], rng.normal(size=(2, 5, 3)))
        scores = together.scores(context)
        for w, agent in enumerate(alone):
            remembered = rows[w]
            if "window" in forget:
                remembered = [row for row in remembered if row[3] >= step - 7]
            features = context.features[w]
            expected = bounds_from_scratch(agent, remembered, features)
            near = {"rtol": 0, "atol": 1e-9}
            assert np.allclose(agent.scores(context.of_world(w)), expected, **near)
            assert np.allclose(scores[w], expected, **near)
        arm, reward = rng.integers(5, size=2), rng.normal(size=2)
        together.update(context, arm, reward)
        for w, agent in enumerate(alone):
            agent.update(context.of_world(w), int(arm[w]), float(reward[w]))
            rows[w].append((arm[w], context.features[w, arm[w]], reward[w], step))


@pytest.mark.parametrize("forget", [{}, {"discount": 0.9}, {"window": 3}])
@pytest.mark.parametrize("n_worlds", [None, 2])
def test_a_shared_model_keeps_what_replaced_products_taught(n_worlds, forget):
    worlds = () if n_worlds is None else (n_worlds,)
    told, untold = (
        LinUCBAgent(4, 2, n_worlds=n_worlds, shared=True, **forget) for _ in range(2)
    )
    for step in range(12):
        context = Context(np.zeros(worlds, int), normal(step, *worlds, 4, 2))
        for agent in (told, untold):
            arm = agent.select(context)
            agent.update(context, arm, np.ones(worlds) if worlds else 1.0)
        if step % 3 == 1:
            told.restock(np.zeros((*worlds, 1), int))
        assert learnt(told) == learnt(untold)
        assert (told.scores(context) == untold.scores(context)).all()


def test_agents_that_know_nothing_of_single_arms_may_be_told_of_new_ones():
    agent = RandomAgent(4, seed=1)
    agent.restock(np.array([1, 2]))
    same_luck = RandomAgent(4, seed=1)
    for _ in range(20):
        assert agent.select(bare(4)) == same_luck.select(bare(4))


N_WORLDS, SEEDS = 3, [11, 5, 2]


def table(*shape):
    """Values with many ties."""
    return np.random.default_rng(0).integers(3, size=shape) / 2


AGENTS = {
    "linucb": lambda w, n: LinUCBAgent(10, 9, 0.5, n_worlds=n),
    "discounted": lambda w, n: LinUCBAgent(10, 9, 0.5, n_worlds=n, discount=0.9),
    "window": lambda w, n: LinUCBAgent(10, 9, 0.5, n_worlds=n, window=50),
    "shared": lambda w, n: LinUCBAgent(10, 9, 0.5, n_worlds=n, shared=True),
    "shared, discounted": lambda w, n: LinUCBAgent(
        10, 9, 0.5, n_worlds=n, shared=True, discount=0.9
    ),
    "shared, window": lambda w, n: LinUCBAgent(
        10, 9, 0.5, n_worlds=n, shared=True, window=50
    ),
    "epsilon-greedy": lambda w, n: EpsilonGreedyAgent(10, 9, 0.3, n_worlds=n),
    "random": lambda w, n: RandomAgent(10, n_worlds=n),
    "static": lambda w, n: StaticAgent(table(N_WORLDS, 20, 10)[w]),
    "oracle": lambda w, n: OracleAgent(10, n_worlds=n),
}


@pytest.mark.no_cover
@pytest.mark.parametrize("name", AGENTS)
def test_agents_in_step_choose_as_if_alone(name):
    features = FeatureEngineer([ZooplusSimulator(10, 20, seed) for seed in SEEDS])
    rng = np.random.default_rng(0)
    together = AGENTS[name](slice(None), N_WORLDS)
    together.reseed(SEEDS)
    alone = [AGENTS[name](w, None) for w in range(N_WORLDS)]
    for agent, seed in zip(alone, SEEDS, strict=True):
        agent.reseed(seed)
    shown, ties = [], 0
    for step in range(500):
        users = rng.integers(20, size=N_WORLDS)
        context = RevealedContext(
            users, features.transform(users), table(N_WORLDS, 20, 10)[range(3), users]
        )
        arm = together.select(context)
        singles = [agent.select(context.of_world(w)) for w, agent in enumerate(alone)]
        assert arm.tolist() == singles
        assert all(type(single) is int for single in singles)
        scores = together.scores(context)
        near = np.isclose(scores, scores.max(axis=-1, keepdims=True))
        ties += (near.sum(axis=-1) > 1).sum()
        shown.append(arm)
        if step % 4:  # who learns all the time sees few ties
            continue
        reward = rng.integers(2, size=N_WORLDS) * (step > 250)
        together.update(context, arm, reward)
        for w, agent in enumerate(alone):
            agent.update(context.of_world(w), singles[w], int(reward[w]))
    assert ties > 100
    assert not np.array_equal(*np.array(shown).T[:2])


@pytest.mark.parametrize("n_worlds", [None, 3])
def test_the_seed_decides_what_is_left_to_chance(n_worlds):
    context = bare(4) if n_worlds is None else bare(3, 4)

    def choices(seed):
        agent = RandomAgent(4, n_worlds, seed)
        return [np.array(agent.select(context)) for _ in range(100)]

    assert np.array_equal(choices(1), choices(1))
    assert not np.array_equal(choices(1), choices(2))
    agent = RandomAgent(4, n_worlds, seed=9)
    agent.select(context)
    agent.reseed(1)
    assert np.array_equal([agent.select(context) for _ in range(100)], choices(1))


def test_each_world_draws_the_numbers_of_its_own_stream():
    both, single = Uniforms([4, 5], 2), Uniforms(5, None)
    drawn = np.array([both.next() for _ in range(2500)]).T
    assert (drawn == [stream(seed, "agent").random(2500) for seed in (4, 5)]).all()
    assert [single.next() for _ in range(2500)] == drawn[1].tolist()


def test_one_seed_serves_all_worlds_and_many_serve_one_each():
    one, many = RandomAgent(9, 3, seed=4), RandomAgent(9, 3, seed=(4, 5, 4))
    shared = np.array([one.select(bare(3, 9)) for _ in range(200)])
    own = np.array([many.select(bare(3, 9)) for _ in range(200)])
    assert (shared[:, [0]] == shared).all()
    assert (own[:, 0] == own[:, 2]).all()
    assert (own[:, 0] == shared[:, 0]).all()
    assert (own[:, 0] != own[:, 1]).any()


def chance_that_uniform(arms, among):
    assert set(arms) == set(among)
    return stats.chisquare(np.bincount(arms)[among]).pvalue


def test_ties_are_broken_uniformly():
    agent = StaticAgent([[0.1, 0.5, 0.5, 0.2, 0.5, -1.0]], seed=1)
    arms = [agent.select(bare(6)) for _ in range(6000)]
    assert chance_that_uniform(arms, [1, 2, 4]) > 0.001


def test_ties_of_one_world_leave_the_others_alone():
    predictions = [[[0, 1, 2]], [[2, 0, 2]], [[3, 1, 2]], [[1, 1, 1]]]
    agent = StaticAgent(np.array(predictions, float), seed=[0, 1, 2, 3])
    arms = np.array([agent.select(bare(4, 3)) for _ in range(3000)]).T
    assert set(arms[0]) == {2}
    assert chance_that_uniform(arms[1], [0, 2]) > 0.001
    assert set(arms[2]) == {0}
    assert chance_that_uniform(arms[3], [0, 1, 2]) > 0.001


@pytest.mark.parametrize(
    ("scores", "tied"),
    [
        ([0.5, 0.5 + 1e-10], True),
        ([0.5, 0.5 + 2e-10], False),
        ([0.0, 0.9e-10], True),
        ([0.0, 1.1e-10], False),
        ([1e6, 1e6 + 0.9e-4], True),
        ([1e6, 1e6 + 1.2e-4], False),
        ([-1e6 - 0.9e-4, -1e6], True),
        ([-1e6 - 1.2e-4, -1e6], False),
        (np.array([0.5, 0.5 + 4e-6], np.float32), True),
        (np.array([0.5, 0.5 + 8e-6], np.float32), False),
    ],
)
def test_scores_closer_than_rounding_are_ties(scores, tied):
    agent = StaticAgent([scores])
    assert {agent.select(bare(2)) for _ in range(40)} == ({0, 1} if tied else {1})


@pytest.mark.parametrize("kind", [LinUCBAgent, LinearAgent])
def test_arms_that_learnt_the_same_in_another_order_are_ties(kind):
    agent = kind(2, 6)
    x, reward = normal(0, 300, 6), normal(1, 300)
    for arm, order in ((0, slice(None)), (1, slice(None, None, -1))):
        for row, r in zip(x[order], reward[order], strict=True):
            agent.update(Context(0, [row, row]), arm, r)
    # Whose scores differ by rounding depends on the machine; of fifty visitors some do.
    contexts = [Context(0, np.tile(row, (2, 1))) for row in normal(2, 50, 6)]
    context = next(c for c in contexts if np.ptp(agent.scores(c)) > 0)
    assert {agent.select(context) for _ in range(40)} == {0, 1}


def test_chance_is_uniform_over_all_arms():
    agent = RandomAgent(7, seed=3)
    arms = [agent.select(bare(7)) for _ in range(7000)]
    assert chance_that_uniform(arms, range(7)) > 0.001
    assert agent.scores(bare(7)).tolist() == [0] * 7
    together = RandomAgent(7, n_worlds=2, seed=[3, 4])
    assert together.scores(bare(2, 7)).shape == (2, 7)
    arm = together.select(bare(2, 7))
    assert arm.dtype.kind == "i"
    assert arm.tolist() == [arms[0], RandomAgent(7, seed=4).select(bare(7))]


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
def test_epsilon_is_the_rate_of_random_arms(epsilon):
    agent = EpsilonGreedyAgent(4, 1, epsilon, seed=2)
    context = Context(0, np.ones((4, 1)))
    agent.update(context, 2, 1.0)
    arms = np.array([agent.select(context) for _ in range(8000)])
    others = arms[arms != 2]
    rate = 0.75 * epsilon
    assert abs(len(others) / 8000 - rate) <= 4 * np.sqrt(rate * (1 - rate) / 8000)
    if epsilon:
        assert chance_that_uniform(others, [0, 1, 3]) > 0.001


def test_exploring_is_no_matter_of_the_arm_or_the_tie():
    agent = EpsilonGreedyAgent(2, 1, 0.5)
    arms = [agent.select(Context(0, np.ones((2, 1)))) for _ in range(6000)]
    assert chance_that_uniform(arms, [0, 1]) > 0.001
    followed = np.bincount(np.array(arms[:-1]) * 2 + arms[1:])
    assert stats.chisquare(followed).pvalue > 0.001


def test_the_static_agent_shows_the_best_of_its_table():
    predictions = normal(0, 5, 4)
    agent = StaticAgent(predictions)
    assert agent.n_arms == 4
    for user in range(5):
        context = Context(user, np.zeros((4, 2)))
        assert agent.select(context) == predictions[user].argmax()
        assert (agent.scores(context) == predictions[user]).all()
        agent.update(context, 1, 100.0)
    assert agent.select(Context(3, np.zeros((4, 2)))) == predictions[3].argmax()


def test_a_static_agent_of_many_worlds_has_a_table_for_each():
    predictions = normal(0, 2, 5, 4).astype(np.float32)
    agent = StaticAgent(predictions)
    assert (agent.n_worlds, agent.n_arms) == (2, 4)
    context = Context([3, 0], np.zeros((2, 4, 1)))
    assert (agent.scores(context) == predictions[[0, 1], [3, 0]]).all()
    assert (agent.select(context) == predictions[[0, 1], [3, 0]].argmax(-1)).all()


@pytest.mark.parametrize("dtype", [int, bool, np.float16, np.float32, np.float64])
def test_tables_of_any_real_numbers_will_do(dtype):
    agent = StaticAgent(np.array([[0, 1, 0]], dtype))
    assert agent.select(bare(3)) == 1


@pytest.mark.parametrize(
    "predictions",
    [[0.1, 0.2], np.zeros((1, 2, 3, 4)), 0.5, [[0.1, NAN]], [[0.1, INF]]],
)
def test_tables_are_checked(predictions):
    with pytest.raises(ValueError, match="predictions"):
        StaticAgent(predictions)


def test_the_oracle_shows_the_truth_and_asks_for_it():
    agent = OracleAgent(3)
    assert agent.needs_truth
    assert not getattr(RandomAgent(3), "needs_truth", False)
    context = RevealedContext(0, np.zeros((3, 2)), [0.2, 0.1, 0.7])
    assert agent.select(context) == 2
    assert agent.scores(context).tolist() == [0.2, 0.1, 0.7]
    with pytest.raises(TypeError, match=r"context.*RevealedContext.*got Context"):
        agent.select(bare(3))
    with pytest.raises(ValueError, match=r"context\.features"):
        agent.select(RevealedContext(0, np.zeros((4, 2)), [0.2, 0.1, 0.7, 0.1]))


def test_a_world_of_a_context_is_a_context():
    features, truth = normal(0, 2, 3, 5), normal(1, 2, 3)
    plain = Context([4, 7], features)
    revealed = RevealedContext([4, 7], features, truth)
    for w in range(2):
        for context in (plain, revealed):
            one = context.of_world(w)
            assert type(one) is type(context)
            assert one.user_id == [4, 7][w]
            assert (one.features == features[w]).all()
        assert (one.expected_reward == truth[w]).all()


@pytest.mark.parametrize(
    ("user_id", "features", "error", "words"),
    [
        ({}, np.ones((3, 2)), TypeError, ["user_id", "hashable", "{}"]),
        (([0],), np.ones((3, 2)), TypeError, ["user_id", "hashable"]),
        (0, [["a", "b"]], TypeError, ["features", "<U1"]),
        (0, [[None, 1.0]], ValueError, ["features", "finite", "nan"]),
        (0, np.ones((3, 2), complex), TypeError, ["features", "complex"]),
        (0, 1.0, ValueError, ["features", "()"]),
        (None, np.ones((1, 2, 3, 4)), ValueError, ["features", "(1, 2, 3, 4)"]),
        (0, np.ones((2, 3, 2)), ValueError, ["features", "(2, 3, 2)", "()"]),
        ([0, 1], np.ones((3, 1, 2)), ValueError, ["features", "(3, 1, 2)", "(2,)"]),
        ([0, 1], np.ones(2), ValueError, ["features", "(2,)"]),
        ([0, 1], np.ones((3, 4, 2)), ValueError, ["features", "(3, 4, 2)", "(2,)"]),
        (np.zeros((1, 1)), np.ones((1, 1, 4, 2)), ValueError, ["user_id", "(1, 1)"]),
        (0, [[0.0, NAN]], ValueError, ["features", "finite"]),
        (0, [[0.0, -INF]], ValueError, ["features", "finite"]),
    ],
)
def test_contexts_are_checked(user_id, features, error, words):
    with pytest.raises(error) as refusal:
        Context(user_id, features)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def assert_refused(agent, arguments, error, word):
    """The update is refused, and the agent goes on as if nothing had happened."""
    undisturbed = copy.deepcopy(agent)
    with pytest.raises(error, match=word):
        agent.update(**arguments)
    assert learnt(agent) == learnt(undisturbed)
    context = Context(np.zeros(agent._shape[:-1], int), normal(5, *agent._shape, 2))
    arm, reward = (0, 1.0) if agent.n_worlds is None else ([0] * 3, [1.0] * 3)
    for one in (agent, undisturbed):
        for _ in range(3):
            one.update(context, arm, reward)
    assert learnt(agent) == learnt(undisturbed)
    assert np.array_equal(agent.select(context), undisturbed.select(context))


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ({"arm": 3}, ValueError, "arm.*0 … 2.*3"),
        ({"arm": -1}, ValueError, "arm.*-1"),
        ({"arm": 1.0}, TypeError, "arm.*float64"),
        ({"arm": np.float64(1)}, TypeError, "arm"),
        ({"arm": True}, TypeError, "arm.*bool"),
        ({"arm": np.True_}, TypeError, "arm.*bool"),
        ({"arm": "1"}, TypeError, "arm.*<U1"),
        ({"arm": None}, TypeError, "arm.*None"),
        ({"arm": [1]}, (TypeError, ValueError), "arm"),
        ({"arm": np.array([1])}, (TypeError, ValueError), "arm"),
        ({"reward": NAN}, ValueError, "reward.*finite.*nan"),
        ({"reward": -INF}, ValueError, "reward.*finite.*-inf"),
        ({"reward": "1"}, TypeError, "reward.*<U1"),
        ({"reward": None}, TypeError, "reward.*None"),
        ({"reward": [1.0]}, (TypeError, ValueError), "reward"),
        ({"reward": 1j}, TypeError, "reward.*complex"),
        ({"context": Context(0, np.ones((2, 2)))}, ValueError, r"context\.features"),
        ({"context": Context(0, np.ones((4, 2)))}, ValueError, r"context\.features"),
        ({"context": Context(0, np.ones((3, 1)))}, ValueError, r"context\.features"),
        ({"context": Context(0, np.ones((3, 3)))}, ValueError, r"context\.features"),
        (
            {"context": Context([0], np.ones((1, 3, 2)))},
            ValueError,
            r"arm must have shape \(1,\)",
        ),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_a_refused_reward_changes_nothing(arguments, error, word, shared):
    agent = LinUCBAgent(3, 2, window=4, shared=shared)
    for step in range(6):
        agent.update(Context(0, normal(step, 3, 2)), step % 2, 1.0 * step)
    good = {"context": Context(0, normal(9, 3, 2)), "arm": 1, "reward": 1.0}
    assert_refused(agent, good | arguments, error, word)


@pytest.mark.parametrize(
    ("arguments", "error", "word"),
    [
        ({"arm": 1}, ValueError, r"arm.*\(3,\).*\(\)"),
        ({"arm": [0, 1]}, ValueError, r"arm.*\(3,\).*\(2,\)"),
        ({"arm": [[0, 1, 2]]}, ValueError, r"arm.*\(3,\).*\(1, 3\)"),
        ({"arm": [0, 1, 4]}, ValueError, "arm.*0 … 3.*4"),
        ({"arm": [0, -1, 1]}, ValueError, "arm.*-1"),
        ({"arm": [0.0, 1.0, 2.0]}, TypeError, "arm.*float64"),
        ({"arm": [True, False, True]}, TypeError, "arm.*bool"),
        ({"arm": ["0", "1", "2"]}, TypeError, "arm.*<U1"),
        ({"reward": 1.0}, ValueError, r"reward.*\(3,\).*\(\)"),
        ({"reward": [1.0, 0.0]}, ValueError, r"reward.*\(3,\).*\(2,\)"),
        ({"reward": [1.0, NAN, 0.0]}, ValueError, "reward.*finite"),
        ({"reward": [1.0, 0.0, INF]}, ValueError, "reward.*finite"),
        ({"reward": ["1", "0", "1"]}, (TypeError, ValueError), "reward"),
        ({"reward": ["a", "b", "c"]}, (TypeError, ValueError), "reward"),
        ({"reward": [None] * 3}, (TypeError, ValueError), "reward"),
        ({"context": Context(0, np.ones((4, 2)))}, ValueError, r"context\.features"),
        (
            {"context": Context([0] * 2, np.ones((2, 4, 2)))},
            ValueError,
            r"context\.features.*\(2, 4, 2\)",
        ),
        (
            {"context": Context([0] * 3, np.ones((3, 3, 2)))},
            ValueError,
            r"context\.features.*\(3, 3, 2\)",
        ),
        (
            {"context": Context([0] * 3, np.ones((3, 4, 3)))},
            ValueError,
            r"context\.features.*\(3, 4, 2\).*\(3, 4, 3\)",
        ),
    ],
)
@pytest.mark.parametrize("shared", [False, True])
def test_a_refused_reward_of_one_world_changes_nothing_in_any(
    arguments, error, word, shared
):
    agent = LinUCBAgent(4, 2, n_worlds=3, window=4, shared=shared)
    for step in range(6):
        agent.update(Context([0] * 3, normal(step, 3, 4, 2)), [0, 1, 2], normal(0, 3))
    good = {
        "context": Context([0] * 3, normal(9, 3, 4, 2)),
        "arm": [0, 1, 3],
        "reward": [1.0, 0.0, 1.0],
    }
    assert_refused(agent, good | arguments, error, word)


@pytest.mark.parametrize("name", AGENTS)
def test_no_agent_chooses_among_arms_it_does_not_have(name):
    agent = AGENTS[name](0, None)
    with pytest.raises(ValueError, match=r"context\.features.*\(10, (d|9)\).*\(9, 9\)"):
        agent.select(RevealedContext(0, np.zeros((9, 9)), np.zeros(9)))


@pytest.mark.parametrize(
    "forget",
    [{}, {"discount": 0.9}, {"window": 3}, {"window": 3, "shared": True}],
)
def test_arrays_may_be_used_again_after_an_update(forget):
    agent, undisturbed = (LinUCBAgent(4, 2, n_worlds=3, **forget) for _ in range(2))
    arm, reward = np.zeros(3, int), np.zeros(3)
    for step in range(8):
        features = normal(step, 3, 4, 2)
        arm[:], reward[:] = (step + np.arange(3)) % 4, step
        undisturbed.update(Context([0] * 3, features.copy()), arm.copy(), [step] * 3)
        agent.update(Context([0] * 3, features), arm, reward)
        features[:] = arm[:] = reward[:] = 0
    assert learnt(agent) == learnt(undisturbed)


@pytest.mark.parametrize("dtype", [int, bool, np.uint8, np.float32])
def test_features_may_be_any_real_numbers(dtype):
    features = np.random.default_rng(0).integers(2, size=(3, 4)).astype(dtype)
    agent, expected = LinUCBAgent(3, 4), LinUCBAgent(3, 4)
    for arm in (0, 1, 1):
        agent.update(Context(0, features), arm, 1)
        expected.update(Context(0, features.astype(float)), arm, 1.0)
    assert learnt(agent) == learnt(expected)
    scores = agent.scores(Context(0, features))
    assert (scores == expected.scores(Context(0, features.astype(float)))).all()
    assert agent.select(Context(0, features)) == 2


@pytest.mark.no_cover
def test_an_agent_that_does_not_learn_needs_scores_only():
    class LastArm(Agent):
        def scores(self, context):
            return np.arange(self.n_arms, dtype=float)

    agent = LastArm(5)
    assert agent.select(bare(5)) == 4
    agent.update(bare(5), 2, 1.0)
    with pytest.raises(ValueError, match="arm"):
        agent.update(bare(5), 5, 1.0)
    with pytest.raises(NotImplementedError, match="Agent scores no arms"):
        Agent(5).select(bare(5))


@pytest.mark.parametrize("scores", [[1.0, NAN], [INF, 1.0], [-INF, -INF]])
def test_scores_without_a_finite_best_choose_nothing(scores):
    agent = Agent(2)
    agent.scores = lambda context: np.array(scores)
    for ask in (agent.select, agent.propensities):
        with pytest.raises(ValueError, match="scores must have a finite best"):
            ask(bare(2))


def test_a_window_and_no_discount_go_together():
    agent = LinUCBAgent(3, 2, discount=1.0, window=2)
    assert (agent.window, agent.discount) == (2, 1.0)


@pytest.mark.parametrize(
    ("truth", "words"), [(np.zeros(4), r"\(3,\)"), ([0.1, np.nan, 0.2], "finite")]
)
def test_a_revealed_truth_must_fit_the_arms_and_be_finite(truth, words):
    with pytest.raises(ValueError, match=f"expected_reward.*{words}"):
        RevealedContext(0, np.eye(3), truth)


def test_predictions_must_be_numbers():
    with pytest.raises(TypeError, match="predictions must hold real numbers"):
        StaticAgent([["a", "b"]])


@pytest.mark.parametrize("counts", [[1] * 1100, [7, 1024, 1, 3000, 2], [1500, 1500]])
def test_normal_numbers_are_the_quantiles_of_consecutive_uniforms(counts):
    both, single = Uniforms([4, 5], 2), Uniforms(5, None)
    drawn = [both.normals(n) for n in counts]
    assert [part.shape for part in drawn] == [(2, n) for n in counts]
    n = sum(counts)
    uniform = np.array([stream(seed, "agent").random(n + 1) for seed in (4, 5)])
    expected = stats.norm.ppf(uniform[:, :n])
    assert np.allclose(np.concatenate(drawn, axis=1), expected, rtol=1e-9, atol=1e-12)
    # Uniform numbers go on where normal numbers end.
    assert (both.next() == uniform[:, n]).all()
    alone = [single.normals(n) for n in counts]
    assert [part.shape for part in alone] == [(n,) for n in counts]
    assert (np.concatenate(alone) == np.concatenate(drawn, axis=1)[1]).all()


def test_normal_numbers_are_normal():
    numbers = np.concatenate([Uniforms(seed, None).normals(5000) for seed in range(4)])
    assert stats.kstest(numbers, "norm").pvalue > 0.001
    assert abs(np.corrcoef(numbers[:-1], numbers[1:])[0, 1]) < 4 / np.sqrt(20_000)


def test_normal_numbers_drawn_may_be_changed():
    asked, undisturbed = Uniforms(0, None), Uniforms(0, None)
    asked.normals(3)[:] = 0
    undisturbed.normals(3)
    assert (asked.normals(3) == undisturbed.normals(3)).all()


def frequencies(agent, context, n=4000):
    """How often each arm is selected, shape (n_arms,) or (W, n_arms)."""
    arms = np.array([agent.select(context) for _ in range(n)])
    return (arms[..., None] == np.arange(agent.n_arms)).mean(axis=0)


def agree(frequency, probability, n=4000):
    """Within four and a half standard errors, and exact where nothing is left to chance."""
    error = np.sqrt(probability * (1 - probability) / n)
    return (abs(frequency - probability) <= 4.5 * error + 1e-12).all()


TIES = [[0.1, 0.5, 0.5, 0.2], [0.3, 0.3, 0.3, 0.3], [0.9, 0.1, 0.2, 0.3]]
ONE_IN_TIES = np.array([[0, 0.5, 0.5, 0], [0.25] * 4, [1, 0, 0, 0]])
SOME = np.array([[1, 1, 0, 1], [0, 1, 1, 1], [0, 0, 1, 1]], bool)
ONE_IN_SOME = np.array([[0, 1, 0, 0], [0, 1 / 3, 1 / 3, 1 / 3], [0, 0, 0, 1.0]])


def tied_oracle(n_worlds):
    return OracleAgent(4, n_worlds)


def tied_table(n_worlds):
    return StaticAgent(np.array(TIES)[:, None] if n_worlds else TIES)


def tied_linucb(n_worlds):
    """The untried arms' bounds are equal; arm 0 of the last world is known to pay."""
    agent = LinUCBAgent(4, 1, n_worlds=n_worlds, shared=False)
    agent.posterior.reset((), np.array(TIES)[..., None] if n_worlds else None)
    return agent


def visit_of_ties(n_worlds, w=0):
    features = np.ones((3, 4, 1))
    if n_worlds:
        return RevealedContext([0, 0, 0], features, TIES)
    return RevealedContext(w, features[w], TIES[w])


@pytest.mark.parametrize("make", [tied_oracle, tied_table, tied_linucb])
def test_propensities_divide_a_choice_among_the_best(make):
    agent, context = make(3), visit_of_ties(3)
    assert np.allclose(agent.propensities(context), ONE_IN_TIES, rtol=1e-15)
    assert agree(frequencies(agent, context), ONE_IN_TIES)
    allowed = agent.propensities(context, SOME)
    assert np.allclose(allowed, ONE_IN_SOME, rtol=1e-15)
    assert np.allclose(agent.propensities(context, SOME.tolist()), ONE_IN_SOME)
    assert allowed.dtype == np.float64


@pytest.mark.parametrize("make", [tied_oracle, tied_table])
def test_propensities_of_one_world_have_no_worlds_axis(make):
    for w in range(3):
        agent, context = make(None), visit_of_ties(None, w)
        assert np.allclose(agent.propensities(context), ONE_IN_TIES[w])
        assert np.allclose(agent.propensities(context, SOME[w]), ONE_IN_SOME[w])


@pytest.mark.parametrize("n_worlds", [None, 3])
def test_chance_has_equal_propensities(n_worlds):
    agent, worlds = RandomAgent(4, n_worlds, seed=3), (n_worlds or 0,)[: bool(n_worlds)]
    context = bare(*worlds, 4)
    assert (agent.propensities(context) == np.full((*worlds, 4), 0.25)).all()
    assert agree(frequencies(agent, context), agent.propensities(context))
    some = SOME if worlds else SOME[0]
    shares = some / some.sum(axis=-1, keepdims=True)
    assert np.allclose(agent.propensities(context, some), shares)


@pytest.mark.parametrize("epsilon", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("n_worlds", [None, 3])
def test_propensities_of_epsilon_greedy_are_a_mixture(n_worlds, epsilon):
    worlds = (n_worlds,) if n_worlds else ()
    agent = EpsilonGreedyAgent(4, 1, epsilon, n_worlds=n_worlds, seed=2)
    agent.posterior.reset((), np.array(TIES)[..., None][slice(3) if worlds else 0])
    context = Context(np.zeros(worlds, int), np.ones((*worlds, 4, 1)))
    best = ONE_IN_TIES if worlds else ONE_IN_TIES[0]
    expected = (1 - epsilon) * best + epsilon / 4
    assert np.allclose(agent.propensities(context), expected)
    assert agree(frequencies(agent, context), expected)
    some, best = (SOME, ONE_IN_SOME) if worlds else (SOME[0], ONE_IN_SOME[0])
    uniform = some / some.sum(axis=-1, keepdims=True)
    masked = agent.propensities(context, some)
    assert np.allclose(masked, (1 - epsilon) * best + epsilon * uniform)
    assert (masked[~some] == 0).all()


def test_propensities_that_are_exact_use_up_no_luck():
    agent, undisturbed = (EpsilonGreedyAgent(4, 1, 0.5, seed=2) for _ in range(2))
    context = Context(0, np.ones((4, 1)))
    for _ in range(50):
        agent.propensities(context)
        assert agent.select(context) == undisturbed.select(context)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_propensities_share_between_scores_closer_than_rounding(dtype):
    near = {np.float32: 0.5 + 4e-6, np.float64: 0.5 + 5e-11}[dtype]
    agent = StaticAgent(np.array([[0.5, near, 0.4]], dtype))
    assert agent.propensities(bare(3)).tolist() == [0.5, 0.5, 0]
    # What is not allowed is not what others are compared with.
    agent = StaticAgent(np.array([[0.5, 9e9, 0.4]], dtype))
    assert agent.propensities(bare(3), [True, False, True]).tolist() == [1, 0, 0]


@pytest.mark.parametrize("n_worlds", [None, 2])
def test_propensities_of_a_neural_thompson_agent_are_estimated(n_worlds):
    worlds = (n_worlds,) if n_worlds else ()
    options = {"embedding_dim": 4, "hidden": (5,), "n_worlds": n_worlds, "seed": 1}
    agent = NeuralLinearAgent(4, 3, 0.5, policy="thompson", **options)
    context = Context(np.zeros(worlds, int), normal(0, *worlds, 4, 3))
    for _ in range(5):
        arm = agent.select(context)
        agent.update(context, arm, np.ones(worlds) if worlds else 1.0)
    estimates = np.array([agent.propensities(context) for _ in range(10)])
    assert np.allclose(estimates.sum(axis=-1), 1)
    assert np.allclose(estimates * 100, (estimates * 100).round())
    # A thousand draws on either side.
    mean, often = estimates.mean(axis=0), frequencies(agent, context, 1000)
    error = np.sqrt((mean * (1 - mean) + often * (1 - often)) / 1000)
    assert (abs(mean - often) <= 4.5 * error).all()
    assert (mean.max(axis=-1) < 1).all()
    allowed = np.broadcast_to([True, False, True, False], (*worlds, 4))
    masked = agent.propensities(context, allowed)
    assert (masked[~allowed] == 0).all()
    assert np.allclose(masked.sum(axis=-1), 1)
    sure = NeuralLinearAgent(4, 3, 0.5, **options)
    assert set(sure.propensities(context).ravel()) == {0.0, 1.0}


@pytest.mark.parametrize(
    "allowed",
    [
        np.zeros(4, bool),
        np.ones(3, bool),
        np.ones((1, 4), bool),
        [[True, False, True]],
    ],
)
@pytest.mark.parametrize("kind", [RandomAgent, EpsilonGreedyAgent, LinTSAgent])
def test_a_choice_among_no_arms_is_refused_before_luck_is_used(kind, allowed):
    size = (4,) if kind is RandomAgent else (4, 1)
    agent, undisturbed = kind(*size), kind(*size)
    context = Context(0, np.ones((4, 1)))
    with pytest.raises(
        ValueError, match=r"allowed must (leave an arm|hold booleans).*\(4,\)"
    ):
        agent.propensities(context, allowed)
    for _ in range(10):
        assert agent.select(context) == undisturbed.select(context)


def test_no_world_may_be_left_without_an_arm():
    agent, allowed = RandomAgent(4, 2), [[True] * 4, [False] * 4]
    with pytest.raises(ValueError, match=r"allowed must leave an arm.*\(2, 4\)"):
        agent.propensities(bare(2, 4), allowed)
    with pytest.raises(ValueError, match=r"allowed must hold booleans.*int64"):
        agent.propensities(bare(2, 4), [[0, 1, 2, 3]] * 2)


def test_propensities_need_the_context_of_the_agent():
    with pytest.raises(ValueError, match="n_draws must be at least 1: got 0"):
        RandomAgent(3).propensities(bare(3), n_draws=0)
    with pytest.raises(ValueError, match=r"context\.features.*\(4, d\).*\(3, 1\)"):
        RandomAgent(4).propensities(bare(3))


# --- States, settings and seeds ----------------------------------------------------------------------


def linear_agents(n_worlds):
    """Agents of all kinds that need no network, each with settings of its own."""
    table = np.random.default_rng(0).random((*([n_worlds] if n_worlds else []), 9, 5))
    window = {"window": 12, "n_worlds": n_worlds}
    return {
        "random": RandomAgent(5, n_worlds, seed=3),
        "static": StaticAgent(table, seed=4),
        "linear": LinearAgent(5, 3, 2.0, n_worlds, discount=0.9),
        "ucb": LinUCBAgent(5, 3, 0.5, 2.0, **window),
        "shared ucb": LinUCBAgent(5, 3, shared=True, link="logit", **window),
        "ts": LinTSAgent(5, 3, n_worlds=n_worlds, discount=0.97),
        "shared ts": LinTSAgent(5, 3, shared=True, link="logit", **window),
        "epsilon": EpsilonGreedyAgent(5, 3, 0.3, n_worlds=n_worlds, link="logit"),
        "hybrid": HybridLinUCBAgent(5, 3, [0, 2], 0.7, n_worlds=n_worlds),
    }


def play_together(agents, n, n_worlds, seed):
    """Let agents see the same visits; returns what each chose."""
    rng, lead = np.random.default_rng(seed), (n_worlds,) if n_worlds else ()
    chosen = []
    for _ in range(n):
        features = rng.integers(3, size=(*lead, 5, 3)).astype(float)
        context = Context(rng.integers(9, size=lead), features)
        chosen.append([agent.select(context) for agent in agents])
        reward = rng.random(lead) if n_worlds else rng.random()
        for agent, arm in zip(agents, chosen[-1], strict=True):
            agent.update(context, arm, reward)
    return np.array(chosen).swapaxes(0, 1) if n else None


@pytest.mark.no_cover
@pytest.mark.parametrize("n_worlds", [None, 2])
@pytest.mark.parametrize("name", linear_agents(None))
@pytest.mark.parametrize(("n_before", "n_after"), [(0, 100), (3, 100), (60, 1100)])
def test_an_agent_restored_goes_on_to_the_last_bit(
    name, n_worlds, n_before, n_after, tmp_path
):
    agent = linear_agents(n_worlds)[name]
    play_together([agent], n_before, n_worlds, seed=1)
    agent.save(tmp_path / "agent")
    restored = Agent.load(tmp_path / "agent")
    assert type(restored) is type(agent)
    assert repr(restored) == repr(agent)
    chosen = play_together([agent, restored], n_after, n_worlds, seed=2)
    assert np.array_equal(*chosen)
    assert learnt(agent) == learnt(restored)
    if isinstance(agent, LinearAgent | HybridLinUCBAgent):
        arms = np.array([[1], [1]]) if n_worlds else np.array([1])
        for one in (agent, restored):
            one.restock(arms)
        assert learnt(agent) == learnt(restored)


def test_an_agent_that_took_arms_in_is_restored_with_their_priors():
    agent = LinUCBAgent(2, 3, window=3)
    agent.add_arms(1, mean=[1.0, 2.0, 3.0], ridge=5.0)
    restored = LinUCBAgent.from_state(agent.state())
    assert restored.n_arms == 3
    assert restored.posterior.mean[2].tolist() == [1, 2, 3]
    restored.posterior.reset()
    assert restored.posterior.prior.tolist() == [1, 1, 5]


def test_a_state_shares_nothing_with_its_agent():
    agent = linear_agents(None)["shared ts"]
    play_together([agent], 30, None, seed=1)
    state = agent.state()
    before = to_bytes(state)
    restored = LinTSAgent.from_state(state)
    play_together([agent, restored], 30, None, seed=2)
    assert to_bytes(state) == before


def the(*path):
    """Return what finds an entry of a state by a path, and the last key of it."""

    def found(state):
        for key in path[:-1]:
            state = state[key]
        return state, path[-1]

    return found


UNIFORMS = ("learned", "uniforms")


@pytest.mark.parametrize(
    ("where", "value", "words"),
    [
        (the("class"), "LinTSAgent", ["LinUCBAgent", "'LinTSAgent'"]),
        (the("class"), "claim", ["LinUCBAgent", "'claim'"]),
        (the("class"), 3, ["class", "str", "int"]),
        (the("settings", "alpha"), -1.0, ["alpha", "-1"]),
        (the("settings", "beta"), 1.0, ["settings", "beta"]),
        (the("settings", "n_features"), 4, ["A", "(5, 4, 4)", "(5, 3, 3)"]),
        (the("settings", "n_arms"), 6, ["A", "(6, 3, 3)", "(5, 3, 3)"]),
        (the("learned", "posterior"), None, ["posterior", "dict", "NoneType"]),
        (the(*UNIFORMS), None, ["uniforms", "dict"]),
        (the(*UNIFORMS, "generators"), [], ["generators", "1 entries"]),
        (the(*UNIFORMS, "generators"), [{}], ["generators", "states"]),
        (the("learned", "recent", "arm"), np.zeros(3), ["arm", "int64", "float64"]),
        (the("learned", "recent", "arm"), np.full(12, 7), ["arm", "0 … 4", "7"]),
        (the("learned", "recent", "x"), np.ones((12, 2)), ["x", "(12, 3)", "(12, 2)"]),
        (the("learned", "recent", "reward"), np.full(12, NAN), ["reward", "finite"]),
        (the("learned", "recent", "weight"), np.ones(11), ["weight", "(12,)", "(11,)"]),
        (the("learned", "recent"), 7, ["recent", "dict", "int"]),
    ],
)
def test_states_that_do_not_fit_are_refused_by_name(where, value, words):
    agent = linear_agents(None)["ucb"]
    play_together([agent], 30, None, seed=1)
    state = agent.state()
    inside, key = where(state)
    inside[key] = value
    with pytest.raises((TypeError, ValueError)) as refusal:
        LinUCBAgent.from_state(state)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


@pytest.mark.parametrize("path", [(), ("learned",), UNIFORMS, ("learned", "recent")])
def test_every_entry_of_a_state_is_needed(path):
    agent = linear_agents(None)["ucb"]
    play_together([agent], 30, None, seed=1)
    inside = agent.state()
    for key in path:
        inside = inside[key]
    for missing in inside:
        state = agent.state()
        place, _ = the(*path, missing)(state)
        del place[missing]
        with pytest.raises(ValueError, match=f"{missing}|generators"):
            Agent.from_state(state)


def test_an_agent_whose_settings_are_lost_cannot_be_written():
    class Forgetful(RandomAgent):
        def __init__(self, n_arms, mood):
            super().__init__(n_arms)

    agent = Forgetful(3, "good")
    assert repr(agent) == "Forgetful(n_arms=3)"
    with pytest.raises(TypeError, match=r"Forgetful must keep each argument.*mood"):
        agent.state()
    for mood in (np.float32(0.5), (np.int64(3), None), [RandomAgent(2)]):
        agent.mood = mood
        state = agent.state()
        assert to_bytes(state) == to_bytes(from_bytes(to_bytes(state)))
    agent.mood = object()
    with pytest.raises(TypeError, match="mood must be plain data to be saved: got ob"):
        agent.state()


def test_bytes_hold_plain_data_only():
    with pytest.raises(TypeError, match="state must hold plain data: got Generator"):
        to_bytes({"rng": np.random.default_rng(0)})
    with pytest.raises(ValueError, match=r"pickle|object"):
        to_bytes({"things": np.array([object()])})


def test_an_agent_of_ones_own_is_saved_as_it_learns(tmp_path):
    class Counting(RandomAgent):
        _learns = ("shown",)

        def __init__(self, n_arms, weights=(1, 2)):
            super().__init__(n_arms)
            self.weights, self.shown = weights, 0

        def learn(self, context, at, reward):
            self.shown += 1

    agent = Counting(5)
    play_together([agent], 20, None, seed=1)
    agent.save(tmp_path / "agent")
    assert Agent.load(tmp_path / "agent").shown == 20
    assert repr(Counting(5, (1, 3))) == "Counting(n_arms=5, weights=(1, 3))"


def test_a_repr_shows_the_settings_that_are_not_the_defaults():
    agent = LinUCBAgent(5, 3, alpha=0.5, n_worlds=2, seed=[1, 2])
    shown = "n_arms=5, n_features=3, alpha=0.5, n_worlds=2, seed=[1, 2]"
    assert repr(agent) == f"LinUCBAgent({shown})"
    assert repr(RandomAgent(3)) == "RandomAgent(n_arms=3)"
    static = StaticAgent(np.ones((9, 5)))
    assert repr(static) == "StaticAgent(predictions=<array (9, 5) 24cac2760ec8>)"
    exact = NeuralLinearAgent(3, 2, alpha=1.0, dtype=np.float64)
    shown = "n_arms=3, n_features=2, alpha=1.0, dtype='float64'"
    assert repr(exact) == f"NeuralLinearAgent({shown})"


def test_sequences_and_generators_seed_as_numbers_do():
    def sequence():
        return np.random.SeedSequence(7)

    def generator():
        return np.random.default_rng(7)

    def drawn(seed, n_worlds=None):
        uniforms = Uniforms(seed, n_worlds)
        return np.array([uniforms.next() for _ in range(3)]).T

    number = int(sequence().generate_state(1, np.uint64)[0])
    assert (drawn(sequence()) == drawn(number)).all()
    assert (drawn(generator()) == drawn(generator())).all()
    source = generator()
    assert (drawn(source) != drawn(source)).any()  # it goes on
    assert (drawn([3, sequence()], 2) == [drawn(3), drawn(sequence())]).all()
    both = sequence().spawn(2)
    assert (drawn(both, 2)[0] != drawn(both, 2)[1]).all()
    assert (drawn(sequence(), 2) == drawn(sequence())).all()  # one for all worlds
    assert (stream(sequence(), "agent").random(3) == drawn(sequence())).all()
    agent = LinTSAgent(3, 2, seed=generator())
    assert isinstance(agent.seed, int)
    agent.reseed([sequence()])
    assert agent.seed == [number]


@pytest.mark.parametrize("n_worlds", [None, 2])
@pytest.mark.parametrize("shared", [False, True])
def test_propensities_of_draws_are_those_of_one_draw_after_the_other(shared, n_worlds):
    at_once, in_turn = (
        LinTSAgent(5, 3, shared=shared, n_worlds=n_worlds, seed=8) for _ in range(2)
    )
    play_together([at_once, in_turn], 20, n_worlds, seed=1)
    lead = (n_worlds,) if n_worlds else ()
    features = np.random.default_rng(2).normal(size=(*lead, 5, 3))
    features[..., 3, :] = features[..., 1, :]
    context, allowed = Context(np.zeros(lead, int), features), np.arange(5) != 2
    allowed = np.broadcast_to(allowed, (*lead, 5))
    found = at_once.propensities(context, allowed)
    n = 100 if shared else 4_000
    drawn = np.array([in_turn.scores(context) for _ in range(n)])
    expected = greedy(np.where(allowed, drawn, -INF)).mean(axis=0)
    if shared:
        assert np.allclose(found, expected, rtol=0, atol=1e-12)
        assert (at_once.scores(context) == in_turn.scores(context)).all()
    else:  # by quadrature, without a draw
        error = np.sqrt(found * (1 - found) / n)
        assert (abs(found - expected) <= 4 * error + 1e-4).all()


def test_a_context_has_a_row_for_any_arm():
    own, rows = Context(0, [1.0, 2.0]), np.arange(6.0).reshape(3, 2)
    assert own.row((2,)).tolist() == [1, 2]
    assert Context(0, rows).row((2,)).tolist() == [4, 5]
    worlds = np.arange(2), np.array([2, 0])
    both = Context([5, 6], np.array([rows, rows + 10]))
    assert both.row(worlds).tolist() == [[4, 5], [10, 11]]
    assert Context([5, 6], rows[:2]).row(worlds).tolist() == [[0, 1], [2, 3]]


def test_a_context_that_its_owner_changes_is_checked_again():
    agent = LinUCBAgent(3, 2)
    context = Context(0, np.eye(3, 2))
    agent.select(context)
    context.features = np.eye(3)
    with pytest.raises(ValueError, match=r"context\.features must have shape \(3, 2\)"):
        agent.select(context)
