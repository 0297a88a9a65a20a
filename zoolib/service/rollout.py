"""A new version meets the users by degrees: 5, 20, 50, 100 per cent, with a guardrail.

Users are assigned, not visits: a keyed pseudonym and the version's name decide, so that a user stays on
the side where they are, and who was among the first last time need not be this time.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import NDArray
from scipy import stats

from zoolib.service.settings import Settings
from zoolib.service.store import Store, Version

STAGES = (5, 20, 50, 100)


class PromotionRefusedError(RuntimeError):
    """A version that may not be rolled out, or not now."""


@dataclass(frozen=True)
class Review:
    """What a look at a rollout decided.

    Attributes
    ----------
    outcome : {"waiting", "advanced", "promoted", "rolled back"}
    version : str
        The version that is rolled out.
    share : int
        Per cent of the users that it has had in this stage.
    rates : tuple of float
        Click rates of the users on its side and of the others; NaN without visits.
    visits : tuple of int
        Rewarded visits of both.
    p_value : float
        Of the hypothesis that it is no worse; NaN while waiting.
    """

    outcome: str
    version: str
    share: int
    rates: tuple[float, float]
    visits: tuple[int, int]
    p_value: float


def bucket(user: bytes, name: str) -> int:
    """Return 0 to 99, always the same for one user and one version."""
    digest = blake2b(user + name.encode(), digest_size=8).digest()
    return int.from_bytes(digest) % 100


def p_value_worse(
    candidate: NDArray[np.float64], control: NDArray[np.float64]
) -> float:
    r"""Test whether a click rate is worse, one-sided, with users as the units.

    Visits of one user are alike, and it is users that were assigned by lot; a test that took visits as
    independent would find differences too often. With :math:`n_u` visits and :math:`c_u` clicks of
    each of :math:`N` users the rate :math:`r = \sum c_u / \sum n_u` is the mean of
    :math:`r + N (c_u - r n_u) / \sum n_u`, to first order (the delta method: Deng, Knoblich and Lu 2018);
    Welch's test compares the two means.

    Parameters
    ----------
    candidate, control : ndarray, shape (U, 2)
        Visits and clicks of each user, at least two users a side.

    Returns
    -------
    float
        Small if the candidate is worse.
    """
    sides = []
    for visits, clicks in (candidate.T, control.T):
        rate = clicks.sum() / visits.sum()
        sides.append(rate + (clicks - rate * visits) / visits.mean())
    if max(map(np.ptp, sides)) < 1e-12:  # no variance at all: nothing to divide by
        return float(sides[0][0] >= sides[1][0])
    return float(stats.ttest_ind(*sides, equal_var=False, alternative="less").pvalue)


class Rollout:
    """Who is served by which version, and when that changes.

    Parameters
    ----------
    store : Store
        Holds the registry.
    settings : Settings
        Level and size of the guardrail's test.

    Attributes
    ----------
    active : str
        Name of the version that serves.
    rolling : Version or None
        The one that is being rolled out beside it.
    """

    def __init__(self, store: Store, settings: Settings) -> None:
        self.store, self.settings = store, settings
        self.reload()

    def reload(self) -> None:
        """Read the registry again."""
        versions = self.store.versions("active", "rolling")
        (self.active,) = [v.name for v in versions if v.state == "active"]
        self.rolling: Version | None = next(
            (v for v in versions if v.state == "rolling"), None
        )

    @property
    def names(self) -> list[str]:
        """Versions that serve."""
        return [self.active] + ([self.rolling.name] if self.rolling else [])

    def assign(self, user: bytes) -> str:
        """Return the version of a user."""
        rolling = self.rolling
        if rolling and bucket(user, rolling.name) < rolling.share:
            return rolling.name
        return self.active

    def begin(self, name: str) -> None:
        """Give a validated candidate its first users.

        Raises
        ------
        PromotionRefusedError
            If it is no candidate, its validation failed or is for another version than the one that
            serves, or another rollout is under way.
        """
        version = self.store.version(name)
        if version.state != "candidate":
            raise PromotionRefusedError(
                f"name must be of a candidate: {name} is {version.state}"
            )
        if not version.validation.get("passed"):
            why = version.validation.get("reason", "was never validated")
            raise PromotionRefusedError(f"{name} may not be rolled out: {why}")
        if version.validation.get("against") != self.active:
            raise PromotionRefusedError(
                f"{name} was validated against {version.validation.get('against')}, but "
                f"{self.active} is active: validate it again"
            )
        if self.rolling:
            raise PromotionRefusedError(
                f"{self.rolling.name} is being rolled out: one at a time"
            )
        self.store.move("begin rollout", (name, "rolling", STAGES[0], ""))
        self.reload()

    def retire(self, name: str, note: str) -> None:
        """Take a version that is not active out of service, for good."""
        if name == self.active or self.store.version(name).state == "retired":
            raise ValueError(
                f"name must be of a candidate or rolling version: got {name!r}"
            )
        self.store.move("retire", (name, "retired", 0, note))
        self.reload()

    def review(self) -> Review:
        """Judge the stage if enough visits are in: go on, swap the versions, or roll back.

        A stage is judged once, when both sides have their visits; who looks again and again until a
        test says something gets more false alarms than its level.
        """
        rolling = self._needs_rolling()
        sides = [
            self.store.clicks_by_user(name, rolling.since)
            for name in (rolling.name, self.active)
        ]
        visits = tuple(int(side[:, 0].sum()) for side in sides)
        rates = tuple(
            float(side[:, 1].sum() / n) if n else float("nan")
            for side, n in zip(sides, visits, strict=True)
        )
        p_value = float("nan")
        if min(visits) < self.settings.guard_visits or min(map(len, sides)) < 2:
            outcome = "waiting"
        else:
            p_value = p_value_worse(*sides)
            outcome = self._judge(rolling, p_value, rates)
        return Review(outcome, rolling.name, rolling.share, rates, visits, p_value)

    def _judge(self, rolling: Version, p_value: float, rates: tuple[float, ...]) -> str:
        if p_value < self.settings.guard_level:
            note = f"guardrail: {rates[0]:.3f} against {rates[1]:.3f}"
            self.retire(rolling.name, note)
            return "rolled back"
        share = STAGES[STAGES.index(rolling.share) + 1]
        if share < STAGES[-1]:
            self.store.move("advance", (rolling.name, "rolling", share, ""))
            outcome = "advanced"
        else:
            replaced = (self.active, "retired", 0, f"replaced by {rolling.name}")
            self.store.move("promote", replaced, (rolling.name, "active", share, ""))
            outcome = "promoted"
        self.reload()
        return outcome

    def _needs_rolling(self) -> Version:
        if self.rolling is None:
            raise PromotionRefusedError("no version is being rolled out")
        return self.rolling
