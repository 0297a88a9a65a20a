"""Sphinx extension: requires alternative text for every picture, and adds dark versions of drawn ones.

A picture without a text for those who cannot see it, with a file name in its place, or with too few words
to say what it shows is a warning. A picture that shows nothing has the class ``decorative`` and no text.
Figures are drawn in the colours of ``zoolib.book.colors.LIGHT``; the dark form is the same file with each
colour exchanged for its partner in ``DARK``, and the theme's own classes show one and hide the other.

Why our own: checkers of finished pages (axe, Nu) find a missing text, not a poor one, and name no source
line; the theme's classes want two files, and no extension of Sphinx or MyST-NB draws the second.
"""

from __future__ import annotations

import re
from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging

from zoolib.book.colors import DARK, LIGHT

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


class CheckAndPairPictures(SphinxPostTransform):
    """Check the texts of all pictures, and put a light and a dark one where a cell drew one."""

    default_priority = 50  # after MyST-NB has chosen among the forms of an output, at 4
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        for picture in list(self.document.findall(nodes.image)):
            decorative = "decorative" in picture["classes"]
            if fault := fault_of(picture.get("alt", ""), decorative):
                LOG.warning("%s (%s)", fault, picture["uri"], location=picture)
            source = Path(self.app.srcdir, picture["uri"])
            if source.suffix == ".svg" and "jupyter_execute" in source.parts:
                self._pair(picture, source)

    def _pair(self, picture: nodes.image, source: Path) -> None:
        drawn = source.read_text(encoding="utf-8")
        for name, colour in LIGHT.items():
            drawn = drawn.replace(colour, DARK[name])
        target = source.with_name(source.stem + "-dark.svg")
        target.write_text(drawn, encoding="utf-8")
        light, dark = picture.deepcopy(), picture.deepcopy()
        dark["uri"] = str(Path(picture["uri"]).with_name(target.name))
        dark["candidates"] = {"*": dark["uri"]}
        self.env.images.add_file(self.env.docname, dark["uri"])
        light["classes"], dark["classes"] = ["only-light"], ["only-dark"]
        # The theme hides a caption that stands beside a dark picture, so the two get a box of their own.
        picture.replace_self(nodes.container("", light, dark, classes=["figure-pair"]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(CheckAndPairPictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
