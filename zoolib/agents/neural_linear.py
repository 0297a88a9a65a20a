r"""Neural-linear bandits: a network computes features, and a ridge posterior over them chooses the arm.

The network maps a row x to an embedding :math:`z = \phi(x)`; one posterior, shared by all arms, keeps
:math:`A = \lambda I + \sum z z^\top` and :math:`b = \sum r z` and scores an arm by
:math:`z^\top \hat\theta + \alpha \sqrt{z^\top A^{-1} z}` (Riquelme et al. 2018; Xu et al. 2022). See
Chapter 3, "Two jobs, one network".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import torch
    from torch import Tensor, nn

from zoolib._support.checks import (
    as_array,
    as_flag,
    as_not_negative,
    as_positive,
    as_rate,
    as_size,
)
from zoolib._support.settings import one_of, optional, setting
from zoolib._support.tables import same_rows
from zoolib.agents.base import Context
from zoolib.agents.neural import NeuralAgent, as_policy, finite
from zoolib.models.networks import MLP, Generators
from zoolib.models.posterior import RidgePosterior, rows_of_each


class EmbeddingWithHead(nn.Module):
    """A network of these sizes, from input to embedding, and a linear head that may be used in training."""

    def __init__(
        self, sizes: Sequence[int], generators: Generators, n_outputs: int = 1
    ) -> None:
        super().__init__()
        self.body = MLP(sizes, generators)
        self.head = MLP((sizes[-1], n_outputs), generators)

    def forward(self, x: Tensor) -> Tensor:
        """Predict rewards of rows (..., n, d); returns shape (..., n, 1) or (..., n, K)."""
        return self.head(self.body(x))


@dataclass(eq=False, repr=False)
class NeuralLinearAgent(NeuralAgent):
    r"""Score arms by a ridge posterior over embeddings that a network learns.

    `update` learns from one reward, `train` from batches of the memory and `fit` from batches of a table.

    Parameters
    ----------
    alpha : float, default 0.3
        Weight of the uncertainty, 0 or more; with ``policy="thompson"`` the standard deviation of
        the noise in the draws.
    ridge : float, default 1.0
        :math:`\lambda > 0`, weight of the prior.
    embedding_dim : int, default 32
        Length of an embedding.
    hidden : sequence of int, default (64,)
        Widths of the layers between features and embedding.
    head : {"explicit", "posterior"}, default "explicit"
        The last layer in training: a separate linear layer, which the posterior does not use, or the
        posterior's mean :math:`\hat\theta = A^{-1} b`.
    joined : bool, default False
        Append the features to the embedding, so that the posterior's uncertainty is at least that of a
        linear model of the features.
    rebuild : bool, default False
        After each training, recompute A and b with the new network. Otherwise they contain
        embeddings of earlier networks.
    window : int, optional
        Rebuild from the newest `window` rows; from all rows in the memory if omitted.
    discount : float, default 1.0
        Factor by which A and b are multiplied before each reward; a rebuild weighs rows accordingly.
    policy : {"ucb", "thompson"}, default "ucb"
        Add the uncertainty to the prediction, or draw one :math:`\theta` per visit from the posterior.
    others
        As for `NeuralAgent`. With ``shared=False`` all arms share the embedding, but each arm has its own
        posterior and, in training, its own explicit head.

    Attributes
    ----------
    posterior : RidgePosterior
        Leading axes () or (W,), or with one per arm (K,) or (W, K).

    Examples
    --------
    >>> agent = NeuralLinearAgent(n_arms=50, n_features=9, rebuild=True, window=2000, joined=True)
    >>> agent.posterior.A.shape
    (41, 41)
    """

    _learns = ("posterior",)

    alpha: float = setting(as_not_negative, 0.3)
    _: KW_ONLY
    ridge: float = setting(as_positive, 1.0)
    embedding_dim: int = setting(as_size, 32)
    head: str = setting(one_of("explicit", "posterior"), "explicit")
    joined: bool = setting(as_flag, False)
    rebuild: bool = setting(as_flag, False)
    window: int | None = setting(optional(as_size), None)
    discount: float = setting(as_rate, 1.0)
    policy: str = setting(as_policy, "ucb")

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None and not (
            self.rebuild and self.window <= self.buffer_size
        ):
            raise ValueError(
                f"window must go with rebuild=True and be at most buffer_size={self.buffer_size}: "
                f"got window={self.window}, rebuild={self.rebuild}"
            )
        width = self.embedding_dim + (self.n_features if self.joined else 0)
        if not self.shared and self.head != "explicit":
            raise ValueError('head must be "explicit" where each arm has its own')
        shape = self._shape[:-1] if self.shared else self._shape
        self.posterior = RidgePosterior(width, self.ridge, shape)

    @classmethod
    def _least_numbers(cls, settings: dict[str, Any]) -> float:
        heads = cls._n_models(settings) * settings["embedding_dim"] ** 2
        return super()._least_numbers(settings) + heads

    def make_network(self, generators: Generators) -> EmbeddingWithHead:
        """Return a new network, its weights drawn by these generators."""
        sizes = (self.n_features, *self.hidden, self.embedding_dim)
        return EmbeddingWithHead(sizes, generators, self.n_outputs)

    def embed(self, x: NDArray) -> NDArray:
        """Map rows (..., n, d) to inputs of the posterior, (..., n, embedding_dim) or d columns more."""
        z = finite("embeddings", self.network.body.evaluate(x))
        return np.concatenate((z, x), axis=-1) if self.joined else z

    def score_rows(self, x: NDArray) -> NDArray:
        """Score rows (n, d) or (W, n, d); returns shape (n,) or (W, n)."""
        if self.policy == "thompson":
            return self.draw_rows(x, 1)[0]
        prediction, width = self.predict_with_width(x)
        return prediction + self.alpha * width

    def predict_with_width(self, x: NDArray) -> tuple[NDArray, NDArray]:
        """Return predictions and widths of rows, as for `score_rows`."""
        z = self.embed(x)
        if self.shared:
            return self.posterior.predict_rows(z)
        return self.posterior.predict(z), self.posterior.width(z)

    def draw_rows(self, x: NDArray, n_draws: int) -> NDArray:
        """Predict rows by draws of the weights; returns shape (n_draws, n) or (n_draws, W, n)."""
        if self.shared:
            normals = self._normals(None, n_draws, self.posterior.n_features)
            return np.matvec(self.embed(x), self.posterior.sample(normals, self.alpha))
        prediction, width = self.predict_with_width(x)
        normals = self._normals(None, n_draws, prediction.shape[-1])
        return prediction + self.alpha * width * normals

    def _independent(self, context: Context) -> tuple[NDArray, NDArray] | None:
        if self.shared or self.policy == "ucb" or self._n_visitors(context) == 0:
            return None
        both = self._scored(context, lambda x: np.array(self.predict_with_width(x)), 1)
        return both[0], self.alpha * both[1]

    def _train(self) -> None:
        super()._train()
        if self.rebuild:
            self._rebuild(*self.memory.newest(self.window or self.buffer_size))

    def fit(
        self,
        x: ArrayLike,
        reward: ArrayLike,
        epochs: int = 10,
        batch_size: int | None = None,
        arm: ArrayLike | None = None,
    ) -> None:
        """Train on a table of rows, all of them in each epoch, then rebuild the posterior from it.

        On failure the agent is unchanged. The memory is not touched. The agent's seed determines the
        order of the rows.

        Parameters
        ----------
        x : array_like, shape (n, d) or (W, n, d)
            Features of the arms that were shown, the newest last.
        reward : array_like, shape (n,) or (W, n)
            The rewards of these arms.
        epochs : int, default 10
            Passes over the rows, each in a new order.
        batch_size : int, optional
            Rows in an optimiser step; the agent's `batch_size` if omitted.
        arm : array_like of int or labels, shape (n,) or (W, n), optional
            The arms that were shown, for an agent with one posterior per arm.

        Raises
        ------
        FloatingPointError
            If a loss, a gradient or an embedding is not finite.
        """
        epochs = as_size("epochs", epochs)
        size = self.batch_size if batch_size is None else batch_size
        size = as_size("batch_size", size)
        same_rows(x=x, reward=reward, arm=arm)
        n = max(1, np.shape(x)[-2] if np.ndim(x) > 1 else 0)
        shape = (*self._shape[:-1], n)
        x, names = self._by_name("x", x, *shape)
        x = x.astype(self.dtype)
        reward = as_array("reward", reward, shape)
        columns = [x, reward.astype(self.dtype)]
        if not self.shared:
            places = self.arms.places("arm", arm, shape)
            columns.append(places[..., None].astype(self.dtype))
        generators = [np.random.default_rng(one) for one in self._seeds]
        with self._unchanged_on_failure():
            for _ in range(epochs):
                order = np.array([g.permutation(n) for g in generators])
                at = (self._worlds[0][:, None], order) if self._worlds else order[0]
                self._descend([column[at] for column in columns], size)
            self._rebuild(x, reward, *columns[2:])
        self.n_updates += n
        self._remember(names)

    def _rebuild(self, x: NDArray, reward: NDArray, arm: NDArray | None = None) -> None:
        """Compute A and b from the prior and rows; a model's row j from the end has weight discount**j."""
        z = self.embed(x)
        if arm is None:
            age = np.arange(x.shape[-2])[::-1]
            self.posterior.rebuild(z, reward, self.discount**age)
            return
        for world in np.ndindex(self._shape[:-1]):
            rows = rows_of_each(arm[world][:, 0], self.n_arms)
            for place, mine in enumerate(rows):
                weight = self.discount ** np.arange(len(mine))[::-1]
                learnt = z[world][mine], reward[world][mine], weight
                self.posterior.rebuild(*learnt, (*world, place))

    def predict(self, x: Tensor, arm: Tensor | None = None) -> Tensor:
        """Predict the rewards of rows (..., n, d) for training; returns shape (..., n)."""
        if self.head == "explicit":
            return super().predict(x, arm)
        theta = torch.from_numpy(self.posterior.mean.astype(self.dtype))
        z = self.network.body(x)
        if self.joined:
            z = torch.cat((z, x), dim=-1)
        return (z @ theta[..., None])[..., 0]

    def represent(self, x: NDArray) -> NDArray:
        """Return the embedding of the row played, by the network that chose it."""
        return self.embed(x[..., None, :])[..., 0, :]

    def absorb(
        self, played: NDArray, at: tuple, reward: ArrayLike, trained: bool
    ) -> None:
        """Add the embedding to A and b, unless they have just been rebuilt with the new row included."""
        if not (trained and self.rebuild):
            z = played.astype(np.float64)
            model = () if self.shared else at
            self.posterior.learn(z, reward, model, discount=self.discount)
