"""Sphinx extension: what a chapter costs, what it builds on, and its map, at its top.

The directive ``{overview}`` holds the map: a list of the stages of the chapter's argument, each with
links to its sections. Before it stand facts that are computed: the time to read the chapter, the time
that its cells took when they ran, the earlier chapters that it refers to. A section that is missing on
the map, or out of order, is a warning: it breaks the build.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import docname_join, logging
from sphinx.util.docutils import SphinxDirective

LOG = logging.getLogger(__name__)

# To study is slower than to read (238 words a minute, Brysbaert 2019), and not only words take time.
WORDS_A_MINUTE = 180
SECONDS_A_FORMULA = 20
SECONDS_A_FIGURE = 20
SECONDS_A_LINE_OF_CODE = 4
LINKS = (addnodes.pending_xref, nodes.reference)


class PendingFacts(nodes.General, nodes.Element):
    """The facts of a chapter, while pages are still being read."""


class OverviewDirective(SphinxDirective):
    has_content = True

    def run(self) -> list[nodes.Node]:
        plan = nodes.container(classes=["chapter-map"])
        plan += self.parse_content_to_nodes()
        box = nodes.container("", PendingFacts(), plan, classes=["overview"])
        self.set_source_info(box)
        return [box]


@dataclass
class Effort:
    """What there is to read on a page, exercises and printed outputs left out."""

    words: int = 0
    formulas: int = 0
    figures: int = 0
    lines_of_code: int = 0
    exercises: int = 0

    @property
    def minutes(self) -> int:
        """Minutes of study."""
        seconds = (
            60 * self.words / WORDS_A_MINUTE
            + SECONDS_A_FORMULA * self.formulas
            + SECONDS_A_FIGURE * self.figures
            + SECONDS_A_LINE_OF_CODE * self.lines_of_code
        )
        return max(1, round(seconds / 60))


def effort(node: nodes.Element, found: Effort | None = None) -> Effort:
    """Count what there is to read in a node."""
    found = found or Effort()
    for child in node.children:
        kind = type(child).__name__
        classes = child.get("classes", []) if isinstance(child, nodes.Element) else []
        if kind.startswith("exercise"):
            found.exercises += 1
        elif kind.startswith("solution") or "overview" in classes:
            continue
        elif "cell_output" in classes:
            found.figures += len(list(child.findall(nodes.image)))
        elif isinstance(child, nodes.math_block):
            found.formulas += 1
        elif isinstance(child, nodes.literal_block):
            found.lines_of_code += len(child.astext().splitlines())
        elif isinstance(child, nodes.Text):
            found.words += len(child.split())
        else:
            effort(child, found)
    return found


def numbered_pages(env: BuildEnvironment) -> dict[str, int]:
    """Return the number of each chapter, as the table of contents has it."""
    return {
        page: sections[""][0]
        for page, sections in env.toc_secnumbers.items()
        if sections.get("") and len(sections[""]) == 1
    }


def collect(app: Sphinx, env: BuildEnvironment) -> None:
    """Once all pages are read and numbered, count what each chapter holds."""
    env.chapter_facts = {}
    for page in numbered_pages(env):
        doctree = env.get_doctree(page)
        env.chapter_facts[page] = {
            "effort": effort(doctree),
            "seconds": env.nb_metadata.get(page, {})
            .get("exec_data", {})
            .get("runtime"),
            "refers_to": set(_referred(env, doctree, page)) - {page},
        }
        if boxes := list(doctree.findall(lambda node: "chapter-map" in _classes(node))):
            _check_map(doctree, boxes[0], page)
        else:
            LOG.warning("a chapter begins with its {overview}", location=page)


def _classes(node: nodes.Node) -> list[str]:
    return node.get("classes", []) if isinstance(node, nodes.Element) else []


def _referred(
    env: BuildEnvironment, doctree: nodes.document, page: str
) -> Iterator[str]:
    """Name the pages that hold what a page refers to by label or by name."""
    labels = env.domains["std"].labels | env.domains["std"].anonlabels
    for link in doctree.findall(addnodes.pending_xref):
        target = link["reftarget"]
        if (other := docname_join(page, target)) in env.all_docs:
            yield other
        elif target in env.all_docs:
            yield target
        elif target.lower() in labels:
            yield labels[target.lower()][0]


def _check_map(doctree: nodes.document, plan: nodes.Element, page: str) -> None:
    """Warn if a map is not that of its page."""
    (top,) = (node for node in doctree.children if isinstance(node, nodes.section))
    sections = [node for node in top.children if isinstance(node, nodes.section)]
    links = list(plan.findall(lambda node: isinstance(node, LINKS)))
    if found := difference(links, sections):
        LOG.warning("%s", found, location=page)


def difference(links: list[nodes.Element], sections: list[nodes.section]) -> str:
    """Say how a map differs from the sections; it names each of them once and in order."""
    named = [str(link.get("reftarget") or link.get("refid")).lower() for link in links]
    ids = [section["ids"] for section in sections]
    if len(named) == len(ids) and all(map(_is_one_of, named, ids)):
        return ""
    wanted = ", ".join(names[0] for names in ids)
    return f"the map names {', '.join(named)}, the sections are {wanted}"


def _is_one_of(name: str, ids: list[str]) -> bool:
    return name in ids or nodes.make_id(name) in ids


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Put the facts where they were asked for."""
    for pending in list(doctree.findall(PendingFacts)):
        facts = app.env.chapter_facts[docname]
        counted, chapters = facts["effort"], numbered_pages(app.env)
        before = [
            page
            for page in sorted(
                facts["refers_to"], key=lambda page: chapters.get(page, 0)
            )
            if chapters.get(page, chapters[docname]) < chapters[docname]
        ]
        line = nodes.paragraph(classes=["chapter-facts"])
        line += nodes.Text(f"To read: {_duration(60 * counted.minutes)}. ")
        line += nodes.Text(f"To run: {_duration(facts['seconds'])}. ")
        line += nodes.Text(f"Exercises: {counted.exercises}. ")
        line += nodes.Text("Builds on: ")
        line += _links(app, docname, before, chapters)
        pending.replace_self(line)


def _links(
    app: Sphinx, docname: str, pages: list[str], chapters: dict[str, int]
) -> Iterator[nodes.Node]:
    if not pages:
        yield nodes.Text("no other chapter.")
    for place, page in enumerate(pages):
        uri = app.builder.get_relative_uri(docname, page)
        text = f"Chapter {chapters[page]}"
        yield nodes.reference("", text, refuri=uri, internal=True)
        yield nodes.Text("." if place == len(pages) - 1 else ", ")


def _duration(seconds: float | None) -> str:
    """Say a time in the unit that fits it; a page without code runs nothing."""
    if seconds is None:
        return "nothing"
    if seconds < 90:
        return f"{seconds:.0f} seconds"
    minutes = round(seconds / 60)
    hours, rest = divmod(minutes, 60)
    return f"{hours} h {rest} min" if hours else f"{minutes} minutes"


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_node(PendingFacts)
    app.add_directive("overview", OverviewDirective)
    app.connect("env-check-consistency", collect)
    app.connect("doctree-resolved", resolve)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
