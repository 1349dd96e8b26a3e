"""Which settings of a sweep its result depends on: permutation importance of a random forest on held-out runs."""

import functools
from collections.abc import Sequence
from typing import Any

import numpy as np

from fl_platform.errors import UserError

LEAST_RUNS = 10
MOST_RUNS = 2000  # a sample of so many is enough, and takes seconds
_FOLDS = 5
_REPEATS = 5
_TREES = 60


def importances(
    names: Sequence[str], columns: Sequence[Sequence[Any]], objective: Sequence[float | None]
) -> dict[str, Any]:
    """Importance of each named column for the objective.

    ``columns`` has, per name, one value per run: numbers or text, None where a run has no such key. Runs without
    an objective are left out. Returns, best first, the mean drop of R² on held-out runs when a column is shuffled and
    its standard deviation over folds and repeats, with the number of runs and the forest's own held-out R².
    Raises UserError where there is too little to learn from.
    """
    known = [place for place, value in enumerate(objective) if value is not None]
    if len(known) < LEAST_RUNS:
        raise UserError(
            f"importance needs at least {LEAST_RUNS} runs with the objective; {len(known)} of the shown have it"
        )
    if not names:
        raise UserError("the shown runs do not differ in any setting")
    if len(known) > MOST_RUNS:
        known = sorted(np.random.default_rng(0).choice(known, MOST_RUNS, replace=False).tolist())
    target = tuple(float(objective[place] or 0.0) for place in known)
    if len(set(target)) == 1:
        raise UserError("the objective is the same for all shown runs")
    values = tuple(tuple(column[place] for place in known) for column in columns)
    return {"n": len(known), **_importances(tuple(names), values, target)}


@functools.lru_cache(maxsize=8)
def _importances(
    names: tuple[str, ...], columns: tuple[tuple[Any, ...], ...], target: tuple[float, ...]
) -> dict[str, Any]:
    from sklearn.ensemble import RandomForestRegressor  # a second to import: no other view needs it
    from sklearn.inspection import permutation_importance
    from sklearn.model_selection import KFold

    inputs, wanted = np.stack([_coded(column) for column in columns], axis=1), np.asarray(target)
    drops, scores = [], []
    for train, test in KFold(_FOLDS, shuffle=True, random_state=0).split(inputs):
        forest = RandomForestRegressor(_TREES, random_state=0, n_jobs=1).fit(inputs[train], wanted[train])
        if len(test) < 2 or np.ptp(wanted[test]) == 0:
            continue  # R² is not defined
        found = permutation_importance(
            forest, inputs[test], wanted[test], n_repeats=_REPEATS, random_state=0, scoring="r2"
        )
        drops.append(found.importances)
        scores.append(forest.score(inputs[test], wanted[test]))
    if not drops:
        raise UserError("the objective hardly differs between the shown runs")
    joined = np.concatenate(drops, axis=1)
    order = np.argsort(-joined.mean(axis=1), kind="stable")
    return {
        "r2": round(float(np.mean(scores)), 4),
        "keys": [
            {"key": names[place], "importance": float(joined[place].mean()), "spread": float(joined[place].std(ddof=1))}
            for place in order.tolist()
        ],
    }


def _coded(column: Sequence[Any]) -> "np.ndarray[Any, np.dtype[np.float64]]":
    """Numbers as they are, with NaN where there is none; text as the place of its value in sorted order."""
    if all(value is None or isinstance(value, int | float) for value in column):
        return np.array([np.nan if value is None else float(value) for value in column])
    texts = sorted({str(value) for value in column})
    return np.array([float(texts.index(str(value))) for value in column])
