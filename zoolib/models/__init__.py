"""Models of a reward: the ridge posterior, networks, the static recommender, and their data structures.

Invalid arguments raise a TypeError or ValueError that names the argument, the value given and the value
expected; nothing is then changed. Docstrings list only other errors.
"""

import lazy_loader

__getattr__, __dir__, __all__ = lazy_loader.attach(
    __name__, submodules=["networks", "posterior", "recommender", "replay"]
)
