r"""Doubt about the features too: networks that disagree, and one network that is never whole.

A neural-linear agent doubts its last layer only. Here the doubt is about all weights. An *ensemble* is M
networks, each with its own first weights and its own bootstrap of the memory (Osband and Van Roy 2015;
Osband et al. 2016). *Monte Carlo dropout* is one network that leaves hidden units out at random, in
training and in decisions: each choice of units is a sub-network (Gal and Ghahramani 2016). In both the
standard deviation of what they predict stands for the width. See Chapter 4, "Doubt about the features".
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial

import numpy as np
import torch
from numpy.typing import ArrayLike, DTypeLike, NDArray
from torch import Tensor

from zoolib._checks import (
    as_not_negative,
    as_one_of,
    as_probability,
    as_seeds,
    as_size,
)
from zoolib._random import stream
from zoolib.agents.neural import NeuralAgent
from zoolib.agents.protocol import Context
from zoolib.networks import MLP, Generators
from zoolib.replay import ReplayBuffer

_BLOCK = 256


class BootstrapMemory(ReplayBuffer):
    """A replay buffer that keeps with each row how often each member of an ensemble has it.

    The counts are Poisson with mean 1, drawn once, when the row comes: to resample n rows with
    replacement gives each row nearly such a count, and rows can come one by one (Oza and Russell 2001).

    Parameters
    ----------
    capacity, n_features, n_worlds, seed, dtype
        As for `ReplayBuffer`.
    n_members : int
        Number of members M. Rows that come out have the M counts appended, d + M columns.
    """

    def __init__(
        self,
        capacity: int,
        n_features: int,
        n_members: int,
        n_worlds: int | None = None,
        seed: int | Sequence[int] = 0,
        dtype: DTypeLike = np.float32,
    ) -> None:
        self.n_members = as_size("n_members", n_members)
        super().__init__(capacity, n_features + self.n_members, n_worlds, seed, dtype)

    def reseed(self, seed: int | Sequence[int]) -> None:
        """Give `sample` and the counts new luck."""
        super().reseed(seed)
        seeds = as_seeds("seed", seed, self.n_worlds)
        self._counters = [stream(one, "replay").spawn(1)[0] for one in seeds]
        self._next = _BLOCK

    def add(self, x: ArrayLike, reward: ArrayLike) -> Callable[[], None]:
        """Remember one row a world, (d,) or (W, d), and its reward; returns what undoes this."""
        return super().add(np.concatenate((x, self._counts()), axis=-1), reward)

    def _counts(self) -> NDArray:
        """Draw how often each member has the next row, shape (M,) or (W, M)."""
        if self._next == _BLOCK:
            shape = (_BLOCK, self.n_members)
            drawn = np.array([g.poisson(1.0, shape) for g in self._counters])
            self._drawn = drawn[0] if self.n_worlds is None else drawn.swapaxes(0, 1)
            self._next = 0
        self._next += 1
        return self._drawn[self._next - 1]


class EnsembleAgent(NeuralAgent):
    r"""Score arms by networks that saw different bootstraps of the past.

    Parameters
    ----------
    n_arms, n_features : int
        Numbers K of arms and d of features.
    beta : float, default 1.0
        Weight of the members' standard deviation with ``policy="ucb"``, 0 or more.
    n_worlds : int, optional
        Number of worlds W played in step.
    n_members : int, default 10
        Number of networks M a world. A single one is greedy: nobody disagrees with it.
    hidden : sequence of int, default (64,)
        Widths of the hidden layers.
    policy : {"ucb", "thompson"}, default "ucb"
        Score by the members' mean plus `beta` times their standard deviation, or by one member, drawn
        anew at every visit.
    **options
        As for `NeuralAgent`. A batch is drawn once for all members; each weighs its rows by its counts.

    Attributes
    ----------
    network : MLP
        All members: weights are stacked along a leading axis M, or W · M with the members of a world
        side by side.
    memory : BootstrapMemory
        What was played, and each member's counts.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what is described here.

    Examples
    --------
    >>> agent = EnsembleAgent(n_arms=50, n_features=9, n_members=5, policy="thompson")
    >>> agent.members(np.eye(9)).shape
    (5, 9)
    """

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        beta: float = 1.0,
        n_worlds: int | None = None,
        *,
        n_members: int = 10,
        hidden: Sequence[int] = (64,),
        policy: str = "ucb",
        **options: object,
    ) -> None:
        self.beta = as_not_negative("beta", beta)
        self.n_members = as_size("n_members", n_members)
        self.policy = as_one_of("policy", policy, ("ucb", "thompson"))
        make_network = partial(_stack, _sizes(n_features, hidden), self.n_members)
        super().__init__(
            n_arms, n_features, n_worlds, make_network=make_network, **options
        )

    def begin(self, seed: int | Sequence[int]) -> None:
        """Draw the initial weights, and empty the memory."""
        super().begin(seed)
        self.memory = BootstrapMemory(
            self.buffer_size,
            self.n_features,
            self.n_members,
            self.n_worlds,
            dtype=self.dtype,
        )

    def members(self, x: NDArray) -> NDArray:
        """Predict rows (n, d) or (W, n, d) by every member; returns shape (M, n) or (W, M, n)."""
        each = x if self.n_worlds is None else x.repeat(self.n_members, axis=0)
        predicted = _finite(self.network.evaluate, each)
        return predicted.reshape(*x.shape[:-2], self.n_members, -1)

    def score_rows(self, x: NDArray) -> NDArray:
        """Score rows (n, d) or (W, n, d); returns shape (n,) or (W, n)."""
        if self.policy == "ucb":
            return _optimistic(self.members(x), self.beta)
        drawn = (self._dice.throw() * self.n_members).astype(int)
        if self._worlds:
            drawn = drawn + self.n_members * self._worlds[0]
        return _finite(self.network.evaluate, x, drawn)

    def propensities(
        self, context: Context, allowed: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Return how probable `select` is to choose each arm: see `Agent.propensities`.

        With ``policy="thompson"`` this is the share of the members whose best arm it is, without error.
        """
        if self.policy == "ucb":
            return super().propensities(context, allowed)
        allowed = self._mask(allowed)[..., None, :]
        x = self._check(context).astype(self.dtype, copy=False)
        return self._shares(self.members(x), allowed).mean(axis=-2)

    def losses(self, x: Tensor, reward: Tensor) -> Tensor:
        """Return each member's squared error of a batch, by its own counts, shape (M,) or (W·M,)."""
        rows, counts = x[..., : self.n_features], x[..., self.n_features :]
        errors = self.predict(rows) - self.repeat(reward)
        return (counts.mT.flatten(0, -2) * errors.square()).mean(dim=-1)

    def predict(self, x: Tensor) -> Tensor:
        """Predict the rewards of rows (..., n, d) by every member; returns shape (M, n) or (W·M, n)."""
        return self.network(self.repeat(x))[..., 0]

    def repeat(self, batch: Tensor) -> Tensor:
        """Repeat a batch, with or without worlds axis, for every member."""
        one = self.n_worlds is None
        return (batch[None] if one else batch).repeat_interleave(self.n_members, dim=0)


class MCDropoutAgent(NeuralAgent):
    r"""Score arms by sub-networks of one network: hidden units are left out at random.

    A unit is left out with probability p, and what remains is divided by 1 - p, so that sums keep their
    mean. In training each row of a batch has its own mask; in a decision all arms share T of them.

    Parameters
    ----------
    n_arms, n_features : int
        Numbers K of arms and d of features.
    alpha : float, default 1.0
        Weight of the sub-networks' standard deviation with ``policy="ucb"``, 0 or more.
    n_worlds : int, optional
        Number of worlds W played in step.
    dropout : float, default 0.1
        p, at least 0 and below 1.
    n_masks : int, default 20
        Number T of sub-networks in a decision; with ``policy="thompson"`` only `propensities` needs it.
    hidden : sequence of int, default (64,)
        Widths of the hidden layers, at least one: dropout follows each of them.
    policy : {"ucb", "thompson"}, default "ucb"
        Score by the mean of T sub-networks plus `alpha` times their standard deviation, or by one
        sub-network, drawn anew at every visit.
    **options
        As for `NeuralAgent`.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what is described here.

    Examples
    --------
    >>> agent = MCDropoutAgent(n_arms=50, n_features=9, n_masks=30)
    >>> agent.subnetworks(np.eye(9)).shape
    (30, 9)
    """

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        alpha: float = 1.0,
        n_worlds: int | None = None,
        *,
        dropout: float = 0.1,
        n_masks: int = 20,
        hidden: Sequence[int] = (64,),
        policy: str = "ucb",
        **options: object,
    ) -> None:
        self.alpha = as_not_negative("alpha", alpha)
        self.dropout = as_probability("dropout", dropout)
        if self.dropout == 1:
            raise ValueError(f"dropout must lie in [0, 1): got {dropout}")
        self.n_masks = as_size("n_masks", n_masks)
        self.policy = as_one_of("policy", policy, ("ucb", "thompson"))
        sizes = _sizes(n_features, hidden)
        if len(sizes) == 2:
            raise ValueError("hidden must have a layer whose units drop out: got none")
        self.hidden = sizes[1:-1]
        super().__init__(
            n_arms, n_features, n_worlds, make_network=partial(MLP, sizes), **options
        )

    def reseed(self, seed: int | Sequence[int]) -> None:
        """Give the agent new luck, masks included; before the first update, new initial weights too."""
        seeds = as_seeds("seed", seed, self.n_worlds)
        streams = [stream(one, "agent").spawn(3) for one in seeds]
        # Training, and asking for propensities, leave the decisions' luck alone.
        self._decides, self._trains, self._asks = zip(*streams, strict=True)
        super().reseed(seed)

    def masks(self, n: int, generators: Sequence[np.random.Generator]) -> list[NDArray]:
        """Draw n masks; returns one array a hidden layer, shape (n, units) or (W, n, units)."""
        shape = (n, sum(self.hidden))
        drawn = np.array([g.random(shape, dtype=np.float32) for g in generators])
        kept = (drawn >= self.dropout).astype(self.dtype)
        kept /= 1 - self.dropout
        if self.n_worlds is None:
            kept = kept[0]
        return np.split(kept, np.cumsum(self.hidden)[:-1], axis=-1)

    def subnetworks(self, x: NDArray) -> NDArray:
        """Predict rows (n, d) or (W, n, d) by T new sub-networks; returns shape (T, n) or (W, T, n)."""
        return self._masked(x, self.n_masks, self._decides)

    def score_rows(self, x: NDArray) -> NDArray:
        """Score rows (n, d) or (W, n, d); returns shape (n,) or (W, n)."""
        if self.policy == "ucb":
            return _optimistic(self.subnetworks(x), self.alpha)
        return self._masked(x, 1, self._decides)[..., 0, :]

    def propensities(
        self, context: Context, allowed: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Estimate how probable `select` is to choose each arm: see `Agent.propensities`.

        With ``policy="thompson"``, the share of T fresh sub-networks whose best arm it is, so a multiple
        of 1/T, and 0 for an arm that is seldom shown. With ``policy="ucb"``, by one set of T masks.
        Decisions do not change by asking.
        """
        allowed = self._mask(allowed)
        x = self._check(context).astype(self.dtype, copy=False)
        predicted = self._masked(x, self.n_masks, self._asks)
        if self.policy == "ucb":
            return self._shares(_optimistic(predicted, self.alpha), allowed)
        return self._shares(predicted, allowed[..., None, :]).mean(axis=-2)

    def predict(self, x: Tensor) -> Tensor:
        """Predict the rewards of rows (..., n, d), each by a sub-network; returns shape (..., n)."""
        masks = map(torch.from_numpy, self.masks(x.shape[-2], self._trains))
        return self.network(x, list(masks))[..., 0]

    def _masked(
        self, x: NDArray, n: int, generators: Sequence[np.random.Generator]
    ) -> NDArray:
        """Predict rows by n sub-networks, shape (n, rows) or (W, n, rows)."""
        return _finite(self.network.evaluate_masked, x, self.masks(n, generators))


def _sizes(n_features: int, hidden: Sequence[int]) -> list[int]:
    """Return the widths of a network from features to one reward."""
    sizes = [as_size("hidden", size) for size in hidden]
    return [as_size("n_features", n_features), *sizes, 1]


def _stack(sizes: Sequence[int], n_members: int, generators: Generators) -> MLP:
    """Make the networks of all members; a world's generator draws theirs one after the other."""
    worlds = generators if isinstance(generators, list) else [generators]
    return MLP(sizes, [g for g in worlds for _ in range(n_members)])


@np.errstate(over="ignore", invalid="ignore")  # the result tells
def _finite(evaluate: Callable[..., NDArray], *arguments: object) -> NDArray:
    """Return what a network with one output predicts, if those are numbers."""
    predicted = evaluate(*arguments)[..., 0]
    if not np.isfinite(predicted).all():
        raise FloatingPointError(
            "predictions must be finite, or the learning rate is too high: got NaN or infinity"
        )
    return predicted


@np.errstate(over="ignore")  # `scores` looks at the result
def _optimistic(predicted: NDArray, weight: float) -> NDArray:
    """Add the standard deviation of predictions (..., M, n) to their mean; returns shape (..., n)."""
    return predicted.mean(axis=-2) + weight * predicted.std(axis=-2)
