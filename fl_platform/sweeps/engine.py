"""W&B's search engine, the PyPI package ``sweeps``, imported in silence.

By name, because type checkers take the directory of sweep YAMLs for the package.
"""

import importlib
import warnings
from typing import Any

with warnings.catch_warnings():  # its models are declared the pydantic 1 way
    warnings.simplefilter("ignore")
    _package: Any = importlib.import_module("sweeps")
    _run: Any = importlib.import_module("sweeps.run")
    _params: Any = importlib.import_module("sweeps.params")
    _schema: Any = importlib.import_module("sweeps.config.schema")

SweepRun = _package.SweepRun
RunState = _run.RunState
next_run = _package.next_run
next_runs = _package.next_runs
stop_runs = _package.stop_runs
HyperParameter = _params.HyperParameter
SchemaError: type[Exception] = _params.jsonschema.ValidationError
validator = _schema.validator
