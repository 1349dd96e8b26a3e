"""``figure``: one figure of any runs, without a report.yaml."""

import argparse
import inspect
import re
import sys
from pathlib import Path

from fl_platform.cli.conditions import parse_conditions, parse_values
from fl_platform.cli.parser import Parser
from fl_platform.errors import UserError, sentence, unknown_name
from fl_platform.reporting import canvas
from fl_platform.reporting.figures import not_drawn
from fl_platform.reporting.report import FIGURES, make_item
from fl_platform.runs.frames import load, select

_EPILOG = """examples:
  figure curves --source runs --out fig.pdf                          methods, a panel per scenario
  figure curves --source runs --out lr.pdf by=local_lr smooth=5      a line per value of a swept key
  figure heatmap --source runs --out b.pdf rows=algorithm.momentum_decay columns=algorithm.memory_decay
  figure rank --source reports/mnist/runs.parquet --where num_rounds=500 --out rank.pdf --style cvpr-column select=best
"""
_INSTEAD = {
    "kind": "write the kind behind `figure`",
    "name": "--out names the file",
    "title": "only a report.yaml gives figures titles",
    "where": "use --where key=value",
}
_KEY = re.compile(r"[a-z_]+=")
KINDS = {kind.replace("_", "") if kind == "heat_map" else kind: kind for kind in FIGURES}
"""What the command calls the kinds of figures."""


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    options = _parser().parse_intermixed_args(args)
    if options.kind not in (*KINDS, *FIGURES):
        raise unknown_name("figure", options.kind, KINDS)
    form = canvas.format_of(options.out)
    _return_keys(options)
    keys = parse_values(options.keys, "key=value")
    for name in {"kind", "name", "title", "where"} & keys.keys():  # of an entry of report.yaml
        raise UserError(f"{name}={keys[name]} is no key of a figure; {_INSTEAD[name]}")
    entry = {**keys, "kind": KINDS.get(options.kind, options.kind), "name": "figure"}
    if "key" in _parameters(entry["kind"]) and "by" in entry:
        entry["key"] = entry.pop("by")
    item = make_item(f"figure {options.kind}", entry, FIGURES, {}, canvas.check_style(options.style, "--style"))
    runs = select(load(options.source), parse_conditions(options.where))
    figure = item.figure(runs)
    left_out = "" if item.make is FIGURES["partition"] else not_drawn(runs)
    for warning in filter(None, (left_out, *runs.warnings)):
        print(sentence(warning), file=sys.stderr)
    for path in canvas.save(figure, options.out.with_suffix(""), (form,)):
        print(path)
    return 0


def _return_keys(options: argparse.Namespace) -> None:
    """Move what ``--source A key=value`` took for a further source to the keys of the figure."""
    taken = [one for one in options.source if _KEY.match(one) and not Path(one).exists()]
    options.source = [one for one in options.source if one not in taken]
    options.keys += taken
    if not options.source:
        raise UserError(
            f"--source {' '.join(taken)} is no source of runs; give it a directory, a .wandb file or an archive"
        )


def _parameters(kind: str) -> list[str]:
    return list(inspect.signature(FIGURES[kind]).parameters)


def _parser() -> argparse.ArgumentParser:
    kinds = "\n".join(f"  {name:11} {_keys_text(kind)}" for name, kind in KINDS.items())
    parser = Parser(
        prog="fl_platform figure",
        description="One figure of any runs, as PNG, SVG or PDF; docs/reports.md describes the kinds.",
        epilog=f"kinds and their keys:\n{kinds}\n{_EPILOG}",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("kind", help=" | ".join(KINDS))
    parser.add_argument(
        "keys", nargs="*", metavar="key=value", help="keys of the figure, such as smooth=10 select=best"
    )
    parser.add_argument(
        "--source",
        nargs="+",
        default=["runs"],
        help="output.dir of runs, .wandb files, an archive, or wandb:entity/project[/sweep] (default: runs)",
    )
    parser.add_argument("--where", action="append", default=[], help="key=value: only runs with this configuration")
    parser.add_argument("--out", type=Path, required=True, help="the file: .png, .svg or .pdf")
    parser.add_argument(
        "--style", default=canvas.DEFAULT_STYLE, help=f"{' | '.join(canvas.STYLES)} (default: {canvas.DEFAULT_STYLE})"
    )
    return parser


def _keys_text(kind: str) -> str:
    given = list(inspect.signature(FIGURES[kind]).parameters.values())[1:]
    return " ".join(one.name if one.default is one.empty else f"[{one.name}={one.default}]" for one in given)
