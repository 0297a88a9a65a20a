"""What a link to a page shows elsewhere."""

import struct
from collections import Counter

import pytest

from tests.book.building import build_again, lay_out
from tests.book.pages import page_names, soup
from tests.notebooks import HTML

PAGES = [
    name
    for name in page_names()
    if name.startswith("chapters/") or name == "genindex.html"
]


def head(name):
    tags = soup(HTML / name).head.find_all("meta")
    return {tag.get("property") or tag.get("name"): tag.get("content") for tag in tags}


def size(picture):
    """Width and height, from the header of a PNG file."""
    return struct.unpack(">II", picture.read_bytes()[16:24])


@pytest.mark.parametrize("name", PAGES)
def test_a_page_has_a_title_a_description_and_a_picture(name):
    tags = head(name)
    assert 25 < len(tags["description"]) < 160  # what search engines show
    assert tags["og:description"] == tags["description"]
    assert tags["og:title"] in soup(HTML / name).title.text
    assert "The Adaptive Recommender" in soup(HTML / name).title.text
    picture = (HTML / name).parent / tags["og:image"]
    assert size(picture) == (1200, 630)


def test_no_two_pages_look_the_same():
    for key in ("og:title", "description"):
        found = Counter(head(name)[key] for name in PAGES)
        assert found.most_common(1)[0][1] == 1, found.most_common(1)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A book with an address, of which one page has no description; and what its build said."""
    folder = tmp_path_factory.mktemp("published")
    lay_out(folder, "Words.", bare="Words.")
    page = folder / "chapters/bare.md"
    page.write_text(page.read_text().replace("description:", "author:"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("BOOK_URL", "https://example.org/book")
        return folder, *build_again(folder)


def test_a_published_book_names_its_whole_address(published):
    folder, _, _ = published
    html = soup(folder / "_build/html/chapters/index.html")
    address = "https://example.org/book/"
    assert html.find("link", rel="canonical")["href"] == f"{address}chapters/index.html"
    tags = {
        tag.get("property"): tag["content"]
        for tag in html.find_all("meta", property=True)
    }
    assert tags["og:url"] == f"{address}chapters/index.html"
    assert tags["og:image"] == f"{address}_static/preview.png"


def test_a_page_without_a_description_breaks_the_build(published):
    _, status, output = published
    assert status != 0
    warnings = [line for line in output.splitlines() if "WARNING: " in line]
    assert warnings
    for line in warnings:  # nothing else is said of either page
        assert "chapters/bare.md: WARNING: a page needs a line `description:`" in line
