"""Reading without a mouse, and on paper."""

import io

import pypdf
import pytest

CHAPTER = "chapters/linucb.html"
LANDING = "chapters/index.html"
READY = "() => window.MathJax?.startup?.promise.then(() => null)"
# What the keyboard is at: its text or label, whether it can be seen, and whether it is marked as focused.
FOCUSED = """() => {
  const at = document.activeElement, box = at.getBoundingClientRect();
  // The link of a card is stretched over it.
  const stretched = at.classList.contains("sd-stretched-link");
  const style = getComputedStyle(at, stretched ? "::after" : null);
  return {
    tag: at.localName, id: at.id, classes: at.className,
    name: (at.getAttribute("aria-label") ?? at.textContent).trim().slice(0, 60) || at.title,
    seen: (stretched || box.width * box.height > 0) && at.checkVisibility({checkVisibilityCSS: true}),
    marked: style.outlineStyle !== "none" || style.boxShadow !== "none" || style.textDecorationLine !== "none",
  };
}"""

SHOWN = """selector => [...document.querySelectorAll(selector)].map(element =>
  element.checkVisibility({visibilityProperty: true, opacityProperty: true})
  && element.getBoundingClientRect().height > 0
  && element.closest(".toggle-hidden")?.getBoundingClientRect().height !== 0)"""


@pytest.fixture
def open_page(browser, address):
    """Open pages of the book, with formulas as they are written or typeset; they are closed at the end."""
    contexts = []

    def open_at(name, width=1280, height=800, typeset=False, **options):
        context = browser.new_context(
            viewport={"width": width, "height": height}, **options
        )
        contexts.append(context)
        page = context.new_page()
        if not typeset:  # to set the formulas of a chapter takes longer than to load it
            page.route("**/tex-svg.js*", lambda route: route.fulfill(body=""))
        page.goto(address + name)
        page.evaluate(READY)
        return page

    yield open_at
    for context in contexts:
        context.close()


def press_until(page, fits, key="Tab", at_most=60):
    """Press a key until what has the focus fits."""
    for _ in range(at_most):
        page.keyboard.press(key)
        if fits(at := page.evaluate(FOCUSED)):
            return at
    pytest.fail(f"{at_most} times {key} did not get there")


def test_the_first_tab_leads_past_the_navigation(open_page):
    page = open_page(CHAPTER)
    page.keyboard.press("Tab")
    at = page.evaluate(FOCUSED)
    assert at["name"] == "Skip to main content"
    assert at["seen"]
    page.keyboard.press("Enter")
    page.keyboard.press("Tab")
    inside = "document.activeElement.closest('main') !== null"
    assert page.evaluate(inside)


@pytest.mark.parametrize("width", [1280, 390])
def test_tab_goes_through_a_page_and_out_and_always_shows_where_it_is(open_page, width):
    page = open_page(LANDING, width=width)
    seen = []
    for _ in range(150):
        page.keyboard.press("Tab")
        at = page.evaluate(FOCUSED)
        if at["tag"] == "body":
            break
        assert at["seen"], at
        assert at["marked"], at
        assert at["name"], at
        seen.append(at["name"])
    else:
        pytest.fail(f"the keyboard does not get out: {seen[-5:]}")
    last = page.evaluate("[...document.querySelectorAll('main a')].at(-1).textContent")
    assert seen[-1] in last.strip() or len(seen) > 15


def test_the_theme_is_switched_from_the_keyboard(open_page):
    page = open_page(LANDING)
    press_until(page, lambda at: "theme-switch-button" in at["classes"])
    found = []
    for _ in range(3):
        page.evaluate("document.querySelector('.theme-switch-button').focus()")
        page.keyboard.press("Enter")
        found.append(page.evaluate("document.documentElement.dataset.mode"))
    assert sorted(found) == ["auto", "dark", "light"]


def test_search_opens_answers_and_closes_from_the_keyboard(open_page):
    page = open_page(LANDING)
    press_until(page, lambda at: "search-button" in at["classes"])
    page.keyboard.press("Enter")
    assert page.evaluate("document.querySelector('#pst-search-dialog').open")
    assert page.evaluate(FOCUSED)["tag"] == "input"
    page.keyboard.press("Escape")
    assert not page.evaluate("document.querySelector('#pst-search-dialog').open")
    page.keyboard.press("Control+k")
    page.keyboard.type("regret")
    page.keyboard.press("Enter")
    page.wait_for_selector("#search-results li a")
    assert "q=regret" in page.url


def test_a_hidden_solution_opens_and_closes_from_the_keyboard(open_page):
    page = open_page(CHAPTER)
    shown = f"({SHOWN})('.solution .cell').includes(true)"
    assert not page.evaluate(shown)
    page.evaluate("document.querySelector('.solution .toggle-button').focus()")
    page.keyboard.press("Enter")
    page.wait_for_function(shown)
    said = "document.querySelector('.solution .toggle-button').ariaExpanded"
    assert page.evaluate(said) == "true"
    page.keyboard.press("Space")
    page.wait_for_function(f"!({shown})")
    assert page.evaluate(said) == "false"


@pytest.mark.parametrize("which", ["primary", "secondary"])
def test_sidebars_open_and_close_on_a_phone(open_page, which):
    page = open_page(CHAPTER, width=390, height=844)
    opened = f"document.querySelector('#pst-{which}-sidebar-modal').open"
    press_until(page, lambda at: f"{which}-toggle" in at["classes"])
    page.keyboard.press("Enter")
    assert page.evaluate(opened)
    inside = f"document.activeElement.closest('#pst-{which}-sidebar-modal') !== null"
    page.keyboard.press("Tab")
    assert page.evaluate(inside)
    page.keyboard.press("Escape")
    page.wait_for_function(f"!{opened}")


def test_anchors_are_not_hidden_behind_the_header(open_page):
    page = open_page(CHAPTER, typeset=True)
    link = page.locator("nav.page-toc a").nth(5)
    target = link.get_attribute("href")
    link.click()
    page.wait_for_function(
        """target => {
          const box = part => document.querySelector(part).getBoundingClientRect();
          return box(".bd-header-article").bottom - 1 <= box(target).top && box(target).top < 400;
        }""",
        arg=target,
    )


def test_paper_gets_the_text_and_not_the_tools(open_page):
    page = open_page(CHAPTER, color_scheme="dark")
    assert page.evaluate("document.documentElement.dataset.theme") == "dark"
    page.emulate_media(media="print")

    def visible(selector):
        return sum(page.evaluate(SHOWN, selector))

    for tool in (
        ".bd-sidebar-primary",
        ".bd-sidebar-secondary",
        ".bd-header-article",
        ".prev-next-footer",
        "button",
        ".headerlink",
        "img.only-dark",
    ):
        assert visible(tool) == 0, tool
    pictures = page.evaluate("document.querySelectorAll('img.only-light').length")
    assert visible("img.only-light") == pictures > 0
    solutions = page.evaluate("document.querySelectorAll('.solution .cell').length")
    assert visible(".solution .cell") == solutions > 0
    assert visible(".bd-article h1") == 1
    parts = ["body", ".bd-article p", "pre", "pre .nb", "pre .n", ".solution"]
    colours = page.evaluate(
        """parts => parts.map(name => {
      const style = getComputedStyle(document.querySelector(name));
      return [style.color, style.backgroundColor];
    })""",
        parts,
    )
    for ink, ground in colours:
        assert luminance(ink) < 0.2, colours
        assert "0, 0, 0, 0" in ground or luminance(ground) > 0.8, colours


def luminance(colour):
    """Mean of red, green and blue of a colour as CSS computes it."""
    parts = [float(part) for part in colour.strip("rgba()").split(",")[:3]]
    return sum(parts) / 3 / 255


def test_paper_breaks_no_figure_code_or_formula(open_page):
    page = open_page("chapters/static-recommender.html", typeset=True)
    page.emulate_media(media="print")
    for kind in ("figure", ".cell_input pre", "mjx-container[display=true]", "tr"):
        style = f"getComputedStyle(document.querySelector('{kind}')).breakInside"
        assert page.evaluate(style) == "avoid", kind


def test_a_chapter_prints(open_page):
    page = open_page(
        "chapters/static-recommender.html", color_scheme="dark", typeset=True
    )
    pdf = pypdf.PdfReader(io.BytesIO(page.pdf(format="A4")))
    text = "\n".join(sheet.extract_text() for sheet in pdf.pages)
    assert "The static recommender" in text
    assert "Exercise" in text
    assert "Skip to main content" not in text
    assert 15 < len(pdf.pages) < 60


def test_a_heading_reached_by_a_link_is_not_painted(open_page):
    page = open_page(CHAPTER)
    page.evaluate("location.hash = document.querySelector('section[id]:has(> h2)').id")
    colour = "getComputedStyle(document.querySelector(':target > h2')).backgroundColor"
    assert page.evaluate(colour) == "rgba(0, 0, 0, 0)"
