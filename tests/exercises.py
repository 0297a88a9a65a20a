"""What the tests of exercises share: stubs and solutions of the chapters, and what `check` says of answers."""

import ast
import contextlib
import io
import re

import pytest

from tests.notebooks import ROOT, chapters, name_of
from zoolib import check

CELL = re.compile(
    r"```\{code-cell\}[^\n]*\n(?:---\n.*?\n---\n|(?::[^\n]*\n)*)\n*(.*?)\n```", re.S
)
FOLDED = re.compile(r"```\{code-cell\}[^\n]*\n:tags: \[hide-input\]\n.*?\n```\n", re.S)
BLOCK = r"```\{%s-start\}([^\n]*)\n(.*?)```\{%s-end\}"


def run(cells, names):
    """Run cells with given names, and return all names and the last line that was printed."""
    names = dict(names)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for cell in cells:
            exec(cell, names)
    return names, (out.getvalue().splitlines() or [""])[-1]


def is_definition(node):
    return isinstance(node, ast.FunctionDef | ast.ClassDef) and not node.decorator_list


def assigned(node):
    """Names that an assignment sets."""
    targets = getattr(node, "targets", [])
    return {n.id for t in targets for n in ast.walk(t) if isinstance(n, ast.Name)}


def statements(cells, wanted):
    """Those statements of cells that are wanted, as code."""
    nodes = [node for cell in cells for node in ast.parse(cell).body]
    return "\n".join(ast.unparse(node) for node in nodes if wanted(node))


class Chapter:
    """A chapter with its stubs and its solutions, the visible cells of each by the label of its exercise.

    Before its stub, an exercise may have cells with what it gives.
    """

    def __init__(self, name):
        self.page = ROOT / "chapters" / f"{name}.md"
        self.text = self.page.read_text()
        self.stubs = {
            re.search(r":label: ([\w-]+)", body)[1]: CELL.findall(body)
            for _, body in self.blocks("exercise")
        }
        self.solutions = {
            title.strip(): CELL.findall(FOLDED.sub("", body))
            for title, body in self.blocks("solution")
        }

    def blocks(self, kind):
        return re.findall(BLOCK % (kind, kind), self.text, re.S)

    def names(self, *wanted, **given):
        """What solutions use: imports, definitions, assignments that are wanted."""
        blocks = r"```\{(exercise|solution)-start\}.*?```\{\1-end\}"
        cells = CELL.findall(re.sub(blocks, "", self.text, flags=re.S))

        def used(node):
            is_import = isinstance(node, ast.Import | ast.ImportFrom)
            return is_import or is_definition(node) or assigned(node) & set(wanted)

        return run([statements(cells, used)], given)[0]

    def define(self, label, names):
        """The functions and classes of a solution, without what it does with them."""
        *given, _ = self.stubs[label]
        return run([statements(given + self.solutions[label], is_definition)], names)[0]


CHAPTERS = {
    name_of(page): Chapter(name_of(page))
    for page in chapters()
    if "{exercise-start}" in page.read_text()
}


def said(label, *answers):
    """What `check` says of answers."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        check(label, *answers)
    told, line = out.getvalue().rstrip("\n").split(": ", 1)
    assert told == label
    return line


def assert_says(label, *case):
    """Expect what `check` says of answers: "right.", or words of the hint for a wrong one."""
    *answers, words = case
    line = said(label, *answers)
    if words == "right.":
        assert line == words
    else:
        assert line.startswith("not yet: ")
        assert words in line


def verdicts(table):
    """Make a test of each case: label, answers, words."""
    cases = [(label, *case) for label, its_cases in table.items() for case in its_cases]
    names = [f"{label}: {words}" for label, *_, words in cases]
    return pytest.mark.parametrize("case", cases, ids=names)


def raises(*_, **__):
    """Stand for a reader's function that raises."""
    raise RuntimeError("my mistake")


def nothing(*answers, **settings):
    """Stand for a reader's function that returns nothing."""
    assert answers


RAISED = "your code raised RuntimeError: my mistake"
NO_FUNCTION = "a function or class is wanted, and float came."
