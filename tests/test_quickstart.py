"""The quickstart's promise: from a table to an estimate in few lines, all of them shown."""

import jupytext

from tests.notebooks import ROOT


def test_it_takes_forty_lines_from_a_table_to_an_estimate():
    page = jupytext.read(ROOT / "chapters" / "quickstart.md")
    lines = []
    for cell in page.cells:
        if cell.cell_type == "markdown" and "## Look before you believe" in cell.source:
            break
        if cell.cell_type == "code" and "hide-input" not in cell.metadata.get(
            "tags", []
        ):
            lines += [line for line in cell.source.splitlines() if line.strip()]
    text = "\n".join(lines)
    steps = ("read_csv", "GuardedAgent(", ".decide(", ".update(", "from_frame", "ips(")
    assert all(step in text for step in steps)
    ends = text.index(".ips(", text.index("from_frame"))
    assert text[:ends].count("\n") < 40
