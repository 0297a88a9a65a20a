"""What a shop does with the core of the library alone: test_environments.py runs it where nothing else is.

In an empty folder: ``python -W error core_use.py <lines``. It prints which modules, public names and lines of
code want more than the core, and what they say.
"""

import json
import pkgutil
import sys

import numpy as np

import zoolib
from zoolib import (
    SHOCK_1,
    Context,
    EpsilonGreedyAgent,
    FeatureEngineer,
    GuardedAgent,
    HybridLinUCBAgent,
    LinTSAgent,
    LinUCBAgent,
    OracleAgent,
    RandomAgent,
    RidgePosterior,
    StaticAgent,
    ZooplusSimulator,
    click_rate,
    draw,
    mean_interval,
    offpolicy,
    run_experiment,
    true_ctr_matrix,
    with_floor,
)
from zoolib.monitoring import Monitor, at_most, rates, same_rates
from zoolib.service import BanditService, Settings, Watch

WORLD = ZooplusSimulator(seed=42)
FEATURES = FeatureEngineer(WORLD)
K, D = WORLD.n_products, FEATURES.n_features


def experiment():
    """All agents of the core meet a shock; LinUCB earns more than chance and less than the oracle."""
    agents = {
        "random": RandomAgent(K),
        "static": StaticAgent(true_ctr_matrix(WORLD)),
        "linucb": LinUCBAgent(K, D, alpha=0.2, n_worlds=3),
        "logit": LinUCBAgent(K, D, link="logit"),
        "lints": LinTSAgent(K, D, alpha=0.2, discount=0.999),
        "greedy": EpsilonGreedyAgent(K, D, epsilon=0.05),
        "hybrid": HybridLinUCBAgent(K, D, own=range(4), alpha=0.2),
        "guarded": GuardedAgent(LinUCBAgent(K, D, alpha=0.2), floor=0.1, cap=0.5),
        "oracle": OracleAgent(K),
    }
    history = run_experiment(agents, range(3), 400, {200: SHOCK_1}, progress=False)
    earned = {name: mean_interval(click_rate(history, name)).mean for name in agents}
    assert earned["random"] < earned["linucb"] < earned["oracle"], earned


def saved_and_loaded():
    """An agent, a guard and a posterior go on from their files as if nothing had happened."""
    rng = np.random.default_rng(0)
    agent = GuardedAgent(LinTSAgent(K, D, shared=True), floor=0.1)
    for user in range(50):
        context = Context(user, FEATURES.transform(user))
        agent.update(context, agent.select(context), float(rng.random() < 0.3))
    agent.save("agent.npz")
    twin = GuardedAgent.load("agent.npz")
    assert np.array_equal(twin.propensities(context), agent.propensities(context))
    posterior = RidgePosterior(2)
    posterior.update(np.array([1.0, 0.5]), 1.0)
    posterior.save("posterior.npz")
    assert np.array_equal(RidgePosterior.load("posterior.npz").mean, posterior.mean)


def off_policy():
    """Every estimator finds the value of a policy that did not log."""
    rng = np.random.default_rng(1)
    n, truth = 4_000, np.array([0.2, 0.5, 0.4])
    policy = with_floor(np.tile([0.0, 1.0, 0.0], (n, 1)), 0.5)
    arm, propensity = draw(policy, rng)
    reward = rng.random(n) < truth[arm]
    log = offpolicy.Log(arm, reward.astype(float), propensity, "v1", n_arms=3)
    predicted = offpolicy.cross_fit(log, np.tile(np.eye(3), (n, 1, 1)))
    target = np.full((n, 3), 1 / 3)
    estimates = [
        offpolicy.ips(log, target),
        offpolicy.snips(log, target),
        offpolicy.direct_method(target, predicted),
        offpolicy.doubly_robust(log, target, predicted),
    ]
    assert all(abs(one.mean - truth.mean()) < 0.05 for one in estimates), estimates


def monitors():
    """A fall of the click rate is seen."""
    rng = np.random.default_rng(2)
    monitor = Monitor(
        "clicks", rates(), same_rates, window=500, reference=4, false_alarms=0.1
    )
    clicks = rng.random(5_000) < np.repeat([0.5, 0.3], [3_000, 2_000])
    assert monitor.update(clicks.astype(int))[0].step > 3_000


def lints(n_arms, n_features, seed):
    return LinTSAgent(n_arms, n_features, alpha=0.2, seed=seed)


def opened():
    return BanditService(
        "shop.db",
        FEATURES.transform,
        K,
        D,
        key=b"sixteen secret b",
        make_agent=lints,
        settings=Settings(n_draws=20, min_sample=10.0, floor=0.5),
        watches=[
            Watch(
                Monitor("few", rates(), at_most(0.01), window=50, false_alarms=0.1),
                lambda log: (log.reward.astype(int),),
            )
        ],
    )


def service():
    """The loop serves, learns, comes back, retrains and watches."""
    with opened() as shop:
        for user in range(120):
            decision = shop.select(user)
            shop.reward(decision.event_id, WORLD.reward(user, decision.arm))
        before = shop.learnt()
        assert "few" in shop.watch()[0].message
        assert shop.check_health().problems == {}
    with opened() as shop:
        assert shop.learnt() == before == shop.learnt(replayed=True)
        candidate = shop.retrain(held_out=0.5)
        assert shop.store.version(candidate).validation["n"] == 60


def complaint(line):
    """Return what a line of code says if it wants an extra, else nothing."""
    try:
        exec(line, {})
    except ImportError as error:
        return str(error)
    return ""


def main():
    for use in (experiment, saved_and_loaded, off_policy, monitors, service):
        use()
    # The judges of exercises are loaded by `check` alone.
    modules = (
        module.name
        for module in pkgutil.walk_packages(zoolib.__path__, "zoolib.")
        if not module.name.startswith("zoolib.book.exercises.")
    )
    lines = [f"import {name}" for name in modules]
    lines += [f"from zoolib import {name}" for name in dir(zoolib)]
    lines += sys.stdin.read().splitlines()
    said = {line: words for line in lines if (words := complaint(line))}
    print(json.dumps({"file": zoolib.__file__, "said": said}))


if __name__ == "__main__":
    main()
