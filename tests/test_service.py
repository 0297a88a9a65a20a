import sqlite3

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from tests.service_crash import FEATURES, SETTINGS, WORLD, opened, quick_folder
from zoolib.choice import draw
from zoolib.monitoring import Monitor, at_most, rates, same_rates
from zoolib.posterior import RidgePosterior
from zoolib.service import (
    DuplicateRewardError,
    RewardRejectedError,
    Settings,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    UnknownEventError,
    Watch,
)
from zoolib.service.context import FeatureCache, Pseudonyms
from zoolib.service.health import Breaker, Fallback
from zoolib.service.model import FrozenNetwork, Head, choice_probabilities
from zoolib.service.recovery import recover
from zoolib.service.store import Store
from zoolib.service.watching import arms, clicks, fallbacks

NAN, INF = float("nan"), float("inf")


class Clock:
    """A clock that stands still until it is set."""

    now = 1_000.0

    def __call__(self):
        return self.now


@pytest.fixture
def path():
    with quick_folder() as folder:
        yield folder / "shop.db"


@pytest.fixture
def clock():
    return Clock()


def with_settings(**options):
    return Settings(**({"latency_limit": 60.0, "n_draws": 20} | options))


def played(service, n, seed=0):
    """Serve n visits and send their rewards; return the decisions and rewards."""
    rng = np.random.default_rng(seed)
    visits = []
    for _ in range(n):
        user = int(rng.integers(1000))
        decision = service.select(user)
        reward = int(rng.random() < WORLD.true_ctr(user, decision.arm))
        service.reward(decision.event_id, reward)
        visits.append((decision, reward))
    return visits


def state_of(service):
    """All that decides what comes next, in memory and on disk, but for luck and counters."""
    fallback = service._fallback
    return (
        service.head_bytes(),
        service.store.events(),
        service.store.versions(),
        service.store.last_event(),
        service.store.last_seq(),
        (fallback.seq, *fallback.visits, *fallback.rewards),
    )


# ---- The head and the network


def rows(n, d, seed=0):
    rng = np.random.default_rng(seed)
    return rng.normal(size=(n, d)), rng.random(n)


def test_a_head_learns_what_a_ridge_posterior_learns():
    head, plain = Head(3, 2.5), RidgePosterior(3, 2.5)
    for x, r in zip(*rows(50, 3), strict=True):
        head.update(x, r)
        plain.update(x, r)
    np.testing.assert_allclose(head.A, plain.A, rtol=1e-12)
    np.testing.assert_allclose(head.mean, plain.mean, rtol=1e-12)


@given(st.integers(0, 40), st.lists(st.integers(0, 39), max_size=5))
@settings(max_examples=30, deadline=None)
def test_a_head_comes_back_to_the_last_bit_and_goes_on_alike(cut, looks):
    first, second = Head(4, 0.7), Head(4, 0.7)
    for step, (x, r) in enumerate(zip(*rows(40, 4), strict=True)):
        if step == cut:
            second = Head.from_bytes(second.to_bytes())
        if step in looks:
            _ = first.A  # who looks changes nothing
        first.update(x, r)
        second.update(x, r)
    assert first.to_bytes() == second.to_bytes()
    assert first._next_check == second._next_check


@pytest.mark.parametrize(
    "blob", [b"", b"1234567", b"x" * 80, np.full(20, NAN).tobytes()]
)
def test_other_bytes_are_no_head(blob):
    with pytest.raises(ValueError, match="blob must be the bytes of a head"):
        Head.from_bytes(blob)


def test_a_network_comes_back_the_same():
    network = FrozenNetwork((9, 8, 4), seed=3)
    again = FrozenNetwork.from_bytes(network.to_bytes())
    x = FEATURES.transform(0).astype(np.float32)
    assert network.width == again.width == 13
    assert (network.embed(x) == again.embed(x)).all()
    with torch.no_grad():
        expected = network.mlp(torch.from_numpy(x)).numpy()
    np.testing.assert_allclose(network.embed(x)[:, :4], expected, rtol=1e-5, atol=1e-6)
    assert (network.embed(x)[:, 4:] == x).all()
    assert not any(p.requires_grad for p in again.mlp.parameters())


@pytest.mark.parametrize(
    "blob",
    [
        b"",
        b"no json\n",
        b"[9, 4]\n1234",
        b"[9, 4]\n" + bytes(4 * 41),
        b"{}\n",
        b"[9]\n",
        b"7\n",
    ],
)
def test_other_bytes_are_no_network(blob):
    with pytest.raises(ValueError, match="blob must be the bytes of a network"):
        FrozenNetwork.from_bytes(blob)


def test_embeddings_that_overflow_are_refused():
    network = FrozenNetwork((2, 3), seed=0)
    network.mlp.weights[0].fill_(10)
    with pytest.raises(FloatingPointError, match="embeddings must be finite"):
        network.embed(np.full((1, 2), 3e38, np.float32))


def test_choice_probabilities_are_those_of_thompson_sampling():
    """Two rows with independent scores: the better one wins with a probability of known form."""
    head, options = Head(2, 1.0), Settings(n_draws=20_000, floor=0.1, noise=0.5)
    head.update(
        [1.0, 0.0], 1.0
    )  # mean 1/2, variance 1/2; the other: mean 0, variance 1
    z, group = np.eye(2), np.array([0, 1, 1, 1])
    found = choice_probabilities(head, z, group, options, np.random.default_rng(0))
    from scipy.stats import norm

    wins = norm.cdf(0.5 / (0.5 * np.sqrt(1.5)))
    expected = 0.9 * np.array([wins, *[(1 - wins) / 3] * 3]) + 0.1 / 4
    np.testing.assert_allclose(found, expected, atol=0.01)
    assert found.sum() == pytest.approx(1)


# ---- Serving


def test_a_decision_is_logged_with_all_that_made_it(path, clock):
    with opened(path, clock=clock) as service:
        decision = service.select(7)
        (event,) = service.store.events()
    user = Pseudonyms(b"sixteen secret b").of(7)
    assert event == (
        decision.event_id,
        user,
        decision.arm,
        decision.propensity,
        "v1",
        clock.now,
        None,
    )
    raw = sqlite3.connect(path)
    ((blob,),) = raw.execute("SELECT features FROM contexts").fetchall()
    raw.close()
    logged = np.frombuffer(blob, "<f4").reshape(50, 9)
    assert (logged == FEATURES.transform(7)).all()


def test_the_propensity_logged_is_the_probability_drawn_with(path, monkeypatch):
    seen = []

    def spied(policy, rng):
        seen.append((policy, *draw(policy, rng)))
        return seen[-1][1:]

    monkeypatch.setattr("zoolib.service.loop.draw", spied)
    with opened(path) as service:
        for decision, _ in played(service, 300):
            policy, arm, propensity = seen[decision.event_id - 1]
            assert decision.propensity == policy[decision.arm] == propensity
            assert decision.arm == arm
            assert policy.min() >= SETTINGS.floor / 50
    # Were choices drawn from the stream that the visitors come from, this would fail.
    # Inverse propensities count the arms that could have come: 50 a visit, up to luck.
    weights = np.array([1 / propensity for *_, propensity in seen])
    spread = np.sqrt(sum((1 / policy).sum() - 50**2 for policy, *_ in seen)) / len(seen)
    assert abs(weights.mean() - 50) < 4 * spread


def test_a_restart_goes_on_with_other_luck(path):
    with opened(path, seed=5) as service:
        first = [service.select(0).arm for _ in range(30)]
    with opened(path, seed=5) as service:
        assert [service.select(0).arm for _ in range(30)] != first


def test_the_same_seed_serves_the_same(path):
    with opened(path, seed=5) as service:
        first = [d for d, _ in played(service, 30)]
    with opened(path.with_name("other.db"), seed=5) as service:
        assert [d for d, _ in played(service, 30)] == first


@pytest.mark.parametrize("user", [1000, -1])
def test_unknown_users_are_not_served(path, user):
    with opened(path) as service:
        before = state_of(service)
        with pytest.raises(
            ValueError, match=f"user_id must lie in 0 … 999: got {user}"
        ):
            service.select(user)
        assert state_of(service) == before


@pytest.mark.parametrize(
    ("answer", "shape"),
    [(np.zeros((50, 8)), "(50, 8)"), (np.full((50, 9), NAN), "(50, 9)")],
)
def test_features_that_are_none_are_refused(path, answer, shape):
    with opened(path, features=lambda user: answer) as service:
        with pytest.raises(
            ValueError, match="features must be finite and of shape"
        ) as error:
            service.select(0)
        assert shape in str(error.value)
        assert service.store.events() == []


def test_features_are_kept_for_a_while():
    asked = []

    def features(user):
        asked.append(user)
        return np.array([[user, 0], [user, 0], [0, 1]], float)

    cache = FeatureCache(features, (3, 2), size=2, seconds=10)
    first = cache("a" and 1, now=0)
    assert cache(1, now=9.9) is first
    assert (first.rows[first.group] == first.features).all()
    assert len(first.rows) == 2
    cache(1, now=10)  # too old
    cache(1, now=5)  # from a clock that went backwards
    assert asked == [1, 1, 1]
    cache(2, now=5)
    cache(1, now=6)
    cache(3, now=6)  # drops 2, which was asked for longest ago
    assert len(cache) == 2
    cache(1, now=7)
    assert asked == [1, 1, 1, 2, 3]
    cache.forget(1)
    cache.forget("nobody")
    cache(1, now=7)
    assert asked[-1] == 1


def test_pseudonyms_depend_on_the_key_and_on_nothing_else():
    one, other = Pseudonyms(b"k" * 16), Pseudonyms(b"l" * 16)
    assert one.of(7) == Pseudonyms(b"k" * 16).of(7) == one.of(np.int64(7)) != one.of(8)
    assert one.of(7) != other.of(7)
    assert one.check != other.check


@pytest.mark.parametrize("key", [b"short", b"x" * 65, "k" * 16, None])
def test_a_key_must_be_secret_bytes(key):
    with pytest.raises(ValueError, match="key must be 16 to 64 bytes"):
        Pseudonyms(key)


# ---- Rewards


def test_a_reward_is_learnt_at_once(path):
    with opened(path) as service:
        before = service.head_bytes()
        ((decision, reward),) = played(service, 1)
        assert service.head_bytes() != before
        x = FEATURES.transform(int(np.random.default_rng(0).integers(1000)))[
            decision.arm
        ]
        model = service._models["v1"]
        z = model.network.embed(x[None].astype(np.float32))[0]
        np.testing.assert_allclose(model.head.A, np.eye(41) + np.outer(z, z))
        np.testing.assert_allclose(model.head.b, reward * z)


def test_a_reward_of_an_event_never_served_is_rejected_and_counted(path):
    with opened(path) as service:
        decision, _ = played(service, 1)[0]
        before = state_of(service)
        for event in (decision.event_id + 1, 0, 2**63, 10**30):
            with pytest.raises(
                UnknownEventError, match="event_id must be of an event served: got"
            ):
                service.reward(event, 1)
        with pytest.raises(
            DuplicateRewardError, match="event_id must have no reward yet: got 1"
        ):
            service.reward(decision.event_id, 1)
        assert state_of(service) == before
    with opened(path) as service:
        counters = service.check_health().counters
        assert counters == {
            "rejected: unknown event": 4,
            "rejected: duplicate reward": 1,
        }
        assert issubclass(UnknownEventError, RewardRejectedError)


@pytest.mark.parametrize(
    ("event", "reward", "error", "words"),
    [
        (1, NAN, ValueError, r"reward must lie in \[0, 1\]: got nan"),
        (1, 1.5, ValueError, r"reward must lie in \[0, 1\]: got 1.5"),
        (1, -0.1, ValueError, "reward must lie in"),
        (1, "1", TypeError, "reward must be a number"),
        (1.0, 1, TypeError, "event_id must be a whole number"),
        (-1, 1, ValueError, "event_id must be at least 0: got -1"),
    ],
)
def test_rewards_that_are_none_change_nothing(path, event, reward, error, words):
    with opened(path) as service:
        service.select(0)
        before = state_of(service)
        with pytest.raises(error, match=words):
            service.reward(event, reward)
        assert state_of(service) == before
        assert service.store.counters() == {}


def test_a_clock_that_goes_backwards_is_held_and_counted(path, clock):
    with opened(path, clock=clock) as service:
        event = service.select(0).event_id
        clock.now -= 100
        service.select(1)
        service.reward(event, 1)
        clock.now += 200
        service.select(2)
        times = [row[5] for row in service.store.events()]
        assert times == [1_000, 1_000, 1_100]
        assert service.store.counters() == {"clock went backwards": 2}


@pytest.mark.parametrize("now", [NAN, INF])
def test_a_clock_that_shows_no_time_is_refused(path, clock, now):
    with opened(path, clock=clock) as service:
        event = service.select(0).event_id
        clock.now = now
        before = state_of(service)
        with pytest.raises(ValueError, match="clock must be finite"):
            service.select(0)
        with pytest.raises(ValueError, match="clock must be finite"):
            service.reward(event, 1)
        assert state_of(service) == before


# ---- Recovery


def test_recovery_is_a_snapshot_and_what_came_after_it(path):
    with opened(path, settings=with_settings(snapshot_every=30)) as service:
        played(service, 100)
        before = service.head_bytes()
        assert [seq for seq, _ in service.store.snapshots("v1")] == [90, 60, 0]
        assert service.head_bytes(replayed=True) == before
        _, found = recover(service.store, "v1", from_first=True)
        assert (found.snapshot, found.replayed) == (0, 100)
    with opened(path) as service:
        found = service.recoveries["v1"]
        assert (found.snapshot, found.replayed, found.damaged) == (90, 10, 0)
        assert service.head_bytes() == before


def test_snapshots_change_nothing_that_is_learnt(path):
    heads = []
    for every in (1, 7, 1000):
        with opened(
            path.with_name(f"{every}.db"), settings=with_settings(snapshot_every=every)
        ) as s:
            played(s, 50)
            heads.append(s.head_bytes())
    assert heads[0] == heads[1] == heads[2]


def test_a_snapshot_without_news_is_not_written(path):
    with opened(path) as service:
        played(service, 5)
        steps = []
        service.store.at = steps.append
        service.snapshot()
        service.snapshot()
        assert steps == ["snapshot: before commit", "snapshot: after commit"]


def test_a_damaged_snapshot_is_passed_over(path):
    with opened(path, settings=with_settings(snapshot_every=30)) as service:
        played(service, 100)
        before = service.head_bytes()
    raw = sqlite3.connect(path)
    raw.execute("UPDATE snapshots SET head = zeroblob(80) WHERE seq = 90")
    raw.commit()
    raw.close()
    with opened(path) as service:
        found = service.recoveries["v1"]
        assert (found.snapshot, found.replayed, found.damaged) == (60, 40, 1)
        assert service.head_bytes() == before


def test_without_any_good_snapshot_the_fallback_serves_and_the_model_returns_when_mended(
    path, clock
):
    with opened(path) as service:
        played(service, 20)
        before = service.head_bytes()
    raw = sqlite3.connect(path)
    ((good,),) = raw.execute("SELECT head FROM snapshots").fetchall()
    raw.execute("UPDATE snapshots SET head = x'00'")
    raw.commit()
    with opened(path, clock=clock) as service:
        decision = service.select(0)
        assert decision.version == "fallback: epsilon-greedy"
        health = service.check_health()
        assert not health.ok
        assert "holds no good snapshot of v1" in health.problems["v1"]
        service.reward(
            decision.event_id, 1
        )  # is learnt once there is somebody to learn it
        raw.execute("UPDATE snapshots SET head = ?", (good,))
        raw.commit()
        raw.close()
        assert service.select(0).version.startswith(
            "fallback"
        )  # left alone for a while
        clock.now += SETTINGS.pause
        assert service.select(0).version == "v1"
        assert service.check_health().ok
        assert service.recoveries["v1"].replayed == 21
        assert service.head_bytes() == service.head_bytes(replayed=True) != before


def test_two_processes_on_one_file_learn_from_both(path):
    with opened(path) as one, opened(path, seed=9) as other:
        played(one, 10, seed=1)
        played(other, 10, seed=2)
        one.select(0)
        assert one.head_bytes() == other.head_bytes() == one.head_bytes(replayed=True)


def test_nothing_is_learnt_twice_when_learners_are_not_equally_far(path):
    with opened(path) as one, opened(path, seed=9) as other:
        played(other, 10, seed=2)
        one._models.clear()  # comes back with all ten, of which the fallback knows none
        one.select(0)
        assert one.head_bytes() == other.head_bytes()
        assert one._fallback.visits.sum() == 10


# ---- Faults of the database


def test_memory_does_not_learn_what_the_disk_refused(path):
    with opened(path) as service:
        played(service, 5)
        event = service.select(3).event_id
        before = state_of(service)

        def fails(step):
            if step == "reward: before commit":
                raise OSError("the plug was pulled")

        service.store.at = fails
        with pytest.raises(OSError, match="plug"):
            service.reward(event, 1)
        service.store.at = lambda step: None
        assert state_of(service) == before
        assert service.reward(event, 1) == 6  # the number was not used up
        assert service.head_bytes() == service.head_bytes(replayed=True)


def test_a_reward_that_was_written_but_not_learnt_is_learnt_with_the_next(path):
    with opened(path) as service:
        first, second = (service.select(user).event_id for user in (1, 2))

        def fails(step):
            if step == "reward: after commit":
                raise OSError("the plug was pulled")

        service.store.at = fails
        with pytest.raises(OSError, match="plug"):
            service.reward(first, 1)
        service.store.at = lambda step: None
        with pytest.raises(DuplicateRewardError):
            service.reward(first, 1)
        service.reward(second, 0)
        assert service._models["v1"].seq == 2
        assert service.head_bytes() == service.head_bytes(replayed=True)


def full(service):
    pages = service.store._db.execute("PRAGMA page_count").fetchone()[0]
    service.store._db.execute(f"PRAGMA max_page_count = {pages}")


def test_a_full_disk_loses_nothing(path):
    with opened(path, settings=with_settings(snapshot_every=10**6)) as service:
        played(service, 50)
        full(service)
        decided, acknowledged = [], []

        def until_full():
            for user in range(1000):
                decided.append(service.select(user).event_id)
                service.reward(decided[-1], 1)
                acknowledged.append(decided[-1])

        with pytest.raises(
            StoreFullError, match=f"{path} has no room left on its disk"
        ):
            until_full()
        on_disk = service.store.events()
        assert [row[0] for row in on_disk] == [*range(1, 51), *decided]
        rewarded = [row[0] for row in on_disk if row[-1] is not None]
        assert rewarded == [*range(1, 51), *acknowledged]
        before = service.head_bytes()
        assert before == service.head_bytes(replayed=True)
        with pytest.raises(StoreFullError):
            service.snapshot()
        service.store._db.execute("PRAGMA max_page_count = 1000000")
        played(service, 3)
        assert before != service.head_bytes() == service.head_bytes(replayed=True)


def test_a_snapshot_that_finds_no_room_does_not_undo_a_reward(path):
    with opened(path, settings=with_settings(snapshot_every=20)) as service:
        played(service, 19)
        event = service.select(0).event_id

        def refuses(name, seq, head):
            raise StoreFullError("no room")

        kept, service.store.save_snapshot = service.store.save_snapshot, refuses
        assert service.reward(event, 1) == 20
        assert service.check_health().problems == {"snapshot": "no room"}
        service.store.save_snapshot = kept
        played(service, 1)
        assert service.check_health().ok
        assert service.store.snapshots("v1")[0][0] == 21


def test_a_locked_database_is_waited_for_and_then_named(path):
    with opened(path, timeout=0.05) as service:
        played(service, 3)
        event = service.select(0).event_id
        before = state_of(service)
        other = sqlite3.connect(path)
        other.execute("BEGIN IMMEDIATE")
        for call in (lambda: service.select(0), lambda: service.reward(event, 1)):
            with pytest.raises(
                StoreLockedError, match=f"{path} is locked by another process"
            ):
                call()
        assert state_of(service) == before
        other.rollback()
        other.close()
        service.reward(event, 1)
        assert service.head_bytes() == service.head_bytes(replayed=True)


def test_another_file_is_not_taken_for_a_database(path):
    path.write_text("Dear diary, today I met a bandit. " * 100)
    with pytest.raises(
        StoreCorruptError, match=f"{path} is damaged, or no database at all"
    ):
        opened(path)


def test_a_database_of_somebody_else_is_left_alone(path):
    other = sqlite3.connect(path)
    other.execute("CREATE TABLE diary (text)")
    other.commit()
    other.close()
    before = path.read_bytes()
    with pytest.raises(
        StoreCorruptError, match=f"{path} is no database of this service"
    ):
        opened(path)
    after = sqlite3.connect(path)
    assert after.execute("SELECT name FROM sqlite_master").fetchall() == [("diary",)]
    after.close()
    assert before[:16] == b"SQLite format 3\0"


def test_a_damaged_database_is_named_on_opening(path):
    with opened(path) as service:
        played(service, 300)
        size = service.store._db.execute("PRAGMA page_size").fetchone()[0]
        service.store._rows("PRAGMA wal_checkpoint(TRUNCATE)")
    content = bytearray(path.read_bytes())
    content[5 * size : 40 * size] = b"\xa5" * (35 * size)
    path.write_bytes(content)
    with pytest.raises(StoreCorruptError, match=f"{path} is damaged"):
        opened(path)


def test_a_folder_that_is_not_there_is_named(path):
    with pytest.raises(StoreError, match="nowhere"):
        opened(path.parent / "nowhere" / "shop.db")


def test_what_sqlite_refuses_otherwise_is_named(path):
    with opened(path) as service, pytest.raises(StoreError, match=f"{path} refused"):
        service.store._rows("SELECT nothing FROM nowhere")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ((49, 9, "k"), "n_arms must be what .* was made with 50: got 49"),
        ((50, 8, "k"), "n_features must be what .* was made with 9: got 8"),
        ((50, 9, "l"), "key must be what .* was made with$"),
    ],
)
def test_a_database_knows_what_it_was_made_with(path, arguments, words):
    Store(path, 50, 9, "k").close()
    with pytest.raises(ValueError, match=words):
        Store(path, *arguments)
    Store(path, 50, 9, "k").close()


@pytest.mark.parametrize(
    ("arm", "propensity", "words"),
    [
        (50, 0.5, "arm must lie in 0 … 49: got 50"),
        (-1, 0.5, "arm must lie in"),
        (3, 0.0, r"propensity must lie in \(0, 1\]: got 0.0"),
        (3, 1.1, "propensity must lie in"),
        (3, NAN, "propensity must lie in"),
    ],
)
def test_events_that_cannot_be_are_not_logged(path, arm, propensity, words):
    with opened(path) as service:
        with pytest.raises(ValueError, match=words):
            service.store.log_event(
                b"u", FEATURES.transform(0), arm, propensity, "v1", "v1", 0.0
            )
        assert service.store.events() == []


def test_what_is_committed_is_on_the_disk_and_what_is_deleted_is_overwritten(path):
    with opened(path) as service:
        found = {
            name: service.store._rows(f"PRAGMA {name}")[0][0]
            for name in ("journal_mode", "synchronous", "foreign_keys", "secure_delete")
        }
    full = 2
    assert found == {
        "journal_mode": "wal",
        "synchronous": full,
        "foreign_keys": 1,
        "secure_delete": 1,
    }


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE events SET propensity = 0",
        "UPDATE events SET propensity = 1.01",
        "UPDATE events SET arm = -1",
        "UPDATE events SET user = NULL",
        "UPDATE events SET context = 99",
        "UPDATE rewards SET reward = 1.5",
        "UPDATE rewards SET reward = NULL",
        "UPDATE rewards SET event = 99",
        "INSERT INTO rewards (event, reward, time) VALUES (1, 1, 0)",
        "UPDATE versions SET state = 'famous'",
        "INSERT INTO versions SELECT 'v2', parent, state, share, since, created, n_rows,"
        " validation, note, model, digest FROM versions",
        "UPDATE events SET time = 'noon'",
    ],
)
def test_the_schema_itself_refuses_what_cannot_be(path, statement):
    with opened(path) as service:
        played(service, 2)
        db = service.store._db
        with pytest.raises(sqlite3.IntegrityError):
            db.execute(statement)


# ---- Failing models


class Slow:
    """A timer on which scores take as long as it is told."""

    def __init__(self):
        self.time, self.step = 0.0, 0.0

    def __call__(self):
        self.time += self.step
        return self.time


def test_a_model_that_is_late_is_left_alone_until_it_is_quick(path, clock):
    timer = Slow()
    options = with_settings(latency_limit=0.010, patience=3, pause=30)
    with opened(path, clock=clock, timer=timer, settings=options) as service:
        assert service.select(0).version == "v1"
        timer.step = 0.02
        # An answer that came late serves once more; after three the model is left alone.
        assert [service.select(0).version for _ in range(3)] == ["v1"] * 3
        assert service.select(0).version == "fallback: epsilon-greedy"
        health = service.check_health()
        assert "scores took" in health.problems["v1"]
        assert health.latency["selection"] > 10
        clock.now += 30
        assert service.select(0).version == "fallback: epsilon-greedy"  # still late
        timer.step = 0.0
        clock.now += 29
        assert service.select(0).version == "fallback: epsilon-greedy"  # not asked yet
        clock.now += 1
        assert service.select(0).version == "v1"
        assert service.check_health().ok


def test_one_late_answer_is_forgiven(path):
    timer = Slow()
    with opened(
        path, timer=timer, settings=with_settings(latency_limit=0.01)
    ) as service:
        service.select(0)
        for _ in range(10):
            timer.step = 0.02
            assert service.select(0).version == "v1"
            timer.step = 0.0
            assert service.select(0).version == "v1"


def test_a_head_gone_wrong_in_memory_is_never_served_nor_written(path, clock):
    with opened(path, clock=clock) as service:
        played(service, 20)
        before = service.head_bytes()
        service.head("v1")._solution[:] = NAN
        assert service.select(0).version == "fallback: epsilon-greedy"
        assert service.select(0).version == "v1"  # from the disk
        assert service.head_bytes() == before
        assert service.check_health().ok
        service.head("v1")._moments[:] = NAN
        service._models["v1"].seq += 1
        service.snapshot()
        assert [seq for seq, _ in service.store.snapshots("v1")] == [0]
        assert service.head_bytes() == {}
        assert "a head must be finite" in service.check_health().problems["v1"]
        service.select(0)
        assert service.head_bytes() == before


def test_a_network_gone_wrong_in_memory_is_loaded_again(path, clock):
    with opened(path, clock=clock) as service:
        played(service, 20)
        event = service.select(0)
        service._models["v1"].network.mlp.weights[0].fill_(INF)
        service.reward(event.event_id, 1)  # is safe, though the model cannot learn it
        assert service.head_bytes() == {}
        assert service.select(0).version == "v1"
        assert service._models["v1"].seq == 21
        assert service.head_bytes() == service.head_bytes(replayed=True)


def test_a_check_that_finds_a_model_broken_has_it_loaded_again(path, clock):
    with opened(path, clock=clock) as service:
        played(service, 20)
        service.head("v1")._solution[:] = NAN
        clock.now += SETTINGS.pause
        assert service.select(0).version.startswith("fallback")
        assert "finite" in service.check_health().problems["v1"]
        clock.now += SETTINGS.pause
        assert service.select(0).version == "v1"
        assert service.check_health().ok


def test_a_model_that_fails_again_and_again_is_left_alone(path, clock):
    with opened(path, clock=clock, settings=with_settings(patience=2)) as service:
        service.select(0)
        tries = []

        def never(name):
            tries.append(name)
            raise StoreCorruptError("gone")

        kept, service.store.model_bytes = service.store.model_bytes, never
        service._models.clear()
        versions = {service.select(user).version for user in range(10)}
        assert versions == {"fallback: epsilon-greedy"}
        assert tries == ["v1"] * 2
        service.store.model_bytes = kept
        clock.now += SETTINGS.pause
        assert service.select(0).version == "v1"


def test_a_health_check_that_says_no_stops_the_model(path, clock):
    answers = {"healthy": True}
    with opened(path, clock=clock, healthy=lambda: answers["healthy"]) as service:
        assert service.select(0).version == "v1"
        answers["healthy"] = False
        assert service.select(0).version == "v1"  # not asked yet
        clock.now += SETTINGS.pause
        assert service.select(0).version.startswith("fallback")
        assert service.check_health().problems == {"v1": "the health check says no"}
        answers["healthy"] = True
        clock.now += SETTINGS.pause
        assert service.select(0).version == "v1"


def test_a_health_check_that_breaks_stops_the_model_not_the_shop(path):
    def broken():
        raise KeyError

    with opened(path, healthy=broken) as service:
        assert service.select(0).version.startswith("fallback")
        assert service.check_health().problems == {"v1": "KeyError"}


def test_a_breaker_does_not_wait_for_a_clock_that_went_backwards():
    breaker = Breaker(patience=2, pause=10)
    breaker.checked("", now=1_000)
    assert not breaker.check_is_due(1_009)
    assert breaker.check_is_due(1_010)
    assert breaker.check_is_due(500)
    breaker.failed("a", 1_001)
    assert not breaker.open
    breaker.failed("b", 1_002)
    breaker.failed("c", 1_005)
    assert (breaker.open, breaker.reason) == (True, "c")
    assert not breaker.check_is_due(1_011)
    assert breaker.check_is_due(1_012)


def test_the_fallback_is_greedy_by_click_rates_and_its_propensities_are_exact(path):
    with opened(
        path, healthy=lambda: False, settings=with_settings(fallback_floor=0.2)
    ) as s:
        for _ in range(60):
            event = s.select(0)
            s.reward(event.event_id, float(event.arm in (3, 4)))
        visits, totals = s._fallback.visits, s._fallback.rewards
        shown = np.bincount([row[2] for row in s.store.events()], minlength=50)
        assert (visits == shown).all()
        best = np.flatnonzero(totals == visits) if totals.any() else np.arange(50)
        best = [arm for arm in best if visits[arm]] or list(range(50))
        expected = np.full(50, 0.2 / 50)
        expected[best] += 0.8 / len(best)
        np.testing.assert_allclose(s._fallback.probabilities(), expected)
        decision = s.select(0)
        assert decision.propensity == pytest.approx(expected[decision.arm])
        assert s.store.events()[-1][4] == "fallback: epsilon-greedy"
        again = s.store.arm_totals()
        assert (again[1] == visits).all()
        assert (again[2] == totals).all()


def test_the_random_fallback_is_uniform(path):
    options = with_settings(fallback="random")
    with opened(path, healthy=lambda: False, settings=options) as service:
        decision = service.select(0)
        assert decision.version == "fallback: random"
        assert decision.propensity == pytest.approx(1 / 50)
    fallback = Fallback("random", 0.1, 0, np.ones(4), np.array([0.0, 1, 0, 0]))
    assert fallback.probabilities().tolist() == [0.25] * 4


# ---- Privacy


def test_no_user_id_and_no_key_is_in_the_file(path):
    names = {f"user-{n}@example.org": n for n in range(20)}
    with opened(path, features=lambda name: FEATURES.transform(names[name])) as service:
        for name in names:
            service.select(name)
        service.store._rows("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    assert b"example.org" not in content
    assert b"sixteen secret b" not in content
    assert Pseudonyms(b"sixteen secret b").of("user-3@example.org") in content


def test_old_events_are_forgotten_and_what_they_taught_stays(path, clock):
    with opened(
        path, clock=clock, settings=with_settings(snapshot_every=30)
    ) as service:
        played(service, 100)
        service.select(1)  # never rewarded
        clock.now += 90
        played(service, 40, seed=1)
        before = service.head_bytes()
        assert service.forget_before(clock.now) == 101
        assert service.head_bytes() == before == service.head_bytes(replayed=True)
        assert len(service.store.events()) == 40
        assert [seq for seq, _ in service.store.snapshots("v1")] == [140, 120]
        assert service._fallback.visits.sum() == 40
        with pytest.raises(UnknownEventError):
            service.reward(101, 1)
        assert service.forget_before(clock.now) == 0
        played(service, 10, seed=2)
        before = service.head_bytes()
    with opened(path) as service:
        assert service.head_bytes() == before
        found = service.recoveries["v1"]
        assert (found.snapshot, found.replayed) == (140, 10)


def test_everything_can_be_forgotten(path, clock):
    with opened(path, clock=clock) as service:
        played(service, 30)
        before = service.head_bytes()
        assert service.forget_before(clock.now + 1) == 30
        assert service.store._rows("SELECT count(*) FROM contexts") == [(0,)]
        assert service.head_bytes() == before
        decision = played(service, 1)[0][0]
        assert decision.event_id == 31  # ids are never used again
        after = service.head_bytes()
    with opened(path) as service:
        assert service.head_bytes() == after != before


def test_a_crash_in_the_middle_of_forgetting_forgets_nothing(path, clock):
    with opened(path, clock=clock) as service:
        played(service, 30)
        before = state_of(service), service.store.snapshots("v1")

        def fails(step):
            if step == "delete: before commit":
                raise OSError("the plug was pulled")

        service.store.at = fails
        with pytest.raises(OSError, match="plug"):
            service.forget_before(clock.now + 1)
        assert (state_of(service), service.store.snapshots("v1")) == before


def test_one_user_is_erased_on_request(path):
    with opened(path) as service:
        for user in (1, 2, 1, 3):
            service.reward(service.select(user).event_id, 1)
        before = service.head_bytes()
        assert service.erase(1) == 2
        users = [row[1] for row in service.store.events()]
        assert users == [service._pseudonyms.of(user) for user in (2, 3)]
        assert service.head_bytes() == before == service.head_bytes(replayed=True)
        assert service.erase(1) == 0
    assert Pseudonyms(b"sixteen secret b").of(1) not in path.read_bytes()
    assert not path.with_name("shop.db-wal").exists()


# ---- Monitors


def click_watch():
    return Watch(
        Monitor(
            "clicks", rates(), same_rates, window=50, reference=1, false_alarms=0.5
        ),
        clicks,
    )


def test_monitors_see_every_event_once_across_restarts(path):
    with opened(path, watches=[click_watch()]) as service:
        assert service.watch() == []
        played(service, 30)
        assert service.watch() == []
        assert service.watch() == []
    with opened(path, watches=[click_watch()]) as service:
        played(service, 20)
        assert service.watch() == []
        for _ in range(50):  # nobody clicks any more
            service.reward(service.select(0).event_id, 0)
        (alert,) = service.watch()
        assert alert.step == 100
        assert service.check_health().alerts == (alert.message,)


def test_columns_for_monitors_are_those_of_the_log(path, clock):
    answers = {"healthy": True}
    watch = Watch(
        Monitor("fallback", rates(), at_most(0.01), window=20, false_alarms=0.5),
        fallbacks,
    )
    with opened(
        path, clock=clock, healthy=lambda: answers["healthy"], watches=[watch]
    ) as service:
        visits = played(service, 20)
        assert service.watch() == []
        answers["healthy"] = False
        clock.now += SETTINGS.pause
        visits += played(service, 20)
        log = service.store.log()
        assert arms(log)[0].tolist() == [d.arm for d, _ in visits]
        assert clicks(log)[0].tolist() == [r for _, r in visits]
        assert fallbacks(log)[0].tolist() == [0] * 20 + [1] * 20
        assert [alert.monitor for alert in service.watch()] == ["fallback"]


# ---- Settings, and the house


@pytest.mark.parametrize(
    ("name", "value"),
    [
        ("hidden", (0,)),
        ("embedding_dim", 0),
        ("n_draws", 0),
        ("patience", 0),
        ("ridge", 0.0),
        ("pause", INF),
        ("noise", -1.0),
        ("floor", 0.0),
        ("floor", NAN),
        ("fallback_floor", 1.1),
        ("guard_level", 0.0),
        ("fallback", "prayer"),
    ],
)
def test_settings_that_make_no_sense_are_refused(name, value):
    with pytest.raises((TypeError, ValueError), match=name):
        Settings(**{name: value})


def test_a_service_that_cannot_start_closes_its_file(path):
    with pytest.raises(ValueError, match="seed must be at least 0"):
        opened(path, seed=-1)
    with opened(path) as service:
        assert service.select(0).version == "v1"
