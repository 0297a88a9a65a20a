"""Figures for all eyes: colours that stay apart, letters of a size to read; contrast is in test_plots.py."""

import re
from itertools import combinations

import numpy as np
import pytest

from tests.book.pages import page_names, soup
from tests.notebooks import HTML
from zoolib.book.colors import DARK, LIGHT

THEMES = {"light": (LIGHT, "#ffffff"), "dark": (DARK, "#121212")}
SERIES = ("blue", "orange", "green", "purple")
# Machado, Oliveira, Fernandes (2009), "A physiologically-based model for simulation of color vision
# deficiency", severity 1.0; they act on linear RGB.
DEFICIENCIES = {
    "usual": np.eye(3),
    "protanopia": [
        [0.152286, 1.052583, -0.204868],
        [0.114503, 0.786281, 0.099216],
        [-0.003882, -0.048116, 1.051998],
    ],
    "deuteranopia": [
        [0.367322, 0.860646, -0.227968],
        [0.280085, 0.672501, 0.047413],
        [-0.011820, 0.042940, 0.968881],
    ],
    "tritanopia": [
        [1.255528, -0.076749, -0.178779],
        [-0.078411, 0.930809, 0.147602],
        [0.004733, 0.691367, 0.303900],
    ],
}
TO_XYZ = np.array(
    [
        [0.4124564, 0.3575761, 0.1804375],
        [0.2126729, 0.7151522, 0.0721750],
        [0.0193339, 0.1191920, 0.9503041],
    ]
)
# Two colours of thin lines are told apart from about here on; one is just seen at 2.3.
APART = 10.0
COLUMN_PX = 390 - 2 * 16
SMALLEST_PX = 9.0


def linear_rgb(colour):
    """Linear red, green and blue of a colour like #0062a8."""
    parts = np.array([int(colour[i : i + 2], 16) for i in (1, 3, 5)]) / 255
    return np.where(parts <= 0.04045, parts / 12.92, ((parts + 0.055) / 1.055) ** 2.4)


def lab(rgb):
    """CIELAB under D65 of a linear RGB colour."""
    ratio = TO_XYZ @ np.clip(rgb, 0, 1) / TO_XYZ.sum(axis=1)
    x, y, z = np.where(
        ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio * 841 / 108 + 4 / 29
    )
    return np.array([116 * y - 16, 500 * (x - y), 200 * (y - z)])


def difference(one, other, deficiency):
    """Distance in CIELAB (CIE 1976) as someone with a deficiency sees it."""
    matrix = np.asarray(DEFICIENCIES[deficiency])
    return np.linalg.norm(
        lab(matrix @ linear_rgb(one)) - lab(matrix @ linear_rgb(other))
    )


def test_the_measure_of_difference_is_that_of_the_books():
    assert lab(linear_rgb("#ff0000")) == pytest.approx([53.24, 80.09, 67.20], abs=0.05)
    assert difference("#000000", "#ffffff", "usual") == pytest.approx(100, abs=0.01)
    assert difference("#ff0000", "#00ff00", "usual") == pytest.approx(170.6, abs=0.1)


@pytest.mark.parametrize("deficiency", DEFICIENCIES)
@pytest.mark.parametrize("theme", THEMES)
def test_series_are_told_apart_by_every_reader(theme, deficiency):
    palette, _ = THEMES[theme]
    near = {
        pair: round(float(d), 1)
        for pair in combinations(SERIES, 2)
        if (d := difference(*(palette[name] for name in pair), deficiency)) < APART
    }
    assert near == {}


def smallest_letters(file):
    """Size in pixels of a figure's smallest letters on a phone.

    Letters are outlines: the smallest scale at which glyphs are placed, shrunk as the column shrinks it.
    """
    text = file.read_text(encoding="utf-8")
    width = float(re.search(r'<svg[^>]*?\swidth="([\d.]+)pt"', text)[1]) * 4 / 3
    scales = [float(s) for s in re.findall(r"scale\((0\.\d+) -0\.\d+\)", text)]
    # Outlines of glyphs are 100 units high at a scale of a hundredth of the size in points.
    sizes = [100 * scale * 4 / 3 for scale in scales]
    return min(sizes) * min(1, COLUMN_PX / width)


@pytest.mark.parametrize("name", page_names())
def test_letters_of_figures_can_be_read_on_a_phone(name):
    pictures = soup(HTML / name).select("img.only-light[src$='.svg']")
    for picture in pictures:
        file = (HTML / name).parent / picture["src"]
        assert smallest_letters(file) >= SMALLEST_PX, picture


@pytest.mark.parametrize("motion", ["no-preference", "reduce"])
def test_the_first_figure_moves_for_five_seconds_at_most_or_not_at_all(
    browser, address, motion
):
    context = browser.new_context(
        viewport={"width": 1280, "height": 800}, reduced_motion=motion
    )
    page = context.new_page()
    page.goto(f"{address}chapters/index.html")
    figure = page.locator("#fig-front img.only-light")
    box = figure.bounding_box()
    assert box["y"] + box["height"] < 800  # on the first screen
    seen = []
    for _ in range(3):  # 1, 3 and at least 5 seconds after the page was opened
        page.wait_for_timeout(1000 if not seen else 2000)
        seen.append(figure.screenshot())
    page.wait_for_timeout(500)
    seen.append(figure.screenshot())
    different = {"no-preference": 3, "reduce": 1}[motion]
    assert len(set(seen)) == different
    assert seen[-1] == seen[-2]
    context.close()
