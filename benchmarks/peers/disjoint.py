"""Linear bandits of other libraries, with a model for each arm; all arms share one row of features."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.adapter import Adapter, BatchAdapter, bounds
from zoolib import Context


class ObpLinUCB(Adapter):
    """LinUCB of Open Bandit Pipeline, which keeps inverses; its prior has weight 1."""

    def __init__(self, n_arms: int, n_features: int, alpha: float = 1.0) -> None:
        from obp.policy.linear import LinUCB

        self.policy = LinUCB(dim=n_features, n_actions=n_arms, epsilon=float(alpha))

    def select(self, context: Context) -> int:
        """Choose an arm."""
        return int(self.policy.select_action(context.features[:1])[0])

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        self.policy.update_params(arm, reward, context.features[:1])

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return the upper confidence bounds."""
        x, A_inv = context.features[0], self.policy.A_inv
        means = np.einsum("kij,jk->ki", A_inv, self.policy.b)
        return means @ x + self.policy.epsilon * np.sqrt(
            np.einsum("i,kij,j->k", x, A_inv, x)
        )


class MabwiserLinUCB(BatchAdapter):
    """LinUCB of MABWiser."""

    def __init__(
        self, n_arms: int, n_features: int, alpha: float = 1.0, ridge: float = 1.0
    ) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        arms = list(range(n_arms))
        self.mab = MAB(arms, LearningPolicy.LinUCB(alpha, l2_lambda=ridge), n_jobs=1)
        # It wants a first fit. A row of zeros teaches an arm nothing, and mends the first inverse, which
        # is the matrix itself.
        self.mab.fit(arms, [0] * n_arms, np.zeros((n_arms, n_features)))

    def select(self, context: Context) -> int:
        """Choose an arm."""
        return self.mab.predict(context.features[:1])

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        self.mab.partial_fit([arm], [reward], context.features[:1])

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return the upper confidence bounds."""
        expectations = self.mab.predict_expectations(context.features[:1])
        return np.array([expectations[arm] for arm in self.mab.arms])

    def select_many(self, features: NDArray) -> NDArray[np.int64]:
        """Choose an arm for each of n visits."""
        return np.atleast_1d(self.mab.predict(features[:, 0]))

    def update_many(
        self, features: NDArray, arms: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> None:
        """Learn from the arms played."""
        self.mab.partial_fit(arms, rewards, features[:, 0])


class ContextualbanditsLinUCB(BatchAdapter):
    """LinUCB of contextualbandits, whose updates are compiled."""

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        alpha: float = 1.0,
        ridge: float = 1.0,
    ) -> None:
        from contextualbandits.online import LinUCB

        self.policy = LinUCB(
            n_arms,
            alpha=alpha,
            lambda_=ridge,
            fit_intercept=False,
            use_float=False,
            random_state=1,
            njobs=1,
        )
        # Before a first fit it chooses at random; a row of zeros teaches nothing.
        self.policy.fit(np.zeros((1, n_features)), np.zeros(1, int), np.zeros(1))

    def select(self, context: Context) -> int:
        """Choose an arm."""
        return int(self.policy.predict(context.features[:1])[0])

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        self.policy.partial_fit(
            context.features[:1], np.array([arm]), np.array([reward])
        )

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return the upper confidence bounds."""
        return self.policy.decision_function(context.features[:1])[0]

    def select_many(self, features: NDArray) -> NDArray[np.int64]:
        """Choose an arm for each of n visits."""
        return self.policy.predict(features[:, 0])

    def update_many(
        self, features: NDArray, arms: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> None:
        """Learn from the arms played."""
        self.policy.partial_fit(features[:, 0], arms, rewards)


class BayesianBandits(BatchAdapter):
    """Thompson sampling of bayesianbandits; `alpha` is the noise of the rewards."""

    def __init__(
        self,
        n_arms: int,
        n_features: int,
        alpha: float = 1.0,
        ridge: float = 1.0,
        seed: int = 0,
    ) -> None:
        import bayesianbandits as bb

        # Draws of standard deviation alpha: the noise has precision 1 / alpha², and the prior is scaled
        # with it.
        self.alpha, self.noise = alpha, alpha**-2
        prior = {"alpha": ridge * self.noise, "beta": self.noise}
        arms = [
            bb.Arm(arm, learner=bb.NormalRegressor(**prior)) for arm in range(n_arms)
        ]
        self.agent = bb.ContextualAgent(arms, bb.ThompsonSampling(), random_seed=seed)

    def select(self, context: Context) -> int:
        """Choose an arm."""
        return self.agent.pull(context.features[:1])[0]

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        chosen = self.agent.select_for_update(arm)
        chosen.update(context.features[:1], np.array([reward]))

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return LinUCB's scores by the posteriors."""
        row, scores = context.features[:1], np.empty(len(self.agent.arms))
        for i, arm in enumerate(self.agent.arms):
            arm.learner.predict(row)  # makes the prior, if nothing was learnt
            A = precision(arm.learner) / self.noise
            scores[i] = bounds(row, arm.learner.coef_, A, self.alpha)[0]
        return scores

    def select_many(self, features: NDArray) -> NDArray[np.int64]:
        """Choose an arm for each of n visits."""
        return np.array(self.agent.pull(features[:, 0]))

    def update_many(
        self, features: NDArray, arms: NDArray[np.int64], rewards: NDArray[np.float64]
    ) -> None:
        """Learn from the arms played, one arm after the other."""
        for arm in np.unique(arms):
            visits = arms == arm
            chosen = self.agent.select_for_update(int(arm))
            chosen.update(features[visits, 0], rewards[visits])


def precision(learner: object) -> NDArray[np.float64]:
    """Return the precision of bayesianbandits' posterior, of which only one triangle is kept up to date."""
    upper = np.triu(learner.cov_inv_)
    return upper + np.triu(upper, 1).T


class RiverLinUCB(Adapter):
    """LinUCB of River; prior and bound have weight 1, and the noise's variance stands under the root."""

    def __init__(self, n_arms: int, n_features: int, seed: int = 0) -> None:
        from river.bandit import LinUCBDisjoint

        self.policy = LinUCBDisjoint(seed=seed)
        self.arms = list(range(n_arms))

    def select(self, context: Context) -> int:
        """Choose an arm."""
        row = dict(enumerate(context.features[0].tolist()))
        return self.policy.pull(self.arms, context=row)

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        row = dict(enumerate(context.features[0].tolist()))
        self.policy.update(arm, row, reward)

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return LinUCB's scores by the posteriors: without the noise under the root."""
        row = dict(enumerate(context.features[0].tolist()))
        # The policy shows its models nowhere else.
        models = (self.policy._bayes_lin_regs[arm] for arm in self.arms)
        seen = [model.predict_one(row, with_dist=True) for model in models]
        return np.array([one.mu + np.sqrt(one.sigma**2 - 1) for one in seen])


class VowpalWabbit(Adapter):
    """Vowpal Wabbit's `cb_explore`: a weight per arm and feature, learnt by gradient steps, ε-greedy."""

    def __init__(self, n_arms: int, n_features: int, seed: int = 0) -> None:
        from vowpalwabbit import Workspace

        # Its table of weights has room for twice as many as are learnt, and for 2¹⁸ at least.
        bits = max(18, (n_arms * n_features).bit_length() + 1)
        self.workspace = Workspace(
            f"--cb_explore {n_arms} --epsilon 0.1 --noconstant --quiet --bit_precision {bits}"
        )
        self.arms, self.rng = range(n_arms), random.Random(seed)
        # Features named by numbers are not hashed.
        self.line = "| " + " ".join(f"{i}:%.7g" for i in range(n_features))

    def select(self, context: Context) -> int:
        """Draw an arm from the probabilities that it gives."""
        self.probabilities = self.workspace.predict(self._told(context))
        return self.rng.choices(self.arms, self.probabilities)[0]

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm drawn last: it wants its probability, arms from 1 on, and costs."""
        label = f"{arm + 1}:{-reward}:{self.probabilities[arm]:.7g}"
        self.workspace.learn(f"{label} {self._told(context)}")

    def _told(self, context: Context) -> str:
        return self.line % tuple(context.features[0].tolist())
