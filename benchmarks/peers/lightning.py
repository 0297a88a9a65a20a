"""What Calvera's bandits share: how they choose, and training by Lightning's Trainer, anew each time."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor

from benchmarks.peers.adapter import BatchAdapter
from zoolib import Context

if TYPE_CHECKING:
    from calvera.bandits.abstract_bandit import AbstractBandit


def as_tensor(values: NDArray) -> Tensor:
    """Convert to single precision, the type of Calvera's tensors; copy what must not be written to."""
    return torch.from_numpy(values.astype("f4", copy=not values.flags.writeable))


class Calvera(BatchAdapter):
    """A bandit of Calvera, which takes batches only."""

    bandit: AbstractBandit

    def select(self, context: Context) -> int:
        """Choose an arm."""
        return int(self.select_batch(context.features[None])[0])

    def select_batch(self, features: NDArray) -> NDArray[np.int64]:
        """Choose an arm for each of B visits."""
        chosen, _ = self.bandit(as_tensor(features))
        return chosen.argmax(dim=1).numpy()

    def bounds_of(self, rows: NDArray, alpha: float) -> NDArray[np.float64]:
        """Return upper confidence bounds of rows (n, d) by the bandit's posterior."""
        A_inv, mean = (
            part.double().numpy()
            for part in (self.bandit.precision_matrix, self.bandit.theta)
        )
        widths = np.sqrt(np.einsum("ij,jk,ik->i", rows, A_inv, rows))
        return rows @ mean + alpha * widths


def fit(bandit: AbstractBandit) -> None:
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
