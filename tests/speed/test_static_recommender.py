"""Chapter 1's work beside its plain forms."""

from benchmarks.static_recommender import (
    sampling_ratio,
    training_ratio,
)


def test_whole_arrays_beat_a_loop_of_single_draws():
    assert sampling_ratio(repeats=5) >= 50


def test_whole_tensors_beat_a_loader_of_single_rows():
    ratio, ours, theirs = training_ratio(repeats=3)
    assert ratio >= 4
    assert ours <= 0.42
    assert abs(ours - theirs) < 0.01
