import copy

import numpy as np
import pytest

from zoolib.agents import Context, HybridLinUCBAgent
from zoolib.models.posterior import RidgePosterior

NAN, INF = float("nan"), float("inf")
ALPHA, RIDGE, K, D, OWN = 0.7, 2.5, 4, 5, [4, 1]


def agent_for(n_worlds=None, **options):
    options = {"own": OWN, "alpha": ALPHA, "ridge": RIDGE} | options
    return HybridLinUCBAgent(K, D, n_worlds=n_worlds, **options)


def visit(step, *worlds):
    """A context, an arm that is seldom the third and never the last, and a reward."""
    rng = np.random.default_rng([step, 7])
    features = rng.normal(size=(*worlds, K, D))
    arm = rng.choice(K, p=[0.5, 0.48, 0.02, 0], size=worlds or None)
    x = np.take_along_axis(features, np.array(arm)[..., None, None], axis=-2)
    reward = x[..., 0, :].sum(axis=-1) + 0.5 * np.asarray(arm) * x[..., 0, 1]
    reward = reward + rng.normal(size=worlds or None)
    return Context(np.zeros(worlds, int), features), arm, reward


def state_of(agent):
    both = agent.common, agent.single
    return [x for p in both for x in (p.A, p.b, p.A_inv, p.mean)] + [agent.C]


def same(before, after):
    return all((x == y).all() for x, y in zip(before, after, strict=True))


class Algorithm2:
    """Li, Chu, Langford and Schapire (2010), algorithm 2, line by line, with a ridge for the 1."""

    def __init__(self):
        k, d = D, len(OWN)
        self.A0, self.b0 = RIDGE * np.eye(k), np.zeros(k)
        self.A = [RIDGE * np.eye(d) for _ in range(K)]
        self.B = [np.zeros((d, k)) for _ in range(K)]
        self.b = [np.zeros(d) for _ in range(K)]

    def scores(self, features):
        inv = np.linalg.inv
        beta = inv(self.A0) @ self.b0
        p = np.empty(K)
        for a, z in enumerate(features):
            x = z[OWN]
            theta = inv(self.A[a]) @ (self.b[a] - self.B[a] @ beta)
            s = (
                z @ inv(self.A0) @ z
                - 2 * z @ inv(self.A0) @ self.B[a].T @ inv(self.A[a]) @ x
                + x @ inv(self.A[a]) @ x
                + x
                @ inv(self.A[a])
                @ self.B[a]
                @ inv(self.A0)
                @ self.B[a].T
                @ inv(self.A[a])
                @ x
            )
            p[a] = z @ beta + x @ theta + ALPHA * np.sqrt(s)
        return p

    def update(self, features, a, r):
        inv = np.linalg.inv
        z, x = features[a], features[a][OWN]
        self.A0 += self.B[a].T @ inv(self.A[a]) @ self.B[a]
        self.b0 += self.B[a].T @ inv(self.A[a]) @ self.b[a]
        self.A[a] += np.outer(x, x)
        self.B[a] += np.outer(x, z)
        self.b[a] += r * x
        self.A0 += np.outer(z, z) - self.B[a].T @ inv(self.A[a]) @ self.B[a]
        self.b0 += r * z - self.B[a].T @ inv(self.A[a]) @ self.b[a]


def long_rows(features, blocks, n_blocks):
    """Rows of z followed by x in the arm's block and zeros in the others."""
    d = len(OWN)
    rows = np.zeros((len(features), D + n_blocks * d))
    rows[:, :D] = features
    for row, z, block in zip(rows, features, blocks, strict=True):
        row[D + block * d : D + (block + 1) * d] = z[OWN]
    return rows


def bounds(posterior, rows):
    A, b = posterior.A, posterior.b
    spread = np.linalg.solve(A, rows.T).T
    mean = rows @ np.linalg.solve(A, b)
    return mean + ALPHA * np.sqrt((rows * spread).sum(axis=1))


def test_scores_are_those_of_algorithm_2():
    agent, theirs = agent_for(), Algorithm2()
    for step in range(400):
        context, arm, reward = visit(step)
        if step in (0, 1, 5, 50, 399):
            scores = agent.scores(context)
            expected = theirs.scores(context.features)
            assert np.allclose(scores, expected, rtol=0, atol=1e-9)
            assert agent.select(context) == expected.argmax()
        agent.update(context, int(arm), float(reward))
        theirs.update(context.features, arm, reward)
    assert np.allclose(agent.common.A, theirs.A0, atol=1e-8)
    assert np.allclose(agent.common.b, theirs.b0, atol=1e-8)
    assert np.allclose(agent.single.A, theirs.A, atol=1e-8)
    assert np.allclose(agent.C, np.linalg.solve(theirs.A, theirs.B), atol=1e-9)


def test_scores_are_those_of_one_ridge_regression_on_long_rows():
    agent = agent_for()
    whole = RidgePosterior(D + K * len(OWN), RIDGE)
    for step in range(400):
        context, arm, reward = visit(step)
        rows = long_rows(context.features, range(K), K)
        if step % 40 == 0:
            expected = bounds(whole, rows)
            assert np.allclose(agent.scores(context), expected, rtol=0, atol=1e-9)
        agent.update(context, int(arm), float(reward))
        whole.update(rows[arm], reward)


def test_a_product_that_replaces_another_gets_a_block_of_its_own():
    """The shared weights keep what the old product taught; its own weights are gone with it."""
    agent, n_blocks = agent_for(), K + 5
    whole = RidgePosterior(D + n_blocks * len(OWN), RIDGE)
    block, used = list(range(K)), K
    for step in range(240):
        if step in (60, 120, 180):
            arms = [[0], [1, 0], [2, 1]][step // 60 - 1]
            agent.restock(np.array(arms))
            for arm in arms:
                block[arm], used = used, used + 1
        context, arm, reward = visit(step)
        rows = long_rows(context.features, block, n_blocks)
        if step % 10 == 0:
            expected = bounds(whole, rows)
            assert np.allclose(agent.scores(context), expected, rtol=0, atol=1e-9)
        agent.update(context, int(arm), float(reward))
        whole.update(rows[arm], reward)


def test_ties_are_broken_by_the_seed():
    same_for_all = Context(0, np.ones((K, D)))
    agent, twin, other = agent_for(seed=1), agent_for(seed=1), agent_for(seed=2)
    arms = [[one.select(same_for_all) for _ in range(60)] for one in (agent, twin)]
    assert arms[0] == arms[1] != [other.select(same_for_all) for _ in range(60)]
    assert set(arms[0]) == set(range(K))
    assert agent.propensities(same_for_all).tolist() == [0.25] * K


@pytest.mark.parametrize("n_worlds", [None, 2])
def test_arrays_may_be_used_again_after_an_update(n_worlds):
    worlds = (n_worlds,) if n_worlds else ()
    agent, undisturbed = agent_for(n_worlds), agent_for(n_worlds)
    for step in range(7):
        context, arm, reward = visit(step, *worlds)
        agent.update(copy.deepcopy(context), arm, reward)
        arm_again, reward_again = np.array(arm), np.array(reward)
        if not worlds:
            arm_again, reward_again = int(arm), float(reward)
        undisturbed.update(context, arm_again, reward_again)
        context.features[:] = 9
        if worlds:
            arm_again[:] = reward_again[:] = 0
    assert same(state_of(agent), state_of(undisturbed))


def test_scores_need_the_context_of_the_agent():
    with pytest.raises(ValueError, match=r"context\.features.*\(4, 5\).*\(4, 6\)"):
        agent_for().scores(Context(0, np.ones((K, D + 1))))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"own": [1, 1]}, ValueError, ["own", "different", "[1, 1]"]),
        ({"own": [[1, 2]]}, ValueError, ["own", "different"]),
        ({"own": 1}, ValueError, ["own", "different"]),
        ({"own": np.array([], int)}, ValueError, ["own", "different"]),
        ({"own": [D]}, ValueError, ["own", "0 … 4", "5"]),
        ({"own": [-1]}, ValueError, ["own", "-1"]),
        ({"own": [0.5]}, TypeError, ["own", "float64"]),
        ({"own": [True]}, TypeError, ["own", "bool"]),
    ],
)
def test_arguments_are_checked(arguments, error, words):
    with pytest.raises(error) as refusal:
        agent_for(**arguments)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
