"""Sweeps whose trials and launchers are killed: every trial has one result, none is done twice, none is lost."""

import json
import os
import random
import shutil
import signal
import sqlite3
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from fl_platform.cli import main
from fl_platform.errors import UserError
from fl_platform.sweeps.definition import Sweep, find_sweep
from fl_platform.sweeps.display import Display
from fl_platform.sweeps.launcher import Launcher
from fl_platform.sweeps.ledger import Entry, Ledger
from tests.sweeps.small_sweeps import entries_of, quick_sweep
from tests.torture import forked

Scale = Callable[[int, int], int]
Record = Callable[[str, object], None]

PLACES = ("claim", "record", "local steps", "checkpoint", "result")
WITNESS = """
from fl_platform.run_directory import RunDirectory

complete = RunDirectory.complete

def witnessed(self, attempt, result):
    with open({path!r}, "a") as file:
        file.write(f"{{self.run_id}} {{self.result_file.exists()}}\\n")
    complete(self, attempt, result)

RunDirectory.complete = witnessed
"""


def make(directory: Path, trials: int, *words: str) -> tuple[Sweep, list[str]]:
    """A sweep over seeds, and the words that launch it."""
    directory.mkdir(parents=True, exist_ok=True)
    sweep = quick_sweep(directory, {"seed": {"values": list(range(trials))}}, "checkpoint.every=1", *words)
    return sweep, ["sweep", "run", str(sweep.source), *sweep.overrides]


def check_exactly_once(sweep: Sweep, trials: int) -> list[Entry]:
    """One result a trial: in the ledger, on the disk, and as figures."""
    entries = entries_of(sweep)
    assert [entry.state for entry in entries] == ["finished"] * trials
    ends = Counter(event["trial"] for event in events(sweep.directory) if event["kind"] == "finished")
    assert ends == dict.fromkeys(range(trials), 1)
    results = {path.parent.name: json.loads(path.read_text()) for path in sweep.output.glob("*/result.json")}
    assert results.keys() == {entry.run_id for entry in entries}
    for entry in entries:
        assert entry.summary["fingerprint"] == results[entry.run_id or ""]["fingerprint"]
    return entries


def events(directory: Path) -> list[dict[str, Any]]:
    database = sqlite3.connect(directory / "ledger.sqlite")
    try:
        database.row_factory = sqlite3.Row
        return [dict(row) for row in database.execute("SELECT * FROM events ORDER BY seq")]
    finally:
        database.close()


# --- launchers with trials inside them ---


@pytest.mark.parametrize("launchers", [1, 2])
def test_killed_launchers_lose_nothing_and_repeat_nothing(
    launchers: int, tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    """`sweep run --in-process`: a kill takes the launcher and the trial it is at."""
    if launchers == 1 and scale(0, 1) == 0:
        pytest.skip("two launchers are enough of a sample: one alone only with --torture")
    trials, wanted = scale(4, 100), scale(2, 30)
    sweep, words = make(tmp_path, trials)
    witness = WITNESS.format(path=str(tmp_path / "published"))
    rng, kills = random.Random(f"sweep {launchers}"), Counter[str]()
    while True:
        children = []
        for number in range(launchers):
            place = rng.choice((*PLACES, "by a timer"))
            before = witness
            if kills.total() < wanted and place in PLACES:
                entry, event = rng.randint(1, 8), round(300 ** rng.random())
                before += f"from tests.torture.kill_points import arm; arm({place!r}, {entry}, {event})"
            children.append((place, forked.start([*words, "--in-process"], tmp_path / f"launcher{number}", before)))
        if kills.total() < wanted and any(place not in PLACES for place, _ in children):
            time.sleep(rng.uniform(0.5, 3))
            for _, child in (found for found in children if found[0] not in PLACES):
                child.send()
        ended = [(place, child.wait()) for place, child in children]
        kills.update(place for place, end in ended if end.was_killed)
        assert all(end.was_killed or end.code == 0 for _, end in ended), ended
        if any(end.code == 0 for _, end in ended):
            break
    entries = check_exactly_once(sweep, trials)
    published = [line.split() for line in (tmp_path / "published").read_text().splitlines()]
    assert [line for line in published if line[1] != "False"] == []  # no result was ever made again
    for entry in rng.sample(entries, 1):
        words = ["run", *sweep.overrides, f"seed={entry.params['seed']}", f"output.dir={tmp_path / 'alone'}"]
        assert entry.summary["fingerprint"] in forked.run(words, tmp_path / "alone").out
    where = ", ".join(f"{count} {place}" for place, count in sorted(kills.items()))
    record_property(
        f"results of a sweep of {trials} trials, {launchers} launcher(s) at once, {kills.total()} kills ({where})",
        len(entries),
    )


def test_ctrl_c_on_a_launcher_once_and_twice(tmp_path: Path, scale: Scale) -> None:
    if scale(0, 1) == 0:
        pytest.skip("three launches: only with --torture")
    sweep, words = make(tmp_path, 3, "num_rounds=60")
    for signals in (1, 2):
        rounds = rounds_of(sweep)
        child = forked.start([*words, "--in-process"], tmp_path)
        wait_for(lambda rounds=rounds: rounds_of(sweep) > rounds + 3, child)
        for _ in range(signals):
            child.send(signal.SIGINT)
            time.sleep(0.01)
        ended = child.wait()
        assert ended.code == 130, ended
        assert "Traceback" not in ended.err
        assert {entry.state for entry in entries_of(sweep)} <= {"finished", "interrupted", "proposed"}
    assert forked.run([*words, "--in-process"], tmp_path).code == 0
    check_exactly_once(sweep, 3)


def rounds_of(sweep: Sweep) -> int:
    return sum(path.read_text().count("\n") for path in sweep.output.glob("*/attempts/*/rounds.jsonl"))


def wait_for(condition: Callable[[], bool], child: forked.Child) -> None:
    while not condition():
        assert not child.is_over()
        time.sleep(0.02)


def test_a_trial_that_waits_for_its_retry_is_left_and_not_failed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sweep, _ = make(tmp_path, 2)
    with Ledger(sweep.directory) as ledger:
        sweep.write_copy(sweep.directory)
        ledger.propose([{"seed": 0}, {"seed": 1}])
        ledger.record(None, "retries", data={"retries": 2})
        for _ in range(2):
            entry = ledger.claim(2, 9, lambda entry: f"run{entry.number}")
            assert entry is not None
            ledger.record(0, "failed", run_id="run0", attempt=entry.attempt, data={"message": "broke"})
    assert main(["sweep", "status", str(sweep.directory)]) == 0
    told = capsys.readouterr().out
    assert "0/2 done, 0 running, 2 left" in told
    assert "failed" not in told


# --- trials in processes of their own ---


def test_killed_trials_and_launchers_of_ordinary_processes(
    tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    trials = scale(0, 8)
    if trials == 0:
        pytest.skip("a dozen interpreters: only with --torture")
    sweep, words = make(tmp_path, trials, "num_rounds=150")
    words += ["--workers", "2", "--retries", "20"]
    rng, killed = random.Random(0), Counter[str]()
    launcher = forked.start(words, tmp_path)
    while not launcher.is_over():
        time.sleep(rng.uniform(1, 6))
        running = [entry.pid for entry in entries_of(sweep) if entry.state == "started" and entry.pid != launcher.pid]
        if killed.total() >= 10 or not running:
            continue
        if rng.random() < 0.3:
            launcher.send()
            launcher.wait()
            killed["launcher"] += 1
            launcher = forked.start(words, tmp_path)
        else:
            killed["trial"] += kill_if_there(rng.choice(running))
    assert launcher.wait().code == 0
    check_exactly_once(sweep, trials)
    record_property(f"results of {trials} trials in processes of their own, killed {dict(killed)}", trials)


def kill_if_there(pid: int) -> int:
    """1 where a trial was killed; the process may have ended and its number gone to another since."""
    try:
        if b"fl_platform" not in Path(f"/proc/{pid}/cmdline").read_bytes():
            return 0
        os.kill(pid, signal.SIGKILL)
    except (OSError, ProcessLookupError):
        return 0
    return 1


@pytest.mark.filterwarnings("ignore")  # Ray's own: deprecations and sockets it leaves to the collector
def test_a_ray_cluster_that_loses_a_node_and_workers(tmp_path: Path, scale: Scale, record_property: Record) -> None:
    if scale(0, 1) == 0:
        pytest.skip("a cluster of three nodes: only with --torture")
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install ray")
    from ray.cluster_utils import Cluster

    from fl_platform.sweeps.ray_pool import RayPool

    sweep, _ = make(tmp_path, 4, "num_rounds=150")
    sweep.write_copy(sweep.directory)
    cluster = Cluster(initialize_head=True, head_node_args={"num_cpus": 1, "include_dashboard": False})
    try:
        node = cluster.add_node(num_cpus=1)
        with Ledger(sweep.directory) as ledger, disturbance(sweep, lambda: cluster.remove_node(node)) as done:
            ledger.launch([])
            pool = RayPool(cluster.address, 1.0, 0.0, None)
            try:
                Launcher(sweep, sweep.directory, ledger, pool, Display(), retries=9, cap=None).run()
            finally:
                pool.close()
    finally:
        ray.shutdown()
        cluster.shutdown()
    check_exactly_once(sweep, 4)
    assert len(done) == 3
    record_property("results of 4 trials on Ray, which lost", f"4; {', '.join(done)}")


@contextmanager
def disturbance(sweep: Sweep, lose_a_node: Callable[[], object]) -> Iterator[list[str]]:
    """Beside a sweep: a Ray worker is killed, then a node is lost, then another worker is killed."""
    over, done = threading.Event(), list[str]()

    def disturb() -> None:
        while not over.wait(1.0) and len(done) < 3:
            if rounds_of(sweep) < 20 * (len(done) + 1):
                continue
            if len(done) == 1:
                lose_a_node()
                done.append("a node")
            elif (worker := a_ray_worker(sweep)) is not None:
                os.kill(worker, signal.SIGKILL)
                done.append("a worker")

    thread = threading.Thread(target=disturb)
    thread.start()
    try:
        yield done
    finally:
        over.set()
        thread.join()


def a_ray_worker(sweep: Sweep) -> int | None:
    """The parent of a running trial's process."""
    for path in Path("/proc").glob("[0-9]*"):
        try:
            if str(sweep.output).encode() in (path / "cmdline").read_bytes():
                return int((path / "stat").read_text().rpartition(")")[2].split()[1])
        except OSError:
            continue
    return None


# --- the ledger's bytes ---


def test_a_ledger_cut_at_any_byte_keeps_what_was_complete_before_it(
    tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    """The write-ahead log as a crash of the machine may leave it: a prefix of the events, longer with every byte."""
    ledger = Ledger(tmp_path / "whole")
    ledger.propose([{"seed": number} for number in range(5)])
    for number in range(5):
        ledger.record(number, "finished", run_id=f"run{number}")
    written = events(tmp_path / "whole")
    log = (tmp_path / "whole" / "ledger.sqlite-wal").read_bytes()
    rng, kept = random.Random(0), []
    cuts = sorted({0, len(log), *(rng.randrange(len(log)) for _ in range(scale(20, 500)))})
    for cut in cuts:
        place = tmp_path / "cut"
        shutil.copytree(tmp_path / "whole", place)
        (place / "ledger.sqlite-shm").unlink()
        (place / "ledger.sqlite-wal").write_bytes(log[:cut])
        with Ledger(place) as again:
            found = events(place)
            assert found == written[: len(found)]
            kept.append(len(found))
            again.propose([{"seed": number} for number in range(5)])  # and it goes on
            assert again.count() == 5
        shutil.rmtree(place)
    ledger.close()
    assert kept == sorted(kept)
    assert (kept[0], kept[-1]) == (0, len(written))
    record_property("cuts of a ledger's log that lost nothing before the cut", len(cuts))


def test_a_sweep_directory_is_found_by_its_last_file(tmp_path: Path) -> None:
    sweep, _ = make(tmp_path, 1)
    sweep.write_copy(sweep.directory)
    assert find_sweep(sweep.directory)[0].overrides == sweep.overrides
    (sweep.directory / "overrides.json").unlink()  # as after a kill in between
    with pytest.raises(UserError, match="is not a sweep directory"):
        find_sweep(sweep.directory)
    sweep.write_copy(sweep.directory)
    assert find_sweep(sweep.directory)[0].overrides == sweep.overrides
