"""Small neural agents of every family, visits for them, and what they have learnt."""

import copy

import numpy as np
import pytest

from zoolib import (
    Context,
    EnsembleAgent,
    MCDropoutAgent,
    NeuralLinearAgent,
    NeuralUCBAgent,
)
from zoolib._support.state import to_bytes

NAN, INF = float("nan"), float("inf")
ALPHA, RIDGE, K, D, M, T = 0.7, 2.5, 6, 3, 3, 4
SMALL = {
    "alpha": ALPHA,
    "hidden": (5,),
    "train_every": 5,
    "batch_size": 8,
    "dtype": np.float64,
}
THOMPSON = {"policy": "thompson"}
LINEAR = {"ridge": RIDGE, "embedding_dim": 4}
MEMBERS, MASKS = {"n_members": M}, {"dropout": 0.3, "n_masks": T}
EVERYTHING = {
    "joined": True,
    "rebuild": True,
    "window": 15,
    "discount": 0.95,
    "head": "posterior",
    "n_batches": 2,
    "learning_rate": 0.05,
}
KINDS = {
    "neural-linear": (NeuralLinearAgent, LINEAR),
    "neural-linear, everything": (NeuralLinearAgent, LINEAR | EVERYTHING),
    "neural-linear, sgd": (NeuralLinearAgent, LINEAR | {"optimiser": "sgd"}),
    "neural-linear, thompson": (NeuralLinearAgent, LINEAR | THOMPSON),
    "ensemble": (EnsembleAgent, MEMBERS),
    "ensemble, thompson": (EnsembleAgent, MEMBERS | THOMPSON),
    "dropout": (MCDropoutAgent, MASKS),
    "dropout, thompson": (MCDropoutAgent, MASKS | THOMPSON),
    "neural-ucb": (NeuralUCBAgent, {"ridge": RIDGE}),
    "neural-ucb, diagonal": (NeuralUCBAgent, {"inverse": "diagonal"}),
}


def agent_for(kind, n_worlds=None, **options):
    family, mine = KINDS[kind]
    return family(K, D, n_worlds=n_worlds, **(SMALL | mine | options))


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


def worlds_of(agent):
    return () if agent.n_worlds is None else (agent.n_worlds,)


def trained(agent, n):
    """The agent, after n visits."""
    for step in range(n):
        agent.update(*visit(step, *worlds_of(agent)))
    return agent


def weights_of(agent):
    return [p.detach().numpy().copy() for p in agent.network.parameters()]


def state_of(agent):
    """All that decides what an agent does next, but for its luck."""
    learned = agent.state()["learned"]
    for luck in ("uniforms", "counters", "decides", "trains"):
        learned.pop(luck, None)
    learned["memory"].pop("generators")
    return to_bytes(learned)


def same(before, after):
    return len(before) == len(after) and all(map(np.array_equal, before, after))


def assert_refused(agent, played, words):
    """The update leads out of all numbers and is refused, and nothing is left of it."""
    probe = visit(500, *worlds_of(agent))[0]
    before, undisturbed = state_of(agent), copy.deepcopy(agent)
    with pytest.raises(FloatingPointError, match=words):
        agent.update(*played)
    assert state_of(agent) == before
    assert np.array_equal(agent.scores(probe), undisturbed.scores(probe))


def spoil_the_second_batch(losses, value):
    batches = []

    def spoilt(*batch):
        batches.append(batch)
        return losses(*batch) * (value if len(batches) == 2 else 1)

    return spoilt


class PlainAdam:
    """Adam by its formula, for a list of arrays."""

    def __init__(self, weights):
        self.moments = [(np.zeros_like(w), np.zeros_like(w)) for w in weights]
        self.steps = 0

    def moved(self, weights, gradients, learning_rate):
        """The weights after a step; what has no gradient stays."""
        self.steps += 1
        after = list(weights)
        for place, g in enumerate(gradients):
            m, s = self.moments[place]
            m, s = 0.9 * m + 0.1 * g, 0.999 * s + 0.001 * g**2
            self.moments[place] = m, s
            m, s = m / (1 - 0.9**self.steps), s / (1 - 0.999**self.steps)
            after[place] = weights[place] - learning_rate * m / (np.sqrt(s) + 1e-8)
        return after
