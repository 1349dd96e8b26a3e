"""Made-up runs for tests of reports, and a writer of .wandb files that shares no code with the reader."""

import json
import struct
import zlib
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow as pa

from fl_platform.runs import metrics
from fl_platform.runs.record import RunRecord
from fl_platform.runs.status import RunStatus


def curve(level: float, speed: float, seed: int, rounds: int) -> np.ndarray:
    """A saturating accuracy curve with seeded noise, rounded like an accuracy over 10,000 samples."""
    noise = np.random.default_rng([seed, int(level * 1e6), int(speed * 1e6)]).normal(0, 0.01, rounds)
    return np.clip(level * (1 - np.exp(-np.arange(1, rounds + 1) * speed)) + noise, 0, 1).round(4)


def make_log(
    algorithm: str = "fedavg",
    seed: int = 0,
    accuracy: Any = None,
    rounds: int = 40,
    level: float = 0.8,
    speed: float = 0.1,
    status: str = "finished",
    data: str = "mnist",
    omega: float = 0.1,
    cohort_size: int = 10,
    columns: dict[str, Any] | None = None,
    run_id: str | None = None,
    **config: Any,
) -> RunRecord:
    """One run as the logger writes it; ``config`` adds dotted keys written with double underscores."""
    values = np.asarray(curve(level, speed, seed, rounds) if accuracy is None else accuracy, dtype=float)
    count = len(values)
    nested: dict[str, Any] = {
        "algorithm": {"name": algorithm},
        "seed": seed,
        "data": {"name": data, "partition": "dirichlet", "dirichlet_omega": omega},
        "cohort_size": cohort_size,
    }
    for name, value in config.items():
        place = nested
        *groups, leaf = name.split("__")
        for group in groups:
            place = place.setdefault(group, {})
        place[leaf] = value
    history = {
        metrics.ROUND: np.arange(1, count + 1, dtype=float),
        metrics.TEST_ACCURACY: values,
        metrics.FORGETTING: np.maximum.accumulate(values) - values,
        metrics.TOTAL_BYTES: np.arange(1, count + 1) * 1e6,
        metrics.TOTAL_SECONDS: np.arange(1, count + 1) * 0.5,
        **(columns or {}),
    }
    identity = json.dumps(nested, sort_keys=True)
    return RunRecord(
        source=f"made up {identity}",
        run_id=run_id or f"{algorithm}-{seed}-{zlib.crc32(identity.encode()):08x}",
        started=1000.0 + seed,
        exit_code=None if status in ("crashed", "running") else 0,
        config=nested,
        summary={metrics.STATUS: status, metrics.TOP_ACCURACY: float(np.nanmax(values)) if count else None},
        history=pa.table(history),
        status=RunStatus(status),
    )


def write_wandb_file(path: Path, log: RunRecord, has_exit: bool = True) -> None:
    """A log in W&B's own format, through wandb's protobuf classes."""
    from wandb.proto import wandb_internal_pb2 as pb

    records = [pb.Record(num=1)]
    run = pb.Record(num=2)
    run.run.run_id, run.run.project, run.run.run_group = log.run_id, log.project, log.group
    run.run.tags.extend(log.tags)
    run.run.start_time.FromNanoseconds(int(log.started * 1e9))
    for name, value in log.config.items():
        run.run.config.update.add(key=name, value_json=json.dumps(value))
    records.append(run)
    for row in log.history.to_pylist():
        record = pb.Record(num=len(records) + 1)
        for name, value in row.items():
            if value is not None:
                record.history.item.add(nested_key=[name], value_json=json.dumps(value))
        records.append(record)
    summary = pb.Record(num=len(records) + 1)
    for name, value in log.summary.items():
        summary.summary.update.add(nested_key=[name], value_json=json.dumps(value))
    records.append(summary)
    if has_exit:
        ended = pb.Record(num=len(records) + 1)
        ended.exit.exit_code = log.exit_code or 0
        ended.exit.runtime = 1
        records.append(ended)
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(log_bytes([record.SerializeToString() for record in records]))


def log_bytes(payloads: list[bytes]) -> bytes:
    """LevelDB's log format: payloads cut into chunks that end at multiples of 32 KiB."""
    out = bytearray(b":W&B" + struct.pack("<HB", 0xBEE1, 0))
    for payload in payloads:
        start = True
        while start or payload:
            room = 32768 - len(out) % 32768
            if room < 7:
                out += bytes(room)
                room = 32768
            part, payload = payload[: room - 7], payload[room - 7 :]
            kind = (1 if not payload else 2) if start else (4 if not payload else 3)
            out += struct.pack("<IHB", zlib.crc32(bytes([kind]) + part), len(part), kind) + part
            start = False
    return bytes(out)
