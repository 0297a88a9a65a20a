"""Other libraries compute what we compute, one visit at a time and in batches."""

import json
import os
import subprocess
import sys
import zipfile
from itertools import pairwise
from pathlib import Path

import numpy as np
import pytest
import torch

from benchmarks import peers
from benchmarks.contest import Absent
from benchmarks.peers import PEERS, BatchAdapter, Peer, available, install
from zoolib import Context, LinUCBAgent, RidgePosterior
from zoolib._threads import one_thread

K, D, ALPHA = 8, 5, 1.3
# Calvera computes in single precision, and keeps an inverse that it inverts twice at each update.
TOLERANCE = {"calvera": 1e-5, "calvera, training step": 1e-5}
LISTED = {
    "mabwiser",
    "contextualbandits",
    "bayesianbandits",
    "obp",
    "river",
    "vowpalwabbit",
    "pearl",
    "calvera",
}
# These have no weight of the bound, or of the prior, to choose.
FIXED_ALPHA, FIXED_RIDGE = {"river"}, {"river", "obp", "calvera"}


def names(kind, test=lambda one: True):
    return [
        name for name, one in PEERS[kind].items() if isinstance(one, Peer) and test(one)
    ]


def have(kind, name):
    one = available(kind)[name]
    if isinstance(one, Absent):
        pytest.skip(f"{name}: {one.reason}")
    return one


@pytest.fixture(autouse=True)
def single_thread():
    with one_thread():
        yield


def visits(n, shared, seed=0):
    """Draw contexts of K arms and what each would earn; rows are shared by the arms, or are not."""
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, K if shared else 1, D))
    features = np.broadcast_to(features, (n, K, D))
    rewards = rng.integers(2, size=(n, K)).astype(float)
    return [Context(0, rows) for rows in features], rewards


def linear(kind, name, alpha=ALPHA, ridge=2.5):
    """Return a peer and our agent with the same options, as far as the peer has them."""
    family = name.partition(",")[0]
    options = {}
    alpha = 1.0 if family in FIXED_ALPHA else alpha
    ridge = 1.0 if family in FIXED_RIDGE else ridge
    if family not in FIXED_ALPHA | {"vowpalwabbit"}:
        options["alpha"] = alpha
    if family not in FIXED_RIDGE | {"vowpalwabbit"}:
        options["ridge"] = ridge
    other = have(kind, name).make(K, D, **options)
    return other, LinUCBAgent(K, D, alpha, ridge, shared=kind == "shared linear")


def difference(theirs, ours):
    return float((np.abs(theirs - ours) / (1 + np.abs(ours))).max())


LINEAR = [
    (kind, name)
    for kind in ("disjoint linear", "shared linear")
    for name in names(kind)
]
SAME_SCORES = [pair for pair in LINEAR if PEERS[pair[0]][pair[1]].same_scores]
SAME_POLICY = [pair for pair in LINEAR if PEERS[pair[0]][pair[1]].same_policy]


@pytest.mark.parametrize(("kind", "name"), SAME_SCORES)
def test_scores_are_ours_after_the_same_data(kind, name):
    other, ours = linear(kind, name)
    # A Trainer takes its time.
    contexts, rewards = visits(12 if name == "calvera" else 60, kind == "shared linear")
    tolerance = TOLERANCE.get(name, 1e-9)
    assert difference(other.scores(contexts[0]), ours.scores(contexts[0])) < tolerance
    for context, reward in zip(contexts, rewards, strict=True):
        arm = ours.select(context)
        for agent in (other, ours):
            agent.update(context, arm, reward[arm])
        found = difference(other.scores(context), ours.scores(context))
        assert found < tolerance


@pytest.mark.parametrize(("kind", "name"), SAME_POLICY)
def test_choices_are_ours_after_the_same_data(kind, name):
    other, ours = linear(kind, name)
    clear = seen = 0
    for context, reward in zip(
        *visits(12 if name == "calvera" else 80, kind == "shared linear", seed=1),
        strict=True,
    ):
        second, best = np.sort(ours.scores(context))[-2:]
        arm = ours.select(context)
        seen += 1
        if best - second > 1e-4:
            clear += 1
            assert other.select(context) == arm
        for agent in (other, ours):
            agent.update(context, arm, reward[arm])
    assert clear > 0.8 * seen


def test_rivers_choices_have_the_noise_under_the_root():
    other = have("disjoint linear", "river").make(K, D)
    ours = RidgePosterior(D, 1.0, (K,))
    for context, reward in zip(*visits(60, shared=False), strict=True):
        mean, width = ours.predict_with_width(context.features)
        bounds = mean + np.sqrt(1 + width**2)
        arm = int(bounds.argmax())
        second, best = np.sort(bounds)[-2:]
        if best - second > 1e-9:
            assert other.select(context) == arm
        other.update(context, arm, reward[arm])
        ours.update(context.features[arm], reward[arm], (arm,))


@pytest.mark.parametrize("kind", ["disjoint linear", "shared linear"])
def test_thompson_draws_have_our_posteriors_mean_and_width(kind):
    other, ours = linear(kind, "bayesianbandits")
    contexts, rewards = visits(40, kind == "shared linear")
    for context, reward in zip(contexts, rewards, strict=True):
        for agent in (other, ours):
            agent.update(context, 3, reward[3])
    row = contexts[0].features[3:4]
    learner = other.agent.arm(3).learner
    draws = learner.sample(row, size=20_000)[:, 0]
    unsure = LinUCBAgent(K, D, 0.0, 2.5, shared=kind == "shared linear")
    unsure.posterior = ours.posterior
    mean = unsure.scores(contexts[0])[3]
    width = ours.scores(contexts[0])[3] - mean
    assert draws.mean() == pytest.approx(mean, abs=5 * width / np.sqrt(20_000))
    assert draws.std() == pytest.approx(width, rel=0.03)


@pytest.mark.parametrize("kind", ["disjoint linear", "shared linear"])
def test_the_quantile_of_bayesianbandits_is_near_our_bound(kind):
    other, ours = linear(kind, "bayesianbandits, UCB")
    other.agent.policy.samples = 20_000
    near = 0
    for context, reward in zip(*visits(40, kind == "shared linear"), strict=True):
        arm = other.select(context)
        scores = ours.scores(context)
        near += scores[arm] > scores.max() - 0.05
        for agent in (other, ours):
            agent.update(context, arm, reward[arm])
    assert near >= 38


@pytest.mark.parametrize("kind", ["disjoint linear", "shared linear"])
def test_vowpal_wabbit_learns_which_arm_earns(kind):
    other = have(kind, "vowpalwabbit").make(K, D)
    hits = []
    for context in visits(3000, kind == "shared linear")[0]:
        arm = other.select(context)
        first = context.features[:, 0]
        best = first.argmax() if kind == "shared linear" else (5 if first[0] > 0 else 2)
        other.update(context, arm, float(arm == best))
        hits.append(arm == best)
    assert np.mean(hits[-500:]) > 0.4  # one in eight by chance


def batches(kind):
    return [(kind, name) for name in names(kind)]


@pytest.mark.parametrize(
    ("kind", "name"), [*batches("disjoint linear"), *batches("shared linear")]
)
def test_a_batch_teaches_what_its_visits_teach_one_by_one(kind, name):
    together, _ = linear(kind, name)
    alone, _ = linear(kind, name)
    if not isinstance(together, BatchAdapter):
        pytest.skip(f"{name} has no batch mode")
    contexts, rewards = visits(24, kind == "shared linear")
    features = np.stack([context.features for context in contexts])
    arms = np.random.default_rng(0).integers(K, size=24)
    earned = rewards[np.arange(24), arms]
    rows = features if kind == "shared linear" else features[:, 0]
    together.update_batch(rows, arms, earned)
    for context, arm, reward in zip(contexts, arms, earned, strict=True):
        alone.update(context, int(arm), float(reward))
    tolerance = TOLERANCE.get(name, 1e-9)
    for context in contexts:
        assert difference(together.scores(context), alone.scores(context)) < tolerance
    if PEERS[kind][name].same_policy:
        chosen = together.select_batch(rows)
        assert chosen.tolist() == [alone.select(context) for context in contexts]


def embed(network, rows):
    with torch.no_grad():
        return network(torch.tensor(rows, dtype=torch.float32)).double().numpy()


@pytest.mark.parametrize("in_batches", [False, True])
@pytest.mark.parametrize("train_every", [10, 10**6])
def test_calveras_posterior_is_ours_over_its_embeddings(in_batches, train_every):
    peer = have("neural-linear", "calvera")
    other = peer.make(
        K, D, hidden=(8,), embedding_dim=4, train_every=train_every, batch_size=16
    )
    network = other.bandit.network
    before = embed(network, np.eye(D))
    contexts, rewards = visits(30, shared=True)
    features = np.stack([context.features for context in contexts])
    played = []
    for start in range(0, 30, 5) if in_batches else range(30):
        these = slice(start, start + (5 if in_batches else 1))
        arms = other.select_batch(features[these])
        earned = rewards[these][np.arange(len(arms)), arms]
        other.update_batch(features[these], arms, earned)
        played += zip(features[these][np.arange(len(arms)), arms], earned, strict=True)
    trained = not np.array_equal(embed(network, np.eye(D)), before)
    assert trained == (train_every == 10)
    ours = RidgePosterior(4)
    for row, reward in played:
        ours.update(embed(network, row[None])[0], reward)
    mean, width = ours.predict_rows(embed(network, features[0]))
    assert difference(other.scores(contexts[0], ALPHA), mean + ALPHA * width) < 1e-5


def test_calveras_neural_ucb_keeps_the_diagonal_of_the_full_matrix():
    peer = have("NeuralUCB", "calvera")
    other = peer.make(K, D, alpha=0.7, ridge=2.0, hidden=(8,), train_every=10**6)
    network, diagonal = other.bandit.theta_t, 2.0
    for context in visits(6, shared=True)[0]:
        expected, gradients = [], []
        for row in torch.tensor(context.features, dtype=torch.float32):
            output = network(row[None])[0, 0]
            parts = torch.autograd.grad(output, list(network.parameters()))
            gradient = torch.cat([part.flatten() for part in parts]).double().numpy()
            gradients.append(gradient)
            width = np.sqrt((gradient**2 / diagonal).sum())
            expected.append(output.item() + 0.7 * width)
        assert other.scores(context) == pytest.approx(expected, abs=1e-5)
        arm = other.select(context)
        assert arm == int(np.argmax(expected))
        diagonal = diagonal + gradients[arm] ** 2
        other.update(context, arm, 1.0)


def test_calveras_neural_ucb_trains_when_it_is_due():
    peer = have("NeuralUCB", "calvera")
    other = peer.make(K, D, hidden=(8,), train_every=5, batch_size=4)
    network = other.bandit.theta_t
    states = [embed(network, np.eye(D))]
    for context in visits(5, shared=True)[0]:
        other.update(context, other.select(context), 1.0)
        states.append(embed(network, np.eye(D)))
    changed = [not np.array_equal(*pair) for pair in pairwise(states)]
    assert changed == [False] * 4 + [True]


def test_every_library_of_the_list_is_there_or_has_a_reason_not_to_be():
    listed = {name.partition(",")[0] for kind in PEERS.values() for name in kind}
    assert listed == LISTED
    for kind in PEERS:
        found = available(kind)
        assert list(found) == list(PEERS[kind])
        for one in found.values():
            assert one.reason if isinstance(one, Absent) else one.note.endswith(".")


def test_every_peer_is_installed_by_its_requirements():
    pinned = peers.distributions()
    asked = {
        one.distribution
        for kind in PEERS.values()
        for one in kind.values()
        if isinstance(one, Peer)
    }
    assert asked <= set(pinned)
    assert len(pinned) == len(set(pinned))


@pytest.fixture
def unknown(monkeypatch, tmp_path):
    """Add a peer that is not installed, and one whose import fails; return what asks for them."""
    (tmp_path / "peer_that_fails.py").write_text("raise OSError('no such luck')")
    (tmp_path / "peer_that_lacks.py").write_text("import package_of_nobody")
    monkeypatch.syspath_prepend(tmp_path)
    modules = ("peer_of_nobody", "peer_that_fails", "peer_that_lacks")
    kind = {m: Peer("peer-of-nobody", m, dict, "None.") for m in modules}
    monkeypatch.setitem(PEERS, "nothing", kind)
    monkeypatch.setattr(peers, "REPORT", tmp_path / "peers.json")
    monkeypatch.setattr(peers, "peer", peers.peer.__wrapped__)
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


@pytest.mark.parametrize(
    ("errors", "expected"),
    [
        ("", "pip failed without a word"),
        ("one\nERROR: first thing\nERROR: second\n", "ERROR: first thing"),
        (
            "  error: subprocess-exited\nERROR: Failed building wheel for x\n",
            "ERROR: Failed building wheel for x",
        ),
        ("it broke\nand ended\n", "it broke"),
        (
            "ERROR: see https://host.example/simple in /root/pip/file.txt now",
            "ERROR: see … in … now",
        ),
        (
            "ERROR: Pool(host='host.example', port=443): no route",
            "ERROR: Pool(host='…', port=443): no route",
        ),
        (
            "ERROR: no version of x==9 (from versions: 0.1, 0.2)",
            "ERROR: no version of x==9 (from versions: …)",
        ),
    ],
)
def test_the_telling_line_names_neither_hosts_nor_paths(errors, expected):
    assert install.telling_line(errors) == expected


def test_a_telling_line_is_short():
    line = install.telling_line("ERROR: " + "word " * 100)
    assert len(line) == install.LONGEST_REASON
    assert line.endswith("…")


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
    assert outcomes["peer-of-nobody"]["version"] is None
    assert "peer-of-nobody" in outcomes["peer-of-nobody"]["reason"]
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
