"""Trials as copies of a warm process: each ends for itself, with its own log, variables and signals."""

import os
import signal
import socket
import sys
import time
from pathlib import Path
from types import SimpleNamespace

import pytest

from fl_platform.cli.trial_server import receive
from fl_platform.errors import UserError
from fl_platform.sweeps.api import LaunchOptions, _make_pool
from fl_platform.sweeps.copies import CopyPool, Server, copied_arguments
from fl_platform.sweeps.pools import ProcessPool
from fl_platform.sweeps.trials import THREAD_VARIABLES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="copies are made on Linux")

PLUGIN = """
import atexit, os, signal, sys, threading, time
atexit.register(print, "at its end")
what = os.environ["WHAT"]
print("torch" in sys.modules and "lightning" in sys.modules, os.getpgid(0) == os.getpid(), threading.active_count())
print(what, flush=True)
if what == "exit":
    os._exit(7)
if what == "crash":
    os.kill(os.getpid(), signal.SIGSEGV)
if what == "wait":
    time.sleep(600)
"""
RUN = [sys.executable, "-m", "fl_platform", "run", "plugins=[ends_as_told]", "tracking.mode=disabled"]
SMALL = ["num_workers=10", "cohort_size=2", "local_steps=1", "num_rounds=1"]


def trial(number: int, folder: Path, *command: str) -> SimpleNamespace:
    given = list(command) or [*RUN, *SMALL, f"output.dir={folder / 'runs'}", f"seed={number}"]
    return SimpleNamespace(number=number, command=given, log=folder / "logs" / f"{number}.log")


def variables(what: str, threads: int = 1) -> dict[str, str]:
    return {"WHAT": what, **dict.fromkeys(THREAD_VARIABLES, str(threads))}


def wait(pool: CopyPool, count: int) -> dict[int, int]:
    codes: dict[int, int] = {}
    until = time.monotonic() + 300
    while len(codes) < count and time.monotonic() < until:
        codes |= pool.ended()
        time.sleep(0.05)
    return codes


def wait_for_text(path: Path, text: str) -> None:
    until = time.monotonic() + 300
    while text not in (path.read_text() if path.exists() else "") and time.monotonic() < until:
        time.sleep(0.05)


def test_trials_end_for_themselves(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "ends_as_told.py").write_text(PLUGIN)
    monkeypatch.setenv("PYTHONPATH", os.pathsep.join([str(tmp_path), *filter(None, [os.environ.get("PYTHONPATH")])]))
    monkeypatch.chdir(Path(__file__).parents[2])
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    pool = CopyPool(5, lock, tmp_path / "logs")
    try:
        pids = [pool.start(trial(n, tmp_path), variables(what)) for n, what in enumerate(("exit", "crash", "wait"))]
        assert len({*pids, os.getpid()}) == 4
        wait_for_text(tmp_path / "logs" / "2.log", "wait")
        finishing = pool.start(trial(3, tmp_path), variables("run"))
        pool.stop(2)
        assert wait(pool, 4) == {0: 7, 1: -signal.SIGSEGV, 2: 130, 3: 0}
        assert finishing not in pids
        for number, what in enumerate(("exit", "crash", "wait", "run")):
            first, facts, said, *_ = (tmp_path / "logs" / f"{number}.log").read_text().splitlines()
            assert first.startswith(f"$ {sys.executable} -m fl_platform run")
            assert (facts, said) == ("True True 1", what)  # warm, a group of its own, no other thread
        assert "done run=" in (tmp_path / "logs" / "3.log").read_text()
        assert (tmp_path / "logs" / "3.log").read_text().endswith("at its end\n")
        other = [sys.executable, "-c", "print('afresh')"]
        pool.start(trial(4, tmp_path, *other), variables("run"))  # another command, as it is
        pool.start(trial(5, tmp_path), variables("wait"))
        assert wait(pool, 1) == {4: 0}
        pool.kill()
        assert pool.ended() == {5: -signal.SIGKILL}
        pool.start(trial(6, tmp_path), variables("wait"))
        assert pool._server is not None
        os.kill(pool._server._process.pid, signal.SIGKILL)
        assert wait(pool, 1) == {6: -signal.SIGKILL}  # its trial went with it
        assert pool._server is None  # the next trial starts another
    finally:
        pool.close()
        os.close(lock)


def test_a_launcher_that_was_killed_with_replies_unread_is_gone_and_no_error() -> None:
    server, launcher = socket.socketpair()
    server.sendall(b"unread")
    launcher.close()
    with server:
        assert receive(server) == b""


def test_a_server_that_cannot_start_is_one_sentence(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "executable", "/bin/false")
    with (
        open(os.devnull, "rb") as lock,
        pytest.raises(UserError, match=r"cannot be started; its log is .*server\.log"),
    ):
        Server(dict(os.environ), tmp_path / "server.log", lock.fileno())


def test_a_server_with_threads_is_not_copied(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class Threaded(Server):
        def __init__(self, *arguments: object) -> None:
            self._threads = 2

        def ended(self) -> dict[int, int]:
            return {}

        def close(self) -> None:
            pass

    monkeypatch.setattr("fl_platform.sweeps.copies.Server", Threaded)
    lock = os.open(tmp_path / "lock", os.O_RDWR | os.O_CREAT)
    pool = CopyPool(1, lock, tmp_path / "logs")
    one = trial(0, tmp_path, sys.executable, "-m", "fl_platform", "run", "--help")
    pool.start(one, variables("run"))
    assert wait(pool, 1) == {0: 0}
    assert "usage: fl_platform run" in one.log.read_text()
    pool.close()
    os.close(lock)


@pytest.mark.parametrize(
    ("command", "arguments"),
    [
        (["/usr/bin/env", sys.executable, "-m", "fl_platform", "run", "seed=1"], ["run", "seed=1"]),
        ([sys.executable, "-m", "fl_platform", "run"], ["run"]),
        (["/usr/bin/env", "A=1", sys.executable, "-m", "fl_platform", "run"], None),
        (["python3.99", "-m", "fl_platform", "run"], None),
        ([sys.executable, "-O", "-m", "fl_platform", "run"], None),
        (["fl-platform", "run"], None),
        ([], None),
    ],
)
def test_which_commands_are_copied(command: list[str], arguments: list[str] | None) -> None:
    assert copied_arguments(command) == arguments


def test_trials_are_copies_unless_asked_otherwise(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "-1")
    pools = [_make_pool(LaunchOptions(jobs=1, fresh=fresh), 0, tmp_path) for fresh in (False, True)]
    assert [type(pool) for pool in pools] == [CopyPool, ProcessPool]
