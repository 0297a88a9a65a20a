r"""Off-policy estimates from sessions, in which what is shown now changes what comes next.

Step t = 0, 1, … of session i holds the state or observation :math:`s_{it}`, the arm :math:`a_{it}`, its
propensity and the reward :math:`r_{it}`. The ratios of one step multiply to the weight of a beginning,
:math:`w_{it} = \prod_{u \le t} \pi(a_{iu} \mid s_{iu}) / \mu_{iu}`, which a session keeps when it has ended.
With the discount :math:`\beta`, a horizon H (all steps if None), a model :math:`\hat q` of what a step and
those that follow it earn under the target, and :math:`\hat v = \sum_a \pi(a \mid s)\, \hat q(s, a)`, the
estimates are means of n terms with Student's interval at 95 per cent:

======================== =========================================================================
estimator                term of session i
======================== =========================================================================
`trajectory`             :math:`w_{i,H-1} \sum_t \beta^t r_{it}`
`per_decision`           :math:`\sum_t \beta^t w_{it} r_{it}`
`session_doubly_robust`  :math:`\hat v_{i0} + \sum_t \beta^t w_{it} \delta_{it}`, with the error
                         :math:`\delta_{it} = r_{it} + \beta \hat v_{i,t+1} - \hat q_{it}`
`fitted_q_evaluation`    :math:`\hat v_{i0}`, and how far session i moved the fit
======================== =========================================================================

Weighted forms divide the mean of each step by that of its weights. Then a term of step t is
:math:`V_t + w_{it} (y_{it} - V_t) / \bar w_t`, where y is what was weighed and :math:`V_t` its weighted mean:
the delta method, which needs no resampling and gives the same numbers each time.

The target is an array ``(n, T, K)`` of probabilities for each step, or a table ``(S, K)`` for logs with
states; so is :math:`\hat q`. Sessions count as independent. See Chapter 6, "What would another policy earn?".
"""

from __future__ import annotations

from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy import sparse
from scipy.sparse.linalg import splu

from zoolib._support.checks import (
    as_array,
    as_ids,
    as_positive,
    as_probability,
    as_real,
    as_size,
    every_row,
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
        What was shown, in 0 … K - 1; at least two sessions. What stands behind a session's end is ignored,
        here and in the arrays that follow.
    reward : array_like, shape (n, T)
        What it earned.
    propensity : array_like, shape (n, T)
        Probability, in (0, 1], with which the logging policy showed it.
    length : array_like of int, shape (n,)
        Number of steps of each session, in 1 … T.
    n_arms : int
        Number K of arms that could have been shown.
    state : array_like of int, shape (n, T), optional
        Numbers of states, where targets or models are tables.
    session : sequence of hashable, shape (n,), optional
        Names of sessions, for errors; 0, 1, … if omitted.

    Examples
    --------
    >>> SessionLog([[0, 1], [1, 0]], np.ones((2, 2)), [[0.5, 0.5], [0.5, 0]], [1, 2], 2)
    Traceback (most recent call last):
    ...
    ValueError: propensity must lie in (0, 1]: got 0.0 in step 1 of session 1
    """

    arm: NDArray[np.int64]
    reward: NDArray[np.float64]
    propensity: NDArray[np.float64]
    length: NDArray[np.int64]
    n_arms: int
    state: NDArray[np.int64] | None = None
    session: Sequence[Hashable] | None = None

    def __post_init__(self) -> None:
        shape = np.shape(self.arm)
        if len(shape) != 2 or shape[0] < 2:
            raise ValueError(f"arm must have shape (n, T), n >= 2: got {shape}")
        length = as_ids("length", self.length, shape[1] + 1, shape[:1]).copy()
        every_row("length", length, length > 0, "be at least 1")
        names = range(shape[0]) if self.session is None else list(self.session)
        if len(names) != shape[0]:
            raise ValueError(
                f"session must hold {shape[0]} names: got {len(names)} of them"
            )
        object.__setattr__(self, "session", names)
        object.__setattr__(self, "n_arms", as_size("n_arms", self.n_arms))
        played = np.arange(shape[1]) < length[:, None]
        object.__setattr__(self, "played", played)
        reward = np.where(played, as_real("reward", self.reward, shape), 0)
        self.every_step("reward", reward, np.isfinite(reward), "be finite")
        propensity = as_real("propensity", self.propensity, shape)
        propensity = np.where(played, propensity, 1)
        held = (propensity > 0) & (propensity <= 1)  # NaN is neither
        self.every_step("propensity", propensity, held, "lie in (0, 1]")
        arm = as_ids("arm", np.where(played, self.arm, 0), self.n_arms, shape)
        columns = {"arm": arm, "reward": reward, "propensity": propensity}
        if self.state is not None:
            state = np.where(played, self.state, 0)
            columns["state"] = as_ids("state", state, np.iinfo(np.int64).max, shape)
        for name, column in (columns | {"length": length, "played": played}).items():
            column.setflags(write=False)
            object.__setattr__(self, name, column)

    def __len__(self) -> int:
        return len(self.length)

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
        cls,
        frame: pd.DataFrame,
        *,
        session: str = "session",
        step: str = "step",
        arm: str = "arm",
        reward: str = "reward",
        propensity: str = "propensity",
        state: str | None = None,
        n_arms: int | Sequence[Hashable] | None = None,
    ) -> SessionLog:
        """Read sessions from a table of their steps, in any order, by the names of its columns.

        Parameters
        ----------
        frame : pandas.DataFrame
            One row for each step.
        session, step : str
            Columns that hold a session's name and, for each session, 0, 1, 2, … without gaps.
        arm, reward, propensity, state : str
            Columns that hold what `SessionLog` takes.
        n_arms : int, or sequence of hashable, optional
            Number of arms or, if the column holds labels, these in the order of a target's columns; the
            labels that were shown, in order, if omitted.
        """
        columns = {"arm": arm, "reward": reward, "propensity": propensity}
        columns |= {"state": state} if state else {}
        check_columns(frame, [session, step, *columns.values()])
        row, names = frame[session].factorize()
        at = as_ids("step", frame[step].to_numpy(), np.iinfo(np.int64).max)
        length = np.bincount(row)
        _check_steps(row, at, length, names)
        shown = frame[arm].to_list()
        labels = Labels("n_arms", sorted(set(shown)) if n_arms is None else n_arms)
        values = {name: frame[column].to_numpy() for name, column in columns.items()}
        values["arm"] = labels.places("arm", shown)
        padded = {}
        for name, value in values.items():
            padded[name] = np.zeros((len(length), max(length, default=0)), value.dtype)
            padded[name][row, at] = value
        return cls(**padded, length=length, n_arms=len(labels), session=names)


def _check_steps(
    row: NDArray, at: NDArray, length: NDArray, names: Sequence[Hashable]
) -> None:
    """Refuse steps (N,) of sessions, given by their places (N,), that are not 0, 1, … in each session."""
    order = np.lexsort((at, row))
    row, at = row[order], at[order]
    wanted = np.arange(len(at)) - np.repeat(length.cumsum() - length, length)
    wrong = np.flatnonzero(at != wanted)
    if len(wrong):
        first = wrong[0]
        said = f"lacks step {wanted[first]}"
        if at[first] < wanted[first]:
            said = f"has step {at[first]} twice, as if two sessions overlapped"
        raise ValueError(
            f"step must count 0, 1, … in each session: session {names[row[first]]!r} {said}"
        )


def session_weights(log: SessionLog, target: ArrayLike) -> NDArray[np.float64]:
    r"""Return the weights :math:`w_{it}` of the sessions' beginnings, shape (n, T).

    They are how much more often than the logging policy the target makes the choices up to step t. Of each
    step the mean is 1, up to its error.
    """
    return _weights(log, _target(log, target))


def effective_sessions(log: SessionLog, target: ArrayLike) -> NDArray[np.float64]:
    r"""Return the effective sample size of each step, :math:`(\sum_i w_{it})^2 / \sum_i w_{it}^2`; shape (T,).

    About as many sessions served by the target itself would tell as much (Kish 1965).
    """
    weight = session_weights(log, target)
    squares = (weight**2).sum(axis=0)
    return weight.sum(axis=0) ** 2 / np.where(squares > 0, squares, 1)


def trajectory(
    log: SessionLog,
    target: ArrayLike,
    weighted: bool = False,
    discount: float = 1.0,
    horizon: int | None = None,
) -> Estimate:
    """Estimate what a session earns under the target by weighing whole sessions.

    Unbiased; in the weighted form its bias falls as 1/n.

    Parameters
    ----------
    log, target
        The sessions, and the policy that is judged.
    weighted : bool, default False
        Divide by the mean weight.
    discount : float, default 1.0
        What a reward one step later is worth, in [0, 1].
    horizon : int, optional
        Number of steps that count; all if omitted.
    """
    weight = session_weights(log, target)
    h = _horizon(log, horizon)
    whole = np.broadcast_to(weight[:, h - 1, None], (len(log), h))
    return _estimate(whole, log.reward[:, :h], weighted, discount)


def per_decision(
    log: SessionLog,
    target: ArrayLike,
    weighted: bool = False,
    discount: float = 1.0,
    horizon: int | None = None,
) -> Estimate:
    """Estimate what a session earns by weighing each reward with the choices made up to it.

    A reward owes nothing to later choices, so their ratios, of mean 1, are left out (Precup, Sutton, Singh
    2000). Parameters, and what is unbiased, are those of `trajectory`.
    """
    h = _horizon(log, horizon)
    weight = session_weights(log, target)[:, :h]
    return _estimate(weight, log.reward[:, :h], weighted, discount)


def session_doubly_robust(
    log: SessionLog,
    target: ArrayLike,
    q: ArrayLike,
    weighted: bool = False,
    discount: float = 1.0,
    horizon: int | None = None,
) -> Estimate:
    """Estimate what a session earns by a model, corrected by its weighted errors (Jiang and Li 2016).

    Unbiased if the propensities are right, whatever the model. The weighted form is that of Thomas and
    Brunskill (2016). A model of 0 gives `per_decision`.

    Parameters
    ----------
    log, target, weighted, discount, horizon
        As for `trajectory`.
    q : array_like, shape (n, T, K) or (S, K)
        What an arm and, from the next step on, the target are expected to earn up to the horizon, by a model
        that has not seen the session: see `cross_fit_q`.
    """
    target, h = _target(log, target), _horizon(log, horizon)
    q = as_array("q", _of_steps("q", log, q))
    value = np.vecdot(target, q)[:, :h]
    after = np.column_stack([value[:, 1:], np.zeros(len(log))])
    error = log.reward[:, :h] + as_probability("discount", discount) * after
    error -= _of_arm(log, q)[:, :h]
    weight = _weights(log, target)[:, :h]
    return _estimate(weight, error, weighted, discount, value[:, 0])


def fitted_q_evaluation(
    log: SessionLog,
    target: ArrayLike,
    features: ArrayLike | None = None,
    discount: float = 1.0,
    horizon: int | None = None,
    ridge: float = 1.0,
) -> Estimate:
    """Estimate what a session earns by values fitted backwards, from the last step to the first.

    It uses no propensities, and is as wrong as its features are poor. If they are not, the interval tells
    how the chance of the log moved the fit: to first order each session moves it by its errors, weighed by
    how much more often than the log the target comes to such a step (Duan, Jia, Wang 2020). The mean holds
    this correction, too, which undoes most of what the ridge shrinks.

    Parameters
    ----------
    log, target, discount, horizon
        As for `trajectory`.
    features : array_like, shape (S, K, d) or (n, T, K, d), optional
        Features of arms in states, or in the sessions' steps; a value for each state and arm if omitted.
    ridge : float, default 1.0
        Weight of the prior, above 0.
    """
    steps = _Steps(log, _target(log, target), features, discount, ridge)
    theta, solve = steps.fit(_horizon(log, horizon))
    first = log.length.cumsum() - log.length
    start = (steps.under_target @ theta[-1])[first]
    # Back from the start: how much the mean would move with the value of a step, when so many are to go.
    pull = np.bincount(first, minlength=len(steps.reward)) / len(log)
    moved = np.zeros(len(pull))
    for after, now in zip(theta[-2::-1], theta[:0:-1], strict=True):
        ratio = steps.shown @ solve(steps.under_target.T @ pull)
        moved += ratio * (steps.goals(after) - steps.shown @ now)
        pull = steps.discount * np.append(0, (ratio * ~steps.last)[:-1])
    return mean_interval(start + len(log) * np.add.reduceat(moved, first))


def cross_fit_q(
    log: SessionLog,
    target: ArrayLike,
    features: ArrayLike | None = None,
    discount: float = 1.0,
    horizon: int | None = None,
    ridge: float = 1.0,
) -> NDArray[np.float64]:
    """Return values of each step's arms up to the horizon, by models that never saw the session.

    Fold k of five is sessions k, k + 5, …; its model is fitted as in `fitted_q_evaluation`, which has the
    same parameters, to the rest. The shape is (n, T, K), with 0 where nothing is to come.
    """
    steps = _Steps(log, _target(log, target), features, discount, ridge)
    h = _horizon(log, horizon)
    session, step = np.nonzero(log.played)
    to_go = np.maximum(h - step, 0)
    q = np.zeros((*log.arm.shape, log.n_arms))
    for k in range(_FOLDS):
        theta, _ = steps.fit(h, session % _FOLDS != k)
        mine = session % _FOLDS == k
        values = steps.every[np.repeat(mine, log.n_arms)] @ theta.T
        values = values.reshape(-1, log.n_arms, h + 1)
        n = np.arange(len(values))
        q[session[mine], step[mine]] = values[n, :, to_go[mine]]
    return q


class _Steps:
    """The N played steps of a log, session by session, as rows of features: sparse if one-hot.

    Parameters are those of `fitted_q_evaluation`; the target has shape (n, T, K).
    """

    def __init__(
        self,
        log: SessionLog,
        target: NDArray,
        features: ArrayLike | None,
        discount: float,
        ridge: float,
    ) -> None:
        self.discount = as_probability("discount", discount)
        self.ridge = as_positive("ridge", ridge)
        target, played, k = target[log.played], log.played, log.n_arms
        n = len(target)
        edges = np.arange(n * k + 1)
        if features is None:
            place = _states(log)[played, None] * k + np.arange(k)
            ones = np.ones(n * k)
            self.every = sparse.csr_array((ones, place.ravel(), edges))
        else:
            features = as_array("features", features, (..., k, "d"), np.float64)
            x = _of_steps("features", log, features)[played]
            self.every = x.reshape(n * k, -1)
        self.shown = self.every[np.arange(n) * k + log.arm[played]]
        mix = sparse.csr_array((target.ravel(), edges[:-1], edges[::k]))
        self.under_target = mix @ self.every
        self.reward = log.reward[played]
        self.last = np.append(np.diff(np.nonzero(played)[0]) > 0, True)

    def goals(self, theta: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return the rewards and the discounted value of the next step by a model, (N,)."""
        after = np.append((self.under_target @ theta)[1:], 0)
        return self.reward + self.discount * np.where(self.last, 0, after)

    def fit(
        self, horizon: int, used: ArrayLike = True
    ) -> tuple[NDArray[np.float64], Callable[[NDArray], NDArray]]:
        """Fit a model for 0, 1, …, H steps to go, (H + 1, d), to some steps (N,); also return the solver."""
        x = sparse.diags_array(np.broadcast_to(used, self.last.shape) * 1.0)
        x = x @ self.shown
        prior = self.ridge * sparse.eye_array(x.shape[1])
        solve = splu(sparse.csc_array(sparse.csc_array(x.T @ x) + prior)).solve
        theta = [np.zeros(x.shape[1])]
        for _ in range(horizon):
            theta.append(solve(x.T @ self.goals(theta[-1])))
        return np.array(theta), solve


def _states(log: SessionLog) -> NDArray[np.int64]:
    """Return the states of a log that has them."""
    if log.state is None:
        raise ValueError("state must be in the log for tables: got None")
    return log.state


def _of_steps(name: str, log: SessionLog, values: NDArray) -> NDArray:
    """Return values (n, T, K, ...) of steps, given as they are or as a table (S, K, ...) of states."""
    if values.shape[:2] == log.arm.shape and values.shape[2:3] == (log.n_arms,):
        return values
    if values.shape[1:2] != (log.n_arms,):
        steps = (*log.arm.shape, log.n_arms)
        raise ValueError(
            f"{name} must have shape {steps} or (S, {log.n_arms}): got {values.shape}"
        )
    known = (_states(log) < len(values)) | ~log.played
    log.every_step(
        "state", log.state, known, f"be a row of {name}, {len(values)} in all"
    )
    return values[log.state]


def _target(log: SessionLog, target: ArrayLike) -> NDArray[np.float64]:
    """Return a policy's checked probabilities, shape (n, T, K), with 0 where nothing was played."""
    target = _of_steps("target", log, as_real("target", target, (..., log.n_arms)))
    total = np.where(log.played, target.sum(axis=-1), 1)
    fits = ~log.played | (
        (target >= 0).all(axis=-1) & (abs(total - 1) <= SUM_TOLERANCE)
    )
    log.every_step("target", total, fits, "hold probabilities that sum to 1")
    return np.where(log.played[..., None], target, 0)


def _weights(log: SessionLog, target: NDArray) -> NDArray[np.float64]:
    ratio = np.where(log.played, _of_arm(log, target) / log.propensity, 1)
    return ratio.cumprod(axis=1)


def _of_arm(log: SessionLog, values: NDArray) -> NDArray:
    """Entries (n, T) of the arms shown, from an array (n, T, K)."""
    return np.take_along_axis(values, log.arm[..., None], axis=-1)[..., 0]


def _horizon(log: SessionLog, horizon: int | None) -> int:
    """Return how many steps of the log count."""
    longest = log.arm.shape[1]
    return longest if horizon is None else min(as_size("horizon", horizon), longest)


def _estimate(
    weight: NDArray,
    gain: NDArray,
    weighted: bool,
    discount: float,
    start: float | NDArray = 0.0,
) -> Estimate:
    """Estimate the mean of what steps (n, H) are worth, weighed, and of a start (n,)."""
    term = weight * gain
    if weighted:
        share = weight.mean(axis=0)
        if not share.all():
            raise ValueError(
                f"horizon must be at most {share.argmin()}, as no session goes on as the target would: "
                f"got {len(share)}"
            )
        value = term.mean(axis=0) / share
        term = value + weight * (gain - value) / share
    worth = as_probability("discount", discount) ** np.arange(term.shape[1])
    return mean_interval(start + term @ worth)
