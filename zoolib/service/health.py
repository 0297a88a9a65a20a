"""Handling of failing models: deadlines, a breaker that pauses a model, and a fallback."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from concurrent.futures import Future
from dataclasses import dataclass
from functools import partial
from queue import SimpleQueue
from typing import TypeVar

import numpy as np
from numpy.typing import NDArray

from zoolib.agents.policies import greedy, with_floor
from zoolib.service.store import Store

T = TypeVar("T")
FALLBACK = "fallback: epsilon-greedy"
FALLBACK_FLOOR = 0.1  # share of its choices that are uniform
FALLBACK_REWARDS = 10_000  # the newest rewards, from which it takes click rates


@dataclass(frozen=True)
class Health:
    """The result of a health check of the service.

    Attributes
    ----------
    problems : dict of str
        The last trouble of each part that has one; empty if all is well.
    counters : dict of int
        Counted since the database was made: "refused" decisions, rejections, backward steps of the clock.
    alerts : tuple of str
        What the monitors reported last.
    """

    problems: dict[str, str]
    counters: dict[str, int]
    alerts: tuple[str, ...]


class BusyError(TimeoutError):
    """All threads are at other calls: this one was not begun."""


class Workers:
    """At most `size` threads for functions that may hang. Unlike an executor's, they let the program end."""

    def __init__(self, size: int) -> None:
        self.size, self._jobs = size, SimpleQueue()
        self._free, self._lock = threading.Semaphore(size), threading.Lock()
        self._threads, self._taken, self._given_up = 0, 0, set()

    def call(self, function: Callable[[], T], deadline: float) -> T:
        """Return the result of a function, or raise TimeoutError after `deadline` seconds.

        It is BusyError if no thread comes free, at once if nobody waits any more for what they are at.
        """
        end = time.monotonic() + deadline
        hung = len(self._given_up) >= self.size
        if not self._free.acquire(timeout=0 if hung else deadline):
            raise BusyError(f"{self.size} calls before this one have not returned")
        answer: Future[T] = Future()
        with self._lock:
            self._taken += 1
            if self._taken > self._threads:
                self._threads += 1
                threading.Thread(target=self._work, daemon=True).start()
        self._jobs.put((function, answer))
        try:
            return answer.result(max(0, end - time.monotonic()))
        except BaseException as error:
            with self._lock:
                if late := not answer.done():
                    self._given_up.add(answer)
            if late and isinstance(error, TimeoutError):
                raise TimeoutError(f"no answer within {deadline:g} s") from None
            raise

    def close(self) -> None:
        """Let the threads that do not hang end."""
        while self._threads:
            self._threads -= 1
            self._jobs.put(None)

    def _work(self) -> None:
        while job := self._jobs.get():
            self._do(*job)
            del job  # an idle thread keeps nothing alive
            self._free.release()

    def _do(self, function: Callable[[], T], answer: Future[T]) -> None:
        try:
            tell = partial(answer.set_result, function())
        except BaseException as error:  # for the caller, if there still is one
            tell = partial(answer.set_exception, error)
        with self._lock:
            self._taken -= 1
            self._given_up.discard(answer)
            tell()


class Breaker:
    """Counts a model's failures in a row; from `patience` of them on, the model rests until a check passes.

    Checks are `pause` seconds apart, whether the model serves or rests. A model that rested then has one
    try.
    """

    def __init__(self, patience: int, pause: float) -> None:
        self.patience, self.pause = patience, pause
        self.failures, self.reason = 0, ""
        self._checked: float | None = None

    @property
    def open(self) -> bool:
        """Whether the model is paused."""
        return self.failures >= self.patience

    def check_is_due(self, now: float) -> bool:
        """Whether it is time for a health check."""
        # If the clock went backwards, do not wait until it has caught up.
        return self._checked is None or not 0 <= now - self._checked < self.pause

    def checked(self, reason: str, now: float) -> None:
        """Record a health check: passed unless a reason is given."""
        self.failures = (
            self.patience if reason else min(self.failures, self.patience - 1)
        )
        self.reason, self._checked = reason, now

    def tried(self, reason: str, now: float) -> None:
        """Record an attempt to serve: a success unless a reason is given."""
        self.failures = self.failures + 1 if reason else 0
        self.reason = reason
        if self.failures == self.patience:  # it rests from now on
            self._checked = now


def fallback_probabilities(store: Store) -> NDArray[np.float64]:
    """Return a policy (K,) that needs no model: mostly the products with the best recent click rate."""
    visits, rewards = store.arm_totals(FALLBACK_REWARDS)
    return with_floor(greedy(rewards / np.maximum(visits, 1)), FALLBACK_FLOOR)
