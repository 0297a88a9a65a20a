"""What the book says of itself: who made it, its version, its licences, where its source is."""

import os
import re
import shutil

import printing.__main__ as printing
import pytest
import yaml

import zoolib
from tests.book.building import build_again, lay_out
from tests.book.pages import page_names, soup
from tests.notebooks import HTML, ROOT

ABOUT = HTML / "chapters" / "about.html"
CITED = yaml.safe_load((ROOT / "CITATION.cff").read_text())
OTHERS = (
    "LICENSE",
    "LICENSE-TEXT.md",
    "CITATION.cff",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
)
PAGES = [name for name in page_names() if name != "index.html"]  # it only leads on


def test_the_page_says_who_made_it_and_how_to_cite_it():
    page = soup(ABOUT)
    text = " ".join(page.select_one("article.bd-article").text.split())
    (author,) = (author["name"] for author in CITED["authors"])
    year = CITED["date-released"].year
    assert f"{author} made it; this is version {zoolib.__version__}." in text
    assert f"{author}. {CITED['title']}. Version {CITED['version']}, {year}." in text
    assert f"author = {{{{{author}}}}}," in page.select_one(".highlight-bibtex").text
    assert "no retailer is meant" in text
    assert page.select("a[href='https://creativecommons.org/licenses/by/4.0/']")
    assert "MIT licence" in text


def test_the_page_brings_the_files_that_it_speaks_of():
    links = soup(ABOUT).select("a.download")
    assert {link.text for link in links} >= {*OTHERS[:3]}
    brought = [(ABOUT.parent / link["href"]).resolve() for link in links]
    assert sorted(file.name for file in brought) == sorted(OTHERS)
    for file in brought:
        assert file.read_bytes() == (ROOT / file.name).read_bytes()


@pytest.mark.parametrize("name", PAGES)
def test_each_page_ends_with_version_licences_and_a_way_there(name):
    page = HTML / name
    foot = soup(page).select_one(".bd-footer-content")
    assert f"version {zoolib.__version__}" in foot.text
    assert "CC BY 4.0" in foot.text
    assert "MIT" in foot.text
    links = [a["href"].partition("#") for a in foot.select("a:not([href*=':'])")]
    assert len(links) == 2
    for file, _, anchor in links:
        assert (page.parent / file).resolve() == ABOUT.resolve() or (
            not file and page == ABOUT
        )
        assert not anchor or soup(ABOUT).find(id=anchor)


@pytest.fixture(scope="module")
def published(tmp_path_factory):
    """A book with the page About whose source is published."""
    folder = tmp_path_factory.mktemp("published")
    about = (ROOT / "chapters/about.md").read_text().partition("---\n\n")[2]
    # Other pages are those of the real book.
    about = re.sub(r"\[(.*?)\]\(\w[\w-]*\.md\)|\{py:class\}`.*?`", r"\1", about)
    lay_out(folder, "Words.", about=about)
    for name in OTHERS:
        shutil.copy(ROOT / name, folder)
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("SOURCE_URL", "https://example.org/source/")
        patch.setenv("BOOK_URL", "https://example.org/book")
        status, said = build_again(folder)
    assert status == 0, said[-3000:]
    return folder / "_build" / "html"


def test_a_published_book_leads_to_its_source(published):
    index, about = (
        soup(published / "chapters" / f"{n}.html") for n in ("index", "about")
    )
    for part in (index.select_one(".bd-footer-content"), about.select_one("article")):
        assert part.select("a[href='https://example.org/source']")
    assert "url = {https://example.org/book/}" in about.select_one("pre").text


def test_a_book_that_is_not_published_names_the_folder():
    text = " ".join(soup(ABOUT).select_one("article.bd-article").text.split())
    published = os.environ.get("SOURCE_URL", "").rstrip(
        "/"
    )  # of the build that is tested
    where = (
        f"at {published}" if published else "in the folder in which the book was built"
    )
    assert f"The source is {where}." in text


def test_the_page_leads_to_the_whole_book_once_it_is_printed(published, tmp_path):
    about = published / "chapters" / "about.html"
    before = about.read_text()
    assert 'class="whole-book"' in before
    assert printing.NAME not in before
    printed = tmp_path / printing.NAME
    printed.write_bytes(b"%PDF")
    for _ in range(2):  # the book may be printed again
        printing.offer(printed, published)
        (link,) = re.findall(
            r'<a class="whole-book" href="(\S+)">the whole book', about.read_text()
        )
        assert (about.parent / link).resolve().read_bytes() == b"%PDF"
