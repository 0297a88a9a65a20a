"""The slow half of the loop: teach a new agent the log, judge it, and register it as a candidate.

Nothing here touches the version that serves. A candidate enters the registry in one transaction, when
everything is done; a process killed before that leaves no trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoolib import offpolicy
from zoolib._support.threads import one_thread
from zoolib.agents.base import Agent, Context
from zoolib.experiments.estimates import Estimate, mean_interval
from zoolib.service.log import EventLog
from zoolib.service.model import NOBODY, Model, choice_probabilities, teach
from zoolib.service.settings import Settings
from zoolib.service.store import Store

# A log whose importance weights are this surely away from a mean of 1 has wrong propensities.
WEIGHT_LEVEL = 0.9999
# Held-out events that a validation takes, the newest: their rows for all arms must fit into memory.
MOST_JUDGED = 10_000


@one_thread()
def train(agent: Agent, log: EventLog, epochs: int = 10) -> Model:
    """Teach an agent that has learnt nothing yet a log; events without features teach it nothing.

    If it has a network, a method `embed`, this is trained on the log as a table, in so many passes, and its
    posterior built from it; else it learns reward by reward, without those that it cannot learn. A loss that
    is not finite raises FloatingPointError.
    """
    seen = log.where(log.context >= 0)
    if len(seen) == 0:
        raise ValueError("log must hold rewarded events: got none")
    model = Model(agent, 0)
    if hasattr(agent, "embed"):
        arms = agent.arms.of(seen.arm)
        agent.fit(seen.played, seen.reward, epochs=epochs, arm=arms)
    else:
        features = (seen.features[context] for context in seen.context)
        columns = seen.seq, seen.event, features, seen.arm, seen.reward
        model, _ = teach(model, zip(*columns, strict=True), lambda seq, why: None)
    return Model(model.agent, int(log.seq.max()))


def validate(
    agent: Agent, log: EventLog, running: str, settings: Settings
) -> dict[str, Any]:
    """Estimate off-policy what a candidate would have earned where the running version served.

    The candidate must not have seen the rewards in the log. Events that another version or a fallback
    served are left out.

    Returns
    -------
    dict
        ``passed`` and, if not, the ``reason``; ``against``, the running version; the number of events
        judged, ``n``; ``value`` and ``served``, what the running version earned, with
        their intervals; the ``effective`` number of events and the ``mean_weight``.
    """
    mine = log.where(log.version == running)
    mine = mine.where(slice(-MOST_JUDGED, None))
    figures: dict[str, Any] = {"passed": False, "against": running, "n": len(mine)}
    if len(mine) < max(2, settings.min_sample):
        return figures | {"reason": f"only {len(mine)} held-out events of {running}"}
    target, rows = _policy_and_rows(agent, mine, settings)
    logged = mine.for_estimates()
    # The outcome model is fitted to the held-out rewards: the candidate's own beliefs are on trial.
    predicted = offpolicy.cross_fit(logged, rows).clip(0, 1)
    value = offpolicy.doubly_robust(logged, target, predicted)
    served = mean_interval(mine.reward)
    weight = offpolicy.mean_weight(logged, target, WEIGHT_LEVEL)
    effective = offpolicy.effective_sample_size(logged, target)
    figures |= {"value": _numbers(value), "served": _numbers(served)}
    figures |= {"effective": effective, "mean_weight": _numbers(weight)}
    if not effective >= settings.min_sample:  # it may be NaN
        reason = f"the log is worth only {effective:.0f} events for this candidate"
    elif not effective * served.mean >= settings.min_sample / 4:
        clicks = effective * served.mean
        reason = f"the log is worth only {clicks:.0f} rewards for this candidate"
    elif not weight.low <= 1 <= weight.high:
        reason = f"its mean importance weight in the log is {weight:.2f}, not 1"
    elif value.high < served.mean:
        reason = f"its value {value:.3f} does not reach {served.mean:.3f}"
    else:
        return figures | {"passed": True}
    return figures | {"reason": reason}


def register(
    store: Store,
    running: str,
    candidate: Model,
    older: EventLog,
    newer: EventLog,
    settings: Settings,
) -> str:
    """Validate a candidate, teach it what it has not seen, and enter it in the registry.

    The candidate comes from `train` on the `older` events, `running` names the version that serves, and
    `newer` holds other events, which judge the candidate. Return its new name, whether it passed or not.
    """
    figures = validate(candidate.agent, newer, running, settings)
    known = set(older.event.tolist())
    rows = (
        (seq, event, None if event in known else features, *learnt)
        for seq, event, features, *learnt in store.rewards_after(0)
    )
    candidate, _ = teach(candidate, rows, lambda seq, why: None)
    return store.register(candidate.to_bytes(), candidate.seq, figures)


def _policy_and_rows(
    agent: Agent, log: EventLog, settings: Settings
) -> tuple[NDArray[np.float64], NDArray]:
    """Return what a candidate would choose (n, K), and its rows z (n, K, ·); each context is asked once."""
    keys = list(zip(log.context.tolist(), log.masks, strict=True))
    embed = getattr(agent, "embed", lambda x: x)
    found = {}
    for key in sorted(set(keys)):
        x = log.features[key[0]]
        mask = key[1]
        offered = np.frombuffer(mask, bool) if mask else None
        policy = choice_probabilities(agent, Context(NOBODY, x), settings, offered)
        found[key] = policy, embed(x)
    policies, rows = zip(*(found[key] for key in keys), strict=True)
    return np.array(policies), np.array(rows)


def _numbers(estimate: Estimate) -> list[float]:
    return [estimate.mean, estimate.low, estimate.high]
