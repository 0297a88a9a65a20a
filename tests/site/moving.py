"""A reader's hands for tests of interactive figures: open the page, move a control, read what it says."""

import json
import re
from itertools import product


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
        return self.figure.locator(".interactive-summary").inner_text()

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
        """Go through all combinations of the ends of all controls."""
        controls = self.figure.locator("input, select").all()
        script = """c => c.tagName === "SELECT"
            ? [...c.options].map((o) => o.value) : [c.min, c.max]"""
        for ends in product(*(control.evaluate(script) for control in controls)):
            for control, end in zip(controls, ends, strict=True):
                _put(control, end)
            yield ends

    def claimed(self, key):
        """The value of a claim, where the prose of the page first says it."""
        link = self.page.locator(f'a.claim[href$="#claim-{key}"]').first
        return float(link.inner_text().replace("−", "-"))


def opened(context, site, name, path, wait=True, page=None):
    """Open a page of the book at a figure; wait until a script has filled it."""
    page = FigurePage(page or context.new_page(), name)
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
        c.dispatchEvent(new Event(c.tagName === "SELECT" ? "change" : "input"));
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


def dark_or_light(page):
    return page.evaluate("document.documentElement.dataset.theme")
