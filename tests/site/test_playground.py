"""The playground: its simulator is zoolib's, it is fast, and its page does what its controls say."""

import re
from dataclasses import asdict

import numpy as np
import pytest
from scipy import stats

import zoolib
from tests.notebooks import ROOT
from tests.site.moving import move, opened
from zoolib import (
    SHOCK_1,
    SHOCK_2,
    Context,
    FeatureEngineer,
    LinTSAgent,
    LinUCBAgent,
    RandomAgent,
    ZooplusSimulator,
    mean_interval,
    regret,
    run_experiment,
)
from zoolib.models.posterior import LEAST_FADED, LEAST_PRIOR

SCRIPTS = ROOT / "_ext" / "scripts"
KINDS = {"LinUCB": LinUCBAgent, "LinTS": LinTSAgent, "RandomAgent": RandomAgent}


def facts():
    """What a page must hand over, straight from the library."""
    world = ZooplusSimulator(seed=42)
    return {
        "personas": list(world.personas),
        "categories": list(world.categories),
        "table": world.click_table.tolist(),
        "features": FeatureEngineer(world).names,
        "n_users": world.n_users,
        "ridge": 1.0,
        "least_prior": LEAST_PRIOR,
        "least_faded": LEAST_FADED,
        "shocks": [asdict(SHOCK_1), asdict(SHOCK_2)],
    }


@pytest.fixture(scope="module")
def zoo(browser):
    """An empty page with the simulator; `zoo(script, argument)` runs a function in it."""
    page = browser.new_page()
    errors = []
    page.on("pageerror", lambda error: errors.append(str(error)))
    page.add_script_tag(path=SCRIPTS / "zoo.js")
    yield page.evaluate
    assert errors == []
    page.close()


class Recorded:
    """An agent's random numbers, remembered."""

    def __init__(self, uniforms):
        self.uniforms, self.drawn, self.normal = uniforms, [], []

    def next(self, n=None):
        self.drawn.append(float(self.uniforms.next(n)))
        return np.float64(self.drawn[-1])

    def normals(self, n):
        drawn = self.uniforms.normals(n)
        self.normal += drawn.tolist()
        return drawn


def agents_of(case, **more):
    own = {"alpha": case["alpha"], "discount": case["discount"]}
    return {
        "LinUCB": LinUCBAgent(case["n_products"], 9, **own, **more),
        "LinTS": LinTSAgent(case["n_products"], 9, **own, **more),
        "RandomAgent": RandomAgent(case["n_products"], **more),
    }


def mixed(table, noise, mean):
    return (1 - noise) * table + noise * mean


def play(case):
    """Play a case in zoolib, one world, and keep all that was left to chance."""
    world = ZooplusSimulator(n_products=case["n_products"], seed=case["seed"])
    features, rng = FeatureEngineer(world), np.random.default_rng(case["seed"])
    users = rng.integers(world.n_users, size=case["n_steps"])
    clicking = rng.random((case["n_steps"], len(world.categories)))
    agents = agents_of(case, seed=case["seed"])
    for agent in agents.values():
        agent._uniforms = Recorded(agent._uniforms)
    mean = world.click_table.mean()
    table = mixed(world.click_table, case["noise"], mean)
    shocks = {step: (SHOCK_1, SHOCK_2)[which] for step, which in case["shocks"]}
    arms, rewards, expected, optimal = [], [], [], []
    for step, user in enumerate(users):
        if step in shocks:
            world.apply_shock(shocks[step])
            table = mixed(world.click_table, case["noise"], mean)
        context = Context(user, features.transform(user))
        shown = [agent.select(context) for agent in agents.values()]
        ctr = table[world.persona_of_user[user], world.category_of_product]
        clicked = clicking[step, world.category_of_product[shown]] < ctr[shown]
        if step < case["stop"]:  # the first page's agent learns no longer
            for agent, arm, click in zip(agents.values(), shown, clicked, strict=True):
                agent.update(context, arm, click)
        arms.append(shown)
        rewards.append(clicked.astype(int).tolist())
        expected.append(ctr[shown])
        optimal.append(ctr.max())
    firsts = [int(np.argmax(world.persona_of_user == p)) for p in range(4)]
    scores = [
        [agents[name].scores(Context(u, features.transform(u))) for u in firsts]
        for name in ("LinUCB", "LinTS")
    ]
    script = {
        "category": world.category_of_product.tolist(),
        "persona": world.persona_of_user.tolist(),
        "users": users.tolist(),
        "clicking": clicking.ravel().tolist(),
        "uniforms": [agent._uniforms.drawn for agent in agents.values()],
        "normals": agents["LinTS"]._uniforms.normal,
    }
    return {
        "arms": arms,
        "rewards": rewards,
        "expected": np.sum(expected, axis=0),
        "optimal": np.sum(optimal),
        "table": table,
        "scores": np.array(scores),
        "A_inv": agents["LinUCB"].posterior.A_inv,
        "mean": agents["LinUCB"].posterior.mean,
    }, script


REPLAY = """([data, it, script]) => {
  const all = Zoo.settings(data);
  const next = (row) => { let i = 0; return () => row[i++]; };
  const random = script.uniforms.map((row) => ({ uniform: next(row), normal: next(script.normals) }));
  const own = { ...all, alpha: it.alpha, discount: it.discount, stop: it.stop };
  const agents = [Zoo.LinUCB, Zoo.LinTS, Zoo.RandomAgent].map((kind, k) =>
    new kind(it.n_products, own, random[k], script.category));
  const shocks = it.shocks.map(([step, which]) => ({ step, shock: all.knownShocks[which] }));
  const arena = new Zoo.Arena({
    tables: Zoo.truths({ ...all, noise: it.noise, shocks }),
    shop: script, agents, visitors: { below: next(script.users) }, clicking: { uniform: next(script.clicking) },
  });
  const arms = [], rewards = [];
  let before = [0, 0, 0];
  for (let step = 0; step < it.n_steps; step++) {
    arena.step();
    arms.push([...arena.arm]);
    rewards.push([...arena.clicks].map((n, k) => n - before[k]));
    before = [...arena.clicks];
  }
  const { posteriors } = agents[0];
  return {
    arms, rewards, expected: [...arena.expected], optimal: arena.optimal, table: arena.table,
    regret: agents.map((_, k) => arena.regret(k)),
    scores: agents.slice(0, 2).map((agent) => all.table.map((_, persona) => [...agent.scores(persona)])),
    A_inv: posteriors.map((posterior) => [...posterior.inverse]),
    mean: posteriors.map((posterior) => [...posterior.mean]),
  };
}"""

CASE = {
    "alpha": 0.5,
    "discount": 1.0,
    "noise": 0.0,
    "n_products": 50,
    "n_steps": 800,
    "shocks": [],
    "seed": 0,
    "stop": 800,
}


@pytest.mark.parametrize(
    "changes",
    [
        {},
        {"discount": 0.99, "shocks": [(300, 0), (500, 1)], "seed": 1},
        # Few products and a short memory: factors are written out, and priors raised, many times.
        {"n_products": 7, "discount": 0.9, "shocks": [(400, 1)], "seed": 2},
        {"noise": 0.4, "alpha": 0.1, "shocks": [(200, 0)], "seed": 3},
        {"alpha": 0.0, "n_products": 23, "seed": 4},
        {"stop": 300, "shocks": [(400, 0)], "seed": 5},
    ],
    ids=["calm", "forgets", "forgets fast", "noise", "greedy", "stops"],
)
def test_the_simulator_agrees_with_zoolib_step_by_step(zoo, changes):
    case = CASE | changes
    ours, script = play(case)
    theirs = zoo(REPLAY, [facts(), case, script])
    assert theirs["arms"] == ours["arms"]
    assert theirs["rewards"] == ours["rewards"]
    for name in ("table", "expected", "optimal", "scores", "A_inv", "mean"):
        found = np.reshape(theirs[name], np.shape(ours[name]))
        np.testing.assert_allclose(found, ours[name], rtol=0, atol=1e-9, err_msg=name)
    np.testing.assert_allclose(
        theirs["regret"], ours["optimal"] - ours["expected"], rtol=0, atol=1e-9
    )


def test_a_long_discounted_run_stays_exact(zoo):
    """Twenty thousand updates without zoolib's computing afresh now and then cost no digits."""
    rng = np.random.default_rng(5)
    rows = np.stack([rng.integers(4, size=20_000), 4 + rng.integers(5, size=20_000)], 1)
    rewards = (rng.random(20_000) < 0.3).astype(float)
    for discount in (1.0, 0.997):
        posterior = zoolib.RidgePosterior(9)
        for row, reward in zip(rows, rewards, strict=True):
            posterior.update(np.eye(9)[row].sum(0), reward, discount=discount)
        found = zoo(
            """([rows, rewards, discount, limits]) => {
              const posterior = new Zoo.RidgePosterior(9, limits);
              rows.forEach(([i, j], n) => posterior.update(i, j, rewards[n], discount));
              return { mean: [...posterior.mean], width: posterior.width(1, 6) };
            }""",
            [rows.tolist(), rewards.tolist(), discount, LIMITS],
        )
        np.testing.assert_allclose(found["mean"], posterior.mean, rtol=0, atol=1e-9)
        width = posterior.width(np.eye(9)[[1, 6]].sum(0))
        assert found["width"] == pytest.approx(width, abs=1e-9)


LIMITS = {"ridge": 1.0, "leastPrior": LEAST_PRIOR, "leastFaded": LEAST_FADED}


@pytest.mark.parametrize(
    ("scores", "uniform", "arm"),
    [
        ([0.1, 0.7, 0.7, 0.2], 0.49, 1),
        ([0.1, 0.7, 0.7, 0.2], 0.5, 2),
        ([0.7, 0.7 + 5e-11, 0.1], 0.0, 0),  # closer than rounding
        ([0.7, 0.7 + 5e-10, 0.1], 0.0, 1),  # further apart
        ([-3.0, -2.0], 0.99, 1),
    ],
)
def test_ties_are_broken_as_zoolib_breaks_them(zoo, scores, uniform, arm):
    found = zoo("([scores, uniform]) => Zoo.best(scores, uniform)", [scores, uniform])
    assert found == arm
    chosen = RandomAgent(len(scores))._best(np.array(scores), np.float64(uniform))
    assert chosen == arm


def test_uniform_and_normal_numbers_have_their_distributions(zoo):
    drawn = zoo("""() => ["uniform", "normal"].map((name, stream) => {
      const random = new Zoo.Random(7, stream);
      return Array.from({ length: 40000 }, () => random[name]());
    })""")
    for sample, cdf in zip(drawn, (stats.uniform.cdf, stats.norm.cdf), strict=True):
        assert stats.kstest(sample, cdf).pvalue > 0.001
        # Neighbours know nothing of each other.
        assert abs(np.corrcoef(sample[:-1], sample[1:])[0, 1]) < 0.02


def test_seeds_and_streams_give_other_numbers_and_the_same_ones_again(zoo):
    first = """([seed, stream]) => new Zoo.Random(seed, stream).uniform()"""
    pairs = [(seed, stream) for seed in range(40) for stream in range(6)]
    found = [zoo(first, pair) for pair in pairs]
    assert len(set(found)) == len(pairs)
    assert zoo(first, pairs[17]) == found[17]


def test_a_shop_is_drawn_as_zoolibs_is(zoo):
    shop = zoo("""() => {
      const shop = Zoo.drawShop(4, 5, 52, 4000, new Zoo.Random(3));
      return [[...shop.category], [...shop.persona]];
    }""")
    counts = np.bincount(shop[0], minlength=5)
    assert counts.sum() == 52
    assert (counts >= 10).all()
    assert shop[0] != sorted(shop[0])
    np.testing.assert_allclose(np.bincount(shop[1]) / 4000, 0.25, atol=0.03)


FREE = """([data, it, seeds]) => {
  const all = Zoo.settings(data);
  const shocks = it.shocks.map(([step, which]) => ({ step, shock: all.knownShocks[which] }));
  const agents = [{ kind: Zoo.LinUCB, alpha: 0.5 }, { kind: Zoo.LinTS, alpha: 0.1 }, { kind: Zoo.RandomAgent }]
    .map((agent, place) => ({ ...agent, place }));
  const own = { ...all, nProducts: it.n_products, discount: it.discount, noise: it.noise, shocks, agents };
  return seeds.map((seed) => {
    const arena = Zoo.world(own, seed);
    for (let step = 0; step < it.n_steps; step++) arena.step();
    return { regret: agents.map((_, k) => arena.regret(k)), optimal: arena.optimal };
  });
}"""


@pytest.mark.parametrize(
    "n_steps", [8_000, pytest.param(20_000, marks=pytest.mark.weekly)]
)
def test_twenty_worlds_of_the_page_and_of_zoolib_have_the_same_regret(zoo, n_steps):
    case = CASE | {"n_steps": n_steps, "shocks": [(n_steps // 2, 0)]}
    theirs = zoo(FREE, [facts(), case, list(range(20))])
    agents = {
        "LinUCB": LinUCBAgent(50, 9, alpha=0.5, n_worlds=20),
        "LinTS": LinTSAgent(50, 9, alpha=0.1, n_worlds=20),
        "RandomAgent": RandomAgent(50, n_worlds=20),
    }
    ours = run_experiment(agents, range(20), n_steps, {n_steps // 2: SHOCK_1})
    for k, name in enumerate(ours.agents):
        there = mean_interval([world["regret"][k] for world in theirs], 0.99)
        here = mean_interval(regret(ours, name)[:, -1], 0.99)
        # The intervals overlap: two samples of one distribution fail this once in thousands.
        assert there.low < here.high
        assert here.low < there.high
    page = mean_interval([world["optimal"] for world in theirs], 0.99)
    assert page.low < ours.optimal_reward[0].sum(axis=-1).mean() < page.high


@pytest.fixture
def open_page(browser, site):
    """Open the built page in a window of one's own; what goes wrong in it fails the test."""
    contexts, faults = [], []

    def in_a_window(quick=True, **options):
        context = browser.new_context(**options)
        contexts.append(context)
        page = context.new_page()
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on("console", lambda m: m.type == "error" and faults.append(m.text))
        page.on(
            "request",
            lambda r: (
                r.url.startswith(("file:", "data:", "blob:")) or faults.append(r.url)
            ),
        )
        path, scripts = "chapters/playground.html", options.get("java_script_enabled")
        page = opened(context, site, "playground", path, scripts is not False, page)
        if quick:
            move(page, "Speed", "as fast as it goes")
            move(page, "Show", "regret")
        return page

    yield in_a_window
    for context in contexts:
        context.close()
    assert faults == []


LESSONS = [
    "As it opens",
    "Too little α",
    "Too much α",
    "Forget or not",
    "One world or twenty",
    "The first page's duel",
]


def press(page, name):
    page.figure.get_by_role("button", name=name, exact=True).click()


def finish(page, words="visit 20,000 of 20,000", unlike="no such words"):
    """Wait for a sentence that has these words, and not those of another one; return it."""
    page.wait_for_function(
        """([words, unlike]) => {
          const text = document.querySelector('.interactive [aria-live=polite]').textContent;
          return text.includes(words) && text !== unlike;
        }""",
        arg=[words, unlike],
        timeout=240_000,
    )
    return page.summary()


def in_page(page, seeds=(0,), step=10_000, alphas=(0.5, 0.1), **changes):
    """The regret at the end, played by the engine in the page and without its figure."""
    return page.evaluate(
        """([data, step, alphas, changes, seeds]) => {
          const all = { ...Zoo.settings(data), nProducts: 50, discount: 1, noise: 0, ...changes };
          all.shocks = step === null ? [] : [{ step, shock: all.knownShocks[0] }];
          all.agents = [Zoo.LinUCB, Zoo.LinTS, Zoo.RandomAgent].map((kind, k) => ({ kind, alpha: alphas[k] }));
          return seeds.map((seed) => {
            const arena = Zoo.world(all, seed);
            while (arena.steps < data.n_steps) arena.step();
            return all.agents.map((_, k) => arena.regret(k));
          });
        }""",
        [page.data(), step, list(alphas), changes, list(seeds)],
    )


def numbers(text, name):
    """The number behind an agent's name, and the interval if there is one."""
    found = re.search(rf"{name} ([\d,.]+)(?: \[([\d,]+), ([\d,]+)\])?", text)
    return [float(one.replace(",", "").rstrip(".")) for one in found.groups() if one]


def regrets(text):
    """The three numbers of a sentence on one world."""
    names = ("LinUCB", "Thompson sampling", "random products")
    return [numbers(text, name)[0] for name in names]


def test_the_page_hands_over_what_the_library_says(open_page):
    data = open_page().data()
    for name, value in facts().items():
        if name == "shocks":
            shocks = [
                {key: shock[key] for key in ("persona", "click_probabilities")}
                for shock in data[name]
            ]
            assert shocks == value
        else:
            assert data[name] == value, name
    quantiles = [stats.t.ppf(0.975, n - 1) for n in range(2, 21)]
    assert data["student"] == pytest.approx(quantiles, rel=1e-5)


def test_the_page_plays_one_world_as_the_engine_does(open_page):
    page = open_page()
    played = regrets(finish(page))
    assert played == pytest.approx(in_page(page)[0], abs=0.5)
    press(page, "Start again")
    assert "press Play" in page.summary()
    press(page, "Play")
    assert regrets(finish(page)) == played


def test_it_opens_with_a_run_at_a_speed_at_which_learning_is_seen(open_page):
    page = open_page(quick=False)
    page.wait_for_timeout(2_500)
    press(page, "Pause")
    steps = steps_of(page)
    assert 500 < steps < 5_000
    first, *_, last = heights(page, "blue")
    assert first < last - 10  # clicks in 100 visits
    at_the_end = page.figure.locator(".interactive-plot .tick").count()
    assert at_the_end > 5


def steps_of(page):
    return int(re.search(r"visit ([\d,]+) of", page.summary())[1].replace(",", ""))


def heights(page, color):
    """What the curve of a colour shows, in the units of a linear axis."""
    return page.figure.evaluate(
        """(figure, color) => {
          const ticks = [...figure.querySelectorAll(".interactive-plot .tick text[text-anchor=end]")]
            .map((text) => [Number(text.getAttribute("y")) - 4, Number(text.textContent.replace(",", ""))]);
          const [[y0, v0], [y1, v1]] = [ticks[0], ticks.at(-1)];
          const path = [...figure.querySelectorAll(".interactive-plot path")]
            .filter((path) => path.style.stroke === `var(--${color})` && path.style.opacity === "1").at(-1);
          return path.getAttribute("d").slice(1).split("L")
            .map((place) => v0 + ((place.split(",")[1] - y0) / (y1 - y0)) * (v1 - v0));
        }""",
        color,
    )


def test_the_click_rate_is_that_of_the_last_500_visits(open_page):
    page = open_page()
    finish(page)
    assert heights(page, "blue")[-1] == pytest.approx(in_page(page)[0][0], abs=2)
    move(page, "Show", "click rate")
    won = page.evaluate(
        """(data) => {
          const all = { ...Zoo.settings(data), nProducts: 50 };
          const shocks = [{ step: 10000, shock: all.knownShocks[0] }];
          const arena = Zoo.world({ ...all, shocks, agents: [{ kind: Zoo.LinUCB, alpha: 0.5 }] }, 0);
          const at = {};
          while (arena.steps < 20000) {
            arena.step();
            at[arena.steps] = [arena.expected[0], arena.optimal];
          }
          return [at[300], at[19500], at[20000]];
        }""",
        page.data(),
    )
    drawn = heights(page, "blue")
    assert drawn[2] == pytest.approx(won[0][0] / 3, abs=0.3)
    assert drawn[-1] == pytest.approx((won[2][0] - won[1][0]) / 5, abs=0.3)
    best = heights(page, "muted")[-1]
    assert best == pytest.approx((won[2][1] - won[1][1]) / 5, abs=0.3)
    share = numbers(page.summary(), "LinUCB")[0]
    assert share == pytest.approx(100 * won[2][0] / won[2][1], abs=0.06)


def test_axes_are_linear_or_logarithmic(open_page):
    page = open_page()
    finish(page)
    found = {}
    for show in ("click rate", "regret"):
        for axis in ("linear", "logarithmic"):
            move(page, "Show", show)
            move(page, "Axis", axis)
            ticks = page.figure.locator(".tick text[text-anchor=end]")
            found[show, axis] = ticks.all_text_contents()
    assert found["click rate", "linear"][0] == found["regret", "linear"][0] == "0"
    assert found["click rate", "logarithmic"] == ["10", "20", "50"]
    assert found["regret", "logarithmic"] == ["1", "10", "100", "1,000"]
    assert "NaN" not in page.figure.locator(".interactive-plot").inner_html()


def test_twenty_worlds_have_their_mean_and_interval(open_page):
    page = open_page()
    press(page, "Play 20 worlds")
    text = finish(page, "20 of 20 worlds")
    worlds = np.array(in_page(page, seeds=range(20)))
    for name, regret_of in zip(
        ("LinUCB", "Thompson sampling", "random products"), worlds.T, strict=True
    ):
        expected = mean_interval(regret_of)
        wanted = [expected.mean, expected.low, expected.high]
        assert numbers(text, name) == pytest.approx(wanted, abs=0.51)
    press(page, "Play")  # and back to one world
    assert regrets(finish(page)) == pytest.approx(worlds[0], abs=0.5)


@pytest.mark.parametrize(
    ("label", "value", "shown", "changes", "touched"),
    [
        ("α of LinUCB", 1.5, "1.50", {"alphas": [1.5, 0.1]}, [0]),
        ("α of Thompson sampling", 0.4, "0.40", {"alphas": [0.5, 0.4]}, [1]),
        ("Discount γ", 0.99, "0.990", {"discount": 0.99}, [0, 1]),
        ("Noise", 0.5, "0.50", {"noise": 0.5}, [0, 1, 2]),
        ("Products", 25, "25", {"nProducts": 25}, [0, 1, 2]),
        ("Shock before visit", 5000, "5,000", {"step": 5000}, [0, 1, 2]),
    ],
)
def test_a_slider_does_what_it_says(open_page, label, value, shown, changes, touched):
    page = open_page()
    before = finish(page)
    move(page, label, value)
    slider = page.figure.get_by_label(label, exact=True)
    assert slider.get_attribute("aria-valuetext") == shown
    assert slider.locator("xpath=../output").text_content() == shown
    # The world is played again at once; the engine, told the same, finds the same.
    text = finish(page, unlike=before)
    after = regrets(text)
    assert after == pytest.approx(in_page(page, **changes)[0], abs=0.5)
    changed = zip(after, regrets(before), strict=True)
    assert [k for k, (new, old) in enumerate(changed) if new != old] == touched
    # The run before stays, in words and paler.
    assert regrets(text.split("Before, paler: ")[1]) == regrets(before)
    pale = page.figure.locator('.interactive-plot path[style*="opacity: 0.5"]')
    assert pale.count() == 3


def test_another_world_and_another_shock_are_other_games(open_page):
    page = open_page()
    sentences = [finish(page)]
    press(page, "New world")
    sentences.append(finish(page, "World 1, visit 20,000"))
    page.figure.get_by_label("Shock", exact=True).select_option(index=0)
    sentences.append(finish(page, "World 1, visit 20,000", unlike=sentences[-1]))
    wanted = [
        in_page(page)[0],
        in_page(page, seeds=[1])[0],
        in_page(page, seeds=[1], step=None)[0],
    ]
    for text, ends in zip(sentences, wanted, strict=True):
        assert regrets(text) == pytest.approx(ends, abs=0.5)


def test_who_plays_is_ticked_and_changes_nothing_for_the_others(open_page):
    page = open_page()
    all_three = regrets(finish(page))
    page.figure.get_by_label("LinUCB", exact=True).uncheck()
    text = finish(page, "Before, paler: LinUCB").split("Before")[0]
    assert "LinUCB" not in text
    assert numbers(text, "Thompson sampling")[0] == all_three[1]
    assert numbers(text, "random products")[0] == all_three[2]
    for name in ("Thompson sampling", "random products"):
        page.figure.get_by_label(name, exact=True).uncheck()
    finish(page, "nobody plays")


def test_the_first_pages_duel_is_that_of_the_first_page(open_page):
    """Same settings, same measure, and in one world about what twenty worlds of the library say."""
    page = open_page()
    press(page, "The first page's duel")
    text = finish(page, "visit 40,000 of 40,000")
    shares = page.evaluate(
        """(data) => {
          const all = { ...Zoo.settings(data), nProducts: 50 };
          const shocks = [10000, 25000].map((step, i) => ({ step, shock: all.knownShocks[i] }));
          const agents = [{ discount: 0.997 }, { stop: 5000, place: 3 }]
            .map((own) => ({ kind: Zoo.LinUCB, alpha: 0.35, ...own }));
          const arena = Zoo.world({ ...all, shocks, agents }, 0);
          while (arena.steps < 40000) arena.step();
          return arena.expected.map((won) => (100 * won) / arena.optimal);
        }""",
        page.data(),
    )
    found = [numbers(text, "LinUCB")[0], numbers(text, "stopped LinUCB")[0]]
    assert found == pytest.approx(shares, abs=0.06)
    assert found[0] > 96
    assert found[1] < 85
    assert page.figure.locator(".interactive-plot text", has_text="shock").count() == 2


@pytest.mark.parametrize("lesson", LESSONS[1:5])
def test_a_lesson_is_one_click_and_shows_what_it_says(open_page, lesson):
    page = open_page()
    press(page, lesson)
    button = page.figure.get_by_role("button", name=lesson, exact=True)
    assert button.get_attribute("aria-pressed") == "true"
    worlds = lesson in ("Forget or not", "One world or twenty")
    words = "20 of 20 worlds" if worlds else "visit 20,000 of 20,000"
    page.wait_for_function(
        """words => {
          const text = document.querySelector('.interactive [aria-live=polite]').textContent;
          return text.includes(words) && text.includes("Before, paler");
        }""",
        arg=words,
        timeout=120_000,
    )
    now, before = page.summary().split("Before, paler: ")
    was, found = numbers(before, "LinUCB"), numbers(now, "LinUCB")
    if lesson == "Forget or not":
        assert found[2] < was[1]
    elif lesson == "One world or twenty":
        assert numbers(before, "Thompson sampling")[0] < was[0]
        assert found[2] < numbers(now, "Thompson sampling")[1]
    else:
        assert found[0] > 5 * was[0]


def test_the_tables_say_which_category_goes_to_which_persona(open_page):
    page = open_page()
    finish(page)
    tables = page.figure.locator("table.interactive-tiles:visible")
    assert tables.count() == 3
    world = ZooplusSimulator(seed=42)
    world.apply_shock(SHOCK_1)
    for k in range(3):
        rows = tables.nth(k).locator("tbody tr")
        assert rows.locator("th").all_text_contents() == [
            name.replace("_", " ") for name in world.personas
        ]
        for persona in range(4):
            cells = rows.nth(persona).locator("td")
            shares = [
                int(re.match(r"\d+", text)[0]) for text in cells.all_text_contents()
            ]
            assert 97 <= sum(shares) <= 103
            framed = [
                "best" in (cells.nth(c).get_attribute("class") or "") for c in range(5)
            ]
            assert framed.index(True) == world.click_table[persona].argmax()
            assert sum(framed) == 1
            if k == 2:
                assert max(shares) < 35
            else:  # by the end the learners have found it
                assert shares[framed.index(True)] > 80
    assert tables.first.locator("thead th").all_text_contents() == list(
        world.categories
    )


def test_everything_works_from_the_keyboard(open_page):
    page = open_page()
    finish(page)
    page.figure.get_by_role("button", name=LESSONS[0], exact=True).focus()
    reached = []
    for _ in range(24):
        reached.append(
            page.evaluate("document.activeElement.labels?.[0]?.textContent")
            or page.evaluate("document.activeElement.textContent")
        )
        page.keyboard.press("Tab")
    assert reached == [
        *LESSONS,
        *("Play", "Start again", "New world", "Play 20 worlds"),
        *("Speed", "Show", "Axis"),
        *("LinUCB", "Thompson sampling", "random products", "stopped LinUCB"),
        *("α of LinUCB", "α of Thompson sampling", "Discount γ", "Noise", "Products"),
        *("Shock", "Shock before visit"),
    ]
    slider = page.figure.get_by_label("Products", exact=True)
    slider.focus()
    page.keyboard.press("ArrowRight")
    assert slider.input_value() == "55"
    page.figure.get_by_role("button", name=LESSONS[0], exact=True).focus()
    page.keyboard.press("Space")
    assert slider.input_value() == "50"
    finish(page)


def count_changes(page, selector):
    page.evaluate(
        """selector => {
          window.changes = 0;
          new MutationObserver(() => window.changes++).observe(
            document.querySelector(selector), { childList: true });
        }""",
        selector,
    )


def at_leisure(page, watched):
    """Play at 5,000 visits a second for two seconds of the page's own clock, then pause; count changes."""
    press(page, "Start again")
    count_changes(page, f".interactive {watched}")
    page.clock.install(time=0)
    page.clock.pause_at(1)
    move(page, "Speed", "5,000 a second")
    press(page, "Play")
    page.clock.run_for(2000)
    press(page, "Pause")
    return steps_of(page)


def test_speed_and_pause(open_page):
    page = open_page(quick=False)
    steps = at_leisure(page, ".interactive-plot")
    assert 9_000 < steps <= 11_000
    assert page.evaluate("changes") >= 3  # the curves grow while one looks
    page.clock.run_for(300)
    assert f"visit {steps:,} of" in page.summary()
    move(page, "Noise", 0.2)  # at rest, a new setting waits for Play
    assert "press Play" in page.summary()


def test_who_asks_for_less_motion_sees_less(open_page):
    page = open_page(reduced_motion="reduce")
    at_leisure(page, ".interactive-plot")
    assert page.evaluate("changes") <= 3


def test_the_spoken_sentence_does_not_change_all_the_time(open_page):
    page = open_page()
    at_leisure(page, "[aria-live=polite]")
    assert page.evaluate("changes") <= 3


@pytest.mark.parametrize(
    "width", [390, pytest.param(768, marks=pytest.mark.weekly), 1280]
)
def test_nothing_moves_and_nothing_sticks_out(open_page, width):
    page = open_page(viewport={"width": width, "height": 844})
    reserved = page.evaluate(
        """() => {
          const stage = document.querySelector('.interactive-stage');
          return [parseFloat(getComputedStyle(stage).minHeight), stage.getBoundingClientRect().height];
        }"""
    )
    assert reserved[1] == pytest.approx(reserved[0], abs=1)
    seen = []
    for press_next, words in (
        ("Start again", "press Play"),
        ("Play", "visit 20,000 of 20,000"),
        ("Play 20 worlds", "20 of 20 worlds"),
        ("Play", "visit 20,000 of 20,000"),
    ):
        press(page, press_next)
        finish(page, words)
        stage = page.figure.locator(".interactive-stage").bounding_box()
        seen.append(stage["height"])
    assert seen == pytest.approx([seen[0]] * 4, abs=1)
    assert reserved[1] - 40 < seen[0] <= reserved[1] + 1
    for lesson in LESSONS[1:]:
        press(page, lesson)
        assert page.evaluate("document.documentElement.scrollWidth") <= width


def test_without_scripts_and_in_print_the_static_figure_stands_alone(open_page):
    page = open_page(quick=False, java_script_enabled=False)
    assert not page.figure.is_visible()
    assert not page.get_by_role("button", name="Play", exact=True).is_visible()
    assert page.locator("#fig-playground img").first.is_visible()
    page = open_page()
    assert page.figure.is_visible()
    page.emulate_media(media="print")
    assert not page.figure.is_visible()
