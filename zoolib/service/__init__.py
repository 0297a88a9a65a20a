"""The production loop of Chapter 5 in miniature, on SQLite: serve, log, learn, recover, renew.

================== ====================================================================
module             what lives there
================== ====================================================================
`loop`             `BanditService`: decisions, rewards, snapshots
`store`            the database: schema, transactions, all SQL
`model`            a version in memory: frozen network, linear Thompson head
`recovery`         a version from its snapshot and the log
`training`         retraining, complete rebuild, off-policy validation
`rollout`          the registry's states, shares of users, the guardrail
`health`           the breaker and the fallback
`watching`         monitors on the log
`context`          pseudonyms, and the cache of features
`settings`         all numbers that can be turned
================== ====================================================================
"""

from zoolib.service.health import Health
from zoolib.service.loop import BanditService, Decision
from zoolib.service.recovery import Recovery
from zoolib.service.rollout import STAGES, PromotionRefusedError, Review
from zoolib.service.settings import Settings
from zoolib.service.store import (
    DuplicateRewardError,
    RewardRejectedError,
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    UnknownEventError,
)
from zoolib.service.training import Training
from zoolib.service.watching import Watch

__all__ = [
    "STAGES",
    "BanditService",
    "Decision",
    "DuplicateRewardError",
    "Health",
    "PromotionRefusedError",
    "Recovery",
    "Review",
    "RewardRejectedError",
    "Settings",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "Training",
    "UnknownEventError",
    "Watch",
]
