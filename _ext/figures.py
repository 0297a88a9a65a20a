"""Sphinx extension: requires alternative text for every picture, and adds dark versions of drawn ones.

A picture without a text for those who cannot see it, with a file name in its place, or with too few words
to say what it shows is a warning. A picture that shows nothing has the class ``decorative`` and no text.
Figures are drawn in the colours of ``zoolib.book.colors.LIGHT``; the dark form is the same file with each
colour exchanged for its partner in ``DARK``, and the theme's own classes show one and hide the other.
The curves of a figure with the class ``moving`` are drawn from left to right when the page is opened, once,
and stand still for readers who ask for less motion. This needs no script, and no request of its own.

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
from sphinx.writers.html5 import HTML5Translator

from zoolib.book.colors import DARK, LIGHT

LOG = logging.getLogger(__name__)
FEWEST_WORDS = 5
FILE_NAME = r"\S+\.(?:svg|png|jpe?g|gif|webp)\b"
FRAME = (
    r'<clipPath id="(\w+)">\s*<rect (x="\S+" y="\S+") width="(\S+)" (height="\S+")/>'
)
# What moves for more than five seconds needs a button that stops it (WCAG 2.2.2).
MOTION = """<clipPath id="moving"><rect class="until" {place} width="{width}" {height}/></clipPath>
<rect class="now" {place} width="1" {height} style="fill: {ink}"/>
<style>.until, .now {{animation: until 4.5s linear 0.3s backwards}} .now {{opacity: 0; animation-name: now}}
@keyframes until {{from {{width: 0}}}}
@keyframes now {{from {{opacity: 1}} to {{opacity: 1; transform: translateX({width}px)}}}}</style>
"""


class Still(nodes.image):
    """The form of the picture in it for readers who ask for less motion."""


def fault_of(alt: str, decorative: bool) -> str | None:
    """Say what is wrong with the text of a picture."""
    if decorative:
        return "a decorative picture must have an empty alt text" if alt else None
    if re.search(FILE_NAME, alt):
        return f"the alt text of a picture must not be a file name: got {alt!r}"
    if len(alt.split()) < FEWEST_WORDS:
        return f"the alt text of a picture must say what it shows in at least {FEWEST_WORDS} words: got {alt!r}"
    return None


def moving(drawn: str, ink: str) -> str:
    """Return a drawn figure whose curves, and what else stands between its axes, appear from left to right."""
    drawn = re.sub(r"<metadata>.*?</metadata>", "", drawn, flags=re.S)  # in exchange
    name, place, width, height = re.search(FRAME, drawn).groups()
    start = drawn.index('<g id="FillBetween')  # the grid before it is there at once
    end = drawn.rindex("</svg>")
    motion = MOTION.format(place=place, width=width, height=height, ink=ink)
    curves = drawn[start:end].replace(f"url(#{name})", "url(#moving)")
    return drawn[:start] + curves + motion + drawn[end:]


def visit_still(writer: HTML5Translator, still: Still) -> None:
    builder = writer.builder
    file = f"{builder.imgpath}/{builder.images[still['uri']]}"
    when = "(prefers-reduced-motion: reduce)"
    writer.body.append(f'<picture><source media="{when}" srcset="{file}">')


def depart_still(writer: HTML5Translator, still: Still) -> None:
    writer.body.append("</picture>")


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
        drawn = dark = source.read_text(encoding="utf-8")
        for name, colour in LIGHT.items():
            dark = dark.replace(colour, DARK[name])
        # The theme hides a caption that stands beside a dark picture, so the two get a box of their own.
        pair = nodes.container("", classes=["figure-pair"])
        forms = ("light", drawn, LIGHT["ink"]), ("dark", dark, DARK["ink"])
        # Where the page was not executed, a placeholder stands there, without a frame.
        moves = "moving" in picture["classes"] and re.search(FRAME, drawn)
        for theme, text, ink in forms:
            suffix = "" if theme == "light" else "-dark"
            shown = self._form(picture.deepcopy(), source, suffix, text)
            if moves:
                still = Still(**shown.attributes)
                still += self._form(
                    shown, source, suffix + "-moving", moving(text, ink)
                )
                pair += still
            else:
                pair += shown
            shown["classes"] = [f"only-{theme}"]
        picture.replace_self(pair)

    def _form(
        self, picture: nodes.image, source: Path, suffix: str, drawn: str
    ) -> nodes.image:
        """Write a form of a figure, and let a picture show it."""
        target = source.with_name(source.stem + suffix + source.suffix)
        if target != source:  # which is the light form
            target.write_text(drawn, encoding="utf-8")
        picture["uri"] = str(Path(picture["uri"]).with_name(target.name))
        picture["candidates"] = {"*": picture["uri"]}
        self.env.images.add_file(self.env.docname, picture["uri"])
        return picture


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(Still, html=(visit_still, depart_still))
    app.add_post_transform(CheckAndPairPictures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
