"""The library of the book *The Adaptive Recommender*: a pet-shop world and the models that serve it.

Modules stand on floors and import only from floors below:

====== ===================================================
floor  modules
====== ===================================================
19     `__main__`
18     `exercises`: `check`
17     the judges of the chapters' exercises
16     what `service` shows to the outside
12–15  `service`: the production loop
11     `gauntlet`
10     `evaluation`
6–9    `experiment`; `plots`, `book`
5      `agents`
4      what neural agents share
3      `recommender`, `offpolicy`, `retrieval`, and what all agents share
2      `features`, `monitoring`, `networks`, `posterior`, `replay`; what all judges share
1      `simulator`, `estimates`, `choice`
0      checks of arguments, random numbers, files, threads, bars
====== ===================================================
"""

from zoolib.agents import (
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
from zoolib.book import RECORDS, claim, listing, publish
from zoolib.choice import draw, greedy, with_floor
from zoolib.estimates import (
    Estimate,
    bootstrap_interval,
    mean_interval,
    median_interval,
    proportion_interval,
)
from zoolib.evaluation import (
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
from zoolib.exercises import check
from zoolib.experiment import History, Sweep, run_experiment, sweep
from zoolib.features import FeatureEngineer
from zoolib.posterior import RidgePosterior, frozen
from zoolib.recommender import (
    MLPRecommender,
    TrainingHistory,
    pick_device,
    static_recommenders,
    train_recommender,
)
from zoolib.simulator import (
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
    "RevealedContext",
    "RidgePosterior",
    "StaticAgent",
    "Sweep",
    "TrainingHistory",
    "ZooplusSimulator",
    "best_product_value",
    "bootstrap_interval",
    "check",
    "claim",
    "click_rate",
    "crossing_time",
    "draw",
    "entropy_floor",
    "frozen",
    "greedy",
    "lead",
    "listing",
    "mean_interval",
    "median_interval",
    "oracle_value",
    "phases",
    "pick_device",
    "policy_value",
    "proportion_interval",
    "publish",
    "random_value",
    "recovery_time",
    "regret",
    "rolling_mean",
    "run_experiment",
    "share_of_oracle",
    "static_recommenders",
    "sweep",
    "train_recommender",
    "true_ctr_matrix",
    "with_floor",
]
