"""``plan``: what a run needs of a device's memory, and which settings fit a card."""

import re
from typing import TYPE_CHECKING

from fl_platform.config.arguments import Parser, add_keys, parse_keys
from fl_platform.config.compose import compose
from fl_platform.config.resolve import RunSpec, resolve
from fl_platform.errors import UserError

if TYPE_CHECKING:
    from fl_platform.federation.plan import Needs

UNITS = {"GB": 10**9, "GIB": 1 << 30, "MB": 10**6, "MIB": 1 << 20}
MOST_SETTINGS = 4


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code, 1 where the run does not fit the card."""
    parser = Parser(
        prog="fl_platform plan",
        description="What a run with these keys needs of a device's memory, measured without running it, and which "
        "chunk, offload and shard settings fit a card.",
    )
    add_keys(parser)
    parser.add_argument("--card", metavar="SIZE", help="memory of the card, such as 24GB; default: of CUDA's first one")
    options = parse_keys(parser, args)
    card = None if options.card is None else size_of(options.card)
    spec = resolve(compose(options.keys, options.config))

    from fl_platform.federation import plan

    card = plan.card_memory() if card is None else card
    needs = plan.needs_of(spec.config)
    print_needs(spec, needs)
    if card is None:
        print("\nno CUDA device here; --card SIZE, such as --card 24GB, says which settings fit")
        return 0
    found = plan.fitting(needs, card)
    print(f"\na card of {shown(card)}, of which a tenth is left to CUDA:")
    for setting in found[:MOST_SETTINGS]:
        print(f"  {shown(setting.bytes):>9}  {' '.join(setting.keys) or 'fits as it is'}")
    if not found:
        print("  does not fit, whatever is offloaded; use a smaller batch_size, cohort_size or model")
    return 0 if found else 1


def size_of(text: str) -> int:
    """Bytes of a size such as 24GB or 512MiB; UserError for anything else."""
    match = re.fullmatch(r"([0-9]+(?:\.[0-9]+)?) ?([a-zA-Z]+)", text)
    unit = UNITS.get(match[2].upper()) if match else None
    if match is None or unit is None or float(match[1]) <= 0:
        raise UserError(f"--card={text} is not allowed; it must be a number and a unit, GB or MB, such as 24GB")
    return int(float(match[1]) * unit)


def print_needs(spec: RunSpec, needs: "Needs") -> None:
    """Print what is needed, a line for each kind."""
    config, stack = spec.config, needs.workers_at_once * needs.worker
    lines = [
        ("data set", needs.data),
        ("evaluated samples", needs.evaluated),
        ("server: models and the method's vectors", needs.server),
        ("gradient memory", needs.memory),
        (f"worker state, of {config.num_workers} workers at most", needs.worker_state),
        (f"updates of {needs.cohort_size} workers, and what they keep and send", needs.cohort),
        (f"{needs.workers_at_once} workers trained at once: parameters, gradients, activations", stack),
        ("server step, instead of the last two", needs.server_step),
        ("evaluation, instead of them", needs.evaluation),
        ("at most", needs.total()),
    ]
    print(
        f"{spec.algorithm} on {config.data.name}, {config.model.name} of {shown(needs.parameters)}, "
        f"batch_size={config.batch_size}, precision={config.precision}"
    )
    for name, size in lines:
        print(f"  {'not found' if size is None else shown(size):>9}  {name}")


def shown(size: int) -> str:
    """A size with three digits."""
    return f"{size / 10**9:.3g} GB" if size >= 10**9 else f"{size / 10**6:.3g} MB"
