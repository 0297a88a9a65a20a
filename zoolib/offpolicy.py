r"""Off-policy evaluation: what another policy would have earned, from the log of the one that served.

Row i of a log holds the arm :math:`a_i` that was shown, the reward :math:`r_i` it earned, and the
propensity :math:`\mu_i = \mu(a_i \mid x_i)`, the probability with which the logging policy :math:`\mu`
showed it. A target policy :math:`\pi` is an array ``(n, K)``: row i holds :math:`\pi(a \mid x_i)` for
each arm a, so a deterministic policy is one-hot. With the importance weights
:math:`\rho_i = \pi(a_i \mid x_i) / \mu_i` and an outcome model :math:`\hat p(x, a)`, every estimator
here is a mean of n terms, and its interval is Student's interval for that mean:

==================== ==============================================================================
estimator            term of row i
==================== ==============================================================================
`ips`                :math:`\rho_i r_i`, or :math:`\min(\rho_i, c)\, r_i` when clipped
`snips`              :math:`V + \rho_i (r_i - V) / \bar\rho`, with
                     :math:`V = \sum \rho_i r_i / \sum \rho_i`
`direct_method`      :math:`\sum_a \pi(a \mid x_i)\, \hat p(x_i, a)`
`doubly_robust`      the direct method's, plus :math:`\rho_i (r_i - \hat p(x_i, a_i))`
==================== ==============================================================================

The intervals take rows as independent. In the log of an agent that learns from it, rows are not: the
propensities of a row depend on earlier rewards. IPS and DR stay unbiased there, for each propensity is
right given the past; how often the intervals cover is then to be tried.

See Chapter 4, "What would the other policy have earned?".
"""

from __future__ import annotations

from dataclasses import dataclass, field

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._checks import as_probability, as_size
from zoolib.estimates import Estimate, mean_interval
from zoolib.posterior import RidgePosterior

# Probabilities may sum to 1 up to this: single precision passes, and no interval is that narrow.
SUM_TOLERANCE = 1e-6
# Scores that differ by less than this part of the best (or of 1) are ties, as they are for the agents.
ROUNDING = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-5}


@dataclass(frozen=True, eq=False)
class Log:
    """What a policy did, row by row, checked once and never changed afterwards.

    The contexts stay with the caller: they are what a target policy's probabilities and a model's
    predictions for these rows are computed from.

    Parameters
    ----------
    arm : array_like of int, shape (n,)
        What was shown, in 0 … n_arms - 1; at least two rows.
    reward : array_like, shape (n,)
        What it earned.
    propensity : array_like, shape (n,)
        Probability, in (0, 1], with which the logging policy showed this arm to this visitor.
    version : array_like of int or str, shape (n,), or one for all rows
        The model that chose.
    n_arms : int
        Number of arms K that could have been shown.

    Attributes
    ----------
    left_out : int
        Rows of other versions that `of_version` has dropped.

    Raises
    ------
    TypeError, ValueError
        If a column is not what is described here. The message names the first bad row.

    Examples
    --------
    >>> log = Log(arm=[0, 1], reward=[1, 0], propensity=[0.9, 0.1], version=3, n_arms=2)
    >>> len(log)
    2
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
    left_out: int = field(default=0, kw_only=True)

    def __post_init__(self) -> None:
        n_arms = as_size("n_arms", self.n_arms)
        arm = np.array(self.arm)
        if arm.ndim != 1 or len(arm) < 2:
            raise ValueError(f"arm must have shape (n,), n >= 2: got {arm.shape}")
        if arm.dtype.kind not in "iu":
            raise TypeError(f"arm must hold whole numbers: got dtype {arm.dtype}")
        _every_row("arm", arm, (arm >= 0) & (arm < n_arms), f"lie in 0 … {n_arms - 1}")
        reward = _real("reward", self.reward, arm.shape)
        _every_row("reward", reward, np.isfinite(reward), "be finite")
        propensity = _real("propensity", self.propensity, arm.shape)
        held = (propensity > 0) & (propensity <= 1)  # NaN is neither
        _every_row("propensity", propensity, held, "lie in (0, 1]")
        columns = {
            "arm": arm.astype(np.int64),
            "reward": reward,
            "propensity": propensity,
            "version": _versions(self.version, arm.shape),
        }
        for name, column in columns.items():
            column.setflags(write=False)
            object.__setattr__(self, name, column)
        object.__setattr__(self, "n_arms", n_arms)
        left_out = as_size("left_out", self.left_out, least=0)
        object.__setattr__(self, "left_out", left_out)

    def __len__(self) -> int:
        return len(self.arm)

    def of_version(self, version: int | str, drop_others: bool = False) -> Log:
        """Return the rows that one model chose; refuse others, or drop and count them.

        Parameters
        ----------
        version : int or str
            The model.
        drop_others : bool, default False
            Leave rows of other versions out and add their number to `left_out`. The caller then
            takes the same rows of a target policy: ``target[log.version == version]``.

        Returns
        -------
        Log

        Raises
        ------
        ValueError
            If there are rows of other versions and they are not to be dropped, or fewer than two of
            this version.
        """
        kept = self.version == version
        if not drop_others:
            _every_row("version", self.version, kept, f"be {version!r}")
        if kept.sum() < 2:
            raise ValueError(
                f"version must be that of two rows or more: got {kept.sum()} of {version!r}"
            )
        columns = (self.arm, self.reward, self.propensity, self.version)
        left_out = self.left_out + int((~kept).sum())
        return Log(
            *(column[kept] for column in columns), self.n_arms, left_out=left_out
        )


def importance_weights(log: Log, target: ArrayLike) -> NDArray[np.float64]:
    r"""Return :math:`\rho_i = \pi(a_i \mid x_i) / \mu_i`, shape (n,).

    Parameters
    ----------
    log : Log
        n rows, K arms.
    target : array_like, shape (n, K)
        The target policy: probabilities, each row summing to 1.

    Returns
    -------
    ndarray, shape (n,)
        How much more often than the logging policy the target shows this arm to this visitor.

    Raises
    ------
    TypeError, ValueError
        If the target is not such an array. So do all functions that take one.
    """
    target = _policy("target", target, (len(log), log.n_arms))
    return _of_arm(log, target) / log.propensity


def mean_weight(log: Log, target: ArrayLike, level: float = 0.95) -> Estimate:
    r"""Estimate the mean importance weight, which must be 1: a check of the log.

    :math:`E[\rho] = E \sum_a \pi(a \mid x)` over the arms that could be logged. It is less than 1
    where the target shows arms that the logging policy never did, and seldom 1 where propensities are
    wrong. An interval that misses 1 is an alarm; one that holds it proves nothing: arms of tiny
    propensity may just not have come, and then the interval is too narrow, too. Parameters as for
    `ips`.
    """
    return mean_interval(importance_weights(log, target), level)


def effective_sample_size(log: Log, target: ArrayLike) -> float:
    r"""Return :math:`(\sum \rho_i)^2 / \sum \rho_i^2`, in rows: between 0 and n (Kish 1965).

    About so many rows logged by the target itself would tell as much. Zero if no weight is positive.
    Weights that are rare and large are missing from a short log, which then looks better than it is:
    where the logging policy is known, :math:`n / E \sum_a \pi(a \mid x)^2 / \mu(a \mid x)` foretells it.
    """
    weight = importance_weights(log, target)
    return float(weight.sum() ** 2 / (weight @ weight)) if weight.any() else 0.0


def ips(
    log: Log, target: ArrayLike, clip: float = np.inf, level: float = 0.95
) -> Estimate:
    """Estimate the target's value by inverse propensity scoring (Horvitz and Thompson 1952).

    Unbiased if the propensities are right and the log can show what the target shows. Clipping is not:
    for rewards of 0 or more it estimates too low, and its interval is one for that lower number. What
    was bought is a smaller variance.

    Parameters
    ----------
    log : Log
        n rows, K arms.
    target : array_like, shape (n, K)
        The target policy: probabilities, each row summing to 1.
    clip : float, default infinity
        Weights above this count as this; above 0.
    level : float, default 0.95
        Confidence level of the interval.

    Returns
    -------
    Estimate

    Raises
    ------
    TypeError, ValueError
        If an argument is not what is described here.

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
    return mean_interval(weight * log.reward, level)


def snips(log: Log, target: ArrayLike, level: float = 0.95) -> Estimate:
    r"""Estimate the target's value by self-normalised IPS (Swaminathan and Joachims 2015).

    :math:`V = \sum \rho_i r_i / \sum \rho_i` never leaves the range of the rewards, nor depends on a
    constant factor of the propensities. Its bias falls as 1/n. The interval is the delta method's: to
    first order a ratio of means moves like the mean of :math:`V + \rho_i (r_i - V) / \bar\rho`.
    Parameters as for `ips`.

    Raises
    ------
    ValueError
        Also if no weight is positive: the log then holds no arm that the target would show.
    """
    weight = importance_weights(log, target)
    if not weight.any():
        raise ValueError(
            f"target must show an arm that was logged: got {len(log)} weights of 0"
        )
    value = weight @ log.reward / weight.sum()
    return mean_interval(value + weight * (log.reward - value) / weight.mean(), level)


def direct_method(
    target: ArrayLike, predicted: ArrayLike, level: float = 0.95
) -> Estimate:
    """Estimate the target's value by a model's word for every reward.

    As wrong as the model. The interval holds the chance of who came, nothing of the model's error.

    Parameters
    ----------
    target : array_like, shape (n, K)
        The target policy: probabilities, each row summing to 1.
    predicted : array_like, shape (n, K)
        The model's expected reward of each arm for each row, as from `cross_fit`.
    level : float, default 0.95
        Confidence level of the interval.

    Returns
    -------
    Estimate
    """
    target = _policy("target", target)
    predicted = _predictions(predicted, target.shape)
    return mean_interval(np.vecdot(target, predicted), level)


def doubly_robust(
    log: Log, target: ArrayLike, predicted: ArrayLike, level: float = 0.95
) -> Estimate:
    """Estimate the target's value by a model, corrected by weighted residuals (Dudík et al. 2011).

    Unbiased if the propensities are right, whatever the model, or if the model is right, whatever the
    propensities. Either way the model of a row must not have been fitted to its reward: see
    `cross_fit`. The better the model, the smaller the residuals and with them the variance.

    Parameters
    ----------
    log, target, level
        As for `ips`.
    predicted : array_like, shape (n, K)
        The model's expected reward of each arm for each row.

    Returns
    -------
    Estimate

    References
    ----------
    Dudík, Langford, Li (2011), "Doubly robust policy evaluation and learning"; Dudík, Erhan, Langford,
    Li (2014), "Doubly robust policy evaluation and optimization".
    """
    target = _policy("target", target, (len(log), log.n_arms))
    predicted = _predictions(predicted, target.shape)
    weight = importance_weights(log, target)
    residual = log.reward - _of_arm(log, predicted)
    return mean_interval(np.vecdot(target, predicted) + weight * residual, level)


def cross_fit(
    log: Log, features: ArrayLike, ridge: float = 1.0, n_folds: int = 5
) -> NDArray[np.float64]:
    """Predict every reward with ridge models, each row by one that never saw it.

    Fold k is rows k, k + n_folds, …; its model is fitted to the arms shown and rewards of the rest.

    Parameters
    ----------
    log : Log
        n rows, K arms.
    features : array_like, shape (n, K, d)
        Features of each arm for each row.
    ridge : float, default 1.0
        Weight of the prior, above 0.
    n_folds : int, default 5
        Number of folds, 2 … n.

    Returns
    -------
    ndarray, shape (n, K)

    Raises
    ------
    TypeError, ValueError
        If an argument is not what is described here.
    """
    features, n = np.asarray(features), len(log)
    if features.ndim != 3 or features.shape[:2] != (n, log.n_arms):
        raise ValueError(
            f"features must have shape {(n, log.n_arms, 'd')}: got {features.shape}"
        )
    total = features.sum(axis=(1, 2))  # finite if all are
    _every_row("features", total, np.isfinite(total), "be finite")
    n_folds = as_size("n_folds", n_folds, least=2)
    if n_folds > n:
        raise ValueError(f"n_folds must be at most the {n} rows: got {n_folds}")
    model = RidgePosterior(features.shape[-1], ridge)
    shown, fold = _of_arm(log, features), np.arange(n) % n_folds
    predicted = np.empty((n, log.n_arms))
    for k in range(n_folds):
        held_out = fold == k
        model.rebuild(shown[~held_out], log.reward[~held_out])
        predicted[held_out] = model.predict(features[held_out])
    return predicted


def greedy(scores: ArrayLike) -> NDArray[np.float64]:
    """Return the policy that shows an arm of highest score, arms that tie in equal shares.

    Of M posterior draws ``greedy(draws).mean(axis=0)`` is the policy of Thompson sampling, estimated
    by the share of draws each arm wins. Choose by `draw` from this very estimate, and its propensities
    are exact. An arm that won no draw cannot be shown, which `with_floor` mends.

    Parameters
    ----------
    scores : array_like, shape (..., K)
        Scores, such as an agent's; minus infinity for an arm that may not be shown.

    Returns
    -------
    ndarray, shape (..., K)
        Probabilities. Scores closer than rounding are ties.

    Raises
    ------
    ValueError
        If a score is NaN, or the best of a row not finite.

    Examples
    --------
    >>> with_floor(greedy([0.2, 0.7, 0.7, 0.1]), epsilon=0.2)
    array([0.05, 0.45, 0.45, 0.05])
    """
    scores = np.asarray(scores)
    if scores.dtype not in ROUNDING:
        scores = scores.astype(float)
    best = scores.max(axis=-1, keepdims=True)  # NaN if any is
    if not np.isfinite(best).all():
        raise ValueError("scores must have a finite best and no NaN in every row")
    tied = scores >= best - ROUNDING[scores.dtype] * (1 + abs(best))
    return tied / tied.sum(axis=-1, keepdims=True)


def with_floor(policy: ArrayLike, epsilon: float) -> NDArray[np.float64]:
    r"""Return :math:`(1 - \varepsilon)\, \pi + \varepsilon / K`: no arm falls below the floor.

    Parameters
    ----------
    policy : array_like, shape (..., K)
        Probabilities, each row summing to 1.
    epsilon : float
        Share of visits that get an arm drawn from all K, in [0, 1].

    Returns
    -------
    ndarray, shape (..., K)
    """
    policy = _policy("policy", policy)
    epsilon = as_probability("epsilon", epsilon)
    return (1 - epsilon) * policy + epsilon / policy.shape[-1]


def draw(
    policy: ArrayLike, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw an arm from each row of a policy, and return it with the propensity to log.

    Parameters
    ----------
    policy : array_like, shape (..., K)
        Probabilities, each row summing to 1.
    rng : numpy.random.Generator
        Source of one uniform number a row.

    Returns
    -------
    arm : ndarray of int, shape (...)
        Never one of probability 0.
    propensity : ndarray, shape (...)
        Its probability.
    """
    policy = _policy("policy", policy)
    edges = policy.cumsum(axis=-1)
    throw = rng.random(policy.shape[:-1])[..., None] * edges[..., -1:]
    arm = (throw < edges).argmax(axis=-1)
    return arm, np.take_along_axis(policy, arm[..., None], axis=-1)[..., 0]


def _of_arm(log: Log, values: NDArray) -> NDArray:
    """Entries (n, ...) of the arms shown, from an array (n, K, ...)."""
    return values[np.arange(len(log)), log.arm]


def _policy(
    name: str, value: ArrayLike, shape: tuple[int, ...] | None = None
) -> NDArray[np.float64]:
    """Return probabilities (..., K), if each row of them is."""
    policy = _real(name, value, shape)
    if policy.ndim == 0 or policy.size == 0:
        raise ValueError(f"{name} must have shape (..., K): got {policy.shape}")
    least = policy.min(axis=-1)  # NaN if any is
    _every_row(name, least, least >= 0, "hold probabilities of 0 or more")
    total = policy.sum(axis=-1)
    _every_row(name, total, abs(total - 1) <= SUM_TOLERANCE, "sum to 1 in every row")
    return policy


def _predictions(value: ArrayLike, shape: tuple[int, ...]) -> NDArray[np.float64]:
    predicted = _real("predicted", value, shape)
    if predicted.ndim != 2:
        raise ValueError(f"predicted must have shape (n, K): got {predicted.shape}")
    total = predicted.sum(axis=-1)  # finite if all are
    _every_row("predicted", total, np.isfinite(total), "be finite")
    return predicted


def _real(
    name: str, value: ArrayLike, shape: tuple[int, ...] | None
) -> NDArray[np.float64]:
    """Return a copy in double precision, if it holds real numbers in the shape wanted."""
    array = np.asarray(value)
    if array.dtype.kind not in "fiub":
        raise TypeError(f"{name} must hold real numbers: got dtype {array.dtype}")
    if shape is not None and array.shape != shape:
        raise ValueError(f"{name} must have shape {shape}: got {array.shape}")
    return array.astype(np.float64)


def _versions(value: ArrayLike, shape: tuple[int, ...]) -> NDArray:
    """Return a copy of the versions, one for all rows or one a row: whole numbers, or names."""
    versions = np.asarray(value)
    if versions.dtype.kind not in "iu":
        named = np.array([isinstance(v, str) for v in versions.flat], dtype=bool)
        given = versions.reshape(-1)
        _every_row("version", given, named, "be a whole number or a name", TypeError)
        versions = versions.astype(str)
    if versions.ndim and versions.shape != shape:
        raise ValueError(f"version must have shape {shape}: got {versions.shape}")
    return np.broadcast_to(versions, shape).copy()


def _every_row(
    name: str,
    values: NDArray,
    held: NDArray[np.bool_],
    wanted: str,
    error: type[Exception] = ValueError,
) -> None:
    """Refuse values, one a row, of which some do not hold, and name the first row."""
    if not np.all(held):
        at = tuple(np.argwhere(~np.atleast_1d(held))[0])
        row = ", ".join(map(str, at))
        raise error(
            f"{name} must {wanted}: got {np.atleast_1d(values)[at]} in row {row}"
        )
