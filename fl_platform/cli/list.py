"""``list``: what can be named in a configuration, with one-line descriptions."""

from collections.abc import Callable

from fl_platform.cli.parser import Parser
from fl_platform.config.options import allowed, condition, default_of, walk
from fl_platform.config.presets import PRESETS
from fl_platform.config.registry import ALGORITHMS, DATASETS, MODELS, POLICIES
from fl_platform.paper.scenarios import scenarios

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
    lines: Listing = []
    for name, kind in ALGORITHMS.items():
        lines.append((name, f"{summary(kind)} [{kind.kind}, {kind.downloads}x down, {kind.uploads}x up]"))
        for field_name, field in walk(kind):
            limits = ", ".join(filter(None, (allowed(field), condition(field))))
            text = f"= {default_of(field)}: {field.metadata.get('help', '')}"
            lines.append((f"  algorithm.{field_name}", f"{text} ({limits})" if limits else text))
    return lines


def summary(kind: type[object]) -> str:
    return (kind.__doc__ or "").strip().splitlines()[0]


def list_datasets() -> Listing:
    return [
        (name, f"{found.description} [{found.num_classes} classes, {found.default_model}, {found.num_rounds} rounds]")
        for name, found in DATASETS.items()
    ]


def list_models() -> Listing:
    listed = [(name, found.description) for name, found in MODELS.items()]
    return [*listed, ("your.module.Network", "any torch.nn.Module by its dotted path")]


def list_policies() -> Listing:
    return [(name, kind.description) for name, kind in POLICIES.items()]


def list_presets() -> Listing:
    return list(PRESETS.items())


def list_scenarios() -> Listing:
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
