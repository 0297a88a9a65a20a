"""Sphinx extension: every vector figure gets a second form for the dark theme.

Figures are drawn in the colours of ``zoolib.book.plots.LIGHT``. The dark form is the same file with each
colour exchanged for its partner in ``DARK``; the theme's own classes show one and hide the other.

Why our own: the theme's classes want two files, and no extension of Sphinx or MyST-NB draws the second.
"""

from __future__ import annotations

from pathlib import Path

from docutils import nodes
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform

from zoolib.book.plots import DARK, LIGHT


def recolour(svg: str) -> str:
    """Exchange the light colours of a figure for the dark ones."""
    for name, light in LIGHT.items():
        svg = svg.replace(light, DARK[name])
    return svg


class PairFigures(SphinxPostTransform):
    """Put a light and a dark picture where one picture was."""

    default_priority = 50  # after MyST-NB has chosen among the forms of an output, at 4
    formats = ("html",)

    def run(self, **kwargs: object) -> None:
        for image in list(self.document.findall(nodes.image)):
            source = Path(self.app.srcdir, image["uri"])
            if source.suffix == ".svg" and "jupyter_execute" in source.parts:
                self._pair(image, source)

    def _pair(self, image: nodes.image, source: Path) -> None:
        target = source.with_name(source.stem + "-dark.svg")
        target.write_text(
            recolour(source.read_text(encoding="utf-8")), encoding="utf-8"
        )
        light, dark = image.deepcopy(), image.deepcopy()
        dark["uri"] = str(Path(image["uri"]).with_name(target.name))
        dark["candidates"] = {"*": dark["uri"]}
        self.env.images.add_file(self.env.docname, dark["uri"])
        light["classes"], dark["classes"] = ["only-light"], ["only-dark"]
        # The theme hides a caption that stands beside a dark picture, so the two get a box of their own.
        image.replace_self(nodes.container("", light, dark, classes=["figure-pair"]))


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_post_transform(PairFigures)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
