"""The pet-shop world: products, customers, click probabilities, and the shocks that change them.

The world is the one of Chapter 1. Its hidden truth is a small table, the click probability of every
persona for every category; everything else is a look-up in it or a draw from it. All methods take
single ids or whole arrays of them.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit

from zoolib._checks import as_pairs, as_probability, as_rate, as_size

CATEGORIES = ("Fish Supplies", "Cat Food", "Dog Food", "Dog Toy", "Cat Toy")

CLICK_PROBABILITIES = {
    "new_puppy_parent": {
        "Dog Food": 0.40,
        "Dog Toy": 0.50,
        "Cat Food": 0.10,
        "Cat Toy": 0.05,
        "Fish Supplies": 0.02,
    },
    "cat_connoisseur": {
        "Dog Food": 0.05,
        "Dog Toy": 0.02,
        "Cat Food": 0.55,
        "Cat Toy": 0.45,
        "Fish Supplies": 0.05,
    },
    "budget_shopper": {
        "Dog Food": 0.25,
        "Dog Toy": 0.15,
        "Cat Food": 0.40,
        "Cat Toy": 0.20,
        "Fish Supplies": 0.20,
    },
    "fish_hobbyist": {
        "Dog Food": 0.02,
        "Dog Toy": 0.02,
        "Cat Food": 0.10,
        "Cat Toy": 0.08,
        "Fish Supplies": 0.60,
    },
}


@dataclass(frozen=True)
class MarketShock:
    """A sudden change of taste: new click probabilities of one persona.

    Parameters
    ----------
    persona : str
        The persona whose taste changes.
    click_probabilities : mapping of str to float
        The categories that change, each with its new click probability. Other categories keep theirs.

    Notes
    -----
    A shock is checked against a world when it is applied: see `ZooplusSimulator.apply_shock`.
    """

    persona: str
    click_probabilities: Mapping[str, float]


@dataclass(frozen=True)
class Churn:
    """A catalogue that changes: every so often, some of the products make room for new ones.

    Parameters
    ----------
    every : int
        Steps between two changes.
    share : float, default 0.2
        Part of the products that is replaced, in (0, 1]; at least one product is.

    Raises
    ------
    TypeError, ValueError
        If the number of steps is not a positive whole number, or the share is out of range.
    """

    every: int
    share: float = 0.2

    def __post_init__(self) -> None:
        # Frozen, yet the fields shall hold Python's own numbers, which any file can hold.
        object.__setattr__(self, "every", as_size("every", self.every))
        object.__setattr__(self, "share", as_rate("share", self.share))


SHOCK_1 = MarketShock(
    "budget_shopper", {"Fish Supplies": 0.80, "Dog Food": 0.10, "Cat Food": 0.15}
)
SHOCK_2 = MarketShock("cat_connoisseur", {"Dog Toy": 0.75})


# What a rich shop adds, each number in [0, 1]: to the products and, in the same order, to the users.
QUALITIES = ("price", "freshness")
WISHES = ("budget", "curiosity")


def appeal(wishes: ArrayLike, qualities: ArrayLike) -> NDArray[np.float64]:
    r"""Return what remains of a click probability when product and user do not fit, in (0, 1].

    A price far from the budget, dear or cheap, puts users off; freshness counts from the point where
    the user's curiosity begins:

    .. math::
        \left(0.1 + 0.9\, e^{-(\text{price} - \text{budget})^2 / (2 \cdot 0.15^2)}\right)
        \left(0.6 + 0.4\, \sigma\left(\frac{\text{freshness} - \text{curiosity}}{0.1}\right)\right)

    Neither factor is linear in price, freshness, budget, curiosity or their products.

    Parameters
    ----------
    wishes : array_like, shape (..., 2)
        Budget and curiosity.
    qualities : array_like, shape (..., 2)
        Price and freshness; leading axes broadcast.
    """
    gap = np.asarray(qualities, float) - np.asarray(wishes, float)
    fit = 0.1 + 0.9 * np.exp(-(gap[..., 0] ** 2) / (2 * 0.15**2))
    return fit * (0.6 + 0.4 * expit(gap[..., 1] / 0.1))


class ZooplusSimulator:
    """A pet shop whose customers click with known probabilities.

    Parameters
    ----------
    n_products : int, default 50
        Size of the catalogue. Categories are equally frequent, in shuffled order; products that do not
        divide evenly get a random category.
    n_users : int, default 1000
        Number of customers. Each gets a persona uniformly at random.
    seed : int, default 42
        Seed of the one generator, `rng`, behind every draw of this world.
    rich : bool, default False
        Give products a price and a freshness, and users a budget and a curiosity, which decide with
        persona and category what is clicked: see `appeal`.

    Attributes
    ----------
    products : pandas.DataFrame
        Indexed by ``product_id`` (0 to n_products - 1), with column ``category``; in a rich shop also
        ``price`` and ``freshness``, uniform in [0, 1].
    users : pandas.DataFrame
        One row a user, with column ``persona``; in a rich shop also ``budget`` and ``curiosity``,
        uniform in [0, 1].
    categories : tuple of str
        The category names; their order is that of the columns of `click_table`.
    personas : dict of dict
        ``{persona: {category: click probability}}``, this world's own copy.
    user_personas : ndarray of str, shape (n_users,)
        The persona of each user. Hidden from recommenders that see ids only.
    persona_of_user, category_of_product : ndarray of int
        The same assignments as row and column numbers of `click_table`.

    Raises
    ------
    TypeError, ValueError
        If a size is not a positive whole number.

    Notes
    -----
    The catalogue and the personas are drawn in a fixed order of calls, so one seed gives one world
    for ever: with ``seed=42`` product 4 is a Dog Toy and user 0 a new_puppy_parent.

    Examples
    --------
    >>> world = ZooplusSimulator(seed=42)
    >>> world.products.loc[4, "category"], str(world.user_personas[0])
    ('Dog Toy', 'new_puppy_parent')
    >>> world.true_ctr(0, 4)
    0.5
    >>> world.true_ctr([0, 0], [3, 4])
    array([0.05, 0.5 ])
    """

    def __init__(
        self,
        n_products: int = 50,
        n_users: int = 1000,
        seed: int = 42,
        rich: bool = False,
    ) -> None:
        self.n_products = as_size("n_products", n_products)
        self.n_users = as_size("n_users", n_users)
        self.rng = np.random.default_rng(seed)
        self.categories = CATEGORIES
        self.products = self._draw_catalogue()
        self.personas = {
            name: dict(tastes) for name, tastes in CLICK_PROBABILITIES.items()
        }
        self.user_personas = self.rng.choice(list(self.personas), size=self.n_users)
        self.persona_of_user = _codes(self.user_personas, self.personas)
        self.users = pd.DataFrame({"persona": self.user_personas})
        self.rich = bool(rich)
        if self.rich:  # drawn last: the same seed gives the same shop without
            self.products[list(QUALITIES)] = self.rng.random(
                (self.n_products, len(QUALITIES))
            )
            self.users[list(WISHES)] = self.rng.random((self.n_users, len(WISHES)))
        self._read_catalogue()

    def _read_catalogue(self) -> None:
        self.category_of_product = _codes(self.products["category"], self.categories)

    def _draw_catalogue(self) -> pd.DataFrame:
        each, rest = divmod(self.n_products, len(self.categories))
        names = np.repeat(self.categories, each)
        names = np.concatenate([names, self.rng.choice(self.categories, size=rest)])
        index = pd.RangeIndex(self.n_products, name="product_id")
        return pd.DataFrame({"category": self.rng.permutation(names)}, index=index)

    @property
    def click_table(self) -> NDArray[np.float64]:
        """Click probabilities, one row a persona and one column a category; shape (4, 5)."""
        return np.array(
            [[tastes[c] for c in self.categories] for tastes in self.personas.values()]
        )

    def true_ctr(
        self, user_id: ArrayLike, product_id: ArrayLike
    ) -> float | NDArray[np.float64]:
        """Return the true click probability of users for products.

        Parameters
        ----------
        user_id, product_id : int or array_like of int
            Ids; arrays broadcast against each other.

        Returns
        -------
        float or ndarray
            A float for two single ids, else an array of the broadcast shape.

        Raises
        ------
        TypeError
            If ids are not whole numbers.
        ValueError
            If an id is unknown, or the shapes do not broadcast.
        """
        users, products = as_pairs(user_id, self.n_users, product_id, self.n_products)
        ctr = self.click_table[
            self.persona_of_user[users], self.category_of_product[products]
        ]
        if self.rich:
            wishes = self.users[list(WISHES)].to_numpy()[users]
            qualities = self.products[list(QUALITIES)].to_numpy()[products]
            ctr = ctr * appeal(wishes, qualities)
        return float(ctr) if ctr.ndim == 0 else ctr

    def reward(
        self, user_id: ArrayLike, product_id: ArrayLike
    ) -> int | NDArray[np.int64]:
        """Show products to users and draw their clicks, 0 or 1.

        A click happens when a uniform draw lies below the true click probability. Parameters, shapes
        and errors are those of `true_ctr`.
        """
        ctr = self.true_ctr(user_id, product_id)
        clicked = self.rng.random(np.shape(ctr)) < ctr
        return int(clicked) if np.ndim(clicked) == 0 else clicked.astype(np.int64)

    def random_user(self) -> int:
        """Return the id of the next visitor, uniform over all users."""
        return int(self.rng.integers(self.n_users))

    def sample_interactions(self, n: int) -> pd.DataFrame:
        """Log `n` visits under the uniform policy: random users see random products.

        Parameters
        ----------
        n : int
            Number of interactions, at least 1.

        Returns
        -------
        pandas.DataFrame
            Columns ``user_id``, ``product_id``, ``clicked`` (0 or 1) and ``category``, one row a visit.
        """
        n = as_size("n", n)
        users = self.rng.integers(self.n_users, size=n)
        products = self.rng.integers(self.n_products, size=n)
        return self.log_visits(users, products)

    def log_visits(self, user_id: ArrayLike, product_id: ArrayLike) -> pd.DataFrame:
        """Show the products to the users and log what happened, one row a pair.

        Parameters
        ----------
        user_id, product_id : array_like of int, shape (n,)
            Who came, and what some policy chose to show.

        Returns
        -------
        pandas.DataFrame
            As from `sample_interactions`.
        """
        clicks = np.atleast_1d(self.reward(user_id, product_id))
        # Own copies, so that the table shares no memory with the caller and needs none of its own.
        users, products = (
            np.array(ids, ndmin=1) for ids in np.broadcast_arrays(user_id, product_id)
        )
        columns = {"user_id": users, "product_id": products, "clicked": clicks}
        columns["category"] = self.products["category"].array.take(products)
        return pd.DataFrame(columns, copy=False)

    def restock(self, share: float) -> NDArray[np.int64]:
        """Replace products, drawn at random, by new ones of random categories on the same shelves.

        Parameters
        ----------
        share : float
            Part of the products that is replaced, in (0, 1]; at least one product is.

        Returns
        -------
        ndarray of int
            Ids of the shelves, which now hold other products.
        """
        n = max(1, round(as_rate("share", share) * self.n_products))
        shelves = np.sort(self.rng.choice(self.n_products, size=n, replace=False))
        # A new table: one that was handed out keeps what it said.
        self.products = self.products.copy()
        self.products.loc[shelves, "category"] = self.rng.choice(
            self.categories, size=n
        )
        if self.rich:
            self.products.loc[shelves, list(QUALITIES)] = self.rng.random(
                (n, len(QUALITIES))
            )
        self._read_catalogue()
        return shelves

    def apply_shock(self, shock: MarketShock) -> None:
        """Change the taste of one persona, at once and for good.

        Parameters
        ----------
        shock : MarketShock
            What changes. The shock is checked as a whole first: a refused one changes nothing.

        Raises
        ------
        TypeError
            If `shock` is not a `MarketShock` or a probability is not a number.
        ValueError
            If the persona or a category is unknown, or a probability is outside [0, 1] or NaN.
        """
        if not isinstance(shock, MarketShock):
            raise TypeError(f"shock must be a MarketShock: got {type(shock).__name__}")
        if shock.persona not in self.personas:
            raise ValueError(
                f"persona must be one of {list(self.personas)}: got {shock.persona!r}"
            )
        changes = {}
        for category, probability in shock.click_probabilities.items():
            if category not in self.categories:
                raise ValueError(
                    f"category must be one of {list(self.categories)}: got {category!r}"
                )
            changes[category] = as_probability(
                f"click probability of {category}", probability
            )
        self.personas[shock.persona].update(changes)


def true_ctr_matrix(world: ZooplusSimulator) -> NDArray[np.float64]:
    """Return the true click probability of every user for every product, shape (n_users, n_products)."""
    return world.true_ctr(
        np.arange(world.n_users)[:, None], np.arange(world.n_products)
    )


def _codes(names: ArrayLike, known: ArrayLike) -> NDArray[np.int64]:
    """Position of each name in the list of known names."""
    return pd.Index(list(known)).get_indexer(np.asarray(names)).astype(np.int64)
