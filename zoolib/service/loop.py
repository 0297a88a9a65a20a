"""The loop: serve, log, learn, and recover exactly after a crash.

One process owns the file and serves, from as many threads as it likes; others may read the log meanwhile. What
matters is the order in which a reward travels: first to the disk, then it is acknowledged, and before an
agent is asked again, it is learnt. Agents learn by reading the log from where they are, the same way at work
and after a crash, so memory never holds anything that the disk does not. And every decision has one fate:
rewarded, expired, or refused.
"""

from __future__ import annotations

import sqlite3
import threading
import time
from collections import defaultdict
from collections.abc import Callable, Hashable, Iterator, Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import as_finite, as_level, as_probability, as_size
from zoolib._support.tables import is_table
from zoolib.agents.base import Agent, Context
from zoolib.agents.policies import pick
from zoolib.monitoring import Alert
from zoolib.service.database import StoreError
from zoolib.service.health import (
    FALLBACK,
    Answer,
    Breaker,
    BusyError,
    Health,
    Workers,
    fallback_probabilities,
)
from zoolib.service.model import (
    NOBODY,
    MakeAgent,
    Model,
    Recovery,
    choice_probabilities,
    learns_from_rewards_alone,
    neural_linear,
    recover,
    words,
)
from zoolib.service.rollout import Review, Rollout
from zoolib.service.settings import Settings
from zoolib.service.store import Store
from zoolib.service.training import register, train
from zoolib.service.watching import Watch

STREAM = 901  # the number of the stream that choices are drawn from
THREADS = 8  # that may hang at features, models or health checks
LARGEST_FEATURE = (
    1e5  # its square, added up over a million visits, leaves a one its place
)
AHEAD = 60.0  # seconds that the log may be ahead of the clock without a word
FAULTY_BEFORE = (3, 51, 3)  # SQLite: see `BanditService.check_health`


@dataclass(frozen=True)
class Decision:
    """A decision that is on disk.

    Attributes
    ----------
    event_id : int
        Identifies the decision when its reward is reported.
    arm : int or label
        The arm to show.
    propensity : float
        The probability with which it was drawn.
    version : str
        The name of the version or fallback that drew the arm.
    """

    event_id: int
    arm: Hashable
    propensity: float
    version: str


class BanditService:
    """Serve an agent that learns, recovers from crashes, and is renewed.

    Parameters
    ----------
    path : str or path
        The database file; made if there is none, with a new agent as version "v1".
    features : callable
        Maps a user id, and the features of the moment if there are any, to features (K, d), or to (d,) of
        the visitor for agents with a model for each arm, none above 1e5 in size; raises ValueError for an
        unknown user.
    n_arms : int, or sequence of hashable
        K, or the labels of the arms: anything that JSON can hold. The database knows them.
    n_features : int
        d.
    key : bytes
        16 to 64 secret bytes for the pseudonyms of users and requests; not stored.
    make_agent : callable, default neural_linear
        Maps K or the labels, d and a seed to an agent that has learnt nothing: any linear or neural-linear
        agent, or another one that learns from rewards alone and does not ask who the user is. It makes the
        first version and those of a retraining; versions in the database stay as they are.
    agent : Agent, optional
        One that has been taught, for the first version of a new database.
    settings : Settings, optional
        How the service decides, protects itself and judges.
    clock : callable, default time.time
        Seconds; stored times never decrease, whatever it says.
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
        The assignment of users to versions.
    recoveries : dict of Recovery
        For each version in memory, the snapshot and rewards from which it was restored.

    Raises
    ------
    StoreCorruptError, StoreLockedError, StoreFullError, StoreOutdatedError
        If the file cannot be used, for example since another process serves it; the message names it.

    Notes
    -----
    Threads may share a service; a process that was forked may not. `features`, `healthy` and agents are called
    in threads of the service's own: if one hangs, a visit waits for the deadline, once for each of them, and
    not at all once all threads hang. The disk is waited for.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        features: Callable[..., ArrayLike],
        n_arms: int | Sequence[Hashable],
        n_features: int,
        *,
        key: bytes,
        make_agent: MakeAgent = neural_linear,
        agent: Agent | None = None,
        settings: Settings | None = None,
        clock: Callable[[], float] = time.time,
        seed: int = 0,
        healthy: Callable[[], bool] | None = None,
        watches: Sequence[Watch] = (),
    ) -> None:
        self.settings = settings or Settings()
        self._deadline = min(self.settings.deadline, threading.TIMEOUT_MAX)
        self.make_agent = make_agent
        self._healthy = healthy or (lambda: True)
        self._features = features
        self._lock = threading.Lock()
        self._loading = threading.Lock()
        self._watching = threading.Lock()
        self._renewing = threading.Lock()
        self.seed = as_size("seed", seed, least=0)
        self._models: dict[str, Model] = {}
        self.recoveries: dict[str, Recovery] = {}
        self._breakers: dict[str, Breaker] = defaultdict(Breaker)
        self._watches = list(watches)
        window = self.settings.attribution
        self.store = Store(path, n_arms, n_features, key, clock, window)
        self._workers = Workers(THREADS)
        try:
            if not self.store.versions():
                first = self._fresh(self.seed) if agent is None else self._fit(agent)
                self.store.register(Model(first, 0).to_bytes(), 0, {})
            for one in self._watches:
                if (kept := self.store.fact(one.fact)) is not None:
                    one.restore(kept)
            # A stream of its own: drawn from the bare seed, choices would depend on who comes, if the
            # caller draws the visitors from it. And another one after each restart.
            stream = [self.seed, STREAM, self.store.last_event()]
            self._rng = np.random.default_rng(stream)
            self.rollout = Rollout(self.store, self.settings)
            self._load()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BanditService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database, and let the threads end."""
        self._workers.close()
        self.store.close()

    def _fresh(self, seed: int) -> Agent:
        """Return a new agent, if it is one that can stand behind the counter."""
        return self._fit(
            self.make_agent(self.store.arms.setting(), self.store.n_features, seed)
        )

    def _fit(self, agent: Agent) -> Agent:
        """Return an agent if it fits the shop."""
        arms = self.store.arms
        k = self.store.n_arms
        d = self.store.n_features
        wanted = {"n_arms": k, "n_features": d, "n_worlds": None}
        fits = all(getattr(agent, name, "") == value for name, value in wanted.items())
        if not fits or agent.arms.names not in (None, arms.names):
            raise ValueError(
                f"make_agent must return an agent of {k} arms, {d} features and a single world, with labels "
                f"{arms!r:.200} or none: got {agent!r:.300}"
            )
        if not learns_from_rewards_alone(agent):
            raise ValueError(
                "make_agent must return an agent that learns from rewards alone, so that a replay of the "
                f"log restores it, and not from what it shows: got {agent!r}"
            )
        return agent

    # ---- Serve

    def select(
        self,
        user_id: Hashable,
        moment: Any = None,
        request_id: str | bytes | int | None = None,
        without: Sequence[Hashable] = (),
    ) -> Decision:
        """Choose an arm for a user, log the choice, and return it when it is on disk.

        Parameters
        ----------
        user_id : hashable
            Who comes; known by its text, `str(user_id)`.
        moment : optional
            What is known of this visit, a second argument for `features`.
        request_id : str, bytes or int, optional
            Asked again by the same user, the service gives the same answer, and there is one event. Those
            refused or deleted are forgotten.
        without : sequence of arms, default ()
            Arms that are not on offer now, such as products that are sold out.

        Raises
        ------
        ValueError
            If the request id stands for another user; or whatever `features` raises.
        StoreError
            If the event is not on disk: it is refused, nothing was decided.
        """
        user = self.store.pseudonym(user_id)
        request = self.store.request(request_id)
        if known := self.store.decided(user, request):
            return Decision(*known)
        offered = self._offered(without)
        now = self.store.now()
        assigned = self.rollout.assign(user)
        context = self._look_up(user_id, moment)
        version, probabilities = self._score(assigned, context, offered, now)
        with self._lock:
            arm = int(pick(probabilities, self._rng.random()))
        event = self.store.log_event(
            user,
            None if context is None else context.features,
            arm,
            float(probabilities[arm]),
            version,
            assigned,
            request,
            offered,
        )
        return Decision(*event)

    def _offered(self, without: Sequence[Hashable]) -> NDArray[np.bool_] | None:
        """Return which arms are on offer, shape (K,), or None for all of them."""
        if len(without) == 0:
            return None
        offered = np.ones(self.store.n_arms, bool)
        offered[self.store.arms.places("without", without)] = False
        if not offered.any():
            raise ValueError("without must leave an arm to show: got all of them")
        return offered

    def _look_up(self, user_id: Hashable, moment: Any) -> Context | None:
        """Return what agents see of a visit; None if the features did not come in time."""
        given = (user_id,) if moment is None else (user_id, moment)
        ask = partial(self._features, *given)
        answer = self._workers.call(ask, self._deadline)
        if isinstance(answer.error, TimeoutError):
            return None
        if answer.error is not None:  # the caller's, not the model's
            raise answer.error
        if is_table(answer.value):
            self.store.note("rejected: features")
            raise TypeError(
                "features must be an array, because the log keeps no labels to read a table by: "
                f"got {type(answer.value).__name__}"
            )
        features = np.array(answer.value, dtype=np.float32)
        k = self.store.n_arms
        d = self.store.n_features
        fits = features.shape in ((k, d), (d,))
        if not fits or not (np.abs(features) <= LARGEST_FEATURE).all():
            self.store.note("rejected: features")
            got = f"{np.abs(features).max():g}" if fits else f"shape {features.shape}"
            raise ValueError(
                f"features must be finite and of shape {(k, d)} or {(d,)}, none above {LARGEST_FEATURE:g} in "
                f"size, so that agents can learn from them: got {got}"
            )
        return Context(NOBODY, features)

    def _score(
        self,
        name: str,
        context: Context | None,
        offered: NDArray[np.bool_] | None,
        now: float,
    ) -> tuple[str, NDArray[np.float64]]:
        """Return who chooses, a version or the fallback if it cannot, and with which probabilities (K,)."""
        breaker = self._breakers[name]
        if breaker.check_is_due(now):
            self._check(breaker, now)
        if context is not None and not breaker.open:
            model = self._models.get(name)
            one_row = len(context.features) < self.store.n_arms
            if model and model.agent.shared and one_row:
                raise TypeError(
                    f"features must have a row for each of {self.store.n_arms} arms: got one, what is known of "
                    "the visitor alone, and the agent has one model for all arms (shared=True)"
                )
            answer = self._ask(
                name,
                lambda model: choice_probabilities(
                    model.agent, context, self.settings, offered
                ),
            )
            if answer.error is None:
                with self._lock:
                    breaker.tried("", now)
                return name, answer.value
        return FALLBACK, fallback_probabilities(self.store, offered)

    def _check(self, breaker: Breaker, now: float) -> None:
        answer = self._workers.call(self._healthy, self._deadline)
        if isinstance(answer.error, BusyError):  # nobody was asked
            return
        reason = words(answer.error) if answer.error else ""
        if not answer.error and not answer.value:
            reason = "the health check says no"
        with self._lock:
            breaker.checked(reason, now)

    # ---- Learn

    def reward(self, event_id: int, reward: float) -> int:
        """Put the reward of an event, in [0, 1], on disk, and return its sequence number.

        Agents learn it before they are asked again. With ``Settings(when_closed=True)`` it has no number
        until its window closes: 0 is returned.

        Raises
        ------
        UnknownEventError, DuplicateRewardError, LateRewardError
            If the event was never served, is rewarded already, or has expired. Counted.
        StoreError
            If the reward is not on disk; send it again.
        """
        event_id = as_size("event_id", event_id, least=0)
        if isinstance(reward, bool | np.bool_):
            reward = float(reward)
        reward = as_probability("reward", reward)
        return self.store.log_reward(event_id, reward, self.settings.when_closed)

    def fates(self) -> dict[str, int]:
        """Count the decisions by their fates, after overdue ones have expired.

        Those in the log are "open", since a reward may yet come, "rewarded", or "expired"; `select` lets
        a few expire in passing. Those "refused" did not reach the disk: nobody has seen them,
        and no agent learns from them.
        """
        self.store.expire()
        return self.store.fates()

    # ---- Remember

    def _ask(
        self, name: str, question: Callable[[Model], Any], whole: bool = False
    ) -> Answer:
        """Have a version learn what is new, and ask it, in a thread that no interrupt reaches.

        After a failure of any kind, a deadline's too, it is noted, and what is in memory is not trusted any
        more: the next attempt loads from disk. If the answer is needed, the `whole` time is taken that
        it needs.
        """
        task = partial(self._answer, name, question)
        answer = self._workers.call(task, None if whole else self._deadline)
        if answer.error is not None and not isinstance(answer.error, BusyError):
            self._models.pop(name, None)
            now = self.store.now()
            with self._lock:
                self._breakers[name].tried(words(answer.error), now)
        return answer

    def _answer(self, name: str, question: Callable[[Model], Any]) -> Any:
        """Ask a version that serves; the thread that does is one of the service's own."""
        model = self._models.get(name)
        if model is None:
            with self._loading:  # once, however many visits wait for it
                model = self._models.get(name) or self._loaded(name)
        if not model.lock.acquire(timeout=self._deadline):
            raise TimeoutError(f"{name} is at another call that has not returned")
        try:
            before = model.seq
            model.learn(self.store.rewards_after(before, name))
            answer = question(model)
            every = self.settings.snapshot_every
            if self._models.get(name) is model and model.seq // every > before // every:
                try:
                    self.store.save_snapshot(name, model.seq, model.to_bytes())
                except StoreError:  # without it, a recovery replays more
                    self.store.note("refused snapshots")
            return answer
        finally:
            model.lock.release()

    def _loaded(self, name: str) -> Model:
        model, self.recoveries[name] = recover(self.store, name, self.seed)
        if name in self.rollout.names:  # else it is a last visit's
            self._models[name] = model
        return model

    def _load(self) -> None:
        """Have the versions that serve in memory before a user comes, and no others."""
        names = self.rollout.names
        for retired in set(self._models) - set(names):
            self._models.pop(retired, None)
        for name in names:
            answer = self._ask(name, lambda model: None, whole=True)
            if isinstance(answer.error, ImportError):  # what the agent needs is missing
                raise answer.error

    def agent(self, name: str) -> Agent:
        """Return the agent of a version that serves: the one in memory, not a copy."""
        return self._asked(name, lambda model: model.agent)

    def _asked(self, name: str, question: Callable[[Model], Any]) -> Any:
        """Return a version's answer, however long it takes, or raise what went wrong."""
        answer = self._ask(name, question, whole=True)
        if answer.error is not None:
            raise answer.error
        return answer.value

    def learnt(self, replayed: bool = False) -> dict[str, bytes]:
        """Return what each version that serves has learnt: by its name, the same bytes for the same rewards.

        With `replayed` the bytes are what a replay of all that is retained gives instead.
        """
        found = {}
        for name in self.rollout.names:
            found[name] = self._asked(name, Model.to_bytes)
            if replayed:
                found[name] = recover(self.store, name, from_first=True)[0].to_bytes()
        return found

    # ---- Renew

    def retrain(self, held_out: float = 0.3, epochs: int = 10, seed: int = 0) -> str:
        """Train, validate and register a candidate on the log; return its name.

        Training and validation share no event: the candidate learns older visits, and newer ones judge it.
        Visits count up to the first whose fate is open, since of those behind it only clicks may be known;
        a posterior takes them in at the end. Whether it passed stands in ``store.version(name).validation``.
        A loss that is not finite raises FloatingPointError.

        Parameters
        ----------
        held_out : float, default 0.3
            Fraction of these visits, the newest, that is kept for the validation.
        epochs : int, default 10
            Passes through the others, for agents that train a network. An agent without one learns them
            one by one.
        seed : int, default 0
            Handed to `make_agent`: seed of initial weights and of what the agent leaves to chance.
        """
        held_out = as_level("held_out", held_out)
        epochs = as_size("epochs", epochs)
        agent = self._fresh(as_size("seed", seed, least=0))
        self.store.expire()
        log = self.store.log()
        cut = len(log) - int(held_out * len(log))
        older = log.where(slice(cut))
        newer = log.where(slice(cut, None))
        candidate = train(agent, older, epochs)
        running = self.rollout.active
        settings = self.settings
        return register(self.store, running, candidate, older, newer, settings)

    def begin_rollout(self, name: str) -> None:
        """Give a validated candidate its first users.

        Raises
        ------
        PromotionRefusedError
            If it is no candidate, its validation failed or is for another version than the one that
            serves, or another rollout is under way.
        """
        with self._renewing:
            self.rollout.begin(name)
        self._load()

    def review_rollout(self) -> Review:
        """Judge the rollout: see `Rollout.review`. A version that does not work is rolled back at once."""
        self.store.expire()
        with self._renewing:
            rolling = self.rollout.rolling
            breaker = self._breakers[rolling.name] if rolling else None
            broken = breaker.reason if breaker and breaker.open else ""
            review = self.rollout.review(broken)
        self._load()
        return review

    # ---- Look after

    def check_health(self) -> Health:
        """Check the service and return the result: see `Health`.

        Before version 3.51.3 SQLite can damage a file if two connections write or checkpoint at the
        same moment. The service has one, and others should only read.
        """
        store = self.store
        hung = self._workers.hung
        age = store.oldest_open()
        ahead = store.ahead()
        problems = {name: self._breakers[name].reason for name in self.rollout.names}
        problems["store"] = store.trouble
        problems["set aside"] = store.last_set_aside
        if not store.is_in_place():
            problems["file"] = f"{store.path} was removed or replaced underneath"
        if ahead > AHEAD:
            problems["clock"] = f"the log is {ahead:.0f} s ahead of it"
        if age > 2 * self.settings.attribution:
            problems["open decisions"] = f"one is {age:.0f} s old, and should expire"
        if hung:
            problems["hung calls"] = f"{hung} of {THREADS} threads hang"
        problems |= {one.fact: one.trouble for one in self._watches}
        notes = ()
        if sqlite3.sqlite_version_info < FAULTY_BEFORE:
            version = sqlite3.sqlite_version
            notes = (f"SQLite {version} has known faults: let nobody else write",)
        return Health(
            {name: reason for name, reason in problems.items() if reason},
            dict(sorted(store.counters.items())),
            age,
            notes,
        )

    def watch(self) -> list[Alert]:
        """Feed the monitors with the events whose fate is known since the last time; return their alerts.

        Events that a monitor cannot take are set aside, for this monitor. Should the result not reach the disk,
        no monitor has moved on: the next call returns the same alerts.
        """
        self.store.expire()
        with self._watching:
            before = [one.state() for one in self._watches]
            try:
                alerts = [a for one in self._watches for a in one.update(self.store)]
                self.store.remember({one.fact: one.state() for one in self._watches})
            except BaseException:
                for one, state in zip(self._watches, before, strict=True):
                    one.restore(state)
                raise
            return alerts

    def forget_before(self, before: float) -> int:
        """Delete the events before a time in seconds; return how many there were.

        What they taught stays in the agents and their snapshots. Visits are served meanwhile. If another
        connection reads for seconds, StoreError says that traces are left in the write-ahead log.
        """
        return self._delete(before=as_finite("before", before))

    def erase(self, user_id: Hashable) -> int:
        """Delete every event of one user; return how many there were.

        What an agent has learnt from them, a term in two sums, stays in it; a retrained version knows
        nothing of them. For readers see `forget_before`.
        """
        return self._delete(user=self.store.pseudonym(user_id))

    def _delete(self, **which: float | bytes) -> int:
        def snapshots() -> Iterator[tuple[str, bytes]]:
            for version in self.store.versions():
                serves = version.state in ("active", "rolling")
                passed = version.validation.get("passed")
                if serves or (version.state == "candidate" and passed):
                    model, _ = recover(self.store, version.name)
                    yield version.name, model.to_bytes()
            self._models.clear()  # they are loaded from these: some may lack what goes

        gone = self.store.delete_events(snapshots, **which)
        self._load()
        return gone
