import os
import shutil
import signal
from functools import partial
from unittest import mock

import numpy as np
import pytest

from tests.service_crash import (
    WORLD,
    commits,
    heard,
    opened,
    quick_folder,
    run,
    run_two,
    small,
    start,
)
from zoolib._support.threads import one_thread
from zoolib.service import Settings, loop, training


@pytest.fixture(scope="module")
def folder():
    with quick_folder() as path:
        yield path


@pytest.mark.parametrize("n_kills", [10, pytest.param(200, marks=pytest.mark.weekly)])
def test_nothing_acknowledged_is_lost_in_many_kills(folder, n_kills):
    n_events = 100 * n_kills
    path = folder / f"killed-{n_kills}.db"
    acknowledged = run(path, n_events, n_kills, seed=0)
    assert len(acknowledged) == n_events
    with opened(path) as service:
        logged = [
            (row[0], row[-1]) for row in service.store.events() if row[-1] is not None
        ]
        assert len(logged) == len({event for event, _ in logged})
        assert dict(logged) == acknowledged
        # Bit for bit: what the last life knows is a replay of all of them from the prior.
        assert service.store.snapshots("v1")[-1][0] == 0
        assert service.learnt() == service.learnt(replayed=True)
        # And by other means: the sums of the formula, in one product each.
        agent = service.agent("v1")
        seq, _, features, arm, reward = zip(
            *service.store.rewards_after(0), strict=True
        )
        played = np.array([x[a] for x, a in zip(features, arm, strict=True)])
        z = agent.embed(played).astype(float)
        assert (np.diff(seq) == 1).all()
        A, b = np.eye(41) + z.T @ z, z.T @ reward
        # The network computes in single precision, whose rounding depends on the size of the table.
        np.testing.assert_allclose(agent.posterior.A, A, atol=1e-6 * abs(A).max())
        np.testing.assert_allclose(agent.posterior.b, b, atol=1e-6 * abs(b).max())
        times = [row[5] for row in service.store.events()]
        assert times == sorted(times)


@pytest.mark.parametrize("n_kills", [10, pytest.param(100, marks=pytest.mark.weekly)])
def test_every_decision_has_one_fate_in_two_threads_and_many_kills(folder, n_kills):
    n_requests = 100 * n_kills
    path = folder / f"two-{n_kills}.db"
    told = run_two(path, n_requests, n_kills, seed=0)
    assert told["failed"] == {}
    assert len(told["decided"]) >= n_requests
    with small(path, lambda: 1e9) as service:
        fates = service.fates()
        found = {
            event: (reward, expired)
            for event, reward, expired in service.store._rows(
                "SELECT event, reward, expired FROM rewards"
            )
        }
        ids = [row[0] for row in service.store.events()]
        assert fates == {
            "open": 0,
            "rewarded": sum(not expired for _, expired in found.values()),
            "expired": sum(expired for _, expired in found.values()),
            "refused": 0,
        }
        # One fate each, and none is unknown of those that were acknowledged.
        assert sorted(found) == ids
        assert set(told["decided"]) <= set(found)
        # At most one visit of each thread and life was decided and not heard of.
        assert len(ids) - len(told["decided"]) <= 2 * n_kills
        for event in told["decided"]:
            zero, sent = (0, 1), told["sent"].get(event)
            if event in told["rewarded"]:
                assert found[event] == (*sent, 0)
            elif sent is None or event in told["late"]:
                assert found[event] == zero
            else:  # killed before it was answered
                assert found[event] in (zero, (*sent, 0))
        assert min(len(told["late"]), fates["expired"] - len(told["late"])) > n_kills
        # Each request had one event, and has it still.
        requests = {said: event for event, said in told["decided"].items()}
        assert len(requests) == len(told["decided"])
        for (request, user), event in list(requests.items())[:: n_requests // 100]:
            assert service.select(user, request_id=request).event_id == event
        assert service.learnt() == service.learnt(replayed=True)
        assert service.store.snapshots("v1")[-1][0] == 0


# ---- Retraining and promotion, interrupted everywhere

RENEWAL = Settings(
    deadline=60.0,
    n_draws=20,
    guard_visits=20,
    guard_level=1e-6,
    min_sample=10,
)


def served(service, n, seed, users=None):
    """Serve n visits, half of them to users on the new version's side if there is one."""
    rng = np.random.default_rng(seed)
    if service.rollout.rolling:
        pseudonyms = map(service.store.pseudonym, range(1000))
        side = [service.rollout.assign(one) for one in pseudonyms]
        new = np.flatnonzero(np.array(side) == service.rollout.rolling.name)
    else:
        new = np.arange(1000)
    for step in range(n):
        user = int(rng.choice(new) if step % 2 else rng.integers(1000))
        decision = service.select(user)
        service.reward(
            decision.event_id, int(rng.random() < WORLD.true_ctr(user, decision.arm))
        )


def telling(owner, name, tell):
    """Call a function after each call of another one."""
    call = getattr(owner, name)

    def told(*arguments, **options):
        result = call(*arguments, **options)
        tell()
        return result

    return mock.patch.object(owner, name, told)


@one_thread()
def renew(path, at):
    """Retrain, roll out and promote; `at` is told of each step on the way."""
    with opened(path, settings=RENEWAL) as service:
        steps = partial(at, "before commit"), partial(at, "after commit")
        with (
            telling(service.store, "log", partial(at, "log read")),
            telling(loop, "train", partial(at, "trained")),
            telling(training, "validate", partial(at, "validated")),
            telling(training, "teach", partial(at, "caught up")),
            commits(service, *steps),
        ):
            name = service.retrain(epochs=2)
        with commits(service, *steps):
            service.begin_rollout(name)
        while service.rollout.rolling:
            served(service, 90, seed=service.rollout.rolling.share)
            with commits(service, *steps):
                service.review_rollout()


def renew_and_die(path, number, say):
    """Do the same, and die of SIGKILL at one of the steps."""
    count = 0

    def at(step):
        nonlocal count
        if count == number:
            say.send(step)
            os.kill(os.getpid(), signal.SIGKILL)
        count += 1

    renew(path, at)


@pytest.fixture(scope="module")
def prepared(folder):
    """A service that has served 300 visits, and the steps of a renewal without interruption."""
    path = folder / "prepared.db"
    with opened(path, settings=RENEWAL) as service:
        served(service, 300, seed=0)
    steps = []
    shutil.copy(path, folder / "whole.db")
    renew(folder / "whole.db", steps.append)
    return path, steps


def assert_whole(path, promoted):
    """The database is whole, and the version serves that should."""
    with opened(path, settings=RENEWAL) as service:
        states = {v.name: v.state for v in service.store.versions()}
        expected = {"v1": "retired", "v2": "active"} if promoted else {"v1": "active"}
        assert expected.items() <= states.items()
        assert states.get("v2") in (
            "active" if promoted else None,
            "candidate",
            "rolling",
            None,
        )
        served(service, 20, seed=1)
        assert service.learnt() == service.learnt(replayed=True)
        if not promoted:
            old_side = [row for row in service.store.events()[-20:] if row[4] == "v1"]
            assert old_side
        assert service.check_health().problems == {}


@pytest.mark.no_cover
def test_a_renewal_passes_every_step(prepared):
    _, steps = prepared
    # Registered, begun, advanced twice, promoted: each in one transaction.
    assert steps == [
        *("log read", "trained", "validated", "caught up"),
        *("before commit", "after commit") * 5,
    ]


@pytest.mark.parametrize("number", range(14))
def test_a_renewal_killed_at_any_step_leaves_a_version_that_serves(
    prepared, tmp_path, folder, number
):
    prepared_at, steps = prepared
    path = folder / f"killed-{number}.db"
    shutil.copy(prepared_at, path)
    child, pipe = start(renew_and_die, path, number)
    assert list(heard(pipe)) == [steps[number]]
    child.join()
    assert child.exitcode == -signal.SIGKILL
    assert_whole(path, promoted=number == 13)


@pytest.mark.parametrize("number", range(14))
def test_a_renewal_that_fails_at_any_step_leaves_a_version_that_serves(
    prepared, folder, number
):
    prepared_at, steps = prepared
    path = folder / f"failed-{number}.db"
    shutil.copy(prepared_at, path)
    passed = []

    def at(step):
        passed.append(step)
        if len(passed) > number:
            raise RuntimeError(f"stopped at {step}")

    with pytest.raises(RuntimeError, match=steps[number]):
        renew(path, at)
    assert_whole(path, promoted=number == 13)
