"""The library of the book *The Adaptive Recommender*: a pet-shop world and the models that serve it.

Packages import only from those above them in this list; a linter in ``make test`` holds them to it.

=============== ======================================================================
`world`         the pet shop, its market shocks, and features of visitors and products
`models`        the ridge posterior, networks, the static recommender, product search
`agents`        agents that choose a product: contexts, policies, bandits, baselines
`experiments`   the arena, many worlds in step, intervals, sweeps, off-policy estimates
`monitoring`    monitors that watch a running shop and raise alarms
`service`       the production loop on SQLite
`book`          the book's own tools: claims, figures, exercises
=============== ======================================================================

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
