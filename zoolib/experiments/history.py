"""What happened in an experiment."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from zoolib._support.checks import as_one_of
from zoolib.world.simulator import Churn, MarketShock


@dataclass(frozen=True)
class History:
    """What happened in an experiment.

    Attributes
    ----------
    agents : tuple of str
        Names, in the order of the first axis.
    seeds : tuple of int
        Seeds of the worlds, in the order of the second axis.
    shocks : dict of int to MarketShock
        The shocks, by the step before which they happened.
    churn : Churn or None
        How often products were replaced.
    personas : tuple of str
        Names of the numbers in `persona`.
    planned : int
        Number of steps asked for; more than there are if the run was interrupted.
    user, persona : ndarray of int, shape (world, step)
        The visitors and their personas.
    arm : ndarray of int, shape (agent, world, step)
        The arms shown.
    reward : ndarray of int, shape (agent, world, step)
        1 for a click, else 0.
    expected_reward : ndarray of float, shape (agent, world, step)
        True click probability of the arm shown.
    optimal_reward : ndarray of float, shape (agent, world, step)
        True click probability of the best product for the visitor, the same for all agents.
    """

    agents: tuple[str, ...]
    seeds: tuple[int, ...]
    shocks: dict[int, MarketShock]
    churn: Churn | None
    personas: tuple[str, ...]
    planned: int
    user: NDArray[np.int32]
    persona: NDArray[np.int8]
    arm: NDArray[np.int32]
    reward: NDArray[np.int8]
    expected_reward: NDArray[np.float64]
    optimal_reward: NDArray[np.float64]

    @property
    def n_steps(self) -> int:
        """Number of steps played."""
        return self.reward.shape[-1]

    def index(self, agent: str) -> int:
        """Return the position of an agent on the first axis; raise if there is no such agent."""
        return self.agents.index(as_one_of("agent", agent, self.agents))

    def __repr__(self) -> str:
        worlds = f"{len(self.seeds)} worlds, {self.n_steps:,} steps"
        events = f"shocks at {list(self.shocks)}, {self.churn}"
        return f"History({', '.join(self.agents)}; {worlds}; {events})"
