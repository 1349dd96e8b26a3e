r"""Tables for a paper: what ``\input`` takes, and a document that shows a report's tables and figures at print size.

A table is a ``table`` or, where it is wider than a column, a ``table*`` with a booktabs ``tabular``, a caption that
says what its marks mean, and the label ``tab:NAME``. The widths are those of CVPR's style. A table that does not fit on
its page is cut, first between data sets; its parts have labels ``tab:NAME-mnist`` or ``tab:NAME-2``.
"""

import re
import textwrap
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import replace

from fl_platform.config.migrate import MOVED
from fl_platform.errors import visible
from fl_platform.reporting.layout import TIMES, Cell, Note, Row, Table
from fl_platform.reporting.symbols import NAMES, QUANTITIES, SYMBOLS, name_of

COLUMN_INCHES = 3.25
PAGE_INCHES = 6.875
_POINTS = 72.27  # of TeX, per inch
_SIZES = (("small", 9.25), ("footnotesize", 8.5), ("scriptsize", 8.0))  # small sizes are cut wider
_WIDEST_HEAD = 14  # characters of a line over a column
_COLUMN_GAP = 8.0  # points between two columns: \tabcolsep=4pt on either side
_MOST_ROWS = 46  # of a float, with its caption and head

_SYMBOLS = {
    "\\": r"\textbackslash{}",
    "~": r"\textasciitilde{}",
    "^": r"\textasciicircum{}",
    "<": r"\textless{}",
    ">": r"\textgreater{}",
    "|": r"\textbar{}",
    '"': "''",
    "±": r"$\pm$",
    "ω": r"$\omega$",
    "β": r"$\beta$",
    TIMES: r"$\times$",
    "[": "{[}",  # these two would be arguments of a preceding line break
    "*": "{*}",
} | {char: f"\\{char}" for char in "&%$#_{}"}


def text(value: object) -> str:
    """ASCII and letters of Western Europe as they are; what plain LaTeX cannot typeset becomes its code point."""
    return "".join(_char(char) for char in visible(value))


def _char(char: str) -> str:
    if char in _SYMBOLS:
        return _SYMBOLS[char]
    if char.isascii() or (char.isalpha() and ord(char) < 256 and char not in "ªºµðþÐÞ"):
        return char
    return f"{{[}}U+{ord(char):04X}]"


def latex(table: Table) -> str:
    r"""The table as one or several floats for ``\input`` in a paper that loads booktabs."""
    label = f"tab:{re.sub(r'[^a-z0-9]+', '-', visible(table.name or table.title).lower()).strip('-') or 'table'}"
    parts = list(_parts(table))
    lines = [r"% needs \usepackage{booktabs}"]
    for place, (name, part) in enumerate(parts, 1):
        slug = re.sub(r"[^a-z0-9]+", "-", name.lower()).strip("-") or str(place)
        if [other for other, _ in parts].count(name) > 1:
            slug = str(place)
        own = label if len(parts) == 1 else f"{label}-{slug}"
        which = "" if len(parts) == 1 else f" ({name})" if slug != str(place) else f" ({place} of {len(parts)})"
        lines += _float(part, own, which)
    return "\n".join(lines) + "\n"


def preview(tables: Sequence[str], figures: Iterable[str]) -> str:
    """A two-column document with CVPR's measures that shows these tables (file names) and figures (without suffix).

    Figures of a style that is not made for print are scaled to the width of the page.
    """
    lines = [_PREVIEW]
    lines += [rf"\input{{{name}}}\clearpage" for name in tables]
    lines += [
        rf"\begin{{figure*}}[t]\centering\fitted{{{name}.pdf}}\caption{{{text(name)}}}\end{{figure*}}\clearpage"
        for name in figures
    ]
    return "\n".join([*lines, r"\mbox{}\end{document}"]) + "\n"


_PREVIEW = r"""% pdflatex preview: the tables and figures of this report as they would stand in a CVPR paper
\documentclass[10pt,twocolumn]{article}
\usepackage{booktabs}
\usepackage{graphicx}
\usepackage[letterpaper,textwidth=6.875in,textheight=8.875in,columnsep=0.3125in]{geometry}
\newcommand{\fitted}[1]{\sbox0{\includegraphics{#1}}%
\ifdim\wd0>\textwidth\resizebox{\textwidth}{!}{\usebox0}\else\usebox0\fi}
\begin{document}"""


# --- what fits ---


def _parts(table: Table) -> Iterator[tuple[str, Table]]:
    """(name of its data set, or nothing; table) of each part that fits on a page."""
    names = _spread(table.header[0]) if table.header else []
    columns = [list(range(len(names)))]
    if _size(table) is None:
        columns = _runs_of([name.split(", ")[0] for name in names]) if len(table.header) > 1 else columns
        columns = [part for group in columns for part in _narrow(table, group)]
    for group in columns:
        part = table if len(columns) == 1 else _columns_of(table, group)
        for block in _pages(part.blocks):
            over = names[group[0]] if len(columns) > 1 and len(table.header) > 1 else ""
            inside = _prefix(block[0]) if len(columns) == 1 and block else ""
            yield (over or inside).split(", ")[0], replace(part, blocks=block)


def _runs_of(names: Sequence[str | int]) -> list[list[int]]:
    """Places of neighbours with the same name."""
    found: list[list[int]] = []
    for place, name in enumerate(names):
        if found and names[found[-1][0]] == name:
            found[-1].append(place)
        else:
            found.append([place])
    return found


def _narrow(table: Table, columns: list[int]) -> list[list[int]]:
    """Columns cut in the middle until each part fits; a single column is left as it is."""
    if len(columns) < 2 or _size(_columns_of(table, columns)) is not None:
        return [columns]
    middle = len(columns) // 2
    return _narrow(table, columns[:middle]) + _narrow(table, columns[middle:])


def _columns_of(table: Table, columns: list[int]) -> Table:
    header = []
    for row in table.header:
        spans = [place for place, (_, span) in enumerate(row) for _ in range(span)]
        kept = [spans[one] for one in columns]
        header.append(tuple((row[kept[group[0]]][0], len(group)) for group in _runs_of(kept)))
    blocks = tuple(
        tuple(Row(row.label, tuple(row.cells[one] for one in columns)) for row in block) for block in table.blocks
    )
    return replace(table, header=tuple(header), blocks=blocks)


def _pages(blocks: tuple[tuple[Row, ...], ...]) -> list[tuple[tuple[Row, ...], ...]]:
    """Blocks in parts of at most so many rows as a page has; where the rows name data sets, a part has one of them."""
    cut = [block[start : start + _MOST_ROWS] for block in blocks for start in range(0, len(block), _MOST_ROWS)]
    if sum(map(len, cut)) <= _MOST_ROWS:
        return [blocks] if blocks else [()]
    parts: list[list[tuple[Row, ...]]] = []
    for block in cut:
        same = parts and _prefix(parts[-1][0]).split(", ")[0] == _prefix(block).split(", ")[0]
        if same and sum(map(len, parts[-1])) + len(block) <= _MOST_ROWS:
            parts[-1].append(block)
        else:
            parts.append([block])
    return [tuple(part) for part in parts]


def _prefix(block: Sequence[Row]) -> str:
    """What stands before ``: `` in every label of a block, or nothing."""
    heads = {row.label.partition(": ")[0] if ": " in row.label else "" for row in block}
    return heads.pop() if len(heads) == 1 else ""


def _size(table: Table) -> tuple[str, float] | None:
    """(font size, width in inches) of the largest size at which the table is no wider than a page; None without one."""
    labels = [_own_label(row, block) for block in table.blocks for row in block]
    columns = [[*_lines(_corner(table)), *labels]]
    for place, _ in enumerate(_spread(table.header[0]) if table.header else []):
        heads = [part for line in map(_unspanned, table.header) for part in _lines(_plain_head(line[place]))]
        columns.append([*heads, *(row.cells[place].text for block in table.blocks for row in block)])
    ems = sum(max(map(_ems, column)) for column in columns)
    for name, points in _SIZES:
        inches = (ems * points + _COLUMN_GAP * len(columns)) / _POINTS
        if inches <= PAGE_INCHES:
            return name, inches
    return None


def _unspanned(row: tuple[tuple[str, int], ...]) -> list[str]:
    """The texts of a header row by column; a spanned one takes its room from its columns together."""
    return ["" if span > 1 else text for text, span in row for _ in range(span)]


def _ems(value: str) -> float:
    """About how wide a text is, in units of the font size."""
    return sum(
        0.32 if char in " .,:;!|()[]'ijl" else 0.8 if char.isupper() or char in f"±ωm%=+{TIMES}" else 0.52
        for char in value
    )


# --- what is written ---


def _float(table: Table, label: str, which: str) -> list[str]:
    size, inches = _size(table) or (_SIZES[-1][0], PAGE_INCHES)
    kind = "table" if inches <= COLUMN_INCHES else "table*"
    notes = [note.in_paper if isinstance(note, Note) else note for note in table.notes]
    sentences = [f"{table.title}{which}", *(note for note in notes if note)]
    caption = " ".join(text(one if one.endswith(".") else f"{one}.") for one in sentences)
    lines = [
        rf"\begin{{{kind}}}[t]",
        r"\centering\setlength{\belowcaptionskip}{4pt}",
        rf"\caption{{{caption}}}",
        rf"\label{{{label}}}",
    ]
    if table.header:
        width = len(_spread(table.header[0]))
        lines += [rf"\{size}\setlength{{\tabcolsep}}{{4pt}}", rf"\begin{{tabular}}{{@{{}}l{'c' * width}@{{}}}}"]
        lines += [r"\toprule", *_head(table)]
        for block in table.blocks:
            lines.append(r"\midrule")
            if prefix := _prefix(block):
                lines.append(rf"\multicolumn{{{width + 1}}}{{@{{}}l}}{{{text(prefix)}}} \\")
            lines += [" & ".join([text(_own_label(row, block)), *map(_cell, row.cells)]) + r" \\" for row in block]
        lines += [r"\bottomrule", r"\end{tabular}"]
    return [*lines, rf"\end{{{kind}}}"]


def _head(table: Table) -> Iterator[str]:
    for index, row in enumerate(table.header):
        corner = _corner_text(table) if index == 0 else ""
        spans = [
            rf"\multicolumn{{{span}}}{{c}}{{{text(name)}}}" if span > 1 else _head_text(name) for name, span in row
        ]
        yield " & ".join([corner, *spans]) + r" \\"
        starts = [2 + sum(span for _, span in row[:place]) for place in range(len(row))]
        rules = [
            rf"\cmidrule(lr){{{start}-{start + span - 1}}}"
            for start, (_, span) in zip(starts, row, strict=True)
            if span > 1
        ]
        if rules:
            yield " ".join(rules)


def _corner(table: Table) -> str:
    """The corner without what stands over each block, and with names in place of keys."""
    if any(map(_prefix, table.blocks)):
        return table.corner.rpartition(": ")[2].capitalize()
    return ", ".join(name_of(key) if "." in key or "_" in key else key for key in table.corner.split(", "))


def _corner_text(table: Table) -> str:
    return f"${SYMBOLS[table.corner]}$" if table.corner in SYMBOLS else _stacked(_corner(table))


def _assigned(name: str) -> tuple[str, str, str]:
    """(key, "=", value) of ``key=value``, the key under its present name."""
    key, equals, value = name.partition("=")
    return MOVED.get(key, key), equals, value


def _head_text(name: str) -> str:
    """A column's head; ``key=value`` with the paper's symbol for the key, or without a key that the caption names."""
    key, equals, value = _assigned(name)
    if equals and key in SYMBOLS:
        return f"${SYMBOLS[key]}$={text(value)}"
    return _stacked(_plain_head(name))


def _plain_head(name: str) -> str:
    key, equals, value = _assigned(name)
    if equals and key in SYMBOLS:
        return f"mm={value}"
    if equals and key in QUANTITIES:
        return f"{QUANTITIES[key]}={value}"
    return value.replace("_", " ") if equals and key in NAMES else name


def _lines(name: str) -> list[str]:
    return textwrap.wrap(name, _WIDEST_HEAD, break_long_words=False, break_on_hyphens=False) or [""]


def _stacked(name: str) -> str:
    lines = list(map(text, _lines(name)))
    stacked = r" \\ ".join(lines)
    return rf"\shortstack{{{stacked}}}" if len(lines) > 1 else stacked


def _own_label(row: Row, block: Sequence[Row]) -> str:
    return row.label.partition(": ")[2] if _prefix(block) else row.label


def _cell(cell: Cell) -> str:
    shown = text(cell.text)
    return rf"\textbf{{{shown}}}" if cell.is_bold else shown


def _spread(row: tuple[tuple[str, int], ...]) -> list[str]:
    return [name for name, span in row for _ in range(span)]
