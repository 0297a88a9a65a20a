"""Agents: what chooses a product, one module a family, all with one protocol.

`Agent` in `protocol` says what they share; an outsider needs only ``select`` and ``update``.
"""

from zoolib.agents.baselines import (
    OracleAgent,
    RandomAgent,
    RevealedContext,
    StaticAgent,
)
from zoolib.agents.ensembles import EnsembleAgent, MCDropoutAgent
from zoolib.agents.guards import GuardedAgent
from zoolib.agents.hybrid import HybridLinUCBAgent
from zoolib.agents.linear import (
    EpsilonGreedyAgent,
    LinearAgent,
    LinTSAgent,
    LinUCBAgent,
)
from zoolib.agents.neural import NeuralAgent
from zoolib.agents.neural_linear import NeuralLinearAgent
from zoolib.agents.neural_ucb import NeuralUCBAgent
from zoolib.agents.protocol import Agent, Context

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
