"""The log as it is read: by the service, and beside it by any other process.

Users appear as pseudonyms; see `zoolib.service.store.Store` for what these hide, and what they do not.
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from os import PathLike

import numpy as np
from numpy.typing import NDArray

from zoolib import offpolicy
from zoolib._support.labels import Labels, as_objects
from zoolib.service.database import Database

FEATURE_TYPE = np.dtype("<f4")  # of the features in the log, the same on every machine
READ_AT_ONCE = 1_000  # rewards that a version learns between two looks at the log
COMPLETE = (  # without the index SQLite walks through all that were ever served
    "SELECT ifnull((SELECT min(id) - 1 FROM events INDEXED BY open_events WHERE open),"
    " (SELECT seq FROM sqlite_sequence WHERE name = 'events'))"
)


# Number of a reward, of its event, features (K, d) or (1, d) or None, place of the arm, and the reward.
Row = tuple[int, int, NDArray[np.float32] | None, int, float]


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
    masks : ndarray of bytes, shape (n,)
        Which arms were on offer, a byte for each; empty for all of them.
    """

    seq: NDArray[np.int64]
    event: NDArray[np.int64]
    arm: NDArray[np.int64]
    reward: NDArray[np.float64]
    propensity: NDArray[np.float64]
    version: NDArray[np.str_]
    features: NDArray[np.float32]
    context: NDArray[np.int64]
    masks: NDArray[np.object_]

    def __len__(self) -> int:
        return len(self.seq)

    @property
    def played(self) -> NDArray[np.float32]:
        """Features of the arms shown, shape (n, d)."""
        return self.features[self.context, self.arm]

    def for_estimates(self) -> offpolicy.Log:
        """Return the log as the estimators take it; its arms are places 0 … K - 1."""
        columns = self.arm, self.reward, self.propensity, self.version
        return offpolicy.Log(*columns, n_arms=self.features.shape[1])

    def where(self, rows: NDArray | slice) -> EventLog:
        """Return some of the events, by a mask of n booleans, positions or a slice, with all contexts."""
        columns = vars(self).items()
        chosen = {name: column[rows] for name, column in columns if name != "features"}
        return EventLog(**chosen, features=self.features)


class Log(Database):
    """What can be read in a file of this service."""

    arms: Labels
    n_features: int

    @property
    def n_arms(self) -> int:
        """K."""
        return len(self.arms)

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

    def rewards_after(self, seq: int, version: str = "") -> Iterator[Row]:
        """Yield the rewards after one, in their order.

        Events whose features did not come in time have None. Those set aside for a version are left out.
        """
        rows = [()] * READ_AT_ONCE
        while len(rows) == READ_AT_ONCE:
            # Not row by row: whoever reads may take his time, and others want to write.
            rows = self._rows(
                "SELECT seq, event, visitor, features, arm, reward FROM rewards"
                " JOIN events ON events.id = event LEFT JOIN contexts ON contexts.id = context"
                " LEFT JOIN tables ON tables.id = products WHERE seq > ?1 AND NOT EXISTS"
                " (SELECT 1 FROM set_aside WHERE version = ?2 AND set_aside.seq = rewards.seq)"
                " ORDER BY seq LIMIT ?3",
                *(seq, version, READ_AT_ONCE),
            )
            for seq, event, visitor, table, arm, reward in rows:
                features = None if visitor is None else self._features(visitor, table)
                yield seq, event, features, arm, reward

    def log(self, after: int = 0) -> EventLog:
        """Read the events after one, in their own order, up to the first that has no fate yet.

        Clicks come soon, and zeros when visits expire: of the newest visits only the clicks are known.
        Meanwhile other threads wait.
        """
        where = "FROM rewards JOIN events ON events.id = event WHERE events.id > ? AND events.id <= ?"
        events = (
            "SELECT seq, events.id, arm, reward, propensity, version, context, ifnull(offered, x'')"
            f" {where} ORDER BY events.id"
        )
        contexts = (
            "SELECT contexts.id, visitor, features FROM contexts LEFT JOIN tables ON tables.id = products"
            f" WHERE contexts.id IN (SELECT context {where}) ORDER BY contexts.id"
        )
        with self.alone:
            which = after, self.complete()
            rows = self._rows(events, *which)
            known = self._rows(contexts, *which)
        columns = list(zip(*rows, strict=True)) or [()] * 8
        kinds = (np.int64, np.int64, np.int64, float, float, np.str_)
        fields = map(np.array, columns[:-2], kinds)
        features = np.empty((len(known), self.n_arms, self.n_features), np.float32)
        place_of = {None: -1}
        for place, (number, *parts) in enumerate(known):
            features[place] = self._features(*parts)
            place_of[number] = place
        context = np.array([place_of[one] for one in columns[-2]], np.int64)
        return EventLog(*fields, features, context, as_objects(columns[-1]))

    def _features(self, visitor: bytes, table: bytes | None) -> NDArray[np.float32]:
        rows = np.frombuffer(visitor, FEATURE_TYPE).reshape(-1, self.n_features)
        if table is None:
            return rows
        return rows + np.frombuffer(table, FEATURE_TYPE).reshape(-1, self.n_features)

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

        They end where `log` ends.
        """
        rows = self._rows(
            "SELECT count(*), sum(reward) FROM events JOIN rewards ON event = id"
            " WHERE assigned = ? AND id > ? AND id <= ? GROUP BY user ORDER BY user",
            *(assigned, after, self.complete()),
        )
        return np.array(rows, float).reshape(-1, 2)

    def fact(self, name: str) -> str | None:
        """Return the text remembered under a name, or None."""
        found = self._rows("SELECT value FROM facts WHERE name = ?", name)
        return found[0][0] if found else None


def read_log(path: str | PathLike[str]) -> EventLog:
    """Return the visits in a service's file up to the first that has no fate yet; it may serve meanwhile.

    See `EventLog.for_estimates` for what is earned by another policy.
    """
    reader = Log(path, owned=False)
    try:
        reader.arms = Labels("n_arms", json.loads(reader.fact("n_arms")))
        reader.n_features = int(reader.fact("n_features"))
        return reader.log()
    finally:
        reader.close()
