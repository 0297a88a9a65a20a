import copy
from dataclasses import dataclass

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn.utils import parameters_to_vector

from benchmarks.session_agents import Scaled
from tests.states import learnt
from zoolib import DQNAgent, LastItems, OneHot
from zoolib._support.threads import one_thread
from zoolib.models.networks import MLP
from zoolib.sessions import Encoder

K = 3
SEEN, HIDDEN = OneHot((4, 5, 5)), LastItems(n_items=6, n_last=2, n_personas=4, dim=3)
SMALL = {
    "hidden": (8, 6),
    "batch_size": 8,
    "buffer_size": 40,
    "learning_rate": 0.01,
    "learning_starts": 10,
    "train_every": 2,
    "target_every": 6,
    "epsilon_steps": 60,
}


def dqn(encoder=SEEN, n_worlds=None, **options):
    return DQNAgent(K, encoder, n_worlds, **(SMALL | options))


def observations(encoder, rng, *shape):
    if encoder.values is None:
        return rng.normal(size=(*shape, encoder.n_observed))
    return rng.integers(0, encoder.values, size=(*shape, encoder.n_observed))


def steps(n, encoder=SEEN, worlds=()):
    """Steps of sessions that end; now and then a world plays none."""
    rng = np.random.default_rng(7)
    seen = observations(encoder, rng, n + 1, *worlds)
    for t in range(n):
        draws = rng.random((4, *worlds))
        action, reward = (draws[0] * K).astype(int), draws[1]
        flags = draws[2] < 0.2, draws[3] < 0.9
        yield seen[t], action, reward, seen[t + 1], *flags


def of_world(step, w):
    return [one[w] for one in step]


def taught(agent, n, skip=0):
    worlds = () if agent.n_worlds is None else (agent.n_worlds,)
    for step in list(steps(n, agent.encoder, worlds))[skip:]:
        agent.update(*step)
    return agent


def vector(network):
    return parameters_to_vector(network.parameters()).detach()


@pytest.mark.parametrize("encoder", [SEEN, HIDDEN, Scaled([1.0, 2.0])], ids=repr)
@pytest.mark.parametrize(
    "options",
    [{}, {"double": False, "target_every": None}, {"replay": False}],
)
def test_each_of_many_worlds_learns_as_if_alone(encoder, options):
    together = dqn(encoder, 3, seed=[4, 7, 5], **options)
    alone = [dqn(encoder, seed=seed, **options) for seed in (4, 7, 5)]
    for step in steps(90, encoder, (3,)):
        chosen = together.select(step[0])
        assert chosen.tolist() == [
            agent.select(seen) for agent, seen in zip(alone, step[0], strict=True)
        ]
        together.update(*step)
        for w, agent in enumerate(alone):
            agent.update(*of_world(step, w))
    q = together.q(step[0])
    assert q.shape == (3, K)
    for w, agent in enumerate(alone):
        assert np.allclose(q[w], agent.q(step[0][w]), atol=1e-5)
    assert len(np.unique(q)) == 3 * K


def test_q_of_several_observations_is_that_of_each():
    for agent, lead in ((dqn(), ()), (dqn(n_worlds=2, seed=[1, 2]), (2,))):
        seen = observations(SEEN, np.random.default_rng(0), *lead, 6)
        q = agent.q(seen)
        assert q.shape == (*lead, 6, K)
        assert np.array_equal(agent.greedy(seen), q.argmax(axis=-1))
        for n in range(6):
            assert np.allclose(agent.q(seen[..., n, :]), q[..., n, :], atol=1e-6)
        seen.flags.writeable = False
        assert np.array_equal(agent.q(seen), q)
    assert isinstance(dqn().greedy([0, 1, 2]), int)
    assert isinstance(dqn().select([0, 1, 2]), int)


@pytest.mark.parametrize("double", [True, False])
@pytest.mark.parametrize("n", [25, 70])  # and the memory holds 40
def test_targets_are_those_of_the_definition(double, n):
    agent = dqn(n_worlds=3, seed=[1, 2, 3], double=double, discount=0.9)
    with torch.no_grad():
        for p in agent.target.parameters():
            p.neg_()  # that they differ
    for *row, played in steps(n, worlds=(3,)):
        agent.memory.add(*row, played=played)
    *_, reward, after, ended = agent.memory.newest(20)
    targets = agent.targets(reward, after, ended)
    q, other = (one.evaluate(after) for one in (agent.network, agent.target))
    for at in np.ndindex(targets.shape):
        worth = other[at][(q if double else other)[at].argmax()]
        expected = reward[at] + (0 if ended[at] else 0.9 * worth)
        assert targets[at] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("encoder", [SEEN, HIDDEN], ids=repr)
def test_a_training_is_a_step_of_adam_along_pytorchs_gradient(encoder):
    agent = taught(dqn(encoder, 2, seed=[1, 2], learning_starts=10**6), 30)
    network, twin = agent.network, copy.deepcopy(agent)
    optimiser = torch.optim.Adam(network.parameters(), agent.learning_rate)
    for _ in range(4):
        rows = agent.memory.sample(8)
        seen, action, *later = rows
        target = torch.from_numpy(agent.targets(*later))
        q = network.head(network.encoder(torch.from_numpy(seen)))
        chosen = q.gather(-1, torch.from_numpy(action)[..., None])[..., 0]
        optimiser.zero_grad(set_to_none=False)
        (chosen - target).square().mean(dim=-1).sum().backward()
        optimiser.step()
        twin.memory.sample = lambda n, rows=rows: rows
        twin._train()
        assert torch.allclose(vector(twin.network), vector(network), atol=1e-6)


def test_steps_that_were_resets_never_enter_the_memory():
    agent = dqn(n_worlds=2)
    for number in range(6):
        seen = np.full((2, 3), number % 4)
        agent.update(
            seen,
            [0, 1],
            [number, -number],
            seen,
            [False] * 2,
            played=[True, number % 3 > 0],
        )
    rewards = agent.memory.newest(6)[2]
    assert rewards.tolist() == [[2, 3, 4, 5], [-1, -2, -4, -5]]
    before = learnt(agent.memory)
    agent.update(seen, [0, 1], [9, 9], seen, [True] * 2, played=False)
    assert learnt(agent.memory) == before
    assert agent.n_updates == 7


def test_with_a_horizon_of_one_step_it_is_a_regression_on_rewards():
    agent = DQNAgent(
        2,
        OneHot([2]),
        discount=0.0,
        learning_starts=0,
        train_every=1,
        learning_rate=0.01,
    )
    with one_thread():
        for number in range(1500):
            seen, action = number % 2, number // 2 % 2
            reward = 1.0 + seen - 3 * action
            agent.update([seen], action, reward, [1 - seen], ended=False)
    assert np.allclose(agent.q([[0], [1]]), [[1, -2], [2, -1]], atol=0.05)


def test_a_two_step_session_is_worth_what_it_earns_later():
    # Action 0 earns 1 and ends the session; action 1 earns nothing and leads to where each earns 3.
    often = {"learning_starts": 0, "train_every": 1, "target_every": 50}
    agent = DQNAgent(2, OneHot([2]), discount=0.5, learning_rate=0.01, **often)
    with one_thread():
        for number in range(2000):
            agent.update([0], number % 2, 1.0 - number % 2, [1], ended=number % 2 == 0)
            agent.update([1], number % 2, 3.0, [1], ended=True)
    assert np.allclose(agent.q([[0], [1]]), [[1, 1.5], [3, 3]], atol=0.05)


def test_the_target_network_follows_as_it_is_told():
    kept = dqn(target_every=7)
    first = vector(kept.network)
    taught(kept, 20)
    assert not torch.equal(vector(kept.target), vector(kept.network))
    assert not torch.equal(vector(kept.target), first)
    taught(kept, 21, skip=20)
    assert torch.equal(vector(kept.target), vector(kept.network))
    none = taught(dqn(target_every=None), 20)
    assert none.target is none.network


def test_exploring_fades_and_its_share_is_epsilon():
    seen = np.zeros((400, 3), int)
    agent = dqn(
        n_worlds=400,
        seed=range(400),
        epsilon_end=0.25,
        epsilon_steps=10,
        learning_starts=99,
    )
    shares = []
    for _ in range(12):
        shares.append(np.mean(agent.select(seen) != agent.greedy(seen)))
        agent.update(seen, np.zeros(400, int), np.zeros(400), seen, [False] * 400)
    assert agent.epsilon == 0.25
    assert shares[0] == pytest.approx(1 - 1 / K, abs=0.1)
    assert np.mean(shares[-2:]) == pytest.approx(0.25 * (1 - 1 / K), abs=0.06)


@pytest.mark.parametrize("encoder", [SEEN, HIDDEN], ids=repr)
@pytest.mark.parametrize("n_worlds", [None, 2])
def test_a_saved_agent_goes_on_as_if_nothing_had_happened(encoder, n_worlds, tmp_path):
    agent = taught(dqn(encoder, n_worlds, seed=3), 50)
    agent.save(tmp_path / "agent")
    others = [DQNAgent.load(tmp_path / "agent"), copy.deepcopy(agent)]
    assert repr(others[0]) == repr(agent)
    taught(agent, 90, skip=50)
    for other in others:
        assert learnt(other) != learnt(agent)
        assert learnt(taught(other, 90, skip=50)) == learnt(agent)


def test_a_new_seed_before_the_first_update_is_a_new_agent():
    agent = dqn(seed=1)
    agent.reseed(2)
    assert learnt(agent) == learnt(dqn(seed=2))
    taught(agent, 20).reseed(3)
    other = taught(dqn(seed=2), 20)
    assert torch.equal(vector(agent.network), vector(other.network))


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"buffer_size": 7}, ValueError, "buffer_size must be at least batch_size=8"),
        ({"encoder": "one-hot"}, TypeError, "encoder must be an Encoder: got 'one-ho"),
    ],
)
def test_settings_are_checked(options, error, words):
    with pytest.raises(error, match=words):
        dqn(**options)


@pytest.mark.parametrize(
    ("kind", "options"),
    [(OneHot, {"sizes": [2, 0]})]
    + [(LastItems, {name: 0}) for name in ("n_items", "n_last", "n_personas", "dim")],
)
def test_sizes_of_encoders_are_checked(kind, options):
    with pytest.raises(ValueError, match=f"{next(iter(options))} must be at least 1"):
        kind(**options)


@pytest.mark.parametrize(
    ("place", "value", "error", "words"),
    [
        (0, [0, 1], ValueError, r"observation must have shape \(3,\): got \(2,\)"),
        (0, [4, 0, 0], ValueError, r"observation must lie in 0 … .*: got 4"),
        (0, [0.5, 0, 0], TypeError, "observation must hold whole numbers"),
        (1, K, ValueError, "action must lie in 0 … 2: got 3"),
        (1, -1, ValueError, "action"),
        (1, 0.0, TypeError, "action"),
        (2, np.nan, ValueError, "reward must be finite"),
        (3, [[0, 1, 2]], ValueError, "next_observation must have shape"),
        (4, 1, ValueError, "ended must hold booleans"),
        (5, None, ValueError, "played must hold booleans"),
    ],
)
def test_a_refused_update_changes_nothing(place, value, error, words):
    agent = taught(dqn(), 15)
    before, step = learnt(agent), [[0, 1, 2], 1, 0.5, [1, 2, 3], False, True]
    step[place] = value
    with pytest.raises(error, match=words):
        agent.update(*step)
    assert learnt(agent) == before


def test_observations_of_other_worlds_are_refused():
    agent = dqn(n_worlds=2)
    for ask in (agent.q, agent.greedy, agent.select):
        with pytest.raises(ValueError, match="observation must"):
            ask([0, 1, 2])
    with pytest.raises(ValueError, match=r"observation must have shape \(2, 3\): got"):
        agent.select(np.zeros((2, 5, 3), int))


@pytest.mark.filterwarnings("ignore:overflow", "ignore:invalid value")
def test_a_training_that_fails_forgets_the_step_and_keeps_the_weights():
    agent = taught(dqn(Scaled([1.0]), learning_rate=1e30, train_every=3), 14)
    step = next(steps(1, agent.encoder))[:-1]  # with the next, it trains again
    held, before = len(agent.memory), vector(agent.network)
    with pytest.raises(FloatingPointError, match="must be finite, or the learning"):
        agent.update(*step)
    assert len(agent.memory) == held
    assert agent.n_updates == 14
    assert torch.equal(vector(agent.network), before)
    with pytest.raises(FloatingPointError, match="Q must be finite"):
        agent.q([1e14])


@dataclass(eq=False, repr=False)
class Halves(Encoder):
    """An encoder of a reader's, which learns."""

    n: int = 4

    def __post_init__(self):
        super().__init__(self.n, 2)

    def begin(self, generators):
        self.layer = MLP((self.n, 2), generators)

    def forward(self, observation):
        return nn.functional.softplus(self.layer(observation))


def test_another_encoder_learns_with_the_head():
    agent = dqn(Halves())
    seen = observations(agent.encoder, np.random.default_rng(1), 5)
    before = vector(agent.network.encoder)
    taught(agent, 30)
    assert not torch.allclose(vector(agent.network.encoder), before)
    assert agent.q(seen).shape == (5, K)


@pytest.mark.weekly
@pytest.mark.no_cover
@pytest.mark.parametrize("seed", [0, 1, 2])
def test_a_pole_is_balanced_with_another_encoder_and_nothing_else_changed(seed):
    gymnasium = pytest.importorskip("gymnasium")
    env = gymnasium.make("CartPole-v1")
    agent = DQNAgent(
        env.action_space.n.item(),
        Scaled([2.4, 2.0, 0.2, 2.0]),  # where an episode ends, and usual speeds
        target_every=200,
        buffer_size=100_000,
        batch_size=64,
        learning_starts=1000,
        train_every=2,
        seed=seed,
    )
    with one_thread():
        observation, _ = env.reset(seed=seed)
        for _ in range(50_000):
            action = agent.select(observation)
            after, reward, ended, cut, _ = env.step(action)
            agent.update(observation, action, reward, after, ended)
            observation = env.reset()[0] if ended or cut else after
        returns = [episode(agent, env, 10_000 + number) for number in range(100)]
    assert np.mean(returns) >= 475


def episode(agent, env, seed):
    """Return what an episode earns without exploring."""
    observation, _ = env.reset(seed=seed)
    total, over = 0.0, False
    while not over:
        observation, reward, ended, cut, _ = env.step(agent.greedy(observation))
        total, over = total + reward, ended or cut
    return total
