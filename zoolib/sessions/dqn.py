r"""Deep Q-learning: a network that predicts the remaining reward of a session after each action.

The targets of training depend on the network. A memory, a slower copy of the network for targets, and two
networks for the maximum keep training stable (Mnih et al. 2015; van Hasselt, Guez and Silver 2016). See the
chapter on sessions, "Deep Q-networks".
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import KW_ONLY, dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import torch
    from torch import Tensor, nn

from zoolib._support.checks import (
    Seed,
    as_array,
    as_flag,
    as_ids,
    as_positive,
    as_probability,
    as_size,
)
from zoolib._support.settings import each, optional, setting
from zoolib._support.state import Stateful
from zoolib.agents.neural import finite
from zoolib.models.networks import (
    MLP,
    Adam,
    Embedding,
    Generators,
    descend,
    seeded,
    shared_arrays,
)
from zoolib.models.replay import ReplayBuffer
from zoolib.sessions.base import SessionAgent


class Encoder(Stateful, nn.Module):
    """Base class of encoders, which map observations to features; subclasses add `forward`.

    Parameters
    ----------
    n_observed, n_features : int
        Numbers in an observation, and in its features.
    sizes : sequence of int, optional
        Number of values, 0, 1, …, that each entry of an observation may take; real numbers if omitted.
    """

    def __init__(
        self, n_observed: int, n_features: int, sizes: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.n_observed = n_observed
        self.n_features = n_features
        self.values = None if sizes is None else np.array(sizes)

    def begin(self, generators: Generators) -> None:
        """Draw the initial weights, if there are any."""

    def forward(self, observation: Tensor) -> Tensor:
        """Map observations (..., n, n_observed) to features (..., n, n_features)."""
        raise NotImplementedError


class OneHot(Encoder):
    """Whole numbers, each as a one-hot vector; number j is one of 0 … sizes[j] - 1."""

    def __init__(self, sizes: Sequence[int]) -> None:
        sizes = each(as_size)("sizes", sizes)
        super().__init__(len(sizes), sum(sizes), sizes)
        self.sizes = sizes
        first = torch.from_numpy(np.cumsum(sizes) - sizes)
        self.register_buffer("_first", first, persistent=False)

    def forward(self, observation: Tensor) -> Tensor:
        """See `Encoder.forward`."""
        features = torch.zeros(*observation.shape[:-1], self.n_features)
        return features.scatter_(-1, observation + self._first, 1.0)


class LastItems(Encoder):
    """The items that a visitor was shown last: a vector of length `dim` is learnt for each item.

    An observation contains the visitor's persona, the items, newest first and 0 for missing ones, and whether
    each was clicked. Features are the items' vectors, the persona as a one-hot vector, and the clicks.
    """

    def __init__(
        self, n_items: int = 10, n_last: int = 5, n_personas: int = 4, dim: int = 8
    ) -> None:
        n = as_size("n_last", n_last)
        n_items = as_size("n_items", n_items)
        n_personas = as_size("n_personas", n_personas)
        dim = as_size("dim", dim)
        sizes = (n_personas, *[n_items + 1] * n, *[2] * n)
        super().__init__(len(sizes), n * (dim + 1) + n_personas, sizes)
        self.n_items = n_items
        self.n_last = n
        self.n_personas = n_personas
        self.dim = dim

    def begin(self, generators: Generators) -> None:
        """Draw the items' vectors."""
        self.embedding = Embedding(self.n_items + 1, self.dim, generators)

    def forward(self, observation: Tensor) -> Tensor:
        """See `Encoder.forward`."""
        *lead, n, _ = observation.shape
        persona, items, clicks = observation.split((1, self.n_last, self.n_last), -1)
        rows = self.embedding(items.reshape(*lead, -1)).reshape(*lead, n, -1)
        persona = nn.functional.one_hot(persona[..., 0], self.n_personas)
        return torch.cat([rows, persona, clicks], dim=-1)


class QNetwork(nn.Module):
    """An encoder followed by an MLP with one output per action."""

    def __init__(
        self, encoder: Encoder, widths: Sequence[int], generators: Generators
    ) -> None:
        super().__init__()
        self.encoder = copy.deepcopy(encoder)
        self.encoder.begin(generators)
        self.head = MLP((encoder.n_features, *widths), generators)

    def forward(self, observation: Tensor) -> Tensor:
        """Map observations (..., n, n_observed) to Q, shape (..., n, K)."""
        return self.head(self.encoder(observation))

    @torch.no_grad()
    def evaluate(self, observation: NDArray) -> NDArray:
        """Return the same as `forward`, for arrays and without gradients: see `MLP.evaluate`."""
        # A copy, because PyTorch warns of arrays that it may not write to.
        features = self.encoder(torch.from_numpy(observation.copy()))
        return self.head.evaluate(features.numpy())


@dataclass(eq=False, repr=False)
class DQNAgent(SessionAgent):
    r"""Choose the action with the highest remaining reward of the session, as predicted by a network.

    The target of a row in memory is :math:`r + \beta \max_{a'} Q'(s', a')` with the target network Q', or
    with ``double`` :math:`r + \beta Q'(s', \arg\max_{a'} Q(s', a'))`; if the session has ended, it is r.
    ``discount=0`` is a regression on single rewards.

    Each world has its own network, memory and random numbers. Resets count as updates in the schedules.

    Parameters
    ----------
    n_actions : int
        Number K of actions.
    encoder : Encoder
        Maps observations to features: `OneHot`, `LastItems` or another encoder.
    n_worlds : int, optional
        Number of worlds W played in step.
    hidden : sequence of int, default (64, 64)
        Widths of the layers between features and output.
    discount : float, default 0.99
        β in [0, 1]; 1 only if sessions end.
    double : bool, default True
        Whether the trained network, not the target network, selects the best next action. It changes
        nothing if ``target_every`` is None, as both are then the same network.
    target_every : int or None, default 500
        Updates between two copies of the network to the target network; with None there is no separate one.
    replay : bool, default True
        Whether batches are drawn from the memory; if False, they are its newest rows.
    batch_size, buffer_size : int, default 32 and 10_000
        Number of rows in a batch, and in the memory.
    learning_rate : float, default 0.001
        Step size of Adam.
    learning_starts, train_every : int, default 100 and 4
        Number of updates before the first batch, and between two batches.
    epsilon_end, epsilon_steps : float and int, default 0.05 and 10_000
        The probability of exploring falls from 1 to `epsilon_end` within `epsilon_steps` updates.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of all random numbers; with worlds, one for all or one for each.

    Attributes
    ----------
    network, target : QNetwork
        With worlds, weights are stacked along a leading axis W.
    memory : ReplayBuffer
        The steps played.

    Examples
    --------
    >>> agent = DQNAgent(2, OneHot([3]), discount=1.0)
    >>> place = 0
    >>> for _ in range(9):  # act, update, repeat
    ...     step = agent.select([place])  # 0 stays, 1 goes on; arriving at 2 ends the session
    ...     agent.update([place], step, step, [place + step], ended=place + step == 2)
    ...     place = (place + step) % 2
    >>> agent.q([[0], [1], [2]]).shape
    (3, 2)
    """

    n_actions: int = setting(as_size)
    encoder: Encoder
    n_worlds: int | None = setting(optional(as_size), None)
    _: KW_ONLY
    hidden: Sequence[int] = setting(each(as_size), (64, 64))
    discount: float = setting(as_probability, 0.99)
    double: bool = setting(as_flag, True)
    target_every: int | None = setting(optional(as_size), 500)
    replay: bool = setting(as_flag, True)
    batch_size: int = setting(as_size, 32)
    buffer_size: int = setting(as_size, 10_000)
    learning_rate: float = setting(as_positive, 0.001)
    learning_starts: int = setting(partial(as_size, least=0), 100)
    train_every: int = setting(as_size, 4)
    epsilon_end: float = setting(as_probability, 0.05)
    epsilon_steps: int = setting(as_size, 10_000)
    seed: Seed | Sequence[Seed] = 0

    n_updates = 0
    _learns = ("_weights", "memory", "n_updates")

    def __post_init__(self) -> None:
        if not isinstance(self.encoder, Encoder):
            raise TypeError(f"encoder must be an Encoder: got {self.encoder!r:.100}")
        super().__post_init__()
        if self.buffer_size < self.batch_size:
            raise ValueError(
                f"buffer_size must be at least batch_size={self.batch_size}: got {self.buffer_size}"
            )
        kind = np.float32 if self.encoder.values is None else np.int64
        seen = (self.encoder.n_observed,), kind
        # Observation, action, reward, next observation, and whether the session ended.
        columns = [seen, ((), np.int64), ((), np.float32), seen, ((), bool)]
        self.memory = ReplayBuffer(self.buffer_size, columns, self.n_worlds)
        self.reseed(self.seed)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Restart the random numbers; before the first update, with new initial weights, too."""
        super().reseed(seed)
        self.memory.reseed(self.seed)
        if self.n_updates == 0:
            self._begin()

    def _begin(self) -> None:
        """Draw the initial weights, and begin the optimiser's state."""
        generators = seeded(self._seeds if self._lead else self._seeds[0])
        widths = (*self.hidden, self.n_actions)
        self.network = self.target = QNetwork(self.encoder, widths, generators)
        if self.target_every is not None:
            self.target = copy.deepcopy(self.network)
        parameters = list(self.network.parameters())
        self._optimiser = Adam(parameters, lr=self.learning_rate, fused=True)
        self._optimiser.begin()
        networks = {"network": self.network, "target": self.target}
        self._weights = {
            name: shared_arrays(one, self._optimiser) for name, one in networks.items()
        }

    @property
    def epsilon(self) -> float:
        """Probability that `select` draws an action uniformly."""
        left = max(0.0, 1 - self.n_updates / self.epsilon_steps)
        return self.epsilon_end + (1 - self.epsilon_end) * left

    def q(self, observation: ArrayLike) -> NDArray[np.float32]:
        """Predict the remaining reward of the session after each action, shape (..., K).

        Parameters
        ----------
        observation : array_like, shape (n_observed,) or (n, n_observed)
            One observation or several; with worlds, (W, n_observed) or (W, n, n_observed).
        """
        many = np.ndim(observation) > 1 + len(self._lead)
        lead = (*self._lead, "n") if many else self._lead
        rows = self._observed("observation", observation, lead)
        if many:
            return finite("Q", self.network.evaluate(rows))
        return self._q_of_each(rows)

    def _q_of(self, observation: ArrayLike) -> NDArray[np.float32]:
        return self.q(observation)

    def _q_of_each(self, seen: NDArray) -> NDArray[np.float32]:
        """Return Q (K,) or (W, K) of a checked observation of each world."""
        return finite("Q", self.network.evaluate(seen[..., None, :])[..., 0, :])

    def select(self, observation: ArrayLike) -> int | NDArray[np.int64]:
        """Return the best action by `q` or, with probability `epsilon`, a random one; an int or shape (W,)."""
        seen = self._observed("observation", observation, self._lead)
        best = self._q_of_each(seen).argmax(axis=-1)
        drawn = self._uniforms.next(2)
        explores = drawn[..., 0] < self.epsilon
        chosen = np.where(explores, (drawn[..., 1] * self.n_actions).astype(int), best)
        return chosen if chosen.ndim else int(chosen)

    def learn(
        self,
        observation: NDArray,
        action: NDArray,
        reward: NDArray,
        after: NDArray,
        ended: NDArray,
        played: NDArray,
    ) -> None:
        """Store a checked step and, if it is time and every world has played, train.

        Raises
        ------
        FloatingPointError
            If a loss or a gradient is not finite.
        """
        row = observation, action, reward, after, ended
        count = self.n_updates + 1
        trains = count > self.learning_starts and count % self.train_every == 0
        with self._unchanged_on_failure() if trains else nullcontext():
            self.memory.add(*row, played=played)
            if trains and len(self.memory) > 0:
                self._train()
        self.n_updates = count
        if self.target_every is not None and count % self.target_every == 0:
            self.target.load_state_dict(self.network.state_dict())

    def _train(self) -> None:
        """Take a step of Adam on the mean squared error of a batch of rows from the memory."""
        draw = self.memory.sample if self.replay else self.memory.newest
        seen, action, *later = draw(self.batch_size)
        target = torch.from_numpy(self.targets(*later))
        q = self.network(torch.from_numpy(seen))
        chosen = q.gather(-1, torch.from_numpy(action)[..., None])[..., 0]
        descend(self._optimiser, (target - chosen).square().mean(dim=-1))

    @torch.no_grad()
    def targets(self, reward: NDArray, after: NDArray, ended: NDArray) -> NDArray:
        """Return the targets of rows, shape (n,) or (W, n)."""
        if self.discount == 0:
            return reward
        then = torch.from_numpy(after)
        q = self.target(then)
        best = (self.network(then) if self.double else q).argmax(dim=-1, keepdim=True)
        worth = q.gather(-1, best)[..., 0].numpy()
        # Nothing follows the end of a session.
        return reward + np.float32(self.discount) * ~ended * worth

    def _observed(self, name: str, value: ArrayLike, lead: tuple) -> NDArray:
        shape = (*lead, self.encoder.n_observed)
        if self.encoder.values is None:
            return as_array(name, value, shape, np.float32)
        return as_ids(name, value, self.encoder.values, shape)

    def __reduce__(self) -> tuple:
        """Copy and pickle through the state, because plain copies of `_weights` would share no memory."""
        return type(self).from_state, (self.state(),)
