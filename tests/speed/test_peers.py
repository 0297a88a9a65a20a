"""Other libraries compute what we compute, one visit at a time and in batches."""

import json
import os
import subprocess
import sys
import zipfile
from pathlib import Path

import numpy as np
import pytest
import torch
from torch import nn

from benchmarks import peers
from benchmarks.contest import Absent
from benchmarks.peers import PEERS, Adapter, available, install
from zoolib import Context, LinUCBAgent, RidgePosterior
from zoolib._support.threads import one_thread

K, D, ALPHA, RIDGE = 8, 5, 1.3, 2.5
# These have no weight of the bound, or of the prior, to choose.
FIXED_ALPHA, FIXED_RIDGE = {"river"}, {"river", "obp"}
LINEAR = [
    (kind, name)
    for kind, found in PEERS.items()
    for name, one in found.items()
    if isinstance(one, type) and one.same_scores and kind != "neural-linear"
]
LINUCB = [pair for pair in LINEAR if "LinUCB" in pair[0]]
THOMPSON = [pair for pair in LINEAR if "Thompson" in pair[0]]


def have(kind, name):
    one = available(kind)[name]
    if isinstance(one, Absent):
        pytest.skip(f"{name}: {one.reason}")
    return one


@pytest.fixture(autouse=True)
def single_thread():
    with one_thread():
        yield


def visits(kind, n, seed=0):
    """Draw contexts of K arms, and what each would earn."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, K if "shared" in kind else 1, D))
    features = np.broadcast_to(features, (n, K, D))
    rewards = rng.integers(2, size=(n, K)).astype(float)
    return [Context(0, rows) for rows in features], rewards


def linear(kind, name):
    """Return a peer and our agent with the same options, as far as the peer has them."""
    alpha = 1.0 if name in FIXED_ALPHA else ALPHA
    ridge = 1.0 if name in FIXED_RIDGE else RIDGE
    options = {} if name in FIXED_ALPHA else {"alpha": alpha}
    options |= {} if name in FIXED_RIDGE else {"ridge": ridge}
    other = have(kind, name)(K, D, **options)
    return other, LinUCBAgent(K, D, alpha, ridge, shared="shared" in kind)


def difference(theirs, ours):
    return float((np.abs(theirs - ours) / (1 + np.abs(ours))).max())


@pytest.mark.parametrize(("kind", "name"), LINEAR)
def test_scores_are_ours_after_the_same_data(kind, name):
    other, ours = linear(kind, name)
    contexts, rewards = visits(kind, 60)
    assert difference(other.scores(contexts[0]), ours.scores(contexts[0])) < 1e-9
    for context, reward in zip(contexts, rewards, strict=True):
        arm = ours.select(context)
        for agent in (other, ours):
            agent.update(context, arm, reward[arm])
        assert difference(other.scores(context), ours.scores(context)) < 1e-9


@pytest.mark.parametrize(("kind", "name"), LINUCB)
def test_choices_are_those_of_the_bounds(kind, name):
    other, ours = linear(kind, name)
    clear = 0
    for context, reward in zip(*visits(kind, 80, seed=1), strict=True):
        scores = ours.scores(context)
        if (kind, name) == ("LinUCB", "river"):  # the noise is under the root
            mean, width = ours.predict_with_width(context)
            scores = mean + np.sqrt(1 + width**2)
        second, best = np.sort(scores)[-2:]
        arm = int(scores.argmax())
        if best - second > 1e-4:
            clear += 1
            assert other.select(context) == arm
        for agent in (other, ours):
            agent.update(context, arm, reward[arm])
    assert clear > 60


@pytest.mark.parametrize(("kind", "name"), THOMPSON)
def test_thompson_draws_have_our_posteriors_mean_and_width(kind, name):
    other, ours = linear(kind, name)
    contexts, rewards = visits(kind, 40)
    for context, reward in zip(contexts, rewards, strict=True):
        for agent in (other, ours):
            agent.update(context, 3, reward[3])
    draws = other.agent.arm(3).learner.sample(contexts[0].features[3:4], size=20_000)
    at = () if "shared" in kind else (3,)
    mean = ours.posterior.predict(contexts[0].features[3], at)
    width = ours.scores(contexts[0])[3] - mean
    assert draws.mean() == pytest.approx(mean, abs=5 * width / np.sqrt(20_000))
    assert draws.std() == pytest.approx(width, rel=0.03)


def test_vowpal_wabbit_learns_which_arm_earns():
    other = have("ε-greedy", "vowpalwabbit")(K, D)
    hits = []
    for context in visits("ε-greedy", 3000)[0]:
        arm = other.select(context)
        best = 5 if context.features[0, 0] > 0 else 2
        other.update(context, arm, float(arm == best))
        hits.append(arm == best)
    assert np.mean(hits[-500:]) > 0.4  # one in eight by chance


@pytest.mark.parametrize(("kind", "name"), LINEAR)
def test_a_batch_teaches_what_its_visits_teach_one_by_one(kind, name):
    together, alone = (linear(kind, name)[0] for _ in range(2))
    ours = isinstance(together, LinUCBAgent)
    if not (ours or hasattr(together, "select_many")):
        pytest.skip(f"{name} has no batch mode")
    contexts, rewards = visits(kind, 24)
    features = np.stack([context.features for context in contexts])
    arms = np.random.default_rng(0).integers(K, size=24)
    earned = rewards[np.arange(24), arms]
    if ours:
        together.update(Context(None, features), arms, earned)
    else:
        together.update_many(features, arms, earned)
    for context, arm, reward in zip(contexts, arms, earned, strict=True):
        alone.update(context, int(arm), float(reward))
    for context in contexts:
        assert difference(together.scores(context), alone.scores(context)) < 1e-9
    if "LinUCB" in kind:
        chosen = (
            together.select(Context(None, features))
            if ours
            else together.select_many(features)
        )
        assert chosen.tolist() == [alone.select(context) for context in contexts]


def test_calveras_posterior_is_ours_over_its_embeddings():
    peer = have("neural-linear", "calvera")
    network = nn.Sequential(nn.Linear(D, 8), nn.ReLU(), nn.Linear(8, 4))
    other, ours = peer(network, 4), RidgePosterior(4)
    contexts, rewards = visits("shared", 30)
    for context, reward in zip(contexts, rewards, strict=True):
        arm = other.select(context)
        other.update(context, arm, reward[arm])
        with torch.no_grad():
            rows = network(torch.tensor(context.features, dtype=torch.float32))
        rows = rows.double().numpy()
        ours.update(rows[arm], reward[arm])
        mean, width = ours.predict_rows(rows)
        assert difference(other.scores(context, ALPHA), mean + ALPHA * width) < 1e-5


def test_every_library_of_the_list_is_there_or_has_a_reason_not_to_be():
    for kind in PEERS:
        found = available(kind)
        assert list(found) == list(PEERS[kind])
        for one in found.values():
            assert one.reason if isinstance(one, Absent) else one.note().endswith(".")


def test_every_peer_is_installed_by_its_requirements():
    pinned = peers.distributions()
    asked = {
        one.distribution
        for kind in PEERS.values()
        for one in kind.values()
        if isinstance(one, type)
    }
    assert asked | {"lightning"} == set(pinned)  # which drives calvera
    assert len(pinned) == len(set(pinned))


@pytest.fixture
def unknown(monkeypatch, tmp_path):
    """Add a peer that is not installed, and one whose import fails; return what asks for them."""
    (tmp_path / "peer_that_fails.py").write_text("raise OSError('no such luck')")
    (tmp_path / "peer_that_lacks.py").write_text("import package_of_nobody")
    monkeypatch.syspath_prepend(tmp_path)
    modules = ("peer_of_nobody", "peer_that_fails", "peer_that_lacks")
    named = {"distribution": "peer-of-nobody"}
    kind = {m: type(m, (Adapter,), named | {"module": m}) for m in modules}
    monkeypatch.setitem(PEERS, "nothing", kind)
    monkeypatch.setattr(peers, "REPORT", tmp_path / "peers.json")
    return tmp_path


def test_a_peer_that_is_not_installed_is_reported_with_pips_reason(unknown):
    assert "make bench" in available("nothing")["peer_of_nobody"].reason
    outcomes = {"peer-of-nobody": {"version": None, "reason": "ERROR: no such thing"}}
    (unknown / "peers.json").write_text(json.dumps(outcomes))
    assert available("nothing")["peer_of_nobody"] == Absent("ERROR: no such thing")


def test_a_peer_whose_import_fails_is_reported(unknown):
    found = available("nothing")
    assert "OSError('no such luck')" in found["peer_that_fails"].reason
    assert "asks for package_of_nobody" in found["peer_that_lacks"].reason


def test_requirements_are_read_with_their_comments():
    text = "# a word\n\nfirst==1.0\nsecond==2.0  # --no-deps: why\n"
    expected = [("first==1.0", ""), ("second==2.0", "--no-deps: why")]
    assert install.requirements(text) == expected


@pytest.fixture
def empty_index(monkeypatch, tmp_path):
    """Let pip find nothing but what stands in a folder."""
    monkeypatch.setenv("PIP_NO_INDEX", "1")
    monkeypatch.setenv("PIP_CONFIG_FILE", os.devnull)
    monkeypatch.setattr(install, "ENVIRONMENT", tmp_path / "peers")
    monkeypatch.setattr(install, "REPORT", tmp_path / "peers" / "peers.json")
    return tmp_path


def test_what_does_not_install_stops_nothing_and_is_written_down(
    empty_index, monkeypatch, capsys
):
    name, folder = "peer_at_hand-1.0", "peer_at_hand-1.0.dist-info"
    with zipfile.ZipFile(empty_index / f"{name}-py3-none-any.whl", "w") as wheel:
        wheel.writestr("peer_at_hand.py", "import zoolib\n")
        wheel.writestr(f"{folder}/WHEEL", "Wheel-Version: 1.0\nTag: py3-none-any\n")
        wheel.writestr(
            f"{folder}/METADATA",
            "Metadata-Version: 2.1\nName: peer-at-hand\nVersion: 1.0\nRequires-Dist: not-at-hand\n",
        )
        wheel.writestr(f"{folder}/RECORD", "")
    monkeypatch.setenv("PIP_FIND_LINKS", str(empty_index))
    wanted = "peer-of-nobody==1.0\npeer-at-hand==1.0  # --no-deps: not at hand\n"
    (empty_index / "requirements.txt").write_text(wanted)
    monkeypatch.setattr(install, "REQUIREMENTS", empty_index / "requirements.txt")
    install.main()
    outcomes = json.loads((empty_index / "peers" / "peers.json").read_text())
    assert outcomes["peer-at-hand"] == {"version": "1.0", "reason": None}
    unknown = {"version": None, "reason": "pip could not install it"}
    assert outcomes["peer-of-nobody"] == unknown
    assert "peer-at-hand: 1.0" in capsys.readouterr().out
    # The new environment sees the old one, and nothing of it was installed twice.
    python = next((empty_index / "peers").glob("*/python"))
    asked = "import peer_at_hand, numpy; print(numpy.__file__)"
    told = subprocess.run(
        [python, "-c", asked], check=True, capture_output=True, text=True
    )
    assert Path(told.stdout.strip()) == Path(np.__file__)


def test_pip_gets_only_so_long(monkeypatch):
    def never(*_, timeout, **__):
        raise subprocess.TimeoutExpired("pip", timeout)

    monkeypatch.setattr(install.subprocess, "run", never)
    outcome = install.install(Path(sys.executable), "slow==1", "")
    assert outcome == {"version": None, "reason": "did not install in 900 s"}
