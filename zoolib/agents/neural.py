"""What neural agents share: a network, a memory to train it from, and a schedule.

Choosing happens at every visit, training only now and then: see Chapter 3, "A memory to train from". A
family adds how arms are scored (`score_rows`) and what an update does beside training (`absorb`, and
`represent` before it).
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, DTypeLike, NDArray
from torch import Tensor, nn

from zoolib._checks import as_one_of, as_positive, as_seeds, as_size
from zoolib.agents.protocol import Agent, Context
from zoolib.networks import Generators, descend, seeded
from zoolib.replay import ReplayBuffer

OPTIMISERS = {"adam": torch.optim.Adam, "sgd": torch.optim.SGD}


class NeuralAgent(Agent):
    """An agent whose scores come from a network, trained on what it has played.

    Parameters
    ----------
    n_arms, n_features : int
        Numbers K of arms and d of features.
    n_worlds : int, optional
        Number of worlds W played in step, each with a network of its own.
    make_network : callable
        Makes the network from seeded generators: see `zoolib.networks.seeded`.
    train_every : int, default 50
        Updates between two trainings.
    n_batches : int, default 1
        Optimiser steps in a training.
    batch_size : int, default 64
        Rows in each of them, drawn from the memory.
    buffer_size : int, default 10_000
        Rows that the memory holds, at least `batch_size`.
    learning_rate : float, default 0.01
        Of the optimiser.
    optimiser : {"adam", "sgd"}, default "adam"
        Kingma and Ba's Adam, or plain gradient descent.
    seed : int or sequence of int, default 0
        Seed of all that is left to chance, initial weights included; with worlds, one number for all
        or one each.
    network_seed : int or sequence of int, optional
        Seed of the initial weights, where that shall be another, whatever `reseed` says.
    dtype : float32 or float64, default float32
        Type of the network and of the features it sees.

    Attributes
    ----------
    network : nn.Module
        With worlds, its weights are stacked along a leading axis W.
    memory : ReplayBuffer
        What was played.
    n_updates : int
        Number of rewards taken in.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what is described here.
    """

    n_updates = 0

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        n_worlds: int | None = None,
        *,
        make_network: Callable[[Generators], nn.Module],
        train_every: int = 50,
        n_batches: int = 1,
        batch_size: int = 64,
        buffer_size: int = 10_000,
        learning_rate: float = 0.01,
        optimiser: str = "adam",
        seed: int | Sequence[int] = 0,
        network_seed: int | Sequence[int] | None = None,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.train_every = as_size("train_every", train_every)
        self.n_batches = as_size("n_batches", n_batches)
        self.batch_size = as_size("batch_size", batch_size)
        self.buffer_size = as_size("buffer_size", buffer_size)
        if self.buffer_size < self.batch_size:
            raise ValueError(
                f"buffer_size must be at least batch_size={batch_size}: got {buffer_size}"
            )
        self.learning_rate = as_positive("learning_rate", learning_rate)
        self.optimiser = as_one_of("optimiser", optimiser, OPTIMISERS)
        self.dtype = np.dtype(dtype)
        if self.dtype not in (np.float32, np.float64):
            raise TypeError(f"dtype must be float32 or float64: got {self.dtype}")
        self._make_network, self._network_seed = make_network, network_seed
        super().__init__(n_arms, n_worlds, seed, as_size("n_features", n_features))

    def reseed(self, seed: int | Sequence[int]) -> None:
        """Give the agent new luck; before the first update, new initial weights too."""
        super().reseed(seed)
        if self.n_updates == 0:
            self.begin(seed)
        self.memory.reseed(seed)

    def begin(self, seed: int | Sequence[int]) -> None:
        """Draw the initial weights, and empty the memory."""
        wanted = seed if self._network_seed is None else self._network_seed
        seeds = as_seeds("network_seed", wanted, self.n_worlds)
        generators = seeded(seeds[0] if self.n_worlds is None else seeds)
        kind = getattr(torch, self.dtype.name)
        self.network = self._make_network(generators).to(kind)
        make_optimiser = OPTIMISERS[self.optimiser]
        self._optimiser = make_optimiser(
            self.network.parameters(), lr=self.learning_rate
        )
        self.memory = ReplayBuffer(
            self.buffer_size, self.n_features, self.n_worlds, dtype=self.dtype
        )

    def scores(self, context: Context) -> NDArray:
        """Return upper confidence bounds or sampled rewards, shape (n_arms,) or (W, n_arms)."""
        features = self._check(context).astype(self.dtype, copy=False)
        rows, spread = self._lookalikes(features)
        scores = self.score_rows(rows)
        if not np.isfinite(scores).all():
            raise FloatingPointError(
                "scores must be finite, or the learning rate is too high: got NaN or infinity"
            )
        return spread(scores)

    def score_rows(self, x: NDArray) -> NDArray:
        """Score rows (n, d) or (W, n, d); returns shape (n,) or (W, n)."""
        raise NotImplementedError

    def learn(self, context: Context, at: tuple, reward: ArrayLike) -> None:
        """Remember the row played, train if it is time, and take the reward in: all of it or nothing."""
        x = context.features[at].astype(self.dtype)
        trains = (self.n_updates + 1) % self.train_every == 0
        before = self._state() if trains else None
        undo = self.memory.add(x, reward)
        try:
            played = self.represent(x)
            trains = trains and len(self.memory) >= self.batch_size
            if trains:
                self.train()
            self.absorb(played, reward, trains)
        except Exception:
            undo()
            if before is not None:
                self._restore(before)
            raise
        self.n_updates += 1

    def train(self) -> None:
        """Take `n_batches` optimiser steps on rows from the memory.

        Raises
        ------
        FloatingPointError
            If a loss or a gradient is not finite.
        """
        # All batches are drawn at once: to draw takes each world a call, however few numbers it wants.
        drawn = self.memory.sample(self.n_batches * self.batch_size)
        x, reward = map(torch.from_numpy, drawn)
        batches = x.split(self.batch_size, dim=-2), reward.split(self.batch_size, -1)
        for rows, rewards in zip(*batches, strict=True):
            descend(self._optimiser, self.losses(rows, rewards))

    def losses(self, x: Tensor, reward: Tensor) -> Tensor:
        """Return the mean squared error of a batch, shape () or (W,)."""
        return (self.predict(x) - reward).square().mean(dim=-1)

    def predict(self, x: Tensor) -> Tensor:
        """Predict the rewards of rows (..., n, d) for training; returns shape (..., n)."""
        return self.network(x)[..., 0]

    def represent(self, x: NDArray) -> NDArray | Tensor:
        """Return what `absorb` needs of the row played, by the weights that chose it; here the row."""
        return x

    def absorb(
        self, played: NDArray | Tensor, reward: ArrayLike, trained: bool
    ) -> None:
        """Do what an update does beside training, and after it: all of it or nothing."""

    def _state(self) -> tuple:
        """Copy what training changes."""
        weights = [p.detach().clone() for p in self.network.parameters()]
        # The optimiser's moments, tensor by tensor: copy.deepcopy takes half as long as the training.
        moments = {
            p: {name: value.clone() for name, value in of_p.items()}
            for p, of_p in self._optimiser.state.items()
        }
        return weights, moments

    @torch.no_grad()
    def _restore(self, state: tuple) -> None:
        weights, moments = state
        for parameter, weight in zip(self.network.parameters(), weights, strict=True):
            parameter.copy_(weight)
        self._optimiser.state.clear()
        self._optimiser.state.update(moments)
