"""The source of the book's symbols, and checks of mathematics against it; independent of Sphinx.

Each entry of ``chapters/notation.yml`` is one meaning, with the places where it holds. Why our own: see
`notation`.
"""

from __future__ import annotations

import textwrap
from collections.abc import Container, Iterable, Iterator
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, NamedTuple

import yaml
from tex_symbols import Symbol, single, stated_shapes, symbols


@dataclass(frozen=True, eq=False)
class Entry:
    """A meaning of one symbol, or of several that are explained together."""

    symbol: list[str]  # TeX
    means: str  # MyST
    page: str  # the page that introduces it
    # Ids of places on that page, if it holds only there; an inner place overrules an outer one.
    at: list[str] = field(default_factory=list)
    # Other pages, or places on them as ``page#id``.
    also: list[str] = field(default_factory=list)
    # Axes: TeX of dimensions, or numbers; the empty list is a scalar.
    shape: list[str] | None = None
    range: str = ""  # which values it takes; MyST
    # Expressions that evaluate to it, or calls such as ``Agent(alpha=...)`` for a parameter.
    code: list[str] = field(default_factory=list)
    worlds: bool = False  # whether in several worlds these values have a leading axis W
    # Names in the shapes of docstrings; an entry that has the field is a dimension.
    names: list[str] | None = None

    @classmethod
    def read(cls, fields: dict[str, Any], page: str, folder: str) -> Entry:
        """Make an entry from its fields in the source, where a text may stand for a list of one."""
        lists = {"symbol", "at", "also", "code", "names"} & fields.keys()
        given = {
            key: fields[key] if isinstance(fields[key], list) else [fields[key]]
            for key in lists
        }
        if "shape" in fields:
            given["shape"] = [str(axis) for axis in fields["shape"]]
        given["also"] = [folder + place for place in given.get("also", [])]
        return cls(**fields | given, page=folder + page)

    @cached_property
    def symbols(self) -> list[Symbol]:
        return [single(tex) for tex in self.symbol]

    @property
    def tex(self) -> str:
        return ", ".join(f"${tex}$" for tex in self.symbol)

    @cached_property
    def where(self) -> list[str]:
        """Pages, and places as ``page#id``."""
        own = [f"{self.page}#{one}" for one in self.at] or [self.page]
        return own + self.also


@dataclass(frozen=True)
class Chapter:
    """What a page introduces: symbols, and letters that serve one passage only."""

    title: str
    symbols: list[Entry]
    passages: list[Entry]


class Source:
    """What the source, in YAML, says; `folder` comes before the names of its pages.

    ``chapters``: each with its ``page``, ``title``, ``symbols`` and ``passages`` (see `Entry`).
    ``operators``: commands that are no quantities. ``indices``: letters that count. ``axes``: names in the
    shapes of docstrings that are no symbols, and what they mean. ``objects``: expressions that build what
    the entries' code is evaluated with. An unknown or missing field, or an unknown dimension in a shape,
    raises TypeError or ValueError.
    """

    def __init__(self, text: str, folder: str = "") -> None:
        content = yaml.safe_load(text)
        self.chapters = []
        for chapter in content["chapters"]:
            symbols, passages = (
                [Entry.read(e, chapter["page"], folder) for e in chapter.get(kind, [])]
                for kind in ("symbols", "passages")
            )
            self.chapters.append(Chapter(chapter["title"], symbols, passages))
        self.entries = [e for c in self.chapters for e in c.symbols + c.passages]
        self.free = {*content["operators"].split(), *content["indices"].split()}
        self.axes: dict[str, str] = content["axes"]
        self.objects: dict[str, str] = content["objects"]
        self.dimensions: dict[str, Entry] = {}
        self.by_symbol: dict[Symbol, list[Entry]] = {}
        for entry in self.entries:
            for tex, symbol in zip(entry.symbol, entry.symbols, strict=True):
                if symbol is None:
                    raise ValueError(f"symbol must be a single one: got {tex!r}")
                self.by_symbol.setdefault(symbol, []).append(entry)
                if entry.names is not None:
                    self.dimensions[tex] = entry
        for entry in self.entries:
            for axis in entry.shape or []:
                if not axis.isdigit() and axis not in self.dimensions:
                    raise ValueError(
                        f"shape must consist of numbers and dimensions: got {axis!r} for {entry.symbol}"
                    )
        # On these pages a symbol needs an entry for its place.
        self.pages = {w.partition("#")[0] for e in self.entries for w in e.where}

    def knows(self, symbol: Symbol) -> bool:
        """Whether a symbol needs no entry, or has one for any place."""
        return symbol.name in self.free or bool(
            {symbol, symbol.bare} & self.by_symbol.keys()
        )

    def find(
        self, symbol: Symbol, places: list[str]
    ) -> list[tuple[Entry, Symbol, str]]:
        """Return the entries for a symbol in places, outermost first: each with its symbol and place.

        The symbol with its mark comes before the bare one, and inner places before outer.
        """
        for sought in dict.fromkeys((symbol, symbol.bare)):
            for place in reversed(places):
                found = [e for e in self.by_symbol.get(sought, []) if place in e.where]
                if found:
                    return [(entry, sought, place) for entry in found]
        return []


class Use(NamedTuple):
    """Mathematics on a page: TeX, line, and the places where it stands, outermost first, as ``page#id``."""

    page: str
    tex: str
    line: int | None
    places: list[str]


class Fault(NamedTuple):
    """What is wrong, with its page and line; neither if the source itself is wrong."""

    message: str
    page: str = ""
    line: int | None = None


def faults(source: Source, uses: Iterable[Use]) -> Iterator[Fault]:
    """Compare the mathematics of all pages with the source."""
    needed = set()
    for use in uses:
        words, where = textwrap.shorten(use.tex, 70), (use.page, use.line)
        for symbol in dict.fromkeys(symbols(use.tex)):
            found = source.find(symbol, use.places)
            needed |= {(entry, part) for entry, *parts in found for part in parts}
            strict = use.page in source.pages and symbol.name not in source.free
            if not found and (strict or not source.knows(symbol)):
                yield Fault(f"{symbol} has no meaning in ${words}$", *where)
            if len(found) > 1:
                yield Fault(f"{symbol} has two meanings in ${words}$", *where)
        for symbol, axes in stated_shapes(use.tex):
            for entry, *_ in source.find(symbol, use.places):
                if entry.shape is not None and entry.shape != axes:
                    yield Fault(f"{symbol} has shape {entry.shape}, not {axes}", *where)
    for entry in source.entries:
        for part in (*entry.symbols, *entry.where):
            if (entry, part) not in needed:
                yield Fault(
                    f"{part} in the entry of {', '.join(entry.symbol)} is not used"
                )


def introductions(
    source: Source, uses: Iterable[Use], titles: Container[str]
) -> dict[Entry, str]:
    """Find the titled section in which each entry's own page first uses it."""
    first: dict[Entry, str] = {}
    for use in uses:
        titled = [place for place in use.places if place in titles]
        for symbol in symbols(use.tex) if titled else []:
            for entry, _, place in source.find(symbol, use.places):
                if use.page == entry.page:
                    first.setdefault(entry, place if place in titled else titled[-1])
    return first
