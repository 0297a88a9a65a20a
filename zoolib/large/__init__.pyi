# Public names of zoolib.large, and where they live.

from . import ensembles, retrieval
from .ensembles import EnsembleAgent, MCDropoutAgent
from .retrieval import Choice, ProductIndex, two_stage

__all__ = [
    "Choice",
    "EnsembleAgent",
    "MCDropoutAgent",
    "ProductIndex",
    "ensembles",
    "retrieval",
    "two_stage",
]
