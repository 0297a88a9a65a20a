r"""NeuralUCB: a network's uncertainty, measured in the space of all its weights.

Near its present weights a network :math:`f(x; \theta)` is a linear model of the gradient
:math:`g(x) = \nabla_\theta f(x; \theta)`. LinUCB with these gradients as features keeps
:math:`A = \lambda I + \sum g g^\top` over the rows played and scores an arm by
:math:`f(x) + \alpha \sqrt{g^\top A^{-1} g}` (Zhou, Li and Gu 2020, Algorithm 1). See
Chapter 3, "NeuralUCB".
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import KW_ONLY, dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import torch
    from torch import Tensor

from zoolib._support.checks import Seed, as_not_negative, as_positive
from zoolib._support.settings import one_of, setting
from zoolib.agents.neural import NeuralAgent
from zoolib.models.networks import MLP


def flat(parameters: Iterable[Tensor]) -> Tensor:
    """Put matrices (..., in, out), such as weights or their gradients, into one long row (..., p)."""
    return torch.cat([matrix.flatten(-2) for matrix in parameters], dim=-1)


@torch.no_grad()
def jacobian_at(network: MLP, x: Tensor) -> Tensor:
    """Return the gradients of a network's one output at rows (n, d) or (W, n, d), shape (n, p) or (W, n, p).

    This is backpropagation written out, for all rows in a few matrix products: if a layer has input h and f
    has the derivative delta with respect to its outputs, the gradient is h deltaᵀ for its weights and delta
    for its biases. Entries are in the order of ``network.parameters()``.
    """
    weights, biases = zip(*network.layers, strict=True)
    seen = [x]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        seen.append(torch.relu(seen[-1] @ weight + bias))
    deltas = [torch.ones_like(x[..., :1])]
    for weight, h in zip(weights[:0:-1], seen[:0:-1], strict=True):
        deltas.insert(0, (deltas[0] @ weight.mT) * (h > 0))
    of_weights = [
        h[..., :, None] * delta[..., None, :]
        for h, delta in zip(seen, deltas, strict=True)
    ]
    return flat([*of_weights, *(delta[..., None, :] for delta in deltas)])


class UpdatedInverse:
    """Keep only A⁻¹, and update it in place by the Sherman-Morrison formula, in p² operations.

    In float32 rounding errors add up if the ridge is small: with p = 177, after 10,000 updates, the relative
    error of widths was 3e-5 with a ridge of 1 and 3e-3 with a ridge of 0.01; in float64 it was at most 1e-11.

    Parameters
    ----------
    p : int
        Number of parameters of the network.
    ridge : float
        Weight of the prior.
    shape : tuple of int
        Leading axes: (W,) with worlds, else ().
    dtype : torch.dtype
        Type of the gradients.

    Attributes
    ----------
    A_inv : Tensor, shape (..., p, p)
        Of the same type as the gradients.
    kept : Tensor
        The state: A⁻¹, or the tensor that the other class keeps instead.
    """

    def __init__(
        self, p: int, ridge: float, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        diagonal = torch.full((*shape, p), 1 / ridge, dtype=dtype)
        self.A_inv = self.kept = torch.diag_embed(diagonal)

    def squares(self, jacobian: Tensor) -> Tensor:
        """Return g A⁻¹ gᵀ for the rows g of a Jacobian (..., n, p); shape (..., n)."""
        return torch.linalg.vecdot(jacobian @ self.A_inv, jacobian)

    def learn(self, g: Tensor) -> None:
        """Add g gᵀ to A, for a gradient (..., p): A⁻¹ loses u uᵀ / (1 + gᵀu), where u = A⁻¹ g."""
        g = g[..., None]
        u = self.A_inv @ g
        square = _check(g.mT @ u)
        u /= (1 + square).sqrt()
        self.A_inv.addcmul_(u, u.mT, value=-1)


class DiagonalInverse:
    """Keep only the diagonal of A, which ignores products of different entries of a gradient.

    This approximation is used in the authors' code (github.com/uclaml/NeuralUCB, learner_diag.py).
    Parameters are those of `UpdatedInverse`.

    Attributes
    ----------
    diagonal : Tensor, shape (..., 1, p)
        Of the same type as the gradients.
    """

    def __init__(
        self, p: int, ridge: float, shape: tuple[int, ...], dtype: torch.dtype
    ) -> None:
        self.diagonal = self.kept = torch.full((*shape, 1, p), ridge, dtype=dtype)

    def squares(self, jacobian: Tensor) -> Tensor:
        """Return the sums of gᵢ² / Aᵢᵢ for the rows g of a Jacobian (..., n, p); shape (..., n)."""
        return (jacobian.square() / self.diagonal).sum(dim=-1)

    def learn(self, g: Tensor) -> None:
        """Add g² to the diagonal, for a gradient (..., p)."""
        squared = g.square()[..., None, :]
        _check(squared.sum(dim=-1))
        self.diagonal += squared


INVERSES = {
    "updated": UpdatedInverse,
    "diagonal": DiagonalInverse,
}
# Limit on the memory for A and the gradients of a decision together.
MOST_BYTES = 2 * 1024**3


def _check(square: Tensor) -> Tensor:
    """Raise if squared widths are negative or not finite; else return them."""
    low, high = square.aminmax()  # NaN if an entry is NaN
    if not 0 <= low.item() <= high.item() < float("inf"):
        raise FloatingPointError(
            "g A⁻¹ gᵀ must be finite and 0 or more: gradients overflow, or rounding has worn A⁻¹ out, "
            'in which case dtype="float64" or a larger ridge helps'
        )
    return square


@dataclass(eq=False, repr=False)
class NeuralUCBAgent(NeuralAgent):
    r"""Score arms by a network's prediction and the uncertainty of all its weights.

    This version differs from the paper's Algorithm 1. It omits initial weights at which f is 0 for every
    row (there, half of the units repeat the other half and the output subtracts them), the penalty on the
    distance from the initial weights, and the factor :math:`\sqrt m`. It trains on batches instead of all
    rows played, and `alpha` is fixed; the paper's :math:`\gamma_t` grows with the determinant of A.

    Parameters
    ----------
    alpha : float, default 0.1
        Weight of the uncertainty, 0 or more; the paper's :math:`\gamma`.
    ridge : float, default 1.0
        :math:`\lambda > 0`, weight of the prior. In float32 rounding errors grow as it shrinks.
    inverse : {"updated", "diagonal"}, default "updated"
        How A is stored: see `UpdatedInverse`, which is exact, and `DiagonalInverse`.
    others
        As for `NeuralAgent`.

    Attributes
    ----------
    n_parameters : int
        p, the length of a gradient.
    uncertainty : UpdatedInverse or DiagonalInverse
        The matrix A in the form chosen by `inverse`, for the width in each direction of weight space.

    Raises
    ------
    MemoryError
        If A and the gradients of a decision would take more than 2 GiB.

    Examples
    --------
    >>> agent = NeuralUCBAgent(n_arms=50, n_features=9)
    >>> agent.n_parameters
    705
    >>> agent.uncertainty.A_inv.shape
    torch.Size([705, 705])
    """

    _learns = ("_uncertainty",)
    _retired = ("jacobian",)
    gradients = staticmethod(jacobian_at)  # pages compare other ways to them

    alpha: float = setting(as_not_negative, 0.1)
    shared: bool = field(default=True, init=False)
    _: KW_ONLY
    ridge: float = setting(as_positive, 1.0)
    inverse: str = setting(one_of(*INVERSES), "updated")

    @classmethod
    def _least_numbers(cls, settings: dict[str, Any]) -> float:
        weights = super()._least_numbers(settings)
        if settings["inverse"] == "diagonal":
            return weights
        return weights**2 / (settings["n_worlds"] or 1)

    @property
    def n_parameters(self) -> int:
        """p, the number of weights and biases of the network."""
        sizes = pairwise((self.n_features, *self.hidden, 1))
        return sum((n_in + 1) * n_out for n_in, n_out in sizes)

    def begin(self, seed: Seed | Sequence[Seed]) -> None:
        """Draw the initial weights, and forget all rows played."""
        p = self.n_parameters
        shape = self._shape[:-1]
        rows = self.n_arms + (1 if self.inverse == "diagonal" else p)
        needed = (self.n_worlds or 1) * rows * p * self.dtype.itemsize
        if needed > MOST_BYTES:
            raise MemoryError(
                f"hidden={self.hidden} makes p = {p:,} parameters, for which inverse={self.inverse!r} and "
                f"the gradients of {self.n_arms} arms take {needed:,} bytes in {self.n_worlds or 1} worlds: "
                f'{MOST_BYTES:,} are allowed. inverse="diagonal" takes far less'
            )
        super().begin(seed)
        kind = getattr(torch, self.dtype.name)
        self.uncertainty = INVERSES[self.inverse](p, self.ridge, shape, kind)

    def jacobian_of(self, x: ArrayLike) -> NDArray:
        """Return gradients at rows (n, d) or (W, n, d); shape (n, p) or (W, n, p).

        They are derivatives of the network's output with respect to ``network.parameters()``, in order.
        """
        rows = torch.from_numpy(np.array(x, self.dtype))
        return self.gradients(self.network, rows).numpy()

    @torch.no_grad()
    def score_rows(self, x: NDArray) -> NDArray:
        """Score rows (n, d) or (W, n, d); returns shape (n,) or (W, n)."""
        rows = torch.from_numpy(x)
        jacobian = self.gradients(self.network, rows)
        widths = _check(self.uncertainty.squares(jacobian)).sqrt()
        return (self.predict(rows) + self.alpha * widths).numpy()

    def represent(self, x: NDArray) -> Tensor:
        """Return the gradients (..., p) of the rows played, computed with the weights that chose them."""
        rows = torch.from_numpy(x[..., None, :])
        return self.gradients(self.network, rows)[..., 0, :]

    def absorb(
        self, played: Tensor, at: tuple, reward: ArrayLike, trained: bool
    ) -> None:
        """Add the gradients of the rows played to A."""
        self.uncertainty.learn(played)

    @property
    def _uncertainty(self) -> NDArray:
        """The stored form of A, as an array that shares its memory."""
        return self.uncertainty.kept.numpy()
