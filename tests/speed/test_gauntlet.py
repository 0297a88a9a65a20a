"""The gauntlet of four agents beside the plain loop."""

from benchmarks.contest import measure
from benchmarks.gauntlet import PlainLoop, difference, rows
from zoolib import MLPRecommender


def test_scores_are_those_of_the_plain_loop():
    assert difference() < 1e-5


def test_features_looked_up_are_those_encoded():
    model = MLPRecommender(1000, 50, seed=[0])
    loops = PlainLoop(model), PlainLoop(model, encoded_once=True)
    for loop in loops:
        loop.play(60)
    assert loops[0].arms == loops[1].arms
    assert loops[0].clicks == loops[1].clicks
    assert len(set(loops[0].arms["neural-replay"])) > 2


def test_the_gauntlet_keeps_its_promise():
    (row,) = rows(whole=False)
    broken = [one for one in measure(row, 7)["promises"] if not one["kept"]]
    assert not broken
