"""A million products: how fast two stages decide, what the index misses, what a shortlist costs.

    python -m benchmarks.retrieval [--json FILE]

Everything runs on one thread. Probes are tuned on one set of queries and judged on another.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import faiss
import numpy as np
from numpy.typing import NDArray

from benchmarks.contest import seconds
from zoolib import Estimate, RidgePosterior, mean_interval
from zoolib._threads import one_thread
from zoolib.retrieval import Choice, ProductIndex, two_stage

D, SHORTLIST, ALPHA, NOISE = 32, 500, 1.0, 0.5
SEEDS, TUNING_SEED = range(20), 100
PROBES = (16, 32, 64, 96, 128, 192, 256, 320, 384, 448, 512)


def catalogue(n: int, kind: str, seed: int) -> NDArray[np.float64]:
    """Embeddings (n, 32) of mean square 1: clusters of unequal size, or one isotropic Gaussian cloud."""
    rng = np.random.default_rng([seed, 1])
    if kind == "gaussian":
        return rng.normal(size=(n, D)) / np.sqrt(D)
    n_clusters = int(np.sqrt(n))
    centres = rng.normal(size=(n_clusters, D))
    share = rng.dirichlet(np.full(n_clusters, 0.5))
    scatter = 0.5 * rng.normal(size=(n, D))
    embeddings = centres[rng.choice(n_clusters, size=n, p=share)] + scatter
    return embeddings / np.sqrt(1.25 * D)


@dataclass
class Shop:
    """Visitors in a row, and the linear truth: a reward has mean (u ∘ e) @ theta and noise of deviation .5.

    The last `n_new` products are a new line: less of everything known, one feature nobody else has.
    """

    n_products: int
    seed: int
    n_steps: int
    kind: str = "clusters"
    n_new: int = 0

    def __post_init__(self) -> None:
        rng = np.random.default_rng([self.seed, 2])
        self.embeddings = catalogue(self.n_products, self.kind, self.seed)
        self.theta = rng.normal(size=D) / np.sqrt(D)
        self.visitors = rng.normal(size=(self.n_steps, D))
        self.noise = NOISE * rng.normal(size=self.n_steps)
        if self.n_new:
            self.embeddings[:, -1] = 0
            self.embeddings[-self.n_new :] *= 0.5
            self.embeddings[-self.n_new :, -1] = 1
            self.visitors[:, -1] = self.theta[-1] = 1
        self.table = self.embeddings.astype(np.float32)

    def best(self) -> NDArray[np.float64]:
        """Mean reward of the best product for each visitor, shape (n_steps,)."""
        index = ProductIndex(self.table)
        _, scores = index.search(self.visitors * self.theta, 1)
        return scores[:, 0].astype(float)


def full_choice(
    table: NDArray[np.float32], posterior: RidgePosterior, u: NDArray
) -> int:
    """Choose by the upper confidence bound over all products."""
    spread = (u[:, None] * posterior.A_inv * u).astype(np.float32)
    scores = np.vecdot(table @ spread, table)
    np.sqrt(scores, out=scores)
    scores *= np.float32(ALPHA)
    scores += table @ (u * posterior.mean).astype(np.float32)
    return int(scores.argmax())


def decision(
    index: ProductIndex, posterior: RidgePosterior, u: NDArray, n: int = SHORTLIST
) -> Choice:
    return two_stage(index, posterior, u, ALPHA, n)


def played(
    shop: Shop, index: ProductIndex, policy: str, n_candidates: int
) -> Iterator[tuple[RidgePosterior, int]]:
    """Serve the shop's visitors; after each, yield the posterior and the product shown."""
    posterior = RidgePosterior(D)
    rng = np.random.default_rng([shop.seed, 3])
    for u, noise in zip(shop.visitors, shop.noise, strict=True):
        if policy == "all products":
            product = full_choice(shop.table, posterior, u)
        elif policy == "half at random":
            half = n_candidates // 2
            ids = two_stage(index, posterior, u, ALPHA, half).candidates
            ids = np.concatenate((ids, rng.choice(len(index), half, replace=False)))
            prediction, width = posterior.predict_rows(u * index.embeddings(ids))
            product = int(ids[(prediction + ALPHA * width).argmax()])
        else:
            weights = [posterior.mean]
            if policy == "half by a sample":
                weights.append(posterior.sample(rng.normal(size=D), scale=ALPHA))
            choice = two_stage(
                index, posterior, u, ALPHA, n_candidates, np.array(weights)
            )
            product = choice.product
        x = u * shop.embeddings[product]
        posterior.update(x, x @ shop.theta + noise)
        yield posterior, product


POLICIES = ("all products", "by mean", "half by a sample", "half at random")


def contained(
    n_products: int, seed: int, kind: str = "clusters", n_visitors: int = 20
) -> dict[int, float]:
    """Share of visitors whose full choice is among the 500 best predicted, after 50 and 1,000 updates."""
    shop = Shop(n_products, seed, 1000, kind)
    index = ProductIndex(shop.table, "ivf8", n_threads=1)
    guests = np.random.default_rng([seed, 4]).normal(size=(n_visitors, D))
    shares = {}
    for step, (posterior, _) in enumerate(played(shop, index, "by mean", SHORTLIST), 1):
        if step in (50, 1000):
            inside = 0
            for u in guests:
                prediction = shop.table @ (u * posterior.mean).astype(np.float32)
                product = full_choice(shop.table, posterior, u)
                inside += (prediction > prediction[product]).sum() < SHORTLIST
            shares[step] = inside / n_visitors
    return shares


def share_of_best(shop: Shop, policy: str, n_candidates: int) -> float:
    """Mean reward of what a policy shows, as a share of the best there is."""
    index = ProductIndex(shop.table, n_threads=1)
    shown = [product for _, product in played(shop, index, policy, n_candidates)]
    rows = shop.visitors * shop.embeddings[shown]
    return float((rows @ shop.theta).sum() / shop.best().sum())


def timed(
    index: ProductIndex, posterior: RidgePosterior, u: NDArray
) -> tuple[float, float]:
    """Seconds of a decision: by the clock, and those that this thread computed, free of other programs."""
    busy = time.thread_time()
    return seconds(lambda: decision(index, posterior, u)), time.thread_time() - busy


def tuned_probes(index: ProductIndex, queries: NDArray, n: int, least: float) -> int:
    """Return the fewest of `PROBES` that reach a recall."""
    for index.n_probe in PROBES:
        if index.recall(queries, n).mean() >= least:
            break
    return index.n_probe


def million(
    kind: str = "clusters",
    index_kind: str = "ivf8",
    n_products: int = 1_000_000,
    n_decisions: int = 500,
    least: float = 0.93,
) -> dict[str, float]:
    """Build an index on one thread, tune its probes, and time whole decisions for fresh visitors.

    Returns
    -------
    dict
        ``build_seconds``; ``p50`` and ``p99`` of a decision by the clock in milliseconds, and of the
        time that it computed, ``busy_p50`` and ``busy_p99``; mean ``recall`` of the 500; ``probes`` of
        ``cells``; ``megabytes`` of the index and its embeddings; ``exact_ratio``, how much longer a
        decision takes with exact search; ``seconds`` that all of it took.
    """
    start = time.perf_counter()
    with one_thread():
        shop = Shop(n_products, 0, 200, kind)
        posterior = RidgePosterior(D)
        luck = np.random.default_rng([0, 5])
        for u, noise in zip(shop.visitors, shop.noise, strict=True):
            x = u * shop.embeddings[luck.integers(n_products)]
            posterior.update(x, x @ shop.theta + noise)
        built = time.perf_counter()
        index = ProductIndex(shop.table, index_kind, n_threads=1)
        build_seconds = time.perf_counter() - built
        exact = ProductIndex(shop.table, n_threads=1)
        rng = np.random.default_rng([TUNING_SEED, 6])
        tuning = rng.normal(size=(50, D)) * posterior.mean
        probes = tuned_probes(index, tuning, SHORTLIST, least)
        guests = np.random.default_rng([0, 6]).normal(size=(n_decisions, D))
        for u in guests[:20]:
            decision(index, posterior, u)
        times, busy = np.array([timed(index, posterior, u) for u in guests]).T
        _, slow = np.array([timed(exact, posterior, u) for u in guests[:50]]).T
        recall = index.recall(guests[:200] * posterior.mean, SHORTLIST).mean()
    stored = faiss.serialize_index(index._index).nbytes + index._embeddings.nbytes
    return {
        "build_seconds": build_seconds,
        "p50": 1e3 * float(np.median(times)),
        "p99": 1e3 * float(np.quantile(times, 0.99)),
        "busy_p50": 1e3 * float(np.median(busy)),
        "busy_p99": 1e3 * float(np.quantile(busy, 0.99)),
        "recall": float(recall),
        "probes": probes,
        "cells": index.n_cells,
        "megabytes": stored / 1e6,
        "exact_ratio": float(np.median(slow) / np.median(busy)),
        "seconds": time.perf_counter() - start,
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write the figures to this file")
    arguments = parser.parse_args()
    figures = {"machine": platform.machine()}
    for kind in ("clusters", "gaussian"):
        for index_kind in ("ivf", "ivf8"):
            row = figures[f"{kind}, {index_kind}"] = million(kind, index_kind)
            print(
                f"1,000,000 products, {kind}, {index_kind}: built in {row['build_seconds']:.1f} s, "
                f"{row['megabytes']:.0f} MB; {row['probes']} of {row['cells']} cells, "
                f"recall@500 {row['recall']:.3f}; a decision takes {row['p50']:.2f} ms, "
                f"p99 {row['p99']:.2f} ms (computing {row['busy_p50']:.2f} and {row['busy_p99']:.2f}), "
                f"with exact search {row['exact_ratio']:.1f} times as long; "
                f"{row['seconds']:.0f} s in all",
                flush=True,
            )
    with one_thread():
        figures |= contained_everywhere() | costs()
    if arguments.json:
        arguments.json.write_text(json.dumps(figures, indent=1))


def contained_everywhere() -> dict[str, list[float]]:
    """How often the full choice is in the shortlist, 20 worlds a size."""
    figures = {}
    sizes = (100_000, "clusters"), (100_000, "gaussian"), (1_000_000, "clusters")
    for n_products, kind in sizes:
        worlds = [contained(n_products, seed, kind) for seed in SEEDS]
        for step in worlds[0]:
            name = f"{kind}, {n_products:,} products, after {step:,} updates"
            shares = [world[step] for world in worlds]
            figures[f"contained: {name}"] = shares
            print(f"full choice in the shortlist, {name}: {_shown(shares)}", flush=True)
    return figures


def costs() -> dict[str, list[float]]:
    """Compare what policies earn over 1,000 steps among 20,000 products, without a new line and with one."""
    figures = {}
    for n_new in (0, 200):
        line = f"a new line of {n_new}" if n_new else "no new line"
        for policy in POLICIES:
            shops = (Shop(20_000, seed, 1000, n_new=n_new) for seed in SEEDS)
            shares = [share_of_best(shop, policy, 200) for shop in shops]
            figures[f"share of best: {line}, {policy}"] = shares
            print(
                f"share of the best reward, {line}, {policy}: {_shown(shares)}",
                flush=True,
            )
    return figures


def _shown(shares: list[float]) -> str:
    estimate: Estimate = mean_interval(shares)
    return f"{100 * estimate.mean:.1f} % [{100 * estimate.low:.1f}, {100 * estimate.high:.1f}]"


if __name__ == "__main__":
    main()
