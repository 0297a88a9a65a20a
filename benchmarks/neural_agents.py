"""How fast Chapter 3's agents decide, learn and train.

No two arms look alike here, so that each must be scored for itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np
import torch
from numpy.typing import DTypeLike, NDArray
from torch import nn
from torch.nn import functional

from benchmarks.contest import (
    FASTEST_PEER,
    Absent,
    Contestant,
    Promise,
    Row,
    for_a_while,
)
from benchmarks.linear_agents import Player, Visit, decides, difference, visits
from benchmarks.peers import available
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
def beside(
    agent: Player, other: Player, kind: str, note: str, n_steps: int
) -> Contestant:
    """Return a plain form or a peer as a contestant, its scores compared first."""
    far = difference(copy.deepcopy(agent), copy.deepcopy(other), seen(n_steps))
    return Contestant(plays(other), kind, far, note)


# NeuralUCB


class NaiveNeuralUCB:
    """NeuralUCB as its definition reads: a backward pass per arm and an inverse per decision.

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
            "naive, NumPy": beside(
                agent,
                NaiveNeuralUCB(agent),
                "naive",
                "An inverse per decision in double precision, a backward pass per arm.",
                n_steps,
            ),
            "naive, PyTorch float32": beside(
                agent,
                NaiveNeuralUCB(agent, inv_by_torch, np.float32),
                "naive",
                "The same, with the inverse in single precision by PyTorch's library.",
                n_steps,
            ),
            "limit: matmul": Contestant(
                for_a_while(product(agent)),
                "limit",
                note="The product of 50 gradients and A⁻¹, which a decision cannot do without.",
            ),
            "limit: memory": Contestant(
                for_a_while(passes(agent)),
                "limit",
                note="A⁻¹ read for a decision, then read and written for an update; in the cache if it fits.",
            ),
        },
        {"K": K, "d": D, "p": p},
        SEED,
        "NeuralUCB",
        (Promise("naive, PyTorch float32", at_least=20),) if width == 64 else (),
    )


def product(agent: NeuralUCBAgent) -> Callable[[], object]:
    """Return what multiplies gradients of all arms and A⁻¹."""
    jacobian = torch.from_numpy(agent.jacobian_of(seen(1)[0][0].features))
    return partial(torch.matmul, jacobian, agent.uncertainty.A_inv)


def passes(agent: NeuralUCBAgent) -> Callable[[], object]:
    """Return what reads as many bytes as A⁻¹ has, and then reads and writes them."""
    matrix = agent.uncertainty.A_inv.numpy().copy()
    halves, other = matrix.ravel()[: matrix.size // 2 * 2].reshape(2, -1), matrix.copy()

    def go() -> None:
        np.dot(*halves)
        np.copyto(other, matrix)

    return go


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


class NaiveNeuralLinear:
    """Neural-linear UCB as its definition reads: an inverse per decision, then one arm at a time.

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
    """Neural-linear UCB with an inverse per decision, but all arms at once."""

    def scores(self, context: Context) -> NDArray:
        """Return the upper confidence bounds."""
        A_inv = np.linalg.inv(self.A)
        z = self.embed(context.features).astype(float)
        return z @ (A_inv @ self.b) + self.alpha * np.sqrt(((z @ A_inv) * z).sum(1))


def neural_linear() -> Row:
    """Return the row of neural-linear agents whose network stays as it is."""
    agent = NeuralLinearAgent(K, D, alpha=1.0, train_every=NEVER)
    thompson = NeuralLinearAgent(K, D, policy="thompson", train_every=NEVER)
    contestants: dict[str, Contestant | Absent] = {
        "zoolib": Contestant(plays(copy.deepcopy(agent)), "zoolib"),
        "zoolib, Thompson sampling": Contestant(
            plays(thompson), "variant", note="Draws a mean from the posterior."
        ),
        "naive": beside(
            agent,
            NaiveNeuralLinear(agent),
            "naive",
            "An inverse per decision, one arm at a time.",
            100,
        ),
        "naive, all arms at once": beside(
            agent,
            BatchedNeuralLinear(agent),
            "naive",
            "An inverse per decision, all arms in one pass.",
            100,
        ),
    }
    for name, one in available("neural-linear").items():
        if not isinstance(one, Absent):
            network = as_sequential(agent.network.body)
            adapter = one.make(network, agent.embedding_dim, SEED)
            one = beside(agent, adapter, "peer", one.note, 50)
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
    """One network trained as PyTorch's tutorials do it.

    Parameters
    ----------
    agent : NeuralLinearAgent
        Of one world; its network and its memory are copied.
    """

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


def training_products(n_worlds: int, n_rows: int) -> Callable[[], None]:
    """Return what multiplies the matrices of one optimiser step: forward, and back to weights and inputs."""
    generator = torch.Generator().manual_seed(SEED)

    def draw(*shape: int) -> torch.Tensor:
        return torch.randn(n_worlds, *shape, generator=generator)

    layers = [
        (draw(n_rows, n_in), draw(n_in, n_out), draw(n_rows, n_out))
        for n_in, n_out in ((D, 64), (64, 32), (32, 1))
    ]

    def go() -> None:
        for place, (x, weight, delta) in enumerate(layers):
            torch.bmm(x, weight)
            torch.bmm(x.mT, delta)
            if place:  # nobody asks for the gradient of the features
                torch.bmm(delta, weight.mT)

    return go


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
            "limit: matmul": Contestant(
                for_a_while(training_products(n_worlds, alone.batch_size), n_worlds),
                "limit",
                note="The products of a step alone, forward and back.",
            ),
        },
        {"worlds": n_worlds},
        SEED,
        promises=(Promise("naive", at_least=5),),
    )
