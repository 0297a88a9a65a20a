"""Small neural networks that exist once, or in many worlds at once.

Every layer takes an optional leading *worlds* axis: with one seed its weights have their usual
shape, with a list of W seeds each array gains a leading axis W and world w is initialised by seed w.
Worlds share no weights, so one optimiser step on the sum of their losses trains them all, each as
if it were alone.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from itertools import pairwise
from types import EllipsisType

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from zoolib._checks import as_size

Generators = torch.Generator | list[torch.Generator]


def seeded(seed: int | Sequence[int]) -> Generators:
    """Return one generator for a single seed, a list of them for a sequence of seeds.

    Raises
    ------
    TypeError, ValueError
        If a seed is not a whole number, is negative, or there is none.
    """
    if np.ndim(seed) == 0:
        return torch.Generator().manual_seed(as_size("seed", seed, least=0))
    if len(seed) == 0:
        raise ValueError("seed must hold one seed a world: got none")
    return [seeded(one) for one in seed]


def draw(generators: Generators, sample: Callable[[torch.Generator], Tensor]) -> Tensor:
    """Sample once a world; several worlds are stacked along a new leading axis."""
    if isinstance(generators, torch.Generator):
        return sample(generators)
    return torch.stack([sample(generator) for generator in generators])


def descend(optimiser: torch.optim.Optimizer, losses: Tensor) -> None:
    """Take one optimiser step on the sum of the worlds' losses.

    Parameters
    ----------
    optimiser : torch.optim.Optimizer
        Holds the parameters.
    losses : Tensor, shape () or (W,)
        One number a world; worlds share no weights, so each descends on its own.

    Raises
    ------
    FloatingPointError
        If a loss or a gradient is not finite; the parameters are then unchanged.
    """
    if not losses.isfinite().all():
        raise FloatingPointError(
            f"losses must be finite, or the learning rate is too high: got {losses.tolist()}"
        )
    optimiser.zero_grad()
    losses.sum().backward()
    gradients = [p.grad for group in optimiser.param_groups for p in group["params"]]
    # What the losses do not depend on has none. A maximum is NaN if an entry is: one number tells.
    if not all(g.abs().max().isfinite() for g in gradients if g is not None):
        raise FloatingPointError("gradients must be finite: got NaN or infinity")
    optimiser.step()


class Embedding(nn.Module):
    """A table of `n` learned vectors, looked up by id.

    Parameters
    ----------
    n, dim : int
        Number of ids and length of their vectors.
    generators : Generators
        Source of the initial weights, normal with standard deviation `scale`.
    scale : float, default 1.0
        1.0 is PyTorch's own choice.

    Attributes
    ----------
    weight : Parameter, shape (n, dim) or (W, n, dim)
    """

    def __init__(
        self, n: int, dim: int, generators: Generators, scale: float = 1.0
    ) -> None:
        super().__init__()
        table = draw(generators, lambda g: torch.randn(n, dim, generator=g))
        self.weight = nn.Parameter(scale * table)

    def forward(self, ids: Tensor) -> Tensor:
        """Map ids (m,) to vectors (m, dim), or (W, m) to (W, m, dim) with worlds."""
        n, dim = self.weight.shape[-2:]
        if self.weight.ndim == 3:
            # One long table: world w owns rows w n … w n + n - 1.
            ids = ids + n * torch.arange(len(self.weight), device=ids.device)[:, None]
        return functional.embedding(ids, self.weight.reshape(-1, dim))


class MLP(nn.Module):
    """A multilayer perceptron with ReLU between its layers and a linear output.

    Parameters
    ----------
    sizes : sequence of int
        Widths from input to output, for example ``(64, 64, 32, 1)``.
    generators : Generators
        Source of the initial weights and biases, uniform in ±1/sqrt(inputs of the layer), which is
        PyTorch's own choice.

    Attributes
    ----------
    weights, biases : ParameterList
        Per layer, shapes (in, out) and (1, out), or (W, in, out) and (W, 1, out).
    layers : list of (Parameter, Parameter)
        The same once more, in pairs, for decisions: a ParameterList is slow to go through.
    """

    def __init__(self, sizes: Sequence[int], generators: Generators) -> None:
        super().__init__()
        self.weights, self.biases = nn.ParameterList(), nn.ParameterList()
        for n_in, n_out in pairwise(sizes):
            self.weights.append(
                _uniform(generators, n_in, n_out, bound=1 / math.sqrt(n_in))
            )
            self.biases.append(
                _uniform(generators, 1, n_out, bound=1 / math.sqrt(n_in))
            )
        self.layers = list(zip(self.weights, self.biases, strict=True))
        self._views: tuple[list[int], list[tuple[NDArray, NDArray]]] | None = None

    def forward(self, x: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        """Map inputs (m, in) to outputs (m, out), or (W, m, in) to (W, m, out) with worlds.

        With masks, one a hidden layer of shape (m, units) or (W, m, units), its units are multiplied
        by them: this is dropout.
        """
        *hidden, output = zip(self.weights, self.biases, strict=True)
        for place, (weight, bias) in enumerate(hidden):
            x = torch.relu_(_affine(x, weight, bias))
            if masks is not None:
                x = x * masks[place]
        return _affine(x, *output)

    def evaluate(self, x: NDArray, at: NDArray | EllipsisType = ...) -> NDArray:
        """Return what `forward` does, for arrays and without a trace for gradients.

        A decision multiplies small matrices; PyTorch's calls would take longer than their work. With
        `at`, only the networks at these places of the leading axis are evaluated.
        """
        first = x
        for weight, bias in self._arrays():
            if x is not first:
                np.maximum(x, 0, out=x)
            x = x @ weight[at]
            x += bias[at]
        return x

    def evaluate_masked(self, x: NDArray, masks: Sequence[NDArray]) -> NDArray:
        """Evaluate T sub-networks at once, without a trace for gradients.

        Parameters
        ----------
        x : ndarray, shape (m, in) or (W, m, in)
            Inputs, the same for all sub-networks.
        masks : sequence of ndarray, shape (T, units) or (W, T, units)
            One array a hidden layer, at least one: what its units are multiplied by.

        Returns
        -------
        ndarray, shape (T, m, out) or (W, T, m, out)
        """
        (weight, bias), *others = self._arrays()
        x = (x @ weight + bias)[..., None, :, :]  # as yet, all are the same
        for mask, (weight, bias) in zip(masks, others, strict=True):
            x = np.maximum(x, 0) * mask[..., None, :]
            *worlds, n_masks, m, units = x.shape
            x = x.reshape(*worlds, n_masks * m, units) @ weight
            x = (x + bias).reshape(*worlds, n_masks, m, -1)
        return x

    def _arrays(self) -> list[tuple[NDArray, NDArray]]:
        """Return weights and biases as arrays that share their memory; to make them takes a while."""
        where = [part.data_ptr() for layer in self.layers for part in layer]
        if self._views is None or self._views[0] != where:
            views = [(w.data.numpy(), b.data.numpy()) for w, b in self.layers]
            self._views = where, views
        return self._views[1]

    def __getstate__(self) -> dict[str, object]:
        """Leave the views out: a copy of the network must look at its own weights."""
        return self.__dict__ | {"_views": None}


def _affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute ``x @ weight + bias``, with or without a worlds axis, in one call of the BLAS."""
    multiply_and_add = torch.addmm if weight.ndim == 2 else torch.baddbmm
    return multiply_and_add(bias, x, weight)


def _uniform(
    generators: Generators, rows: int, columns: int, bound: float
) -> nn.Parameter:
    def sample(generator: torch.Generator) -> Tensor:
        return torch.empty(rows, columns).uniform_(-bound, bound, generator=generator)

    return nn.Parameter(draw(generators, sample))
