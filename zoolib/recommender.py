"""The static recommender of Chapter 1: embeddings, a small network, and its training loop.

The model sees ids only. It learns a vector for every user and every product and predicts the click
probability of their pairing. Once trained it does not change: that is its strength and its flaw.
"""

from __future__ import annotations

import os
import pickle
import warnings
from collections.abc import Sequence
from contextlib import nullcontext
from dataclasses import dataclass
from itertools import pairwise
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from numpy.typing import ArrayLike, NDArray
from sklearn.model_selection import train_test_split
from torch import Tensor, nn
from torch.nn import functional

from zoolib._checks import as_ids, as_pairs, as_positive, as_size
from zoolib._files import write_whole
from zoolib._progress import progress_bar
from zoolib._threads import one_thread
from zoolib.networks import MLP, Embedding, draw, seeded
from zoolib.simulator import ZooplusSimulator


def pick_device() -> torch.device:
    """Return the fastest device present: CUDA, then Apple's MPS, then the CPU."""
    if torch.cuda.is_available():
        return torch.device("cuda")
    if torch.backends.mps.is_available():
        return torch.device("mps")
    return torch.device("cpu")


class MLPRecommender(nn.Module):
    """Predict clicks from a user id and a product id.

    Two embeddings are looked up, joined, and sent through layers of width 64, 32 and 1; the sigmoid
    of the output is the predicted click probability. See Chapter 1, "A model with a memory for
    everyone".

    Parameters
    ----------
    n_users, n_products : int
        Numbers of ids; ids count from 0.
    embedding_dim : int, default 32
        Length of an embedding.
    seed : int or sequence of int, default 0
        Seed of the initial weights. A list of W seeds makes W independent models that train
        together; every array then has a leading axis W.
    embedding_scale : float, default 1.0
        Standard deviation of the initial embeddings. 1.0 is PyTorch's own choice; an exercise of
        Chapter 1 finds a better one.

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive whole number, or the scale is not positive.

    Examples
    --------
    >>> model = MLPRecommender(n_users=1000, n_products=50)
    >>> sum(weights.numel() for weights in model.parameters())
    39873
    >>> model.predict_all().shape
    (1000, 50)
    """

    def __init__(
        self,
        n_users: int,
        n_products: int,
        embedding_dim: int = 32,
        seed: int | Sequence[int] = 0,
        embedding_scale: float = 1.0,
    ) -> None:
        super().__init__()
        self.n_users = as_size("n_users", n_users)
        self.n_products = as_size("n_products", n_products)
        self.embedding_dim = as_size("embedding_dim", embedding_dim)
        scale = as_positive("embedding_scale", embedding_scale)
        generators = seeded(seed)
        self.n_worlds = len(generators) if isinstance(generators, list) else None
        self.user_embedding = Embedding(
            self.n_users, self.embedding_dim, generators, scale
        )
        self.product_embedding = Embedding(
            self.n_products, self.embedding_dim, generators, scale
        )
        self.mlp = MLP(_widths(self.embedding_dim), generators)

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
            Ids; arrays broadcast against each other. With worlds, all W models answer for the
            same pairs.

        Returns
        -------
        ndarray of the broadcast shape, behind a leading axis W with worlds
            Probabilities.

        Raises
        ------
        TypeError
            If ids are not whole numbers.
        ValueError
            If an id is unknown to the model, or the shapes do not broadcast.
        """
        pairs = as_pairs(user_id, self.n_users, product_id, self.n_products)
        worlds = () if self.n_worlds is None else (self.n_worlds,)
        device = self.user_embedding.weight.device
        flat = [np.tile(ids.ravel(), (*worlds, 1)) for ids in pairs]
        logits = self(*(torch.tensor(ids, device=device) for ids in flat))
        shape = (*worlds, *pairs[0].shape)
        return torch.sigmoid(logits).cpu().numpy().reshape(shape)

    def predict_all(self) -> NDArray[np.float32]:
        """Predict the click probability of every user for every product.

        Returns
        -------
        ndarray, shape (n_users, n_products) or (W, n_users, n_products)
        """
        return self.predict(
            np.arange(self.n_users)[:, None], np.arange(self.n_products)
        )

    def recommend(self) -> NDArray[np.int64]:
        """Return the product with the highest prediction for every user, shape (n_users,) or (W, n_users)."""
        return self.predict_all().argmax(axis=-1)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write weights and architecture to a file, whole or not at all.

        Parameters
        ----------
        path : path-like
            Where to; an existing file is replaced only when the new one is complete.
        """
        content = {"architecture": self._architecture(), "weights": self.state_dict()}
        write_whole(path, lambda file: torch.save(content, file))

    @classmethod
    def load(cls, path: str | os.PathLike[str], **expected: int) -> MLPRecommender:
        """Read a model from a file that `save` wrote. Only weights are read: no code in the file runs.

        Parameters
        ----------
        path : path-like
            The file.
        **expected : int
            What the model must be, for example ``n_users=1000, n_products=50``.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged, holds anything but weights, or another architecture.
        """
        if not Path(path).is_file():
            raise FileNotFoundError(
                f"path must name a model file: nothing found at {os.fspath(path)!r}"
            )
        architecture, weights = _read(path)
        for name, wanted in expected.items():
            if name not in architecture:
                raise TypeError(
                    f"expected must name any of {sorted(architecture)}: got {name!r}"
                )
            if architecture[name] != wanted:
                raise ValueError(
                    f"path {os.fspath(path)!r}: the file has {name}={architecture[name]}, wanted {wanted}"
                )
        n_worlds = architecture["n_worlds"]
        sizes = {
            name: size for name, size in architecture.items() if name != "n_worlds"
        }
        model = cls(**sizes, seed=0 if n_worlds is None else [0] * n_worlds)
        model.load_state_dict(weights)
        return model

    def _architecture(self) -> dict[str, int | None]:
        names = ("n_users", "n_products", "embedding_dim", "n_worlds")
        return {name: getattr(self, name) for name in names}


def _read(
    path: str | os.PathLike[str],
) -> tuple[dict[str, int | None], dict[str, Tensor]]:
    """Read a model file and hold its architecture against its weights, before anything is built."""
    refusal = f"path {os.fspath(path)!r} is not a model file of MLPRecommender.save"
    try:
        # Torch warns of what is refused here anyway.
        with warnings.catch_warnings(action="ignore"):
            content = torch.load(path, map_location="cpu", weights_only=True)
    except (
        pickle.UnpicklingError,
        RuntimeError,
        EOFError,
        ValueError,
        KeyError,
        OSError,
    ) as error:
        raise ValueError(
            f"{refusal}: damaged, or more than weights ({type(error).__name__})"
        ) from error
    if not isinstance(content, dict) or set(content) != {"architecture", "weights"}:
        raise ValueError(f"{refusal}: wanted the entries 'architecture' and 'weights'")
    architecture, weights = content["architecture"], content["weights"]
    try:
        shapes = {name: tuple(tensor.shape) for name, tensor in weights.items()}
        fits = shapes == _shapes(**architecture)
    except (AttributeError, TypeError):  # no table of tensors, or no such architecture
        fits = False
    if not fits:
        raise ValueError(
            f"{refusal}: its weights do not fit its architecture {architecture}"
        )
    return architecture, weights


def _widths(embedding_dim: int) -> tuple[int, ...]:
    """Widths of the network, from the two joined embeddings to the logit."""
    return (2 * embedding_dim, 64, 32, 1)


def _shapes(
    n_users: int, n_products: int, embedding_dim: int, n_worlds: int | None
) -> dict[str, tuple[int, ...]]:
    """Shapes of all weights, by name, without allocating any."""
    shapes = {
        "user_embedding.weight": (n_users, embedding_dim),
        "product_embedding.weight": (n_products, embedding_dim),
    }
    for layer, (n_in, n_out) in enumerate(pairwise(_widths(embedding_dim))):
        shapes[f"mlp.weights.{layer}"] = (n_in, n_out)
        shapes[f"mlp.biases.{layer}"] = (1, n_out)
    worlds = () if n_worlds is None else (n_worlds,)
    return {name: worlds + shape for name, shape in shapes.items()}


@dataclass(frozen=True)
class TrainingHistory:
    """Losses of a training run, in nats a visit.

    Attributes
    ----------
    train_loss, validation_loss : ndarray, shape (epochs,) or (W, epochs)
        Mean log-loss over the training rows, taken while the epoch ran, and over the validation
        rows, taken at its end. Without validation rows the latter is NaN.
    """

    train_loss: NDArray[np.float64]
    validation_loss: NDArray[np.float64]


def train_recommender(
    model: MLPRecommender,
    train: pd.DataFrame | Sequence[pd.DataFrame],
    validation: pd.DataFrame | Sequence[pd.DataFrame] | None = None,
    *,
    epochs: int = 10,
    batch_size: int = 512,
    learning_rate: float = 1e-3,
    seed: int | Sequence[int] = 0,
    device: str | torch.device | None = None,
    progress: bool = True,
) -> TrainingHistory:
    """Fit a recommender to logged clicks with Adam and the binary cross-entropy.

    Parameters
    ----------
    model : MLPRecommender
        Trained in place, from the weights it has.
    train, validation : DataFrame, or a list of W of them for a model with worlds
        Columns ``user_id``, ``product_id``, ``clicked``; frames of one list have equal lengths.
    epochs, batch_size : int
        Passes over the training rows, and rows in a step.
    learning_rate : float
        Step size of Adam.
    seed : int or sequence of W int, default 0
        Seed of the order of the rows.
    device : str or torch.device, optional
        Where to train; `pick_device` chooses when omitted. The model stays there.
    progress : bool, default True
        Show a progress bar on the terminal, unless the environment sets ``TQDM_DISABLE=1``.

    Returns
    -------
    TrainingHistory

    Raises
    ------
    TypeError, ValueError
        If an argument or a row does not fit the model; the model is then unchanged.
    FloatingPointError
        If the loss stops being finite.
    """
    epochs, batch_size = as_size("epochs", epochs), as_size("batch_size", batch_size)
    learning_rate = as_positive("learning_rate", learning_rate)
    generators = seeded(seed)
    if (len(generators) if isinstance(generators, list) else None) != model.n_worlds:
        raise ValueError(f"seed must be {_wanted(model, 'seed')}: got {seed!r}")
    rows = _tensors("train", train, model)
    held_out = None if validation is None else _tensors("validation", validation, model)
    device = torch.device(device) if device is not None else pick_device()
    model.to(device)
    optimiser = torch.optim.Adam(model.parameters(), lr=learning_rate, fused=True)
    train_loss, validation_loss = [], []
    bar = progress_bar(progress, iterable=range(epochs), desc="training", unit="epoch")
    with one_thread() if model.n_worlds is None else nullcontext():
        for _ in bar:
            shuffled = _shuffle(rows, generators)
            train_loss.append(
                _train_epoch(model, optimiser, shuffled, batch_size, device)
            )
            validation_loss.append(_mean_loss(model, held_out, device))
            if not np.isfinite(train_loss[-1]).all():
                raise FloatingPointError(
                    "the training loss is no longer finite: a smaller learning_rate may help"
                )
            bar.set_postfix(
                train=train_loss[-1].mean(), validation=validation_loss[-1].mean()
            )
    return TrainingHistory(
        np.stack(train_loss, axis=-1), np.stack(validation_loss, axis=-1)
    )


def _wanted(model: MLPRecommender, what: str) -> str:
    return (
        f"one {what}"
        if model.n_worlds is None
        else f"a list of {model.n_worlds}, one a world"
    )


def _tensors(
    name: str, frames: pd.DataFrame | Sequence[pd.DataFrame], model: MLPRecommender
) -> list[Tensor]:
    """Users, products and clicks as tensors (m,) or (W, m), checked against the model."""
    single = isinstance(frames, pd.DataFrame)
    if (None if single else len(frames)) != model.n_worlds:
        got = "one table" if single else f"a list of {len(frames)}"
        raise ValueError(f"{name} must be {_wanted(model, 'table')}: got {got}")
    tables = [frames] if single else frames
    for missing in (
        c for c in ("user_id", "product_id", "clicked") for t in tables if c not in t
    ):
        raise ValueError(
            f"{name} must have the columns user_id, product_id and clicked: {missing} is missing"
        )
    lengths = {len(table) for table in tables}
    if len(lengths) > 1 or 0 in lengths:
        raise ValueError(
            f"{name} must have rows, equally many in each world: got {sorted(lengths)}"
        )

    def column(column_name: str) -> NDArray:
        columns = [table[column_name].to_numpy() for table in tables]
        return columns[0] if single else np.stack(columns)

    users = as_ids(f"{name}.user_id", column("user_id"), model.n_users)
    products = as_ids(f"{name}.product_id", column("product_id"), model.n_products)
    clicks = as_ids(f"{name}.clicked", column("clicked"), 2)
    return [
        torch.tensor(users),
        torch.tensor(products),
        torch.tensor(clicks, dtype=torch.float32),
    ]


def _shuffle(
    rows: list[Tensor], generators: torch.Generator | list[torch.Generator]
) -> list[Tensor]:
    order = draw(generators, lambda g: torch.randperm(rows[0].shape[-1], generator=g))
    return [torch.gather(column, -1, order) for column in rows]


def _losses(
    model: MLPRecommender, users: Tensor, products: Tensor, clicks: Tensor
) -> Tensor:
    """Mean log-loss of a batch in each world, shape () or (W,)."""
    logits = model(users, products)
    return functional.binary_cross_entropy_with_logits(
        logits, clicks, reduction="none"
    ).mean(dim=-1)


def _train_epoch(
    model: MLPRecommender,
    optimiser: torch.optim.Optimizer,
    rows: list[Tensor],
    batch_size: int,
    device: torch.device,
) -> NDArray[np.float64]:
    """One pass over the rows; whole tensors are sliced, no row is touched by Python on its own."""
    total, n_rows = 0.0, rows[0].shape[-1]
    for batch in zip(
        *(column.to(device).split(batch_size, dim=-1) for column in rows), strict=True
    ):
        losses = _losses(model, *batch)
        optimiser.zero_grad()
        losses.sum().backward()  # worlds share no weights: the gradient of the sum is each world's own
        optimiser.step()
        total = total + losses.detach() * batch[0].shape[-1]
    return (total / n_rows).cpu().double().numpy()


@torch.no_grad()
def _mean_loss(
    model: MLPRecommender, rows: list[Tensor] | None, device: torch.device
) -> NDArray[np.float64]:
    if rows is None:
        return np.full(() if model.n_worlds is None else (model.n_worlds,), np.nan)
    return (
        _losses(model, *(column.to(device) for column in rows)).cpu().double().numpy()
    )


def static_recommenders(seeds: Sequence[int]) -> MLPRecommender:
    """Train the recommenders of Chapter 1, one for the world of each seed.

    Each learns from 80 in 100 of 200,000 random visits to its own world, with the chapter's settings.

    Parameters
    ----------
    seeds : sequence of W int
        Seeds of the worlds; each also seeds its model's initial weights and the order of its rows.

    Returns
    -------
    MLPRecommender
        W models in one.
    """
    logs = [ZooplusSimulator(seed=seed).sample_interactions(200_000) for seed in seeds]
    train = [
        train_test_split(log, test_size=0.2, random_state=seed)[0]
        for log, seed in zip(logs, seeds, strict=True)
    ]
    model = MLPRecommender(1000, 50, seed=list(seeds))
    train_recommender(model, train, seed=list(seeds))
    return model
