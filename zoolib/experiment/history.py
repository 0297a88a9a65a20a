"""What happened in an experiment, and the file that keeps it."""

from __future__ import annotations

import json
import os
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

import numpy as np
from numpy.typing import NDArray

from zoolib._checks import as_ids
from zoolib._files import write_whole
from zoolib.simulator import Churn, MarketShock


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
        What changed, and before which step.
    churn : Churn or None
        How often products were replaced.
    personas : tuple of str
        Names of the numbers in `persona`.
    planned : int
        Number of steps asked for; more than there are if the run was interrupted.
    user, persona : ndarray of int, shape (world, step)
        Who came, and of which persona.
    arm : ndarray of int, shape (agent, world, step)
        What was shown.
    reward : ndarray of int, shape (agent, world, step)
        1 for a click, else 0.
    expected_reward : ndarray of float, shape (agent, world, step)
        True click probability of what was shown.
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
        """Return the place of an agent on the first axis."""
        if agent not in self.agents:
            raise ValueError(f"agent must be one of {list(self.agents)}: got {agent!r}")
        return self.agents.index(agent)

    def save(self, path: str | os.PathLike[str]) -> None:
        """Write the history to a file, whole or not at all."""
        labels = {
            "agents": self.agents,
            "seeds": self.seeds,
            **event_labels(self.shocks, self.churn),
            "personas": self.personas,
            "planned": self.planned,
        }
        arrays = {name: getattr(self, name) for name in _ARRAYS}
        arrays["optimal_reward"] = self.optimal_reward[0]  # the same for all agents
        write_whole(
            path,
            lambda file: np.savez_compressed(file, labels=json.dumps(labels), **arrays),
        )

    @classmethod
    def load(cls, path: str | os.PathLike[str]) -> History:
        """Read a history that `save` wrote.

        Raises
        ------
        FileNotFoundError
            If there is no such file.
        ValueError
            If the file is damaged or something else.
        """
        if not Path(path).is_file():
            raise FileNotFoundError(
                f"path must name a history file: nothing found at {os.fspath(path)!r}"
            )
        try:
            with open(path, "rb") as file:
                return cls._read(np.load(file, allow_pickle=False))
        except Exception as error:  # zip, numpy and JSON complain in many ways
            raise ValueError(
                f"path {os.fspath(path)!r} is not a file of History.save: {error!r}"
            ) from error

    @classmethod
    def _read(cls, content: Mapping[str, NDArray]) -> History:
        labels = json.loads(str(content["labels"]))
        arrays = {name: content[name] for name in _ARRAYS}
        shapes = {name: array.shape for name, array in arrays.items()}
        visits = (len(labels["seeds"]), shapes["user"][-1])
        played = (len(labels["agents"]), *visits)
        of_agents = ("arm", "reward", "expected_reward")
        wanted = {name: played if name in of_agents else visits for name in _ARRAYS}
        if shapes != wanted:
            raise ValueError(f"arrays must have shapes {wanted}: got {shapes}")
        as_ids("persona", arrays["persona"], len(labels["personas"]))
        optimal = np.broadcast_to(arrays.pop("optimal_reward"), arrays["reward"].shape)
        return cls(
            agents=tuple(labels["agents"]),
            seeds=tuple(labels["seeds"]),
            shocks={int(at): MarketShock(*of) for at, of in labels["shocks"].items()},
            churn=labels["churn"] and Churn(*labels["churn"]),
            personas=tuple(labels["personas"]),
            planned=labels["planned"],
            optimal_reward=optimal,
            **arrays,
        )


_ARRAYS = ("user", "persona", "arm", "reward", "expected_reward", "optimal_reward")


def event_labels(
    shocks: Mapping[int, MarketShock], churn: Churn | None
) -> dict[str, object]:
    """Return what changes in the worlds, and when, in a form that JSON can hold."""
    return {
        "shocks": {
            str(step): [shock.persona, dict(shock.click_probabilities)]
            for step, shock in shocks.items()
        },
        "churn": churn and [churn.every, churn.share],
    }
