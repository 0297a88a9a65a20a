"""The book's own tools: claims, listings, figures, self-checking exercises, and recorded runs."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submodules=["claims", "exercises", "plots"]
)
