"""Small neural networks, one or many stacked.

With one generator the weights of a layer have their usual shape. With a list of W generators each
array gains a leading *worlds* axis W, and world w is initialised by generator w; lists of lists add
another axis, for the members of an ensemble. Stacked networks share no weights, so one optimiser step
on the sum of their losses trains each network independently.
"""

from __future__ import annotations

import inspect
import math
from collections.abc import Callable, Sequence
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import torch
    from torch import Tensor, nn
    from torch.linalg import vector_norm
    from torch.nn import functional

from zoolib._support.checks import Seed, as_seed

Generators = torch.Generator | list["Generators"]


def seeded(seed: Seed | Sequence[Seed]) -> Generators:
    """Return one generator for a single seed, or a list of generators for a sequence of seeds."""
    if np.ndim(seed) == 0:
        return torch.Generator().manual_seed(as_seed("seed", seed))
    if len(seed) == 0:
        raise ValueError("seed must hold one seed per world: got none")
    return [seeded(one) for one in seed]


def draw(generators: Generators, sample: Callable[[torch.Generator], Tensor]) -> Tensor:
    """Sample from each generator; samples from a list are stacked along a new leading axis."""
    if isinstance(generators, torch.Generator):
        return sample(generators)
    return torch.stack([draw(one, sample) for one in generators])


class _Uncompiled(torch.optim.Optimizer):
    """PyTorch's optimisers load its compiler, which takes a second, only to tell it that they do without."""

    add_param_group = inspect.unwrap(torch.optim.Optimizer.add_param_group)

    def zero_grad(self) -> None:
        """Forget the gradients, and tell no profiler, which takes longer than that."""
        for group in self.param_groups:
            for p in group["params"]:
                p.grad = None


def _plain_step(kind: type[torch.optim.Optimizer]) -> Callable:
    """Return the step of an optimiser of PyTorch's without compiler and profiler."""
    step = torch.no_grad()(inspect.unwrap(kind.step))
    step.hooked = True  # otherwise PyTorch wraps it again, for its profiler
    return step


class Adam(_Uncompiled, torch.optim.Adam):
    """PyTorch's Adam."""

    step = _plain_step(torch.optim.Adam)

    def begin(self) -> None:
        """Make the state before the first step, which PyTorch makes later: what is saved has it."""
        for p in self.param_groups[0]["params"]:
            self.state[p] = {
                "step": torch.zeros(()),
                "exp_avg": torch.zeros_like(p.data),
                "exp_avg_sq": torch.zeros_like(p.data),
            }


class SGD(_Uncompiled, torch.optim.SGD):
    """PyTorch's gradient descent."""

    step = _plain_step(torch.optim.SGD)


def descend(optimiser: torch.optim.Optimizer, losses: Tensor) -> None:
    """Take one optimiser step on the losses of stacked networks, one number per network, in any shape.

    Networks share no weights, so a step on the sum of the losses trains each independently.

    Raises
    ------
    FloatingPointError
        If a loss or a gradient is not finite; the parameters are then unchanged.
    """
    loss = losses.sum()  # not finite if one of them is not
    if not math.isfinite(loss.detach()):
        raise FloatingPointError(
            f"losses must be finite, or the learning rate is too high: got {losses.tolist()}"
        )
    optimiser.zero_grad()
    loss.backward()
    gradients = [p.grad for group in optimiser.param_groups for p in group["params"]]
    # A parameter that the losses do not depend on has no gradient.
    largest = (vector_norm(g, torch.inf) for g in gradients if g is not None)
    if not all(map(math.isfinite, largest)):
        raise FloatingPointError("gradients must be finite: got NaN or infinity")
    optimiser.step()


def shared_arrays(
    network: nn.Module, optimiser: torch.optim.Optimizer
) -> dict[str, dict[str, NDArray]]:
    """Return each parameter and its optimiser state as arrays, which share memory with them."""
    kept = optimiser.state
    return {
        name: {"weight": p.data.numpy()}
        | {key: moment.numpy() for key, moment in kept.get(p, {}).items()}
        for name, p in network.named_parameters()
    }


class Embedding(nn.Module):
    """A table of `n` learned vectors of length `dim`, looked up by id.

    The `weight`, of shape (n, dim) or (W, n, dim), is drawn from normal distributions with standard
    deviation `scale`; 1.0 is PyTorch's own choice.
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
        One entry per layer, shapes (in, out) and (1, out), after the axes of the generators.
    layers : list of (Parameter, Parameter)
        The same in pairs, for `evaluate`, because iterating over a ParameterList is slow.
    """

    def __init__(self, sizes: Sequence[int], generators: Generators) -> None:
        super().__init__()
        self.weights = nn.ParameterList()
        self.biases = nn.ParameterList()
        for n_in, n_out in pairwise(sizes):
            bound = 1 / math.sqrt(n_in)
            self.weights.append(_uniform(generators, n_in, n_out, bound))
            self.biases.append(_uniform(generators, 1, n_out, bound))
        self.layers = list(zip(self.weights, self.biases, strict=True))

    def forward(self, x: Tensor, masks: Sequence[Tensor] | None = None) -> Tensor:
        """Map inputs (..., n, in) to outputs (..., n, out).

        Parameters
        ----------
        x : Tensor, shape (..., n, in)
            Rows, after axes that broadcast against those of the weights.
        masks : sequence of Tensor, shape (..., n, units), optional
            Dropout: one mask per hidden layer, by which its units are multiplied.
        """
        *hidden, output = zip(self.weights, self.biases, strict=True)
        for place, (weight, bias) in enumerate(hidden):
            x = torch.relu_(affine(x, weight, bias))
            if masks is not None:
                x = x * masks[place]
        return affine(x, *output)

    def evaluate(
        self,
        x: NDArray,
        masks: Sequence[NDArray] | None = None,
        at: tuple[NDArray, ...] = (),
    ) -> NDArray:
        """Return the same as `forward`, for arrays and without gradients.

        A decision multiplies small matrices, for which NumPy takes half as long as PyTorch.

        Parameters
        ----------
        x : ndarray, shape (..., n, in)
            Rows.
        masks : sequence of ndarray, shape (..., T, units), optional
            As for `forward`, for each of T sub-networks.
        at : tuple of indices, default ()
            Index into the leading axes of the weights: the stacked networks to evaluate, all
            if empty.

        Returns
        -------
        ndarray, shape (..., n, out), or (..., T, n, out) with masks
        """
        layers = [(w.data.numpy(), b.data.numpy()) for w, b in self.layers]
        if at:
            layers = [(weight[at], bias[at]) for weight, bias in layers]
        if masks is not None:
            x = x[..., None, :, :]
            layers = [(w[..., None, :, :], b[..., None, :, :]) for w, b in layers]
            # Multiplying a unit is the same as multiplying its row of the next layer's weights.
            for place, mask in enumerate(masks, 1):
                weight, bias = layers[place]
                layers[place] = mask[..., None] * weight, bias
        with np.errstate(over="ignore", invalid="ignore"):  # callers check it
            for place, (weight, bias) in enumerate(layers):
                if place > 0:
                    np.maximum(x, 0, out=x)
                x = x @ weight
                x += bias
        return x


def affine(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Compute ``x @ weight + bias``, for one network or one network per world, in a single call."""
    if weight.ndim == 2:
        return torch.addmm(bias, x, weight)
    if weight.ndim == 3 and len(x) == len(weight):
        return torch.baddbmm(bias, x, weight)
    return x @ weight + bias


def _uniform(generators: Generators, n: int, m: int, bound: float) -> nn.Parameter:
    def sample(generator: torch.Generator) -> Tensor:
        return torch.empty(n, m).uniform_(-bound, bound, generator=generator)

    return nn.Parameter(draw(generators, sample))
