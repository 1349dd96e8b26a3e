"""``config``: print the resolved configuration."""

import textwrap
from collections.abc import Iterator
from typing import Any

import yaml

from fl_platform.config.arguments import Parser, add_keys, parse_keys
from fl_platform.config.compose import compose
from fl_platform.config.options import condition
from fl_platform.config.resolve import all_options, resolve
from fl_platform.config.schema import to_dict


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(
        prog="fl_platform config", description="The configuration a run with these keys would have, and its run id."
    )
    add_keys(parser)
    options = parse_keys(parser, args)

    spec = resolve(compose(options.keys, options.config))
    conditions = {key: condition(option) for key, option in all_options(spec.config).items()}
    print("\n".join(yaml_lines(to_dict(spec.config), conditions)))
    print(f"# run {spec.run_id}, group {spec.group_id}")
    return 0


def yaml_lines(values: dict[str, Any], conditions: dict[str, str], prefix: str = "") -> Iterator[str]:
    """Yield YAML of nested values; an option that has an effect only sometimes is followed by its condition."""
    for name, value in values.items():
        key = prefix + name
        if any(known.startswith(f"{key}.") for known in conditions):
            yield f"{name}:"
            yield textwrap.indent("\n".join(yaml_lines(value, conditions, f"{key}.")), "  ")
        else:
            text = yaml.safe_dump({name: value}, sort_keys=False, width=float("inf")).rstrip("\n")
            yield f"{text}  # {conditions[key]}" if conditions.get(key) else text
