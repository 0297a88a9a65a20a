"""What an agent is: it sees a context, shows one arm, and learns from that arm's reward.

An agent plays one world, or W worlds in step: then each array has a leading axis W, and every world
has a generator of its own for what the agent leaves to chance.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import Seed, as_array, as_ids, as_seeds, as_size
from zoolib._support.generators import Uniforms
from zoolib._support.state import Stateful
from zoolib.agents.policies import greedy, tied


class Context:
    """What an agent may see before it chooses: who came, and the features of each arm for them.

    Parameters
    ----------
    user_id : int, or array_like of int, shape (W,)
        The visitor; with worlds, one in each.
    features : array_like, shape (n_arms, d) or (W, n_arms, d)
        One row per arm. Not copied: do not change it afterwards.

    Examples
    --------
    >>> Context(0, np.eye(3)).features.shape
    (3, 3)
    """

    def __init__(self, user_id: ArrayLike, features: ArrayLike) -> None:
        features, user_id = as_array("features", features), np.asarray(user_id)
        if user_id.dtype.kind not in "iu":
            raise TypeError(
                f"user_id must hold whole numbers: got dtype {user_id.dtype}"
            )
        if features.ndim not in (2, 3) or features.shape[:-2] != user_id.shape:
            raise ValueError(
                "features must have shape (n_arms, d) for one user_id, or (W, n_arms, d) for W of them: "
                f"got shapes {features.shape} and {user_id.shape}"
            )
        self.user_id, self.features = user_id, features

    def of_world(self, w: int) -> Context:
        """Return what one of the worlds shows, without the worlds axis."""
        # Without the checks, which all worlds have passed.
        one = object.__new__(type(self))
        vars(one).update({name: array[w, ...] for name, array in vars(self).items()})
        return one


class Agent(Stateful):
    """What all agents share: the choice of the best score, ties broken by chance, and the checks.

    A family adds `scores`; if it draws them at random, `draws`; and if it learns, `learn`. It names in
    `_learns` the attributes that change, and keeps each argument of its constructor as an attribute of the
    same name: `repr`, `state` and `save` rely on both. The library's families are dataclasses, so that
    settings are inherited; `__post_init__` checks them.

    Parameters
    ----------
    n_arms : int
        Number of arms K.
    n_worlds : int, optional
        Number of worlds W played in step. Without it, there is no worlds axis.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of what the agent leaves to chance; with worlds, one for all or one for each.
    n_features : int, optional
        Number d of features that contexts must have; any if omitted.
    """

    _purpose = "agent"  # of the random numbers: see `generators.STREAMS`
    _learns = ("_uniforms",)

    def __init__(
        self,
        n_arms: int,
        n_worlds: int | None = None,
        seed: Seed | Sequence[Seed] = 0,
        n_features: int | None = None,
    ) -> None:
        self.n_arms = as_size("n_arms", n_arms)
        self.n_worlds = None if n_worlds is None else as_size("n_worlds", n_worlds)
        # The index of all worlds, to stand before an arm's: empty for one world without the axis.
        self._worlds = () if n_worlds is None else (np.arange(self.n_worlds),)
        self._shape = (*map(len, self._worlds), self.n_arms)
        self.n_features = n_features
        self._forget_lookalikes()
        self.reseed(seed)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Begin new random numbers: one seed, or one for each world."""
        seeds = as_seeds("seed", seed, self.n_worlds)
        self.seed, self._seeds = seeds[0] if np.ndim(seed) == 0 else seeds, seeds
        self._uniforms = Uniforms(seeds, self.n_worlds, self._purpose)

    def scores(self, context: Context) -> NDArray:
        """Return what `select` maximises, shape (n_arms,) or (W, n_arms)."""
        raise NotImplementedError(f"{type(self).__name__} scores no arms")

    def select(self, context: Context) -> int | NDArray[np.int64]:
        """Choose the arm to show.

        Parameters
        ----------
        context : Context

        Returns
        -------
        int, or ndarray of int, shape (W,)
            An arm of highest score. Scores closer than rounding are ties; chance breaks them.
        """
        return self._best(self.scores(context), self._uniforms.next())

    def draws(self, context: Context, n: int) -> NDArray:
        """Return n draws of the scores, shape (n, n_arms) or (n, W, n_arms).

        Where they can come out in a few ways only, each equally likely, all of these are returned instead:
        here the only one.
        """
        return self.scores(context)[None]

    def propensities(
        self,
        context: Context,
        allowed: ArrayLike | None = None,
        n_draws: int = 100,
    ) -> NDArray[np.float64]:
        """Return how probable `select` is to choose each arm.

        An agent that draws its scores estimates this by the share of draws that each arm wins. Whoever
        logs propensities then samples the arm from them, and the log is exact: see Chapter 5, "What a log
        line must hold".

        Parameters
        ----------
        context : Context
        allowed : array_like of bool, shape (n_arms,) or (W, n_arms), optional
            Which arms may be chosen, at least one; all if omitted.
        n_draws : int, default 100
            Number of draws to estimate from.

        Returns
        -------
        ndarray, shape (n_arms,) or (W, n_arms)
            Each world's sum to 1.
        """
        allowed = self._mask(allowed)
        draws = self.draws(context, as_size("n_draws", n_draws))
        return greedy(np.where(allowed, draws, -np.inf)).mean(axis=0)

    def _mask(self, allowed: ArrayLike | None) -> NDArray[np.bool_]:
        """Return which arms are allowed, checked: all if None."""
        if allowed is None:
            return np.ones(self._shape, bool)
        allowed = np.asarray(allowed)
        if allowed.dtype != bool:
            raise TypeError(f"allowed must hold booleans: got dtype {allowed.dtype}")
        if allowed.shape != self._shape or not allowed.any(axis=-1).all():
            raise ValueError(
                f"allowed must leave an arm, and have shape {self._shape}: got shape {allowed.shape}"
            )
        return allowed

    def update(self, context: Context, arm: ArrayLike, reward: ArrayLike) -> None:
        """Learn from the arm played, and from nothing else.

        Parameters
        ----------
        context : Context
            What was seen when the arm was chosen.
        arm : int, or array_like of int, shape (W,)
            What was shown.
        reward : float, or array_like, shape (W,)
            What it earned.
        """
        self._check(context)
        shape = self._shape[:-1]
        arm = as_ids("arm", arm, self.n_arms, shape)
        reward = as_array("reward", reward, shape)
        if not shape:
            arm, reward = int(arm), float(reward)
        self.learn(context, (*self._worlds, arm), reward)

    def learn(self, context: Context, at: tuple, reward: ArrayLike) -> None:
        """Take in a checked reward; `at` is the index of the arm played in arrays (K, …) or (W, K, …)."""

    def restock(self, arms: NDArray[np.int64]) -> None:
        """Be told that these arms, shape (n,) or (W, n), now hold other products."""
        self._forget_lookalikes()

    def _forget_lookalikes(self) -> None:
        """Suppose that all arms are alike, until features tell them apart."""
        first, group = np.zeros((*self._shape[:-1], 1), int), np.zeros(self._shape, int)
        self._alike = self._at(first), self._at(group)

    def _lookalikes(
        self, features: NDArray
    ) -> tuple[NDArray, Callable[[NDArray], NDArray]]:
        """Find arms with equal features, which one model for all arms must score alike.

        Return rows (n, d) or (W, n, d), each at least once, and what spreads numbers of the rows,
        (..., n) or (..., W, n), over the arms, (..., K) or (..., W, K).
        """
        first, group = self._alike
        rows = features[first]
        # Arms that were alike for the last visitor are, as a rule, alike for the next.
        if not np.array_equal(rows[group], features):
            first, group = self._alike = self._group(features)
            rows = features[first]
        return rows, lambda of_row: of_row[(..., *group)]

    def _group(self, features: NDArray) -> tuple[tuple, tuple]:
        """Return the indices of the first arm of each group of equal rows, and of the group of each arm."""
        flat = features.reshape(-1, *features.shape[-2:])
        found = [
            np.unique(rows, axis=0, return_index=True, return_inverse=True)[1:]
            for rows in flat
        ]
        n = max(len(first) for first, _ in found)
        if n == self.n_arms:
            return (), ()  # each row is its own
        # Worlds with fewer groups repeat an arm, so that all have n.
        first = np.reshape(
            [np.resize(first, n) for first, _ in found], (*self._shape[:-1], n)
        )
        group = np.reshape([group for _, group in found], self._shape)
        return self._at(first), self._at(group)

    def _at(self, arms: NDArray[np.int64]) -> tuple[NDArray, ...]:
        """Return the index of several arms, (n,) or (W, n), in arrays (K, …) or (W, K, …)."""
        return (*(world[:, None] for world in self._worlds), arms)

    def _normals(self, n: int, size: int) -> NDArray[np.float64]:
        """Return n times `size` standard normal numbers for each world, the axis of worlds in between."""
        drawn = self._uniforms.normals(n * size)
        return np.moveaxis(drawn.reshape(*drawn.shape[:-1], n, size), -2, 0)

    def _best(self, scores: NDArray, uniform: NDArray) -> int | NDArray[np.int64]:
        """Return the arm of highest score (..., K); a uniform number (...) decides between ties."""
        best = scores.argmax(axis=-1)
        ties = tied(scores, scores.max(axis=-1))
        if np.count_nonzero(ties) > best.size:
            # Number the ties 1, 2, …; the uniform number names one of them.
            number = ties.cumsum(axis=-1)
            named = (uniform * number[..., -1]).astype(int)
            best = (number > named[..., None]).argmax(axis=-1)
        return best if best.ndim else int(best)

    def _check(self, context: Context) -> NDArray:
        """Return the features, if they are those of this agent's arms and worlds."""
        features, d = context.features, self.n_features
        shape = features.shape
        if shape[:-1] != self._shape or (d is not None and shape[-1] != d):
            raise ValueError(
                f"context.features must have shape {(*self._shape, d or 'd')}: got {features.shape}"
            )
        return features
