import numpy as np
import pytest
import torch

from zoolib._support.threads import one_thread
from zoolib.agents import neural_ucb
from zoolib.agents.base import Context
from zoolib.agents.neural_ucb import (
    INVERSES,
    NeuralUCBAgent,
    UpdatedInverse,
)

K, D = 6, 4
RIDGE, ALPHA = 2.5, 0.7


@pytest.fixture(autouse=True)
def alone_on_its_core():
    with one_thread():
        yield


def make(n_worlds=None, **options):
    """A small agent in double precision that trains often."""
    options = {
        "alpha": ALPHA,
        "ridge": RIDGE,
        "hidden": (5,),
        "dtype": np.float64,
        "train_every": 7,
        "batch_size": 8,
        "seed": 3,
    } | options
    return NeuralUCBAgent(K, D, n_worlds=n_worlds, **options)


def visits(n, n_worlds=None, n_arms=K, d=D, seed=0):
    """Contexts, arms and rewards, the same for everybody."""
    rng = np.random.default_rng(seed)
    worlds = () if n_worlds is None else (n_worlds,)
    for _ in range(n):
        features = rng.normal(size=(*worlds, n_arms, d))
        arm, reward = rng.integers(n_arms, size=worlds), rng.random(worlds)
        if n_worlds is None:
            arm, reward = int(arm), float(reward)
        yield Context(np.zeros(worlds, int), features), arm, reward


def played(agent, n, seed=0):
    """The agent, after n updates."""
    for visit in visits(n, agent.n_worlds, seed=seed):
        agent.update(*visit)
    return agent


def numbers_of(agent):
    """Everything a decision depends on."""
    kept = vars(agent.uncertainty).values()
    tensors = [t for t in kept if isinstance(t, torch.Tensor)]
    return [t.detach().clone() for t in (*tensors, *agent.network.parameters())]


def same(before, after):
    return all(torch.equal(a, b) for a, b in zip(before, after, strict=True))


def output_of(matrices, x):
    """The network's output at one row, in NumPy; matrices in the order of its parameters."""
    weights, biases = matrices[: len(matrices) // 2], matrices[len(matrices) // 2 :]
    for weight, bias in zip(weights[:-1], biases[:-1], strict=True):
        x = np.maximum(x @ weight + bias[0], 0)
    return (x @ weights[-1] + biases[-1][0])[0]


def slopes_of(matrices, x, step=1e-6):
    """Central differences of the output by each entry of each matrix."""
    slopes = []
    for matrix in matrices:
        for entry in np.ndindex(matrix.shape):
            there = []
            for sign in (1, -1):
                matrix[entry] += sign * step
                there.append(output_of(matrices, x))
                matrix[entry] -= sign * step
            slopes.append((there[0] - there[1]) / (2 * step))
    return np.array(slopes)


def matrices_of(agent, world=...):
    return [p.detach().numpy()[world].copy() for p in agent.network.parameters()]


@pytest.mark.parametrize("hidden", [(), (5,), (4, 3, 2)])
def test_gradients_are_the_slopes_of_the_output(hidden):
    rows = np.random.default_rng(0).normal(size=(2, 3, D))
    alone, together = (make(w, hidden=hidden) for w in (None, 2))
    gradients = alone.jacobian_of(rows[0])
    assert gradients.shape == (3, alone.n_parameters)
    for gradient, x in zip(gradients, rows[0], strict=True):
        assert gradient == pytest.approx(slopes_of(matrices_of(alone), x), abs=1e-8)
    gradients = together.jacobian_of(rows)
    assert gradients.shape == (2, 3, alone.n_parameters)
    for world in range(2):
        for gradient, x in zip(gradients[world], rows[world], strict=True):
            slopes = slopes_of(matrices_of(together, world), x)
            assert gradient == pytest.approx(slopes, abs=1e-8)


@torch.enable_grad()
def by_passes(network, x):
    """Gradients at rows by one backward pass each, worlds side by side."""
    parameters = list(network.parameters())
    found = []
    for row in x.split(1, dim=-2):
        parts = torch.autograd.grad(network(row).sum(), parameters)
        found.append(torch.cat([part.flatten(-2) for part in parts], dim=-1))
    return torch.stack(found, dim=-2)


@pytest.mark.parametrize("n_worlds", [None, 3])
def test_gradients_are_those_of_backward_passes(n_worlds):
    worlds = () if n_worlds is None else (n_worlds,)
    for dtype, tolerance in ((np.float32, 1e-6), (np.float64, 1e-14)):
        x = np.random.default_rng(1).normal(size=(*worlds, 20, D)).astype(dtype)
        agent = make(n_worlds, hidden=(6, 5), dtype=dtype)
        passed = by_passes(agent.network, torch.from_numpy(x)).numpy()
        assert agent.jacobian_of(x).dtype == dtype
        assert abs(agent.jacobian_of(x) - passed).max() < tolerance


def test_the_number_of_parameters_is_the_books():
    assert NeuralUCBAgent(50, 9).n_parameters == 705
    wide = NeuralUCBAgent(50, 9, hidden=(128, 64), inverse="diagonal")
    assert wide.n_parameters == 9601
    for agent in (make(), make(2), wide):
        n = sum(p.numel() for p in agent.network.parameters())
        assert n == agent.n_parameters * (agent.n_worlds or 1)


class Slow:
    """NeuralUCB for one world from its definition: numerical slopes, and a matrix of all that was played."""

    def __init__(self, inverse):
        self.A, self.diagonal = RIDGE * np.eye(5 * D + 5 + 6), inverse == "diagonal"

    def scores(self, matrices, features):
        A = np.diag(np.diag(self.A)) if self.diagonal else self.A
        scores = []
        for x in features:
            g = slopes_of(matrices, x)
            width = np.sqrt(g @ np.linalg.solve(A, g))
            scores.append(output_of(matrices, x) + ALPHA * width)
        return np.array(scores)

    def learn(self, matrices, x):
        g = slopes_of(matrices, x)
        self.A += np.outer(g, g)


@pytest.mark.parametrize("n_worlds", [None, 2])
@pytest.mark.parametrize("inverse", INVERSES)
def test_scores_are_those_of_the_definition(inverse, n_worlds):
    agent = make(n_worlds, inverse=inverse)
    worlds = [...] if n_worlds is None else range(n_worlds)
    slow = [Slow(inverse) for _ in worlds]
    for context, arm, reward in visits(25, n_worlds):
        scores = agent.scores(context)
        for w, one in zip(worlds, slow, strict=True):
            features = context.features[w]
            expected = one.scores(matrices_of(agent, w), features)
            assert scores[w] == pytest.approx(expected, rel=1e-7)
            # By the weights of this moment: with the seventh update comes a training.
            one.learn(
                matrices_of(agent, w),
                features[np.atleast_1d(arm)[w]][0]
                if n_worlds is None
                else features[arm[w]],
            )
        agent.update(context, arm, reward)


class Recomputed:
    """A in double precision, inverted at each decision."""

    def __init__(self, p):
        self.A = self.kept = torch.eye(p, dtype=torch.float64)

    def squares(self, jacobian):
        A_inv = torch.linalg.inv(self.A).to(jacobian.dtype)
        return torch.linalg.vecdot(jacobian @ A_inv, jacobian)

    def learn(self, g):
        self.A += torch.outer(g, g)


@pytest.mark.no_cover
@pytest.mark.parametrize(
    ("dtype", "tolerance", "n_updates"),
    [
        (np.float32, 1e-5, 1000),
        (np.float64, 1e-9, 200),
        pytest.param(np.float64, 1e-9, 1000, marks=pytest.mark.weekly),
    ],
)
def test_updates_and_gradients_stay_exact_over_many_visits(dtype, tolerance, n_updates):
    fast, slow = (
        NeuralUCBAgent(10, 9, alpha=1.0, dtype=dtype, train_every=10, seed=1)
        for _ in range(2)
    )
    assert fast.n_parameters == 705
    slow.uncertainty, slow.gradients = Recomputed(705), by_passes
    start = matrices_of(fast)
    for context, arm, reward in visits(n_updates, None, 10, 9):
        for agent in (fast, slow):
            agent.update(context, arm, reward)
    ((context, _, _),) = visits(1, None, 10, 9, seed=5)
    scores = fast.scores(context)
    assert scores.dtype == dtype
    assert abs(scores / slow.scores(context) - 1).max() < tolerance
    assert abs(matrices_of(fast)[0] - start[0]).max() > 0.1  # it has trained


def test_a_matrix_too_large_is_refused_before_it_is_made():
    # The network alone would take 44 GB.
    with pytest.raises(MemoryError) as error:
        NeuralUCBAgent(50, 9, hidden=(10**9,))
    p = 11 * 10**9 + 1
    for part in (
        "hidden=(1000000000,)",
        f"{p:,}",
        f"{4 * p * (p + 50):,}",
        "inverse='updated'",
        "50 arms",
        "2,147,483,648",
        'inverse="diagonal"',
    ):
        assert part in str(error.value)


@pytest.mark.parametrize("inverse", INVERSES)
def test_all_worlds_count_towards_the_limit_of_memory(inverse, monkeypatch):
    p = make().n_parameters
    needed = 8 * p * (K + (1 if inverse == "diagonal" else p))
    monkeypatch.setattr(neural_ucb, "MOST_BYTES", 2 * needed - 1)
    make(inverse=inverse)
    with pytest.raises(MemoryError, match="2 worlds"):
        make(2, inverse=inverse)
    monkeypatch.setattr(neural_ucb, "MOST_BYTES", 2 * needed)
    make(2, inverse=inverse)


@pytest.mark.parametrize("inverse", INVERSES)
@pytest.mark.parametrize("n_updates", [10, 13])  # 13: the next one trains
@pytest.mark.parametrize("dtype", [np.float32, np.float64])
def test_a_failure_leaves_no_trace(inverse, n_updates, dtype):
    agent = played(make(inverse=inverse, dtype=dtype, buffer_size=8), n_updates)
    ((context, arm, reward),) = visits(1, seed=8)
    before, scores = numbers_of(agent), agent.scores(context)
    rows = agent.memory.newest(8)
    agent.represent = lambda x: NeuralUCBAgent.represent(agent, x) * np.inf
    with pytest.raises(FloatingPointError, match="gradients overflow"):
        agent.update(context, arm, reward)
    del agent.represent
    assert same(before, numbers_of(agent))
    assert (agent.scores(context) == scores).all()
    assert all(
        (a == b).all() for a, b in zip(rows, agent.memory.newest(8), strict=True)
    )
    assert agent.n_updates == n_updates
    agent.update(context, arm, reward)
    assert not same(before, numbers_of(agent))


def test_an_inverse_worn_out_by_rounding_is_said_and_not_used():
    agent = played(make(), 10)
    ((context, arm, reward),) = visits(1, seed=8)
    agent.uncertainty.A_inv -= 100 * torch.eye(agent.n_parameters)
    before = numbers_of(agent)
    with pytest.raises(FloatingPointError, match="float64"):
        agent.select(context)
    with pytest.raises(FloatingPointError, match="ridge"):
        agent.update(context, arm, reward)
    assert same(before, numbers_of(agent))


def test_what_is_kept_is_changed_in_place_and_stays_symmetric():
    agent = make(2)
    where = agent.uncertainty.A_inv.data_ptr()
    A_inv = played(agent, 50).uncertainty.A_inv
    assert A_inv.data_ptr() == where
    assert torch.equal(A_inv, A_inv.mT)


def test_without_hidden_layers_uncertainty_is_that_of_linucb():
    agent = played(make(hidden=(), alpha=1.0), 40)
    rows = [context.features[arm] for context, arm, _ in visits(40)]
    played_rows = np.column_stack((rows, np.ones(40)))
    A = RIDGE * np.eye(D + 1) + played_rows.T @ played_rows
    assert torch.linalg.inv(agent.uncertainty.A_inv).numpy() == pytest.approx(A)


@pytest.mark.parametrize("options", [{}, {"inverse": "diagonal"}])
def test_it_finds_the_better_of_two_arms(options):
    rng = np.random.default_rng(0)
    options = {"alpha": 1.0, "train_every": 5, "batch_size": 16} | options
    agent = NeuralUCBAgent(2, 2, hidden=(8,), **options)
    right = []
    for _ in range(500):
        # Each customer likes the arm of their own number: neither arm is better for both.
        customer = int(rng.integers(2))
        context = Context(0, np.eye(2) * (1 if customer else -1))
        arm = agent.select(context)
        right.append(arm == customer)
        reward = float(rng.random() < (0.9 if right[-1] else 0.1))
        agent.update(context, arm, reward)
    assert np.mean(right[-200:]) > 0.9
    assert np.mean(right[:20]) < 0.9


def test_the_default_is_exact():
    assert isinstance(NeuralUCBAgent(3, 2).uncertainty, UpdatedInverse)


def test_a_state_that_says_how_gradients_were_computed_is_read():
    agent = played(make(), 10)
    state = agent.state()
    state["settings"]["jacobian"] = "closed"
    ((context, _, _),) = visits(1, seed=9)
    again = NeuralUCBAgent.from_state(state)
    assert (again.scores(context) == agent.scores(context)).all()


def test_an_uncertainty_that_does_not_fit_is_refused():
    state = played(make(), 10).state()
    learned = state["learned"] | {"uncertainty": np.eye(3)}
    with pytest.raises(
        ValueError,
        match=r"must fit the \d+ numbers learned|uncertainty must have shape",
    ):
        NeuralUCBAgent.from_state(state | {"learned": learned})
    agent = NeuralUCBAgent(3, 2, hidden=(4,), inverse="diagonal", seed=2)
    assert repr(agent) == (
        "NeuralUCBAgent(n_arms=3, n_features=2, hidden=(4,), seed=2, inverse='diagonal')"
    )
