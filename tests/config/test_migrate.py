"""Configurations of earlier versions get the keys of this one."""

import copy

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_platform.config.compose import compose, from_given, parse_mapping
from fl_platform.config.migrate import ADDED, MOVED, upgraded
from fl_platform.config.options import default_of, walk
from fl_platform.config.registry import ALGORITHMS
from fl_platform.config.resolve import resolve
from fl_platform.config.schema import flatten, known_keys, to_dict
from fl_platform.errors import UserError

QP = {"solver": "exact", "scope": "tensor", "worker_margin": 0.1, "server_margin": 0.2, "drop_threshold": 0.3}
LATER = {"log_errors": False}
MEMORY = {"policy": "fifo", "device": None, "shard": True}


def earlier(name, **fields):
    return {"seed": 1, "algorithm": {"name": name, **fields}, "qp": dict(QP), "memory": dict(MEMORY)}


@pytest.mark.parametrize(
    ("name", "added"),
    [
        ("fedavg", {}),
        ("gradma_w", {"qp": {**LATER, **{key: QP[key] for key in ("solver", "scope", "worker_margin")}}}),
        (
            "gradma_s",
            {
                "qp": {**LATER, **{key: QP[key] for key in ("solver", "scope", "server_margin", "drop_threshold")}},
                **{f"memory_{key}": value for key, value in MEMORY.items()},
            },
        ),
        ("gradma", {"qp": {**LATER, **QP}, **{f"memory_{key}": value for key, value in MEMORY.items()}}),
    ],
)
def test_options_go_to_the_algorithm_that_uses_them_and_nowhere_else(name, added):
    old = earlier(name)
    kept = copy.deepcopy(old)
    new = upgraded(old)
    assert new == {"seed": 1, "algorithm": {"name": name, **added}}
    assert old == kept
    assert upgraded(new) is new


@pytest.mark.parametrize("name", ["gradma", "gradma_s", "gradma_w", "fedprox"])
def test_an_upgraded_configuration_resolves(name):
    old = to_dict(compose([f"algorithm.name={name}"])) | {"qp": QP, "memory": MEMORY}
    spec = resolve(from_given(parse_mapping(upgraded(old), "old")))
    assert spec.config.algorithm.get("qp", {}).get("scope", "tensor") == "tensor"
    with pytest.raises(UserError, match=r"^old: unknown key 'qp\.solver'; it is now algorithm\.qp\.solver$"):
        parse_mapping(old, "old")


def test_moved_keys_are_fields_now():
    fields = {f"algorithm.{key}" for _, kind in ALGORITHMS.items() for key, _ in walk(kind)}
    assert set(MOVED.values()) <= fields


def test_options_that_came_later_are_listed_with_their_defaults():
    """Else earlier and later runs of one method would count as different settings."""
    options = {f"algorithm.{key}": option for _, kind in ALGORITHMS.items() for key, option in walk(kind)}
    later = {key: default_of(option) for key, option in options.items() if option.metadata["identity"] == "changed"}
    assert later == ADDED
    assert not MOVED.keys() & known_keys().keys()


def test_parameters_of_a_sweep_recorded_by_wandb_are_renamed_too():
    new = upgraded({**earlier("gradma_s"), "memory.policy": "fifo"})
    assert new["algorithm.memory_policy"] == "fifo"
    assert dict(flatten(new))["algorithm.memory_policy"] == "fifo"
    assert "memory.policy" not in upgraded({**earlier("fedavg"), "memory.policy": "fifo"})


values = st.recursive(
    st.none() | st.integers() | st.text(max_size=3),
    lambda inner: st.dictionaries(st.sampled_from(["name", "qp", "scope", "policy", "memory", "x"]), inner),
)


@given(st.dictionaries(st.sampled_from(["algorithm", "qp", "memory", "qp.scope", "memory.policy", "x"]), values))
def test_whatever_a_log_holds_is_returned_without_an_error(config):
    new = upgraded(config)
    assert new.get("x") == config.get("x")
    assert upgraded(new) == new
