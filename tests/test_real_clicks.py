"""The real clicks of the book: what the file holds, and other people's estimates of it."""

import json

import numpy as np
import pandas as pd
import pytest

from tests.open_bandit import (
    DATA,
    FOLDER,
    ITEMS,
    LEAST,
    POLICIES,
    SPREAD,
    VALUES,
    shares,
)
from zoolib import offpolicy as op


@pytest.fixture(scope="module")
def logs():
    return pd.read_csv(DATA)


def test_the_excerpt_holds_six_logs_of_the_published_size(logs):
    rows = logs.groupby(["campaign", "policy"])
    assert rows.size().to_dict() == {(c, p): 10_000 for c in ITEMS for p in POLICIES}
    assert rows["click"].sum().tolist() == [42, 38, 69, 46, 46, 46]
    assert (rows["item"].nunique() == [80, 80, 34, 34, 46, 46]).all()
    assert rows["hour"].apply(lambda hour: hour.is_monotonic_increasing).all()
    assert (logs["hour"].min(), logs["hour"].max()) == (0, 167)
    assert sorted(logs["position"].unique()) == [1, 2, 3]
    assert set(logs["click"]) == {0, 1}


def test_the_uniform_policy_is_uniform_in_the_excerpt(logs):
    uniform = logs[logs["policy"] == "random"]
    assert (uniform["propensity"] == 1 / uniform["campaign"].map(ITEMS)).all()


def test_source_terms_and_changes_stand_beside_the_data():
    said = (FOLDER / "README.md").read_text()
    words = "Saito", "obp", "Apache License 2.0", "What was changed", "open_bandit"
    assert all(word in said for word in words)
    licence = next(FOLDER.glob("LICENSE*")).read_text()
    assert "Apache License" in licence
    assert "ZOZO" in licence
    assert sum(file.stat().st_size for file in FOLDER.iterdir()) < 250_000


def ours(rows, n_items, table):
    log = op.Log(rows["item"], rows["click"], rows["propensity"], "bandit", n_items)
    target = table[rows["position"] - 1]
    items = np.hstack([np.ones((n_items, 1)), SPREAD * np.eye(n_items)])
    predicted = op.cross_fit(log, np.broadcast_to(items, (len(log), *items.shape)))
    return {
        "ips": op.ips(log, target).mean,
        "snips": op.snips(log, target).mean,
        "direct_method": op.direct_method(target, predicted).mean,
        "doubly_robust": op.doubly_robust(log, target, predicted).mean,
    }


@pytest.mark.no_cover
@pytest.mark.parametrize("campaign", ITEMS)
def test_estimates_from_real_clicks_are_those_of_the_open_bandit_pipeline(
    logs, campaign
):
    kept = logs[(logs["campaign"] == campaign) & (logs["propensity"] >= LEAST)]
    rows = {policy: kept[kept["policy"] == policy] for policy in POLICIES}
    n_items, values = ITEMS[campaign], json.loads(VALUES.read_text())["values"]
    uniform = np.full((3, n_items), 1 / n_items)
    tables = {"random": shares(rows["bts"], n_items), "bts": uniform}
    for policy, table in tables.items():
        theirs = values[campaign][policy]
        assert len(set(theirs.values())) == 4
        found = ours(rows[policy], n_items, table)
        assert found == pytest.approx(theirs, rel=1e-9)
