r"""Find the symbols in a piece of TeX, and the shapes that it states.

A symbol is a letter with its accent or alphabet and its subscript: ``\hat\theta_a`` is one, and the
``a`` in its subscript another. Operators and relations are symbols too, by the names of their commands,
and so are functions, such as ``\mathrm{KL}``. Words in ``\text``, digits, brackets and spaces are none.

Why our own: parsers of TeX (pylatexenc, SymPy's) give its tree or its algebra; what is one symbol and
what a mark of one is a convention of this book, and needs no tree.
"""

from __future__ import annotations

import re
from collections.abc import Iterator
from typing import NamedTuple

BRACES = r"\{(?:[^{}]|\{(?:[^{}]|\{[^{}]*\})*\})*\}"
ARGUMENT = rf"\s*(?:{BRACES}|\\(?:text|mathrm|hat|bar)\s*{BRACES}|\\[A-Za-z]+|\S)"
NAME = rf"\\(?:hat|tilde|bar|mathcal|mathbb|mathrm|operatorname){ARGUMENT}|\\[A-Za-z]+|[A-Za-z]"
SYMBOL = rf"(?P<name>{NAME})(?P<scripts>(?:\s*(?:[_^]{ARGUMENT}|'))*)"
WORDS = rf"\\(?:text|begin|end)\s*(?P<words>{BRACES})"
LAYOUT = (
    r"\\(?:left|right|[bB]ig[lrm]?|q?quad|t?frac|sqrt|underbrace|[lr]?Vert|[lr]ceil)(?![A-Za-z])"
    r"|\\[^A-Za-z]"
)
SCAN = re.compile(f"{WORDS}|{LAYOUT}|{SYMBOL}", re.DOTALL)


class Symbol(NamedTuple):
    """A letter, command or function, and the mark that tells it from others of its name.

    The mark is a subscript, or a star above. A subscript of words makes another symbol; one of letters
    or digits may as well name a part or a copy of what the bare letter is.
    """

    name: str
    mark: str = ""

    @property
    def bare(self) -> Symbol:
        return self if "\\text" in self.mark else Symbol(self.name)

    def __str__(self) -> str:
        return self.name + self.mark


def symbols(tex: str) -> list[Symbol]:
    """List the symbols of a formula in their order, those in subscripts too."""
    return list(_scan(tex))


def single(tex: str) -> Symbol | None:
    r"""Return the symbol that a formula consists of, or None: ``\hat\theta_a``, but not ``A^{-1} b``."""
    found = re.fullmatch(rf"\s*{SYMBOL}\s*", re.sub(LAYOUT, "", tex), re.DOTALL)
    return _symbol(found) if found else None


def stated_shapes(tex: str) -> Iterator[tuple[Symbol, list[str]]]:
    r"""Find ``X \in \mathbb{R}^{m \times d}`` and ``X = … \in \mathbb{R}^d``: the symbol and its axes."""
    for part in re.split(r",(?![^{]*\})|&|\\\\|\\qquad|\\quad", tex):
        left, _, right = part.partition(r"\in")
        found = re.match(rf"\s*\\mathbb\s*\{{?R\}}?\s*\^({ARGUMENT})", right)
        symbol = single(left.partition("=")[0])
        if found and symbol:
            yield symbol, _content(found[1]).split(r"\times")


def _scan(tex: str) -> Iterator[Symbol]:
    for found in SCAN.finditer(tex):
        if found["words"]:
            for formula in re.findall(r"\$(.*?)\$", found["words"]):
                yield from _scan(formula)
        elif found["name"]:
            yield _symbol(found)
            yield from _scan(found["scripts"])


def _symbol(found: re.Match[str]) -> Symbol:
    name = found["name"]
    if accented := re.fullmatch(rf"(\\[a-z]+)({ARGUMENT})", name, re.DOTALL):
        command, inside = accented.groups()
        if not re.fullmatch(r"\\[A-Za-z]+", name):
            name = f"{command}{{{_content(inside)}}}"
    mark = ""
    for kind, script in re.findall(rf"([_^])({ARGUMENT})", found["scripts"]):
        inside = _content(script)
        if kind == "_" or inside == "*":
            one = re.fullmatch(r"\w|\d+|\\[A-Za-z]+|\*", inside)
            mark += kind + (inside if one else f"{{{inside}}}")
    return Symbol(name, mark)


def _content(argument: str) -> str:
    """Take off the braces of an argument, its layout and its spaces."""
    argument = argument.strip()
    if re.fullmatch(BRACES, argument, re.DOTALL):
        argument = argument[1:-1]
    return re.sub(r"\s", "", re.sub(LAYOUT, "", argument))
