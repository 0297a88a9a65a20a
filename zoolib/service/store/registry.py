"""The registry: versions of the agent, their states, and snapshots of what each has learnt."""

from __future__ import annotations

import json
import sqlite3
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

from zoolib.service.store.events import Events

# In addition to a version's first snapshot: the newest, and one more in case it is damaged.
SNAPSHOTS_KEPT = 2


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


class Store(Events):
    """Log, registry and snapshots of one service, in one file: see `schema.Database` for the parameters."""

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

        The agent has learnt the rewards up to `seq`. A version without a parent serves at once.
        """
        state, share = ("active", 100) if parent is None else ("candidate", 0)
        with self.transaction() as db:
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
        return [
            Version(*row[:7], json.loads(row[7]), row[8])
            for row in self._rows("SELECT * FROM versions ORDER BY rowid")
            if not states or row[2] in states
        ]

    def version(self, name: str) -> Version:
        """Return one version."""
        for version in self.versions():
            if version.name == name:
                return version
        raise ValueError(f"name must be of a version in the registry: got {name!r}")

    def move(self, *moves: tuple[str, str, int, str]) -> None:
        """Give versions, each by its name, a new state, share and note, in one transaction.

        List what leaves before what takes its place: more than one version is never active, or rolling.
        """
        with self.transaction() as db:
            for name, *new in moves:
                db.execute(
                    "UPDATE versions SET state = ?, share = ?, note = ?, since = coalesce("
                    "(SELECT seq FROM sqlite_sequence WHERE name = 'events'), 0) WHERE name = ?",
                    (*new, name),
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

    def delete_events(
        self,
        snapshots: Sequence[tuple[str, int, bytes]],
        *,
        before: float | None = None,
        user: bytes | None = None,
    ) -> int:
        """Delete the events before a time, or of one pseudonym, with their rewards; return how many.

        Each snapshot is the name of a version that still learns, the number of its last reward, and its
        agent, which has learnt all rewards. Older ones that lack a deleted reward go: nothing could be
        replayed onto them.
        """
        which = {"before": before, "user": user}
        with self.transaction() as db:
            for snapshot in snapshots:
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


def _insert_snapshot(db: sqlite3.Connection, *snapshot: str | int | bytes) -> None:
    db.execute("INSERT OR REPLACE INTO snapshots VALUES (?, ?, ?)", snapshot)
