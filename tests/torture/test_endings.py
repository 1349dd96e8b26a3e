"""Real processes that end in every way a run can end, and the words that `why` and the readers have for it."""

import os
import signal
import subprocess
import time
from collections.abc import Callable
from pathlib import Path

import pytest

from fl_platform.cli import main
from fl_platform.runs.frames import load
from fl_platform.runs.status import Ending
from tests.torture import forked
from tests.torture.small_run import RUN

PLUGIN = """
import os, signal, time
import lightning as L
import torch

class Watch(L.Callback):
    def on_train_batch_end(self, trainer, *rest):
        if trainer.current_epoch == 2:
            {act}
"""
ACTS = {
    Ending.FINISHED: ("pass", 0),
    Ending.USER_CODE: ("raise RuntimeError('enough')", 1),
    Ending.OUT_OF_MEMORY: ("raise MemoryError('no room')", 1),
    Ending.KILLED: ("os.kill(os.getpid(), signal.SIGKILL)", -signal.SIGKILL),
    Ending.INTERRUPTED: ("os.kill(os.getpid(), signal.SIGTERM); time.sleep(30)", 130),
    Ending.DISK_FULL: ("os.truncate('disk/padding', 0); open('disk/padding', 'wb').write(b'0' * (1 << 26))", 4),
}
EVERY_TIME = (Ending.KILLED, Ending.INTERRUPTED)
ALLOCATES = "self.kept = torch.ones(1 << 46)"  # 256 TB, which torch's own allocator refuses


@pytest.mark.parametrize(
    ("ending", "act", "code"),
    [*((ending, *act) for ending, act in ACTS.items()), (Ending.OUT_OF_MEMORY, ALLOCATES, 1)],
)
def test_a_process_that_ends_so_is_called_so(
    ending: Ending, act: str, code: int, tmp_path: Path, scale: Callable[[int, int], int], capsys
) -> None:
    if ending not in EVERY_TIME and not scale(0, 1):
        pytest.skip("the other endings: only with --torture")
    (tmp_path / "watching.py").write_text(PLUGIN.format(act=act))
    output = tmp_path / "disk" / "runs"
    output.mkdir(parents=True)
    if ending is Ending.DISK_FULL:
        command = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(output.parent)]
        if (done := subprocess.run(command, capture_output=True, text=True, check=False)).returncode:
            pytest.skip(f"a small file system cannot be mounted: {done.stderr.strip()}")
        (output.parent / "padding").touch()
        act = "with __import__('contextlib').suppress(OSError): " + act
        (tmp_path / "watching.py").write_text(PLUGIN.format(act=act))
    before = "import sys; sys.path.insert(0, ''); import fl_platform.federation.progress as p; p.GRACE_SECONDS = 1.0"
    keys = ["callbacks=[watching.Watch]", "tracking.mode=disabled", f"output.dir={output}"]
    try:
        ended = forked.run([*RUN, *keys], tmp_path, before)
        assert ended.code == code, ended.err
        runs = load(output).runs
        assert runs["ending"].tolist() == [ending.value]
        assert main(["why", runs["run_id"][0], "--dir", str(output)]) == 0
        assert f"run {runs['run_id'][0]} {ending}; " in capsys.readouterr().out
    finally:
        if os.path.ismount(output.parent):
            subprocess.run(["umount", "--lazy", str(output.parent)], check=True)


def test_nan_is_called_diverged_everywhere(tmp_path: Path, scale: Callable[[int, int], int], capsys) -> None:
    if not scale(0, 1):
        pytest.skip("only with --torture; tests/torture/test_numerical_faults.py has samples")
    keys = ["local_lr=1e30", "model.norm=none", "tracking.mode=disabled", f"output.dir={tmp_path}"]
    assert forked.run([*RUN, *keys], tmp_path).code == 3
    assert load(tmp_path).runs["ending"].tolist() == [Ending.DIVERGED]


def test_a_process_of_another_host_that_went_silent_is_a_lost_node(tmp_path: Path, capsys) -> None:
    """The host in its own note is another, as after a node is gone; its files are an hour old."""
    act = ACTS[Ending.KILLED][0]
    (tmp_path / "watching.py").write_text(PLUGIN.format(act=act))
    before = "import sys, socket; sys.path.insert(0, ''); socket.gethostname = lambda: 'gone'"
    keys = ["callbacks=[watching.Watch]", "tracking.mode=disabled", f"output.dir={tmp_path}"]
    assert forked.run([*RUN, *keys], tmp_path, before).was_killed
    hour_ago = time.time() - 3600
    for path in tmp_path.rglob("*"):
        os.utime(path, (hour_ago, hour_ago))
    assert load(tmp_path).runs["ending"].tolist() == [Ending.LOST]
