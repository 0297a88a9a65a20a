"""The reference of the library: its pages are complete, and names lead to them."""

import ast
import inspect
import re
from importlib import import_module

import jupytext
import pytest

import zoolib
from tests.book.building import build
from tests.book.pages import soup
from tests.notebooks import ROOT, chapters

PAGES = sorted((ROOT / "chapters/api").glob("*.md"))
PACKAGES = ("agents", "large", "monitoring", "service", "sessions")


def documented():
    """Every entry of the pages: the path that it is shown under, and what is found there."""
    found = {}
    for page in PAGES:
        module = ""
        for line in page.read_text().splitlines():
            directive, _, name = line.removeprefix(".. ").partition(":: ")
            if directive == "currentmodule":
                module = name
            elif (
                directive.startswith(("auto", "py:data")) and directive != "automodule"
            ):
                path = f"{module}.{name}"
                assert path not in found
                place = zoolib if module == "zoolib" else load(module)
                found[path] = getattr(place, name)
    return found


def load(path):
    """A module, by its own path or the one that its package gives it."""
    package, _, name = path.rpartition(".")
    return getattr(import_module(package), name)


def imported():
    """The functions and classes of the library that the chapters import."""
    found = {}
    for page in chapters():
        for cell in jupytext.read(page).cells:
            if cell.cell_type != "code":
                continue
            for node in ast.walk(ast.parse(re.sub(r"(?m)^[%!].*$", "", cell.source))):
                if not isinstance(node, ast.ImportFrom):
                    continue
                if node.module.partition(".")[0] == "zoolib":
                    module = import_module(node.module)
                    found |= {a.name: getattr(module, a.name) for a in node.names}
    return found


def offered():
    """What the library says is public, and what the chapters use."""
    found = imported()
    for module in (zoolib, *(getattr(zoolib, name) for name in PACKAGES)):
        found |= {name: getattr(module, name) for name in module.__all__}
    return found


def test_every_public_name_has_its_entry():
    known = documented().values()
    missing = [
        name
        for name, thing in offered().items()
        if (inspect.isroutine(thing) or inspect.isclass(thing))
        and not any(thing is one for one in known)
    ]
    assert missing == []


def test_each_entry_stands_under_the_shortest_path_that_is_public():
    for path, thing in documented().items():
        name = path.rpartition(".")[2]
        public = name in zoolib.__all__ and getattr(zoolib, name) is thing
        assert path == f"zoolib.{name}" or not public


def test_every_package_has_its_page():
    described = [
        re.search(r"automodule:: zoolib\.(\w+)\n", page.read_text())
        for page in PAGES
        if page.stem != "index"
    ]
    packages = {
        path.parent.name for path in (ROOT / "zoolib").glob("[a-z]*/__init__.py")
    }
    assert {found[1] for found in described} == packages


CHAPTER = """
Show `Shelf`, `Shelf.put(one)`, `Shelf`, `lift`, `window` and `Other`.

## What a `Shelf` is

```{code-cell} python
from zoolib import Context, draw, offpolicy
```

```{code-cell} python
:tags: [hide-input]
print(Context)
```

```{code-cell} python
lead = draw, Context, offpolicy.ips, offpolicy.ips, Context
```
"""
ENTRIES = """
```{eval-rst}
.. currentmodule:: wares
.. autoclass:: Shelf
.. autofunction:: lift
.. currentmodule:: zoolib
.. autoclass:: Context
.. autofunction:: lead
.. currentmodule:: zoolib.offpolicy
.. autofunction:: ips
```
"""
WARES = '''
import numpy as np


class Shelf:
    """A place for wares.

    Filled by `put`, emptied by `lift`, at most `size` wide.

    Parameters
    ----------
    below, above : Shelf or DataFrame, optional
        Neighbours.
    kind : type, default float64
        What lies on it.

    Attributes
    ----------
    size : float
        Length.
    """

    size = np.float64

    def __init__(self, below=None, above=None, kind=np.float64):
        pass

    def put(self, one):
        """Put it there: see `lift`."""

    def empty(self):
        pass


def lift(shelf):
    """Lift a `Shelf`."""
'''


def lay(folder, wares=WARES):
    """Build a book of a chapter and a page of the reference; return the status and what was said."""
    (folder / "chapters/api").mkdir(parents=True)
    (folder / "_ext").mkdir()
    (folder / "_ext/wares.py").write_text(wares)
    return build(folder, "Words.", one=CHAPTER, **{"api/things": ENTRIES})


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    made = tmp_path_factory.mktemp("book")
    status, said = lay(made)
    assert status == 0, said[-3000:]
    return made / "_build/html"


def links(part):
    return [(a.text, a["href"].partition("#")[2]) for a in part.select("a.api")]


def test_the_first_use_of_a_name_in_a_chapter_is_a_link(folder):
    article = soup(folder / "chapters/one.html").article
    assert links(article.p) == [
        ("Shelf", "wares.Shelf"),
        ("Shelf.put", "wares.Shelf.put"),
        ("lift", "wares.lift"),
    ]
    cells = article.select("div.cell")
    assert [links(cell) for cell in cells] == [
        [],
        [],
        [("Context", "zoolib.Context"), ("offpolicy.ips", "zoolib.offpolicy.ips")],
    ]
    assert links(article.h2) == []
    assert all(
        a["href"].startswith("api/things.html#") for a in article.select("a.api")
    )


def test_names_and_types_of_docstrings_are_links(folder):
    article = soup(folder / "chapters/api/things.html").article
    shelf = article.find(id="wares.Shelf").parent
    assert links(shelf) == [
        ("put", "wares.Shelf.put"),
        ("lift", "wares.lift"),
        ("Shelf", "wares.Shelf"),
        ("lift", "wares.lift"),
    ]
    assert "below, above (Shelf or DataFrame, optional)" in shelf.text
    assert "kind=float64" in shelf.dt.text
    entries = [entry["id"] for entry in shelf.select("dt.sig")]
    assert entries == ["wares.Shelf", "wares.Shelf.put"]


def test_the_reference_stays_out_of_the_index(folder):
    assert "Shelf" not in soup(folder / "genindex.html").article.text


def test_a_class_that_is_documented_nowhere_breaks_the_build(tmp_path):
    wares = WARES.replace("Lift a `Shelf`", "Lift a `Shelve`")
    wares = wares.replace("below, above : Shelf", "below, above : Shelter")
    status, said = lay(tmp_path, wares)
    assert status != 0
    assert "'Shelve' is not in the reference" in said
    assert "'Shelter' is not in the reference" in said
