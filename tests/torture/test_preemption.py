"""SIGTERM with a grace of seconds, as Slurm, Kubernetes and spot instances send it: saved, and requeued by 130."""

import os
import signal
import time
from pathlib import Path

import pytest

from tests.torture import forked
from tests.torture.small_run import RUN, fingerprint

SLOW = """
import time
from dataclasses import dataclass
from fl_platform import Algorithm

@dataclass(eq=False)
class Slow(Algorithm, name="slow", label="Slow"):
    def begin_round(self, workers, round):
        if round == 4 and not __import__("os").path.exists("second"):
            open("waiting", "w").close()
            time.sleep({seconds})
"""


@pytest.mark.parametrize(("seconds", "rounds"), [(2, 4), (60, 3)])
def test_a_round_is_finished_in_time_or_abandoned_and_the_run_goes_on_to_the_same_bits(
    seconds: int, rounds: int, tmp_path: Path, scale
) -> None:
    if seconds < scale(10, 0):
        pytest.skip("the round that is finished: only with --torture")
    arguments = [*RUN, "plugins=[slow_plugin]", "algorithm.name=slow", "tracking.mode=disabled", "output.dir=runs"]
    (tmp_path / "slow_plugin.py").write_text(SLOW.format(seconds=seconds))
    grace = "import fl_platform.federation.progress as p; p.GRACE_SECONDS = " + ("5.0" if seconds < 10 else "1.5")
    before = f"import sys; sys.path.insert(0, ''); {grace}"
    child = forked.start(arguments, tmp_path, before)
    deadline = time.monotonic() + 60
    while not (tmp_path / "waiting").exists() and time.monotonic() < deadline:
        time.sleep(0.05)
    began = time.monotonic()
    os.kill(child.pid, signal.SIGTERM)
    ended = child.wait()
    assert ended.code == 130, ended.err
    assert time.monotonic() - began < 30
    assert ("is abandoned" in ended.err) is (rounds == 3)
    newest = max(path.name for path in tmp_path.glob("runs/*/attempts/0001/checkpoints/round-*.ckpt"))
    assert newest.startswith(f"round-{rounds:06d}")
    (tmp_path / "second").touch()
    again = forked.run(arguments, tmp_path, before)
    assert again.code == 0, again.err
    assert forked.run([*arguments[:-1], "output.dir=whole"], tmp_path, before).code == 0
    assert fingerprint(tmp_path / "runs") == fingerprint(tmp_path / "whole")
