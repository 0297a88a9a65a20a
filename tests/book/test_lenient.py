"""A reader's build goes on past a claim that does not hold, and tells of it; a strict build does not."""

import re

import pytest
from bs4 import BeautifulSoup

from tests.book.building import build_again, lay_out, make_book

CELL = "```{{code-cell}} python\n{}\n```\n\n"
CLAIMS = """from zoolib import Estimate, claim
claim("good", "Three is more than two.", 3, above=2, fmt="d")
claim("bad", "It is more than four.", Estimate(2.3, 0.5, 4.1, 20), above=4, fmt=".1f")
"""
DOUBT = """import json
from myst_nb import glue
doubt = {"sentence": "The record runs.json was made elsewhere.", "found": "It differs by 0.02."}
glue("doubt:runs.json", json.dumps(doubt), display=False)
"""
TEXT = "It is {claim}`bad` ({claim}`bad interval`), and {claim}`good`.\n\n"


def book(folder, cells, text="", more=""):
    page = text + "".join(CELL.format(cell) for cell in cells)
    lay_out(folder, page + more, claims="```{claims}\n```\n")


@pytest.fixture(scope="module")
def built(tmp_path_factory):
    """A book with a failed claim and a doubt: what its readers' and its strict builds say, in order."""
    folder = tmp_path_factory.mktemp("a reader's ü book")
    book(folder, [CLAIMS, DOUBT], TEXT)
    calls = [(), (), ("STRICT=1",), ()]
    return folder, [make_book(folder, *settings) for settings in calls]


@pytest.fixture(scope="module")
def pages(built):
    folder, _ = built
    html = folder / "_build/html/chapters"
    return [
        BeautifulSoup((html / f"{name}.html").read_text(), "html.parser")
        for name in ("index", "claims")
    ]


def test_the_last_lines_name_what_does_not_hold_built_or_not(built):
    _, (first, second, _, again) = built
    assert "Nothing has changed" in second[1]
    for status, said in (first, second, again):
        assert status == 0, said
        *_, claim, doubt = said.strip().splitlines()
        assert claim == (
            "  It is more than four. Found 2.3 (0.5 to 4.1), must be above 4.0. "
            "chapters/index.html#checked-bad"
        )
        assert doubt == (
            "  The record runs.json was made elsewhere. Found: It differs by 0.02. "
            "chapters/index.html"
        )


def test_a_strict_build_right_after_it_warns_of_each(built):
    status, said = built[1][2]
    assert status != 0
    warnings = re.findall(r"index\.md: WARNING: this does not hold: (.*)", said)
    assert [line.split()[0] for line in warnings] == ["It", "The"]


def test_a_number_says_in_words_that_it_does_not_hold(pages):
    bad, good = pages[0].select("article p > a.claim")
    assert bad.text == "2.3 (does not hold here)"
    assert "does not hold here" in bad["title"]
    assert (good.text, "hold" in good["title"]) == ("3", False)
    assert pages[0].select_one(".claim-bracket").text == " (0.5 to 4.1)"


def test_its_cell_keeps_the_line_that_was_printed(pages):
    (cell, _) = pages[0].select("article div.cell")
    assert "claim bad: 2.3" in cell.select_one(".cell_output").text
    assert "it does not hold with these settings" in cell.text
    assert "claim good:" not in cell.select_one(".cell_output").text


def test_it_stands_first_on_the_page_of_claims(pages):
    title, box = (
        pages[1].select_one("article section").find_all(True, recursive=False)[:2]
    )
    assert title.name == "h1"
    assert "Does not hold in this build" in box.select_one(".admonition-title").text
    claim, doubt = box.select("tbody tr")
    assert claim["id"] == "claim-bad"
    assert "It is more than four." in claim.text
    assert claim.strong.find_next("strong").text == "does not hold here"
    assert "made elsewhere." in doubt.text
    assert "It differs by 0.02." in doubt.text
    assert [row["id"] for row in pages[1].select("details tbody tr")] == ["claim-good"]


def test_a_book_that_holds_is_built_once_for_readers_and_strictly(tmp_path):
    book(tmp_path, [CLAIMS.partition('claim("bad"')[0]])
    assert make_book(tmp_path)[0] == 0
    status, said = make_book(tmp_path, "STRICT=1")
    assert status == 0
    assert "Nothing has changed" in said
    assert said.strip().endswith("open _build/html/index.html")


def test_a_strict_build_stops_at_the_claim_itself(tmp_path):
    book(tmp_path, [CLAIMS])
    status, said = make_book(tmp_path, "STRICT=1")
    assert status != 0
    assert "the claim does not hold: It is more than four." in said
    assert not (tmp_path / "_build/sources").exists()


@pytest.mark.parametrize("lenient", [True, False])
def test_any_other_exception_stops_every_build(tmp_path, lenient):
    book(tmp_path, ["assert 1 > 2, 'no claim'"])
    status, said = build_again(tmp_path, lenient)
    assert status != 0
    assert "no claim" in said
