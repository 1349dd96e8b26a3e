"""Carry out one run: trainer, logger, checkpoints, result."""

import contextlib
import inspect
import logging
import re
import shutil
import sys
import warnings
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.loggers import WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from fl_platform.config.schema import Config, to_dict
from fl_platform.engines.ranks import Ranks
from fl_platform.errors import UserError, did_you_mean
from fl_platform.federation.checkpoints import AtomicCheckpointIO, RoundCheckpoint
from fl_platform.federation.experiment import build, group_id, make_algorithm, run_id
from fl_platform.federation.labels import labels
from fl_platform.federation.module import FederatedModule
from fl_platform.federation.progress import GracefulStop, RoundProgress, RowFile
from fl_platform.runs import metrics
from fl_platform.runs.directory import RunDirectory, check_writable
from fl_platform.runs.liveness import at_work
from fl_platform.runs.writing import writing
from fl_platform.tracking.logger import EarlierRounds, close_logger, open_logger

SET_ELSEWHERE = {
    "max_epochs": "num_rounds",
    "min_epochs": "num_rounds",
    "max_steps": "num_rounds",
    "min_steps": "num_rounds",
    "logger": "tracking.mode",
    "callbacks": "algorithm.name",
    "check_val_every_n_epoch": "evaluation.every",
    "enable_checkpointing": "checkpoint.every",
    "default_root_dir": "output.dir",
    "precision": "precision",
}
"""Trainer arguments that have a key of their own here."""

UNFIT = (
    "fast_dev_run", "limit_train_batches", "limit_val_batches", "overfit_batches", "val_check_interval",
    "accumulate_grad_batches", "gradient_clip_val", "gradient_clip_algorithm", "barebones",
)  # fmt: skip
"""Trainer arguments that would skip rounds or their evaluation, or that need the optimiser a round does not have."""

EXIT_CODES = {"finished": 0, "diverged": 3, "interrupted": 130}


@dataclass(frozen=True)
class Result:
    """How a run ended."""

    summary: dict[str, Any]
    wandb_directory: Path | None

    @property
    def exit_code(self) -> int:
        return EXIT_CODES[self.summary[metrics.STATUS]]

    def last_line(self) -> str:
        """Machine-readable: ``done run=... rounds=... top_accuracy=...``; the first word says how it ended."""
        word = {"finished": "done"}.get(self.summary[metrics.STATUS], self.summary[metrics.STATUS])
        top, final = (
            "nan" if self.summary[key] is None else f"{self.summary[key]:.6f}"
            for key in (metrics.TOP_ACCURACY, metrics.FINAL_ACCURACY)
        )
        return (
            f"{word} run={self.summary['run']} rounds={self.summary[metrics.ROUNDS]}"
            f" top_accuracy={top} at_round={self.summary[metrics.TOP_ACCURACY_ROUND]}"
            f" final_accuracy={final} fingerprint={self.summary[metrics.FINGERPRINT]}"
        )


def launch(config: Config, checkpoint: Path | None = None, should_stop: Callable[[], bool] | None = None) -> Result:
    """Run a resolved configuration, from the start or a checkpoint, to its end or the round ``should_stop`` says so."""
    torch.set_num_threads(1)  # until the engine says how the configured threads are used
    quieten_lightning()
    check_trainer_keys(config.trainer)
    check_devices(config)
    make_trainer(config, None, [])  # what Lightning refuses is refused before anything is opened
    identifier = run_id(config)
    files = RunDirectory(Path(config.output.dir), identifier)
    check_writable(files.output, f"output.dir={files.output}")
    module = build(config)
    callbacks: list[L.Callback] = [make_algorithm(config), GracefulStop(should_stop)]
    attempt, logger = files.attempts, None  # other ranks than the first write nothing
    cure = "; what was saved stays, and --continue goes on from it"
    with writing(f"output.dir={files.output}", cure), contextlib.ExitStack() as held:
        if is_first_rank():
            if checkpoint:
                attempt = checkpoint.parent.parent
                held.enter_context(at_work(attempt))
            logger = open_logger(config, identifier, group_id(config), **labels(config))
            if not checkpoint:
                attempt = files.start_attempt()
                held.enter_context(at_work(attempt))
            files.write_config(to_dict(config))
            callbacks += [RowFile(attempt / "rounds.jsonl"), *([EarlierRounds(logger)] if logger else [])]
        callbacks.append(RoundCheckpoint(attempt / "checkpoints", config.checkpoint.every))
        trainer = make_trainer(config, logger, callbacks)
        summary, directory = fit(trainer, module, logger, checkpoint)
        if is_first_rank() and summary[metrics.STATUS] != "interrupted":
            files.complete(attempt, summary)
            if not config.checkpoint.keep_finished:
                shutil.rmtree(attempt / "checkpoints", ignore_errors=True)
    return Result(summary, directory)


def fit(
    trainer: L.Trainer, module: FederatedModule, logger: WandbLogger | None, checkpoint: Path | None
) -> tuple[dict[str, Any], Path | None]:
    """Train to the end; returns the summary and W&B's directory, whose log says how it ended whatever happens."""
    exit_code = 1
    summary: dict[str, Any] = {metrics.STATUS: "crashed"}
    directory = None
    try:
        trainer.fit(module, ckpt_path=checkpoint, weights_only=True)
        summary = summarise(module, run_id(module.config))
        exit_code = EXIT_CODES[summary[metrics.STATUS]]
        Ranks.leave()
    except SystemExit:  # how Lightning ends a run on the second Ctrl-C
        raise KeyboardInterrupt from None
    finally:
        if logger is not None:
            directory = close_logger(logger, summary, exit_code)
    return summary, directory


def is_first_rank() -> bool:
    """Whether this process logs and saves: the only one, or the first of a distributed run."""
    return int(rank_zero_only.rank) == 0  # type: ignore[attr-defined]


def summarise(module: FederatedModule, identifier: str) -> dict[str, Any]:
    rounds = len(module.history)
    status = "finished"
    if module.scoreboard.diverged_round is not None:
        status = "diverged"
    elif rounds < (module.config.num_rounds or 0):  # Ctrl-C, or the Trainer's own max_time
        status = "interrupted"
    return {
        "run": identifier,
        metrics.STATUS: status,
        metrics.ROUNDS: rounds,
        **module.scoreboard.summary(),
        metrics.FINGERPRINT: module.fingerprint(),
    }


def make_trainer(config: Config, logger: Any, callbacks: list[L.Callback]) -> L.Trainer:
    arguments: dict[str, Any] = {
        "max_epochs": config.num_rounds,
        "logger": logger or False,
        "callbacks": callbacks,
        "plugins": [AtomicCheckpointIO()],
        "default_root_dir": config.output.dir,
        "enable_checkpointing": True,
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        **device_arguments(config.device),
        **config.trainer,
    }
    if arguments.get("enable_progress_bar", True) and is_first_rank():
        callbacks.append(RoundProgress(f"{config.algorithm['name']} on {config.data.name}"))
    try:
        return L.Trainer(**arguments)
    except (TypeError, ValueError, RuntimeError, MisconfigurationException) as error:
        given = (
            " ".join(f"trainer.{name}={value}" for name, value in config.trainer.items()) or f"device={config.device}"
        )
        raise UserError(f"{given} is refused by Lightning: {' '.join(str(error).split())}") from None


def device_arguments(device: str) -> dict[str, Any]:
    if device == "auto":
        return {"accelerator": "gpu" if torch.cuda.is_available() else "cpu", "devices": 1}
    check_device("device", device, "auto | cpu")
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return {"accelerator": "cpu", "devices": 1}
    return {"accelerator": "gpu", "devices": [int(index)] if index else 1}


def check_device(key: str, device: str, always: str) -> None:
    if not re.fullmatch(r"cpu|cuda(:[0-9]+)?", device):
        raise UserError(f"{key}={device} is not allowed; allowed: {always} | cuda | cuda:K")
    number = int(device.partition(":")[2] or 0)
    if device != "cpu" and number >= torch.cuda.device_count():
        raise UserError(
            f"{key}={device}: this machine has {torch.cuda.device_count()} CUDA devices; allowed without one: {always}"
        )


def check_devices(config: Config) -> None:
    """Refuse devices that are not there, before data is read."""
    device_arguments(config.device)
    for key, device in (("state.device", config.state.device), ("memory.device", config.memory.device)):
        if device is not None:
            check_device(key, device, "null | cpu")


def check_trainer_keys(given: dict[str, Any]) -> None:
    known = inspect.signature(L.Trainer).parameters
    for name, value in given.items():
        if name in SET_ELSEWHERE:
            raise UserError(f"trainer.{name}={value} is set by the platform; use {SET_ELSEWHERE[name]}")
        if name not in known:
            raise UserError(
                f"trainer.{name}={value}: lightning.Trainer has no such argument{did_you_mean(name, known)}"
            )
        if name in UNFIT:
            raise UserError(f"trainer.{name}={value} does not apply to federated rounds; leave it out")


def quieten_lightning() -> None:
    """Lightning's greetings, tips and advice about data loaders do not apply to rounds."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*logging interval.*",
        ".*configure_optimizers.*",
        ".*save_dir.*",
    ):
        warnings.filterwarnings("ignore", message)
    # how Lightning 2.6 asks torch's pytree, once a batch
    warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)", FutureWarning)


def say(message: str) -> None:
    print(message, file=sys.stderr, flush=True)
