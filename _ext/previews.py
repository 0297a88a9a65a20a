"""Sphinx extension: what a link to a page shows elsewhere: title, description and a picture.

The description is the line ``description:`` at the head of a page; a page of the book without one is a
warning. The picture is drawn from both. Where a link is pasted, only whole addresses work: the
environment variable ``BOOK_URL`` names that of the published book, and a copy built without it does
without.
"""

from __future__ import annotations

import os
import textwrap
from html import escape
from pathlib import Path

from matplotlib import style
from matplotlib.backends.backend_agg import FigureCanvasAgg
from matplotlib.figure import Figure
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

from zoolib.plots import LIGHT

LOG = logging.getLogger(__name__)
FOLDER = "_images/previews"
WIDTH, HEIGHT, DPI = 1200, 630, 100
# The book in two lines: one shop learns when the world changes, the other stopped.
LEARNS = (
    (0.0, 0.55),
    (0.12, 0.62),
    (0.40, 0.62),
    (0.44, 0.80),
    (0.70, 0.80),
    (0.74, 0.95),
    (1.0, 0.95),
)
STOPPED = ((0.0, 0.55), (0.12, 0.62), (0.40, 0.62), (0.42, 0.45), (1.0, 0.45))


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
    picture = f"{FOLDER}/{pagename.replace('/', '-')}.png"
    draw(Path(app.outdir, picture), name, title, description)
    base = app.config.html_baseurl
    tags = {
        "og:site_name": name,
        "og:type": "book" if pagename == app.config.root_doc else "article",
        "og:title": title,
        "og:description": description,
        "og:image": f"{base}{picture}" if base else context["pathto"](picture, 1),
        "og:image:alt": f"{name}: {title}",
        "og:image:width": str(WIDTH),
        "og:image:height": str(HEIGHT),
    }
    if base:
        tags["og:url"] = base + app.builder.get_target_uri(pagename)
    lines = [
        f'<meta property="{key}" content="{escape(text)}">'
        for key, text in tags.items()
    ]
    lines += [
        f'<meta name="description" content="{escape(description)}">',
        '<meta name="twitter:card" content="summary_large_image">',
    ]
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


@style.context("default")
def draw(target: Path, name: str, title: str, description: str) -> None:
    """Draw the picture of a page: its words, above the two lines of the book."""
    figure = Figure(figsize=(WIDTH / DPI, HEIGHT / DPI), dpi=DPI, facecolor="white")
    FigureCanvasAgg(figure)
    ax = figure.add_axes((0, 0, 1, 1))
    ax.set(xlim=(0, 1), ylim=(0.3, 2.8))
    ax.axis("off")
    for line, color in ((STOPPED, "orange"), (LEARNS, "blue")):
        ax.plot(*zip(*line, strict=True), color=LIGHT[color], linewidth=7, alpha=0.6)
    words = {"ha": "left", "va": "top", "transform": ax.transAxes}
    ax.text(0.06, 0.92, name, fontsize=24, color=LIGHT["muted"], **words)
    ax.text(
        0.06, 0.82, textwrap.fill(title, 30), fontsize=44, color=LIGHT["ink"], **words
    )
    ax.text(
        0.06,
        0.46,
        textwrap.fill(description, 68),
        fontsize=22,
        color=LIGHT["ink"],
        **words,
    )
    target.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(target, metadata={"Software": None})


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", use_address)
    app.connect("html-page-context", add_tags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
