"""Calvera's neural-linear bandit; it takes batches only, and learns by Lightning's Trainer, made anew."""

from __future__ import annotations

import logging
import warnings

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn

from benchmarks.peers.adapter import Adapter, Numbers
from zoolib import Context


class CalveraNeuralLinear(Adapter):
    """Thompson sampling in single precision over embeddings, learning by Lightning's Trainer as documented.

    Two defaults are set otherwise. The precision is updated with the reward, not with the choice: only then
    does the mean follow from it. And the head is shown new rows only, instead of all rows again each time.
    """

    distribution, module = "calvera", "calvera.bandits"

    def __init__(self, network: nn.Sequential, embedding_dim: int) -> None:
        from calvera.bandits import NeuralLinearBandit
        from calvera.utils.data_storage import (
            SlidingWindowRetrievalStrategy,
            TensorDataBuffer,
        )

        torch.manual_seed(0)  # it draws from the global generator
        self.bandit = NeuralLinearBandit(
            network,
            TensorDataBuffer(SlidingWindowRetrievalStrategy(1), max_size=1000),
            embedding_dim,
            min_samples_required_for_training=10**9,
            initial_train_steps=0,
            lazy_uncertainty_update=True,
            eps=1e-9,  # what it adds to the diagonal at each update; 0 is refused
        )

    @torch.no_grad()
    def select(self, context: Context) -> int:
        chosen, _ = self.bandit(as_tensor(context.features[None]))
        return int(chosen[0].argmax())

    def update(self, context: Context, arm: int, reward: float) -> None:
        row = as_tensor(context.features[None, None, arm])
        with torch.no_grad():
            self.bandit.record_feedback(
                row, torch.tensor([[reward]], dtype=torch.float32)
            )
        fit(self.bandit)

    @torch.no_grad()
    def scores(self, context: Context, alpha: float = 1.0) -> Numbers:
        rows = self.bandit.network(as_tensor(context.features)).double().numpy()
        A_inv, mean = (
            part.double().numpy()
            for part in (self.bandit.precision_matrix, self.bandit.theta)
        )
        widths = np.sqrt(np.einsum("ij,jk,ik->i", rows, A_inv, rows))
        return rows @ mean + alpha * widths


def as_tensor(values: NDArray) -> Tensor:
    """Convert to single precision, the type of Calvera's tensors; copy what must not be written to."""
    return torch.from_numpy(values.astype("f4", copy=not values.flags.writeable))


def fit(bandit: nn.Module) -> None:
    """Train a bandit on what it has recorded: once through it, without files, bars and advice."""
    import lightning

    logging.getLogger("lightning.pytorch.utilities.rank_zero").setLevel(logging.FATAL)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        trainer = lightning.Trainer(
            max_epochs=1,
            accelerator="cpu",
            logger=False,
            enable_checkpointing=False,
            enable_progress_bar=False,
            enable_model_summary=False,
        )
        trainer.fit(bandit)
