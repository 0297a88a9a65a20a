"""A version in memory: an agent, how far it has read the log, and how it comes back from the disk.

An agent learns one reward at a time, in the order of the log, at work and in a replay. So what it has
learnt is a function of the log alone, to the last bit, and a snapshot with the rewards after it restores
an agent exactly.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from functools import partial
from itertools import islice

import numpy as np
from numpy.typing import NDArray

from zoolib._support.extras import needed_by
from zoolib._support.generators import Uniforms
from zoolib._support.state import from_bytes, to_bytes
from zoolib.agents.base import Agent, Context
from zoolib.agents.policies import with_floor
from zoolib.service.database import StoreCorruptError
from zoolib.service.log import Row
from zoolib.service.settings import Settings
from zoolib.service.store import Store

TAUGHT_AT_ONCE = 500  # rewards; the agent is checked after them, and goes back to before them if need be
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
    agent: Agent,
    context: Context,
    settings: Settings,
    offered: NDArray[np.bool_] | None = None,
) -> NDArray[np.float64]:
    r"""Return the probabilities (K,) that an arm is then drawn with, so that they are exact propensities.

    They are :math:`(1 - \varepsilon)\, m(a) + \varepsilon / K`, where m(a) is the agent's own propensity
    (for Thompson sampling, the share of posterior draws that the arm wins) and :math:`\varepsilon` the floor.
    If not all arms are `offered` (K,), K counts those that are, and the others have none.
    """
    policy = agent.propensities(context, offered, n_draws=settings.n_draws)
    return with_floor(policy, settings.floor, offered)


class Model:
    """A version that serves or is about to: an agent, and the last reward `seq` that it has learnt.

    Whoever shares it with other threads holds its `lock` meanwhile.
    """

    def __init__(self, agent: Agent, seq: int) -> None:
        self.agent = agent
        self.seq = seq
        self.lock = threading.Lock()

    def learn(self, rows: Iterable[Row]) -> None:
        """Learn rewards, one by one; those of visits without features teach nothing.

        If a reward cannot be learnt, the agent may have learnt half of it, and should not be used any more.
        """
        for seq, _, features, arm, reward in rows:
            if features is not None:
                context = Context(NOBODY, features)
                self.agent.update(context, self.agent.arms[arm], reward)
            self.seq = seq

    def trouble_with(self, rows: Sequence[Row]) -> Exception | None:
        """Learn rewards; return the error if the agent cannot, or can then no longer choose, or be saved.

        A lack of memory is raised.
        """
        try:
            self.learn(rows)
            if (features := rows[-1][2]) is not None:
                context = Context(NOBODY, features)
                with_floor(self.agent.propensities(context, n_draws=2), 0.5)
            self.to_bytes()
        except MemoryError:
            raise
        except Exception as error:
            return error
        return None

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
    def from_bytes(cls, blob: bytes, seq: int, *seed: int) -> Model:
        """Return a version that has learnt the same, with random numbers from a new seed."""
        state = from_bytes(blob)
        numbers = np.random.SeedSequence(seed)
        state["learned"]["uniforms"] = Uniforms(numbers, None).state()
        return cls(Agent.from_state(state), seq)


@dataclass(frozen=True)
class Recovery:
    """What a version in memory rests on: the last reward in its snapshot, and rewards learnt after it.

    `damaged` counts newer snapshots that could not be used.
    """

    snapshot: int
    replayed: int
    damaged: int


def recover(
    store: Store, name: str, seed: int = 0, from_first: bool = False
) -> tuple[Model, Recovery]:
    """Load a version: its newest snapshot that is whole, and the rewards that came after it.

    What the agent cannot learn is set aside: see `teach`. The seed of its random numbers is `seed` together
    with the number of events so far. With `from_first` the oldest snapshot is taken, not the newest: this
    replays all that is retained. Without any snapshot that can be used StoreCorruptError is raised.
    """
    while True:
        deleted = store.deleted()
        snapshots = store.snapshots(name)
        numbers = seed, store.last_event()
        why = "there is none"
        model = None
        order = -1 if from_first else 1
        for number, (seq, blob) in enumerate(snapshots[::order]):
            try:
                model = Model.from_bytes(blob, seq, *numbers)
                damaged = number
                break
            except (ImportError, MemoryError):  # its bytes may well be whole
                raise
            except Exception as error:  # bytes of another origin fail in many ways
                why = words(error)
        if model is None:
            raise StoreCorruptError(
                f"database {store.path} holds no good snapshot of {name}: {why}"
            )
        rows = store.rewards_after(seq, name)
        model, read = teach(model, rows, partial(store.set_aside, name))
        if store.deleted() == deleted:  # else what was read may be gone
            known = max(model.seq, deleted)
            model = Model.from_bytes(model.to_bytes(), known, *numbers)
            return model, Recovery(seq, read, damaged)


def teach(
    model: Model,
    rows: Iterable[Row],
    set_aside: Callable[[int, str], object],
) -> tuple[Model, int]:
    """Have a version learn rewards; return it, and how many they were.

    What its agent cannot learn, or cannot choose after, it does without: the number of the reward and the
    reason are handed to `set_aside`. A lack of memory is no such reason, and raises MemoryError.
    """
    rows = iter(rows)
    read = 0
    while part := list(islice(rows, TAUGHT_AT_ONCE)):
        before = model.to_bytes()
        learnt = model.seq
        if model.trouble_with(part):  # with which one of them, a look after each shows
            model = Model.from_bytes(before, learnt)
            for row in part:
                before = model.to_bytes()
                if error := model.trouble_with([row]):
                    set_aside(row[0], words(error))
                    model = Model.from_bytes(before, row[0])
        read += len(part)
    return model, read


def words(error: BaseException) -> str:
    """Return what an error says, or what it is."""
    return str(error) or type(error).__name__


def learns_from_rewards_alone(agent: Agent) -> bool:
    """Return whether choosing changes nothing in an agent but its random numbers."""
    shape = agent.n_arms, agent.n_features
    before = Model(agent, 0).to_bytes()
    twin = Model.from_bytes(before, 0)
    rows = np.random.default_rng(0).random(shape, np.float32)
    twin.agent.propensities(Context(NOBODY, rows))
    return twin.to_bytes() == before
