"""The library of the book *The Adaptive Recommender*: a pet-shop world and the models that serve it.

The core holds what Part I needs. Its packages import only from those above them, and from nothing below.

=============== ======================================================================
`world`         the pet shop, its market shocks, and features of visitors and products
`models`        the ridge posterior, networks and their memory, the static recommender
`agents`        agents that choose a product: contexts, policies, bandits, baselines
`experiments`   the arena, many worlds in step, measures and intervals
=============== ======================================================================

Beside each other stand the wings, the subjects of Part II. They import from the core; the service also from
the two above it.

=============== ======================================================================
`large`         Chapter 5: product search, and networks that doubt themselves
`offpolicy`     Chapter 6: what a policy would earn, from the log of another
`monitoring`    Chapter 6: monitors that watch a running shop and raise alarms
`service`       Chapter 6: the production loop on SQLite
`sessions`      Chapter 7: a shop of sessions, its process, and agents that look ahead
=============== ======================================================================

Last come the book's own tools, in `book`: claims, records, sweeps, the gauntlet, figures, exercises. They may
import from all. A linter in ``make test`` holds every package to this plan.

An invalid argument raises a TypeError or ValueError that names it, the value given and the value expected,
and leaves all state unchanged; docstrings list only other errors.

Public names import from ``zoolib`` itself and stand in ``__init__.pyi``. Each is loaded when it is first
used, so users who need no network do not wait for PyTorch, nor need they have it: packages that only some
names need come with the extras ``neural``, ``retrieval``, ``plots`` and ``sweeps``, and an error says which.
"""

from zoolib._support.extras import attach_stub

_load, __dir__ = attach_stub(__name__, __file__)


def __getattr__(name: str) -> object:
    if name != "__version__":
        return _load(name)
    from importlib.metadata import version

    return version(__name__)  # as installed, from pyproject.toml
