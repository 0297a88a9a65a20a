import sqlite3
import threading
import time
from dataclasses import replace
from itertools import combinations
from unittest import mock

import numpy as np
import pytest
from scipy import stats

from tests.service_crash import FEATURES, WORLD, opened, quick_folder
from zoolib import Context, LinTSAgent, NeuralLinearAgent, offpolicy
from zoolib._support.labels import as_objects
from zoolib.service import (
    STAGES,
    PromotionRefusedError,
    Settings,
    StoreCorruptError,
)
from zoolib.service.log import EventLog
from zoolib.service.model import Model, choice_probabilities, recover
from zoolib.service.rollout import bucket, p_value_worse
from zoolib.service.training import (
    _policy_and_rows,
    train,
    validate,
)

SETTINGS = Settings(
    deadline=60.0,
    n_draws=20,
    guard_visits=100,
    guard_level=0.01,
    min_sample=50,
)
TRUTH = WORLD.true_ctr(np.arange(1000)[:, None], np.arange(50))


def small(n_arms=50, n_features=9, seed=0):
    """A small network, quickly trained."""
    return NeuralLinearAgent(
        n_arms,
        n_features,
        alpha=0.3,
        policy="thompson",
        joined=True,
        hidden=(16,),
        embedding_dim=8,
        train_every=None,
        learning_rate=0.005,
        buffer_size=64,
        seed=seed,
    )


def shop(path, **options):
    return opened(path, **({"settings": SETTINGS, "make_agent": small} | options))


def visit(service, user, rng, worse=0.0):
    """Serve one visit; clicks of the version that is rolled out are lost with some probability."""
    decision = service.select(user)
    reward = rng.random() < TRUTH[user, decision.arm]
    rolling = service.rollout.rolling
    if rolling and decision.version == rolling.name and rng.random() < worse:
        reward = False
    service.reward(decision.event_id, int(reward))
    return decision


def played(service, n, seed=0, users=1000, worse=0.0):
    rng = np.random.default_rng(seed)
    for _ in range(n):
        visit(service, int(rng.integers(users)), rng, worse)


@pytest.fixture(scope="module")
def logged():
    """The log of 1,200 visits, of a service whose version v1 served all but the last 100."""
    with quick_folder() as folder:
        answers = {"healthy": True}
        clock = {"now": 0.0}
        with shop(
            folder / "shop.db",
            settings=replace(SETTINGS, floor=0.5),
            healthy=lambda: answers["healthy"],
            clock=lambda: clock["now"],
        ) as service:
            played(service, 1_100)
            answers["healthy"], clock["now"] = False, 100.0
            played(service, 100, seed=1)
            yield service.store.log()


# ---- Training


@pytest.mark.no_cover
def test_an_agent_learns_to_tell_the_arms_apart(logged):
    agent = train(small(seed=1), logged, epochs=30).agent
    users = np.arange(0, 1000, 10)
    x = FEATURES.transform(users).astype(np.float32)
    best = [(agent.embed(rows) @ agent.posterior.mean).argmax() for rows in x]
    share = TRUTH[users, best].mean() / TRUTH[users].max(axis=1).mean()
    assert share > 0.85  # a random arm has 0.41, the best single product 0.56


def test_training_repeats_itself(logged):
    first, again, other = (
        train(small(seed=seed), logged, epochs=1).to_bytes() for seed in (1, 1, 2)
    )
    assert first == again != other


def test_nothing_can_be_trained_on_nothing(logged):
    with pytest.raises(ValueError, match="log must hold rewarded events: got none"):
        train(small(), logged.where(slice(0)), 10)


def test_a_trained_agent_holds_every_event_in_new_embeddings(logged):
    model = train(small(seed=5), logged, epochs=1)
    posterior = model.agent.posterior
    A, b = np.eye(17), np.zeros(17)
    for context, arm, reward in zip(
        logged.context, logged.arm, logged.reward, strict=True
    ):
        z = model.agent.embed(logged.features[context, [arm]])[0].astype(float)
        A += np.outer(z, z)
        b += reward * z
    assert model.seq == 1_200
    np.testing.assert_allclose(posterior.A, A, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(posterior.b, b, rtol=1e-4, atol=1e-3)
    np.testing.assert_allclose(posterior.mean, np.linalg.solve(A, b), atol=1e-2)


def test_an_agent_without_a_network_learns_one_event_after_the_other(logged):
    agent, plain = (LinTSAgent(50, 9, discount=0.99) for _ in range(2))
    model = train(agent, logged.where(slice(100, 200)), 10)
    assert model.seq == 200
    for row in range(100, 200):
        context = Context(0, logged.features[logged.context[row]])
        plain.update(context, logged.arm[row], logged.reward[row])
    assert model.to_bytes() == Model(plain, 200).to_bytes()


@pytest.mark.parametrize(
    ("name", "value"),
    [("epochs", 0), ("held_out", 0.0), ("held_out", 1.0), ("seed", -1)],
)
def test_training_that_makes_no_sense_is_refused(path, name, value):
    with shop(path) as service:
        played(service, 2)
        with pytest.raises(ValueError, match=name):
            service.retrain(**{name: value})
        assert len(service.store.versions()) == 1


def test_the_older_part_trains_the_newer_judges_and_is_learnt_then(path):
    with shop(path, clock=lambda: 5.0) as service:
        played(service, 300)
        name = service.retrain(held_out=0.4, epochs=1, seed=3)
        older = service.store.log().where(slice(0, 180))
        expected = train(small(seed=3), older, epochs=1)
        expected.learn(service.store.rewards_after(180))
        version = service.store.version(name)
        assert version.state == "candidate"
        assert version.validation["n"] == 120
        ((seq, agent),) = service.store.snapshots(name)
        assert (seq, agent) == (300, expected.to_bytes())


# ---- Validation


def candidate_of(log, n=700):
    older, newer = log.where(slice(0, n)), log.where(slice(n, None))
    return train(small(seed=1), older, epochs=10).agent, newer


def test_a_validation_is_the_doubly_robust_estimate_of_what_would_be_chosen(logged):
    agent, newer = candidate_of(logged)
    found = validate(agent, newer, "v1", SETTINGS)
    mine = newer.where(newer.version == "v1")
    assert (found["n"], found["against"]) == (400, "v1")
    # Again, event by event, for the contexts in the same order of draws.
    again, _ = candidate_of(logged)
    policies, rows_of = {}, {}
    for context in np.unique(mine.context):
        x = mine.features[context]
        policies[context] = choice_probabilities(again, Context(0, x), SETTINGS)
        rows_of[context] = again.embed(x).astype(float)
    folds = []
    for fold in range(5):
        rest = [i for i in range(400) if i % 5 != fold]
        z = np.array([rows_of[mine.context[i]][mine.arm[i]] for i in rest])
        folds.append(np.linalg.solve(np.eye(17) + z.T @ z, z.T @ mine.reward[rest]))
    terms = []
    for i, context in enumerate(mine.context):
        pi, arm = policies[context], mine.arm[i]
        p = np.clip(rows_of[context] @ folds[i % 5], 0, 1)
        weight = pi[arm] / mine.propensity[i]
        terms.append(pi @ p + weight * (mine.reward[i] - p[arm]))
    half = stats.t.ppf(0.975, 399) * np.std(terms, ddof=1) / 20
    expected = [np.mean(terms), np.mean(terms) - half, np.mean(terms) + half]
    np.testing.assert_allclose(found["value"], expected)
    assert found["served"][0] == mine.reward.mean()
    assert found["passed"]


def test_a_candidate_that_loves_the_wrong_arms_is_refused(logged):
    older, newer = logged.where(slice(0, 700)), logged.where(slice(700, None))
    mixed_up = replace(older, reward=1 - older.reward)
    agent = train(small(seed=1), mixed_up, epochs=10).agent
    # So few effective events that only the estimate itself can find it.
    found = validate(agent, newer, "v1", replace(SETTINGS, min_sample=2))
    assert not found["passed"]
    assert found["value"][2] < found["served"][0]
    assert found["reason"].startswith("its value 0.")


def test_a_validation_needs_events_of_the_running_version(logged):
    agent, newer = candidate_of(logged)
    found = validate(agent, newer, "v7", SETTINGS)
    assert (found["passed"], found["n"]) == (False, 0)
    assert found["reason"] == "only 0 held-out events of v7"


def test_a_validation_needs_overlap(logged):
    agent, newer = candidate_of(logged)
    found = validate(agent, newer, "v1", replace(SETTINGS, min_sample=399))
    assert not found["passed"]
    assert 1 < found["effective"] < 399
    assert found["reason"].startswith("the log is worth only")


def test_wrong_propensities_are_noticed(logged):
    agent, newer = candidate_of(logged)
    halved = replace(newer, propensity=newer.propensity / 2)
    found = validate(agent, halved, "v1", SETTINGS)
    assert not found["passed"]
    assert found["reason"].startswith("its mean importance weight in the log is")
    assert "not 1" in found["reason"]


def test_values_are_right_on_average_and_their_intervals_cover(logged):
    """Against the simulator's truth, which a shop would not have; 100 logs of 400 events."""
    agent, _ = candidate_of(logged)
    persona_of_context = np.array(
        [x[0, :4].argmax() for x in logged.features]
    )  # one-hot: any arm's row tells
    truth = WORLD.click_table[persona_of_context][:, WORLD.category_of_product]
    rng, off, covered = np.random.default_rng(5), [], 0
    for number in range(100):
        context = rng.integers(len(truth), size=400)
        served = rng.dirichlet(np.ones(50), size=len(truth)) / 2 + 0.01
        arm = np.array([rng.choice(50, p=served[c]) for c in context])
        log = EventLog(
            seq=np.arange(400),
            event=np.arange(400),
            arm=arm,
            reward=(rng.random(400) < truth[context, arm]).astype(float),
            propensity=served[context, arm],
            version=np.full(400, "v1"),
            features=logged.features,
            context=context,
            masks=as_objects([b""] * 400),
        )
        agent.reseed(number)
        policy, _ = _policy_and_rows(agent, log, SETTINGS)
        agent.reseed(number)
        value = np.vecdot(policy, truth[context]).mean()
        mean, low, high = validate(agent, log, "v1", replace(SETTINGS, min_sample=2))[
            "value"
        ]
        off.append(mean - value)
        covered += low <= value <= high
    assert abs(np.mean(off)) < 3 * stats.sem(off)
    assert covered >= 88


# ---- Rollout


def accepted(service, seed=0):
    """Register a candidate that passes, whatever its figures."""
    candidate = Model(small(seed=seed), 0)
    candidate.learn(service.store.rewards_after(0))
    return service.store.register(
        candidate.to_bytes(),
        candidate.seq,
        {"passed": True, "against": service.rollout.active},
    )


def test_buckets_are_even_and_differ_between_versions():
    users = [number.to_bytes(16) for number in range(10_000)]
    first = np.array([bucket(user, "v2") for user in users])
    counts = np.bincount(first, minlength=100)
    assert stats.chisquare(counts).pvalue > 1e-3
    second = np.array([bucket(user, "v3") for user in users])
    assert abs(np.corrcoef(first, second)[0, 1]) < 0.05
    assert first[:3].tolist() == [bucket(user, "v2") for user in users[:3]]


def test_users_stay_on_the_new_side_as_it_grows(path):
    with shop(path) as service:
        service.begin_rollout(accepted(service))
        users, sides = [number.to_bytes(16) for number in range(1_000)], []
        for share in STAGES[:-1]:
            service.store.move((service.rollout.rolling, "rolling", share, ""))
            sides.append({u for u in users if service.rollout.assign(u) == "v2"})
            assert abs(len(sides[-1]) - 10 * share) < 60
        assert sides[0] < sides[1] < sides[2]


def test_only_a_validated_candidate_meets_users(path):
    with shop(path) as service:
        good = accepted(service)
        refusals = {
            "v1": "name must be of a candidate: v1 is active",
            "v3": "v3 may not be rolled out: too bad",
            "v4": "v4 may not be rolled out: was never validated",
            "v5": "v5 was validated against v0, but v1 is active: validate it again",
        }
        for figures in (
            {"passed": False, "reason": "too bad"},
            {},
            {"passed": True, "against": "v0"},
        ):
            service.store.register(b"", 0, figures)
        for name, words in refusals.items():
            before = service.store.versions()
            with pytest.raises(PromotionRefusedError, match=words):
                service.begin_rollout(name)
            assert service.store.versions() == before
        with pytest.raises(
            ValueError, match="name must be of a version in the registry: got 'v9'"
        ):
            service.begin_rollout("v9")
        service.begin_rollout(good)
        with pytest.raises(
            PromotionRefusedError, match="v2 is being rolled out: one at a time"
        ):
            service.begin_rollout(accepted(service))


def sides_of(service):
    """Users of the new side, and of the old."""
    new = service.rollout.rolling.name
    pseudonyms = map(service.store.pseudonym, range(1000))
    on = [service.rollout.assign(one) == new for one in pseudonyms]
    return np.flatnonzero(on), np.flatnonzero(~np.array(on))


def staged(service, n, seed, worse=0.0):
    """Serve n visits to each side."""
    rng, sides = np.random.default_rng(seed), sides_of(service)
    for step in range(2 * n):
        visit(service, int(rng.choice(sides[step % 2])), rng, worse)


def test_a_good_version_goes_through_all_stages_and_replaces_the_old_one(path):
    with shop(path, settings=replace(SETTINGS, floor=0.3)) as service:
        played(service, 600)
        service.begin_rollout(service.retrain(epochs=10))
        shares = []
        while service.rollout.rolling:
            shares.append(service.rollout.rolling.share)
            staged(service, 99, seed=shares[-1])
            assert service.review_rollout().outcome == "waiting"
            staged(service, 1, seed=0)
            review = service.review_rollout()
            assert review.visits == (100, 100)
            log = service.store.events()[-200:]
            for name, rate in zip(("v2", "v1"), review.rates, strict=True):
                assert np.mean([r[-1] for r in log if r[4] == name]) == pytest.approx(
                    rate
                )
        assert shares == [5, 20, 50]
        assert review.outcome == "promoted"
        states = {v.name: (v.state, v.share, v.note) for v in service.store.versions()}
        assert states == {
            "v1": ("retired", 0, "replaced by v2"),
            "v2": ("active", 100, ""),
        }
        assert service.select(0).version == "v2"
        assert set(service.learnt()) == {"v2"}
        assert service.learnt() == service.learnt(replayed=True)
        with pytest.raises(
            PromotionRefusedError, match="no version is being rolled out"
        ):
            service.review_rollout()


def test_a_bad_version_is_stopped_and_the_old_one_serves_on(path):
    with shop(path) as service:
        played(service, 300)
        service.begin_rollout(accepted(service))
        staged(service, 150, seed=1, worse=0.6)
        review = service.review_rollout()
        assert review.outcome == "rolled back"
        assert review.p_value < 0.01
        version = service.store.version("v2")
        assert (version.state, version.share) == ("retired", 0)
        assert version.note.startswith("guardrail: 0.")
        assert {service.select(user).version for user in range(40)} == {"v1"}
        assert set(service.learnt()) == {"v1"}


def test_a_stage_waits_for_both_sides(path):
    with shop(path) as service:
        service.begin_rollout(accepted(service))
        rng, (new, old) = np.random.default_rng(0), sides_of(service)
        for _ in range(120):
            visit(service, int(rng.choice(old)), rng)
        review = service.review_rollout()
        assert (review.outcome, review.visits) == ("waiting", (0, 120))
        assert np.isnan(review.rates[0])
        for _ in range(120):  # a hundred visits of one user are no sample of users
            visit(service, int(new[0]), rng)
        assert service.review_rollout().outcome == "waiting"


def test_a_stage_waits_for_enough_visits_of_the_new_side(path):
    with shop(path) as service:
        service.begin_rollout(accepted(service))
        rng, (new, old) = np.random.default_rng(0), sides_of(service)
        for user in [*rng.choice(old, size=120), *new[:30]]:
            visit(service, int(user), rng)
        review = service.review_rollout()
        assert (review.outcome, review.visits) == ("waiting", (30, 120))


def test_heads_of_both_sides_learn_from_both(path):
    with shop(path) as service:
        played(service, 50)
        service.begin_rollout(accepted(service))
        staged(service, 20, seed=1)
        service.learnt()
        assert {m.seq for m in service._models.values()} == {90}
        assert service.agent("v2") is not service.agent("v1")
        assert service.learnt() == service.learnt(replayed=True)


def test_visits_that_a_fallback_served_count_for_the_version_they_were_meant_for(path):
    now = {"time": 0.0}
    with shop(path, clock=lambda: now["time"]) as service:
        played(service, 50)
        service.begin_rollout(accepted(service))
        new, _ = sides_of(service)
        rng = np.random.default_rng(0)
        assert visit(service, int(new[0]), rng).version == "v2"
        service.store._db.execute(
            "UPDATE snapshots SET agent = x'00' WHERE version = 'v2'"
        )
        del service._models["v2"]
        assert visit(service, int(new[1]), rng).version.startswith("fallback")
        assert service.store.clicks_by_user("v2", 50)[:, 0].sum() == 2
        for user in new[:3]:
            visit(service, int(user), rng)
        review = (
            service.review_rollout()
        )  # it does not work: no need to wait for a test
        assert review.outcome == "rolled back"
        assert (
            "no good snapshot of v2: blob must be the bytes of a state"
            in service.store.version("v2").note
        )
        assert service.check_health().problems == {}


def test_of_two_reviews_at_once_each_judges_what_the_other_left(path):
    with shop(path) as service:
        service.begin_rollout(accepted(service))
        for _ in range(3):
            service._breakers["v2"].tried("it does not work", 0.0)
        review, answers = service.rollout.review, []

        def slow(broken):
            time.sleep(0.05)
            return review(broken)

        def ask():
            try:
                answers.append(service.review_rollout().outcome)
            except PromotionRefusedError as error:
                answers.append(str(error))

        with mock.patch.object(service.rollout, "review", slow):
            threads = [threading.Thread(target=ask) for _ in range(2)]
            for thread in threads:
                thread.start()
            for thread in threads:
                thread.join()
        assert answers == ["rolled back", "no version is being rolled out"]
        assert service.rollout.active == "v1"


def test_a_damaged_version_is_never_served_and_nothing_is_forgotten_before_it_is_whole(
    path,
):
    with shop(path) as service:
        played(service, 10)
    raw = sqlite3.connect(path)
    raw.execute("UPDATE snapshots SET agent = zeroblob(100)")
    raw.commit()
    with shop(path) as service:
        assert service.select(0).version.startswith("fallback")
        assert "no good snapshot of v1" in service.check_health().problems["v1"]
        with pytest.raises(StoreCorruptError, match="no good snapshot of v1"):
            service.erase(0)
        assert len(service.store.events()) == 11
    raw.close()


def test_a_candidate_that_was_refused_keeps_nobody_from_being_forgotten(path):
    with shop(path) as service:
        played(service, 10, users=5)
        figures = {"passed": False, "reason": "too bad"}
        service.store.register(b"", 0, figures)
        assert service.erase(0) > 0
        assert service.learnt() == service.learnt(replayed=True)


def test_a_snapshot_of_something_else_is_named(path):
    with shop(path) as service:
        figures = {"passed": True, "against": "v1"}
        service.store.register(b"[9]", 0, figures)
        service.begin_rollout("v2")
        problem = service.check_health().problems["v2"]
        assert "good snapshot of v2: blob must be the bytes of a state" in problem
        assert service.select(int(sides_of(service)[1][0])).version == "v1"
        assert service.select(int(sides_of(service)[0][0])).version.startswith(
            "fallback"
        )


def test_a_candidate_survives_forgetting_and_learns_what_it_missed(path):
    now = {"time": 0.0}
    with shop(path, clock=lambda: now["time"]) as service:
        played(service, 100)
        name = accepted(service)
        played(service, 50, seed=1)
        now["time"] = 10.0
        played(service, 20, seed=2)
        assert service.forget_before(10.0) == 150
        service.begin_rollout(name)
        model, _ = recover(service.store, name)
        assert model.seq == 170
        trace = np.trace(model.agent.posterior.A[-9:, -9:]) - 9
        assert trace == pytest.approx(2 * 170)  # each row joins two ones


# ---- The guardrail's test


def test_the_guardrail_compares_all_lots_of_users():
    """Against every way to choose the new side's users, written out."""
    rng = np.random.default_rng(0)
    visits = rng.integers(1, 9, 12).astype(float)
    users = np.stack([visits, rng.binomial(visits.astype(int), 0.4)], 1)
    rate = users[:, 1].sum() / visits.sum()
    surplus = users[:, 1] - rate * visits
    lots = [surplus[list(lot)].sum() for lot in combinations(range(12), 4)]
    expected = np.mean(np.array(lots) <= surplus[:4].sum() + 1e-9)
    assert p_value_worse(users[:4], users[4:]) == pytest.approx(expected, abs=0.02)


def test_sides_without_any_variance_are_compared_too():
    always, never = np.array([[1.0, 1.0]] * 5), np.array([[1.0, 0.0]] * 5)
    assert p_value_worse(always, never) == 1
    assert p_value_worse(never, always) == pytest.approx(1 / 252, abs=0.002)
    assert p_value_worse(never, never) == 1


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("rate", "tail"),
    [
        (0.01, 1.2),
        *(
            pytest.param(rate, tail, marks=pytest.mark.weekly)
            for rate in (0.003, 0.01, 0.4)
            for tail in (None, 1.2)
        ),
    ],
)
def test_the_guardrail_keeps_its_level_for_rare_clicks_and_heavy_visitors(rate, tail):
    """Three stages at level 0.01 stop at most three equal versions of a hundred."""
    rng, stopped, n = np.random.default_rng(2), 0, 100
    for _ in range(n):
        for share in (5, 20, 50):
            new = 500 * share // 20 if tail is None else 100 * share // 20
            sides = []
            for users in (new, min(new * (100 - share) // share, 1_000)):
                visits = np.ones(users, int)
                if tail:
                    visits = np.ceil(rng.pareto(tail, users)).clip(1, 2_000).astype(int)
                clicks = rng.binomial(visits, rate * rng.choice([0.5, 1.5], users))
                sides.append(np.stack([visits, clicks], 1).astype(float))
            if p_value_worse(*sides) < 0.01:
                stopped += 1
                break
    assert stopped <= stats.binom.ppf(0.999, n, 0.03)


@pytest.mark.no_cover
def test_the_guardrail_keeps_its_level_where_visits_of_a_user_are_alike():
    """Users differ; a test that took visits as independent would stop far too many good versions."""
    rng, small, naive = np.random.default_rng(1), 0, 0
    for _ in range(1_000):
        sides = []
        for n_users in (60, 240):
            visits = np.full(n_users, 12)
            clicks = rng.binomial(visits, rng.choice([0.1, 0.6], size=n_users))
            sides.append(np.stack([visits, clicks], 1).astype(float))
        small += p_value_worse(*sides) < 0.05
        (n1, c1), (n2, c2) = (side.sum(0) for side in sides)
        p = (c1 + c2) / (n1 + n2)
        naive += (
            stats.norm.cdf(
                (c1 / n1 - c2 / n2) / np.sqrt(p * (1 - p) * (1 / n1 + 1 / n2))
            )
            < 0.05
        )
    assert 30 <= small <= 72
    assert naive > 120


# ---- Seams


def test_logs_agree_with_the_off_policy_module(logged):
    assert len(logged) == 1_200
    assert set(logged.version) == {"v1", "fallback: epsilon-greedy"}
    rows = logged.for_estimates()
    assert (rows.version == "v1").sum() == 1_100
    weight = offpolicy.mean_weight(rows, np.full((1_200, 50), 1 / 50), level=0.999)
    assert weight.low < 1 < weight.high
