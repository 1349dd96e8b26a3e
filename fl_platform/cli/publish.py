"""``publish``: create a saved view and a report in a W&B project, or save their definitions as files."""

import re
import sys
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from fl_platform.cli.parser import Parser
from fl_platform.config.targets import parse_target
from fl_platform.errors import UserError, visible

if TYPE_CHECKING:
    from fl_platform.runs.frames import Runs

OFFLINE_OUT = Path("published")
_PART = re.compile(r"[\w.-]+")


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(
        prog="fl_platform publish",
        description="Create a saved view and a report in a W&B project. Without a login, save what would be created.",
        epilog="example: fl_platform publish my-team/gradma --source runs",
    )
    parser.add_argument("address", metavar="entity/project", help="the W&B project that the runs were synced to")
    parser.add_argument(
        "--source",
        nargs="+",
        default=["runs"],
        help="runs of the tables: output.dir, archives or wandb:entity/project (default: runs)",
    )
    parser.add_argument("--title", default="Federated learning: results", help="title of the report")
    parser.add_argument(
        "--offline-out", type=Path, metavar="DIR", help=f"only save the definitions; without a login: {OFFLINE_OUT}"
    )
    options = parser.parse_args(args)
    entity, project = _split(options.address)
    from fl_platform.runs.frames import load
    from fl_platform.tracking import workspace

    runs = load(options.source)

    plan = workspace.Plan(entity, project, options.title, markdown_tables(runs), target_keys(runs))
    out = options.offline_out
    if out is None and not workspace.is_logged_in():
        print("not logged in to W&B (`wandb login`): nothing is sent", file=sys.stderr)
        out = OFFLINE_OUT
    if out is None:
        for address in workspace.publish(plan):
            print(address)
        return 0
    panels = {name: len(found) for name, found in workspace.sections(plan.targets).items() if found}
    print(f"would create in {entity}/{project}:")
    print(f"  the saved view '{workspace.NAME}' with {', '.join(f'{name} ({n} panels)' for name, n in panels.items())}")
    print(f"  the report '{visible(options.title)}' with {len(plan.tables)} tables and the same panels")
    for path in workspace.save_definition(plan, out):
        print(path)
    return 0


def _split(address: str) -> tuple[str, str]:
    entity, _, project = address.partition("/")
    if not _PART.fullmatch(entity) or not _PART.fullmatch(project):
        raise UserError(f"{address} is not of the form entity/project")
    return entity, project


def markdown_tables(runs: "Runs") -> list[str]:
    """Tables 1 and 2 and the forgetting table as Markdown; a table that cannot be made is skipped with a message."""
    from fl_platform.reporting import render, tables

    makers = (
        partial(tables.statistic_table, value="top_accuracy"),
        partial(tables.target_table, unit="rounds"),
        partial(tables.statistic_table, value="forgetting"),
    )
    texts = []
    for make in makers:
        try:
            texts.append(render.markdown(make(runs, select="best")))
        except UserError as error:
            print(f"a table is left out: {error}", file=sys.stderr)
    return texts


def target_keys(runs: "Runs") -> list[str]:
    """The summary keys that hold the rounds to a target, accuracies and the lowest target first."""
    names = [name.removeprefix("summary.") for name in runs.runs.columns]
    return sorted((name for name in names if re.fullmatch(r"to_target/[^/]+/rounds", name)), key=_target)


def _target(key: str) -> tuple[str, float]:
    """Sorting key: by metric, accuracies first, then by value."""
    target = parse_target(key.split("/")[1])
    return target.metric, target.value
