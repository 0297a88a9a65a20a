"""Sweeps: a grid of agents, settings and worlds, played as independent tasks on joblib.

Each task unpickles its own copies of everything that it calls, so its result depends neither on the
process that plays it nor on the tasks played before.

The record of a sweep is a file of JSON Lines: what all runs have in common, then one line for each agent
and setting. While a sweep runs, a folder beside the record holds one such file for each finished task.
"""

from __future__ import annotations

import functools
import json
import math
import os
import pickle
import re
import shutil
import sys
import uuid
import warnings
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from hashlib import sha256
from itertools import product
from pathlib import Path
from traceback import format_exception_only

import cloudpickle
import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from zoolib._support.checks import as_finite, as_real, as_size
from zoolib._support.files import write_whole
from zoolib._support.progress import progress_bar
from zoolib._support.threads import one_thread
from zoolib.agents import Agent
from zoolib.experiments.arena import (
    check_events,
    check_seeds,
    refuse_repeats,
    run_experiment,
)
from zoolib.experiments.history import History
from zoolib.world.features import FeatureEngineer
from zoolib.world.simulator import Churn, MarketShock, ZooplusSimulator

Value = bool | int | float | str | tuple | None
Settings = Mapping[str, Sequence[Value]] | Sequence[Mapping[str, Value]]
Measure = Callable[[History, str], ArrayLike]
RESERVED = ("agent", "n_worlds", "seed")


@dataclass(frozen=True)
class Task:
    """One agent with one setting in some of the worlds, and what became of it.

    Attributes
    ----------
    agent : str
        Name of the agent.
    setting : dict
        Arguments of its callable other than ``n_worlds``.
    seeds : tuple of int
        The worlds.
    measures : dict of str to list of float
        Once it is finished: one number per world each.
    error : str
        If it failed: class, message and notes of the exception.
    """

    agent: str
    setting: dict[str, Value]
    seeds: tuple[int, ...]
    measures: dict[str, list[float]] | None = None
    error: str = ""

    @property
    def key(self) -> tuple:
        """Agent and setting, whatever the order of the setting's names."""
        return self.agent, *sorted(self.setting.items())

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.setting.items())
        worlds = ", ".join(map(str, self.seeds))
        return f"agent {self.agent!r} with {given or 'no settings'} in worlds {worlds}"


@dataclass(frozen=True)
class Sweep:
    """What a sweep found.

    Attributes
    ----------
    table : pandas.DataFrame
        One row for each agent, setting and world whose task was finished, in the order of the grid, with
        columns ``agent``, the names of the settings, ``seed``, and the names of the measures. Settings
        that a row was not given are missing values.
    failures : tuple of Task
        The tasks that failed, in the order of the grid.
    """

    table: pd.DataFrame
    failures: tuple[Task, ...]


def sweep(
    agents: Mapping[str, Callable[..., Agent]],
    settings: Settings,
    seeds: Sequence[int],
    n_steps: int,
    shocks: Mapping[int, MarketShock] | None = None,
    *,
    measures: Mapping[str, Measure],
    churn: Churn | None = None,
    make_world: Callable[..., ZooplusSimulator] = ZooplusSimulator,
    make_features: Callable[..., FeatureEngineer] = FeatureEngineer,
    path: str | os.PathLike[str] | None = None,
    worlds_per_task: int = 1,
    n_jobs: int | None = -1,
    progress: bool = True,
) -> Sweep:
    """Measure every agent with every setting in every world, on all cores or a cluster.

    The tasks are played by joblib: on this machine's cores, or wherever ``joblib.parallel_config``
    says. After ``client = dask.distributed.Client(address)``, the same call inside
    ``with joblib.parallel_config(backend="dask"):`` runs on the workers of a Dask cluster. See "Sweeps" in
    the back matter.

    Parameters
    ----------
    agents : mapping of str to callable
        Each is called with ``n_worlds=`` and a setting, and returns an agent.
    settings : mapping of str to sequence, or sequence of mappings
        The values of each argument, whose product is taken; or the settings one by one. Values are
        numbers, strings, truth values, None, or tuples of these.
    seeds : sequence of int
        The worlds.
    n_steps, shocks, churn, make_world, make_features, progress
        As for `run_experiment`.
    measures : mapping of str to callable
        Each is called with the history of a task and the name of its agent, and returns one number per
        world, shape (W,), for example `share_of_oracle`.
    path : path-like, optional
        The record of the sweep, a file of JSON Lines. Until all tasks are finished, those that are lie
        in the folder ``<path>.tasks``. The same call after an interrupt, a crash or a failure plays
        what is missing, and so does one whose grid has grown. The record knows callables by their
        names and arguments: after a change of what one does, use another path. Without a path nothing
        is kept.
    worlds_per_task : int, default 1
        Worlds of one task, which are played in step: with more the whole takes less time, with fewer
        there are more tasks to spread.
    n_jobs : int or None, default -1
        Tasks played at a time, as joblib counts them: -1 is all cores; None is what
        ``joblib.parallel_config`` says. A cluster always uses all of its workers.

    Returns
    -------
    Sweep
        A task that fails is reported on stderr at once and in ``failures``; the others are played.

    Raises
    ------
    TypeError, ValueError
        Also if something cannot be pickled, or the record belongs to another experiment or holds tasks
        outside the grid. Nothing is played then, and the record is left as it is.
    concurrent.futures.process.BrokenProcessPool
        If a process of this machine dies while it plays a task, for example for want of memory.

    Notes
    -----
    Whatever stops a sweep, finished tasks are kept, and the error says how many. If a worker of a cluster
    dies, Dask plays its task on another. Dask gives up a task on which several workers have died (see
    ``distributed.scheduler.allowed-failures``), but joblib is not told: the sweep then waits forever.
    Dask's log names the workers; interrupt the sweep with Ctrl-C and mend the task.
    """
    _check_callables("agents", agents)
    _check_callables("measures", measures)
    settings = _checked_settings(settings)
    seeds = check_seeds(seeds)
    refuse_repeats("seeds", seeds)
    names = dict.fromkeys(name for setting in settings for name in setting)
    columns = ["agent", *names, "seed", *measures]
    refuse_repeats("names of columns", columns)
    grid = [Task(*cell, tuple(seeds)) for cell in product(agents, settings)]
    refuse_repeats("agents' settings", [cell.key for cell in grid])
    world = make_world(seed=seeds[0])
    n_steps, shocks = check_events(n_steps, shocks, churn, world)
    worlds_per_task = as_size("worlds_per_task", worlds_per_task)
    made = {"make_world": make_world, "make_features": make_features}
    run = {"n_steps": n_steps, "shocks": shocks, "churn": churn, **made}
    packed = _packed(agents, run, dict(measures))
    of_shocks = {s: [of.persona, of.click_probabilities] for s, of in shocks.items()}
    experiment = {  # what all runs have in common, in a form that JSON can hold
        "n_steps": n_steps,
        "shocks": of_shocks,
        "churn": churn and [churn.every, churn.share],
        **{name: _described(make) for name, make in made.items()},
        "measures": {name: _described(f) for name, f in measures.items()},
        "worlds_per_task": worlds_per_task,
        "agents": {name: _described(make) for name, make in agents.items()},
    }
    results = _Results(grid, path, experiment)
    tasks, failures = results.missing(worlds_per_task), []
    n_runs = len(grid) * len(seeds)
    with (
        one_thread(),  # for all, should joblib play in threads
        _outcomes(tasks, packed, n_jobs) as outcomes,
        progress_bar(
            progress, total=n_runs, initial=len(results), unit="run", smoothing=0
        ) as bar,
    ):
        try:
            for outcome in outcomes:
                if outcome.error:
                    failures.append(outcome)
                    bar.write(f"{outcome} failed: {outcome.error}", file=sys.stderr)
                else:
                    results.keep(outcome)
                bar.update(len(outcome.seeds))
        except BaseException as error:
            kept = "kept: the same call plays the rest" if path else "lost: no path"
            error.add_note(f"{len(results)} of {n_runs} runs are finished and {kept}")
            raise
    results.join()
    failures.sort(key=lambda one: tasks.index(replace(one, error="")))
    return Sweep(results.table(columns), tuple(failures))


class _Results:
    """The finished runs, each of one agent with one setting in one world, in memory and in files."""

    def __init__(
        self,
        grid: list[Task],
        path: str | os.PathLike[str] | None,
        experiment: dict[str, object],
    ) -> None:
        self._grid, self._path = grid, None if path is None else Path(path)
        self._experiment = json.loads(json.dumps(experiment))  # as it will be read
        self._found = {cell.key: {} for cell in grid}  # {seed: {measure: number}}
        if self._path:
            if self._path.is_dir() or not self._path.parent.is_dir():
                wanted = "path must name a file in an existing folder"
                raise ValueError(f"{wanted}: got {os.fspath(path)!r}")
            self._folder = self._path.with_name(f"{self._path.name}.tasks")
            for file in (self._path, *self._folder.glob("*.jsonl")):
                for task in self._read(file) if file.exists() else ():
                    self._add(task)

    def __len__(self) -> int:
        return sum(map(len, self._found.values()))

    def _read(self, file: Path) -> list[Task]:
        """Return the tasks in a file; refuse one of something else, or of another experiment."""
        try:
            lines = [json.loads(line) for line in file.read_bytes().splitlines()]
            tasks = [_read_task(line) for line in lines[1:]]
            theirs = lines[0] if lines else self._experiment
            if theirs.keys() != self._experiment.keys():
                raise KeyError(*theirs)
            agents = theirs["agents"].keys() & self._experiment["agents"].keys()
        except (ValueError, KeyError, TypeError, AttributeError):
            said = f"path must name a file of sweep: got {str(file)!r}"
            raise ValueError(said) from None
        for name, ours in self._experiment.items():
            value = theirs[name]
            if name == "agents":  # of those in both, for a grid may grow
                ours, value = ({one: of[one] for one in agents} for of in (ours, value))
            if ours != value:
                raise ValueError(
                    f"path must name a file of the same experiment: {name} of {str(file)!r} is "
                    f"{value!r}, not {ours!r}"
                )
        return tasks

    def _add(self, task: Task) -> None:
        if task.key not in self._found or not {*task.seeds} <= {*self._grid[0].seeds}:
            raise ValueError(
                f"path must name a file of this grid: {str(self._path)!r} holds {task}"
            )
        for w, seed in enumerate(task.seeds):
            measured = {name: values[w] for name, values in task.measures.items()}
            self._found[task.key][seed] = measured

    def missing(self, worlds_per_task: int) -> list[Task]:
        """Return tasks for the runs that are not finished."""
        tasks = []
        for cell in self._grid:
            seeds = [one for one in cell.seeds if one not in self._found[cell.key]]
            tasks += [
                replace(cell, seeds=tuple(seeds[at : at + worlds_per_task]))
                for at in range(0, len(seeds), worlds_per_task)
            ]
        return tasks

    def keep(self, task: Task) -> None:
        """Take a task in; its file is on disk when this returns."""
        if self._path:
            self._folder.mkdir(exist_ok=True)
            self._write(self._folder / f"{uuid.uuid4().hex}.jsonl", [task])
        self._add(task)

    def join(self) -> None:
        """Write the record and remove the folder."""
        if self._path:
            self._write(self._path, self._finished())
            if self._folder.exists():
                shutil.rmtree(self._folder)

    def _write(self, path: Path, tasks: Iterable[Task]) -> None:
        """Write a file of the experiment and these tasks, unless this is what it holds."""
        lines = [self._experiment]
        for task in tasks:
            # For what JSON cannot hold "nan", "inf", "-inf", which `float` reads.
            measures = {
                name: [x if math.isfinite(x) else str(x) for x in numbers]
                for name, numbers in task.measures.items()
            }
            line = {"agent": task.agent, "setting": task.setting, "seeds": task.seeds}
            lines.append(line | {"measures": measures})
        text = "".join(json.dumps(line, allow_nan=False) + "\n" for line in lines)
        if not path.exists() or path.read_bytes() != text.encode():
            write_whole(path, lambda file: file.write(text.encode()))

    def _finished(self) -> Iterator[Task]:
        """Return the finished runs of each agent and setting as one task, in the order of the grid."""
        for cell in self._grid:
            found = self._found[cell.key]
            if seeds := tuple(seed for seed in cell.seeds if seed in found):
                names = found[seeds[0]]
                measures = {name: [found[one][name] for one in seeds] for name in names}
                yield replace(cell, seeds=seeds, measures=measures)

    def table(self, columns: list[str]) -> pd.DataFrame:
        """Return one row for each finished run, in the order of the grid."""
        rows = []
        for cell in self._finished():
            for seed in cell.seeds:
                row = {"agent": cell.agent, **cell.setting, "seed": seed}
                rows.append(row | self._found[cell.key][seed])
        return pd.DataFrame(rows, columns=columns)


def _read_task(line: dict) -> Task:
    setting = {name: _checked(name, value) for name, value in line["setting"].items()}
    measures = {name: list(map(float, of)) for name, of in line["measures"].items()}
    seeds = tuple(line["seeds"])
    if {len(seeds)} != {len(numbers) for numbers in measures.values()}:
        raise ValueError("each measure must have one number per world")
    return Task(line["agent"], setting, seeds, measures)


@contextmanager
def _outcomes(
    tasks: list[Task], packed: dict[str, bytes], n_jobs: int | None
) -> Iterator[Iterator[Task]]:
    """Play tasks; give what becomes of each, in the order in which they end."""
    # A result is fetched when its task ends, and no more tasks are under way than workers.
    parallel = joblib.Parallel(
        n_jobs,
        return_as="generator_unordered",
        batch_size=1,
        pre_dispatch="n_jobs",
        max_nbytes=None,
    )
    outcomes = parallel(
        joblib.delayed(_play)(task, packed[task.agent]) for task in tasks
    )
    try:
        yield outcomes
    finally:
        with warnings.catch_warnings():  # joblib warns of tasks that were under way
            warnings.simplefilter("ignore")
            outcomes.close()


def _play(task: Task, packed: bytes) -> Task:
    """Play a task wherever this is called; what goes wrong in it is what it returns."""
    try:
        with one_thread():
            make_agent, run, measures = pickle.loads(packed)
            agent = make_agent(n_worlds=len(task.seeds), **task.setting)
            agents = {task.agent: agent}
            history = run_experiment(agents, task.seeds, **run, progress=False)
            if history.n_steps < history.planned:  # Ctrl-C: half a task does not count
                raise KeyboardInterrupt
            measured, shape = {}, (len(task.seeds),)
            for name, measure in measures.items():
                numbers = measure(history, task.agent)
                numbers = as_real(f"measure {name!r}", numbers, shape)
                measured[name] = numbers.tolist()
            return replace(task, measures=measured)
    except (Exception, SystemExit) as error:
        return replace(task, error="".join(format_exception_only(error)).strip())


def _packed(
    agents: Mapping[str, Callable], run: dict[str, object], measures: dict[str, Measure]
) -> dict[str, bytes]:
    """Pickle what a task of each agent calls in other processes."""
    parts = {name: run[name] for name in ("make_world", "make_features")}
    parts |= {f"measure {name!r}": measure for name, measure in measures.items()}
    parts |= {f"agent {name!r}": make for name, make in agents.items()}
    for name, part in parts.items():
        try:
            cloudpickle.dumps(part)
        except Exception as error:  # each object has its own way to refuse
            raise TypeError(
                f"{name} must be picklable, for other processes call it: got {part!r} ({error})"
            ) from error
    return {a: cloudpickle.dumps((make, run, measures)) for a, make in agents.items()}


def _described(value: object) -> str:
    """Return a callable's name and the arguments bound to it, the same in every process.

    The library's own are known without their modules, which may move.
    """
    if isinstance(value, functools.partial):
        given = [_described(one) for one in value.args]
        given += [f"{name}={_described(one)}" for name, one in value.keywords.items()]
        return f"{_described(value.func)}({', '.join(given)})"
    if isinstance(value, np.ndarray):  # its repr leaves out the middle
        return f"array {value.shape} {sha256(value.tobytes()).hexdigest()[:16]}"
    name = getattr(value, "__qualname__", None)
    if name is None:
        return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))
    ours = value.__module__.partition(".")[0] == "zoolib"
    return name if ours else f"{value.__module__}.{name}"


def _check_callables(name: str, given: Mapping[str, Callable]) -> None:
    wanted = f"{name} must be a mapping of names to callables"
    if not isinstance(given, Mapping):
        raise TypeError(f"{wanted}: got {type(given).__name__}")
    if not given:
        raise ValueError(f"{name} must hold at least one callable: got none")
    for key, value in given.items():
        if not isinstance(key, str) or not callable(value):
            raise TypeError(f"{wanted}: got {key!r}: {value!r}")


def _checked_settings(settings: Settings) -> list[dict[str, Value]]:
    """Return the settings one by one, with Python's own values."""
    if isinstance(settings, Mapping):
        for name, values in settings.items():
            if not _is_sequence(values):
                said = f"settings of {name!r} must be a sequence of values"
                raise TypeError(f"{said}: got {values!r}")
        rows = product(*settings.values())
        settings = [dict(zip(settings, values, strict=True)) for values in rows]
    if not _is_sequence(settings) or not all(isinstance(s, Mapping) for s in settings):
        wanted = "a mapping, or a sequence of mappings"
        raise TypeError(f"settings must be {wanted}: got {settings!r}")
    if not settings:
        raise ValueError("settings must hold at least one setting: got none")
    return [{name: _checked(name, of) for name, of in s.items()} for s in settings]


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def _checked(name: str, value: object) -> Value:
    """Return a setting's value as Python's own, which any file can hold; tuples for lists."""
    if not isinstance(name, str) or name in RESERVED:
        raise ValueError(
            f"settings must have names other than {', '.join(RESERVED)}: got {name!r}"
        )
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return tuple(_checked(name, one) for one in value)
    if isinstance(value, float):
        return as_finite(f"setting {name!r}", value)
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(
        f"setting {name!r} must be a number, a string, a truth value, None, or a tuple of these: "
        f"got {value!r}"
    )
