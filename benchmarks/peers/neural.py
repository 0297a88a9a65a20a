"""Other libraries' bandits with a network: neural-linear, and NeuralUCB."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.peers.lightning import Calvera, as_tensor, fit
from zoolib import Context

if TYPE_CHECKING:
    from calvera.bandits import NeuralLinearBandit, NeuralUCBBandit
    from calvera.utils.data_storage import TensorDataBuffer


def make_network(sizes: Sequence[int]) -> nn.Sequential:
    """Return a network as PyTorch's tutorials build it; no activation follows the last layer."""
    layers: list[nn.Module] = []
    for n_in, n_out in pairwise(sizes):
        layers += [nn.Linear(n_in, n_out), nn.ReLU()]
    return nn.Sequential(*layers[:-1])


def make_buffer(size: int) -> TensorDataBuffer:
    """Return a memory of Calvera for so many rows."""
    from calvera.utils.data_storage import AllDataRetrievalStrategy, TensorDataBuffer

    return TensorDataBuffer(AllDataRetrievalStrategy(), max_size=size)


class CalveraBandit(Calvera):
    """What Calvera's bandits with a network share.

    A training takes `n_batches` optimiser steps through the newest rows, as many as make so many batches.

    Parameters
    ----------
    bandit : NeuralLinearBandit or NeuralUCBBandit
        What is driven.
    """

    def __init__(
        self, bandit: NeuralLinearBandit | NeuralUCBBandit, rows_to_train_on: int
    ) -> None:
        self.bandit, self.rows_to_train_on = bandit, rows_to_train_on

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        self.update_batch(context.features[None], np.array([arm]), np.array([reward]))

    def update_batch(
        self, features: NDArray, arms: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> None:
        """Learn from the arms played; train the network when that is due."""
        rows = features[np.arange(len(arms)), arms]
        with torch.no_grad():
            self.bandit.record_feedback(
                as_tensor(rows)[:, None], as_tensor(rewards)[:, None]
            )
        self.learn(len(arms))

    def learn(self, n_new: int) -> None:
        """Train the network, if that is due, on the newest rows."""
        if self.bandit.should_train_network:
            self.train_on(self.rows_to_train_on)

    def train_on(self, n_rows: int) -> None:
        """Let the Trainer go once through the newest rows."""
        from calvera.utils.data_storage import SlidingWindowRetrievalStrategy

        self.bandit.buffer.retrieval_strategy = SlidingWindowRetrievalStrategy(n_rows)
        fit(self.bandit)


class CalveraNeuralLinear(CalveraBandit):
    """Calvera's neural-linear bandit: Thompson sampling, with a posterior over what a network makes.

    Two defaults are set otherwise. The precision is updated with the reward, not with the choice: else it is
    lost at each training of the network, and the mean becomes the sum of rewards times embeddings. Between
    trainings the head is shown the new rows only: else it counts all rows of the memory again each time.

    Parameters
    ----------
    train_every, n_batches, batch_size, learning_rate
        As for `zoolib.NeuralLinearAgent`.
    memory : int
        Rows from which the posterior is rebuilt after a training.
    """

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        hidden: Sequence[int] = (64,),
        embedding_dim: int = 32,
        train_every: int = 50,
        n_batches: int = 1,
        batch_size: int = 64,
        memory: int = 10_000,
        learning_rate: float = 0.01,
        seed: int = 0,
    ) -> None:
        from calvera.bandits import NeuralLinearBandit

        torch.manual_seed(seed)  # it draws from PyTorch's global generator
        bandit = NeuralLinearBandit(
            make_network([n_features, *hidden, embedding_dim]),
            make_buffer(memory),
            embedding_dim,
            min_samples_required_for_training=train_every,
            initial_train_steps=0,
            lazy_uncertainty_update=True,
            eps=1e-9,  # what it adds to the diagonal at each update; 0 is refused
            train_batch_size=batch_size,
            learning_rate=learning_rate,
            early_stop_threshold=None,
        )
        super().__init__(bandit, n_batches * batch_size)

    @torch.no_grad()
    def scores(self, context: Context, alpha: float = 1.0) -> NDArray[np.float64]:
        """Return LinUCB's scores by the posterior over embeddings."""
        rows = self.bandit.network(as_tensor(context.features)).double().numpy()
        return self.bounds_of(rows, alpha)

    @torch.no_grad()
    def select_batch(self, features: NDArray) -> NDArray[np.int64]:
        """Choose an arm for each of B visits."""
        return super().select_batch(features)

    def learn(self, n_new: int) -> None:
        """Train the network, if that is due, or else the posterior."""
        due = self.bandit.should_train_network
        self.train_on(self.rows_to_train_on if due else n_new)


class CalveraNeuralUCB(CalveraBandit):
    """Calvera's NeuralUCB: of A it keeps the diagonal only, and calls the network backward for each arm.

    Parameters
    ----------
    alpha, ridge
        Weights of the uncertainty and of the prior.
    train_every, n_batches, batch_size, learning_rate
        As for `zoolib.NeuralUCBAgent`.
    """

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        alpha: float = 1.0,
        ridge: float = 1.0,
        hidden: Sequence[int] = (64,),
        train_every: int = 50,
        n_batches: int = 1,
        batch_size: int = 64,
        memory: int = 10_000,
        learning_rate: float = 0.01,
        seed: int = 0,
    ) -> None:
        from calvera.bandits import NeuralUCBBandit
        from calvera.utils.selectors import ArgMaxSelector

        class Recording(ArgMaxSelector):
            """Keep the scores seen last."""

            def __call__(self, scores: Tensor) -> Any:
                self.scores = scores
                return super().__call__(scores)

        torch.manual_seed(seed)  # it draws from PyTorch's global generator
        bandit = NeuralUCBBandit(
            n_features,
            make_network([n_features, *hidden, 1]),
            make_buffer(memory),
            selector=Recording(),
            # Under its root stands weight_decay × exploration_rate × Σ g² / Z.
            exploration_rate=alpha**2 / ridge,
            weight_decay=ridge,
            min_samples_required_for_training=train_every,
            initial_train_steps=0,
            train_batch_size=batch_size,
            learning_rate=learning_rate,
            early_stop_threshold=None,
        )
        super().__init__(bandit, n_batches * batch_size)

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return the upper confidence bounds; what the choice adds to the diagonal is taken back."""
        diagonal = self.bandit.Z_t.clone()
        self.bandit(as_tensor(context.features[None]))
        self.bandit.Z_t.copy_(diagonal)
        return self.bandit.selector.scores[0].detach().double().numpy()
