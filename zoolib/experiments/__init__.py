"""Experiments: agents in the arena, the history of a run, and intervals for its results."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submodules=["arena", "estimates", "evaluation", "history"]
)
