"""Options check themselves: bounds, choices, finite numbers, and messages that say what is allowed."""

from dataclasses import dataclass, fields

import pytest
from hypothesis import given
from hypothesis import strategies as st

from fl_platform.config.options import allowed, check, check_value, group, option, walk
from fl_platform.errors import UserError, did_you_mean, unknown_name


@dataclass
class Inner:
    rate: float = option(0.5, "a rate", above=0, at_most=1)
    mode: str = option("one", "a choice", choices=("one", "two"))


@dataclass
class Outer:
    count: int = option(3, "a count", at_least=1, below=10)
    targets: list[float] = option([0.5], "several", at_least=0, at_most=1)
    free: float | None = option(None, "any number")
    inner: Inner = group(Inner, "nested")


FIELDS = {field.name: field for field in fields(Outer)} | {field.name: field for field in fields(Inner)}


def test_walk_lists_nested_options_by_dotted_key():
    assert [key for key, _ in walk(Outer)] == ["count", "targets", "free", "inner.rate", "inner.mode"]


def test_defaults_are_not_shared():
    first = Outer()
    first.targets.append(0.9)
    assert Outer().targets == [0.5]


@given(st.integers(-100, 100))
def test_bounds_hold_exactly(value):
    if 1 <= value < 10:
        check_value("count", value, FIELDS["count"])
    else:
        with pytest.raises(UserError, match=rf"count={value} is not allowed; it must be >= 1 and < 10"):
            check_value("count", value, FIELDS["count"])


@pytest.mark.parametrize("value", [float("nan"), float("inf"), -float("inf")])
@pytest.mark.parametrize("name", ["rate", "free"])
def test_numbers_must_be_finite(name, value):
    with pytest.raises(UserError, match=f"{name}={value} is not allowed; it must be a finite number"):
        check_value(name, value, FIELDS[name])


@pytest.mark.parametrize("value", [1 << 63, -(1 << 63), 10**400])
def test_numbers_must_fit_a_machine(value):
    with pytest.raises(UserError, match="at most 63 bits"):
        check_value("free", value, FIELDS["free"])


def test_null_is_left_to_whoever_fills_it_in():
    check_value("free", None, FIELDS["free"])


def test_every_number_of_a_list_is_checked():
    check_value("targets", [0.0, 1.0], FIELDS["targets"])
    with pytest.raises(UserError, match=r"targets=\[0.5, 2.0\] is not allowed; it must be >= 0 and <= 1"):
        check_value("targets", [0.5, 2.0], FIELDS["targets"])


def test_nested_options_are_named_by_their_dotted_key():
    with pytest.raises(UserError, match=r"inner\.mode=twoo is not allowed; allowed: one \| two; did you mean 'two'\?"):
        check(Outer(inner=Inner(mode="twoo")))


def test_allowed_in_words():
    assert allowed(FIELDS["rate"]) == "> 0 and <= 1"
    assert allowed(FIELDS["mode"]) == "one | two"
    assert allowed(FIELDS["free"]) == ""


def test_hints_name_the_closest_and_stay_silent_otherwise():
    assert did_you_mean("fedporx", ["fedavg", "fedprox"]) == "; did you mean 'fedprox'?"
    assert did_you_mean("zzz", ["fedavg"]) == ""
    assert str(unknown_name("data.name", "minst", ["mnist", "digits"])) == (
        "data.name=minst is not known; allowed: digits, mnist; did you mean 'mnist'?"
    )
