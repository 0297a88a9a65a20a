"""The service's storage: decisions and rewards, versions of the agent, and their snapshots.

All SQL but the tables is here. Each event that is acknowledged is one transaction, on disk before the
call returns: a process killed at any moment loses nothing that it has acknowledged. Users appear as
pseudonyms only.
"""

from __future__ import annotations

import json
import sqlite3
import threading
from collections.abc import Callable, Hashable, Iterable, Iterator, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass
from hashlib import blake2b
from os import PathLike
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_ids, as_rate, as_size
from zoolib._support.labels import Labels
from zoolib.service.database import Database, StoreError

FEATURE_TYPE = np.dtype("<f4")  # of the features in the log, the same on every machine
LARGEST_ID = 2**63 - 1  # that SQLite can hold
READ_AT_ONCE = 1_000  # rewards that a version learns between two looks at the log
EXPIRED_AT_ONCE = 10  # decisions that expire while another one is logged
# In addition to a version's first snapshot: the newest, and one more in case it is damaged.
SNAPSHOTS_KEPT = 2


class RewardRejectedError(ValueError):
    """A reward that cannot be counted; a counter changes, and nothing that another call would not change."""


class UnknownEventError(RewardRejectedError):
    """A reward for an event that was never served, or is forgotten."""


class DuplicateRewardError(RewardRejectedError):
    """A second reward for one event; the first stands."""


class LateRewardError(RewardRejectedError):
    """A reward for an event that has expired; its zero stands."""


# Why there is no reward to come, by what is found: whether the event is open, and has expired.
REJECTIONS = {
    None: (UnknownEventError, "unknown event", "be of an event served"),
    (0, 0): (DuplicateRewardError, "duplicate reward", "have no reward yet"),
    (0, 1): (LateRewardError, "late reward", "be of an event that has not expired"),
}
Clock = Callable[[], float]  # read when nobody else can write: time never decreases
DELETED = "deleted up to the reward"  # the name of a fact
COMPLETE = (  # without the index SQLite walks through all that were ever served
    "SELECT ifnull((SELECT min(id) - 1 FROM events INDEXED BY open_events WHERE open),"
    " (SELECT seq FROM sqlite_sequence WHERE name = 'events'))"
)
FATES = ("open", "rewarded", "expired", "refused")
# Hashes of a request's id, and of who asked with what; None without an id.
Asked = tuple[bytes, bytes] | tuple[None, None]


@dataclass(frozen=True)
class EventLog:
    """Events that were rewarded or have expired; n rows, `n_contexts` different contexts.

    Attributes
    ----------
    seq, event, arm : ndarray of int, shape (n,)
        Sequence number of the reward, number of the event, and place of the arm shown among all.
    reward, propensity : ndarray of float, shape (n,)
        The reward, zero for an event that expired, and the probability with which the arm was drawn.
    version : ndarray of str, shape (n,)
        The version or fallback that drew it.
    features : ndarray of float32, shape (n_contexts, K, d)
        The contexts; where only the visitor is known, all K rows are equal.
    context : ndarray of int, shape (n,)
        Which of them each event had; -1 if its features did not come in time.
    """

    seq: NDArray[np.int64]
    event: NDArray[np.int64]
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
    """The registry's entry for a version, without its snapshots."""

    name: str  # "v1", "v2", …
    parent: str | None  # the version that was active when it was trained
    state: str  # "candidate", "rolling", "active" or "retired"
    share: int  # per cent of the users, served or meant to be; 0 for a candidate
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
    n_arms : int, or sequence of hashable
        K, or the labels of the arms: anything that JSON can hold.
    n_features : int
        d.
    key : bytes
        16 to 64 secret bytes. Without them nobody can find out to which user an event belongs.
    """

    def __init__(
        self,
        path: str | PathLike[str],
        n_arms: int | Sequence[Hashable],
        n_features: int,
        key: bytes,
    ) -> None:
        self.arms = Labels("n_arms", n_arms)
        self.n_arms = len(self.arms)
        self.n_features = as_size("n_features", n_features)
        if not isinstance(key, bytes) or not 16 <= len(key) <= 64:
            raise ValueError(f"key must be 16 to 64 bytes: got {type(key).__name__}")
        self._key = key
        # Decisions that never reached the disk, to be counted, and those that are void, to be deleted, too.
        self._lost, self._void, self._counting = 0, list[int](), threading.Lock()
        self._made_with = {
            "n_arms": _as_json("n_arms", self.arms.setting()),
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

    def close(self) -> None:
        """Close the file, and first try to undo what is void: after a kill, or if this fails, it stays open."""
        with self.alone():  # another thread may be at the file
            with suppress(StoreError):
                self._settle()
            super().close()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Do all of it, on disk when this returns, or nothing; first what was refused is undone."""
        with self.alone():
            self._settle()
            with super().transaction() as db:
                yield db

    def pseudonym(self, user_id: Hashable) -> bytes:
        """Return the keyed hash of a user's id, 16 bytes."""
        return self._hash(str(user_id))

    def request(self, request_id: str | bytes | int, user: bytes, moment: Any) -> Asked:
        """Return keyed hashes, 16 bytes each, of a request's id, and of who asked with what."""
        if isinstance(request_id, np.generic):
            request_id = request_id.item()
        if not isinstance(request_id, str | bytes | int):
            raise TypeError(
                f"request_id must be text, bytes or a whole number: got {request_id!r}"
            )
        asked = user.hex() + _as_json("moment of a request with an id", moment)
        return self._hash(repr(request_id)), self._hash(asked)

    def _hash(self, text: str) -> bytes:
        return blake2b(text.encode(), digest_size=16, key=self._key).digest()

    # ---- The log

    def decided(self, request: Asked) -> tuple[int, Hashable, float, str] | None:
        """Return event id, arm, propensity and version of a request that was answered before."""
        with self.alone():
            self._settle()
            found = self._rows(
                "SELECT asked, id, arm, propensity, version FROM events WHERE request = ?",
                request[0],
            )
        if found and found[0][0] != request[1]:
            raise ValueError(
                "request_id must be new, or of the same user and moment: it stands for another request"
            )
        return (found[0][1], self.arms[found[0][2]], *found[0][3:]) if found else None

    def log_event(
        self,
        user: bytes,
        features: NDArray[np.float32] | None,
        arm: int,
        propensity: float,
        version: str,
        assigned: str,
        clock: Clock,
        attribution: float = np.inf,
        request: Asked = (None, None),
        in_time: Callable[[], bool] = lambda: True,
    ) -> tuple[int, Hashable, float, str]:
        """Log one decision, or find that of the request; return event id, arm, propensity and version.

        The user is a pseudonym and the features have shape (K, d), or (1, d) of the visitor alone; they are
        None if they did not come. `version` drew the arm; `assigned` is the version of the user, another
        one if a fallback stood in for it. A time before the last one is logged as the last one, and counted:
        after a clock that was ahead nothing expires until it is there again.
        An event that is not on disk, or not `in_time`, is refused: it is counted, and StoreError raised.
        """
        arm = int(as_ids("arm", arm, self.n_arms))
        propensity = as_rate("propensity", propensity)
        try:
            with self.alone():  # nobody sees an event that is void
                with self.transaction() as db:
                    if request[0] and (known := self.decided(request)):
                        return known
                    time = _not_before_the_last(db, clock())
                    _expire(db, time, EXPIRED_AT_ONCE)
                    context = _insert_context(db, features)
                    row = (user, context, arm, propensity, version, assigned, time)
                    number = db.execute(
                        "INSERT INTO events (user, context, arm, propensity, version, assigned, time, due,"
                        " request, asked) VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?)",
                        (*row, time + attribution, *request),
                    ).lastrowid
                if in_time():
                    return number, self.arms[arm], propensity, version
                self._void.append(number)
                with suppress(StoreError):  # else before the next transaction
                    self._settle()
        except StoreError:
            with self._counting:
                self._lost += 1
            raise
        raise StoreError(f"database {self.path} took too long: the decision is void")

    def _settle(self) -> None:
        """Delete and count the decisions that were refused."""
        lost = self._lost
        if (lost or self._void) and not self._db.in_transaction:
            with super().transaction() as db:
                void = [(event,) for event in self._void]
                db.executemany("DELETE FROM events WHERE id = ?", void)
                _count(db, "refused", lost + len(void))
            self._void.clear()
            with self._counting:
                self._lost -= lost

    def log_reward(self, event_id: int, reward: float, clock: Clock) -> int:
        """Log one reward in [0, 1]; return its sequence number, or count and raise why it is rejected."""
        row = (min(event_id, LARGEST_ID),)
        with self.transaction() as db:
            time = _not_before_the_last(db, clock())
            _expire(db, time, EXPIRED_AT_ONCE)
            _expire(db, time, 1, *row)
            found = db.execute(
                "SELECT open, expired FROM events LEFT JOIN rewards ON event = id WHERE id = ?",
                row,
            ).fetchone()
            if found == (1, None):
                return db.execute(
                    "INSERT INTO rewards (event, reward, time, expired) VALUES (?, ?, ?, 0)",
                    (event_id, reward, time),
                ).lastrowid
            kind, name, words = REJECTIONS[found]
            _count(db, f"rejected: {name}")
        raise kind(f"event_id must {words}: got {event_id}")

    def expire(self, clock: Clock, most: int) -> int:
        """Give the oldest overdue open events a reward of zero; return their number."""
        with self.alone():
            self._settle()
            due = "SELECT 1 FROM events WHERE open AND due <= ? LIMIT 1"
            if not self._rows(due, clock()):
                return 0
            with self.transaction() as db:
                return _expire(db, _not_before_the_last(db, clock()), most)

    def fates(self) -> dict[str, int]:
        """Count the events by their fates: see `BanditService.fates`."""
        with self.alone():
            self._settle()
            ((*counts, n),) = self._rows(
                "SELECT (SELECT count(*) FROM events WHERE open), count(*) - ifnull(sum(expired), 0),"
                " ifnull(sum(expired), 0), (SELECT count FROM counters WHERE name = 'refused') FROM rewards"
            )
        return dict(zip(FATES, (*counts, n or 0), strict=True))

    def complete(self) -> int:
        """Return the last event up to which all have their fates."""
        return self._rows(COMPLETE)[0][0] or 0

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
    ) -> Iterator[tuple[int, int, NDArray[np.float32] | None, int, float]]:
        """Yield `seq`, event, features (K, d) or (1, d), place of the arm and reward, in their order.

        Events whose features did not come in time have None.
        """
        rows = [()] * READ_AT_ONCE
        while len(rows) == READ_AT_ONCE:
            # Not row by row: whoever reads may take his time, and others want to write.
            rows = self._rows(
                "SELECT seq, event, features, arm, reward FROM rewards"
                " JOIN events ON events.id = event LEFT JOIN contexts ON contexts.id = context"
                " WHERE seq > ? ORDER BY seq LIMIT ?",
                *(seq, READ_AT_ONCE),
            )
            for seq, event, blob, arm, reward in rows:
                yield seq, event, blob and self._features(blob), arm, reward

    def log(self, after: int = 0) -> EventLog:
        """Read the events with a fate after a sequence number, in its order; meanwhile other threads wait."""
        return self._log("seq > ? ORDER BY seq", after)

    def visits(self, after: int = 0) -> EventLog:
        """Read the events after one, in their own order, up to the first that has no fate yet.

        Clicks come soon, and zeros when visits expire: of the newest visits only the clicks are known.
        """
        return self._log("id > ? AND id <= ? ORDER BY id", after, self.complete())

    def _log(self, which: str, *values: int) -> EventLog:
        where = f"FROM rewards JOIN events ON events.id = event WHERE {which}"
        events = f"SELECT seq, id, arm, reward, propensity, version, context {where}"
        contexts = f"SELECT id, features FROM contexts WHERE id IN (SELECT context {where}) ORDER BY id"
        with self.alone():
            rows, known = self._rows(events, *values), self._rows(contexts, *values)
        columns = list(zip(*rows, strict=True)) or [()] * 7
        kinds = (np.int64, np.int64, np.int64, float, float, np.str_)
        fields = map(np.array, columns[:-1], kinds)
        features = np.empty((len(known), self.n_arms, self.n_features), np.float32)
        place_of = {None: -1}
        for place, (number, blob) in enumerate(known):
            features[place], place_of[number] = self._features(blob), place
        context = np.array([place_of[one] for one in columns[-1]], np.int64)
        return EventLog(*fields, features, context)

    def _features(self, blob: bytes) -> NDArray[np.float32]:
        return np.frombuffer(blob, FEATURE_TYPE).reshape(-1, self.n_features)

    def events(self) -> list[tuple]:
        """List id, user, arm, propensity, version, time and reward (or None) of all retained events."""
        rows = self._rows(
            "SELECT id, user, arm, propensity, version, events.time, reward"
            " FROM events LEFT JOIN rewards ON event = id ORDER BY id"
        )
        return [(*row[:2], self.arms[row[2]], *row[3:]) for row in rows]

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
        """Return visits and summed rewards of each user assigned to a version after an event, shape (U, 2).

        They end where `visits` end.
        """
        rows = self._rows(
            "SELECT count(*), sum(reward) FROM events JOIN rewards ON event = id"
            " WHERE assigned = ? AND id > ? AND id <= ? GROUP BY user ORDER BY user",
            *(assigned, after, self.complete()),
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
            deleted = max(last or 0, self.deleted())
            db.execute("DELETE FROM snapshots WHERE seq < ?", (deleted,))
            remembered = DELETED, str(deleted)
            db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", remembered)
            db.execute(
                "DELETE FROM contexts WHERE NOT EXISTS"
                " (SELECT 1 FROM events WHERE context = contexts.id)"
            )
        # The write-ahead log holds them, too, until it is emptied.
        self._rows("PRAGMA wal_checkpoint(TRUNCATE)")
        return gone

    def deleted(self) -> int:
        """Return the highest sequence number of a deleted reward: an agent that has not learnt it never can."""
        return int(self.fact(DELETED) or 0)

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
            if seq < self.deleted():  # it would lack what nobody can learn any more
                return
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
        """Return the text remembered under a name, or None."""
        found = self._rows("SELECT value FROM facts WHERE name = ?", name)
        return found[0][0] if found else None

    def remember(self, facts: dict[str, str]) -> None:
        """Remember texts under their names, all in one transaction."""
        with self.transaction() as db:
            db.executemany("INSERT OR REPLACE INTO facts VALUES (?, ?)", facts.items())

    def counters(self) -> dict[str, int]:
        """Return the counters since the file was made, for example of rejected rewards."""
        return dict(self._rows("SELECT name, count FROM counters ORDER BY name"))


def _count(db: sqlite3.Connection, name: str, by: int = 1) -> None:
    db.execute(
        "INSERT INTO counters VALUES (?1, ?2)"
        " ON CONFLICT (name) DO UPDATE SET count = count + ?2",
        (name, by),
    )


def _expire(
    db: sqlite3.Connection, time: float, most: int, event: int | None = None
) -> int:
    """Give overdue open events a reward of zero, the oldest first, or only one; return their number."""
    which, values = ("", ()) if event is None else (" AND id = ?", (event,))
    return db.execute(
        "INSERT INTO rewards (event, reward, time, expired) SELECT id, 0, ?, 1 FROM events"
        f" WHERE open AND due <= ?{which} ORDER BY due, id LIMIT ?",
        (time, time, *values, most),
    ).rowcount


def _insert_context(
    db: sqlite3.Connection, features: NDArray[np.float32] | None
) -> int | None:
    """Store features, and return their id: 64 bits of a check sum, so that equal ones are stored once."""
    if features is None:
        return None
    blob = np.ascontiguousarray(features, FEATURE_TYPE).tobytes()
    number = int.from_bytes(blake2b(blob, digest_size=8).digest(), signed=True)
    db.execute("INSERT OR IGNORE INTO contexts VALUES (?, ?)", (number, blob))
    return number


def _as_json(name: str, value: Any) -> str:
    """Return the text of a value that JSON can hold; arrays are lists."""
    try:
        return json.dumps(value, sort_keys=True, default=lambda other: other.tolist())
    except (TypeError, ValueError, AttributeError) as error:
        raise TypeError(
            f"{name} must be what JSON can hold, or an array: got {value!r:.100}"
        ) from error


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
