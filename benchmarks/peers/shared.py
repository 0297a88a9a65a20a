"""Linear bandits of other libraries, with one model for all arms; each arm has features of its own."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.adapter import Adapter, Arms, Numbers, bounds
from benchmarks.peers.disjoint import precision
from zoolib import Context


class ContextualbanditsRidge(Adapter):
    """Its compiled regression with upper bounds.

    It has no bandit with one model for all arms; the choice of the highest bound is ours.
    """

    distribution, module = "contextualbandits", "contextualbandits.linreg"

    def __init__(
        self, n_arms: int, n_features: int, alpha: float = 1.0, ridge: float = 1.0
    ) -> None:
        from contextualbandits.linreg import LinearRegression

        self.alpha = float(alpha)
        self.model = LinearRegression(
            lambda_=ridge, fit_intercept=False, use_float=False
        )
        self.model.fit(np.zeros((1, n_features)), np.zeros(1))

    def update(self, context: Context, arm: int, reward: float) -> None:
        self.model.partial_fit(context.features[arm][None], np.array([reward]))

    def scores(self, context: Context) -> Numbers:
        return self.model.predict_ucb(context.features, self.alpha)

    def select_many(self, features: NDArray) -> Arms:
        rows = features.reshape(-1, features.shape[-1])
        scores = self.model.predict_ucb(rows, self.alpha)
        return scores.reshape(features.shape[:2]).argmax(axis=1)

    def update_many(self, features: NDArray, arms: Arms, rewards: Numbers) -> None:
        self.model.partial_fit(features[np.arange(len(arms)), arms], rewards)


class BayesianBandits(Adapter):
    """An update factorises the matrix; `alpha` is the noise of the rewards."""

    distribution = module = "bayesianbandits"

    def __init__(
        self, n_arms: int, n_features: int, alpha: float = 1.0, ridge: float = 1.0
    ) -> None:
        import bayesianbandits as bb

        class RowOfArm(bb.ArmFeaturizer):
            """Take an arm's rows out of contexts (n, K, d); all rows of the first arm come first."""

            def transform(self, contexts: NDArray, *, action_tokens: list) -> NDArray:
                every = len(action_tokens) == contexts.shape[1]
                rows = contexts if every else contexts[:, action_tokens]
                return rows.swapaxes(0, 1).reshape(-1, contexts.shape[-1])

        self.alpha, self.noise = alpha, alpha**-2
        self.agent = bb.LipschitzContextualAgent(
            arms=[bb.Arm(arm, learner=None) for arm in range(n_arms)],
            policy=bb.ThompsonSampling(),
            arm_featurizer=RowOfArm(),
            learner=bb.NormalRegressor(alpha=ridge * self.noise, beta=self.noise),
            random_seed=0,
        )

    def select(self, context: Context) -> int:
        return self.agent.pull(context.features[None])[0]

    def update(self, context: Context, arm: int, reward: float) -> None:
        chosen = self.agent.select_for_update(arm)
        chosen.update(context.features[None], np.array([reward]))

    def scores(self, context: Context) -> Numbers:
        learner = self.agent.learner
        learner.predict(context.features)  # makes the prior, if nothing was learnt
        A = precision(learner) / self.noise
        return bounds(context.features, learner.coef_, A, self.alpha)

    def select_many(self, features: NDArray) -> Arms:
        return np.array(self.agent.pull(features))

    def update_many(self, features: NDArray, arms: Arms, rewards: Numbers) -> None:
        rows = features[np.arange(len(arms)), arms]
        self.agent.learner.partial_fit(rows, rewards)


class RiverRidge(Adapter):
    """Its Bayesian regression, asked arm by arm; prior and bound have weight 1.

    It has no bandit with one model for all arms; the choice of the highest bound is ours.
    """

    distribution, module = "river", "river.linear_model"

    def __init__(self, n_arms: int, n_features: int) -> None:
        from river.linear_model import BayesianLinearRegression

        self.model = BayesianLinearRegression()

    def update(self, context: Context, arm: int, reward: float) -> None:
        row = dict(enumerate(context.features[arm].tolist()))
        self.model.learn_one(row, reward)

    def scores(self, context: Context) -> Numbers:
        rows = context.features.tolist()
        seen = [
            self.model.predict_one(dict(enumerate(row)), with_dist=True) for row in rows
        ]
        return np.array([one.mu + (one.sigma**2 - 1) ** 0.5 for one in seen])
