"""The loop: serve, log, learn, and come back after a crash as if nothing had happened.

One process serves and learns; others may train, review or forget in the same file. What matters is the
order in which a reward travels: first to the disk, then it is acknowledged and learnt. Agents learn by
reading the log from where they are, the same way at work and after a crash, so memory never holds
anything that the disk does not.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from functools import lru_cache
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import (
    as_finite,
    as_level,
    as_probability,
    as_size,
)
from zoolib.agents.base import Agent, Context
from zoolib.agents.policies import draw
from zoolib.monitoring import Alert
from zoolib.service.database import StoreError
from zoolib.service.health import FALLBACK, Breaker, Health, fallback_probabilities
from zoolib.service.model import (
    NOBODY,
    MakeAgent,
    Model,
    Recovery,
    choice_probabilities,
    learns_from_rewards_alone,
    neural_linear,
    recover,
)
from zoolib.service.rollout import Review, Rollout
from zoolib.service.settings import Settings
from zoolib.service.store import Store
from zoolib.service.training import register, train
from zoolib.service.watching import Watch

# What a broken version may raise; anything else is a mistake of the caller, or of this program.
FAILURES = (StoreError, ValueError, FloatingPointError, np.linalg.LinAlgError)
TIMED = ("scores", "selection", "decision", "update", "acknowledgement")
STREAM = 901  # the number of the stream that choices are drawn from
TIMINGS_KEPT = 10_000
ALERTS_KEPT = 100
USERS_KEPT = 1_000  # whose features are in the cache


@dataclass(frozen=True)
class Decision:
    """What was decided, and is on disk.

    Attributes
    ----------
    event_id : int
        To be given back with the reward.
    arm : int
        The arm to show.
    propensity : float
        The probability with which it was drawn.
    version : str
        What drew it: a version's name, or a fallback's.
    """

    event_id: int
    arm: int
    propensity: float
    version: str


class BanditService:
    """Serve an agent that learns, recovers from crashes, and is renewed.

    Parameters
    ----------
    path : str or path
        The database file; made if there is none, with a new agent as version "v1".
    features : callable
        Maps a user id to features (K, d); raises ValueError for an unknown user. The last answers are
        kept for up to a minute.
    n_arms, n_features : int
        K and d.
    key : bytes
        16 to 64 secret bytes for the pseudonyms of users; not stored.
    make_agent : callable, default neural_linear
        Maps K, d and a seed to an agent that has learnt nothing: any linear or neural-linear agent, or
        another one that learns from rewards alone and does not ask who the user is. It makes the first
        version and those of a retraining; versions in the database stay as they are.
    settings : Settings, optional
        How the service decides, protects itself and judges.
    clock : callable, default time.time
        Seconds; stored times never decrease, whatever it says.
    timer : callable, default time.perf_counter
        Seconds, for latencies.
    seed : int, default 0
        Seed of the draws. After a restart others are drawn.
    healthy : callable, optional
        Asked in every health check; False or an exception means that models shall not serve.
    watches : sequence of Watch, default ()
        Monitors that `watch` feeds with the log.

    Attributes
    ----------
    store : Store
        The database.
    rollout : Rollout
        Who is served by which version.
    recoveries : dict of Recovery
        What each version in memory rests on.
    timings : dict of deque
        Seconds of the last calls: of an agent's "scores"; of a "selection", from the user to the arm; of
        a "decision", which is the selection and its way to the disk; of an "update" of an agent; of an
        "acknowledgement", which is a reward's way to the disk and the update.

    Raises
    ------
    StoreCorruptError, StoreLockedError, StoreFullError, StoreOutdatedError
        If the file cannot be used; the message names it.

    Notes
    -----
    Not thread-safe: one thread owns a service.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        features: Callable[[Hashable], ArrayLike],
        n_arms: int,
        n_features: int,
        *,
        key: bytes,
        make_agent: MakeAgent = neural_linear,
        settings: Settings | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
        seed: int = 0,
        healthy: Callable[[], bool] | None = None,
        watches: Sequence[Watch] = (),
    ) -> None:
        self.settings = settings or Settings()
        self.make_agent, self.clock, self.timer = make_agent, clock, timer
        self._healthy, self._features = healthy or (lambda: True), features
        self._context = lru_cache(USERS_KEPT)(self._look_up)
        self.seed = as_size("seed", seed, least=0)
        self.timings = {name: deque(maxlen=TIMINGS_KEPT) for name in TIMED}
        self._models: dict[str, Model] = {}
        self.recoveries: dict[str, Recovery] = {}
        self._breakers: dict[str, Breaker] = {}
        self._snapshot_trouble = ""
        self._watches, self._alerts = list(watches), deque[Alert](maxlen=ALERTS_KEPT)
        self.store = Store(path, n_arms, n_features, key)
        try:
            if not self.store.versions():
                blob = Model(self._fresh(self.seed), 0).to_bytes()
                now = self._now()
                self.store.register(blob, 0, parent=None, created=now, validation={})
            for one in self._watches:
                if (kept := self.store.fact(one.fact)) is not None:
                    one.restore(kept)
        except BaseException:
            self.store.close()
            raise
        # A stream of its own: drawn from the bare seed, choices would depend on who comes, if the
        # caller draws the visitors from it. And another one after each restart.
        self._rng = np.random.default_rng([self.seed, STREAM, self.store.last_event()])
        self.rollout = Rollout(self.store, self.settings)
        self._load()

    def __enter__(self) -> BanditService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    def _fresh(self, seed: int) -> Agent:
        """Return a new agent, if it is one that can stand behind the counter."""
        k, d = self.store.n_arms, self.store.n_features
        agent = self.make_agent(k, d, seed)
        wanted = {"n_arms": k, "n_features": d, "n_worlds": None}
        if any(getattr(agent, name, "") != value for name, value in wanted.items()):
            raise ValueError(
                f"make_agent must return an agent of {k} arms, {d} features and a single world: got {agent!r}"
            )
        if not learns_from_rewards_alone(agent):
            raise ValueError(
                "make_agent must return an agent that learns from rewards alone, so that a replay of the "
                f"log restores it, and not from what it shows: got {agent!r}"
            )
        return agent

    def _now(self) -> float:
        return as_finite("clock", self.clock())

    # ---- Serve

    def select(self, user_id: Hashable) -> Decision:
        """Choose an arm for a user, log the choice, and return it when it is on disk.

        Raises
        ------
        StoreError
            If the event could not be logged. Nothing was decided then.
        """
        start = self.timer()
        now = self._now()
        context = self._context(user_id, int(now // 60))
        user = self.store.pseudonym(user_id)
        assigned = self.rollout.assign(user)
        version, probabilities = self._choose(assigned, context, now)
        drawn, probability = draw(probabilities, self._rng)
        arm, propensity = int(drawn), float(probability)
        self._took("selection", start)
        event_id = self.store.log_event(
            user, context.features, arm, propensity, version, assigned, now
        )
        self._took("decision", start)
        return Decision(event_id, arm, propensity, version)

    def version_of(self, user_id: Hashable) -> str:
        """Return the name of the version that a user is assigned to, until a rollout goes on."""
        return self.rollout.assign(self.store.pseudonym(user_id))

    def _look_up(self, user_id: Hashable, minute: int) -> Context:
        """Return what an agent may see of a user: features (K, d), not the id. Each minute asks again."""
        features = np.array(self._features(user_id), dtype=np.float32)
        shape = self.store.n_arms, self.store.n_features
        if features.shape != shape or not np.isfinite(features).all():
            raise ValueError(
                f"features must be finite and of shape {shape}: got shape {features.shape}"
            )
        return Context(NOBODY, features)

    def _choose(
        self, name: str, context: Context, now: float
    ) -> tuple[str, NDArray[np.float64]]:
        """Return what chooses for a version's user, itself or the fallback, and its probabilities."""
        breaker = self._breaker(name)
        if breaker.check_is_due(now):
            breaker.checked(self._complaint(), now)
        if not breaker.open:
            with self._trying(name):
                agent, start = self._model(name).agent, self.timer()
                probabilities = choice_probabilities(agent, context, self.settings)
                seconds = self._took("scores", start)
                late = seconds > self.settings.latency_limit
                breaker.tried(
                    f"scores took {1e3 * seconds:.1f} ms" if late else "", now
                )
                return name, probabilities  # late or not: the answer is there
        return FALLBACK, fallback_probabilities(self.store)

    def _complaint(self) -> str:
        """Return why models shall not serve, or nothing."""
        try:
            return "" if self._healthy() else "the health check says no"
        except Exception as error:  # of any kind: a check must not break the shop
            return _words(error)

    def _took(self, what: str, start: float) -> float:
        self.timings[what].append(self.timer() - start)
        return self.timings[what][-1]

    def _breaker(self, name: str) -> Breaker:
        new = Breaker(self.settings.patience, self.settings.pause)
        return self._breakers.setdefault(name, new)

    @contextmanager
    def _trying(self, name: str) -> Iterator[None]:
        """Note a failure; what is in memory is not trusted any more, so the next attempt loads from disk."""
        try:
            yield
        except FAILURES as error:
            self._models.pop(name, None)
            self._breaker(name).tried(_words(error), self.clock())
        except BaseException:  # Ctrl-C, perhaps in the middle of an update
            self._models.pop(name, None)
            raise

    # ---- Learn

    def reward(self, event_id: int, reward: float) -> int:
        """Put the reward of an event, in [0, 1], on disk, learn from it, and return its sequence number.

        Raises
        ------
        UnknownEventError, DuplicateRewardError
            If the event was never served or is rewarded already. Counted; nothing else changes.
        StoreError
            If the reward is not on disk. Nothing was learnt; send it again.
        """
        start = self.timer()
        event_id = as_size("event_id", event_id, least=0)
        reward = as_probability("reward", reward)
        seq = self.store.log_reward(event_id, reward, self._now())
        for name in list(self._models):  # the others learn when they are loaded
            with self._trying(name):
                self._model(name)
        self._took("acknowledgement", start)
        if seq % self.settings.snapshot_every == 0:
            try:
                self.snapshot()
                self._snapshot_trouble = ""
            except StoreError as error:
                # The reward is safe without it: a recovery replays more until one succeeds.
                self._snapshot_trouble = str(error)
        return seq

    # ---- Remember

    def _model(self, name: str) -> Model:
        """Return a version that serves, up to date with the log; from the disk if it is not in memory."""
        if name not in self._models:
            self._models[name], self.recoveries[name] = recover(
                self.store, name, self.seed
            )
        start = self.timer()
        if self._models[name].catch_up(self.store):
            self._took("update", start)
        return self._models[name]

    def _load(self) -> None:
        """Have the versions that serve in memory before a user comes, and no others."""
        names = self.rollout.names
        for retired in set(self._models) - set(names):
            del self._models[retired]
        for name in names:
            with self._trying(name):
                self._model(name)

    def snapshot(self) -> None:
        """Write down what each version in memory has learnt."""
        for name, model in list(self._models.items()):
            blob = None
            with self._trying(name):
                blob = model.to_bytes()
            if blob:  # else what went wrong in memory is never on the disk
                self.store.save_snapshot(name, model.seq, blob)

    def agent(self, name: str) -> Agent:
        """Return the agent of a version that serves: the one in memory, not a copy."""
        return self._model(name).agent

    def learnt(self, replayed: bool = False) -> dict[str, bytes]:
        """Return what each version that serves has learnt: by its name, the same bytes for the same rewards.

        With `replayed` the bytes are what a replay of all that is retained gives instead.
        """
        return {
            name: (
                recover(self.store, name, from_first=True)[0]
                if replayed
                else self._model(name)
            ).to_bytes()
            for name in self.rollout.names
        }

    # ---- Renew

    def retrain(self, held_out: float = 0.3, epochs: int = 10, seed: int = 0) -> str:
        """Train, validate and register a candidate on the log; return its name.

        Training and validation share no event: the candidate learns the older part of the log, and the
        newer part judges it. Whether it passed stands in ``store.version(name).validation``. A loss that is
        not finite raises FloatingPointError.

        Parameters
        ----------
        held_out : float, default 0.3
            Fraction of the rewarded events, the newest, that is kept for the validation.
        epochs : int, default 10
            Passes through the others, for agents that train a network. An agent without one learns them
            one by one.
        seed : int, default 0
            Handed to `make_agent`: seed of initial weights and of what the agent leaves to chance.
        """
        held_out, epochs = as_level("held_out", held_out), as_size("epochs", epochs)
        agent, log = self._fresh(as_size("seed", seed, least=0)), self.store.log()
        cut = len(log) - int(held_out * len(log))
        candidate = train(agent, log.where(slice(None, cut)), epochs)
        newer = log.where(slice(cut, None))
        running = self.rollout.active
        return register(
            self.store, running, candidate, newer, self.settings, self._now()
        )

    def begin_rollout(self, name: str) -> None:
        """Give a validated candidate its first users.

        Raises
        ------
        PromotionRefusedError
            If it is no candidate, its validation failed or is for another version than the one that
            serves, or another rollout is under way.
        """
        self.rollout.begin(name)
        self._load()

    def review_rollout(self) -> Review:
        """Judge the rollout: see `Rollout.review`. A version that does not work is rolled back at once."""
        rolling = self.rollout.rolling
        breaker = self._breaker(rolling.name) if rolling else None
        broken = breaker.reason if breaker and breaker.open else ""
        review = self.rollout.review(broken)
        self._load()
        return review

    # ---- Look after

    def check_health(self) -> Health:
        """Tell how the service is."""
        reasons = {name: self._breaker(name).reason for name in self.rollout.names}
        problems = {name: reason for name, reason in reasons.items() if reason}
        if self._snapshot_trouble:
            problems["snapshot"] = self._snapshot_trouble
        messages = tuple(alert.message for alert in self._alerts)
        return Health(problems, self.store.counters(), messages)

    def watch(self) -> list[Alert]:
        """Feed the monitors with what was rewarded since the last time; return their alerts.

        Should this fail, no monitor has moved on: the next call returns the same alerts.
        """
        before = [one.state() for one in self._watches]
        try:
            alerts = [a for one in self._watches for a in one.update(self.store)]
            self.store.remember({one.fact: one.state() for one in self._watches})
        except BaseException:
            for one, state in zip(self._watches, before, strict=True):
                one.restore(state)
            raise
        self._alerts += alerts
        return alerts

    def forget_before(self, before: float) -> int:
        """Delete the events before a time in seconds; return how many there were.

        What they taught stays in the agents and their snapshots.
        """
        return self._delete(before=as_finite("before", before))

    def erase(self, user_id: Hashable) -> int:
        """Delete every event of one user; return how many there were.

        What an agent has learnt from them, a term in two sums, stays in it; a retrained version knows
        nothing of them.
        """
        self._context.cache_clear()
        return self._delete(user=self.store.pseudonym(user_id))

    def _delete(self, **which: float | bytes) -> int:
        def snapshots() -> Iterator[tuple[str, int, bytes]]:
            for version in self.store.versions("candidate", "rolling", "active"):
                if version.state != "candidate" or version.validation.get("passed"):
                    model, _ = recover(self.store, version.name)
                    yield version.name, model.seq, model.to_bytes()

        gone = self.store.delete_events(snapshots, **which)
        self._models.clear()
        self._load()
        return gone


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__
