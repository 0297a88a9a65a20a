"""The loop that plays sessions: worlds apart, resets that teach nothing, exact and played values."""

import numpy as np
import pytest

from zoolib import (
    DQNAgent,
    EpsilonGreedyAgent,
    LastItems,
    LinTSAgent,
    LinUCBAgent,
    OneHot,
    QLearningAgent,
    VisitAgent,
    play_sessions,
)
from zoolib.sessions.play import visit_features
from zoolib.sessions.shop import SessionSimulator


def table(n_worlds, **settings):
    return QLearningAgent(80, 10, epsilon=0.3, n_worlds=n_worlds, **settings)


def players(n_worlds, d=25):
    return {
        "table": table(n_worlds),
        "ucb": VisitAgent(LinUCBAgent(10, d, n_worlds=n_worlds)),
        "ts": VisitAgent(LinTSAgent(10, d, 0.5, n_worlds=n_worlds)),
    }


def play(agents, seeds, n=40, **options):
    return play_sessions(agents, seeds, n, **{"progress": False} | options)


@pytest.mark.parametrize("hidden", [False, True])
def test_worlds_in_step_are_those_played_one_by_one(hidden):
    names = ["ucb", "ts"] if hidden else list(players(1))
    options = {"hidden": hidden, "checkpoints": [1, 10], "n_judged": 20}

    def some(n):
        return {name: players(n, 114 if hidden else 25)[name] for name in names}

    many = play(some(3), [5, 6, 7], **options)
    for w, seed in enumerate([5, 6, 7]):
        alone = play(some(1), [seed], **options)
        np.testing.assert_array_equal(many.value[:, w], alone.value[:, 0])
        np.testing.assert_allclose(many.optimum[w], alone.optimum[0], rtol=1e-12)


def test_a_record_is_what_a_plain_loop_of_one_world_sees():
    """One world without its axis, which is reset by hand, and an agent without one."""
    seed, n = 4, 30
    history = play({"q": table(1)}, [seed], n, checkpoints=[7])
    shop, agent = SessionSimulator(seed=seed), table(None, seed=seed)
    at_7 = None
    for session in range(n):
        if session:
            agent.select(80)  # in step, an agent is asked at a reset, too
        observation, ended = shop.reset() if session else shop.observation(), False
        while not ended:
            action = agent.select(shop.state(observation))
            after, reward, ended = shop.step(action)
            agent.update(
                shop.state(observation), action, reward, shop.state(after), ended
            )
            observation = after
        if session == 6:
            at_7 = shop.process().value(agent.q.argmax(-1))
    np.testing.assert_array_equal(history.learnt[0].q[0], agent.q)
    now = shop.process().value(agent.q.argmax(-1))
    np.testing.assert_allclose(history.value[0, 0], [at_7, now], rtol=1e-12)
    best = shop.process().value(shop.process().optimal_q().argmax(-1))
    np.testing.assert_allclose(history.share("q")[0, 1], now / best)


class Recorder:
    """Shows one product, and writes down what it is told."""

    def __init__(self, n_worlds, n_states=None):
        self.told, self.n_worlds = [], n_worlds
        if n_states:
            self.n_states = n_states

    def reseed(self, seeds):
        self.seeds = seeds

    def select(self, observation):
        return np.zeros(self.n_worlds, int)

    def greedy(self, observation):
        return np.zeros(np.shape(observation)[:2], int)

    def update(self, *step, played):
        self.told.append((*step, played))

    def __deepcopy__(self, memo):
        return self


@pytest.mark.parametrize("n_states", [None, 80])
def test_agents_are_told_which_steps_were_played(n_states):
    agent = Recorder(2, n_states)
    play({"it": agent}, [1, 2], 20)
    assert agent.seeds == [1, 2]
    played = np.array([step[-1] for step in agent.told])
    ended = np.array([step[4] for step in agent.told])
    assert (ended & played).sum(0).tolist() == [20, 20]
    for w in range(2):
        last = np.flatnonzero((ended & played)[:, w])[-1]
        # The step behind an end is a reset, and nothing else is.
        np.testing.assert_array_equal(~played[1 : last + 1, w], ended[:last, w])
        assert not played[last + 1 :, w].any()
    seen = np.array([step[0] for step in agent.told])
    assert seen.shape == (len(played), 2) if n_states else (len(played), 2, 3)


def test_common_random_numbers_give_equal_agents_equal_sessions():
    history = play({"a": table(3), "b": table(3)}, [1, 2, 3])
    np.testing.assert_array_equal(history.learnt[0].q, history.learnt[1].q)


def test_values_of_fresh_sessions_agree_with_the_exact_ones():
    """The same policy, which looks at the persona alone, played and computed."""

    class Persona(Recorder):
        def greedy(self, observation):
            return np.broadcast_to(2 * observation[..., 0], observation.shape[:-1])

    seeds, n = [1, 2, 3, 4], 4000
    exact = play({"it": Persona(4)}, seeds, 1).value[0, :, -1]
    played = play({"it": Persona(4)}, seeds, 1, hidden=True, n_judged=n)
    # Clicks of a session have a standard deviation of about two.
    np.testing.assert_allclose(played.value[0, :, -1], exact, atol=4 * 2 / n**0.5)


@pytest.mark.parametrize("hidden", [False, True])
def test_deep_q_learning_plays_as_the_others_do(hidden):
    encoder = LastItems() if hidden else OneHot((4, 5, 5))

    def some(seeds):
        agent = DQNAgent(10, encoder, len(seeds), learning_starts=8, seed=seeds)
        return {"dqn": agent}

    many = play(some([5, 6]), [5, 6], 12, hidden=hidden, n_judged=9)
    alone = play(some([6]), [6], 12, hidden=hidden, n_judged=9)
    np.testing.assert_allclose(many.value[:, 1], alone.value[:, 0])


def test_resets_teach_a_bandit_nothing():
    for kind in (LinUCBAgent, LinTSAgent, EpsilonGreedyAgent):
        agent = VisitAgent(kind(10, 25, n_worlds=2))
        seen = np.array([[0, 1, 4], [3, 2, 0]])
        step = (seen, [3, 4], np.array([1, 1]), seen, np.array([False, False]))
        agent.update(*step, played=np.array([True, False]))
        posterior = agent.agent.posterior
        assert posterior.A[0, 3].sum() == 25 + 4
        np.testing.assert_array_equal(posterior.A[1], np.tile(np.eye(25), (10, 1, 1)))
        np.testing.assert_array_equal(posterior.b[1], 0)


def test_a_bandit_is_greedy_by_its_predictions():
    agent = VisitAgent(LinUCBAgent(10, 25, n_worlds=2))
    rng = np.random.default_rng(0)
    shop = SessionSimulator(seed=[1, 2])
    for _ in range(100):
        seen, action = shop.observation(), rng.integers(10, size=2)
        after, reward, ended = shop.step(action)
        agent.update(seen, action, reward, after, ended)
    seen = shop.observation()
    many = np.stack([seen, seen[::-1]], axis=1)
    best = agent.greedy(many)
    predicted = np.einsum(
        "wnd,wkd->wnk", visit_features(many), agent.agent.posterior.mean
    )
    np.testing.assert_array_equal(best, predicted.argmax(-1))
    np.testing.assert_array_equal(agent.greedy(seen), best[:, 0])


def test_features_of_a_visit():
    seen = visit_features([[3, 2, 4], [0, 0, 1], [0, 0, 0]])
    assert [row.nonzero()[0].tolist() for row in seen] == [[17, 24], [0, 21], [0, 20]]
    hidden = visit_features([2, 10, 1, 0, 0, 0, 1, 0, 0, 0, 0])
    assert hidden.nonzero()[0].tolist() == [2, 4 + 21, 26 + 2, 48, 70, 92]
    assert hidden.shape == (114,)


@pytest.mark.parametrize(
    "agent",
    [
        LinUCBAgent(10, 25, discount=0.99),
        LinUCBAgent(10, 25, window=9),
        LinUCBAgent(10, 25, shared=True),
    ],
)
def test_bandits_that_a_row_of_zeros_would_change_are_refused(agent):
    with pytest.raises(ValueError, match="agent must have a model for each arm"):
        VisitAgent(agent)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"checkpoints": [0]}, "checkpoint must be at least 1"),
        ({"checkpoints": [11]}, "checkpoint must be at most 10"),
        ({"carry_over": 2}, "carry_over must lie in"),
        ({"seeds": []}, "seeds must hold one seed a world"),
        ({"agents": {}}, "agents must hold at least one"),
        ({"agents": {"q": table(2)}}, "agent 'q' plays n_worlds=2: wanted 1"),
    ],
)
def test_arguments_are_named_when_they_do_not_fit(arguments, words):
    usual = {"agents": {"q": table(1)}, "seeds": [1], "n": 10}
    with pytest.raises(ValueError, match=words):
        play(**usual | arguments)


def test_agents_given_stay_as_they_are():
    agent = table(2)
    play({"q": agent}, [1, 2], 5)
    np.testing.assert_array_equal(agent.q, 0)
