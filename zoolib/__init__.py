"""The library of the book *The Adaptive Recommender*: a pet-shop world and the models that serve it.

Modules stand on floors and import only from floors below:

====== ==============================================
floor  modules
====== ==============================================
4      `evaluation`, `plots`, `book`
3      `recommender`
2      `features`, `networks`
1      `simulator`, `estimates`
0      checks of arguments
====== ==============================================
"""

from zoolib.book import claim, listing
from zoolib.estimates import Estimate, mean_interval, proportion_interval
from zoolib.evaluation import (
    best_product_value,
    entropy_floor,
    oracle_value,
    policy_value,
    random_value,
)
from zoolib.features import FeatureEngineer
from zoolib.recommender import (
    MLPRecommender,
    TrainingHistory,
    pick_device,
    train_recommender,
)
from zoolib.simulator import SHOCK_1, SHOCK_2, MarketShock, ZooplusSimulator, true_ctr_matrix

__all__ = [
    "SHOCK_1",
    "SHOCK_2",
    "Estimate",
    "FeatureEngineer",
    "MLPRecommender",
    "MarketShock",
    "TrainingHistory",
    "ZooplusSimulator",
    "best_product_value",
    "claim",
    "entropy_floor",
    "listing",
    "mean_interval",
    "oracle_value",
    "pick_device",
    "policy_value",
    "proportion_interval",
    "random_value",
    "train_recommender",
    "true_ctr_matrix",
]
