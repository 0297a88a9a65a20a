"""The world: a pet shop whose true click probabilities are known, and the features that describe it."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submodules=["features", "simulator"]
)
