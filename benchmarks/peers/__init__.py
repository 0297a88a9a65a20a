"""Other libraries, each driven as its documentation says: what a reader would install instead.

`PEERS` lists them by the work they are timed at, `available` tells which run here and why the others do
not. They live in an environment of their own: see `benchmarks.peers.install`.
"""

from __future__ import annotations

import functools
import importlib
import json
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial

from benchmarks.contest import Absent
from benchmarks.peers import disjoint, neural, shared
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
        Makes an adapter from numbers of arms and features, and options.
    note : str
        How it is driven, and what it does otherwise, in a sentence.
    same_scores : bool, default True
        Whether `scores` returns LinUCB's scores by the library's posterior, which are then ours too.
    same_policy : bool, default True
        Whether it also plays by them.
    """

    distribution: str
    module: str
    make: Callable[..., Adapter]
    note: str
    same_scores: bool = True
    same_policy: bool = True


BAYESIAN = partial(Peer, "bayesianbandits", "bayesianbandits")
CALVERA = partial(Peer, "calvera", "calvera.bandits")
NO_PEARL = Absent(
    "Meta's Pearl is no package of the index: the name `pearl` there belongs to another project"
)
NO_SHARED_MODEL = Absent(
    "its linear bandits have a model for each arm and none for all"
)

PEERS: dict[str, dict[str, Peer | Absent]] = {
    "disjoint linear": {
        "obp": Peer(
            "sb-obp",
            "obp.policy",
            disjoint.ObpLinUCB,
            "LinUCB with kept inverses, all of which it copies at each update.",
        ),
        "mabwiser": Peer(
            "mabwiser",
            "mabwiser.mab",
            disjoint.MabwiserLinUCB,
            "LinUCB; an update inverts the matrix of its arm.",
        ),
        "contextualbandits": Peer(
            "contextualbandits",
            "contextualbandits.online",
            disjoint.ContextualbanditsLinUCB,
            "LinUCB with kept inverses in compiled code, without an intercept.",
        ),
        "bayesianbandits": BAYESIAN(
            disjoint.BayesianBandits,
            "Thompson sampling from the same posteriors; an update factorises the matrix of its arm.",
            same_policy=False,
        ),
        "bayesianbandits, UCB": BAYESIAN(
            partial(disjoint.BayesianBandits, policy="ucb"),
            "The bound is a quantile of a thousand draws from the same posteriors.",
            same_policy=False,
        ),
        "river": Peer(
            "river",
            "river.bandit",
            disjoint.RiverLinUCB,
            "LinUCB whose bound has the noise's variance under the root, with no weight to choose.",
            same_policy=False,
        ),
        "vowpalwabbit": Peer(
            "vowpalwabbit",
            "vowpalwabbit",
            disjoint.VowpalWabbit,
            "Another algorithm: ε-greedy on weights learnt by importance-weighted gradient steps, "
            "without a covariance; rows are handed over as text.",
            same_scores=False,
            same_policy=False,
        ),
        "calvera": Absent(
            "it has no model for a single arm; it would write 50 arms as one model of 50 × d features"
        ),
        "pearl": NO_PEARL,
    },
    "shared linear": {
        "contextualbandits": Peer(
            "contextualbandits",
            "contextualbandits.linreg",
            shared.ContextualbanditsRidge,
            "Its compiled regression with upper bounds; it has no bandit with one model for all arms, "
            "and the choice of the highest bound is ours.",
        ),
        "calvera": CALVERA(
            shared.CalveraLinUCB,
            "LinUCB in single precision, learning by Lightning's Trainer as documented; eps = 0 and "
            "lazy_uncertainty_update, without which its scores are not LinUCB's.",
        ),
        "calvera, training step": CALVERA(
            partial(shared.CalveraLinUCB, trainer=False),
            "The same, learning by a call of the step that the Trainer would call.",
        ),
        "bayesianbandits": BAYESIAN(
            shared.BayesianBandits,
            "Thompson sampling from the same posterior; an update factorises the matrix.",
            same_policy=False,
        ),
        "bayesianbandits, UCB": BAYESIAN(
            partial(shared.BayesianBandits, policy="ucb"),
            "The bound is a quantile of a thousand draws from the same posterior.",
            same_policy=False,
        ),
        "river": Peer(
            "river",
            "river.linear_model",
            shared.RiverRidge,
            "Its Bayesian regression, asked arm by arm; it has no bandit with one model for all arms, "
            "and the choice of the highest bound is ours.",
        ),
        "vowpalwabbit": Peer(
            "vowpalwabbit",
            "vowpalwabbit",
            shared.VowpalWabbit,
            "Another algorithm: ε-greedy on weights learnt by importance-weighted gradient steps, "
            "without a covariance; rows are handed over as text.",
            same_scores=False,
            same_policy=False,
        ),
        "obp": NO_SHARED_MODEL,
        "mabwiser": NO_SHARED_MODEL,
        "pearl": NO_PEARL,
    },
    "neural-linear": {
        "calvera": CALVERA(
            neural.CalveraNeuralLinear,
            "Thompson sampling in single precision, learning by Lightning's Trainer as documented; "
            "lazy_uncertainty_update, without which it forgets its precision at each training.",
            same_policy=False,
        ),
        "pearl": NO_PEARL,
    },
    "NeuralUCB": {
        "calvera": CALVERA(
            neural.CalveraNeuralUCB,
            "Keeps the diagonal of A only; a backward pass for each arm.",
            same_scores=False,
            same_policy=False,
        ),
        "pearl": NO_PEARL,
    },
}


def available(kind: str) -> dict[str, Peer | Absent]:
    """Return the peers at one kind of work by name, each that does not run here with the reason."""
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
