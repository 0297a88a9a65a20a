import numpy as np
import pytest

from zoolib._support.generators import stream
from zoolib._support.state import from_bytes, to_bytes
from zoolib.models.replay import ReplayBuffer


def filled(n, capacity=5, n_worlds=None, **options):
    """A buffer to which rows 0, 1, 2, … were added; world w holds them plus 100 w."""
    buffer = ReplayBuffer(capacity, 2, n_worlds, **options)
    for number in range(n):
        buffer.add(*row(number, n_worlds))
    return buffer


def row(number, n_worlds=None):
    number = float(number) if n_worlds is None else number + 100.0 * np.arange(n_worlds)
    return np.stack((number, -np.array(number)), axis=-1), number / 1000


def content(buffer):
    return buffer.newest(buffer.capacity)


def same(one, other):
    return all(np.array_equal(a, b) for a, b in zip(one, other, strict=True))


def test_rows_and_rewards_come_back_the_newest_last():
    buffer = filled(3)
    x, reward = buffer.newest(2)
    assert x.tolist() == [[1, -1], [2, -2]]
    assert reward == pytest.approx([0.001, 0.002])


@pytest.mark.parametrize("n_worlds", [None, 3])
@pytest.mark.parametrize("n", [0, 1, 4, 5, 6, 9, 10, 23])
def test_the_newest_rows_are_kept_and_the_oldest_make_room(n, n_worlds):
    buffer = filled(n, 5, n_worlds)
    assert len(buffer) == min(n, 5)
    for wanted in (1, 3, 5, 99):
        x, reward = buffer.newest(wanted)
        held = range(max(0, n - min(wanted, 5)), n)
        worlds = () if n_worlds is None else (n_worlds,)
        assert x.shape == (*worlds, len(held), 2)
        assert reward.shape == (*worlds, len(held))
        for place, number in enumerate(held):
            expected = row(number, n_worlds)
            assert np.array_equal(x[..., place, :], expected[0])
            assert np.allclose(reward[..., place], expected[1])


@pytest.mark.parametrize("n_worlds", [None, 2])
@pytest.mark.parametrize("n", [0, 3, 4, 5, 12])
def test_what_was_added_can_be_taken_back(n, n_worlds):
    buffer, undisturbed = filled(n, 5, n_worlds), filled(n, 5, n_worlds)
    undo = buffer.add(*row(77, n_worlds))
    assert not same(content(buffer), content(undisturbed))
    undo()
    assert len(buffer) == len(undisturbed)
    assert same(content(buffer), content(undisturbed))
    for number in range(50, 57):  # and it goes on as if nothing had happened
        buffer.add(*row(number, n_worlds))
        undisturbed.add(*row(number, n_worlds))
        assert same(content(buffer), content(undisturbed))
    assert same(buffer.sample(4), undisturbed.sample(4))


def test_a_sample_is_drawn_uniformly_with_replacement_from_what_is_held():
    buffer = filled(3, seed=4)
    draws = stream(4, "replay").integers(3, size=6)
    x, reward = buffer.sample(6)
    assert (x[:, 0] == draws).all()
    assert (x[:, 1] == -draws).all()
    assert reward == pytest.approx(draws / 1000)
    full = filled(12, seed=4)
    x, _ = full.sample(5000)
    counts = np.bincount(x[:, 0].astype(int), minlength=12)
    assert counts[:7].sum() == 0
    assert (abs(counts[7:] - 1000) < 4 * np.sqrt(5000 * 0.2 * 0.8)).all()


@pytest.mark.parametrize("n", [2, 5, 13])
def test_each_world_samples_as_if_alone(n):
    together = filled(n, 5, 3, seed=[4, 7, 4])
    alone = [filled(n, 5, seed=seed) for seed in (4, 7, 4)]
    for _ in range(3):
        x, reward = together.sample(8)
        assert x.shape == (3, 8, 2)
        for w, buffer in enumerate(alone):
            mine, rewards = buffer.sample(8)
            assert np.array_equal(x[w], mine + np.array([100 * w, -100 * w]))
            assert np.allclose(reward[w], rewards + w / 10)
    assert not np.array_equal(x[0], x[1] - [100, -100])


@pytest.mark.parametrize("n_worlds", [None, 3])
def test_rows_drawn_at_once_are_those_drawn_one_batch_after_the_other(n_worlds):
    once, in_turn = filled(9, 7, n_worlds), filled(9, 7, n_worlds)
    x, reward = once.sample(15)
    batches = [in_turn.sample(n) for n in (5, 3, 7)]
    assert np.array_equal(x, np.concatenate([x for x, _ in batches], axis=-2))
    assert np.array_equal(reward, np.concatenate([r for _, r in batches], axis=-1))


def test_one_seed_serves_all_worlds():
    shared, own = filled(5, 5, 2, seed=9), filled(5, 5, 2, seed=[9, 9])
    assert same(shared.sample(20), own.sample(20))


def test_a_new_seed_brings_new_luck_and_leaves_the_rows():
    buffer, other = filled(5, seed=1), filled(5, seed=2)
    first = buffer.sample(20)
    buffer.reseed(2)
    assert same(content(buffer), content(other))
    again = buffer.sample(20)
    assert same(again, other.sample(20))
    assert not same(again, first)
    buffer.reseed(1)
    assert same(buffer.sample(20), first)


@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_rows_and_rewards_are_of_the_dtype(dtype):
    buffer = filled(4, dtype=dtype)
    arrays = [*buffer.sample(3), *buffer.newest(3)]
    assert {array.dtype for array in arrays} == {np.dtype(dtype)}


def test_single_precision_unless_another_is_wanted():
    assert ReplayBuffer(2, 3).newest(1)[0].dtype == np.float32


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
        ({"n_worlds": True}, TypeError, "n_worlds"),
        ({"seed": -1}, ValueError, "seed"),
        ({"seed": 0.5}, TypeError, "seed"),
        ({"seed": [1, 2]}, ValueError, "seed.*1 worlds.*2"),
        ({"n_worlds": 3, "seed": [1, 2]}, ValueError, "seed.*3 worlds.*2"),
        ({"n_weights": 0}, ValueError, "n_weights"),
    ],
)
def test_arguments_are_checked(arguments, error, words):
    with pytest.raises(error, match=words):
        ReplayBuffer(**({"capacity": 5, "n_features": 2} | arguments))


@pytest.mark.parametrize("n_weights", [None, 2])
@pytest.mark.parametrize(
    ("change", "error", "words"),
    [
        ({"x": [1.0]}, ValueError, r"x must have shape \(2,\): got \(1,\)"),
        ({"x": [1e39, 0.0]}, ValueError, r"x must be finite.* got 1e\+39"),
        ({"reward": [1.0]}, ValueError, r"reward must have shape \(\): got \(1,\)"),
        ({"reward": np.nan}, ValueError, "reward must be finite.* got nan"),
        ({"weight": [1.0]}, ValueError, "weight must have shape|shorter"),
    ],
)
def test_a_refused_row_changes_nothing(change, error, words, n_weights):
    buffer, undisturbed = (filled(0, n_weights=n_weights) for _ in range(2))
    given = {"x": [5.0, 6.0], "reward": 1.0}
    if n_weights is not None:
        given["weight"] = [1.0, 2.0]
    for one in (buffer, undisturbed):
        for _ in range(7):
            one.add(**given)
    with pytest.raises(error, match=words):
        buffer.add(**(given | change))
    assert same(content(buffer), content(undisturbed))
    assert to_bytes(buffer.state()) == to_bytes(undisturbed.state())


@pytest.mark.parametrize("n_worlds", [None, 3])
def test_weights_stay_with_their_rows(n_worlds):
    worlds = () if n_worlds is None else (n_worlds,)
    buffer = ReplayBuffer(5, 2, n_worlds, n_weights=4)
    for number in range(8):
        x, reward = row(number, n_worlds)
        undo = buffer.add(x, reward, np.full((*worlds, 4), number))
    for columns in (buffer.newest(3), buffer.sample(9)):
        x, reward, weight = columns
        assert weight.shape == (*x.shape[:-1], 4)
        first = x[..., 0] - (100 * np.arange(3)[:, None] if worlds else 0)
        assert np.array_equal(weight, first[..., None].repeat(4, axis=-1))
    undo()
    assert (buffer.newest(1)[2] == 6).all()


@pytest.mark.parametrize("n_weights", [None, 2])
@pytest.mark.parametrize("n_worlds", [None, 3])
@pytest.mark.parametrize("n", [0, 3, 5, 13])
def test_a_restored_buffer_goes_on_as_the_one_it_was_made_from(n, n_worlds, n_weights):
    def add(buffer, number):
        shape = (2,) if n_worlds is None else (n_worlds, 2)
        extra = () if n_weights is None else (np.full(shape, float(number)),)
        buffer.add(*row(number, n_worlds), *extra)

    buffer, other = (
        ReplayBuffer(5, 2, n_worlds, seed=seed, n_weights=n_weights) for seed in (4, 9)
    )
    for number in range(n):
        add(buffer, number)
    if n:
        buffer.sample(3)
    state = buffer.state()
    other._restore(from_bytes(to_bytes(state)))
    for number in range(50, 57):
        for one in (buffer, other):
            add(one, number)
        assert same(content(buffer), content(other))
        assert same(buffer.sample(4), other.sample(4))
    assert to_bytes(buffer.state()) == to_bytes(other.state()) != to_bytes(state)


@pytest.mark.parametrize(
    ("change", "words"),
    [
        ({"added": -1}, "added"),
        ({"added": 2}, "held must have shape"),
        ({"held": {}}, "held"),
        ({"held": [1]}, "held"),
        ({"generators": []}, "generators must be a list of 1 entries"),
    ],
)
def test_a_state_of_another_buffer_is_refused(change, words):
    state = filled(3).state()
    with pytest.raises(ValueError, match=words):
        filled(0)._restore(state | change)
