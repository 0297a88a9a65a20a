"""Judges of the exercises of Chapter 4, "Contextual bandits in practice"."""

from __future__ import annotations

import numpy as np
from numpy.typing import ArrayLike, NDArray
from scipy.optimize import linprog
from scipy.special import ndtr

from zoolib.book.exercises.judging import (
    Function,
    answer,
    exercise,
    expect,
    expect_close,
    numbers,
)


@exercise("ex-trap-bonus")
def _trap_bonus(mixed_term: Function, disagreement: Function) -> None:
    """Take the squared widths of u and of g alone off that of both; solve for the widths of a table."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(9, 9))
    u = rng.normal(size=4)
    p = rng.normal(size=5)
    A_inv = root @ root.T
    x = np.zeros((3, 9))
    x[[0, 1], :4] = u
    x[[0, 2], 4:] = p
    both, of_u, of_p = np.vecdot(x, x @ A_inv)
    mixed = both - of_u - of_p
    mistakes = {"Two of the four blocks join u and g.": mixed / 2}
    hint = "Multiply x = (u, g) out with the four blocks of A⁻¹. Which of them join u and g?"
    expect_close(answer(mixed_term, A_inv, u, p), mixed, hint, mistakes=mistakes)

    even = np.full((4, 5), 20)
    one_persona = np.repeat([20, 0, 0, 0], 5).reshape(4, 5)
    hint = "Where all cells are equally full, personas do not disagree at all."
    expect_close(answer(disagreement, even), 0, hint)
    hint = "If one persona alone has come, its widths are smaller, all by the same. Take each mean width off."
    expect_close(answer(disagreement, one_persona), 0, hint)
    uneven = rng.integers(1, 40, size=(4, 5))
    x = np.hstack((np.repeat(np.eye(4), 5, axis=0), np.tile(np.eye(5), (4, 1))))
    A = np.eye(9) + (x.T * uneven.ravel()) @ x
    squared = np.vecdot(x, np.linalg.solve(A, x.T).T).reshape(4, 5)

    def gaps(width: NDArray, axis: int = 0) -> NDArray:
        return np.ptp(width - width.mean(axis=1, keepdims=True), axis=axis)

    between = gaps(np.sqrt(squared))
    across = gaps(np.sqrt(squared), axis=1)
    mistakes = {
        "A width is the root of xᵀA⁻¹x.": gaps(squared).max(),
        "Compare two personas in one category, not two categories.": across.max(),
        "The largest gap of the five is wanted, not their mean.": between.mean(),
    }
    hint = "Is the ridge of 1 in A, and are the rows of the table personas?"
    found = answer(disagreement, uneven)
    expect_close(found, between.max(), hint, mistakes=mistakes)


@exercise("ex-which-model")
def _which_model(error: Function, best_share: Function) -> None:
    """Add up the squared weights of noise and departures in the error of the first product."""
    for n, sigma, tau, k in ((4, 0.5, 0.2, 10), (30, 0.4, 0.05, 3)):
        v = sigma**2 / n
        own = np.eye(k)[0]
        for w in (0, 1, 0.3):
            weights = w * own + (1 - w) / k
            noise, apart = (np.sum(of**2) for of in (weights, weights - own))
            right = v * noise + tau**2 * apart
            alone = w**2 * v + (1 - w) ** 2 * tau**2
            mistakes = {
                "The product's own clicks are in the label's mean, too.": alone
                + (1 - w) ** 2 * v / k,
                "The label's mean is uncertain, too.": alone,
                "σ² is the variance of a click, σ²/n that of a mean.": right
                + (n - 1) * v * noise,
            }
            hint = (
                "Write the prediction minus the rate as a sum of noise and departures."
            )
            found = answer(error, w, n, sigma, tau, k)
            expect_close(found, right, hint, mistakes=mistakes)
        best = tau**2 / (tau**2 + v)
        mistakes = {
            "That is the weight of the label.": 1 - best,
            "Variances are weighed, not deviations.": tau / (tau + np.sqrt(v)),
        }
        hint = "Set the derivative by w to zero."
        found = answer(best_share, n, sigma, tau)
        expect_close(found, best, hint, mistakes=mistakes)


@exercise("ex-batch-draws")
def _batch_draws(share: Function, never: Function) -> None:
    """Integrate over the first product's draw on a fine grid."""
    z = np.linspace(-9, 9, 20_001)
    density = np.exp(-(z**2) / 2)
    density /= density.sum()
    for mean, deviation in (((0.5, 0.4), (0.1, 0.1)), ((0.2, 0.5), (0.3, 0.4))):
        above = ndtr((mean[1] - mean[0] - deviation[0] * z) / deviation[1])
        second = density @ above
        gap = mean[1] - mean[0]
        mistakes = {
            "That is the probability of the first product.": 1 - second,
            "The variances add up, not the deviations.": ndtr(gap / sum(deviation)),
            "Divide by the deviation of the difference, the root of its variance.": ndtr(
                gap / np.sum(np.square(deviation))
            ),
        }
        hint = "When is the second draw above the first? Their difference is normal."
        found = answer(share, mean, deviation)
        expect_close(found, second, hint, within=1e-6, mistakes=mistakes)
        for n_visits in (1, 20):
            missed = (1 - second) ** n_visits
            mistakes = {"That is the chance that it is seen at least once.": 1 - missed}
            hint = "Draws of different visits are independent: multiply."
            found = answer(never, mean, deviation, n_visits)
            expect_close(found, missed, hint, within=1e-6, mistakes=mistakes)


@exercise("ex-shared-draw")
def _shared_draw(drawn: Function, with_one: ArrayLike, with_ten: ArrayLike) -> None:
    """Take the scores' mean from a draw of zeros, and their covariance from unit vectors: any root will do."""
    rng = np.random.default_rng(0)
    root = rng.normal(size=(4, 4))
    b = rng.normal(size=4)
    x = rng.normal(size=(3, 4))
    A_inv = root @ root.T
    lower = np.linalg.cholesky(A_inv)
    alpha = 0.3
    mean = x @ A_inv @ b
    found = answer(drawn, A_inv, b, alpha, x, np.zeros(4))
    expect_close(found, mean, "A draw of zeros gives the predictions, x times A⁻¹b.")
    columns = [answer(drawn, A_inv, b, alpha, x, one) - mean for one in np.eye(4)]
    spread = np.array(columns)
    wanted = alpha**2 * x @ A_inv @ x.T
    of_inverse = alpha**2 * x @ A_inv @ A_inv @ x.T
    mistakes = {
        "α multiplies a standard deviation, not a variance.": wanted / alpha,
        "The draw needs a matrix L with LLᵀ = A⁻¹, not A⁻¹ itself.": of_inverse,
        "What must L times its transpose be?": alpha**2 * x @ lower.T @ lower @ x.T,
    }
    hint = (
        "The scores need the covariance α² xA⁻¹xᵀ: one draw of weights, times all rows."
    )
    expect_close(spread.T @ spread, wanted, hint, mistakes=mistakes)
    hint = "With one draw, how do the scores of ten equal rows differ?"
    expect_close(with_one, 1 / 2, hint)
    hint = "With a draw for each, when is none of the ten above? Each is below half of the time."
    mistakes = {"That is the chance that none is above.": 1 / 2**10}
    expect_close(with_ten, 1 - 1 / 2**10, hint, mistakes=mistakes)


@exercise("ex-first-misses")
def _first_misses(misses: Function) -> None:
    """Solve a quadratic for the width at which the scores are equal."""
    for promised, lam in ((0.5, 5), (0.5, 50), (0.21, 5), (0.21, 50)):
        for rival, alpha in ((0.52, 0.5), (0.37, 0.2)):
            one, two = (
                np.roots([lam * promised, alpha * np.sqrt(norm), -rival]).max()
                for norm in (1, 2)
            )
            right = max(0, np.ceil((two**-2 - lam) / 2))
            by_one = max(0, np.ceil(one**-2 - lam))
            mistakes = {
                "A look adds 2 to λ: one for persona, one for category.": by_one
            }
            hint = "At which n is λxᵀm / (λ + 2n) + α√(2 / (λ + 2n)) first below the rival?"
            found = answer(misses, promised, lam, rival, alpha)
            expect_close(found, right, hint, mistakes=mistakes)


@exercise("ex-firm")
def _firm(firmness: Function, clicks: ArrayLike) -> None:
    """Take the variances of a click and of a uniform factor's product by its quantiles."""
    factor = (np.arange(100_000) + 0.5) / 100_000 + 0.5

    for c in (0.4, 0.2):
        of_click = 2 * c * (1 - c)
        spread = (c * factor).var()
        mistakes = {
            "‖x‖² counts the ones of a row, persona and category.": of_click / spread / 2,
            "τ belongs to click probabilities, not to factors.": of_click / factor.var(),
            "In the rule τ is squared.": of_click / np.sqrt(spread),
        }  # fmt: skip
        hint = "σ² is the variance of a click, τ the standard deviation of the factor times c."
        right = of_click / spread
        found = answer(firmness, c)
        expect_close(found, right, hint, within=1e-6, mistakes=mistakes)
    hint = "Hand over percentages of the best clicks, one row for each prior."
    none, *priors = numbers(clicks, (4, 20), hint, low=1, high=100).mean(axis=1)
    hint = (
        "Without a prior the shop earns least. Are the rows in order, is the mean `pooled`, and does each "
        "begin with the agent as it was when the newcomers came?"
    )
    expect(none < min(priors), hint)


@exercise("ex-cap-price")
def _cap_price(price: Function) -> None:
    """Place the visits by linear programming."""
    rng = np.random.default_rng(0)
    for cap in (1, 0.5, 0.45, 0.25, 0.2):
        table = rng.random((4, 5))
        best = table.max(axis=1).sum()
        clicks = sum(
            -linprog(-row, A_eq=np.ones((1, 5)), b_eq=[1], bounds=(0, cap)).fun
            for row in table
        )
        of_two = np.sort(table, axis=1)[:, -2:].mean(axis=1).sum()
        mistakes = {
            "That is what is left, not what is lost.": clicks / best,
            "The cap may be another than one half.": 1 - of_two / best,
            "Visits beyond the cap go to the next best category; they are not lost.": 1
            - cap,
            "The loss is a part of the best clicks of all personas.": best - clicks,
            "Caps hold for each persona, not for all of them together.": 1
            - clicks / (4 * table.max()),
        }
        hint = "Fill each persona's best category up to the cap, then the second best, until all are placed."
        lost = 1 - clicks / best
        found = answer(price, table, cap)
        expect_close(found, lost, hint, within=1e-6, mistakes=mistakes)


@exercise("ex-hours")
def _hours(circle: Function, leftover: Function) -> None:
    """Fit by least squares with rows for the ridge added, and average hour by hour."""
    hours = np.arange(24)
    angle = np.pi * hours / 12
    right = np.stack([np.ones(24), np.cos(angle), np.sin(angle)], axis=1)
    mistakes = {"A day has 24 hours: all of it is one turn.": right[hours // 2]}
    hint = "The columns are 1, cos(2πh/24) and sin(2πh/24)."
    expect_close(answer(circle, hours), right, hint, mistakes=mistakes)

    rng = np.random.default_rng(0)
    hour = rng.integers(24, size=2_000)
    x = rng.normal(size=(2_000, 3))
    clicked = rng.integers(2, size=2_000)

    def means(first: slice, last: slice, ridge: float = 1.0) -> NDArray:
        rows = np.vstack((x[first], np.sqrt(ridge) * np.eye(3)))
        weights = np.linalg.lstsq(rows, np.r_[clicked[first], np.zeros(3)])[0]
        left = clicked[last] - x[last] @ weights
        return np.array([left[hour[last] == h].mean() for h in hours])

    early = slice(1_000)
    late = slice(1_000, None)
    mistakes = {
        "Ask visits to which the row was not fitted.": means(early, early),
        "Fit to the first half alone.": means(slice(None), late),
        "The ridge of 1 is missing.": means(early, late, 0),
        "A residual is a click minus its prediction.": -means(early, late),
    }
    hint = "Fit to the first half; average click minus prediction in the second, hour by hour."
    found = answer(leftover, x, clicked, hour)
    expect_close(found, means(early, late), hint, mistakes=mistakes)
