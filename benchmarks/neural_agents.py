"""How fast Chapter 3's agents decide, learn and train.

No two arms look alike here, so that each must be scored for itself.
"""

from __future__ import annotations

import copy
from collections.abc import Callable, Iterator
from functools import partial
from itertools import cycle, islice

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
from benchmarks.linear_agents import (
    Player,
    Visit,
    decides,
    difference,
    visits,
)
from benchmarks.peers import Adapter, BatchAdapter, available
from zoolib._threads import one_thread
from zoolib.agents import Context
from zoolib.agents.neural_linear import NeuralLinearAgent
from zoolib.agents.neural_ucb import NeuralUCBAgent
from zoolib.networks import MLP

K, D = 50, 9
SEED = 0
NEVER = 10**9  # updates until the next training
WIDTHS = (8, 16, 32, 64, 128, 256)
WORLDS = (1, 5, 20, 100)
TRAIN_EVERY = 50
MEMORY = 1000
BATCH_NOTE = "All visits of a batch are decided on before one is learnt from."


def rows() -> Iterator[Row]:
    """Yield NeuralUCB by the number of parameters, neural-linear, and training by the number of worlds."""
    for width in WIDTHS:
        yield neural_ucb(width)
    yield diagonal_neural_ucb()
    for in_batches in (False, True):
        yield neural_linear(in_batches)
        yield trained_neural_linear(in_batches)
    for n_worlds in WORLDS:
        yield stacked_training(n_worlds)


def seen(n: int = MEMORY) -> list[Visit]:
    """Draw n visits, with another row for each arm."""
    return visits(K, D, n, "own")


def plays(agent: Player) -> Callable[[], int]:
    """Let an agent decide and learn for a while."""
    return decides([agent], seen())


def plays_batches(agent: BatchAdapter, n: int, units: int) -> Callable[[], int]:
    """Let an agent decide on n visits at once, then learn from all of them, for a while."""
    features = np.array([context.features for context, _ in seen(n)])
    rewards = np.array([reward for _, reward in seen(n)])

    def step() -> None:
        agent.update_batch(features, agent.select_batch(features), rewards)

    return for_a_while(step, units)


@one_thread()
def beside(agent: Player, plain: Player, note: str, n_steps: int) -> Contestant:
    """Return a plain form of an agent as a contestant, its scores compared first."""
    far = difference(copy.deepcopy(agent), copy.deepcopy(plain), seen(n_steps))
    return Contestant(plays(plain), "naive", far, note)


# NeuralUCB


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


class NaiveDiagonalNeuralUCB(NaiveNeuralUCB):
    """NeuralUCB with the diagonal of A alone, as the paper's authors wrote it: a backward pass an arm."""

    def __init__(self, agent: NeuralUCBAgent) -> None:
        super().__init__(agent)
        self.A = self.A.diagonal().copy()

    def scores(self, context: Context) -> NDArray:
        """Return the upper confidence bounds."""
        scores = np.empty(len(context.features))
        for arm, x in enumerate(context.features):
            prediction, g = self.predict_with_gradient(x)
            scores[arm] = prediction + self.alpha * np.sqrt((g * g / self.A).sum())
        return scores

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played."""
        _, g = self.predict_with_gradient(context.features[arm])
        self.A += g * g


def inv_by_torch(matrix: NDArray) -> NDArray:
    """Invert by PyTorch's library, which on some machines is twice as fast as NumPy's."""
    return torch.linalg.inv(torch.from_numpy(matrix)).numpy()


def neural_ucb(width: int) -> Row:
    """Return the row of NeuralUCB with so many hidden units; with 64, all that it may be made of too."""
    agent = NeuralUCBAgent(K, D, hidden=(width,), train_every=NEVER)
    p = agent.n_parameters
    n_steps = 10_000 // p
    contestants: dict[str, Contestant | Absent] = {
        "zoolib": Contestant(plays(copy.deepcopy(agent)), "zoolib"),
        "naive, NumPy": beside(
            agent,
            NaiveNeuralUCB(agent),
            "An inverse a decision in double precision, a backward pass an arm.",
            n_steps,
        ),
        "naive, PyTorch float32": beside(
            agent,
            NaiveNeuralUCB(agent, inv_by_torch, np.float32),
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
    }
    if width == 64:
        contestants |= {
            f"zoolib, {name}": Contestant(
                plays(NeuralUCBAgent(K, D, train_every=NEVER, **option)),
                "variant",
                note=note,
            )
            for name, option, note in VARIANTS
        }
        contestants |= {
            name: one if isinstance(one, Absent) else NO_FULL_MATRIX
            for name, one in available("NeuralUCB").items()
        }
    return Row(
        f"NeuralUCB, full matrix, p = {p:,}",
        "a decision and its update, without training",
        contestants,
        {"K": K, "d": D, "p": p},
        SEED,
        "NeuralUCB",
        (Promise("naive, NumPy", at_least=30),) if width == 64 else (),
    )


VARIANTS = (
    (
        "gradients by vmap",
        {"jacobian": "vmap"},
        "One row's gradient, mapped over all.",
    ),
    (
        "gradients by backward",
        {"jacobian": "backward"},
        "A backward pass an arm.",
    ),
    (
        "inverse recomputed",
        {"inverse": "recomputed"},
        "An inverse a decision, in double precision.",
    ),
    (
        "diagonal",
        {"inverse": "diagonal"},
        "Keeps the diagonal of A only: other scores.",
    ),
)
NO_FULL_MATRIX = Absent("it keeps the diagonal of A only: see that row")


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


def diagonal_neural_ucb() -> Row:
    """Return the row of NeuralUCB with the diagonal of A alone, which is what peers have."""
    agent = NeuralUCBAgent(K, D, alpha=1.0, train_every=NEVER, inverse="diagonal")
    return Row(
        f"NeuralUCB, diagonal, p = {agent.n_parameters}",
        "a decision and its update, without training",
        {
            "zoolib": Contestant(plays(copy.deepcopy(agent)), "zoolib"),
            "naive": beside(
                agent,
                NaiveDiagonalNeuralUCB(agent),
                "A backward pass an arm, as in the code of the paper's authors.",
                100,
            ),
            **peers("NeuralUCB", agent, alpha=agent.alpha, train_every=NEVER),
            **batch_modes("NeuralUCB", agent, 10, alpha=agent.alpha, train_every=NEVER),
        },
        {"K": K, "d": D, "p": agent.n_parameters},
        SEED,
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


def neural_linear(in_batches: bool) -> Row:
    """Return the row of neural-linear agents whose network stays as it is.

    In batches, a peer decides on a hundred visits before it learns from the first of them; zoolib learns
    from each before the next.
    """
    agent = NeuralLinearAgent(K, D, alpha=1.0, train_every=NEVER)
    contestants = {"zoolib": Contestant(plays(copy.deepcopy(agent)), "zoolib")}
    if in_batches:
        contestants |= batch_modes("neural-linear", agent, 100, train_every=NEVER)
    else:
        thompson = NeuralLinearAgent(K, D, policy="thompson", train_every=NEVER)
        contestants |= {
            "zoolib, Thompson sampling": Contestant(
                plays(thompson),
                "variant",
                note="Draws a mean from the posterior, as peers do.",
            ),
            "naive": beside(
                agent,
                NaiveNeuralLinear(agent),
                "An inverse a decision, one arm at a time.",
                100,
            ),
            "naive, all arms at once": beside(
                agent,
                BatchedNeuralLinear(agent),
                "An inverse a decision, all arms in one pass.",
                100,
            ),
            **peers("neural-linear", agent, train_every=NEVER),
        }
    return Row(
        "neural-linear" + (", peers in batches" if in_batches else ""),
        "a decision and its update, without training",
        contestants,
        {"K": K, "d": D, "d_emb": agent.embedding_dim},
        SEED,
        promises=()
        if in_batches
        else (Promise("naive", at_least=20), Promise(FASTEST_PEER, at_least=5)),
    )


def trained_neural_linear(in_batches: bool) -> Row:
    """Return the row of neural-linear agents that train, and then rebuild their posterior.

    The rows of a training are drawn from the memory here, and are the newest in Calvera. In batches, a peer
    decides on all visits between two trainings before it learns from the first.
    """
    training = {"train_every": TRAIN_EVERY, "n_batches": 1, "batch_size": 64}
    agent = NeuralLinearAgent(K, D, rebuild=True, buffer_size=MEMORY, **training)
    for context, reward in seen():
        agent.update(context, agent.select(context), reward)
    contestants: dict[str, Contestant | Absent] = {
        "zoolib": Contestant(for_a_while(between_trainings(agent)), "zoolib")
    }
    for name, one in available("neural-linear").items():
        if isinstance(one, Absent):
            contestants[name] = one
            continue
        adapter = one.make(K, D, seed=SEED, memory=MEMORY, **training)
        plays_batches(adapter, MEMORY, 1)()  # until its memory is full
        if in_batches:
            contestants[f"{name}, batches of {TRAIN_EVERY}"] = Contestant(
                plays_batches(adapter, TRAIN_EVERY, 1), "peer", note=BATCH_NOTE
            )
        else:
            run = for_a_while(between_trainings(adapter))
            contestants[name] = Contestant(run, "peer", note=one.note)
    return Row(
        "neural-linear, trained" + (", peers in batches" if in_batches else ""),
        f"{TRAIN_EVERY} decisions and updates, with one training on 64 rows, after which the posterior is "
        f"rebuilt from {MEMORY:,}",
        contestants,
        {"K": K, "d": D, "d_emb": agent.embedding_dim},
        SEED,
        promises=() if in_batches else (Promise(FASTEST_PEER, at_least=5),),
    )


def between_trainings(agent: Player) -> Callable[[], None]:
    """Return what plays as many visits as lie between two trainings."""
    turns = cycle(seen())

    def go() -> None:
        for context, reward in islice(turns, TRAIN_EVERY):
            agent.update(context, agent.select(context), reward)

    return go


# Peers

NeuralUCBOrLinear = NeuralUCBAgent | NeuralLinearAgent


@one_thread()
def peers(
    kind: str, agent: NeuralUCBOrLinear, **options: object
) -> dict[str, Contestant | Absent]:
    """Return the peers at one kind of work, with the first weights of an agent, by name."""
    found: dict[str, Contestant | Absent] = {}
    for name, one in available(kind).items():
        if isinstance(one, Absent):
            found[name] = one
            continue
        adapter = with_weights(one.make(K, D, seed=SEED, **options), agent)
        far = None
        if one.same_scores:
            far = difference(copy.deepcopy(agent), copy.deepcopy(adapter), seen(50))
        found[name] = Contestant(plays(adapter), "peer", far, one.note)
    return found


def batch_modes(
    kind: str, agent: NeuralUCBOrLinear, n: int, **options: object
) -> dict[str, Contestant | Absent]:
    """Return the peers at one kind of work, with n visits at once."""
    found: dict[str, Contestant | Absent] = {}
    for name, one in available(kind).items():
        if isinstance(one, Absent):
            found[name] = one
            continue
        adapter = with_weights(one.make(K, D, seed=SEED, **options), agent)
        found[f"{name}, batches of {n}"] = Contestant(
            plays_batches(adapter, n, n),
            "peer",
            note=BATCH_NOTE,
        )
    return found


def with_weights(adapter: Adapter, agent: NeuralUCBOrLinear) -> Adapter:
    """Give a peer's network the weights of an agent's."""
    body = agent.network if isinstance(agent.network, MLP) else agent.network.body
    parts = adapter.bandit.modules()
    network = next(part for part in parts if isinstance(part, nn.Sequential))
    network.load_state_dict(as_sequential(body).state_dict())
    return adapter


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
    """Make an agent, network 9-64-32-1, whose memory holds enough; a training takes 50 steps."""
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


ALONE = "zoolib, one network"


def stacked_training(n_worlds: int) -> Row:
    """Return the row of networks trained together: a batch a world, drawn from its memory."""
    alone, together = ready_to_train(None), ready_to_train(n_worlds)
    steps = together.n_batches
    return Row(
        f"stacked training, W = {n_worlds}",
        f"an optimiser step of one world, on {alone.batch_size} rows",
        {
            "zoolib": Contestant(
                for_a_while(together.train, steps * n_worlds), "zoolib"
            ),
            ALONE: Contestant(
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
        "stacked training",
        (Promise(ALONE, at_least=10),) if n_worlds == 20 else (),
    )
