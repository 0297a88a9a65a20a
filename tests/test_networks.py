import pytest
import torch

from zoolib.networks import MLP, Embedding, seeded


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
