"""The book's own tools: claims, listings, figures, self-checking exercises, recorded runs and sweeps."""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__,
    submodules=[
        "claims",
        "exercises",
        "gauntlet",
        "plots",
        "recordings",
        "static",
        "sweeps",
    ],
)
