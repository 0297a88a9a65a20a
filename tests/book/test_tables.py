"""Tables that code cells print: numbered and captioned like those of the text."""

import pytest
from docutils import nodes
from tables import table_of

from tests.book.building import build_again, lay_out
from tests.book.pages import soup

CELL = """```{{code-cell}} python
---
table:
  name: tab-two
  caption: Two agents, in points.
---
{code}
```
"""
FRAME = """import pandas as pd
pd.DataFrame({"first [95 %]": ["1.0", "2.0"], "second": ["-", "< 3"]}, ["α = 0.2", "α = 1.0"])"""


def test_the_index_becomes_the_heads_of_rows():
    html = """<div><table><thead><tr><th></th><th>a</th></tr></thead>
    <tbody><tr><th>x &amp; y</th><td>1</td></tr><tr><th>z</th><td>2</td></tr></tbody></table></div>"""
    table = table_of(html)
    rows = [
        [entry.astext() for entry in row.children] for row in table.findall(nodes.row)
    ]
    assert rows == [["", "a"], ["x & y", "1"], ["z", "2"]]
    assert [spec["stub"] for spec in table.findall(nodes.colspec)] == [1, 0]
    assert len(next(table.findall(nodes.thead)).children) == 1


def test_a_printed_table_has_a_number_and_a_caption_and_is_a_target(tmp_path):
    lay_out(tmp_path, "See {numref}`tab-two`.\n\n" + CELL.format(code=FRAME))
    status, output = build_again(tmp_path)
    assert status == 0, output
    page = soup(tmp_path / "_build/html/chapters/index.html")
    (table,) = page.select("table#tab-two")
    assert table.caption.get_text().startswith("Table 1 Two agents, in points.")
    cells = [cell.get_text(strip=True) for cell in table.select("tbody tr > *")]
    assert cells == ["α = 0.2", "1.0", "-", "α = 1.0", "2.0", "< 3"]
    assert [head.name for head in table.select("tbody tr > :first-child")] == ["th"] * 2
    assert page.select_one("p a[href='#tab-two']").get_text() == "Table 1"
    assert not page.select("table.dataframe")


TWICE = (
    FRAME.replace("pd.DataFrame", "frame = pd.DataFrame") + "\ndisplay(frame)\nframe"
)


@pytest.mark.parametrize(("code", "got"), [("1 + 1", 0), (TWICE, 2)])
def test_a_cell_without_one_table_fails_the_build(tmp_path, code, got):
    lay_out(tmp_path, CELL.format(code=code))
    status, output = build_again(tmp_path)
    assert status != 0
    assert f"must print one table: got {got}" in output
