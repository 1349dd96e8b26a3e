"""The command line: parse, call, exit code.

Exit codes of every command:

- 0: done.
- 1: something that was asked for failed: a trial of a sweep, a check of ``doctor``, the user's own code in a round; or
  the reader of a pipe left.
- 2: bad input, or a place that cannot be read or written; one sentence on stderr says what to change.
- 3: the run diverged.
- 4: no space left on the disk; the same command goes on once there is space. A sweep stops on it instead of
  counting the trial as failed.
- 130: interrupted; the same command goes on.
"""

import argparse
import importlib
import sys
from collections.abc import Callable

import fl_platform
from fl_platform.cli.parser import COMMANDS, Parser
from fl_platform.errors import NO_SPACE_LEFT, DiskFull, OutOfMemory, UserCodeError, UserError, did_you_mean, sentence


def main(argv: list[str] | None = None) -> int:
    """Run the command line ``argv``, by default that of this process; returns its exit code."""
    return exit_code(dispatch, sys.argv[1:] if argv is None else argv)


def exit_code(command: Callable[[list[str]], int], args: list[str]) -> int:
    """Run a command; bad input, Ctrl-C and what the file system refuses end in one sentence and an exit code."""
    try:
        return command(args)
    except UserError as error:
        print(f"fl_platform: {sentence(error)}", file=sys.stderr)
        return error.exit_code
    except UserCodeError as error:
        print(f"{error.trace}fl_platform: {sentence(error)}", file=sys.stderr)
        return error.exit_code
    except OutOfMemory as error:
        print(f"fl_platform: {sentence(error)}", file=sys.stderr)
        return error.exit_code
    except KeyboardInterrupt:
        print("fl_platform: interrupted", file=sys.stderr)
        return 130
    except BrokenPipeError:  # the reader of a pipe, such as `head`, went away
        sys.stderr.close()
        return 1
    except OSError as error:  # a name that is too long, a directory that may not be read, a full disk
        place = "" if error.filename is None else f"{error.filename}: "
        print(f"fl_platform: {sentence(f'{place}{error.strerror or error}')}", file=sys.stderr)
        return DiskFull.exit_code if error.errno in NO_SPACE_LEFT else UserError.exit_code


def dispatch(args: list[str]) -> int:
    """Call the command that the first argument names; raises ``UserError`` where there is none of that name."""
    parser = Parser(
        prog="fl_platform",
        description="Reproducible federated-learning experiments.",
        epilog="\n".join(f"  {name:8} {text}" for name, text in COMMANDS.items()),
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"fl_platform {fl_platform.__version__}")
    parser.add_argument("command", help="one of the commands below; each has its own --help")
    if not args or args[0].startswith("-"):
        parser.parse_args(args or ["--help"])
    name, *rest = args
    if name not in COMMANDS:
        raise UserError(f"unknown command '{name}'; there is {', '.join(COMMANDS)}{did_you_mean(name, COMMANDS)}")
    return int(importlib.import_module(f"fl_platform.cli.{name}").main(rest))
