"""Carry out one run: Trainer, logger, checkpoints, result."""

import contextlib
import dataclasses
import json
import sys
import tempfile
from collections.abc import Callable
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
from fl_platform.federation.checkpoints import RoundCheckpoint, drop_checkpoints, take_best
from fl_platform.federation.export import export
from fl_platform.federation.history import History
from fl_platform.federation.module import FederatedModule
from fl_platform.federation.named_code import trust
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
    check_trainer_keys(config.trainer)
    check_accelerator(config.trainer.get("accelerator"))
    check_trainer_devices(config.trainer)
    check_devices(config)
    check_packages(config.tracking.also)
    own_callbacks = make_callbacks(config.callbacks)
    trainer = make_trainer(spec)
    files = RunDirectory(spec.output, spec.run_id)
    check_writable(files.output, f"output.dir={files.output}")
    algorithm = make_algorithm(config)
    module = build_module(config, algorithm)
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
                if address := page(logger):
                    say(f"W&B run: {address}")
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
    except Exception as error:
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
    print(message, file=sys.stderr, flush=True)
