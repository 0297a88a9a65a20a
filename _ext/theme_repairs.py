"""Sphinx extension: repairs what the theme and other extensions write, once all pages are written.

It exists because no setting of theirs makes pages valid, light and still while they load; mathematics set
beforehand (KaTeX) would need Node.js to build the book. Each function named in ``REPAIRS`` takes one kind of
fault out of a page, and its docstring says which. All of them leave a page alone that they have repaired
before. The checks in ``tests/site`` say what a page must be.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from pathlib import Path
from urllib.parse import unquote, urlsplit

from bs4 import BeautifulSoup
from bs4.dammit import EntitySubstitution
from bs4.formatter import HTMLFormatter
from pydata_sphinx_theme import __file__ as pydata_theme
from sphinx.application import Sphinx
from sphinx.util import logging

LOG = logging.getLogger(__name__)
ICONS = Path(pydata_theme).with_name("theme") / "pydata_sphinx_theme/static/scripts"
PIXELS_A_POINT = 4 / 3
SIGN = r"\\[A-Za-z]+|(?<!\\)[^\s{}&^_\\]"
RELATION = (
    r"\\(?:le|ge|ne|approx|sim|to|in|mapsto|ll|gg|times|cdot|mid|propto|leftarrow|equiv|pm|dots)"
    r"(?![A-Za-z])|[=<>]| [+-] "
)
TALL = r"\\(d?frac|sum|prod|int|begin\{.?matrix)"
# What a page has no use for: icons as a script, advertisements, code that runs on other hosts, search and
# mathematics elsewhere, hints to fetch first what runs last, pandas' styles, and what is said or titled twice.
NEEDLESS = """
script[src*=fontawesome], script[src*=thebe], script[type*=thebe], script:-soup-contains(thebe),
link[href*=thebe], #ethical-ad-placement,
html:not(:has(#search-results)) script:is([src*=searchtools], [src*=language_data], [src*=searchindex]),
html:not(:has(.math)) :is(script[src*=tex-svg], script:-soup-contains("window.MathJax")),
head link[rel=preload][as=script], :has(> table.dataframe) > style,
meta[name=viewport] ~ meta[name=viewport], #jb-print-docs-body:has(h1:empty)
"""
# What HTML calls otherwise: a corner of a table is no header.
NAMES = {
    "section:is(#proof-content, #exercise-content, #solution-content)": "div",
    "table th:is(:empty, :has(> p:only-child:empty))": "td",
}
# Attributes: identifiers that many elements of a page have, a label that is missing, borders that styles draw,
# and roles as HTML knows them.
ATTRIBUTES = {
    "div:is(#proof-content, #exercise-content, #solution-content, #proof)": {
        "id": None
    },
    "li.has-children > details > summary": {"aria-label": "Its pages"},
    "table.dataframe": {"border": None},
    "input[autocorrect]": {"autocorrect": None},
    "div.citation[role=doc-biblioentry]": {"role": "listitem"},
    "div#pst-primary-sidebar": {"role": "complementary", "aria-label": "The book"},
}
ASK_SYSTEM = """
if (document.documentElement.dataset.mode === "auto")
  document.documentElement.dataset.theme =
    matchMedia("(prefers-color-scheme: dark)").matches ? "dark" : "light";
"""
FORMATTER = HTMLFormatter(
    entity_substitution=EntitySubstitution.substitute_xml,
    void_element_close_prefix="",
    empty_attributes_are_booleans=True,
)


def repair_markup(page: BeautifulSoup, file: Path) -> None:
    """Take out what is needless, and say the rest as HTML does."""
    for part in page.select(NEEDLESS):
        part.decompose()
    for selector, name in NAMES.items():
        for part in page.select(selector):
            part.name = name
    for selector, attributes in ATTRIBUTES.items():
        for part in page.select(selector):
            part.attrs |= attributes
            part.attrs = {k: v for k, v in part.attrs.items() if v is not None}


def read_before_run(page: BeautifulSoup, file: Path) -> None:
    """Run scripts after the text is shown: all but the one that sets the colours move behind the content.

    That one also asks the reader's system. The theme asks it in a later script, and until then no colour is
    defined, nor any border that has one: lines break elsewhere when borders come.
    """
    for script in page.select("head script:not([data-cfasync])"):
        page.body.append(script.extract())
    for script in page.select("head script[data-cfasync]"):
        if ASK_SYSTEM not in script.text:
            script.append(ASK_SYSTEM)


def draw_icons(page: BeautifulSoup, file: Path) -> None:
    """Inline each icon where it is used: the theme loads 700 kB of icons, and shows them late."""
    for mark in page.select("i.fas, i.fa-solid, span.fa-solid"):
        classes = set(mark["class"]) - {"fas", "fa-solid"}
        (name,) = (c for c in classes if c.startswith("fa-") and c != "fa-lg")
        width, height, path = icon(name.removeprefix("fa-"))
        mark.name, mark["class"] = "svg", ["icon", *sorted(classes - {name})]
        mark["viewBox"], mark["aria-hidden"] = f"0 0 {width} {height}", "true"
        mark.attrs.pop("title", None)
        mark.append(page.new_tag("path", attrs={"d": path, "fill": "currentColor"}))


@cache
def icon(name: str) -> tuple[str, str, str]:
    """Find width, height and path of a solid icon in the theme's own script."""
    (script,) = ICONS.glob("fontawesome.js")
    form = rf'[{{,]"?{name}"?:\[(\d+),(\d+),\[[^\]]*\],"[0-9a-f]+","([^"]+)"\]'
    *_, solid = re.findall(form, script.read_text(encoding="utf-8"))
    return solid


def size_pictures(page: BeautifulSoup, file: Path) -> None:
    """Give every picture its size, so that nothing moves when it loads; load dark versions only when shown."""
    for picture in page.select("img[src$='.svg']:not([width])"):
        source = file.parent / unquote(urlsplit(picture["src"]).path)
        svg = source.read_text(encoding="utf-8")
        for side in ("width", "height"):
            size = re.search(rf'<svg[^>]*?\s{side}="([\d.]+)(pt)?', svg)
            if not size:
                LOG.warning("%s has no %s", source, side)
                continue
            picture[side] = round(float(size[1]) * (PIXELS_A_POINT if size[2] else 1))
    for picture in page.select("img.only-dark"):
        picture["loading"] = "lazy"


def reserve_formulas(page: BeautifulSoup, file: Path) -> None:
    """Keep about the room that each formula will take: until MathJax has set it, the page shows its source."""
    for formula in page.select("span.math:not([style])"):
        formula["style"] = f"--room: {width_of(formula.text):.1f}em"
    for formula in page.select("div.math:not([style])"):
        lines = re.split(r"\\\\\s", formula.text)
        height = 2.8 + sum(2.5 if re.search(TALL, line) else 1.5 for line in lines)
        formula["style"] = f"--room: {height:.1f}em"


def name_cells(page: BeautifulSoup, file: Path) -> None:
    """Tell each cell of a stacked table its column's name: on a phone the head is hidden."""
    for table in page.select("table.stacked"):
        names = [head.get_text(" ", strip=True) for head in table.select("thead th")]
        for row in table.select("tbody tr"):
            for cell, name in zip(row.select("td"), names, strict=True):
                cell["data-column"] = name[:1].upper() + name[1:]


def width_of(source: str) -> float:
    """Estimate the width of a formula in em; nine in ten of this book come within 0.8 em."""
    signs, relations = (len(re.findall(form, source)) for form in (SIGN, RELATION))
    return 0.2 + 0.55 * signs + 1.2 * relations


REPAIRS = (
    repair_markup,
    read_before_run,
    draw_icons,
    size_pictures,
    reserve_formulas,
    name_cells,
)


def drop_icons(styles: Path) -> None:
    """Take the two thousand names of icons, a third of its weight, out of the theme's style sheet."""
    text = styles.read_text(encoding="utf-8")
    named = r"(?:\.fa-[\w-]+:before,?)+\{content:\"[^\"]*\"\}"
    styles.write_text(re.sub(named, "", text), encoding="utf-8")


def repair_page(file: Path) -> None:
    """Repair one page."""
    page = BeautifulSoup(file.read_text(encoding="utf-8"), "html.parser")
    for repair in REPAIRS:
        repair(page, file)
    file.write_text(page.decode(formatter=FORMATTER), encoding="utf-8")


def written_pages(folder: Path) -> Iterable[Path]:
    """List the pages of the book, without what the theme keeps under ``_static``."""
    return (file for file in folder.rglob("*.html") if "_static" not in file.parts)


def finish(app: Sphinx, exception: Exception | None) -> None:
    """Repair all pages."""
    if exception or app.builder.format != "html":
        return
    folder = Path(app.outdir)
    for file in written_pages(folder):
        repair_page(file)
    for styles in folder.glob("_static/styles/pydata-sphinx-theme.css"):
        drop_icons(styles)


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("build-finished", finish, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
