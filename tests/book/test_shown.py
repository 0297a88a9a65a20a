"""Figures and tables of another page: in both themes, numbered, with a link to where they were made."""

import jupytext
import pytest

from tests.book.building import build, lay_out
from tests.book.pages import soup
from tests.book.test_lab import run

EVIDENCE = """(far)=
## Who wins?

```{code-cell} python
---
mystnb:
  image:
    alt: A line that rises from left to right and then falls.
  figure:
    name: fig-line
    caption: The evidence page's own words about a line.
---
import matplotlib.pyplot as plt
from zoolib import plots

plots.use_style()
plt.plot([1, 2, 1], color=plots.LIGHT["blue"])
plt.show()
```

```{code-cell} python
---
table:
  name: tab-two
  caption: Two agents, in points.
---
import pandas as pd

pd.DataFrame({"share": ["**98.8**", "1.0"]}, ["a", "b"])
```
"""
PAGE = """## A picture of another page

Look at {numref}`fig-here`, {numref}`shown-fig-line` and {numref}`tab-here`.

```{shown} fig-line
The caption of *this* page, $x$.
```

```{shown} fig-line
:name: fig-here
:alt: The same line, in other words than those of the evidence.
It is shown twice.
```

```{shown} tab-two
:name: tab-here
The table's caption on this page.
```

```{code-cell} python
1 + 1
```
"""


@pytest.fixture(scope="module")
def book(tmp_path_factory):
    folder = tmp_path_factory.mktemp("shown")
    (folder / "chapters/evidence").mkdir(parents=True)
    status, output = build(folder, PAGE, **{"evidence/far": EVIDENCE})
    assert status == 0, output
    return folder


def test_a_figure_of_another_page_is_shown_in_both_themes(book):
    html = soup(book / "_build/html/chapters/index.html")
    first, second = html.select("figure.shown")
    for figure in (first, second):
        light, dark = figure.find_all("img")
        assert (light["class"], dark["class"]) == (["only-light"], ["only-dark"])
        assert light["width"] == dark["width"]
        for picture in (light, dark):
            file = book / "_build/html/chapters" / picture["src"]
            assert file.stat().st_size > 1_000
    assert first.img["alt"] == "A line that rises from left to right and then falls."
    assert second.img["alt"].startswith("The same line, in other words")
    assert (
        first.figcaption.get_text()
        .strip()
        .startswith("Fig. 1 The caption of this page")
    )
    assert second["id"] == "fig-here"
    numbers = [link.get_text() for link in html.select("section > p > a.reference")]
    assert numbers[:3] == ["Fig. 2", "Fig. 1", "Table 1"]


def test_a_table_of_another_page_is_shown_with_its_marks(book):
    (table,) = soup(book / "_build/html/chapters/index.html").select("table.shown")
    assert table.caption.get_text().strip().startswith("Table 1 The table’s caption")
    cells = [cell.get_text(strip=True) for cell in table.select("tbody tr > *")]
    assert cells == ["a", "98.8", "b", "1.0"]
    assert table.strong.get_text() == "98.8"


def test_under_it_a_link_leads_to_the_section_that_made_it(book):
    html = soup(book / "_build/html/chapters/index.html")
    links = [how.a for how in html.select("p.shown-how")]
    assert [link["href"] for link in links] == ["evidence/far.html#who-wins"] * 3
    assert html.select_one("p.shown-how").text == "How we know: Who wins?"
    far = soup(book / "_build/html/chapters/evidence/far.html")
    assert far.find(id="who-wins")
    assert len(far.find_all("figure")) == 1


def test_the_notebook_says_where_the_picture_is_and_has_the_table(book):
    made = jupytext.read(book / "_build/html/_downloads/chapters/index.ipynb")
    text = "\n".join(cell.source for cell in made.cells)
    assert text.count("This picture is drawn on the page that the link below") == 2
    assert "**Fig. 1** The caption of *this* page, $x$." in text
    assert "How we know: Who wins?" in text
    assert "**98.8**" in text
    assert "_images" not in text


def test_in_the_lab_the_link_leads_to_the_other_notebook(tmp_path):
    (tmp_path / "chapters/evidence").mkdir(parents=True)
    lay_out(tmp_path, PAGE, **{"evidence/far": EVIDENCE})
    made = run(tmp_path)
    assert sorted(made) == ["00-index.ipynb", "01-evidence-far.ipynb"]
    text = "\n".join(cell.source for cell in made["00-index.ipynb"].cells)
    assert "How we know: [Who wins?](01-evidence-far.ipynb#cell-id=" in text
    assert text.count("This picture is drawn on the page that the link below") == 2


@pytest.mark.parametrize(
    ("page", "said"),
    [
        ("```{shown} fig-nowhere\nA caption.\n```", "no page has 'fig-nowhere' to sh"),
        ("```{shown} fig-nowhere\n```", "what is shown needs a caption"),
    ],
)
def test_what_is_nowhere_or_has_no_caption_fails_the_build(tmp_path, page, said):
    status, output = build(tmp_path, page)
    assert status != 0
    assert said in output
