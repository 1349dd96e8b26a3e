"""A table as Markdown, LaTeX, CSV, HTML or terminal text. All text is data: every format escapes it."""

import html
import io
import re
from collections.abc import Callable

import pandas as pd
from rich.console import Console
from rich.table import Table as RichTable
from rich.text import Text

from fl_platform.errors import unknown_name, visible
from fl_platform.reporting.latex import latex
from fl_platform.reporting.layout import Cell, Table

# Punctuation that means something in a table cell, and the beginnings of bare links (www., https://).
_MARKDOWN_SPECIAL = re.compile(r"[\\`*_\[\]<>|~$@&#!]|(?<=www)\.|:(?=//)", re.IGNORECASE)


def markdown_text(text: object) -> str:
    """Text that Markdown shows as it is."""
    return _MARKDOWN_SPECIAL.sub(r"\\\g<0>", visible(text))


def markdown(table: Table) -> str:
    """A GitHub table; header rows are joined, since Markdown has only one."""
    lines = [f"### {markdown_text(table.title)}", ""]
    if table.header:
        names = [", ".join(parts) for parts in zip(*(spread(row) for row in table.header), strict=True)]
        lines.append("| " + " | ".join(map(markdown_text, (table.corner, *names))) + " |")
        lines.append("|---" * (len(names) + 1) + "|")
        for block in table.blocks:
            lines += [
                "| " + " | ".join((markdown_text(row.label), *map(_markdown_cell, row.cells))) + " |" for row in block
            ]
        lines.append("")
    return "\n".join(lines + [f"- {markdown_text(note)}" for note in table.notes]) + "\n"


def spread(row: tuple[tuple[str, int], ...]) -> list[str]:
    """One heading per column, of headings that span several."""
    return [text for text, span in row for _ in range(span)]


def _markdown_cell(cell: Cell) -> str:
    text = markdown_text(cell.text)
    return f"**{text}**" if cell.is_bold and text else text


def page(table: Table) -> str:
    """A standalone HTML page without scripts."""
    rows = []
    for index, row in enumerate(table.header):
        corner = f'<th rowspan="{len(table.header)}">{_html_text(table.corner)}</th>' if index == 0 else ""
        heads = "".join(f'<th colspan="{span}">{_html_text(text)}</th>' for text, span in row)
        rows.append(f"<tr>{corner}{heads}</tr>")
    bodies = []
    for block in table.blocks:
        lines = (f"<tr><th>{_html_text(row.label)}</th>{''.join(map(_html_cell, row.cells))}</tr>" for row in block)
        bodies.append("<tbody>\n" + "\n".join(lines) + "\n</tbody>")
    notes = "\n".join(f"<li>{_html_text(note)}</li>" for note in table.notes)
    return _PAGE.format(
        title=_html_text(table.title), css=_CSS, head="\n".join(rows), body="\n".join(bodies), notes=notes
    )


_PAGE = """<!doctype html>
<html lang="en">
<head>
<meta charset="utf-8">
<title>{title}</title>
<style>{css}</style>
</head>
<body>
<table>
<caption>{title}</caption>
<thead>
{head}
</thead>
{body}
</table>
<ul>
{notes}
</ul>
</body>
</html>
"""

_CSS = (
    "body{font:14px/1.4 system-ui,sans-serif;margin:2em}"
    "table{border-collapse:collapse;font-variant-numeric:tabular-nums}"
    "caption{text-align:left;font-weight:bold;margin-bottom:.5em}th,td{padding:.2em .7em;text-align:center}"
    "tbody th{text-align:left;font-weight:normal}tbody,thead{border-top:1px solid}table{border-bottom:1px solid}"
)


def _html_text(text: object) -> str:
    return html.escape(visible(text), quote=True)


def _html_cell(cell: Cell) -> str:
    text = _html_text(cell.text)
    return f"<td><b>{text}</b></td>" if cell.is_bold else f"<td>{text}</td>"


def csv(table: Table) -> str:
    """The tidy numbers, unrounded. A text that a spreadsheet would run as a formula is quoted with an apostrophe."""
    frame = table.numbers.copy()
    for name in frame.columns:
        if not pd.api.types.is_numeric_dtype(frame[name]) and not pd.api.types.is_bool_dtype(frame[name]):
            frame[name] = frame[name].map(lambda value: _csv_text(value) if isinstance(value, str) else value)
    return frame.to_csv(index=False, lineterminator="\n")


def _csv_text(text: str) -> str:
    text = visible(text)
    return f"'{text}" if text.startswith(("=", "+", "-", "@")) else text


_TERMINAL_WIDTH = 10_000  # nothing is cut: a wide table wraps in the terminal, or is read with `less -S`


def terminal(table: Table) -> str:
    """Text for a terminal or a log; an asterisk stands for bold."""
    rich = RichTable(title=Text(visible(table.title)), title_justify="left")
    rich.add_column(Text(visible(table.corner)))
    names = ["\n".join(map(visible, parts)) for parts in zip(*map(spread, table.header), strict=True)]
    for name in names:
        rich.add_column(Text(name), justify="right")
    for block in table.blocks:
        for row in block:
            cells = [Text(visible(cell.text) + ("*" if cell.is_bold else "")) for cell in row.cells]
            rich.add_row(Text(visible(row.label)), *cells, end_section=row is block[-1])
    stream = io.StringIO()
    console = Console(file=stream, width=_TERMINAL_WIDTH, color_system=None, highlight=False)
    console.print(rich)
    for note in table.notes:
        console.print(Text(re.sub(r"^Bold:", "*:", visible(note))))
    return "\n".join(line.rstrip() for line in stream.getvalue().splitlines()) + "\n"


FORMATS: dict[str, tuple[str, Callable[[Table], str]]] = {
    "markdown": (".md", markdown),
    "latex": (".tex", latex),
    "csv": (".csv", csv),
    "html": (".html", page),
    "terminal": (".txt", terminal),
}
"""Name -> (file suffix, renderer)."""


def render(table: Table, form: str) -> str:
    """The table in a format, such as ``markdown`` or ``latex``; UserError for an unknown one."""
    if form not in FORMATS:
        raise unknown_name("format", form, FORMATS)
    return FORMATS[form][1](table)
