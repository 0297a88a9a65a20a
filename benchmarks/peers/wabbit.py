"""What Vowpal Wabbit's bandits share: visits as lines of text, and an arm drawn from what it answers."""

from __future__ import annotations

import random

from benchmarks.peers.adapter import Adapter


class Wabbit(Adapter):
    """A workspace of Vowpal Wabbit.

    Parameters
    ----------
    mode : str
        Its kind of bandit.
    n_weights : int
        Weights that it learns: its table has room for twice as many, and for 2¹⁸ at least.
    options : str, default "--epsilon 0.1"
        How it explores.
    seed : int, default 0
        Of the draws.
    """

    def __init__(
        self,
        mode: str,
        n_arms: int,
        n_features: int,
        n_weights: int,
        options: str = "--epsilon 0.1",
        seed: int = 0,
    ) -> None:
        from vowpalwabbit import Workspace

        bits = max(18, n_weights.bit_length() + 1)
        self.workspace = Workspace(
            f"--{mode} {options} --noconstant --quiet --bit_precision {bits}"
        )
        self.arms, self.dice = range(n_arms), random.Random(seed)
        # Features named by numbers are not hashed.
        self.line = "| " + " ".join(f"{i}:%.7g" for i in range(n_features))

    def draw(self, seen: str | list[str]) -> int:
        """Draw an arm from the probabilities that it gives."""
        self.probabilities = self.workspace.predict(seen)
        return self.dice.choices(self.arms, self.probabilities)[0]
