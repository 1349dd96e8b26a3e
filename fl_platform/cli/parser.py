"""One file per command: ``main(words)`` parses its own arguments and returns an exit code.

A command's module is imported only when it is called, so that help and errors come at once.
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
    """argparse, whose messages quote the words given, made fit for a terminal."""

    def parse_known_args(self, args: Sequence[str] | None = None, namespace: Any = None) -> Any:  # type: ignore[override]
        for word in args or ():
            if word.startswith("--") and word.endswith("=--"):  # argparse would hand on an empty list
                self.error(f"argument {word[:-3]}: '--' is not a value")
        return super().parse_known_args(args, namespace)

    def error(self, message: str) -> NoReturn:
        super().error(sentence(message))
