r"""Deep Q-learning: a network that predicts what a session still earns after each action.

Its regression has a moving target: the reward, and what the network itself says of the state that came
next. A memory to train from, a slower copy of the network for the targets, and two networks for the maximum
keep that stable (Mnih et al. 2015; van Hasselt, Guez and Silver 2016). See Chapter 6, "A network for Q".

Observations become features in an encoder, which can be exchanged: `OneHot`, `LastItems`, `Plain`, or
whatever makes an `Encoder` from generators.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Protocol

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import torch
    from torch import Tensor, nn

from zoolib._support.checks import (
    Seed,
    as_array,
    as_ids,
    as_positive,
    as_probability,
    as_rate,
    as_seeds,
    as_size,
)
from zoolib._support.generators import Uniforms
from zoolib._support.state import Stateful
from zoolib.agents.neural import finite, undone_on_failure
from zoolib.models.networks import (
    MLP,
    Embedding,
    Generators,
    as_vector,
    seeded,
)
from zoolib.models.replay import Memory


class Encoder(nn.Module):
    """What makes features of observations: a parent for those that `DQNAgent` takes.

    Parameters
    ----------
    n_observed, n_features : int
        Numbers in an observation, and in its features.
    sizes : sequence of int, optional
        How many values each number of an observation can have, 0, 1, …; real numbers if omitted.
    """

    def __init__(
        self, n_observed: int, n_features: int, sizes: Sequence[int] | None = None
    ) -> None:
        super().__init__()
        self.n_observed = as_size("n_observed", n_observed)
        self.n_features = n_features
        self.sizes = None if sizes is None else np.array(sizes)

    def forward(self, observation: Tensor) -> Tensor:
        """Map observations (..., n, n_observed) to features (..., n, n_features)."""
        return torch.from_numpy(self.evaluate(observation.numpy()))

    def evaluate(self, observation: NDArray) -> NDArray:
        """Return what `forward` does, for arrays: an encoder has either of the two, or both."""
        with torch.no_grad():
            return self(torch.from_numpy(observation)).numpy()


class MakesEncoder(Protocol):
    """What an agent takes as its encoder."""

    def __call__(self, generators: Generators) -> Encoder:
        """Return an encoder, its weights drawn by these generators."""


@dataclass(eq=False, repr=False)
class Plain(Stateful):
    """Take real numbers as they are: shape (n_observed,)."""

    n_observed: int

    def __call__(self, generators: Generators) -> Encoder:
        """Return the encoder."""
        return _Plain(self.n_observed, self.n_observed)


class _Plain(Encoder):
    def evaluate(self, observation: NDArray) -> NDArray:
        return observation


@dataclass(eq=False, repr=False)
class OneHot(Stateful):
    """Write each whole number as a one among zeros: number j takes values 0 … sizes[j] - 1."""

    sizes: Sequence[int]

    def __post_init__(self) -> None:
        self.sizes = tuple(as_size("sizes", size) for size in self.sizes)

    def __call__(self, generators: Generators) -> Encoder:
        """Return the encoder."""
        return _OneHot(len(self.sizes), sum(self.sizes), self.sizes)


class _OneHot(Encoder):
    def evaluate(self, observation: NDArray) -> NDArray:
        features = np.zeros((*observation.shape[:-1], self.n_features), np.float32)
        first = np.cumsum(self.sizes) - self.sizes
        np.put_along_axis(features, observation + first, 1, axis=-1)
        return features


@dataclass(eq=False, repr=False)
class LastItems(Stateful):
    """Learn a vector for each item, to know a visitor by the last items that she was shown.

    An observation is persona, items, clicks: the newest item first, 0 where there was none yet, and then,
    in the same order, whether each was clicked.
    """

    n_items: int = 10
    n_last: int = 5
    n_personas: int = 4
    dim: int = 8

    def __call__(self, generators: Generators) -> Encoder:
        """Return the encoder."""
        return _LastItems(self, generators)


class _LastItems(Encoder):
    def __init__(self, of: LastItems, generators: Generators) -> None:
        n = of.n_last
        sizes = (of.n_personas, *[of.n_items + 1] * n, *[2] * n)
        super().__init__(len(sizes), of.n_personas + n * (of.dim + 1), sizes)
        self.embedding = Embedding(of.n_items + 1, of.dim, generators)
        self.n_last, self.persona = n, np.eye(of.n_personas, dtype=np.float32)

    def forward(self, observation: Tensor) -> Tensor:
        *lead, n, _ = observation.shape
        items = observation[..., 1 : 1 + self.n_last].reshape(*lead, -1)
        known = torch.from_numpy(self._known(observation.numpy()))
        return torch.cat([self.embedding(items).reshape(*lead, n, -1), known], dim=-1)

    def evaluate(self, observation: NDArray) -> NDArray:
        table, items = (
            self.embedding.weight.data.numpy(),
            observation[..., 1 : 1 + self.n_last],
        )
        worlds = () if table.ndim == 2 else (np.arange(len(table))[:, None, None],)
        rows = table[(*worlds, items)].reshape(*observation.shape[:-1], -1)
        return np.concatenate([rows, self._known(observation)], axis=-1)

    def _known(self, observation: NDArray) -> NDArray:
        """Return personas as ones among zeros, and the clicks."""
        clicks = observation[..., 1 + self.n_last :].astype(np.float32)
        return np.concatenate([self.persona[observation[..., 0]], clicks], axis=-1)


class QNetwork(nn.Module):
    """An encoder, and behind it what predicts K numbers: all parameters in one `vector`.

    Its gradients are a matter of a few matrix products: PyTorch's trace of them, for networks so small, takes
    several times as long. It is asked for those of an encoder that learns.
    """

    def __init__(
        self,
        encoder: MakesEncoder,
        hidden: Sequence[int],
        n_actions: int,
        generators: Generators,
    ) -> None:
        super().__init__()
        self.encoder = encoder(generators)
        self._encoder_learns = any(True for _ in self.encoder.parameters())
        sizes = (self.encoder.n_features, *hidden, n_actions)
        self.head = MLP(sizes, generators)
        self.vector = as_vector(self)

    def forward(self, observation: Tensor) -> Tensor:
        """Map observations (..., n, n_observed) to Q, (..., n, K)."""
        return self.head(self.encoder(observation))

    def evaluate(self, observation: NDArray) -> NDArray:
        """Return what `forward` does, for arrays and without a trace for gradients."""
        return self.head.evaluate(self.encoder.evaluate(observation))

    def regress(
        self, observation: NDArray, action: NDArray, target: NDArray
    ) -> NDArray:
        """Fill the gradients of the mean squared error of a batch (..., n), and return its errors."""
        self.vector.grad.zero_()
        if self._encoder_learns:
            traced = self.encoder(torch.from_numpy(observation))
            features = traced.detach().numpy()
        else:
            features = self.encoder.evaluate(observation)
        inputs: list[NDArray] = []
        q = self.head.evaluate(features, inputs=inputs)
        at = action[..., None]
        error = np.take_along_axis(q, at, axis=-1) - target[..., None]
        gradient = np.zeros_like(q)
        np.put_along_axis(gradient, at, error * (2 / target.shape[-1]), axis=-1)
        back = self.head.backpropagate(inputs, gradient)
        if self._encoder_learns:
            traced.backward(torch.from_numpy(back))
        return error[..., 0]


@dataclass(eq=False, repr=False)
class DQNAgent(Stateful):
    r"""Choose the action after which, by a network, the session earns most; learn Q by its own targets.

    A row of the memory is pulled towards :math:`r + \beta \max_{a'} Q'(s', a')` with the target network Q',
    or with ``double`` towards :math:`r + \beta Q'(s', \arg\max_{a'} Q(s', a'))`; towards r where the session
    has ended. With n steps, r is the discounted sum of the next n rewards, and s' the state after them. With
    ``discount=0`` the horizon is one step: a regression on rewards, which is the control for looking ahead.

    In many worlds, each has a network, a memory and a schedule of chance of its own; the steps in which a
    world only began a new session (`played` False) teach it nothing, though they count in the schedules.

    Parameters
    ----------
    n_actions : int
        Number K of actions.
    encoder : callable
        Makes an `Encoder` from the generators of the initial weights, for example ``OneHot((4, 5, 5))``.
    n_worlds : int, optional
        Number of worlds W played in step.
    hidden : sequence of int, default (64, 64)
        Widths of the layers between features and output.
    discount : float, default 0.99
        β in [0, 1]; 1 only where sessions end.
    n_step : int, default 1
        Rewards in a target; fewer where the session ends or the record stops.
    double : bool, default True
        Whether the trained network, not the target network, names the best next action.
    target_every : int or None, default 500
        Updates between two renewals of the target network; with None the trained network sets its targets.
    target_rate : float, default 1.0
        Share of the trained network in a renewal, in (0, 1]; small with ``target_every=1`` it is Polyak's
        average.
    replay : bool, default True
        Whether batches are drawn from the memory; without, a batch is the newest rows.
    batch_size, buffer_size : int, default 32 and 10_000
        Rows in a batch, and in the memory.
    learning_rate : float, default 0.001
        Of Adam.
    learning_starts : int, default 100
        Updates before the first training.
    train_every, n_batches : int, default 4 and 1
        Updates between two trainings, and optimiser steps in each.
    epsilon_end, epsilon_steps : float and int, default 0.05 and 10_000
        `select` explores with probability ε, which falls from 1 to `epsilon_end` in so many updates.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of all that is left to chance; with worlds, one for all or one for each.

    Attributes
    ----------
    network : nn.Module
        Encoder and head; with worlds, their weights are stacked along a leading axis W.
    memory : Memory
        What was played.
    n_updates : int
        Number of updates.

    Examples
    --------
    >>> agent = DQNAgent(2, OneHot([3]), discount=1.0)
    >>> agent.update([0], 1, 0.5, [2], ended=False)
    >>> agent.q([[0], [1], [2]]).shape
    (3, 2)
    """

    n_actions: int
    encoder: MakesEncoder
    n_worlds: int | None = None
    _: KW_ONLY
    hidden: Sequence[int] = (64, 64)
    discount: float = 0.99
    n_step: int = 1
    double: bool = True
    target_every: int | None = 500
    target_rate: float = 1.0
    replay: bool = True
    batch_size: int = 32
    buffer_size: int = 10_000
    learning_rate: float = 0.001
    learning_starts: int = 100
    train_every: int = 4
    n_batches: int = 1
    epsilon_end: float = 0.05
    epsilon_steps: int = 10_000
    seed: Seed | Sequence[Seed] = 0

    n_updates = 0
    _learns = ("_uniforms", "_weights", "memory", "n_updates")

    def __post_init__(self) -> None:
        if self.n_worlds is not None:
            self.n_worlds = as_size("n_worlds", self.n_worlds)
        self._lead = () if self.n_worlds is None else (self.n_worlds,)
        self.hidden = tuple(as_size("hidden", width) for width in self.hidden)
        for name in ("n_actions", "n_step", "batch_size", "buffer_size"):
            setattr(self, name, as_size(name, getattr(self, name)))
        for name in ("train_every", "n_batches", "epsilon_steps"):
            setattr(self, name, as_size(name, getattr(self, name)))
        self.learning_starts = as_size("learning_starts", self.learning_starts, least=0)
        if self.buffer_size < self.batch_size:
            raise ValueError(
                f"buffer_size must be at least batch_size={self.batch_size}: got {self.buffer_size}"
            )
        if self.target_every is not None:
            self.target_every = as_size("target_every", self.target_every)
        for name in ("discount", "epsilon_end"):
            setattr(self, name, as_probability(name, getattr(self, name)))
        self.target_rate = as_rate("target_rate", self.target_rate)
        self.learning_rate = as_positive("learning_rate", self.learning_rate)
        self.double, self.replay = bool(self.double), bool(self.replay)
        seeds = as_seeds("seed", self.seed, self.n_worlds)
        self.seed = seeds[0] if np.ndim(self.seed) == 0 else seeds
        self._begin(seeds)

    def _begin(self, seeds: list[int]) -> None:
        """Draw the initial weights, and make an empty memory."""
        self._uniforms = Uniforms(seeds, self.n_worlds)
        self.network, self.target = (
            QNetwork(
                self.encoder,
                self.hidden,
                self.n_actions,
                seeded(seeds if self._lead else seeds[0]),
            )
            for _ in range(2)
        )
        if self.target_every is None:
            self.target = self.network
        vector = self.network.vector
        self._optimiser = torch.optim.Adam([vector], self.learning_rate, fused=True)
        self._optimiser.state[vector] = {  # as it would begin at its first step
            "step": torch.zeros(()),
            "exp_avg": torch.zeros_like(vector),
            "exp_avg_sq": torch.zeros_like(vector),
        }
        shape = (self.network.encoder.n_observed,)
        kind = np.float32 if self.network.encoder.sizes is None else np.int64
        columns = {
            "observation": (shape, kind),
            "action": ((), np.int64),
            "reward": ((), np.float32),
            "next_observation": (shape, kind),
            "ended": ((), bool),
            "cut": ((), bool),
        }
        self.memory = Memory(self.buffer_size, columns, self.n_worlds, seeds)

    @property
    def epsilon(self) -> float:
        """Probability that `select` draws an action uniformly."""
        left = max(0.0, 1 - self.n_updates / self.epsilon_steps)
        return self.epsilon_end + (1 - self.epsilon_end) * left

    def q(self, observation: ArrayLike) -> NDArray[np.float32]:
        """Predict what the session still earns after each action, shape (..., K).

        Parameters
        ----------
        observation : array_like, shape (n_observed,) or (n, n_observed)
            One, or several; with worlds, (W, n_observed) or (W, n, n_observed).
        """
        many = np.ndim(observation) == 2 + len(self._lead)
        shape = (*self._lead, "n") if many else self._lead
        rows = self._observed("observation", observation, shape)
        q = self.network.evaluate(rows if many else rows[..., None, :])
        return finite("Q", q if many else q[..., 0, :])

    def greedy(self, observation: ArrayLike) -> int | NDArray[np.int64]:
        """Return the best action by `q`, in the shape of the observations."""
        best = self.q(observation).argmax(axis=-1)
        return best if best.ndim else int(best)

    def select(self, observation: ArrayLike) -> int | NDArray[np.int64]:
        """Return the best action by `q` or, with probability `epsilon`, any; an int, or shape (W,)."""
        best, drawn = self.greedy(observation), self._uniforms.next(2)
        if np.shape(best) != self._lead:
            raise ValueError(
                f"observation must be one for each world: got shape {np.shape(observation)}"
            )
        explores = drawn[..., 0] < self.epsilon
        if not explores.any():
            return best
        chosen = np.where(explores, (drawn[..., 1] * self.n_actions).astype(int), best)
        return chosen if chosen.ndim else int(chosen)

    def update(
        self,
        observation: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        next_observation: ArrayLike,
        ended: ArrayLike,
        cut: ArrayLike = False,
        played: ArrayLike = True,
    ) -> None:
        """Remember a step and, if it is time, train: all of it or nothing.

        Parameters
        ----------
        observation, next_observation : array_like, shape (n_observed,) or (W, n_observed)
            What was seen before and after the action.
        action, reward : int and float, or array_like, shape (W,)
            What was done, and what it earned.
        ended : bool, or array_like, shape (W,)
            Whether the session is over, so that nothing comes after.
        cut : bool, or array_like, shape (W,), default False
            Whether the record stops here, though the session does not.
        played : bool, or array_like, shape (W,), default True
            Whether this was a step of a session, not the beginning of the next one.

        Raises
        ------
        FloatingPointError
            If a loss or a gradient is not finite.
        """
        lead = self._lead
        row = (
            self._observed("observation", observation, lead),
            as_ids("action", action, self.n_actions, lead),
            as_array("reward", reward, lead, np.float32),
            self._observed("next_observation", next_observation, lead),
            self._flags("ended", ended),
            self._flags("cut", cut),
        )
        undo = [self.memory.put(row, self._flags("played", played))]
        due = (self.n_updates + 1) % self.train_every == 0
        if due and self.n_updates >= self.learning_starts and len(self.memory) > 0:
            undo.append(self._snapshot())
            with undone_on_failure(*undo):
                self._train()
        self.n_updates += 1
        if self.target_every is not None and self.n_updates % self.target_every == 0:
            self.target.vector.lerp_(self.network.vector, self.target_rate)

    def _train(self) -> None:
        """Take `n_batches` optimiser steps."""
        for _ in range(self.n_batches):
            memory, n = self.memory, self.batch_size
            places = memory.draw(n) if self.replay else memory.last(n)
            at = memory.at(places)
            seen, action = (
                memory.columns[name][at] for name in ("observation", "action")
            )
            error = self.network.regress(seen, action, self.targets(places))
            finite("losses", error)
            finite("gradients", self.network.vector.grad.numpy())
            self._optimiser.step()

    def targets(self, places: NDArray[np.int64]) -> NDArray[np.float32]:
        """Return what the memory's rows at these places, (n,) or (W, n), are pulled towards."""
        memory, discount = self.memory, np.float32(self.discount)
        _, _, earned, after, ended, cut = memory.rows(places)
        factor = np.where(ended, np.float32(0), discount)
        goes_on, newer = ~(ended | cut), memory.newer(places)
        for ahead in range(1, self.n_step):
            goes_on &= newer >= ahead
            _, _, reward, then, ended, cut = memory.rows(
                (places + ahead) % memory.capacity
            )
            earned += np.where(goes_on, factor * reward, np.float32(0))
            after = np.where(goes_on[..., None], then, after)
            factor = np.where(
                goes_on, factor * np.where(ended, np.float32(0), discount), factor
            )
            goes_on &= ~(ended | cut)
        if discount == 0:
            return earned
        q = self.target.evaluate(after)
        named = self.network.evaluate(after) if self.double else q
        best = named.argmax(axis=-1)[..., None]
        return earned + factor * np.take_along_axis(q, best, axis=-1)[..., 0]

    def _observed(self, name: str, value: ArrayLike, lead: tuple) -> NDArray:
        """Return observations, checked and of the memory's type."""
        encoder = self.network.encoder
        shape = (*lead, encoder.n_observed)
        if encoder.sizes is None:
            return as_array(name, value, shape, np.float32)
        return as_ids(name, value, encoder.sizes, shape)

    def _flags(self, name: str, value: ArrayLike) -> NDArray[np.bool_]:
        """Return one truth for each world, checked; a single one serves them all."""
        flags = np.asarray(value)
        if flags.dtype != bool or flags.shape not in ((), self._lead):
            raise ValueError(
                f"{name} must hold booleans of shape {self._lead}: got {flags.dtype} of shape {flags.shape}"
            )
        return flags if flags.shape == self._lead else np.full(self._lead, flags)

    def _snapshot(self) -> Callable[[], None]:
        """Return what puts the weights, and what the optimiser keeps of them, back as they are now."""
        before = {name: array.copy() for name, array in self._weights.items()}

        def put_back() -> None:
            for name, array in self._weights.items():
                array[...] = before[name]

        return put_back

    @property
    def _weights(self) -> dict[str, NDArray]:
        """All parameters, those of the targets and what the optimiser keeps; they share their memory."""
        vector = self.network.vector
        kept = self._optimiser.state[vector].items()
        return {name: moment.numpy() for name, moment in kept} | {
            "weight": vector.numpy(),
            "target": self.target.vector.numpy(),
        }

    def __reduce__(self) -> tuple:
        """Copy and pickle by way of the state: parameters lie in one vector, which copies would not share."""
        return type(self).from_state, (self.state(),)
