"""A run killed again and again, anywhere, and continued, leaves the bits of a run that nobody disturbed."""

import json
import os
import random
import re
import signal
import subprocess
import sys
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import pytest

from fl_platform.dashboard.store import Store
from fl_platform.errors import UserError
from fl_platform.runs import wandb_logs
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from fl_platform.runs.frames import load
from fl_platform.runs.liveness import FILE, at_work, is_alive
from fl_platform.runs.sources import discover
from tests.torture import forked
from tests.torture.same_run import Left, differences, left_by

Scale = Callable[[int, int], int]
Record = Callable[[str, object], None]

ROUNDS = 8
ARGUMENTS = [
    "data.name=digits", "model.name=mlp", "num_workers=10", "cohort_size=3", "local_steps=2", "checkpoint.every=1",
    f"num_rounds={ROUNDS}",
]  # fmt: skip
ALGORITHMS = {"gradma": ["algorithm.memory_size=9"], "scaffold": [], "moon": []}
INSIDE = ("local steps", "server step", "evaluation", "row file", "W&B logging", "checkpoint", "result")
OUTSIDE = "by a timer"
SOON = {"WANDB__SAVE_REQUIREMENTS": "false"}
"""W&B's list of all installed packages takes as long as everything else that happens before a kill."""


def command(algorithm: str, output: Path, *more: str) -> list[str]:
    args = [
        "run",
        "--continue",
        "--skip-finished",
        f"algorithm.name={algorithm}",
        *ALGORITHMS[algorithm],
        *ARGUMENTS,
        *more,
    ]
    return [*args, f"output.dir={output}"]


def armed(place: str, entry: int, event: int) -> str:
    return f"from tests.torture.kill_points import arm; arm({place!r}, {entry}, {event})"


def kill(args: list[str], folder: Path, place: str, rng: random.Random) -> bool:
    """Run until the kill; false when the run was over before it."""
    if place == OUTSIDE:
        child = forked.start(args, folder, **SOON)
        time.sleep(rng.uniform(0.1, 1.5))
        child.send()
        ended = child.wait()
    else:
        entry = 1 if place == "result" else rng.choice((1, 1, 2))
        ended = forked.run(args, folder, armed(place, entry, round(3000 ** rng.random())), **SOON)
    assert ended.was_killed or ended.code == 0, ended
    assert "Traceback" not in ended.err
    return ended.was_killed


def undisturbed(args: list[str], folder: Path) -> Left:
    ended = forked.run(args, folder, **SOON)
    assert ended.code == 0, ended
    return left_by(folder / "runs")


@pytest.mark.parametrize("engine", ["stacked", "loop"])
@pytest.mark.parametrize("algorithm", ALGORITHMS)
def test_killed_runs_end_with_the_bits_of_undisturbed_ones(
    algorithm: str, engine: str, tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    if (algorithm, engine) != ("gradma", "stacked") and scale(0, 1) == 0:
        pytest.skip("one of each is enough of a sample: the others only with --torture")
    rng = random.Random(f"{algorithm} {engine}")
    expected = undisturbed(command(algorithm, tmp_path / "whole" / "runs", f"engine={engine}"), tmp_path / "whole")
    assert len(expected.rows) == len(expected.read) == ROUNDS
    wanted, killed = scale(2, 50), Counter[str]()
    places = [place for _ in range(wanted) for place in rng.sample((*INSIDE, OUTSIDE), 8)]
    while killed.total() < wanted:
        folder = tmp_path / f"chain-{killed.total()}"
        args = command(algorithm, folder / "runs", f"engine={engine}")
        while killed.total() < wanted and kill(args, folder, place := places.pop(), rng):
            killed[place] += 1
        assert forked.run(args, folder, **SOON).code == 0
        assert differences(left_by(folder / "runs"), expected) == []
        assert not list(folder.rglob(".partial*"))
    where = ", ".join(f"{count} {place}" for place, count in sorted(killed.items()))
    record_property(f"kills of {algorithm}, engine={engine}, all ending in equal bits", f"{killed.total()} ({where})")


# --- damaged checkpoints ---


def newest_checkpoint(output: Path) -> Path:
    (directory,) = output.glob("*/attempts/*/checkpoints")
    [(_, newest), *_] = sorted_checkpoints(directory)
    return newest


def flip_a_bit(path: Path) -> None:
    content = bytearray(path.read_bytes())
    content[len(content) // 3] ^= 16
    path.write_bytes(content)


DAMAGES: dict[str, Callable[[Path], object]] = {
    "a flipped bit": flip_a_bit,
    "cut short": lambda path: path.write_bytes(path.read_bytes()[:-1]),
    "empty": lambda path: path.write_bytes(b""),
    "deleted": Path.unlink,
}


def test_a_damaged_newest_checkpoint_costs_a_round_and_no_bit(
    tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    """Killed in its third round, the newest checkpoint damaged, continued; for every kind of damage."""
    if scale(0, 1) == 0:
        pytest.skip("seven runs: only with --torture")
    expected = undisturbed(command("scaffold", tmp_path / "whole" / "runs"), tmp_path / "whole")
    folder = tmp_path / "damaged"
    args = command("scaffold", folder / "runs", "tracking.mode=offline")
    assert forked.run(args, folder, armed("local steps", 7, 50)).was_killed
    for how, damage in DAMAGES.items():
        newest = newest_checkpoint(folder / "runs")
        damage(newest)
        ended = forked.run(args, folder, armed("local steps", 7, 50))
        said = f"checkpoint {newest} is damaged; falling back to the one before" in ended.err
        assert (ended.was_killed, said) == (True, how != "deleted"), ended
    assert forked.run(args, folder).code == 0
    assert differences(left_by(folder / "runs"), expected) == []
    record_property("kinds of checkpoint damage survived with equal bits", len(DAMAGES))


# --- offline logs ---


def test_rounds_that_never_reached_the_wandb_log_are_in_the_report(tmp_path: Path, record_property: Record) -> None:
    """Killed while it logs its sixth round; what W&B had written is cut further, as by a power cut."""
    args = command("gradma", tmp_path / "runs")
    assert forked.run(args, tmp_path, armed("W&B logging", 6, 5)).was_killed
    (rows,) = (tmp_path / "runs").glob("*/attempts/*/rounds.jsonl")
    on_disk = [json.loads(line) for line in rows.read_text().splitlines()]
    assert len(on_disk) == 6
    (log,) = discover(tmp_path / "runs").logs
    in_log = wandb_logs.read(log).history.num_rows
    assert in_log < 6
    log.write_bytes(log.read_bytes()[: log.stat().st_size // 2])
    killed = load([tmp_path / "runs"])
    assert list(killed.runs["status"]) == ["crashed"]
    assert list(killed.rounds["round"]) == list(range(1, 7)), "the directory has them all"
    (shown,) = Store(tmp_path / "runs").look().runs.values()
    assert shown.log.status == "crashed"
    assert forked.run(args, tmp_path).code == 0
    read = load([tmp_path / "runs"]).rounds
    assert list(read["round"]) == list(range(1, ROUNDS + 1))
    for key in ("test/accuracy", "time/round_seconds"):  # the first five rounds as they were, clock readings included
        assert list(read[key][:5]) == [row[key] for row in on_disk[:5]]
    record_property(
        "rounds in rounds.jsonl, in the killed W&B log, in the report after the resume", (6, in_log, ROUNDS)
    )


# --- Ctrl-C ---


def wait_for(condition: Callable[[], bool], is_over: Callable[[], bool]) -> None:
    while not condition():
        assert not is_over()
        time.sleep(0.02)


def rounds_on_disk(output: Path) -> int:
    return max((path.read_text().count("\n") for path in output.glob("*/attempts/*/rounds.jsonl")), default=0)


def test_ctrl_c_saves_and_twice_leaves_at_once_and_nothing_is_lost(tmp_path: Path, scale: Scale) -> None:
    if scale(0, 1) == 0:
        pytest.skip("four runs: only with --torture")
    args = command("scaffold", tmp_path / "runs", "num_rounds=40", "tracking.mode=disabled")
    for signals, said in ((1, "to resume: python -m fl_platform run --resume"), (2, "fl_platform: interrupted")):
        before = rounds_on_disk(tmp_path / "runs")
        child = forked.start(args, tmp_path)
        wait_for(lambda before=before: rounds_on_disk(tmp_path / "runs") > before + 2, child.is_over)
        (shown,) = Store(tmp_path / "runs").look().runs.values()
        assert shown.log.status == "running"
        for _ in range(signals):
            child.send(signal.SIGINT)
            time.sleep(0.01)
        ended = child.wait()
        assert ended.code == 130, ended
        assert said in ended.err
        assert "Traceback" not in ended.err
        saved = int(newest_checkpoint(tmp_path / "runs").name[6:12])
        assert rounds_on_disk(tmp_path / "runs") - saved in range(signals)
        (shown,) = Store(tmp_path / "runs").look().runs.values()
        assert shown.log.status == "interrupted"
    for event in (20, 60, 100, 200):  # twice while torch writes a checkpoint, which makes an error of its own of it
        twice = f"from tests.torture.kill_points import arm; arm('checkpoint', 2, {event}, (2, 2))"
        ended = forked.run(args, tmp_path, twice)
        assert (ended.code, "Traceback" in ended.err) == (130, False), ended
    assert forked.run(args, tmp_path).code == 0
    whole = command("scaffold", tmp_path / "whole" / "runs", "num_rounds=40", "tracking.mode=disabled")
    assert forked.run(whole, tmp_path / "whole").code == 0
    results = [json.loads(path.read_text())["fingerprint"] for path in tmp_path.rglob("result.json")]
    assert len(results) == 2
    assert len(set(results)) == 1


def test_an_attempt_is_known_to_be_at_work_while_it_is(tmp_path: Path) -> None:
    assert is_alive(tmp_path) is None
    with at_work(tmp_path):
        assert is_alive(tmp_path) is True
        with pytest.raises(UserError, match=f"is being written by process {os.getpid()} on"), at_work(tmp_path):
            pass
    assert is_alive(tmp_path) is False
    (tmp_path / FILE).write_text('{"host": "another", "pid": 1}')
    assert is_alive(tmp_path) is None


def test_two_processes_never_write_one_attempt(tmp_path: Path, scale: Scale) -> None:
    if scale(0, 1) == 0:
        pytest.skip("two runs: only with --torture")
    args = command("moon", tmp_path / "runs", "num_rounds=200", "tracking.mode=disabled")
    child = forked.start(args, tmp_path)
    wait_for(lambda: rounds_on_disk(tmp_path / "runs") > 2, child.is_over)
    rival = forked.run(args, tmp_path / "rival")
    assert rival.code == 2
    said = rf"fl_platform: \S+/0001 is being written by process {child.pid} on \S+; wait for it or stop it first\n"
    assert re.fullmatch(said, rival.err)
    child.send()
    assert child.wait().was_killed


# --- several ranks ---


def test_killed_ranks_end_with_the_bits_of_undisturbed_ones(
    tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    """`trainer.strategy=ddp`, ordinary processes; first the first rank is killed, then the second."""
    if scale(0, 1) == 0:
        pytest.skip("eight interpreters for one result: only with --torture")
    ddp = ["trainer.strategy=ddp", "trainer.devices=2", "trainer.accelerator=cpu", "num_rounds=30"]
    args = command("gradma", tmp_path / "killed" / "runs", *ddp)
    for victim in (0, 1):
        before = rounds_on_disk(tmp_path / "killed" / "runs")
        process = launch_ranks(args)
        wait_for(
            lambda before=before: rounds_on_disk(tmp_path / "killed" / "runs") > before + 4,
            lambda process=process: process.poll() is not None,
        )
        ranks = [process.pid, *python_children(process.pid)]
        assert len(ranks) == 2
        subprocess.run(["kill", "-KILL", str(ranks[victim])], check=True)
        assert process.wait(timeout=120) != 0
        deadline = time.monotonic() + 60
        while any(Path(f"/proc/{pid}").exists() for pid in ranks):  # the one that is left may not stay for ever
            assert time.monotonic() < deadline
            time.sleep(0.1)
    assert launch_ranks(args).wait() == 0
    assert launch_ranks(command("gradma", tmp_path / "whole" / "runs", *ddp)).wait() == 0
    assert differences(left_by(tmp_path / "killed" / "runs"), left_by(tmp_path / "whole" / "runs")) == []
    record_property("kills of gradma on two ranks, ending in equal bits", 2)


def launch_ranks(args: list[str]) -> "subprocess.Popen[bytes]":
    own = {name: value for name, value in os.environ.items() if name != "WANDB_SERVICE"}  # as in forked.Server
    return subprocess.Popen([sys.executable, "-m", "fl_platform", *args], stdout=subprocess.DEVNULL, env=own)


def python_children(pid: int) -> list[int]:
    found = []
    for path in Path("/proc").glob("[0-9]*"):
        try:
            parent = int((path / "stat").read_text().rpartition(")")[2].split()[1])
            if parent == pid and b"fl_platform" in (path / "cmdline").read_bytes():
                found.append(int(path.name))
        except OSError:
            continue
    return found
