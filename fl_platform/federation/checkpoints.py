"""Checkpoints that are complete or absent: written aside, named by their content, then moved into place."""

import json
import os
import zipfile
import zlib
from pathlib import Path
from typing import Any

import lightning as L
import torch
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.plugins.io import CheckpointIO

from fl_platform.config.migrate import upgraded
from fl_platform.errors import UserError
from fl_platform.runs.checkpoint_files import file_name, is_valid, sorted_checkpoints

KEPT = 2
PARTS = {"federated", "state_dict", "callbacks", "loops", "epoch", "pytorch-lightning_version"}


class AtomicCheckpointIO(CheckpointIO):
    """Saves to ``round-<n>-<digest>.ckpt``: a file whose content does not match its name is never loaded."""

    def save_checkpoint(self, checkpoint: dict[str, Any], path: Any, storage_options: Any = None) -> None:
        directory = Path(path)
        directory.mkdir(parents=True, exist_ok=True)
        partial = directory / ".partial"  # an attempt has one writer: what a kill left is overwritten
        try:
            with open(partial, "wb") as file:
                try:
                    torch.save(checkpoint, file)
                except RuntimeError as error:  # how torch's writer passes on a full disk, and Ctrl-C
                    raise cause_of(error) from None
                file.flush()
                os.fsync(file.fileno())
            saved = directory / file_name(checkpoint["epoch"] + 1, partial)
            os.replace(partial, saved)
        finally:
            partial.unlink(missing_ok=True)
        sync_directory(directory)
        found = sorted_checkpoints(directory)
        earlier = [path for round, path in found if round <= checkpoint["epoch"]]
        for _, path in found:
            if path not in (saved, *earlier[: KEPT - 1]):  # too old, or damaged and written again
                path.unlink(missing_ok=True)

    def load_checkpoint(self, path: Any, map_location: Any = None, weights_only: bool | None = None) -> dict[str, Any]:
        """Return what ``save_checkpoint`` was given; UserError for a file that lacks a part of it."""
        loaded = load(Path(path))
        if not loaded.keys() >= PARTS:
            raise foreign(Path(path))
        return loaded

    def remove_checkpoint(self, path: Any) -> None:
        Path(path).unlink(missing_ok=True)


class RoundCheckpoint(Checkpoint):
    """Saves every few rounds and whenever the run ends, after the round has been logged."""

    def __init__(self, directory: Path, every: int) -> None:
        self.directory, self.every = directory, every

    def on_train_epoch_end(self, trainer: L.Trainer, pl_module: L.LightningModule) -> None:
        round = trainer.current_epoch + 1
        if (self.every and round % self.every == 0) or trainer.should_stop or round == trainer.max_epochs:
            trainer.save_checkpoint(self.directory)


def cause_of(error: RuntimeError) -> BaseException:
    """What the file system or the user said while torch was writing."""
    found: BaseException | None = error
    while found is not None and not isinstance(found, OSError | KeyboardInterrupt):
        found = found.__context__
    return found or error


def sync_directory(directory: Path) -> None:
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
    try:
        config = json.loads(loaded["federated"]["config"])
    except (KeyError, TypeError, ValueError, RecursionError):
        config = None
    if not isinstance(config, dict):
        raise foreign(path)
    return upgraded(config)


def load(path: Path, mmap: bool = False) -> dict[str, Any]:
    """Tensors and plain values; a file that holds anything else is refused before any of it is called."""
    try:
        loaded = torch.load(path, map_location="cpu", weights_only=True, mmap=mmap)
    except OSError:
        raise
    except Exception as error:  # a damaged zip or pickle fails in a dozen ways
        raise foreign(path) from error
    if not isinstance(loaded, dict):
        raise foreign(path)
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
    return UserError(f"checkpoint {path} was not written by a run: it cannot be read as tensors and plain values")
