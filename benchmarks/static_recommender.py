"""What whole arrays save in Chapter 1: each task beside its plain form."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from functools import partial

import pandas as pd
import torch
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, Dataset

from benchmarks.contest import Contestant, Promise, Row, for_a_while
from zoolib import MLPRecommender, ZooplusSimulator, train_recommender

SEED, N, EPOCHS = 42, 200_000, 4
FEW = 5_000  # rows that a plain form takes in a round


def loop_of_single_draws(world: ZooplusSimulator, n: int) -> pd.DataFrame:
    """Log n visits one at a time, by plain look-ups and scalar draws."""
    rows = []
    categories = world.products["category"].tolist()
    personas = world.user_personas.tolist()
    for _ in range(n):
        user = int(world.rng.integers(world.n_users))
        product = int(world.rng.integers(world.n_products))
        probability = world.personas[personas[user]][categories[product]]
        clicked = int(world.rng.binomial(1, probability))
        rows.append((user, product, clicked, categories[product]))
    return pd.DataFrame(rows, columns=["user_id", "product_id", "clicked", "category"])


def sampling_row() -> Row:
    """Compare ways of logging visits."""
    worlds = ZooplusSimulator(seed=SEED), ZooplusSimulator(seed=SEED)
    ours = partial(worlds[0].sample_interactions, N)
    naive = partial(loop_of_single_draws, worlds[1], FEW)
    return Row(
        "200,000 random visits",
        "a visit",
        {
            "zoolib": Contestant(for_a_while(ours, N), "zoolib"),
            "naive": Contestant(
                for_a_while(naive, FEW), "naive", note="a draw at a time"
            ),
        },
        {"visits": N},
        SEED,
        promises=(Promise("naive", at_least=50),),
    )


class Rows(Dataset):
    """One interaction at a time, as PyTorch's tutorials do it."""

    def __init__(self, log: pd.DataFrame) -> None:
        self.users = torch.tensor(log["user_id"].to_numpy())
        self.products = torch.tensor(log["product_id"].to_numpy())
        self.clicks = torch.tensor(log["clicked"].to_numpy(), dtype=torch.float32)

    def __len__(self) -> int:
        return len(self.clicks)

    def __getitem__(self, i: int) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        return self.users[i], self.products[i], self.clicks[i]


def train_by_single_rows(
    model: MLPRecommender, train: pd.DataFrame, validation: pd.DataFrame, epochs: int
) -> None:
    """Train through a DataLoader of single rows; compute the validation loss of each epoch."""
    loader = DataLoader(
        Rows(train),
        batch_size=512,
        shuffle=True,
        generator=torch.Generator().manual_seed(42),
    )
    held_out = DataLoader(Rows(validation), batch_size=512)
    optimiser = torch.optim.Adam(model.parameters(), lr=1e-3)
    criterion = torch.nn.BCEWithLogitsLoss()
    for _ in range(epochs):
        for users, products, clicks in loader:
            optimiser.zero_grad()
            criterion(model(users, products), clicks).backward()
            optimiser.step()
        with torch.no_grad():
            for users, products, clicks in held_out:
                criterion(model(users, products), clicks).item()


def train_by_tensors(
    model: MLPRecommender, train: pd.DataFrame, validation: pd.DataFrame, epochs: int
) -> None:
    """Train as the book does."""
    options = {"epochs": epochs, "seed": SEED, "device": "cpu", "progress": False}
    train_recommender(model, train, validation, **options)


def training_row() -> Row:
    """Compare ways of training Chapter 1's recommender."""
    log = ZooplusSimulator(seed=SEED).sample_interactions(N // 4)
    train, validation = train_test_split(log, test_size=0.2, random_state=SEED)

    def epochs(
        trained: Callable[..., None], n: int, times: int = 1
    ) -> Callable[[], float]:
        """Train on n rows and judge by a quarter as many."""
        model = MLPRecommender(1000, 50, seed=SEED)
        run = partial(trained, model, train[:n], validation[: n // 4], times)
        return for_a_while(run, n * times)

    return Row(
        "training a recommender",
        "a row of an epoch",
        {
            # Tables become tensors once in a training, which takes several epochs.
            "zoolib": Contestant(
                epochs(train_by_tensors, len(train), EPOCHS), "zoolib"
            ),
            "naive": Contestant(
                epochs(train_by_single_rows, 2 * FEW),
                "naive",
                note="A DataLoader of single rows, as in PyTorch's tutorials.",
            ),
        },
        {"rows": len(train), "batch": 512},
        SEED,
        promises=(Promise("naive", at_least=3),),
    )


def rows() -> Iterator[Row]:
    """Yield the rows of this benchmark."""
    yield sampling_row()
    yield training_row()
