"""Handling of failing models: deadlines, a breaker that pauses a model, and a fallback."""

from __future__ import annotations

from _thread import LockType, allocate_lock, start_new_thread
from collections.abc import Callable
from dataclasses import dataclass
from queue import SimpleQueue
from typing import Any

import numpy as np
from numpy.typing import NDArray

from zoolib.agents.policies import greedy, with_floor
from zoolib.service.store import Store

FALLBACK = "fallback: epsilon-greedy"
FALLBACK_FLOOR = 0.1  # share of its choices that are uniform
FALLBACK_REWARDS = 10_000  # the newest rewards, from which it takes click rates
PATIENCE = 3  # failures in a row after which a model rests
PAUSE = 30.0  # seconds between two health checks


@dataclass(frozen=True)
class Health:
    """The result of a health check of the service.

    Attributes
    ----------
    problems : dict of str
        The last trouble of each part that has one; empty if all is well. Parts are the versions that serve,
        "store", "file", "clock", "open decisions", "hung calls", "set aside", and each monitor.
    counters : dict of int
        Counted since the service was opened: "refused" decisions, "refused snapshots", rejections, steps of the
        clock, and visits "set aside" that a version could not learn.
    oldest_open : float
        Seconds since the oldest decision that waits for its reward; 0 without one.
    notes : tuple of str
        What is no trouble yet: a version of SQLite with known faults.
    """

    problems: dict[str, str]
    counters: dict[str, int]
    oldest_open: float = 0.0
    notes: tuple[str, ...] = ()


class BusyError(TimeoutError):
    """Too many calls hang: this one was not begun."""


@dataclass(eq=False)
class Answer:
    """What a call in another thread came to: a value, or the error that was raised there.

    It is a TimeoutError if the call did not return in time, a BusyError if it was not begun.
    """

    value: Any = None
    error: BaseException | None = None
    given_up: bool = False  # by whoever waited for it


class Workers:
    """Threads for functions that may hang, one for each call at a time; they let the program end.

    A thread whose call has returned waits for the next one: on a busy computer a new thread would wait for its
    turn. An exception at whoever waits costs nothing: each thread alone writes down what it is at.
    """

    def __init__(self, most: int) -> None:
        self.most = most
        self._at = set[Answer]()
        self._closed = False
        self._idle: list[SimpleQueue] = []  # through which idle threads are called

    def close(self) -> None:
        """Let the threads end, each when its call has returned."""
        self._closed = True
        while self._idle:
            self._idle.pop().put(None)

    @property
    def hung(self) -> int:
        """Number of threads at calls that nobody waits for any more."""
        return sum(answer.given_up for answer in self._at.copy())

    def call(self, function: Callable[[], Any], deadline: float | None) -> Answer:
        """Have a function called; without a deadline always, else unless too many threads hang."""
        if deadline is not None and self.hung >= self.most:
            reason = f"{self.most} calls before this one have not returned"
            return Answer(error=BusyError(reason))
        answer = Answer()
        done = allocate_lock()
        done.acquire()
        try:
            try:
                self._idle.pop().put((function, answer, done))
            except IndexError:
                start_new_thread(self._serve, ((function, answer, done),))
            if done.acquire(timeout=-1 if deadline is None else deadline):
                return answer
        except BaseException:
            answer.given_up = True
            raise
        answer.given_up = True
        return Answer(error=TimeoutError(f"no answer within {deadline:g} s"))

    def _serve(self, task: tuple[Callable[[], Any], Answer, LockType] | None) -> None:
        """Call one function after the other, and let those who wait go on."""
        called = SimpleQueue()
        while task is not None:
            function, answer, done = task
            self._at.add(answer)
            try:
                answer.value = function()
            except BaseException as error:  # for whoever asked, if there still is one
                answer.error = error
            self._at.discard(answer)
            self._idle.append(called)
            done.release()
            task = function = answer = None  # nothing is kept alive meanwhile
            task = None if self._closed else called.get()


class Breaker:
    """Counts a model's failures in a row; from `PATIENCE` of them on, the model rests until a check passes.

    Checks are `PAUSE` seconds apart, whether the model serves or rests. A model that rested then has one
    try.
    """

    def __init__(self) -> None:
        self.failures = 0
        self.reason = ""
        self._checked: float | None = None

    @property
    def open(self) -> bool:
        """Whether the model is paused."""
        return self.failures >= PATIENCE

    def check_is_due(self, now: float) -> bool:
        """Whether it is time for a health check."""
        return self._checked is None or now - self._checked >= PAUSE

    def checked(self, reason: str, now: float) -> None:
        """Record a health check: passed unless a reason is given."""
        self.failures = PATIENCE if reason else min(self.failures, PATIENCE - 1)
        self.reason = reason
        self._checked = now

    def tried(self, reason: str, now: float) -> None:
        """Record an attempt to serve: a success unless a reason is given."""
        self.failures = self.failures + 1 if reason else 0
        self.reason = reason
        if self.failures == PATIENCE:  # it rests from now on
            self._checked = now


def fallback_probabilities(
    store: Store, offered: NDArray[np.bool_] | None = None
) -> NDArray[np.float64]:
    """Return a policy (K,) that needs no model: mostly the product on offer with the best recent click rate."""
    visits, rewards = store.arm_totals(FALLBACK_REWARDS)
    rates = rewards / np.maximum(visits, 1)
    if offered is not None:
        rates[~offered] = -np.inf
    return with_floor(greedy(rates), FALLBACK_FLOOR, offered)
