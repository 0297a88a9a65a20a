"""What stands at the top of a chapter: facts that are computed, and a map that is complete."""

import re

import pytest
from cells import Fold
from docutils import nodes
from overview import _duration, contents, difference

from tests.book.building import build_again, lay_out
from tests.book.pages import soup
from tests.notebooks import HTML, chapters, name_of

TOC = """format: jb-book
root: chapters/index
parts:
  - numbered: true
    chapters:
      - file: chapters/one
      - file: chapters/two
"""
ONE = """Words.

```{overview}
1. **First.** [](#a-start)
2. **Then.** [](#an-end)
```

## A start

```{code-cell} python
1 + 1
```

## An end
"""
TWO = """After {doc}`one`.

```{overview}
- [](#only)
```

## Only
"""


def build(folder, one=ONE, two=TWO, **others):
    lay_out(folder, "A page.", one=one, two=two, **others)
    more = "".join(f"  - chapters:\n    - file: chapters/{name}\n" for name in others)
    (folder / "_toc.yml").write_text(TOC + more)
    return build_again(folder)


def test_facts_stand_before_the_map(tmp_path):
    status, output = build(tmp_path)
    assert status == 0, output
    one, two = (
        soup(tmp_path / f"_build/html/chapters/{name}.html") for name in ("one", "two")
    )
    said = one.find(class_="chapter-facts").text
    assert "To read: 60 seconds." in said
    assert re.search(r"To run: \d+ seconds\.", said)
    assert "Builds on: no other chapter." in said
    times, *facts = two.find(class_="chapter-facts").find_all("a")
    assert times["href"] == "executions.html"
    assert [(link.text, link["href"]) for link in facts] == [("Chapter 1", "one.html")]


# Reading times that have nothing to read behind them.
TIMES = {
    "unlisted": "{reading-time}`{}` without a list, [](one.md).",
    "unlinked": "- {reading-time}`{}` without a link.",
    "outside": "- {reading-time}`{}` [](one.md), [there](https://example.org/).",
}


def test_a_map_with_gaps_and_a_reading_time_without_links_break_the_build(tmp_path):
    one = ONE.replace("2. **Then.** [](#an-end)\n", "")
    status, output = build(tmp_path, one=one, two="No map.\n", **TIMES)
    assert status != 0
    assert "the map names a-start, the sections are a-start, an-end" in output
    assert "chapters/two.md: WARNING: a chapter begins with its {overview}" in output
    for name in TIMES:
        assert f"chapters/{name}.md: WARNING: a reading time stands in an" in output


@pytest.mark.parametrize(
    ("named", "fits"),
    [
        (["a-start", "an-end"], True),
        (["an-end", "a-start"], False),
        (["a-start", "an-end", "an-end"], False),
        (["a-start", "elsewhere"], False),
        ([], False),
    ],
)
def test_a_map_names_every_section_once_in_order(named, fits):
    sections = [
        nodes.section(ids=["a-start", "a-label"]),
        nodes.section(ids=["an-end"]),
    ]
    links = [nodes.reference("", name, refid=name) for name in named]
    plan = nodes.container("", nodes.paragraph("", "", *links))
    assert (difference(plan, sections) == "") is fits


THERE = """- **{reading-time}`Both, {}`.** [](one.md) and [](two.md#only), by {claim}`none`.
- {reading-time}`{}`: [](one.md#a-start).
"""
CLAIM = """```{code-cell} python
from zoolib import claim, mean_interval
claim("none", "A number.", mean_interval([1, 2, 3]), above=-9)
```
"""


def test_a_reading_time_is_that_of_what_its_item_links_to(tmp_path):
    long = "many words " * 300
    one = ONE.replace("## An end\n", f"{long}\n\n## An end\n\n{long}\n")
    lay_out(tmp_path, THERE + CLAIM, one=one, two=TWO + long)
    (tmp_path / "_toc.yml").write_text(TOC)
    status, output = build_again(tmp_path)
    assert status == 0, output
    html = soup(tmp_path / "_build/html/chapters/index.html")
    # 1,200 words and 600 of them, and 600 of the other chapter, at 180 a minute.
    both, start = (item.text for item in html.select("article li"))
    assert both.startswith("Both, 10 minutes.")
    assert start.startswith("3 minutes: ")
    facts = soup(tmp_path / "_build/html/chapters/one.html").find(
        class_="chapter-facts"
    )
    assert "To read: 7 minutes." in facts.text


def page(*children):
    return nodes.section("", *children)


def test_effort_counts_what_is_read():
    cell = nodes.container("", classes=["cell"])
    cell += nodes.container(
        "", nodes.literal_block("", "a = 1\nb = 2"), classes=["cell_input"]
    )
    printed = nodes.literal_block("", "many words are printed")
    pictures = nodes.figure("", nodes.image(), nodes.caption("", "a caption"))
    cell += nodes.container("", printed, pictures, classes=["cell_output"])
    folded = nodes.container("", Fold("", cell[0].deepcopy()), classes=["cell"])
    found = contents(
        page(
            nodes.title("", "Two words"),
            nodes.paragraph(
                "", "", nodes.Text("and "), nodes.emphasis("", "three more words")
            ),
            nodes.math_block("", "x = y"),
            cell,
            folded,
            nodes.container("", nodes.paragraph("", "the map"), classes=["overview"]),
        )
    )
    assert found == {"words": 6, "formulas": 1, "figures": 1, "lines of code": 2}


def test_exercises_are_counted_and_not_read():
    class exercise_node(nodes.Element):  # noqa: N801  (the name that the extension sees)
        pass

    class solution_node(nodes.Element):  # noqa: N801
        pass

    asked = exercise_node("", nodes.paragraph("", "many words"))
    solved = solution_node("", nodes.paragraph("", "many words"))
    found = contents(page(asked, solved, asked.deepcopy()))
    assert found == {"exercises": 2}


@pytest.mark.parametrize(
    ("seconds", "said"),
    [
        (0.4, "0 seconds"),
        (89, "89 seconds"),
        (90, "2 minutes"),
        (3600, "1 h 0 min"),
        (None, "nothing"),
    ],
)
def test_durations_are_said_in_the_unit_that_fits(seconds, said):
    assert _duration(seconds) == said


def durations(shown):
    """Say a time that was rounded to hundredths, in every way in which the whole time may be said."""
    return {_duration(shown + rest) for rest in (-0.005, 0, 0.005)}


@pytest.mark.parametrize(
    ("seconds", "shown"), [(88.504, 88.5), (88.496, 88.5), (89.996, 90), (7.25, 7.25)]
)
def test_a_time_and_its_rounding_are_said_alike(seconds, shown):
    assert _duration(seconds) in durations(shown)


@pytest.mark.parametrize("chapter", chapters(numbered=True), ids=name_of)
def test_the_facts_of_a_chapter_are_true(chapter):
    html = soup(HTML / "chapters" / f"{name_of(chapter)}.html")
    said = html.find(class_="chapter-facts").text
    asked = chapter.read_text().count("{exercise-start}")
    assert f"Exercises: {asked}." in said
    times = soup(HTML / "chapters" / "executions.html").select_one("article table")
    (seconds,) = (
        float(row.find_all("td")[2].text)
        for row in times.select("tbody tr")
        if row.a["href"] == f"{name_of(chapter)}.html"
    )
    assert any(f"To run: {one}." in said for one in durations(seconds))
