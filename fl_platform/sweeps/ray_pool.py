"""Trials as Ray tasks: the same processes, placed by Ray on a cluster's CPUs and fractions of its GPUs."""

import contextlib
import ctypes
import os
import signal
import socket
import sys
import time
from pathlib import Path
from typing import Any

from fl_platform.errors import UserError
from fl_platform.sweeps.pools import start_process
from fl_platform.sweeps.trials import Trial

ANSWER_SECONDS = 10.0  # that a trial's task waits for the launcher's actor; a host that is cut off gets no answer
KILLED = -int(signal.SIGKILL)
"""Exit code of a trial whose Ray process was killed, as for its memory."""


class RayPool:
    """One task a trial. Ray's own retries are off: the ledger counts attempts, and a retry continues a checkpoint."""

    def __init__(self, address: str | None, cpus: float, gpus: float, size: int | None) -> None:
        self._ray = import_ray()
        self._cpus, self._gpus, self._size = cpus, gpus, size
        self._owns_cluster = not self._ray.is_initialized()
        if self._owns_cluster:
            connect(self._ray, address or os.environ.get("RAY_ADDRESS"))
        here = self._ray.util.scheduling_strategies.NodeAffinitySchedulingStrategy(
            self._ray.get_runtime_context().get_node_id(), soft=False
        )
        self._stop_requests = self._ray.remote(num_cpus=0, scheduling_strategy=here)(StopRequests).remote()
        self._task = self._ray.remote(num_cpus=cpus, num_gpus=gpus, max_retries=0)(run_trial)
        self._refs: dict[Any, int] = {}

    def capacity(self) -> int:
        """As many as fit into the cluster as it is now."""
        if self._size is not None:
            return self._size
        has = self._ray.cluster_resources()
        fits = [has.get(name, 0) / share for name, share in (("CPU", self._cpus), ("GPU", self._gpus)) if share]
        return max(1, int(min(fits, default=1)))

    def start(self, trial: Trial, variables: dict[str, str]) -> int:
        ref = self._task.remote(
            self._stop_requests, trial.number, trial.command, variables, trial.log.absolute(), str(Path.cwd())
        )
        self._refs[ref] = trial.number
        return 0

    def ended(self) -> dict[int, int | None]:
        refs = list(self._refs)
        ready = self._ray.wait(refs, num_returns=len(refs), timeout=0)[0] if refs else []
        codes = {ref: self._exit_code(ref) for ref in ready}  # before any is taken for ended
        return {self._refs.pop(ref): code for ref, code in codes.items()}

    def _exit_code(self, ref: Any) -> int | None:
        errors = self._ray.exceptions
        try:
            return int(self._ray.get(ref))
        except (errors.LocalRayletDiedError, errors.RaySystemError) as error:
            self._refs.clear()
            raise UserError(
                "the Ray process of this machine is gone: no trial can be started; those that ran are not failed, "
                "and the same command goes on once Ray is there again"
            ) from error
        except (errors.WorkerCrashedError, errors.OutOfMemoryError):
            return KILLED
        except errors.RayTaskError as error:  # the command could not be started, or Ray is gone from its host
            return None if isinstance(error.cause, errors.RayError) else 1
        except errors.RayError:  # the node or its part of Ray is gone
            return None

    def stop(self, number: int) -> None:
        self._stop_requests.stop.remote(number)

    def kill(self) -> None:
        for ref in self._refs:
            self._ray.cancel(ref, force=True)
        self._refs.clear()

    def close(self) -> None:
        self.kill()
        self._ray.kill(self._stop_requests)
        if self._owns_cluster:
            self._ray.shutdown()


class StopRequests:
    """A Ray actor that tasks ask whether their trial is to stop."""

    def __init__(self) -> None:
        self._numbers: set[int] = set()

    def stop(self, number: int) -> None:
        self._numbers.add(number)

    def is_stopped(self, number: int) -> bool:
        return number in self._numbers


def run_trial(
    stop_requests: Any, number: int, command: list[str], variables: dict[str, str], log: Path, folder: str
) -> int:
    """Ray task: the trial's process from start to end; returns its exit code."""
    import ray

    if os.path.isdir(folder):
        os.chdir(folder)
    process = start_process(command, variables, log, preexec_fn=die_with_parent)
    is_asked = False
    while (code := process.poll()) is None:
        time.sleep(0.2)
        if is_asked:
            continue
        with contextlib.suppress(ray.exceptions.RayError):  # cut off from the launcher: the trial goes on
            if is_asked := ray.get(stop_requests.is_stopped.remote(number), timeout=ANSWER_SECONDS):
                process.send_signal(signal.SIGTERM)
    return code


def die_with_parent() -> None:
    """Make the trial's process end with its Ray process, so that a retry elsewhere never meets its first attempt."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(1, signal.SIGKILL)  # PR_SET_PDEATHSIG


def connect(ray: Any, address: str | None) -> None:
    """Join the cluster at an address; without one start a cluster on this machine.

    Raises UserError where nobody answers there, or Ray cannot start.
    """
    os.environ.setdefault("RAY_USAGE_STATS_ENABLED", "0")
    if address:
        check_listens(address)
    more: dict[str, Any] = {"address": address} if address else {"address": "local", "include_dashboard": False}
    try:  # without "local" Ray would join the cluster that `ray start` noted last on this machine, running or not
        ray.init(log_to_driver=False, logging_level="ERROR", **more)
    except Exception as error:  # noqa: BLE001  Ray raises bare ones, as on a machine too busy to start in time
        where = f"--address {address}: no Ray cluster answers there" if address else "Ray cannot start here"
        raise UserError(f"{where}: {' '.join(str(error).split())}") from None


def check_listens(address: str) -> None:
    """Raise UserError where no program listens at HOST:PORT: Ray itself would try for a quarter of an hour."""
    host, _, port = address.removeprefix("ray://").rpartition(":")
    if not host or not port.isdecimal():
        return  # "auto", or a form that Ray refuses itself
    try:
        socket.create_connection((host.strip("[]"), int(port)), timeout=ANSWER_SECONDS).close()
    except (OSError, OverflowError) as error:
        raise UserError(f"--address {address}: no Ray cluster answers there: {error}") from None


def import_ray() -> Any:
    """Return the module ``ray``; UserError where it is not installed."""
    try:
        import ray
    except ImportError:
        raise UserError(
            "--engine ray needs Ray, which is not installed; `pip install ray`, or use --engine local"
        ) from None
    return ray
