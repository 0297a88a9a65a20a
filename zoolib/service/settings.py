"""All the numbers of a service that can be set, in one place."""

from __future__ import annotations

from dataclasses import dataclass

from zoolib._support.checks import (
    as_flag,
    as_level,
    as_not_negative,
    as_positive,
    as_rate,
    as_size,
)
from zoolib._support.settings import check_settings, setting


@dataclass(frozen=True)
class Settings:
    r"""How a service decides, learns and protects itself.

    Attributes
    ----------
    n_draws : int
        M, draws from the posterior that estimate the choice probabilities of Thompson sampling.
    floor : float
        :math:`\varepsilon` in (0, 1], share of choices made uniformly: every propensity is at least
        floor / K.
    snapshot_every : int
        Rewards between two snapshots of a version.
    attribution : float
        Seconds within which a reward counts. A decision without a reward then gets zero; a later reward is
        rejected. If a shop sends clicks but no zeros, agents know until then only of visits that were
        clicked, and may show one product to nearly everybody: send zeros too, or set `when_closed`. See
        "When clicks come late".
    when_closed : bool
        Whether an agent learns a visit only when its window has closed, its reward or zero in turn.
    deadline : float
        Seconds for which a decision waits for the features, and again for the model. Without features or scores
        a fallback answers. For the disk there is none: a decision is shown when it is written.
    guard_level : float
        Level of the one-sided test that stops a rollout, at each stage.
    guard_visits : int
        Visits, rewarded or expired, that each side of a rollout needs before a stage is judged.
    min_sample : float
        Effective number of logged events that a validation must rest on; a quarter as many, effectively, must
        have been rewarded, since intervals from fewer are too short.
    """

    n_draws: int = setting(as_size, 100)
    # Without a floor an arm could be impossible, and no log would say what it is worth.
    floor: float = setting(as_rate, 0.02)
    snapshot_every: int = setting(as_size, 500)
    attribution: float = setting(as_positive, 3_600.0)
    when_closed: bool = setting(as_flag, False)
    deadline: float = setting(as_positive, 1.0)
    guard_level: float = setting(as_level, 0.01)
    guard_visits: int = setting(as_size, 500)
    min_sample: float = setting(as_not_negative, 100.0)

    def __post_init__(self) -> None:
        check_settings(self)
