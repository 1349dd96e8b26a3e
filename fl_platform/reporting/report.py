"""Reports: a YAML file that says which tables and figures to make of which runs.

    title: Top accuracy on MNIST
    sources: [runs.parquet]                  # beside the file; or wandb:entity/project[/sweep]
    where: {data.name: mnist}
    select: best                             # for all tables and figures that know it; likewise seeds, ddof
    tables:
      - {kind: statistic, name: table1, value: top_accuracy, complete: true}
      - {kind: target, name: table2, unit: rounds}
    style: cvpr-page                         # of the figures; or cvpr-column, slides, notebook
    figures:
      - {kind: curves, name: worker, grouping: worker, where: {cohort_size: 10}}
    cases: {paper: {aggregation: uniform}}   # a further key `case` for rows, columns and where: the first that fits
    pages: [README.md]                       # beside the file; their parts marked with the name of a table are renewed

The keys of a table or figure are the arguments of the function that ``TABLES`` or ``FIGURES`` names for its kind.
"""

import inspect
import os
import re
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_origin

from fl_platform.errors import UserError, did_you_mean, unknown_name
from fl_platform.reporting import (
    ablations,
    canvas,
    choices,
    comparison,
    cost,
    figures,
    forgetting,
    inference,
    key_lines,
    overview,
    partition_figure,
    pivot,
    qp_errors,
    rank_figure,
    render,
    speed_up,
    tables,
)
from fl_platform.reporting.files import ARCHIVE, FILE, OWN_REPORTS, read_content
from fl_platform.reporting.generated import renewed
from fl_platform.reporting.latex import preview
from fl_platform.reporting.layout import Table
from fl_platform.runs.frames import Runs, select, with_cases
from fl_platform.runs.writing import write_atomically

TABLES: dict[str, Callable[..., Table]] = {
    "statistic": tables.statistic_table,
    "target": tables.target_table,
    "paper_table1": comparison.beside_table1,
    "paper_table2": comparison.beside_table2,
    "rules": choices.rule_table,
    "settings": choices.setting_table,
    "significance": comparison.significance_table,
    "paired": inference.paired_table,
    "aggregate": inference.aggregate_table,
    "ranks": inference.rank_table,
    "power": inference.power_table,
    "pivot": pivot.pivot_table,
    "overview": overview.overview_table,
    "absence": forgetting.absence_table,
    "speed_up": speed_up.speed_up_table,
    "qp_errors": qp_errors.error_table,
    "cost": cost.cost_table,
}
FIGURES: dict[str, Callable[..., Any]] = {
    "curves": figures.accuracy_curves,
    "key_curves": figures.key_curves,
    "forgetting": figures.forgetting_curves,
    "absence": forgetting.absence_figure,
    "speed_up": speed_up.speed_up_figure,
    "qp": figures.qp_activity,
    "cost": figures.cost_curves,
    "seeds": figures.seed_curves,
    "rank": rank_figure.rank_diagram,
    "heat_map": ablations.heat_map,
    "bars": ablations.bars,
    "key_lines": key_lines.key_lines,
    "partition": partition_figure.partition_bubbles,
}
_DEFAULTS = ("select", "seeds", "ddof")  # may be set once for the whole report
_NAME = re.compile(r"[a-z0-9][a-z0-9_-]*")
_PAGE = re.compile(r"[A-Za-z0-9][A-Za-z0-9_-]*\.md")


@dataclass(frozen=True)
class Item:
    """One table or figure: ``make`` called with the runs and ``options``."""

    name: str
    make: Callable[..., Any]
    options: dict[str, Any]
    where: dict[str, Any]
    title: str
    style: str = ""

    def figure(self, runs: Runs, style: str | None = None) -> Any:
        """The figure of the report's runs in a style; default: its own."""
        with canvas.using(style or self.style or canvas.DEFAULT_STYLE):
            return self.make_from(runs)

    def make_from(self, runs: Runs) -> Any:
        """The table or figure of the report's runs."""
        return self.make(select(runs, self.where), **self.options)

    def table(self, runs: Runs) -> Table:
        """The table of the report's runs, under the title that the report gives it."""
        made: Table = self.make_from(runs)
        return replace(made, title=self.title or made.title, name=self.name)


@dataclass(frozen=True)
class Report:
    """A ``report.yaml``: which runs, and the tables and figures made of them."""

    directory: Path
    title: str
    sources: list[str] = field(default_factory=lambda: [ARCHIVE])
    where: dict[str, Any] = field(default_factory=dict)
    tables: list[Item] = field(default_factory=list)
    figures: list[Item] = field(default_factory=list)
    pages: list[str] = field(default_factory=list)
    cases: dict[str, dict[str, Any]] = field(default_factory=dict)

    def selected(self, runs: Runs) -> Runs:
        """The runs that the report is about, with its cases, which ``where`` may name."""
        return select(with_cases(runs, self.cases) if self.cases else runs, self.where)

    def source_paths(self) -> list[str]:
        """Sources relative to the report's own directory; for a packaged report also to where it is built."""
        return [source if source.startswith("wandb:") else self._located(source) for source in self.sources]

    def _located(self, source: str) -> str:
        beside = os.path.normpath(self.directory / source)
        return beside if os.path.exists(beside) else os.path.normpath(OWN_REPORTS / self.directory.name / source)


def read_report(known: Mapping[str, Path], name: str) -> Report:
    """The report called ``name`` among ``known`` (name -> directory); raises ``UserError`` if it is not valid."""
    path, content = read_content(known, name)
    return _parse(path, content)


def _parse(path: Path, content: dict[str, Any]) -> Report:
    allowed = ("title", "sources", "where", "tables", "figures", "pages", "cases", "style", *_DEFAULTS)
    _check_keys(str(path), content, allowed)
    title = content.get("title", path.parent.name)
    sources = content.get("sources", [ARCHIVE])
    if not isinstance(sources, list) or not all(isinstance(source, str) for source in sources):
        raise UserError(f"{path}: sources={sources} is not a list of paths or wandb:entity/project")
    defaults = {name: content[name] for name in _DEFAULTS if name in content}
    parts = {}
    style = canvas.check_style(str(content.get("style", canvas.DEFAULT_STYLE)), f"{path}: style")
    for kind, makers in (("tables", TABLES), ("figures", FIGURES)):
        entries = content.get(kind) or []
        if not isinstance(entries, list):
            raise UserError(f"{path}: {kind}={entries} is not a list")
        parts[kind] = [
            make_item(f"{path}: {kind}[{place}]", entry, makers, defaults, style) for place, entry in enumerate(entries)
        ]
    names = [item.name for items in parts.values() for item in items]
    if len(set(names)) < len(names):
        raise UserError(
            f"{path}: the name {max(names, key=names.count)} is given twice; every table and figure needs its own"
        )
    pages = content.get("pages") or []
    if not isinstance(pages, list) or not all(isinstance(page, str) and _PAGE.fullmatch(page) for page in pages):
        raise UserError(f"{path}: pages={pages} is not a list of Markdown files beside the report")
    cases = content.get("cases") or {}
    if not isinstance(cases, dict) or not all(isinstance(name, str) for name in cases):
        raise UserError(f"{path}: cases={cases} is not a mapping of names to configuration keys and values")
    cases = {name: _where(f"{path}: cases: {name}", {"where": case}) for name, case in cases.items()}
    where = _where(str(path), content)
    return Report(path.parent, str(title), sources, where, parts["tables"], parts["figures"], pages, cases)


def make_item(
    place: str,
    entry: Any,
    makers: Mapping[str, Callable[..., Any]],
    defaults: dict[str, Any],
    style: str = canvas.DEFAULT_STYLE,
) -> Item:
    """A table or figure from its keys; ``place`` is where they stand. Raises ``UserError`` for keys that do not fit."""
    if not isinstance(entry, dict) or not isinstance(entry.get("kind"), str) or entry["kind"] not in makers:
        kind = entry.get("kind") if isinstance(entry, dict) else entry
        raise unknown_name(f"{place}: kind", str(kind), makers)
    make = makers[entry["kind"]]
    name = str(entry.get("name", entry["kind"]))
    if not _NAME.fullmatch(name):
        raise UserError(f"{place}: name={name} must be made of a-z, 0-9, - and _: files are named after it")
    parameters = {
        key: value for key, value in inspect.signature(make).parameters.items() if value.annotation not in (Runs, Path)
    }
    common = ("kind", "name", "where", "title", *(("style",) if makers is FIGURES else ()))
    given = {key: value for key, value in entry.items() if key not in common}
    _check_keys(place, given, [*parameters, *common])
    options = {key: value for key, value in defaults.items() if key in parameters} | given
    for key, parameter in parameters.items():
        if key in options:
            _check_type(f"{place}: {key}", options[key], parameter.annotation)
        elif parameter.default is inspect.Parameter.empty:
            raise UserError(f"{place}: {key} is missing; {entry['kind']} needs it")
    style = canvas.check_style(str(entry.get("style", style)), f"{place}: style")
    return Item(name, make, options, _where(place, entry), str(entry.get("title", "")), style)


def _where(place: str, entry: dict[str, Any]) -> dict[str, Any]:
    where = entry.get("where") or {}
    if not isinstance(where, dict) or not all(isinstance(key, str) for key in where):
        raise UserError(f"{place}: where={where} is not a mapping of configuration keys to values")
    return where


def _check_keys(place: str, given: Mapping[Any, Any], allowed: Any) -> None:
    for key in given:
        if key not in allowed:
            hint = did_you_mean(str(key), allowed) or f"; allowed: {', '.join(allowed)}"
            raise UserError(f"{place}: unknown key '{key}'{hint}")


def _check_type(place: str, value: Any, kind: Any) -> None:
    choices = get_args(kind)
    if choices and all(isinstance(choice, str) for choice in choices):
        if value not in choices:
            raise unknown_name(place, str(value), choices)
        return
    expected = (list,) if get_origin(kind) is list else tuple(get_origin(one) or one for one in choices or (kind,))
    expected = (*expected, int) if float in expected else expected
    if (isinstance(value, bool) and bool not in expected) or not isinstance(value, expected):
        names = " or ".join(sorted(one.__name__ for one in expected if one is not type(None)))
        raise UserError(f"{place}={value} has the wrong type; expected {names}")
    if isinstance(value, list) and not all(isinstance(one, str) for one in value):
        raise UserError(f"{place}={value} has the wrong type; expected a list of names")


def _text(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except (OSError, ValueError):
        raise UserError(f"{path} cannot be read; pages of {path.parent / FILE} names it") from None


@dataclass(frozen=True)
class Built:
    """What was made of a report."""

    paths: list[Path]
    tables: list[Table]


def build(report: Report, runs: Runs, out: Path, style: str | None = None) -> Built:
    """Write every table in every format, every figure, and `report.md` that shows them together.

    ``style`` replaces the style of every figure.
    """
    runs = report.selected(runs)
    page = [f"# {render.markdown_text(report.title)}\n"]
    texts: dict[Path, str] = {}
    parts: dict[str, Callable[[], str]] = {}
    made = [item.table(runs) for item in report.tables]
    for table in made:
        parts[table.name] = partial(render.markdown, table)
        texts |= {out / f"{table.name}{suffix}": renderer(table) for suffix, renderer in render.FORMATS.values()}
        page.append(render.markdown(table))
    for name in report.pages:
        texts[out / name] = renewed(str(report.directory / name), _text(report.directory / name), parts)
    if report.tables:
        texts[out / "preview.tex"] = preview(
            [item.name for item in report.tables], [item.name for item in report.figures]
        )
    drawn = {item.name: item.figure(runs, style) for item in report.figures}
    out.mkdir(parents=True, exist_ok=True)  # not before all is made: what is refused leaves nothing
    for path, text in texts.items():
        write_atomically(path, text)
    written = [*texts]
    for item in report.figures:
        written += canvas.save(drawn.pop(item.name), out / item.name)
        page.append(f"![{render.markdown_text(item.title or item.name)}]({item.name}.png)\n")
        if left_out := figures.not_drawn(select(runs, item.where)):
            page.append(f"{left_out}\n")
    if report.figures:
        page.append("Lines are means over seeds; bands and whiskers are one standard deviation (ddof=1).\n")
    write_atomically(out / "report.md", "\n".join(page))
    return Built([*written, out / "report.md"], made)
