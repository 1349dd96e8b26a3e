"""``dashboard``: serve a live web page of sweeps and runs on this machine."""

import argparse
from pathlib import Path

from fl_platform.cli.parser import Parser


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(
        prog="fl_platform dashboard",
        description="Show sweeps and runs live in a browser, from the files below a directory; needs no network.",
        epilog="example: fl_platform dashboard runs/demo --port 8800 --no-browser",
    )
    parser.add_argument(
        "path",
        nargs="?",
        type=Path,
        default=Path("runs"),
        help="output.dir of some runs, or a file of archived runs (default: runs)",
    )
    parser.add_argument("--port", type=_port, default=8765, metavar="N", help="default 8765; 0 takes any free one")
    parser.add_argument("--no-browser", action="store_true", help="do not open a browser")
    options = parser.parse_args(args)

    from fl_platform.dashboard.server import serve
    from fl_platform.dashboard.store import Store

    serve(Store(options.path), options.port, not options.no_browser)
    return 0


def _port(text: str) -> int:
    if not (text.isascii() and text.isdigit() and int(text) < 65536):
        raise argparse.ArgumentTypeError(f"{text} is not a port; it must be a whole number from 0 to 65535")
    return int(text)
