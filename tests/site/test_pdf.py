"""The printed book: a small one, printed as the real one is."""

import re
from pathlib import Path

import printing.__main__ as printing
import pytest
from bs4 import BeautifulSoup
from printing.assemble import Book, assemble
from pypdf import PdfReader

from tests.book.building import build

FIRST = "See [the second page](second.md), {ref}`there`, <https://example.org>.\n"
LINE = "x = '" + "9" * 83 + "'"
SECOND = rf"""
(there)=
## Sums

The {{index}}`sum` is $\frac{{a}}{{b}}$, or

$$
\sum_i x_i = \alpha .
$$

```{{code-cell}} python
:tags: [hide-input]
{LINE}
print(x)
```

```{{exercise}} Add
:label: ex-add
Add two numbers.
```

```{{solution}} ex-add
:class: dropdown
Their sum.
```

{"A paragraph before the end. " * 200}

## Ends

{"A paragraph that fills the page. " * 300}

### The last

The end.
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("book")
    status, said = build(folder, FIRST, second=SECOND)
    assert status == 0, said[-3000:]
    return folder


@pytest.fixture(scope="module")
def pdf(book):
    try:
        printing.browser()
    except printing.CannotPrintError as error:
        pytest.skip(str(error))
    return PdfReader(printing.print_book(book))


@pytest.fixture(scope="module")
def texts(pdf):
    return [" ".join(page.extract_text().split()) for page in pdf.pages]


def test_title_contents_and_pages_follow_one_another(texts):
    assert texts[0].startswith("The Adaptive Recommender The developers")
    assert "Contents A page 3 A page 4 Sums 4 Ends" in texts[1]
    assert "See the second page, Sums, https://example.org." in texts[2]
    assert "The sum is" in texts[3]
    assert "The end." in texts[-1]
    assert len(texts) > 5


def test_the_contents_name_the_pages_on_which_headings_stand(texts):
    pages = [
        int(*re.findall(rf"{heading} (\d+)", texts[1])) for heading in ("Sums", "Ends")
    ]
    assert pages[0] < pages[1]
    assert "Sums" in texts[pages[0] - 1]
    assert "Ends" in texts[pages[1] - 1]


def test_pages_carry_their_number_and_the_title_of_their_chapter(texts):
    for number, text in enumerate(texts[2:], 3):
        assert re.search(rf"(^|\s){number}(\s|$)", text)
    assert sum("A page" in text for text in texts[3:]) == len(texts) - 3
    assert not re.search(r"\d", texts[0])


def test_formulas_are_set_and_keep_their_tex_for_those_who_listen(pdf, texts):
    assert not any(re.search(r"\\[(\[]|\\frac|\\sum|\\alpha", text) for text in texts)
    spoken = [
        str(obj.get_object().get("/Alt", ""))
        for obj in (
            pdf.get_object(n) for n in range(1, len(pdf.xref[0])) if n in pdf.xref[0]
        )
        if isinstance(obj, dict) and obj.get("/Type") == "/StructElem"
    ]
    assert any(r"\frac{a}{b}" in alt for alt in spoken)


def test_what_a_screen_folds_is_printed_and_what_it_plays_with_is_not(texts):
    whole = " ".join(texts)
    assert "Their sum." in whole
    assert LINE in whole
    assert "Show code cell" not in whole
    assert "Details" not in whole


def test_no_line_of_code_is_wider_than_the_page(pdf):
    for page in pdf.pages:
        right = []
        page.extract_text(
            visitor_text=lambda text, cm, tm, font, size, right=right: right.append(
                (tm[4] * cm[0] + cm[4], text)
            )
        )
        assert all(x < float(page.mediabox.width) for x, text in right if text.strip())


def test_the_outline_has_chapters_and_sections(pdf):
    first, second, sections = pdf.outline[0], *pdf.outline[1:]
    assert first.title == "A page"
    assert second.title == "A page"
    assert [getattr(item, "title", "") for item in sections][:2] == ["Sums", "Ends"]
    assert pdf.get_destination_page_number(sections[0]) == 3


def test_links_within_the_book_lead_to_pages_and_others_outside(pdf):
    links = [link.get_object() for link in pdf.pages[2]["/Annots"]]
    outside = [link["/A"]["/URI"] for link in links if "/URI" in link.get("/A", {})]
    assert outside == ["https://example.org/"] or outside == ["https://example.org"]
    assert len(links) - len(outside) == 2


def test_the_file_says_what_it_is(pdf):
    assert pdf.metadata.title == "The Adaptive Recommender"
    assert pdf.metadata.author == "The developers of The Adaptive Recommender"
    root = pdf.trailer["/Root"]
    assert root["/Lang"].startswith("en")
    assert root["/MarkInfo"]["/Marked"]
    fonts = {
        str(font.get_object()["/BaseFont"])
        for page in pdf.pages
        for font in page["/Resources"]["/Font"].values()
    }
    assert fonts
    assert all(re.match(r"/[A-Z]{6}\+", font) for font in fonts)  # embedded subsets


def test_all_ids_are_unique_and_all_links_lead_to_one(book):
    soup = assemble(Book.read(book), book / "_build/html", book / "_build/print")
    ids = [element["id"] for element in soup.find_all(id=True)]
    assert len(ids) == len(set(ids))
    links = [link["href"] for link in soup.select('a[href^="#"]')]
    assert len(links) > 6
    assert {link.removeprefix("#") for link in links} <= set(ids)
    for image in soup.find_all("img"):
        assert (book / "_build/print" / image["src"]).exists()


def test_without_a_browser_it_says_what_to_install(book, monkeypatch, capsys):
    monkeypatch.setenv("PATH", "/nowhere")
    monkeypatch.delenv("CHROMIUM", raising=False)
    assert printing.main([str(book)]) == 1
    assert (
        "install one (Debian, Ubuntu: apt install chromium)" in capsys.readouterr().err
    )
    monkeypatch.setenv("CHROMIUM", "/nowhere/chromium")
    assert printing.main([str(book)]) == 1


def test_a_browser_that_fails_is_no_pass(book, monkeypatch, capsys):
    monkeypatch.setenv("CHROMIUM", "/bin/false")
    assert printing.main([str(book)]) == 1
    assert "the browser could not print" in capsys.readouterr().err


def test_a_book_that_is_not_built_is_refused(tmp_path, capsys):
    assert printing.main([str(tmp_path)]) == 1
    assert capsys.readouterr().err == "the book is not built: make book\n"


def test_formulas_that_are_not_set_are_found_out(pdf, book):
    soup = BeautifulSoup((book / "_build/print/book.html").read_text(), "html.parser")
    for script in soup.find_all("script"):
        script.decompose()
    document = book / "_build/print/bare.html"
    document.write_text(str(soup))
    target = Path(book / "_build/print/bare.pdf")
    printing.to_pdf(document, target)
    with pytest.raises(printing.CannotPrintError, match="before all formulas were set"):
        printing.places(PdfReader(target))


def test_on_paper_the_first_figure_stands_still(site):
    front = Book("The first page", "", {"chapters/index": ""})
    soup = assemble(front, site, site.parent / "print")
    (picture,) = soup.select("#chapters-index img")
    assert not soup.find("picture")
    assert "-moving" not in picture["src"]
    assert (site.parent / "print" / picture["src"]).resolve().exists()
