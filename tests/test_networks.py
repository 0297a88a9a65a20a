import copy
import pickle

import numpy as np
import pytest
import torch

from zoolib._support.threads import one_thread
from zoolib.models.networks import MLP, Embedding, descend, seeded


def test_worlds_are_initialised_by_their_own_seeds():
    together = MLP((3, 5, 2), seeded([4, 7]))
    table = Embedding(6, 3, seeded([4, 7]), scale=0.5)
    for world, seed in enumerate((4, 7)):
        alone = MLP((3, 5, 2), seeded(seed))
        for a, b in zip(alone.parameters(), together.parameters(), strict=True):
            assert torch.equal(a, b[world])
        assert torch.equal(
            Embedding(6, 3, seeded(seed), scale=0.5).weight, table.weight[world]
        )


def test_worlds_compute_what_each_computes_alone():
    together, table = MLP((3, 5, 2), seeded([4, 7])), Embedding(6, 3, seeded([4, 7]))
    ids = torch.tensor([[0, 5, 2, 2], [1, 1, 3, 0]])
    outputs = together(table(ids))
    assert outputs.shape == (2, 4, 2)
    for world, seed in enumerate((4, 7)):
        alone = MLP((3, 5, 2), seeded(seed))(Embedding(6, 3, seeded(seed))(ids[world]))
        assert torch.allclose(alone, outputs[world], atol=1e-6)


def test_the_formula_by_hand():
    mlp = MLP((2, 2, 1), seeded(0))
    with torch.no_grad():
        for p, values in zip(
            mlp.parameters(),
            ([[1.0, -1.0], [0.0, 2.0]], [[3.0], [1.0]], [[0.5, 0.0]], [[-1.0]]),
            strict=True,
        ):
            p.copy_(torch.tensor(values))
    # hidden: relu([1, 2] W1 + b1) = relu([1.5, 3]); output: 3 * 1.5 + 1 * 3 - 1
    assert mlp(torch.tensor([[1.0, 2.0]])).item() == pytest.approx(6.5)
    # hidden: relu([-1.5, 2]) = [0, 2]; output: 2 - 1
    assert mlp(torch.tensor([[-2.0, 0.0]])).item() == pytest.approx(1.0)


def test_initial_weights_have_pytorchs_spread():
    weight = MLP((64, 64, 1), seeded(1)).weights[0]
    assert weight.abs().max() <= 1 / 8
    assert weight.std().item() == pytest.approx(1 / 8 / 3**0.5, rel=0.05)
    assert Embedding(1000, 32, seeded(1)).weight.std().item() == pytest.approx(
        1.0, rel=0.02
    )


@pytest.mark.parametrize(
    ("seed", "error"),
    [
        (-1, ValueError),
        (1.5, TypeError),
        ("a", TypeError),
        ([], ValueError),
        ([0, None], TypeError),
    ],
)
def test_seeds_are_checked(seed, error):
    with pytest.raises(error, match="seed"):
        seeded(seed)


def test_a_step_of_descent_by_hand():
    w = torch.nn.Parameter(torch.tensor([3.0, -1.0]))
    optimiser = torch.optim.SGD([w], lr=0.25)
    for expected in ([1.5, -0.5], [0.75, -0.25]):  # the gradient of w² is 2w, each time
        descend(optimiser, w.square())
        assert w.tolist() == expected
    descend(optimiser, w.square().sum())
    assert w.tolist() == [0.375, -0.125]


def test_what_the_losses_do_not_depend_on_stays():
    w, idle = (torch.nn.Parameter(torch.tensor([2.0])) for _ in range(2))
    descend(torch.optim.Adam([{"params": [idle]}, {"params": [w]}], lr=0.1), w.square())
    assert idle.item() == 2
    assert w.item() == pytest.approx(1.9)


def squared_errors(network, x, y):
    return (network(x)[..., 0] - y).square().mean(dim=-1)


@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_worlds_train_as_if_alone(make):
    seeds = (4, 7, 5)
    together = MLP((3, 8, 1), seeded(list(seeds)))
    alone = [MLP((3, 8, 1), seeded(seed)) for seed in seeds]
    optimisers = [make(one.parameters(), lr=0.05) for one in (together, *alone)]
    source = torch.Generator().manual_seed(0)
    for _ in range(20):
        x = torch.randn(3, 16, 3, generator=source)
        y = x[..., 0] * torch.tensor([[1.0], [-2.0], [5.0]])
        descend(optimisers[0], squared_errors(together, x, y))
        for w, network in enumerate(alone):
            descend(optimisers[w + 1], squared_errors(network, x[w], y[w]))
    for w, network in enumerate(alone):
        for a, b in zip(network.parameters(), together.parameters(), strict=True):
            assert torch.allclose(a, b[w], rtol=1e-3, atol=1e-4)
    fresh = MLP((3, 8, 1), seeded(list(seeds)))
    assert not torch.allclose(fresh.weights[0], together.weights[0], atol=0.05)


@pytest.mark.parametrize(
    ("spoil", "words"),
    [
        (lambda w: w * float("nan"), "losses must be finite.*nan"),
        (lambda w: w / 0, "losses must be finite.*inf"),
        # A loss of zero, and a gradient without bounds.
        (lambda w: (w - w.detach()).sqrt(), "gradients must be finite"),
    ],
)
@pytest.mark.parametrize("make", [torch.optim.SGD, torch.optim.Adam])
def test_a_step_to_nowhere_is_not_taken_in_any_world(make, spoil, words):
    w = torch.nn.Parameter(torch.tensor([3.0, 2.0]))
    optimiser = make([w], lr=0.1)
    descend(optimiser, w.square())
    before, state = w.tolist(), copy.deepcopy(optimiser.state_dict())
    losses = torch.stack([w[0].square(), spoil(w[1])])
    with pytest.raises(FloatingPointError, match=words):
        descend(optimiser, losses)
    assert w.tolist() == before
    assert str(optimiser.state_dict()) == str(state)
    # What was refused leaves no trace in the next step.
    undisturbed = torch.nn.Parameter(torch.tensor([3.0, 2.0]))
    other = make([undisturbed], lr=0.1)
    descend(other, undisturbed.square())
    for parameter, one in ((w, optimiser), (undisturbed, other)):
        descend(one, parameter.square())
    assert w.tolist() == undisturbed.tolist()


@pytest.mark.parametrize("seed", [4, [4, 7]], ids=["one world", "two worlds"])
@pytest.mark.parametrize("sizes", [(3, 5, 4, 2), (3, 2)], ids=str)
def test_evaluation_is_the_forward_pass_without_a_trace(sizes, seed):
    mlp = MLP(sizes, seeded(seed))
    shape = (6, 3) if seed == 4 else (2, 6, 3)
    x = np.random.default_rng(0).normal(size=shape).astype(np.float32)
    before = x.copy()
    wanted = mlp(torch.from_numpy(x)).detach().numpy()
    assert np.allclose(mlp.evaluate(x), wanted, atol=1e-6)
    assert (x == before).all()


@pytest.mark.parametrize("seed", [4, [4, 7]], ids=["one world", "two worlds"])
def test_masks_multiply_the_hidden_units_of_each_row(seed):
    mlp = MLP((3, 5, 4, 2), seeded(seed))
    worlds = () if seed == 4 else (2,)
    source = torch.Generator().manual_seed(0)
    x = torch.randn(*worlds, 6, 3, generator=source)
    first = torch.rand(*worlds, 6, 5, generator=source).round()
    second = torch.rand(*worlds, 6, 4, generator=source)
    (w1, w2, w3), (b1, b2, b3) = mlp.weights, mlp.biases
    hidden = (x @ w1 + b1).clamp(min=0) * first
    expected = ((hidden @ w2 + b2).clamp(min=0) * second) @ w3 + b3
    masked = mlp(x, [first, second])
    assert torch.allclose(masked, expected, atol=1e-6)
    assert not torch.allclose(masked, mlp(x), atol=1e-3)
    ones = [torch.ones_like(first), torch.ones_like(second)]
    assert torch.allclose(mlp(x, ones), mlp(x))


@pytest.mark.parametrize("seed", [4, [4, 7]], ids=["one world", "two worlds"])
@pytest.mark.parametrize("sizes", [(3, 5, 4, 2), (3, 5, 1)], ids=str)
def test_subnetworks_evaluated_together_are_those_evaluated_one_by_one(sizes, seed):
    mlp, worlds = MLP(sizes, seeded(seed)), () if seed == 4 else (2,)
    rng = np.random.default_rng(0)
    x = rng.normal(size=(*worlds, 6, 3)).astype(np.float32)
    masks = [
        rng.integers(3, size=(*worlds, 7, units)).astype(np.float32)
        for units in sizes[1:-1]
    ]
    before = x.copy()
    together = mlp.evaluate(x, masks)
    assert together.shape == (*worlds, 7, 6, sizes[-1])
    assert together.dtype == np.float32
    for t in range(7):
        rows = [torch.from_numpy(mask[..., t : t + 1, :]) for mask in masks]
        alone = mlp(torch.from_numpy(x), rows).detach().numpy()
        assert np.allclose(together[..., t, :, :], alone, atol=1e-5)
    assert (x == before).all()


def test_evaluation_of_some_of_the_networks():
    mlp = MLP((3, 5, 2), seeded([4, 7, 5]))
    x = np.random.default_rng(0).normal(size=(2, 6, 3)).astype(np.float32)
    some = mlp.evaluate(x, at=(np.array([2, 0]),))
    for place, seed in enumerate((5, 4)):
        alone = MLP((3, 5, 2), seeded(seed)).evaluate(x[place])
        assert np.allclose(some[place], alone, atol=1e-6)
    one = mlp.evaluate(x[0], at=(np.int64(1),))
    assert np.allclose(one, MLP((3, 5, 2), seeded(7)).evaluate(x[0]), atol=1e-6)


def test_members_are_stacked_behind_the_worlds():
    worlds = seeded([4, 7])
    mlp = MLP((3, 5, 2), [[generator] * 3 for generator in worlds])
    assert [tuple(weight.shape) for weight in mlp.weights] == [
        (2, 3, 3, 5),
        (2, 3, 5, 2),
    ]
    # A world's generator draws the members' weights of a layer one after the other.
    first = torch.empty(3, 5).uniform_(-(3**-0.5), 3**-0.5, generator=seeded(7))
    assert torch.equal(mlp.weights[0][1, 0], first)
    x = np.random.default_rng(0).normal(size=(2, 1, 6, 3)).astype(np.float32)
    together = mlp.evaluate(x)
    assert together.shape == (2, 3, 6, 2)
    assert np.allclose(together, mlp(torch.from_numpy(x)).detach(), atol=1e-6)
    for at in np.ndindex(2, 3):
        alone = mlp.evaluate(x[at[0], 0], at=at)
        assert np.allclose(alone, together[at], atol=1e-6)


def test_a_network_is_evaluated_with_the_weights_that_it_has_now():
    """However they came: written in place, loaded, copied to another network, of another type."""
    network = MLP((3, 4, 1), seeded(0))
    x = np.ones((2, 3), np.float32)

    def agrees(one, x=x):
        expected = one(torch.from_numpy(x)).detach().numpy()
        return np.allclose(one.evaluate(x), expected, rtol=1e-6)

    assert agrees(network)
    twins = copy.deepcopy(network), pickle.loads(pickle.dumps(network))
    with torch.no_grad():
        network.weights[0].add_(1)
    before = twins[0].evaluate(x)
    assert agrees(network)
    for twin in twins:
        assert agrees(twin)
        with torch.no_grad():
            twin.weights[1].mul_(3)
        assert agrees(twin)
        assert not np.allclose(twin.evaluate(x), before)
    network.load_state_dict(MLP((3, 4, 1), seeded(1)).state_dict())
    assert agrees(network)
    assert agrees(network.to(torch.float64), x.astype(np.float64))
    assert network.evaluate(x.astype(np.float64)).dtype == np.float64
    network.evaluate(x.astype(np.float64))[:] = 0  # no view of the weights gets out
    assert agrees(network, x.astype(np.float64))


def test_torch_has_one_thread_for_a_while_and_then_as_many_as_before():
    before = torch.get_num_threads()
    torch.set_num_threads(3)
    try:
        with one_thread():
            assert torch.get_num_threads() == 1
        assert torch.get_num_threads() == 3
    finally:
        torch.set_num_threads(before)
