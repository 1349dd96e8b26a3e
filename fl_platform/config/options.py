"""Declared options: a dataclass field with its help text, its bounds and, where the paper has one, its grid."""

import dataclasses
import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

from fl_platform.errors import UserError, did_you_mean


def option(
    default: Any,
    help: str,
    *,
    choices: tuple[str, ...] | None = None,
    at_least: float | None = None,
    above: float | None = None,
    at_most: float | None = None,
    below: float | None = None,
    grid: tuple[Any, ...] | None = None,
    when: tuple[str, *tuple[Any, ...]] | None = None,
    presets: Mapping[str, Any] | None = None,
    is_device: bool = False,
    identity: bool | str = True,
) -> Any:
    """Declare a dataclass field that documents and checks itself.

    ``grid`` holds the values that searches try: those of its publication where they are known.
    ``when=(key, value, ...)`` says that the option has an effect only while the option with that full dotted key has
    one of these values. ``presets`` maps a preset's name to the value
    the option has under it. ``is_device`` marks the name of a torch device, looked for before a run starts.
    ``identity=False`` marks what says where or how a run is carried out, not which experiment it is: such options do
    not enter the run id. ``identity="changed"`` is for options that came later than the runs people have: they enter
    it with another value than the default, so that run ids without them stay as they are.
    """
    metadata = {
        "help": help,
        "choices": choices,
        "at_least": at_least,
        "above": above,
        "at_most": at_most,
        "below": below,
        "grid": grid,
        "when": when,
        "presets": presets or {},
        "is_device": is_device,
        "identity": identity,
    }
    if isinstance(default, list | dict):
        return dataclasses.field(default_factory=lambda: type(default)(default), metadata=metadata)
    return dataclasses.field(default=default, metadata=metadata)


def group(kind: type[Any], help: str) -> Any:
    """A dataclass field that holds a nested dataclass of options."""
    return dataclasses.field(default_factory=kind, metadata={"help": help})


def default_of(field: "dataclasses.Field[Any]") -> Any:
    """The default of a dataclass field, made anew where it has a factory."""
    return field.default_factory() if callable(field.default_factory) else field.default


def walk(kind: type[Any], prefix: str = "") -> Iterator[tuple[str, "dataclasses.Field[Any]"]]:
    """Yield every option of a nested dataclass as (dotted key, field); fields that are not arguments are no options."""
    for field in dataclasses.fields(kind):
        if not field.init:
            continue
        nested = default_of(field)
        if dataclasses.is_dataclass(nested):
            yield from walk(type(nested), f"{prefix}{field.name}.")
        else:
            yield prefix + field.name, field


_BOUNDS: dict[str, tuple[str, Callable[[float, float], bool]]] = {
    "at_least": (">=", lambda value, bound: value >= bound),
    "above": (">", lambda value, bound: value > bound),
    "at_most": ("<=", lambda value, bound: value <= bound),
    "below": ("<", lambda value, bound: value < bound),
}


def allowed(field: "dataclasses.Field[Any]") -> str:
    """What the option admits, in words: ``> 0 and <= 1`` or ``offline | online``."""
    if choices := field.metadata.get("choices"):
        return " | ".join(choices)
    bounds = [
        f"{sign} {field.metadata[name]:g}"
        for name, (sign, _) in _BOUNDS.items()
        if field.metadata.get(name) is not None
    ]
    return " and ".join(bounds)


def condition(field: "dataclasses.Field[Any]") -> str:
    """Return when the option has an effect, such as ``only with data.partition=shards``; empty: always."""
    key, *values = field.metadata.get("when") or ("",)
    if key.rpartition(".")[2] in ("", field.name):  # none, or the option's own value
        return ""
    return f"only with {key}={' | '.join(map(str, values))}"


def has_effect(field: "dataclasses.Field[Any]", values: Mapping[str, Any]) -> bool:
    """Return whether the option's condition holds among all values, given by dotted key."""
    if not field.metadata.get("when"):
        return True
    key, *wanted = field.metadata["when"]
    return values.get(key) in wanted


def enters_identity(field: "dataclasses.Field[Any]") -> bool:
    """Return whether the option says which experiment a run is."""
    return bool(field.metadata.get("identity", True))


def counts(key: str, field: "dataclasses.Field[Any]", values: Mapping[str, Any]) -> bool:
    """Return whether an option enters the run id of these values, given by dotted key."""
    is_as_before = field.metadata.get("identity") == "changed" and values.get(key) == default_of(field)
    return enters_identity(field) and not is_as_before and has_effect(field, values)


def check_value(key: str, value: Any, field: "dataclasses.Field[Any]") -> None:
    """Raise UserError unless ``value`` respects the bounds and choices of its option."""
    if value is None:
        return
    choices = field.metadata.get("choices")
    for chosen in value if isinstance(value, list) else [value]:
        if choices and chosen not in choices:
            raise UserError(
                f"{key}={value} is not allowed; allowed: {' | '.join(choices)}{did_you_mean(str(chosen), choices)}"
            )
    if isinstance(value, list) and any(isinstance(item, list | dict) for item in value):
        raise UserError(f"{key}={value} has the wrong type; its items must be single values")
    numbers = [value] if isinstance(value, int | float) else value if isinstance(value, list) else []
    for number in numbers:
        if not isinstance(number, int | float) or isinstance(number, bool):
            continue
        if isinstance(number, int) and abs(number) >= 1 << 63:
            raise UserError(f"{key}={value} is not allowed; it must be a number of at most 63 bits")
        if not math.isfinite(number):
            raise UserError(f"{key}={value} is not allowed; it must be a finite number {allowed(field)}".rstrip())
        if not all(
            holds(number, field.metadata[name])
            for name, (_, holds) in _BOUNDS.items()
            if field.metadata.get(name) is not None
        ):
            raise UserError(f"{key}={value} is not allowed; it must be {allowed(field)}")


def check(options: Any, prefix: str = "") -> None:
    """Check every option of a (nested) dataclass instance that is not its default."""
    for field in dataclasses.fields(options):
        value = getattr(options, field.name)
        if dataclasses.is_dataclass(value):
            check(value, f"{prefix}{field.name}.")
        elif value is not field.default and not isinstance(value, Mapping):
            check_value(prefix + field.name, value, field)
