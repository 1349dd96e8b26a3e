"""``config``: print the resolved configuration."""

from pathlib import Path

import yaml

from fl_platform.cli.parser import Parser
from fl_platform.cli.run import without_hyphens
from fl_platform.config.compose import compose
from fl_platform.config.schema import to_dict


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(
        prog="fl_platform config", description="The configuration a run with these keys would have, and its run id."
    )
    parser.add_argument("keys", nargs="*", metavar="key=value")
    parser.add_argument("--config", action="append", type=Path, default=[], metavar="FILE")
    options = parser.parse_intermixed_args(without_hyphens(args, parser))

    config = compose(options.keys, options.config)
    from fl_platform.federation.experiment import group_id, resolve, run_id

    config = resolve(config)
    print(yaml.safe_dump(to_dict(config), sort_keys=False), end="")
    print(f"# run {run_id(config)}, group {group_id(config)}")
    return 0
