"""``python -m benchmarks`` (`make bench`): what a round costs, as ratios measured in one run on this machine."""

import shutil
import sys
from pathlib import Path

from fl_platform.cli import exit_code
from fl_platform.cli.parser import Parser

README = Path(__file__).resolve().parent / "README.md"


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="python -m benchmarks",
        description="Measure rounds, projection, memory and scaling on this machine, as ratios within one run.",
    )
    parser.add_argument(
        "--only",
        nargs="+",
        default=[],
        metavar="NAME",
        help="groups (rounds, projection, server, memory, ddp, scaling) or figures",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write a list of {name, value, unit, reach, ok}")
    parser.add_argument("--quick", action="store_true", help="fewer repeats and smaller sizes: about a minute")
    parser.add_argument("--write", action="store_true", help="put the figures into benchmarks/README.md")
    parser.add_argument(
        "--device",
        metavar="cpu|cuda|cuda:K",
        help="local training of W1 to W4 with both engines on this device instead, over its own arithmetic",
    )
    args = parser.parse_args(arguments)
    if args.device:
        return on_device(args.device, args.quick, args.json)

    from benchmarks import machine, suite, table

    description = machine.description()
    entries = suite.measure(args.only, args.quick, lambda line: print(line, file=sys.stderr, flush=True))
    print(table.as_text(entries))
    if args.json:
        table.write_json(entries, args.json)
    if args.write:
        table.refresh(README, entries, description)
        plot = Path("build") / "bench" / "scaling.png"
        if any(entry.name.startswith("scaling") for entry in entries):
            shutil.copyfile(plot, README.parent / plot.name)
    return 0


def on_device(device: str, quick: bool, place: Path | None) -> int:
    """Measure a device and print the figures."""
    from benchmarks import devices, table

    entries = devices.measure(device, quick)
    print(table.as_text(entries))
    if place:
        table.write_json(entries, place)
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
