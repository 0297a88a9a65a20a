"""The arena: agents meet the same users and the same luck, in many worlds, step by step.

See "How the experiments are run" in the back matter. Visitors are drawn in advance. A click happens
when a uniform number, one for each step, world and category, lies below the true click probability of
the product shown: two agents that show products of one category have the same luck.
"""

from __future__ import annotations

import copy
import sys
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from zoolib._checks import as_ids, as_size
from zoolib._progress import progress_bar
from zoolib._random import stream
from zoolib._threads import one_thread
from zoolib.agents import Agent, Context, RevealedContext
from zoolib.experiment.history import History
from zoolib.features import FeatureEngineer
from zoolib.simulator import Churn, MarketShock, ZooplusSimulator, true_ctr_matrix

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
    """Let agents play the same visitors with the same luck, each in its own copy of every world.

    Parameters
    ----------
    agents : mapping of str to Agent, or sequence of Agent
        The players. Copies of them play; those given stay as they are. An agent for
        ``len(seeds)`` worlds plays all of them in step; one without a worlds axis is copied for
        each world. A sequence is named by class.
    seeds : sequence of int
        One world each. The seed also decides visitors, luck, and what agents leave to chance.
    n_steps : int
        Number of visits in each world.
    shocks : mapping of int to MarketShock, optional
        What happens just before the step of that number, counted from 0.
    churn : Churn, optional
        Products are replaced before the steps that are multiples of ``churn.every``, except 0. Agents
        with a method ``restock`` are told which arms now hold other products.
    repeats : bool, default False
        Let a seed come more than once: its worlds repeat, luck included, and differ only by what the
        agents bring, for example a `network_seed` for each.
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

    Raises
    ------
    TypeError, ValueError
        If an argument is not what is described here.
    """
    seeds, n_steps = check_seeds(seeds, repeats), as_size("n_steps", n_steps)
    check_churn(churn)
    arena = _Arena([make_world(seed=seed) for seed in seeds], seeds, make_features)
    shocks = check_shocks(shocks or {}, n_steps, arena.worlds[0])
    players = [
        _Player(name, agent, arena, seeds) for name, agent in _named(agents).items()
    ]
    played = _Played(len(players), len(seeds), n_steps)
    visitors = arena.draw_visitors(n_steps)
    interrupted = False
    with (
        one_thread(),
        progress_bar(progress, total=n_steps, unit="step") as bar,
    ):
        try:
            for start, stop in pairwise(_cuts(n_steps, shocks, churn)):
                if start in shocks:
                    arena.apply_shock(shocks[start])
                if churn and start and start % churn.every == 0:
                    arena.restock(players, churn.share, start)
                luck = arena.draw_luck(stop - start)
                for step in range(start, stop):
                    arena.step(players, visitors[step], luck[step - start], played)
                bar.update(stop - start)
        except KeyboardInterrupt:
            if played.steps == 0:
                raise
            interrupted = True
    if interrupted:
        print(
            f"interrupted after {played.steps:,} of {n_steps:,} steps: the history holds those",
            file=sys.stderr,
        )
    return _history(players, arena, visitors, played, seeds, shocks, churn, n_steps)


class _Arena:
    """The worlds, and tables of their present truth: what happens when an arm is shown."""

    def __init__(
        self,
        worlds: list[ZooplusSimulator],
        seeds: list[int],
        make_features: Callable[..., FeatureEngineer],
    ) -> None:
        self.worlds = worlds
        self.index = np.arange(len(worlds))
        self.n_arms = worlds[0].n_products
        self.persona = np.stack([world.persona_of_user for world in worlds])
        self._make_features = make_features
        self._visitors = [stream(seed, "visitors") for seed in seeds]
        self._luck = [stream(seed, "clicks") for seed in seeds]
        self._read_catalogue()

    def _read_catalogue(self) -> None:
        self.category = np.stack([world.category_of_product for world in self.worlds])
        self.features = self._make_features(self.worlds)
        self._read_truth()

    def _read_truth(self) -> None:
        self.truth = np.stack([true_ctr_matrix(world) for world in self.worlds])
        self.best = self.truth.max(axis=-1)

    def apply_shock(self, shock: MarketShock) -> None:
        for world in self.worlds:
            world.apply_shock(shock)
        self._read_truth()

    def restock(self, players: list[_Player], share: float, step: int) -> None:
        """Replace products in every world, and tell the players where."""
        arms = np.stack([world.restock(share) for world in self.worlds])
        self._read_catalogue()
        for player in players:
            player.restock(arms, step)

    def draw_visitors(self, n: int) -> NDArray[np.int64]:
        """Return the visitors of n steps, shape (n, W)."""
        n_users = self.worlds[0].n_users
        return np.stack([g.integers(n_users, size=n) for g in self._visitors], axis=1)

    def draw_luck(self, n: int) -> NDArray[np.float64]:
        """Return uniform numbers for n steps, worlds and categories, shape (n, W, n_categories)."""
        n_categories = len(self.worlds[0].categories)
        return np.stack([g.random((n, n_categories)) for g in self._luck], axis=1)

    def step(
        self,
        players: list[_Player],
        users: NDArray[np.int64],
        luck: NDArray[np.float64],
        played: _Played,
    ) -> None:
        """Let all players meet the same visitors."""
        features = self.features.transform(users)
        # All players look at the same arrays, so none may write into them.
        users.flags.writeable = features.flags.writeable = False
        seen = _Seen(Context(users, features))
        # Nobody sees what others do: all choose, then all are judged at once, then all learn.
        arms = np.empty((len(players), len(users)), np.int64)
        for player, arm in zip(players, arms, strict=True):
            arm[:] = player.choose(seen, self, played.steps)
        probability = self.truth[self.index, users, arms]
        clicked = luck[self.index, self.category[self.index, arms]] < probability
        rewards = clicked.astype(np.int8)
        played.note(arms, probability, rewards, self.best[self.index, users])
        for player, arm, reward in zip(players, arms, rewards, strict=True):
            player.learn(seen, arm, reward, played.steps)
        played.steps += 1


class _Seen:
    """What the players see of a step: all worlds together, and each apart for those who play one."""

    def __init__(self, together: Context) -> None:
        self.together = together

    @cached_property
    def apart(self) -> list[Context]:
        """The worlds one by one, made when the first player asks."""
        return [self.together.of_world(w) for w in range(len(self.together.user_id))]

    def revealed(self, arena: _Arena) -> _Seen:
        """Return the same with the truth, for agents that need it."""
        users, features = self.together.user_id, self.together.features
        return _Seen(RevealedContext(users, features, arena.truth[arena.index, users]))


class _Player:
    """An agent's copy in the arena: one for all worlds, or one for each."""

    def __init__(
        self, name: str, agent: Agent, arena: _Arena, seeds: list[int]
    ) -> None:
        n_worlds = getattr(agent, "n_worlds", None)
        if n_worlds not in (None, len(seeds)):
            raise ValueError(
                f"agent {name!r} plays n_worlds={n_worlds}: wanted {len(seeds)}, one a seed, or None"
            )
        n_arms = getattr(agent, "n_arms", arena.n_arms)
        if n_arms != arena.n_arms:
            raise ValueError(
                f"agent {name!r} has n_arms={n_arms}: the worlds have {arena.n_arms} products"
            )
        self.name = name
        self.in_step = n_worlds is not None
        self.copies = [
            copy.deepcopy(agent) for _ in (seeds[:1] if self.in_step else seeds)
        ]
        for one, seed in zip(
            self.copies, [seeds] if self.in_step else seeds, strict=True
        ):
            if hasattr(one, "reseed"):
                one.reseed(seed)

    def choose(self, seen: _Seen, arena: _Arena, step: int) -> NDArray[np.int64]:
        """Return the arm shown in each world, shape (W,)."""
        try:
            if getattr(self.copies[0], "needs_truth", False):
                seen = seen.revealed(arena)
            views = [seen.together] if self.in_step else seen.apart
            chosen = [
                one.select(view) for one, view in zip(self.copies, views, strict=True)
            ]
            arm = as_ids("arm", chosen[0] if self.in_step else chosen, arena.n_arms)
            if arm.shape != arena.index.shape:
                raise ValueError(
                    f"arm, as select returned it, must have shape {arena.index.shape}: got {arm.shape}"
                )
        except Exception as error:
            self._sign(error, step)
            raise
        return arm

    def learn(self, seen: _Seen, arm: NDArray, reward: NDArray, step: int) -> None:
        try:
            if self.in_step:
                self.copies[0].update(seen.together, arm, reward)
                return
            played = zip(
                self.copies, seen.apart, arm.tolist(), reward.tolist(), strict=True
            )
            for one, view, its_arm, its_reward in played:
                one.update(view, its_arm, its_reward)
        except Exception as error:
            self._sign(error, step)
            raise

    def restock(self, arms: NDArray[np.int64], step: int) -> None:
        try:
            for one, theirs in zip(
                self.copies, [arms] if self.in_step else arms, strict=True
            ):
                if hasattr(one, "restock"):
                    one.restock(theirs)
        except Exception as error:
            self._sign(error, step)
            raise

    def _sign(self, error: Exception, step: int) -> None:
        """Say in an error which agent raised it, and when."""
        error.add_note(f"Agent {self.name!r} was at step {step}.")


class _Played:
    """What happened so far, step by step."""

    def __init__(self, n_agents: int, n_worlds: int, n_steps: int) -> None:
        self.steps = 0
        self.arm = np.empty((n_steps, n_agents, n_worlds), np.int32)
        self.reward = np.empty((n_steps, n_agents, n_worlds), np.int8)
        self.expected = np.empty((n_steps, n_agents, n_worlds))
        self.optimal = np.empty((n_steps, n_worlds))

    def note(
        self, arm: NDArray, probability: NDArray, reward: NDArray, best: NDArray
    ) -> None:
        """Write a step down; it counts once all have learnt from it."""
        self.arm[self.steps] = arm
        self.expected[self.steps] = probability
        self.reward[self.steps] = reward
        self.optimal[self.steps] = best


def _history(
    players: list[_Player],
    arena: _Arena,
    visitors: NDArray[np.int64],
    played: _Played,
    seeds: list[int],
    shocks: dict[int, MarketShock],
    churn: Churn | None,
    planned: int,
) -> History:
    """Lay out what happened with the steps on the last axis."""
    done = played.steps
    user = np.ascontiguousarray(visitors[:done].T, np.int32)
    arm, reward, expected = (
        np.ascontiguousarray(np.moveaxis(array[:done], 0, -1))
        for array in (played.arm, played.reward, played.expected)
    )
    optimal = np.ascontiguousarray(played.optimal[:done].T)
    return History(
        agents=tuple(player.name for player in players),
        seeds=tuple(seeds),
        shocks={step: shock for step, shock in shocks.items() if step < done},
        churn=churn,
        personas=tuple(arena.worlds[0].personas),
        planned=planned,
        user=user,
        persona=np.take_along_axis(arena.persona, user, axis=1).astype(np.int8),
        arm=arm,
        reward=reward,
        expected_reward=expected,
        optimal_reward=np.broadcast_to(optimal, reward.shape),
    )


def _cuts(
    n_steps: int, shocks: Mapping[int, MarketShock], churn: Churn | None
) -> list[int]:
    """Return the steps at which something may change: the starts of blocks, the events, and the end."""
    restocks = range(0, n_steps, churn.every) if churn else ()
    return sorted({*range(0, n_steps, _BLOCK), *shocks, *restocks, n_steps})


def check_churn(churn: Churn | None) -> None:
    """Refuse what is neither a churn nor None."""
    if not isinstance(churn, Churn | None):
        raise TypeError(f"churn must be a Churn or None: got {type(churn).__name__}")


def check_seeds(seeds: Sequence[int], repeats: bool) -> list[int]:
    """Return the seeds as a list of ints, which may repeat only if that is allowed."""
    if np.ndim(seeds) != 1:
        raise TypeError(f"seeds must be a sequence of whole numbers: got {seeds!r}")
    checked = [as_size("seed", seed, least=0) for seed in seeds]
    if not checked:
        raise ValueError("seeds must hold one seed a world: got none")
    twice = sorted({seed for seed in checked if checked.count(seed) > 1})
    if twice and not repeats:
        raise ValueError(
            f"seeds must differ, or worlds repeat, as repeats=True allows: got {twice} more than once"
        )
    return checked


def check_shocks(
    shocks: Mapping[int, MarketShock], n_steps: int, world: ZooplusSimulator
) -> dict[int, MarketShock]:
    """Return the shocks in order of their steps, if a world takes them all."""
    trial, checked = copy.deepcopy(world), {}
    for step, shock in shocks.items():
        step = as_size("shock step", step, least=0)
        if step >= n_steps:
            raise ValueError(
                f"shocks must come before the last of {n_steps} steps is over: got one at step {step}"
            )
        trial.apply_shock(shock)
        # Python's own numbers, which any file can hold.
        changes = {c: float(p) for c, p in shock.click_probabilities.items()}
        checked[step] = MarketShock(shock.persona, changes)
    return dict(sorted(checked.items()))


def _named(agents: Mapping[str, Agent] | Sequence[Agent]) -> dict[str, Agent]:
    if not isinstance(agents, Mapping | Sequence):
        raise TypeError(
            f"agents must be a mapping or a sequence of agents: got {type(agents).__name__}"
        )
    if not isinstance(agents, Mapping):
        names = [type(agent).__name__ for agent in agents]
        if len(set(names)) < len(names):
            raise ValueError(
                f"agents must be named when two are of one class: got a sequence of {names}"
            )
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
