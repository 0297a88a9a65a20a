"""Figures in one style: colours that a colour-blind reader can tell apart, intervals always drawn.

Figures are drawn on a transparent ground with the colours of `LIGHT`. For the dark theme the book's
build makes a second form of each by exchanging every colour for its partner for the dark, so a figure
uses these colours by name and no other for lines, text and marks.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pandas as pd
from numpy.typing import ArrayLike

from zoolib._support.extras import needed_by

with needed_by(__name__):
    import matplotlib as mpl
    from matplotlib.axes import Axes
    from matplotlib.colors import LinearSegmentedColormap

from zoolib._support.progress import in_notebook
from zoolib.book.colors import LIGHT
from zoolib.experiments.estimates import Estimate, half_width


def use_style() -> None:
    """Set the book's figure style; in a notebook, also sharp vector output that is the same each time."""
    ink = LIGHT["ink"]
    muted = LIGHT["muted"]
    colors = [LIGHT[name] for name in ("blue", "orange", "green", "purple")]
    mpl.rc("figure", figsize=(5.4, 3.4), facecolor="none")
    mpl.rc("figure.constrained_layout", use=True)
    mpl.rc("font", size=12)
    mpl.rc("text", color=ink)
    mpl.rc("axes", edgecolor=muted, labelcolor=ink, titlecolor=ink, facecolor="none")
    mpl.rc("axes", titlesize=12, prop_cycle=mpl.cycler(color=colors))
    mpl.rc("axes", grid=True, axisbelow=True)
    mpl.rc("axes.spines", top=False, right=False)
    mpl.rc(("xtick", "ytick"), color=muted, labelcolor=ink)
    mpl.rc("grid", color=LIGHT["grid"])
    mpl.rc("legend", frameon=False)
    mpl.rc("lines", linewidth=2)
    # A fixed salt and, below, no date: the same figure gives the same bytes.
    mpl.rc("svg", fonttype="path", hashsalt="zoolib")
    if in_notebook():
        from matplotlib_inline.backend_inline import set_matplotlib_formats

        set_matplotlib_formats("svg", metadata={"Date": None})


def band(
    ax: Axes,
    x: ArrayLike,
    samples: ArrayLike,
    color: str,
    label: str | None = None,
) -> None:
    """Draw the mean over worlds as a line and its t-interval of 95 per cent as a band.

    Parameters
    ----------
    ax : Axes
        Where to draw.
    x : array_like, shape (n,)
        Positions.
    samples : array_like, shape (W, n)
        One row per world.
    color : str
        A name in `LIGHT`.
    label : str, optional
        Name in the legend.
    """
    samples = np.asarray(samples, dtype=float)
    color = LIGHT[color]
    mean = samples.mean(axis=0)
    half = half_width(samples, 0.95)
    ax.plot(x, mean, color=color, label=label)
    ax.fill_between(x, mean - half, mean + half, color=color, alpha=0.25, linewidth=0)


def whiskers(
    ax: Axes,
    estimates: Sequence[Estimate],
    at: ArrayLike,
    color: str,
    label: str | None = None,
    vertical: bool = False,
    marker: str = "o",
) -> None:
    """Draw estimates as dots with their intervals as bars.

    Parameters
    ----------
    ax, color, label : Axes, str, and str, optional
        As for `band`.
    estimates : sequence of Estimate
        What to draw.
    at : array_like, shape (n,)
        Positions on the other axis.
    vertical : bool, default False
        Whether the estimates are heights; else they lie along the horizontal axis.
    marker : str, default "o"
        Matplotlib's name of another shape for the dots.
    """
    mean = np.array([e.mean for e in estimates])
    sides = [mean - [e.low for e in estimates], [e.high for e in estimates] - mean]
    x, y = (at, mean) if vertical else (mean, at)
    error = {"yerr" if vertical else "xerr": sides}
    ax.errorbar(x, y, **error, fmt=marker, capsize=4, color=LIGHT[color], label=label)


def tiles(ax: Axes, table: pd.DataFrame, low: float, high: float) -> None:
    """Draw a table of numbers as tiles: the higher, the darker, each with its number in it.

    Parameters
    ----------
    ax : Axes
        Where; its labels become the names of the columns and of the index.
    table : DataFrame
        Numbers.
    low, high : float
        Between them shades grow; below and above they do not.
    """
    with needed_by(f"{__name__}.tiles"):
        import seaborn as sns  # here, since loading it takes as long as Matplotlib itself

    shade = LinearSegmentedColormap.from_list(
        "tiles", [LIGHT["blue"] + opacity for opacity in ("00", "80")]
    )
    sns.heatmap(
        table,
        ax=ax,
        annot=True,
        fmt=".1f",
        annot_kws={"color": LIGHT["ink"]},
        cmap=shade,
        vmin=low,
        vmax=high,
        cbar=False,
    )
    ax.grid(False)


def flow_chart(
    ax: Axes,
    boxes: Mapping[str, tuple[float, float, str]],
    arrows: Sequence[tuple[str, str, str]],
) -> None:
    """Draw named boxes and labelled arrows between them.

    Parameters
    ----------
    ax : Axes
        Where to draw; its frame is taken away, and its limits fit the boxes.
    boxes : mapping of str to (float, float, str)
        For each name, which may hold line breaks, the place of its centre and a colour of `LIGHT`.
    arrows : sequence of (str, str, str)
        Box from, box to (its colour is the arrow's), and a label, which may be empty. Of two that join the same
        boxes both ways, the one to the right runs above.
    """
    drawn = {}
    muted = LIGHT["muted"]
    ways = {arrow[:2] for arrow in arrows}
    for name, (x, y, color) in boxes.items():
        frame = {"boxstyle": "round,pad=0.4", "fc": "none", "ec": LIGHT[color]}
        text = ax.text(x, y, name, ha="center", va="center", fontsize=10, bbox=frame)
        drawn[name] = text.get_bbox_patch()
    for start, end, label in arrows:
        if not {start, end} <= boxes.keys():
            raise ValueError(
                f"arrows must join boxes {list(boxes)}: got {start!r} to {end!r}"
            )
        points = np.array([boxes[start][:2], boxes[end][:2]], dtype=float)
        aside = 0.12 * np.sign(points[1, 0] - points[0, 0]) * ((end, start) in ways)
        points[:, 1] += aside
        color = LIGHT[boxes[end][2]]
        style = {"arrowstyle": "-|>", "color": color, "shrinkA": 0}
        style |= {"patchA": drawn[start], "patchB": drawn[end]}
        ax.annotate("", points[1], points[0], arrowprops=style)
        x, y = points.mean(axis=0)
        if points[0, 1] == points[1, 1]:
            place = {"x": x, "y": y + 0.05, "ha": "center", "va": "bottom"}
            if aside < 0:
                place |= {"y": y - 0.05, "va": "top"}
        else:
            place = {"x": x + 0.08, "y": y, "ha": "left", "va": "top"}
        ax.text(s=label, fontsize=10, color=muted, **place)
    places = np.array([place[:2] for place in boxes.values()])
    low = places.min(axis=0) - 0.6
    high = places.max(axis=0) + 0.6
    ax.set(xlim=(low[0], high[0]), ylim=(low[1], high[1]))
    ax.set_axis_off()
