"""States: what an object needs to continue exactly as before, as plain data and as bytes.

A state is a dict whose keys are strings. Its values are numbers, strings, booleans, None, arrays, and
lists and dicts of these. An object's *settings* are the arguments of its constructor, each of which it
keeps as an attribute of the same name. A state that is another class's, or has an entry that is missing,
misshapen or refused, raises a TypeError or ValueError that names it; so do bytes that are damaged.
"""

from __future__ import annotations

import importlib
import inspect
import io
import json
import os
import zipfile
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from hashlib import sha256
from pathlib import Path
from typing import Any, ClassVar, Self

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_size
from zoolib._support.files import write_whole
from zoolib._support.settings import check_settings

_ARRAY = "__array__"  # stands in JSON for an array, with its number


class Learner:
    """An object that learns and whose state can be saved.

    `_learns` names the attributes that hold what was learnt, beside those of the parent classes: arrays,
    counts, generators, learners, and lists and dicts of these. In a state they have no underscore in front.
    """

    _learns: ClassVar[tuple[str, ...]] = ()

    def state(self) -> dict[str, Any]:
        """Return a copy, as plain data, of what this object has learnt."""
        return {
            name.lstrip("_"): _plain(name, getattr(self, name))
            for name in self._all_it_learns()
        }

    def _restore(self, learned: dict[str, Any]) -> None:
        """Restore what was learnt into this new object, after checks."""
        for name in self._all_it_learns():
            self._put(name, learned, name.lstrip("_"))

    def _put(self, name: str, learned: dict[str, Any], key: str) -> None:
        found = _restored(learned, key, getattr(self, name))
        # A property shows arrays that live elsewhere and are filled by now.
        if not isinstance(getattr(type(self), name, None), property):
            setattr(self, name, found)

    @contextmanager
    def _unchanged_on_failure(self) -> Iterator[None]:
        """Undo all that is learnt in the body of the `with` statement if it fails."""
        learnt = {name: getattr(self, name) for name in self._all_it_learns()}
        before = {
            k: _plain(k, v) for k, v in learnt.items() if not isinstance(v, Learner)
        }
        with ExitStack() as learners:
            for value in vars(self).values():
                if isinstance(value, Learner):
                    learners.enter_context(value._unchanged_on_failure())
            try:
                yield
            except BaseException:
                for name in before:
                    self._put(name, before, name)
                raise

    def _all_it_learns(self) -> list[str]:
        kinds = reversed(type(self).__mro__)
        return [name for kind in kinds for name in vars(kind).get("_learns", ())]


class Stateful(Learner):
    """A learner with settings: the parent of agents and posteriors.

    Its constructor names each argument, and keeps it as an attribute of the same name. In a dataclass each
    `setting` is checked before anything else.
    """

    _kinds: ClassVar[dict[str, type[Stateful]]] = {}
    _retired: ClassVar[tuple[str, ...]] = ()  # settings of earlier releases, not read

    def __init_subclass__(cls, **options: Any) -> None:
        super().__init_subclass__(**options)
        Stateful._kinds[cls._known_as()] = cls

    @classmethod
    def _known_as(cls) -> str:
        """Return the name of the class in states: with its module, unless it is the library's."""
        ours = cls.__module__.startswith("zoolib.")
        return cls.__name__ if ours else f"{cls.__module__}.{cls.__qualname__}"

    @classmethod
    def _least_numbers(cls, settings: dict[str, Any]) -> float:
        """Return the least number of entries that a state with these settings can have."""
        return settings.get("n_worlds") or 0

    def __post_init__(self) -> None:
        check_settings(self)

    def __repr__(self) -> str:
        """Show the class, and the settings that are not the defaults."""
        shown = (
            f"{name}={_short(self._setting(name))}"
            for name, parameter in inspect.signature(type(self)).parameters.items()
            if hasattr(self, name)
            and not np.array_equal(self._setting(name), parameter.default)
        )
        return f"{type(self).__name__}({', '.join(shown)})"

    def state(self) -> dict[str, Any]:
        """Return a copy, as plain data, of all that this object needs to continue exactly as it would.

        Raises
        ------
        TypeError
            If a setting is not plain data.
        """
        try:
            settings = {
                name: _plain(name, self._setting(name))
                for name in inspect.signature(type(self)).parameters
            }
        except AttributeError as error:
            raise TypeError(
                f"{type(self).__name__} must keep each argument of its constructor: {error}"
            ) from None
        return {
            "class": self._known_as(),
            "settings": settings,
            "learned": super().state(),
        }

    def _setting(self, name: str) -> Any:
        """Return an argument of the constructor."""
        return getattr(self, name)

    @classmethod
    def from_state(cls, state: dict[str, Any]) -> Self:
        """Return an object that continues exactly as the one whose `state` this is.

        Parameters
        ----------
        state : dict
            As `state` returned it, of this class or a class derived from it.
        """
        name = _entry(state, "class", str)
        if "." not in name:  # the library's: loaded when it is first asked for
            getattr(importlib.import_module("zoolib"), name, None)
        kind = Stateful._kinds.get(name)
        if not (isinstance(kind, type) and issubclass(kind, cls)):
            raise ValueError(f"state must be that of a {cls.__name__}: got {name!r}")
        learned = _entry(state, "learned", dict)
        settings = _entry(state, "settings", dict)
        settings = {key: settings[key] for key in settings if key not in kind._retired}
        wanted = inspect.signature(kind).parameters
        if set(settings) != set(wanted):
            raise ValueError(
                f"settings of {name} must be {sorted(wanted)}: got {sorted(settings)}"
            )
        try:
            for key, value in settings.items():
                if isinstance(value, dict):
                    settings[key] = Stateful.from_state(value)
            # Before arrays are made for it.
            if kind._least_numbers(settings) > (found := _count(learned)):
                raise ValueError(
                    f"settings of {name} must fit the {found} numbers learned"
                )
            thing = kind(**settings)
            thing._restore(learned)
        except (MemoryError, OverflowError, RecursionError) as error:
            raise ValueError(f"state asks for more than there is: {error}") from error
        return thing

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the state to a file; an existing file is replaced only when all is written."""
        blob = to_bytes(self.state())
        write_whole(path, lambda file: file.write(blob))

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> Self:
        """Return an object from a file that `save` wrote."""
        try:
            state = from_bytes(Path(path).read_bytes())
        except ValueError as error:
            raise ValueError(
                "path must hold the bytes of a state, as save wrote them: "
                f"got {Path(path).name!r} ({error.__cause__})"
            ) from error
        return cls.from_state(state)


def to_bytes(state: dict) -> bytes:
    """Return a state as bytes, the same for equal states: an ``.npz`` of its arrays and the rest as JSON."""
    arrays: list[NDArray] = []

    def place(value: object) -> dict[str, int]:
        if not isinstance(value, np.ndarray):
            raise TypeError(f"state must hold plain data: got {type(value).__name__}")
        arrays.append(value)
        return {_ARRAY: len(arrays) - 1}

    text = np.frombuffer(json.dumps(state, default=place).encode(), np.uint8)
    file = io.BytesIO()
    named = {str(number): value for number, value in enumerate(arrays)}
    np.savez(file, allow_pickle=False, state=text, **named)
    return file.getvalue()


def from_bytes(blob: bytes) -> dict:
    """Return the state that `to_bytes` wrote."""

    def found(pairs: dict) -> object:
        return arrays[str(pairs[_ARRAY])] if _ARRAY in pairs else pairs

    try:
        with zipfile.ZipFile(io.BytesIO(blob)) as file:
            # What is packed may be far larger than it looks.
            if sum(part.file_size for part in file.infolist()) > len(blob):
                raise ValueError("it is compressed")
            if damaged := file.testzip():  # compares the check sums
                raise ValueError(f"{damaged} is damaged")
        with np.load(io.BytesIO(blob), allow_pickle=False) as file:
            arrays = dict(file)
        return json.loads(arrays["state"].tobytes(), object_hook=found)
    except Exception as error:  # bytes of another origin fail in many ways
        raise ValueError(
            f"blob must be the bytes of a state: got {len(blob)} bytes ({error})"
        ) from error


def _entry(state: dict, name: str, kind: type = object) -> Any:
    """Return one entry of a state."""
    if not isinstance(state, dict) or name not in state:
        got = sorted(state) if isinstance(state, dict) else type(state).__name__
        raise ValueError(f"state must have an entry {name!r}: got {got}")
    if not isinstance(state[name], kind):
        raise ValueError(
            f"{name} must be of type {kind.__name__}: got {type(state[name]).__name__}"
        )
    return state[name]


def _count(learned: object) -> int:
    """Return the number of entries of arrays, lists and dicts in what was learnt."""
    if isinstance(learned, np.ndarray):
        return learned.size
    if isinstance(learned, dict):
        learned = list(learned.values())
    return sum(map(_count, learned)) if isinstance(learned, list) else 1


def _plain(name: str, value: object) -> object:
    """Return a setting, or what was learnt, as plain data; learners and generators become their states."""
    if isinstance(value, np.ndarray):  # first: all weights are copied at each training
        return value.copy()
    if isinstance(value, np.generic):
        return value.item()
    if value is None or isinstance(value, bool | int | float | str):
        return value
    if isinstance(value, list | tuple):
        return [_plain(name, one) for one in value]
    if isinstance(value, dict):
        return {key: _plain(key, one) for key, one in value.items()}
    if isinstance(value, np.dtype):
        return value.name
    if isinstance(value, np.random.Generator):
        return value.bit_generator.state
    if isinstance(value, Learner):
        return value.state()
    raise TypeError(
        f"{name} must be plain data to be saved: got {type(value).__name__}"
    )


def _restored(state: dict, name: str, new: Any) -> Any:
    """Return what `_plain` wrote as one entry of a state; arrays and learners are filled in place."""
    given = _entry(state, name, dict if isinstance(new, Learner | dict) else object)
    if isinstance(new, int):
        return as_size(name, given, least=0, most=2**53)
    if isinstance(new, dict):
        return {key: _restored(given, key, one) for key, one in new.items()}
    if isinstance(new, list | tuple):
        if not isinstance(given, list) or len(given) != len(new):
            raise ValueError(
                f"{name} must be a list of {len(new)} entries: got {given!r:.200}"
            )
        pairs = zip(given, new, strict=True)
        return [_restored({name: one}, name, mine) for one, mine in pairs]
    if isinstance(new, Stateful):
        new._restore(_entry(given, "learned", dict))
    elif isinstance(new, Learner):
        new._restore(given)
    elif isinstance(new, np.ndarray):
        new[...] = _array(name, given, new)
    else:
        try:
            new.bit_generator.state = given
        except (TypeError, ValueError, KeyError, OverflowError) as error:
            raise ValueError(
                f"{name} must hold states of generators: got {given!r:.200}"
            ) from error
    return new


def _array(name: str, given: object, like: NDArray) -> NDArray:
    """Return an array of the shape and type of another, its numbers finite."""
    array = np.asarray(given)
    if array.shape != like.shape or array.dtype != like.dtype:
        raise ValueError(
            f"{name} must have shape {like.shape} and dtype {like.dtype}: "
            f"got {array.shape} and {array.dtype}"
        )
    if not np.isfinite(array).all():
        raise ValueError(f"{name} must be finite: got NaN or infinity")
    return array


def _short(value: object) -> str:
    if isinstance(value, np.dtype):
        return repr(value.name)
    if isinstance(value, np.ndarray) and value.size > 10 and value.dtype != object:
        return f"<{array_text(value)}>"
    return repr(value.tolist() if isinstance(value, np.ndarray) else value)


def array_text(value: NDArray) -> str:
    """Return a text that differs if an array does: its shape and a digest, of doubles in single precision."""
    exact = value.dtype.kind != "f" or value.dtype.itemsize < 8
    numbers = value if exact else value.astype(np.float32)
    return f"array {value.shape} {digest(numbers.tobytes())}"


def digest(content: bytes) -> str:
    """Return twelve digits that stand for what bytes say."""
    return sha256(content).hexdigest()[:12]
