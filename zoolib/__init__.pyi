# Public names of zoolib, and where they live; each is loaded when it is first used.

from . import agents, book, experiments, models, monitoring, service, world
from .agents import (
    Agent,
    Context,
    EnsembleAgent,
    EpsilonGreedyAgent,
    GuardedAgent,
    HybridLinUCBAgent,
    LinearAgent,
    LinTSAgent,
    LinUCBAgent,
    MCDropoutAgent,
    NeuralLinearAgent,
    NeuralUCBAgent,
    OracleAgent,
    RandomAgent,
    RevealedContext,
    StaticAgent,
)
from .agents.policies import draw, greedy, with_floor
from .book import plots
from .book.claims import RECORDS, claim, listing, publish
from .book.exercises import check
from .experiments import gauntlet, offpolicy
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
    crossing_time,
    entropy_floor,
    lead,
    oracle_value,
    phases,
    policy_value,
    random_value,
    recovery_time,
    regret,
    rolling_mean,
    share_of_oracle,
)
from .experiments.history import History
from .experiments.recordings import (
    RecordedRuns,
    current_commit,
    recorded_experiment,
)
from .experiments.sweeps import Sweep, sweep
from .models.posterior import RidgePosterior
from .models.recommender import (
    MLPRecommender,
    TrainingHistory,
    pick_device,
    static_recommenders,
    train_recommender,
)
from .world.environment import SessionEnv
from .world.features import FeatureEngineer
from .world.mdp import DecisionProcess
from .world.sessions import SessionSimulator, best_on_last_category
from .world.simulator import (
    SHOCK_1,
    SHOCK_2,
    Churn,
    MarketShock,
    ZooplusSimulator,
    true_ctr_matrix,
)

__all__ = [
    "RECORDS",
    "SHOCK_1",
    "SHOCK_2",
    "Agent",
    "Churn",
    "Context",
    "DecisionProcess",
    "EnsembleAgent",
    "EpsilonGreedyAgent",
    "Estimate",
    "FeatureEngineer",
    "GuardedAgent",
    "History",
    "HybridLinUCBAgent",
    "LinTSAgent",
    "LinUCBAgent",
    "LinearAgent",
    "MCDropoutAgent",
    "MLPRecommender",
    "MarketShock",
    "NeuralLinearAgent",
    "NeuralUCBAgent",
    "OracleAgent",
    "RandomAgent",
    "RecordedRuns",
    "RevealedContext",
    "RidgePosterior",
    "SessionEnv",
    "SessionSimulator",
    "StaticAgent",
    "Sweep",
    "TrainingHistory",
    "ZooplusSimulator",
    "agents",
    "best_on_last_category",
    "best_product_value",
    "book",
    "bootstrap_interval",
    "check",
    "claim",
    "click_rate",
    "crossing_time",
    "current_commit",
    "draw",
    "entropy_floor",
    "experiments",
    "gauntlet",
    "greedy",
    "lead",
    "listing",
    "mean_interval",
    "median_interval",
    "models",
    "monitoring",
    "offpolicy",
    "oracle_value",
    "phases",
    "pick_device",
    "plots",
    "policy_value",
    "proportion_interval",
    "publish",
    "random_value",
    "recorded_experiment",
    "recovery_time",
    "regret",
    "rolling_mean",
    "run_experiment",
    "service",
    "share_of_oracle",
    "static_recommenders",
    "sweep",
    "train_recommender",
    "true_ctr_matrix",
    "with_floor",
    "world",
]
