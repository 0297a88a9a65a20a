"""Who came, and what is known of the arms for them: pseudonyms, and features with a small cache."""

from __future__ import annotations

from collections import OrderedDict
from collections.abc import Callable, Hashable
from dataclasses import dataclass
from hashlib import blake2b

import numpy as np
from numpy.typing import ArrayLike, NDArray

LEAST_KEY = 16  # bytes


class Pseudonyms:
    """Keyed hashes of user ids: nobody without the key can tell, or try out, whose events these are.

    Parameters
    ----------
    key : bytes
        16 to 64 secret bytes, kept elsewhere than the database.
    """

    def __init__(self, key: bytes) -> None:
        if not isinstance(key, bytes) or not LEAST_KEY <= len(key) <= 64:
            raise ValueError(
                f"key must be {LEAST_KEY} to 64 bytes: got {type(key).__name__}"
            )
        self._key = key

    def of(self, user_id: Hashable) -> bytes:
        """Return the pseudonym of a user, 16 bytes."""
        return blake2b(str(user_id).encode(), digest_size=16, key=self._key).digest()

    @property
    def check(self) -> str:
        """A digest by which a database knows the key again."""
        return blake2b(b"key check", digest_size=8, key=self._key).hexdigest()


@dataclass(frozen=True)
class Arms:
    """The arms as one user meets them.

    Attributes
    ----------
    features : ndarray of float32, shape (K, d)
    rows : ndarray of float32, shape (n, d)
        The different ones among them: equal arms are scored once.
    group : ndarray of int, shape (K,)
        Which of them each arm has.
    """

    features: NDArray[np.float32]
    rows: NDArray[np.float32]
    group: NDArray[np.int64]


class FeatureCache:
    """The caller's feature function, checked, with the answers for the last users kept for a while.

    Parameters
    ----------
    features : callable
        Maps a user id to features (K, d), or raises for an unknown user.
    shape : tuple of int
        (K, d).
    size : int
        Number of users kept.
    seconds : float
        How long an answer is good.
    """

    def __init__(
        self,
        features: Callable[[Hashable], ArrayLike],
        shape: tuple[int, int],
        size: int,
        seconds: float,
    ) -> None:
        self._features, self.shape = features, shape
        self.size, self.seconds = size, seconds
        self._kept: OrderedDict[Hashable, tuple[float, Arms]] = OrderedDict()

    def forget(self, user_id: Hashable) -> None:
        """Forget what is kept of a user."""
        self._kept.pop(user_id, None)

    def __len__(self) -> int:
        return len(self._kept)

    def __call__(self, user_id: Hashable, now: float) -> Arms:
        """Return the arms as the user meets them.

        Raises
        ------
        ValueError
            If the features have another shape, or are not finite numbers.
        """
        asked, arms = self._kept.get(user_id, (now, None))
        if arms is not None and 0 <= now - asked < self.seconds:
            self._kept.move_to_end(user_id)
            return arms
        features = np.array(self._features(user_id), dtype=np.float32)
        if features.shape != self.shape or not np.isfinite(features).all():
            raise ValueError(
                f"features must be finite and of shape {self.shape}: got shape {features.shape}"
            )
        rows, group = np.unique(features, axis=0, return_inverse=True)
        self._kept[user_id] = now, Arms(features, rows, group)
        if len(self._kept) > self.size:
            self._kept.popitem(last=False)
        return self._kept[user_id][1]
