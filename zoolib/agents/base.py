"""The interface of agents: an agent sees a context, shows one arm, and learns from that arm's reward.

An agent plays one world, or W worlds in step. With W worlds each array has a leading axis W, and each world
has its own generator for the agent's random numbers.
"""

from __future__ import annotations

import copy
from collections.abc import Hashable, Iterator, Sequence
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, DTypeLike, NDArray

from zoolib._support.checks import (
    Seed,
    as_array,
    as_flags,
    as_ids,
    as_real,
    as_seeds,
    as_size,
    warn,
)
from zoolib._support.generators import Uniforms
from zoolib._support.labels import Labels, as_objects
from zoolib._support.state import Stateful
from zoolib._support.tables import (
    column_labels,
    in_order,
    rows_in_order,
    same_rows,
    unmasked,
)
from zoolib.agents.policies import best_of_normals, greedy, leaves_an_arm, tied

# Draws for all visitors whose propensities are computed at once.
MOST_DRAWN = 20_000


class Context:
    """The input of a decision: the visitor, the arms on offer, and the features of both.

    Features come in two forms. With one row per arm, (n_arms, d), which describes the arm for this
    visitor, a single shared model can tell the arms apart. One row for the visitor, (d,), is the same for
    every arm, so each arm needs its own model. See "Quickstart" in the part "Your own shop".

    Parameters
    ----------
    user_id : hashable, or None, or a list or array of n of them
        The visitor; few agents use it. A list, or a column of a table, makes n decisions at once; agents
        that play W worlds in step take one visitor for each world.
    features : array_like
        Rows for the arms, shape (n_arms, d), or one row for the visitor, shape (d,); for several
        visitors (n, n_arms, d) or (n, d). Without ids, three axes mean several visitors. The array is not
        copied, so do not change it afterwards. Of a table agents read the labels: columns, or the entries of
        a single row, are named after features, and rows for a single visitor after arms.
    arms : sequence of hashable, optional
        Labels of the arms on offer, in any order; all arms if omitted.
    offered : array_like of bool, shape (n_arms,) or (n, n_arms), optional
        The same as a mask, which may differ between visitors; a table's columns, or a single row's
        entries, are named after arms. There is a row for each arm, on offer or not; what the rows of the
        others hold is never read.

    Attributes
    ----------
    features : ndarray, shape (n_arms, d) or (n, n_arms, d)
        With a single row instead of n_arms if the features describe only the visitor.
    offered : ndarray of bool, shape (n_arms,) or (n, n_arms), or None
    names, offered_names : tuple, or None
        The names of features, and of the arms in `offered`, if they came in a table.
    user_id, arms
        As given; several visitors as an array, and labels of arms or None.

    Examples
    --------
    >>> Context(0, np.eye(3)).features.shape
    (3, 3)
    >>> Context("session-5", [0.3, 1.0]).features.shape
    (1, 2)
    """

    # The arms of the agent that has put this copy in its order and hands it on to its own methods.
    _checked_for: Labels | None = None

    def __init__(
        self,
        user_id: Hashable | ArrayLike,
        features: ArrayLike,
        arms: Sequence[Hashable] | None = None,
        offered: ArrayLike | None = None,
    ) -> None:
        self.names = self.row_labels = None
        self.arms = self.offered = self.offered_names = None
        visitors = _visitors(user_id)
        lead = visitors.shape if isinstance(visitors, np.ndarray) else ()
        if type(features) is not np.ndarray:
            self.names = column_labels(features)
            if lead or np.ndim(features) == 2:
                self.row_labels = same_rows(user_id=user_id, features=features)
        # Rows of arms that are not on offer may hold anything: agents know which, and check the others.
        read = as_array if arms is None and offered is None else as_real
        features = read("features", features, None)
        if lead == features.shape == (0,):  # lists of no visitors
            features = features.reshape(0, 1, 0)
        if visitors is None and features.ndim == 3:
            lead = features.shape[:1]
        if features.ndim == len(lead) + 1:
            features = features[..., None, :]
        if features.ndim != len(lead) + 2 or features.shape[:-2] != lead:
            raise ValueError(
                "features must have shape (n_arms, d) or (d,) for one user_id, and (n, n_arms, d) or "
                f"(n, d) for n of them: got shapes {features.shape} and {lead}"
            )
        if arms is not None and offered is not None:
            raise ValueError("give arms or offered: got both")
        if arms is not None:
            self.arms = Labels("arms", arms)
        if offered is not None:
            same_rows(context=self, offered=offered if np.ndim(offered) == 2 else None)
            self.offered_names = column_labels(offered)
            self.offered = as_flags(
                "offered", offered, (*lead, *np.shape(offered)[-1:])
            )
        self.user_id = visitors
        self.features = features

    def row(self, at: tuple) -> NDArray:
        """Return the features (..., d) of the arm at an index into (..., K), or the visitor's alone."""
        one_row = self.features.shape[-2] == 1
        return self.features[(*at[:-1], 0) if one_row else at]

    def of_world(self, w: int | slice) -> Context:
        """Return the context of one of the worlds or visitors, without that axis, or of a slice of them."""
        one = copy.copy(self)
        one.row_labels = None  # were those of the visitors
        if not isinstance(w, slice):
            one._checked_for = None  # one world fits other agents than all of them do
        for name, array in vars(self).items():
            if isinstance(array, np.ndarray):
                setattr(one, name, array[w])
        return one


class Agent(Stateful):
    """Base class of all agents: it chooses the arm of highest score, breaks ties at random, and checks input.

    A subclass adds `scores`; if scores are random, also `draws`, of the same distribution; and if it learns,
    `learn`. If its scores are independent normal numbers, `_independent` may return their moments. If it does
    not always show the highest score, it overrides `choose` and, with the probabilities of that choice,
    `_policy`: one without the other makes logged propensities lie. `select`, `propensities` and `update` check
    the context, and hand the checked one on.

    It lists in `_learns` the attributes that change, and keeps each argument of its constructor as an
    attribute of the same name: `repr`, `state` and `save` rely on both. The library's agents are dataclasses,
    so they inherit their settings, each declared with its check.

    Parameters
    ----------
    n_arms : int, or sequence of hashable
        Number of arms K, or their labels: then `select` returns a label, and `update` takes one.
    n_worlds : int, optional
        Number of worlds W played in step. If omitted, there is no worlds axis, and a context of n
        visitors asks for n decisions; the agent learns nothing between them.
    seed : int, SeedSequence or Generator, or a sequence of them, default 0
        Seed of the agent's random numbers; with worlds, one for all or one for each.
    n_features : int, optional
        Number d of features that contexts must have; any number if omitted.

    Attributes
    ----------
    arms : sequence
        The labels, or 0, 1, …, K - 1.
    feature_names : tuple, or None
        The names of features in the first table that the agent learnt from. Later tables are read by them.
    """

    _purpose = "agent"  # of the random numbers: see `generators.STREAMS`
    _learns = ("_uniforms",)
    dtype: DTypeLike = np.float64  # of the rows of features that its models read
    shared = False  # whether one model serves all arms and tells them apart by their rows of features
    _warned = False
    feature_names: tuple[Hashable, ...] | None = None

    def __init__(
        self,
        n_arms: int | Sequence[Hashable],
        n_worlds: int | None = None,
        seed: Seed | Sequence[Seed] = 0,
        n_features: int | None = None,
    ) -> None:
        self.arms = Labels("n_arms", n_arms)
        self.n_arms = len(self.arms)
        self.n_worlds = None if n_worlds is None else as_size("n_worlds", n_worlds)
        # The index of all worlds, placed before the index of an arm; empty without a worlds axis.
        self._worlds = () if n_worlds is None else (np.arange(self.n_worlds),)
        self._shape = (*map(len, self._worlds), self.n_arms)
        self.n_features = (
            None if n_features is None else as_size("n_features", n_features)
        )
        self.reseed(seed)

    def __post_init__(self) -> None:
        super().__post_init__()
        Agent.__init__(self, self.n_arms, self.n_worlds, self.seed, self.n_features)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Restart the random numbers: one seed, or one for each world."""
        seeds = as_seeds("seed", seed, self.n_worlds)
        self.seed = seeds[0] if np.ndim(seed) == 0 else seeds
        self._seeds = seeds
        self._uniforms = Uniforms(seeds, self.n_worlds, self._purpose)

    def scores(self, context: Context) -> NDArray:
        """Return the scores that `select` maximises, one per arm, shape (K,), (n, K) or (W, K).

        Scores of arms that are not on offer mean nothing.
        """
        raise NotImplementedError(f"{type(self).__name__} scores no arms")

    def select(self, context: Context) -> Hashable | NDArray:
        """Choose the arm to show.

        Parameters
        ----------
        context : Context

        Returns
        -------
        int or label, or ndarray of them, shape (n,) or (W,)
            An arm on offer of highest score. Scores that differ only by rounding are ties, broken at
            random.
        """
        return self.arms.of(self.choose(context))

    def choose(self, context: Context) -> int | NDArray[np.int64]:
        """Return the position of the arm that `select` returns."""
        context = self._check(context)
        scores = self._on_offer(context, self.scores(context))
        return self._best(scores, self._uniforms.next(self._n_visitors(context)))

    def draws(self, context: Context, n: int) -> NDArray:
        """Return n draws of the scores, along a new first axis.

        If the scores can take only a few values, all equally likely, each of them is returned once
        instead. Here there is just one.
        """
        return self.scores(context)[None]

    def propensities(
        self,
        context: Context,
        allowed: ArrayLike | None = None,
        n_draws: int = 100,
    ) -> NDArray[np.float64]:
        r"""Return the probability with which `select` chooses each arm.

        If the scores are independent normal numbers, as in Thompson sampling with one model per arm, the
        probabilities come from quadrature: see `best_of_normals`. Otherwise each is the share of draws that
        the arm wins, with a standard error of :math:`\sqrt{p (1 - p) / n}`. To log exact propensities,
        sample the arm from these probabilities: see Chapter 6, "Log, then show".

        Parameters
        ----------
        context : Context
        allowed : array_like of bool, shape (n_arms,), (n, n_arms) or (W, n_arms), optional
            The arms that may be chosen, of those on offer; all of them if omitted.
        n_draws : int, default 100
            Number of draws, if draws are needed.

        Returns
        -------
        ndarray, shape (n_arms,), (n, n_arms) or (W, n_arms)
            Probabilities, which sum to 1 for each decision.
        """
        context = self._check(context)
        allowed = self._mask(context, allowed)
        n_draws = as_size("n_draws", n_draws)
        n = self._n_visitors(context)
        at_once = max(1, MOST_DRAWN // n_draws)
        if n is not None and n > at_once:
            parts = [slice(i, i + at_once) for i in range(0, n, at_once)]
            each = [(context.of_world(part), allowed[part]) for part in parts]
            return np.concatenate([self._policy(*one, n_draws) for one in each])
        return self._policy(context, allowed, n_draws)

    def _policy(
        self, context: Context, allowed: NDArray[np.bool_], n_draws: int
    ) -> NDArray[np.float64]:
        """Return the propensities of a few visitors, after checks."""
        if (normal := self._independent(context)) is not None:
            return best_of_normals(*normal, allowed)
        draws = self.draws(context, n_draws)
        return greedy(np.where(allowed, draws, -np.inf)).mean(axis=0)

    def _independent(self, context: Context) -> tuple[NDArray, NDArray] | None:
        """Return means and standard deviations of the scores if they are independent normal numbers."""
        return None

    def update(self, context: Context, arm: ArrayLike, reward: ArrayLike) -> None:
        """Learn from the reward of the arm that was played.

        Parameters
        ----------
        context : Context
            The context in which the arm was chosen.
        arm : int or label, or array_like of them, shape (n,) or (W,)
            The arm that was shown.
        reward : float, or array_like, shape (n,) or (W,)
            Its reward.
        """
        seen = self._check(context)
        offered = seen.offered
        lead = seen.features.shape[:-2]
        if lead:  # a single visit has no rows to be in another order
            same_rows(context=context, arm=arm, reward=reward)
        arm = self.arms.places("arm", arm, lead)
        reward = as_array("reward", reward, lead)
        if (
            offered is not None
            and not np.take_along_axis(offered, arm[..., None], axis=-1).all()
        ):
            raise ValueError(
                f"arm must be one of those on offer: got {self.arms.of(arm)!r}"
            )
        if not lead:
            self.learn(seen, (int(arm),), float(reward))
        elif self._worlds:
            self.learn(seen, (*self._worlds, arm), reward)
        else:
            self._learn_many(seen, arm, reward)
        self._remember(seen.names)

    def update_many(
        self, features: ArrayLike, arms: ArrayLike, rewards: ArrayLike
    ) -> None:
        """Learn from a log of n rows, one after the other, or all at once if their order does not matter.

        Linear agents without forgetting and without a link learn all rows at once; the result differs from
        learning row by row only by rounding. Other agents replay the log.

        Parameters
        ----------
        features : array_like, shape (n, d)
            Features of the arms that were shown.
        arms : array_like of int or labels, shape (n,)
            The arms that were shown.
        rewards : array_like, shape (n,)
            Their rewards.
        """
        log = self._log(features, arms, rewards)
        self._learn_many(*log)
        self._remember(log[0].names)

    def _log(
        self, features: ArrayLike, arms: ArrayLike, rewards: ArrayLike
    ) -> tuple[Context, NDArray[np.int64], NDArray]:
        """Return a log of n rows, checked: a context of the rows, arms as positions, and rewards."""
        if self._worlds:
            raise ValueError(
                f"a log is learnt by an agent of one world: got n_worlds={self.n_worlds}"
            )
        same_rows(features=features, arms=arms, rewards=rewards)
        rows, names = self._by_name("features", features, "n")
        arms = self.arms.places("arms", arms, rows.shape[:1])
        seen = Context(None, rows[:, None])
        seen.names = names
        return seen, arms, as_array("rewards", rewards, arms.shape)

    def learn(self, context: Context, at: tuple, reward: ArrayLike) -> None:
        """Learn from a checked reward; `at` is the index of the arm played in arrays (K, …) or (W, K, …).

        Its features are `context.row(at)`; those of other arms need not be there.
        """

    def _learn_many(
        self, seen: Context, arms: NDArray[np.int64], rewards: NDArray
    ) -> None:
        """Learn from n checked rewards, in their order, or from none of them."""
        log = enumerate(zip(arms.tolist(), rewards.tolist(), strict=True))
        with self._unchanged_on_failure():
            for i, (arm, reward) in log:
                self.learn(seen.of_world(i), (arm,), reward)

    def _remember(self, names: tuple[Hashable, ...] | None) -> None:
        """Keep the names of the first table that was learnt."""
        if self.feature_names is None and names is not None:
            self.feature_names = names

    def _by_name(
        self, name: str, table: ArrayLike, *lead: object
    ) -> tuple[NDArray, tuple[Hashable, ...] | None]:
        """Return checked rows of features in the order that was learnt, and the names of a table's columns."""
        names = column_labels(table)
        order = in_order(name, names, self.feature_names)
        shape = (*lead, "d" if self.n_features is None else self.n_features)
        return as_array(name, table, shape)[..., order], names

    def state(self) -> dict[str, Any]:
        """Return all that the agent needs to continue."""
        state = super().state()
        if self.feature_names is not None:
            state["learned"]["feature_names"] = list(self.feature_names)
        return state

    def _restore(self, learned: dict[str, Any]) -> None:
        super()._restore(learned)
        if "feature_names" in learned:  # which agents without names do not have
            names = tuple(Labels("feature_names", learned["feature_names"]))
            if self.n_features not in (None, len(names)):
                raise ValueError(
                    f"feature_names must be {self.n_features}: got {len(names)}"
                )
            self.feature_names = names

    def restock(self, arms: NDArray[np.int64]) -> None:
        """React to a change of stock: these arms, shape (n,) or (W, n), now hold other products."""
        as_ids("arms", arms, self.n_arms, (*self._shape[:-1], "n"))

    @classmethod
    def _n_models(cls, settings: dict[str, Any]) -> int:
        """Return the number of models of an agent with these settings."""
        arms = settings["n_arms"]
        arms = arms if isinstance(arms, int) else len(arms)
        shared = settings.get("shared", cls.shared)
        return (settings["n_worlds"] or 1) * (1 if shared else arms)

    def _setting(self, name: str) -> Any:
        return self.arms.setting() if name == "n_arms" else super()._setting(name)

    def _on_offer(self, context: Context, scores: NDArray) -> NDArray:
        """Return the scores (..., K), minus infinity for arms that a checked context does not offer."""
        offered = context.offered
        return scores if offered is None else np.where(offered, scores, -np.inf)

    def _mask(self, context: Context, allowed: ArrayLike | None) -> NDArray[np.bool_]:
        """Return which arms a checked context offers and `allowed` lets pass: all if None."""
        shape = (*context.features.shape[:-2], self.n_arms)
        offered = np.ones(shape, bool) if context.offered is None else context.offered
        if allowed is None:
            return offered
        same_rows(context=context, allowed=allowed if np.ndim(allowed) == 2 else None)
        order = in_order("allowed", column_labels(allowed), self.arms[:])
        allowed = as_flags("allowed", allowed, shape)[..., order]
        return leaves_an_arm("allowed", allowed & offered)

    def _rows(self, context: Context) -> NDArray:
        """Return the features, checked; warn, once, if one model for all arms cannot tell them apart."""
        rows = self._check(context).features
        if self.shared and not self._warned and rows.size and rows.shape[-2] > 1:
            first = rows[..., :1, :]
            last = rows[..., -1:, :]
            self._warned = bool((first == last).all() and (first == rows).all())
            if self._warned:
                warn(
                    f"all arms have equal features, and {type(self).__name__} has one model for them, which "
                    "cannot tell them apart: give each arm features of its own, or take a model for each arm "
                    "(shared=False)"
                )
        return rows.astype(self.dtype, copy=False)

    def _at(self, arms: NDArray[np.int64]) -> tuple[NDArray, ...]:
        """Return the index of several arms, (n,) or (W, n), in arrays (K, …) or (W, K, …)."""
        return (*(world[:, None] for world in self._worlds), arms)

    def _normals(
        self, context: Context | None, n: int, size: int
    ) -> NDArray[np.float64]:
        """Return n times `size` standard normal numbers for each decision, shape (n, *lead, size)."""
        visitors = self._n_visitors(context)
        many = 1 if visitors is None else visitors
        drawn = self._uniforms.normals(many * n * size)
        lead = drawn.shape[:-1] if visitors is None else (visitors,)
        return np.moveaxis(drawn.reshape(*lead, n, size), -2, 0)

    def _n_visitors(self, context: Context | None) -> int | None:
        """Return the number of visitors in this one world; None for a single visitor, or with worlds."""
        many = context is not None and context.features.ndim == 3 and not self._worlds
        return len(context.features) if many else None

    def _best(self, scores: NDArray, uniform: NDArray) -> int | NDArray[np.int64]:
        """Return the arm of highest score (..., K); a uniform number (...) decides between ties."""
        best = scores.argmax(axis=-1)
        ties = tied(scores)
        if np.count_nonzero(ties) > best.size:
            # Number the ties 1, 2, …; the uniform number selects one of them.
            number = ties.cumsum(axis=-1)
            named = (uniform * number[..., -1]).astype(int)
            best = (number > named[..., None]).argmax(axis=-1)
        return best if best.ndim else int(best)

    def _check(self, context: Context) -> Context:
        """Return a context that fits this agent's arms and worlds, with a mask of what is on offer."""
        if not isinstance(context, Context):
            raise TypeError(
                "context must be a Context, such as Context(user_id, features): "
                f"got {type(context).__name__}"
            )
        if context._checked_for is self.arms:
            return context
        shape = context.features.shape
        lead = shape[:-2]
        n, width = shape[-2:]
        worlds = self._shape[:-1]
        k = self.n_arms
        d = self.n_features
        if shape == (0, 1, 0) and not worlds:  # of no visitors, from a list
            context = copy.copy(context)
            context.features = np.zeros((0, k, d or 0))
            return context
        if n not in (1, k) or d not in (None, width) or (worlds and lead != worlds):
            wanted = (*(worlds or ("n",) * len(lead)), k, "d" if d is None else d)
            got = shape
            hint = ""
            if n == 1 < k and not self.shared:  # a single row for the visitor, as given
                wanted = (*wanted[:-2], wanted[-1])
                got = (*lead, width)
            elif n not in (1, k) and context.user_id is None and not lead:
                hint = ". Several visitors need their ids, as a list"
            shapes = f"{wanted}: got {got}".replace("'", "")
            raise ValueError(f"context.features must have shape {shapes}{hint}")
        if self.shared and n < k:
            raise ValueError(
                f"context.features must have a row for each of {k} arms: got one, what is known of the visitor "
                "alone, by which one model for all arms would score all of them alike. Give rows of "
                "(n_arms, d), for example products of the visitor's and the arm's features, or take a model "
                "for each arm (shared=False)"
            )
        labelled = context.names is not None or context.row_labels is not None
        displayed = context.arms is not None or context.offered is not None
        if labelled or displayed:
            context = copy.copy(context)
            context._checked_for = self.arms
        if labelled:
            self._put_in_order(context)
        if displayed:
            self._put_on_display(context)
        return context

    def _put_in_order(self, seen: Context) -> None:
        """Give features and rows the agent's order, by their labels."""
        order = in_order("context.features", seen.names, self.feature_names)
        seen.features = seen.features[..., order]
        seen.names = self.feature_names or seen.names
        if seen.features.ndim == 2:
            order = rows_in_order("context.features", seen.row_labels, self.arms[:])
            seen.features = seen.features[order]
            seen.row_labels = None

    def _put_on_display(self, seen: Context) -> None:
        """Add a mask of the arms on offer, and zeros in the rows of others."""
        name = "context.offered"
        shape = (*seen.features.shape[:-2], self.n_arms)
        if seen.arms is not None:
            places = self.arms.places("context.arms", seen.arms[:])
            seen.arms = None
            seen.offered = np.isin(np.arange(self.n_arms), places)
        order = in_order(name, seen.offered_names, self.arms[:])
        offered = as_flags(name, seen.offered, shape)[..., order]
        seen.offered = leaves_an_arm(name, offered)
        seen.offered_names = None  # it has the agent's order now
        if seen.features.shape[-2] > 1:
            seen.features = np.where(seen.offered[..., None], seen.features, 0)
        seen.features = as_array("context.features", seen.features)


def _visitors(user_id: Hashable | ArrayLike) -> Hashable | NDArray:
    """Return a single visitor unchanged, or several as an array with one axis."""
    if isinstance(user_id, list):
        whole = all(isinstance(one, int | np.integer) for one in user_id)
        user_id = (
            np.array(user_id, None if user_id else int)
            if whole
            else as_objects(user_id)
        )
    elif hasattr(user_id, "__array__") and not isinstance(user_id, np.generic):
        user_id = np.asarray(unmasked("user_id", user_id))  # also a table's column
    if isinstance(user_id, np.ndarray):
        if user_id.ndim > 1:
            raise ValueError(
                f"user_id must be one visitor or a list of them: got shape {user_id.shape}"
            )
        return user_id if user_id.ndim else user_id.item()
    try:
        hash(user_id)
        if isinstance(user_id, Iterator):
            raise TypeError
    except TypeError:
        raise TypeError(
            f"user_id must be hashable, None, or a list or array of visitors: got {user_id!r:.100}"
        ) from None
    return user_id
