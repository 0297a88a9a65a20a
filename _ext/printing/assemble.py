"""One HTML document out of the pages of the built book.

Every page was written with its numbers, references and static figures in place, so nothing is computed
twice: the pages are put one after the other, their links lead within the document, and what only a
screen can use is taken out.
"""

from __future__ import annotations

import os
import posixpath
import re
from dataclasses import dataclass
from pathlib import Path

import yaml
from bs4 import BeautifulSoup, Tag

SCREEN_ONLY = "script, button, input, .headerlink, .only-dark, .interactive, .screen-only, .copybtn"
# The id of a link that the document makes to itself once all formulas are set; the PDF then knows it.
TYPESET = "typeset"
# Formulas are pictures, read aloud as their TeX: as elements of their own they would triple the file.
MATHJAX = (
    """MathJax = {
  options: {enableMenu: false, menuOptions: {settings: {assistiveMml: false}}},
  startup: {
    elements: [".math"],
    pageReady: () => MathJax.startup.defaultPageReady().then(() => {
      for (const formula of MathJax.startup.document.math) {
        const picture = formula.typesetRoot.querySelector("svg");
        picture.removeAttribute("aria-hidden");
        picture.setAttribute("role", "img");
        picture.setAttribute("aria-label", formula.math);
      }
      document.getElementById("TYPESET").href = "#TYPESET";
    })
  }
}"""
).replace("TYPESET", TYPESET)
# Where the number of the page goes on which a target lies.
PAGE_NUMBER = '<span class="page-number" data-target="{}"></span>'
# Attributes whose value is the id of another element.
POINTERS = ("aria-labelledby", "aria-describedby", "for")


@dataclass(frozen=True)
class Book:
    """What the title page says, and the pages in their order, each with the part that it opens."""

    title: str
    author: str
    pages: dict[str, str]

    @classmethod
    def read(cls, root: Path) -> Book:
        """Read the settings and the table of contents of a book."""
        config = yaml.safe_load((root / "_config.yml").read_text(encoding="utf-8"))
        toc = yaml.safe_load((root / "_toc.yml").read_text(encoding="utf-8"))
        pages = {toc["root"]: ""}
        for part in toc.get("parts") or [toc]:
            files = [entry["file"] for entry in part.get("chapters", [])]
            opens = [part.get("caption", ""), *[""] * len(files)]
            pages |= dict(zip(files, opens, strict=False))
        return cls(config["title"], config["author"], pages)


def assemble(book: Book, html: Path, folder: Path) -> BeautifulSoup:
    """Put the pages of the built book in `html` into one document, which will lie in `folder`."""
    first = _soup(html / f"{next(iter(book.pages))}.html")
    articles = {page: _article(page, html, folder, book) for page in book.pages}
    soup = BeautifulSoup(_head(book, first, html, folder, articles), "html.parser")
    main = soup.select_one("article.bd-article")
    for page, article in articles.items():
        article.name, article.attrs = "section", {"class": "page", "id": slug(page)}
        article["style"] = f"page: {slug(page)}"
        main.append(article)
    _index(soup)
    return soup


def slug(page: str) -> str:
    """Name a page so that ids of the document can begin with it."""
    return page.replace("/", "-")


def place(page: str, anchor: str = "") -> str:
    """Give the id that an anchor of a page has in the document."""
    return f"{slug(page)}--{anchor}" if anchor else slug(page)


def _soup(path: Path) -> BeautifulSoup:
    return BeautifulSoup(path.read_text(encoding="utf-8"), "html.parser")


def _article(page: str, html: Path, folder: Path, book: Book) -> Tag:
    """Return the text of a page, adapted to the document."""
    article = _soup(html / f"{page}.html").select_one("article.bd-article")
    for element in article.select(SCREEN_ONLY):
        element.decompose()
    for box in article.find_all("details"):
        box["open"] = ""
        if "fold" in box.get("class", []):  # the fold of a code cell
            box.summary.decompose()
            box.name, box["class"] = "div", "unfolded"
    for element in article.find_all(id=True):
        element["id"] = place(page, element["id"])
    for pointer in POINTERS:
        for element in article.find_all(attrs={pointer: True}):
            element[pointer] = place(page, element[pointer])
    for picture in article.find_all("picture"):  # on paper nothing moves
        if image := picture.img:
            image["src"] = picture.source["srcset"]
            picture.replace_with(image)
        else:
            picture.decompose()
    for image in article.find_all("img", src=True):
        image["src"] = _from(folder, html / posixpath.dirname(page) / image["src"])
        image["loading"] = "eager"
    for link in article.find_all("a", href=True):
        _lead(link, page, book)
    return article


def _from(folder: Path, file: Path) -> str:
    return Path(os.path.relpath(file, folder)).as_posix()


def _lead(link: Tag, page: str, book: Book) -> None:
    """Make a link lead within the document; links to other files of the book become text."""
    if re.match(r"\w+:", link["href"]):
        return
    file, _, anchor = link["href"].partition("#")
    target = (
        posixpath.normpath(posixpath.join(posixpath.dirname(page), file))
        if file
        else page
    )
    target = target.removesuffix(".html")
    if target in book.pages:
        link["href"] = f"#{place(target, anchor)}"
    else:
        del link["href"]


def _head(
    book: Book, first: BeautifulSoup, html: Path, folder: Path, articles: dict[str, Tag]
) -> str:
    """Write the document without its pages: styles, running heads, title page, contents."""
    styles = [
        link["href"].partition("?")[0] for link in first.select("link[rel=stylesheet]")
    ]
    home = html / posixpath.dirname(next(iter(book.pages)))
    files = [_from(folder, home / style) for style in styles if "://" not in style]
    links = [f'<link rel="stylesheet" href="{file}">' for file in files]
    heads = [
        f'@page {slug(page)} {{ @top-center {{ content: "{_title(article)}" }} }}'
        for page, article in articles.items()
    ]
    own = (Path(__file__).parent / "print.css").read_text(encoding="utf-8")
    mathjax = _from(folder, html / "mathjax" / "tex-svg.js")
    return f"""<!DOCTYPE html>
<html lang="{first.html["lang"]}" data-theme="light" data-mode="light">
<head>
<meta charset="utf-8">
<title>{book.title}</title>
<meta name="author" content="{book.author}">
{"".join(links)}
<style>{own}{"".join(heads)}</style>
<script>{MATHJAX}</script>
<script defer src="{mathjax}"></script>
</head>
<body><main class="bd-main"><div class="bd-content"><article class="bd-article">
<header class="title-page"><p class="title">{book.title}</p><p>{book.author}</p></header>
<a id="{TYPESET}">&#8203;</a>
<nav class="book-contents" aria-label="Contents">
<p class="contents-title">Contents</p>
{_contents(book, articles)}
</nav>
</article></div></main></body>
</html>"""


def _title(article: Tag) -> str:
    return " ".join(article.h1.get_text().split()).replace('"', r"\"")


def _contents(book: Book, articles: dict[str, Tag]) -> str:
    """Write the table of contents, with room for the page numbers."""
    lines = []
    for page, article in articles.items():
        if part := book.pages[page]:
            lines.append(f'<p class="contents-part">{part}</p>')
        lines.append(_entry("chapter", slug(page), article.h1))
        for heading in article.select("[id] > h2"):
            lines.append(_entry("section", heading.parent["id"], heading))
    return "\n".join(lines)


def _entry(kind: str, target: str, heading: Tag) -> str:
    link = f'<a href="#{target}">{heading.decode_contents()}</a>'
    return f'<p class="contents-{kind}">{link}{PAGE_NUMBER.format(target)}</p>'


def _index(soup: BeautifulSoup) -> None:
    """Give the general index page numbers: its links say where, a printed index says which page."""
    for link in soup.select(".genindextable a[href]"):
        if re.fullmatch(r"\[\d+\]", link.get_text()):
            link.clear()
        number = PAGE_NUMBER.format(link["href"].removeprefix("#"))
        link.insert_after(BeautifulSoup(number, "html.parser"))
