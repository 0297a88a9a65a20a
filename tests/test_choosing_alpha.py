"""The record behind the page on alpha holds what the page asks for."""

import json

import numpy as np

from zoolib import RECORDS

RECORD = json.loads((RECORDS / "choosing-alpha.json").read_text())


def test_the_record_holds_percentages_for_each_alpha_and_world():
    for key, run in RECORD.items():
        forgone = np.array(run["result"])
        worlds = {"ridge": (1, 20), "replay": (8, 20)}
        (shape,) = {of for name, of in worlds.items() if name in key} or {(9, 30)}
        assert forgone.shape[-2:] == shape, key
        assert forgone.min() > 0, key
        assert forgone.max() < 100, key
