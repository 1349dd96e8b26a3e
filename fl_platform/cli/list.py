"""``list``: print the names a configuration may use, with one-line descriptions."""

import dataclasses
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from fl_platform.cli.parser import Parser
from fl_platform.config.descriptions import Description
from fl_platform.config.options import allowed, condition, default_of
from fl_platform.config.presets import PRESETS
from fl_platform.config.registry import ALGORITHMS, DATASETS, MODELS, PARTITIONS, POLICIES, Registry
from fl_platform.config.schema import known_keys
from fl_platform.errors import UserError, unknown_name
from fl_platform.paper.methods import FURTHER_GROUPS, PAPER, order
from fl_platform.paper.scenarios import COLUMNS

GROUPS = (PAPER, *(group.value for group in FURTHER_GROUPS))
"""The groups of algorithms in the order of the list."""

Line = tuple[str, str]
"""A name and its description."""


@dataclass(frozen=True)
class Entry:
    """One thing that a configuration may name: its line, the lines of its own keys, and the heading it stands under."""

    name: str
    description: str
    keys: tuple[Line, ...] = ()
    heading: str = ""

    def mentions(self, text: str) -> bool:
        """Whether the text occurs in any of its lines; case does not count."""
        lines = ((self.name, self.description), *self.keys)
        return any(text.lower() in " ".join(line).lower() for line in lines)


Listing = list[Entry]


def main(args: list[str]) -> int:
    """Run the command with these arguments; returns its exit code."""
    parser = Parser(prog="fl_platform list", description="Names that a configuration may use.")
    parser.add_argument("what", choices=sorted(LISTINGS), help="what to list")
    parser.add_argument("--group", metavar="NAME", help=f"only these algorithms: {', '.join(GROUPS)}")
    parser.add_argument("--grep", default="", metavar="TEXT", help="only what has this text in its name or description")
    parser.add_argument("--plugins", nargs="+", default=[], metavar="MODULE", help="import these first")
    options = parser.parse_args(args)
    if options.group and options.what != "algorithms":
        raise UserError(f"--group={options.group} is for algorithms; {options.what} have no groups")
    if options.group and options.group not in GROUPS:
        raise unknown_name("--group", options.group, GROUPS)
    if options.plugins:
        from fl_platform.config.plugins import import_plugins

        import_plugins(options.plugins)
    entries = LISTINGS[options.what]()
    if options.group:
        entries = [entry for entry in entries if entry.heading == options.group]
    show([entry for entry in entries if entry.mentions(options.grep)])
    return 0


def show(entries: Listing) -> None:
    """Print entries under their headings."""
    heading = ""
    for entry in entries:
        if entry.heading != heading:
            print(f"{'' if heading == '' else chr(10)}{entry.heading}:")
            heading = entry.heading
        for name, description in ((entry.name, entry.description), *entry.keys):
            print(f"{name:24} {description}".rstrip())


def list_algorithms() -> Listing:
    """Each algorithm with its hyper-parameters, by group: the paper's in its own order, then the others by name."""
    entries = []
    for name, kind in described(ALGORITHMS):
        keys = []
        for field_name, field in kind.options.items():
            limits = ", ".join(filter(None, (allowed(field), condition(field))))
            text = f"= {default_of(field)}: {field.metadata.get('help', '')}"
            keys.append((f"  algorithm.{field_name}", f"{text} ({limits})" if limits else text))
        costs = f"[{kind.kind}, {kind.downloads}x down, {kind.uploads}x up]"
        entries.append(Entry(name, f"{kind.summary} {costs}", tuple(keys), kind.group))
    return sorted(entries, key=lambda entry: (GROUPS.index(entry.heading), order(entry.name)))


def described(registry: Registry[Any]) -> list[tuple[str, Description]]:
    """Each name with what is known about it, without importing torch."""
    return [(name, registry.describe(name)) for name in registry.names()]


def list_datasets() -> Listing:
    """The registered data sets."""
    return [
        Entry(
            name, f"{found.description} [{found.num_classes} classes, {found.default_model}, {found.num_rounds} rounds]"
        )
        for name, found in described(DATASETS)
    ]


def list_models() -> Listing:
    """The built-in models, and how to name one's own."""
    listed = [Entry(name, found.description) for name, found in described(MODELS)]
    return [*listed, Entry("your.module.Network", "any torch.nn.Module by its dotted path")]


def list_partitions() -> Listing:
    """The rules of data.partition with their parameters."""
    return [
        Entry(name, rule.summary, tuple(parameter(option, field) for option, field in rule.options.items()))
        for name, rule in described(PARTITIONS)
    ]


def parameter(name: str, field: "dataclasses.Field[Any]") -> tuple[str, str]:
    """A parameter of a partition as it is given: a key of data, or of a plugin's own."""
    key = f"data.{name}"
    if key not in known_keys():
        key = f"data.partition_options.{name}"
    field = known_keys().get(key, field)
    return f"  {key}", f"= {default_of(field)}: {field.metadata.get('help', '')}"


def list_policies() -> Listing:
    """The policies of GradMA's memory."""
    return [Entry(name, kind.description) for name, kind in described(POLICIES)]


def list_presets() -> Listing:
    """The presets of a configuration."""
    return [Entry(name, description) for name, description in PRESETS.items()]


def list_scenarios() -> Listing:
    """The columns of the paper's tables, with their main settings."""
    return [
        Entry(name, f"omega={one.omega:g} S={one.cohort_size} T={one.num_rounds} target={one.target:g}")
        for name, one in COLUMNS.items()
    ]


LISTINGS: dict[str, Callable[[], Listing]] = {
    "algorithms": list_algorithms,
    "datasets": list_datasets,
    "models": list_models,
    "partitions": list_partitions,
    "policies": list_policies,
    "presets": list_presets,
    "scenarios": list_scenarios,
}
