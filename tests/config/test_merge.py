"""Merging from converted values gives what OmegaConf's own merging gives."""

import pytest

from fl_platform.config.compose import compose
from fl_platform.config.merge import merged_by_omegaconf, merged_quickly
from fl_platform.config.schema import known_keys
from fl_platform.config.typed import of_type
from fl_platform.errors import UserError

CASES = [
    [],
    [("seed", 3), ("seed", 5)],
    [("local_lr", 1), ("num_workers", "20"), ("evaluation.every", None)],
    [("tracking.tags", ["a", "b"]), ("evaluation.targets", [0.5, "0.9"])],
    [("algorithm.name", "gradma"), ("algorithm.qp.solver", "exact"), ("algorithm.mu", 0.1)],
    [("algorithm.mu", [1, {"a": 2}]), ("trainer.devices", 2), ("model.options.width", 3)],
    [("checkpoint.keep_best", "true"), ("output.dir", "somewhere")],
]


@pytest.mark.parametrize("values", CASES, ids=range(len(CASES)))
def test_both_ways_agree(values):
    quick, plain = merged_quickly(values), merged_by_omegaconf(values)
    assert quick == plain
    assert repr(quick) == repr(plain)  # 1, 1.0 and true are equal


@pytest.mark.parametrize(("name", "value"), [("seed", "word"), ("tracking.tags", 5), ("local_lr", [1]), ("seed", None)])
def test_both_ways_refuse_alike(name, value):
    with pytest.raises(UserError) as quick:
        merged_quickly([(name, value)])
    with pytest.raises(UserError) as plain:
        merged_by_omegaconf([(name, value)])
    assert str(quick.value) == str(plain.value)


@pytest.mark.parametrize(
    "values",
    [
        [("algorithm.qp", 5), ("algorithm.qp.solver", "exact")],
        [("algorithm.qp.solver", "exact"), ("algorithm.qp", 5)],
        [("algorithm.qp", {})],
        [("model", {})],
    ],
)
def test_keys_that_meet_each_other_are_left_to_omegaconf(values):
    assert merged_quickly(values) is None


def test_values_written_alike_are_converted_alike_and_others_not():
    rate, seed = known_keys()["local_lr"], known_keys()["seed"]
    assert repr([of_type("local_lr", value, rate) for value in (1, 1.0, "1")]) == "[1.0, 1.0, 1.0]"
    assert of_type("seed", 1, seed) == 1
    with pytest.raises(UserError, match="seed"):
        of_type("seed", 1.5, seed)


def test_configurations_share_nothing_that_can_be_changed():
    first, second = compose(["tracking.tags=[a]"]), compose(["tracking.tags=[a]"])
    first.tracking.tags.append("b")
    first.algorithm["mu"] = 1
    first.trainer["devices"] = 2
    first.data.name = "other"
    assert second.tracking.tags == ["a"]
    assert compose([]) == compose([])
    assert "mu" not in second.algorithm
    assert second.trainer == {}
    assert second.data.name == "digits"
