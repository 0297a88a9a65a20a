"""The gauntlet: two market shocks in 40,000 steps, in many worlds, from the terminal.

python -m zoolib gauntlet --worlds 20 --first-seed 0 --steps 40000 [--agents NAME ...] [--json FILE]
"""

from __future__ import annotations

import argparse
import json
import time
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from zoolib._support.checks import as_size
from zoolib._support.files import write_whole
from zoolib.agents import (
    Agent,
    EpsilonGreedyAgent,
    LinUCBAgent,
    NeuralLinearAgent,
    NeuralUCBAgent,
    OracleAgent,
    RandomAgent,
    StaticAgent,
)
from zoolib.book.static import static_recommenders
from zoolib.experiments.arena import run_experiment
from zoolib.experiments.estimates import Estimate, mean_interval, median_interval
from zoolib.experiments.evaluation import (
    click_rate,
    phases,
    recovery_time,
    share_of_oracle,
)
from zoolib.experiments.history import History
from zoolib.world.simulator import SHOCK_1, SHOCK_2

SHOCKS = {10_000: SHOCK_1, 25_000: SHOCK_2}
K = 50
D = 9
# Chosen on seeds 100 to 143, those of neural-linear by hand; what is reported comes from others.
MAKERS: dict[str, Callable[..., Agent]] = {
    "random": partial(RandomAgent, K),
    "epsilon-greedy": partial(EpsilonGreedyAgent, K, D, epsilon=0.05),
    "linucb-0.2": partial(LinUCBAgent, K, D, alpha=0.2),
    "linucb-1.0": partial(LinUCBAgent, K, D, alpha=1.0),
    "linucb-discounted": partial(LinUCBAgent, K, D, alpha=0.35, discount=0.997),
    "neural-ucb": partial(NeuralUCBAgent, K, D, alpha=1.0, n_batches=2),
    "neural-ucb-diagonal": partial(
        NeuralUCBAgent, K, D, alpha=1.0, inverse="diagonal", n_batches=2
    ),
    "neural-replay": partial(NeuralLinearAgent, K, D, alpha=0.3),
    "neural-linear": partial(
        NeuralLinearAgent,
        K,
        D,
        alpha=0.7,
        joined=True,
        rebuild=True,
        window=3_000,
        discount=0.999,
        train_every=100,
        n_batches=8,
    ),
    "oracle": partial(OracleAgent, K),
}
AGENTS = (*MAKERS, "static-mlp")
DEFAULT = (
    "random",
    "static-mlp",
    "linucb-0.2",
    "linucb-1.0",
    "linucb-discounted",
    "neural-replay",
    "neural-linear",
)
RECOMMENDED = {"linear": "linucb-discounted", "neural": "neural-linear"}


def make_agent(name: str, seeds: Sequence[int]) -> Agent:
    """Return the agent of one name, ready for the worlds of these seeds."""
    if name == "static-mlp":
        return StaticAgent(static_recommenders(seeds).predict_all())
    return MAKERS[name](n_worlds=len(seeds))


def summarise(history: History) -> dict[str, dict]:
    """Return the figures of each agent: share of the oracle, by phase too, and times to recover.

    Shares are in per cent, click rates in clicks per visit, times in steps; a recovery that more than
    half of the worlds never saw has the median None. JSON can hold what is returned.
    """
    return {
        name: {
            "share_of_oracle": _shares(history, name, slice(None)),
            "click_rate": float(click_rate(history, name).mean()),
            "phases": [
                {
                    "first_step": phase.start,
                    "last_step": phase.stop - 1,
                    "click_rate": float(click_rate(history, name, phase).mean()),
                    "share_of_oracle": _shares(history, name, phase),
                }
                for phase in phases(history)
            ],
            "recovery": [_recovery(history, name, step) for step in history.shocks],
        }
        for name in history.agents
    }


def _shares(history: History, name: str, steps: slice) -> dict[str, object]:
    worlds = 100 * share_of_oracle(history, name, steps)
    interval = _interval(worlds, mean_interval, least=2)
    return {"mean": float(worlds.mean()), **interval, "worlds": worlds.tolist()}


def _recovery(history: History, name: str, step: int) -> dict[str, object]:
    times = recovery_time(history, name, step)
    return {
        "shock_step": step,
        "persona": history.shocks[step].persona,
        "recovered_worlds": int(np.isfinite(times).sum()),
        "median_steps": _finite(np.median(times)),
        **_interval(times, median_interval, least=6),
    }


def _interval(
    samples: NDArray, make: Callable[[NDArray], Estimate], least: int
) -> dict[str, float | None]:
    """Return the ends of an interval, None where there is none or it is infinite."""
    if len(samples) < least:
        return {"low": None, "high": None}
    estimate = make(samples)
    return {"low": _finite(estimate.low), "high": _finite(estimate.high)}


def _finite(number: float) -> float | None:
    return float(number) if np.isfinite(number) else None


def table(summary: dict[str, dict]) -> str:
    """Lay the summary out for a terminal."""
    rows = {}
    for name, figures in summary.items():
        share = figures["share_of_oracle"]
        row = {}
        row["clicks"] = f"{figures['click_rate']:.3f}"
        row["% of oracle [95 %]"] = f"{share['mean']:.1f}"
        if share["low"] is not None:
            row["% of oracle [95 %]"] += f" [{share['low']:.1f}, {share['high']:.1f}]"
        for phase in figures["phases"]:
            steps = f"{phase['first_step']:,}–{phase['last_step'] + 1:,}"
            row[steps] = f"{phase['share_of_oracle']['mean']:.1f} %"
        for recovery in figures["recovery"]:
            median = recovery["median_steps"]
            steps = "never" if median is None else f"{median:,.0f} steps"
            row[f"recovery {recovery['shock_step']:,}"] = steps
        rows[name] = row
    frame = pd.DataFrame.from_dict(rows, orient="index").rename_axis(columns="agent")
    return frame.to_string()


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Describe the command line of the gauntlet."""
    parser.add_argument("--worlds", type=int, default=20, help="number of worlds")
    parser.add_argument("--first-seed", type=int, default=0, help="seed of the first")
    parser.add_argument("--steps", type=int, default=40_000, help="visits per world")
    parser.add_argument(
        "--agents",
        nargs="+",
        metavar="NAME",
        default=list(DEFAULT),
        help=f"any of: {', '.join(AGENTS)}; default: {', '.join(DEFAULT)}",
    )
    parser.add_argument(
        "--json", type=Path, metavar="FILE", help="also write the figures here"
    )


def main(arguments: argparse.Namespace) -> int:
    """Run the gauntlet, print its table, write its file; return the exit status."""
    names = list(dict.fromkeys(arguments.agents))
    unknown = [name for name in names if name not in AGENTS]
    if unknown:
        raise ValueError(f"--agents must be any of {', '.join(AGENTS)}: got {unknown}")
    first = as_size("--first-seed", arguments.first_seed, least=0)
    seeds = range(first, first + as_size("--worlds", arguments.worlds))
    n_steps = as_size("--steps", arguments.steps)
    file = arguments.json
    if file and (file.is_dir() or not file.parent.is_dir()):
        raise ValueError(f"--json must name a file in an existing folder: got {file}")
    start = time.perf_counter()
    history = run_experiment(
        {name: make_agent(name, seeds) for name in names},
        seeds,
        n_steps,
        {step: shock for step, shock in SHOCKS.items() if step < n_steps},
    )
    summary = summarise(history)
    print(table(summary))
    if file:
        result = {
            "agents": summary,
            "recommended": RECOMMENDED,
            "seeds": list(seeds),
            "steps": history.n_steps,
            "interrupted": history.n_steps < n_steps,
            "wall_seconds": time.perf_counter() - start,
        }
        text = json.dumps(result, indent=1, allow_nan=False).encode() + b"\n"
        write_whole(file, lambda opened: opened.write(text))
    return 130 if history.n_steps < n_steps else 0
