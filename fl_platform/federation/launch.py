"""Carry out one run: Trainer, logger, checkpoints, result."""

import contextlib
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.loggers import Logger, WandbLogger

from fl_platform.algorithms.base import Algorithm
from fl_platform.config.resolve import RunSpec
from fl_platform.config.schema import Config
from fl_platform.engines.ranks import Ranks
from fl_platform.federation.build import build, make_algorithm
from fl_platform.federation.checkpoints import RoundCheckpoint, take_best
from fl_platform.federation.export import export
from fl_platform.federation.history import History
from fl_platform.federation.module import FederatedModule
from fl_platform.federation.named_code import trust
from fl_platform.federation.one_process import OneProcess
from fl_platform.federation.progress import GracefulStop, RowFile
from fl_platform.federation.resource_file import ResourceFile
from fl_platform.federation.result import Result
from fl_platform.federation.trainer import (
    attach,
    check_accelerator,
    check_devices,
    check_trainer_devices,
    check_trainer_keys,
    is_first_rank,
    make_callbacks,
    make_trainer,
    quieten_lightning,
)
from fl_platform.federation.user_code import translated
from fl_platform.runs import metrics, resources
from fl_platform.runs.checkpoint_files import CHECKPOINTS, drop_checkpoints
from fl_platform.runs.directory import RunDirectory, check_writable, rounds_file
from fl_platform.runs.liveness import at_work, ending_of
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
    page,
    with_default,
)
from fl_platform.tracking.loggers import EarlierRoundsElsewhere, check_packages, open_others
from fl_platform.tracking.media import Media


def launch(spec: RunSpec, checkpoint: Path | None = None, should_stop: Callable[[], bool] | None = None) -> Result:
    """Carry out a run, from the start or a checkpoint, to its end or the round after which ``should_stop`` is true.

    Returns how it ended. Raises UserError, before data is read or anything is opened, for what the Trainer, the
    devices or ``output.dir`` do not allow; then for data and models that are refused.
    """
    spec = dataclasses.replace(spec, directory=spec.directory.absolute())  # code of the user's may call os.chdir
    checkpoint = checkpoint and checkpoint.absolute()
    config = spec.config
    trust(config)
    torch.set_num_threads(1)  # until the engine says how the configured threads are used
    quieten_lightning()
    check(config)
    own_callbacks = make_callbacks(config.callbacks)
    trainer = make_trainer(spec)
    files = RunDirectory(spec.output, spec.run_id)
    check_writable(files.output, f"output.dir={files.output}")
    algorithm = make_algorithm(config)
    module = build_module(config, algorithm)
    stop = GracefulStop(should_stop)
    hint = "; what was saved stays, and --continue goes on from it"
    with writing(f"output.dir={files.output}", hint), contextlib.ExitStack() as held:
        opened = open_attempt(spec, files, checkpoint, held)
        if opened.wandb is not None:
            stop.on_terminate = opened.wandb.experiment.mark_preempting  # an online sweep starts the run again
        saving = save_rounds(spec, opened, checkpoint)
        module.history = History(saving.directory, writes=is_first_rank())
        callbacks = [OneProcess(), algorithm, stop, *own_callbacks, *recorders(spec, files, opened), saving]
        summary, tracked = fit(attach(trainer, opened.loggers, callbacks), module, spec, opened.wandb, checkpoint)
        if is_first_rank():
            files.end_attempt(opened.attempt, summary)
            if RunStatus(summary[metrics.STATUS]).has_ended and not config.checkpoint.keep_finished:
                drop_checkpoints(saving.directory)
    rows = module.history if module.history.is_in_memory else ()  # else they are read from the directory
    return Result(summary, files.path, tracked.directory, tracked.url, opened.attempt, rows)


def check(config: Config) -> None:
    """Raise UserError for Trainer keys, devices and packages that this machine does not have."""
    check_trainer_keys(config.trainer)
    check_accelerator(config.trainer.get("accelerator"))
    check_trainer_devices(config.trainer)
    check_devices(config)
    check_packages(config.tracking.also)


@dataclass(frozen=True)
class Opened:
    """The attempt under way, and the loggers of the first rank; other ranks write nothing."""

    attempt: Path
    is_continued: bool  # the attempt that the checkpoint is of goes on
    wandb: WandbLogger | None = None
    others: Sequence[Logger] = ()

    @property
    def loggers(self) -> list[Logger | None]:
        return [self.wandb, *self.others]


def open_attempt(spec: RunSpec, files: RunDirectory, checkpoint: Path | None, held: contextlib.ExitStack) -> Opened:
    """Begin an attempt, or go on with the one that the checkpoint is of, and open its loggers.

    ``held`` takes the attempt's lock. Raises UserError where another process is at work on it.
    """
    attempt = files.attempts
    is_continued = checkpoint is not None and checkpoint.resolve().is_relative_to(attempt.resolve())
    if not is_first_rank():
        return Opened(attempt, is_continued)
    if checkpoint and is_continued:
        attempt = checkpoint.parent.parent
        held.enter_context(at_work(attempt))
    about = describe(spec)
    logger = open_logger(spec, about)
    if logger is not None and (address := page(logger)):
        say(f"W&B run: {address}")
    if not is_continued:
        attempt = files.start_attempt()
        held.enter_context(at_work(attempt))
    files.write_description(about)
    return Opened(attempt, is_continued, logger, open_others(spec, attempt))


def recorders(spec: RunSpec, files: RunDirectory, opened: Opened) -> list[L.Callback]:
    """The callbacks that write what the rounds bring, to files and loggers."""
    if not is_first_rank():
        return []
    tracking, logger = spec.config.tracking, opened.wandb
    found: list[L.Callback] = [RowFile(rounds_file(opened.attempt)), EngineNote(files, logger)]
    if logger is not None:
        found.append(EarlierRounds(logger))
    if tracking.resources_every:
        found.append(ResourceFile(opened.attempt / resources.FILE, tracking.resources_every))
    if logger is not None and with_default(tracking.media, tracking.mode == "online"):
        found.append(Media(logger))
    if opened.others:
        found.append(EarlierRoundsElsewhere(opened.others))
    return found


def save_rounds(spec: RunSpec, opened: Opened, checkpoint: Path | None) -> RoundCheckpoint:
    """The callback that saves checkpoints; a new attempt from a checkpoint takes over the best one beside it."""
    config = spec.config
    keep_best = config.checkpoint.keep_best or config.tracking.artifacts == "best"
    saving = RoundCheckpoint(opened.attempt / CHECKPOINTS, config.checkpoint.every, keep_best=keep_best)
    if checkpoint and not opened.is_continued and keep_best and is_first_rank():
        take_best(checkpoint, saving.directory)
    return saving


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
    except BaseException as error:
        failure = translated(error, trainer.current_epoch + 1, type(module.network.module))
        if isinstance(failure, SystemExit | KeyboardInterrupt):  # the former is Lightning's on the second Ctrl-C
            summary[metrics.STATUS] = RunStatus.INTERRUPTED.value
            raise KeyboardInterrupt from None
        summary[metrics.ENDING] = ending_of(failure).value
        if failure is error:
            raise
        raise failure from error
    finally:
        if logger is not None:
            tracked = close_logger(logger, summary, alert=spec.config.tracking.alert)
    return summary, tracked


def build_module(config: Config, algorithm: Algorithm) -> FederatedModule:
    """As ``build``; code of the user's that fails there, a model or a data set, is named."""
    try:
        return build(config, algorithm)
    except BaseException as error:  # sys.exit of the user's code among them
        failure = translated(error, 0, type(algorithm))
        if failure is error:
            raise
        raise failure from error


def send_model(logger: WandbLogger, spec: RunSpec) -> None:
    """Log the model that ``tracking.artifacts`` names, as ``export`` writes it."""
    which = spec.config.tracking.artifacts
    if which == "none":
        return
    with tempfile.TemporaryDirectory() as directory:
        files = export(spec.directory, Path(directory, "model.pt"), "best" if which == "best" else "last")
        log_model(logger, f"model-{spec.run_id}", files, json.loads(files[-1].read_text(encoding="utf-8")))


def summarise(module: FederatedModule, identifier: str) -> dict[str, Any]:
    """The summary of a run as ``result.json`` holds it: how it ended, its measures, the sha256 of its model."""
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


def say(message: str) -> None:
    """Print a line to standard error, at once."""
    print(message, file=sys.stderr, flush=True)
