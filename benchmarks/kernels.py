"""What each kernel saves of the round it serves: a run of W1 or W2 whose rounds have it and do without it in turn.

    python -m benchmarks.kernels [--rounds 60] [--only descend] [--wall]

Both kinds of rounds run in one process and are compared by the median of their CPU time, so that a busy machine
touches both. On several threads use ``--wall`` and an idle machine: waiting for another thread takes no CPU time.
``fl_platform/kernels`` quotes the figures; a kernel that saves less than 5 % is deleted.
"""

import argparse
import statistics
import tempfile
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from types import SimpleNamespace
from typing import Any

import lightning as L
import torch.nn.functional as F

from benchmarks.federation import threads, w1_arguments
from benchmarks.scaling import WIDE, small_args
from benchmarks.synthetic import width_for
from fl_platform import qp
from fl_platform.algorithms import gradma, memory
from fl_platform.config.compose import compose
from fl_platform.config.resolve import resolve
from fl_platform.engines import evaluation
from fl_platform.engines.loop import SingleObjective
from fl_platform.engines.training import LocalTraining
from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.trainer import attach, make_trainer, quieten_lightning
from fl_platform.kernels import convolution, dropout, linear, pooling, row_products
from fl_platform.kernels.recycled import Recycler
from fl_platform.models.layers import dropped

FEDBN = w1_arguments("algorithm.name=fedbn", "model.norm=batch")  # whose workers keep what the kernel above does not
SMALL = small_args("data.name=random_small", "num_workers=1000", "cohort_size=100")
FEDAVG, TWO_THREADS = w1_arguments(), w1_arguments("threads=2")
GRADMA = w1_arguments("algorithm.name=gradma", "algorithm.memory_size=100")
HOOK_BY_HOOK = [*GRADMA, "algorithm.qp.log_errors=true"]  # which the kernel of all steps leaves to local_direction
GRADMA_S = w1_arguments("algorithm.name=gradma_s", "algorithm.memory_size=100")
SMALL_GRADMA_S = small_args(
    *("data.name=random_small", "num_workers=100", "cohort_size=10", "algorithm.name=gradma_s"),
    "algorithm.memory_size=100",
)
LENET = w1_arguments("data.name=random_cifar10", "model.name=lenet5")  # W2
DROPOUT_MLP = w1_arguments("model.name=benchmarks.synthetic.DropoutMlp")
LENET_BF16 = [*LENET, "precision=bf16-mixed"]
OTHERS = SimpleNamespace(of=lambda network, dtype: None)  # in whose eyes no network is a perceptron


def matrix_products(rows: Any, slots: Any, vector: Any, start: int, stop: int) -> Any:
    return row_products.matrix_products(rows, slots, vector, start, stop, rows.dtype)


@dataclass(frozen=True)
class Case:
    """A kernel, the run it serves, and how to do without it: the attribute to replace, and by what."""

    name: str
    overrides: list[str]
    owner: Any
    attribute: str
    plain: Any


CASES = (
    Case("gradient", GRADMA, LocalTraining, "perceptron", None),
    Case("whole workers", FEDAVG, LocalTraining, "takes_whole_workers", lambda *_: False),
    Case("whole workers, two threads", TWO_THREADS, LocalTraining, "takes_whole_workers", lambda *_: False),
    Case("whole workers, 100 small ones", SMALL, LocalTraining, "takes_whole_workers", lambda *_: False),
    Case("descend", FEDBN, SingleObjective, "descend", lambda *_: None),
    Case("steps of tensors, LeNet-5", LENET, SingleObjective, "descend", lambda *_: None),
    Case("steps of tensors, LeNet-5, bf16-mixed", LENET_BF16, SingleObjective, "descend", lambda *_: None),
    Case("perceptron, evaluation", FEDAVG, evaluation, "Perceptron", OTHERS),
    Case("perceptron, evaluation with BatchNorm", [*FEDAVG, "model.norm=batch"], evaluation, "Perceptron", OTHERS),
    Case("linear layers, GroupNorm", [*FEDAVG, "model.norm=group"], linear, "linear", F.linear),
    Case("linear layers, MOON", w1_arguments("algorithm.name=moon"), linear, "linear", F.linear),
    Case("linear layers, LeNet-5", LENET, linear, "linear", F.linear),
    Case("pooling", LENET, pooling, "max_pool2d", F.max_pool2d),
    Case("pooling, bf16-mixed", LENET_BF16, pooling, "max_pool2d", F.max_pool2d),
    Case("dropout", LENET, dropout, "dropout", dropped),
    Case("dropout, perceptron", DROPOUT_MLP, dropout, "dropout", dropped),
    Case("dropout, bf16-mixed", LENET_BF16, dropout, "dropout", dropped),
    Case("maxima of convolutions", LENET, convolution, "maxima", lambda *_: None),
    Case("maxima of convolutions, bf16-mixed", LENET_BF16, convolution, "maxima", lambda *_: None),
    Case("whole workers, GradMA", GRADMA, LocalTraining, "takes_whole_workers", lambda *_: False),
    Case("worker projection", HOOK_BY_HOOK, gradma, "project_stack", qp.project_stack),
    Case(
        "recycled memory, d = 10^7",
        small_args(
            "data.name=random_small",
            "num_workers=100",
            "cohort_size=4",
            "local_steps=2",
            "batch_size=8",
            f"model.name={WIDE}",
            f"model.options.width={width_for(10**7)}",
        ),
        Recycler,
        "empty",
        lambda self, name, shape, like: like.new_empty(shape),
    ),
    Case("row products, GradMA-S", GRADMA_S, row_products, "compiled_row_products", matrix_products),
    Case("row products, GradMA", GRADMA, row_products, "compiled_row_products", matrix_products),
    Case("many anchors", GRADMA, memory, "solve", qp.solve),
    Case("many anchors, small network", SMALL_GRADMA_S, memory, "solve", qp.solve),
)


@dataclass
class InTurns(L.Callback):
    """Times rounds, every second one without the kernel; two of each to warm up."""

    case: Case
    clock: Callable[[], float]
    seconds: tuple[list[float], list[float]] = field(default_factory=lambda: ([], []))

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        self._kernel = vars(self.case.owner)[self.case.attribute]
        if trainer.current_epoch % 2:
            setattr(self.case.owner, self.case.attribute, self.case.plain)
        self._started = self.clock()

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        spent, is_plain = self.clock() - self._started, trainer.current_epoch % 2
        setattr(self.case.owner, self.case.attribute, self._kernel)
        if trainer.current_epoch >= 4:
            self.seconds[is_plain].append(spent)


def measure(case: Case, rounds: int, clock: Callable[[], float]) -> tuple[float, float]:
    """Median seconds of a round with the kernel and without."""
    with tempfile.TemporaryDirectory(prefix="fl_platform-bench-") as directory:
        overrides = [*case.overrides, f"num_rounds={2 * rounds + 4}", f"output.dir={directory}"]
        spec = resolve(compose([*overrides, "tracking.mode=disabled"]))
        algorithm, watch = make_algorithm(spec.config), InTurns(case, clock)
        with threads(1):
            attach(make_trainer(spec), [], [algorithm, watch]).fit(build(spec.config, algorithm))
    return statistics.median(watch.seconds[0]), statistics.median(watch.seconds[1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--rounds", type=int, default=60, help="of each kind")
    parser.add_argument("--wall", action="store_true", help="compare by the clock on the wall")
    parser.add_argument("--only", nargs="*", help="beginnings of names")
    args = parser.parse_args()
    quieten_lightning()
    for case in CASES:
        if args.only and not case.name.startswith(tuple(args.only)):
            continue
        with_it, without = measure(case, args.rounds, time.perf_counter if args.wall else time.process_time)
        print(
            f"{case.name:26} {1000 * with_it:7.1f} ms per round, {1000 * without:7.1f} without: "
            f"{100 * (1 - with_it / without):.1f} % saved",
            flush=True,
        )


if __name__ == "__main__":
    main()
