"""A Ray cluster of two hosts in network namespaces; one is cut off and comes back: no trial twice, none lost."""

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from tests.sweeps.small_sweeps import entries_of, quick_sweep
from tests.torture.test_secrets import ROOT

HEAD, OTHER, PORT = "10.77.41.1", "10.77.41.2", 6399
SPACES = (f"fl-head-{os.getpid()}", f"fl-other-{os.getpid()}")
QUICK = {  # a lost host is noticed in seconds, not in a minute
    "RAY_health_check_initial_delay_ms": "1000",
    "RAY_health_check_period_ms": "500",
    "RAY_health_check_timeout_ms": "1000",
    "RAY_health_check_failure_threshold": "3",
    "RAY_gcs_rpc_server_reconnect_timeout_s": "5",
    "RAY_USAGE_STATS_ENABLED": "0",
    "RAY_DISABLE_IMPORT_WARNING": "1",
    "RAY_AUTH_MODE": "disabled",  # else a head that finds a token in the home directory asks the other host for it
}


def ip(*arguments: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run(["ip", *arguments], capture_output=True, text=True, check=False)


@pytest.fixture
def network() -> Iterator[None]:
    """Two namespaces joined by a cable; skipped where they are not allowed."""
    if shutil.which("ip") is None:
        pytest.skip("the command `ip` (iproute2) is not installed")
    ray = shutil.which("ray", path=str(Path(sys.executable).parent))
    if ray is None:
        pytest.skip("ray is not installed: pip install ray")
    if (made := ip("netns", "add", SPACES[0])).returncode:
        pytest.skip(f"network namespaces are not allowed here: {made.stderr.strip()}")
    try:
        ip("netns", "add", SPACES[1])
        ip("link", "add", "flv0", "netns", SPACES[0], "type", "veth", "peer", "name", "flv1", "netns", SPACES[1])
        for space, link, address in zip(SPACES, ("flv0", "flv1"), (HEAD, OTHER), strict=True):
            ip("-n", space, "link", "set", "lo", "up")
            ip("-n", space, "addr", "add", f"{address}/24", "dev", link)
            assert ip("-n", space, "link", "set", link, "up").returncode == 0
        yield
    finally:
        for space in SPACES:
            for pid in ip("netns", "pids", space).stdout.split():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(int(pid), signal.SIGKILL)
            ip("netns", "del", space)


def inside(space: str, *command: str) -> list[str]:
    return ["ip", "netns", "exec", space, *command]


def start_host(space: str, address: str, folder: Path, *more: str) -> None:
    """A Ray node of one CPU in a namespace."""
    ray = str(Path(sys.executable).parent / "ray")
    command = [ray, "start", f"--node-ip-address={address}", "--num-cpus=1", "--disable-usage-stats", *more]
    own = {**os.environ, **QUICK, "PYTHONPATH": str(ROOT)}
    done = subprocess.run(
        inside(space, *command), cwd=folder, env=own, capture_output=True, text=True, check=False, timeout=120
    )
    assert done.returncode == 0, done.stdout + done.stderr


def rounds_of(output: Path) -> dict[str, int]:
    files = output.glob("*/attempts/*/rounds.jsonl")
    return {str(path.parents[2].name): path.read_bytes().count(b"\n") for path in files}


def test_a_host_that_is_cut_off_and_comes_back(
    network: None, tmp_path: Path, scale: Callable[[int, int], int], record_property: Callable[[str, object], None]
) -> None:
    trials = scale(0, 4)
    if not trials:
        pytest.skip("a Ray cluster and minutes: only with --torture")
    args = ("num_rounds=1500", "checkpoint.every=20", "tracking.mode=disabled")
    sweep = quick_sweep(tmp_path, {"seed": {"values": list(range(trials))}}, *args)
    temporary = Path("/tmp/flray")  # sockets need short paths
    shutil.rmtree(temporary, ignore_errors=True)
    start_host(
        SPACES[0], HEAD, tmp_path, "--head", f"--port={PORT}", "--include-dashboard=false", f"--temp-dir={temporary}/a"
    )
    start_host(SPACES[1], OTHER, tmp_path, f"--address={HEAD}:{PORT}")
    launch = [sys.executable, "-m", "fl_platform", "sweep", "run", str(sweep.source), *sweep.overrides]
    launch += ["--engine", "ray", "--address", f"{HEAD}:{PORT}"]
    own = {**os.environ, **QUICK, "PYTHONPATH": str(ROOT)}
    with open(tmp_path / "launch.log", "wb") as log:
        launcher = subprocess.Popen(inside(SPACES[0], *launch), cwd=tmp_path, env=own, stdout=log, stderr=log)
    try:
        wait_for(lambda: len([n for n in rounds_of(sweep.output).values() if n > 20]) >= 2, launcher, tmp_path)
        assert ip("-n", SPACES[1], "link", "set", "flv1", "down").returncode == 0
        time.sleep(25)
        assert ip("-n", SPACES[1], "link", "set", "flv1", "up").returncode == 0
        start_host_again(tmp_path)
        code = launcher.wait(timeout=1200)  # Ray's processes have the lowest priority
    finally:
        launcher.kill()
        launcher.wait()
        shutil.rmtree(temporary, ignore_errors=True)
    printed = (tmp_path / "launch.log").read_text()
    assert code == 0, printed[-3000:]
    entries = entries_of(sweep)
    assert [entry.state for entry in entries] == ["finished"] * trials
    assert max(entry.failures for entry in entries) == 0, printed[-3000:]
    results = [json.loads(path.read_text()) for path in sweep.output.glob("*/result.json")]
    assert [result["rounds"] for result in results] == [1500] * trials
    record_property("Ray, a host cut off and back: trials, each once", trials)


def start_host_again(folder: Path) -> None:
    """The host is there again; a node that gave up in between is started anew, as a service manager would."""
    time.sleep(8)
    with contextlib.suppress(AssertionError):
        start_host(SPACES[1], OTHER, folder, f"--address={HEAD}:{PORT}")


def wait_for(is_so: Callable[[], bool], launcher: "subprocess.Popen[bytes]", folder: Path) -> None:
    deadline = time.monotonic() + 180
    while not is_so():
        assert launcher.poll() is None, (folder / "launch.log").read_text()[-3000:]
        assert time.monotonic() < deadline, (folder / "launch.log").read_text()[-3000:]
        time.sleep(0.1)
