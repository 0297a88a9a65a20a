"""Sphinx extension: figures that a reader can move.

The directive ``{interactive} NAME`` leaves an empty figure, the data that a cell of the page handed over
by ``zoolib.publish("NAME", …)``, and the script ``scripts/NAME.js``, which fills it. The figure is hidden
without scripts and in print, where the static figure named by ``:static:`` stands for it. Scripts and
styles reach only the pages that need them. A fault in any of this is a warning: it breaks the build.

The leading comments of a script say what else it needs (``// needs: zoo.js``) and how high its figure is
on a wide page and on a phone (``// height: 36rem 46rem``), so that nothing moves when it is filled.

Why our own: plotly, bokeh and pyodide bring megabytes from elsewhere, and no figure of theirs is ours.
"""

from __future__ import annotations

import html
import json
import re
from pathlib import Path

from claims import records
from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective
from sphinx.writers.html5 import HTML5Translator

from zoolib.book.claims import FIGURE_PREFIX
from zoolib.book.colors import DARK, LIGHT

LOG = logging.getLogger(__name__)
SCRIPTS = Path(__file__).resolve().parent / "scripts"


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
    """Read the leading comments ``// key: word word`` of a script, if there is one."""
    text = script.read_text(encoding="utf-8") if script.exists() else ""
    found = re.findall(r"^// (\w+): (.+)$", text, re.M)
    return {key: words.replace(",", " ").split() for key, words in found}


def visit_figure(writer: HTML5Translator, figure: InteractiveFigure) -> None:
    """Check a figure and begin it: an empty stage, the data, the caption."""
    builder, name, static = writer.builder, figure["name"], figure["static"]
    script = SCRIPTS / f"{name}.js"
    statics = [n for f in writer.document.findall(nodes.figure) for n in f["names"]]
    data = records(builder.app, builder.env, builder.current_docname, FIGURE_PREFIX)
    if not script.exists():
        warn(figure, f"there is no _ext/scripts/{name}.js")
    if static not in statics:
        warn(figure, f"no figure of this page has the name {static!r}")
    if name not in data:
        warn(figure, f"no cell of this page publishes {name!r}")
    wide, phone = headers(script).get("height", ["30rem", "40rem"])
    # Inside a script element only "</" could end it.
    text = json.dumps(data.get(name), separators=(",", ":")).replace("</", r"<\/")
    writer.body.append(
        f'<div class="interactive" data-figure="{name}" role="group" '
        f'aria-label="{html.escape(figure["label"])}" '
        f'aria-describedby="interactive-{name}-caption" '
        f'style="--height: {wide}; --height-on-phone: {phone}">\n'
        '<div class="interactive-stage"></div>\n'
        f'<script type="application/json">{text}</script>\n'
        f'<div class="interactive-caption" id="interactive-{name}-caption">\n'
    )


def depart_figure(writer: HTML5Translator, figure: InteractiveFigure) -> None:
    writer.body.append("</div></div>\n")


def warn(figure: InteractiveFigure, fault: str) -> None:
    LOG.warning("interactive %r: %s", figure["name"], fault, location=figure)


def add_scripts(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Add the scripts and styles of a page's figures to that page."""
    figures = re.findall(r'data-figure="([\w-]+)"', context.get("body", ""))
    if not figures:
        return
    app.add_css_file("interactive.css")
    scripts = ["plot.js"]
    for name in figures:
        needs = headers(SCRIPTS / f"{name}.js").get("needs", [])
        scripts += [*needs, f"{name}.js"]
    for script in dict.fromkeys(scripts):
        app.add_js_file(script, loading_method="defer")


def add_sources(app: Sphinx, config: Config) -> None:
    """Copy the scripts, and write the styles with the colours of the book's figures."""
    config.html_static_path.append(str(SCRIPTS))
    config.html_context["figure_colors"] = {"light": LIGHT, "dark": DARK}


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(InteractiveFigure, html=(visit_figure, depart_figure))
    app.add_directive("interactive", InteractiveDirective)
    app.connect("config-inited", add_sources)
    app.connect("html-page-context", add_scripts)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
