"""Optional packages: if a missing one is needed, the error names the extra that brings it."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from functools import partial

import lazy_loader

# What each package that the core does without is called, and the extra of zoolib that brings it.
EXTRAS = {
    "torch": ("PyTorch", "neural"),
    "sklearn": ("scikit-learn", "neural"),
    "faiss": ("Faiss", "retrieval"),
    "matplotlib": ("Matplotlib", "plots"),
    "seaborn": ("seaborn", "plots"),
    "joblib": ("joblib", "sweeps"),
    "cloudpickle": ("cloudpickle", "sweeps"),
    "gymnasium": ("Gymnasium", "sessions"),
    "IPython": ("IPython", "book"),
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


class Starred(str):
    """A name in ``__all__``: ``from package import *`` asks for it with this very object.

    So it can be told from a name that somebody imports because they need it.
    """


class Missing:
    """Stands for what a missing package is needed for: whoever uses it hears which extra brings that."""

    def __init__(self, load: Callable[[], object]) -> None:
        self._load = load

    def __call__(self, *args: object, **options: object) -> object:
        return self._load()(*args, **options)

    def __getattr__(self, name: str) -> object:
        return getattr(self._load(), name)


def attach_stub(
    package: str, file: str
) -> tuple[Callable[[str], object], Callable[[], list[str]], list[str]]:
    """Return ``__getattr__``, ``__dir__`` and ``__all__`` of a package whose stub lists its names.

    Each name is loaded when it is first used; ``from package import *`` passes over what is missing.
    """
    load, listed, names = lazy_loader.attach_stub(package, file)

    def load_or_explain(name: str) -> object:
        plain = str(name)
        try:
            with needed_by(f"{package}.{plain}"):
                return load(plain)
        except ModuleNotFoundError:
            if isinstance(name, Starred):
                return Missing(partial(load_or_explain, plain))
            raise

    return load_or_explain, listed, [Starred(name) for name in names]
