"""The laws that all agents keep: a table of agents, and what each of them must do.

A new agent is one line of `SHOPS` or `SESSIONS`, and is judged by all of them.
"""

import inspect
import resource
import time
import tracemalloc
from contextlib import suppress
from functools import partial

import numpy as np
import pandas as pd
import pytest

import zoolib.agents.neural
from tests.states import learnt
from zoolib import (
    Agent,
    Context,
    DQNAgent,
    EnsembleAgent,
    EpsilonGreedyAgent,
    GuardedAgent,
    HybridLinUCBAgent,
    LinearAgent,
    LinTSAgent,
    LinUCBAgent,
    MCDropoutAgent,
    NeuralLinearAgent,
    NeuralUCBAgent,
    OneHot,
    OracleAgent,
    QLearningAgent,
    RandomAgent,
    RevealedContext,
    SarsaAgent,
    StaticAgent,
)
from zoolib._support.state import Stateful, from_bytes, to_bytes
from zoolib.agents import NeuralAgent
from zoolib.agents.policies import greedy
from zoolib.models.networks import Adam

K, D, USERS, W, SEEDS = 4, 3, 12, 3, [11, 5, 2]
NAMES = ("leash", "toy", ("bowl", 2), 7)
TINY = {"hidden": (5,), "train_every": 4, "batch_size": 6, "dtype": np.float64}


class Counting(Agent):
    """A reader's agent, whose scores are whole numbers."""

    _learns = ("counts",)

    def __init__(self, n_arms, n_worlds=None, seed=0):
        super().__init__(n_arms, n_worlds, seed)
        self.counts = np.zeros(self._shape, np.int64)

    def scores(self, context):
        return self.counts + np.zeros((*context.features.shape[:-2], 1), np.int64)

    def learn(self, context, at, reward):
        self.counts[at] += 1


def plain(kind):
    return lambda arms=K, **more: kind(arms, **more)


def linear(kind, **options):
    return lambda arms=K, **more: kind(arms, D, **options | more)


def neural(kind, **options):
    return linear(kind, **TINY, **options)


def static(arms=K, n_worlds=None, seed=0):
    table = np.random.default_rng(0).integers(3, size=(USERS, arms)) / 2
    worlds = () if n_worlds is None else (n_worlds,)
    return StaticAgent(np.broadcast_to(table, (*worlds, *table.shape)), seed)


def guarded(make, **options):
    def guard(arms=K, n_worlds=None, seed=0):
        agent = make(arms, n_worlds=n_worlds, seed=seed)
        return GuardedAgent(agent, window=9, seed=seed, **options)

    return guard


CAPPED = {
    "floor": [0.1, 0.3],
    "cap": [0.5, 1.0],
    "segment_of_user": np.arange(USERS) % 2,
    "group_of_arm": [0, 0, 1, 2],
}
# Each makes an agent, given its arms, and if wanted n_worlds and seed.
SHOPS = {
    "random": plain(RandomAgent),
    "oracle": plain(OracleAgent),
    "a reader's": plain(Counting),
    "static": static,
    "greedy": linear(LinearAgent),
    "epsilon-greedy": linear(EpsilonGreedyAgent, epsilon=0.3),
    "linucb": linear(LinUCBAgent),
    "linucb, discount": linear(LinUCBAgent, discount=0.5),
    "linucb, window": linear(LinUCBAgent, window=7),
    "linucb, logit": linear(LinUCBAgent, link="logit"),
    "linucb, shared": linear(LinUCBAgent, shared=True),
    "linucb, shared, discount": linear(LinUCBAgent, shared=True, discount=0.5),
    "linucb, shared, window": linear(LinUCBAgent, shared=True, window=7),
    "linucb, shared, window, logit": linear(
        LinUCBAgent, shared=True, window=7, link="logit"
    ),
    "lints": linear(LinTSAgent),
    "lints, shared": linear(LinTSAgent, shared=True),
    "hybrid": linear(HybridLinUCBAgent, own=[0, 2]),
    "guarded": guarded(linear(LinUCBAgent), **CAPPED),
    "guarded, lints, logit": guarded(linear(LinTSAgent, link="logit"), floor=0.2),
    "neural-linear": neural(NeuralLinearAgent, embedding_dim=4),
    "neural-linear, rebuilt": neural(
        NeuralLinearAgent, embedding_dim=4, rebuild=True, window=15, joined=True
    ),
    "neural-linear, separate, thompson": neural(
        NeuralLinearAgent, embedding_dim=4, shared=False, policy="thompson"
    ),
    "ensemble": neural(EnsembleAgent, n_members=3),
    "ensemble, separate, thompson": neural(
        EnsembleAgent, n_members=3, shared=False, policy="thompson"
    ),
    "dropout": neural(MCDropoutAgent, n_masks=4, optimiser="sgd"),
    "dropout, thompson": neural(MCDropoutAgent, n_masks=4, policy="thompson"),
    "neural-ucb": neural(NeuralUCBAgent),
    "neural-ucb, diagonal": neural(NeuralUCBAgent, inverse="diagonal"),
}
SESSIONS = {
    "q-learning": partial(QLearningAgent, 5, K),
    "sarsa": partial(SarsaAgent, 5, K, epsilon=0.5),
    "dqn": partial(
        DQNAgent,
        K,
        OneHot([6]),
        hidden=(5,),
        batch_size=4,
        learning_starts=3,
        target_every=6,
        epsilon_steps=20,
    ),
}
ALL = SHOPS | SESSIONS
# Their scores are drawn anew, for several visitors in another order than for one after another.
DRAWN = [name for name in SHOPS if "dropout" in name or name.endswith("thompson")]
DRAWN += ["lints", "lints, shared"]
LINEAR = [name for name in SHOPS if name.startswith(("greedy", "eps", "lin", "hyb"))]
of_all = pytest.mark.parametrize("name", ALL)
of_shops = pytest.mark.parametrize("name", SHOPS)
of_linear = pytest.mark.parametrize("name", LINEAR)


def visit(agent, step, n=None):
    """What `update` takes of a visit to each world, or of n visitors; `select` takes the first."""
    lead = (agent.n_worlds,) if agent.n_worlds else () if n is None else (n,)
    rng = np.random.default_rng([step, 7])
    if not isinstance(agent, Agent):
        deep = isinstance(agent, DQNAgent)
        seen, then = rng.integers(5, size=(2, *lead, *[1] * deep))
        end = rng.random(lead) < 0.2
        return seen, rng.integers(K, size=lead), rng.integers(2, size=lead), then, end
    k = agent.n_arms
    features = rng.normal(size=(*lead, k, D))
    features[..., 2, :] = features[..., 0, :]  # lookalikes
    users, truth = rng.integers(USERS, size=lead), rng.random((*lead, k))
    users = users if lead else int(users)
    context = RevealedContext(users, features, truth)
    return context, rng.integers(k, size=lead), rng.integers(2, size=lead)


def of_one(args, w):
    """What `update` takes of one of several worlds or visitors."""
    first, *rest = args
    one = first.of_world(w) if isinstance(first, Context) else first[w]
    return one, *(column[w] for column in rest)


def play(agent, steps, visits=None):
    """Let an agent live; return its choices."""
    chosen = []
    for step in steps:
        args = visit(agent, step) if visits is None else visits(step)
        chosen.append(agent.select(args[0]))
        agent.update(*args)
        if isinstance(agent, Agent) and step % 8 == 5:
            agent.restock(np.full((*agent._shape[:-1], 1), step % K))
        if hasattr(agent, "add_arms") and step == 12:
            agent.add_arms(1)
    return np.array(chosen)


def numbers(learned):
    """All numbers in a state, in one row."""
    if isinstance(learned, dict):
        learned = list(learned.values())
    if isinstance(learned, list):
        return np.concatenate([np.zeros(0), *map(numbers, learned)])
    plain = isinstance(learned, float | np.ndarray)  # counts are no numbers
    return np.ravel(learned).astype(float) if plain else np.zeros(0)


def assert_alike(one, other, **near):
    """What two agents have learnt differs at most by rounding."""
    numbers_of = [numbers(agent.state()["learned"]) for agent in (one, other)]
    np.testing.assert_allclose(*numbers_of, **({"rtol": 1e-7, "atol": 1e-9} | near))


# Refused is unchanged.


def changed(agent, n=None, at=None, **which):
    """A visit, or n, with something else in it: everywhere, or in one row."""
    context, arm, reward = visit(agent, 99, n)
    given = {"features": context.features.copy(), "arm": arm, "reward": reward}
    given |= {"user_id": context.user_id, "truth": context.expected_reward}
    for name, value in which.items():
        if at is None:
            given[name] = value(given[name]) if callable(value) else value
        else:
            given[name] = np.array(given[name], np.result_type(given[name], value))
            given[name][at] = value
    arm, reward = given.pop("arm"), given.pop("reward")
    return lambda: agent.update(RevealedContext(*given.values()), arm, reward)


def logged(agent, **which):
    """A log of 5 rows with something else in its last."""
    given = {"features": np.ones((5, D)), "arms": np.arange(5) % K}
    given |= {"rewards": np.arange(5) % 2}
    for name, value in which.items():
        given[name] = given[name].astype(np.result_type(given[name], value))
        given[name][-1] = value
    return lambda: agent.update_many(**given)


def failing(arms):
    yield from arms
    raise OSError("the labels cannot be read any further")


FAULTS = {
    "features, huge": lambda a: changed(a, features=lambda x: 1.7e9 * x),
    "features, a huge column": lambda a: changed(
        a, features=lambda x: x * [1, 1.7e9, 1]
    ),
    "features, in cents": lambda a: changed(
        a, features=lambda x: (1e6 * x).astype(np.float32)
    ),
    "features, without end": lambda a: changed(a, features=lambda x: x * 1e300 * 1e300),
    "features, more rows": lambda a: changed(
        a, features=np.ones((K + 1, D)), truth=np.ones(K + 1)
    ),
    "features, more columns": lambda a: changed(a, features=np.ones((K, D + 1))),
    "features, behind a mask": lambda a: changed(
        a, features=lambda x: np.ma.array(x, mask=x > 0)
    ),
    "arm, below": lambda a: changed(a, arm=-1),
    "arm, beyond": lambda a: changed(a, arm=K),
    "arm, no whole number": lambda a: changed(a, arm=1.0),
    "arm, a flag": lambda a: changed(a, arm=True),
    "reward, missing": lambda a: changed(a, reward=np.nan),
    "reward, huge": lambda a: changed(a, reward=1e200),
    "reward, a text": lambda a: changed(a, reward="1"),
    "reward, more than a click": lambda a: changed(a, reward=2.0),
    "batch, last visitor": lambda a: changed(a, 5, at=4, user_id=USERS),
    "batch, last features": lambda a: changed(a, 5, at=4, features=1.7e9),
    "batch, last arm": lambda a: changed(a, 5, at=4, arm=K),
    "batch, last reward": lambda a: changed(a, 5, at=4, reward=2.0),
    "batch, last reward, huge": lambda a: changed(a, 5, at=4, reward=9e14),
    "batch, a set of arms": lambda a: changed(a, 4, arm=set(range(4))),
    "log, last features": lambda a: logged(a, features=1.7e9),
    "log, last arm": lambda a: logged(a, arms=K),
    "log, last reward": lambda a: logged(a, rewards=2.0),
    "log, last reward, missing": lambda a: logged(a, rewards=np.nan),
    "stock, beyond": lambda a: lambda: a.restock(np.array([K + 9])),
    "stock, below": lambda a: lambda: a.restock(np.array([-1])),
}


@of_shops
def test_what_is_refused_changes_nothing(name):
    agent = SHOPS[name]()
    play(agent, range(15))
    for fault, make in FAULTS.items():
        before, refusal = learnt(agent), None
        try:
            with np.errstate(all="ignore"):
                make(agent)()
        except (ValueError, TypeError, FloatingPointError) as error:
            refusal = str(error)
        if refusal:
            words = ("features", "arm", "reward", "user_id", "losses", "gradients")
            assert any(word in refusal for word in words), (fault, refusal)
            assert learnt(agent) == before, fault
        else:  # was right for this agent
            assert np.isfinite(numbers(agent.state()["learned"])).all(), fault
            agent = SHOPS[name]()
            play(agent, range(15))
    play(agent, range(15, 20))


@of_shops
def test_new_arms_that_are_refused_do_not_come(name):
    make = SHOPS[name]
    if not hasattr(make(), "add_arms"):
        pytest.skip("has no new arms")
    for arms, more in ((K, [0, 1.5, True, "a", ["a"]]), (NAMES, [1, "ab", {"x", "y"}])):
        agent = make(arms)
        before = learnt(agent)
        given = [(one, {}) for one in more]
        if arms is NAMES:
            given += [(["new", "leash"], {}), (failing(["new"]), {})]
            given += [(["new", float("nan")], {}), (["new", np.datetime64("NaT")], {})]
        good = 2 if arms == K else ["new", "newer"]
        given += [(good, {"mean": [np.nan] * D}), (good, {"mean": np.ones((3, D))})]
        given += [(good, {"ridge": 0.0}), (good, {"ridge": np.inf})]
        for one, prior in given:
            with pytest.raises((ValueError, TypeError, OSError)):
                agent.add_arms(one, **prior)
            assert learnt(agent) == before
            assert agent.n_arms == K


@pytest.mark.parametrize(
    "name",
    [n for n in ALL if "train_every" in inspect.signature(type(ALL[n]())).parameters],
)
@pytest.mark.parametrize("after", [1, 2, 3])
def test_an_interrupted_training_is_undone(name, after, monkeypatch):
    agent = ALL[name]()
    play(agent, range(15))
    left = after

    def step(*args, real):
        nonlocal left
        left -= 1
        if left <= 0:
            raise KeyboardInterrupt
        return real(*args)

    for place, function in ((zoolib.agents.neural, "descend"), (Adam, "step")):
        real = partial(step, real=getattr(place, function))
        double = real if place is not Adam else lambda s, real=real: real(s)
        monkeypatch.setattr(place, function, double)
    for step_ in range(15, 15 + 12):
        before = learnt(agent)
        try:
            agent.update(*visit(agent, step_))
        except KeyboardInterrupt:
            assert learnt(agent) == before
            break
    else:
        pytest.fail("was not interrupted")
    left = 2  # in the midst of a batch of visits
    if isinstance(agent, Agent):
        with pytest.raises(KeyboardInterrupt):
            agent.update(*visit(agent, 99, 9))
        assert learnt(agent) == before


STEPS = {
    "observation, beyond": (0, 9),
    "observation, a text": (0, "1"),
    "action, beyond": (1, K),
    "action, no whole number": (1, 1.0),
    "reward, missing": (2, np.nan),
    "reward, huge": (2, 1e300),
    "next_observation, beyond": (3, 9),
    "ended, no flag": (4, 1),
    "ended, a text": (4, "False"),
}


@pytest.mark.parametrize("name", SESSIONS)
def test_steps_that_are_refused_change_nothing(name):
    agent = SESSIONS[name]()
    play(agent, range(15))
    before = learnt(agent)
    for fault, (place, value) in STEPS.items():
        args = list(visit(agent, 99))
        args[place] = [value] if np.ndim(args[place]) else value
        with pytest.raises((ValueError, TypeError), match=fault.partition(",")[0]):
            agent.update(*args)
        assert learnt(agent) == before


# No visitors, many visitors, many worlds.


@of_shops
@pytest.mark.parametrize("arms", [K, NAMES], ids=["numbers", "names"])
def test_no_visitors_are_no_choices_and_teach_nothing(name, arms):
    make = SHOPS[name]
    if name == "static" and arms is NAMES:
        pytest.skip("has no names")
    agent = make(arms)
    agent.update(visit(agent, 0)[0], arms[1] if arms is NAMES else 1, 1)
    before, lists = learnt(agent), ([], [], [])
    for context, arm, reward in (visit(agent, 1, 0), lists):
        if context == []:
            if name == "oracle":  # whose contexts bring the truth
                continue
            context = Context([], [])
        assert agent.select(context).shape == (0,)
        assert agent.propensities(context).shape == (0, K)
        agent.update(context, arm, reward)
        assert learnt(agent) == before
    for features in (np.zeros((0, D)), []):
        agent.update_many(features, [], [])
        assert learnt(agent) == before


@of_shops
@pytest.mark.parametrize("n", [1, 3, K])
def test_visitors_at_once_are_one_after_another(name, n):
    together, apart, log = (SHOPS[name]() for _ in range(3))
    for agent in (together, apart, log):
        play(agent, range(8))
    for step in range(3):
        visits = visit(together, 50 + step, n)
        ones = [of_one(visits, i) for i in range(n)]
        chosen = together.select(visits[0])
        if getattr(together, "cap", np.ones(1)).min() == 1 and name not in DRAWN:
            assert chosen.tolist() == [apart.select(one[0]) for one in ones]
        if name not in DRAWN:
            shares = together.propensities(visits[0])
            alone = [apart.propensities(one[0]) for one in ones]
            np.testing.assert_allclose(shares, alone, rtol=1e-6, atol=1e-9)
        together.update(*visits)
        for one in ones:
            apart.update(*one)
        if name not in ("guarded", "hybrid"):
            rows = visits[0].features[np.arange(n), visits[1]]
            log.update_many(rows, *visits[1:])
    assert_alike(together, apart)


@pytest.mark.parametrize("cap", [0.3, 0.5])
def test_caps_hold_within_a_batch(cap):
    table = np.tile([0.1, 0.9, 0.5, 0.4], (USERS, 1))
    agent = GuardedAgent(StaticAgent(table), floor=0.2, cap=cap, window=1000)
    context = Context(np.zeros(200, int), np.ones((200, K, D)))
    before = learnt(agent)["recent"] if isinstance(learnt(agent), dict) else None
    arms, shares = agent.decide(context)
    for arm in range(K):
        shown = (arms == arm).cumsum()
        assert (shown <= cap * np.arange(200) + 1).all()
    assert agent.exposure.sum() == 0, before
    assert (shares > 0).all()
    agent.update(context, arms, np.zeros(200))
    assert agent.exposure.max() <= cap * 200 + 1


@of_all
def test_worlds_in_step_go_as_each_would_alone(name):
    together = ALL[name](n_worlds=W, seed=SEEDS)
    chosen = play(together, range(30))
    assert chosen.shape == (30, W)
    for w, seed in enumerate(SEEDS):
        alone = ALL[name](seed=seed)
        ones = play(
            alone, range(30), lambda step, a=alone, w=w: of_one(visit(a, step, W), w)
        )
        assert ones.tolist() == chosen[:, w].tolist()


@of_all
@pytest.mark.parametrize(("n_worlds", "steps"), [(None, 0), (2, 7), (None, 23)])
def test_a_restored_agent_goes_on_alike(name, n_worlds, steps):
    agent = ALL[name](n_worlds=n_worlds)
    play(agent, range(steps))
    state = from_bytes(learnt(agent))
    again = Stateful.from_state(state)
    assert type(again) is type(agent)
    assert repr(again) == repr(agent)
    assert learnt(again) == learnt(agent)
    goes_on = range(30, 42)
    assert np.array_equal(play(again, goes_on), play(agent, goes_on))
    assert learnt(again) == learnt(agent)
    assert learnt(type(agent).from_state(state)) == to_bytes(state)


@of_all
def test_the_seed_decides_what_is_left_to_chance(name):
    one, same, other = (ALL[name](seed=seed) for seed in (3, 3, 4))
    chosen = [play(agent, range(30)).tolist() for agent in (one, same, other)]
    assert chosen[0] == chosen[1]
    assert learnt(one) == learnt(same) != learnt(other)


@of_shops
def test_arms_are_shown_as_often_as_propensities_say(name):
    agent = SHOPS[name](seed=1)
    play(agent, range(14))
    context = visit(agent, 77)[0]
    shares = agent.propensities(context, n_draws=1000)
    assert shares.sum() == pytest.approx(1)
    n = 400
    shown = [agent.select(context) for _ in range(n)]
    counts = np.bincount(shown, minlength=agent.n_arms)
    error = np.sqrt(shares * (1 - shares) * (1 / n + 1 / 1000))
    assert (abs(counts / n - shares) <= 4.5 * error + 2e-3).all(), (counts / n, shares)


@of_shops
def test_what_is_not_allowed_has_no_propensity(name):
    agent = SHOPS[name]()
    play(agent, range(14))
    context = visit(agent, 77)[0]
    allowed = np.arange(agent.n_arms) % 2 == 1
    shares = agent.propensities(context, allowed)
    assert (shares[~allowed] == 0).all()
    assert shares.sum() == pytest.approx(1)


@of_shops
@pytest.mark.parametrize("n", [None, 3])
def test_what_is_not_on_offer_is_never_read(name, n):
    agent, whole = SHOPS[name](), SHOPS[name]()
    for one in (agent, whole):
        play(one, range(11))
    context, arm, reward = visit(agent, 77, n)
    offered = np.broadcast_to(np.arange(K) % 2 == 1, context.features.shape[:-1])
    hidden = np.where(offered[..., None], context.features, np.nan)
    some = Context(context.user_id, hidden, offered=offered)
    if name == "oracle":
        pytest.skip("its contexts bring the truth")
    shares = agent.propensities(some)
    assert (shares[~offered] == 0).all()
    np.testing.assert_array_equal(shares, whole.propensities(context, offered))
    assert (np.asarray(agent.select(some)) % 2 == 1).all()
    whole.select(Context(context.user_id, context.features, offered=offered))
    arm = 1 + arm // 2 * 2  # one on offer
    for one, seen in ((agent, some), (whole, context)):
        one.update(seen, arm if n else int(arm), reward)
    assert learnt(agent) == learnt(whole)


# Labels and tables.


@of_shops
def test_labels_change_nothing_but_the_names(name):
    if name == "static":
        pytest.skip("has no names")
    named, numbered = SHOPS[name](NAMES), SHOPS[name](K)
    for step in range(20):
        context, arm, reward = visit(numbered, step)
        place = numbered.select(context)
        assert named.select(context) == NAMES[place]
        numbered.update(context, arm, reward)
        named.update(context, NAMES[arm], reward)
    ours, theirs = named.state()["learned"], numbered.state()["learned"]
    assert to_bytes(ours) == to_bytes(theirs)


# What newcomers hand over in place of a context.
NO_CONTEXTS = {
    "ndarray": np.ones((K, D)),
    "DataFrame": pd.DataFrame(np.ones((K, D))),
    "list": [0.3, 1.0],
    "tuple": (0, np.ones((K, D))),
    "int": 0,
    "NoneType": None,
}
ENTRIES = {
    "select": (),
    "propensities": (),
    "update": (0, 1.0),
    "scores": (),
    "draws": (2,),
    "predict_with_width": (),
    "decide": (),
    "allowed": (),
}


@of_shops
def test_what_is_no_context_is_named(name):
    agent = SHOPS[name]()
    before = learnt(agent)
    for entry, more in ENTRIES.items():
        of_rows = entry == "predict_with_width" and isinstance(agent, NeuralAgent)
        own = name == "a reader's" and entry in ("scores", "draws")
        if not hasattr(agent, entry) or of_rows or own:
            continue
        for kind, given in NO_CONTEXTS.items():
            with pytest.raises(
                TypeError, match=rf"context must be a Context, .*: got {kind}"
            ):
                getattr(agent, entry)(given, *more)
    assert learnt(agent) == before


READ_RIGHT = {
    "a list": list("abcd"),
    "an iterator": iter("abcd"),
    "keys": {"a": 1, "b": 2, "c": 3, "d": 4},
    "an index": pd.Index(list("abcd")),
    "categories": pd.Categorical(list("abcd")),
    "a column": pd.Series(list("abcd"), index=[3, 2, 1, 0]),
    "texts of numpy": np.array(list("abcd")),
    "a mask that hides nothing": np.ma.array(list("abcd"), mask=False),
}
REFUSED = {
    "a set": set("abcd"),
    "a frozen set": frozenset("abcd"),
    "a text": "abcd",
    "bytes": b"abcd",
    "a gap": ["a", "b", "c", float("nan")],
    "a gap of pandas": ["a", "b", "c", pd.NA],
    "a gap among categories": pd.Categorical(["a", "b", "c", None]),
    "no time": ["a", "b", "c", pd.NaT],
    "times": pd.date_range("2024-01-01", periods=4).to_numpy(),
    "days": np.arange("2024-01-01", "2024-01-05", dtype="datetime64[D]"),
    "time spans": np.arange(4).astype("timedelta64[s]"),
    "masked": np.ma.array(list("abcd"), mask=[0, 1, 0, 0]),
    "one masked": ["a", "b", "c", np.ma.masked],
    "a table": pd.DataFrame(np.ones((2, 4)), columns=list("abcd")),
    "twice": list("abca"),
    "none": [],
    "a flag": True,
    "a fraction": 4.0,
}


@of_shops
def test_labels_are_read_right_or_refused_at_once(name):
    if name == "static":
        pytest.skip("has no names")
    for kind, arms in READ_RIGHT.items():
        arms = iter("abcd") if kind == "an iterator" else arms
        agent = SHOPS[name](arms)
        assert list(agent.arms) == list("abcd"), kind
        assert {agent.select(visit(agent, s)[0]) for s in range(9)} <= set("abcd")
    for kind, arms in REFUSED.items():
        try:
            SHOPS[name](arms)
        except (ValueError, TypeError) as error:
            refusal = error
        else:
            pytest.fail(f"took {kind}")
        assert "n_arms" in str(refusal), kind


COLUMNS = {
    "a column": lambda x: pd.Series(x, index=range(len(x))[::-1]),
    "an iterator of arms": list,
    "uint8": lambda x: np.asarray(x).astype(np.uint8),
    "a mask that hides nothing": lambda x: np.ma.array(x, mask=False),
}


@of_shops
def test_columns_are_read_right_or_refused(name):
    agent, plain = SHOPS[name](), SHOPS[name]()
    for kind, column in COLUMNS.items():
        context, arm, reward = visit(agent, 5, 6)
        plain.update(context, arm, reward)
        agent.update(context, column(arm), column(reward))
        assert learnt(agent) == learnt(plain), kind
    hidden = np.ma.array([0, 1, 0, 1, 0, 1], mask=[0, 0, 1, 0, 0, 0])
    context, arm, reward = visit(agent, 5, 6)
    for given in (
        hidden,
        set(range(6)),
        ["0"] * 6,
        [None] * 6,
        [0, 1, 0, 1, 0, np.nan],
    ):
        for column in ((given, reward), (arm, given)):
            with pytest.raises((ValueError, TypeError)):
                agent.update(context, *column)
        assert learnt(agent) == learnt(plain)
    for features in (np.ma.array(np.ones((K, D)), mask=np.eye(K, D)), set("ab")):
        with pytest.raises((ValueError, TypeError), match="features"):
            Context(0, features)


# Flags, numbers, scales.


@of_all
def test_flags_are_flags(name):
    agent = ALL[name]()
    for flag, parameter in inspect.signature(type(agent)).parameters.items():
        if isinstance(parameter.default, bool):
            for value in ("False", "", 0, 1, None, np.array([True])):
                with pytest.raises(TypeError, match=f"{flag} must be True or False"):
                    ALL[name](**{flag: value})
            assert getattr(
                ALL[name](**{flag: np.bool_(getattr(agent, flag))}), flag
            ) in (
                True,
                False,
            )


@of_all
def test_zero_is_a_value(name):
    agent = ALL[name]()
    for setting, parameter in inspect.signature(type(agent)).parameters.items():
        if parameter.default is None or setting in ("window", "n_worlds"):
            kinds = (ValueError, TypeError)
            if setting in ("segment_of_user", "group_of_arm", "network_seed"):
                continue
            with pytest.raises(kinds, match=setting):
                ALL[name](**{setting: 0})


@pytest.mark.parametrize("scale", [1e-6, 1, 1e9])
@pytest.mark.parametrize("dtype", [np.float64, np.float32])
def test_ties_are_relative_to_the_scores(scale, dtype):
    near = np.finfo(dtype).eps
    scores = scale * np.array([[1, 9], [9, 1], [9, 9], [9, 9 * (1 + 2 * near)]])
    policy = greedy(scores.astype(dtype))
    assert policy.tolist() == [[0, 1], [1, 0], [0.5, 0.5], [0.5, 0.5]]
    assert greedy(-scores[:2].astype(dtype)).tolist() == [[1, 0], [0, 1]]
    agent = StaticAgent(scores.astype(dtype))
    assert {agent.select(Context(0, np.ones((2, 1)))) for _ in range(9)} == {1}
    assert greedy([[0, 0, -1]]).tolist() == [[0.5, 0.5, 0]]


@of_linear
@pytest.mark.parametrize("scale", [1e-4, 3.0, 1e3])
def test_a_change_of_units_changes_no_choice(name, scale):
    make = SHOPS[name]
    one, other = make(ridge=0.7), make(ridge=0.7 * scale**2)
    for step in range(60):
        context, arm, reward = visit(one, step)
        scaled = Context(context.user_id, scale * context.features)
        shares = one.propensities(context), other.propensities(scaled)
        np.testing.assert_allclose(*shares, atol=1e-6)
        assert one.select(context) == other.select(scaled)
        if "lints" not in name:
            scores = one.scores(context), other.scores(scaled)
            np.testing.assert_allclose(*scores, rtol=1e-8)
        one.update(context, arm, reward)
        other.update(scaled, arm, reward)


# What has left is forgotten.


@pytest.mark.parametrize("name", [n for n in LINEAR if n[-6:] in ("window", "scount")])
@pytest.mark.parametrize("size", [1e2, 1e5, 1e9])
@pytest.mark.parametrize("n_worlds", [None, 2])
def test_an_outlier_that_has_left_is_forgotten(name, size, n_worlds):
    told, untold = (SHOPS[name](n_worlds=n_worlds) for _ in range(2))
    lasts = 240 if "discount" in name else 12
    for step in range(20 + lasts):
        context, arm, reward = visit(told, step)
        seen = context
        if step in (8, 9, 11):
            features = context.features + size / (1 + step % 3)
            seen = Context(context.user_id, features)
        with suppress(ValueError):  # so large that it is refused
            told.update(seen, arm, reward)
            untold.update(context, arm, reward)
    for step in range(99, 102):
        context = visit(told, step)[0]
        scores = told.scores(context), untold.scores(context)
        np.testing.assert_allclose(*scores, rtol=1e-5)


# Cost.


@of_shops
def test_propensities_of_many_visits_are_computed_in_blocks(name):
    one_by_one = isinstance(SHOPS[name](), NeuralAgent)
    n = 60 if one_by_one else 2000
    agent = SHOPS[name](12) if name != "guarded" else SHOPS[name]()
    rng = np.random.default_rng(0)
    features = rng.normal(size=(n, agent.n_arms, D))
    truth = rng.random((n, agent.n_arms))
    context = RevealedContext(rng.integers(USERS, size=n), features, truth)
    tracemalloc.start()
    assert agent.propensities(context).shape == (n, agent.n_arms)
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 12 * features.nbytes + 30e6, peak


@pytest.mark.parametrize("name", ["linucb"])
def test_a_log_costs_its_rows_and_not_rows_times_arms(name):
    def seconds(arms):
        agent = SHOPS[name](arms)
        rows = np.ones((40_000, D)), np.arange(40_000) % arms, np.zeros(40_000)
        start = time.process_time()
        agent.update_many(*rows)
        return time.process_time() - start

    few, many = (min(seconds(arms) for _ in range(3)) for arms in (20, 1250))
    assert many < 3 * few + 0.06


# States.


def leaves(state, path=()):
    for key in state:
        yield (*path, key)
        if isinstance(state[key], dict):
            yield from leaves(state[key], (*path, key))


JUNK = [None, "x", -1, 0, 10**6, 10**12, 1e30, float("nan"), True, [], {}, [1] * 7]
JUNK += [np.zeros(0), np.full((2, 2), np.nan), np.array(["x"]), {"class": "Agent"}]


@of_all
def test_crafted_states_are_refused_or_work(name):
    agent = ALL[name]()
    play(agent, range(9))
    paths, rng = list(leaves(agent.state())), np.random.default_rng(0)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    for _ in range(30):
        state = agent.state()
        *way, last = paths[rng.integers(len(paths))]
        place = state
        for key in way:
            place = place[key]
        if rng.random() < 0.1:
            del place[last]
        else:
            place[last] = JUNK[rng.integers(len(JUNK))]
        start = time.perf_counter()
        try:
            made = Stateful.from_state(state)
        except (ValueError, TypeError):
            pass
        else:
            assert isinstance(made.state(), dict)
        assert time.perf_counter() - start < 1, (way, last, place.get(last))
    # An array of zeros takes no memory before it is written to.
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss < before + 200_000


@of_all
def test_a_class_of_the_same_name_is_not_taken_for_the_librarys(name):
    agent = ALL[name]()
    kind, state = type(agent), agent.state()
    if kind is Counting:
        pytest.skip("is a reader's")
    double = type(kind.__name__, (kind,), {})
    assert type(Stateful.from_state(state)) is kind
    with pytest.raises(ValueError, match=f"state must be that of a {kind.__name__}"):
        double.from_state(state)
    settings = {
        name: getattr(agent, name) for name in inspect.signature(kind).parameters
    }
    mine = double(**settings)
    assert type(Stateful.from_state(mine.state())) is double
    assert type(Stateful.from_state(state)) is kind
