"""The slow half of the loop: train a network on the log, rebuild the head, and judge the candidate.

Nothing here touches the version that serves. A candidate enters the registry in one transaction, when
everything is done; a process killed before that leaves no trace.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from numpy.typing import NDArray

from zoolib import offpolicy
from zoolib._checks import as_level, as_positive, as_size
from zoolib._threads import one_thread
from zoolib.agents.neural_linear import EmbeddingWithHead
from zoolib.estimates import Estimate, mean_interval
from zoolib.networks import descend, seeded
from zoolib.service.model import FrozenNetwork, Head, choice_probabilities
from zoolib.service.settings import Settings
from zoolib.service.store import EventLog, Store

# A log whose importance weights are this far from a mean of 1 has wrong propensities.
WEIGHT_LEVEL = 0.9999
# Held-out events that a validation takes, the newest: their rows for all arms must fit into memory.
MOST_JUDGED = 10_000


@dataclass(frozen=True)
class Training:
    """How a candidate is trained.

    Attributes
    ----------
    last : int
        Rewarded events to train on, the newest.
    held_out : float
        Part of them, the newest again, that training does not see: validation takes it.
    epochs, batch_size, learning_rate : int, int, float
        Of Adam on the squared error.
    seed : int
        Seed of initial weights, of the order of rows, and of the draws in the validation.
    """

    last: int = 100_000
    held_out: float = 0.3
    epochs: int = 10
    batch_size: int = 64
    learning_rate: float = 0.005
    seed: int = 0

    def __post_init__(self) -> None:
        for name in ("last", "epochs", "batch_size"):
            as_size(name, getattr(self, name))
        as_level("held_out", self.held_out)
        as_positive("learning_rate", self.learning_rate)
        as_size("seed", self.seed, least=0)


@one_thread()
def train(log: EventLog, settings: Settings, training: Training) -> FrozenNetwork:
    """Train a network to predict the rewards of the arms shown; return its body, frozen.

    Raises
    ------
    ValueError
        If there is nothing to train on.
    FloatingPointError
        If a loss is not finite.
    """
    if len(log) == 0:
        raise ValueError("log must hold rewarded events: got none")
    sizes = (log.features.shape[-1], *settings.hidden, settings.embedding_dim)
    network = EmbeddingWithHead(sizes, seeded(training.seed))
    optimiser = torch.optim.Adam(network.parameters(), lr=training.learning_rate)
    x = torch.from_numpy(log.played)
    reward = torch.from_numpy(log.reward.astype(np.float32))
    rng = np.random.default_rng(training.seed)
    for _ in range(training.epochs):
        for rows in torch.from_numpy(rng.permutation(len(x))).split(
            training.batch_size
        ):
            error = network(x[rows])[:, 0] - reward[rows]
            descend(optimiser, error.square().mean())
    return FrozenNetwork.of(network.body)


def rebuild(network: FrozenNetwork, log: EventLog, ridge: float) -> Head:
    r"""Return a head built from the prior and a log: :math:`A = \lambda I + \sum z z^\top, b = \sum r z`.

    Every embedding is made anew: sums of what another network made would be of no use.
    """
    head = Head(network.width, ridge)
    if len(log):
        head.rebuild(network.embed(log.played), log.reward)
    return head


def validate(
    network: FrozenNetwork,
    head: Head,
    log: EventLog,
    running: str,
    settings: Settings,
    seed: int = 0,
) -> dict[str, Any]:
    """Estimate off-policy what a candidate would have earned where the running version served.

    Parameters
    ----------
    network, head : FrozenNetwork, Head
        The candidate, which must not have seen these rewards.
    log : EventLog
        Held-out events. Those that another version or a fallback served are left out, and counted.
    running : str
        Name of the version that serves.
    settings : Settings
        How the candidate would choose, and how many events a judgement needs.
    seed : int, default 0
        Seed of the candidate's draws.

    Returns
    -------
    dict
        ``passed`` and, if not, the ``reason``; ``against``, the running version; numbers of events
        judged (``n``) and ``left_out``; ``value`` and ``running`` with their intervals; the
        ``effective`` number of events.
    """
    mine = log.where(log.version == running)
    left_out = len(log) - len(mine)
    mine = mine.where(slice(-MOST_JUDGED, None))
    figures: dict[str, Any] = {
        "passed": False,
        "against": running,
        "n": len(mine),
        "left_out": left_out,
    }
    if len(mine) < max(2, settings.min_sample):
        return figures | {"reason": f"only {len(mine)} held-out events of {running}"}
    target, z = _policy_and_rows(network, head, mine, settings, seed)
    logged = offpolicy.Log(
        mine.arm, mine.reward, mine.propensity, mine.version, target.shape[1]
    ).of_version(running)
    # The outcome model is fitted to the held-out rewards: the candidate's own beliefs are on trial.
    predicted = offpolicy.cross_fit(logged, z, settings.ridge).clip(0, 1)
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


def retrain(
    store: Store, running: str, settings: Settings, training: Training, now: float
) -> str:
    """Train, validate, rebuild and register a candidate; return its name.

    Training and validation share no event: the network and a first head see the older part, the newer
    part judges them. The head that is registered is then rebuilt from all that is retained.
    """
    everything = store.log()
    store.at("retrain: log read")
    recent = everything.where(slice(-training.last, None))
    cut = len(recent) - int(training.held_out * len(recent))
    older, newer = recent.where(slice(None, cut)), recent.where(slice(cut, None))
    network = train(older, settings, training)
    store.at("retrain: trained")
    return register(store, running, network, older, newer, settings, training.seed, now)


def register(
    store: Store,
    running: str,
    network: FrozenNetwork,
    older: EventLog,
    newer: EventLog,
    settings: Settings,
    seed: int,
    now: float,
) -> str:
    """Validate a network, rebuild its head and enter it in the registry; return its name."""
    first = rebuild(network, older, settings.ridge)
    figures = validate(network, first, newer, running, settings, seed)
    store.at("retrain: validated")
    everything = store.log()
    head = rebuild(network, everything, settings.ridge)
    store.at("retrain: rebuilt")
    return store.register(
        network.to_bytes(),
        head.to_bytes(),
        int(everything.seq[-1]) if len(everything) else store.last_seq(),
        parent=running,
        created=now,
        n_rows=len(everything),
        validation=figures,
    )


def _policy_and_rows(
    network: FrozenNetwork,
    head: Head,
    log: EventLog,
    settings: Settings,
    seed: int,
) -> tuple[NDArray[np.float64], NDArray[np.float64]]:
    """Return what a candidate would choose (n, K), and its rows z (n, K, width); each context is asked once."""
    rng = np.random.default_rng(seed)
    ours, context = np.unique(log.context, return_inverse=True)
    policies, tables = [], []
    for features in log.features[ours]:
        rows, group = np.unique(features, axis=0, return_inverse=True)
        z = network.embed(rows)
        policies.append(choice_probabilities(head, z, group, settings, rng))
        tables.append(z[group])
    return np.array(policies)[context], np.array(tables)[context]


def _numbers(estimate: Estimate) -> list[float]:
    return [estimate.mean, estimate.low, estimate.high]
