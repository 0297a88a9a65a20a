"""Sphinx extension: every picture says in words what it shows, or the build fails.

A picture without a text for those who cannot see it, with a file name in its place, or with too few words
to say what it shows is a warning. A picture that shows nothing has the class ``decorative`` and no text.

Why our own: checkers of finished pages (axe, Nu) find a missing text, not a poor one, and name no source line.
"""

from __future__ import annotations

import re

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

LOG = logging.getLogger(__name__)
FEWEST_WORDS = 5
FILE_NAME = r"\S+\.(?:svg|png|jpe?g|gif|webp)\b"


def fault_of(alt: str, decorative: bool) -> str | None:
    """Say what is wrong with the text of a picture."""
    if decorative:
        return "a decorative picture must have an empty alt text" if alt else None
    if re.search(FILE_NAME, alt):
        return f"the alt text of a picture must not be a file name: got {alt!r}"
    if len(alt.split()) < FEWEST_WORDS:
        return f"the alt text of a picture must say what it shows in at least {FEWEST_WORDS} words: got {alt!r}"
    return None


class CheckAltTexts(SphinxPostTransform):
    """Check all pictures, those that cells drew among them."""

    default_priority = 45  # after MyST-NB has chosen among the forms of an output, before there are two of each

    def run(self, **kwargs: object) -> None:
        for picture in self.document.findall(nodes.image):
            decorative = "decorative" in picture["classes"]
            if fault := fault_of(picture.get("alt", ""), decorative):
                LOG.warning("%s (%s)", fault, picture["uri"], location=picture)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(CheckAltTexts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
