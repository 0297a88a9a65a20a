"""Texts by which a record knows what was asked: of settings, and of functions and classes by what they do."""

from __future__ import annotations

import ast
import dataclasses
import dis
import inspect
import linecache
import re
import sys
from collections.abc import Iterable, Mapping
from functools import cache, partial
from types import CodeType, FunctionType, MethodType, ModuleType

import numpy as np

from zoolib._support.state import array_text, digest

# What a text says of what a function does; without these marks it says only what was asked.
MARK = re.compile(r"#[0-9a-f]{12}")
# Records say what these modules were called when pages first read them.
RECORDED_AS = {
    "zoolib.offpolicy": "zoolib.experiments.offpolicy",
    "zoolib.book.gauntlet": "zoolib.experiments.gauntlet",
}
DEFINITIONS = ast.FunctionDef | ast.AsyncFunctionDef


def described(name: str, value: object, within: tuple[object, ...] = ()) -> str:
    """Return a text that differs if the value does, the same in every process and on every processor.

    Functions and classes of packages are known by name. Others, such as those of a page, carry a mark that
    stands for their code, without comments, docstrings and layout, and for all that this reads: other
    such functions, and data. Floating-point numbers count to nine digits, arrays of them in single precision.

    Parameters
    ----------
    name : str
        What the value is, for errors.
    value : object
        Plain data, a callable, or an object whose repr says everything.
    within : tuple of object
        The functions and classes in whose description this stands: a recursion ends there.
    """

    def parts(values: Iterable[object]) -> list[str]:
        return [described(name, one, within) for one in values]

    if isinstance(value, np.generic):
        value = value.item()
    if isinstance(value, float):
        return f"{value:.9g}"
    if isinstance(value, np.ndarray) and value.dtype != object:
        return array_text(value)
    if isinstance(value, list | tuple):
        return f"[{', '.join(parts(value))}]"
    if isinstance(value, set | frozenset):
        return f"{{{', '.join(sorted(parts(value)))}}}"
    if isinstance(value, Mapping):
        pairs = zip(parts(value), parts(value.values()), strict=True)
        return f"{{{', '.join(map(': '.join, pairs))}}}"
    if isinstance(value, partial):
        pairs = zip(value.keywords, parts(value.keywords.values()), strict=True)
        given = [*parts(value.args), *map("=".join, pairs)]
        return f"{parts([value.func])[0]}({', '.join(given)})"
    if isinstance(value, MethodType):
        return ".".join(parts([value.__self__, value.__func__]))
    if isinstance(value, ModuleType):
        return RECORDED_AS.get(value.__name__, value.__name__)
    value = inspect.unwrap(value) if callable(value) else value
    if isinstance(value, FunctionType | type):
        return value.__qualname__ + _mark(name, value, within)
    text = repr(value)
    mark = _mark(name, type(value), within)
    if not re.search(r" at 0x|\.\.\.", text):
        return text + mark
    if dataclasses.is_dataclass(value):
        fields = {f.name: getattr(value, f.name) for f in dataclasses.fields(value)}
        return f"{type(value).__qualname__}{mark}({described(name, fields, within)})"
    raise TypeError(
        f"{name} must be plain data, a function, or an object whose repr says all: got {text:.80}; "
        "pass a setting from which the function makes it"
    )


def _mark(name: str, made: FunctionType | type, within: tuple[object, ...]) -> str:
    """Return the mark of what a function or class does; nothing if it comes from a package."""
    if made in within:
        return ""
    if _is_of_package(made.__module__):  # of a function, what it took along
        cells = getattr(made, "__closure__", None) or ()
        texts = [described(name, cell.cell_contents, within) for cell in cells]
        return f"({', '.join(texts)})" if texts else ""
    reads = _read(made) if isinstance(made, FunctionType) else _members(made)
    what = f"{{}}, which {made.__qualname__} reads,"
    within = (*within, made)
    texts = [f"{k}={described(what.format(k), v, within)}" for k, v in reads.items()]
    return f"#{digest(repr(sorted(texts)).encode())}"


def _is_of_package(module: str) -> bool:
    root = module.partition(".")[0]
    if root == "__main__":  # whose file may be the kernel's
        return False
    file = getattr(sys.modules.get(module), "__file__", None) or ""
    known = root == "zoolib" or root in sys.stdlib_module_names
    return known or bool(re.search("(site|dist)-packages", file))


def _members(made: type) -> dict[str, object]:
    """Return what whoever wrote a class put into it."""
    found = {"bases": made.__bases__}
    theirs = [f for base in made.__bases__ for f in _fields(base).values()]
    found["fields"] = [name for name, f in _fields(made).items() if f not in theirs]
    for key, one in vars(made).items():
        code = getattr(one, "__code__", None)
        generated = code and (code.co_filename == "<string>" or "__annotate" in key)
        if not generated and (code or not key.startswith(("__", "_abc_"))):
            found[key] = getattr(one, "__func__", getattr(one, "fget", one))
    return found


def _fields(made: type) -> dict[str, dataclasses.Field]:
    return getattr(made, "__dataclass_fields__", {})


def _read(function: FunctionType) -> dict[str, object]:
    """Return the code of a function and what it finds outside: defaults, variables around it, globals."""
    code = function.__code__
    reads = {"code": _code(code)}
    reads |= {"defaults": function.__defaults__, "named": function.__kwdefaults__}
    names = _names(code)
    reads |= {n: of for n, of in function.__globals__.items() if n in names}
    for name, cell in zip(code.co_freevars, function.__closure__ or (), strict=True):
        if name != "__class__":  # which is there for `super`
            reads[name] = cell.cell_contents
    return reads


@cache
def _names(code: CodeType) -> set[str]:
    """Return the globals that code reads, and the code inside it."""
    loads = dis.get_instructions(code)
    names = {one.argval for one in loads if one.opname in ("LOAD_GLOBAL", "LOAD_NAME")}
    return names.union(
        *(_names(one) for one in code.co_consts if isinstance(one, CodeType))
    )


@cache
def _code(code: CodeType) -> str:
    """Return the code of a function without what does nothing, in every version of Python the same."""
    wanted = ast.Lambda if code.co_name == "<lambda>" else DEFINITIONS
    tree = ast.parse("".join(linecache.getlines(code.co_filename)))
    found = [node for node in ast.walk(tree) if isinstance(node, wanted)]
    here = [_shape(node) for node in found if _first_line(node) == code.co_firstlineno]
    if not here:
        raise TypeError(
            f"{code.co_name} must come from a file or a notebook: its source is not found"
        )
    return ", ".join(here)


def _first_line(node: ast.Lambda | ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    decorators = getattr(node, "decorator_list", [])
    return min(one.lineno for one in (node, *decorators))


def _shape(node: object) -> str:
    """Return a syntax tree as text: what is empty is left out, which Python's versions print or not."""
    if isinstance(node, list):
        return f"[{', '.join(map(_shape, node))}]"
    if not isinstance(node, ast.AST):
        return repr(node)
    if isinstance(node, DEFINITIONS) and ast.get_docstring(node) is not None:
        node.body = node.body[1:]
    fields = [
        f"{k}={_shape(v)}" for k, v in ast.iter_fields(node) if v not in (None, [])
    ]
    return f"{type(node).__name__}({', '.join(fields)})"
