"""What the service remembers: decisions and rewards, versions of the agent, and what each has learnt.

All SQL but the tables is here. Each event that is acknowledged is one transaction, on disk before the
call returns: a process killed at any moment loses nothing that it has acknowledged. Users appear as
pseudonyms only.
"""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Callable, Hashable, Iterable, Iterator
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_ids, as_rate, as_size
from zoolib.service.database import Database, StoreError

FEATURE_TYPE = np.dtype("<f4")  # of the features in the log, the same on every machine
LARGEST_ID = 2**63 - 1  # that SQLite can hold
# In addition to a version's first snapshot: the newest, and one more in case it is damaged.
SNAPSHOTS_KEPT = 2


class RewardRejectedError(ValueError):
    """A reward that cannot be counted; it changed nothing but the counter of rejections."""


class UnknownEventError(RewardRejectedError):
    """A reward for an event that was never served, or is forgotten."""


class DuplicateRewardError(RewardRejectedError):
    """A second reward for one event; the first stands."""


@dataclass(frozen=True)
class EventLog:
    """Rewarded events in the order of their rewards; n rows, `n_contexts` different contexts.

    Attributes
    ----------
    seq, arm : ndarray of int, shape (n,)
        Sequence number of the reward, and the arm shown.
    reward, propensity : ndarray of float, shape (n,)
        The reward, and the probability with which the arm was drawn.
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
    version: NDArray[np.str_]
    features: NDArray[np.float32]
    context: NDArray[np.int64]

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def played(self) -> NDArray[np.float32]:
        """Features of the arms shown, shape (n, d)."""
        return self.features[self.context, self.arm]

    def where(self, rows: NDArray | slice) -> EventLog:
        """Return some of the events, by a mask of n booleans, positions or a slice, with all contexts."""
        columns = vars(self).items()
        chosen = {name: column[rows] for name, column in columns if name != "features"}
        return EventLog(**chosen, features=self.features)


@dataclass(frozen=True)
class Version:
    """What the registry knows of a version, apart from its snapshots."""

    name: str  # "v1", "v2", …
    parent: str | None  # the version that was active when it was trained
    state: str  # "candidate", "rolling", "active" or "retired"
    share: (
        int  # per cent of the users it serves or is meant to serve; 0 for a candidate
    )
    since: int  # the last event before its state or share changed last
    created: float  # time of its training
    n_rows: int  # rewards in the log when it was registered
    validation: dict[str, Any]  # figures of its off-policy validation
    note: str  # why it was retired


class Store(Database):
    """Log, registry and snapshots of one service, in one file.

    The file remembers numbers of arms and features, and a digest of the key, from its first version on.

    Parameters
    ----------
    path : str or path
        The file; made if there is none.
    n_arms, n_features : int
        K and d.
    key : bytes
        16 to 64 secret bytes. Without them nobody can tell, or try out, whose events these are.
    """

    def __init__(
        self, path: str | PathLike[str], n_arms: int, n_features: int, key: bytes
    ) -> None:
        self.n_arms = as_size("n_arms", n_arms)
        self.n_features = as_size("n_features", n_features)
        if not isinstance(key, bytes) or not 16 <= len(key) <= 64:
            raise ValueError(f"key must be 16 to 64 bytes: got {type(key).__name__}")
        self._key = key
        self._made_with = {
            "n_arms": str(n_arms),
            "n_features": str(n_features),
            "key": blake2b(b"key check", digest_size=8, key=key).hexdigest(),
        }
        super().__init__(path)

    def _open(self) -> None:
        super()._open()
        for name, value in self._made_with.items():
            if (known := self.fact(name)) not in (None, value):
                shown = "" if name == "key" else f" {known}: got {value}"
                raise ValueError(
                    f"{name} must be what {self.path} was made with{shown}"
                )

    def pseudonym(self, user_id: Hashable) -> bytes:
        """Return the keyed hash of a user's id, 16 bytes."""
        return blake2b(str(user_id).encode(), digest_size=16, key=self._key).digest()

    # ---- The log

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

        The user is a pseudonym and the features have shape (K, d). `version` drew the arm; `assigned` is
        the version of the user, another one if a fallback stood in for it. A time before the last one is
        logged as the last one, and counted.
        """
        arm = int(as_ids("arm", arm, self.n_arms))
        propensity = as_rate("propensity", propensity)
        blob = np.ascontiguousarray(features, FEATURE_TYPE).tobytes()
        # Contexts that are equal are stored once: their id is 64 bits of a check sum.
        context = int.from_bytes(blake2b(blob, digest_size=8).digest(), signed=True)
        with self.transaction() as db:
            time = _not_before_the_last(db, time)
            db.execute("INSERT OR IGNORE INTO contexts VALUES (?, ?)", (context, blob))
            return db.execute(
                "INSERT INTO events (user, context, arm, propensity, version, assigned, time)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (user, context, arm, propensity, version, assigned, time),
            ).lastrowid

    def log_reward(self, event_id: int, reward: float, time: float) -> int:
        """Log one reward in [0, 1]; return its sequence number, or count and raise why it is rejected."""
        with self.transaction() as db:
            found = db.execute(
                "SELECT seq FROM events LEFT JOIN rewards ON event = id WHERE id = ?",
                (min(event_id, LARGEST_ID),),
            ).fetchone()
            if found == (None,):
                row = (event_id, reward, _not_before_the_last(db, time))
                return db.execute(
                    "INSERT INTO rewards (event, reward, time) VALUES (?, ?, ?)", row
                ).lastrowid
            _count(db, f"rejected: {'duplicate reward' if found else 'unknown event'}")
        if found:
            raise DuplicateRewardError(
                f"event_id must have no reward yet: got {event_id}"
            )
        raise UnknownEventError(f"event_id must be of an event served: got {event_id}")

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
        """Yield sequence number, features (K, d), arm shown and reward, in the order of the log."""
        with self._errors():
            cursor = self._db.execute(
                "SELECT seq, features, arm, reward FROM rewards"
                " JOIN events ON events.id = event JOIN contexts ON contexts.id = context"
                " WHERE seq > ? ORDER BY seq",
                (seq,),
            )
            for number, blob, arm, reward in cursor:
                yield number, self._features(blob), arm, reward

    def log(self, after: int = 0) -> EventLog:
        """Read the rewarded events after a sequence number, all that are retained if omitted."""
        rows = self._rows(
            "SELECT seq, arm, reward, propensity, version, context"
            " FROM rewards JOIN events ON events.id = event WHERE seq > ? ORDER BY seq",
            after,
        )
        columns = list(zip(*rows, strict=True)) or [()] * 6
        kinds = (np.int64, np.int64, float, float, np.str_, np.int64)
        *fields, context = map(np.array, columns, kinds)
        ids, context = np.unique(context, return_inverse=True)
        known = dict(self._rows("SELECT id, features FROM contexts"))
        features = np.empty((len(ids), self.n_arms, self.n_features), np.float32)
        for place, number in enumerate(ids.tolist()):
            features[place] = self._features(known[number])
        return EventLog(*fields, features, context)

    def _features(self, blob: bytes) -> NDArray[np.float32]:
        table = np.frombuffer(blob, FEATURE_TYPE)
        return table.reshape(self.n_arms, self.n_features)

    def events(self) -> list[tuple]:
        """List id, user, arm, propensity, version, time and reward (or None) of all retained events."""
        return self._rows(
            "SELECT id, user, arm, propensity, version, events.time, reward"
            " FROM events LEFT JOIN rewards ON event = id ORDER BY id"
        )

    def arm_totals(self, n_rewards: int) -> NDArray[np.float64]:
        """Return visits and summed rewards of each arm in the newest n rewards, shape (2, K)."""
        totals = np.zeros((2, self.n_arms))
        for arm, *row in self._rows(
            "SELECT arm, count(*), sum(reward) FROM rewards"
            " JOIN events ON id = event WHERE seq > ? GROUP BY arm",
            self.last_seq() - n_rewards,
        ):
            totals[:, arm] = row
        return totals

    def clicks_by_user(self, assigned: str, after: int) -> NDArray[np.float64]:
        """Return visits and summed rewards of each user assigned to a version after an event, shape (U, 2)."""
        rows = self._rows(
            "SELECT count(*), sum(reward) FROM events JOIN rewards ON event = id"
            " WHERE assigned = ? AND id > ? GROUP BY user ORDER BY user",
            assigned,
            after,
        )
        return np.array(rows, float).reshape(-1, 2)

    def delete_events(
        self,
        snapshots: Callable[[], Iterable[tuple[str, int, bytes]]],
        *,
        before: float | None = None,
        user: bytes | None = None,
    ) -> int:
        """Delete the events before a time, or of one pseudonym, with their rewards; return how many.

        `snapshots` yields, for each version that serves or may yet, its name, the last reward in the log, and
        the agent that has learnt up to it. It is called when nobody else can write any more. Older
        snapshots that lack a deleted reward go: nothing could be replayed onto them.
        """
        which = {"before": before, "user": user}
        with self.transaction() as db:
            for snapshot in snapshots():
                _insert_snapshot(db, *snapshot)
            last = db.execute(
                "SELECT max(seq) FROM rewards JOIN events ON id = event"
                " WHERE events.time < :before OR user = :user",
                which,
            ).fetchone()[0]
            gone = db.execute(
                "DELETE FROM events WHERE time < :before OR user = :user", which
            ).rowcount
            db.execute("DELETE FROM snapshots WHERE seq < ?", (last or 0,))
            db.execute(
                "DELETE FROM contexts WHERE NOT EXISTS"
                " (SELECT 1 FROM events WHERE context = contexts.id)"
            )
        # The write-ahead log holds them, too, until it is emptied.
        self._rows("PRAGMA wal_checkpoint(TRUNCATE)")
        return gone

    # ---- The registry

    def register(
        self,
        agent: bytes,
        seq: int,
        *,
        parent: str | None,
        created: float,
        validation: dict[str, Any],
    ) -> str:
        """Enter a version with its first snapshot, in one transaction; return its name.

        The agent has learnt the rewards up to `seq`. A version without a parent is the first, and serves
        at once.
        """
        state, share = ("active", 100) if parent is None else ("candidate", 0)
        with self.transaction() as db:
            if parent is None:
                made_with = self._made_with.items()
                db.executemany("INSERT OR IGNORE INTO facts VALUES (?, ?)", made_with)
            number = 1 + db.execute("SELECT count(*) FROM versions").fetchone()[0]
            name, figures = f"v{number}", json.dumps(validation)
            db.execute(
                "INSERT INTO versions SELECT ?, ?, ?, ?, 0, ?, count(*), ?, ''"
                " FROM rewards WHERE seq <= ?",
                (name, parent, state, share, created, figures, seq),
            )
            _insert_snapshot(db, name, seq, agent)
        return name

    def versions(self, *states: str) -> list[Version]:
        """List the versions, oldest first; those in the given states if any are given."""
        rows = self._rows(
            "SELECT * FROM versions WHERE ?1 = '[]'"
            " OR state IN (SELECT value FROM json_each(?1)) ORDER BY rowid",
            json.dumps(states),
        )
        return [Version(*row[:7], json.loads(row[7]), row[8]) for row in rows]

    def version(self, name: str) -> Version:
        """Return one version."""
        for version in self.versions():
            if version.name == name:
                return version
        raise ValueError(f"name must be of a version in the registry: got {name!r}")

    def move(self, *moves: tuple[Version, str, int, str]) -> None:
        """Give versions a new state, share and note, in one transaction.

        List what leaves before what takes its place: more than one version is never active, or rolling.
        If another process has moved one of them since it was read, StoreError is raised and none moves.
        """
        with self.transaction() as db:
            for version, *new in moves:
                moved = db.execute(
                    "UPDATE versions SET state = ?, share = ?, note = ?, since = coalesce("
                    "(SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0)"
                    " WHERE name = ? AND state = ? AND share = ?",
                    (*new, version.name, version.state, version.share),
                ).rowcount
                if not moved:
                    raise StoreError(
                        f"{version.name} is no longer {version.state} with a share of {version.share}: "
                        "another process has moved it"
                    )

    def save_snapshot(self, name: str, seq: int, agent: bytes) -> None:
        """Keep what a version has learnt up to a reward; of older snapshots keep the first and the newest."""
        with self.transaction() as db:
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

    # ---- Facts and counters

    def fact(self, name: str) -> str | None:
        """Return what was remembered under a name, None if nothing was."""
        found = self._rows("SELECT value FROM facts WHERE name = ?", name)
        return found[0][0] if found else None

    def remember(self, facts: dict[str, str]) -> None:
        """Remember texts under their names, all in one transaction."""
        with self.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def counters(self) -> dict[str, int]:
        """Return what was counted since the file was made, rejected rewards for example."""
        return dict(self._rows("SELECT name, count FROM counters ORDER BY name"))


def _count(db: sqlite3.Connection, name: str) -> None:
    db.execute(
        "INSERT INTO counters VALUES (?, 1)"
        " ON CONFLICT (name) DO UPDATE SET count = count + 1",
        (name,),
    )


def _insert_snapshot(db: sqlite3.Connection, *snapshot: str | int | bytes) -> None:
    db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", snapshot)


def _not_before_the_last(db: sqlite3.Connection, time: float) -> float:
    """Return the time, or the last one stored should the clock have gone backwards."""
    ((last,),) = db.execute(
        "SELECT max(ifnull((SELECT time FROM events ORDER BY id DESC LIMIT 1), ?1),"
        " ifnull((SELECT time FROM rewards ORDER BY seq DESC LIMIT 1), ?1))",
        (time,),
    )
    if last > time:
        _count(db, "clock went backwards")
    return max(last, time)
