"""``sweep prune`` and ``sweep restore``: what runs leave on the disk; and the arguments that name a sweep."""

import argparse
from pathlib import Path

from fl_platform.errors import UserError

SWEEP = "the YAML, the name of a packaged sweep such as table_mnist, or (except for run) the directory of a sweep"


def target_options(parser: argparse.ArgumentParser, help: str = SWEEP) -> None:
    """Declare the sweep and the keys it was launched with."""
    parser.add_argument("target", type=Path, metavar="SWEEP", help=help)
    parser.add_argument(
        "keys",
        nargs="*",
        metavar="key=value",
        help="keys that override every trial, or key=[A,B] to keep only some values of a swept key; "
        "they are part of the sweep's identity",
    )


def prune_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``sweep prune``."""
    target_options(parser, "the YAML, the name or the directory of a sweep, or a directory of runs, such as runs")
    parser.add_argument("--dry-run", action="store_true", help="say what would be dropped, and drop nothing")


def restore_options(parser: argparse.ArgumentParser) -> None:
    """Declare the options of ``sweep restore``."""
    parser.add_argument("archive", type=Path, metavar="ARCHIVE", help="such as reports/NAME/runs.parquet")
    parser.add_argument("--into", type=Path, default=Path("runs"), metavar="DIR", help="output.dir of the sweeps")


def prune_runs(args: argparse.Namespace) -> int:
    """Drop the checkpoints of runs that have their result, and say how much that was."""
    from fl_platform.runs.writing import bytes_text
    from fl_platform.sweeps.definition import OVERRIDES_COPY, find_sweep
    from fl_platform.sweeps.disk import prune, runs_in, runs_of_sweep
    from fl_platform.sweeps.ledger import Ledger

    if args.target.is_dir() and not args.keys and not (args.target / OVERRIDES_COPY).is_file():
        runs, where = list(runs_in(args.target)), args.target
        if not runs:
            raise UserError(f"{args.target} holds no runs; give a sweep, or the output.dir of runs")
    else:
        sweep, where = find_sweep(args.target, args.keys)
        with Ledger(where, read_only=True) as ledger:
            runs = list(runs_of_sweep(ledger, sweep.output))
    found = prune(runs, is_dry=args.dry_run)
    verb = "would be dropped" if args.dry_run else "dropped"
    print(f"{where}: {bytes_text(found.bytes)} of checkpoints of {found.runs} runs that have their result {verb}")
    if found.kept:
        print(f"{found.kept} runs that have not ended keep theirs")
    return 0


def restore_results(args: argparse.Namespace) -> int:
    """Write the results of an archive back as run directories."""
    from fl_platform.runs.directory import check_writable
    from fl_platform.sweeps.restore import restore

    check_writable(args.into, f"--into {args.into}")
    written, known = restore(args.archive, args.into)
    print(f"{args.archive}: {known} runs that ended, {written} of them new in {args.into}")
    return 0
