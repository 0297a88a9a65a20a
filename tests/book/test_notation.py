"""The notation: what the book writes, what the library holds, and what the one source says of both."""

import ast
import builtins
import inspect
import re
from functools import partial

import jupytext
import notation
import numpy as np
import pytest
import torch
from bs4 import BeautifulSoup
from notation_source import Fault, Source, Use, faults, introductions
from sphinx.testing.util import SphinxTestApp
from tex_symbols import single, stated_shapes, symbols

import zoolib
from tests.notebooks import ROOT, chapters, name_of
from zoolib import monitoring, offpolicy
from zoolib.experiments import evaluation
from zoolib.large import retrieval

SOURCE = Source((ROOT / "chapters" / notation.NAME).read_text(), "chapters/")
MODULES = sorted((ROOT / "zoolib").rglob("*.py"))
NAMES = [str(path.relative_to(ROOT)) for path in MODULES]
WORLDS = [None, 2]


# --- What the library holds ---------------------------------------------------------------------------


def namespace(source, n_worlds):
    """What code in the source may speak of: the library, and the objects that the source names."""
    known = {"W": n_worlds, "np": np, "torch": torch, "partial": partial}
    for module in (evaluation, monitoring, offpolicy, retrieval):
        # Names that nobody has used yet are not in a package's own dictionary.
        known |= {name: getattr(module, name) for name in dir(module)}
    known |= {name: getattr(zoolib, name) for name in zoolib.__all__}
    for name, code in source.objects.items():
        known[name] = eval(code, known)
    return known


def parameter_of(code, known):
    """The callable and the parameter that a call such as ``Agent(alpha=...)`` names, or None."""
    call = ast.parse(code, mode="eval").body
    if not (isinstance(call, ast.Call) and len(call.keywords) == 1 and not call.args):
        return None
    (keyword,) = call.keywords
    if getattr(keyword.value, "value", None) is not ...:
        return None
    return eval(ast.unparse(call.func), known), keyword.arg


def takes(function, name):
    """Whether a callable has a parameter, perhaps handed on to a base class by ``**options``."""
    bases = function.__mro__ if inspect.isclass(function) else [function]
    signatures = (
        inspect.signature(base).parameters for base in bases if base is not object
    )
    return any(name in parameters for parameters in signatures)


def axis_size(source, axis, known):
    """The length of an axis in the sample: a number, a dimension's code, or the object of its name."""
    if axis.isdigit():
        return int(axis)
    codes = source.dimensions[axis].code
    parameters = codes and parameter_of(codes[0], known)
    return int(known[axis]) if not codes or parameters else int(eval(codes[0], known))


def code_fault(source, entry, code, known):
    """What is wrong with an entry's code in the sample, or None."""
    try:
        if named := parameter_of(code, known):
            return None if takes(*named) else f"{code}: no such parameter"
        value = eval(code, known)
    except (AttributeError, NameError, TypeError, LookupError, ValueError) as error:
        return f"{code}: {error}"
    if entry.shape is None:
        return None
    leading = (known["W"],) if entry.worlds and known["W"] else ()
    wanted = leading + tuple(axis_size(source, axis, known) for axis in entry.shape)
    return (
        None
        if np.shape(value) == wanted
        else f"{code}: shape {np.shape(value)}, not {wanted}"
    )


@pytest.fixture(scope="module", params=WORLDS, ids=["one world", "two worlds"])
def known(request):
    return namespace(SOURCE, request.param)


def test_code_that_holds_a_symbol_exists_and_has_the_shape_stated(known):
    found = [
        code_fault(SOURCE, entry, code, known)
        for entry in SOURCE.entries
        for code in entry.code
    ]
    assert len(found) > 90
    assert [fault for fault in found if fault] == []


def test_axes_of_the_sample_have_different_lengths_so_that_none_passes_for_another(
    known,
):
    axes = [axis for entry in SOURCE.entries for axis in entry.shape or []]
    lengths = {axis: axis_size(SOURCE, axis, known) for axis in axes}
    assert len(set(lengths.values()) | {known["W"]}) == len(lengths) + 1


SMALL = """
operators: \\in \\mathbb{R} \\times
indices: i
axes: {W: worlds}
objects: {posterior: "RidgePosterior(3, shape=() if W is None else (W,))"}
chapters:
- page: one
  title: First
  symbols:
  - {symbol: d, means: features, names: d, code: posterior.n_features}
  - {symbol: A, means: precision, shape: [d, d], code: posterior.A, worlds: true}
"""


def source_with(entry, old="", new=""):
    """The small source with one more entry."""
    return Source(SMALL.replace(old, new) + f"  - {{{entry}}}")


@pytest.mark.parametrize("n_worlds", WORLDS)
@pytest.mark.parametrize(
    ("old", "new", "wanted"),
    [
        ("shape: [d, d]", "shape: [d]", "not"),
        ("shape: [d, d]", "shape: [d, 4]", "not"),
        ("code: posterior.A,", "code: posterior.B,", "has no attribute 'B'"),
        ("code: posterior.A,", "code: prior.A,", "'prior' is not defined"),
        ("code: posterior.A,", "code: RidgePosterior(alpha=...),", "no such parameter"),
    ],
)
def test_a_wrong_shape_attribute_or_parameter_is_found(n_worlds, old, new, wanted):
    for text in (SMALL, SMALL.replace(old, new)):
        source = Source(text)
        entry = source.entries[1]
        fault = code_fault(source, entry, entry.code[0], namespace(source, n_worlds))
        assert (fault is None) if text == SMALL else (wanted in fault)


def test_a_worlds_axis_that_is_not_there_is_found():
    source = Source(
        SMALL.replace(
            "RidgePosterior(3, shape=() if W is None else (W,))", "RidgePosterior(3)"
        )
    )
    fault = code_fault(source, source.entries[1], "posterior.A", namespace(source, 2))
    assert fault == "posterior.A: shape (3, 3), not (2, 3, 3)"


# --- What docstrings say ------------------------------------------------------------------------------

AXIS = r"(?:\.\.\.|\d+|[A-Za-z_]\w*(?: ?[+·*] ?\w+)?)"
# Axes in parentheses, as in "(..., d, d)"; after "of" stand fields, as in "sequence of (name, seq)".
SHAPE = re.compile(rf"(?<![\w`)\]])(?<!of )\(((?:{AXIS}, )*{AXIS},?)\)")


def docstrings(code):
    """Every docstring of a module or cell."""
    documented = ast.Module | ast.ClassDef | ast.FunctionDef
    nodes = [node for node in ast.walk(ast.parse(code)) if isinstance(node, documented)]
    return [text for node in nodes if (text := ast.get_docstring(node))]


def axes_in(text):
    """Names in the shapes of a docstring."""
    plain = re.sub(r":math:`[^`]*`|``[^`]*``|^ *>>> .*$", "", text, flags=re.MULTILINE)
    shapes = [inside for inside in SHAPE.findall(plain) if "," in inside]
    names = {name for inside in shapes for name in re.findall(r"[A-Za-z_]\w*", inside)}
    return names - vars(builtins).keys()


def axis_names(source):
    """What a shape in a docstring may be made of."""
    names = {name for entry in source.dimensions.values() for name in entry.names}
    return names | set(source.axes)


def unknown_axes(source, text):
    """Those of them that the source does not know."""
    return axes_in(text) - axis_names(source)


def unknown_symbols(source, text):
    """Symbols in the mathematics of a docstring that the source does not know."""
    formulas = re.findall(r":math:`([^`]*)`", text)
    formulas += re.findall(r"\.\. math::(.*?)(?:\n\s*\n|\Z)", text, re.DOTALL)
    return {
        str(s) for formula in formulas for s in symbols(formula) if not source.knows(s)
    }


@pytest.mark.parametrize("path", MODULES, ids=NAMES)
def test_docstrings_use_axes_and_symbols_of_the_source(path):
    for text in docstrings(path.read_text()):
        assert unknown_axes(SOURCE, text) == set()
        assert unknown_symbols(SOURCE, text) == set()


def test_an_unknown_axis_or_symbol_of_a_docstring_is_found():
    source = Source(SMALL)
    assert unknown_axes(source, "x : ndarray, shape (d,) or (W, d)") == set()
    assert unknown_axes(source, "x : ndarray, shape (n_rows, d)") == {"n_rows"}
    assert unknown_axes(source, "Map rows (..., m, d + 1) to numbers.") == {"m"}
    assert unknown_symbols(source, r"As :math:`A \in A_i` says.") == set()
    assert unknown_symbols(source, r"As :math:`A^{-1} \hat b` says.") == {r"\hat{b}"}
    assert unknown_symbols(source, ".. math:: A\n    + B\n\nand :math:`d`") == {"B"}


def cell_docstrings(page):
    """Every docstring in the code cells of a chapter."""
    cells = [
        cell.source for cell in jupytext.read(page).cells if cell.cell_type == "code"
    ]
    return [
        text for cell in cells for text in docstrings(re.sub(r"(?m)^[%!].*$", "", cell))
    ]


@pytest.mark.parametrize("page", chapters(), ids=name_of)
def test_shapes_in_code_and_prose_of_a_chapter_use_axes_of_the_source(page):
    assert [
        axes for text in cell_docstrings(page) if (axes := unknown_axes(SOURCE, text))
    ] == []
    known = {str(single(axis)) for axis in [*SOURCE.dimensions, "W"]}
    for inside in re.findall(r"shapes? \$\(([^)]*)\)\$", page.read_text()):
        assert {str(symbol) for symbol in symbols(inside)} <= known | {r"\dots"}


def test_every_axis_of_the_source_is_used_in_a_docstring():
    texts = [text for path in MODULES for text in docstrings(path.read_text())]
    texts += [text for page in chapters() for text in cell_docstrings(page)]
    names = {name for text in texts for name in axes_in(text)}
    assert axis_names(SOURCE) - names == set()


# --- What pages say -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("tex", "wanted"),
    [
        (r"\hat\theta_a = A^{-1} b", [r"\hat{\theta}_a", "a", "A", "b"]),
        (
            r"x_{t,\, a_t}^\top\theta",
            ["x_{t,a_t}", "t", "a_t", "t", r"\top", r"\theta"],
        ),
        (r"\bar x", [r"\bar{x}"]),
        (r"\mathbb R^{K \times d}", [r"\mathbb{R}", "K", r"\times", "d"]),
        (r"\pi^*(u) = \sigma'(f)", [r"\pi^*", "u", r"\sigma", "f"]),
        (r"n_\text{eff} \le \frac pq", [r"n_{\text{eff}}", r"\le", "p", "q"]),
        (r"\mathrm{KL}(p \,\|\, q)", [r"\mathrm{KL}", "p", "q"]),
        (r"1 && \text{($\mu$ cancels)}", [r"\mu"]),
        (r"\begin{aligned} L &= 2 \\ \end{aligned}", ["L"]),
        (r"\lVert v \rVert_A", ["v", "A"]),
        (r"\operatorname{relu}(10{,}000)", [r"\operatorname{relu}"]),
        (r"(S\theta)_k", ["S", r"\theta", "k"]),
        (r"x^", ["x"]),
    ],
)
def test_symbols_are_read_from_tex(tex, wanted):
    assert [str(symbol) for symbol in symbols(tex)] == wanted


def test_one_symbol_is_told_from_a_formula():
    assert str(single(r"\hat\theta_a")) == r"\hat{\theta}_a"
    assert single("A^{-1} b") is None
    assert single("") is None


@pytest.mark.parametrize(
    ("tex", "wanted"),
    [
        (r"D \in \mathbb{R}^{m \times d}", [("D", ["m", "d"])]),
        (r"x_{t,a} \in \mathbb R^d", [("x_{t,a}", ["d"])]),
        (r"z = \phi(x) \in \mathbb{R}^{d_\text{emb}}", [("z", [r"d_\text{emb}"])]),
        (
            r"A = I \in \mathbb{R}^{d \times d}, \qquad b \in \mathbb{R}^d",
            [("A", ["d", "d"]), ("b", ["d"])],
        ),
        (r"D^\top c \in \mathbb{R}^d", []),
        (r"\gamma \in (0, 1]", []),
    ],
)
def test_shapes_are_read_from_tex(tex, wanted):
    assert [(str(symbol), axes) for symbol, axes in stated_shapes(tex)] == wanted


def use(page, tex, line, *ids):
    return Use(page, tex, line, [page, *(f"{page}#{one}" for one in ids)])


PROSE = [use("one", r"A \in d_i", 1, "inner")]


def test_what_the_source_says_of_a_page_is_no_fault():
    assert list(faults(Source(SMALL), PROSE)) == []


def test_an_unknown_symbol_is_a_fault_where_it_stands():
    uses = [*PROSE, use("one", r"\hat A + 1", 7), use("other", "B", 8)]
    assert list(faults(Source(SMALL), uses)) == [
        Fault(r"\hat{A} has no meaning in $\hat A + 1$", "one", 7),
        Fault("B has no meaning in $B$", "other", 8),
    ]


def test_a_symbol_is_a_fault_outside_its_scope_but_not_on_pages_of_which_the_source_is_silent():
    source = source_with("symbol: c, means: cost, at: inner")
    inner = use("one", "c", 1, "inner")
    assert list(faults(source, [*PROSE, inner, use("other", "c", 2)])) == []
    (fault,) = faults(source, [*PROSE, inner, use("one", "c", 3)])
    assert fault == Fault("c has no meaning in $c$", "one", 3)


def test_an_entry_or_a_place_that_is_not_used_is_a_fault():
    assert list(faults(Source(SMALL), [use("one", "A", 1)])) == [
        Fault("d in the entry of d is not used"),
        Fault("one in the entry of d is not used"),
    ]
    text = SMALL.replace("means: precision", "means: precision, also: two")
    assert list(faults(Source(text), PROSE)) == [
        Fault("two in the entry of A is not used")
    ]


def test_two_meanings_in_one_place_are_a_fault():
    (fault,) = faults(source_with("symbol: A, means: area"), PROSE)
    assert fault == Fault(r"A has two meanings in $A \in d_i$", "one", 1)


def test_an_inner_place_overrules_an_outer_and_a_marked_symbol_the_bare_one():
    source = source_with(
        "symbol: A, means: area, at: inner}\n  - {symbol: A_0, means: ark"
    )

    def meaning(tex, *ids):
        places = ["one", *(f"one#{one}" for one in ids)]
        return [entry.means for entry, *_ in source.find(single(tex), places)]

    assert meaning("A") == ["precision"]
    assert meaning("A", "inner") == meaning("A", "inner", "deeper") == ["area"]
    assert meaning("A_t") == ["precision"]
    assert meaning("A_0") == meaning("A_0", "inner") == ["ark"]
    assert meaning(r"A_\text{new}") == []


def test_another_shape_than_the_source_states_is_a_fault():
    (fault,) = faults(
        Source(SMALL), [*PROSE, use("one", r"A = A A \in \mathbb{R}^d", 5)]
    )
    assert fault == Fault("A has shape ['d', 'd'], not ['d']", "one", 5)


def test_an_entry_is_introduced_where_its_place_uses_it_first():
    uses = [
        use("two", "A", 1, "early"),
        use("one", "A", 1, "untitled"),
        use("one", "A", 1, "first", "untitled"),
        use("one", "A", 1, "second"),
    ]
    source, titles = Source(SMALL), {"two#early", "one#first", "one#second"}
    assert introductions(source, uses, titles) == {source.entries[1]: "one#first"}


@pytest.mark.parametrize(
    ("old", "new", "error", "message"),
    [
        (
            "shape: [d, d]",
            "shape: [d, q]",
            ValueError,
            "numbers and dimensions: got 'q'",
        ),
        (
            "symbol: A,",
            "symbol: A b,",
            ValueError,
            "symbol must be a single one: got 'A b'",
        ),
        ("means: precision,", "sense: precision,", TypeError, "sense"),
    ],
)
def test_a_source_that_makes_no_sense_is_refused(old, new, error, message):
    with pytest.raises(error, match=message):
        Source(SMALL.replace(old, new))


# --- The build ----------------------------------------------------------------------------------------


@pytest.fixture
def book(tmp_path):
    """A book of one chapter and its notation, and how to build it: returns warnings and the page."""
    (tmp_path / "conf.py").write_text(
        "extensions = ['myst_parser', 'sphinx_exercise', 'notation']\nmyst_enable_extensions = ['dollarmath']\n"
    )
    (tmp_path / "index.md").write_text("# Book\n\n```{toctree}\none\nnotation\n```\n")
    (tmp_path / "one.md").write_text(
        "# Rows\n\n## Their sum\n\n$$A \\in \\mathbb{R}^{d \\times d}$$\n"
    )
    (tmp_path / "notation.md").write_text("# Notation\n\n```{notation}\n```\n")
    (tmp_path / "notation.yml").write_text(SMALL)

    def build():
        app = SphinxTestApp("html", srcdir=tmp_path)
        try:
            app.build()
            return app.warning.getvalue(), (app.outdir / "notation.html").read_text()
        finally:
            app.cleanup()

    return build


def test_the_page_leads_from_a_symbol_to_where_it_is_introduced(book):
    warnings, page = book()
    assert warnings == ""
    html = BeautifulSoup(page, "html.parser")
    assert html.h1.text.startswith("Notation")
    assert html.select_one("h1 ~ section > h2").text.startswith("First")
    html = html.find("table", class_="notation")
    assert not html.find("col")  # styles say how wide columns are
    assert [cell.text.strip() for cell in html.thead.find_all("th")] == [
        "Symbol",
        "Meaning",
        "In code",
    ]
    assert [row.td.text.strip() for row in html.tbody.find_all("tr")] == [
        r"\(d\)",
        r"\(A\)",
    ]
    assert html.find_all("a")[1]["href"] == "one.html#their-sum"
    assert [code.text for code in html.find_all("code")] == [
        "posterior.n_features",
        "posterior.A",
    ]
    assert r"precision; shape \(d \times d\)" in html.text


def test_a_letter_of_an_exercise_holds_in_its_solution_and_not_outside(book, tmp_path):
    chapter = tmp_path / "one.md"
    with (tmp_path / "notation.yml").open("a") as source:
        source.write("  passages:\n  - {symbol: q, means: quota, at: ex-quota}\n")
    exercise = "```{exercise} Quotas\n:label: ex-quota\nWhat for?\n```\n\n"
    solution = "```{solution} ex-quota\n:label: sol-quota\nFor $q$.\n```\n"
    chapter.write_text(f"{chapter.read_text()}\n{exercise}{solution}")
    warnings, page = book()
    line = BeautifulSoup(page, "html.parser").find("p", class_="passages")
    assert warnings == ""
    assert (line.a["href"], line.a.text) == ("one.html#ex-quota", "Quotas")
    assert line.text == r"In single passages: Quotas \(q\) quota."
    chapter.write_text(f"{chapter.read_text()}\nBut $q$?\n")
    assert "q has no meaning in $q$" in book()[0]


def test_a_chapter_with_an_unknown_symbol_warns_with_its_line(book, tmp_path):
    (tmp_path / "one.md").write_text("# Rows\n\n$A$ and $d$\n\nfrom $Q$\n")
    warnings, _ = book()
    assert "one.md:5: WARNING: notation.yml: Q has no meaning in $Q$" in warnings


def test_a_change_of_the_source_alone_is_checked_and_shown(book, tmp_path):
    book()
    source = tmp_path / "notation.yml"
    source.write_text(
        source.read_text().replace("precision", "exactness")
        + "  - {symbol: Q, means: q}"
    )
    warnings, page = book()
    assert "Q in the entry of Q is not used" in warnings
    assert "exactness" in page
