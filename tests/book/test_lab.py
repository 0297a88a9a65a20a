"""The reader's own notebooks: named in the order of the book, and never written over."""

import nbformat
import pytest
from downloads import download
from lab import lay_out, main

from tests.notebooks import ROOT, chapters

TOC = """format: jb-book
root: chapters/index
parts:
  - chapters:
      - file: chapters/second
      - file: chapters/plain
      - file: chapters/first
"""


def offer(root, page, text):
    target = root / "_build/html" / download(f"chapters/{page}")
    target.parent.mkdir(parents=True, exist_ok=True)
    cell = nbformat.v4.new_code_cell(f"'{text}'", id="one")
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), target)


@pytest.fixture
def root(tmp_path):
    """A built book of three pages with notebooks, laid out once."""
    (tmp_path / "_config.yml").write_text("title: A book\nauthor: Nobody\n")
    (tmp_path / "_toc.yml").write_text(TOC)
    for page in ("index", "first", "second"):
        offer(tmp_path, page, "old")
    assert lay_out(tmp_path) == []
    return tmp_path


def source(path):
    return nbformat.read(path, as_version=4).cells[0].source


def test_notebooks_are_numbered_in_the_order_of_the_book(root):
    names = sorted(path.name for path in (root / "notebooks").iterdir())
    assert names == ["00-index.ipynb", "01-second.ipynb", "02-first.ipynb"]


def test_a_notebook_that_nobody_touched_is_renewed(root):
    offer(root, "second", "new")
    assert lay_out(root) == []
    assert source(root / "notebooks/01-second.ipynb") == "'new'"
    assert source(root / "notebooks/02-first.ipynb") == "'old'"


def work(path, **changes):
    notebook = nbformat.read(path, as_version=4)
    notebook.cells[0].update(changes)
    nbformat.write(notebook, path)


OUTPUT = nbformat.v4.new_output("stream", name="stdout", text="42\n")


@pytest.mark.parametrize(
    "change",
    [
        lambda path: work(path, source="mine"),
        lambda path: work(path, outputs=[OUTPUT]),
        lambda path: path.write_text("no notebook"),
        lambda path: path.write_bytes(b"\xff"),
        lambda path: nbformat.write(nbformat.v4.new_notebook(), path),
    ],
    ids=["written", "ran", "text", "bytes", "emptied"],
)
def test_what_a_reader_did_is_kept_and_said(root, change, capsys):
    path = root / "notebooks/01-second.ipynb"
    change(path)
    before = path.read_bytes()
    offer(root, "second", "new")
    main([str(root)])
    assert path.read_bytes() == before
    said = capsys.readouterr().out
    assert "You have worked in 01-second.ipynb: kept" in said
    assert "rename or delete yours in notebooks/ and run make lab again" in said


def test_as_long_as_there_is_nothing_newer_nothing_is_said(root, capsys):
    work(root / "notebooks/01-second.ipynb", source="mine")
    main([str(root)])
    assert capsys.readouterr().out == ""


def test_who_renames_a_notebook_gets_the_new_one(root):
    path = root / "notebooks/01-second.ipynb"
    work(path, source="mine")
    path.rename(root / "notebooks/mine.ipynb")
    offer(root, "second", "new")
    assert lay_out(root) == []
    assert source(path) == "'new'"
    assert source(root / "notebooks/mine.ipynb") == "mine"


def test_what_else_lies_there_is_left_alone(root):
    other = root / "notebooks/visits.csv"
    other.write_text("user,click\n")
    lay_out(root)
    assert other.read_text() == "user,click\n"


def test_the_book_s_notebooks_come_in_its_order(tmp_path):
    for name in ("_config.yml", "_toc.yml"):
        (tmp_path / name).write_text((ROOT / name).read_text())
    for page in chapters():
        offer(tmp_path, page.stem, "text")
    lay_out(tmp_path)
    names = sorted(path.stem for path in (tmp_path / "notebooks").iterdir())
    assert [name[3:] for name in names] == [page.stem for page in chapters()]
    assert names[:2] == ["00-index", "01-static-recommender"]
