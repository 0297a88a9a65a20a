"""All the numbers that somebody may want to turn, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from zoolib._checks import (
    as_level,
    as_not_negative,
    as_one_of,
    as_positive,
    as_probability,
    as_rate,
    as_size,
)

FALLBACKS = ("epsilon-greedy", "random")


@dataclass(frozen=True)
class Settings:
    r"""How a service decides, learns and protects itself.

    Attributes
    ----------
    hidden : tuple of int
        Widths of the layers between features and embedding.
    embedding_dim : int
        Length of an embedding.
    ridge, noise : float
        :math:`\lambda` of the head, and the standard deviation of its draws.
    n_draws : int
        M, draws from the posterior that estimate the choice probabilities.
    floor : float
        :math:`\varepsilon` in (0, 1], share of choices made uniformly: every propensity is at least
        floor / K.
    snapshot_every : int
        Rewards between two snapshots of a head.
    cache_size, cache_seconds : int, float
        How many users' features are kept, and for how long.
    latency_limit : float
        Seconds that a model may take for its scores.
    patience : int
        Failures in a row after which a model is left alone.
    pause : float
        Seconds between two health checks, and so until a model that was left alone is tried again.
    fallback : {"epsilon-greedy", "random"}
        What stands in for a model that fails.
    fallback_floor : float
        Share of uniform choices of the fallback.
    guard_level : float
        Level of the one-sided test that stops a rollout, at each stage.
    guard_visits : int
        Rewarded visits that each side of a rollout needs before a stage is judged.
    min_sample : float
        Effective number of logged events that a validation must rest on.
    """

    hidden: tuple[int, ...] = (64,)
    embedding_dim: int = 32
    ridge: float = 1.0
    noise: float = 0.3
    n_draws: int = 100
    floor: float = 0.02
    snapshot_every: int = 500
    cache_size: int = 1000
    cache_seconds: float = 60.0
    latency_limit: float = 0.010
    patience: int = 3
    pause: float = 30.0
    fallback: str = "epsilon-greedy"
    fallback_floor: float = 0.1
    guard_level: float = 0.01
    guard_visits: int = 500
    min_sample: float = 100.0

    def __post_init__(self) -> None:
        for size in self.hidden:
            as_size("hidden", size)
        for name in (
            *("embedding_dim", "n_draws", "snapshot_every", "cache_size"),
            *("patience", "guard_visits"),
        ):
            as_size(name, getattr(self, name))
        for name in ("ridge", "latency_limit", "pause"):
            as_positive(name, getattr(self, name))
        for name in ("noise", "cache_seconds", "min_sample"):
            as_not_negative(name, getattr(self, name))
        # Without a floor an arm could be impossible, and no log would say what it is worth.
        as_rate("floor", self.floor)
        as_probability("fallback_floor", self.fallback_floor)
        as_level("guard_level", self.guard_level)
        as_one_of("fallback", self.fallback, FALLBACKS)
