"""Agents for any shop: labels, visitors of any kind, arms that come and go, and what is known of a visitor."""

import copy
import warnings
from datetime import date

import numpy as np
import pandas as pd
import pytest
from scipy import stats

from tests.states import learnt
from zoolib import (
    Agent,
    Context,
    EnsembleAgent,
    EpsilonGreedyAgent,
    GuardedAgent,
    HybridLinUCBAgent,
    LinearAgent,
    LinTSAgent,
    LinUCBAgent,
    MCDropoutAgent,
    NeuralLinearAgent,
    NeuralUCBAgent,
    RandomAgent,
    StaticAgent,
    greedy,
    offpolicy,
)
from zoolib._support.state import to_bytes
from zoolib.agents.policies import best_of_normals

NAMES = ("leash", "kibble", ("bowl", 2), 7)
K, D = len(NAMES), 3
SMALL = {"hidden": (4,), "train_every": 5, "batch_size": 4, "buffer_size": 50}
SEPARATE = {
    "greedy": lambda arms, **o: LinearAgent(arms, D, **o),
    "linucb": lambda arms, **o: LinUCBAgent(arms, D, **o),
    "logit": lambda arms, **o: LinUCBAgent(arms, D, link="logit", **o),
    "lints": lambda arms, **o: LinTSAgent(arms, D, 0.3, **o),
    "epsilon": lambda arms, **o: EpsilonGreedyAgent(arms, D, 0.2, **o),
    "neural-linear": lambda arms, **o: NeuralLinearAgent(
        arms, D, shared=False, embedding_dim=3, rebuild=True, **SMALL, **o
    ),
    "neural-linear, thompson": lambda arms, **o: NeuralLinearAgent(
        arms, D, shared=False, embedding_dim=3, policy="thompson", **SMALL, **o
    ),
    "ensemble": lambda arms, **o: EnsembleAgent(
        arms, D, shared=False, n_members=3, **SMALL, **o
    ),
    "ensemble, thompson": lambda arms, **o: EnsembleAgent(
        arms, D, shared=False, n_members=3, policy="thompson", **SMALL, **o
    ),
    "dropout": lambda arms, **o: MCDropoutAgent(
        arms, D, shared=False, n_masks=3, **SMALL, **o
    ),
    "random": lambda arms, **o: RandomAgent(arms, **o),
    "guarded": lambda arms, **o: GuardedAgent(LinTSAgent(arms, D, 0.3, **o), 0.1),
}
SHARED = {
    "linucb": lambda arms: LinUCBAgent(arms, D, shared=True),
    "hybrid": lambda arms: HybridLinUCBAgent(arms, D, own=[0]),
    "neural-linear": lambda arms: NeuralLinearAgent(arms, D, embedding_dim=3, **SMALL),
    "neural-ucb": lambda arms: NeuralUCBAgent(arms, D, **SMALL),
    "guarded": lambda arms: GuardedAgent(LinTSAgent(arms, D, shared=True)),
}
each_separate = pytest.mark.parametrize("kind", SEPARATE)


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def taught(agent, n=30, arms=NAMES):
    """An agent that has seen visitors, each by what is known of her."""
    for step in range(n):
        context = Context(f"visitor {step}", normal(step, D))
        agent.update(context, arms[step % K], step % 3 / 2)
    return agent


@each_separate
@pytest.mark.parametrize("ids", ["a", ["a", ("b", 1), 3, None, "e", 2.5]])
def test_what_is_known_of_visitors_is_the_same_row_for_every_arm(kind, ids):
    alone, spread = (taught(SEPARATE[kind](K), arms=range(K)) for _ in range(2))
    lead = (len(ids),) if isinstance(ids, list) else ()
    for step in range(12):
        x = normal(200 + step, *lead, D)
        rows = np.broadcast_to(x[..., None, :], (*lead, K, D))
        seen = (alone, Context(ids, x)), (spread, Context(ids, rows))
        shares = [agent.propensities(context) for agent, context in seen]
        assert shares[0].shape == (*lead, K)
        np.testing.assert_allclose(*shares, rtol=1e-5, atol=1e-6)
        assert np.array_equal(*(agent.select(context) for agent, context in seen))
        arm = (step + np.arange(6)) % K if lead else step % K
        for agent, context in seen:
            agent.update(context, arm, np.ones(6) if lead else 1.0)


OFFERED = (7, "leash", ("bowl", 2))
MASK = np.array([name in OFFERED for name in NAMES])
NO_ROW = [np.nan, 1e30, -np.inf]  # of an arm that is not on offer


@each_separate
def test_arms_on_offer_are_judged_as_among_all(kind):
    agent, same_luck = (taught(SEPARATE[kind](NAMES)) for _ in range(2))
    x = normal(7, D)
    some, masked = Context("s", x, arms=OFFERED), Context("s", x, offered=MASK)
    assert {agent.select(some) for _ in range(30)} <= set(OFFERED)
    assert {same_luck.select(masked) for _ in range(30)} <= set(OFFERED)
    shares = agent.propensities(some)
    assert shares[~MASK].tolist() == [0]
    assert shares.sum() == pytest.approx(1)
    for context, allowed in ((masked, None), (Context("s", x), MASK)):
        expected = same_luck.propensities(context, allowed)
        if not ("dropout" in kind or "thompson" in kind):  # else drawn anew
            np.testing.assert_array_equal(shares, expected)
    learns = copy.deepcopy(agent)
    for one, context in ((agent, some), (learns, Context("s", x))):
        one.update(context, ("bowl", 2), 0.5)
    assert to_bytes(agent.state()["learned"]) == to_bytes(learns.state()["learned"])


def test_rows_with_labels_are_behind_the_mask_by_their_labels():
    names = ["leash", "kibble", "bowl", "hay"]
    agent, mask = (
        LinUCBAgent(names, D, shared=True),
        np.array([True, False, True, True]),
    )
    agent.update(Context(0, normal(1, K, D)), "hay", 1.0)
    rows = pd.DataFrame(normal(8, K, D), names)
    expected = agent.propensities(Context(0, rows.to_numpy(), offered=mask))
    spoilt = rows.copy()
    spoilt.loc["kibble"] = NO_ROW
    for context in (
        Context(0, spoilt[::-1], offered=mask),
        Context(0, spoilt[::-1], arms=["bowl", "leash", "hay"]),
    ):
        np.testing.assert_array_equal(agent.propensities(context), expected)
    with pytest.raises(ValueError, match="features must be finite"):
        agent.select(Context(0, spoilt[::-1], offered=[True] * K))


@pytest.mark.parametrize(
    "kind", ["greedy", "linucb", "lints", "epsilon", "random", "ensemble", "dropout"]
)
def test_each_world_may_offer_arms_of_its_own(kind):
    def make(**options):
        return SEPARATE[kind](K, **options)

    together, alone = make(n_worlds=2, seed=[3, 4]), [make(seed=3), make(seed=4)]
    for step in range(40):
        rows, offered = normal(step, 2, K, D), normal(step + 50, 2, K) > 0
        offered[:, step % K] = True
        context = Context([1, 2], rows, offered=offered)
        chosen = together.select(context)
        assert offered[[0, 1], chosen].all()
        shares = together.propensities(context)
        together.update(context, chosen, [1.0, 0.0])
        for w, agent in enumerate(alone):
            assert agent.select(context.of_world(w)) == chosen[w]
            share = agent.propensities(context.of_world(w))
            np.testing.assert_allclose(share, shares[w], atol=1e-12)
            agent.update(context.of_world(w), chosen[w], 1.0 - w)


@each_separate
def test_a_saved_agent_knows_its_labels(kind, tmp_path):
    agent = taught(SEPARATE[kind](NAMES))
    agent.save(tmp_path / "agent")
    again = Agent.load(tmp_path / "agent")
    assert again.arms[:] == NAMES
    assert repr(again) == repr(agent)
    for step in range(10):
        context = Context(step, normal(300 + step, D))
        assert again.select(context) == agent.select(context)


def test_labels_of_an_agent_serve_another_and_a_log():
    agent = LinUCBAgent(NAMES, D)
    assert list(agent.arms) == list(NAMES)
    assert repr(agent.arms) == repr(NAMES)
    assert LinUCBAgent(agent.arms, D).arms[:] == NAMES
    assert LinUCBAgent(LinUCBAgent(3, D).arms, D).select(Context(0, np.eye(3))) in (
        0,
        1,
        2,
    )
    log = offpolicy.Log([7, "leash"], [1, 0], [0.5, 0.5], 1, n_arms=agent.arms)
    assert log.arm.tolist() == [3, 0]


def test_columns_of_a_table_are_visitors_features_arms_and_rewards():
    table = pd.DataFrame(normal(0, 6, D), columns=["x", "y", "z"])
    table["session"], table["clicked"] = list("abcdef"), [0, 1] * 3
    table["product"] = [NAMES[i % 2] for i in range(6)]
    agent, other = LinUCBAgent(NAMES, D), LinUCBAgent(NAMES, D)
    later = table[2:]  # its index does not begin at 0
    x = later[["x", "y", "z"]]
    for ids in (
        later["session"],
        pd.Index(later["session"]),
        later["session"].tolist(),
    ):
        context = Context(ids, x)
        assert context.user_id.tolist() == list("cdef")
        assert agent.propensities(context).shape == (4, K)
    agent.update(Context(later["session"], x), later["product"], later["clicked"])
    other.update_many(x, later["product"], later["clicked"])
    learnt = np.zeros((K, D))
    learnt[1] = x.to_numpy()[1::2].sum(axis=0)  # only kibble was clicked
    np.testing.assert_allclose(agent.posterior.b, learnt, atol=1e-12)
    np.testing.assert_allclose(other.posterior.b, learnt, atol=1e-12)


def test_labels_that_a_file_cannot_hold_are_named():
    agent = LinUCBAgent([date(2026, 1, 1), "b"], D)
    assert agent.select(Context(None, np.zeros(D))) in (date(2026, 1, 1), "b")
    with pytest.raises(
        TypeError, match="n_arms must be plain data to be saved: got date"
    ):
        agent.state()


def test_labels_may_come_from_numpy_and_pandas():
    series = pd.Series(["a", "b", "c"])
    for names in (
        series,
        series.to_numpy(),
        np.array(["a", "b", "c"]),
        pd.Index(series),
    ):
        agent = LinUCBAgent(names, D, alpha=0)
        assert agent.arms[:] == ("a", "b", "c")
        agent.update(Context(None, np.ones(D)), np.str_("b"), 1.0)
        assert agent.select(Context(None, np.ones(D))) == "b"


@pytest.mark.parametrize("shared", [False, True])
def test_new_arms_bring_their_labels(shared):
    agent = LinUCBAgent(["a", "b"], D, shared=shared)
    agent.add_arms(["c", "d"])
    assert (agent.n_arms, agent.arms[:]) == (4, ("a", "b", "c", "d"))
    context = Context(None, normal(0, 4, D))
    agent.update(context, "d", 1.0)
    assert agent.select(context) in "abcd"
    for arms, error, words in (
        (1, TypeError, "arms must be labels .*got 1"),
        (["e", "a"], ValueError, "arms must differ: got 'a' more than once"),
        ([], ValueError, "number of arms must be at least 1"),
        ("e", TypeError, "a sequence of labels: got 'e'"),
    ):
        with pytest.raises(error, match=words):
            agent.add_arms(arms)
        assert agent.arms[:] == ("a", "b", "c", "d")
    with pytest.raises(TypeError, match=r"a number for one that has none: got \['e'\]"):
        LinUCBAgent(2, D).add_arms(["e"])


def of(features, user_id=None, *arms, **more):
    """A context, by its features first."""
    return Context(user_id, features, *arms, **more)


ONE, ALL, EMPTY = np.ones(D), np.ones((K, D)), np.full((K, D), np.nan)


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (
            lambda a: a.update(of(ONE), "bone", 1.0),
            "arm must be one of 'leash', 'kibble', .*: got 'bone'",
        ),
        (
            lambda a: a.update(of(ONE, None, ["leash", 7]), "kibble", 1.0),
            "arm must be one of those on offer: got 'kibble'",
        ),
        (
            lambda a: a.select(of(ONE, None, ["leash", "bone"])),
            "context.arms must be one of .*: got 'bone'",
        ),
        (
            lambda a: a.update(of(np.ones((2, 1, D))), ["leash"], [1.0, 0]),
            r"arm must have shape \(2,\): got \(1,\)",
        ),
        (
            lambda a: a.select(of(np.ones((2, D)))),
            r"context.features must have shape \(4, 3\): got \(2, 3\)",
        ),
        (
            lambda a: a.select(of(np.ones((6, D)))),
            r"shape \(4, 3\): got \(6, 3\). Several visitors need their ids, as a list",
        ),
        (
            lambda a: a.select(of(np.ones(D + 1), "s")),
            r"context.features must have shape \(3,\): got \(4,\)$",
        ),
        (
            lambda a: a.select(of(np.ones((2, D + 1)), ["s", "t"])),
            r"context.features must have shape \(n, 3\): got \(2, 4\)$",
        ),
        (
            lambda a: a.select(of(np.ones((2, 3, D)), [1, 2])),
            r"context.features must have shape \(n, 4, 3\): got \(2, 3, 3\)",
        ),
        (
            lambda a: a.select(of(np.ones((2, D)), None, ["leash", 7])),
            r"context.features must have shape \(4, 3\): got \(2, 3\)",
        ),
        (
            lambda a: a.select(of(ONE, offered=[True, False])),
            r"offered must hold booleans of shape \(4,\): got bool of shape \(2,\)",
        ),
        (
            lambda a: of(ONE, None, [7], offered=[True] * K),
            "give arms or offered: got both",
        ),
        (
            lambda a: a.select(of(ALL, 0, offered=np.zeros(K, bool))),
            r"offered must leave an arm in every row: got none in shape \(4,\)",
        ),
        (
            lambda a: of([ALL, ALL], [1, 2], offered=[[1, 0, 0, 1]] * 2),
            r"offered must hold booleans of shape \(2, 4\): got int64",
        ),
        (
            lambda a: a.select(of(EMPTY, 0, offered=[True] * K)),
            "features must be finite",
        ),
        (
            lambda a: a.select(of(EMPTY, None, [7, "leash"])),
            "features must be finite",
        ),
        (
            lambda a: a.propensities(
                of(ONE, None, ["leash"]), ~np.eye(K, dtype=bool)[0]
            ),
            r"allowed must leave an arm in every row: got none in shape \(4,\)",
        ),
        (
            lambda a: a.propensities(of(ONE), [True]),
            r"allowed must hold booleans of shape \(4,\): got bool of shape \(1,\)",
        ),
        (
            lambda a: a.update_many(np.ones((2, D)), ["leash"], [1.0, 0.0]),
            r"arms must have shape \(2,\): got \(1,\)",
        ),
    ],
)
def test_what_does_not_fit_is_named_and_changes_nothing(call, words):
    agent = taught(LinTSAgent(NAMES, D))
    before = learnt(agent)
    with pytest.raises(ValueError, match=words):
        call(agent)
    assert learnt(agent) == before


@pytest.mark.parametrize("kind", SHARED)
def test_one_model_for_all_arms_refuses_the_visitor_alone(kind):
    agent = SHARED[kind](NAMES)
    for call in (agent.select, agent.propensities, lambda c: agent.update(c, 7, 1.0)):
        with pytest.raises(
            ValueError, match=r"known of the visitor alone.*shared=False"
        ):
            call(Context(None, np.ones(D)))


@pytest.mark.parametrize("kind", sorted(SHARED.keys() - {"hybrid"}))
@pytest.mark.parametrize("lead", [(), (2,)])
def test_one_model_for_all_arms_warns_once_of_equal_rows(kind, lead):
    agent = SHARED[kind](NAMES)
    context = Context([1, 2] if lead else 1, np.ones((*lead, K, D)))
    words = "all arms have equal features.*shared=False"
    with pytest.warns(UserWarning, match=words) as warned:
        agent.select(context)
    assert [one.filename for one in warned] == [__file__]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        agent.select(context)


def test_separate_models_do_not_warn():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        LinUCBAgent(K, D).select(Context(None, np.ones((K, D))))
        LinUCBAgent(1, D, shared=True).select(Context(None, np.ones((1, D))))


@pytest.mark.no_cover
@pytest.mark.parametrize("kind", ["neural-linear", "ensemble", "dropout"])
def test_a_head_for_each_arm_learns_what_each_arm_is_worth(kind):
    """Who likes what depends on the visitor alone; one row for all arms tells."""
    agent = SEPARATE[kind](["food", "toy"])
    agent = type(agent)(
        ["food", "toy"], 2, shared=False, hidden=(16,), train_every=10, n_batches=10
    )
    rng = np.random.default_rng(0)
    for _ in range(400):
        dog = int(rng.integers(2))
        arm = ("food", "toy")[rng.integers(2)]
        liked = (arm == "toy") == bool(dog)
        agent.update(
            Context(None, np.eye(2)[dog]), arm, float(rng.random() < 0.1 + 0.8 * liked)
        )
    for dog in range(2):
        shares = [agent.select(Context(None, np.eye(2)[dog])) for _ in range(20)]
        assert shares.count(("food", "toy")[dog]) >= 17


def test_a_posterior_for_each_arm_has_an_explicit_head():
    with pytest.raises(
        ValueError, match='head must be "explicit" where each arm has its own'
    ):
        NeuralLinearAgent(2, D, shared=False, head="posterior")


def test_a_table_teaches_the_heads_of_its_arms():
    agent = NeuralLinearAgent(NAMES, D, shared=False, discount=0.9, embedding_dim=2)
    x, reward = normal(0, 40, D), np.random.default_rng(1).random(40)
    arm = [NAMES[i] for i in np.random.default_rng(2).integers(K, size=40)]
    agent.fit(x, reward, epochs=2, arm=arm)
    for place, name in enumerate(NAMES):
        mine = np.array([one == name for one in arm])
        z, weight = (
            agent.embed(x.astype(np.float32))[mine],
            0.9 ** np.arange(mine.sum())[::-1],
        )
        A = np.eye(z.shape[1]) + (weight[:, None] * z).T @ z
        np.testing.assert_allclose(agent.posterior.A[place], A, rtol=1e-5, atol=1e-6)
    with pytest.raises(ValueError, match="arm must be one of"):
        agent.fit(x, reward, arm=["bone"] * 40)


def test_static_tables_may_offer_some_arms():
    agent = StaticAgent([[0.1, 0.9, 0.5]])
    assert agent.select(Context(0, np.ones(1), arms=[2, 0])) == 2


def test_who_is_best_of_normal_numbers():
    rng = np.random.default_rng(4)
    for k in (2, 5, 50):
        mean, deviation = (
            rng.uniform(0, 0.6, (3, k)),
            10 ** rng.uniform(-2.5, -0.3, (3, k)),
        )
        allowed = rng.random((3, k)) < 0.8
        allowed[:, 0] = True
        found = best_of_normals(mean, deviation, allowed)
        drawn = mean + deviation * rng.standard_normal((100_000, 3, k))
        shares = greedy(np.where(allowed, drawn, -np.inf)).mean(axis=0)
        error = np.sqrt(found * (1 - found) / 100_000)
        assert (abs(found - shares) < 5 * error + 1e-3).all()
        assert (found[~allowed] == 0).all()
        assert found.sum(axis=-1) == pytest.approx(1)
    # Two numbers have a formula; numbers without deviation tie or win.
    two = best_of_normals(np.array([0.5, 0.3]), np.array([0.1, 0.2]), np.ones(2, bool))
    assert two[0] == pytest.approx(stats.norm.cdf(0.2 / np.sqrt(0.05)), abs=1e-5)
    sure = best_of_normals(np.array([0.5, 0.5, 0.1]), np.zeros(3), np.ones(3, bool))
    np.testing.assert_allclose(sure, [0.5, 0.5, 0], atol=1e-9)


FRAME = pd.DataFrame(
    {
        "product": ["kibble", "leash", "kibble"],
        "clicked": [1, 0, 1],
        "p": [0.5, 0.25, 0.5],
        "model": ["v1", "v1", "v2"],
    }
)
COLUMNS = {"arm": "product", "reward": "clicked", "propensity": "p"}


def test_a_log_comes_from_a_table():
    log = offpolicy.Log.from_frame(
        FRAME, version="model", n_arms=["leash", "kibble"], **COLUMNS
    )
    assert log.arm.tolist() == [1, 0, 1]
    assert log.arms[:] == ("leash", "kibble")
    assert offpolicy.ips(log, np.full((3, 2), 0.5)).mean == pytest.approx(2 / 3)
    assert log.version.tolist() == FRAME["model"].tolist()
    some = log.where([0, 2])
    assert (some.arm.tolist(), some.arms[:]) == ([1, 1], ("leash", "kibble"))
    assert log.where(slice(2)).arm.tolist() == [1, 0]
    assert len(log.where(np.array([True, False, True]))) == 2
    seen = offpolicy.Log.from_frame(FRAME, **COLUMNS)
    assert seen.arms[:] == ("kibble", "leash")
    assert set(seen.version) == {"log"}


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        (
            {"p": [0.5, np.nan, 0.5]},
            ValueError,
            "'p' must have no gaps: got one in row 1",
        ),
        ({"p": [0.5, 0.0, 0.5]}, ValueError, r"propensity .*: got 0.0 in row 1"),
        (
            {"p": [0.5, 1.5, 0.5]},
            ValueError,
            r"propensity must lie in \(0, 1\]: got 1.5",
        ),
        ({"clicked": ["y", "n", "y"]}, TypeError, "reward must hold real numbers"),
    ],
)
def test_a_table_that_is_no_log_is_refused(change, error, words):
    with pytest.raises(error, match=words):
        offpolicy.Log.from_frame(FRAME.assign(**change), **COLUMNS)


def test_a_table_that_lacks_a_column_or_an_arm_is_refused():
    with pytest.raises(ValueError, match=r"a column 'item': got \['product'"):
        offpolicy.Log.from_frame(FRAME, **COLUMNS | {"arm": "item"})
    with pytest.raises(ValueError, match="one of 'leash', 'bowl': got 'kibble'"):
        offpolicy.Log.from_frame(FRAME, **COLUMNS, n_arms=["leash", "bowl"])
