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
are divided by their mean, and terms are the delta method's, as those of `snips`. Where few sessions with
rewards decide, the estimate's `note` says that the interval is too short: effective rewards are counted as for
visits, with a session in place of a row. Names of arms and states in a table of the target are read as there.

**Sessions that the log cuts** went on after their last step, nobody knows how. If a log has any, estimates need
a `horizon`. Fitted Q evaluation, and models by `cross_fit_q`, learn what followed such a step from the steps of
the same state and arm after which the log goes on; importance sampling and doubly robust estimates look no
further than the shortest of these sessions.

See the chapter on sessions, "Off-policy evaluation of sessions".
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import (
    as_array,
    as_flags,
    as_ids,
    as_positive,
    as_probability,
    as_real,
    as_size,
    every_row,
)
from zoolib._support.labels import Labels
from zoolib._support.tables import (
    column,
    column_labels,
    in_order,
    is_default,
    numbers,
    row_labels,
    same_rows,
)
from zoolib.agents.policies import as_policy
from zoolib.experiments.estimates import Estimate, mean_interval
from zoolib.offpolicy.visits import LARGEST_LOG_WEIGHT, Log, with_rewards

if TYPE_CHECKING:
    import pandas as pd

_FOLDS = 5
# The largest share of the target's choices that a fit may know nothing of.
MOST_UNSEEN = 0.05


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
    cut : array_like of bool, shape (n,), default False
        Whether a session went on after the last step that the log holds.

    Examples
    --------
    >>> SessionLog([[0, -1], [1, 0]], np.ones((2, 2)), [[0.5, 0], [0.5, 0]], n_arms=2)
    Traceback (most recent call last):
    ...
    ValueError: propensity must lie in (0, 1]: got 0.0 in row 1, 1
    """

    arm: NDArray[np.int64]
    reward: NDArray[np.float64]
    propensity: NDArray[np.float64]
    n_arms: int
    state: NDArray[np.int64] | None = None
    cut: ArrayLike = False

    def __post_init__(self) -> None:
        self._same_labels()
        given = np.asarray(self.arm)
        if given.ndim != 2 or len(given) < 2 or given.size == 0:
            raise ValueError(f"arm must have shape (n, T), n >= 2: got {given.shape}")
        played = given != -1
        shape = given.shape
        goes_on = np.maximum.accumulate(played[:, ::-1], axis=1)[:, ::-1]
        goes_on[:, 0] = True
        every_row("arm", given, played | ~goes_on, "leave out no step")
        arm = as_ids("arm", np.where(played, given, 0), as_size("n_arms", self.n_arms))
        reward = np.where(played, as_real("reward", self.reward, shape), 0)
        every_row("reward", reward, np.isfinite(reward), "be finite")
        propensity = as_real("propensity", self.propensity, shape)
        propensity = np.where(played, propensity, 1)
        held = (propensity > 0) & (propensity <= 1)  # NaN is neither
        every_row("propensity", propensity, held, "lie in (0, 1]")
        state = np.arange(given.size).reshape(shape)
        state = np.where(played, state if self.state is None else self.state, 0)
        state = as_ids("state", state, np.iinfo(np.int64).max, shape)
        cut = as_flags("cut", np.asarray(self.cut), shape[:1])
        columns = {"arm": arm, "reward": reward, "propensity": propensity}
        columns |= {"state": state, "played": played, "cut": cut}
        for name, values in columns.items():
            values.setflags(write=False)
            object.__setattr__(self, name, values)

    @classmethod
    def from_frame(
        cls, frame: pd.DataFrame, n_arms: int | Sequence[Hashable] | None = None
    ) -> SessionLog:
        """Read sessions from a table with a row for each step, in any order.

        Its columns are those of `Log.from_frame`, `session`, `step`, which counts 0, 1, … in each session, and
        `state` if there are states. `n_arms` is as there.
        """
        rows = Log.from_frame(frame, n_arms=n_arms)
        step = as_ids("step", column("frame", frame, "step"), len(rows))
        given = column("frame", frame, "session")
        sessions = Labels("session", list(dict.fromkeys(given)))
        session = sessions.places("session", given)
        order = np.lexsort((step, session))
        in_turn = session[order]
        counted = np.arange(len(rows)) - np.searchsorted(in_turn, in_turn)
        wrong = step[order] != counted
        if wrong.any():
            first = in_turn[wrong.argmax()]
            raise ValueError(
                f"step must count 0, 1, … in each session: got {np.sort(step[session == first])} in session "
                f"{sessions.of(first)!r}"
            )
        names = ("arm", "reward", "propensity")
        columns = {name: getattr(rows, name) for name in names}
        if "state" in frame.columns:
            state = column("frame", frame, "state")
            columns["state"] = as_ids("state", state, np.iinfo(np.int64).max)
        for name, values in columns.items():
            table = np.full((len(sessions), step.max() + 1), -1, values.dtype)
            table[session, step] = values
            columns[name] = table
        return cls(**columns, n_arms=rows.n_arms)

    def __len__(self) -> int:
        return len(self.arm)

    def _same_labels(self) -> None:
        """Refuse tables whose sessions or steps are labelled in different orders."""
        names = ("arm", "reward", "propensity", "state")
        tables = {name: getattr(self, name) for name in names}
        same_rows(**tables, cut=self.cut)
        steps = column_labels(self.arm) or tuple(range(np.shape(self.arm)[-1]))
        for name, table in tables.items():
            labels = column_labels(table)
            if labels not in (None, steps) and set(labels) == set(steps):
                raise ValueError(
                    f"{name} must have the columns of arm, {steps}: got {labels}"
                )


def session_weights(log: SessionLog, target: ArrayLike) -> NDArray[np.float64]:
    r"""Return the weights :math:`w_{it}`, shape (n, T); of each step the mean is 1, up to its error."""
    logarithm = _log_weights(log, target)
    held = logarithm < LARGEST_LOG_WEIGHT
    every_row("weight", logarithm, held, f"be below exp({LARGEST_LOG_WEIGHT})")
    return np.exp(logarithm)


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
    `per_decision`, whole sessions are weighted. Unbiased; if `weighted`, the bias falls as 1/n. Weights of long
    sessions may be larger than any number; if `weighted`, this does not matter.
    """
    h = _horizon(log, horizon, whole=True)
    return _estimate(log, target, log.reward[:, :h], weighted, discount, per_decision)


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
    h = _horizon(log, horizon, whole=True)
    policy = _policy(log, target)
    if np.ndim(q) == 2:
        q = as_array("q", _in_order(log, "q", q), np.shape(target))[log.state]
    q = np.where(log.played[..., None], as_array("q", q, policy.shape), 0)
    value = np.vecdot(policy, q)[:, :h]
    after = as_probability("discount", discount) * _of_next(value)
    error = log.reward[:, :h] + after - _of_arm(log, q)[:, :h]
    return _estimate(log, target, error, weighted, discount, start=value[:, 0])


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
    If the target makes more than a twentieth of its choices where the log has none, the `note` says so.
    """
    fits = _Tables(log, target, discount, ridge)
    tables, counts = fits.fit(_horizon(log, horizon))
    term = fits.worth(tables[-1])[:, 0]
    # How often the target comes to a step; at first it is where the sessions begin.
    reached, pulled = np.zeros((2, *log.arm.shape))
    reached[:, 0] = 1
    choices = np.zeros(len(counts))
    for table, later in zip(tables[:0:-1], tables[-2::-1], strict=True):
        chosen = fits.spread(reached)
        choices += chosen
        pull = log.played * (chosen / counts)[fits.shown]
        term += np.vecdot(pull, fits.goals(later) - table[fits.shown])
        pulled += pull
        reached[:, 0] = 0
        reached[:, 1:] = (fits.onward * pull)[:, :-1]
    found = with_rewards(mean_interval(term), [pulled], log.reward, log.played)
    unseen = choices[fits.unseen].sum() / choices.sum()
    if unseen > MOST_UNSEEN:
        note = f"the log lacks {unseen:.0%} of the target's choices"
        return replace(found, note=note)
    return found


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
    fits = _Tables(log, target, discount, ridge)
    h = _horizon(log, horizon)
    to_go = np.maximum(h - np.arange(log.arm.shape[1]), 0)[:, None]
    fold = np.arange(len(log)) % _FOLDS
    q = np.zeros(fits.arms.shape)
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
        self.log = log
        self.policy = _policy(log, target)
        self.discount = as_probability("discount", discount)
        # Per step: the discount of what follows; and per entry, whether the log says nothing of it. See `fit`.
        self.onward = np.empty(0)
        self.unseen = np.empty(0, bool)
        self.ridge = as_positive("ridge", ridge)
        self.size = np.size(target)
        # The entries of each step's arms, (n, T, K), and of the one shown, (n, T).
        self.arms = log.state[..., None] * log.n_arms + np.arange(log.n_arms)
        self.shown = _of_arm(log, self.arms)

    def worth(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return what each step is worth under the target by a table, (n, T); 0 behind the end."""
        return self.log.played * np.vecdot(self.policy, table[self.arms])

    def goals(self, table: NDArray[np.float64]) -> NDArray[np.float64]:
        """Return rewards and the discounted worth of the next steps, (n, T)."""
        return self.log.reward + self.onward * _of_next(self.worth(table))

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

        # Each step after which the log goes on also stands for those after which it is cut.
        goes_on = _of_next(self.log.played)
        last = self.log.played & ~goes_on
        on = total(goes_on)
        cut = total(last & self.log.cut[:, None])
        self.onward = self.discount * (1 + cut / np.maximum(on, 1))[self.shown]
        counts = total(1.0) + self.ridge
        tables = [np.zeros(self.size)]
        self.unseen = (counts == self.ridge) | (cut > on * cut)
        for _ in range(horizon):
            tables.append(total(self.goals(tables[-1])) / counts)
        return np.array(tables), counts


def _policy(log: SessionLog, target: ArrayLike) -> NDArray[np.float64]:
    """Return a target's probabilities, (n, T, K); behind the end of sessions they mean nothing."""
    target = as_policy("target", _in_order(log, "target", target), ("S", log.n_arms))
    known = log.state < len(target)
    every_row("state", log.state, known, f"be one of {len(target)} in target")
    return target[log.state]


def _of_next(values: NDArray) -> NDArray:
    """Values (n, T) of the next steps; 0 behind the last."""
    return np.pad(values[:, 1:], [(0, 0), (0, 1)])


def _of_arm(log: SessionLog, values: NDArray) -> NDArray:
    """Entries (n, T) of the arms shown, from an array (n, T, K)."""
    return np.take_along_axis(values, log.arm[..., None], axis=-1)[..., 0]


def _in_order(log: SessionLog, name: str, table: ArrayLike) -> ArrayLike:
    """Return a table of states and arms in the log's order, after checking its labels."""
    arms = column_labels(table)
    states = row_labels(table)
    if arms is None and (states is None or is_default(states)):
        return table
    rows = in_order(name, states, range(len(table)))
    return numbers(name, table)[rows][:, in_order(name, arms, range(log.n_arms))]


def _horizon(log: SessionLog, horizon: int | None, whole: bool = False) -> int:
    """Return how many steps count; where the log has fewer, nothing follows them, unless it cuts a session."""
    if not log.cut.any():
        return log.arm.shape[1] if horizon is None else as_size("horizon", horizon)
    if horizon is None:
        raise ValueError(
            f"horizon must be given for a log that cuts sessions, as {log.cut.sum()} of {len(log)}: got None"
        )
    shortest = int(log.played[log.cut].sum(axis=1).min())
    if whole and as_size("horizon", horizon) > shortest:
        raise ValueError(
            f"horizon must be at most {shortest}, the steps of the shortest session that the log cuts: got "
            f"{horizon}. fitted_q_evaluation can look further"
        )
    return as_size("horizon", horizon)


def _log_weights(log: SessionLog, target: ArrayLike) -> NDArray[np.float64]:
    """Return the logarithms of the weights, (n, T), which may lie beyond what a number holds."""
    shown = np.where(log.played, _of_arm(log, _policy(log, target)), 1)
    with np.errstate(divide="ignore"):  # what the target never does has weight 0
        return (np.log(shown) - np.log(log.propensity)).cumsum(axis=1)


def _estimate(
    log: SessionLog,
    target: ArrayLike,
    gain: NDArray,
    weighted: bool,
    discount: float,
    per_decision: bool = True,
    start: float | NDArray = 0.0,
) -> Estimate:
    """Estimate the mean of a start (n,) and of what each step gains, weighed, (n, H)."""
    h = gain.shape[1]
    worth = as_probability("discount", discount) ** np.arange(h)
    weight = _log_weights(log, target)[:, :h]
    if not per_decision:
        weight = np.broadcast_to(weight[:, -1:], weight.shape)
    if weighted:
        most = weight.max(axis=0)
        if np.isinf(most).any():
            raise ValueError(
                f"target must do what some session did up to each step: got only weights of 0 in step "
                f"{np.isinf(most).argmax()}"
            )
        # In units of the step's largest; then each step's weights are divided by their mean.
        weight = np.exp(weight - most)
        weight = weight / weight.mean(axis=0)
        value = (weight * gain).mean(axis=0)
        start = start + worth @ value
        gain = gain - value
    else:
        held = weight < LARGEST_LOG_WEIGHT
        every_row("weight", weight, held, f"be below exp({LARGEST_LOG_WEIGHT})")
        weight = np.exp(weight)
    weight = worth * weight
    term = start + np.vecdot(weight, gain)
    rewards = log.reward[:, :h]
    played = log.played[:, :h]
    return with_rewards(mean_interval(term), [weight], rewards, played)
