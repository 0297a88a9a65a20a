"""Colours of the book's figures by theme, which a colour-blind reader can tell apart.

They stand by themselves, so that whoever builds pages need not load what draws figures.
"""

LIGHT = {
    "ink": "#1b2733",
    "muted": "#5b6673",
    "grid": "#d8dde3",
    "blue": "#0062a8",
    "orange": "#b84a00",
    "green": "#00705a",
    "purple": "#8a3b7b",
}
DARK = {
    "ink": "#e7ebef",
    "muted": "#a9b4c0",
    "grid": "#414b56",
    "blue": "#6db9ff",
    "orange": "#ff9f5e",
    "green": "#45d3ae",
    "purple": "#e4a0d6",
}
