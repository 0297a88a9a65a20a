"""Models of a reward: the ridge posterior, networks, the static recommender; and what they read from.

Arguments that do not fit raise TypeError or ValueError, which name the argument, what came and what was
wanted; nothing has then changed. Docstrings say only which other errors there are.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submodules=["networks", "posterior", "recommender", "replay", "retrieval"]
)
