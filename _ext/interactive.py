"""Sphinx extension: figures that a reader can move.

The directive ``{interactive} NAME`` leaves an empty figure, the data that a cell of the page handed over
by ``zoolib.publish("NAME", …)``, and the script ``scripts/NAME.js``, which fills it. The figure is hidden
without scripts and in print, where the static figure named by ``:static:`` stands for it. Scripts and
styles reach only the pages that need them. A fault in any of this is a warning: it breaks the build.

The leading comments of a script say what else it needs (``// needs: zoo.js``) and how high its figure is
on a wide page and on a phone (``// height: 36rem 46rem``), so that nothing moves when it is filled.
"""

from __future__ import annotations

import json
import re
from pathlib import Path

from claims import records
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from zoolib.book import FIGURE_PREFIX
from zoolib.plots import DARK, LIGHT

LOG = logging.getLogger(__name__)
SCRIPTS = Path(__file__).resolve().parent / "scripts"
BUILDERS = ("html", "dirhtml")


class InteractiveFigure(nodes.General, nodes.Element):
    """A figure that a script fills; its children are the caption."""


class InteractiveDirective(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec = {  # noqa: RUF012
        "static": directives.unchanged_required,
        "label": directives.unchanged_required,
    }

    def run(self) -> list[nodes.Node]:
        self.assert_has_content()
        for option in self.option_spec:
            if option not in self.options:
                raise self.error(f"interactive {self.arguments[0]!r} needs :{option}:")
        figure = InteractiveFigure(name=self.arguments[0], **self.options)
        self.set_source_info(figure)
        self.state.nested_parse(self.content, self.content_offset, figure)
        return [figure]


def headers(script: Path) -> dict[str, list[str]]:
    """Read the leading comments ``// key: word word`` of a script."""
    found = re.findall(r"^// (\w+): (.+)$", script.read_text(encoding="utf-8"), re.M)
    return {key: words.replace(",", " ").split() for key, words in found}


class PrepareFigures(SphinxPostTransform):
    """Check each figure and give it its data; outside web pages, point to the static figure."""

    default_priority = 5  # before references to figures are resolved, at 10

    def run(self, **kwargs: object) -> None:
        for figure in list(self.document.findall(InteractiveFigure)):
            if self.app.builder.name in BUILDERS:
                self._prepare(figure)
            else:
                figure.replace_self(self._stand_in(figure))

    def _prepare(self, figure: InteractiveFigure) -> None:
        name, page = figure["name"], self.env.docname
        script = SCRIPTS / f"{name}.js"
        faults = {
            f"there is no _ext/scripts/{name}.js": not script.exists(),
            f"no figure of this page has the name {figure['static']!r}": not any(
                figure["static"] in static["names"]
                for static in self.document.findall(nodes.figure)
            ),
        }
        data = records(self.app, self.env, page, FIGURE_PREFIX)
        faults[f"no cell of this page publishes {name!r}"] = name not in data
        for fault in (fault for fault, found in faults.items() if found):
            LOG.warning("interactive %r: %s", name, fault, location=figure)
        figure["data"] = data.get(name, {})
        figure["headers"] = headers(script) if script.exists() else {}

    def _stand_in(self, figure: InteractiveFigure) -> nodes.paragraph:
        number = addnodes.pending_xref(
            "",
            nodes.inline(),
            refdomain="std",
            reftype="numref",
            reftarget=figure["static"],
            refdoc=self.env.docname,
            refexplicit=False,
            refwarn=True,
        )
        words = " has a second form, whose values the reader can change."
        return nodes.paragraph(
            "", "", nodes.Text("On the book’s web page "), number, nodes.Text(words)
        )


def visit(self: HTML5Translator, figure: InteractiveFigure) -> None:
    """Open the figure: an empty stage, the data, the caption."""
    name = figure["name"]
    wide, phone = figure["headers"].get("height", ["30rem", "40rem"])
    attributes = {
        "data-figure": name,
        "role": "group",
        "aria-label": figure["label"],
        "aria-describedby": f"interactive-{name}-caption",
        "style": f"--height: {wide}; --height-on-phone: {phone}",
    }
    # Inside a script element only "</" could end it.
    data = json.dumps(figure["data"], separators=(",", ":")).replace("</", r"<\/")
    self.body += [
        self.starttag(figure, "div", CLASS="interactive", **attributes),
        '<div class="interactive-stage"></div>\n',
        f'<script type="application/json">{data}</script>\n',
        f'<div class="interactive-caption" id="interactive-{name}-caption">\n',
    ]


def depart(self: HTML5Translator, figure: InteractiveFigure) -> None:
    """Close the caption and the figure."""
    self.body.append("</div>\n</div>\n")


def add_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Add the scripts and styles of a page's figures to that page."""
    figures = list(doctree.findall(InteractiveFigure)) if doctree else []
    if not figures:
        return
    app.add_css_file("interactive.css")
    scripts = ["plot.js"]
    for figure in figures:
        scripts += [*figure["headers"].get("needs", []), f"{figure['name']}.js"]
    for script in dict.fromkeys(scripts):
        app.add_js_file(script, loading_method="defer")


def add_sources(app: Sphinx, config: Config) -> None:
    """Have scripts copied, and styles written with the colours of the book's figures."""
    config.html_static_path.append(str(SCRIPTS))
    config.html_context["figure_colors"] = {"light": LIGHT, "dark": DARK}


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(InteractiveFigure, html=(visit, depart))
    app.add_directive("interactive", InteractiveDirective)
    app.add_post_transform(PrepareFigures)
    app.connect("config-inited", add_sources)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
