"""Checkpoints that are complete or absent: written aside, named by their content, then moved into place."""

import json
import os
import shutil
import zipfile
import zlib
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import CheckpointIO

from fl_platform.config.migrate import upgraded
from fl_platform.config.schema import to_dict
from fl_platform.errors import UserError
from fl_platform.runs import formats
from fl_platform.runs.checkpoint_files import (
    best_files,
    best_name,
    file_name,
    is_valid,
    remove_rows,
    round_of,
    sorted_checkpoints,
)

KEPT = 2
PARTS = {"federated", "state_dict", "callbacks", "loops", "epoch", "pytorch-lightning_version"}


class AtomicCheckpointIO(CheckpointIO):
    """Saves to ``round-<n>-<digest>.ckpt``: a file whose content does not match its name is never loaded."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        directory = Path(path)
        saved = write_named(checkpoint, directory, partial(file_name, checkpoint["epoch"] + 1))
        found = sorted_checkpoints(directory)
        earlier = [path for round, path in found if round <= checkpoint["epoch"]]
        for _, path in found:
            if path not in (saved, *earlier[: KEPT - 1]):  # too old, or damaged and written again
                path.unlink(missing_ok=True)
        if "federated" in checkpoint:
            remove_rows(directory, kept=json.loads(checkpoint["federated"]["history_files"]))

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Return what ``save_checkpoint`` was given; UserError for a file that lacks a part of it."""
        loaded = load(Path(path))
        if not loaded.keys() >= PARTS:
            raise foreign(Path(path))
        return loaded

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


class RoundCheckpoint(Checkpoint):
    """Saves every few rounds and whenever the run ends, after the round has been logged.

    ``keep_best`` also keeps the model of the round with the best accuracy, in a file of its own without the state
    that training needs to go on: such a file is small, and written whenever the accuracy rises.
    """

    def __init__(self, directory: Path, every: int, *, keep_best: bool = False) -> None:
        self.directory, self.every, self.keep_best = directory, every, keep_best

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        round = trainer.current_epoch + 1
        if self.keep_best and trainer.is_global_zero and pl_module.scoreboard.top_accuracy_round == round:  # type: ignore[union-attr]
            self._save_best(pl_module, round)
        if (self.every and round % self.every == 0) or trainer.should_stop or round == trainer.max_epochs:
            trainer.save_checkpoint(self.directory)

    def _save_best(self, module: Any, round: int) -> None:
        content = {
            "params": module.algorithm.evaluated_params(module.global_params).cpu(),
            "buffers": module.global_buffers.cpu(),
            "config": json.dumps(to_dict(module.config)),
            "format": formats.CHECKPOINT,
        }
        saved = write_named(content, self.directory, partial(best_name, round))
        for path in best_files(self.directory):
            if path != saved:
                path.unlink(missing_ok=True)


def check_length(name: str, saved: Any, own: torch.Tensor) -> None:
    """Raise UserError unless a checkpoint's tensor has the length of the module's own."""
    if not isinstance(saved, torch.Tensor) or saved.shape != own.shape:
        count = saved.numel() if isinstance(saved, torch.Tensor) else 0
        raise UserError(
            f"the checkpoint has {count} values of {name} and the model {own.numel()}: "
            "the model was changed; leave out --continue or --resume to start again"
        )


def write_named(content: dict[str, Any], directory: Path, name_of: Callable[[Path], str]) -> Path:
    """Write tensors and plain values to a file that is complete or absent; ``name_of`` its content names it."""
    directory.mkdir(parents=True, exist_ok=True)
    partial_file = directory / ".partial"  # an attempt has one writer: what a kill left is overwritten
    try:
        with open(partial_file, "wb") as file:
            try:
                torch.save(content, file)
            except RuntimeError as error:  # how torch's writer passes on a full disk, and Ctrl-C
                raise cause_of(error) from None
            file.flush()
            os.fsync(file.fileno())
        saved = directory / name_of(partial_file)
        os.replace(partial_file, saved)
    finally:
        partial_file.unlink(missing_ok=True)
    sync_directory(directory)
    return saved


def take_best(checkpoint: Path, directory: Path) -> None:
    """Copy the best model beside a checkpoint into ``directory``, where a run goes on that starts from it.

    A best model of a later round than the checkpoint's is left: the run will come to it itself.
    """
    for path in best_files(checkpoint.parent):
        if round_of(path) <= round_of(checkpoint) and is_valid(path):
            directory.mkdir(parents=True, exist_ok=True)
            shutil.copyfile(path, directory / path.name)


def cause_of(error: RuntimeError) -> BaseException:
    """What the file system or the user said while torch was writing."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError | KeyboardInterrupt):
        found = found.__context__
    return found or error


def sync_directory(directory: Path) -> None:
    """Wait until the names in a directory are on the disk."""
    handle = os.open(directory, os.O_RDONLY)
    try:
        os.fsync(handle)
    finally:
        os.close(handle)


def check_valid(path: Path) -> Path:
    """Return the path of a checkpoint; UserError where there is none or its content does not match its name."""
    if not path.exists():
        raise UserError(f"--resume {path}: no such checkpoint")
    if not path.is_file():
        raise UserError(f"--resume {path} is not a regular file; give a .ckpt file")
    if not is_valid(path):
        raise UserError(f"--resume {path}: the file is damaged or was renamed; its content does not match its name")
    return path


def saved_config(path: Path) -> dict[str, Any]:
    """The configuration of the run that wrote a checkpoint, with the keys of this version."""
    loaded = load(path, mmap=True)
    if not loaded.keys() >= PARTS or not has_sound_members(path):
        raise foreign(path)
    return config_in(loaded["federated"], path)


def config_in(values: Any, path: Path) -> dict[str, Any]:
    """The configuration that a loaded file holds as JSON under ``config``; UserError where it holds none."""
    try:
        config = json.loads(values["config"])
    except (KeyError, TypeError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise foreign(path)
    return upgraded(config)


def diverged_round(path: Path) -> int | None:
    """The round in which the run that wrote a checkpoint diverged, or None."""
    try:
        found = json.loads(load(path, mmap=True)["federated"]["scoreboard"])["diverged_round"]
    except (KeyError, TypeError, ValueError):
        raise foreign(path) from None
    return found if isinstance(found, int) else None


def load(path: Path, mmap: bool = False) -> dict[str, Any]:
    """Tensors and plain values; a file that holds anything else is refused before any of it is called.

    Raises UserError for such a file, and for one of a newer format.
    """
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except OSError:
        raise
    except Exception as error:  # a damaged zip or pickle fails in a dozen ways
        raise foreign(path) from error
    if not isinstance(loaded, dict):
        raise foreign(path)
    values = loaded.get("federated", loaded)  # a best model is no state of a federation
    if isinstance(values, dict):
        formats.check_format(f"checkpoint {path}", values.get("format", 1), formats.CHECKPOINT)
    return loaded


def has_sound_members(path: Path) -> bool:
    """Whether the checksums inside the file hold, which torch writes and does not read."""
    try:
        with zipfile.ZipFile(path) as members:
            return members.testzip() is None
    except (zipfile.BadZipFile, ValueError, EOFError, zlib.error):
        return False
    except (NotImplementedError, RuntimeError):  # a flipped bit asks for a compression or encryption zipfile has not
        return False


def foreign(path: Path) -> UserError:
    """The error for a checkpoint that holds other objects than tensors and plain values."""
    return UserError(f"checkpoint {path} was not written by a run: it cannot be read as tensors and plain values")
