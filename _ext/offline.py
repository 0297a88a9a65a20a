"""Sphinx extension: formulas are set without asking another host for MathJax.

It exists because MathJax under the static folder would be added by Jupyter Book to each page a second time.
Other scripts that come from elsewhere are dropped by `theme_repairs`.
"""

from __future__ import annotations

from pathlib import Path

from sphinx.application import Sphinx
from sphinx.config import Config


def bundle_mathjax(app: Sphinx, config: Config) -> None:
    """Copy MathJax into the book and load it from there."""
    config.html_static_path.append(str(Path(__file__).resolve().parent / "mathjax"))
    config.mathjax_path = "tex-svg.js"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("config-inited", bundle_mathjax)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
