# Public names of zoolib, and where they live; each is loaded when it is first used.

from . import (
    agents,
    book,
    experiments,
    large,
    models,
    monitoring,
    offpolicy,
    service,
    sessions,
    world,
)
from .agents import (
    Agent,
    Context,
    EpsilonGreedyAgent,
    GuardedAgent,
    HybridLinUCBAgent,
    LinearAgent,
    LinTSAgent,
    LinUCBAgent,
    NeuralLinearAgent,
    NeuralUCBAgent,
    OracleAgent,
    RandomAgent,
    RevealedContext,
    StaticAgent,
)
from .agents.policies import draw, greedy, with_floor
from .book import gauntlet, plots
from .book.claims import RECORDS, claim, listing, publish
from .book.exercises import check
from .book.recordings import RecordedRuns, current_commit, recorded_experiment
from .book.static import static_choices, static_recommenders
from .book.sweeps import Sweep, sweep
from .experiments.arena import run_experiment
from .experiments.estimates import (
    Estimate,
    bootstrap_interval,
    mean_interval,
    median_interval,
    proportion_interval,
)
from .experiments.evaluation import (
    best_product_value,
    click_rate,
    entropy_floor,
    lead,
    oracle_value,
    phases,
    policy_value,
    random_value,
    recent_share,
    recovery_time,
    regret,
    rolling_mean,
    share_of_oracle,
)
from .experiments.history import History
from .large.ensembles import EnsembleAgent, MCDropoutAgent
from .models.posterior import RidgePosterior
from .models.recommender import (
    MLPRecommender,
    TrainingHistory,
    train_recommender,
)
from .sessions.dqn import DQNAgent, LastItems, OneHot
from .sessions.mdp import DecisionProcess
from .sessions.play import SessionHistory, VisitAgent, play_sessions
from .sessions.shop import SessionSimulator, best_on_last_category
from .sessions.tabular import QLearningAgent, SarsaAgent, fitted_q
from .world.features import FeatureEngineer
from .world.simulator import (
    SHOCK_1,
    SHOCK_2,
    Churn,
    MarketShock,
    ZooplusSimulator,
    true_ctr_matrix,
)

__version__: str

__all__ = [
    "RECORDS",
    "SHOCK_1",
    "SHOCK_2",
    "Agent",
    "Churn",
    "Context",
    "DQNAgent",
    "DecisionProcess",
    "EnsembleAgent",
    "EpsilonGreedyAgent",
    "Estimate",
    "FeatureEngineer",
    "GuardedAgent",
    "History",
    "HybridLinUCBAgent",
    "LastItems",
    "LinTSAgent",
    "LinUCBAgent",
    "LinearAgent",
    "MCDropoutAgent",
    "MLPRecommender",
    "MarketShock",
    "NeuralLinearAgent",
    "NeuralUCBAgent",
    "OneHot",
    "OracleAgent",
    "QLearningAgent",
    "RandomAgent",
    "RecordedRuns",
    "RevealedContext",
    "RidgePosterior",
    "SarsaAgent",
    "SessionHistory",
    "SessionSimulator",
    "StaticAgent",
    "Sweep",
    "TrainingHistory",
    "VisitAgent",
    "ZooplusSimulator",
    "agents",
    "best_on_last_category",
    "best_product_value",
    "book",
    "bootstrap_interval",
    "check",
    "claim",
    "click_rate",
    "current_commit",
    "draw",
    "entropy_floor",
    "experiments",
    "fitted_q",
    "gauntlet",
    "greedy",
    "large",
    "lead",
    "listing",
    "mean_interval",
    "median_interval",
    "models",
    "monitoring",
    "offpolicy",
    "oracle_value",
    "phases",
    "play_sessions",
    "plots",
    "policy_value",
    "proportion_interval",
    "publish",
    "random_value",
    "recent_share",
    "recorded_experiment",
    "recovery_time",
    "regret",
    "rolling_mean",
    "run_experiment",
    "service",
    "sessions",
    "share_of_oracle",
    "static_choices",
    "static_recommenders",
    "sweep",
    "train_recommender",
    "true_ctr_matrix",
    "with_floor",
    "world",
]
