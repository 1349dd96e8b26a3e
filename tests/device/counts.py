"""What every method asks of a device, counted on the simulated one: ``python -m tests.device.counts [--write]``.

Kernels (operator calls), host reads and host-to-device copies: per local step, and in the second round of the workers'
part, of the server's step and of an evaluation. ``--write`` puts the table into benchmarks/README.md, with which the
tests compare what they count; ``--lines METHOD MODEL`` prints the source lines behind the reads and copies.
"""

import logging
import sys
import warnings
from collections import Counter
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch

import fl_platform.algorithms  # noqa: F401  registers them
from fl_platform.algorithms import base
from fl_platform.config.schema import Config
from fl_platform.models import vgg11
from fl_platform.reporting.generated import renewed
from fl_platform.runs.writing import write_atomically
from tests.device.runs import Phases, counted
from tests.federations import Finished, make_config

README = Path(__file__).resolve().parents[2] / "benchmarks" / "README.md"
MODELS = ("mlp", "lenet5", "vgg11", "resnet20")
KINDS = "kernels, reads, copies"
STEPS = 4
FIRST = 2  # GradMA's workers take fewer gradients before, and constants that stay on the device are made


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


def run(method: str, model: str = MODELS[0], *, rounds: int = 2, **how: Any) -> tuple[Finished, Phases]:
    """Some rounds of a method with the network's own layers, of few channels, and the counts of the last one."""
    width = ["model.width=4"] if model == "resnet20" else []
    whole, vgg11.GROUPS = vgg11.GROUPS, tuple(tuple(4 for _ in group) for group in vgg11.GROUPS)
    try:
        return counted(config_of(method, f"model.name={model}", f"num_rounds={rounds}", *width), **how)
    finally:
        vgg11.GROUPS = whole


def config_of(method: str, *more: str) -> Config:
    """The configuration of a run that is counted."""
    return make_config(f"algorithm.name={method}", f"local_steps={STEPS}", "engine=stacked", "precision=float32", *more)


def step_kernels(found: Phases) -> int:
    """Kernels of a local step; raises ValueError where one reads from the device or copies to it."""
    kernels, reads, copies = found.per_step(FIRST)
    if reads or copies:
        raise ValueError(f"a local step has {reads} reads and {copies} copies")
    return kernels


def row_of(method: str, round: Phases) -> Row:
    """The row of a method, given a round of the perceptron, without the local steps of the other networks."""
    steps = {MODELS[0]: step_kernels(round)}
    return Row(method, steps, round.workers.totals[1:], round.server.totals, round.evaluation.totals)


def measure(method: str) -> Row:
    """Count one method; of the networks other than the perceptron only the local steps, in the first round."""
    row = row_of(method, run(method)[1])
    row.steps.update({model: step_kernels(run(method, model, rounds=1)[1]) for model in MODELS[1:]})
    return row


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
    found = run(method, model)[1]
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
