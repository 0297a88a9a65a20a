"""Other libraries that a reader might install instead, each driven as its documentation says.

`PEERS` lists them by the kind of work they are timed at; `available` tells which of them run here and why
the others do not. They live in an environment of their own: see `benchmarks.peers.install`.
"""

from __future__ import annotations

import importlib
import json

from benchmarks.contest import Absent
from benchmarks.peers import calvera, disjoint, sessions, shared
from benchmarks.peers.adapter import Adapter
from benchmarks.peers.install import REPORT, REQUIREMENTS, requirements

__all__ = ["PEERS", "Adapter", "available", "distributions"]

NO_PEARL = Absent(
    "Meta's Pearl is not on the index, where the name `pearl` belongs to another project"
)
NO_SHARED_MODEL = Absent(
    "its linear bandits have a model for each arm and none for all"
)

PEERS: dict[str, dict[str, type[Adapter] | Absent]] = {
    "LinUCB": {
        "obp": disjoint.ObpLinUCB,
        "mabwiser": disjoint.MabwiserLinUCB,
        "contextualbandits": disjoint.ContextualbanditsLinUCB,
        "river": disjoint.RiverLinUCB,
        "calvera": Absent(
            "it has no model for a single arm; it would write 50 arms as one model of 50 × d features"
        ),
        "pearl": NO_PEARL,
    },
    "Thompson sampling": {"bayesianbandits": disjoint.BayesianBandits},
    "ε-greedy": {"vowpalwabbit": disjoint.VowpalWabbit},
    "shared LinUCB": {
        "contextualbandits": shared.ContextualbanditsRidge,
        "river": shared.RiverRidge,
        "obp": NO_SHARED_MODEL,
        "mabwiser": NO_SHARED_MODEL,
        "pearl": NO_PEARL,
    },
    "shared Thompson sampling": {"bayesianbandits": shared.BayesianBandits},
    "neural-linear": {"calvera": calvera.CalveraNeuralLinear, "pearl": NO_PEARL},
    "deep Q-network": {"stable-baselines3": sessions.StableBaselines3},
}


def available(kind: str) -> dict[str, type[Adapter] | Absent]:
    """Return the peers at one kind of work by name; for those that do not run here, the reason."""
    return {name: _if_here(one) for name, one in PEERS[kind].items()}


def _if_here(one: type[Adapter] | Absent) -> type[Adapter] | Absent:
    if isinstance(one, Absent):
        return one
    try:
        importlib.import_module(one.module)
    except ModuleNotFoundError as error:
        if (error.name or "").partition(".")[0] != one.module.partition(".")[0]:
            return Absent(f"installed, but it asks for {error.name}, which is not")
        outcomes = json.loads(REPORT.read_text()) if REPORT.exists() else {}
        reason = outcomes.get(one.distribution, {}).get("reason")
        said = reason or "not installed in this environment: make bench installs it"
        return Absent(said)
    except Exception as error:  # whatever another library fails with, the others run
        return Absent(f"installed, but its import fails: {error!r}")
    return one


def distributions() -> list[str]:
    """Return what pip is asked to install, by name."""
    wanted = (line for line, _ in requirements(REQUIREMENTS.read_text()))
    return [line.partition("==")[0] for line in wanted]
