"""Values of policies in a world whose truth is known, and measures of an experiment's history.

Values are mean true click probabilities over the users of a world in its present state, shocks included:
the click rate of a policy in the long run, without the randomness of single clicks. Functions of a history
take the result of `run_experiment` and the name of an agent; they return one number per world, from which an
interval can be computed.
"""

from __future__ import annotations

from itertools import pairwise

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.special import entr

from zoolib._support.checks import as_size
from zoolib.experiments.history import History
from zoolib.world.simulator import ZooplusSimulator, true_ctr_matrix


def policy_value(world: ZooplusSimulator, shown: ArrayLike) -> float:
    """Value of a fixed policy: the mean true click probability of the products that it shows.

    `shown` holds one product for each user, shape (n_users,), or is one product for all.
    """
    return float(np.mean(world.true_ctr(np.arange(world.n_users), shown)))


def random_value(world: ZooplusSimulator) -> float:
    """Value of showing every user a product drawn uniformly at random."""
    return float(true_ctr_matrix(world).mean())


def best_product_value(world: ZooplusSimulator) -> float:
    """Value of showing all users the one product that is best on average."""
    return float(true_ctr_matrix(world).mean(axis=0).max())


def oracle_value(world: ZooplusSimulator) -> float:
    """Value of showing every user a product of highest true click probability: the ceiling."""
    return float(true_ctr_matrix(world).max(axis=1).mean())


def entropy_floor(world: ZooplusSimulator) -> float:
    r"""Smallest possible expected log-loss on uniformly logged clicks, in nats.

    The mean of :math:`-p \log p - (1 - p) \log (1 - p)` over all users and products: even the true
    probabilities have this loss. See Chapter 1, "As good as can be".
    """
    ctr = true_ctr_matrix(world)
    return float((entr(ctr) + entr(1 - ctr)).mean())


def regret(history: History, agent: str) -> NDArray[np.float64]:
    """Cumulative pseudo-regret: the oracle's expected clicks less the agent's, up to each step.

    In expected clicks, shape (world, step).
    """
    i = history.index(agent)
    gap = history.optimal_reward[i] - history.expected_reward[i]
    return gap.cumsum(axis=-1)


def lead(history: History, agent: str, over: str) -> NDArray[np.float64]:
    """Return the expected clicks of one agent minus those of another, up to each step.

    Both saw the same visitors and random numbers, so this is a paired comparison, shape (world, step).
    """
    ours, theirs = (history.expected_reward[history.index(n)] for n in (agent, over))
    return (ours - theirs).cumsum(axis=-1)


def share_of_oracle(
    history: History, agent: str, steps: slice = slice(None)
) -> NDArray[np.float64]:
    """Return the expected clicks of an agent as a share of the oracle's, in each world.

    Parameters
    ----------
    history : History
        From `run_experiment`.
    agent : str
        Name of the agent.
    steps : slice, optional
        Part of the run, for example one of `phases`.

    Returns
    -------
    ndarray, shape (world,)
    """
    i = history.index(agent)
    earned = history.expected_reward[i][:, steps].sum(axis=-1)
    return earned / history.optimal_reward[i][:, steps].sum(axis=-1)


def recent_share(history: History, agent: str, window: int) -> NDArray[np.float64]:
    """Return `share_of_oracle` over the last `window` steps, at each step with so many before it.

    The result has shape (world, n_steps - window + 1); `window` lies in 1 … n_steps.
    """
    i = history.index(agent)
    earned = rolling_mean(history.expected_reward[i], window)
    return earned / rolling_mean(history.optimal_reward[i], window)


def click_rate(
    history: History, agent: str, steps: slice = slice(None)
) -> NDArray[np.float64]:
    """Return the observed clicks per visit of an agent, with arguments as for `share_of_oracle`."""
    return history.reward[history.index(agent)][:, steps].mean(axis=-1)


def phases(history: History) -> list[slice]:
    """Cut a run at its shocks, into slices of steps."""
    return [
        slice(start, stop)
        for start, stop in pairwise([0, *history.shocks, history.n_steps])
        if start < stop
    ]


def rolling_mean(values: ArrayLike, window: int) -> NDArray[np.float64]:
    """Mean of each `window` neighbours along the last axis.

    Values of shape (..., n) have n - window + 1 means, on the last axis; `window` lies in 1 … n.
    """
    values = np.asarray(values, float)
    window = as_size("window", window)
    if values.shape[-1] < window:
        raise ValueError(
            f"window must be at most the {values.shape[-1]} values: got {window}"
        )
    total = np.concatenate((np.zeros((*values.shape[:-1], 1)), values.cumsum(-1)), -1)
    return (total[..., window:] - total[..., :-window]) / window


def recovery_time(
    history: History, agent: str, shock_step: int, visits: int = 50, share: float = 0.9
) -> NDArray[np.float64]:
    """Count the steps from a shock until an agent serves the affected persona well, in each world.

    An agent has recovered when its expected clicks over the persona's last 50 visits since the shock reach
    90 percent of the oracle's. Visits of other personas do not count: a shock does not affect most of the
    traffic, so an agent that ignores it would pass.

    Parameters
    ----------
    history, agent
        As for `share_of_oracle`.
    shock_step : int
        One of the steps in ``history.shocks``.
    visits : int, default 50
        Number of the persona's visits that are averaged.
    share : float, default 0.9
        Share of the oracle's expected clicks that must be reached.

    Returns
    -------
    ndarray, shape (world,)
        Infinity where the agent had not recovered when the next shock came or the run ended.
    """
    if shock_step not in history.shocks:
        raise ValueError(
            f"shock_step must be one of {list(history.shocks)}: got {shock_step}"
        )
    i = history.index(agent)
    persona = history.personas.index(history.shocks[shock_step].persona)
    (phase,) = [one for one in phases(history) if one.start == shock_step]
    times = []
    for w in range(len(history.seeds)):
        came = np.flatnonzero(history.persona[w, phase] == persona)
        earned = history.expected_reward[i, w, phase][came]
        best = history.optimal_reward[i, w, phase][came]
        if len(came) < visits:
            times.append(np.inf)
            continue
        # Exactly the share counts, whatever rounding makes of it.
        wanted = share * rolling_mean(best, visits) - 1e-9
        good = rolling_mean(earned, visits) >= wanted
        times.append(came[visits - 1 :][good.argmax()] + 1 if good.any() else np.inf)
    return np.array(times, float)
