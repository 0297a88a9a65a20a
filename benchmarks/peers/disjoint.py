"""Linear bandits of other libraries, with a model for each arm; all arms share one row of features."""

from __future__ import annotations

import random

import numpy as np
from numpy.typing import NDArray

from benchmarks.peers.adapter import Adapter, Arms, Numbers, bounds
from zoolib import Context


class ObpLinUCB(Adapter):
    """It keeps inverses, all of which it copies at each update; its prior has weight 1."""

    distribution, module = "sb-obp", "obp.policy"

    def __init__(self, n_arms: int, n_features: int, alpha: float = 1.0) -> None:
        from obp.policy.linear import LinUCB

        self.policy = LinUCB(dim=n_features, n_actions=n_arms, epsilon=float(alpha))

    def select(self, context: Context) -> int:
        return int(self.policy.select_action(context.features[:1])[0])

    def update(self, context: Context, arm: int, reward: float) -> None:
        self.policy.update_params(arm, reward, context.features[:1])

    def scores(self, context: Context) -> Numbers:
        x, A_inv = context.features[0], self.policy.A_inv
        means = np.einsum("kij,jk->ki", A_inv, self.policy.b)
        return means @ x + self.policy.epsilon * np.sqrt(
            np.einsum("i,kij,j->k", x, A_inv, x)
        )


class MabwiserLinUCB(Adapter):
    """An update inverts the matrix of its arm."""

    distribution, module = "mabwiser", "mabwiser.mab"

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
        return self.mab.predict(context.features[:1])

    def update(self, context: Context, arm: int, reward: float) -> None:
        self.mab.partial_fit([arm], [reward], context.features[:1])

    def scores(self, context: Context) -> Numbers:
        expectations = self.mab.predict_expectations(context.features[:1])
        return np.array([expectations[arm] for arm in self.mab.arms])

    def select_many(self, features: NDArray) -> Arms:
        return np.atleast_1d(self.mab.predict(features[:, 0]))

    def update_many(self, features: NDArray, arms: Arms, rewards: Numbers) -> None:
        self.mab.partial_fit(arms, rewards, features[:, 0])


class ContextualbanditsLinUCB(Adapter):
    """It keeps inverses in compiled code; without an intercept."""

    distribution, module = "contextualbandits", "contextualbandits.online"

    def __init__(
        self, n_arms: int, n_features: int, alpha: float = 1.0, ridge: float = 1.0
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
        return int(self.policy.predict(context.features[:1])[0])

    def update(self, context: Context, arm: int, reward: float) -> None:
        self.policy.partial_fit(
            context.features[:1], np.array([arm]), np.array([reward])
        )

    def scores(self, context: Context) -> Numbers:
        return self.policy.decision_function(context.features[:1])[0]

    def select_many(self, features: NDArray) -> Arms:
        return self.policy.predict(features[:, 0])

    def update_many(self, features: NDArray, arms: Arms, rewards: Numbers) -> None:
        self.policy.partial_fit(features[:, 0], arms, rewards)


class BayesianBandits(Adapter):
    """An update factorises the matrix of its arm; `alpha` is the noise of the rewards."""

    distribution = module = "bayesianbandits"

    def __init__(
        self, n_arms: int, n_features: int, alpha: float = 1.0, ridge: float = 1.0
    ) -> None:
        import bayesianbandits as bb

        # Draws of standard deviation alpha: the noise has precision 1 / alpha², and the prior is scaled
        # with it.
        self.alpha, self.noise = alpha, alpha**-2
        prior = {"alpha": ridge * self.noise, "beta": self.noise}
        arms = [
            bb.Arm(arm, learner=bb.NormalRegressor(**prior)) for arm in range(n_arms)
        ]
        self.agent = bb.ContextualAgent(arms, bb.ThompsonSampling(), random_seed=0)

    def select(self, context: Context) -> int:
        return self.agent.pull(context.features[:1])[0]

    def update(self, context: Context, arm: int, reward: float) -> None:
        chosen = self.agent.select_for_update(arm)
        chosen.update(context.features[:1], np.array([reward]))

    def scores(self, context: Context) -> Numbers:
        row, scores = context.features[:1], np.empty(len(self.agent.arms))
        for i, arm in enumerate(self.agent.arms):
            arm.learner.predict(row)  # makes the prior, if nothing was learnt
            A = precision(arm.learner) / self.noise
            scores[i] = bounds(row, arm.learner.coef_, A, self.alpha)[0]
        return scores

    def select_many(self, features: NDArray) -> Arms:
        return np.array(self.agent.pull(features[:, 0]))

    def update_many(self, features: NDArray, arms: Arms, rewards: Numbers) -> None:
        for arm in np.unique(arms):
            visits = arms == arm
            chosen = self.agent.select_for_update(int(arm))
            chosen.update(features[visits, 0], rewards[visits])


def precision(learner: object) -> Numbers:
    """Return the precision of bayesianbandits' posterior, of which only one triangle is kept up to date."""
    upper = np.triu(learner.cov_inv_)
    return upper + np.triu(upper, 1).T


class RiverLinUCB(Adapter):
    """Its bound has the noise's variance under the root; prior and bound have weight 1."""

    distribution, module = "river", "river.bandit"

    def __init__(self, n_arms: int, n_features: int) -> None:
        from river.bandit import LinUCBDisjoint

        self.policy = LinUCBDisjoint(seed=0)
        self.arms = list(range(n_arms))

    def select(self, context: Context) -> int:
        row = dict(enumerate(context.features[0].tolist()))
        return self.policy.pull(self.arms, context=row)

    def update(self, context: Context, arm: int, reward: float) -> None:
        row = dict(enumerate(context.features[0].tolist()))
        self.policy.update(arm, row, reward)

    def scores(self, context: Context) -> Numbers:
        row = dict(enumerate(context.features[0].tolist()))
        # The policy shows its models nowhere else.
        models = (self.policy._bayes_lin_regs[arm] for arm in self.arms)
        seen = [model.predict_one(row, with_dist=True) for model in models]
        return np.array([one.mu + np.sqrt(one.sigma**2 - 1) for one in seen])


class VowpalWabbit(Adapter):
    """It learns weights by importance-weighted gradient steps, without a covariance; rows are text."""

    distribution = module = "vowpalwabbit"
    same_scores = False

    def __init__(self, n_arms: int, n_features: int) -> None:
        from vowpalwabbit import Workspace

        # Its table of weights has room for twice as many as are learnt, and for 2¹⁸ at least.
        bits = max(18, (n_arms * n_features).bit_length() + 1)
        self.workspace = Workspace(
            f"--cb_explore {n_arms} --epsilon 0.1 --noconstant --quiet --bit_precision {bits}"
        )
        self.arms, self.rng = range(n_arms), random.Random(0)
        # Features named by numbers are not hashed.
        self.line = "| " + " ".join(f"{i}:%.7g" for i in range(n_features))

    def select(self, context: Context) -> int:
        self.probabilities = self.workspace.predict(self._told(context))
        return self.rng.choices(self.arms, self.probabilities)[0]

    def update(self, context: Context, arm: int, reward: float) -> None:
        label = f"{arm + 1}:{-reward}:{self.probabilities[arm]:.7g}"
        self.workspace.learn(f"{label} {self._told(context)}")

    def _told(self, context: Context) -> str:
        return self.line % tuple(context.features[0].tolist())
