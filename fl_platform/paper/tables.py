"""The paper's Tables 1 and 2, read from `reports/paper/`."""

import dataclasses
from pathlib import Path

import pandas as pd

from fl_platform.errors import UserError
from fl_platform.paper.style import Scenario, normal

DIRECTORY = Path(__file__).resolve().parents[2] / "reports" / "paper"

CIFAR100_NOTE = (
    "CIFAR-100: the paper gives ω=0.1 in Table 1 and ω=1.0 in Table 2 for the same runs; either is compared."
)
_CIFAR100_SKEWS = ("0.1", "1.0")


def table1(directory: Path = DIRECTORY) -> pd.DataFrame:
    """algorithm, scenario, mean, std (accuracies in per cent), bold."""
    frame = _read(directory / "table1.csv")
    return frame[["algorithm", "scenario", "mean", "std", "bold"]]


def table2(directory: Path = DIRECTORY) -> pd.DataFrame:
    """algorithm, scenario, target (per cent), rounds (NaN where the paper prints `--`)."""
    frame = _read(directory / "table2.csv")
    return frame.rename(columns={"target_accuracy": "target"})[["algorithm", "scenario", "target", "rounds"]]


def targets(directory: Path = DIRECTORY) -> dict[tuple[str, str, int], float]:
    """The target accuracy of every scenario of Table 2, as a fraction."""
    frame = table2(directory).drop_duplicates("scenario")
    return {scenario.key: target / 100 for scenario, target in zip(frame["scenario"], frame["target"], strict=True)}


def _read(path: Path) -> pd.DataFrame:
    try:
        frame = pd.read_csv(path, dtype={"omega": str})
    except (OSError, ValueError) as error:
        raise UserError(f"the paper's table {path} cannot be read: {error}") from None
    frame["algorithm"] = frame["algorithm"].map(normal)
    places = zip(frame["dataset"].map(normal), frame["omega"], frame["S"], strict=True)
    frame["scenario"] = pd.Series([Scenario(data, skew, size) for data, skew, size in places], dtype=object)
    return pd.concat([frame, *_other_skews(frame)], ignore_index=True)


def _other_skews(frame: pd.DataFrame) -> list[pd.DataFrame]:
    """CIFAR-100's rows once more under the other table's omega."""
    rows = frame[frame["dataset"].map(normal) == "cifar100"]
    copies = []
    for skew in _CIFAR100_SKEWS:
        if len(rows) and skew not in set(rows["omega"]):
            moved = rows["scenario"].map(lambda scenario, skew=skew: dataclasses.replace(scenario, skew=skew))
            copies.append(rows.assign(omega=skew, scenario=moved))
    return copies
