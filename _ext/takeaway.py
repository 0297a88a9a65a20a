"""Sphinx extension: each page with code cells can be taken along as a notebook that stands alone.

The text of a notebook is the finished page turned into plain Markdown: numbers, references, citations
and claims stand in it as they stand in the book, and no directive is left. Its code cells are those of
the source, byte for byte, without outputs. They need the library and nothing else of the book, so its
wheel lies beside the notebooks.
"""

from __future__ import annotations

import base64
import mimetypes
import os
import re
import shutil
import subprocess
import sys
from collections.abc import Iterator
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
from urllib.parse import urljoin

import jupytext
import nbformat
from bs4 import BeautifulSoup, Tag
from markdownify import ATX, MarkdownConverter
from nbformat import NotebookNode
from sphinx.application import Sphinx
from sphinx.environment import BuildEnvironment

ROOT = Path(__file__).resolve().parent.parent
WHEEL = f"zoolib-{version('zoolib')}-py3-none-any.whl"
LICENCES = "The text may be shared under CC BY 4.0, the code under the MIT licence."
BUILDERS = ("html", "dirhtml")
# What a page has for the screen or the theme alone.
LEFT_OUT = (
    "script, style, svg, button, input, select, "
    ".headerlink, .only-dark, .backrefs, hr.footnotes"
)
# Where a code cell stood, with its number, and where a new cell of text begins: characters that
# Unicode leaves to private use.
CODE, BREAK = "\ue000", "\ue001"
# Environments that stand alone in LaTeX, and what they are inside $$.
INNER = {"align": "aligned", "gather": "gathered", "equation": ""}


class Prose(MarkdownConverter):
    """Turn a page into Markdown that any notebook renders.

    Parameters
    ----------
    page : Path
        The finished page; pictures are found from there.
    address : str
        Public address of the page. Without one, links within the book become plain text.
    """

    class Options(MarkdownConverter.DefaultOptions):
        heading_style = ATX
        bullets = "-"

    def __init__(self, page: Path, address: str = "") -> None:
        super().__init__(code_language_callback=_language)
        self.page, self.address = page, address
        self.pictures: dict[str, Path] = {}

    def escape(self, text: str, parent_tags: set[str]) -> str:
        """Guard what Markdown would take for marks; most readers see the source sooner or later."""
        text = re.sub(
            r"[\\`*$<~]|(?<!\w)_|_(?!\w)|\](?=[(\[:])|\[(?=\^)", r"\\\g<0>", text
        )
        return text.replace("|", r"\|") if parent_tags & {"td", "th"} else text

    def convert_p(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        # What begins like a list, a heading or a quote is none.
        text = re.sub(r"^\s*(\d*)(?=[.)]\s|[#>+-]\s)", r"\1\\", text)
        if "admonition-title" not in el.get("class", []):
            return super().convert_p(el, text, parent_tags)
        title = " ".join(text.split())
        if not _spans_cells(el.parent):
            return f"\n\n**{title}**\n\n"
        level = int(el.find_previous(re.compile("^h[1-6]$")).name[1])
        return self.convert_hN(level + 1, el, title, parent_tags)

    def convert_hN(self, n: int, el: Tag, text: str, parent_tags: set[str]) -> str:  # noqa: N802
        heading = super().convert_hN(n, el, text, parent_tags)
        return heading if "_inline" in parent_tags else f"\n\n{BREAK}{heading}"

    def convert_div(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        classes = el.get("class", [])
        if "math" in classes:
            return self._display(el)
        if "sd-card-title" in classes:
            return self.convert_summary(el, text, parent_tags)
        if "admonition" in classes and not _spans_cells(el):
            return f"\n{self.convert_blockquote(el, text, parent_tags)}"
        return super().convert_div(el, text, parent_tags)

    def convert_code(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        text = super().convert_code(el, text, parent_tags)
        return text.replace("|", r"\|") if parent_tags & {"td", "th"} else text

    def convert_details(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return self.convert_div(el, text, parent_tags)

    def convert_summary(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return f"\n\n**{text.strip()}**\n\n"

    convert_dt = convert_summary

    def convert_dd(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        return f"\n\n{text.strip()}\n\n"

    def convert_aside(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        note = re.sub(r"^(\[\w+\])\s+", r"\1 ", text.strip())
        return f"\n\n{note}\n\n"

    def convert_span(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        classes = el.get("class", [])
        if "math" in classes:
            tex = el.get_text().strip().removeprefix(r"\(").removesuffix(r"\)")
            return f"${_one_line(tex)}$"
        if "caption-number" in classes and parent_tags & {"figcaption", "caption"}:
            return f"**{text.strip()}** "
        is_title = {"doc", "std-ref"} & set(classes)
        return f"*{text.strip()}*" if is_title and not self.address else text

    def _display(self, el: Tag) -> str:
        number = el.select_one(".eqno")
        tag = rf"\tag{{{number.extract().get_text().strip('()#')}}}" if number else ""
        tex = el.get_text().strip().removeprefix(r"\[").removesuffix(r"\]").strip()
        for outer, inner in INNER.items():
            for end in ("begin", "end"):
                wanted = rf"\{end}{{{inner}}}" if inner else ""
                tex = re.sub(rf"\\{end}{{{outer}\*?}}", lambda _, w=wanted: w, tex)
        # JupyterLab would take the marks of a quote or a list on further lines for mathematics.
        if el.find_parent(["li", "dd", "td", "aside"]) or el.find_parent(
            class_="admonition"
        ):
            return f"\n\n$${_one_line(tex + tag)}$$\n\n"
        return f"\n\n$$\n{tex.strip()}{tag}\n$$\n\n"

    def convert_a(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        href = el.get("href", "")
        if not re.match(r"https?:", href):
            href = self.address and urljoin(self.address, href)
        label = text.strip()
        return text.replace(label, f"[{label}]({href})") if href and label else text

    def convert_img(self, el: Tag, text: str, parent_tags: set[str]) -> str:
        alt, source = el.get("alt", ""), el.get("src", "")
        file = self.page.parent / source
        if not re.match(r"\w+:", source):
            self.pictures[file.name] = file
            source = f"attachment:{file.name}"
        return f"![{' '.join(alt.split())}]({source})"


def _language(pre: Tag) -> str:
    """Name the language of a listing, which Sphinx leaves in a class of a box around it."""
    box = pre.find_parent(class_=re.compile("^highlight-"))
    classes = box["class"] if box else []
    name = next((c for c in classes if c.startswith("highlight-")), "")
    return re.sub("^highlight-(default|none)?", "", name)


def _spans_cells(box: Tag) -> bool:
    """Return whether a box may hold code cells, which no quote can hold."""
    kinds = {"exercise", "solution"} & set(box.get("class", []))
    return bool(kinds) or CODE in box.get_text()


def _one_line(tex: str) -> str:
    r"""Put a formula on one line; ``|`` would end a cell of a table."""
    tex = re.sub(r"(?<!\\)%.*", "", tex)
    return " ".join(tex.replace(r"\|", r"\Vert ").replace("|", r"\vert ").split())


def prepared(page: Path) -> Tag:
    """Read the text of a finished page, with a mark in place of each code cell."""
    soup = BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")
    article = soup.select_one("article.bd-article")
    for number, cell in enumerate(article.select("div.cell")):
        mark = soup.new_tag("p")
        mark.string = f"{CODE}{number}{CODE}"
        captions = cell.select("figcaption")
        cell.replace_with(mark, *captions)
    for figure in article.select("div.interactive"):
        where = soup.new_tag("p")
        where.string = "Here the book's web page has a figure with values to change."
        figure.replace_with(where, *figure.select(".interactive-caption"))
    for element in article.select(LEFT_OUT):
        element.decompose()
    return article


def references(article: Tag, page: Path) -> Iterator[Tag]:
    """Walk the entries of the bibliography that a page cites, each once."""
    cited = dict.fromkeys(a["href"] for a in article.select(".bibtex-citation a[href]"))
    files = {href: href.partition("#")[0] for href in cited}
    soups = {
        file: BeautifulSoup(
            (page.parent / file).read_text(encoding="utf-8"), "html.parser"
        )
        for file in set(files.values())
        if file
    }
    for href in cited:
        entry = files[href] and soups[files[href]].find(id=href.partition("#")[2])
        if entry:
            yield entry


def notebook(page: Path, source: Path, about: str, address: str = "") -> NotebookNode:
    """Make the notebook of a page.

    Parameters
    ----------
    page : Path
        The finished page.
    source : Path
        Its source, which holds the code cells.
    about : str
        Text of the first cell.
    address : str, optional
        Public address of the page.

    Raises
    ------
    ValueError
        If the page does not show each code cell of its source.
    """
    original = jupytext.read(source)
    code = [cell for cell in original.cells if cell.cell_type == "code"]
    article, prose = prepared(page), Prose(page, address)
    text = prose.convert_soup(article)
    if entries := list(references(article, page)):
        listed = [f"- {prose.convert_soup(entry.p).strip()}" for entry in entries]
        text += f"\n\n{BREAK}\n\n## References\n\n" + "\n".join(listed)
    pieces = re.split(rf"{CODE}(\d+){CODE}|{BREAK}", text)
    if [int(n) for n in pieces[1::2] if n] != list(range(len(code))):
        raise ValueError(
            f"{source.name} must show its {len(code)} code cells, each once"
        )
    cells = [nbformat.v4.new_markdown_cell(about, id="about")]
    pairs = zip(pieces[::2], [*pieces[1::2], None], strict=True)
    for number, (piece, place) in enumerate(pairs):
        if piece.strip():
            cells.append(_text_cell(piece.strip(), prose.pictures, number))
        if place:
            cells.append(_code_cell(code[int(place)], int(place)))
    kernel = {"kernelspec": original.metadata["kernelspec"]}
    return nbformat.v4.new_notebook(cells=cells, metadata=kernel)


def _code_cell(cell: NotebookNode, number: int) -> NotebookNode:
    return nbformat.v4.new_code_cell(
        cell.source, id=f"code-{number + 1}", metadata=cell.metadata
    )


def _text_cell(text: str, pictures: dict[str, Path], number: int) -> NotebookNode:
    cell = nbformat.v4.new_markdown_cell(text, id=f"text-{number + 1}")
    shown = {
        name: file for name, file in pictures.items() if f"(attachment:{name})" in text
    }
    for name, file in shown.items():
        kind = mimetypes.guess_type(name)[0] or "application/octet-stream"
        data = base64.b64encode(file.read_bytes()).decode()
        cell.setdefault("attachments", {})[name] = {kind: data}
    return cell


def has_cells(env: BuildEnvironment, docname: str) -> bool:
    """Return whether a page has code cells."""
    if docname not in env.all_docs:
        return False
    return "{code-cell}" in Path(env.doc2path(docname)).read_text(encoding="utf-8")


def download(docname: str) -> str:
    """Name the file of a page's notebook within the book."""
    return f"_downloads/{docname}.ipynb"


def write_notebooks(app: Sphinx, exception: Exception | None) -> None:
    """Write the notebooks of all pages with code cells, and the wheel that they need."""
    if exception or app.builder.name not in BUILDERS:
        return
    config, env, out = app.config, app.env, Path(app.outdir)
    base = config.html_baseurl.rstrip("/") + "/" if config.html_baseurl else ""
    for docname in filter(lambda name: has_cells(env, name), sorted(env.all_docs)):
        made = notebook(
            Path(app.builder.get_outfilename(docname)),
            Path(env.doc2path(docname)),
            _about(env.titles[docname].astext(), config.html_title, base),
            base and urljoin(base, app.builder.get_target_uri(docname)),
        )
        target = out / download(docname)
        target.parent.mkdir(parents=True, exist_ok=True)
        nbformat.write(made, target)
    if (ROOT / "pyproject.toml").exists():
        build_wheel(out / "_downloads")


def _about(title: str, book: str, base: str) -> str:
    wheel = f"{base}_downloads/{WHEEL}" if base else WHEEL
    return (
        f"This is *{title}*, from *{book}*, version {version('zoolib')}, as a notebook: the text of "
        "the book and its code, without the outputs. It runs from the top, in Jupyter, once the "
        "book's library is installed, whose wheel the book offers beside this notebook:\n\n"
        f"```sh\npip install {wheel}\n```\n\n{LICENCES}"
    )


def build_wheel(folder: Path, root: Path = ROOT) -> Path:
    """Build the library's wheel into a folder, from a copy: building leaves traces beside the sources."""
    with TemporaryDirectory() as copy:
        caches = shutil.ignore_patterns("__pycache__")
        shutil.copytree(root / "zoolib", Path(copy, "zoolib"), ignore=caches)
        texts = [root / "README.md", *root.glob("LICENSE*")]
        for file in (root / "pyproject.toml", *texts):
            shutil.copy(file, copy)
        command = [sys.executable, "-m", "pip", "wheel", "--quiet", "--no-deps", copy]
        options = ["--no-build-isolation", "--disable-pip-version-check"]
        # The same sources make the same file: dates in it are those of the oldest ZIP.
        done = subprocess.run(
            [*command, *options, f"--wheel-dir={folder}"],
            env=os.environ | {"SOURCE_DATE_EPOCH": "315532800"},
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode:
        raise RuntimeError(f"the wheel could not be built:\n{done.stdout}{done.stderr}")
    return folder / WHEEL


def offer(
    app: Sphinx, pagename: str, templatename: str, context: dict, doctree: object
) -> None:
    """Offer the notebook, and the library that it needs, first among the downloads of a page."""
    if not has_cells(app.env, pagename):
        return
    buttons = [_button(context, download(pagename), "notebook", "code")]
    if (ROOT / "pyproject.toml").exists():
        buttons.append(_button(context, f"_downloads/{WHEEL}", "library", "cube"))
    for group in context.get("header_buttons", []):
        if group.get("label") == "download-buttons":
            group["buttons"][:0] = buttons


def _button(context: dict, file: str, kind: str, icon: str) -> dict[str, str]:
    return {
        "type": "link",
        "url": context["pathto"](file, 1),
        "text": Path(file).suffix,
        "icon": f"fas fa-{icon}",
        "tooltip": f"Download the {kind}",
        "label": f"download-{kind}-button",
    }


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", offer, priority=900)  # the theme's come at 501
    app.connect("build-finished", write_notebooks)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
