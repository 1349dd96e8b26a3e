"""``prepare``: make ahead what the first commands of a version on a machine make, and keep it in the user's cache."""

import time

from fl_platform.cli.parser import Parser
from fl_platform.cli.start import quick_imports
from fl_platform.config import catalogue
from fl_platform.config.registry import ALGORITHMS
from fl_platform.errors import UserError


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(
        prog="fl_platform prepare",
        description="List what is built in and compile the kernels for this processor, into the user's cache, so that "
        "the first commands need not. What is there already is left alone.",
    )
    parser.parse_args(args)
    with quick_imports():
        ALGORITHMS.names()
    from fl_platform.kernels import machine_code

    refusal = "commands work without it, only slower; set XDG_CACHE_HOME to a directory that can be written"
    place = machine_code.directory()
    if place is None or not catalogue.path().exists():
        raise UserError(f"the cache {catalogue.path().parents[1]} cannot be written; {refusal}")
    for module, functions in machine_code.ENTRIES.items():
        for name in functions:
            if machine_code.kept_code(module, name) is not None:
                continue
            started = time.perf_counter()
            machine_code.compiled_and_kept(module, name)
            if machine_code.kept_code(module, name) is None:
                raise UserError(f"the cache {place} cannot be written; {refusal}")
            print(f"compiled {module}.{name} in {time.perf_counter() - started:.1f} s", flush=True)
    print(f"ready: {place.parents[1]}")
    return 0
