"""The first command on a machine that lacks something: a line says what to do, nothing half-made is left."""

import os
import shutil
import subprocess

import pytest

from tests.notebooks import ROOT

# Stands in for Python: its environments have a pip that only takes note, and that fails where told to.
PYTHON = """#!/bin/sh
case "$*" in
  -c*venv*) exit {venv} ;;
  -c*) exit {fits} ;;
  "-m venv .venv") mkdir -p .venv/bin; echo 'exit {pip}' >.venv/bin/python; chmod +x .venv/bin/python ;;
esac
"""


@pytest.fixture
def folder(tmp_path):
    folder = tmp_path / "a reader's ü book"
    folder.mkdir()
    shutil.copy(ROOT / "Makefile", folder)
    (folder / "requirements.txt").touch()
    return folder


def set_up(folder, fits=0, venv=0, pip=0, **run):
    """Set up with a stand-in for Python; return the status and the lines on the error stream."""
    python = folder / "our python"
    if os.access(folder, os.W_OK):
        python.write_text(PYTHON.format(fits=fits, venv=venv, pip=pip))
        python.chmod(0o755)
    return make(folder, f"PYTHON={python}", **run)


def make(folder, *settings, **run):
    command = ["make", *settings, ".venv/ready"]
    result = subprocess.run(
        command, cwd=folder, capture_output=True, text=True, check=False, **run
    )
    lines = result.stderr.splitlines()
    return result.returncode, [line for line in lines if not line.startswith("make")]


def test_a_folder_may_have_blanks_and_other_letters_in_its_name(folder):
    assert set_up(folder) == (0, [])
    assert (folder / ".venv/ready").exists()


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ({"fits": 1}, "is not Python 3.11 to 3.14: install one, or name it: make book"),
        ({"venv": 1}, "has no venv module: install it (Debian, Ubuntu: apt install"),
        ({"pip": 1}, "check the network and run make again (details: _build/pip.log)"),
    ],
)
def test_what_is_missing_is_said_in_a_line_and_leaves_nothing(folder, python, said):
    status, lines = set_up(folder, **python)
    assert status != 0
    assert len(lines) == 1
    assert said in lines[0]
    assert not (folder / ".venv").exists()
    assert set_up(folder) == (0, [])


@pytest.mark.parametrize(
    ("python", "said"),
    [
        ("", "Python 3.11 to 3.14 is needed and none was found"),
        ("nowhere", "PYTHON=nowhere is not Python 3.11 to 3.14"),
    ],
)
def test_no_python_at_all_is_said_in_a_line(folder, python, said):
    status, (line,) = make(folder, f"PYTHON={python}")
    assert status != 0
    assert line.startswith(said)


def test_a_folder_that_cannot_be_written_to_is_refused_in_a_line(folder):
    folder.chmod(0o555)
    run = {}
    if os.geteuid() == 0:  # who may write everywhere
        run = {"user": 65534, "group": 65534, "extra_groups": []}
        for parent in (folder.parent, *folder.parent.parents[:2]):
            parent.chmod(parent.stat().st_mode | 0o5)
    status, (line,) = set_up(folder, **run)
    assert status != 0
    assert "copy the book into a folder of your own and run make there" in line
    assert not (folder / ".venv").exists()
