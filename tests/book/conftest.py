"""What tests of pages that teach share: bars that are seen at once, and agents that learn the same rows."""

import pytest
from tqdm import tqdm


@pytest.fixture
def bars_of(monkeypatch):
    """Let the loops of a page, given as its names, show a bar from their first step on."""

    def show(page):
        def at_once(steps, delay, file):
            return tqdm(steps, file=file, disable=False)

        monkeypatch.setitem(page, "tqdm", at_once)

    return show


@pytest.fixture
def teach_alike():
    """Let several agents of a page learn from the visits in which the last of them chooses."""

    def teach(page, features, *agents):
        for user in page["draw_visits"](40)["user"]:
            context = page["Context"](user, features.transform(user))
            arm = agents[-1].select(context)
            for agent in agents:
                agent.update(context, arm, int(user % 2))

    return teach
