"""What all figures share: looks for paper, slides and notebook, panels, legends, and files with reproducible bytes."""

import functools
import io
import itertools
import math
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import matplotlib as mpl
from matplotlib.axes import Axes
from matplotlib.figure import Figure
from matplotlib.font_manager import findfont
from matplotlib.ft2font import FT2Font
from matplotlib.layout_engine import ConstrainedLayoutEngine

from fl_platform.config.migrate import MOVED
from fl_platform.errors import UserError, unknown_name, visible
from fl_platform.paper.methods import METHODS
from fl_platform.reporting.styles import shortened
from fl_platform.reporting.symbols import NAMES, SYMBOLS, name_of
from fl_platform.runs.writing import write_atomically

FORMATS = ("png", "svg", "pdf")
FALLBACK_FONT = "DejaVu Sans"
"""For signs that the font of a style lacks; matplotlib brings it along."""

_RC: dict[str, Any] = {
    "figure.autolayout": False,  # else this is what a layout engine of None stands for
    "figure.constrained_layout.use": False,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.grid": True,
    "grid.alpha": 0.3,
    "legend.frameon": False,
    "svg.hashsalt": "fl_platform",  # else element ids are random
    "pdf.fonttype": 42,  # whole fonts, which publishers ask for
}
_METADATA: dict[str, dict[str, Any]] = {
    "png": {"Software": None},
    "svg": {"Date": None, "Creator": None},
    "pdf": {"CreationDate": None, "Creator": None, "Producer": None},
}


@dataclass(frozen=True)
class Look:
    """How large a figure and its text are when it is printed; ``width`` None: as wide as its panels need."""

    width: float | None
    font_size: float
    panel_height: float
    most_columns: int
    is_serif: bool = False
    line_scale: float = 1.0
    dpi: int = 150

    @property
    def small(self) -> float:
        """The size of numbers inside panels, of ticks and of legends."""
        return self.font_size - 1

    def rc(self) -> Any:
        """The parameters of matplotlib."""
        own: dict[str, Any] = {
            "font.size": self.font_size,
            "lines.linewidth": 1.4 * self.line_scale,
            "savefig.dpi": self.dpi,
            "axes.titlesize": self.font_size,
            "axes.labelsize": self.font_size,
            "legend.fontsize": self.small,
            "xtick.labelsize": self.small,
            "ytick.labelsize": self.small,
            "figure.titlesize": self.font_size,
            "svg.fonttype": "path" if self.is_serif else "none",
        }
        if self.is_serif:  # matplotlib brings this font along; it goes with Times and Computer Modern
            own |= {"font.family": ["STIXGeneral", FALLBACK_FONT], "mathtext.fontset": "stix"}
            own |= {"axes.linewidth": 0.6, "xtick.major.width": 0.6, "ytick.major.width": 0.6, "grid.linewidth": 0.5}
        return _RC | own


STYLES: dict[str, Look] = {
    "cvpr-column": Look(3.25, 8, 1.45, 2, is_serif=True, line_scale=0.75, dpi=300),
    "cvpr-page": Look(6.875, 8, 1.6, 4, is_serif=True, line_scale=0.75, dpi=300),
    "slides": Look(10.0, 14, 3.2, 3, line_scale=1.5),
    "notebook": Look(None, 9, 2.6, 3),
}
"""The values of ``style``; widths in inches are those of a column and a page of CVPR's style, and of a slide."""
DEFAULT_STYLE = "notebook"
_LONGEST_LEGEND = 24  # entries of a column beside the panels
_look: ContextVar[Look] = ContextVar("look", default=STYLES[DEFAULT_STYLE])


def check_style(style: str, place: str = "style") -> str:
    """The name of a style; UserError where there is none."""
    if style not in STYLES:
        raise unknown_name(place, style, STYLES)
    return style


@contextmanager
def using(style: str) -> Iterator[None]:
    """Figures made in this block have the style."""
    token = _look.set(STYLES[check_style(style)])
    try:
        yield
    finally:
        _look.reset(token)


def look() -> Look:
    """The style of the figure that is being made."""
    return _look.get()


@contextmanager
def drawing(**parameters: Any) -> Iterator[Look]:
    """A block that draws with the current style, and further parameters of matplotlib."""
    with mpl.rc_context(look().rc() | parameters):
        yield look()


def save(figure: Figure, place: Path, formats: tuple[str, ...] = FORMATS) -> list[Path]:
    """The figure in these formats beside ``place`` (a path without suffix)."""
    place.parent.mkdir(parents=True, exist_ok=True)
    written = []
    own = figure.look if isinstance(figure, ShownFigure) else look()
    with mpl.rc_context(own.rc()):
        if isinstance(figure, ShownFigure):
            figure.settle()
        figure.set_layout_engine(None)  # the panels are placed; with an engine, even "none", each format is drawn twice
        for form in formats:
            path = place.with_name(f"{place.name}.{form}")
            drawn = io.BytesIO()
            figure.savefig(drawn, format=form, metadata=_METADATA[form])
            write_atomically(path, drawn.getvalue())
            written.append(path)
    return written


def format_of(path: Path) -> str:
    """The format that a file's suffix names; UserError for another one."""
    form = path.suffix.removeprefix(".").lower()
    if form not in FORMATS:
        raise UserError(f"--out {path}: the suffix must be one of {', '.join(f'.{one}' for one in FORMATS)}")
    return form


class ShownFigure(Figure):
    """A figure that knows its style, and that a notebook shows as a picture, with or without pyplot."""

    look: Look = STYLES[DEFAULT_STYLE]
    num_columns: int = 1
    num_rows: int = 1

    def settle(self) -> None:
        """Place the panels. Where a title would leave the figure or touch another one, all get two lines."""
        self.draw_without_rendering()
        titles = [axis.title for axis in self.axes if axis.get_title()]
        boxes = [title.get_window_extent() for title in titles]
        is_outside = any(box.x0 < 0 or box.x1 > self.bbox.width for box in boxes)
        if is_outside or any(one.padded(4).overlaps(other) for one, other in itertools.combinations(boxes, 2)):
            for title in titles:
                title.set_text(title.get_text().replace(", ", "\n", 1))
            self.draw_without_rendering()

    def _repr_png_(self) -> bytes:
        drawn = io.BytesIO()
        with mpl.rc_context(self.look.rc()):
            self.settle()
            self.savefig(drawn, format="png", metadata=_METADATA["png"])
        return drawn.getvalue()


def label(text: object) -> str:
    """Text as it may stand in a figure: short, a dollar sign a dollar sign, a code point for what no font here has."""
    shown = "".join(
        char if char.isascii() or ord(char) in _glyphs() else f"[U+{ord(char):04X}]" for char in visible(text)
    )
    return shortened(shown).replace("$", r"\$")


@functools.cache
def _glyphs() -> frozenset[int]:
    """The code points that the fonts of all styles have; every style falls back on the last of them."""
    return frozenset(FT2Font(findfont(FALLBACK_FONT)).get_charmap())


def key_label(key: str) -> str:
    """A configuration key as figures show it: the paper's symbol, or a name."""
    key = MOVED.get(key, key)
    return f"${SYMBOLS[key]}$" if key in SYMBOLS else label(name_of(key))


def setting(key: str, value: str) -> str:
    """A key and its value as a legend shows them: ``m = 20``; only the value for a key that has a name."""
    return f"${SYMBOLS[key]}$ = {value}" if key in SYMBOLS else value if key in NAMES else f"{name_of(key)} = {value}"


def panels(count: int, columns: int | None = None, height: float = 1.0) -> tuple[ShownFigure, list[Axes]]:
    """A figure with ``count`` axes in rows of ``columns``; ``height`` is relative to the usual height of a panel."""
    own = look()
    columns = columns or (min(own.most_columns, count) if own.width or count != 4 else 2)
    if columns == 4 and count not in (4, 7, 8):
        columns = 3
    rows = math.ceil(count / columns)
    width = own.width or 3.3 * columns
    wide = own.panel_height * (1.3 if columns == 1 and own.width else 1.0)
    padding = {"w_pad": 0.1, "h_pad": 0.06} if own.width is None else {"w_pad": 0.03, "h_pad": 0.03}
    figure = ShownFigure(figsize=(width, wide * height * rows), layout=ConstrainedLayoutEngine(**padding))  # type: ignore[arg-type]
    figure.look, figure.num_columns, figure.num_rows = own, columns, rows
    axes = figure.subplots(rows, columns, squeeze=False).ravel().tolist()
    for axis in axes[count:]:
        figure.delaxes(axis)
    return figure, axes[:count]


def legend(figure: ShownFigure, axes: list[Axes], title: str = "") -> None:
    """One legend for all panels where it hides no data: in the empty cell, else below, or right in a notebook."""
    handles: dict[str, Any] = {}
    for axis in axes:
        for handle, name in zip(*axis.get_legend_handles_labels(), strict=True):
            handles.setdefault(name, handle)
    places = {method.label: place for place, method in enumerate(METHODS.values())}
    names = sorted(handles, key=lambda name: places.get(name, len(places)))
    if not names:
        return
    own = figure.look
    line = own.small * 1.32 / 72  # inches of an entry
    entry = (4.6 + 0.56 * max(map(len, names))) * own.small / 72
    marks: dict[str, Any] = {"title": title or None, "title_fontsize": own.small, "handlelength": 2.6}
    marks |= {"labelspacing": 0.3, "columnspacing": 1.0, "handletextpad": 0.5, "borderpad": 0.2}
    given = ([handles[name] for name in names], names)
    empty = figure.num_columns * figure.num_rows - len(axes)
    cell_width = empty * figure.get_figwidth() / figure.num_columns - 0.25
    cell_height = figure.get_figheight() / figure.num_rows
    columns = max(1, int(cell_width / entry))
    if empty and (math.ceil(len(names) / columns) + bool(title)) * line < cell_height - 0.1:
        tall = max(1, int((cell_height - 0.1) / line) - bool(title))
        anchor = (1 - (empty / 2) / figure.num_columns, 0.5 / figure.num_rows)
        kept = min(columns, math.ceil(len(names) / tall))
        figure.legend(*given, loc="center", bbox_to_anchor=anchor, ncols=kept, **marks).set_in_layout(False)
    elif own.width is None:
        columns = math.ceil(len(names) / max(_LONGEST_LEGEND, int(figure.get_figheight() / 0.2) - 2))
        figure.set_figwidth(figure.get_figwidth() + columns * (0.7 + 0.075 * max(max(map(len, names)), len(title))))
        figure.set_figheight(max(figure.get_figheight(), 0.3 + 0.2 * (math.ceil(len(names) / columns) + bool(title))))
        marks["handlelength"] = 3.2
        figure.legend(*given, loc="outside right upper", ncols=columns, **marks)
    else:
        columns = max(1, min(len(names), int((own.width - 0.1) / entry)))
        rows = math.ceil(len(names) / columns) + bool(title)
        figure.set_figheight(figure.get_figheight() + rows * line + 0.05)
        figure.legend(*given, loc="outside lower center", ncols=columns, **marks)
