"""Streams of random numbers that share a seed and nothing else."""

from __future__ import annotations

import numpy as np

# A world draws its catalogue from default_rng(seed). What happens in it comes from other streams: with
# one and the same generator, visitors would depend on the personas they were drawn after.
STREAMS = {
    "visitors": 1,
    "clicks": 2,
    "agent": 3,
    "replay": 4,
    "restock": 5,
    "tastes": 6,
    "guard": 7,
}


def stream(seed: int, purpose: str) -> np.random.Generator:
    """Return the generator of one purpose in the world of one seed."""
    return np.random.default_rng([seed, STREAMS[purpose]])
