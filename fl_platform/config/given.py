"""Keys that were given, nested by their dots: plain mappings, from which the schema makes a ``Config``.

``{"data": {"name": "mnist"}}`` is ``data.name=mnist``. Values are of YAML and not converted yet.
"""

import copy
from typing import Any

Given = dict[str, Any]


def put_nested(given: Given, name: str, value: Any) -> bool:
    """Set a dotted key, over a single value that stands on its way; returns False where a list meets a mapping."""
    *groups, last = name.split(".")
    place = given
    for group in groups:
        inner = place.get(group)
        if isinstance(inner, list):
            return False
        if not isinstance(inner, dict):
            inner = place[group] = {}
        place = inner
    before = place.get(last)
    if isinstance(before, dict) and isinstance(value, dict):
        lay_over(before, value)
    elif isinstance(before, list | dict) and isinstance(value, list | dict) and type(before) is not type(value):
        return False
    else:
        place[last] = value
    return True


def lay_over(given: Given, stronger: Given) -> None:
    """Set all keys of ``stronger``, which stays as it is; mappings are merged, anything else is replaced."""
    for name, value in stronger.items():
        before = given.get(name)
        if isinstance(before, dict) and isinstance(value, dict):
            lay_over(before, value)
        else:
            given[name] = copy.deepcopy(value)


def select(given: Given, name: str) -> Any:
    """The value of a dotted key, None where it was not given."""
    place: Any = given
    for part in name.split("."):
        place = place.get(part) if isinstance(place, dict) else None
    return place
