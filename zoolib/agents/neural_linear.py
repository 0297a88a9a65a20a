r"""Neural-linear bandits: a network makes features, a ridge posterior on top decides.

The network maps a row x to an embedding :math:`z = \phi(x)`; one posterior, shared by all arms, keeps
:math:`A = \lambda I + \sum z z^\top` and :math:`b = \sum r z` and scores an arm by
:math:`z^\top \hat\theta + \alpha \sqrt{z^\top A^{-1} z}` (Riquelme et al. 2018; Xu et al. 2022). See
Chapter 3, "Only the last layer".
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray
from torch import Tensor, nn

from zoolib._checks import as_not_negative, as_one_of, as_rate, as_size
from zoolib.agents.neural import NeuralAgent
from zoolib.networks import MLP, Generators
from zoolib.posterior import RidgePosterior


class EmbeddingWithHead(nn.Module):
    """A network that makes embeddings, and a linear head that training may predict with.

    Parameters
    ----------
    sizes : sequence of int
        Widths from input to embedding.
    generators : Generators
        Source of the initial weights.
    """

    def __init__(self, sizes: Sequence[int], generators: Generators) -> None:
        super().__init__()
        self.body = MLP(sizes, generators)
        self.head = MLP((sizes[-1], 1), generators)

    def forward(self, x: Tensor) -> Tensor:
        """Predict rewards of rows (..., n, d); returns shape (..., n, 1)."""
        return self.head(self.body(x))


class NeuralLinearAgent(NeuralAgent):
    r"""Score arms by a ridge posterior over embeddings that a network learns.

    The options are independent of one another.

    Parameters
    ----------
    n_arms, n_features : int
        Numbers K of arms and d of features.
    alpha : float, default 0.3
        Weight of the uncertainty, 0 or more; with ``policy="thompson"`` the standard deviation of
        the noise in the draws.
    ridge : float, default 1.0
        :math:`\lambda > 0`, weight of the prior.
    n_worlds : int, optional
        Number of worlds W played in step.
    embedding_dim : int, default 32
        Length of an embedding.
    hidden : sequence of int, default (64,)
        Widths of the layers between features and embedding.
    head : {"explicit", "posterior"}, default "explicit"
        What training predicts with: a linear layer of its own, which the posterior never sees, or
        the posterior's mean :math:`\hat\theta = A^{-1} b`.
    joined : bool, default False
        Append the features to the embedding, so that the posterior's uncertainty is never less than
        that of a linear model of the features.
    rebuild : bool, default False
        After each training, compute A and b afresh with the new network. Else they keep embeddings
        that the network no longer makes.
    window : int, optional
        Rebuild from the newest `window` rows; all that the memory holds, if omitted.
    discount : float, default 1.0
        What A and b are multiplied by before each reward; in a rebuild, an old row counts as little.
    policy : {"ucb", "thompson"}, default "ucb"
        Add the uncertainty to the prediction, or draw one :math:`\theta` a visit from the posterior.
    **options
        As for `NeuralAgent`.

    Attributes
    ----------
    n_draws : int
        Draws from which `propensities` are estimated: 100, or 1 where nothing is drawn.
    posterior : RidgePosterior
        In double precision; with worlds, leading axis (W,).

    Raises
    ------
    TypeError, ValueError
        If an argument is not what is described here.

    Examples
    --------
    >>> agent = NeuralLinearAgent(n_arms=50, n_features=9, rebuild=True, window=2000, joined=True)
    >>> agent.posterior.A.shape
    (41, 41)
    """

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        alpha: float = 0.3,
        ridge: float = 1.0,
        n_worlds: int | None = None,
        *,
        embedding_dim: int = 32,
        hidden: Sequence[int] = (64,),
        head: str = "explicit",
        joined: bool = False,
        rebuild: bool = False,
        window: int | None = None,
        discount: float = 1.0,
        policy: str = "ucb",
        **options: object,
    ) -> None:
        self.alpha = as_not_negative("alpha", alpha)
        self.embedding_dim = as_size("embedding_dim", embedding_dim)
        self.head = as_one_of("head", head, ("explicit", "posterior"))
        self.policy = as_one_of("policy", policy, ("ucb", "thompson"))
        self.n_draws = 100 if self.policy == "thompson" else 1
        self.joined, self.rebuild = bool(joined), bool(rebuild)
        self.discount = as_rate("discount", discount)
        n_features = as_size("n_features", n_features)
        hidden = [as_size("hidden", size) for size in hidden]
        sizes = [n_features, *hidden, self.embedding_dim]
        width = self.embedding_dim + (n_features if self.joined else 0)
        shape = () if n_worlds is None else (as_size("n_worlds", n_worlds),)
        self.posterior = RidgePosterior(width, ridge, shape)
        make_network = partial(EmbeddingWithHead, sizes)
        super().__init__(
            n_arms, n_features, n_worlds, make_network=make_network, **options
        )
        self.window = self.buffer_size if window is None else as_size("window", window)
        if self.window > self.buffer_size or not (self.rebuild or window is None):
            raise ValueError(
                f"window must go with rebuild=True and be at most buffer_size={self.buffer_size}: "
                f"got window={window}, rebuild={rebuild}"
            )

    def embed(self, x: NDArray) -> NDArray:
        """Map rows (..., n, d) to what the posterior sees, (..., n, embedding_dim) or with d more columns."""
        with np.errstate(over="ignore", invalid="ignore"):  # the result tells
            z = self.network.body.evaluate(x)
        if not np.isfinite(z).all():
            raise FloatingPointError(
                "embeddings must be finite, or the learning rate is too high: got NaN or infinity"
            )
        return np.concatenate((z, x), axis=-1) if self.joined else z

    def score_rows(self, x: NDArray) -> NDArray:
        """Score rows (n, d) or (W, n, d); returns shape (n,) or (W, n)."""
        z = self.embed(x)
        if self.policy == "thompson":
            normals = self._dice.normals(self.posterior.n_features)
            theta = self.posterior.sample(normals, self.alpha)
            return np.matvec(z, theta)
        prediction, width = self.posterior.predict_rows(z)
        return prediction + self.alpha * width

    def predict(self, x: Tensor) -> Tensor:
        """Predict the rewards of rows (..., n, d) for training; returns shape (..., n)."""
        if self.head == "explicit":
            return self.network(x)[..., 0]
        theta = torch.from_numpy(self.posterior.mean.astype(self.dtype))
        z = self.network.body(x)
        if self.joined:
            z = torch.cat((z, x), dim=-1)
        return (z @ theta[..., None])[..., 0]

    def represent(self, x: NDArray) -> NDArray:
        """Return the embedding of the row played, as the choice saw it."""
        return self.embed(x[..., None, :])[..., 0, :]

    def absorb(self, played: NDArray, reward: ArrayLike, trained: bool) -> None:
        """Add the embedding to A and b, or rebuild them with the network just trained."""
        if trained and self.rebuild:
            rows, rewards = self.memory.newest(self.window)
            age = np.arange(rows.shape[-2])[::-1]
            self.posterior.rebuild(self.embed(rows), rewards, self.discount**age)
        else:
            z = played.astype(self.posterior.dtype)
            self.posterior.update(z, reward, discount=self.discount, checked=True)
