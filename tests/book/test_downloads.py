"""Notebooks to download: a page with every construct, the chapters of the built book, the wheel."""

import ast
import re
import subprocess
import sys
import zipfile
from copy import deepcopy
from email.parser import Parser

import downloads
import nbformat
import pytest
from bs4 import BeautifulSoup
from execution import EXTRAS
from markdown_it import MarkdownIt
from mdit_py_plugins.dollarmath import dollarmath_plugin
from nbclient import NotebookClient
from nbclient.exceptions import CellExecutionError
from packaging.requirements import Requirement

from tests.book.building import A_LINE, build
from tests.notebooks import HTML, ROOT, chapters, check, install, name_of, taken_along

BIB = "@book{gittins, author={Gittins, John}, title={Indices}, publisher={Wiley}, year={2011}}"
PAGE = (
    r"""
(first-part)=
## Numbers and signs

Costs $5 and *more*, a_b and \_c\_, 2 * 3 * 4, `x | y`, \<b>, [1, 2] and [a](https://example.org). The
claim gives {claim}`k`, interval {claim}`k interval`. See {eq}`eq-one`, {numref}`fig-one`, {prf:ref}`thm-one`,
{ref}`ex-one`, {ref}`first-part`, {cite}`gittins`, {doc}`index`.

2026\. A paragraph that begins like a list.

\# A paragraph that begins like a heading.

```{math}
:label: eq-one
a = |b|
```

\begin{align}
x &= 1 \\
y &= 2
\end{align}

$$
\begin{aligned}
x &= 1 \\ y &= 2
\end{aligned}
$$

| sign | meaning |
| --- | --- |
| a \| b | one of two |

```{list-table}
* - $|x|$
  - a size
```

```{prf:theorem} Of *signs*
:label: thm-one
For all $x$:

- first,

  $$
  x
    < 2
  $$
- second.
```

```{prf:proof}
Clear.
```

```{prf:algorithm} Steps
:label: alg-one
1. Begin.
2. End.
```

```{note}
A remark with ``code``.
```

````{dropdown} Folded
Inside.
````

::::{grid} 1
:::{grid-item-card} A card
Text of the card.
:::
::::

```python
listing = "{role}`x`"  # :::
```

```{exercise-start} Add *up*
:label: ex-one
```
Add two numbers:
```{code-cell} python
:tags: [nbval-ignore-output]
total = ...  # `here`
```
```{exercise-end}
```

```{solution-start} ex-one
```
Like so:
```{code-cell} python
total = 1 + 1

assert total == 2
```
```{solution-end}
```

## Cells

```{code-cell} python
:tags: [hide-input]
from zoolib import claim, Estimate
claim("k", "It is so.", Estimate(0.5, 0.4, 0.6, 20), above=0.3)
```

```{code-cell} python
---
"""
    + A_LINE.replace("A line.", "A line with $a | b$.")
    + r"""tags: [hide-input]
---
import matplotlib.pyplot as plt
_, ax = plt.subplots()
ax.plot([1, 2]);
```
"""
)
FIRST = "The first page.\n\n```{claims}\n```\n\n```{bibliography}\n```\n"
LEFTOVERS = (
    r"\{[a-z:-]+\}`[^`]",  # a role
    r"^\s*`{3,}\{",  # a directive
    r"^\s*:{3,}",
    r"^\s*:[a-z-]+: ",  # an option
    r"system_message|problematic",
    r"</?(div|span|p|a|section|details)\b",
    downloads.CODE,
    r"^\+\+\+",
    r"!\[",  # a picture that the notebook does not have
)


def words(text):
    """Text without what Markdown, HTML and TeX put around it."""
    return re.sub(r"\s+|\\[()\[\]]", "", text)


def prose(notebook):
    return "\n\n".join(c.source for c in notebook.cells if c.cell_type == "markdown")


def code(notebook):
    """The code cells of a page, in its notebook: behind the set-up, and solutions without their first line."""
    set_up, *cells = (cell for cell in notebook.cells if cell.cell_type == "code")
    assert set_up.source == downloads.SET_UP
    return [cell.source.removeprefix(downloads.ASKED) for cell in cells]


def code_of(page):
    """The code cells of a page, read without any library."""
    pattern = r"^```\{code-cell\} python\n(?:---\n.*?\n---\n|(?::\w+:[^\n]*\n)+)?(.*?)\n?^```$"
    return [cell.strip("\n") for cell in re.findall(pattern, page, flags=re.M | re.S)]


def outside_code(text):
    return re.sub(r"^```\w+\n.*?^```$", "", text, flags=re.M | re.S)


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    """A small book with the page; its folder."""
    folder = tmp_path_factory.mktemp("book")
    (folder / "chapters").mkdir()
    (folder / "chapters/references.bib").write_text(BIB)
    status, said = build(folder, FIRST, page=PAGE)
    assert status == 0, said[-3000:]
    return folder


@pytest.fixture(scope="module")
def made(book):
    path = book / "_build/html/_downloads/chapters/page.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    return notebook


@pytest.mark.parametrize(
    "line",
    [
        r"Costs \$5 and *more*, a_b and \_c\_, 2 \* 3 \* 4, `x | y`, \<b>, [1, 2] and "
        "[a](https://example.org). The",
        "claim gives 0.500, interval 0.400 to 0.600. See (1), Fig. 1, Theorem 1,",
        "Exercise 1, *Numbers and signs*, [Gittins, 2011], *A page*.",
        r"2026\. A paragraph that begins like a list.",
        r"\# A paragraph that begins like a heading.",
        "$$\na = |b|\\tag{1}\n$$",
        "\\begin{aligned}\nx &= 1 \\\\\ny &= 2\n\\end{aligned}",
        r"| $\vert x\vert$ | a size |",
        "| a \\| b | one of two |",
        "> **Theorem 1 (Of *signs*)**\n>\n> For all $x$:\n>\n> - first,\n>\n>   $$x < 2$$\n> - second.",
        "> Proof. Clear.",
        "> **Algorithm 1 (Steps)**\n>\n> 1. Begin.\n> 2. End.",
        "> **Note**\n>\n> A remark with `code`.",
        "**Folded**\n\nInside.",
        "**A card**\n\nText of the card.",
        '```python\nlisting = "{role}`x`"  # :::\n```',
        "### Exercise 1 (Add *up*)\n\nAdd two numbers:",
        "### Solution to Exercise 1 (Add *up*)\n\nLike so:",
        r"**Fig. 1** A line with $a \vert b$.",
        "## References\n\n- John Gittins. *Indices*. Wiley, 2011.",
    ],
)
def test_each_construct_becomes_plain_markdown(made, line):
    assert line in prose(made)


def test_nothing_of_the_book_s_syntax_is_left_over(made):
    for pattern in LEFTOVERS:
        assert not re.search(pattern, outside_code(prose(made)), flags=re.M), pattern


def test_a_markdown_reader_sees_the_words_of_the_page(book, made):
    page = BeautifulSoup(
        (book / "_build/html/chapters/page.html").read_text(), "html.parser"
    )
    article = page.select_one("article.bd-article")
    for element in article.select(
        "div.cell pre, .headerlink, .eqno, summary, script, style"
    ):
        element.decompose()
    reader = MarkdownIt("commonmark").enable("table").use(dollarmath_plugin)
    seen = BeautifulSoup(reader.render(prose(made)), "html.parser").get_text()
    seen = words(re.sub(r"\\vert ?", "|", seen))
    parts = article.select("p, li, td, th, dt, h1, h2, figcaption")
    assert len(parts) > 30
    assert [p.get_text() for p in parts if words(p.get_text()) not in seen] == []


def test_code_cells_are_those_of_the_page_without_outputs(book, made):
    assert code(made) == code_of((book / "chapters/page.md").read_text())
    _, *cells = (cell for cell in made.cells if cell.cell_type == "code")
    assert len(cells) == 4
    assert all(cell.outputs == [] and cell.execution_count is None for cell in cells)
    ids = [cell.id for cell in made.cells]
    assert ids == [f"cell-{number}" for number in range(1, len(ids) + 1)]
    assert [cell.metadata.get("tags") for cell in cells] == [
        ["nbval-ignore-output"],
        None,
        ["hide-input"],
        ["hide-input"],
    ]
    assert cells[3].metadata.mystnb.figure.name == "fig-one"


def test_the_first_cell_says_what_it_is_and_how_to_install_the_library(made):
    about = made.cells[0].source
    assert about.startswith(
        "This is *A page*, from *The Adaptive Recommender*, version 0.2.0,"
    )
    library = "zoolib-0.2.0-py3-none-any.whl[neural,plots,retrieval,sweeps]"
    assert f'```sh\npip install "{library}"\n```' in about


def test_headings_begin_cells_so_that_they_can_be_folded(made):
    texts = [cell.source for cell in made.cells if cell.cell_type == "markdown"]
    assert not any(re.search(r"\n#+ ", outside_code(text)) for text in texts)


def run(notebook, folder):
    """Run a notebook as a reader does, by *Run All*; return its cells of code."""
    client = NotebookClient(
        deepcopy(notebook), resources={"metadata": {"path": str(folder)}}
    )
    return [cell for cell in client.execute().cells if cell.cell_type == "code"]


def test_the_notebook_runs_to_its_end(made, tmp_path):
    cells = run(made, tmp_path)
    assert all(cell.execution_count for cell in cells)


def test_a_claim_that_does_not_hold_says_so_and_the_run_goes_on(
    made, tmp_path, monkeypatch
):
    monkeypatch.delenv("ZOOLIB_LENIENT", raising=False)
    changed = deepcopy(made)
    (cell,) = (cell for cell in changed.cells if "claim(" in cell.source)
    cell.source = cell.source.replace("above=0.3", "above=0.45")
    cells = run(changed, tmp_path)
    assert "it does not hold with these settings" in cells[3].outputs[0].text
    assert cells[-1].execution_count == len(cells)
    monkeypatch.setenv("ZOOLIB_LENIENT", "0")  # as nbval does
    with pytest.raises(CellExecutionError, match="the claim does not hold"):
        run(changed, tmp_path)


def test_a_solution_runs_only_when_one_asks_for_it(made, tmp_path):
    (cell,) = (cell for cell in made.cells if "assert total == 2" in cell.source)
    assert cell.source.startswith("%%solution\n")
    wrong = deepcopy(made)
    wrong.cells[made.cells.index(cell)].source += "\nraise ValueError"
    at = [one.source for one in run(wrong, tmp_path)].index(
        cell.source + "\nraise ValueError"
    )
    assert run(wrong, tmp_path)[at].outputs[0].text == (
        "To run this solution, delete the first line of its cell.\n"
    )
    asked = deepcopy(wrong)
    asked.cells[made.cells.index(cell)].source = "raise ValueError('ran')"
    with pytest.raises(CellExecutionError, match="ran"):
        run(asked, tmp_path)


def collapsed(cell):
    return cell.metadata.get("jupyter", {}).get("source_hidden", False)


def test_what_the_page_folds_and_every_solution_is_collapsed(made):
    cells = [cell for cell in made.cells if cell.cell_type == "code"]
    # The set-up; an exercise; its solution; a cell that is tagged; one that draws.
    assert list(map(collapsed, cells)) == [True, False, True, True, True]
    assert hidden_under_solutions(made) == [["Like so:", "total = 1 + 1"]]


def hidden_under_solutions(notebook):
    """List, for each collapsed heading, the first lines of what JupyterLab hides with it."""
    hidden, level = [], 0
    for cell in notebook.cells:
        lines = cell.source.removeprefix(downloads.ASKED).split("\n")
        depth = re.match("#*", lines[0])[0] if cell.cell_type == "markdown" else ""
        if level and (not depth or len(depth) > level):
            hidden[-1].append(lines[0])
            continue
        level = 0
        if cell.metadata.get("jp-MarkdownHeadingCollapsed"):
            assert "Solution to" in cell.source
            assert len(lines) == 1  # what else is in the cell would be seen
            hidden.append([])
            level = len(depth)
    return hidden


def test_the_page_offers_the_notebook_before_its_source(book):
    html = BeautifulSoup(
        (book / "_build/html/chapters/page.html").read_text(), "html.parser"
    )
    files = [link["href"] for link in html.select(".dropdown-download-buttons a[href]")]
    assert files == [
        "../_downloads/chapters/page.ipynb",
        "../_sources/chapters/page.md",
    ]
    assert not (book / "_build/html/_downloads/chapters/index.ipynb").exists()


def test_links_lead_to_the_public_address_where_there_is_one(book):
    address = "https://example.org/book/chapters/page.html"
    page = book / "_build/html/chapters/page.html"
    notebook, _ = downloads.notebook(
        page, book / "chapters/page.md", "About.", downloads.published(address)
    )
    assert f"[Theorem 1]({address}#thm-one)" in prose(notebook)
    assert "[*A page*](https://example.org/book/chapters/index.html)" in prose(notebook)
    assert "[0.500](https://example.org/book/chapters/page.html#checked-k)" in prose(
        notebook
    )


def test_an_interactive_figure_leaves_its_caption_and_says_where_it_is(tmp_path):
    page = tmp_path / "page.html"
    page.write_text(
        '<article class="bd-article"><p>Before.</p><div class="interactive">'
        '<div class="interactive-stage">stage</div><script>[1]</script>'
        '<div class="interactive-caption"><p>What it shows.</p></div></div></article>'
    )
    article = downloads.prepared(downloads.read(page))
    text = downloads.Prose().convert_soup(article).strip()
    assert text.split("\n\n") == [
        "Before.",
        "Here the book's web page has a figure with values to change.",
        "What it shows.",
    ]


def test_a_name_in_code_leads_nowhere_in_a_notebook():
    page = '<p><code><a href="api/agents.html#x">Agent</a></code> and <a href="x">b</a></p>'
    text = downloads.Prose(downloads.published("https://example.org/")).convert(page)
    assert text.strip() == "`Agent` and [b](https://example.org/x)"


def test_a_page_that_hides_a_cell_gives_no_notebook(book):
    source = book / "chapters/more.md"
    source.write_text(
        (book / "chapters/page.md").read_text() + "\n```{code-cell} python\n1\n```\n"
    )
    with pytest.raises(
        ValueError, match=r"^more\.md must show its 5 code cells, each once$"
    ):
        downloads.notebook(
            book / "_build/html/chapters/page.html",
            source,
            "",
            downloads.published(""),
        )


@pytest.mark.parametrize("page", chapters(), ids=name_of)
def test_each_chapter_can_be_downloaded(page):
    path = HTML / "_downloads" / "chapters" / f"{name_of(page)}.ipynb"
    notebook = nbformat.read(path, as_version=4)
    nbformat.validate(notebook)
    text = outside_code(prose(notebook))
    for pattern in LEFTOVERS:
        assert re.findall(pattern, text, flags=re.M) == []
    assert code(notebook) == code_of(page.read_text())
    assert not any(cell.get("outputs") for cell in notebook.cells)
    numbers = re.findall(r"\*\*Fig\. ([\d.]+)\*\* \S", text)
    shown = re.findall(r"^```\{shown\} (?!tab-)", page.read_text(), flags=re.M)
    figures = page.read_text().count("\n  figure:") + len(shown)
    assert len(numbers) == len(set(numbers)) == figures
    solutions = page.read_text().count("{solution-start}")
    # Only a heading ends what JupyterLab hides with a solution.
    ends = r"\{solution-end\}\n```\s*(?:```\{exercise-start\}|#+ |\([\w-]+\)=\n#|$(?![\s\S]))"
    assert len(re.findall(ends, page.read_text())) == solutions
    assert (
        text.count("Solution to") == len(hidden_under_solutions(notebook)) == solutions
    )


def bound(part):
    """Names that a statement of a cell binds for those below."""
    if isinstance(part, ast.FunctionDef | ast.ClassDef):
        return {part.name}
    if isinstance(part, ast.Import | ast.ImportFrom):
        return {name.asname or name.name for name in part.names}
    return read_or_bound(part, ast.Store)


def read_or_bound(part, kind):
    names = (node for node in ast.walk(part) if isinstance(node, ast.Name))
    return {name.id for name in names if isinstance(name.ctx, kind)}


@pytest.mark.parametrize("page", chapters(), ids=name_of)
def test_no_cell_needs_what_a_solution_defines(page):
    """Else *Run All* would stop there, or go on with what an exercise left open."""
    only_solved, is_solution = set(), False
    text = page.read_text()
    for part in re.split(r"^```\{(solution-(?:start|end))\}", text, flags=re.M):
        if part in ("solution-start", "solution-end"):
            is_solution = part == "solution-start"
            continue
        for source in code_of(part):
            for statement in ast.parse(source).body:
                names = bound(statement)
                if is_solution:
                    only_solved |= names
                    continue
                only_solved -= names
                assert not read_or_bound(statement, ast.Load) & only_solved, source


@pytest.mark.parametrize(
    ("name", "recorded"),
    [
        ("linucb", {"recorded_experiment", "sweep"}),  # its fossil is a record of calm
        ("neural-bandits", {"recorded_experiment", "sweep", "RecordedRuns"}),
    ],
)
def test_no_record_follows_the_shocks_that_a_reader_changes(name, recorded):
    """Else *Run All* would play grids of many worlds anew, for hours."""
    own, recorded = {"SHOCKS"}, set(recorded)
    set_anywhere = False
    for source in code_of((ROOT / f"chapters/{name}.md").read_text()):
        for statement in ast.parse(source).body:
            read = read_or_bound(statement, ast.Load)
            set_anywhere |= "SHOCKS" in bound(statement)
            assert not (read & own and read & recorded), ast.unparse(statement)
            if isinstance(statement, ast.Assign | ast.FunctionDef):
                for names in (own, recorded):
                    names |= bound(statement) if read & names else set()
    assert set_anywhere


@pytest.fixture(scope="module")
def wheel():
    return HTML / "_downloads" / downloads.WHEEL


def test_the_wheel_of_the_book_holds_the_whole_library_and_nothing_else(wheel):
    listed = subprocess.run(
        [
            "git",
            "ls-files",
            "-z",
            "--cached",
            "--others",
            "--exclude-standard",
            "zoolib",
        ],
        cwd=ROOT,
        capture_output=True,
        check=True,
        text=True,
    )
    files = {
        name for name in listed.stdout.split("\0") if name and (ROOT / name).exists()
    }
    with zipfile.ZipFile(wheel) as archive:
        held = {name for name in archive.namelist() if ".dist-info/" not in name}
        assert held == files
        assert all(archive.read(name) == (ROOT / name).read_bytes() for name in files)


def metadata(wheel):
    with zipfile.ZipFile(wheel) as archive:
        (name,) = [
            name for name in archive.namelist() if name.endswith(".dist-info/METADATA")
        ]
        return Parser().parsestr(archive.read(name).decode())


def test_the_wheel_says_what_it_is(wheel):
    about = metadata(wheel)
    assert about["License-Expression"] == "MIT"
    assert about["Author"]
    assert about["Summary"]
    assert "Programming Language :: Python :: 3" in about.get_all("Classifier")
    assert about.get_payload().startswith("# The Adaptive Recommender")


def test_the_published_book_names_the_address_of_the_wheel():
    library = Requirement(downloads.library("https://example.org/book/"))
    assert library.extras == set(EXTRAS)
    assert library.url == f"https://example.org/book/_downloads/{downloads.WHEEL}"


def test_all_that_the_chapters_import_comes_with_the_wheel_and_its_extras(wheel):
    needed = [Requirement(line) for line in metadata(wheel).get_all("Requires-Dist")]
    names = {"zoolib", *sys.stdlib_module_names} | {
        {"scikit-learn": "sklearn"}.get(need.name, need.name)
        for need in needed
        for extra in EXTRAS
        if need.marker is None or need.marker.evaluate({"extra": extra})
    }
    for page in chapters():
        for source in code_of(page.read_text()):
            for node in ast.walk(ast.parse(source)):
                found = (
                    [a.name for a in node.names] if isinstance(node, ast.Import) else []
                )
                found += [node.module] if isinstance(node, ast.ImportFrom) else []
                assert {name.partition(".")[0] for name in found} <= names, source


@pytest.fixture(scope="module")
def library(wheel, tmp_path_factory):
    return install(wheel, tmp_path_factory.mktemp("installed") / "library")


def set_up():
    return nbformat.v4.new_code_cell(downloads.SET_UP)


def notebooks(folder, source, *outputs):
    """A notebook as it is offered, and as it was executed."""
    cell = nbformat.v4.new_code_cell(source)
    offered, executed = folder / "page.ipynb", folder / "executed.ipynb"
    asked = nbformat.v4.new_code_cell(downloads.ASKED + source)
    nbformat.write(nbformat.v4.new_notebook(cells=[set_up(), asked]), offered)
    cell.update(execution_count=1)
    cell.outputs = [
        nbformat.v4.new_output("stream", name="stdout", text=o) for o in outputs
    ]
    nbformat.write(nbformat.v4.new_notebook(cells=[cell]), executed)
    return offered, executed


def test_a_notebook_runs_outside_the_repository_with_the_wheel(
    tmp_path, library, capsys
):
    source = "import os, zoolib\nprint(os.listdir(), zoolib.ZooplusSimulator(seed=1).n_users)"
    pair = notebooks(tmp_path, source, "['page.ipynb'] 1000\n")
    path = taken_along(*pair, tmp_path / "alone", library)
    assert check(path, timeout_s=60, library=library) == 0
    assert "3 passed" in capsys.readouterr().out


def test_a_library_from_elsewhere_is_found_out(tmp_path, library, capsys):
    path = taken_along(*notebooks(tmp_path, "pass"), tmp_path / "alone", library)
    assert check(path, timeout_s=60) == 1  # the one of the repository
    said = capsys.readouterr().out
    assert "mismatch 'stdout'" in said
    assert "1 failed, 2 passed" in said


def test_a_notebook_of_another_build_is_refused(tmp_path, library):
    offered, _ = notebooks(tmp_path, "1")
    _, executed = notebooks(tmp_path, "2")
    cells = [set_up(), nbformat.v4.new_code_cell("1")]
    nbformat.write(nbformat.v4.new_notebook(cells=cells), offered)
    with pytest.raises(
        ValueError, match=r"^page\.ipynb must hold the code of the book"
    ):
        taken_along(offered, executed, tmp_path / "alone", library)
    assert not (tmp_path / "alone").exists()
