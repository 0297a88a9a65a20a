"""The judges of the problems for a class: solutions, which the book does not have, and typical mistakes."""

import numpy as np
from scipy import stats

from tests.exercises import assert_says, verdicts

VERDICTS = {}


def excess(p, q):
    return p * np.log(p / q) + (1 - p) * np.log((1 - p) / (1 - q))


VERDICTS["ex-wrong-promise"] = [
    (excess, "right."),
    (lambda p, q: -p * np.log(q) - (1 - p) * np.log(1 - q), "the entropy"),
    (lambda p, q: excess(q, p), "they come with p"),
    (lambda p, q: p * np.log(p / q), "without a click"),
    (lambda p, q: excess(p, q) / np.log(2), "natural logarithms"),
    (lambda p, q: excess(p, q) + 2e-6, "which loss does q have"),
]


def fossil(before, after, shares):
    earned = after[np.arange(len(after)), before.argmax(axis=1)]
    return shares @ earned / (shares @ after.max(axis=1))


def earned(before, after):
    return after[np.arange(len(after)), before.argmax(axis=1)]


VERDICTS["ex-fossil"] = [
    (fossil, "right."),
    (lambda b, a, s: fossil(b, a, np.full(len(s), 1 / len(s))), "by their shares"),
    (lambda b, a, s: s @ earned(b, a), "in clicks per visit"),
    (lambda b, a, s: s @ earned(b, a) / (s @ b.max(axis=1)), "at the new table"),
    (lambda b, a, s: s @ (earned(b, a) / a.max(axis=1)), "not a mean of shares"),
    (lambda b, a, s: fossil(b, a, s) + 2e-6, "What does each persona see"),
]


def looks(width, length, ridge):
    return max(0, 1 / width**2 - ridge / length)


VERDICTS["ex-looks"] = [
    (looks, "right."),
    (lambda w, s, r: max(0, 1 / w - r / s), "square it"),
    (lambda w, s, r: 1 / w**2, "need not be taken"),
    (lambda w, s, r: max(0, s / w**2 - r), "and not one"),
    (lambda w, s, r: 1 / w**2 - r / s, "none is needed"),
    (lambda w, s, r: looks(w, s, r) + 2e-6, "what is A"),
]


def fading(gamma, part):
    return np.log(part) / np.log(gamma)


HALF = 0.5**0.001
VERDICTS["ex-fading"] = [
    (fading, HALF, "right."),
    (lambda g, p: np.log(p / (1 + p)) / np.log(g), HALF, "stays full"),
    (lambda g, p: fading(g, 1 - p), HALF, "the new ones make up"),
    (lambda g, p: 2 * fading(g, p), HALF, "roots of the weights"),
    (lambda g, p: fading(g, p) + 2e-4, HALF, "add up the weights"),
    (fading, 1 - HALF, "what a visit loses"),
    (fading, HALF + 2e-6, "Solve your formula"),
]


def widths(rows, x, ridge):
    A = ridge * np.eye(len(x)) + rows.T @ rows
    return (
        x @ np.linalg.inv(A) @ x,
        np.sum(x**2 / np.diag(A)),
        np.diag(np.linalg.inv(A)),
    )


def of_widths(formula):
    return lambda rows, x, ridge: formula(x, *widths(rows, x, ridge))


VERDICTS["ex-diagonal-width"] = [
    (of_widths(lambda x, full, cheap, d: np.sqrt(cheap / full)), "right."),
    (of_widths(lambda x, full, cheap, d: cheap / full), "Widths are roots"),
    (of_widths(lambda x, full, cheap, d: np.sqrt(full / cheap)), "the full one by"),
    (of_widths(lambda x, full, cheap, d: np.sqrt(x**2 @ d / full)), "inverts first"),
    (of_widths(lambda x, full, cheap, d: np.sqrt(cheap / full) + 2e-6), "which matrix"),
]


def kept(d, m):
    p = (d + 1) * m + m + 1
    return p**2, p, (m + 1) ** 2


VERDICTS["ex-price-of-doubt"] = [
    (kept, "right."),
    (lambda d, m: ((d * m + m) ** 2, d * m + m, (m + 1) ** 2), "Biases are"),
    (lambda d, m: (*kept(d, m)[:2], m**2), "always on"),
    (lambda d, m: (*kept(d, m)[:2], m + 1), "is a matrix"),
    (
        lambda d, m: (kept(d, m)[0], kept(d, m)[1] + 1, (m + 1) ** 2),
        "for each parameter",
    ),
    (lambda d, m: kept(d, m)[0], "shape (3,) is wanted"),
]


def second(scale):
    return lambda a, b: stats.norm.cdf((b[0] - a[0]) / scale(a[1], b[1]))


VERDICTS["ex-two-draws"] = [
    (second(np.hypot), "right."),
    (lambda a, b: second(np.hypot)(b, a), "shows the first"),
    (second(np.add), "Variances add up"),
    (second(lambda a, b: a**2 + b**2), "root of the sum"),
    (second(lambda a, b: b), "The first is drawn"),
    (lambda a, b: second(np.hypot)(a, b) + 2e-4, "difference of two draws"),
]


def price(rates, epsilon):
    best = 1 - epsilon + epsilon / len(rates)
    return best, epsilon / len(rates), epsilon * (rates.max() - rates.mean())


def uneven(rates, epsilon):
    others = np.delete(rates, rates.argmax())
    lost = epsilon * (rates.max() - others.mean())
    return 1 - epsilon, epsilon / len(others), lost


VERDICTS["ex-floor-price"] = [
    (price, "right."),
    (uneven, "may show the best"),
    (lambda r, e: (1 - e, *price(r, e)[1:]), "also shown by the even draw"),
    (lambda r, e: (*price(r, e)[:2], r.max() - price(r, e)[2]), "what does it lose"),
    (lambda r, e: (*price(r, e)[:2], r.max() - r.mean()), "at a visit with an even"),
    (lambda r, e: np.add(price(r, e), 2e-6), "write down with which"),
]


def shortest(quick, careful):
    return int(np.sum(quick >= quick[careful.argmax()]))


VERDICTS["ex-shortest-list"] = [
    (shortest, "right."),
    (lambda q, c: shortest(q, c) - 1, "counted from 0"),
    (lambda q, c: len(q) - shortest(q, c) + 1, "the highest quick scores"),
    (lambda q, c: shortest(c, q), "its careful rank"),
    (lambda q, c: len(q) + 7, "where does the best"),
]


def squares(rows, ridge):
    A = ridge * np.eye(rows.shape[1]) + rows.T @ rows
    return np.vecdot(rows, np.linalg.solve(A, rows.T).T)


VERDICTS["ex-doubt-used"] = [
    (lambda rows, ridge: squares(rows, ridge).sum(), "right."),
    (lambda rows, ridge: np.sqrt(squares(rows, ridge)).sum(), "Squared widths"),
    (lambda rows, ridge: squares(rows, ridge).mean(), "their mean"),
    (lambda rows, ridge: min(rows.shape), "ridge is missing"),
    (lambda rows, ridge: squares(rows, ridge).sum() + 2e-6, "holds all these rows"),
]


def by_hand(weigh=np.divide, spread=stats.sem):
    def estimate(shown, clicks, propensities, policy):
        weights = weigh(policy[np.arange(len(shown)), shown], propensities)
        return (weights * clicks).mean(), spread(weights * clicks)

    return estimate


def normalised(shown, clicks, propensities, policy):
    weights = policy[np.arange(len(shown)), shown] / propensities
    error = by_hand()(shown, clicks, propensities, policy)[1]
    return (weights * clicks).sum() / weights.sum(), error


VERDICTS["ex-ips-by-hand"] = [
    (by_hand(), "right."),
    (by_hand(spread=lambda t: t.std() / np.sqrt(len(t))), "right."),
    (by_hand(spread=lambda t: t.std(ddof=1)), "root of their number"),
    (by_hand(weigh=lambda new, old: new), "with which it was shown"),
    (by_hand(weigh=lambda new, old: 1 / old), "probability of what was shown"),
    (normalised, "the plain mean"),
    (by_hand(spread=lambda t: 1.1 * stats.sem(t)), "probability now by"),
    (lambda *_: 0.4, "shape (2,) is wanted"),
]


def line(n, allowed, level):
    return int(stats.binom.isf(level, n, allowed)) + 1


def normal_line(n, p, level):
    return np.ceil(n * p + stats.norm.isf(level) * np.sqrt(n * p * (1 - p)))


VERDICTS["ex-alarm-line"] = [
    (line, "right."),
    (lambda n, p, level: line(n, p, level) + 1, "rings already"),
    (lambda n, p, level: line(n, p, level) - 1, "too often"),
    (normal_line, "not normal"),
    (lambda n, p, level: n + 3, "of the tail"),
]


def best_values(moves, r, gamma, rounds=5_000):
    values = np.zeros(r.shape[1])
    for _ in range(rounds):
        values = (r + gamma * moves @ values).max(axis=0)
    return values


def one_action(moves, r, gamma):
    each = [best_values(moves[[a]], r[[a]], gamma) for a in range(len(moves))]
    return max(each, key=np.sum)


VERDICTS["ex-value-iteration"] = [
    (best_values, "right."),
    (lambda moves, r, gamma: r.max(axis=0), "first reward alone"),
    (lambda moves, r, gamma: -best_values(moves, -r, gamma), "worst values"),
    (lambda moves, r, gamma: best_values(moves, r, gamma, 20), "Too few rounds"),
    (one_action, "in all states"),
    (
        lambda moves, r, gamma: best_values(moves, r, gamma) + 2e-5,
        "value of what follows",
    ),
    (
        lambda moves, r, gamma: best_values(moves, r, gamma).max(),
        "shape (3,) is wanted",
    ),
]


def patience(lurid, honest):
    (c, leaves), (h, stays) = lurid, honest
    return (c - h) / (c * stays - h * leaves)


VERDICTS["ex-patience"] = [
    (patience, "right."),
    (lambda a, b: (a[0] - b[0]) / a[0] / b[1], "goes on earning"),
    (lambda a, b: (a[0] - b[0]) / (b[1] - a[1]), "crosswise"),
    (lambda a, b: patience(a, b) + 2e-6, "added up over all steps"),
]


@verdicts(VERDICTS)
def test_verdicts(case):
    assert_says(*case)
