"""Claims in the book: their numbers, their cells, and the page that lists them."""

import pytest
from bounds import unbound
from bs4 import BeautifulSoup
from claims import _strip, background
from claims_page import is_identity, room, strip
from docutils import nodes

from tests.book.building import build


def record(low, value, high, above=None, below=None):
    return {"range": [low, value, high], "above": above, "below": below}


@pytest.mark.parametrize(
    ("claim", "wanted"),
    [
        (record(0.4, 0.5, 0.6, above=0.2), 2),
        (record(0.4, 0.5, 0.6, below=0.9), 3),
        (record(0.4, 0.5, 0.6, above=0.1, below=0.7), 1),
        (record(20, 20, 20, above=15), 5 / 20),
        (record(0, 0, 0, below=5), 5),
    ],
)
def test_room_is_the_distance_to_the_nearer_bound_in_half_widths(claim, wanted):
    assert room(claim) == pytest.approx(wanted)


def test_what_has_no_bound_on_a_side_or_no_end_is_not_drawn():
    assert strip(record(7, 7, 7)) == ""
    assert strip(record(100, 900, None, above=10)) == ""


@pytest.mark.parametrize(
    ("claim", "wanted"),
    [
        (record(7, 7, 7), True),  # equal to something
        (record(0, 0, 0, below=1e-6), True),
        (record(0, 0, 0, below=5), False),  # a count
        (record(0, 0, 0, above=-0.1, below=0.1), False),
        (record(1e-7, 1e-7, 1e-7, below=1e-6), False),
        (record(1, 2, None, below=5), False),
    ],
)
def test_what_is_equal_has_no_room_and_is_no_close_call(claim, wanted):
    assert is_identity(claim) is wanted
    assert ("data-room" in strip(claim)) is not (wanted or None in claim["range"])


def test_a_strip_shows_interval_value_bound_and_allowed_side():
    drawn = strip(record(4, 5, 6, above=0))
    # From 0 to 6 with a margin of 0.48 on both sides: 6.96 units are 100.
    at = [round(100 * (number + 0.48) / 6.96, 1) for number in (0, 4, 5, 6)]
    assert f'd="M{at[0]} 0V16"' in drawn
    assert f'd="M{at[1]} 8H{at[3]}"' in drawn
    assert f'cx="{at[2]}"' in drawn
    assert f'x="{at[0]}" y="2" width="{round(100 - at[0], 1)}"' in drawn
    assert 'data-room="4.00"' in drawn


@pytest.mark.parametrize(
    ("seeds", "interval", "wanted"),
    [
        ([], "", "5: must be above 4; no worlds"),
        ([42], "", "5: must be above 4; seed 42"),
        (
            [0, 1, 2],
            "4 to 6",
            "5: interval 4 to 6; must be above 4; 3 worlds, seeds 0–2",
        ),
        ([3, 4], "", "5: must be above 4; 2 worlds, seeds 3, 4"),
    ],
)
def test_behind_a_number_stand_interval_bound_and_worlds(seeds, interval, wanted):
    known = {"value": "5", "interval": interval, "held": "above 4", "seeds": seeds}
    known["holds"] = True
    assert background(known) == wanted


PAGE = """
It is {claim}`k` (interval {claim}`k interval`), or {claim}`k interval` (so {claim}`l interval`).

```{code-cell} python
:tags: [hide-input]
from zoolib import Estimate, claim
```

```{code-cell} python
:tags: [hide-input]
claim("k", "So it is.", Estimate(7, 6, 8, 2), above=1, fmt=".0f", seeds=[3, 4])
```

```{code-cell} python
def half(number):
    return number / 2

print("shown")
claim("l", "So is this.", Estimate(half(1), 0.4, 0.6, 2), below=1)
```

```{code-cell} python
needed = 3
claim("m", "And this.", needed, below=4)
```

```{code-cell} python
print(needed)
```

```{claims}
```
"""


@pytest.fixture(scope="module")
def page(tmp_path_factory):
    folder = tmp_path_factory.mktemp("claims")
    status, output = build(folder, PAGE)
    assert status == 0, output
    html = (folder / "_build/html/chapters/index.html").read_text()
    return BeautifulSoup(html, "html.parser")


def test_a_number_leads_to_its_cell_and_says_what_stands_behind_it(page):
    number = page.select_one("article p a.claim")
    assert (number.text, number["href"]) == ("7", "#checked-k")
    assert (
        number["title"] == "7: interval 6 to 8; must be above 1; 2 worlds, seeds 3, 4"
    )
    assert page.find(id="checked-k").find_parent("details")
    assert any("claims.js" in tag.get("src", "") for tag in page.select("script"))


def test_an_interval_alone_in_its_brackets_is_apart(page):
    brackets = page.select(".claim-bracket")
    assert [bracket.text for bracket in brackets] == [" (interval 6 to 8)"]
    line = brackets[0].parent.text
    assert line == "It is 7 (interval 6 to 8), or 6 to 8 (so 0.400 to 0.600)."


def test_cells_print_no_claims_and_are_folded_where_they_are_tagged(page):
    imports, k, half, needed, after = page.select("div.cell")
    assert "must be" not in page.select_one("article").text.partition("There are")[0]
    assert [imports.details is not None, k.details is not None] == [True, True]
    assert [out.text.strip() for out in half.select(".cell_output")] == ["shown"]
    assert "def half" in half.select_one(".cell_input").text
    assert half.details is None
    assert half.find(id="checked-l").find_parent(class_="cell_input")
    assert needed.select_one(".cell_input").text.strip().startswith("needed = 3")
    assert needed.select_one(".cell_output") is None
    assert after.details is None


def test_a_line_that_came_in_two_pieces_leaves_no_empty_box():
    blocks = [
        nodes.literal_block(text, text) for text in ("claim k: 3, must be 3", "\n")
    ]
    cell = nodes.container("", nodes.container(), nodes.container("", *blocks))
    assert _strip(cell) == ["k"]
    assert len(cell) == 1


def test_the_claims_of_a_page_are_folded_under_its_title(page):
    (section,) = page.select("details.claims-of")
    assert section.summary.text == "A page 3 claims"
    assert section.has_attr("open")  # without scripts
    assert len(section.select("table.claims tbody tr")) == 3
    assert not page.select(".claims-wrong")


def test_a_row_says_what_was_found_and_where_it_was_checked(page):
    text = page.select_one("article").text
    assert "There are 3 claims. 2 of them kept" in text
    assert "and 1 speak about several worlds." in text
    row = page.find(id="claim-k")
    assert "2 worlds, seeds 3, 4" in row.text
    assert row.select_one("a.checked-in")["href"] == "#checked-k"


def bounded(sentence, above=None, below=None, equals=None):
    """Return what is recorded of a claim with these bounds."""
    held = "above" if equals is None else f"equal to {equals}"
    ends = [equals] * 3
    bounds = {"above": above, "below": below}
    return {"sentence": sentence, "held": held, "range": ends} | bounds


@pytest.mark.parametrize(
    ("sentence", "bound", "wanted"),
    [
        ("A is ahead of B by so many points.", {"above": -1, "below": 9}, "above 0"),
        ("A earns so many clicks more than B.", {"below": 9}, "above 0"),
        ("A is larger than B by this factor.", {"above": 0.5}, "above 1"),
        ("A differs from B by this.", {"below": 9}, "exclude zero or be a margin"),
        ("The share of A minus that of B, in points.", {"above": -9}, "exclude zero"),
        ("They differ by at most this.", {"above": -9}, "be below something"),
        ("It takes at least so many visits.", {"below": 9}, "be above something"),
    ],
)
def test_a_bound_that_does_not_check_its_sentence_is_named(sentence, bound, wanted):
    assert wanted in unbound(bounded(sentence, **bound))


@pytest.mark.parametrize(
    ("sentence", "bound"),
    [
        ("A is ahead of B by so many points.", {"above": 0}),
        ("A is ahead of B by so many points.", {"equals": 2}),
        ("A is larger than B by this factor.", {"above": 1}),
        ("A differs from B by this.", {"above": -5, "below": 5}),
        ("The share of A minus that of B, in points.", {"above": 1}),
        ("The share of A minus that of B, in points.", {"below": 0}),
        ("They differ by at most this.", {"below": 3}),
        ("In so many of 20 worlds A is ahead of B.", {"below": 9}),
        ("A takes so many times as long as B.", {"below": 9}),
    ],
)
def test_a_bound_that_checks_its_sentence_is_kept(sentence, bound):
    assert unbound(bounded(sentence, **bound)) == ""
