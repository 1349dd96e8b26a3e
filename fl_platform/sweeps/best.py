"""The best configuration per algorithm and scenario of a sweep, with how it was picked: a chosen-values file."""

import math
import statistics
from collections import Counter, defaultdict
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from types import MappingProxyType
from typing import Any

import yaml

from fl_platform.config.compose import NO_SCENARIO
from fl_platform.config.given import Given, put_nested
from fl_platform.config.schema import Config, flatten, to_dict
from fl_platform.errors import UserError
from fl_platform.paper.scenarios import scenario_values
from fl_platform.runs import metrics
from fl_platform.runs.reader import read_directory
from fl_platform.runs.writing import write_atomically
from fl_platform.sweeps.definition import Sweep
from fl_platform.sweeps.ledger import Entry, Ledger
from fl_platform.sweeps.states import TrialState
from fl_platform.sweeps.trials import Trial, make_trial

Place = tuple[str | None, str]
_MISSED = (TrialState.FAILED, TrialState.DIVERGED, TrialState.STOPPED)
_NOT_CHOSEN = ("algorithm.name", "scenario", "seed", "chosen", "point", "preset", "plugins")


@dataclass
class Point:
    """One configuration with its seeds."""

    trial: Trial  # the first of them
    run_id: str  # of the same
    values: list[float] = field(default_factory=list)
    seeds: list[int] = field(default_factory=list)

    @property
    def mean(self) -> float:
        """The mean over seeds."""
        return statistics.fmean(self.values)


def choose(
    sweep: Sweep,
    directory: Path,
    ledger: Ledger,
    by: str,
    select_on: str | None = None,
    reuse: Mapping[str, str] = MappingProxyType({}),
    last: int | None = None,
    *,
    imports_plugins: bool = True,
) -> dict[str, Any]:
    """``{provenance, chosen}``: per scenario and algorithm the finished configuration with the best mean of ``by``.

    ``reuse`` maps scenarios that were not tuned to those whose choice they take. With ``last``, ``by`` is a metric of
    the rounds and counts with its mean over the last so many rounds, else it is one of the summary. Without
    ``imports_plugins`` the keys of trials that name plugins are as their sweep gives them.
    """
    trials = [
        (entry, make_trial(sweep, directory, entry.number, entry.params, imports_plugins=imports_plugins))
        for entry in ledger.entries()
        if entry.run_id
    ]
    finished = [(entry, trial) for entry, trial in trials if entry.state is TrialState.FINISHED]
    if not finished:
        raise UserError(f"{directory} has no finished trial to choose from; `sweep run` or `sweep status` says why")
    configs = [trial.spec.config for _, trial in finished]
    split = evaluated_split(configs, select_on)
    refuse_presets(configs)
    outcomes: defaultdict[Place, Counter[TrialState]] = defaultdict(Counter)
    for entry, trial in trials:
        outcomes[trial.place][entry.state] += 1
    tried = collect(finished, by, last)
    sign = 1 if is_minimised(sweep, by) else -1
    chosen: dict[str, dict[str, Any]] = {}
    for place in sorted(tried, key=str):
        best = min(tried[place], key=lambda point: sign * point.mean)
        entries = chosen.setdefault(place[0] or NO_SCENARIO, {})
        entries[place[1]] = entry_of(sweep, best, len(tried[place]), outcomes[place])
    told = provenance(sweep, configs, by, last, split, sign)
    return {"provenance": told, "chosen": chosen | reused(reuse, chosen)}


def reused(reuse: Mapping[str, str], chosen: Mapping[str, Any]) -> dict[str, str]:
    """Return ``reuse``; UserError where it takes from a scenario without a choice or replaces a choice."""
    for scenario, source in reuse.items():
        scenario_values(scenario)  # refuses a name that is not known
        if source not in chosen:
            raise UserError(
                f"--reuse {scenario}={source}: the sweep has no finished trial in {source}; "
                f"it has {', '.join(map(str, chosen))}"
            )
        if scenario in chosen:
            raise UserError(f"--reuse {scenario}={source}: the sweep tuned {scenario} itself")
    return dict(reuse)


def collect(finished: list[tuple[Entry, Trial]], by: str, last: int | None) -> dict[Place, list[Point]]:
    """Configurations by place, each with the values of its seeds."""
    points: dict[Place, dict[str, Point]] = {}
    for entry, trial in finished:
        home = trial.spec.output / str(entry.run_id)
        value = _of_summary(entry, by) if last is None else _of_last_rounds(home, by, last)
        if math.isfinite(value):
            point = points.setdefault(trial.place, {}).setdefault(trial.spec.group_id, Point(trial, str(entry.run_id)))
            point.values.append(value)
            point.seeds.append(trial.spec.config.seed)
    return {place: list(groups.values()) for place, groups in points.items()}


def _of_summary(entry: Entry, by: str) -> float:
    value = entry.summary.get(by)
    if not isinstance(value, int | float):
        known = sorted(key for key, found in entry.summary.items() if isinstance(found, int | float))
        raise UserError(f"--by {by}: run {entry.run_id} has no such metric; it has {', '.join(known)}")
    return float(value)


def _of_last_rounds(directory: Path, by: str, last: int) -> float:
    """The mean of what a run logged in its last rounds; UserError where it did not log ``by`` in any of them.

    Rounds between two evaluations have no number, or NaN where another round has one.
    """
    history = read_directory(directory).history
    rounds = history[metrics.ROUND].to_pylist() if metrics.ROUND in history.column_names else []
    logged = history[by].to_pylist() if by in history.column_names else [None] * len(rounds)
    first = max(rounds, default=0) - last
    found = [
        float(value)
        for round, value in zip(rounds, logged, strict=True)
        if round > first and isinstance(value, int | float) and not math.isnan(value)
    ]
    if not found:
        raise UserError(
            f"--by {by} --last {last}: run {directory.name} logged no such number in its last {last} rounds; "
            f"its rounds have {', '.join(sorted(history.column_names))}"
        )
    return statistics.fmean(found)


def evaluated_split(configs: list[Config], select_on: str | None) -> str:
    """``test`` or ``validation``: what the runs were evaluated on, which must be what was asked for."""
    splits = {"validation" if config.data.validation_fraction else "test" for config in configs}
    if len(splits) > 1:
        raise UserError(
            "some trials were evaluated on held-out data and some on the test set; sweep data.validation_fraction apart"
        )
    split = splits.pop()
    if select_on and select_on != split:
        hint = "data.validation_fraction=0.1" if select_on == "validation" else "data.validation_fraction=0"
        raise UserError(
            f"--select-on {select_on}: the trials were evaluated on {split} data; launch the sweep with {hint}"
        )
    return split


def refuse_presets(configs: list[Config]) -> None:
    """Raise UserError for runs under several presets: a file of chosen values does not say which one it is for."""
    presets = sorted({config.preset for config in configs})
    if len(presets) > 1:
        raise UserError(
            f"the trials have preset={' and '.join(presets)}, and a choice is for one of them; "
            f"launch the sweep with preset=[{presets[0]}], which takes finished runs as they are"
        )


def is_minimised(sweep: Sweep, by: str) -> bool:
    """Whether smaller values of a summary key are better."""
    if by == sweep.metric:
        return not sweep.maximises
    return by.rsplit("/", 1)[-1] in ("loss", "forgetting", "rounds", "bytes", "seconds")


def varied(sweep: Sweep, trial: Trial) -> list[str]:
    """The keys a trial's point sets: those with more than one value, and the keys in ``point``."""
    ranged = [key for key, spec in sweep.parameters.items() if "value" not in spec]
    in_point = [argument.partition("=")[0] for argument in str(trial.params.get("point", "")).split()]
    return [key for key in [*ranged, *in_point] if key not in _NOT_CHOSEN]


def entry_of(sweep: Sweep, best: Point, points: int, outcomes: Counter[TrialState]) -> dict[str, Any]:
    """What a chosen-values file holds for the best point of a scenario and algorithm."""
    resolved = dict(flatten(to_dict(best.trial.spec.config)))
    keys: Given = {}
    for key in varied(sweep, best.trial):
        if key in resolved:
            put_nested(keys, key, resolved[key])
    return {
        "keys": keys,
        "value": best.mean,
        "seeds": sorted(best.seeds),
        "run": best.run_id,
        "points_tried": points,
        **{state.value: outcomes[state] for state in _MISSED if outcomes[state]},
    }


def provenance(sweep: Sweep, configs: list[Config], by: str, last: int | None, split: str, sign: int) -> dict[str, Any]:
    """How the values were chosen."""
    return {
        "sweep": sweep.identifier,
        "overrides": sweep.deciding_overrides,
        "by": by,
        **({} if last is None else {"last_rounds": last}),
        "goal": "minimize" if sign > 0 else "maximize",
        "split": split,
        "seeds": sorted({config.seed for config in configs}),
        "rounds": sorted({config.num_rounds or 0 for config in configs}),
        "finished_trials": len(configs),
    }


def write_chosen(path: Path, content: dict[str, Any]) -> None:
    """Write a chosen-values file."""
    header = "# Written by `sweep best`; read by the key chosen=. How the values were picked is under provenance.\n"
    write_atomically(path, header + yaml.safe_dump(content, sort_keys=False))
