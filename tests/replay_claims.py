"""Replay the claims of chapters in other worlds, and list those that fail.

The cells of a chapter run as they stand, except that the line ``SEEDS = range(n)`` names the n seeds from
--first-seed on. Claims about these seeds are counted as replayed. Claims about other seeds run as in the
book: those about the world of seed 42, which the text walks through, about worlds on which settings were
tuned, and about streams whose seeds a cell names itself. Records know only the book's seeds: the agents of
a recorded run play in the other worlds, other recorded results are computed anew, and a cell that reads a
recorded sweep is left out, as are the cells that need a name from it.

The bounds of most claims leave room, but no bound holds for every set of twenty worlds: a few failures
are expected.
"""

from __future__ import annotations

import argparse
import ast
import contextlib
import io
import linecache
import os
import re
import sys
import traceback
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import jupytext

import zoolib

CHAPTERS = Path(__file__).resolve().parent.parent / "chapters"
SEEDS = re.compile(r"^SEEDS = range\((\d+)\)", re.MULTILINE)


class RecordedError(Exception):
    """Raised where a cell asks for a recorded sweep."""


@dataclass
class Replay:
    """What became of the claims of a page, by their keys.

    Attributes
    ----------
    seeds : range
        The worlds.
    held, failed : dict of str to str
        Claims that hold and that do not, with what was found and wanted.
    other : list of str
        Those among both that are about other seeds, or none.
    left_out : list of str
        Claims in cells that were left out or broke off, as the cells name them.
    broken : dict of str to str
        First line and error of each cell that broke off.
    """

    seeds: range
    held: dict[str, str] = field(default_factory=dict)
    failed: dict[str, str] = field(default_factory=dict)
    other: list[str] = field(default_factory=list)
    left_out: list[str] = field(default_factory=list)
    broken: dict[str, str] = field(default_factory=dict)

    def __str__(self) -> str:
        other = [key in self.other for key in (*self.held, *self.failed)]
        n_held = sum(key not in self.other for key in self.held)
        lines = [f"{n_held} of {other.count(False)} replayed claims hold"]
        lines += [
            f"  fails{' (other seeds)' * (key in self.other)}: {said}"
            for key, said in self.failed.items()
        ]
        lines += [f"  cell breaks off: {at}: {why}" for at, why in self.broken.items()]
        lines += [f"  {len(self.other)} claims about other seeds run as in the book"]
        if self.left_out:
            lines += [f"  {len(self.left_out)} left out: {', '.join(self.left_out)}"]
        return "\n".join(lines)


def replay(page: Path, first_seed: int) -> Replay:
    """Run the cells of a page in other worlds.

    Parameters
    ----------
    page : Path
        A chapter in MyST Markdown with a line ``SEEDS = range(n)``.
    first_seed : int
        The worlds have the n seeds from this one on.

    Returns
    -------
    Replay

    Raises
    ------
    ValueError
        If the page has no such line.
    """
    code = [c.source for c in jupytext.read(page).cells if c.cell_type == "code"]
    found = SEEDS.search("\n".join(code))
    if not found:
        raise ValueError(f"{page} must have a cell with SEEDS = range(n): it has none")
    outcome = Replay(range(first_seed, first_seed + int(found[1])))
    names: dict[str, Any] = {"__name__": "__main__"}
    lost: set[str] = set()
    with _noting(outcome):
        for cell in code:
            _run(SEEDS.sub(f"SEEDS = {outcome.seeds}", cell), names, lost, outcome)
    return outcome


@contextlib.contextmanager
def _noting(outcome: Replay) -> Iterator[None]:
    """Give cells a `claim` that does not stop them, and functions that read no record."""
    claim, sweep, recorded = zoolib.claim, zoolib.sweep, zoolib.RecordedRuns

    def note(key: str, *args: Any, **options: Any) -> None:
        seeds = options.get("seeds")
        if seeds is None or not {*seeds} <= {*outcome.seeds}:
            outcome.other.append(key)
        try:
            with contextlib.redirect_stdout(io.StringIO()) as said:
                claim(key, *args, **options)
            outcome.held[key] = said.getvalue().strip()
        except AssertionError as error:
            outcome.failed[key] = f"{key}: {error}"

    def without_record(*args: Any, path: Any = None, **options: Any) -> zoolib.Sweep:
        if path is not None:
            raise RecordedError(path)
        return sweep(*args, **options)

    def played(path: Any, agents: dict, *args: Any, **options: Any) -> zoolib.History:
        for only_of_records in ("by", "begin", "may_differ"):
            options.pop(only_of_records, None)
        agents = {**options.pop("live", {}), **agents}
        return zoolib.run_experiment(agents, *args, **options)

    others = {"sweep": without_record, "recorded_experiment": played}
    with TemporaryDirectory() as empty:  # no result is there yet, and none is kept

        def anew(path: Any) -> zoolib.RecordedRuns:
            return recorded(Path(empty) / Path(path).name)

        with patch.multiple(zoolib, claim=note, RecordedRuns=anew, **others):
            yield


def _run(cell: str, names: dict[str, Any], lost: set[str], outcome: Replay) -> None:
    """Run a cell; if it ends early, forget all names that it sets, so that none is out of date."""
    try:
        with contextlib.redirect_stdout(io.StringIO()):
            place = f"<cell {len(linecache.cache)}>"  # where `listing` finds the source of what it defines
            linecache.cache[place] = len(cell), None, cell.splitlines(True), place
            exec(compile(cell, place, "exec"), names)
    except Exception as error:
        recorded = isinstance(error, RecordedError)
        if not recorded and not (isinstance(error, NameError) and error.name in lost):
            outcome.broken[cell.partition("\n")[0]] = repr(error)
            traceback.print_exc()
        nodes = list(ast.walk(ast.parse(cell)))
        names_in_it = [n for n in nodes if isinstance(n, ast.Name)]
        lost |= {n.id for n in names_in_it if isinstance(n.ctx, ast.Store)}
        lost |= {n.name for n in nodes if isinstance(n, ast.FunctionDef)}
        for name in lost & names.keys():
            del names[name]
        calls = [one for one in nodes if isinstance(one, ast.Call)]
        keys = [_key(one) for one in calls if getattr(one.func, "id", "") == "claim"]
        done = {*outcome.held, *outcome.failed}
        outcome.left_out += [key for key in keys if key not in done]
    figures = sys.modules.get("matplotlib.pyplot")
    if figures:
        figures.close("all")


def _key(call: ast.Call) -> str:
    """Return the key of a claim; of one that is made in a loop, how it is made."""
    key = call.args[0]
    return key.value if isinstance(key, ast.Constant) else ast.unparse(key)


def main(arguments: list[str] | None = None) -> int:
    """Replay chapters and print what became of their claims; return 1 if a claim fails."""
    parser = argparse.ArgumentParser(
        prog="python -m tests.replay_claims",
        description=__doc__,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    pages = sorted(
        one.relative_to(CHAPTERS).with_suffix("").as_posix()
        for one in CHAPTERS.rglob("*.md")
        if SEEDS.search(one.read_text())
    )
    parser.add_argument("chapters", nargs="+", metavar="CHAPTER", help=", ".join(pages))
    parser.add_argument("--first-seed", type=int, default=500, help="default: 500")
    chosen = parser.parse_args(arguments)
    unknown = [name for name in chosen.chapters if name not in pages]
    if unknown or chosen.first_seed < 0:
        parser.error(f"wanted any of {', '.join(pages)}, and a seed of at least 0")
    os.environ |= {"MPLBACKEND": "agg", "TQDM_DISABLE": "1"}
    failed = False
    for name in chosen.chapters:
        outcome = replay(CHAPTERS / f"{name}.md", chosen.first_seed)
        print(
            f"{name}, seeds {outcome.seeds[0]} to {outcome.seeds[-1]}: {outcome}",
            flush=True,
        )
        failed |= bool(outcome.failed or outcome.broken)
    return int(failed)


if __name__ == "__main__":
    sys.exit(main())
