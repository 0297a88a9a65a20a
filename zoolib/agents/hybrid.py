r"""Hybrid linear models: some weights are shared by all arms, others belong to a single arm.

The reward of arm a is predicted by :math:`z_a^\top \beta + x_a^\top \theta_a` (Li et al. 2010, section
3.2). The shared weights :math:`\beta` are learnt from every visit, the weights :math:`\theta_a` of an arm
from its own visits. See Chapter 4, "What no label tells".
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import Seed, as_ids, as_not_negative, as_positive, as_size
from zoolib._support.settings import optional, setting
from zoolib.agents.base import Agent, Context
from zoolib.models.posterior import RidgePosterior


@dataclass(eq=False, repr=False)
class HybridLinUCBAgent(Agent):
    r"""Show the arm of the highest bound under a hybrid linear model.

    The model is ridge regression on a long row: :math:`z_a`, then one block per arm, with :math:`x_a` in
    the block of arm a and zeros in the other blocks. The arms' blocks are eliminated: with
    :math:`C_a = A_a^{-1} B_a`, where :math:`B_a = \sum x z^\top` over the arm's visits, and
    :math:`v = z - C_a^\top x`,

    .. math::
        \text{score}_a = v^\top \hat\beta + x^\top \hat m_a
        + \alpha \sqrt{v^\top A_0^{-1} v + x^\top A_a^{-1} x},

    where :math:`\hat m_a = A_a^{-1} b_a`. A reward changes both :math:`A_0` and :math:`A_a` by a matrix of
    rank one. The results equal those of Li et al.'s algorithm 2.

    Parameters
    ----------
    n_arms, n_worlds, seed
        As for `Agent`.
    n_features : int
        Number k of features, all of which have shared weights.
    own : sequence of int
        Columns of the features, d of them, for which each arm also has its own weights.
    alpha : float, default 1.0
        Weight of the uncertainty, 0 or more.
    ridge : float, default 1.0
        Weight of the prior, above 0.

    Attributes
    ----------
    common : RidgePosterior
        Posterior of the shared weights; leading axes () or (W,).
    single : RidgePosterior
        Posterior of the arms' own weights in a model without shared ones; leading axes (K,) or (W, K).
    C : ndarray, shape (K, d, k) or (W, K, d, k)
    """

    _learns = ("common", "single", "C")
    shared = True  # some of the weights

    n_arms: int | Sequence[Hashable]
    n_features: int = setting(as_size)
    own: Sequence[int]
    alpha: float = setting(as_not_negative, 1.0)
    ridge: float = setting(as_positive, 1.0)
    n_worlds: int | None = setting(optional(as_size), None)
    _: KW_ONLY
    seed: Seed | Sequence[Seed] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        self.own = as_ids("own", self.own, self.n_features).copy()
        if not (self.own.ndim == 1 and len(np.unique(self.own)) == self.own.size > 0):
            raise ValueError(
                f"own must name different columns: got {self.own.tolist()}"
            )
        self.common = RidgePosterior(self.n_features, self.ridge, self._shape[:-1])
        self.single = RidgePosterior(len(self.own), self.ridge, self._shape)
        self.C = np.zeros((*self._shape, len(self.own), self.n_features))

    @classmethod
    def _least_numbers(cls, settings: dict[str, Any]) -> float:
        own = cls._n_models(settings | {"shared": False}) * len(settings["own"])
        return settings["n_features"] ** 2 + own * settings["n_features"]

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return the upper confidence bounds, shape (n_arms,) or (W, n_arms)."""
        z = self._check(context).features.astype(np.float64, copy=False)
        x = z[..., self.own]
        v = z - np.vecmat(x, self.C)
        shared, shared_width = self.common.predict_rows(v)
        own = self.single.predict(x)
        own_width = self.single.width(x)
        return shared + own + self.alpha * np.hypot(shared_width, own_width)

    def learn(self, context: Context, at: tuple, reward: ArrayLike) -> None:
        """Learn from the arm played; the shared weights fit the residuals of its own weights."""
        z = context.row(at).astype(np.float64)  # at: the arm played, in each world
        x = z[..., self.own]
        v = z - np.vecmat(x, self.C[at])
        gain = np.matvec(self.single.A_inv[at], x)
        weight = 1 / (1 + np.vecdot(x, gain))
        unexplained = reward - self.single.predict(x, at)
        self.single.check_length(x, at)  # before either has changed
        self.common.learn(v, unexplained, weight=weight)
        self.single.learn(x, reward, at)
        self.C[at] += (weight[..., None] * gain)[..., None] * v[..., None, :]

    def restock(self, arms: NDArray[np.int64]) -> None:
        """Reset the own weights of arms that now hold other products."""
        super().restock(arms)
        self.single.reset(self._at(arms))
        self.C[self._at(arms)] = 0
