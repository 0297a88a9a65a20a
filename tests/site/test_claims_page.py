"""The page of claims in a browser: the filter finds, the order is that of the room, no row is lost."""

import pytest


@pytest.fixture(scope="module")
def page(browser):
    page = browser.new_page()
    yield page
    page.close()


@pytest.fixture(autouse=True)
def fresh(page, site):
    page.goto((site / "chapters/claims.html").as_uri())
    page.get_by_label("Find").wait_for()


def shown(page):
    return page.locator("table.claims tbody tr:visible")


def test_words_find_the_claims_that_hold_all_of_them(page):
    everything = shown(page).count()
    page.get_by_label("Find").fill("Gauntlet discount")
    found = [text.lower() for text in shown(page).all_inner_texts()]
    assert 0 < len(found) < everything
    assert all("gauntlet" in text and "discount" in text for text in found)
    assert page.locator(".claims-controls output").inner_text() == (
        f"{len(found)} of {everything} claims"
    )
    page.get_by_label("Find").fill("")
    assert shown(page).count() == everything


def test_a_page_and_the_drafts_narrow_the_table(page):
    controls = page.locator(".claims-controls")
    controls.get_by_label("Page").select_option("LinUCB: learning while serving")
    links = shown(page).locator("a.checked-in").all_inner_texts()
    assert set(links) == {"LinUCB: learning while serving"}
    page.get_by_label("Only where drafts differ").check()
    assert 0 < shown(page).count() < len(links)
    assert shown(page).count() == shown(page).locator(".drafts").count()


def test_the_least_room_comes_first_and_the_books_order_comes_back(page):
    before = shown(page).evaluate_all("rows => rows.map(row => row.id)")
    page.get_by_label("Order").select_option("room")
    room = page.locator("table.claims [data-room]").evaluate_all(
        "strips => strips.map(strip => Number(strip.dataset.room))"
    )
    assert room == sorted(room)
    assert room[0] < room[-1]
    page.get_by_label("Order").select_option("place")
    assert shown(page).evaluate_all("rows => rows.map(row => row.id)") == before


def test_a_number_in_the_text_leads_to_its_row_and_back(page, site):
    page.goto((site / "chapters/linucb.html").as_uri())
    number = page.locator("a.claim").first
    target = number.get_attribute("href").partition("#")[2]
    number.click()
    row = page.locator(f"tr#{target}")
    assert row.is_visible()
    row.locator("a.checked-in").click()
    assert page.url.partition("#")[2] == target.replace("claim-", "checked-", 1)


def test_without_scripts_the_table_is_whole(browser, site):
    page = browser.new_page(java_script_enabled=False)
    page.goto((site / "chapters/claims.html").as_uri())
    assert page.locator("table.claims tbody tr:visible").count() > 400
    assert page.locator(".claims-controls").is_hidden()
    page.close()
