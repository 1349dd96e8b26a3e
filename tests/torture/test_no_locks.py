"""A launcher on a real file system that refuses locks, or takes and forgets them: one sentence, nothing begun."""

import errno
import os
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fl_platform.cli import main
from tests.sweeps.small_sweeps import QUICK, write_sweep

STATUS = ("st_gid", "st_mode", "st_nlink", "st_size", "st_uid")
SPACE = ("f_bavail", "f_bfree", "f_blocks", "f_bsize", "f_favail", "f_ffree", "f_files", "f_flag", "f_frsize")


def serve(root: str, place: str, kind: str) -> None:
    """Show the folder ``root`` at ``place`` until it is unmounted; locks are refused, or forgotten at once."""
    import mfusepy as fuse

    class Mirror(fuse.Operations):  # type: ignore[misc]
        use_ns = True

        def access(self, path: str, amode: int) -> int:
            return 0

        def getattr(self, path: str, fh: int | None = None) -> dict[str, Any]:
            found = os.lstat(root + path)
            times = {f"st_{name}time": getattr(found, f"st_{name}time_ns") for name in "amc"}
            return {name: getattr(found, name) for name in STATUS} | times

        def readdir(self, path: str, fh: int) -> list[str]:
            return [".", "..", *os.listdir(root + path)]

        def open(self, path: str, flags: int) -> int:
            return os.open(root + path, flags)

        def create(self, path: str, mode: int, fi: Any = None) -> int:
            return os.open(root + path, os.O_RDWR | os.O_CREAT, mode)

        def read(self, path: str, size: int, offset: int, fh: int) -> bytes:
            return os.pread(fh, size, offset)

        def write(self, path: str, data: bytes, offset: int, fh: int) -> int:
            return os.pwrite(fh, data, offset)

        def truncate(self, path: str, length: int, fh: int | None = None) -> int:
            os.truncate(root + path, length)
            return 0

        def release(self, path: str, fh: int) -> int:
            os.close(fh)
            return 0

        def mkdir(self, path: str, mode: int) -> int:
            os.mkdir(root + path, mode)
            return 0

        def unlink(self, path: str) -> int:
            os.unlink(root + path)
            return 0

        def rename(self, old: str, new: str, flags: int = 0) -> int:
            os.rename(root + old, root + new)
            return 0

        def statfs(self, path: str) -> dict[str, int]:
            found = os.statvfs(root + path)
            return {name: getattr(found, name) for name in SPACE}

        def flock(self, path: str, fh: int, op: int) -> int:
            if kind == "refused":
                raise fuse.FuseOSError(errno.ENOLCK)
            return 0

    fuse.FUSE(Mirror(), place, foreground=True, nothreads=True)


@pytest.fixture(params=["refused", "forgotten"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Path]:
    """A mounted file system of that kind; skipped where FUSE is not there."""
    pytest.importorskip("mfusepy", reason="needs `pip install mfusepy` and libfuse3", exc_type=Exception)
    if not Path("/dev/fuse").exists():
        pytest.skip("there is no /dev/fuse")
    root, place = tmp_path / "root", tmp_path / "place"
    root.mkdir()
    place.mkdir()
    command = [sys.executable, "-m", "tests.torture.test_no_locks", str(root), str(place), request.param]
    server = subprocess.Popen(command, cwd=Path(__file__).parents[2], stderr=subprocess.PIPE, text=True)
    try:
        deadline = time.monotonic() + 60
        while not os.path.ismount(place):
            if server.poll() is not None or time.monotonic() > deadline:
                pytest.skip(f"it cannot be mounted: {server.communicate()[1][-200:] if server.poll() else 'too slow'}")
            time.sleep(0.05)
        yield place
    finally:
        subprocess.run(["umount", "--lazy", str(place)], check=False)
        server.communicate(timeout=30)


def test_a_launcher_refuses_it_in_one_sentence(
    place: Path, tmp_path: Path, scale: Callable[[int, int], int], capsys: pytest.CaptureFixture[str]
) -> None:
    if not scale(0, 1):
        pytest.skip("a mounted file system: only with --torture")
    sweep = write_sweep(tmp_path / "s.yaml", {"seed": {"values": [0]}})
    for more in ([], ["--in-process"]):
        assert main(["sweep", "run", str(sweep), *QUICK, f"output.dir={place / 'runs'}", *more]) == 2
        error = capsys.readouterr().err
        assert "is on a file system without working locks" in error.splitlines()[-1]
        assert not list(place.glob("runs/*/attempts"))


if __name__ == "__main__":
    serve(*sys.argv[1:4])
