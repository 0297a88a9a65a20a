"""The loop: serve, log, learn, and recover exactly after a crash.

One process serves and learns; others may train, review or forget in the same file. What matters is the
order in which a reward travels: first to the disk, then it is acknowledged and learnt. Agents learn by
reading the log from where they are, the same way at work and after a crash, so memory never holds
anything that the disk does not. And every decision has one fate: rewarded, expired, or refused.
"""

from __future__ import annotations

import threading
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from os import PathLike
from typing import Any, TypeVar

import numpy as np
from numpy.linalg import LinAlgError
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import as_finite, as_level, as_probability, as_size
from zoolib.agents.base import Agent, Context
from zoolib.agents.policies import draw
from zoolib.monitoring import Alert
from zoolib.service.database import StoreError
from zoolib.service.health import (
    FALLBACK,
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
)
from zoolib.service.rollout import Review, Rollout
from zoolib.service.settings import Settings
from zoolib.service.store import Store
from zoolib.service.training import register, train
from zoolib.service.watching import Watch

T = TypeVar("T")
# What a broken version may raise; anything else is a mistake of the caller, or of this program.
FAILURES = (StoreError, ValueError, TimeoutError, FloatingPointError, LinAlgError)
TIMED = ("scores", "selection", "decision", "update", "acknowledgement")
STREAM = 901  # the number of the stream that choices are drawn from
TIMINGS_KEPT = 10_000
ALERTS_KEPT = 100
USERS_KEPT = 1_000  # whose features are in the cache
THREADS = 8  # that may hang at features, models or health checks
EXPIRED_IN_ONE_GO = 200  # decisions: models have a deadline to learn them


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
        the visitor for agents with a model for each arm; raises ValueError for an unknown user. The last
        answers for users alone are kept for up to a minute.
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
        The assignment of users to versions.
    recoveries : dict of Recovery
        For each version in memory, the snapshot and rewards from which it was restored.
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
    Threads may share a service, and processes its file. `features`, `healthy` and agents are called in threads
    of the service's own: if one hangs, a visit waits for the deadline, for two if a health check is due, and
    not at all once all of them hang. A disk that hangs, and a version that is loaded, are waited for.
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
        self._contexts: dict[tuple, Context] = {}
        self._lock, self._watching = threading.Lock(), threading.Lock()
        self._workers = Workers(THREADS)
        weakref.finalize(self, self._workers.close)  # if nobody closes it
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
            # A stream of its own: drawn from the bare seed, choices would depend on who comes, if the
            # caller draws the visitors from it. And another one after each restart.
            stream = [self.seed, STREAM, self.store.last_event()]
            self._rng = np.random.default_rng(stream)
            self.rollout = Rollout(self.store, self.settings)
            self._written = self.store.last_seq()
            self._load()
        except BaseException:
            self.close()
            raise

    def __enter__(self) -> BanditService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self.store.close()
        self._workers.close()

    def _fresh(self, seed: int) -> Agent:
        """Return a new agent, if it is one that can stand behind the counter."""
        arms, k, d = self.store.arms, self.store.n_arms, self.store.n_features
        agent = self.make_agent(arms.setting(), d, seed)
        wanted = {"n_arms": k, "n_features": d, "n_worlds": None}
        if any(getattr(agent, name, "") != value for name, value in wanted.items()):
            raise ValueError(
                f"make_agent must return an agent of {k} arms, {d} features and a single world: got {agent!r}"
            )
        if agent.arms.names not in (None, arms.names):
            raise ValueError(
                f"make_agent must return an agent of the arms {arms!r:.200}: got {agent.arms!r:.200}"
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

    def select(
        self,
        user_id: Hashable,
        moment: Any = None,
        request_id: str | bytes | int | None = None,
    ) -> Decision:
        """Choose an arm for a user, log the choice, and return it when it is on disk.

        Parameters
        ----------
        user_id : hashable
            Who comes; known by its text, `str(user_id)`.
        moment : optional
            What is known of this visit, a second argument for `features`; with a request id, anything that JSON
            can hold, or an array.
        request_id : str, bytes or int, optional
            Asked again, the service gives the same answer, and there is one event. Those refused or deleted are
            forgotten.

        Raises
        ------
        ValueError
            If the request id stands for another user or moment; or whatever `features` raises.
        StoreError
            If the event is not on disk, or came there after the deadline: it is refused, nothing was decided.
        """
        start = self.timer()
        now, user = self._now(), self.store.pseudonym(user_id)
        request = (None, None)
        if request_id is not None:
            request = self.store.request(request_id, user, moment)
            if known := self.store.decided(request):
                return Decision(*known)
        assigned = self.rollout.assign(user)
        context, version, probabilities = self._choose(assigned, user_id, moment, now)
        with self._lock:
            drawn, probability = draw(probabilities, self._rng)
        self._took("selection", start)
        written = self.timer()
        features = None if context is None else context.features
        logged = self.store.log_event(
            *(user, features, drawn, float(probability), version, assigned, self._now),
            attribution=self.settings.attribution,
            request=request,
            in_time=lambda: self.timer() - written <= self.settings.deadline,
        )
        self._took("decision", start)
        return Decision(*logged)

    def version_of(self, user_id: Hashable) -> str:
        """Return the name of the version that a user is assigned to, until a rollout goes on."""
        return self.rollout.assign(self.store.pseudonym(user_id))

    def _look_up(self, user_id: Hashable, moment: Any) -> Context:
        given = (user_id,) if moment is None else (user_id, moment)
        features = np.array(self._features(*given), dtype=np.float32)
        k, d = self.store.n_arms, self.store.n_features
        fits = features.shape in ((k, d), (d,))
        if not fits or not np.isfinite(features).all():
            got = "NaN or infinity" if fits else f"shape {features.shape}"
            raise ValueError(
                f"features must be finite and of shape {(k, d)} or {(d,)}: got {got}"
            )
        return Context(NOBODY, features)

    def _choose(
        self, name: str, user_id: Hashable, moment: Any, now: float
    ) -> tuple[Context | None, str, NDArray[np.float64]]:
        """Return what agents see of a visit, or None if it is late, and who chooses with which probabilities.

        Features and model are asked one after the other, in one thread: each change of threads costs time.
        """
        breaker = self._breaker(name)
        if breaker.check_is_due(now):
            self._check(breaker, now)
        key = None if moment is not None else (user_id, now // 60)  # a minute's
        seen = [known] if (known := self._contexts.get(key)) else []

        def task() -> Exception | tuple[NDArray[np.float64], float] | None:
            try:
                if not seen:
                    seen.append(self._look_up(user_id, moment))
            except Exception as error:  # the caller's, not the model's
                return error
            if breaker.open:
                return None
            with self._using(name) as model:
                return self._score(model, seen[0])

        answer = None
        with self._trying(name):
            try:
                answer = self._workers.call(task, self.settings.deadline)
            except TimeoutError:
                if seen:  # else it was not the model that hung
                    raise
        if isinstance(answer, Exception) and not isinstance(answer, TimeoutError):
            raise answer
        context = seen[0] if seen else None
        if key and context and not known:
            with self._lock:
                if len(self._contexts) >= USERS_KEPT:
                    del self._contexts[next(iter(self._contexts))]
                self._contexts[key] = context
        if not isinstance(answer, tuple):
            return context, FALLBACK, fallback_probabilities(self.store)
        probabilities, seconds = answer
        late = seconds > self.settings.latency_limit
        with self._lock:
            breaker.tried(f"scores took {1e3 * seconds:.1f} ms" if late else "", now)
        return context, name, probabilities  # late or not: the answer is there

    def _score(
        self, model: Model, context: Context
    ) -> tuple[NDArray[np.float64], float]:
        """Return a version's probabilities, and the seconds that they took."""
        if model.agent.shared and len(context.features) < self.store.n_arms:
            raise TypeError(
                f"features must have a row for each of {self.store.n_arms} arms: got one, what is known of the "
                "visitor alone, and the agent has one model for all arms (shared=True)"
            )
        start = self.timer()
        probabilities = choice_probabilities(model.agent, context, self.settings)
        return probabilities, self._took("scores", start)

    def _check(self, breaker: Breaker, now: float) -> None:
        try:
            well = self._workers.call(self._healthy, self.settings.deadline)
            reason = "" if well else "the health check says no"
        except BusyError:  # nobody was asked
            return
        except Exception as error:  # of any kind: a check must not break the shop
            reason = _words(error)
        with self._lock:
            breaker.checked(reason, now)

    def _took(self, what: str, start: float) -> float:
        seconds = self.timer() - start
        self.timings[what].append(seconds)
        return seconds

    def _breaker(self, name: str) -> Breaker:
        new = Breaker(self.settings.patience, self.settings.pause)
        return self._breakers.setdefault(name, new)

    @contextmanager
    def _trying(self, name: str) -> Iterator[None]:
        """Note a failure; what is in memory is not trusted any more, so the next attempt loads from disk."""
        try:
            yield
        except BusyError:  # no fault of the model's, which was not asked
            pass
        except FAILURES as error:
            self._models.pop(name, None)
            with self._lock:
                self._breaker(name).tried(_words(error), self.clock())
        except BaseException:  # Ctrl-C, perhaps in the middle of an update
            self._models.pop(name, None)
            raise

    # ---- Learn

    def reward(self, event_id: int, reward: float) -> int:
        """Put the reward of an event, in [0, 1], on disk, learn from it, and return its sequence number.

        Raises
        ------
        UnknownEventError, DuplicateRewardError, LateRewardError
            If the event was never served, is rewarded already, or has expired. Counted.
        StoreError
            If the reward is not on disk. Nothing was learnt; send it again.
        """
        start = self.timer()
        event_id = as_size("event_id", event_id, least=0)
        reward = as_probability("reward", reward)
        seq = self.store.log_reward(event_id, reward, self._now)
        for name in list(self._models):  # the others learn when they are loaded
            self._ask(name)
        self._took("acknowledgement", start)
        every = self.settings.snapshot_every
        with self._lock:
            due = seq // every > self._written // every
            self._written = max(seq, self._written)
        if due:
            try:
                self.snapshot()
                self._snapshot_trouble = ""
            except StoreError as error:
                # The reward is safe without it: a recovery replays more until one succeeds.
                self._snapshot_trouble = str(error)
        return seq

    def expire(self) -> int:
        """Give all overdue decisions a reward of zero, learn it, and return how many there were.

        `select` and `reward` do the same in passing, for a few at each call.
        """
        total = 0
        while n := self.store.expire(self._now, EXPIRED_IN_ONE_GO):
            total += n
            for name in list(self._models):
                self._ask(name)
        return total

    def fates(self) -> dict[str, int]:
        """Count the decisions by their fates, after overdue ones have expired.

        Those in the log are "open", since a reward may yet come, "rewarded", or "expired". Those "refused" were
        not on the disk in time: nobody has seen them, and no agent learns from them.
        """
        self.expire()
        return self.store.fates()

    # ---- Remember

    @contextmanager
    def _using(self, name: str) -> Iterator[Model]:
        """Lend a version that serves, up to date with the log; from the disk if it is not in memory."""
        model = self._models.get(name)
        if model is None:
            model, self.recoveries[name] = recover(self.store, name, self.seed)
            if name in self.rollout.names:  # else it is a last visit's
                self._models[name] = model
        if not model.lock.acquire(timeout=self.settings.deadline):
            raise TimeoutError(f"{name} is at another call that has not returned")
        try:
            start, seq = self.timer(), model.seq
            if model.catch_up(self.store):
                self._took("update", start)
            # Another process may have deleted what this one had yet to learn.
            if seq < self.store.deleted():
                whole, self.recoveries[name] = recover(self.store, name, self.seed)
                model.agent, model.seq = whole.agent, whole.seq
            yield model
        finally:
            model.lock.release()

    def _ask(
        self, name: str, question: Callable[[Model], T] = lambda model: None
    ) -> T | None:
        """Have a version learn what is new, ask it, and note a failure, a deadline's too: then return None."""

        def task() -> T:
            with self._using(name) as model:
                return question(model)

        with self._trying(name):
            return self._workers.call(task, self.settings.deadline)

    def _load(self) -> None:
        """Have the versions that serve in memory before a user comes, and no others."""
        names = self.rollout.names
        for retired in set(self._models) - set(names):
            self._models.pop(retired, None)
        for name in names:
            with self._trying(name), self._using(name):
                pass

    def snapshot(self) -> None:
        """Write down what each version in memory has learnt."""
        for name in list(self._models):
            found = self._ask(name, lambda model: (model.seq, model.to_bytes()))
            if found:  # else what went wrong in memory is never on the disk
                self.store.save_snapshot(name, *found)

    def agent(self, name: str) -> Agent:
        """Return the agent of a version that serves: the one in memory, not a copy."""
        with self._using(name) as model:
            return model.agent

    def learnt(self, replayed: bool = False) -> dict[str, bytes]:
        """Return what each version that serves has learnt: by its name, the same bytes for the same rewards.

        With `replayed` the bytes are what a replay of all that is retained gives instead.
        """
        found = {}
        for name in self.rollout.names:
            with self._using(name) as model:
                if replayed:
                    model, _ = recover(self.store, name, from_first=True)
                found[name] = model.to_bytes()
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
        held_out, epochs = as_level("held_out", held_out), as_size("epochs", epochs)
        agent = self._fresh(as_size("seed", seed, least=0))
        self.expire()
        complete = self.store.complete()  # first: visits may go on
        log = self.store.log()
        known = np.sort(log.event[log.event <= complete])
        edge = known[: len(known) - int(held_out * len(known))].max(initial=0)
        older = log.event <= edge
        candidate = train(agent, log.where(older), epochs)
        candidate.seq = int(log.seq[older.argmin()]) - 1  # from here on, the rest
        newer = log.where(~older & (log.event <= complete))
        args = self.store, self.rollout.active, candidate, newer, self.settings
        return register(*args, self._now(), known=int(edge))

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
        self.expire()
        review = self.rollout.review(broken)
        self._load()
        return review

    # ---- Look after

    def check_health(self) -> Health:
        """Check the service and return the result."""
        reasons = {name: self._breaker(name).reason for name in self.rollout.names}
        problems = {name: reason for name, reason in reasons.items() if reason}
        if self._snapshot_trouble:
            problems["snapshot"] = self._snapshot_trouble
        messages = tuple(alert.message for alert in list(self._alerts))
        return Health(problems, self.store.counters(), messages)

    def watch(self) -> list[Alert]:
        """Feed the monitors with the events whose fate is known since the last time; return their alerts.

        Should this fail, no monitor has moved on: the next call returns the same alerts.
        """
        self.expire()
        with self._watching:
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
        with self._lock:
            self._contexts.clear()
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
