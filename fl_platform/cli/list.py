"""``list``: print the names a configuration may use, with one-line descriptions."""

from collections.abc import Callable

from fl_platform.cli.parser import Parser
from fl_platform.config.options import allowed
from fl_platform.config.schema import PRESETS
from fl_platform.paper.scenarios import scenarios

Listing = list[tuple[str, str]]
"""(name, description) pairs."""


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(prog="fl_platform list", description="Names that a configuration may use.")
    parser.add_argument("what", choices=sorted(LISTINGS), help="what to list")
    parser.add_argument("--plugins", nargs="+", default=[], metavar="MODULE", help="import these first")
    options = parser.parse_args(args)
    if options.plugins:
        from fl_platform.config.plugins import import_plugins

        import_plugins(options.plugins)
    for name, description in LISTINGS[options.what]():
        print(f"{name:24} {description}".rstrip())
    return 0


def list_algorithms() -> Listing:
    """Each algorithm, followed by its hyper-parameters."""
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
    """The first line of a class's docstring."""
    return (kind.__doc__ or "").strip().splitlines()[0]


def list_datasets() -> Listing:
    """The registered data sets."""
    from fl_platform.data import datasets

    found = [datasets.get(name) for name in datasets.names()]
    return [
        (d.name, f"{d.description} [{d.num_classes} classes, {d.default_model}, {d.num_rounds} rounds]") for d in found
    ]


def list_models() -> Listing:
    """The built-in models, and how to name one's own."""
    from fl_platform import models

    return [*models.names().items(), ("your.module.Network", "any torch.nn.Module by its dotted path")]


def list_policies() -> Listing:
    """The policies of GradMA's memory."""
    from fl_platform.algorithms.policies import policies

    return list(policies().items())


def list_presets() -> Listing:
    """The presets of a configuration."""
    return [(name, description) for name, (description, _) in PRESETS.items()]


def list_scenarios() -> Listing:
    """The columns of the paper's tables, with their main settings."""
    lines = []
    for name, keys in scenarios().items():
        omega, target = keys["data"]["dirichlet_omega"], keys["evaluation"]["targets"][0]
        lines.append((name, f"omega={omega:g} S={keys['cohort_size']} T={keys['num_rounds']} target={target:g}"))
    return lines


LISTINGS: dict[str, Callable[[], Listing]] = {
    "algorithms": list_algorithms,
    "datasets": list_datasets,
    "models": list_models,
    "policies": list_policies,
    "presets": list_presets,
    "scenarios": list_scenarios,
}
