import numpy as np
import pytest
from scipy import stats

from zoolib import run_experiment
from zoolib._support.generators import stream
from zoolib.agents import (
    Agent,
    Context,
    GuardedAgent,
    LinTSAgent,
    LinUCBAgent,
    NeuralLinearAgent,
    OracleAgent,
    RandomAgent,
    RevealedContext,
    StaticAgent,
)

NAN, INF = float("nan"), float("inf")
K, N_USERS = 5, 6
SEGMENTS, GROUPS = np.array([0, 1, 2, 0, 1, 2]), np.array([0, 0, 1, 2, 1])
TASTES = np.random.default_rng(0).random((N_USERS, K))


def bare(user, k=K):
    return Context(user, np.ones((*np.shape(user), k, 1)))


def table(n_worlds=None):
    if n_worlds is None:
        return StaticAgent(TASTES)
    return StaticAgent(np.random.default_rng(1).random((n_worlds, N_USERS, K)))


def visitors(n, *worlds):
    return np.random.default_rng(5).integers(N_USERS, size=(n, *worlds))


def agree(frequency, probability, n):
    error = np.sqrt(probability * (1 - probability) / n)
    return (abs(frequency - probability) <= 4.5 * error + 1e-12).all()


def one_hot(arm, k=K):
    return np.eye(k)[arm]


@pytest.mark.no_cover
@pytest.mark.parametrize("segments", [None, SEGMENTS, SEGMENTS.tolist()])
def test_each_segment_has_a_floor_of_its_own(segments):
    floor = 0.2 if segments is None else [0.0, 0.2, 1.0]
    agent = GuardedAgent(table(), floor, segment_of_user=segments, seed=4)
    for user in range(N_USERS):
        share = 0.2 if segments is None else floor[SEGMENTS[user]]
        expected = (1 - share) * one_hot(TASTES[user].argmax()) + share / K
        given = agent.propensities(bare(user))
        assert np.allclose(given, expected, rtol=1e-12)
        arms = [agent.select(bare(user)) for _ in range(1000)]
        assert all(type(arm) is int for arm in arms)
        assert agree(one_hot(arms).mean(axis=0), expected, 1000)
        assert (agent.scores(bare(user)) == TASTES[user]).all()


class Book:
    """What the caps of one world must come to, kept as a plain list of visits."""

    def __init__(self, cap, segments, groups, window):
        self.cap, self.segments, self.groups = cap, segments, groups
        self.window, self.visits = window, []

    def shown(self, segment):
        recent = self.visits[-self.window :]
        return [group for its, group in recent if its == segment]

    def forbidden(self, user):
        segment = self.segments[user]
        shown = self.shown(segment)
        if self.cap[segment] == 1:
            return np.zeros(K, bool)
        most = self.cap[segment] * len(shown)
        return np.array([shown.count(group) >= most for group in self.groups])

    def allowed(self, user):
        forbidden = self.forbidden(user)
        return ~forbidden if not forbidden.all() else np.ones(K, bool)

    def add(self, user, arm):
        self.visits.append((self.segments[user], self.groups[arm]))


@pytest.mark.no_cover
@pytest.mark.parametrize("window", [7, 60, 1000])
@pytest.mark.parametrize("cap", [[0.5, 0.4, 1.0], [0.75, 0.34, 0.2], [1.0, 1.0, 1.0]])
def test_caps_say_what_is_allowed(cap, window):
    options = {"segment_of_user": SEGMENTS, "group_of_arm": GROUPS, "window": window}
    agent = GuardedAgent(table(), [0.1, 0.3, 0.0], cap, **options)
    book = Book(cap, SEGMENTS, GROUPS, window)
    freed = 0
    for user in visitors(400).tolist():
        allowed = book.allowed(user)
        freed += book.forbidden(user).all()
        assert (agent.allowed(bare(user)) == allowed).all()
        best = np.where(allowed, TASTES[user], -1).argmax()
        floor = [0.1, 0.3, 0.0][SEGMENTS[user]]
        expected = (1 - floor) * one_hot(best) + floor * allowed / allowed.sum()
        assert np.allclose(agent.propensities(bare(user)), expected, rtol=1e-12)
        arm = agent.select(bare(user))
        assert allowed[arm]
        agent.update(bare(user), arm, 0.0)
        book.add(user, arm)
        counts = [np.bincount(book.shown(s), minlength=3) for s in range(3)]
        assert np.array_equal(agent.exposure, counts)
    assert freed > 0 or cap[0] == 1


@pytest.mark.no_cover
@pytest.mark.parametrize("window", [9, 100, 1000])
@pytest.mark.parametrize("cap", [0.34, 0.5, 0.7])
@pytest.mark.parametrize("floor", [0.0, 0.3])
def test_no_group_exceeds_its_cap_by_more_than_one_visit(cap, floor, window):
    agent = GuardedAgent(
        StaticAgent([[0.9, 0.8, 0.2, 0.1]]),
        floor,
        cap,
        group_of_arm=[0, 0, 1, 2],
        window=window,
    )
    groups = []
    for _ in range(1200):
        context = bare(0, 4)
        left = agent.allowed(context)
        arm = agent.select(context)
        agent.update(context, arm, 0)
        groups.append([0, 0, 1, 2][arm])
        recent = np.bincount(groups[-window:], minlength=3)
        if not left.all():
            assert recent.max() <= cap * recent.sum() + 1
    # A group that everybody likes best has its cap, but for what the floor gives others, and no more.
    share = np.mean(np.array(groups) == 0)
    assert share < cap + 0.02 + 1 / window
    assert share > cap - 0.02 or floor > 0


def test_each_arm_is_a_group_of_its_own_if_nothing_is_said():
    agent = GuardedAgent(StaticAgent([[0.9, 0.8, 0.1]]), cap=0.5)
    for _ in range(1000):
        agent.update(bare(0, 3), agent.select(bare(0, 3)), 1.0)
    assert agent.group_of_arm.tolist() == [0, 1, 2]
    assert agent.exposure.shape == (1, 3)
    assert abs(agent.exposure[0] - [500, 500, 0]).max() <= 1


def test_where_all_arms_are_forbidden_all_are_allowed():
    agent = GuardedAgent(StaticAgent([[0.9, 0.1]]), cap=0.3)
    assert agent.allowed(bare(0, 2)).tolist() == [True, True]  # nobody came yet
    for arm, allowed in ((0, [False, True]), (1, [True, True])):
        agent.update(bare(0, 2), arm, 1.0)
        assert agent.allowed(bare(0, 2)).tolist() == allowed
    assert agent.propensities(bare(0, 2)).tolist() == [1, 0]


def test_an_agent_that_may_show_one_group_always_does():
    agent = GuardedAgent(StaticAgent([[0.1, 0.9]]), cap=1.0)
    for _ in range(5):
        assert agent.allowed(bare(0, 2)).all()
        assert agent.select(bare(0, 2)) == 1
        agent.update(bare(0, 2), 1, 0)
    assert agent.exposure.tolist() == [[0, 5]]


def test_caps_yield_to_what_a_caller_allows():
    agent = GuardedAgent(StaticAgent([[0.9, 0.8, 0.1]]), floor=0.3, cap=0.5)
    agent.update(bare(0, 3), 0, 1.0)
    assert agent.allowed(bare(0, 3)).tolist() == [False, True, True]
    given = agent.propensities(bare(0, 3), [True, False, True])
    assert given.tolist() == [0, 0, 1]
    given = agent.propensities(bare(0, 3), [True, True, False])
    assert given.tolist() == [0, 1, 0]
    given = agent.propensities(bare(0, 3), [True, False, False])
    assert given.tolist() == [1, 0, 0]


def test_guards_may_stand_above_guards():
    inner = GuardedAgent(StaticAgent([[0.9, 0.8]]), cap=0.5)
    outer = GuardedAgent(inner, cap=0.5, group_of_arm=[0, 1], window=2)
    shown = []
    for _ in range(40):
        arm = outer.select(bare(0, 2))
        outer.update(bare(0, 2), arm, 1.0)
        shown.append(arm)
    assert sorted(np.bincount(shown)) == [20, 20]
    assert inner.exposure.sum() == 40


def test_guards_in_step_play_as_if_alone_each_with_labels_of_its_own():
    seeds = [8, 3, 5]
    segments, groups = (
        np.stack([np.roll(labels, w) for w in range(3)])
        for labels in (SEGMENTS, GROUPS)
    )
    options = {"floor": [0.1, 0.5, 0.0], "cap": [0.5, 0.6, 1.0], "window": 30}

    def guarded(agent, at):
        labels = {"segment_of_user": segments[at], "group_of_arm": groups[at]}
        return GuardedAgent(agent, **labels, seed=8, **options)

    together = guarded(LinTSAgent(K, 2, n_worlds=3), slice(None))
    together.reseed(seeds)
    alone = [guarded(LinTSAgent(K, 2), w) for w in range(3)]
    for agent, seed in zip(alone, seeds, strict=True):
        agent.reseed(seed)
    for step, users in enumerate(visitors(80, 3)):
        features = np.random.default_rng(step).normal(size=(3, K, 2))
        context = Context(users, features)
        before = together.allowed(context)
        arm = together.select(context)
        reward = np.random.default_rng([step, 1]).random(3)
        for w, agent in enumerate(alone):
            one = context.of_world(w)
            assert (agent.allowed(one) == before[w]).all()
            assert agent.select(one) == arm[w]
            agent.update(one, int(arm[w]), float(reward[w]))
        together.update(context, arm, reward)
        for w, agent in enumerate(alone):
            assert np.array_equal(together.exposure[w], agent.exposure)
        if step == 40:
            arms = np.array([[0], [3], [2]])
            together.restock(arms)
            for agent, gone in zip(alone, arms, strict=True):
                agent.restock(gone)
    means = [agent.agent.posterior.mean for agent in alone]
    assert np.allclose(together.agent.posterior.mean, means)


def test_a_guard_and_its_agent_have_luck_of_their_own():
    agent = GuardedAgent(RandomAgent(2, seed=3), seed=3)
    drawn = [[one._uniforms.next() for _ in range(50)] for one in (agent, agent.agent)]
    assert drawn[0] == stream(3, "guard").random(50).tolist()
    assert drawn[1] == stream(3, "agent").random(50).tolist()
    agent.reseed(9)
    drawn = [[one._uniforms.next() for _ in range(50)] for one in (agent, agent.agent)]
    assert drawn[0] == stream(9, "guard").random(50).tolist()
    assert drawn[1] == stream(9, "agent").random(50).tolist()


def test_what_a_thompson_agent_draws_says_nothing_of_what_the_floor_draws():
    """Over many seeds, arms that lost the draw are shown as often as the floor says."""
    context, n = Context(0, [[1.0], [2.0]]), 3000
    agent, lost = GuardedAgent(LinTSAgent(2, 1, shared=True), floor=0.1), 0
    for seed in range(n):
        agent.reseed(seed)
        given = agent.propensities(context, n_draws=1)
        lost += given[agent.draw(given)] == pytest.approx(0.05)
    assert stats.binomtest(lost, n, 0.05).pvalue > 0.001


@pytest.mark.parametrize(
    "make",
    [
        lambda **worlds: LinTSAgent(K, 2, discount=0.9, **worlds),
        lambda **worlds: LinTSAgent(K, 2, shared=True, link="logit", **worlds),
        lambda **worlds: NeuralLinearAgent(
            K, 2, policy="thompson", embedding_dim=3, hidden=(4,), **worlds
        ),
    ],
)
def test_arms_of_a_guarded_thompson_agent_follow_the_propensities_logged(make):
    n = 8
    inner = make(n_worlds=n)
    options = {"segment_of_user": SEGMENTS, "group_of_arm": GROUPS, "window": 50}
    agent = GuardedAgent(inner, [0.05, 0.2, 0.5], [0.6, 0.5, 0.9], **options)
    agent.reseed(range(n))
    surprise, variance = np.zeros(K), np.zeros(K)
    rng = np.random.default_rng(2)
    for users in visitors(150, n):
        context = Context(users, rng.normal(size=(n, K, 2)))
        allowed = agent.allowed(context)
        given = agent.propensities(context, n_draws=10)
        floor = np.array([0.05, 0.2, 0.5])[SEGMENTS[users]]
        least = floor / allowed.sum(axis=1)
        assert np.allclose(given.sum(axis=1), 1)
        assert (given[~allowed] == 0).all()
        assert (given >= least[:, None] * allowed * (1 - 1e-12)).all()
        arm = agent.draw(given)
        assert (given[np.arange(n), arm] > 0).all()
        surprise += (one_hot(arm) - given).sum(axis=0)
        variance += (given * (1 - given)).sum(axis=0)
        agent.update(context, arm, rng.random(n) < 0.3)
    assert (abs(surprise) < 4 * np.sqrt(variance)).all()


@pytest.mark.parametrize("n", [None, 4])
def test_decide_chooses_as_select_and_says_how_probable_that_was(n):
    names = ["leash", ("bowl", 2), "hay", 7, "cage"]
    chosen, decided = (GuardedAgent(LinTSAgent(names, 2), 0.3) for _ in range(2))
    for step in range(30):
        x = np.random.default_rng(step).normal(size=(2,) if n is None else (n, 2))
        offered = names[::-2] if step % 2 else None
        context = Context(None if n is None else list(range(n)), x, offered)
        policy = decided.propensities(context)
        arm, propensity = decided.decide(context)
        assert np.array_equal(arm, chosen.select(context))
        if n is None:
            assert type(propensity) is float
            assert propensity == policy[names.index(arm)]
        else:
            at = [names.index(one) for one in arm]
            assert propensity.tolist() == policy[range(n), at].tolist()
        for one in (chosen, decided):
            one.update(context, arm, 1.0 if n is None else np.ones(n))


def test_decide_in_worlds_in_step_gives_each_its_propensity():
    guard = GuardedAgent(StaticAgent(np.eye(3)[None].repeat(2, axis=0)), 0.3)
    for _ in range(20):
        arm, propensity = guard.decide(bare(np.array([1, 2]), 3))
        expected = np.where(arm == [1, 2], 0.8, 0.1)
        np.testing.assert_allclose(propensity, expected)


@pytest.mark.parametrize("uniform", [0.0, 0.35, np.nextafter(1, 0)])
@pytest.mark.parametrize(
    ("given", "arms"),
    [
        ([0.0, 0.0, 1.0, 0.0], {2}),
        ([0.0, 0.4, 0.0, 0.6], {1, 3}),
        ([0.1] * 9 + [0.1, 0.0], {0, 3, 9}),
    ],
)
def test_an_arm_without_probability_is_never_drawn(given, arms, uniform):
    agent = GuardedAgent(RandomAgent(len(given)))
    agent._uniforms.next = lambda n: np.float64(uniform)
    assert agent.draw(np.array(given)) in arms
    both = GuardedAgent(RandomAgent(len(given), 2))
    both._uniforms.next = lambda n: np.array([uniform, uniform])
    assert set(both.draw(np.array([given] * 2))) <= arms


def test_every_reward_reaches_the_agent():
    guarded, plain = GuardedAgent(LinUCBAgent(K, 2), 0.5), LinUCBAgent(K, 2)
    for step in range(40):
        context = Context(0, np.random.default_rng(step).normal(size=(K, 2)))
        arm = guarded.select(context)
        for agent in (guarded, plain):
            agent.update(context, arm, 0.1 * step)
            if step == 20:
                agent.restock(np.array([1]))
        assert np.array_equal(guarded.scores(context), plain.scores(context))
    assert np.array_equal(guarded.agent.posterior.A, plain.posterior.A)


def test_an_oracle_may_be_guarded():
    assert GuardedAgent(OracleAgent(3)).needs_truth
    assert not GuardedAgent(RandomAgent(3)).needs_truth
    agent = GuardedAgent(OracleAgent(3), 0.3)
    given = agent.propensities(RevealedContext(0, np.ones((3, 1)), [0.1, 0.5, 0.2]))
    assert given == pytest.approx([0.1, 0.8, 0.1])
    agents = {"guarded": GuardedAgent(OracleAgent(50))}
    history = run_experiment(agents, [0, 1], n_steps=20, progress=False)
    assert np.allclose(history.expected_reward, history.optimal_reward)


@pytest.mark.parametrize("ask", ["propensities", "select", "allowed"])
def test_a_visitor_nobody_knows_is_refused(ask):
    agent = GuardedAgent(RandomAgent(K), segment_of_user=SEGMENTS)
    with pytest.raises(ValueError, match=r"context\.user_id must lie in 0 … 5: got 7"):
        getattr(agent, ask)(bare(7))


@pytest.mark.parametrize("ask", ["propensities", "select"])
def test_no_guard_chooses_among_arms_it_does_not_have(ask):
    for agent in (RandomAgent(K), LinUCBAgent(K, 1)):
        with pytest.raises(ValueError, match=r"context\.features must have shape"):
            getattr(GuardedAgent(agent), ask)(bare(0, K - 1))


@pytest.mark.parametrize("allowed", [[False] * K, [True], [[True] * K]])
def test_a_choice_among_no_arms_is_refused(allowed):
    agent = GuardedAgent(RandomAgent(K), segment_of_user=SEGMENTS)
    with pytest.raises(ValueError, match=r"allowed must (leave an arm|hold booleans)"):
        agent.propensities(bare(0), allowed)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"floor": -0.1}, ValueError, ["floor", "[0, 1]", "-0.1"]),
        ({"floor": 1.1}, ValueError, ["floor", "[0, 1]"]),
        ({"floor": NAN}, ValueError, ["floor", "nan"]),
        ({"floor": [0.1, 0.2]}, ValueError, ["floor", "shape (3,)"]),
        ({"floor": [[0.1, 0.2, 0.3]]}, ValueError, ["floor", "shape (3,)"]),
        ({"floor": [0.1, NAN, 0.3]}, ValueError, ["floor", "[0, 1]"]),
        ({"cap": 0.0}, ValueError, ["cap must be above 0"]),
        ({"cap": [0.5, 0.0, 0.5]}, ValueError, ["cap must be above 0"]),
        ({"cap": 1.5}, ValueError, ["cap", "[0, 1]", "1.5"]),
        ({"cap": NAN}, ValueError, ["cap", "nan"]),
        ({"cap": [0.5]}, ValueError, ["cap", "shape (3,)"]),
        ({"window": 0}, ValueError, ["window"]),
        ({"window": 2.0}, TypeError, ["window"]),
        ({"seed": -1}, ValueError, ["seed"]),
        ({"segment_of_user": 3}, ValueError, ["segment_of_user", "()"]),
        ({"segment_of_user": [0.0]}, TypeError, ["segment_of_user", "float64"]),
        ({"segment_of_user": [0, -1]}, ValueError, ["segment_of_user", "-1"]),
        (
            {"segment_of_user": np.array([], int)},
            ValueError,
            ["segment_of_user", "n_users", "at least 1"],
        ),
        ({"segment_of_user": [[0, 1]]}, ValueError, ["segment_of_user", "(1, 2)"]),
        ({"group_of_arm": 0}, ValueError, ["group_of_arm", "(5,)", "()"]),
        ({"group_of_arm": [0, 1]}, ValueError, ["group_of_arm", "(5,)", "(2,)"]),
        ({"group_of_arm": [[0] * K]}, ValueError, ["group_of_arm", "(1, 5)"]),
        ({"group_of_arm": [0.5] * K}, TypeError, ["group_of_arm", "float64"]),
        ({"group_of_arm": [-1] * K}, ValueError, ["group_of_arm", "-1"]),
    ],
)
def test_arguments_are_checked(arguments, error, words):
    usual = {"segment_of_user": SEGMENTS, "group_of_arm": GROUPS}
    with pytest.raises(error) as refusal:
        GuardedAgent(RandomAgent(K), **(usual | arguments))
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


@pytest.mark.parametrize("name", ["segment_of_user", "group_of_arm"])
def test_labels_must_be_for_all_worlds_or_each(name):
    for wrong in (np.zeros((2, K), int), np.zeros((1, 3, K), int)):
        with pytest.raises(ValueError, match=f"{name} must have shape"):
            GuardedAgent(RandomAgent(K, 3), **{name: wrong})


@pytest.mark.parametrize(
    ("recent", "words"),
    [
        (np.zeros((3, 2, 1), int), "recent must have shape"),
        (np.zeros((8, 2)), "recent must have .*int64"),
        (np.zeros((9, 2), int), "recent must have shape"),
        (np.full((8, 2), 3), r"recent must lie in 0 … 2"),
        ([1], "recent"),
    ],
)
def test_a_window_that_does_not_fit_is_refused(recent, words):
    agent = GuardedAgent(
        table(), segment_of_user=SEGMENTS, group_of_arm=GROUPS, window=8
    )
    state = agent.state()
    learned = state["learned"] | {"recent": recent}
    with pytest.raises(ValueError, match=words):
        Agent.from_state(state | {"learned": learned})
