"""How fast Chapter 3's agents decide, learn and train.

No two arms look alike here, so that each must be scored for itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import NDArray
from torch import Tensor, nn
from torch.nn import functional

from benchmarks.contest import (
    FASTEST_PEER,
    Absent,
    Contestant,
    Promise,
    Row,
    for_a_while,
)
from benchmarks.linear_agents import (
    NAIVE,
    Player,
    Visit,
    decides,
    difference,
    visits,
)
from benchmarks.machine import multiplies, reads
from benchmarks.peers import Adapter, available
from zoolib._support.threads import one_thread
from zoolib.agents import Context
from zoolib.agents.neural_linear import NeuralLinearAgent
from zoolib.agents.neural_ucb import NeuralUCBAgent
from zoolib.models.networks import MLP

K, D = 50, 9
SEED = 0
NEVER = 10**9  # updates until the next training
WIDTHS = (8, 16, 32, 64, 128)
MEMORY = 1000


def rows() -> Iterator[Row]:
    """Yield NeuralUCB by the number of parameters, neural-linear, and training in many worlds."""
    for width in WIDTHS:
        yield neural_ucb(width)
    yield neural_linear()
    yield stacked_training(20)


def seen(n: int = MEMORY) -> list[Visit]:
    """Draw n visits, with another row for each arm."""
    return visits(K, D, n, own=True)


def plays(agent: Player) -> Callable[[], float]:
    """Let an agent decide and learn for a while."""
    return decides(agent, seen())


@one_thread()
def beside(agent: Player, other: Adapter, kind: str, n_steps: int) -> Contestant:
    """Return a plain form or a peer as a contestant, its scores compared first."""
    far = difference(copy.deepcopy(agent), copy.deepcopy(other), seen(n_steps))
    return Contestant(plays(other), kind, far, other.note())


# NeuralUCB


class NaiveNeuralUCB(Adapter):
    """NeuralUCB as its definition reads: a backward pass per arm and an inverse per decision."""

    def __init__(self, agent: NeuralUCBAgent) -> None:
        self.network, self.alpha = copy.deepcopy(agent.network), agent.alpha
        self.A = agent.ridge * torch.eye(agent.n_parameters)

    def predict_with_gradient(self, x: NDArray) -> tuple[float, Tensor]:
        self.network.zero_grad()
        output = self.network(torch.tensor(x[None], dtype=torch.float32))[0, 0]
        output.backward()
        return output.item(), torch.cat(
            [p.grad.flatten() for p in self.network.parameters()]
        )

    def scores(self, context: Context) -> NDArray:
        scores = np.empty(len(context.features))
        A_inv = torch.linalg.inv(self.A)
        for arm, x in enumerate(context.features):
            prediction, g = self.predict_with_gradient(x)
            scores[arm] = prediction + self.alpha * np.sqrt((g @ A_inv @ g).item())
        return scores

    def update(self, context: Context, arm: int, reward: float) -> None:
        _, g = self.predict_with_gradient(context.features[arm])
        self.A += torch.outer(g, g)


def neural_ucb(width: int) -> Row:
    """Return the row of NeuralUCB with one hidden layer of a width."""
    agent = NeuralUCBAgent(K, D, hidden=(width,), train_every=NEVER)
    p = agent.n_parameters
    n_steps = 10_000 // p
    return Row(
        f"NeuralUCB, full matrix, p = {p:,}",
        "a decision and its update, without training",
        {
            "zoolib": Contestant(plays(copy.deepcopy(agent)), "zoolib"),
            "naive, PyTorch float32": beside(
                agent, NaiveNeuralUCB(agent), "naive", n_steps
            ),
            "limit: matmul": multiplies(
                K * p * (p + 1),
                np.float32,
                "The product of 50 gradients and A⁻¹, which a decision cannot do without.",
            ),
            "limit: memory": reads(
                3 * 4 * p**2,
                "A⁻¹ read for a decision, then read and written for an update. If it fits in the cache, an "
                "agent may be faster.",
            ),
        },
        {"K": K, "d": D, "p": p},
        SEED,
        "NeuralUCB",
        (Promise("naive, PyTorch float32", at_least=20),) if width == 64 else (),
    )


# Neural-linear


def as_sequential(mlp: MLP) -> nn.Sequential:
    """Return a network as PyTorch's tutorials build it, with the weights of ours."""
    layers: list[nn.Module] = []
    for weight, bias in zip(mlp.weights, mlp.biases, strict=True):
        layers += [nn.Linear(*weight.shape), nn.ReLU()]
        with torch.no_grad():
            layers[-2].weight.copy_(weight.T)
            layers[-2].bias.copy_(bias[0])
    return nn.Sequential(*layers[:-1])


def embed(body: nn.Sequential, rows: NDArray) -> NDArray:
    """Map rows (n, d) to embeddings (n, d_emb)."""
    with torch.no_grad():
        return body(torch.tensor(rows, dtype=torch.float32)).numpy().astype(float)


def neural_linear() -> Row:
    """Return the row of neural-linear agents whose network stays as it is."""
    agent = NeuralLinearAgent(K, D, alpha=1.0, train_every=NEVER)
    contestants: dict[str, Contestant | Absent] = {
        "zoolib": Contestant(plays(copy.deepcopy(agent)), "zoolib")
    }
    embeds = partial(embed, as_sequential(agent.network.body))
    for name, form in NAIVE.items():
        plain = form(K, agent.embedding_dim, agent.alpha, shared=True, embed=embeds)
        contestants[name] = beside(agent, plain, "naive", 100)
    for name, one in available("neural-linear").items():
        if not isinstance(one, Absent):
            network = as_sequential(agent.network.body)
            one = beside(agent, one(network, agent.embedding_dim), "peer", 50)
        contestants[name] = one
    return Row(
        "neural-linear",
        "a decision and its update, without training",
        contestants,
        {"K": K, "d": D, "d_emb": agent.embedding_dim},
        SEED,
        promises=(
            Promise("naive", at_least=10),
            Promise(FASTEST_PEER, at_least=5),
        ),
    )


# Training in many worlds


class NaiveTraining:
    """One network trained as PyTorch's tutorials do it, a copy of an agent's with its memory."""

    def __init__(self, agent: NeuralLinearAgent) -> None:
        self.network = nn.Sequential(
            as_sequential(agent.network.body), as_sequential(agent.network.head)
        )
        self.optimiser = torch.optim.Adam(
            self.network.parameters(), lr=agent.learning_rate
        )
        memory = agent.memory.newest(len(agent.memory))
        self.x, self.reward = map(torch.from_numpy, memory)
        self.batch_size, self.rng = agent.batch_size, np.random.default_rng(SEED)

    def step(self) -> None:
        """Take one optimiser step."""
        drawn = self.rng.integers(len(self.x), size=self.batch_size)
        self.optimiser.zero_grad()
        output = self.network(self.x[drawn])[:, 0]
        functional.mse_loss(output, self.reward[drawn]).backward()
        self.optimiser.step()


def ready_to_train(n_worlds: int | None) -> NeuralLinearAgent:
    """Make an agent with network 9-64-32-1 and a full memory; a training takes 50 steps."""
    agent = NeuralLinearAgent(K, D, n_worlds=n_worlds, n_batches=50)
    shape = () if n_worlds is None else (n_worlds,)
    rng = np.random.default_rng(SEED)
    for _ in range(MEMORY):
        agent.memory.add(rng.normal(size=(*shape, D)), rng.random(shape))
    return agent


def stacked_training(n_worlds: int) -> Row:
    """Return the row of networks trained together, each on batches from its world's memory."""
    alone, together = ready_to_train(None), ready_to_train(n_worlds)
    steps = together.n_batches
    return Row(
        f"stacked training, W = {n_worlds}",
        f"an optimiser step of one world, on {alone.batch_size} rows",
        {
            "zoolib": Contestant(
                for_a_while(together.train, steps * n_worlds), "zoolib"
            ),
            "zoolib, one network": Contestant(
                for_a_while(alone.train, steps),
                "variant",
                note="One world after the other, without the worlds axis.",
            ),
            "naive": Contestant(
                for_a_while(NaiveTraining(alone).step),
                "naive",
                note="One world after the other, as PyTorch's tutorials train; nothing is checked.",
            ),
            "limit: matmul": multiplies(
                alone.batch_size * (2 * D * 64 + 3 * 64 * 32 + 3 * 32),
                np.float32,
                "The products of a step: forward, and back to the weights and to all layers' inputs but the "
                "features.",
            ),
        },
        {"worlds": n_worlds},
        SEED,
        promises=(Promise("naive", at_least=5),),
    )
