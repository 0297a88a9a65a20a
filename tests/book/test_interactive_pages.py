"""The directive of interactive figures: what it leaves in a page, and how a build fails."""

import json

import pytest

from tests.book.building import build, warned
from tests.book.pages import soup as read
from zoolib.book.colors import DARK, LIGHT

STATIC = """```{code-cell} python
---
mystnb:
  image:
    alt: An empty pair of axes.
  figure:
    name: fig-axes
    caption: Two axes.
---
import matplotlib.pyplot as plt
fig, ax = plt.subplots()
plt.show()
```

"""
PUBLISHED = """```{code-cell} python
from zoolib import publish
publish("ellipse", {"gram": [[100, 1], [1, 1]], "moments": [20, 1], "truth": [0.2, 0.1],
                    "note": "</script>"})
```

"""
FIGURE = """```{interactive} ellipse
:static: fig-axes
:label: An ellipse that can be moved

Move $\\lambda$ & see.
```
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A built book of a page with a figure and one without."""
    made = tmp_path_factory.mktemp("book")
    status, output = build(made, STATIC + PUBLISHED + FIGURE, plain="No figure.\n")
    assert status == 0, output[-3000:]
    return made


def soup(folder, page):
    return read(folder / "_build/html" / page)


def test_a_figure_is_an_empty_stage_with_its_data_and_caption(folder):
    figure = soup(folder, "chapters/index.html").select_one("div.interactive")
    assert figure["data-figure"] == "ellipse"
    assert figure["role"] == "group"
    assert figure["aria-label"] == "An ellipse that can be moved"
    caption = figure.select_one(".interactive-caption")
    assert figure["aria-describedby"] == caption["id"]
    assert "& see." in caption.text
    assert figure.select_one(".interactive-stage").contents == []
    data = json.loads(figure.select_one("script[type='application/json']").string)
    assert data["gram"] == [[100, 1], [1, 1]]
    assert data["note"] == "</script>"


def test_scripts_and_styles_reach_only_the_page_with_the_figure(folder):
    html = soup(folder, "chapters/index.html")
    scripts = [tag for tag in html.find_all("script", src=True) if not tag.get("async")]
    names = [tag["src"].split("/")[-1].partition("?")[0] for tag in scripts]
    assert names.index("plot.js") < names.index("ellipse.js")
    assert all(
        tag.has_attr("defer")
        for tag, name in zip(scripts, names, strict=True)
        if name in ("plot.js", "ellipse.js")
    )
    assert "interactive.css" in str(html)
    other = str(soup(folder, "chapters/plain.html"))
    assert not any(
        name in other for name in ("plot.js", "ellipse.js", "interactive.css")
    )


def test_the_styles_have_the_colours_of_the_books_figures(folder):
    styles = (folder / "_build/html/_static/interactive.css").read_text()
    light, dark = styles.split('html[data-theme="dark"] .interactive {')
    for name in LIGHT:
        assert f"--{name}: {LIGHT[name]};" in light
        assert f"--{name}: {DARK[name]};" in dark.partition("}")[0]


FAULTS = {
    "no-static": (PUBLISHED + FIGURE, "no figure of this page has the name 'fig-axes'"),
    "no-figure": (
        PUBLISHED + "(fig-axes)=\n## A title\n\n" + FIGURE,
        "no figure of this page has the name 'fig-axes'",
    ),
    "no-data": (STATIC + FIGURE, "no cell of this page publishes 'ellipse'"),
    "no-script": (
        STATIC + PUBLISHED + FIGURE.replace("} ellipse", "} circle"),
        "there is no _ext/scripts/circle.js",
    ),
    "no-option": (
        STATIC + PUBLISHED + FIGURE.replace(":static: fig-axes\n", ""),
        "interactive 'ellipse' needs :static:",
    ),
    "no-caption": (
        STATIC
        + PUBLISHED
        + "```{interactive} ellipse\n:static: fig-axes\n:label: An ellipse\n```\n",
        "Content block expected",
    ),
}


@pytest.fixture(scope="module")
def faulty(tmp_path_factory):
    """What is said of a book whose pages have one fault each, by page."""
    pages = {name: text for name, (text, _) in FAULTS.items()}
    return warned(tmp_path_factory.mktemp("faulty"), another=STATIC, **pages)


@pytest.mark.parametrize("name", FAULTS)
def test_a_fault_of_a_figure_is_a_warning(faulty, name):
    """Warnings are errors, so each of them alone would break the build."""
    assert any(FAULTS[name][1] in said for said in faulty[name]), faulty
