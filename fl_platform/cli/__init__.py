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
import contextlib
import importlib
import io
import os
import select
import signal
import sys
from collections.abc import Callable
from types import FrameType

import fl_platform
from fl_platform.cli import deferred
from fl_platform.cli.parser import COMMANDS, Parser, ParserExit
from fl_platform.errors import NO_SPACE_LEFT, DiskFull, OutOfMemory, UserCodeError, UserError, did_you_mean, sentence
from fl_platform.runs.signals import ending_signals, leave_terminal


def main(argv: list[str] | None = None) -> int:
    """Run the command line ``argv``, by default that of this process; returns its exit code."""
    if argv is None:
        prepare_process()
    return exit_code(dispatch, sys.argv[1:] if argv is None else argv)


def prepare_process() -> None:
    """Let SIGTERM and SIGHUP end a command as Ctrl-C does, and print ? for what the encoding of the output lacks.

    Lightning, which the first command of a version imports to list what there is, comes without what is not used.
    """
    deferred.install()
    for number in ending_signals():
        signal.signal(number, _interrupt)
    for stream in (sys.stdout, sys.stderr):
        if isinstance(stream, io.TextIOWrapper) and stream.encoding.lower() not in ("utf-8", "utf8"):
            stream.reconfigure(errors="replace")


def _interrupt(number: int, frame: FrameType | None) -> None:
    if number == signal.SIGHUP:
        leave_terminal()
    raise KeyboardInterrupt


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
    except BrokenPipeError:
        if not _is_output_gone():
            raise  # another pipe: not the user's doing
        sys.stderr.close()
        return 1
    except OSError as error:  # a name that is too long, a directory that may not be read, a full disk
        place = "" if error.filename is None else f"{error.filename}: "
        print(f"fl_platform: {sentence(f'{place}{error.strerror or error}')}", file=sys.stderr)
        return DiskFull.exit_code if error.errno in NO_SPACE_LEFT else UserError.exit_code
    except ParserExit:
        raise
    except BaseException as error:  # sys.exit of the user's code among them
        if _follows_interrupt(error):
            print("fl_platform: interrupted", file=sys.stderr)
            return 130
        from fl_platform.federation.user_code import explain

        explained = explain(error, 0, object)
        if explained is None:
            raise
        print(f"{explained.trace}fl_platform: {sentence(explained)}", file=sys.stderr)
        return explained.exit_code


def _follows_interrupt(error: BaseException) -> bool:
    """Whether an error came while Ctrl-C was being handled, as in a library that is half imported."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, KeyboardInterrupt):
        found = found.__context__
    return found is not None


def _is_output_gone() -> bool:
    """Whether the reader of what this process prints, such as `head`, went away."""
    ends = select.poll()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(OSError, ValueError):  # not a file, or closed
            ends.register(stream.fileno(), 0)
    return bool(ends.poll(0))


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
    for argument in args:
        try:
            os.fsencode(argument)
        except UnicodeEncodeError:
            raise UserError(f"the argument {argument} holds half a character, which no file can have") from None
    name, *rest = args
    if name not in COMMANDS:
        raise UserError(f"unknown command '{name}'; there is {', '.join(COMMANDS)}{did_you_mean(name, COMMANDS)}")
    return int(importlib.import_module(f"fl_platform.cli.{name}").main(rest))
