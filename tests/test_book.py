import json
import subprocess
import sys
from types import MappingProxyType

import nbformat
import numpy as np
import pytest
from nbclient import NotebookClient

from zoolib import Estimate, ZooplusSimulator, claim, listing, publish, random_value

ESTIMATE = Estimate(0.5, 0.4, 0.6, 20)


def run(*sources):
    notebook = nbformat.v4.new_notebook(
        cells=[nbformat.v4.new_code_cell(source) for source in sources]
    )
    return NotebookClient(notebook, kernel_name="python3").execute()


@pytest.mark.parametrize(
    ("value", "bound"),
    [
        (ESTIMATE, {"above": 0.4}),  # the mean is above, the interval touches the bound
        (ESTIMATE, {"above": 0.45}),
        (ESTIMATE, {"below": 0.6}),
        (ESTIMATE, {"above": 0.3, "below": 0.55}),
        (0.5, {"above": 0.5}),
        (0.5, {"below": 0.5}),
        (0.5, {"equals": 0.5000001}),
        (float("nan"), {"above": 0}),
        (float("nan"), {"below": 1}),
        (float("nan"), {"equals": 1}),
        (Estimate(0.5, float("nan"), 0.6, 2), {"above": 0}),
    ],
)
def test_a_claim_that_does_not_hold_raises(value, bound):
    with pytest.raises(
        AssertionError,
        match=r"the claim does not hold: It is so\. Found k: .*; wanted ",
    ):
        claim("k", "It is so.", value, **bound)


@pytest.mark.parametrize(
    ("value", "bound", "printed"),
    [
        (
            ESTIMATE,
            {"above": 0.39, "below": 0.61},
            "claim k: 0.50 [0.40, 0.60], 2 worlds, must be above 0.39 and below 0.61\n",
        ),
        (7, {"equals": 7}, "claim k: 7.00, 2 worlds, must be equal to 7.00\n"),
    ],
)
def test_a_claim_that_holds_is_printed(value, bound, printed, capsys):
    claim("k", "It is so.", value, fmt=".2f", seeds=[0, 1], **bound)
    assert capsys.readouterr().out == printed


def test_a_claim_names_its_only_world_or_none(capsys):
    claim("k", "It is so.", 1, equals=1, fmt="d", seeds=[42])
    claim("k", "It is so.", 1, equals=1, fmt="d")
    assert (
        capsys.readouterr().out
        == "claim k: 1, seed 42, must be equal to 1\nclaim k: 1, must be equal to 1\n"
    )


def test_what_rounds_to_zero_has_no_sign(capsys):
    claim("k", "It is so.", Estimate(-0.001, -0.002, 0.001, 9), below=0.1, fmt=".1%")
    assert (
        capsys.readouterr().out == "claim k: -0.1% [-0.2%, 0.1%], must be below 10.0%\n"
    )
    claim("k", "It is so.", -0.0001, below=0.1, fmt=".1%")
    assert capsys.readouterr().out == "claim k: 0.0%, must be below 10.0%\n"


@pytest.mark.parametrize(
    ("value", "bound", "fmt", "printed"),
    [
        (Estimate(0.94, 0.52, 1.57, 9), {"above": 0.5}, ".1f", "0.94 [0.52, 1.57]"),
        (Estimate(0.986, 0.976, 0.996, 9), {"below": 1}, ".0%", "98.6% [97.6%, 99.6%]"),
        (0.0, {"below": 1e-6}, ".1f", "0.000000"),
        (3.04, {"above": 3}, ".1f", "3.04"),
        (3, {"above": 2}, "d", "3"),
    ],
)
def test_a_number_never_reads_like_its_bound(value, bound, fmt, printed, capsys):
    claim("k", "It is so.", value, fmt=fmt, **bound)
    said = capsys.readouterr().out
    assert said.startswith(f"claim k: {printed}, must be ")


def test_a_readers_claim_that_does_not_hold_is_printed(capsys, monkeypatch):
    monkeypatch.setenv("ZOOLIB_LENIENT", "1")
    claim("k", "It is so.", 3, above=3, fmt="d")
    wanted = "claim k: 3, must be above 3: it does not hold with these settings\n"
    assert capsys.readouterr().out == wanted
    with pytest.raises(ValueError, match="needs a bound"):
        claim("k", "It is so.", 3)


def test_a_claim_without_a_bound_is_refused():
    with pytest.raises(ValueError, match="needs a bound"):
        claim("k", "It is so.", 0.5)


def test_a_claim_leaves_its_record_in_the_notebook():
    notebook = run(
        "from zoolib import Estimate, claim",
        "claim('k', 'It is so.', Estimate(.5, .4, .6, 3), above=.1, fmt='.1%', seeds=range(3))",
    )
    printed, record = notebook.cells[1].outputs
    assert (
        printed["text"]
        == "claim k: 50.0% [40.0%, 60.0%], 3 worlds, must be above 10.0%\n"
    )
    assert record["metadata"]["scrapbook"]["name"] == "claim:k"
    text = record["data"]["application/papermill.record/text/plain"]
    assert json.loads(text.strip("'")) == {
        "sentence": "It is so.",
        "holds": True,
        "value": "50.0%",
        "interval": "40.0% to 60.0%",
        "held": "above 10.0%",
        "seeds": [0, 1, 2],
        "range": [0.4, 0.5, 0.6],
        "above": 0.1,
        "below": None,
    }


def test_an_interval_without_an_end_says_so():
    notebook = run(
        "from zoolib import Estimate, claim",
        "claim('k', 'It is late.', Estimate(5.0, 3.0, float('inf'), 6), above=1, fmt='.0f')",
    )
    record = notebook.cells[1].outputs[1]["data"][
        "application/papermill.record/text/plain"
    ]
    found = json.loads(record.strip("'").encode().decode("unicode_escape"))
    assert found["interval"] == "3 to ∞"
    assert found["range"] == [3.0, 5.0, None]


def test_claims_are_checked_where_the_books_tooling_is_missing():
    notebook = run(
        "import sys; sys.modules['myst_nb'] = None",
        "from zoolib import claim; claim('k', 'It is so.', 1, equals=1, fmt='d')",
    )
    assert [output["output_type"] for output in notebook.cells[1].outputs] == ["stream"]


def test_published_data_reach_the_notebook_as_plain_json_of_six_digits():
    notebook = run(
        "import numpy as np; from zoolib import publish",
        "publish('f', {'a': np.arange(4).reshape(2, 2), 'b': (1 / 3, np.float32(2)), 'c': None,"
        " 'd': {'e': [True, 'x', 12345678]}, 'f': 123456.789, 'g': -np.pi * 1e-9})",
    )
    (record,) = notebook.cells[1].outputs  # and nothing is printed
    assert record["metadata"]["scrapbook"]["name"] == "figure:f"
    text = record["data"]["application/papermill.record/text/plain"]
    assert json.loads(text.strip("'")) == {
        "a": [[0, 1], [2, 3]],
        "b": [0.333333, 2.0],
        "c": None,
        "d": {"e": [True, "x", 12345678]},
        "f": 123457.0,
        "g": -3.14159e-9,
    }


def test_outside_a_notebook_data_are_checked_and_nothing_happens(capsys):
    data = {"a": np.ones(3), "b": [1], "c": MappingProxyType({"d": 1})}
    assert publish("f", MappingProxyType(data)) is None
    assert capsys.readouterr() == ("", "")
    assert data["b"] == [1]
    assert isinstance(data["a"], np.ndarray)


def test_data_are_published_where_the_books_tooling_is_missing():
    notebook = run(
        "import sys; sys.modules['myst_nb'] = None",
        "from zoolib import publish; publish('f', {'a': 1})",
    )
    assert notebook.cells[1].outputs == []


@pytest.mark.parametrize(
    ("name", "data", "error", "said"),
    [
        ("", {}, ValueError, r"name must be a string that is not empty: got ''"),
        (3, {}, ValueError, r"name must be a string that is not empty: got 3"),
        ("f", [1], TypeError, r"data must be a mapping: got list"),
        (
            "f",
            {"a": [1, float("nan")]},
            ValueError,
            "data must hold finite .*: Out of range",
        ),
        (
            "f",
            {"a": np.array([np.inf])},
            ValueError,
            "data must hold finite .*: Out of range",
        ),
        ("f", {"a": {1, 2}}, TypeError, "data must hold .*: got set"),
        ("f", {"a": np.array([1j])}, TypeError, "data must hold .*: got complex"),
    ],
)
def test_data_that_are_not_plain_are_refused(name, data, error, said):
    with pytest.raises(error, match=said):
        publish(name, data)


def test_listings_are_the_source_without_docstrings():
    text = listing(random_value, ZooplusSimulator.random_user).data
    assert text.startswith(
        "```python\ndef random_value(world: ZooplusSimulator) -> float:\n    return "
    )
    assert (
        "def random_user(self) -> int:\n    return int(self.rng.integers(self.n_users))"
        in text
    )
    assert '"""' not in text
    assert text.endswith("\n```")


def test_listings_keep_comments():
    assert "# Comparisons with NaN" in listing(claim).data


BLOCK = """
import sys

class Block:
    def find_spec(self, name, path=None, target=None):
        if name.partition(".")[0] in {tooling!r}:
            raise ModuleNotFoundError(name)

sys.meta_path.insert(0, Block())
"""


def test_the_library_needs_none_of_the_books_tooling():
    tooling = {
        "IPython",
        "ipykernel",
        "jupytext",
        "myst_nb",
        "nbformat",
        "sphinx",
        "jupyter_book",
        "docutils",
    }
    code = f"""{BLOCK.format(tooling=tooling)}
import zoolib
from zoolib import plots; plots.use_style()
zoolib.claim("k", "It is so.", zoolib.entropy_floor(zoolib.ZooplusSimulator()), above=0.3)
"""
    subprocess.run([sys.executable, "-c", code], check=True)
