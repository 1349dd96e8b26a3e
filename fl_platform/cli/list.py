"""``list``: what can be named in a configuration, with one-line descriptions."""

from collections.abc import Callable

from fl_platform.cli.parser import Parser
from fl_platform.config.options import allowed
from fl_platform.config.schema import PRESETS
from fl_platform.paper.scenarios import COLUMNS

Listing = list[tuple[str, str]]


def main(words: list[str]) -> int:
    parser = Parser(prog="fl_platform list", description="Names that a configuration may use.")
    parser.add_argument("what", choices=sorted(LISTINGS), help="what to list")
    parser.add_argument("--plugins", nargs="+", default=[], metavar="MODULE", help="import these first")
    args = parser.parse_args(words)
    if args.plugins:
        from fl_platform.config.plugins import import_plugins

        import_plugins(args.plugins)
    for name, description in LISTINGS[args.what]():
        print(f"{name:24} {description}".rstrip())
    return 0


def list_algorithms() -> Listing:
    """Each algorithm, then its fields."""
    import fl_platform.algorithms  # noqa: F401  registers them
    from fl_platform.algorithms import base

    lines: Listing = []
    for name in base.names():
        kind = base.get(name)
        lines.append((name, f"{summary(kind)} [{kind.kind}, {kind.downloads}x down, {kind.uploads}x up]"))
        for field in base.hyper_parameters(kind):
            bounds = f" ({allowed(field)})" if allowed(field) else ""
            lines.append((f"  algorithm.{field.name}", f"= {field.default}: {field.metadata.get('help', '')}{bounds}"))
    return lines


def summary(kind: type[object]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def list_datasets() -> Listing:
    from fl_platform.data import datasets

    found = [datasets.get(name) for name in datasets.names()]
    return [
        (d.name, f"{d.description} [{d.num_classes} classes, {d.default_model}, {d.num_rounds} rounds]") for d in found
    ]


def list_models() -> Listing:
    from fl_platform import models

    return [*models.names().items(), ("your.module.Network", "any torch.nn.Module by its dotted path")]


def list_policies() -> Listing:
    from fl_platform.algorithms.policies import policies

    return list(policies().items())


def list_presets() -> Listing:
    return [(name, description) for name, (description, _) in PRESETS.items()]


def list_scenarios() -> Listing:
    return [
        (name, f"omega={one.omega:g} S={one.cohort_size} T={one.num_rounds} target={one.target:g}")
        for name, one in COLUMNS.items()
    ]


LISTINGS: dict[str, Callable[[], Listing]] = {
    "algorithms": list_algorithms,
    "datasets": list_datasets,
    "models": list_models,
    "policies": list_policies,
    "presets": list_presets,
    "scenarios": list_scenarios,
}
