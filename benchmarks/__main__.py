"""Every contest in one run.

    make bench
    python -m benchmarks [--json FILE] [--only NAME ...] [--rounds N]

Each row is a piece of work that zoolib, its plain form, other libraries and the machine's own limit do in
turn, on one core. Printed are the seconds of the others over zoolib's: medians of the rounds with 95 %
intervals. The last line says which promises were not kept. It is a report and no gate: another machine may
keep others.
"""

from __future__ import annotations

import argparse
import importlib
import json
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from benchmarks.contest import Row, measure
from benchmarks.machine import description
from benchmarks.peers import distributions
from zoolib._support.files import write_whole

MODULES = (
    "static_recommender",
    "linear_agents",
    "neural_agents",
    "session_agents",
    "retrieval",
    "service",
)


def rows(modules: list[str]) -> Iterator[Row]:
    """Yield the rows of some modules, each made when its turn comes."""
    for name in modules:
        yield from importlib.import_module(f"benchmarks.{name}").rows()


def lines(result: dict[str, Any]) -> Iterator[str]:
    """Yield what the terminal shows of a measured row."""
    own = result["contestants"]["zoolib"]["seconds"]
    yield f"{result['name']}: {own * 1e6:,.3g} µs for {result['unit']}"
    for name, one in result["contestants"].items():
        if name != "zoolib":
            yield f"  {name:34} {_told(one)}"
    for name, figure in result["figures"].items():
        yield f"  {name:34} {figure:,.3g}"
    for promise in result["promises"]:
        yield f"  {_verdict(promise)}"


def _told(one: dict[str, Any]) -> str:
    if "absent" in one:
        return f"absent: {one['absent']}"
    middle = one["ratio"]
    told = f"{middle['median']:10,.2f} × [{middle['low']:,.2f}, {middle['high']:,.2f}]"
    if one["difference"] is not None:
        told += f", scores differ by {one['difference']:.0e} at most"
    return told


def _verdict(promise: dict[str, Any]) -> str:
    bound = (
        f"at least {promise['at_least']:g}"
        if promise["at_least"] is not None
        else f"below {promise['below']:g}"
    )
    verdict = {True: "kept", False: "NOT KEPT", None: "not tried, nobody ran"}
    return f"promise: {promise['figure']} {bound}: {verdict[promise['kept']]}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    parser.add_argument("--json", type=Path, help="also write everything to this file")
    parser.add_argument("--rounds", type=int, default=11, help="timed rounds per row")
    parser.add_argument("--only", nargs="+", choices=MODULES, default=list(MODULES))
    arguments = parser.parse_args()
    start, measured = time.perf_counter(), []
    machine = description(distributions())
    print(f"{machine['processor']}, Python {machine['python']}", flush=True)
    for row in rows(arguments.only):
        measured.append(measure(row, arguments.rounds))
        print("\n".join(lines(measured[-1])), flush=True)
    took = time.perf_counter() - start
    if arguments.json:
        content = {"machine": machine, "wall_seconds": took, "rows": measured}
        text = json.dumps(content, indent=1, allow_nan=False) + "\n"
        write_whole(arguments.json, lambda file: file.write(text.encode()))
    broken = [
        f"{row['name']}: {promise['figure']}"
        for row in measured
        for promise in row["promises"]
        if promise["kept"] is False
    ]
    print(
        f"{len(measured)} rows in {took:.0f} s; promises not kept: {broken or 'none'}"
    )


if __name__ == "__main__":
    main()
