"""A pet shop whose visitors stay for several steps: a product shown now can change what they want next.

In a session, a visitor of one persona has an intent, which is the category she wants now, and a patience that
runs out. Each step shows one product. See the chapter on sessions, "Sessions as a Markov decision process".
"""

from __future__ import annotations

import copy
from collections.abc import Sequence

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import (
    Seed,
    as_flag,
    as_ids,
    as_probability,
    as_seed,
    as_size,
)
from zoolib._support.generators import Uniforms, stream
from zoolib.sessions.mdp import DecisionProcess, as_choices
from zoolib.world.simulator import CATEGORIES, CLICK_PROBABILITIES, ZooplusSimulator

PATIENCE = 4  # initial patience, in failed steps
LAST = 5  # number of items of a session that the shop remembers
OFF_INTENT = 0.4  # factor of the click probability of a category outside the intent
GLOSS = 0.25  # share of those who miss a plain product but click its glossy twin
FADE = 0.5  # probability that patience falls, whatever is shown
STAY = 0.6  # probability that an intent stays, whatever is shown

# Categories that go together: after a click on one, the visitor wants the other.
COMPANIONS = {
    "Dog Food": "Dog Toy",
    "Dog Toy": "Dog Food",
    "Cat Food": "Cat Toy",
    "Cat Toy": "Cat Food",
    "Fish Supplies": "Fish Supplies",
}
N_PERSONAS = len(CLICK_PROBABILITIES)
N_INTENTS = len(CATEGORIES)
N_STATES = N_PERSONAS * N_INTENTS * PATIENCE
_N_LUCK = 5  # uniform numbers per step: click, carry-over, patience, intent, drift
_COMPANION = np.array([CATEGORIES.index(COMPANIONS[c]) for c in CATEGORIES])


class SessionSimulator:
    r"""A pet shop that shows one product a step until its visitor leaves; one world, or W in step.

    A plain product of category :math:`c` is clicked with the probability of the pet shop's table, times
    `OFF_INTENT` if the visitor wants another category now. Its glossy twin also gets the share `GLOSS`
    of the clicks that the plain one misses: clickbait.

    With probability `carry_over`, the next state depends on the product shown. After a click on a plain
    product, the visitor wants the category that goes with it (`COMPANIONS`); after a miss or a click on a
    glossy product, her patience falls by one. Otherwise the product shown has no influence: her patience
    falls with probability `FADE`, and her intent stays with probability `STAY` or is drawn anew. She leaves
    when her patience reaches zero.

    Parameters
    ----------
    n_products : int, default 10
        Size of the catalogue, a multiple of 10; half of the products of each category are glossy.
    seed : int, SeedSequence or Generator, or a sequence of them, default 42
        A single seed makes one world, without a worlds axis; a sequence makes one world per seed. A world's
        seed determines the catalogue, the customers, who are equally likely to come, and the drift of
        intents; a separate stream of random numbers decides the visits.
    carry_over : float, default 1.0
        In [0, 1]; with 0 the product shown has no influence on later steps.
    hidden : bool, default False
        Observe persona and the last five items instead of persona, intent and patience.

    Attributes
    ----------
    category_of_product : ndarray of int, shape (K,) or (W, K)
        Category of each product, as a position in `CATEGORIES`.
    glossy : ndarray of bool, shape (K,) or (W, K)
        Whether each product is clickbait.

    Examples
    --------
    >>> shop = SessionSimulator(seed=42)
    >>> shop.reset()  # persona, intent, patience
    array([0, 2, 4])
    >>> observation, reward, ended = shop.step(0)
    """

    def __init__(
        self,
        n_products: int = 10,
        seed: Seed | Sequence[Seed] = 42,
        carry_over: float = 1.0,
        hidden: bool = False,
    ) -> None:
        self.n_products = as_size("n_products", n_products)
        if self.n_products % (2 * N_INTENTS):
            raise ValueError(
                f"n_products must be a multiple of {2 * N_INTENTS}: got {n_products}"
            )
        self.carry_over = as_probability("carry_over", carry_over)
        self.hidden = as_flag("hidden", hidden)
        self.n_worlds = None if np.ndim(seed) == 0 else len(seed)
        seeds = [seed] if self.n_worlds is None else seed
        self._seeds = [as_seed("seed", one) for one in seeds]
        shops = [ZooplusSimulator(n_products, seed=one) for one in self._seeds]
        self._table = shops[0].click_table
        self._persona_of_user = np.stack([shop.persona_of_user for shop in shops])
        self._category = np.stack([shop.category_of_product for shop in shops])
        # Within a category every second product is glossy.
        alike = self._category[:, None] == self._category[..., None]
        before = alike & np.tri(n_products, k=-1, dtype=bool)
        self._glossy = before.sum(axis=-1) % 2 == 1
        self._click = self._click_probabilities()
        # Initial intents follow each persona's tastes, and drift around them: (4, 5) and (W, 4, 5).
        self._wants = self._table / self._table.sum(axis=1, keepdims=True)
        rngs = [stream(one, "intents") for one in self._seeds]
        self._drift = np.array(
            [[rng.dirichlet(N_INTENTS * row) for row in self._wants] for rng in rngs]
        )
        self.category_of_product = self._one(self._category)
        self.glossy = self._one(self._glossy)
        self._worlds = np.arange(len(shops))
        self._n_copies = 1
        self.reseed(self._seeds)
        self.reset()

    def __repr__(self) -> str:
        seed = self._seeds[0] if self.n_worlds is None else self._seeds
        options = f"carry_over={self.carry_over}, hidden={self.hidden}"
        return f"SessionSimulator({self.n_products}, seed={seed}, {options})"

    @property
    def over(self) -> NDArray[np.bool_]:
        """Whether the session is over, and the next step a reset; shape () or (W,)."""
        return self._one(self._visitor[2] == 0)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Restart the random numbers of the same shops: one seed for all worlds, or one for each."""
        n_streams = len(self._worlds) // self._n_copies
        self._luck = Uniforms(seed, n_streams, "sessions")

    def _next_luck(self) -> NDArray[np.float64]:
        """Return uniform numbers for a step in each world, shape (W, 5)."""
        return self._luck.next(_N_LUCK * self._n_copies).reshape(-1, _N_LUCK)

    def copies(self, n: int) -> SessionSimulator:
        """Return n copies of each world, side by side, as (W n) worlds that draw from its stream."""
        copies = copy.copy(self)
        copies._n_copies = as_size("n", n)
        copies._worlds = np.repeat(self._worlds, n)
        copies.n_worlds = len(copies._worlds)
        copies.reseed(self._seeds)
        copies.reset()
        return copies

    def reset(self) -> NDArray[np.int64]:
        """Start a new session in every world; return the first observation, as `step` does."""
        self._visitor = self._arrive(self._worlds, self._next_luck())
        self._items = np.zeros((len(self._worlds), 2, LAST), np.int64)
        return self.observation()

    def observation(self) -> NDArray[np.int64]:
        """Return the current observation, as `step` does."""
        if not self.hidden:
            return self._one(np.stack(self._visitor, axis=-1))
        items = self._items.reshape(-1, 2 * LAST)
        return self._one(np.column_stack([self._visitor[0], items]))

    def step(
        self, product: ArrayLike
    ) -> tuple[NDArray[np.int64], int | NDArray[np.int64], bool | NDArray[np.bool_]]:
        """Show a product, int or (W,), to the visitor of each world; return the outcome.

        Where a session is `over`, W worlds in step ignore the product and start a new session: reward 0,
        not ended. That step is not a transition, so agents must not learn from it. A single world raises.

        Returns
        -------
        observation : ndarray of int, shape (3,) or (W, 3); hidden (11,) or (W, 11)
            Persona, intent and patience. If hidden: persona, the last five items, newest first, as
            product + 1 or 0 if missing, and whether each was clicked.
        reward, ended : int and bool, or ndarray, shape (W,)
            1 for a click, and whether the visitor left.
        """
        shape = () if self.n_worlds is None else self._worlds.shape
        product = as_ids("product", product, self.n_products, shape).reshape(-1)
        begins = self._visitor[2] == 0
        if self.n_worlds is None and begins.any():
            raise RuntimeError("the session is over: call reset before the next step")
        luck = self._next_luck()
        clicked, after = self._follow(self._worlds, self._visitor, product, luck)
        clicked = clicked & ~begins
        ended = ~begins & (after[2] == 0)
        self._visitor = after
        if self.hidden:
            newest = np.stack([product + 1, clicked], axis=-1)[..., None]
            self._items = np.concatenate([newest, self._items[..., :-1]], axis=-1)
        if begins.any():
            self._visitor = np.where(begins, self._arrive(self._worlds, luck), after)
            self._items[begins] = 0
        if self.n_worlds is None:
            return self.observation(), int(clicked[0]), bool(ended[0])
        return self.observation(), clicked.astype(np.int64), ended

    def state(self, observation: ArrayLike) -> NDArray[np.int64]:
        """Return the state number, in 0 … 79, of an observation that is not hidden; 80 if the session is over.

        Observations have shape (..., 3), and numbers shape (...).
        """
        seen = as_ids("observation", observation, N_STATES, (..., 3))
        return np.where(seen[..., 2] == 0, N_STATES, _number(np.moveaxis(seen, -1, 0)))

    def play(
        self, policy: ArrayLike, n_sessions: int, seed: Seed = 0
    ) -> tuple[NDArray[np.int64], ...]:
        """Play n sessions to their end by a policy that sees states; one world, whose own session waits.

        Parameters
        ----------
        policy : array_like, shape (80,) or (80, K)
            As for `DecisionProcess`.
        n_sessions, seed
            Number of sessions, and the seed of visitors, clicks and choices.

        Returns
        -------
        state, product, reward : ndarray of int, shape (n, T)
            Each session's steps, up to the length T of the longest; after its end, state 80 and zeros.
        """
        if self.n_worlds is not None:
            raise ValueError(f"one world plays sessions: got n_worlds={self.n_worlds}")
        upto = as_choices(policy, (N_STATES, self.n_products)).cumsum(axis=-1)
        n = as_size("n_sessions", n_sessions)
        rng = stream(seed, "sessions")
        world = np.zeros(n, np.int64)
        alive = np.arange(n)
        steps = []
        visitor = self._arrive(world, rng.random((n, 2)))
        while alive.size:
            luck = rng.random((len(alive), _N_LUCK + 1))
            state = _number(visitor)
            product = (luck[:, -1:] >= upto[state, :-1]).sum(axis=-1)
            clicked, visitor = self._follow(world[alive], visitor, product, luck)
            step = np.outer([N_STATES, 0, 0], np.ones(n, np.int64))
            step[:, alive] = state, product, clicked
            steps.append(step)
            stays = visitor[2] > 0
            alive = alive[stays]
            visitor = visitor[:, stays]
        return tuple(np.stack(steps, axis=-1))

    def process(self) -> DecisionProcess:
        """Return the decision process of the worlds, with exact probabilities instead of estimates.

        Shapes are (80, K, 80), (80, K) and (80,), after an axis W with worlds.
        """
        n_worlds, n_products = self._category.shape
        shape = (n_worlds, N_PERSONAS, N_INTENTS, PATIENCE)
        click = self._click
        intents = np.eye(N_INTENTS)
        drift = STAY * intents + (1 - STAY) * self._drift[:, :, None]
        own = (1 - self.carry_over) * drift[..., None, :]
        # A plain click, which keeps patience, and where it leads: (W, 4, 5, K, 5)
        found = self.carry_over * click * ~self._glossy[:, None, None]
        found = found[..., None] * intents[_COMPANION[self._category]][:, None, None]
        missed = self.carry_over - found.sum(axis=-1, keepdims=True)
        stays = (1 - FADE) * own + found
        falls = FADE * own + missed * intents[:, None]
        moves = np.zeros((*shape, n_products, *shape[1:]))
        for g, m in np.ndindex(N_PERSONAS, PATIENCE):
            moves[:, g, :, m, :, g, :, m] = stays[:, g]
            if m > 0:
                moves[:, g, :, m, :, g, :, m - 1] = falls[:, g]
        reward = np.broadcast_to(click[:, :, :, None], (*shape, n_products))
        personas = np.arange(N_PERSONAS)[:, None, None]
        shares = (self._persona_of_user == personas).mean(axis=-1).T
        start = np.zeros(shape)
        start[..., -1] = shares[..., None] * self._wants
        return DecisionProcess(
            self._one(moves.reshape(n_worlds, N_STATES, n_products, N_STATES)),
            self._one(reward.reshape(n_worlds, N_STATES, n_products)),
            self._one(start.reshape(n_worlds, N_STATES)),
        )

    def _one(self, array: NDArray) -> NDArray:
        """Drop the worlds axis of a single world."""
        return array[0] if self.n_worlds is None else array

    def _click_probabilities(self) -> NDArray[np.float64]:
        """Return click probabilities (W, 4, 5, K)."""
        category = self._category[:, None, None]
        glossy = self._glossy[:, None, None]
        plain = np.moveaxis(self._table[:, self._category], 0, 1)[:, :, None]
        wanted = category == np.arange(N_INTENTS)[:, None]
        plain = np.where(wanted, plain, OFF_INTENT * plain)
        return np.where(glossy, plain + GLOSS * (1 - plain), plain)

    def _arrive(self, world: NDArray, luck: NDArray) -> NDArray[np.int64]:
        """Return persona, intent and patience of n new visitors, (3, n), from uniform numbers (n, 2)."""
        user = (luck[:, 0] * self._persona_of_user.shape[1]).astype(np.int64)
        persona = self._persona_of_user[world, user]
        intent = _drawn(self._table[persona], luck[:, 1])
        return np.stack([persona, intent, np.full(len(user), PATIENCE)])

    def _follow(
        self, world: NDArray, visitor: NDArray, product: NDArray, luck: NDArray
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64]]:
        """Return clicks (n,), and persona, intent and patience then (3, n), of n visitors with luck (n, 5)."""
        persona, intent, patience = visitor
        clicked = luck[:, 0] < self._click[world, persona, intent, product]
        found = clicked & ~self._glossy[world, product]
        shops = luck[:, 1] < self.carry_over
        falls = luck[:, 2] < FADE
        patience = patience - np.where(shops, ~found, falls)
        led = np.where(found, _COMPANION[self._category[world, product]], intent)
        drifts = _drawn(self._drift[world, persona], luck[:, 4])
        own = np.where(luck[:, 3] < STAY, intent, drifts)
        intent = np.where(shops, led, own)
        return clicked, np.stack([persona, intent, patience])


def _number(visitor: NDArray) -> NDArray[np.int64]:
    """Return the numbers of states, from persona, intent and a patience of 1 or more."""
    persona, intent, patience = visitor
    return (persona * N_INTENTS + intent) * PATIENCE + patience - 1


def _drawn(weights: NDArray, luck: NDArray) -> NDArray[np.int64]:
    """Draw a column for each row of weights (n, m) by a uniform number (n,)."""
    upto = weights.cumsum(axis=-1)
    return (luck[:, None] * upto[:, -1:] >= upto).sum(axis=-1)


def best_on_last_category(shop: SessionSimulator, *, climb: bool = False) -> float:
    """Return the value of the best deterministic policy that sees only the persona and the last category.

    In one world, all such policies are tried for each persona: a first product, and a plain or glossy product
    for each category that may have been shown last, about a hundred thousand policies. With `climb` one or
    two products are changed at a time as long as that earns more: quick, and a lower bound.
    """
    process = shop.process()
    shape = (N_PERSONAS, N_INTENTS, PATIENCE)
    # Positions of one plain and one glossy product of each category.
    kind = 2 * shop.category_of_product + shop.glossy
    ten = np.unique(kind, return_index=True)[1]
    moves = process.transition.reshape(*shape, -1, *shape)[:, :, :, ten]
    reward = process.reward.reshape(*shape, -1)[:, :, 0, ten].swapaxes(1, 2)
    start = process.start.reshape(shape)[..., -1]
    policies = np.indices([len(ten)] * N_INTENTS).reshape(N_INTENTS, -1).T
    total = 0.0
    for g in range(N_PERSONAS):
        # Moves (product, intent, next intent) to the same patience and to one less, the same at each level.
        stay, fall = (moves[g, :, 1, :, g, :, m].swapaxes(0, 1) for m in (1, 0))
        world = reward[g], stay, fall, start[g]
        if climb:
            best = -np.inf
            tried = policies[:1]
            while (values := _best_start(tried, *world)).max() > best:
                best = values.max()
                policy = tried[values.argmax()]
                tried = policies[(policies != policy).sum(axis=1) <= 2]
        else:
            parts = np.array_split(policies, 50)
            best = max(np.max(_best_start(part, *world)) for part in parts)
        total += best
    return float(total)


def _best_start(
    shown: NDArray, reward: NDArray, stay: NDArray, fall: NDArray, start: NDArray
) -> NDArray[np.float64]:
    """Return the value of policies (n, last category), each with its best first product, shape (n,)."""
    category = np.arange(len(reward)) // 2
    after = np.eye(N_INTENTS)[category[shown]]  # (n, last category, next last category)
    pairs = len(shown), N_INTENTS**2, N_INTENTS**2  # of last category and intent
    stays, falls = (
        np.einsum("nlij,nlk->nlikj", moves[shown], after).reshape(pairs)
        for moves in (stay, fall)
    )
    inverse = np.linalg.inv(np.eye(N_INTENTS**2) - stays)
    earned = reward[shown].reshape(*pairs[:2], 1)
    value = np.zeros_like(earned)
    for _ in range(PATIENCE):
        less = value
        value = inverse @ (earned + falls @ value)
    # The reward of the first product, whose category is then the last category.
    first = reward
    for moves, then in ((stay, value), (fall, less)):
        then = then.reshape(-1, N_INTENTS, N_INTENTS)[:, category]
        first = first + np.einsum("kij,nkj->nki", moves, then)
    return (first @ start).max(axis=-1)
