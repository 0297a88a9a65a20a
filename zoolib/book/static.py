"""Chapter 1's recommenders in many worlds, with its settings: what stands still in later chapters."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    from zoolib.models.recommender import MLPRecommender, train_recommender

    # isort: split
    from sklearn.model_selection import train_test_split

from zoolib.world.simulator import ZooplusSimulator


def static_recommenders(
    seeds: Sequence[int], n_products: int = 50, click_rate: float | None = None
) -> MLPRecommender:
    """Train the recommenders of Chapter 1, one for the world of each of W seeds, as W models in one.

    Each learns from 80 percent of 200,000 random visits to its own world, with the chapter's settings.
    A seed determines the world, the initial weights of its model and the order of its rows.
    """
    worlds = [
        ZooplusSimulator(n_products, seed=seed, click_rate=click_rate) for seed in seeds
    ]
    logs = [world.sample_interactions(200_000) for world in worlds]
    train = [
        train_test_split(log, test_size=0.2, random_state=seed)[0]
        for log, seed in zip(logs, seeds, strict=True)
    ]
    model = MLPRecommender(1000, n_products, seed=list(seeds))
    train_recommender(model, train, seed=list(seeds))
    return model


def static_choices(
    seeds: Sequence[int], n_products: int = 50, click_rate: float | None = None
) -> NDArray[np.int64]:
    """Return what the recommenders of Chapter 1 show each user, shape (W, n_users), for a record of it."""
    return static_recommenders(seeds, n_products, click_rate).recommend()
