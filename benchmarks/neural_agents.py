"""How fast Chapter 3's agents decide, learn and train: beside plain forms, and part by part.

    python -m benchmarks.neural_agents [--json FILE]

Prints medians of repeated pairs as ratios, on one core and one thread; absolute times depend on the
machine. No two arms look alike here, so that each must be scored for itself.
"""

from __future__ import annotations

import argparse
import copy
import json
import platform
import statistics
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
import torch
from numpy.typing import DTypeLike, NDArray
from torch import nn

from benchmarks.contest import median_ratio, seconds
from benchmarks.linear_agents import Player, play
from zoolib._threads import one_thread
from zoolib.agents import Context
from zoolib.agents.neural_linear import NeuralLinearAgent
from zoolib.agents.neural_ucb import JACOBIANS, NeuralUCBAgent
from zoolib.networks import MLP

K, D = 50, 9
NEVER = 10**9  # updates until the next training


class NaiveNeuralUCB:
    """NeuralUCB as its definition reads: a backward pass an arm, an inverse a decision, in NumPy or PyTorch.

    Parameters
    ----------
    agent : NeuralUCBAgent
        Whose network and options it has.
    inv : callable, default numpy.linalg.inv
        What inverts.
    dtype : float32 or float64, default float64
        Of A.
    """

    def __init__(
        self,
        agent: NeuralUCBAgent,
        inv: Callable[[NDArray], NDArray] = np.linalg.inv,
        dtype: DTypeLike = np.float64,
    ) -> None:
        self.network, self.alpha = copy.deepcopy(agent.network), agent.alpha
        self.kind = getattr(torch, agent.dtype.name)
        self.inv, self.A = inv, agent.ridge * np.eye(agent.n_parameters, dtype=dtype)

    def predict_with_gradient(self, x: NDArray) -> tuple[float, NDArray]:
        """Return the prediction for one row, and its gradient."""
        self.network.zero_grad()
        output = self.network(torch.tensor(x[None], dtype=self.kind))[0, 0]
        output.backward()
        gradient = [p.grad.flatten() for p in self.network.parameters()]
        return output.item(), torch.cat(gradient).numpy().astype(self.A.dtype)

    def scores(self, context: Context) -> NDArray:
        """Return the upper confidence bounds."""
        scores = np.empty(len(context.features))
        A_inv = self.inv(self.A)
        for arm, x in enumerate(context.features):
            prediction, g = self.predict_with_gradient(x)
            scores[arm] = prediction + self.alpha * np.sqrt(g @ A_inv @ g)
        return scores

    def select(self, context: Context) -> int:
        """Choose the arm of the highest bound."""
        return int(self.scores(context).argmax())

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        _, g = self.predict_with_gradient(context.features[arm])
        self.A += np.outer(g, g)


def inv_by_torch(matrix: NDArray) -> NDArray:
    """Invert by PyTorch's library, which on some machines is twice as fast as NumPy's."""
    return torch.linalg.inv(torch.from_numpy(matrix)).numpy()


# The first is the plain form as it is usually written; the second the fastest that is still plain.
NAIVE_NEURAL_UCB: dict[str, Callable[[NeuralUCBAgent], Player]] = {
    "numpy, float64": NaiveNeuralUCB,
    "torch, float32": partial(NaiveNeuralUCB, inv=inv_by_torch, dtype=np.float32),
}


def as_sequential(mlp: MLP) -> nn.Sequential:
    """Return a network as PyTorch's tutorials build it, with the weights of ours."""
    layers: list[nn.Module] = []
    for weight, bias in zip(mlp.weights, mlp.biases, strict=True):
        layers += [nn.Linear(*weight.shape), nn.ReLU()]
        with torch.no_grad():
            layers[-2].weight.copy_(weight.T)
            layers[-2].bias.copy_(bias[0])
    return nn.Sequential(*layers[:-1])


class NaiveNeuralLinear:
    """Neural-linear UCB as its definition reads: an inverse a decision, then one arm at a time.

    Parameters
    ----------
    agent : NeuralLinearAgent
        Whose network and options it has.
    """

    def __init__(self, agent: NeuralLinearAgent) -> None:
        self.body, self.alpha = as_sequential(agent.network.body), agent.alpha
        self.A, self.b = agent.posterior.A, agent.posterior.b

    def embed(self, x: NDArray) -> NDArray:
        """Map rows (n, d) to embeddings (n, d_emb)."""
        with torch.no_grad():
            return self.body(torch.tensor(x, dtype=torch.float32)).numpy()

    def scores(self, context: Context) -> NDArray:
        """Return the upper confidence bounds."""
        scores = np.empty(len(context.features))
        A_inv = np.linalg.inv(self.A)
        theta = A_inv @ self.b
        for arm, x in enumerate(context.features):
            z = self.embed(x[None])[0].astype(float)
            scores[arm] = z @ theta + self.alpha * np.sqrt(z @ A_inv @ z)
        return scores

    def select(self, context: Context) -> int:
        """Choose the arm of the highest bound."""
        return int(self.scores(context).argmax())

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        z = self.embed(context.features[arm][None])[0].astype(float)
        self.A += np.outer(z, z)
        self.b += reward * z


class BatchedNeuralLinear(NaiveNeuralLinear):
    """Neural-linear UCB with an inverse a decision, but all arms at once."""

    def scores(self, context: Context) -> NDArray:
        """Return the upper confidence bounds."""
        A_inv = np.linalg.inv(self.A)
        z = self.embed(context.features).astype(float)
        return z @ (A_inv @ self.b) + self.alpha * np.sqrt(((z @ A_inv) * z).sum(1))


NAIVE_NEURAL_LINEAR: dict[str, Callable[[NeuralLinearAgent], Player]] = {
    "one arm at a time": NaiveNeuralLinear,
    "all arms at once": BatchedNeuralLinear,
}


def neural_ucb(**options: Any) -> NeuralUCBAgent:
    """Make an agent of 705 parameters that never trains."""
    return NeuralUCBAgent(K, D, train_every=NEVER, **options)


def neural_linear() -> NeuralLinearAgent:
    """Make an agent with 32 numbers in an embedding that never trains."""
    return NeuralLinearAgent(K, D, train_every=NEVER)


def visits(n_steps: int) -> tuple[list[Context], list[list[float]]]:
    """Draw dense features, another row for each arm, and what each arm would earn."""
    rng = np.random.default_rng(0)
    contexts = [Context(0, rows) for rows in rng.normal(size=(n_steps, K, D))]
    return contexts, (rng.random((n_steps, K)) < 0.3).astype(float).tolist()


@one_thread()
def difference(ours: Player, plain: Player, n_steps: int = 50) -> float:
    """Return the largest difference of a score, part of the score, both having seen what we showed."""
    largest = 0.0
    for context, reward in zip(*visits(n_steps), strict=True):
        theirs = plain.scores(context)
        part = abs(ours.scores(context) - theirs) / (1 + abs(theirs))
        largest = max(largest, float(part.max()))
        arm = ours.select(context)
        for agent in (ours, plain):
            agent.update(context, arm, reward[arm])
    return largest


@one_thread()
def ratio_to_naive(
    make: Callable[[], Player],
    make_plain: Callable[[Any], Player],
    n_steps: int,
    n_plain: int,
    repeats: int = 5,
) -> float:
    """Seconds a decision and its update of the plain form, over ours."""
    contexts, rewards = visits(n_steps)
    agent = make()
    ours = [copy.deepcopy(agent) for _ in range(1 + repeats)]
    plain = [make_plain(agent) for _ in range(1 + repeats)]
    ratio = median_ratio(
        lambda: play(plain.pop(), contexts[:n_plain], rewards[:n_plain]),
        lambda: play(ours.pop(), contexts, rewards),
        repeats,
    )
    return ratio * n_steps / n_plain


def neural_ucb_ratio(plain: str = "torch, float32", repeats: int = 5) -> float:
    """Seconds of plain NeuralUCB over ours; 705 parameters."""
    return ratio_to_naive(neural_ucb, NAIVE_NEURAL_UCB[plain], 200, 10, repeats)


def neural_linear_ratio(plain: str = "one arm at a time", repeats: int = 5) -> float:
    """Seconds of plain neural-linear UCB over ours; 32 numbers in an embedding."""
    return ratio_to_naive(neural_linear, NAIVE_NEURAL_LINEAR[plain], 1000, 100, repeats)


def ready_to_train(n_worlds: int | None) -> NeuralLinearAgent:
    """Make an agent, network 9-64-32-1, whose memory holds enough for a batch."""
    agent = NeuralLinearAgent(K, D, n_worlds=n_worlds)
    shape = () if n_worlds is None else (n_worlds,)
    rng = np.random.default_rng(0)
    for _ in range(1000):
        agent.memory.add(rng.normal(size=(*shape, D)), rng.random(shape))
    return agent


@one_thread()
def stacking_ratio(n_worlds: int = 20, n_steps: int = 200, repeats: int = 5) -> float:
    """World-steps a second of stacked networks over those of one: batches of 64, drawn from memory."""
    alone, together = ready_to_train(None), ready_to_train(n_worlds)
    alone.n_batches = together.n_batches = n_steps
    return n_worlds * median_ratio(alone.train, together.train, repeats)


@one_thread()
def cost_by_part(
    n_arms: Sequence[int] = (10, 50, 200),
    widths: Sequence[int] = (16, 64, 256),
    repeats: int = 5,
) -> pd.DataFrame:
    """Milliseconds of each part of NeuralUCB, by number of arms K and of parameters p = 11 m + 1.

    Returns
    -------
    DataFrame
        Indexed by K and p. Of a decision: the gradients by each method; the products g A⁻¹ gᵀ, of the
        order K p²; the inverse, of the order p³, where it is not kept. Of an update: what changes
        A⁻¹, of the order p².
    """
    rows = []
    for width in widths:
        agent = NeuralUCBAgent(1, D, hidden=(width,), train_every=NEVER)
        p, kept = agent.n_parameters, agent.uncertainty
        A = kept.A_inv.clone()
        inverse = milliseconds(partial(torch.linalg.inv, A), repeats)
        for k in n_arms:
            x = torch.randn(k, D, generator=torch.Generator().manual_seed(0))
            gradients = {
                f"gradients, {name}": milliseconds(
                    partial(method, agent.network, x), repeats
                )
                for name, method in JACOBIANS.items()
            }
            jacobian = JACOBIANS["closed"](agent.network, x)
            rows.append(
                {"K": k, "p": p}
                | gradients
                | {
                    "products": milliseconds(
                        partial(kept.squares, [jacobian]), repeats
                    ),
                    "inverse": inverse,
                    "update": milliseconds(partial(kept.learn, jacobian[0]), repeats),
                }
            )
    return pd.DataFrame(rows).set_index(["K", "p"])


def milliseconds(task: Callable[[], object], repeats: int) -> float:
    """Return the median time of a task, after one run for warmth."""
    return 1e3 * statistics.median([seconds(task) for _ in range(1 + repeats)][1:])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    ucb = {name: neural_ucb_ratio(name) for name in NAIVE_NEURAL_UCB}
    linear = {name: neural_linear_ratio(name) for name in NAIVE_NEURAL_LINEAR}
    for title, ratios in (
        ("NeuralUCB, p = 705", ucb),
        ("neural-linear, 32", linear),
    ):
        for name, ratio in ratios.items():
            print(f"{title}, {K} arms: {ratio:.1f} times as fast as plain, {name}")
    stacked = stacking_ratio()
    print(f"20 networks trained together: {stacked:.1f} times the world-steps a second")
    parts = cost_by_part()
    print(f"milliseconds of NeuralUCB's parts\n{parts.round(3).to_string()}")
    if arguments.json:
        figures = {
            "neural_ucb_ratio": ucb,
            "neural_linear_ratio": linear,
            "stacking_ratio": stacked,
            "cost_by_part": parts.reset_index().to_dict("records"),
        }
        arguments.json.write_text(
            json.dumps(figures | {"machine": platform.machine()}, indent=1)
        )


if __name__ == "__main__":
    main()
