"""The built book as a reader has it."""

import platform
import re
from functools import cache

import numpy as np
import pytest

from tests.book.pages import page_names, places, soup
from tests.notebooks import HTML, chapters, name_of, unproven_cells, with_outputs

NAMES = page_names()
FETCHED = {
    "img": "src",
    "script": "src",
    "iframe": "src",
    "source": "src",
    "object": "data",
    "embed": "src",
}


def test_the_book_is_built():
    assert {
        "index.html",
        "genindex.html",
        "chapters/index.html",
        "chapters/claims.html",
    } <= set(NAMES)


@pytest.mark.parametrize("name", NAMES)
def test_a_page_fetches_nothing_from_another_host(name):
    html = soup(HTML / name)
    fetched = [
        tag.get(attribute, "")
        for element, attribute in FETCHED.items()
        for tag in html.find_all(element)
    ]
    fetched += [
        tag.get("href", "")
        for tag in html.find_all("link")
        if tag.get("rel") != ["canonical"]  # a name, not something to fetch
    ]
    assert [url for url in fetched if re.match(r"(https?:)?//", url)] == []
    running = [
        tag.text
        for tag in html.find_all("script")
        if "config" not in tag.get("type", "")
    ]
    assert not any(re.search(r"https?://", text) for text in running)


def test_styles_fetch_nothing_from_another_host():
    sheets = [
        path.read_text(encoding="utf-8", errors="replace")
        for path in HTML.rglob("*.css")
    ]
    assert sheets
    assert not any(
        re.search(r"url\(\s*['\"]?(https?:)?//|@import\s+['\"]?https?:", sheet)
        for sheet in sheets
    )


@pytest.mark.parametrize("page", chapters(), ids=name_of)
def test_figures_come_in_both_themes_with_alt_text_and_caption(page):
    html = soup(HTML / "chapters" / f"{name_of(page)}.html")
    drawn = html.select("div.cell_output img")
    assert drawn or "plt." not in page.read_text()
    for figure in html.find_all("figure"):
        pictures = figure.find_all("img")
        assert [picture["class"] for picture in pictures] == [
            ["only-light"],
            ["only-dark"],
        ]
        assert all(len(picture["alt"]) > 40 for picture in pictures)
        assert len(figure.figcaption.text) > 40
    assert all(picture.find_parent("figure") for picture in drawn), (
        "a picture without caption"
    )


def test_every_claim_of_the_chapters_is_on_the_page_of_claims():
    text = "".join(page.read_text() for page in chapters())
    made = re.findall(r'^claim\("(\w+)"', text, flags=re.M)
    in_loops = tuple(re.findall(r'^ +claim\(f"(\w+_)\{', text, flags=re.M))
    helped = re.findall(r"^ *claim_recorded\(([^,]*),", text, flags=re.M)
    again = {f"{key}_again" for key in re.findall(r'"(\w+)"', " ".join(helped))}
    html = soup(HTML / "chapters" / "claims.html")
    rows = html.select("table.claims tbody tr")
    keys = [row["id"].removeprefix("claim-").replace("-", "_") for row in rows]
    assert len(keys) == len(set(keys)) > 30
    assert again <= set(keys)
    looped = [key for key in keys if key not in made and key not in again]
    assert [key for key in keys if key in made] == made
    assert all(key.startswith(in_loops) for key in looped)
    assert all(any(key.startswith(loop) for key in looped) for loop in in_loops)
    assert all(all(cell.text.strip() for cell in row.find_all("td")) for row in rows)


# "So many of 20 shops", "Of 400 lists": how often a thing can be counted.
COUNTED = re.compile(
    r"(?:(?:number|many) o|^O)f (?:the |these )?(\d[\d,]*|ten|twenty)\b"
)


def whole(text):
    return int({"ten": "10", "twenty": "20"}.get(text, text).replace(",", ""))


def test_a_bound_lies_within_what_can_be_counted():
    """A bound of -1, or of 21 in twenty worlds, would check nothing; a margin around zero does."""
    idle = []
    for row in soup(HTML / "chapters" / "claims.html").select("table.claims tbody tr"):
        (sentence, _), (found, _), (held, *_) = (
            [text.text for text in cell.select("p")] for cell in row.find_all("td")[:3]
        )
        if not re.fullmatch(r"[\d,]+", found):
            continue
        bounds = dict(re.findall(r"(above|below) (-?\d[\d,]*)", held))
        least, most = (whole(bounds.get(side, "0")) for side in ("above", "below"))
        counted = COUNTED.search(sentence)
        beyond = counted is not None and most > whole(counted[1])
        if beyond or (least < 0 and least != -most):
            idle.append(row["id"])
    assert idle == []


@cache
def claimants(page):
    """Return `claim` and the functions of a page that call it."""
    cells = [cell.text for cell in soup(page).select("article div.cell_input")]
    defined = (
        re.findall(r"^def (\w+)", text, re.M) for text in cells if "claim(" in text
    )
    return {"claim"}.union(*defined)


def test_each_row_of_the_claims_leads_to_the_cell_that_checked_it():
    page = HTML / "chapters" / "claims.html"
    for row in soup(page).select("table.claims tbody tr"):
        target, _, anchor = row.find("a", class_="checked-in")["href"].partition("#")
        checked_in = (page.parent / target).resolve()
        place = places(checked_in)[anchor]
        cell = place.find_parent("div", class_="cell")
        key = row["id"].removeprefix("claim-").replace("-", "_")
        assert any(f"{name}(" in cell.text for name in claimants(checked_in))
        assert f"claim {key}: " not in cell.text


def test_every_chapter_was_executed_to_its_end():
    html = soup(HTML / "chapters" / "executions.html")
    times, versions = html.select("article table")
    rows = times.select("tbody tr")
    done = {
        row.a["href"].removesuffix(".html"): float(row.find_all("td")[2].text)
        for row in rows
    }
    assert set(done) == {name_of(page) for page in chapters()}
    assert all(seconds > 0 for seconds in done.values())
    versions = dict(
        [cell.text.strip() for cell in row.find_all("td")]
        for row in versions.select("tbody tr")
    )
    assert versions["Python"] == platform.python_version()
    assert versions["numpy"] == np.__version__


@pytest.mark.parametrize("page", chapters(), ids=name_of)
def test_notebooks_carry_the_outputs_of_the_book(page):
    notebook = with_outputs(page)
    assert unproven_cells(notebook) == []
    assert notebook.stat().st_mtime == page.stat().st_mtime, (
        "JupyterLab would refuse it"
    )
