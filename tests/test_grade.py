"""The grader, with notebooks of all kinds that a class may hand in."""

import io
import json
import re
import signal
import subprocess
import sys
import time
from importlib.metadata import version
from types import SimpleNamespace

import pandas as pd
import psutil
import pytest

from tests.notebooks import ROOT
from zoolib.__main__ import main
from zoolib._support import files
from zoolib.book import exercises, grading

# Two exercises that ask for 7, so that no kernel waits for the judges of all chapters.
SET_UP = """from zoolib import check
from zoolib.book import exercises
from zoolib.book.exercises.judging import expect_close
judge = lambda number: expect_close(number, 7, "Look at six and eight.")
exercises.judged = lambda: {"ex-one": judge, "ex-two": judge}"""
ONE, TWO = 'check("ex-one", 7)', 'check("ex-two", 7)'
ENDLESS = 'while True: pass\ncheck("ex-one", 7)'
STUBBORN = """import signal
signal.signal(signal.SIGINT, signal.SIG_IGN)
while True: pass
check("ex-one", 7)"""
HUGE = 'x = b"x" * 3_000_000_000\nwhile True: pass\ncheck("ex-one", 7)'
LOUD = 'for _ in range(1000): print("x" * 1_000_000)\ncheck("ex-one", 7)'
ENVIRONMENT = """import os, pathlib, sys
assert [os.environ[n] for n in ("OMP_NUM_THREADS", "ZOOLIB_LENIENT", "TQDM_DISABLE")] == ["1"] * 3
assert "ipython" in os.environ["IPYTHONDIR"] and not list(pathlib.Path().iterdir())
pathlib.Path("mine.txt").touch()
check("ex-one", 7)"""
CHILD = """import pathlib, subprocess, sys
child = subprocess.Popen([sys.executable, "-c", "import time; time.sleep(600)"], start_new_session=True)
pathlib.Path({!r}).write_text(str(child.pid))
check("ex-one", 7)"""
NOT_FOUND = "missing: not found"
# Of each notebook: its cells, the results for the two exercises, and its note.
CLASS = {
    "right": ([SET_UP, ONE, TWO], "passed", "passed", ""),
    "wrong": (
        [SET_UP, 'check("ex-one", 6)', 'check("ex-two", ...)'],
        "failed: 6 is not right. Look at six and eight.",
        "missing: not answered",
        "",
    ),
    "huge": (
        [SET_UP, TWO, HUGE],
        "failed: took over 1.5 GB of memory",
        "passed",
        "ended in code cell 3: took over 1.5 GB of memory",
    ),
    "loud": (
        [SET_UP, TWO, LOUD],
        "failed: printed over 1 MB",
        "passed",
        "ended in code cell 3: printed over 1 MB",
    ),
    "dead": (
        [SET_UP, "import os; os._exit(1)", ONE, TWO],
        "missing: not reached",
        "missing: not reached",
        "ended in code cell 2: the kernel died",
    ),
    "errors": (
        [SET_UP, "1 / 0", "later", 'check("ex-one", later)', TWO],
        "failed: NameError: name 'later' is not defined",
        "passed",
        "code cell 2: ZeroDivisionError: division by zero",
    ),
    # The last verdict counts, but neither an answer taken back nor an error after a right one.
    "again": (
        [SET_UP, *(f'check("ex-one", {n})' for n in (6, 7, 5, "x"))]
        + [f"check('ex-two', {n})" for n in (6, 5, None)],
        "passed",
        "failed: 5 is not right. Look at six and eight.",
        "",
    ),
    "pretends": (
        [SET_UP, 'check = lambda *_: print("ex-one: right.")\ncheck("ex-one", 6)'],
        "missing: its check did not run",
        NOT_FOUND,
        "",
    ),
    "solutions": (
        [SET_UP, f"%%solution\n{ONE}", f"%%time\n{TWO}"],
        NOT_FOUND,
        "passed",
        "code cell 2: UsageError: Cell magic `%%solution` not found.",
    ),
    "asks": (
        [SET_UP, f"input()\n{ONE}"],
        "failed: StdinNotImplementedError: ",
        NOT_FOUND,
        "",
    ),
    "environment": ([SET_UP, ENVIRONMENT], "passed", NOT_FOUND, ""),
    "nothing": (["x = 1"], NOT_FOUND, NOT_FOUND, "no exercise"),
    "unknown": (
        [SET_UP, "for n in ('one', 'two'): check(f'ex-{n}', 7)"],
        *["passed"] * 2,
        "",
    ),
}


def notebook(cells, text="Nothing is said of a version."):
    def cell(kind, source):
        return {"cell_type": kind, "source": source.splitlines(keepends=True)}

    code = [cell("code", source) for source in cells]
    return {"nbformat": 4, "cells": [cell("markdown", text), *code]}


def hand_in(path, cells, **options):
    path.parent.mkdir(exist_ok=True)
    path.write_text(json.dumps(notebook(cells, **options)))


def read_grades(folder):
    (file,) = folder.glob("grades-*.csv")
    grades = pd.read_csv(file, keep_default_na=False)
    return grades.set_index("student").sort_values("file")


@pytest.fixture(scope="module")
def graded(tmp_path_factory):
    """A class whose notebooks were graded: the table in the file, what was printed, a child process."""
    folder = tmp_path_factory.mktemp("class")
    for name, (cells, *_) in CLASS.items():
        hand_in(folder / f"{name}.ipynb", cells)
    hand_in(folder / "mia" / "homework.ipynb", [SET_UP, ONE])
    hand_in(folder / "twin.ipynb", [SET_UP, ONE])
    hand_in(folder / "twin (1).ipynb", [SET_UP, 'check("ex-one", 8)'])
    hand_in(folder / ".ipynb_checkpoints" / "right.ipynb", [SET_UP, ONE])
    (folder / "broken.ipynb").write_text("{")
    old = notebook([SET_UP, ONE]) | {"nbformat": 3}
    (folder / "old.ipynb").write_text(json.dumps(old))
    made = "*Chapter*, version 0.0.1, as a notebook"
    hand_in(folder / "other.ipynb", [SET_UP, "1 / 0", ONE], text=made)
    made = made.replace("0.0.1", version("zoolib"))
    pid = folder / "pid"
    hand_in(folder / "child.ipynb", [SET_UP, CHILD.format(str(pid))], text=made)
    limits = ["--gigabytes", "1.5", "--megabytes", "1"]
    with pytest.MonkeyPatch.context() as patch:
        out, err = io.StringIO(), io.StringIO()
        patch.setattr(sys, "stdout", out)
        patch.setattr(sys, "stderr", err)
        patch.setenv("TQDM_DISABLE", "0")
        assert main(["grade", str(folder), *limits]) == 0
    return SimpleNamespace(
        folder=folder,
        grades=read_grades(folder),
        out=out.getvalue(),
        err=err.getvalue(),
        pid=int(pid.read_text()),
    )


@pytest.mark.parametrize("name", CLASS)
def test_a_notebook_is_a_row(graded, name):
    _, one, two, note = CLASS[name]
    row = graded.grades.loc[name]
    found = [row["ex-one"], row["ex-two"], row["note"], row["file"]]
    if name == "asks":
        found[0] = found[0][: len(one)]
    assert found == [one, two, note, f"{name}.ipynb"]


def test_a_cell_that_never_ends_is_stopped_or_else_its_kernel(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "GRACE_S", 1)
    hand_in(tmp_path / "endless.ipynb", [SET_UP, ENDLESS, TWO])
    hand_in(tmp_path / "stubborn.ipynb", [SET_UP, STUBBORN, TWO])
    assert main(["grade", str(tmp_path), "--seconds", "1.5"]) == 0
    grades = read_grades(tmp_path)
    said = ["failed: stopped after 1.5 s", "passed", ""]
    assert grades.loc["endless"].tolist()[1:] == said
    went_on = "ran for 1.5 s, and on when it was stopped"
    said = [
        f"failed: {went_on}",
        "missing: not reached",
        f"ended in code cell 2: {went_on}",
    ]
    assert grades.loc["stubborn"].tolist()[1:] == said


def test_files_that_are_no_notebooks_or_of_another_version_are_rows(graded):
    grades, ours = graded.grades, version("zoolib")
    assert "JSONDecodeError" in grades.loc["broken", "note"]
    assert grades.loc["old", "note"] == "format 3 is not read: Jupyter converts it to 4"
    said = f"made for version 0.0.1, not {ours}; code cell 2: ZeroDivisionError: division by zero"
    assert grades.loc["other", "note"] == said
    assert grades.loc["child", "note"] == ""
    results = grades.loc[["broken", "old", "other", "child"], "ex-one"]
    assert results.tolist() == [NOT_FOUND, NOT_FOUND, "passed", "passed"]


def test_a_student_has_a_name_and_perhaps_several_files(graded):
    twins = graded.grades.loc["twin"]
    assert twins["file"].tolist() == ["twin (1).ipynb", "twin.ipynb"]
    assert twins["note"].tolist() == ["one of 2 files"] * 2
    assert [one[:6] for one in twins["ex-one"]] == ["failed", "passed"]
    mia = graded.grades.loc["mia"]
    assert (mia["file"], mia["note"]) == ("mia/homework.ipynb", "")
    assert len(graded.grades) == len(CLASS) + 7


def test_the_table_is_printed_after_a_warning(graded):
    warning, file = graded.out.split("\n")[:2]
    assert warning.startswith(f"This runs the code of {len(graded.grades)} notebooks")
    assert "with your rights" in warning
    assert str(next(graded.folder.glob("grades-*.csv"))) in file
    lines = graded.out.splitlines()[2:]
    assert lines[0].split() == ["ex-one", "ex-two"]
    words = [line.split() for line in lines]
    assert ["wrong", "failed", "missing"] in words
    assert (
        lines.count("wrong, ex-one: failed: 6 is not right. Look at six and eight.")
        == 1
    )
    assert "dead, note: ended in code cell 2: the kernel died" in lines
    assert not [line for line in lines if line.startswith(("right, ", "dead, ex"))]
    assert f"{len(graded.grades)}/{len(graded.grades)}" in graded.err


def test_nothing_is_left_behind(graded):
    assert not psutil.pid_exists(graded.pid)
    assert not list(graded.folder.rglob("mine.txt"))
    assert len(list(graded.folder.glob("grades-*"))) == 1


def test_the_judges_of_the_book_are_heard(tmp_path, capsys):
    cell = """from zoolib import check
def zero_scores(shown, clicks):
    category = (clicks / (1 + shown)).sum() / (1 + (shown / (1 + shown)).sum())
    return (clicks + category) / (1 + shown)
check("ex-greedy-trap", 0.2, zero_scores)"""
    hand_in(tmp_path / "ada.ipynb", [cell, 'check("ex-prior", ...)'])
    columns = ["ex-prior", "ex-greedy-trap"]
    assert main(["grade", str(tmp_path), "--jobs", "1", "--exercises", *columns]) == 0
    grades = read_grades(tmp_path)
    assert list(grades) == ["file", *columns, "note"]
    assert grades.loc["ada"].tolist()[1:] == ["missing: not answered", "passed", ""]


def started(folder, *cells):
    """Start the grader in a process of its own; return it when a first notebook is graded, with its kernels."""
    hand_in(folder / "a.ipynb", [SET_UP, ONE])
    for name in "bc":
        hand_in(folder / f"{name}.ipynb", [SET_UP, *cells])
    command = [sys.executable, "-m", "zoolib", "grade", str(folder)]
    streams = dict.fromkeys(("stdout", "stderr"), subprocess.PIPE)
    process = subprocess.Popen(command, cwd=ROOT, text=True, **streams)
    deadline = time.monotonic() + 60
    while not list(folder.glob("grades-*.csv")):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return process, psutil.Process(process.pid).children(recursive=True)


def test_a_ctrl_c_in_a_callback_is_not_lost(tmp_path, monkeypatch, capsys):
    """Python drops an exception that is raised while an object is deleted."""

    class Callback:
        def __del__(self):
            signal.raise_signal(signal.SIGINT)

    def write_whole(*given):
        files.write_whole(*given)
        Callback()

    hand_in(tmp_path / "a.ipynb", [SET_UP, ONE])
    hand_in(tmp_path / "b.ipynb", [SET_UP, ENDLESS])
    monkeypatch.setattr(grading, "write_whole", write_whole)
    before = signal.getsignal(signal.SIGINT)  # a job in the background ignores it
    assert main(["grade", str(tmp_path)]) == 130
    assert re.search("^a +passed$", capsys.readouterr().out, flags=re.M)
    assert signal.getsignal(signal.SIGINT) is before


def test_ctrl_c_ends_the_kernels_and_keeps_what_was_graded(tmp_path):
    process, kernels = started(tmp_path, ENDLESS)
    assert kernels
    process.send_signal(signal.SIGINT)
    out, err = process.communicate(timeout=30)
    assert process.returncode == 130
    assert "Traceback" not in err
    assert re.search("^a +passed$", out, flags=re.M)
    assert not [one for one in kernels if one.is_running()]
    assert read_grades(tmp_path)["ex-one"].to_dict() == {"a": "passed"}
    assert len(list(tmp_path.iterdir())) == 4


def test_kernels_end_when_the_grader_is_killed(tmp_path):
    process, kernels = started(tmp_path, "import time; time.sleep(600)")
    process.kill()
    process.communicate()
    _, alive = psutil.wait_procs(kernels, timeout=20)
    assert kernels
    assert alive == []


@pytest.mark.parametrize(
    ("options", "words"),
    [
        ([], "folder must hold notebooks: got none in"),
        (["--seconds", "0"], "--seconds must be positive and finite: got 0"),
        (["--gigabytes", "nan"], "--gigabytes must be positive and finite: got nan"),
        (["--megabytes", "-1"], "--megabytes must be positive and finite: got -1"),
        (["--jobs", "0"], "--jobs must be at least 1: got 0"),
    ],
)
def test_an_empty_folder_and_wrong_options_are_refused(
    options, words, tmp_path, capsys
):
    with pytest.raises(SystemExit) as refusal:
        main(["grade", str(tmp_path), *options])
    assert refusal.value.code == 2
    assert words in capsys.readouterr().err
    assert list(tmp_path.iterdir()) == []


def test_limits_are_those_that_the_help_names(capsys):
    with pytest.raises(SystemExit):
        main(["grade", "--help"])
    said = " ".join(capsys.readouterr().out.split())
    for name, most in {"seconds": 120, "gigabytes": 4, "megabytes": 10}.items():
        assert re.search(f"--{name} .* default: {most}\\b", said)
    with pytest.raises(SystemExit):
        main(["--help"])
    assert "grade run a folder" in " ".join(capsys.readouterr().out.split())


def test_what_students_write_is_made_plain(tmp_path):
    row = {"student": "two\nlines\x1b[31m", "file": "a.ipynb", "note": "x" * 999}
    found = grading.graded(tmp_path, row, None, None)
    assert found == {"student": "two lines [31m", "file": "a.ipynb", "note": "x" * 160}


@pytest.mark.parametrize(
    ("file", "student"),
    [
        ("ada.ipynb", "ada"),
        ("ada (2).ipynb", "ada"),
        ("ada-Copy1.ipynb", "ada"),
        ("ada_copy.ipynb", "ada"),
        ("photocopy.ipynb", "photocopy"),
        ("Ada L_7/task/linucb.ipynb", "Ada L_7"),
    ],
)
def test_names_of_students(file, student, tmp_path):
    path = tmp_path / file
    path.parent.mkdir(parents=True, exist_ok=True)
    path.touch()
    assert grading.found_in(tmp_path) == [
        {"student": student, "file": file, "note": ""}
    ]


def test_a_large_file_is_not_read(tmp_path, monkeypatch):
    monkeypatch.setattr(grading, "LARGEST_FILE_MB", 1)
    (tmp_path / "ada.ipynb").write_text("x" * 2_000_000)
    with pytest.raises(RuntimeError, match="the file has 2 MB: clear its outputs"):
        grading.read(tmp_path / "ada.ipynb")


def test_a_notebook_without_cells_is_read(tmp_path):
    (tmp_path / "ada.ipynb").write_text('{"nbformat": 4, "cells": []}')
    assert grading.read(tmp_path / "ada.ipynb") == ([], "")


def test_without_a_kernel_the_grader_says_what_to_install(monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "zmq", None)
    monkeypatch.delitem(sys.modules, "zoolib.book.grading")
    monkeypatch.delattr("zoolib.book.grading")
    with pytest.raises(SystemExit) as refusal:
        main(["grade", "."])
    assert refusal.value.code == 2
    said = 'python -m zoolib grade needs PyZMQ: pip install "zoolib[grade]"'
    assert said in capsys.readouterr().err


def test_check_tells_who_listens_before_it_prints(monkeypatch, capsys):
    told = []

    def listen(*said):
        told.append((said, capsys.readouterr().out))

    monkeypatch.setattr(exercises, "LISTENERS", [listen])
    exercises.check("ex-greedy-trap", ...)
    assert told == [(("ex-greedy-trap", "not answered yet."), "")]
