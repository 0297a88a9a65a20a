"""Sphinx extension: what a link to a page shows elsewhere: title, description and a picture.

It exists because sphinxext-opengraph describes a page by its first paragraph, on a card with Sphinx's logo,
and names pictures by addresses that only a published book has. Here the line ``description:`` at the head
of a page describes it (a page without one is a warning), and the picture shows it. Where a link is pasted,
only whole addresses work: the environment variable ``BOOK_URL`` names that of the published book.
"""

from __future__ import annotations

import os
from html import escape
from pathlib import Path
from textwrap import fill

from matplotlib import style
from matplotlib.figure import Figure
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

from zoolib.book.plots import LIGHT

LOG = logging.getLogger(__name__)
WIDTH, HEIGHT, DPI = 1200, 630, 100
# The book in two lines: one shop learns when the world changes, the other stopped.
LEARNS = (
    (0.0, 0.12, 0.40, 0.44, 0.70, 0.74, 1.0),
    (0.1, 0.13, 0.13, 0.2, 0.2, 0.26, 0.26),
)
STOPPED = (0.0, 0.12, 0.40, 0.42, 1.0), (0.1, 0.13, 0.13, 0.06, 0.06)


def use_address(app: Sphinx, config: Config) -> None:
    """Tell Sphinx where the book is published."""
    if address := os.environ.get("BOOK_URL"):
        config.html_baseurl = address.rstrip("/") + "/"


def add_tags(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Describe a page to those that read only its head, and draw its picture."""
    if pagename not in app.env.all_docs:  # the search page and the like
        return
    description = app.env.metadata[pagename].get("description")
    if description is None:
        LOG.warning("a page needs a line `description:` at its head", location=pagename)
        return
    name, title = app.config.html_title, app.env.titles[pagename].astext()
    picture = f"_images/previews/{pagename.replace('/', '-')}.png"
    draw(Path(app.outdir, picture), name, title, description)
    base = app.config.html_baseurl
    tags = {
        "og:site_name": name,
        "og:type": "book" if pagename == app.config.root_doc else "article",
        "og:title": title,
        "og:description": description,
        "og:image": base + picture if base else context["pathto"](picture, 1),
        "og:image:alt": f"{name}: {title}",
        "og:image:width": str(WIDTH),
        "og:image:height": str(HEIGHT),
    }
    if base:
        tags["og:url"] = base + app.builder.get_target_uri(pagename)
    lines = [f'<meta property="{k}" content="{escape(v)}">' for k, v in tags.items()]
    lines += [
        f'<meta name="description" content="{escape(description)}">',
        '<meta name="twitter:card" content="summary_large_image">',
    ]
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


@style.context("default")
def draw(target: Path, name: str, title: str, description: str) -> None:
    """Draw the picture of a page: its words, above the two lines of the book."""
    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, facecolor="white")
    ax = figure.add_axes((0, 0, 1, 1), xlim=(0, 1), ylim=(0, 1))
    ax.axis("off")
    for line, color in ((STOPPED, "orange"), (LEARNS, "blue")):
        ax.plot(*line, color=LIGHT[color], linewidth=7, alpha=0.6)
    for height, words, size, color in (
        (0.92, name, 24, "muted"),
        (0.82, fill(title, 30), 44, "ink"),
        (0.46, fill(description, 68), 22, "ink"),
    ):
        ax.text(0.06, height, words, fontsize=size, color=LIGHT[color], va="top")
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Software": None})


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", use_address)
    app.connect("html-page-context", add_tags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
