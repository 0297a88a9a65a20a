"""How much whole arrays save in Chapter 1: each task beside its plain form, in one run.

    python -m benchmarks.static_recommender [--json FILE]

Prints medians of repeated pairs as ratios; absolute times depend on the machine.
"""

from __future__ import annotations

import argparse
import json
import platform
import statistics
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sklearn.model_selection import train_test_split
from torch.utils.data import DataLoader, Dataset

from benchmarks.contest import seconds
from zoolib import MLPRecommender, ZooplusSimulator, train_recommender


def loop_of_single_draws(world: ZooplusSimulator, n: int) -> pd.DataFrame:
    """Log n visits one at a time, by plain look-ups and scalar draws."""
    rows = []
    categories = world.products["category"].tolist()
    personas = world.user_personas.tolist()
    for _ in range(n):
        user = int(world.rng.integers(world.n_users))
        product = int(world.rng.integers(world.n_products))
        probability = world.personas[personas[user]][categories[product]]
        rows.append(
            (
                user,
                product,
                int(world.rng.binomial(1, probability)),
                categories[product],
            )
        )
    return pd.DataFrame(rows, columns=["user_id", "product_id", "clicked", "category"])


def sampling_ratio(n: int = 200_000, repeats: int = 5) -> float:
    """Seconds of the loop over seconds of the whole-array draw, median of pairs."""
    pairs = []
    for seed in range(repeats):
        arrays = seconds(
            lambda seed=seed: ZooplusSimulator(seed=seed).sample_interactions(n)
        )
        loop = seconds(
            lambda seed=seed: loop_of_single_draws(ZooplusSimulator(seed=seed), n)
        )
        pairs.append(loop / arrays)
    return statistics.median(pairs)


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
) -> float:
    """Train through a DataLoader of single rows; return the validation loss."""
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
            losses = [
                criterion(model(users, products), clicks).item()
                for users, products, clicks in held_out
            ]
    return float(np.mean(losses))


def training_ratio(
    n: int = 200_000, epochs: int = 10, repeats: int = 3
) -> tuple[float, float, float]:
    """Seconds by single rows over seconds by whole tensors, median of pairs; and both validation losses."""
    log = ZooplusSimulator(seed=42).sample_interactions(n)
    train, validation = train_test_split(log, test_size=0.2, random_state=42)
    pairs, losses = [], {}

    def ours() -> None:
        model = MLPRecommender(1000, 50, seed=42)
        history = train_recommender(
            model,
            train,
            validation,
            epochs=epochs,
            seed=42,
            device="cpu",
            progress=False,
        )
        losses["ours"] = float(history.validation_loss[-1])

    def theirs() -> None:
        model = MLPRecommender(1000, 50, seed=42)
        losses["theirs"] = train_by_single_rows(model, train, validation, epochs)

    for _ in range(repeats):
        pairs.append(seconds(theirs) / seconds(ours))
    return statistics.median(pairs), losses["ours"], losses["theirs"]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    sampling = sampling_ratio()
    print(
        f"200,000 interactions: whole arrays are {sampling:.0f} times as fast as a loop of single draws"
    )
    training, ours, theirs = training_ratio()
    print(
        f"10 epochs of training: whole tensors are {training:.1f} times as fast as a DataLoader of single rows"
    )
    print(f"validation loss: whole tensors {ours:.4f}, single rows {theirs:.4f}")
    if arguments.json:
        figures = {
            "sampling_ratio": sampling,
            "training_ratio": training,
            "validation_loss": [ours, theirs],
        }
        arguments.json.write_text(
            json.dumps(figures | {"machine": platform.machine()}, indent=1)
        )


if __name__ == "__main__":
    main()
