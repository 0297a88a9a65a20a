"""Sphinx extension: sets what other sites show for a link to a page: title, description and picture.

It exists because sphinxext-opengraph describes a page by its first paragraph. Here the line ``description:``
at the head of a page describes it; a page without one is a warning. Where a link is pasted, only whole
addresses work: the environment variable ``BOOK_URL`` names that of the published book.
"""

from __future__ import annotations

import os
from html import escape

from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging

LOG = logging.getLogger(__name__)
PICTURE = "_static/preview.png"


def use_address(app: Sphinx, config: Config) -> None:
    """Tell Sphinx where the book is published."""
    if address := os.environ.get("BOOK_URL"):
        config.html_baseurl = address.rstrip("/") + "/"


def add_tags(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Describe a page to sites that read only its head."""
    if pagename not in app.env.all_docs:  # the search page and the like
        return
    description = app.env.metadata[pagename].get("description")
    if description is None:
        LOG.warning("a page needs a line `description:` at its head", location=pagename)
        return
    base = app.config.html_baseurl
    tags = {
        "og:site_name": app.config.html_title,
        "og:type": "article",
        "og:title": app.env.titles[pagename].astext(),
        "og:description": description,
        "og:image": base + PICTURE if base else context["pathto"](PICTURE, 1),
    }
    if base:
        tags["og:url"] = base + app.builder.get_target_uri(pagename)
    lines = [f'<meta property="{k}" content="{escape(v)}">' for k, v in tags.items()]
    lines += [
        f'<meta name="description" content="{escape(description)}">',
        '<meta name="twitter:card" content="summary_large_image">',
    ]
    context["metatags"] = "\n".join([context.get("metatags", ""), *lines])


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", use_address)
    app.connect("html-page-context", add_tags)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
