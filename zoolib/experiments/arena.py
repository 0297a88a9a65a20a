"""The arena: agents meet the same visitors and the same random numbers, in many worlds, step by step.

A click happens when a uniform number, one for each step, world and category, lies below the true click
probability of the product shown: agents that show products of one category get the same click. See "How
the experiments are run" in the part "Evidence".
"""

from __future__ import annotations

import copy
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_flag, as_ids, as_size
from zoolib._support.generators import stream
from zoolib._support.progress import progress_bar
from zoolib._support.threads import one_thread
from zoolib.agents import Agent, Context, RevealedContext
from zoolib.experiments.history import History
from zoolib.world.features import FeatureEngineer
from zoolib.world.simulator import Churn, MarketShock, ZooplusSimulator


def run_experiment(
    agents: Mapping[str, Agent] | Sequence[Agent],
    seeds: Sequence[int],
    n_steps: int,
    shocks: Mapping[int, MarketShock] | None = None,
    *,
    churn: Churn | None = None,
    repeats: bool = False,
    make_world: Callable[..., ZooplusSimulator] = ZooplusSimulator,
    make_features: Callable[..., FeatureEngineer] = FeatureEngineer,
    progress: bool = True,
) -> History:
    """Let agents serve the same visitors with common random numbers, each in its own copy of every world.

    Parameters
    ----------
    agents : mapping of str to Agent, or sequence of Agent
        The players. Copies of them play; the originals do not change. An agent for
        ``len(seeds)`` worlds plays all of them in step; one without a worlds axis is copied for
        each world. A sequence is named by class.
    seeds : sequence of int
        One seed per world. It also determines the visitors, the clicks and the random numbers of
        agents.
    n_steps : int
        Number of visits in each world.
    shocks : mapping of int to MarketShock, optional
        Shocks, each applied just before the step of that number, counted from 0.
    churn : Churn, optional
        Products are replaced before the steps that are multiples of ``churn.every``, except 0. Agents
        with a method ``restock`` are told which arms now hold other products.
    repeats : bool, default False
        Allow a seed more than once: its worlds are equal, visitors and random numbers included, and
        differ only by what the agents bring, for example a `network_seed` for each.
    make_world : callable, default ZooplusSimulator
        Called with ``seed=``.
    make_features : callable, default FeatureEngineer
        Called with the list of worlds; its ``transform`` computes the features that agents see.
    progress : bool, default True
        Show a progress bar on the terminal, unless the environment sets ``TQDM_DISABLE=1``.

    Returns
    -------
    History
        After Ctrl-C, it holds the steps that all agents have finished; stderr reports their number.
    """
    seeds = check_seeds(seeds)
    if not as_flag("repeats", repeats):
        refuse_repeats("seeds without repeats=True", seeds)
    worlds = [make_world(seed=seed) for seed in seeds]
    n_steps, shocks = check_events(n_steps, shocks, churn, worlds[0])
    players = [
        _Player(name, agent, worlds[0].n_products, seeds)
        for name, agent in _named(agents).items()
    ]
    names = [player.name for player in players]
    arena = Arena(names, worlds, seeds, n_steps, shocks, churn, players, make_features)
    done = 0
    with one_thread(), progress_bar(progress, total=n_steps, unit="step") as bar:
        try:
            for stretch in arena.stretches():
                for step in range(stretch.start, stretch.stop):
                    arena.play(step)
                    done += 1  # a step counts once all have learnt from it
                    bar.update()
        except KeyboardInterrupt:
            if not done:
                raise
    if done < n_steps:
        print(
            f"interrupted after {done:,} of {n_steps:,} steps: the history holds those",
            file=sys.stderr,
        )
    return arena.history(done)


class Arena:
    """The worlds and their events, the visitors, the random numbers, the players, and the history."""

    def __init__(
        self,
        agents: Sequence[str],
        worlds: list[ZooplusSimulator],
        seeds: list[int],
        n_steps: int,
        shocks: dict[int, MarketShock],
        churn: Churn | None,
        players: Sequence[_Player] = (),
        make_features: Callable[..., FeatureEngineer] = FeatureEngineer,
    ) -> None:
        self.worlds = worlds
        self.players = players
        self.make_features = make_features
        self.agents = agents
        self.seeds = seeds
        self.n_steps = n_steps
        self.shocks = shocks
        self.churn = churn
        self.w = np.arange(len(worlds))
        self.t = np.arange(n_steps)
        n_users = worlds[0].n_users
        n_categories = len(worlds[0].categories)
        users = [stream(s, "visitors").integers(n_users, size=n_steps) for s in seeds]
        uniforms = [stream(s, "clicks").random((n_steps, n_categories)) for s in seeds]
        # Shapes (n_steps, W) and (n_steps, W, n_categories): a step is one piece of memory.
        self.users = np.stack(users, axis=1)
        self.uniforms = np.stack(uniforms, axis=1)
        personas = np.stack([world.persona_of_user for world in worlds])
        self.persona = np.take_along_axis(personas, self.users.T, axis=1)
        shape = (len(agents), len(worlds), n_steps)
        self.arm = np.empty(shape, np.int32)
        self.reward = np.empty(shape, np.int8)
        self.expected_reward = np.empty(shape)
        self.optimal_reward = np.empty(shape[1:])
        self.ids = np.arange(n_users)[:, None], np.arange(worlds[0].n_products)
        self._read_catalogue()

    def stretches(self) -> Iterator[slice]:
        """Yield the steps between two events, after the event."""
        every = self.churn.every if self.churn else self.n_steps
        starts = sorted({*range(0, self.n_steps, every), *self.shocks})
        for start, stop in pairwise([*starts, self.n_steps]):
            if start in self.shocks:
                for world in self.worlds:
                    world.apply_shock(self.shocks[start])
            if start and start % every == 0:
                arms = [world.restock(self.churn.share) for world in self.worlds]
                self._read_catalogue()
                for player in self.players:
                    player.restock(np.stack(arms), start)
            # Click probabilities (W, n_users, n_products), and of the best products (W, n_users).
            self.truth = np.stack([world.true_ctr(*self.ids) for world in self.worlds])
            self.best = self.truth.max(axis=-1)
            yield slice(start, stop)

    def _read_catalogue(self) -> None:
        self.category = np.stack([world.category_of_product for world in self.worlds])
        if self.players:  # a replay needs no features
            self.features = self.make_features(self.worlds)

    def play(self, step: int) -> None:
        """Play one step: visitors arrive, all players choose, and then all learn."""
        users = self.users[step]
        features = self.features.transform(users)
        truth = self.truth[self.w, users]
        # All players look at the same arrays, so none may write into them.
        for shared in (users, features, truth):
            shared.flags.writeable = False
        seen = Context(users, features)
        # No player sees what others do: all choose, then all are judged at once, then all learn.
        arms = []
        for player in self.players:
            given = seen
            if player.needs_truth:
                given = RevealedContext(users, features, truth)
            arms.append(player.choose(given, step))
        arms = np.stack(arms)
        rewards = self.judge(slice(step, step + 1), arms[..., None])[..., 0]
        for player, arm, reward in zip(self.players, arms, rewards, strict=True):
            player.learn(seen, arm, reward, step)

    def judge(self, steps: slice, arms: NDArray[np.int64]) -> NDArray[np.int8]:
        """Record the arms shown in some steps, shape (agent, W, step), and return their rewards."""
        w = self.w[:, None]
        users = self.users[steps].T
        expected = self.truth[w, users, arms]
        luck = self.uniforms[self.t[steps], w, self.category[w, arms]]
        rewards = (luck < expected).astype(np.int8)
        self.arm[..., steps] = arms
        self.reward[..., steps] = rewards
        self.expected_reward[..., steps] = expected
        self.optimal_reward[:, steps] = self.best[w, users]
        return rewards

    def history(self, n_steps: int) -> History:
        """Return what has happened in the first steps."""
        shape = (len(self.agents), len(self.seeds), n_steps)
        optimal = np.broadcast_to(self.optimal_reward[:, :n_steps], shape)
        return History(
            agents=tuple(self.agents),
            seeds=tuple(self.seeds),
            shocks={t: shock for t, shock in self.shocks.items() if t < n_steps},
            churn=self.churn,
            personas=tuple(self.worlds[0].personas),
            planned=self.n_steps,
            user=self.users[:n_steps].T.astype(np.int32),
            persona=self.persona[:, :n_steps].astype(np.int8),
            arm=self.arm[..., :n_steps],
            reward=self.reward[..., :n_steps],
            expected_reward=self.expected_reward[..., :n_steps],
            optimal_reward=optimal,
        )


class _Copies:
    """Copies of an agent without a worlds axis, one for each world, behind the calls of one that has it."""

    def __init__(self, agent: Agent, n_worlds: int) -> None:
        self._agents = [copy.deepcopy(agent) for _ in range(n_worlds)]

    def reseed(self, seeds: list[int]) -> None:
        for agent, seed in zip(self._agents, seeds, strict=True):
            agent.reseed(seed)

    def select(self, context: Context) -> list[int]:
        return [
            agent.select(context.of_world(w)) for w, agent in enumerate(self._agents)
        ]

    def update(self, context: Context, arm: NDArray, reward: NDArray) -> None:
        learnt = zip(self._agents, arm.tolist(), reward.tolist(), strict=True)
        for w, (agent, its_arm, its_reward) in enumerate(learnt):
            agent.update(context.of_world(w), its_arm, its_reward)

    def restock(self, arms: NDArray[np.int64]) -> None:
        for agent, its_arms in zip(self._agents, arms, strict=True):
            agent.restock(its_arms)


class _Player:
    """An agent's copy in the arena."""

    def __init__(self, name: str, agent: Agent, n_arms: int, seeds: list[int]) -> None:
        n_worlds = getattr(agent, "n_worlds", None)
        if n_worlds not in (None, len(seeds)):
            raise ValueError(
                f"agent {name!r} plays n_worlds={n_worlds}: wanted {len(seeds)}, one a seed, or None"
            )
        if getattr(agent, "n_arms", n_arms) != n_arms:
            raise ValueError(
                f"agent {name!r} has n_arms={agent.n_arms}: the worlds have {n_arms} products"
            )
        self.name = name
        self._n_arms = n_arms
        self._shape = (len(seeds),)
        self.needs_truth = getattr(agent, "needs_truth", False)
        self._restocks = hasattr(agent, "restock")
        self._agent = copy.deepcopy(agent) if n_worlds else _Copies(agent, len(seeds))
        if hasattr(agent, "reseed"):
            self._agent.reseed(seeds)

    def choose(self, seen: Context, step: int) -> NDArray[np.int64]:
        """Return the arm shown in each world, shape (W,)."""
        with self._signed(step):
            arm = as_ids("arm", self._agent.select(seen), self._n_arms)
            if arm.shape != self._shape:
                raise ValueError(
                    f"arm, as select returned it, must have shape {self._shape}: got {arm.shape}"
                )
            return arm

    def learn(self, seen: Context, arm: NDArray, reward: NDArray, step: int) -> None:
        with self._signed(step):
            self._agent.update(seen, arm, reward)

    def restock(self, arms: NDArray[np.int64], step: int) -> None:
        if self._restocks:
            with self._signed(step):
                self._agent.restock(arms)

    @contextmanager
    def _signed(self, step: int) -> Iterator[None]:
        """Say in an error which agent raised it, and when."""
        try:
            yield
        except Exception as error:
            error.add_note(f"Agent {self.name!r} was at step {step}.")
            raise


def check_seeds(seeds: Sequence[int]) -> list[int]:
    """Return the seeds as a list of ints."""
    if np.ndim(seeds) != 1:
        raise TypeError(f"seeds must be a sequence of whole numbers: got {seeds!r}")
    if not len(seeds):
        raise ValueError("seeds must hold one seed a world: got none")
    return [as_size("seed", seed, least=0) for seed in seeds]


def refuse_repeats(name: str, values: Sequence[Hashable]) -> None:
    """Raise if a value occurs twice."""
    twice = [value for value, times in Counter(values).items() if times > 1]
    if twice:
        raise ValueError(f"{name} must differ: got {twice[0]!r} more than once")


def check_events(
    n_steps: int,
    shocks: Mapping[int, MarketShock] | None,
    churn: Churn | None,
    world: ZooplusSimulator,
) -> tuple[int, dict[int, MarketShock]]:
    """Return the number of steps, and the shocks in their order, if a world takes them all."""
    n_steps = as_size("n_steps", n_steps)
    trial = copy.deepcopy(world)
    checked = {}
    if not isinstance(churn, Churn | None):
        raise TypeError(f"churn must be a Churn or None: got {type(churn).__name__}")
    for step, shock in (shocks or {}).items():
        step = as_size("shock step", step, least=0)
        if step >= n_steps:
            raise ValueError(
                f"shocks must come before the last of {n_steps} steps is over: got one at step {step}"
            )
        trial.apply_shock(shock)
        # Python's own numbers, which any file can hold.
        changes = {c: float(p) for c, p in shock.click_probabilities.items()}
        checked[step] = MarketShock(shock.persona, changes)
    return n_steps, dict(sorted(checked.items()))


def _named(agents: Mapping[str, Agent] | Sequence[Agent]) -> dict[str, Agent]:
    if not isinstance(agents, Mapping | Sequence):
        raise TypeError(
            f"agents must be a mapping or a sequence of agents: got {type(agents).__name__}"
        )
    if not isinstance(agents, Mapping):
        names = [type(agent).__name__ for agent in agents]
        refuse_repeats("agents in a sequence, whose names are their classes,", names)
        agents = dict(zip(names, agents, strict=True))
    if not agents:
        raise ValueError("agents must hold at least one agent: got none")
    for name, agent in agents.items():
        playable = hasattr(agent, "select") and hasattr(agent, "update")
        if isinstance(agent, type) or not playable:
            raise TypeError(
                f"agent {name!r} must be an object with select and update: got {agent!r}"
            )
    return dict(agents)
