"""How cells look: marks in place of bars, one line for those that would stand under one another."""

import pytest
from bs4 import BeautifulSoup

from tests.book.building import A_LINE, build

PAGE = (
    """
```{code-cell} python
:tags: [hide-input]
import matplotlib.pyplot as plt
from zoolib import claim
```

Words between cells.

```{code-cell} python
---
"""
    + A_LINE
    + """tags: [hide-input]
---
plt.plot([1, 2]);
```

```{code-cell} python
:tags: [hide-input]
claim("k", "So it is.", 7, above=1, fmt="d")
```

```{code-cell} python
:tags: [hide-input]
seven = 7
```

```{code-cell} python
:tags: [hide-input]
print(seven)
```

```{code-cell} python
print("open")
```

```{code-cell} python
:tags: [hide-output]
print("long")
```

```{code-cell} python
:tags: [hide-output]
eight = 8
```

```{code-cell} python
:tags: [hide-input]
claim("l", "So is this.", 8, above=1, fmt="d")
for number in (8, 9):
    claim(f"n_{number}", "And these.", number, above=1, fmt="d")
```

It is {claim}`k`.
"""
)


@pytest.fixture(scope="module")
def article(tmp_path_factory):
    folder = tmp_path_factory.mktemp("cells")
    status, output = build(folder, PAGE)
    assert status == 0, output
    html = (folder / "_build/html/chapters/index.html").read_text()
    return BeautifulSoup(html, "html.parser").select_one("article")


def parts(cell):
    """Name the parts of a cell in their order: code, output, and folds by their marks."""
    names = {"cell_input": "code", "cell_output": "output"}
    return [
        next((names[one] for one in part["class"] if one in names), "")
        or f"<{part.summary.text}>"
        for part in cell.find_all(recursive=False)
    ]


def test_a_mark_follows_what_is_shown_and_marks_share_a_row(article):
    rows = [
        [parts(cell) for cell in row.select(".cell")] or parts(row)
        for row in article.select("section > .folds, section > .cell")
    ]
    assert rows == [
        [["<set-up>"]],
        [["output", "<code>"], ["<checks>"], ["<code>"]],
        [["output", "<code>"]],
        ["code", "output"],
        [["code", "<output>"]],
        ["code"],
        [["<checks>"]],
    ]


def test_what_shows_something_is_framed(article):
    framed = ["framed" in row["class"] for row in article.select(".folds")]
    assert framed == [False, True, True, False, False]


def test_a_fold_holds_the_code_and_the_place_of_its_claims(article):
    place = article.find(id="checked-k")
    fold = place.find_parent("details")
    assert fold.pre.text.startswith('claim("k"')
    assert place.text == '"k"'
    assert not fold.has_attr("open")
    assert [len(fold.find_all("pre")) for fold in article.select("details")] == [1] * 7


def test_the_place_of_a_claim_is_its_key_in_the_code_or_the_top_of_its_cell(article):
    checks = article.select("details")[-1]
    assert checks.find(id="checked-l").find_parent("pre")
    tops = [checks.find(id=f"checked-n-{number}") for number in (8, 9)]
    assert not any(top.text or top.find_parent("pre") for top in tops)
