import sqlite3
from unittest import mock

import numpy as np
import pytest
from scipy.stats import norm

from tests.service_crash import (
    FEATURES,
    SETTINGS,
    WORLD,
    commits,
    opened,
)
from zoolib import (
    Context,
    EnsembleAgent,
    FeatureEngineer,
    GuardedAgent,
    LinTSAgent,
    LinUCBAgent,
    MCDropoutAgent,
    NeuralLinearAgent,
    NeuralUCBAgent,
)
from zoolib._support.state import from_bytes, to_bytes
from zoolib.agents.policies import pick
from zoolib.monitoring import Monitor, at_most, rates, same_rates
from zoolib.service import (
    BanditService,
    DuplicateRewardError,
    RewardRejectedError,
    Settings,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreOutdatedError,
    UnknownEventError,
    Watch,
    neural_linear,
)
from zoolib.service.health import PATIENCE, PAUSE, Breaker, fallback_probabilities
from zoolib.service.model import Model, choice_probabilities, recover
from zoolib.service.store import Store
from zoolib.service.watching import fallbacks

NAN, INF = float("nan"), float("inf")


def with_settings(**options):
    return Settings(**({"deadline": 60.0, "n_draws": 20} | options))


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
    """All that decides what comes next, in memory and on disk, but for random numbers and counters."""
    return (
        service.learnt(),
        service.store.events(),
        service.store.versions(),
        service.store.last_event(),
        service.store.last_seq(),
        fallback_probabilities(service.store).tolist(),
    )


# ---- The agents that are served

PAIRS = FeatureEngineer(WORLD, interactions=True)


def table_of_cells(user):
    """Which of twenty cells each product is in for a user: one column per persona and category."""
    return PAIRS.transform(user)[:, 9:]


# What each maker is called with, and the features it sees.
KINDS = {
    "neural-linear": (neural_linear, FEATURES.transform, 9),
    "disjoint": (
        lambda k, d, seed: LinTSAgent(k, d, alpha=0.3, seed=seed),
        FEATURES.transform,
        9,
    ),
    "shared, discounted": (
        lambda k, d, seed: LinTSAgent(
            k, d, alpha=0.3, shared=True, discount=0.9, seed=seed
        ),
        PAIRS.transform,
        29,
    ),
    "logit with a window": (
        lambda k, d, seed: LinUCBAgent(
            k, d, shared=True, link="logit", window=40, seed=seed
        ),
        PAIRS.transform,
        29,
    ),
    "twenty cells": (
        lambda k, d, seed: LinTSAgent(k, d, alpha=0.3, shared=True, seed=seed),
        table_of_cells,
        20,
    ),
}


def shop_of(kind, path, **options):
    make_agent, features, n_features = KINDS[kind]
    return opened(
        path,
        make_agent=make_agent,
        features=features,
        n_features=n_features,
        settings=with_settings(snapshot_every=30, floor=0.2, min_sample=20),
        **options,
    )


@pytest.mark.parametrize("kind", KINDS)
def test_every_kind_of_agent_comes_back_to_the_last_bit_and_is_renewed(
    path, kind, clock
):
    with shop_of(kind, path, clock=clock) as service:
        played(service, 100)
        before = service.learnt()
        for user in range(30):  # what is shown leaves nothing behind
            service.select(user)
        assert before == service.learnt() == service.learnt(replayed=True)
        assert [seq for seq, _ in service.store.snapshots("v1")] == [90, 60, 0]
        _, found = recover(service.store, "v1", from_first=True)
        assert (found.snapshot, found.replayed) == (0, 100)
        plain = service.make_agent(50, service.store.n_features, 0)
        for _, _, features, arm, reward in service.store.rewards_after(0):
            plain.update(Context(0, features), arm, reward)
        assert before["v1"] == Model(plain, 100).to_bytes()
    with shop_of(kind, path, clock=clock) as service:
        found = service.recoveries["v1"]
        assert (found.snapshot, found.replayed, found.damaged) == (90, 10, 0)
        assert service.learnt() == before
        played(service, 20, seed=1)
        assert before != service.learnt() == service.learnt(replayed=True)
        # Visits are open behind the first hundred: nobody knows what later clicks are among.
        name = service.retrain(held_out=0.5, epochs=2)
        assert service.store.version(name).validation["n"] == 50
        clock.now += 3_600
        name = service.retrain(held_out=0.5, epochs=2)
        assert service.store.version(name).validation["n"] == 75
        served = recover(service.store, name)[0]
        assert (served.seq, repr(served.agent)) == (150, repr(plain))


def test_an_agent_of_another_kind_can_follow(path):
    with shop_of("disjoint", path) as service:
        played(service, 80)
    with opened(path) as service:
        assert type(service.agent("v1")).__name__ == "LinTSAgent"
        name = service.retrain(epochs=1)
        model, _ = recover(service.store, name)
        assert type(model.agent).__name__ == "NeuralLinearAgent"


@pytest.mark.parametrize(
    "make_agent",
    [
        lambda k, d, seed: LinTSAgent(k, d + 1),
        lambda k, d, seed: LinTSAgent(k, d, n_worlds=2),
        lambda k, d, seed: None,
    ],
)
def test_agents_that_do_not_fit_are_refused(path, make_agent):
    words = "make_agent must return an agent of 50 arms, 9 features and a single world"
    with pytest.raises(ValueError, match=words):
        opened(path, make_agent=make_agent)


@pytest.mark.parametrize(
    "make_agent",
    [
        lambda k, d, seed: EnsembleAgent(k, d, train_every=20, seed=seed),
        lambda k, d, seed: NeuralUCBAgent(k, d, train_every=20, seed=seed),
        lambda k, d, seed: NeuralLinearAgent(k, d, train_every=20, seed=seed),
        lambda k, d, seed: GuardedAgent(LinUCBAgent(k, d, seed=seed), 0.1, cap=0.5),
    ],
)
def test_whatever_is_not_refused_comes_back_to_the_last_bit(path, make_agent):
    x = np.random.default_rng(0).normal(size=(40, 6, 3))

    def small_shop():
        settings = with_settings(snapshot_every=30)
        options = {"key": 16 * b"k", "make_agent": make_agent, "settings": settings}
        return BanditService(path, x.__getitem__, 6, 3, **options)

    with small_shop() as service:
        for user in range(70):
            service.reward(service.select(user % 40).event_id, float(user % 3 == 0))
        before = service.learnt()
        assert service.learnt(replayed=True) == before
    with small_shop() as service:
        assert service.learnt() == before
        assert service.recoveries["v1"].replayed == 10


def dropout(k, d, seed):
    return MCDropoutAgent(k, d, policy="thompson", seed=seed)


def guarded(k, d, seed, **options):
    draws = LinTSAgent(
        k, d, shared=True, seed=seed
    )  # when it is asked for propensities
    return GuardedAgent(draws, floor=0.1, seed=seed, **options)


@pytest.mark.parametrize("make_agent", [dropout, guarded])
def test_agents_that_no_replay_restores_are_refused(path, make_agent):
    with pytest.raises(ValueError, match=r"make_agent must return .* rewards alone"):
        opened(path, make_agent=make_agent)


def test_agents_that_ask_who_the_user_is_are_refused(path):
    def segments(k, d, seed):
        return guarded(k, d, seed, segment_of_user=np.arange(1000) % 2)

    with pytest.raises(ValueError, match="user_id must lie in 0 … 999: got -1"):
        opened(path, make_agent=segments)


def test_a_refused_agent_binds_the_database_to_nothing(path):
    with pytest.raises(ValueError, match="make_agent must return"):
        opened(path, n_features=8, make_agent=lambda k, d, seed: None)
    with opened(path) as service:
        assert service.select(0).version == "v1"


def test_choice_probabilities_are_those_of_thompson_sampling():
    """Two rows with independent scores: the better one wins with a probability of known form."""
    agent, options = (
        LinTSAgent(4, 2, alpha=0.5, shared=True),
        Settings(n_draws=20_000, floor=0.1),
    )
    context = Context(0, np.eye(2)[[0, 1, 1, 1]])
    agent.update(
        context, 0, 1.0
    )  # mean 1/2, variance 1/2; the other: mean 0, variance 1
    found = choice_probabilities(agent, context, options)
    wins = norm.cdf(0.5 / (0.5 * np.sqrt(1.5)))
    expected = 0.9 * np.array([wins, *[(1 - wins) / 3] * 3]) + 0.1 / 4
    np.testing.assert_allclose(found, expected, atol=0.01)
    assert found.sum() == pytest.approx(1)


def test_what_cannot_be_read_again_is_not_written():
    agent = LinTSAgent(2, 2)
    agent.posterior._mean[:] = NAN
    with pytest.raises(ValueError, match="must be finite"):
        Model(agent, 1).to_bytes()


# ---- Serving


def test_a_decision_is_logged_with_all_that_made_it(path, clock):
    with opened(path, clock=clock) as service:
        decision = service.select(7)
        (event,) = service.store.events()
    user = service.store.pseudonym(7)
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
    ((visitor, table),) = raw.execute(
        "SELECT visitor, features FROM contexts JOIN tables ON tables.id = products"
    ).fetchall()
    raw.close()
    logged = np.frombuffer(visitor, "<f4") + np.frombuffer(table, "<f4").reshape(50, 9)
    assert (logged == FEATURES.transform(7)).all()


def test_the_propensity_logged_is_the_probability_drawn_with(path, monkeypatch):
    seen = []

    def spied(policy, uniform):
        arm = pick(policy, uniform)
        seen.append((policy, arm, policy[arm]))
        return arm

    monkeypatch.setattr("zoolib.service.loop.pick", spied)
    with opened(path) as service:
        for decision, _ in played(service, 300):
            policy, arm, propensity = seen[decision.event_id - 1]
            assert decision.propensity == policy[decision.arm] == propensity
            assert decision.arm == arm
            assert policy.min() >= SETTINGS.floor / 50
    # Were choices drawn from the stream that the visitors come from, this would fail.
    # Inverse propensities count the arms that could have come: 50 per visit, up to chance.
    weights = np.array([1 / propensity for *_, propensity in seen])
    spread = np.sqrt(sum((1 / policy).sum() - 50**2 for policy, *_ in seen)) / len(seen)
    assert abs(weights.mean() - 50) < 4 * spread


def test_a_restart_goes_on_with_other_random_numbers(path):
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


def test_pseudonyms_depend_on_the_key_and_on_nothing_else(path):
    stores = [
        Store(path.with_name(f"{n}.db"), 5, 2, b"kkl"[n : n + 1] * 16) for n in range(3)
    ]
    one, again, other = stores
    user = one.pseudonym(7)
    assert user == again.pseudonym(7) == one.pseudonym(np.int64(7)) != one.pseudonym(8)
    assert user != other.pseudonym(7)
    for store in stores:
        store.close()


@pytest.mark.parametrize("key", [b"short", b"x" * 65, "k" * 16, None])
def test_a_key_must_be_secret_bytes(path, key):
    with pytest.raises(ValueError, match="key must be 16 to 64 bytes"):
        Store(path, 5, 2, key)
    assert not path.exists()


# ---- Rewards


def test_a_reward_is_learnt_at_once(path):
    with opened(path) as service:
        before = service.learnt()
        ((decision, reward),) = played(service, 1)
        assert service.learnt() != before
        user, agent = int(np.random.default_rng(0).integers(1000)), service.agent("v1")
        x = FEATURES.transform(user)[[decision.arm]].astype(np.float32)
        z = agent.embed(x)[0].astype(float)
        np.testing.assert_allclose(agent.posterior.A, np.eye(41) + np.outer(z, z))
        np.testing.assert_allclose(agent.posterior.b, reward * z)


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
        assert service.check_health().counters == {
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
        assert service.store.counters == {}


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
        assert service.store.counters == {"clock went backwards": 1}


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


def test_a_damaged_snapshot_is_passed_over(path):
    with opened(path, settings=with_settings(snapshot_every=30)) as service:
        played(service, 100)
        before = service.learnt()
    raw = sqlite3.connect(path)
    raw.execute("UPDATE snapshots SET agent = zeroblob(80) WHERE seq = 90")
    raw.commit()
    raw.close()
    with opened(path) as service:
        found = service.recoveries["v1"]
        assert (found.snapshot, found.replayed, found.damaged) == (60, 40, 1)
        assert service.learnt() == before


def test_a_state_with_any_bit_flipped_is_refused_or_the_same():
    blob, refusals = to_bytes({"x": np.arange(3.0), "n": 1}), []
    for bit in range(8 * len(blob)):
        damaged = bytearray(blob)
        damaged[bit // 8] ^= 1 << bit % 8
        try:
            state = from_bytes(bytes(damaged))
        except ValueError as error:
            refusals.append(str(error))
        else:
            assert to_bytes(state) == blob
    assert len(refusals) > 4 * len(blob)
    assert all("blob must be the bytes of a state" in words for words in refusals)


@pytest.mark.no_cover
def test_wherever_a_bit_flips_a_snapshot_is_passed_over_or_whole(path):
    with shop_of("twenty cells", path) as service:
        played(service, 40)
        before, (newest, *_) = service.learnt(), service.store.snapshots("v1")
        rng = np.random.default_rng(0)
        for place in rng.choice(len(newest[1]), size=200, replace=False):
            damaged = bytearray(newest[1])
            damaged[place] ^= 1 << int(rng.integers(8))
            service.store.save_snapshot("v1", newest[0], bytes(damaged))
            assert recover(service.store, "v1")[0].to_bytes() == before["v1"]


def test_without_any_good_snapshot_the_fallback_serves_and_the_model_returns_when_mended(
    path, clock
):
    with opened(path, clock=clock) as service:
        played(service, 20)
        before = service.learnt()
    raw = sqlite3.connect(path)
    ((good,),) = raw.execute("SELECT agent FROM snapshots").fetchall()
    raw.execute("UPDATE snapshots SET agent = x'00'")
    raw.commit()
    with opened(path, clock=clock) as service:
        for user in range(PATIENCE):
            decision = service.select(user)
            assert decision.version == "fallback: epsilon-greedy"
        health = service.check_health()
        assert "holds no good snapshot of v1" in health.problems["v1"]
        # The reward is learnt once there is somebody to learn it.
        service.reward(decision.event_id, 1)
        raw.execute("UPDATE snapshots SET agent = ?", (good,))
        raw.commit()
        raw.close()
        # The model is left alone for a while.
        assert service.select(0).version.startswith("fallback")
        clock.now += PAUSE
        assert service.select(0).version == "v1"
        assert service.check_health().problems == {}
        assert service.recoveries["v1"].replayed == 21
        assert service.learnt() == service.learnt(replayed=True) != before


# ---- Faults of the database


def plug_pulled():
    raise OSError("the plug was pulled")


def test_memory_does_not_learn_what_the_disk_refused(path):
    with opened(path) as service:
        played(service, 5)
        event = service.select(3).event_id
        before = state_of(service)

        with commits(service, before=plug_pulled), pytest.raises(OSError, match="plug"):
            service.reward(event, 1)
        assert state_of(service) == before
        assert service.reward(event, 1) == 6  # the number was not used up
        assert service.learnt() == service.learnt(replayed=True)


def test_a_reward_that_was_written_but_not_learnt_is_learnt_with_the_next(path):
    with opened(path) as service:
        first, second = (service.select(user).event_id for user in (1, 2))

        with commits(service, after=plug_pulled), pytest.raises(OSError, match="plug"):
            service.reward(first, 1)
        with pytest.raises(DuplicateRewardError):
            service.reward(first, 1)
        service.reward(second, 0)
        assert service.learnt() == service.learnt(replayed=True)


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
        before = service.learnt()
        assert before == service.learnt(replayed=True)
        service.store._db.execute("PRAGMA max_page_count = 1000000")
        played(service, 3)
        assert before != service.learnt() == service.learnt(replayed=True)


def test_a_snapshot_that_finds_no_room_does_not_undo_a_reward(path):
    with opened(path, settings=with_settings(snapshot_every=20)) as service:
        played(service, 19)
        event = service.select(0).event_id

        def refuses(name, seq, head):
            raise StoreFullError("no room")

        kept, service.store.save_snapshot = service.store.save_snapshot, refuses
        assert service.reward(event, 1) == 20
        service.select(0)
        assert service.check_health().counters == {"refused snapshots": 1}
        service.store.save_snapshot = kept
        played(service, 21)
        assert service.check_health().problems == {}
        assert service.store.snapshots("v1")[0][0] == 40


def test_a_locked_database_is_waited_for_and_then_named(path):
    with opened(path) as service:
        service.store._db.execute("PRAGMA busy_timeout = 50")
        played(service, 3)
        event = service.select(0).event_id
        before = state_of(service)
        other = sqlite3.connect(path)
        other.execute("BEGIN IMMEDIATE")
        for call in (lambda: service.select(0), lambda: service.reward(event, 1)):
            with pytest.raises(
                StoreLockedError, match=f"{path} is locked by another program"
            ):
                call()
        assert state_of(service) == before
        other.rollback()
        other.close()
        service.reward(event, 1)
        assert service.learnt() == service.learnt(replayed=True)


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
    assert path.read_bytes() == before
    assert [file.name for file in path.parent.iterdir()] == [path.name]


def test_a_database_of_another_version_is_refused_and_left_as_it_is(path):
    opened(path).close()
    raw = sqlite3.connect(path)
    raw.execute("PRAGMA user_version = 0")  # as the first layout had it
    raw.close()
    before = path.read_bytes()
    with pytest.raises(
        StoreOutdatedError,
        match=f"{path} has layout 1, and this version of zoolib reads layout 5: open it with the version",
    ):
        opened(path)
    assert path.read_bytes() == before


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
    ("change", "words"),
    [
        ((49, 9, b"k"), "n_arms must be what .* was made with 50: got 49"),
        ((50, 8, b"k"), "n_features must be what .* was made with 9: got 8"),
        ((50, 9, b"l"), "key must be what .* was made with$"),
    ],
)
def test_a_database_knows_what_it_was_made_with(path, change, words):
    def store(n_arms, n_features, letter):
        return Store(path, n_arms, n_features, 16 * letter)

    first = store(50, 9, b"k")
    first.register(b"agent", 0, {})
    first.close()
    with pytest.raises(ValueError, match=words):
        store(*change)
    store(50, 9, b"k").close()


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
        "INSERT INTO versions SELECT 'v2', state, share, since, validation, note FROM versions",
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


def spoil(service):
    """Let a bit flip in the memory of version v1."""
    service.agent("v1").posterior._mean[:] = NAN


def test_an_agent_gone_wrong_in_memory_is_never_served_nor_written(path, clock):
    with opened(path, clock=clock) as service:
        played(service, 20)
        before = service.learnt()
        spoil(service)
        assert service.select(0).version == "fallback: epsilon-greedy"
        assert service.select(0).version == "v1"  # from the disk
        assert service.learnt() == before
        assert service.check_health().problems == {}
        spoil(service)
        with pytest.raises(ValueError, match="must be finite"):
            service.learnt()
        assert [seq for seq, _ in service.store.snapshots("v1")] == [0]
        assert "v1" not in service._models
        assert "must be finite" in service.check_health().problems["v1"]
        service.select(0)
        assert service.learnt() == before


def test_an_agent_that_cannot_learn_is_loaded_again(path, clock):
    with opened(path, clock=clock) as service:
        played(service, 20)
        event = service.select(0)
        for weight in service.agent("v1").network.body.weights:
            weight.data.fill_(INF)
        service.reward(event.event_id, 1)  # is safe, though nobody can learn it
        assert service.select(0).version.startswith("fallback")
        assert "v1" not in service._models
        assert service.select(0).version == "v1"
        assert service._models["v1"].seq == 21
        assert service.learnt() == service.learnt(replayed=True)


def test_a_model_that_fails_again_and_again_is_left_alone(path, clock):
    with opened(path, clock=clock, settings=with_settings()) as service:
        service.select(0)
        tries = []

        def never(name):
            tries.append(name)
            raise StoreCorruptError("gone")

        kept, service.store.snapshots = service.store.snapshots, never
        service._models.clear()
        versions = {service.select(user).version for user in range(10)}
        assert versions == {"fallback: epsilon-greedy"}
        assert tries == ["v1"] * 3
        service.store.snapshots = kept
        clock.now += PAUSE
        assert service.select(0).version == "v1"


def test_a_health_check_that_says_no_stops_the_model(path, clock):
    answers = {"healthy": True}
    with opened(path, clock=clock, healthy=lambda: answers["healthy"]) as service:
        assert service.select(0).version == "v1"
        answers["healthy"] = False
        assert service.select(0).version == "v1"  # not asked yet
        clock.now += PAUSE
        assert service.select(0).version.startswith("fallback")
        assert service.check_health().problems == {"v1": "the health check says no"}
        answers["healthy"] = True
        clock.now += PAUSE
        assert service.select(0).version == "v1"


def test_a_health_check_that_breaks_stops_the_model_not_the_shop(path):
    def broken():
        raise KeyError

    with opened(path, healthy=broken) as service:
        assert service.select(0).version.startswith("fallback")
        assert service.check_health().problems == {"v1": "KeyError"}


def test_a_breaker_rests_after_failures_in_a_row_and_asks_again():
    breaker = Breaker()
    breaker.checked("", now=1_000)
    assert not breaker.check_is_due(1_029)
    assert breaker.check_is_due(1_030)
    breaker.tried("a", 1_001)
    breaker.tried("", 1_001)
    breaker.tried("a", 1_001)
    breaker.tried("a", 1_001)
    assert not breaker.open
    breaker.tried("b", 1_002)
    breaker.tried("c", 1_005)
    assert (breaker.open, breaker.reason) == (True, "c")
    assert not breaker.check_is_due(1_031)
    assert breaker.check_is_due(1_032)


def test_the_fallback_is_greedy_by_click_rates_and_its_propensities_are_exact(path):
    with opened(path, healthy=lambda: False) as s:
        for _ in range(60):
            event = s.select(0)
            s.reward(event.event_id, float(event.arm in (3, 4)))
        visits, totals = s.store.arm_totals(1_000)
        shown = np.bincount([row[2] for row in s.store.events()], minlength=50)
        assert (visits == shown).all()
        best = np.flatnonzero(totals == visits) if totals.any() else np.arange(50)
        best = [arm for arm in best if visits[arm]] or list(range(50))
        expected = np.full(50, 0.1 / 50)
        expected[best] += 0.9 / len(best)
        np.testing.assert_allclose(fallback_probabilities(s.store), expected)
        decision = s.select(0)
        assert decision.propensity == pytest.approx(expected[decision.arm])
        assert s.store.events()[-1][4] == "fallback: epsilon-greedy"


# ---- Privacy


def test_no_user_id_and_no_key_is_in_the_file(path):
    names = {f"user-{n}@example.org": n for n in range(20)}
    with opened(path, features=lambda name: FEATURES.transform(names[name])) as service:
        for name in names:
            service.select(name)
        pseudonym = service.store.pseudonym("user-3@example.org")
        service.store._rows("PRAGMA wal_checkpoint(TRUNCATE)")
    content = path.read_bytes()
    assert b"example.org" not in content
    assert b"sixteen secret b" not in content
    assert pseudonym in content


def test_old_events_are_forgotten_and_what_they_taught_stays(path, clock):
    with opened(
        path, clock=clock, settings=with_settings(snapshot_every=30)
    ) as service:
        played(service, 100)
        service.select(1)  # never rewarded
        clock.now += 90
        played(service, 40, seed=1)
        before = service.learnt()
        assert service.forget_before(clock.now) == 101
        assert service.learnt() == before == service.learnt(replayed=True)
        assert len(service.store.events()) == 40
        assert [seq for seq, _ in service.store.snapshots("v1")] == [140, 120]
        assert service.store.arm_totals(1_000)[0].sum() == 40
        with pytest.raises(UnknownEventError):
            service.reward(101, 1)
        assert service.forget_before(clock.now) == 0
        played(service, 10, seed=2)
        before = service.learnt()
    with opened(path) as service:
        assert service.learnt() == before
        found = service.recoveries["v1"]
        assert (found.snapshot, found.replayed) == (150, 0)


def test_everything_can_be_forgotten(path, clock):
    with opened(path, clock=clock) as service:
        played(service, 30)
        before = service.learnt()
        assert service.forget_before(clock.now + 1) == 30
        assert service.store._rows("SELECT count(*) FROM contexts") == [(0,)]
        assert service.learnt() == before
        decision = played(service, 1)[0][0]
        assert decision.event_id == 31  # ids are never used again
        after = service.learnt()
    with opened(path) as service:
        assert service.learnt() == after != before


def test_a_crash_in_the_middle_of_forgetting_forgets_nothing(path, clock):
    with opened(path, clock=clock) as service:
        played(service, 30)
        before = state_of(service), service.store.snapshots("v1")
        with commits(service, before=plug_pulled), pytest.raises(OSError, match="plug"):
            service.forget_before(clock.now + 1)
        assert (state_of(service), service.store.snapshots("v1")) == before


def test_one_user_is_erased_on_request(path):
    with opened(path) as service:
        for user in (1, 2, 1, 3):
            service.reward(service.select(user).event_id, 1)
        before = service.learnt()
        assert service.erase(1) == 2
        users = [row[1] for row in service.store.events()]
        assert users == [service.store.pseudonym(user) for user in (2, 3)]
        gone = service.store.pseudonym(1)
        assert service.learnt() == before == service.learnt(replayed=True)
        assert service.erase(1) == 0
    assert gone not in path.read_bytes()
    assert not path.with_name("shop.db-wal").exists()


# ---- Monitors


def test_monitors_see_every_event_once_across_restarts(path):
    def clicks(log):
        return ((log.reward > 0).astype(int),)

    def watched():
        common = {"window": 50, "reference": 1, "false_alarms": 0.5}
        return Watch(Monitor("clicks", rates(), same_rates, **common), clicks)

    with opened(path, watches=[watched()]) as service:
        assert service.watch() == []
        played(service, 30)
        assert service.watch() == []
        assert service.watch() == []
    with opened(path, watches=[watched()]) as service:
        played(service, 20)
        assert service.watch() == []
        for _ in range(50):  # nobody clicks any more
            service.reward(service.select(0).event_id, 0)
        (alert,) = service.watch()
        assert alert.step == 100


def test_alerts_that_cannot_be_noted_come_again(path):
    def watched(name):
        monitor = Monitor(name, rates(), at_most(0.01), window=20, false_alarms=0.5)
        return Watch(monitor, lambda log: (np.ones(len(log), int),))

    def refuses(facts):
        raise StoreFullError("no room")

    with opened(path, watches=[watched("one"), watched("two")]) as service:
        played(service, 30)
        with (
            mock.patch.object(service.store, "remember", refuses),
            pytest.raises(StoreFullError),
        ):
            service.watch()
        assert [alert.monitor for alert in service.watch()] == ["one", "two"]
        assert service.watch() == []


def test_a_monitor_reports_that_the_fallback_serves(path, clock):
    answers = {"healthy": True}
    watch = Watch(
        Monitor("fallback", rates(), at_most(0.01), window=20, false_alarms=0.5),
        fallbacks,
    )
    with opened(
        path, clock=clock, healthy=lambda: answers["healthy"], watches=[watch]
    ) as service:
        played(service, 20)
        assert service.watch() == []
        answers["healthy"] = False
        clock.now += PAUSE
        played(service, 20)
        assert fallbacks(service.store.log())[0].tolist() == [0] * 20 + [1] * 20
        assert [alert.monitor for alert in service.watch()] == ["fallback"]


# ---- Settings, and the house


def test_a_service_that_cannot_start_closes_its_file(path):
    with pytest.raises(ValueError, match="seed must be at least 0"):
        opened(path, seed=-1)
    with opened(path) as service:
        assert service.select(0).version == "v1"
