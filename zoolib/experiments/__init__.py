"""Experiments: agents in the arena, what happened there, and how sure we can be of it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "arena",
        "estimates",
        "evaluation",
        "gauntlet",
        "history",
        "offpolicy",
        "recordings",
        "sessions",
        "sweeps",
    ],
)
