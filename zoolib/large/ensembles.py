r"""Uncertainty about all weights of a network: ensembles and Monte Carlo dropout.

A neural-linear agent models the uncertainty of its last layer only; the agents here that of all weights. An
*ensemble* is M networks, each with its own initial weights and its own bootstrap of the memory (Osband and
Van Roy 2015; Osband et al. 2016). *Monte Carlo dropout* uses one network and leaves hidden units out at
random, in training and in decisions: each choice of units is a sub-network (Gal and Ghahramani 2016). In
both, the standard deviation of the predictions is the width. See Chapter 5, "Doubt about the features:
ensembles and dropout".

Predictions have shape (..., M, n): members or sub-networks, then rows. The dots are the worlds axis, if
there is one.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass
from functools import partial

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import torch
    from torch import Tensor

from zoolib._support.checks import Seed, as_share, as_size
from zoolib._support.generators import stream
from zoolib._support.settings import setting
from zoolib.agents.base import Context
from zoolib.agents.neural import NeuralAgent, as_policy, of_arm
from zoolib.models.networks import MLP, Generators
from zoolib.models.replay import ReplayBuffer


@dataclass(eq=False, repr=False)
class EnsembleAgent(NeuralAgent):
    r"""Score arms by networks that saw different bootstraps of the past.

    Each row in memory has a count for each member, drawn once, when the row comes: how often it is in the
    member's bootstrap. Resampling n rows with replacement gives each row nearly a Poisson count of mean 1,
    and Poisson counts can be drawn row by row (Oza and Russell 2001).

    Parameters
    ----------
    alpha : float, default 1.0
        Weight of the members' standard deviation with ``policy="ucb"``, 0 or more.
    n_members : int, default 10
        Number of networks M per world. A single network is greedy: its standard deviation is 0.
    policy : {"ucb", "thompson"}, default "ucb"
        Score by the members' mean plus `alpha` times their standard deviation, or by one member, drawn
        anew at every visit.
    others
        As for `NeuralAgent`. All members share a batch; each weighs its rows by its counts.

    Attributes
    ----------
    network : MLP
        All members: weights are stacked along a leading axis M, or two axes (W, M).
    memory : ReplayBuffer
        The rows played, with the counts as weights.

    Examples
    --------
    >>> agent = EnsembleAgent(n_arms=50, n_features=9, n_members=5, policy="thompson")
    >>> agent.members(np.eye(9)).shape
    (5, 9)
    """

    _learns = ("_counters",)

    _: KW_ONLY
    n_members: int = setting(as_size, 10)
    policy: str = setting(as_policy, "ucb")

    def make_network(self, generators: Generators) -> MLP:
        """Return the networks of all members; each world's generator draws its members in order."""
        if isinstance(generators, list):
            return super().make_network([[g] * self.n_members for g in generators])
        return super().make_network([generators] * self.n_members)

    def make_memory(self) -> ReplayBuffer:
        """Return an empty memory, for rows with M counts."""
        return super().make_memory(self.n_members)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Restart the random numbers, counts included; before the first update, new initial weights too."""
        super().reseed(seed)
        self._counters = [stream(one, "replay").spawn(1)[0] for one in self._seeds]

    def members(self, x: NDArray) -> NDArray:
        """Predict rows (n, d) or (W, n, d) by every member; returns shape (M, n) or (W, M, n)."""
        return self.of_arms(self.network.evaluate(x[..., None, :, :]))

    def score_rows(self, x: NDArray) -> NDArray:
        """Score rows (n, d) or (W, n, d); returns shape (n,) or (W, n)."""
        if self.policy == "ucb":
            return optimistic(self.members(x), self.alpha)
        drawn = (self._uniforms.next() * self.n_members).astype(int)
        return self.of_arms(self.network.evaluate(x, at=(*self._worlds, drawn)))

    def draw_rows(self, x: NDArray, n_draws: int) -> NDArray:
        """Return the predictions of all members; each visit uses one of them. Shape (M, n) or (M, W, n)."""
        return np.moveaxis(self.members(x), -2, 0)

    def remember(self, x: NDArray, reward: ArrayLike, arm: ArrayLike) -> None:
        """Store the row played with a count for each member."""
        counts = np.array([g.poisson(1.0, self.n_members) for g in self._counters])
        counts = counts if self._worlds else counts[0]
        self.memory.add(x, reward, *self._beside(arm, counts))

    def losses(self, x: Tensor, reward: Tensor, beside: Tensor) -> Tensor:
        """Return each member's squared error of a batch, weighted by its counts, shape (M,) or (W, M)."""
        counts = beside[..., : self.n_members]
        arm = beside[..., self.n_members :]
        predicted = self.predict(x) if self.shared else self.predict(x, arm)
        return (counts.mT * (predicted - reward[..., None, :]).square()).mean(dim=-1)

    def predict(self, x: Tensor, arm: Tensor | None = None) -> Tensor:
        """Predict the rewards of rows (..., n, d) by every member; returns shape (..., M, n)."""
        outputs = self.network(x[..., None, :, :])
        return of_arm(outputs, None if arm is None else arm[..., None, :, :])


@dataclass(eq=False, repr=False)
class MCDropoutAgent(NeuralAgent):
    r"""Score arms by sub-networks of one network: hidden units are left out at random.

    A unit is left out with probability p, and the others are divided by 1 - p, so that sums keep their
    mean. In training each row of a batch has its own mask; in a decision all arms share T masks.

    Parameters
    ----------
    alpha : float, default 1.0
        Weight of the sub-networks' standard deviation with ``policy="ucb"``, 0 or more.
    dropout : float, default 0.1
        p, at least 0 and below 1.
    n_masks : int, default 20
        Number T of sub-networks in a decision with ``policy="ucb"``.
    hidden : sequence of int, default (64,)
        Widths of the hidden layers, at least one: dropout follows each of them.
    policy : {"ucb", "thompson"}, default "ucb"
        Score by the mean of T sub-networks plus `alpha` times their standard deviation, or by one
        sub-network, drawn anew at every visit.
    others
        As for `NeuralAgent`.

    Examples
    --------
    >>> agent = MCDropoutAgent(n_arms=50, n_features=9, n_masks=30)
    >>> agent.subnetworks(np.eye(9)).shape
    (30, 9)
    """

    _learns = ("_decides", "_trains")

    _: KW_ONLY
    dropout: float = setting(as_share, 0.1)
    n_masks: int = setting(as_size, 20)
    policy: str = setting(as_policy, "ucb")

    def __post_init__(self) -> None:
        super().__post_init__()
        if len(self.hidden) == 0:
            raise ValueError("hidden must have a layer whose units drop out: got none")

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Restart the random numbers, masks included; before the first update, new initial weights too."""
        super().reseed(seed)
        streams = [stream(one, "agent").spawn(2) for one in self._seeds]
        # Training does not use the random numbers of decisions.
        self._decides, self._trains = zip(*streams, strict=True)

    def masks(self, n: int, generators: Sequence[np.random.Generator]) -> list[NDArray]:
        """Draw n masks; returns one array per hidden layer, shape (n, units) or (W, n, units)."""
        shape = (n, sum(self.hidden))
        drawn = np.array([g.random(shape, dtype=np.float32) for g in generators])
        kept = (drawn >= self.dropout).astype(self.dtype)
        kept /= 1 - self.dropout
        kept = kept if self._worlds else kept[0]
        return np.split(kept, np.cumsum(self.hidden)[:-1], axis=-1)

    def subnetworks(self, x: NDArray, n: int | None = None) -> NDArray:
        """Predict rows (n, d) or (W, n, d) by new sub-networks, T if omitted; shape (T, n) or (W, T, n)."""
        n = self.n_masks if n is None else as_size("n", n)
        masks = self.masks(n, self._decides)
        return self.of_arms(self.network.evaluate(x, masks))

    def score_rows(self, x: NDArray) -> NDArray:
        """Score rows (n, d) or (W, n, d); returns shape (n,) or (W, n)."""
        return self.draw_rows(x, 1)[0]

    def draws(self, context: Context, n: int) -> NDArray:
        """See `Agent.draws`: bounds are drawn, too, as each decision has masks of its own."""
        return self._scored(context, partial(self.draw_rows, n_draws=n), axis=1)

    def draw_rows(self, x: NDArray, n_draws: int) -> NDArray:
        """Score rows by new sub-networks; returns shape (n_draws, n) or (n_draws, W, n)."""
        if self.policy == "ucb":
            drawn = self.subnetworks(x, n_draws * self.n_masks)
            each = (n_draws, self.n_masks, drawn.shape[-1])
            bounds = optimistic(drawn.reshape(*drawn.shape[:-2], *each), self.alpha)
            return np.moveaxis(bounds, -2, 0)
        return np.moveaxis(self.subnetworks(x, n_draws), -2, 0)

    def predict(self, x: Tensor, arm: Tensor | None = None) -> Tensor:
        """Predict the rewards of rows (..., n, d), each by a sub-network; returns shape (..., n)."""
        masks = map(torch.from_numpy, self.masks(x.shape[-2], self._trains))
        return of_arm(self.network(x, list(masks)), arm)


@np.errstate(over="ignore", invalid="ignore")  # `scores` checks the result
def optimistic(predicted: NDArray, alpha: float) -> NDArray:
    """Add the standard deviation of predictions (..., M, n) to their mean; returns shape (..., n)."""
    return predicted.mean(axis=-2) + alpha * predicted.std(axis=-2)
