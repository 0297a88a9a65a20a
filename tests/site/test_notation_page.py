"""The notation page in a browser: short enough to be looked through."""

import yaml

from tests.notebooks import ROOT

PARTS = yaml.safe_load((ROOT / "_toc.yml").read_text())["parts"]
N_CHAPTERS = sum(len(part["chapters"]) for part in PARTS[:2])  # of Parts I and II


def test_the_notation_takes_a_screen_a_chapter_and_one_more_at_most(browser, site):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto((site / "chapters/notation.html").as_uri())
    page.locator("table.notation mjx-container").last.wait_for()
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height <= (1 + N_CHAPTERS) * 800
    page.close()
