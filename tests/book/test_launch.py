"""Colab and Binder: where the addresses are known, pages with code open there, with a library that installs."""

import os
import re
import subprocess
import sys

import nbformat
import pytest
import yaml

from tests.book.building import build
from tests.book.pages import served, soup
from tests.notebooks import HTML, ROOT

SOURCE = "https://github.com/someone/some-book"
PAGE = "```{code-cell} python\nprint(6 * 7)\n```\n"


@pytest.fixture(scope="module")
def address():
    """The address of the built book, on a server of this machine."""
    with served(HTML) as address:
        yield address


@pytest.fixture(scope="module")
def published(tmp_path_factory, address):
    """A small book with made-up addresses: a page with code, and one without."""
    folder = tmp_path_factory.mktemp("launched")
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_URL", SOURCE)
        patch.setenv("BOOK_URL", address)
        status, said = build(folder, PAGE, plain="No code.\n")
    assert status == 0, said[-3000:]
    return folder / "_build"


def buttons(page):
    return [
        link["href"]
        for link in soup(page).select("a[href]")
        if re.search("colab|binder", link["href"])
    ]


def test_a_page_with_code_opens_in_colab_and_on_binder(published):
    binder, colab = buttons(published / "html/chapters/index.html")
    path = "chapters/index.ipynb"
    assert (
        colab
        == f"https://colab.research.google.com/github/someone/some-book/blob/notebooks/{path}"
    )
    assert (
        binder
        == f"https://mybinder.org/v2/gh/someone/some-book/notebooks?urlpath=lab/tree/{path}"
    )
    assert (published / "notebooks" / path).exists()
    assert buttons(published / "html/chapters/plain.html") == []
    assert not (published / "notebooks/chapters/plain.ipynb").exists()


def test_nothing_else_of_the_page_changes(published):
    page = soup(published / "html/chapters/index.html")
    offered = page.select(".dropdown-download-buttons a[href$='.ipynb']")
    assert [link["href"] for link in offered] == ["../_downloads/chapters/index.ipynb"]
    assert not list((published / "html/_sources").rglob("*.ipynb"))


def test_the_first_cell_of_code_installs_the_library_and_the_others_have_run(
    published, address, tmp_path
):
    made = nbformat.read(published / "notebooks/chapters/index.ipynb", as_version=4)
    nbformat.validate(made)
    install, _, cell = (c for c in made.cells if c.cell_type == "code")
    assert cell.outputs[0]["text"] == "42\n"
    (needed,) = re.findall(r'^%pip install --quiet "(.*)"$', install.source, re.M)
    assert f"@ {address}_downloads/zoolib-" in needed
    listed = (published / "notebooks/requirements.txt").read_text()
    assert listed == needed + "\n"
    # What the library itself needs is here already.
    pip = [sys.executable, "-m", "pip", "install", "--quiet", "--no-deps", "--no-index"]
    pip += ["--disable-pip-version-check", f"--target={tmp_path}", needed]
    subprocess.run(pip, check=True)
    code = "import zoolib; print(zoolib.__file__)"
    said = subprocess.run(
        [sys.executable, "-c", code], cwd=tmp_path, capture_output=True, text=True
    )
    assert said.stdout.startswith(str(tmp_path))


def test_without_addresses_there_are_no_buttons():
    assert buttons(HTML / "chapters/quickstart.html") == []


def test_the_workflow_puts_on_the_branch_what_the_build_has_written(
    published, tmp_path
):
    workflow = yaml.safe_load((ROOT / ".github/workflows/book.yml").read_text())
    prove, job = workflow["jobs"]["prove"], workflow["jobs"]["notebooks"]
    actions = [step for step in prove["steps"] + job["steps"] if "uses" in step]
    kept, taken = (s["with"] for s in actions if "load-artifact" in s["uses"])
    assert (kept["name"], kept["path"]) == (taken["name"], "_build/notebooks")
    assert taken["path"] == "${{ runner.temp }}/notebooks"
    assert (job["needs"], job["permissions"]) == ("prove", {"contents": "write"})

    def git(*words):
        done = subprocess.run(
            ["git", *words], cwd=clone, capture_output=True, text=True, check=True
        )
        return done.stdout.split()

    clone = tmp_path / "clone"
    clone.mkdir()
    git("init", "--quiet", "--bare", str(tmp_path / "remote"))
    git("init", "--quiet")
    git("remote", "add", "origin", str(tmp_path / "remote"))
    (clone / "source.md").write_text("A page.")
    git("add", ".")
    author = ["-c", "user.name=a", "-c", "user.email=a@localhost"]
    git(*author, "commit", "--quiet", "--message", "One")
    environment = os.environ | {"RUNNER_TEMP": str(published), "GITHUB_SHA": "abc"}
    script = ["bash", "-e", "-c", job["steps"][-1]["run"]]
    subprocess.run(script, cwd=clone, env=environment, check=True)
    listed = git("ls-tree", "-r", "--name-only", "origin/notebooks")
    assert listed == ["chapters/index.ipynb", "requirements.txt"]
    assert len(git("log", "--format=%h", "origin/notebooks")) == 1
