"""Sweeps: a grid of agents, settings and worlds, played as independent tasks on joblib.

Each task unpickles its own copies of everything that it calls, so its result depends neither on the
process that plays it nor on the tasks played before.

The record of a sweep is a file of JSON Lines: what all tasks have in common, then one line for each finished
task, in the order in which they end.
"""

from __future__ import annotations

import json
import math
import os
import pickle
import warnings
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from itertools import product
from pathlib import Path

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import cloudpickle
    import joblib

from zoolib._support.checks import as_finite, as_real, as_size
from zoolib._support.files import write_whole
from zoolib._support.progress import progress_bar
from zoolib._support.threads import one_thread
from zoolib.agents import Agent
from zoolib.book.described import described
from zoolib.book.recordings import damaged, differing, may_write, tell_reader
from zoolib.book.strictness import is_lenient
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


@dataclass(frozen=True)
class Task:
    """One agent with one setting in some of the worlds.

    Attributes
    ----------
    agent : str
        Name of the agent.
    setting : dict
        Arguments of its callable other than ``n_worlds``.
    seeds : tuple of int
        The worlds.
    measures : dict of str to list of float or str
        If the task has finished: for each measure one number per world; as "nan", "inf" and "-inf" what JSON
        cannot hold.
    """

    agent: str
    setting: dict[str, Value]
    seeds: tuple[int, ...]
    measures: dict[str, list[float | str]] | None = None

    @property
    def key(self) -> tuple:
        """What was asked for, whatever the order of the setting's names."""
        return self.agent, *sorted(self.setting.items()), self.seeds

    def rows(self) -> list[dict[str, object]]:
        """Return its rows of the table, one for each world."""
        given = {"agent": self.agent, **self.setting}
        measured = {name: map(float, of) for name, of in self.measures.items()}
        worlds = pd.DataFrame({"seed": self.seeds} | measured)
        return [given | row for row in worlds.to_dict("records")]

    def __str__(self) -> str:
        given = ", ".join(f"{name}={value!r}" for name, value in self.setting.items())
        worlds = ", ".join(map(str, self.seeds))
        return f"agent {self.agent!r} with {given or 'no settings'} in worlds {worlds}"


@dataclass(frozen=True)
class Sweep:
    """The results of a sweep.

    Attributes
    ----------
    table : pandas.DataFrame
        One row for each agent, setting and world, in the order of the grid, with columns ``agent``, the
        names of the settings, ``seed``, and the names of the measures. Settings that a row was not given
        are missing values.
    """

    table: pd.DataFrame

    def best(self, measure: str) -> dict[str, dict[str, Value]]:
        """Return each agent's setting with the highest mean over worlds; ties go to the first in the grid."""
        settings = list(self.table.columns[1 : self.table.columns.get_loc("seed")])
        grid = ["agent", *settings]
        groups = self.table.groupby(grid, sort=False, dropna=False, as_index=False)
        means = groups[measure].mean()
        highest = means.loc[means.groupby("agent", sort=False)[measure].idxmax(), grid]
        return {row.pop("agent"): row for row in highest.to_dict("records")}


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
    says, for example on the workers of a Dask cluster. See "Sweeps" in the part "Evidence".

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
        The record of the sweep, a file of JSON Lines. The same call after an interrupt, a crash or a
        failure plays only the missing tasks, and so does a call whose grid has grown by whole tasks. The
        record identifies callables by their names, their arguments, and, unless they are of a package, by
        what they do: after a change, use another path. Without a path nothing is saved. If the environment
        sets ``ZOOLIB_LENIENT=1``, what does not fit is not read; such records, and the library's own,
        then stay as they are.
    worlds_per_task : int, default 1
        Number of worlds per task, in the order of `seeds`, played in step: more worlds save computing
        time, fewer worlds give more tasks to distribute.
    n_jobs : int or None, default -1
        Tasks played at a time, as joblib counts them: -1 is all cores; None is what
        ``joblib.parallel_config`` says. A cluster always uses all of its workers.

    Returns
    -------
    Sweep

    Raises
    ------
    TypeError, ValueError
        Also if something cannot be pickled, or the record belongs to another experiment or holds tasks
        outside the grid. Nothing is played then, and the record is left as it is.
    Exception
        What a task raises, with a note that names the task; those that are finished are kept.
    concurrent.futures.process.BrokenProcessPool
        If a process of this machine dies while it plays a task, for example for want of memory.

    Notes
    -----
    If a worker of a cluster dies, Dask plays its task on another. After several deaths it gives the task
    up (see ``distributed.scheduler.allowed-failures``), but joblib is not told, and the sweep waits forever:
    interrupt it with Ctrl-C and mend the task. Dask's log names the workers.
    """
    _check_callables("agents", agents)
    _check_callables("measures", measures)
    settings = _one_by_one(settings)
    seeds = check_seeds(seeds)
    refuse_repeats("seeds", seeds)
    names = dict.fromkeys(name for setting in settings for name in setting)
    columns = ["agent", *names, "seed", *measures]
    refuse_repeats("names of settings, measures and columns", [*columns, "n_worlds"])
    world = make_world(seed=seeds[0])
    n_steps, shocks = check_events(n_steps, shocks, churn, world)
    worlds_per_task = as_size("worlds_per_task", worlds_per_task)
    tasks = [
        Task(agent, setting, tuple(seeds[at : at + worlds_per_task]))
        for agent, setting in product(agents, settings)
        for at in range(0, len(seeds), worlds_per_task)
    ]
    refuse_repeats("agents' settings", [task.key for task in tasks])
    grid = {task.key: task for task in tasks}
    made = {"make_world": make_world, "make_features": make_features}
    run = {"n_steps": n_steps, "shocks": shocks, "churn": churn, **made}
    wanted = "agents, measures, make_world and make_features"
    try:
        packed = {
            name: cloudpickle.dumps((make, run, dict(measures)))
            for name, make in agents.items()
        }
    except Exception as error:  # each object has its own way to refuse
        raise TypeError(
            f"{wanted} must be picklable, for other processes call them: got {error}"
        ) from error
    of_shocks = {s: [of.persona, of.click_probabilities] for s, of in shocks.items()}
    experiment = {  # what all tasks have in common, in a form that JSON can hold
        "n_steps": n_steps,
        "shocks": of_shocks,
        "churn": churn and [churn.every, churn.share],
        **{name: described(name, make) for name, make in made.items()},
        "measures": {n: described(f"measure {n!r}", of) for n, of in measures.items()},
        "worlds_per_task": worlds_per_task,
        "agents": {n: described(f"agent {n!r}", make) for n, make in agents.items()},
    }
    experiment = json.loads(json.dumps(experiment))  # as it will be read
    finished = {}
    writes = False
    if path is not None:
        path = Path(path)
        finished, fits = _read(path, experiment, grid)
        writes = fits and may_write(path)
    missing = [task for key, task in grid.items() if key not in finished]
    if path and missing and is_lenient():
        said = f"read {len(finished)} of {len(grid)} tasks, the others are played here"
        tell_reader(path, said)
    with (
        one_thread(),  # for all, should joblib play in threads
        _played(missing, packed, n_jobs) as outcomes,
        progress_bar(
            progress,
            total=len(grid),
            initial=len(finished),
            unit="task",
            smoothing=0,
        ) as bar,
    ):
        if writes:
            _write(path, experiment, finished)
        try:
            for task in outcomes:
                if writes:
                    _add(path, task)
                finished[task.key] = task
                bar.update()
        except BaseException as error:
            n_kept = f"{len(finished)} of {len(grid)} tasks are finished"
            kept = "kept: the same call plays the rest" if path else "lost: no path"
            error.add_note(f"{n_kept} and {kept}")
            raise
    rows = [row for key in grid for row in finished[key].rows()]
    return Sweep(pd.DataFrame(rows, columns=columns))


def _read(
    path: Path, ours: dict[str, object], grid: dict[tuple, Task]
) -> tuple[dict[tuple, Task], bool]:
    """Return what a record holds of a grid, and whether it fits; if it must and does not, raise."""
    content = path.read_bytes() if path.exists() else b""
    if not content:
        return {}, True
    header, *lines = content.split(b"\n")
    try:
        theirs = json.loads(header)
        known = ours["agents"] | theirs["agents"]  # for a grid may grow
        theirs["agents"] = {name: known[name] for name in ours["agents"]}
        # What has no end is a line that a kill has torn.
        tasks = [_read_task(json.loads(line)) for line in lines[:-1]]
    except (ValueError, KeyError, TypeError, AttributeError) as error:
        raise damaged(path, error, "a file of sweep") from None
    if differing(path, theirs, ours):
        return {}, False
    others = [task for task in tasks if task.key not in grid]
    if others and not is_lenient():
        said = f"path must name a file of this grid: {str(path)!r} holds {others[0]}"
        raise ValueError(said)
    found = [task for task in tasks if task.key in grid]
    asked = {t.key: replace(grid[t.key], measures=t.measures) for t in found}
    return asked, not others


def _write(
    path: Path, experiment: dict[str, object], finished: dict[tuple, Task]
) -> None:
    """Write the whole file, unless this is what it holds."""
    header = json.dumps(experiment).encode() + b"\n"
    content = b"".join([header, *map(_line, finished.values())])
    if not path.exists() or path.read_bytes() != content:
        write_whole(path, lambda file: file.write(content))


def _add(path: Path, task: Task) -> None:
    """Add a task; its line is on the disk when this returns."""
    with path.open("ab") as file:
        file.write(_line(task))
        file.flush()
        os.fsync(file.fileno())


def _line(task: Task) -> bytes:
    return json.dumps(vars(task), allow_nan=False).encode() + b"\n"


def _read_task(line: dict) -> Task:
    setting = {name: _own(name, value) for name, value in line["setting"].items()}
    task = Task(line["agent"], setting, tuple(line["seeds"]), line["measures"])
    if {len(task.seeds)} != {len(list(map(float, m))) for m in task.measures.values()}:
        raise ValueError("each measure must have one number per world")
    return task


@contextmanager
def _played(
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
    finally:  # joblib warns of tasks that were under way
        with warnings.catch_warnings(action="ignore"):
            outcomes.close()


def _play(task: Task, packed: bytes) -> Task:
    """Play a task wherever this is called."""
    make_agent, run, measures = pickle.loads(packed)
    try:
        with one_thread():
            agent = make_agent(n_worlds=len(task.seeds), **task.setting)
            agents = {task.agent: agent}
            history = run_experiment(agents, task.seeds, **run, progress=False)
            if history.n_steps < history.planned:  # Ctrl-C: half a task does not count
                raise KeyboardInterrupt
            shape = (len(task.seeds),)
            measured = {
                name: as_real(f"measure {name!r}", measure(history, task.agent), shape)
                for name, measure in measures.items()
            }
    except BaseException as error:
        error.add_note(f"This was {task}.")
        raise
    held = {
        name: [x if math.isfinite(x) else str(x) for x in numbers.tolist()]
        for name, numbers in measured.items()
    }
    return replace(task, measures=held)


def _check_callables(name: str, given: Mapping[str, Callable]) -> None:
    fits = isinstance(given, Mapping) and all(map(callable, given.values()))
    if not fits or not all(isinstance(key, str) for key in given):
        wanted = "a mapping of names to callables"
        raise TypeError(f"{name} must be {wanted}: got {given!r}")
    if not given:
        raise ValueError(f"{name} must hold at least one callable: got none")


def _one_by_one(settings: Settings) -> list[dict[str, Value]]:
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
    return [{name: _own(name, of) for name, of in s.items()} for s in settings]


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def _own(name: str, value: object) -> Value:
    """Return a setting's value as Python's own, which any file can hold; tuples for lists."""
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return tuple(_own(name, one) for one in value)
    if isinstance(value, float):
        return as_finite(f"setting {name!r}", value)
    if value is None or isinstance(value, int | str):
        return value
    raise TypeError(
        f"setting {name!r} must be a number, a string, a truth value, None, or a tuple of these: "
        f"got {value!r}"
    )
