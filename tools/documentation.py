"""The parts of the documents that are made from the code: options, algorithms, measured results."""

import csv
import dataclasses
import inspect
import math
import re
import statistics
import sys
from collections.abc import Callable, Iterable, Sequence
from functools import partial
from pathlib import Path
from types import ModuleType
from typing import Any

from fl_platform.algorithms import base
from fl_platform.cli import exit_code
from fl_platform.cli.parser import Parser
from fl_platform.config.options import allowed, condition, default_of, walk
from fl_platform.config.schema import OPEN_GROUPS, known_keys
from fl_platform.errors import UserError
from fl_platform.paper.methods import FURTHER_GROUPS, METHODS, PAPER, order
from fl_platform.reporting.generated import renewed
from fl_platform.reporting.report import FIGURES, TABLES
from fl_platform.runs.frames import Runs
from fl_platform.runs.writing import write_atomically

EXAMPLES = {
    "statistic": "{kind: statistic, name: table1, value: top_accuracy, bold: supported}",
    "target": "{kind: target, name: table2, unit: rounds, target: 0.9}",
    "paper_table1": "{kind: paper_table1, name: beside_table1, select: best}",
    "paper_table2": "{kind: paper_table2, name: beside_table2}",
    "rules": "{kind: rules, name: rules, by: aggregation, keys: [local_lr, server_lr], rules: [best, common_late]}",
    "settings": "{kind: settings, name: settings, by: aggregation, keys: [local_lr, server_lr]}",
    "significance": "{kind: significance, name: against_gradma, reference: gradma}",
    "paired": "{kind: paired, name: differences, reference: fedavg, level: 0.95}",
    "aggregate": "{kind: aggregate, name: over_scenarios, reference: fedavg}",
    "ranks": "{kind: ranks, name: ranks, value: final_accuracy}",
    "power": "{kind: power, name: seeds_needed, reference: fedavg, difference: 1.0}",
    "overview": "{kind: overview, name: overview, values: [top_accuracy, forgetting], units: [rounds]}",
    "pivot": "{kind: pivot, name: rates, rows: [algorithm.name], columns: [local_lr], value: top_accuracy}",
    "absence table": "{kind: absence, name: forgetting_by_absence, last: 0.5}",
    "speed_up table": "{kind: speed_up, name: speedup, key: cohort_size, metric: workers/loss, target: 1.2}",
    "qp_errors": "{kind: qp_errors, name: qp_errors, keys: [cohort_size]}",
    "cost table": "{kind: cost}",
    "curves": "{kind: curves, name: skew, grouping: worker, smooth: 10, where: {cohort_size: 10}, style: cvpr-page}",
    "key_curves": "{kind: key_curves, name: rates, key: local_lr, where: {algorithm.name: gradma}}",
    "forgetting": "{kind: forgetting, name: forgetting, grouping: all, split: groups}",
    "absence": "{kind: absence, name: absence_figure, last: 0.5}",
    "speed_up": "{kind: speed_up, name: speedup_figure, key: cohort_size}",
    "qp": "{kind: qp, name: qps, smooth: 10, errors: true}",
    "cost": "{kind: cost, name: cost_curves, grouping: server, smooth: 10}",
    "seeds": "{kind: seeds, name: every_seed, grouping: gradma}",
    "rank": "{kind: rank, name: critical_difference, style: cvpr-column}",
    "heat_map": "{kind: heat_map, name: betas, rows: algorithm.momentum_decay, columns: algorithm.memory_decay}",
    "bars": "{kind: bars, name: memory, key: algorithm.memory_size, value: final_accuracy}",
    "key_lines": "{kind: key_lines, name: rates, key: local_lr, panel: data.partition}",
    "partition": "{kind: partition, name: partitions, workers: 20}",
}
"""An entry of a report.yaml for every kind of table and figure; the table ``cost`` is called ``cost table`` here."""

DOCUMENTS = ("docs/options.md", "docs/algorithms.md", "docs/methods.md", "docs/reports.md")
RESULTS = {"mnist-results": "docs/algorithms/mnist.csv"}


def stale(root: Path) -> list[str]:
    """The documents whose generated parts differ from what the code says now."""
    return [name for name in DOCUMENTS if read(root / name) != current(root, name)]


def write(root: Path) -> list[str]:
    """Renew the documents that are stale."""
    names = stale(root)
    for name in names:
        write_atomically(root / name, current(root, name))
    return names


def read(path: Path) -> str:
    try:
        return path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such document; give the repository with --root") from None


def current(root: Path, document: str) -> str:
    """A document with every generated part made anew."""
    return renewed(document, read(root / document), blocks(root))


def blocks(root: Path) -> dict[str, Callable[[], str]]:
    """Every generated part by name: tables of keys, one part for each file of methods, the measured results."""
    makers: dict[str, Callable[[], str]] = {
        "options": options_table,
        "algorithms": algorithms_table,
        "report-kinds": report_kinds,
        "methods": methods_table,
        "further-methods": partial(further_methods, root),
    }
    for module, kinds in methods().items():
        makers[module.__name__.rpartition(".")[2]] = partial(family, module, kinds)
    return makers | {name: partial(results_table, root / path) for name, path in RESULTS.items()}


def published() -> list[type[base.Algorithm]]:
    """The algorithms of the platform: the paper's in its order, then the others by group and name; no plugin's."""
    kinds = [base.get(name) for name in base.names()]
    ours = [kind for kind in kinds if kind.__module__.startswith("fl_platform.algorithms.")]
    groups = (PAPER, *FURTHER_GROUPS)
    return sorted(ours, key=lambda kind: (groups.index(kind.group), order(kind.name)))


def methods() -> dict[ModuleType, list[type[base.Algorithm]]]:
    """The algorithms by the file that holds them."""
    found: dict[ModuleType, list[type[base.Algorithm]]] = {}
    for kind in published():
        module = inspect.getmodule(kind)
        assert module is not None
        found.setdefault(module, []).append(kind)
    return found


def options_table() -> str:
    """Every configuration key."""
    rows = []
    for key, field in known_keys().items():
        name = f"{key}.*" if key in OPEN_GROUPS else key
        rows.append((code(name), code(shown(default_of(field))), admitted(field), meaning(field)))
    return table(("key", "default", "allowed", "meaning"), rows)


def algorithms_table() -> str:
    """Every algorithm: where it acts, what travels, what is kept, how many points the paper's grid has."""
    rows = []
    for kind in published():
        points = math.prod(len(field.metadata["grid"]) for field in tuned(kind))
        fields = ", ".join(code(name) for name, _ in walk(kind))
        rows.append((code(kind.name), kind.label, kind.kind, travels(kind), prose(summary(kind)), fields, str(points)))
    head = (
        "`algorithm.name`",
        "method",
        "changes",
        "down / up",
        "what it does",
        "own fields",
        "points of the paper's grid",
    )
    return table(head, rows)


def methods_table() -> str:
    """Every method by group on two axes: what it changes, and what it costs beyond FedAvg."""
    parts = []
    for group in (PAPER, *FURTHER_GROUPS):
        rows = [
            (
                linked(kind),
                code(kind.name),
                kind.kind,
                f"${equation(kind)}$".replace("|", r"\vert ") if equation(kind) else prose(summary(kind)),
                str(kind.gradients),
                travels(kind),
                kept_by_workers(kind),
                kept_by_server(kind).removeprefix("the model").removeprefix(", ") or "nothing",
            )
            for kind in published()
            if kind.group == group
        ]
        if rows:
            head = ("method", "`algorithm.name`", "changes", "rule", "gradients per step", "down / up")
            parts.append(f"### {group.capitalize()}\n\n" + table((*head, "a worker keeps", "the server keeps"), rows))
    return "\n".join(parts)


def equation(kind: type[base.Algorithm]) -> str:
    """Where a method departs from FedAvg, in one line: its own equation, or those of the classes it is made of."""
    if "equation" in vars(kind):
        return kind.equation
    parts = [equation(parent) for parent in kind.__bases__ if issubclass(parent, base.Algorithm)]
    return ",\\quad ".join(dict.fromkeys(filter(None, parts)))


def linked(kind: type[base.Algorithm]) -> str:
    """The label of a method, with a link to the publication that its file cites."""
    found = re.search(
        r"https://(arxiv|doi)\.org/\S+?(?=[.,;)]*(?:\s|$))", inspect.getdoc(inspect.getmodule(kind)) or ""
    )
    return f"[{kind.label}]({found.group()})" if found else kind.label


def further_methods(root: Path) -> str:
    """What the files say about their methods that docs/algorithms.md does not treat."""
    treated = read(root / "docs/algorithms.md")
    parts = []
    for module, kinds in methods().items():
        if f"<!-- {module.__name__.rpartition('.')[2]}: generated -->" not in treated:
            parts.append(f"### {', '.join(kind.label for kind in kinds)}\n\n{family(module, kinds)}")
    return "\n".join(parts)


def report_kinds() -> str:
    """The kinds of tables and figures of a report.yaml, with their keys and defaults."""
    parts = []
    for heading, makers in (("Tables", TABLES), ("Figures", FIGURES)):
        rows = []
        for kind, make in makers.items():
            given = [one for one in inspect.signature(make).parameters.values() if one.annotation is not Runs]
            keys = [
                one.name if one.default is one.empty else f"{one.name}: {shown(one.default)}"
                for one in given
                if one.name != "runs"
            ]
            required = [name for name in keys if ":" not in name]
            optional = [name for name in keys if ":" in name]
            rows.append(
                (code(kind), prose(summary(make)), ", ".join(map(code, required)), ", ".join(map(code, optional)))
            )
        head = ("kind", "what it shows", "required", "optional, with default")
        lines = "".join(f"  - {example(heading, kind)}\n" for kind in makers)
        parts.append(f"### {heading}\n\n{table(head, rows)}\n```yaml\n{heading.lower()}:\n{lines}```\n")
    return "\n".join(parts)


def example(heading: str, kind: str) -> str:
    """The entry of ``EXAMPLES`` for a kind of the tables or figures."""
    return EXAMPLES["cost table" if (heading, kind) == ("Tables", "cost") else kind]


def family(module: ModuleType, kinds: Sequence[type[base.Algorithm]]) -> str:
    """What a file says about its methods, their costs and state, and their fields."""
    facts = [
        (kind.label, code(f"algorithm.name={kind.name}"), travels(kind), kept_by_workers(kind), kept_by_server(kind))
        for kind in kinds
    ]
    head = ("method", "run with", "down / up", "a worker keeps", "the server keeps")
    parts = [markdown(inspect.getdoc(module) or ""), table(head, facts)]
    owners: dict[tuple[str, str], list[type[base.Algorithm]]] = {}  # methods whose field has the same default
    for kind in kinds:
        for name, field in walk(kind):
            owners.setdefault((name, shown(default_of(field))), []).append(kind)
    rows = []
    for (name, default), having in owners.items():
        field = dict(walk(having[0]))[name]
        labels = "" if len(having) == len(kinds) else ", ".join(kind.label for kind in having)
        rows.append((code(f"algorithm.{name}"), code(default), admitted(field), meaning(field), labels))
    if rows:
        parts.append(table(("field", "default", "allowed", "meaning", "only in"), rows))
    return "\n".join(parts)


def results_table(path: Path) -> str:
    """Top and final accuracy, a mean over seeds, and the fastest round of each algorithm, from a CSV of its rounds."""
    if not path.exists():
        raise UserError(f"{path}: no such file; `python -m benchmarks.compare_algorithms` writes it")
    with open(path, encoding="utf-8", newline="") as file:
        rows = list(csv.DictReader(file))
    runs: dict[str, dict[str, list[dict[str, str]]]] = {}
    for row in rows:
        runs.setdefault(row["algorithm"], {}).setdefault(row["seed"], []).append(row)
    lines = []
    for name in sorted(runs, key=order):
        curves = [[float(row["accuracy"]) for row in seed if row["accuracy"]] for seed in runs[name].values()]
        seconds = min(float(row["seconds"]) for seed in runs[name].values() for row in seed)
        top, final = spread([max(curve) for curve in curves]), spread([curve[-1] for curve in curves])
        lines.append((METHODS[name].label, top, final, f"{seconds:.3f}"))
    return table(("method", "top accuracy (%)", "final accuracy (%)", "fastest round (s)"), lines)


def spread(values: Sequence[float]) -> str:
    """The mean, with the standard deviation (ddof=1) when there is more than one value."""
    mean = f"{statistics.fmean(values):.2f}"
    return f"{mean} ± {statistics.stdev(values):.2f}" if len(values) > 1 else mean


def tuned(kind: type[base.Algorithm]) -> list["dataclasses.Field[Any]"]:
    """The options the paper tunes for a method, the two rates included."""
    rates = [known_keys()["local_lr"], known_keys()["server_lr"]]
    return [field for field in [*rates, *dict(walk(kind)).values()] if field.metadata.get("grid")]


def summary(kind: Any) -> str:
    """The first line of a docstring."""
    return (inspect.getdoc(kind) or "").partition("\n")[0]


def travels(kind: type[base.Algorithm]) -> str:
    """Vectors of d numbers a sampled worker receives and sends."""
    return f"{kind.downloads}d / {kind.uploads}d"


def kept_by_workers(kind: type[base.Algorithm]) -> str:
    firsts = {
        base.Start.ZEROS: "0",
        base.Start.GLOBAL_PARAMS: "x_t",
        base.Start.GLOBAL_BUFFERS: "the server's statistics",
        base.Start.INITIAL_PARAMS: "x_0",
        base.Start.INITIAL_BUFFERS: "those of x_0",
    }
    kept = [f"{code(name)} (first {prose(firsts[start])})" for name, start in kind().keeps.items()]
    return ", ".join(kept) or "nothing"


def kept_by_server(kind: type[base.Algorithm]) -> str:
    names = [code(field.name) for field in dataclasses.fields(kind) if not field.init]
    return ", ".join(["the model", *names])


def shown(value: Any) -> str:
    """A default as it is written on the command line."""
    arguments = {None: "null", True: "true", False: "false"}
    if isinstance(value, dict):
        return "{" + ", ".join(f"{key}: {shown(inner)}" for key, inner in value.items()) + "}"
    return arguments[value] if value is None or isinstance(value, bool) else str(value)


def admitted(field: "dataclasses.Field[Any]") -> str:
    """Bounds or choices, the paper's grid, and what presets change."""
    parts = [prose(allowed(field))] if allowed(field) else []
    if grid := field.metadata.get("grid"):
        parts.append(f"grid: {', '.join(f'{value:g}' for value in grid)}")
    values = field.metadata.get("presets", {})
    parts += [f"preset {name}: {value}" for name, value in values.items() if value != default_of(field)]
    return "; ".join(parts)


def meaning(field: "dataclasses.Field[Any]") -> str:
    """Return the help text, and when the option has an effect."""
    return prose("; ".join(filter(None, (field.metadata.get("help", ""), condition(field)))))


def code(text: str) -> str:
    return f"`{text}`".replace("|", "\\|")


def prose(text: str) -> str:
    """Plain text with ``code`` as Markdown in one line; code between single backticks stays."""
    pieces = re.split(r"(``.+?``|`.+?`)", text)
    escaped = [re.sub(r"([\\*_<~|\[\]])", r"\\\1", piece) for piece in pieces]
    return "".join(
        code(piece.strip("`")) if piece.startswith("`") else plain for piece, plain in zip(pieces, escaped, strict=True)
    )


def markdown(docstring: str) -> str:
    """A docstring as Markdown: indented lines become code, lists keep their bullets, the rest is text."""
    lines: list[str] = []
    previous = ""
    for line in docstring.splitlines():
        kind = "text" if line else ""
        if line.startswith(("- ", "  ")):
            kind = "code" if line.startswith("    ") else "item"
        if kind and previous and kind != previous:
            lines.append("")
        lines.append(line if kind in ("code", "") else prose(line))
        previous = kind
    return "\n".join(lines) + "\n"


def table(head: Iterable[str], rows: Iterable[Sequence[str]]) -> str:
    """A Markdown table without the columns that are empty in every row."""
    names, cells = list(head), [list(row) for row in rows]
    used = [index for index in range(len(names)) if any(row[index] for row in cells)]
    lines = [[names[index] for index in used], ["---"] * len(used), *([row[index] for index in used] for row in cells)]
    return "".join(f"| {' | '.join(line)} |\n" for line in lines)


def main(arguments: list[str]) -> int:
    parser = Parser(
        prog="python -m tools.documentation",
        description="Check that the generated parts of the documents are current, or write them.",
    )
    parser.add_argument("--write", action="store_true", help="renew what is stale")
    parser.add_argument("--root", type=Path, default=Path(), metavar="DIR", help="the repository (this directory)")
    args = parser.parse_args(arguments)

    if args.write:
        for name in write(args.root):
            print(args.root / name)
    elif old := stale(args.root):
        raise UserError(f"the generated parts of {', '.join(old)} are not current; `make docs` renews them")
    return 0


if __name__ == "__main__":
    sys.exit(exit_code(main, sys.argv[1:]))
