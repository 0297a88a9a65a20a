"""The pages of the built book, each read once by all tests of a worker: nobody changes what is shared."""

from functools import cache
from pathlib import Path

from bs4 import BeautifulSoup
from theme_repairs import written_pages

from tests.notebooks import HTML


def page_names() -> list[str]:
    """Name all pages of the built book; what the theme keeps under _static is none."""
    return sorted(str(file.relative_to(HTML)) for file in written_pages(HTML))


@cache
def soup(page: Path) -> BeautifulSoup:
    """Read a page."""
    return BeautifulSoup(page.read_text(encoding="utf-8"), "html.parser")


@cache
def places(page: Path) -> dict:
    """Return what has an id on a page, by id."""
    return {element["id"]: element for element in soup(page).find_all(id=True)}
