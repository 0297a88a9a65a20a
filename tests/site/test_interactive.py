"""The interactive figures: they compute what zoolib computes, answer to every reader, and hold still."""

from dataclasses import replace
from functools import cache

import numpy as np
import pytest

from tests.site.moving import move, number_in, opened, options
from zoolib import (
    SHOCK_1,
    SHOCK_2,
    Context,
    FeatureEngineer,
    MarketShock,
    NeuralLinearAgent,
    RidgePosterior,
    ZooplusSimulator,
    draw,
    offpolicy,
    oracle_value,
    true_ctr_matrix,
    with_floor,
)
from zoolib.sessions import shop as place

# The figure, its page, and the static figure that stands for it.
FIGURES = {
    "shock": ("static-recommender", "fig-shock"),
    "ellipse": ("linucb", "fig-ellipse"),
    "drift": ("evidence/neural-bandits", "fig-drift"),
    "prior": ("evidence/practice", "fig-prior"),
    "weights": ("evidence/production", "fig-offpolicy-one-log"),
    "carry": ("evidence/sessions", "fig-carry-over"),
}
every_figure = pytest.mark.parametrize("name", FIGURES)


@pytest.fixture(scope="module")
def pages(browser, site):
    """The page of each figure, opened once; a complaint in the console fails the tests."""
    context = browser.new_context(viewport={"width": 1280, "height": 1000})
    errors = []
    context.on("weberror", lambda error: errors.append(str(error.error)))
    context.on(
        "console",
        lambda line: errors.append(line.text) if line.type == "error" else None,
    )
    yield cache(lambda name: opened(context, site, *address(name)))
    context.close()
    assert errors == []


def address(name):
    return name, f"chapters/{FIGURES[name][0]}.html"


@cache
def small_shop():
    """The log of Chapter 6, from the library alone."""
    world = ZooplusSimulator(n_products=5, seed=42)
    ctr = true_ctr_matrix(world)
    first_of = [np.argmax(world.category_of_product == c) for c in range(5)]
    cats = world.user_personas == "cat_connoisseur"
    shown = [
        np.full(1000, first_of[1]),
        ctr.argmax(axis=1),
        np.where(cats, first_of[1], first_of[0]),
    ]
    policies = [np.eye(5)[arms] for arms in shown]
    rng = np.random.default_rng([42, 4])
    user = rng.integers(1000, size=2_000)
    arm, propensity = draw(with_floor(policies[0], 0.3)[user], rng)
    clicked = rng.random(2_000) < ctr[user, arm]
    log = offpolicy.Log(arm, clicked, propensity, version=1, n_arms=5)
    table = FeatureEngineer(world, interactions=True).transform(np.arange(1000))
    values = [(policy * ctr).sum(axis=1).mean() for policy in policies]
    return values, [policy[user] for policy in policies], log, table[user]


# --- What they compute --------------------------------------------------------------------------------


@pytest.mark.parametrize("ridge", [0.001, 1, 20])
@pytest.mark.parametrize(("x", "visits"), [([1, 1], 0), ([1, 0], 7), ([0, 1], 40)])
def test_the_ellipse_is_that_of_a_ridge_posterior(pages, ridge, x, visits):
    page, alpha = pages("ellipse"), 0.7
    data = page.data()
    assert data == {
        "gram": [[100, 1], [1, 1]],
        "moments": [20, 1],
        "truth": [0.2, 0.1],
    }
    posterior = RidgePosterior(n_features=2, ridge=ridge)
    rows = [[1, 1]] + [[1, 0]] * 99 + [x] * visits
    rewards = [1] + [1] * 19 + [0] * 80 + [np.dot(x, data["truth"])] * visits
    posterior.rebuild(np.array(rows, dtype=float), np.array(rewards, dtype=float))
    settings = {"ridge": ridge, "x": x, "visits": visits}
    found = page.evaluate(
        """([data, settings, alpha]) => {
            const belief = Ellipse.posterior(data, settings);
            return {
                mean: belief.mean,
                width: Ellipse.width(belief, settings.x),
                score: Ellipse.score(belief, settings.x, alpha),
                best: Ellipse.best(belief, settings.x, alpha),
                boundary: Ellipse.boundary(belief, alpha),
            };
        }""",
        [data, settings, alpha],
    )
    width = posterior.width(np.array(x, dtype=float))
    score = np.dot(x, posterior.mean) + alpha * width
    assert found["mean"] == pytest.approx(posterior.mean, rel=1e-9)
    assert found["width"] == pytest.approx(width, rel=1e-9)
    assert found["score"] == pytest.approx(score, rel=1e-9)
    away = np.array([*found["boundary"], found["best"]]) - posterior.mean
    distance = np.einsum("ni,ij,nj->n", away, posterior.A, away)
    assert distance == pytest.approx(alpha**2, rel=1e-9)
    assert np.dot(x, found["best"]) == pytest.approx(score, rel=1e-9)


@pytest.mark.parametrize("team", [1, 2])
@pytest.mark.parametrize(("part", "clip"), [(0, 17), (0.35, 1.2), (1, 5), (1, 2.5)])
def test_the_estimates_are_those_of_offpolicy(pages, team, part, clip):
    page = pages("weights")
    values, policies, log, features = small_shop()
    assert page.data()["truth"] == pytest.approx(values, abs=2e-6)
    target = (1 - part) * policies[0] + part * policies[team]
    predicted = offpolicy.cross_fit(log, features)
    wanted = {
        "IPS": offpolicy.ips(log, target),
        "clipped IPS": offpolicy.ips(log, target, clip=clip),
        "SNIPS": offpolicy.snips(log, target),
        "doubly robust": offpolicy.doubly_robust(log, target, predicted),
    }
    found = page.evaluate(
        """([data, team, part, clip]) => {
            const rows = Weights.weigh(Weights.read(data), team, part);
            return [
                Weights.estimates(rows, clip),
                Weights.effective(rows),
                Weights.histogram(rows),
            ];
        }""",
        [page.data(), team, part, clip],
    )
    for name, estimate in wanted.items():
        ends = [estimate.mean, estimate.low, estimate.high]
        assert [*found[0][name].values()] == pytest.approx(ends, abs=2e-6), name
    effective = offpolicy.effective_sample_size(log, target)
    assert found[1] == pytest.approx(effective, rel=1e-6)
    weights = offpolicy.importance_weights(log, target)
    kinds, counts = np.unique(weights.round(3), return_counts=True)
    assert np.array(found[2]) == pytest.approx(np.column_stack([kinds, counts]))


@pytest.mark.parametrize(("number", "shock"), [(0, SHOCK_1), (1, SHOCK_2)])
@pytest.mark.parametrize("part", [0, 0.3, 1])
def test_the_oracle_of_a_partial_shock_is_that_of_the_world(pages, number, shock, part):
    page = pages("shock")
    world = ZooplusSimulator(seed=42)
    before = world.personas[shock.persona]
    taste = {
        category: (1 - part) * before[category] + part * probability
        for category, probability in shock.click_probabilities.items()
    }
    world.apply_shock(MarketShock(shock.persona, taste))
    script = "([data, number, part]) => Shock.values(data.shocks[number], part)"
    found = page.evaluate(script, [page.data(), number, part])
    assert found["oracle"] == pytest.approx(oracle_value(world), abs=2e-6)


def test_the_whole_shock_costs_what_the_chapter_says(pages):
    page = pages("shock")
    script = "([data, at]) => Shock.values(data.shocks[at[0]], at[1])"
    before, first, second = (
        page.evaluate(script, [page.data(), at]) for at in ([1, 0], [0, 1], [1, 1])
    )
    world = ZooplusSimulator(seed=42)
    assert before["oracle"] == pytest.approx(oracle_value(world), abs=2e-6)
    assert before["frozen"] / before["oracle"] > 0.95
    assert before["frozen"] - first["frozen"] > 0.03
    assert second["frozen"] == pytest.approx(before["frozen"], abs=1e-6)


@pytest.mark.parametrize("n", [0, 1, 30])
@pytest.mark.parametrize(("firmness", "promise"), [(1, 0), (5, 0.2), (50, 0.4)])
def test_the_newcomers_score_is_that_of_its_posterior(pages, n, firmness, promise):
    x, rate, alpha = np.array([1, 0, 1]), 0.7, 0.5
    A = firmness * np.eye(3) + n * np.outer(x, x)  # a ridge posterior with a prior mean
    b = firmness * promise * x / 2 + n * rate * x
    wanted = [x @ np.linalg.solve(A, b), np.sqrt(x @ np.linalg.solve(A, x))]
    newcomer = {"promise": promise, "firmness": firmness, "rate": rate}
    found = pages("prior").evaluate(
        """([newcomer, alpha, n]) => {
            const { mean, width } = Prior.belief(newcomer, n);
            return [mean, width, Prior.score(newcomer, alpha, n)];
        }""",
        [newcomer, alpha, n],
    )
    assert found == pytest.approx([*wanted, wanted[0] + alpha * wanted[1]], rel=1e-9)


@pytest.mark.parametrize(
    ("newcomer", "left"),
    [
        ({"promise": 0.2, "firmness": 50, "rate": 0.7}, 0),
        ({"promise": 0.6, "firmness": 5, "rate": 0.7}, None),
        # 1 + 2n rows, no click: 0.5 √(2 / (1 + 2n)) < 0.54 first where 1 + 2n > 1.715
        ({"promise": 0, "firmness": 1, "rate": 0}, 1),
    ],
)
def test_the_newcomer_is_left_where_its_score_falls_below(pages, newcomer, left):
    script = "(newcomer) => Prior.visitsUntilLeft(newcomer, 0.5, 0.54)"
    assert pages("prior").evaluate(script, newcomer) == left


def test_the_embeddings_are_those_of_the_agent(pages):
    looks = pages("drift").data()["looks"]
    world = ZooplusSimulator(seed=0)
    features, truth = FeatureEngineer([world]), true_ctr_matrix(world)
    agent = NeuralLinearAgent(50, 9, alpha=0.3, n_worlds=1, seed=0)
    first = [
        [np.flatnonzero(codes == code)[0] for code in range(n)]
        for codes, n in ((world.persona_of_user, 4), (world.category_of_product, 5))
    ]
    rows = np.array([features.transform([user])[0, first[1]] for user in first[0]])
    cells = rows.reshape(1, 20, 9).astype(np.float32)
    shown = np.zeros(20, dtype=int)
    for look in looks[:3]:
        rng = np.random.default_rng(look["served"])
        while shown.sum() < look["served"]:
            user = rng.integers(1000, size=1)
            context = Context(user, features.transform(user))
            arm = agent.select(context)
            clicked = rng.random(1) < truth[user, arm]
            agent.update(context, arm, clicked.astype(int))
            cell = (
                5 * world.persona_of_user[user[0]] + world.category_of_product[arm[0]]
            )
            shown[cell] += 1
        embedded = agent.embed(cells)
        mean, width = agent.posterior.predict_rows(embedded)
        assert look["visits"] == shown.tolist()
        assert look["kept"][0] == pytest.approx(mean[0], abs=1e-4)
        assert look["kept"][1] == pytest.approx(width[0], abs=1e-4)
        lengths = np.linalg.norm(embedded[0], axis=1)
        assert look["length"] == pytest.approx(lengths, abs=1e-4)


@pytest.mark.parametrize("kind", ["kept", "rebuilt"])
def test_widths_and_errors_are_means_over_the_right_cells(pages, kind):
    page = pages("drift")
    data = page.data()
    look, truth = data["looks"][-1], np.array(data["truth"])
    visits, (mean, width) = np.array(look["visits"]), np.array(look[kind])
    found = page.evaluate(
        """([look, kind, truth]) =>
            [Drift.widthLeft(look, kind, 20), Drift.error(look, kind, truth, 50)]""",
        [look, kind, data["truth"]],
    )
    left = (width / look["length"])[visits < 20].mean()
    error = np.sqrt(((mean - truth)[visits >= 50] ** 2).mean())
    assert found == pytest.approx([left, error], rel=1e-9)


def test_a_rebuild_mends_predictions_and_not_widths_as_the_caption_says(pages):
    page = pages("drift")
    found = {}
    for kind in ("kept since the first visit", "rebuilt by today's network"):
        for moment in (8, 12):
            move(page, "A and b", kind)
            move(page, "Visits served", moment)
            found[kind[:4], moment] = page.summary()
    for moment in (8, 12):
        kept, rebuilt = found["kept", moment], found["rebu", moment]
        assert number_in(rebuilt, r"off by ([\d.]+\d)") < 0.5 * number_in(
            kept, r"off by ([\d.]+\d)"
        )
        for said in (kept, rebuilt):
            assert number_in(said, r"keep (\d+) %") < 50


def oracles_of(monkeypatch, carry_over, gloss, fade):
    """Decision process of the figure's shop, with plain products by category and then glossy ones."""
    monkeypatch.setattr(place, "GLOSS", gloss)
    monkeypatch.setattr(place, "FADE", fade)
    shop = place.SessionSimulator(seed=0, carry_over=carry_over)
    by_kind = np.lexsort((shop.category_of_product, shop.glossy))
    process = shop.process()
    transition, reward = process.transition[:, by_kind], process.reward[:, by_kind]
    return place.DecisionProcess(transition, reward, process.start)


@pytest.mark.parametrize(
    ("chi", "gloss", "fade"),
    [
        (0, 0.25, 0.5),
        (0.7, 0.25, 0.5),
        (0.4, 0.1, 0.3),
        (0.9, 0.5, 0.8),
        (1, 0.05, 0.5),
    ],
)
def test_the_two_oracles_are_those_of_the_decision_process(
    pages, monkeypatch, chi, gloss, fade
):
    process = oracles_of(monkeypatch, chi, gloss, fade)
    ahead, next_click = process.optimal_q().argmax(-1), process.reward.argmax(-1)
    page = pages("carry")
    found = page.evaluate(
        """([data, setting]) => data.worlds.map(
            (world) => Carry.oracles({ ...data, ...world }, setting))""",
        [page.data(), {"chi": chi, "gloss": gloss, "fade": fade}],
    )
    for g, persona in enumerate(found):
        here = np.arange(80) // 20 == g
        start = np.where(here, process.start, 0) / process.start[here].sum()
        alone = replace(process, start=start)
        assert persona["aheadClicks"] == pytest.approx(alone.value(ahead), rel=1e-5)
        assert persona["nextClicks"] == pytest.approx(alone.value(next_click), rel=1e-5)
        assert persona["ahead"] == ahead[here].reshape(5, 4).T.tolist()
        assert persona["next"] == next_click[here].reshape(5, 4)[:, 0].tolist()


def test_the_table_says_what_each_oracle_shows(pages, monkeypatch):
    page = pages("carry")
    move(page, "Persona", "budget shopper")
    move(page, "Carry-over χ", 0.7)
    move(page, "Share that gloss wins", 0.05)
    move(page, "Patience falling by itself", 0.6)
    process = oracles_of(monkeypatch, 0.7, 0.05, 0.6)
    names = [f"{kind} {c}" for kind in ("plain", "glossy") for c in place.CATEGORIES]
    best = process.optimal_q()[40:60].argmax(axis=-1).reshape(5, 4)
    next_click = process.reward[40:60:4].argmax(axis=-1)
    shown = np.array([next_click, best[:, 3], best[:, 0]]).T
    # Each patience next to those that the table says has other products, so it can say a wrong one.
    assert (best[:, 0] != best[:, 1]).any()
    assert (best[:, 2] != best[:, 3]).any()
    cells = page.figure.locator("tbody td").all_inner_texts()
    assert cells == [names[product] for product in shown.ravel()]
    same = int((next_click == best[:, 3]).sum())
    assert f"same product for {same or 'none'} of 5" in page.summary()


# --- What a move changes ------------------------------------------------------------------------------


def test_less_ridge_takes_the_estimate_to_least_squares_and_visits_flatten(pages):
    page = pages("ellipse")
    apart, height = {}, {}
    for power, visits in ((1.5, 0), (0, 0), (-3, 0), (0, 60)):
        move(page, "Ridge λ", power)
        move(page, "More visits along x", visits)
        ridge, plain = page.marks("blue"), page.marks("muted")
        apart[power, visits] = abs(ridge[0][1] - plain[0][1])
        height[power, visits] = page.area_height()
    assert apart[1.5, 0] > apart[0, 0] > 20 > 1 > apart[-3, 0]
    assert height[0, 60] < 0.4 * height[0, 0]
    move(page, "Width factor α", 0)
    assert "plus 0.00 times" in page.summary()
    assert page.area_height() < 1


def test_a_click_probability_that_is_said_is_the_one_of_the_context(pages):
    page = pages("ellipse")
    for context, rate in zip(options(page, "Context x"), (0.3, 0.2, 0.1), strict=True):
        move(page, "Context x", context)
        assert f"true click probability is {rate:.2f}" in page.summary()


def test_clipping_moves_one_estimate_and_the_target_all(pages):
    page = pages("weights")
    move(page, "Visits given to the team", 1)
    move(page, "Clipping bound c", 17)
    before = page.marks("blue"), page.marks("orange")
    said = page.summary()
    move(page, "Clipping bound c", 5)
    assert page.marks("blue") == before[0]
    assert page.marks("orange")[0][0] < before[1][0][0] - 50
    assert "Missed by: clipped IPS." in page.summary()
    move(page, "Visits given to the team", 0.5)
    assert all(
        now != then for now, then in zip(page.marks("blue"), before[0], strict=True)
    )
    effective = r"size: ([\d,]+) of"
    assert number_in(page.summary(), effective) > number_in(said, effective)


def test_the_two_values_part_where_fish_become_best(pages):
    page = pages("shock")
    data = page.data()["shocks"][0]
    now, then = (np.array(taste) for taste in data["tastes"])
    best = now.argmax()
    part = (now[best] - now[0]) / ((now[best] - now[0]) + (then[0] - then[best]))
    assert then.argmax() == 0
    gap = {}
    for at in (0, 0.2, 0.3, 1):
        move(page, "How far the taste has changed", at)
        oracle, frozen = (mark[1] for mark in page.marks("green")), page.marks("orange")
        gap[at] = frozen[-1][1] - next(oracle)
    assert 0.2 < part < 0.3
    assert gap[0] >= gap[0.2]
    assert gap[0.2] < gap[0.3] < gap[1]
    move(page, "Shock", "second")
    assert number_in(page.summary(), r"moved by −?([\d.]+\d)") <= 0.002


def test_a_firm_prior_hides_a_good_product_and_a_loose_one_does_not(pages):
    page = pages("prior")
    said = {}
    for firmness in (1, 3, 50):
        move(page, "Firmness λ", firmness)
        said[firmness] = page.summary()
    assert "better than all old ones" in said[1]
    assert "it stays" in said[1]
    assert "it stays" in said[3]
    assert "it is never shown" in said[50]
    move(page, "Prior", "zero")
    move(page, "Firmness λ", 1)
    move(page, "Newcomer's click probability", 0)
    assert "it is left after 1 visits. In truth it is no better" in page.summary()


def test_time_moves_the_points_and_a_rebuild_only_the_rings(pages):
    page = pages("drift")
    kept, rebuilt = options(page, "A and b")
    move(page, "A and b", kept)
    move(page, "Visits served", 2)
    early = page.marks("blue")
    move(page, "Visits served", 12)
    late, rings = page.marks("blue"), page.rings()
    assert early != late
    move(page, "A and b", rebuilt)
    assert page.marks("blue") == late
    assert page.rings() != rings


def test_a_little_clickbait_loses_more_than_much_and_than_none(pages):
    page = pages("carry")
    lost = {}
    for persona in options(page, "Persona"):
        move(page, "Persona", persona)
        for at in ((1, 0), (1, 0.05), (1, 0.5), (0, 0.25), (1, 0.25)):
            move(page, "Carry-over χ", at[0])
            move(page, "Share that gloss wins", at[1])
            lost[persona, *at] = number_in(page.summary(), r"(\d+) % are lost")
        assert lost[persona, 0, 0.25] == lost[persona, 1, 0] == 0
        assert lost[persona, 1, 0.05] > lost[persona, 1, 0.5]
    enough = [
        persona for persona in options(page, "Persona") if lost[persona, 1, 0.25] < 1
    ]
    assert enough == ["budget shopper"]
    heights = [mark[1] for color in ("green", "orange") for mark in page.marks(color)]
    assert heights[1] - heights[0] > 20  # a fish hobbyist at carry-over 1


# --- For every reader ---------------------------------------------------------------------------------


@every_figure
def test_the_keyboard_moves_every_control(pages, name):
    page = pages(name)
    stops = page.controls()
    assert len(stops) >= 2
    page.locator(".interactive-stage").evaluate(
        "stage => { stage.tabIndex = -1; stage.focus(); }"
    )
    for stop in stops:
        page.keyboard.press("Tab")
        assert page.evaluate("document.activeElement.id") == stop
        control = page.locator(f"#{stop}")
        before = control.input_value()
        page.keyboard.press("ArrowDown")
        if control.input_value() == before:  # it stood at its end
            page.keyboard.press("ArrowUp")
        assert control.input_value() != before
    assert page.locator("[data-figure] [onclick], [data-figure] [oninput]").count() == 0


@every_figure
def test_every_control_has_a_name_and_says_its_value(pages, name):
    page = pages(name)
    sliders = page.figure.locator("input[type=range]")
    for slider in sliders.all():
        label = page.figure.locator(f"label[for={slider.get_attribute('id')}]")
        said = page.figure.locator(f"output[for={slider.get_attribute('id')}]")
        assert label.inner_text().strip()
        assert said.inner_text() == slider.get_attribute("aria-valuetext") != ""
    assert page.figure.get_attribute("role") == "group"
    assert len(page.figure.get_attribute("aria-label")) > 20
    assert page.figure.locator("[aria-live=polite]").count() == 1
    for plot in page.figure.locator("svg.interactive-plot").all():
        assert plot.get_attribute("role") == "img"
        assert len(plot.get_attribute("aria-label")) > 20


@every_figure
def test_without_scripts_the_static_figure_stands_alone(browser, site, name):
    page = opened(
        browser.new_context(java_script_enabled=False), site, *address(name), wait=False
    )
    assert not page.figure.is_visible()
    assert page.locator(f"#{FIGURES[name][1]} img").first.is_visible()
    assert page.figure.locator("input, button, select").count() == 0
    page.context.close()


@every_figure
def test_in_print_the_static_figure_stands_alone(pages, name):
    page = pages(name)
    page.emulate_media(media="print")
    assert not page.figure.is_visible()
    assert page.locator(f"#{FIGURES[name][1]} img").first.is_visible()
    page.emulate_media(media="screen")
    assert page.figure.is_visible()


@every_figure
@pytest.mark.parametrize("width", [390, 1280])
def test_a_figure_needs_no_more_room_than_it_reserves_so_that_nothing_moves(
    browser, site, name, width
):
    context = browser.new_context(viewport={"width": width, "height": 900})
    context.route(f"**/{name}.js", lambda route: route.abort())
    empty = opened(context, site, *address(name), wait=False, only=True)
    reserved = empty.figure.bounding_box()["height"]
    context.unroute(f"**/{name}.js")
    page = opened(context, site, *address(name), only=True)
    for _ in page.corners():
        assert page.figure.bounding_box()["height"] == pytest.approx(reserved, abs=1)
        assert page.words_outside() == []
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
