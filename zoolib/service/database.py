"""The database file: its tables, its owner, its transactions, and what can go wrong with it.

An exception may come at any moment, since Ctrl-C or a time limit raises one between any two steps. So the lock
is taken by a ``with`` on the lock itself, which leaves no moment in between, and whoever finds a transaction
that nobody ended undoes it first.
"""

from __future__ import annotations

import os
import sqlite3
import threading
from os import PathLike
from pathlib import Path
from typing import Any

SCHEMA = """
CREATE TABLE facts (name TEXT PRIMARY KEY, value TEXT NOT NULL) STRICT;
CREATE TABLE tables (id INTEGER PRIMARY KEY, features BLOB NOT NULL) STRICT;
CREATE TABLE contexts (
    id INTEGER PRIMARY KEY,
    visitor BLOB NOT NULL,
    products INTEGER REFERENCES tables
) STRICT;
CREATE INDEX contexts_with_table ON contexts (products);
CREATE TABLE events (
    id INTEGER PRIMARY KEY AUTOINCREMENT,
    user BLOB NOT NULL,
    context INTEGER REFERENCES contexts,
    offered BLOB,
    arm INTEGER NOT NULL CHECK (arm >= 0),
    propensity REAL NOT NULL CHECK (propensity > 0 AND propensity <= 1),
    version TEXT NOT NULL,
    assigned TEXT NOT NULL,
    time REAL NOT NULL,
    due REAL NOT NULL,
    open INTEGER NOT NULL DEFAULT 1 CHECK (open IN (0, 1)),
    claimed REAL CHECK (claimed BETWEEN 0 AND 1),
    request BLOB
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
CREATE TABLE set_aside (
    version TEXT NOT NULL,
    seq INTEGER NOT NULL REFERENCES rewards ON DELETE CASCADE,
    reason TEXT NOT NULL,
    PRIMARY KEY (version, seq)
) STRICT;
CREATE INDEX set_aside_rewards ON set_aside (seq);
CREATE TABLE versions (
    name TEXT PRIMARY KEY,
    state TEXT NOT NULL CHECK (state IN ('candidate', 'rolling', 'active', 'retired')),
    share INTEGER NOT NULL CHECK (share BETWEEN 0 AND 100),
    since INTEGER NOT NULL,
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
LAYOUT = 5  # grows with every change of the tables or of what their blobs mean
TIMEOUT = 5.0  # seconds to wait for a program that writes to the file though it does not own it
OWNER = "owner"  # the fact that names the process that serves
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
    """Another process serves the file, or has written to it for longer than `TIMEOUT`."""


class StoreFullError(StoreError):
    """There is no room left on the disk."""


class StoreCorruptError(StoreError):
    """The file is damaged, or not a database of this service."""


class StoreOutdatedError(StoreError):
    """The file was made by a version of the library that laid it out differently."""


ERRORS = {
    "SQLITE_BUSY": (StoreLockedError, "is locked by another program that writes to it"),
    "SQLITE_FULL": (StoreFullError, "has no room left on its disk"),
    "SQLITE_CORRUPT": (StoreCorruptError, "is damaged"),
    "SQLITE_NOTADB": (StoreCorruptError, "is damaged, or no database at all"),
    "": (StoreError, "refused"),
}


class Database:
    """A file of this service: opened or made, checked, owned, and changed in transactions, one at a time.

    Parameters
    ----------
    path : str or path
        The file.
    owned : bool, default True
        Whether this process is to own it. Else it is only read, and another process may serve it meanwhile.
    """

    def __init__(self, path: str | PathLike[str], owned: bool = True) -> None:
        if str(path) in ("", ":memory:") or str(path).startswith("file:"):
            raise ValueError(f"path must be of a file on a disk: got {str(path)!r}")
        self.path = Path(path)
        self.owned = owned
        self.trouble = ""  # the last error, until something succeeds
        self._lock = threading.RLock()
        self._process = os.getpid()
        self._owner = None
        self._db = None
        self._closed = False
        try:
            self._db = self._connect(self.path, TIMEOUT)
            self._open()
            self._file = self.path.stat()
        except sqlite3.Error as error:
            self.close()
            raise self._named(error) from error
        except BaseException:
            self.close()
            raise

    def close(self) -> None:
        """Close the file, when no other thread is at it; it is no longer owned then."""
        if self._process != os.getpid():  # it is that of the process before the fork
            return
        with self._lock:
            self._closed = True
            for connection in (self._db, self._owner):
                if connection is not None:
                    connection.close()

    def _connect(self, path: Path, timeout: float) -> sqlite3.Connection:
        mode = "rwc" if self.owned else "ro"
        return sqlite3.connect(
            f"{path.absolute().as_uri()}?mode={mode}",
            timeout=timeout,
            isolation_level=None,
            check_same_thread=False,
            uri=True,
        )

    def _open(self) -> None:
        damage = self._db.execute("PRAGMA quick_check(1)").fetchone()[0]
        if damage != "ok":
            raise StoreCorruptError(f"database {self.path} is damaged: {damage}")
        if not self.owned or not self._is_empty():
            self._check_layout()  # before anything is changed
        if not self.owned:
            return
        self._own()
        for pragma in PRAGMAS:
            found = self._db.execute(f"PRAGMA {pragma}").fetchone()
            if pragma.endswith("WAL") and found != ("wal",):
                raise StoreError(
                    f"database {self.path} must be on a disk that can hold a write-ahead log: got {found[0]}"
                )
        with self.alone, self as db:
            if self._is_empty():
                for statement in SCHEMA.split(";\n"):
                    db.execute(statement)
                db.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                db.execute(f"PRAGMA user_version = {LAYOUT}")
            me = OWNER, f"process {self._process}"
            db.execute("INSERT OR REPLACE INTO facts VALUES (?, ?)", me)

    def _own(self) -> None:
        """Lock a file beside the database, empty for good, until this one is closed or the process ends.

        It is a lock of the operating system, taken by SQLite: a forked process does not inherit it.
        """
        real = self.path.resolve()  # whatever links lead to it
        beside = real.with_name(f"{real.name}-owner")
        self._owner = self._connect(beside, 0)
        try:
            self._owner.execute("BEGIN EXCLUSIVE")
        except sqlite3.OperationalError as error:
            query = "SELECT value FROM facts WHERE name = ?"
            known = () if self._is_empty() else self._db.execute(query, (OWNER,))
            holder = next((name for (name,) in known), "another process")
            raise StoreLockedError(
                f"database {self.path} is served by {holder}, and one process at a time owns a file: "
                "send it the visits, or read the log beside it with read_log"
            ) from error

    def _is_empty(self) -> bool:
        return not self._db.execute("SELECT 1 FROM sqlite_master").fetchone()

    def _check_layout(self) -> None:
        if self._db.execute("PRAGMA application_id").fetchone()[0] != APPLICATION_ID:
            raise StoreCorruptError(f"{self.path} is no database of this service")
        layout = self._db.execute("PRAGMA user_version").fetchone()[0] or 1
        if layout != LAYOUT:
            raise StoreOutdatedError(
                f"database {self.path} has layout {layout}, and this version of zoolib reads layout {LAYOUT}: "
                "open it with the version that made it, or start the service on a new file"
            )

    def is_in_place(self) -> bool:
        """Return whether the file at the path is still the one that was opened."""
        try:
            return os.path.samestat(self.path.stat(), self._file)
        except FileNotFoundError:
            return False

    def _named(self, error: sqlite3.Error) -> StoreError:
        """Return our error for one of SQLite's: it names the file."""
        name = getattr(error, "sqlite_errorname", None) or ""
        start = next(start for start in ERRORS if name.startswith(start))
        kind, words = ERRORS[start]
        self.trouble = f"database {self.path} {words}: {error}"
        return kind(self.trouble)

    @property
    def alone(self) -> threading.RLock:
        """What keeps other threads out, for a ``with``; an error in a process that was forked meanwhile."""
        if self._process != os.getpid():
            raise StoreError(
                f"database {self.path} was opened by process {self._process}, before a fork: "
                "open it after the fork, in the process that serves"
            )
        if self._closed:
            raise StoreError(f"{self.path} is a closed database")
        return self._lock

    def commit(self) -> None:
        """Put what the transaction changed on the disk."""
        self._db.execute("COMMIT")

    def _undo(self) -> None:
        """Undo what a transaction has changed that was never ended."""
        if self._db.in_transaction:
            self._db.execute("ROLLBACK")

    def __enter__(self) -> sqlite3.Connection:
        """Begin a transaction; whoever does is `alone`."""
        try:
            self._undo()
            self._db.execute("BEGIN IMMEDIATE")
        except sqlite3.Error as error:
            raise self._named(error) from error
        return self._db

    def __exit__(self, kind: type | None, error: BaseException | None, _: Any) -> None:
        """End it: all that was done is on the disk now, or after an exception nothing."""
        try:
            if isinstance(error, sqlite3.Error):
                raise error
            if kind is None:
                self.commit()
                self.trouble = ""
        except sqlite3.Error as refused:
            raise self._named(refused) from refused
        finally:
            self._undo()

    def _rows(self, sql: str, *values: Any, **named: Any) -> list[tuple]:
        """Return what a query finds; not for use in a transaction."""
        with self.alone:
            try:
                self._undo()
                return self._db.execute(sql, named or values).fetchall()
            except sqlite3.Error as error:
                raise self._named(error) from error
