"""The arena: agents meet the same visitors and the same random numbers, in many worlds, step by step.

A click happens when a uniform number, one for each step, world and category, lies below the true click
probability of the product shown: agents that show products of one category get the same click. See "How
the experiments are run" in the back matter.
"""

from __future__ import annotations

import copy
import functools
import sys
from collections import Counter
from collections.abc import Callable, Hashable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_ids, as_size
from zoolib._support.generators import stream
from zoolib._support.progress import progress_bar
from zoolib._support.threads import one_thread
from zoolib.agents import Agent, Context, RevealedContext
from zoolib.experiments.history import History
from zoolib.world.features import FeatureEngineer
from zoolib.world.simulator import Churn, MarketShock, ZooplusSimulator, true_ctr_matrix

# What players see of a step: all worlds at ``...``, and each apart once a player asks.
Views = Callable[..., Context]
_BLOCK = 500


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
        The players. Copies of them play; those given stay as they are. An agent for
        ``len(seeds)`` worlds plays all of them in step; one without a worlds axis is copied for
        each world. A sequence is named by class.
    seeds : sequence of int
        One world each. The seed also decides who visits, what is clicked, and what agents leave to
        chance.
    n_steps : int
        Number of visits in each world.
    shocks : mapping of int to MarketShock, optional
        What happens just before the step of that number, counted from 0.
    churn : Churn, optional
        Products are replaced before the steps that are multiples of ``churn.every``, except 0. Agents
        with a method ``restock`` are told which arms now hold other products.
    repeats : bool, default False
        Allow a seed more than once: its worlds are equal, visitors and random numbers included, and
        differ only by what the agents bring, for example a `network_seed` for each.
    make_world : callable, default ZooplusSimulator
        Called with ``seed=``.
    make_features : callable, default FeatureEngineer
        Called with the list of worlds; its ``transform`` makes what agents see.
    progress : bool, default True
        Show a progress bar on the terminal, unless the environment sets ``TQDM_DISABLE=1``.

    Returns
    -------
    History
        After Ctrl-C: the steps that all agents have finished. How far it came is said on stderr.
    """
    seeds = check_seeds(seeds)
    if not repeats:
        refuse_repeats("seeds without repeats=True", seeds)
    worlds = [make_world(seed=seed) for seed in seeds]
    n_steps, shocks = check_events(n_steps, shocks, churn, worlds[0])
    players = [
        _Player(name, agent, worlds[0].n_products, seeds)
        for name, agent in _named(agents).items()
    ]
    arena = _Arena(worlds, seeds, players, make_features)
    visitors = np.stack(
        [stream(s, "visitors").integers(worlds[0].n_users, size=n_steps) for s in seeds]
    )
    history = _empty_history(worlds, seeds, players, visitors, shocks, churn)
    by_step, done = visitors.T.copy(), 0
    with one_thread(), progress_bar(progress, total=n_steps, unit="step") as bar:
        try:
            for start, stop in pairwise(_cuts(history)):
                arena.change(start, history)
                uniforms = arena.draw_uniforms(stop - start)
                for step in range(start, stop):
                    arena.step(step, by_step[step], uniforms[step - start], history)
                    done += 1  # a step counts once all have learnt from it
                bar.update(stop - start)
        except KeyboardInterrupt:
            if not done:
                raise
    if done < n_steps:
        print(
            f"interrupted after {done:,} of {n_steps:,} steps: the history holds those",
            file=sys.stderr,
        )
    return _first(done, history)


class _Arena:
    """The worlds, tables of their present truth, and the players."""

    def __init__(
        self,
        worlds: list[ZooplusSimulator],
        seeds: list[int],
        players: list[_Player],
        make_features: Callable[..., FeatureEngineer],
    ) -> None:
        self.worlds, self.players, self.make_features = worlds, players, make_features
        self.index = np.arange(len(worlds))
        self.clicks = [stream(seed, "clicks") for seed in seeds]
        self.read_catalogue()

    def read_catalogue(self) -> None:
        self.category = np.stack([world.category_of_product for world in self.worlds])
        self.features = self.make_features(self.worlds)
        self.read_truth()

    def read_truth(self) -> None:
        self.truth = np.stack([true_ctr_matrix(world) for world in self.worlds])
        self.best = self.truth.max(axis=-1)

    def change(self, step: int, history: History) -> None:
        """Change tastes and products as planned, and tell the players which arms are new."""
        if step in history.shocks:
            for world in self.worlds:
                world.apply_shock(history.shocks[step])
            self.read_truth()
        churn = history.churn
        if churn and step and step % churn.every == 0:
            arms = np.stack([world.restock(churn.share) for world in self.worlds])
            self.read_catalogue()
            for player in self.players:
                player.restock(arms, step)

    def draw_uniforms(self, n: int) -> NDArray[np.float64]:
        """Return uniform numbers for n steps, worlds and categories, shape (n, W, n_categories)."""
        n_categories = len(self.worlds[0].categories)
        return np.stack([g.random((n, n_categories)) for g in self.clicks], axis=1)

    def step(
        self, step: int, users: NDArray, uniforms: NDArray, history: History
    ) -> None:
        features = self.features.transform(users)
        truth, arms = self.truth[self.index, users], []
        # All players look at the same arrays, so none may write into them.
        for shared in (users, features, truth):
            shared.flags.writeable = False
        seen = _views(Context(users, features))
        # No player sees what others do: all choose, then all are judged at once, then all learn.
        for player in self.players:
            given = seen
            if player.needs_truth:
                given = _views(RevealedContext(users, features, truth))
            arms.append(player.choose(given, step))
        arms = np.stack(arms)
        probability = truth[self.index, arms]
        clicked = uniforms[self.index, self.category[self.index, arms]] < probability
        rewards = clicked.astype(np.int8)
        history.arm[..., step] = arms
        history.expected_reward[..., step] = probability
        history.reward[..., step] = rewards
        history.optimal_reward[..., step] = self.best[self.index, users]
        for player, arm, reward in zip(self.players, arms, rewards, strict=True):
            player.learn(seen, arm, reward, step)


def _views(together: Context) -> Views:
    return functools.cache(lambda at: together if at is ... else together.of_world(at))


class _Player:
    """An agent's copy in the arena: one for all worlds, or one for each."""

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
        self.name, self._n_arms, self._n_worlds = name, n_arms, len(seeds)
        self._in_step = n_worlds is not None
        places = [...] if self._in_step else range(len(seeds))
        self._copies = {at: copy.deepcopy(agent) for at in places}
        self.needs_truth = getattr(agent, "needs_truth", False)
        for at, one in self._copies.items():
            if hasattr(one, "reseed"):
                one.reseed(seeds if self._in_step else seeds[at])

    def choose(self, seen: Views, step: int) -> NDArray[np.int64]:
        """Return the arm shown in each world, shape (W,)."""
        with self._signed(step):
            chosen = [one.select(seen(at)) for at, one in self._copies.items()]
            chosen = chosen[0] if self._in_step else chosen
            arm = as_ids("arm", chosen, self._n_arms)
            if arm.shape != (self._n_worlds,):
                raise ValueError(
                    f"arm, as select returned it, must have shape {(self._n_worlds,)}: got {arm.shape}"
                )
            return arm

    def learn(self, seen: Views, arm: NDArray, reward: NDArray, step: int) -> None:
        with self._signed(step):
            if not self._in_step:
                arm, reward = arm.tolist(), reward.tolist()
            for at, one in self._copies.items():
                one.update(seen(at), arm[at], reward[at])

    def restock(self, arms: NDArray[np.int64], step: int) -> None:
        with self._signed(step):
            for at, one in self._copies.items():
                if hasattr(one, "restock"):
                    one.restock(arms[at])

    @contextmanager
    def _signed(self, step: int) -> Iterator[None]:
        """Say in an error which agent raised it, and when."""
        try:
            yield
        except Exception as error:
            error.add_note(f"Agent {self.name!r} was at step {step}.")
            raise


def _empty_history(
    worlds: list[ZooplusSimulator],
    seeds: list[int],
    players: list[_Player],
    visitors: NDArray[np.int64],
    shocks: dict[int, MarketShock],
    churn: Churn | None,
) -> History:
    """Return a history that knows who comes, and has room for what happens."""
    persona = np.stack([world.persona_of_user for world in worlds])
    shape = (len(players), *visitors.shape)
    return History(
        agents=tuple(player.name for player in players),
        seeds=tuple(seeds),
        shocks=shocks,
        churn=churn,
        personas=tuple(worlds[0].personas),
        planned=visitors.shape[-1],
        user=visitors.astype(np.int32),
        persona=np.take_along_axis(persona, visitors, axis=1).astype(np.int8),
        arm=np.empty(shape, np.int32),
        reward=np.empty(shape, np.int8),
        expected_reward=np.empty(shape),
        optimal_reward=np.empty(visitors.shape),
    )


def _first(n_steps: int, history: History) -> History:
    """Return the history of the first steps, in which the best possible reward has an axis of agents."""
    names = ("user", "persona", "arm", "reward", "expected_reward")
    arrays = {name: getattr(history, name)[..., :n_steps] for name in names}
    optimal = history.optimal_reward[..., :n_steps]
    arrays["optimal_reward"] = np.broadcast_to(optimal, arrays["reward"].shape)
    shocks = {step: of for step, of in history.shocks.items() if step < n_steps}
    return replace(history, shocks=shocks, **arrays)


def _cuts(history: History) -> list[int]:
    """Return the steps at which something may change: the starts of blocks, the events, and the end."""
    n_steps, churn = history.planned, history.churn
    restocks = range(0, n_steps, churn.every) if churn else ()
    return sorted({*range(0, n_steps, _BLOCK), *history.shocks, *restocks, n_steps})


def check_seeds(seeds: Sequence[int]) -> list[int]:
    """Return the seeds as a list of ints."""
    if np.ndim(seeds) != 1:
        raise TypeError(f"seeds must be a sequence of whole numbers: got {seeds!r}")
    if not len(seeds):
        raise ValueError("seeds must hold one seed a world: got none")
    return [as_size("seed", seed, least=0) for seed in seeds]


def refuse_repeats(name: str, values: Sequence[Hashable]) -> None:
    """Refuse values of which one comes twice."""
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
    n_steps, trial, checked = as_size("n_steps", n_steps), copy.deepcopy(world), {}
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
