"""The gate: random small faults in zoolib, and which test notices each of them.

A suite is as good as the faults that it notices. Before tests go, this script says what they alone noticed:

    python -m tests.mutants draw --count 300 --seed 1 --to before.jsonl
    python -m tests.mutants again before.jsonl --to after.jsonl
    python -m tests.mutants again before.jsonl --without tests/test_a.py::test_b --to without.jsonl

``draw`` makes faults, spread evenly over the modules, in lines that tests of the library execute. Each is
put into a copy of the project, where the tests that execute its line run, quickest first, until one
fails: the killer. ``again`` runs the faults of an earlier record, with the tests of today; with
``--without`` only those whose killer is left out: a test may go if the others kill them all. Which test
executes which line is measured once for each state of the sources and takes as long as the tests of the
library do.
"""

from __future__ import annotations

import argparse
import ast
import copy
import hashlib
import json
import os
import random
import shutil
import subprocess
import sys
from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import NamedTuple
from unittest.mock import patch

from coverage import CoverageData

from tests.notebooks import ONE_THREAD
from tests.stages import ROOT, pytest, stages

MEASURED = ROOT / "_build/mutants"
SWAPPED = {
    ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt,
    ast.Eq: ast.NotEq, ast.NotEq: ast.Eq, ast.Is: ast.IsNot, ast.IsNot: ast.Is,
    ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And,
    ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Div,
    ast.Mod: ast.Mult, ast.Pow: ast.Mult, ast.BitAnd: ast.BitOr, ast.BitOr: ast.BitAnd,
}  # fmt: skip


class Mutant(NamedTuple):
    """A fault: in this module, from this line on, one text stands in place of another."""

    module: str
    line: int
    column: int
    before: str
    after: str


def faults_of(node: ast.AST) -> Iterator[ast.AST]:
    """Yield what may stand in place of a node."""
    if isinstance(node, ast.Compare):
        for i, op in enumerate(node.ops):
            changed = copy.copy(node)
            changed.ops = [*node.ops[:i], SWAPPED[type(op)](), *node.ops[i + 1 :]]
            yield changed
    elif isinstance(node, ast.BoolOp | ast.BinOp) and type(node.op) in SWAPPED:
        changed = copy.copy(node)
        changed.op = SWAPPED[type(node.op)]()
        yield changed
    elif isinstance(node, ast.UnaryOp) and isinstance(node.op, ast.Not | ast.USub):
        yield node.operand
    elif isinstance(node, ast.Constant):
        if isinstance(node.value, bool):
            yield ast.Constant(not node.value)
        elif isinstance(node.value, int | float):
            yield ast.Constant(node.value + 1)
    elif isinstance(node, ast.IfExp):
        yield ast.IfExp(ast.UnaryOp(ast.Not(), node.test), node.body, node.orelse)
    elif isinstance(node, ast.Return) and node.value is not None:
        if not (isinstance(node.value, ast.Constant) and node.value.value is None):
            yield ast.Return(ast.Constant(None))
    elif isinstance(node, ast.AugAssign | ast.Raise) or (
        isinstance(node, ast.Expr) and isinstance(node.value, ast.Call)
    ):
        yield ast.Pass()


def code_in(tree: ast.AST) -> Iterator[ast.AST]:
    """Yield the nodes of bodies of functions, without annotations, texts and what is for type checkers."""
    for function in ast.walk(tree):
        if isinstance(function, ast.FunctionDef):
            waiting = list(function.body)
            while waiting:
                node = waiting.pop()
                if isinstance(node, ast.FunctionDef | ast.ClassDef | ast.JoinedStr):
                    continue
                yield node
                left_out = getattr(node, "annotation", None)
                waiting += [x for x in ast.iter_child_nodes(node) if x is not left_out]


def mutants_of(module: str, source: str) -> list[Mutant]:
    """List all faults of a module, in the order of its lines."""
    lines = source.encode().splitlines(keepends=True)
    found = set()
    for node in code_in(ast.parse(source)):
        for changed in faults_of(node):
            before = ast.get_source_segment(source, node)
            after = ast.unparse(ast.fix_missing_locations(changed))
            if isinstance(node, ast.expr) and not isinstance(node, ast.Constant):
                after = f"({after})"
            column = len(lines[node.lineno - 1][: node.col_offset].decode())
            found.add(Mutant(module, node.lineno, column, before, after))
    return sorted(found)


def mutated(mutant: Mutant, source: str) -> str:
    """Return the source of a module with the fault in it.

    Raises
    ------
    ValueError
        If the text that it changes no longer stands there.
    """
    lines = source.splitlines(keepends=True)
    start = sum(map(len, lines[: mutant.line - 1])) + mutant.column
    if not source.startswith(mutant.before, start):
        raise ValueError(f"{mutant.module}:{mutant.line} has changed: {mutant.before}")
    return source[:start] + mutant.after + source[start + len(mutant.before) :]


def drawn(
    tests_at: dict[str, dict[int, list[str]]], count: int, seed: int
) -> list[Mutant]:
    """Draw faults in executed lines, one module after another, so that small modules count as large ones."""
    rng = random.Random(seed)
    left = {}
    for module, tests in sorted(tests_at.items()):
        faults = mutants_of(module, (ROOT / module).read_text())
        faults = [fault for fault in faults if tests.get(fault.line)]
        left[module] = rng.sample(faults, len(faults))
    found: list[Mutant] = []
    while len(found) < count and any(left.values()):
        found += [faults.pop() for faults in left.values() if faults]
    return found[:count]


class Recorder:
    """A plugin of pytest that writes how long each test took, and whether it held."""

    def __init__(self, path: str) -> None:
        self.path = path

    def pytest_runtest_logreport(self, report) -> None:
        """Write one line for each call, and for whatever failed before or after it."""
        if report.when == "call" or report.failed:
            row = {"test": report.nodeid, "s": report.duration, "failed": report.failed}
            with open(self.path, "a") as file:
                file.write(json.dumps(row) + "\n")


def pytest_configure(config) -> None:
    """Register the recorder in the process that pytest was started in, not in its workers."""
    path = os.environ.get("MUTANTS_RECORD")
    if path and not hasattr(config, "workerinput"):
        config.pluginmanager.register(Recorder(path))


def run(command: list[str], folder: Path, limit_s: float | None = None) -> list[dict]:
    """Run pytest from a folder, its library first on the path; return the rows of the recorder."""
    with TemporaryDirectory() as kept:
        rows = Path(kept) / "rows"
        rows.touch()
        environment = os.environ | ONE_THREAD | {"MUTANTS_RECORD": str(rows)}
        environment |= {"PYTHONPATH": str(folder), "ZOOLIB_LENIENT": "0"}
        plugins = ["-p", "tests.mutants", "-p", "no:cacheprovider"]
        try:
            ended = subprocess.run(
                [*command, *plugins],
                cwd=folder,
                env=environment,
                timeout=limit_s,
                capture_output=True,
                check=False,
            )
        except subprocess.TimeoutExpired:
            return [{"test": "the limit of time", "s": limit_s, "failed": True}]
        found = [json.loads(row) for row in rows.read_text().splitlines()]
    if ended.returncode and not any(row["failed"] for row in found):
        found.append({"test": "no test could begin", "s": 0, "failed": True})
    return found


@contextmanager
def copied() -> Iterator[Path]:
    """Lend a copy of the project without what is built; a fault in it hurts nobody."""
    left_out = (".git", ".venv*", ".*_cache", "_build", "__pycache__", "notebooks")
    with TemporaryDirectory() as kept:
        folder = Path(kept) / "book"
        shutil.copytree(ROOT, folder, ignore=shutil.ignore_patterns(*left_out))
        yield folder


def measured(folder: Path) -> tuple[dict[str, dict[int, list[str]]], dict[str, float]]:
    """Return which tests execute each line of each module, quickest first, and the seconds of each test."""
    sources = sorted([*ROOT.glob("zoolib/**/*.py"), *ROOT.glob("tests/**/*.py")])
    digest = hashlib.sha256(b"".join(file.read_bytes() for file in sources))
    data, times = (MEASURED / f"{digest.hexdigest()[:16]}.{x}" for x in ("cov", "json"))
    if not times.exists():
        MEASURED.mkdir(parents=True, exist_ok=True)
        (library,) = stages()["library"].commands
        by_test = ["--cov-context=test", "--cov-report=", "--cov-fail-under=0"]
        with patch.dict(os.environ, COVERAGE_FILE=str(data)):
            rows = run([*library, *by_test], folder)
        failed = {row["test"] for row in rows if row["failed"]}
        print(f"{len(failed)} tests fail in a copy and judge nothing: {sorted(failed)}")
        seconds = {row["test"]: row["s"] for row in rows if row["test"] not in failed}
        times.write_text(json.dumps(seconds))
    coverage, seconds = CoverageData(str(data)), json.loads(times.read_text())
    coverage.read()
    tests_at: dict[str, dict[int, list[str]]] = {}
    for file in coverage.measured_files():
        lines = defaultdict(list)
        for line, contexts in coverage.contexts_by_lineno(file).items():
            tests = {context.rpartition("|")[0] for context in contexts}
            lines[line] = sorted(tests & seconds.keys(), key=seconds.__getitem__)
        tests_at["zoolib/" + file.rpartition("/zoolib/")[2]] = lines
    return tests_at, seconds


def judge(mutant: Mutant, tests: list[str], limit_s: float, folder: Path) -> str | None:
    """Put a fault into the copy of the project; return the first of the tests that notices it."""
    file, source = folder / mutant.module, (ROOT / mutant.module).read_text()
    file.write_text(mutated(mutant, source))
    (folder / "chosen.txt").write_text("\n".join(tests))
    rows = run(pytest("-x", "@chosen.txt"), folder, limit_s) if tests else []
    file.write_text(source)
    return next((row["test"] for row in rows if row["failed"]), None)


def main(arguments: list[str]) -> None:
    """Run the command line."""
    parser = argparse.ArgumentParser(prog="python -m tests.mutants")
    commands = parser.add_subparsers(dest="command", required=True)
    draw, again = commands.add_parser("draw"), commands.add_parser("again")
    draw.add_argument("--count", type=int, default=300)
    draw.add_argument("--seed", type=int, required=True)
    again.add_argument("record", type=Path)
    again.add_argument("--without", nargs="+", default=[], metavar="TEST")
    for command in (draw, again):
        command.add_argument("--to", type=Path, required=True)
    chosen = parser.parse_args(arguments)
    without, rows = tuple(getattr(chosen, "without", ())), []
    with copied() as folder:
        tests_at, seconds = measured(folder)
        if chosen.command == "draw":
            mutants = drawn(tests_at, chosen.count, chosen.seed)
        else:
            known = map(json.loads, chosen.record.read_text().splitlines())
            mutants = [
                Mutant(**{name: row[name] for name in Mutant._fields})
                for row in known
                if not without or (row["killer"] or "").startswith(without)
            ]
        for mutant in mutants:
            tests = tests_at[mutant.module][mutant.line]
            tests = [test for test in tests if not test.startswith(without or "\n")]
            limit_s = 120 + 3 * sum(seconds[test] for test in tests)
            killer = judge(mutant, tests, limit_s, folder)
            rows.append(mutant._asdict() | {"tests": len(tests), "killer": killer})
            with chosen.to.open("a") as record:
                record.write(json.dumps(rows[-1]) + "\n")
            change = f"{mutant.before!r} -> {mutant.after!r}"
            print(f"{mutant.module}:{mutant.line}  {change}: {killer or 'SURVIVES'}")
    print(f"{sum(row['killer'] is not None for row in rows)} of {len(rows)} killed")


if __name__ == "__main__":
    main(sys.argv[1:])
