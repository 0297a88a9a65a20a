"""A version in memory: an agent, how far it has read the log, and how it comes back from the disk.

An agent learns one reward at a time, in the order of the log, at work and in a replay. So what it has
learnt is a function of the log alone, to the last bit, and a snapshot with the rewards after it restores
an agent exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zoolib._support.extras import needed_by
from zoolib._support.generators import Uniforms
from zoolib._support.state import from_bytes, to_bytes
from zoolib.agents.base import Agent, Context
from zoolib.agents.policies import with_floor
from zoolib.service.database import StoreCorruptError
from zoolib.service.settings import Settings
from zoolib.service.store import Store

NOBODY = -1  # stands for the user's id in what an agent sees

# Maps the number of arms or their labels, that of features, and a seed to an agent that has learnt nothing.
MakeAgent = Callable[[int | Sequence[Hashable], int, int], Agent]


def neural_linear(
    n_arms: int | Sequence[Hashable], n_features: int, seed: int = 0
) -> Agent:
    """Make the agent that a service begins with unless told otherwise: neural-linear Thompson sampling.

    It learns each reward at once, in its posterior, and trains its network only in a retraining.
    """
    # PyTorch is loaded only for this one.
    with needed_by("neural_linear, the default make_agent of a service,"):
        from zoolib.agents import NeuralLinearAgent

    return NeuralLinearAgent(
        n_arms,
        n_features,
        alpha=0.3,
        policy="thompson",
        joined=True,
        train_every=None,
        learning_rate=0.005,
        buffer_size=64,  # a retraining reads the log, not the agent's memory
        seed=seed,
    )


def choice_probabilities(
    agent: Agent, context: Context, settings: Settings
) -> NDArray[np.float64]:
    r"""Return the probabilities (K,) that an arm is then drawn with, so that they are exact propensities.

    They are :math:`(1 - \varepsilon)\, m(a) + \varepsilon / K`, where m(a) is the agent's own propensity
    (for Thompson sampling, the share of posterior draws that the arm wins) and :math:`\varepsilon` the floor.
    """
    policy = agent.propensities(context, n_draws=settings.n_draws)
    return with_floor(policy, settings.floor)


class Model:
    """A version that serves or is about to: an agent, and the last reward `seq` that it has learnt.

    Whoever shares it with other threads holds its `lock` meanwhile.
    """

    def __init__(self, agent: Agent, seq: int) -> None:
        self.agent, self.seq, self.lock = agent, seq, threading.Lock()

    def catch_up(self, store: Store, known: int = 0) -> int:
        """Learn what the log holds beyond `seq`, but for events up to a known one; count the rewards read."""
        read = 0
        for seq, event, features, arm, reward in store.rewards_after(self.seq):
            if features is not None and event > known:
                context = Context(NOBODY, features)
                self.agent.update(context, self.agent.arms[arm], reward)
            self.seq = seq
            read += 1
        return read

    def to_bytes(self) -> bytes:
        """Write down what the agent has learnt: the same for the same rewards, whatever it has shown.

        What could not be read again, since a number is NaN for example, raises ValueError.
        """
        state = self.agent.state()
        # What choices leave behind is not in the log: random numbers drawn.
        state["learned"]["uniforms"] = Uniforms(0, None).state()
        Agent.from_state(state)
        return to_bytes(state)

    @classmethod
    def from_bytes(cls, blob: bytes, seq: int, seed: np.random.SeedSequence) -> Model:
        """Return a version that has learnt the same, with random numbers from a new seed."""
        state = from_bytes(blob)
        state["learned"]["uniforms"] = Uniforms(seed, None).state()
        return cls(Agent.from_state(state), seq)


@dataclass(frozen=True)
class Recovery:
    """What a version in memory rests on: the last reward in its snapshot, and rewards learnt after it.

    `damaged` counts newer snapshots that could not be used.
    """

    version: str
    snapshot: int
    replayed: int
    damaged: int


def recover(
    store: Store, name: str, seed: int = 0, from_first: bool = False
) -> tuple[Model, Recovery]:
    """Load a version: its newest snapshot that is whole, and the rewards that came after it.

    The seed of its random numbers is `seed` together with the number of events so far. With `from_first`
    the oldest snapshot is taken, not the newest: this replays all that is retained. Without any snapshot
    that can be used StoreCorruptError is raised.
    """
    deleted, snapshots = store.deleted(), store.snapshots(name)
    if from_first:
        snapshots = snapshots[::-1]
    numbers = np.random.SeedSequence([seed, store.last_event()])
    why = "there is none"
    for damaged, (seq, blob) in enumerate(snapshots):
        try:
            model = Model.from_bytes(blob, seq, numbers)
        except (ValueError, TypeError) as error:
            why = str(error)
            continue
        replayed = model.catch_up(store)
        if store.deleted() > deleted:  # by another process: what was read may be gone
            return recover(store, name, seed, from_first)
        model.seq = max(model.seq, deleted)
        return model, Recovery(name, seq, replayed, damaged)
    raise StoreCorruptError(
        f"database {store.path} holds no good snapshot of {name}: {why}"
    )


def learns_from_rewards_alone(agent: Agent) -> bool:
    """Return whether choosing changes nothing in an agent but its random numbers."""
    shape = agent.n_arms, agent.n_features
    before = Model(agent, 0).to_bytes()
    twin = Model.from_bytes(before, 0, np.random.SeedSequence(0))
    rows = np.random.default_rng(0).random(shape, np.float32)
    twin.agent.propensities(Context(NOBODY, rows))
    return twin.to_bytes() == before
