"""Folded cells on the screen: small marks, by keyboard and by link, on a phone and on paper."""

import pytest

from tests.book.pages import page_names, soup
from tests.notebooks import HTML

WITH_FOLDS = [name for name in page_names() if soup(HTML / name).select("details.fold")]
# A page with a set-up, a figure, a table, and marks that share a line.
PAGE = "chapters/quickstart.html"
BAR_PX, TOUCHED_PX = 120, 22
# The marks of each row, all closed: left, top, width and height, and where the row ends.
MARKS = """() => [...document.querySelectorAll(".folds")].filter(row => row.checkVisibility()).map(row => ({
  right: row.getBoundingClientRect().right,
  marks: [...row.querySelectorAll("summary")].map(mark => {
    const {left, top, width, height} = mark.getBoundingClientRect();
    return {left, top, width, height};
  }),
}))"""


@pytest.fixture(params=[(1280, "light"), (390, "dark")], ids=["desktop", "phone"])
def open_page(browser, address, request):
    """Open pages at a width and in a theme, with formulas as they are written."""
    width, theme = request.param
    size = {"width": width, "height": 800}
    context = browser.new_context(viewport=size, color_scheme=theme)
    page = context.new_page()
    page.route("**/tex-svg.js*", lambda route: route.fulfill(body=""))

    def open_at(name):
        page.goto(address + name)
        return page

    yield open_at
    context.close()


def test_there_are_pages_with_folds():
    assert PAGE in WITH_FOLDS
    assert len(WITH_FOLDS) > 15


@pytest.mark.parametrize("name", WITH_FOLDS)
def test_a_fold_is_a_small_mark_and_marks_of_a_row_share_a_line(open_page, name):
    rows = open_page(name).evaluate(MARKS)
    assert rows
    for row in rows:
        marks = row["marks"]
        assert all(mark["width"] < BAR_PX for mark in marks), marks
        assert all(mark["height"] >= TOUCHED_PX for mark in marks), marks
        if len(marks) <= 3:
            assert len({mark["top"] for mark in marks}) == 1, marks
        ends = marks[-1]["left"] + marks[-1]["width"]
        assert 0 <= row["right"] - ends < 20, marks


@pytest.mark.parametrize("name", WITH_FOLDS)
def test_no_two_marks_stand_under_one_another(name):
    """A cell that shows nothing stands in the row of the fold before it."""
    for row in soup(HTML / name).select(".folds"):
        after = row.find_next_sibling()
        if after and "folds" in after.get("class", []):
            assert after.select_one(".cell > :first-child").name != "details", after


def test_a_mark_opens_its_code_under_the_figure_from_the_keyboard(open_page):
    page = open_page(PAGE)
    row = page.locator(".folds.framed:has(figure)").first
    mark, code = row.locator("summary").first, row.locator("pre").first
    assert code.is_hidden()
    mark.focus()
    page.keyboard.press("Enter")
    code.wait_for(state="visible")
    figure, frame, at = (x.bounding_box() for x in (row.locator("figure"), row, code))
    assert at["y"] >= figure["y"] + figure["height"]
    assert at["x"] >= frame["x"]
    assert at["x"] + at["width"] <= frame["x"] + frame["width"]
    page.keyboard.press("Space")
    code.wait_for(state="hidden")


def test_every_open_fold_stays_in_its_frame(open_page):
    page = open_page(PAGE)
    inside = page.evaluate(
        """() => [...document.querySelectorAll(".fold")].map(fold => {
          fold.open = true;
          const [frame, at] = [fold.closest(".folds"), fold].map(x => x.getBoundingClientRect());
          return frame.left <= at.left && at.right <= frame.right;
        })"""
    )
    assert len(inside) > 3
    assert all(inside)


def test_a_link_to_a_claim_opens_its_cell_where_the_browser_does_not(open_page):
    page = open_page(PAGE)
    place = page.locator(".fold [id^=checked-]").first
    page.evaluate(f"location.hash = {place.get_attribute('id')!r}")
    page.locator(".fold[open]").wait_for()
    page.evaluate("document.querySelector('.fold[open]').open = false")
    page.evaluate("dispatchEvent(new HashChangeEvent('hashchange'))")
    page.locator(".fold[open]").wait_for()
    assert page.evaluate("scrollY") > 0


def test_a_mark_has_a_name_and_its_sign_is_not_read_out(open_page):
    page = open_page(PAGE)
    tree = page.context.new_cdp_session(page).send("Accessibility.getFullAXTree")
    names = [
        node["name"]["value"]
        for node in tree["nodes"]
        if node.get("role", {}).get("value") == "DisclosureTriangle"
    ]
    assert {"set-up", "code", "checks"} <= {name.strip() for name in names}


def test_paper_has_the_code_without_marks(open_page):
    page = open_page(PAGE)
    page.emulate_media(media="print")
    assert not any(mark.is_visible() for mark in page.locator(".fold summary").all())
    shown = [code.bounding_box() for code in page.locator(".fold pre").all()]
    assert len(shown) > 3
    assert all(box["height"] > 0 and box["width"] > 200 for box in shown)
