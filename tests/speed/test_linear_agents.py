"""Linear agents beside their plain form, peers and the memory."""

import pytest

from benchmarks.linear_agents import (
    PEERS,
    D,
    K,
    NaiveLinUCB,
    difference_from_naive,
    lockstep_ratio,
    other_choices,
    ratio_to_naive,
    ratio_to_peers,
    share_of_bandwidth,
    visits,
    visits_of_shared_rows,
)


def test_inverses_that_are_kept_beat_inverses_at_every_decision():
    assert ratio_to_naive(repeats=15) >= 20


def test_naive_scores_and_choices_are_the_same():
    assert difference_from_naive(300) < 1e-9
    clear, different = other_choices(NaiveLinUCB(K, D), *visits(300))
    assert clear > 100
    assert different == 0


@pytest.mark.parametrize("peer", PEERS)
def test_peers_choose_the_same_and_take_longer(peer):
    pytest.importorskip(peer)
    clear, different = other_choices(PEERS[peer](K, D), *visits_of_shared_rows(300))
    assert clear > 100
    assert different == 0
    assert ratio_to_peers([peer])[peer] >= 10


def test_decisions_run_at_the_speed_of_memory():
    assert share_of_bandwidth() >= 0.6


def test_worlds_in_lockstep_beat_one_world_at_a_time():
    assert lockstep_ratio() >= 5
