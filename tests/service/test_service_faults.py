"""What a service meets on a bad day: second processes, forks, rows that nobody can learn, interrupts."""

import multiprocessing
import os
import signal
import sqlite3
import threading
import time
from contextlib import contextmanager
from pathlib import Path
from unittest import mock

import numpy as np
import pytest

from tests.service.test_service_requests import (
    ARMS,
    EASY,
    KEY,
    fates,
    own_models,
    shop,
    visitor,
)
from tests.service_crash import heard, start
from zoolib import Context, LinTSAgent, offpolicy
from zoolib.monitoring import Monitor, at_most, rates
from zoolib.service import (
    BanditService,
    LateRewardError,
    Settings,
    StoreError,
    StoreLockedError,
    Watch,
    read_log,
)
from zoolib.service.health import FALLBACK, PAUSE
from zoolib.service.log import Log
from zoolib.service.watching import fallbacks

# ---- One process owns a file


def opened_and_left(path, say):
    """Own a file, say so, and hang."""
    with shop(path) as service:
        service.select("anna")
        say.send(("open", os.getpid()))
        time.sleep(60)


def test_a_second_process_is_refused_in_words_and_may_read(path):
    child, pipe = start(opened_and_left, path)
    (_, number) = next(heard(pipe))
    words = f"{path} is served by process {number}, and one process at a time owns"
    with pytest.raises(StoreLockedError, match=words):
        shop(path)
    assert len(read_log(path)) == 0  # its only visit is open
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    with shop(path) as service:  # the lock ended with the process
        assert len(service.store.events()) == 1


def test_a_second_service_of_one_process_is_refused_too(path):
    link = path.with_name("link.db")
    link.symlink_to(path)
    for way in (path, link):
        with shop(path), pytest.raises(StoreLockedError, match="is served by process"):
            shop(way)
    with shop(path) as service:
        event = service.select("anna").event_id
        service.reward(event, True)
        log = read_log(path)
        assert (log.event.tolist(), log.reward.tolist()) == ([1], [1.0])
        reader = Log(path, owned=False)
        with pytest.raises(StoreError, match="readonly"):
            reader._rows("DELETE FROM events")
        reader.close()


def after_fork(service, pipe):
    try:
        service.select("anna")
    except StoreError as error:
        pipe.send(str(error))
    service.close()


@pytest.mark.filterwarnings("ignore:.*fork:DeprecationWarning")
def test_a_service_says_that_it_was_forked(path):
    with shop(path) as service:
        service.select("anna")
        context = multiprocessing.get_context("fork")
        ours, theirs = context.Pipe(duplex=False)
        child = context.Process(target=after_fork, args=(service, theirs))
        child.start()
        assert f"was opened by process {os.getpid()}, before a fork" in ours.recv()
        child.join(60)
        assert child.exitcode == 0
        service.select("otto")
        assert len(service.store.events()) == 2


@pytest.mark.parametrize("name", [":memory:", "file:shop.db?mode=memory", ""])
def test_a_path_in_memory_is_refused(name):
    with pytest.raises(ValueError, match="path must be of a file on a disk"):
        shop(name)


def test_a_deadline_may_be_longer_than_a_lock_can_wait(path):
    with shop(path, settings=Settings(deadline=1e10)) as service:
        assert service.select("anna").version == "v1"


def test_what_is_on_the_disk_is_decided_however_long_it_took(path):
    with shop(path, settings=Settings(deadline=0.05)) as service:
        commit = service.store.commit

        def slow():
            time.sleep(0.2)
            commit()

        with mock.patch.object(service.store, "commit", slow):
            event = service.select("anna").event_id
        assert service.reward(event, 1) == 1


# ---- No row can stop a reader


class Picky(LinTSAgent):
    """Cannot learn what it does not like, or not choose any more afterwards."""

    def update(self, context, arm, reward):
        if context.features[0, 1] == 7:
            raise KeyError("a seven")
        super().update(context, arm, reward)
        if context.features[0, 1] == 8:
            self.posterior._mean[...] = 1e200
            self.posterior.A[...] = 0

    def propensities(self, context, allowed=None, n_draws=100):
        if abs(self.posterior.mean).max() > 1e100:
            raise np.linalg.LinAlgError("singular matrix")
        return super().propensities(context, allowed, n_draws)


def picky(arms, d, seed):
    return Picky(arms, d, alpha=0.3, seed=seed)


@pytest.mark.parametrize("bad", [7, 8])
def test_what_cannot_be_learnt_is_set_aside_and_stops_nobody(path, bad, clock):
    def features(user):
        return [1.0, float(user)]

    options = {"make_agent": picky, "clock": clock}
    with shop(path, features, **options) as service:
        for user in (1, bad, 2, bad, 3, 4):
            service.reward(service.select(user).event_id, 1)
        versions = [service.select(5).version for _ in range(6)]
        assert versions[-1] == "v1"
        health = service.check_health()
        assert health.counters["set aside"] == 2
        assert "v1 could not learn reward 4" in health.problems["set aside"]
        assert service.learnt() == service.learnt(replayed=True)
        assert service.erase(1) == 1
        assert service.forget_before(clock.now - 1) == 0
        before = service.learnt()
    with shop(path, features, **options) as service:
        assert service.learnt() == before
        assert service.select(5).version == "v1"
        clock.now += EASY.attribution
        assert service.store.version(service.retrain(held_out=0.3)).state == "candidate"


@pytest.mark.parametrize("size", [1e6, 1.7e9, float("inf")])
def test_features_of_no_size_to_learn_from_are_refused(path, size):
    with shop(path, lambda user: [1.0, size]) as service:
        with pytest.raises(ValueError, match="none above 100000 in size"):
            service.select("anna")
        assert service.store.events() == []
        assert service.check_health().counters == {"rejected: features": 1}


def test_a_monitor_that_cannot_take_an_event_stops_no_other(path, clock):
    well = [True]

    def clicks(log):
        return (log.reward,)

    common = {"window": 20, "false_alarms": 0.5}
    watches = [
        Watch(Monitor("clicks", rates(), at_most(0.9), **common), clicks),
        Watch(Monitor("fallback", rates(), at_most(0.01), **common), fallbacks),
    ]
    options = {"clock": clock, "healthy": lambda: well[0]}
    with shop(path, watches=watches, **options) as service:
        service.reward(service.select("anna").event_id, 0.5)
        assert service.watch() == []
        problem = service.check_health().problems["monitor: clicks"]
        assert "1 events were set aside, the last for: success must be 0 or" in problem
        well[0], clock.now = False, clock.now + PAUSE
        for user in range(40):
            service.reward(service.select(user).event_id, 0)
        assert {alert.monitor for alert in service.watch()} == {"fallback"}
        assert watches[0].monitor.step == 40


# ---- Any failure of a model is a fallback


@pytest.mark.parametrize(
    "error",
    [RuntimeError, MemoryError, KeyError, IndexError, TypeError, OSError, SystemExit],
)
def test_any_failure_of_a_model_is_a_fallback_and_counted(path, error):
    def broken(*given, **options):
        raise error("out of memory")

    with shop(path) as service, mock.patch.object(LinTSAgent, "propensities", broken):
        service._models.clear()
        for _ in range(4):
            assert service.select("anna").version == FALLBACK
        assert "out of memory" in service.check_health().problems["v1"]
        assert service._breakers["v1"].open


# ---- Interrupts, time, batches


class InterruptError(Exception):
    """What a soft time limit raises."""


@contextmanager
def strikes():
    """Have `InterruptError` raised wherever the program is when the timer of the signal has run down."""

    def strike(_, frame):
        # What counts lines here takes a lock of its own, and no shop serves with it.
        while frame is not None:
            if "coverage" in Path(frame.f_code.co_filename).parts:
                signal.setitimer(signal.ITIMER_REAL, 1e-4)
                return
            frame = frame.f_back
        raise InterruptError

    before = signal.signal(signal.SIGALRM, strike)
    try:
        yield
    finally:
        signal.setitimer(signal.ITIMER_REAL, 0)
        signal.signal(signal.SIGALRM, before)


def interrupted(service, n, rng):
    """Serve, with exceptions at n random moments; return what was acknowledged."""
    acknowledged, left = {}, n
    with strikes():
        while left:
            try:
                signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 6e-3))
                while True:
                    event = service.select(int(rng.integers(50))).event_id
                    service.reward(event, 1)
                    acknowledged[event] = 1.0
                    if rng.random() < 0.1:
                        service.fates()
            except InterruptError:
                left -= 1
    return acknowledged


@pytest.mark.parametrize("n", [60, pytest.param(1_000, marks=pytest.mark.weekly)])
def test_after_exceptions_at_random_moments_all_goes_on(path, n):
    with shop(path) as service:
        told = interrupted(service, n, np.random.default_rng(0))
        others = []
        thread = threading.Thread(target=lambda: others.append(service.select("anna")))
        thread.start()  # no lock was left behind
        thread.join(30)
        assert len(others) == 1
        assert not service.store._db.in_transaction
        events = {row[0]: row[-1] for row in service.store.events()}
        assert told.items() <= events.items()
        assert service.learnt() == service.learnt(replayed=True)
        assert service.select("anna").version == "v1"
        assert service.check_health().problems == {}


def resident():
    """Megabytes of memory that this process holds."""
    pages = int(Path("/proc/self/statm").read_text().split()[1])
    return pages * os.sysconf("SC_PAGE_SIZE") / 2**20


@pytest.mark.parametrize(
    ("n", "every"),
    [(2_000, 50), pytest.param(300_000, 1_000, marks=pytest.mark.weekly)],
)
def test_in_a_long_run_every_decision_has_one_fate(path, clock, n, every):
    """One visit in so many cannot be learnt, one is interrupted, and the clock steps far ahead and far back."""
    rng, bad = np.random.default_rng(0), 7
    acknowledged, told = bytearray(2 * n), []  # of each event, 1 or 2 if 0 or 1 was
    strays, longest, blind, memory = 0, 0, 0, []
    settings = Settings(attribution=60.0, deadline=60.0, n_draws=5, snapshot_every=200)
    options = {"make_agent": picky, "clock": clock, "settings": settings}
    with shop(path, lambda user: [1.0, float(user)], **options) as service, strikes():
        for visit in range(n):
            clock.now += 1 + 1e9 * (visit == n // 3) - 1e9 * (visit == n // 3 + 5)
            clock.now -= 1e6 * (visit == 2 * n // 3)
            unlearnable = visit % every == every // 2
            user = bad if unlearnable else int(rng.integers(7))
            try:
                if visit % every == 0:
                    signal.setitimer(signal.ITIMER_REAL, rng.uniform(1e-5, 1e-3))
                decision = service.select(user)
                told.append(decision.event_id)
                if unlearnable or rng.random() < 0.6:
                    reward = int(rng.random() < 0.3)
                    service.reward(decision.event_id, reward)
                    acknowledged[decision.event_id] = 1 + reward
                signal.setitimer(signal.ITIMER_REAL, 0)
                blind = blind + 1 if decision.version == FALLBACK else 0
                longest = max(longest, blind)
            except InterruptError:
                strays += 1
            if visit % (n // 10) == n // 10 - 1:
                memory.append(resident())
        clock.now += 120
        fates = service.fates()
        # None lost: at most the visits interrupted were decided without a word.
        rows = service.store._rows(
            "SELECT id, reward FROM events LEFT JOIN rewards ON event = id"
        )
        assert {row[0] for row in rows} >= set(told)
        assert n - strays <= len(told) <= len(rows) <= n
        assert all(acknowledged[event] in (0, 1 + reward) for event, reward in rows)
        assert sum(map(bool, acknowledged)) <= fates["rewarded"] <= n
        # One fate each.
        assert (fates["open"], fates["refused"]) == (0, 0)
        assert fates["rewarded"] + fates["expired"] == len(rows)
        assert service.store.last_seq() == len(rows)
        # No version falls back for good, and what cannot be learnt is set aside, and nothing else.
        assert longest <= 3
        assert [service.select(1).version for _ in range(2)][-1] == "v1"
        aside = service.store._rows("SELECT count(*) FROM set_aside")[0][0]
        assert n // every - strays <= aside <= n // every
        assert service.learnt() == service.learnt(replayed=True)
        assert memory[-1] - memory[2] < 20
        print(
            {
                "events": len(rows),
                **fates,
                "interrupted": strays,
                "set aside": aside,
                "longest": longest,
                "memory": [round(one) for one in memory],
            }
        )


def test_a_transaction_that_nobody_ended_is_undone_first(path):
    with shop(path) as service:
        service.select("anna")
        service.store._db.execute("BEGIN IMMEDIATE")
        service.store._db.execute("DELETE FROM events")
        assert len(service.store.events()) == 1
        service.store._db.execute("BEGIN IMMEDIATE")
        assert service.select("otto").event_id == 2


@pytest.mark.parametrize("step", [50 * 365 * 86_400.0, -50 * 365 * 86_400.0])
def test_one_wrong_reading_of_the_clock_stops_nothing_for_good(path, clock, step):
    clock.now = 1.8e9
    with shop(path, clock=clock) as service:
        service.reward(service.select("anna").event_id, 1)
        clock.now += step
        service.select("anna")
        clock.now -= step
        late = service.select("anna").event_id
        clock.now += EASY.attribution / 2
        service.reward(service.select("anna").event_id, 1)
        clock.now += EASY.attribution
        assert service.fates()["open"] == 0
        with pytest.raises(LateRewardError):
            service.reward(late, 1)
        assert service.store.complete() == service.store.last_event()
        problems = service.check_health().problems
        assert ("clock" in problems) == (step > 0)
        # What is older than an hour by the clock is forgotten, and what is younger not.
        service.select("anna")
        assert service.forget_before(clock.now - 60) == 4
        assert len(service.store.events()) == 1
    with shop(path, clock=clock) as service:
        clock.now += 2 * EASY.attribution
        service.select("anna")
        clock.now += EASY.attribution
        assert service.fates()["open"] == 0


def test_a_clock_out_of_this_world_is_refused(path, clock):
    with shop(path, clock=clock) as service:
        clock.now = 1e300
        with pytest.raises(ValueError, match="clock must be below"):
            service.select("anna")
        clock.now = 1_000.0
        assert service.select("anna").event_id == 1


def test_much_is_forgotten_in_batches_while_others_are_served(path, clock, monkeypatch):
    monkeypatch.setattr("zoolib.service.store.DELETED_AT_ONCE", 7)
    with shop(path, clock=clock) as service:
        for user in range(40):
            service.reward(service.select(user).event_id, user % 2)
        service.select("open")
        clock.now += 10
        young = service.select("young")
        before, delete, served = service.learnt(), service.store._delete_some, []

        def meanwhile(which):
            served.append(service.select("anna").event_id)
            service.reward(served[-1], 1)
            return delete(which)

        with mock.patch.object(service.store, "_delete_some", meanwhile):
            assert service.forget_before(clock.now) == 41
        assert [row[0] for row in service.store.events()] == [young.event_id, *served]
        assert len(served) == 6
        assert service.learnt() == service.learnt(replayed=True) != before
        assert service.store._rows("SELECT count(*) FROM contexts") == [(2,)]
        after = service.learnt()
    with shop(path, clock=clock) as service:
        assert service.learnt() == after


def test_a_reader_that_keeps_traces_alive_is_named(path, monkeypatch):
    monkeypatch.setattr("zoolib.service.database.TIMEOUT", 0.1)
    with shop(path) as service:
        service.select("anna")
        gone = service.store.pseudonym("anna")
        reader = sqlite3.connect(path)
        reader.execute("BEGIN")
        reader.execute("SELECT count(*) FROM events").fetchone()
        with pytest.raises(StoreError, match="is read by another connection, so what"):
            service.erase("anna")
        reader.close()
        assert service.erase("anna") == 0
        for file in path.parent.glob("shop.db*"):
            assert gone not in file.read_bytes()


# ---- Health


def test_health_sees_what_the_file_meets(path, clock):
    with shop(path, clock=clock) as service:
        service.select("anna")
        full = mock.Mock(side_effect=sqlite3.OperationalError("no room"))
        with (
            mock.patch.object(service.store, "commit", full),
            pytest.raises(StoreError),
        ):
            service.select("anna")
        health = service.check_health()
        assert "no room" in health.problems["store"]
        assert health.counters == {"refused": 1}
        assert service.select("anna").event_id == 2
        clock.now += 60
        assert service.check_health().problems == {}
        assert service.check_health().oldest_open == 60
        clock.now += 3 * EASY.attribution
        assert "should expire" in service.check_health().problems["open decisions"]
        path.rename(path.with_name("elsewhere"))
        assert "was removed or replaced" in service.check_health().problems["file"]
        path.write_bytes(b"")
        assert "was removed or replaced" in service.check_health().problems["file"]
        notes = service.check_health().notes
        assert bool(notes) == (sqlite3.sqlite_version_info < (3, 51, 3))


# ---- To analysis and back


def test_the_log_goes_to_the_estimators_in_one_call(path):
    with shop(path) as service:
        for user in range(40):
            service.reward(service.select(user).event_id, user % 2)
        log = read_log(path)
        found = offpolicy.ips(log.for_estimates(), np.full((40, 3), 1 / 3))
        assert found.low < 0.5 < found.high


def test_a_service_starts_from_an_agent_that_was_taught(path):
    taught = own_models(ARMS, 2, 0)
    for _ in range(30):
        taught.update(Context(0, [1.0, 0.1]), "leash", 1.0)
    with shop(path, agent=taught) as service:
        mean = service.agent("v1").posterior.mean
        np.testing.assert_array_equal(mean, taught.posterior.mean)
        service.reward(service.select("anna").event_id, 1)
        assert service.learnt() == service.learnt(replayed=True)
    with pytest.raises(ValueError, match="must return an agent of 3 arms"):
        shop(path.with_name("other.db"), agent=own_models(2, 2, 0))


def test_what_is_the_same_at_every_visit_is_stored_once(path):
    rng = np.random.default_rng(0)
    products, users = rng.normal(size=(800, 8)), rng.normal(size=(500, 4))

    def features(user):
        return np.hstack((products, np.tile(users[user], (800, 1))))

    with BanditService(
        path,
        features,
        800,
        12,
        key=KEY,
        make_agent=lambda k, d, seed: LinTSAgent(k, d, shared=True, alpha=0.3),
        settings=Settings(deadline=60.0, n_draws=2),
    ) as service:
        for user in range(100):
            service.reward(service.select(user).event_id, 1)
        log = service.store.log()
        expected = features(3).astype(np.float32)
        assert (log.features[log.context[3]] == expected).all()
        service.store._rows("PRAGMA wal_checkpoint(TRUNCATE)")
        assert path.stat().st_size < 500_000
        service.forget_before(1e12)
        assert service.store._rows("SELECT count(*) FROM tables") == [(0,)]


def test_what_is_sold_out_is_not_shown_and_logged_so(path):
    settings = Settings(min_sample=10, deadline=60.0)
    with shop(path, settings=settings) as service:
        for user in range(60):
            decision = service.select(user, without=["leash"])
            assert decision.arm != "leash"
            service.reward(decision.event_id, user % 2)
        weights = 1 / service.store.log().propensity
        assert weights.mean() == pytest.approx(2, abs=0.4)  # as many arms on offer
        log = read_log(path)
        assert log.masks[0] == bytes([1, 0, 1])
        name = service.retrain(held_out=0.5)
        assert service.store.version(name).validation["mean_weight"][0] < 1.5
        with mock.patch.object(LinTSAgent, "propensities", side_effect=KeyError):
            decision = service.select("anna", without=["leash"])
            assert (decision.version, decision.arm != "leash") == (FALLBACK, True)
        with pytest.raises(ValueError, match="without must leave an arm to show"):
            service.select("anna", without=ARMS)
        with pytest.raises(ValueError, match="without must be one of"):
            service.select("anna", without=["bone"])


def test_a_visit_is_learnt_when_its_window_has_closed(path, clock):
    settings = Settings(attribution=60.0, when_closed=True, deadline=60.0)
    with shop(path, visitor, clock=clock, settings=settings) as service:
        clicked, missed = (service.select(user).event_id for user in ("anna", "otto"))
        before = service.learnt()
        assert service.reward(missed, 1) == 0
        with pytest.raises(ValueError, match="must have no reward yet"):
            service.reward(missed, 1)
        assert service.learnt() == before
        assert service.fates() == fates(open=1, rewarded=1)
        clock.now += 60
        assert service.fates() == fates(rewarded=1, expired=1)
        log = service.store.log()
        assert log.event.tolist() == [clicked, missed]
        assert log.reward.tolist() == [0, 1]
        assert before != service.learnt() == service.learnt(replayed=True)


# ---- Files


def test_a_saved_file_keeps_the_mode_of_the_one_it_replaces_and_follows_no_link(path):
    agent, secret = own_models(ARMS, 2, 0), path.with_name("secret")
    agent.save(path)
    path.chmod(0o600)
    agent.save(path)
    assert path.stat().st_mode & 0o777 == 0o600
    secret.write_bytes(b"untouched")
    link = path.with_name("link")
    link.symlink_to(secret)
    agent.save(link)
    assert secret.read_bytes() == b"untouched"
    assert not link.is_symlink()
