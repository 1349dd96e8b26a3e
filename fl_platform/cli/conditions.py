"""``key=value`` arguments whose values are YAML."""

from typing import Any

import yaml

from fl_platform.config.yaml_limits import check_size
from fl_platform.errors import UserError


def parse_conditions(pairs: list[str]) -> dict[str, Any]:
    """The values of ``--where``; raises ``UserError`` for a pair that is not ``key=value``."""
    return parse_values(pairs, "--where")


def parse_values(pairs: list[str], name: str) -> dict[str, Any]:
    """Parse ``key=value`` pairs given as ``name``; raises ``UserError`` for anything else."""
    values = {}
    for pair in pairs:
        key, equals, text = pair.partition("=")
        if not equals or not key:
            raise UserError(f"{name} {pair} is not of the form key=value")
        try:
            check_size(text)
            values[key] = yaml.safe_load(text)
        except (ValueError, yaml.YAMLError, RecursionError):
            raise UserError(f"{name} {pair}: the value is not valid YAML") from None
    return values
