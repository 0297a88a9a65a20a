"""Agents: what chooses a product, one module a family, all with one protocol.

`Agent` in `protocol` says what they share; an outsider needs only ``select`` and ``update``.
"""

from zoolib.agents.baselines import (
    OracleAgent,
    RandomAgent,
    RevealedContext,
    StaticAgent,
)
from zoolib.agents.linear import DisjointAgent, EpsilonGreedyAgent, LinUCBAgent
from zoolib.agents.protocol import Agent, Context

__all__ = [
    "Agent",
    "Context",
    "DisjointAgent",
    "EpsilonGreedyAgent",
    "LinUCBAgent",
    "OracleAgent",
    "RandomAgent",
    "RevealedContext",
    "StaticAgent",
]
