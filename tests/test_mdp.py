import numpy as np
import pytest

from zoolib import DecisionProcess


def two_steps():
    """The chapter's puzzle: glossy earns .6 and ends; plain earns .5 and leads on, where .5 waits."""
    transition = np.zeros((2, 2, 2))
    transition[0, 0, 1] = 0.5
    return DecisionProcess(transition, [[0.5, 0.6], [0.5, 0.0]], [1, 0])


def drawn(seed=0, n_states=6, n_actions=3, lead=()):
    rng = np.random.default_rng(seed)
    moves = rng.dirichlet(np.ones(n_states + 1), size=(*lead, n_states, n_actions))
    reward = rng.normal(size=(*lead, n_states, n_actions))
    return DecisionProcess(
        moves[..., :-1], reward, rng.dirichlet(np.ones(n_states), lead or None)
    )


def swept(process, policy=None, discount=1.0, sweeps=4000):
    """Q by repeated sweeps of the Bellman equation, state by state."""
    q = np.zeros_like(process.reward)
    for _ in range(sweeps):
        chosen = q.max(axis=1) if policy is None else (policy * q).sum(axis=1)
        q = process.reward + discount * process.transition @ chosen
    return q


def test_the_puzzle_comes_out_as_by_hand():
    process = two_steps()
    assert process.optimal_q() == pytest.approx(np.array([[0.75, 0.6], [0.5, 0]]))
    assert process.value([1, 0]) == pytest.approx(0.6)
    assert process.value([0, 0]) == pytest.approx(0.75)
    assert process.visits([0, 0]) == pytest.approx([1, 0.5])


@pytest.mark.parametrize("discount", [0.0, 0.7, 1.0])
def test_values_solve_the_bellman_equations(discount):
    process = drawn()
    policy = np.random.default_rng(1).dirichlet(np.ones(3), size=6)
    assert process.optimal_q(discount) == pytest.approx(swept(process, None, discount))
    found = process.policy_q(policy, discount)
    assert found == pytest.approx(swept(process, policy, discount))
    value = process.value(policy, discount)
    assert value == pytest.approx(process.start @ (policy * found).sum(axis=1))


def test_a_horizon_counts_its_steps_and_no_more():
    process = drawn()
    policy = np.eye(3)[[0, 1, 2, 0, 1, 2]]
    for horizon in (1, 2, 5):
        wanted = swept(process, policy, 0.9, horizon)
        assert process.policy_q(policy, 0.9, horizon) == pytest.approx(wanted)


def test_no_policy_beats_the_optimum():
    process = drawn(seed=2)
    best = process.optimal_q()
    for number in range(3**6):
        policy = number // 3 ** np.arange(6) % 3
        assert (process.policy_q(policy) <= best + 1e-9).all()


def test_worlds_are_solved_one_by_one():
    together = drawn(lead=(4,))
    policy = np.array([0, 1, 2, 0, 1, 2])
    for w in range(4):
        one = DecisionProcess(
            together.transition[w], together.reward[w], together.start[w]
        )
        assert together.optimal_q()[w] == pytest.approx(one.optimal_q())
        assert together.value(policy)[w] == pytest.approx(one.value(policy))
        assert together.visits(policy)[w] == pytest.approx(one.visits(policy))


def test_visits_add_up_to_the_length_of_a_session():
    process, policy = drawn(), np.zeros(6, int)
    alive, length = process.start, 0.0
    for _ in range(4000):
        length += alive.sum()
        alive = alive @ process.transition[:, 0]
    assert process.visits(policy).sum() == pytest.approx(length)


def test_sessions_that_may_never_end_need_a_discount():
    process = DecisionProcess([[[1.0], [0.5]]], [[1.0, 2.0]], [1.0])
    for ask in (process.optimal_q, lambda: process.visits([0])):
        with pytest.raises(ValueError, match="discount must be below 1 where sessions"):
            ask()
    assert process.optimal_q(0.5) == pytest.approx(np.array([[7 / 3, 8 / 3]]))
    assert process.policy_q([0], horizon=3) == pytest.approx(np.array([[3.0, 3.0]]))


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (([[[0.6, 0.6]] * 2] * 2, np.zeros((2, 2)), [1, 0]), "transition must add up"),
        (([[[-0.1, 0.6]] * 2] * 2, np.zeros((2, 2)), [1, 0]), "transition must add up"),
        ((np.zeros((2, 2, 2)), np.zeros((2, 3)), [1, 0]), "reward must have shape"),
        ((np.zeros((2, 2, 2)), np.zeros((2, 2)), [1, 1]), "start must add up to 1"),
        ((np.zeros((2, 2, 3)), np.zeros((2, 2)), [1, 0]), "transition must have shape"),
    ],
)
def test_what_is_no_process_is_refused(arguments, words):
    with pytest.raises(ValueError, match=words):
        DecisionProcess(*arguments)


@pytest.mark.parametrize(
    ("ask", "words"),
    [
        (lambda p: p.policy_q([0, 0], 1.5), r"discount must lie in \[0, 1\]: got 1.5"),
        (lambda p: p.value([0, 0], -0.1, 3), r"discount must lie in \[0, 1\]"),
        (lambda p: p.value([0, 2]), "policy must lie in 0 … 1: got 2"),
        (lambda p: p.value([[0.5, 0.4], [1, 0]]), "policy must add up to 1 in each"),
        (lambda p: p.value([0, 0], horizon=0), "horizon must be at least 1"),
    ],
)
def test_bad_questions_are_refused(ask, words):
    with pytest.raises(ValueError, match=words):
        ask(two_steps())
