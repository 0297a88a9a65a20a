"""What all benchmarks share: seconds of a task, and how often one task fits into another."""

from __future__ import annotations

import statistics
import time
from collections.abc import Callable


def seconds(task: Callable[[], object]) -> float:
    start = time.perf_counter()
    task()
    return time.perf_counter() - start


def median_ratio(
    long: Callable[[], object], short: Callable[[], object], repeats: int
) -> float:
    """Seconds of `long` over seconds of `short`: the median of pairs run in turn, after one for warmth."""
    pairs = [seconds(long) / seconds(short) for _ in range(1 + repeats)]
    return statistics.median(pairs[1:])
