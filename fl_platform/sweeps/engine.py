"""W&B's search engine, the PyPI package ``sweeps``, imported in silence when something of it is first used.

By name, because type checkers take the directory of sweep YAMLs for the package; late, because what only reads a ledger
does without it. Proposing a point imports scipy and scikit-learn; validating parameters does not.
"""

import importlib
import warnings
from typing import Any

_HOMES = {
    **dict.fromkeys(("SweepRun", "next_run", "next_runs", "stop_runs"), "sweeps"),
    "RunState": "sweeps.run",
    **dict.fromkeys(("fill_parameter", "ParamValidationError"), "sweeps.config"),
    "validator": "sweeps.config.schema",
}
"""Name -> the module of the package that has it."""


def __getattr__(name: str) -> Any:
    if name not in _HOMES:
        raise AttributeError(f"module '{__name__}' has no attribute '{name}'")
    with warnings.catch_warnings():  # its models are declared the pydantic 1 way
        warnings.simplefilter("ignore")
        globals()[name] = found = getattr(importlib.import_module(_HOMES[name]), name)  # asked for once
    return found
