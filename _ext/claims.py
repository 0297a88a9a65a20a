"""Sphinx extension: puts checked numbers into the prose, with links to the cells that computed them.

``zoolib.claim`` leaves a record in the notebook. The role ``{claim}`key``` prints its value, ``{claim}`key
interval``` its interval; both link to the cell that checked the claim, and their title, which
`scripts/claims.js` shows as a tooltip, holds interval, bound and worlds. An interval that stands alone in
its brackets is for print and notebooks: on the screen the tooltip has it. An unknown key is a warning: it
breaks the build. Cells lose the lines that `claim` printed.

What does not hold in a reader's build, claims and doubts about records, is marked in the text and is a line in
``_build/doubts``. In a strict build it is a warning, whichever build executed the page.

Why our own: MyST-NB's ``{glue}`` prints a value, but knows no bound, no tooltip and no place where it was made.
"""

from __future__ import annotations

import ast
import json
import re
from collections.abc import Iterator
from pathlib import Path

from bounds import unbound
from cells import element
from docutils import nodes
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment
from sphinx.util import logging
from sphinx.util.docutils import SphinxRole

from zoolib.book.claims import FAILED, PRINTED, RECORD_PREFIX
from zoolib.book.strictness import is_lenient

LOG = logging.getLogger(__name__)
LINE = re.compile(rf"^{PRINTED}(\w+): .*\n?", re.M)
DOUBT_PREFIX = "doubt:"
DOUBTS = "doubts"
MARK = " (does not hold here)"
OPENS, CLOSES = re.compile(r"\s*[(\[](?:interval )?$"), re.compile(r"^[)\]]")


class PendingNumber(nodes.Inline, nodes.TextElement):
    """A placeholder for a claim's number, until all pages are read."""


class ClaimRole(SphinxRole):
    def run(self) -> tuple[list[nodes.Node], list[nodes.system_message]]:
        key, _, part = self.text.partition(" ")
        number = PendingNumber(self.rawtext, key=key, part=part or "value")
        self.set_source_info(number)
        return [number], []


def anchor(key: str) -> str:
    """Name the place where a claim was checked."""
    return f"checked-{nodes.make_id(key)}"


def pages(env: BuildEnvironment) -> Iterator[str]:
    """Walk the pages in reading order."""
    waiting = [env.config.root_doc]
    while waiting:
        page = waiting.pop()
        yield page
        waiting += reversed(env.toctree_includes.get(page, []))


def records(
    app: Sphinx, env: BuildEnvironment, page: str, prefix: str
) -> dict[str, dict]:
    """Read what a page's notebook glued under names with a prefix; the keys are without it."""
    glued = Path(app.outdir).parent / "jupyter_execute" / f"{page}.glue.json"
    names = getattr(env, "nb_metadata", {}).get(page, {}).get("glue", [])
    data = json.loads(glued.read_text(encoding="utf-8")) if names else {}
    texts = {name: data[name]["data"]["text/plain"] for name in names}
    return {
        name.removeprefix(prefix): json.loads(ast.literal_eval(text))
        for name, text in texts.items()
        if name.startswith(prefix)
    }


def collect(app: Sphinx, env: BuildEnvironment) -> None:
    """Gather the records of all pages, and what does not hold."""
    env.claims, env.doubts = {}, []
    for page in pages(env):
        for doubt in records(app, env, page, DOUBT_PREFIX).values():
            env.doubts.append(doubt | {"page": page})
        for key, record in records(app, env, page, RECORD_PREFIX).items():
            if key in env.claims:
                other = env.claims[key]["page"]
                LOG.warning(
                    "claim %r is made on two pages: %s and %s", key, other, page
                )
            if wanted := unbound(record):
                LOG.warning(
                    "claim %r says %r: its bound must %s",
                    key,
                    record["sentence"],
                    wanted,
                    location=page,
                )
            env.claims[key] = record | {"page": page}
    _tell(app, env)


def failed(env: BuildEnvironment) -> dict[str, dict]:
    """Return the claims that do not hold in this build, by key."""
    return {key: record for key, record in env.claims.items() if not record["holds"]}


def _tell(app: Sphinx, env: BuildEnvironment) -> None:
    """Leave a line for each claim that does not hold and each doubt; warn of it in a strict build."""
    lines = []
    for key, record in failed(env).items():
        interval = f" ({record['interval']})" if record["interval"] else ""
        found = f"Found {record['value']}{interval}, must be {record['held']}."
        where = f"{record['page']}.html#{anchor(key)}"
        lines.append((record["page"], f"{record['sentence']} {found} {where}"))
    for doubt in env.doubts:
        text = f"{doubt['sentence']} Found: {doubt['found']} {doubt['page']}.html"
        lines.append((doubt["page"], text))
    if not is_lenient():
        for page, line in lines:
            LOG.warning("this does not hold: %s", line, location=page)
    text = "".join(f"  {line}\n" for _, line in lines)
    (Path(app.outdir).parent / DOUBTS).write_text(text, encoding="utf-8")


# --- Cells --------------------------------------------------------------------------------------------


def prepare(app: Sphinx, doctree: nodes.document) -> None:
    """Take the lines of claims out of outputs, leave a place to lead to, and set brackets apart."""
    for cell in list(doctree.findall(lambda node: element(node) == "cell_code")):
        if element(cell[0]) == "cell_code_source" and (keys := _strip(cell)):
            # Inside what may be folded, which a browser opens when one comes here.
            cell[0].insert(0, [nodes.target("", "", ids=[anchor(k)]) for k in keys])
    for number in list(doctree.findall(PendingNumber)):
        if number["part"] == "interval":
            _set_apart(number)


def _strip(cell: nodes.Element) -> list[str]:
    """Take out the lines of claims that hold, and return the keys of all."""

    def keep(line: re.Match) -> str:
        return line[0] if line[0].rstrip().endswith(FAILED) else ""

    keys = []
    for output in cell[1:]:
        for block in list(output.findall(nodes.literal_block)):
            found, text = LINE.findall(block.astext()), LINE.sub(keep, block.astext())
            keys += found
            if not text.strip():  # the end of a line may come in a block of its own
                block.parent.remove(block)
            elif found:
                block.replace_self(nodes.literal_block(text, text, **block.attributes))
        if not output.children:
            cell.remove(output)
    return keys


# --- Numbers ------------------------------------------------------------------------------------------


def _set_apart(number: PendingNumber) -> None:
    """Mark an interval together with its brackets if nothing else stands in them."""
    box, at = number.parent, number.parent.index(number)
    before, after = (box[i] if 0 <= i < len(box) else "" for i in (at - 1, at + 1))
    opens, closes = OPENS.search(str(before)), CLOSES.search(str(after))
    if not (opens and closes):
        return
    texts = [nodes.Text(opens[0]), number, nodes.Text(closes[0])]
    rest = [nodes.Text(before[: opens.start()]), nodes.Text(after[closes.end() :])]
    bracket = nodes.inline("", "", classes=["claim-bracket"])
    box[at - 1 : at + 2] = [rest[0], bracket, rest[1]]
    bracket.extend(texts)


def background(record: dict) -> str:
    """Say what stands behind a value: its interval, its bound, its worlds."""
    interval, seeds = record["interval"], record["seeds"]
    parts = [f"interval {interval}"] if interval else []
    parts += [f"must be {record['held']}", worlds(seeds) if seeds else "no worlds"]
    parts += [] if record["holds"] else ["does not hold here"]
    return f"{record['value']}: {'; '.join(parts)}"


def worlds(seeds: list[int]) -> str:
    """Name the worlds of a claim."""
    if len(seeds) == 1:
        return f"seed {seeds[0]}"
    unbroken = len(seeds) > 2 and seeds == list(range(seeds[0], seeds[-1] + 1))
    named = f"{seeds[0]}–{seeds[-1]}" if unbroken else ", ".join(map(str, seeds))
    return f"{len(seeds)} worlds, seeds {named}"


def unbuilt() -> nodes.inline:
    """Stand for a number that only an execution gives, in pages that are read without one."""
    return nodes.inline("", "—", classes=["unbuilt"])


def resolve(app: Sphinx, doctree: nodes.document, docname: str) -> None:
    """Replace the placeholders with the claims' numbers."""
    for number in list(doctree.findall(PendingNumber)):
        key, part = number["key"], number["part"]
        record = app.env.claims.get(key, {})
        text = record.get(part) if part in ("value", "interval") else None
        if not text:
            LOG.warning("no claim gives %r of %r", part, key, location=number)
            number.replace_self(unbuilt())
            continue
        uri = app.builder.get_relative_uri(docname, record["page"])
        link = nodes.reference(
            "",
            text,
            refuri=f"{uri}#{anchor(key)}",
            reftitle=background(record),
            classes=["claim"],
            internal=True,
        )
        if not record["holds"] and "claim-bracket" not in number.parent["classes"]:
            link += nodes.inline("", MARK, classes=["claim-failed"])
        number.replace_self(link)


def point(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Move the place of a claim from the top of its cell to its key, if that stands in the code."""
    body = context.get("body", "")
    for key in (k for k, one in app.env.claims.items() if one["page"] == pagename):
        name = f'id="{anchor(key)}"'
        before, _, cell = body.partition(f'<span class="target" {name}></span>')
        code, end, after = cell.partition("</pre>")
        word = f'class="s2">"{key}"<'
        if word in code:
            body = before + code.replace(word, f"{name} {word}", 1) + end + after
    context["body"] = body


def setup(app: Sphinx) -> dict[str, bool]:
    app.setup_extension("interactive")  # which brings the folder of scripts
    app.add_node(PendingNumber)
    app.add_role("claim", ClaimRole())
    app.add_js_file("claims.js", loading_method="defer")
    app.connect("doctree-read", prepare)
    app.connect("env-updated", collect)
    app.connect("doctree-resolved", resolve)
    app.connect("html-page-context", point)
    return {"parallel_read_safe": False, "parallel_write_safe": True}
