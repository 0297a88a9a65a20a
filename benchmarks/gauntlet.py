"""The gauntlet of four agents: one user at a time and all looked up anew, beside `run_experiment`.

The plain loop is how such an experiment is written first: each agent in a copy of the world of its own,
features encoded at each call, one inverse an arm and decision, one forward pass a decision.
"""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import Protocol

import numpy as np
import torch
from numpy.typing import NDArray
from sklearn.preprocessing import OneHotEncoder
from torch import nn

from benchmarks.contest import Contestant, Promise, Row, seconds
from benchmarks.linear_agents import NaiveLinUCB, Player
from zoolib import (
    Agent,
    Context,
    MLPRecommender,
    NeuralLinearAgent,
    RandomAgent,
    StaticAgent,
    ZooplusSimulator,
    run_experiment,
)
from zoolib._threads import one_thread
from zoolib.gauntlet import LEARNING, SHOCKS, D, K, make_agent

SEED = 42
STEPS = 40_000
NAMES = ("random", "static-mlp", "linucb-0.2", "neural-replay")


class Shop:
    """The world as it is looked up one by one: whose persona, which category, what probability.

    Parameters
    ----------
    seed : int
        Of the world and of its clicks.
    encoded_once : bool, default False
        Encode each persona once and for all, instead of whenever features are asked for.
    """

    def __init__(self, seed: int, encoded_once: bool = False) -> None:
        self.world = ZooplusSimulator(seed=seed)
        self.persona_of = dict(enumerate(self.world.user_personas))
        names = [list(self.world.personas)], [list(self.world.categories)]
        self.personas, self.categories = (
            OneHotEncoder(categories=one, sparse_output=False).fit([[one[0][0]]])
            for one in names
        )
        self.encoded = {}
        if encoded_once:
            self.encoded = {name: self._encode(name) for name in self.world.personas}

    def features(self, user: int) -> NDArray[np.float64]:
        """Return one row a product, shape (50, 9)."""
        persona = self.persona_of[user]
        return self.encoded[persona] if self.encoded else self._encode(persona)

    def _encode(self, persona: str) -> NDArray[np.float64]:
        category = self.world.products["category"].to_numpy().reshape(-1, 1)
        products = self.categories.transform(category)
        users = self.personas.transform([[persona]])
        return np.hstack((np.tile(users, (len(products), 1)), products))

    def click(self, user: int, product: int) -> int:
        """Show a product, and see."""
        category = self.world.products.loc[product, "category"]
        probability = self.world.personas[self.persona_of[user]][category]
        return int(self.world.rng.binomial(1, probability))


class Visited(Protocol):
    """An agent of the plain loop."""

    def choose(self, user: int, shop: Shop) -> int:
        """Return the product to show."""

    def learn(self, user: int, product: int, click: int, shop: Shop) -> None:
        """Take in what became of it."""


class AtRandom:
    """Shows anything."""

    def __init__(self, seed: int) -> None:
        self.rng = np.random.default_rng(seed)

    def choose(self, user: int, shop: Shop) -> int:
        """Return the product to show."""
        return int(self.rng.integers(K))

    def learn(self, user: int, product: int, click: int, shop: Shop) -> None:
        """Learn nothing."""


class Fixed(AtRandom):
    """Shows what a trained recommender predicts, asked anew for all products or looked up."""

    def __init__(self, model: MLPRecommender, looked_up: bool = False) -> None:
        self.model = model
        self.table = model.predict_all()[0] if looked_up else None

    @torch.no_grad()
    def choose(self, user: int, shop: Shop) -> int:
        """Return the product to show."""
        if self.table is not None:
            return int(self.table[user].argmax())
        users, products = torch.tensor([[user] * K]), torch.arange(K)[None]
        return int(torch.sigmoid(self.model(users, products)).numpy().argmax())


class Featured:
    """Asks for the features to choose, and again to learn."""

    def __init__(self, player: Player) -> None:
        self.player = player

    def choose(self, user: int, shop: Shop) -> int:
        """Return the product to show."""
        return self.player.select(Context(user, shop.features(user)))

    def learn(self, user: int, product: int, click: int, shop: Shop) -> None:
        """Take in what became of it."""
        self.player.update(Context(user, shop.features(user)), product, click)


class NaiveReplay:
    """A ridge posterior on a network's embeddings, which trains on a memory: one inverse a decision."""

    def __init__(self, seed: int, alpha: float = 0.3, size: int = 32) -> None:
        torch.manual_seed(seed)
        self.luck = random.Random(seed)
        self.body = nn.Sequential(nn.Linear(D, 64), nn.ReLU(), nn.Linear(64, size))
        self.head = nn.Linear(size, 1)
        self.parameters = [*self.body.parameters(), *self.head.parameters()]
        self.optimiser = torch.optim.Adam(self.parameters, lr=0.01)
        self.alpha, self.updates = alpha, 0
        self.A, self.b = np.eye(size), np.zeros(size)
        self.memory: deque[tuple[NDArray, float]] = deque(maxlen=10_000)

    @torch.no_grad()
    def copy_weights(self, agent: NeuralLinearAgent) -> None:
        """Begin with the network of an agent of one world."""
        body = zip(agent.network.body.weights, agent.network.body.biases, strict=True)
        for layer, (weight, bias) in zip(self.body[::2], body, strict=True):
            layer.weight.copy_(weight.mT)
            layer.bias.copy_(bias[0])

    @torch.no_grad()
    def embed(self, rows: NDArray) -> NDArray[np.float32]:
        """Map rows (n, 9) to embeddings (n, 32)."""
        return self.body(torch.tensor(rows, dtype=torch.float32)).numpy()

    def scores(self, context: Context) -> NDArray[np.float64]:
        """Return the upper confidence bounds."""
        z, A_inv = self.embed(context.features), np.linalg.inv(self.A)
        widths = np.sqrt(((z @ A_inv) * z).sum(axis=1))
        return z @ (A_inv @ self.b) + self.alpha * widths

    def select(self, context: Context) -> int:
        """Choose the arm of the highest bound."""
        return int(self.scores(context).argmax())

    def update(self, context: Context, arm: int, reward: float) -> None:
        """Learn from the arm played; now and then train."""
        x = context.features[arm]
        z = self.embed(x)
        self.A += np.outer(z, z)
        self.b += reward * z
        self.memory.append((x, reward))
        self.updates += 1
        if self.updates % 50 == 0 and len(self.memory) >= 64:
            self.train()

    def train(self) -> None:
        """Take one step of Adam on 64 rows of the memory."""
        rows, rewards = zip(*self.luck.sample(self.memory, 64), strict=True)
        x = torch.tensor(np.array(rows), dtype=torch.float32)
        wanted = torch.tensor(rewards, dtype=torch.float32)
        loss = nn.functional.mse_loss(self.head(self.body(x))[:, 0], wanted)
        self.optimiser.zero_grad()
        loss.backward()
        self.optimiser.step()


@dataclass
class PlainLoop:
    """The plain loop, which goes on where it stopped; after its last step it begins again.

    Parameters
    ----------
    model : MLPRecommender
        The static agent's, of one world.
    seed : int, default 42
        Of world, visitors and agents.
    encoded_once : bool, default False
        As for `Shop`; what the static agent predicts is then looked up, too.
    """

    model: MLPRecommender
    seed: int = SEED
    encoded_once: bool = False
    step: int = 0
    clicks: dict[str, list[int]] = field(default_factory=dict)
    arms: dict[str, list[int]] = field(default_factory=dict)

    def begin(self) -> None:
        """Make worlds, agents and visitors."""
        agents: tuple[Visited, ...] = (
            AtRandom(self.seed),
            Fixed(self.model, self.encoded_once),
            Featured(NaiveLinUCB(K, D, alpha=0.2)),
            Featured(NaiveReplay(self.seed)),
        )
        self.players = {
            name: (agent, Shop(self.seed, self.encoded_once))
            for name, agent in zip(NAMES, agents, strict=True)
        }
        self.users = np.random.default_rng(self.seed).integers(1000, size=STEPS)
        self.step = 0
        self.clicks = {name: [] for name in NAMES}
        self.arms = {name: [] for name in NAMES}

    def play(self, n_steps: int) -> int:
        """Play some steps; return how many."""
        for _ in range(n_steps):
            if self.step % STEPS == 0:
                self.begin()
            for name, (agent, shop) in self.players.items():
                if self.step in SHOCKS:
                    shop.world.apply_shock(SHOCKS[self.step])
                user = int(self.users[self.step])
                arm = agent.choose(user, shop)
                click = shop.click(user, arm)
                agent.learn(user, arm, click, shop)
                self.arms[name].append(arm)
                self.clicks[name].append(click)
            self.step += 1
        return n_steps


def agents(model: MLPRecommender, n_worlds: int | None = None) -> dict[str, Agent]:
    """Return zoolib's agents of these names and settings; the static one knows the same in all worlds."""
    table = model.predict_all()[0]
    if n_worlds is not None:
        table = table[None].repeat(n_worlds, axis=0)
    made = RandomAgent(K, n_worlds), StaticAgent(table)
    return dict(zip(NAMES, made, strict=False)) | {
        name: LEARNING[name](n_worlds) for name in NAMES[len(made) :]
    }


def lockstep(
    players: dict[str, Agent], n_worlds: int, n_steps: int
) -> Callable[[], int]:
    """Return a contestant's work: an experiment, in steps of a world."""
    shocks = {step: shock for step, shock in SHOCKS.items() if step < n_steps}
    seeds = range(SEED, SEED + n_worlds)

    def run() -> int:
        run_experiment(players, seeds, n_steps, shocks, progress=False)
        return n_steps * n_worlds

    return run


def difference(n_steps: int = 49) -> float:
    """Return the largest difference of the learning agents' scores, each as a part of 1 + |score|.

    Both forms learn from the same clicks, and the networks begin alike. Afterwards they train on rows
    that each draws by its own luck.
    """
    shop, rng = Shop(SEED), np.random.default_rng(SEED)
    ours = make_agent(NAMES[2], [SEED]), NeuralLinearAgent(K, D, seed=SEED)
    plain = NaiveLinUCB(K, D, alpha=0.2), NaiveReplay(SEED)
    plain[1].copy_weights(ours[1])
    found = 0.0
    for _ in range(n_steps):
        user, arm, click = (int(rng.integers(n)) for n in (1000, K, 2))
        context = Context(user, shop.features(user))
        stacked = Context([user], context.features[None])
        for one, other, seen in zip(ours, plain, (stacked, context), strict=True):
            scores = np.ravel(one.scores(seen))
            gap = np.abs(scores - other.scores(context)) / (1 + np.abs(scores))
            found = max(found, float(gap.max()))
            worlds = seen.user_id.ndim
            one.update(seen, [arm] if worlds else arm, [click] if worlds else click)
            other.update(context, arm, click)
    return found


@one_thread()
def rows(full: bool = False, whole: bool = True) -> Iterator[Row]:
    """Yield the row of this benchmark.

    Parameters
    ----------
    full : bool, default False
        Also play the plain loop from beginning to end, once: it takes minutes. Else it plays slices, its
        cost being nearly the same at any step.
    whole : bool, default True
        Also play zoolib's gauntlet from beginning to end.
    """
    # What a recommender has learnt changes nothing of what it costs: this one is not trained.
    model = MLPRecommender(1000, K, seed=[SEED])
    ours, many = agents(model), agents(model, 20)
    plain, looked_up = PlainLoop(model), PlainLoop(model, encoded_once=True)
    figures = {}
    if whole:
        figures["seconds_of_40000_steps"] = seconds(lockstep(ours, 1, STEPS))
    if full:
        parts = [seconds(lambda: plain.play(1000)) for _ in range(STEPS // 1000)]
        first, last = sum(parts[:5]), sum(parts[-5:])
        figures["naive_seconds_of_40000_steps"] = sum(parts)
        figures["naive_last_5000_to_first_5000_steps"] = last / first
    yield Row(
        "gauntlet of four agents",
        "a step of all four in a world",
        {
            "zoolib": Contestant(lockstep(ours, 1, 2_000), "zoolib"),
            "zoolib, 20 worlds in lockstep": Contestant(
                lockstep(many, 20, 200), "variant"
            ),
            "naive": Contestant(
                lambda: plain.play(60),
                "naive",
                difference(),
                "Features encoded by scikit-learn whenever an agent asks.",
            ),
            "naive, looked up": Contestant(lambda: looked_up.play(120), "naive"),
        },
        {"agents": len(NAMES), "K": K, "d": D},
        SEED,
        promises=(Promise("naive", at_least=25),),
        figures=figures,
    )
