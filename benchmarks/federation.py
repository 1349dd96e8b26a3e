"""A real run (Trainer, offline W&B log, row file) with a stopwatch beside it."""

import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from ctypes import Array, c_int64
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import lightning as L
import numpy as np
import torch
from torch.utils.flop_counter import FlopCounterMode

from benchmarks.clock import Meter, Ratio, Seconds, median, total
from benchmarks.machine import SGEMM_FLOP, memory_bytes, sgemm
from benchmarks.synthetic import PLUGIN
from fl_platform.algorithms import gradma
from fl_platform.config.compose import compose
from fl_platform.config.resolve import RunSpec, resolve
from fl_platform.data import datasets
from fl_platform.data.streams import BatchPlan
from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.checkpoints import RoundCheckpoint
from fl_platform.federation.module import FederatedModule
from fl_platform.federation.progress import GracefulStop, RowFile
from fl_platform.federation.trainer import attach, make_trainer, quieten_lightning
from fl_platform.models.layers import Pass
from fl_platform.runs import metrics
from fl_platform.runs.status import RunStatus
from fl_platform.tracking.identity import describe
from fl_platform.tracking.logger import close_logger, open_logger

WARM_UP = 3  # rounds
FULL_MEMORY = 50
"""Rounds after which nearly all of 100 workers have a slot of GradMA's memory and a state."""
ROUNDS_A_PROBE = 4
LIGHTNING, QP = "Lightning, callbacks", "worker QP"


def w1_arguments(*args: str) -> list[str]:
    """W1: MNIST where it is found, else random bytes of its shape; N=100, S=10, I=5, batch 64, omega=1."""
    data = "mnist" if datasets.find("mnist") else "random_mnist"
    return [
        PLUGIN, f"data.name={data}", "model.name=mlp", "model.norm=none", "num_workers=100", "cohort_size=10",
        "local_steps=5", "batch_size=64", "data.dirichlet_omega=1.0", "evaluation.every=1", "local_lr=0.01",
        "checkpoint.every=0", "trainer.enable_progress_bar=false", "device=cpu", *args,
    ]  # fmt: skip


def small_model_arguments(device: str) -> list[str]:
    """N=100, S=10, I=5, batch 64, every worker with as many samples, on a device; nothing is saved on the way."""
    return [
        PLUGIN, "num_workers=100", "cohort_size=10", "local_steps=5", "batch_size=64", "data.partition=iid",
        "local_lr=0.01", "checkpoint.every=0", "trainer.enable_progress_bar=false", f"device={device}",
    ]  # fmt: skip


@dataclass
class Stopwatch(L.Callback):
    """Times whole rounds, from the start of one to the start of the next, and the machine's sgemm between them."""

    warm_up: int = WARM_UP
    meter: Meter = field(default_factory=Meter)
    rounds: list[Seconds] = field(default_factory=list)
    probes: list[Seconds] = field(default_factory=list)
    samples: list[int] = field(default_factory=list)  # trained on, one number per round
    memory: list[int] = field(default_factory=list)
    projections: float = 0.0  # share of the local steps, of a kernel that takes them
    _ticks: Array[c_int64] | None = None
    _started: Seconds = field(default_factory=Seconds.now)

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        assert isinstance(pl_module, FederatedModule)
        self.watch(trainer, pl_module)

    def watch(self, trainer: L.Trainer, module: FederatedModule) -> None:
        wrap = self.meter.wrap
        wrap(module, "training_step", "server step, worker states, figures")
        wrap(module.pool, "sample", "cohort sampling")
        wrap(module.streams, "draw", "batch planning", lambda plan: self.samples.append(count(plan)))
        wrap(module, "evaluate", "evaluation")
        if module.threads.size == 1:
            wrap(module.train_samples, "batch", "batch gathering")
            wrap(module.train_samples, "labels", "batch gathering")
            wrap(module.threads, "train", "local steps")
            wrap(gradma, "project_stack", QP)
            with module.threads.borrowed() as training:
                self._ticks = None if training.whole is None else training.whole.kernel.ticks
        else:  # the meter follows one thread
            wrap(module.threads, "map", "local steps and evaluation")
        if trainer.logger is not None:
            wrap(trainer.logger, "log_metrics", "W&B logging")
        for callback in trainer.callbacks:  # type: ignore[attr-defined]
            if isinstance(callback, RowFile):
                wrap(callback, "on_validation_end", "row file")

    def on_train_epoch_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        if trainer.current_epoch > self.warm_up:
            self.rounds.append(Seconds.now() - self._started)
        self.memory.append(memory_bytes())
        is_last = trainer.current_epoch + 1 == trainer.max_epochs  # it writes a checkpoint and is not timed
        if is_last:
            self.meter.unwrap()
            if self._ticks and self._ticks[1]:
                self.projections = self._ticks[0] / self._ticks[1]
        if is_last or trainer.current_epoch % ROUNDS_A_PROBE == 0:
            self.probes.append(sgemm())
        if trainer.current_epoch == self.warm_up:
            self.meter.clear()
            self.samples.clear()
            if self._ticks:
                self._ticks[:] = [0, 0]
        self._started = Seconds.now()


def count(plan: BatchPlan) -> int:
    return int(plan.counts.sum())


@dataclass(frozen=True)
class Finished:
    """What the stopwatch saw."""

    module: FederatedModule
    watch: Stopwatch

    @property
    def round(self) -> Seconds:
        """The median round."""
        return median(self.watch.rounds)

    def parts(self) -> dict[str, Seconds]:
        """Mean own time a round of each part; what no part accounts for is Lightning's."""
        rounds = len(self.watch.rounds)
        spent = {name: seconds * (1 / rounds) for name, seconds in self.watch.meter.spent.items()}
        if self.watch.projections:
            steps = spent["local steps"]
            spent[QP] = steps * self.watch.projections
            spent["local steps"] = steps - spent[QP]
        spent[LIGHTNING] = total(self.watch.rounds) * (1 / rounds) - total(list(spent.values()))
        return spent

    def rate(self) -> Ratio:
        """sgemm FLOP/s while the rounds ran."""
        probe = median(self.watch.probes[1:])
        return Ratio(SGEMM_FLOP / probe.wall, SGEMM_FLOP / probe.cpu)

    def flop(self) -> float:
        """Of a mean round: local steps on real samples, and one evaluation."""
        train, evaluate = flop_per_sample(self.module)
        return train * float(np.mean(self.watch.samples)) + evaluate * len(self.module.test_samples)

    def bound(self) -> Seconds:
        rate = self.rate()
        assert rate.cpu is not None
        return Seconds(self.flop() / rate.wall, self.flop() / rate.cpu)


def flop_per_sample(module: FederatedModule) -> tuple[float, float]:
    """Of a training step's forward and backward pass, and of a forward pass, counted by PyTorch."""
    size = 8
    network, x = module.network, module.test_samples.whole()[:size]
    weights = [view.detach().requires_grad_() for view in network.parameters.views(module.global_params)]
    with FlopCounterMode(display=False) as training:
        key = torch.zeros((), dtype=torch.int64)
        logits = network.single(weights, module.global_buffers.clone(), x, Pass(train=True, key=key)).logits
        torch.autograd.grad(logits.sum(), weights)
    with FlopCounterMode(display=False) as evaluation, torch.no_grad():
        network.single(weights, module.global_buffers, x, Pass(train=False))
    return training.get_total_flops() / size, evaluation.get_total_flops() / size


def run(args: list[str], rounds: int, warm_up: int = WARM_UP) -> Finished:
    """Train ``rounds`` timed rounds after some to warm up."""
    with tempfile.TemporaryDirectory(prefix="fl_platform-bench-") as directory:
        args = [*args, f"num_rounds={warm_up + rounds + 1}", f"output.dir={directory}"]
        spec = resolve(compose(args))
        algorithm, watch = make_algorithm(spec.config), Stopwatch(warm_up)
        module = build(spec.config, algorithm)
        with threads(1), logged(spec) as logger:
            own = [RowFile(Path(directory) / "rounds.jsonl"), RoundCheckpoint(Path(directory) / "checkpoints", 0)]
            callbacks: list[L.Callback] = [algorithm, GracefulStop(), *own, watch]
            attach(make_trainer(spec), [logger], callbacks).fit(module)
    return Finished(module, watch)


@contextmanager
def logged(spec: RunSpec) -> Iterator[Any]:
    quieten_lightning()
    logger = open_logger(spec, describe(spec))
    try:
        yield logger
    finally:
        if logger is not None:
            close_logger(logger, {metrics.STATUS: RunStatus.FINISHED.value})


@contextmanager
def threads(number: int) -> Iterator[None]:
    """Kernels of so many threads, unless the work sets its own; as before afterwards."""
    before = torch.get_num_threads()
    torch.set_num_threads(number)
    try:
        yield
    finally:
        torch.set_num_threads(before)
