"""``list``: print the names a configuration may use, with one-line descriptions."""

from collections.abc import Callable

from fl_platform.cli.parser import Parser
from fl_platform.config.options import allowed, condition, default_of, walk
from fl_platform.config.presets import PRESETS
from fl_platform.config.registry import ALGORITHMS, DATASETS, MODELS, POLICIES
from fl_platform.paper.scenarios import COLUMNS

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
    lines: Listing = []
    for name, kind in ALGORITHMS.items():
        lines.append((name, f"{summary(kind)} [{kind.kind}, {kind.downloads}x down, {kind.uploads}x up]"))
        for field_name, field in walk(kind):
            limits = ", ".join(filter(None, (allowed(field), condition(field))))
            text = f"= {default_of(field)}: {field.metadata.get('help', '')}"
            lines.append((f"  algorithm.{field_name}", f"{text} ({limits})" if limits else text))
    return lines


def summary(kind: type[object]) -> str:
    """The first line of a class's docstring."""
    return (kind.__doc__ or "").strip().splitlines()[0]


def list_datasets() -> Listing:
    """The registered data sets."""
    return [
        (name, f"{found.description} [{found.num_classes} classes, {found.default_model}, {found.num_rounds} rounds]")
        for name, found in DATASETS.items()
    ]


def list_models() -> Listing:
    """The built-in models, and how to name one's own."""
    listed = [(name, found.description) for name, found in MODELS.items()]
    return [*listed, ("your.module.Network", "any torch.nn.Module by its dotted path")]


def list_policies() -> Listing:
    """The policies of GradMA's memory."""
    return [(name, kind.description) for name, kind in POLICIES.items()]


def list_presets() -> Listing:
    """The presets of a configuration."""
    return list(PRESETS.items())


def list_scenarios() -> Listing:
    """The columns of the paper's tables, with their main settings."""
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
