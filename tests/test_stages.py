"""How `make test` runs: what goes into which process, and how each of them ends, whatever happens in it."""

import subprocess
import sys
import time
from itertools import chain
from pathlib import Path

import psutil
import pytest
from coverage import Coverage

from tests import stages
from tests.notebooks import ROOT

pytestmark = pytest.mark.no_cover

ENDLESS = {
    "aborts": "import os; os.abort()",
    "sleeps": "import time; time.sleep(10_000)",
    "is busy in C": "sum(range(10**15))",
}


@pytest.mark.parametrize("body", ENDLESS.values(), ids=ENDLESS)
def test_a_worker_that_dies_or_hangs_is_a_red_line_with_the_name_of_the_test(
    tmp_path, body
):
    """And the session ends: with workers replaced, pytest-xdist waits for ever (its issues 784 and 1323)."""
    dying = f"def test_before(): pass\n\n\ndef test_that(): {body}\n\n\ndef test_after(): pass\n"
    (tmp_path / "test_dying.py").write_text(dying)
    for name in ("one", "two", "three"):
        (tmp_path / f"test_{name}.py").write_text("def test_good(): pass\n")
    settings = ["-c", str(ROOT / "pyproject.toml"), f"--rootdir={tmp_path}"]
    soon = ["-p", "no:cacheprovider", "-p", "no:nbval", "-o", "faulthandler_timeout=2"]
    command = stages.pytest(*stages.TWO_WORKERS, *settings, *soon, str(tmp_path))
    done = subprocess.run(
        command, cwd=tmp_path, capture_output=True, text=True, timeout=300, check=False
    )
    assert done.returncode == 1
    assert "crashed while running 'test_dying.py::test_that'" in done.stdout
    assert "FAILED test_dying.py::test_that" in done.stdout
    assert ", line 4 in test_that" in done.stderr  # where it stood


def commands():
    """The words of all commands of each stage."""
    return {
        name: list(chain(*stage.commands)) for name, stage in stages.stages().items()
    }


def test_every_test_belongs_to_one_stage():
    for file in (ROOT / "tests").rglob("test_*.py"):
        name = file.relative_to(ROOT).as_posix()
        found = [
            stage
            for stage, words in commands().items()
            if "pytest" in words
            and any(name.startswith(f"{word}/") for word in words)
            and not any(f"--ignore={folder}" in words for folder in parents(name))
        ]
        assert len(found) == 1, (name, found)


def parents(name):
    return [folder.as_posix() for folder in Path(name).parents]


def test_only_the_library_is_counted_and_no_worker_is_replaced():
    assert [name for name, words in commands().items() if "--cov" in words] == [
        "library"
    ]
    for words in commands().values():
        assert ("pytest" in words) == ("--max-worker-restart=0" in words)
        assert ("pytest" in words) == ("-n" in words)


def test_no_line_is_counted_where_a_test_says_so():
    assert Coverage.current() is None


def test_lengthy_runs_and_the_older_processor_are_the_week_s():
    daily, weekly = stages.stages(), stages.stages(weekly=True)
    assert set(weekly) - set(daily) == {"older processor"}
    for name in ("library", "pages", "browser"):
        assert "not weekly" in daily[name].commands[0]
        assert "not weekly" not in weekly[name].commands[0]


def stage(*codes, limit_min=5):
    return stages.Stage([[sys.executable, "-c", code] for code in codes], limit_min)


def test_a_stage_that_takes_too_long_is_stopped_with_all_that_it_started(
    tmp_path, capfd
):
    file = tmp_path / "pids"
    child = f"""
import subprocess, sys, time
sleep = [sys.executable, "-c", "import time; time.sleep(10_000)"]
pids = [subprocess.Popen(sleep, start_new_session=new).pid for new in (False, True)]
open({str(file)!r}, "w").write(" ".join(map(str, pids)))
time.sleep(10_000)
"""
    start = time.monotonic()
    assert not stages.run_stage("slow", stage(child, limit_min=0.2))
    assert time.monotonic() - start < 300
    assert "slow stopped after 0.2 minutes, its limit of time" in capfd.readouterr().out
    running = list(map(int, file.read_text().split()))
    while running := [pid for pid in running if runs(pid)]:
        assert time.monotonic() - start < 300
        time.sleep(0.1)


def runs(pid):
    """Tell whether a process has not ended, waited for or not."""
    try:
        return psutil.Process(pid).status() != psutil.STATUS_ZOMBIE
    except psutil.NoSuchProcess:
        return False


def test_stages_say_their_names_and_times_and_stop_at_the_first_that_fails(
    monkeypatch, capfd
):
    table = {
        "first": stage("print('one')", "sum(range(10**7))"),
        "second": stage("raise SystemExit(3)", "print('never')"),
        "third": stage("print('never')"),
    }
    monkeypatch.setattr(stages, "stages", lambda weekly: table)
    assert stages.main([]) == 1
    said = capfd.readouterr().out
    assert "3 stages: first, second, third\n== first\none\n== first holds: " in said
    assert "== second failed with status 3: " in said
    assert "never" not in said
    assert "s of processor time" in said
    assert stages.main(["third"]) == 0
    with pytest.raises(SystemExit):
        stages.main(["fourth"])


def test_two_workers_compute_on_a_thread_each(capfd):
    """With two each, on two cores, an exercise that trains an ensemble took twenty times its work."""
    code = "import torch; print(torch.get_num_threads())"
    assert stages.run_stage("any", stage(code)._replace(one_thread=True))
    assert "\n1\n" in capfd.readouterr().out
    pairs = [
        (one.one_thread, "loadfile" in chain(*one.commands))
        for one in stages.stages().values()
    ]
    assert all(thread == workers for thread, workers in pairs)


def test_stages_are_strict_in_a_lenient_shell(monkeypatch, capfd):
    monkeypatch.setenv("ZOOLIB_LENIENT", "1")
    code = "from zoolib.book.strictness import is_lenient; print(is_lenient())"
    assert stages.run_stage("any", stage(code))
    assert "False" in capfd.readouterr().out
    assert "STRICT=1" in stages.stages()["book"].commands[0]


def test_the_older_processor_builds_elsewhere(monkeypatch, tmp_path, capfd):
    look = """
import os, pathlib, sys
root = pathlib.Path(sys.argv[1])
print(root.name, os.environ["OPENBLAS_CORETYPE"], *sorted(p.name for p in root.iterdir()))
print((root / ".venv/bin/python").exists(), sys.argv[2:])
raise SystemExit(7)
"""
    (tmp_path / "_build").mkdir()
    (tmp_path / "chapters").mkdir()
    monkeypatch.setattr(stages, "ROOT", tmp_path)
    monkeypatch.setattr(
        stages, "make", lambda _, *given: [sys.executable, "-c", look, *given]
    )
    assert stages.main(["--older-processor"]) == 7
    said = capfd.readouterr().out.splitlines()
    assert said[0] == "book Nehalem .venv chapters"
    assert said[1].startswith("True ")
    assert "STRICT=1" in said[1]
    assert Path(sys.executable).exists()
