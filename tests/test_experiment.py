import copy
import sys
from functools import partial

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from scipy import stats
from threadpoolctl import threadpool_info, threadpool_limits

from zoolib import (
    SHOCK_1,
    SHOCK_2,
    FeatureEngineer,
    MarketShock,
    ZooplusSimulator,
    run_experiment,
    true_ctr_matrix,
)
from zoolib._support.generators import stream
from zoolib._support.threads import one_thread
from zoolib.agents import (
    Context,
    EpsilonGreedyAgent,
    LinUCBAgent,
    OracleAgent,
    RandomAgent,
    RevealedContext,
)
from zoolib.agents.neural_linear import NeuralLinearAgent
from zoolib.world.simulator import Churn

ARRAYS = ("user", "persona", "arm", "reward", "expected_reward", "optimal_reward")
SEEDS = [11, 5, 2]
small_world = partial(ZooplusSimulator, 10, 20)
rich_world = partial(ZooplusSimulator, 10, 20, rich=True)


def play(agents, seeds=SEEDS, n_steps=60, shocks=None, **options):
    return run_experiment(agents, seeds, n_steps, shocks, progress=False, **options)


def agents_for(n_worlds):
    return {
        "linucb": LinUCBAgent(50, 9, alpha=1.5, n_worlds=n_worlds),
        "greedy": EpsilonGreedyAgent(50, 9, epsilon=0.2, n_worlds=n_worlds),
        "random": RandomAgent(50, n_worlds=n_worlds),
        "oracle": OracleAgent(50, n_worlds=n_worlds),
    }


def same(one, other, part=...):
    return all(
        np.array_equal(getattr(one, name)[part], getattr(other, name))
        for name in ARRAYS
    )


class Always:
    """Show the same arms for ever; all that an agent needs."""

    def __init__(self, arm):
        self.arm = arm

    def select(self, context):
        return self.arm

    def update(self, context, arm, reward):
        pass


class InStep(Always):
    n_worlds = len(SEEDS)


def test_a_history_has_one_entry_for_each_agent_world_and_step():
    shocks = {30: SHOCK_2, 10: SHOCK_1}
    history = play({"r": RandomAgent(50), "o": OracleAgent(50)}, range(3), 40, shocks)
    assert history.agents == ("r", "o")
    assert history.seeds == (0, 1, 2)
    assert list(history.shocks.items()) == [(10, SHOCK_1), (30, SHOCK_2)]
    assert history.personas == tuple(ZooplusSimulator().personas)
    assert history.churn is None
    assert history.n_steps == history.planned == 40
    assert {name: getattr(history, name).shape for name in ARRAYS} == {
        "user": (3, 40),
        "persona": (3, 40),
        "arm": (2, 3, 40),
        "reward": (2, 3, 40),
        "expected_reward": (2, 3, 40),
        "optimal_reward": (2, 3, 40),
    }
    kinds = [getattr(history, name).dtype.kind for name in ARRAYS]
    assert kinds == ["i", "i", "i", "i", "f", "f"]
    assert set(np.unique(history.reward)) == {0, 1}
    for w, seed in enumerate(history.seeds):
        named = np.array(history.personas)[history.persona[w]]
        world = ZooplusSimulator(seed=seed)
        assert (named == world.user_personas[history.user[w]]).all()


def test_agents_are_found_by_name():
    history = play({"r": RandomAgent(50), "o": OracleAgent(50)}, n_steps=1)
    assert (history.index("r"), history.index("o")) == (0, 1)
    with pytest.raises(ValueError, match=r"agent must be one of \['r', 'o'\].*'x'"):
        history.index("x")


@pytest.mark.no_cover
@pytest.mark.parametrize("make_world", [small_world, rich_world])
@pytest.mark.parametrize("n_worlds", [3, None], ids=["in step", "copied"])
def test_a_run_with_churn_is_what_playing_by_hand_gives(n_worlds, make_world):
    churn, shocks = Churn(every=90, share=0.3), {180: SHOCK_1, 200: SHOCK_2}
    d = 13 if make_world is rich_world else 9
    history = play(
        {
            "disjoint": LinUCBAgent(10, d, alpha=0.5, n_worlds=n_worlds, window=60),
            "shared": LinUCBAgent(10, d, alpha=0.5, n_worlds=n_worlds, shared=True),
            "oracle": OracleAgent(10, n_worlds=n_worlds),
        },
        SEEDS,
        560,
        shocks,
        churn=churn,
        make_world=make_world,
    )
    assert history.churn == churn
    for w, seed in enumerate(SEEDS):
        world = make_world(seed=seed)
        features, truth = FeatureEngineer(world), true_ctr_matrix(world)
        agents = [
            LinUCBAgent(10, d, alpha=0.5, window=60, seed=seed),
            LinUCBAgent(10, d, alpha=0.5, shared=True, seed=seed),
        ]
        luck = stream(seed, "clicks").random((560, 5))
        for step, user in enumerate(stream(seed, "visitors").integers(20, size=560)):
            if step in shocks:
                world.apply_shock(shocks[step])
            if step in (90, 180, 270, 360, 450, 540):
                arms = world.restock(0.3)
                features = FeatureEngineer(world)
                for agent in agents:
                    agent.restock(arms)
            if step % 10 == 0:
                truth = true_ctr_matrix(world)
            context = Context(user, features.transform(user))
            at = (w, step)
            assert history.user[at] == user
            best = truth[user].max()
            assert (history.optimal_reward[:, *at] == best).all()
            assert history.expected_reward[2, *at] == best
            for place, agent in enumerate(agents):
                arm = agent.select(context)
                chance = truth[user, arm]
                reward = int(luck[step, world.category_of_product[arm]] < chance)
                agent.update(context, arm, reward)
                assert history.arm[place, *at] == arm
                assert history.expected_reward[place, *at] == chance
                assert history.reward[place, *at] == reward


@pytest.mark.parametrize("n_worlds", [3, None], ids=["in step", "copied"])
@pytest.mark.parametrize(
    ("every", "steps"),
    [(20, [20, 40]), (59, [59]), (60, []), (61, []), (13, [13, 26, 39, 52])],
)
def test_agents_are_told_which_arms_hold_other_products(every, steps, n_worlds):
    told, visits = [], []

    class Listener(Always):
        def __init__(self):
            super().__init__(0 if n_worlds is None else [0, 0, 0])
            self.n_worlds = n_worlds

        def select(self, context):
            visits.append(context.user_id)
            return self.arm

        def restock(self, arms):
            told.append((len(visits), arms.tolist()))

    agents = {"deaf": Always(0), "listener": Listener()}
    churn = Churn(every, share=0.3)
    history = play(agents, SEEDS, 60, churn=churn, make_world=small_world)
    worlds = [small_world(seed=seed) for seed in SEEDS]
    expected = []
    for step in steps:
        arms = [world.restock(0.3).tolist() for world in worlds]
        if n_worlds:
            expected.append((step, arms))
        else:
            expected += [(3 * step, arms_of_world) for arms_of_world in arms]
    assert told == expected
    assert history.n_steps == 60


@pytest.mark.no_cover
def test_each_world_with_churn_goes_as_it_would_go_alone():
    options = {"shocks": {700: SHOCK_1}, "churn": Churn(150, 0.1)}
    together = play(agents_for(3), SEEDS, 1000, **options)
    assert same(together, play(agents_for(3), SEEDS, 1000, **options))
    assert same(together, play(agents_for(None), SEEDS, 1000, **options))
    for w, seed in enumerate(SEEDS):
        alone = play(agents_for([None, 1, None][w]), [seed], 1000, **options)
        assert same(together, alone, (..., [w], slice(None)))
    shorter = play(agents_for(3), SEEDS, 620, churn=options["churn"])
    assert same(together, shorter, (..., slice(620)))
    calm = play(agents_for(3), SEEDS, 1000, {700: SHOCK_1})
    assert same(together, play(agents_for(3), SEEDS, 150), (..., slice(150)))
    assert (together.user == calm.user).all()
    assert (together.optimal_reward[0] == calm.optimal_reward[0])[:, :150].all()
    changed = (together.expected_reward != calm.expected_reward).any(axis=-1)
    assert changed[:3].all()  # the oracle finds a product of the best category again


def test_another_agent_changes_nothing_for_the_others():
    history = play(agents_for(3), SEEDS, 400, {200: SHOCK_1})
    for place, name in enumerate(history.agents):
        alone = play({name: agents_for(None)[name]}, SEEDS, 400, {200: SHOCK_1})
        for array in ("arm", "reward", "expected_reward"):
            assert (getattr(alone, array)[0] == getattr(history, array)[place]).all()


def products_of(category, nth):
    """The nth product of a category in each world."""
    codes = [ZooplusSimulator(seed=seed).category_of_product for seed in SEEDS]
    return np.array([np.flatnonzero(one == category)[nth] for one in codes])


def test_products_of_one_category_have_the_same_luck_and_others_their_own():
    shown = {
        (category, nth): InStep(products_of(category, nth))
        for category in range(5)
        for nth in (0, 7)
    }
    history = play(shown, SEEDS, 3000, {1700: SHOCK_1})
    assert (history.arm[0] != history.arm[1]).all()
    assert (history.reward[::2] == history.reward[1::2]).all()
    noise = (history.reward - history.expected_reward)[::2].reshape(5, -1)
    correlation = np.corrcoef(noise)
    assert abs(correlation - np.eye(5)).max() < 4 / np.sqrt(noise.shape[1])


def test_steps_and_worlds_have_luck_of_their_own():
    history = play({"a": InStep(products_of(1, 0))}, SEEDS, 4000)
    noise = (history.reward - history.expected_reward)[0]
    assert abs(np.corrcoef(noise) - np.eye(3)).max() < 4 / np.sqrt(4000)
    for lag in (1, 2, 500):
        assert abs(np.corrcoef(noise[0, lag:], noise[0, :-lag])[0, 1]) < 0.07


probabilities = st.dictionaries(
    st.sampled_from(ZooplusSimulator().categories), st.floats(0, 1), max_size=3
)
shock = st.builds(
    MarketShock, st.sampled_from(list(ZooplusSimulator().personas)), probabilities
)


@pytest.mark.no_cover
@settings(max_examples=20, deadline=None)
@given(
    n_steps=st.integers(1, 1100),
    shocks=st.dictionaries(st.integers(0, 1099), shock, max_size=4),
)
def test_shocks_come_exactly_before_their_step(n_steps, shocks):
    shocks = {step: shock for step, shock in shocks.items() if step < n_steps}
    history = play([RandomAgent(10)], [4], n_steps, shocks, make_world=small_world)
    world = small_world(seed=4)
    for step in range(n_steps):
        if step in shocks:
            world.apply_shock(shocks[step])
            truth = true_ctr_matrix(world)
        elif step == 0:
            truth = true_ctr_matrix(world)
        user, arm = history.user[0, step], history.arm[0, 0, step]
        assert history.expected_reward[0, 0, step] == truth[user, arm]
        assert history.optimal_reward[0, 0, step] == truth[user].max()


def test_clicks_are_as_frequent_as_expected():
    agents = {"random": RandomAgent(50, 10), "oracle": OracleAgent(50, 10)}
    history = play(agents, range(10), 3000, {1500: SHOCK_1})
    p = history.expected_reward
    for part in (np.s_[0], np.s_[1], np.s_[:, :, :1500], np.s_[:, :, 1500:]):
        error = np.sqrt((p * (1 - p))[part].sum())
        assert abs((history.reward - p)[part].sum()) < 5 * error
    for value in np.unique(p):
        clicks = history.reward[p == value]
        error = np.sqrt(value * (1 - value) / len(clicks))
        assert abs(clicks.mean() - value) < 5 * error


def test_visitors_are_uniform_over_users():
    user = play([InStep([0, 0, 0])], SEEDS, 20_000, make_world=small_world).user
    for row in user:
        assert stats.chisquare(np.bincount(row, minlength=20)).pvalue > 0.001
        pairs = np.bincount(row[:-1] * 20 + row[1:], minlength=400)
        assert stats.chisquare(pairs).pvalue > 0.001
    assert abs(np.corrcoef(user) - np.eye(3)).max() < 0.03


@pytest.mark.parametrize("seed", [0, 1, 42])
def test_visitors_are_not_drawn_from_the_numbers_that_drew_the_personas(seed):
    history, world = play([Always(0)], [seed], 1000), ZooplusSimulator(seed=seed)

    def agreement(visitors):
        """How often the quarter of a visitor's id names a persona drawn with a fixed lag."""
        quarter, drawn = visitors * 4 // 1000, world.persona_of_user
        return max(
            np.mean(
                quarter[max(0, -lag) : 1000 - max(0, lag)]
                == drawn[max(0, lag) :][: 1000 - abs(lag)]
            )
            for lag in range(-300, 301)
        )

    assert agreement(np.random.default_rng(seed).integers(1000, size=1000)) == 1
    assert agreement(history.user[0]) < 0.4
    assert (history.user[0] != world.rng.integers(1000, size=1000)).any()


@pytest.mark.parametrize("n_worlds", [3, None])
def test_nobody_expects_more_than_the_oracle(n_worlds):
    history = play(agents_for(n_worlds), SEEDS, 400, {200: SHOCK_1})
    oracle = history.index("oracle")
    for place in range(4):
        assert (history.optimal_reward[place] == history.expected_reward[oracle]).all()
    assert (history.expected_reward <= history.optimal_reward).all()
    assert (history.expected_reward < history.optimal_reward).any()


@pytest.mark.parametrize("n_worlds", [3, None])
def test_the_agents_given_stay_as_they_are(n_worlds):
    agents = agents_for(n_worlds)
    first = play(agents, SEEDS, 300)
    for name, fresh in agents_for(n_worlds).items():
        given, fresh = vars(agents[name]), vars(fresh)
        assert given["_uniforms"].state() == fresh["_uniforms"].state()
        if name in ("linucb", "greedy"):
            assert (given["posterior"].A == fresh["posterior"].A).all()
            assert (given["posterior"].b == 0).all()
    assert same(first, play(agents, SEEDS, 300))


@pytest.mark.parametrize("n_worlds", [3, None], ids=["in step", "copied"])
@pytest.mark.parametrize("cheats", [False, True])
def test_agents_see_a_plain_context_unless_they_say_that_they_cheat(n_worlds, cheats):
    contexts, lessons = [], []

    class Spy:
        def __init__(self):
            self.n_worlds = n_worlds
            if cheats:
                self.needs_truth = True

        def select(self, context):
            contexts.append(context)
            return 4 if n_worlds is None else [4, 5, 6]

        def update(self, context, arm, reward):
            lessons.append((context, arm, reward))

    history = play([Spy()], SEEDS, 30, {12: SHOCK_1})
    worlds = [ZooplusSimulator(seed=seed) for seed in SEEDS]
    features = FeatureEngineer(worlds)
    assert len(contexts) == len(lessons) == (30 if n_worlds else 90)
    for n, (context, lesson) in enumerate(zip(contexts, lessons, strict=True)):
        step, w = (n, slice(None)) if n_worlds else divmod(n, 3)
        if step == 12 and w in (0, slice(None)):
            for world in worlds:
                world.apply_shock(SHOCK_1)
        assert type(context) is (RevealedContext if cheats else Context)
        public = {name for name in dir(context) if not name.startswith("_")}
        truth = {"expected_reward", "truth_names"} if cheats else set()
        labels = {"names", "offered_names", "row_labels"}
        seen = {"arms", "offered", "features", "of_world", "row", "user_id"}
        assert public == seen | labels | truth
        assert set(vars(context)) <= public | {"_checked_for"}
        users = history.user[:, step]
        assert np.array_equal(context.user_id, users[w])
        assert np.array_equal(context.features, features.transform(users)[w])
        if cheats:
            tables = np.stack([true_ctr_matrix(world) for world in worlds])
            rows = tables[np.arange(3), users]
            assert np.array_equal(context.expected_reward, rows[w])
        seen, arm, reward = lesson
        assert np.array_equal(seen.user_id, users[w])
        assert type(seen) is Context
        assert np.array_equal(seen.features, context.features)
        assert np.array_equal(arm, history.arm[0, w, step])
        assert np.array_equal(reward, history.reward[0, w, step])
        if not n_worlds:
            assert type(arm) is type(reward) is int


def test_select_and_update_are_all_that_an_agent_needs():
    history = play({"a": Always(4), "b": InStep(np.array([1, 2, 3]))}, SEEDS, 20)
    assert (history.arm[0] == 4).all()
    assert (history.arm[1] == [[1], [2], [3]]).all()


def test_an_agent_without_a_worlds_axis_learns_each_world_apart():
    class Counter:
        """Show the number of visits learnt."""

        def __init__(self):
            self.visits = 0

        def select(self, context):
            return self.visits

        def update(self, context, arm, reward):
            self.visits += 1

    history = play({"a": Counter(), "b": Always(0)}, SEEDS, 9)
    assert (history.arm[0] == np.arange(9)).all()


def test_a_sequence_of_agents_is_named_by_class():
    history = play((RandomAgent(50), LinUCBAgent(50, 9), Always(3)), n_steps=2)
    assert history.agents == ("RandomAgent", "LinUCBAgent", "Always")


def test_worlds_and_features_can_be_others():
    history = play(
        [LinUCBAgent(10, 29)],
        n_steps=50,
        make_world=small_world,
        make_features=partial(FeatureEngineer, interactions=True),
    )
    assert history.user.max() < 20
    assert history.arm.max() < 10


def test_a_shock_may_come_before_the_first_step_and_before_the_last():
    history = play([OracleAgent(50)], [0], 40, {39: SHOCK_2, 0: SHOCK_1})
    assert list(history.shocks) == [0, 39]
    budget = history.personas.index("budget_shopper")
    assert (history.optimal_reward[0][history.persona == budget] == 0.80).all()


class Deaf:
    def select(self, context):
        return 0


UNKNOWN = MarketShock("dog_person", {"Dog Toy": 0.5})


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({"seeds": []}, ValueError, ["seeds", "none"]),
        ({"seeds": [3, 1, 3, 1, 2]}, ValueError, ["seeds", "differ", "3"]),
        ({"seeds": [0, -1]}, ValueError, ["seed", "at least 0", "-1"]),
        ({"seeds": [0.5]}, TypeError, ["seed", "0.5"]),
        ({"n_steps": 0}, ValueError, ["n_steps", "at least 1", "0"]),
        ({"n_steps": 9.0}, TypeError, ["n_steps", "9.0"]),
        ({"seeds": [3, 3]}, ValueError, ["seeds", "differ", "repeats=True", "3"]),
        ({"seeds": [3, -3], "repeats": True}, ValueError, ["seed", "-3"]),
        ({"seeds": [], "repeats": True}, ValueError, ["seeds", "none"]),
        ({"churn": 20}, TypeError, ["churn", "Churn or None", "int"]),
        ({"shocks": {60: SHOCK_1}}, ValueError, ["shocks", "60 steps", "step 60"]),
        ({"shocks": {10: SHOCK_1, 99: SHOCK_2}}, ValueError, ["shocks", "step 99"]),
        ({"shocks": {-1: SHOCK_1}}, ValueError, ["shock step", "-1"]),
        ({"shocks": {2.0: SHOCK_1}}, TypeError, ["shock step", "2.0"]),
        ({"shocks": {5: UNKNOWN}}, ValueError, ["persona", "dog_person"]),
        ({"shocks": {5: "flood"}}, TypeError, ["shock", "MarketShock", "str"]),
        ({"agents": {"five": RandomAgent(50, 5)}}, ValueError, ["five", "5", "3"]),
        ({"agents": {"x": RandomAgent(10)}}, ValueError, ["'x'", "n_arms=10", "50"]),
        ({"agents": {}}, ValueError, ["agents", "none"]),
        ({"agents": []}, ValueError, ["agents", "none"]),
        (
            {"agents": [Always(1), Always(2)]},
            ValueError,
            ["agents", "differ", "'Always'"],
        ),
        ({"agents": {"deaf": Deaf()}}, TypeError, ["'deaf'", "update", "Deaf"]),
        ({"agents": ["ucb"]}, TypeError, ["'str'", "select", "update"]),
        ({"agents": [Always]}, TypeError, ["object with select and update", "class"]),
        ({"agents": Always(1)}, TypeError, ["mapping or a sequence", "Always"]),
        ({"seeds": 3}, TypeError, ["seeds must be a sequence", "3"]),
    ],
)
def test_arguments_are_checked_before_anything_is_played(arguments, error, words):
    class Unplayed(Always):
        def select(self, context):
            raise AssertionError("played")

    with pytest.raises(error) as refusal:
        play(**({"agents": [Unplayed(0)]} | arguments))
    assert all(word in str(refusal.value) for word in words), str(refusal.value)


@pytest.mark.parametrize(
    ("agent", "error", "words"),
    [
        (Always(50), ValueError, ["arm", "0 … 49", "50"]),
        (Always(-1), ValueError, ["arm", "-1"]),
        (Always(3.0), TypeError, ["arm", "float64"]),
        (Always(True), TypeError, ["arm", "bool"]),
        (Always(None), TypeError, ["arm", "gap"]),
        (Always([3]), ValueError, ["arm", "(3,)", "(3, 1)"]),
        (InStep(3), ValueError, ["arm", "(3,)", "()"]),
        (InStep([3, 4]), ValueError, ["arm", "(3,)", "(2,)"]),
        (InStep([3, 4, 50]), ValueError, ["arm", "0 … 49", "50"]),
        (InStep([3, 4, 5.0]), TypeError, ["arm", "float64"]),
        (InStep([[3], [4, 5], [6]]), ValueError, ["shape"]),
    ],
)
def test_a_wrong_choice_is_refused_and_its_agent_named(agent, error, words):
    with pytest.raises(error) as refusal:
        play({"fine": Always(0), "culprit": agent})
    assert all(word in str(refusal.value) for word in words), str(refusal.value)
    assert refusal.value.__notes__ == ["Agent 'culprit' was at step 0."]


def test_an_agent_that_fails_on_new_products_is_named():
    class Stubborn(Always):
        def restock(self, arms):
            raise RuntimeError("never")

    with pytest.raises(RuntimeError, match="never") as refusal:
        play({"fine": Always(0), "culprit": Stubborn(0)}, churn=Churn(4, 0.5))
    assert refusal.value.__notes__ == ["Agent 'culprit' was at step 4."]


class Interrupted(Always):
    """Have Ctrl-C pressed while the agent is busy with one of its steps."""

    def __init__(self, step, busy_with):
        super().__init__(0)
        self.step, self.busy_with = step, busy_with

    def select(self, context):
        self.tick("select")
        return self.arm

    def update(self, context, arm, reward):
        self.tick("update")
        self.step -= 1

    def tick(self, what):
        if self.step == 0 and self.busy_with == what:
            raise KeyboardInterrupt


@pytest.mark.no_cover
@pytest.mark.parametrize("busy_with", ["select", "update"])
@pytest.mark.parametrize(("step", "n_shocks"), [(1, 0), (1040, 1), (1041, 2)])
def test_an_interrupted_run_keeps_the_steps_that_all_have_finished(
    step, n_shocks, busy_with, capsys
):
    shocks = {700: SHOCK_1, 1040: SHOCK_2}
    random = RandomAgent(10)
    whole = play([random], SEEDS, 1100, shocks, make_world=small_world)
    agents = {"first": random, "last": Interrupted(step, busy_with)}
    history = play(agents, SEEDS, 1100, shocks, make_world=small_world)
    assert (history.n_steps, history.planned) == (step, 1100)
    assert history.arm.shape == (2, 3, step)
    assert history.user.shape == (3, step)
    assert list(history.shocks) == list(shocks)[:n_shocks]
    for name in ("arm", "reward", "expected_reward", "optimal_reward"):
        assert (getattr(history, name)[0] == getattr(whole, name)[0, :, :step]).all()
    assert (history.user == whole.user[:, :step]).all()
    said = capsys.readouterr().err
    assert said == (
        f"interrupted after {step:,} of 1,100 steps: the history holds those\n"
    )


def test_the_word_of_an_interrupt_has_a_line_of_its_own(capsys, monkeypatch):
    monkeypatch.setenv("TQDM_DISABLE", "0")
    run_experiment([Interrupted(20, "select")], [0], 40)
    # A terminal shows what came last on each line.
    lines = [line.split("\r")[-1] for line in capsys.readouterr().err.splitlines()]
    assert "interrupted after 20 of 40 steps: the history holds those" in lines


def test_an_interrupt_before_the_first_step_is_over_ends_the_run(capsys):
    with pytest.raises(KeyboardInterrupt):
        play({"first": Always(0), "last": Interrupted(0, "update")})
    assert capsys.readouterr().err == ""


@pytest.mark.parametrize(
    ("progress", "variable", "shown"),
    [(True, "", True), (True, "0", True), (True, "1", False), (False, "", False)],
)
def test_the_progress_bar_counts_steps_and_can_be_silenced(
    progress, variable, shown, capsys, monkeypatch
):
    monkeypatch.setenv("TQDM_DISABLE", variable)
    run_experiment([Always(0)], [0], 700, {600: SHOCK_1}, progress=progress)
    said = capsys.readouterr().err
    assert ("700/700" in said) == shown
    assert bool(said) == shown


def test_a_history_says_what_was_played():
    history = play(agents_for(3), SEEDS, 40, {10: SHOCK_1}, churn=Churn(20))
    assert repr(history) == (
        "History(linucb, greedy, random, oracle; 3 worlds, 40 steps; shocks at [10], "
        "Churn(every=20, share=0.2))"
    )


def test_what_agents_do_to_their_arrays_is_not_in_the_history():
    class Careless(InStep):
        """Keep one array for all choices, and reckon in the arrays that it is given."""

        def update(self, context, arm, reward):
            self.arm[:] = (self.arm + 1) % 50
            reward[:] = 1

    history = play([Careless(np.array([0, 1, 2]))], SEEDS, 40)
    assert (history.arm[0] == (np.arange(3)[:, None] + np.arange(40)) % 50).all()
    assert history.reward.mean() < 0.9


def test_the_worlds_made_are_the_worlds_played():
    made = []

    def make_world(seed):
        made.append(small_world(seed=seed))
        return made[-1]

    before = copy.deepcopy(small_world(seed=0).personas)
    play([Always(0)], SEEDS, 5, {2: SHOCK_1}, make_world=make_world)
    assert [one.rng.bit_generator.state for one in made] == [
        small_world(seed=seed).rng.bit_generator.state for seed in SEEDS
    ]
    shocked = before["budget_shopper"] | SHOCK_1.click_probabilities
    assert [one.personas["budget_shopper"] for one in made] == [shocked] * 3


def test_an_error_inside_an_agent_names_it():
    with pytest.raises(ValueError, match=r"context\.features") as raised:
        run_experiment({"short": LinUCBAgent(50, 5)}, [0], 5, progress=False)
    assert "'short' was at step 0" in raised.value.__notes__[-1]


class Vandal(InStep):
    def select(self, context):
        context.features[:] = 0


class VandalOracle(OracleAgent):
    def scores(self, context):
        scores = super().scores(context)
        scores[:] = 0
        return scores


@pytest.mark.parametrize("agent", [Vandal(0), VandalOracle(50)])
def test_no_agent_can_change_what_others_see_nor_an_oracle_the_truth(agent):
    with pytest.raises(ValueError, match="read-only"):
        play([agent], n_steps=5)


def test_a_seed_may_come_again_if_that_is_wanted():
    agents = {
        "random": RandomAgent(10, n_worlds=3),
        "networks": NeuralLinearAgent(
            10, 9, n_worlds=3, network_seed=[1, 2, 1], train_every=20, batch_size=16
        ),
    }
    options = {"make_world": small_world, "churn": Churn(70)}
    history = play(agents, [4, 4, 4], 150, {40: SHOCK_1}, repeats=True, **options)
    assert history.seeds == (4, 4, 4)
    for name in ("user", "persona", "optimal_reward"):
        array = getattr(history, name)
        assert (array == array[..., :1, :]).all()
    random, networks = history.arm
    assert (random == random[0]).all()
    assert (history.reward[0] == history.reward[0, 0]).all()
    assert (networks[0] == networks[2]).all()
    assert (networks[0] != networks[1]).any()
    once = play({"random": RandomAgent(10)}, [4], 150, {40: SHOCK_1}, **options)
    assert (once.arm[0, 0] == random[0]).all()
    different = play([RandomAgent(10)], [4, 5], 20, repeats=True, **options)
    assert different.seeds == (4, 5)


def threads():
    """How many threads PyTorch and each library below NumPy may use."""
    pools = threadpool_info()
    assert any(pool["user_api"] == "blas" for pool in pools)
    return [torch.get_num_threads(), *(pool["num_threads"] for pool in pools)]


@pytest.fixture
def several_threads():
    """Several threads are allowed, whatever the machine has."""
    before = torch.get_num_threads()
    with threadpool_limits(limits=2):
        torch.set_num_threads(3)
        yield threads()
    torch.set_num_threads(before)


@pytest.mark.parametrize("end", [None, KeyboardInterrupt, ZeroDivisionError])
def test_agents_play_on_one_thread_and_the_others_come_back(end, several_threads):
    assert min(several_threads) > 1
    counted = []

    class Counting(Always):
        def update(self, context, arm, reward):
            counted.append(set(threads()))
            if end and len(counted) == 3:
                raise end

    if end is ZeroDivisionError:
        with pytest.raises(end):
            play([Counting(0)], [0], 5)
    else:
        play([Counting(0)], [0], 5)
    assert counted == [{1}] * (3 if end else 5)
    assert threads() == several_threads


def test_one_thread_may_be_asked_for_within_one_thread(several_threads):
    with one_thread():
        with one_thread():
            assert set(threads()) == {1}
        assert set(threads()) == {1}
    assert threads() == several_threads


def test_one_thread_loads_no_library(several_threads, monkeypatch):
    with monkeypatch.context() as patch:
        patch.delitem(sys.modules, "torch")
        with one_thread():
            assert "torch" not in sys.modules
            assert set(threads()[1:]) == {1}
    assert threads() == several_threads
