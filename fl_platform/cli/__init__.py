"""The command line: parse, call, exit code."""

import argparse
import importlib
import sys
from collections.abc import Callable

from fl_platform.cli.parser import COMMANDS, Parser
from fl_platform.errors import UserError, did_you_mean, sentence


def main(argv: list[str] | None = None) -> int:
    return exit_code(dispatch, sys.argv[1:] if argv is None else argv)


def exit_code(command: Callable[[list[str]], int], words: list[str]) -> int:
    """Run a command; bad input, Ctrl-C and what the file system refuses end in one sentence and an exit code."""
    try:
        return command(words)
    except UserError as error:
        print(f"fl_platform: {sentence(error)}", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        print("fl_platform: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe, such as `head`, went away
        sys.stderr.close()
        return 1
    except OSError as error:  # a name that is too long, a directory that may not be read, a full disk
        place = "" if error.filename is None else f"{error.filename}: "
        print(f"fl_platform: {sentence(f'{place}{error.strerror or error}')}", file=sys.stderr)
        return 2


def dispatch(words: list[str]) -> int:
    parser = Parser(
        prog="fl_platform",
        description="Reproducible federated-learning experiments.",
        epilog="\n".join(f"  {name:8} {text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("command", help="one of the commands below; each has its own --help")
    if not words or words[0].startswith("-"):
        parser.parse_args(words or ["--help"])
    name, *rest = words
    if name not in COMMANDS:
        raise UserError(f"unknown command '{name}'; there is {', '.join(COMMANDS)}{did_you_mean(name, COMMANDS)}")
    return int(importlib.import_module(f"fl_platform.cli.{name}").main(rest))
