"""What every method asks of a device, counted on the simulated one: ``python -m tests.device.counts [--write]``.

Kernels (operator calls), host reads and host-to-device copies of the second round: per local step, of the workers'
part, of the server's step, and of an evaluation. ``--write`` puts the table into benchmarks/README.md, whose numbers
the tests hold as bounds; ``--lines METHOD MODEL`` prints the source lines behind the reads and copies.
"""

import logging
import sys
import warnings
from collections import Counter
from dataclasses import astuple, dataclass
from pathlib import Path

import torch

import fl_platform.algorithms  # noqa: F401  registers them
from fl_platform.algorithms import base
from fl_platform.paper.methods import METHODS
from fl_platform.reporting.generated import renewed
from fl_platform.runs.writing import write_atomically
from tests.device.runs import Phases, phases_of
from tests.federations import make_config

README = Path(__file__).resolve().parents[2] / "benchmarks" / "README.md"
MODELS = ("mlp", "lenet5")
STEPS = 4
FIRST = 1  # from this step on all have the same work: the first two of GradMA's workers take fewer gradients


@dataclass(frozen=True)
class Row:
    """Kernels, host reads and host-to-device copies of one method and model; reads and copies of workers per round."""

    method: str
    model: str
    step_kernels: int
    worker_reads: int
    worker_copies: int
    server_kernels: int
    server_reads: int
    server_copies: int
    evaluation_kernels: int
    evaluation_reads: int
    evaluation_copies: int


def cases() -> list[tuple[str, str]]:
    """(method, model): every registered method on a perceptron, the paper's methods on every model."""
    return [(name, model) for model in MODELS for name in base.names() if model == MODELS[0] or name in METHODS]


def phases(method: str, model: str) -> Phases:
    return phases_of(
        make_config(
            f"algorithm.name={method}", f"model.name={model}", f"local_steps={STEPS}", "engine=stacked", "num_rounds=2",
            "precision=float32",
        )
    )  # fmt: skip


def measure(method: str, model: str) -> Row:
    """Count one method; raises ValueError where a local step reads from the device or copies to it."""
    found = phases(method, model)
    kernels, reads, copies = found.per_step(FIRST)
    if reads or copies:
        raise ValueError(f"{method} on {model}: a local step has {reads} reads and {copies} copies")
    return Row(method, model, kernels, *found.workers.totals[1:], *found.server.totals, *found.evaluation.totals)


def bounds() -> dict[tuple[str, str], Row]:
    """The rows of the table in benchmarks/README.md, by method and model."""
    text = README.read_text(encoding="utf-8")
    table = text[text.index("<!-- device: generated -->") : text.index("<!-- device: end -->")]
    found = {}
    for line in table.splitlines():
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if len(cells) == 6 and cells[1] in MODELS:
            numbers = [int(number) for cell in cells[2:] for number in cell.split(",")]
            found[cells[0], cells[1]] = Row(cells[0], cells[1], *numbers)
    return found


def markdown(rows: list[Row]) -> str:
    lines = [
        "| method | model | kernels per local step | workers, per round: reads, copies "
        "| server step: kernels, reads, copies | evaluation: kernels, reads, copies |",
        "| --- | --- | --- | --- | --- | --- |",
    ]
    for row in rows:
        method, model, step, *rest = map(str, astuple(row))
        cells = [method, model, step, ", ".join(rest[:2]), ", ".join(rest[2:5]), ", ".join(rest[5:])]
        lines.append(f"| {' | '.join(cells)} |")
    return "\n".join(lines) + "\n"


def print_lines(method: str, model: str) -> None:
    found = phases(method, model)
    for part in ("workers", "server", "evaluation"):
        counts = getattr(found, part)
        for kind in ("reads", "copies", "kernels"):
            lines = getattr(counts, kind)
            if kind == "kernels":
                lines = Counter({("", line): n for line, n in by_line(lines).most_common(12)})
            for (operator, line), times in lines.most_common():
                print(f"{part:10} {kind:7} {times:5} {operator:32} {line}")


def by_line(counts: Counter[tuple[str, str]]) -> Counter[str]:
    total: Counter[str] = Counter()
    for (_, line), times in counts.items():
        total[line] += times
    return total


def main(arguments: list[str]) -> None:
    warnings.simplefilter("ignore")
    logging.getLogger("lightning.pytorch").setLevel(logging.ERROR)
    torch.set_num_threads(1)
    if arguments[:1] == ["--lines"]:
        print_lines(*arguments[1:])
        return
    table = markdown([measure(method, model) for method, model in cases()])
    if arguments == ["--write"]:
        makers = {"device": lambda: table}
        write_atomically(README, renewed(README.name, README.read_text(encoding="utf-8"), makers))
    else:
        print(table)


if __name__ == "__main__":
    main(sys.argv[1:])
