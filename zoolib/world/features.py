"""Features of a user and a product: one-hot vectors, and their interactions.

Chapter 2 explains why a product's features and a user's features are joined into one vector for
every possible pair.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import as_flag, as_ids
from zoolib.world.simulator import QUALITIES, WISHES, ZooplusSimulator


class FeatureEngineer:
    """Turn a user and the catalogue into one feature vector for each product.

    Parameters
    ----------
    world : ZooplusSimulator or sequence of W of them
        The world whose users and products are described; several worlds give every array a leading
        axis W. Click probabilities are not read.
    interactions : bool, default False
        Append the products of each user feature with each product feature. Without them a vector
        has d = 9 entries (4 personas, 5 categories), with them d = 29; in a rich shop, with budget,
        curiosity, price and freshness, 13 and 55.
    personas : bool, default True
        Include the user's persona. Without it d is smaller by 4, and except in a rich shop all users
        have the same features.

    Attributes
    ----------
    n_features : int
        Length d of a feature vector.
    names : list of str
        The names of the entries, in order.

    Examples
    --------
    >>> world = ZooplusSimulator(seed=42)
    >>> FeatureEngineer(world).transform(0).shape
    (50, 9)
    >>> FeatureEngineer([world, world]).transform([0, 5]).shape
    (2, 50, 9)
    """

    def __init__(
        self,
        world: ZooplusSimulator | Sequence[ZooplusSimulator],
        interactions: bool = False,
        personas: bool = True,
    ) -> None:
        self.interactions = as_flag("interactions", interactions)
        self.personas = as_flag("personas", personas)
        if self.interactions and not self.personas:
            raise ValueError("interactions need personas: got personas=False")
        self._single = isinstance(world, ZooplusSimulator)
        worlds = [world] if self._single else list(world)
        sizes = {(one.n_users, one.n_products, one.rich) for one in worlds}
        if len(sizes) != 1:
            raise ValueError(
                f"world must be one world, or several of equal size: got sizes {sorted(sizes)}"
            )
        ((self.n_users, _, rich),) = sizes
        personas = list(worlds[0].personas)
        categories = list(worlds[0].categories)
        known = personas if self.personas else []
        wishes, qualities = (WISHES, QUALITIES) if rich else ((), ())
        user = np.eye(len(personas), len(known))
        product = np.eye(len(categories))
        visitors = [(user[w.persona_of_user], w.users) for w in worlds]
        self._user = np.stack([_join(*of, wishes) for of in visitors])
        catalogues = [(product[w.category_of_product], w.products) for w in worlds]
        self._product = np.stack([_join(*of, qualities) for of in catalogues])
        self._by_persona = None
        if not rich:  # one description per persona is enough
            self._persona = np.stack([one.persona_of_user for one in worlds])
            self._by_persona = self._pairings(user, self._product[:, None])
        of_user = [*(f"persona={p}" for p in known), *wishes]
        of_product = [*(f"category={c}" for c in categories), *qualities]
        self.names = of_user + of_product
        if self.interactions:
            self.names += [f"{u} x {p}" for u in of_user for p in of_product]
        self.n_features = len(self.names)

    def __repr__(self) -> str:
        worlds = "one world" if self._single else f"{len(self._user)} worlds"
        settings = f"interactions={self.interactions}, personas={self.personas}"
        return f"FeatureEngineer({worlds}, {settings})"

    def transform(self, user_id: ArrayLike) -> NDArray[np.float64]:
        """Return features of every pair of a given user and a product.

        Parameters
        ----------
        user_id : int or array_like of int
            One user, or an array of them. With W worlds the first axis goes over the worlds.

        Returns
        -------
        ndarray, shape (n_products, d) or (..., n_products, d)
            One row per product; leading axes are those of `user_id`.
        """
        users = as_ids("user_id", user_id, self.n_users)
        if self._single:
            users = users[None]
        elif users.shape[:1] != (len(self._user),):
            raise ValueError(
                f"user_id must have {len(self._user)} rows, one per world: got shape {users.shape}"
            )
        world = np.arange(len(users)).reshape(-1, *[1] * (users.ndim - 1))
        if self._by_persona is None:
            rows = self._pairings(self._user[world, users], self._product[world])
        else:
            rows = self._by_persona[world, self._persona[world, users]]
        return rows[0] if self._single else rows

    def _pairings(
        self, user: NDArray[np.float64], product: NDArray[np.float64]
    ) -> NDArray[np.float64]:
        """Join rows of users (...) with the products (..., K), and append interactions if enabled."""
        leading = np.broadcast_shapes(user.shape[:-1], product.shape[:-2])
        shape = (*leading, product.shape[-2])
        user = np.broadcast_to(user[..., None, :], (*shape, user.shape[-1]))
        product = np.broadcast_to(product, (*shape, product.shape[-1]))
        parts = [user, product]
        if self.interactions:
            pairs = user[..., :, None] * product[..., None, :]
            parts.append(pairs.reshape(*shape, user.shape[-1] * product.shape[-1]))
        return np.concatenate(parts, axis=-1)


def _join(
    one_hot: NDArray[np.float64], table: pd.DataFrame, columns: Sequence[str]
) -> NDArray[np.float64]:
    """Append columns of a table to its rows' one-hot vectors."""
    return np.concatenate((one_hot, table[list(columns)].to_numpy(float)), axis=-1)
