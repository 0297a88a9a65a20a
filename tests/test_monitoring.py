import json
from itertools import pairwise

import numpy as np
import pytest
from scipy import stats

from zoolib import (
    SHOCK_1,
    EpsilonGreedyAgent,
    FeatureEngineer,
    LinUCBAgent,
    ZooplusSimulator,
    mean_interval,
    run_experiment,
)
from zoolib.monitoring import (
    Alert,
    Monitor,
    Readings,
    at_least,
    at_most,
    counts,
    fisher_z,
    moments,
    normalised_entropy,
    not_below_usual,
    rates,
    same_mix,
    same_rates,
)

TABLE = ZooplusSimulator().click_table
BEST = TABLE.argmax(axis=1)
FLOOR = 0.1


def visits(seed, n_worlds, n, mix=(0.25,) * 4, floor=FLOOR):
    """The best policy with an exploration floor: persona, arm, category, click, explored."""
    rng = np.random.default_rng(seed)
    persona = np.searchsorted(np.cumsum(mix)[:-1], rng.random((n_worlds, n))).astype(
        int
    )
    explored = rng.random((n_worlds, n)) < floor
    arm = np.where(explored, rng.integers(50, size=(n_worlds, n)), 10 * BEST[persona])
    clicked = rng.random((n_worlds, n)) < TABLE[persona, arm // 10]
    return persona, arm, arm // 10, clicked.astype(int), explored.astype(int)


def by_hand(column, window, start=0):
    """Whole windows of one column: shape (n_windows, window)."""
    n = (len(column) - start) // window
    return column[start : start + n * window].reshape(n, window)


# ---- the monitor ----


def test_windows_do_not_overlap_and_what_is_skipped_counts_nowhere():
    value = np.random.default_rng(0).integers(5, size=1_037)
    settings = {"window": 100, "skip": 130, "false_alarms": 1e-9}
    monitor = Monitor("mix", counts(5), normalised_entropy, **settings)
    readings = monitor.watch(value)
    rows = by_hand(value, 100, 130)
    wanted = [stats.entropy(np.bincount(r, minlength=5)) / np.log(5) for r in rows]
    assert readings.statistic == pytest.approx(wanted)
    assert readings.step.tolist() == list(range(230, 1_031, 100))
    assert monitor.step == 1_037
    assert not readings.alarm.any()


def test_the_first_windows_are_the_reference_and_are_not_judged():
    persona, _, _, clicked, _ = (c[0] for c in visits(1, 1, 700))
    settings = {"window": 100, "skip": 50, "false_alarms": 0.1}
    monitor = Monitor("clicks", rates(4), same_rates, reference=3, **settings)
    readings = monitor.watch(persona, clicked)
    assert readings.step.tolist() == [450, 550, 650]
    old, now = slice(50, 350), slice(450, 550)
    p = []
    for s in range(4):
        table = [
            [(clicked[at][persona[at] == s] == k).sum() for k in (1, 0)]
            for at in (now, old)
        ]
        sides = [stats.fisher_exact(table, a).pvalue for a in ("less", "greater")]
        p.append(2 * min(sides))
    assert readings.statistic[1] == pytest.approx(min(1, 4 * min(p)))
    assert readings.cell[1] == np.argmin(p)


@pytest.mark.parametrize("n_worlds", [None, 3])
def test_it_does_not_matter_how_the_stream_is_cut_nor_that_it_was_saved(n_worlds):
    columns = [c if n_worlds else c[0] for c in visits(2, n_worlds or 1, 2_000)]
    columns[3][..., 1_205:] = 0

    def fresh():
        settings = {"window": 90, "reference": 4, "skip": 33, "false_alarms": 5}
        return Monitor("clicks", rates(4), same_rates, n_worlds=n_worlds, **settings)

    whole, pieces = fresh(), fresh()
    at_once = whole.update(columns[0], columns[3])
    assert at_once
    rng, alerts = np.random.default_rng(0), []
    cuts = np.r_[0, np.sort(rng.integers(2_000, size=60)), 1_500, 1_500, 2_000]
    cuts.sort()
    for start, stop in pairwise(cuts):
        saved = json.dumps(pieces.state())
        pieces = fresh()
        pieces.restore(json.loads(saved))
        alerts += pieces.update(*(columns[i][..., start:stop] for i in (0, 3)))
    assert alerts == at_once
    assert pieces.state() == whole.state()
    assert [a.step for a in alerts] == sorted(a.step for a in alerts)


def test_each_of_many_worlds_is_judged_as_if_it_were_alone():
    persona, _, _, clicked, explored = visits(3, 4, 3_000)
    clicked[2, 2_000:], persona[2, 2_500:] = 1, 0
    prediction = TABLE[persona, BEST[persona]]
    cases = [
        (rates(4), same_rates, (persona, clicked)),
        (counts(4), same_mix, (persona,)),
        (counts(4), at_least(0.25), (persona,)),
        (moments, not_below_usual(fisher_z), (prediction, clicked, explored)),
    ]
    settings, total = {"window": 200, "reference": 5, "false_alarms": 2}, 0
    for tally, statistic, columns in cases:
        together = Monitor("m", tally, statistic, n_worlds=4, **settings)
        alerts, seen = together.update(*columns), 0
        for w in range(4):
            alone = Monitor("m", tally, statistic, **settings)
            for one in alone.update(*(column[w] for column in columns)):
                found = [a for a in alerts if (a.world, a.step) == (w, one.step)]
                assert len(found) == 1
                assert found[0].statistic == pytest.approx(one.statistic, rel=1e-9)
                assert (found[0].cell, one.world) == (one.cell, None)
                seen += 1
        assert seen == len(alerts)
        total += seen
    assert total > 10


def test_alerts_say_what_was_found_and_where():
    segment = np.tile([0, 1], 150)
    clicked = np.tile([1, 0, 0, 1], 75)
    clicked[200:][segment[200:] == 1] = 0
    settings = {"window": 100, "reference": 2, "false_alarms": 1.0}
    monitor = Monitor("reward", rates(2), same_rates, **settings)
    (alert,) = monitor.update(segment, clicked)
    p = 4 * stats.hypergeom(150, 50, 50).cdf(0)
    assert alert == Alert("reward", 300, alert.statistic, 0.01, alert.message, 1)
    assert alert.statistic == pytest.approx(p)
    words = f"reward: p = {p:.2g} is below 0.01 in events 200 to 299"
    assert alert.message == words
    assert type(alert.statistic) is float


def test_a_fault_that_misses_the_first_event_of_a_window_is_reported_after_the_delay():
    def works(now, _):
        return 1 - now[..., 1] / now[..., 0]

    settings = {"window": 40, "false_alarms": 2}
    monitor = Monitor("errors", rates(), works, **settings)
    failed = np.zeros(400, int)
    failed[41:] = 1
    assert monitor.delay == 79
    assert monitor.watch(failed).delay(41) == 79
    assert (
        Monitor("errors", rates(), works, **settings).watch(failed[1:]).delay(40) == 40
    )


def test_delays_count_from_the_fault_to_the_next_alarm():
    alarm = np.array([[True, False, True], [True, False, False]])
    readings = Readings(
        np.array([10, 20, 30]), np.zeros((2, 3)), np.zeros((2, 3)), alarm
    )
    assert readings.delay(10).tolist() == [20, np.inf]
    assert readings.delay(9).tolist() == [1, 1]
    settings = {"window": 5, "false_alarms": 1}
    none = Monitor("m", counts(2), at_least(0), n_worlds=2, **settings)
    assert none.watch(np.zeros((2, 4), int)).delay(0).tolist() == [np.inf, np.inf]
    one = Monitor("m", counts(2), at_least(0), **settings)
    assert one.watch([1]).delay(0) == np.inf


# ---- statistics ----


def sums_of(tally, *columns):
    return tally(*(np.asarray(column) for column in columns))


def test_same_rates_is_fishers_test_doubled_and_silent_without_data():
    rng = np.random.default_rng(4)
    now, reference = (
        rng.integers(1, 30, size=(6, 2)),
        rng.integers(1, 90, size=(3, 6, 2)),
    )
    for sums in (now, reference):
        sums[..., 0] += sums[..., 1]
    now[0], reference[:, 1] = 0, 0
    p = same_rates(now, reference)
    assert p[:2].tolist() == [1, 1]
    for s in range(2, 6):
        table = [[k, n - k] for n, k in (now[s], reference[:, s].sum(axis=0))]
        sides = [stats.fisher_exact(table, a).pvalue for a in ("less", "greater")]
        assert p[s] == pytest.approx(min(1, 2 * min(sides)))


def test_same_mix_is_the_g_test_of_a_contingency_table():
    rng = np.random.default_rng(5)
    value = rng.choice(5, size=900, p=[0.1, 0.2, 0.3, 0.4, 0])
    now, *reference = (sums_of(counts(5), row) for row in by_hand(value, 300))
    table = np.stack([now, sum(reference)])[:, :4, 1]
    wanted = stats.chi2_contingency(table, False, lambda_="log-likelihood").pvalue
    assert same_mix(now, np.stack(reference)) == pytest.approx([wanted])
    one = sums_of(counts(3), np.zeros(9, int))
    assert same_mix(one, one[None]) == pytest.approx([1])


def test_promises_are_tested_by_the_binomial_test():
    sums = sums_of(counts(3), np.repeat([0, 1, 2], [3, 40, 57]))
    for statistic, side in ((at_least, "less"), (at_most, "greater")):
        for share in (0.1, 0.3):
            wanted = [stats.binomtest(k, 100, share, side).pvalue for k in (3, 40, 57)]
            assert statistic(share)(sums, None) == pytest.approx(wanted)


def test_the_usual_range_is_students_limit_for_one_more():
    rng = np.random.default_rng(6)
    value = rng.integers(4, size=(7, 60))
    value[6] //= 2
    sums = counts(4)(value)
    entropy = [
        stats.entropy(np.bincount(row, minlength=4)) / np.log(4) for row in value
    ]
    wanted = stats.ttest_ind(entropy[6:], entropy[:6], alternative="less").pvalue
    p = not_below_usual(normalised_entropy)(sums[6], sums[:6])
    assert p == pytest.approx([wanted])
    rising = not_below_usual(normalised_entropy)(sums[0], sums[1:])
    assert rising[0] > 0.5


def test_what_never_varied_is_an_alarm_only_when_it_falls():
    usual = not_below_usual(lambda now, _: now[..., 1] / now[..., 0])
    sums = np.array([[[10, 5]], [[10, 5]], [[10, 5]]])
    p = [usual(np.array([[10, k]]), sums)[0] for k in (4, 5, 6)]
    assert p == [0, 0.5, 1]


def test_correlation_is_pearsons_and_weights_count_events():
    rng = np.random.default_rng(7)
    x, y = rng.normal(size=(2, 3, 50))
    y += x
    weight = rng.integers(3, size=(3, 50))
    for w in range(3):
        r = np.corrcoef(x[w], y[w])[0, 1]
        assert fisher_z(moments(x, y), None)[w] == pytest.approx(np.arctanh(r))
        many = (np.repeat(column[w], weight[w]) for column in (x, y))
        r = np.corrcoef(*many)[0, 1]
        found = fisher_z(moments(x, y, weight), None)[w]
        assert found == pytest.approx(np.arctanh(r))
    assert np.isfinite(fisher_z(moments(x, x), None)).all()


@pytest.mark.parametrize("value", [0.0, 0.1, 1e6 + 0.1])
def test_a_constant_feature_correlates_with_nothing(value):
    clicked = np.random.default_rng(8).integers(2, size=1_000)
    x = np.full(1_000, value)
    assert fisher_z(moments(x, clicked), None).tolist() == [0]
    assert fisher_z(moments(clicked, x), None).tolist() == [0]
    nothing = moments(x, clicked, np.zeros(1_000))
    assert fisher_z(nothing, None).tolist() == [0]


def test_entropy_of_one_product_a_persona_is_what_the_arithmetic_says():
    sums = sums_of(counts(50), np.repeat([3, 7, 20, 49], 25))
    assert normalised_entropy(sums, None) == pytest.approx([np.log(4) / np.log(50)])
    assert normalised_entropy(sums, None).round(3) == [0.354]
    assert normalised_entropy(sums_of(counts(1), [0, 0]), None) == [0]


# ---- false alarms ----

# tally, statistic, columns, settings. Where p-values are nearly continuous the rate is what is stated;
# counts come in steps, and the rate of exact tests stays below it.
MONITORS = {
    "reward by segment": (
        rates(4),
        same_rates,
        "persona clicked",
        {"window": 500, "reference": 10},
    ),
    "reward by cell": (
        rates(20),
        same_rates,
        "cell clicked",
        {"window": 500, "reference": 10},
    ),
    "mix": (counts(4), same_mix, "persona", {"window": 500, "reference": 10}),
    "entropy": (
        counts(5),
        not_below_usual(normalised_entropy),
        "category",
        {"window": 250, "reference": 10, "skip": 3_000},
    ),
    "coverage": (counts(5), at_least(FLOOR / 5), "category", {"window": 500}),
    "correlation": (
        moments,
        not_below_usual(fisher_z),
        "prediction clicked explored",
        {"window": 1_000, "reference": 8},
    ),
    "exploration": (rates(), at_least(FLOOR), "explored", {"window": 500}),
    "errors": (rates(), at_most(0.01), "failed", {"window": 500}),
}
CONTINUOUS = ("mix", "entropy", "correlation")


def columns_of(persona, arm, category, clicked, explored, seen=None):
    """What the monitors are fed, where the features may have `seen` another persona than came."""
    seen = persona if seen is None else seen
    failed = np.random.default_rng(11).random(persona.shape) < 0.01
    return {
        "persona": persona,
        "arm": arm,
        "cell": 5 * seen + category,
        "category": category,
        "clicked": clicked,
        "explored": explored,
        "failed": failed.astype(int),
        "prediction": TABLE[seen, category],
    }


def watched(name, columns):
    """The monitor of a name, and its readings of the columns."""
    tally, statistic, names, settings = MONITORS[name]
    n_worlds = len(columns["persona"])
    monitor = Monitor(
        name, tally, statistic, false_alarms=0.1, n_worlds=n_worlds, **settings
    )
    return monitor, monitor.watch(*(columns[column] for column in names.split()))


@pytest.fixture(scope="module")
def null():
    return columns_of(*visits(10, 500, 12_000))


@pytest.mark.no_cover
@pytest.mark.parametrize("name", MONITORS)
def test_false_alarms_are_as_rare_as_stated(name, null):
    """500 worlds without a fault; alarms of one world share a reference, so worlds are the samples."""
    monitor, readings = watched(name, null)
    judged = len(readings.step) * monitor.window
    found = mean_interval(readings.alarm.sum(axis=1) / judged * 10_000, level=0.99)
    assert found.low <= 0.1
    if name in CONTINUOUS:
        assert found.high >= 0.1


# ---- faults: in 19 of 20 worlds the alarm comes within the delay that the monitor states ----

FAULT = 6_137


def with_pairs(worlds):
    return FeatureEngineer(worlds, interactions=True)


@pytest.fixture(scope="module")
def played():
    """LinUCB without and a greedy agent with an exploration floor; shock 1 comes at FAULT."""
    common = {"discount": 0.9995, "shared": True, "n_worlds": 20}
    agents = {
        "LinUCB": LinUCBAgent(50, 29, alpha=0.5, **common),
        "floor": EpsilonGreedyAgent(50, 29, epsilon=FLOOR, **common),
    }
    history = run_experiment(
        agents, range(20), FAULT + 1_000, {FAULT: SHOCK_1}, make_features=with_pairs
    )
    catalogue = np.stack(
        [ZooplusSimulator(seed=seed).category_of_product for seed in range(20)]
    )
    n_drawn = 3 * history.n_steps  # the first of three per step decides
    drawn = [np.random.default_rng([seed, 3]).random(n_drawn) for seed in range(20)]
    explored = (np.stack(drawn)[:, ::3] < FLOOR).astype(int)
    runs = {}
    for name, arm, clicked in zip(
        history.agents, history.arm, history.reward, strict=True
    ):
        category = np.take_along_axis(catalogue, arm, axis=1)
        persona = history.persona.astype(int)
        runs[name] = columns_of(persona, arm, category, clicked, explored)
    return runs


@pytest.fixture(scope="module")
def calm():
    return columns_of(*visits(12, 20, 12_000))


def assert_reported(name, columns, fault):
    monitor, readings = watched(name, columns)
    assert (readings.step < fault).any()
    assert (readings.delay(fault) <= monitor.delay).sum() >= 19
    before = readings.alarm[:, readings.step <= fault]
    expected = 0.1 * before.size * monitor.window / 10_000
    assert before.sum() <= stats.poisson.ppf(0.99, expected)


@pytest.mark.no_cover
@pytest.mark.parametrize("agent", ["LinUCB", "floor"])
def test_the_market_shock_is_reported_as_drift_of_rewards(agent, played):
    assert_reported("reward by cell", played[agent], FAULT)


@pytest.mark.parametrize("agent", ["LinUCB", "floor"])
def test_a_collapse_to_one_product_is_reported_by_entropy(agent, played):
    columns = dict(played[agent])
    columns["category"] = columns["category"].copy()
    columns["category"][:, FAULT:] = 1
    assert_reported("entropy", columns, FAULT)


def test_other_visitors_are_reported_as_drift_of_features():
    before, after = visits(13, 20, FAULT), visits(14, 20, 1_000, (0.4, 0.2, 0.2, 0.2))
    both = (np.concatenate(pair, axis=1) for pair in zip(before, after, strict=True))
    assert_reported("mix", columns_of(*both), FAULT)


def test_a_starved_category_is_reported_by_coverage(calm):
    columns = dict(calm)
    starved = columns["category"].copy()
    late = starved[:, FAULT:]
    late[late == 4] = 1
    columns["category"] = starved
    assert_reported("coverage", columns, FAULT)


@pytest.mark.parametrize(
    "bug", ["shuffled features", "constant features", "clicks lost"]
)
def test_broken_features_and_logs_are_reported_by_correlation(bug):
    fault = 10_137
    persona, arm, category, clicked, explored = visits(15, 20, 13_000)
    seen, late = persona.copy(), np.s_[:, fault:]
    if bug == "shuffled features":
        seen[late] = np.random.default_rng(16).permuted(seen[late], axis=1)
    elif bug == "constant features":
        seen[late] = 0
    else:
        clicked[late] = 0
    columns = columns_of(persona, arm, category, clicked, explored, seen)
    if bug == "constant features":
        columns["prediction"][late] = 0.2
    assert_reported("correlation", columns, fault)


def test_errors_and_slow_answers_are_reported(calm):
    columns = dict(calm)
    failed = columns["failed"].copy()
    rng = np.random.default_rng(17)
    failed[:, FAULT:] = rng.random(failed[:, FAULT:].shape) < 0.05
    columns["failed"] = failed
    assert_reported("errors", columns, FAULT)


def test_a_floor_that_is_switched_off_is_reported(played):
    columns = dict(played["floor"])
    columns["explored"] = columns["explored"].copy()
    columns["explored"][:, FAULT:] = 0
    assert_reported("exploration", columns, FAULT)


# ---- bad input ----


@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"window": 0}, ValueError, "window must be at least 1: got 0"),
        ({"window": 2.0}, TypeError, "window must be a whole number"),
        ({"reference": 0}, ValueError, "reference must be at least 1: got 0"),
        ({"skip": -1}, ValueError, "skip must be at least 0: got -1"),
        ({"n_worlds": 0}, ValueError, "n_worlds must be at least 1"),
        ({"false_alarms": None}, TypeError, "false_alarms must be a number"),
        ({"false_alarms": 0}, ValueError, "false_alarms must be positive"),
        ({"false_alarms": np.nan}, ValueError, "false_alarms must be positive"),
        ({"window": 100_000}, ValueError, "false_alarms \\* window / 10,000 must lie"),
    ],
)
def test_settings_are_checked(change, error, words):
    good = {"window": 50, "reference": 2, "false_alarms": 0.1}
    with pytest.raises(error, match=words):
        Monitor("m", rates(), same_rates, **(good | change))


def test_statistics_say_how_many_reference_windows_they_need():
    settings = {"window": 50, "false_alarms": 0.1, "reference": 1}
    with pytest.raises(ValueError, match="reference must be at least 2: got 1"):
        Monitor("m", counts(2), not_below_usual(normalised_entropy), **settings)


@pytest.mark.parametrize(
    ("columns", "error", "words"),
    [
        (([0, 1], [1]), ValueError, r"one shape \(n,\): got \[\(2,\), \(1,\)\]"),
        (([[0, 1]], [[1, 0]]), ValueError, r"one shape \(n,\)"),
        ((0, 1), ValueError, r"one shape \(n,\)"),
        (([0, 4], [1, 0]), ValueError, "segment must lie in 0 … 3: got 4"),
        (([0, -1], [1, 0]), ValueError, "segment must lie in 0 … 3: got -1"),
        (([0.0, 1.0], [1, 0]), TypeError, "segment must hold whole numbers"),
        (([0, 1], [1, 2]), ValueError, "success must be 0 or 1: got 2"),
        (([0, 1], [1, np.nan]), ValueError, "success must be 0 or 1: got nan"),
        (([0, 1], ["a", "b"]), ValueError, "success must be 0 or 1: got"),
    ],
)
def test_columns_are_checked_and_a_refused_batch_changes_nothing(columns, error, words):
    settings = {"window": 3, "reference": 1, "false_alarms": 10}
    monitor = Monitor("m", rates(4), same_rates, **settings)
    monitor.update([0, 1, 2, 3], [1, 0, 1, 0])
    before = monitor.state()
    # The fault comes after the end of a window.
    if np.ndim(columns[0]) == 1 and len(columns[0]) == len(columns[1]):
        columns = (([0] * 4 + columns[0]), ([1] * 4 + columns[1]))
    with pytest.raises(error, match=words):
        monitor.update(*columns)
    assert monitor.state() == before
    assert monitor.update([0, 1], [1, 0]) == []


def test_columns_of_many_worlds_need_their_axis_and_none_is_no_column():
    settings = {"window": 3, "false_alarms": 0.1, "n_worlds": 2}
    monitor = Monitor("m", counts(2), at_least(0.1), **settings)
    for columns in (([0, 1],), (np.zeros((3, 5), int),), ()):
        with pytest.raises(
            ValueError, match=r"columns must all have one shape \(2, n\)"
        ):
            monitor.update(*columns)


@pytest.mark.parametrize(
    ("columns", "words"),
    [
        (([1.0, np.nan], [0, 1]), "x must be finite"),
        (([1.0, 2.0], [0, np.inf]), "y must be finite"),
        (([1.0, 2.0], [0, 1], [1, np.nan]), "weight must be finite"),
        (([1.0, 2.0], [0, 1], [1, -1]), "weight must be 0 or more: got -1"),
        ((["a", "b"], [0, 1]), "x must hold real numbers"),
    ],
)
def test_moments_are_checked(columns, words):
    with pytest.raises((TypeError, ValueError), match=words):
        sums_of(moments, *columns)


def test_promises_and_sizes_are_checked():
    for promise in (at_least, at_most):
        for wrong in (-0.1, 1.1, np.nan):
            with pytest.raises(ValueError, match=r"share must lie in \[0, 1\]"):
                promise(wrong)
        with pytest.raises(TypeError, match="share must be a number"):
            promise([0.5, 0.1])
    for tally in (rates, counts):
        with pytest.raises(ValueError, match="must be at least 1: got 0"):
            tally(0)


@pytest.mark.parametrize(
    ("change", "error"),
    [
        ({"step": 7}, ValueError),
        ({"step": 8.0}, TypeError),
        ({"sums": []}, ValueError),
        ({"sums": [[[0, 1]], [[0, 1], [1, 1]], [[0, 1], [1, 1]]]}, ValueError),
        ({"sums": [[[np.nan, 1], [2, 1]]] * 3}, ValueError),
        ({"sums": [None] * 3}, TypeError),
        ({"begin": 3}, ValueError),
        ({"more": 1}, ValueError),
    ],
)
def test_states_of_other_monitors_are_refused(change, error):
    settings = {"window": 4, "reference": 2, "false_alarms": 10}
    monitor = Monitor("m", rates(2), same_rates, **settings)
    monitor.update([0, 1] * 5, [1, 0] * 5)
    good = monitor.state()
    other = good | ({"step": 12} if change == {"step": 7} else change)
    with pytest.raises(error, match="must"):
        monitor.restore(other)
    with pytest.raises(ValueError, match=r"state must come from Monitor\.state"):
        monitor.restore([1])
    monitor.restore(good | {"begin": 0})  # as files say that were written before
    assert monitor.state() == good
    wide = Monitor("m", rates(2), same_rates, n_worlds=3, **settings)
    with pytest.raises(ValueError, match="same window, reference and worlds"):
        wide.restore(good)
