"""The loop: serve, log, learn, and come back after a crash as if nothing had happened.

One process serves and learns; others may train, review or forget in the same file. The order of a
reward's way is the whole trick: first on disk, then acknowledged and learnt. The heads learn by reading
the log from where they are, the same way at work and after a crash, so memory cannot know more or
anything else than the disk.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Callable, Hashable, Sequence
from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._checks import as_finite, as_probability, as_size
from zoolib.choice import draw
from zoolib.monitoring import Alert
from zoolib.service.context import Arms, FeatureCache, Pseudonyms
from zoolib.service.health import Breaker, Fallback, Health
from zoolib.service.model import FrozenNetwork, Head, Model, choice_probabilities
from zoolib.service.recovery import Recovery, recover
from zoolib.service.rollout import Review, Rollout
from zoolib.service.settings import Settings
from zoolib.service.store import Store, StoreError
from zoolib.service.training import Training, retrain
from zoolib.service.watching import Watch

# What a broken version may do; anything else is a mistake of the caller, or of this program.
FAILURES = (StoreError, ValueError, FloatingPointError, np.linalg.LinAlgError)
TIMED = ("network", "selection", "decision", "update", "acknowledgement")
LUCK = 901  # the number of the stream that choices are drawn from
TIMINGS_KEPT = 10_000
ALERTS_KEPT = 100


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
    """A neural-linear Thompson sampler that serves, learns, recovers and renews itself.

    Parameters
    ----------
    path : str or path
        The database file; made if there is none, with an untrained version "v1".
    features : callable
        Maps a user id to features (K, d); raises ValueError for an unknown user.
    n_arms, n_features : int
        K and d.
    key : bytes
        16 to 64 secret bytes for the pseudonyms of users; not stored.
    settings : Settings, optional
        Everything that can be turned.
    clock : callable, default time.time
        Seconds; stored times never decrease, whatever it says.
    timer : callable, default time.perf_counter
        Seconds, for latencies.
    seed : int, default 0
        Seed of the draws. After a restart they go on with other luck.
    healthy : callable, optional
        Asked in every health check; False or an exception means that models shall not serve.
    watches : sequence of Watch, default ()
        Monitors that `watch` feeds with the log.
    timeout : float, default 5.0
        Seconds to wait for another process that writes.
    at : callable, optional
        Called with the name of each step that a transaction passes, for tests.

    Attributes
    ----------
    store : Store
        The database.
    rollout : Rollout
        Who is served by which version.
    recoveries : dict of Recovery
        What each head in memory rests on.
    timings : dict of deque
        Seconds of the last calls: of the "network"; of a "selection", from the user to the arm; of a
        "decision", which is the selection and its way to the disk; of an "update" of a head; of an
        "acknowledgement", which is a reward's way to the disk and the update.

    Raises
    ------
    StoreCorruptError, StoreLockedError, StoreFullError
        If the file cannot be used; the message names it.
    TypeError, ValueError
        If an argument is not what is described here.

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
        settings: Settings | None = None,
        clock: Callable[[], float] = time.time,
        timer: Callable[[], float] = time.perf_counter,
        seed: int = 0,
        healthy: Callable[[], bool] | None = None,
        watches: Sequence[Watch] = (),
        timeout: float = 5.0,
        at: Callable[[str], None] | None = None,
    ) -> None:
        self.settings = settings or Settings()
        self.clock, self.timer = clock, timer
        self._healthy = healthy or (lambda: True)
        self._pseudonyms = Pseudonyms(key)
        self.store = Store(
            path, n_arms, n_features, self._pseudonyms.check, timeout, at
        )
        try:
            self._arms = FeatureCache(
                features,
                (self.store.n_arms, self.store.n_features),
                self.settings.cache_size,
                self.settings.cache_seconds,
            )
            seed = as_size("seed", seed, least=0)
            # A stream of its own: drawn from the bare seed, choices would depend on who comes, if the
            # caller draws the visitors from it. And another one after each restart.
            self._rng = np.random.default_rng([seed, LUCK, self.store.last_event()])
            if not self.store.versions():
                self._register_first(seed)
            self.rollout = Rollout(self.store, self.settings)
        except BaseException:
            self.store.close()
            raise
        self.timings = {name: deque(maxlen=TIMINGS_KEPT) for name in TIMED}
        self._models: dict[str, Model] = {}
        self._saved: dict[str, int] = {}  # last reward in the newest snapshot
        self.recoveries: dict[str, Recovery] = {}
        self._breakers: dict[str, Breaker] = {}
        self._snapshot_trouble = ""
        self._watches, self._alerts = list(watches), deque[Alert](maxlen=ALERTS_KEPT)
        for one in self._watches:
            one.restore(self.store)
        self._fallback = Fallback(
            self.settings.fallback,
            self.settings.fallback_floor,
            *self.store.arm_totals(),
        )
        self._sync()

    def __enter__(self) -> BanditService:
        return self

    def __exit__(self, *_: object) -> None:
        self.close()

    def close(self) -> None:
        """Close the database."""
        self.store.close()

    def _register_first(self, seed: int) -> None:
        sizes = (
            self.store.n_features,
            *self.settings.hidden,
            self.settings.embedding_dim,
        )
        network = FrozenNetwork(sizes, seed)
        self.store.register(
            network.to_bytes(),
            Head(network.width, self.settings.ridge).to_bytes(),
            0,
            parent=None,
            created=as_finite("clock", self.clock()),
            n_rows=0,
            validation={},
            active=True,
        )

    # ---- Serve

    def select(self, user_id: Hashable) -> Decision:
        """Choose an arm for a user, log the choice, and return it when it is on disk.

        Raises
        ------
        ValueError
            If the user is unknown or the features are not numbers of the right shape.
        StoreError
            If the event could not be logged. Nothing was decided then.
        """
        start = self.timer()
        now = as_finite("clock", self.clock())
        arms = self._arms(user_id, now)
        user = self._pseudonyms.of(user_id)
        if self.store.changed():
            self._sync()
        assigned = self.rollout.assign(user)
        version, probabilities = self._choose(assigned, arms, now)
        drawn, probability = draw(probabilities, self._rng)
        arm, propensity = int(drawn), float(probability)
        self._took("selection", start)
        event_id = self.store.log_event(
            user, arms.features, arm, propensity, version, assigned, now
        )
        self._took("decision", start)
        return Decision(event_id, arm, propensity, version)

    def version_of(self, user_id: Hashable) -> str:
        """Return the version that a user is assigned to, as long as nothing is rolled out further."""
        return self.rollout.assign(self._pseudonyms.of(user_id))

    def _choose(
        self, name: str, arms: Arms, now: float
    ) -> tuple[str, NDArray[np.float64]]:
        """Return what chooses for a version's user, itself or the fallback, and its probabilities."""
        breaker = self._breaker(name)
        if breaker.check_is_due(now):
            breaker.checked(self._trouble(name, arms), now)
        if not breaker.open:
            start = self.timer()
            try:
                probabilities = self._score(name, arms, self._rng)
            except FAILURES as error:
                self._give_up(name, error, now)
            else:
                if late := self._late(start):
                    breaker.failed(late, now)
                else:
                    breaker.succeeded()
                return name, probabilities  # late or not: the answer is there
        return self._fallback.name, self._fallback.probabilities()

    def _score(
        self, name: str, arms: Arms, rng: np.random.Generator
    ) -> NDArray[np.float64]:
        model = self._model(name)
        start = self.timer()
        z = model.network.embed(arms.rows)
        self._took("network", start)
        return choice_probabilities(model.head, z, arms.group, self.settings, rng)

    def _trouble(self, name: str, arms: Arms) -> str:
        """Return why a version is not healthy, or nothing; one quick answer of a few is enough."""
        late = ""
        try:
            if not self._healthy():
                return "the health check says no"
            self._model(name)
            for _ in range(self.settings.patience):
                start = self.timer()
                self._score(name, arms, np.random.default_rng(0))
                if not (late := self._late(start)):
                    return ""
        except Exception as error:  # of any kind: a check must not break the shop
            self._models.pop(name, None)
            return str(error) or type(error).__name__
        return late

    def _late(self, start: float) -> str:
        seconds = self.timer() - start
        if seconds <= self.settings.latency_limit:
            return ""
        return f"scores took {1e3 * seconds:.1f} ms"

    def _took(self, what: str, start: float) -> None:
        self.timings[what].append(self.timer() - start)

    def _breaker(self, name: str) -> Breaker:
        if name not in self._breakers:
            self._breakers[name] = Breaker(self.settings.patience, self.settings.pause)
        return self._breakers[name]

    def _give_up(self, name: str, error: Exception, now: float) -> None:
        """Note a failure; what is in memory is not trusted any more, so the next attempt loads from disk."""
        self._models.pop(name, None)
        self._breaker(name).failed(str(error), now)

    # ---- Learn

    def reward(self, event_id: int, reward: float) -> int:
        """Take in the reward of an event; return its sequence number when it is on disk.

        Parameters
        ----------
        event_id : int
            Of the decision.
        reward : float
            In [0, 1].

        Raises
        ------
        UnknownEventError, DuplicateRewardError
            If the event was never served or is rewarded already. Counted; nothing else changes.
        TypeError, ValueError
            If the arguments are not numbers in their range. Nothing changes.
        StoreError
            If the reward is not on disk. Nothing was learnt; send it again.
        """
        start = self.timer()
        event_id = as_size("event_id", event_id, least=0)
        seq = self.store.log_reward(
            event_id, as_probability("reward", reward), self.clock()
        )
        self._learn()
        self._took("acknowledgement", start)
        if any(self._news_of(m) >= self.settings.snapshot_every for m in self._all()):
            try:
                self.snapshot()
                self._snapshot_trouble = ""
            except StoreError as error:
                # The reward is safe without it; the next one tries again.
                self._snapshot_trouble = str(error)
        return seq

    def _learn(self) -> None:
        """Bring all that learns up to date with the log."""
        learners = [*self._all(), self._fallback]
        first = min(learner.seq for learner in learners)
        for seq, x, arm, reward in self.store.rewards_after(first):
            for learner in list(learners):
                if learner.seq < seq and not self._learns(learner, seq, x, arm, reward):
                    learners.remove(learner)

    def _learns(self, learner: Model | Fallback, *row: object) -> bool:
        start = self.timer()
        try:
            learner.learn(*row)
        except (
            FAILURES
        ) as error:  # the reward is safe; what could not learn it must load again
            self._models.pop(learner.name)
            self._breaker(learner.name).failed(str(error), self.clock())
            return False
        if isinstance(learner, Model):
            self._took("update", start)
        return True

    # ---- Remember

    def _all(self) -> list[Model]:
        return list(self._models.values())

    def _model(self, name: str) -> Model:
        """Return a version that serves, from the disk if it is not in memory."""
        if name not in self._models:
            self._models[name], self.recoveries[name] = recover(self.store, name)
            self._saved[name] = self.recoveries[name].snapshot
        return self._models[name]

    def _sync(self) -> None:
        """Follow the registry and the log, whoever wrote in them."""
        self.rollout.reload()
        for kept in (self._models, self._breakers):
            for name in set(kept) - set(self.rollout.names):
                del kept[name]
        for name in self.rollout.names:
            try:
                self._model(name)
            except FAILURES as error:
                self._give_up(name, error, self.clock())
        self._learn()

    def _news_of(self, model: Model) -> int:
        """Return how far a head is ahead of its newest snapshot."""
        return model.seq - self._saved[model.name]

    def snapshot(self) -> None:
        """Write down every head that has learnt since its last snapshot."""
        for model in self._all():
            if self._news_of(model) > 0:
                try:
                    head = model.head.to_bytes()
                except FloatingPointError as error:  # never on the disk
                    self._give_up(model.name, error, self.clock())
                    continue
                self.store.save_snapshot(model.name, model.seq, head)
                self._saved[model.name] = model.seq

    def head(self, name: str) -> Head:
        """Return the head of a version that serves."""
        return self._model(name).head

    def head_bytes(self, replayed: bool = False) -> dict[str, bytes]:
        """Return the state of each head in memory; or what a replay of all that is retained gives."""
        if not replayed:
            return {m.name: m.head.to_bytes() for m in self._all()}
        return {
            name: recover(self.store, name, from_first=True)[0].head.to_bytes()
            for name in self._models
        }

    # ---- Renew

    def retrain(self, training: Training | None = None) -> str:
        """Train, validate and register a candidate on the log; return its name."""
        return retrain(
            self.store,
            self.rollout.active,
            self.settings,
            training or Training(),
            as_finite("clock", self.clock()),
        )

    def begin_rollout(self, name: str) -> None:
        """Give a candidate its first users: see `Rollout.begin`."""
        self.rollout.begin(name)
        self._sync()

    def review_rollout(self) -> Review:
        """Judge the rollout: see `Rollout.review`. A version that does not work is rolled back at once."""
        rolling = self.rollout.rolling
        if rolling and self._breaker(rolling.name).open:
            self.rollout.retire(rolling.name, self._breaker(rolling.name).reason)
            nan = float("nan")
            review = Review(
                "rolled back", rolling.name, rolling.share, (nan, nan), (0, 0), nan
            )
        else:
            review = self.rollout.review()
        self._sync()
        return review

    # ---- Look after

    def check_health(self) -> Health:
        """Tell how the service is."""
        problems = {n: b.reason for n, b in self._breakers.items() if b.reason}
        if self._snapshot_trouble:
            problems["snapshot"] = self._snapshot_trouble
        return Health(
            ok=not problems,
            problems=problems,
            latency={
                name: 1e3 * float(np.quantile(kept, 0.99))
                for name, kept in self.timings.items()
                if kept
            },
            counters=self.store.counters(),
            alerts=tuple(alert.message for alert in self._alerts),
        )

    def watch(self) -> list[Alert]:
        """Feed the monitors with what was rewarded since the last time; return their alerts."""
        alerts = [alert for one in self._watches for alert in one.update(self.store)]
        self.store.remember({one.fact: one.state() for one in self._watches})
        self._alerts += alerts
        return alerts

    def forget_before(self, before: float) -> int:
        """Delete events before a time, and what they taught stays in a snapshot; return how many."""
        return self._delete("time < ?", as_finite("before", before))

    def erase(self, user_id: Hashable) -> int:
        """Delete every event of one user; return how many.

        What a head has learnt of them is a term in two sums, and stays there until the next rebuild: a
        retrained version knows nothing of them.
        """
        self._arms.forget(user_id)
        return self._delete("user = ?", self._pseudonyms.of(user_id))

    def _delete(self, condition: str, value: float | bytes) -> int:
        heads = []
        for version in self.store.versions("candidate", "rolling", "active"):
            model, _ = recover(self.store, version.name)
            heads.append((model.name, model.seq, model.head.to_bytes()))
        gone = self.store.delete_events(condition, value, heads)
        self._models.clear()
        self._fallback.seq, self._fallback.visits, self._fallback.rewards = (
            self.store.arm_totals()
        )
        self._sync()
        return gone
