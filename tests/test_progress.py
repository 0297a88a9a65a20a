"""Progress bars: where they are written."""

import sys
from types import SimpleNamespace

import pytest

from zoolib import MLPRecommender, ZooplusSimulator, train_recommender
from zoolib._support import progress


@pytest.fixture(autouse=True)
def shown(monkeypatch):
    monkeypatch.delenv("TQDM_DISABLE", raising=False)


def test_a_notebook_does_not_show_a_bar_as_an_error(monkeypatch, capsys):
    monkeypatch.setattr(progress, "in_notebook", lambda: True)
    list(progress.progress_bar(True, iterable=range(2)))
    said = capsys.readouterr()
    assert "2/2" in said.out
    assert said.err == ""


def test_a_terminal_keeps_bars_out_of_its_output(capsys):
    list(progress.progress_bar(True, iterable=range(2)))
    said = capsys.readouterr()
    assert said.out == ""
    assert "2/2" in said.err


def test_without_validation_rows_a_bar_shows_no_loss_for_them(capsys):
    world = ZooplusSimulator(n_products=5, n_users=20, seed=1)
    model = MLPRecommender(20, 5, seed=0)
    rows = world.sample_interactions(50)
    train_recommender(model, rows, epochs=1, seed=0)
    said = capsys.readouterr().err
    assert "train=" in said
    assert "nan" not in said


@pytest.mark.parametrize(
    ("shell", "found"), [(lambda: object(), True), (lambda: None, False)]
)
def test_a_notebook_is_where_a_shell_of_ipython_runs(monkeypatch, shell, found):
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=shell))
    assert progress.in_notebook() is found


def test_without_ipython_there_is_no_notebook(monkeypatch):
    monkeypatch.delitem(sys.modules, "IPython", raising=False)
    assert progress.in_notebook() is False
