"""Chapter 1's work beside its plain forms."""

import pytest

from benchmarks.contest import measure
from benchmarks.static_recommender import sampling_row, training_row


@pytest.mark.parametrize("make_row", [sampling_row, training_row])
def test_whole_arrays_keep_what_they_promise(make_row):
    broken = [one for one in measure(make_row(), 7)["promises"] if not one["kept"]]
    assert not broken
