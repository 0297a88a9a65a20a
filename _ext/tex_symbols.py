r"""Find the symbols in a piece of TeX, and the shapes that it states.

A symbol is a letter with its accent or alphabet and its subscript: ``\hat\theta_a`` is one, and the
``a`` in its subscript another. Operators and relations are symbols too, by the names of their commands,
and so are functions, such as ``\mathrm{KL}``. Words in ``\text``, digits, brackets and spaces are none.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from typing import NamedTuple

TOKEN = re.compile(r"\\[A-Za-z]+|\\.|[A-Za-z]|\d+|[^\sA-Za-z\d]", re.DOTALL)
ACCENTS = {"\\hat", "\\tilde", "\\bar", "\\mathcal", "\\mathbb"}
FUNCTIONS = {"\\mathrm", "\\operatorname"}
WORDS = {"\\text", "\\begin", "\\end"}
LAYOUT = re.compile(
    r"\\(left|right|[bB]ig[lrm]?|q?quad|t?frac|sqrt|underbrace|[lr]?Vert|[lr]ceil|[^A-Za-z])"
)


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
    return list(_scan(TOKEN.findall(tex)))


def single(tex: str) -> Symbol | None:
    r"""Return the symbol that a formula consists of, or None: ``\hat\theta_a``, but not ``A^{-1} b``."""
    tokens = [t for t in TOKEN.findall(tex) if not LAYOUT.fullmatch(t)]
    symbol, _, after = _read(tokens, 0) if tokens else (None, [], 0)
    return symbol if after == len(tokens) else None


def stated_shapes(tex: str) -> Iterator[tuple[Symbol, list[str]]]:
    r"""Find ``X \in \mathbb{R}^{m \times d}`` and ``X = … \in \mathbb{R}^d``: the symbol and its axes."""
    for part in re.split(r",(?![^{]*\})|&|\\\\|\\qquad|\\quad", tex):
        left, _, right = part.partition(r"\in")
        found = re.match(r"\s*\\mathbb\s*\{?R\}?\s*\^", right)
        symbol = single(left.partition("=")[0])
        if found and symbol:
            axes, _ = _argument(TOKEN.findall(right[found.end() :]), 0)
            yield symbol, "".join(axes).split(r"\times")


def _scan(tokens: Sequence[str]) -> Iterator[Symbol]:
    at = 0
    while at < len(tokens):
        symbol, inside, at = _read(tokens, at)
        if symbol:
            yield symbol
        yield from _scan(inside)


def _read(tokens: Sequence[str], at: int) -> tuple[Symbol | None, list[str], int]:
    """Read what stands at a place: a symbol or None, tokens inside it to be read, the place after it."""
    token = tokens[at]
    if token in WORDS:
        words, after = _argument(tokens, at + 1)
        return None, _formulas(words), after
    if token in ACCENTS | FUNCTIONS:
        letters, after = _argument(tokens, at + 1)
        token = f"{token}{{{''.join(letters)}}}"
    elif token[-1].isalpha() and not LAYOUT.fullmatch(token):
        after = at + 1
    else:
        return None, [], at + 1
    mark, inside = "", []
    while after < len(tokens) and tokens[after] in "_^'":
        kind = tokens[after]
        script, after = ([], after + 1) if kind == "'" else _argument(tokens, after + 1)
        inside += script
        if kind == "_" or script == ["*"]:
            mark += kind + _braced([t for t in script if not LAYOUT.fullmatch(t)])
    return Symbol(token, mark), inside, after


def _argument(tokens: Sequence[str], at: int) -> tuple[list[str], int]:
    """Return the tokens of the argument at a place, without its braces, and the place after it."""
    if at >= len(tokens):
        return [], at
    if tokens[at] in ACCENTS | FUNCTIONS | WORDS:
        _, after = _argument(tokens, at + 1)
        return list(tokens[at:after]), after
    if tokens[at] != "{":
        return [tokens[at]], at + 1
    depth = 0
    for after in range(at, len(tokens)):
        depth += (tokens[after] == "{") - (tokens[after] == "}")
        if depth == 0:
            return list(tokens[at + 1 : after]), after + 1
    return list(tokens[at + 1 :]), len(tokens)


def _formulas(words: list[str]) -> list[str]:
    """Keep what stands between dollars inside words."""
    inside = [i for i, token in enumerate(words) if token == "$"]
    return [
        t for a, b in zip(inside[::2], inside[1::2], strict=False) for t in words[a:b]
    ]


def _braced(tokens: list[str]) -> str:
    return tokens[0] if len(tokens) == 1 else f"{{{''.join(tokens)}}}"
