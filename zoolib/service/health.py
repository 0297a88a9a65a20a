"""Handling of failing models: deadlines, a breaker that pauses a model, and a fallback."""

from __future__ import annotations

import threading
from collections.abc import Callable
from dataclasses import dataclass, field
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoolib.agents.policies import greedy
from zoolib.service.model import with_floor_on_offer
from zoolib.service.store import Store

FALLBACK = "fallback: epsilon-greedy"
FALLBACK_FLOOR = 0.1  # share of its choices that are uniform
FALLBACK_REWARDS = 10_000  # the newest rewards, from which it takes click rates


@dataclass(frozen=True)
class Health:
    """The result of a health check of the service.

    Attributes
    ----------
    problems : dict of str
        The last trouble of each part that has one; empty if all is well. Parts are the versions that serve,
        "snapshot", "store", "file", "clock", "open decisions", "hung calls", "set aside", and each monitor.
    counters : dict of int
        Counted since the database was made: "refused" decisions, rejections, steps of the clock, and
        visits "set aside" that a version could not learn.
    alerts : tuple of str
        What the monitors reported last.
    oldest_open : float
        Seconds since the oldest decision that waits for its reward; 0 without one.
    notes : tuple of str
        What is no trouble yet: a version of SQLite with known faults.
    """

    problems: dict[str, str]
    counters: dict[str, int]
    alerts: tuple[str, ...]
    oldest_open: float = 0.0
    notes: tuple[str, ...] = ()


class BusyError(TimeoutError):
    """All threads are at other calls: this one was not begun."""


@dataclass(eq=False)
class Answer:
    """What a call in another thread came to: a value, or the error that was raised there.

    It is a TimeoutError if the call did not return in time, a BusyError if it was not begun either.
    """

    function: Callable[[], Any]
    value: Any = None
    error: BaseException | None = None
    begun: bool = False
    given_up: bool = False
    done: threading.Lock = field(default_factory=threading.Lock)

    def find(self) -> None:
        """Call the function, and let the one who waits go on."""
        self.begun = True
        try:
            self.value = self.function()
        except BaseException as error:  # for whoever asked, if there still is one
            self.error = error
        self.done.release()


class Workers:
    """A few threads for functions that may hang; they let the program end.

    An exception at whoever waits costs nothing: threads are handed their calls by a queue that no
    interrupt can leave half changed, and nobody but they themselves writes down what they are at.
    """

    def __init__(self, size: int) -> None:
        self.size, self._jobs, self._at = size, SimpleQueue(), set()
        for _ in range(size):
            args = (
                self._jobs,
                self._at,
            )  # not self: a service that nobody closed can end
            threading.Thread(target=_work, args=args, daemon=True).start()

    @property
    def hung(self) -> int:
        """Number of threads at calls that nobody waits for any more."""
        return sum(answer.given_up for answer in self._at.copy())

    def call(self, function: Callable[[], Any], deadline: float) -> Answer:
        """Have a function called; nobody is waited for if all threads hang."""
        answer = Answer(function)
        answer.done.acquire()
        self._jobs.put(answer)
        try:
            patience = 0 if self.hung >= self.size else deadline
            if answer.done.acquire(timeout=patience):
                return answer
        except BaseException:
            answer.given_up = True
            raise
        answer.given_up = True
        if answer.begun:
            error = TimeoutError(f"no answer within {deadline:g} s")
        else:
            error = BusyError(f"{self.size} calls before this one have not returned")
        return Answer(function, error=error)

    def close(self) -> None:
        """Let the threads that do not hang end."""
        for _ in range(self.size):
            self._jobs.put(None)


def _work(jobs: SimpleQueue[Answer | None], at: set[Answer]) -> None:
    """Be one of the threads."""
    while job := jobs.get():
        if not job.given_up:
            at.add(job)
            job.find()
            at.discard(job)
        del job  # an idle thread keeps nothing alive


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


def fallback_probabilities(
    store: Store, offered: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return a policy (K,) that needs no model: mostly the product on offer with the best recent click rate."""
    visits, rewards = store.arm_totals(FALLBACK_REWARDS)
    rates = rewards / np.maximum(visits, 1)
    if offered is not None:
        rates[~offered] = -np.inf
    return with_floor_on_offer(greedy(rates), FALLBACK_FLOOR, offered)
