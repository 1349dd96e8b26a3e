"""The process that ``sweep run`` starts trials from: it has imported what a run needs and copies itself for each trial.

A copy is a process of its own like one that was started afresh: own process group, environment, log and exit code. What
it does not repeat is importing torch and Lightning. Requests and replies are lines of JSON on a socket:

    {"start": 3, "arguments": [...], "environment": {...}, "log": PATH}  ->  {"started": 3, "pid": 4711}
    {"signal": 15, "to": 3}                                              ->  nothing
    nothing                                                              ->  {"ended": 3, "code": 0}

The first line it sends says how many threads it has: a copy of a process with more than one would not be safe. When the
launcher is gone it waits for its trials and ends; should it end before them, so do they.
"""

import atexit
import contextlib
import ctypes
import importlib
import json
import os
import random
import select
import signal
import socket
import sys
import threading
from typing import Any, NoReturn

from fl_platform.cli.start import quick_imports

PR_SET_PDEATHSIG = 1
MODULES = ("wandb.apis.public", "llvmlite.binding", "fl_platform.federation.api")
"""What a run imports; W&B comes first: with torch loaded it takes a second longer."""


def main(args: list[str]) -> int:
    """Serve the socket with this descriptor; returns in the server alone, a trial's process ends with its exit code."""
    channel = socket.socket(fileno=int(args[0]))
    with quick_imports():
        preload()
    channel.sendall(line({"threads": len(os.listdir("/proc/self/task"))}))
    if (request := serve(channel)) is not None:
        from fl_platform.cli import main as run_command

        become(request)
        leave(run_command(request["arguments"]))
    return 0


def preload() -> None:
    """Import and make what every run needs, as far as it is there: a run says what is missing."""
    for module in MODULES:
        with contextlib.suppress(ImportError):
            importlib.import_module(module)
    from fl_platform.config.compose import compose
    from fl_platform.config.registry import REGISTRIES
    from fl_platform.tracking.identity import versions

    for registry in REGISTRIES:
        registry.load()
    compose([])
    versions()


def line(message: dict[str, Any]) -> bytes:
    """One message of the socket."""
    return json.dumps(message).encode() + b"\n"


def serve(channel: socket.socket) -> dict[str, Any] | None:
    """Start trials until the launcher is gone and all have ended; returns the request in the process of a trial."""
    woken, wake = os.pipe()
    os.set_blocking(woken, False)
    os.set_blocking(wake, False)
    signal.signal(signal.SIGCHLD, lambda *_: None)  # so that a trial's end wakes the wait below
    signal.set_wakeup_fd(wake, warn_on_full_buffer=False)
    pids: dict[int, int] = {}
    received, is_open = b"", True
    while is_open or pids:
        waiting: list[Any] = [woken, channel] if is_open else [woken]
        ready, _, _ = select.select(waiting, [], [])
        if woken in ready:
            os.read(woken, 4096)
        for number, pid in list(pids.items()):
            ended, status = os.waitpid(pid, os.WNOHANG)
            if ended:
                del pids[number]
                tell(channel, {"ended": number, "code": os.waitstatus_to_exitcode(status)})
        if channel not in ready:
            continue
        part = receive(channel)
        is_open = bool(part)
        *requests, received = (received + part).split(b"\n")
        for request in map(json.loads, requests):
            if "signal" in request:
                if request["to"] in pids:
                    os.kill(pids[request["to"]], request["signal"])
                continue
            pid = os.fork()
            if pid == 0:
                signal.set_wakeup_fd(-1)
                signal.signal(signal.SIGCHLD, signal.SIG_DFL)
                os.close(woken)
                os.close(wake)
                channel.close()
                return dict(request)
            pids[request["start"]] = pid
            tell(channel, {"started": request["start"], "pid": pid})
    return None


def receive(channel: socket.socket) -> bytes:
    """What the launcher sent; nothing where it is gone, with or without having read its answer."""
    try:
        return channel.recv(1 << 16)
    except ConnectionResetError:  # it was killed with replies unread
        return b""


def tell(channel: socket.socket, message: dict[str, Any]) -> None:
    """Send a message; nobody hears it where the launcher is gone."""
    try:
        channel.sendall(line(message))
    except OSError:
        return


def become(request: dict[str, Any]) -> None:
    """Make this copy of the server the process of a trial."""
    ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    os.setpgid(0, 0)
    os.environ.clear()
    os.environ.update(request["environment"])
    log = os.open(request["log"], os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o666)
    nothing = os.open(os.devnull, os.O_RDONLY)
    for opened, place in ((nothing, 0), (log, 1), (log, 2)):
        os.dup2(opened, place)
    os.close(log)
    os.close(nothing)
    sys.argv = ["fl_platform", *request["arguments"]]
    random.seed()  # a fresh interpreter draws a state of its own; nothing in a run depends on it
    import numpy as np

    np.random.seed()  # noqa: NPY002


def leave(code: int) -> NoReturn:
    """End a trial's process as Python would, but for taking its modules apart.

    That would copy the pages of every object that the server has imported: half of what a short trial takes.
    """
    for thread in threading.enumerate():
        if thread is not threading.current_thread() and not thread.daemon:
            thread.join()
    atexit._run_exitfuncs()
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(code)
