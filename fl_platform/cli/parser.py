"""The list of commands and the argument parser they share.

Each command is a module with ``main(args)``, which parses its own arguments and returns an exit code. The module is
imported only when the command is called, so that help and errors appear at once.
"""

import argparse
from collections.abc import Sequence
from typing import Any, NoReturn

from fl_platform.errors import sentence

COMMANDS = {
    "run": "one federated run",
    "config": "print the resolved configuration",
    "list": "algorithms, data sets, models, presets, memory policies",
    "data": "find, fetch and inspect data",
    "doctor": "what this machine has and what is missing",
    "sweep": "many runs from one W&B sweep YAML",
    "report": "tables and figures from logs",
    "dashboard": "sweeps and runs, live, in a browser",
    "publish": "a saved view and a report in a W&B project",
    "demo": "a small comparison of all algorithms on embedded data",
}


class Parser(argparse.ArgumentParser):
    """argparse with messages that are safe to print: what they quote cannot send control characters."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        for arg in args or ():
            if arg.startswith("--") and arg.endswith("=--"):  # argparse would pass on an empty list
                self.error(f"argument {arg[:-3]}: '--' is not a value")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        super().error(sentence(message))
