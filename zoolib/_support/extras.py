"""Optional packages: if a missing one is needed, the error names the extra that brings it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager

import lazy_loader

# What each package is called that only some names need, and the extra of zoolib that brings it.
EXTRAS = {
    "torch": ("PyTorch", "neural"),
    "sklearn": ("scikit-learn", "neural"),
    "faiss": ("Faiss", "retrieval"),
    "matplotlib": ("Matplotlib", "plots"),
    "seaborn": ("seaborn", "plots"),
    "joblib": ("joblib", "sweeps"),
    "cloudpickle": ("cloudpickle", "sweeps"),
    "IPython": ("IPython", "book"),
    "ipykernel": ("ipykernel", "grade"),
    "jupyter_client": ("jupyter_client", "grade"),
    "psutil": ("psutil", "grade"),
    "zmq": ("PyZMQ", "grade"),
}


@contextmanager
def needed_by(what: str) -> Iterator[None]:
    """Import packages of an extra inside this context: if one is missing, the error says that `what` needs it.

    Where one thing is imported for another, the error names the outermost.
    """
    try:
        yield
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        package, extra = EXTRAS[error.name]
        raise ModuleNotFoundError(
            f'{what} needs {package}: pip install "zoolib[{extra}]"', name=error.name
        ) from None


def attach_stub(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]]]:
    """Return ``__getattr__`` and ``__dir__`` of a package whose stub lists its names.

    Each name is loaded when it is first used; ``from package import *`` brings those that can be loaded.
    """
    load, listed, names = lazy_loader.attach_stub(package, file)

    def load_or_explain(name: str) -> object:
        if name == "__all__":
            return [one for one in names if _loads(load, one)]
        with needed_by(f"{package}.{name}"):
            return load(name)

    return load_or_explain, listed


def _loads(load: Callable[[str], object], name: str) -> bool:
    try:
        load(name)
    except ModuleNotFoundError as error:
        if error.name not in EXTRAS:
            raise
        return False
    return True
