"""Stable-Baselines3's deep Q-network, which plays and learns by its own loop."""

from __future__ import annotations

from typing import Any

import torch


class StableBaselines3:
    """Its own loop over Gymnasium's environment, with its defaults; no files, no bars."""

    distribution, module = "stable-baselines3", "stable_baselines3"
    same_scores = False

    def __init__(self, environment: str) -> None:
        from stable_baselines3 import DQN

        torch.manual_seed(0)  # it draws from the global generator
        self.model: Any = DQN("MlpPolicy", environment, seed=0, device="cpu")

    def play(self, n: int) -> None:
        """Play and learn from n steps."""
        self.model.learn(n, reset_num_timesteps=False)

    @classmethod
    def note(cls) -> str:
        """Return how it is driven."""
        return " ".join(cls.__doc__.split())
