"""Trials as copies of one process that has imported torch and Lightning already.

Each trial is still a process of its own: its end, of whatever kind, touches no other. Commands that are not this
interpreter's ``fl_platform run``, and trials with another number of threads than the first, start afresh.
"""

import contextlib
import json
import signal
import socket
import subprocess
import sys
from pathlib import Path
from typing import Any

from fl_platform.errors import UserError
from fl_platform.sweeps.commands import is_program
from fl_platform.sweeps.pools import ProcessPool, begin_log, environment_of
from fl_platform.sweeps.trials import THREAD_VARIABLES, Trial

QUIET_ALLOCATOR = {"JE_ARROW_MALLOC_CONF": "background_thread:false"}
"""Keeps the memory allocator of pyarrow from starting a thread: a process with threads cannot be copied safely."""


def copied_arguments(command: list[str]) -> list[str] | None:
    """The arguments of this interpreter's ``fl_platform run`` in a command; None for any other command."""
    start = 1 if command[:1] == ["/usr/bin/env"] else 0
    own = command[start : start + 1] == [sys.executable] and command[start + 1 : start + 2] == ["-m"]
    is_run = own and len(command) > start + 3 and is_program(command[start + 2]) and command[start + 3] == "run"
    return command[start + 3 :] if is_run else None


class ServerGone(Exception):
    """The server has ended, and its trials with it."""


class CopyPool:
    """Starts trials from a server process, and those that it cannot start in processes of their own."""

    def __init__(self, size: int, lock: int, logs: Path) -> None:
        """``lock`` is inherited by every process; the server's own messages go to a file in ``logs``."""
        self._size, self._lock, self._log = size, lock, logs / "server.log"
        self._fresh = ProcessPool(size, [], lock)
        self._copies: set[int] = set()
        self._server: Server | None = None
        self._threads: dict[str, str] = {}

    def capacity(self) -> int:
        return self._size

    def start(self, trial: Trial, variables: dict[str, str]) -> int:
        arguments = copied_arguments(trial.command)
        threads = {name: variables[name] for name in THREAD_VARIABLES if name in variables}
        if arguments is None or (self._server is not None and threads != self._threads):
            return self._fresh.start(trial, variables)
        if self._server is None:
            self._threads = threads
            self._server = Server(environment_of({**threads, **QUIET_ALLOCATOR}), self._log, self._lock)
        if not self._server.is_safe:
            return self._fresh.start(trial, variables)
        log = begin_log(trial.log, trial.command)
        self._copies.add(trial.number)
        try:
            return self._server.start(trial.number, arguments, environment_of(variables), log)
        except ServerGone:  # ``ended`` says so
            return 0

    def ended(self) -> dict[int, int]:
        copies = self._ended_copies()
        self._copies -= copies.keys()
        return {**copies, **self._fresh.ended()}

    def _ended_copies(self) -> dict[int, int]:
        """Exit codes of copies; where the server was killed its trials were, too, and the next one starts another."""
        if self._server is None:
            return {}
        try:
            return self._server.ended()
        except ServerGone:
            ended = {**dict.fromkeys(self._copies, -int(signal.SIGKILL)), **self._server.unreported()}
            self._server.close()
            self._server = None
            return ended

    def stop(self, number: int) -> None:
        if number not in self._copies:
            self._fresh.stop(number)
        elif self._server is not None:
            with contextlib.suppress(ServerGone):
                self._server.signal(number, signal.SIGTERM)

    def kill(self) -> None:
        if self._server is not None and self._copies:
            with contextlib.suppress(ServerGone):  # where it is gone, so are its trials
                for number in self._copies:
                    self._server.signal(number, signal.SIGKILL)
                self._server.wait_for(self._copies)
            self._copies = set()
        self._fresh.kill()

    def close(self) -> None:
        self.kill()
        if self._server is not None:
            self._server.close()


class Server:
    """The process that copies itself; ``fl_platform.cli`` has its side of the conversation."""

    def __init__(self, environment: dict[str, str], log: Path, lock: int) -> None:
        """Start it and wait until it has imported everything."""
        self._codes, self._pids, self._received = dict[int, int](), dict[int, int](), b""
        self._socket, other = socket.socketpair()
        log.parent.mkdir(parents=True, exist_ok=True)
        with open(log, "ab") as output, other:
            self._process = subprocess.Popen(
                [sys.executable, "-m", "fl_platform", "sweep", "serve-trials", str(other.fileno())],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                process_group=0,
                pass_fds=(lock, other.fileno()),
            )
        self._threads: int | None = None
        try:
            while self._threads is None:
                self._receive()
        except ServerGone:
            self.close()
            raise UserError(f"the process that starts the trials cannot be started; its log is {log}") from None

    @property
    def is_safe(self) -> bool:
        """Whether it can be copied: importing started no thread."""
        return self._threads == 1

    def start(self, number: int, arguments: list[str], environment: dict[str, str], log: Path) -> int:
        """Start a trial; returns the id of its process."""
        self._send({"start": number, "arguments": arguments, "environment": environment, "log": str(log.absolute())})
        while number not in self._pids:
            self._receive()
        return self._pids.pop(number)

    def ended(self) -> dict[int, int]:
        """Trial number -> exit code, of those that ended since the last call."""
        self._socket.setblocking(False)
        try:
            while True:
                self._receive()
        except BlockingIOError:
            pass
        finally:
            self._socket.setblocking(True)
        return self.unreported()

    def unreported(self) -> dict[int, int]:
        """Exit codes that were received and not returned yet."""
        found, self._codes = self._codes, {}
        return found

    def signal(self, number: int, signal: int) -> None:
        """Send a signal to a trial, if it is still there."""
        self._send({"signal": int(signal), "to": number})

    def wait_for(self, numbers: set[int]) -> None:
        """Wait until these trials have ended."""
        while not numbers <= self._codes.keys():
            self._receive()

    def close(self) -> None:
        """End it; its trials must have ended."""
        self._socket.close()
        self._process.wait()

    def _send(self, message: dict[str, Any]) -> None:
        try:
            self._socket.sendall(json.dumps(message).encode() + b"\n")
        except OSError:
            raise ServerGone from None

    def _receive(self) -> None:
        try:
            part = self._socket.recv(1 << 16)
        except ConnectionResetError:  # it was killed with requests unread
            part = b""
        if not part:
            raise ServerGone
        *lines, self._received = (self._received + part).split(b"\n")
        for message in map(json.loads, lines):
            if "threads" in message:
                self._threads = message["threads"]
            elif "ended" in message:
                self._codes[message["ended"]] = message["code"]
            else:
                self._pids[message["started"]] = message["pid"]
