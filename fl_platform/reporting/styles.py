"""How lines are labelled and drawn: methods of the paper, methods of others, and lines that are not methods."""

import dataclasses
import zlib
from collections.abc import Iterable
from typing import Any

import pandas as pd

from fl_platform.paper.methods import DASH, DASH_DOT, DOT, FURTHER_GROUPS, LONG_DASH, METHODS, Group, Method, Style

SEQUENCE = ("#000000", "#E69F00", "#56B4E9", "#009E73", "#0072B2", "#D55E00", "#CC79A7", "#808080")
_SEQUENCE_DASHES = ("-", DASH, DOT, DASH_DOT, LONG_DASH)

# Colours of Paul Tol's and IBM's palettes that colour-blind readers tell from each other and from the paper's.
_OWN_COLORS = ("#332288", "#882255", "#999933", "#1A85FF", "#4D3319")
_OWN_LINES = (
    *(("-", "*"), (DASH, "d"), (DOT, "8"), (DASH_DOT, "H"), (LONG_DASH, "X")),
    *(((0, (3, 1, 1, 1, 1, 1)), "p"), ((0, (1, 3)), "P"), ((0, (5, 4)), "h")),
)
OWN_STYLES = tuple(Style(color, dashes, marker) for dashes, marker in _OWN_LINES for color in _OWN_COLORS)
"""Styles of methods that are not of the paper; no method of the paper has one of these colours."""
_SPARE_STYLES = tuple(
    Style(color, *_OWN_LINES[place % len(_OWN_LINES)]) for place, color in enumerate(reversed(SEQUENCE))
)
"""Further styles in the paper's colours, for figures in which no method of the paper has that colour."""


LONGEST_LABEL = 48


def shortened(text: str) -> str:
    """A text that leaves room for data: the middle of a longer one is cut out, as names often differ at their end."""
    kept = LONGEST_LABEL - 3
    return text if len(text) <= LONGEST_LABEL else f"{text[: kept - kept // 2]}...{text[-(kept // 2) :]}"


def sequence_style(place: int) -> Style:
    """The style of a line that is not a method, such as a memory size, by its place in a figure."""
    return Style(SEQUENCE[place % len(SEQUENCE)], _SEQUENCE_DASHES[place % len(_SEQUENCE_DASHES)])


def method_of(name: str, label: object = None, group: object = None) -> Method:
    """A run's method: the paper's, or one with the label and group that its run recorded.

    Without a recorded label it is called by its name, and without a group it is a plugin's; its style follows from the
    name alone.
    """
    if name in METHODS:
        return METHODS[name]
    found = Group(group) if isinstance(group, str) and group in FURTHER_GROUPS else Group.PLUGIN
    return Method(name, label if isinstance(label, str) and label else name, found, _own_style(name))


def _own_style(name: str) -> Style:
    return OWN_STYLES[zlib.crc32(name.encode("utf-8", "replace")) % len(OWN_STYLES)]


def distinct(methods: Iterable[Method]) -> dict[str, Method]:
    """The methods of one table or figure by name, with no two labels alike, nor two styles as far as there are enough.

    Methods of the paper stay as they are. The others have the style that follows from their name, or the next one in
    another colour where a method before them has that colour; colours repeat once all are in use.
    """
    by_name = {method.name: method for method in methods}
    names = sorted(by_name, key=lambda name: by_name[name].order)
    found = {name: by_name[name] for name in names if name in METHODS}
    for name in names:
        method = by_name[name]
        if name not in METHODS:
            taken = {shortened(other.label) for other in (*METHODS.values(), *found.values())}
            label = f"{method.label} ({name})" if shortened(method.label) in taken else method.label
            method = dataclasses.replace(method, label=label, style=_unused(_own_style(name), found.values()))
        found[name] = method
    return {name: found[name] for name in names}


def _unused(style: Style, others: Iterable[Method]) -> Style:
    """The given style, or the next one whose colour no other method has, else which no other method has."""
    used = [other.style for other in others]
    colors = {other.color for other in used}
    start = OWN_STYLES.index(style)
    ring = OWN_STYLES[start:] + OWN_STYLES[:start]
    by_color = (one for one in (*ring, *_SPARE_STYLES) if one.color not in colors)
    return next(by_color, None) or next((one for one in ring if one not in used), style)


def methods_in(frame: pd.DataFrame) -> dict[str, Method]:
    """The methods of a frame of runs (a row per run) by ``algorithm.name``, labels and styles distinct."""
    columns = [f"config.{key}" for key in ("algorithm.name", "run.label", "run.method_group")]
    rows: list[dict[Any, Any]] = frame.reindex(columns=columns).drop_duplicates().to_dict("records")
    labelled = sorted(rows, key=lambda row: isinstance(row["config.run.label"], str))  # a recorded label counts
    return distinct(method_of(*(str(row[columns[0]]), row[columns[1]], row[columns[2]])) for row in labelled)
