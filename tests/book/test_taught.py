"""Pages that teach keep the rules on cells: what a student needs is open, figures and checks are folded."""

import re

import pytest

from tests.book.taught import TAUGHT, cells, faults
from tests.notebooks import ROOT

SET_UP = "import numpy as np\nfrom zoolib import LinUCBAgent, claim, plots\nplots.use_style()"
CHECKS = 'claim("k", "So.", total, above=1)'
FIGURE = """---
mystnb:
  image:
    alt: What there is to see.
  figure:
    name: fig-one
    caption: A line.
tags: [hide-input]
---
"""
FOLDED = ":tags: [hide-input]\n\n"


def cell(code, options=""):
    return f"```{{code-cell}} python\n{options}{code}\n```\n\n"


def many(lines):
    return "\n".join(f"x_{number} = {number}" for number in range(lines))


def page(*more, checks=CHECKS, words=900):
    """A page that keeps the rules, with more cells in its middle."""
    parts = [cell(SET_UP, FOLDED), "Words. " * words, "{claim}`k`. " * 4, "\n\n"]
    parts += [cell("total = np.ones(3).sum()\nprint(total)\n" + many(9)), *more]
    return "".join([*parts, cell(checks, FOLDED)])


@pytest.mark.parametrize("name", TAUGHT)
def test_a_page_keeps_the_rules_on_cells(name):
    text = (ROOT / "chapters" / f"{name}.md").read_text()
    assert len(list(cells(text))) > 10
    assert faults(text) == []


def exercise(code, solution):
    asked = "```{exercise-start}\n:label: a\n```\n" + cell(code)
    solved = "```{solution-start} a\n```\n" + cell(solution)
    return f"{asked}```{{exercise-end}}\n```\n\n{solved}```{{solution-end}}\n```\n\n"


SOUND = {
    "nothing": "",
    "figure": cell("for x in range(3):\n    plots.plot(x)", FIGURE),
    "class": cell(
        "class One:\n    def f(self, a):\n        return [np.sin(b * a) for b in a]"
    ),
    "long class": cell("class One:\n    " + many(39).replace("\n", "\n    ")),
    "exercise": exercise("answer = ...", many(30) + "\nanswer = total\nassert answer"),
    "as wide as fits": cell(f"x = '{'y' * 82}'"),
    "as wide in an exercise": exercise(f"x = '{'y' * 73}'", f"z = '{'y' * 80}'"),
    "magic": cell("%time total\n!ls"),
    "agents play": cell("agent = LinUCBAgent(3, 2)\n\ndef f(x):\n    return agent, x"),
}


@pytest.mark.parametrize("more", SOUND.values(), ids=SOUND)
def test_a_sound_page_has_no_fault(more):
    assert faults(page(more)) == []


FAULTS = {
    "two set-ups": (cell("import math", FOLDED), "2 cells of set-up"),
    "two checks": (cell(CHECKS, FOLDED), "2 cells of checks"),
    "folded": (cell("y = 2", FOLDED), "a folded cell is of no kind: y = 2"),
    "folded class": (cell("class A: pass", FOLDED), "of no kind: class A"),
    "long figure": (cell(many(13), FIGURE), "13 lines draw a figure"),
    "figure defines": (cell("f = lambda x: x", FIGURE), "figure's cell computes: f ="),
    "figure plays": (cell("zoo.run_experiment(1)", FIGURE), "cell computes: zoo.run"),
    "figure selects": (cell("agent.select(3)", FIGURE), "cell computes: agent"),
    "long": (cell(many(16)), "an open cell has 16 lines"),
    "long def": (cell("def f():\n  " + "\n  ".join(["a = 1"] * 15)), "has 16 lines"),
    "long class": (cell("class A:\n  " + "\n  ".join(["a = 1"] * 40)), "has 41 lines"),
    "wide": (cell(f"x = '{'y' * 84}'"), "an open line is too wide: x = 'yyy"),
    "wide stub": (exercise(f"x = '{'y' * 74}'", "z = 1"), "is too wide: x = 'yyy"),
    "wide solution": (exercise("x = 1", f"z = '{'y' * 81}'"), "is too wide: z = 'yyy"),
    "unknown name": (cell("print(tota)"), "tota of an open cell is not seen before"),
    "in a function": (cell("def f(x):\n    return x + y"), "y of an open cell"),
    "from a figure": (cell("low = 1", FIGURE) + cell("print(low)"), "low of an open"),
    "agent in class": (
        cell("class A:\n    def f(self):\n        return LinUCBAgent(3, 2)"),
        "a class uses LinUCBAgent",
    ),
    "base class": (
        cell("import zoolib as z\nclass A(z.LinUCBAgent):\n    pass"),
        "a class uses z.LinUCBAgent",
    ),
    "model": (
        cell("from zoolib.models import posterior\nclass A:\n    b = posterior.x"),
        "a class uses posterior",
    ),
}


@pytest.mark.parametrize(("more", "said"), FAULTS.values(), ids=FAULTS)
def test_a_fault_is_found(more, said):
    assert re.search(re.escape(said), "\n".join(faults(page(more))))


def test_set_up_comes_first_and_checks_last():
    assert faults(cell("x = 1") + page()) == ["the cell of set-up is not the first"]
    assert faults(page() + cell("x = 1")) == ["the cell of checks is not the last"]


def test_most_lines_are_open():
    assert faults(page(checks=f"{many(3)}\n{CHECKS}")) == ["11 of 15 lines are open"]


def test_few_numbers_link_to_claims():
    text = page(words=350)
    assert len(text.split()) > 400
    (said,) = faults(text)
    assert re.fullmatch(r"4 links to claims in 3\d\d words", said)
