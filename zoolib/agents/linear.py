"""Linear models of the reward: one ridge posterior for each arm, or one for all.

Models of single arms are *disjoint*: what one arm teaches stays with it (Li et al. 2010, algorithm 1;
see Chapter 2, "By hand"). One *shared* model learns from every arm, through features that say how arms
are alike (Chapter 3, "The table of twenty cells").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from zoolib._checks import as_not_negative, as_probability, as_rate, as_size
from zoolib.agents.protocol import Agent, Context
from zoolib.posterior import RidgePosterior


class LinearAgent(Agent):
    """Predict with linear models, and show the arm predicted best.

    Parameters
    ----------
    n_arms, n_features : int
        Numbers K of arms and d of features.
    ridge : float, default 1.0
        Weight of the prior, above 0.
    n_worlds : int, optional
        Number of worlds W played in step.
    shared : bool, default False
        One model for all arms instead of one for each.
    discount : float, default 1.0
        Whenever a model learns, what it learnt before is multiplied by this number in (0, 1]; 1 forgets
        nothing. An arm's own model learns when the arm is played, a shared one at each step.
    window : int, optional
        Learn from the last `window` steps only. Not together with a discount.
    seed : int or sequence of int, default 0
        Seed of what is left to chance.
    dtype : float64 or float32, default float64
        Type of the posterior.

    Attributes
    ----------
    posterior : RidgePosterior
        Leading axes (K,) or (W, K); of a shared model () or (W,).

    Raises
    ------
    TypeError, ValueError
        If an argument is not what is described here.
    """

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        ridge: float = 1.0,
        n_worlds: int | None = None,
        *,
        shared: bool = False,
        discount: float = 1.0,
        window: int | None = None,
        seed: int | Sequence[int] = 0,
        dtype: DTypeLike = np.float64,
    ) -> None:
        super().__init__(n_arms, n_worlds, seed, as_size("n_features", n_features))
        self.discount = as_rate("discount", discount)
        self.window = None if window is None else as_size("window", window)
        if self.window is not None and self.discount < 1:
            raise ValueError(
                f"choose one way to forget: got discount={discount} and window={window}"
            )
        self.shared = bool(shared)
        shape = self._shape[:-1] if self.shared else self._shape
        self.posterior = RidgePosterior(n_features, ridge, shape, dtype)
        self._recent: deque[tuple[tuple, NDArray, ArrayLike]] = deque()

    def scores(self, context: Context) -> NDArray:
        """Return the predicted rewards, shape (n_arms,) or (W, n_arms)."""
        return self._predict(context)[0]

    def _predict(self, context: Context) -> tuple[NDArray, NDArray]:
        """Return the predicted rewards and their widths."""
        features = self._features(context)
        if not self.shared:
            return self.posterior.predict_with_width(features)
        rows, spread = self._lookalikes(features)
        prediction, width = self.posterior.predict_rows(rows)
        return spread(prediction), spread(width)

    def restock(self, arms: NDArray[np.int64]) -> None:
        """Begin again with arms that now hold other products, if each has its own model."""
        super().restock(arms)
        if not self.shared:
            worlds = tuple(world[:, None] for world in self._worlds)
            self.posterior.reset((*worlds, arms))
            for at, x, _ in self._recent:  # these rows leave the window unlearnt
                gone = (np.asarray(at[-1])[..., None] == arms).any(axis=-1)
                x[gone] = 0

    def learn(self, context: Context, at: tuple, reward: ArrayLike) -> None:
        """Forget as much as is wanted, then learn from the arm played."""
        x = context.features[at]
        at = () if self.shared else at
        # Numbers of another type are converted and checked again: a float32 overflows sooner.
        checked = x.dtype == self.posterior.dtype
        self.posterior.update(x, reward, at, discount=self.discount, checked=checked)
        if self.window is not None:
            self._slide(at, x, reward)

    def _slide(self, at: tuple, x: NDArray, reward: ArrayLike) -> None:
        """Remember the newest row, and take the one that leaves the window out of the posterior."""
        self._recent.append((at, x.copy(), reward))
        if len(self._recent) > self.window:
            at, x, reward = self._recent.popleft()
            self.posterior.update(x, reward, at, weight=-1.0)

    def _features(self, context: Context) -> NDArray:
        """Return the features, checked and of the posterior's type."""
        features = self._check(context)
        if features.dtype == self.posterior.dtype:
            return features
        return features.astype(self.posterior.dtype)


class LinUCBAgent(LinearAgent):
    r"""Show the arm that could be best: predicted reward plus `alpha` times its uncertainty.

    .. math::  x^\top \hat\theta_a + \alpha \sqrt{x^\top A_a^{-1} x}

    Parameters
    ----------
    n_arms, n_features : int
        Numbers K of arms and d of features.
    alpha : float, default 1.0
        Weight of the uncertainty, 0 or more.
    ridge, n_worlds, shared, discount, window, seed, dtype
        As for `LinearAgent`.

    Examples
    --------
    >>> agent = LinUCBAgent(n_arms=2, n_features=3, alpha=1.0)
    >>> context = Context(0, np.eye(2, 3))
    >>> agent.update(context, arm=0, reward=1.0)
    >>> agent.scores(context).round(3)
    array([1.207, 1.   ])
    >>> agent.select(context)
    0
    """

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        alpha: float = 1.0,
        ridge: float = 1.0,
        n_worlds: int | None = None,
        **options: object,
    ) -> None:
        super().__init__(n_arms, n_features, ridge, n_worlds, **options)
        self.alpha = as_not_negative("alpha", alpha)

    def scores(self, context: Context) -> NDArray:
        """Return the upper confidence bounds, shape (n_arms,) or (W, n_arms)."""
        prediction, bound = self._predict(context)
        bound *= self.alpha
        bound += prediction
        return bound


class EpsilonGreedyAgent(LinearAgent):
    """Show the arm predicted best, but with probability `epsilon` one drawn at random.

    Parameters
    ----------
    n_arms, n_features : int
        Numbers K of arms and d of features.
    epsilon : float, default 0.1
        Probability of a random arm, in [0, 1].
    ridge, n_worlds, shared, discount, window, seed, dtype
        As for `LinearAgent`.
    """

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        epsilon: float = 0.1,
        ridge: float = 1.0,
        n_worlds: int | None = None,
        **options: object,
    ) -> None:
        super().__init__(n_arms, n_features, ridge, n_worlds, **options)
        self.epsilon = as_probability("epsilon", epsilon)

    def select(self, context: Context) -> int | NDArray[np.int64]:
        """Choose the best arm, or now and then any."""
        scores = self.scores(context)
        explore, which, tie = (self._dice.throw() for _ in range(3))
        any_arm = (which * self.n_arms).astype(int)
        arm = np.where(explore < self.epsilon, any_arm, self._best(scores, tie))
        return int(arm) if arm.ndim == 0 else arm
