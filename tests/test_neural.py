"""What holds for the neural agents of every family."""

import copy

import numpy as np
import pytest
import torch

from tests.neural import (
    ALPHA,
    INF,
    KINDS,
    NAN,
    D,
    K,
    agent_for,
    of_world,
    same,
    state_of,
    trained,
    visit,
    weights_of,
    worlds_of,
)
from zoolib import Churn, ZooplusSimulator, run_experiment
from zoolib._support.generators import stream
from zoolib._support.state import from_bytes, to_bytes
from zoolib.agents import Agent, Context, NeuralAgent, RandomAgent

EVERY_KIND = pytest.mark.parametrize("kind", KINDS)
ONE_OR_TWO_WORLDS = pytest.mark.parametrize("n_worlds", [None, 2])


@pytest.mark.no_cover
@pytest.mark.filterwarnings("ignore:all arms have equal features")  # once they have
@EVERY_KIND
@pytest.mark.parametrize("hidden", [(5,), (5, 4)])
def test_worlds_in_step_go_as_if_alone(kind, hidden):
    seeds = [4, 7, 4]
    together = agent_for(kind, 3, seed=seeds, hidden=hidden)
    alone = [agent_for(kind, seed=seed, hidden=hidden) for seed in seeds]
    for step in range(40):
        played = visit(step, 3)
        scores, arm = together.scores(played[0]), together.select(played[0])
        share = together.propensities(played[0], n_draws=9)
        assert scores.shape == share.shape == (3, K)
        for w, agent in enumerate(alone):
            mine = of_world(played, w)
            assert np.allclose(agent.scores(mine[0]), scores[w], rtol=0, atol=1e-8)
            assert agent.select(mine[0]) == arm[w]
            assert np.allclose(agent.propensities(mine[0], n_draws=9), share[w])
            agent.update(*mine)
        together.update(*played)
    for w, agent in enumerate(alone):
        for a, b in zip(weights_of(agent), weights_of(together), strict=True):
            assert np.allclose(a, b[w], rtol=0, atol=1e-8)


@pytest.mark.no_cover
@EVERY_KIND
def test_each_world_of_an_experiment_is_played_as_if_alone(kind):
    def play(n_worlds, seeds):
        family, options = KINDS[kind]
        options = options | {"hidden": (5,), "train_every": 5, "batch_size": 8}
        agent = family(10, 9, n_worlds=n_worlds, **options)
        before = state_of(agent)
        history = run_experiment(
            {"agent": agent},
            seeds,
            120,
            churn=Churn(50),
            make_world=lambda seed: ZooplusSimulator(10, 20, seed),
            progress=False,
        )
        assert state_of(agent) == before
        return history

    together, again = play(3, [4, 7, 9]), play(3, [4, 7, 9])
    assert np.array_equal(together.arm, again.arm)
    assert np.array_equal(play(None, [7]).arm[0, 0], together.arm[0, 1])


@EVERY_KIND
def test_worlds_of_one_seed_that_see_the_same_do_the_same(kind):
    agent = agent_for(kind, 2, seed=5)
    for step in range(20):
        context, arm, reward = visit(step)
        twice = Context([0, 0], np.stack([context.features] * 2))
        scores = agent.scores(twice)
        assert (scores[0] == scores[1]).all()
        agent.update(twice, [arm] * 2, [reward] * 2)


@EVERY_KIND
def test_lookalikes_are_scored_alike(kind):
    agent = agent_for(kind, dtype=np.float32)
    for step in range(15):
        agent.update(*visit(step))
        context = visit(100 + step)[0]
        scores, share = agent.scores(context), agent.propensities(context)
        for i in range(K):
            alike = (context.features == context.features[i]).all(axis=1)
            assert (scores[alike] == scores[i]).all()
            assert (share[alike] == share[i]).all()


def assert_refused(agent, played, error, words):
    """The update is refused, and nothing is left of it."""
    probe = visit(500, *worlds_of(agent))[0]
    before, undisturbed = state_of(agent), copy.deepcopy(agent)
    with pytest.raises(error, match=words):
        agent.update(*played)
    assert state_of(agent) == before
    assert np.array_equal(agent.scores(probe), undisturbed.scores(probe))


def spoil_the_second_batch(losses, value):
    batches = []

    def spoilt(*batch):
        batches.append(batch)
        return losses(*batch) * (value if len(batches) == 2 else 1)

    return spoilt


def spoil_one_network(losses, value):
    def spoilt(*batch):
        honest = losses(*batch)
        spoiling = torch.ones_like(honest)
        spoiling.view(-1)[-1] = value
        return honest * spoiling

    return spoilt


def spoil_the_gradient(losses, value):
    def spoilt(*batch):
        honest = losses(*batch)
        return honest + (honest - honest.detach()).sqrt()

    return spoilt


@pytest.mark.no_cover
@EVERY_KIND
@ONE_OR_TWO_WORLDS
@pytest.mark.parametrize(
    ("n", "spoil", "value"),
    [
        (9, spoil_the_second_batch, NAN),
        (19, spoil_the_second_batch, INF),
        (9, spoil_one_network, NAN),
        (19, spoil_the_gradient, None),
    ],
)
def test_a_training_that_fails_leaves_everything_as_it_was(
    n, spoil, value, n_worlds, kind
):
    # With 19 rows before, a memory of 15 loses one to the row that is refused.
    agent = trained(agent_for(kind, n_worlds, n_batches=2, buffer_size=15), n)
    honest = agent.losses
    agent.losses = spoil(honest, value)
    played = visit(n, *worlds_of(agent))
    assert_refused(agent, played, FloatingPointError, "must be finite")
    agent.losses, before = spoil(honest, value), state_of(agent)
    with pytest.raises(FloatingPointError, match="must be finite"):
        agent.train()
    assert state_of(agent) == before
    del agent.losses
    agent.update(*played)  # and it goes on
    assert agent.n_updates == n + 1


@pytest.mark.no_cover
@EVERY_KIND
@pytest.mark.parametrize(
    ("place", "value", "error", "word"),
    [
        (0, Context(0, np.ones((K, D + 1))), ValueError, r"context\.features"),
        (
            0,
            Context([0, 1], np.arange(2.0 * K * D).reshape(2, K, D)),
            ValueError,
            "arm must have shape",
        ),
        (1, K, ValueError, "arm"),
        (1, 1.0, TypeError, "arm"),
        (2, NAN, ValueError, "reward"),
        (2, "1", TypeError, "reward"),
    ],
)
def test_a_refused_reward_changes_nothing(kind, place, value, error, word):
    played = list(visit(14))
    played[place] = value
    agent = trained(agent_for(kind), 14)
    assert_refused(agent, played, error, word)
    if place == 0 and "features" in word:
        with pytest.raises(ValueError, match=word):
            agent.propensities(value)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if "everything" not in kind])
@pytest.mark.filterwarnings("ignore:invalid value encountered")
def test_a_learning_rate_without_measure_is_noticed(kind):
    options = {"optimiser": "sgd", "learning_rate": 1e30, "dtype": np.float32}
    agent = trained(agent_for(kind, **options), 10)
    for ask in (agent.select, agent.propensities):
        with pytest.raises(FloatingPointError, match="must be finite"):
            ask(visit(10)[0])


@EVERY_KIND
def test_arrays_may_be_used_again_after_an_update(kind):
    agent, undisturbed = agent_for(kind, 2), agent_for(kind, 2)
    for step in range(20):
        context, arm, reward = visit(step, 2)
        undisturbed.update(context, arm, reward)
        features, arm, reward = context.features.copy(), arm.copy(), reward.copy()
        agent.update(Context([0, 0], features), arm, reward)
        features[:] = arm[:] = reward[:] = 0
    assert state_of(agent) == state_of(undisturbed)


@pytest.mark.no_cover
@EVERY_KIND
@ONE_OR_TWO_WORLDS
def test_the_same_seed_gives_the_same_agent_and_another_seed_another(kind, n_worlds):
    worlds = () if n_worlds is None else (n_worlds,)

    def history(seed, reseed=None):
        agent = agent_for(kind, n_worlds, seed=seed)
        if reseed is not None:
            agent.scores(visit(99, *worlds)[0])
            agent.reseed(reseed)
        scores = []
        for step in range(30):
            played = visit(step, *worlds)
            scores.append(agent.scores(played[0]))
            agent.update(*played)
        return np.array(scores)

    assert (history(1) == history(1)).all()
    assert (history(1) != history(2)).all()
    # Reseeded before the first update, an agent is as one born with that seed.
    assert (history(2, reseed=1) == history(1)).all()


@EVERY_KIND
def test_a_new_seed_after_the_first_update_changes_luck_and_not_what_was_learnt(kind):
    agent, twin = (trained(agent_for(kind, seed=1), 14) for _ in range(2))
    before, optimiser = state_of(agent), agent._optimiser
    agent.reseed(8)
    assert state_of(agent) == before
    assert agent._optimiser is optimiser
    drawn = stream(8, "replay").integers(14, size=8)
    assert np.array_equal(agent.memory.sample(8)[0], agent.memory.newest(14)[0][drawn])
    agent.reseed(8)
    for one in (agent, twin):
        one.update(*visit(14))
    assert not same(weights_of(agent), weights_of(twin))


@pytest.mark.no_cover
@EVERY_KIND
@ONE_OR_TWO_WORLDS
@pytest.mark.parametrize("n", [0, 14])
def test_copies_go_their_own_ways(kind, n, n_worlds):
    agent = trained(agent_for(kind, n_worlds), n)
    before, twin = state_of(agent), copy.deepcopy(agent)
    for step in range(n, n + 16):
        twin.update(*visit(step, *worlds_of(agent)))
    assert state_of(agent) == before != state_of(twin)
    for step in range(n, n + 16):
        agent.update(*visit(step, *worlds_of(agent)))
    assert state_of(agent) == state_of(twin)
    context = visit(40, *worlds_of(agent))[0]
    assert np.array_equal(agent.scores(context), twin.scores(context))


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("kind", "options"),
    [
        ("neural-linear", {"joined": True, "rebuild": True}),
        ("neural-linear", {"joined": True, "rebuild": True, "head": "posterior"}),
        ("ensemble, thompson", {}),
        ("dropout, thompson", {}),
    ],
)
def test_it_learns_what_customers_like(kind, options):
    family, mine = KINDS[kind]
    options = mine | {"train_every": 20, "n_batches": 2} | options
    agents = {
        "neural": family(50, 9, n_worlds=4, **options),
        "random": RandomAgent(50, n_worlds=4),
    }
    history = run_experiment(agents, range(4), 2000, progress=False)
    neural, random = history.expected_reward[:, :, 1000:].mean(axis=(-1, -2))
    oracle = history.optimal_reward[0, :, 1000:].mean()
    assert neural > (random + oracle) / 2


@pytest.mark.no_cover
@EVERY_KIND
@ONE_OR_TWO_WORLDS
@pytest.mark.parametrize("n", [0, 23])
def test_a_restored_agent_goes_on_as_the_one_it_was_made_from(kind, n_worlds, n):
    options = {"buffer_size": 15, "dtype": np.float32, "network_seed": 5}
    agent = trained(agent_for(kind, n_worlds, **options), n)
    agent.propensities(visit(40, *worlds_of(agent))[0])
    state = agent.state()
    twin = Agent.from_state(from_bytes(to_bytes(state)))
    assert type(twin) is type(agent)
    assert repr(twin) == repr(agent)
    assert to_bytes(twin.state()) == to_bytes(state)
    for step in range(n, n + 12):
        played = visit(step, *worlds_of(agent))
        assert np.array_equal(agent.scores(played[0]), twin.scores(played[0]))
        assert np.array_equal(agent.select(played[0]), twin.select(played[0]))
        shares = [one.propensities(played[0]) for one in (agent, twin)]
        assert np.array_equal(*shares)
        for one in (agent, twin):
            one.update(*played)
    for one in (agent, twin):
        one.train()
    assert to_bytes(agent.state()) == to_bytes(twin.state()) != to_bytes(state)
    # The state is a copy.
    again = type(agent).from_state(state)
    assert to_bytes(again.state()) == to_bytes(state)


@EVERY_KIND
def test_a_saved_agent_is_loaded(kind, tmp_path):
    agent = trained(agent_for(kind), 14)
    agent.save(tmp_path / "agent")
    loaded, context = Agent.load(tmp_path / "agent"), visit(60)[0]
    assert np.array_equal(loaded.scores(context), agent.scores(context))


@EVERY_KIND
@ONE_OR_TWO_WORLDS
def test_an_agent_trains_when_it_is_told_to(kind, n_worlds):
    asked = agent_for(kind, n_worlds, train_every=None, n_batches=3)
    scheduled = agent_for(kind, n_worlds, train_every=20, n_batches=3)
    before = weights_of(asked)
    for one in (asked, scheduled):
        trained(one, 20)
    assert same(weights_of(asked), before)
    asked.train()
    assert not same(weights_of(asked), before)
    if "head" not in KINDS[kind][1]:
        # As in a scheduled training; the reward that brought it was taken in before.
        assert same(weights_of(asked), weights_of(scheduled))


@EVERY_KIND
def test_an_empty_memory_trains_nobody(kind):
    agent = agent_for(kind, train_every=None)
    before = state_of(agent)
    with pytest.raises(ValueError, match=r"memory must hold rows.*none"):
        agent.train()
    assert state_of(agent) == before


class Squares(NeuralAgent):
    """A family that says how rows are scored, and nothing else."""

    def score_rows(self, x):
        return (x**2).sum(axis=-1)


def test_a_family_needs_a_score_only():
    agent = Squares(K, D, ALPHA, hidden=(4,), train_every=5, batch_size=8)
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
