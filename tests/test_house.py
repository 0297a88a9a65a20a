"""The plan of the house: public names, pins, and what prose may not contain."""

import ast
import importlib
import json
import os
import re
import shutil
import subprocess
import sys
import tomllib
from itertools import chain
from pathlib import Path
from statistics import median
from types import ModuleType

import execution
import pytest
import yaml
from packaging.requirements import Requirement

import zoolib
from tests.book.taught import LONGEST_CLASS, TAUGHT
from tests.notebooks import ROOT, chapters, name_of


@pytest.mark.parametrize(
    "package", ["zoolib", "zoolib.agents", "zoolib.large", "zoolib.sessions"]
)
def test_every_public_name_is_found_where_the_stub_says(package):
    package = importlib.import_module(package)
    stub = ast.parse(Path(package.__file__).with_suffix(".pyi").read_text())
    *lines, listed = stub.body
    homes = {
        a.name: ".".join(filter(None, (package.__name__, n.module)))
        for n in lines
        if isinstance(n, ast.ImportFrom)
        for a in n.names
    }
    others = {n.target.id for n in lines if not isinstance(n, ast.ImportFrom)}
    assert others == ({"__version__"} if package.__name__ == "zoolib" else set())
    assert sorted(package.__all__) == sorted(dir(package)) == sorted(homes)
    assert sorted(ast.literal_eval(listed.value)) == sorted(homes)
    for name, home in homes.items():
        here = getattr(package, name)
        if isinstance(here, ModuleType):
            assert here.__name__ == f"{home}.{name}"
        else:
            assert here is getattr(importlib.import_module(home), name)


@pytest.mark.parametrize(
    ("use", "unused"),
    [
        ("import zoolib", ["zoolib.world.simulator", "numpy"]),
        ("import zoolib; zoolib.__version__", ["zoolib.world.simulator", "numpy"]),
        ("from zoolib import check", ["zoolib.book.exercises.linucb", "torch"]),
        (
            "from zoolib import LinUCBAgent; LinUCBAgent(3, 2)",
            ["pandas", "scipy.stats", "torch"],
        ),
        ("from zoolib import run_experiment, LinUCBAgent, claim, plots", ["torch"]),
        (
            "from zoolib import Context, NeuralLinearAgent; "
            "one = NeuralLinearAgent(2, 1, train_every=1, batch_size=1); "
            "one.update(Context(0, [[1.0], [2.0]]), 0, 1)",
            ["torch._dynamo"],  # PyTorch's compiler: a second of each page that trains
        ),
    ],
)
def test_the_library_loads_what_is_used(use, unused):
    code = f"import sys; {use}; print([m for m in {unused} if m in sys.modules])"
    command = [sys.executable, "-c", code]
    run = subprocess.run(command, capture_output=True, text=True, cwd=ROOT, check=True)
    assert run.stdout == "[]\n"


def test_everything_in_the_lock_is_pinned_exactly():
    fewest = {
        "requirements.txt": 50,
        "requirements-lab.txt": 50,
        "requirements-site.txt": 15,
    }
    for lock, lines_at_least in fewest.items():
        lines = [
            line
            for line in (ROOT / lock).read_text().splitlines()
            if line and not line.startswith("#")
        ]
        assert len(lines) > lines_at_least
        assert all(re.match(r"[\w.-]+==[\w.]+( ;.*)?$", line) for line in lines)


def pins(lock):
    """Map the packages of a lock to their versions, where Pythons differ to the last one."""
    lines = (ROOT / lock).read_text().splitlines()
    return dict(re.match(r"([\w.-]+)==([\w.]+)", line).groups() for line in lines)


def test_the_lock_is_what_the_project_asks_for():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lock = pins("requirements.txt")
    extras = project["optional-dependencies"]
    ours = [lines for extra, lines in extras.items() if extra not in ("lab", "site")]
    for one in map(Requirement, chain(project["dependencies"], *ours)):
        if one.name != "zoolib":
            assert one.specifier.contains(lock[one.name]), one
    assert lock["torch"] == "2.13.0"
    assert not any(name.startswith(("nvidia", "triton")) for name in lock)


@pytest.mark.parametrize("extra", ["lab", "site"])
def test_what_is_added_later_leaves_the_lock_as_it_is(extra):
    lock, added = pins("requirements.txt"), pins(f"requirements-{extra}.txt")
    shared = lock.keys() & added.keys()
    assert "numpy" in shared
    assert {name: added[name] for name in shared} == {n: lock[n] for n in shared}


def prose(page):
    """A page without cells, directives' options, mathematics, code, links and roles."""
    text = page.read_text()
    text = re.sub(r"\A---\n.*?\n---\n", "", text, flags=re.S)
    text = re.sub(r"```\{(code-cell|math)\}.*?\n```", "", text, flags=re.S)
    text = re.sub(r"\$\$.*?\$\$|\$[^$]*\$", "", text, flags=re.S)
    text = re.sub("^`{3,}", "", text, flags=re.M)  # fences pair with no code in a line
    return re.sub(r"\{[\w:]+\}`[^`]*`|`[^`]*`|\]\([^)]*\)", "", text)


@pytest.mark.parametrize("page", chapters(), ids=name_of)
def test_no_measured_number_is_typed_into_the_prose(page):
    """Decimals and percentages in the text come from claims; whole numbers may be settings."""
    assert re.findall(r".{0,40}\d+\.\d+.{0,20}|.{0,40}\d\s?%.{0,20}", prose(page)) == []


@pytest.mark.parametrize("page", chapters(), ids=name_of)
def test_prose_keeps_its_voice(page):
    text = re.sub(r"!\[|!=", "", prose(page))
    assert "!" not in text
    assert not re.search("[\U0001f300-\U0001faff\u2600-\u27bf]", page.read_text())


@pytest.mark.parametrize("page", chapters(), ids=name_of)
def test_every_figure_has_a_name_a_caption_and_alt_text(page):
    cells = re.findall(r"```\{code-cell\}.*?\n(.*?)\n```", page.read_text(), flags=re.S)
    drawing = [cell for cell in cells if "plt.subplots" in cell]
    assert drawing or "plt." not in page.read_text()
    for cell in drawing:
        assert all(
            word in cell.split("---")[1] for word in ("alt:", "name:", "caption:")
        ), cell[:80]


def lines_of_cells(page, begin=""):
    """Count the lines of code cells of a page that begin so, options and blank lines left out."""
    cells = re.findall(
        r"```\{code-cell\}[^\n]*\n(.*?)^```", page.read_text(), flags=re.S | re.M
    )
    options = r"\A---\n.*?\n---\n|\A(?::[\w-]+:.*\n)+"
    bodies = [re.sub(options, "", cell, flags=re.S) for cell in cells]
    return [
        sum(bool(line.strip()) for line in body.splitlines())
        for body in bodies
        if re.match(begin, body.lstrip())
    ]


def test_code_cells_are_short():
    """A class of a page that teaches may be longer, as it is one thing."""
    taught = [page for page in chapters() if name_of(page) in TAUGHT]
    others = [page for page in chapters() if page not in taught]
    lengths = [n for page in others for n in lines_of_cells(page)]
    lengths += [n for page in taught for n in lines_of_cells(page, "(?!class )")]
    classes = [n for page in taught for n in lines_of_cells(page, "class ")]
    assert len(lengths) > 400
    assert max(lengths) < 30
    assert median(lengths + classes) < 8
    assert max(classes) <= LONGEST_CLASS


@pytest.mark.parametrize(
    ("options", "body", "lines"),
    [("", "x = 1\n", 1), ("---\ntags: [a]\n---\n", "x = 1\n\ny = 2\n", 2)],
)
def test_lines_of_cells_are_counted_without_options_and_gaps(
    tmp_path, options, body, lines
):
    page = tmp_path / "page.md"
    page.write_text(f"Text\n\n```{{code-cell}} python\n{options}{body}```\n")
    assert lines_of_cells(page) == [lines]


def test_docstrings_name_sections_that_their_chapters_have():
    named = set()
    for path in (ROOT / "zoolib").rglob("*.py"):
        text = " ".join(path.read_text().split())
        named |= set(re.findall(r'Chapter (\d), "([^"]+)"', text))
    pages = [page.read_text() for page in chapters(numbered=True)]
    titles = [re.findall(r"^#+ (.+)$", page, flags=re.M) for page in pages]
    assert len(named) > 10
    assert [one for one in named if one[1] not in titles[int(one[0]) - 1]] == []


@pytest.mark.parametrize("page", chapters(numbered=True), ids=name_of)
def test_chapters_end_with_exercises_that_are_solved(page):
    text = page.read_text()
    asked = re.findall(r"\{exercise-start\}.*?\n:label: (\S+)", text)
    solved = re.findall(
        r"\{solution-start\} (\S+)\n(.*?)\{solution-end\}", text, flags=re.S
    )
    assert len(asked) >= 4
    assert asked == [label for label, _ in solved]
    assert all("{code-cell}" in solution for _, solution in solved)


def test_pages_are_paired_with_notebooks():
    for page in chapters():
        head = page.read_text().split("---")[1]
        assert "formats: md:myst,ipynb" in head
        assert "format_name: myst" in head


@pytest.fixture
def tree(tmp_path):
    for folder in ("zoolib/agents", "chapters"):
        (tmp_path / folder).mkdir(parents=True)
    (tmp_path / "requirements.txt").write_text("torch==2.13.0\n")
    (tmp_path / "zoolib/agents/linear.py").write_text("x = 1\n")
    (tmp_path / "chapters/page.md").write_text("text\n")
    return tmp_path


@pytest.mark.parametrize(
    "name", ["requirements.txt", "zoolib/agents/linear.py", "zoolib/new.jsonl"]
)
def test_a_change_of_code_data_or_lock_empties_the_execution_cache(tree, name):
    before = execution.cache_folder(tree)
    (tree / name).write_text("something else\n")
    assert execution.cache_folder(tree) != before


def test_a_renamed_module_empties_the_execution_cache(tree):
    before = execution.cache_folder(tree)
    (tree / "zoolib/agents/linear.py").rename(tree / "zoolib/agents/lines.py")
    assert execution.cache_folder(tree) != before


@pytest.mark.parametrize("name", ["chapters/page.md", "README.md", "zoolib/linear.pyc"])
def test_prose_leaves_the_execution_cache_alone(tree, name):
    before = execution.cache_folder(tree)
    (tree / name).write_text("other words\n")
    assert execution.cache_folder(tree) == before


def make(folder, *arguments, **environment):
    command = ["make", "--no-print-directory", "-C", str(folder), *arguments]
    inherited = {
        k: v
        for k, v in os.environ.items()
        if not k.startswith("MAKE") and k != "MFLAGS"
    }
    return subprocess.run(
        command,
        env=inherited | environment,
        capture_output=True,
        text=True,
        check=False,
    )


@pytest.fixture
def clone(tmp_path):
    for name in ("Makefile", "requirements.txt", "pyproject.toml"):
        shutil.copy(ROOT / name, tmp_path)
    return tmp_path


@pytest.fixture
def built(clone):
    """Return a folder whose book was built once, by a program that only counts its calls."""
    tool = clone / ".venv/bin/jupyter-book"
    tool.parent.mkdir(parents=True)
    tool.write_text(
        "#!/bin/sh\ntest ! -f warn || exit 1\n"
        "mkdir -p _build/html && touch _build/html/index.html && echo >>.calls\n"
    )
    tool.chmod(0o755)
    (clone / "chapters").mkdir()
    (clone / "chapters/page.md").write_text("one\n")
    (clone / ".venv/ready").touch()
    assert make(clone, "book").returncode == 0
    return clone


def calls(folder):
    return len((folder / ".calls").read_text())


@pytest.mark.parametrize(
    "change",
    [
        lambda folder: (folder / "chapters/page.md").write_text("two\n"),
        lambda folder: (folder / "chapters/page.md").rename(folder / "chapters/p.md"),
        lambda folder: (folder / "chapters/page.md").unlink(),
        lambda folder: (folder / "new.bib").touch(),
        lambda folder: shutil.rmtree(folder / "_build/html"),
    ],
    ids=["changed", "renamed", "deleted", "added", "no pages"],
)
def test_a_book_whose_sources_have_changed_is_built_again(built, change):
    change(built)
    assert make(built, "book").returncode == 0
    assert calls(built) == 2


def test_the_address_of_the_book_is_one_of_its_sources(built):
    make(built, "book", BOOK_URL="https://example.org")
    assert calls(built) == 2


def test_a_warning_is_said_again_until_it_is_mended(built):
    (built / "warn").touch()
    assert make(built, "book").returncode != 0
    assert make(built, "book").returncode != 0
    (built / "warn").unlink()
    assert make(built, "book").returncode == 0
    assert calls(built) == 2


@pytest.fixture
def lab(built):
    """The same folder with a JupyterLab that only says how it was called."""
    for name in ("python", "jupyter-lab"):
        tool = built / ".venv/bin" / name
        tool.write_text(f'#!/bin/sh\necho "{name}: $*"\n')
        tool.chmod(0o755)
    (built / "requirements-lab.txt").touch()
    (built / ".venv/lab-ready").touch()
    make(built, "book")
    (built / ".calls").unlink()
    return built


def test_make_lab_needs_no_book_and_opens_its_first_notebook(lab):
    shutil.rmtree(lab / "_build/html")
    said = make(lab, "lab", "LAB_OPTIONS=--no-browser").stdout.splitlines()
    assert not (lab / ".calls").exists()
    assert said[-2:] == [
        "python: -m lab",
        "jupyter-lab: --no-browser --LabApp.default_url=/lab/tree/00-index.ipynb notebooks",
    ]


def test_links_find_their_cells_in_jupyterlab(lab):
    """In its usual mode they miss by up to a screen and more: it guesses the heights of unseen cells."""
    (lab / ".venv/lab-ready").unlink()
    assert make(lab, ".venv/lab-ready").returncode == 0
    settings = lab / ".venv/share/jupyter/lab/settings/overrides.json"
    found = json.loads(settings.read_text())
    assert found["@jupyterlab/notebook-extension:tracker"] == {"windowingMode": "full"}


def test_make_lab_opens_nothing_where_the_notebooks_cannot_be_made(lab):
    (lab / ".venv/bin/python").write_text("#!/bin/sh\nexit 1\n")
    for _ in range(2):
        result = make(lab, "lab")
        assert result.returncode != 0
        assert "jupyter-lab" not in result.stdout


def test_what_a_reader_writes_does_not_build_the_book_again(lab):
    (lab / "notebooks").mkdir()
    (lab / "notebooks/visits.csv").touch()
    make(lab, "lab")
    assert not (lab / ".calls").exists()


def test_make_edit_opens_the_sources_as_they_are(lab):
    shutil.rmtree(lab / "_build/html")
    assert make(lab, "edit").stdout == "jupyter-lab: chapters\n"


def test_make_alone_says_what_there_is(clone):
    said = make(clone).stdout
    assert all(target in said for target in ("make book", "make test", "make lab"))


def test_the_workflow_calls_the_two_commands_of_the_readme():
    commands = re.findall(r"^(make \w+)", (ROOT / "README.md").read_text(), flags=re.M)
    workflow = yaml.safe_load((ROOT / ".github/workflows/book.yml").read_text())
    steps = [step for job in workflow["jobs"].values() for step in job["steps"]]
    making = [step for step in steps if step.get("run", "").startswith("make")]
    run = [step["run"] for step in making]
    assert workflow["jobs"]["prove"]["env"]["STRICT"] == "1"
    assert run[:2] == commands[:2] == ["make book", "make test"]
    used = [step["uses"].split("@")[0] for step in steps if "uses" in step]
    assert used[-1] == "actions/deploy-pages"
    # With another address, `make pdf` would build the pages again, and publish those.
    addresses = {step["env"]["BOOK_URL"] for step in making}
    assert len(addresses) == 1
    assert "SOURCE_URL" in workflow["jobs"]["prove"]["env"]


def test_the_lengthy_tests_run_once_a_week():
    workflow = yaml.safe_load((ROOT / ".github/workflows/weekly.yml").read_text())
    proof = workflow["jobs"]["prove"]
    assert proof["steps"][-1]["run"] == "make test-all"
    named = re.findall(r"Python :: (3\.\d+)", (ROOT / "pyproject.toml").read_text())
    assert proof["strategy"]["matrix"]["python"] == [named[0], named[-1]]
    said = make(ROOT, "-n", "test-all").stdout, make(ROOT, "-n", "test").stdout
    assert ["tests.stages --weekly" in one for one in said] == [True, False]
    assert all("-m tests.stages" in one for one in said)


def test_the_version_is_the_same_everywhere():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text())
    released = re.findall(
        r"^## \[(\d.*?)\] - (\S+)$", (ROOT / "CHANGELOG.md").read_text(), flags=re.M
    )
    assert zoolib.__version__ == project["version"]
    assert project["version"] == citation["version"] == released[0][0]
    assert str(citation["date-released"]) == released[0][1]
    assert citation["license"] == project["license"] == "MIT"
    assert (ROOT / "LICENSE").read_text().startswith("MIT License")
    assert "CC BY 4.0" in (ROOT / "LICENSE-TEXT.md").read_text()
