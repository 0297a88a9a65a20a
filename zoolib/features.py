"""What a model may see of a user and a product: one-hot vectors, and their interactions.

Chapter 2 explains why a product's features and a user's features are joined into one vector for
every possible pairing.
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._checks import as_ids
from zoolib.simulator import ZooplusSimulator


class FeatureEngineer:
    """Turn a user and the catalogue into one feature vector for each product.

    Parameters
    ----------
    world : ZooplusSimulator
        The world whose users and products are described. Its click probabilities are not read.
    interactions : bool, default False
        Append the products of persona and category indicators. Without them a vector has d = 9
        entries (4 personas, 5 categories), with them d = 29.

    Attributes
    ----------
    n_features : int
        Length d of a feature vector.
    names : list of str
        What each entry stands for, in order.

    Examples
    --------
    >>> world = ZooplusSimulator(seed=42)
    >>> features = FeatureEngineer(world)
    >>> features.transform(0).shape
    (50, 9)
    >>> dict(zip(features.names, features.transform(0)[4], strict=True))["category=Dog Toy"]
    np.float64(1.0)
    >>> FeatureEngineer(world, interactions=True).n_features
    29
    """

    def __init__(self, world: ZooplusSimulator, interactions: bool = False) -> None:
        personas, categories = list(world.personas), list(world.categories)
        self.interactions = bool(interactions)
        self.n_users = world.n_users
        self._user = np.eye(len(personas))[world.persona_of_user]
        self._product = np.eye(len(categories))[world.category_of_product]
        self.names = [f"persona={p}" for p in personas] + [
            f"category={c}" for c in categories
        ]
        if self.interactions:
            self.names += [
                f"persona={p} x category={c}" for p in personas for c in categories
            ]
        self.n_features = len(self.names)

    def transform(self, user_id: ArrayLike) -> NDArray[np.float64]:
        """Describe every pairing of the given users with the products.

        Parameters
        ----------
        user_id : int or array_like of int
            One user, or an array of them.

        Returns
        -------
        ndarray, shape (n_products, d) or (..., n_products, d)
            One row a product; leading axes are those of `user_id`.

        Raises
        ------
        TypeError, ValueError
            If an id is not a whole number, or unknown.
        """
        users = as_ids("user_id", user_id, self.n_users)
        shape = (*users.shape, len(self._product))
        user = np.broadcast_to(
            self._user[users][..., None, :], (*shape, self._user.shape[1])
        )
        product = np.broadcast_to(self._product, (*shape, self._product.shape[1]))
        parts = [user, product]
        if self.interactions:
            pairs = user[..., :, None] * product[..., None, :]
            parts.append(pairs.reshape(*shape, -1))
        return np.concatenate(parts, axis=-1)
