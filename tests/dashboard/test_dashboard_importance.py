"""Importance of settings: what matters comes first, and too little data is refused."""

import numpy as np
import pytest

from fl_platform.dashboard.importance import importances
from fl_platform.errors import UserError


def test_the_setting_that_decides_comes_first() -> None:
    draw = np.random.default_rng(0)
    rate, size, seed = draw.uniform(0, 1, 80), draw.choice([10, 50, 100], 80), draw.integers(0, 5, 80)
    kind = draw.choice(["a", "b"], 80)
    objective = (rate**2 + 0.3 * (kind == "b")).tolist()
    columns = [rate.tolist(), size.tolist(), seed.tolist(), kind.tolist()]
    found = importances(["rate", "size", "seed", "kind"], columns, objective)
    assert [one["key"] for one in found["keys"]][:2] == ["rate", "kind"]
    assert found["n"] == 80
    assert found["r2"] > 0.8
    by_key = {one["key"]: one["importance"] for one in found["keys"]}
    assert by_key["rate"] > 0.5 > 0.1 > abs(by_key["seed"])
    assert importances(["rate", "size", "seed", "kind"], columns, objective) == found, "it does not depend on chance"


def test_runs_without_a_value_or_an_objective() -> None:
    objective = [None if place % 7 == 0 else float(place) for place in range(40)]
    found = importances(["a"], [[None if place % 5 == 0 else float(place) for place in range(40)]], objective)
    assert found["n"] == 34


def test_too_little_is_refused() -> None:
    with pytest.raises(UserError, match="needs at least 10 runs with the objective; 3 of the shown have it"):
        importances(["a"], [[1.0, 2.0, 3.0, 4.0]], [1.0, 2.0, 3.0, None])
    with pytest.raises(UserError, match="do not differ in any setting"):
        importances([], [], [float(place) for place in range(20)])
    with pytest.raises(UserError, match="the same for all"):
        importances(["a"], [[float(place) for place in range(20)]], [1.0] * 20)
