"""Real commands in real processes, cheaply: a server imports everything once and forks a process per command.

The child calls ``fl_platform.cli.main`` and leaves as an interpreter leaves; only the seconds of importing are saved.
"""

import atexit
import contextlib
import functools
import gc
import importlib
import json
import os
import signal
import subprocess
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parents[2]


@dataclass
class Ended:
    """How a command ended; ``code`` is negative for a signal."""

    code: int
    out: str
    err: str

    @property
    def was_killed(self) -> bool:
        return self.code == -signal.SIGKILL


class Child:
    """A command under way."""

    def __init__(self, pid: int, folder: Path) -> None:
        self.pid, self.folder = pid, folder

    def send(self, number: int = signal.SIGKILL) -> None:
        os.kill(self.pid, number)  # safe: until it is waited for, the id is not given away

    def is_over(self) -> bool:
        return bool(server().ask({"look": self.pid})["over"])

    def wait(self) -> Ended:
        status = server().ask({"wait": self.pid})["status"]
        out, err = ((self.folder / name).read_text(errors="replace") for name in ("out", "err"))
        return Ended(os.waitstatus_to_exitcode(status), out, err)


def start(args: list[str], folder: Path, before: str = "", **variables: str) -> Child:
    """Begin ``fl_platform ARGUMENTS``; ``before`` is Python that the child runs first, such as an ``arm(...)``."""
    folder.mkdir(parents=True, exist_ok=True)
    job = {"args": args, "folder": str(folder), "before": before, "variables": variables}
    return Child(int(server().ask(job)["pid"]), folder)


def run(args: list[str], folder: Path, before: str = "", **variables: str) -> Ended:
    return start(args, folder, before, **variables).wait()


class Server:
    """The other end of the pipe to the forking process."""

    def __init__(self) -> None:
        command = [sys.executable, "-W", "ignore", "-m", "tests.torture.forked"]
        pipe = subprocess.PIPE
        # a W&B service of this process would be shared, and not notice that a client was killed
        own = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}
        self._process = subprocess.Popen(command, cwd=ROOT, stdin=pipe, stdout=pipe, text=True, env=own)
        atexit.register(self._end)

    def ask(self, question: dict[str, Any]) -> dict[str, Any]:
        assert self._process.stdin is not None
        assert self._process.stdout is not None
        self._process.stdin.write(json.dumps(question) + "\n")
        self._process.stdin.flush()
        answer: dict[str, Any] = json.loads(self._process.stdout.readline())
        return answer

    def _end(self) -> None:
        assert self._process.stdin is not None
        self._process.stdin.close()
        self._process.wait()


@functools.cache
def server() -> Server:
    return Server()


# --- the forking process ---

IMPORTED = (
    "importlib.readers",
    "fl_platform.federation.launch",
    "fl_platform.cli.run",
    "fl_platform.cli.sweep",
    "fl_platform.cli.report",
    "fl_platform.sweeps.check",
    "fl_platform.sweeps.display",
    "fl_platform.sweeps.launcher",
    "sklearn.datasets",
    "wandb.sdk.launch",
)


def serve() -> None:
    for name in IMPORTED:
        importlib.import_module(name)
    gc.collect()
    gc.freeze()  # or every child would look through all that was imported, and copy it by looking
    answers = os.fdopen(os.dup(1), "w")
    statuses: dict[int, int] = {}
    for line in sys.stdin:
        job = json.loads(line)
        if "wait" in job:
            answer: dict[str, Any] = {"status": statuses.pop(job["wait"], None)}
            if answer["status"] is None:
                answer["status"] = os.waitpid(job["wait"], 0)[1]
        elif "look" in job:
            found, status = (job["look"], 0) if job["look"] in statuses else os.waitpid(job["look"], os.WNOHANG)
            if found and job["look"] not in statuses:
                statuses[found] = status
            answer = {"over": bool(found)}
        else:
            pid = os.fork()
            if pid == 0:
                answers.close()
                become(job)
            answer = {"pid": pid}
        answers.write(json.dumps(answer) + "\n")
        answers.flush()


def become(job: dict[str, Any]) -> None:
    """Be the process of a command, from here to its exit."""
    from fl_platform.cli import main

    os.chdir(job["folder"])
    os.setpgid(0, 0)
    nothing = os.open(os.devnull, os.O_RDONLY)
    os.dup2(nothing, 0)
    for number, name in ((1, "out"), (2, "err")):
        os.dup2(os.open(name, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o666), number)
    sys.stdin = open(0, closefd=False)  # noqa: SIM115, the parent's had read ahead
    os.environ.update(job["variables"])
    exec(job["before"], {})
    with contextlib.suppress(BrokenPipeError):
        sys.exit(main(job["args"]))


if __name__ == "__main__":
    serve()
