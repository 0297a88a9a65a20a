"""A reader's hands for tests of interactive figures: open the page, move a control, read what it says."""

import copy
import json
import re
from functools import cache

from tests.book.pages import soup


class FigurePage:
    """A page of the book, seen by one of its interactive figures."""

    def __init__(self, page, name):
        self.page = page
        self.figure = page.locator(f"[data-figure={name}]")

    def __getattr__(self, name):
        return getattr(self.page, name)

    def data(self):
        return json.loads(self.figure.locator("> script").inner_text())

    def summary(self):
        return self.figure.locator("[aria-live=polite]").inner_text()

    def controls(self):
        found = self.figure.locator("input, select, button").all()
        return [control.get_attribute("id") for control in found]

    def marks(self, color):
        """Places in pixels of the filled marks of a colour, in all plots."""
        script = f"""marks => marks
            .filter((mark) => mark.style.fill === "var(--{color})")
            .map((mark) => mark.getAttribute("transform").match(/[-\\d.]+/g).map(Number))"""
        return self.figure.locator(".interactive-plot path[transform]").evaluate_all(
            script
        )

    def rings(self):
        script = "rings => rings.map((ring) => ring.getAttribute('d'))"
        return self.figure.locator("path:has(title)").evaluate_all(script)

    def area_height(self):
        area = self.figure.locator('path[style*="fill-opacity"]').first
        return area.evaluate("shape => shape.getBBox().height")

    def words_outside(self):
        """Words in plots that reach over the figure's edges."""
        script = """figure => {
            const edge = figure.getBoundingClientRect();
            const over = (box) => box.left < edge.left || box.right > edge.right;
            return [...figure.querySelectorAll("svg text")]
                .filter((words) => over(words.getBoundingClientRect()))
                .map((words) => words.textContent);
        }"""
        return self.figure.evaluate(script)

    def corners(self):
        """Put all controls to their first ends, then to their last, and between these each alone to each."""
        controls = self.figure.locator("input, select").all()
        script = """c => c.tagName === "SELECT"
            ? [...c.options].map((o) => o.value) : [c.min, c.max]"""
        ends = [control.evaluate(script) for control in controls]
        for rest in (0, -1):
            for control, values in zip(controls, ends, strict=True):
                _put(control, values[rest])
            yield
            for control, values in zip(controls, ends, strict=True):
                for value in values:
                    _put(control, value)
                    yield
                _put(control, values[rest])

    def claimed(self, key):
        """The value of a claim, where the prose of the page first says it."""
        link = self.page.locator(f'a.claim[href$="#checked-{key}"]').first
        return float(link.inner_text().replace("−", "-"))


@cache
def alone(file, name):
    """A page of the book of which only one figure is left, with what loads its style and its scripts."""
    page = copy.copy(soup(file))
    part = page.find(attrs={"data-figure": name})
    while part.name != "body":
        for other in [*part.previous_siblings, *part.next_siblings]:
            if other.name != "script":
                other.extract()
        part = part.parent
    return str(page)


def opened(context, site, name, path, wait=True, page=None, only=False):
    """Open a page of the book at a figure; wait until a script has filled it.

    Formulas are left as they are: to set those of a chapter takes longer than all that is tested here. Where
    only the figure is wanted, the rest of the page is left out, and need not be laid out again and again.
    """
    page = FigurePage(page or context.new_page(), name)
    page.route("**/tex-svg.js*", lambda route: route.fulfill(body=""))
    if only:
        body = alone(site / path, name)
        page.route(
            f"**/{path}",
            lambda route: route.fulfill(body=body, content_type="text/html"),
        )
    page.goto((site / path).as_uri())
    if wait:
        page.wait_for_selector(f"[data-figure={name}].ready")
        page.evaluate("document.fonts.ready")
    return page


def move(page, label, value):
    """Put the control of this name to a value, or to an option by its words."""
    control = page.figure.get_by_label(label, exact=True)
    if control.evaluate("c => c.tagName") == "SELECT":
        control.select_option(value)
    else:
        _put(control, value)
        assert float(control.input_value()) == value, "out of the slider's range"


def _put(control, value):
    script = """(c, value) => {
        c.value = value;
        c.dispatchEvent(new Event("input"));
    }"""
    control.evaluate(script, str(value))


def options(page, label):
    """Words of the options of a list."""
    return (
        page.figure.get_by_label(label, exact=True).locator("option").all_inner_texts()
    )


def number_in(text, pattern):
    """The number that a pattern finds in a text."""
    return float(re.search(pattern, text)[1].replace(",", ""))
