"""Sphinx extension: under each page that a search finds stands a passage of it that holds the words.

Why our own: Sphinx's script fetches the pages that it has found, which browsers forbid where a book is opened
as files, and cuts its excerpts from all that stands on a page: buttons, contents, the TeX of formulas. Here
the passages of each page are written into a script beside the pages, which `scripts/search.js` loads.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from html import unescape
from pathlib import Path
from unicodedata import lookup

from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx

FOLDER = "_passages"
LEFT_OUT = (nodes.comment, nodes.math_block, nodes.thead, addnodes.index)
# What is one passage though it has several paragraphs, and what is harder to read than prose; so are few words.
WHOLE = (nodes.TextElement, nodes.definition_list_item, nodes.row)
HARD = (nodes.literal_block, nodes.raw, nodes.row, addnodes.desc_signature)
BELOW = str.maketrans("0123456789aehijklmnoprstuvx", "₀₁₂₃₄₅₆₇₈₉ₐₑₕᵢⱼₖₗₘₙₒₚᵣₛₜᵤᵥₓ")
SHORT = 80
ENDS = {"term": ": ", "entry": " · "}
TAGS = re.compile(r"<(style|script)\b.*?</\1>|<[^<]+?>", re.DOTALL)


def passages(node: nodes.Element) -> Iterator[tuple[str, bool, str]]:
    """Yield the passages of a page: the anchors that lead to each, whether it is prose, its text.

    A heading begins the passage that follows it.
    """
    anchors: list[str] = []
    heads: list[str] = []

    def walk(node: nodes.Element) -> Iterator[tuple[str, bool, str]]:
        for child in node.children:
            if isinstance(child, LEFT_OUT) or "chapter-map" in child["classes"]:
                continue
            if not isinstance(child, WHOLE):
                anchors.extend(child["ids"])
                yield from walk(child)
                continue
            anchors.extend(
                name for part in child.findall(nodes.Element) for name in part["ids"]
            )
            if not (text := words(child)):
                continue
            if isinstance(child, nodes.title):
                text = text.strip("()") if text[0] == "(" else text  # of a theorem
                heads.append(text if text[-1] in ".?!:" else f"{text}.")
                continue
            whole = " ".join([*heads, text])
            prose = not isinstance(child, HARD) and len(whole) > SHORT
            yield " ".join(anchors), prose, whole
            anchors.clear()
            heads.clear()

    return walk(node)


def words(node: nodes.Node) -> str:
    """Return what is read in a node, on one line."""

    def parts(node: nodes.Node) -> Iterator[str]:
        if isinstance(node, nodes.raw):  # tables of pandas
            yield unescape(TAGS.sub(" ", node.astext()))
        elif isinstance(node, nodes.math):
            yield plain(node.astext())
        elif isinstance(node, nodes.Text):
            yield node.astext()
        elif not isinstance(node, LEFT_OUT):
            for child in node.children:
                yield from parts(child)
            if not isinstance(node, nodes.Inline):
                yield ENDS.get(node.tagname, " ")

    return " ".join("".join(parts(node)).split()).rstrip(" ·")


def plain(tex: str) -> str:
    r"""Write a formula in letters, such as ``\alpha``, ``x_t`` and ``n = 20``; others are left out."""

    def letter(found: re.Match[str]) -> str:
        name, kind = found[1].upper(), "SMALL" if found[1].islower() else "CAPITAL"
        try:
            return lookup(f"GREEK {kind} LETTER {name.replace('LAMBDA', 'LAMDA')}")
        except KeyError:
            return found[0]

    text = re.sub(r"\\([A-Za-z]+) ?", letter, tex.replace(r"\,", " "))
    text = re.sub(r"_([0-9aehijklmnoprstuvx])", lambda m: m[1].translate(BELOW), text)
    return "…" if re.search(r"[\\{}_^]", text) else text


def write(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Write the passages of a page once all its references are known."""
    if app.builder.name != "html":
        return
    file = Path(app.outdir, FOLDER, f"{docname}.js")
    file.parent.mkdir(parents=True, exist_ok=True)
    text = json.dumps([*passages(doctree)], ensure_ascii=False, separators=(",", ":"))
    file.write_text(f"passages[{json.dumps(docname)}]={text}\n", encoding="utf-8")


def add_script(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Add the script to the page of results; deferred, it runs after Sphinx's, whose results it shows."""
    if pagename == "search":
        app.add_js_file("search.js", loading_method="defer")


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("interactive")  # which brings the folder of scripts
    app.connect(
        "doctree-resolved", write, priority=900
    )  # references and claims come at 500
    app.connect("html-page-context", add_script)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
