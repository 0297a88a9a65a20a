"""The built book as a reader has it, and the ways in which its build must fail."""

import os
import platform
import re
import shutil
import signal
import subprocess
import sys
import time
from functools import cache
from pathlib import Path

import nbformat
import numpy as np
import pytest
from bs4 import BeautifulSoup
from parallel_execution import AT_ONCE

from tests.notebooks import (
    ROOT,
    chapters,
    check,
    check_all,
    unproven_cells,
    with_outputs,
)

HTML = ROOT / "_build" / "html"
PAGES = sorted(HTML.rglob("*.html"))
NAMES = [str(page.relative_to(HTML)) for page in PAGES]
FETCHED = {
    "img": "src",
    "script": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
    "embed": "src",
}


@cache
def soup(page):
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


@cache
def places(page):
    """What has an id on a page, by id."""
    return {element["id"]: element for element in soup(page).find_all(id=True)}


def test_the_book_is_built():
    assert {
        "index.html",
        "genindex.html",
        "chapters/index.html",
        "chapters/claims.html",
    } <= set(NAMES)


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_a_page_fetches_nothing_from_another_host(page):
    html = soup(page)
    fetched = [
        tag.get(attribute, "")
        for name, attribute in FETCHED.items()
        for tag in html.find_all(name)
    ]
    fetched += [
        tag.get("href", "")
        for tag in html.find_all("link")
        if tag.get("rel") != ["canonical"]  # a name, not something to fetch
    ]
    assert [url for url in fetched if re.match(r"(https?:)?//", url)] == []
    running = [
        tag.text
        for tag in html.find_all("script")
        if "config" not in tag.get("type", "")
    ]
    assert not any(re.search(r"https?://", text) for text in running)


def test_styles_fetch_nothing_from_another_host():
    sheets = [
        path.read_text(encoding="utf-8", errors="replace")
        for path in HTML.rglob("*.css")
    ]
    assert sheets
    assert not any(
        re.search(r"url\(\s*['\"]?(https?:)?//|@import\s+['\"]?https?:", sheet)
        for sheet in sheets
    )


@pytest.mark.parametrize("page", PAGES, ids=NAMES)
def test_links_within_the_book_lead_somewhere(page):
    for link in soup(page).find_all("a", href=True):
        target, _, anchor = link["href"].partition("#")
        if re.match(r"\w+:", target) or (not target and not anchor):
            continue
        file = (page.parent / target).resolve() if target else page
        assert file.exists(), link["href"]
        if anchor and file.suffix == ".html" and "claim" in link.get("class", []):
            assert soup(file).find(id=anchor), link["href"]


@pytest.mark.parametrize("page", chapters(), ids=lambda page: page.stem)
def test_figures_come_in_both_themes_with_alt_text_and_caption(page):
    html = soup(HTML / "chapters" / f"{page.stem}.html")
    drawn = html.select("div.cell_output img")
    assert drawn
    for figure in html.find_all("figure"):
        pictures = figure.find_all("img")
        assert [picture["class"] for picture in pictures] == [
            ["only-light"],
            ["only-dark"],
        ]
        assert all(len(picture["alt"]) > 40 for picture in pictures)
        assert len(figure.figcaption.text) > 40
    assert all(picture.find_parent("figure") for picture in drawn), (
        "a picture without caption"
    )


def test_every_claim_of_the_chapters_is_on_the_page_of_claims():
    text = "".join(page.read_text() for page in chapters())
    made = re.findall(r'^claim\("(\w+)"', text, flags=re.M)
    in_loops = tuple(re.findall(r'^    claim\(f"(\w+_)\{', text, flags=re.M))
    html = soup(HTML / "chapters" / "claims.html")
    rows = html.select("table.claims tbody tr")
    keys = [row["id"].removeprefix("claim-").replace("-", "_") for row in rows]
    assert len(keys) == len(set(keys)) > 30
    looped = [key for key in keys if key not in made]
    assert [key for key in keys if key in made] == made
    assert all(key.startswith(in_loops) for key in looped)
    assert all(any(key.startswith(loop) for key in looped) for loop in in_loops)
    assert all(all(cell.text.strip() for cell in row.find_all("td")) for row in rows)


def test_each_row_of_the_claims_leads_to_the_cell_that_checked_it():
    page = HTML / "chapters" / "claims.html"
    for row in soup(page).select("table.claims tbody tr"):
        target, _, anchor = row.find("a", class_="checked-in")["href"].partition("#")
        cell = places((page.parent / target).resolve())[anchor].find_next(
            "div", class_="cell"
        )
        key = row["id"].removeprefix("claim-").replace("-", "_")
        assert f"{key}: " in cell.find(class_="cell_output").text


def test_every_chapter_was_executed_to_its_end():
    html = soup(HTML / "chapters" / "executions.html")
    rows = html.select("table.executions tbody tr")
    done = {Path(row.a["href"]).stem: float(row.find_all("td")[2].text) for row in rows}
    assert set(done) == {page.stem for page in chapters()}
    assert all(seconds > 0 for seconds in done.values())
    versions = dict(
        [cell.text.strip() for cell in row.find_all("td")]
        for row in html.select("table.versions tbody tr")
    )
    assert versions["Python"] == platform.python_version()
    assert versions["numpy"] == np.__version__


@pytest.mark.parametrize("page", chapters(), ids=lambda page: page.stem)
def test_notebooks_carry_the_outputs_of_the_book(page):
    notebook = with_outputs(page)
    assert unproven_cells(notebook) == []
    assert notebook.stat().st_mtime == page.stat().st_mtime, (
        "JupyterLab would refuse it"
    )


HEAD = """---
description: A page of a test.
jupytext:
  text_representation:
    extension: .md
    format_name: myst
kernelspec:
  display_name: Python 3
  language: python
  name: python3
---
# A page

"""


FLAGS = re.search(r"jupyter-book build \. (.*)", (ROOT / "Makefile").read_text())[1]
BUILD = [
    str(Path(sys.executable).parent / "jupyter-book"),
    "build",
    ".",
    *FLAGS.split(),
]


def lay_out(folder, text, timeout=60, **others):
    """Write a book of a first page and others into a folder, with the real settings."""
    for name in ("_ext", "_static"):
        shutil.copytree(
            ROOT / name,
            folder / name,
            ignore=shutil.ignore_patterns("__pycache__"),
            dirs_exist_ok=True,
        )
    shutil.copy(ROOT / "requirements.txt", folder)
    (folder / "chapters").mkdir(exist_ok=True)
    (folder / "chapters" / "references.bib").touch()
    config = (ROOT / "_config.yml").read_text()
    assert "timeout: 900" in config
    (folder / "_config.yml").write_text(
        config.replace("timeout: 900", f"timeout: {timeout}")
    )
    toc = ["format: jb-book", "root: chapters/index", "chapters:"]
    toc += [f"- file: chapters/{name}" for name in others]
    (folder / "_toc.yml").write_text("\n".join(toc if others else toc[:2]))
    for name, content in {"index": text, **others}.items():
        (folder / "chapters" / f"{name}.md").write_text(HEAD + content)


def build(folder, text, timeout=60, **others):
    """Build a book in a folder of its own."""
    lay_out(folder, text, timeout, **others)
    return build_again(folder)


def build_again(folder):
    """Build the book that lies in a folder; return the status and all that was said."""
    result = subprocess.run(
        BUILD, cwd=folder, capture_output=True, text=True, check=False
    )
    return result.returncode, result.stdout + result.stderr


def test_a_sound_page_builds_and_a_second_build_executes_nothing(tmp_path):
    cell = (
        "import time\nstart = time.time_ns()\nprint(start)\nfrom zoolib import claim\n"
    )
    cell += "claim('k', 'So.', 7, equals=7, fmt='d')\n"
    text = f"{{claim}}`k`\n\n```{{code-cell}} python\n{cell}```\n\n```{{claims}}\n```\n"
    status, output = build(tmp_path, text)
    assert status == 0, output
    first = (tmp_path / "_build/html/chapters/index.html").read_text()
    assert "claim-k" in first
    again = tmp_path / "again"
    again.mkdir()
    (cache,) = (tmp_path / "_build").glob("execution-*")
    shutil.copytree(cache, again / "_build" / cache.name)
    status, output = build(again, text)
    assert status == 0, output
    stamp = re.search(r"\d{19}", first)[0]
    assert stamp in (again / "_build/html/chapters/index.html").read_text()


FAULTS = {
    "assertion": (
        "```{code-cell} python\nassert 1 > 2, 'the numbers disagree'\n```\n",
        "the numbers disagree",
    ),
    "exception": ("```{code-cell} python\n{}['nothing here']\n```\n", "KeyError"),
    "claim": (
        "```{code-cell} python\nfrom zoolib import claim\nclaim('k', 'Two is more.', 2, above=3)\n```\n",
        "the claim does not hold: Two is more.",
    ),
    "claim-key": (
        "A number: {claim}`unknown`.\n",
        "no claim gives 'value' of 'unknown'",
    ),
    "reference": ("A {ref}`link` to nowhere.\n", "undefined label"),
    "citation": ("A {cite}`book` unknown.\n", "could not find bibtex key"),
    "stderr": (
        "```{code-cell} python\nimport warnings; warnings.warn('on the error stream')\n```\n",
        "stderr was found",
    ),
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """What is said of a book whose pages have one fault each; its warnings, each with its trace."""
    folder = tmp_path_factory.mktemp("faulty")
    pages = {name: text for name, (text, _) in FAULTS.items()}
    status, output = build(folder, "A sound page.", **pages)
    assert status != 0
    said = re.sub(r"\x1b\[[0-9;]*m", "", output)
    return re.split(r"(?=^\S*/chapters/[\w-]+\.md.*: WARNING: )", said, flags=re.M)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_warning_with_its_message(faulty, name):
    """Warnings are errors, so each of them alone would break the build."""
    warnings = [
        text for text in faulty if f"/chapters/{name}.md" in text.split("WARNING")[0]
    ]
    assert any(FAULTS[name][1] in text for text in warnings), faulty


def test_a_sound_page_is_warned_of_nothing(faulty):
    assert not any(
        "chapters/index.md" in text.split("WARNING")[0] for text in faulty[1:]
    )


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import time; time.sleep(30)", "timed out"),
        ("import os; os._exit(1)", "the kernel of index.md died"),
    ],
    ids=["time-out", "dead kernel"],
)
def test_a_cell_that_does_not_end_breaks_the_build(tmp_path, text, said):
    page = f"```{{code-cell}} python\n{text}\n```\n"
    status, output = build(tmp_path, page, timeout=4 if said == "timed out" else 60)
    assert status != 0
    assert said in output, output[-3000:]


def logging_page(name, *lines):
    """A page that leaves a line in a file for each of its executions."""
    code = ["import os, time", "from pathlib import Path"]
    code += [f"print('executed', file=Path('../{name}').open('a'))"]
    return "\n".join(["```{code-cell} python", *code, *lines, "```", ""])


def executions(folder, *names):
    return [len((folder / name).read_text().splitlines()) for name in names]


@pytest.mark.skipif(os.cpu_count() == 1, reason="one core: one notebook at a time")
def test_notebooks_run_side_by_side_each_once_with_one_thread(tmp_path):
    meeting = "while not Path('../{}').exists(): time.sleep(0.1)"
    threads = "print('threads:', os.environ['OPENBLAS_NUM_THREADS'])"
    pages = {
        "here": logging_page("here", meeting.format("there"), threads),
        "there": logging_page("there", meeting.format("here"), threads),
    }
    for _ in range(2):  # the second build finds both executed
        status, output = build(tmp_path, "A page.", **pages)
        assert status == 0, output
        assert executions(tmp_path, *pages) == [1, 1]
        html = (tmp_path / "_build/html/chapters/here.html").read_text()
        assert "threads: 1" in html


def test_a_notebook_that_fails_runs_once_a_build_and_is_not_kept(tmp_path):
    bad = logging_page("bad", "print('before')", "assert 1 > 2, 'they disagree'")
    for done in (1, 2):
        status, output = build(tmp_path, logging_page("good"), bad=bad)
        assert status != 0
        assert "chapters/bad.md: WARNING: Executing notebook failed" in output
        assert "they disagree" in output
        assert executions(tmp_path, "good", "bad") == [1, done]
        html = (tmp_path / "_build/html/chapters/bad.html").read_text()
        assert "before\n" in html


def test_ctrl_c_ends_the_build_and_its_kernels(tmp_path):
    endless = "print(os.getpid(), file=Path('../{}.pid').open('w')); time.sleep(600)"
    names = ["one", "two"][:AT_ONCE]
    pages = {name: logging_page(name, endless.format(name)) for name in names}
    lay_out(tmp_path, "A page.", **pages)
    files = [tmp_path / f"{name}.pid" for name in names]
    # A test run in the background of a shell ignores Ctrl-C, and its children would, too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        building = subprocess.Popen(BUILD, cwd=tmp_path, stderr=subprocess.PIPE)
    finally:
        signal.signal(signal.SIGINT, before)
    with building as process:
        while not all(file.exists() and file.read_text() for file in files):
            assert process.poll() is None
            time.sleep(0.1)
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=30)
    assert process.returncode != 0
    assert b"Interrupted" in said
    assert b"Traceback" not in said
    for file in files:
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)


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


def test_a_check_that_is_killed_is_no_pass(notebook):
    change(notebook, source="import os; os.kill(os.getppid(), 9)")
    assert check_all([notebook]) == 1
