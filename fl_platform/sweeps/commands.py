"""The command of a trial: the YAML's own, expanded as ``wandb agent`` expands it, and what ``run`` will read of it."""

import json
import os
import re
import shlex
import sys
from pathlib import Path
from typing import Any

from fl_platform.config.arguments import RunArguments, parse_command
from fl_platform.errors import UserError

_ENVIRONMENT_VARIABLE = re.compile(r"\$\{envvar:([A-Z0-9_]*)\}")


def expand(
    command: list[str],
    params: dict[str, Any],
    *,
    program: str = "",
    interpreter: str = sys.executable,
    json_file: str = "",
) -> list[str]:
    """Return the arguments of a trial's process. An unknown macro expands to nothing, as under ``wandb agent``."""
    arguments = [f"{key}={value}" for key, value in params.items()]
    flags = ["--" + argument for argument in arguments]
    without_false = [
        f"--{key}" if value is True else f"--{key}={value}" for key, value in params.items() if value is not False
    ]
    macros = {
        "env": ["/usr/bin/env"],
        "interpreter": [interpreter],
        "program": [program],
        "args": flags,
        "args_no_hyphens": arguments,
        "args_no_equals": [part for key, value in params.items() for part in (f"--{key}", str(value))],
        "args_no_boolean_flags": without_false,
        "args_json": [json.dumps(params)],
        "args_json_file": [json_file],
        "args_append_hydra": ["+" + argument for argument in arguments],
        "args_override_hydra": ["++" + argument for argument in arguments],
    }
    expanded: list[str] = []
    for part in command:
        part = _ENVIRONMENT_VARIABLE.sub(lambda found: os.environ.get(found[1], found[1]), part)
        if part.startswith("${") and part.endswith("}"):
            expanded += macros.get(part[2:-1], [])
        else:
            expanded.append(part)
    return expanded


def run_arguments(command: list[str]) -> RunArguments:
    """Return the arguments of ``fl_platform run`` in an expanded command, as ``run`` will read them.

    Raises UserError for any other program, for what ``run`` would refuse, and for ``--resume``: ``--continue`` is what
    a trial that is started again needs.
    """
    start = next(
        (place + 1 for place in range(1, len(command)) if command[place] == "run" and is_program(command[place - 1])),
        None,
    )
    if start is None:
        raise UserError(f"command={shlex.join(command)} does not call `fl_platform run`; allowed: {EXAMPLE}")
    try:
        arguments = parse_command(command[start:])
    except UserError as error:
        raise UserError(f"command={shlex.join(command)} is refused by `fl_platform run`: {error}") from None
    if arguments.resume is not None:
        raise UserError(f"command has --resume {arguments.resume}; a trial goes on with --continue")
    return arguments


def is_program(argument: str) -> bool:
    """Whether an argument names this program, as a module or as an installed command."""
    return argument == "fl_platform" or Path(argument).name == "fl-platform"


EXAMPLE = "[${env}, ${interpreter}, -m, fl_platform, run, --skip-finished, --continue, ${args_no_hyphens}]"
