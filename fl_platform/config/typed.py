"""A value that was given for an option, as the type that the option declares.

OmegaConf converts it, in a configuration of this one value, and the result is kept: a sweep of many trials has few
different values.
"""

import copy
import dataclasses
from dataclasses import dataclass
from functools import cache, lru_cache
from typing import Any

from omegaconf import MISSING, DictConfig, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fl_platform.config.options import check_value
from fl_platform.config.schema import shown
from fl_platform.errors import UserError


def typed(key: str, value: Any, field: "dataclasses.Field[Any]") -> Any:
    """Return a given value as the type its option declares; UserError where it has another or is not allowed."""
    found = of_type(key, value, field)
    check_value(key, found, field)
    return found


def of_type(key: str, value: Any, field: "dataclasses.Field[Any]") -> Any:
    """As ``typed``, without a look at bounds and choices."""
    try:
        if field.type is bool and str(value).lstrip("-").isdecimal() and str(value) not in ("0", "1"):
            raise ValueError  # OmegaConf takes any whole number but 0 for true
        found = _converted(field.type, _Plain(repr(value), value))  # type: ignore[arg-type]
    except (OmegaConfBaseException, ValueError, TypeError, OverflowError):
        expected = getattr(field.type, "__name__", field.type)
        raise UserError(f"{key}={shown(value)} has the wrong type; expected {expected}") from None
    return copy.deepcopy(found)


@dataclass(frozen=True)
class _Plain:
    """A value of YAML, equal to another where both are written alike: 1, 1.0 and true are three."""

    text: str
    value: Any = dataclasses.field(compare=False)


@lru_cache(maxsize=4096)
def _converted(wanted: Any, given: _Plain) -> Any:
    """A value as the type ``wanted``, once per value; an exception of OmegaConf where it cannot be that."""
    return OmegaConf.to_object(OmegaConf.merge(_schema(wanted), {"value": given.value})).value  # type: ignore[union-attr]


@cache
def _schema(wanted: Any) -> DictConfig:
    """A configuration of one value of this type."""
    schema = dataclasses.make_dataclass("Field", [("value", wanted, dataclasses.field(default=MISSING))])
    return OmegaConf.structured(schema)  # type: ignore[no-any-return]
