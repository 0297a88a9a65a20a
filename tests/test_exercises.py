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
from execution import cache_folder, opened_cache

import zoolib
from tests.exercises import (
    CELL,
    CHAPTERS,
    NO_FUNCTION,
    RAISED,
    assert_says,
    is_definition,
    nothing,
    raises,
    said,
)
from zoolib import Estimate, LinUCBAgent, check
from zoolib.book.exercises import judged
from zoolib.book.exercises.judging import (
    EXERCISES,
    NotYetError,
    UnansweredError,
    answer,
    exercise,
    expect,
    expect_callable,
    expect_close,
    numbers,
    unanswered,
)

STUBS = {label: cells for c in CHAPTERS.values() for label, cells in c.stubs.items()}
SOLUTIONS = {
    label: cells for c in CHAPTERS.values() for label, cells in c.solutions.items()
}
# Problems for a class, whose solutions are not in the book.
UNSOLVED = set(CHAPTERS["problems"].stubs)
CHAPTER_OF = {
    label: chapter for chapter in CHAPTERS.values() for label in chapter.stubs
}


def enter(monkeypatch, judge):
    """Enter an exercise for the time of a test."""
    monkeypatch.setitem(EXERCISES, "ex-tried", judge)


@pytest.fixture
def a_number(monkeypatch):
    """An exercise that asks for 7."""
    hint = "Look at six and eight."
    enter(monkeypatch, lambda number: expect_close(number, 7, hint))


class EmptyClass: ...


class EmptyAgent(LinUCBAgent):
    """A class of which nothing but a word is written."""


def empty_function(n, p): ...


NO_ANSWER = "not answered yet."


@pytest.mark.parametrize(
    ("answers", "line"),
    [
        ((7,), "right."),
        ((6.5,), "not yet: 6.5 is not right. Look at six and eight."),
        (
            (7, 7),
            "not yet: answers wanted 1, answers that came 2.",
        ),
        ((), NO_ANSWER),
        ((None,), NO_ANSWER),
        ((...,), NO_ANSWER),
        ((EmptyClass,), NO_ANSWER),
        ((EmptyAgent,), NO_ANSWER),
        ((empty_function,), NO_ANSWER),
    ],
)
def test_what_check_says(a_number, answers, line):
    assert said("ex-tried", *answers) == line


class FullClass:
    def select(self, context):
        """Do something."""


def constant_function(n):
    return 0


@pytest.mark.parametrize(
    "value",
    [
        *(0, "", [], FullClass, FullClass(), LinUCBAgent, print, constant_function),
        str.join,
    ],
)
def test_other_values_are_answers(value):
    assert not unanswered(value)


@pytest.mark.parametrize("found", [None, ...])
def test_nothing_is_no_answer(found):
    for ask in (expect_close, numbers):
        with pytest.raises(UnansweredError):
            ask(found, (), "look")
    with pytest.raises(UnansweredError):
        answer(lambda: found)


def test_a_function_that_returns_nothing_is_no_answer(monkeypatch):
    enter(monkeypatch, lambda f: expect_close(f(3), 3, "Return it."))

    def forgot_to_return(n):
        n = n + 0

    assert said("ex-tried", forgot_to_return) == NO_ANSWER
    assert said("ex-tried", lambda n: n) == "right."


def test_an_error_in_the_readers_code_is_reported(monkeypatch):
    enter(monkeypatch, lambda found: found())
    line = "not yet: your code raised ZeroDivisionError: division by zero"
    assert said("ex-tried", lambda: 1 / 0) == line


def test_an_unknown_label_is_refused():
    match = r"exercise must be one of .*ex-coverage.*: got 'ex'"
    with pytest.raises(ValueError, match=match):
        check("ex", 1)


def test_a_label_has_one_judge(monkeypatch):
    monkeypatch.delitem(EXERCISES, "ex-words", raising=False)
    assert exercise("ex-words")(print) is print
    with pytest.raises(ValueError, match="label must be new: got 'ex-words'"):
        exercise("ex-words")(len)
    assert EXERCISES.pop("ex-words") is print


def says(line):
    return pytest.raises(NotYetError, match=f"^{re.escape(line)}$")


def test_expect_says_its_hint():
    expect(True, "no")
    with says("look here"):
        expect(False, "look here")


def test_what_is_to_be_called_must_be_callable():
    expect_callable(len, "no")
    expect_callable(FullClass, "no")
    with says("a function or class is wanted, and float came. It takes n."):
        expect_callable(1.5, "It takes n.")


def test_the_reader_s_function_gets_copies():
    given = np.zeros(2)
    assert answer(lambda x: x.__iadd__(1) is x, given)
    np.testing.assert_array_equal(given, 0)


@pytest.mark.parametrize(
    "found", [0.5, np.float32(0.5), Estimate(0.5, 0.1, 0.9, 7), np.array(0.5)], ids=str
)
def test_numbers_come_in_many_types(found):
    expect_close(found, 0.5, "no")


def test_numbers_may_differ_by_the_tolerance_and_no_more():
    expect_close([1.0, 2.0], [1.25, 2.0], "no", within=0.25)
    expect_close([1.0, 2.0], [1.25, 2.0], "no", within=[0.25, 0])
    for within in (0.2499, [0, 0.25]):
        with says("1 at [0] is not right. look"):
            expect_close([1.0, 2.0], [1.25, 2.0], "look", within=within)


@pytest.mark.parametrize(
    ("found", "line"),
    [
        (float("nan"), "nan is not right. look"),
        ([1, 2], "the shape () is wanted, and (2,) came. look"),
        ("many", "numbers are wanted, and str came. look"),
        ({}, "numbers are wanted, and dict came. look"),
    ],
    ids=str,
)
def test_what_is_no_such_number_is_said(found, line):
    with says(line):
        expect_close(found, 0.5, "look")
    with says(line):
        numbers(found, (), "look", low=0, high=1)


def test_the_place_of_a_wrong_number_is_said():
    with says("9 at [1, 0] is not right. look"):
        expect_close([[1, 2], [9, 4]], [[1, 2], [3, 4]], "look")
    with says("-1 at [1] is not right. look"):
        numbers([0, -1], (2,), "look", low=0)
    with says("2 at [0] is not right. look"):
        numbers([2, 1], (2,), "look", high=1)


MISTAKES = {"You doubled.": 2.0, "You took one of each.": lambda: [1.0, 1.0]}


@pytest.mark.parametrize(
    ("found", "right", "line"),
    [
        (2.0, 1.0, "2 is not right. You doubled."),
        ([1.0, 1.0], [1.0, 3.0], "1 at [1] is not right. You took one of each."),
        (3.0, 1.0, "3 is not right. look"),
        # Of equal shape, and no mistake with a name.
        (50.0, 0.5, "50 is not right. Shares are wanted, not percentages."),
        (0.3, 30, "0.3 is not right. Percentages are wanted, not shares."),
        (-3.0, 3.0, "-3 is not right. The sign is the other way round."),
        (0.2, 5.0, "0.2 is not right. The fraction is the other way round."),
        (9.0, 3.0, "9 is not right. These are squares: take the root."),
        (3.0, 9.0, "3 is not right. These are roots: squares are wanted."),
        ([4, 3], [3, 4], "4 at [0] is not right. The order is the other way round."),
        (0.0, 5.0, "0 is not right. look"),
    ],
)
def test_a_typical_mistake_has_a_hint_of_its_own(found, right, line):
    with says(line):
        expect_close(found, right, "look", mistakes=MISTAKES)


def test_a_mistake_is_no_hint_for_a_right_answer_nor_a_slip_within_a_wide_tolerance():
    expect_close(2.0, 2.0, "look", mistakes=MISTAKES)
    with says("0.2 is not right. look"):  # its square is 0.04
        expect_close(0.2, 0.02, "look", within=0.02)


def last_check(cell):
    """The label of the check that ends a cell, and how many answers it is handed."""
    call = ast.parse(cell).body[-1].value
    assert call.func.id == "check"
    label, *answers = call.args
    return label.value, len(answers)


def test_each_exercise_has_a_judge_a_solution_and_a_chapter():
    assert sorted(STUBS) == sorted(judged()) == sorted(UNSOLVED.union(SOLUTIONS))
    assert UNSOLVED.isdisjoint(SOLUTIONS)
    for label, chapter in CHAPTER_OF.items():
        module = judged()[label].__module__.rsplit(".", 1)[-1]
        assert module == chapter.page.stem.replace("-", "_")


@pytest.mark.parametrize("label", sorted(STUBS))
def test_stub_and_solution_end_with_the_same_check(label):
    *_, stub = STUBS[label]
    n_answers = len(signature(judged()[label]).parameters)
    assert last_check(stub) == (label, n_answers)
    assert stub.count("check(") == 1
    if label in UNSOLVED:
        return
    assert last_check(SOLUTIONS[label][-1]) == (label, n_answers)
    assert "".join(SOLUTIONS[label]).count("check(") == 1


class Given(dict):
    """Names as in a notebook in which the chapter was run: some class or number, where the library has none."""

    def __missing__(self, name):
        if hasattr(builtins, name):
            raise KeyError(name)
        is_class = name[0].isupper() and not name.isupper()
        return getattr(zoolib, name, zoolib.EnsembleAgent if is_class else 0.0)


@pytest.mark.parametrize("label", sorted(STUBS))
def test_an_unsolved_stub_is_not_answered_yet(label):
    *_, stub = STUBS[label]
    with contextlib.redirect_stdout(io.StringIO()) as out:
        exec(stub, {}, Given())
    assert out.getvalue() == f"{label}: not answered yet.\n"


# What goes with a function where it is none itself; exercises that ask for numbers alone, and for a class.
HANDED = {
    "ex-greedy-trap": lambda function: (0.2, function),
    "ex-peeking": lambda function: (function, 10, 40),
    "ex-two-steps": lambda function: ((3 / 4, 7 / 8), function),
}
ONLY_NUMBERS = {"ex-below-floor", "ex-floor-by-hand"}
CLASSES = {"ex-own-agent", "ex-practice-prior"}


@pytest.mark.parametrize("label", sorted(judged().keys() - ONLY_NUMBERS))
def test_a_function_that_raises_is_none_or_returns_nothing_is_said(label):
    others = [raises] * (len(signature(judged()[label]).parameters) - 1)
    answers = HANDED.get(label, lambda function: (function, *others))
    assert_says(label, *answers(raises), RAISED)
    assert_says(label, *answers(1.0), NO_FUNCTION)
    if label not in CLASSES:
        assert said(label, *answers(nothing)).startswith(NO_ANSWER)


def names_in(cell, context):
    return {
        node.id
        for node in ast.walk(ast.parse(cell))
        if isinstance(node, ast.Name) and isinstance(node.ctx, context)
    }


def bound_by(cell):
    defined = {node.name for node in ast.parse(cell).body if is_definition(node)}
    return defined | names_in(cell, ast.Store)


@pytest.mark.parametrize("label", sorted(STUBS))
def test_a_stub_takes_no_name_that_others_need(label):
    """What a stub binds, its solution binds again, unless no later cell reads it."""
    *_, stub = STUBS[label]
    text = CHAPTER_OF[label].text
    after = CELL.findall(text[text.index(stub) + len(stub) + 4 :])
    left = bound_by(stub) - bound_by("\n".join(SOLUTIONS.get(label, [])))
    assert not left & set().union(*(names_in(cell, ast.Load) for cell in after))


def checks_of(page):
    """What the built book prints below each cell with a check: pairs of label and last line."""
    with opened_cache(cache_folder()) as cache:
        _, notebook = cache.merge_match_into_notebook(jupytext.read(page))
    for cell in notebook.cells:
        asked = re.search(r'^check\(\s*"([\w-]+)"', cell.source, flags=re.M)
        if cell.cell_type == "code" and asked:
            texts = [o["text"] for o in cell.outputs if o["output_type"] == "stream"]
            yield asked[1], "".join(texts).splitlines()[-1]


@pytest.mark.parametrize("chapter", CHAPTERS.values(), ids=CHAPTERS)
def test_in_the_built_book_stubs_are_unanswered_and_solutions_right(chapter):
    found = list(checks_of(chapter.page))
    labels = list(chapter.stubs)
    each = "a" if chapter is CHAPTERS["problems"] else "ab"
    assert [label for label, _ in found] == [label for label in labels for _ in each]
    for label, unsolved in found[:: len(each)]:
        assert unsolved.startswith(f"{label}: not answered yet.")
    if each == "ab":
        right = [f"{label}: right." for label in labels]
        assert [line for _, line in found[1::2]] == right
