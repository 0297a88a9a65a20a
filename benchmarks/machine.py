"""The machine under the benchmarks: what it is, what runs on it, and how fast it can read and multiply."""

from __future__ import annotations

import datetime
import importlib.metadata
import os
import platform
import statistics
import time
from collections.abc import Iterable
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import DTypeLike

from benchmarks.contest import Contestant, for_a_while
from zoolib import current_commit
from zoolib._support.threads import one_thread

# What zoolib itself stands on; the peers' distributions come from their registry.
PACKAGES = ("zoolib", "numpy", "scipy", "torch", "faiss-cpu", "joblib", "pandas")
MEMORY = 256_000_000  # bytes: more than a cache holds


def description(distributions: Iterable[str] = ()) -> dict[str, Any]:
    """Describe the machine and the versions of what runs, with its measured limits.

    Parameters
    ----------
    distributions : iterable of str
        Further packages whose versions are wanted, where they are installed.
    """
    return {
        "date": datetime.datetime.now(datetime.UTC).date().isoformat(),
        "processor": processor(),
        "cores": os.cpu_count(),
        "python": platform.python_version(),
        "versions": versions([*PACKAGES, *distributions]),
        "commit": current_commit(),
        "limits": limits(),
    }


def reads(n_bytes: int, note: str) -> Contestant:
    """Read so many bytes from memory, as fast as a dot product of two halves of an array does."""
    units = max(1, MEMORY // n_bytes)  # together more than a cache holds
    halves = np.ones((2, units * n_bytes // 16))
    return Contestant(for_a_while(lambda: np.dot(*halves), units), "limit", note=note)


def multiplies(n: float, dtype: DTypeLike, note: str) -> Contestant:
    """Multiply and add so many numbers, in products of large square matrices."""
    square = np.ones((1000, 1000), dtype)
    return Contestant(
        for_a_while(lambda: square @ square, len(square) ** 3 / n), "limit", note=note
    )


def processor() -> str:
    """Return the processor's name as the system gives it."""
    try:
        lines = Path("/proc/cpuinfo").read_text().splitlines()
        return next(
            line.split(":")[1].strip()
            for line in lines
            if line.startswith("model name")
        )
    except (OSError, StopIteration):
        return platform.processor() or "unknown"


def versions(distributions: Iterable[str]) -> dict[str, str]:
    """Return the versions of those distributions that are installed."""
    found = {}
    for name in distributions:
        try:
            found[name] = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            continue
    return found


@one_thread()
def limits() -> dict[str, float]:
    """Measure on one core: gigabytes read from memory a second, thousand million multiply-adds a second."""
    return {"read_gigabytes": MEMORY / 1e9 * _typical_rate(reads(MEMORY, ""))} | {
        f"{dtype}_multiply_adds": _typical_rate(multiplies(1e9, dtype, ""))
        for dtype in ("float64", "float32")
    }


def _typical_rate(contestant: Contestant) -> float:
    """Return the median number of units in a second, after one run for warmth."""
    rates = []
    for _ in range(8):
        start = time.perf_counter()
        done = contestant.run()
        rates.append(done / (time.perf_counter() - start))
    return statistics.median(rates[1:])
