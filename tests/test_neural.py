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
    assert_refused,
    of_world,
    same,
    spoil_the_second_batch,
    state_of,
    trained,
    visit,
    weights_of,
    worlds_of,
)
from zoolib import run_experiment
from zoolib._support.generators import stream
from zoolib.agents import Context, NeuralAgent, RandomAgent

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
    assert_refused(agent, played, "must be finite")
    agent.losses, before = spoil(honest, value), state_of(agent)
    with pytest.raises(FloatingPointError, match="must be finite"):
        agent.train()
    assert state_of(agent) == before
    del agent.losses
    agent.update(*played)  # and it goes on
    assert agent.n_updates == n + 1


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
def test_reseeded_before_the_first_update_it_is_as_born_with_that_seed(kind, n_worlds):
    born, other = (agent_for(kind, n_worlds, seed=seed) for seed in (1, 2))
    context = visit(99, *worlds_of(other))[0]
    other.scores(context)
    other.reseed(1)
    for step in range(30):
        played = visit(step, *worlds_of(other))
        assert np.array_equal(other.scores(played[0]), born.scores(played[0]))
        for agent in (born, other):
            agent.update(*played)


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
