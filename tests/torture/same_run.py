"""What a run left behind, without clock readings, so that two of them can be compared bit by bit."""

import json
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from fl_platform.reporting import pivot, render
from fl_platform.runs.checkpoint_files import sorted_checkpoints
from fl_platform.runs.frames import load

OF_ATTEMPT = ("attempt", "checksum")
"""Keys of a result that name its attempt, or follow from its clock readings."""


@dataclass
class Left:
    """The last checkpoint, `rounds.jsonl`, `result.json`, what a report reads, and the cell it makes of it."""

    checkpoint: Any
    rows: list[dict[str, Any]]
    result: dict[str, Any]
    read: list[dict[str, Any]]
    cell: str


def left_by(output: Path) -> Left:
    """Of the only run below an ``output.dir``."""
    (result,) = output.glob("*/result.json")
    (attempt,) = (result.parent / "attempts").iterdir()
    [(_, newest), *_] = sorted_checkpoints(attempt / "checkpoints")
    checkpoint = torch.load(newest, weights_only=True)
    federated = checkpoint["federated"]
    for name in ("history", "scoreboard", "config"):
        federated[name] = timeless(json.loads(federated[name]))
    federated["config"].pop("output")
    runs = load([output])
    assert list(runs.runs["status"]) == ["finished"]
    read = runs.rounds.sort_index(axis=1).to_dict("records")
    table = pivot.pivot_table(runs, ["algorithm.name"], [], "top_accuracy")
    return Left(
        {name: checkpoint[name] for name in ("epoch", "state_dict", "federated", "callbacks")},
        [timeless(json.loads(line)) for line in (attempt / "rounds.jsonl").read_text().splitlines()],
        timeless({name: value for name, value in json.loads(result.read_text()).items() if name not in OF_ATTEMPT}),
        [timeless(row) for row in read],
        render.render(table, "markdown"),
    )


def timeless(value: Any) -> Any:
    """Without clock readings, and with NaN as a word: it equals nothing otherwise."""
    if isinstance(value, dict):
        return {
            name: timeless(item)
            for name, item in value.items()
            if not name.startswith("time/") and "seconds" not in name
        }
    if isinstance(value, list | np.ndarray):
        return [timeless(item) for item in value]
    return "nan" if isinstance(value, float) and value != value else value


def differences(one: Any, other: Any, place: str = "") -> list[str]:
    """Where two such things differ, tensors compared by their bits."""
    if isinstance(one, Left):
        one, other = vars(one), vars(other)
    if isinstance(one, torch.Tensor):
        is_same = one.dtype == other.dtype and one.shape == other.shape
        is_same = is_same and one.numpy().tobytes() == other.numpy().tobytes()
        return [] if is_same else [place]
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        return [found for name in one for found in differences(one[name], other[name], f"{place}/{name}")]
    if isinstance(one, list | tuple) and isinstance(other, list | tuple) and len(one) == len(other):
        pairs = enumerate(zip(one, other, strict=True))
        return [found for number, pair in pairs for found in differences(*pair, f"{place}/{number}")]
    return [] if one == other else [f"{place}: {one!r} != {other!r}"]
