"""The file of a sweep: a line that says what all tasks have in common, and one for each finished task.

A line is appended when its task is finished; a writer that dies leaves at worst a torn last line. When
the sweep is complete, the file is written anew in the order of the grid. Every line is JSON and carries
the CRC-32 of its own text without it, so that a damaged line is known and counts as not written.
"""

from __future__ import annotations

import json
import math
import os
import sys
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

from zoolib._files import append_line, write_whole

Value = bool | int | float | str | tuple | None


@dataclass(frozen=True)
class Task:
    """One agent with one setting in some of the worlds."""

    agent: str
    setting: dict[str, Value]
    seeds: tuple[int, ...]

    @property
    def cell(self) -> tuple:
        """Agent and setting, whatever the order of the setting's names."""
        return self.agent, *sorted(self.setting.items())

    @property
    def key(self) -> tuple:
        """What tells this task from all others."""
        return self.cell, self.seeds

    def __str__(self) -> str:
        worlds = ", ".join(map(str, self.seeds))
        given = ", ".join(f"{name}={value!r}" for name, value in self.setting.items())
        return f"agent {self.agent!r} with {given or 'no settings'} in worlds {worlds}"


@dataclass(frozen=True)
class Finished(Task):
    """A task that was played, and its measures: one number a world each."""

    measures: dict[str, list[float]]


class Ledger:
    """The finished tasks of a sweep in a file.

    Parameters
    ----------
    path : path-like or None
        The file; None keeps nothing.
    header : dict
        What all tasks have in common. Its ``agents`` may grow, for they are part of the grid.
    """

    def __init__(
        self, path: str | os.PathLike[str] | None, header: dict[str, object]
    ) -> None:
        self.path = None if path is None else Path(path)
        self._header = json.loads(json.dumps(header))  # as it will be read
        if self.path and (self.path.is_dir() or not self.path.parent.is_dir()):
            raise ValueError(
                f"path must name a file in an existing folder: got {os.fspath(path)!r}"
            )

    def read(self) -> list[Finished]:
        """Return the finished tasks in the file; say on stderr if lines are damaged.

        Raises
        ------
        ValueError
            If the file is something else, or belongs to another experiment. It is left as it is.
        """
        content = self._content()
        if not content:
            return []
        first, *rest = content.splitlines()
        self._compare(_decoded(first))
        lines = [_decoded(line) for line in rest]
        finished = [_finished(line) for line in lines if line and "seeds" in line]
        damaged = len(lines) - len(finished)
        if damaged:
            print(
                f"{damaged} damaged lines in {str(self.path)!r} count as not finished",
                file=sys.stderr,
            )
        return finished

    def _content(self) -> bytes:
        return self.path.read_bytes() if self.path and self.path.exists() else b""

    def _compare(self, header: dict | None) -> None:
        """Refuse the header of another experiment."""
        if header is None or header.keys() != self._header.keys():
            raise ValueError(f"path must name a file of sweep: got {str(self.path)!r}")
        for name, ours in self._header.items():
            theirs = header[name]
            if name == "agents":  # of those in both
                ours = {agent: ours[agent] for agent in ours if agent in theirs}
                theirs = {agent: theirs[agent] for agent in theirs if agent in ours}
            if ours != theirs:
                raise ValueError(
                    f"path must name a file of the same experiment: {name} of {str(self.path)!r} "
                    f"is {theirs!r}, not {ours!r}"
                )

    def add(self, finished: Finished) -> None:
        """Append a task; it is on disk when this returns."""
        if self.path:
            append_line(self.path, _encoded(_record(finished)))

    def write(self, finished: Iterable[Finished]) -> None:
        """Write the file anew, whole or not at all, unless this is what it holds."""
        if not self.path:
            return
        lines = [_encoded(self._header), *(_encoded(_record(one)) for one in finished)]
        content = b"".join(line + b"\n" for line in lines)
        if content != self._content():
            write_whole(self.path, lambda file: file.write(content))


def _record(finished: Finished) -> dict[str, object]:
    measures = {
        name: [_as_json(number) for number in numbers]
        for name, numbers in finished.measures.items()
    }
    return vars(finished) | {"measures": measures}


def _finished(record: dict) -> Finished:
    setting = {name: _frozen(value) for name, value in record["setting"].items()}
    measures = {
        name: [float(number) for number in numbers]
        for name, numbers in record["measures"].items()
    }
    return Finished(record["agent"], setting, tuple(record["seeds"]), measures)


def _as_json(number: float) -> float | str:
    """Return a number that JSON can hold, or "nan", "inf", "-inf", which `float` reads."""
    return number if math.isfinite(number) else str(number)


def _frozen(value: object) -> Value:
    """Return tuples for JSON's lists, inside and out."""
    return tuple(map(_frozen, value)) if isinstance(value, list) else value


def _encoded(record: dict[str, object]) -> bytes:
    text = json.dumps(record, allow_nan=False).encode()
    return text[:-1] + b', "crc32": %d}' % zlib.crc32(text)


def _decoded(line: bytes) -> dict | None:
    """Return what a line holds; None if it is damaged."""
    try:
        record = json.loads(line)
        record.pop("crc32")
        return record if _encoded(record) == line else None
    except (ValueError, KeyError, AttributeError, TypeError):
        return None
