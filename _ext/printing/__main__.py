"""Print the built book: ``python -m printing [ROOT]`` writes ``_build/adaptive-recommender.pdf``.

It exists because Sphinx prints by LaTeX, which not every reader has and which cannot show a page's HTML.

The book is printed twice. The first time tells on which page each target of a link lies, and these
numbers go into the table of contents and the index before the second.
"""

from __future__ import annotations

import os
import re
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

from bs4 import BeautifulSoup
from pypdf import PdfReader, PdfWriter

from printing.assemble import TYPESET, Book, assemble

NAME = "adaptive-recommender.pdf"
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "google-chrome-stable")
OPTIONS = (
    "--headless",
    "--disable-gpu",
    "--no-first-run",
    "--disable-background-networking",
    "--no-pdf-header-footer",
    "--generate-pdf-document-outline",
    # Milliseconds of a clock that stands still while scripts run: none passes before MathJax is done.
    "--virtual-time-budget=30000",
)


class CannotPrintError(Exception):
    """The book cannot be printed; the message says what to do."""


def browser() -> str:
    """Find Chromium or Chrome: the one named in CHROMIUM, or one on the path."""
    found = os.environ.get("CHROMIUM") or next(
        filter(None, map(shutil.which, BROWSERS)), None
    )
    if not found or not shutil.which(found):
        raise CannotPrintError(
            "printing needs Chromium or Chrome: install one (Debian, Ubuntu: apt install chromium), "
            "or name it: make pdf CHROMIUM=/path/to/chromium"
        )
    return found


def to_pdf(document: Path, target: Path) -> None:
    """Print a document with a headless browser."""
    # Chromium has no sandbox for the superuser; what is printed here is the book's own file.
    root = ["--no-sandbox"] if hasattr(os, "geteuid") and os.geteuid() == 0 else []
    with tempfile.TemporaryDirectory(ignore_cleanup_errors=True) as profile:
        command = [browser(), *OPTIONS, *root, f"--user-data-dir={profile}"]
        done = subprocess.run(
            [*command, f"--print-to-pdf={target}", document.as_uri()],
            capture_output=True,
            text=True,
            check=False,
        )
    if done.returncode or not target.exists():
        raise CannotPrintError(f"the browser could not print:\n{done.stderr[-2000:]}")


def places(pdf: PdfReader) -> dict[str, int]:
    """Read on which page each target of a link lies, counted from 1."""
    found = {
        name.removeprefix("/"): 1 + pdf.get_destination_page_number(target)
        for name, target in pdf.named_destinations.items()
    }
    if TYPESET not in found:
        raise CannotPrintError("the browser printed before all formulas were set")
    return found


def print_book(root: Path) -> Path:
    """Print the built book in `root`; return the file."""
    html, folder = root / "_build" / "html", root / "_build" / "print"
    if not html.exists():
        raise CannotPrintError("the book is not built: make book")
    browser()
    folder.mkdir(exist_ok=True)
    book = Book.read(root)
    soup = assemble(book, html, folder)
    document, draft = folder / "book.html", folder / "draft.pdf"
    found = _print(soup, document, draft)
    for number in soup.select(".page-number"):
        number.string = str(found[number["data-target"]])
    _print(soup, document, draft)
    # What the browser leaves out: the author, and that the outline is shown beside the pages.
    writer = PdfWriter(clone_from=draft)
    writer.add_metadata({"/Title": book.title, "/Author": book.author})
    writer.page_mode = "/UseOutlines"
    target = root / "_build" / NAME
    writer.write(target)
    offer(target, html)
    return target


def offer(pdf: Path, html: Path) -> None:
    """Put the printed book beside the pages that it was made from, and let the page About lead to it."""
    shutil.copy(pdf, html)
    about = html / "chapters" / "about.html"
    if about.exists():
        link = rf'<a class="whole-book" href="../{pdf.name}">\1</a>'
        text = about.read_text(encoding="utf-8")
        text = re.sub(r'<span class="whole-book">(.*?)</span>', link, text)
        about.write_text(text, encoding="utf-8")


def _print(soup: BeautifulSoup, document: Path, target: Path) -> dict[str, int]:
    """Print once; return on which page each target of a link lies."""
    document.write_text(str(soup), encoding="utf-8")
    target.unlink(missing_ok=True)
    to_pdf(document, target)
    return places(PdfReader(target))


def main(arguments: list[str]) -> int:
    """Print, and say where the file is; return 0 unless it cannot be done."""
    try:
        made = print_book(Path(*arguments or ["."]).resolve())
    except CannotPrintError as error:
        print(error, file=sys.stderr)
        return 1
    print(f"The book is printed: {made} ({len(PdfReader(made).pages)} pages)")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
