"""Linear models of the reward: one ridge posterior for each arm, or one for all.

Models of single arms are *disjoint*: a reward changes only the model of the arm shown (Li et al. 2010,
algorithm 1; see Chapter 2, "LinUCB in thirty lines"). One *shared* model learns from every arm, through
features that arms have in common (Chapter 3, "Sharing by hand"). Each can predict the reward itself, or the
log-odds of a click (Chapter 4, "The additive trap").
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import KW_ONLY, dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from zoolib._support.checks import (
    Seed,
    as_flag,
    as_ids,
    as_not_negative,
    as_positive,
    as_probability,
    as_rate,
    as_size,
    some,
    warn,
)
from zoolib._support.settings import one_of, optional, setting
from zoolib._support.tables import row_labels, rows_in_order
from zoolib.agents.base import Agent, Context
from zoolib.agents.policies import floored
from zoolib.models.posterior import RidgePosterior, rows_of_each

# The least weight of a row, however certain the predicted click: see `LinearAgent.linearise`.
LEAST_VARIANCE = 1e-4
# When a row leaves a window whose squared length is more than this many times the ridge, its model is
# computed from the rows that stay: subtracted, it would leave its rounding errors behind.
FAR = 1e6


@dataclass(eq=False, repr=False)
class LinearAgent(Agent):
    """Predict with linear models, and show the arm with the highest prediction.

    Parameters
    ----------
    n_arms, n_features, n_worlds, seed
        As for `Agent`.
    ridge : float, default 1.0
        Weight of the prior, above 0.
    shared : bool, default False
        One model for all arms instead of one for each.
    discount : float, default 1.0
        Factor in (0, 1] by which older data are multiplied whenever a model learns; 1 forgets nothing.
        An arm's own model learns when the arm is played, a shared model at each step.
    window : int, optional
        Learn from the last `window` steps only. Cannot be combined with a discount.
    link : {"identity", "logit"}, default "identity"
        What the model predicts: the reward, or with "logit" the log-odds of a click. With "logit",
        rewards must lie in [0, 1] and scores are log-odds. Where clicks are rare, what is learnt visit by visit
        predicts too many, too surely; `fit_many` learns a log as a whole.

    Attributes
    ----------
    posterior : RidgePosterior
        Leading axes (K,) or (W, K); for a shared model () or (W,).
    """

    _learns = ("posterior", "_recent", "_n_recent")
    _retired = ("dtype",)

    n_arms: int | Sequence[Hashable]
    n_features: int = setting(as_size)
    ridge: float = setting(as_positive, 1.0)
    n_worlds: int | None = setting(optional(as_size), None)
    _: KW_ONLY
    shared: bool = setting(as_flag, False)
    discount: float = setting(as_rate, 1.0)
    window: int | None = setting(optional(as_size), None)
    link: str = setting(one_of("identity", "logit"), "identity")
    seed: Seed | Sequence[Seed] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        if self.window is not None and self.discount < 1:
            raise ValueError(
                "choose one way to forget: "
                f"got discount={self.discount} and window={self.window}"
            )
        shape = self._shape[:-1] if self.shared else self._shape
        self.posterior = RidgePosterior(self.n_features, self.ridge, shape)
        lead = (self.window or 0, *self._shape[:-1])
        # The last rows, column by column: each step overwrites the oldest.
        self._recent = {
            "arm": np.zeros(lead, np.int64),
            "x": np.zeros((*lead, self.n_features)),
            "reward": np.zeros(lead),
            "weight": np.zeros(lead),
        }
        self._n_recent = 0

    @classmethod
    def _least_numbers(cls, settings: dict[str, Any]) -> float:
        return cls._n_models(settings) * settings["n_features"] ** 2

    def _restore(self, learned: dict[str, Any]) -> None:
        super()._restore(learned)
        as_ids("arm", self._recent["arm"], self.n_arms)

    def scores(self, context: Context) -> NDArray:
        """Return the predicted rewards or log-odds."""
        rows = self._rows(context)
        if self.shared:
            return np.matvec(rows, self.posterior.mean)
        return self.posterior.predict(rows)

    def predict_with_width(self, context: Context) -> tuple[NDArray, NDArray]:
        """Return the predictions and their widths, each of the shape of `scores`."""
        rows = self._rows(context)
        if self.shared:
            return self.posterior.predict_rows(rows)
        return self.posterior.predict(rows), self.posterior.width(rows)

    def restock(self, arms: NDArray[np.int64]) -> None:
        """Reset the models of arms that now hold other products, if each arm has its own model.

        They restart from the agent's prior, since a prior given to `add_arms` describes the earlier product.
        """
        super().restock(arms)
        if not self.shared:
            nothing = np.zeros(self.n_features)
            self.posterior.reset(self._at(arms), nothing, self.posterior.ridge)
            gone = (self._recent["arm"][..., None] == arms).any(axis=-1)
            self._recent["x"][gone] = 0  # these rows will not be unlearnt

    def add_arms(
        self,
        arms: int | Sequence[Hashable],
        mean: ArrayLike | None = None,
        ridge: float | None = None,
    ) -> None:
        """Add new arms, which are the last rows of future contexts.

        Parameters
        ----------
        arms : int, or sequence of hashable
            Number of new arms, or their labels if the agent's arms have labels.
        mean : array_like, shape (d,) or (n, d) or (W, n, d), optional
            Prior mean of their weights, for example the mean of similar arms; zero if omitted. A shared
            model keeps its weights and accepts no prior for new arms.
        ridge : float, optional
            Weight λ of this prior; the agent's own `ridge` if omitted.
        """
        grown = self.arms.and_more(arms)  # may raise before anything has changed
        if mean is not None:
            labels = row_labels(mean) if np.ndim(mean) == 2 else None
            order = rows_in_order("mean", labels, grown[self.n_arms :])
            mean = self._by_name("mean", mean, ...)[0][order]
        if not self.shared:
            self.posterior.extend(len(grown) - self.n_arms, mean, ridge)
        elif not (mean is None and ridge is None):
            raise ValueError(
                "mean and ridge are for arms with models of their own: got a shared model"
            )
        self.arms = grown
        self.n_arms = len(grown)
        self._shape = (*self._shape[:-1], self.n_arms)

    def learn(self, context: Context, at: tuple, reward: ArrayLike) -> None:
        """Apply the discount or window, then learn from the arm played."""
        x = context.row(at).astype(self.dtype, copy=False)
        arm = at[-1]
        model = self._model(arm)
        weight = 1.0
        if self.link == "logit":
            reward, weight = self.linearise(x, reward, model)
        self.posterior.learn(x, reward, model, weight, self.discount)
        if self.window is not None:
            self._slide(arm, x, reward, weight)

    def _learn_many(
        self, seen: Context, arms: NDArray[np.int64], rewards: NDArray
    ) -> None:
        if self.link == "identity" and self.window is None and self.discount == 1:
            rows = seen.row((np.arange(len(arms)), arms))
            self.posterior.update_many(rows, rewards, None if self.shared else arms)
        else:
            super()._learn_many(seen, arms, rewards)

    def fit_many(
        self,
        features: ArrayLike,
        arms: ArrayLike,
        rewards: ArrayLike,
        passes: int = 25,
    ) -> None:
        """Forget what was learnt, and learn the best fit to a log in several passes over it.

        With a logit link each row is linearised at the model's prediction: see `linearise`. Visit by
        visit, the first rows are linearised far from where the model ends, and with rare clicks the model
        stays too high and too sure. Each pass linearises all rows at the fit of the last one, which is
        Newton's method for logistic regression with a ridge, and stops when nothing changes; should the last
        one still have changed something, a warning says so. Without a link one pass is exact.

        Parameters
        ----------
        features, arms, rewards
            As for `update_many`.
        passes : int, default 25
            The most passes.
        """
        if self.window is not None or self.discount < 1:
            raise ValueError(
                "fit_many is for agents that forget nothing: "
                f"got discount={self.discount} and window={self.window}"
            )
        passes = as_size("passes", passes)
        seen, arms, rewards = self._log(features, arms, rewards)
        x = seen.features[:, 0]
        with self.posterior._unchanged_on_failure():
            if self.shared:
                self._fit(x, rewards, (), passes)
            else:
                for arm, mine in enumerate(rows_of_each(arms, self.n_arms)):
                    self._fit(x[mine], rewards[mine], (arm,), passes)
        self._remember(seen.names)

    def _fit(
        self, x: NDArray, rewards: NDArray, model: tuple[int, ...], passes: int
    ) -> None:
        """Fit one of the models to its rows."""
        self.posterior.reset(model)
        for _ in range(passes if self.link == "logit" else 1):
            last = self.posterior.mean[model]
            target = rewards
            weight = None
            if self.link == "logit":
                target, weight = self.linearise(x, rewards, model)
            self.posterior.rebuild(x, target, weight, model)
            if np.allclose(self.posterior.mean[model], last, rtol=1e-9, atol=1e-12):
                return
        if self.link == "logit":
            of = f" of arm {self.arms[model[0]]!r}" if model else ""
            warn(
                f"the fit{of} still moved in pass {passes}: give it more passes, or a larger ridge"
            )

    def linearise(
        self, x: NDArray, reward: ArrayLike, at: tuple
    ) -> tuple[NDArray, NDArray]:
        r"""Return a reward on the scale of log-odds, and its weight.

        The log-likelihood of a click is replaced by the parabola that touches it at the prediction
        :math:`\eta = x^\top \hat\theta`. The row gets the weight :math:`w = p (1 - p)`, where p is the
        predicted click probability, and the reward :math:`\eta + (r - p) / w`. Learning from this row is
        one step of Newton's method.
        """
        reward = np.asarray(reward)
        wrong = ~((reward >= 0) & (reward <= 1))
        if some(wrong):
            raise ValueError(
                f"reward must lie in [0, 1] with a logit link: got {reward[wrong][0]}"
            )
        log_odds = self.posterior.predict(x, at)
        clicks = expit(log_odds)
        weight = np.maximum(clicks * (1 - clicks), LEAST_VARIANCE)
        return log_odds + (reward - clicks) / weight, weight

    def _slide(
        self, arm: ArrayLike, x: NDArray, reward: ArrayLike, weight: ArrayLike
    ) -> None:
        """Store the newest row, and remove the row that leaves the window from the posterior."""
        place = self._n_recent % self.window
        old = {name: column[place].copy() for name, column in self._recent.items()}
        new = {"arm": arm, "x": x, "reward": reward, "weight": weight}
        for name, column in self._recent.items():
            column[place] = new[name]
        self._n_recent += 1
        if self._n_recent <= self.window:
            return
        model = self._model(old["arm"])
        length = old["weight"] * np.vecdot(old["x"], old["x"])
        if np.any(length > FAR * self.posterior.ridge):
            self._relearn(old["arm"], model)
        else:
            self.posterior.learn(old["x"], old["reward"], model, -old["weight"])

    def _relearn(self, arm: ArrayLike, model: tuple) -> None:
        """Learn the model of an arm, or of all, from the rows in the window alone."""
        weight = self._recent["weight"]
        if not self.shared:
            weight = np.where(self._recent["arm"] == arm, weight, 0)
        x = np.moveaxis(self._recent["x"], 0, -2)
        self.posterior.rebuild(x, self._recent["reward"].T, weight.T, model)

    def _model(self, arm: ArrayLike) -> tuple:
        """Return the index of the model of an arm, in each world."""
        return () if self.shared else (*self._worlds, arm)


@dataclass(eq=False, repr=False)
class _Weighs:
    """The third argument of agents that weigh uncertainty: it comes before those of `LinearAgent`."""

    n_arms: int | Sequence[Hashable]
    n_features: int
    alpha: float = setting(as_not_negative, 1.0)


@dataclass(eq=False, repr=False)
class _Explores:
    """The same of agents that explore at random."""

    n_arms: int | Sequence[Hashable]
    n_features: int
    epsilon: float = setting(as_probability, 0.1)


@dataclass(eq=False, repr=False)
class LinUCBAgent(LinearAgent, _Weighs):
    r"""Show the arm with the highest upper confidence bound: prediction plus `alpha` times its width.

    .. math::  x^\top \hat\theta_a + \alpha \sqrt{x^\top A_a^{-1} x}

    Parameters
    ----------
    alpha : float, default 1.0
        Weight of the uncertainty, 0 or more.
    n_arms, n_features, ridge, n_worlds, shared, discount, window, link, seed
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

    def scores(self, context: Context) -> NDArray:
        """Return the upper confidence bounds, shape (n_arms,), (n, n_arms) or (W, n_arms)."""
        prediction, width = self.predict_with_width(context)
        return prediction + self.alpha * width


@dataclass(eq=False, repr=False)
class LinTSAgent(LinearAgent, _Weighs):
    r"""Thompson sampling: draw weights from the posterior, and show the arm with the highest prediction.

    .. math::  x^\top \tilde\theta_a, \qquad \tilde\theta_a \sim \mathcal{N}(\hat\theta_a, \alpha^2 A_a^{-1})

    (Agrawal and Goyal 2013.) An arm is shown with its posterior probability of being the best.

    Parameters
    ----------
    alpha : float, default 1.0
        Standard deviation of the noise in the rewards, 0 or more; it scales the draws.
    n_arms, n_features, ridge, n_worlds, shared, discount, window, link, seed
        As for `LinearAgent`.

    Examples
    --------
    >>> agent = LinTSAgent(n_arms=2, n_features=3, alpha=1.0)
    >>> agent.select(Context(0, np.eye(2, 3))) in (0, 1)
    True
    """

    def scores(self, context: Context) -> NDArray:
        """Return predictions with weights drawn from the posterior, of the shape of `LinUCBAgent.scores`."""
        return self.draws(context, 1)[0]

    def draws(self, context: Context, n: int) -> NDArray:
        """Return the scores of n independent draws, along a new first axis."""
        if self.shared:
            rows = self._rows(context)
            normals = self._normals(context, n, self.n_features)
            return np.matvec(rows, self.posterior.sample(normals, self.alpha))
        # Each arm has its own weights, so predictions are independent and one number per arm is enough.
        mean, deviation = self._independent(context)
        return mean + deviation * self._normals(context, n, mean.shape[-1])

    def _independent(self, context: Context) -> tuple[NDArray, NDArray] | None:
        if self.shared:
            return None
        prediction, width = self.predict_with_width(context)
        return prediction, self.alpha * width


@dataclass(eq=False, repr=False)
class EpsilonGreedyAgent(LinearAgent, _Explores):
    """Show the arm with the highest prediction or, with probability `epsilon`, an arm drawn at random.

    Parameters
    ----------
    epsilon : float, default 0.1
        Probability of a random arm, in [0, 1].
    n_arms, n_features, ridge, n_worlds, shared, discount, window, link, seed
        As for `LinearAgent`.
    """

    def choose(self, context: Context) -> int | NDArray[np.int64]:
        """Choose the best arm or, with probability `epsilon`, any arm."""
        context = self._check(context)
        scores = self.scores(context)
        n = self._n_visitors(context)
        drawn = self._uniforms.next(3 if n is None else 3 * n)
        drawn = drawn if n is None else drawn.reshape(n, 3)
        explore, which, tie = np.moveaxis(drawn, -1, 0)
        any_arm = self._best(self._on_offer(context, np.zeros(scores.shape)), which)
        best = self._best(self._on_offer(context, scores), tie)
        arm = np.where(explore < self.epsilon, any_arm, best)
        return int(arm) if arm.ndim == 0 else arm

    def _policy(
        self, context: Context, allowed: NDArray[np.bool_], n_draws: int
    ) -> NDArray[np.float64]:
        best = super()._policy(context, allowed, n_draws)
        return floored(best, self.epsilon, allowed)
