"""What an agent is: it sees a context, shows one arm, and learns from that arm's reward.

An agent plays one world, or W worlds in step: then each array has a leading axis W, and every world
has a generator of its own for what the agent leaves to chance.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtri

from zoolib._checks import as_ids, as_seeds, as_size
from zoolib._random import stream
from zoolib.choice import greedy, tied
from zoolib.posterior import frozen, is_frozen

_BLOCK = 1024


class Context:
    """What an agent may see before it chooses: who came, and the features of each arm for them.

    Parameters
    ----------
    user_id : int, or array_like of int, shape (W,)
        The visitor; with worlds, one in each.
    features : array_like, shape (n_arms, d) or (W, n_arms, d)
        One row an arm. Not copied: do not change it afterwards. Features that stay the same from visit to
        visit are best given `zoolib.posterior.frozen`, in the agent's type: a shared model then follows
        their scores instead of computing them again.

    Raises
    ------
    TypeError
        If ids are not whole numbers, or features not real numbers.
    ValueError
        If the shapes do not fit each other, or a feature is NaN or infinite.

    Examples
    --------
    >>> Context(0, np.eye(3)).features.shape
    (3, 3)
    """

    __slots__ = ("features", "user_id")

    def __init__(self, user_id: ArrayLike, features: ArrayLike) -> None:
        features, user_id = np.asarray(features), np.asarray(user_id)
        if user_id.dtype.kind not in "iu":
            raise TypeError(
                f"user_id must hold whole numbers: got dtype {user_id.dtype}"
            )
        if features.dtype.kind not in "fiub":
            raise TypeError(
                f"features must hold real numbers: got dtype {features.dtype}"
            )
        if features.ndim not in (2, 3) or features.shape[:-2] != user_id.shape:
            raise ValueError(
                "features must have shape (n_arms, d) for one user_id, or (W, n_arms, d) for W of them: "
                f"got shapes {features.shape} and {user_id.shape}"
            )
        if not np.isfinite(features).all():
            raise ValueError("features must be finite: got NaN or infinity")
        self.user_id, self.features = user_id, features

    def of_world(self, w: int) -> Context:
        """Return what one of the worlds shows, without the worlds axis."""
        # Without the checks, which all worlds have passed.
        one = object.__new__(Context)
        one.user_id, one.features = np.asarray(self.user_id[w]), self.features[w]
        return one


class Dice:
    """Uniform numbers, one a world and throw, each world from its own seed.

    World w throws the same whether it plays alone or beside others.

    Parameters
    ----------
    seed : int or sequence of int
        With worlds, one seed each; a single number then serves them all.
    n_worlds : int or None
        Number of worlds W, or None for one without a worlds axis.
    purpose : str, default "agent"
        Whose luck it is: see `zoolib._random.STREAMS`.
    """

    def __init__(
        self, seed: int | Sequence[int], n_worlds: int | None, purpose: str = "agent"
    ) -> None:
        seeds = as_seeds("seed", seed, n_worlds)
        self._generators = [stream(one, purpose) for one in seeds]
        self._single = n_worlds is None
        self._next = _BLOCK

    def throw(self) -> NDArray[np.float64]:
        """Return one uniform number in [0, 1) for each world, shape () or (W,)."""
        if self._next == _BLOCK:
            self._fill()
        self._next += 1
        return self._throws[self._next - 1]

    def normals(self, n: int) -> NDArray[np.float64]:
        """Return n standard normal numbers for each world, shape (n,) or (W, n), from n throws."""
        parts = []
        while n > 0:
            if self._next == _BLOCK:
                self._fill()
            parts.append(self._throws[self._next : self._next + n])
            self._next += len(parts[-1])
            n -= len(parts[-1])
        return ndtri(np.concatenate(parts).T)

    def _fill(self) -> None:
        throws = np.array([g.random(_BLOCK) for g in self._generators])
        self._throws = throws[0] if self._single else throws.T.copy()
        self._next = 0


class Agent:
    """What all agents share: the choice of the best score, ties broken by chance, and the checks.

    A family adds `scores` and, if it learns, `learn`. If its scores are drawn at random, `n_draws` says
    from how many draws `propensities` are estimated.

    Parameters
    ----------
    n_arms : int
        Number of arms K.
    n_worlds : int, optional
        Number of worlds W played in step. Without it, there is no worlds axis.
    seed : int or sequence of int, default 0
        Seed of what the agent leaves to chance; with worlds, one number for all or one each.
    n_features : int, optional
        Number d of features that contexts must have; any if omitted.

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive whole number, or the seeds do not fit.
    """

    n_draws = 1

    def __init__(
        self,
        n_arms: int,
        n_worlds: int | None = None,
        seed: int | Sequence[int] = 0,
        n_features: int | None = None,
    ) -> None:
        self.n_arms = as_size("n_arms", n_arms)
        self.n_worlds = None if n_worlds is None else as_size("n_worlds", n_worlds)
        # The index of all worlds, to stand before an arm's: empty for one world without the axis.
        self._worlds = () if n_worlds is None else (np.arange(self.n_worlds),)
        self._shape = (*map(len, self._worlds), self.n_arms)
        self.n_features = n_features
        self._alike: tuple[NDArray, NDArray] | None = None
        self._frozen: tuple[NDArray, NDArray] | None = None
        self.reseed(seed)

    def reseed(self, seed: int | Sequence[int]) -> None:
        """Give the agent new luck: one seed, or one a world."""
        self._dice = Dice(seed, self.n_worlds)

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
        return self._best(self.scores(context), self._dice.throw())

    def propensities(
        self, context: Context, allowed: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Return how probable `select` is to choose each arm.

        An agent that draws its scores estimates this from `n_draws` draws. Whoever logs propensities
        then samples the arm from them, and the log is exact: see Chapter 5, "What a log line must hold".

        Parameters
        ----------
        context : Context
        allowed : array_like of bool, shape (n_arms,) or (W, n_arms), optional
            Which arms may be chosen, at least one; all if omitted.

        Returns
        -------
        ndarray, shape (n_arms,) or (W, n_arms)
            Each world's sum to 1.

        Raises
        ------
        TypeError, ValueError
            If `allowed` does not hold booleans or does not fit, or leaves a world no arm.
        """
        allowed = self._mask(allowed)
        draws = (
            self._shares(self.scores(context), allowed) for _ in range(self.n_draws)
        )
        return sum(draws) / self.n_draws

    def _shares(
        self, scores: NDArray, allowed: NDArray[np.bool_]
    ) -> NDArray[np.float64]:
        """Divide one choice among the best arms of those allowed, shape (..., n_arms)."""
        return greedy(np.where(allowed, scores, -np.inf))

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

        Raises
        ------
        TypeError
            If arms are not whole numbers.
        ValueError
            If a shape does not fit, an arm is out of range, or a reward not finite. The agent is
            then unchanged.
        """
        self._check(context)
        if self.n_worlds is None:
            arm, reward = _one_arm(arm, self.n_arms), _one_reward(reward)
        else:
            # Copies: an agent may keep them, and the caller may use the arrays again.
            arm = as_ids("arm", arm, self.n_arms).copy()
            reward = np.array(reward)
            if reward.dtype.kind not in "fiub":
                raise TypeError(
                    f"reward must hold real numbers: got dtype {reward.dtype}"
                )
            for name, given in (("arm", arm), ("reward", reward)):
                if given.shape != (self.n_worlds,):
                    raise ValueError(
                        f"{name} must have shape {(self.n_worlds,)}: got {given.shape}"
                    )
            if not np.isfinite(reward).all():
                raise ValueError(f"reward must be finite: got {reward}")
        self.learn(context, (*self._worlds, arm), reward)

    def learn(self, context: Context, at: tuple, reward: ArrayLike) -> None:
        """Take in a checked reward; `at` is the index of the arm played in arrays (K, …) or (W, K, …).

        Agents that do not learn leave this as it is.
        """

    def restock(self, arms: NDArray[np.int64]) -> None:
        """Be told that these arms, shape (n,) or (W, n), now hold other products.

        Agents that know nothing of single arms leave this as it is.
        """
        self._alike = None  # arms that differed may now be alike

    def _lookalikes(
        self, features: NDArray
    ) -> tuple[NDArray, Callable[[NDArray], NDArray]]:
        """Find arms with equal features, which one model for all arms must score alike.

        Returns
        -------
        rows : ndarray, shape (n, d) or (W, n, d)
            Features, each at least once; all K rows where no two arms are alike.
        spread : callable
            Turns what was computed for the rows, (..., n), into what belongs to the arms, (..., K).
        """
        # Arms that were alike for the last visitor are, as a rule, alike for the next: look first.
        if self._alike is not None:
            first, which = self._alike
            if first.shape == which.shape:
                return features, lambda of_arm: of_arm
            worlds = tuple(world[:, None] for world in self._worlds)
            of_arm = (*worlds, which)
            fixed = is_frozen(features)
            if fixed and self._frozen is not None and self._frozen[0] is features:
                return self._frozen[1], lambda of_row: of_row[of_arm]
            rows = features[(*worlds, first)]
            if np.array_equal(rows[of_arm], features):
                if fixed:
                    rows = frozen(rows)
                    self._frozen = features, rows
                return rows, lambda of_row: of_row[of_arm]
        self._alike, self._frozen = _group(features), None
        return self._lookalikes(features)

    def _best(self, scores: NDArray, throw: NDArray) -> int | NDArray[np.int64]:
        """Return the arm of highest score, the throw in [0, 1) deciding between ties."""
        best = scores.argmax(axis=-1)
        ties = tied(scores, scores[(*self._worlds, best)])
        if np.count_nonzero(ties) > best.size:
            # Number the ties 1, 2, …; the throw names one of them.
            number = ties.cumsum(axis=-1)
            named = (throw * number[..., -1]).astype(int)
            best = (number > named[..., None]).argmax(axis=-1)
        return best if self._worlds else int(best)

    def _check(self, context: Context) -> NDArray:
        """Return the features, if they are those of this agent's arms and worlds."""
        features, d = context.features, self.n_features
        shape = features.shape
        if shape[:-1] != self._shape or (d is not None and shape[-1] != d):
            raise ValueError(
                f"context.features must have shape {(*self._shape, d or 'd')}: got {features.shape}"
            )
        return features


def _group(features: NDArray) -> tuple[NDArray, NDArray]:
    """Return the first arm of each group of equal rows (..., n), and the group of each arm (..., K)."""
    flat = features.reshape(-1, *features.shape[-2:])
    found = [
        np.unique(rows, axis=0, return_index=True, return_inverse=True)[1:]
        for rows in flat
    ]
    n = max(len(first) for first, _ in found)
    # Worlds with fewer groups repeat an arm, so that all have n.
    first = np.array([np.resize(first, n) for first, _ in found])
    which = np.array([which.ravel() for _, which in found])
    shape = features.shape[:-2]
    return first.reshape(*shape, -1), which.reshape(*shape, -1)


def _one_reward(reward: float) -> float:
    """Return a single reward as a finite float; True is a click."""
    if not isinstance(reward, (float, int, np.number, np.bool_)):
        raise TypeError(f"reward must be a number: got {reward!r}")
    if not math.isfinite(reward):
        raise ValueError(f"reward must be finite: got {reward}")
    return float(reward)


def _one_arm(arm: int, n_arms: int) -> int:
    """Return a single arm as an int in 0 … n_arms - 1."""
    try:
        if isinstance(arm, bool):
            raise TypeError
        arm = operator.index(arm)
    except TypeError:
        raise TypeError(f"arm must be a whole number: got {arm!r}") from None
    if not 0 <= arm < n_arms:
        raise ValueError(f"arm must lie in 0 … {n_arms - 1}: got {arm}")
    return arm
