"""Many visits at once are what one after the other would be."""

import copy

import numpy as np
import pytest

from tests.states import learnt
from zoolib import Context, LinUCBAgent, RidgePosterior

K, D, N = 4, 3, 60
shared_or_not = pytest.mark.parametrize("shared", [False, True])


def visits(n=N, seed=0):
    rng = np.random.default_rng(seed)
    features = rng.normal(size=(n, K, D))
    return features, rng.integers(K, size=n), rng.integers(2, size=n).astype(float)


def one_by_one(agent, features, arms, rewards):
    for rows, arm, reward in zip(features, arms, rewards, strict=True):
        agent.update(Context(0, rows), int(arm), reward)


def taught(n=N, **options):
    agent = LinUCBAgent(K, D, seed=5, **options)
    one_by_one(agent, *visits(n, seed=1))
    return agent


@shared_or_not
def test_a_batch_teaches_what_its_visits_teach(shared):
    together, alone = (taught(shared=shared) for _ in range(2))
    if not shared:
        for agent in (together, alone):
            agent.add_arms(1, mean=[1.0, 2.0, 3.0], ridge=4.0)
            agent.posterior.reset((1,))
    features, arms, rewards = visits()
    features = np.concatenate((features, features[:, :1]), axis=1)[:, : together.n_arms]
    arms[-1] = together.n_arms - 1
    by_rows = copy.deepcopy(together)
    by_rows.update_many(features[np.arange(N), arms], arms, rewards)
    together.update(Context(None, features), arms, rewards)
    one_by_one(alone, features, arms, rewards)
    for agent in (together, by_rows):
        for name in ("A", "b", "A_inv", "mean"):
            found, expected = (getattr(one.posterior, name) for one in (agent, alone))
            np.testing.assert_allclose(found, expected, rtol=1e-12, atol=1e-12)


@pytest.mark.parametrize(
    "options", [{"link": "logit"}, {"discount": 0.97}, {"window": 11}]
)
@shared_or_not
def test_where_the_order_matters_a_log_is_replayed(shared, options):
    together, by_rows, alone = (taught(shared=shared, **options) for _ in range(3))
    features, arms, rewards = visits()
    together.update(Context(None, features), arms, rewards)
    by_rows.update_many(features[np.arange(N), arms], arms, rewards)
    one_by_one(alone, features, arms, rewards)
    for agent in (together, by_rows):
        assert learnt(agent) == learnt(alone)


def changed(**which):
    """Return what `update_many` takes, with something wrong."""
    rows = visits()[0][:, 0], *visits()[1:]
    given = dict(zip(("features", "arms", "rewards"), rows, strict=True)) | which
    return [given[name] for name in ("features", "arms", "rewards")]


@pytest.mark.parametrize(
    ("options", "given", "error", "words"),
    [
        ({"n_worlds": N}, {}, ValueError, "of one world: got n_worlds=60"),
        ({}, {"features": visits()[0]}, ValueError, r"got \(60, 4, 3\)"),
        ({}, {"features": visits()[0][:, 0, :2]}, ValueError, r"got \(60, 2\)"),
        ({}, {"features": 1.0}, ValueError, r"shape \(n, 3\): got \(\)"),
        ({}, {"features": [["a"]]}, TypeError, "features must hold real numbers"),
        ({}, {"features": [[np.nan] * D] * N}, ValueError, "features must be finite"),
        ({}, {"arms": np.zeros(N)}, TypeError, "arms must hold whole numbers"),
        ({}, {"arms": np.full(N, K)}, ValueError, "arms must lie in 0 … 3: got 4"),
        ({}, {"arms": [0]}, ValueError, r"arms must have shape \(60,\): got \(1,\)"),
        ({}, {"rewards": [0.0]}, ValueError, r"rewards must have shape \(60,\)"),
        ({}, {"rewards": ["a"] * N}, TypeError, "rewards must hold real numbers"),
        ({}, {"rewards": np.full(N, np.inf)}, ValueError, "rewards must be finite"),
    ],
)
def test_what_does_not_fit_is_refused_and_teaches_nothing(options, given, error, words):
    agent = LinUCBAgent(K, D, **options)
    before = agent.posterior.b
    with pytest.raises(error, match=words):
        agent.update_many(*changed(**given))
    np.testing.assert_array_equal(agent.posterior.b, before)


@pytest.mark.parametrize(
    ("shape", "given", "error", "words"),
    [
        ((), {"which": [0, 1]}, ValueError, "which must be given with one leading"),
        ((2,), {"which": None}, ValueError, "which must be given with one leading"),
        ((2, 2), {}, ValueError, r"and only then: got shape \(2, 2\)"),
        ((2,), {"which": [0, 2]}, ValueError, "which must lie in 0 … 1: got 2"),
        ((2,), {"which": [0]}, ValueError, r"which must have shape \(2,\): got \(1,\)"),
        ((2,), {"x": 1.0}, ValueError, r"x must have shape \(n, 3\): got \(\)"),
        ((2,), {"x": np.full((2, D), 1e200)}, ValueError, r"x must .* below 1e\+15"),
        (
            (2,),
            {"x": np.full((2, D), 1e9)},
            ValueError,
            "features must not be so large",
        ),
        ((2,), {"reward": [0, np.nan]}, ValueError, "reward must be finite .* got nan"),
    ],
)
def test_rows_that_do_not_fit_leave_the_posterior(shape, given, error, words):
    posterior = RidgePosterior(D, 1.0, shape)
    before = posterior.A, posterior.b, posterior.A_inv, posterior.mean
    rows = {"x": np.eye(2, D), "reward": [1.0, 0.0], "which": [0, 1]}
    with pytest.raises(error, match=words):
        posterior.update_many(**rows | given)
    after = posterior.A, posterior.b, posterior.A_inv, posterior.mean
    assert all(map(np.array_equal, before, after))
