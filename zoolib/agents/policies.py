"""Random choice: from scores to probabilities, and from probabilities to an arm and its propensity.

Agents, the off-policy estimators and the service share these functions, so they all treat ties in the same
way and logged propensities are exact. See Chapter 6, "Log, then show".
"""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import ndtr

from zoolib._support.checks import as_flags, as_probability, as_real, every_row, some
from zoolib._support.tables import column_labels, in_order

# Scores that differ by less than this fraction of the best score count as equal, and so do what rounding
# leaves of scores of zero.
ROUNDING = 1e-10
ROUNDING_OF = {np.dtype(np.float32): 1e-5}
RESIDUE = 1e-10
# Tolerance for the sum of probabilities: single precision passes, and no interval is that narrow.
SUM_TOLERANCE = 1e-6
# Standard deviations beyond which `best_of_normals` leaves a distribution out.
SIGMAS = 6
# Numbers times nodes in `best_of_normals` for one decision, within these limits to the nodes, and numbers
# times nodes for all decisions that are computed at once.
MANY_NODES = 2_400
NODES = 65, 1025
MOST_AT_ONCE = 200_000


def tied(scores: NDArray) -> NDArray[np.bool_]:
    """Return which scores (..., K) equal the best of their row up to rounding; the best must be finite."""
    top = scores.max(axis=-1)  # NaN if any score is NaN
    size = abs(top)
    if some(~(size < np.inf)):
        raise ValueError("scores must have a finite best and no NaN in every row")
    rounding = ROUNDING_OF.get(scores.dtype, ROUNDING)
    least = top - (rounding * size + RESIDUE)
    return (scores.T >= least.T).T  # a new axis would take longer


def greedy(scores: ArrayLike) -> NDArray[np.float64]:
    """Return the policy that shows an arm of highest score; tied arms get equal probabilities.

    For M posterior draws, ``greedy(draws).mean(axis=0)`` estimates the policy of Thompson sampling by the
    share of draws that each arm wins. If the arm is then chosen by `draw` from this estimate, the logged
    propensities are exact. An arm that won no draw has probability 0; `with_floor` raises it.

    Parameters
    ----------
    scores : array_like, shape (..., K)
        Scores, such as an agent's; minus infinity for an arm that may not be shown.

    Returns
    -------
    ndarray, shape (..., K)
        Probabilities. Scores that differ only by rounding are ties.

    Raises
    ------
    ValueError
        If a score is NaN, or the best score of a row is not finite.

    Examples
    --------
    >>> with_floor(greedy([0.2, 0.7, 0.7, 0.1]), epsilon=0.2)
    array([0.05, 0.45, 0.45, 0.05])
    """
    scores = np.asarray(scores)
    if scores.dtype != np.float32:
        scores = scores.astype(float, copy=False)
    ties = tied(scores)
    return ties / ties.sum(axis=-1, keepdims=True)


def best_of_normals(
    mean: NDArray, deviation: NDArray, allowed: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Return the probability that each of K independent normal numbers is the largest: Thompson's policy.

    Means, standard deviations and the result have the shape (..., K). The numbers `allowed` take part, at
    least one in a row.

    Number a is the largest with the probability that all others are smaller, a product of normal
    distribution functions, integrated over the distribution of a. The integral is computed by the
    trapezoidal rule. Each number gets equally many nodes, where the largest number can lie, so narrow and
    wide distributions can be mixed. In tests with standard deviations that differed up to 150-fold, errors
    were at most 1e-5 for two numbers, 3e-4 for ten and 2e-3 for 50 to 200.
    """
    k = mean.shape[-1]
    n = int(np.clip(MANY_NODES // k, *NODES))
    rows = [np.broadcast_to(a, mean.shape) for a in (mean, deviation, allowed)]
    rows = [array.reshape(-1, k) for array in rows]
    at_once = max(1, MOST_AT_ONCE // (n * k))
    policy = np.empty(rows[0].shape)
    for i in range(0, len(policy), at_once):
        part = slice(i, i + at_once)
        policy[part] = _best_of_normals(*(array[part] for array in rows), n)
    return policy.reshape(mean.shape)


def _best_of_normals(
    mean: NDArray, deviation: NDArray, allowed: NDArray[np.bool_], n: int
) -> NDArray[np.float64]:
    """Integrate for rows (m, K), with n nodes."""
    mean = np.where(allowed, mean.astype(np.float64), -np.inf)
    top = mean.max(axis=-1, keepdims=True)
    # A lower limit on the standard deviation, so that scores that differ only by rounding tie.
    scale = np.maximum(abs(top), deviation.max(axis=-1, keepdims=True))
    narrowest = ROUNDING * scale + RESIDUE
    deviation = np.maximum(deviation, narrowest)
    mean = mean[..., None]
    deviation = deviation[..., None]
    of_each = max(25, 2 * n // mean.shape[-2])
    spread = 2 * SIGMAS * np.linspace(0, 1, of_each) - SIGMAS
    nodes = mean + deviation * spread
    least = nodes[..., 0].max(axis=-1)[..., None]  # the largest is hardly below this
    nodes = np.sort(np.maximum(nodes.reshape(*least.shape[:-1], -1), least), axis=-1)
    # Of the nodes from `least` on, n at even ranks.
    lowest = (nodes == least).sum(axis=-1)[..., None] - 1
    rank = lowest + np.linspace(0, 1, n) * (nodes.shape[-1] - 1 - lowest)
    nodes = np.take_along_axis(nodes, rank.astype(int), axis=-1)[..., None, :]
    below = ndtr((nodes - mean) / deviation)  # never 0, as all nodes are above `least`
    others = below.prod(axis=-2, keepdims=True) / below
    steps = below[..., 1:] - below[..., :-1]
    policy = np.vecdot(steps, others[..., 1:] + others[..., :-1])
    return policy / policy.sum(axis=-1, keepdims=True)


def with_floor(
    policy: ArrayLike, epsilon: float, offered: ArrayLike | None = None
) -> NDArray[np.float64]:
    r"""Return :math:`(1 - \varepsilon)\, \pi + \varepsilon / K`: no arm falls below the floor.

    Parameters
    ----------
    policy : array_like, shape (..., K)
        Probabilities, each row summing to 1.
    epsilon : float
        Probability of an arm drawn uniformly from all K, in [0, 1].
    offered : array_like of bool, shape (K,) or (..., K), optional
        The arms on offer: K counts them, and the others have no floor.

    Returns
    -------
    ndarray, shape (..., K)
    """
    arms = column_labels(policy)
    order = in_order("offered", column_labels(offered), arms)
    policy = as_policy("policy", policy)
    epsilon = as_probability("epsilon", epsilon)
    offered = as_flags("offered", True if offered is None else offered, policy.shape)
    return floored(policy, epsilon, leaves_an_arm("offered", offered[..., order]))


def floored(
    policy: NDArray, epsilon: ArrayLike, offered: NDArray[np.bool_]
) -> NDArray[np.float64]:
    """Do the same as `with_floor`, for checked arguments; `epsilon` may have an axis of length 1 for K."""
    any_arm = offered / offered.sum(axis=-1, keepdims=True)
    return (1 - epsilon) * policy + epsilon * any_arm


def leaves_an_arm(name: str, mask: NDArray[np.bool_]) -> NDArray[np.bool_]:
    """Return a mask (..., K) if an arm is left in every row."""
    if not mask.any(axis=-1).all():
        raise ValueError(
            f"{name} must leave an arm in every row: got none in shape {mask.shape}"
        )
    return mask


def draw(
    policy: ArrayLike, rng: np.random.Generator
) -> tuple[NDArray[np.int64], NDArray[np.float64]]:
    """Draw an arm from each row of a policy, and return it with the propensity to log.

    Parameters
    ----------
    policy : array_like, shape (..., K)
        Probabilities, each row summing to 1.
    rng : numpy.random.Generator
        Source of one uniform number per row.

    Returns
    -------
    arm : ndarray of int, shape (...)
        The arm drawn; never one of probability 0.
    propensity : ndarray, shape (...)
        The probability of that arm.
    """
    policy = as_policy("policy", policy)
    arm = pick(policy, rng.random(policy.shape[:-1]))
    return arm, np.take_along_axis(policy, arm[..., None], axis=-1)[..., 0]


def pick(policy: NDArray[np.float64], uniform: ArrayLike) -> NDArray[np.int64]:
    """Return the arm on which a uniform number in [0, 1) falls, for probabilities (..., K)."""
    edges = policy.cumsum(axis=-1)
    return (np.asarray(uniform)[..., None] * edges[..., -1:] < edges).argmax(axis=-1)


def as_policy(
    name: str, value: ArrayLike, shape: tuple[int, ...] | None = None
) -> NDArray[np.float64]:
    """Return probabilities (..., K) after checking that each row is a distribution."""
    policy = as_real(name, value, shape)
    if policy.ndim == 0 or policy.size == 0:
        raise ValueError(f"{name} must have shape (..., K): got {policy.shape}")
    least = policy.min(axis=-1)  # NaN if any entry is NaN
    every_row(name, least, least >= 0, "hold probabilities of 0 or more")
    total = policy.sum(axis=-1)
    every_row(name, total, abs(total - 1) <= SUM_TOLERANCE, "sum to 1 in every row")
    return policy
