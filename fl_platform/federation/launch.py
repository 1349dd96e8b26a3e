"""Carry out one run: Trainer, logger, checkpoints, result."""

import contextlib
import importlib
import inspect
import json
import logging
import os
import re
import sys
import tempfile
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger, WandbLogger
from lightning.pytorch.utilities import rank_zero_only

from fl_platform.algorithms.base import Algorithm
from fl_platform.config.resolve import RunSpec, all_options
from fl_platform.config.schema import Config, flatten, to_dict
from fl_platform.engines.ranks import Ranks
from fl_platform.errors import OutOfMemory, UserError, did_you_mean
from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.checkpoints import AtomicCheckpointIO, RoundCheckpoint, drop_checkpoints, take_best
from fl_platform.federation.export import export
from fl_platform.federation.history import History
from fl_platform.federation.module import FederatedModule
from fl_platform.federation.progress import GracefulStop, RoundProgress, RowFile
from fl_platform.federation.resource_file import ResourceFile
from fl_platform.federation.result import Result
from fl_platform.federation.user_code import explain
from fl_platform.runs import metrics, resources
from fl_platform.runs.directory import RunDirectory, check_writable, rounds_file
from fl_platform.runs.liveness import at_work, cause_of
from fl_platform.runs.status import RunStatus
from fl_platform.runs.writing import writing
from fl_platform.tracking.identity import describe
from fl_platform.tracking.logger import (
    EarlierRounds,
    EngineNote,
    Tracked,
    close_logger,
    log_model,
    open_logger,
    with_default,
)
from fl_platform.tracking.loggers import EarlierRoundsElsewhere, check_packages, open_others
from fl_platform.tracking.media import Media

SET_ELSEWHERE = {
    "max_epochs": "num_rounds",
    "min_epochs": "num_rounds",
    "max_steps": "num_rounds",
    "min_steps": "num_rounds",
    "logger": "tracking.mode",
    "callbacks": "callbacks",
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


FEW_DEVICES = 16
"""Processes that any machine may be asked for, whatever it has."""


def launch(spec: RunSpec, checkpoint: Path | None = None, should_stop: Callable[[], bool] | None = None) -> Result:
    """Carry out a run, from the start or a checkpoint, to its end or the round after which ``should_stop`` is true.

    Returns how it ended. Raises UserError, before data is read or anything is opened, for what the Trainer, the
    devices or ``output.dir`` do not allow; then for data and models that are refused.
    """
    config = spec.config
    torch.set_num_threads(1)  # until the engine says how the configured threads are used
    quieten_lightning()
    check_trainer_keys(config.trainer)
    check_trainer_devices(config.trainer)
    check_devices(config)
    check_packages(config.tracking.also)
    own_callbacks = make_callbacks(config.callbacks)
    trainer = make_trainer(spec)
    files = RunDirectory(spec.output, spec.run_id)
    check_writable(files.output, f"output.dir={files.output}")
    algorithm = make_algorithm(config)
    module = build(config, algorithm)
    stop = GracefulStop(should_stop)
    callbacks: list[L.Callback] = [algorithm, stop, *own_callbacks]
    others: list[Logger] = []
    attempt, logger = files.attempts, None  # other ranks than the first write nothing
    goes_on = checkpoint is not None and checkpoint.resolve().is_relative_to(files.attempts.resolve())
    hint = "; what was saved stays, and --continue goes on from it"
    with writing(f"output.dir={files.output}", hint), contextlib.ExitStack() as held:
        if is_first_rank():
            if checkpoint and goes_on:
                attempt = checkpoint.parent.parent
                held.enter_context(at_work(attempt))
            about = describe(spec)
            logger = open_logger(spec, about)
            if logger is not None:
                stop.on_terminate = logger.experiment.mark_preempting  # an online sweep starts the run again
                if logger.experiment.url:
                    say(f"W&B run: {logger.experiment.url}")
            if not goes_on:
                attempt = files.start_attempt()
                held.enter_context(at_work(attempt))
            files.write_description(about)
            others = open_others(spec, attempt)
            callbacks += [
                RowFile(rounds_file(attempt)),
                EngineNote(files, logger),
                *([EarlierRounds(logger)] if logger else []),
            ]
            if config.tracking.resources_every:
                callbacks.append(ResourceFile(attempt / resources.FILE, config.tracking.resources_every))
            if logger is not None and with_default(config.tracking.media, config.tracking.mode == "online"):
                callbacks.append(Media(logger))
            callbacks += [EarlierRoundsElsewhere(others)] if others else []
        keep_best = config.checkpoint.keep_best or config.tracking.artifacts == "best"
        saving = RoundCheckpoint(attempt / "checkpoints", config.checkpoint.every, keep_best=keep_best)
        if checkpoint and not goes_on and keep_best and is_first_rank():
            take_best(checkpoint, saving.directory)
        callbacks.append(saving)
        module.history = History(saving.directory, writes=is_first_rank())
        summary, tracked = fit(attach(trainer, [logger, *others], callbacks), module, spec, logger, checkpoint)
        if is_first_rank():
            files.end_attempt(attempt, summary)
            if RunStatus(summary[metrics.STATUS]).has_ended and not config.checkpoint.keep_finished:
                drop_checkpoints(saving.directory)
    rows = module.history if module.history.is_in_memory else ()  # else they are read from the directory
    return Result(summary, files.path, tracked.directory, tracked.url, attempt, rows)


def fit(
    trainer: L.Trainer, module: FederatedModule, spec: RunSpec, logger: WandbLogger | None, checkpoint: Path | None
) -> tuple[dict[str, Any], Tracked]:
    """Train to the end; returns the summary and where W&B has the run, whose log says how it ended whatever happens."""
    summary: dict[str, Any] = {metrics.STATUS: RunStatus.CRASHED.value}
    tracked = Tracked()
    try:
        trainer.fit(module, ckpt_path=checkpoint, weights_only=True)
        summary = summarise(module, spec.run_id)
        Ranks.leave()
        if logger is not None and summary[metrics.STATUS] == RunStatus.FINISHED:
            send_model(logger, spec)
    except Exception as error:
        failure = translated(error, trainer.current_epoch + 1, type(module.network.module))
        summary[metrics.CRASH_CAUSE] = cause_of(failure).value
        if failure is error:
            raise
        raise failure from error
    except SystemExit:  # how Lightning ends a run on the second Ctrl-C
        raise KeyboardInterrupt from None
    finally:
        if logger is not None:
            tracked = close_logger(logger, summary, alert=spec.config.tracking.alert)
    return summary, tracked


def send_model(logger: WandbLogger, spec: RunSpec) -> None:
    """Log the model that ``tracking.artifacts`` names, as ``export`` writes it."""
    which = spec.config.tracking.artifacts
    if which == "none":
        return
    with tempfile.TemporaryDirectory() as directory:
        files = export(spec.directory, Path(directory, "model.pt"), "best" if which == "best" else "last")
        log_model(logger, f"model-{spec.run_id}", files, json.loads(files[-1].read_text(encoding="utf-8")))


def translated(error: Exception, round: int, model: type) -> Exception:
    """What ended a run, as an error whose type says why: code of the user's, or memory; else the error itself."""
    if isinstance(error, UserError | OSError):
        return error
    if isinstance(error, MemoryError | torch.OutOfMemoryError):
        return OutOfMemory(
            f"round {round}: out of memory: {' '.join(str(error).split())}; a smaller batch_size or cohort_chunk "
            "needs less, and --continue goes on from the newest checkpoint"
        )
    return explain(error, round, model) or error


def is_first_rank() -> bool:
    """Whether this process logs and saves: the only one, or the first of a distributed run."""
    return int(rank_zero_only.rank) == 0  # type: ignore[attr-defined]


def summarise(module: FederatedModule, identifier: str) -> dict[str, Any]:
    rounds = len(module.history)
    status = RunStatus.FINISHED
    if module.scoreboard.diverged_round is not None:
        status = RunStatus.DIVERGED
    elif rounds < (module.config.num_rounds or 0):  # Ctrl-C, or the Trainer's own max_time
        status = RunStatus.INTERRUPTED
    return {
        "run": identifier,
        metrics.STATUS: status.value,
        metrics.ROUNDS: rounds,
        **module.scoreboard.summary(),
        **{key: module.history[-1][key] for key in (metrics.EPSILON,) if module.history and key in module.history[-1]},
        metrics.FINGERPRINT: module.fingerprint(),
    }


def make_trainer(spec: RunSpec) -> L.Trainer:
    """Return the Trainer of a run, still without logger and callbacks; UserError for what Lightning refuses."""
    config = spec.config
    arguments: dict[str, Any] = {
        "max_epochs": config.num_rounds,
        "logger": False,
        "plugins": [AtomicCheckpointIO()],
        "default_root_dir": config.output.dir,
        "enable_checkpointing": False,  # Lightning's own: ``attach`` brings ours
        "enable_model_summary": False,
        "num_sanity_val_steps": 0,
        **device_arguments(config.device),
        **config.trainer,
    }
    if arguments.get("enable_progress_bar", True) and is_first_rank():
        arguments["callbacks"] = [RoundProgress(spec.title)]
    try:
        return L.Trainer(**arguments)
    except (TypeError, ValueError, RuntimeError, ImportError, MisconfigurationException) as error:
        given = (
            " ".join(f"trainer.{name}={value}" for name, value in config.trainer.items()) or f"device={config.device}"
        )
        raise UserError(f"{given} is refused by Lightning: {' '.join(str(error).split())}") from None


def make_callbacks(paths: list[str]) -> list[L.Callback]:
    """Return a new callback for each dotted path; UserError where one is not found or is no callback of Lightning."""
    found = []
    for path in paths:
        module, _, name = path.rpartition(".")
        try:
            made = getattr(importlib.import_module(module), name)()
        except (ImportError, AttributeError, ValueError, TypeError) as error:
            raise UserError(f"callbacks=[{path}] cannot be made: {error}") from None
        if not isinstance(made, L.Callback) or isinstance(made, Algorithm):
            raise UserError(f"callbacks=[{path}] gives a {type(made).__name__}, not a callback that watches a run")
        found.append(made)
    return found


def attach(trainer: L.Trainer, loggers: Sequence[Logger | None], callbacks: list[L.Callback]) -> L.Trainer:
    """Return the Trainer with its loggers and callbacks; those that save checkpoints run last."""
    trainer.loggers = [logger for logger in loggers if logger is not None]
    trainer.callbacks += sorted(callbacks, key=lambda callback: isinstance(callback, Checkpoint))  # type: ignore[attr-defined]
    return trainer


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
    values = dict(flatten(to_dict(config)))
    for key, option in all_options(config).items():
        if option.metadata.get("is_device") and values[key] is not None:
            check_device(key, values[key], "null | cpu")


def check_trainer_devices(given: dict[str, Any]) -> None:
    """Refuse a count of processes that would only load the machine, before Lightning starts them."""
    devices = given.get("devices", 1)
    wanted = len(devices) if isinstance(devices, list) else devices
    if isinstance(wanted, str):
        wanted = int(wanted) if wanted.isdecimal() else 1  # others are Lightning's to judge
    most = max(FEW_DEVICES, os.cpu_count() or 1, torch.cuda.device_count())
    if isinstance(wanted, int) and wanted > most:
        raise UserError(f"trainer.devices={devices} starts as many processes on this machine; allowed: 1 to {most}")


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
