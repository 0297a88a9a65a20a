r"""The ridge posterior: what a linear model believes after the rewards it has seen, and how firmly.

For rows :math:`x_i` with rewards :math:`r_i` it keeps

.. math::  A = \lambda I + \sum_i x_i x_i^\top, \qquad b = \sum_i r_i x_i,

and with them :math:`A^{-1}`, the mean :math:`\hat\theta = A^{-1} b` and the width
:math:`\sqrt{x^\top A^{-1} x}` of a prediction. A new row changes :math:`A` by a matrix of rank one,
so :math:`A^{-1}` follows by the formula of Sherman and Morrison (1950) in :math:`d^2` operations;
nothing is inverted in daily work. See Chapter 2, "An inverse for the price of a product".

All arrays may have leading axes in front: one posterior is ``(d, d)``, one for each of K products
``(K, d, d)``, and W worlds of them ``(W, K, d, d)``. The formulas do not change.
"""

from __future__ import annotations

import math

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray
from scipy.linalg import blas

from zoolib._checks import as_finite, as_ids, as_positive, as_rate, as_size

# Where the drift of A⁻¹ may grow to before it is computed afresh. It is measured after 1, 4, 16, … updates,
# since the first ones change A⁻¹ most, and later every thousand.
TOLERANCE = {np.dtype(np.float64): 1e-10, np.dtype(np.float32): 1e-3}
MOST_UPDATES_UNCHECKED = 1000
# Forgetting lets the prior fade to this part of the ridge and no further: A stays invertible.
LEAST_PRIOR = 1e-3
# Forgetting is written into the arrays when a factor has fallen to this.
LEAST_FACTOR = 0.1
# Many rows are predicted in blocks of about so many numbers, which the processor's cache holds.
_BLOCK = 28_000
_ADD_OUTER = {np.dtype(np.float64): blas.dger, np.dtype(np.float32): blas.sger}
# What a posterior consists of: arrays with its leading axes in front.
_ARRAYS = ("_ridge", "_prior_mean", "_factor", "_prior", "_moments", "_solution")


class RidgePosterior:
    r"""Ridge regression, one row at a time, for one model or for many at once.

    Parameters
    ----------
    n_features : int
        Length d of a row.
    ridge : float, default 1.0
        :math:`\lambda > 0`, the weight of the prior
        :math:`\theta \sim \mathcal{N}(0, \sigma^2 \lambda^{-1} I)`.
    shape : tuple of int, default ()
        Leading axes: one independent posterior for each of their positions.
    dtype : float64 or float32, default float64
        Type of all arrays.

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive whole number, the ridge not positive and finite, or the dtype
        another.

    Examples
    --------
    >>> posterior = RidgePosterior(n_features=2, ridge=1.0)
    >>> posterior.update([1.0, 1.0], reward=1.0)
    >>> posterior.mean.round(3)
    array([0.333, 0.333])
    >>> float(posterior.width([1.0, 0.0]).round(3))
    0.816
    """

    def __init__(
        self,
        n_features: int,
        ridge: float = 1.0,
        shape: tuple[int, ...] = (),
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.n_features = as_size("n_features", n_features)
        self.ridge = as_positive("ridge", ridge)
        self.shape = tuple(as_size("shape", n) for n in shape)
        self._number = np.arange(math.prod(self.shape)).reshape(self.shape)
        self.dtype = np.dtype(dtype)
        if self.dtype not in TOLERANCE:
            raise TypeError(f"dtype must be float64 or float32: got {self.dtype}")
        d = self.n_features
        signs = np.random.default_rng(0).choice([-1.0, 1.0], size=d)
        self._signs = signs.astype(self.dtype)
        # What was believed before any row: λ and the mean of each posterior.
        self._ridge = np.full(self.shape, self.ridge, self.dtype)
        self._prior_mean = np.zeros((*self.shape, d), self.dtype)
        # What is kept is (A | b) divided by a factor, and (A⁻¹ | θ) with A⁻¹ multiplied by it: to forget
        # is then to change one number a posterior.
        self._factor = np.empty(self.shape, self.dtype)
        self._prior = np.empty(self.shape, self.dtype)
        self._moments = np.empty((*self.shape, d, d + 1), self.dtype)
        self._solution = np.empty((*self.shape, d, d + 1), self.dtype)
        self._forgets = False  # until then all factors are 1
        # A and b are not needed to go on: rows wait here until somebody asks, or the check does.
        self._waiting: list[tuple[NDArray, NDArray, NDArray, NDArray]] = []
        self._updates, self._next_check = 0, 1
        self._followed: _Followed | None = None
        self.reset()

    def reset(
        self,
        at: tuple[ArrayLike, ...] = (),
        mean: ArrayLike | None = None,
        ridge: float | None = None,
    ) -> None:
        r"""Forget everything: back to the prior, or to a new one.

        Parameters
        ----------
        at : tuple of indices, default ()
            Which posteriors forget: an index into the leading axes, all if empty.
        mean : array_like, shape (..., d), optional
            Leading axes may be left out. What these posteriors believe from now on before they see a row,
            :math:`\theta \sim \mathcal{N}(m, \sigma^2 \lambda^{-1} I)`; at first it is zero.
        ridge : float, optional
            How firmly: another :math:`\lambda` for these posteriors.

        Raises
        ------
        TypeError, ValueError
            If the mean is not finite or does not fit, or the ridge not positive and finite; nothing
            is then forgotten.
        """
        if ridge is not None:
            ridge = as_positive("ridge", ridge)
        if mean is not None:
            mean, shape = np.asarray(mean, self.dtype), self._prior_mean[at].shape
            fits = mean.shape in (shape[axis:] for axis in range(len(shape)))
            if not (fits and np.isfinite(mean).all()):
                raise ValueError(
                    f"mean must be finite, of shape {shape}: got shape {mean.shape}"
                )
            self._prior_mean[at] = mean
        if ridge is not None:
            self._ridge[at] = ridge
        self._settled()
        self._factor[at], self._prior[at] = 1, self._ridge[at]
        self._moments[at] = self._prior_moments(at)
        inverse = np.eye(self.n_features) / self._ridge[at][..., None, None]
        mean = self._prior_mean[at][..., None]
        self._solution[at] = np.concatenate((inverse, mean), axis=-1)
        self._followed = None
        if at == ():
            self._updates, self._next_check = 0, 1

    def extend(self, n: int) -> None:
        """Append n posteriors, still at the prior, along the last leading axis.

        Raises
        ------
        TypeError, ValueError
            If n is not a positive whole number, or there is no leading axis.
        """
        if not self.shape:
            raise ValueError("shape must have a leading axis to grow along: got ()")
        more = (*self.shape[:-1], as_size("n", n))
        fresh = RidgePosterior(self.n_features, self.ridge, more, self.dtype)
        self._settled()
        axis = len(self.shape) - 1
        for name in _ARRAYS:
            both = getattr(self, name), getattr(fresh, name)
            setattr(self, name, np.concatenate(both, axis))
        self._reshape()

    def drop(self, which: ArrayLike) -> None:
        """Take posteriors out; the later ones on the last leading axis move up.

        Parameters
        ----------
        which : array_like of int, shape (n,)
            Their places on the last leading axis; at least one must stay.

        Raises
        ------
        TypeError, ValueError
            If a place is no whole number or unknown, none would stay, or there is no leading axis.
        """
        if not self.shape:
            raise ValueError("shape must have a leading axis to drop from: got ()")
        n = self.shape[-1]
        which = np.unique(as_ids("which", which, n))
        if len(which) >= n:
            raise ValueError(f"which must leave one of {n} posteriors: got {which}")
        self._settled()
        for name in _ARRAYS:
            kept = np.delete(getattr(self, name), which, axis=len(self.shape) - 1)
            setattr(self, name, kept.copy())  # in C order, which `_settled` relies on
        self._reshape()

    def _reshape(self) -> None:
        self._followed = None
        self.shape = self._factor.shape
        self._number = np.arange(math.prod(self.shape)).reshape(self.shape)

    @property
    def A(self) -> NDArray:
        """Precision matrices, shape (..., d, d)."""
        return self._factor[..., None, None] * self._settled()[..., :-1]

    @property
    def b(self) -> NDArray:
        """Sums of rewards times rows, shape (..., d)."""
        return self._factor[..., None] * self._settled()[..., -1]

    @property
    def A_inv(self) -> NDArray:
        """Inverses of the precision matrices, shape (..., d, d)."""
        return self._solution[..., :-1] / self._factor[..., None, None]

    @property
    def mean(self) -> NDArray:
        r"""Estimates :math:`\hat\theta = A^{-1} b`, shape (..., d)."""
        return self._solution[..., -1].copy()

    @property
    def prior(self) -> NDArray:
        """The part of A that is prior, shape (...): the ridge, less what was forgotten of it."""
        return self._factor * self._prior

    def predict(self, x: ArrayLike, at: tuple[ArrayLike, ...] = ()) -> NDArray:
        r"""Predict rewards :math:`x^\top \hat\theta` of rows (..., d); returns shape (...)."""
        return np.vecdot(x, self._solution[at][..., -1])

    def width(self, x: ArrayLike) -> NDArray:
        r"""Return :math:`\sqrt{x^\top A^{-1} x}` of rows (..., d); shape (...)."""
        return self.predict_with_width(x)[1]

    def predict_with_width(self, x: ArrayLike) -> tuple[NDArray, NDArray]:
        """Return what `predict` and `width` do, for little more than the price of one."""
        # One product gives both: xᵀ (A⁻¹ | θ) = (xᵀA⁻¹ | xᵀθ).
        product = np.vecmat(x, self._solution)
        squared = np.vecdot(product[..., :-1], x)
        if self._forgets:
            squared /= self._factor
        return product[..., -1], np.sqrt(squared)

    def predict_rows(
        self,
        x: ArrayLike,
        scale: ArrayLike | None = None,
        dtype: DTypeLike | None = None,
    ) -> tuple[NDArray, NDArray]:
        """Return predictions and widths of many rows for each posterior.

        Millions of rows are taken block by block, and nothing of their size is written down. Of `frozen`
        rows that are asked about again and again, the answers are kept and follow each update, in d
        operations a row instead of d².

        Parameters
        ----------
        x : array_like, shape (..., n, d)
            The rows.
        scale : array_like, shape (d,), optional
            What each row is multiplied by first, such as a visitor's features.
        dtype : float64 or float32, optional
            Type to compute in; that of the rows and the posterior together if omitted.

        Returns
        -------
        prediction, width : ndarray, shape (..., n)
        """
        x, solution = np.asarray(x), self._solution
        if scale is dtype is None and _may_follow(x, self):
            if self._followed is None or self._followed.x is not x:
                self._followed = _Followed(x, *_of_rows(x, solution))
            prediction, squared = self._followed.answers()
        else:
            if scale is not None:  # (s ∘ x)ᵀ M (s ∘ x) = xᵀ (s sᵀ ∘ M) x
                scale = np.asarray(scale)
                solution = scale[:, None] * solution * np.append(scale, 1)
            prediction, squared = _of_rows(x, solution, dtype)
        np.maximum(squared, 0, out=squared)  # rounding may take it below
        if self._forgets:
            squared /= self._factor[..., None]
        return prediction, np.sqrt(squared, out=squared)

    def sample(self, normals: ArrayLike, scale: float = 1.0) -> NDArray:
        r"""Draw weights from :math:`\mathcal{N}(\hat\theta, s^2 A^{-1})`.

        Parameters
        ----------
        normals : array_like, shape (..., d)
            Independent standard normal numbers, from the caller's generator.
        scale : float, default 1.0
            s, the standard deviation of the rewards' noise.

        Returns
        -------
        ndarray, shape (..., d)
        """
        # With A⁻¹ = L Lᵀ the product L n has covariance A⁻¹.
        lower = np.linalg.cholesky(self.A_inv)
        return self.mean + scale * np.matvec(lower, np.asarray(normals, self.dtype))

    def update(
        self,
        x: ArrayLike,
        reward: ArrayLike,
        at: tuple[ArrayLike, ...] = (),
        weight: ArrayLike = 1.0,
        discount: float = 1.0,
        checked: bool = False,
    ) -> None:
        r"""Learn from one row for each selected posterior.

        Parameters
        ----------
        x : array_like, shape (..., d)
            The rows.
        reward : array_like, shape (...)
            Their rewards.
        at : tuple of indices, default ()
            Which posteriors learn: an index into the leading axes, all if empty. None may be
            selected twice.
        weight : float or array_like, shape (...), default 1.0
            What a row counts; -1 takes a row out again that counted 1.
        discount : float, default 1.0
            What the selected posteriors are multiplied by first: see `decay`. The others do not
            forget: a posterior's clock ticks when it learns.
        checked : bool, default False
            The caller has seen to it that x is an array of the right shape and dtype, and that all
            numbers are finite.

        Raises
        ------
        ValueError
            If shapes do not fit, a number is not finite, the discount is outside (0, 1], or a row is
            taken out that cannot have been learnt; the posterior is then unchanged.
        """
        if not checked:
            # A copy of the reward: the row may wait, and the caller use the array again.
            x, reward = np.asarray(x, self.dtype), np.array(reward, self.dtype)
            _check_rows(x, reward, self._solution[at].shape[:-1])
            discount = as_rate("discount", discount)
            weight = _finite_weight(weight, reward.shape)
        factor = self._factor[at] if discount == 1 else self._factor[at] * discount
        share = weight / factor
        solution = self._solution[at]
        if not isinstance(weight, float) or weight < 0:  # np.ndim would be slow
            squared = np.vecdot(np.vecmat(x, solution[..., :-1]), x)
            if not np.all(share * squared > -1):
                raise ValueError(
                    "weight must be positive for a row that was never learnt"
                )
        self._solution[at], change, gain = _with_row(solution, x, reward, share)
        if self._followed is not None and not self._followed.learn(at, change, gain):
            self._followed = None
        number = self._number[at]
        if self._waiting and self._waiting[-1][0].shape != number.shape:
            self._settled()  # rows that wait together select alike
        self._waiting.append((number, share, x.copy(), reward))
        self._updates += 1
        if self._updates >= self._next_check:
            self.check()
        if discount != 1:
            self._forgets = True
            self._factor[at] = factor
            if factor.min() < LEAST_FACTOR:
                self._write_factors()

    def decay(self, discount: float) -> None:
        r"""Forget a little, everywhere: :math:`A \leftarrow \gamma A`, :math:`b \leftarrow \gamma b`.

        The means stay and the widths grow by :math:`1/\sqrt\gamma`. The prior fades too, but not for
        ever, or directions without news would leave A without an inverse: before it falls below a
        thousandth of the ridge it is raised to a hundredth again.

        Parameters
        ----------
        discount : float
            :math:`\gamma` in (0, 1].
        """
        self._factor *= as_rate("discount", discount)
        self._forgets = True
        if self._factor.min() < LEAST_FACTOR:
            self._write_factors()

    def rebuild(
        self, x: ArrayLike, reward: ArrayLike, weight: ArrayLike | None = None
    ) -> None:
        """Start from the prior and learn whole tables at once.

        Parameters
        ----------
        x : array_like, shape (..., n, d)
            Rows.
        reward : array_like, shape (..., n)
            Rewards.
        weight : array_like, shape (n,), optional
            What each row counts, 1 if omitted.

        Raises
        ------
        ValueError
            If shapes do not fit or a number is not finite; the posterior is then unchanged.
        numpy.linalg.LinAlgError
            If rows are so large that A has no inverse to rounding; then, too.
        """
        x, reward = np.asarray(x, self.dtype), np.asarray(reward, self.dtype)
        if x.ndim != len(self.shape) + 2:
            raise ValueError(
                f"x must have shape {(*self.shape, 'n', self.n_features)}: got {x.shape}"
            )
        _check_rows(x, reward, (*self.shape, x.shape[-2], self.n_features))
        weighted = x if weight is None else x * _weights(weight, x)[:, None]
        row = np.concatenate((x, reward[..., None]), axis=-1)
        moments = self._prior_moments() + weighted.mT @ row
        solution = _solved(moments)
        self.reset()
        self._moments[:], self._solution[:] = moments, solution

    def drift(self) -> NDArray:
        """Return how far A⁻¹ has drifted, shape (...): the largest entry of |A A⁻¹ v - v|.

        The vector v has random signs, always the same, so that no error hides from it for long.
        """
        back = np.matvec(
            self._settled()[..., :-1], self._solution[..., :-1] @ self._signs
        )
        return np.abs(back - self._signs).max(axis=-1)

    def check(self) -> None:
        """Measure the drift, and solve afresh where rounding has let it grow too far."""
        wait = min(3 * self._updates, MOST_UPDATES_UNCHECKED)
        self._next_check = self._updates + wait
        self._followed = None  # its drift ends here, too
        drifted = ~(self.drift() <= TOLERANCE[self.dtype])
        if drifted.any():
            self._refresh(np.nonzero(drifted) if self.shape else ())

    def _prior_moments(self, at: tuple[ArrayLike, ...] = ()) -> NDArray:
        """Return (A | b) before any row, shape (..., d, d + 1)."""
        ridge, mean = self._ridge[at][..., None], self._prior_mean[at]
        eye = np.eye(self.n_features, dtype=self.dtype)
        return np.concatenate(
            (ridge[..., None] * eye, (ridge * mean)[..., None]), axis=-1
        )

    def _settled(self) -> NDArray:
        """Return (A | b) with all rows in it that wait, those of one posterior in one product."""
        if self._waiting:
            d = self.n_features
            number, share, x, reward = zip(*self._waiting, strict=True)
            self._waiting.clear()
            number, share, reward = (
                np.array(n).ravel() for n in (number, share, reward)
            )
            order = number.argsort(kind="stable")
            x, number = np.concatenate(x).reshape(-1, d)[order], number[order]
            weighted = share[order, None] * x
            row = np.concatenate((x, reward[order, None]), axis=-1)
            ours, first = np.unique(number, return_index=True)
            moments = self._moments.reshape(-1, d, d + 1)
            for place, start, stop in zip(
                ours, first, [*first[1:], len(order)], strict=True
            ):
                moments[place] += weighted[start:stop].T @ row[start:stop]
        return self._moments

    def _refresh(self, at: tuple[ArrayLike, ...] = ()) -> None:
        """Compute A⁻¹ and the mean from A and b."""
        self._solution[at] = _solved(self._settled()[at])
        self._followed = None

    def _write_factors(self) -> None:
        """Write small factors into the arrays, and hold the priors at their least."""
        at = np.nonzero(self._factor < LEAST_FACTOR) if self.shape else ()
        faded = self.prior[at]
        moments = self._factor[at][..., None, None] * self._settled()[at]
        least = LEAST_PRIOR / LEAST_FACTOR * self._ridge[at]
        self._prior[at] = np.maximum(faded, least)
        self._factor[at] = 1
        raised = (self._prior[at] - faded)[..., None]
        diagonal = range(self.n_features)
        moments[..., diagonal, diagonal] += raised
        moments[..., -1] += raised * self._prior_mean[at]
        self._moments[at] = moments
        self._refresh(at)


class _Followed:
    """Rows that never change, with their predictions and squared widths, which follow each update."""

    def __init__(self, x: NDArray, prediction: NDArray, squared: NDArray) -> None:
        self.x, self.prediction, self.squared = x, prediction, squared
        self.unasked = 0

    def answers(self) -> tuple[NDArray, NDArray]:
        """Return copies of the predictions and squared widths, shape (..., n)."""
        self.unasked = 0
        return self.prediction.copy(), self.squared.copy()

    def learn(self, at: tuple, change: NDArray, gain: NDArray) -> bool:
        """Follow an update by what `_with_row` says of it; tell whether this still pays."""
        # A⁻¹ moves by -g u uᵀ and the mean by -g u (p - r): a row z moves by multiples of zᵀu.
        along = np.matvec(self.x[at], change[..., :-1])
        step = gain[..., None] * along
        self.prediction[at] -= step * change[..., -1:]
        step *= along
        self.squared[at] -= step
        self.unasked += 1
        return self.unasked <= self.x.shape[-1]  # else to begin afresh is cheaper


def frozen(rows: ArrayLike) -> NDArray:
    """Return a copy of an array that nobody can change, not even through another view of it.

    Its memory is that of `bytes`. Whoever meets the same frozen array again knows without a look that its
    numbers are the same: see `RidgePosterior.predict_rows`. For agents, make `Context` with it.

    Examples
    --------
    >>> products = frozen(np.eye(3))
    >>> products[0, 0] = 2.0
    Traceback (most recent call last):
        ...
    ValueError: assignment destination is read-only
    """
    rows = np.asarray(rows)
    return np.frombuffer(rows.tobytes(), rows.dtype).reshape(rows.shape)


def is_frozen(x: object) -> bool:
    """Tell whether an array's memory is that of `bytes`; read-only alone is no proof."""
    while isinstance(x, np.ndarray):
        x = x.base
    return isinstance(x, bytes)


def _may_follow(x: NDArray, posterior: RidgePosterior) -> bool:
    """Tell whether rows are frozen, each posterior's own, and of its type."""
    return (
        is_frozen(x) and x.shape[:-2] == posterior.shape and x.dtype == posterior.dtype
    )


def _of_rows(
    x: NDArray, solution: NDArray, dtype: DTypeLike | None = None
) -> tuple[NDArray, NDArray]:
    """Return predictions and squared widths of rows (..., n, d), by (A⁻¹ | θ)."""
    dtype = np.dtype(dtype or np.result_type(x, solution))
    solution = solution.astype(dtype, copy=False)
    if x.shape[-2] * x.shape[-1] > _BLOCK:
        return _block_by_block(x, solution)
    x = x.astype(dtype, copy=False)
    product = x @ solution
    return product[..., -1], np.vecdot(product[..., :-1], x)


def _block_by_block(x: NDArray, solution: NDArray) -> tuple[NDArray, NDArray]:
    """Do the same for rows of which the cache holds but a block, in the solution's type."""
    n, d, dtype = *x.shape[-2:], solution.dtype
    axes = np.broadcast_shapes(x.shape[:-2], solution.shape[:-2])
    # As A⁻¹ is symmetric, one quarter of it may count twice and the quarter across not at all.
    half = d // 2
    corner, rest = solution[..., :half, :half], solution[..., half:].copy()
    rest[..., :half, :-1] *= 2
    rows = min(n, max(1, _BLOCK // d))
    prediction, squared = np.empty((2, *axes, n), dtype)
    products = np.empty((*axes, rows, d + 1), dtype)
    for start in range(0, n, rows):
        some = slice(start, start + rows)
        block = x[..., some, :].astype(dtype, copy=False)
        product = products[..., : block.shape[-2], :]
        np.matmul(block[..., :half], corner, out=product[..., :half])
        np.matmul(block, rest, out=product[..., half:])
        prediction[..., some] = product[..., -1]
        np.vecdot(product[..., :-1], block, out=squared[..., some])
    return prediction, squared


def _with_row(
    solution: NDArray, x: NDArray, reward: ArrayLike, share: NDArray
) -> tuple[NDArray, NDArray, NDArray]:
    """Return (A⁻¹ | θ) after a row that counts `share`, by the formula of Sherman and Morrison.

    With u = A⁻¹ x, the error e = xᵀθ - r and the gain g = s / (1 + s xᵀu), A⁻¹ moves by -g u uᵀ and the mean
    along with it by -g u e. Returns (u | e) and g, too; the solution may be the array given, changed.
    """
    if (
        x.ndim == 1
    ):  # one posterior: the calls for many would cost more than they compute
        change = x.dot(solution)
        u = change[:-1]
        gain = share / (1 + share * u.dot(x))
        change[-1] -= reward
        add_outer = _ADD_OUTER[solution.dtype]
        return add_outer(-gain, change, u, 1, 1, solution.T, 1, 1, 1).T, change, gain
    change = np.vecmat(x, solution)
    u = change[..., :-1]
    gain = share / (1 + share * np.vecdot(u, x))
    change[..., -1] -= reward
    step = gain[..., None] * u
    return solution - step[..., None] * change[..., None, :], change, gain


def _solved(moments: NDArray) -> NDArray[np.float64]:
    """Return (A⁻¹ | θ) for (A | b), in double precision."""
    moments = moments.astype(np.float64)
    inverse = np.linalg.inv(moments[..., :-1])
    inverse = (inverse + inverse.mT) / 2
    mean = np.vecmat(moments[..., -1], inverse)
    return np.concatenate((inverse, mean[..., None]), axis=-1)


def _finite_weight(weight: ArrayLike, shape: tuple[int, ...]) -> ArrayLike:
    """Return what rows count, one number for all or one each."""
    if np.ndim(weight) == 0:
        number = weight[()] if isinstance(weight, np.ndarray) else weight
        return as_finite("weight", number)
    weight = np.asarray(weight, np.float64)
    if weight.shape != shape or not np.isfinite(weight).all():
        raise ValueError(
            f"weight must be finite, one number or of shape {shape}: got {weight}"
        )
    return weight


def _weights(weight: ArrayLike, x: NDArray) -> NDArray:
    """Return weights of rows, finite and none negative, as numbers of the rows' type."""
    weight = np.asarray(weight, x.dtype)
    held = (weight >= 0) & (weight < np.inf)
    if weight.shape != x.shape[-2:-1] or not held.all():
        raise ValueError(
            f"weight must hold {x.shape[-2]} finite numbers of 0 or more: got {weight}"
        )
    return weight


def _check_rows(x: NDArray, reward: NDArray, shape: tuple[int, ...]) -> None:
    """Refuse rows that are not of this shape, rewards that do not fit them, and what is not finite."""
    if x.shape != shape or reward.shape != shape[:-1]:
        raise ValueError(
            f"x and reward must have shapes {shape} and {shape[:-1]}: got {x.shape} and {reward.shape}"
        )
    if not (np.isfinite(x).all() and np.isfinite(reward).all()):
        raise ValueError("x and reward must be finite: got NaN or infinity")
