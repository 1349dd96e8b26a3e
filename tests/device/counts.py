"""What every method asks of a device, counted on the simulated one: ``python -m tests.device.counts [--write]``.

Kernels (operator calls), host reads and host-to-device copies of the second round: per local step, of the workers'
part, of the server's step, and of an evaluation. ``--write`` puts the table into benchmarks/README.md, with which the
tests compare what they count; ``--lines METHOD MODEL`` prints the source lines behind the reads and copies.
"""

import logging
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path

import torch

import fl_platform.algorithms  # noqa: F401  registers them
from fl_platform.algorithms import base
from fl_platform.models import vgg11
from fl_platform.reporting.generated import renewed
from fl_platform.runs.writing import write_atomically
from tests.device.runs import Phases, phases_of
from tests.federations import make_config

README = Path(__file__).resolve().parents[2] / "benchmarks" / "README.md"
MODELS = ("mlp", "lenet5", "vgg11", "resnet20")
KINDS = "kernels, reads, copies"
STEPS = 3
FIRST = 1  # from this step on all have the same work: the first two of GradMA's workers take fewer gradients


@dataclass(frozen=True)
class Row:
    """Kernels, host reads and host-to-device copies of one method; kernels of a local step by model.

    The others are those of a round of the perceptron: other networks have other kernels in an evaluation, and no
    further reads and copies.
    """

    method: str
    steps: dict[str, int]
    workers: tuple[int, int]  # reads, copies
    server: tuple[int, int, int]
    evaluation: tuple[int, int, int]


def phases(method: str, model: str) -> Phases:
    """The second round of a method with the network's own layers, of few channels."""
    width = ["model.width=4"] if model == "resnet20" else []
    whole, vgg11.GROUPS = vgg11.GROUPS, tuple(tuple(4 for _ in group) for group in vgg11.GROUPS)
    try:
        return phases_of(
            make_config(
                f"algorithm.name={method}", f"model.name={model}", f"local_steps={STEPS}", "engine=stacked",
                "num_rounds=2", "precision=float32", "local_lr=0.001", *width,
            )
        )  # fmt: skip
    finally:
        vgg11.GROUPS = whole


def step_kernels(found: Phases) -> int:
    """Kernels of a local step; raises ValueError where one reads from the device or copies to it."""
    kernels, reads, copies = found.per_step(FIRST)
    if reads or copies:
        raise ValueError(f"a local step has {reads} reads and {copies} copies")
    return kernels


def measure(method: str, models: tuple[str, ...] = MODELS) -> Row:
    """Count one method, its local steps on the given models, of which the first is the perceptron."""
    found = {model: phases(method, model) for model in models}
    round = found[MODELS[0]]
    steps = {model: step_kernels(each) for model, each in found.items()}
    return Row(method, steps, round.workers.totals[1:], round.server.totals, round.evaluation.totals)


def table() -> dict[str, Row]:
    """The rows of the table in benchmarks/README.md, by method."""
    text = README.read_text(encoding="utf-8")
    lines = text[text.index("<!-- device: generated -->") : text.index("<!-- device: end -->")].splitlines()
    found = {}
    for cells in ([cell.strip() for cell in line.strip("|").split("|")] for line in lines):
        if len(cells) == len(MODELS) + 4 and cells[1].isdigit():
            method, steps = cells[0], dict(zip(MODELS, map(int, cells[1:]), strict=False))
            workers, server, evaluation = (tuple(map(int, cell.split(","))) for cell in cells[-3:])
            found[method] = Row(method, steps, workers, server, evaluation)  # type: ignore[arg-type]
    return found


def markdown(rows: list[Row]) -> str:
    """The rows as a table."""
    titles = ["method", *MODELS, *(f"{part}: {KINDS}" for part in ("server step", "evaluation"))]
    titles.insert(-2, "workers, per round: reads, copies")
    lines = [f"| {' | '.join(titles)} |", "| --- " * len(titles) + "|"]
    for row in rows:
        numbers = (", ".join(map(str, part)) for part in (row.workers, row.server, row.evaluation))
        lines.append(f"| {' | '.join([row.method, *map(str, row.steps.values()), *numbers])} |")
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
    found = markdown([measure(method) for method in base.names()])
    if arguments == ["--write"]:
        makers = {"device": lambda: found}
        write_atomically(README, renewed(README.name, README.read_text(encoding="utf-8"), makers))
    else:
        print(found)


if __name__ == "__main__":
    main(sys.argv[1:])
