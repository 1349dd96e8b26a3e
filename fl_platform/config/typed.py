"""A value that was given for an option declared outside the schema, as the type it declares."""

import dataclasses
from collections.abc import Hashable
from functools import lru_cache
from typing import Any

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fl_platform.config.options import check_value
from fl_platform.config.schema import shown
from fl_platform.errors import UserError


def typed(key: str, value: Any, field: "dataclasses.Field[Any]") -> Any:
    """Return a given value as the type its option declares; UserError where it has another or is not allowed."""
    try:
        if isinstance(value, str | bool | int | float):
            found = _scalar_as(field.type, repr(value), value)  # type: ignore[arg-type]
        else:
            found = _as(field.type, value)
    except (OmegaConfBaseException, ValueError, OverflowError):
        expected = getattr(field.type, "__name__", field.type)
        raise UserError(f"{key}={shown(value)} has the wrong type; expected {expected}") from None
    check_value(key, found, field)
    return found


@lru_cache(maxsize=4096)
def _scalar_as(wanted: Any, text: str, value: Hashable) -> Any:
    """As below, once per value; ``text`` tells 1, 1.0 and true apart, which are equal."""
    return _as(wanted, value)


def _as(wanted: Any, value: Any) -> Any:
    """A value as the type ``wanted``; an exception of OmegaConf where it cannot be that."""
    schema = dataclasses.make_dataclass("Field", [("value", wanted, dataclasses.field(default=MISSING))])
    return OmegaConf.to_object(OmegaConf.merge(schema, {"value": value})).value  # type: ignore[union-attr]
