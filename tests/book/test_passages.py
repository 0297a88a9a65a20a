"""The passages that search shows: formulas in letters, headings with what they head, no code where prose is."""

import pytest
from docutils import nodes
from passages import passages, plain


@pytest.mark.parametrize(
    ("tex", "said"),
    [
        (r"\alpha", "α"),
        (r"\Lambda", "Λ"),
        ("x_t", "xₜ"),
        (r"n = 4\,000", "n = 4 000"),
        (r"\hat\theta_a", "…"),
        (r"\frac{1}{2}", "…"),
        (r"A^{-1}", "…"),
    ],
)
def test_a_formula_is_written_in_letters_or_left_out(tex, said):
    assert plain(tex) == said


def test_a_heading_begins_the_passage_after_it():
    text = "Every visit " + "teaches something. " * 6
    page = nodes.section("", nodes.title("", "Regret"), ids=["regret"])
    page += [nodes.paragraph("", text), nodes.literal_block("", "x  =\n1")]
    assert [*passages(nodes.section("", page))] == [
        ("regret", True, f"Regret. {text.strip()}"),
        ("", False, "x = 1"),
    ]


def test_a_term_stands_before_its_meaning_and_a_table_is_read_as_its_text():
    term = nodes.definition_list_item("", nodes.term("", "arm", ids=["term-arm"]))
    term += nodes.definition("", nodes.paragraph("", "A choice."))
    table = "<style>td {color: red}</style><td>5</td><td>a &amp; b</td>"
    page = nodes.section("", term, nodes.raw("", table, format="html"))
    assert [*passages(page)] == [
        ("term-arm", False, "arm: A choice."),
        ("", False, "5 a & b"),
    ]
