"""How Calvera's bandits are trained: by Lightning's Trainer, anew for each training."""

from __future__ import annotations

import logging
import warnings
from typing import TYPE_CHECKING

import torch
from numpy.typing import NDArray
from torch import Tensor

if TYPE_CHECKING:
    from calvera.bandits.abstract_bandit import AbstractBandit


def as_tensor(values: NDArray) -> Tensor:
    """Convert to single precision, the type of Calvera's tensors; copy what must not be written to."""
    return torch.from_numpy(values.astype("f4", copy=not values.flags.writeable))


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
