# Public names of zoolib.agents, and where they live.

from .baselines import (
    OracleAgent,
    RandomAgent,
    RevealedContext,
    StaticAgent,
)
from .ensembles import EnsembleAgent, MCDropoutAgent
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
from .protocol import Agent, Context

__all__ = [
    "Agent",
    "Context",
    "EnsembleAgent",
    "EpsilonGreedyAgent",
    "GuardedAgent",
    "HybridLinUCBAgent",
    "LinTSAgent",
    "LinUCBAgent",
    "LinearAgent",
    "MCDropoutAgent",
    "NeuralAgent",
    "NeuralLinearAgent",
    "NeuralUCBAgent",
    "OracleAgent",
    "RandomAgent",
    "RevealedContext",
    "StaticAgent",
]
