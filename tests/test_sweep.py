import json
import os
import signal
import threading
import time
import warnings
from concurrent.futures.process import BrokenProcessPool
from contextlib import nullcontext
from functools import partial

import joblib
import numpy as np
import pandas as pd
import pytest
from pandas.testing import assert_frame_equal
from threadpoolctl import threadpool_info, threadpool_limits

from tests.service_crash import quick_folder, start
from tests.sweep_crash import MOMENTS, begun, die_at, live, play
from zoolib import (
    SHOCK_1,
    SHOCK_2,
    Churn,
    EpsilonGreedyAgent,
    FeatureEngineer,
    LinUCBAgent,
    MarketShock,
    NeuralLinearAgent,
    RandomAgent,
    Sweep,
    ZooplusSimulator,
    recovery_time,
    run_experiment,
    share_of_oracle,
    sweep,
)
from zoolib.book import recordings, sweeps
from zoolib.book.described import described
from zoolib.book.strictness import SWITCH

small_world = partial(ZooplusSimulator, 10, 20)
linucb = partial(LinUCBAgent, 10, 9)
SHARE = {"share": share_of_oracle}


def quick(agents=None, settings=None, seeds=(3, 1), n_steps=12, **options):
    """Sweep a small grid in this process."""
    return sweep(
        {"LinUCB": linucb} if agents is None else agents,
        {"alpha": (0.1, 1.0)} if settings is None else settings,
        seeds,
        n_steps,
        **{
            "measures": SHARE,
            "make_world": small_world,
            "n_jobs": 1,
            "progress": False,
        }
        | options,
    )


class Begins:
    """A callable for `agents` that notes in a folder what it is asked for, and may fail."""

    def __init__(self, folder, fails=None):
        self.folder, self.fails = folder, fails

    def __call__(self, n_worlds, alpha, **setting):
        number = len(list(self.folder.iterdir()))
        (self.folder / f"{number}").write_text(f"{alpha} {n_worlds}")
        if self.fails and alpha == self.fails:
            raise RuntimeError(f"alpha must not be {alpha}")
        return LinUCBAgent(10, 9, alpha=alpha, n_worlds=n_worlds, **setting)

    def __repr__(self):
        return "Begins()"

    @property
    def asked(self):
        paths = sorted(self.folder.iterdir(), key=lambda path: int(path.name))
        return [path.read_text() for path in paths]

    def forget(self):
        for path in self.folder.iterdir():
            path.unlink()


@pytest.fixture
def begins(tmp_path):
    (tmp_path / "begun").mkdir()
    return Begins(tmp_path / "begun")


def strict(line):
    """Read a line as a reader that knows no NaN would."""

    def refuse(constant):
        raise AssertionError(constant)

    return json.loads(line, parse_constant=refuse)


# ---- What comes out


def test_a_sweep_measures_every_agent_setting_and_world():
    shocks, churn = {20: SHOCK_1, 50: SHOCK_2}, Churn(30)
    make_features = partial(FeatureEngineer, interactions=True)
    found = quick(
        {
            "LinUCB": partial(LinUCBAgent, 10, 29),
            "greedy": lambda alpha, ridge, n_worlds: EpsilonGreedyAgent(
                10, 29, epsilon=alpha / 10, ridge=ridge, n_worlds=n_worlds
            ),
        },
        {"alpha": (0.1, 1.0), "ridge": (1, 3)},
        seeds=(5, 3, 4),
        n_steps=80,
        shocks=shocks,
        churn=churn,
        make_features=make_features,
        worlds_per_task=2,
        measures=SHARE | {"clicks": lambda h, name: h.reward[0].sum(axis=-1)},
    )
    rows = []
    for name in ("LinUCB", "greedy"):
        for alpha in (0.1, 1.0):
            for ridge in (1, 3):
                for seed in (5, 3, 4):
                    agent = (
                        LinUCBAgent(10, 29, alpha=alpha, ridge=ridge)
                        if name == "LinUCB"
                        else EpsilonGreedyAgent(10, 29, epsilon=alpha / 10, ridge=ridge)
                    )
                    history = run_experiment(
                        {name: agent},
                        [seed],
                        80,
                        shocks,
                        churn=churn,
                        make_world=small_world,
                        make_features=make_features,
                        progress=False,
                    )
                    share = share_of_oracle(history, name)[0]
                    rows.append(
                        (name, alpha, ridge, seed, share, float(history.reward.sum()))
                    )
    assert isinstance(found, Sweep)
    assert list(found.table.columns) == [
        "agent",
        "alpha",
        "ridge",
        "seed",
        "share",
        "clicks",
    ]
    wanted = pd.DataFrame(rows, columns=found.table.columns)
    assert_frame_equal(found.table, wanted, rtol=1e-12)
    assert wanted.share.nunique() > 12


def test_settings_may_be_given_one_by_one_with_different_names():
    settings = [{"alpha": 1.0}, {}, {"ridge": 2, "alpha": 0.5}]
    table = quick(settings=settings, seeds=[0]).table
    assert list(table.columns) == ["agent", "alpha", "ridge", "seed", "share"]
    np.testing.assert_array_equal(table.alpha, [1.0, np.nan, 0.5])
    np.testing.assert_array_equal(table.ridge, [np.nan, np.nan, 2])


def test_the_best_setting_has_the_highest_mean():
    rows = [
        ("one", 0.1, 1, 3, 0.9),  # the highest share, but a lower mean
        ("one", 0.1, 1, 1, 0.3),
        ("one", 1.0, 2, 3, 0.7),
        ("one", 1.0, 2, 1, 0.7),
        ("two", 1.0, 2, 3, 0.5),  # comes first of equals
        ("two", 1.0, 2, 1, 0.5),
        ("two", 0.1, 1, 3, 0.4),
        ("two", 0.1, 1, 1, 0.6),
    ]
    table = pd.DataFrame(rows, columns=["agent", "alpha", "ridge", "seed", "share"])
    chosen = {"alpha": 1.0, "ridge": 2}
    assert Sweep(table).best("share") == {"one": chosen, "two": chosen}
    assert Sweep(table).best("seed")["two"] == chosen
    assert quick(settings={}).best("share") == {"LinUCB": {}}


def test_settings_reach_agents_as_pythons_own_values(tmp_path):
    def make(n_worlds, **setting):
        assert {name: type(value) for name, value in setting.items()} == {
            "a": float,
            "b": int,
            "c": bool,
            "d": str,
            "e": type(None),
            "f": tuple,
        }
        assert setting["f"] == (1, (2.5, None))
        assert type(setting["f"][0]) is int
        return RandomAgent(10, n_worlds=n_worlds)

    settings = {
        "a": np.linspace(0, 1, 2),
        "b": np.array([7]),
        "c": [np.True_],
        "d": ["x"],
        "e": [None],
        "f": [[np.int32(1), [2.5, None]]],
    }
    options = {"path": tmp_path / "kept.jsonl", "agents": {"r": make}}
    found = quick(settings=settings, seeds=[0], **options)
    assert list(found.table.a) == [0.0, 1.0]
    assert found.table.f[0] == (1, (2.5, None))
    again = quick(settings=settings, seeds=[0], **options)
    assert_frame_equal(again.table, found.table, check_exact=True)


def neural(train_every, n_worlds):
    return NeuralLinearAgent(
        10, 9, hidden=(8, 4), train_every=train_every, n_worlds=n_worlds
    )


def everywhere(path, **options):
    """Sweep a grid with local functions, networks and shocks."""
    late = 60

    def local(train_every, n_worlds):
        return LinUCBAgent(10, 9, alpha=train_every / 100, n_worlds=n_worlds)

    return quick(
        {
            "neural": neural,
            "local": local,
            "random": lambda train_every, n_worlds: RandomAgent(10, n_worlds=n_worlds),
        },
        {"train_every": (30, 70)},
        range(5),
        100,
        shocks={late: SHOCK_2},
        measures={
            "share": share_of_oracle,
            "recovery": lambda h, name: recovery_time(h, name, late, visits=3),
        },
        path=path,
        worlds_per_task=2,
        **options,
    )


@pytest.fixture(scope="module")
def alone(tmp_path_factory):
    """What comes out, and what the file holds, when one process plays everything."""
    path = tmp_path_factory.mktemp("alone") / "kept.jsonl"
    return everywhere(path), finished(path)


@pytest.fixture(scope="module")
def cluster(tmp_path_factory):
    dask, distributed = (pytest.importorskip(name) for name in ("dask", "distributed"))
    patient = {
        f"distributed.comm.timeouts.{what}": "120s" for what in ("connect", "tcp")
    }
    with (
        dask.config.set(patient),  # a busy machine starts processes slowly
        warnings.catch_warnings(),
        distributed.LocalCluster(
            n_workers=2,
            threads_per_worker=1,
            dashboard_address=None,
            local_directory=tmp_path_factory.mktemp("dask"),
        ) as two,
        distributed.Client(two, timeout=120),
    ):
        yield
        warnings.simplefilter("ignore")  # what Dask says while it closes


@pytest.mark.parametrize(
    ("backend", "n_jobs"),
    [
        ("threading", 3),
        ("loky", 2),
        pytest.param(
            "dask",
            -1,
            # Connections that Dask drops on closing are no fault of a sweep.
            marks=pytest.mark.filterwarnings(
                "ignore::pytest.PytestUnraisableExceptionWarning"
            ),
        ),
    ],
)
def test_it_is_all_one_where_and_how_many_at_a_time_tasks_are_played(
    backend, n_jobs, alone, tmp_path, request
):
    if backend == "dask":
        request.getfixturevalue("cluster")
    path = tmp_path / "kept.jsonl"
    with joblib.parallel_config(backend=backend):
        found = everywhere(path, n_jobs=n_jobs)
    wanted, kept = alone
    assert_frame_equal(found.table, wanted.table, check_exact=True)
    assert finished(path) == kept
    assert len(wanted.table) == 6 * 5


def test_tasks_are_played_in_other_processes(tmp_path):
    def where(history, name):
        return [os.getpid()]

    found = quick(seeds=range(4), n_jobs=2, measures={"pid": where})
    assert os.getpid() not in set(found.table.pid)


def test_every_task_begins_with_a_fresh_copy_of_what_it_calls():
    calls = []

    def make(alpha, n_worlds):
        calls.append(alpha)
        return LinUCBAgent(10, 9, alpha=float(len(calls)), n_worlds=n_worlds)

    found = quick({"a": make}, measures={"n": lambda h, name: [len(calls)]})
    assert calls == []
    assert list(found.table.n) == [1] * 4


def test_a_task_is_played_on_one_thread():
    def threads(history, name):
        return [max(pool["num_threads"] for pool in threadpool_info())]

    with threadpool_limits(2), joblib.parallel_config(backend="threading"):
        before = [pool["num_threads"] for pool in threadpool_info()]
        assert set(before) == {2}
        found = quick(n_jobs=2, measures={"threads": threads})
        assert [pool["num_threads"] for pool in threadpool_info()] == before
    assert set(found.table.threads) == {1}


def test_without_a_number_of_jobs_joblib_is_asked():
    def where(history, name):
        return [threading.get_ident()]

    for backend, here in ((None, True), ("threading", False)):
        with (
            joblib.parallel_config(backend=backend, n_jobs=2)
            if backend
            else (nullcontext())
        ):
            found = quick(n_jobs=None, measures={"thread": where})
        assert (set(found.table.thread) == {threading.get_ident()}) == here


# ---- What fails


def test_a_task_that_fails_is_named_and_played_by_the_next_call(tmp_path, begins):
    begins.fails, path = 1.0, tmp_path / "kept.jsonl"
    with pytest.raises(RuntimeError, match=r"alpha must not be 1\.0") as failure:
        quick({"bad": begins}, path=path, worlds_per_task=2)
    assert failure.value.__notes__ == [
        "This was agent 'bad' with alpha=1.0 in worlds 3, 1.",
        "1 of 2 tasks are finished and kept: the same call plays the rest",
    ]
    begins.fails = None
    begins.forget()
    found = quick({"bad": begins}, path=path, worlds_per_task=2)
    assert begins.asked == ["1.0 2"]
    wanted = quick({"bad": begins}, worlds_per_task=2)
    assert_frame_equal(found.table, wanted.table, check_exact=True)


class LosesHeart(RandomAgent):
    def update(self, context, arm, reward):
        if context.user_id[0] >= 0:
            raise LookupError("no heart")


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        (
            {"agents": {"a": lambda alpha, n_worlds: LosesHeart(10, n_worlds)}},
            LookupError,
            "no heart",
        ),
        ({"measures": {"m": lambda h, name: 1 / 0}}, ZeroDivisionError, "division"),
        (
            {"measures": {"m": lambda h, name: [0.5, 0.5]}},
            ValueError,
            r"measure 'm' must have shape \(1,\): got \(2,\)",
        ),
        (
            {"measures": {"m": lambda h, name: ["x"]}},
            TypeError,
            "measure 'm' must hold real numbers",
        ),
    ],
    ids=["in the arena", "measure", "shape", "kind"],
)
@pytest.mark.parametrize("n_jobs", [1, 2])
def test_what_goes_wrong_in_a_task_is_told(options, error, words, n_jobs):
    with pytest.raises(error, match=words) as told:
        quick(settings={"alpha": [1.0]}, seeds=[0], n_jobs=n_jobs, **options)
    assert any(note.startswith("This was agent") for note in told.value.__notes__)


def test_a_worker_that_dies_ends_the_sweep_and_the_next_call_plays_the_rest(tmp_path):
    path, excuse = tmp_path / "kept.jsonl", tmp_path / "excuse"

    def make(alpha, n_worlds):
        if alpha == 0.4 and not excuse.exists():
            os._exit(3)
        return LinUCBAgent(10, 9, alpha=alpha, n_worlds=n_worlds)

    settings = {"alpha": (0.1, 0.2, 0.3, 0.4)}
    options = {"settings": settings, "worlds_per_task": 2}
    with pytest.raises(BrokenProcessPool) as death:
        quick({"a": make}, path=path, n_jobs=2, **options)
    n_kept = len(finished(path))
    assert n_kept >= 1
    assert death.value.__notes__ == [
        f"{n_kept} of 4 tasks are finished and kept: the same call plays the rest"
    ]
    excuse.touch()
    found = quick({"a": make}, path=path, n_jobs=2, **options)
    wanted = quick({"a": make}, **options)
    assert_frame_equal(found.table, wanted.table, check_exact=True)
    assert {one.name for one in tmp_path.iterdir()} == {"kept.jsonl", "excuse"}


# ---- What is kept


def test_a_file_keeps_what_is_finished(tmp_path, begins):
    path = tmp_path / "kept.jsonl"
    agents = {"a": begins}
    found = quick(agents, path=path)
    assert begins.asked == ["0.1 1", "0.1 1", "1.0 1", "1.0 1"]
    begins.forget()
    content, written = path.read_bytes(), path.stat().st_mtime_ns
    again = quick(agents, path=path)
    assert begins.asked == []
    assert_frame_equal(again.table, found.table, check_exact=True)
    assert (path.read_bytes(), path.stat().st_mtime_ns) == (content, written)
    assert {p.name for p in tmp_path.iterdir()} == {"kept.jsonl", "begun"}


def test_without_a_path_nothing_is_kept(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    quick()
    assert list(tmp_path.iterdir()) == []


def test_every_line_is_strict_json_and_says_what_was_played(tmp_path, monkeypatch):
    path = tmp_path / "kept.jsonl"
    numbers = [0.1 + 0.2, np.nan, np.inf, -np.inf]

    def measure(history, name):
        return numbers

    found = quick(
        settings={"alpha": (0.1,), "ridge": (2,)},
        seeds=range(4),
        shocks={5: SHOCK_2},
        churn=Churn(4, 0.5),
        path=path,
        worlds_per_task=4,
        measures={"m": measure},
    )
    header, line = map(strict, path.read_text().splitlines())
    assert header == {
        "n_steps": 12,
        "shocks": {"5": ["cat_connoisseur", {"Dog Toy": 0.75}]},
        "churn": [4, 0.5],
        "make_world": "ZooplusSimulator(10, 20)",
        "make_features": "FeatureEngineer",
        "measures": {
            "m": described("measure", measure),
        },
        "worlds_per_task": 4,
        "agents": {"LinUCB": "LinUCBAgent(10, 9)"},
    }
    assert line == {
        "agent": "LinUCB",
        "setting": {"alpha": 0.1, "ridge": 2},
        "seeds": [0, 1, 2, 3],
        "measures": {"m": [0.30000000000000004, "nan", "inf", "-inf"]},
    }
    np.testing.assert_array_equal(found.table.m, numbers)
    monkeypatch.setattr(sweeps, "_play", None)  # nothing is played
    again = quick(
        settings={"ridge": (2,), "alpha": (0.1,)},  # the order of names is no matter
        seeds=range(4),
        shocks={5: SHOCK_2},
        churn=Churn(4, 0.5),
        path=path,
        worlds_per_task=4,
        measures={"m": measure},
    )
    np.testing.assert_array_equal(again.table.m, numbers)
    assert strict(path.read_text().splitlines()[1])["measures"] == line["measures"]


def test_a_grid_that_has_grown_plays_only_what_is_new(tmp_path, begins):
    path = tmp_path / "kept.jsonl"
    settings, seeds = {"alpha": (0.5, 1.0)}, (3, 1)
    quick({"a": begins}, settings, seeds, path=path, worlds_per_task=2)
    begins.forget()
    agents = {"b": linucb, "a": begins}
    settings, seeds = {"alpha": (0.1, 1, 0.5)}, (7, 5, 3, 1, 9)
    found = quick(agents, settings, seeds, path=path, worlds_per_task=2)
    assert begins.asked == ["0.1 2", "0.1 2", "0.1 1", "1 2", "1 1", "0.5 2", "0.5 1"]
    wanted = quick(agents, settings, seeds, worlds_per_task=2).table
    assert_frame_equal(found.table, wanted, rtol=1e-12)
    begins.forget()
    quick(agents, settings, seeds, path=path, worlds_per_task=2)
    with pytest.raises(ValueError, match=r"this grid: .* in worlds 3, 1"):
        quick(agents, settings, seeds[1:], path=path, worlds_per_task=2)
    assert begins.asked == []


def test_arrays_that_differ_in_the_middle_are_told_apart():
    tables = np.zeros((2, 2000))
    tables[1, 1000] = 1
    first, second, again = (
        described("it", partial(RandomAgent, table)) for table in tables[[0, 1, 0]]
    )
    assert first == again != second


@pytest.mark.parametrize(
    ("changed", "words"),
    [
        ({"n_steps": 13}, "n_steps of .* is 12, not 13"),
        ({"shocks": {5: SHOCK_2}}, "shocks of .* is {}, not {'5'"),
        ({"churn": Churn(4)}, r"churn of .* is None, not \[4, 0.2\]"),
        ({"make_world": partial(small_world, rich=True)}, "make_world of .*rich=True"),
        (
            {"make_features": partial(FeatureEngineer, interactions=True)},
            "make_features of .*interactions=True",
        ),
        (
            {"make_features": type("FeatureEngineer", (FeatureEngineer,), {})},
            r"make_features of .*'FeatureEngineer#[0-9a-f]{12}'",
        ),
        ({"measures": {"part": share_of_oracle}}, "measures of"),
        ({"measures": {"share": lambda h, name: [0]}}, "measures of .*lambda"),
        ({"worlds_per_task": 2}, "worlds_per_task of .* is 1, not 2"),
        ({"agents": {"LinUCB": partial(linucb, ridge=2)}}, "agents of .*ridge=2"),
        ({"settings": {"alpha": (0.1, 0.3)}}, "this grid: .* with alpha=1.0"),
        ({"settings": {"ridge": (0.1, 1.0)}}, "this grid: .* with alpha=0.1"),
        ({"seeds": (3, 2)}, "this grid: .* in worlds 1"),
        ({"agents": {"other": linucb}}, "this grid: .* agent 'LinUCB'"),
    ],
)
def test_a_file_of_another_experiment_is_refused_and_left_alone(
    changed, words, tmp_path
):
    path = tmp_path / "kept.jsonl"
    quick(path=path)
    content = path.read_bytes()
    with pytest.raises(
        ValueError, match=f"path must name a (file|record) of .*{words}"
    ):
        quick(**changed, path=path)
    assert path.read_bytes() == content
    assert list(tmp_path.iterdir()) == [path]


def test_an_empty_file_is_a_new_one(tmp_path):
    (tmp_path / "kept.jsonl").touch()
    quick(path=tmp_path / "kept.jsonl")
    assert len(finished(tmp_path / "kept.jsonl")) == 4


@pytest.mark.parametrize(
    ("change", "lost"),
    [
        (lambda lines: lines[:1], ["0.1 1", "0.1 1", "1.0 1", "1.0 1"]),
        (lambda lines: lines[:2], ["0.1 1", "1.0 1", "1.0 1"]),
        (lambda lines: [*lines[:4], lines[4][:-9]], ["1.0 1"]),
        (lambda lines: [*lines[:4], lines[4][:-1]], ["1.0 1"]),
        (lambda lines: [lines[0], *lines[:0:-1]], []),
        (lambda lines: [*lines, lines[2]], []),
    ],
    ids=["nothing left", "lines gone", "torn", "no end", "disorder", "twice"],
)
def test_runs_that_a_record_lacks_are_played(change, lost, begins, tmp_path):
    path = tmp_path / "kept.jsonl"
    agents = {"a": begins}
    found = quick(agents, path=path)
    kept = finished(path)
    path.write_bytes(b"".join(change(path.read_bytes().splitlines(keepends=True))))
    begins.forget()
    again = quick(agents, path=path)
    assert begins.asked == lost
    assert_frame_equal(again.table, found.table, check_exact=True)
    assert finished(path) == kept


DAMAGED = {
    "a table": lambda content: b"a,b\n1,2\n",
    "bytes": lambda content: b"\x00\xff",
    "an empty header": lambda content: b"{}\n",
    "a list": lambda content: b"[1, 2]\n",
    "a poor header": lambda content: b'{"n_steps": 12}\n',
    "an empty line": lambda content: b"\n",
    "a torn header": lambda content: content[: content.index(b"\n") - 9],
    "no text": lambda content: content.replace(b"{", b"\xff", 1),
    "no agent": lambda content: content.replace(b'"agent"', b'"actor"'),
    "a world more": lambda content: content.replace(b"[3]", b"[3, 1]"),
    "a strange line": lambda content: content + b"17\n",
    "two headers": lambda content: content + content,
}


@pytest.mark.parametrize("change", DAMAGED.values(), ids=DAMAGED)
def test_a_damaged_record_is_refused_and_left_alone(change, tmp_path, monkeypatch):
    path = tmp_path / "kept.jsonl"
    quick(path=path)
    path.write_bytes(damaged := change(path.read_bytes()))
    words = r"a file of sweep: got .*kept\.jsonl', which is damaged .*; restore it, or"
    for switch in ("0", "1"):
        monkeypatch.setenv(SWITCH, switch)
        with pytest.raises(ValueError, match=words):
            quick(path=path)
        assert path.read_bytes() == damaged
    assert [*tmp_path.iterdir()] == [path]


# ---- What is refused


LOCK = threading.Lock()  # no other process can have it
TWICE = (0.1, np.float64(0.1))
TURNED = [{"alpha": 1, "ridge": 2}, {"ridge": 2.0, "alpha": 1}]


def behind(lock, *worlds, seed=0):
    """A world, or features of worlds, whose maker holds a lock."""
    return FeatureEngineer(*worlds) if worlds else small_world(seed=seed)


@pytest.mark.parametrize(
    ("options", "error", "words"),
    [
        ({"agents": [linucb]}, TypeError, r"agents must be a mapping .* got \["),
        ({"agents": {}}, ValueError, "agents must hold at least one callable"),
        ({"agents": {1: linucb}}, TypeError, "agents must be a mapping of names .*{1:"),
        ({"agents": {"a": LinUCBAgent(10, 9)}}, TypeError, "to callables: got {'a'"),
        ({"measures": share_of_oracle}, TypeError, "measures must be a mapping"),
        ({"measures": {}}, ValueError, "measures must hold at least one callable"),
        ({"measures": {"m": 3}}, TypeError, "measures must be .* got {'m': 3"),
        ({"measures": {"seed": len}}, ValueError, "columns must differ: got 'seed'"),
        ({"measures": {"alpha": len}}, ValueError, "columns must differ: got 'alpha'"),
        ({"settings": {"alpha": 0.3}}, TypeError, "of 'alpha' must be a seq.* got 0.3"),
        ({"settings": {"kind": "abc"}}, TypeError, "of 'kind' must be a seq.* 'abc'"),
        ({"settings": {"alpha": {1, 2}}}, TypeError, "of 'alpha' must be a sequence"),
        ({"settings": {"alpha": ()}}, ValueError, "settings must hold at least one"),
        ({"settings": []}, ValueError, "settings must hold at least one"),
        ({"settings": [3]}, TypeError, r"settings must be a mapping, or .* got \[3\]"),
        ({"settings": "alpha"}, TypeError, "settings must be a mapping, or .*'alpha'"),
        ({"settings": {"seed": (1,)}}, ValueError, "columns must differ: got 'seed'"),
        ({"settings": {"n_worlds": (1,)}}, ValueError, "must differ: got 'n_worlds'"),
        ({"settings": {"alpha": (np.nan,)}}, ValueError, "'alpha' must be finite"),
        ({"settings": {"alpha": (np.inf,)}}, ValueError, "'alpha' must be finite"),
        ({"settings": {"alpha": (1j,)}}, TypeError, "'alpha' must be a number, .*1j"),
        ({"settings": {"alpha": (len,)}}, TypeError, "'alpha' must be a number, .*len"),
        ({"settings": {"alpha": TWICE}}, ValueError, "differ: got .*0.1.* than once"),
        ({"settings": TURNED}, ValueError, "differ: got .*'ridge', 2.* than once"),
        ({"seeds": (1, 2, 1)}, ValueError, "seeds must differ: got 1 more than once"),
        ({"seeds": ()}, ValueError, "seeds must hold one seed"),
        ({"seeds": (1.5,)}, TypeError, "seed must be a whole number"),
        ({"n_steps": 0}, ValueError, "n_steps must be at least 1"),
        ({"shocks": {12: SHOCK_1}}, ValueError, "shocks must come before"),
        ({"shocks": {1: MarketShock("x", {})}}, ValueError, "persona must be one of"),
        ({"churn": 4}, TypeError, "churn must be a Churn or None: got int"),
        ({"worlds_per_task": 0}, ValueError, "worlds_per_task must be at least 1"),
        ({"n_jobs": 0}, ValueError, "n_jobs == 0"),
        ({"n_jobs": "all"}, ValueError, "n_jobs could not be converted"),
        (
            {"agents": {"a": partial(linucb, lock=LOCK)}},
            TypeError,
            "agents, .*picklable",
        ),
        ({"measures": {"m": partial(len, LOCK)}}, TypeError, "picklable, .*lock"),
        ({"make_features": partial(behind, LOCK)}, TypeError, "features .*picklable"),
        ({"make_world": partial(behind, LOCK)}, TypeError, "make_world .*picklable"),
    ],
)
def test_bad_arguments_are_refused_before_anything_is_played(
    options, error, words, tmp_path
):
    with pytest.raises(error, match=words):
        quick(**options, path=tmp_path / "kept.jsonl")
    assert list(tmp_path.iterdir()) == []


# ---- How far it is


def test_the_bar_counts_tasks_and_knows_those_from_before(
    tmp_path, capsys, monkeypatch
):
    monkeypatch.setenv("TQDM_DISABLE", "0")
    path = tmp_path / "kept.jsonl"
    options = {"path": path, "progress": True}
    quick(seeds=range(3), **options)
    assert "6/6" in capsys.readouterr().err
    quick(seeds=range(5), **options)
    shown = capsys.readouterr().err
    assert "60%|" in shown.split("\r")[1]
    assert "6/10 [00:00<?, ?task/s]" in shown
    assert "10/10" in shown


# ---- What is interrupted


class Interrupted(LinUCBAgent):
    """LinUCB that gets a Ctrl-C in its fifth update, in one world, once."""

    def __init__(self, *args, excuse, alpha, n_worlds):
        super().__init__(*args, alpha=alpha, n_worlds=n_worlds)
        self.unlucky = alpha == 1.0 and not excuse.exists()
        self.excuse, self.n_updates = excuse, 0

    def update(self, context, arm, reward):
        super().update(context, arm, reward)
        self.n_updates += 1
        if self.unlucky and self.n_updates == 5:
            self.excuse.touch()
            raise KeyboardInterrupt


@pytest.mark.parametrize("backend", ["sequential", "threading"])
def test_an_interrupt_keeps_what_is_finished_and_no_half_task(
    backend, tmp_path, capsys
):
    path = tmp_path / "kept.jsonl"
    agents = {"a": partial(Interrupted, 10, 9, excuse=tmp_path / "excuse")}
    with (
        joblib.parallel_config(backend=backend),
        pytest.raises(KeyboardInterrupt) as interrupt,
    ):
        quick(agents, path=path, n_jobs=2)
    n_kept = len(finished(path))
    assert interrupt.value.__notes__[-1] == (
        f"{n_kept} of 4 tasks are finished and kept: the same call plays the rest"
    )
    assert n_kept == 2 if backend == "sequential" else n_kept <= 3
    found = quick(agents, path=path)
    assert_frame_equal(found.table, quick(agents).table, check_exact=True)


def test_an_interrupt_without_a_path_says_what_is_lost(tmp_path):
    agents = {"a": partial(Interrupted, 10, 9, excuse=tmp_path / "excuse")}
    with pytest.raises(KeyboardInterrupt) as interrupt:
        quick(agents)
    assert (
        interrupt.value.__notes__[-1] == "2 of 4 tasks are finished and lost: no path"
    )


def test_an_error_of_the_disk_is_raised_and_loses_nothing(tmp_path, monkeypatch):
    path = tmp_path / "kept.jsonl"
    sync, written = os.fsync, []

    def full(file):
        written.append(file)
        if len(written) == 4:  # the first writes the head
            raise OSError("no space left on device")
        sync(file)

    monkeypatch.setattr(sweeps.os, "fsync", full)
    with (
        joblib.parallel_config(backend="threading"),
        pytest.raises(OSError, match="no space left"),
    ):
        quick(seeds=range(9), path=path, n_jobs=2)
    assert len(finished(path)) >= 2
    monkeypatch.undo()
    found = quick(seeds=range(9), path=path)
    assert_frame_equal(found.table, quick(seeds=range(9)).table, check_exact=True)


def finished(path):
    """Return what the record holds, by a reading of its own."""
    found = {}
    for line in path.read_bytes().split(b"\n")[1:-1] if path.exists() else []:
        record = strict(line)
        name = json.dumps([record["agent"], record["setting"], record["seeds"]])
        assert name not in found
        found[name] = record["measures"]
    return found


def test_ten_kills_lose_no_finished_task_and_repeat_none():
    rng = np.random.default_rng(0)
    with quick_folder() as folder:
        notes, path = folder / "notes", folder / "kept.jsonl"
        notes.mkdir()
        lives = []
        for life, n_begun in enumerate(sorted(rng.choice(190, size=10, replace=False))):
            backend = ("sequential", "threading")[life % 2]
            child, _ = start(live, path, notes, backend)
            while child.is_alive() and len(os.listdir(notes)) <= n_begun:
                time.sleep(0.001)
            time.sleep(rng.uniform(0, 0.02))
            child.kill()
            child.join()
            assert child.exitcode == -signal.SIGKILL
            lives.append((finished(path), begun(notes)))
        assert 0 < len(lives[0][0]) < len(lives[-1][0]) < 200
        found, times = play(path, notes, n_jobs=1).table, begun(notes)
        assert len(found) == len(times) == 200
        found = found.set_index(["alpha", "discount", "seed"])["share"]
        for kept, counts in lives:
            for task, measures in kept.items():
                _, setting, (seed,) = json.loads(task)
                alpha, discount = setting["alpha"], setting["discount"]
                assert measures["share"] == [found[alpha, discount, seed]]
                task = f"{alpha}-{discount}-[{seed}]"
                assert times[task] == counts[task]
        (folder / "others").mkdir()
        play(folder / "undisturbed.jsonl", folder / "others", n_jobs=1)
        assert finished(path) == finished(folder / "undisturbed.jsonl")


@pytest.mark.parametrize("moment", MOMENTS)
def test_a_kill_at_the_worst_moment_loses_no_finished_task(moment):
    with quick_folder() as folder:
        notes, path = folder / "notes", folder / "kept.jsonl"
        notes.mkdir()
        child, _ = start(die_at, path, notes, moment)
        child.join()
        assert child.exitcode == -signal.SIGKILL
        n_kept, n_lost = len(finished(path)), 1 if moment == "in a task" else 0
        assert n_kept == 7 - n_lost
        play(path, notes, n_seeds=1, n_jobs=1)
        assert sum(begun(notes).values()) == 20 + n_lost
        assert len(begun(notes)) == 20
        play(folder / "undisturbed.jsonl", notes, n_seeds=1, n_jobs=1)
        assert finished(path) == finished(folder / "undisturbed.jsonl")


# ---- Where a record need not fit


def test_what_a_record_lacks_is_played_by_a_reader(
    tmp_path, begins, monkeypatch, capsys
):
    path = tmp_path / "kept.jsonl"
    agents = {"a": begins}
    quick(agents, path=path)
    content, asked = path.read_bytes(), {"alpha": (0.5, 1.0)}
    with pytest.raises(ValueError, match=r"this grid: .* with alpha=0.1"):
        quick(agents, asked, path=path)
    monkeypatch.setenv(SWITCH, "1")
    for ours in (tmp_path, tmp_path / "other"):  # the library's record, and one's own
        monkeypatch.setattr(recordings, "OURS", ours)
        begins.forget(), capsys.readouterr()
        found = quick(agents, asked, path=path)
        assert begins.asked == ["0.5 1", "0.5 1"]
        said = "kept.jsonl: read 2 of 4 tasks, the others are played here\n"
        assert capsys.readouterr().out == said
        assert_frame_equal(found.table, quick(agents, asked).table, rtol=1e-12)
        assert path.read_bytes() == content


@pytest.mark.parametrize(
    "changed",
    [
        {"n_steps": 13},
        {"measures": {"share": lambda history, name: [0.5]}},
        {"agents": {"LinUCB": partial(linucb, ridge=2)}},
    ],
    ids=["n_steps", "measures", "agents"],
)
def test_another_experiment_is_played_whole(changed, tmp_path, monkeypatch, capsys):
    path = tmp_path / "kept.jsonl"
    quick(path=path)
    content = path.read_bytes()
    monkeypatch.setenv(SWITCH, "1")
    found = quick(**changed, path=path)
    assert capsys.readouterr().out.startswith("kept.jsonl: read 0 of 4 tasks")
    assert_frame_equal(found.table, quick(**changed).table)
    assert path.read_bytes() == content
