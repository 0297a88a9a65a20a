"""The exercises as a reader meets them: what `check` says, in the chapters' sources and in the built book."""

import ast
import builtins
import contextlib
import io
import re
from inspect import signature

import jupytext
import numpy as np
import pytest
from fresh_execution import cache_folder
from jupyter_cache import get_cache

import zoolib
from tests.notebooks import chapters
from zoolib import Estimate, LinUCBAgent, check
from zoolib.exercises import judged
from zoolib.exercises.judging import (
    EXERCISES,
    Exercise,
    NotYetError,
    UnansweredError,
    exercise,
    expect,
    expect_callable,
    expect_close,
    unanswered,
)

BLOCK = r"```\{%s-start\}([^\n]*)\n(.*?)```\{%s-end\}"
HEAD = r"(?:---\n.*?\n---\n|(?::[^\n]*\n)*)\n*"  # a cell's options
CELL = re.compile(r"```\{code-cell\}[^\n]*\n" + HEAD + r"(.*?)\n```", re.S)
PAGES = [page for page in chapters() if "{exercise-start}" in page.read_text()]


def exercises(page):
    """The cells of each exercise of a page, by label."""
    blocks = re.findall(BLOCK % (("exercise",) * 2), page.read_text(), re.S)
    return {
        re.search(r":label: ([\w-]+)", body)[1]: CELL.findall(body)
        for _, body in blocks
    }


def solutions(page):
    """The cells of each solution of a page, by the label of its exercise."""
    blocks = re.findall(BLOCK % (("solution",) * 2), page.read_text(), re.S)
    return {title.strip(): CELL.findall(body) for title, body in blocks}


STUBS = {label: cells for page in PAGES for label, cells in exercises(page).items()}
SOLUTIONS = {label: cells for page in PAGES for label, cells in solutions(page).items()}
CHAPTER_OF = {label: page for page in PAGES for label in exercises(page)}


def said(label, *answers):
    """What `check` prints."""
    with contextlib.redirect_stdout(io.StringIO()) as out:
        check(label, *answers)
    return out.getvalue().rstrip("\n")


def hint(label, *answers):
    """What is said of a wrong answer."""
    line = said(label, *answers)
    assert line.startswith(f"{label}: not yet: "), line
    return line


def raises(*_, **__):
    """Stand for a reader's function that raises."""
    raise RuntimeError("my mistake")


def run(cells, names):
    """Run cells with given names, and return all names and the last line that was printed."""
    names = dict(names)
    with contextlib.redirect_stdout(io.StringIO()) as out:
        for cell in cells:
            exec(cell, names)
    return names, (out.getvalue().splitlines() or [""])[-1]


def statements(cell, *kinds):
    """Those statements of a cell that are of some kinds, as code."""
    kept = [node for node in ast.parse(cell).body if isinstance(node, kinds)]
    return "\n".join(map(ast.unparse, kept))


def imports_of(page):
    """The names that a page imports."""
    cells = CELL.findall(page.read_text())
    names, _ = run([statements(cells[0], ast.Import, ast.ImportFrom)], {})
    return names


def last_check(cell):
    """The label of the check that ends a cell, and how many answers it is handed."""
    call = ast.parse(cell).body[-1].value
    assert call.func.id == "check"
    label, *answers = call.args
    return label.value, len(answers)


@pytest.fixture
def a_number(monkeypatch):
    """An exercise that asks for 7."""

    def judge(number):
        expect_close(number, 7, "Look at six and eight.")

    monkeypatch.setitem(EXERCISES, "ex-seven", Exercise("a number", judge))


def test_check_says_right(a_number):
    assert said("ex-seven", 7) == "ex-seven: right."


def test_check_says_what_to_look_at(a_number):
    line = "ex-seven: not yet: 6.5 is not right. Look at six and eight."
    assert said("ex-seven", 6.5) == line


class EmptyClass: ...


class EmptyAgent(LinUCBAgent):
    """A class of which nothing but a word is written."""


def empty_function(n, p): ...


@pytest.mark.parametrize(
    "answers",
    [(), (None,), (...,), (EmptyClass,), (EmptyAgent,), (empty_function,)],
)
def test_a_stub_is_not_answered_yet(a_number, answers):
    line = "ex-seven: not answered yet. Hand over a number."
    assert said("ex-seven", *answers) == line


class FullClass:
    def select(self, context):
        """Do something."""


def constant_function(n):
    return 0


def identity_function(n):
    return n


@pytest.mark.parametrize(
    "value",
    [
        0,
        "",
        [],
        FullClass,
        FullClass(),
        LinUCBAgent,
        print,
        constant_function,
        str.join,
    ],
)
def test_other_values_are_answers(value):
    assert not unanswered(value)


def test_an_answer_is_compared_even_if_it_returns_nothing(monkeypatch):
    def judge(function):
        expect_close(function(3), 3, "Return what comes.")

    monkeypatch.setitem(EXERCISES, "ex-same", Exercise("a function", judge))

    def forgot_to_return(n):
        n = n + 0

    line = "ex-same: not answered yet. Hand over a function."
    assert said("ex-same", forgot_to_return) == line
    assert said("ex-same", identity_function) == "ex-same: right."


def test_an_error_in_the_readers_code_is_reported(monkeypatch):
    monkeypatch.setitem(EXERCISES, "ex-call", Exercise("it", lambda found: found()))

    def divides():
        return 1 / 0

    line = "ex-call: not yet: your code raised ZeroDivisionError: division by zero"
    assert said("ex-call", divides) == line


def test_another_number_of_answers_is_no_error_of_the_readers_code(a_number):
    line = (
        "ex-seven: not yet: answers wanted 1, answers that came 2. Hand over a number."
    )
    assert said("ex-seven", 7, 7) == line


def test_an_unknown_label_is_refused():
    with pytest.raises(
        ValueError, match=r"exercise must be one of .*ex-coverage.*: got 'ex'"
    ):
        check("ex", 1)


def test_a_label_has_one_judge(monkeypatch):
    monkeypatch.setitem(EXERCISES, "ex-taken", Exercise("", print))
    with pytest.raises(ValueError, match="label must be new: got 'ex-taken'"):
        exercise("ex-taken")(print)
    assert EXERCISES["ex-taken"].judge is print


def test_a_judges_words_are_one_line_without_a_full_stop(monkeypatch):
    monkeypatch.delitem(EXERCISES, "ex-words", raising=False)

    @exercise("ex-words")
    def judge():
        """a number
        in clicks.
        """

    entered = EXERCISES.pop("ex-words")
    assert entered == Exercise("a number in clicks", judge)


def test_expect_says_its_hint():
    expect(True, "no")
    with pytest.raises(NotYetError, match="look here"):
        expect(False, "look here")


def test_what_is_to_be_called_must_be_callable():
    expect_callable(len, "no")
    expect_callable(FullClass, "no")
    with pytest.raises(
        NotYetError, match=r"a function or class is wanted, and float came. It takes n."
    ):
        expect_callable(1.5, "It takes n.")


@pytest.mark.parametrize(
    "found",
    [0.5, np.float32(0.5), [[0.5]][0][0], Estimate(0.5, 0.1, 0.9, 7), np.array(0.5)],
    ids=str,
)
def test_numbers_come_in_many_types(found):
    expect_close(found, 0.5, "no")


def test_numbers_may_differ_by_the_tolerance_and_no_more():
    expect_close([1.0, 2.0], [1.25, 2.0], "no", within=0.25)
    expect_close([1.0, 2.0], [1.25, 2.0], "no", within=[0.25, 0])
    for within in (0.2499, [0, 0.25]):
        with pytest.raises(NotYetError, match=r"^1 at \[0\] is not right. look$"):
            expect_close([1.0, 2.0], [1.25, 2.0], "look", within=within)


@pytest.mark.parametrize(
    ("found", "says"),
    [
        (float("nan"), r"^nan is not right. look$"),
        ([1, 2], r"^the shape \(\) is wanted, and \(2,\) came. look$"),
        ("many", "^numbers are wanted, and str came. look$"),
        ({}, "^numbers are wanted, and dict came. look$"),
    ],
    ids=str,
)
def test_what_is_no_such_number_is_said(found, says):
    with pytest.raises(NotYetError, match=says):
        expect_close(found, 0.5, "look")


@pytest.mark.parametrize("found", [None, ...])
def test_nothing_is_no_answer(found):
    with pytest.raises(UnansweredError):
        expect_close(found, 0.5, "look")


def test_the_place_of_a_wrong_number_is_said():
    with pytest.raises(NotYetError, match=r"^9 at \[1, 0\] is not right. look$"):
        expect_close([[1, 2], [9, 4]], [[1, 2], [3, 4]], "look")


def test_a_typical_mistake_has_a_hint_of_its_own():
    mistakes = {"You doubled.": 2.0, "You took one of each.": lambda: [1.0, 1.0]}
    expect_close(1.0, 1.0, "look", mistakes=mistakes)
    with pytest.raises(NotYetError, match=r"^2 is not right. You doubled.$"):
        expect_close(2.0, 1.0, "look", mistakes=mistakes)
    with pytest.raises(NotYetError, match=r"You took one of each.$"):
        expect_close([1.0, 1.0], [1.0, 3.0], "look", mistakes=mistakes)
    with pytest.raises(NotYetError, match=r"^3 is not right. look$"):
        expect_close(3.0, 1.0, "look", mistakes=mistakes)


def test_each_exercise_has_a_judge_and_each_judge_an_exercise():
    assert sorted(STUBS) == sorted(judged())


def test_each_exercise_has_a_solution():
    assert sorted(STUBS) == sorted(SOLUTIONS)


@pytest.mark.parametrize("label", sorted(STUBS))
def test_an_exercise_ends_with_one_stub_and_its_check(label):
    (stub,) = STUBS[label]
    assert last_check(stub) == (label, len(signature(judged()[label].judge).parameters))
    assert stub.count("check(") == 1


@pytest.mark.parametrize("label", sorted(STUBS))
def test_a_solution_ends_with_the_check_of_its_stub(label):
    assert "".join(SOLUTIONS[label]).count("check(") == 1
    assert last_check(SOLUTIONS[label][-1]) == last_check(STUBS[label][0])


class Given(dict):
    """Names as in a notebook in which the chapter was run: some number, where the library has none."""

    def __missing__(self, name):
        if hasattr(builtins, name):
            raise KeyError(name)
        return getattr(zoolib, name, 0.0)


@pytest.mark.parametrize("label", sorted(STUBS))
def test_an_unsolved_stub_is_not_answered_yet(label):
    (stub,) = STUBS[label]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(stub, {}, Given())
    assert out.getvalue().startswith(f"{label}: not answered yet. Hand over ")
    assert out.getvalue().count("\n") == 1


def names_in(cell, context):
    return {
        node.id
        for node in ast.walk(ast.parse(cell))
        if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    }


def bound_by(cell):
    defined = {
        node.name
        for node in ast.parse(cell).body
        if isinstance(node, ast.FunctionDef | ast.ClassDef)
    }
    return defined | names_in(cell, ast.Store)


@pytest.mark.parametrize("label", sorted(STUBS))
def test_a_stub_takes_no_name_that_others_need(label):
    """What a stub binds, its solution binds again, unless no later cell reads it."""
    (stub,) = STUBS[label]
    text = CHAPTER_OF[label].read_text()
    after = CELL.findall(text[text.index(stub) + len(stub) + 4 :])
    left = bound_by(stub) - bound_by("\n".join(SOLUTIONS[label]))
    assert not left & set().union(*(names_in(cell, ast.Load) for cell in after))


def checks_of(page):
    """What the built book prints below each cell with a check: pairs of label and last line."""
    cache = get_cache(cache_folder())
    _, notebook = cache.merge_match_into_notebook(jupytext.read(page))
    for cell in notebook.cells:
        asked = re.search(r'^check\(\s*"([\w-]+)"', cell.source, flags=re.M)
        if cell.cell_type == "code" and asked:
            texts = [o["text"] for o in cell.outputs if o["output_type"] == "stream"]
            yield asked[1], "".join(texts).splitlines()[-1]


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.stem)
def test_in_the_built_book_stubs_are_unanswered_and_solutions_right(page):
    found = list(checks_of(page))
    labels = list(exercises(page))
    assert [label for label, _ in found] == [label for label in labels for _ in "ab"]
    for label, unsolved in found[::2]:
        assert unsolved.startswith(f"{label}: not answered yet. Hand over ")
    assert [line for _, line in found[1::2]] == [f"{label}: right." for label in labels]
