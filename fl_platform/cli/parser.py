"""The list of commands and the argument parser they share.

Each command is a module with ``main(args)``, which parses its own arguments and returns an exit code. The module is
imported only when the command is called, so that help and errors appear at once.
"""

from fl_platform.config.arguments import Parser, ParserExit

__all__ = ["COMMANDS", "Parser", "ParserExit"]

COMMANDS = {
    "run": "one federated run",
    "export": "a run's model as a file for use elsewhere",
    "config": "print the resolved configuration",
    "plan": "what a run needs of a device's memory, and which settings fit a card",
    "list": "algorithms, data sets, models, presets, memory policies",
    "data": "find, fetch and inspect data",
    "doctor": "what this machine has and what is missing",
    "prepare": "compile for this machine ahead of the first run",
    "why": "how a run stands or ended, and the end of its log",
    "sweep": "many runs from one W&B sweep YAML",
    "report": "tables and figures from logs",
    "figure": "one figure of any runs",
    "dashboard": "sweeps and runs, live, in a browser",
    "publish": "a saved view and a report in a W&B project",
    "demo": "a small comparison of all algorithms on embedded data",
}
