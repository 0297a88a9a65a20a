"""Tabular agents and fitted Q: updates by hand, worlds in step, and the truth they converge to."""

import numpy as np
import pytest

from zoolib import QLearningAgent, SarsaAgent, fitted_q
from zoolib.agents.policies import greedy
from zoolib.world.sessions import SessionSimulator


def steps(n, n_worlds, seed=0, n_states=3, n_actions=2):
    """Random steps, some of them resets: arguments of `update`, each (n, W)."""
    rng = np.random.default_rng(seed)
    shape = (n, n_worlds)
    state, after = rng.integers(n_states, size=(2, *shape))
    action, ended = rng.integers(n_actions, size=shape), rng.random(shape) < 0.3
    after[ended] = n_states
    played = rng.random(shape) < 0.8
    state[~played] = n_states
    return state, action, rng.random(shape), after, ended, played


def play(agent, columns):
    for *step, played in zip(*columns, strict=True):
        agent.update(*step, played=played)
    return agent


def by_hand(columns, w, discount, power, value):
    """The table of one world, step by step."""
    q, n = np.zeros((4, 2)), np.zeros((4, 2))
    for s, a, r, after, ended, played in zip(*(c[:, w] for c in columns), strict=True):
        if played:
            target = r + (0 if ended else discount * value(q[after], n[after].sum()))
            n[s, a] += 1
            q[s, a] += 0.9 / n[s, a] ** power * (target - q[s, a])
    return q[:3]


@pytest.mark.parametrize(
    ("kind", "value"),
    [
        (QLearningAgent, lambda q, n: q.max()),
        (
            SarsaAgent,
            lambda q, n: (
                (1 - 0.5 / (1 + n / 4)) * q.max() + 0.5 / (1 + n / 4) * q.mean()
            ),
        ),
    ],
)
@pytest.mark.parametrize("power", [0.0, 0.7])
def test_updates_are_those_of_the_formula_in_each_world(kind, value, power):
    columns = steps(200, 3)
    agent = kind(
        3, 2, discount=0.8, epsilon=0.5, fade=4, step_size=0.9, power=power, n_worlds=3
    )
    play(agent, columns)
    for w in range(3):
        np.testing.assert_allclose(
            agent.q[w], by_hand(columns, w, 0.8, power, value), rtol=1e-12
        )


def test_without_a_worlds_axis_an_agent_learns_and_chooses_the_same():
    columns = steps(100, 1)
    many = play(QLearningAgent(3, 2, n_worlds=1, seed=[5]), columns)
    one = play(QLearningAgent(3, 2, seed=5), [column[:, 0] for column in columns])
    np.testing.assert_array_equal(one.q, many.q[0])
    for state in [0, 1, 2] * 20:
        assert one.select(state) == many.select([state])[0]
        assert one.greedy(state) == many.greedy([state])[0]


def test_it_explores_less_at_every_visit_and_breaks_ties_by_chance():
    agent = QLearningAgent(2, 4, epsilon=0.8, fade=2, seed=1)
    np.testing.assert_allclose(agent.probabilities(0), 0.25)
    for _ in range(6):
        agent.update(0, 1, 1, 2, ended=True)
    explored = 0.8 / (1 + 6 / 2)
    expected = explored / 4 + (1 - explored) * np.array([0, 1, 0, 0])
    np.testing.assert_allclose(agent.probabilities(0), expected)
    np.testing.assert_allclose(agent.probabilities([1, 1]), 0.25)
    drawn = np.bincount([agent.select(0) for _ in range(4000)], minlength=4) / 4000
    np.testing.assert_allclose(drawn, expected, atol=4 * 0.5 / 4000**0.5)


def test_greedy_takes_many_observations_of_each_world():
    agent = play(QLearningAgent(3, 2, n_worlds=2), steps(50, 2))
    states = np.array([[0, 1, 2, 3], [2, 2, 1, 0]])
    best = agent.greedy(states)
    for column in range(4):
        np.testing.assert_array_equal(best[:, column], agent.greedy(states[:, column]))
    assert best[0, 3] == 0  # behind the end, all is worth nothing


def test_an_agent_goes_on_from_its_state():
    agent = play(SarsaAgent(3, 2, n_worlds=2, initial=2.0, seed=[1, 2]), steps(50, 2))
    twin = SarsaAgent.from_state(agent.state())
    for one in (agent, twin):
        play(one, steps(20, 2, seed=1))
    np.testing.assert_array_equal(agent.q, twin.q)
    state = np.array([0, 1])
    for _ in range(20):
        np.testing.assert_array_equal(agent.select(state), twin.select(state))


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"observation": [0, 4]}, "observation must lie in 0 … 3: got 4"),
        ({"observation": [0, 3]}, "observation must be a state where a step is played"),
        ({"observation": [0]}, r"observation must have shape \(2,\)"),
        ({"action": [0, 2]}, "action must lie in 0 … 1: got 2"),
        ({"reward": [0, np.nan]}, "reward must be finite"),
        ({"next_observation": [0, -1]}, "observation must lie in 0 … 3: got -1"),
        ({"ended": [0.5, 1]}, "ended must hold booleans"),
    ],
)
def test_refused_steps_leave_the_agent_as_it_was(change, words):
    agent = play(QLearningAgent(3, 2, n_worlds=2), steps(20, 2))
    before = agent.state()["learned"]
    step = {
        "observation": [0, 1],
        "action": [0, 1],
        "reward": [0.0, 1.0],
        "next_observation": [1, 3],
        "ended": [False, True],
    }
    with pytest.raises((ValueError, TypeError), match=words):
        agent.update(**step | change)
    after = agent.state()["learned"]
    for name in ("q", "n"):
        np.testing.assert_array_equal(before[name], after[name])


@pytest.mark.parametrize(
    ("setting", "words"),
    [
        ({"discount": 1.1}, r"discount must lie in \[0, 1\]"),
        ({"epsilon": -0.1}, r"epsilon must lie in \[0, 1\]"),
        ({"step_size": 0}, r"step_size must lie in \(0, 1\]"),
        ({"power": 2}, r"power must lie in \[0, 1\]"),
        ({"fade": 0}, "fade must be positive"),
    ],
)
def test_settings_are_checked(setting, words):
    with pytest.raises(ValueError, match=words):
        QLearningAgent(3, 2, **setting)


@pytest.fixture(scope="module")
def shop():
    return SessionSimulator(seed=3)


def batch(shop, policy, n):
    """Steps of n sessions, with states as ones among zeros, and the states that came next."""
    state, action, reward = shop.play(policy, n, seed=1)
    after = np.concatenate([state[:, 1:], np.full((n, 1), 80)], axis=1)
    real = state < 80
    eye = np.eye(81)[:, :80]
    state, after = state[real], after[real]
    return (eye[state], action[real], reward[real], eye[after], after == 80), after


def test_fitted_q_is_the_truth_of_the_process_that_the_batch_shows(shop):
    """With a one for each state, all fits together solve the empirical process: counts and their shares."""
    process = shop.process()
    columns, after = batch(shop, np.full((80, 10), 0.1), 400)
    state, action = columns[0].argmax(-1), columns[1]
    n = np.zeros((80, 10))
    np.add.at(n, (state, action), 1)
    reward, moves = np.zeros((80, 10)), np.zeros((80, 10, 81))
    np.add.at(reward, (state, action), columns[2])
    np.add.at(moves, (state, action, after), 1)
    n = n + 1  # a ridge of 1 is one more step, that earns nothing and ends
    shown = type(process)(moves[..., :80] / n[..., None], reward / n, process.start)
    q = fitted_q(*columns, 10, n_iterations=300).T
    np.testing.assert_allclose(q, shown.optimal_q(), atol=1e-8)
    policy = greedy(process.reward)
    known = np.vstack([policy, np.full(10, 0.1)])[after]
    q = fitted_q(*columns, 10, policy=known, discount=0.9, n_iterations=300).T
    np.testing.assert_allclose(q, shown.policy_q(policy, 0.9), atol=1e-8)


def test_fitted_q_looks_as_far_ahead_as_it_has_fits(shop):
    columns, _ = batch(shop, np.full((80, 10), 0.1), 500)
    once = fitted_q(*columns, 10, n_iterations=1)
    x, action, reward = columns[:3]
    mine = action == 4
    ridge = np.linalg.solve(x[mine].T @ x[mine] + np.eye(80), x[mine].T @ reward[mine])
    np.testing.assert_allclose(once[4], ridge, atol=1e-12)
    np.testing.assert_allclose(
        once, fitted_q(*columns, 10, discount=0.0, n_iterations=9)
    )


def test_fitted_q_names_what_does_not_fit(shop):
    columns, _ = batch(shop, np.full((80, 10), 0.1), 20)
    with pytest.raises(ValueError, match="action must lie in 0 … 2"):
        fitted_q(*columns, 3)
    with pytest.raises(ValueError, match="discount must lie"):
        fitted_q(*columns, 10, discount=2)
    with pytest.raises(ValueError, match="next_features must have shape"):
        fitted_q(*columns[:3], columns[3][:-1], columns[4], 10)
