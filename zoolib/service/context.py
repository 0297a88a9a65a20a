"""Visitors as the service knows them: pseudonyms, and what agents may see, in a small cache."""

from __future__ import annotations

from collections.abc import Callable, Hashable
from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike

from zoolib.agents.base import Context

USERS_KEPT = 1_000
SECONDS_KEPT = 60.0


class Pseudonyms:
    """Keyed hashes of user ids: without the key nobody can tell, or try out, whose events these are.

    The key is 16 to 64 secret bytes, kept elsewhere than the database.
    """

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or not 16 <= len(key) <= 64:
            raise ValueError(f"key must be 16 to 64 bytes: got {type(key).__name__}")
        self._key = key

    def of(self, user_id: Hashable) -> bytes:
        """Return the pseudonym of a user, 16 bytes."""
        return blake2b(str(user_id).encode(), digest_size=16, key=self._key).digest()

    @property
    def check(self) -> str:
        """A digest by which a database recognises the key."""
        return blake2b(b"key check", digest_size=8, key=self._key).hexdigest()


class ContextCache:
    """The caller's feature function, checked; its answers for the last users are kept for a minute."""

    def __init__(
        self, features: Callable[[Hashable], ArrayLike], shape: tuple[int, int]
    ) -> None:
        self._features, self._shape = features, shape
        self._kept: dict[Hashable, tuple[float, Context]] = {}

    def forget(self, user_id: Hashable) -> None:
        """Forget what is kept of a user."""
        self._kept.pop(user_id, None)

    def __call__(self, user_id: Hashable, now: float) -> Context:
        """Return what an agent may see of a user: features (K, d), not the id."""
        asked, context = self._kept.get(user_id, (now, None))
        if context is not None and 0 <= now - asked < SECONDS_KEPT:
            return context
        features = np.array(self._features(user_id), dtype=np.float32)
        if features.shape != self._shape or not np.isfinite(features).all():
            raise ValueError(
                f"features must be finite and of shape {self._shape}: got shape {features.shape}"
            )
        self.forget(user_id)
        context = Context(0, features)
        self._kept[user_id] = now, context
        if len(self._kept) > USERS_KEPT:
            self.forget(next(iter(self._kept)))  # the oldest answer
        return context
