"""What the theme gets wrong is repaired on a page of its faults, once and for all."""

import pytest
import theme_repairs
from bs4 import BeautifulSoup

FAULTS = """<!DOCTYPE html>
<html lang="en"><head><title>A page</title>
<meta name="viewport" content="width=device-width"><meta name="viewport" content="width=device-width">
<script data-cfasync="false">first()</script>
<script defer src="_static/scripts/fontawesome.js"></script>
<link rel="preload" as="script" href="_static/scripts/bootstrap.js">
<script src="_static/doctools.js"></script><script src="searchindex.js"></script>
<script>window.MathJax = {}</script><script defer src="_static/tex-svg.js"></script>
</head><body>
<div id="pst-primary-sidebar"><input autocorrect="off"></div>
<button><i class="fas fa-file-pdf"></i></button>
<button><i class="theme-switch fa-solid fa-sun   fa-lg" data-mode="light" title="Light"></i></button>
<div><style scoped>td {}</style>
<table border="1" class="dataframe"><tr><th></th><th><p></p></th><th>a &amp; b</th></tr></table></div>
<section id="proof-content"><p>One.</p></section><section id="proof-content"><p>Two.</p></section>
<div class="proof admonition" id="proof"></div><div class="citation" role="doc-biblioentry"></div>
<p><img class="only-light" src="a.svg"><img class="only-dark" src="a.svg"></p>{more}
<pre>  two  spaces
</pre></body></html>"""
MATHEMATICS = r"""<p><span class="math">\(x_{t,a}\)</span></p><div class="math">\[x = \frac{a}{b}\]</div>"""


@pytest.fixture
def repaired(tmp_path):
    def repair(more=""):
        (tmp_path / "a.svg").write_text('<svg xmlns="…" width="300pt" height="150pt">')
        file = tmp_path / "page.html"
        file.write_text(FAULTS.replace("{more}", more))
        theme_repairs.repair_page(file)
        once = BeautifulSoup(file.read_text(), "html.parser")
        theme_repairs.repair_page(file)
        twice = BeautifulSoup(file.read_text(), "html.parser")
        assert words(twice) == words(once), "the second time changes something"
        return once

    return repair


def words(page):
    return str(page).split()


def scripts(page):
    return " ".join(script.get("src", "") for script in page.find_all("script"))


def test_only_needed_scripts_stay_and_run_after_the_text_is_shown(repaired):
    page = repaired()
    assert scripts(page).split() == ["_static/doctools.js"]
    (script,) = page.head.find_all("script")
    assert script.text.startswith("first()")
    assert not page.select("link[rel=preload]")
    assert "tex-svg" in scripts(repaired(MATHEMATICS))
    assert "searchindex" in scripts(repaired('<div id="search-results"></div>'))


def test_icons_are_drawn_where_they_stand(repaired):
    pdf, sun = repaired().select("svg.icon")
    assert not repaired().select("i")
    assert pdf["viewbox"] == sun["viewbox"] == "0 0 512 512"
    assert sun["class"] == ["icon", "fa-lg", "theme-switch"]
    assert sun["data-mode"] == "light"
    assert sun["aria-hidden"] == "true"
    assert pdf.path["d"].startswith("M0 64C0 28.7")


def test_pictures_know_their_size_and_dark_ones_wait(repaired):
    light, dark = repaired().find_all("img")
    assert (light["width"], light["height"]) == ("400", "200")
    assert "loading" not in light.attrs
    assert dark["loading"] == "lazy"


def test_formulas_have_about_the_room_they_need(repaired):
    page = repaired(MATHEMATICS)
    assert page.select_one("span.math")["style"] == "--room: 2.4em"
    assert page.select_one("div.math")["style"] == "--room: 5.3em"


@pytest.mark.parametrize(
    ("source", "measured"),
    [
        (r"\(N\)", 1.13),
        (r"\((0,1)\)", 2.83),
        (r"\(g(x; \theta)\)", 3.49),
    ],
)
def test_the_width_of_a_formula_is_near_what_mathjax_makes_of_it(source, measured):
    assert theme_repairs.width_of(source) == pytest.approx(measured, abs=1)


def test_tables_roles_and_names_are_those_of_html(repaired):
    page = repaired()
    assert not page.select("table[border], style, input[autocorrect], th:empty")
    assert page.th.text == "a & b"
    assert [tag["id"] for tag in page.select("[id]")] == ["pst-primary-sidebar"]
    assert page.select_one(".citation")["role"] == "listitem"
    assert page.select_one("#pst-primary-sidebar")["role"] == "complementary"
    assert len(page.select("meta[name=viewport]")) == 1
    assert page.pre.text == "  two  spaces\n"


def test_cells_of_a_stacked_table_know_their_column(repaired):
    page = repaired(
        '<table class="stacked"><thead><tr><th><p>what</p></th><th>how <em>long</em></th></tr></thead>'
        "<tbody><tr><td>a</td><td>1</td></tr><tr><td>b</td><td>2</td></tr></tbody></table>"
    )
    named = [cell["data-column"] for cell in page.select("td[data-column]")]
    assert named == ["What", "How long"] * 2


def test_a_picture_without_size_is_reported(tmp_path, caplog):
    (tmp_path / "a.svg").write_text("<svg>")
    file = tmp_path / "page.html"
    file.write_text(FAULTS)
    theme_repairs.repair_page(file)
    assert "a.svg has no width" in caplog.text
