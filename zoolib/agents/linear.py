"""Linear models of the reward: one ridge posterior for each arm, or one for all.

Models of single arms are *disjoint*: what one arm teaches stays with it (Li et al. 2010, algorithm 1;
see Chapter 2, "LinUCB by hand"). One *shared* model learns from every arm, through features that say how arms
are alike (Chapter 3, "Interaction features"). Each can predict the reward itself, or the log-odds of
a click (Chapter 4, "Side by side: the additive trap").
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.special import expit

from zoolib._support.checks import (
    Seed,
    as_ids,
    as_not_negative,
    as_one_of,
    as_probability,
    as_rate,
    as_size,
)
from zoolib.agents.base import Agent, Context
from zoolib.models.posterior import RidgePosterior

# However sure a prediction of a click is, a row counts this much: see `LinearAgent.linearise`.
LEAST_VARIANCE = 1e-4


@dataclass(eq=False, repr=False)
class LinearAgent(Agent):
    """Predict with linear models, and show the arm predicted best.

    Parameters
    ----------
    n_arms : int, or sequence of hashable
        Number K of arms, or their labels.
    n_features : int
        Number d of features.
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
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of what is left to chance; with worlds, one for all or one for each.
    dtype : float64 or float32, default float64
        Type of the posterior.

    Attributes
    ----------
    posterior : RidgePosterior
        Leading axes (K,) or (W, K); of a shared model () or (W,).
    """

    _learns = ("posterior", "_recent", "_n_recent")

    n_arms: int | Sequence[Hashable]
    n_features: int
    alpha: float = field(default=0.0, init=False)  # of agents that weigh their doubt
    ridge: float = 1.0
    n_worlds: int | None = None
    _: KW_ONLY
    shared: bool = False
    discount: float = 1.0
    window: int | None = None
    link: str = "identity"
    seed: Seed | Sequence[Seed] = 0
    dtype: DTypeLike = np.float64

    def __post_init__(self) -> None:
        n_features = as_size("n_features", self.n_features)
        super().__init__(self.n_arms, self.n_worlds, self.seed, n_features)
        self.alpha = as_not_negative("alpha", self.alpha)
        self.discount = as_rate("discount", self.discount)
        if self.window is not None:
            self.window = as_size("window", self.window)
            if self.discount < 1:
                raise ValueError(
                    "choose one way to forget: "
                    f"got discount={self.discount} and window={self.window}"
                )
        self.link = as_one_of("link", self.link, ("identity", "logit"))
        self.shared = bool(self.shared)
        shape = self._shape[:-1] if self.shared else self._shape
        self.posterior = RidgePosterior(n_features, self.ridge, shape, self.dtype)
        self.ridge, self.dtype = self.posterior.ridge, self.posterior.dtype
        lead = (self.window or 0, *self._shape[:-1])
        # The last rows, by their columns: each step writes over the oldest.
        self._recent = {
            "arm": np.zeros(lead, np.int64),
            "x": np.zeros((*lead, self.n_features), self.dtype),
            "reward": np.zeros(lead),
            "weight": np.zeros(lead),
        }
        self._n_recent = 0

    def _restore(self, learned: dict[str, Any]) -> None:
        super()._restore(learned)
        as_ids("arm", self._recent["arm"], self.n_arms)

    def scores(self, context: Context) -> NDArray:
        """Return the predicted rewards or log-odds of the arms on offer."""
        features, at = self._features(context), self._offered(context)
        if not self.shared:
            return self.posterior.predict(features, at)
        rows, spread = self._lookalikes(features)
        return spread(np.vecdot(rows, self.posterior.mean[..., None, :]))

    def predict_with_width(self, context: Context) -> tuple[NDArray, NDArray]:
        """Return the predictions and their widths, each of the shape of `scores`."""
        features, at = self._features(context), self._offered(context)
        if self.shared:
            rows, spread = self._lookalikes(features)
            flat = rows.reshape(-1, rows.shape[-1]) if not self._worlds else rows
            predicted = self.posterior.predict_rows(flat)
            return tuple(spread(one.reshape(rows.shape[:-1])) for one in predicted)
        if self._n_visitors(context) is None:
            return self.posterior.predict(features, at), self.posterior.width(
                features, at
            )
        # Of several visitors, those of one arm are the rows of a matrix.
        prediction, width = self.posterior.predict_rows(features.swapaxes(0, 1), at)
        return prediction.T, width.T

    def restock(self, arms: NDArray[np.int64]) -> None:
        """Begin again with arms that now hold other products, if each has its own model.

        They begin at the agent's own prior: what `add_arms` was told of a product is not true of the next.
        """
        super().restock(arms)
        if not self.shared:
            nothing = np.zeros(self.n_features)
            self.posterior.reset(self._at(arms), nothing, self.posterior.ridge)
            gone = (self._recent["arm"][..., None] == arms).any(axis=-1)
            self._recent["x"][gone] = 0  # these rows leave the window unlearnt

    def add_arms(
        self,
        arms: int | Sequence[Hashable],
        mean: ArrayLike | None = None,
        ridge: float | None = None,
    ) -> None:
        """Take in new arms, the last rows of the contexts to come.

        Parameters
        ----------
        arms : int, or sequence of hashable
            How many, or their labels if the agent's arms have labels.
        mean : array_like, shape (d,) or (n, d) or (W, n, d), optional
            What is believed of their weights before they are shown, for example the mean of similar
            arms; zero if omitted. A shared model knows what it knows, and takes none.
        ridge : float, optional
            How firmly that is believed, as λ of the prior; that of the agent if omitted.
        """
        grown = self.arms.and_more(arms)  # may refuse them: nothing has changed
        if not self.shared:
            self.posterior.extend(len(grown) - self.n_arms, mean, ridge)
        elif not (mean is None and ridge is None):
            raise ValueError(
                "mean and ridge are for arms with models of their own: got a shared model"
            )
        self._grow(arms)

    def learn(self, context: Context, at: tuple, reward: ArrayLike) -> None:
        """Forget as much as is wanted, then learn from the arm played."""
        x, arm = context.features[at], at[-1]
        at = self._model(arm)
        weight = 1.0
        if self.link == "logit":
            reward, weight = self.linearise(x, reward, at)
        # Numbers of another type are converted and checked again: a float32 overflows sooner.
        same = x.dtype == self.posterior.dtype
        learn = self.posterior.learn if same else self.posterior.update
        learn(x, reward, at, weight, self.discount)
        if self.window is not None:
            self._slide(arm, x, reward, weight)

    def _learn_many(
        self,
        user_ids: NDArray | None,
        rows: NDArray,
        arms: NDArray[np.int64],
        rewards: NDArray,
    ) -> None:
        if self.link == "identity" and self.window is None and self.discount == 1:
            self.posterior.update_many(rows, rewards, None if self.shared else arms)
        else:
            super()._learn_many(user_ids, rows, arms, rewards)

    def linearise(
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
        self, arm: ArrayLike, x: NDArray, reward: ArrayLike, weight: ArrayLike
    ) -> None:
        """Remember the newest row, and take the one that leaves the window out of the posterior."""
        place = self._n_recent % self.window
        gone = {name: column[place].copy() for name, column in self._recent.items()}
        row = {"arm": arm, "x": x, "reward": reward, "weight": weight}
        for name, column in self._recent.items():
            column[place] = row[name]
        self._n_recent += 1
        if self._n_recent > self.window:
            model = self._model(gone["arm"])
            self.posterior.update(gone["x"], gone["reward"], model, -gone["weight"])

    def _model(self, arm: ArrayLike) -> tuple:
        """Return the index of the model of an arm, in each world."""
        return () if self.shared else (*self._worlds, arm)

    def _features(self, context: Context) -> NDArray:
        """Return the features, checked and of the posterior's type."""
        return self._check(context).astype(self.dtype, copy=False)


@dataclass(eq=False, repr=False)
class LinUCBAgent(LinearAgent):
    r"""Show the arm that could be best: predicted reward plus `alpha` times its uncertainty.

    .. math::  x^\top \hat\theta_a + \alpha \sqrt{x^\top A_a^{-1} x}

    Parameters
    ----------
    alpha : float, default 1.0
        Weight of the uncertainty, 0 or more.
    n_arms, n_features, ridge, n_worlds, shared, discount, window, link, seed, dtype
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

    alpha: float = 1.0

    def scores(self, context: Context) -> NDArray:
        """Return the upper confidence bounds, shape (n_arms,) or (W, n_arms)."""
        prediction, width = self.predict_with_width(context)
        return prediction + self.alpha * width


@dataclass(eq=False, repr=False)
class LinTSAgent(LinearAgent):
    r"""Thompson sampling: draw weights from the posterior, and show the arm they predict best.

    .. math::  x^\top \tilde\theta_a, \qquad \tilde\theta_a \sim \mathcal{N}(\hat\theta_a, \alpha^2 A_a^{-1})

    (Agrawal and Goyal 2013.) An arm is shown as often as it is believed to be the best.

    Parameters
    ----------
    alpha : float, default 1.0
        Standard deviation of the noise in the rewards, 0 or more, which scales the draws.
    n_arms, n_features, ridge, n_worlds, shared, discount, window, link, seed, dtype
        As for `LinearAgent`.

    Examples
    --------
    >>> agent = LinTSAgent(n_arms=2, n_features=3, alpha=1.0)
    >>> agent.select(Context(0, np.eye(2, 3))) in (0, 1)
    True
    """

    alpha: float = 1.0

    def scores(self, context: Context) -> NDArray:
        """Return predictions with weights drawn from the posterior, shape (n_arms,) or (W, n_arms)."""
        return self.draws(context, 1)[0]

    def draws(self, context: Context, n: int) -> NDArray:
        """Return the scores of n independent draws, along a new first axis."""
        if self.shared:
            rows, spread = self._lookalikes(self._features(context))
            normals = self._normals(context, n, self.n_features)
            theta = self.posterior.sample(normals, self.alpha)  # (n, *lead, d)
            if self._n_visitors(context) is None:  # all draws in one product
                return spread(np.moveaxis(rows @ np.moveaxis(theta, 0, -1), -1, 0))
            return np.vecdot(rows, theta[..., None, :])
        # Each arm has weights of its own, so that predictions are independent: one number per arm will do.
        mean, deviation = self._independent(context)
        normals = self._normals(context, n, mean.shape[-1]).astype(deviation.dtype)
        return mean + deviation * normals

    def _independent(self, context: Context) -> tuple[NDArray, NDArray] | None:
        if self.shared:
            return None
        prediction, width = self.predict_with_width(context)
        return prediction, self.alpha * width


@dataclass(eq=False, repr=False)
class EpsilonGreedyAgent(LinearAgent):
    """Show the arm predicted best, but with probability `epsilon` one drawn at random.

    Parameters
    ----------
    epsilon : float, default 0.1
        Probability of a random arm, in [0, 1].
    n_arms, n_features, ridge, n_worlds, shared, discount, window, link, seed, dtype
        As for `LinearAgent`.
    """

    ridge: float = field(default=1.0, kw_only=True)
    n_worlds: int | None = field(default=None, kw_only=True)
    epsilon: float = 0.1  # the third by position

    def __post_init__(self) -> None:
        super().__post_init__()
        self.epsilon = as_probability("epsilon", self.epsilon)

    def choose(self, context: Context) -> int | NDArray[np.int64]:
        """Choose the best arm, or now and then any."""
        scores = self.scores(context)
        explore, which, tie = (self._uniform(context) for _ in range(3))
        any_arm = (which * scores.shape[-1]).astype(int)
        arm = np.where(explore < self.epsilon, any_arm, self._best(scores, tie))
        return int(arm) if arm.ndim == 0 else arm

    def propensities(
        self,
        context: Context,
        allowed: ArrayLike | None = None,
        n_draws: int = 100,
    ) -> NDArray[np.float64]:
        """Return how probable `select` is to choose each arm: see `Agent.propensities`."""
        best = super().propensities(context, allowed)
        allowed = self._mask(context, allowed)
        any_arm = allowed / allowed.sum(axis=-1, keepdims=True)
        return (1 - self.epsilon) * best + self.epsilon * any_arm
