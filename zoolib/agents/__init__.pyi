# Public names of zoolib.agents, and where they live.

from . import (
    base,
    baselines,
    dqn,
    ensembles,
    guards,
    hybrid,
    linear,
    neural,
    neural_linear,
    neural_ucb,
    policies,
    tabular,
)
from .base import Agent, Context
from .baselines import (
    OracleAgent,
    RandomAgent,
    RevealedContext,
    StaticAgent,
)
from .dqn import DQNAgent, Encoder, LastItems, OneHot
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
from .tabular import QLearningAgent, SarsaAgent, fitted_q

__all__ = [
    "Agent",
    "Context",
    "DQNAgent",
    "Encoder",
    "EnsembleAgent",
    "EpsilonGreedyAgent",
    "GuardedAgent",
    "HybridLinUCBAgent",
    "LastItems",
    "LinTSAgent",
    "LinUCBAgent",
    "LinearAgent",
    "MCDropoutAgent",
    "NeuralAgent",
    "NeuralLinearAgent",
    "NeuralUCBAgent",
    "OneHot",
    "OracleAgent",
    "QLearningAgent",
    "RandomAgent",
    "RevealedContext",
    "SarsaAgent",
    "StaticAgent",
    "base",
    "baselines",
    "dqn",
    "ensembles",
    "fitted_q",
    "guards",
    "hybrid",
    "linear",
    "neural",
    "neural_linear",
    "neural_ucb",
    "policies",
    "tabular",
]
