"""Linear models of the reward: one ridge posterior for each arm, or one for all.

Models of single arms are *disjoint*: what one arm teaches stays with it (Li et al. 2010, algorithm 1;
see Chapter 2, "By hand"). One *shared* model learns from every arm, through features that say how arms
are alike (Chapter 3, "The table of twenty cells"). Each can predict the reward itself, or the log-odds of
a click (Chapter 4, "Rewards of zero and one").
"""

from __future__ import annotations

from collections import deque
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.special import expit

from zoolib._checks import (
    as_ids,
    as_not_negative,
    as_one_of,
    as_probability,
    as_rate,
    as_size,
)
from zoolib.agents.protocol import Agent, Context
from zoolib.posterior import RidgePosterior

# However sure a prediction of a click is, a row counts this much: see `LinearAgent._linearised`.
LEAST_VARIANCE = 1e-4


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
    link : {"identity", "logit"}, default "identity"
        What the model is linear in: the reward, or the log-odds of a click. Rewards must then lie in
        [0, 1], and scores are log-odds.
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
        link: str = "identity",
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
        self.link = as_one_of("link", link, ("identity", "logit"))
        self.shared = bool(shared)
        shape = self._shape[:-1] if self.shared else self._shape
        self.posterior = RidgePosterior(n_features, ridge, shape, dtype)
        self._recent: deque[tuple[tuple, NDArray, ArrayLike, ArrayLike]] = deque()

    def scores(self, context: Context) -> NDArray:
        """Return the predicted rewards or log-odds, shape (n_arms,) or (W, n_arms)."""
        features = self._features(context)
        if not self.shared:
            return self.posterior.predict(features)
        rows, spread = self._lookalikes(features)
        return spread(np.matvec(rows, self.posterior.mean))

    def _predict(self, context: Context) -> tuple[NDArray, NDArray]:
        """Return the predictions and their widths."""
        features = self._features(context)
        if not self.shared:
            return self.posterior.predict_with_width(features)
        rows, spread = self._lookalikes(features)
        prediction, width = self.posterior.predict_rows(rows)
        return spread(prediction), spread(width)

    def restock(self, arms: NDArray[np.int64]) -> None:
        """Begin again with arms that now hold other products, if each has its own model.

        They begin at the agent's own prior: what `add_arms` was told of a product is not true of the next.
        """
        super().restock(arms)
        if not self.shared:
            at = (*(world[:, None] for world in self._worlds), arms)
            nothing = np.zeros(self.n_features)
            self.posterior.reset(at, nothing, self.posterior.ridge)
            for at, x, _, _ in self._recent:  # these rows leave the window unlearnt
                gone = (np.asarray(at[-1])[..., None] == arms).any(axis=-1)
                x[gone] = 0

    def add_arms(
        self, n: int, mean: ArrayLike | None = None, ridge: float | None = None
    ) -> None:
        """Take in new arms, the last rows of the contexts to come.

        Parameters
        ----------
        n : int
            How many.
        mean : array_like, shape (d,) or (n, d) or (W, n, d), optional
            What is believed of their weights before they are shown, for example the mean of similar
            arms; zero if omitted. A shared model knows what it knows, and takes none.
        ridge : float, optional
            How firmly that is believed, as λ of the prior; that of the agent if omitted.

        Raises
        ------
        TypeError, ValueError
            If an argument does not fit; there are then no new arms.
        """
        n = as_size("n", n)
        if self.shared:
            if not (mean is None and ridge is None):
                raise ValueError(
                    "mean and ridge are for arms with models of their own: got a shared model"
                )
        else:
            new = range(self.n_arms, self.n_arms + n)
            self.posterior.extend(n)
            try:
                worlds = (slice(None) for _ in self._worlds)
                self.posterior.reset((*worlds, slice(new.start, None)), mean, ridge)
            except (TypeError, ValueError):
                self.posterior.drop(new)
                raise
        self._resize(self.n_arms + n)

    def remove_arms(self, arms: ArrayLike) -> None:
        """Take arms out of the assortment; later ones move up, as in the contexts to come.

        Parameters
        ----------
        arms : array_like of int, shape (n,)
            Places of the arms; at least one arm must stay.

        Raises
        ------
        TypeError, ValueError
            If a place is no whole number or unknown, or no arm would stay; all arms then stay.
        """
        arms = np.unique(as_ids("arms", arms, self.n_arms))
        if len(arms) == self.n_arms:
            raise ValueError(f"arms must leave one of {self.n_arms}: got all of them")
        if not self.shared:
            self.posterior.drop(arms)
            self._recent = deque(
                _without(row, arms, self.n_arms - len(arms)) for row in self._recent
            )
        self._resize(self.n_arms - len(arms))

    def _resize(self, n_arms: int) -> None:
        self.n_arms = n_arms
        self._shape = (*self._shape[:-1], n_arms)
        self._alike = None

    def learn(self, context: Context, at: tuple, reward: ArrayLike) -> None:
        """Forget as much as is wanted, then learn from the arm played."""
        x = context.features[at]
        at = () if self.shared else at
        # Numbers of another type are converted and checked again: a float32 overflows sooner.
        checked = x.dtype == self.posterior.dtype
        weight = 1.0
        if self.link == "logit":
            reward, weight = self._linearised(x, reward, at)
        self.posterior.update(x, reward, at, weight, self.discount, checked)
        if self.window is not None:
            self._slide(at, x, reward, weight)

    def _linearised(
        self, x: NDArray, reward: ArrayLike, at: tuple
    ) -> tuple[NDArray, NDArray]:
        r"""Return a reward on the scale of log-odds, and what it counts.

        The likelihood of a click is replaced by the parabola that touches it at the prediction
        :math:`\eta = x^\top \hat\theta`: the row counts :math:`w = p (1 - p)`, p being the predicted
        click probability, and its reward is :math:`\eta + (r - p) / w`. Learning it is one step of
        Newton's method.
        """
        reward = np.asarray(reward)
        if not np.all((reward >= 0) & (reward <= 1)):
            raise ValueError(
                f"reward must lie in [0, 1] with a logit link: got {reward}"
            )
        log_odds = self.posterior.predict(x, at)
        clicks = expit(log_odds)
        weight = np.maximum(clicks * (1 - clicks), LEAST_VARIANCE)
        return log_odds + (reward - clicks) / weight, weight

    def _slide(
        self, at: tuple, x: NDArray, reward: ArrayLike, weight: ArrayLike
    ) -> None:
        """Remember the newest row, and take the one that leaves the window out of the posterior."""
        self._recent.append((at, x.copy(), reward, weight))
        if len(self._recent) > self.window:
            at, x, reward, weight = self._recent.popleft()
            self.posterior.update(x, reward, at, -weight)

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
    ridge, n_worlds, shared, discount, window, link, seed, dtype
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


class LinTSAgent(LinearAgent):
    r"""Thompson sampling: draw weights from the posterior, and show the arm they predict best.

    .. math::  x^\top \tilde\theta_a, \qquad \tilde\theta_a \sim \mathcal{N}(\hat\theta_a, \alpha^2 A_a^{-1})

    (Agrawal and Goyal 2013.) An arm is shown as often as it is believed to be the best.

    Parameters
    ----------
    n_arms, n_features : int
        Numbers K of arms and d of features.
    alpha : float, default 1.0
        Standard deviation of the noise in the rewards, 0 or more, which scales the draws.
    ridge, n_worlds, shared, discount, window, link, seed, dtype
        As for `LinearAgent`.

    Attributes
    ----------
    n_draws : int
        Draws from which `propensities` are estimated, 100.

    Examples
    --------
    >>> agent = LinTSAgent(n_arms=2, n_features=3, alpha=1.0)
    >>> agent.select(Context(0, np.eye(2, 3))) in (0, 1)
    True
    """

    n_draws = 100

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
        """Return predictions with weights drawn from the posterior, shape (n_arms,) or (W, n_arms)."""
        if self.shared:
            features = self._features(context)
            rows, spread = self._lookalikes(features)
            normals = self._dice.normals(self.n_features)
            return spread(np.matvec(rows, self.posterior.sample(normals, self.alpha)))
        # Each arm has weights of its own, so that predictions are independent: one number an arm will do.
        prediction, width = self._predict(context)
        normals = self._dice.normals(self.n_arms).astype(width.dtype)
        return prediction + self.alpha * width * normals


class EpsilonGreedyAgent(LinearAgent):
    """Show the arm predicted best, but with probability `epsilon` one drawn at random.

    Parameters
    ----------
    n_arms, n_features : int
        Numbers K of arms and d of features.
    epsilon : float, default 0.1
        Probability of a random arm, in [0, 1].
    ridge, n_worlds, shared, discount, window, link, seed, dtype
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

    def propensities(
        self, context: Context, allowed: ArrayLike | None = None
    ) -> NDArray[np.float64]:
        """Return how probable `select` is to choose each arm, shape (n_arms,) or (W, n_arms)."""
        best = super().propensities(context, allowed)
        any_arm = self._shares(np.zeros(self._shape), self._mask(allowed))
        return (1 - self.epsilon) * best + self.epsilon * any_arm


def _without(row: tuple, arms: NDArray[np.int64], n_arms: int) -> tuple:
    """Return a row of the window after arms are gone: it moves along with its arm, or counts nothing."""
    (*worlds, arm), x, reward, weight = row
    gone = np.isin(arm, arms)
    arm = np.minimum(arm - np.searchsorted(arms, arm), n_arms - 1)
    return (*worlds, arm), np.where(gone[..., None], 0, x), reward, weight
