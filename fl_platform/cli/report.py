"""``report``: list the reports, build one, or print a free table of any runs."""

import argparse
import sys
from pathlib import Path
from typing import TYPE_CHECKING

from fl_platform.cli.conditions import parse_conditions
from fl_platform.cli.parser import Parser
from fl_platform.errors import UserError, sentence, visible
from fl_platform.paper.packaged import packaged
from fl_platform.reporting.files import ARCHIVE, FILE, OWN_REPORTS, list_reports, title_of
from fl_platform.reporting.selection import SELECTIONS

if TYPE_CHECKING:
    from fl_platform.reporting.report import Report

POWER = "power"
"""``report power``: not a report, a table of the seeds that differences would need."""
DEMO = "demo"
"""The packaged report whose runs `fl_platform demo` makes."""

_EPILOG = """examples:
  report                                                list the packaged reports and those below ./reports
  report mnist                                          build the packaged report in ./reports/mnist
  report table1_mnist --source runs --archive           build one from new logs and keep them beside it
  report demo --html                                    and one self-contained page, report.html
  report --source runs --rows algorithm.name --columns data.dirichlet_omega,cohort_size --where data.name=mnist
  report power --source runs --reference fedavg         how many seeds the observed differences would need
"""


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    options = _parser().parse_args(args)
    if options.rows is not None:
        return _print_pivot(options)
    if options.name == POWER:
        return _print_power(options)
    for flag in ("difference", "power", "reference"):
        if getattr(options, flag) is not None:
            raise UserError(f"--{flag} belongs to `report power`, not to {options.name or 'a list of reports'}")
    if options.name is None:
        return _print_reports()
    return _build(options)


def _parser() -> argparse.ArgumentParser:
    parser = Parser(
        prog="fl_platform report",
        description="Tables and figures from logs.",
        epilog=_EPILOG,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument(
        "name",
        nargs="?",
        help="a directory below ./reports with a report.yaml, or a packaged report; without it, list them",
    )
    parser.add_argument(
        "--source", nargs="+", help="output.dir of runs, .wandb files, an archive, or wandb:entity/project[/sweep]"
    )
    parser.add_argument("--out", type=Path, help="where a report is written; default: ./reports/NAME")
    parser.add_argument("--archive", action="store_true", help=f"keep the report's runs beside it in {ARCHIVE}")
    parser.add_argument("--html", action="store_true", help="also write report.html: one file to send to a colleague")
    parser.add_argument(
        "--style", help="of all figures: cvpr-column | cvpr-page | slides | notebook; default: as the report says"
    )
    parser.add_argument("--rows", help="free table: configuration keys of the rows, separated by commas")
    parser.add_argument("--columns", default="", help="free table: configuration keys of the columns")
    parser.add_argument("--value", default="top_accuracy", help="free table, power: a measure or a key of the summary")
    parser.add_argument("--reference", help="power: the method that others are compared with (default fedavg)")
    parser.add_argument("--difference", type=float, help="power: a difference to find, in the units of tables")
    parser.add_argument("--power", type=float, help="power: with which probability (default 0.8)")
    parser.add_argument("--select", choices=SELECTIONS, default="only", help="power: of several settings a cell")
    parser.add_argument("--where", action="append", default=[], help="key=value: only runs with this configuration")
    parser.add_argument(
        "--format", default="terminal", help="free table, power: terminal | markdown | latex | csv | html"
    )
    return parser


def _known_reports() -> dict[str, Path]:
    """The packaged reports and those below ./reports, which win over packaged ones of the same name."""
    return dict(sorted({**list_reports(packaged("reports")), **list_reports(OWN_REPORTS)}.items()))


def _print_reports() -> int:
    known = _known_reports()
    for name in known:
        print(f"{visible(name):24} {visible(title_of(known, name))}")
    return 0


def _print_pivot(options: argparse.Namespace) -> int:
    if options.name is not None:
        raise UserError(f"--rows makes a free table; it does not go with the report {options.name}")
    if not options.source:
        raise UserError("--rows needs --source: the output.dir of runs, an archive, or wandb:entity/project")
    from fl_platform.reporting import pivot, render
    from fl_platform.runs.frames import load, select

    runs = select(load(options.source), parse_conditions(options.where))
    table = pivot.pivot_table(runs, _keys("--rows", options.rows), _keys("--columns", options.columns), options.value)
    sys.stdout.write(render.render(table, options.format))
    for warning in runs.warnings:
        print(sentence(warning), file=sys.stderr)
    return 0


def _print_power(options: argparse.Namespace) -> int:
    if POWER in _known_reports():
        raise UserError(
            f"{OWN_REPORTS / POWER}: `report {POWER}` is the table of seeds that differences need; rename it"
        )
    if not options.source:
        raise UserError("report power needs --source: the output.dir of runs, an archive, or wandb:entity/project")
    from fl_platform.reporting import inference, render
    from fl_platform.runs.frames import load, select

    runs = select(load(options.source), parse_conditions(options.where))
    table = inference.power_table(
        runs,
        options.reference or "fedavg",
        options.value,
        options.select,
        options.difference,
        0.8 if options.power is None else options.power,
    )
    sys.stdout.write(render.render(table, options.format))
    return 0


def _build(options: argparse.Namespace) -> int:
    from fl_platform.reporting import canvas
    from fl_platform.reporting.report import build, read_report
    from fl_platform.runs import archive
    from fl_platform.runs.frames import select, to_frames
    from fl_platform.runs.sources import read
    from fl_platform.runs.status import RunStatus

    report = read_report(_known_reports(), options.name)
    if options.archive and report.directory.parent != OWN_REPORTS:
        raise UserError(
            f"--archive needs a report of your own: copy {report.directory / FILE} to {OWN_REPORTS / options.name}"
        )
    style = canvas.check_style(options.style, "--style") if options.style else None
    records = read(options.source or _present_sources(report))
    if options.archive:
        records = [one for one in records if one.status is not RunStatus.RUNNING]  # an archive does not change
    runs = select(to_frames(records), parse_conditions(options.where))
    if options.archive:
        kept = set(report.selected(runs).runs["run_id"])  # sources may hold other runs, too
        archive.write([one for one in records if one.run_id in kept], report.directory / ARCHIVE)
        records = archive.read(report.directory / ARCHIVE)  # whose metrics are rounded: what is built later is the same
        runs = to_frames(records)
    for warning in runs.warnings:
        print(f"warning: {visible(warning)}", file=sys.stderr)
    out = options.out or OWN_REPORTS / options.name
    built = build(report, runs, out, style)
    for path in built.paths:
        print(path)
    if options.html:
        from fl_platform.reporting.page import write_page

        print(write_page(report, built.tables, runs, records, out))
    return 0


def _present_sources(report: "Report") -> list[str]:
    """The sources of a report; raises ``UserError`` that says what to do where one is not there."""
    paths = report.source_paths()
    for path in paths:
        if not path.startswith("wandb:") and not Path(path).exists():
            is_demo = report.directory == packaged("reports") / DEMO
            todo = "run `fl_platform demo` first" if is_demo else "make its runs first, or give others with --source"
            raise UserError(f"report {report.directory.name} has no runs yet: there is no {path}; {todo}")
    return paths


def _keys(flag: str, text: str) -> list[str]:
    keys = [key.strip() for key in text.split(",") if key.strip()]
    if flag == "--rows" and not keys:
        raise UserError("--rows is empty; give at least one configuration key, such as algorithm.name")
    return keys
