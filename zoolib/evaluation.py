"""What a policy is worth in a world whose truth is known, and the yardsticks beside it.

All values are mean true click probabilities over the users of a world: what a policy would earn a
visit in the long run, free of the luck of single clicks.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

from zoolib.simulator import ZooplusSimulator


def true_ctr_matrix(world: ZooplusSimulator) -> NDArray[np.float64]:
    """Return the true click probability of every user for every product, shape (n_users, n_products)."""
    return world.true_ctr(
        np.arange(world.n_users)[:, None], np.arange(world.n_products)
    )


def policy_value(world: ZooplusSimulator, shown: ArrayLike) -> float:
    """Value of a fixed policy: the mean true click probability of what it shows.

    Parameters
    ----------
    world : ZooplusSimulator
        The world as it is now, shocks included.
    shown : array_like of int, shape (n_users,) or scalar
        The product each user is shown; one product for all if a scalar.

    Returns
    -------
    float
    """
    return float(np.mean(world.true_ctr(np.arange(world.n_users), shown)))


def random_value(world: ZooplusSimulator) -> float:
    """Value of showing every user a product drawn uniformly at random."""
    return float(true_ctr_matrix(world).mean())


def best_product_value(world: ZooplusSimulator) -> float:
    """Value of showing all users the one product that is best on average."""
    return float(true_ctr_matrix(world).mean(axis=0).max())


def oracle_value(world: ZooplusSimulator) -> float:
    """Value of showing every user a product of highest true click probability: the ceiling."""
    return float(true_ctr_matrix(world).max(axis=1).mean())


def entropy_floor(world: ZooplusSimulator) -> float:
    r"""Smallest possible expected log-loss on uniformly logged clicks, in nats.

    The mean of :math:`-p \log p - (1 - p) \log (1 - p)` over all users and products: even the truth
    does not predict a coin. See Chapter 1, "The entropy floor".
    """
    ctr = true_ctr_matrix(world)
    return float((entr(ctr) + entr(1 - ctr)).mean())
