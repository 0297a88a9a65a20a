r"""Off-policy estimates from visits that do not influence each other.

Row i of a log holds the arm :math:`a_i` that was shown, the reward :math:`r_i` it earned, and the
propensity :math:`\mu_i = \mu(a_i \mid x_i)`, the probability with which the logging policy :math:`\mu`
showed it. A target policy :math:`\pi` is an array ``(n, K)``: row i holds :math:`\pi(a \mid x_i)` for
each arm a, so a deterministic policy is one-hot.

With the importance weights :math:`\rho_i = \pi(a_i \mid x_i) / \mu_i` and an outcome model
:math:`\hat p(x, a)`, every estimator here returns the mean of n terms with Student's interval at 95 per cent:

==================== ==============================================================================
estimator            term of row i
==================== ==============================================================================
`ips`                :math:`\rho_i r_i`, or :math:`\min(\rho_i, c)\, r_i` when clipped
`snips`              :math:`V + \rho_i (r_i - V) / \bar\rho`, with
                     :math:`V = \sum \rho_i r_i / \sum \rho_i`
`direct_method`      :math:`\sum_a \pi(a \mid x_i)\, \hat p(x_i, a)`
`doubly_robust`      the direct method's, plus :math:`\rho_i (r_i - \hat p(x_i, a_i))`
==================== ==============================================================================

**Few rewards.** Student's interval is too short where few rewards decide. Their effective number, in weighted
rows, is the lesser of :math:`(\sum u_i)^2 / \sum u_i^2` for :math:`u_i = \rho_i (r_i - \min r)` and for
:math:`u_i = \rho_i (\max r - r_i)`. Below `LEAST_REWARDS` the interval is *widened*: it reaches as far as if
the log had one more row, of the most extreme weight and error that are in it. If all rewards are alike, or no
weight is positive, there is *no interval*, and the ends are infinite. The estimate's `note` says so.

The functions take a `Log` of n rows and K arms; as `target` the policy that is judged, shape (n, K), rows
summing to 1; and as `predicted` a model's expected reward of each arm for each row, shape (n, K). Tables with
names of arms as columns are read by these; rows must have the log's labels in the log's order.

The intervals take rows as independent. In the log of an agent that learns from it, rows are not: the
propensities of a row depend on earlier rewards. IPS and DR stay unbiased there, for each propensity is
right given the past, but the coverage of the intervals must then be checked by simulation.

See Chapter 6, "What would the other team have earned?".
"""

from __future__ import annotations

from collections.abc import Hashable, Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import TYPE_CHECKING

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import as_array, as_real, every_row
from zoolib._support.labels import Labels
from zoolib._support.tables import (
    check_rows,
    column,
    column_labels,
    in_order,
    numbers,
    row_labels,
    same_rows,
)
from zoolib.agents.policies import as_policy
from zoolib.experiments.estimates import Estimate, mean_interval
from zoolib.models.posterior import RidgePosterior

if TYPE_CHECKING:
    import pandas as pd

# Below this number of effective rewards, intervals are widened: see the evidence behind Chapter 6.
LEAST_REWARDS = 27
SHORT = "too short"
# Weights below this times rewards below 1e15 are finite.
LARGEST_LOG_WEIGHT = 660


@dataclass(frozen=True, eq=False)
class Log:
    """The log of a policy, one row per visit, checked once and never changed afterwards.

    The contexts stay with the caller, who computes a target policy's probabilities and a model's
    predictions for these rows from them.

    Parameters
    ----------
    arm : array_like of int or labels, shape (n,)
        The arms shown, in at least two rows. They are stored as positions, in 0 … K - 1.
    reward : array_like, shape (n,)
        Their rewards.
    propensity : array_like, shape (n,)
        Probability, in (0, 1], with which the logging policy showed this arm to this visitor.
    version : array_like of int or str, shape (n,), or one for all rows
        The model that chose.
    n_arms : int, or sequence of hashable
        Number K of arms that could have been shown, or their labels, in the order of a target's columns.

    Attributes
    ----------
    arms : sequence
        The labels, or 0, 1, …, K - 1.
    row_labels : pandas.Index, or None
        The labels of the rows, if the columns came with some.

    Examples
    --------
    >>> Log(arm=[0, 1], reward=[1, 0], propensity=[0.9, 0.0], version=3, n_arms=2)
    Traceback (most recent call last):
    ...
    ValueError: propensity must lie in (0, 1]: got 0.0 in row 1
    """

    arm: NDArray[np.int64]
    reward: NDArray[np.float64]
    propensity: NDArray[np.float64]
    version: NDArray
    n_arms: int

    def __post_init__(self) -> None:
        arms = Labels("n_arms", self.n_arms)
        names = ("arm", "reward", "propensity", "version")
        rows = same_rows(**{name: getattr(self, name) for name in names})
        if np.ndim(self.arm) == 0 or len(self.arm) < 2:
            raise ValueError(
                f"arm must have shape (n,), n >= 2: got {np.shape(self.arm)}"
            )
        arm = arms.places("arm", self.arm).copy()
        if arm.ndim != 1:
            raise ValueError(f"arm must have shape (n,), n >= 2: got {arm.shape}")
        reward = as_array("reward", self.reward, arm.shape).astype(float)
        propensity = as_real("propensity", self.propensity, arm.shape)
        held = (propensity > 0) & (propensity <= 1)  # NaN is neither
        every_row("propensity", propensity, held, "lie in (0, 1]")
        version = _versions(self.version, arm.shape)
        columns = {"arm": arm, "reward": reward}
        columns |= {"propensity": propensity, "version": version}
        for name, values in columns.items():
            values.setflags(write=False)
            object.__setattr__(self, name, values)
        object.__setattr__(self, "arms", arms)
        object.__setattr__(self, "row_labels", rows)
        object.__setattr__(self, "n_arms", len(arms))

    def __len__(self) -> int:
        return len(self.arm)

    @classmethod
    def from_frame(
        cls,
        frame: pd.DataFrame,
        *,
        arm: str = "arm",
        reward: str = "reward",
        propensity: str = "propensity",
        version: str | None = None,
        n_arms: int | Sequence[Hashable] | None = None,
    ) -> Log:
        """Read a log from a table, such as a CSV file makes, by the names of its columns.

        Parameters
        ----------
        frame : DataFrame of pandas or polars
            One row for each visit.
        arm, reward, propensity : str
            Columns that hold what `Log` takes.
        version : str, optional
            Column of the model that chose; the rows are all of one, "log", if omitted.
        n_arms : int, or sequence of hashable, optional
            As for `Log`; the labels that were shown, in order, if omitted. Arms that could have been shown
            and never were are then missing.
        """
        names = {"arm": arm, "reward": reward, "propensity": propensity}
        if version:
            names["version"] = version
        columns = {role: column("frame", frame, name) for role, name in names.items()}
        shown = columns["arm"]
        if n_arms is None:  # labels of several types have no order of their own
            n_arms = sorted(set(shown), key=lambda one: (type(one).__name__, one))
        log = cls(**{"version": "log"} | columns, n_arms=n_arms)
        object.__setattr__(log, "row_labels", row_labels(frame))
        return log

    def check_rows(self, name: str, table: object) -> None:
        """Refuse a table whose rows are labelled in another order than the log's."""
        own = range(len(self)) if self.row_labels is None else self.row_labels
        check_rows(name, row_labels(table), "log", own)

    def where(self, rows: ArrayLike | slice) -> Log:
        """Return some of the rows, at least two: by a slice, their numbers, or a boolean for each."""
        self.check_rows("rows", rows)
        rows = rows if isinstance(rows, slice) else np.asarray(rows)
        names = ("arm", "reward", "propensity", "version")
        arm, *rest = (getattr(self, name)[rows] for name in names)
        log = Log(self.arms.of(arm), *rest, n_arms=self.arms.setting())
        if self.row_labels is not None:
            object.__setattr__(log, "row_labels", self.row_labels[rows])
        return log


def importance_weights(log: Log, target: ArrayLike) -> NDArray[np.float64]:
    r"""Return :math:`\rho_i = \pi(a_i \mid x_i) / \mu_i`, shape (n,).

    That is how much more often than the logging policy the target shows this arm to this visitor.
    """
    with np.errstate(over="ignore"):
        weight = _of_arm(log, _target(log, target)) / log.propensity
    held = weight < np.exp(LARGEST_LOG_WEIGHT)
    every_row("propensity", log.propensity, held, "be large enough for a finite weight")
    return weight


def mean_weight(log: Log, target: ArrayLike, level: float = 0.95) -> Estimate:
    r"""Estimate the mean importance weight, which must be 1: a check of the log.

    :math:`\mathbb{E}[\rho] = \mathbb{E} \sum_a \pi(a \mid x)` over the arms that could be logged. It is
    less than 1 where the target shows arms that the logging policy never did, and seldom 1 where
    propensities are wrong. An interval that misses 1 is an alarm; one that holds it proves nothing: arms of
    tiny propensity may just not have come, and then the interval is too narrow, too.
    """
    return mean_interval(importance_weights(log, target), level)


def effective_sample_size(log: Log, target: ArrayLike) -> float:
    r"""Return :math:`(\sum \rho_i)^2 / \sum \rho_i^2`, in rows: between 0 and n (Kish 1965).

    About this number of rows logged by the target itself would give the same precision. Zero if no weight
    is positive. A short log may lack rare, large weights, and the result is then too high: if the logging
    policy is known, :math:`n / \mathbb{E} \sum_a \pi(a \mid x)^2 / \mu(a \mid x)`
    predicts it.
    """
    return _effective(importance_weights(log, target))


def ips(log: Log, target: ArrayLike, clip: float = np.inf) -> Estimate:
    """Estimate the target's value by inverse propensity scoring (Horvitz and Thompson 1952).

    Unbiased if the propensities are right and the log can contain every arm that the target shows. Clipping
    lowers the variance but adds a bias: for rewards of 0 or more the estimate is too low, and the interval is
    an interval for that lower number.

    Parameters
    ----------
    log, target
        The log, and the policy that is judged.
    clip : float, default infinity
        Weights above this count as this; above 0.

    Examples
    --------
    >>> log = Log([0, 1, 0, 1], [1, 1, 0, 1], [0.8, 0.2, 0.8, 0.2], version=3, n_arms=2)
    >>> always_1 = np.array([[0, 1]] * 4)
    >>> ips(log, always_1).mean
    2.5
    >>> snips(log, always_1).mean
    1.0
    """
    if not clip > 0:
        raise ValueError(f"clip must be above 0: got {clip}")
    weight = np.minimum(importance_weights(log, target), clip)
    return _of_visits(log, weight, log.reward)


def lead(log: Log, target: ArrayLike, other: ArrayLike | None = None) -> Estimate:
    r"""Estimate the target's value minus that of another policy, or of the logging policy.

    The mean of :math:`(\rho_i - \rho'_i)\, r_i`, where :math:`\rho'_i` is the weight of the other policy,
    and 1 for what served. Both are judged on the same rows, so noise that they share cancels.

    Parameters
    ----------
    log, target
        The log, and the policy that is judged.
    other : array_like, shape (n, K), optional
        The policy that it is held against; what served if omitted.

    Examples
    --------
    >>> log = Log([0, 1, 0, 1], [1, 1, 0, 1], [0.8, 0.2, 0.8, 0.2], version=3, n_arms=2)
    >>> lead(log, np.array([[0, 1]] * 4)).mean
    1.75
    """
    weight = importance_weights(log, target)
    against = np.ones(len(log)) if other is None else importance_weights(log, other)
    counted = (weight, against)
    return _of_visits(log, weight - against, log.reward, counted=counted)


def snips(log: Log, target: ArrayLike) -> Estimate:
    r"""Estimate the target's value by self-normalised IPS (Swaminathan and Joachims 2015).

    :math:`V = \sum \rho_i r_i / \sum \rho_i` never leaves the range of the rewards, nor depends on a
    constant factor of the propensities. Its bias falls as 1/n. The interval is the delta method's: to
    first order a ratio of means moves like the mean of :math:`V + \rho_i (r_i - V) / \bar\rho`.

    Raises
    ------
    ValueError
        If no weight is positive: the log then holds no arm that the target would show.
    """
    weight = importance_weights(log, target)
    if not weight.any():
        raise ValueError(
            f"target must show an arm that was logged: got {len(log)} weights of 0"
        )
    weight = weight / weight.max()  # the size does not matter
    value = weight @ log.reward / weight.sum()
    return _of_visits(log, weight / weight.mean(), log.reward - value, value)


def direct_method(target: ArrayLike, predicted: ArrayLike) -> Estimate:
    """Estimate the target's value by a model's predictions of all rewards.

    Its bias is that of the model. The interval covers the sampling of visitors, not the model's error.
    """
    same_rows(target=target, predicted=predicted)
    arms = column_labels(target)
    theirs = column_labels(predicted)
    target = as_policy("target", target)
    if target.ndim != 2:
        raise ValueError(f"target must have shape (n, K): got {target.shape}")
    predicted = as_array("predicted", predicted, target.shape)
    if arms is not None:
        predicted = predicted[:, in_order("predicted", theirs, arms)]
    return mean_interval(np.vecdot(target, predicted))


def doubly_robust(log: Log, target: ArrayLike, predicted: ArrayLike) -> Estimate:
    """Estimate the target's value by a model, corrected by weighted residuals (Dudík et al. 2011).

    Unbiased if the propensities are right, whatever the model, or if the model is right, whatever the
    propensities. Either way the model of a row must not have been fitted to its reward: see
    `cross_fit`. The better the model, the smaller the residuals and with them the variance.

    References
    ----------
    Dudík, Langford, Li (2011), "Doubly robust policy evaluation and learning"; Dudík, Erhan, Langford,
    Li (2014), "Doubly robust policy evaluation and optimization".
    """
    target = _target(log, target)
    predicted = _of_rows(log, "predicted", predicted)
    predicted = as_array("predicted", predicted, target.shape)
    residual = log.reward - _of_arm(log, predicted)
    start = np.vecdot(target, predicted)
    weight = importance_weights(log, target)
    return _of_visits(log, weight, residual, start)


def cross_fit(log: Log, features: ArrayLike) -> NDArray[np.float64]:
    """Predict every reward with ridge models, each row by one that never saw it.

    Fold k of five is rows k, k + 5, …; its model is fitted to the arms shown and rewards of the rest.

    Parameters
    ----------
    log : Log
        n rows, K arms.
    features : array_like, shape (n, K, d)
        Features of each arm for each row.

    Returns
    -------
    ndarray, shape (n, K)
    """
    features = as_array("features", features)
    n = len(log)
    if features.ndim != 3 or features.shape[:2] != (n, log.n_arms):
        raise ValueError(
            f"features must have shape {(n, log.n_arms, 'd')}: got {features.shape}"
        )
    model = RidgePosterior(features.shape[-1])
    shown = _of_arm(log, features)
    predicted = np.empty((n, log.n_arms))
    for k in range(5):
        others = np.arange(n) % 5 != k
        model.rebuild(shown[others], log.reward[others])
        predicted[k::5] = model.predict(features[k::5])
    return predicted


def with_rewards(
    found: Estimate,
    weights: Sequence[NDArray],
    reward: NDArray,
    used: ArrayLike = True,
) -> Estimate:
    """Return an estimate with a note if few rewards stand behind it, and without an interval if none do.

    Parameters
    ----------
    found : Estimate
        The mean of the sessions' terms.
    weights : sequence of ndarray, shape (n, T)
        Weights of the steps of a session; of several, those count that have fewer effective rewards. T is 1
        for a visit.
    reward, used : array_like, shape (n, T)
        Rewards, and whether there is such a step.
    """
    used = np.broadcast_to(used, reward.shape)
    earned = np.vecdot(reward, used)
    least = earned.min()
    most = earned.max()
    if least == most or not all((one * used).any() for one in weights):
        why = f"all rewards are {least:g}" if least == most else "all weights are 0"
        return replace(found, low=-np.inf, high=np.inf, note=f"no interval: {why}")
    steps = np.maximum(used.sum(axis=1), 1)
    rewards = min(
        _effective(np.vecdot(abs(one), used) / steps * gap)
        for one in weights
        for gap in (earned - least, most - earned)
    )
    if rewards >= LEAST_REWARDS:
        return found
    return replace(found, note=f"{SHORT}: {rewards:.1f} effective rewards")


def _of_visits(
    log: Log,
    weight: NDArray,
    error: NDArray,
    start: ArrayLike = 0.0,
    counted: Sequence[NDArray] = (),
) -> Estimate:
    """Return the mean, over the visits, of a start plus an error times its weight, each (n,).

    If effective rewards, by weights that are counted in place of this one, are few, the interval is widened.
    """
    term = start + weight * error
    weights = [one[:, None] for one in counted or [weight]]
    found = with_rewards(mean_interval(term), weights, log.reward[:, None])
    if not found.note.startswith(SHORT):
        return found
    ends = [w * e for w in _ends(weight) for e in _ends(error)]
    more = [mean_interval(np.append(term, np.mean(start) + end)) for end in _ends(ends)]
    low = min(found.low, more[0].low)
    high = max(found.high, more[1].high)
    as_before = (low, high) == (found.low, found.high)
    note = "" if as_before else found.note.replace(SHORT, "widened")
    return replace(found, low=low, high=high, note=note)


def _ends(values: ArrayLike) -> tuple[float, float]:
    return np.min(values), np.max(values)


def _effective(weight: NDArray) -> float:
    """Return the number of equal weights that would be as precise."""
    if not weight.any():
        return 0.0
    weight = weight / weight.max()  # whose squares do not overflow
    return float(weight.sum() ** 2 / np.square(weight).sum())


def _target(log: Log, target: ArrayLike) -> NDArray[np.float64]:
    """Return the target's probabilities, (n, K), arms in the log's order."""
    target = _of_rows(log, "target", target)
    return as_policy("target", target, (len(log), log.n_arms))


def _of_rows(log: Log, name: str, table: ArrayLike) -> ArrayLike:
    """Return a table of rows and arms in the log's order, after checking its labels."""
    log.check_rows(name, table)
    labels = column_labels(table)
    if labels is None:
        return table
    return numbers(name, table)[:, in_order(name, labels, log.arms)]


def _of_arm(log: Log, values: NDArray) -> NDArray:
    """Entries (n, ...) of the arms shown, from an array (n, K, ...)."""
    return values[np.arange(len(log)), log.arm]


def _versions(value: ArrayLike, shape: tuple[int, ...]) -> NDArray:
    """Return the versions, one for all rows or one per row: whole numbers, or names."""
    given = np.asarray(value, object)
    fits = [isinstance(v, Integral | str) and type(v) is not bool for v in given.flat]
    wanted = "be a whole number or a name"
    every_row("version", given.ravel(), np.array(fits), wanted, TypeError)
    if given.ndim and given.shape != shape:
        raise ValueError(f"version must have shape {shape}: got {given.shape}")
    return np.broadcast_to(np.array(given.tolist()), shape).copy()
