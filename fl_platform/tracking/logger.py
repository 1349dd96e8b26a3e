"""The W&B side of a run: a real WandbLogger, offline unless asked otherwise, with ``round`` as the x axis."""

import logging
import os
import shutil
import time
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import lightning as L
import wandb
from lightning.pytorch.loggers import WandbLogger
from wandb.sdk.mailbox.mailbox_handle import ServerResponseError

from fl_platform.config.resolve import RunSpec
from fl_platform.errors import UserError
from fl_platform.runs import metrics, wandb_logs
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.record import PROVENANCE, RunRecord, one_row_per_round
from fl_platform.runs.status import Ending, RunStatus
from fl_platform.tracking.identity import installed_packages

OFFLINE = "offline-run-"
EARLIER = "earlier-"
"""What is put before the name of an offline log whose rounds a newer one holds as well."""
MOST_SECONDS_TO_WRITE = 10.0
NO_ROOM = 1 << 16  # bytes: on a full disk the end is never written


def open_logger(spec: RunSpec, about: RunRecord) -> WandbLogger | None:
    """Return the logger of a run that ``about`` describes, or None for tracking.mode=disabled.

    Raises UserError where W&B refuses.

    Under ``wandb agent`` the run id is the agent's; ours is in the config as ``run.id`` either way.
    """
    tracking = spec.config.tracking
    if tracking.mode == "disabled":
        return None
    offline = tracking.mode == "offline"
    mode: Literal["offline", "online"] = "offline" if offline else "online"
    wandb.util.pd_available = False  # frames are told by the name of their type; else every list imports pandas
    # for the whole process, not this run alone: offline, W&B then sends and imports nothing for its telemetry
    wandb.setup(wandb.Settings(mode=mode))
    if not offline and not logged_in():
        raise UserError(
            "tracking.mode=online needs a W&B account: "
            "run `wandb login` or set WANDB_API_KEY, or use tracking.mode=offline"
        )
    logging.raiseExceptions = False  # on a full disk W&B's debug log would print a traceback a line
    spec.output.mkdir(parents=True, exist_ok=True)
    wandb_id = os.environ.get("WANDB_RUN_ID", about.run_id)
    if offline:
        set_aside(spec.output / "wandb", wandb_id)
    try:
        # not by WandbLogger, which passes a setting that wandb warns of and makes trainer/global_step the x axis
        run = wandb.init(
            project=about.project,
            entity=about.entity or None,
            name=about.name,
            id=wandb_id,
            resume="allow",
            dir=str(spec.output.absolute()),  # W&B's service may have been started in another directory
            mode=mode,
            group=about.group,
            tags=about.tags,
            config=about.config,
            settings=wandb.Settings(
                console="wrap" if with_default(tracking.console, not offline) else "off",
                silent=True,
                save_code=False,
                disable_git=True,
                x_disable_stats=offline,
                x_save_requirements=False,  # ``save_requirements`` does it in a hundredth of the time
            ),
        )
    except wandb.errors.Error as error:  # bad names, a refused key, no answer from the server
        raise UserError(
            f"W&B refuses tracking.mode={tracking.mode}, tracking.project={tracking.project}: "
            f"{' '.join(str(error).split())}; tracking.mode=offline needs no server"
        ) from None
    except ServerResponseError as error:  # of W&B's local service, when another process that shares it has the run
        raise UserError(
            f"W&B refuses run {wandb_id}: {error}; wait for the process that has it or stop it, "
            "or unset WANDB_SERVICE to not share its W&B service"
        ) from None
    run.define_metric(metrics.ROUND)
    run.define_metric("*", step_metric=metrics.ROUND, step_sync=False)
    save_requirements(run)
    return WandbLogger(experiment=run, save_dir=spec.output)


def save_requirements(run: wandb.Run) -> None:
    """Give a run the list of installed packages, as the file that W&B calls ``requirements.txt``."""
    place = Path(run.dir, "requirements.txt")
    place.write_text("\n".join(installed_packages()) + "\n", encoding="utf-8")
    run.save(str(place), base_path=run.dir, policy="now")


def with_default(given: bool | None, default: bool) -> bool:
    """A key that may be null."""
    return default if given is None else given


def set_aside(directory: Path, wandb_id: str) -> None:
    """Rename the offline logs of earlier starts of a run, unless a process writes them.

    The new log holds the rounds of those that were not synced once more, so that `wandb sync offline-run-*` sends every
    round once. What is renamed can still be read, and synced by its name.
    """
    for path in directory.glob(f"{OFFLINE}*-{wandb_id}"):
        if not any(_is_written(log) for log in path.glob("*.wandb")):
            names = (f"{EARLIER}{path.name}", *(f"{EARLIER}{number}-{path.name}" for number in range(2, 1000)))
            free = next(place for name in names if not (place := path.with_name(name)).exists())
            path.rename(free)  # W&B's names are of the second a run started in: two may be equal


def _is_written(log: Path) -> bool:
    try:
        return wandb_logs.read_with_status(log).status is RunStatus.RUNNING
    except UserError:  # damaged beyond reading
        return False


def synced_rounds(directory: Path, wandb_id: str) -> int:
    """The last round in offline logs of a run that were synced: the server has the rounds up to it."""
    found = [
        int(round)
        for log in directory.glob(f"*{OFFLINE}*-{wandb_id}/*.wandb")
        if log.with_name(f"{log.name}.synced").exists()
        for round in one_row_per_round(wandb_logs.read(log).history)[metrics.ROUND].to_pylist()
    ]
    return max(found, default=0)


def logged_in() -> bool:
    """Whether a key is configured; asks no server."""
    return bool(os.environ.get("WANDB_API_KEY") or wandb.login(prompt=False, verify=False))


class EarlierRounds(L.Callback):
    """Logs the rounds before a resume once more, but for those that the server has.

    Offline, W&B opens a second directory and may have lost rows; the first is set aside.
    """

    def __init__(self, logger: WandbLogger) -> None:
        self._run = logger.experiment

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        """Also where no round is left to train, which on_train_start would miss."""
        if self._run.resumed:
            known = self._run.summary.get(metrics.ROUND, 0)
        else:
            known = synced_rounds(Path(self._run.settings.sync_dir).parent, self._run.id)
        for row in pl_module.history:  # type: ignore[union-attr]
            if row[metrics.ROUND] > known:
                self._run.log(row)


class EngineNote(L.Callback):
    """Adds the engine to what a run records about itself, once it is chosen or taken from a checkpoint."""

    def __init__(self, files: RunDirectory, logger: WandbLogger | None) -> None:
        self._files, self._run = files, None if logger is None else logger.experiment

    def on_fit_start(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        found = {"engine": pl_module.engine_choice.engine}  # type: ignore[union-attr]
        self._files.add_provenance(found)
        if self._run is not None:
            known = dict(self._run.config.get(PROVENANCE, {}))
            self._run.config.update({PROVENANCE: known | found}, allow_val_change=True)


@dataclass(frozen=True)
class Tracked:
    """Where W&B has a run: its directory on this machine, and online its page."""

    directory: Path | None = None
    url: str | None = None


def log_model(logger: WandbLogger, name: str, files: Iterable[Path], card: dict[str, Any]) -> None:
    """Add an artifact of type model with these files to the run; ``card`` is what W&B shows beside it."""
    artifact = wandb.Artifact(name, type="model", metadata=card)
    for path in files:
        artifact.add_file(str(path))
    logger.experiment.log_artifact(artifact)


def page(logger: WandbLogger) -> str | None:
    """The address of the run's page; None for an offline run, which has none."""
    return None if logger.experiment.offline else logger.experiment.url


def close_logger(logger: WandbLogger, summary: dict[str, Any], *, alert: bool = False) -> Tracked:
    """Write the summary, end the W&B run, and return where it is; ``alert`` sends an alert if the run diverged."""
    run = logger.experiment
    status = RunStatus(summary[metrics.STATUS])
    run.summary.update({metrics.ENDING: Ending.of(status).value, **summary})
    if alert and status is RunStatus.DIVERGED:
        run.alert(f"{run.name} diverged", f"in round {summary[metrics.DIVERGED_ROUND]}", "WARN")
    directory, url = Path(run.settings.sync_dir), page(logger)
    run.finish(exit_code=status.exit_code)
    wait_until_written(directory)
    return Tracked(directory, url)


def wait_until_written(directory: Path) -> None:
    """W&B's service may still be writing when a run is finished: a report right after it would call it crashed."""
    deadline = time.monotonic() + MOST_SECONDS_TO_WRITE
    for log in directory.glob("run-*.wandb"):
        while wandb_logs.exit_code(log) is None and time.monotonic() < deadline:
            if shutil.disk_usage(directory).free < NO_ROOM:
                return
            time.sleep(0.02)
