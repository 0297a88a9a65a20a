"""What a page that teaches may consist of, and which pages are held to it."""

from __future__ import annotations

import ast
import builtins
import re
import symtable
from collections.abc import Iterator
from functools import cache
from pathlib import Path
from typing import NamedTuple

import zoolib

# Pages that are written anew, in `chapters/`; the others follow one by one.
TAUGHT = [
    "static-recommender",
    "linucb",
    "neural-bandits",
    "practice",
    "large",
    "production",
    "sessions",
]

CELL = re.compile(
    r"^```\{code-cell\}[^\n]*\n(---\n.*?^---\n|(?::[\w-]+:[^\n]*\n)*)(.*?)^```",
    re.S | re.M,
)
ASIDE = r"^```\{%s-start\}.*?^```\{%s-end\}"
LONGEST, LONGEST_CLASS, LONGEST_FIGURE = 15, 40, 12
# So many characters fit on a screen of 1280 pixels: on the page, in an exercise, in a solution.
WIDEST = {"": 88, "exercise": 79, "solution": 86}
OPEN_AT_LEAST, LINKS_AT_MOST = 0.75, 10
COMPUTES = {"play", "run_experiment", "recorded_experiment", "sweep", "train", "fit"}
COMPUTES |= {"select", "update"}
FORBIDDEN = ("zoolib.agents", "zoolib.large", "zoolib.models")
FORBIDDEN += ("zoolib.sessions.dqn", "zoolib.sessions.tabular")
DEFINITIONS = ast.FunctionDef | ast.ClassDef | ast.Lambda
IMPORTS = ast.Import | ast.ImportFrom


class Cell(NamedTuple):
    """A code cell: its options, its code, and whether it belongs to an exercise or a solution."""

    options: str
    code: str
    aside: str

    @property
    def tree(self) -> ast.Module:
        return ast.parse(self.code)

    @property
    def lines(self) -> int:
        return sum(bool(line.strip()) for line in self.code.splitlines())

    @property
    def kind(self) -> str:
        """Say what a cell is; one that is none of the kinds that a page may have is "folded"."""
        if "hide-input" not in self.options:
            return "open"
        if re.search(r"^ *figure:", self.options, re.M):
            return "figure"
        if any(name.endswith("claim") for name in calls(self)):
            return "checks"
        prepares = all(isinstance(one, IMPORTS | ast.Expr) for one in self.tree.body)
        imports = any(isinstance(one, IMPORTS) for one in self.tree.body)
        return "set-up" if prepares and imports else "folded"


def cells(page: str) -> Iterator[Cell]:
    """Yield the code cells of a page's source."""
    spans = {
        kind: [found.span() for found in re.finditer(form, page, re.S | re.M)]
        for kind in ("exercise", "solution")
        for form in [ASIDE % (kind, kind)]
    }
    for found in CELL.finditer(page):
        at = [
            kind
            for kind, places in spans.items()
            if any(start < found.start() < end for start, end in places)
        ]
        code = re.sub(r"(?m)^[%!].*$", "", found[2])
        yield Cell(found[1], code, *at or [""])


def calls(cell: Cell) -> set[str]:
    """Name all that a cell calls, by the last part of its name."""
    called = [n.func for n in ast.walk(cell.tree) if isinstance(n, ast.Call)]
    return {ast.unparse(one).rpartition(".")[2] for one in called}


def named(code: str) -> tuple[set[str], set[str]]:
    """Return the names that code reads from outside, and those that it binds."""
    top = symtable.symtable(code, "cell", "exec")
    binds = {s.get_name() for s in top.get_symbols() if s.is_local()}
    reads, tables = set(), [top]
    while tables:
        table = tables.pop()
        tables += table.get_children()
        found = table.get_symbols()
        reads |= {s.get_name() for s in found if s.is_referenced() and s.is_global()}
    return reads - binds - {*dir(builtins), "display"}, binds


@cache
def homes() -> dict[str, str]:
    """Return the module of each public name of the library."""
    stub = ast.parse(Path(zoolib.__file__).with_suffix(".pyi").read_text())
    imports = [line for line in stub.body if isinstance(line, ast.ImportFrom)]
    return {
        alias.name: f"zoolib.{line.module or alias.name}"
        for line in imports
        for alias in line.names
    }


def borrowed(page: list[Cell]) -> set[str]:
    """Name what classes of a page use of the library's agents and models."""
    imported: dict[str, str] = {}
    for node in (node for cell in page for node in ast.walk(cell.tree)):
        if isinstance(node, IMPORTS):
            source = f"{node.module}." if isinstance(node, ast.ImportFrom) else ""
            imported |= {a.asname or a.name: source + a.name for a in node.names}
    classes = [
        part
        for cell in page
        if cell.kind == "open" and not cell.aside
        for part in ast.walk(cell.tree)
        if isinstance(part, ast.ClassDef)
    ]
    used = set()
    for node in (node for one in classes for node in ast.walk(one)):
        if isinstance(node, ast.Name | ast.Attribute):
            first, *rest = ast.unparse(node).split(".")
            path = ".".join([imported.get(first, first), *rest])
            path = homes().get(path.removeprefix("zoolib."), path)
            used |= {ast.unparse(node)} if path.startswith(FORBIDDEN) else set()
    return used


def faults(page: str) -> list[str]:
    """Say in what the source of a page departs from the rules on cells."""
    everything = list(cells(page))
    main = [cell for cell in everything if not cell.aside]
    found = [*_kinds(main), *_lengths(everything), *_names(everything)]
    found += [f"a class uses {n}" for n in sorted(borrowed(everything))]
    opened = sum(
        c.lines for c in everything if c.kind == "open" and c.aside != "solution"
    )
    folded = sum(c.lines for c in main if c.kind in ("checks", "folded"))
    if opened < OPEN_AT_LEAST * (opened + folded):
        found.append(f"{opened} of {opened + folded} lines are open")
    prose = CELL.sub("", page)
    links, words = prose.count("{claim}`"), len(prose.split())
    if links * 1000 > LINKS_AT_MOST * words:
        found.append(f"{links} links to claims in {words} words")
    return found


def _kinds(main: list[Cell]) -> Iterator[str]:
    kinds = [cell.kind for cell in main]
    for kind, place in (("set-up", 0), ("checks", -1)):
        if kinds.count(kind) > 1:
            yield f"{kinds.count(kind)} cells of {kind}"
        elif kind in kinds and kinds[place] != kind:
            yield f"the cell of {kind} is not the {'last' if place else 'first'}"
    for cell in main:
        if cell.kind == "folded":
            yield f"a folded cell is of no kind: {cell.code.strip()[:40]}"
        if cell.kind != "figure":
            continue
        if cell.lines > LONGEST_FIGURE:
            yield f"{cell.lines} lines draw a figure"
        defines = [n for n in ast.walk(cell.tree) if isinstance(n, DEFINITIONS)]
        if defines or COMPUTES & calls(cell):
            yield f"a figure's cell computes: {cell.code.strip()[:40]}"


def _lengths(everything: list[Cell]) -> Iterator[str]:
    for cell in everything:
        if cell.kind != "open":
            continue
        has_class = any(isinstance(one, ast.ClassDef) for one in cell.tree.body)
        if cell.lines > (LONGEST_CLASS if has_class else LONGEST) and not cell.aside:
            yield f"an open cell has {cell.lines} lines"
        for line in cell.code.splitlines():
            if len(line) > WIDEST[cell.aside]:
                yield f"an open line is too wide: {line.strip()}"


def _names(everything: list[Cell]) -> Iterator[str]:
    known: set[str] = set()
    for cell in everything:
        reads, binds = named(cell.code)
        if cell.kind == "open":
            if missing := sorted(reads - known):
                yield f"{', '.join(missing)} of an open cell is not seen before"
            known |= binds
        elif cell.kind == "set-up":
            known |= binds
