"""A service that is killed again and again, and a client that keeps its own list of what was acknowledged.

The service lives in a child of multiprocessing's fork server, which has imported everything beforehand
and computed nothing, so that a new life takes milliseconds. Parent and child speak through a pipe; what
was written to it outlives the writer, so the parent's list is durable in the sense that counts here.
"""

from __future__ import annotations

import contextlib
import multiprocessing
import os
import shutil
import signal
import tempfile
import threading
import time
from collections.abc import Iterator
from multiprocessing import forkserver
from pathlib import Path
from unittest import mock

import numpy as np

import zoolib.agents.neural_linear  # noqa: F401  PyTorch, loaded once for all children
from zoolib import FeatureEngineer, LinTSAgent, ZooplusSimulator
from zoolib._support.threads import one_thread
from zoolib.service import (
    BanditService,
    DuplicateRewardError,
    LateRewardError,
    Settings,
)

ROOT = Path(__file__).resolve().parent.parent
WORLD = ZooplusSimulator(seed=42)
FEATURES = FeatureEngineer(WORLD)
TRUTH = WORLD.true_ctr(np.arange(1000)[:, None], np.arange(50))
SETTINGS = Settings(snapshot_every=250, deadline=60.0, n_draws=20)
CONTEXT = multiprocessing.get_context("forkserver")
WINDOW = 30  # decisions within which a reward counts, where the clock counts decisions


@contextlib.contextmanager
def quick_folder() -> Iterator[Path]:
    """Make a folder in memory where there is such a thing, for tests of thousands of transactions.

    What a killed process has written is in the kernel's hands: where the file lies is all the same for
    it. (A power cut is another matter, which no test of this kind can show.)
    """
    memory = Path("/dev/shm")
    usable = os.access(memory, os.W_OK) and shutil.disk_usage(memory).free > 2**28
    with tempfile.TemporaryDirectory(dir=memory if usable else None) as folder:
        yield Path(folder)


def opened(path: Path, **options) -> BanditService:
    """Open a service on the book's world."""
    return BanditService(
        path,
        options.pop("features", FEATURES.transform),
        WORLD.n_products,
        options.pop("n_features", FEATURES.n_features),
        key=b"sixteen secret b",
        **{"settings": SETTINGS} | options,
    )


@contextlib.contextmanager
def commits(service, before=None, after=None) -> Iterator[None]:
    """Call functions before each transaction is on the disk, and after it."""
    commit, nothing = service.store.commit, lambda: None

    def told() -> None:
        (before or nothing)()
        commit()
        (after or nothing)()

    with mock.patch.object(service.store, "commit", told):
        yield


def start(target, *arguments):
    """Start a child; return it and the end of the pipe that it writes to."""
    before = os.environ.get("PYTHONPATH")
    os.environ["PYTHONPATH"] = str(ROOT)  # where the fork server finds this module
    CONTEXT.set_forkserver_preload(["tests.service_crash"])
    forkserver.ensure_running()
    if before is None:
        del os.environ["PYTHONPATH"]
    else:
        os.environ["PYTHONPATH"] = before
    ours, theirs = CONTEXT.Pipe(duplex=False)
    child = CONTEXT.Process(target=target, args=(*arguments, theirs), daemon=True)
    child.start()
    theirs.close()
    return child, ours


def heard(pipe) -> Iterator[tuple]:
    """Yield what a child says until it is dead."""
    with contextlib.suppress(EOFError):
        while True:
            yield pipe.recv()


def listen(child, pipe, hear, count, end=None) -> None:
    """Hear a child until it ends; with (n, seconds) it is killed so long after the count has reached n."""
    for words in heard(pipe):
        hear(*words)
        if end and count() >= end[0]:
            time.sleep(end[1])
            os.kill(child.pid, signal.SIGKILL)
            break
    for words in heard(pipe):
        hear(*words)
    child.join()
    pipe.close()
    assert child.exitcode == (-signal.SIGKILL if end else 0)


@one_thread()
def serve(path, pending, life, n_left, say) -> None:
    """Serve visits; say what is decided before its reward is sent, and what is acknowledged."""
    rng = np.random.default_rng([7, life])
    with opened(path) as service:
        if pending is not None:  # sent, but the answer never came: send it again
            event, reward = pending
            with contextlib.suppress(DuplicateRewardError):
                service.reward(event, reward)
            say.send(("acknowledged", event))
            n_left -= 1
        for _ in range(n_left):
            user = int(rng.integers(WORLD.n_users))
            decision = service.select(user)
            reward = int(rng.random() < TRUTH[user, decision.arm])
            say.send(("decided", decision.event_id, reward))
            service.reward(decision.event_id, reward)
            say.send(("acknowledged", decision.event_id))


def run(path: Path, n_events: int, n_kills: int, seed: int) -> dict[int, int]:
    """Have n rewards acknowledged, with so many kills on the way; return the client's list of them.

    Returns
    -------
    dict
        Event id to reward.
    """
    rng = np.random.default_rng(seed)
    # Where the kills fall: after so many acknowledgements in all, and some fraction of a visit later.
    after = np.sort(rng.choice(np.arange(1, n_events), size=n_kills, replace=False))
    later = rng.uniform(0, 0.002, size=n_kills)
    acknowledged: dict[int, int] = {}
    decided: dict[int, int] = {}

    def hear(word, event, *reward) -> None:
        if word == "decided":
            assert event not in decided
            decided[event] = reward[0]
        else:
            assert event not in acknowledged
            acknowledged[event] = decided[event]

    for life in range(n_kills + 1):
        unanswered = [event for event in decided if event not in acknowledged]
        assert len(unanswered) <= 1
        pending = (unanswered[0], decided[unanswered[0]]) if unanswered else None
        child, pipe = start(serve, path, pending, life, n_events - len(acknowledged))
        end = (after[life], later[life]) if life < n_kills else None
        listen(child, pipe, hear, lambda: len(acknowledged), end)
    return acknowledged


# ---- Two threads, rewards that do not come, come late, or twice


def small(path: Path, clock) -> BanditService:
    """Open a service of five arms and a linear agent."""
    features = np.random.default_rng(0).normal(size=(100, 5, 3))
    return BanditService(
        path,
        features.__getitem__,
        5,
        3,
        key=b"sixteen secret b",
        make_agent=lambda k, d, seed: LinTSAgent(k, d, alpha=0.3, shared=True),
        settings=Settings(attribution=WINDOW, deadline=60.0, snapshot_every=200),
        clock=clock,
    )


@one_thread()
def serve_from_two(path, life, n_left, say) -> None:
    """Serve visits from two threads; say what is answered, and what is about to be sent."""
    talking = threading.Lock()

    def tell(*words) -> None:
        with talking:
            say.send(words)

    def send(service, event, reward) -> None:
        tell("sent", event, reward)
        try:
            service.reward(event, reward)
            tell("rewarded", event)
        except LateRewardError:
            tell("late", event)

    def visits(service, thread) -> None:
        rng, held = np.random.default_rng([life, thread]), []
        for number in range(n_left // 2 + 1):
            user, kind = (
                int(rng.integers(100)),
                rng.choice(
                    ["never", "once", "twice", "held"], p=[1 / 3, 0.4, 0.1, 1 / 6]
                ),
            )
            request = f"{life}, {thread}, {number}"
            decision = service.select(user, request_id=request)
            tell("decided", decision.event_id, request, user)
            if number % 10 == 0 and service.select(user, None, request) != decision:
                tell("failed", "another answer")
            if kind == "held":
                held.append(decision.event_id)
            elif kind != "never":
                send(service, decision.event_id, float(rng.random() < 0.3))
            if kind == "twice":
                try:
                    service.reward(decision.event_id, 1)
                    tell("failed", "counted twice")
                except (DuplicateRewardError, LateRewardError):
                    pass
            if held and held[0] < decision.event_id - WINDOW - 5:
                send(service, held.pop(0), 1.0)

    def guarded(*arguments) -> None:
        try:
            visits(*arguments)
        except BaseException as error:
            tell("failed", repr(error))

    def clock() -> float:
        return float(shops[0].store.last_event()) if shops else 0.0

    shops = []
    with small(path, clock) as service:
        shops.append(service)
        threads = [
            threading.Thread(target=guarded, args=(service, number))
            for number in range(2)
        ]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()


def run_two(path: Path, n_requests: int, n_kills: int, seed: int) -> dict[str, dict]:
    """Have n requests answered, with so many kills on the way; return what the client has heard.

    Returns
    -------
    dict of dict
        For each word of the service, its events and what it said of them.
    """
    rng = np.random.default_rng(seed)
    after = np.sort(rng.choice(np.arange(1, n_requests), size=n_kills, replace=False))
    later = rng.uniform(0, 0.002, size=n_kills)
    heard_of = {word: {} for word in ("decided", "sent", "rewarded", "late", "failed")}

    def hear(word, about, *more) -> None:
        assert about not in heard_of[word]
        heard_of[word][about] = more

    for life in range(n_kills + 1):
        n_left = n_requests - len(heard_of["decided"])
        child, pipe = start(serve_from_two, path, life, n_left)
        end = (after[life], later[life]) if life < n_kills else None
        listen(child, pipe, hear, lambda: len(heard_of["decided"]), end)
    return heard_of
