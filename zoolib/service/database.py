"""The database file: its tables, how it is opened, its transactions, and what can go wrong with it."""

from __future__ import annotations

import sqlite3
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from os import PathLike
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE counters (name TEXT PRIMARY KEY, count INTEGER NOT NULL) STRICT;
CREATE TABLE contexts (id INTEGER PRIMARY KEY, features BLOB NOT NULL) STRICT;
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user BLOB NOT NULL,
    context INTEGER REFERENCES contexts,
    arm INTEGER NOT NULL CHECK (arm >= 0),
    propensity REAL NOT NULL CHECK (propensity > 0 AND propensity <= 1),
    version TEXT NOT NULL,
    assigned TEXT NOT NULL,
    time REAL NOT NULL,
    due REAL NOT NULL,
    open INTEGER NOT NULL DEFAULT 1 CHECK (open IN (0, 1)),
    request BLOB,
    asked BLOB
) STRICT;
CREATE INDEX events_of_user ON events (user);
CREATE INDEX events_with_context ON events (context);
CREATE INDEX open_events ON events (due) WHERE open;
CREATE UNIQUE INDEX requests ON events (request) WHERE request IS NOT NULL;
CREATE TABLE rewards (
    seq INTEGER PRIMARY KEY AUTOINCREMENT,
    event INTEGER NOT NULL UNIQUE REFERENCES events ON DELETE CASCADE,
    reward REAL NOT NULL CHECK (reward BETWEEN 0 AND 1),
    time REAL NOT NULL,
    expired INTEGER NOT NULL CHECK (expired = 0 OR (expired = 1 AND reward = 0))
) STRICT;
CREATE TRIGGER one_fate AFTER INSERT ON rewards BEGIN UPDATE events SET open = 0 WHERE id = new.event; END;
CREATE TABLE versions (
    name TEXT PRIMARY KEY,
    parent TEXT REFERENCES versions,
    state TEXT NOT NULL CHECK (state IN ('candidate', 'rolling', 'active', 'retired')),
    share INTEGER NOT NULL CHECK (share BETWEEN 0 AND 100),
    since INTEGER NOT NULL,
    created REAL NOT NULL,
    n_rows INTEGER NOT NULL,
    validation TEXT NOT NULL,
    note TEXT NOT NULL
) STRICT;
CREATE UNIQUE INDEX one_active ON versions (state) WHERE state = 'active';
CREATE UNIQUE INDEX one_rolling ON versions (state) WHERE state = 'rolling';
CREATE TABLE snapshots (
    version TEXT NOT NULL REFERENCES versions,
    seq INTEGER NOT NULL,
    agent BLOB NOT NULL,
    PRIMARY KEY (version, seq)
) STRICT;
"""
LAYOUT = 3  # grows with every change of the tables or of what their blobs mean
TIMEOUT = 5.0  # seconds to wait for another process that writes, or another thread
APPLICATION_ID = 0x5A4F4F31  # "ZOO1": tells our files from other SQLite files
PRAGMAS = (
    "journal_mode = WAL",
    "synchronous = FULL",
    "foreign_keys = ON",
    "secure_delete = ON",  # what is deleted is overwritten
)


class StoreError(RuntimeError):
    """The database failed; what was acknowledged before is safe, and nothing was changed."""


class StoreLockedError(StoreError):
    """Another process or thread held the database for longer than `TIMEOUT`."""


class StoreFullError(StoreError):
    """There is no room left on the disk."""


class StoreCorruptError(StoreError):
    """The file is damaged, or not a database of this service."""


class StoreOutdatedError(StoreError):
    """The file was made by a version of the library that laid it out differently."""


ERRORS = {
    "SQLITE_BUSY": (StoreLockedError, "is locked by another process"),
    "SQLITE_FULL": (StoreFullError, "has no room left on its disk"),
    "SQLITE_CORRUPT": (StoreCorruptError, "is damaged"),
    "SQLITE_NOTADB": (StoreCorruptError, "is damaged, or no database at all"),
    "": (StoreError, "refused"),
}


class Database:
    """A file of this service: opened or made, checked, and changed in transactions, by a thread at a time."""

    def __init__(self, path: str | PathLike[str]) -> None:
        self.path, self._lock = Path(path), threading.RLock()
        with self._errors():
            self._db = sqlite3.connect(
                self.path,
                timeout=TIMEOUT,
                isolation_level=None,
                check_same_thread=False,
            )
        try:
            with self._errors():
                self._open()
        except BaseException:
            self._db.close()
            raise

    def close(self) -> None:
        """Close the file."""
        self._db.close()

    def _open(self) -> None:
        damage = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise StoreCorruptError(f"database {self.path} is damaged: {damage}")
        if not self._is_empty():
            self._check_layout()  # before anything is changed
        for pragma in PRAGMAS:
            self._db.execute(f"PRAGMA {pragma}")
        with self.transaction() as db:
            if self._is_empty():
                for statement in SCHEMA.split(";\n"):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {LAYOUT}")

    def _is_empty(self) -> bool:
        return not self._db.execute("SELECT 1 FROM sqlite_master").fetchone()

    def _check_layout(self) -> None:
        if self._rows("PRAGMA application_id") != [(APPLICATION_ID,)]:
            raise StoreCorruptError(f"{self.path} is no database of this service")
        layout = self._rows("PRAGMA user_version")[0][0] or 1
        if layout != LAYOUT:
            raise StoreOutdatedError(
                f"database {self.path} has layout {layout}, and this version of zoolib reads layout {LAYOUT}: "
                "open it with the version that made it, or start the service on a new file"
            )

    @contextmanager
    def _errors(self) -> Iterator[None]:
        """Turn SQLite's errors into ours, which name the file."""
        try:
            yield
        except sqlite3.Error as error:
            name = getattr(error, "sqlite_errorname", None) or ""
            start = next(start for start in ERRORS if name.startswith(start))
            kind, words = ERRORS[start]
            raise kind(f"database {self.path} {words}: {error}") from error

    @contextmanager
    def alone(self) -> Iterator[None]:
        """Keep other threads out."""
        if not self._lock.acquire(timeout=TIMEOUT):
            raise StoreLockedError(f"database {self.path} is locked by another thread")
        try:
            yield
        finally:
            self._lock.release()

    @contextmanager
    def transaction(self) -> Iterator[sqlite3.Connection]:
        """Do everything inside, on disk when this returns, or nothing."""
        with self.alone(), self._errors():
            self._db.execute("BEGIN IMMEDIATE")
            try:
                yield self._db
                self.commit()
            except BaseException:
                if self._db.in_transaction:
                    self._db.execute("ROLLBACK")
                raise

    def commit(self) -> None:
        """Put what the transaction changed on the disk."""
        self._db.execute("COMMIT")

    def _rows(self, sql: str, *values: Any) -> list[tuple]:
        with self.alone(), self._errors():
            return self._db.execute(sql, values).fetchall()
