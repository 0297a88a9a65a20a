"""Other libraries' linear bandits with one model for all arms; each arm has a row of features of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.adapter import Adapter, BatchAdapter, bounds
from benchmarks.peers.disjoint import precision
from benchmarks.peers.lightning import Calvera, as_tensor, fit
from benchmarks.peers.wabbit import Wabbit
from zoolib import Context


class CalveraLinUCB(Calvera):
    """LinUCB of Calvera, in single precision.

    What it adds to the diagonal at each update by default, `eps`, is set to 0, and the precision is updated
    with the reward instead of with the choice: else its scores are not LinUCB's.

    Parameters
    ----------
    trainer : bool, default True
        Learn as its documentation says, through Lightning's Trainer; else by a call of the training step
        that the Trainer would call.
    """

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        alpha: float = 1.0,
        trainer: bool = True,
        batch_size: int = 1024,
    ) -> None:
        from calvera.bandits import LinearUCBBandit

        self.bandit = LinearUCBBandit(
            n_features,
            exploration_rate=alpha,
            eps=0.0,
            lazy_uncertainty_update=True,
            train_batch_size=batch_size,
        )
        self.trainer = trainer

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        self._learn(context.features[None, arm], np.array([reward]))

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return the upper confidence bounds."""
        alpha = self.bandit.hparams["exploration_rate"]
        return self.bounds_of(context.features, alpha)

    def update_batch(
        self, features: NDArray, arms: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> None:
        """Learn from the arms played."""
        self._learn(features[np.arange(len(arms)), arms], rewards)

    def _learn(self, rows: NDArray, rewards: NDArray) -> None:
        x, r = as_tensor(rows)[:, None], as_tensor(rewards)[:, None]
        if self.trainer:
            self.bandit.record_feedback(x, r)
            fit(self.bandit)
        else:
            self.bandit.training_step((x, None, r, None), 0)
            self.bandit.buffer.clear()  # as after a training; the step has noted what it saw


class ContextualbanditsRidge(BatchAdapter):
    """The regression with upper bounds on which contextualbandits builds its LinUCB, for all arms at once.

    The library has no bandit with one model for all arms; the choice of the highest bound is ours.
    """

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        alpha: float = 1.0,
        ridge: float = 1.0,
        dtype: type = np.float64,
    ) -> None:
        from contextualbandits.linreg import LinearRegression

        self.alpha = float(alpha)
        self.model = LinearRegression(
            lambda_=ridge, fit_intercept=False, use_float=dtype is np.float32
        )
        self.model.fit(np.zeros((1, n_features)), np.zeros(1))

    def select(self, context: Context) -> int:
        """Choose an arm."""
        return int(self.scores(context).argmax())

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        self.model.partial_fit(context.features[arm][None], np.array([reward]))

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return the upper confidence bounds."""
        return self.model.predict_ucb(context.features, self.alpha)

    def select_batch(self, features: NDArray) -> NDArray[np.int64]:
        """Choose an arm for each of B visits."""
        rows = features.reshape(-1, features.shape[-1])
        scores = self.model.predict_ucb(rows, self.alpha)
        return scores.reshape(features.shape[:2]).argmax(axis=1)

    def update_batch(
        self, features: NDArray, arms: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> None:
        """Learn from the arms played."""
        self.model.partial_fit(features[np.arange(len(arms)), arms], rewards)


class BayesianBandits(BatchAdapter):
    """Thompson sampling of bayesianbandits with one learner, or its upper bound by a thousand draws."""

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        alpha: float = 1.0,
        ridge: float = 1.0,
        policy: str = "thompson",
        seed: int = 0,
    ) -> None:
        import bayesianbandits as bb
        from scipy.stats import norm

        class RowOfArm(bb.ArmFeaturizer):
            """Take an arm's rows out of contexts (n, K, d); all rows of the first arm come first."""

            def transform(self, contexts: NDArray, *, action_tokens: list) -> NDArray:
                every = len(action_tokens) == contexts.shape[1]
                rows = contexts if every else contexts[:, action_tokens]
                return rows.swapaxes(0, 1).reshape(-1, contexts.shape[-1])

        policies = {
            "thompson": bb.ThompsonSampling,
            "ucb": lambda: bb.UpperConfidenceBound(alpha=float(norm.cdf(alpha))),
        }
        self.noise = alpha**-2 if policy == "thompson" else 1.0
        self.alpha = alpha
        self.agent = bb.LipschitzContextualAgent(
            arms=[bb.Arm(arm, learner=None) for arm in range(n_arms)],
            policy=policies[policy](),
            arm_featurizer=RowOfArm(),
            learner=bb.NormalRegressor(alpha=ridge * self.noise, beta=self.noise),
            random_seed=seed,
        )

    def select(self, context: Context) -> int:
        """Choose an arm."""
        return self.agent.pull(context.features[None])[0]

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        chosen = self.agent.select_for_update(arm)
        chosen.update(context.features[None], np.array([reward]))

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return LinUCB's scores by the posterior."""
        learner = self.agent.learner
        learner.predict(context.features)  # makes the prior, if nothing was learnt
        A = precision(learner) / self.noise
        return bounds(context.features, learner.coef_, A, self.alpha)

    def select_batch(self, features: NDArray) -> NDArray[np.int64]:
        """Choose an arm for each of B visits."""
        return np.array(self.agent.pull(features))

    def update_batch(
        self, features: NDArray, arms: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> None:
        """Learn from the arms played, by one call of the learner that all arms share."""
        rows = features[np.arange(len(arms)), arms]
        self.agent.learner.partial_fit(rows, rewards)


class RiverRidge(Adapter):
    """River's Bayesian regression, asked arm by arm; the library has no bandit with one model for all arms.

    Prior and bound have weight 1; the choice of the highest bound is ours.
    """

    def __init__(self, n_arms: int, n_features: int) -> None:
        from river.linear_model import BayesianLinearRegression

        self.model = BayesianLinearRegression()

    def select(self, context: Context) -> int:
        """Choose an arm."""
        return int(self.scores(context).argmax())

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        row = dict(enumerate(context.features[arm].tolist()))
        self.model.learn_one(row, reward)

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return LinUCB's scores: without the noise that River has under the root."""
        rows = context.features.tolist()
        seen = [
            self.model.predict_one(dict(enumerate(row)), with_dist=True) for row in rows
        ]
        return np.array([one.mu + (one.sigma**2 - 1) ** 0.5 for one in seen])


class VowpalWabbit(Wabbit):
    """Vowpal Wabbit's `cb_explore_adf`: a weight a feature, learnt by gradient steps, ε-greedy."""

    def __init__(self, n_arms: int, n_features: int, **options: object) -> None:
        super().__init__("cb_explore_adf", n_arms, n_features, n_features, **options)

    def select(self, context: Context) -> int:
        """Draw an arm from the probabilities that it gives."""
        self.lines = [self.line % tuple(row) for row in context.features.tolist()]
        return self.draw(self.lines)

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm drawn last, out of the lines that the choice has seen."""
        lines = list(self.lines)
        lines[arm] = f"0:{-reward}:{self.probabilities[arm]:.7g} {lines[arm]}"
        self.workspace.learn(lines)
