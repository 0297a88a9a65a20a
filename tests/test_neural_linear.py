import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from zoolib import Churn, ZooplusSimulator, run_experiment
from zoolib._support.generators import stream
from zoolib._support.state import from_bytes, to_bytes
from zoolib.agents import Agent, Context, RandomAgent
from zoolib.agents.neural import NeuralAgent
from zoolib.agents.neural_linear import EmbeddingWithHead, NeuralLinearAgent
from zoolib.models.networks import seeded
from zoolib.models.posterior import RidgePosterior

NAN, INF = float("nan"), float("inf")
ALPHA, RIDGE, K, D = 0.7, 2.5, 6, 3
SMALL = {
    "embedding_dim": 4,
    "hidden": (5,),
    "train_every": 5,
    "batch_size": 8,
    "dtype": np.float64,
}


def agent_for(n_worlds=None, **options):
    return NeuralLinearAgent(K, D, ALPHA, RIDGE, n_worlds, **(SMALL | options))


def visit(step, *worlds):
    """A context with lookalikes, an arm and a reward that depends on both and on luck."""
    rng = np.random.default_rng([step, 99])
    features = rng.normal(size=(*worlds, K - 2, D))
    features = features[..., rng.integers(K - 2, size=K), :]
    arm = rng.integers(K, size=worlds)
    x = np.take_along_axis(features, arm[..., None, None], axis=-2)[..., 0, :]
    reward = (rng.random(worlds) < 1 / (1 + np.exp(-3 * x[..., 0]))).astype(int)
    context = Context(np.zeros(worlds, int), features)
    return (context, arm, reward) if worlds else (context, int(arm), int(reward))


def of_world(played, w):
    context, arm, reward = played
    return context.of_world(w), int(arm[w]), int(reward[w])


def weights_of(agent):
    return [p.detach().numpy().copy() for p in agent.network.parameters()]


def state_of(agent):
    """All that decides what an agent does next, but for its luck."""
    posterior = agent.posterior
    return [
        *weights_of(agent),
        *(array for array in agent.memory.newest(agent.buffer_size)),
        *(posterior.A, posterior.b, posterior.A_inv, posterior.mean, posterior.prior),
        np.array([agent.n_updates, len(agent.memory)]),
        np.array(str(agent._optimiser.state_dict())),
    ]


def same(before, after):
    return len(before) == len(after) and all(map(np.array_equal, before, after))


class Slow:
    """One world's agent again, from the formulas: loops, solves from scratch and gradients by hand."""

    def __init__(self, agent, seed):
        self.weights = weights_of(agent)
        self.moments = [(np.zeros_like(w), np.zeros_like(w)) for w in self.weights]
        self.steps = 0
        self.rows, self.rewards = [], []
        self.luck = stream(seed, "replay")
        self.joined, self.rebuild, self.head = agent.joined, agent.rebuild, agent.head
        self.discount, self.window = agent.discount, agent.window or agent.buffer_size
        self.buffer_size, self.n_batches = agent.buffer_size, agent.n_batches
        self.optimiser, self.learning_rate = agent.optimiser, agent.learning_rate
        d = 4 + (D if self.joined else 0)
        self.A, self.b = RIDGE * np.eye(d), np.zeros(d)

    def embed(self, x):
        w1, w2, b1, b2 = self.weights[:4]
        z = np.maximum(x @ w1 + b1, 0) @ w2 + b2
        return np.hstack((z, x)) if self.joined else z

    def scores(self, features):
        scores = []
        for z in self.embed(features):
            spread = np.sqrt(z @ np.linalg.solve(self.A, z))
            scores.append(z @ np.linalg.solve(self.A, self.b) + ALPHA * spread)
        return scores

    def update(self, x, reward):
        seen = self.embed(x[None])[0]  # the embedding that the choice was made by
        self.rows.append(x)
        self.rewards.append(reward)
        trained = len(self.rows) % 5 == 0 and len(self.rows) >= 8
        if trained:
            for _ in range(self.n_batches):
                self.train()
        if trained and self.rebuild:
            self.A, self.b = RIDGE * np.eye(len(self.A)), np.zeros(len(self.A))
            n = min(len(self.rows), self.window)
            for age in range(n):
                z = self.embed(self.rows[-1 - age][None])[0]
                self.A += self.discount**age * np.outer(z, z)
                self.b += self.discount**age * self.rewards[-1 - age] * z
        else:
            self.A = self.discount * self.A + np.outer(seen, seen)
            self.b = self.discount * self.b + reward * seen

    def train(self):
        held = min(len(self.rows), self.buffer_size)
        # Each place of the memory holds the newest of the rows that were written there.
        newest = [max(range(i, len(self.rows), self.buffer_size)) for i in range(held)]
        drawn = np.array(newest)[self.luck.integers(held, size=8)]
        x, r = np.array(self.rows)[drawn], np.array(self.rewards)[drawn]
        w1, w2, b1, b2, v, c = self.weights
        hidden = x @ w1 + b1
        z = np.maximum(hidden, 0) @ w2 + b2
        if self.head == "explicit":
            slope, predicted = v[:, 0], (z @ v + c)[:, 0]
        else:
            theta = np.linalg.solve(self.A, self.b)
            slope = theta[:4]
            predicted = z @ slope + (x @ theta[4:] if self.joined else 0)
        error = 2 * (predicted - r) / 8
        to_z = np.outer(error, slope)
        to_hidden = (to_z @ w2.T) * (hidden > 0)
        gradients = [x.T @ to_hidden, np.maximum(hidden, 0).T @ to_z]
        gradients += [to_hidden.sum(axis=0)[None], to_z.sum(axis=0)[None]]
        if self.head == "explicit":
            gradients += [(z.T @ error)[:, None], error.sum()[None, None]]
        self.steps += 1
        for place, g in enumerate(gradients):
            if self.optimiser == "adam":
                m, s = self.moments[place]
                m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2
                self.moments[place] = m, s
                m, s = m / (1 - 0.9**self.steps), s / (1 - 0.999**self.steps)
                g = m / (np.sqrt(s) + 1e-8)
            self.weights[place] = self.weights[place] - self.learning_rate * g


OPTIONS = {
    "plain": {},
    "kept, discounted": {"discount": 0.95},
    "joined": {"joined": True},
    "rebuild": {"rebuild": True},
    "window": {"rebuild": True, "window": 7},
    "rebuild, discounted": {"rebuild": True, "discount": 0.9},
    "posterior's head": {"head": "posterior"},
    "posterior's head, joined": {"head": "posterior", "joined": True},
    "sgd": {"optimiser": "sgd", "n_batches": 3, "learning_rate": 0.1},
    "small memory": {"rebuild": True, "buffer_size": 20},
    "everything": {
        "joined": True,
        "rebuild": True,
        "window": 15,
        "discount": 0.95,
        "head": "posterior",
        "n_batches": 2,
        "learning_rate": 0.05,
    },
}


@pytest.mark.parametrize("name", OPTIONS)
def test_scores_are_those_of_a_slow_computation(name):
    agent = agent_for(seed=3, **OPTIONS[name])
    slow = Slow(agent, seed=3)
    before = weights_of(agent)
    for step in range(60):
        context, arm, reward = visit(step)
        expected = slow.scores(context.features)
        scores = agent.scores(context)
        assert scores.shape == (K,)
        assert np.allclose(scores, expected, rtol=0, atol=1e-8)
        agent.update(context, arm, reward)
        slow.update(context.features[arm], reward)
    assert np.allclose(agent.posterior.A, slow.A, rtol=0, atol=1e-8)
    assert np.allclose(agent.posterior.b, slow.b, rtol=0, atol=1e-8)
    if "rebuild" in OPTIONS[name]:
        assert agent.posterior.prior == RIDGE
    moved = [abs(a - b).max() for a, b in zip(before, weights_of(agent), strict=True)]
    trained = 4 if "head" in OPTIONS[name] else 6
    assert min(moved[:trained]) > 1e-3
    assert moved[trained:] == [0] * (6 - trained)


def test_select_shows_the_arm_of_the_best_score():
    agent = agent_for()
    for step in range(30):
        played = visit(step)
        assert agent.scores(played[0])[agent.select(played[0])] == pytest.approx(
            agent.scores(played[0]).max()
        )
        agent.update(*played)


@pytest.mark.parametrize(
    "name", ["plain", "kept, discounted", "sgd", "everything", "thompson"]
)
def test_worlds_in_step_go_as_if_alone(name):
    options = (OPTIONS | {"thompson": {"policy": "thompson"}})[name]
    seeds = [4, 7, 4]
    together = agent_for(3, seed=seeds, **options)
    alone = [agent_for(seed=seed, **options) for seed in seeds]
    for step in range(60):
        played = visit(step, 3)
        scores, arm = together.scores(played[0]), together.select(played[0])
        assert scores.shape == (3, K)
        assert arm.shape == (3,)
        for w, agent in enumerate(alone):
            mine = of_world(played, w)
            assert np.allclose(agent.scores(mine[0]), scores[w], rtol=0, atol=1e-8)
            assert agent.select(mine[0]) == arm[w]
            agent.update(*mine)
        together.update(*played)
    for w, agent in enumerate(alone):
        for a, b in zip(weights_of(agent), weights_of(together), strict=True):
            assert np.allclose(a, b[w], rtol=0, atol=1e-8)
        assert np.allclose(agent.posterior.A, together.posterior.A[w], atol=1e-7)


def test_worlds_of_one_seed_that_see_the_same_do_the_same():
    agent = agent_for(2, seed=5, policy="thompson")
    for step in range(20):
        context, arm, reward = visit(step)
        twice = Context([0, 0], np.stack([context.features] * 2))
        scores = agent.scores(twice)
        assert (scores[0] == scores[1]).all()
        agent.update(twice, [arm] * 2, [reward] * 2)


@pytest.mark.parametrize("joined", [False, True])
def test_thompson_draws_have_the_posteriors_mean_and_covariance(joined):
    agent = agent_for(seed=1, policy="thompson", joined=joined)
    for step in range(12):
        agent.update(*visit(step))
    context = Context(0, np.random.default_rng(0).normal(size=(K, D)))
    n = 6000
    draws = np.array([agent.scores(context) for _ in range(n)])
    z = agent.embed(context.features)
    mean = z @ np.linalg.solve(agent.posterior.A, agent.posterior.b)
    covariance = ALPHA**2 * z @ np.linalg.solve(agent.posterior.A, z.T)
    variance = np.diag(covariance)
    off = draws - mean
    assert (abs(off.mean(axis=0)) < 4 * np.sqrt(variance / n)).all()
    # One draw of the weights scores all arms: they vary together.
    error = np.sqrt((covariance**2 + np.outer(variance, variance)) / n)
    assert (abs(off.T @ off / n - covariance) < 4 * error).all()
    lag = (off[1:] * off[:-1]).mean(axis=0)
    assert (abs(lag) < 4 * variance / np.sqrt(n)).all()


def test_thompson_with_no_noise_predicts():
    agents = [
        NeuralLinearAgent(K, D, 0.0, RIDGE, policy=policy, **SMALL)
        for policy in ("thompson", "ucb")
    ]
    for step in range(12):
        for agent in agents:
            agent.update(*visit(step))
    scores = [agent.scores(visit(50)[0]) for agent in agents]
    assert np.allclose(*scores)
    assert np.allclose(
        scores[1], agents[1].posterior.predict(agents[1].embed(visit(50)[0].features))
    )


@pytest.mark.parametrize("policy", ["ucb", "thompson"])
def test_lookalikes_are_scored_alike(policy):
    agent = agent_for(policy=policy, dtype=np.float32)
    for step in range(15):
        agent.update(*visit(step))
        context = visit(100 + step)[0]
        scores = agent.scores(context)
        for i in range(K):
            alike = (context.features == context.features[i]).all(axis=1)
            assert (scores[alike] == scores[i]).all()


def test_single_precision_stays_close():
    single, double = agent_for(dtype=np.float32), agent_for()
    assert NeuralLinearAgent(K, D).dtype == np.float32
    assert single.posterior.A.dtype == np.float64
    assert {w.dtype for w in weights_of(single)} == {np.dtype(np.float32)}
    for step in range(40):
        played = visit(step)
        scores = single.scores(played[0])
        assert np.allclose(scores, double.scores(played[0]), atol=1e-3)
        for agent in (single, double):
            agent.update(*played)
    assert not np.array_equal(scores, double.scores(played[0]))


@pytest.mark.parametrize("rebuild", [False, True])
def test_training_comes_every_so_often_once_the_memory_holds_a_batch(rebuild):
    agent = agent_for(batch_size=12, buffer_size=14, rebuild=rebuild)
    trained, rebuilt = [], []
    train, build = agent.train, agent.posterior.rebuild
    agent.train = lambda: (trained.append(agent.n_updates + 1), train())
    agent.posterior.rebuild = lambda *a: (
        rebuilt.append(agent.n_updates + 1),
        build(*a),
    )
    before = weights_of(agent)
    for step in range(32):
        agent.update(*visit(step))
        assert agent.n_updates == step + 1
        assert len(agent.memory) == min(step + 1, 14)
        now = weights_of(agent)
        assert same(before, now) == ((step + 1) not in (15, 20, 25, 30))
        before = now
    assert trained == [15, 20, 25, 30]
    assert rebuilt == (trained if rebuild else [])


@pytest.mark.parametrize("n_worlds", [None, 2])
@pytest.mark.parametrize(
    ("options", "n"),
    [({}, 40), ({"window": 11}, 11), ({"buffer_size": 17}, 17), ({"window": 50}, 40)],
)
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_a_rebuild_is_a_sum_over_the_newest_rows(options, n, discount, n_worlds):
    agent = agent_for(n_worlds, rebuild=True, discount=discount, **options)
    worlds = () if n_worlds is None else (n_worlds,)
    for step in range(40):
        played = visit(step, *worlds)
        agent.update(*played)
    x, reward = agent.memory.newest(n)
    z = agent.embed(x)
    at = (*np.indices(worlds), played[1])
    assert np.array_equal(x[..., -1, :], played[0].features[at])
    assert z.shape == (*worlds, n, 4)
    A, b = RIDGE * np.eye(4), 0
    for age in range(n):
        row = z[..., -1 - age, :]
        A = A + discount**age * row[..., :, None] * row[..., None, :]
        b = b + discount**age * reward[..., -1 - age, None] * row
    assert np.allclose(agent.posterior.A, A)
    assert np.allclose(agent.posterior.b, b)


@pytest.mark.parametrize("joined", [False, True])
def test_the_posteriors_head_trains_the_body_towards_the_rewards(joined):
    agent = agent_for(
        head="posterior",
        joined=joined,
        optimiser="sgd",
        learning_rate=1e-2,
        train_every=20,
        batch_size=20,
    )
    for step in range(19):
        agent.update(*visit(step))
    theta = np.linalg.solve(agent.posterior.A, agent.posterior.b)
    batches, sample = [], agent.memory.sample
    agent.memory.sample = lambda n: batches.append(sample(n)) or batches[-1]
    weights = weights_of(agent)

    def loss(weights):
        (x, reward) = batches[0]
        w1, w2, b1, b2 = weights[:4]
        z = np.maximum(x @ w1 + b1, 0) @ w2 + b2
        z = np.hstack((z, x)) if joined else z
        return ((z @ theta - reward) ** 2).mean()

    agent.update(*visit(19))
    after = weights_of(agent)
    assert loss(after) < loss(weights)
    for place in range(4):
        step = (weights[place] - after[place]) / 1e-2
        for at in np.ndindex(step.shape):
            shifted = [[w.copy() for w in weights] for _ in range(2)]
            for sign, those in zip((1, -1), shifted, strict=True):
                those[place][at] += sign * 1e-6
            gradient = (loss(shifted[0]) - loss(shifted[1])) / 2e-6
            assert step[at] == pytest.approx(gradient, abs=1e-7)
    assert same(weights[4:], after[4:])


def trained_agent(n, n_worlds=None, **options):
    agent = agent_for(n_worlds, **options)
    for step in range(n):
        agent.update(*visit(step, *([n_worlds] if n_worlds else [])))
    return agent


def assert_refused(agent, played, error, words):
    """The update is refused, and nothing is left of it."""
    probe = visit(500, *([agent.n_worlds] if agent.n_worlds else []))[0]
    before, scores = state_of(agent), agent.scores(probe)
    with pytest.raises(error, match=words):
        agent.update(*played)
    assert same(before, state_of(agent))
    assert np.array_equal(agent.scores(probe), scores)


def spoil_the_loss(agent, value):
    losses = agent.losses
    agent.losses = lambda x, reward: losses(x, reward) * value


def spoil_the_second_batch(agent, value):
    losses, batches = agent.losses, []

    def spoilt(x, reward):
        batches.append(x)
        return losses(x, reward) * (value if len(batches) == 2 else 1)

    agent.losses = spoilt


def spoil_one_world(agent, value):
    losses = agent.losses
    agent.losses = lambda x, reward: losses(x, reward) * torch.tensor([1.0, value])


def spoil_the_gradient(agent, value):
    losses = agent.losses

    def spoilt(x, reward):
        honest = losses(x, reward)
        return honest + (honest - honest.detach()).sqrt()

    agent.losses = spoilt


@pytest.mark.parametrize(
    ("spoil", "value", "n_worlds"),
    [
        (spoil_the_loss, NAN, None),
        (spoil_the_loss, INF, 2),
        (spoil_the_second_batch, INF, None),
        (spoil_the_second_batch, NAN, 2),
        (spoil_one_world, NAN, 2),
        (spoil_one_world, INF, 2),
        (spoil_the_gradient, None, None),
        (spoil_the_gradient, None, 2),
    ],
)
@pytest.mark.parametrize(
    "options", [{"rebuild": True}, {"optimiser": "sgd"}, {"head": "posterior"}]
)
@pytest.mark.parametrize("n", [9, 19])
def test_a_training_that_fails_leaves_everything_as_it_was(
    n, options, spoil, value, n_worlds
):
    # With 19 rows before, a memory of 15 loses one to the row that is refused.
    agent = trained_agent(n, n_worlds, n_batches=2, buffer_size=15, **options)
    spoil(agent, value)
    played = visit(n, *([n_worlds] if n_worlds else []))
    assert_refused(agent, played, FloatingPointError, "must be finite")
    del agent.losses
    agent.update(*played)  # and it goes on
    assert agent.n_updates == n + 1


def reckless_agent(**options):
    """An agent whose first step of training, at the tenth update, leads out of all numbers."""
    reckless = {"optimiser": "sgd", "learning_rate": 1e30, "dtype": np.float32}
    return trained_agent(9, **(reckless | options))


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_learning_rate_without_measure_is_noticed():
    # By the next loss, by the embeddings in a rebuild, or else by the next scores.
    assert_refused(reckless_agent(n_batches=3), visit(9), FloatingPointError, "losses")
    rebuilding = reckless_agent(rebuild=True)
    assert_refused(rebuilding, visit(9), FloatingPointError, "embeddings")
    agent = reckless_agent()
    agent.update(*visit(9))
    with pytest.raises(FloatingPointError, match=r"must be finite.*learning rate"):
        agent.select(visit(10)[0])


def test_embeddings_beyond_single_precision_are_refused():
    agent = trained_agent(12, dtype=np.float32)
    agent.network.body.weights[0].data *= 1e25
    context = Context(0, np.full((K, D), 9e14))
    assert_refused(agent, (context, 0, 1.0), FloatingPointError, "finite")
    with pytest.raises(FloatingPointError, match="embeddings must be finite"):
        agent.scores(context)
    with pytest.raises(ValueError, match="features must be finite and below"):
        Context(0, np.full((K, D), 1e39))


@pytest.mark.parametrize(
    ("place", "value", "error", "word"),
    [
        (0, Context(0, np.ones((K, D + 1))), ValueError, r"context\.features"),
        (0, Context(0, np.ones((K + 1, D))), ValueError, r"context\.features"),
        (0, Context([0], np.ones((1, K, D))), ValueError, r"context\.features"),
        (1, K, ValueError, "arm"),
        (1, -1, ValueError, "arm"),
        (1, 1.0, TypeError, "arm"),
        (1, [1], (TypeError, ValueError), "arm"),
        (2, NAN, ValueError, "reward"),
        (2, -INF, ValueError, "reward"),
        (2, "1", TypeError, "reward"),
        (2, [1.0], (TypeError, ValueError), "reward"),
    ],
)
@pytest.mark.parametrize("n", [3, 14])
def test_a_refused_reward_changes_nothing(n, place, value, error, word):
    played = list(visit(n))
    played[place] = value
    assert_refused(trained_agent(n), played, error, word)


@pytest.mark.parametrize(
    ("place", "value", "error", "word"),
    [
        (0, Context(0, np.ones((K, D))), ValueError, r"context\.features"),
        (0, Context([0] * 3, np.ones((3, K, D))), ValueError, r"context\.features"),
        (1, 1, ValueError, "arm"),
        (1, [0, K], ValueError, "arm"),
        (1, [0, 1, 2], ValueError, "arm"),
        (2, 1.0, ValueError, "reward"),
        (2, [1.0, NAN], ValueError, "reward"),
        (2, [[1.0], [0.0]], ValueError, "reward"),
    ],
)
def test_a_refused_reward_of_one_world_changes_nothing_in_any(
    place, value, error, word
):
    played = list(visit(14, 2))
    played[place] = value
    assert_refused(trained_agent(14, 2), played, error, word)
    with pytest.raises(ValueError, match=r"context\.features"):
        trained_agent(1, 2).scores(Context(0, np.ones((K, D))))


def test_arrays_may_be_used_again_after_an_update():
    agent, undisturbed = agent_for(2, rebuild=True), agent_for(2, rebuild=True)
    for step in range(20):
        context, arm, reward = visit(step, 2)
        undisturbed.update(context, arm, reward)
        features, arm, reward = context.features.copy(), arm.copy(), reward.copy()
        agent.update(Context([0, 0], features), arm, reward)
        features[:] = arm[:] = reward[:] = 0
    assert same(state_of(agent), state_of(undisturbed))


@pytest.mark.parametrize("n_worlds", [None, 2])
def test_the_same_seed_gives_the_same_agent_and_another_seed_another(n_worlds):
    def history(seed, reseed=None):
        agent = agent_for(n_worlds, seed=seed, policy="thompson")
        if reseed is not None:
            agent.scores(visit(99, *worlds)[0])
            agent.reseed(reseed)
        scores = []
        for step in range(30):
            played = visit(step, *worlds)
            scores.append(agent.scores(played[0]))
            agent.update(*played)
        return np.array(scores)

    worlds = () if n_worlds is None else (n_worlds,)
    assert (history(1) == history(1)).all()
    assert (history(1) != history(2)).all()
    # Reseeded before the first update, an agent is as one born with that seed.
    assert (history(2, reseed=1) == history(1)).all()


def test_a_new_seed_after_the_first_update_changes_luck_and_not_what_was_learnt():
    agent = trained_agent(14, seed=1)
    before, optimiser = state_of(agent), agent._optimiser
    agent.reseed(8)
    assert same(before, state_of(agent))
    assert agent._optimiser is optimiser
    twin = trained_agent(14, seed=1)
    slow_draws = stream(8, "replay").integers(14, size=8)
    x, _ = agent.memory.newest(14)
    assert np.array_equal(agent.memory.sample(8)[0], x[slow_draws])
    agent.reseed(8)
    for one in (agent, twin):
        one.update(*visit(14))
    assert not same(weights_of(agent), weights_of(twin))
    uniforms = stream(8, "agent").random(3)
    assert [agent._uniforms.next() for _ in range(3)] == uniforms.tolist()


def initial(seed):
    """Weights drawn by one seed."""
    network = EmbeddingWithHead((D, 5, 4), seeded(seed)).double()
    return [p.detach().numpy() for p in network.parameters()]


def test_the_seed_of_the_network_decides_its_first_weights_whatever_is_reseeded():
    agent = agent_for(seed=1, network_seed=5)
    assert same(weights_of(agent), initial(5))
    agent.reseed(2)
    assert same(weights_of(agent), initial(5))
    assert same(weights_of(agent_for(seed=5)), initial(5))
    other_luck = agent_for(seed=5)
    agent.update(*visit(0))
    other_luck.update(*visit(0))
    assert agent._uniforms.next() == stream(2, "agent").random()
    assert other_luck._uniforms.next() == stream(5, "agent").random()


@pytest.mark.parametrize(
    ("seeds", "expected"),
    [
        ({"seed": 3}, [3, 3]),
        ({"seed": [3, 4]}, [3, 4]),
        ({"seed": [3, 4], "network_seed": 6}, [6, 6]),
        ({"seed": 3, "network_seed": [6, 7]}, [6, 7]),
        ({"seed": 3, "network_seed": 0}, [0, 0]),
    ],
)
def test_each_world_has_a_network_of_its_own_seed(seeds, expected):
    agent = agent_for(2, **seeds)
    for w, seed in enumerate(expected):
        assert same([weight[w] for weight in weights_of(agent)], initial(seed))


@pytest.mark.parametrize("n_worlds", [None, 2])
@pytest.mark.parametrize("n", [0, 14])
def test_copies_go_their_own_ways(n, n_worlds):
    worlds = () if n_worlds is None else (n_worlds,)
    agent = trained_agent(n, n_worlds, rebuild=True)
    before = state_of(agent)
    twin = copy.deepcopy(agent)
    assert same(before, state_of(twin))
    for step in range(n, n + 20):
        twin.update(*visit(step, *worlds))
    assert same(before, state_of(agent))
    assert not same(weights_of(agent), weights_of(twin))
    for step in range(n, n + 20):
        agent.update(*visit(step, *worlds))
    assert same(state_of(agent), state_of(twin))


def make_world(seed):
    return ZooplusSimulator(10, 20, seed)


@pytest.mark.parametrize("n_worlds", [3, None], ids=["in step", "copied"])
@pytest.mark.parametrize("policy", ["ucb", "thompson"])
def test_the_same_experiment_gives_the_same_history(policy, n_worlds):
    agent = NeuralLinearAgent(10, 9, n_worlds=n_worlds, policy=policy, **SMALL)
    before = state_of(agent)
    first, second = (
        run_experiment(
            {"agent": agent},
            [4, 7, 9],
            120,
            churn=Churn(50),
            make_world=make_world,
            progress=False,
        )
        for _ in range(2)
    )
    assert np.array_equal(first.arm, second.arm)
    assert np.array_equal(first.reward, second.reward)
    assert same(before, state_of(agent))
    alone = run_experiment(
        {"agent": NeuralLinearAgent(10, 9, policy=policy, **SMALL)},
        [7],
        120,
        churn=Churn(50),
        make_world=make_world,
        progress=False,
    )
    assert np.array_equal(alone.arm[0, 0], first.arm[0, 1])


@pytest.mark.parametrize("head", ["explicit", "posterior"])
def test_it_learns_what_customers_like(head):
    agents = {
        "neural": NeuralLinearAgent(
            50, 9, n_worlds=4, head=head, joined=True, rebuild=True, train_every=20
        ),
        "random": RandomAgent(50, n_worlds=4),
    }
    history = run_experiment(agents, range(4), 1200, progress=False)
    neural, random = history.expected_reward[:, :, 600:].mean(axis=-1)
    oracle = history.optimal_reward[0, :, 600:].mean(axis=-1)
    assert (neural > (random + oracle) / 2).all()


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"n_arms": 0}, ValueError, "n_arms"),
        ({"n_features": 0}, ValueError, "n_features"),
        ({"n_features": 2.0}, TypeError, "n_features"),
        ({"n_worlds": 0}, ValueError, "n_worlds"),
        ({"n_worlds": 2.0}, TypeError, "n_worlds"),
        ({"alpha": -0.1}, ValueError, "alpha"),
        ({"alpha": NAN}, ValueError, "alpha"),
        ({"ridge": 0.0}, ValueError, "ridge"),
        ({"embedding_dim": 0}, ValueError, "embedding_dim"),
        ({"hidden": (5, 0)}, ValueError, "hidden"),
        ({"hidden": (5.0,)}, TypeError, "hidden"),
        ({"head": "none"}, ValueError, r"head.*\['explicit', 'posterior'\].*'none'"),
        ({"policy": "greedy"}, ValueError, r"policy.*\['ucb', 'thompson'\].*'greedy'"),
        ({"optimiser": "rmsprop"}, ValueError, r"optimiser.*\['adam', 'sgd'\].*'rms"),
        ({"discount": 0.0}, ValueError, "discount"),
        ({"discount": 1.1}, ValueError, "discount"),
        ({"train_every": 0}, ValueError, "train_every"),
        ({"n_batches": 0}, ValueError, "n_batches"),
        ({"n_batches": 1.0}, TypeError, "n_batches"),
        ({"batch_size": 0}, ValueError, "batch_size"),
        ({"buffer_size": 0}, ValueError, "buffer_size"),
        (
            {"buffer_size": 63, "batch_size": 64},
            ValueError,
            "buffer_size must be at least batch_size=64: got 63",
        ),
        ({"learning_rate": 0.0}, ValueError, "learning_rate"),
        ({"learning_rate": INF}, ValueError, "learning_rate"),
        ({"dtype": np.float16}, TypeError, "dtype.*float16"),
        ({"dtype": int}, TypeError, "dtype.*int64"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": [1, 2]}, ValueError, "seed.*1 worlds.*2"),
        ({"network_seed": -1}, ValueError, "network_seed"),
        ({"network_seed": 0.5}, TypeError, "network_seed"),
        ({"network_seed": [1, 2]}, ValueError, "network_seed.*1 worlds.*2"),
        (
            {"network_seed": [1, 2], "n_worlds": 3},
            ValueError,
            "network_seed.*3 worlds.*2",
        ),
        ({"window": 10}, ValueError, r"window.*rebuild=True.*window=10, rebuild=False"),
        ({"window": 0, "rebuild": True}, ValueError, "window"),
        ({"window": 9.0, "rebuild": True}, TypeError, "window"),
        (
            {"window": 101, "rebuild": True, "buffer_size": 100},
            ValueError,
            "window.*at most buffer_size=100.*window=101",
        ),
        ({"windows": 9}, TypeError, "windows"),
    ],
)
def test_arguments_are_checked(arguments, error, words):
    with pytest.raises(error, match=words):
        NeuralLinearAgent(**({"n_arms": K, "n_features": D} | arguments))


def test_the_largest_window_is_the_memory():
    agent = NeuralLinearAgent(K, D, rebuild=True, window=100, buffer_size=100)
    assert agent.window == 100
    assert NeuralLinearAgent(K, D, buffer_size=100).window is None
    assert NeuralLinearAgent(K, D, buffer_size=64).batch_size == 64


def test_networks_may_be_of_any_depth():
    for hidden in ((), (7,), (7, 6, 5)):
        agent = agent_for(hidden=hidden)
        assert len(agent.network.body.weights) == len(hidden) + 1
        for step in range(12):
            agent.update(*visit(step))
        assert agent.scores(visit(20)[0]).shape == (K,)


def test_one_seed_in_a_list_serves_an_agent_without_a_worlds_axis():
    listed, plain = agent_for(seed=[7]), agent_for(seed=7)
    assert same(weights_of(listed), weights_of(plain))
    assert listed.scores(visit(0)[0]).shape == (K,)


def test_the_prediction_of_a_network_is_linear_in_its_embedding():
    network = EmbeddingWithHead((D, 5, 4), seeded([1, 2]))
    x = torch.randn(2, 7, D, generator=torch.Generator().manual_seed(0))
    z = network.body(x)
    assert z.shape == (2, 7, 4)
    predicted = z @ network.head.weights[0] + network.head.biases[0]
    assert torch.allclose(network(x), predicted)


class Squares(NeuralAgent):
    """A family that says how rows are scored, and nothing else."""

    def score_rows(self, x):
        return (x**2).sum(axis=-1)


def test_a_family_needs_a_score_only():
    options = {"train_every": 5, "batch_size": 8}

    agent = Squares(K, D, hidden=(4,), **options)
    assert isinstance(agent, Agent)
    before = weights_of(agent)
    for step in range(10):
        context, arm, reward = visit(step)
        best = (context.features.astype(np.float32) ** 2).sum(axis=1)
        assert best[agent.select(context)] == best.max()
        agent.update(context, arm, reward)
    assert not same(before, weights_of(agent))
    bare = NeuralAgent(K, D)
    with pytest.raises(NotImplementedError):
        bare.scores(visit(0)[0])


@pytest.mark.parametrize("n_worlds", [None, 2])
@pytest.mark.parametrize("rebuild", [False, True])
def test_an_agent_trains_when_it_is_told_to(rebuild, n_worlds):
    worlds = () if n_worlds is None else (n_worlds,)
    asked = agent_for(n_worlds, train_every=None, rebuild=rebuild, n_batches=3)
    scheduled = agent_for(n_worlds, train_every=20, rebuild=rebuild, n_batches=3)
    before = weights_of(asked)
    for step in range(20):
        asked.update(*visit(step, *worlds))
        scheduled.update(*visit(step, *worlds))
    assert same(weights_of(asked), before)
    asked.train()
    # As in a scheduled training; the reward that brought it was taken in before.
    assert same(weights_of(asked), weights_of(scheduled))
    assert np.allclose(asked.posterior.A, scheduled.posterior.A)


def test_an_empty_memory_trains_nobody():
    agent = agent_for(train_every=None, rebuild=True)
    before = state_of(agent)
    with pytest.raises(ValueError, match=r"memory must hold rows.*none"):
        agent.train()
    assert same(before, state_of(agent))


@pytest.mark.parametrize("spoil", [spoil_the_loss, spoil_the_second_batch])
def test_a_training_that_was_asked_for_is_whole_or_not_at_all(spoil):
    agent = trained_agent(14, rebuild=True, n_batches=2)
    spoil(agent, NAN)
    before = state_of(agent)
    with pytest.raises(FloatingPointError):
        agent.train()
    assert same(before, state_of(agent))
    del agent.losses
    embed = agent.embed

    def refuse(x):
        raise FloatingPointError("embeddings")

    agent.embed = refuse
    with pytest.raises(FloatingPointError, match="embeddings"):
        agent.train()  # the rebuild fails, after the steps
    agent.embed = embed
    assert same(before, state_of(agent))


def table_of(n, n_worlds=None, seed=0):
    """Rows and rewards that depend on them."""
    worlds = () if n_worlds is None else (n_worlds,)
    rng = np.random.default_rng(seed)
    x = rng.normal(size=(*worlds, n, D))
    return x, (x[..., 0] > 0) * 1.0


@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_a_fit_takes_every_row_once_in_each_epoch(discount):
    agent, (x, reward) = agent_for(seed=3, discount=discount), table_of(24)
    slow, rng = Slow(agent, seed=3), np.random.default_rng(3)
    slow.rows, slow.rewards = list(x), list(reward)
    batches = [rows for _ in range(4) for rows in np.split(rng.permutation(24), 3)]
    for batch in batches:
        slow.luck = SimpleNamespace(integers=lambda held, size, rows=batch: rows)
        slow.train()
    agent.fit(x, reward, epochs=4)
    for a, b in zip(weights_of(agent), slow.weights, strict=True):
        assert np.allclose(a, b, rtol=0, atol=1e-9)
    z, counts = slow.embed(x), discount ** np.arange(24)[::-1]
    assert np.allclose(agent.posterior.A, RIDGE * np.eye(4) + (counts * z.T) @ z)
    assert np.allclose(agent.posterior.b, (counts * reward) @ z)
    assert (agent.n_updates, len(agent.memory)) == (24, 0)


def test_worlds_are_fitted_as_if_alone():
    (x, reward), seeds = table_of(21, 3), [4, 7, 4]
    together = agent_for(3, seed=seeds)
    together.fit(x, reward, epochs=2, batch_size=6)
    for w, seed in enumerate(seeds):
        alone = agent_for(seed=seed)
        alone.fit(x[w], reward[w], 2, 6)
        for a, b in zip(weights_of(alone), weights_of(together), strict=True):
            assert np.allclose(a, b[w], rtol=0, atol=1e-9)
        assert np.allclose(alone.posterior.mean, together.posterior.mean[w])
        context = visit(3, 3)[0]
        assert np.allclose(
            alone.scores(context.of_world(w)), together.scores(context)[w]
        )


def test_a_fitted_agent_keeps_its_weights_when_it_is_reseeded():
    agent = agent_for()
    agent.fit(*table_of(30))
    before = weights_of(agent)
    agent.reseed(8)
    assert same(before, weights_of(agent))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"x": np.ones((5, D + 1))}, ValueError, "x and reward"),
        ({"x": np.ones((4, D))}, ValueError, "x and reward"),
        ({"x": np.ones((0, D)), "reward": []}, ValueError, "n at least 1"),
        ({"x": np.ones(D)}, ValueError, "x and reward"),
        ({"x": np.ones((1, 5, D))}, ValueError, "x and reward"),
        ({"x": np.full((5, D), NAN)}, ValueError, "finite"),
        ({"reward": [1, 0, 1, 0, INF]}, ValueError, "finite"),
        ({"epochs": 0}, ValueError, "epochs"),
        ({"epochs": 1.5}, TypeError, "epochs"),
        ({"batch_size": 0}, ValueError, "batch_size"),
    ],
)
def test_a_refused_table_changes_nothing(arguments, error, words):
    agent = trained_agent(12)
    before = state_of(agent)
    table = {"x": np.ones((5, D)), "reward": np.ones(5)} | arguments
    with pytest.raises(error, match=words):
        agent.fit(**table)
    assert same(before, state_of(agent))


def test_a_fit_that_fails_leaves_everything_as_it_was():
    agent = trained_agent(12)
    spoil_the_second_batch(agent, NAN)
    before = state_of(agent)
    with pytest.raises(FloatingPointError, match="losses"):
        agent.fit(*table_of(30))
    assert same(before, state_of(agent))
    assert agent.n_updates == 12


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("n_worlds", [None, 2])
def test_propensities_are_shares_of_the_draws_that_scores_would_make(n_worlds, joined):
    worlds = () if n_worlds is None else (n_worlds,)
    options = {"policy": "thompson", "joined": joined, "dtype": np.float32}
    agent = trained_agent(12, n_worlds, **options)
    context = visit(50, *worlds)[0]
    twin = copy.deepcopy(agent)
    assert agent.n_draws == 100
    allowed = np.ones((*worlds, K), bool)
    allowed[..., 2] = False
    share = agent.propensities(context, allowed)
    drawn = np.array([twin.scores(context) for _ in range(100)])
    best = np.where(allowed, drawn, -INF)
    best = best >= best.max(axis=-1, keepdims=True) - 1e-9
    expected = (best / best.sum(axis=-1, keepdims=True)).mean(axis=0)
    assert np.allclose(share, expected)
    assert (share[..., 2] == 0).all()
    # The draws that follow are those that would have followed.
    assert np.array_equal(agent._uniforms.next(), twin._uniforms.next())


FAMILIES = {
    "ucb": {"rebuild": True, "window": 11, "discount": 0.95, "joined": True},
    "thompson": {"policy": "thompson", "network_seed": 5, "dtype": np.float32},
    "sgd": {"optimiser": "sgd", "head": "posterior", "train_every": 1},
    "never": {"train_every": None},
}


@pytest.mark.parametrize("n_worlds", [None, 2])
@pytest.mark.parametrize("n", [0, 23])
@pytest.mark.parametrize("name", FAMILIES)
def test_a_restored_agent_goes_on_as_the_one_it_was_made_from(name, n, n_worlds):
    worlds = () if n_worlds is None else (n_worlds,)
    agent = trained_agent(n, n_worlds, buffer_size=15, **FAMILIES[name])
    state = agent.state()
    twin = Agent.from_state(from_bytes(to_bytes(state)))
    assert to_bytes(state) == to_bytes(twin.state())
    assert repr(twin) == repr(agent)
    for step in range(n, n + 20):
        played = visit(step, *worlds)
        assert np.array_equal(agent.scores(played[0]), twin.scores(played[0]))
        assert np.array_equal(agent.select(played[0]), twin.select(played[0]))
        for one in (agent, twin):
            one.update(*played)
    agent.train()
    twin.train()
    assert to_bytes(agent.state()) == to_bytes(twin.state())
    assert to_bytes(agent.state()) != to_bytes(state)
    # The state is a copy.
    again = NeuralLinearAgent.from_state(state)
    assert to_bytes(again.state()) == to_bytes(state)


def test_a_saved_agent_is_loaded(tmp_path):
    agent = trained_agent(14)
    agent.save(tmp_path / "agent")
    context = visit(60)[0]
    loaded = NeuralLinearAgent.load(tmp_path / "agent")
    assert np.array_equal(loaded.scores(context), agent.scores(context))


def without(table, name):
    return {key: value for key, value in table.items() if key != name}


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda learned: {"weights": {}}, "body.weights.0"),
        (lambda learned: {"weights": [1]}, "weights must be of type dict"),
        (lambda learned: {"moments": {}}, "body.weights.0"),
        (
            lambda learned: {
                "moments": learned["moments"] | {"head.biases.0": {"exp_avg": 1}}
            },
            "step",
        ),
        (
            lambda learned: {
                "moments": learned["moments"]
                | {"head.biases.0": {"step": np.zeros(2, np.float32)}}
            },
            r"step must have shape \(\)",
        ),
        (
            lambda learned: {
                "weights": learned["weights"] | {"head.biases.0": np.zeros((1, 2))}
            },
            r"head.biases.0 must have shape \(1, 1\)",
        ),
        (
            lambda learned: {
                "weights": learned["weights"] | {"head.biases.0": np.full((1, 1), NAN)}
            },
            "head.biases.0 must be finite",
        ),
        (lambda learned: {"memory": without(learned["memory"], "added")}, "added"),
        (lambda learned: {"memory": learned["memory"] | {"added": 9}}, "held|shape"),
        (lambda learned: {"n_updates": -1}, "n_updates"),
        (lambda learned: {"posterior": {}}, "learned"),
        (
            lambda learned: {"posterior": RidgePosterior(3).state()},
            r"A must have shape \(4, 4\).* got \(3, 3\)",
        ),
    ],
)
def test_a_state_that_does_not_fit_is_refused_by_name(change, words):
    state = trained_agent(14).state()
    spoilt = state | {"learned": state["learned"] | change(state["learned"])}
    with pytest.raises(ValueError, match=words):
        Agent.from_state(spoilt)


@pytest.mark.parametrize("name", ["weights", "moments", "memory", "n_updates"])
def test_a_state_must_be_complete(name):
    state = trained_agent(14).state()
    with pytest.raises(ValueError, match=f"entry '{name}'"):
        Agent.from_state(state | {"learned": without(state["learned"], name)})


def test_settings_are_shown():
    agent = NeuralLinearAgent(50, 9, 0.7, train_every=None, hidden=(8, 4), n_worlds=2)
    assert repr(agent) == (
        "NeuralLinearAgent(n_arms=50, n_features=9, alpha=0.7, n_worlds=2, hidden=(8, 4), "
        "train_every=None)"
    )
