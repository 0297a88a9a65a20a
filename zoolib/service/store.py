"""The service's memory on disk: one SQLite file, and all the SQL there is.

Seven small tables. Each event that is acknowledged is one transaction, on disk before the call returns
(a write-ahead log with ``synchronous=FULL``): a process killed at any moment loses nothing that it has
acknowledged. User ids come in as pseudonyms only.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoolib._checks import as_finite, as_ids, as_rate, as_size

STATES = ("candidate", "rolling", "active", "retired")
SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE counters (name TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
CREATE TABLE contexts (
    id INTEGER PRIMARY KEY,
    digest BLOB NOT NULL UNIQUE,
    features BLOB NOT NULL
) STRICT;
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user BLOB NOT NULL,
    context INTEGER NOT NULL REFERENCES contexts,
    arm INTEGER NOT NULL CHECK (arm >= 0),
    propensity REAL NOT NULL CHECK (propensity > 0 AND propensity <= 1),
    version TEXT NOT NULL,
    assigned TEXT NOT NULL,
    time REAL NOT NULL
) STRICT;
CREATE INDEX events_of_user ON events (user);
CREATE INDEX events_with_context ON events (context);
CREATE TABLE rewards (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event INTEGER NOT NULL UNIQUE REFERENCES events ON DELETE CASCADE,
    reward REAL NOT NULL CHECK (reward BETWEEN 0 AND 1),
    time REAL NOT NULL
) STRICT;
CREATE TABLE versions (
    name TEXT PRIMARY KEY,
    parent TEXT REFERENCES versions,
    state TEXT NOT NULL CHECK (state IN ('candidate', 'rolling', 'active', 'retired')),
    share INTEGER NOT NULL CHECK (share BETWEEN 0 AND 100),
    since INTEGER NOT NULL,
    created REAL NOT NULL,
    n_rows INTEGER NOT NULL,
    validation TEXT NOT NULL,
    note TEXT NOT NULL,
    model BLOB NOT NULL,
    digest BLOB NOT NULL
) STRICT;
CREATE UNIQUE INDEX one_active ON versions (state) WHERE state = 'active';
CREATE UNIQUE INDEX one_rolling ON versions (state) WHERE state = 'rolling';
CREATE TABLE snapshots (
    version TEXT NOT NULL REFERENCES versions,
    seq INTEGER NOT NULL,
    head BLOB NOT NULL,
    digest BLOB NOT NULL,
    PRIMARY KEY (version, seq)
) STRICT;
"""
APPLICATION_ID = 0x5A4F4F31  # "ZOO1": tells our files from other SQLite files
FEATURE_TYPE = np.dtype("<f4")  # of the features in the log, the same on every machine
LARGEST_ID = 2**63 - 1  # that SQLite can hold
SNAPSHOTS_KEPT = (
    2  # beside a version's first: the newest, and one more should it be damaged
)


class StoreError(RuntimeError):
    """The database refused; what was acknowledged before is safe, and nothing was changed."""


class StoreLockedError(StoreError):
    """Another process held the database for longer than the timeout."""


class StoreFullError(StoreError):
    """There is no room left on the disk."""


class StoreCorruptError(StoreError):
    """The file is damaged, or no database of this service."""


class RewardRejectedError(ValueError):
    """A reward that cannot be counted; it changed nothing but the counter of rejections."""


class UnknownEventError(RewardRejectedError):
    """A reward for an event that was never served, or is forgotten."""


class DuplicateRewardError(RewardRejectedError):
    """A second reward for one event; the first stands."""


@dataclass(frozen=True)
class Version:
    """What the registry knows of a model version, but for its weights.

    Attributes
    ----------
    name : str
        "v1", "v2", …
    parent : str or None
        The version that was active when it was trained.
    state : {"candidate", "rolling", "active", "retired"}
    share : int
        Per cent of the users it serves or is meant to serve; 0 for a candidate.
    since : int
        Last event before its state or share changed last.
    created : float
        Time of its training.
    n_rows : int
        Observations behind its head.
    validation : dict
        Figures of its off-policy validation.
    note : str
        Why it was retired.
    """

    name: str
    parent: str | None
    state: str
    share: int
    since: int
    created: float
    n_rows: int
    validation: dict[str, Any]
    note: str


@dataclass(frozen=True)
class EventLog:
    """Rewarded events in the order of their rewards; n rows, C different contexts.

    Attributes
    ----------
    seq, arm : ndarray of int, shape (n,)
        Sequence number of the reward, and the arm shown.
    reward, propensity, time : ndarray of float, shape (n,)
        The reward, the probability with which the arm was drawn, the time of serving.
    version : ndarray of str, shape (n,)
        What drew it.
    features : ndarray of float32, shape (n_contexts, K, d)
        The contexts.
    context : ndarray of int, shape (n,)
        Which of them each event had.
    """

    seq: NDArray[np.int64]
    arm: NDArray[np.int64]
    reward: NDArray[np.float64]
    propensity: NDArray[np.float64]
    time: NDArray[np.float64]
    version: NDArray[np.str_]
    features: NDArray[np.float32]
    context: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def played(self) -> NDArray[np.float32]:
        """Features of the arms shown, shape (n, d)."""
        return self.features[self.context, self.arm]

    def where(self, rows: NDArray) -> EventLog:
        """Return the events that a mask, a slice or positions select."""
        columns = ("seq", "arm", "reward", "propensity", "time", "version")
        chosen = {name: getattr(self, name)[rows] for name in columns}
        return EventLog(**chosen, features=self.features, context=self.context[rows])


class Store:
    """Log, registry and snapshots of one service.

    Parameters
    ----------
    path : str or path
        The file; made if there is none.
    n_arms, n_features : int
        Numbers K of arms and d of features; those that the file was made with.
    key_check : str, default ""
        A digest that tells whether the secret key is the one the file was made with.
    timeout : float, default 5.0
        Seconds to wait for another process that writes.
    at : callable, optional
        Called with the name of each step that a transaction passes: a place for tests to stop the world.

    Raises
    ------
    StoreCorruptError
        If the file is damaged or something else.
    ValueError
        If it was made with other sizes or another key.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        n_arms: int,
        n_features: int,
        key_check: str = "",
        timeout: float = 5.0,
        at: Callable[[str], None] | None = None,
    ) -> None:
        self.path = Path(path)
        self.n_arms = as_size("n_arms", n_arms)
        self.n_features = as_size("n_features", n_features)
        self.at = at or (lambda step: None)
        with self._errors():
            self._db = sqlite3.connect(self.path, timeout, isolation_level=None)
        try:
            with self._errors():
                self._open(key_check)
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _open(self, key_check: str) -> None:
        damage = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise StoreCorruptError(f"database {self.path} is damaged: {damage}")
        for pragma in (
            "journal_mode = WAL",
            "synchronous = FULL",
            "foreign_keys = ON",
            "secure_delete = ON",  # what is deleted is overwritten
        ):
            self._db.execute(f"PRAGMA {pragma}")
        facts = {
            "n_arms": str(self.n_arms),
            "n_features": str(self.n_features),
            "key": key_check,
        }
        with self.transaction("open") as db:
            kind = db.execute("PRAGMA application_id").fetchone()[0]
            if kind == 0 and not db.execute("SELECT 1 FROM sqlite_master").fetchone():
                for statement in SCHEMA.split(";\n"):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.executemany("INSERT INTO facts VALUES (?, ?)", facts.items())
            elif kind != APPLICATION_ID:
                raise StoreCorruptError(f"{self.path} is no database of this service")
            known = dict(db.execute("SELECT name, value FROM facts"))
        for name, value in facts.items():
            if known[name] != value:
                shown = "" if name == "key" else f" {known[name]}: got {value}"
                raise ValueError(
                    f"{name} must be what {self.path} was made with{shown}"
                )
        self._seen = self._data_version()

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, which name the file."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", None) or ""
            kinds = {
                "SQLITE_BUSY": (StoreLockedError, "is locked by another process"),
                "SQLITE_FULL": (StoreFullError, "has no room left on its disk"),
                "SQLITE_CORRUPT": (StoreCorruptError, "is damaged"),
                "SQLITE_NOTADB": (
                    StoreCorruptError,
                    "is damaged, or no database at all",
                ),
            }
            for start, (kind, words) in kinds.items():
                if name.startswith(start):
                    raise kind(f"database {self.path} {words}: {error}") from error
            raise StoreError(f"database {self.path} refused: {error}") from error

    @contextmanager
    def transaction(self, what: str) -> Iterator[sqlite3.Connection]:
        """Do all of it, on disk when this returns, or nothing."""
        with self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self.at(f"{what}: before commit")
                self._db.execute("COMMIT")
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise
        self.at(f"{what}: after commit")

    def _rows(self, sql: str, *values: Any) -> list[tuple]:
        with self._errors():
            return self._db.execute(sql, values).fetchall()

    def _data_version(self) -> int:
        return self._rows("PRAGMA data_version")[0][0]

    def changed(self) -> bool:
        """Whether another connection has written since this was asked last."""
        before, self._seen = self._seen, self._data_version()
        return self._seen != before

    # ---- Events and rewards

    def log_event(
        self,
        user: bytes,
        features: NDArray[np.float32],
        arm: int,
        propensity: float,
        version: str,
        assigned: str,
        time: float,
    ) -> int:
        """Log one decision; return its event id, which is never used again.

        Parameters
        ----------
        user : bytes
            Pseudonym.
        features : ndarray of float32, shape (K, d)
            What was known of the arms.
        arm : int
            The arm drawn.
        propensity : float
            The probability with which it was drawn, in (0, 1].
        version : str
            What drew it.
        assigned : str
            The version that the user is assigned to: another one if a fallback stood in for it.
        time : float
            Seconds; a time before the last one is logged as the last one, and counted.
        """
        arm = int(as_ids("arm", arm, self.n_arms))
        propensity = as_rate("propensity", propensity)
        blob = np.ascontiguousarray(features, FEATURE_TYPE).tobytes()
        with self.transaction("event") as db:
            time = self._not_before_the_last(db, time)
            context = self._context(db, blob)
            cursor = db.execute(
                "INSERT INTO events (user, context, arm, propensity, version, assigned, time)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (user, context, arm, propensity, version, assigned, time),
            )
        return cursor.lastrowid

    def log_reward(self, event_id: int, reward: float, time: float) -> int:
        """Log one reward; return its sequence number.

        Raises
        ------
        UnknownEventError, DuplicateRewardError
            If the event is not there, or rewarded already. This is counted; nothing else changes.
        """
        refusal: RewardRejectedError | None = None
        with self.transaction("reward") as db:
            found = db.execute(
                "SELECT seq FROM events LEFT JOIN rewards ON event = id WHERE id = ?",
                (min(event_id, LARGEST_ID),),
            ).fetchone()
            if found is None:
                refusal = UnknownEventError(
                    f"event_id must be of an event served: got {event_id}"
                )
                self._count(db, "rejected: unknown event")
            elif found[0] is not None:
                refusal = DuplicateRewardError(
                    f"event_id must have no reward yet: got {event_id}"
                )
                self._count(db, "rejected: duplicate reward")
            else:
                time = self._not_before_the_last(db, time)
                seq = db.execute(
                    "INSERT INTO rewards (event, reward, time) VALUES (?, ?, ?)",
                    (event_id, reward, time),
                ).lastrowid
        if refusal:
            raise refusal
        return seq

    def _context(self, db: sqlite3.Connection, blob: bytes) -> int:
        """Return the id of a context; contexts that are equal are stored once."""
        digest = _digest(blob)
        found = db.execute(
            "SELECT id FROM contexts WHERE digest = ?", (digest,)
        ).fetchone()
        if found:
            return found[0]
        insert = "INSERT INTO contexts (digest, features) VALUES (?, ?)"
        return db.execute(insert, (digest, blob)).lastrowid

    def _not_before_the_last(self, db: sqlite3.Connection, time: float) -> float:
        """Return the time, or the last one stored should the clock have gone backwards."""
        time = as_finite("clock", time)
        last = db.execute(
            "SELECT max(time) FROM (SELECT * FROM (SELECT time FROM events ORDER BY id DESC LIMIT 1)"
            " UNION ALL SELECT * FROM (SELECT time FROM rewards ORDER BY seq DESC LIMIT 1))"
        ).fetchone()[0]
        if last is None or time >= last:
            return time
        self._count(db, "clock went backwards")
        return last

    def _count(self, db: sqlite3.Connection, name: str, by: int = 1) -> None:
        db.execute(
            "INSERT INTO counters VALUES (?, ?)"
            " ON CONFLICT (name) DO UPDATE SET count = count + excluded.count",
            (name, by),
        )

    def counters(self) -> dict[str, int]:
        """Return how often what was counted, rejections among it."""
        return dict(self._rows("SELECT name, count FROM counters ORDER BY name"))

    def last_event(self) -> int:
        """Return the highest event id ever given, 0 if none was."""
        return self._last("events")

    def last_seq(self) -> int:
        """Return the highest sequence number of a reward ever given, 0 if none was."""
        return self._last("rewards")

    def _last(self, table: str) -> int:
        found = self._rows("SELECT seq FROM sqlite_sequence WHERE name = ?", table)
        return found[0][0] if found else 0

    def rewards_after(
        self, seq: int
    ) -> Iterator[tuple[int, NDArray[np.float32], int, float]]:
        """Yield sequence number, features (d,) of the arm shown, arm and reward, in log order."""
        width = FEATURE_TYPE.itemsize * self.n_features
        with self._errors():
            cursor = self._db.execute(
                "SELECT seq, substr(features, 1 + arm * ?, ?), arm, reward FROM rewards"
                " JOIN events ON events.id = event JOIN contexts ON contexts.id = context"
                " WHERE seq > ? ORDER BY seq",
                (width, width, seq),
            )
            for number, row, arm, reward in cursor:
                yield number, np.frombuffer(row, FEATURE_TYPE), arm, reward

    def log(self, after: int = 0) -> EventLog:
        """Read the rewarded events after a sequence number, all that are retained if omitted."""
        rows = self._rows(
            "SELECT seq, arm, reward, propensity, events.time, version, context"
            " FROM rewards JOIN events ON events.id = event WHERE seq > ? ORDER BY seq",
            after,
        )
        columns = list(zip(*rows, strict=True)) or [()] * 7
        kinds = (np.int64, np.int64, float, float, float, np.str_, np.int64)
        *fields, context = map(np.array, columns, kinds)
        ids, context = np.unique(context, return_inverse=True)
        known = dict(self._rows("SELECT id, features FROM contexts"))
        features = np.array(
            [np.frombuffer(known[i], FEATURE_TYPE) for i in ids.tolist()]
        )
        shape = (len(ids), self.n_arms, self.n_features)
        return EventLog(*fields, features.astype(np.float32).reshape(shape), context)

    def events(self) -> list[tuple]:
        """List id, user, arm, propensity, version, time and reward (or None) of all retained events."""
        return self._rows(
            "SELECT id, user, arm, propensity, version, events.time, reward"
            " FROM events LEFT JOIN rewards ON event = id ORDER BY id"
        )

    def arm_totals(self) -> tuple[int, NDArray[np.float64], NDArray[np.float64]]:
        """Return the last sequence number, and visits and rewards of each arm, shape (K,)."""
        visits, rewards = np.zeros((2, self.n_arms))
        last = 0
        for arm, n, total, seq in self._rows(
            "SELECT arm, count(*), sum(reward), max(seq)"
            " FROM rewards JOIN events ON id = event GROUP BY arm"
        ):
            visits[arm], rewards[arm], last = n, total, max(last, seq)
        return last, visits, rewards

    def clicks_by_user(self, assigned: str, after: int) -> NDArray[np.float64]:
        """Return visits and summed rewards of each user assigned to a version after an event, shape (U, 2)."""
        rows = self._rows(
            "SELECT count(*), sum(reward) FROM events JOIN rewards ON event = id"
            " WHERE assigned = ? AND id > ? GROUP BY user ORDER BY user",
            assigned,
            after,
        )
        return np.array(rows, float).reshape(-1, 2)

    def fact(self, name: str) -> str | None:
        """Return what was remembered under a name."""
        found = self._rows("SELECT value FROM facts WHERE name = ?", name)
        return found[0][0] if found else None

    def remember(self, facts: dict[str, str]) -> None:
        """Remember things under their names."""
        with self.transaction("remember") as db:
            db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    # ---- Registry and snapshots

    def register(
        self,
        model: bytes,
        head: bytes,
        seq: int,
        *,
        parent: str | None,
        created: float,
        n_rows: int,
        validation: dict[str, Any],
        active: bool = False,
    ) -> str:
        """Enter a version with its weights and its head as of `seq`, in one transaction; return its name."""
        with self.transaction("register") as db:
            number = 1 + db.execute("SELECT count(*) FROM versions").fetchone()[0]
            state, share = ("active", 100) if active else ("candidate", 0)
            db.execute(
                "INSERT INTO versions VALUES (?, ?, ?, ?, ?, ?, ?, ?, '', ?, ?)",
                (
                    *(f"v{number}", parent, state, share, 0, created, n_rows),
                    *(json.dumps(validation), model, _digest(model)),
                ),
            )
            self._insert_snapshot(db, f"v{number}", seq, head)
        return f"v{number}"

    def versions(self, *states: str) -> list[Version]:
        """List the versions, oldest first; those in the given states if any are given."""
        columns = "name, parent, state, share, since, created, n_rows, validation, note"
        return [
            Version(*row[:7], json.loads(row[7]), row[8])
            for row in self._rows(f"SELECT {columns} FROM versions ORDER BY rowid")
            if not states or row[2] in states
        ]

    def version(self, name: str) -> Version:
        """Return one version."""
        for version in self.versions():
            if version.name == name:
                return version
        raise ValueError(f"name must be of a version in the registry: got {name!r}")

    def model_bytes(self, name: str) -> bytes:
        """Return the weights of a version.

        Raises
        ------
        StoreCorruptError
            If they are not what was stored.
        """
        ((blob, digest),) = self._rows(
            "SELECT model, digest FROM versions WHERE name = ?", name
        )
        if _digest(blob) != digest:
            raise StoreCorruptError(
                f"database {self.path} holds damaged weights of {name}"
            )
        return blob

    def move(self, what: str, *moves: tuple[str, str, int, str]) -> None:
        """Change states in one transaction: name, new state, share, note."""
        since = self.last_event()
        with self.transaction(what) as db:
            # What leaves makes room first: never is more than one version active, or rolling.
            for name, state, share, note in moves:
                db.execute(
                    "UPDATE versions SET state = ?, share = ?, note = ?, since = ? WHERE name = ?",
                    (state, share, note, since, name),
                )

    def save_snapshot(self, name: str, seq: int, head: bytes) -> None:
        """Keep a head as of a sequence number; of older ones, the first and the newest stay."""
        with self.transaction("snapshot") as db:
            self._insert_snapshot(db, name, seq, head)
            db.execute(
                "DELETE FROM snapshots WHERE version = ?1"
                " AND seq > (SELECT min(seq) FROM snapshots WHERE version = ?1)"
                " AND seq NOT IN (SELECT seq FROM snapshots WHERE version = ?1"
                " ORDER BY seq DESC LIMIT ?2)",
                (name, SNAPSHOTS_KEPT),
            )

    def _insert_snapshot(
        self, db: sqlite3.Connection, name: str, seq: int, head: bytes
    ) -> None:
        db.execute(
            "INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?, ?)",
            (name, seq, head, _digest(head)),
        )

    def snapshots(self, name: str) -> list[tuple[int, bytes | None]]:
        """List sequence numbers and heads of a version, newest first; None for a damaged one."""
        rows = self._rows(
            "SELECT seq, head, digest FROM snapshots WHERE version = ? ORDER BY seq DESC",
            name,
        )
        return [
            (seq, head if _digest(head) == digest else None)
            for seq, head, digest in rows
        ]

    # ---- Privacy

    def delete_events(
        self,
        condition: str,
        value: float | bytes,
        heads: Sequence[tuple[str, int, bytes]],
    ) -> int:
        """Delete events with their rewards; return how many.

        Parameters
        ----------
        condition : {"time < ?", "user = ?"}
            Which.
        value : float or bytes
            The time or the pseudonym.
        heads : sequence of (name, seq, head)
            The state of every version that still learns, with all rewards in it. Snapshots before the
            last deleted reward go: nothing could be replayed onto them.
        """
        with self.transaction("delete") as db:
            for head in heads:
                self._insert_snapshot(db, *head)
            last = db.execute(
                f"SELECT max(seq) FROM rewards JOIN events ON id = event WHERE events.{condition}",
                (value,),
            ).fetchone()[0]
            gone = db.execute(
                f"DELETE FROM events WHERE {condition}", (value,)
            ).rowcount
            db.execute("DELETE FROM snapshots WHERE seq < ?", (last or 0,))
            db.execute(
                "DELETE FROM contexts WHERE NOT EXISTS"
                " (SELECT 1 FROM events WHERE context = contexts.id)"
            )
        self._rows(
            "PRAGMA wal_checkpoint(TRUNCATE)"
        )  # the write-ahead log held them, too
        return gone


def _digest(blob: bytes) -> bytes:
    return blake2b(blob, digest_size=16).digest()
