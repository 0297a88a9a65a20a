r"""Two-stage selection: find a few hundred promising products among a million, then choose one of them.

A product has an embedding :math:`e_a`, a visitor has features :math:`u`, and a shared linear model
scores their product, entry by entry, :math:`x_a = u \circ e_a`. Its prediction

.. math::  x_a^\top \theta = (u \circ \theta)^\top e_a

is the inner product of a *query* :math:`u \circ \theta` with the embedding. Finding the products with the
highest predictions is therefore a maximum inner product search, and an index can answer it without
looking at every product. The width of a prediction is not an inner product with :math:`e_a`; it is
computed in a second stage, for the shortlist only. See Chapter 5, "A million products".

The index comes from FAISS (Douze et al., "The Faiss library", 2024; the inverted file is from Sivic and
Zisserman, "Video Google", 2003).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from math import isqrt
from typing import NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import faiss

from zoolib._support.checks import (
    as_array,
    as_ids,
    as_not_negative,
    as_one_of,
    as_size,
)
from zoolib.models.posterior import RidgePosterior

# The names that FAISS uses.
KINDS = {"exact": "IDMap,Flat", "ivf": "IVF{},Flat", "ivf8": "IVF{},SQ8"}
# Number of products per cell for k-means; more would change the centres little and take longer.
TRAINED_ON = 64


class ProductIndex:
    r"""Find the products whose embeddings have the largest inner products with a query.

    An inverted file (``"ivf"``) divides the products into cells, by k-means on a sample of them, and
    searches only the `n_probe` cells whose centres have the largest inner products with the query.
    It may miss products; `recall` measures how many it finds. ``"ivf8"`` also stores each entry in 8 bits,
    which is faster to read. ``"exact"`` searches all products.

    Parameters
    ----------
    embeddings : array_like, shape (n_products, d)
        One row per product; the row number is the product's id. An exact index may start empty.
    kind : {"exact", "ivf", "ivf8"}, default "exact"
        The search method.
    n_cells : int, optional
        Number of cells of an inverted file, at most one per product; :math:`\sqrt{n}` if omitted.
    n_probe : int, optional
        Number of cells searched per query, at most `n_cells`; an eighth of them if omitted. The
        attribute may be set later; `search` checks it.
    seed : int, default 0
        Seed of k-means: the same products and seed give the same index.
    n_threads : int, optional
        Number of threads that FAISS uses for this index; its global setting if omitted.

    Examples
    --------
    >>> index = ProductIndex([[1.0, 0.0], [0.0, 3.0], [1.0, 1.0]])
    >>> ids, scores = index.search([1.0, 1.0], n=2)
    >>> ids
    array([1, 2])
    >>> index.remove([1])
    >>> index.add([[3.0, 0.0]])
    array([3])
    >>> index.search([1.0, 1.0], n=2)[0]
    array([3, 2])
    """

    def __init__(
        self,
        embeddings: ArrayLike,
        kind: str = "exact",
        n_cells: int | None = None,
        n_probe: int | None = None,
        seed: int = 0,
        n_threads: int | None = None,
    ) -> None:
        self.kind = as_one_of("kind", kind, KINDS)
        self.n_threads = None if n_threads is None else as_size("n_threads", n_threads)
        seed = as_size("seed", seed, least=0)
        table = as_array("embeddings", embeddings, ("n_products", "d"), np.float32)
        n_products = len(table)
        self.n_features = as_size("d", table.shape[1])
        self.n_cells = 1
        if kind != "exact":
            n_cells = isqrt(n_products) or 1 if n_cells is None else n_cells
            self.n_cells = as_size("n_cells", n_cells, most=n_products)
        elif not n_cells is n_probe is None:
            raise ValueError(
                f"n_cells and n_probe must be omitted for kind 'exact': got {n_cells} and {n_probe}"
            )
        n_probe = -(-self.n_cells // 8) if n_probe is None else n_probe
        self.n_probe = as_size("n_probe", n_probe, most=self.n_cells)
        self._index = faiss.index_factory(
            self.n_features,
            KINDS[kind].format(self.n_cells),
            faiss.METRIC_INNER_PRODUCT,
        )
        if kind != "exact":
            self._index.cp.seed = seed % 2**31  # FAISS keeps it in 32 bits
            self._index.cp.max_points_per_centroid = TRAINED_ON
            self._index.cp.min_points_per_centroid = 1  # allow few, without a warning
            with _threads(self.n_threads):
                self._index.train(table)
        # All products ever added, as given, and which of them the index still holds.
        self._table = table[:0]
        self._held = np.zeros(0, bool)
        self.add(table)

    def __len__(self) -> int:
        """Return the number of products held."""
        return self._index.ntotal

    @property
    def ids(self) -> NDArray[np.int64]:
        """Ids of the products held, in rising order, shape (len(self),)."""
        return np.flatnonzero(self._held)

    def search(
        self, queries: ArrayLike, n: int
    ) -> tuple[NDArray[np.int64], NDArray[np.float32]]:
        """Find n products with large inner products for each query.

        If the probed cells hold fewer than n products, more cells are probed until n are found.

        Parameters
        ----------
        queries : array_like, shape (..., d)
            One query or more.
        n : int
            Number of products per query, at most as many as the index holds.

        Returns
        -------
        ids, scores : ndarray, shape (..., n)
            The products, best first, and their inner products; with ``"ivf8"`` these are computed from
            the stored codes and are approximate.
        """
        n = as_size("n", n, most=len(self))
        probes = as_size("n_probe", self.n_probe, most=self.n_cells)
        table = as_array("queries", queries, (..., self.n_features), np.float32)
        flat = table.reshape(-1, self.n_features)
        with _threads(self.n_threads):
            scores, ids = self._found(flat, n, probes)
            while (short := (ids < 0).any(axis=1)).any():
                probes = min(2 * probes, self.n_cells)
                scores[short], ids[short] = self._found(flat[short], n, probes)
        shape = (*table.shape[:-1], n)
        return ids.reshape(shape), scores.reshape(shape)

    def recall(self, queries: ArrayLike, n: int) -> NDArray[np.float64]:
        """Return the share of each query's true n best products that the index finds.

        Parameters
        ----------
        queries, n
            As for `search`.

        Returns
        -------
        ndarray, shape (...)
            Shares in [0, 1]; an exact index has 1.
        """
        found = self.search(queries, n)[0]
        flat = np.asarray(queries, np.float32).reshape(-1, self.n_features)
        exact = faiss.IndexFlatIP(self.n_features)
        ids = self.ids
        exact.add(self._table[ids])
        with _threads(self.n_threads):
            best = ids[exact.search(flat, n)[1]]
        pairs = zip(found.reshape(-1, n), best, strict=True)
        shares = [np.isin(a, b, assume_unique=True).mean() for a, b in pairs]
        return np.array(shares, float).reshape(found.shape[:-1])

    def embeddings(self, ids: ArrayLike) -> NDArray[np.float32]:
        """Return the original embeddings of products in the index: for ids (...), shape (..., d)."""
        return self._table[self._known(ids)]

    def add(self, embeddings: ArrayLike) -> NDArray[np.int64]:
        """Add products.

        The cells of an inverted file and the range of its codes do not change. After a large share of
        the products has changed, build a new index.

        Parameters
        ----------
        embeddings : array_like, shape (n, d)
            One row per product.

        Returns
        -------
        ndarray, shape (n,)
            The new ids, which continue the numbering; ids are never reused.
        """
        rows = as_array("embeddings", embeddings, ("n", self.n_features), np.float32)
        ids = np.arange(len(self._held), len(self._held) + len(rows))
        with _threads(self.n_threads):
            self._index.add_with_ids(rows, ids)
        self._table = np.concatenate((self._table, rows))
        self._held = np.append(self._held, np.ones(len(rows), bool))
        return ids

    def remove(self, ids: ArrayLike) -> None:
        """Remove products by their ids, an array of any shape; repeated ids are allowed."""
        known = self._known(ids)
        # FAISS takes the length of an array, that is of its first axis, for the number of ids.
        self._index.remove_ids(faiss.IDSelectorBatch(known.ravel()))
        self._held[known] = False

    def _found(
        self, queries: NDArray[np.float32], n: int, n_probe: int
    ) -> tuple[NDArray[np.float32], NDArray[np.int64]]:
        """Return scores and ids, with id -1 if the probed cells hold too few products."""
        exact = self.kind == "exact"
        params = None if exact else faiss.SearchParametersIVF(nprobe=n_probe)
        return self._index.search(queries, n, params=params)

    def _known(self, ids: ArrayLike) -> NDArray[np.int64]:
        """Return ids after checking that the index holds these products."""
        known = as_ids("ids", ids, len(self._held))
        gone = known[~self._held[known]]
        if gone.size:
            raise ValueError(
                f"ids must be of products held: got {gone.flat[0]}, removed"
            )
        return known


@contextmanager
def _threads(n: int | None) -> Iterator[None]:
    """Let FAISS use n threads inside a `with` statement; no change if n is None."""
    before = faiss.omp_get_max_threads()
    faiss.omp_set_num_threads(before if n is None else n)
    try:
        yield
    finally:
        faiss.omp_set_num_threads(before)


class Choice(NamedTuple):
    """A product, and the shortlist from which it was chosen, shape (n,), in ascending order of ids.

    The product has the highest of the `scores`, the upper confidence bounds; ties go to the smallest id.
    """

    product: int
    candidates: NDArray[np.int64]
    scores: NDArray[np.floating]


def two_stage(
    index: ProductIndex,
    posterior: RidgePosterior,
    visitor: ArrayLike,
    alpha: float,
    n_candidates: int = 500,
    weights: ArrayLike | None = None,
) -> Choice:
    r"""Choose a product: retrieve a shortlist, then take the product of highest upper bound.

    Parameters
    ----------
    index : ProductIndex
        The products' embeddings :math:`e_a`.
    posterior : RidgePosterior
        A shared linear model of rows :math:`x_a = u \circ e_a`.
    visitor : array_like, shape (d,)
        The visitor's features u; ones for a model without a visitor.
    alpha : float
        Weight of the width in the bound, 0 or more.
    n_candidates : int, default 500
        Largest size of the shortlist, at most as many as the index holds.
    weights : array_like, shape (d,) or (m, d), optional
        Weights :math:`\theta` for retrieval, the posterior's mean if omitted. Each of m rows retrieves
        :math:`\lceil n / m \rceil` candidates; duplicates count once.
    """
    alpha = as_not_negative("alpha", alpha)
    n = as_size("n_candidates", n_candidates, most=len(index))
    d = index.n_features
    if posterior.shape or posterior.n_features != d:
        raise ValueError(
            f"posterior must be one model of {d} features: "
            f"got shape {posterior.shape} and {posterior.n_features} features"
        )
    u = as_array("visitor", visitor, (d,), np.float32)
    weights = np.atleast_2d(posterior.mean if weights is None else weights)
    theta = as_array("weights", weights, ("m", d), np.float32)
    m = as_size("m, the number of weights,", len(theta), most=n)
    ids, _ = index.search(u * theta, -(-n // m))
    candidates = np.unique(ids)
    rows = u * index.embeddings(candidates).astype(np.float64)
    prediction, width = posterior.predict_rows(rows)
    scores = prediction + alpha * width
    return Choice(int(candidates[scores.argmax()]), candidates, scores)
