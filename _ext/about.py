"""Sphinx extension: what the book says of itself, read from the files that know it, and the foot of each page.

The page About takes ``{{ release }}``, ``{{ authors }}``, ``{{ citation }}``, ``{{ bibtex }}`` and
``{{ source }}`` from here. The environment variable ``SOURCE_URL`` names where the source is published.

Why our own: no extension knows CITATION.cff, and a footer in the settings can hold neither the version nor a
link that is right on every page.
"""

from __future__ import annotations

import os
from html import escape
from pathlib import Path

import yaml
from sphinx.application import Sphinx
from sphinx.config import Config

import zoolib

CITATION = Path(__file__).resolve().parent.parent / "CITATION.cff"
PAGE = "chapters/about"
FOOTER = (
    "<p>By {author}, version {version}. Text: CC BY 4.0; code: MIT. "
    '<a href="{about}#page-about">About this book</a>, '
    '<a href="{about}#how-to-cite-it">how to cite it</a>{source}.</p>'
)


def source_url() -> str:
    """Return the address of the published source, or nothing."""
    return os.environ.get("SOURCE_URL", "").rstrip("/")


def fill_in(app: Sphinx, config: Config) -> None:
    """Hand the facts to the page About, as Markdown."""
    if not CITATION.exists():
        return
    cited = yaml.safe_load(CITATION.read_text(encoding="utf-8"))
    title, edition, year = cited["title"], cited["version"], cited["date-released"].year
    authors = " and ".join(author["name"] for author in cited["authors"])
    address, published = config.html_baseurl, source_url()
    fields = {
        "author": f"{{{authors}}}",
        "title": title,
        "year": year,
        "version": edition,
        "url": address,
    }
    lines = [f"  {key} = {{{value}}}," for key, value in fields.items() if value]
    bibtex = "\n".join([f"@software{{adaptive-recommender-{year},", *lines, "}"])
    config.myst_substitutions |= {
        "release": zoolib.__version__,
        "authors": authors,
        "citation": f"{authors}. *{title}*. Version {edition}, {year}."
        + (f" <{address}>" if address else ""),
        "bibtex": f"```bibtex\n{bibtex}\n```",
        "source": f"at <{published}>"
        if published
        else "in the folder in which the book was built",
    }


def add_footer(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Say at the foot of a page who made it, and where to read more."""
    if PAGE not in app.env.all_docs:
        return
    published = source_url()
    source = f', <a href="{escape(published)}">its source</a>' if published else ""
    context["theme_extra_footer"] = FOOTER.format(
        author=escape(app.config.author),
        version=zoolib.__version__,
        about=context["pathto"](PAGE).removesuffix("#"),  # of the page itself
        source=source,
    )


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("previews")  # which knows the address of the book
    app.connect("config-inited", fill_in, priority=900)
    app.connect("html-page-context", add_footer)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
