"""Every setting that a class declares refuses what its check refuses, by its name, and keeps the rest."""

import inspect
from dataclasses import fields
from functools import partial

import numpy as np
import pytest

import zoolib
from zoolib import Churn, OneHot
from zoolib._support import checks, settings
from zoolib._support.state import Stateful
from zoolib.agents import neural
from zoolib.service.settings import Settings

NAN, INF = float("nan"), float("inf")
NOT_NUMBERS = ["1", None, True, 1j, [0.5]]
WRONG = {
    checks.as_size: [0, -1, 1.5, 2.0, *NOT_NUMBERS],
    checks.as_flag: ["False", 0, 1, 1.0, None, [], np.array([True])],
    checks.as_positive: [0, -1.0, NAN, INF, *NOT_NUMBERS],
    checks.as_not_negative: [-0.1, NAN, INF, -INF, *NOT_NUMBERS],
    checks.as_rate: [0, -0.1, 1.1, NAN, *NOT_NUMBERS],
    checks.as_probability: [-0.1, 1.1, NAN, INF, *NOT_NUMBERS],
    checks.as_share: [-0.1, 1, 1.1, NAN, *NOT_NUMBERS],
    checks.as_level: [0, 1, -0.1, NAN, *NOT_NUMBERS],
    checks.as_one_of: ["", "other", None, 3],
    neural.as_precision: [int, np.float16, complex, np.float128],
}
RIGHT = {
    checks.as_size: [1, np.int64(7)],
    checks.as_flag: [True, False, np.True_],
    checks.as_positive: [2, np.float32(0.5)],
    checks.as_not_negative: [0, 0.5],
    checks.as_rate: [1, 0.5],
    checks.as_probability: [0, 1],
    checks.as_share: [0, 0.5],
    checks.as_level: [0.5],
}
NEEDED = {
    "n_arms": 3,
    "n_features": 2,
    "own": [0],
    "n_states": 3,
    "n_actions": 2,
    "every": 2,
}


def subclasses(kind):
    for one in kind.__subclasses__():
        yield one
        yield from subclasses(one)


# All that `zoolib` exports have been loaded by now.
[getattr(zoolib, name) for name in zoolib.__all__]
KINDS = [
    kind
    for kind in [*subclasses(Stateful), Settings, Churn]
    if kind.__module__.startswith("zoolib.") and hasattr(kind, "__dataclass_fields__")
]
DECLARED = [
    (kind, one.name, one.metadata["check"])
    for kind in KINDS
    for one in fields(kind)
    if one.init and "check" in one.metadata
]
each_setting = pytest.mark.parametrize(
    ("kind", "name", "check"),
    DECLARED,
    ids=[f"{kind.__name__}.{name}" for kind, name, _ in DECLARED],
)


def made(kind, **given):
    wanted = inspect.signature(kind).parameters
    usual = {name: value for name, value in NEEDED.items() if name in wanted}
    if "encoder" in wanted:
        usual["encoder"] = OneHot([3])
    if "hidden" in wanted:
        usual |= {"hidden": (3,), "buffer_size": 80, "batch_size": 1}
    if given.get("window") and "rebuild" in wanted:
        usual["rebuild"] = True
    return kind(**(usual | given))


def test_what_an_object_keeps_for_itself_is_no_setting():
    own = {
        kind.__name__: [
            one for one in inspect.signature(kind).parameters if one[0] == "_"
        ]
        for kind in KINDS
    }
    assert not any(own.values()), own


def values(check, table):
    """Return values for a check, also for one that lets None pass or that each entry must pass."""
    if isinstance(check, partial):
        if check.func is settings._optional:
            return [one for one in values(*check.args, table) if one is not None]
        if check.func is settings._each:
            return [[one] for one in values(*check.args, table)]
        if "least" in check.keywords:
            return [one for one in values(check.func, table) if one != 0]
        check = check.func
    return table.get(check, [])


@each_setting
def test_what_a_setting_may_not_be_is_refused_by_its_name(kind, name, check):
    assert values(check, WRONG)
    for wrong in values(check, WRONG):
        with pytest.raises((TypeError, ValueError), match=f"^{name} must "):
            made(kind, **{name: wrong})


ARMS = [
    (["a", "a"], "n_arms must differ: got 'a' more than once"),
    ([], "number of n_arms must be at least 1"),
    ("ab", "n_arms must be a whole number or a sequence of labels: got 'ab'"),
    (2.0, "n_arms must be a whole number or a sequence"),
    (0, "n_arms must be at least 1: got 0"),
    ([{}], "n_arms must hold hashable labels: got {}"),
]
SEEDS = [
    ("1", "seed must be a whole number"),
    (0.5, "seed must be a whole number"),
    (-1, "seed must be at least 0: got -1"),
    ([], "seed must be one seed, or one for each of 1 worlds: got 0"),
    ([0, 1], "seed must be one seed, or one for each of 1 worlds: got 2"),
    ([None], "seed must be a whole number"),
]


def refused(name, table):
    for kind in [*KINDS, zoolib.RandomAgent]:
        if name in inspect.signature(kind).parameters:
            for wrong, words in table:
                yield pytest.param(
                    kind, name, wrong, words, id=f"{kind.__name__} {wrong}"
                )


@pytest.mark.parametrize(
    ("kind", "name", "wrong", "words"),
    [
        *refused("n_arms", ARMS),
        *refused("seed", SEEDS),
        *refused("network_seed", [(one, f"network_{words}") for one, words in SEEDS]),
    ],
)
def test_arms_and_seeds_are_refused_by_name(kind, name, wrong, words):
    with pytest.raises((TypeError, ValueError), match=words):
        made(kind, **{name: wrong})


@each_setting
def test_what_a_setting_may_be_is_kept_as_pythons_own(kind, name, check):
    for right in values(check, RIGHT):
        kept = getattr(made(kind, **{name: right}), name)
        kept, right = (kept[0], right[0]) if isinstance(kept, tuple) else (kept, right)
        assert kept == right
        assert type(kept) in (bool, int, float)


def test_every_agent_declares_its_settings():
    free = {"n_arms", "seed", "network_seed", "own", "encoder"}  # checked with others
    assert len(KINDS) >= 16
    for kind in KINDS:
        checked = {name for one, name, _ in DECLARED if one is kind}
        assert set(inspect.signature(kind).parameters) - free == checked


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (
            lambda: made(zoolib.LinUCBAgent, window=10, discount=0.9),
            "one way to forget",
        ),
        (
            lambda: made(zoolib.NeuralUCBAgent, buffer_size=3, batch_size=9),
            "buffer_size must be at l",
        ),
        (lambda: made(zoolib.MCDropoutAgent, hidden=()), "hidden must have a layer"),
        (lambda: zoolib.RandomAgent(3, n_worlds=0), "n_worlds must be at least 1"),
        (lambda: zoolib.RandomAgent(3, n_features=2.0), "n_features must be a whole"),
        (
            lambda: zoolib.RandomAgent(3, 2, seed=[1, 2, 3]),
            "for each of 2 worlds: got 3",
        ),
        (
            lambda: made(zoolib.EnsembleAgent, hidden=3),
            "hidden must be a sequence: got",
        ),
    ],
)
def test_settings_that_do_not_go_together_are_refused(make, words):
    with pytest.raises((TypeError, ValueError), match=words):
        make()


@pytest.mark.parametrize(
    ("call", "name"),
    [
        (lambda no: zoolib.ZooplusSimulator(rich=no), "rich"),
        (lambda no: zoolib.SessionSimulator(hidden=no), "hidden"),
        (lambda no: zoolib.FeatureEngineer(SHOP, interactions=no), "interactions"),
        (lambda no: zoolib.FeatureEngineer(SHOP, personas=no), "personas"),
        (lambda no: played(repeats=no), "repeats"),
        (lambda no: played(progress=no), "progress"),
    ],
)
@pytest.mark.parametrize("no", ["False", 0, None])
def test_flags_of_the_library_are_flags(call, name, no):
    with pytest.raises(TypeError, match=f"{name} must be True or False: got {no!r}"):
        call(no)


SHOP = zoolib.ZooplusSimulator(n_users=5)


def played(**flags):
    return zoolib.run_experiment({"chance": zoolib.RandomAgent(50)}, [1], 3, **flags)
