"""Sphinx extension: the built book asks no other host for anything.

MathJax lies beside this file rather than under the static folder, where Jupyter Book would add two
megabytes of script to pages without mathematics too. The live-code button's scripts are dropped:
they come from another host.
"""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config


def bundle_mathjax(app: Sphinx, config: Config) -> None:
    """Copy MathJax into the book and load it from there."""
    config.html_static_path.append(str(Path(__file__).resolve().parent / "mathjax"))
    config.mathjax_path = "tex-svg.js"


def drop_thebe(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Remove the scripts and styles of sphinx-thebe from a page."""
    for kind in ("script_files", "css_files"):
        context[kind] = [
            file for file in context.get(kind, []) if "thebe" not in _about(file)
        ]


def _about(file: object) -> str:
    """Name and attributes of a script or style, in lower case; an inline script is an attribute."""
    return (
        f"{getattr(file, 'filename', file)} {getattr(file, 'attributes', '')}".lower()
    )


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", bundle_mathjax)
    app.connect("html-page-context", drop_thebe, priority=900)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
