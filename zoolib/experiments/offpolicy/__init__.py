"""Off-policy evaluation: what another policy would have earned, from the log of the one that served.

`visits` judges logs of visits that do not touch each other, `sessions` logs in which a step changes the next.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submod_attrs={
        "visits": [
            "Log",
            "cross_fit",
            "direct_method",
            "doubly_robust",
            "effective_sample_size",
            "importance_weights",
            "ips",
            "lead",
            "mean_weight",
            "snips",
        ],
        "sessions": [
            "SessionLog",
            "cross_fit_q",
            "fitted_q_evaluation",
            "session_doubly_robust",
            "session_ips",
            "session_weights",
        ],
    },
)
