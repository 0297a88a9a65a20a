import numpy as np
import pytest
from numpy.testing import assert_allclose
from scipy import optimize, stats
from scipy.special import expit

from tests.states import learnt
from zoolib.agents import (
    Context,
    EpsilonGreedyAgent,
    LinearAgent,
    LinTSAgent,
    LinUCBAgent,
)

NAN, INF = float("nan"), float("inf")
ALPHA, RIDGE, K, D = 0.7, 2.5, 4, 3
LEAST = 1e-4  # the weight of a click that was certain
in_one_world_or_two = pytest.mark.parametrize("worlds", [(), (2,)])


def normal(seed, *shape):
    return np.random.default_rng(seed).normal(size=shape)


def visit(step, *worlds, k=K, clicks=False):
    """A context, an arm, and a reward or a click that depends on both."""
    rng = np.random.default_rng([step, 3])
    features = rng.normal(size=(*worlds, k, D))
    arm = rng.integers(k, size=worlds)
    x = np.take_along_axis(features, arm[..., None, None], axis=-2)[..., 0, :]
    reward = x[..., 0] - 0.5 * x[..., 1] + 0.3 * arm + rng.normal(size=worlds)
    if clicks:
        reward = (reward > 0).astype(float)
    context = Context(np.zeros(worlds, int), features)
    return (context, arm, reward) if worlds else (context, int(arm), float(reward))


def n_of(worlds):
    return worlds[0] if worlds else None


def of_world(played, w):
    context, arm, reward = played
    return context.of_world(w), int(arm[w]), float(reward[w])


def taught(kind, worlds=(), *, n=30, **options):
    agent = kind(K, D, ridge=RIDGE, n_worlds=n_of(worlds), **options)
    for step in range(n):
        agent.update(*visit(step, *worlds, clicks=True))
    return agent


# --- Thompson sampling -------------------------------------------------------------------------


def draws(agent, context, n=6000):
    return np.array([agent.scores(context) for _ in range(n)])


def assert_normal(drawn, mean, covariance):
    """Means, covariances and, after whitening, the shape are those of the normal distribution."""
    n = len(drawn)
    root = np.linalg.cholesky(covariance)
    white = np.linalg.solve(root, (drawn - mean).T).T
    k = len(mean)
    assert (abs(white.mean(axis=0)) < 4.5 / np.sqrt(n)).all()
    error = np.sqrt((1 + np.eye(k)) / n)
    assert (abs(white.T @ white / n - np.eye(k)) < 4.5 * error).all()
    assert min(stats.kstest(white, "norm", axis=0).pvalue) > 0.0005


@pytest.mark.parametrize("options", [{}, {"discount": 0.9}, {"link": "logit"}])
def test_arms_with_models_of_their_own_are_drawn_independently(options):
    agent = taught(LinTSAgent, alpha=ALPHA, **options)
    context = visit(99)[0]
    A, b = agent.posterior.A, agent.posterior.b
    mean = [x @ np.linalg.solve(A[a], b[a]) for a, x in enumerate(context.features)]
    variance = [x @ np.linalg.solve(A[a], x) for a, x in enumerate(context.features)]
    covariance = ALPHA**2 * np.diag(variance)
    assert_normal(draws(agent, context), np.array(mean), covariance)


@pytest.mark.parametrize("options", [{}, {"discount": 0.9}])
def test_arms_of_one_model_are_drawn_together(options):
    agent = taught(LinTSAgent, alpha=ALPHA, shared=True, n=6, **options)
    x = visit(99)[0].features[:D]
    context = Context(0, x[[0, 1, 2, 1]])
    A, b = agent.posterior.A, agent.posterior.b
    drawn = draws(agent, context)
    assert (drawn[:, 1] == drawn[:, 3]).all()
    covariance = ALPHA**2 * x @ np.linalg.solve(A, x.T)
    assert_normal(drawn[:, :3], x @ np.linalg.solve(A, b), covariance)


def chance_of_the_first(agent, context):
    """The probability that the first of two arms has the larger draw, from the posterior's moments."""
    first, second = context.features
    A, b = agent.posterior.A, agent.posterior.b
    if agent.shared:
        difference = first - second
        mean = difference @ np.linalg.solve(A, b)
        variance = difference @ np.linalg.solve(A, difference)
    else:
        mean = first @ np.linalg.solve(A[0], b[0])
        mean -= second @ np.linalg.solve(A[1], b[1])
        variance = first @ np.linalg.solve(A[0], first)
        variance += second @ np.linalg.solve(A[1], second)
    return stats.norm.cdf(mean / (ALPHA * np.sqrt(variance)))


def of_two_arms(shared):
    agent = LinTSAgent(2, D, ALPHA, RIDGE, shared=shared)
    for step in range(12):
        agent.update(*visit(step, k=2))
    context = visit(99, k=2)[0]
    chance = chance_of_the_first(agent, context)
    assert 0.02 < chance < 0.98
    return agent, context, chance


def test_propensities_of_independent_arms_are_the_normal_probability_of_winning():
    agent, context, chance = of_two_arms(shared=False)
    exactly = agent.propensities(context)
    assert_allclose(exactly, [chance, 1 - chance], rtol=0, atol=1e-6)


def test_propensities_of_one_model_are_the_shares_of_draws_that_arms_win():
    agent, context, chance = of_two_arms(shared=True)
    estimates = np.array([agent.propensities(context) for _ in range(40)])
    assert_allclose(estimates.sum(axis=1), 1)
    assert_allclose(estimates * 100, (estimates * 100).round())
    tenths = 10 * agent.propensities(context, n_draws=10)
    assert_allclose(tenths, tenths.round())
    error = np.sqrt(chance * (1 - chance) / 4000)
    assert abs(estimates[:, 0].mean() - chance) < 4 * error
    spread = np.sqrt(chance * (1 - chance) / 100)
    assert 0.6 * spread < estimates[:, 0].std() < 1.4 * spread
    assert agent.propensities(context, [False, True]).tolist() == [0, 1]


@pytest.mark.parametrize("shared", [False, True])
def test_an_arm_is_shown_as_often_as_it_wins(shared):
    agent, context, chance = of_two_arms(shared)
    shown = np.mean([agent.select(context) == 0 for _ in range(4000)])
    assert abs(shown - chance) < 4 * np.sqrt(chance * (1 - chance) / 4000)


@pytest.mark.parametrize("shared", [False, True])
def test_without_noise_a_draw_is_the_prediction(shared):
    certain = taught(LinTSAgent, shared=shared, alpha=0)
    greedy = taught(LinearAgent, shared=shared)
    context = visit(99)[0]
    assert_allclose(certain.scores(context), greedy.scores(context))


# --- Both links --------------------------------------------------------------------------------

with_both_links = pytest.mark.parametrize("link", ["identity", "logit"])


class Newton:
    """One step of Newton's method a reward, by explicit matrices; rows are kept to be taken out."""

    def __init__(self, link, discount=1.0, window=None):
        self.A, self.b, self.link = RIDGE * np.eye(D), np.zeros(D), link
        self.discount, self.window, self.rows = discount, window, []

    def learn(self, x, r):
        theta = np.linalg.solve(self.A, self.b)
        p, w = x @ theta, 1.0
        if self.link == "logit":
            p = 1 / (1 + np.exp(-p))
            w = max(p * (1 - p), LEAST)
        # The curvature of the log-likelihood and of the prior, then a step along the gradient.
        self.A = self.discount * self.A + w * np.outer(x, x)
        moved = theta + np.linalg.solve(self.A, (r - p) * x)
        self.b = self.A @ moved
        self.rows.append((x, w, x @ theta + (r - p) / w))
        if self.window and len(self.rows) > self.window:
            self.forget()

    def forget(self):
        x, w, target = self.rows.pop(0)
        self.A = self.A - w * np.outer(x, x)
        self.b = self.b - w * target * x


@in_one_world_or_two
@with_both_links
@pytest.mark.parametrize("forget", [{}, {"discount": 0.95}, {"window": 15}])
def test_a_click_is_one_newton_step_of_a_shared_model(forget, link, worlds):
    options = {"shared": True, "link": link, "n_worlds": n_of(worlds), **forget}
    greedy, bold = (
        LinearAgent(K, D, RIDGE, **options),
        LinUCBAgent(K, D, ALPHA, RIDGE, **options),
    )
    expected = [Newton(link, **forget) for _ in range(n_of(worlds) or 1)]
    for step in range(60):
        played = visit(step, *worlds, clicks=True)
        scores, bounds = greedy.scores(played[0]), bold.scores(played[0])
        for agent in (greedy, bold):
            agent.update(*played)
        for w, newton in enumerate(expected):
            at = (w,) if worlds else ()
            context, arm, click = of_world(played, w) if worlds else played
            x, theta = context.features, np.linalg.solve(newton.A, newton.b)
            width = np.sqrt((x * np.linalg.solve(newton.A, x.T).T).sum(axis=1))
            assert_allclose(scores[at], x @ theta, atol=1e-8)
            assert_allclose(bounds[at], x @ theta + ALPHA * width, atol=1e-8)
            newton.learn(context.features[arm], click)
            assert_allclose(greedy.posterior.A[at], newton.A, atol=1e-8)
            assert_allclose(greedy.posterior.b[at], newton.b, atol=1e-8)


@in_one_world_or_two
@with_both_links
@pytest.mark.parametrize("forget", [{}, {"discount": 0.9}])
def test_a_click_is_one_newton_step_of_the_arms_own_model(forget, link, worlds):
    agent = LinearAgent(K, D, RIDGE, n_of(worlds), link=link, **forget)
    expected = [
        [Newton(link, **forget) for _ in range(K)] for _ in range(n_of(worlds) or 1)
    ]
    for step in range(60):
        played = visit(step, *worlds, clicks=True)
        if step % 3 == 0:  # a reward between 0 and 1 is a share of clicks
            played = (*played[:2], played[2] * 0.25)
        agent.update(*played)
        for w, models in enumerate(expected):
            context, arm, click = of_world(played, w) if worlds else played
            models[arm].learn(context.features[arm], click)
    A = np.array([[model.A for model in models] for models in expected])
    theta = [[np.linalg.solve(m.A, m.b) for m in models] for models in expected]
    assert_allclose(agent.posterior.A, A if worlds else A[0], atol=1e-8)
    assert_allclose(agent.posterior.mean, theta if worlds else theta[0], atol=1e-8)


@with_both_links
def test_a_window_of_clicks_forgets_what_leaves_it_whichever_arm_it_showed(link):
    agent = LinearAgent(K, D, RIDGE, link=link, window=10)
    models, shown = [Newton(link) for _ in range(K)], []
    for step in range(80):
        context, arm, click = visit(step, clicks=True)
        agent.update(context, arm, click)
        models[arm].learn(context.features[arm], click)
        shown.append(arm)
        if step >= 10:
            models[shown[-11]].forget()
        assert_allclose(agent.posterior.A, [model.A for model in models], atol=1e-8)
        assert_allclose(agent.posterior.b, [model.b for model in models], atol=1e-8)


def test_many_clicks_lead_close_to_the_best_explanation_of_all():
    rng = np.random.default_rng(0)
    truth = np.array([0.8, -0.6, 0.3])
    agent = LinearAgent(1, D, ridge=RIDGE, link="logit")
    x = rng.normal(size=(3000, D))
    clicks = (rng.random(3000) < expit(x @ truth)).astype(int)
    for row, click in zip(x, clicks, strict=True):
        agent.update(Context(0, row[None]), 0, int(click))

    def loss(theta):
        log_odds = x @ theta
        lost = np.logaddexp(0, log_odds) - clicks * log_odds
        return lost.sum() + RIDGE / 2 * theta @ theta

    best = optimize.minimize(loss, np.zeros(D), method="BFGS").x
    p = expit(x @ best)
    curvature = RIDGE * np.eye(D) + (x * (p * (1 - p))[:, None]).T @ x
    error = np.sqrt(np.diag(np.linalg.inv(curvature)))
    # Nearer to the posterior's mode than a third of its width.
    assert (abs(agent.posterior.mean[0] - best) < error / 3).all()
    width = np.sqrt(np.diag(agent.posterior.A_inv[0]))
    assert_allclose(width, error, rtol=0.05)


def test_a_click_that_was_certain_still_counts_a_little():
    agent = LinearAgent(1, 1, link="logit")
    agent.posterior.reset((), mean=[60.0])
    agent.update(Context(0, [[1.0]]), 0, 0.0)  # p (1 - p) is 0 in double precision
    assert agent.posterior.A.item() == pytest.approx(1 + LEAST, rel=1e-12)
    assert agent.posterior.mean.item() == pytest.approx(60 - 1 / (1 + LEAST))


@pytest.mark.parametrize("reward", [-0.01, 1.01, 7])
@in_one_world_or_two
@pytest.mark.parametrize("shared", [False, True])
def test_what_is_no_click_changes_nothing(reward, worlds, shared):
    options = {"window": 5, "link": "logit", "shared": shared}
    agent = taught(LinUCBAgent, worlds, **options)
    before = learnt(agent)
    context, arm, _ = visit(99, *worlds)
    wrong = [0.5, reward] if worlds else reward
    with pytest.raises(ValueError, match=r"reward must lie in \[0, 1\] with a logit"):
        agent.update(context, arm, wrong)
    assert learnt(agent) == before


@pytest.mark.parametrize("kind", [LinearAgent, LinUCBAgent, LinTSAgent])
def test_a_link_must_be_known(kind):
    with pytest.raises(ValueError, match=r"link must be one of.*identity.*'probit'"):
        kind(K, D, link="probit")


# --- Greedy agents -----------------------------------------------------------------------------


@in_one_world_or_two
@pytest.mark.parametrize("options", [{}, {"shared": True}, {"link": "logit"}])
def test_a_greedy_agent_is_a_linucb_that_weighs_no_uncertainty(options, worlds):
    greedy = taught(LinearAgent, worlds, **options)
    linucb = taught(LinUCBAgent, worlds, alpha=0.0, **options)
    for step in range(20):
        context = visit(step, *worlds)[0]
        scores = linucb.scores(context)
        assert_allclose(greedy.scores(context), scores, rtol=0, atol=1e-12)
        assert np.array_equal(greedy.select(context), scores.argmax(axis=-1))


@pytest.mark.parametrize("epsilon", [0.1, 0.3])
def test_the_share_of_arms_drawn_at_random_is_epsilon(epsilon):
    agent = taught(EpsilonGreedyAgent, epsilon=epsilon)
    context = visit(99)[0]
    best = taught(LinearAgent).select(context)
    policy = np.full(K, epsilon / K)
    policy[best] += 1 - epsilon
    assert_allclose(agent.propensities(context), policy, rtol=1e-12)
    some = Context(0, context.features, offered=np.arange(K) != (best + 1) % K)
    policy = np.where(some.offered, epsilon / (K - 1), 0)
    policy[best] += 1 - epsilon
    assert_allclose(agent.propensities(some), policy, rtol=1e-12)
    shown = np.bincount([agent.select(some) for _ in range(4000)], minlength=K) / 4000
    assert (abs(shown - policy) <= 4.5 * np.sqrt(policy * (1 - policy) / 4000)).all()


# --- Arms that come, and fits ------------------------------------------------------------------

FORGET = [
    {},
    {"discount": 0.9},
    {"window": 11},
    {"link": "logit"},
    {"link": "logit", "window": 11},
]


@pytest.mark.no_cover
@in_one_world_or_two
@pytest.mark.parametrize("forget", FORGET)
@pytest.mark.parametrize("seed", range(3))
def test_an_agent_is_as_if_its_arms_had_always_been_there(seed, forget, worlds):
    """A second agent has all arms from the start."""
    rng = np.random.default_rng(seed)
    total, options = 30, {"n_worlds": n_of(worlds), **forget}
    agent = LinUCBAgent(3, D, ALPHA, RIDGE, **options)
    whole = LinUCBAgent(total, D, ALPHA, RIDGE, **options)
    k = 3
    for _ in range(150):
        what = rng.choice(["play"] * 8 + ["add", "restock"])
        if what == "add" and k < total - 2:
            n = int(rng.integers(1, 3))
            mean = [None, (D,), (n, D), (*worlds, n, D)][rng.integers(4)]
            mean = mean and rng.normal(size=mean)
            ridge = [None, 0.8][rng.integers(2)]
            agent.add_arms(n, mean, ridge)
            new = (*[slice(None)] * len(worlds), slice(k, k + n))
            whole.posterior.reset(new, mean, ridge)
            k += n
        elif what == "restock":
            arms = rng.integers(k, size=(*worlds, 1))
            agent.restock(arms)
            whole.restock(arms)
        assert agent.n_arms == k
        features = np.zeros((*worlds, total, D))
        features[..., :k, :] = rng.normal(size=(*worlds, k, D))
        context = Context(np.zeros(worlds, int), features[..., :k, :])
        everything = Context(np.zeros(worlds, int), features)
        expected = whole.scores(everything)[..., :k]
        assert_allclose(agent.scores(context), expected, rtol=0, atol=1e-8)
        arm = rng.integers(k, size=worlds)
        reward = rng.random(worlds)
        if not worlds:
            arm, reward = int(arm), float(reward)
        agent.update(context, arm, reward)
        whole.update(everything, arm, reward)
        kept = whole.posterior.A[..., :k, :, :]
        assert_allclose(agent.posterior.A, kept, atol=1e-8)


@in_one_world_or_two
@pytest.mark.parametrize("forget", FORGET)
def test_a_shared_model_keeps_what_it_knows_whichever_arms_there_are(forget, worlds):
    options = {"n_worlds": n_of(worlds), "shared": True, "ridge": RIDGE, **forget}
    agent, steady = LinUCBAgent(K, D, **options), LinUCBAgent(K, D, **options)
    for step in range(60):
        if step in (5, 25):
            agent.add_arms(2)
        n = K + 2 * (step >= 5) + 2 * (step >= 25)
        context, arm, reward = visit(step, *worlds, clicks=True)
        extra = context.features[..., : n - K, :]
        features = np.concatenate((context.features, extra), axis=-2)
        wide = Context(context.user_id, features)
        scores = agent.scores(wide)
        assert scores.shape == (*worlds, n)
        assert_allclose(scores[..., :K], steady.scores(context))
        agent.update(wide, arm, reward)
        steady.update(context, arm, reward)
        assert_allclose(agent.posterior.A, steady.posterior.A, atol=1e-9)
        assert_allclose(agent.posterior.b, steady.posterior.b, atol=1e-9)


@pytest.mark.parametrize("kind", [LinTSAgent, EpsilonGreedyAgent, LinearAgent])
def test_new_arms_are_shown_and_contexts_must_have_them(kind):
    agent = kind(2, D)
    agent.add_arms(3)
    same_for_all = Context(0, np.ones((5, D)))
    assert {agent.select(same_for_all) for _ in range(100)} == set(range(5))
    assert_allclose(agent.propensities(same_for_all), 0.2, rtol=1e-6)
    with pytest.raises(ValueError, match=r"context\.features.*\(5, 3\).*\(2, 3\)"):
        agent.select(Context(0, np.ones((2, D))))
    with pytest.raises(ValueError, match="arm must lie in 0 … 4: got 5"):
        agent.update(same_for_all, 5, 1.0)


def test_a_new_arm_with_a_firm_belief_is_shown_for_it():
    agent = taught(LinUCBAgent, alpha=0.1)
    agent.add_arms(1, mean=[9.0, 0, 0], ridge=100.0)
    features = np.tile([1.0, 0, 0], (K + 1, 1))
    scores = agent.scores(Context(0, features))
    assert scores[-1] == pytest.approx(9 + 0.1 / 10)
    assert agent.select(Context(0, features)) == K


@pytest.mark.parametrize(
    ("shared", "arguments", "error", "words"),
    [
        (False, {"arms": 0}, ValueError, ["arms must be at least 1"]),
        (False, {"arms": 1.0}, TypeError, ["arms must be a whole"]),
        (False, {"arms": 2, "mean": [1.0]}, ValueError, ["mean", "(1,)"]),
        (False, {"arms": 2, "mean": 1.0}, ValueError, ["mean", "()"]),
        (
            False,
            {"arms": 2, "mean": np.ones((3, D))},
            ValueError,
            ["mean", "(3, 3)"],
        ),
        (False, {"arms": 2, "mean": [NAN] * D}, ValueError, ["mean must be finite"]),
        (False, {"arms": 2, "ridge": 0}, ValueError, ["ridge must be positive"]),
        (False, {"arms": 2, "ridge": "1"}, TypeError, ["ridge must be a number"]),
        (
            False,
            {"arms": 2, "mean": [1.0] * D, "ridge": INF},
            ValueError,
            ["ridge must be positive and finite"],
        ),
        (True, {"arms": 0}, ValueError, ["arms must be at least 1"]),
        (True, {"arms": 1, "mean": [1.0] * D}, ValueError, ["got a shared model"]),
        (True, {"arms": 1, "ridge": 1.0}, ValueError, ["got a shared model"]),
    ],
)
@in_one_world_or_two
def test_arms_that_cannot_come_do_not(shared, arguments, error, words, worlds):
    agent = taught(LinUCBAgent, worlds, window=5, shared=shared)
    before = learnt(agent)
    with pytest.raises(error) as refusal:
        agent.add_arms(**arguments)
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert learnt(agent) == before


@in_one_world_or_two
def test_a_restocked_arm_begins_from_the_agents_own_prior(worlds):
    informed, plain = (taught(LinUCBAgent, worlds) for _ in range(2))
    informed.add_arms(1, mean=[9.0, 0, 0], ridge=100.0)
    plain.add_arms(1)
    arms = np.array([[K], [K]]) if worlds else np.array([K])
    for agent in (informed, plain):
        agent.restock(arms)
    assert learnt(informed) == learnt(plain)
    prior = informed.posterior.prior[..., K]
    assert (prior == RIDGE).all()


@pytest.mark.parametrize("shared", [False, True])
@pytest.mark.parametrize("link", ["logit", "identity"])
def test_a_fit_is_the_best_fit_to_the_log(link, shared):
    rng = np.random.default_rng(0)
    x = np.c_[np.ones(3_000), rng.random((3_000, D - 1)) < 0.5]
    arms = rng.integers(K, size=3_000)
    clicks = (rng.random(3_000) < expit(x @ [-4, 0.5, -0.3])).astype(float)
    agent = LinUCBAgent(K, D, ridge=RIDGE, link=link, shared=shared)
    agent.update_many(x, arms, clicks)
    once = agent.posterior.mean
    agent.fit_many(x, arms, clicks)
    for model in [()] if shared else [(k,) for k in range(K)]:
        mine = arms == model if model else slice(None)
        rows, r = x[mine], clicks[mine]

        def loss(theta, rows=rows, r=r):
            eta = rows @ theta
            error = np.logaddexp(0, eta) - r * eta
            return (2 * error if link == "logit" else (eta - r) ** 2).sum() + (
                RIDGE * theta @ theta
            )

        best = optimize.minimize(loss, np.zeros(D), tol=1e-10).x
        assert_allclose(agent.posterior.mean[model], best, atol=1e-4)
        p = expit(rows @ best)
        weight = p * (1 - p) if link == "logit" else np.ones(len(rows))
        A = RIDGE * np.eye(D) + (weight[:, None] * rows).T @ rows
        assert_allclose(agent.posterior.A[model], A, rtol=1e-3, atol=1e-6)
        if link == "logit":  # learnt visit by visit, the same log promises too much
            assert expit(rows @ once[model]).mean() > 1.05 * p.mean()


def test_a_fit_that_still_moves_in_its_last_pass_says_so():
    agent = LinUCBAgent(1, 1, link="logit")
    log = np.ones((4, 1)), [0] * 4, [1, 0, 0, 0]
    words = "fit of arm 0 still moved in pass 2: give it more passes"
    with pytest.warns(UserWarning, match=words) as warned:
        agent.fit_many(*log, passes=2)
    assert [one.filename for one in warned] == [__file__]
    agent.fit_many(*log)  # warnings are errors here
    eta = agent.posterior.mean.item()
    slope = 1 - 4 * expit(eta)  # of the log-likelihood
    assert slope == pytest.approx(eta)


def test_a_fit_that_is_refused_changes_nothing():
    agent = LinUCBAgent(2, 2, link="logit")
    agent.update_many(np.eye(2), [0, 1], [1, 0])
    before = learnt(agent)
    for rewards, words in (
        ([0, 2.0], r"lie in \[0, 1\] .*: got 2.0"),
        ([0, NAN], "be fin"),
    ):
        with pytest.raises(ValueError, match=f"rewards? must {words}"):
            agent.fit_many(np.eye(2), [0, 1], rewards)
    assert learnt(agent) == before
    with pytest.raises(
        ValueError, match="fit_many is for agents that forget nothing: got"
    ):
        LinUCBAgent(2, 2, discount=0.9).fit_many(np.eye(2), [0, 1], [0, 1])


@in_one_world_or_two
@pytest.mark.parametrize("shared", [False, True])
def test_an_outlier_that_has_left_the_window_leaves_no_trace(shared, worlds):
    options = {"window": 9, "shared": shared, "n_worlds": n_of(worlds)}
    agent, fresh = (LinUCBAgent(K, D, ALPHA, RIDGE, **options) for _ in range(2))
    rng = np.random.default_rng(0)
    for step in range(30):
        features = rng.normal(size=(*worlds, K, D)) * (1e7 if step == 6 else 1)
        arm, reward = rng.integers(K, size=worlds), rng.normal(size=worlds)
        context = Context(np.zeros(worlds, int), features)
        played = (arm, reward) if worlds else (int(arm), float(reward))
        agent.update(context, *played)
        if step >= 21:  # the last nine
            fresh.update(context, *played)
    assert_allclose(agent.posterior.A, fresh.posterior.A, rtol=1e-9, atol=1e-9)
    assert_allclose(agent.scores(context), fresh.scores(context), rtol=1e-7)


@pytest.mark.parametrize(
    ("options", "size"),
    [
        ({}, 1.7e9),
        ({"discount": 0.9}, 1.7e9),
        ({"window": 3}, 1.7e9),
        ({"shared": True}, 1.7e9),
        ({"link": "logit"}, 1.7e12),  # whose rows weigh less
    ],
)
def test_features_next_to_which_the_prior_is_lost_are_refused_and_change_nothing(
    options, size
):
    agent = taught(LinUCBAgent, n=20, **options)
    before = learnt(agent)
    with pytest.raises(ValueError, match="features must not be so large"):
        agent.update(Context(0, np.full((K, D), size)), 1, 1.0)
    assert learnt(agent) == before
