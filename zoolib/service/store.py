"""The service's storage: decisions and rewards, versions of the agent, and their snapshots.

All SQL but the tables is here. Each event that is acknowledged is one transaction, on disk before the
call returns: a process killed at any moment loses nothing that it has acknowledged. Users appear as
pseudonyms; see `Store` for what these hide, and what they do not.
"""

from __future__ import annotations

import json
import sqlite3
import time
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Sequence
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_finite, as_size
from zoolib._support.labels import Labels
from zoolib.service.database import StoreError
from zoolib.service.log import FEATURE_TYPE, Log

LARGEST_ID = 2**63 - 1  # that SQLite can hold
EXPIRED_AT_ONCE = 10  # decisions that expire while another one is logged
EXPIRED_IN_ONE_GO = 200  # decisions; then others may write
DELETED_AT_ONCE = 5_000  # events; then others may write
LATEST = 1e13  # seconds: later times would not add up with shorter ones
# In addition to a version's first snapshot: the newest, and one more in case it is damaged.
SNAPSHOTS_KEPT = 2


class RewardRejectedError(ValueError):
    """A reward that cannot be counted; a counter changes, and nothing else."""


class UnknownEventError(RewardRejectedError):
    """A reward for an event that was never served, or is forgotten."""


class DuplicateRewardError(RewardRejectedError):
    """A second reward for one event; the first stands."""


class LateRewardError(RewardRejectedError):
    """A reward for an event that has expired; its zero stands."""


# Why there is no reward to come, by what is found: whether the event has a reward, and has expired.
REJECTIONS = {
    None: (UnknownEventError, "unknown event", "be of an event served"),
    (1, 0): (DuplicateRewardError, "duplicate reward", "have no reward yet"),
    (1, 1): (LateRewardError, "late reward", "be of an event that has not expired"),
}
DELETED = "deleted up to the reward"  # the name of a fact
DECIDED = "SELECT user, id, arm, propensity, version FROM events WHERE request = ?"
# Events to be deleted: what happened after the clock was set back has times as far ahead as the log is.
DOOMED = (
    "id <= :last AND (user = :user OR events.time < :before"
    " OR (events.time > :now AND events.time - :ahead < :before))"
)


@dataclass(frozen=True)
class Version:
    """The registry's entry for a version, without its snapshots."""

    name: str  # "v1", "v2", …
    state: str  # "candidate", "rolling", "active" or "retired"
    share: int  # per cent of the users, served or meant to be; 0 for a candidate
    since: int  # the last event before its state or share changed last
    validation: dict[str, Any]  # figures of its off-policy validation
    note: str  # why it was retired


class Store(Log):
    """Log, registry and snapshots of one service, in one file.

    The file remembers numbers of arms and features, and a digest of the key, from its first version on.

    Parameters
    ----------
    path : str or path
        The file; made if there is none.
    n_arms : int, or sequence of hashable
        K, or the labels of the arms: anything that JSON can hold.
    n_features : int
        d.
    key : bytes
        16 to 64 secret bytes.
    clock : callable, default time.time
        Seconds; read when nobody else can write, and stored times never decrease.
    attribution : float, default inf
        Seconds that an event waits for its reward.

    Notes
    -----
    Users are stored as keyed hashes of their ids: without the key nobody can compute the hash of an id. But the
    features of each visit are stored, too, and whoever has a table of users with the same features can look a
    visit up in it, if no two users are alike. So keep the file as you keep that table.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        n_arms: int | Sequence[Hashable],
        n_features: int,
        key: bytes,
        clock: Callable[[], float] = time.time,
        attribution: float = np.inf,
    ) -> None:
        self.clock = clock
        self.attribution = attribution
        self.arms = Labels("n_arms", n_arms)
        self.n_features = as_size("n_features", n_features)
        if not isinstance(key, bytes) or not 16 <= len(key) <= 64:
            raise ValueError(f"key must be 16 to 64 bytes: got {type(key).__name__}")
        self._key = key
        self._made_with = {
            "n_arms": json.dumps(self.arms.setting()),
            "n_features": str(n_features),
            "key": blake2b(b"key check", digest_size=8, key=key).hexdigest(),
        }
        self._serving: list[Version] | None = None
        self.counters = Counter[str]()
        self.last_set_aside = ""  # in this process: of which version, and why
        super().__init__(path)
        # The time of the log never decreases; while the clock is behind it, it goes on at the clock's pace.
        ((self._time,),) = self._rows(
            "SELECT max(ifnull((SELECT time FROM events ORDER BY id DESC LIMIT 1), -1e999),"
            " ifnull((SELECT time FROM rewards ORDER BY seq DESC LIMIT 1), -1e999))"
        )
        self._reading = np.inf

    def _open(self) -> None:
        super()._open()
        for name, value in self._made_with.items():
            if (known := self.fact(name)) not in (None, value):
                shown = "" if name == "key" else f" {known}: got {value}"
                raise ValueError(
                    f"{name} must be what {self.path} was made with{shown}"
                )

    def note(self, what: str) -> None:
        """Count something, from the opening of the file on."""
        with self.alone:
            self.counters[what] += 1

    def now(self) -> float:
        """Return the time of the log: the clock's, unless that has gone backwards."""
        with self.alone:
            reading = as_finite("clock", self.clock())
            if abs(reading) > LATEST:
                raise ValueError(
                    f"clock must be below {LATEST:.0e} seconds: got {reading:g}"
                )
            before = self._reading
            self._reading = reading
            if reading < self._time:
                if reading < before:
                    self.note("clock went backwards")
                self._time += max(0.0, reading - before)
            else:
                self._time = reading
            return self._time

    def ahead(self) -> float:
        """Return how many seconds the time of the log is ahead of the clock."""
        return max(0.0, self._time - self.clock())

    def pseudonym(self, user_id: Hashable) -> bytes:
        """Return the keyed hash of a user's id, 16 bytes."""
        return self._hash(str(user_id))

    def _hash(self, text: str) -> bytes:
        return blake2b(text.encode(), digest_size=16, key=self._key).digest()

    # ---- The log

    def request(self, request_id: str | bytes | int | None) -> bytes | None:
        """Return the keyed hash of a request's id, if it has one."""
        return None if request_id is None else self._hash(repr(request_id))

    def decided(
        self, user: bytes, request: bytes | None
    ) -> tuple[int, Hashable, float, str] | None:
        """Return event id, arm, propensity and version, if this user's request was answered before."""
        return request and self._answer(self._rows(DECIDED, request), user)

    def _answer(self, found: list[tuple], user: bytes) -> tuple | None:
        if not found:
            return None
        ((asked, number, arm, *rest),) = found
        if asked != user:
            raise ValueError("request_id must be new, or of the same user")
        return number, self.arms[arm], *rest

    def log_event(
        self,
        user: bytes,
        features: NDArray[np.float32] | None,
        arm: int,
        propensity: float,
        version: str,
        assigned: str,
        request: bytes | None = None,
        offered: NDArray[np.bool_] | None = None,
    ) -> tuple[int, Hashable, float, str]:
        """Log one decision, or find that of its request; return event id, arm, propensity and version.

        The user is a pseudonym and the features have shape (K, d), or (1, d) of the visitor alone; they are
        None if they did not come. `version` drew the arm, one of those `offered` (K,), or of all; `assigned`
        is the version of the user, another one if a fallback stood in for it. An event that does not reach
        the disk is refused: it is counted, and StoreError raised. Should the clock go backwards, the time of
        the log goes on from where it was, so that what is open expires after its window.
        """
        mask = None if offered is None else offered.tobytes()
        try:
            with self.alone:
                now = self.now()
                with self as db:
                    # Another thread may have answered the request meanwhile.
                    known = request and self._answer(
                        db.execute(DECIDED, (request,)).fetchall(), user
                    )
                    if known is None:
                        self._expire(db, now, EXPIRED_AT_ONCE)
                        context = self._insert_context(db, features)
                        row = (user, context, mask, arm, propensity, version, assigned)
                        number = db.execute(
                            "INSERT INTO events (user, context, offered, arm, propensity, version, assigned,"
                            " time, due, request) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                            (*row, now, now + self.attribution, request),
                        ).lastrowid
        except StoreError:
            self.note("refused")
            raise
        return known or (number, self.arms[arm], propensity, version)

    def log_reward(
        self, event_id: int, reward: float, when_closed: bool = False
    ) -> int:
        """Log one reward in [0, 1]; return its sequence number, or count and raise why it is rejected.

        With `when_closed` it has none yet, 0: it gets it when its window closes.
        """
        with self.alone:
            now = self.now()
            with self as db:
                found = db.execute(
                    "SELECT NOT open OR claimed IS NOT NULL OR due <= ?1,"
                    " ifnull(expired, claimed IS NULL AND due <= ?1) FROM events"
                    " LEFT JOIN rewards ON event = id WHERE id = ?2",
                    (now, min(event_id, LARGEST_ID)),
                ).fetchone()
                if found == (0, 0):
                    if when_closed:
                        claim = "UPDATE events SET claimed = ? WHERE id = ?"
                        db.execute(claim, (reward, event_id))
                        return 0
                    return db.execute(
                        "INSERT INTO rewards (event, reward, time, expired) VALUES (?, ?, ?, 0)",
                        (event_id, reward, now),
                    ).lastrowid
                kind, name, words = REJECTIONS[found]
                self.note(f"rejected: {name}")
        raise kind(f"event_id must {words}: got {event_id}")

    def expire(self) -> int:
        """Give all overdue open events their reward, or zero, the oldest first; return how many there were."""
        total = 0
        now = self.now()
        while self._rows("SELECT 1 FROM events WHERE open AND due <= ? LIMIT 1", now):
            with self.alone, self as db:
                total += self._expire(db, now, EXPIRED_IN_ONE_GO)
        return total

    def _expire(self, db: sqlite3.Connection, now: float, most: int) -> int:
        """Give overdue open events a reward, zero if none was claimed, the oldest first; count them."""
        return db.execute(
            "INSERT INTO rewards (event, reward, time, expired)"
            " SELECT id, ifnull(claimed, 0), ?, claimed IS NULL FROM events"
            " WHERE open AND due <= ? ORDER BY due, id LIMIT ?",
            (now, now, most),
        ).rowcount

    def oldest_open(self) -> float:
        """Return the seconds since the oldest open event; 0 without one."""
        now = max(self.clock(), self._time)
        ((oldest,),) = self._rows("SELECT min(time) FROM events WHERE open")
        return 0.0 if oldest is None else now - oldest

    def fates(self) -> dict[str, int]:
        """Count the events by their fates: see `BanditService.fates`."""
        with self.alone:
            (waiting, claimed), (closed, expired) = self._rows(
                "SELECT count(*), count(claimed) FROM events WHERE open UNION ALL"
                " SELECT count(*), ifnull(sum(expired), 0) FROM rewards"
            )
        return {
            "open": waiting - claimed,
            "rewarded": closed - expired + claimed,
            "expired": expired,
            "refused": self.counters["refused"],
        }

    def set_aside(self, version: str, seq: int, why: str) -> None:
        """Leave a reward out of what a version learns, for good, and remember why."""
        self.last_set_aside = f"{version} could not learn reward {seq}: {why:.200}"
        with self.alone, self as db:
            row = version, seq, why[:200]
            db.execute("INSERT OR IGNORE INTO set_aside VALUES (?, ?, ?)", row)
            self.note("set aside")

    def _insert_context(
        self, db: sqlite3.Connection, features: NDArray[np.float32] | None
    ) -> int | None:
        """Store features, and return their id.

        Columns that are the same in all rows describe the visitor, the others the products: these are often
        the same at every visit, and are stored once.
        """
        if features is None:
            return None
        features = np.ascontiguousarray(features, FEATURE_TYPE)
        number = None
        same = (features == features[0]).all(axis=0)
        if len(features) > 1 and same.any():
            table = np.where(same, np.float32(0), features).tobytes()
            number = _number_of(table)
            db.execute("INSERT OR IGNORE INTO tables VALUES (?, ?)", (number, table))
            features = np.where(same, features[0], np.float32(0)).astype(FEATURE_TYPE)
        blob = features.tobytes()
        row = _number_of(blob, number), blob, number
        db.execute("INSERT OR IGNORE INTO contexts VALUES (?, ?, ?)", row)
        return row[0]

    def delete_events(
        self,
        snapshots: Callable[[], Iterable[tuple[str, bytes]]],
        *,
        before: float | None = None,
        user: bytes | None = None,
    ) -> int:
        """Delete the events before a time, or of one pseudonym, with their rewards; return how many.

        First `snapshots` yields, for each version that serves or may yet, its name, and the agent that has
        learnt up to the last reward in the log. Older snapshots that lack a reward to be deleted go: nothing
        could be replayed onto them. Then the events are deleted, some thousands in a transaction, and visits
        are served in between. While the time of the log is ahead of the clock, so are the times of the events
        since then: they are compared with a time that is as far ahead.
        """
        which = {"before": before, "user": user, "now": self.clock()}
        which |= {
            "ahead": self.ahead(),
            "last": self.last_event(),
            "most": DELETED_AT_ONCE,
        }
        total = 0
        while self._rows(f"SELECT 1 FROM events WHERE {DOOMED} LIMIT 1", **which):
            with self.alone:  # nobody else learns, or writes, meanwhile
                kept = list(snapshots())
                last = self.last_seq()
                found = f"SELECT max(seq) FROM rewards JOIN events ON id = event WHERE {DOOMED}"
                seq = max(self._rows(found, **which)[0][0] or 0, self.deleted())
                with self as db:
                    for name, agent in kept:
                        _insert_snapshot(db, name, last, agent)
                    db.execute("DELETE FROM snapshots WHERE seq < ?", (seq,))
                    fact = DELETED, str(seq)
                    db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", fact)
            gone = DELETED_AT_ONCE
            while gone == DELETED_AT_ONCE:
                gone = self._delete_some(which | {"seq": seq})
                total += gone
        self._empty_wal()
        return total

    def _delete_some(self, which: dict[str, Any]) -> int:
        """Delete some of the events, but none with a reward after `seq`; return how many."""
        with self.alone, self as db:
            doomed = db.execute(
                f"SELECT id, context FROM events LEFT JOIN rewards ON event = id WHERE {DOOMED}"
                " AND ifnull(seq, 0) <= :seq LIMIT :most",
                which,
            ).fetchall()
            ids = [(event,) for event, _ in doomed]
            db.executemany("DELETE FROM events WHERE id = ?", ids)
            contexts = [(one,) for one in {context for _, context in doomed}]
            unused = "NOT EXISTS (SELECT 1 FROM {} WHERE {} = {}.id)".format
            db.executemany(
                "DELETE FROM contexts WHERE id = ? AND "
                + unused("events", "context", "contexts"),
                contexts,
            )
            db.execute(
                "DELETE FROM tables WHERE " + unused("contexts", "products", "tables")
            )
        return len(doomed)

    def _empty_wal(self) -> None:
        """Empty the write-ahead log, which holds what was deleted, too; readers are waited for some seconds."""
        if self._rows("PRAGMA wal_checkpoint(TRUNCATE)")[0][0]:
            raise StoreError(
                f"database {self.path} is read by another connection, so what was deleted is still in its "
                "write-ahead log: close that connection, and delete again"
            )

    def deleted(self) -> int:
        """Return the highest sequence number of a deleted reward: an agent that has not learnt it never can."""
        return int(self.fact(DELETED) or 0)

    # ---- The registry

    def register(self, agent: bytes, seq: int, validation: dict[str, Any]) -> str:
        """Enter a version with its first snapshot, in one transaction; return its name.

        The agent has learnt the rewards up to `seq`. The first version serves at once.
        """
        with self.alone, self as db:
            self._serving = None
            number = 1 + db.execute("SELECT count(*) FROM versions").fetchone()[0]
            name = f"v{number}"
            state = "candidate"
            share = 0
            if number == 1:
                state = "active"
                share = 100
                made_with = self._made_with.items()
                db.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?)", made_with)
            row = name, state, share, json.dumps(validation)
            db.execute("INSERT INTO versions VALUES (?, ?, ?, 0, ?, '')", row)
            _insert_snapshot(db, name, seq, agent)
        return name

    def versions(self) -> list[Version]:
        """List the versions, oldest first."""
        rows = self._rows("SELECT * FROM versions ORDER BY rowid")
        return [Version(*row[:4], json.loads(row[4]), row[5]) for row in rows]

    def serving(self) -> list[Version]:
        """Return the versions that meet users: the active one, and then one that is rolled out, if there is."""
        with self.alone:
            if self._serving is None:
                states = {version.state: version for version in self.versions()}
                found = states.get("active"), states.get("rolling")
                self._serving = [version for version in found if version]
            return self._serving

    def version(self, name: str) -> Version:
        """Return one version."""
        for version in self.versions():
            if version.name == name:
                return version
        raise ValueError(f"name must be of a version in the registry: got {name!r}")

    def move(self, *moves: tuple[Version, str, int, str]) -> None:
        """Give versions a new state, share and note, in one transaction.

        List what leaves before what takes its place: more than one version is never active, or rolling.
        """
        with self.alone, self as db:
            self._serving = None
            for version, *new in moves:
                db.execute(
                    "UPDATE versions SET state = ?, share = ?, note = ?, since = coalesce("
                    "(SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)"
                    " WHERE name = ?",
                    (*new, version.name),
                )

    def save_snapshot(self, name: str, seq: int, agent: bytes) -> None:
        """Keep what a version has learnt up to a reward; of older snapshots keep the first and the newest."""
        with self.alone:
            if seq < self.deleted():  # it would lack what nobody can learn any more
                return
            with self as db:
                _insert_snapshot(db, name, seq, agent)
                db.execute(
                    "DELETE FROM snapshots WHERE version = ?1"
                    " AND seq > (SELECT min(seq) FROM snapshots WHERE version = ?1)"
                    " AND seq NOT IN (SELECT seq FROM snapshots WHERE version = ?1"
                    " ORDER BY seq DESC LIMIT ?2)",
                    (name, SNAPSHOTS_KEPT),
                )

    def snapshots(self, name: str) -> list[tuple[int, bytes]]:
        """List sequence numbers and snapshots of a version, newest first."""
        return self._rows(
            "SELECT seq, agent FROM snapshots WHERE version = ? ORDER BY seq DESC", name
        )

    def remember(self, facts: dict[str, str]) -> None:
        """Remember texts under their names, all in one transaction."""
        with self.alone, self as db:
            db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())


def _number_of(blob: bytes, *more: int | None) -> int:
    """Return 64 bits of a check sum, so that what is equal is stored once."""
    digest = blake2b(blob + repr(more).encode(), digest_size=8).digest()
    return int.from_bytes(digest, signed=True)


def _insert_snapshot(db: sqlite3.Connection, *snapshot: str | int | bytes) -> None:
    db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", snapshot)
