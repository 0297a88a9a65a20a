"""The static recommender of Chapter 1: embeddings, a small network, and its training loop.

The model's only inputs are ids. It learns a vector for every user and every product and predicts the click
probability of each pair. Once trained, it does not change.
"""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import torch
    from torch import Tensor, nn
    from torch.nn import functional

from zoolib._support.checks import (
    Seed,
    as_ids,
    as_pairs,
    as_positive,
    as_seeds,
    as_size,
)
from zoolib._support.progress import progress_bar
from zoolib._support.state import Stateful
from zoolib._support.tables import column
from zoolib._support.threads import one_thread
from zoolib.models.networks import MLP, Adam, Embedding, Generators, draw, seeded

# Settings of Chapter 1, chosen on other worlds by the loss on validation rows.
EPOCHS = 5
BATCH_SIZE = 512
LEARNING_RATE = 1e-3


class MLPRecommender(Stateful, nn.Module):
    """Predict clicks from a user id and a product id.

    Two embeddings are looked up, concatenated and passed through layers of width 64, 32 and 1; the
    sigmoid of the output is the predicted click probability. See Chapter 1, "Two embeddings and three layers".

    Parameters
    ----------
    n_users, n_products : int
        Numbers of ids, which start from 0.
    embedding_dim : int, default 32
        Length of an embedding.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of the initial weights. A list of W seeds makes W independent models that train
        together; every array then has a leading axis W.
    embedding_scale : float, default 0.1
        Standard deviation of the initial embeddings. PyTorch's own choice is 1.0; an exercise of
        Chapter 1 compares the two.

    Examples
    --------
    >>> model = MLPRecommender(n_users=1000, n_products=50)
    >>> sum(weights.numel() for weights in model.parameters())
    39873
    >>> model.predict_all().shape
    (1000, 50)
    """

    _learns = ("_weights",)

    def __init__(
        self,
        n_users: int,
        n_products: int,
        embedding_dim: int = 32,
        seed: Seed | Sequence[Seed] = 0,
        embedding_scale: float = 0.1,
    ) -> None:
        super().__init__()
        self.n_users = as_size("n_users", n_users)
        self.n_products = as_size("n_products", n_products)
        dim = self.embedding_dim = as_size("embedding_dim", embedding_dim)
        scale = self.embedding_scale = as_positive("embedding_scale", embedding_scale)
        self._worlds = np.shape(seed)
        seeds = as_seeds("seed", seed, len(seed) if self._worlds else None)
        self.seed = seeds if self._worlds else seeds[0]
        generators = seeded(self.seed)
        self.user_embedding = Embedding(self.n_users, dim, generators, scale)
        self.product_embedding = Embedding(self.n_products, dim, generators, scale)
        self.mlp = MLP((2 * dim, 64, 32, 1), generators)

    def forward(self, users: Tensor, products: Tensor) -> Tensor:
        """Return logits for pairs of ids; all shapes (m,), or (W, m) with worlds."""
        pair = torch.cat(
            [self.user_embedding(users), self.product_embedding(products)], dim=-1
        )
        return self.mlp(pair)[..., 0]

    @torch.no_grad()
    def predict(self, user_id: ArrayLike, product_id: ArrayLike) -> NDArray[np.float32]:
        """Predict click probabilities of pairs.

        Parameters
        ----------
        user_id, product_id : array_like of int
            Ids; arrays broadcast against each other. With worlds, all W models predict the
            same pairs.

        Returns
        -------
        ndarray of the broadcast shape, behind a leading axis W with worlds
            Probabilities.
        """
        pairs = as_pairs(user_id, self.n_users, product_id, self.n_products)
        device = self.user_embedding.weight.device
        flat = [np.tile(ids.ravel(), (*self._worlds, 1)) for ids in pairs]
        logits = self(*(torch.tensor(ids, device=device) for ids in flat))
        shape = (*self._worlds, *pairs[0].shape)
        return torch.sigmoid(logits).cpu().numpy().reshape(shape)

    def predict_all(self) -> NDArray[np.float32]:
        """Predict the click probability of every pair, shape (n_users, n_products) or (W, ...)."""
        users = np.arange(self.n_users)[:, None]
        return self.predict(users, np.arange(self.n_products))

    def recommend(self) -> NDArray[np.int64]:
        """Return the product with the highest prediction for every user, shape (n_users,) or (W, n_users)."""
        return self.predict_all().argmax(axis=-1)

    @property
    def _weights(self) -> dict[str, NDArray[np.float32]]:
        """The weights; if the model is on the CPU, the arrays share its memory."""
        return {name: part.cpu().numpy() for name, part in self.state_dict().items()}


@dataclass(frozen=True)
class TrainingHistory:
    """Losses of a training run, in nats per visit.

    Attributes
    ----------
    train_loss, validation_loss : ndarray, shape (epochs,) or (W, epochs)
        Mean log-loss over the training rows, measured during the epoch, and over the validation
        rows, measured at its end. Without validation rows the latter is NaN.
    """

    train_loss: NDArray[np.float64]
    validation_loss: NDArray[np.float64]


def train_recommender(
    model: MLPRecommender,
    train: pd.DataFrame | Sequence[pd.DataFrame],
    validation: pd.DataFrame | Sequence[pd.DataFrame] | None = None,
    *,
    epochs: int = EPOCHS,
    batch_size: int = BATCH_SIZE,
    learning_rate: float = LEARNING_RATE,
    seed: Seed | Sequence[Seed] = 0,
    device: str | torch.device | None = None,
    progress: bool = True,
) -> TrainingHistory:
    """Fit a recommender to logged clicks with Adam and the binary cross-entropy.

    Parameters
    ----------
    model : MLPRecommender
        Trained in place, starting from its present weights.
    train, validation : DataFrame, or a list of W of them for a model with worlds
        Columns ``user_id``, ``product_id``, ``clicked``; frames of one list have equal lengths.
    epochs, batch_size : int
        Number of passes over the training rows, and of rows in a step.
    learning_rate : float
        Step size of Adam.
    seed : int, SeedSequence or Generator, or a sequence of W of them, default 0
        Seed of the order of the rows.
    device : str or torch.device, optional
        Device for training, on which the model stays; if omitted, a CUDA or Apple GPU if there is one.
    progress : bool, default True
        Show a progress bar on the terminal, unless the environment sets ``TQDM_DISABLE=1``.

    Returns
    -------
    TrainingHistory

    Raises
    ------
    FloatingPointError
        If the loss stops being finite.
    """
    epochs = as_size("epochs", epochs)
    batch_size = as_size("batch_size", batch_size)
    learning_rate = as_positive("learning_rate", learning_rate)
    generators = seeded(seed)
    if np.shape(seed) != model._worlds:
        raise ValueError(f"seed must be {_wanted(model, 'seed')}: got {seed!r}")
    rows = _tensors("train", train, model)
    held_out = None if validation is None else _tensors("validation", validation, model)
    found = torch.accelerator.current_accelerator(check_available=True)
    device = torch.device(device or found or "cpu")
    model.to(device)
    optimiser = Adam(model.parameters(), lr=learning_rate, fused=True)
    train_loss = []
    validation_loss = []
    bar = progress_bar(progress, iterable=range(epochs), desc="training", unit="epoch")
    with nullcontext() if model._worlds else one_thread():
        for _ in bar:
            shuffled = shuffle(rows, generators)
            loss = train_epoch(model, optimiser, shuffled, batch_size, device)
            held_out_loss = _mean_loss(model, held_out, device)
            if not np.isfinite(loss).all():
                raise FloatingPointError(
                    "the training loss is no longer finite: a smaller learning_rate may help"
                )
            train_loss.append(loss)
            validation_loss.append(held_out_loss)
            shown = {"train": loss.mean(), "validation": held_out_loss.mean()}
            bar.set_postfix({k: v for k, v in shown.items() if not np.isnan(v)})
    return TrainingHistory(
        np.stack(train_loss, axis=-1), np.stack(validation_loss, axis=-1)
    )


def _wanted(model: MLPRecommender, what: str) -> str:
    if model._worlds:
        return f"a list of {model._worlds[0]}, one a world"
    return f"one {what}"


def _tensors(
    name: str, frames: pd.DataFrame | Sequence[pd.DataFrame], model: MLPRecommender
) -> list[Tensor]:
    """Users, products and clicks as tensors (m,) or (W, m), checked against the model."""
    single = isinstance(frames, pd.DataFrame)
    tables = [frames] if single else frames
    if (() if single else (len(tables),)) != model._worlds:
        got = "one table" if single else f"a list of {len(tables)}"
        raise ValueError(f"{name} must be {_wanted(model, 'table')}: got {got}")
    lengths = {len(table) for table in tables}
    if len(lengths) > 1 or 0 in lengths:
        raise ValueError(
            f"{name} must have rows, equally many in each world: got {sorted(lengths)}"
        )
    numbers = {"user_id": model.n_users, "product_id": model.n_products, "clicked": 2}
    columns = []
    for key, n in numbers.items():
        ids = np.stack([column(name, table, key) for table in tables])
        ids = as_ids(f"{name}.{key}", ids[0] if single else ids, n)
        columns.append(torch.tensor(ids))
    users, products, clicks = columns
    return [users, products, clicks.float()]


def shuffle(rows: list[Tensor], generators: Generators) -> list[Tensor]:
    """Shuffle columns (m,) or (W, m): all columns in the same order, each world in a different one."""
    order = draw(generators, lambda g: torch.randperm(rows[0].shape[-1], generator=g))
    return [torch.gather(column, -1, order) for column in rows]


def log_losses(
    model: MLPRecommender, users: Tensor, products: Tensor, clicks: Tensor
) -> Tensor:
    """Mean log-loss of a batch in each world, shape () or (W,)."""
    logits = model(users, products)
    return functional.binary_cross_entropy_with_logits(
        logits, clicks, reduction="none"
    ).mean(dim=-1)


def train_epoch(
    model: MLPRecommender,
    optimiser: torch.optim.Optimizer,
    rows: list[Tensor],
    batch_size: int,
    device: torch.device,
) -> NDArray[np.float64]:
    """Train for one pass over the rows, by slicing whole tensors instead of looping over rows."""
    total = 0.0
    n_rows = rows[0].shape[-1]
    for batch in zip(
        *(part.to(device).split(batch_size, dim=-1) for part in rows), strict=True
    ):
        losses = log_losses(model, *batch)
        optimiser.zero_grad()
        losses.sum().backward()  # worlds share no weights: each gets its own gradient
        optimiser.step()
        total = total + losses.detach() * batch[0].shape[-1]
    return (total / n_rows).cpu().double().numpy()


@torch.no_grad()
def _mean_loss(
    model: MLPRecommender, rows: list[Tensor] | None, device: torch.device
) -> NDArray[np.float64]:
    if rows is None:
        return np.full(model._worlds, np.nan)
    losses = log_losses(model, *(column.to(device) for column in rows))
    return losses.cpu().double().numpy()
