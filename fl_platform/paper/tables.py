"""The paper's Tables 1 and 2, read from the CSV files beside this module (described in README.md there)."""

import dataclasses
from functools import cache
from pathlib import Path

import pandas as pd

from fl_platform.paper.methods import spelled
from fl_platform.paper.scenarios import Scenario, data_named

CIFAR100_NOTE = (
    "CIFAR-100: the paper gives ω=0.1 in Table 1 and ω=1.0 in Table 2 for the same runs; either is compared."
)
_CIFAR100_SKEWS = ("0.1", "1.0")


def table1() -> pd.DataFrame:
    """Top accuracies: algorithm, scenario, mean, std (both in per cent), bold."""
    return _read("table1.csv")[["algorithm", "scenario", "mean", "std", "bold"]]


def table2() -> pd.DataFrame:
    """Rounds to the target: algorithm, scenario, target (per cent), rounds (NaN where the paper prints ``--``)."""
    frame = _read("table2.csv").rename(columns={"target_accuracy": "target"})
    return frame[["algorithm", "scenario", "target", "rounds"]]


def targets() -> dict[Scenario, float]:
    """The target accuracy of every scenario of Table 2, as a fraction."""
    frame = table2().drop_duplicates("scenario")
    return {scenario: target / 100 for scenario, target in zip(frame["scenario"], frame["target"], strict=True)}


@cache
def _read(name: str) -> pd.DataFrame:
    frame = pd.read_csv(Path(__file__).with_name(name), dtype={"omega": str})
    frame["algorithm"] = [spelled(text).name for text in frame["algorithm"]]
    places = zip(frame["dataset"].map(data_named), frame["omega"], frame["S"], strict=True)
    frame["scenario"] = pd.Series([Scenario(data, skew, size) for data, skew, size in places], dtype=object)
    return pd.concat([frame, *_other_skews(frame)], ignore_index=True)


def _other_skews(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """CIFAR-100's rows once more under the other table's omega."""
    rows = frame[[scenario.data == "cifar100" for scenario in frame["scenario"]]]
    return [
        rows.assign(omega=skew, scenario=[dataclasses.replace(scenario, skew=skew) for scenario in rows["scenario"]])
        for skew in _CIFAR100_SKEWS
        if skew not in set(rows["omega"])
    ]
