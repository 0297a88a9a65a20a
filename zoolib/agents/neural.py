"""The base class of neural agents: a network, a memory to train it from, and a schedule.

The agent chooses at every visit but trains less often: see Chapter 3, "The student and her notes". A subclass
adds the scores of arms (`score_rows`, and `draw_rows` if it samples) and the part of an update that is not
training (`absorb`, preceded by `represent`).
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from functools import partial
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import torch
    from torch import Tensor, nn

from zoolib._support.checks import (
    Seed,
    as_flag,
    as_not_negative,
    as_positive,
    as_seeds,
    as_size,
)
from zoolib._support.settings import each, one_of, optional, setting
from zoolib.agents.base import Agent, Context
from zoolib.models.networks import (
    MLP,
    SGD,
    Adam,
    Generators,
    descend,
    seeded,
    shared_arrays,
)
from zoolib.models.replay import ReplayBuffer

OPTIMISERS = {"adam": Adam, "sgd": SGD}
as_policy = one_of("ucb", "thompson")


def as_precision(name: str, value: DTypeLike) -> np.dtype:
    """Return `value` as the type of numbers of single or double precision."""
    dtype = np.dtype(value)
    if dtype not in (np.float32, np.float64):
        raise TypeError(f"{name} must be float32 or float64: got {dtype}")
    return dtype


@dataclass(eq=False, repr=False)
class NeuralAgent(Agent):
    """An agent whose scores come from a network, which is trained on the visits played.

    Parameters
    ----------
    n_arms, n_features
        As for `Agent`.
    alpha : float, default 1.0
        Weight of the uncertainty, 0 or more.
    n_worlds : int, optional
        Number of worlds W played in step, each with a network of its own.
    shared : bool, default True
        One output for all arms, told apart by their rows of features, instead of one output per arm.
    hidden : sequence of int, default (64,)
        Widths of the layers between features and output.
    train_every : int or None, default 50
        Number of updates between two trainings; with None the agent trains only when `train` is called.
    n_batches : int, default 1
        Number of optimiser steps per training.
    batch_size : int, default 64
        Number of rows in each step, drawn from the memory.
    buffer_size : int, default 10_000
        Capacity of the memory in rows, at least `batch_size`.
    learning_rate : float, default 0.01
        Step size of the optimiser.
    optimiser : {"adam", "sgd"}, default "adam"
        Kingma and Ba's Adam, or plain gradient descent.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of all random numbers, initial weights included; with worlds, one for all or one
        for each.
    network_seed : as `seed`, optional
        Separate seed for the initial weights, which `reseed` does not change.
    dtype : float32 or float64, default float32
        Type of the network and of the features it sees.

    Attributes
    ----------
    network : nn.Module
        With worlds, its weights are stacked along a leading axis W.
    memory : ReplayBuffer
        The rows played and their rewards.
    n_updates : int
        Number of rewards learnt from.
    """

    n_arms: int | Sequence[Hashable]
    n_features: int = setting(as_size)
    alpha: float = setting(as_not_negative, 1.0)
    _: KW_ONLY
    n_worlds: int | None = setting(optional(as_size), None)
    shared: bool = setting(as_flag, True)
    hidden: Sequence[int] = setting(each(as_size), (64,))
    policy: str = field(default="ucb", init=False)  # or "thompson" in subclasses
    train_every: int | None = setting(optional(as_size), 50)
    n_batches: int = setting(as_size, 1)
    batch_size: int = setting(as_size, 64)
    buffer_size: int = setting(as_size, 10_000)
    learning_rate: float = setting(as_positive, 0.01)
    optimiser: str = setting(one_of(*OPTIMISERS), "adam")
    seed: Seed | Sequence[Seed] = 0
    network_seed: Seed | Sequence[Seed] | None = None
    dtype: DTypeLike = setting(as_precision, np.float32)

    n_updates = 0
    _alike = (None, ())  # see `_lookalikes`; no type, which would make it a setting
    _learns = ("_weights", "memory", "n_updates")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.buffer_size < self.batch_size:
            raise ValueError(
                f"buffer_size must be at least batch_size={self.batch_size}: got {self.buffer_size}"
            )

    @classmethod
    def _least_numbers(cls, settings: dict[str, Any]) -> float:
        sizes = settings["n_features"], *settings["hidden"]
        widths = sum(n_in * n_out for n_in, n_out in pairwise(sizes))
        widths = (settings["n_worlds"] or 1) * widths
        widths += cls._n_models(settings) * sizes[-1]
        return settings.get("n_members", 1) * widths

    def make_network(self, generators: Generators) -> nn.Module:
        """Return a new network from features to 1 or K outputs, with weights drawn by these generators."""
        return MLP((self.n_features, *self.hidden, self.n_outputs), generators)

    @property
    def n_outputs(self) -> int:
        """Number of outputs of the network, which is one or one per arm."""
        return 1 if self.shared else self.n_arms

    def make_memory(self, n_weights: int = 0) -> ReplayBuffer:
        """Return an empty memory for rows with `n_weights` weights, and the arm if each has an output."""
        shapes = [(self.n_features,), ()]
        beside = n_weights + (not self.shared)
        shapes += [(beside,)] if beside else []
        columns = [(shape, self.dtype) for shape in shapes]
        return ReplayBuffer(self.buffer_size, columns, self.n_worlds)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Restart the random numbers; before the first update, with new initial weights too."""
        super().reseed(seed)
        if self.n_updates == 0:
            self.begin(self.seed)
        self.memory.reseed(self.seed)

    def begin(self, seed: Seed | Sequence[Seed]) -> None:
        """Draw the initial weights, and empty the memory."""
        seeds = as_seeds("seed", seed, self.n_worlds)
        if self.network_seed is not None:
            seeds = as_seeds("network_seed", self.network_seed, self.n_worlds)
            self.network_seed = seeds
        generators = seeded(seeds[0] if self.n_worlds is None else seeds)
        self.network = self.make_network(generators).to(getattr(torch, self.dtype.name))
        parameters = list(self.network.parameters())
        self._optimiser = OPTIMISERS[self.optimiser](parameters, lr=self.learning_rate)
        if self.optimiser == "adam":
            self._optimiser.begin()
        self.memory = self.make_memory()

    def scores(self, context: Context) -> NDArray:
        """Return upper confidence bounds or sampled rewards of the arms."""
        return self._scored(context, self.score_rows, axis=0)

    def draws(self, context: Context, n: int) -> NDArray:
        """See `Agent.draws`."""
        if self.policy == "ucb":
            return super().draws(context, n)
        return self._scored(context, partial(self.draw_rows, n_draws=n), axis=1)

    def _scored(
        self, context: Context, score: Callable[..., NDArray], axis: int
    ) -> NDArray:
        """Score all arms; several visitors are scored one by one, along an axis of the result."""
        rows = self._rows(context)
        if self._n_visitors(context) == 0:
            return np.zeros((1,) * axis + rows.shape[:-1])
        if self._n_visitors(context) is not None:
            return np.stack([finite("scores", score(one)) for one in rows], axis)
        rows, group = self._lookalikes(rows) if self.shared else (rows, ())
        return finite("scores", score(rows))[(..., *group)]

    def _lookalikes(self, rows: NDArray) -> tuple[NDArray, tuple]:
        """Return the different ones of the arms' rows, and the index of each arm's row among them."""
        first, group = self._alike
        # Arms with equal features for the last visitor usually have equal features for the next.
        if first is None or not np.array_equal(rows[first][group], rows):
            first, group = self._alike = self._group(rows)
        return rows[first], group

    def _group(self, rows: NDArray) -> tuple[tuple, tuple]:
        """Return the indices of the first arm of each group of equal rows, and of the group of each arm."""
        found = [
            np.unique(one, axis=0, return_index=True, return_inverse=True)[1:]
            for one in rows.reshape(-1, *rows.shape[-2:])
        ]
        n = max(len(first) for first, _ in found)
        if n == self.n_arms:
            return (), ()  # no two rows are equal
        # Worlds with fewer groups repeat an arm, so that all worlds have n.
        first = [np.resize(first, n) for first, _ in found]
        first = np.reshape(first, (*self._shape[:-1], n))
        group = np.reshape([group for _, group in found], self._shape)
        return self._at(first), self._at(group)

    def score_rows(self, x: NDArray) -> NDArray:
        """Score rows (n, d) or (W, n, d); returns shape (n,) or (W, n)."""
        raise NotImplementedError

    def draw_rows(self, x: NDArray, n_draws: int) -> NDArray:
        """Sample scores of rows, as `draws` does; shape (n_draws, n) or (n_draws, W, n)."""
        raise NotImplementedError

    def of_arms(self, outputs: NDArray) -> NDArray:
        """Select each arm's prediction from outputs (..., n, 1), or (..., n, K) for n rows or a single one."""
        if self.shared:
            return outputs[..., 0]
        if outputs.shape[-2] == 1:
            return outputs[..., 0, :]
        return np.diagonal(outputs, axis1=-2, axis2=-1)

    def learn(self, context: Context, at: tuple, reward: ArrayLike) -> None:
        """Store the row played, train if it is time, and learn the reward; undo all of it on failure."""
        x = context.row(at).astype(self.dtype)
        played = self.represent(x)
        every = self.train_every
        due = every is not None and (self.n_updates + 1) % every == 0
        if due and len(self.memory) + 1 >= self.batch_size:
            with self._unchanged_on_failure():
                self.remember(x, reward, at[-1])
                self._train()
                self.absorb(played, at, reward, trained=True)
        else:  # what may refuse the row comes first
            self.absorb(played, at, reward, trained=False)
            self.remember(x, reward, at[-1])
        self.n_updates += 1

    def train(self) -> None:
        """Take `n_batches` optimiser steps on rows from the memory; undo all of them on failure.

        Raises
        ------
        ValueError
            If the memory is empty.
        FloatingPointError
            If a loss or a gradient is not finite.
        """
        if len(self.memory) == 0:
            raise ValueError("memory must hold rows to train on: got none")
        with self._unchanged_on_failure():
            self._train()

    def _train(self) -> None:
        # All batches are drawn at once: drawing takes one call per world, however few the rows.
        drawn = self.memory.sample(self.n_batches * self.batch_size)
        self._descend(drawn, self.batch_size)

    def losses(self, x: Tensor, reward: Tensor, arm: Tensor | None = None) -> Tensor:
        """Return the mean squared error of a batch, shape () or (W,); arms (..., n, 1) if they are used."""
        predicted = self.predict(x) if arm is None else self.predict(x, arm)
        return (predicted - reward).square().mean(dim=-1)

    def predict(self, x: Tensor, arm: Tensor | None = None) -> Tensor:
        """Predict the rewards of rows (..., n, d) for training; returns shape (..., n)."""
        return of_arm(self.network(x), arm)

    def remember(self, x: NDArray, reward: ArrayLike, arm: ArrayLike) -> None:
        """Put the row played into the memory."""
        self.memory.add(x, reward, *self._beside(arm))

    def _beside(self, arm: ArrayLike, weights: NDArray | None = None) -> list[NDArray]:
        """Return what the memory stores with a row, (..., M): weights, then the arm if it is used."""
        kept = [] if weights is None else [weights]
        if not self.shared:
            kept.append(np.asarray(arm)[..., None])
        return [np.concatenate(kept, axis=-1)] if kept else []

    def represent(self, x: NDArray) -> NDArray | Tensor:
        """Return the input of `absorb`, computed with the weights that chose the arm; here just the row."""
        return x

    def absorb(
        self, played: NDArray | Tensor, at: tuple, reward: ArrayLike, trained: bool
    ) -> None:
        """Do the part of an update that follows training; change nothing on failure."""

    def _descend(self, columns: Sequence[NDArray], batch_size: int) -> None:
        """Take an optimiser step on each batch of a table's rows."""
        axis = len(self._worlds)
        parts = [torch.from_numpy(c).split(batch_size, dim=axis) for c in columns]
        for batch in zip(*parts, strict=True):
            descend(self._optimiser, self.losses(*batch))

    @property
    def _weights(self) -> dict[str, dict[str, NDArray]]:
        """Each parameter and its optimiser state; the arrays share memory with them."""
        return shared_arrays(self.network, self._optimiser)


def finite(name: str, numbers: NDArray) -> NDArray:
    """Return the numbers that a network has computed, if all are finite.

    Raises
    ------
    FloatingPointError
        If a number is NaN or infinite.
    """
    if not np.isfinite(numbers).all():
        raise FloatingPointError(
            f"{name} must be finite, or the learning rate is too high: got NaN or infinity"
        )
    return numbers


def of_arm(outputs: Tensor, arm: Tensor | None) -> Tensor:
    """Select from outputs (..., n, 1) or (..., n, K) those of arms (..., n, 1); returns shape (..., n)."""
    if arm is None:
        return outputs[..., 0]
    arm = arm.long().expand(*outputs.shape[:-1], 1)
    return outputs.gather(-1, arm)[..., 0]
