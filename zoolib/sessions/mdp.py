r"""Finite decision processes and their exact values, which a simulation can only estimate.

All arrays may have leading axes, for example one for the worlds; each world is then computed separately.
See the chapter on sessions, "The Bellman equation".
"""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import as_array, as_ids, as_probability, as_size, every_row

# Tolerance for probabilities and for improvements, far above rounding errors.
_ROUNDING = 1e-9


@dataclass(frozen=True)
class DecisionProcess:
    r"""A Markov decision process with S states and K actions, whose sessions end.

    Parameters
    ----------
    transition : array_like, shape (..., S, K, S)
        :math:`P(s' \mid s, a)`; 1 minus the sum of a row is the probability that the session ends.
    reward : array_like, shape (..., S, K)
        Expected reward of an action.
    start : array_like, shape (..., S)
        Probability that a session begins in a state.
    """

    transition: NDArray[np.float64]
    reward: NDArray[np.float64]
    start: NDArray[np.float64]

    def __post_init__(self) -> None:
        *shape, _ = np.shape(self.transition)
        shapes = {
            "transition": (*shape, *shape[-2:-1]),
            "reward": tuple(shape),
            "start": tuple(shape[:-1]),
        }
        for name, wanted in shapes.items():
            value = as_array(name, getattr(self, name), wanted, np.float64)
            object.__setattr__(self, name, value)
        _check_shares("transition", self.transition, "add up to 1 or less", 0.0)
        _check_shares("start", self.start, "add up to 1", 1.0)

    @property
    def n_states(self) -> int:
        """Number S of states."""
        return self.reward.shape[-2]

    def policy_q(
        self, policy: ArrayLike, discount: float = 1.0, horizon: int | None = None
    ) -> NDArray[np.float64]:
        r"""Return :math:`Q^\pi(s, a)`: the expected reward of an action and of the policy after it.

        Parameters
        ----------
        policy : array_like, shape (..., S) or (..., S, K)
            An action for each state, or the probabilities of actions.
        discount : float, default 1.0
            Weight of a reward one step later, in [0, 1]; 1 only if every session ends.
        horizon : int, optional
            Number of steps that count; all steps if omitted.

        Returns
        -------
        ndarray, shape (..., S, K)
        """
        chosen = self.probabilities(policy)
        if horizon is None:
            self._check_discount(discount)
            # V = r + discount P V for the rewards and moves of this policy: a linear system.
            moves = np.einsum("...sk,...skt->...st", chosen, self.transition)
            earned = np.vecdot(chosen, self.reward)[..., None]
            value = np.linalg.solve(np.eye(self.n_states) - discount * moves, earned)
            return self._look_ahead(value[..., 0], discount)
        discount = as_probability("discount", discount)
        q = np.zeros(self.reward.shape)
        for _ in range(as_size("horizon", horizon)):
            q = self._look_ahead(np.vecdot(chosen, q), discount)
        return q

    def optimal_q(self, discount: float = 1.0) -> NDArray[np.float64]:
        r"""Return :math:`Q^*(s, a)`: the expected reward of an action and of the best policy after it.

        Computed by policy iteration (Howard 1960), which ends with the exact values. `discount` and the
        shape are those of `policy_q`.
        """
        policy = self.reward.argmax(axis=-1)
        while True:
            q = self.policy_q(policy, discount)
            now = np.take_along_axis(q, policy[..., None], axis=-1)[..., 0]
            better = q.max(axis=-1) > now + _ROUNDING
            if not better.any():
                return q
            policy = np.where(better, q.argmax(axis=-1), policy)

    def value(
        self, policy: ArrayLike, discount: float = 1.0, horizon: int | None = None
    ) -> NDArray[np.float64]:
        """Return the expected total reward of a session under a policy; shape (...).

        Parameters are those of `policy_q`.
        """
        q = self.policy_q(policy, discount, horizon)
        return np.vecdot(self.start, np.vecdot(self.probabilities(policy), q))

    def visits(self, policy: ArrayLike) -> NDArray[np.float64]:
        """Return the expected number of visits of a session to each state under a policy, shape (..., S)."""
        self._check_discount(1.0)
        chosen = self.probabilities(policy)
        moves = np.einsum("...sk,...skt->...ts", chosen, self.transition)
        begun = self.start[..., None]
        return np.linalg.solve(np.eye(self.n_states) - moves, begun)[..., 0]

    def probabilities(self, policy: ArrayLike) -> NDArray[np.float64]:
        """Return a policy, in either form, as checked probabilities of actions, shape (..., S, K)."""
        return as_choices(policy, self.reward.shape)

    def _look_ahead(self, value: NDArray, discount: float) -> NDArray[np.float64]:
        """Return rewards plus the discounted value (..., S) of the next states, shape (..., S, K)."""
        ahead = np.vecdot(self.transition, value[..., None, None, :])
        return self.reward + discount * ahead

    def _check_discount(self, discount: float) -> None:
        """Raise if a discount is outside [0, 1], or is 1 and some policy can prolong sessions forever."""
        if as_probability("discount", discount) < 1:
            return
        lasts = np.ones(self.start.shape)
        for _ in range(self.n_states):
            lasts = np.vecdot(self.transition, lasts[..., None, None, :]).max(axis=-1)
            if (lasts < 1 - _ROUNDING).all():
                return
        raise ValueError("discount must be below 1 where sessions may never end: got 1")


def as_choices(policy: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    """Return a policy, an action or probabilities for each state, as probabilities of shape (..., S, K)."""
    policy = np.asarray(policy)
    if policy.dtype.kind in "iu":
        return np.eye(shape[-1])[as_ids("policy", policy, shape[-1], (..., shape[-2]))]
    policy = as_array("policy", policy, shape, np.float64)
    _check_shares("policy", policy, "add up to 1 in each state", 1.0)
    return policy


def _check_shares(name: str, shares: NDArray, wanted: str, least: float) -> None:
    """Raise if an entry is not a probability, or a row sums to less than `least` or to more than 1."""
    total = shares.sum(axis=-1)
    fine = (shares >= 0).all(axis=-1) & (total >= least - _ROUNDING)
    every_row(name, total, fine & (total <= 1 + _ROUNDING), wanted)
