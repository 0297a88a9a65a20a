"""Off-policy evaluation: what another policy would have earned, from the log of the one that served.

`visits` judges logs of visits that do not touch each other, `sessions` logs in which a step changes the next.
"""

from zoolib.experiments.offpolicy.sessions import (
    SessionLog,
    cross_fit_q,
    effective_sessions,
    fitted_q_evaluation,
    per_decision,
    session_doubly_robust,
    session_weights,
    trajectory,
)
from zoolib.experiments.offpolicy.visits import (
    Log,
    cross_fit,
    direct_method,
    doubly_robust,
    effective_sample_size,
    importance_weights,
    ips,
    lead,
    mean_weight,
    snips,
)

__all__ = [
    "Log",
    "SessionLog",
    "cross_fit",
    "cross_fit_q",
    "direct_method",
    "doubly_robust",
    "effective_sample_size",
    "effective_sessions",
    "fitted_q_evaluation",
    "importance_weights",
    "ips",
    "lead",
    "mean_weight",
    "per_decision",
    "session_doubly_robust",
    "session_weights",
    "snips",
    "trajectory",
]
