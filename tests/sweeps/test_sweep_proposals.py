"""W&B's engine without its pitfalls: nested parameters, numpy values, global generators, endless searches."""

import itertools
import json
import random
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fl_platform.errors import UserError
from fl_platform.sweeps import engine
from fl_platform.sweeps.definition import Sweep
from fl_platform.sweeps.proposals import EngineTrial, engine_config, grid, limit, params_of, propose, to_stop
from fl_platform.sweeps.states import TrialState

ACCURACY = {"name": "test/accuracy", "goal": "maximize"}


def sweep_of(parameters: dict[str, Any], **content: Any) -> Sweep:
    return Sweep(Path("x.yaml"), {"method": "grid", "command": ["run"], "parameters": parameters, **content})


def test_grid_is_the_product_once_each() -> None:
    sweep = sweep_of(
        {
            "seed": {"values": [0, 1]},
            "algorithm": {"parameters": {"mu": {"values": [0.1, 0.2, 0.3]}}},
            "x": {"value": "a"},
        }
    )
    points = grid(sweep)
    wanted = [{"algorithm.mu": mu, "seed": seed, "x": "a"} for mu, seed in itertools.product([0.1, 0.2, 0.3], [0, 1])]
    assert points == wanted
    assert limit(sweep, None) == 6
    assert limit(sweep, 4) == 4
    assert limit(sweep_of(sweep.config["parameters"], run_cap=3), None) == 3


def test_whole_ranges_and_steps_are_listed() -> None:
    sweep = sweep_of({"a": {"min": 1, "max": 3}, "b": {"distribution": "q_uniform", "min": 0.0, "max": 1.0, "q": 0.25}})
    assert [point["a"] for point in grid(sweep)] == [1] * 4 + [2] * 4 + [3] * 4
    assert grid(sweep)[1]["b"] == 0.25


def test_points_and_their_order_are_those_of_wandbs_engine() -> None:
    sweep = sweep_of(
        {
            "z": {"values": [True, "true", 1.0, None, [1, 2]]},
            "n": {"min": -1, "max": 2},
            "k": {"value": "a"},
            "b": {"distribution": "q_uniform", "min": 0.1, "max": 1.0, "q": 0.3},
            "B": {"values": ["x", 3, 1e-05]},
        }
    )
    found = engine.next_runs(engine_config(sweep), [], n=1000)
    assert repr(grid(sweep)) == repr([params_of(run) for run in found if run is not None])


@pytest.mark.parametrize("method", ["random", "bayes"])
def test_a_search_is_repeatable_and_leaves_the_generators_alone(method: str) -> None:
    parameters = {"a": {"distribution": "log_uniform_values", "min": 1e-3, "max": 1.0}, "b": {"values": [1, 2]}}
    sweep = sweep_of(parameters, method=method, metric=ACCURACY, run_cap=9)
    seen = [
        EngineTrial(n, {"a": 0.1 * (n + 1), "b": 1}, TrialState.FINISHED, {"test/accuracy": n / 9}) for n in range(3)
    ]
    before, numpy_before = random.getstate(), np.random.get_state()[1].copy()  # noqa: NPY002
    first, again, other = (propose(sweep, number, seen) for number in (3, 3, 4))
    assert first == again != other
    assert random.getstate() == before
    assert (np.random.get_state()[1] == numpy_before).all()  # noqa: NPY002
    assert 1e-3 <= first["a"] <= 1
    json.dumps(first)  # no numpy scalars


def test_bayes_learns_where_the_maximum_is() -> None:
    """On a parabola with its top at 0.7, most of ten proposals after 12 samples lie near it; goal minimize flees it."""
    parameters = {"a": {"distribution": "uniform", "min": 0.0, "max": 1.0}}
    seen = [
        EngineTrial(n, {"a": n / 11}, TrialState.FINISHED, {"test/accuracy": 1 - (n / 11 - 0.7) ** 2})
        for n in range(12)
    ]

    def near(goal: str) -> int:
        sweep = sweep_of(parameters, method="bayes", metric={**ACCURACY, "goal": goal}, run_cap=99)
        return sum(abs(propose(sweep, n, seen)["a"] - 0.7) < 0.15 for n in range(12, 22))

    assert near("maximize") >= 7
    assert near("minimize") <= 3


def test_a_search_without_end_needs_a_cap() -> None:
    sweep = sweep_of({"a": {"min": 0.0, "max": 1.0}}, method="random")
    with pytest.raises(UserError, match="method=random never ends by itself"):
        limit(sweep, None)
    assert limit(sweep, 5) == 5


def test_hyperband_gives_up_the_worse_running_trials() -> None:
    """max_iter=9, eta=3, s=2 looks at the values of index 1 and 3 and keeps what reaches the best third's worst.

    Index 1 has 0.9, 0.8, 0.2: the second of three, 0.8, is the bar. Index 3 has 0.9 and 0.8: the bar is 0.9.
    """
    sweep = sweep_of(
        {"a": {"values": [0]}}, metric=ACCURACY, early_terminate={"type": "hyperband", "max_iter": 9, "s": 2}
    )
    curves = {0: [0.1, 0.9, 0.9, 0.9], 1: [0.1, 0.2], 2: [0.1, 0.8], 3: [0.1]}

    def stopped() -> list[int]:
        return to_stop(
            sweep,
            [
                EngineTrial(n, {"a": 0}, TrialState.STARTED if n else TrialState.FINISHED, history=c)
                for n, c in curves.items()
            ],
        )

    assert stopped() == [1]
    curves[2] += [0.8, 0.8]
    assert stopped() == [1, 2]
