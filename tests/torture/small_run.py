"""A run of a second, as args, and what it left."""

import json
from pathlib import Path

RUN = [
    "run", "--continue", "data.name=digits", "model.name=mlp", "num_workers=10", "cohort_size=2", "local_steps=1",
    "num_rounds=5", "checkpoint.every=1", "algorithm.name=scaffold",
]  # fmt: skip


def fingerprint(output: Path) -> str:
    (result,) = output.glob("*/result.json")
    return str(json.loads(result.read_text())["fingerprint"])
