"""The reader's own notebooks: made without a built book, named in its order, and never written over."""

import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path

import nbformat
import pytest
import yaml
from ipykernel.ipkernel import IPythonKernel
from jupytext.cli import jupytext as jupytext_command
from lab import MARK, WORK, checksum, lay_out, main, numbered

from tests.book.building import A_LINE, build_again
from tests.book.building import lay_out as write_book
from tests.book.test_downloads import LEFTOVERS, outside_code, prose
from tests.notebooks import ROOT, chapters, flat


def offer(root, name, text):
    target = root / WORK / "notebooks" / name
    target.parent.mkdir(parents=True, exist_ok=True)
    cell = nbformat.v4.new_code_cell(f"'{text}'", id="one")
    notebook = nbformat.v4.new_notebook(cells=[cell])
    notebook.metadata[MARK] = checksum(notebook)
    nbformat.write(notebook, target)


@pytest.fixture
def root(tmp_path):
    """A book of three pages with notebooks, laid out once."""
    for name in ("00-index.ipynb", "01-second.ipynb", "02-first.ipynb"):
        offer(tmp_path, name, "old")
    assert lay_out(tmp_path) == []
    return tmp_path


def source(path):
    return nbformat.read(path, as_version=4).cells[0].source


def test_a_notebook_that_nobody_touched_is_renewed(root):
    offer(root, "01-second.ipynb", "new")
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
    offer(root, "01-second.ipynb", "new")
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
    offer(root, "01-second.ipynb", "new")
    assert lay_out(root) == []
    assert source(path) == "'new'"
    assert source(root / "notebooks/mine.ipynb") == "mine"


def test_what_else_lies_there_is_left_alone(root):
    other = root / "notebooks/visits.csv"
    other.write_text("user,click\n")
    lay_out(root)
    assert other.read_text() == "user,click\n"


def test_the_book_s_notebooks_come_in_its_order():
    names = [name.removesuffix(".ipynb") for name in numbered(ROOT).values()]
    assert [name[3:] for name in names] == [flat(page) for page in chapters()]
    assert names[:2] == ["00-index", "01-static-recommender"]


# --- Made without a built book ------------------------------------------------------------------------

INDEX = """
Text without code, and the {doc}`second`.

```{claims}
```

```{bibliography}
```
"""
SECOND = (
    """
(some-part)=
## Some part

The claim gives {claim}`k`, interval {claim}`k interval`, on the {doc}`first` page, see {numref}`fig-one`,
{numref}`tab-one`, {ref}`other-part`, {ref}`ex-one` and the {doc}`index`.

```{code-cell} python
:tags: [hide-input]
import matplotlib.pyplot as plt
import pandas as pd
from zoolib import Estimate, claim
```

```{code-cell} python
claim("k", "It is so.", Estimate(0.5, 0.4, 0.6, 20), above=0.3)
```

```{code-cell} python
---
"""
    + A_LINE
    + """---
plt.plot([1, 2]);
```

```{code-cell} python
---
table:
  name: tab-one
  caption: Two numbers.
---
pd.DataFrame({"a": [1, 2]})
```

```{exercise-start} Add up
:label: ex-one
```
Add two numbers:
```{code-cell} python
total = ...
```
```{exercise-end}
```

```{solution-start} ex-one
```
Like so:
```{code-cell} python
total = 1 + 1
```
```{solution-end}
```
"""
)
FIRST = """
(other-part)=
## Other part

```{code-cell} python
print(6 * 7)
```

Back to {ref}`some-part` and to {claim}`k`.
"""


def run(root):
    """Lay out the notebooks of a book as `make lab` does, and return them by name."""
    subprocess.run(
        [sys.executable, "-m", "lab", str(root)],
        env=os.environ | {"PYTHONPATH": str(root / "_ext")},
        check=True,
    )
    paths = sorted((root / "notebooks").iterdir())
    return {path.name: nbformat.read(path, as_version=4) for path in paths}


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    write_book(folder, INDEX, second=SECOND, first=FIRST)
    return folder


@pytest.fixture(scope="module")
def unbuilt(book):
    return run(book)


@pytest.fixture(scope="module")
def whole(tmp_path_factory):
    """The notebooks of the real book, without the numbers of any build."""
    work = tmp_path_factory.mktemp("whole")
    code = (
        "import sys, lab, pathlib; lab.cache_folder = lambda root: pathlib.Path('nowhere'); "
        "lab.offered(pathlib.Path(sys.argv[1]), pathlib.Path(sys.argv[2], 'work'))"
    )
    subprocess.run(
        [sys.executable, "-c", code, str(ROOT), str(work)],
        env=os.environ | {"PYTHONPATH": str(ROOT / "_ext")},
        check=True,
    )
    made = sorted((work / "work/notebooks").iterdir())
    return {path.name: nbformat.read(path, as_version=4) for path in made}


def test_notebooks_are_numbered_in_the_order_of_the_book(unbuilt):
    assert list(unbuilt) == ["00-second.ipynb", "01-first.ipynb"]


def test_a_number_that_needs_the_built_book_is_a_dash_and_the_top_says_so(unbuilt):
    for notebook in unbuilt.values():
        assert "a dash (—) stands for each number" in notebook.cells[0].source
    assert "The claim gives —, interval —, on the" in prose(unbuilt["00-second.ipynb"])
    assert "and to —." in prose(unbuilt["01-first.ipynb"])


def test_figures_and_tables_are_numbered_and_captioned_all_the_same(unbuilt):
    text = prose(unbuilt["00-second.ipynb"])
    assert "see [Fig. 1](" in text
    assert "[Table 1](" in text
    assert "**Fig. 1** A line." in text


def test_links_lead_to_the_cell_of_a_notebook_that_they_mean(unbuilt):
    second, first = unbuilt["00-second.ipynb"], unbuilt["01-first.ipynb"]
    for text, words, start in (
        (prose(second), "*Other part*", "## Other part"),
        (prose(second), "Fig. 1", "plt.plot"),
        (prose(second), "Exercise 1", "### Exercise 1 (Add up)"),
        (prose(first), "*Some part*", "## Some part"),
    ):
        name, cell = re.search(
            rf"\[{re.escape(words)}\]\((.*?)#cell-id=(.*?)\)", text
        ).groups()
        found = [one for one in unbuilt[name].cells if one.id == cell]
        assert found[0].source.startswith(start)
    assert "on the [*A page*](01-first.ipynb) page" in prose(second)
    assert "and the *A page*." in prose(second)  # it has no code, and so no notebook


def test_the_library_is_there_and_no_wheel_is_spoken_of(unbuilt):
    assert "wheel" not in unbuilt["00-second.ipynb"].cells[0].source


def test_nothing_that_jupyterlab_notes_is_new_to_a_notebook(unbuilt):
    """What it would add when the kernel starts marks a notebook as unsaved."""
    spec = Path(sys.prefix, "share/jupyter/kernels/python3/kernel.json")
    kernel = json.loads(spec.read_text())
    for notebook in unbuilt.values():
        assert notebook.metadata.kernelspec == {
            "display_name": kernel["display_name"],
            "language": kernel["language"],
            "name": "python3",
        }
        assert notebook.metadata.language_info == IPythonKernel.language_info


def test_a_build_brings_the_numbers_into_what_nobody_touched(tmp_path):
    write_book(tmp_path, INDEX, second=SECOND, first=FIRST)
    run(tmp_path)
    work(tmp_path / "notebooks/01-first.ipynb", source="mine")
    status, said = build_again(tmp_path)
    assert status == 0, said[-3000:]
    (tmp_path / WORK / "notebooks").rename(tmp_path / "old")  # as make does
    after = run(tmp_path)
    assert "The claim gives 0.500, interval" in prose(after["00-second.ipynb"])
    assert "—" not in prose(after["00-second.ipynb"])
    assert after["01-first.ipynb"].cells[0].source == "mine"


def test_no_notebook_of_the_book_shows_its_syntax(whole):
    assert list(whole) == list(numbered(ROOT).values())
    for name, notebook in whole.items():
        nbformat.validate(notebook)
        for pattern in (*LEFTOVERS, "[\ue000-\uf8ff]"):
            text = outside_code(prose(notebook))
            assert re.findall(pattern, text, flags=re.M) == [], name


def test_every_link_within_the_book_leads_to_a_cell_that_exists(whole):
    cells = {name: {cell.id for cell in one.cells} for name, one in whole.items()}
    number = 0
    for notebook in whole.values():
        for link in re.findall(r"\]\((?!https?:)([^)]+)\)", prose(notebook)):
            name, _, cell = link.partition("#cell-id=")
            assert name in cells
            assert not cell or cell in cells[name]
            number += 1
    assert number > 300


def test_the_same_cells_are_collapsed_whether_the_book_is_built_or_not(whole):
    for page, name in numbered(ROOT).items():
        path = ROOT / "_build/html/_downloads" / f"{page}.ipynb"
        offered = nbformat.read(path, as_version=4)
        looks = [
            [
                cell.metadata.get("jupyter")
                for cell in one.cells
                if cell.cell_type == "code"
            ]
            for one in (offered, whole[name])
        ]
        assert looks[0] == looks[1], name


# --- Paired with its notebook, for who writes -----------------------------------------------------------


def test_a_saved_page_is_written_as_both_of_its_pair_and_keeps_its_head(tmp_path):
    for name in ("late-clicks.md", "jupytext.toml"):
        shutil.copy(ROOT / "chapters" / name, tmp_path)
    page, paired = tmp_path / "late-clicks.md", tmp_path / "late-clicks.ipynb"
    assert jupytext_command(["--quiet", "--sync", str(page)]) == 0
    notebook = nbformat.read(paired, as_version=4)
    notebook.cells.append(nbformat.v4.new_code_cell("added = 1"))
    nbformat.write(notebook, paired)
    os.utime(page, (0, 0))
    assert jupytext_command(["--quiet", "--sync", str(paired)]) == 0
    before, after = (ROOT / "chapters" / page.name).read_text(), page.read_text()
    assert "```{code-cell} python\nadded = 1\n```" in after.replace(
        "ipython3", "python"
    )
    heads = [yaml.safe_load(text.split("---\n")[1]) for text in (before, after)]
    assert heads[0] == heads[1]
    assert heads[0]["description"]
