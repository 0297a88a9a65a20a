import copy
from types import SimpleNamespace

import numpy as np
import pytest
import torch

from tests import neural
from tests.neural import (
    ALPHA,
    EVERYTHING,
    INF,
    NAN,
    RIDGE,
    D,
    K,
    PlainAdam,
    assert_refused,
    same,
    spoil_the_second_batch,
    state_of,
    visit,
    weights_of,
)
from zoolib._support.generators import stream
from zoolib.agents import Agent, Context
from zoolib.agents.neural_linear import EmbeddingWithHead, NeuralLinearAgent
from zoolib.models.networks import seeded
from zoolib.models.posterior import RidgePosterior


def agent_for(n_worlds=None, **options):
    return neural.agent_for("neural-linear", n_worlds, **options)


def trained_agent(n, n_worlds=None, **options):
    return neural.trained(agent_for(n_worlds, **options), n)


class Slow:
    """One world's agent again, from the formulas: loops, solves from scratch and gradients by hand."""

    def __init__(self, agent, seed):
        self.weights = weights_of(agent)
        self.adam = PlainAdam(self.weights)
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
        if self.optimiser == "adam":
            self.weights = self.adam.moved(self.weights, gradients, self.learning_rate)
            return
        for place, g in enumerate(gradients):
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
    "everything": EVERYTHING,
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
    sample, build = agent.memory.sample, agent.posterior.rebuild
    agent.memory.sample = lambda n: (trained.append(agent.n_updates + 1), sample(n))[1]
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


def reckless_agent(**options):
    """An agent whose first step of training, at the tenth update, leads out of all numbers."""
    reckless = {"optimiser": "sgd", "learning_rate": 1e30, "dtype": np.float32}
    return trained_agent(9, **(reckless | options))


@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_learning_rate_without_measure_is_noticed():
    # By the next loss, by the embeddings in a rebuild, or else by the next scores.
    assert_refused(reckless_agent(n_batches=3), visit(9), "losses")
    assert_refused(reckless_agent(rebuild=True), visit(9), "embeddings")
    agent = reckless_agent()
    agent.update(*visit(9))
    with pytest.raises(FloatingPointError, match=r"must be finite.*learning rate"):
        agent.select(visit(10)[0])


def test_embeddings_beyond_single_precision_are_refused():
    agent = trained_agent(12, dtype=np.float32)
    agent.network.body.weights[0].data *= 1e25
    rows = np.full((K, D), 9e14)
    rows[1] /= 2  # as equal rows bring a warning
    context = Context(0, rows)
    assert_refused(agent, (context, 0, 1.0), "finite")
    with pytest.raises(FloatingPointError, match="embeddings must be finite"):
        agent.scores(context)
    with pytest.raises(ValueError, match="features must be finite and below"):
        Context(0, np.full((K, D), 1e39))


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


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"window": 10}, ValueError, r"window.*rebuild=True.*window=10, rebuild=False"),
        (
            {"window": 101, "rebuild": True, "buffer_size": 100},
            ValueError,
            "window.*at most buffer_size=100.*window=101",
        ),
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


def test_a_rebuild_that_fails_after_the_steps_undoes_them():
    agent = trained_agent(14, rebuild=True, n_batches=2)
    before = state_of(agent)

    def refuse(x):
        raise FloatingPointError("embeddings")

    agent.embed = refuse
    with pytest.raises(FloatingPointError, match="embeddings"):
        agent.train()
    del agent.embed
    assert before == state_of(agent)


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
        ({"x": np.ones((5, D + 1))}, ValueError, r"x must.*\(5, 3\).*\(5, 4\)"),
        ({"x": np.ones((4, D))}, ValueError, r"reward must.*\(4,\).*\(5,\)"),
        (
            {"x": np.ones((0, D)), "reward": []},
            ValueError,
            r"x must.*\(1, 3\).*\(0, 3\)",
        ),
        ({"x": np.ones(D)}, ValueError, r"x must.*\(1, 3\).*\(3,\)"),
        ({"x": np.ones((1, 5, D))}, ValueError, r"x must.*\(5, 3\).*\(1, 5, 3\)"),
        ({"x": [["a"] * D] * 5}, TypeError, "x must hold real numbers"),
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
    assert before == state_of(agent)


def test_a_fit_that_fails_leaves_everything_as_it_was():
    agent = trained_agent(12)
    agent.losses = spoil_the_second_batch(agent.losses, NAN)
    before = state_of(agent)
    with pytest.raises(FloatingPointError, match="losses"):
        agent.fit(*table_of(30))
    assert before == state_of(agent)
    assert agent.n_updates == 12


@pytest.mark.parametrize("joined", [False, True])
@pytest.mark.parametrize("n_worlds", [None, 2])
def test_propensities_are_shares_of_the_draws_that_scores_would_make(n_worlds, joined):
    worlds = () if n_worlds is None else (n_worlds,)
    options = {"policy": "thompson", "joined": joined, "dtype": np.float32}
    agent = trained_agent(12, n_worlds, **options)
    context = visit(50, *worlds)[0]
    twin = copy.deepcopy(agent)
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


def without(table, name):
    return {key: value for key, value in table.items() if key != name}


def last_bias(**entries):
    """Return what changes entries of one parameter."""

    def change(learned):
        bias = learned["weights"]["head.biases.0"] | entries
        return {"weights": learned["weights"] | {"head.biases.0": bias}}

    return change


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda learned: {"weights": {}}, "body.weights.0"),
        (lambda learned: {"weights": [1]}, "weights must be of type dict"),
        (last_bias(exp_avg=None), "exp_avg must have shape"),
        (last_bias(step=np.zeros(2, np.float32)), r"step must have shape \(\)"),
        (last_bias(weight=np.zeros((1, 2))), r"weight must have shape \(1, 1\)"),
        (last_bias(weight=np.full((1, 1), NAN)), "weight must be finite"),
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


@pytest.mark.parametrize("name", ["weights", "memory", "n_updates"])
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
