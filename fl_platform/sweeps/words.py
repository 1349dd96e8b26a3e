"""The command of a trial: the YAML's own, expanded as ``wandb agent`` expands it, and what ``run`` will read of it."""

import json
import os
import re
import shlex
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

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
    """The words of a trial's process. An unknown macro expands to nothing, as under ``wandb agent``."""
    words = [f"{key}={value}" for key, value in params.items()]
    flags = ["--" + word for word in words]
    truths = [
        f"--{key}" if value is True else f"--{key}={value}" for key, value in params.items() if value is not False
    ]
    macros = {
        "env": ["/usr/bin/env"],
        "interpreter": [interpreter],
        "program": [program],
        "args": flags,
        "args_no_hyphens": words,
        "args_no_equals": [part for key, value in params.items() for part in (f"--{key}", str(value))],
        "args_no_boolean_flags": truths,
        "args_json": [json.dumps(params)],
        "args_json_file": [json_file],
        "args_append_hydra": ["+" + word for word in words],
        "args_override_hydra": ["++" + word for word in words],
    }
    expanded: list[str] = []
    for part in command:
        part = _ENVIRONMENT_VARIABLE.sub(lambda found: os.environ.get(found[1], found[1]), part)
        if part.startswith("${") and part.endswith("}"):
            expanded += macros.get(part[2:-1], [])
        else:
            expanded.append(part)
    return expanded


@dataclass(frozen=True)
class RunWords:
    """What ``fl_platform run`` gets: keys, configuration files, and the flags that matter to a launcher."""

    keys: list[str]
    files: list[Path]
    drop_unused: bool
    skip_finished: bool


def run_words(command: list[str]) -> RunWords:
    """The arguments of ``fl_platform run`` in an expanded command; nothing else can be a trial here."""
    start = next(
        (place + 1 for place in range(1, len(command)) if command[place] == "run" and is_ours(command[place - 1])), None
    )
    if start is None:
        raise UserError(f"command={shlex.join(command)} does not call `fl_platform run`; allowed: {EXAMPLE}")
    keys, files, flags = [], [], set()
    words = iter(command[start:])
    for word in words:
        if word.startswith("--config"):
            files.append(Path(word.partition("=")[2] or next(words, "")))
        elif word.startswith("-") and "=" not in word:
            flags.add(word)
        else:
            keys.append(word)
    return RunWords(keys, files, "--drop-unused" in flags, "--skip-finished" in flags)


def is_ours(word: str) -> bool:
    return word == "fl_platform" or Path(word).name == "fl-platform"


EXAMPLE = "[${env}, ${interpreter}, -m, fl_platform, run, --skip-finished, --continue, ${args_no_hyphens}]"
