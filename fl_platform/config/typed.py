"""A value that was given for an option declared outside the schema, as the type it declares."""

import dataclasses
from typing import Any

from omegaconf import MISSING, OmegaConf
from omegaconf.errors import OmegaConfBaseException

from fl_platform.config.options import check_value
from fl_platform.config.schema import shown
from fl_platform.errors import UserError


def typed(key: str, value: Any, field: "dataclasses.Field[Any]") -> Any:
    """Return a given value as the type its option declares; UserError where it has another or is not allowed."""
    schema = dataclasses.make_dataclass("Field", [(field.name, field.type, dataclasses.field(default=MISSING))])
    try:
        found = getattr(OmegaConf.to_object(OmegaConf.merge(schema, {field.name: value})), field.name)
    except (OmegaConfBaseException, ValueError, OverflowError):
        expected = getattr(field.type, "__name__", field.type)
        raise UserError(f"{key}={shown(value)} has the wrong type; expected {expected}") from None
    check_value(key, found, field)
    return found
