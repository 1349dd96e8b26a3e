"""Presets: readings of the paper by name. An option declares its value under a preset, ``option(presets=...)``."""

import dataclasses
from collections.abc import Iterable
from typing import Any

from fl_platform.errors import unknown_name

PRESETS = {
    "paper": "the paper's text: 1/S weights, one QP over the whole vector, x_{-1} = the worker's last local model",
    "released": "the authors' code: sample weights, one QP per named tensor, x_{-1} = x_t in the joint algorithm",
}
"""Name -> description. An option that declares nothing for a preset keeps its default, which is the paper's."""


def preset_values(preset: str, options: Iterable[tuple[str, "dataclasses.Field[Any]"]]) -> dict[str, Any]:
    """Return the values that (key, option) pairs declare for a preset; UserError for a name that is not known."""
    if preset not in PRESETS:
        raise unknown_name("preset", preset, PRESETS)
    declared = {key: field.metadata.get("presets", {}) for key, field in options}
    return {key: values[preset] for key, values in declared.items() if preset in values}
