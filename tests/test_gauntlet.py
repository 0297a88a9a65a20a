import argparse
import json
import os
import re
import runpy
import signal
import subprocess
import sys
from functools import partial
from types import SimpleNamespace

import numpy as np
import pytest

from tests.notebooks import ROOT
from zoolib import (
    SHOCK_1,
    SHOCK_2,
    click_rate,
    gauntlet,
    mean_interval,
    median_interval,
    recovery_time,
    run_experiment,
    share_of_oracle,
)
from zoolib.__main__ import main
from zoolib.agents import (
    EpsilonGreedyAgent,
    LinUCBAgent,
    NeuralLinearAgent,
    NeuralUCBAgent,
    OracleAgent,
    RandomAgent,
    StaticAgent,
)

NAMES = ("random", "linucb-1.0", "linucb-discounted", "oracle")


@pytest.fixture(autouse=True)
def silent(monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "1")


@pytest.fixture
def short(monkeypatch):
    """The gauntlet with its shocks after 300 and 700 steps."""
    monkeypatch.setattr(gauntlet, "SHOCKS", {300: SHOCK_1, 700: SHOCK_2})


def play(folder, *arguments):
    """Run the gauntlet; return its exit status and what its file says."""
    path = folder / "result.json"
    status = main(["gauntlet", *map(str, arguments), "--json", str(path)])
    return status, strict(path.read_text())


def strict(text):
    """Read JSON as the standard has it, without NaN and infinities."""

    def refuse(constant):
        raise ValueError(f"no number: {constant}")

    return json.loads(text, parse_constant=refuse)


def same_run(seeds, n_steps):
    agents = {name: gauntlet.make_agent(name, seeds) for name in NAMES}
    shocks = {300: SHOCK_1, 700: SHOCK_2}
    return run_experiment(agents, seeds, n_steps, shocks, progress=False)


def test_the_file_says_what_the_run_was_worth(short, tmp_path):
    arguments = ("--worlds", 7, "--first-seed", 3, "--steps", 1200, "--agents", *NAMES)
    status, said = play(tmp_path, *arguments)
    assert status == 0
    assert set(said) == {
        "agents",
        "recommended",
        "wall_seconds",
        "seeds",
        "steps",
        "interrupted",
    }
    assert said["seeds"] == list(range(3, 10))
    assert (said["steps"], said["interrupted"]) == (1200, False)
    assert said["recommended"] == gauntlet.RECOMMENDED
    assert set(said["recommended"]) == {"linear", "neural"}
    assert said["wall_seconds"] > 0
    assert list(said["agents"]) == list(NAMES)
    history = same_run(range(3, 10), 1200)
    cuts = [slice(0, 300), slice(300, 700), slice(700, 1200)]
    for name, figures in said["agents"].items():
        assert set(figures) == {"share_of_oracle", "click_rate", "phases", "recovery"}
        assert figures["share_of_oracle"] == shares(history, name)
        assert figures["click_rate"] == pytest.approx(click_rate(history, name).mean())
        assert figures["phases"] == [
            {
                "first_step": cut.start,
                "last_step": cut.stop - 1,
                "click_rate": pytest.approx(click_rate(history, name, cut).mean()),
                "share_of_oracle": shares(history, name, cut),
            }
            for cut in cuts
        ]
        assert figures["recovery"] == [
            recovery(history, name, 300, "budget_shopper"),
            recovery(history, name, 700, "cat_connoisseur"),
        ]
    oracle = said["agents"]["oracle"]
    assert oracle["share_of_oracle"] == {
        "mean": 100,
        "low": 100,
        "high": 100,
        "worlds": [100] * 7,
    }
    assert [r["recovered_worlds"] for r in oracle["recovery"]] == [7, 7]
    for recovered in said["agents"]["random"]["recovery"]:
        assert recovered["recovered_worlds"] == 0
        assert recovered["median_steps"] is None
        assert recovered["low"] is None
        assert recovered["high"] is None


def shares(history, name, steps=slice(None)):
    worlds = 100 * share_of_oracle(history, name, steps)
    estimate = mean_interval(worlds)
    return {
        "mean": pytest.approx(worlds.mean()),
        "low": pytest.approx(estimate.low),
        "high": pytest.approx(estimate.high),
        "worlds": pytest.approx(worlds.tolist()),
    }


def recovery(history, name, step, persona):
    times = recovery_time(history, name, step)
    estimate = median_interval(times)
    ends = (estimate.mean, estimate.low, estimate.high)
    median, low, high = (None if np.isinf(end) else end for end in ends)
    return {
        "shock_step": step,
        "persona": persona,
        "recovered_worlds": int((times < np.inf).sum()),
        "median_steps": median,
        "low": low,
        "high": high,
    }


def test_the_table_has_a_row_for_each_agent(short, tmp_path, capsys):
    names = ("random", "oracle", "random")
    arguments = ("--worlds", 2, "--steps", 1200, "--agents", *names)
    _, said = play(tmp_path, *arguments)
    head, *rows = capsys.readouterr().out.splitlines()
    for column in ("0–300", "300–700", "700–1,200", "recovery 300", "recovery 700"):
        assert column in head
    assert [row.split()[0] for row in rows] == ["random", "oracle"]
    assert {len(row) for row in rows} == {len(head)}
    assert "100.0 [100.0, 100.0]" in rows[1]
    assert rows[0].count("never") == 2
    for row, figures in zip(rows, said["agents"].values(), strict=True):
        assert f" {figures['click_rate']:.3f} " in row
        share = figures["share_of_oracle"]
        assert f"{share['mean']:.1f} [{share['low']:.1f}, {share['high']:.1f}]" in row
        for phase in figures["phases"]:
            assert f" {phase['share_of_oracle']['mean']:.1f} %" in row
    for recovered in said["agents"]["oracle"]["recovery"]:
        assert f" {recovered['median_steps']:.0f} steps" in rows[1]


def test_one_world_has_no_interval(short, tmp_path, capsys):
    arguments = ("--worlds", 1, "--steps", 800, "--agents", "oracle", "random")
    status, said = play(tmp_path, *arguments)
    assert status == 0
    for figures in said["agents"].values():
        for share in (figures, *figures["phases"]):
            assert share["share_of_oracle"]["low"] is None
            assert share["share_of_oracle"]["high"] is None
        assert [(r["low"], r["high"]) for r in figures["recovery"]] == [
            (None, None)
        ] * 2
    assert "[" not in capsys.readouterr().out.split("\n", 1)[1]


def test_five_worlds_are_too_few_for_the_interval_of_a_median(short, tmp_path):
    for worlds, some in ((5, False), (6, True)):
        _, said = play(
            tmp_path, "--worlds", worlds, "--steps", 700, "--agents", "oracle"
        )
        (recovered,) = said["agents"]["oracle"]["recovery"]
        assert (recovered["low"] is not None) == some
        assert (recovered["high"] is not None) == some


def test_without_a_file_there_is_a_table_alone(capsys, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    arguments = ["--worlds", "1", "--steps", "20", "--agents", "random"]
    assert main(["gauntlet", *arguments]) == 0
    assert capsys.readouterr().out.count("\n") == 2
    assert list(tmp_path.iterdir()) == []


def test_a_run_of_the_book_is_asked_for_by_no_options(monkeypatch):
    asked = []

    def note(arguments):
        asked.append(arguments)
        return 7

    monkeypatch.setattr(gauntlet, "main", note)
    assert main(["gauntlet"]) == 7
    (arguments,) = asked
    assert arguments == argparse.Namespace(
        command="gauntlet",
        worlds=20,
        first_seed=0,
        steps=40_000,
        agents=list(gauntlet.DEFAULT),
        json=None,
    )
    assert gauntlet.SHOCKS == {10_000: SHOCK_1, 25_000: SHOCK_2}
    assert set(gauntlet.DEFAULT) <= set(gauntlet.AGENTS)
    assert set(gauntlet.RECOMMENDED.values()) <= set(gauntlet.MAKERS)


@pytest.mark.parametrize(
    ("name", "kind", "settings"),
    [
        ("random", RandomAgent, {}),
        ("oracle", OracleAgent, {}),
        ("static-mlp", StaticAgent, {}),
        ("epsilon-greedy", EpsilonGreedyAgent, {"epsilon": 0.05, "discount": 1}),
        ("linucb-0.2", LinUCBAgent, {"alpha": 0.2, "discount": 1}),
        ("linucb-1.0", LinUCBAgent, {"alpha": 1.0, "discount": 1}),
        ("linucb-discounted", LinUCBAgent, {"alpha": 0.35, "discount": 0.997}),
        ("neural-ucb-diagonal", NeuralUCBAgent, {"alpha": 1.0, "inverse": "diagonal"}),
        ("neural-replay", NeuralLinearAgent, {"alpha": 0.3, "rebuild": False}),
        (
            "neural-linear",
            NeuralLinearAgent,
            {"alpha": 0.7, "joined": True, "window": 3_000, "discount": 0.999},
        ),
    ],
)
def test_names_stand_for_agents(name, kind, settings, monkeypatch):
    table = np.random.default_rng(0).random((3, 1000, 50))
    wanted = []

    def trained(seeds):
        wanted.append(seeds)
        return SimpleNamespace(predict_all=lambda: table)

    monkeypatch.setattr(gauntlet, "static_recommenders", trained)
    agent = gauntlet.make_agent(name, [4, 2, 9])
    assert name in gauntlet.AGENTS
    assert type(agent) is kind
    assert (agent.n_worlds, agent.n_arms) == (3, 50)
    assert {key: getattr(agent, key) for key in settings} == settings
    if kind is StaticAgent:
        assert wanted == [[4, 2, 9]]
        assert (agent.predictions == table).all()
    history = run_experiment({name: agent}, [4, 2, 9], 3, progress=False)
    assert history.n_steps == 3


def test_every_name_stands_for_an_agent():
    assert len(set(gauntlet.AGENTS)) == len(gauntlet.AGENTS) == 11


@pytest.fixture
def nothing_is_played(monkeypatch):
    def refuse(*_):
        raise AssertionError("trained or played")

    monkeypatch.setattr(gauntlet, "make_agent", refuse)
    monkeypatch.setattr(gauntlet, "run_experiment", refuse)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--agents", "random", "ucb"], ["--agents", "linucb-0.2", "['ucb']"]),
        (["--worlds", "0"], ["--worlds", "at least 1", "0"]),
        (["--steps", "0"], ["--steps", "at least 1", "0"]),
        (["--first-seed", "-1"], ["--first-seed", "at least 0", "-1"]),
        (["--json", "nowhere/result.json"], ["--json", "nowhere/result.json"]),
        (["--json", "."], ["--json", "."]),
        (["--json", "folder"], ["--json", "folder"]),
    ],
)
def test_wrong_options_are_refused_in_one_line_before_anything_is_played(
    arguments, words, nothing_is_played, capsys, tmp_path, monkeypatch
):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "folder").mkdir()
    with pytest.raises(SystemExit) as refusal:
        main(["gauntlet", *arguments])
    assert refusal.value.code == 2
    out, said = capsys.readouterr()
    assert out == ""
    assert said.count("\n") == 1
    assert all(word in said for word in words), said


@pytest.mark.parametrize("error", [ValueError, TypeError, OSError])
def test_what_goes_wrong_is_said_in_one_line(error, capsys, monkeypatch):
    def fail(arguments):
        raise error("the disk is full")

    monkeypatch.setattr(gauntlet, "main", fail)
    with pytest.raises(SystemExit) as refusal:
        main(["gauntlet"])
    assert refusal.value.code == 2
    assert capsys.readouterr().err == "python -m zoolib: the disk is full\n"


@pytest.mark.parametrize("arguments", [[], ["race"], ["gauntlet", "--worlds", "x"]])
def test_unknown_commands_and_words_are_refused(arguments, nothing_is_played, capsys):
    with pytest.raises(SystemExit) as refusal:
        main(arguments)
    assert refusal.value.code == 2
    last = capsys.readouterr().err.splitlines()[-1]
    assert any(word in last for word in ("command", "--worlds"))


def test_the_module_hands_its_status_to_the_shell(monkeypatch):
    monkeypatch.setattr(gauntlet, "main", lambda arguments: 130)
    monkeypatch.setattr(sys, "argv", ["zoolib", "gauntlet"])
    # Run afresh: what is imported already would not be run as a program.
    monkeypatch.delitem(sys.modules, "zoolib.__main__")
    with pytest.raises(SystemExit) as end:
        runpy.run_module("zoolib", run_name="__main__")
    assert end.value.code == 130


class Interrupted(RandomAgent):
    """Have Ctrl-C pressed in some step."""

    def __init__(self, n_worlds, step):
        super().__init__(50, n_worlds)
        self.step = step

    def select(self, context):
        if self.step == 0:
            raise KeyboardInterrupt
        self.step -= 1
        return super().select(context)


def test_an_interrupted_run_says_what_was_finished(
    short, tmp_path, capsys, monkeypatch
):
    monkeypatch.setitem(gauntlet.MAKERS, "linucb-0.2", partial(Interrupted, step=450))
    arguments = ("--worlds", 2, "--steps", 1200, "--agents", "oracle", "linucb-0.2")
    status, said = play(tmp_path, *arguments)
    assert status == 130
    assert (said["interrupted"], said["steps"]) == (True, 450)
    assert list(said["agents"]) == ["oracle", "linucb-0.2"]
    for figures in said["agents"].values():
        ends = [
            (phase["first_step"], phase["last_step"]) for phase in figures["phases"]
        ]
        assert ends == [(0, 299), (300, 449)]
        assert [one["shock_step"] for one in figures["recovery"]] == [300]
    out, error = capsys.readouterr()
    assert "interrupted after 450 of 1,200 steps" in error
    assert "300–450" in out


def test_an_interrupt_before_anything_is_finished_is_said(capsys, monkeypatch):
    monkeypatch.setitem(gauntlet.MAKERS, "linucb-0.2", partial(Interrupted, step=0))
    try:
        status = main(["gauntlet", "--worlds", "2", "--agents", "linucb-0.2"])
    except KeyboardInterrupt:
        status = None  # it would end the test run
    assert status == 130
    assert "interrupted" in capsys.readouterr().err


COMMAND = [sys.executable, "-m", "zoolib", "gauntlet", "--worlds", "2"]


def read_until(stream, wanted):
    """Read characters until a pattern came."""
    said = ""
    while not re.search(wanted, said):
        character = stream.read(1)
        assert character, said
        said += character
    return said


def test_ctrl_c_in_the_terminal_keeps_what_was_finished(tmp_path):
    path = tmp_path / "result.json"
    # A test run in the background may ignore interrupts, and its children would, too.
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    try:
        process = subprocess.Popen(
            [*COMMAND, "--steps", "60000", "--agents", "random", "--json", path],
            cwd=ROOT,
            env=os.environ | {"TQDM_DISABLE": "0"},
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
        )
    finally:
        signal.signal(signal.SIGINT, before)
    with process:
        try:
            # The bar shows steps done, not each of them.
            read_until(process.stderr, r"([5-9]\d\d|[1-9]\d{3,4})/60000")
            process.send_signal(signal.SIGINT)
            out, error = process.communicate(timeout=300)
        finally:
            process.kill()
    assert process.returncode == 130
    said = strict(path.read_text())
    assert said["interrupted"] is True
    assert 500 <= said["steps"] < 60_000
    told = f"interrupted after {said['steps']:,} of 60,000 steps"
    assert told in error
    assert out.splitlines()[1].startswith("random")
