"""Off-policy estimates from sessions, against plain loops, exact enumeration and true values."""

import itertools

import numpy as np
import pandas as pd
import pytest

from zoolib import mean_interval
from zoolib import offpolicy as op
from zoolib.sessions.mdp import DecisionProcess
from zoolib.sessions.shop import SessionSimulator

NAN = float("nan")
# Two states and two arms; the second state is reached from the first only, so that two steps end it.
TWO_STEPS = DecisionProcess(
    transition=[[[0, 0.6], [0, 0.2]], [[0, 0], [0, 0]]],
    reward=[[0.2, 0.5], [0.9, 0.1]],
    start=[0.75, 0.25],
)
LOGGING = np.array([[0.4, 0.6], [0.3, 0.7]])
TARGET = np.array([[0.9, 0.1], [0.8, 0.2]])


def sessions_of(process, policy):
    """Every session of two steps or fewer with its probability: states, arms, rewards of 0 or 1."""
    for first, arm, reward in itertools.product(range(2), repeat=3):
        chance = process.start[first] * policy[first, arm]
        click = process.reward[first, arm]
        chance *= click if reward else 1 - click
        moves = process.transition[first, arm]
        yield chance * (1 - moves.sum()), [(first, arm, reward)]
        for then, a, r in itertools.product(range(2), repeat=3):
            click = process.reward[then, a]
            after = moves[then] * policy[then, a] * (click if r else 1 - click)
            yield chance * after, [(first, arm, reward), (then, a, r)]


def padded(sessions, propensities, n_arms, **changes):
    """A log of sessions, each a list of (state, arm, reward)."""
    longest = max(map(len, sessions))
    columns = {"state": 0, "arm": -1, "reward": 0.0, "propensity": 0.0}
    arrays = {name: np.full((len(sessions), longest), v) for name, v in columns.items()}
    for i, session in enumerate(sessions):
        for t, (state, arm, reward) in enumerate(session):
            step = state, arm, reward, propensities[state, arm]
            for name, value in zip(columns, step, strict=True):
                arrays[name][i, t] = value
    return op.SessionLog(**arrays | {"n_arms": n_arms} | changes)


def everything():
    """Probabilities of all sessions, and a log with one of each."""
    chances, sessions = zip(
        *((c, s) for c, s in sessions_of(TWO_STEPS, LOGGING) if c > 0), strict=True
    )
    return np.array(chances), padded(sessions, LOGGING, 2)


def terms_of(monkeypatch, estimate, *args, **options):
    """The terms of an estimate, one a session, of which it is the mean."""
    kept = []

    def keep(samples):
        kept.append(samples)
        return mean_interval(samples)

    monkeypatch.setattr("zoolib.offpolicy.sessions.mean_interval", keep)
    estimate(*args, **options)
    return kept[0]


def random_log(seed=0, n=60, longest=5, n_states=4, n_arms=3):
    rng = np.random.default_rng(seed)
    tables = rng.dirichlet(np.ones(n_arms), (2, n_states)) * 0.7 + 0.1
    sessions = [
        [
            (rng.integers(n_states), rng.integers(n_arms), rng.normal())
            for _ in range(1 + i % longest)
        ]
        for i in range(n)
    ]
    return sessions, tables[0], tables[1], padded(sessions, tables[0], n_arms)


# The formulas


@pytest.fixture(autouse=True)
def plain(monkeypatch):
    """Intervals as they are for logs with enough rewards."""
    monkeypatch.setattr("zoolib.offpolicy.visits.LEAST_REWARDS", 0)


@pytest.mark.parametrize("horizon", [1, 2, 4, 9, None])
@pytest.mark.parametrize("discount", [0.0, 0.7, 1.0])
def test_importance_sampling_is_its_formula(horizon, discount):
    sessions, logging, target, log = random_log()
    whole, each, weights = [], [], []
    for session in sessions:
        weight, total, decided, reached = 1.0, 0.0, 0.0, []
        for t, (s, a, r) in enumerate(session[:horizon]):
            weight *= target[s, a] / logging[s, a]
            total += discount**t * r
            decided += discount**t * weight * r
            reached.append(weight)
        whole.append(weight * total)
        each.append(decided)
        weights.append(weight)
    options = {"discount": discount, "horizon": horizon}
    found = op.session_ips(log, target, **options)
    expected = mean_interval(each)
    assert found.mean == pytest.approx(expected.mean)
    assert (found.low, found.n) == (pytest.approx(expected.low), 60)
    found = op.session_ips(log, target, per_decision=False, **options)
    assert found.high == pytest.approx(mean_interval(whole).high)
    reached = op.session_weights(log, target)[:, min(horizon or 5, 5) - 1]
    np.testing.assert_allclose(reached, weights)


def test_weighted_forms_are_ratios_and_their_terms_have_this_mean():
    sessions, _, target, log = random_log()
    weight = op.session_weights(log, target)
    total = [sum(0.9**t * r for t, (*_, r) in enumerate(s)) for s in sessions]
    found = op.session_ips(log, target, per_decision=False, weighted=True, discount=0.9)
    last = weight[:, -1]
    value = last @ total / last.sum()
    assert found.mean == pytest.approx(value)
    terms = value + last * (total - value) / last.mean()
    assert found.low == pytest.approx(mean_interval(terms).low)
    found = op.session_ips(log, target, weighted=True, discount=0.9)
    each = [
        0.9**t * (weight[:, t] @ log.reward[:, t]) / weight[:, t].sum()
        for t in range(5)
    ]
    assert found.mean == pytest.approx(sum(each))


def test_the_delta_method_is_the_jackknife_to_first_order():
    sessions, logging, target, log = random_log(n=400)
    found = op.session_ips(log, target, weighted=True)
    without = [
        op.session_ips(
            padded(sessions[:i] + sessions[i + 1 :], logging, 3), target, weighted=True
        ).mean
        for i in range(0, 400, 4)
    ]
    spread = np.std(without, ddof=1) * 399 / np.sqrt(400)
    assert (found.high - found.low) / 2 == pytest.approx(1.966 * spread, rel=0.2)


def test_doubly_robust_is_the_recursion_of_jiang_and_li():
    sessions, logging, target, log = random_log()
    q = np.random.default_rng(1).normal(size=logging.shape)
    for horizon in (1, 3, 5):
        values = []
        for session in sessions:
            value = 0.0
            for s, a, r in session[:horizon][::-1]:
                ratio = target[s, a] / logging[s, a]
                value = target[s] @ q[s] + ratio * (r + 0.8 * value - q[s, a])
            values.append(value)
        options = {"discount": 0.8, "horizon": horizon}
        found = op.session_doubly_robust(log, target, q, **options)
        assert found.mean == pytest.approx(np.mean(values))
        assert found.high == pytest.approx(mean_interval(values).high)


@pytest.mark.parametrize("weighted", [False, True])
def test_a_model_of_nothing_leaves_importance_sampling(weighted):
    _, _, target, log = random_log()
    q = np.zeros((*log.arm.shape, 3))
    options = {"weighted": weighted, "discount": 0.9}
    robust = op.session_doubly_robust(log, target, q, **options)
    plain = op.session_ips(log, target, **options)
    assert robust.low == pytest.approx(plain.low)
    assert robust.high == pytest.approx(plain.high)


def test_one_step_of_a_session_is_a_visit():
    _, _, target, log = random_log()
    state, arm = log.state[:, 0], log.arm[:, 0]
    visits = op.Log(arm, log.reward[:, 0], log.propensity[:, 0], 1, n_arms=3)
    policy = target[state]
    q = np.random.default_rng(1).normal(size=target.shape)
    for ours, theirs in (
        (op.session_ips(log, target, horizon=1), op.ips(visits, policy)),
        (
            op.session_ips(log, target, weighted=True, horizon=1),
            op.snips(visits, policy),
        ),
        (
            op.session_doubly_robust(log, target, q[log.state], horizon=1),
            op.doubly_robust(visits, policy, q[state]),
        ),
    ):
        assert ours.mean == pytest.approx(theirs.mean)
        assert ours.low == pytest.approx(theirs.low)


def test_without_states_each_step_has_one_of_its_own():
    sessions, logging, target, log = random_log()
    alone = padded(sessions, logging, 3, state=None)
    by_step = np.where(log.played[..., None], target[log.state], 1 / 3).reshape(-1, 3)
    assert op.session_ips(alone, by_step) == op.session_ips(log, target)


# What is unbiased, and exact


@pytest.mark.parametrize("horizon", [1, 2])
def test_all_sessions_of_two_steps_give_the_value(monkeypatch, horizon):
    chance, log = everything()
    assert chance.sum() == pytest.approx(1)
    truth = TWO_STEPS.value(TARGET, 0.9, horizon)
    anything = np.array([[3.0, -1.0], [0.5, 7.0]])
    for estimate, options in (
        (op.session_ips, {}),
        (op.session_ips, {"per_decision": False}),
        (op.session_doubly_robust, {"q": anything[log.state]}),
    ):
        options |= {"discount": 0.9, "horizon": horizon}
        terms = terms_of(monkeypatch, estimate, log, TARGET, **options)
        assert chance @ terms == pytest.approx(truth)


def test_the_true_values_leave_only_the_noise_of_rewards_and_moves(monkeypatch):
    chance, log = everything()
    q = TWO_STEPS.policy_q(TARGET)[log.state]
    robust = terms_of(monkeypatch, op.session_doubly_robust, log, TARGET, q)
    plain = terms_of(monkeypatch, op.session_ips, log, TARGET)
    truth = TWO_STEPS.value(TARGET)
    variance = chance @ (robust - truth) ** 2
    assert variance < 0.8 * (chance @ (plain - truth) ** 2)
    # Without luck in rewards and moves nothing is left but who comes.
    certain = DecisionProcess(
        [[[0, 1], [0, 1]], [[0, 0], [0, 0]]], [[0, 1], [1, 0]], [1, 0]
    )
    log = padded([s for c, s in sessions_of(certain, LOGGING) if c > 0], LOGGING, 2)
    q = certain.policy_q(TARGET)[log.state]
    exact = op.session_doubly_robust(log, TARGET, q)
    assert exact.mean == pytest.approx(certain.value(TARGET))
    assert exact.high - exact.low == pytest.approx(0, abs=1e-12)
    assert op.session_ips(log, TARGET).high - op.session_ips(log, TARGET).low > 0.5


def test_fitted_values_are_those_of_the_process_that_was_seen():
    sessions, _, target, log = random_log(n=300)
    moves, reward, count = np.zeros((4, 3, 4)), np.zeros((4, 3)), np.zeros((4, 3))
    for session in sessions:
        for (s, a, r), after in itertools.zip_longest(session, session[1:]):
            count[s, a] += 1
            reward[s, a] += r
            if after:
                moves[s, a, after[0]] += 1
    start = np.bincount([s[0][0] for s in sessions], minlength=4) / 300
    seen = DecisionProcess(moves / count[..., None], reward / count, start)
    for horizon in (1, 2, 5, 30):  # 30: no logged session was as long
        found = op.fitted_q_evaluation(
            log, target, discount=0.9, horizon=horizon, ridge=1e-9
        )
        assert found.mean == pytest.approx(seen.value(target, 0.9, horizon))


def test_the_interval_of_fitted_values_is_that_of_the_jackknife():
    sessions, logging, target, log = random_log(n=400)
    options = {"horizon": 3, "discount": 0.9, "ridge": 1e-6}
    found = op.fitted_q_evaluation(log, target, **options)
    without = []
    for i in range(0, 400, 2):
        rest = padded(sessions[:i] + sessions[i + 1 :], logging, 3)
        without.append(op.fitted_q_evaluation(rest, target, **options).mean)
    spread = np.std(without, ddof=1) * 399 / np.sqrt(400)
    assert (found.high - found.low) / 2 == pytest.approx(1.966 * spread, rel=0.1)


def test_a_session_does_not_see_its_own_model():
    sessions, logging, target, log = random_log()
    before = op.cross_fit_q(log, target, horizon=4)
    changed = [[(s, a, 100.0) for s, a, _ in sessions[7]]]
    changed = padded([*sessions[:7], *changed, *sessions[8:]], logging, 3)
    after = op.cross_fit_q(changed, target, horizon=4)
    same = np.arange(60) % 5 == 2
    np.testing.assert_array_equal(before[same], after[same])
    # All other folds learnt from it, where a step was still to be counted.
    others = np.argwhere((before != after).any(axis=-1))
    assert set(others[:, 0] % 5) == {0, 1, 3, 4}
    assert not before[:, 4].any()
    assert not before[~log.played].any()


@pytest.mark.parametrize("estimate", ["ips", "robust", "fitted"])
def test_intervals_in_the_shop_cover_its_true_value(estimate):
    shop = SessionSimulator(seed=42)
    process = shop.process()
    best = process.probabilities(process.optimal_q().argmax(axis=-1))
    logging = 0.7 * best + 0.03
    state, product, reward = shop.play(logging, 100 * 300, seed=7)
    arm = np.where(state < 80, product, -1).reshape(100, 300, -1)
    state, reward = (x.reshape(arm.shape) for x in (state % 80, reward))
    truth, covered = process.value(best, horizon=5), 0
    for i in range(100):
        propensity = logging[state[i], arm[i]]
        log = op.SessionLog(arm[i], reward[i], propensity, 10, state[i])
        if estimate == "ips":
            found = op.session_ips(log, best, horizon=5)
        elif estimate == "robust":
            q = op.cross_fit_q(log, best, horizon=5)
            found = op.session_doubly_robust(log, best, q, horizon=5)
        else:
            found = op.fitted_q_evaluation(log, best, horizon=5)
        covered += found.low <= truth <= found.high
    assert 88 <= covered <= 99


# What cannot have been logged


COLUMNS = {
    "arm": [[0, 2, 1], [1, 1, -1], [2, -1, -1]],
    "reward": [[1, 0, 1], [0.5, 0, NAN], [0, NAN, NAN]],
    "propensity": [[0.5, 0.2, 1], [0.1, 0.3, 0], [0.2, NAN, NAN]],
    "n_arms": 3,
    "state": [[0, 1, 1], [1, 0, 9], [0, 9, 9]],
}
TABLE = np.full((2, 3), 1 / 3)


def log_with(**columns):
    return op.SessionLog(**(COLUMNS | columns))


def with_row(name, row, values):
    """A column in which one session is another."""
    return {
        name: [values if at == row else one for at, one in enumerate(COLUMNS[name])]
    }


@pytest.mark.parametrize(
    ("columns", "error", "said"),
    [
        (with_row("propensity", 0, [0.5, 0, 1]), ValueError, "got 0.0 in row 0, 1"),
        (with_row("propensity", 1, [0.1, NAN, 0]), ValueError, "nan in row 1, 1"),
        (with_row("propensity", 1, [0.1, 1.2, 0]), ValueError, "1.2 in row 1, 1"),
        (with_row("reward", 2, [NAN, 0, 0]), ValueError, "got nan in row 2, 0"),
        (with_row("arm", 0, [0, -1, 1]), ValueError, "no step: got -1 in row 0, 1"),
        (with_row("arm", 2, [-1] * 3), ValueError, "no step: got -1 in row 2, 0"),
        ({"arm": [[0, 2, 3]] * 3}, ValueError, "lie in 0 … 2: got 3"),
        ({"arm": [[0.0, 2, 1]] * 3}, TypeError, "hold whole numbers"),
        ({"arm": [[0, 2, 1]]}, ValueError, r"\(n, T\), n >= 2: got \(1, 3\)"),
        ({"arm": [[], []]}, ValueError, r"\(n, T\), n >= 2: got \(2, 0\)"),
        ({"arm": [0, 1]}, ValueError, r"\(n, T\), n >= 2: got \(2,\)"),
        ({"reward": [[1, 0]] * 3}, ValueError, r"have shape \(3, 3\)"),
        ({"state": [[0, 1, -1]] * 3}, ValueError, "lie in 0 .*got -1"),
        ({"n_arms": 0}, ValueError, "be at least 1: got 0"),
    ],
)
def test_a_log_refuses_what_cannot_have_been_logged(columns, error, said):
    (name,) = columns
    with pytest.raises(error, match=f"^{name} must .*{said}"):
        log_with(**columns)


def test_a_log_keeps_copies_that_nobody_can_change():
    arm = np.array(COLUMNS["arm"])
    log = log_with(arm=arm)
    arm[:] = 0
    assert log.arm.tolist() == [[0, 2, 1], [1, 1, 0], [2, 0, 0]]
    assert log.played.sum(axis=1).tolist() == [3, 2, 1]
    assert len(log) == 3
    with pytest.raises(ValueError, match="read-only"):
        log.propensity[0] = 1


@pytest.mark.parametrize(
    ("target", "said"),
    [
        (np.full((2, 3), 0.3), "target must sum to 1 in every row: got 0.8999"),
        ([[1, 0, 0], [1, 1, -1]], "probabilities of 0 or more: got -1.0 in row 1"),
        (np.full((2, 2), 0.5), r"target must have shape \(S, 3\): got \(2, 2\)"),
        (TABLE[:1], "state must be one of 1 in target: got 1 in row 0, 1"),
    ],
)
def test_a_target_that_is_no_policy_is_refused(target, said):
    with pytest.raises(ValueError, match=said):
        op.session_ips(log_with(), target)


def test_other_arguments_are_named_too():
    log = log_with()
    for estimate in (op.session_ips, op.fitted_q_evaluation):
        with pytest.raises(ValueError, match=r"discount must lie in \[0, 1\]: got 2"):
            estimate(log, TABLE, discount=2)
        with pytest.raises(ValueError, match="horizon must be at least 1: got 0"):
            estimate(log, TABLE, horizon=0)
    with pytest.raises(ValueError, match="ridge must be positive"):
        op.fitted_q_evaluation(log, TABLE, ridge=0)
    with pytest.raises(ValueError, match="q must be finite"):
        op.session_doubly_robust(log, TABLE, np.full((3, 3, 3), NAN))
    for q, shape in ((TABLE[:1], "2, 3"), (TABLE[0], "3, 3, 3")):
        with pytest.raises(ValueError, match=rf"q must have shape \({shape}\)"):
            op.session_doubly_robust(log, TABLE, q)
    elsewhere = np.array([[0, 1, 0], [0, 1, 0]])
    with pytest.raises(ValueError, match="only weights of 0 in step 1"):
        op.session_ips(
            log_with(arm=[[1, 0, 0], [0, 1, -1], [2, -1, -1]]), elsewhere, weighted=True
        )


# From tables


FRAME = pd.DataFrame(
    {
        "session": ["ben", "anna", "anna", "ben", "anna"],
        "step": [0, 1, 0, 1, 2],
        "arm": ["leash", "bowl", "leash", "kibble", "leash"],
        "reward": [1, 0, 0, 1, 1],
        "propensity": [0.5, 0.2, 0.25, 0.75, 1.0],
        "state": [0, 1, 1, 2, 0],
    }
)


def test_a_log_comes_from_a_table():
    log = op.SessionLog.from_frame(FRAME)
    assert log.arm.tolist() == [[2, 1, 0], [2, 0, 2]]
    assert log.reward.tolist() == [[1, 1, 0], [0, 0, 1]]
    assert log.propensity.tolist() == [[0.5, 0.75, 1], [0.25, 0.2, 1]]
    assert log.state.tolist() == [[0, 2, 0], [1, 1, 0]]
    assert log.played.tolist() == [[True, True, False], [True] * 3]


def test_a_log_comes_from_a_table_of_polars():
    polars = pytest.importorskip("polars")
    log = op.SessionLog.from_frame(polars.DataFrame(FRAME.to_dict("list")))
    assert log.arm.tolist() == [[2, 1, 0], [2, 0, 2]]
    assert log.state.tolist() == [[0, 2, 0], [1, 1, 0]]


def test_a_table_may_be_shuffled_and_its_columns_small():
    shuffled = FRAME.drop(columns="state").sample(frac=1, random_state=1)
    shuffled = shuffled.astype({"step": "uint8", "reward": "uint8"})
    log = op.SessionLog.from_frame(shuffled, ["mouse", "leash", "kibble", "bowl"])
    assert sorted(log.arm.tolist()) == [[1, 2, 0], [1, 3, 1]]
    assert log.reward.sum() == 3
    assert log.n_arms == 4


@pytest.mark.parametrize(
    ("change", "error", "said"),
    [
        ({"step": [0, 1, 0, 1, 3]}, ValueError, r"step .* got \[0 1 3\] in .* 'anna'"),
        ({"step": [1, 1, 0, 2, 2]}, ValueError, r"step .* got \[1 2\] in .* 'ben'"),
        ({"step": [0, 1, 0, 1, 1]}, ValueError, r"step .* got \[0 1 1\] in .* 'anna'"),
        ({"step": [0, 1, 0, 1, 9]}, ValueError, "step must lie in 0 … 4: got 9"),
        ({"step": [0, 1, 0, 1, 1.5]}, TypeError, "step must hold whole numbers"),
        (
            {"propensity": [0.5, 0, 0.2, 1, 1]},
            ValueError,
            "propensity .* got 0.0 in row 1",
        ),
        ({"propensity": [0.5, NAN, 1, 1, 1]}, ValueError, "must have no gaps"),
        ({"reward": list("yynny")}, TypeError, "reward must hold .*numbers"),
        ({"state": [0.5, 1, 1, 1, 1]}, TypeError, "state must hold whole numbers"),
    ],
)
def test_a_table_with_gaps_or_overlaps_is_refused(change, error, said):
    with pytest.raises(error, match=said):
        op.SessionLog.from_frame(FRAME.assign(**change))


def test_tables_that_lack_something_are_refused():
    with pytest.raises(ValueError, match="frame must have a column 'session'"):
        op.SessionLog.from_frame(FRAME.drop(columns="session"))
    with pytest.raises(ValueError, match="arm must be one of 'leash', 'bowl'"):
        op.SessionLog.from_frame(FRAME, n_arms=["leash", "bowl"])


# Long sessions, and sessions that the log cuts


def test_sessions_of_thousands_of_steps_have_right_values_or_are_named():
    rng = np.random.default_rng(0)
    arm = rng.integers(2, size=(400, 3_000))
    reward = (rng.random(arm.shape) < 0.3 + 0.2 * arm).astype(float)
    log = op.SessionLog(arm, reward, np.full(arm.shape, 0.5), 2, np.zeros_like(arm))
    options = {"weighted": True, "discount": 0.9}
    found = op.session_ips(log, [[0.4, 0.6]], **options)
    assert found.low < 4.2 < found.high < 5
    assert op.session_ips(log, [[0.5, 0.5]], **options).mean == pytest.approx(
        (reward @ 0.9 ** np.arange(3_000)).mean()
    )
    always = op.SessionLog(
        np.zeros((4, 2_000), int), reward[:4, :2_000], np.full((4, 2_000), 0.1), 2
    )
    sure = np.tile([1.0, 0.0], (8_000, 1))
    for estimate in (op.session_ips, op.session_weights):
        with pytest.raises(
            ValueError, match=r"weight must be below exp\(660\).*row 0, 286"
        ):
            estimate(always, sure)
    assert op.session_ips(always, sure, weighted=True).mean == pytest.approx(
        always.reward.sum(axis=1).mean()
    )


def cut_log(n=4_000, longest=5, goes_on=0.8, marked=True):
    """Sessions of five steps on average, each worth 1, of which the log holds the first steps."""
    rng = np.random.default_rng(0)
    length = rng.geometric(1 - goes_on, n)
    shown = np.arange(longest) < length[:, None]
    arm = np.where(shown, rng.integers(2, size=shown.shape), -1)
    log = [arm, shown, np.full(shown.shape, 0.5), 2, np.zeros_like(arm)]
    return op.SessionLog(*log, cut=marked & (length > longest))


def test_sessions_that_the_log_cuts_count_as_going_on():
    half = [[0.5, 0.5]]
    found = op.fitted_q_evaluation(cut_log(), half, horizon=300)
    assert found.low < 5 < found.high
    assert found.high - found.low < 0.4
    short = op.fitted_q_evaluation(cut_log(marked=False), half, horizon=300)
    assert short.high < 3.5
    log = cut_log()
    q = op.cross_fit_q(log, half, horizon=5)
    expected = (1 - 0.8**5) / (1 - 0.8)
    for found in (
        op.session_ips(log, half, horizon=5),
        op.session_doubly_robust(log, half, q, horizon=5),
    ):
        assert found.low < expected < found.high
    with pytest.raises(ValueError, match="horizon must be given for a log that cuts"):
        op.fitted_q_evaluation(log, half)
    with pytest.raises(ValueError, match="horizon must be at most 5, the steps of"):
        op.session_ips(log, half, horizon=6)
    with pytest.raises(ValueError, match="cut must hold booleans of shape"):
        op.SessionLog([[0], [1]], np.ones((2, 1)), np.ones((2, 1)), 2, cut=[1, 0])


def test_a_fit_says_when_the_target_does_what_nobody_did():
    log = op.SessionLog(
        np.zeros((9, 2), int),
        np.arange(18.0).reshape(9, 2),
        np.ones((9, 2)),
        2,
        np.zeros((9, 2), int),
    )
    found = op.fitted_q_evaluation(log, [[0.5, 0.5]])
    assert found.note == "the log lacks 50% of the target's choices"


def test_tables_of_sessions_are_read_by_their_labels():
    log, target = cut_log(marked=False), [[0.3, 0.7]]
    table = pd.DataFrame([[0.7, 0.3]], columns=[1, 0])
    assert op.session_ips(log, table) == op.session_ips(log, target)
    with pytest.raises(ValueError, match="target must have each of the labels"):
        op.session_ips(log, table.set_axis([1, 2], axis=1))
    columns = {"arm": log.arm, "reward": log.reward, "propensity": log.propensity}
    frames = {name: pd.DataFrame(values) for name, values in columns.items()}
    op.SessionLog(**frames, n_arms=2)
    for change in (frames["reward"][::-1], frames["reward"][[1, 0, 2, 3, 4]]):
        with pytest.raises(ValueError, match="reward must have the "):
            op.SessionLog(**frames | {"reward": change}, n_arms=2)


@pytest.mark.parametrize("estimate", [op.session_ips, op.fitted_q_evaluation])
def test_an_estimate_from_few_rewards_says_so(monkeypatch, estimate):
    monkeypatch.setattr("zoolib.offpolicy.visits.LEAST_REWARDS", 27)
    log = cut_log(n=200, marked=False)
    assert estimate(log, [[0.5, 0.5]]).note == ""
    rare = np.zeros(log.arm.shape)
    rare[:2, 0] = 1
    columns = {"arm": log.arm, "propensity": log.propensity, "state": log.state}
    found = estimate(op.SessionLog(**columns, reward=rare, n_arms=2), [[0.5, 0.5]])
    assert found.note.startswith("too short: ")
    found = estimate(op.SessionLog(**columns, reward=0 * rare, n_arms=2), [[0.5, 0.5]])
    assert (found.low, found.note) == (-np.inf, "no interval: all rewards are 0")
