r"""Off-policy estimates from sessions, in which what is shown now changes what comes next.

Step t = 0, 1, … of session i has an arm :math:`a_{it}`, its propensity :math:`\mu_{it}`, its reward
:math:`r_{it}` and a state or observation :math:`s_{it}`. The session's weight up to this step is
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

Sums run over steps before the `horizon`, or over the T of the longest session; :math:`\beta` is the
`discount`, in [0, 1]. Where ``weighted=True``, the weights of each step are divided by their mean, and terms
are the delta method's, as those of `snips`.

A `target` has shape (n, T, K), or (S, K) for a log with states; so has a model `q`.

See Chapter 6, "What would another policy earn?".
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
from zoolib.agents.policies import SUM_TOLERANCE
from zoolib.experiments.estimates import Estimate, mean_interval
from zoolib.experiments.offpolicy.visits import check_columns

if TYPE_CHECKING:
    import pandas as pd

_FOLDS = 5


@dataclass(frozen=True, eq=False)
class SessionLog:
    """What a policy did in n sessions of up to T steps, checked once and never changed afterwards.

    Parameters
    ----------
    arm : array_like of int, shape (n, T)
        What was shown, in 0 … K - 1, and -1 behind the end of a session; at least two sessions.
    reward, propensity : array_like, shape (n, T)
        What it earned, and the probability, in (0, 1], with which the logging policy showed it. What
        stands behind the end is ignored, as in `state`.
    n_arms : int
        Number K of arms that could have been shown.
    state : array_like of int, shape (n, T), optional
        Numbers of states, where policies or models are tables.
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
            raise ValueError(
                f"arm must have shape (n, T), n >= 2: got {np.shape(given)}"
            )
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
        columns = {"arm": arm, "reward": reward, "propensity": propensity}
        if self.state is not None:
            state = np.where(played, self.state, 0)
            columns["state"] = as_ids("state", state, np.iinfo(np.int64).max, shape)
        for name, column in (columns | {"played": played}).items():
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
        step = as_array("step", frame["step"])
        order = np.argsort(step, kind="stable")
        frame, step = frame.iloc[order], step[order]
        row, sessions = frame["session"].factorize()
        due = frame.groupby(row).cumcount().to_numpy()
        if (wrong := step != due).any():
            i = wrong.argmax()
            twice = step[i] == due[i] - 1
            said = f"has step {step[i]} twice" if twice else f"lacks step {due[i]}"
            raise ValueError(
                f"step must count 0, 1, … in each session: session {sessions[row[i]]!r} {said}"
            )
        columns = {name: frame[name].to_numpy() for name in names}
        shown = frame["arm"].to_list()
        labels = Labels("n_arms", sorted(set(shown)) if n_arms is None else n_arms)
        columns["arm"] = labels.places("arm", shown)
        shape = len(sessions), due.max() + 1
        padded = {name: np.zeros(shape, v.dtype) for name, v in columns.items()}
        padded["arm"] -= 1
        for name, column in columns.items():
            padded[name][row, due] = column
        return cls(**padded, n_arms=len(labels), session=sessions.tolist())


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
    """Estimate what a session earns under the target by importance sampling (Precup, Sutton, Singh 2000).

    A reward owes nothing to what is chosen after it, so it is weighed with the choices up to it; whole
    sessions are weighed if not `per_decision`. Unbiased; if `weighted`, the bias falls as 1/n.
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
    """Estimate what a session earns by a model, and by its weighed errors (Jiang and Li 2016).

    Unbiased if the propensities are right, whatever the model `q`, which must not have seen the session:
    see `cross_fit_q`. The weighted form is that of Thomas and Brunskill (2016).
    """
    h, policy = _horizon(log, horizon), _policy(log, target)
    q = np.where(log.played[..., None], _of_steps("q", log, q), 0)
    value = np.vecdot(policy, as_array("q", q))[:, :h]
    after = np.column_stack([value[:, 1:], np.zeros(len(log))])
    error = log.reward[:, :h] + as_probability("discount", discount) * after
    error -= _of_arm(log, q)[:, :h]
    weight = session_weights(log, policy)[:, :h]
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
    steps = _Steps(log, target, discount, ridge)
    tables, counts = steps.fit(_horizon(log, horizon))
    first = np.flatnonzero(np.nonzero(log.played)[1] == 0)
    # How much the mean moves with a table's entry, back from the start, and what each step adds.
    begins = np.bincount(first, minlength=len(steps.shown)) / len(log)
    pull, moved = steps.spread(begins) / counts, 0.0
    for table, later in zip(tables[:0:-1], tables[-2::-1], strict=True):
        of_step = pull[steps.shown]
        moved += of_step * (steps.goals(later) - table[steps.shown])
        pull = steps.spread(np.append(0, (steps.goes_on * of_step)[:-1])) / counts
    by_session = len(log) * np.add.reduceat(moved, first)
    return mean_interval(steps.worth(tables[-1])[first] + by_session)


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
    steps, h = _Steps(log, target, discount, ridge), _horizon(log, horizon)
    session, step = np.nonzero(log.played)
    to_go = np.maximum(h - step, 0)[:, None]
    q = np.zeros((*log.arm.shape, log.n_arms))
    for k in range(_FOLDS):
        mine = session % _FOLDS == k
        tables, _ = steps.fit(h, ~mine)
        q[session[mine], step[mine]] = tables[to_go[mine], steps.arms[mine]]
    return q


class _Steps:
    """The N steps of a log, session by session, and tables (S K,) of values that are fitted to them."""

    def __init__(
        self, log: SessionLog, target: ArrayLike, discount: float, ridge: float
    ) -> None:
        self.ridge, k = as_positive("ridge", ridge), log.n_arms
        self.policy, self.reward = (
            _policy(log, target)[log.played],
            log.reward[log.played],
        )
        # The entries of each step's arms in a table, (N, K), and of the one shown.
        self.arms = _states(log)[log.played][:, None] * k + np.arange(k)
        self.shown = self.arms[np.arange(len(self.arms)), log.arm[log.played]]
        self.size = self.arms.max() + 1
        # What the value of the next row counts: nothing behind the end of a session.
        same = np.diff(np.nonzero(log.played)[0], append=-1) == 0
        self.goes_on = as_probability("discount", discount) * same

    def worth(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what each step is worth under the target by a table, (N,)."""
        return np.vecdot(self.policy, table[self.arms])

    def goals(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rewards and the discounted worth of the next step, (N,)."""
        return self.reward + self.goes_on * np.append(self.worth(table)[1:], 0)

    def spread(self, weight: NDArray[np.float64]) -> NDArray[np.float64]:
        """Add up weights of steps (N,) by the entries of the arms that the target would show."""
        shares = weight[:, None] * self.policy
        return np.bincount(self.arms.ravel(), shares.ravel(), self.size)

    def fit(
        self, horizon: int, used: NDArray[np.bool_] | None = None
    ) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
        """Fit a table for 0 to H steps to go, (H + 1, S K), by ridge regression; also return its counts."""
        used = np.ones(len(self.shown)) if used is None else used
        counts = np.bincount(self.shown, used, self.size) + self.ridge
        tables = np.zeros((horizon + 1, self.size))
        for h in range(horizon):
            earned = np.bincount(self.shown, used * self.goals(tables[h]), self.size)
            tables[h + 1] = earned / counts
        return tables, counts


def _states(log: SessionLog) -> NDArray[np.int64]:
    if log.state is None:
        raise ValueError("state must be in a log that tables are used with: got None")
    return log.state


def _of_steps(name: str, log: SessionLog, values: ArrayLike) -> NDArray[np.float64]:
    """Return values (n, T, K) of steps, given as they are or as a table (S, K) of states."""
    values, steps = (
        as_real(name, values, (..., log.n_arms)),
        (*log.arm.shape, log.n_arms),
    )
    if values.shape == steps:
        return values
    if values.ndim != 2:
        raise ValueError(
            f"{name} must have shape {steps} or (S, {log.n_arms}): got {values.shape}"
        )
    known = _states(log) < len(values)
    log.every_step("state", log.state, known, f"be one of {len(values)} in {name}")
    return values[log.state]


def _policy(log: SessionLog, target: ArrayLike) -> NDArray[np.float64]:
    """Return a target's checked probabilities, (n, T, K); behind the end of sessions they mean nothing."""
    policy = _of_steps("target", log, target)
    policy = np.where(log.played[..., None], policy, 1 / log.n_arms)
    total = policy.sum(axis=-1)
    held = (policy >= 0).all(axis=-1) & (abs(total - 1) <= SUM_TOLERANCE)
    wanted = "hold probabilities of 0 or more that sum to 1"
    log.every_step("target", total, held, wanted)
    return policy


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
