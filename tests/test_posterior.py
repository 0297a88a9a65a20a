import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from zoolib._support.state import from_bytes, to_bytes
from zoolib.models.posterior import (
    LEAST_FADED,
    LEAST_PRIOR,
    REFRESH_EVERY,
    STEEP,
    RidgePosterior,
)

NAN, INF = float("nan"), float("inf")
RIDGE = 2.5


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def state_of(posterior):
    return [posterior.A, posterior.b, posterior.A_inv, posterior.mean, posterior.prior]


def same(before, after):
    return all((x == y).all() for x, y in zip(before, after, strict=True))


def learned(shape=(), d=3, n=40, seed=0):
    posterior = RidgePosterior(d, RIDGE, shape)
    x, reward = normal(seed, n, *shape, d), normal(seed + 1, n, *shape)
    for row, r in zip(x, reward, strict=True):
        posterior.update(row, r)
    return posterior


def assert_solves(posterior, A, b, tolerance=1e-9):
    """Every answer of the posterior is that of A and b, solved from scratch."""
    x = normal(99, *b.shape)
    mean = np.linalg.solve(A, b[..., None])[..., 0]
    width = np.sqrt((x * np.linalg.solve(A, x[..., None])[..., 0]).sum(axis=-1))
    near = {"rtol": tolerance, "atol": tolerance}
    np.testing.assert_allclose(posterior.A, A, **near)
    np.testing.assert_allclose(posterior.b, b, **near)
    identity = np.broadcast_to(np.eye(b.shape[-1]), A.shape)
    np.testing.assert_allclose(posterior.A_inv @ A, identity, **near)
    np.testing.assert_allclose(posterior.mean, mean, **near)
    np.testing.assert_allclose(posterior.width(x), width, **near)
    np.testing.assert_allclose(posterior.predict(x), (x * mean).sum(axis=-1), **near)
    rows = posterior.predict_rows(np.stack((x, -2 * x), axis=-2))
    predictions = (x * mean).sum(axis=-1)[..., None] * [1, -2]
    np.testing.assert_allclose(rows[0], predictions, **near)
    np.testing.assert_allclose(rows[1], width[..., None] * [1, 2], **near)


def everything(rng):
    return ()


def one_of_three(rng):
    return (int(rng.integers(3)),)


def two_of_three(rng):
    return (rng.permutation(3)[:2],)


def a_slice(rng):
    return (slice(0, 3),)


def one_in_a_world(rng):
    return (int(rng.integers(2)), int(rng.integers(3)))


def one_in_each_world(rng):
    return (np.arange(2), rng.integers(3, size=2))


def a_whole_world(rng):
    return (int(rng.integers(2)),)


@pytest.mark.parametrize(
    ("shape", "select"),
    [
        ((), everything),
        ((4,), everything),
        ((4,), one_of_three),
        ((4,), two_of_three),
        ((4,), a_slice),
        ((2, 4), everything),
        ((2, 4), one_in_a_world),
        ((2, 4), one_in_each_world),
        ((2, 4), a_whole_world),
    ],
)
def test_many_updates_equal_one_solve(shape, select):
    rng = np.random.default_rng(3)
    posterior = RidgePosterior(5, RIDGE, shape)
    A = np.zeros((*shape, 5, 5)) + RIDGE * np.eye(5)
    b = np.zeros((*shape, 5))
    for _ in range(REFRESH_EVERY + 200):
        at = select(rng)
        x = rng.normal(size=b[at].shape)
        reward = rng.normal(size=x.shape[:-1])
        posterior.update(x, reward, at)
        A[at] += x[..., :, None] * x[..., None, :]
        b[at] += reward[..., None] * x
    assert_solves(posterior, A, b)
    if select not in (everything, a_whole_world):
        never = posterior.A[..., -1, :, :]
        assert (never == RIDGE * np.eye(5)).all()


@settings(max_examples=60, deadline=None)
@given(
    shape=st.sampled_from([(), (3,), (2, 2)]),
    steps=st.lists(
        st.sampled_from(
            [
                "learn",
                "undo",
                "forget",
                "decay",
                "read",
                "refresh",
                "rebuild",
                "reset",
                "reset some",
            ]
        ),
        max_size=30,
    ),
    seed=st.integers(0, 2**32 - 1),
)
def test_any_order_of_operations_keeps_the_sums(shape, steps, seed):
    rng = np.random.default_rng(seed)
    posterior = RidgePosterior(3, RIDGE, shape)
    A, b, undo = np.zeros((*shape, 3, 3)), np.zeros((*shape, 3)), None

    def add(at, x, reward, weight):
        A[at] += weight * x[..., :, None] * x[..., None, :]
        b[at] += weight * reward[..., None] * x

    for step in steps:
        if step in ("learn", "forget"):
            single = tuple(int(rng.integers(n)) for n in shape)
            some = (rng.permutation(shape[0])[:2],) if shape else ()
            at = ((), single, some)[rng.integers(3)]
            x, discount = rng.normal(size=b[at].shape), 1.0
            if step == "forget":
                discount = rng.choice([0.9, 0.3, 0.02])
            undo = (at, x, rng.normal(size=x.shape[:-1]))
            posterior.update(x, undo[2], at, discount=discount)
            A[at] *= discount
            b[at] *= discount
            add(*undo, 1)
        elif step == "undo" and undo:
            posterior.update(undo[1], undo[2], undo[0], weight=-1.0)
            add(*undo, -1)
            undo = None
        elif step == "decay":
            discount = rng.choice([1.0, 0.9, 0.3])
            posterior.decay(discount)
            A *= discount
            b *= discount
            undo = None
        elif step == "read":
            assert posterior.A.shape == A.shape
        elif step == "refresh":
            posterior._solve((), posterior._A, posterior._b)
        elif step in ("reset", "rebuild"):
            x = rng.normal(size=(*shape, 4 if step == "rebuild" else 0, 3))
            reward = rng.normal(size=x.shape[:-1])
            posterior.rebuild(x, reward) if step == "rebuild" else posterior.reset()
            A[:], b[:] = x.mT @ x, np.vecmat(reward, x)
            assert (posterior.prior == RIDGE).all()
            undo = None
        elif step == "reset some":
            at = (rng.permutation(shape[0])[:2],) if shape else ()
            posterior.reset(at)
            A[at] = b[at] = 0
            assert (posterior.prior[at] == RIDGE).all()
            undo = None
    assert (posterior.prior <= RIDGE).all()
    prior = posterior.prior[..., None, None] * np.eye(3)
    # Forgetting leaves matrices with condition numbers of up to 1e6.
    assert_solves(posterior, A + prior, b, tolerance=1e-7)


@pytest.mark.no_cover
@pytest.mark.parametrize("discount", [0.997, 0.9, 0.02])
@pytest.mark.parametrize("shape", [(), (4,)])
def test_each_posterior_forgets_by_its_own_clock(shape, discount):
    rng = np.random.default_rng(5)
    posterior = RidgePosterior(4, RIDGE, shape)
    rows = [[] for _ in range(4)]
    for step in range(10_100):
        # The third learns rarely, the last never.
        place = 2 if step % 100 == 99 else step % 2
        # Without news in the last direction only the prior keeps A invertible there.
        x, reward = rng.normal(size=4) * [1, 1, 1, 0], rng.normal()
        posterior.update(x, reward, (place,) if shape else (), discount=discount)
        rows[place if shape else 0].append((*x, reward))
    A, b = np.empty((4, 4, 4)), np.empty((4, 4))
    for place, history in enumerate(rows):
        x, reward = np.split(np.array(history).reshape(-1, 5), [4], axis=1)
        weight = discount ** np.arange(len(x))[::-1, None]
        prior = np.broadcast_to(posterior.prior, 4)[place]
        A[place] = (weight * x).T @ x + prior * np.eye(4)
        b[place] = (weight * reward * x).sum(axis=0)
    assert_solves(posterior, A if shape else A[0], b if shape else b[0])
    if shape:
        assert posterior.prior[3] == RIDGE
        assert (posterior.A[3] == RIDGE * np.eye(4)).all()


@pytest.mark.parametrize("way", ["update", "decay"])
@pytest.mark.parametrize("discount", [0.5, 0.97])
def test_the_prior_fades_to_a_thousandth_and_no_further(way, discount):
    posterior = RidgePosterior(2, RIDGE, (2,))
    for n in range(1, 600):
        if way == "update":
            posterior.update([1.0, 0.0], 1.0, (0,), discount=discount)
            assert posterior.prior[1] == RIDGE
        else:
            posterior.decay(discount)
            assert posterior.prior[1] == posterior.prior[0]
        least = max(discount**n, LEAST_PRIOR * LEAST_FADED) * RIDGE
        most = max(discount**n, LEAST_PRIOR) * RIDGE
        assert least * (1 - 1e-9) <= posterior.prior[0] <= most * (1 + 1e-9)
        assert posterior.A[0, 1, 1] == pytest.approx(posterior.prior[0])


@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_decay_leaves_means_and_widens(shape):
    posterior = learned(shape)
    x = normal(4, *shape, 3)
    A, b, A_inv, mean, prior = state_of(posterior)
    width = posterior.width(x)
    for n in range(1, 15):  # to 0.044
        posterior.decay(0.8)
        assert np.allclose(posterior.A, 0.8**n * A, rtol=1e-12)
        assert np.allclose(posterior.b, 0.8**n * b, rtol=1e-12)
        assert np.allclose(posterior.A_inv, A_inv / 0.8**n, rtol=1e-9)
        assert np.allclose(posterior.mean, mean, rtol=1e-9)
        assert np.allclose(posterior.width(x), width * 0.8 ** (-n / 2), rtol=1e-9)
        assert np.allclose(posterior.prior, 0.8**n * prior)


@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_rebuild_equals_one_row_at_a_time(shape):
    x, reward = normal(0, *shape, 30, 3), normal(1, *shape, 30)
    slow, fast = RidgePosterior(3, RIDGE, shape), learned(shape, seed=5)
    fast.decay(0.5)
    for i in range(30):
        slow.update(x[..., i, :], reward[..., i])
    fast.rebuild(x, reward)
    assert_solves(fast, slow.A, slow.b)
    assert (fast.prior == RIDGE).all()
    fast.update(x[..., 0, :], reward[..., 0], weight=-1.0)
    slow.update(x[..., 0, :], reward[..., 0], weight=-1.0)
    assert_solves(fast, slow.A, slow.b)


def reset(posterior):
    posterior.reset()


def rebuild_from_nothing(posterior):
    posterior.rebuild(
        np.empty((*posterior.shape, 0, 3)), np.empty((*posterior.shape, 0))
    )


@pytest.mark.parametrize("forget", [reset, rebuild_from_nothing])
@pytest.mark.parametrize("shape", [(), (2, 3)])
def test_back_to_the_prior(shape, forget):
    posterior, prior = learned(shape), RIDGE * np.eye(3)
    posterior.decay(0.5)
    forget(posterior)
    assert same(state_of(posterior), state_of(RidgePosterior(3, RIDGE, shape)))
    assert (prior == posterior.A).all()
    assert (posterior.A_inv == np.eye(3) / RIDGE).all()
    assert not posterior.b.any()
    assert not posterior.mean.any()


@pytest.mark.parametrize("shape", [(), (2,)])
def test_samples_have_the_posteriors_mean_and_covariance(shape):
    posterior = learned(shape, n=4)
    posterior.decay(0.6)
    n, scale = 20_000, 0.7
    draws = posterior.sample(normal(1, n, *shape, 3), scale)
    assert draws.shape == (n, *shape, 3)
    expected = scale**2 * np.linalg.inv(posterior.A)
    variance = np.diagonal(expected, axis1=-2, axis2=-1)
    off = draws - posterior.mean
    assert (abs(off.mean(axis=0)) < 4 * np.sqrt(variance / n)).all()
    covariance = np.einsum("n...i,n...j->...ij", off, off) / n
    error = expected**2 + variance[..., :, None] * variance[..., None, :]
    assert (abs(covariance - expected) < 4 * np.sqrt(error / n)).all()


@pytest.mark.parametrize(("shape", "at"), [((), ()), ((3,), ()), ((3,), (1,))])
def test_what_is_selected_is_solved_afresh(shape, at):
    posterior = learned(shape)
    posterior._A_inv += 0.5
    posterior._mean[:] = NAN
    spoilt = posterior.A_inv
    posterior._solve(at, posterior._A[at], posterior._b[at])
    A, b = posterior.A[at].astype(float), posterior.b[at].astype(float)
    near = {"rtol": 1e-9, "atol": 1e-9}
    assert np.allclose(posterior.A_inv[at], np.linalg.inv(A), **near)
    assert (posterior.A_inv[at] == posterior.A_inv[at].mT).all()
    solved = np.linalg.solve(A, b[..., None])[..., 0]
    assert np.allclose(posterior.mean[at], solved, **near)
    others = np.ones(shape, bool)
    others[at] = False
    assert (posterior.A_inv[others] == spoilt[others]).all()


def test_rounding_errors_are_repaired_now_and_then():
    posterior = RidgePosterior(3, RIDGE, (2,))
    for n in range(1, REFRESH_EVERY + 1):
        posterior._A_inv[1] = np.eye(3) / RIDGE + 1e-6
        posterior.update(np.zeros((2, 3)), np.zeros(2))
        repaired = (posterior.A_inv == np.eye(3) / RIDGE).all()
        assert repaired == (n == REFRESH_EVERY)


@pytest.mark.parametrize("factor", [0.98, 1.02])
@pytest.mark.parametrize("way", ["in", "out"])
def test_a_row_that_changes_much_is_not_left_to_the_formula(factor, way):
    """Only the posteriors that it taught are solved again."""
    posterior = RidgePosterior(2, 1.0, (3,))
    x = np.array([(factor * STEEP - 1) ** 0.5, 0])  # A's determinant grows from 1
    if way == "out":
        posterior.update(x, 1.0, (1,))
    posterior._A_inv += 1e-9
    posterior.update(x, 1.0, (1,), weight=1.0 if way == "in" else -1.0)
    solved = posterior.A_inv == np.linalg.inv(posterior.A)
    assert solved[1].all() == (factor > 1)
    assert not solved[[0, 2]].any()


def test_widths_of_unscaled_rows_stay_close():
    ridge, rows = 1e-6, 1e3 * normal(0, 999, 8)
    posterior = RidgePosterior(8, ridge)
    for x in rows:
        posterior.update(x, 1.0)
        assert np.isfinite(posterior.width(x))
    A = ridge * np.eye(8) + rows.T @ rows
    exact = np.sqrt(np.vecdot(rows, np.linalg.solve(A, rows.T).T))
    assert np.allclose(posterior.width(rows), exact, rtol=1e-3)


@pytest.mark.parametrize("ridge", [1e-6, 1e-2, 1e6])
def test_ridges_of_any_size_stay_close_before_a_refresh(ridge):
    posterior, rows = RidgePosterior(9, ridge), normal(0, 900, 9)
    for x in rows:
        posterior.update(x, x.sum())
    A = ridge * np.eye(9) + rows.T @ rows
    assert np.allclose(posterior.A_inv @ A, np.eye(9), atol=1e-6)
    mean = np.linalg.solve(A, rows.T @ rows.sum(axis=1))
    assert np.allclose(posterior.mean, mean, rtol=1e-9)


@pytest.mark.parametrize("dtype", [np.float32, np.float16, int, bool])
def test_rows_of_any_type_are_read_in_double_precision(dtype):
    posterior, same_rows = learned(), learned()
    x = (normal(1, 3) > 0).astype(dtype)
    posterior.update(x, np.float32(0.7))
    same_rows.update(x.astype(float), float(np.float32(0.7)))
    assert same(state_of(posterior), state_of(same_rows))
    assert {array.dtype for array in state_of(posterior)[:4]} == {np.dtype(float)}


def test_states_of_a_release_with_types_are_read_or_refused():
    state = learned().state()
    state["settings"]["dtype"] = "float64"
    again = RidgePosterior.from_state(state)
    assert same(state_of(again), state_of(learned()))
    state["learned"]["A"] = state["learned"]["A"].astype(np.float32)
    with pytest.raises(ValueError, match=r"A must have .*float64: got .*float32"):
        RidgePosterior.from_state(state)


def test_many_rows_are_asked_about_at_once():
    posterior = learned()
    x = normal(3, 6, 3)
    prediction, width = posterior.predict(x), posterior.width(x)
    assert prediction.shape == width.shape == posterior.predict(x).shape == (6,)
    assert prediction[4] == pytest.approx(posterior.predict(x[4]))
    assert width[4] == pytest.approx(posterior.width(x[4]))
    assert posterior.predict([1, 0, 0]) == posterior.mean[0]


@pytest.mark.parametrize("n", [0, 1, 5])
@pytest.mark.parametrize("shape", [(), (2,), (2, 3)])
def test_each_posterior_is_asked_about_rows_of_its_own(shape, n):
    posterior = learned(shape)
    posterior.decay(0.5)
    x = normal(3, *shape, n, 3)
    prediction, width = posterior.predict_rows(x)
    assert prediction.shape == width.shape == (*shape, n)
    for i in range(n):
        row = x[..., i, :]
        assert np.allclose(prediction[..., i], posterior.predict(row), rtol=1e-5)
        assert np.allclose(width[..., i], posterior.width(row), rtol=1e-5)


@pytest.mark.parametrize("shape", [(), (2,)])
def test_rows_of_a_rebuild_count_by_their_weights(shape):
    x, reward = normal(0, *shape, 30, 3), normal(1, *shape, 30)
    weight = np.random.default_rng(2).random(30) * 2
    weight[7] = 0
    slow, fast = RidgePosterior(3, RIDGE, shape), learned(shape, seed=5)
    fast.decay(0.5)
    for i in range(30):
        slow.update(x[..., i, :], reward[..., i], weight=weight[i])
    fast.rebuild(x, reward, weight)
    assert_solves(fast, slow.A, slow.b)
    assert (fast.prior == RIDGE).all()
    same_rows = RidgePosterior(3, RIDGE, shape)
    same_rows.rebuild(x, reward, [1] * 30)
    fast.rebuild(x, reward)
    # Rows that are weighed and rows that are not may be summed, and rounded, in another order.
    for ours, theirs in zip(state_of(fast), state_of(same_rows), strict=True):
        np.testing.assert_allclose(ours, theirs, rtol=1e-12)


@pytest.mark.parametrize(
    ("weight", "words"),
    [
        ([1.0, 1.0, 1.0], ["weight", "(4,)", "(3,)"]),
        (1.0, ["weight", "4"]),
        (np.ones((4, 1)), ["weight", "4"]),
        ([1.0, -1e-9, 1.0, 1.0], ["weight", "0 or more", "-1e-09"]),
        ([1.0, NAN, 1.0, 1.0], ["weight", "nan"]),
        ([1.0, 1.0, 1.0, INF], ["weight", "finite", "inf"]),
    ],
)
@pytest.mark.parametrize("shape", [(), (2,)])
def test_weights_of_a_refused_rebuild_change_nothing(shape, weight, words):
    posterior = learned(shape)
    before = state_of(posterior)
    with pytest.raises(ValueError, match="weight") as refusal:
        posterior.rebuild(np.ones((*shape, 4, 3)), np.ones((*shape, 4)), weight)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert same(before, state_of(posterior))


@pytest.mark.parametrize(
    ("shape", "at"),
    [
        ((4,), (2,)),
        ((4,), ([3, 1],)),
        ((4,), (slice(1, 3),)),
        ((2, 3), (1,)),
        ((2, 3), (0, 2)),
        ((2, 3), ([[0], [1]], [[0, 2], [1, 0]])),
    ],
)
def test_some_go_back_to_the_prior_and_the_others_go_on(shape, at):
    posterior, undisturbed = learned(shape), learned(shape)
    for one in (posterior, undisturbed):
        one.decay(0.5)
    posterior.reset(at)
    at = tuple(np.array(i) if isinstance(i, list) else i for i in at)
    fresh = state_of(RidgePosterior(3, RIDGE, shape))
    others = np.ones(shape, bool)
    others[at] = False
    for now, then, prior in zip(
        state_of(posterior), state_of(undisturbed), fresh, strict=True
    ):
        assert (now[at] == prior[at]).all()
        assert (now[others] == then[others]).all()
    # Learning goes on with what is left.
    x, reward = normal(5, *shape, 3), normal(6, *shape)
    A, b = posterior.A, posterior.b
    posterior.update(x, reward)
    row = x[..., :, None] * x[..., None, :]
    assert_solves(posterior, A + row, b + reward[..., None] * x)


@pytest.mark.parametrize("shape", [(), (2,)])
def test_a_sample_is_the_mean_plus_a_root_of_the_covariance_times_normal_numbers(shape):
    posterior = learned(shape)
    posterior.decay(0.6)
    normals = normal(3, *shape, 3)
    sample = posterior.sample(normals, 0.7)
    root = np.linalg.cholesky(np.linalg.inv(posterior.A.astype(float)))
    expected = posterior.mean + 0.7 * (root @ normals[..., None])[..., 0]
    assert np.allclose(sample, expected, rtol=1e-9)


def test_what_was_handed_over_or_out_may_be_changed_afterwards():
    posterior, undisturbed = (RidgePosterior(2, RIDGE, (2,)) for _ in range(2))
    x, reward, at = np.ones((2, 2)), np.array([1.0, 2.0]), np.array([0, 1])
    posterior.update(x, reward, (at,))
    undisturbed.update(np.ones((2, 2)), [1.0, 2.0], ([0, 1],))
    x[:] = reward[:] = at[:] = 0
    assert same(state_of(posterior), state_of(undisturbed))
    for array in state_of(posterior):
        array[:] = 0
    assert same(state_of(posterior), state_of(undisturbed))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"x": [1.0, 2.0]}, ValueError, ["x", "(3,)", "(2,)"]),
        ({"x": [[1.0, 2.0, 3.0]]}, ValueError, ["x", "(3,)", "(1, 3)"]),
        ({"x": 1.0}, ValueError, ["x", "(3,)", "()"]),
        ({"reward": [1.0]}, ValueError, ["reward", "()", "(1,)"]),
        ({"at": ()}, ValueError, ["x", "(2, 3)", "(3,)"]),
        ({"at": ([0, 1],)}, ValueError, ["x", "(2, 3)", "(3,)"]),
        ({"at": (2,)}, IndexError, ["2"]),
        ({"at": (0, 0)}, (IndexError, ValueError), []),
        ({"x": [1.0, NAN, 0.0]}, ValueError, ["x", "finite"]),
        ({"x": [1.0, -INF, 0.0]}, ValueError, ["x", "finite"]),
        ({"x": ["a", "b", "c"]}, TypeError, ["x", "<U1"]),
        ({"x": [1.0, 1e200, 0.0]}, ValueError, ["x", "1e+15", "1e+200"]),
        ({"reward": NAN}, ValueError, ["reward", "finite"]),
        ({"reward": INF}, ValueError, ["reward", "finite"]),
        ({"weight": NAN}, ValueError, ["weight"]),
        ({"weight": INF}, ValueError, ["weight"]),
        ({"discount": 0.0}, ValueError, ["discount", "(0, 1]"]),
        ({"discount": -0.5}, ValueError, ["discount", "-0.5"]),
        ({"discount": 1.001}, ValueError, ["discount", "1.001"]),
        ({"discount": NAN}, ValueError, ["discount", "nan"]),
        ({"discount": "0.9"}, TypeError, ["discount", "0.9"]),
    ],
)
def test_a_refused_update_changes_nothing(arguments, error, words):
    posterior = learned((2,))
    before = state_of(posterior)
    given = {"x": [1.0, 2.0, 3.0], "reward": 1.0, "at": (1,)} | arguments
    with pytest.raises(error) as refusal:
        posterior.update(**given)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert same(before, state_of(posterior))


@pytest.mark.parametrize("discount", [0, -1.0, 1.5, NAN, INF, "0.5", None, True])
def test_a_refused_decay_changes_nothing(discount):
    posterior = learned()
    before = state_of(posterior)
    with pytest.raises((TypeError, ValueError), match="discount"):
        posterior.decay(discount)
    assert same(before, state_of(posterior))


@pytest.mark.parametrize(
    ("shape", "x", "reward", "words"),
    [
        ((), np.ones((4, 2)), np.ones(4), ["x", "(n, 3)", "(4, 2)"]),
        ((), np.ones((4, 3)), np.ones(5), ["reward", "(4,)", "(5,)"]),
        ((), np.ones((2, 4, 3)), np.ones((2, 4)), ["x", "(2, 4, 3)"]),
        ((), np.ones(3), 1.0, ["x", "(3,)"]),
        ((), 1.0, 1.0, ["x", "()"]),
        ((2,), np.ones((4, 3)), np.ones(4), ["x", "(4, 3)"]),
        ((2,), np.ones((3, 4, 3)), np.ones((3, 4)), ["x", "(2, n, 3)"]),
        ((), np.full((4, 3), NAN), np.ones(4), ["x", "finite"]),
        ((), np.full((4, 3), 1e200), np.ones(4), ["x", "below 1e+15", "1e+200"]),
        ((), np.ones((4, 3)), [1.0, 1.0, -INF, 1.0], ["reward", "finite"]),
    ],
)
def test_a_refused_rebuild_changes_nothing(shape, x, reward, words):
    posterior = learned(shape)
    before = state_of(posterior)
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        posterior.rebuild(x, reward)
    assert same(before, state_of(posterior))
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


def test_a_rebuild_from_rows_too_large_changes_nothing():
    posterior = learned((2,))
    before = state_of(posterior)
    x = np.full((2, 4, 3), 2.0**40)  # next to which the prior is lost to rounding
    with pytest.raises(ValueError, match="features must not be so large"):
        posterior.rebuild(x, np.ones((2, 4)))
    assert same(before, state_of(posterior))


SELECTIONS = [
    ((), ()),
    ((4,), ()),
    ((4,), (2,)),
    ((4,), ([3, 1],)),
    ((4,), (slice(1, 3),)),
    ((2, 3), ()),
    ((2, 3), (1,)),
    ((2, 3), (0, 2)),
    ((2, 3), (slice(None), slice(1, None))),
    ((2, 3), (slice(None), [2, 0])),
    ((2, 3), (slice(None), [1])),
    ((2, 3), ([[0], [1]], [[0, 2], [1, 0]])),
]


def as_index(at):
    return tuple(np.array(i) if isinstance(i, list) else i for i in at)


@pytest.mark.parametrize(("shape", "at"), SELECTIONS)
def test_learning_begins_at_an_informed_prior(shape, at):
    posterior = learned(shape)
    posterior.decay(0.5)
    posterior.update(np.ones((*shape, 3)), np.ones(shape))
    A, b = posterior.A.astype(float), posterior.b.astype(float)
    at = as_index(at)
    mean = normal(11, *b[at].shape)
    posterior.reset(at, mean, ridge=4.0)
    A[at], b[at] = 4.0 * np.eye(3), 4.0 * mean
    prior = np.full(shape, 0.5 * RIDGE)
    prior[at] = 4.0
    for step in range(3):
        assert_solves(posterior, A, b)
        assert np.allclose(posterior.prior, prior)
        x, reward = normal(step, *shape, 3), normal(step + 50, *shape)
        posterior.update(x, reward)
        A += x[..., :, None] * x[..., None, :]
        b += reward[..., None] * x


@pytest.mark.parametrize(("shape", "at"), SELECTIONS)
def test_priors_are_kept_by_resets_and_rebuilds(shape, at):
    at = as_index(at)
    posterior = RidgePosterior(3, RIDGE, shape)
    ridges, means = np.full(shape, RIDGE), np.zeros((*shape, 3))
    ridges[at], means[at] = 0.7, normal(5, *means[at].shape)
    posterior.reset(at, means[at], 0.7)
    x, reward = normal(0, *shape, 30, 3), normal(1, *shape, 30)
    eye = ridges[..., None, None] * np.eye(3)
    b = ridges[..., None] * means
    for _ in range(2):
        assert_solves(posterior, eye, b)
        posterior.rebuild(x, reward)
        assert_solves(posterior, eye + x.mT @ x, b + np.vecmat(reward, x))
        assert (posterior.prior == ridges).all()
        posterior.decay(0.3)
        posterior.reset()
    posterior.rebuild(x, reward)
    posterior.reset(at)
    assert np.array_equal(posterior.mean[at], means[at])
    # One of the two may be changed alone.
    posterior.reset(at, ridge=5.0)
    assert np.array_equal(posterior.mean[at], means[at])
    assert (posterior.prior[at] == 5).all()
    posterior.reset(at, mean=np.ones(3))
    assert (posterior.mean[at] == 1).all()
    assert (posterior.prior[at] == 5).all()


@pytest.mark.parametrize("way", ["update", "decay"])
@pytest.mark.parametrize("shape", [(), (3,)])
def test_where_nothing_is_learnt_forgetting_leads_back_to_the_priors_mean(shape, way):
    posterior = RidgePosterior(2, RIDGE, shape)
    mean = normal(8, *shape, 2)
    posterior.reset((), mean, ridge=0.5)
    A, b = np.zeros((*shape, 2, 2)), np.zeros((*shape, 2))
    x = np.broadcast_to([1.0, 0.0], (*shape, 2))
    raised = False
    for step in range(60):
        reward = normal(step, *shape)
        A, b = 0.6 * A, 0.6 * b
        if way == "decay":
            posterior.decay(0.6)
            posterior.update(x, reward)
        else:
            posterior.update(x, reward, discount=0.6)
        A += x[..., :, None] * x[..., None, :]
        b += reward[..., None] * x
        prior = posterior.prior
        raised |= bool((prior > 0.5 * 0.6 ** (step + 1) * 1.01).all())
        assert (prior >= LEAST_PRIOR * LEAST_FADED * 0.5 * (1 - 1e-9)).all()
        whole = prior[..., None, None] * np.eye(2)
        assert_solves(posterior, A + whole, b + prior[..., None] * mean)
        assert np.allclose(posterior.mean[..., 1], mean[..., 1])
    assert raised


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"mean": [1.0, 2.0]}, ValueError, ["mean", "(3,)", "(2,)"]),
        ({"mean": 1.0}, ValueError, ["mean", "()"]),
        ({"mean": np.ones((1, 3))}, ValueError, ["mean", "(2, 3)", "(1, 3)"]),
        ({"mean": np.ones((4, 3))}, ValueError, ["mean", "(4, 3)"]),
        ({"mean": np.ones((1, 2, 3))}, ValueError, ["mean", "(1, 2, 3)"]),
        ({"mean": [NAN, 0.0, 0.0]}, ValueError, ["mean", "finite"]),
        ({"mean": [INF, 0.0, 0.0]}, ValueError, ["mean", "finite"]),
        ({"ridge": 0.0}, ValueError, ["ridge"]),
        ({"ridge": -1.0}, ValueError, ["ridge"]),
        ({"ridge": NAN}, ValueError, ["ridge"]),
        ({"ridge": "1"}, TypeError, ["ridge"]),
        ({"mean": [1.0, 2.0, 3.0], "ridge": INF}, ValueError, ["ridge"]),
        ({"mean": [NAN, 2.0, 3.0], "ridge": 2.0}, ValueError, ["mean"]),
        ({"at": (4,), "mean": [1.0, 2.0, 3.0]}, IndexError, ["4"]),
        ({"at": (4,), "ridge": 2.0}, IndexError, ["4"]),
        ({"at": (4,)}, IndexError, ["4"]),
    ],
)
def test_a_refused_reset_forgets_nothing(arguments, error, words):
    posterior = learned((4,))
    before = state_of(posterior)
    with pytest.raises(error) as refusal:
        posterior.reset(**({"at": ([0, 2],)} | arguments))
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert same(before, state_of(posterior))
    posterior.reset()
    assert same(state_of(posterior), state_of(RidgePosterior(3, RIDGE, (4,))))


class Ledger:
    """What a posterior must hold, kept as plain sums: of rows, of priors, of their means."""

    def __init__(self, shape):
        self.rows, self.sums = np.zeros((*shape, 3, 3)), np.zeros((*shape, 3))
        self.mean = np.zeros((*shape, 3))

    def learn(self, at, x, reward, weight=1.0, discount=1.0):
        self.rows[at] *= discount
        self.sums[at] *= discount
        weight = np.asarray(weight)[..., None]
        self.rows[at] += (weight * x)[..., :, None] * x[..., None, :]
        self.sums[at] += weight * np.asarray(reward)[..., None] * x

    def extend(self, axis, n):
        def longer(sums):
            more = [(0, n if place == axis else 0) for place in range(sums.ndim)]
            return np.pad(sums, more)

        self.rows, self.sums = longer(self.rows), longer(self.sums)
        self.mean = longer(self.mean)

    def check(self, posterior):
        prior = posterior.prior[..., None]
        A = self.rows + prior[..., None] * np.eye(3)
        assert_solves(posterior, A, self.sums + prior * self.mean, tolerance=1e-7)


@pytest.mark.no_cover
@pytest.mark.parametrize("shape", [(3,), (1,), (2, 3), (3, 1), (2, 2, 2)])
@pytest.mark.parametrize("seed", range(4))
def test_posteriors_come_in_any_order_of_operations(shape, seed):
    rng = np.random.default_rng(seed)
    posterior, ledger = RidgePosterior(3, RIDGE, shape), Ledger(shape)
    axis = len(shape) - 1
    for _ in range(120):
        n = posterior.shape[-1]
        now, every = posterior.shape, slice(None)
        what = rng.choice(["learn", "one", "extend", "inform", "decay"])
        if what in ("learn", "one"):
            at = () if what == "learn" else tuple(int(rng.integers(m)) for m in now)
            x = rng.normal(size=ledger.sums[at].shape)
            reward = rng.normal(size=x.shape[:-1])
            discount = rng.choice([1.0, 0.7])
            posterior.update(x, reward, at, discount=discount)
            ledger.learn(at, x, reward, discount=discount)
        elif what == "extend" and n < 6:
            more = int(rng.integers(1, 4))
            posterior.extend(more)
            ledger.extend(axis, more)
            fresh = (*[every] * axis, slice(n, None))
            assert (posterior.prior[fresh] == RIDGE).all()
            assert not posterior.mean[fresh].any()
        elif what == "inform":
            place = int(rng.integers(n))
            at = (*[every] * axis, place)
            mean = rng.normal(size=ledger.mean[at].shape)
            posterior.reset(at, mean, ridge=rng.choice([0.5, 4.0]))
            ledger.rows[at] = ledger.sums[at] = 0
            ledger.mean[at] = mean
        elif what == "decay":
            posterior.decay(0.8)
            ledger.rows *= 0.8
            ledger.sums *= 0.8
        assert posterior.shape == ledger.sums.shape[:-1]
        ledger.check(posterior)


def test_new_posteriors_have_the_ridge_of_the_whole_and_no_others_prior():
    posterior = RidgePosterior(3, RIDGE, (2,))
    posterior.reset((), np.ones(3), ridge=9.0)
    posterior.extend(2)
    assert posterior.shape == (4,)
    assert np.allclose(posterior.prior, [9, 9, RIDGE, RIDGE])
    assert posterior.mean.tolist() == [[1] * 3] * 2 + [[0] * 3] * 2
    posterior.extend(1, mean=[2.0, 0, 0], ridge=3.0)
    posterior.reset()
    assert np.allclose(posterior.prior, [9, 9, RIDGE, RIDGE, 3])
    assert posterior.mean.tolist() == [[1] * 3] * 2 + [[0] * 3] * 2 + [[2, 0, 0]]


@pytest.mark.parametrize(
    ("shape", "arguments", "error", "words"),
    [
        ((2,), {"n": 0}, ValueError, ["n must be at least 1", "0"]),
        ((2,), {"n": 1.0}, TypeError, ["n must be a whole number", "1.0"]),
        ((2,), {"n": 2, "mean": [1.0]}, ValueError, ["mean", "(3,)", "(1,)"]),
        ((2,), {"n": 2, "ridge": 0}, ValueError, ["ridge"]),
        ((), {"n": 1}, ValueError, ["shape", "leading axis", "()"]),
    ],
)
def test_posteriors_that_cannot_come_do_not(shape, arguments, error, words):
    posterior = learned(shape)
    before = state_of(posterior)
    with pytest.raises(error) as refusal:
        posterior.extend(**arguments)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert same(before, state_of(posterior))
    assert posterior.shape == shape


@pytest.mark.parametrize(("shape", "at"), SELECTIONS)
@pytest.mark.parametrize("discount", [1.0, 0.9])
def test_each_row_of_an_update_counts_by_its_own_weight(shape, at, discount):
    posterior, ledger = RidgePosterior(3, RIDGE, shape), Ledger(shape)
    at, rng = as_index(at), np.random.default_rng(3)
    taken = []
    for step in range(40):
        x = rng.normal(size=ledger.sums[at].shape)
        reward = rng.normal(size=x.shape[:-1])
        weight = rng.uniform(0, 2, size=reward.shape)
        posterior.update(x, reward, at, weight, discount)
        ledger.learn(at, x, reward, weight, discount)
        if discount == 1 and step % 3 == 0:
            taken.append((x, reward, weight))
    ledger.check(posterior)
    for x, reward, weight in taken:  # negative weights take out what counted as much
        posterior.update(x, reward, at, -weight)
        ledger.learn(at, x, reward, -weight)
    ledger.check(posterior)


def test_one_row_never_learnt_refuses_all_rows_of_an_update():
    posterior = learned((2,))
    x = np.array([[0.1, 0, 0], [9.0, 0, 0]])
    before = state_of(posterior)
    with pytest.raises(ValueError, match=r"weight.*never learnt"):
        posterior.update(x, [1.0, 1.0], weight=np.array([1.0, -9.0]))
    assert same(before, state_of(posterior))
    posterior.update(x, [1.0, 1.0], weight=np.array([-0.1, 1.0]))


@pytest.mark.parametrize(
    ("weight", "error", "words"),
    [
        ([1.0], ValueError, ["weight", "(2,)"]),
        ([1.0, 1.0, 1.0], ValueError, ["weight", "(2,)"]),
        ([[1.0, 1.0]], ValueError, ["weight", "(2,)"]),
        ([1.0, NAN], ValueError, ["weight", "finite", "nan"]),
        ([INF, 1.0], ValueError, ["weight", "finite", "inf"]),
        (None, TypeError, ["weight", "None"]),
        ("1", TypeError, ["weight", "<U1"]),
    ],
)
def test_refused_weights_of_an_update_change_nothing(weight, error, words):
    posterior = learned((2,))
    before = state_of(posterior)
    with pytest.raises(error) as refusal:
        posterior.update(np.ones((2, 3)), np.ones(2), weight=weight)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert same(before, state_of(posterior))


@pytest.mark.parametrize(("shape", "at"), SELECTIONS)
def test_some_posteriors_predict_rows_of_their_own(shape, at):
    posterior, at = learned(shape), as_index(at)
    posterior.decay(0.5)
    mean = np.linalg.solve(posterior.A, posterior.b[..., None])[..., 0][at]
    x = normal(4, *mean.shape)
    expected = (x * mean).sum(axis=-1)
    assert posterior.predict(x, at).shape == expected.shape
    assert np.allclose(posterior.predict(x, at), expected, rtol=1e-9)


def test_one_posterior_may_be_named_by_an_array():
    by_array, by_number = learned((4,)), learned((4,))
    by_array.update([1.0, 2.0, 3.0], 1.0, (np.array(2),))
    by_number.update([1.0, 2.0, 3.0], 1.0, (2,))
    assert same(state_of(by_array), state_of(by_number))


# --- States ---------------------------------------------------------------------------------------


@pytest.mark.no_cover
@pytest.mark.parametrize("shape", [(), (3,), (2, 2)])
def test_a_posterior_restored_goes_on_to_the_last_bit(shape):
    posterior = RidgePosterior(3, RIDGE, shape)
    posterior.reset((0,) if shape else (), mean=np.ones(3), ridge=4.0)

    def play(one, seed):
        one.update(normal(seed, *shape, 3), normal(seed, *shape), discount=0.97)

    for seed in range(50):
        play(posterior, seed)
    restored = RidgePosterior.from_state(from_bytes(to_bytes(posterior.state())))
    assert repr(restored) == repr(posterior)
    for seed in range(50, 1100):
        play(posterior, seed)
        play(restored, seed)
    assert same(state_of(posterior), state_of(restored))
    for one in (posterior, restored):
        one.reset()
    assert same(state_of(posterior), state_of(restored))
    assert (restored.mean[0 if shape else ()] == 1).all()  # the prior mean is known


def test_a_state_is_a_copy():
    posterior = learned()
    state = posterior.state()
    restored = RidgePosterior.from_state(state)
    before = to_bytes(state)
    for one in (posterior, restored):
        one.update([1.0, 2.0, 3.0], 1.0)
    assert to_bytes(state) == before


@pytest.mark.parametrize(
    ("change", "words"),
    [
        (lambda s: s.update({"class": "LinUCBAgent"}), ["RidgePosterior", "LinUCB"]),
        (lambda s: s.update({"class": "Nobody"}), ["RidgePosterior", "Nobody"]),
        (lambda s: s.pop("class"), ["'class'", "learned"]),
        (lambda s: s.pop("settings"), ["'settings'"]),
        (lambda s: s.pop("learned"), ["'learned'"]),
        (lambda s: s["settings"].pop("ridge"), ["settings", "ridge"]),
        (lambda s: s["settings"].update(lam=1.0), ["settings", "lam"]),
        (lambda s: s["settings"].update(ridge=-1.0), ["ridge", "-1"]),
        (lambda s: s["settings"].update(n_features=4), ["A", "(4, 4)", "(3, 3)"]),
        (lambda s: s["learned"].pop("mean"), ["'mean'"]),
        (lambda s: s["learned"].update(b=np.ones(2)), ["b", "(3,)", "(2,)"]),
        (lambda s: s["learned"].update(b=np.ones(3, int)), ["b", "float64", "int64"]),
        (lambda s: s["learned"].update(A=np.full((3, 3), NAN)), ["A", "finite"]),
        (lambda s: s["learned"].update(n_updates=-1), ["n_updates", "-1"]),
        (lambda s: s.update(learned=3), ["learned", "dict", "int"]),
    ],
)
def test_states_that_do_not_fit_are_refused_by_name(change, words):
    state = learned().state()
    change(state)
    with pytest.raises(ValueError) as refusal:  # noqa: PT011
        RidgePosterior.from_state(state)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    with pytest.raises(ValueError, match="state must have an entry 'class'"):
        RidgePosterior.from_state([])


def test_files_that_are_cut_or_foreign_are_refused(tmp_path):
    posterior, path = learned(), tmp_path / "posterior"
    posterior.save(path)
    again = RidgePosterior.load(path)
    assert to_bytes(again.state()) == to_bytes(posterior.state()) == path.read_bytes()
    whole = path.read_bytes()
    flipped = bytearray(whole)
    flipped[len(whole) // 2] ^= 1
    empty = to_bytes({})
    for blob in (b"", b"x" * 100, whole[:-1], whole[:200], bytes(flipped), empty):
        path.write_bytes(blob)
        with pytest.raises(
            ValueError, match=r"path .*bytes of a state.*got 'posterior' \(|'class'"
        ):
            RidgePosterior.load(path)
    with pytest.raises(FileNotFoundError):
        RidgePosterior.load(tmp_path / "none")
