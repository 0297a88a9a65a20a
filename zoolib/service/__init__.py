"""The production loop of Chapter 6 in miniature, on SQLite: serve, log, learn, recover, renew.

================== ====================================================================
module             contents
================== ====================================================================
`loop`             `BanditService`: decisions, rewards, snapshots
`model`            a version in memory: an agent, and how it is saved and loaded
`training`         retraining and off-policy validation
`rollout`          the registry's states, shares of users, the guardrail
`health`           deadlines, the breaker and the fallback
`watching`         monitors on the log
`store`            events, rewards, versions and snapshots on disk
`log`              the log as it is read, beside the service too
`database`         the file: tables, its owner, transactions, errors
`settings`         all numbers that can be set
================== ====================================================================
"""

from zoolib.service.database import (
    StoreCorruptError,
    StoreError,
    StoreFullError,
    StoreLockedError,
    StoreOutdatedError,
)
from zoolib.service.health import Health
from zoolib.service.log import read_log
from zoolib.service.loop import BanditService, Decision
from zoolib.service.model import Recovery, neural_linear
from zoolib.service.rollout import STAGES, PromotionRefusedError, Review
from zoolib.service.settings import Settings
from zoolib.service.store import (
    DuplicateRewardError,
    LateRewardError,
    RewardRejectedError,
    UnknownEventError,
)
from zoolib.service.watching import Watch

__all__ = [
    "STAGES",
    "BanditService",
    "Decision",
    "DuplicateRewardError",
    "Health",
    "LateRewardError",
    "PromotionRefusedError",
    "Recovery",
    "Review",
    "RewardRejectedError",
    "Settings",
    "StoreCorruptError",
    "StoreError",
    "StoreFullError",
    "StoreLockedError",
    "StoreOutdatedError",
    "UnknownEventError",
    "Watch",
    "neural_linear",
    "read_log",
]
