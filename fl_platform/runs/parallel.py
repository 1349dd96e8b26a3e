"""Reads many run directories with all cores: further processes parse a share each and leave it in the cache.

A run that has ended is kept in the cache beside the runs whoever reads it, so a helper needs no other way to hand it
over. What a helper does not leave there, for whatever reason, is read by this process.
"""

import contextlib
import json
import os
import subprocess
import sys
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from fl_platform.runs import cache
from fl_platform.runs.directory import RunDirectory
from fl_platform.runs.reader import read_directory, read_kept
from fl_platform.runs.record import RunRecord

BYTES_TO_SHARE = 200 << 20
"""Of rows that are not in the cache: below, starting another process takes longer than it saves."""
MOST_HELPERS = 7


def read_directories(
    logs: Mapping[Path, Path | None], cache_dir: Path | None = None, helpers: int | None = None
) -> list[RunRecord]:
    """The runs of these directories, each with the W&B log to read where its own files do not say how it ended.

    ``helpers`` is the number of further processes for large amounts; by default one per further core.
    """
    found = {path: record for path in logs if (record := read_kept(path, cache_dir)) is not None}
    most = min(MOST_HELPERS, num_cores() - 1) if helpers is None else helpers
    shared = worth_sharing([path for path in logs if path not in found], cache_dir) if most > 0 else []
    with helping([shared[part :: most + 1] for part in range(1, most + 1)], cache_dir):
        found |= {path: read_directory(path, logs[path], cache_dir) for path in shared[:: most + 1]}
    return [found[path] if path in found else read_directory(path, log, cache_dir) for path, log in logs.items()]


def num_cores() -> int:
    """Number of cores this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def worth_sharing(paths: Iterable[Path], cache_dir: Path | None) -> list[Path]:
    """Those of the runs that have ended, if the cache can be written; none where they are too few to share."""
    found, size = [], 0
    for path in paths:
        files = RunDirectory(path.parent, path.name)
        if not files.result_file.exists() or not is_writable(cache.of_runs(path, cache_dir)):
            continue
        rounds = files.counted_rounds(has_result=True)
        with contextlib.suppress(OSError):
            size += rounds.stat().st_size if rounds else 0
        found.append(path)
    return found if size >= BYTES_TO_SHARE else []


def is_writable(folder: Path) -> bool:
    """Whether a cache directory can be written, or made."""
    return os.access(folder if folder.exists() else folder.parent, os.W_OK)


@contextlib.contextmanager
def helping(shares: list[list[Path]], cache_dir: Path | None) -> Iterator[None]:
    """Have other processes read these shares meanwhile; at the end they are waited for, or ended after an error."""
    package = str(Path(__file__).parents[2])
    search = os.pathsep.join([package, *filter(None, [os.environ.get("PYTHONPATH")])])
    started = []
    try:
        for share in filter(None, shares):
            helper = subprocess.Popen(
                [sys.executable, "-m", __name__],
                stdin=subprocess.PIPE,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**os.environ, "PYTHONPATH": search},
            )
            started.append(helper)
            assert helper.stdin is not None
            with contextlib.suppress(BrokenPipeError), helper.stdin:
                paths = [os.fspath(path) for path in share]  # as they were given: a record says where it is from
                helper.stdin.write(json.dumps([paths, cache_dir and os.fspath(cache_dir)]).encode())
        yield
        for helper in started:
            helper.wait()
    finally:
        for helper in started:
            helper.kill()
            helper.wait()


def main() -> None:
    """What a helper does: read the runs that standard input names."""
    paths, cache_dir = json.load(sys.stdin)
    for path in paths:
        read_directory(Path(path), None, cache_dir and Path(cache_dir))


if __name__ == "__main__":
    main()
