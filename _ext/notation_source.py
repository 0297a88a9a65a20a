"""The source of the book's symbols, and what it says of mathematics; nothing of Sphinx.

Each entry of ``chapters/notation.yml`` is one meaning, with the places where it holds.
"""

from __future__ import annotations

import textwrap
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import yaml
from tex_symbols import Symbol, single, stated_shapes, symbols

LISTS = {"symbol", "where", "code", "names"}


@dataclass(frozen=True, eq=False)
class Entry:
    """One meaning: of one symbol, or of several that are explained together.

    Parameters
    ----------
    symbol : list of str
        TeX.
    means : str
        MyST.
    where : list of str
        Pages, or places on them as ``page#id``, the id being that of a section, exercise or theorem. An
        inner place overrules an outer one.
    shape : list of str, optional
        Axes: TeX of dimensions, or numbers. The empty list is a scalar.
    range : str, optional
        Which values it takes; MyST.
    code : list of str, optional
        Expressions that evaluate to it, or calls such as ``Agent(alpha=...)`` for a parameter.
    worlds : bool
        Whether in several worlds these values have a leading axis W.
    names : list of str, optional
        Names in the shapes of docstrings; an entry that has the field is a dimension.
    apart : str, optional
        How a reader tells it from another meaning in the same place.
    """

    symbol: list[str]
    means: str
    where: list[str]
    shape: list[str] | None = None
    range: str = ""
    code: list[str] = field(default_factory=list)
    worlds: bool = False
    names: list[str] | None = None
    apart: str = ""

    @classmethod
    def read(cls, fields: dict[str, Any], folder: str = "") -> Entry:
        """Make an entry of its fields in the source, where one text may stand for a list of one."""
        given = {
            key: [value] if key in LISTS and isinstance(value, str) else value
            for key, value in fields.items()
        }
        given["where"] = [folder + place for place in given["where"]]
        if "shape" in given:
            given["shape"] = [str(axis) for axis in given["shape"]]
        for tex in given["symbol"]:
            if single(tex) is None:
                raise ValueError(f"symbol must be a single one: got {tex!r}")
        return cls(**given)

    @cached_property
    def symbols(self) -> list[Symbol]:
        return [single(tex) for tex in self.symbol]


class Source:
    """What the source says.

    Parameters
    ----------
    text : str
        YAML. ``entries``: see `Entry`; ``passages``: more of them, for letters that serve a passage only.
        ``headings``: of the tables, by page. ``operators``: commands
        that are no quantities. ``indices``: letters that count. ``axes``: names in the shapes of
        docstrings that are no symbols, and what they mean. ``objects``: expressions that build what the
        entries' code is evaluated with.
    folder : str
        What to put before the names of pages.

    Raises
    ------
    ValueError, TypeError
        If an entry has an unknown field or lacks one, or a shape has an unknown dimension.
    """

    def __init__(self, text: str, folder: str = "") -> None:
        content = yaml.safe_load(text)
        self.passages = [
            Entry.read(fields, folder) for fields in content.get("passages", [])
        ]
        chapters = [Entry.read(fields, folder) for fields in content["entries"]]
        self.entries = chapters + self.passages
        self.headings: dict[str, str] = content.get("headings", {})
        self.free = {
            *content.get("operators", "").split(),
            *content.get("indices", "").split(),
        }
        self.axes: dict[str, str] = content.get("axes", {})
        self.objects: dict[str, str] = content.get("objects", {})
        self.folder = folder
        self.dimensions = {
            tex: entry
            for entry in self.entries
            if entry.names is not None
            for tex in entry.symbol
        }
        for entry in self.entries:
            for axis in entry.shape or []:
                if not axis.isdigit() and axis not in self.dimensions:
                    raise ValueError(
                        f"shape must consist of numbers and dimensions: got {axis!r} for {entry.symbol}"
                    )

    @cached_property
    def axis_names(self) -> set[str]:
        """What a shape in a docstring may be made of."""
        names = {name for entry in self.dimensions.values() for name in entry.names}
        return names | set(self.axes)

    @cached_property
    def by_symbol(self) -> dict[Symbol, list[Entry]]:
        held: dict[Symbol, list[Entry]] = {}
        for entry in self.entries:
            for symbol in entry.symbols:
                held.setdefault(symbol, []).append(entry)
        return held

    @cached_property
    def pages(self) -> set[str]:
        """Pages that entries speak of: there a symbol needs an entry for its place."""
        return {
            place.partition("#")[0] for entry in self.entries for place in entry.where
        }

    def home(self, entry: Entry) -> str:
        """Name the heading that an entry stands under: the page that introduces it, or passages."""
        page = entry.where[0].removeprefix(self.folder).partition("#")[0]
        return "passages" if entry in self.passages else page

    def knows(self, symbol: Symbol) -> bool:
        """Whether a symbol needs no entry, or has one for any place."""
        return symbol.name in self.free or bool(
            {symbol, symbol.bare} & self.by_symbol.keys()
        )

    def find(
        self, symbol: Symbol, places: list[str]
    ) -> list[tuple[Entry, Symbol, str]]:
        """Return the entries for a symbol, each with its own name for symbol and place.

        The symbol with its mark comes before the bare one, and inner places before outer.

        Parameters
        ----------
        symbol : Symbol
        places : list of str
            What it stands in, outermost first.
        """
        for sought in dict.fromkeys((symbol, symbol.bare)):
            for place in reversed(places):
                found = [e for e in self.by_symbol.get(sought, []) if place in e.where]
                if found:
                    return [(entry, sought, place) for entry in found]
        return []


class Use(NamedTuple):
    """Mathematics on a page: TeX, line, and what it stands in as (id, title), outermost first."""

    page: str
    tex: str
    line: int | None
    inside: tuple[tuple[str, str], ...] = ()

    @property
    def words(self) -> str:
        return textwrap.shorten(self.tex, 70)

    @property
    def places(self) -> list[str]:
        return [self.page, *(f"{self.page}#{one}" for one, _ in self.inside)]


class Fault(NamedTuple):
    """What is wrong, and the page and line where, or nothing if it is the source."""

    message: str
    page: str = ""
    line: int | None = None


def faults(source: Source, uses: Iterable[Use]) -> Iterator[Fault]:
    """Compare the mathematics of all pages with the source."""
    needed = set()
    for use in uses:
        for symbol in dict.fromkeys(symbols(use.tex)):
            found = source.find(symbol, use.places)
            needed |= {(entry, part) for entry, *parts in found for part in parts}
            strict = use.page in source.pages and symbol.name not in source.free
            if not found and (strict or not source.knows(symbol)):
                yield Fault(
                    f"{symbol} has no meaning in ${use.words}$", use.page, use.line
                )
            if sum(not entry.apart for entry, *_ in found) > 1:
                yield Fault(
                    f"{symbol} has two meanings in ${use.words}$", use.page, use.line
                )
        for symbol, axes in stated_shapes(use.tex):
            for entry, *_ in source.find(symbol, use.places):
                if entry.shape is not None and entry.shape != axes:
                    yield Fault(
                        f"{symbol} has shape {entry.shape}, not {axes}",
                        use.page,
                        use.line,
                    )
    for entry in source.entries:
        for part in (*entry.symbols, *entry.where):
            if (entry, part) not in needed:
                yield Fault(
                    f"{part} in the entry of {', '.join(entry.symbol)} is not used"
                )


def introductions(
    source: Source, uses: Iterable[Use]
) -> list[dict[str, tuple[str, str]]]:
    """Find the first use of each entry in each of its places: the id and title of what it stands in."""
    first: dict[Entry, dict[str, tuple[str, str]]] = {
        entry: {} for entry in source.entries
    }
    for use in uses:
        titled = [(one, title) for one, title in use.inside if title]
        for symbol in symbols(use.tex) if titled else []:
            for entry, _, place in source.find(symbol, use.places):
                named = [
                    (one, title) for one, title in titled if place.endswith(f"#{one}")
                ]
                first[entry].setdefault(place, (named or titled)[-1])
    return [
        {place: first[entry].get(place, ("", "")) for place in entry.where}
        for entry in source.entries
    ]
