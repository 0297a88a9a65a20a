"""Sphinx extension: offers each page with code cells as a stand-alone notebook.

It exists because jupytext alone leaves MyST's directives and references in the text, which no notebook
renders. Here the text is the finished page turned into plain Markdown: numbers, references, citations and
claims stand in it as they stand in the book. Its code cells are those of the source, byte for byte, without
outputs; what the page folds is collapsed. They need the library and nothing else of the book, so its wheel
lies beside the notebooks. A first cell sets up what a reader of a page has: experiments that can be changed,
for no claim stops a run, and exercises that are not solved before one asks.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from functools import cache
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urljoin

import jupytext
import nbformat
from bs4 import BeautifulSoup, Tag
from execution import EXTRAS, has_cells
from markdownify import ATX, MarkdownConverter
from nbformat import NotebookNode
from sphinx.application import Sphinx

ROOT = Path(__file__).resolve().parent.parent
WHEEL = f"zoolib-{version('zoolib')}-py3-none-any.whl"
ABOUT = """This is {name}, version {version}, as a notebook: the text of the book and its code, \
without the outputs. It runs from the top, in Jupyter{library}

Change what you like: a claim that does not hold then says so and stops nothing. Imports and the code of \
figures are collapsed. So are the solutions of exercises, which do not run until you ask for them.

The text may be shared under CC BY 4.0, the code under the MIT licence."""
LIBRARY = """, once the book's library is installed, whose wheel the book offers beside this notebook:

```sh
pip install "{}"
```"""
# The first cell of code; a strict run of the notebook (nbval's) sets the variable to 0.
SET_UP = """# A claim that does not hold with your settings says so and stops nothing. Solutions wait for you.
import os

from IPython.core.magic import register_cell_magic

os.environ.setdefault("ZOOLIB_LENIENT", "1")


@register_cell_magic
def solution(line, cell):
    print("To run this solution, delete the first line of its cell.")"""
# The first line of a solution's code.
ASKED = "%%solution\n"
COLLAPSED = {"source_hidden": True}
# What a page has for the screen or the theme alone.
LEFT_OUT = (
    "script, style, svg, button, input, select, .front-buttons, .headerlink, .only-dark"
)
# What elements are in plain HTML, and which of them are titles: paragraphs in bold.
PLAIN = {"figcaption .caption-number, caption .caption-number": "b"}
PLAIN |= {".doc, .std-ref": "em"}
HEADINGS = ["h1", "h2", "h3", "h4", "h5", "h6"]
TITLES = "summary, .sd-card-title, p.admonition-title"
# Where a code cell stood, and before the title of a solution: characters that Unicode leaves to private use.
CODE, SOLUTION = "\ue000", "\ue001"
CELL = re.compile(r"^```\{code-cell\}.*?^```$", re.M | re.S)
# In place of a picture that another page has made.
ELSEWHERE = "This picture is drawn on the page that the link below leads to."
# Begins a new cell of text, for jupytext.
BREAK = "\n\n+++\n\n"
# Environments that stand alone in LaTeX, and what they are inside $$.
INNER = {"align": "aligned", "gather": "gathered", "equation": ""}


Link = Callable[[str, str], str]


def published(address: str) -> Link:
    """Let links lead to the public address of their page; without one they are plain text."""

    def link(words: str, target: str) -> str:
        return f"[{words}]({urljoin(address, target)})" if address else words

    return link


class Prose(MarkdownConverter):
    """Turn a page into Markdown that any notebook renders.

    It knows what the book's pages with code consist of; tests/book/test_downloads.py shows what that is.
    `link` writes a link within the book from its words and its address.
    """

    class Options(MarkdownConverter.DefaultOptions):
        heading_style = ATX
        bullets = "-"

    def __init__(self, link: Link = lambda words, address: words) -> None:
        super().__init__(code_language_callback=_language)
        self.link = link

    def escape(self, text: str, parent_tags: set[str]) -> str:
        """Escape what Markdown would take for markup, and no more: readers also see the source."""
        text = re.sub(
            r"[\\`*$<~]|(?<!\w)_|_(?!\w)|\](?=[(\[:])|\[(?=\^)", r"\\\g<0>", text
        )
        return text.replace("|", r"\|") if parent_tags & {"td", "th"} else text

    def convert_p(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        # What begins like a list, a heading or a quote is none.
        text = re.sub(r"^\s*(\d*)(?=[.)]\s|[#>+-]\s)", r"\1\\", text)
        return super().convert_p(el, text, parent_tags)

    def convert_hN(self, n: int, el: Tag, text: str, parent_tags: set[str]) -> str:  # noqa: N802
        heading = super().convert_hN(n, el, text, parent_tags)
        return heading if "_inline" in parent_tags else f"{BREAK}{heading}"

    def convert_span(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        if "math" not in el.get("class", []):
            return text
        tex = el.get_text().strip().removeprefix(r"\(").removesuffix(r"\)")
        return f"${_one_line(tex)}$"

    def convert_img(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        """Show a picture at its public address; without one, say where it is."""
        made = self.link(self.escape(el["alt"], parent_tags), el["src"])
        return f"!{made}" if made.endswith(f"{el['src']})") else ELSEWHERE

    def convert_div(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        if "math" not in el.get("class", []):
            return super().convert_div(el, text, parent_tags)
        number = el.select_one(".eqno")
        tag = rf"\tag{{{number.extract().get_text().strip('()#')}}}" if number else ""
        tex = el.get_text().strip().removeprefix(r"\[").removesuffix(r"\]").strip()
        for outer, inner in INNER.items():
            for end in ("begin", "end"):
                wanted = rf"\{end}{{{inner}}}" if inner else ""
                tex = re.sub(rf"\\{end}{{{outer}\*?}}", lambda _, w=wanted: w, tex)
        # JupyterLab would take the marks of a quote or a list on further lines for mathematics.
        if parent_tags & {"li", "td", "blockquote"}:
            return f"\n\n$${_one_line(tex + tag)}$$\n\n"
        return f"\n\n$$\n{tex.strip()}{tag}\n$$\n\n"

    def convert_a(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        if {"code", "pre"} & parent_tags:
            return text
        href, label = el.get("href", ""), text.strip()
        if not (href and label):
            return text
        outside = re.match(r"https?:", href)
        made = f"[{label}]({href})" if outside else self.link(label, href)
        return text.replace(label, made)


def _language(pre: Tag) -> str:
    """Return the language of a listing; Sphinx keeps it in a class of the surrounding box."""
    box = pre.find_parent(class_=re.compile("^highlight-"))
    classes = box["class"] if box else []
    name = next((c for c in classes if c.startswith("highlight-")), "")
    return re.sub("^highlight-(default|none)?", "", name)


def _one_line(tex: str) -> str:
    r"""Put a formula on one line; ``|`` would end a cell of a table."""
    tex = re.sub(r"(?<!\\)%.*", "", tex)
    return " ".join(tex.replace(r"\|", r"\Vert ").replace("|", r"\vert ").split())


def read(page: Path) -> BeautifulSoup:
    """Read a finished page."""
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


def look(cell: Tag) -> tuple[bool, bool]:
    """Return whether a page folds all code of a cell, and whether it belongs to a solution."""
    shown = cell.select(".cell_input:not(details *)")
    return not shown, cell.find_parent(class_="solution") is not None


def prepared(soup: BeautifulSoup) -> Tag:
    """Return the text of a finished page, with a mark in place of each code cell."""
    article = soup.select_one("article.bd-article")
    for cell in article.select("div.cell"):
        _put(soup, CODE, cell, "figcaption")
    for figure in article.select("figure.shown"):
        where = soup.new_tag("p", attrs={"id": figure["id"]})
        where.append(figure.select_one("img.only-light"))
        figure.replace_with(where, figure.figcaption)
    for figure in article.select("div.interactive"):
        where = "Here the book's web page has a figure with values to change."
        _put(soup, where, figure, ".interactive-caption")
    for element in article.select(LEFT_OUT):
        element.decompose()
    for box in reversed(article.select(".admonition")):
        # What may hold code cells is no quote: its title becomes a heading.
        if {"exercise", "solution"} & set(box["class"]) or CODE in box.get_text():
            level = int(box.find_previous(re.compile("^h[1-6]$")).name[1])
            title = box.select_one(".admonition-title")
            title.name = f"h{level + 1}"
            if "solution" in box["class"]:
                title.insert(0, SOLUTION)
        else:
            box.name = "blockquote"
    for selector, name in PLAIN.items():
        for element in article.select(selector):
            element.name = name
    for number in article.select(".admonition-title .caption-number"):
        title = number.parent
        number.unwrap()
        title.smooth()
    for title in article.select(TITLES):
        title.name = "b"
        title.wrap(soup.new_tag("p"))
    return article


def _put(soup: BeautifulSoup, text: str, element: Tag, kept: str) -> None:
    """Replace an element with a paragraph that keeps a part of it."""
    ids = [
        part["id"] for part in [element, *element.find_all(id=True)] if part.get("id")
    ]
    paragraph = soup.new_tag("p", string=text, attrs={"data-ids": ids})
    element.replace_with(paragraph, *element.select(kept))


def references(article: Tag, page: Path) -> Iterator[Tag]:
    """Yield the bibliography entries that a page cites, each once."""
    pages = cache(read)
    for href in dict.fromkeys(a["href"] for a in article.select(".bibtex-citation a")):
        file, _, name = href.partition("#")
        if file and (entry := pages(page.parent / file).find(id=name)):
            yield entry.p


def notebook(
    page: Path, source: Path, about: str, link: Link
) -> tuple[NotebookNode, dict[str, str]]:
    """Make the notebook of a page from its source, whose code cells the page must show, each once.

    Also return in which cell what has an id on the page stands.
    """
    cells, soup = CELL.findall(source.read_text(encoding="utf-8")), read(page)
    looks = [look(cell) for cell in soup.select("article.bd-article div.cell")]
    article, prose = prepared(soup), Prose(link)
    text = about + BREAK + prose.convert_soup(article)
    if entries := list(references(article, page)):
        listed = [f"- {prose.convert_soup(entry).strip()}" for entry in entries]
        text += f"{BREAK}## References\n\n" + "\n".join(listed)
    if text.count(CODE) != len(cells):
        raise ValueError(
            f"{source.name} must show its {len(cells)} code cells, each once"
        )
    remaining = iter(cells)
    text = re.sub(CODE, lambda _: f"\n\n{next(remaining)}\n\n", text)
    # A collapsed heading hides the cells that follow, not what else is in its own.
    text = re.sub(rf"^#+ {SOLUTION}.*$", rf"\g<0>{BREAK}", text, flags=re.M)
    made = jupytext.reads(text, "md:myst")
    made.metadata = {"kernelspec": jupytext.read(source).metadata["kernelspec"]}
    made.cells = [cell for cell in made.cells if cell.source]
    _collapse(made, looks)
    set_up = nbformat.v4.new_code_cell(SET_UP, metadata={"jupyter": dict(COLLAPSED)})
    made.cells.insert(1, set_up)
    for number, cell in enumerate(made.cells, 1):
        cell.id = f"cell-{number}"  # the same in each build
        if cell.cell_type == "markdown" and (title := re.match("#+ ", cell.source)):
            # Where nbconvert begins a slide of a lecture: at a section, or below the last one.
            kind = "slide" if len(title[0]) < 4 else "subslide"
            cell.metadata["slideshow"] = {"slide_type": kind}
    return made, places(article, made.cells)


def places(article: Tag, cells: list[NotebookNode]) -> dict[str, str]:
    """Find the cell in which each part of a page stands, by the part's id.

    A heading begins a cell of text, and so does what comes after code.
    """
    found: dict[str, str] = {}
    at, waiting = 1, []  # behind the cell of the set-up; ids of what is still to come

    def following(kind: str, start: str = "") -> int:
        return next(
            i
            for i, cell in enumerate(cells)
            if i > at and cell.cell_type == kind and cell.source.startswith(start)
        )

    for element in article.find_all(True):
        names = [element["id"]] if element.get("id") else []
        if element.name in HEADINGS and not element.find_parent(("td", "th")):
            at = following("markdown", "#")
        elif element.string == CODE:
            at, names = following("code"), element["data-ids"]
        elif element.find(HEADINGS) or not element.get_text(strip=True):
            waiting += names
            continue
        elif cells[at].cell_type == "code":
            found |= dict.fromkeys(waiting + names, cells[at + 1].id) if names else {}
            continue
        found |= dict.fromkeys(waiting + names, cells[at].id)
        waiting = []
    return found


def _collapse(made: NotebookNode, looks: list[tuple[bool, bool]]) -> None:
    """Collapse what the page folds and all solutions, whose code is not to run before it is asked for."""
    codes = (cell for cell in made.cells if cell.cell_type == "code")
    for cell, (is_folded, is_solution) in zip(codes, looks, strict=True):
        if is_folded or is_solution:
            cell.metadata["jupyter"] = dict(COLLAPSED)
        if is_solution:
            cell.source = ASKED + cell.source
    for cell in made.cells:
        if SOLUTION in cell.source:
            cell.source = cell.source.replace(SOLUTION, "")
            cell.metadata["jp-MarkdownHeadingCollapsed"] = True


def introduction(title: str, book: str, needed: str = "") -> str:
    """Say what a notebook is, and how to install the library if it is still needed."""
    name = f"*{title}*" if title == book else f"*{title}*, from *{book}*"
    installed = LIBRARY.format(needed) if needed else "."
    return ABOUT.format(name=name, version=version("zoolib"), library=installed)


def download(docname: str) -> str:
    """Return the path of a page's notebook within the book."""
    return f"_downloads/{docname}.ipynb"


def library(base: str = "") -> str:
    """Return what pip installs for a notebook: the wheel at the book's address, or beside the notebook."""
    extras = f"[{','.join(EXTRAS)}]"
    return f"zoolib{extras} @ {base}_downloads/{WHEEL}" if base else WHEEL + extras


def write_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Write the notebooks of all pages with code cells, and the wheel that they need."""
    if exception or app.builder.name != "html":
        return
    env, out, base = app.env, Path(app.outdir), app.config.html_baseurl
    for docname in sorted(name for name in env.all_docs if has_cells(env, name)):
        about = introduction(
            env.titles[docname].astext(), app.config.html_title, library(base)
        )
        page, source = app.builder.get_outfilename(docname), env.doc2path(docname)
        link = published(base and urljoin(base, app.builder.get_target_uri(docname)))
        made, _ = notebook(Path(page), Path(source), about, link)
        target = out / download(docname)
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(made, target)
    if (ROOT / "pyproject.toml").exists():
        build_wheel(out / "_downloads")


def build_wheel(folder: Path, root: Path = ROOT) -> Path:
    """Build the library's wheel into a folder, from a copy: building leaves traces beside the sources."""
    with TemporaryDirectory() as copy:
        caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "zoolib", Path(copy, "zoolib"), ignore=caches)
        for name in ("pyproject.toml", "README.md", "LICENSE*"):
            for file in root.glob(name):
                shutil.copy(file, copy)
        options = "--quiet --no-deps --no-build-isolation --disable-pip-version-check"
        command = [sys.executable, "-m", "pip", "wheel", *options.split()]
        # The same sources make the same file: dates in it are those of the oldest ZIP.
        done = subprocess.run(
            [*command, f"--wheel-dir={folder}", copy],
            env=os.environ | {"SOURCE_DATE_EPOCH": "315532800"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"the wheel could not be built:\n{done.stdout}{done.stderr}")
    return folder / WHEEL


def offer(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Offer the notebook, and the library that it needs, first among the downloads of a page."""
    if not has_cells(app.env, pagename):
        return
    offered = {"notebook": (download(pagename), "code")}
    if (ROOT / "pyproject.toml").exists():
        offered["library"] = f"_downloads/{WHEEL}", "cube"
    buttons = [
        {
            "type": "link",
            "url": context["pathto"](file, 1),
            "text": Path(file).suffix,
            "icon": f"fas fa-{icon}",
            "tooltip": f"Download the {kind}",
            "label": f"download-{kind}-button",
        }
        for kind, (file, icon) in offered.items()
    ]
    for group in context.get("header_buttons", []):
        if group.get("label") == "download-buttons":
            group["buttons"][:0] = buttons


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", offer, priority=900)  # the theme's come at 501
    app.connect("build-finished", write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
