"""Full disks and places that may not be written: one sentence, an exit code, and nothing is lost."""

import contextlib
import functools
import os
import shutil
import subprocess
import tempfile
import threading
from collections.abc import Callable, Iterator
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from fl_platform.errors import DiskFull
from fl_platform.runs.checkpoint_files import is_valid, newest_valid
from fl_platform.runs.frames import load
from tests.sweeps.small_sweeps import entries_of, quick_sweep
from tests.torture import forked
from tests.torture.small_run import RUN, fingerprint

Scale = Callable[[int, int], int]
Record = Callable[[str, object], None]
Mount = Callable[[str], Path]

REPORT = """
title: small
sources: [runs]
tables: [{name: cells, kind: pivot, rows: [algorithm.name], columns: [seed], value: top_accuracy}]
figures: [{name: curves, kind: forgetting}]
"""
KIB = 1024


@pytest.fixture
def mount(tmp_path: Path) -> Iterator[Mount]:
    """A file system of its own in memory, of the given size."""
    place = tmp_path / "mounted"

    def make(size: str) -> Path:
        place.mkdir()
        command = ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(place)]
        done = subprocess.run(command, capture_output=True, text=True, check=False)
        if done.returncode:
            pytest.skip(f"a small file system cannot be mounted: {done.stderr.strip()}")
        return place

    yield make
    if os.path.ismount(place):
        subprocess.run(["umount", "--lazy", str(place)], check=True)


def fill(place: Path, free: int) -> Path:
    """A file that leaves so many bytes on the disk."""
    stat = os.statvfs(place)
    padding = place / "padding"
    padding.write_bytes(b"0" * max(0, stat.f_bavail * stat.f_frsize - free))
    return padding


def sentence(ended: forked.Ended, *parts: str, code: int = DiskFull.exit_code) -> None:
    """One line, for a person, that names the place."""
    assert ended.code == code, ended
    assert len(ended.err.splitlines()) == 1, ended.err
    line = ended.err.strip()
    assert line.startswith("fl_platform: ")
    for part in parts:
        assert part in line


def partial_files(place: Path) -> list[Path]:
    return [path for path in place.rglob(".*") if path.name.startswith((".partial", ".result", ".config"))]


# --- full disks ---


def test_a_run_on_a_full_disk_stops_with_its_checkpoint_and_goes_on_when_there_is_room(
    mount: Mount, tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    """From not a byte of room to room for all but the last of three files that a checkpoint needs for a moment."""
    if scale(0, 1) == 0:
        pytest.skip("two dozen runs: only with --torture")
    place = mount("24m")
    assert forked.run([*RUN, f"output.dir={tmp_path / 'whole'}"], tmp_path).code == 0
    size = max(path.stat().st_size for path in (tmp_path / "whole").rglob("*.ckpt"))
    frees = [0, size // 2, 8 * KIB, 64 * KIB, size, 3 * size // 2, 2 * size, 5 * size // 2]
    args = [*RUN, f"output.dir={place / 'runs'}"]
    for free in frees:
        padding = fill(place, free)
        sentence(forked.run(args, tmp_path), f"output.dir={place / 'runs'} cannot be written: No space left on device")
        assert partial_files(place) == []
        for path in place.rglob("*.ckpt"):
            assert is_valid(path)
        padding.unlink()
        assert forked.run(args, tmp_path).code == 0
        assert fingerprint(place / "runs") == fingerprint(tmp_path / "whole")
        assert list(load([place / "runs"]).rounds["round"]) == [1, 2, 3, 4, 5]
        shutil.rmtree(place / "runs")
    record_property("amounts of free disk at which a run stopped with a sentence and went on", len(frees))


def test_a_full_disk_between_two_checkpoints_keeps_the_first(mount: Mount, tmp_path: Path) -> None:
    place = mount("8m")
    args = [*RUN, f"output.dir={place / 'runs'}", "tracking.mode=disabled"]
    armed = "from tests.torture.kill_points import arm; arm('server step', 4, 1)"
    assert forked.run(args, tmp_path, armed).was_killed
    (directory,) = place.glob("runs/*/attempts/*/checkpoints")
    newest = newest_valid(directory)
    fill(place, 20 * KIB)
    sentence(forked.run(args, tmp_path), "No space left on device; what was saved stays, and --continue goes on")
    assert newest_valid(directory) == newest


def test_a_sweep_on_a_full_disk_stops_and_the_same_command_goes_on(
    mount: Mount, tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    """The disk fills in the middle of trials and of the ledger; what was recorded stays recorded."""
    place = mount("64m")
    sweep = quick_sweep(place, {"seed": {"values": list(range(3))}}, "checkpoint.every=1", "num_rounds=3")
    args = ["sweep", "run", str(sweep.source), *sweep.overrides, "--in-process"]
    recorded: list[tuple[int, str]] = []
    frees = [150 * KIB, 0, 40 * KIB, 12 * KIB, 80 * KIB, 300 * KIB]
    for free in frees[: scale(1, len(frees))]:
        padding = fill(place, free)
        ended = forked.run(args, tmp_path)
        assert ended.code in (2, DiskFull.exit_code), ended  # 2: SQLite says only that it cannot read or write
        assert "Traceback" not in ended.err
        last = ended.err.splitlines()[-1]
        assert last.startswith("fl_platform: ")
        assert "No space left on device" in last or "disk is full" in last or "disk I/O error" in last
        padding.unlink()
        now = [(entry.number, entry.state) for entry in entries_of(sweep)]
        assert {entry for entry in recorded if entry[1] == "finished"} <= set(now)
        assert "failed" not in [state for _, state in now]
        recorded = now
    assert forked.run(args, tmp_path).code == 0
    assert [entry.state for entry in entries_of(sweep)] == ["finished"] * 3
    record_property("amounts of free disk at which a sweep stopped with a sentence and went on", scale(1, len(frees)))


def test_a_report_on_a_full_disk_leaves_whole_files_or_none(mount: Mount, tmp_path: Path, scale: Scale) -> None:
    if scale(0, 1) == 0:
        pytest.skip("six commands: only with --torture")
    assert forked.run([*RUN, f"output.dir={tmp_path / 'runs'}"], tmp_path).code == 0
    (tmp_path / "reports" / "small").mkdir(parents=True)
    (tmp_path / "reports" / "small" / "report.yaml").write_text(REPORT)
    args = ["report", "small", "--source", str(tmp_path / "runs"), "--html", "--out"]
    whole = forked.run([*args, str(tmp_path / "whole")], tmp_path)
    assert whole.code == 0, whole
    place = mount("2m")
    for free in (0, 16 * KIB, 60 * KIB, 120 * KIB):
        padding = fill(place, free)
        sentence(forked.run([*args, str(place / "out")], tmp_path), "No space left on device")
        for path in (place / "out").glob("*"):
            assert path.read_bytes() == (tmp_path / "whole" / path.name).read_bytes()
        padding.unlink()
        shutil.rmtree(place / "out", ignore_errors=True)


GETTING = """
from fl_platform.data import fetch
from torchvision.datasets import MNIST

MNIST.mirrors = [{mirror!r}]

def by_program(staging):
    fetch.run("sh", "-c", "head -c 8000000 /dev/zero > big || {{ echo given up; exit 1; }}", directory=staging)

sources = {{"torchvision": fetch.torchvision_source("MNIST"), "program": ("a program", by_program)}}
fetch.SOURCES["mnist"] = (sources[{first!r}], sources["program"])
"""


class Silent(SimpleHTTPRequestHandler):
    def log_message(self, *_: object) -> None:
        """Nothing: the output of a test is its own."""

    def copyfile(self, source: Any, outputfile: Any) -> None:
        with contextlib.suppress(BrokenPipeError):  # whoever has no room hangs up
            super().copyfile(source, outputfile)


@pytest.fixture
def mirror(tmp_path: Path) -> Iterator[str]:
    """A server on this machine with a file of 3 MB that torchvision asks for first."""
    (tmp_path / "mirror").mkdir()
    (tmp_path / "mirror" / "train-images-idx3-ubyte.gz").write_bytes(bytes(3000 * KIB))
    handler = functools.partial(Silent, directory=str(tmp_path / "mirror"))
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        threading.Thread(target=server.serve_forever).start()
        yield f"http://127.0.0.1:{server.server_port}/"
        server.shutdown()


@pytest.mark.parametrize("first", ["torchvision", "program"])
def test_data_fetched_onto_a_full_disk_names_the_disk(first: str, mirror: str, mount: Mount, tmp_path: Path) -> None:
    """As torchvision gets it, and by a program, as npm or apt-get do."""
    place = mount("2m")
    before = GETTING.format(mirror=mirror, first=first)
    ended = forked.run(["data", "get", "mnist", "--root", str(place / "data")], tmp_path, before)
    ended.err = ended.err.splitlines()[-1]  # below torchvision's progress bar
    sentence(ended, f"--root {place / 'data'} cannot be written: No space left on device")
    assert ended.out.count("trying") == 1  # the next source would meet the same
    assert list((place / "data").iterdir()) == []


# --- places that may not be written ---


def commands(place: Path, tmp_path: Path) -> dict[str, list[str]]:
    sweep = quick_sweep(tmp_path, {"seed": {"value": 0}}, f"output.dir={place / 'runs'}")
    return {
        f"output.dir={place / 'runs'}": [*RUN, f"output.dir={place / 'runs'}"],
        "output.dir=": ["sweep", "run", str(sweep.source), *sweep.overrides],
        f"--root {place / 'data'}": ["data", "get", "mnist", "--root", str(place / "data")],
        f"--json {place / 'x.json'}": [*RUN, f"output.dir={tmp_path / 'runs'}", f"--json={place / 'x.json'}"],
    }


def test_a_read_only_file_system_is_named(mount: Mount, tmp_path: Path, scale: Scale) -> None:
    place = mount("1m")
    asked = commands(place, tmp_path)
    subprocess.run(["mount", "-o", "remount,ro", str(place)], check=True)
    for named, args in list(asked.items())[: scale(1, 5)]:
        sentence(forked.run(args, tmp_path), named, code=2)
    assert not (tmp_path / "runs").exists()  # nothing was begun


def test_a_directory_without_permission_is_named(tmp_path: Path, scale: Scale) -> None:
    """As another user than root, for whom permissions do not count."""
    if os.geteuid() != 0:
        pytest.skip("only root can become another user")
    if not all(path.stat().st_mode & 0o001 for path in Path(__file__).parents):
        pytest.skip("other users cannot enter the directory of the checkout")
    place = tmp_path / "closed"
    place.mkdir(mode=0o555)
    asked = commands(place, tmp_path)
    for path in tmp_path.parents:  # pytest's own, which it closes to others
        if path == Path(tempfile.gettempdir()):
            break
        path.chmod(0o711)
    tmp_path.chmod(0o777)
    (tmp_path / "small.yaml").chmod(0o644)
    for named, args in list(asked.items())[: scale(1, 5)]:
        ended = forked.run(args, tmp_path, "import os; os.setgroups([]); os.setgid(65534); os.setuid(65534)")
        # after its end: the exit handlers of the forking process clean up what is root's
        ended.err = ended.err.partition("Exception ignored in atexit callback")[0]
        sentence(ended, named, code=2)
    assert list(place.iterdir()) == []


# --- shared memory ---


def test_no_room_in_shared_memory_does_not_matter(tmp_path: Path, scale: Scale) -> None:
    """Neither runs nor W&B keep anything in /dev/shm: a child without it gives the same bits."""
    if scale(0, 1) == 0:
        pytest.skip("two runs: only with --torture")
    assert forked.run([*RUN, f"output.dir={tmp_path / 'with'}"], tmp_path).code == 0
    ended = forked.run([*RUN, f"output.dir={tmp_path / 'without'}"], tmp_path, COVER)
    if "mount: " in ended.err:
        pytest.skip(f"/dev/shm cannot be covered: {ended.err}")
    assert ended.code == 0, ended
    assert fingerprint(tmp_path / "with") == fingerprint(tmp_path / "without")


COVER = """
import ctypes, subprocess
ctypes.CDLL(None).unshare(0x00020000)  # CLONE_NEWNS: mounts of its own
subprocess.run(["mount", "--make-rprivate", "/"], check=True)
subprocess.run(["mount", "-t", "tmpfs", "-o", "size=4k", "tmpfs", "/dev/shm"], check=True)
open("/dev/shm/padding", "wb").write(b"0" * 4096)
"""
