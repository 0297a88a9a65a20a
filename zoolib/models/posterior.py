r"""The ridge posterior of a linear model: the mean and the uncertainty of its weights given past rewards.

For rows :math:`x_i` with rewards :math:`r_i` it stores

.. math::  A = \lambda I + \sum_i x_i x_i^\top, \qquad b = \sum_i r_i x_i,

and with them :math:`A^{-1}`, the mean :math:`\hat\theta = A^{-1} b` and the width
:math:`\sqrt{x^\top A^{-1} x}` of a prediction. A new row changes :math:`A` by a matrix of rank one,
so :math:`A^{-1}` is updated by the formula of Sherman and Morrison (1950) in :math:`d^2` operations.
See Chapter 2, "The inverse in two lines".

All arrays may have leading axes: one posterior has ``(d, d)``, one for each of K products ``(K, d, d)``,
and W worlds of them ``(W, K, d, d)``. The formulas do not change.
"""

from __future__ import annotations

import math
from contextlib import suppress
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import (
    as_array,
    as_ids,
    as_positive,
    as_rate,
    as_size,
    some,
)
from zoolib._support.settings import each, setting
from zoolib._support.state import Stateful

# Rounding errors in A⁻¹ are largest after a row that changes A a lot, and they add up. So A⁻¹ is recomputed
# after a row that multiplies or divides the determinant of A by more than this factor,
STEEP = 100
# and after this number of updates.
REFRESH_EVERY = 1000
# A row whose squared length, times its weight, is more than this many times the prior's weight is refused:
# the prior would be lost in rounding, and A soon be singular.
LONGEST = 1e15
# Discounts also reduce the prior. Whenever they have shrunk A to this fraction,
LEAST_FADED = 0.1
# the prior is raised to this fraction of the ridge if it is below: A must stay invertible.
LEAST_PRIOR = 0.01
# The posterior and the prior, as arrays that begin with the leading axes.
_LEARNT = ("_A", "_b", "_A_inv", "_mean")
_PRIOR = ("_prior", "_prior_ridge", "_prior_mean", "_factor")
At = tuple[ArrayLike, ...]  # an index into the leading axes


@dataclass(eq=False, repr=False)
class RidgePosterior(Stateful):
    r"""Ridge regression, one row at a time, for one model or for many at once.

    Parameters
    ----------
    n_features : int
        Length d of a row.
    ridge : float, default 1.0
        :math:`\lambda > 0`, the weight of the prior
        :math:`\theta \sim \mathcal{N}(0, \sigma^2 \lambda^{-1} I)`.
    shape : tuple of int, default ()
        Leading axes; each position is an independent posterior.

    Examples
    --------
    >>> posterior = RidgePosterior(n_features=2, ridge=1.0)
    >>> posterior.update([1.0, 1.0], reward=1.0)
    >>> posterior.mean.round(3)
    array([0.333, 0.333])
    >>> float(posterior.width([1.0, 0.0]).round(3))
    0.816
    """

    _learns = (*_LEARNT, *_PRIOR, "_n_updates")
    _retired = ("dtype",)

    n_features: int = setting(as_size)
    ridge: float = setting(as_positive, 1.0)
    shape: tuple[int, ...] = setting(each(as_size), ())

    def __post_init__(self) -> None:
        super().__post_init__()
        shape = self.shape
        d = self.n_features
        # The ridge and mean of each posterior's prior.
        self._prior_ridge = np.full(shape, self.ridge)
        self._prior_mean = np.zeros((*shape, d))
        self._A, self._A_inv = np.empty((2, *shape, d, d))
        self._b, self._mean = np.empty((2, *shape, d))
        self._prior = self._prior_ridge.copy()
        self._factor = np.ones(shape)
        self._n_updates = 0
        self.reset()

    @classmethod
    def _least_numbers(cls, settings: dict[str, Any]) -> float:
        return math.prod(settings["shape"]) * settings["n_features"] ** 2

    def update(
        self,
        x: ArrayLike,
        reward: ArrayLike,
        at: At = (),
        weight: ArrayLike = 1.0,
        discount: float = 1.0,
    ) -> None:
        r"""Learn from one row for each selected posterior.

        Parameters
        ----------
        x, reward : array_like, shapes (..., d) and (...)
            The rows and their rewards.
        at : tuple of indices, default ()
            Index into the leading axes: the posteriors that learn, all if empty, no posterior twice.
        weight : float or array_like, shape (...), default 1.0
            Weight of each row; -1 removes a row that had weight 1. Removing a row that cannot have been
            learnt raises an error.
        discount : float, default 1.0
            In (0, 1]: factor by which the selected posteriors are discounted first, see `decay`. The
            others do not forget.
        """
        x = as_array("x", x, self._mean[at].shape, np.float64)
        reward = as_array("reward", reward, x.shape[:-1], np.float64)
        of_each = reward.shape if np.ndim(weight) else ()
        weight = as_array("weight", weight, of_each, np.float64)
        discount = as_rate("discount", discount)
        if np.min(weight) < 0:
            squared = np.vecdot(np.vecmat(x, self._A_inv[at]), x)
            if not np.all(weight * squared > -discount):
                raise ValueError(
                    "weight must be positive for a row that was never learnt"
                )
        self.learn(x, reward, at, weight, discount)

    def check_length(self, x: NDArray, at: At = ()) -> None:
        """Raise a ValueError if a row for one of the selected posteriors is too long beside its prior."""
        _check_length(np.vecdot(x, x), self._prior[at])

    def learn(
        self,
        x: NDArray,
        reward: ArrayLike,
        at: At = (),
        weight: ArrayLike = 1.0,
        discount: float = 1.0,
    ) -> None:
        r"""Do the same as `update`, for arguments of which all but the length of rows has been checked.

        A row x with reward r and weight w adds :math:`w\, x x^\top` to A and :math:`w\, r\, x` to b. With
        :math:`u = A^{-1} x` and the gain :math:`g = w / (1 + w\, x^\top u)` (Sherman and Morrison 1950),

        .. math::
            A^{-1} \leftarrow A^{-1} - g\, u u^\top, \qquad
            \hat\theta \leftarrow \hat\theta + g\, (r - x^\top \hat\theta)\, u .
        """
        _check_length(weight * np.vecdot(x, x), self._prior[at])
        if discount != 1:
            self.decay(discount, at)
        u = np.matvec(self._A_inv[at], x)
        growth = 1 + weight * np.vecdot(x, u)  # of the determinant of A
        gain = weight / growth
        error = reward - np.vecdot(x, self._mean[at])
        self._A_inv[at] -= outer(times(gain, u), u)
        self._mean[at] += times(gain * error, u)
        self._A[at] += outer(times(weight, x), x)
        self._b[at] += times(weight * reward, x)
        self._n_updates += 1
        steep = some((growth > STEEP) | (growth < 1 / STEEP))
        if steep or self._n_updates % REFRESH_EVERY == 0:
            with suppress(ValueError):  # the formula's result is what there is
                self._solve(at, self._A[at], self._b[at])

    def update_many(
        self, x: ArrayLike, reward: ArrayLike, which: ArrayLike | None = None
    ) -> None:
        """Learn from n rows at once; several of them may be for the same posterior.

        Parameters
        ----------
        x, reward : array_like, shapes (n, d) and (n,)
            The rows and their rewards.
        which : array_like of int, shape (n,), optional
            The posterior that each row belongs to, as a position on the only leading axis; None if
            there is no leading axis.

        Raises
        ------
        ValueError
            If rows are so large that A is numerically singular; nothing is then learnt.
        """
        if len(self.shape) != (which is not None):
            raise ValueError(
                f"which must be given with one leading axis, and only then: got shape {self.shape}"
            )
        x = as_array("x", x, ("n", self.n_features), np.float64)
        reward = as_array("reward", reward, x.shape[:1], np.float64)
        which = np.zeros(len(x), int) if which is None else which
        which = as_ids("which", which, *self.shape or [1], reward.shape)
        if len(which) == 0:
            return
        self.check_length(x, (which,) if self.shape else ())
        taught = np.unique(which)
        at = (taught,) if self.shape else (None,)  # adds an axis to a single posterior
        A = self._A[at].copy()
        b = self._b[at].copy()
        rows = rows_of_each(which, *self.shape or [1])
        for i, mine in enumerate(rows[one] for one in taught):
            A[i] += x[mine].T @ x[mine]
            b[i] += reward[mine] @ x[mine]
        self._solve(at, A, b)

    def predict(self, x: ArrayLike, at: At = ()) -> NDArray:
        r"""Predict rewards :math:`x^\top \hat\theta` of rows (..., d); returns shape (...)."""
        return np.vecdot(x, self._mean[at])

    def width(self, x: ArrayLike, at: At = ()) -> NDArray:
        r"""Return :math:`\sqrt{x^\top A^{-1} x}` of rows (..., d); shape (...)."""
        squared = np.vecdot(np.vecmat(x, self._A_inv[at]), x)
        return np.sqrt(np.maximum(squared, 0.0))  # rounding may make it negative

    def predict_rows(self, x: ArrayLike, at: At = ()) -> tuple[NDArray, NDArray]:
        """Return predictions and widths, shapes (..., n), of n rows for each posterior, (..., n, d)."""
        x = np.asarray(x)
        squared = np.vecdot(x @ self._A_inv[at], x)
        return np.matvec(x, self._mean[at]), np.sqrt(np.maximum(squared, 0))

    def sample(self, normals: ArrayLike, scale: float = 1.0) -> NDArray:
        r"""Draw weights from :math:`\mathcal{N}(\hat\theta, s^2 A^{-1})`.

        Parameters
        ----------
        normals : array_like, shape (..., d)
            Independent standard normal numbers, from the caller's generator. Axes before those of the
            posterior stand for several draws. The weights have the same shape.
        scale : float, default 1.0
            s, the standard deviation of the noise in the rewards.
        """
        # With A⁻¹ = L Lᵀ the product L n has covariance A⁻¹.
        lower = np.linalg.cholesky(self._A_inv)
        return self._mean + scale * np.matvec(lower, np.asarray(normals))

    def decay(self, discount: float, at: At = ()) -> None:
        r"""Forget a little: :math:`A \leftarrow \gamma A`, :math:`b \leftarrow \gamma b`, with γ in (0, 1].

        The means stay the same and the widths grow by :math:`1/\sqrt\gamma`. The prior shrinks too, but
        only to a limit, because A would become singular in directions without new data: before it falls
        below a thousandth of the ridge, it is raised to a hundredth, which moves the mean slightly towards
        that of the prior. `at` is as for `update`.
        """
        discount = as_rate("discount", discount)
        for shrinks in (self._A, self._b, self._prior, self._factor):
            shrinks[at] *= discount
        self._A_inv[at] /= discount
        if self._factor[at].min() < LEAST_FADED:
            self._hold_prior()

    def _hold_prior(self) -> None:
        """Raise priors that have become too small; recompute A⁻¹, whose errors grew with each division."""
        low = (self._factor < LEAST_FADED,)
        held = np.maximum(LEAST_PRIOR * self._prior_ridge[low], self._prior[low])
        A, b = self._prior_moments(held - self._prior[low], self._prior_mean[low])
        self._prior[low] = held
        self._factor[low] = 1
        self._A[low] += A
        self._b[low] += b
        with suppress(ValueError):
            self._solve(low, self._A[low], self._b[low])

    def reset(
        self, at: At = (), mean: ArrayLike | None = None, ridge: float | None = None
    ) -> None:
        r"""Forget all rows, and return to the prior or to a new one.

        Parameters
        ----------
        at : tuple of indices, default ()
            Index of the posteriors that are reset, all if empty.
        mean : array_like, shape (..., d), optional
            New prior mean m of these posteriors, as in
            :math:`\theta \sim \mathcal{N}(m, \sigma^2 \lambda^{-1} I)`. Leading axes may be left out.
        ridge : float, optional
            New :math:`\lambda` of these posteriors.
        """
        ridge = self._prior_ridge[at] if ridge is None else as_positive("ridge", ridge)
        if mean is not None:
            shape = self._prior_mean[at].shape
            shape = shape[len(shape) - np.ndim(mean) :] or shape
            self._prior_mean[at] = as_array("mean", mean, shape, np.float64)
        self._prior_ridge[at] = self._prior[at] = ridge
        self._factor[at] = 1
        ridge = self._prior_ridge[at]
        mean = self._prior_mean[at]
        self._A[at], self._b[at] = self._prior_moments(ridge, mean)
        self._A_inv[at] = np.eye(self.n_features) / ridge[..., None, None]
        self._mean[at] = mean

    def rebuild(
        self,
        x: ArrayLike,
        reward: ArrayLike,
        weight: ArrayLike | None = None,
        at: At = (),
    ) -> None:
        """Start from the prior and learn whole tables at once; raises the same errors as `update_many`.

        Parameters
        ----------
        x, reward : array_like, shapes (..., n, d) and (..., n)
            The rows and their rewards.
        weight : array_like, shape (n,) or (..., n), optional
            Weight of each row, 0 or more; 1 if omitted.
        at : tuple of indices, default ()
            Index into the leading axes, all posteriors if empty. The dots are the axes after indexing.
        """
        lead = self._mean[at].shape[:-1]
        x = as_array("x", x, (*lead, "n", self.n_features), np.float64)
        reward = as_array("reward", reward, x.shape[:-1], np.float64)
        weighted = x
        if weight is not None:
            of_each = x.shape[:-1] if np.ndim(weight) > 1 else x.shape[-2:-1]
            weight = as_array("weight", weight, of_each, np.float64)
            if (weight < 0).any():
                raise ValueError(f"weight must be 0 or more: got {weight.min()}")
            weighted = weight[..., None] * x
        _check_length(np.vecdot(weighted, x), self._prior_ridge[at][..., None])
        A, b = self._prior_moments(self._prior_ridge[at], self._prior_mean[at])
        self._solve(at, A + weighted.mT @ x, b + np.vecmat(reward, weighted))
        self._prior[at] = self._prior_ridge[at]
        self._factor[at] = 1

    def extend(
        self, n: int, mean: ArrayLike | None = None, ridge: float | None = None
    ) -> None:
        """Append n posteriors along the last leading axis.

        Their prior is given as for `reset`; if omitted, it has mean zero and the common ridge.
        """
        if not self.shape:
            raise ValueError("shape must have a leading axis to grow along: got ()")
        axis = len(self.shape) - 1
        more = (*self.shape[:-1], as_size("n", n))
        new = RidgePosterior(self.n_features, self.ridge, more)
        new.reset((), mean, ridge)
        for name in (*_LEARNT, *_PRIOR):
            both = getattr(self, name), getattr(new, name)
            setattr(self, name, np.concatenate(both, axis))
        self.shape = self._prior.shape

    def _prior_moments(self, ridge: NDArray, mean: NDArray) -> tuple[NDArray, NDArray]:
        """Return the prior's contributions to A and b."""
        eye = np.eye(self.n_features)
        return ridge[..., None, None] * eye, ridge[..., None] * mean

    def _solve(self, at: At, A: NDArray, b: NDArray) -> None:
        """Store A and b, and the inverse and mean computed from them."""
        try:
            A_inv = np.linalg.inv(A)
        except np.linalg.LinAlgError:  # nothing has changed
            raise ValueError(
                "features must not be so large or so alike that A is numerically singular"
            ) from None
        A_inv = (A_inv + A_inv.mT) / 2
        self._A_inv[at] = A_inv
        self._mean[at] = np.matvec(A_inv, b)
        self._A[at] = A
        self._b[at] = b

    @property
    def A(self) -> NDArray:
        """Precision matrices, shape (..., d, d); a copy."""
        return self._A.copy()

    @property
    def b(self) -> NDArray:
        """Sums of rewards times rows, shape (..., d); a copy."""
        return self._b.copy()

    @property
    def A_inv(self) -> NDArray:
        """Inverses of the precision matrices, shape (..., d, d); a copy."""
        return self._A_inv.copy()

    @property
    def mean(self) -> NDArray:
        r"""Estimates :math:`\hat\theta = A^{-1} b`, shape (..., d); a copy."""
        return self._mean.copy()

    @property
    def prior(self) -> NDArray:
        """A copy of the prior's contribution to A, the ridge after discounting, shape (...)."""
        return self._prior.copy()


def rows_of_each(which: NDArray[np.int64], n: int) -> list[NDArray[np.int64]]:
    """Return the places of the rows of each of n models, in their order."""
    order = np.argsort(which, kind="stable")
    return np.split(order, np.searchsorted(which[order], np.arange(1, n)))


def _check_length(squared: NDArray, prior: NDArray) -> None:
    """Raise if the squared lengths of rows are too large beside the weights of the priors."""
    if some(squared > LONGEST * prior):
        raise ValueError(
            "features must not be so large that the prior is lost to rounding: got a row of length "
            f"{squared.max() ** 0.5:.3g}, which a scale may mend"
        )


def times(n: ArrayLike, v: NDArray) -> NDArray:
    r"""Return :math:`n v` for one number for each of the vectors (..., d), shape (..., d)."""
    return n * v if v.ndim == 1 else np.asarray(n)[..., None] * v


def outer(v: NDArray, w: NDArray) -> NDArray:
    r"""Return :math:`v w^\top` of vectors (..., d), shape (..., d, d)."""
    return v[..., :, None] * w[..., None, :]
