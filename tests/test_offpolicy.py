import itertools
import json
import re
from pathlib import Path

import numpy as np
import pytest
from scipy import stats
from sklearn.linear_model import Ridge

from zoolib import (
    Context,
    FeatureEngineer,
    LinUCBAgent,
    ZooplusSimulator,
    mean_interval,
    true_ctr_matrix,
)
from zoolib import offpolicy as op
from zoolib.agents import policies

NAN, INF = float("nan"), float("inf")
COLUMNS = {
    "arm": [0, 2, 1, 1],
    "reward": [1.0, 0.0, 0.5, 1.0],
    "propensity": [0.5, 0.25, 1.0, 0.1],
    "version": [3, 3, 4, 3],
    "n_arms": 3,
}
UNIFORM = np.full((4, 3), 1 / 3)


def log_with(**columns):
    return op.Log(**(COLUMNS | columns))


# The log


@pytest.mark.parametrize(
    ("name", "column", "error", "said"),
    [
        ("propensity", [0.5, 0, 1, -1], ValueError, r"in \(0, 1\]: got 0.0 in row 1"),
        ("propensity", [0.5, 0.1, -0.2, 0], ValueError, "lie in .* got -0.2 in row 2"),
        ("propensity", [0.5, 0.1, 1, 1.001], ValueError, "lie in .* 1.001 in row 3"),
        ("propensity", [NAN, 0.1, 1, 2], ValueError, "lie in .* got nan in row 0"),
        ("propensity", [0.5, 0.1, 1], ValueError, r"shape \(4,\): got \(3,\)"),
        ("propensity", 0.5, ValueError, r"have shape \(4,\): got \(\)"),
        ("propensity", [1j] * 4, TypeError, "real numbers: got dtype complex"),
        ("reward", [0, 1, NAN, INF], ValueError, "be finite.*got nan"),
        ("reward", [0, -INF, 1, 1], ValueError, "be finite.*got -inf"),
        ("reward", [[0, 1, 1, 1]], ValueError, r"have shape \(4,\): got \(1, 4\)"),
        ("reward", list("abcd"), TypeError, "hold real numbers: got dtype <U1"),
        ("arm", [0, 1, 3, -1], ValueError, "lie in 0 … 2: got 3"),
        ("arm", [0, -1, 1, 1], ValueError, "lie in 0 … 2: got -1"),
        ("arm", [[0, 1], [1, 1]], ValueError, r"shape \(n,\), n >= 2: got \(2, 2\)"),
        ("arm", [0], ValueError, r"have shape \(n,\), n >= 2: got \(1,\)"),
        ("arm", [], ValueError, r"have shape \(n,\), n >= 2: got \(0,\)"),
        ("arm", [0.0, 1.0, 1.0, 2.0], TypeError, "whole numbers: got dtype float64"),
        ("arm", [True, False, True, True], TypeError, "whole numbers: got dtype bool"),
        ("version", [3, 3, 3], ValueError, r"have shape \(4,\): got \(3,\)"),
        ("version", [3, 4, None, 5], TypeError, "be a .* name: got None in row 2"),
        ("version", ["a", "b", None, "c"], TypeError, "be .* got None in row 2"),
        ("version", [1, False, 1, 1], TypeError, "be .* got False in row 1"),
        ("version", np.array([3, 3, 4.5, 3], object), TypeError, "4.5 in row 2"),
        ("version", 1.5, TypeError, "be a whole number or a name: got 1.5 in row 0"),
        ("n_arms", 0, ValueError, "be at least 1: got 0"),
        ("n_arms", 3.0, TypeError, "be a whole number"),
    ],
)
def test_a_log_refuses_what_cannot_have_been_logged(name, column, error, said):
    with pytest.raises(error, match=f"^{name} must .*{said}"):
        log_with(**{name: column})


def test_a_log_keeps_copies_that_nobody_can_change():
    given = {
        name: np.array(column) if name != "n_arms" else column
        for name, column in COLUMNS.items()
    }
    log = op.Log(**given)
    for name in ("arm", "reward", "propensity", "version"):
        given[name][:] = 0
        assert np.array_equal(getattr(log, name), COLUMNS[name])
        with pytest.raises(ValueError, match="read-only"):
            getattr(log, name)[0] = 1
        with pytest.raises(AttributeError):
            setattr(log, name, given[name])
    assert (len(log), log.n_arms) == (4, 3)


def test_a_log_takes_extremes_that_are_allowed():
    log = log_with(propensity=[1e-300, 1, 1, 1], reward=[True, False, True, True])
    assert log.reward.dtype == np.float64
    assert log.version.dtype.kind == "i"
    assert log_with(arm=np.uint8([0, 1, 2, 2])).arm.dtype == np.int64
    assert list(log_with(version="v7").version) == ["v7"] * 4
    for versions in (list("abca"), [3, 1, 3, 3]):  # as a table may hold them
        log = log_with(version=np.array(versions, object))
        assert log.version.tolist() == versions
        assert log.version.dtype.kind in "Ui"


# What else is refused


ESTIMATORS = {
    "ips": op.ips,
    "snips": op.snips,
    "weight": op.mean_weight,
    "size": op.effective_sample_size,
    "weights": op.importance_weights,
    "lead": op.lead,
    "lead over another": lambda log, target: op.lead(log, UNIFORM, target),
    "doubly robust": lambda log, target: op.doubly_robust(log, target, UNIFORM),
    "direct": lambda _, target: op.direct_method(target, np.zeros(np.shape(target))),
}


@pytest.mark.parametrize("name", ESTIMATORS)
@pytest.mark.parametrize(
    ("target", "error", "said"),
    [
        (
            UNIFORM * [[1], [1], [0.9], [1]],
            ValueError,
            r"sum to 1 .* 0\.[89]\d* in row 2",
        ),
        (UNIFORM * [[1], [1.000_003], [1], [1]], ValueError, "sum to 1 .* in row 1"),
        ([[1, 0, 0]] * 3 + [[1.5, -0.5, 0]], ValueError, "more: got -0.5 in row 3"),
        ([[1, 0, 0]] * 3 + [[NAN, 1, 0]], ValueError, "0 or more: got nan in row 3"),
        (UNIFORM + 0j, TypeError, "real numbers: got dtype complex128"),
    ],
    ids=["too little", "too much", "negative", "NaN", "complex"],
)
def test_targets_must_be_policies(name, target, error, said):
    estimator = ESTIMATORS[name]
    with pytest.raises(error, match=f"target must .*{said}"):
        estimator(log_with(), target)
    estimator(log_with(), np.float32(UNIFORM))


@pytest.mark.parametrize("target", [np.full((4, 2), 0.5), UNIFORM[:3], UNIFORM[0]])
def test_targets_must_have_the_logs_shape(target):
    said = re.escape(f"target must have shape (4, 3): got {target.shape}")
    for estimator in (op.ips, op.snips, op.mean_weight, op.effective_sample_size):
        with pytest.raises(ValueError, match=said):
            estimator(log_with(), target)
    with pytest.raises(ValueError, match=said):
        op.doubly_robust(log_with(), target, np.zeros(target.shape))


@pytest.mark.parametrize(
    ("predicted", "said"),
    [
        (UNIFORM[:3], r"predicted must have shape \(4, 3\): got \(3, 3\)"),
        (UNIFORM * [[1], [NAN], [1], [1]], "predicted must be finite.*got nan"),
        (UNIFORM * [[1], [1], [-INF], [1]], "predicted must be finite.*got -inf"),
    ],
)
def test_predictions_are_checked(predicted, said):
    with pytest.raises(ValueError, match=said):
        op.direct_method(UNIFORM, predicted)
    with pytest.raises(ValueError, match=said):
        op.doubly_robust(log_with(), UNIFORM, predicted)


def test_predictions_and_targets_have_two_axes():
    with pytest.raises(
        ValueError, match=r"target must have shape \(n, K\): got \(3,\)"
    ):
        op.direct_method(UNIFORM[0], UNIFORM[0])


@pytest.mark.parametrize("clip", [0, -1, NAN])
def test_a_clip_is_above_zero(clip):
    with pytest.raises(ValueError, match=f"clip must be above 0: got {clip}"):
        op.ips(log_with(), UNIFORM, clip=clip)


def test_snips_needs_a_row_with_an_arm_that_the_target_shows():
    log = log_with(arm=[0, 1, 1, 0])
    never = np.eye(3)[[2, 2, 2, 2]]
    with pytest.raises(ValueError, match="arm that was logged: got 4 weights of 0"):
        op.snips(log, never)
    assert op.effective_sample_size(log, never) == 0
    assert op.mean_weight(log, never).high == 0


# Other people's estimators


def recorded():
    path = Path(__file__).parent / "data/offpolicy_obp.json"
    data = json.loads(path.read_text())
    log = op.Log(data["arm"], data["reward"], data["propensity"], 0, n_arms=5)
    return data, log, np.array(data["target"]), np.array(data["predicted"])


def test_estimates_are_those_of_the_open_bandit_pipeline():
    data, log, target, predicted = recorded()
    ours = {
        "ips": op.ips(log, target),
        "clipped_ips": op.ips(log, target, clip=data["clip"]),
        "snips": op.snips(log, target),
        "direct_method": op.direct_method(target, predicted),
        "doubly_robust": op.doubly_robust(log, target, predicted),
    }
    assert len(log) == 200
    assert ours.keys() == data["values"].keys()
    for name, value in data["values"].items():
        assert ours[name].mean == pytest.approx(value, rel=1e-9), name
    assert len(set(data["values"].values())) == 5


def test_estimates_and_interval_are_those_of_vw_estimators():
    bandits = pytest.importorskip("estimators.bandits", reason="vw-estimators")
    assert bandits
    from estimators.bandits import gaussian, ips, snips

    _, log, target, _ = recorded()
    theirs = ips.Estimator(), snips.Estimator(), gaussian.Interval()
    pi = target[np.arange(len(log)), log.arm]
    for p_log, r, p_pred in zip(log.propensity, log.reward, pi, strict=True):
        for estimator in theirs:
            estimator.add_example(p_log, r, p_pred)
    ours = op.ips(log, target)
    assert ours.mean == pytest.approx(theirs[0].get(), rel=1e-9)
    assert op.snips(log, target).mean == pytest.approx(theirs[1].get(), rel=1e-9)
    low, high = theirs[2].get(0.05)  # normal where ours is Student's
    wider = stats.t.ppf(0.975, len(log) - 1) / stats.norm.ppf(0.975)
    assert ours.high - ours.low == pytest.approx(wider * (high - low), rel=1e-9)


# The formulas


def rows_of(log, target, predicted):
    for i in range(len(log)):
        rho = target[i][log.arm[i]] / log.propensity[i]
        promised = sum(target[i][a] * predicted[i][a] for a in range(log.n_arms))
        yield rho, log.reward[i], promised, predicted[i][log.arm[i]]


@pytest.fixture
def plain(monkeypatch):
    """Intervals as they are for logs with enough rewards."""
    monkeypatch.setattr("zoolib.offpolicy.visits.LEAST_REWARDS", 0)


def test_intervals_are_students_for_the_mean_of_the_terms(plain):
    _, log, target, predicted = recorded()
    rows = list(rows_of(log, target, predicted))
    for estimate, terms in (
        (op.mean_weight(log, target), [rho for rho, *_ in rows]),
        (op.ips(log, target), [rho * r for rho, r, *_ in rows]),
        (op.ips(log, target, clip=2), [min(rho, 2) * r for rho, r, *_ in rows]),
        (op.lead(log, target), [(rho - 1) * r for rho, r, *_ in rows]),
        (
            op.lead(log, target, np.full(target.shape, 0.2)),
            [
                (rho - 0.2 / mu) * r
                for mu, (rho, r, *_) in zip(log.propensity, rows, strict=True)
            ],
        ),
        (op.direct_method(target, predicted), [promised for *_, promised, _ in rows]),
        (
            op.doubly_robust(log, target, predicted),
            [promised + rho * (r - p) for rho, r, promised, p in rows],
        ),
    ):
        reference = stats.ttest_1samp(terms, 0).confidence_interval(0.95)
        assert (estimate.low, estimate.high) == pytest.approx(
            (reference.low, reference.high), rel=1e-12
        )
        assert estimate.mean == pytest.approx(np.mean(terms), rel=1e-12)
        assert (estimate.n, estimate.level) == (200, 0.95)


def test_the_interval_of_snips_is_the_delta_methods(plain):
    _, log, target, predicted = recorded()
    rho, r = np.array([row[:2] for row in rows_of(log, target, predicted)]).T
    # Of a ratio y/z of means the gradient is (1/z, -y/z²); the means' covariance is that of rows by n.
    y, z = (rho * r).mean(), rho.mean()
    gradient = np.array([1 / z, -y / z**2])
    variance = gradient @ np.cov(rho * r, rho) @ gradient / len(log)
    half = stats.t.ppf(0.975, len(log) - 1) * np.sqrt(variance)
    estimate = op.snips(log, target)
    assert estimate.mean == pytest.approx(y / z, rel=1e-12)
    assert estimate.high - estimate.mean == pytest.approx(half, rel=1e-9)
    assert estimate.mean - estimate.low == pytest.approx(half, rel=1e-9)
    drawn = np.random.default_rng(0).integers(200, size=(20_000, 200))
    ratios = (rho * r)[drawn].sum(axis=1) / rho[drawn].sum(axis=1)
    assert ratios.std() == pytest.approx(np.sqrt(variance), rel=0.05)


def test_snips_stays_among_the_rewards_and_ignores_a_factor_of_the_propensities():
    _, log, target, _ = recorded()
    halved = op.Log(log.arm, log.reward, log.propensity / 2, 0, 5)
    ours, same = op.snips(log, target), op.snips(halved, target)
    assert (same.mean, same.low, same.high) == pytest.approx(
        (ours.mean, ours.low, ours.high)
    )
    assert op.ips(halved, target).mean == pytest.approx(2 * op.ips(log, target).mean)
    all_clicked = op.Log(log.arm, np.ones(200), log.propensity, 0, 5)
    alike = op.snips(all_clicked, target)
    assert alike.mean == pytest.approx(1)


def test_the_policy_that_logged_is_worth_what_was_earned():
    rng = np.random.default_rng(5)
    policy = rng.dirichlet(np.ones(4), size=300)
    arm, propensity = policies.draw(policy, rng)
    log = op.Log(arm, rng.random(300), propensity, 0, 4)
    for estimate in (
        op.ips(log, policy),
        op.snips(log, policy),
        op.ips(log, policy, 1),
    ):
        assert estimate.mean == pytest.approx(log.reward.mean(), rel=1e-12)
    assert op.effective_sample_size(log, policy) == pytest.approx(300)
    assert op.mean_weight(log, policy).mean == pytest.approx(1)


def test_the_effective_sample_size_is_kishs():
    log = op.Log([0, 0, 1, 1], [1, 0, 1, 0], [0.5, 0.5, 0.25, 0.25], 0, 2)
    target = np.array([[1, 0], [0.5, 0.5], [0, 1], [1, 0]])
    # The weights are 2, 1, 4, 0.
    assert np.array_equal(op.importance_weights(log, target), [2, 1, 4, 0])
    assert op.effective_sample_size(log, target) == pytest.approx(49 / 21)


def test_tiny_propensities_give_right_values_or_are_named():
    halves = np.full((4, 2), 0.5)
    log = op.Log([0, 1, 0, 1], [1, 1, 0, 0], [0.8, 1e-200, 0.8, 5e-201], 1, 2)
    assert op.ips(log, halves).mean == pytest.approx(0.5e200 / 4)
    assert op.snips(log, halves).mean == pytest.approx(1 / 3)
    assert op.effective_sample_size(log, halves) == pytest.approx(9 / 5)
    assert np.isfinite(op.mean_weight(log, halves).high)
    said = "propensity must be large enough for a finite weight: got 5e-324 in row 1"
    with pytest.raises(ValueError, match=said):
        op.snips(op.Log([0, 1], [1, 0], [1, 5e-324], 1, 2), halves[:2])
    with pytest.raises(ValueError, match=r"a finite weight: got 1e-305 in row 1"):
        op.ips(op.Log([0, 1], [1, 1e9], [1, 1e-305], 1, 2), halves[:2])


def rare_log(n, rate, seed, floor=0.3):
    """A log of n visits, a target of few large weights, and what this would earn."""
    rng = np.random.default_rng(seed)
    agree = rng.random(n) < 0.5
    chance = np.where(agree, 1 - floor + floor / 5, floor / 5)
    shown = rng.random(n) < chance
    reward = rng.random(n) < np.where(shown, rate, rate / 2)
    log = op.Log(1 - shown, reward, np.where(shown, chance, 1 - chance), 1, 2)
    return log, np.tile([1.0, 0.0], (n, 1))


def test_an_estimate_that_rests_on_nothing_says_so():
    log, target = rare_log(300, 0.5, seed=0)
    for reward in (0, 1):
        alike = op.Log(log.arm, np.full(300, reward), log.propensity, 1, 2)
        for estimate in (op.ips, op.snips, op.lead):
            found = estimate(alike, target)
            assert (found.low, found.high) == (-INF, INF)
            assert f"(no interval: all rewards are {reward})" in f"{found:.2f}"
    never = op.Log(np.ones(4, int), [0, 1, 0, 1], np.full(4, 0.5), 1, 2)
    assert op.ips(never, target[:4]).note == "no interval: all weights are 0"
    alone = op.Log([1] * 50 + [0], [0] * 50 + [1], np.full(51, 0.5), 1, 2)
    found = op.snips(alone, target[:51])
    assert found.mean == 1
    assert found.low < 0.5
    assert found.note == "widened: 0.0 effective rewards"


@pytest.mark.parametrize("estimate", [op.ips, op.snips])
@pytest.mark.parametrize(
    ("n", "rate"), [(200, 0.5), (600, 0.03), (5_000, 0.03), (600, 0.01), (5_000, 0.01)]
)
def test_intervals_cover_with_few_rewards_too(estimate, n, rate):
    hits, noted = 0, 0
    for seed in range(200):
        log, target = rare_log(n, rate, seed=[n, seed])
        found = estimate(log, target)
        hits += found.low <= rate <= found.high
        noted += bool(found.note)
    assert hits > 183  # of 200; 190 expected, by chance fewer than 184 in 2 percent
    assert noted > 150


def test_one_more_row_is_what_widens():
    log, target = rare_log(600, 0.03, seed=1)
    rho, r = op.importance_weights(log, target), log.reward
    more = mean_interval(np.append(rho * r, rho.max()))
    found = op.ips(log, target)
    assert found.high == pytest.approx(more.high)
    assert found.mean == pytest.approx((rho * r).mean())
    rewards = (rho * r).sum() ** 2 / ((rho * r) @ (rho * r))
    assert found.note == f"widened: {rewards:.1f} effective rewards"


def test_a_perfect_model_leaves_nothing_to_correct():
    _, log, target, predicted = recorded()
    knows = predicted.copy()
    knows[np.arange(200), log.arm] = log.reward
    assert op.doubly_robust(log, target, knows) == op.direct_method(target, knows)
    nothing = np.zeros_like(predicted)
    assert op.doubly_robust(log, target, nothing) == op.ips(log, target)


# All logs there can be

TINY_LOGGING = np.array([[0.7, 0.3], [0.2, 0.8]])  # by context and arm
TINY_CLICKS = np.array([[0.9, 0.4], [0.25, 0.6]])
TINY_CONTEXTS = np.array([0.6, 0.4])
TINY_TARGET = np.array([[0.1, 0.9], [0.5, 0.5]])


def expectation(estimator, logged=TINY_LOGGING, n=2):
    """Expectation of an estimator over all logs of n rows: each log times its probability."""
    total = 0.0
    rows = list(itertools.product(range(2), range(2), range(2)))  # context, arm, reward
    for log in itertools.product(rows, repeat=n):
        x, a, r = map(list, zip(*log, strict=True))
        clicks = np.where(r, TINY_CLICKS[x, a], 1 - TINY_CLICKS[x, a])
        probability = np.prod(TINY_CONTEXTS[x] * TINY_LOGGING[x, a] * clicks)
        total += probability * estimator(op.Log(a, r, logged[x, a], 0, 2), x).mean
    return total


def tiny_truth():
    return TINY_CONTEXTS @ (TINY_TARGET * TINY_CLICKS).sum(axis=1)


def test_ips_is_unbiased_exactly():
    mean = expectation(lambda log, x: op.ips(log, TINY_TARGET[x]))
    assert mean == pytest.approx(tiny_truth(), rel=1e-12)
    one = expectation(lambda log, x: op.mean_weight(log, TINY_TARGET[x]))
    assert one == pytest.approx(1, rel=1e-12)


def test_clipped_ips_is_too_low_by_what_was_cut():
    mean = expectation(lambda log, x: op.ips(log, TINY_TARGET[x], clip=2))
    weight = np.minimum(TINY_TARGET / TINY_LOGGING, 2)
    kept = TINY_CONTEXTS @ (TINY_LOGGING * weight * TINY_CLICKS).sum(axis=1)
    assert mean == pytest.approx(kept, rel=1e-12)
    assert mean < tiny_truth() - 0.05


def test_doubly_robust_is_unbiased_if_either_half_is_right():
    wrong_model = np.array([[0.2, -3.0], [7.0, 0.1]])
    wrong_log = np.array([[0.5, 0.5], [0.9, 0.1]])

    def with_model(model):
        return lambda log, x: op.doubly_robust(log, TINY_TARGET[x], model[x])

    truth = pytest.approx(tiny_truth(), rel=1e-12)
    assert expectation(with_model(wrong_model)) == truth
    assert expectation(with_model(TINY_CLICKS), wrong_log) == truth
    assert abs(expectation(with_model(wrong_model), wrong_log) - tiny_truth()) > 0.05
    wrong_ips = expectation(lambda log, x: op.ips(log, TINY_TARGET[x]), wrong_log)
    assert abs(wrong_ips - tiny_truth()) > 0.05


def test_snips_is_biased_and_the_less_the_more_rows():
    bias = [
        expectation(lambda log, x: op.snips(log, TINY_TARGET[x]), n=n) - tiny_truth()
        for n in (2, 3)
    ]
    assert abs(bias[0]) > abs(bias[1]) > 0.01


# The outcome model


def rows_with_features(n=41, n_arms=3, d=4):
    rng = np.random.default_rng(8)
    log = op.Log(
        rng.integers(n_arms, size=n), rng.random(n), np.full(n, 1 / 3), 0, n_arms
    )
    return log, rng.normal(size=(n, n_arms, d))


@pytest.mark.parametrize("n", [3, 41])
def test_cross_fitting_is_ridge_regression_fold_by_fold(n):
    log, features = rows_with_features(n)
    predicted = op.cross_fit(log, features)
    for i in range(len(log)):
        others = [j for j in range(len(log)) if (j - i) % 5]
        shown = np.array([features[j, log.arm[j]] for j in others])
        model = Ridge(1.0, fit_intercept=False).fit(shown, log.reward[others])
        assert predicted[i] == pytest.approx(model.predict(features[i]), abs=1e-10)


def test_no_row_is_predicted_by_a_model_that_saw_its_reward():
    log, features = rows_with_features()
    before = op.cross_fit(log, features)
    for i in (0, 7, 40):
        reward = log.reward.copy()
        reward[i] = 1e3
        after = op.cross_fit(op.Log(log.arm, reward, log.propensity, 0, 3), features)
        same_fold = np.arange(len(log)) % 5 == i % 5
        assert np.array_equal(after[same_fold], before[same_fold])
        assert not np.isclose(after[~same_fold], before[~same_fold]).any()


@pytest.mark.parametrize("shape", [(41, 2, 4), (41, 3)])
def test_features_must_have_the_logs_shape(shape):
    log, _ = rows_with_features()
    said = re.escape(f"features must have shape (41, 3, 'd'): got {shape}")
    with pytest.raises(ValueError, match=said):
        op.cross_fit(log, np.ones(shape))


def test_features_that_are_not_finite_are_refused_even_of_arms_not_shown():
    log, features = rows_with_features()
    features[6, (log.arm[6] + 1) % 3, 2] = NAN
    with pytest.raises(ValueError, match=r"features must be finite.*got nan"):
        op.cross_fit(log, features)


# Policies that log honestly


def test_greedy_shares_ties_and_nothing_else():
    scores = [[0.1, 0.5, 0.5 + 1e-12], [0.1, 0.5, 0.5 + 1e-6], [-INF, -2, -INF]]
    assert np.array_equal(
        policies.greedy(scores), [[0, 0.5, 0.5], [0, 0, 1], [0, 1, 0]]
    )
    single = np.float32([[1, 1 + 1e-6, 0]])
    assert np.array_equal(policies.greedy(single), [[0.5, 0.5, 0]])
    assert np.array_equal(policies.greedy([3, 3, 3, 1]), [1 / 3, 1 / 3, 1 / 3, 0])


@pytest.mark.parametrize(
    "scores", [[1, NAN], [INF, 1], [-INF, -INF], [[1, 2], [NAN, 1]]]
)
def test_scores_without_a_finite_best_are_refused(scores):
    with pytest.raises(ValueError, match="scores must have a finite best"):
        policies.greedy(scores)


def test_greedy_breaks_ties_as_agents_do():
    world = ZooplusSimulator(seed=42)
    features = FeatureEngineer(world, interactions=True).transform(3)
    agent = LinUCBAgent(50, 29, alpha=0.1, shared=True)
    context = Context(3, features)
    agent.update(context, 7, 1)
    policy = policies.greedy(agent.scores(context))
    shown = np.bincount([agent.select(context) for _ in range(4000)], minlength=50)
    assert np.array_equal(shown > 0, policy > 0)
    assert (shown > 0).sum() == 10
    assert stats.chisquare(shown[policy > 0]).pvalue > 0.01


def test_the_floor_is_epsilon_by_k():
    policy = policies.with_floor([[1, 0, 0, 0], [0, 0.5, 0.5, 0]], 0.2)
    assert policy == pytest.approx(
        np.array([[0.85, 0.05, 0.05, 0.05], [0.05, 0.45, 0.45, 0.05]])
    )
    assert np.array_equal(policies.with_floor([0.25, 0.75], 0), [0.25, 0.75])
    assert np.array_equal(policies.with_floor([0.25, 0.75], 1), [0.5, 0.5])
    # Of each visit's own offer: two of three arms, and one of three.
    offered = np.array([[True, False, True], [False, True, False]])
    found = policies.with_floor([[1, 0, 0], [0, 1, 0]], 0.2, offered)
    assert found == pytest.approx(np.array([[0.9, 0, 0.1], [0, 1, 0]]))


def test_policies_that_are_none_are_refused_before_any_luck_is_used():
    rng = np.random.default_rng(0)
    state = rng.bit_generator.state
    for use in (lambda p: policies.with_floor(p, 0.1), lambda p: policies.draw(p, rng)):
        with pytest.raises(
            ValueError, match=r"policy must sum to 1 .* got 0.5 in row 1"
        ):
            use([[1, 0], [0.5, 0]])
        with pytest.raises(
            ValueError, match=r"policy must sum to 1 .* got 2.0 in row 0"
        ):
            use([1, 1])
        with pytest.raises(ValueError, match=r"0 or more: got -1.0 in row 0, 1"):
            use([[[1, 0], [2, -1]]])
        for nothing in (1.0, np.ones((0, 2)), np.ones((2, 0))):
            with pytest.raises(
                ValueError, match=r"policy must have shape \(\.\.\., K\)"
            ):
                use(nothing)
    assert rng.bit_generator.state == state
    with pytest.raises(ValueError, match=r"epsilon must lie in \[0, 1\]: got 2"):
        policies.with_floor([1.0], 2)
    with pytest.raises(ValueError, match="offered must leave an arm in every row"):
        policies.with_floor([1.0, 0.0], 0.1, [False, False])
    with pytest.raises(ValueError, match="offered must hold booleans"):
        policies.with_floor([1.0, 0.0], 0.1, [1, 0])


def test_arms_are_drawn_as_often_as_the_policy_says():
    policy = np.array([0.5, 0.0, 0.2, 0.3])
    arm, propensity = policies.draw(
        np.tile(policy, (20_000, 1)), np.random.default_rng(1)
    )
    counts = np.bincount(arm, minlength=4)
    assert counts[1] == 0
    assert stats.chisquare(counts[[0, 2, 3]], 20_000 * policy[[0, 2, 3]]).pvalue > 0.01
    assert np.array_equal(propensity, policy[arm])


class Loaded(np.random.Generator):
    """A generator that throws what it is told."""

    def __init__(self, throw):
        super().__init__(np.random.PCG64(0))
        self.throw = throw

    def random(self, size):
        return np.full(size, self.throw)


def test_arms_of_probability_zero_are_never_drawn():
    # Ten tenths are less than 1 when added up; a throw just below 1 must still name an arm.
    for policy in [[0, 1, 0], [0, 0, 1], [1, 0, 0], [0, *[0.1] * 10, 0, 0]]:
        shown = np.flatnonzero(policy)
        for throw, arm in ((0.0, shown[0]), (np.nextafter(1, 0), shown[-1])):
            assert policies.draw(policy, Loaded(throw)) == (arm, policy[arm])


def test_draw_keeps_leading_axes():
    policy = np.random.default_rng(2).dirichlet(np.ones(3), size=(4, 5))
    arm, propensity = policies.draw(policy, np.random.default_rng(3))
    assert arm.shape == propensity.shape == (4, 5)
    assert propensity[2, 3] == policy[2, 3, arm[2, 3]]
    one, of_one = policies.draw([0.0, 1.0], np.random.default_rng(3))
    assert (int(one), float(of_one)) == (1, 1.0)


def thompson_logs(epsilon, n_draws=10, n_logs=2000, n=2):
    """Logs of Thompson sampling among two arms of which the second seldom wins a draw."""
    rng = np.random.default_rng(6)
    draws = rng.normal([1.0, 0.0], 0.7, size=(n_draws, n_logs * n, 2))
    policy = policies.with_floor(policies.greedy(draws).mean(axis=0), epsilon)
    arm, propensity = policies.draw(policy, rng)
    reward = rng.random(n_logs * n) < np.array([0.3, 0.8])[arm]
    return op.Log(arm, reward, propensity, 0, 2)


def test_thompson_samplings_estimated_propensities_are_exact_with_a_floor():
    second = np.tile([0.0, 1.0], (4000, 1))
    log = thompson_logs(epsilon=0.1)
    estimate, check = op.ips(log, second), op.mean_weight(log, second)
    assert estimate.low < 0.8 < estimate.high
    assert check.low < 1 < check.high


def test_thompson_sampling_without_a_floor_misses_arms_that_win_no_draw():
    second = np.tile([0.0, 1.0], (4000, 1))
    log = thompson_logs(epsilon=0)
    never = stats.norm.sf(1 / (0.7 * np.sqrt(2)))  # it wins a draw this often
    reachable = 1 - (1 - never) ** 10
    check = op.mean_weight(log, second)
    assert check.low < reachable < check.high < 1
    assert op.ips(log, second).high < 0.8


# The pet shop, whose truth is known

N_LOGS, N_BROKEN, N_VISITS, K = 500, 100, 2000, 5


@pytest.fixture(scope="module")
def shop():
    """A shop with one product a category; a log of its best product with a floor; the oracle as target."""
    world = ZooplusSimulator(n_products=K, seed=42)
    ctr = true_ctr_matrix(world)
    best = np.eye(K)[np.full(world.n_users, ctr.mean(axis=0).argmax())]
    target = np.eye(K)[ctr.argmax(axis=1)]
    users = np.arange(world.n_users)
    features = {
        d: FeatureEngineer(world, interactions=d == 29).transform(users)
        for d in (9, 29)
    }
    truth = (target * ctr).sum(axis=1).mean()
    return ctr, best, target, features, truth


def visits(ctr, policy, seed):
    """Who came, and the log of what the policy showed them."""
    rng = np.random.default_rng([seed, 77])
    user = rng.integers(len(ctr), size=N_VISITS)
    arm, propensity = policies.draw(policy[user], rng)
    reward = rng.random(N_VISITS) < ctr[user, arm]
    return user, op.Log(arm, reward, propensity, 1, K)


@pytest.fixture(scope="module")
def estimates(shop):
    """Estimates of the target's value: arrays (500, 3) of mean, low, high; of what breaks (100, 3)."""
    ctr, best, target, features, _ = shop
    logging = policies.with_floor(best, 0.3)
    found = {}
    for seed in range(N_LOGS):
        user, log = visits(ctr, logging, seed)
        pi = target[user]
        additive, exact = (op.cross_fit(log, features[d][user]) for d in (9, 29))
        several = {
            "mean weight": op.mean_weight(log, pi),
            "ips": op.ips(log, pi),
            "snips": op.snips(log, pi),
            "dr, additive": op.doubly_robust(log, pi, additive),
            "dr": op.doubly_robust(log, pi, exact),
        }
        if seed < N_BROKEN:
            # A usual slip: an explored arm is logged with epsilon, not with its share of it.
            slip = np.where(log.propensity > 0.5, 0.7, 0.3)
            wrong = op.Log(log.arm, log.reward, slip, 1, K)
            several |= {
                "dm, additive": op.direct_method(pi, additive),
                "dm": op.direct_method(pi, exact),
                "wrong": op.ips(wrong, pi),
                "wrong weight": op.mean_weight(wrong, pi),
                "wrong dr": op.doubly_robust(wrong, pi, exact),
            }
        for name, estimate in several.items():
            row = (estimate.mean, estimate.low, estimate.high)
            found.setdefault(name, []).append(row)
    return {name: np.array(rows) for name, rows in found.items()}


def coverage(rows, truth):
    return np.mean((rows[:, 1] <= truth) & (truth <= rows[:, 2]))


def bias(rows, truth):
    return mean_interval(rows[:, 0] - truth, level=0.999)


@pytest.mark.no_cover
@pytest.mark.parametrize("name", ["ips", "snips", "dr", "dr, additive"])
def test_intervals_cover_the_simulators_truth_as_often_as_they_say(
    estimates, shop, name
):
    truth = shop[-1]
    assert 0.92 <= coverage(estimates[name], truth) <= 0.98
    off = bias(estimates[name], truth)
    assert off.low < 0 < off.high
    assert 0.92 <= coverage(estimates["mean weight"], 1) <= 0.98


def width(rows):
    return (rows[:, 2] - rows[:, 1]).mean()


def test_a_good_model_makes_doubly_robust_narrower_than_ips(estimates):
    assert width(estimates["dr"]) < 0.8 * width(estimates["ips"])
    assert width(estimates["dr, additive"]) < width(estimates["ips"])
    assert width(estimates["snips"]) < width(estimates["ips"])


def test_a_misspecified_model_misleads_the_direct_method_alone(estimates, shop):
    truth = shop[-1]
    assert bias(estimates["dm, additive"], truth).high < -0.2
    assert coverage(estimates["dm, additive"], truth) == 0
    off = bias(estimates["dr, additive"], truth)
    assert off.low < 0 < off.high


def test_the_direct_methods_interval_knows_nothing_of_its_models_error(estimates, shop):
    assert abs(bias(estimates["dm"], shop[-1]).mean) < 0.02
    assert coverage(estimates["dm"], shop[-1]) < 0.5


def test_wrong_propensities_mislead_ips_and_the_mean_weight_shows_it(estimates, shop):
    truth = shop[-1]
    assert bias(estimates["wrong"], truth).high < -0.1
    assert coverage(estimates["wrong"], truth) < 0.1
    assert coverage(estimates["wrong weight"], 1) < 0.1
    # Doubly robust: the model is right, so the propensities need not be.
    assert abs(bias(estimates["wrong dr"], truth).mean) < 0.02


def test_without_a_floor_a_log_says_nothing_of_what_it_never_showed(shop):
    ctr, best, target, _, truth = shop
    agrees = (best * target).sum(axis=1)
    blind = (best * target * ctr).sum(axis=1).mean()
    for seed in range(10):
        user, log = visits(ctr, best, seed)
        assert (log.propensity == 1).all()
        estimate, check = op.ips(log, target[user]), op.mean_weight(log, target[user])
        assert estimate.high < truth - 0.1
        assert estimate.mean == pytest.approx(blind, abs=0.05)
        assert check.mean == pytest.approx(agrees.mean(), abs=0.06)
        assert check.high < 1


def serve(epsilon, n_worlds, n_visits):
    """LinUCB, which learns as it serves, in many worlds: columns (n_visits, W), propensities by `greedy`."""
    worlds = [ZooplusSimulator(n_products=K, seed=seed) for seed in range(n_worlds)]
    features = FeatureEngineer(worlds, interactions=True)
    ctr = np.stack([true_ctr_matrix(world) for world in worlds])
    agent = LinUCBAgent(K, 29, alpha=0.5, shared=True, n_worlds=n_worlds)
    rng, index = np.random.default_rng(9), np.arange(n_worlds)
    rows = []
    for _ in range(n_visits):
        user = rng.integers(1000, size=n_worlds)
        context = Context(user, features.transform(user))
        policy = policies.with_floor(policies.greedy(agent.scores(context)), epsilon)
        arm, propensity = policies.draw(policy, rng)
        reward = (rng.random(n_worlds) < ctr[index, user, arm]).astype(int)
        agent.update(context, arm, reward)
        rows.append((arm, reward, propensity))
    return ctr, *map(np.array, zip(*rows, strict=True))


def value_of_best_product(epsilon, n_worlds=200, n_visits=1000):
    """IPS for the best single product from logs of a learning agent, less the truth; and mean weights."""
    ctr, arm, reward, propensity = serve(epsilon, n_worlds, n_visits)
    errors, weights, covered = [], [], []
    for w in range(n_worlds):
        target = np.tile(np.eye(K)[ctr[w].mean(axis=0).argmax()], (n_visits, 1))
        log = op.Log(arm[:, w], reward[:, w], propensity[:, w], 1, K)
        truth = ctr[w].mean(axis=0).max()
        estimate = op.ips(log, target)
        errors.append(estimate.mean - truth)
        covered.append(estimate.low <= truth <= estimate.high)
        weights.append(op.mean_weight(log, target).mean)
    return mean_interval(errors), mean_interval(weights), np.mean(covered)


@pytest.mark.no_cover
def test_the_log_of_a_learning_agent_serves_with_a_floor():
    error, weight, covered = value_of_best_product(epsilon=0.3)
    assert error.low < 0 < error.high
    assert weight.low < 1 < weight.high
    assert covered > 0.91


@pytest.mark.no_cover
def test_the_log_of_plain_ucb_does_not_serve():
    error, weight, covered = value_of_best_product(epsilon=0.0)
    assert error.high < -0.05
    assert weight.high < 0.8
    assert covered < 0.2
