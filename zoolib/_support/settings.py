"""Settings declared once: a field of a dataclass, and beside it the check that its value must pass.

A check is a function of a name and a value, such as those in `checks`; it returns the value, converted, or
raises an error that names it. `tests/test_settings.py` tries each declared setting with values to refuse.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import MISSING, field, fields, is_dataclass
from functools import partial
from typing import Any

from zoolib._support.checks import as_one_of

Check = Callable[[str, Any], Any]


def setting(check: Check, default: Any = MISSING, **options: Any) -> Any:
    """Declare a field of a dataclass with its check and, as for `dataclasses.field`, a default and options."""
    return field(default=default, metadata={"check": check}, **options)


def optional(check: Check) -> Check:
    """Return a check that lets None pass."""
    return partial(_optional, check)


def each(check: Check) -> Check:
    """Return a check of each entry of a sequence, which becomes a tuple."""
    return partial(_each, check)


def one_of(*known: str) -> Check:
    """Return a check that a value is one of these names."""
    return partial(as_one_of, known=known)


def check_settings(thing: object) -> None:
    """Replace each declared setting of a dataclass by what its check returns."""
    for one in fields(thing) if is_dataclass(thing) else ():
        if check := one.metadata.get("check"):
            # Also where a dataclass is frozen.
            object.__setattr__(
                thing, one.name, check(one.name, getattr(thing, one.name))
            )


def _optional(check: Check, name: str, value: Any) -> Any:
    return None if value is None else check(name, value)


def _each(check: Check, name: str, value: Any) -> tuple[Any, ...]:
    try:
        entries = tuple(value)
    except TypeError:
        raise TypeError(f"{name} must be a sequence: got {value!r:.100}") from None
    return tuple(check(name, one) for one in entries)
