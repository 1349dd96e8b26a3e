"""A thousand runs of a thousand rounds: the dashboard answers, and a report is made, in bearable time and memory."""

import itertools
import json
import os
import re
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable
from pathlib import Path
from typing import Any

import yaml
from wandb.proto import wandb_internal_pb2 as pb

from fl_platform.runs import metrics
from tests.dashboard.made_runs import rows
from tests.sweeps.small_sweeps import quick_sweep
from tests.synthetic_logs import log_bytes, make_log
from tests.torture import forked

Note = Callable[[str, object], None]
ALGORITHMS = ("fedavg", "fedprox", "scaffold", "gradma")
SEEDS = 5
MOST_KB = 1_500_000


def settings(count: int) -> list[dict[str, Any]]:
    """A search over so many runs: algorithms, seeds, and as many learning rates as it takes."""
    found: list[dict[str, Any]] = []
    for step in itertools.count(1):
        if len(found) >= count:
            break
        found += [
            {
                "algorithm": {"name": name}, "seed": seed, "cohort_size": 10, "num_workers": 100, "num_rounds": 1000,
                "data": {"name": "digits", "partition": "dirichlet", "dirichlet_omega": 0.1}, "local_lr": step / 100,
                "evaluation": {"targets": [0.5]}, "tracking": {"tags": []},
            }
            for name in ALGORITHMS
            for seed in range(SEEDS)
        ]  # fmt: skip
    return found[:count]


def write_directories(output: Path, count: int, rounds: int) -> None:
    """Run directories as runs leave them; runs of one algorithm and seed share their rounds."""
    texts: dict[tuple[str, int], str] = {}
    for number, config in enumerate(settings(count)):
        key = (config["algorithm"]["name"], config["seed"])
        if key not in texts:
            texts[key] = "".join(json.dumps(row) + "\n" for row in rows(*key, rounds=rounds))
        directory = output / f"{number:012x}"
        attempt = directory / "attempts" / "0001"
        attempt.mkdir(parents=True)
        (attempt / "rounds.jsonl").write_text(texts[key], encoding="utf-8")
        (directory / "config.yaml").write_text(yaml.safe_dump(config), encoding="utf-8")
        result = {"run": directory.name, metrics.STATUS: "finished", metrics.ROUNDS: rounds}
        (directory / "result.json").write_text(json.dumps(result), encoding="utf-8")


def write_logs(output: Path, count: int, rounds: int) -> None:
    """W&B logs of the same runs."""
    histories: dict[tuple[str, int], list[bytes]] = {}
    ended = pb.Record(num=2)
    ended.exit.exit_code = 0
    for number, config in enumerate(settings(count)):
        key = (config["algorithm"]["name"], config["seed"])
        if key not in histories:
            histories[key] = [history_record(row) for row in make_log(*key, rounds=rounds).history.to_pylist()]
        head = pb.Record(num=1)
        head.run.run_id = f"{number:012x}"
        for name, value in config.items():
            head.run.config.update.add(key=name, value_json=json.dumps(value))
        path = output / "wandb" / f"offline-run-1-{number:012x}" / f"run-{number:012x}.wandb"
        path.parent.mkdir(parents=True)
        path.write_bytes(log_bytes([head.SerializeToString(), *histories[key], ended.SerializeToString()]))


def history_record(row: dict[str, Any]) -> bytes:
    record = pb.Record(num=1)
    for name, value in row.items():
        record.history.item.add(nested_key=[name], value_json=json.dumps(value))
    return record.SerializeToString()


def peak_kb(pid: int) -> int:
    """The most memory a process has had; what ``resource`` tells of a child counts its parent's too."""
    status = Path(f"/proc/{pid}/status").read_text(encoding="utf-8")
    return int("".join(re.findall(r"VmHWM:\s+(\d+)", status)) or 0)


class Served:
    """The dashboard as a process of its own."""

    def __init__(self, output: Path) -> None:
        command = [sys.executable, "-m", "fl_platform", "dashboard", str(output), "--port", "0", "--no-browser"]
        self.process = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
        assert self.process.stdout is not None
        self.address = re.findall(r"http://\S+", self.process.stdout.readline())[0].rstrip("/")

    def get(self, path: str) -> Any:
        with urllib.request.urlopen(self.address + path, timeout=60) as reply:
            body = reply.read()
        return json.loads(body) if path.startswith("/api") else body

    def end(self) -> None:
        self.process.terminate()
        self.process.wait(30)
        if self.process.stdout is not None:
            self.process.stdout.close()


def start_sweep(output: Path) -> forked.Child:
    """A real one, which writes its runs and its ledger into the directory that the dashboard shows."""
    output.mkdir(exist_ok=True)
    sweep = quick_sweep(output, {"seed": {"values": list(range(500))}}, f"output.dir={output}", "num_rounds=20")
    return forked.start(["sweep", "run", str(sweep.source), *sweep.overrides, "--in-process"], output / "launcher")


def test_the_dashboard_answers_while_a_run_and_a_sweep_are_written(
    tmp_path: Path, scale: Callable[[int, int], int], record_property: Note
) -> None:
    """The sweep only with ``--torture``."""
    count, rounds = scale(20, 1000), scale(50, 1000)
    write_directories(tmp_path, count, rounds)
    live = tmp_path / f"{0:012x}" / "attempts" / "0001" / "rounds.jsonl"
    (tmp_path / f"{0:012x}" / "result.json").unlink()
    over = threading.Event()

    def append() -> None:
        for number in itertools.count(rounds + 1):
            with open(live, "a", encoding="utf-8") as file:
                file.write(json.dumps({metrics.ROUND: number, metrics.TEST_ACCURACY: 0.5}) + "\n")
            if over.wait(0.05):
                return

    writer = threading.Thread(target=append)
    served = Served(tmp_path)
    try:
        started = time.perf_counter()
        while True:
            overview = served.get("/api/overview")
            if not overview.get("unread") and len(overview["runs"]) == count:
                break
            assert time.perf_counter() - started < 300
            time.sleep(0.2)
        record_property(f"dashboard of {count} runs x {rounds} rounds, first look, s", seconds_since(started))
        writer.start()
        sweep = start_sweep(tmp_path) if scale(0, 1) else None
        while sweep is not None and len(served.get("/api/overview")["runs"]) < count + 2:
            assert not sweep.is_over()
            time.sleep(0.2)
        taken = []
        for _ in range(scale(2, 20)):
            for path in ("/", "/api/overview"):
                started = time.perf_counter()
                served.get(path)
                taken.append(time.perf_counter() - started)
        if sweep is not None:
            assert not sweep.is_over()
            sweep.send()
            assert sweep.wait().was_killed
        record_property("dashboard, page or overview, warm, median s", f"{sorted(taken)[len(taken) // 2]:.3f}")
        record_property("dashboard, page or overview, warm, slowest s", f"{max(taken):.3f}")
        record_property("dashboard, peak memory, MB", peak_kb(served.process.pid) // 1000)
        newest = wait_for_news(served, rounds)
        assert newest > rounds
        if scale(0, 1):
            assert sorted(taken)[len(taken) // 2] < 1
            assert peak_kb(served.process.pid) < MOST_KB
    finally:
        over.set()
        if writer.ident is not None:
            writer.join()
        served.end()


def wait_for_news(served: Served, rounds: int) -> int:
    """The newest round of the live run, once the page shows one that was appended."""
    for _ in range(100):
        run = next(run for run in served.get("/api/overview")["runs"] if run["id"] == f"{0:012x}")
        if run["round"] > rounds:
            return int(run["round"])
        time.sleep(0.2)
    return 0


REPORT = """
title: Load
sources: [../../runs]
select: best
tables:
  - {kind: statistic, name: top}
  - {kind: pivot, name: free, rows: [algorithm.name], columns: [], value: top_accuracy}
figures:
  - {kind: curves, name: curves, grouping: all}
"""


def seconds_since(started: float) -> str:
    return f"{time.perf_counter() - started:.1f}"


def test_a_report_over_many_runs(tmp_path: Path, scale: Callable[[int, int], int], record_property: Note) -> None:
    count, rounds = scale(20, 1000), scale(50, 1000)
    write_logs(tmp_path / "runs", count, rounds)
    (tmp_path / "reports" / "load").mkdir(parents=True)
    (tmp_path / "reports" / "load" / "report.yaml").write_text(REPORT, encoding="utf-8")
    taken, peak = [], 0
    for turn in ("cold", "warm")[: scale(1, 2)]:
        before = os.times()
        started = time.perf_counter()
        command = [sys.executable, "-m", "fl_platform", "report", "load"]
        with open(tmp_path / "said", "wb") as said:
            process = subprocess.Popen(command, cwd=tmp_path, stdout=said, stderr=said)
        while process.poll() is None:
            peak = max(peak, peak_kb(process.pid))
            time.sleep(0.05)
        assert process.returncode == 0, (tmp_path / "said").read_text()
        taken.append(time.perf_counter() - started)
        after = os.times()
        used = after.children_user + after.children_system - before.children_user - before.children_system
        record_property(
            f"report over {count} runs x {rounds} rounds, {turn}, s", f"{taken[-1]:.1f} ({used:.1f} of CPU)"
        )
    record_property("report, peak memory, MB", peak // 1000)
    table = (tmp_path / "reports" / "load" / "free.txt").read_text(encoding="utf-8")
    assert table.count(f"(n={count // len(ALGORITHMS)})") == len(ALGORITHMS)
    if scale(0, 1):
        assert taken[-1] < 30
        assert peak < MOST_KB
