r"""Off-policy estimates from sessions, in which what is shown now changes what comes next.

Step t = 0, 1, … of session i has an arm :math:`a_{it}`, its propensity :math:`\mu_{it}`, its reward
:math:`r_{it}` and a state :math:`s_{it}`. The session's weight up to this step is
:math:`w_{it} = \prod_{u \le t} \pi(a_{iu} \mid s_{iu}) / \mu_{iu}`, and stays what it was when the session
has ended. With a model :math:`\hat q(s, a)` of what an arm and then the target earn in the steps that are
left, and :math:`\hat v(s) = \sum_a \pi(a \mid s)\, \hat q(s, a)`, each estimator returns the mean of n terms
with Student's interval at 95 per cent:

======================== ==========================================================================
estimator                term of session i
======================== ==========================================================================
`session_ips`            :math:`\sum_t \beta^t w_{it} r_{it}`, or with the weight of the last step in
                         all of them
`session_doubly_robust`  :math:`\hat v_{i0} + \sum_t \beta^t w_{it} \delta_{it}`, with the
                         temporal-difference error
                         :math:`\delta_{it} = r_{it} + \beta \hat v_{i,t+1} - \hat q_{it}`
`fitted_q_evaluation`    :math:`\hat v_{i0}`, and how far session i moved the fit
======================== ==========================================================================

A `target` is a table of probabilities, (S, K). Sums run over steps before the `horizon`, or over the T of the
longest session; :math:`\beta` is the `discount`, in [0, 1]. Where ``weighted=True``, the weights of each step
are divided by their mean, and terms are the delta method's, as those of `snips`.

See the chapter on sessions, "Off-policy evaluation of sessions".
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import (
    as_array,
    as_ids,
    as_positive,
    as_probability,
    as_real,
    as_size,
)
from zoolib._support.labels import Labels
from zoolib.agents.policies import as_policy
from zoolib.experiments.estimates import Estimate, mean_interval
from zoolib.experiments.offpolicy.visits import check_columns

if TYPE_CHECKING:
    import pandas as pd

_FOLDS = 5


@dataclass(frozen=True, eq=False)
class SessionLog:
    """The log of a policy in n sessions of up to T steps, checked once and never changed afterwards.

    Parameters
    ----------
    arm : array_like of int, shape (n, T)
        The arms shown, in 0 … K - 1, and -1 after the end of a session; at least two sessions.
    reward, propensity : array_like, shape (n, T)
        Their rewards, and the probabilities, in (0, 1], with which the logging policy showed them. Entries
        after the end are ignored, as in `state`.
    n_arms : int
        Number K of arms that could have been shown.
    state : array_like of int, shape (n, T), optional
        Numbers of states; if omitted, step t of session i has a state of its own, i T + t.
    session : sequence of hashable, shape (n,), optional
        Names of the sessions, for errors; 0, 1, … if omitted.

    Examples
    --------
    >>> SessionLog([[0, -1], [1, 0]], np.ones((2, 2)), [[0.5, 0], [0.5, 0]], n_arms=2)
    Traceback (most recent call last):
    ...
    ValueError: propensity must lie in (0, 1]: got 0.0 in step 1 of session 1
    """

    arm: NDArray[np.int64]
    reward: NDArray[np.float64]
    propensity: NDArray[np.float64]
    n_arms: int
    state: NDArray[np.int64] | None = None
    session: Sequence[Hashable] | None = None

    def __post_init__(self) -> None:
        given = np.asarray(self.arm)
        if given.ndim != 2 or len(given) < 2 or given.size == 0:
            raise ValueError(f"arm must have shape (n, T), n >= 2: got {given.shape}")
        names = range(len(given)) if self.session is None else list(self.session)
        if len(names) != len(given):
            raise ValueError(f"session must name {len(given)} of them: got {names}")
        object.__setattr__(self, "session", names)
        played, shape = given != -1, given.shape
        goes_on = np.maximum.accumulate(played[:, ::-1], axis=1)[:, ::-1]
        goes_on[:, 0] = True
        self.every_step("arm", given, played | ~goes_on, "leave out no step")
        arm = as_ids("arm", np.where(played, given, 0), as_size("n_arms", self.n_arms))
        reward = np.where(played, as_real("reward", self.reward, shape), 0)
        self.every_step("reward", reward, np.isfinite(reward), "be finite")
        propensity = as_real("propensity", self.propensity, shape)
        propensity = np.where(played, propensity, 1)
        held = (propensity > 0) & (propensity <= 1)  # NaN is neither
        self.every_step("propensity", propensity, held, "lie in (0, 1]")
        state = np.arange(given.size).reshape(shape)
        state = np.where(played, state if self.state is None else self.state, 0)
        state = as_ids("state", state, np.iinfo(np.int64).max, shape)
        columns = {"arm": arm, "reward": reward, "propensity": propensity}
        for name, column in (columns | {"state": state, "played": played}).items():
            column.setflags(write=False)
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.arm)

    def every_step(
        self, name: str, values: NDArray, held: NDArray[np.bool_], wanted: str
    ) -> None:
        """Refuse values (n, T) of which some do not hold, and name the first step and its session."""
        if not held.all():
            i, t = np.argwhere(~held)[0]
            raise ValueError(
                f"{name} must {wanted}: got {values[i, t]} in step {t} of session {self.session[i]!r}"
            )

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, n_arms: int | Sequence[Hashable] | None = None
    ) -> SessionLog:
        """Read sessions from a table with a row for each step, in any order.

        Its columns are `session`, `step`, which counts 0, 1, … in each session, `arm`, `reward`, `propensity`
        and, if there are states, `state`. Of `n_arms` a sequence is the labels in column `arm`, in the order
        of a target's columns; those that were shown if omitted.
        """
        names = ["arm", "reward", "propensity", *{"state"}.intersection(frame.columns)]
        check_columns(frame, ["session", "step", *names])
        step = as_ids("step", frame["step"], len(frame))
        twice = frame.duplicated(["session", "step"]).to_numpy()
        if twice.any():
            session, at = frame[["session", "step"]].iloc[twice.argmax()]
            raise ValueError(
                f"step must differ in each session: session {session!r} has step {at} twice"
            )
        shown = frame["arm"].to_list()
        labels = Labels("n_arms", sorted(set(shown)) if n_arms is None else n_arms)
        frame = frame.assign(arm=labels.places("arm", shown))
        row, sessions = frame["session"].factorize()
        columns = {}
        for name in names:  # what is missing between two steps, the log itself refuses
            column = frame[name].to_numpy()
            columns[name] = np.full((len(sessions), step.max() + 1), -1, column.dtype)
            columns[name][row, step] = column
        return cls(**columns, n_arms=len(labels), session=sessions.tolist())


def session_weights(log: SessionLog, target: ArrayLike) -> NDArray[np.float64]:
    r"""Return the weights :math:`w_{it}`, shape (n, T); of each step the mean is 1, up to its error."""
    shown = _of_arm(log, _policy(log, target))
    return np.where(log.played, shown / log.propensity, 1).cumprod(axis=1)


def session_ips(
    log: SessionLog,
    target: ArrayLike,
    per_decision: bool = True,
    weighted: bool = False,
    discount: float = 1.0,
    horizon: int | None = None,
) -> Estimate:
    """Estimate a session's value under the target by importance sampling (Precup, Sutton, Singh 2000).

    A reward does not depend on later choices, so its weight includes only the choices up to it; if not
    `per_decision`, whole sessions are weighted. Unbiased; if `weighted`, the bias falls as 1/n.
    """
    h = _horizon(log, horizon)
    weight = session_weights(log, target)[:, :h]
    reward = log.reward[:, :h]
    if not per_decision:
        weight = np.broadcast_to(weight[:, -1:], reward.shape)
    return _estimate(weight, reward, weighted, discount)


def session_doubly_robust(
    log: SessionLog,
    target: ArrayLike,
    q: ArrayLike,
    weighted: bool = False,
    discount: float = 1.0,
    horizon: int | None = None,
) -> Estimate:
    """Estimate a session's value by a model and its weighted errors (Jiang and Li 2016).

    Unbiased if the propensities are right, whatever the model `q`, (n, T, K) or a table (S, K), which must not
    have seen the session: see `cross_fit_q`. The weighted form is that of Thomas and Brunskill (2016).
    """
    h, policy = _horizon(log, horizon), _policy(log, target)
    if np.ndim(q) == 2:
        q = as_array("q", q, np.shape(target))[log.state]
    q = np.where(log.played[..., None], as_array("q", q, policy.shape), 0)
    value = np.vecdot(policy, q)[:, :h]
    after = as_probability("discount", discount) * _of_next(value)
    error = log.reward[:, :h] + after - _of_arm(log, q)[:, :h]
    weight = session_weights(log, target)[:, :h]
    # If weighted, each step's weights are divided by their mean.
    return _estimate(weight, error, weighted, discount, value[:, 0])


def fitted_q_evaluation(
    log: SessionLog,
    target: ArrayLike,
    discount: float = 1.0,
    horizon: int | None = None,
    ridge: float = 0.01,
) -> Estimate:
    """Estimate what a session earns by values of each state and arm, fitted backwards, without propensities.

    The interval knows the chance of the log: to first order, a session moves the mean by its errors in the
    fit, times how much more often the target comes to such a step (Duan, Jia, Wang 2020). These are part of
    the mean, which undoes most of what the ridge, above 0, shrinks. A horizon may lie beyond all logged steps.
    """
    fits = _Tables(log, target, discount, ridge)
    tables, counts = fits.fit(_horizon(log, horizon))
    term = fits.worth(tables[-1])[:, 0]
    # How often the target comes to a step; at first it is where the sessions begin.
    reached = np.zeros(log.arm.shape)
    reached[:, 0] = 1
    for table, later in zip(tables[:0:-1], tables[-2::-1], strict=True):
        pull = log.played * (fits.spread(reached) / counts)[fits.shown]
        term += np.vecdot(pull, fits.goals(later) - table[fits.shown])
        reached[:, 0], reached[:, 1:] = 0, fits.discount * pull[:, :-1]
    return mean_interval(term)


def cross_fit_q(
    log: SessionLog,
    target: ArrayLike,
    discount: float = 1.0,
    horizon: int | None = None,
    ridge: float = 0.01,
) -> NDArray[np.float64]:
    """Return what each step's arms earn up to the horizon, (n, T, K), by models that never saw the session.

    Fold k of five is sessions k, k + 5, …; its model is that of `fitted_q_evaluation`, fitted to the rest.
    """
    fits, h = _Tables(log, target, discount, ridge), _horizon(log, horizon)
    to_go = np.maximum(h - np.arange(log.arm.shape[1]), 0)[:, None]
    fold, q = np.arange(len(log)) % _FOLDS, np.zeros(fits.arms.shape)
    for k in range(_FOLDS):
        mine = fold == k
        tables, _ = fits.fit(h, used=~mine[:, None])
        q[mine] = tables[to_go, fits.arms[mine]]
    return q * log.played[..., None]


class _Tables:
    """Tables (S K,) of what the target earns from each state and arm on, fitted to the steps of a log."""

    def __init__(
        self, log: SessionLog, target: ArrayLike, discount: float, ridge: float
    ) -> None:
        self.log, self.policy = log, _policy(log, target)
        self.discount = as_probability("discount", discount)
        self.ridge, self.size = as_positive("ridge", ridge), np.size(target)
        # The entries of each step's arms, (n, T, K), and of the one shown, (n, T).
        self.arms = log.state[..., None] * log.n_arms + np.arange(log.n_arms)
        self.shown = _of_arm(log, self.arms)

    def worth(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what each step is worth under the target by a table, (n, T); 0 behind the end."""
        return self.log.played * np.vecdot(self.policy, table[self.arms])

    def goals(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rewards and the discounted worth of the next steps, (n, T)."""
        return self.log.reward + self.discount * _of_next(self.worth(table))

    def spread(self, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up weights of steps (n, T) by the entries of the arms that the target would show."""
        shares = (weight * self.log.played)[..., None] * self.policy
        return np.bincount(self.arms.ravel(), shares.ravel(), self.size)

    def fit(
        self, horizon: int, used: ArrayLike = True
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Fit tables for 0 to H steps to go, (H + 1, S K), by ridge regression; also return counts, (S K,)."""

        def total(of_steps: ArrayLike) -> NDArray[np.float64]:
            weighed = self.log.played * used * of_steps
            return np.bincount(self.shown.ravel(), weighed.ravel(), self.size)

        counts, tables = total(1.0) + self.ridge, [np.zeros(self.size)]
        for _ in range(horizon):
            tables.append(total(self.goals(tables[-1])) / counts)
        return np.array(tables), counts


def _policy(log: SessionLog, target: ArrayLike) -> NDArray[np.float64]:
    """Return a target's probabilities, (n, T, K); behind the end of sessions they mean nothing."""
    target = as_policy("target", target, ("S", log.n_arms))
    known = log.state < len(target)
    log.every_step("state", log.state, known, f"be one of {len(target)} in target")
    return target[log.state]


def _of_next(values: NDArray) -> NDArray:
    """Values (n, T) of the next steps; 0 behind the last."""
    return np.pad(values[:, 1:], [(0, 0), (0, 1)])


def _of_arm(log: SessionLog, values: NDArray) -> NDArray:
    """Entries (n, T) of the arms shown, from an array (n, T, K)."""
    return np.take_along_axis(values, log.arm[..., None], axis=-1)[..., 0]


def _horizon(log: SessionLog, horizon: int | None) -> int:
    """Return how many steps count; where the log has fewer, nothing follows them."""
    return log.arm.shape[1] if horizon is None else as_size("horizon", horizon)


def _estimate(
    weight: NDArray,
    gain: NDArray,
    weighted: bool,
    discount: float,
    start: float | NDArray = 0.0,
) -> Estimate:
    """Estimate the mean of a start (n,) and of what each step gains, weighed, (n, H)."""
    term = weight * gain
    if weighted:
        share = weight.mean(axis=0)
        if not share.all():
            raise ValueError(
                f"target must do what some session did up to each step: got only weights of 0 in step "
                f"{share.argmin()}"
            )
        value = term.mean(axis=0) / share
        term = value + weight * (gain - value) / share
    worth = as_probability("discount", discount) ** np.arange(gain.shape[1])
    return mean_interval(start + term @ worth)
