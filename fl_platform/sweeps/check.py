"""Validates a sweep YAML without running it: W&B's schema, every key and value against our configuration, its size."""

import json
from collections.abc import Iterator
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from fl_platform.config.compose import NO_SCENARIO, check_key, compose, read_yaml
from fl_platform.config.resolve import resolve
from fl_platform.errors import UserError, did_you_mean
from fl_platform.runs import metrics
from fl_platform.sweeps import engine
from fl_platform.sweeps.commands import run_arguments
from fl_platform.sweeps.definition import METHODS, Sweep, read_sweep
from fl_platform.sweeps.proposals import count_values, engine_config, grid, grid_size, limit, propose, values_of
from fl_platform.sweeps.trials import make_trial

FULL_GRID = 400
"""Grids of up to so many points are resolved point by point, larger ones until every value has occurred."""
LARGEST_GRID = 100_000
"""Points of a grid; larger ones are refused."""
LARGEST_BOUND = 2**53
"""Of whole numbers that are drawn: W&B's engine draws them as floating-point numbers."""
DRAWS = 20  # points looked at of a search that has no list of points

_TOP_LEVEL = (
    "name",
    "description",
    "program",
    "command",
    "method",
    "metric",
    "early_terminate",
    "parameters",
    "run_cap",
    "project",
    "entity",
)
_LISTED = ("param_single_value", "param_categorical", "param_int_uniform", "param_quniform")
"""Kinds of parameters, in the words of W&B's schema, whose values a grid lists."""
_METRICS = [value for name, value in vars(metrics).items() if name.isupper()]


@dataclass(frozen=True)
class Verdict:
    """The result of a check: problems, one sentence each, and the size of the sweep."""

    problems: list[str]
    trials: int | None = None  # None: the search has no end of its own
    resolved: int = 0
    runs: int = 0  # different runs among the points resolved


def check_sweep(path: Path, overrides: list[str] | None = None, *, most_points: int | None = None) -> Verdict:
    """Every problem of a YAML; ``most_points`` bounds how many points are resolved."""
    try:
        sweep = read_sweep(path, overrides)
    except UserError as error:
        return Verdict([str(error)])
    for stage in (schema_problems, content_problems):
        if problems := [f"{path}: {problem}" for problem in stage(sweep)]:
            return Verdict(problems)
    points = points_to_resolve(sweep)
    points = points[:: max(1, len(points) // most_points)][:most_points] if most_points else points
    run_ids, problems = resolve_points(sweep, points)
    trials = limit(sweep, None) if sweep.method == "grid" or sweep.run_cap else None
    return Verdict(problems, trials, len(points), len(run_ids))


def chosen_pairs(path: Path) -> list[tuple[str, str]] | None:
    """The (scenario, algorithm) pairs of a chosen-values file; None for other files, such as sweeps."""
    try:
        content = read_yaml(path, str(path))
    except UserError:
        return None  # ``check_sweep`` reports the reason
    chosen = content.get("chosen")
    if "method" in content or not isinstance(chosen, dict):
        return None
    entries = {scenario: chosen.get(entry) if isinstance(entry, str) else entry for scenario, entry in chosen.items()}
    return [
        (str(scenario), str(name))
        for scenario, entry in entries.items()
        for name in (entry if isinstance(entry, dict) else ())
    ]


def check_chosen(path: Path, pairs: list[tuple[str, str]]) -> Verdict:
    """A chosen-values file: every entry must give a run."""
    problems = []
    for scenario, algorithm in pairs:
        try:
            place = [] if scenario == NO_SCENARIO else [f"scenario={scenario}"]
            resolve(compose([f"algorithm.name={algorithm}", *place, f"chosen={path}"]))
        except UserError as error:
            problems.append(f"{path}: {algorithm} in {scenario}: {error}")
    return Verdict(problems, resolved=len(pairs))


def schema_problems(sweep: Sweep) -> Iterator[str]:
    """Problems with W&B's schema, each with the place, the value and what is expected."""
    for key in sweep.config:
        if key not in _TOP_LEVEL:
            yield f"{key} is not a key of a sweep; there is {', '.join(_TOP_LEVEL)}{did_you_mean(str(key), _TOP_LEVEL)}"
    if sweep.method not in METHODS:
        hint = did_you_mean(sweep.method, METHODS)
        yield f"method={sweep.method} is not allowed; allowed: {' | '.join(METHODS)}{hint}"
    if not sweep.parameters:
        yield "parameters={} is empty; a sweep ranges over at least one key"
    parameters = sweep.parameters.items()
    found = [problem for key, spec in parameters for problem in parameter_problems(key, spec, sweep.method)]
    yield from found or size_problems(sweep)
    for error in engine.validator.iter_errors(
        {"method": "grid", "parameters": {"seed": {"value": 0}}, **of_metric(sweep)}
    ):
        while error.validator == "oneOf":  # its own message has no reason; the errors inside do
            error = error.context[0]
        place = ".".join(map(str, error.absolute_path))
        yield f"{place}={error.instance} is not allowed: {expected(error)}"


def size_problems(sweep: Sweep) -> Iterator[str]:
    """Whether a grid is too large: W&B's engine lists all of its points, however few are asked for."""
    if sweep.method == "grid" and (size := grid_size(sweep)) > LARGEST_GRID:
        sizes = {key: count_values(spec) for key, spec in sweep.parameters.items()}
        counts = ", ".join(f"{key} {count}" for key, count in sizes.items() if count > 1)
        yield (
            f"the grid has {size} points ({counts}); at most {LARGEST_GRID} are listed, "
            "so sweep fewer values or use method: random with run_cap:"
        )


def of_metric(sweep: Sweep) -> dict[str, Any]:
    """The part of the configuration that says what is optimised and when a trial is stopped early."""
    return {key: value for key, value in engine_config(sweep).items() if key in ("metric", "early_terminate")}


def expected(error: Any) -> str:
    """What the schema expects, as text."""
    reason: Any = error.validator_value
    if error.validator == "enum":
        return f"allowed: {' | '.join(map(str, reason))}"
    if error.validator == "anyOf":
        return "it needs " + " or ".join(" and ".join(part["required"]) for part in reason)
    return str(error.message)


def parameter_problems(key: str, spec: Any, method: str) -> Iterator[str]:
    """Problems of one parameter."""
    forms = "value: V, values: [V, ...], or min: and max: with a distribution:"
    if not isinstance(spec, dict):
        yield f"parameters.{key}={spec} is not understood; expected {forms}"
        return
    for name, bound in spec.items():
        if isinstance(bound, int) and abs(bound) > LARGEST_BOUND and name in ("min", "max", "q"):
            yield f"parameters.{key}.{name}={str(bound)[:40]} is not allowed; whole numbers go up to {LARGEST_BOUND}"
            return
    try:
        filled = engine.fill_parameter(key, spec)
    except (ValueError, TypeError, engine.ParamValidationError):
        filled = None
    if filled is None:
        yield f"parameters.{key}={spec} is not understood; {empty_range(key, spec) or f'expected {forms}'}"
        return
    kind, _ = filled
    if method == "grid" and kind not in _LISTED:
        yield f"parameters.{key}={spec} cannot be listed; a grid needs values: [...], whole min: and max:, or q_uniform"
    seen: set[str] = set()
    for value in spec.get("values", []):
        text = json.dumps(value, sort_keys=True, default=str)
        if text in seen:
            yield f"parameters.{key} lists {value} more than once; every value is tried once"
            return
        seen.add(text)


def empty_range(key: str, spec: dict[str, Any]) -> str | None:
    """What is wrong with ``min`` and ``max`` where both are numbers and no value lies between them, else None."""
    low, high = spec.get("min"), spec.get("max")
    if isinstance(low, int | float) and isinstance(high, int | float) and low >= high:
        return f"{key}: min {low} is not less than max {high}"
    return None


def content_problems(sweep: Sweep) -> Iterator[str]:
    """Problems that W&B does not check for: our keys, the command, the metric."""
    for key in sweep.parameters:
        try:
            check_key(key)
        except UserError as error:
            yield f"parameters: {error}"
    try:
        run_arguments(sweep.command)
    except UserError as error:
        yield str(error)
    if not any(part in ("${args}", "${args_no_hyphens}") for part in sweep.command):
        yield "command has neither ${args_no_hyphens} nor ${args}: the parameters would not reach the run"
    yield from metric_problems(sweep)


def metric_problems(sweep: Sweep) -> Iterator[str]:
    """Problems of the metric that is optimised."""
    if sweep.metric is None:
        if sweep.method == "bayes" or sweep.stops_early:
            what = "early_terminate" if sweep.stops_early else "method=bayes"
            yield f"{what} needs metric: with name: and goal:, such as {metrics.TOP_ACCURACY} and maximize"
        return
    if sweep.metric not in _METRICS and not sweep.metric.startswith(("qp/", "memory/", "to_target/")):
        hint = did_you_mean(sweep.metric, _METRICS)
        yield f"metric.name={sweep.metric} is not logged; there is {', '.join(_METRICS)}{hint}"
    elif "accuracy" in sweep.metric and not sweep.maximises:
        goal = sweep.config["metric"].get("goal", "minimize (the default)")
        yield f"metric.goal={goal} would look for the worst {sweep.metric}; use maximize"


def points_to_resolve(sweep: Sweep) -> list[dict[str, Any]]:
    """The points to validate: a whole small grid, points that have every value of a large one, or draws of a search."""
    if sweep.method != "grid":
        drawn = replace(sweep, config={**sweep.config, "method": "random"})
        return [propose(drawn, number, []) for number in range(DRAWS)]
    if grid_size(sweep) <= FULL_GRID:
        return grid(sweep)
    values = {key: values_of(spec) for key, spec in sweep.parameters.items()}
    return [
        {key: listed[place % len(listed)] for key, listed in values.items()}
        for place in range(max(map(len, values.values())))
    ]


def resolve_points(sweep: Sweep, points: list[dict[str, Any]]) -> tuple[set[str], list[str]]:
    """Return the different run ids and the problems of the points, each sentence once."""
    run_ids: set[str] = set()
    problems: dict[str, None] = {}
    directory = sweep.directory
    for number, params in enumerate(points):
        try:
            run_ids.add(make_trial(sweep, directory, number, params).spec.run_id)
        except UserError as error:
            problems[f"{sweep.source}: {error}"] = None
    return run_ids, list(problems)
