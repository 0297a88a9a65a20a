"""Streams of random numbers that share a seed and nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

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
}
_BLOCK = 1024


def stream(seed: Seed, purpose: str) -> np.random.Generator:
    """Return the generator of one purpose in the world of one seed."""
    return np.random.default_rng([as_seed("seed", seed), STREAMS[purpose]])


class Uniforms(Learner):
    """Uniform random numbers for one world, or for several in step, each from its own seed.

    World w draws the same numbers whether it plays alone or with others.

    Parameters
    ----------
    seed : int, SeedSequence, Generator, or a sequence of them
        One for all worlds, or one for each.
    n_worlds : int or None
        Number of worlds W, or None for one without a worlds axis.
    purpose : str, default "agent"
        What the numbers are for: see `STREAMS`.
    """

    _learns = ("_generators", "_drawn")

    def __init__(
        self,
        seed: Seed | Sequence[Seed],
        n_worlds: int | None,
        purpose: str = "agent",
    ) -> None:
        seeds = as_seeds("seed", seed, n_worlds)
        self._generators = [stream(one, purpose) for one in seeds]
        self._single = n_worlds is None
        self._fill()

    def next(self) -> NDArray[np.float64]:
        """Return one uniform number in [0, 1) for each world, shape () or (W,)."""
        if self._drawn == _BLOCK:
            self._fill()
        self._drawn += 1
        return self._block[self._drawn - 1]

    def normals(self, n: int) -> NDArray[np.float64]:
        """Return n standard normal numbers for each world, shape (n,) or (W, n), from n uniform ones."""
        parts = [self._block[:0]]
        while n > 0:
            if self._drawn == _BLOCK:
                self._fill()
            parts.append(self._block[self._drawn : self._drawn + n])
            self._drawn += len(parts[-1])
            n -= len(parts[-1])
        return ndtri(np.concatenate(parts).T)

    def state(self) -> dict[str, Any]:
        """Return where the generators stood before the present block, and how much of it is drawn."""
        return {"generators": self._before, "drawn": self._drawn}

    def _restore(self, learned: dict[str, Any]) -> None:
        super()._restore(learned)
        drawn = self._drawn
        if drawn > _BLOCK:
            raise ValueError(f"drawn must be at most {_BLOCK}: got {drawn}")
        self._fill()
        self._drawn = drawn

    def _fill(self) -> None:
        self._before = [g.bit_generator.state for g in self._generators]
        drawn = np.array([g.random(_BLOCK) for g in self._generators])
        self._block = drawn[0] if self._single else drawn.T.copy()
        self._drawn = 0
