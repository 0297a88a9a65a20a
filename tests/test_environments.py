"""The library in environments of its own: the core alone, in the lock's versions, the oldest and the newest."""

import json
import re
import subprocess
import sys
import tomllib
import venv
from importlib.metadata import distribution
from pathlib import Path

import downloads
import pytest
from packaging.requirements import Requirement

import zoolib
from tests.notebooks import ROOT
from zoolib._support.extras import EXTRAS, needed_by

PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
CORE = [Requirement(line) for line in PROJECT["dependencies"]]
PIP = [sys.executable, "-m", "pip", "--disable-pip-version-check", "--no-input"]
# Public names of zoolib, and modules, that want an extra.
NAMES = {
    "neural": """DQNAgent LastItems OneHot EnsembleAgent MCDropoutAgent MLPRecommender
        NeuralLinearAgent NeuralUCBAgent
        TrainingHistory gauntlet static_choices static_recommenders train_recommender""",
    "plots": "plots",
    "sweeps": "Sweep sweep",
}
MODULES = {
    "neural": """agents.neural agents.neural_linear agents.neural_ucb book.static large.ensembles
        models.networks models.recommender sessions.dqn""",
    "plots": "book.plots",
    "retrieval": "large.retrieval",
    "sweeps": "book.sweeps",
}
# Other lines of code that do, and whom the error names.
DEFAULT = "zoolib.service.BanditService('s.db', None, 2, 2, key=16 * b'k')"
LINES = {
    "import zoolib; zoolib.agents.NeuralUCBAgent": (
        "neural",
        "zoolib.agents.NeuralUCBAgent",
    ),
    "import zoolib; zoolib.large.retrieval": ("retrieval", "zoolib.large.retrieval"),
    "import zoolib; zoolib.check('ex-coverage', 0.5)": ("neural", "zoolib.check"),
    "import zoolib; zoolib.listing(print)": ("book", "zoolib.listing"),
    "import zoolib.book.grading": ("grade", "python -m zoolib grade"),
    "import zoolib.book.gauntlet": ("neural", "zoolib.agents.NeuralLinearAgent"),
    f"import zoolib; {DEFAULT}": (
        "neural",
        "neural_linear, the default make_agent of a service,",
    ),
}
# The package that is missed first.
FIRST = {
    "book": "IPython",
    "grade": "ipykernel",
    "neural": "PyTorch",
    "plots": "Matplotlib",
    "retrieval": "Faiss",
    "sweeps": "cloudpickle",
}


def wanted():
    """Map each line to what it must say."""
    lines = dict(LINES)
    for form, table in ("from zoolib import {}", NAMES), ("import zoolib.{}", MODULES):
        for extra, names in table.items():
            lines |= {form.format(n): (extra, f"zoolib.{n}") for n in names.split()}
    return {
        line: f'{who} needs {FIRST[extra]}: pip install "zoolib[{extra}]"'
        for line, (extra, who) in lines.items()
    }


@pytest.fixture(scope="module")
def wheel(tmp_path_factory):
    return downloads.build_wheel(tmp_path_factory.mktemp("wheel"))


def lend(packages):
    """Lay what the core depends on, as it is installed here, into an environment's folder of packages."""
    waiting, lent = list(CORE), set()
    while waiting:
        needed = waiting.pop()
        out_of_place = needed.marker and not needed.marker.evaluate({"extra": ""})
        if needed.name in lent or out_of_place:
            continue
        lent.add(needed.name)
        found = distribution(needed.name)
        waiting += map(Requirement, found.requires or [])
        for top in {file.parts[0] for file in found.files} - {"..", "__pycache__"}:
            (packages / top).symlink_to(found.locate_file(top))


def oldest(requirement):
    """Return the oldest version that a requirement allows, as a constraint."""
    (least,) = (s.version for s in requirement.specifier if s.operator == ">=")
    return f"{requirement.name}=={least}\n"


@pytest.fixture(
    scope="module",
    params=[
        "the core alone",
        pytest.param("oldest", marks=pytest.mark.weekly),
        pytest.param("newest", marks=pytest.mark.weekly),
    ],
)
def python(request, wheel, tmp_path_factory):
    """The interpreter of an environment that holds the wheel's core and nothing else."""
    folder = tmp_path_factory.mktemp("environment")
    venv.create(folder, symlinks=True)
    options = ["--only-binary=:all:"]
    if request.param == "the core alone":
        lend(next(folder.glob("lib/python*/site-packages")))
        options = ["--no-index"]  # complains if the core needs more than it was lent
    elif request.param == "oldest":
        constraints = folder / "oldest.txt"
        constraints.write_text("".join(map(oldest, CORE)))
        options += ["-c", constraints]
    own = folder / "bin" / "python"
    command = [*PIP, "--python", own, "install", "--quiet", *options, wheel]
    subprocess.run(command, check=True)
    return own


@pytest.fixture(scope="module")
def report(python, tmp_path_factory):
    """What the script of core use says there, with warnings as errors."""
    done = subprocess.run(
        [python, "-I", "-W", "error", ROOT / "tests" / "core_use.py"],
        cwd=tmp_path_factory.mktemp("shop"),
        input="\n".join(LINES),
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


def test_a_shop_runs_with_the_core_alone(report, python):
    assert Path(report["file"]).is_relative_to(python.parent.parent)


def test_whatever_needs_an_extra_names_it_in_one_line(report):
    assert report["said"] == wanted()


@pytest.fixture
def run(python, tmp_path):
    """Run the interpreter of that environment in an empty folder."""

    def call(*arguments):
        command = [python, "-I", *arguments]
        return subprocess.run(
            command, cwd=tmp_path, capture_output=True, text=True, check=False
        )

    return call


@pytest.mark.parametrize(
    ("package", "more"), [(zoolib, ""), (zoolib.agents, "Encoder NeuralAgent")]
)
def test_all_names_at_once_are_those_that_the_core_can_give(run, package, more):
    lacking = " ".join([*NAMES.values(), *MODULES.values(), more]).split()
    given = {*dir(package)} - {name.rpartition(".")[2] for name in lacking}
    code = (
        f"from {package.__name__} import *; print(*(n for n in dir() if n[0] != '_'))"
    )
    done = run("-c", code)
    assert done.returncode == 0, done.stderr
    assert done.stdout.split() == sorted(given)


def test_the_version_is_known_where_the_wheel_is_installed(run):
    done = run("-c", "import zoolib; print(zoolib.__version__)")
    assert done.stdout == PROJECT["version"] + "\n", done.stderr


def test_the_command_line_helps_without_any_extra(run):
    done = run("-m", "zoolib", "--help")
    assert done.returncode == 0, done.stderr
    assert "{gauntlet,grade}" in done.stdout


@pytest.mark.parametrize("more", [[], ["--help"], ["--worlds", "2"]])
def test_the_command_line_names_the_extra_too(run, more):
    done = run("-m", "zoolib", "gauntlet", *more)
    assert done.returncode == 2
    assert done.stderr == (
        'python -m zoolib: zoolib.gauntlet needs PyTorch: pip install "zoolib[neural]"\n'
    )


def test_the_outermost_that_needs_a_package_is_named():
    words = r'^the shop needs PyTorch: pip install "zoolib\[neural\]"$'
    shop, agent = needed_by("the shop"), needed_by("its agent")
    with pytest.raises(ImportError, match=words), shop, agent:
        raise ModuleNotFoundError("No module named 'torch'", name="torch")


@pytest.mark.parametrize(
    "error",
    [
        ModuleNotFoundError("No module named 'sympy'", name="sympy"),
        ImportError("cannot import name 'vmap' from 'torch'", name="torch"),
    ],
    ids=["of a package that is no extra's", "in a package that is there"],
)
def test_other_failures_to_import_are_left_as_they_are(error):
    with pytest.raises(ImportError) as raised, needed_by("the shop"):
        raise error
    assert raised.value is error


def holds(package, module):
    """Tell whether a package that is installed here brings a module."""
    return any(file.parts[0] == module for file in distribution(package).files)


def test_every_extra_brings_what_its_errors_promise():
    extras = {
        extra: list(map(Requirement, lines))
        for extra, lines in PROJECT["optional-dependencies"].items()
    }
    (chapters,) = (one for one in extras["book"] if one.name == "zoolib")
    assert chapters.extras == {extra for _, extra in EXTRAS.values()} - {"book"}
    for extra in chapters.extras:
        promised = {module for module, (_, which) in EXTRAS.items() if which == extra}
        brought = {
            next((module for module in promised if holds(one.name, module)), one.name)
            for one in extras[extra]
        }
        assert brought == promised
    # IPython comes with the book's kernel.
    assert "ipykernel" in {one.name for one in extras["book"]}
    assert any(
        line.startswith("ipython") for line in distribution("ipykernel").requires
    )


def test_the_core_allows_a_range_of_versions():
    for one in CORE:
        assert re.search(r">=\d", str(one.specifier)), one
        assert "==" not in str(one.specifier), one
    assert {one.name for one in CORE} == {
        "lazy-loader",
        "numpy",
        "pandas",
        "scipy",
        "threadpoolctl",
        "tqdm",
    }
