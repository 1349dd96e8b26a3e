"""``doctor``: report what this machine has and what is missing."""

import dataclasses
import json
import sys
from pathlib import Path

from fl_platform.cli import checks
from fl_platform.cli.checks import Finding
from fl_platform.cli.parser import Parser
from fl_platform.errors import UserError

REPORT = "device_report"
COLOURS = {checks.OK: "green", checks.MISSING: "yellow", checks.BROKEN: "red"}


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(
        prog="fl_platform doctor",
        description="Look at Python, torch, W&B, data sets and the output directory, without network. "
        "Exit code 1 if something required is broken.",
    )
    parser.add_argument("--json", action="store_true", help="print the findings as JSON")
    parser.add_argument(
        "keys", nargs="*", metavar="key=value", help="configuration to check, such as data.root=DIR or output.dir=DIR"
    )
    parser.add_argument(
        "--device",
        metavar="cpu|cuda|cuda:K",
        help="run two rounds of every method on this device with both engines instead, compare them with the CPU, "
        f"take times, and write {REPORT}.md and .json",
    )
    options = parser.parse_args(args)
    if options.device:
        return examine_device(options.device, options.keys)
    findings = list(checks.examine(options.keys))
    is_ok = all(finding.status != checks.BROKEN for finding in findings)
    if options.json:
        print(json.dumps({"ok": is_ok, "findings": [dataclasses.asdict(finding) for finding in findings]}, indent=2))
    elif sys.stdout.isatty() and checks.import_failure("rich") is None:
        print_table(findings)
    else:
        print_lines(findings)
    return 0 if is_ok else 1


def examine_device(device: str, keys: list[str]) -> int:
    """Write the report of a device into the working directory; returns 0 where every method agrees with the CPU."""
    from fl_platform.federation import device_check
    from fl_platform.runs.writing import write_atomically

    if keys:
        raise UserError(f"doctor --device {device} with {keys[0]}: its runs are fixed; leave keys out")
    report = device_check.examine_device(device)
    write_atomically(Path(f"{REPORT}.md"), report.markdown())
    write_atomically(Path(f"{REPORT}.json"), json.dumps(report.as_dict(), indent=1) + "\n")
    agreeing = sum(agreement.is_ok for agreement in report.agreements)
    print(f"{agreeing} of {len(report.agreements)} comparisons agree with the CPU; see {REPORT}.md and {REPORT}.json")
    return 0 if report.is_ok else 1


def print_lines(findings: list[Finding]) -> None:
    """Print one line per finding, for pipes and logs."""
    width = max(len(finding.part) for finding in findings)
    for finding in findings:
        advice = f"; {finding.advice}" if finding.advice else ""
        print(f"{finding.status:8}{finding.part:{width}}  {finding.detail}{advice}")


def print_table(findings: list[Finding]) -> None:
    """Print a coloured table, for a terminal."""
    from rich.console import Console
    from rich.markup import escape
    from rich.table import Column, Table

    table = Table(*(Column(name, overflow="fold") for name in ("", "part", "found", "what to do")), box=None)
    for finding in findings:
        colour = COLOURS[finding.status]
        texts = (finding.part, finding.detail, finding.advice)
        table.add_row(f"[{colour}]{finding.status}[/]", *map(escape, texts))
    Console().print(table)
