"""Rules that constrain an agent: how much it must explore, and how often it may show a group of arms.

An agent maximises clicks; floors and caps restrict how. They work on probabilities instead of single
choices, so the log gets exact propensities: see Chapter 4, "Floors and caps".
"""

from __future__ import annotations

import math
from collections.abc import Hashable, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import Seed, as_ids, as_real, as_size
from zoolib._support.tables import column_labels, in_order
from zoolib.agents.base import Agent, Context
from zoolib.agents.policies import floored, pick


class GuardedAgent(Agent):
    """Let an agent choose within floors and caps for each segment of the users.

    In a segment with floor ε a visitor sees, with probability ε, an arm drawn uniformly from those
    allowed. If a group's share of the segment's recent visits has reached its cap, its arms are not
    allowed; if no arm is left, all are allowed. Where one call chooses for several visitors, each counts
    what was chosen for those before as shown; `propensities` treats each of them as the next.

    Parameters
    ----------
    agent : Agent
        The agent that chooses; it learns from every reward.
    floor : float or array_like, shape (n_segments,), default 0.0
        Probability ε of a uniform choice, in [0, 1].
    cap : float or array_like, shape (n_segments,), default 1.0
        Largest share of a segment's recent visits that one group may have, in (0, 1].
    segment_of_user : array_like of int, shape (n_users,) or (W, n_users), optional
        Segment of each user, 0, 1, …; one segment for all if omitted.
    group_of_arm : array_like of int, shape (n_arms,) or (W, n_arms), optional
        Group of each arm, for example its category or seller; if omitted, each arm is its own group.
    window : int, default 1000
        Number of recent visits of a world, all segments together, to which caps apply.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of the draws; with worlds, one for all or one for each.

    Examples
    --------
    >>> from zoolib import StaticAgent
    >>> agent = GuardedAgent(StaticAgent([[0.1, 0.9]]), floor=0.1)
    >>> agent.propensities(Context(0, np.eye(2)))
    array([0.05, 0.95])
    """

    _purpose = "guard"
    _learns = ("_recent", "_n_recent")

    def __init__(
        self,
        agent: Agent,
        floor: ArrayLike = 0.0,
        cap: ArrayLike = 1.0,
        *,
        segment_of_user: ArrayLike | None = None,
        group_of_arm: ArrayLike | None = None,
        window: int = 1000,
        seed: Seed | Sequence[Seed] = 0,
    ) -> None:
        if not isinstance(agent, Agent):
            raise TypeError(f"agent must be an Agent: got {agent!r:.100}")
        super().__init__(agent.arms, agent.n_worlds, seed, agent.n_features)
        self.agent = agent
        self.arms = agent.arms  # so that what one has checked the other need not
        self.shared = agent.shared
        self.needs_truth = getattr(agent, "needs_truth", False)
        self.segment_of_user = None
        n_segments = 1
        if segment_of_user is not None:
            self.segment_of_user = self._labels("segment_of_user", segment_of_user)
            n_segments += int(self.segment_of_user.max())
        groups = np.arange(self.n_arms) if group_of_arm is None else group_of_arm
        self.group_of_arm = self._labels("group_of_arm", groups, self.arms[:])
        self._n_of_each = n_segments, 1 + int(self.group_of_arm.max())
        self.floor = _parts("floor", floor, n_segments)
        self.cap = _parts("cap", cap, n_segments)
        if not self.cap.all():
            raise ValueError(f"cap must be above 0: got {cap}")
        self.window = as_size("window", window)
        # Segment and group of the last visits: each visit overwrites the oldest.
        self._recent = np.zeros((self.window, 2, *self._shape[:-1]), np.int64)
        self._n_recent = 0

    @property
    def feature_names(self) -> tuple[Hashable, ...] | None:
        """Names of the features, which are the agent's, so that both read tables alike."""
        return self.agent.feature_names

    @feature_names.setter
    def feature_names(self, names: tuple[Hashable, ...]) -> None:
        self.agent.feature_names = names

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Restart the random numbers, the guard's independent of its agent's."""
        super().reseed(seed)
        if hasattr(self, "agent"):
            self.agent.reseed(self.seed)

    def scores(self, context: Context) -> NDArray:
        """Return the agent's own scores: see `Agent.scores`."""
        return self.agent.scores(context)

    @property
    def exposure(self) -> NDArray[np.int64]:
        """Number of recent visits of each group, one row per segment, after the worlds axis if there is one."""
        shape = (*self._shape[:-1], *self._n_of_each)
        segment, group = self._recent[: self._n_recent].swapaxes(0, 1)
        cells = np.ravel_multi_index((*self._worlds, segment, group), shape)
        return np.bincount(cells.ravel(), minlength=math.prod(shape)).reshape(shape)

    def allowed(self, context: Context) -> NDArray[np.bool_]:
        """Return which arms the caps allow for this visitor, shape (n_arms,) or (W, n_arms)."""
        segment = self._segment(self._check(context))
        shown = self.exposure[(*self._worlds, segment)]
        most = self.cap[segment][..., None] * shown.sum(axis=-1, keepdims=True)
        of_group = (shown < most) | (self.cap[segment] == 1)[..., None]
        groups = np.broadcast_to(self.group_of_arm, self._shape)
        groups = np.broadcast_to(groups, (*of_group.shape[:-1], self.n_arms))
        allowed = np.take_along_axis(of_group, groups, axis=-1)
        return allowed | ~allowed.any(axis=-1, keepdims=True)

    def _policy(
        self, context: Context, allowed: NDArray[np.bool_], n_draws: int
    ) -> NDArray[np.float64]:
        if (self.cap < 1).any():
            held = allowed & self.allowed(context)
            allowed = np.where(held.any(axis=-1, keepdims=True), held, allowed)
        floor = self.floor[self._segment(context)][..., None]
        best = self.agent.propensities(context, allowed, n_draws)
        return floored(best, floor, allowed)

    def choose(self, context: Context) -> int | NDArray[np.int64]:
        """Draw an arm from the propensities."""
        return self._drawn(context)[0]

    def decide(self, context: Context) -> tuple[Hashable | NDArray, float | NDArray]:
        """Choose as `select` does, and return the arm together with the propensity to log.

        Returns
        -------
        arm : int or label, or ndarray of them, shape (n,) or (W,)
        propensity : float, or ndarray, shape (n,) or (W,)
            Probability with which the arm was drawn.
        """
        place, policy = self._drawn(context)
        of_place = np.take_along_axis(policy, np.expand_dims(place, -1), axis=-1)
        propensity = of_place[..., 0] if np.ndim(place) else float(of_place[0])
        return self.arms.of(place), propensity

    def _drawn(self, context: Context) -> tuple[int | NDArray[np.int64], NDArray]:
        """Draw arms; return their positions and the propensities from which each was drawn."""
        context = self._check(context)
        n = self._n_visitors(context)
        if not n or not (self.cap < 1).any():
            policy = self.propensities(context)
            return self.draw(policy), policy
        self._segment(context)  # may refuse, before anything is drawn
        places = []
        policies = []
        counted = (self._recent.copy(), self._n_recent)
        try:
            for one in map(context.of_world, range(n)):
                policies.append(self.propensities(one))
                places.append(self.draw(policies[-1]))
                self._count(self._shown(one, (places[-1],)))
        finally:
            self._recent, self._n_recent = counted
        return np.array(places), np.array(policies)

    def draw(self, propensities: NDArray[np.float64]) -> int | NDArray[np.int64]:
        """Draw an arm from given propensities, for a caller who logs them; return its position."""
        n = None if self._worlds or propensities.ndim == 1 else len(propensities)
        arm = pick(propensities, self._uniforms.next(n))
        return arm if arm.ndim else int(arm)

    def learn(self, context: Context, at: tuple, reward: ArrayLike) -> None:
        """Let the agent learn, and count the arm that was shown."""
        shown = self._shown(context, at)  # may refuse the visitor
        self.agent.learn(context, at, reward)
        self._count(shown)

    def _shown(self, context: Context, at: tuple) -> NDArray[np.int64]:
        """Return the visitor's segment and the group of the arm, shape (2,) or (2, W)."""
        group = self.group_of_arm[at if self.group_of_arm.ndim == 2 else at[-1:]]
        return np.array([self._segment(context), group])

    def _count(self, shown: NDArray[np.int64]) -> None:
        self._recent[self._n_recent % self.window] = shown
        self._n_recent += 1

    def _restore(self, learned: dict[str, Any]) -> None:
        super()._restore(learned)
        for n, shown in zip(self._n_of_each, self._recent.swapaxes(0, 1), strict=True):
            as_ids("recent", shown, n)

    def restock(self, arms: NDArray[np.int64]) -> None:
        """See `Agent.restock`."""
        self.agent.restock(arms)

    def _segment(self, context: Context) -> NDArray[np.int64]:
        """Return the visitors' segments, shape () or (W,)."""
        if self.segment_of_user is None:
            return np.zeros(context.features.shape[:-2], int)
        n_users = self.segment_of_user.shape[-1]
        users = as_ids("context.user_id", context.user_id, n_users)
        worlds = self._worlds if self.segment_of_user.ndim == 2 else ()
        return self.segment_of_user[(*worlds, users)]

    def _labels(
        self, name: str, labels: ArrayLike, items: Sequence[Hashable] | None = None
    ) -> NDArray[np.int64]:
        """Return labels 0, 1, … of these items, or of users, one row for all worlds or one per world."""
        worlds = self._shape[:-1] if np.ndim(labels) > 1 else ()
        shape = (*worlds, "n_users" if items is None else len(items))
        found = as_ids(name, labels, np.iinfo(np.int64).max, shape).copy()
        n = as_size(f"n_users of {name}", found.shape[-1])
        items = range(n) if items is None else items
        return found[..., in_order(name, column_labels(labels), items)]


def _parts(name: str, value: ArrayLike, n_segments: int) -> NDArray[np.float64]:
    """Return one number in [0, 1] for each segment."""
    parts = as_real(name, value, (n_segments,) if np.ndim(value) else ())
    if not np.all((parts >= 0) & (parts <= 1)):
        raise ValueError(f"{name} must lie in [0, 1]: got {value}")
    parts = np.broadcast_to(parts, n_segments)
    return parts[in_order(name, column_labels(value), range(n_segments))]
