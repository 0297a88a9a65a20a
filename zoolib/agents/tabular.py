r"""Learning what is worth doing in a session, with a table of states, or from a batch with linear features.

All that look ahead move an estimate of :math:`Q(s, a)` towards a reward and the value of where it led,

.. math::  r + \beta \, V(s'),

with V = 0 behind the end of a session. See Chapter 7, "Learning from what happened".
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
    as_seeds,
    as_size,
)
from zoolib._support.generators import Uniforms
from zoolib._support.state import Stateful
from zoolib.agents.policies import greedy, pick
from zoolib.models.posterior import RidgePosterior


@dataclass(eq=False, repr=False)
class QLearningAgent(Stateful):
    r"""Q-learning (Watkins and Dayan 1992): where a step led is worth what the best action there is.

    .. math::  Q(s, a) \leftarrow Q(s, a) + \eta_n \bigl( r + \beta \max_{a'} Q(s', a') - Q(s, a) \bigr),
        \qquad \eta_n = \eta / n^w

    in update n of :math:`Q(s, a)`. It explores: with probability :math:`\varepsilon_n =
    \varepsilon / (1 + n / n_\varepsilon)`, at visit n of a state, it chooses any action.

    Parameters
    ----------
    n_states, n_actions : int
        Numbers S of states and K of actions. An observation is a state's number, and S where the session
        is over.
    discount : float, default 1.0
        What a reward one step later is worth, in [0, 1]; 0 looks at the next click alone.
    epsilon : float, default 1.0
        Probability of exploring at first, in [0, 1].
    fade : float, default 500.0
        Visits of a state :math:`n_\varepsilon` after which it is explored half as much.
    step_size : float, default 1.0
        :math:`\eta` in (0, 1], the first step's size.
    power : float, default 0.8
        w in [0, 1]; steps shrink by it, and stay as they are with 0.
    n_worlds : int, optional
        Number of worlds W played in step; without it, there is no worlds axis.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of what is left to chance; with worlds, one for all or one for each.

    Examples
    --------
    >>> agent = QLearningAgent(n_states=2, n_actions=2)
    >>> agent.update(1, 0, reward=1, next_observation=2, ended=True)
    >>> agent.update(0, 1, reward=0, next_observation=1, ended=False)
    >>> agent.q
    array([[0., 1.],
           [1., 0.]])
    """

    _learns = ("_q", "_n", "_uniforms")

    n_states: int
    n_actions: int
    _: KW_ONLY
    discount: float = 1.0
    epsilon: float = 1.0
    fade: float = 500.0
    step_size: float = 1.0
    power: float = 0.8
    n_worlds: int | None = None
    seed: Seed | Sequence[Seed] = 0

    def __post_init__(self) -> None:
        self.n_states = as_size("n_states", self.n_states)
        self.n_actions = as_size("n_actions", self.n_actions)
        self.discount = as_probability("discount", self.discount)
        self.epsilon = as_probability("epsilon", self.epsilon)
        self.fade = as_positive("fade", self.fade)
        self.step_size = as_rate("step_size", self.step_size)
        self.power = as_probability("power", self.power)
        self._lead = (
            () if self.n_worlds is None else (as_size("n_worlds", self.n_worlds),)
        )
        # One state more: where the session is over, and nothing is to be had.
        shape = (*self._lead, self.n_states + 1, self.n_actions)
        self._q, self._n = np.zeros(shape), np.zeros(shape, np.int64)
        self.reseed(self.seed)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Begin new random numbers: one seed, or one for each world."""
        seeds = as_seeds("seed", seed, self.n_worlds)
        self.seed = seeds[0] if np.ndim(seed) == 0 else seeds
        self._uniforms = Uniforms(seeds, self.n_worlds)

    @property
    def q(self) -> NDArray[np.float64]:
        """What is known of Q, shape (S, K) or (W, S, K); a copy."""
        return self._q[..., :-1, :].copy()

    def greedy(self, observation: ArrayLike) -> int | NDArray[np.int64]:
        """Return the best action as far as is known, the first of equals; does not explore.

        Observations have shape () or (W,), or any further axes behind these; actions have it, too.
        """
        best = self._q[self._at(observation)].argmax(axis=-1)
        return best if best.ndim else int(best)

    def probabilities(self, observation: ArrayLike) -> NDArray[np.float64]:
        """Return how probable `select` is to choose each action; shape of the observation, and (..., K)."""
        at = self._at(observation)
        explore = self._explore(at)[..., None]
        return (1 - explore) * greedy(self._q[at]) + explore / self.n_actions

    def select(self, observation: ArrayLike) -> int | NDArray[np.int64]:
        """Choose an action, shape () or (W,): the best, equals by chance, or now and then any."""
        policy = self.probabilities(
            as_ids("observation", observation, self.n_states + 1, self._lead)
        )
        action = pick(policy, self._uniforms.next())
        return action if action.ndim else int(action)

    def update(
        self,
        observation: ArrayLike,
        action: ArrayLike,
        reward: ArrayLike,
        next_observation: ArrayLike,
        ended: ArrayLike,
        cut: ArrayLike = False,
        played: ArrayLike = True,
    ) -> None:
        """Learn from one step in each world.

        Parameters
        ----------
        observation, action, reward, next_observation : array_like, shape () or (W,)
            A step, and where it led.
        ended : bool, or array_like of bool, shape (W,)
            Whether the session is over: nothing comes after.
        cut : bool, or array_like of bool, shape (W,), default False
            Whether the record stops here though the session does not: of no account to a single step.
        played : bool, or array_like of bool, shape (W,), default True
            False where the step was a reset, from which nothing is learnt.
        """
        at, after = (
            self._at(observation, self._lead),
            self._at(next_observation, self._lead),
        )
        action = as_ids("action", action, self.n_actions, self._lead)
        reward = as_array("reward", reward, self._lead, np.float64)
        ended = as_flags("ended", ended, self._lead)
        played = as_flags("played", played, self._lead)
        if np.any(played & (at[-1] == self.n_states)):
            raise ValueError(
                f"observation must be a state where a step is played: got {self.n_states}, over"
            )
        value = np.where(ended, 0.0, self._value(after))
        at = (*at, action)
        n = self._n[at] + played
        step = self.step_size / np.maximum(n, 1) ** self.power
        self._q[at] += played * step * (reward + self.discount * value - self._q[at])
        self._n[at] = n

    def _value(self, at: tuple) -> NDArray[np.float64]:
        """Return what states are worth, from which a step is then judged."""
        return self._q[at].max(axis=-1)

    def _explore(self, at: tuple) -> NDArray[np.float64]:
        """Return the probability of exploring in states."""
        return self.epsilon / (1 + self._n[at].sum(axis=-1) / self.fade)

    def _at(self, observation: ArrayLike, shape: tuple | None = None) -> tuple:
        """Return the index of states in tables, checked."""
        state = as_ids("observation", observation, self.n_states + 1, shape)
        if state.shape[: len(self._lead)] != self._lead:
            raise ValueError(
                f"observation must have shape ({self.n_worlds}, ...): got {state.shape}"
            )
        return (
            *(np.arange(n).reshape(-1, *(1,) * (state.ndim - 1)) for n in self._lead),
            state,
        )


class SarsaAgent(QLearningAgent):
    r"""Expected SARSA (van Seijen et al. 2009): where a step led is worth what the agent itself makes of it.

    .. math::  V(s') = (1 - \varepsilon) \max_{a'} Q(s', a') + \varepsilon \, \frac{1}{K} \sum_{a'} Q(s', a')

    SARSA proper takes Q of the one action that comes next, of which this is the expectation: the same on
    average, with less noise, and known before the next step is chosen. Unlike Q-learning, it learns what a
    session is worth to an agent that explores. Parameters are those of `QLearningAgent`.
    """

    def _value(self, at: tuple) -> NDArray[np.float64]:
        explore = self._explore(at)
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
    r"""Fit Q to a batch of n steps again and again, each time to what the last fit says of where they led.

    Fitted Q iteration (Ernst et al. 2005), by ridge regression with weights for each action,

    .. math::  Q(s, a) = x(s)^\top \theta_a \approx r + \beta \max_{a'} x(s')^\top \theta_{a'} .

    For the value of a given policy instead of the best, see `fitted_q_evaluation` in
    `zoolib.experiments.offpolicy`.

    Parameters
    ----------
    features, next_features : array_like, shape (n, d)
        Of the states before and after a step.
    action : array_like of int, shape (n,)
        What was done.
    reward : array_like, shape (n,)
        What it earned.
    ended : array_like of bool, shape (n,)
        Whether the session was then over.
    n_actions : int
        Number K of actions.
    discount : float, default 1.0
        What a reward one step later is worth, in [0, 1].
    ridge : float, default 1.0
        Weight of the prior, above 0.
    n_iterations : int, default 100
        Number of fits: how many steps ahead they look.

    Returns
    -------
    ndarray, shape (K, d)
        The weights :math:`\theta`: with features (..., d), ``features @ theta.T`` is Q.
    """
    x = as_array("features", features, ("n", "d"), np.float64)
    after = as_array("next_features", next_features, x.shape, np.float64)
    reward = as_array("reward", reward, x.shape[:1], np.float64)
    action = as_ids("action", action, as_size("n_actions", n_actions), x.shape[:1])
    discount = as_probability("discount", discount)
    ended = as_flags("ended", ended, reward.shape)
    posterior = RidgePosterior(x.shape[1], ridge, (n_actions,))
    posterior.update_many(x, reward, action)
    # Only what is fitted changes, and with it b: the inverse serves all fits.
    inverse, theta = posterior.A_inv, posterior.mean
    rows = [np.flatnonzero(action == a) for a in range(n_actions)]
    mine = [x[row] for row in rows]
    for _ in range(1, as_size("n_iterations", n_iterations)):
        value = np.where(ended, 0.0, (after @ theta.T).max(axis=-1))
        target = reward + discount * value
        b = [target[row] @ x_a for row, x_a in zip(rows, mine, strict=True)]
        theta = np.matvec(inverse, np.stack(b))
    return theta
