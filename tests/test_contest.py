"""Contests are fair, and promises are judged by what was measured."""

import json

import pytest

from benchmarks import contest
from benchmarks.contest import FASTEST_PEER, Absent, Contestant, Promise, Row, measure


class Clock:
    """Time that passes only when a contestant works."""

    def __init__(self):
        self.now = 0.0
        self.order = []

    def works(self, name, seconds, units=1):
        def run():
            self.order.append(name)
            self.now += seconds.pop(0) if isinstance(seconds, list) else seconds
            return units

        return run


@pytest.fixture
def clock(monkeypatch):
    clock = Clock()
    monkeypatch.setattr(contest.time, "perf_counter", lambda: clock.now)
    return clock


def row(contestants, **options):
    return Row("a row", "a unit", contestants, {"K": 3}, **options)


def test_contestants_run_in_turn_by_changing_order_and_the_first_round_does_not_count(
    clock,
):
    slow_start = [50.0] + 7 * [2.0]
    found = measure(
        row(
            {
                "zoolib": Contestant(clock.works("zoolib", slow_start), "zoolib"),
                "naive": Contestant(clock.works("naive", 6.0), "naive"),
            }
        ),
        rounds=7,
    )
    assert clock.order == ["zoolib", "naive", "naive", "zoolib"] * 4
    assert found["contestants"]["zoolib"]["rounds"] == [2.0] * 7
    assert found["contestants"]["naive"]["ratio"]["median"] == 3.0


def test_seconds_are_those_of_a_unit(clock):
    found = measure(
        row(
            {
                "zoolib": Contestant(clock.works("zoolib", 1.0, units=100), "zoolib"),
                "peer": Contestant(clock.works("peer", 1.0, units=4), "peer"),
            }
        ),
        rounds=6,
    )
    assert found["contestants"]["zoolib"]["seconds"] == pytest.approx(0.01)
    assert found["contestants"]["peer"]["ratio"]["median"] == pytest.approx(25)


def test_a_ratio_is_taken_within_its_round(clock):
    """The machine slows down in between: both get slower, their ratio stays."""
    speeds = [1.0, 1.0, 1.0, 5.0, 5.0, 9.0, 9.0]
    found = measure(
        row(
            {
                "zoolib": Contestant(clock.works("zoolib", list(speeds)), "zoolib"),
                "peer": Contestant(clock.works("p", [3 * s for s in speeds]), "peer"),
            }
        ),
        rounds=6,
    )
    ratio = found["contestants"]["peer"]["ratio"]
    assert ratio == {"median": 3.0, "low": 3.0, "high": 3.0}


def test_promises_are_held_against_what_was_found(clock):
    found = measure(
        row(
            {
                "zoolib": Contestant(clock.works("zoolib", 1.0), "zoolib"),
                "slow": Contestant(clock.works("slow", 40.0), "peer"),
                "fast": Contestant(clock.works("fast", 12.0), "peer"),
                "gone": Absent("does not build"),
                "limit: memory": Contestant(clock.works("memory", 0.5), "limit"),
            },
            promises=(
                Promise(FASTEST_PEER, at_least=15),
                Promise("limit: memory", at_least=0.5),
                Promise("p99_ms", below=6),
            ),
            figures={"p99_ms": 6.0},
        ),
        rounds=6,
    )
    assert [promise["found"] for promise in found["promises"]] == [12, 0.5, 6]
    assert [promise["kept"] for promise in found["promises"]] == [False, True, False]
    assert found["contestants"]["gone"] == {"kind": "peer", "absent": "does not build"}
    assert json.loads(json.dumps(found, allow_nan=False)) == found


def test_a_promise_about_peers_is_open_where_none_ran(clock):
    found = measure(
        row(
            {
                "zoolib": Contestant(clock.works("zoolib", 1.0), "zoolib"),
                "gone": Absent("does not build"),
            },
            promises=(Promise(FASTEST_PEER, at_least=15),),
        ),
        rounds=6,
    )
    assert found["promises"][0]["kept"] is None
