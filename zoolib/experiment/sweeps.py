"""Sweeps: a grid of agents, settings and worlds, played as independent tasks on joblib.

Every task gets its own copies of everything that it calls, unpickled from the same bytes, so that it
makes no difference which process plays it, or after which others.
"""

from __future__ import annotations

import functools
import os
import pickle
import re
import sys
import traceback
import warnings
from collections import Counter
from collections.abc import Callable, Hashable, Iterable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from concurrent.futures.process import BrokenProcessPool
from contextlib import closing, contextmanager
from dataclasses import dataclass, replace
from itertools import product
from numbers import Integral
from typing import TypeVar

import cloudpickle
import joblib
import numpy as np
import pandas as pd
from numpy.typing import ArrayLike
from tqdm import tqdm

from zoolib._checks import as_finite, as_real, as_size
from zoolib._progress import progress_bar
from zoolib._threads import one_thread
from zoolib.agents import Agent
from zoolib.experiment.arena import (
    check_churn,
    check_seeds,
    check_shocks,
    run_experiment,
)
from zoolib.experiment.history import History, event_labels
from zoolib.experiment.ledger import Finished, Ledger, Task, Value
from zoolib.features import FeatureEngineer
from zoolib.simulator import Churn, MarketShock, ZooplusSimulator

Measure = Callable[[History, str], ArrayLike]
_T = TypeVar("_T", bound=Task)
RESERVED = ("agent", "n_worlds", "seed")


@dataclass(frozen=True)
class Failure(Task):
    """A task that failed.

    Attributes
    ----------
    agent : str
        Name of the agent.
    setting : dict
        What its callable was given beside ``n_worlds``.
    seeds : tuple of int
        The worlds.
    error : str
        Class and message of the exception, and what was noted about it.
    traceback : str
        Where it was raised; empty if the process died.
    """

    error: str
    traceback: str


@dataclass(frozen=True)
class Sweep:
    """What a sweep found.

    Attributes
    ----------
    table : pandas.DataFrame
        One row for each agent, setting and world whose task was finished, in the order of the grid, with
        columns ``agent``, the names of the settings, ``seed``, and the names of the measures. Settings
        that a row was not given are missing values.
    failures : tuple of Failure
        The tasks that failed, in the order of the grid.
    """

    table: pd.DataFrame
    failures: tuple[Failure, ...]


def sweep(
    agents: Mapping[str, Callable[..., Agent]],
    settings: Mapping[str, Sequence[Value]] | Sequence[Mapping[str, Value]],
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
    ``with joblib.parallel_config(backend="dask"):`` runs on the workers of a Dask cluster. Neither
    where a task is played nor how many are played at a time changes what comes out.

    Parameters
    ----------
    agents : mapping of str to callable
        Each is called with ``n_worlds=`` and a setting, and returns an agent.
    settings : mapping of str to sequence, or sequence of mappings
        The values of each argument, whose product is taken; or the settings one by one. Values are
        numbers, strings, truth values, None, or tuples of these.
    seeds : sequence of int
        The worlds.
    n_steps, shocks, churn, make_world, make_features
        As for `run_experiment`.
    measures : mapping of str to callable
        Each is called with the history of a task and the name of its agent, and returns one number a
        world, shape (W,), for example `share_of_oracle`.
    path : path-like, optional
        A file of JSON Lines that keeps finished tasks, each from the moment that it is finished. The
        same call after an interrupt, a crash or a failure plays what is missing, and so does one whose
        grid has grown. The file knows callables by their names and arguments: who changes what one
        does names another file. Without a path nothing is kept.
    worlds_per_task : int, default 1
        Worlds of one task, which are played in step: with more the whole takes less time, with fewer
        there are more tasks to spread.
    n_jobs : int or None, default -1
        Tasks played at a time, as joblib counts them: -1 is all cores; None is what
        ``joblib.parallel_config`` says. A cluster always uses all of its workers.
    progress : bool, default True
        Show a progress bar on the terminal, unless the environment sets ``TQDM_DISABLE=1``.

    Returns
    -------
    Sweep
        A task that fails is reported on stderr at once and in ``failures``; the others are played.

    Raises
    ------
    TypeError, ValueError
        If an argument is not what is described here, or cannot be pickled, or the file belongs to
        another experiment or holds tasks outside the grid. Nothing is played then, and the file is
        left as it is.

    Examples
    --------
    >>> from functools import partial
    >>> from zoolib import LinUCBAgent, share_of_oracle
    >>> found = sweep(
    ...     agents={"LinUCB": partial(LinUCBAgent, 50, 9)},
    ...     settings={"alpha": (0.1, 1.0)},
    ...     seeds=[0, 1],
    ...     n_steps=500,
    ...     measures={"share": share_of_oracle},
    ...     worlds_per_task=2,
    ...     n_jobs=1,
    ...     progress=False,
    ... )
    >>> found.table.round(2)
        agent  alpha  seed  share
    0  LinUCB    0.1     0   0.83
    1  LinUCB    0.1     1   0.81
    2  LinUCB    1.0     0   0.67
    3  LinUCB    1.0     1   0.67
    """
    grid = _Grid(agents, settings, seeds, measures)
    experiment = _Experiment(
        n_steps, shocks, churn, make_world, make_features, measures, grid.seeds[0]
    )
    packed = experiment.packed()
    packed_agents = {
        name: _packed(f"agent {name!r}", make) for name, make in agents.items()
    }
    worlds_per_task = as_size("worlds_per_task", worlds_per_task)
    _check_n_jobs(n_jobs)
    header = {
        **experiment.labels(),
        "worlds_per_task": worlds_per_task,
        "agents": {name: _described(make) for name, make in agents.items()},
    }
    ledger = Ledger(path, header)
    finished = grid.placed(ledger.read(), path)
    tasks = grid.left(finished, worlds_per_task)
    if tasks:
        ledger.write(grid.in_order(finished))  # whole lines, to which others are added
    failures = []
    outcomes = _outcomes(tasks, packed_agents, packed, n_jobs)
    with (
        one_thread(),  # for all, should joblib play in threads
        closing(outcomes),
        _bar(progress, len(tasks), finished, path) as bar,
    ):
        for outcome in outcomes:
            if isinstance(outcome, Finished):
                ledger.add(outcome)
                finished.append(outcome)
            else:
                failures.append(outcome)
                bar.write(f"{outcome} failed: {outcome.error}", file=sys.stderr)
            bar.update()
    ledger.write(grid.in_order(finished))
    return Sweep(grid.table(finished), tuple(grid.in_order(failures)))


class _Grid:
    """Agents, for each its settings, for each the worlds: checked, and in this order."""

    def __init__(
        self,
        agents: Mapping[str, Callable[..., Agent]],
        settings: Mapping[str, Sequence[Value]] | Sequence[Mapping[str, Value]],
        seeds: Sequence[int],
        measures: Mapping[str, Measure],
    ) -> None:
        _check_callables("agents", agents)
        _check_callables("measures", measures)
        settings = _checked_settings(settings)
        names = list(dict.fromkeys(name for setting in settings for name in setting))
        self.columns = ["agent", *names, "seed", *measures]
        _refuse_repeats("names of columns", self.columns)
        self.seeds = check_seeds(seeds, repeats=True)
        _refuse_repeats("seeds", self.seeds)
        self._at = {seed: place for place, seed in enumerate(self.seeds)}
        tasks = [Task(agent, setting, ()) for agent in agents for setting in settings]
        _refuse_repeats("agents' settings", [task.cell for task in tasks])
        self._cells = {task.cell: (place, task) for place, task in enumerate(tasks)}

    def placed(self, finished: list[Finished], path: object) -> list[Finished]:
        """Return the finished tasks of a file as tasks of this grid, which holds them all."""
        kept, worlds = [], set()
        for one in finished:
            if one.cell not in self._cells or not self._at.keys() >= set(one.seeds):
                raise ValueError(
                    f"path must name a file of this grid: {os.fspath(path)!r} holds {one}"
                )
            its_worlds = {(one.cell, seed) for seed in one.seeds}
            if not its_worlds & worlds:  # two sweeps may have written at the same time
                _, task = self._cells[one.cell]
                kept.append(replace(one, setting=task.setting))
                worlds |= its_worlds
        return kept

    def left(self, finished: list[Finished], worlds_per_task: int) -> list[Task]:
        """Return the tasks that are left: worlds that are not finished, so many at a time."""
        done = {(one.cell, seed) for one in finished for seed in one.seeds}
        tasks = []
        for cell, (_, task) in self._cells.items():
            seeds = tuple(seed for seed in self.seeds if (cell, seed) not in done)
            tasks += [
                replace(task, seeds=seeds[start : start + worlds_per_task])
                for start in range(0, len(seeds), worlds_per_task)
            ]
        return tasks

    def in_order(self, tasks: Iterable[_T]) -> list[_T]:
        """Sort tasks as they stand in the grid."""
        return sorted(tasks, key=lambda task: self._place(task, task.seeds[0]))

    def table(self, finished: list[Finished]) -> pd.DataFrame:
        """Return one row for each world of the finished tasks, in the order of the grid."""
        rows = {}
        for one in finished:
            for w, seed in enumerate(one.seeds):
                measured = {name: values[w] for name, values in one.measures.items()}
                row = {"agent": one.agent, **one.setting, "seed": seed, **measured}
                rows[self._place(one, seed)] = row
        return pd.DataFrame([rows[at] for at in sorted(rows)], columns=self.columns)

    def _place(self, task: Task, seed: int) -> tuple[int, int]:
        place, _ = self._cells[task.cell]
        return place, self._at[seed]


class _Experiment:
    """What all tasks have in common, checked."""

    def __init__(
        self,
        n_steps: int,
        shocks: Mapping[int, MarketShock] | None,
        churn: Churn | None,
        make_world: Callable[..., ZooplusSimulator],
        make_features: Callable[..., FeatureEngineer],
        measures: Mapping[str, Measure],
        seed: int,
    ) -> None:
        self.n_steps = as_size("n_steps", n_steps)
        check_churn(churn)
        self.churn = churn
        self.make_world, self.make_features = make_world, make_features
        self.measures = dict(measures)
        self.shocks = check_shocks(shocks or {}, self.n_steps, make_world(seed=seed))

    def labels(self) -> dict[str, object]:
        """Return all this in a form that JSON can hold, callables by their names."""
        return {
            "n_steps": self.n_steps,
            **event_labels(self.shocks, self.churn),
            "make_world": _described(self.make_world),
            "make_features": _described(self.make_features),
            "measures": {name: _described(f) for name, f in self.measures.items()},
        }

    def packed(self) -> bytes:
        """Pickle all this, and say of what cannot be pickled what it is."""
        _packed("make_world", self.make_world)
        _packed("make_features", self.make_features)
        for name, measure in self.measures.items():
            _packed(f"measure {name!r}", measure)
        return cloudpickle.dumps(self)

    def play(self, task: Task, agent: Agent) -> dict[str, list[float]]:
        """Play a task and return its measures."""
        history = run_experiment(
            {task.agent: agent},
            task.seeds,
            self.n_steps,
            self.shocks,
            churn=self.churn,
            make_world=self.make_world,
            make_features=self.make_features,
            progress=False,
        )
        if history.n_steps < self.n_steps:  # Ctrl-C: half a task is none
            raise KeyboardInterrupt
        shape = (len(task.seeds),)
        return {
            name: as_real(f"measure {name!r}", f(history, task.agent), shape).tolist()
            for name, f in self.measures.items()
        }


def _play(task: Task, make_agent: bytes, experiment: bytes) -> Finished | Failure:
    """Play a task wherever this is called; what goes wrong in it is what it returns."""
    try:
        with one_thread():
            agent = pickle.loads(make_agent)(n_worlds=len(task.seeds), **task.setting)
            measures = pickle.loads(experiment).play(task, agent)
    except (Exception, SystemExit) as error:
        said = "".join(traceback.format_exception_only(error)).strip()
        return Failure(**vars(task), error=said, traceback=traceback.format_exc())
    return Finished(**vars(task), measures=measures)


def _outcomes(
    tasks: list[Task], agents: dict[str, bytes], experiment: bytes, n_jobs: int | None
) -> Iterator[Finished | Failure]:
    """Play tasks and yield what becomes of each, in the order in which they end.

    When a worker dies, joblib gives up, and nobody knows which of the tasks under way did it: each of
    them is played again by itself, then the rest together.
    """

    def play(some: Iterable[Task]) -> Iterator[Finished | Failure]:
        calls = (
            joblib.delayed(_play)(task, agents[task.agent], experiment) for task in some
        )
        # A result is fetched when its task ends, and no more tasks are under way than workers.
        return joblib.Parallel(
            n_jobs,
            return_as="generator_unordered",
            batch_size=1,
            pre_dispatch="n_jobs",
            max_nbytes=None,
        )(calls)

    _let_dask_tell_of_deaths()
    left = {task.key: task for task in tasks}
    while left:
        begun = []
        try:
            with _closed(play(_noted(list(left.values()), begun))) as outcomes:
                for outcome in outcomes:
                    del left[outcome.key]
                    yield outcome
        except _deaths_of_workers():
            suspects = [task for task in begun if task.key in left]
            if not suspects:
                raise
            for task in suspects:
                try:
                    (outcome,) = play([task])
                except _deaths_of_workers() as error:
                    said = f"the process that played it died: {error}"
                    outcome = Failure(**vars(task), error=said, traceback="")
                del left[task.key]
                yield outcome


def _let_dask_tell_of_deaths() -> None:
    """Pass on to joblib the errors of Dask itself, for which joblib 1.6 waits for ever."""
    backend, _ = joblib.parallel.get_active_backend()
    if type(backend).__name__ != "DaskDistributedBackend" or "submit" in vars(backend):
        return
    submit, retrieve = backend.submit, backend.retrieve_result_callback

    def submit_and_listen(func: Callable, callback: Callable) -> Future:
        future = submit(func, callback)  # calls back only if there is a result
        future.add_done_callback(
            lambda ended: ended.exception() and callback(ended.exception())
        )
        return future

    def retrieve_or_raise(out: object) -> object:
        if isinstance(out, Exception):
            raise out
        return retrieve(out)

    backend.submit, backend.retrieve_result_callback = (
        submit_and_listen,
        retrieve_or_raise,
    )


def _noted(tasks: Iterable[Task], begun: list[Task]) -> Iterator[Task]:
    """Hand tasks out and note which."""
    for task in tasks:
        begun.append(task)
        yield task


@contextmanager
def _closed(outcomes: Iterator[_T]) -> Iterator[Iterator[_T]]:
    """Close joblib's generator in the end, without its word on tasks that were under way."""
    try:
        yield outcomes
    finally:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            outcomes.close()


def _deaths_of_workers() -> tuple[type[Exception], ...]:
    """Return what joblib raises when a worker has died; on Dask, one after another."""
    distributed = sys.modules.get("distributed")
    return (BrokenProcessPool, *([distributed.KilledWorker] if distributed else []))


@contextmanager
def _bar(
    wanted: bool, n_left: int, finished: list[Finished], path: object
) -> Iterator[tqdm]:
    """Show how far a sweep is, and say so when it is interrupted."""
    before, total = len(finished), len(finished) + n_left
    with progress_bar(
        # Without smoothing the time that remains follows from the mean time of a task.
        wanted,
        total=total,
        initial=before,
        unit="task",
        smoothing=0,
    ) as bar:
        try:
            yield bar
        except KeyboardInterrupt:
            kept = f"are in {os.fspath(path)!r}" if path else "are lost without a path"
            bar.write(
                f"interrupted: {len(finished)} of {total} tasks are finished and {kept}",
                file=sys.stderr,
            )
            raise


def _packed(name: str, value: object) -> bytes:
    """Pickle what other processes are to call."""
    try:
        return cloudpickle.dumps(value)
    except Exception as error:  # each object has its own way to refuse
        raise TypeError(
            f"{name} must be picklable, for other processes call it: got {value!r} ({error})"
        ) from error


def _described(value: object) -> str:
    """Return a callable's name and the arguments it brings, the same in every process."""
    if isinstance(value, functools.partial):
        given = [_described(one) for one in value.args]
        given += [f"{name}={_described(one)}" for name, one in value.keywords.items()]
        return f"{_described(value.func)}({', '.join(given)})"
    if hasattr(value, "__qualname__"):
        return f"{value.__module__}.{value.__qualname__}"
    return re.sub(r" at 0x[0-9a-fA-F]+", "", repr(value))


def _check_callables(name: str, given: Mapping[str, Callable]) -> None:
    if not isinstance(given, Mapping):
        raise TypeError(
            f"{name} must be a mapping of names to callables: got {type(given).__name__}"
        )
    if not given:
        raise ValueError(f"{name} must hold at least one callable: got none")
    for key, value in given.items():
        if not isinstance(key, str) or not callable(value):
            raise TypeError(
                f"{name} must be a mapping of names to callables: got {key!r}: {value!r}"
            )


def _check_n_jobs(n_jobs: int | None) -> None:
    whole = isinstance(n_jobs, Integral) and not isinstance(n_jobs, bool)
    if n_jobs is not None and (not whole or n_jobs == 0):
        raise ValueError(
            f"n_jobs must be a whole number other than 0, or None: got {n_jobs!r}"
        )


def _checked_settings(
    settings: Mapping[str, Sequence[Value]] | Sequence[Mapping[str, Value]],
) -> list[dict[str, Value]]:
    """Return the settings one by one, with Python's own values."""
    if isinstance(settings, Mapping):
        for name, values in settings.items():
            if not _is_sequence(values):
                raise TypeError(
                    f"settings of {name!r} must be a sequence of values: got {values!r}"
                )
        settings = [
            dict(zip(settings, values, strict=True))
            for values in product(*settings.values())
        ]
    if not _is_sequence(settings) or not all(isinstance(s, Mapping) for s in settings):
        raise TypeError(
            f"settings must be a mapping, or a sequence of mappings: got {settings!r}"
        )
    if not settings:
        raise ValueError("settings must hold at least one setting: got none")
    return [
        {name: _setting(name, value) for name, value in setting.items()}
        for setting in settings
    ]


def _is_sequence(value: object) -> bool:
    return isinstance(value, Sequence | np.ndarray) and not isinstance(value, str)


def _setting(name: str, value: object) -> Value:
    """Return Python's own value, which any file can hold."""
    if not isinstance(name, str) or name in RESERVED:
        raise ValueError(
            f"settings must have names other than {', '.join(RESERVED)}: got {name!r}"
        )
    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, list | tuple):
        return tuple(_setting(name, one) for one in value)
    if isinstance(value, float):
        return as_finite(f"setting {name!r}", value)
    if value is None or isinstance(value, bool | int | str):
        return value
    raise TypeError(
        f"setting {name!r} must be a number, a string, a truth value, None, or a tuple of these: "
        f"got {value!r}"
    )


def _refuse_repeats(name: str, values: Iterable[Hashable]) -> None:
    twice = [value for value, times in Counter(values).items() if times > 1]
    if twice:
        raise ValueError(f"{name} must differ: got {twice[0]!r} more than once")
