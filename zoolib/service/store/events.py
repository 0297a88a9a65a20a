"""The log: what was decided for whom and with which probability, and what it earned."""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_ids, as_rate
from zoolib.service.store.schema import Database, count

FEATURE_TYPE = np.dtype("<f4")  # of the features in the log, the same on every machine
LARGEST_ID = 2**63 - 1  # that SQLite can hold


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


class Events(Database):
    """Decisions and rewards."""

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
        with self.transaction() as db:
            time = _not_before_the_last(db, time)
            context = _context(db, blob)
            cursor = db.execute(
                "INSERT INTO events (user, context, arm, propensity, version, assigned, time)"
                " VALUES (?, ?, ?, ?, ?, ?, ?)",
                (user, context, arm, propensity, version, assigned, time),
            )
        return cursor.lastrowid

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
            count(db, f"rejected: {'duplicate reward' if found else 'unknown event'}")
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

    def arm_totals(self, after: int = 0) -> list[tuple[int, int, float, int]]:
        """List arm, visits, summed rewards and last sequence number of each arm rewarded since."""
        return self._rows(
            "SELECT arm, count(*), sum(reward), max(seq) FROM rewards"
            " JOIN events ON id = event WHERE seq > ? GROUP BY arm",
            after,
        )

    def clicks_by_user(self, assigned: str, after: int) -> NDArray[np.float64]:
        """Return visits and summed rewards of each user assigned to a version after an event, shape (U, 2)."""
        rows = self._rows(
            "SELECT count(*), sum(reward) FROM events JOIN rewards ON event = id"
            " WHERE assigned = ? AND id > ? GROUP BY user ORDER BY user",
            assigned,
            after,
        )
        return np.array(rows, float).reshape(-1, 2)


def _context(db: sqlite3.Connection, blob: bytes) -> int:
    """Return the id of a context, 64 bits of its check sum: contexts that are equal are stored once."""
    number = int.from_bytes(blake2b(blob, digest_size=8).digest(), signed=True)
    db.execute("INSERT OR IGNORE INTO contexts VALUES (?, ?)", (number, blob))
    return number


def _not_before_the_last(db: sqlite3.Connection, time: float) -> float:
    """Return the time, or the last one stored should the clock have gone backwards."""
    last = db.execute(
        "SELECT max(time) FROM (SELECT * FROM (SELECT time FROM events ORDER BY id DESC LIMIT 1)"
        " UNION ALL SELECT * FROM (SELECT time FROM rewards ORDER BY seq DESC LIMIT 1))"
    ).fetchone()[0]
    if last is None or time >= last:
        return time
    count(db, "clock went backwards")
    return last
