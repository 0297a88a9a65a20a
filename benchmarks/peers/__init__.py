"""Other libraries that a reader might install instead, each driven as its documentation says.

`PEERS` lists them by the kind of work they are timed at; `available` tells which of them run here and why
the others do not. They live in an environment of their own: see `benchmarks.peers.install`.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass

from benchmarks.contest import Absent
from benchmarks.peers import calvera, disjoint, shared
from benchmarks.peers.adapter import Adapter, BatchAdapter
from benchmarks.peers.install import REPORT, REQUIREMENTS, requirements

__all__ = [
    "PEERS",
    "Adapter",
    "BatchAdapter",
    "Peer",
    "available",
    "distributions",
    "peer",
]


@dataclass(frozen=True)
class Peer:
    """Another library at one kind of work.

    Attributes
    ----------
    distribution : str
        What pip installs.
    module : str
        What Python imports.
    make : callable
        Makes an adapter; of linear bandits from numbers of arms and features, and options.
    note : str
        How it is driven, and what it does otherwise.
    same_scores : bool, default True
        Whether `scores` returns LinUCB's scores by the library's posterior, which should be ours.
    """

    distribution: str
    module: str
    make: Callable[..., Adapter]
    note: str
    same_scores: bool = True


NO_PEARL = Absent(
    "Meta's Pearl is not on the index, where the name `pearl` belongs to another project"
)
NO_SHARED_MODEL = Absent(
    "its linear bandits have a model for each arm and none for all"
)

PEERS: dict[str, dict[str, Peer | Absent]] = {
    "LinUCB": {
        "obp": Peer(
            "sb-obp",
            "obp.policy",
            disjoint.ObpLinUCB,
            "It keeps inverses, all of which it copies at each update.",
        ),
        "mabwiser": Peer(
            "mabwiser",
            "mabwiser.mab",
            disjoint.MabwiserLinUCB,
            "An update inverts the matrix of its arm.",
        ),
        "contextualbandits": Peer(
            "contextualbandits",
            "contextualbandits.online",
            disjoint.ContextualbanditsLinUCB,
            "It keeps inverses in compiled code; without an intercept.",
        ),
        "river": Peer(
            "river",
            "river.bandit",
            disjoint.RiverLinUCB,
            "Its bound has the noise's variance under the root, with no weight to choose.",
        ),
        "calvera": Absent(
            "it has no model for a single arm; it would write 50 arms as one model of 50 × d features"
        ),
        "pearl": NO_PEARL,
    },
    "Thompson sampling": {
        "bayesianbandits": Peer(
            "bayesianbandits",
            "bayesianbandits",
            disjoint.BayesianBandits,
            "An update factorises the matrix of its arm.",
        ),
    },
    "ε-greedy": {
        "vowpalwabbit": Peer(
            "vowpalwabbit",
            "vowpalwabbit",
            disjoint.VowpalWabbit,
            "It learns weights by importance-weighted gradient steps, without a covariance; rows are "
            "handed over as text.",
            same_scores=False,
        ),
    },
    "shared LinUCB": {
        "contextualbandits": Peer(
            "contextualbandits",
            "contextualbandits.linreg",
            shared.ContextualbanditsRidge,
            "Its compiled regression with upper bounds; it has no bandit with one model for all arms, "
            "and the choice of the highest bound is ours.",
        ),
        "river": Peer(
            "river",
            "river.linear_model",
            shared.RiverRidge,
            "Its Bayesian regression, asked arm by arm; it has no bandit with one model for all arms, "
            "and the choice of the highest bound is ours.",
        ),
        "obp": NO_SHARED_MODEL,
        "mabwiser": NO_SHARED_MODEL,
        "pearl": NO_PEARL,
    },
    "shared Thompson sampling": {
        "bayesianbandits": Peer(
            "bayesianbandits",
            "bayesianbandits",
            shared.BayesianBandits,
            "An update factorises the matrix.",
        ),
    },
    "neural-linear": {
        "calvera": Peer(
            "calvera",
            "calvera.bandits",
            calvera.CalveraNeuralLinear,
            "Thompson sampling in single precision, learning by Lightning's Trainer as documented; "
            "lazy_uncertainty_update, without which its mean is not that of the posterior.",
        ),
        "pearl": NO_PEARL,
    },
}


def available(kind: str) -> dict[str, Peer | Absent]:
    """Return the peers at one kind of work by name; for those that do not run here, the reason."""
    return {name: peer(kind, name) for name in PEERS[kind]}


@functools.cache
def peer(kind: str, name: str) -> Peer | Absent:
    """Return a peer if it runs here, else why it does not."""
    one = PEERS[kind][name]
    if isinstance(one, Absent):
        return one
    try:
        importlib.import_module(one.module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != one.module.partition(".")[0]:
            return Absent(f"installed, but it asks for {error.name}, which is not")
        return Absent(_why_not_installed(one.distribution))
    except Exception as error:  # whatever another library fails with, the others run
        return Absent(f"installed, but its import fails: {error!r}")
    return one


def distributions() -> list[str]:
    """Return what pip is asked to install, by name."""
    wanted = (line for line, _ in requirements(REQUIREMENTS.read_text()))
    return [line.partition("==")[0] for line in wanted]


def _why_not_installed(distribution: str) -> str:
    outcomes = json.loads(REPORT.read_text()) if REPORT.exists() else {}
    reason = outcomes.get(distribution, {}).get("reason")
    return reason or "not installed in this environment: make bench installs it"
