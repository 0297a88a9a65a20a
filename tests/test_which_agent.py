"""The promise of the tables of agents: each row shows a number and leads to the section it comes from."""

import re

import pytest

from tests.notebooks import ROOT

PAGE = (ROOT / "chapters" / "which-agent.md").read_text()
TABLES = re.findall(r"```\{list-table\}.*?\n\n(.*?)\n```", PAGE, flags=re.S)
ROWS = [
    row.split("\n  - ")
    for table in TABLES
    for row in re.split(r"^\* - ", table, flags=re.M)[2:]
]


def test_the_tables_cover_what_a_shop_may_meet():
    shops = " ".join(shop.lower() for shop, *_ in ROWS)
    asked = (
        "few kinds",
        "churn",
        "late",
        "curve",
        "thousands",
        "few clicks",
        "old log",
    )
    assert all(words in shops for words in asked)


@pytest.mark.parametrize("row", ROWS, ids=lambda row: row[0].split("**")[1])
def test_a_row_shows_a_number_and_leads_to_its_experiment(row):
    _, advice, measured = row
    assert "`" in advice or "model" in advice or "agent" in advice
    assert "{claim}`" in measured
    assert re.search(r"\{(ref|doc)\}`|\]\(([\w-]+\.md)?#[\w-]+\)", measured)
