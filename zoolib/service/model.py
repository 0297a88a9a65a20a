r"""A model version in memory: a frozen network, and a linear Thompson head that learns.

The network maps the features x of an arm to an embedding; joined with x it is the row
:math:`z = (\phi(x), x)` that the head sees (Riquelme et al. 2018; see Chapter 3, "Only the last layer").
The network stays as it was trained, the head takes in every reward.
"""

from __future__ import annotations

import json
from collections.abc import Sequence

import numpy as np
import torch
from numpy.typing import ArrayLike, NDArray

from zoolib.choice import greedy, with_floor
from zoolib.networks import MLP, seeded
from zoolib.posterior import RidgePosterior
from zoolib.service.settings import Settings


class Head(RidgePosterior):
    """A ridge posterior whose bytes depend on its rewards and their order, and on nothing else.

    Its parent lets rows wait and adds them in whole products, so that the last bits of A and b depend on
    when somebody looked. Here each row goes in at once: after a crash, a replay gives the same bytes.
    """

    def update(self, x: ArrayLike, reward: ArrayLike, **options: object) -> None:
        """Learn from one row: see `RidgePosterior.update`."""
        super().update(x, reward, **options)
        self._settled()

    def to_bytes(self) -> bytes:
        """Write everything down: A and b, the inverse, the mean, and when the drift is checked next.

        Raises
        ------
        FloatingPointError
            If a number is not finite.
        """
        d = self.n_features
        numbers = (
            d,
            self.ridge,
            self._factor,
            self._prior,
            self._updates,
            self._next_check,
        )
        arrays = (np.array(numbers), self._settled().ravel(), self._solution.ravel())
        every = np.concatenate(arrays).astype("<f8")
        if not np.isfinite(every).all():
            raise FloatingPointError("a head must be finite: got NaN or infinity")
        return every.tobytes()

    @classmethod
    def from_bytes(cls, blob: bytes) -> Head:
        """Return the head that `to_bytes` wrote down, the same to the last bit.

        Raises
        ------
        ValueError
            If the bytes are not those of a head.
        """
        numbers = np.frombuffer(blob, "<f8") if len(blob) % 8 == 0 else np.empty(0)
        d = int(numbers[0]) if numbers.size and np.isfinite(numbers[0]) else 0
        if d < 1 or numbers.size != 6 + 2 * d * (d + 1):
            raise ValueError(f"blob must be the bytes of a head: got {len(blob)} bytes")
        head = cls(d, float(numbers[1]))
        head._factor[()], head._prior[()] = numbers[2:4]
        head._updates, head._next_check = map(int, numbers[4:6])
        head._moments[:], head._solution[:] = numbers[6:].reshape(2, d, d + 1)
        return head


class FrozenNetwork:
    """Embeddings from weights that no longer change, computed in NumPy.

    Parameters
    ----------
    sizes : sequence of int
        Widths from features to embedding.
    seed : int, default 0
        Seed of the weights, until others are put in their place.

    Attributes
    ----------
    mlp : MLP
        The network.
    width : int
        Length of a row z: of the embedding and the features.
    """

    def __init__(self, sizes: Sequence[int], seed: int = 0) -> None:
        self.sizes = tuple(sizes)
        self.mlp = MLP(self.sizes, seeded(seed)).requires_grad_(False)
        self.width = self.sizes[0] + self.sizes[-1]

    @classmethod
    def of(cls, mlp: MLP) -> FrozenNetwork:
        """Return a frozen copy of a network."""
        layers = [weight.shape for weight in mlp.weights]
        network = cls([layers[0][0], *(n_out for _, n_out in layers)])
        network.mlp.load_state_dict(mlp.state_dict())
        return network

    def embed(self, x: NDArray[np.float32]) -> NDArray[np.float64]:
        """Map rows (n, d) to embeddings joined with the rows, (n, width).

        Raises
        ------
        FloatingPointError
            If one is not finite.
        """
        with np.errstate(over="ignore", invalid="ignore"):  # the result tells
            embedding = self.mlp.evaluate(x)
        if not np.isfinite(embedding).all():
            raise FloatingPointError("embeddings must be finite: got NaN or infinity")
        return np.concatenate((embedding, x), axis=-1, dtype=np.float64)

    def to_bytes(self) -> bytes:
        """Write the weights down."""
        weights = [p.detach().numpy().ravel() for p in self.mlp.parameters()]
        sizes = json.dumps(self.sizes).encode()
        return sizes + b"\n" + np.concatenate(weights).astype("<f4").tobytes()

    @classmethod
    def from_bytes(cls, blob: bytes) -> FrozenNetwork:
        """Return the network that `to_bytes` wrote down.

        Raises
        ------
        ValueError
            If the bytes are not those of a network.
        """
        head, _, body = blob.partition(b"\n")
        try:
            n_in, *sizes, n_out = map(int, json.loads(head))
            network = cls([n_in, *sizes, n_out])
            weights = torch.from_numpy(np.frombuffer(body, "<f4").astype(np.float32))
            torch.nn.utils.vector_to_parameters(weights, network.mlp.parameters())
            if len(weights) != sum(p.numel() for p in network.mlp.parameters()):
                raise ValueError("weights are left over")
        except (ValueError, TypeError, RuntimeError) as error:
            raise ValueError(f"blob must be the bytes of a network: {error}") from error
        return network


class Model:
    """A version that serves: network, head, and the last reward that the head has learnt.

    Parameters
    ----------
    name : str
        Its name in the registry.
    network : FrozenNetwork
        Makes the rows.
    head : Head
        Believes.
    seq : int
        Sequence number of the last reward in the head.
    """

    def __init__(self, name: str, network: FrozenNetwork, head: Head, seq: int) -> None:
        self.name, self.network, self.head, self.seq = name, network, head, seq

    def learn(self, seq: int, x: NDArray[np.float32], arm: int, reward: float) -> None:
        """Take in the reward of an arm with features x (d,)."""
        # One row at a time, whenever it is learnt: the same product, hence the same bits, in a replay.
        self.head.update(self.network.embed(x[None])[0], reward)
        self.seq = seq


def choice_probabilities(
    head: Head,
    z: NDArray[np.float64],
    group: NDArray[np.int64],
    settings: Settings,
    rng: np.random.Generator,
) -> NDArray[np.float64]:
    r"""Return the probabilities that an arm is then drawn with, so that they are exact propensities.

    Thompson sampling shows an arm with the probability that it is the best. That has no formula, so M
    draws from the posterior estimate it, and the arm is drawn *from the estimate*, mixed with a floor:

    .. math:: \pi(a) = (1 - \varepsilon)\, \frac{\text{wins of } a}{M} + \frac{\varepsilon}{K}.

    Parameters
    ----------
    head : Head
        The posterior.
    z : ndarray, shape (n, width)
        The different rows.
    group : ndarray of int, shape (K,)
        Which of them each arm has; arms of one row tie, and share its wins.
    settings : Settings
        M, :math:`\varepsilon`, and the standard deviation of the rewards' noise.
    rng : Generator
        Where the draws come from.

    Returns
    -------
    ndarray, shape (K,)

    Raises
    ------
    ValueError, numpy.linalg.LinAlgError
        If scores are not finite, or the covariance has no root.
    """
    normals = rng.standard_normal((settings.n_draws, head.n_features))
    scores = head.sample(normals, settings.noise) @ z.T
    return with_floor(greedy(scores[:, group]).mean(axis=0), settings.floor)
