"""Requests, fates, labels, threads and deadlines of the service, on a small shop with linear agents."""

import _thread
import contextlib
import sqlite3
import sys
import threading
import time
from functools import partial
from unittest import mock

import numpy as np
import pandas as pd
import pytest

from tests.service_crash import commits
from zoolib import Context, LinTSAgent
from zoolib.monitoring import Monitor, rates, same_rates
from zoolib.service import (
    BanditService,
    Decision,
    DuplicateRewardError,
    LateRewardError,
    RewardRejectedError,
    Settings,
    StoreError,
    StoreFullError,
    UnknownEventError,
    Watch,
    neural_linear,
)
from zoolib.service.health import FALLBACK, BusyError, Workers
from zoolib.service.log import COMPLETE
from zoolib.service.model import recover
from zoolib.service.training import train

ARMS, HOUR = ("kibble", "leash", ("toy", 3)), 3_600.0
EASY = Settings(deadline=60.0)
KEY = b"sixteen secret b"


def visitor(user):
    """Two features of the visitor alone."""
    return [1.0, len(str(user)) / 10]


def twin_rolls(service):
    """Begin the rollout of a version that has learnt what the first one began with; return its name."""
    name = service.store.register(
        service.store.snapshots("v1")[0][1],
        0,
        {"passed": True, "against": "v1"},
    )
    service.begin_rollout(name)
    return name


def own_models(arms, d, seed):
    return LinTSAgent(arms, d, alpha=0.3, seed=seed)


def shop(path, features=visitor, arms=ARMS, **options):
    given = {"key": KEY, "make_agent": own_models, "settings": EASY} | options
    return BanditService(path, features, arms, 2, **given)


def fates(**counts):
    """What `service.fates()` says, where those that are not named are none."""
    return dict.fromkeys(("open", "rewarded", "expired", "refused"), 0) | counts


def in_threads(n, call):
    """Call a function with 0 … n - 1, all at once; return the answers in this order."""
    answers, gate = [None] * n, threading.Barrier(n)

    def one(number):
        gate.wait()
        answers[number] = call(number)

    threads = [threading.Thread(target=one, args=(number,)) for number in range(n)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return answers


# ---- Requests


@pytest.mark.parametrize("request_id", ["5f-3", 77, b"\x00\xff", np.int64(77)])
def test_a_request_asked_again_has_the_same_answer_and_one_event(path, request_id):
    with shop(path) as service:
        for other in range(20):  # a second draw would hardly come out the same twice
            service.select("anna", request_id=f"other {other}")
        first = service.select("anna", request_id=request_id)
        assert [service.select("anna", request_id=request_id)] * 3 == [first] * 3
        service.reward(first.event_id, 1)
    with shop(path, seed=9) as service:
        assert service.select("anna", request_id=request_id) == first
        assert len(service.store.events()) == 21
        assert service.select("anna") != first
    assert isinstance(first, Decision)
    assert first.arm in ARMS


def test_ids_of_different_kinds_are_different_requests(path):
    with shop(path) as service:
        events = [service.select("a", request_id=i).event_id for i in (1, "1", b"1")]
    assert events == [1, 2, 3]


def test_a_request_id_of_another_user_is_refused_in_words(path):
    def features(user, hour=0):
        return [1.0, float(hour) / 24]

    with shop(path, features) as service:
        first = service.select("anna", 17, request_id="r")
        before = service.store.events(), service.learnt()
        words = "request_id must be new, or of the same user"
        with pytest.raises(ValueError, match=words):
            service.select("otto", 17, request_id="r")
        assert (service.store.events(), service.learnt()) == before
        assert service.select("anna", 18, request_id="r") == first
        with pytest.raises(ValueError, match="noon"):
            service.select("anna", "noon", request_id="new")
        # Of what is answered, no features are asked again.
        assert service.select("anna", "noon", request_id="r") == first
        assert service.fates()["refused"] == 0


def test_a_request_asked_from_threads_at_once_has_one_event(path):
    with shop(path) as service:
        for request_id in range(25):
            ask = partial(service.select, "anna", request_id=request_id)
            answers = in_threads(4, lambda _, ask=ask: ask())
            assert answers == [answers[0]] * 4
        assert len(service.store.events()) == 25


def test_features_of_the_moment_are_handed_on_and_logged_and_not_kept(path):
    asked = []

    def features(*given):
        asked.append(given)
        return [1.0, given[1]["hour"] if len(given) > 1 else 0.0]

    with shop(path, features) as service:
        night = {"hour": np.float32(0.25), "page": [np.arange(2)]}
        for moment in (night, {"hour": 0.5}, {"hour": 0.5}, None, None):
            event = service.select("anna", moment, request_id=len(asked)).event_id
            service.reward(event, 1)
        assert [given[1:] for given in asked] == [
            (night,),
            *[({"hour": 0.5},)] * 2,
            *[()] * 2,
        ]
        log = service.store.log()
        assert log.features.shape == (3, 3, 2)
        assert log.played[:, 1].tolist() == [0.25, 0.5, 0.5, 0.0, 0.0]


def test_ids_of_requests_are_not_in_the_file(path):
    with shop(path) as service:
        service.select("anna", request_id="anna@example.org")
        service.store._rows("PRAGMA wal_checkpoint(TRUNCATE)")
    assert b"example.org" not in path.read_bytes()


def test_a_request_whose_event_is_erased_is_new(path):
    with shop(path) as service:
        assert service.select("anna", request_id="r").event_id == 1
        service.erase("anna")
        assert service.select("anna", request_id="r").event_id == 2


# ---- Labels, and features of the visitor


def test_arms_have_labels_and_the_database_knows_them(path):
    with shop(path) as service:
        shown = [service.select(number) for number in range(60)]
        assert {decision.arm for decision in shown} == set(ARMS)
        assert [row[2] for row in service.store.events()] == [d.arm for d in shown]
        for decision in shown:
            service.reward(decision.event_id, float(decision.arm == "leash"))
        assert service.agent("v1").arms.names == ARMS
        before = service.learnt()
        assert before == service.learnt(replayed=True)
        score = service.agent("v1").propensities(Context(0, visitor(1)))
        assert score.argmax() == 1
        log = service.store.log()
        assert [ARMS[arm] for arm in log.arm] == [d.arm for d in shown]
        name = service.retrain(held_out=0.5)
        assert service.store.version(name).validation["n"] == 30
    for others in (("kibble", "leash"), (*ARMS[:2], "toy"), ARMS[::-1], 3):
        with pytest.raises(ValueError, match=r"n_arms must be what .* was made with"):
            shop(path, arms=others)
    with shop(path) as service:
        assert service.learnt() == before


def test_agents_without_labels_serve_arms_with_labels(path):
    with shop(path, make_agent=lambda arms, d, seed: LinTSAgent(3, d)) as service:
        decision = service.select(0)
        service.reward(decision.event_id, 1)
        assert decision.arm in ARMS
        assert service.learnt() == service.learnt(replayed=True)


def test_agents_of_other_labels_are_refused(path):
    words = r"with labels \('kibble', .* or none: got LinTSAgent\(n_arms=\['a', "
    with pytest.raises(ValueError, match=words):
        shop(path, make_agent=lambda arms, d, seed: LinTSAgent(("a", "b", "c"), d))


def test_labels_that_no_file_can_hold_are_refused(path):
    with pytest.raises(TypeError, match="not JSON serializable"):
        shop(path, arms=(b"kibble", b"leash"))
    assert not path.exists()


def test_features_of_the_visitor_teach_the_same_as_rows(path):
    def rows(user):
        return np.tile(visitor(user), (3, 1))

    learnt = []
    for name, features in (("one", visitor), ("rows", rows)):
        with shop(path.with_name(name), features) as service:
            for user in range(40):
                service.reward(service.select(user).event_id, user % 2)
            learnt.append(service.learnt())
            log = service.store.log()
            assert log.features.shape[1:] == (3, 2)
            expected = np.array([visitor(user) for user in range(40)], np.float32)
            assert (log.played == expected).all()
    assert learnt[0] == learnt[1]


def test_neural_agents_with_heads_are_retrained_with_labels(path):
    def heads(arms, d, seed):
        agent = neural_linear(arms, d, seed)
        return type(agent)(arms, d, shared=False, train_every=None, seed=seed)

    with shop(path, make_agent=heads) as service:
        for user in range(40):
            service.reward(service.select(user).event_id, user % 2)
        assert service.learnt() == service.learnt(replayed=True)
        name = service.retrain(held_out=0.5, epochs=1)
        assert service.store.version(name).validation["n"] == 20


def test_features_of_the_visitor_alone_are_refused_for_one_model_of_all_arms(path):
    with shop(path, make_agent=lambda k, d, s: LinTSAgent(k, d, shared=True)) as one:
        words = "features must have a row for each of 3 arms: got one"
        with pytest.raises(TypeError, match=words):
            one.select("anna")
        assert one.store.events() == []
        assert one.check_health().problems == {}


def test_features_in_a_table_are_refused_because_the_log_has_no_labels(path):
    def features(user):
        return pd.Series([1.0, 0.5], index=["hour", "length"])

    with shop(path, features) as service:
        words = "features must be an array, because .*: got Series"
        with pytest.raises(TypeError, match=words):
            service.select("anna")
        assert service.store.events() == []


# ---- Fates


def test_every_decision_has_one_fate(path, clock):
    settings = Settings(attribution=HOUR, deadline=60.0)
    with shop(path, clock=clock, settings=settings) as service:
        clicked, missed, late, young = (service.select(n).event_id for n in range(4))
        service.reward(clicked, 1)
        assert service.fates() == fates(open=3, rewarded=1)
        clock.now += HOUR - 1
        assert service.store.expire() == 0
        service.reward(late, 0.5)  # it is not, quite
        clock.now += 1
        assert service.store.expire() == 2
        assert service.store.expire() == 0
        before = service.learnt(), service.store.events()
        for event in (missed, young):
            words = f"event_id must be of an event that has not expired: got {event}"
            with pytest.raises(LateRewardError, match=words):
                service.reward(event, 1)
        for event in (clicked, late):
            with pytest.raises(DuplicateRewardError):
                service.reward(event, 1)
        with pytest.raises(UnknownEventError):
            service.reward(99, 1)
        assert (service.learnt(), service.store.events()) == before
        assert [row[-1] for row in service.store.events()] == [1, 0, 0.5, 0]
        assert service.fates() == fates(rewarded=2, expired=2)
        assert service.check_health().counters == {
            "rejected: late reward": 2,
            "rejected: duplicate reward": 2,
            "rejected: unknown event": 1,
        }
    assert issubclass(LateRewardError, RewardRejectedError)


def test_expired_decisions_are_zeros_in_the_log_and_learnt_in_its_order(path, clock):
    with shop(path, clock=clock) as service:
        events = [service.select(user).event_id for user in range(30)]
        for event in events[::3]:
            service.reward(event, 1)
        before = service.learnt()
        clock.now += EASY.attribution
        assert service.store.expire() == 20
        log = service.store.log()
        assert sorted(log.seq) == list(range(1, 31))
        zeros = [event for event in events if event % 3 != 1]
        rows = list(service.store.rewards_after(0))
        assert [row[1] for row in rows] == events[::3] + zeros
        assert [row[-1] for row in rows] == [1] * 10 + [0] * 20
        assert log.event.tolist() == events
        after = service.learnt()
        assert before != after == service.learnt(replayed=True)
        plain = LinTSAgent(ARMS, 2, alpha=0.3)
        for row in log.seq.argsort():
            context = Context(0, log.features[log.context[row], :1])
            plain.update(context, ARMS[log.arm[row]], log.reward[row])
        np.testing.assert_array_equal(
            plain.posterior.mean, service.agent("v1").posterior.mean
        )
    with shop(path, clock=clock) as service:
        assert service.learnt() == after


def test_a_late_reward_is_refused_though_nobody_came_before_and_writes_nothing(
    path, clock
):
    with shop(path, clock=clock) as service:
        events = [service.select(user).event_id for user in range(30)]
        clock.now += EASY.attribution
        before = service.store._db.total_changes
        for event, error in ((events[-1], LateRewardError), (999, UnknownEventError)):
            with pytest.raises(error):
                service.reward(event, 1)
        assert service.store._db.total_changes == before  # its zero waits for its turn
        assert service.fates()["expired"] == 30
        learnt = [row[1] for row in service.store.rewards_after(0)]
        assert learnt == events


def test_serving_expires_a_few_decisions_in_passing(path, clock):
    with shop(path, clock=clock) as service:
        old = [service.select(user).event_id for user in range(25)]
        clock.now += EASY.attribution
        new = service.select("anna").event_id
        assert service.store.fates()["expired"] == 10
        service.reward(new, 1)
        learnt = [row[1] for row in service.store.rewards_after(0)]
        assert learnt == [*old[:10], new]
        service.select("anna")
        service.select("anna")
        assert service.store.fates() == fates(open=2, rewarded=1, expired=25)


def test_a_clock_that_goes_backwards_lets_nothing_come_back(path, clock):
    with shop(path, clock=clock) as service:
        first, second = (service.select(n).event_id for n in range(2))
        clock.now += EASY.attribution
        service.store.expire()
        clock.now -= EASY.attribution
        for event in (first, second):
            with pytest.raises(LateRewardError):
                service.reward(event, 1)
        # Time stands still until the clock has caught up: the window is not longer for it.
        third = service.select(2).event_id
        clock.now += 2 * EASY.attribution - 1
        service.reward(third, 1)
        assert service.fates() == fates(rewarded=1, expired=2)


def test_the_window_is_the_one_that_held_when_the_decision_was_made(path, clock):
    with shop(path, clock=clock) as service:
        service.select(0)
    shorter = Settings(attribution=10.0, deadline=60.0)
    with shop(path, clock=clock, settings=shorter) as service:
        service.select(1)
        clock.now += 10
        assert service.fates() == fates(open=1, expired=1)


def test_many_decisions_expire_in_several_transactions(path, clock, monkeypatch):
    monkeypatch.setattr("zoolib.service.store.EXPIRED_IN_ONE_GO", 7)
    monkeypatch.setattr("zoolib.service.log.READ_AT_ONCE", 3)
    written = []
    with shop(path, clock=clock) as service:
        for user in range(20):
            service.select(user)
        clock.now += EASY.attribution
        with commits(service, after=lambda: written.append(service.store.last_seq())):
            assert service.store.expire() == 20
        assert written == [7, 14, 20]
        assert service.learnt() == service.learnt(replayed=True)


def test_snapshots_come_though_zeros_take_the_round_numbers(path, clock):
    settings = Settings(snapshot_every=10, deadline=60.0)
    with shop(path, clock=clock, settings=settings) as service:
        for user in range(12):
            service.select(user)
        clock.now += EASY.attribution
        service.store.expire()
        service.reward(service.select("anna").event_id, 1)
        service.select("anna")
        assert [seq for seq, _ in service.store.snapshots("v1")] == [12, 0]


@pytest.mark.parametrize(
    "statement",
    [
        "INSERT INTO rewards (event, reward, time, expired) VALUES (2, 0.5, 0, 1)",
        "INSERT INTO rewards (event, reward, time, expired) VALUES (2, 0, 0, 2)",
        "INSERT INTO rewards (event, reward, time, expired) VALUES (1, 0, 0, 1)",
        "UPDATE events SET open = 2",
        "UPDATE events SET request = x'00'",
    ],
)
def test_the_schema_itself_refuses_a_second_fate(path, statement):
    with shop(path) as service:
        for user in (1, 2):
            service.select(user)
        service.reward(1, 1)
        assert service.store._rows("SELECT open FROM events") == [(0,), (1,)]
        with pytest.raises(sqlite3.IntegrityError):
            service.store._db.execute(statement)


def test_a_look_for_what_is_due_reads_an_index_of_open_events(path):
    with shop(path) as service:
        for sql in (
            "SELECT id FROM events WHERE open AND due <= 5 ORDER BY due, id LIMIT 10",
            "SELECT id FROM events WHERE request = x'00'",
            "SELECT min(id) FROM events INDEXED BY open_events WHERE open",
        ):
            ((*_, plan),) = service.store._rows(f"EXPLAIN QUERY PLAN {sql}")
            assert plan.startswith(("SEARCH events USING", "SCAN events USING"))
            assert "INDEX" in plan
        assert "INDEXED BY open_events WHERE open" in COMPLETE


# ---- What counts them


def clicks_only(service, rate, n, clock, rng):
    """Serve visits of which only the clicks are reported, at once."""
    for _ in range(n):
        clock.now += 1
        decision = service.select(int(rng.integers(300)))
        if rng.random() < rate(decision):
            service.reward(decision.event_id, 1)


@pytest.mark.no_cover
@pytest.mark.parametrize("worse", [False, True])
def test_a_guardrail_that_is_told_of_clicks_only_sees_the_click_rate(
    path, clock, worse
):
    settings = Settings(
        attribution=50.0,
        deadline=60.0,
        guard_visits=150,
        guard_level=0.05,
    )
    with shop(path, clock=clock, settings=settings) as service:
        store, rng = service.store, np.random.default_rng(0)
        name = twin_rolls(service)
        store.move((service.rollout.rolling, "rolling", 50, ""))

        def rate(decision):
            return 0.05 if worse and decision.version == name else 0.3

        clicks_only(service, rate, 40, clock, rng)
        visits = service.review_rollout().visits
        # Of those behind the first that is open only clicks are known: they do not count.
        assert sum(visits) == store.complete() < store.last_seq()
        clicks_only(service, rate, 700, clock, rng)
        review = service.review_rollout()
        new, old = review.rates
        assert sum(review.visits) > 600
        assert old == pytest.approx(0.3, abs=0.07)
        assert new == pytest.approx(0.05 if worse else 0.3, abs=0.07)
        assert review.outcome == ("rolled back" if worse else "promoted")


def test_monitors_that_are_told_of_clicks_only_see_every_visit_once(path, clock):
    def watched():
        monitor = Monitor(
            "clicks", rates(), same_rates, window=100, reference=2, false_alarms=0.5
        )
        return Watch(monitor, lambda log: ((log.reward > 0).astype(int),))

    settings = Settings(attribution=50.0, deadline=60.0)
    rng, one = np.random.default_rng(1), watched()
    with shop(path, clock=clock, settings=settings, watches=[one]) as service:
        clicks_only(service, lambda decision: 0.3, 230, clock, rng)
        assert service.watch() == []
        assert one.event == service.store.complete() >= 180
    one = watched()
    with shop(path, clock=clock, settings=settings, watches=[one]) as service:
        clicks_only(service, lambda decision: 0.3, 270, clock, rng)
        assert service.watch() == []  # with clicks alone at its beginning it would ring
        clicks_only(service, lambda decision: 0.02, 200, clock, rng)
        clock.now += 50
        assert [alert.step for alert in service.watch()] != []
        assert one.event == 700 == len(service.store.log())


@pytest.mark.no_cover
@pytest.mark.parametrize("window", [50.0, 300.0])
def test_a_retraining_that_is_told_of_clicks_only_sees_the_click_rate(
    path, clock, window
):
    settings = Settings(attribution=window, deadline=60.0, min_sample=10)
    with shop(path, clock=clock, settings=settings) as service:
        store, trained = service.store, []
        clicks_only(
            service, lambda decision: 0.3, 1_000, clock, np.random.default_rng(0)
        )
        read = store.log

        def log():
            found = read()
            clock.now += window
            service.store.expire()  # as another thread may, meanwhile
            return found

        def training(agent, log, epochs):
            trained.append(log)
            return train(agent, log, epochs)

        complete = store.complete()
        with (
            mock.patch.object(store, "log", log),
            mock.patch("zoolib.service.loop.train", training),
        ):
            name = service.retrain(held_out=0.3)
        figures, (older,) = store.version(name).validation, trained
        assert figures["n"] == int(0.3 * complete) > 200
        assert figures["served"][0] == pytest.approx(0.3, abs=0.07)
        assert older.reward.mean() == pytest.approx(0.3, abs=0.05)
        assert sorted(older.event) == list(range(1, complete - figures["n"] + 1))
        # What neither trained nor judged is learnt as well, and each reward once.
        candidate, recovery = recover(store, name)
        assert candidate.seq == store.last_seq() == recovery.snapshot == 1_000
        np.testing.assert_allclose(
            candidate.agent.posterior.b, service.agent("v1").posterior.b, rtol=1e-9
        )


# ---- Refused


def test_a_decision_that_does_not_reach_the_disk_is_refused(path):
    with shop(path) as service:
        kept, calls = service.store.commit, []

        def full():
            calls.append(1)
            if len(calls) == 1:
                raise sqlite3.OperationalError("no room")
            kept()

        with mock.patch.object(service.store, "commit", full):
            with pytest.raises(StoreError, match="no room"):
                service.select(0, request_id="r")
            assert service.store.events() == []
            again = service.select(0, request_id="r")
        assert again.event_id == 1
        assert service.fates() == fates(open=1, refused=1)


def test_a_file_is_closed_when_no_thread_is_at_it(path):
    service, closed = shop(path), threading.Event()
    with service.store.alone:
        thread = threading.Thread(target=lambda: (service.close(), closed.set()))
        thread.start()
        assert not closed.wait(0.05)
        assert service.store.events() == []
    thread.join()
    assert closed.is_set()


# ---- Threads


def test_threads_serve_and_learn_at_once(path):
    with shop(path) as service:
        before = service.store.last_event()

        def busy(number):
            for step in range(100):
                event = service.select(100 * number + step).event_id
                if step % 3:
                    service.reward(event, step % 2)
                if step % 25 == 0:
                    service.fates()
                    service.check_health()

        in_threads(4, busy)
        assert service.store.last_event() == before + 400
        assert service.fates() == fates(open=136, rewarded=264)
        assert service.learnt() == service.learnt(replayed=True)
        assert service.check_health().problems == {}


def test_a_visit_that_overtakes_another_is_no_step_backwards_of_the_clock(path, clock):
    def features(user):
        clock.now += 1
        if user == "slow":
            service.select("quick")
        return visitor(user)

    with shop(path, features, clock=clock) as service:
        service.select("slow")
        assert service.store.counters == {}
        assert [row[5] for row in service.store.events()] == [1_002.0] * 2


# ---- Deletion


def test_zeros_that_are_deleted_are_learnt_all_the_same(path, clock):
    settings = Settings(attribution=50.0, deadline=60.0)
    with shop(path, clock=clock, settings=settings) as service:
        for user in range(5):
            service.select(user)
        clock.now += 50
        service.select("late")
        model = service._models["v1"]
        assert (model.seq, service.store.last_seq()) == (0, 5)
        assert service.erase(3) == 1
        after = service.learnt()
        assert service._models["v1"].seq == 5
        assert after == service.learnt(replayed=True)
    with shop(path, clock=clock, settings=settings) as service:
        assert service.learnt() == after


def test_a_recovery_begins_again_if_another_thread_deletes_meanwhile(path):
    with shop(path) as service:
        for user in range(5):
            service.reward(service.select(user).event_id, 1)
        found = service.store.snapshots
        looks = iter([lambda: service.erase(3), *[lambda: None] * 9])

        def snapshots(name):
            rows = found(name)
            next(looks)()
            return rows

        with mock.patch.object(service.store, "snapshots", snapshots):
            model, recovery = recover(service.store, "v1")
        assert (recovery.snapshot, recovery.replayed) == (5, 0)
        assert {"v1": model.to_bytes()} == service.learnt()


# ---- Deadlines

SOON = Settings(deadline=0.2, floor=0.2)


@pytest.fixture
def hang():
    """Something that hangs until the test is over."""
    gate = threading.Event()
    yield lambda: gate.wait(60)
    gate.set()


def test_features_that_hang_do_not_hang_the_shop(path, clock, hang):
    hanging = []

    def features(user, moment=None):
        if hanging:
            hang()
        return visitor(user)

    with shop(path, features, clock=clock, settings=SOON) as service:
        service.reward(service.select("anna").event_id, 1)
        before = service.learnt()
        hanging.append(1)
        began = time.perf_counter()
        blind = [service.select(n, n, request_id=n) for n in range(8)]
        assert {decision.version for decision in blind} == {FALLBACK}
        assert time.perf_counter() - began >= 8 * 0.2
        hung, began = service._workers.hung, time.perf_counter()
        blind += [service.select(n, n, request_id=n) for n in range(8, 28)]
        # All threads hang: nobody is waited for, and no thread is begun.
        assert time.perf_counter() - began < 20 * 0.2
        assert service._workers.hung == hung == 8
        assert service.select(27, 27, request_id=27) == blind[-1]
        # They have their fates, and teach nothing.
        for decision in blind[:20]:
            service.reward(decision.event_id, 1)
        clock.now += SOON.attribution
        assert service.fates() == fates(rewarded=21, expired=8)
        log = service.store.log()
        assert (log.context == -1).sum() == 28
        assert len(service.store.log()) == 29
        after = service.learnt()
        assert service._models["v1"].seq == 29
        assert after == service.learnt(replayed=True)
        totals = service.store.arm_totals(100).sum(axis=1)
        assert totals.tolist() == [29, 21]
        service.forget_before(clock.now + 1)  # a snapshot knows that it has seen them
        assert service.learnt() == after == before
    with shop(path, clock=clock) as service:
        assert service.learnt() == after


def test_models_are_not_blamed_for_features_that_hang(path, clock, hang):
    def features(user):
        if isinstance(user, int):
            hang()
        return visitor(user)

    with shop(path, features, clock=clock, settings=SOON) as service:
        name = twin_rolls(service)
        users = [
            str(n)
            for n in range(500)
            if service.rollout.assign(service.store.pseudonym(str(n))) == name
        ]
        events = [service.select(users[0]).event_id for _ in range(3)]
        for number in range(8):
            service.select(number)
        models = dict(service._models)
        for event in events:
            service.reward(event, 1)
        clock.now += 1
        for _ in range(3):
            assert service.select(users[0]).version == FALLBACK
        clock.now += 31  # a health check is due, and cannot be made
        service.select(users[0])
        assert service.check_health().problems == {"hung calls": "8 of 8 threads hang"}
        assert {name: service._models[name] for name in models} == models
        assert service.review_rollout().outcome == "waiting"


def test_decisions_expire_though_a_model_hangs(path, clock, hang):
    with shop(path, clock=clock, settings=SOON) as service:
        service.select("anna")
        service.agent("v1").update = lambda *given: hang()
        clock.now += SOON.attribution
        assert service.fates()["expired"] == 1
        assert service.select("anna").version == FALLBACK
        problems = service.check_health().problems
        assert problems["v1"] == "no answer within 0.2 s"


def test_events_without_features_alone_train_nobody(path):
    def late(user):
        raise TimeoutError("the cache did not answer")

    with shop(path, late) as service:
        for user in range(4):
            decision = service.select(user)
            service.reward(decision.event_id, 1)
        assert decision.version == FALLBACK
        assert service.store.log().features.shape == (0, 3, 2)
        with pytest.raises(ValueError, match="log must hold rewarded events: got none"):
            service.retrain(held_out=0.5)


def test_errors_of_features_stay_the_callers(path):
    def features(user):
        raise LookupError(f"no {user} here")

    with shop(path, features) as service:
        with pytest.raises(LookupError, match="no anna here"):
            service.select("anna")
        assert service.store.events() == []


def test_a_model_that_hangs_does_not_hang_the_shop(path, clock, hang):
    with shop(path, clock=clock, settings=SOON) as service:
        service.reward(service.select("anna").event_id, 1)
        before = service.learnt()
        agent = service.agent("v1")
        agent.propensities = lambda *given, **options: hang()
        assert service.select("anna").version == FALLBACK
        assert service.check_health().problems == {
            "v1": "no answer within 0.2 s",
            "hung calls": "1 of 8 threads hang",
        }
        # What hangs keeps the agent that it has; another one comes from the disk.
        assert service.select("anna").version == "v1"
        assert service.agent("v1") is not agent
        assert service.learnt() == before
        assert service.store.log().context.tolist() == [0]


def test_learning_that_hangs_does_not_hang_the_shop(path, clock, hang):
    with shop(path, clock=clock, settings=SOON) as service:
        event = service.select("anna").event_id
        service.agent("v1").update = lambda *given: hang()
        assert service.reward(event, 1) == 1
        assert service.select("anna").version == FALLBACK
        assert service.select("anna").version == "v1"
        assert service.learnt() == service.learnt(replayed=True)


def test_a_thread_does_not_wait_for_ever_for_a_model_at_a_call_that_hangs(path, hang):
    with shop(path, settings=SOON) as service:
        model = service._models["v1"]
        with model.lock, pytest.raises(TimeoutError, match="v1 is at another call"):
            service.agent("v1")
        problems = service.check_health().problems
        assert problems["v1"] == "v1 is at another call that has not returned"


def test_a_health_check_that_hangs_stops_the_model_not_the_shop(path, hang):
    with shop(path, settings=SOON, healthy=hang) as service:
        assert service.select("anna").version == FALLBACK
        problems = service.check_health().problems
        assert problems["v1"] == "no answer within 0.2 s"


def test_so_many_calls_may_hang_and_those_that_return_make_room():
    workers, gates = Workers(2), [threading.Event() for _ in range(2)]
    assert workers.call(threading.get_ident, 60).value != threading.get_ident()
    for gate in gates:
        answer = workers.call(gate.wait, 0.01)
        assert type(answer.error) is TimeoutError
        assert str(answer.error) == "no answer within 0.01 s"
    answer = workers.call(int, 60)
    assert isinstance(answer.error, BusyError)
    assert str(answer.error) == "2 calls before this one have not returned"
    assert workers.hung == 2
    assert workers.call(int, None).value == 0  # it is waited for, whatever hangs
    gates[0].set()
    while workers.hung == 2:
        time.sleep(0.001)
    assert workers.call(lambda: "free", 60).value == "free"
    assert isinstance(workers.call(lambda: 1 / 0, 60).error, ZeroDivisionError)
    gates[1].set()


def test_calls_that_return_in_time_do_not_wait_for_each_other():
    workers, gate = Workers(1), threading.Event()
    first = threading.Thread(target=workers.call, args=(gate.wait, 60))
    first.start()
    assert workers.call(lambda: "second", 60).value == "second"
    gate.set()
    first.join()


def wait_for_threads(n):
    """Wait until no more than n threads are left."""
    began = time.perf_counter()
    while _thread._count() > n and time.perf_counter() < began + 30:
        time.sleep(0.001)
    assert _thread._count() == n


def test_threads_are_used_again_and_end_when_the_service_is_closed(path):
    before = _thread._count()
    service = shop(path)
    for user in range(20):
        service.select(user)
    assert _thread._count() <= before + 2
    service.close()
    wait_for_threads(before)


def test_a_thread_whose_call_returns_after_the_closing_ends():
    workers, gate = Workers(1), threading.Event()
    before = _thread._count()
    assert isinstance(workers.call(gate.wait, 0.01).error, TimeoutError)
    workers.close()
    assert _thread._count() == before + 1
    gate.set()
    wait_for_threads(before)


def test_a_service_that_is_closed_says_so_at_once(path):
    service = shop(path)
    service.select("anna")
    service.close()
    began = time.perf_counter()
    with pytest.raises(StoreError, match="closed database"):
        service.select("otto")
    assert time.perf_counter() - began < 30


# ---- The house


def test_a_database_of_an_agent_whose_extra_is_missing_is_closed_again(path):
    features = partial(np.zeros, (3, 2))
    shop(path, lambda user: features(), make_agent=neural_linear).close()
    opened = []

    class Spied(sqlite3.Connection):
        def close(self):
            opened.remove(self)
            super().close()

    def connect(*given, **options):
        opened.append(sqlite3.Connection.__new__(Spied))
        opened[-1].__init__(*given, **options)
        return opened[-1]

    missing = {
        name: None
        for name in sys.modules
        if name == "torch" or name.startswith("zoolib.agents.neural_linear")
    }
    with (
        mock.patch("zoolib.service.database.sqlite3.connect", connect),
        mock.patch(
            "zoolib.service.loop.recover", mock.Mock(side_effect=ImportError("torch"))
        ),
        mock.patch.dict(sys.modules, missing),
        pytest.raises(ImportError, match="torch"),
    ):
        shop(path, lambda user: features(), make_agent=neural_linear)
    assert opened == []


def test_a_retired_version_is_not_kept_in_memory(path):
    with shop(path) as service:
        with contextlib.suppress(KeyError):
            service._models["v9"] = service._models["v1"]
        service._load()
        assert list(service._models) == ["v1"]
        store = service.store  # nor if its last visit comes late
        service.begin_rollout(
            store.register(
                store.snapshots("v1")[0][1],
                0,
                {"passed": True, "against": "v1"},
            )
        )
        store.move((service.rollout.rolling, "retired", 0, "broken"))
        service._load()
        assert service.agent("v2").n_arms == 3
        assert list(service._models) == ["v1"]


def test_a_disk_that_is_full_for_zeros_loses_no_fate(path, clock):
    with shop(path, clock=clock) as service:
        for user in range(5):
            service.select(user)
        clock.now += EASY.attribution
        full = mock.Mock(side_effect=sqlite3.OperationalError("no room"))
        with (
            mock.patch.object(service.store, "commit", full),
            pytest.raises(StoreError, match="no room"),
        ):
            service.store.expire()
        assert service.store.last_seq() == 0
        assert service.store.expire() == 5
    assert issubclass(StoreFullError, StoreError)
