"""How long and how deep YAML from outside may be: its parsers have no limits of their own."""

import re

import yaml

from fl_platform.errors import UserError

LONGEST_YAML = 1_000_000
"""Characters of a YAML text."""
MOST_VALUES = 200_000
"""Values in a YAML text once its aliases are written out; with each collection counted as one more."""
LONGEST_NUMBER = 1000
"""Digits without a space: Python makes no text of a whole number with more than 4,300, as 0x... may be."""
_LONG_NUMBER = re.compile(rf"[0-9a-fA-F_:xob]{{{LONGEST_NUMBER + 1}}}")
_DEEPEST_YAML = 100
_HARMLESS = 10_000  # characters that cannot nest deeper than the parsers written in C can bear


def check_size(text: str) -> None:
    """Refuse YAML that is long, deep, or becomes so: ten lines of aliases can stand for a billion values."""
    if len(text) > LONGEST_YAML:
        raise UserError(f"it has more than {LONGEST_YAML} characters")
    if len(text) > LONGEST_NUMBER and _LONG_NUMBER.search(text):
        raise UserError(f"it has a number of more than {LONGEST_NUMBER} digits")
    if len(text) < _HARMLESS and not ("&" in text and "*" in text):
        return
    counts: list[int] = [0]  # of the collections that are open, the innermost last
    anchors: list[str | None] = [None]
    sizes: dict[str | None, int] = {}
    for event in yaml.parse(text, Loader=getattr(yaml, "CSafeLoader", yaml.SafeLoader)):
        if isinstance(event, yaml.CollectionStartEvent):
            counts.append(1)
            anchors.append(event.anchor)
        elif isinstance(event, yaml.CollectionEndEvent):
            size = sizes[anchors.pop()] = counts.pop()
            counts[-1] += size
        elif isinstance(event, yaml.ScalarEvent):
            sizes[event.anchor] = 1
            counts[-1] += 1
        elif isinstance(event, yaml.AliasEvent):
            counts[-1] += MOST_VALUES if event.anchor in anchors else sizes.get(event.anchor, 1)
        if len(counts) > _DEEPEST_YAML:
            raise UserError(f"it nests deeper than {_DEEPEST_YAML} levels")
    if counts[0] > MOST_VALUES:
        raise UserError(f"it has more than {MOST_VALUES} values, with its aliases written out")
