r"""Learning the values of actions in a session, with a table of states, or from a batch with linear features.

All agents that look ahead move an estimate of :math:`Q(s, a)` towards :math:`r + \beta \, V(s')`: the reward
plus the value of the next state (0 after the end of a session). See the chapter on sessions, "Q-learning".
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import KW_ONLY, dataclass

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import (
    Seed,
    as_array,
    as_flags,
    as_ids,
    as_positive,
    as_probability,
    as_rate,
    as_size,
)
from zoolib._support.settings import optional, setting
from zoolib.agents import policies
from zoolib.sessions.base import SessionAgent


@dataclass(eq=False, repr=False)
class QLearningAgent(SessionAgent):
    r"""Q-learning (Watkins and Dayan 1992): the value of the next state is that of its best action.

    .. math::  Q(s, a) \leftarrow Q(s, a) + \eta_n \bigl( r + \beta \max_{a'} Q(s', a') - Q(s, a) \bigr),
        \qquad \eta_n = \eta / n^w

    in update n of :math:`Q(s, a)`. It explores: with probability :math:`\varepsilon_n =
    \varepsilon / (1 + n / n_\varepsilon)`, at visit n of a state, it chooses any action.

    Parameters
    ----------
    n_states, n_actions : int
        Numbers S of states and K of actions. An observation is a state's number, or S when the session
        is over.
    discount : float, default 1.0
        Weight of a reward one step later, in [0, 1]; 0 counts only the next click.
    epsilon : float, default 1.0
        Initial probability of exploring, in [0, 1].
    fade : float, default 500.0
        Number of visits to a state, :math:`n_\varepsilon`, after which it is explored half as often.
    step_size : float, default 1.0
        :math:`\eta` in (0, 1], the size of the first step.
    power : float, default 0.8
        w in [0, 1]: how fast steps shrink; with 0 they stay the same.
    n_worlds : int, optional
        Number of worlds W played in step; if omitted, there is no worlds axis.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of the agent's random numbers; with worlds, one for all or one for each.

    Examples
    --------
    >>> agent = QLearningAgent(n_states=2, n_actions=2)
    >>> agent.update(1, 0, reward=1, next_observation=2, ended=True)
    >>> agent.update(0, 1, reward=0, next_observation=1, ended=False)
    >>> agent.q
    array([[0., 1.],
           [1., 0.]])
    """

    _learns = ("_q", "_n")

    n_states: int = setting(as_size)
    n_actions: int = setting(as_size)
    _: KW_ONLY
    discount: float = setting(as_probability, 1.0)
    epsilon: float = setting(as_probability, 1.0)
    fade: float = setting(as_positive, 500.0)
    step_size: float = setting(as_rate, 1.0)
    power: float = setting(as_probability, 0.8)
    n_worlds: int | None = setting(optional(as_size), None)
    seed: Seed | Sequence[Seed] = 0

    def __post_init__(self) -> None:
        super().__post_init__()
        # One extra state: what is observed when the session is over. It is never learnt, and `ended`, not its
        # zeros, keeps it out of the targets.
        shape = (*self._lead, self.n_states + 1, self.n_actions)
        self._q = np.zeros(shape)
        self._n = np.zeros(shape, np.int64)
        self.reseed(self.seed)

    @property
    def q(self) -> NDArray[np.float64]:
        """The current estimate of Q, shape (S, K) or (W, S, K); a copy."""
        return self._q[..., :-1, :].copy()

    def select(self, observation: ArrayLike) -> int | NDArray[np.int64]:
        """Choose an action, shape () or (W,): the best, with random ties, or a random one to explore."""
        at = self._at(self._observed("observation", observation, self._lead))
        explore = self._explores(at)[..., None]
        best = policies.greedy(self._q[at])
        policy = (1 - explore) * best + explore / self.n_actions
        action = policies.pick(policy, self._uniforms.next())
        return action if action.ndim else int(action)

    def learn(
        self,
        state: NDArray[np.int64],
        action: NDArray[np.int64],
        reward: NDArray,
        after: NDArray[np.int64],
        ended: NDArray[np.bool_],
        played: NDArray[np.bool_],
    ) -> None:
        """Move each world's entry for the state and action towards the target of a checked step."""
        if np.any(played & (state == self.n_states)):
            raise ValueError(
                f"observation must be a state where a step is played: got {self.n_states}, over"
            )
        worth = reward + self.discount * ~ended * self._value(self._at(after))
        at = (*self._at(state), action)
        n = self._n[at] + played
        step = self.step_size / np.maximum(n, 1) ** self.power
        self._q[at] += played * step * (worth - self._q[at])
        self._n[at] = n

    def _value(self, at: tuple[NDArray, ...]) -> NDArray[np.float64]:
        """Return the values of the states that steps led to."""
        return self._q[at].max(axis=-1)

    def _explores(self, at: tuple[NDArray, ...]) -> NDArray[np.float64]:
        """Return the probability of exploring in each state."""
        return self.epsilon / (1 + self._n[at].sum(axis=-1) / self.fade)

    def _q_of(self, observation: ArrayLike) -> NDArray[np.float64]:
        many = np.ndim(observation) > len(self._lead)
        lead = (*self._lead, "n") if many else self._lead
        return self._q[self._at(self._observed("observation", observation, lead))]

    def _observed(self, name: str, value: ArrayLike, lead: tuple) -> NDArray[np.int64]:
        return as_ids(name, value, self.n_states + 1, lead)

    def _at(self, state: NDArray[np.int64]) -> tuple[NDArray, ...]:
        """Return the index of states in tables, (), (n,), (W,) or (W, n)."""
        worlds = (
            np.arange(n).reshape(-1, *(1,) * (state.ndim - 1)) for n in self._lead
        )
        return (*worlds, state)


class SarsaAgent(QLearningAgent):
    r"""Expected SARSA (van Seijen et al. 2009): the next state has the value of the agent's own policy.

    The maximum in the update of `QLearningAgent` becomes the mean over the agent's next action,
    :math:`(1 - \varepsilon) \max_{a'} Q(s', a') + \varepsilon \, \frac{1}{K} \sum_{a'} Q(s', a')`. SARSA
    itself uses Q of the action actually taken next, whose expectation this is. Parameters are the same.
    """

    def _value(self, at: tuple[NDArray, ...]) -> NDArray[np.float64]:
        explore = self._explores(at)
        return (1 - explore) * super()._value(at) + explore * self._q[at].mean(axis=-1)


def fitted_q(
    features: ArrayLike,
    action: ArrayLike,
    reward: ArrayLike,
    next_features: ArrayLike,
    ended: ArrayLike,
    n_actions: int,
    discount: float = 1.0,
    ridge: float = 1.0,
    n_iterations: int = 100,
) -> NDArray[np.float64]:
    r"""Fit Q to a batch of n steps repeatedly, each time with next-state values from the previous fit.

    Fitted Q iteration (Ernst et al. 2005), by ridge regression with weights for each action: after H fits,
    :math:`x(s)^\top \theta_a \approx r + \beta \max_{a'} x(s')^\top \theta_{a'}` looks H steps ahead.

    Parameters
    ----------
    features, next_features : array_like, shape (n, d)
        Features of the states before and after each step.
    action, reward, ended : array_like, shape (n,)
        The action, its reward, and whether the step ended the session.
    n_actions, discount, ridge, n_iterations
        Number K of actions, discount in [0, 1], weight of the prior, above 0, and number H of fits.

    Returns
    -------
    ndarray, shape (K, d)
        The weights :math:`\theta`: with features (..., d), ``features @ theta.T`` is Q.
    """
    x = as_array("features", features, ("n", "d"), np.float64)
    after = as_array("next_features", next_features, x.shape, np.float64)
    reward = as_array("reward", reward, x.shape[:1])
    n_actions = as_size("n_actions", n_actions)
    n_iterations = as_size("n_iterations", n_iterations)
    action = as_ids("action", action, n_actions, reward.shape)
    ended = as_flags("ended", ended, reward.shape)
    discount = as_probability("discount", discount)
    prior = as_positive("ridge", ridge) * np.eye(x.shape[1])
    rows = [np.flatnonzero(action == a) for a in range(n_actions)]
    # Only the targets change: the same matrices, (d, rows), serve all fits.
    fits = [np.linalg.solve(x[row].T @ x[row] + prior, x[row].T) for row in rows]
    theta = np.zeros((n_actions, x.shape[1]))
    for _ in range(n_iterations):
        best = (after @ theta.T).max(axis=1)
        target = reward + discount * ~ended * best
        theta = np.stack([fits[a] @ target[rows[a]] for a in range(n_actions)])
    return theta
