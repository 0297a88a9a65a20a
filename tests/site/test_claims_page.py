"""Claims in a browser: the filter of their page, and what a number in the text tells of itself."""

import pytest


@pytest.fixture(scope="module")
def page(browser):
    page = browser.new_page()
    page.route("**/tex-svg.js*", lambda route: route.fulfill(body=""))
    yield page
    page.close()


@pytest.fixture(autouse=True)
def fresh(page, site):
    page.goto((site / "chapters/claims.html").as_uri())
    page.get_by_label("Find").wait_for()


def shown(page):
    return page.locator("table.claims tbody tr:visible")


def every(page):
    return page.locator("table.claims tbody tr")


def test_the_page_opens_short_with_a_line_for_each_chapter(page):
    assert shown(page).count() == 0
    lines = page.locator("details.claims-of > summary:visible")
    assert lines.count() > 15
    assert page.locator("article").bounding_box()["height"] < 3000
    lines.first.click()
    first = page.locator("details.claims-of").first.locator("tbody tr")
    assert shown(page).count() == first.count() > 0


def test_words_find_the_claims_that_hold_all_of_them(page):
    everything = every(page).count()
    page.get_by_label("Find").fill("Gauntlet discount")
    found = [text.lower() for text in shown(page).all_inner_texts()]
    assert 0 < len(found) < everything
    assert all("gauntlet" in text and "discount" in text for text in found)
    assert page.locator(".claims-controls output").inner_text() == (
        f"{len(found)} of {everything} claims"
    )
    page.get_by_label("Find").fill("a")
    assert shown(page).count() > len(found)
    page.get_by_label("Find").fill("")
    assert page.locator(".claims-controls output").inner_text() == (
        f"{everything} of {everything} claims"
    )
    assert shown(page).count() == 0


def test_a_chapter_shows_its_claims_alone(page):
    section = page.locator("details.claims-of").nth(2)
    title = section.locator("summary span").inner_text()
    page.locator(".claims-controls select").first.select_option(title)
    assert shown(page).count() == section.locator("tbody tr").count() > 0
    assert set(shown(page).locator(".checked-in").all_inner_texts()) == {title}
    page.get_by_label("Order").select_option("room")
    assert set(shown(page).locator(".checked-in").all_inner_texts()) == {title}


def test_the_least_room_comes_first_and_the_books_order_comes_back(page):
    before = every(page).evaluate_all("rows => rows.map(row => row.id)")
    page.get_by_label("Order").select_option("room")
    assert shown(page).count() == len(before)
    room = page.locator("table.claims [data-room]").evaluate_all(
        "strips => strips.map(strip => Number(strip.dataset.room))"
    )
    assert room == sorted(room)
    assert room[0] < room[-1]
    # What is equal by computation has no room: it comes after every close call.
    has_room = every(page).evaluate_all(
        "rows => rows.map(row => Boolean(row.querySelector('[data-room]')))"
    )
    assert has_room == sorted(has_room, reverse=True)
    assert not all(has_room)
    page.get_by_label("Order").select_option("place")
    assert every(page).evaluate_all("rows => rows.map(row => row.id)") == before


def test_whoever_comes_for_a_claim_finds_it_open(page, site):
    page.goto("about:blank")
    page.goto((site / "chapters/claims.html").as_uri() + "#claim-runs-behind")
    row = page.locator("tr#claim-runs-behind")
    row.wait_for(state="visible")
    assert 0 <= row.bounding_box()["y"] < page.viewport_size["height"]


def test_a_row_leads_to_its_cell_and_opens_it(page):
    row = page.locator("tr#claim-runs-behind")
    page.get_by_label("Find").fill("alpha 1.5 is behind it")
    row.locator("a.checked-in").click()
    place = page.locator("#checked-runs-behind")
    assert page.url.endswith("evidence/linucb.html#checked-runs-behind")
    # A browser opens the cell once it has laid the page out, which a click does not wait for.
    page.wait_for_function(
        "document.getElementById('checked-runs-behind')?.closest('details').open"
    )
    assert "runs_behind" in place.locator("xpath=ancestor::details").inner_text()


# --- Numbers in the text ------------------------------------------------------------------------------


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["wide", "phone"])
def chapter(browser, site, request):
    """A chapter on a screen, its formulas as they are written, and a number in it with an interval."""
    width, theme = request.param
    size = {"width": width, "height": 800}
    page = browser.new_page(viewport=size, color_scheme=theme, has_touch=width < 500)
    page.route("**/tex-svg.js*", lambda route: route.fulfill(body=""))
    page.goto((site / "chapters/evidence/linucb.html").as_uri())
    yield page, page.locator('a.claim[href$="#checked-runs-behind"]').first
    page.close()


def tells(page, number):
    """Whether the tooltip is there, belongs to the number, and lies within the window."""
    tip = page.locator("#claim-tip")
    if tip.is_hidden():
        assert number.get_attribute("aria-describedby") is None
        return False
    box, size = tip.bounding_box(), page.viewport_size
    assert number.get_attribute("aria-describedby") == "claim-tip"
    assert "interval" in tip.inner_text()
    assert "must be above 100; seed 42" in tip.inner_text()
    assert box["x"] >= 0
    assert box["x"] + box["width"] <= size["width"]
    assert box["y"] >= 0
    assert box["y"] + box["height"] <= size["height"]
    return True


def test_a_number_tells_what_stands_behind_it_to_the_keyboard(chapter):
    page, number = chapter
    assert not tells(page, number)
    number.focus()
    assert tells(page, number)
    page.keyboard.press("Escape")
    assert not tells(page, number)
    page.keyboard.press("Enter")
    assert page.url.endswith("#checked-runs-behind")


def test_a_number_tells_what_stands_behind_it_to_the_mouse(chapter):
    page, number = chapter
    number.hover()
    assert tells(page, number)
    page.locator("#claim-tip").hover()  # as one does to select its text
    assert tells(page, number)
    page.mouse.move(1, 400)
    assert not tells(page, number)


def test_a_first_tap_tells_and_a_second_one_leads_to_the_cell(browser, site):
    size = {"width": 390, "height": 800}
    page = browser.new_page(viewport=size, has_touch=True)
    page.goto((site / "chapters/evidence/linucb.html").as_uri())
    number = page.locator('a.claim[href$="#checked-runs-behind"]').first
    number.tap()
    assert tells(page, number)
    assert "#" not in page.url
    number.tap()
    assert page.url.endswith("#checked-runs-behind")
    page.close()


def test_axe_finds_nothing_in_a_tooltip(chapter):
    page, number = chapter
    axe = pytest.importorskip("axe_playwright_python.sync_playwright")
    number.focus()
    results = axe.Axe().run(page, context="#claim-tip")
    assert results.response["violations"] == []


def test_an_interval_alone_in_brackets_is_for_tables_and_paper(chapter, site):
    page, _ = chapter
    bracket = page.locator("p > .claim-bracket").first
    assert bracket.is_hidden()
    page.emulate_media(media="print")
    assert bracket.is_visible()
    page.emulate_media(media="screen")
    page.goto((site / "chapters/evidence/sessions.html").as_uri())
    assert page.locator("td .claim-bracket").first.is_visible()


def test_without_scripts_a_number_has_a_title(browser, site):
    page = browser.new_page(java_script_enabled=False)
    page.goto((site / "chapters/evidence/linucb.html").as_uri())
    number = page.locator('a.claim[href$="#checked-runs-behind"]').first
    assert "must be above 100; seed 42" in number.get_attribute("title")
    page.close()


def test_without_scripts_the_table_is_whole(browser, site):
    page = browser.new_page(java_script_enabled=False)
    page.goto((site / "chapters/claims.html").as_uri())
    assert page.locator("table.claims tbody tr:visible").count() > 400
    assert page.locator(".claims-controls").is_hidden()
    page.close()
