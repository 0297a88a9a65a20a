"""Sphinx extension: shows at the top of a chapter how long it takes, what it builds on, and its map.

The directive ``{overview}`` holds the map: a list of the stages of the chapter's argument, each with
links to its sections. Before it stand facts that are computed: the time to read the chapter, the time
that its cells took when they ran, the earlier chapters that it refers to. A section that is missing on
the map, or out of order, is a warning: it breaks the build.

The role ``{reading-time}`An evening, {}` `` in an item of a list puts in the time to read all pages and
sections that the item links to.

Why our own: sphinx-reading-time and the like count words alone, and no extension checks a map.
"""

from __future__ import annotations

from collections import Counter

from claims import unbuilt
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxDirective

LOG = logging.getLogger(__name__)

# To study is slower than to read (238 words a minute, Brysbaert 2019), and not only words take time.
SECONDS = {"words": 1 / 3, "formulas": 20, "figures": 20, "lines of code": 4}
TIMES = "chapters/executions"  # says on what machine the cells ran


class PendingFacts(nodes.General, nodes.Element):
    """A placeholder for the facts of a chapter, until all pages are read."""


class PendingTime(nodes.Inline, nodes.Element):
    """A placeholder for a text with a time in it, until all pages are read."""


def reading_time(
    name: str, rawtext: str, text: str, *args: object, **options: object
) -> tuple[list[nodes.Node], list[nodes.Node]]:
    return [PendingTime(rawtext, words=text)], []


class OverviewDirective(SphinxDirective):
    has_content = True

    def run(self) -> list[nodes.Node]:
        plan = nodes.container(classes=["chapter-map"])
        plan += self.parse_content_to_nodes()
        box = nodes.container("", PendingFacts(), plan, classes=["overview"])
        self.set_source_info(box)
        return [box]


def contents(node: nodes.Element) -> Counter[str]:
    """Count what there is to read in a node; exercises, folded code and printed outputs are left out."""
    found: Counter[str] = Counter()
    for child in node.children:
        kind = type(child).__name__
        classes = [] if isinstance(child, nodes.Text) else child.get("classes", [])
        if kind.startswith("exercise"):
            found["exercises"] += 1
        elif kind.startswith(("solution", "Fold")) or "overview" in classes:
            continue
        elif "cell_output" in classes:
            found["figures"] += len(list(child.findall(nodes.image)))
        elif kind == "PendingShown":
            found["figures"] += 1
        elif isinstance(child, nodes.math_block):
            found["formulas"] += 1
        elif isinstance(child, nodes.literal_block):
            found["lines of code"] += len(child.astext().splitlines())
        elif isinstance(child, nodes.Text):
            found["words"] += len(child.split())
        else:
            found += contents(child)
    return found


def minutes(found: Counter[str]) -> int:
    """Say how long it takes to read what was counted; nothing takes less than a minute."""
    reading = sum(each * found[kind] for kind, each in SECONDS.items())
    return max(1, round(reading / 60))


def resolve_times(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Add up the minutes of all that an item of a list links to."""
    env, builder = app.env, app.builder
    pages = {builder.get_relative_uri(docname, page): page for page in env.found_docs}

    def linked(link: nodes.reference) -> nodes.Element | None:
        """Find the page, or the section of it, that a link leads to."""
        target, _, anchor = link.get("refuri", "").partition("#")
        page = env.get_doctree(pages[target]) if target in pages else None
        if page is None or not anchor:
            return page
        sections = page.findall(nodes.section)
        return next((section for section in sections if anchor in section["ids"]), None)

    for pending in list(doctree.findall(PendingTime)):
        item = pending.parent
        while item and not isinstance(item, nodes.list_item):
            item = item.parent
        links = item.findall(nodes.reference) if item else ()
        parts = [linked(link) for link in links if "claim" not in link["classes"]]
        if not parts or None in parts:
            fault = "a reading time stands in an item of a list, whose links lead to pages and sections"
            LOG.warning(fault, location=docname)
            parts = []
        total = sum(minutes(contents(part)) for part in parts)
        words = pending["words"].replace("{}", _duration(60 * total))
        pending.replace_self(nodes.Text(words))


def numbered_pages(env: BuildEnvironment) -> dict[str, int]:
    """Return the number of each chapter, as the table of contents has it."""
    return {
        page: sections[""][0]
        for page, sections in env.toc_secnumbers.items()
        if sections.get("") and len(sections[""]) == 1
    }


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Check the map of a chapter, and put the facts before it."""
    chapters = numbered_pages(app.env)
    if docname not in chapters:
        return
    pending = next(doctree.findall(PendingFacts), None)
    if pending is None:
        LOG.warning("a chapter begins with its {overview}", location=docname)
        return
    sections = [
        n for n in doctree.next_node(nodes.section) if isinstance(n, nodes.section)
    ]
    plan = pending.next_node(descend=False, siblings=True)
    if fault := difference(plan, sections):
        LOG.warning("%s", fault, location=docname)
    found = contents(app.env.get_doctree(docname))
    ran = app.env.nb_metadata.get(docname, {}).get("exec_data", {})
    running = ran.get("runtime")

    def link(page: str, words: str) -> nodes.reference:
        uri = app.builder.get_relative_uri(docname, page)
        return nodes.reference("", words, refuri=uri, internal=True)

    facts = [
        nodes.Text(f"To read: {_duration(60 * minutes(found))}. To run: "),
        unbuilt() if ran and not running else link(TIMES, _duration(running)),
        nodes.Text(f". Exercises: {found['exercises']}. Builds on: "),
    ]
    linked = {
        link.get("refuri", "").partition("#")[0]
        for link in doctree.findall(nodes.reference)
        if "claim" not in link["classes"]
    }
    before: list[nodes.Node] = []
    for page, number in sorted(chapters.items(), key=lambda item: item[1]):
        chapter = link(page, f"Chapter {number}")
        if chapter["refuri"] in linked and number < chapters[docname]:
            before += [nodes.Text(", "), chapter] if before else [chapter]
    before = before or [nodes.Text("no other chapter")]
    line = [*facts, *before, nodes.Text(".")]
    pending.replace_self(nodes.paragraph("", "", *line, classes=["chapter-facts"]))


def difference(plan: nodes.Element, sections: list[nodes.section]) -> str:
    """Return how a map differs from the sections, each of which it must name once and in order."""
    named = [
        link.get("refid") or link.get("refuri", "").partition("#")[2]
        for link in plan.findall(nodes.reference)
    ]
    ids = [section["ids"] for section in sections]
    fits = [name in one for name, one in zip(named, ids, strict=False)]
    if len(named) == len(ids) and all(fits):
        return ""
    wanted = ", ".join(names[0] for names in ids)
    return f"the map names {', '.join(named)}, the sections are {wanted}"


def _duration(seconds: float | None) -> str:
    """Write a time in a fitting unit; a page without code runs nothing."""
    if seconds is None:
        return "nothing"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} minutes"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(PendingFacts)
    app.add_node(PendingTime)
    app.add_directive("overview", OverviewDirective)
    app.add_role("reading-time", reading_time)
    app.connect("doctree-resolved", resolve)
    app.connect("doctree-resolved", resolve_times)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
