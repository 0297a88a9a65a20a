"""Tables of Q and fitted Q: updates by hand, worlds in step, the truth they tend to, and what is refused."""

import numpy as np
import pytest

from zoolib import DecisionProcess, QLearningAgent, SarsaAgent, fitted_q


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


def explored(q, n):
    share = 0.5 / (1 + n / 4)
    return (1 - share) * q.max() + share * q.mean()


@pytest.mark.parametrize("power", [0.0, 0.7])
@pytest.mark.parametrize(
    ("kind", "value"),
    [(QLearningAgent, lambda q, n: q.max()), (SarsaAgent, explored)],
)
def test_updates_are_those_of_the_formula_in_each_world(kind, value, power):
    columns, settings = steps(200, 3), {"discount": 0.8, "step_size": 0.9}
    agent = kind(3, 2, **settings, epsilon=0.5, fade=4, power=power, n_worlds=3)
    play(agent, columns)
    for w in range(3):
        expected = by_hand(columns, w, 0.8, power, value)
        np.testing.assert_allclose(agent.q[w], expected, rtol=1e-12)


def test_it_explores_less_at_every_visit_and_breaks_ties_by_chance():
    agent = QLearningAgent(2, 4, epsilon=0.8, fade=2, seed=1)

    def shown(state, n=4000):
        return np.bincount([agent.select(state) for _ in range(n)], minlength=4) / n

    near = {"rtol": 0, "atol": 4 * 0.5 / 4000**0.5}
    np.testing.assert_allclose(shown(0), 0.25, **near)
    for _ in range(6):
        agent.update(0, 1, 1, 2, ended=True)
    explored = 0.8 / (1 + 6 / 2)
    expected = explored / 4 + (1 - explored) * np.array([0, 1, 0, 0])
    np.testing.assert_allclose(shown(0), expected, **near)
    np.testing.assert_allclose(shown(1), 0.25, **near)


def test_greedy_takes_many_observations_of_each_world():
    agent = play(QLearningAgent(3, 2, n_worlds=2), steps(50, 2))
    states = np.array([[0, 1, 2, 3], [2, 2, 1, 0]])
    best = agent.greedy(states)
    for column in range(4):
        np.testing.assert_array_equal(best[:, column], agent.greedy(states[:, column]))
    assert best[0, 3] == 0  # behind the end, all is worth nothing


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"observation": [0, 3]}, "observation must be a state where a step is played"),
        ({"observation": [0]}, r"observation must have shape \(2,\)"),
        ({"next_observation": [0, -1]}, "observation must lie in 0 … 3: got -1"),
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


def batch(n=400):
    """Steps of one world, with states as ones among zeros: arguments of `fitted_q`."""
    state, action, reward, after, ended, played = (c[:, 0] for c in steps(n, 1))
    columns = np.eye(4)[state], action, reward, np.eye(4)[after], ended
    return [column[played] for column in columns]


@pytest.mark.parametrize("discount", [0.9, 1.0])
def test_fitted_q_is_the_truth_of_the_process_that_the_batch_shows(discount):
    x, action, reward, after, ended = columns = batch()
    shown = np.einsum("ns,nk->nsk", x[:, :3], np.eye(2)[action])
    n = 1 + shown.sum(axis=0)  # a ridge of 1 is one more step, that earns nothing
    moves = np.einsum("nsk,nt->skt", shown, after[:, :3] * ~ended[:, None])
    earned = np.einsum("nsk,n->sk", shown, reward)
    process = DecisionProcess(moves / n[..., None], earned / n, np.full(3, 1 / 3))
    q = fitted_q(*columns, 2, discount, n_iterations=300)[:, :3].T
    np.testing.assert_allclose(q, process.optimal_q(discount), atol=1e-8)


def test_fitted_q_looks_as_far_ahead_as_it_has_fits():
    x, action, reward, after, ended = columns = batch()
    x = columns[0] = x + np.random.default_rng(1).normal(size=x.shape)
    once, twice = (fitted_q(*columns, 2, 0.9, 3.0, n) for n in (1, 2))
    then = reward + 0.9 * np.where(ended, 0, (after @ once.T).max(axis=1))
    for found, target in ((once, reward), (twice, then)):
        for a, mine in enumerate((action == 0, action == 1)):
            ridge = x[mine].T @ x[mine] + 3 * np.eye(4)
            np.testing.assert_allclose(ridge @ found[a], x[mine].T @ target[mine])


@pytest.mark.parametrize(
    ("place", "value", "words"),
    [
        (1, np.full(4, 2), "action must lie in 0 … 1"),
        (3, np.zeros((3, 2)), "next_features must have shape"),
        (4, np.zeros(4), "ended must hold booleans"),
        (6, 2.0, "discount must lie"),
        (7, 0.0, "ridge must be positive"),
        (8, 0, "n_iterations must be at least 1"),
    ],
)
def test_fitted_q_names_what_does_not_fit(place, value, words):
    x, whole = np.zeros((4, 2)), np.zeros(4, int)
    given = [x, whole, np.zeros(4), x, np.zeros(4, bool), 2, 1.0, 1.0, 9]
    given[place] = value
    with pytest.raises(ValueError, match=words):
        fitted_q(*given)
