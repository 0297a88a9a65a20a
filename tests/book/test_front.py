"""The front door: README and first page say the same, in the same order, and no number there goes stale."""

import re

import jupytext
import numpy as np
import pytest

from tests.book.pages import soup
from tests.notebooks import HTML, ROOT, chapters, name_of

README = (ROOT / "README.md").read_text(encoding="utf-8")
FRONT = (ROOT / "chapters" / "index.md").read_text(encoding="utf-8")
(USE,) = re.findall(r"```python\n(.*?)```", README, flags=re.S)


def opening(text):
    """The first paragraph below the title."""
    return re.search(r"^# .*\n\n(.+)\n", text, flags=re.M)[1]


@pytest.mark.parametrize("text", [README, FRONT], ids=["README", "first page"])
def test_three_sentences_say_what_it_is_and_for_whom(text):
    said = opening(text)
    assert len(re.findall(r"[.?](?= |$)", said)) == 3
    assert "contextual bandit" in said
    assert "for people who" in said


@pytest.mark.parametrize(
    ("text", "picture"), [(README, "<picture>"), (FRONT, "fig-front")]
)
def test_then_come_the_picture_the_commands_the_use_and_the_paths(text, picture):
    parts = (opening(text), picture, "make book", "make test", "LinUCBAgent(n_arms=3")
    places = [text.index(part) for part in parts] + [text.lower().index("three paths")]
    assert places == sorted(places)


def test_the_six_lines_run_and_are_those_of_the_first_page(capsys):
    lines = [line for line in USE.splitlines() if line]
    assert len(lines) == 6
    cells = jupytext.reads(FRONT, fmt="md:myst").cells
    assert USE.strip() in [cell.source for cell in cells if cell.cell_type == "code"]
    exec(USE, {})
    assert capsys.readouterr().out == "first choice: arm 2\nthen: arm 0\n"


def test_the_readme_leaves_minutes_to_the_pages():
    assert not re.search(r"\d+\s*(h|hours?|min|minutes?)\b", README)
    picture = re.search(r'alt="(.*?)"', README)[1]
    assert not re.search(r"0\.\d", picture)


@pytest.mark.parametrize("theme", ["light", "dark"])
def test_the_readme_shows_the_picture_of_the_first_page(theme):
    """Path by path, within a point; a redrawn figure is copied from the built book."""
    page = HTML / "chapters" / "index.html"
    image = soup(page).select_one(f"#fig-front img.only-{theme}")
    files = [page.parent / image["src"], ROOT / "_static" / f"readme-{theme}.svg"]
    built, kept = (re.findall(r' d="(.*?)"', file.read_text(), re.S) for file in files)
    assert len(built) == len(kept) > 20
    for ours, theirs in zip(built, kept, strict=True):
        numbers = [np.array(re.findall(r"[-\d.]+", d), float) for d in (ours, theirs)]
        np.testing.assert_allclose(*numbers, rtol=0, atol=1)


def minutes(text):
    """Minutes of a duration, as pages write it."""
    found = re.search(r"(?:(\d+) h )?(\d+) min", text)
    return 60 * int(found[1] or 0) + int(found[2])


def test_the_first_page_says_how_long_its_paths_take():
    html = soup(HTML / "chapters" / "index.html")
    paths = html.select_one("#three-paths > ul").find_all("li", recursive=False)
    evening, practice, everything = (minutes(path.strong.text) for path in paths)
    pages = [
        HTML / "chapters" / f"{name_of(page)}.html" for page in chapters(numbered=True)
    ]
    facts = [minutes(soup(page).find(class_="chapter-facts").text) for page in pages]
    assert everything == sum(facts)
    assert 30 <= evening <= 150
    assert evening < practice < everything
    assert all(len(path.select("li")) <= 4 for path in paths)  # short lists
    listed = html.select_one("#the-chapters").find_all("li")
    assert [minutes(item.text) for item in listed] == facts


def test_the_first_page_has_a_button_to_start_and_its_code_is_open():
    html = soup(HTML / "chapters" / "index.html")
    button = html.select_one("article a.sd-btn")
    assert button.text.strip() == "Start reading"
    assert button["href"] == "static-recommender.html"
    (cell,) = (c for c in html.select("div.cell") if "n_arms=3" in c.text)
    assert "tag_hide-input" not in cell["class"]
    assert cell.find("details") is None
