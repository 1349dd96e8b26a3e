"""How far GradMA's projections move their vectors, beside what assumptions 4 and 5 and corollary 1 of the paper ask."""

import math
from typing import Any

import numpy as np
import pandas as pd

from fl_platform.errors import UserError
from fl_platform.reporting.layout import Cell, Row, Table
from fl_platform.reporting.pivot import keys_of, ordered_keys
from fl_platform.reporting.styles import methods_in
from fl_platform.reporting.tables import run_notes
from fl_platform.runs import metrics
from fl_platform.runs.frames import Runs

_SIDES = {
    "l": (metrics.QP_WORKER_ERROR, metrics.QP_WORKER_LENGTH, "|g|"),
    "g": (metrics.QP_SERVER_ERROR, metrics.QP_SERVER_LENGTH, "|m|"),
}
"""What is logged of each side: how far vectors are moved, how long they are, and their symbol."""


def error_table(runs: Runs, keys: list[str], smoothness: float | None = None) -> Table:
    """Errors of both QPs over the rounds by some keys, and what corollary 1 sets for them given the ``smoothness`` L.

    epsilon_l is the largest |g - g~| of a round, epsilon_g is sqrt(1 - beta_2) |m - m~|. Of each: the means of the
    first and of the last tenth of the rounds, the largest of all rounds and seeds, and how long g and m are.
    """
    if smoothness is not None and not 0 < smoothness < math.inf:
        raise UserError(f"smoothness={smoothness:g} is not allowed; it must be a finite number > 0")
    finished = runs.finished()
    finished = finished.only(finished.runs["run_id"].isin(_with_errors(finished)))
    if finished.runs.empty:
        raise UserError("no finished run logged errors of projections; run with algorithm.qp.log_errors=true")
    names = ["algorithm.name", *keys]
    found = keys_of(finished, names, "keys")
    methods = methods_in(finished.runs)
    rows, records = [], []
    for setting in ordered_keys(names, found):
        own = finished.only(pd.Series([one == setting for one in found], index=finished.runs.index))
        record = {"runs": len(own.runs), **_errors(own), **_corollary(own, smoothness)}
        shown = ", ".join([methods[str(setting[0])].label, *map(str, setting[1:])])
        rows.append(Row(shown, tuple(Cell(f"{value:.3g}") for name, value in record.items() if name != "runs")))
        records.append(dict(zip(names, setting, strict=True)) | record)
    columns = [name for name in records[0] if name not in ("runs", *names)]
    counts = sorted({record["runs"] for record in records})
    notes = [
        "epsilon_l: the largest |g - g~| of a round over workers and steps; epsilon_g: sqrt(1 - beta_2) |m - m~|. "
        f"Means of the first and the last tenth of the rounds, and the largest, over {' or '.join(map(str, counts))} "
        "seeds; |g| and |m|: how long the vectors are, mean of the last tenth (of g the longest of a round).",
    ]
    if smoothness is not None:
        sets = "epsilon_l = 1/sqrt(T) and epsilon_g = I^(1/4) / (T^(3/4) S^(1/4) L)"
        notes.append(f"Corollary 1 sets {sets}; here L = {smoothness:g}.")
    header = (tuple((name.replace("_", " "), 1) for name in columns),)
    title = "Errors of GradMA's projections"
    return Table(title, header, (tuple(rows),), (*notes, *run_notes(runs, [])), pd.DataFrame(records), ", ".join(names))


def _with_errors(runs: Runs) -> set[str]:
    known = [error for error, _, _ in _SIDES.values()]
    return {
        run_id
        for run_id, table in runs.history.tables.items()
        if any(name in table.column_names and table[name].to_pandas().notna().any() for name in known)
    }


def _errors(runs: Runs) -> dict[str, float]:
    """Numbers of one setting, over its seeds."""
    rounds = runs.rounds
    end = rounds.groupby("run_id")[metrics.ROUND].transform("max")
    parts = {"first": rounds[metrics.ROUND] <= 0.1 * end, "last": rounds[metrics.ROUND] > 0.9 * end}
    decay = runs.runs.get("config.algorithm.memory_decay")
    found: dict[str, float] = {}
    for side, (error, length, vector) in _SIDES.items():
        if error in rounds:
            scale = np.sqrt(1 - decay.astype(float).max()) if side == "g" and decay is not None else 1.0
            for name, part in parts.items():
                found[f"epsilon_{side}_{name}"] = float(scale * rounds.loc[part, error].mean())
            found[f"epsilon_{side}_largest"] = float(scale * rounds[error].max())
            found[vector] = float(rounds.loc[parts["last"], length].mean())
    return found


def _corollary(runs: Runs, smoothness: float | None) -> dict[str, float]:
    """The errors that corollary 1 sets; the runs must agree in T, S and I."""
    if smoothness is None:
        return {}
    values: dict[str, Any] = {}
    for name in ("num_rounds", "cohort_size", "local_steps"):
        found = set(runs.runs[f"config.{name}"])
        if len(found) > 1:
            raise UserError(f"runs of one setting differ in {name}; add it to keys, or leave out smoothness")
        values[name] = float(found.pop())
    rounds, size, steps = values.values()
    return {
        "corollary's epsilon_l": rounds**-0.5,
        "corollary's epsilon_g": steps**0.25 / (rounds**0.75 * size**0.25 * smoothness),
    }
