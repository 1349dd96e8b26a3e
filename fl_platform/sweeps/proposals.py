"""What a sweep tries next: the points of a grid; W&B's own random and bayes, and hyperband's early stops."""

import itertools
import math
import random
import warnings
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from typing import Any

from fl_platform.errors import UserError
from fl_platform.sweeps import engine
from fl_platform.sweeps.definition import Sweep
from fl_platform.sweeps.states import TrialState


@dataclass
class EngineTrial:
    """A trial in the form the engine takes."""

    number: int
    params: dict[str, Any]
    state: TrialState
    summary: dict[str, Any] = field(default_factory=dict)
    history: list[float] = field(default_factory=list)
    _run: Any = None

    def as_run(self, metric: str | None) -> Any:
        """The engine's own object; one that ended does not change and is built once."""
        if self._run is None or _engine_state(self.state) is engine.RunState.running:
            self._run = self._build(metric)
        return self._run

    def _build(self, metric: str | None) -> Any:
        return engine.SweepRun(
            name=str(self.number),
            state=_engine_state(self.state),
            config={key: {"value": value} for key, value in self.params.items()},
            summaryMetrics=self.summary,  # pydantic 2 ignores the names without alias
            sampledHistory=[{metric: value} for value in self.history],
        )


def _engine_state(state: TrialState) -> Any:
    """The engine has three states: one that hyperband stopped counts with the value it had."""
    if state in (TrialState.FINISHED, TrialState.STOPPED):
        return engine.RunState.finished
    return engine.RunState.failed if state in (TrialState.DIVERGED, TrialState.FAILED) else engine.RunState.running


def engine_config(sweep: Sweep) -> dict[str, Any]:
    """What the engine reads; its schema refuses keys such as run_cap."""
    kept: dict[str, Any] = {
        key: sweep.config[key] for key in ("method", "metric", "early_terminate") if key in sweep.config
    }
    return {**kept, "parameters": sweep.parameters}


def grid_size(sweep: Sweep) -> int:
    """The number of points of a grid, repeated values counted, without listing them.

    Raises UserError for a parameter without values or whole bounds, as a damaged file may have.
    """
    for key, spec in sweep.parameters.items():
        if not _has_values(spec):
            raise UserError(f"{sweep.source}: parameters.{key}={spec} has no values that a grid could list")
    return math.prod(count_values(spec) for spec in sweep.parameters.values())


def _has_values(spec: Any) -> bool:
    if not isinstance(spec, dict):
        return False
    bounds = [spec.get("min"), spec.get("max"), spec.get("q", 1)]
    is_range = all(isinstance(bound, int | float) and abs(bound) < math.inf for bound in bounds) and bounds[2] != 0
    return "value" in spec or isinstance(spec.get("values"), list) or is_range


def count_values(spec: dict[str, Any]) -> int:
    """How many values a grid parameter takes: one, those it lists, or those of its range."""
    if "value" in spec:
        return 1
    if "values" in spec:
        return len(spec["values"])
    if "q" in spec:  # numpy's arange, without its last value
        steps = float((spec["max"] - spec["min"]) / spec["q"])
        return max(0, math.ceil(min(steps, 1e18)))
    return max(0, 1 + int(spec["max"]) - int(spec["min"]))


def values_of(spec: dict[str, Any]) -> list[Any]:
    """The values a grid parameter takes, as many as ``count_values`` says."""
    if "value" in spec:
        return [spec["value"]]
    if "values" in spec:
        return list(spec["values"])
    if "q" in spec:
        import numpy as np

        listed: list[Any] = np.arange(spec["min"], spec["max"], spec["q"]).tolist()
        return listed
    return list(range(int(spec["min"]), int(spec["max"]) + 1))


def grid(sweep: Sweep) -> list[dict[str, Any]]:
    """Every point once, in the order of W&B's engine, whose import of scipy and scikit-learn a grid does without."""
    keys = sorted(sweep.parameters)
    return [
        dict(zip(keys, values, strict=True))
        for values in itertools.product(*(values_of(sweep.parameters[key]) for key in keys))
    ]


def propose(sweep: Sweep, number: int, trials: list[EngineTrial]) -> dict[str, Any]:
    """Point ``number`` of a random or bayes search, the same whenever it is asked for after the same trials."""
    with seeded(f"{sweep.identifier}/{number}"), warnings.catch_warnings():
        warnings.simplefilter("ignore")  # the Gaussian process of few points comments on its bounds
        return params_of(engine.next_run(engine_config(sweep), [trial.as_run(sweep.metric) for trial in trials]))


def to_stop(sweep: Sweep, trials: list[EngineTrial]) -> list[int]:
    """The running trials that hyperband gives up."""
    config = engine_config(sweep)
    return [int(run.name) for run in engine.stop_runs(config, [trial.as_run(sweep.metric) for trial in trials])]


def params_of(run: Any) -> dict[str, Any]:
    """The values of a point that the engine proposes."""
    return {key: plain(entry["value"]) for key, entry in run.config.items()}


def plain(value: Any) -> Any:
    """Return a numpy scalar as a Python number, so that it prints and dumps like one of the YAML."""
    return value.item() if hasattr(value, "dtype") else value


@contextmanager
def seeded(path: str) -> Iterator[None]:
    """Seed the global generators that the engine draws from, and restore them afterwards."""
    import numpy as np

    earlier, earlier_numpy = random.getstate(), np.random.get_state()  # noqa: NPY002, the engine has no other
    random.seed(path)
    np.random.seed(random.getrandbits(32))  # noqa: NPY002
    try:
        yield
    finally:
        random.setstate(earlier)
        np.random.set_state(earlier_numpy)  # noqa: NPY002


def limit(sweep: Sweep, cap: int | None) -> int:
    """How many trials the sweep has at most: its grid, its run_cap, and the launch's own cap."""
    bounds = [bound for bound in (sweep.run_cap, cap) if bound is not None]
    if sweep.method == "grid":
        bounds.append(grid_size(sweep))
    if not bounds:
        raise UserError(
            f"{sweep.source}: method={sweep.method} never ends by itself; put run_cap: N into the YAML or give --cap N"
        )
    return min(bounds)
