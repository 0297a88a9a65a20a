"""Every page in a browser: readers of all kinds, no other host, little weight, nothing moves."""

import json
from dataclasses import dataclass, field
from functools import cache
from urllib.parse import urlsplit

import pytest
from axe_playwright_python.base import AXE_SCRIPT

from tests.book.pages import page_names
from tests.book.taught import TAUGHT
from tests.exercises import CHAPTERS
from tests.notebooks import HTML

DESKTOP, PHONE = (1280, 800), (390, 844)
# The page at the root only leads to the first one.
PAGES = [name for name in page_names() if name != "index.html"]
LANDING = "chapters/index.html"
CELLS = "chapters/quickstart.html"
# The pages of the reference are written by one template: the longest and the shortest stand for all.
REFERENCE = sorted(
    (name for name in PAGES if name.startswith("chapters/api/")),
    key=lambda name: (HTML / name).stat().st_size,
)
ALIKE = REFERENCE[1:-1]
# What a page has asked for, and whether it waits for it before it shows anything.
RESOURCES = """() => performance.getEntriesByType("resource").map(resource => ({
  name: resource.name,
  imported: resource.initiatorType === "css",
  script: resource.initiatorType === "script",
  blocks: resource.renderBlockingStatus === "blocking",
  weight: resource.encodedBodySize,
}))"""

WATCH_SHIFTS = """
window.shifts = [];
new PerformanceObserver(list => window.shifts.push(
  ...list.getEntries().filter(entry => !entry.hadRecentInput).map(entry => [
    entry.value, entry.sources.map(source => source.node?.parentElement?.className ?? "").join(", ")])
)).observe({type: "layout-shift", buffered: true});
"""
# Outputs that would have to be scrolled sideways, by their first words.
SCROLLED = """() => [...document.querySelectorAll(".cell_output, .cell_output *")].filter(part =>
  part.checkVisibility() && part.scrollWidth > part.clientWidth + 1 &&
  getComputedStyle(part).overflowX !== "visible"
).map(part => part.textContent.trim().slice(0, 60))"""
WIDE_CODE = """() => [...document.querySelectorAll(".cell_input pre")].filter(code =>
  code.checkVisibility() && code.scrollWidth > code.clientWidth).map(code => code.textContent)"""
TYPESET = "() => window.MathJax?.startup?.promise.then(() => null)"
# Axe reads one of each kind of coloured word, formula and shape of an icon: thousands of them look alike.
THIN_OUT = """() => {
  const seen = new Set();
  const alike = "pre span, code span, .sig span, .sig em, .icon path, .icon rect, span.math, mjx-container";
  for (const part of document.querySelectorAll(alike)) {
    const box = part.closest(".admonition, .proof, table, summary, figure, .sig");
    const kind = [part.localName, part.className, part.getAttribute("display"), box?.className].join("|");
    if (!seen.has(kind)) seen.add(kind);
    else if (part.localName === "mjx-container") part.replaceWith("x");
    else part.replaceWith(...part.childNodes);
  }
  for (const row of document.querySelectorAll("tbody tr:nth-child(n + 12)")) row.remove();
  document.body.normalize();
}"""
FASTEN = "* { transition: none !important; animation: none !important; }"
# What shows whether a text can be read against its ground; one element of each combination is tried.
LOOKS = """() => {
  const look = element => {
    const {color, fontSize, fontWeight, opacity, textDecorationLine} = getComputedStyle(element);
    const grounds = [];
    for (let e = element; e; e = e.parentElement) {
      const style = getComputedStyle(e);
      grounds.push(style.backgroundColor, style.backgroundImage, style.opacity);
    }
    const seen = grounds.filter(g => !["rgba(0, 0, 0, 0)", "none", "1"].includes(g));
    const isLink = element.localName === "a";
    return [color, fontSize, fontWeight, opacity, textDecorationLine, isLink, ...seen].join();
  };
  const kinds = new Map();
  for (const element of document.querySelectorAll("body *")) {
    const speaks = [...element.childNodes].some(n => n.nodeType === 3 && n.data.trim());
    if (speaks && element.checkVisibility() && !kinds.has(look(element))) kinds.set(look(element), element);
  }
  return [...kinds.values()];
}"""
WITHOUT_COLOURS = {"rules": {"color-contrast": {"enabled": False}}}
COLOURS = {"runOnly": ["color-contrast", "link-in-text-block"]}


@dataclass
class Visit:
    """What was seen of one page at one width."""

    shift: float
    shifts: list
    hosts: set
    weight: int
    wider_than_screen: int
    scrolled: list
    wide_code: list
    faults: list = field(default_factory=list)
    violations: list = field(default_factory=list)


@pytest.fixture(scope="module")
def visited(browser, address):
    """Visit a page at a width, once; ask axe about it, or only look."""

    @cache
    def visit(name, size, ask_axe):
        context = browser.new_context(
            viewport=dict(zip(("width", "height"), size, strict=True)),
            is_mobile=size == PHONE,
            has_touch=size == PHONE,
            color_scheme="light",
        )
        context.add_init_script(WATCH_SHIFTS)
        page, asked, weights, faults = context.new_page(), set(), [], []
        page.on("request", lambda request: asked.add(urlsplit(request.url)))
        page.on("requestfinished", lambda r: weights.append(r.sizes()))
        page.on("pageerror", lambda error: faults.append(str(error)))
        page.on(
            "console", lambda said: said.type == "error" and faults.append(said.text)
        )
        page.goto(address + name)
        page.evaluate(TYPESET)
        page.wait_for_timeout(100)
        shifts = page.evaluate("window.shifts")
        seen = Visit(
            shift=sum(value for value, _ in shifts),
            shifts=shifts,
            hosts={url.netloc for url in asked if url.scheme not in ("data", "blob")},
            weight=sum(size["responseBodySize"] for size in weights),
            wider_than_screen=page.evaluate(
                "document.documentElement.scrollWidth - innerWidth"
            ),
            scrolled=page.evaluate(SCROLLED),
            wide_code=page.evaluate(WIDE_CODE),
            faults=[*faults],  # axe, which asks for styles again, has no part in them
        )
        if ask_axe:
            seen.violations = [*violations(page, WITHOUT_COLOURS)]
            # Colours are those of the theme, however wide the page is.
            for theme in ("light", "dark") if size == DESKTOP else ():
                seen.violations += violations(page, COLOURS, theme)
        context.close()
        return seen

    return visit


def violations(page, options, theme=None):
    """Ask axe, about the whole page or about the colours of a theme."""
    if theme:
        page.evaluate("theme => document.documentElement.dataset.theme = theme", theme)
        page.evaluate("theme => document.documentElement.dataset.mode = theme", theme)
    else:
        page.add_style_tag(content=FASTEN)
        page.evaluate(THIN_OUT)
        page.evaluate(f"() => {{ {AXE_SCRIPT} }}")
    about = f"{{include: ({LOOKS})()}}" if theme else "document"
    options = json.dumps(options | {"resultTypes": ["violations"]})
    found = page.evaluate(f"() => axe.run({about}, {options})")["violations"]
    return [
        f"{fault['impact']}: {fault['id']} ({theme}): {node['html'][:150]}"
        for fault in found
        for node in fault["nodes"]
    ]


@pytest.fixture(params=(DESKTOP, PHONE), ids=("desktop", "phone"), scope="module")
def size(request):
    return request.param


@pytest.mark.parametrize("name", [name for name in PAGES if name not in ALIKE])
def test_axe_finds_nothing(visited, name, size):
    assert visited(name, size, True).violations == []


@pytest.mark.weekly
@pytest.mark.parametrize("name", ALIKE)
def test_axe_finds_nothing_in_a_page_like_another(visited, name, size):
    assert visited(name, size, True).violations == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_holds_still_while_it_loads(visited, name, size):
    seen = visited(name, size, name not in ALIKE)
    assert seen.shift < 0.05, seen.shifts  # below a tenth counts as good


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_colours_and_borders_are_there_before_any_script(browser, address, scheme):
    page = browser.new_page(color_scheme=scheme)
    page.route("**/*.js*", lambda route: route.abort())
    page.goto(address + REFERENCE[-1])
    border = "getComputedStyle(document.querySelector('code.literal')).borderLeftWidth"
    assert page.evaluate("document.documentElement.dataset.theme") == scheme
    assert page.evaluate(border) == "1px"
    page.close()


@pytest.mark.parametrize(
    "name",
    [
        name
        for name in PAGES
        if name.removeprefix("chapters/").removesuffix(".html") in CHAPTERS
    ],
)
def test_no_output_of_a_chapter_scrolls_sideways_on_a_desktop(visited, name):
    assert visited(name, DESKTOP, True).scrolled == []


@pytest.mark.parametrize("name", TAUGHT)
def test_no_open_code_of_a_page_that_teaches_scrolls_on_a_desktop(visited, name):
    assert visited(f"chapters/{name}.html", DESKTOP, True).wide_code == []


def test_open_code_that_is_wider_than_its_frame_is_found(browser, address):
    page = browser.new_page(
        viewport=dict(zip(("width", "height"), DESKTOP, strict=True))
    )
    page.goto(address + CELLS)
    before = page.evaluate(WIDE_CODE)
    page.evaluate(
        """document.querySelectorAll(".cell_input pre").forEach(code => {
          code.textContent = code.closest("details") ? "y".repeat(200) : "x".repeat(95);
        })"""
    )
    assert {*page.evaluate(WIDE_CODE)} == {"x" * 95}
    assert not {*before} & {"x" * 95}
    page.close()


@pytest.mark.parametrize("name", PAGES)
def test_a_page_asks_only_its_own_host(visited, name, size, address):
    assert visited(name, size, name not in ALIKE).hosts == {urlsplit(address).netloc}


@pytest.mark.parametrize("name", PAGES)
def test_a_page_reports_no_error(visited, name, size):
    assert visited(name, size, name not in ALIKE).faults == []


@pytest.mark.parametrize("name", PAGES)
def test_a_page_fits_the_screen(visited, name, size):
    assert visited(name, size, name not in ALIKE).wider_than_screen <= 0


@pytest.mark.parametrize("name", PAGES)
def test_a_page_is_light(visited, name, size):
    assert visited(name, size, name not in ALIKE).weight < (
        800e3 if name == LANDING else 3e6
    )


def test_the_first_page_waits_for_little_before_it_shows(browser, address):
    """How soon it shows depends on the network and the phone; what it waits for, on the page."""
    page = browser.new_page()
    page.goto(address + LANDING)
    text = page.evaluate(
        "performance.getEntriesByType('navigation')[0].encodedBodySize"
    )
    waited_for = [one for one in page.evaluate(RESOURCES) if one["blocks"]]
    assert not [one["name"] for one in waited_for if one["script"]]
    assert sum(one["imported"] for one in waited_for) <= 1  # each is a round trip more
    assert len(waited_for) <= 20
    assert 40e3 < text + sum(one["weight"] for one in waited_for) < 110e3
    page.close()


def test_the_page_at_the_root_leads_to_the_first(browser, address):
    page = browser.new_page()
    page.goto(address)
    page.wait_for_url(f"**/{LANDING}")
    page.close()
