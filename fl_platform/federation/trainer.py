"""The Trainer of a run: its arguments, devices and callbacks, and what of Lightning's a run may not set."""

import inspect
import logging
import os
import re
import warnings
from collections.abc import Sequence
from types import NoneType
from typing import Any

import lightning as L
import torch
from lightning.fabric.plugins.environments.lightning import LightningEnvironment
from lightning.fabric.utilities.exceptions import MisconfigurationException
from lightning.pytorch.callbacks import Checkpoint
from lightning.pytorch.loggers import Logger
from lightning.pytorch.utilities import rank_zero_only

from fl_platform.algorithms.base import Algorithm
from fl_platform.config.plugins import import_module
from fl_platform.config.resolve import RunSpec, all_options
from fl_platform.config.schema import Config, flatten, shown, to_dict
from fl_platform.errors import UserCodeError, UserError, did_you_mean
from fl_platform.federation.checkpoints import AtomicCheckpointIO
from fl_platform.federation.progress import RoundProgress
from fl_platform.federation.user_code import translated

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
        trainer = L.Trainer(**arguments)
    except (TypeError, ValueError, AttributeError, RuntimeError, ImportError, MisconfigurationException) as error:
        given = (
            " ".join(f"trainer.{name}={value}" for name, value in config.trainer.items()) or f"device={config.device}"
        )
        raise UserError(f"{given} is refused by Lightning: {' '.join(str(error).split())}") from None
    check_nodes(trainer)
    return trainer


def check_nodes(trainer: L.Trainer) -> None:
    """Refuse several nodes where nothing says where the first is: Lightning would wait for the others without end."""
    environment = getattr(trainer.strategy, "cluster_environment", None)
    if trainer.num_nodes > 1 and isinstance(environment, LightningEnvironment) and "MASTER_ADDR" not in os.environ:
        raise UserError(
            f"trainer.num_nodes={trainer.num_nodes}: nothing here starts processes on other nodes; use a launcher, "
            "such as srun or torchrun, or give MASTER_ADDR, MASTER_PORT and NODE_RANK on every node"
        )


def make_callbacks(paths: list[str]) -> list[L.Callback]:
    """Return a new callback for each dotted path; UserError unless it is a class derived from Lightning's Callback.

    Nothing else is called.
    """
    found = []
    for path in paths:
        module, _, name = path.rpartition(".")
        if not module:
            raise UserError(f"callbacks=[{path}] is no dotted path of a class, such as my_package.MyCallback")
        kind = getattr(import_module(module, f"callbacks=[{path}]"), name, None)
        if not (isinstance(kind, type) and issubclass(kind, L.Callback)) or issubclass(kind, Algorithm):
            raise UserError(f"callbacks=[{path}] is not a class of callbacks that watch a run; it is not called")
        try:
            found.append(kind())
        except (Exception, SystemExit) as error:  # noqa: BLE001, of the user's code
            failure = translated(error, 0, kind)
            raise (
                failure
                if isinstance(failure, UserCodeError)
                else UserError(f"callbacks=[{path}] cannot be made: {type(error).__name__}: {error}")
            ) from None
    return found


def attach(trainer: L.Trainer, loggers: Sequence[Logger | None], callbacks: list[L.Callback]) -> L.Trainer:
    """Return the Trainer with its loggers and callbacks; those that save checkpoints run last."""
    trainer.loggers = [logger for logger in loggers if logger is not None]
    trainer.callbacks += sorted(callbacks, key=lambda callback: isinstance(callback, Checkpoint))  # type: ignore[attr-defined]
    return trainer


def device_arguments(device: str) -> dict[str, Any]:
    """The arguments of ``lightning.Trainer`` for ``device=``; UserError for a device that is not there."""
    if device == "auto":
        return {"accelerator": "gpu" if torch.cuda.is_available() else "cpu", "devices": 1}
    check_device("device", device, "auto | cpu")
    kind, _, index = device.partition(":")
    if kind == "cpu":
        return {"accelerator": "cpu", "devices": 1}
    return {"accelerator": "gpu", "devices": [int(index)] if index else 1}


def check_device(key: str, device: str, always: str) -> None:
    """Raise UserError unless ``key`` names the CPU or a CUDA device that is here; ``always`` is allowed everywhere."""
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


def check_accelerator(name: Any) -> None:
    """Refuse GPUs where there are none, and those of Apple, on which float64 sums cannot be taken."""
    if not isinstance(name, str | None):
        raise UserError(f"trainer.accelerator={shown(name)} is not allowed; it must be a name, as cpu")
    if name in ("gpu", "cuda") and not torch.cuda.is_available():
        raise UserError(f"trainer.accelerator={name}: this machine has no CUDA device; leave it out, or use device=cpu")
    if name == "mps" or (name == "auto" and torch.backends.mps.is_available()):
        raise UserError(
            f"trainer.accelerator={name}: GPUs of Apple have no float64, in which sums are taken; use device=cpu"
        )


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
    """Raise UserError for ``trainer.*`` keys that Lightning does not have, or that do not fit federated rounds."""
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
        if known[name].annotation in (bool, bool | None) and not isinstance(value, bool):
            raise UserError(f"trainer.{name}={value} is not allowed; allowed: true | false")
        if known[name].annotation in (int, int | None) and type(value) not in (int, NoneType):
            raise UserError(f"trainer.{name}={value} is not allowed; it must be a whole number")
        if name == "strategy" and re.search("spawn|fork|notebook", str(value)):
            raise UserError(f"trainer.{name}={value} copies a process that has threads; use trainer.strategy=ddp")


def quieten_lightning() -> None:
    """Lightning's greetings, tips and advice about data loaders do not apply to rounds."""
    for name in ("lightning.pytorch", "lightning.fabric", "lightning.pytorch.utilities.rank_zero"):
        logging.getLogger(name).setLevel(logging.WARNING)
    for message in (
        ".*does not have many workers.*",
        ".*logging interval.*",
        ".*configure_optimizers.*",
        ".*save_dir.*",
        ".*RNN module weights are not part of single contiguous chunk.*",  # they are views of one flat vector
    ):
        warnings.filterwarnings("ignore", message)
    # how Lightning 2.6 asks torch's pytree, once a batch
    warnings.filterwarnings("ignore", r".*isinstance\(treespec, LeafSpec\)", FutureWarning)


def is_first_rank() -> bool:
    """Whether this process logs and saves: the only one, or the first of a distributed run."""
    return int(rank_zero_only.rank) == 0  # type: ignore[attr-defined]
