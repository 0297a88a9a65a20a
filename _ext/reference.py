"""Sphinx extension: links names of the library to its reference.

A chapter links the first use of a public name that it shows, in code or in prose; imports and folded cells
are passed over. The pages of the reference link every name in backticks and in the types of docstrings. A
name there that looks like a class and is documented nowhere is a warning: it breaks the build.

Why our own: sphinx-codeautolink links each use of a name, and Sphinx's roles are set by hand.
"""

from __future__ import annotations

import builtins
import inspect
import re

from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging

LOG = logging.getLogger(__name__)
PAGES = "chapters/api/"
# Types of other libraries, whose documentation is not at hand without a network.
ELSEWHERE = {
    "Axes",
    "DataFrame",
    "Generator",
    "Generators",
    "IPython",
    "Parameter",
    "ParameterList",
}
ELSEWHERE |= {"SeedSequence", "Tensor"}
NAME, DOT = r'<span class="n">\w+</span>', '<span class="o">.</span>'
IMPORTED = re.compile(r'<span class="nn">zoolib[\w.]*</span>.*')
# What may become a link. What comes before is matched so that nothing in it does.
PLACES = re.compile(
    r'<a\b.*?</a>|<(?P<kept>h\d|details)\b.*?</(?P=kept)>|<span class="kn">(?:from|import)</span>.*?\n'
    rf"|(?P<code>{NAME}(?:{re.escape(DOT)}{NAME})*)"
    r'|(?<=notranslate"><span class="pre">)(?P<literal>[\w.]+)(?=[^<\s]*</span></code>)'
    r"|(?<=[(>]<em>)(?P<type>[^<]+)(?=</em>)"
    r'|<dt [^>]*id="(?P<entry>[\w.]+)">',
    re.S,
)
CLASS = re.compile(r"(?<![\w.])[A-Z]+[a-z]\w*(?:\.\w+)*")
MEMBERS = {"method", "property", "attribute", "classmethod", "staticmethod"}


def documented(env: BuildEnvironment) -> dict[str, tuple[str, str]]:
    """Return the page and anchor of each name, under its path and its end; a module has only its path."""
    found = {}
    for path, entry in env.get_domain("py").objects.items():
        names = {path}
        if entry.objtype != "module":
            end = path.split(".")[-2 if entry.objtype in MEMBERS else -1 :]
            names |= {path.removeprefix("zoolib."), ".".join(end)}
        found |= dict.fromkeys(names, (entry.docname, entry.node_id))
    return found


def link(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Put the links into a page."""
    if doctree is None:
        return
    names, body = documented(app.env), context["body"]
    lines = "".join(IMPORTED.findall(body))
    imported = {"zoolib", *re.findall(r"\w+", re.sub("<[^>]*>", "", lines))}
    within, met, entry = pagename.startswith(PAGES), set(), ""

    def lead(name: str, shown: str) -> str:
        place = names.get(name)
        if place is None or (place in met and not within):
            return shown
        met.add(place)
        uri = app.builder.get_relative_uri(pagename, place[0])
        return f'<a class="api" href="{uri}#{place[1]}">{shown}</a>'

    def of_class(found: re.Match) -> str:
        name = found[0]
        first = name.partition(".")[0]
        if not (name in names or first in ELSEWHERE or hasattr(builtins, name)):
            LOG.warning("%r is not in the reference", name, location=pagename)
        return lead(name, name)

    def of_code(code: str) -> str:
        parts = code.split(DOT)
        for end in range(len(parts), 0, -1):  # the longest name, as in "offpolicy.ips"
            shown = DOT.join(parts[:end])
            name = re.sub("<[^>]*>", "", shown)
            if name in names and name.partition(".")[0] in imported:
                return DOT.join([lead(name, shown), *parts[end:]])
        return code

    def replace(found: re.Match) -> str:
        nonlocal entry
        text = found[0]
        entry = found["entry"] or entry
        if found["code"] and not within:
            return of_code(text)
        if found["type"] and within:
            return CLASS.sub(of_class, text)
        if found["literal"]:
            if within and (is_class := CLASS.fullmatch(text)):
                return of_class(is_class)
            around = (f"{entry}.{text}", f"{entry.rpartition('.')[0]}.{text}", text)
            return lead(next((n for n in around if n in names), text), text)
        return text

    context["body"] = PLACES.sub(replace, body)


def skip(app: Sphinx, what: str, name: str, thing: object, *_: object) -> bool | None:
    """Skip members that the pages name one by one, or that docstrings list as attributes."""
    shown = inspect.isroutine(thing) or isinstance(thing, property)
    return None if what != "module" and shown else True


def shorten(app: Sphinx, *what: object) -> tuple[str, str] | None:
    """Name classes that are defaults as they are written."""
    *_, signature, returned = what
    return signature and (
        re.sub(r"<class '(?:\w+\.)*(\w+)'>", r"\1", signature),
        returned,
    )


def clear_index(app: Sphinx, env: BuildEnvironment) -> None:
    """Keep the names out of the book's index, which lists subjects."""
    for page, entries in env.get_domain("index").entries.items():
        if page.startswith(PAGES):
            entries.clear()


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-skip-member", skip)
    app.connect("autodoc-process-signature", shorten)
    app.connect("env-updated", clear_index)
    app.connect("html-page-context", link)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
