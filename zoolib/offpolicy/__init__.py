"""Off-policy evaluation: estimates of the value of one policy from the log of another.

`visits` is for logs of independent visits, `sessions` for logs in which a step influences the next one.
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
