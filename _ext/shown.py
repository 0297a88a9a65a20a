"""Sphinx extension: shows on one page a figure or a table that a cell of another page has made.

The directive ``{shown} fig-gauntlet``, whose content is a caption of the page's own, has the picture of the
figure of that name, in both themes and with its alternative text; with ``{shown} tab-shocks`` it has the rows
of a table. The option ``name`` makes it a target of ``{numref}``, ``alt`` says in other words what it shows.
Under it a link leads to the section that made it. A name that no figure and no table has is a warning.

Why our own: MyST-NB's ``{glue}`` takes PNG and JPEG from another page, not SVG, and no alternative text.
"""

from __future__ import annotations

from typing import ClassVar

from docutils import nodes
from docutils.parsers.rst import directives
from sphinx.application import Sphinx
from sphinx.transforms.post_transforms import SphinxPostTransform
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOG = logging.getLogger(__name__)
# How the names of tables begin; all others are of figures.
TABLE = "tab-"
HOW = "How we know: "


class PendingShown(nodes.General, nodes.Element):
    """A placeholder for a picture or for the rows of a table, until all pages are read."""


class ShownDirective(SphinxDirective):
    required_arguments = 1
    has_content = True
    option_spec: ClassVar = {
        "name": directives.unchanged,
        "alt": directives.unchanged,
    }

    def run(self) -> list[nodes.Node]:
        name = self.arguments[0]
        pending = PendingShown(of=name, alt=self.options.get("alt"))
        paragraphs = self.parse_content_to_nodes()
        if len(paragraphs) != 1:
            raise self.error("what is shown needs a caption, of one paragraph")
        if name.startswith(TABLE):
            title = nodes.title("", "", *paragraphs[0].children)
            shown = nodes.table("", title, pending)
        else:
            caption = nodes.caption("", "", *paragraphs[0].children)
            shown = nodes.figure("", pending, caption)
        shown["classes"].append("shown")
        self.options.setdefault("name", f"shown-{name}")
        self.add_name(shown)
        how = nodes.paragraph("", "", classes=["shown-how"])
        for node in (pending, shown, how):
            self.set_source_info(node)
        return [nodes.container("", shown, how, classes=["framed"])]


class Show(SphinxPostTransform):
    """Put in the pictures and rows, and the links to where they were made."""

    default_priority = 3  # before MyST-NB chooses among the forms of an output, at 4

    def run(self, **kwargs: object) -> None:
        for pending in list(self.document.findall(PendingShown)):
            box, name = pending.parent, pending["of"]
            how = box.next_node(nodes.paragraph, descend=False, siblings=True)
            page, original = self._find(name)
            wanted = nodes.tgroup if isinstance(box, nodes.table) else nodes.image
            part = next(original.findall(wanted), None) if original else None
            if part is None:
                LOG.warning("no page has %r to show", name, location=box)
                box.parent.remove(how)
                box.parent.remove(box)
                continue
            part = part.deepcopy()
            if pending["alt"]:
                part["alt"] = pending["alt"]
            pending.replace_self(part)
            how += [nodes.Text(HOW), self._link(page, original)]

    def _find(self, name: str) -> tuple[str, nodes.Element | None]:
        """Return the page that has a figure or table of this name, and the figure or table."""
        known = self.env.get_domain("std").anonlabels
        page, place = known.get(name, ("", ""))[:2]
        if page in ("", self.env.docname):
            return page, None
        elements = self.env.get_doctree(page).findall(nodes.Element)
        return page, next((one for one in elements if place in one["ids"]), None)

    def _link(self, page: str, original: nodes.Element) -> nodes.reference:
        """Link to the section in which something was made."""
        section = original
        while not isinstance(section, nodes.section):
            section = section.parent
        uri = self.app.builder.get_relative_uri(self.env.docname, page)
        title = section.next_node(nodes.title).astext()
        place = f"{uri}#{section['ids'][0]}"
        return nodes.reference("", title, refuri=place, internal=True)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(PendingShown)
    app.add_directive("shown", ShownDirective)
    app.add_post_transform(Show)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
