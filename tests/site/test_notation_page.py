"""The notation page in a browser: short enough to be looked through."""


def test_the_notation_takes_six_screens_at_most(browser, site):
    page = browser.new_page(viewport={"width": 1280, "height": 800})
    page.goto((site / "chapters/notation.html").as_uri())
    page.locator("table.notation mjx-container").last.wait_for()
    height = page.evaluate("document.documentElement.scrollHeight")
    assert height <= 6 * 800
    page.close()
