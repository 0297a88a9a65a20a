# Public names of zoolib.sessions, and where they live.

from . import dqn, mdp, play, shop, tabular
from .dqn import DQNAgent, Encoder, LastItems, OneHot
from .mdp import DecisionProcess
from .play import SessionHistory, VisitAgent, play_sessions
from .shop import SessionSimulator, best_on_last_category
from .tabular import QLearningAgent, SarsaAgent, fitted_q

__all__ = [
    "DQNAgent",
    "DecisionProcess",
    "Encoder",
    "LastItems",
    "OneHot",
    "QLearningAgent",
    "SarsaAgent",
    "SessionHistory",
    "SessionSimulator",
    "VisitAgent",
    "best_on_last_category",
    "dqn",
    "fitted_q",
    "mdp",
    "play",
    "play_sessions",
    "shop",
    "tabular",
]
