"""Sweeps of trials in processes of their own, here and on Ray, killed from inside and outside: one result a trial."""

import contextlib
import json
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fl_platform.sweeps.definition import Sweep
from fl_platform.sweeps.display import Display
from fl_platform.sweeps.launcher import Launcher
from fl_platform.sweeps.ledger import Ledger
from tests.sweeps.small_sweeps import entries_of
from tests.torture import forked
from tests.torture.exactly_once import check_exactly_once, events, make, rounds_of
from tests.torture.witness import check_published_once, program

Scale = Callable[[int, int], int]
Record = Callable[[str, object], None]

ROUNDS = 20
"""Long enough to be killed between two of them."""


def make_watched(directory: Path, trials: int) -> tuple[Sweep, list[str]]:
    """A sweep whose trials are processes under watch, some of which kill themselves."""
    trial = ["${env}", "${interpreter}", str(program(directory)), "run", "--skip-finished", "--continue"]
    return make(directory, trials, f"num_rounds={ROUNDS}", command=[*trial, "${args_no_hyphens}"])


def killed_trials(sweep: Sweep) -> int:
    """As many as launchers noticed; those of a launcher that died itself come on top."""
    failed = [json.loads(event["data"])["message"] for event in events(sweep.directory) if event["kind"] == "failed"]
    assert [message for message in failed if not message.startswith("killed (signal 9)")] == []
    return len(failed)


@pytest.mark.parametrize(("launchers", "trials"), [(2, 100), (1, 100)])
def test_killed_trials_and_launchers_of_ordinary_processes(
    launchers: int, trials: int, tmp_path: Path, scale: Scale, record_property: Record
) -> None:
    """A fresh interpreter a trial. Some kill themselves at a place; more, and launchers, die from outside."""
    if scale(0, 1) == 0:
        pytest.skip("many interpreters: only with --torture")
    sweep, args = make_watched(tmp_path, trials)
    args += ["--jobs", str(3 - launchers), "--retries", "20"]
    rng, launchers_killed = random.Random(f"processes {launchers}"), 0
    moments = sorted(rng.uniform(0, trials - 1) for _ in range(trials // 3))  # in trials that are done

    def launch(number: int) -> forked.Child:
        place, entry, event = rng.choice(("claim", "record")), rng.randint(1, 12), round(300 ** rng.random())
        before = f"from tests.torture.kill_points import arm; arm({place!r}, {entry}, {event})"
        return forked.start(args, tmp_path / f"launcher{number}", before if rng.random() < 0.5 else "")

    at_work = {number: launch(number) for number in range(launchers)}
    while at_work:
        time.sleep(0.5)
        for number, child in [(number, child) for number, child in at_work.items() if child.is_over()]:
            ended = child.wait()
            assert ended.was_killed or ended.code == 0, ended
            launchers_killed += ended.was_killed
            del at_work[number]
            if ended.was_killed:
                at_work[number] = launch(number)
        states = [(entry.state, entry.pid) for entry in entries_of(sweep)] if moments and at_work else []
        if states and [state for state, _ in states].count("finished") >= moments[0]:
            moments.pop(0)
            time.sleep(rng.uniform(0, 5))
            if rng.random() < 0.5:
                at_work[rng.choice(list(at_work))].send()
            elif running := [pid for state, pid in states if state == "started"]:
                kill_trial(sweep, rng.choice(running))
    entries = check_exactly_once(sweep, trials)
    check_published_once(tmp_path, {entry.run_id or "" for entry in entries})
    record_property(
        f"results of {trials} trials in processes of their own, {launchers} launcher(s) at once,"
        f" {killed_trials(sweep)} kills of trials and {launchers_killed} of launchers",
        len(entries),
    )


def kill_trial(sweep: Sweep, pid: int) -> None:
    """Unless the process has ended and its number gone to another since."""
    with contextlib.suppress(OSError):
        if str(sweep.output).encode() in Path(f"/proc/{pid}/cmdline").read_bytes():
            os.kill(pid, signal.SIGKILL)


@pytest.mark.filterwarnings("ignore")  # Ray's own: deprecations and sockets it leaves to the collector
def test_a_ray_cluster_that_loses_nodes_and_workers(tmp_path: Path, scale: Scale, record_property: Record) -> None:
    if scale(0, 1) == 0:
        pytest.skip("a cluster of three nodes: only with --torture")
    ray = pytest.importorskip("ray", reason="ray is not installed: pip install ray")
    from ray.cluster_utils import Cluster

    from fl_platform.sweeps.ray_pool import RayPool

    trials = 100
    sweep, _ = make_watched(tmp_path, trials)
    sweep.write_copy(sweep.directory)
    head = {"num_cpus": 1, "include_dashboard": False}
    # what Ray would set up for its exit, it can set up in the main thread only, and nodes come later from another
    cluster = Cluster(initialize_head=True, shutdown_at_exit=False, head_node_args=head)
    try:
        for _ in range(2):
            cluster.add_node(num_cpus=1)
        with Ledger(sweep.directory) as ledger, disturbance(sweep, trials, cluster) as done:
            ledger.launch([])
            pool = RayPool(cluster.address, 1.0, 0.0, None)
            try:
                Launcher(sweep, sweep.directory, ledger, pool, Display(), retries=9, cap=None).run()
            finally:
                pool.close()
    finally:
        ray.shutdown()
        cluster.shutdown()
    entries = check_exactly_once(sweep, trials)
    check_published_once(tmp_path, {entry.run_id or "" for entry in entries})
    lost = ", ".join(f"{count} {what}" for what, count in done.items())
    assert done == {"workers": 20, "nodes": 4}
    record_property(f"results on Ray, {killed_trials(sweep)} kills of trials, which lost {lost}", len(entries))


@contextlib.contextmanager
def disturbance(sweep: Sweep, trials: int, cluster: Any) -> Iterator[Counter[str]]:
    """Beside a sweep on Ray: as its rounds are done a worker is killed, or a node is lost and a new one comes."""
    over, done = threading.Event(), Counter[str]()

    def disturb() -> None:
        while not over.wait(0.5) and done.total() < 24:
            if rounds_of(sweep) < trials * ROUNDS * (done.total() + 1) / 27:
                continue
            if done.total() % 6 == 5:
                cluster.remove_node(next(iter(cluster.worker_nodes)))
                cluster.add_node(num_cpus=1)
                done["nodes"] += 1
            elif (worker := a_ray_worker(sweep)) is not None:
                os.kill(worker, signal.SIGKILL)
                done["workers"] += 1

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
