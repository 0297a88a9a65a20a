"""How long the production loop takes: a choice, its parts, an update of the agent, and the way to the disk.

The database lies on the disk of the temporary folder, and "durable" is what this disk calls so.
"""

from __future__ import annotations

import tempfile
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path
from unittest import mock

import numpy as np

from benchmarks.contest import Contestant, Promise, Row, for_a_while
from zoolib import FeatureEngineer, ZooplusSimulator
from zoolib._support.threads import one_thread
from zoolib.service import BanditService, Settings
from zoolib.service.model import Model
from zoolib.service.store import Store

# What a call may take, in milliseconds, at the 99th percentile; the disk has no limit of ours.
LIMITS = {"selection": 10.0, "network": 5.0, "update": 1.0}
RUNS = 3


def timed(function: Callable, seconds: list[float]) -> Callable:
    """Return the function, which notes the seconds of each call."""

    def call(*args: object, **options: object) -> object:
        start = time.perf_counter()
        try:
            return function(*args, **options)
        finally:
            seconds.append(time.perf_counter() - start)

    return call


def serve(n_visits: int, n_warm: int = 50) -> dict[str, list[float]]:
    """Open the book's shop, serve visits after some for warmth, and return the seconds of each part."""
    world = ZooplusSimulator(seed=42)
    features = FeatureEngineer(world, interactions=True)
    with tempfile.TemporaryDirectory() as place:
        service = BanditService(
            Path(place) / "shop.db",
            features.transform,
            world.n_products,
            features.n_features,
            key=b"sixteen secret b",
            settings=Settings(deadline=60.0, n_draws=100),
        )
        took = {"decision": [], "acknowledgement": [], "update": [], "disk": []}
        select = timed(service.select, took["decision"])
        reward = timed(service.reward, took["acknowledgement"])
        learn = timed(Model.learn, took["update"])
        write = timed(Store.log_event, took["disk"])
        with (
            service,
            mock.patch.object(Model, "learn", learn),
            mock.patch.object(Store, "log_event", write),
        ):
            for _ in range(n_warm + n_visits):
                user = world.random_user()
                decision = select(user)
                reward(decision.event_id, world.reward(user, decision.arm))
            parts = {name: seconds[n_warm:] for name, seconds in took.items()}
            whole, disk = np.array(parts["decision"]), np.array(parts.pop("disk"))
            parts["selection"] = list(whole - disk)
            return parts | {"network": embeddings(service, features, n_visits)}


def embeddings(service: BanditService, features: FeatureEngineer, n: int) -> list:
    """Return the seconds that the network of version v1 takes for each of n users."""
    agent, seconds = service.agent("v1"), []
    for user in range(n):
        x = features.transform(user % 1000).astype(np.float32)
        start = time.perf_counter()
        agent.embed(x)
        seconds.append(time.perf_counter() - start)
    return seconds


def latencies(n_visits: int) -> dict[str, float]:
    """Return p50 and p99 of each part in milliseconds, of the quietest of a few runs.

    What else the machine does can only make a call look slower.
    """
    runs = [serve(n_visits) for _ in range(RUNS)]
    return {
        f"{name}_p{percent}_ms": min(
            1e3 * float(np.percentile(run[name], percent)) for run in runs
        )
        for name in runs[0]
        for percent in (50, 99)
    }


@one_thread()
def rows(n_visits: int = 1_000) -> Iterator[Row]:
    """Yield the row of this benchmark."""
    yield Row(
        "a visit to the service",
        "a visit: selection and reward, both durable",
        {
            "zoolib": Contestant(
                for_a_while(partial(serve, 100, n_warm=0), 100),
                "zoolib",
                note="with the opening of its database",
            )
        },
        {"K": 50, "d": 29, "draws": 100},
        42,
        promises=tuple(
            Promise(f"{name}_p99_ms", below=limit) for name, limit in LIMITS.items()
        ),
        figures=latencies(n_visits),
    )
