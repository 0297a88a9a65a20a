from itertools import product

import numpy as np
import pytest
import torch

from tests.neural import (
    ALPHA,
    D,
    K,
    M,
    PlainAdam,
    T,
    agent_for,
    state_of,
    trained,
    visit,
    weights_of,
)
from zoolib._support.generators import stream
from zoolib.agents import Agent, Context
from zoolib.large.ensembles import EnsembleAgent, MCDropoutAgent
from zoolib.models.networks import MLP, seeded


def trained_agent(kind, n, n_worlds=None, **options):
    return trained(agent_for(kind, n_worlds, **options), n)


def forward(weights, x, mask=1.0):
    """One network with one hidden layer, by its formula."""
    w1, w2, b1, b2 = weights
    return ((np.maximum(x @ w1 + b1, 0) * mask) @ w2 + b2)[..., 0]


class Slow:
    """One network trained alone, with gradients by hand."""

    def __init__(self, weights, learning_rate=0.01):
        self.weights, self.learning_rate = weights, learning_rate
        self.adam = PlainAdam(weights)

    def train(self, x, r, count, mask):
        """Take one step of Adam on the mean of count · (prediction - reward)²."""
        w1, w2, b1, _ = self.weights
        before = x @ w1 + b1
        hidden = np.maximum(before, 0) * mask
        error = 2 * count * (forward(self.weights, x, mask) - r) / len(r)
        to_before = np.outer(error, w2[:, 0]) * mask * (before > 0)
        gradients = [x.T @ to_before, (hidden.T @ error)[:, None]]
        gradients += [to_before.sum(axis=0)[None], error.sum()[None, None]]
        self.weights = self.adam.moved(self.weights, gradients, self.learning_rate)


def member(agent, m):
    """The weights of one member, or of one world's."""
    return [weight[m] for weight in weights_of(agent)]


def masks_of(generator, n, p=0.3, units=5):
    return (generator.random((n, units), dtype=np.float32) >= p) / (1 - p)


@pytest.mark.parametrize("buffer_size", [100, 20])
def test_the_members_are_those_of_networks_trained_one_by_one(buffer_size):
    options = {"n_batches": 2, "buffer_size": buffer_size, "learning_rate": 0.03}
    agent = agent_for("ensemble", seed=3, **options)
    slow = [Slow(member(agent, m), 0.03) for m in range(M)]
    batches, counters = stream(3, "replay"), stream(3, "replay").spawn(1)[0]
    rows, rewards, counts = [], [], []
    for step in range(60):
        context, arm, reward = visit(step)
        expected = np.array([forward(one.weights, context.features) for one in slow])
        assert np.allclose(agent.members(context.features), expected, atol=1e-9)
        scores = [np.mean(e) + ALPHA * np.std(e) for e in expected.T]
        assert np.allclose(agent.scores(context), scores, rtol=0, atol=1e-9)
        agent.update(context, arm, reward)
        rows.append(context.features[arm])
        rewards.append(reward)
        counts.append(counters.poisson(1.0, M))
        if len(rows) % 5 or len(rows) < 8:
            continue
        held = min(len(rows), buffer_size)
        newest = [max(range(i, len(rows), buffer_size)) for i in range(held)]
        for _ in range(2):
            drawn = np.array(newest)[batches.integers(held, size=8)]
            x, r, n = (np.array(a)[drawn] for a in (rows, rewards, counts))
            for m, one in enumerate(slow):
                one.train(x, r, n[:, m], mask=np.ones((8, 5)))
    for m, one in enumerate(slow):
        for a, b in zip(member(agent, m), one.weights, strict=True):
            assert np.allclose(a, b, rtol=0, atol=1e-8)


@pytest.mark.parametrize("policy", ["ucb", "thompson"])
def test_dropout_is_that_of_a_slow_computation(policy):
    agent = agent_for("dropout", seed=3, n_batches=2, policy=policy)
    slow = Slow(weights_of(agent))
    batches = stream(3, "replay")
    decides, trains, _ = stream(3, "agent").spawn(3)
    rows, rewards = [], []
    for step in range(60):
        context, arm, reward = visit(step)
        n = T if policy == "ucb" else 1
        predicted = np.array(
            [
                forward(slow.weights, context.features, mask)
                for mask in masks_of(decides, n)
            ]
        )
        scores = predicted.mean(axis=0)
        if policy == "ucb":
            scores = scores + ALPHA * predicted.std(axis=0)
        assert np.allclose(agent.scores(context), scores, rtol=0, atol=1e-9)
        agent.update(context, arm, reward)
        rows.append(context.features[arm])
        rewards.append(reward)
        if len(rows) % 5 or len(rows) < 8:
            continue
        for _ in range(2):
            drawn = batches.integers(len(rows), size=8)
            x, r = np.array(rows)[drawn], np.array(rewards)[drawn]
            slow.train(x, r, np.ones(8), masks_of(trains, 8))
    for a, b in zip(weights_of(agent), slow.weights, strict=True):
        assert np.allclose(a, b, rtol=0, atol=1e-8)


def test_a_worlds_generator_draws_the_weights_of_its_members_in_turn():
    agent = agent_for("ensemble", 2, seed=[4, 7])
    for w, seed in enumerate((4, 7)):
        generator = torch.Generator().manual_seed(seed)
        for shape, bound, stack in zip(
            ((D, 5), (1, 5), (5, 1), (1, 1)),
            (D**-0.5, D**-0.5, 5**-0.5, 5**-0.5),
            (weights_of(agent)[i] for i in (0, 2, 1, 3)),
            strict=True,
        ):
            for m in range(M):
                drawn = torch.empty(shape).uniform_(-bound, bound, generator=generator)
                assert np.allclose(stack[w, m], drawn)


def test_a_single_member_starts_as_a_plain_network_and_is_greedy():
    plain = MLP((D, 5, 1), seeded(3)).double()
    for policy in ("ucb", "thompson"):
        agent = agent_for("ensemble", seed=3, n_members=1, policy=policy)
        for a, b in zip(plain.parameters(), weights_of(agent), strict=True):
            assert np.array_equal(a.detach().numpy(), b[0])
        for step in range(20):
            agent.update(*visit(step))
        context = visit(50)[0]
        assert np.allclose(
            agent.scores(context), agent.members(context.features)[0], atol=1e-12
        )


def test_thompson_asks_each_member_equally_often():
    agent = trained_agent("ensemble, thompson", 12, 2, seed=[1, 2])
    context = visit(50, 2)[0]
    members = agent.members(context.features)
    n = 3000
    asked = np.zeros((2, M))
    together = 0
    for _ in range(n):
        scores = agent.scores(context)
        mine = np.isclose(scores[:, None], members).all(axis=-1)
        assert (mine.sum(axis=1) == 1).all()
        asked += mine
        together += (mine[0] & mine[1]).any()
    error = np.sqrt(n * (1 / M) * (1 - 1 / M))
    assert (abs(asked - n / M) < 4 * error).all()
    assert abs(together - n / M) < 4 * error  # worlds draw independently


def one_layer(agent, weights):
    """Set the weights of an agent's network."""
    with torch.no_grad():
        for parameter, values in zip(agent.network.parameters(), weights, strict=True):
            parameter.copy_(torch.as_tensor(values).reshape(parameter.shape))


def by_hand(n_members, best, n_worlds=None, **options):
    """An ensemble whose member m likes feature best[m]: three arms have a feature each."""
    agent = EnsembleAgent(
        3, 3, n_worlds=n_worlds, n_members=n_members, hidden=(), dtype=float, **options
    )
    weights = np.zeros((len(best), 3, 1))
    for m, liked in enumerate(best):
        weights[m, liked, 0] = 1
    one_layer(agent, [weights, np.zeros((len(best), 1, 1))])
    return agent


def test_propensities_are_the_shares_of_members_that_like_an_arm_best():
    context = Context(0, np.eye(3))
    agent = by_hand(4, [0, 0, 2, [0, 1]], policy="thompson")
    # The last member likes two arms equally: half a vote each.
    assert agent.propensities(context).tolist() == [2.5 / 4, 0.5 / 4, 1 / 4]
    worlds = by_hand(2, [0, 2, [1, 2], 1], n_worlds=2, policy="thompson")
    both = Context([0, 0], np.stack([np.eye(3)] * 2))
    assert worlds.propensities(both).tolist() == [[0.5, 0, 0.5], [0, 0.75, 0.25]]
    optimist = by_hand(4, [0, 0, 2, 1], alpha=0.0)
    assert optimist.propensities(context).tolist() == [1, 0, 0]
    assert by_hand(2, [[0, 1]] * 2).propensities(context).tolist() == [0.5, 0.5, 0]
    # A difference of the size of rounding is a tie.
    nearly = np.broadcast_to([[0.3], [0.3 + 1e-14], [0.3]], (4, 3, 1))
    one_layer(agent, [nearly.copy(), np.zeros((4, 1, 1))])
    assert np.allclose(agent.propensities(context), 1 / 3)


def test_members_vote_among_the_arms_allowed():
    agent = by_hand(4, [0, 0, 2, [0, 1]], policy="thompson")
    context = Context(0, np.eye(3))
    # Two members like only what is forbidden: the rest is the same to them.
    without = agent.propensities(context, [False, True, True])
    assert without.tolist() == [0, (0.5 + 0.5 + 1) / 4, (0.5 + 0.5 + 1) / 4]
    both = Context([0, 0], np.stack([np.eye(3)] * 2))
    worlds = by_hand(2, [0, 2, [1, 2], 1], n_worlds=2, policy="thompson")
    allowed = [[True, True, False], [True, True, True]]
    assert worlds.propensities(both, allowed).tolist() == [
        [0.75, 0.25, 0],
        [0, 0.75, 0.25],
    ]


@pytest.mark.parametrize("kind", ["ensemble", "ensemble, thompson"])
def test_asking_for_propensities_changes_no_decision(kind):
    asked, silent = agent_for(kind), agent_for(kind)
    for step in range(20):
        played = visit(step)
        first = asked.propensities(played[0])
        if kind == "ensemble, thompson":
            assert np.array_equal(first, asked.propensities(played[0]))
        assert np.array_equal(asked.scores(played[0]), silent.scores(played[0]))
        for agent in (asked, silent):
            agent.update(*played)
    assert state_of(asked) == state_of(silent)


@pytest.mark.parametrize("p", [0.2, 0.5])
def test_the_spread_of_dropout_is_that_over_all_masks(p):
    n = 40_000
    agent = MCDropoutAgent(
        K, D, hidden=(3, 2), dropout=p, n_masks=n, seed=7, dtype=np.float64
    )
    w1, w2, w3, b1, b2, b3 = weights_of(agent)
    x = np.random.default_rng(1).normal(size=(4, D))
    mean, square = 0, 0
    for bits in product((0, 1), repeat=5):
        chance = np.prod([1 - p if bit else p for bit in bits])
        first, second = np.array(bits[:3]) / (1 - p), np.array(bits[3:]) / (1 - p)
        hidden = np.maximum(x @ w1 + b1, 0) * first
        out = ((np.maximum(hidden @ w2 + b2, 0) * second) @ w3 + b3)[:, 0]
        mean, square = mean + chance * out, square + chance * out**2
    deviation = np.sqrt(square - mean**2)
    drawn = agent.subnetworks(x)
    assert drawn.shape == (n, 4)
    assert (deviation > 0.01).all()
    assert (abs(drawn.mean(axis=0) - mean) < 4 * deviation / np.sqrt(n)).all()
    assert np.allclose(drawn.std(axis=0), deviation, rtol=0.03)


def test_without_dropout_the_network_is_whole_and_greedy():
    agent = trained_agent("dropout", 15, dropout=0.0)
    context = visit(50)[0]
    whole = agent.network.evaluate(context.features)[:, 0]
    assert np.allclose(agent.scores(context), whole)
    assert np.allclose(agent.subnetworks(context.features).std(axis=0), 0)
    # One mask has no spread: its score is its prediction.
    single = trained_agent("dropout", 15, n_masks=1)
    twin = trained_agent("dropout, thompson", 15, n_masks=1)
    assert np.allclose(single.scores(context), twin.scores(context))


def test_masks_of_training_and_of_decisions_do_not_disturb_each_other():
    busy, quiet = trained_agent("dropout", 14), trained_agent("dropout", 14)
    for _ in range(3):
        busy.scores(visit(70)[0])
    for agent in (busy, quiet):
        agent.update(*visit(14))
    assert state_of(busy) == state_of(quiet)


@pytest.mark.parametrize("n_worlds", [None, 2])
def test_counts_stay_with_their_rows(n_worlds):
    worlds = () if n_worlds is None else (n_worlds,)
    agent = agent_for("ensemble", n_worlds, seed=5, buffer_size=400, dtype=np.float32)
    rows = np.random.default_rng(0).normal(size=(700, *worlds, D)).astype(np.float32)
    expected = []
    source = [stream(5, "replay").spawn(1)[0] for _ in range(n_worlds or 1)]
    for number, row in enumerate(rows):
        agent.remember(row, np.full(worlds, number), 0)
        drawn = np.array([g.poisson(1.0, M) for g in source])
        expected.append(drawn if worlds else drawn[0])
    held, rewards, counts = agent.memory.newest(400)
    assert np.array_equal(held, np.moveaxis(rows[300:], 0, -2))
    assert np.array_equal(counts, np.moveaxis(np.array(expected[300:]), 0, -2))
    assert (rewards[..., 0] == 300).all()
    x, reward, counts = agent.memory.sample(50)
    for at in np.ndindex(*worlds, 50):
        number = int(reward[at])
        assert np.array_equal(x[at], rows[number][at[:-1]])
        assert np.array_equal(counts[at], expected[number][at[:-1]])


@pytest.mark.no_cover
def test_the_spread_of_the_members_is_that_of_bootstrapped_means():
    # With one constant feature and no hidden layer, a member is a weighted mean of the rewards.
    n = 64
    agent = EnsembleAgent(
        2,
        1,
        n_members=300,
        hidden=(),
        train_every=n,
        n_batches=400,
        batch_size=n,
        learning_rate=0.05,
        dtype=np.float64,
    )
    agent.memory.sample = lambda wanted: tuple(
        np.concatenate([part] * (wanted // n)) for part in agent.memory.newest(n)
    )
    rng = np.random.default_rng(0)
    rewards = rng.random(n) < 0.4
    for reward in rewards:
        agent.update(Context(0, np.ones((2, 1))), 0, int(reward))
    _, r, counts = agent.memory.newest(n)
    means = (counts * r[:, None]).sum(axis=0) / counts.sum(axis=0)
    predicted = agent.members(np.ones((1, 1)))[:, 0]
    assert np.allclose(predicted, means, atol=1e-3)
    standard_error = rewards.std() / np.sqrt(n)
    assert predicted.std() == pytest.approx(standard_error, rel=0.15)


@pytest.mark.parametrize("kind", ["ensemble", "dropout"])
def test_a_spread_beyond_all_numbers_is_noticed(kind):
    agent = agent_for(kind, dtype=np.float32)
    with torch.no_grad():
        for weight in agent.network.weights:
            weight.copy_(torch.randn(weight.shape) * 1e15)
    context = visit(10)[0]
    with pytest.raises(FloatingPointError, match=r"scores must be finite"):
        agent.scores(context)


@pytest.mark.parametrize("kind", ["ensemble", "dropout"])
def test_a_state_that_does_not_fit_is_refused_by_name(kind):
    state = trained_agent(kind, 12).state()
    name = {"ensemble": "counters", "dropout": "decides"}[kind]
    for change in ({name: []}, {name: "none"}, {name: [{"state": 1}]}):
        spoilt = state | {"learned": state["learned"] | change}
        with pytest.raises(ValueError, match=name):
            Agent.from_state(spoilt)
