import subprocess
import sys

import matplotlib as mpl
import matplotlib.pyplot as plt
import numpy as np
import pandas as pd
import pytest

from zoolib import mean_interval, plots
from zoolib.book.colors import DARK, LIGHT


@pytest.fixture
def ax():
    with plt.rc_context():
        plots.use_style()
        fig, ax = plt.subplots()
        yield ax
        plt.close(fig)


def luminance(colour):
    rgb = np.array([int(colour[i : i + 2], 16) / 255 for i in (1, 3, 5)])
    return np.where(rgb <= 0.04045, rgb / 12.92, ((rgb + 0.055) / 1.055) ** 2.4) @ [
        0.2126,
        0.7152,
        0.0722,
    ]


def contrast(a, b):
    bright, dim = sorted((luminance(a), luminance(b)), reverse=True)
    return (bright + 0.05) / (dim + 0.05)


def test_every_colour_reads_on_its_ground():
    assert contrast("#777777", "#ffffff") == pytest.approx(4.48, abs=0.01)
    assert LIGHT.keys() == DARK.keys()
    assert not set(LIGHT.values()) & set(DARK.values()), (
        "an exchange of colours would not be one"
    )
    for name in LIGHT.keys() - {"grid"}:
        assert contrast(LIGHT[name], "#ffffff") >= 4.5, name
        assert contrast(DARK[name], "#121212") >= 4.5, name


def test_bands_are_t_intervals_over_worlds(ax):
    samples = np.random.default_rng(0).normal(size=(6, 4))
    plots.band(ax, range(4), samples, "blue", "six worlds")
    (line,), (fill,) = ax.lines, ax.collections
    assert line.get_label() == "six worlds"
    vertices = fill.get_paths()[0].vertices
    for x in range(4):
        interval = mean_interval(samples[:, x])
        heights = vertices[vertices[:, 0] == x, 1]
        assert (heights.min(), heights.max()) == pytest.approx(
            (interval.low, interval.high)
        )
        assert line.get_ydata()[x] == pytest.approx(interval.mean)


def test_whiskers_reach_to_the_ends_of_the_intervals(ax):
    estimates = [mean_interval([1.0, 2.0, 4.0]), mean_interval([0.0, 0.1])]
    plots.whiskers(ax, estimates, [0, 1], "green", label="two")
    (container,) = ax.containers
    segments = container[2][0].get_segments()
    for segment, estimate in zip(segments, estimates, strict=True):
        assert tuple(segment[:, 0]) == pytest.approx((estimate.low, estimate.high))
    assert container.get_label() == "two"
    assert container[0].get_marker() == "o"
    plots.whiskers(ax, estimates, [0, 1], "blue", marker="s")
    assert ax.containers[1][0].get_marker() == "s"


def test_whiskers_can_stand_upright(ax):
    estimate = mean_interval([1.0, 2.0, 4.0])
    plots.whiskers(ax, [estimate], [7], "blue", vertical=True)
    (segment,) = ax.containers[0][2][0].get_segments()
    assert tuple(segment[:, 1]) == pytest.approx((estimate.low, estimate.high))
    assert tuple(segment[:, 0]) == (7, 7)


def test_figures_are_the_same_bytes_each_time(tmp_path):
    files = []
    for name in ("a.svg", "b.svg"):
        with plt.rc_context():
            plots.use_style()
            fig, ax = plt.subplots()
            plots.band(ax, range(3), [[1, 2, 3], [2, 3, 5]], "orange", "x")
            fig.savefig(tmp_path / name, metadata={"Date": None})
            plt.close(fig)
        files.append((tmp_path / name).read_bytes())
    assert files[0] == files[1]


def test_figures_have_two_sides_of_a_frame_and_a_grid_behind_the_lines(ax):
    assert [side for side, line in ax.spines.items() if line.get_visible()] == [
        "left",
        "bottom",
    ]
    assert all(line.get_visible() for line in ax.get_xgridlines())
    assert ax.get_axisbelow()


def test_a_flow_chart_joins_its_boxes_in_the_colours_asked_for():
    boxes = {"a": (0, 0, "blue"), "b\nc": (2, 0, "orange"), "d": (2, 1, "ink")}
    _, ax = plt.subplots()
    plots.flow_chart(ax, boxes, [("a", "b\nc", "right"), ("b\nc", "d", "")])
    drawn = {text.get_text(): text for text in ax.texts if text.get_text()}
    assert set(drawn) == {"a", "b\nc", "d", "right"}
    for name, (x, y, color) in boxes.items():
        assert drawn[name].get_position() == (x, y)
        edge = drawn[name].get_bbox_patch().get_edgecolor()
        assert mpl.colors.to_hex(edge) == plots.LIGHT[color]
    arrows = [text for text in ax.texts if getattr(text, "arrow_patch", None)]
    assert [(a.xyann, a.xy) for a in arrows] == [((0, 0), (2, 0)), ((2, 0), (2, 1))]
    colors = [mpl.colors.to_hex(a.arrow_patch.get_edgecolor()) for a in arrows]
    assert colors == [plots.LIGHT["orange"], plots.LIGHT["ink"]]
    assert 0 < drawn["right"].get_position()[0] < 2
    assert not ax.axison
    assert ax.get_xlim() == (-0.6, 2.6)
    assert ax.get_ylim() == (-0.6, 1.6)


def test_arrows_both_ways_run_apart_with_their_labels_outside():
    _, ax = plt.subplots()
    boxes = {"a": (0, 0, "blue"), "b": (2, 0, "orange")}
    plots.flow_chart(ax, boxes, [("b", "a", "back"), ("a", "b", "forth")])
    drawn = {text.get_text(): text for text in ax.texts}
    back, forth = (a.xy[1] for a in ax.texts if getattr(a, "arrow_patch", None))
    assert drawn["back"].get_position()[1] < back < 0
    assert 0 < forth < drawn["forth"].get_position()[1]
    assert (drawn["back"].get_va(), drawn["forth"].get_va()) == ("top", "bottom")


def test_an_arrow_to_nowhere_is_refused():
    _, ax = plt.subplots()
    with pytest.raises(ValueError, match=r"arrows must join boxes \['a'\]: got 'a' to"):
        plots.flow_chart(ax, {"a": (0, 0, "blue")}, [("a", "b", "")])


def test_tiles_show_every_number_of_a_table_and_shade_it(ax):
    table = pd.DataFrame(
        [[91.04, 100.0], [80.0, 95.0]],
        index=pd.Index([0.9, 1.0], name="discount"),
        columns=pd.Index([0.1, 0.2], name="alpha"),
    )
    plots.tiles(ax, table, low=90, high=100)
    assert [text.get_text() for text in ax.texts] == ["91.0", "100.0", "80.0", "95.0"]
    assert (ax.get_xlabel(), ax.get_ylabel()) == ("alpha", "discount")
    assert ax.figure.axes == [ax]  # no bar of colours, which the numbers replace
    ax.figure.canvas.draw()
    opacity = ax.collections[0].get_facecolors()[:, 3]
    shades = [0.104, 1, 0, 0.5]
    assert opacity == pytest.approx(128 / 255 * np.array(shades), abs=0.005)


def test_only_tiles_wait_for_seaborn():
    code = "import sys; from zoolib import plots; plots.use_style(); assert 'seaborn' not in sys.modules"
    subprocess.run([sys.executable, "-c", code], check=True)
