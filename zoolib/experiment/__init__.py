"""Experiments: agents in the arena, what happened there, and whole grids of them."""

from zoolib.experiment.arena import run_experiment
from zoolib.experiment.history import History
from zoolib.experiment.sweeps import Failure, Sweep, sweep

__all__ = ["Failure", "History", "Sweep", "run_experiment", "sweep"]
