from contextlib import suppress

import numpy as np
import pytest

from zoolib._support.generators import stream
from zoolib._support.state import from_bytes, to_bytes
from zoolib.models.replay import ReplayBuffer

COLUMNS = [((2,), np.float32), ((), np.float64)]


def filled(n, capacity=5, n_worlds=None, seed=0):
    """A buffer to which rows 0, 1, 2, … were added; world w holds them plus 100 w."""
    buffer = ReplayBuffer(capacity, COLUMNS, n_worlds, seed)
    for number in range(n):
        buffer.add(*row(number, n_worlds))
    return buffer


def row(number, n_worlds=None):
    number = float(number) if n_worlds is None else number + 100.0 * np.arange(n_worlds)
    return np.stack((number, -np.array(number)), axis=-1), np.array(number) / 1000


def content(buffer):
    return buffer.newest(buffer.capacity)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


@pytest.mark.parametrize("n_worlds", [None, 3])
@pytest.mark.parametrize("n", [0, 1, 5, 6, 10, 23])
def test_the_newest_rows_are_kept_and_the_oldest_make_room(n, n_worlds):
    buffer = filled(n, 5, n_worlds)
    assert len(buffer) == min(n, 5)
    for wanted in (1, 3, 5, 99):
        x, reward = buffer.newest(wanted)
        assert (x.dtype, reward.dtype) == (np.float32, np.float64)
        held = range(max(0, n - min(wanted, 5)), n)
        worlds = () if n_worlds is None else (n_worlds,)
        assert x.shape == (*worlds, len(held), 2)
        assert reward.shape == (*worlds, len(held))
        for place, number in enumerate(held):
            expected = row(number, n_worlds)
            assert np.array_equal(x[..., place, :], expected[0])
            assert np.array_equal(reward[..., place], expected[1])


@pytest.mark.parametrize("n_worlds", [None, 2])
@pytest.mark.parametrize("n", [0, 4, 5, 12])
def test_what_was_added_can_be_taken_back(n, n_worlds):
    buffer, undisturbed = filled(n, 5, n_worlds), filled(n, 5, n_worlds)
    with suppress(KeyboardInterrupt), buffer._unchanged_on_failure():
        for number in (77, 78):
            with buffer._unchanged_on_failure():  # one inside the other
                buffer.add(*row(number, n_worlds))
        assert not same(content(buffer), content(undisturbed))
        buffer.sample(3)
        raise KeyboardInterrupt
    assert len(buffer) == len(undisturbed)
    for number in range(50, 57):  # and it goes on as if nothing had happened
        assert same(content(buffer), content(undisturbed))
        buffer.add(*row(number, n_worlds))
        undisturbed.add(*row(number, n_worlds))
    assert same(buffer.sample(4), undisturbed.sample(4))


@pytest.mark.parametrize("n_worlds", [None, 3])
def test_worlds_add_rows_at_their_own_pace(n_worlds):
    worlds = () if n_worlds is None else (n_worlds,)
    buffer = ReplayBuffer(5, COLUMNS, n_worlds)
    rng, kept = np.random.default_rng(2), [[] for _ in range(n_worlds or 1)]
    for number in range(13):
        played = np.asarray(rng.random(worlds) < 0.7)
        values = np.full((*worlds, 2), number), np.full(worlds, number)
        with suppress(KeyboardInterrupt), buffer._unchanged_on_failure():
            buffer.add(*values, played=played)
            raise KeyboardInterrupt
        buffer.add(*values, played=played)
        for w in np.flatnonzero(played):
            kept[w].append(number)
        n = len(buffer)
        assert n == min(5, *map(len, kept))
        found = buffer.newest(n)[1].reshape(len(kept), n)
        assert found.tolist() == [rows[len(rows) - n :] for rows in kept]


def test_a_sample_is_drawn_uniformly_with_replacement_from_what_is_held():
    buffer = filled(3, seed=4)
    draws = stream(4, "replay").integers(3, size=6)
    x, reward = buffer.sample(6)
    assert (x[:, 0] == draws).all()
    assert np.array_equal(reward, draws / 1000)
    with pytest.raises(ValueError, match="memory must hold rows to draw from"):
        filled(0).sample(1)
    full = filled(12, seed=4)
    x, _ = full.sample(5000)
    counts = np.bincount(x[:, 0].astype(int), minlength=12)
    assert counts[:7].sum() == 0
    assert (abs(counts[7:] - 1000) < 4 * np.sqrt(5000 * 0.2 * 0.8)).all()


@pytest.mark.parametrize("n", [2, 13])
def test_each_world_samples_as_if_alone(n):
    together = filled(n, 5, 3, seed=[4, 7, 4])
    alone = [filled(n, 5, seed=seed) for seed in (4, 7, 4)]
    for _ in range(3):
        x, _ = together.sample(8)
        for w, buffer in enumerate(alone):
            mine, _ = buffer.sample(8)
            assert np.array_equal(x[w], mine + np.array([100 * w, -100 * w]))
    assert not np.array_equal(x[0], x[1] - [100, -100])
    assert same(filled(5, 5, 2, 9).sample(20), filled(5, 5, 2, [9, 9]).sample(20))


@pytest.mark.parametrize("n_worlds", [None, 3])
def test_rows_drawn_at_once_are_those_drawn_one_batch_after_the_other(n_worlds):
    once, in_turn = filled(9, 7, n_worlds), filled(9, 7, n_worlds)
    x, _ = once.sample(15)
    batches = [in_turn.sample(n)[0] for n in (5, 3, 7)]
    assert np.array_equal(x, np.concatenate(batches, axis=-2))


def test_a_new_seed_brings_new_luck_and_leaves_the_rows():
    buffer, other = filled(5, seed=1), filled(5, seed=2)
    first = buffer.sample(20)
    buffer.reseed(2)
    assert same(content(buffer), content(other))
    again = buffer.sample(20)
    assert same(again, other.sample(20))
    assert not same(again, first)


@pytest.mark.parametrize("way", ["sample", "newest"])
@pytest.mark.parametrize("n_worlds", [None, 2])
def test_what_was_handed_over_or_out_may_be_changed_afterwards(n_worlds, way):
    buffer, undisturbed = filled(3, 3, n_worlds), filled(4, 3, n_worlds)
    x, reward = row(3, n_worlds)
    buffer.add(x, reward)
    x[:] = 0
    for array in getattr(buffer, way)(3):
        array[:] = 0
    assert same(content(buffer), content(undisturbed))


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"capacity": 0}, ValueError, "capacity"),
        ({"capacity": 2.0}, TypeError, "capacity"),
        ({"n_worlds": 0}, ValueError, "n_worlds"),
        ({"seed": -1}, ValueError, "seed"),
        ({"n_worlds": 3, "seed": [1, 2]}, ValueError, "seed.*3 worlds.*2"),
    ],
)
def test_arguments_are_checked(arguments, error, words):
    with pytest.raises(error, match=words):
        ReplayBuffer(**({"capacity": 5, "columns": COLUMNS} | arguments))


@pytest.mark.parametrize("n_worlds", [None, 3])
@pytest.mark.parametrize("n", [0, 3, 5, 13])
def test_a_restored_buffer_goes_on_as_the_one_it_was_made_from(n, n_worlds):
    buffer, other = filled(n, 5, n_worlds, 4), filled(0, 5, n_worlds, 9)
    if n:
        buffer.sample(3)
    state = buffer.state()
    other._restore(from_bytes(to_bytes(state)))
    for number in range(50, 57):
        for one in (buffer, other):
            one.add(*row(number, n_worlds))
        assert same(content(buffer), content(other))
        assert same(buffer.sample(4), other.sample(4))
    assert to_bytes(buffer.state()) == to_bytes(other.state()) != to_bytes(state)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"added": -1}, "added"),
        ({"added": 2}, "held must have shape"),
        ({"held": [1]}, "held"),
        ({"generators": []}, "generators must be a list of 1 entries"),
    ],
)
def test_a_state_of_another_buffer_is_refused(change, words):
    state = filled(3).state()
    with pytest.raises(ValueError, match=words):
        filled(0)._restore(state | change)
