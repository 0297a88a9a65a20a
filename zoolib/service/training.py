"""The slow half of the loop: teach a new agent the log, judge it, and register it as a candidate.

Nothing here touches the version that serves. A candidate enters the registry in one transaction, when
everything is done; a process killed before that leaves no trace.
"""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoolib._support.threads import one_thread
from zoolib.agents.base import Agent, Context
from zoolib.experiments import offpolicy
from zoolib.experiments.estimates import Estimate, mean_interval
from zoolib.service.model import NOBODY, Model, choice_probabilities
from zoolib.service.settings import Settings
from zoolib.service.store import EventLog, Store

# A log whose importance weights are this surely away from a mean of 1 has wrong propensities.
WEIGHT_LEVEL = 0.9999
# Held-out events that a validation takes, the newest: their rows for all arms must fit into memory.
MOST_JUDGED = 10_000


@one_thread()
def train(agent: Agent, log: EventLog, epochs: int = 10) -> Model:
    """Teach an agent that has learnt nothing yet a log; events without features teach it nothing.

    If it has a method `fit`, its network is trained on the log as a table, in so many passes, and its
    posterior built from it; else it learns reward by reward. A loss that is not finite raises
    FloatingPointError.
    """
    seen = log.where(log.context >= 0)
    if len(seen) == 0:
        raise ValueError("log must hold rewarded events: got none")
    arms = agent.arms.of(seen.arm)
    if hasattr(agent, "fit"):
        agent.fit(seen.played, seen.reward, epochs=epochs, arm=arms)
    else:
        rows = zip(seen.context, arms, seen.reward, strict=True)
        for context, arm, reward in rows:
            agent.update(Context(NOBODY, seen.features[context]), arm, reward)
    return Model(agent, int(log.seq[-1]))


def validate(
    agent: Agent, log: EventLog, running: str, settings: Settings
) -> dict[str, Any]:
    """Estimate off-policy what a candidate would have earned where the running version served.

    The candidate must not have seen the rewards in the log. Events that another version or a fallback
    served are left out, and counted.

    Returns
    -------
    dict
        ``passed`` and, if not, the ``reason``; ``against``, the running version; numbers of events
        judged (``n``) and ``left_out``; ``value`` and ``served``, what the running version earned, with
        their intervals; the ``effective`` number of events and the ``mean_weight``.
    """
    mine = log.where(log.version == running)
    left_out = len(log) - len(mine)
    mine = mine.where(slice(-MOST_JUDGED, None))
    figures: dict[str, Any] = {"passed": False, "against": running}
    figures |= {"n": len(mine), "left_out": left_out}
    if len(mine) < max(2, settings.min_sample):
        return figures | {"reason": f"only {len(mine)} held-out events of {running}"}
    target, rows = _policy_and_rows(agent, mine, settings)
    logged = offpolicy.Log(
        mine.arm, mine.reward, mine.propensity, running, target.shape[1]
    )
    # The outcome model is fitted to the held-out rewards: the candidate's own beliefs are on trial.
    predicted = offpolicy.cross_fit(logged, rows).clip(0, 1)
    value = offpolicy.doubly_robust(logged, target, predicted)
    served = mean_interval(mine.reward)
    weight = offpolicy.mean_weight(logged, target, WEIGHT_LEVEL)
    effective = offpolicy.effective_sample_size(logged, target)
    figures |= {"value": _numbers(value), "served": _numbers(served)}
    figures |= {"effective": effective, "mean_weight": _numbers(weight)}
    if effective < settings.min_sample:
        reason = f"the log is worth only {effective:.0f} events for this candidate"
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
    newer: EventLog,
    settings: Settings,
    now: float,
    known: int = 0,
) -> str:
    """Validate a candidate, teach it what it has not seen, and enter it in the registry.

    The candidate comes from `train`, `running` names the version that serves, and `newer` holds events that
    the candidate was not trained on: it has learnt the log up to its `seq`, and all events up to the one
    `known`. Return its new name, whether it passed or not.
    """
    figures = validate(candidate.agent, newer, running, settings)
    candidate.catch_up(store, known)
    entry = {"parent": running, "created": now, "validation": figures}
    return store.register(candidate.to_bytes(), candidate.seq, **entry)


def _policy_and_rows(
    agent: Agent, log: EventLog, settings: Settings
) -> tuple[NDArray[np.float64], NDArray]:
    """Return what a candidate would choose (n, K), and its rows z (n, K, ·); each context is asked once."""
    ours, context = np.unique(log.context, return_inverse=True)
    tables = log.features[ours]
    policies = [
        choice_probabilities(agent, Context(NOBODY, x), settings) for x in tables
    ]
    embed = getattr(agent, "embed", lambda x: x)
    rows = np.array([embed(x) for x in tables])
    return np.array(policies)[context], rows[context]


def _numbers(estimate: Estimate) -> list[float]:
    return [estimate.mean, estimate.low, estimate.high]
