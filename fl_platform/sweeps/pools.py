"""Where trials run: in processes of this machine, or one after another in the launcher's own."""

import os
import shlex
import signal
import socket
import subprocess
import sys
import traceback
from collections.abc import Callable, Mapping
from contextlib import redirect_stderr, redirect_stdout
from itertools import takewhile
from pathlib import Path
from typing import Protocol

from fl_platform.errors import NO_SPACE_LEFT, DiskFull, UserCodeError, UserError, sentence
from fl_platform.sweeps.trials import Trial


class Pool(Protocol):
    """Starts trials and reports how they end."""

    def capacity(self) -> int:
        """How many trials may run at the same time."""

    def start(self, trial: Trial, variables: dict[str, str]) -> int:
        """Begin a trial; returns the id of its process, 0 where it has none on this machine."""

    def ended(self) -> Mapping[int, int | None]:
        """Trial number -> exit code, of those that ended since the last call.

        Negative is a signal; None is a trial that was lost with the machine it ran on, or before it began. Raises
        UserError where no trial can be started any more.
        """

    def stop(self, number: int) -> None:
        """Ask a trial to finish its round, save and end."""

    def kill(self) -> None:
        """End every trial at once."""

    def close(self) -> None:
        """Release what the pool holds."""


class ProcessPool:
    """One process per trial, each in a process group of its own so that Ctrl-C reaches the launcher alone."""

    def __init__(self, size: int, gpus: list[str], lock: int) -> None:
        self._size, self._gpus, self._lock = size, gpus, lock
        self._processes: dict[int, subprocess.Popen[bytes]] = {}
        self._slots: dict[int, int] = {}

    def capacity(self) -> int:
        return self._size

    def start(self, trial: Trial, variables: dict[str, str]) -> int:
        slot = min(set(range(self._size)) - set(self._slots.values()))
        variables = {**variables, **gpu_variables(slot, self._gpus)}
        self._processes[trial.number] = start_process(trial.command, variables, trial.log, pass_fds=(self._lock,))
        self._slots[trial.number] = slot
        return self._processes[trial.number].pid

    def ended(self) -> dict[int, int]:
        codes = {number: process.poll() for number, process in self._processes.items()}
        found = {number: code for number, code in codes.items() if code is not None}
        for number in found:
            del self._processes[number], self._slots[number]
        return found

    def stop(self, number: int) -> None:
        self._processes[number].send_signal(signal.SIGTERM)

    def kill(self) -> None:
        for process in self._processes.values():
            process.kill()
        for process in self._processes.values():
            process.wait()

    def close(self) -> None:
        self.kill()


def start_process(
    command: list[str],
    variables: dict[str, str],
    log: Path,
    *,
    pass_fds: tuple[int, ...] = (),
    preexec_fn: Callable[[], None] | None = None,
) -> "subprocess.Popen[bytes]":
    """A trial's process with a log of its own; a plain ``python`` in the command is this interpreter."""
    with open(begin_log(log, command), "ab") as output:
        try:
            return subprocess.Popen(
                command,
                env=environment_of(variables),
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                pass_fds=pass_fds,
                preexec_fn=preexec_fn,
            )
        except OSError as error:
            raise UserError(f"command={shlex.join(command)} cannot be started: {error}") from None


def begin_log(log: Path, command: list[str]) -> Path:
    """Write the command of a trial to its log; returns the log."""
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, "ab") as output:
        output.write(f"$ {shlex.join(command)}\n".encode())
    return log


def environment_of(variables: Mapping[str, str]) -> dict[str, str]:
    """The environment of a trial's process: this one's, with ``variables``, and a W&B service of its own."""
    search = os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", os.defpath)])
    own = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
    return {**own, "PATH": search, **variables}


class InProcessPool:
    """Trials one after another in this process: no start-up, no parallelism; for many short trials.

    ``meanwhile`` is called after every round, so that the launcher can act while a trial runs.
    """

    def __init__(self, forget_wandb: Callable[[], None]) -> None:
        self._forget_wandb = forget_wandb
        self._codes: dict[int, int] = {}
        self._is_to_stop = False
        self.meanwhile: Callable[[], None] | None = None

    def capacity(self) -> int:
        return 1

    def start(self, trial: Trial, variables: dict[str, str]) -> int:
        # torch takes its threads from the configuration; W&B reads its variables only once
        own = {name: value for name, value in variables.items() if name.startswith("WANDB_")}
        earlier = {name: os.environ[name] for name in own if name in os.environ}
        os.environ.update(own)
        if trial.spec.config.tracking.mode != "disabled":
            self._forget_wandb()
        trial.log.parent.mkdir(parents=True, exist_ok=True)
        try:
            with open(trial.log, "a", encoding="utf-8") as log, redirect_stdout(log), redirect_stderr(log):
                self._codes[trial.number] = self._run(trial)
        finally:
            for name in own:
                del os.environ[name]
            os.environ.update(earlier)
            if trial.spec.config.tracking.mode != "disabled":
                self._forget_wandb()  # or it would look for this trial's parameters in whatever is run next
        return 0

    def _run(self, trial: Trial) -> int:
        """Return the exit code; an exception of a trial is its failure, not the sweep's, unless the disk is full."""
        from fl_platform.federation.launch import launch

        try:
            checkpoint = trial.files.newest_checkpoint() if trial.files.result() is None else None
            self._is_to_stop = False
            return launch(trial.spec, checkpoint, self._after_round).exit_code
        except DiskFull:
            raise
        except Exception as error:
            if isinstance(error, OSError) and error.errno in NO_SPACE_LEFT:
                raise
            if isinstance(error, UserCodeError):
                print(f"{error.trace}{sentence(error)}", file=sys.stderr)
            else:
                traceback.print_exc()
            return 1

    def _after_round(self) -> bool:
        if self.meanwhile is not None:
            self.meanwhile()
        return self._is_to_stop

    def ended(self) -> dict[int, int]:
        found, self._codes = self._codes, {}
        return found

    def stop(self, number: int) -> None:
        self._is_to_stop = True

    def kill(self) -> None:
        """Nothing runs between calls."""

    def close(self) -> None:
        """Nothing is held."""


class ExtraLaunchers:
    """Further launchers of the same sweep, for ``--in-process`` with several jobs: each is a process of its own."""

    def __init__(self, count: int, arguments: list[str], directory: Path) -> None:
        command = [sys.executable, "-m", "fl_platform", "sweep", "run", *arguments, "--in-process", "--jobs", "1"]
        gpus, logs = visible_gpus(), directory / "logs"
        self._processes = [  # this process is the first, with number 1, on the first GPU
            start_process(command, gpu_variables(number - 1, gpus), logs / f"launcher-{number}.log")
            for number in range(2, count + 2)
        ]

    @property
    def names(self) -> tuple[str, ...]:
        """The beginnings of their names in the ledger."""
        return tuple(f"{socket.gethostname()}-{process.pid}-" for process in self._processes)

    def end(self, *, stop: bool) -> None:
        """Wait for them; ``stop`` asks them first to stop."""
        for process in self._processes:
            if stop:
                process.send_signal(signal.SIGTERM)
            process.wait()


def visible_gpus() -> list[str]:
    """The GPUs this process may use, as CUDA_VISIBLE_DEVICES names them; -1 ends its list, as CUDA reads it."""
    if "CUDA_VISIBLE_DEVICES" in os.environ:
        listed = [name.strip() for name in os.environ["CUDA_VISIBLE_DEVICES"].split(",")]
        return list(takewhile(lambda name: name not in ("", "-1"), listed))
    if sys.platform == "linux" and not any(name.startswith(GPU_FILES) for name in os.listdir("/dev")):
        return []  # without importing torch, which a launcher does not need otherwise
    import torch

    return [str(index) for index in range(torch.cuda.device_count())]


GPU_FILES = ("nvidia", "nvhost", "nvmap", "kfd", "dxg")
"""How the names begin that drivers of GPUs have in /dev: NVIDIA's, on Tegra, AMD's, and Windows' for Linux."""


def gpu_variables(slot: int, gpus: list[str]) -> dict[str, str]:
    """The variables that give a process one of the GPUs, in turn; none where there is no GPU."""
    return {"CUDA_VISIBLE_DEVICES": gpus[slot % len(gpus)]} if gpus else {}


def cores() -> int:
    """The cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
