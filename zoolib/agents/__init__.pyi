# Public names of zoolib.agents, and where they live.

from . import (
    base,
    baselines,
    guards,
    hybrid,
    linear,
    neural,
    neural_linear,
    neural_ucb,
    policies,
)
from .base import Agent, Context
from .baselines import (
    OracleAgent,
    RandomAgent,
    RevealedContext,
    StaticAgent,
)
from .guards import GuardedAgent
from .hybrid import HybridLinUCBAgent
from .linear import (
    EpsilonGreedyAgent,
    LinearAgent,
    LinTSAgent,
    LinUCBAgent,
)
from .neural import NeuralAgent
from .neural_linear import NeuralLinearAgent
from .neural_ucb import NeuralUCBAgent

__all__ = [
    "Agent",
    "Context",
    "EpsilonGreedyAgent",
    "GuardedAgent",
    "HybridLinUCBAgent",
    "LinTSAgent",
    "LinUCBAgent",
    "LinearAgent",
    "NeuralAgent",
    "NeuralLinearAgent",
    "NeuralUCBAgent",
    "OracleAgent",
    "RandomAgent",
    "RevealedContext",
    "StaticAgent",
    "base",
    "baselines",
    "guards",
    "hybrid",
    "linear",
    "neural",
    "neural_linear",
    "neural_ucb",
    "policies",
]
