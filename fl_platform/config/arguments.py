"""The arguments of ``run``: one parser for the command line and for the commands of a sweep's trials.

It needs the standard library alone, so that help and `doctor` work where nothing else is installed.
"""

import argparse
import sys
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, NoReturn

from fl_platform.errors import UserError, sentence


class ParserExit(SystemExit):
    """The end of a command by its parser: after ``--help``, or for arguments that are wrong."""


class Parser(argparse.ArgumentParser):
    """argparse, whose messages quote the arguments given, made fit for a terminal."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        for argument in args or ():
            if argument.startswith("--") and argument.endswith("=--"):  # argparse would hand on an empty list
                self.error(f"argument {argument[:-3]}: '--' is not a value")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        super().error(sentence(message))

    def exit(self, status: int = 0, message: str | None = None) -> NoReturn:
        if message:
            self._print_message(message, sys.stderr)
        raise ParserExit(status)


class _QuietParser(Parser):
    """Raises what the other prints before it exits."""

    def error(self, message: str) -> NoReturn:
        raise UserError(message)


@dataclass(frozen=True)
class RunArguments:
    """What ``run`` was given: ``key=value`` arguments, YAML files and flags."""

    keys: list[str]
    config: list[Path]
    resume: str | None
    go_on: bool
    skip_finished: bool
    drop_unused: bool
    json: Path | None


def parse_run(arguments: list[str]) -> RunArguments:
    """Return the arguments of ``run``; ends the process with code 2, or after ``--help``, as argparse does."""
    parser = Parser(
        prog="fl_platform run",
        description="One federated run. Keys are listed by `fl_platform config`.",
        epilog="example: fl_platform run data.name=mnist algorithm.name=fedprox algorithm.mu=0.1 num_rounds=50",
    )
    return _read(_declare(parser), arguments)


def parse_command(arguments: list[str]) -> RunArguments:
    """Return the arguments of ``run`` in the command of a trial; UserError for what ``run`` would refuse."""
    with _one_at_a_time:  # argparse notes on the parser how far it is
        return _read(_command_parser(), arguments)


_one_at_a_time = threading.Lock()


@cache
def _command_parser() -> Parser:
    """Made once for all trials of a sweep; with a ``usage``, which argparse would otherwise format every time."""
    return _declare(_QuietParser(add_help=False, usage="fl_platform run"))


def _declare(parser: Parser) -> Parser:
    add_keys(parser)
    parser.add_argument(
        "--resume", metavar="RUN_ID_OR_PATH", help="continue from a run's newest checkpoint, or from this one"
    )
    parser.add_argument(
        "--continue", dest="go_on", action="store_true", help="go on from the newest checkpoint, if any"
    )
    parser.add_argument("--skip-finished", action="store_true", help="return the stored result of a finished run")
    parser.add_argument(
        "--drop-unused",
        action="store_true",
        help="drop algorithm.<field> keys that only other algorithms have, as a sweep over algorithms needs",
    )
    parser.add_argument("--json", type=Path, metavar="FILE", help="write the summary there")
    return parser


def _read(parser: Parser, arguments: list[str]) -> RunArguments:
    return RunArguments(**vars(parse_keys(parser, arguments)))


def add_keys(parser: Parser) -> None:
    """Add what describes a configuration: ``keys`` and ``--config``."""
    parser.add_argument("keys", nargs="*", metavar="key=value", help="what to change from the defaults")
    parser.add_argument(
        "--config", action="append", type=Path, default=[], metavar="FILE", help="YAML of keys; may repeat"
    )


def parse_keys(parser: Parser, arguments: list[str]) -> argparse.Namespace:
    """Parse in any order, and take ``--key=value``, as W&B's ${args} writes keys, for ``key=value``."""
    options = tuple(f"{option}=" for option in parser._option_string_actions)
    return parser.parse_intermixed_args(
        [
            argument.lstrip("-")
            if argument.startswith("--") and "=" in argument and not argument.startswith(options)
            else argument
            for argument in arguments
        ]
    )
