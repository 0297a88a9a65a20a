"""The page of claims: what it reads from the records, and what it refuses."""

import pytest
from claims_page import numbers, strip

from tests.book.building import build


def record(value, held, interval="", **others):
    return {"value": value, "held": held, "interval": interval, "seeds": [1], **others}


@pytest.mark.parametrize(
    ("claim", "room"),
    [
        (record("0.5", "above 0.2", "0.4 to 0.6"), (0.4 - 0.2) / 0.1),
        (record("0.5", "below 0.9", "0.4 to 0.6"), (0.9 - 0.6) / 0.1),
        (record("0.5", "above 0.1 and below 0.7", "0.4 to 0.6"), (0.7 - 0.6) / 0.1),
        (record("56.1%", "above 50.0%", "55.5% to 56.7%"), (55.5 - 50.0) / 0.6),
        (record("8,510", "above 2,000", "7,860 to 9,615"), (7860 - 2000) / 877.5),
        (record("-0.06", "below 0.00", "-0.07 to -0.05"), 0.05 / 0.01),
        (record("2e-16", "below 1e-09"), (1e-9 - 2e-16) / 2e-16),
        (record("20", "above 15"), 5 / 20),
        (record("0", "below 5"), 5),
    ],
)
def test_room_is_the_distance_to_the_nearer_bound_in_half_widths(claim, room):
    assert numbers(claim).room == pytest.approx(room)


def test_what_had_to_be_equal_has_no_room():
    assert numbers(record("7", "equal to 7")) is None
    assert strip(record("7", "equal to 7")).astext() == ""


def test_an_interval_without_an_end_is_not_drawn():
    assert strip(record("900", "above 10", "100 to inf")).astext() == ""


def test_a_strip_shows_interval_value_bound_and_allowed_side():
    drawn = strip(record("5", "above 0", "4 to 6")).astext()
    # From 0 to 6 with a margin of 0.48 on both sides: 6.96 units are 100.
    at = [round(100 * (number + 0.48) / 6.96, 1) for number in (0, 4, 5, 6)]
    assert f'd="M{at[0]} 0V16"' in drawn
    assert f'd="M{at[1]} 8H{at[3]}"' in drawn
    assert f'cx="{at[2]}"' in drawn
    assert f'x="{at[0]}" y="2" width="{round(100 - at[0], 1)}"' in drawn
    assert 'data-room="4.00"' in drawn


CELL = """```{code-cell} python
from zoolib import claim
claim("k", "So it is.", 7, above=1, fmt="d", seeds=[3, 4])
claim("l", "So is this.", 0.5, below=1)
```

"""


def test_a_row_says_what_was_found_where_and_what_the_drafts_said(tmp_path):
    text = CELL + "```{claims}\nk: It is eight.\n```\n"
    status, output = build(tmp_path, text)
    assert status == 0, output
    html = (tmp_path / "_build/html/chapters/index.html").read_text()
    assert "There are 2 claims. 0 of them kept" in html
    assert "1 speak about several worlds, and 1 differ" in html
    assert "The drafts: It is eight." in html
    assert "seeds 3, 4" in html
    assert html.index('id="checked-k"') < html.index("k: 7, 2 worlds")


def test_a_draft_that_contradicts_no_claim_breaks_the_build(tmp_path):
    status, output = build(tmp_path, CELL + "```{claims}\nm: It is eight.\n```\n")
    assert status != 0
    assert "the drafts contradict no claim 'm'" in output
