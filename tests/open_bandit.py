"""Make the book's excerpt of the Open Bandit data, and record what other people's estimators say of it.

Run as ``python -m tests.open_bandit`` with the packages of the book and, installed by
``pip install --no-deps obp==0.4.1 mypy_extensions``, the Open Bandit Pipeline, whose wheel holds the data.
It writes both files of `FOLDER` anew. `test_real_clicks.py` compares the library with the second.
"""

from __future__ import annotations

import json
import lzma
from pathlib import Path

import numpy as np
import pandas as pd

from zoolib import RECORDS

FOLDER = RECORDS.with_name("data")
DATA, VALUES = FOLDER / "open-bandit.csv.xz", FOLDER / "open-bandit-obp.json"
ITEMS = {"all": 80, "men": 34, "women": 46}
POLICIES = "random", "bts"
# The logged propensities are shares of 200,000 draws. What lies below one draw is no probability.
LEAST = 1 / 200_000
# Prior standard deviation of an item's click rate, in those of the noise, for the model of the rewards.
SPREAD = 0.03


def read(source: Path) -> pd.DataFrame:
    """Read the six logs of the package, and keep the figures: no hashed features, no row numbers."""
    logs = []
    for campaign in ITEMS:
        for policy in POLICIES:
            log = pd.read_csv(
                source / policy / campaign / f"{campaign}.csv",
                index_col=0,
                parse_dates=["timestamp"],
            )
            assert log["timestamp"].is_monotonic_increasing
            since = log["timestamp"] - pd.Timestamp("2019-11-24", tz="UTC")
            log = log.assign(
                campaign=campaign, policy=policy, hour=since // pd.Timedelta("1h")
            )
            logs.append(log)
    names = {"item_id": "item", "propensity_score": "propensity"}
    columns = ["campaign", "policy", "hour", "position", "item", "propensity", "click"]
    return pd.concat(logs, ignore_index=True).rename(columns=names)[columns]


def write(logs: pd.DataFrame) -> None:
    """Write the logs, the same bytes each time: a compressed file with no date in it."""
    text = logs.to_csv(index=False, lineterminator="\n")
    DATA.write_bytes(lzma.compress(text.encode(), preset=9 | lzma.PRESET_EXTREME))


def shares(log: pd.DataFrame, n_items: int) -> np.ndarray:
    """Return how often each item was shown at each position, shape (3, n_items), rows summing to 1."""
    shown = np.zeros((3, n_items))
    np.add.at(shown, (log["position"] - 1, log["item"]), 1)
    return shown / shown.sum(axis=1, keepdims=True)


def ridge(log: pd.DataFrame, n_items: int) -> np.ndarray:
    """Predict the reward of each item for each row by ridge models that never saw it, shape (n, n_items).

    By normal equations for the plain matrix of features: nothing here is the library's.
    """
    features = np.hstack([np.ones((n_items, 1)), SPREAD * np.eye(n_items)])
    shown, clicks = features[log["item"]], log["click"].to_numpy()
    fold, predicted = np.arange(len(log)) % 5, np.empty((len(log), n_items))
    for k in range(5):
        x, y = shown[fold != k], clicks[fold != k]
        theta = np.linalg.solve(x.T @ x + np.eye(n_items + 1), x.T @ y)
        predicted[fold == k] = features @ theta
    return predicted


def estimates(log: pd.DataFrame, target: np.ndarray) -> dict[str, float]:
    """Judge a target, shape (3, n_items), from a log by the estimators of the Open Bandit Pipeline."""
    from obp import ope

    position = log["position"].to_numpy() - 1
    n_items = target.shape[1]
    known = {
        "reward": log["click"].to_numpy(),
        "action": log["item"].to_numpy(),
        "pscore": log["propensity"].to_numpy(),
        "position": position,
        "action_dist": np.broadcast_to(target.T, (len(log), n_items, 3)).copy(),
        "estimated_rewards_by_reg_model": np.repeat(
            ridge(log, n_items)[:, :, None], 3, axis=2
        ),
    }
    found = {
        "ips": ope.InverseProbabilityWeighting(),
        "snips": ope.SelfNormalizedInverseProbabilityWeighting(),
        "direct_method": ope.DirectMethod(),
        "doubly_robust": ope.DoublyRobust(),
    }
    return {
        name: float(one.estimate_policy_value(**known)) for name, one in found.items()
    }


def start(campaign: str) -> np.ndarray:
    """Return the package's table of the Thompson policy at the start of the week, shape (3, n_items)."""
    from obp.policy import BernoulliTS

    policy = BernoulliTS(
        n_actions=ITEMS[campaign],
        len_list=3,
        is_zozotown_prior=True,
        campaign=campaign,
        random_state=12345,
    )
    return policy.compute_batch_action_dist(n_rounds=1, n_sim=100_000)[0].T


def record(logs: pd.DataFrame) -> dict:
    """Collect what the Open Bandit Pipeline says, by campaign and logging policy."""
    import obp

    made = (
        f"Open Bandit Pipeline (obp {obp.__version__}, numpy {np.__version__}) by "
        "tests/open_bandit.py. values: estimates of the other policy's click rate from the log of the "
        f"policy named, rows of propensity {LEAST} or more; of bts the target is its shares by position "
        "and item, of random it is uniform. start: BernoulliTS with is_zozotown_prior and random_state "
        "12345, compute_batch_action_dist(n_sim=100000), by position and item"
    )
    found = {"made": made, "values": {}, "start": {}}
    kept = logs[logs["propensity"] >= LEAST].groupby(["campaign", "policy"])
    for campaign, n_items in ITEMS.items():
        log = {policy: kept.get_group((campaign, policy)) for policy in POLICIES}
        target = {
            "random": shares(log["bts"], n_items),
            "bts": np.full((3, n_items), 1 / n_items),
        }
        found["values"][campaign] = {p: estimates(log[p], target[p]) for p in POLICIES}
        found["start"][campaign] = start(campaign).tolist()
    return found


if __name__ == "__main__":
    import obp

    FOLDER.mkdir(exist_ok=True)
    write(read(Path(obp.__file__).parent / "dataset/obd"))
    VALUES.write_text(json.dumps(record(pd.read_csv(DATA))) + "\n")
