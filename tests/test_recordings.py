import dataclasses
import json
import lzma
import re
import time
from contextlib import nullcontext
from functools import partial

import numpy as np
import pytest

from tests.notebooks import ROOT
from zoolib import (
    RECORDS,
    SHOCK_1,
    SHOCK_2,
    Churn,
    FeatureEngineer,
    LinUCBAgent,
    RandomAgent,
    RecordedRuns,
    SessionSimulator,
    ZooplusSimulator,
    recorded_experiment,
    run_experiment,
)
from zoolib._support.state import from_bytes, to_bytes
from zoolib.book import recordings
from zoolib.book.described import described
from zoolib.book.strictness import SWITCH

SEEDS, N_STEPS, SHOCKS = (4, 1, 2), 120, {50: SHOCK_1, 90: SHOCK_2}
ARRAYS = ("user", "persona", "reward", "expected_reward", "optimal_reward")


def with_pairs(worlds):
    return FeatureEngineer(worlds, interactions=True)


def rich_world(seed):
    return ZooplusSimulator(seed=seed, rich=True)


def players(n_features=9, **changed):
    linear = {"alpha": 0.3, "n_worlds": 3} | changed
    return {
        "linear": LinUCBAgent(50, n_features, **linear),
        "random": RandomAgent(50, n_worlds=3),
    }


@pytest.fixture
def path(tmp_path):
    return tmp_path / "record.xz"


@pytest.fixture
def nobody_plays(monkeypatch):
    """From now on whoever is asked what to show fails."""

    def refuse(*_):
        raise AssertionError("played")

    def forbid():
        for kind in (LinUCBAgent, RandomAgent):
            monkeypatch.setattr(kind, "select", refuse)

    return forbid


@pytest.mark.parametrize(
    ("made", "n_features"),
    [
        ({}, 9),
        ({"make_features": with_pairs}, 29),
        ({"make_world": rich_world}, 13),
        ({"churn": Churn(25, 0.2)}, 9),
    ],
)
def test_what_was_recorded_is_what_was_played(made, n_features, path, nobody_plays):
    call = (players(n_features), SEEDS, N_STEPS, SHOCKS)
    live = run_experiment(*call, **made)
    first = recorded_experiment(path, *call, **made)
    nobody_plays()
    again = recorded_experiment(path, *call, begin=0, **made)
    for history in (first, again):
        assert history.agents == live.agents == ("linear", "random")
        assert (history.seeds, history.shocks) == (live.seeds, live.shocks)
        assert history.churn == live.churn
        for name in (*ARRAYS, "arm"):
            assert (getattr(history, name) == getattr(live, name)).all(), name


@pytest.mark.parametrize("churn", [None, Churn(every=50, share=0.3)])
def test_categories_bring_the_same_clicks_by_the_first_product_of_each(
    churn, path, nobody_plays
):
    call = (players(), SEEDS, N_STEPS, SHOCKS)
    live = run_experiment(*call, churn=churn)
    recorded_experiment(path, *call, churn=churn, by="category")
    nobody_plays()
    again = recorded_experiment(path, *call, churn=churn, by="category", begin=0)
    for name in ARRAYS:
        assert (getattr(again, name) == getattr(live, name)).all(), name
    for w, seed in enumerate(SEEDS):
        world = ZooplusSimulator(seed=seed)
        for start in (0, 50, 100):
            if start and churn:
                world.restock(churn.share)
            category = world.category_of_product
            steps = slice(start, start + 50)
            shown = category[again.arm[:, w, steps]]
            assert (shown == category[live.arm[:, w, steps]]).all()
            firsts = {list(category).index(code) for code in {*shown.ravel()}}
            assert {*again.arm[:, w, steps].ravel()} == firsts


def test_a_world_may_lack_a_category(path):
    def make_world(seed):
        return ZooplusSimulator(n_products=3, seed=seed)

    agents = {"random": RandomAgent(3, n_worlds=3)}
    live = run_experiment(agents, SEEDS, 50, make_world=make_world)
    lacking = [set(range(5)) - {*make_world(s).category_of_product} for s in SEEDS]
    assert all(lacking)
    again = recorded_experiment(
        path, agents, SEEDS, 50, make_world=make_world, by="category"
    )
    assert (again.reward == live.reward).all()


def test_the_world_answers_as_it_is_today(path, nobody_plays):
    recorded_experiment(path, players(), SEEDS, N_STEPS)
    other = run_experiment(players(), SEEDS, N_STEPS)
    record = from_bytes(lzma.decompress(path.read_bytes()))
    record["changes"] = np.ones_like(record["changes"])  # all show product 0
    path.write_bytes(lzma.compress(to_bytes(record)))
    nobody_plays()
    again = recorded_experiment(path, players(), SEEDS, N_STEPS, begin=0)
    assert (again.arm == 0).all()
    assert (again.optimal_reward == other.optimal_reward).all()
    for w, seed in enumerate(SEEDS):
        wanted = ZooplusSimulator(seed=seed).true_ctr(again.user[w], 0)
        assert (again.expected_reward[:, w] == wanted).all()


def test_a_record_says_of_which_commit_it_is(path, monkeypatch):
    recorded_experiment(path, players(), SEEDS, 5)
    record = from_bytes(lzma.decompress(path.read_bytes()))
    assert re.fullmatch(r"[0-9a-f]{12}(-dirty)?|v[\d.]+.*|unknown", record["commit"])
    path.unlink()
    monkeypatch.setenv("PATH", "")
    recorded_experiment(path, players(), SEEDS, 5)
    assert from_bytes(lzma.decompress(path.read_bytes()))["commit"] == "unknown"


@pytest.mark.parametrize(
    ("changed", "word"),
    [
        ({"agents": players(alpha=0.4)}, "agents"),
        ({"agents": {"linear": players()["linear"]}}, "agents"),
        ({"seeds": (4, 1, 3)}, "seeds"),
        ({"n_steps": 121}, "n_steps"),
        ({"shocks": {50: SHOCK_2, 90: SHOCK_2}}, "shocks"),
        ({"shocks": {51: SHOCK_1, 90: SHOCK_2}}, "shocks"),
        ({"by": "category"}, "by"),
        ({"churn": Churn(25, 0.2)}, "churn"),
        ({"make_world": rich_world}, "made"),
        ({"make_features": with_pairs}, "made"),
    ],
)
def test_a_record_of_another_experiment_is_refused(changed, word, path, nobody_plays):
    call = {"agents": players(), "seeds": SEEDS, "n_steps": N_STEPS, "shocks": SHOCKS}
    recorded_experiment(path, **call)
    left = path.read_bytes()
    nobody_plays()
    with pytest.raises(ValueError, match=f"path must name a record.*: {word} of"):
        recorded_experiment(path, **call | changed)
    assert path.read_bytes() == left


@pytest.mark.parametrize(
    "spoil",
    [
        lambda blob: b"",
        lambda blob: b"no record",
        lambda blob: lzma.compress(b"no state"),
        lambda blob: lzma.compress(to_bytes({"a": 1})),
        lambda blob: blob[: len(blob) // 2],
        lambda blob: blob[:-20],
    ],
)
def test_what_is_no_record_or_half_of_one_is_refused(spoil, path, monkeypatch):
    recorded_experiment(path, players(), SEEDS, 5)
    path.write_bytes(spoilt := spoil(path.read_bytes()))
    words = r"got .*record\.xz', which is damaged .*; restore it, or delete it"
    for switch in ("0", "1"):
        monkeypatch.setenv(SWITCH, switch)
        with pytest.raises(ValueError, match=words):
            recorded_experiment(path, players(), SEEDS, 5)
        assert path.read_bytes() == spoilt
    assert [*path.parent.iterdir()] == [path]


@pytest.mark.parametrize("by", ["arm", "category"])
def test_agents_that_begin_otherwise_than_their_record_are_refused(
    by, path, monkeypatch
):
    """A record knows agents by their settings; what a change of the code did shows at the beginning."""
    call = (players(), SEEDS, N_STEPS, SHOCKS)
    made = {"by": by, "churn": Churn(every=50)}
    first = recorded_experiment(path, *call, **made)
    select, shown = LinUCBAgent.select, []

    def changed(agent, context):
        arm = select(agent, context)
        shown.append(1)
        return (arm + 7) % 50 if len(shown) == 60 else arm

    monkeypatch.setattr(LinUCBAgent, "select", changed)
    words = (
        r"'linear' shows something else in [\d.]+% of its first 70 visits .*delete it"
    )
    with pytest.raises(ValueError, match=words):
        recorded_experiment(path, *call, **made, begin=70)
    shown.clear()
    again = recorded_experiment(path, *call, **made, begin=70, may_differ=0.2)
    assert (again.arm == first.arm).all()
    shown.clear()  # what differs later is not seen
    assert recorded_experiment(path, *call, **made, begin=59).agents == first.agents


@pytest.mark.parametrize(
    ("wrong", "words"),
    [
        ({"begin": -1}, "begin must be at least 0"),
        ({"may_differ": 2}, "may_differ"),
        ({"by": "persona"}, r"by must be one of .*: got 'persona'"),
    ],
)
def test_wrong_options_are_refused_before_anything_is_played(wrong, words, path):
    with pytest.raises(ValueError, match=words):
        recorded_experiment(path, players(), SEEDS, 5, **wrong)
    assert not path.exists()


def test_half_an_experiment_is_no_record(path, monkeypatch):
    class Interrupted(RandomAgent):
        def update(self, context, arm, reward):
            raise KeyboardInterrupt

    class Later(Interrupted):
        steps = 0

        def update(self, context, arm, reward):
            self.steps += 1
            if self.steps > 30:
                raise KeyboardInterrupt

    for kind in (Interrupted, Later):
        with pytest.raises(KeyboardInterrupt):
            recorded_experiment(path, {"one": kind(50, n_worlds=3)}, SEEDS, 100)
        assert not path.exists()


def test_others_may_play_along(path):
    call = (players(29), SEEDS, N_STEPS, SHOCKS)
    made = {"make_features": with_pairs}
    table = LinUCBAgent(50, 29, alpha=1, shared=True, n_worlds=3)
    alone = run_experiment({"table": table}, *call[1:], **made)
    for _ in range(2):  # while the record is made, and from it
        again = recorded_experiment(path, *call, live={"table": table}, **made)
        assert again.agents == ("table", "linear", "random")
        assert (again.arm[0] == alone.arm[0]).all()
    assert (again.arm[1:] == recorded_experiment(path, *call, **made).arm).all()


def test_what_makes_worlds_may_be_a_partial_and_is_known_by_what_it_holds(path):
    call = {"agents": {"random": RandomAgent(50, n_worlds=3)}, "seeds": SEEDS}
    rich, plain = (partial(ZooplusSimulator, rich=rich) for rich in (True, False))
    recorded_experiment(path, **call, n_steps=9, make_world=rich)
    recorded_experiment(path, **call, n_steps=9, make_world=partial(rich))
    with pytest.raises(ValueError, match=r"path must name a record.*: made of"):
        recorded_experiment(path, **call, n_steps=9, make_world=plain)


PAGE = """
import numpy as np
from functools import partial
from zoolib.monitoring import at_most

N, RATES, POLICIES = 3, np.array([0.5, 0.25]), {"flat": lambda x: x, "square": lambda x: x**2}
BEST = at_most(0.05)

def scale(by):
    return lambda x: by * x

twice = scale(2)

class Shop:
    markup = 1.5

    @staticmethod
    def price(x):
        return 2 * x

def total(start, policy="square", step=N):
    \'\'\'Add some numbers.\'\'\'
    found = [POLICIES[policy](RATES).sum() + Shop.price(start) for _ in range(N)]
    for number in found:
        start += twice(number)
        start += 1
    assert BEST
    return {"total": start, "found": np.array(found)}
"""


def page_of(folder, source=PAGE):
    """Run a page; return its names."""
    place = folder / f"page{len([*folder.glob('page*.py')])}.py"
    place.write_text(source)
    names = {"__name__": "__main__"}
    exec(compile(source, place, "exec"), names)
    return names


@pytest.fixture
def made(monkeypatch):
    """The runs that are made from now on."""
    runs = []
    monkeypatch.setattr(recordings, "current_commit", lambda: runs.append(1) or "none")
    return runs


@pytest.mark.parametrize("name", ["runs.json", "runs.json.xz"])
def test_what_was_run_once_is_read_from_then_on(tmp_path, name, made):
    total, path = page_of(tmp_path)["total"], tmp_path / name
    recorded = RecordedRuns(path)
    first = recorded(total, start=1)
    assert first == {"total": 17.875, "found": [2.3125] * 3}
    assert recorded(total, start=1, policy="flat")["found"] == [2.75] * 3
    for again in (recorded, RecordedRuns(path)):
        assert again(total, start=np.int64(1)) == first
        assert again(total, policy="flat", start=1)["found"] == [2.75] * 3
    assert len(made) == 2
    assert {one.name for one in tmp_path.iterdir()} == {name, "page0.py"}


def test_a_changed_setting_is_another_run(tmp_path, made):
    """With a string for a key it returned the old numbers."""
    total, recorded = page_of(tmp_path)["total"], RecordedRuns(tmp_path / "runs.json")
    settings = ({"start": 1}, {"start": 2}, {"start": 1, "step": (1, 2)})
    results = [recorded(total, **one) for one in settings]
    assert results[0] != results[1]
    assert len(made) == 3
    runs = json.loads(recorded.path.read_text())
    assert [*runs] == [
        "total(start=1)",
        "total(start=2)",
        "total(start=1, step=[1, 2])",
    ]
    assert [*runs["total(start=1)"]] == ["commit", "seconds", "does", "result"]


@pytest.mark.parametrize(
    ("old", "new"),
    [
        ("start += 1", "start += 2"),  # a literal
        ("        start += 1", "    start += 1"),  # only the indent
        ("POLICIES = 3,", "POLICIES = 4,"),  # a constant
        ("[0.5, 0.25]", "[0.5, 0.5]"),
        ("x**2", "x**3"),  # a function in a dictionary
        ("scale(2)", "scale(3)"),  # what a function took along
        ("return lambda x: by * x", "return lambda x: by + x"),
        ("markup = 1.5", "markup = 1.25"),  # of a class
        ("return 2 * x", "return 3 * x"),
        ("at_most(0.05)", "at_most(0.06)"),  # what a library's function took along
    ],
)
def test_a_changed_page_never_gets_the_old_result(
    old, new, tmp_path, made, monkeypatch
):
    recorded = RecordedRuns(tmp_path / "runs.json")
    first = recorded(page_of(tmp_path)["total"], start=1)
    changed = PAGE.replace(old, new)
    assert changed != PAGE
    left, total = recorded.path.read_bytes(), page_of(tmp_path, changed)["total"]
    words = (
        r"path must name a record of what total does: .*runs.json.* total\(start=1\)"
    )
    with pytest.raises(ValueError, match=words):
        recorded(total, start=1)
    assert len(made) == 1
    assert recorded.path.read_bytes() == left
    monkeypatch.setenv(SWITCH, "1")
    again = recorded(total, start=1)
    assert len(made) == 2
    assert again == json.loads(json.dumps(total(start=1), default=np.ndarray.tolist))
    assert again != first or old in ("markup = 1.5", "at_most(0.05)")


def test_layout_and_comments_change_nothing(tmp_path, made):
    recorded = RecordedRuns(tmp_path / "runs.json")
    first = recorded(page_of(tmp_path)["total"], start=1)
    spaced = PAGE.replace("Add some numbers.", "Another text.").replace(
        "return {", "return {  # a comment\n            "
    )
    again = page_of(tmp_path, f"import math\n{spaced.replace('step=N):', 'step=N,):')}")
    assert recorded(again["total"], start=1) == first
    assert len(made) == 1


def needs(rng):
    def draw(n):
        return rng.random(n)

    return draw


@pytest.mark.parametrize(
    ("make", "settings", "error", "words"),
    [
        (lambda: 1, {}, TypeError, "make must be a function with a name, from a def"),
        (partial(needs, 1), {}, TypeError, "make must be a function with a name"),
        (
            needs,
            {"rng": np.random.default_rng()},
            TypeError,
            "setting 'rng' must be pl",
        ),
        (
            needs(object()),
            {"n": 1},
            TypeError,
            "rng, which .*draw reads, must be plain",
        ),
        (eval("lambda: 1"), {}, TypeError, "make must be a function with a name"),
    ],
)
def test_what_cannot_be_described_is_refused(make, settings, error, words, tmp_path):
    with pytest.raises(error, match=words):
        RecordedRuns(tmp_path / "runs.json")(make, **settings)
    assert not [*tmp_path.iterdir()]


def test_a_function_without_source_is_refused(tmp_path):
    names = {"__name__": "__main__"}
    exec("def f(): return 1", names)
    with pytest.raises(TypeError, match="f must come from a file or a notebook"):
        RecordedRuns(tmp_path / "runs.json")(names["f"])


def of_any_kind(value):
    return value


@pytest.mark.parametrize(
    ("one", "other"),
    [
        (RandomAgent(50, n_worlds=3), RandomAgent(50, n_worlds=4)),
        (SHOCK_1, SHOCK_2),
        (range(3), range(4)),
        ({1, 2}, {1, 3}),
        (np.arange(9.0), np.arange(9.0) + 1e-3),
        (partial(rich_world, seed=1), partial(rich_world, seed=2)),
        (ZooplusSimulator(seed=1).restock, ZooplusSimulator(seed=2).restock),
        (SessionSimulator(seed=1).process(), SessionSimulator(seed=2).process()),
        (rich_world, with_pairs),
        (np, pytest),
        (ZooplusSimulator, FeatureEngineer),
    ],
)
def test_settings_are_described(one, other):
    texts = [described("it", value) for value in (one, one, other)]
    assert texts[0] == texts[1] != texts[2]
    assert "0x" not in texts[0]


def test_the_last_digits_of_what_was_computed_do_not_matter():
    one = np.sqrt(np.arange(50))
    assert described("it", one) == described("it", one * (1 + 1e-14))
    assert described("it", 0.1 + 0.2) == described("it", 0.3) == "0.3"


def test_a_pages_agent_is_known_by_the_settings_that_the_page_adds():
    """What a library's class has, belongs to the library, which is known by name."""
    kinds = [dataclasses.make_dataclass("Linear", fields) for fields in ([], ["dtype"])]
    for kind in kinds:
        kind.__module__ = "zoolib.agents"

    def told(kind, *settings):
        derived = dataclasses.make_dataclass("OfAPage", settings, bases=(kind,))
        derived.__module__ = __name__
        return described("it", derived)

    plain, with_dtype = kinds
    assert told(plain) == told(with_dtype)
    assert told(plain, "floor") == told(with_dtype, "floor")
    assert told(plain) != told(plain, "floor") != told(plain, "cap")


def test_what_no_record_holds_leaves_it_as_it_was(tmp_path):
    recorded = RecordedRuns(tmp_path / "runs.json")
    recorded(of_any_kind, value=1)
    before = recorded.path.read_bytes()
    with pytest.raises(TypeError):
        recorded(with_pairs, worlds=ZooplusSimulator())
    assert recorded.path.read_bytes() == before
    assert RecordedRuns(recorded.path)(of_any_kind, value=2) == 2


@pytest.mark.parametrize("name", ["runs.json", "runs.json.xz"])
@pytest.mark.parametrize("lenient", ["0", "1"])
def test_half_a_record_of_results_is_refused(name, lenient, tmp_path, monkeypatch):
    RecordedRuns(tmp_path / name)(of_any_kind, value="a" * 200)
    half = (tmp_path / name).read_bytes()[:-40]
    (tmp_path / name).write_bytes(half)
    monkeypatch.setenv(SWITCH, lenient)
    with pytest.raises(
        ValueError, match=r"got .*runs\.json.*, which is damaged .*restore"
    ):
        RecordedRuns(tmp_path / name)
    assert (tmp_path / name).read_bytes() == half
    assert [one.name for one in tmp_path.iterdir()] == [name]


def test_what_a_reader_runs_never_enters_the_librarys_records(
    tmp_path, made, monkeypatch, capsys
):
    monkeypatch.setattr(recordings, "OURS", tmp_path / "ours")
    paths = [tmp_path / "ours/runs.json", tmp_path / "runs.json"]
    paths[0].parent.mkdir()
    for path in paths:
        RecordedRuns(path)(of_any_kind, value=1)
    left = paths[0].read_bytes()
    assert left == paths[1].read_bytes()
    capsys.readouterr()
    monkeypatch.setenv(SWITCH, "1")
    for path in paths:
        recorded = RecordedRuns(path)
        assert [recorded(of_any_kind, value=n) for n in (1, 2, 2)] == [1, 2, 2]
    assert len(made) == 4
    assert paths[0].read_bytes() == left
    assert len(paths[1].read_bytes()) > len(left)
    said = capsys.readouterr().out.splitlines()
    assert said == ["runs.json: of_any_kind(value=2) is played here"] * 2


CHOICES = sorted(set(RECORDS.glob("*.xz")) - set(RECORDS.glob("*.json.xz")))
RESULTS = sorted({*RECORDS.glob("*.json"), *RECORDS.glob("*.json.xz")})


@pytest.mark.parametrize("path", RESULTS, ids=lambda path: path.name)
def test_records_of_results_name_their_commit_and_a_chapter_reads_each(path):
    blob = path.read_bytes()
    record = json.loads(lzma.decompress(blob) if path.suffix == ".xz" else blob)
    parts = [record["machine"]] if "machine" in record else record.values()
    commits = {part["commit"] for part in parts}
    assert commits
    assert all(re.fullmatch(r"[0-9a-f]{12}", commit) for commit in commits)
    pages = [page.read_text() for page in (ROOT / "chapters").rglob("*.md")]
    assert any(path.name in page for page in pages)


@pytest.mark.parametrize("path", CHOICES, ids=lambda path: path.stem)
def test_the_books_records_name_their_commit_and_a_chapter_reads_each(path):
    record = from_bytes(lzma.decompress(path.read_bytes()))
    assert re.fullmatch(r"[0-9a-f]{12}", record["commit"])
    shape = len(record["agents"]), len(record["seeds"]), record["n_steps"]
    assert record["changes"].shape == shape
    assert record["seeds"] in ([*range(20)], [42] * 20)
    pages = [page.read_text() for page in (ROOT / "chapters").rglob("*.md")]
    name = path.stem.rstrip("0123456789")  # the page makes names with numbers
    assert any("recorded_experiment(" in page and name in page for page in pages)


def test_a_replay_makes_no_features(path, monkeypatch):
    """They would be made anew at each change of the catalogue, and nobody looks at them."""
    play = partial(
        recorded_experiment, path, players(), SEEDS, N_STEPS, churn=Churn(10), begin=0
    )
    played = play()

    def refuse(*_, **__):
        raise AssertionError("made")

    monkeypatch.setattr(FeatureEngineer, "__init__", refuse)
    np.testing.assert_array_equal(play().arm, played.arm)


# ---- Where a record need not fit


CALL = {"agents": players(), "seeds": SEEDS, "n_steps": N_STEPS, "shocks": SHOCKS}


@pytest.fixture
def lenient(monkeypatch):
    monkeypatch.setenv(SWITCH, "1")


@pytest.fixture
def played(monkeypatch):
    """The names of the agents that play from now on, with the numbers of their visits."""
    calls = []

    def noted(agents, **options):
        calls.append((*agents, options["n_steps"]))
        return run_experiment(agents, **options)

    monkeypatch.setattr(recordings, "run_experiment", noted)
    return calls


def test_what_a_record_lacks_is_played_and_not_kept(path, monkeypatch, played, capsys):
    """Before, a changed alpha ended in an error with two dictionaries."""
    recorded_experiment(path, **CALL)
    left, asked = path.read_bytes(), players(alpha=0.4) | {"more": RandomAgent(50)}
    with pytest.raises(ValueError, match=r"path must name a record.*: agents of"):
        recorded_experiment(path, **CALL | {"agents": asked})
    monkeypatch.setenv(SWITCH, "1")
    played.clear(), capsys.readouterr()
    history = recorded_experiment(path, **CALL | {"agents": asked}, begin=30)
    assert played == [("linear", "more", N_STEPS), ("random", 30)]
    assert capsys.readouterr().out == (
        "record.xz: read random; played here, with these settings: linear, more\n"
    )
    live = run_experiment(asked, *list(CALL.values())[1:])
    assert history.agents == live.agents
    assert (history.arm == live.arm).all()
    assert path.read_bytes() == left


def test_agents_are_read_by_their_names(path, nobody_plays):
    first = recorded_experiment(path, **CALL)
    nobody_plays()
    turned = dict(reversed(players().items()))
    again = recorded_experiment(path, **CALL | {"agents": turned}, begin=0)
    assert again.agents == ("random", "linear")
    assert (again.arm == first.arm[::-1]).all()


@pytest.mark.parametrize(
    "changed",
    [
        {"seeds": (4, 1, 3)},
        {"n_steps": 121},
        {"shocks": {50: SHOCK_2}},
        {"churn": Churn(25, 0.2)},
        {"make_world": lambda seed: ZooplusSimulator(seed=seed)},
    ],
    ids=["seeds", "n_steps", "shocks", "churn", "make_world"],
)
def test_another_experiment_is_played_whole(changed, path, played, monkeypatch, capsys):
    recorded_experiment(path, **CALL)
    left = path.read_bytes()
    monkeypatch.setenv(SWITCH, "1")
    played.clear()
    history = recorded_experiment(path, **CALL | changed)
    live = run_experiment(**CALL | changed)
    assert [one[:2] for one in played] == [("linear", "random")]
    assert (history.arm == live.arm).all()
    assert "played here, with these settings: linear, random" in capsys.readouterr().out
    assert path.read_bytes() == left


SHOP = """
from zoolib import ZooplusSimulator

def shop(seed):
    return ZooplusSimulator(seed=seed, rich=RICH)

"""


def test_a_world_that_the_page_makes_otherwise_is_another(tmp_path, path):
    pages = [page_of(tmp_path, f"{SHOP}RICH = {rich}\n") for rich in (False, True)]
    call = CALL | {"agents": {"random": RandomAgent(50, n_worlds=3)}}
    recorded_experiment(path, **call, make_world=pages[0]["shop"])
    with pytest.raises(ValueError, match=r"path must name a record.*: made of"):
        recorded_experiment(path, **call, make_world=pages[1]["shop"], begin=0)


def test_the_librarys_records_are_not_written_by_a_reader(path, monkeypatch, lenient):
    assert RECORDS.resolve() == recordings.OURS
    monkeypatch.setattr(recordings, "OURS", path.parent)
    left = []
    monkeypatch.setattr(recordings, "leave_doubt", lambda *said: left.append(said))
    recorded_experiment(path, **CALL)
    RecordedRuns(path)(of_any_kind, value=1)
    assert not path.exists()
    # Or a strict build, which may find this execution in its cache, would take it for the book's.
    assert [sentence for sentence, _ in left] == [
        "A record has all that its page asks for."
    ] * 2
    assert "of_any_kind(value=1) is played here" in left[1][1]
    monkeypatch.setenv(SWITCH, "0")
    recorded_experiment(path, **CALL)
    assert path.exists()
    assert len(left) == 2


def test_a_beginning_that_differs_is_said_to_a_reader(
    path, monkeypatch, capsys, lenient
):
    monkeypatch.setattr(recordings, "OURS", path.parent)
    monkeypatch.setenv(SWITCH, "0")
    first = recorded_experiment(path, **CALL)
    monkeypatch.setenv(SWITCH, "1")
    select, left = LinUCBAgent.select, []
    monkeypatch.setattr(LinUCBAgent, "select", lambda *a: (select(*a) + 7) % 50)
    monkeypatch.setattr(recordings, "leave_doubt", lambda *said: left.append(said))
    again = recorded_experiment(path, **CALL, begin=10)
    assert (again.arm == first.arm).all()
    found = (
        "record.xz: 'linear' shows something else in 100.0% of its first 10 visits than "
        "it says."
    )
    assert left == [("Agents begin as their record says.", found)]
    assert found in capsys.readouterr().out
    monkeypatch.setenv(SWITCH, "0")
    with pytest.raises(ValueError, match=r"shows something else in 100.0%"):
        recorded_experiment(path, **CALL, begin=10)


def test_an_interrupt_leaves_the_record_as_it_was(path, lenient):
    recorded_experiment(path, **CALL)
    left = path.read_bytes()

    class Interrupted(RandomAgent):
        def update(self, context, arm, reward):
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        recorded_experiment(path, **CALL | {"agents": {"one": Interrupted(50)}})
    assert path.read_bytes() == left
    assert [*path.parent.iterdir()] == [path]


def slow(seconds):
    time.sleep(seconds)
    return seconds


def test_a_run_shows_a_bar_of_how_long_it_takes(tmp_path, lenient, monkeypatch, capsys):
    monkeypatch.setenv("TQDM_DISABLE", "0")
    recorded = RecordedRuns(tmp_path / "runs.json")
    recorded(slow, seconds=0)
    runs = json.loads(recorded.path.read_text())
    runs["slow(seconds=0)"]["seconds"] = 7.2
    recorded.path.write_text(json.dumps(runs))
    capsys.readouterr()
    assert RecordedRuns(recorded.path)(slow, seconds=1.3) == 1.3
    said = capsys.readouterr()
    assert said.out == "runs.json: slow(seconds=1.3) is played here\n"
    assert "1/7 [00:01<" in said.err
    with pytest.raises(TypeError, match="NoneType"):  # an error ends the bar, too
        recorded(slow, seconds=None)


@pytest.mark.parametrize(
    ("known", "said"),
    [
        ([3.0, 1.2, None], 2.1),
        ([0.0, 0.0], 0),
        ([0.3, None, None], None),  # one quick run is no estimate
    ],
)
def test_only_what_is_known_of_most_runs_says_how_long_another_takes(
    known, said, tmp_path, lenient, monkeypatch
):
    recorded = RecordedRuns(tmp_path / "runs.json")
    for number in range(len(known)):
        recorded(of_any_kind, value=number)
    runs = json.loads(recorded.path.read_text())
    for run, seconds in zip(runs.values(), known, strict=True):
        run["seconds"] = seconds
    recorded.path.write_text(json.dumps(runs))
    told = []
    bar = lambda wanted, seconds: told.append(seconds) or nullcontext()  # noqa: E731
    monkeypatch.setattr(recordings, "clock_bar", bar)
    RecordedRuns(recorded.path)(of_any_kind, value="new")
    assert told == [said]
