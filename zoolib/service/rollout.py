"""Gradual rollout of a new version to 5, 20, 50 and 100 per cent of the users, with a guardrail.

Users are assigned, not visits, by a hash of the keyed pseudonym and the version's name. So a user stays on
one side, and different versions have different first users.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray

from zoolib.service.settings import Settings
from zoolib.service.store import Store, Version

STAGES = (5, 20, 50, 100)
SHUFFLES = 2_000  # lots that the guardrail's test compares, with the real one


class PromotionRefusedError(RuntimeError):
    """A version that may not be rolled out, or not now."""


@dataclass(frozen=True)
class Review:
    """The outcome of a review of a rollout.

    Attributes
    ----------
    outcome : {"waiting", "advanced", "promoted", "rolled back"}
    rates : tuple of float
        Click rates of the users on the new side and of the others; NaN without visits.
    visits : tuple of int
        Visits of both, rewarded or expired, up to the first whose fate is open.
    p_value : float
        P-value of the hypothesis that the new side is no worse; NaN while waiting.
    """

    outcome: str
    rates: tuple[float, float] = (math.nan, math.nan)
    visits: tuple[int, int] = (0, 0)
    p_value: float = math.nan


def bucket(user: bytes, name: str) -> int:
    """Return 0 to 99, always the same for one user and one version."""
    digest = blake2b(user + name.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % 100


def p_value_worse(
    candidate: NDArray[np.float64], control: NDArray[np.float64]
) -> float:
    r"""Test whether a click rate is worse, one-sided, with users as the units.

    It was users that were assigned by lot. If versions are equally good, any other lot would have given the
    same visits and clicks. So the sides are drawn again and again from all users, and the p-value is the share
    of the draws, the real one among them, in which the new side's clicks fall short of its visits times
    the common click rate by as much, or more. That is exact for every click rate, and whoever comes how
    often (a permutation test: Fisher 1935).

    Parameters
    ----------
    candidate, control : ndarray, shape (U, 2)
        Visits and clicks of each user.

    Returns
    -------
    float
        Small if the candidate is worse.
    """
    everybody = np.concatenate((candidate, control))
    kinds, counts = np.unique(everybody, axis=0, return_counts=True)
    visits, clicks = everybody.sum(axis=0)
    surplus = kinds @ (-clicks / visits, 1)  # clicks beyond the common rate
    found = (candidate @ (-clicks / visits, 1)).sum() + 1e-9 * visits
    rng = np.random.default_rng(0)
    as_low = 1
    drawn = 1
    while drawn < SHUFFLES:
        size = min(SHUFFLES - drawn, 1 + 1_000_000 // len(kinds))  # in memory at once
        of_kind = rng.multivariate_hypergeometric(
            counts, len(candidate), size, method="marginals"
        )
        as_low += int((of_kind @ surplus <= found).sum())
        drawn += size
    return as_low / drawn


class Rollout:
    """The assignment of users to versions, and its changes."""

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store = store
        self.settings = settings

    @property
    def names(self) -> list[str]:
        """Versions that serve."""
        return [version.name for version in self.store.serving()]

    @property
    def active(self) -> str:
        """Name of the version that serves."""
        return self.names[0]

    @property
    def rolling(self) -> Version | None:
        """The version that is being rolled out next to it."""
        return next(iter(self.store.serving()[1:]), None)

    def assign(self, user: bytes) -> str:
        """Return the version of a user."""
        active, *rolling = self.store.serving()
        if rolling and bucket(user, rolling[0].name) < rolling[0].share:
            return rolling[0].name
        return active.name

    def begin(self, name: str) -> None:
        """Give a validated candidate its first users: see `BanditService.begin_rollout`."""
        version = self.store.version(name)
        figures = version.validation
        if version.state != "candidate":
            why = f"name must be of a candidate: {name} is {version.state}"
        elif not figures.get("passed"):
            reason = figures.get("reason", "was never validated")
            why = f"{name} may not be rolled out: {reason}"
        elif (against := figures.get("against")) != self.active:
            why = (
                f"{name} was validated against {against}, but {self.active} is active: "
                "validate it again"
            )
        elif self.rolling:
            why = f"{self.rolling.name} is being rolled out: one at a time"
        else:
            self.store.move((version, "rolling", STAGES[0], ""))
            return
        raise PromotionRefusedError(why)

    def review(self, broken: str = "") -> Review:
        """Judge the stage if enough visits are in: go on, swap the versions, or roll back.

        A stage is judged once, when both sides have their visits; testing again and again until one
        test rejects gives more false alarms than the level says. If there is a reason why the version that
        is rolled out is `broken`, it is rolled back without a test.
        """
        if self.rolling is None:
            raise PromotionRefusedError("no version is being rolled out")
        active, rolling = self.store.serving()
        if broken:
            self.store.move((rolling, "retired", 0, broken))
            return Review("rolled back")
        names = (rolling.name, active.name)
        sides = [self.store.clicks_by_user(name, rolling.since) for name in names]
        totals = [side.sum(axis=0) for side in sides]
        visits = tuple(int(n) for n, _ in totals)
        rates = tuple(float(clicks / n) if n else math.nan for n, clicks in totals)
        if min(visits) < self.settings.guard_visits or min(map(len, sides)) < 2:
            return Review("waiting", rates, visits)
        p_value = p_value_worse(*sides)
        share = STAGES[STAGES.index(rolling.share) + 1]
        if p_value < self.settings.guard_level:
            outcome = "rolled back"
            note = f"guardrail: {rates[0]:.3f} against {rates[1]:.3f}"
            self.store.move((rolling, "retired", 0, note))
        elif share < STAGES[-1]:
            outcome = "advanced"
            self.store.move((rolling, "rolling", share, ""))
        else:
            outcome = "promoted"
            replaced = (active, "retired", 0, f"replaced by {rolling.name}")
            self.store.move(replaced, (rolling, "active", share, ""))
        return Review(outcome, rates, visits, p_value)
