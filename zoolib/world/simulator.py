"""The pet-shop world: products, customers, click probabilities, and the shocks that change them.

This is the world of Chapter 1. Its hidden truth is a small table with the click probability of every
persona for every category; all else is looked up in this table or drawn from it. All methods accept
single ids or arrays of ids.
"""

from __future__ import annotations

import copy
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np
import pandas as pd
import scipy  # which loads scipy.optimize where it is first used
from numpy.typing import ArrayLike, NDArray
from scipy.special import expit, logit

from zoolib._support.checks import (
    Seed,
    as_flag,
    as_level,
    as_one_of,
    as_pairs,
    as_probability,
    as_rate,
    as_seed,
    as_size,
)
from zoolib._support.settings import check_settings, setting

CATEGORIES = ("Fish Supplies", "Cat Food", "Dog Food", "Dog Toy", "Cat Toy")

_COLUMNS = ("Dog Food", "Dog Toy", "Cat Food", "Cat Toy", "Fish Supplies")
_ROWS = {
    "new_puppy_parent": (0.40, 0.50, 0.10, 0.05, 0.02),
    "cat_connoisseur": (0.05, 0.02, 0.55, 0.45, 0.05),
    "budget_shopper": (0.25, 0.15, 0.40, 0.20, 0.20),
    "fish_hobbyist": (0.02, 0.02, 0.10, 0.08, 0.60),
}
CLICK_PROBABILITIES = {
    persona: dict(zip(_COLUMNS, row, strict=True)) for persona, row in _ROWS.items()
}


@dataclass(frozen=True)
class MarketShock:
    """A sudden change of taste; a world checks it in `ZooplusSimulator.apply_shock`.

    Parameters
    ----------
    persona : str
        The persona whose taste changes.
    click_probabilities : mapping of str to float
        New click probability of each category that changes; the other categories stay the same.
    """

    persona: str
    click_probabilities: Mapping[str, float]


@dataclass(frozen=True)
class Churn:
    """A changing catalogue: at regular intervals, some products make room for new ones.

    Parameters
    ----------
    every : int
        Number of steps between two changes.
    share : float, default 0.2
        Fraction of the products replaced each time, in (0, 1]; at least one product is replaced.
    """

    every: int = setting(as_size)
    share: float = setting(as_rate, 0.2)

    def __post_init__(self) -> None:
        check_settings(self)


SHOCK_1 = MarketShock(
    "budget_shopper", {"Fish Supplies": 0.80, "Dog Food": 0.10, "Cat Food": 0.15}
)
SHOCK_2 = MarketShock("cat_connoisseur", {"Dog Toy": 0.75})


# Standard deviations of the parts of log-odds that are drawn; together they spread as in the table above.
SPREADS = {"persona": 0.5, "category": 0.5, "pair": 1.3}

# Columns added by a rich shop, numbers in [0, 1]: of products and, in the same order, of users.
QUALITIES = ("price", "freshness")
WISHES = ("budget", "curiosity")


def appeal(wishes: ArrayLike, qualities: ArrayLike) -> NDArray[np.float64]:
    """Return the factor, in (0, 1], by which a poor fit of product and user reduces the click probability.

    A price far from the budget, above or below it, reduces clicks; freshness raises them, most steeply
    where it equals the user's curiosity. Neither factor is linear in price, freshness, budget, curiosity or
    their products.

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
    seed : int, SeedSequence or Generator, default 42
        Seed of the one generator, `rng`, behind every draw of this world. The catalogue and the
        personas are drawn in a fixed order of calls, so a seed always gives the same world.
    rich : bool, default False
        Give products a price and a freshness, and users a budget and a curiosity; together with persona
        and category they determine the click probability: see `appeal`.
    click_rate : float, optional
        Draw the table of click probabilities anew, with this mean, strictly between 0 and 1. Log-odds are
        a level, a normal number for each persona, one for each category and one for each pair, in all
        spread as in the usual table. A seed gives the same order of probabilities at all rates. If
        omitted, the shop has the usual table.

    Attributes
    ----------
    products : pandas.DataFrame
        Indexed by ``product_id`` (0 to n_products - 1), with column ``category``; in a rich shop also
        ``price`` and ``freshness``, uniform in [0, 1].
    users : pandas.DataFrame
        One row per user, with column ``persona``; in a rich shop also ``budget`` and ``curiosity``,
        uniform in [0, 1].
    seed : int
        The seed as a number.
    categories : tuple of str
        The category names, in the order of the columns of `click_table`.
    personas : dict of dict
        ``{persona: {category: click probability}}``, this world's own copy.
    user_personas : ndarray of str, shape (n_users,)
        The persona of each user. Hidden from recommenders that see ids only.
    persona_of_user, category_of_product : ndarray of int
        The same assignments as row and column numbers of `click_table`.

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
        seed: Seed = 42,
        rich: bool = False,
        click_rate: float | None = None,
    ) -> None:
        self.n_products = as_size("n_products", n_products)
        self.n_users = as_size("n_users", n_users)
        self.seed = as_seed("seed", seed)
        self.rng = np.random.default_rng(self.seed)
        self.categories = CATEGORIES
        self.products = self._draw_catalogue()
        self.personas = copy.deepcopy(CLICK_PROBABILITIES)
        self.user_personas = self.rng.choice(list(self.personas), size=self.n_users)
        self.persona_of_user = _codes(self.user_personas, self.personas)
        self.users = pd.DataFrame({"persona": self.user_personas})
        self.rich = as_flag("rich", rich)
        if self.rich:  # drawn last: the same seed gives the same shop without
            for table, columns in ((self.products, QUALITIES), (self.users, WISHES)):
                table[list(columns)] = self.rng.random((len(table), len(columns)))
        self.click_rate = None
        if click_rate is not None:  # drawn after all that a shop without has
            self.click_rate = as_level("click_rate", click_rate)
            self._draw_tastes()
        self.category_of_product = _codes(self.products["category"], self.categories)

    def __repr__(self) -> str:
        sizes = f"n_products={self.n_products}, n_users={self.n_users}"
        rate = "" if self.click_rate is None else f", click_rate={self.click_rate}"
        return f"ZooplusSimulator({sizes}, seed={self.seed}, rich={self.rich}{rate})"

    def _draw_catalogue(self) -> pd.DataFrame:
        each, rest = divmod(self.n_products, len(self.categories))
        names = np.repeat(self.categories, each)
        names = np.concatenate([names, self.rng.choice(self.categories, size=rest)])
        index = pd.RangeIndex(self.n_products, name="product_id")
        return pd.DataFrame({"category": self.rng.permutation(names)}, index=index)

    def _draw_tastes(self) -> None:
        n = len(self.personas)
        m = len(self.categories)
        shapes = {"persona": (n, 1), "category": (1, m), "pair": (n, m)}
        pull = sum(
            self.rng.normal(0, SPREADS[of], shape) for of, shape in shapes.items()
        )
        ends = logit(self.click_rate) - np.array([pull.max(), pull.min()])
        level = scipy.optimize.brentq(
            lambda level: expit(level + pull).mean() - self.click_rate,
            *ends,
            xtol=1e-12,
        )
        table = expit(level + pull).tolist()
        for tastes, row in zip(self.personas.values(), table, strict=True):
            tastes.update(zip(self.categories, row, strict=True))

    @property
    def click_table(self) -> NDArray[np.float64]:
        """Click probabilities, one row per persona and one column per category; shape (4, 5)."""
        return np.array(
            [[tastes[c] for c in self.categories] for tastes in self.personas.values()]
        )

    def true_ctr(
        self, user_id: ArrayLike, product_id: ArrayLike
    ) -> float | NDArray[np.float64]:
        """Return the true click probability of users for products.

        Ids are whole numbers or arrays that broadcast against each other. Two single ids give a float,
        arrays give an array of the broadcast shape.
        """
        users, products = as_pairs(user_id, self.n_users, product_id, self.n_products)
        personas = self.persona_of_user
        categories = self.category_of_product
        ctr = self.click_table[personas[users], categories[products]]
        if self.rich:
            wishes = self.users[list(WISHES)].to_numpy()[users]
            qualities = self.products[list(QUALITIES)].to_numpy()[products]
            ctr = ctr * appeal(wishes, qualities)
        return float(ctr) if ctr.ndim == 0 else ctr

    def reward(
        self, user_id: ArrayLike, product_id: ArrayLike
    ) -> int | NDArray[np.int64]:
        """Show products to users and draw their clicks, 0 or 1.

        A click happens if a uniform random number is below the true click probability. Ids and shapes
        are as for `true_ctr`.
        """
        ctr = self.true_ctr(user_id, product_id)
        clicked = self.rng.random(np.shape(ctr)) < ctr
        return int(clicked) if np.ndim(clicked) == 0 else clicked.astype(np.int64)

    def random_user(self) -> int:
        """Return the id of the next visitor, uniform over all users."""
        return int(self.rng.integers(self.n_users))

    def sample_interactions(self, n: int) -> pd.DataFrame:
        """Log `n` visits under the uniform policy: random users see random products.

        The table has columns ``user_id``, ``product_id``, ``clicked`` (0 or 1) and ``category``, and one
        row per visit.
        """
        n = as_size("n", n)
        users = self.rng.integers(self.n_users, size=n)
        products = self.rng.integers(self.n_products, size=n)
        return self.log_visits(users, products)

    def log_visits(self, user_id: ArrayLike, product_id: ArrayLike) -> pd.DataFrame:
        """Show products to users, both of shape (n,), and return a log like `sample_interactions`."""
        clicks = np.atleast_1d(self.reward(user_id, product_id))
        pairs = np.broadcast_arrays(user_id, product_id)
        # Copies, so that the table shares no memory with the caller.
        users, products = (np.array(ids, ndmin=1) for ids in pairs)
        columns = {"user_id": users, "product_id": products, "clicked": clicks}
        columns["category"] = self.products["category"].array.take(products)
        return pd.DataFrame(columns, copy=False)

    def restock(self, share: float) -> NDArray[np.int64]:
        """Replace randomly drawn products by new ones, of random categories, under the same ids.

        `share` is as in `Churn`. Returns the ids that now stand for other products.
        """
        n = max(1, round(as_rate("share", share) * self.n_products))
        shelves = np.sort(self.rng.choice(self.n_products, size=n, replace=False))
        # A new table and new codes: those handed out earlier do not change.
        codes = self.category_of_product.copy()
        names = self.products["category"].array.copy()
        codes[shelves] = drawn = self.rng.choice(len(self.categories), size=n)
        names[shelves] = np.take(self.categories, drawn)
        self.products = self.products.copy()
        self.category_of_product = codes
        self.products["category"] = names
        if self.rich:
            qualities = self.rng.random((n, len(QUALITIES)))
            self.products.loc[shelves, list(QUALITIES)] = qualities
        return shelves

    def apply_shock(self, shock: MarketShock) -> None:
        """Change the taste of one persona immediately and permanently; an invalid shock changes nothing."""
        if not isinstance(shock, MarketShock):
            raise TypeError(f"shock must be a MarketShock: got {type(shock).__name__}")
        tastes = self.personas[as_one_of("persona", shock.persona, self.personas)]
        changes = {}
        for category, probability in shock.click_probabilities.items():
            as_one_of("category", category, self.categories)
            name = f"click probability of {category}"
            changes[category] = as_probability(name, probability)
        tastes.update(changes)


def true_ctr_matrix(world: ZooplusSimulator) -> NDArray[np.float64]:
    """Return the current click probabilities of a world, shape (n_users, n_products)."""
    users = np.arange(world.n_users)
    products = np.arange(world.n_products)
    return world.true_ctr(users[:, None], products)


def _codes(names: ArrayLike, known: ArrayLike) -> NDArray[np.int64]:
    """Position of each name in the list of known names."""
    return pd.Index(list(known)).get_indexer(np.asarray(names)).astype(np.int64)
