"""The check of notebooks by nbval: what it passes, and what it must not."""

import shutil

import nbformat
import pytest

from tests.notebooks import check, check_all, unproven_cells


@pytest.fixture
def notebook(tmp_path):
    """A notebook that ran, as nbval gets it."""
    cell = nbformat.v4.new_code_cell("print(6 * 7)", execution_count=1)
    cell.outputs = [nbformat.v4.new_output("stream", name="stdout", text="42\n")]
    path = tmp_path / "page.ipynb"
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), path)
    return path


def change(path, **fields):
    content = nbformat.read(path, as_version=4)
    content.cells[0].update(fields)
    nbformat.write(content, path)


def test_nbval_passes_what_is_unchanged(notebook):
    assert check(notebook, timeout_s=60) == 0


def test_nbval_fails_a_changed_output(notebook):
    change(
        notebook, outputs=[nbformat.v4.new_output("stream", name="stdout", text="43\n")]
    )
    assert check(notebook, timeout_s=60) == 1


def test_nbval_fails_an_exception(notebook):
    change(notebook, source="print(6 * 7)\nraise ValueError('no')")
    assert check(notebook, timeout_s=60) == 1


def test_nbval_fails_a_changed_picture(notebook):
    change(
        notebook,
        source="from IPython.display import SVG\nSVG('<svg>1</svg>')",
        outputs=[
            nbformat.v4.new_output(
                "execute_result",
                {
                    "image/svg+xml": "<svg>2</svg>",
                    "text/plain": "<IPython.core.display.SVG object>",
                },
                execution_count=1,
            )
        ],
    )
    assert check(notebook, timeout_s=60) == 1


def test_a_notebook_that_never_ran_is_no_proof(notebook):
    change(notebook, execution_count=None, outputs=[])
    assert unproven_cells(notebook) == [1]
    assert check(notebook) == 1


def test_a_notebook_without_cells_is_no_proof(tmp_path):
    nbformat.write(nbformat.v4.new_notebook(), tmp_path / "empty.ipynb")
    assert check(tmp_path / "empty.ipynb") == 1


def test_one_notebook_that_does_not_hold_fails_them_all(notebook, capsys):
    wrong = notebook.with_name("wrong.ipynb")
    shutil.copy(notebook, wrong)
    change(wrong, source="print(6 * 9)")
    assert check_all([notebook, notebook]) == 0
    assert capsys.readouterr().out.count("1 passed") == 2
    assert check_all([wrong, notebook]) == 1
    said = capsys.readouterr().out
    assert "mismatch" in said
    assert "1 passed" in said


def test_a_kernel_that_dies_is_said_at_once(notebook, capsys):
    """Its cell may take 900 seconds, and the test as long as all tests."""
    change(notebook, source="import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    assert check(notebook) == 1
    said = capsys.readouterr().out
    assert "page.ipynb::Cell 0" in said
    assert "the kernel died while it ran the cell" in said


def test_a_cell_that_takes_too_long_is_stopped(notebook, capsys):
    change(notebook, source="import time; time.sleep(10_000)")
    assert check(notebook, timeout_s=3) == 1
    assert "Timeout of 3 seconds exceeded" in capsys.readouterr().out


def test_a_check_that_is_killed_is_no_pass(notebook):
    change(notebook, source="import os; os.kill(os.getppid(), 9)")
    assert check_all([notebook]) == 1
