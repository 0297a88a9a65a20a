"""Streams of random numbers that share a seed and nothing else."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
from numpy.typing import NDArray
from scipy.special import ndtri

from zoolib._support.checks import Seed, as_seed, as_seeds
from zoolib._support.state import Learner

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
    "intents": 8,
    "sessions": 9,
}


def stream(seed: Seed, purpose: str) -> np.random.Generator:
    """Return the generator of one purpose in the world of one seed."""
    return np.random.default_rng([as_seed("seed", seed), STREAMS[purpose]])


class Uniforms(Learner):
    """Uniform random numbers for one world, or for several in step, each from its own seed.

    World w draws the same numbers whether it plays alone or with others. Without `n_worlds` there is one
    world and no worlds axis. What the numbers are for, `STREAMS` lists.
    """

    _learns = ("_generators",)

    def __init__(
        self,
        seed: Seed | Sequence[Seed],
        n_worlds: int | None,
        purpose: str = "agent",
    ) -> None:
        seeds = as_seeds("seed", seed, n_worlds)
        self._generators = [stream(one, purpose) for one in seeds]
        self._single = n_worlds is None

    def next(self, n: int | None = None) -> NDArray[np.float64]:
        """Return one uniform number in [0, 1) for each world, or n of them; shape (), (n,), (W,) or (W, n)."""
        if self._single:
            return np.float64(self._generators[0].random(n))
        return np.array([generator.random(n) for generator in self._generators])

    def normals(self, n: int) -> NDArray[np.float64]:
        """Return n standard normal numbers for each world, shape (n,) or (W, n), from n uniform ones."""
        return ndtri(self.next(n))
