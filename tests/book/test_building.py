"""How a book is built: what is executed, how often, and the ways in which a build must fail."""

import gc
import os
import re
import shutil
import signal
import subprocess
import time
from functools import partial
from multiprocessing.pool import ThreadPool
from types import SimpleNamespace

import nbformat
import psutil
import pytest
from execution import (
    AT_ONCE,
    FAILED,
    MYST_NOTEBOOK,
    SECONDS,
    SECONDS_PER_THOUSAND,
    announcement,
    execute,
    expected_seconds,
    forget_failures,
    longest_first,
    opened_cache,
)
from jupyter_cache.base import CacheBundleIn

from tests.book.building import BUILD, build, lay_out, warned, whole

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
    """What is said of a book whose pages have one fault each, by page."""
    pages = {name: text for name, (text, _) in FAULTS.items()}
    return warned(tmp_path_factory.mktemp("faulty"), **pages)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_is_a_warning_with_its_message(faulty, name):
    """Warnings are errors, so each of them alone would break the build."""
    assert any(FAULTS[name][1] in text for text in faulty[name]), faulty


def test_a_sound_page_is_warned_of_nothing(faulty):
    assert "index" not in faulty


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ("import time; time.sleep(30)", "timed out"),
        ("import os; os._exit(1)", "DeadKernelError"),
    ],
    ids=["time-out", "dead kernel"],
)
def test_a_cell_that_does_not_end_breaks_the_build(tmp_path, text, said):
    page, other = (
        f"```{{code-cell}} python\n{code}\n```\n" for code in (text, "import os, time")
    )
    timeout = 4 if said == "timed out" else 60
    status, output = build(tmp_path, page, timeout, other=other)
    assert status != 0
    assert said in output, output[-3000:]


def logging_page(name, *lines):
    """A page that leaves a line in a file for each of its executions."""
    code = ["import os, time", "from pathlib import Path"]
    code += [f"print('executed', file=Path('../{name}').open('a'))"]
    return "\n".join(["```{code-cell} python", *code, *lines, "```", ""])


def executions(folder, *names):
    return [len((folder / name).read_text().splitlines()) for name in names]


def test_notebooks_run_side_by_side_with_one_thread_and_never_again(tmp_path):
    claims = "from zoolib import claim\nclaim('k', 'So.', 7, equals=7, fmt='d')"
    first_page = f"{{claim}}`k`\n\n```{{code-cell}} python\n{claims}\n```\n\n```{{claims}}\n```\n"
    lines = ["print('threads:', os.environ['OPENBLAS_NUM_THREADS'], time.time_ns())"]
    if AT_ONCE > 1:  # they end only if both run at the same time
        lines += ["while len(list(Path('..').glob('*here'))) < 2: time.sleep(0.1)"]
    pages = {name: logging_page(name, *lines) for name in ("here", "there")}
    shown = []
    for folder in (tmp_path / "first", tmp_path / "again"):
        folder.mkdir()
        if shown:
            (cache,) = (tmp_path / "first/_build").glob("execution-*")
            shutil.copytree(cache, folder / "_build" / cache.name)
        status, output = build(folder, first_page, **pages)
        assert status == 0, output
        assert not re.search(r"copying|cached notebook|ParserConfig", output)
        told = re.findall(r"^(?:\d+ page.*|\d+ of \d+  .*)$", output, re.M)
        if shown:  # nothing is executed again
            assert told == []
        else:
            line = r"3 pages to execute, about 1 minute(;[123] of 3  A page  \d+ s){3}"
            assert re.fullmatch(line, ";".join(told))
        html = folder / "_build/html/chapters"
        assert "checked-k" in (html / "index.html").read_text()
        text = "".join((html / f"{name}.html").read_text() for name in pages)
        shown.append(re.findall(r"threads: (\d+) (\d{19})", text))
    assert executions(tmp_path / "first", *pages) == [1, 1]
    assert [threads for threads, _ in shown[0]] == ["1", "1"]
    assert shown[0] == shown[1]
    assert not any((tmp_path / "again" / name).exists() for name in pages)


def test_long_pages_are_executed_first(tmp_path):
    pages = [tmp_path / f"{length}.md" for length in (2, 30, 1)]
    for page in pages:
        page.write_text("x" * int(page.stem))
    assert [page.stem for page in longest_first(pages)] == ["30", "2", "1"]


def test_a_notebook_that_fails_is_not_kept(tmp_path):
    bad = logging_page("bad", "print('before')", "assert 1 > 2, 'they disagree'")
    for done in (1, 2):
        status, output = build(tmp_path, logging_page("good"), bad=bad)
        assert status != 0
        assert re.search(r"of \d  A page  \d+ s  FAILED\n", output)
        said = "chapters/bad.md: WARNING: Executing notebook failed: cell 1 (import os, time): "
        said += "AssertionError: they disagree; the whole is in _build/html/reports/chapters/bad.err.log"
        assert said in output
        assert executions(tmp_path, "good", "bad") == [1, done]
        html = tmp_path / "_build/html"
        assert "before\n" in (html / "chapters/bad.html").read_text()
        report = (html / "reports/chapters/bad.err.log").read_text()
        assert "assert 1 > 2, 'they disagree'" in report
        assert "\x1b" not in report


def keep(folder, page, seconds, failed=False):
    """Keep an execution of a page in a cache."""
    notebook = nbformat.v4.new_notebook(cells=[nbformat.v4.new_code_cell(page)])
    bundle = CacheBundleIn(notebook, page, data={SECONDS: seconds, FAILED: failed})
    with opened_cache(folder) as cache:
        cache.cache_notebook_bundle(bundle, check_validity=False)


def test_an_execution_that_failed_is_forgotten_though_the_build_was_killed(tmp_path):
    keep(tmp_path, "good.md", 1)
    keep(tmp_path, "bad.md", 2, failed=True)
    config = SimpleNamespace(
        nb_execution_mode="cache", nb_execution_cache_path=tmp_path
    )
    forget_failures(SimpleNamespace(config=config))
    with opened_cache(tmp_path) as cache:
        (kept,) = cache.list_cache_records()
    assert kept.uri == "good.md"


def test_a_cache_is_closed_after_use(tmp_path):
    """Python 3.13 and later warn of a database that was left open, in whatever runs then."""
    keep(tmp_path, "good.md", 1)
    config = SimpleNamespace(
        nb_execution_mode="cache", nb_execution_cache_path=tmp_path
    )
    gc.disable()  # which closes it by chance
    try:
        forget_failures(SimpleNamespace(config=config))
        expected_seconds(["good.md"], [tmp_path])
        opened = [file.path for file in psutil.Process().open_files()]
    finally:
        gc.enable()
    assert not [path for path in opened if str(tmp_path) in path]


def test_pages_of_the_same_code_are_kept_side_by_side(tmp_path, monkeypatch):
    """They have one place in the cache; two threads that wrote it ended a build now and then."""
    monkeypatch.setattr("nbclient.execute", lambda notebook, **settings: notebook)
    page = whole("```{code-cell} python\nprint(1)\n```\n")
    pages = [tmp_path / f"{number}.md" for number in range(AT_ONCE + 1)]
    with opened_cache(tmp_path / "cache") as cache, ThreadPool(len(pages)) as pool:
        for file in pages:
            file.write_text(page)
            cache.add_nb_to_project(str(file), read_data=MYST_NOTEBOOK)
        run = partial(execute, cache=cache, timeout=60)
        done = pool.map(run, [str(file) for file in pages] * 10)
        assert not [page for page in done if page.failure]
        assert len(cache.list_cache_records()) == 1


def test_a_page_takes_as_long_as_the_last_time_or_by_its_code(tmp_path):
    cell = "```{code-cell} python\n" + "x" * 2000 + "\n```"
    new = tmp_path / "new.md"
    new.write_text(f"{'Words ' * 1000}\n\n{cell}\n")
    for seconds in (70, 50):
        keep(tmp_path / f"execution-{seconds}", "old.md", seconds)
    os.utime(tmp_path / "execution-70", (1, 1))
    expected = expected_seconds(["old.md", str(new)], tmp_path.glob("execution-*"))
    assert expected["old.md"] == 50
    guessed = SECONDS_PER_THOUSAND * len(cell) / 1000
    assert expected[str(new)] == pytest.approx(guessed)


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        ([5], "1 page to execute, about 1 minute"),
        (
            [61] * AT_ONCE,
            f"{AT_ONCE} page{'s' * (AT_ONCE > 1)} to execute, about 2 minutes",
        ),
        ([200, 1, 1], "3 pages to execute, about 4 minutes"),
    ],
)
def test_what_is_to_come_is_said_in_pages_and_minutes(seconds, said):
    assert announcement(seconds) == said


def test_fonts_are_listed_before_a_page_may_hear_of_it(tmp_path, monkeypatch):
    """In a new home, a slow machine said so on the error stream of whatever cell came first."""
    fonts = tmp_path / "fonts"
    monkeypatch.setenv("MPLCONFIGDIR", str(fonts))
    page = "```{code-cell} python\nfrom pathlib import Path\n"
    page += f"print(len([*Path({str(fonts)!r}).glob('fontlist*')]), 'list')\n```\n"
    status, output = build(tmp_path, page)
    assert status == 0, output
    assert "1 list" in (tmp_path / "_build/html/chapters/index.html").read_text()


def test_ctrl_c_ends_the_build_and_its_kernels(tmp_path):
    # Busy in C, as a library may be: such a kernel does not hear that it should end.
    endless = "print(os.getpid(), file=Path('../{}.pid').open('w')); sum(range(10**15))"
    names = ["one", "two"][:AT_ONCE]
    pages = {name: logging_page(name, endless.format(name)) for name in names}
    lay_out(tmp_path, "A page.", **pages)
    files = [tmp_path / f"{name}.pid" for name in names]
    # A test run in the background of a shell ignores Ctrl-C, and its children would, too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        building = subprocess.Popen(
            BUILD, cwd=tmp_path, stdout=subprocess.PIPE, stderr=subprocess.PIPE
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with building as process:
        while not all(file.exists() and file.read_text() for file in files):
            assert process.poll() is None
            time.sleep(0.1)
        # Said before the work, also to a pipe.
        assert b"to execute, about 1 minute\n" in os.read(
            process.stdout.fileno(), 10**6
        )
        process.send_signal(signal.SIGINT)
        _, said = process.communicate(timeout=300)
    assert process.returncode != 0
    assert b"Interrupted" in said
    for file in files:
        with pytest.raises(ProcessLookupError):
            os.kill(int(file.read_text()), 0)
