"""Tables as they are: pandas, polars and arrays of objects, read by their labels or refused in words."""

import numpy as np
import pandas as pd
import pytest

from zoolib import (
    Agent,
    Context,
    GuardedAgent,
    LinTSAgent,
    LinUCBAgent,
    NeuralLinearAgent,
    OracleAgent,
    RevealedContext,
    StaticAgent,
    with_floor,
)
from zoolib import offpolicy as op
from zoolib._support.checks import as_array, as_ids

NAMES = ["dogs", "cats", "birds"]
# What a shop's table has: floats, whole numbers that may be missing, flags of three kinds.
TABLE = pd.DataFrame(
    {
        "price": [1.5, 2.0, 3.0],
        "visits": pd.array([1, 2, 3], dtype="Int64"),
        "member": pd.array([True, False, True], dtype="boolean"),
        "small": np.array([7, 8, 9], np.uint8),
    }
).join(pd.get_dummies(pd.Series(["x", "y", "x"])))
NUMBERS = [[1.5, 1, 1, 7, 1, 0], [2, 2, 0, 8, 0, 1], [3, 3, 1, 9, 1, 0]]


def test_columns_of_several_types_are_read():
    assert as_array("features", TABLE).tolist() == NUMBERS
    assert as_array("features", TABLE.to_numpy()).tolist() == NUMBERS
    assert as_array("features", TABLE.iloc[1]).tolist() == NUMBERS[1]
    assert as_ids("arm", TABLE["visits"], 4).tolist() == [1, 2, 3]
    assert as_ids("arm", TABLE["visits"].astype(object), 4).dtype == np.int64


@pytest.mark.parametrize(
    ("name", "column", "error", "found", "row"),
    [
        ("visits", pd.array([1, None, 3], dtype="Int64"), ValueError, "nan", 1),
        ("price", [1.5, 2.0, np.nan], ValueError, "nan", 2),
        ("member", [True, None, False], ValueError, "nan", 1),
        ("city", ["Bonn", "Ulm", "Ulm"], TypeError, "'Bonn'", 0),
        ("at", pd.Timestamp("2026-03-29", tz="CET"), TypeError, ".*", 0),
    ],
)
def test_what_is_no_number_is_named_by_column_and_row(name, column, error, found, row):
    said = f"got {found} in column '{name}', row {row}"
    with pytest.raises(error, match=said):
        as_array("features", TABLE.assign(**{name: column}))


def test_gaps_in_a_column_or_a_row_are_named():
    with pytest.raises(ValueError, match=r"reward must be finite .*: got nan in row 1"):
        as_array("reward", pd.Series([1, None, 0], dtype="Int64"))
    with pytest.raises(
        ValueError, match=r"features must be finite .*: got nan at 'cats'"
    ):
        as_array("features", pd.Series([1.0, np.nan], index=["dogs", "cats"]))
    with pytest.raises(
        TypeError, match="arm must hold whole numbers: got a gap in row 1"
    ):
        as_ids("arm", pd.Series([1, None]), 4)
    with pytest.raises(ValueError, match="features must have no masked values"):
        as_array("features", np.ma.array([1.0, 2.0], mask=[False, True]))


def shop(n=3_000):
    """A log with named arms, and a target that shows the last."""
    rng = np.random.default_rng(0)
    arm = rng.integers(3, size=n)
    clicked = rng.random(n) < np.array([0.1, 0.2, 0.6])[arm]
    frame = pd.DataFrame(
        {"arm": np.array(NAMES)[arm], "reward": clicked, "propensity": 1 / 3}
    )
    return frame, pd.DataFrame(np.tile([0.0, 0.0, 1.0], (n, 1)), columns=NAMES)


def test_columns_of_a_target_are_read_by_their_names():
    frame, target = shop()
    log, other = op.Log.from_frame(frame, n_arms=NAMES), NAMES[::-1]
    predicted = pd.DataFrame(np.tile([0.1, 0.2, 0.6], (3_000, 1)), columns=NAMES)
    for estimate in (
        op.ips,
        op.snips,
        op.lead,
        op.mean_weight,
        op.effective_sample_size,
        lambda log, target: op.lead(log, np.full((3_000, 3), 1 / 3), target),
        lambda log, target: op.doubly_robust(log, target, predicted),
        lambda log, target: op.doubly_robust(log, predicted * 0 + 1 / 3, target),
        lambda log, target: op.direct_method(target, predicted),
    ):
        expected = estimate(log, target)
        assert estimate(log, target[other]) == expected
        if estimate is op.ips:
            assert abs(expected.mean - 0.6) < 0.05
    with pytest.raises(
        ValueError, match=r"target must have each of the labels .* lacks 'cats'"
    ):
        op.ips(log, target.rename(columns={"cats": "fish"}))
    with pytest.raises(ValueError, match="predicted must have each of the labels"):
        op.direct_method(target, predicted[["dogs", "cats", "cats"]])
    numbered = op.Log(
        frame["arm"].map(NAMES.index), frame["reward"], frame["propensity"], 1, 3
    )
    with pytest.raises(ValueError, match="target must have each of the labels"):
        op.ips(numbered, target)
    assert op.ips(numbered, target.set_axis([2, 1, 0], axis=1)[[0, 1, 2]]).mean < 0.2


def test_rows_in_another_order_are_refused():
    frame, target = shop()
    log = op.Log.from_frame(frame, n_arms=NAMES)
    later = log.where(slice(1_000, None))
    assert op.ips(later, target[1_000:]) == op.ips(later, target[1_000:].to_numpy())
    assert op.ips(later, target[1_000:].reset_index(drop=True)).n == 2_000
    evening = pd.Series(np.arange(3_000) % 2 == 0)
    assert len(log.where(evening)) == 1_500
    for wrong in (
        lambda: op.ips(log, target[::-1]),
        lambda: op.ips(later, target[1_000:][::-1]),
        lambda: log.where(evening[::-1]),
        lambda: op.Log(
            frame["arm"], frame["reward"][::-1], frame["propensity"], 1, NAMES
        ),
        lambda: op.direct_method(target, target[::-1]),
        lambda: op.ips(
            op.Log(
                frame["arm"].tolist(), *frame.to_numpy().T[1:].astype(float), 1, NAMES
            ),
            target[::-1],
        ),
    ):
        with pytest.raises(
            ValueError, match=r"must have the rows of .*, in their order"
        ):
            wrong()


def test_labels_of_several_types_have_an_order():
    frame = pd.DataFrame(
        {"arm": [2, "hay", 10, "bed"], "reward": [0, 1, 1, 0], "propensity": 0.5}
    )
    assert op.Log.from_frame(frame).arms[:] == (2, 10, "bed", "hay")
    with pytest.raises(
        ValueError, match="column 'arm' must have no gaps: got one in row 1"
    ):
        op.Log.from_frame(frame.assign(arm=["hay", None, "bed", "hay"]))


# Agents that learn from tables

VISITORS = pd.DataFrame(
    np.random.default_rng(1).random((20, 3)) * [10, 1, 1], columns=NAMES
)
SHOWN = pd.Series(["bed", "hay"] * 10)


def taught(make=LinUCBAgent, arms=("bed", "hay"), **options):
    agent = make(arms, 3, **options)
    agent.update_many(VISITORS, SHOWN, VISITORS["dogs"] > 5)
    return agent


def test_an_agent_reads_features_by_the_names_that_it_learnt():
    agent, row = taught(), VISITORS.iloc[3]
    wanted = agent.scores(Context("s", row.to_numpy())).tolist()
    assert agent.feature_names == tuple(NAMES)
    assert agent.scores(Context("s", row[::-1])).tolist() == wanted
    assert agent.scores(Context("s", row[::-1], arms=["hay", "bed"])).tolist() == wanted
    many = agent.scores(Context(list("abc"), VISITORS[NAMES[::-1]][2:5]))
    assert many[1].tolist() == wanted
    again, twin = taught(), taught()
    again.update(Context("s", row[::-1]), "hay", 1)
    twin.update(Context("s", row.to_numpy()), "hay", 1)
    assert (
        again.scores(Context("s", row)).tolist()
        == twin.scores(Context("s", row)).tolist()
    )
    again.add_arms(["toy"], mean=row[::-1], ridge=1e9)
    assert again.posterior.mean[-1] == pytest.approx(row.to_numpy())


def test_features_by_other_names_are_refused_and_nothing_is_learnt():
    agent = taught()
    before = agent.state()["learned"]["posterior"]["learned"]["b"]
    other = VISITORS.rename(columns={"dogs": "fish"})
    for wrong in (
        lambda: agent.scores(Context("s", other.iloc[0])),
        lambda: agent.select(Context("s", VISITORS.iloc[0][["dogs", "dogs", "cats"]])),
        lambda: agent.update(Context("s", other.iloc[0]), "bed", 1),
        lambda: agent.update_many(other, SHOWN, np.ones(20)),
        lambda: agent.update_many(VISITORS, SHOWN[::-1], np.ones(20)),
        lambda: agent.update(Context(SHOWN, VISITORS), SHOWN[::-1], np.ones(20)),
        lambda: Context(SHOWN[::-1], VISITORS),
    ):
        with pytest.raises(
            ValueError, match=r"must have (each of the labels|the rows of)"
        ):
            wrong()
    after = agent.state()["learned"]["posterior"]["learned"]["b"]
    assert after.tolist() == before.tolist()
    new = LinUCBAgent(2, 3, link="logit")
    with pytest.raises(ValueError, match="reward must lie in"):
        new.update(Context("s", VISITORS.iloc[0]), 0, 7.0)
    assert new.feature_names is None


def test_a_guard_reads_tables_by_the_names_that_its_agent_has_learnt():
    agent, row = LinUCBAgent(2, 3), pd.Series([2.0, 4.0, 6.0], NAMES)
    guard = GuardedAgent(agent)
    agent.update(Context(1, row), 0, 1.0)
    guard.update(Context(1, row[NAMES[::-1]]), 0, 1.0)
    assert agent.posterior.b[0].tolist() == [4, 8, 12]
    assert guard.feature_names == tuple(NAMES)


def test_names_are_saved_and_states_without_them_load():
    agent = GuardedAgent(taught(LinTSAgent), floor=0.2)
    again = Agent.from_state(agent.state())
    assert again.feature_names == again.agent.feature_names == tuple(NAMES)
    guard = GuardedAgent(LinTSAgent(2, 3))
    guard.update(Context("s", VISITORS.iloc[0]), 0, 1.0)
    assert guard.agent.feature_names == tuple(NAMES)
    state = taught().state()
    with pytest.raises(ValueError, match="feature_names must be 3: got 2"):
        LinUCBAgent.from_state(
            state | {"learned": state["learned"] | {"feature_names": NAMES[:2]}}
        )
    del state["learned"]["feature_names"]
    assert LinUCBAgent.from_state(state).feature_names is None
    assert "feature_names" not in LinUCBAgent(2, 3).state()["learned"]


def test_rows_of_arms_are_read_by_their_labels():
    agent, twin = (LinUCBAgent(["bed", "hay"], 3, shared=True) for _ in range(2))
    rows = VISITORS[:2].set_axis(["hay", "bed"])
    for _ in range(2):
        agent.update(Context(0, rows), "bed", 1)
    for _ in range(2):
        twin.update(Context(0, rows.loc[["bed", "hay"]].to_numpy()), "bed", 1)
    context = Context(0, rows)
    assert agent.scores(context).tolist() == twin.scores(context).tolist()
    allowed = pd.Series([True, False], index=["hay", "bed"])
    assert agent.propensities(context, allowed).tolist() == [0, 1]
    with pytest.raises(ValueError, match=r"rows of context.features must have each"):
        agent.select(Context(0, rows.set_axis(["hay", "tree"])))


ARMS = ["bed", "hay", "toy"]
MASK = pd.DataFrame([[True, False, False], [False, True, True]], columns=ARMS)
ROWS = pd.DataFrame(np.random.default_rng(2).random((3, 3)), ARMS, NAMES)


def offered(mask):
    return taught(arms=ARMS).propensities(Context([1, 2], VISITORS[:2], offered=mask))


def allowed(mask):
    return taught(arms=ARMS).propensities(Context([1, 2], VISITORS[:2]), mask)


def offered_once(mask):
    context = Context(0, VISITORS.iloc[0], offered=mask.iloc[0])
    return taught(arms=ARMS).propensities(context)


def revealed(truth):
    return OracleAgent(ARMS).propensities(
        RevealedContext([1, 2], np.ones((2, 3, 3)), truth)
    )


def floored(mask):
    return with_floor(pd.DataFrame([[0.6, 0.3, 0.1]] * 2, columns=ARMS), 0.5, mask)


def grouped(groups):
    return GuardedAgent(LinUCBAgent(ARMS, 3), group_of_arm=groups.iloc[0]).group_of_arm


@pytest.mark.parametrize(
    ("read", "table"),
    [
        (offered, MASK),
        (offered_once, MASK),
        (allowed, MASK),
        (floored, MASK),
        (revealed, MASK * 0.5),
        (grouped, MASK * 1),
    ],
)
def test_columns_named_after_arms_are_read_by_their_names(read, table):
    wanted = read(table)
    assert np.array_equal(read(table[ARMS[::-1]]), wanted)
    if read is not floored:  # which knows no arms but those of its table
        unnamed = table.set_axis(range(3), axis=1)
        assert np.array_equal(read(unnamed), wanted)
    with pytest.raises(
        ValueError, match=r"must have each of the labels .*'toy'\] once: .* lacks 'toy'"
    ):
        read(table.rename(columns={"toy": "tree"}))


@pytest.mark.parametrize("read", [offered, allowed])
def test_a_mask_has_the_rows_of_the_visitors(read):
    with pytest.raises(ValueError, match="must have the rows of context, in their"):
        read(MASK[::-1])


def test_numbered_tables_are_read_by_their_numbers():
    table = pd.DataFrame([[0.1, 0.9, 0.5], [0.7, 0.2, 0.3]])
    swapped = StaticAgent(table.iloc[::-1, ::-1])
    assert np.array_equal(swapped.predictions, table)
    with pytest.raises(ValueError, match=r"predictions must have .* lacks 0"):
        StaticAgent(table.set_axis(ARMS, axis=1))
    with pytest.raises(ValueError, match=r"rows of predictions must have .* lacks 0"):
        StaticAgent(table.set_axis(["Ann", "Bob"]))
    segments = pd.Series([0, 1, 1], index=[2, 1, 0])
    floor = pd.Series([0.1, 0.3], index=[1, 0])
    options = {"segment_of_user": segments, "floor": floor, "cap": floor}
    guard = GuardedAgent(LinUCBAgent(3, 3), **options)
    assert guard.segment_of_user.tolist() == [1, 1, 0]
    assert guard.floor.tolist() == guard.cap.tolist() == [0.3, 0.1]


def test_new_arms_get_the_means_in_rows_of_their_names():
    agent = taught()
    agent.add_arms(["toy", "bowl"], mean=ROWS.iloc[:2].set_axis(["bowl", "toy"]))
    assert np.array_equal(agent.posterior.mean[-2:], ROWS.iloc[[1, 0]])
    with pytest.raises(ValueError, match=r"rows of mean must have .* lacks 'ball'"):
        agent.add_arms(["ball"], mean=ROWS.iloc[:1])
    assert agent.n_arms == 4


def test_a_network_is_fitted_to_columns_by_their_names():
    agent, twin = (
        NeuralLinearAgent(["bed", "hay"], 3, hidden=(4,), embedding_dim=3)
        for _ in range(2)
    )
    clicks = VISITORS["dogs"] > 5
    for one, table in ((agent, VISITORS), (twin, VISITORS[NAMES[::-1]])):
        one.update(Context(0, ROWS[:2]), "bed", 1)
        one.fit(table, clicks)
    context = Context(0, ROWS[:2])
    assert agent.scores(context).tolist() == twin.scores(context).tolist()
    for wrong in (
        (VISITORS.rename(columns={"dogs": "fish"}), clicks),
        (VISITORS, clicks[::-1]),
    ):
        with pytest.raises(
            ValueError, match=r"must have (each of the labels|the rows of)"
        ):
            agent.fit(*wrong)
    new = NeuralLinearAgent(2, 3, hidden=(4,), embedding_dim=3)
    new.fit(VISITORS, clicks)
    assert new.feature_names == tuple(NAMES)


def test_frames_of_polars_are_read():
    pl = pytest.importorskip("polars")
    frame, target = shop()
    ours, theirs = (
        op.Log.from_frame(frame, n_arms=NAMES),
        pl.DataFrame(frame.to_dict("list")),
    )
    log = op.Log.from_frame(theirs, n_arms=NAMES)
    wanted = op.ips(ours, target)
    assert op.ips(log, pl.DataFrame(target[NAMES[::-1]].to_dict("list"))) == wanted
    assert op.ips(log, pl.from_numpy(target.to_numpy())) == wanted
    assert (
        op.Log(theirs["arm"], theirs["reward"], theirs["propensity"], 1, NAMES).n_arms
        == 3
    )
    swapped = pl.DataFrame(VISITORS[NAMES[::-1]].to_dict("list"))
    contexts = (Context(list(range(20)), table) for table in (VISITORS, swapped))
    ours, theirs = (taught().scores(context).tolist() for context in contexts)
    assert ours == theirs
    with pytest.raises(ValueError, match="got nan in column 'b', row 1"):
        as_array("features", pl.DataFrame({"a": [1, 2], "b": [1, None]}))
    assert as_array("features", pl.DataFrame({"a": [True], "b": [0.5]})).tolist() == [
        [1, 0.5]
    ]
