"""``doctor``: report what this machine has and what is missing."""

import dataclasses
import json
import sys
from pathlib import Path

from fl_platform.cli import checks
from fl_platform.cli.checks import Finding
from fl_platform.cli.parser import Parser
from fl_platform.cli.start import quick_imports
from fl_platform.errors import UserError, unknown_name

REPORT = "device_report"
COLOURS = {checks.OK: 32, checks.MISSING: 33, checks.BROKEN: 31}
"""Green, yellow and red, as terminals number them."""
PART_WIDTH = 20


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
    parser.add_argument(
        "--methods", metavar="NAME,NAME", help="with --device: these methods only; without it every one, some minutes"
    )
    options = parser.parse_args(args)
    if options.methods and not options.device:
        raise UserError(f"--methods {options.methods} needs --device: cpu, cuda or cuda:K")
    if options.device:
        return examine_device(options.device, options.methods, options.keys)
    findings = []
    with quick_imports():
        for finding in checks.examine(options.keys):
            findings.append(finding)
            if not options.json:
                print(line(finding, is_coloured=sys.stdout.isatty()), flush=True)
    is_ok = all(finding.status != checks.BROKEN for finding in findings)
    if options.json:
        print(json.dumps({"ok": is_ok, "findings": [dataclasses.asdict(finding) for finding in findings]}, indent=2))
    return 0 if is_ok else 1


def examine_device(device: str, methods: str | None, keys: list[str]) -> int:
    """Write the report of a device into the working directory; returns 0 where every method agrees with the CPU."""
    from fl_platform.config.registry import ALGORITHMS
    from fl_platform.federation import device_check
    from fl_platform.runs.writing import write_atomically

    if keys:
        raise UserError(f"doctor --device {device} with {keys[0]}: its runs are fixed; leave keys out")
    names = [name.strip() for name in methods.split(",")] if methods else None
    for name in names or ():
        if name not in ALGORITHMS:
            raise unknown_name("--methods", name, ALGORITHMS.names())
    report = device_check.examine_device(device, names, lambda line: print(line, file=sys.stderr, flush=True))
    write_atomically(Path(f"{REPORT}.md"), report.markdown())
    write_atomically(Path(f"{REPORT}.json"), json.dumps(report.as_dict(), indent=1) + "\n")
    agreeing = sum(agreement.is_ok for agreement in report.agreements)
    print(f"{agreeing} of {len(report.agreements)} comparisons agree with the CPU; see {REPORT}.md and {REPORT}.json")
    return 0 if report.is_ok else 1


def line(finding: Finding, *, is_coloured: bool) -> str:
    """One finding as it is printed; the status is coloured for a terminal."""
    status = f"{finding.status:8}"
    shown = f"\033[{COLOURS[finding.status]}m{status}\033[0m" if is_coloured else status
    advice = f"; {finding.advice}" if finding.advice else ""
    return f"{shown}{finding.part:{PART_WIDTH}}  {finding.detail}{advice}"
