"""A pet shop whose visitors stay a while: what is shown now changes what they want next.

A session is a visitor of one persona with an intent, the category that she wants now, and a patience that
runs out. One product is shown a step. See Chapter 7, "A shop that remembers".
"""

from __future__ import annotations

import copy
from collections.abc import Sequence
from itertools import product as every

import numpy as np
from numpy.typing import ArrayLike, NDArray

from zoolib._support.checks import Seed, as_ids, as_probability, as_seed, as_size
from zoolib._support.generators import Uniforms, stream
from zoolib.world.mdp import DecisionProcess
from zoolib.world.simulator import CATEGORIES, CLICK_PROBABILITIES, ZooplusSimulator

PATIENCE = 4  # steps that can go wrong
LAST = 5  # items that the shop remembers of a session
OFF_INTENT = 0.4  # factor of the click probability of a category that is not wanted now
GLOSS = (
    0.25  # share of the visitors not taken by a plain product who click its glossy twin
)
FADE = 0.5  # probability that patience falls by itself
STAY = 0.6  # probability that an intent stays by itself

# What goes with what: found the one, she wants the other.
COMPANIONS = {
    "Dog Food": "Dog Toy",
    "Dog Toy": "Dog Food",
    "Cat Food": "Cat Toy",
    "Cat Toy": "Cat Food",
    "Fish Supplies": "Fish Supplies",
}
N_PERSONAS, N_INTENTS = len(CLICK_PROBABILITIES), len(CATEGORIES)
N_STATES = N_PERSONAS * N_INTENTS * PATIENCE
_N_LUCK = 5  # uniform numbers a step: click, whose doing, patience, intent, drift
_COMPANION = np.array([CATEGORIES.index(COMPANIONS[c]) for c in CATEGORIES])


class SessionSimulator:
    r"""A pet shop that shows one product a step until its visitor leaves; one world, or W in step.

    A plain product of category :math:`c` is clicked with the probability of the pet shop's table, times
    `OFF_INTENT` if the visitor wants another category now. Its glossy twin also gets the share `GLOSS`
    of the clicks that the plain one misses: clickbait.

    With probability `carry_over`, what follows is the shop's doing. After the click on a plain product,
    the visitor wants what goes with it (`COMPANIONS`); after a miss or the click on a glossy one, her
    patience falls by one. Otherwise she goes her own way, whatever was shown: her patience falls with
    probability `FADE`, and her intent stays with probability `STAY` or is drawn anew. She leaves when her
    patience is used up.

    Parameters
    ----------
    n_products : int, default 10
        Size of the catalogue, a multiple of 10: half of each category is glossy.
    n_users : int, default 1000
        Number of customers; each session is one of them, drawn uniformly.
    seed : int, SeedSequence or Generator, or a sequence of them, default 42
        One seed makes one world, without a worlds axis; a sequence one world for each. A world's seed
        draws catalogue and customers like the pet shop's, then where intents drift; the visitors' luck is a
        stream of its own.
    carry_over : float, default 1.0
        In [0, 1]: 0 if what is shown changes nothing later.
    hidden : bool, default False
        Observe persona and the last five items instead of persona, intent and patience.

    Attributes
    ----------
    category_of_product : ndarray of int, shape (K,) or (W, K)
        Places in `CATEGORIES`.
    glossy : ndarray of bool, shape (K,) or (W, K)
        Which products are clickbait.
    over : ndarray of bool, shape () or (W,)
        Where the session has ended, so that the next step of this world is a reset.

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
        n_users: int = 1000,
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
        self.hidden = bool(hidden)
        self.n_worlds = None if np.ndim(seed) == 0 else len(seed)
        seeds = [seed] if self.n_worlds is None else seed
        self._seeds = [as_seed("seed", one) for one in seeds]
        shops = [ZooplusSimulator(n_products, n_users, one) for one in self._seeds]
        self._table = shops[0].click_table
        self._persona_of_user = np.stack([shop.persona_of_user for shop in shops])
        self._category = np.stack([shop.category_of_product for shop in shops])
        # Of the products of a category, every other one is glossy.
        alike = self._category[:, None] == self._category[..., None]
        before = alike & np.tri(n_products, k=-1, dtype=bool)
        self._glossy = before.sum(axis=-1) % 2 == 1
        self._click = self._click_probabilities()
        # Intents drift around each persona's tastes: (W, 4, 5).
        wants = self._table / self._table.sum(axis=1, keepdims=True)
        rngs = [stream(one, "intents") for one in self._seeds]
        self._drift = np.array(
            [[rng.dirichlet(N_INTENTS * row) for row in wants] for rng in rngs]
        )
        self.category_of_product = self._one(self._category)
        self.glossy = self._one(self._glossy)
        self._worlds, self._n_copies = np.arange(len(shops)), 1
        self.reseed(self._seeds)
        self.reset()

    @property
    def over(self) -> NDArray[np.bool_]:
        """Where the session has ended, shape () or (W,)."""
        return self._one(self._patience == 0)

    def reseed(self, seed: Seed | Sequence[Seed]) -> None:
        """Begin new luck, for the same shops: one seed for all worlds, or one for each."""
        n_streams = len(self._worlds) // self._n_copies
        self._luck = Uniforms(seed, n_streams, "sessions")

    def _next_luck(self) -> NDArray[np.float64]:
        """Return uniform numbers for a step in each world, shape (W, 5)."""
        return self._luck.next(_N_LUCK * self._n_copies).reshape(-1, _N_LUCK)

    def copies(self, n: int) -> SessionSimulator:
        """Return each world n times, side by side, as (W n) worlds; those of one share its stream of luck."""
        copies = copy.copy(self)
        copies._n_copies = as_size("n", n)
        copies._worlds = np.repeat(self._worlds, n)
        copies.n_worlds = len(copies._worlds)
        copies.reseed(self._seeds)
        copies.reset()
        return copies

    def reset(self) -> NDArray[np.int64]:
        """Let a new visitor come, in every world; return the first observation, as `step` does."""
        shape = self._worlds.shape
        self._persona, self._intent, self._patience = np.zeros((3, *shape), np.int64)
        self._items = np.zeros((*shape, LAST), np.int64)
        self._clicks = np.zeros((*shape, LAST), np.int64)
        self._begin(np.ones(shape, bool), self._next_luck())
        return self.observation()

    def observation(self) -> NDArray[np.int64]:
        """Return what the shop sees now, as `step` does."""
        if self.hidden:
            seen = (self._persona[:, None], self._items, self._clicks)
            return self._one(np.concatenate(seen, axis=-1))
        seen = (self._persona, self._intent, self._patience)
        return self._one(np.stack(seen, axis=-1))

    def step(
        self, product: ArrayLike
    ) -> tuple[NDArray[np.int64], int | NDArray[np.int64], bool | NDArray[np.bool_]]:
        """Show a product, int or (W,), to the visitor of each world; return what followed.

        Where a session is `over`, W worlds in step ignore the product and let a new visitor come: reward 0,
        not ended. That step is no transition, and nothing is to be learnt from it. One world alone refuses it.

        Returns
        -------
        observation : ndarray of int, shape (3,) or (W, 3); hidden (11,) or (W, 11)
            Persona, intent and patience. Hidden: persona, the last five items, newest first, as product + 1
            with 0 for none, and for each whether it was clicked.
        reward, ended : int and bool, or ndarray, shape (W,)
            1 for a click, and whether the visitor left.
        """
        shape = () if self.n_worlds is None else self._worlds.shape
        product = as_ids("product", product, self.n_products, shape).reshape(-1)
        begins = self._patience == 0
        if self.n_worlds is None and begins.any():
            raise RuntimeError("the session is over: call reset before the next step")
        luck = self._next_luck()
        clicked, intent, patience = self._follow(
            self._worlds, self._persona, self._intent, self._patience, product, luck
        )
        clicked &= ~begins
        self._intent, self._patience = intent, np.where(begins, 0, patience)
        if self.hidden:
            self._items = np.column_stack([product + 1, self._items[:, :-1]])
            self._clicks = np.column_stack([clicked, self._clicks[:, :-1]])
        if begins.any():
            self._begin(begins, luck)
        ended = ~begins & (self._patience == 0)
        reward, ended = self._one(clicked.astype(np.int64)), self._one(ended)
        if self.n_worlds is None:
            return self.observation(), int(reward), bool(ended)
        return self.observation(), reward, ended

    def state(self, observation: ArrayLike) -> NDArray[np.int64]:
        """Return the number of a seen observation's state, in 0 … 79, and 80 where the session is over.

        Observations have shape (..., 3), and numbers shape (...).
        """
        seen = as_ids("observation", observation, N_STATES, (..., 3))
        persona, intent, patience = np.moveaxis(seen, -1, 0)
        number = _number(persona, intent, patience)
        return np.where(patience == 0, N_STATES, number)

    def play(
        self, policy: ArrayLike, n_sessions: int, seed: Seed = 0
    ) -> tuple[NDArray[np.int64], ...]:
        """Play n sessions to their end by a policy that sees states; one world, whose own session waits.

        Parameters
        ----------
        policy : array_like, shape (80,) or (80, K)
            As for `DecisionProcess`.
        n_sessions, seed
            How many, and the seed of visitors, luck and choices.

        Returns
        -------
        state, product, reward : ndarray of int, shape (n, T)
            Each session's steps, up to the T of the longest; state is 80 behind its end, and the others 0.
        """
        if self.n_worlds is not None:
            raise ValueError(f"one world plays sessions: got n_worlds={self.n_worlds}")
        n, rng = as_size("n_sessions", n_sessions), stream(seed, "sessions")
        upto = self.process().probabilities(policy).cumsum(axis=-1)
        world, alive = np.zeros(n, np.int64), np.arange(n)
        persona, intent = self._arrive(world, rng.random((n, 2)))
        patience = np.full(n, PATIENCE)
        columns = []
        while alive.size:
            luck = rng.random((len(alive), _N_LUCK + 1))
            state = _number(persona, intent, patience)
            product = (luck[:, -1:] >= upto[state, :-1]).sum(axis=-1)
            clicked, intent, patience = self._follow(
                world[alive], persona, intent, patience, product, luck
            )
            step = np.zeros((3, n), np.int64)
            step[0] = N_STATES
            step[:, alive] = state, product, clicked
            columns.append(step)
            stays = patience > 0
            alive, persona = alive[stays], persona[stays]
            intent, patience = intent[stays], patience[stays]
        return tuple(np.stack(columns, axis=-1))

    def process(self) -> DecisionProcess:
        """Return the decision process behind the worlds: all probabilities, computed and not drawn.

        Shapes are (80, K, 80), (80, K) and (80,), behind an axis W with worlds.
        """
        n_worlds, n_products = self._category.shape
        shape = (n_worlds, N_PERSONAS, N_INTENTS, PATIENCE)
        moves = np.zeros((*shape, n_products, *shape[1:]))
        click, intents = self._click, np.eye(N_INTENTS)
        own = (1 - self.carry_over) * (
            STAY * intents + (1 - STAY) * self._drift[:, :, None]
        )
        # A plain click, which keeps patience, and where it leads: (W, 4, 5, K, 5)
        found = self.carry_over * click * ~self._glossy[:, None, None]
        found = found[..., None] * intents[_COMPANION[self._category]][:, None, None]
        missed = self.carry_over - found.sum(axis=-1, keepdims=True)
        stays = (1 - FADE) * own[..., None, :] + found
        falls = FADE * own[..., None, :] + missed * intents[:, None]
        for m, g in every(range(PATIENCE), range(N_PERSONAS)):
            moves[:, g, :, m, :, g, :, m] = stays[:, g]
            if m > 0:
                moves[:, g, :, m, :, g, :, m - 1] = falls[:, g]
        reward = np.broadcast_to(click[:, :, :, None], (*shape, n_products))
        wants = self._table / self._table.sum(axis=1, keepdims=True)
        shares = [np.bincount(g, minlength=N_PERSONAS) for g in self._persona_of_user]
        shares = np.array(shares) / self._persona_of_user.shape[1]
        start = np.zeros(shape)
        start[..., -1] = shares[..., None] * wants
        return DecisionProcess(
            self._one(moves.reshape(n_worlds, N_STATES, n_products, N_STATES)),
            self._one(reward.reshape(n_worlds, N_STATES, n_products)),
            self._one(start.reshape(n_worlds, N_STATES)),
        )

    def _one(self, array: NDArray) -> NDArray:
        """Drop the axis of worlds if there shall be none."""
        return array[0] if self.n_worlds is None else array

    def _click_probabilities(self) -> NDArray[np.float64]:
        """Return click probabilities (W, 4, 5, K)."""
        category, glossy = self._category[:, None, None], self._glossy[:, None, None]
        plain = np.moveaxis(self._table[:, self._category], 0, 1)[:, :, None]
        wanted = category == np.arange(N_INTENTS)[:, None]
        plain = np.where(wanted, plain, OFF_INTENT * plain)
        return np.where(glossy, plain + GLOSS * (1 - plain), plain)

    def _begin(self, where: NDArray[np.bool_], luck: NDArray) -> None:
        """Let new visitors come to these worlds, with uniform numbers (W, 5)."""
        persona, intent = self._arrive(self._worlds, luck)
        self._persona = np.where(where, persona, self._persona)
        self._intent = np.where(where, intent, self._intent)
        self._patience = np.where(where, PATIENCE, self._patience)
        self._items[where] = self._clicks[where] = 0

    def _arrive(
        self, world: NDArray, luck: NDArray
    ) -> tuple[NDArray[np.int64], NDArray[np.int64]]:
        """Return personas and first intents of any number of visitors, with luck (n, 2) or more."""
        user = (luck[:, 0] * self._persona_of_user.shape[1]).astype(np.int64)
        persona = self._persona_of_user[world, user]
        return persona, _drawn(self._table[persona], luck[:, 1])

    def _follow(
        self,
        world: NDArray,
        persona: NDArray,
        intent: NDArray,
        patience: NDArray,
        product: NDArray,
        luck: NDArray,
    ) -> tuple[NDArray[np.bool_], NDArray[np.int64], NDArray[np.int64]]:
        """Return clicks, next intents and patience for any number of visitors, with luck (n, 5)."""
        clicked = luck[:, 0] < self._click[world, persona, intent, product]
        glossy, category = self._glossy[world, product], self._category[world, product]
        found = clicked & ~glossy
        drifts = _drawn(self._drift[world, persona], luck[:, 4])
        falls = luck[:, 2] < FADE
        own_intent = np.where(luck[:, 3] < STAY, intent, drifts)
        shops = luck[:, 1] < self.carry_over
        intent = np.where(
            shops, np.where(found, _COMPANION[category], intent), own_intent
        )
        return clicked, intent, patience - np.where(shops, ~found, falls)


def _number(persona: NDArray, intent: NDArray, patience: NDArray) -> NDArray[np.int64]:
    """Return the number of a state; patience is 1 or more."""
    return (persona * N_INTENTS + intent) * PATIENCE + patience - 1


def _drawn(weights: NDArray, luck: NDArray) -> NDArray[np.int64]:
    """Draw a column for each row of weights (n, m) by a uniform number (n,)."""
    upto = weights.cumsum(axis=-1)
    return (luck[:, None] * upto[:, -1:] >= upto).sum(axis=-1)


def best_on_last_category(shop: SessionSimulator, discount: float = 1.0) -> float:
    """Return the value of the best deterministic policy that sees persona and last category, and no more.

    For each persona, every such policy is tried: a product of either make for each category that may have
    been shown last, a hundred thousand of them, and a first product.

    Parameters
    ----------
    shop : SessionSimulator
        One world.
    discount : float, default 1.0
        As for `DecisionProcess.policy_q`.
    """
    process, first = shop.process(), _one_of_each(shop)
    shape = (N_PERSONAS, N_INTENTS, PATIENCE)
    moves = process.transition.reshape(*shape, shop.n_products, *shape)[
        ..., first, :, :, :
    ]
    reward = process.reward.reshape(*shape, shop.n_products)[:, :, 0, first]
    start = process.start.reshape(shape)[..., -1]
    # What a policy shows after each category, (policy, category), as places in `first`.
    shown = np.array(list(every(range(2 * N_INTENTS), repeat=N_INTENTS)))
    total = 0.0
    for g in range(N_PERSONAS):
        # To the same patience, and to one less; both are the same at every level above the last.
        stays, falls = moves[g, :, 1, :, g, :, 1], moves[g, :, 1, :, g, :, 0]
        best = max(
            _best_start(part, reward[g], discount * stays, discount * falls, start[g])
            for part in np.array_split(shown, 50)
        )
        total += best
    return total


def _one_of_each(shop: SessionSimulator) -> NDArray[np.int64]:
    """Return a plain and a glossy product of each category, in their order: (10,)."""
    kind = 2 * shop.category_of_product + shop.glossy
    return np.unique(kind, return_index=True)[1]


def _best_start(
    shown: NDArray, reward: NDArray, stays: NDArray, falls: NDArray, start: NDArray
) -> float:
    """Return the highest value of policies (n, 5) that begin with the best product."""
    n, after = len(shown), shown // 2  # the category shown next, (n, last category)
    last = np.arange(N_INTENTS)
    earned = reward[:, shown].transpose(1, 2, 0)  # (n, last category, intent)
    system = np.zeros((n, N_INTENTS, N_INTENTS, N_INTENTS, N_INTENTS))
    rows = np.arange(n)[:, None]
    system[rows, last, :, after] = -stays[:, shown].transpose(1, 2, 0, 3)
    system[:, last[:, None], last, last[:, None], last] += 1
    inverse = np.linalg.inv(system.reshape(n, N_INTENTS**2, N_INTENTS**2))
    fallen = falls[:, shown].transpose(1, 2, 0, 3)
    value = np.zeros((n, N_INTENTS, N_INTENTS))
    for _ in range(PATIENCE):
        before = value
        gained = earned + (fallen @ before[rows, after][..., None])[..., 0]
        value = (inverse @ gained.reshape(n, -1, 1)).reshape(before.shape)
    # A first product: it earns, and then the last category is its own.
    own = np.arange(len(reward.T)) // 2
    first = reward.T + (stays.transpose(1, 0, 2) @ value[:, own][..., None])[..., 0]
    first += (falls.transpose(1, 0, 2) @ before[:, own][..., None])[..., 0]
    return float((first @ start).max())
