"""The gate finds faults where code runs, and says what notices them."""

import ast

import pytest

from tests import mutants
from tests.notebooks import ROOT

pytestmark = pytest.mark.no_cover

SOURCE = '''\
LIMIT = 3


def clip(x: int, low: int = 0) -> int:
    """Return x, at least low."""
    if not x > low and True:
        raise ValueError(f"too small: {x + 1}")
    return x * -2
'''


def test_each_kind_of_fault_is_found_and_nothing_outside_of_functions():
    changes = {
        fault.before: fault.after for fault in mutants.mutants_of("m.py", SOURCE)
    }
    assert changes == {
        "not x > low and True": "(not x > low or True)",
        "not x > low": "(x > low)",
        "x > low": "(x >= low)",
        "True": "False",
        'raise ValueError(f"too small: {x + 1}")': "pass",
        "return x * -2": "return None",
        "x * -2": "(x / -2)",
        "-2": "(2)",
        "2": "3",
    }


def test_all_faults_of_the_library_are_modules_that_differ():
    file = ROOT / "zoolib/models/posterior.py"
    source = file.read_text()
    found = mutants.mutants_of("zoolib/models/posterior.py", source)
    assert len(found) > 100
    assert len(set(found)) == len(found)
    for fault in found:
        changed = ast.parse(mutants.mutated(fault, source))
        assert ast.dump(changed) != ast.dump(ast.parse(source))


def test_a_fault_of_another_version_is_refused():
    fault = mutants.mutants_of("m.py", SOURCE)[0]
    with pytest.raises(ValueError, match=r"m\.py:6 has changed"):
        mutants.mutated(fault, SOURCE.replace("not x", "x is None or x"))


def test_draws_are_repeatable_spread_and_only_where_tests_run():
    module = "zoolib/models/posterior.py"
    faults = mutants.mutants_of(module, (ROOT / module).read_text())
    line = faults[5].line
    tests_at = {module: {line: ["a test"]}, "zoolib/agents/policies.py": {}}
    one = mutants.drawn(tests_at, 2, seed=1)
    assert one == mutants.drawn(tests_at, 2, seed=1)
    assert {fault.line for fault in one} == {line}


@pytest.mark.parametrize(
    ("before", "after", "killer"),
    [
        ("'Two.'", "pass  # nothing", None),
        ("return 2", "return None", "test_counting.py::test_two"),
        # What cannot be imported: pytest ends at once, or cannot collect its tests.
        ("return 2", "return 2\nraise SystemExit", "no test could begin"),
        ("return 2", "return 2\nraise OSError", "no test could begin"),
    ],
)
def test_the_first_test_that_fails_is_the_killer(
    tmp_path, monkeypatch, before, after, killer
):
    (tmp_path / "tests").symlink_to(ROOT / "tests")
    (tmp_path / "pyproject.toml").write_text("[tool.pytest.ini_options]\n")
    module = "def two():\n    'Two.'\n    return 2\n"
    (tmp_path / "counting.py").write_text(module)
    (tmp_path / "test_counting.py").write_text(
        "import counting\ndef test_one(): assert counting.two\ndef test_two(): assert counting.two() == 2\n"
    )
    monkeypatch.setattr(mutants, "ROOT", tmp_path)
    line = 2 if before == "'Two.'" else 3
    fault = mutants.Mutant("counting.py", line, 4, before, after)
    tests = [f"test_counting.py::{name}" for name in ("test_one", "test_two")]
    assert mutants.judge(fault, tests, 500, tmp_path) == killer
    assert (tmp_path / "counting.py").read_text() == module
