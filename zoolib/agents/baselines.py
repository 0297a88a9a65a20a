"""Baselines: random choice, the best choice given the truth, and a model that does not learn."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import Seed, as_array, as_ids
from zoolib._support.tables import (
    column_labels,
    in_order,
    row_labels,
    rows_in_order,
)
from zoolib.agents.base import Agent, Context


class RandomAgent(Agent):
    """Show an arm drawn uniformly at random."""

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return zeros: no arm is better than another."""
        lead = self._check(context).features.shape[:-2]
        return np.zeros((*lead, self.n_arms))


class OracleAgent(Agent):
    """Show an arm of highest true click probability, an upper bound for all agents.

    Its attribute `needs_truth` asks the experiment for contexts that reveal the truth.
    """

    needs_truth = True

    def scores(self, context: RevealedContext) -> NDArray[np.float64]:
        """Return the true expected rewards."""
        self._check(context)
        if not isinstance(context, RevealedContext):
            raise TypeError(
                f"context must be a RevealedContext: got {type(context).__name__}"
            )
        names = context.truth_names
        order = in_order("context.expected_reward", names, self.arms[:])
        return context.expected_reward[..., order]


class RevealedContext(Context):
    """A context that also contains the true expected rewards. Only an oracle receives one.

    Parameters
    ----------
    user_id, features
        As for `Context`.
    expected_reward : array_like, shape (n_arms,) or (W, n_arms)
        The true expected reward of each arm; a table's columns are named after arms.
    arms, offered
        As for `Context`.
    """

    def __init__(
        self,
        user_id: ArrayLike,
        features: ArrayLike,
        expected_reward: ArrayLike,
        **on_offer: Any,
    ) -> None:
        super().__init__(user_id, features, **on_offer)
        self.truth_names = column_labels(expected_reward)
        self.expected_reward = as_array(
            "expected_reward", expected_reward, self.features.shape[:-1]
        ).astype(np.float64, copy=False)


class StaticAgent(Agent):
    """Always show the arm with the highest value in a fixed table of predictions.

    Parameters
    ----------
    predictions : array_like, shape (n_users, n_arms) or (W, n_users, n_arms)
        For example the result of `MLPRecommender.predict_all`. With three axes, the agent plays W
        worlds. The labels of a table are the numbers of users and arms.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Breaks ties.
    """

    def __init__(self, predictions: ArrayLike, seed: Seed | Sequence[Seed] = 0) -> None:
        table = as_array("predictions", predictions).copy()
        if table.dtype != np.float32:
            table = table.astype(np.float64)
        if table.ndim not in (2, 3):
            raise ValueError(
                "predictions must have shape (n_users, n_arms) or (W, n_users, n_arms): "
                f"got shape {table.shape}"
            )
        super().__init__(table.shape[-1], None if table.ndim == 2 else len(table), seed)
        users = range(table.shape[-2])
        rows = rows_in_order("predictions", row_labels(predictions), users)
        columns = in_order("predictions", column_labels(predictions), self.arms[:])
        self.predictions = table[rows][..., columns]

    def scores(self, context: Context) -> NDArray:
        """Return the predictions for the visitor."""
        self._check(context)
        n_users = self.predictions.shape[-2]
        users = as_ids("context.user_id", context.user_id, n_users)
        return self.predictions[(*self._worlds, users)]
